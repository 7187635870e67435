"""Functions as they run: TensorFlow's, when it calls them, replaced by ones with clusters.

`AtomicFunction.call_flat` is where TensorFlow's Python calls any function: traced, loaded, the forward and backward ones of a tape. A
function called from Python is transformed there, with all that it calls, when it is first called. So derivatives are taken of TensorFlow's
own graph, and what is saved has no op of ours.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.atomic_function import AtomicFunction, from_func_graph

from ngraph.bridge import kernel, pictures
from ngraph.bridge.clustering import LEAST_IN_LOOPS, LEAST_NODES, Clustering, Unmerged, assign, deassign
from ngraph.bridge.encapsulate import Encapsulated, encapsulate
from ngraph.bridge.flatten import TypedFunction, flat_function, imported, typed, value_of
from ngraph.bridge.hoisting import hoisted
from ngraph.bridge.marking import BRANCHES, Marks, counted, mark
from ngraph.bridge.running import RunningCluster, compute, running
from ngraph.bridge.variables import forwarded, with_shapes
from ngraph.errors import ArgumentError, ArgumentTypeError, NgraphError, UnsupportedError, nearest
from ngraph.frontends.tensorflow import table
from ngraph.transformers.base import transformer_choices

SMALLEST = 4  # nodes of a function below which it is left alone


class Settings:
    """The settings of the bridge. version: a number of their state; a function is transformed again when it has changed."""

    def __init__(self) -> None:
        self.enabled, self.backend, self.disabled, self.logging = False, "CPU", frozenset[str](), False
        self.version = 0
        self.names: set[str] = set()  # Python names of functions that `@ng.tensorflow.function` has enabled


settings = Settings()
_numbers = itertools.count(1)
_lock = threading.RLock()
_inside = threading.local()


class BridgedFunction:
    """A function with clusters in place of nodes of ours.

    in_loop  whether it is the body of a loop
    function  that TensorFlow calls; None where it is left as it is, and `reason` says why
    """

    def __init__(self, name: str, in_loop: bool = False):
        self.name, self.in_loop, self.reason, self.seconds = name, in_loop, "", 0.0
        self.function: Any = None
        self.nodes = self.marked = self.clustered = 0
        self.clusters: list[RunningCluster] = []
        self.left: dict[str, dict[str, int]] = {}
        self.edges: list[Unmerged] = []
        self.dropped: list[tuple[str, list[str]]] = []
        self.inner: list[BridgedFunction] = []
        self.former: list[RunningCluster] = []  # clusters that have failed
        self.failed: dict[str, str] = {}  # nodes of clusters that have failed or were slower, with the reason
        self.slower: list[tuple[str, list[str]]] = []  # clusters whose plan was slower by its price: the reason and the nodes
        self.version, self.called = -1, False  # called: since the last reset of reports
        self.picture: tuple[TypedFunction, Marks, dict[str, int]] | None = None

    @property
    def whole(self) -> list[BridgedFunction]:
        """Returns it, and the bodies of its branches and loops."""
        return [self, *(f for i in self.inner for f in i.whole)]

    def build(self, like: Sequence[Any], function_type: Any = None) -> None:
        """Makes the function anew. like: tensors or types of its arguments."""
        start = time.perf_counter()
        version, self.function, self.reason = settings.version, None, ""
        for c in self.clusters:
            if c.failure:
                self.former.append(c)
                self.failed.update(dict.fromkeys(_blamed(c), f"its cluster failed: {c.failure}"))
            elif c.slower:
                self.slower.append((c.slower, c.about.nodes))
                self.failed.update(dict.fromkeys(c.about.nodes, f"its cluster was given back: {c.slower}"))
        self.clusters = []
        try:
            self._build(like, function_type)
        except (NgraphError, tf.errors.OpError, ValueError, TypeError, KeyError, LookupError) as error:
            self.reason = error.message if isinstance(error, NgraphError) else f"{type(error).__name__}: {error}"
        self.seconds += time.perf_counter() - start
        self.version = version  # last: threads that call meanwhile wait for what is made

    def _build(self, like: Sequence[Any], function_type: Any) -> None:
        flat = with_shapes(forwarded(hoisted(flat_function(self.name))))
        self.nodes = len(flat.graph.node)
        if self.nodes < SMALLEST:
            self.reason = f"it has {self.nodes} nodes"
            return
        graph = imported(flat, like)
        function = typed(flat, graph)
        pictures.dump("unmarked", function)
        marks, clustering = phases(function, self.failed, LEAST_IN_LOOPS if self.in_loop else LEAST_NODES)
        self.marked = len(marks.ours)
        self.clustered = sum(len(c.nodes) for c in clustering.clusters)
        self.left, self.edges, self.dropped = counted(marks.reasons, function), clustering.edges, [*clustering.dropped, *self.slower]
        self.picture = function, marks, clustering.of
        bodies = self._bodies(function, graph, marks)
        if not clustering.clusters and not bodies:
            self.reason = "it has no cluster"
            return
        made = encapsulate(function, marks, clustering, _numbers, get_backend())
        for node in made.flat.graph.node:
            for key, name in bodies.get(node.name, {}).items():
                node.attr[key].func.name = name
        self.clusters = [RunningCluster(c, self.name, get_backend(), not keeps_all()) for c in made.clusters]
        running.update((c.about.number, c) for c in self.clusters)
        new = self._graph(made, like)
        pictures.dump("encapsulated", typed(made.flat, new))
        self.function = from_func_graph(f"{self.name}_ngraph_{next(_numbers)}", new, {}, function_type)
        weakref.finalize(self.function, _forget, [c.about.number for c in self.clusters])

    def _bodies(self, function: TypedFunction, graph: Any, marks: Marks) -> dict[str, dict[str, str]]:
        """Returns the functions of branches and loops that stay, with clusters in them: by node and attribute."""
        found: dict[str, dict[str, str]] = {}
        before, self.inner = self.inner, []
        for node in function.nodes.values():
            if node.op not in BRANCHES or node.name in marks.ours:
                continue
            op = graph.get_operation_by_name(node.name)
            like = [_like(i, o) for i, o in zip(op.inputs, op.outputs, strict=True)] if "While" in node.op else list(op.inputs)[1:]
            for key, a in node.proto.attr.items():
                if a.WhichOneof("value") != "func":
                    continue
                inner = next((i for i in before if i.name == a.func.name), None) or BridgedFunction(a.func.name, "While" in node.op)
                inner.build(like)
                self.inner.append(inner)
                if inner.function is not None:
                    found.setdefault(node.name, {})[key] = inner.function.name.decode()
        return found

    def _graph(self, made: Encapsulated, like: Sequence[Any]) -> Any:
        graph = imported(made.flat, like)
        for value, shape in made.shapes.items():
            graph.get_tensor_by_name(value).set_shape(shape)
        arguments = dict(zip(made.flat.takes, graph.inputs, strict=True))

        def tensor(value: str) -> Any:
            name = value.rpartition(":")[0]
            return arguments[name] if name in arguments else graph.get_tensor_by_name(value_of(value))

        with graph.as_default():  # a function cannot give an argument itself
            graph.outputs = [tf.identity(t) if any(t is i for i in graph.inputs) else t for t in map(tensor, made.flat.gives)]
        graph.control_outputs = [graph.get_operation_by_name(n) for n in made.flat.effects]
        return graph

    @property
    def stale(self) -> bool:
        """Whether it has to be made anew: settings have changed, or a cluster has failed or was slower since."""
        return self.version != settings.version or any(c.failure or c.slower for f in self.whole for c in f.clusters)


def _blamed(cluster: RunningCluster) -> list[str]:
    """Returns the nodes that a failed cluster loses: that which the error names, else all."""
    found = re.match(r"node '([^']+)'", cluster.failure)
    return [found[1]] if found and found[1] in cluster.about.nodes else cluster.about.nodes


def _like(given: Any, carried: Any) -> Any:
    """Returns what a loop carries: of the shape that holds in all turns, with what is known of variables."""
    return given if given.dtype == tf.resource else carried


def _forget(numbers: Sequence[int]) -> None:
    for number in numbers:
        running.pop(number, None)


def keeps_all() -> bool:
    """Returns whether no cluster is given back."""
    return bool(os.environ.get("NGRAPH_TF_DISABLE_DEASSIGN_CLUSTERS"))


def phases(function: TypedFunction, failed: Mapping[str, str] | None = None, least: int = LEAST_NODES) -> tuple[Marks, Clustering]:
    """Returns a function's marks and clusters, with the settings and environment as they are."""
    disabled, least = of_environment(least)
    marks = mark(function, settings.disabled | disabled, failed)
    pictures.dump("marked", function, marks)
    dropped: list[tuple[str, list[str]]] = []
    while True:
        clustering = assign(function, marks)
        if not dropped:
            pictures.dump("clustered", function, marks, clustering.of)
        again = deassign(function, marks, clustering, keeps_all(), least)
        dropped += clustering.dropped
        if not again:
            break
    clustering.dropped = dropped
    pictures.dump("declustered", function, marks, clustering.of)
    return marks, clustering


def of_environment(least: int = LEAST_NODES) -> tuple[frozenset[str], int]:
    """Returns the ops that the environment disables, and its least number of nodes in a cluster; `least` where it says none.

    Raises UnsupportedError for unknown ops, ArgumentError for what is no number.
    """
    said = os.environ.get("NGRAPH_TF_MIN_NONTRIVIAL_NODES", "").strip()
    if said and not said.isdecimal():
        raise ArgumentError(
            f"NGRAPH_TF_MIN_NONTRIVIAL_NODES is {said!r}, which is no number of nodes", fix=f"set it to {LEAST_NODES}, or unset it"
        )
    return op_names(os.environ.get("NGRAPH_TF_DISABLED_OPS", ""), "NGRAPH_TF_DISABLED_OPS: "), int(said or least)


# ---- where TensorFlow calls functions --------------------------------------------------------------------------------------

_bridged: dict[str, BridgedFunction] = {}
_call_flat: Callable[..., Any] = AtomicFunction.call_flat


def python_name(name: str) -> str:
    """Returns the name of the Python function that a function of TensorFlow's was traced from, or is the derivative of."""
    return re.sub(r"^(__inference_|__forward_|__backward_)+|(_\d+)+$", "", name)


def wanted(name: str) -> bool:
    """Returns whether a function is to be transformed."""
    if os.environ.get("NGRAPH_TF_DISABLE"):
        return False
    return settings.enabled or bool(getattr(_inside, "depth", 0)) or python_name(name) in settings.names


def bridged(function: AtomicFunction) -> Any:
    """Returns the function that is called in place of one of TensorFlow's: with clusters, or itself."""
    name = function.name.decode()
    if not wanted(name):
        return function
    found = _bridged.get(name)
    if found is None or found.stale:
        with _lock:
            found = _bridged.get(name)
            if found is None:
                found = _bridged[name] = BridgedFunction(name)
                weakref.finalize(function, _gone, name)
            if found.stale:
                found.build(_arguments(function), function.function_type)
                if settings.logging or os.environ.get("NGRAPH_TF_LOG_PLACEMENT"):
                    log_placement(found)
    found.called = True
    return function if found.function is None else found.function


def _arguments(function: AtomicFunction) -> list[Any]:
    """Returns what is known of a function's arguments; those of backward functions are not all in its type."""
    kind, count = function.function_type, len(function.cached_definition.signature.input_arg)
    found = [*kind.flat_inputs, *kind.flat_captures]
    return found if len(found) == count else list(function.graph.inputs)


def _gone(name: str) -> None:
    """Forgets the function made for one that TensorFlow has let go; its report stays."""
    found = _bridged.pop(name, None)
    if found is not None:
        finished.append(found)
        found.function = None


finished: list[BridgedFunction] = []  # functions that are no more, for reports


def reported() -> list[BridgedFunction]:
    """Returns all functions that were called since the last reset, with bodies of their branches and loops."""
    return [f for b in (*finished, *_bridged.values()) if b.called for f in b.whole]


def reset() -> None:
    """Forgets the reports of functions that are no more, and counts of the others."""
    finished.clear()
    for b in _bridged.values():
        b.called = False
        for f in b.whole:
            f.former.clear()
            for c in f.clusters:
                c.calls = c.fallbacks = 0


def log_placement(found: BridgedFunction) -> None:
    """Prints which nodes are ours and in which cluster, as the bridge of 2019 did."""
    for f in found.whole:
        share = 100 / max(f.nodes, 1)
        print(
            f"NGTF_SUMMARY: {f.name}: nodes {f.nodes}, marked {f.marked} ({f.marked * share:.0f} %), clustered {f.clustered}"
            f" ({f.clustered * share:.0f} %), clusters {len(f.clusters)}"
        )
        if f.picture is not None:
            function, marks, of = f.picture
            for node in function.nodes.values():
                where = (
                    f"ngraph cluster {of[node.name]}" if node.name in of else f"TensorFlow: {marks.reasons.get(node.name, 'known value')}"
                )
                print(f"OP_placement: {node.op} {node.name}: {where}")


def install() -> None:
    """Registers the op, and takes the place where TensorFlow calls functions. Raises UnsupportedError for other versions."""
    kernel.register(compute)
    if AtomicFunction.call_flat is not _call_flat:
        return

    def call_flat(self: AtomicFunction, *args: Any) -> Any:
        if (settings.enabled or settings.names) and self._bound_context.executing_eagerly():
            return _call_flat(bridged(self), *args)
        return _call_flat(self, *args)

    AtomicFunction.call_flat = call_flat


# ---- the API ----------------------------------------------------------------------------------------------------------------


def enable() -> None:
    """Puts into ngraph what it can run of each function that TensorFlow calls from now on.

    Raises UnsupportedError for a version of TensorFlow, a backend or ops of the environment that there are not, ArgumentError for what else
    is wrong in it.
    """
    install()
    of_environment()
    if not is_supported_backend(get_backend()):
        raise _unavailable(get_backend(), "NGRAPH_TF_BACKEND: ")
    settings.enabled = True


def disable() -> None:
    """Leaves all functions to TensorFlow from now on, but those of `@ng.tensorflow.function`."""
    settings.enabled = False


def is_enabled() -> bool:
    """Returns whether functions are put into ngraph."""
    return settings.enabled


def list_backends() -> list[str]:
    """Returns the names that `set_backend` takes."""
    return ["CPU", *(name.upper() for name in transformer_choices() if name.upper() != "CPU")]


def set_backend(name: str) -> None:
    """Sets what runs clusters. Raises UnsupportedError for an unknown name."""
    if not is_supported_backend(name):
        raise _unavailable(name)
    settings.backend = name.upper()
    settings.version += 1


def _unavailable(name: object, where: str = "") -> UnsupportedError:
    near = nearest(str(name).upper(), list_backends())
    fix = f"write {near!r}" if near else f"there are {', '.join(list_backends())}"
    return UnsupportedError(f"{where}Backend {name} unavailable.", fix=fix)


def get_backend() -> str:
    """Returns the name of what runs clusters."""
    return os.environ.get("NGRAPH_TF_BACKEND", "").upper() or settings.backend


def is_supported_backend(name: str) -> bool:
    """Returns whether `set_backend` takes a name."""
    return isinstance(name, str) and name.upper() in list_backends()


def op_names(ops: str, where: str = "") -> frozenset[str]:
    """Returns the ops of a text that has commas between their names. Raises UnsupportedError for ops that are never ours."""
    if not isinstance(ops, str):
        raise ArgumentTypeError(f"ops are named by a text, not by {type(ops).__name__}", fix="put commas between them: 'Tanh,Relu'")
    names = frozenset(op.strip() for op in ops.split(",")) - {""}
    unknown = min(names - table.TABLE.keys(), default="")
    if unknown:
        near = nearest(unknown, table.TABLE)
        fix = f"write {near!r}" if near else "`ngraph ops --tensorflow` lists them"
        raise UnsupportedError(f"{where}{unknown} is not an op of ours", fix=fix)
    return names


def set_disabled_ops(ops: str) -> None:
    """Leaves ops to TensorFlow: their names, with commas between them. Raises UnsupportedError for ops that are never ours."""
    settings.disabled = op_names(ops)
    settings.version += 1


def get_disabled_ops() -> str:
    """Returns the ops that are left to TensorFlow, with commas between them."""
    return ",".join(sorted(settings.disabled))


def start_logging_placement() -> None:
    """Prints for each function that is transformed which of its nodes are ours."""
    settings.logging = True


def stop_logging_placement() -> None:
    """Ends what `start_logging_placement` started."""
    settings.logging = False


def is_logging_placement() -> bool:
    """Returns whether placement is printed."""
    return settings.logging or bool(os.environ.get("NGRAPH_TF_LOG_PLACEMENT"))


def function(f: Any = None, **options: Any) -> Any:
    """Returns a `tf.function` that runs in ngraph what it can, whether the bridge is enabled or not; derivatives of it, too.

    f: a Python function, or a tf.function. options: those of tf.function. Also a decorator, with options or without.
    """
    if f is None:
        return lambda g: function(g, **options)
    install()
    made = f if isinstance(f, tf.types.experimental.PolymorphicFunction) else tf.function(f, **options)
    return EnabledFunction(made)


class EnabledFunction:
    """A tf.function of which ngraph runs what it can. What else a tf.function has is found under the same names."""

    def __init__(self, made: Any):
        self._made = made
        python = getattr(made, "python_function", made)
        settings.names.add(getattr(python, "__name__", "").strip("<>"))

    def __call__(self, *args: Any, **named: Any) -> Any:
        _inside.depth = getattr(_inside, "depth", 0) + 1
        try:
            return self._made(*args, **named)
        finally:
            _inside.depth -= 1

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else EnabledFunction(self._made.__get__(instance, owner))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)
