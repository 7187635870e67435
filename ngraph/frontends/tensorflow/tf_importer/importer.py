"""`TFImporter`: the nodes of a TensorFlow graph as ops, for `transformer.computation`.

    importer = TFImporter()
    importer.import_protobuf("graph.pb")
    x, cost, init = (importer.get_op_handle_by_name(name) for name in ("x", "cost", "init"))

The graph is not run as a whole, as `ng.tensorflow.load` does it: each handle is an op of its own, and shares placeholders and variables
with the others. The handle of a node that has effects, such as an assignment or an optimizer's step, has them where it is computed. The
first dims of placeholders that have no length are one axis, the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from ngraph.errors import ArgumentError, ArgumentTypeError, UnsupportedError, nearest
from ngraph.frontends.positional.reader import parameter
from ngraph.frontends.positional.stages import Ask, StageRun
from ngraph.frontends.positional.trace import Inside, ModelTrace
from ngraph.frontends.positional.values import Tensor, Value
from ngraph.frontends.positional.walk import Frame, apply
from ngraph.frontends.tensorflow import folding, table
from ngraph.frontends.tensorflow import translate as translate  # its modules register
from ngraph.frontends.tensorflow.dtypes import numpy_type, shape_of
from ngraph.frontends.tensorflow.graph import HANDLES, Node, TensorflowNode, assigned, check_supported, has_results, named, needed, node_of
from ngraph.frontends.tensorflow.saved import ModelFile, numbers, opened, readable
from ngraph.op_graph.arguments import shown
from ngraph.op_graph.axes import make_axis
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.op import Op
from ngraph.ops.elementwise import constant
from ngraph.ops.rearrange import broadcast
from ngraph.ops.state import assign, doall, placeholder, sequential

__all__ = ["TFImporter", "make_tf_importer"]


class HandleTrace(ModelTrace):
    """A reading that makes ops for any values of the inputs: nothing may depend on what these, or open lengths, are."""

    def __init__(self, variables: dict[str, Op]):
        run = StageRun({}, {})
        super().__init__(Ask(lambda run: None, True), run, frozenset(), self.compute_stage)  # which computes nothing
        self.variables = variables  # those that are found later, too
        self.unseen = frozenset()

    def ask(self, about: Hashable, question: Callable[[StageRun], Hashable], shapes: bool = False) -> Hashable:
        """See `ModelTrace.ask`. Raises UnsupportedError."""
        what = "a length that is open" if shapes else "values of its inputs"
        raise UnsupportedError(f"the graph depends on {what}", fix="give the placeholder a shape, or run it by ng.tensorflow.load")

    def compute_stage(self, tensors: Sequence[Tensor], effects: Sequence[Op] = ()) -> list[int]:
        """See `ModelTrace.compute_stage`. Raises UnsupportedError outside of bodies."""
        if self.bodies:
            raise Inside
        raise UnsupportedError("the graph depends on values of its inputs", fix="run it by ng.tensorflow.load")

    def hint(self, e: Any) -> int:
        """See `ModelTrace.hint`; -1 for a length that is open."""
        return e if isinstance(e, int) else -1


class TFImporter:
    """An importer of one graph; `import_…` takes it, `get_op_handle` gives its nodes as ops."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets the graph."""
        self._model: ModelFile | None = None
        self._variables: dict[str, Op] = {}
        self._holes: dict[str, tuple[Op, Value]] = {}
        self._handles: dict[str, Op] = {}
        self._results: dict[str, int] = {}  # how many results of a node are used, by its name
        self._batch = make_axis(None, name="N")
        self._pure = self._reading()  # of what has no effects, which handles share

    # ---- graphs
    def import_protobuf(self, pb_file: str, verbose: bool = False) -> None:
        """Takes the graph in a file, binary or as text. verbose: print each node. Raises FileError, ParseError."""
        self._take(opened(pb_file), verbose)

    def import_graph(self, graph: Any, verbose: bool = False) -> None:
        """Takes a graph of TensorFlow's own, `tf.Graph`."""
        self._take(opened(graph), verbose)

    def import_graph_def(self, graph_def: Any, verbose: bool = False) -> None:
        """Takes a GraphDef, or the bytes of one."""
        self._take(opened(graph_def), verbose)

    def import_meta_graph(self, meta_graph_path: str, checkpoint_path: str | None = None) -> None:
        """Takes the graph of a `.meta` file. checkpoint_path: the prefix of its variables' checkpoint, by default that of the file."""
        self._take(opened(meta_graph_path, checkpoint=checkpoint_path), False)

    def _take(self, model: ModelFile, verbose: bool) -> None:
        self.reset()
        self._model = model
        for node in model.graph.nodes.values():
            self._results.setdefault(node.name, 0)
            for name, _, k in (v.rpartition(":") for v in node.takes):
                self._results[name] = max(self._results.get(name, 0), int(k) + 1)
        if verbose:
            print(*model.proto.node, sep="\n")

    @property
    def model(self) -> ModelFile:
        """The graph. Raises ArgumentError before one was imported."""
        if self._model is None:
            raise ArgumentError("no graph has been imported", fix="importer.import_graph_def(graph_def)")
        return self._model

    # ---- handles
    def get_op_handle(self, tf_op: Any) -> Any:
        """Returns the op of a node, a tensor or a variable of TensorFlow's, or of a name; a list for a list."""
        if isinstance(tf_op, (list, tuple)):
            return [self.get_op_handle(op) for op in tf_op]
        name = tf_op if isinstance(tf_op, str) else getattr(tf_op, "name", None)
        if not isinstance(name, str):
            raise ArgumentTypeError(
                f"{shown(tf_op)} is no node of a graph", fix="pass an op, a tensor or a variable of TensorFlow's, or a name"
            )
        return self.get_op_handle_by_name(name)

    def get_op_handle_by_name(self, name: str) -> Op:
        """Returns the op of a node by name, `add`, or of one of its results, `split:1`.

        Raises ArgumentError for an unknown name, UnsupportedError with each node that it needs and that has no translation.
        """
        value = named(name.removeprefix("^"))
        node = self.model.graph.nodes.get(node_of(value))
        if node is None:
            near = nearest(name, list(self.model.graph.nodes))
            raise ArgumentError(f"{self.model.name} has no node {name!r}", fix=near or "names are those of the graph")
        if value not in self._handles:
            with readable(f"node {name!r} of {self.model.name}"):
                self._handles[value] = self._handle(node, value)
        return self._handles[value]

    def get_collection_handle(self, names: list[str]) -> list[Op]:
        """Returns the ops of the first node of each collection, as `tf.add_to_collection` has kept them in a meta graph.

        Raises ArgumentError for a collection that is empty, or not there.
        """
        found = []
        for name in names:
            nodes = self.model.collections.get(name, [])
            if not nodes:
                raise ArgumentError(f"{self.model.name} has no collection {name!r}", fix=f"there are {', '.join(self.model.collections)}")
            found.append(self.get_op_handle_by_name(nodes[0]))
        return found

    def get_restore_op(self) -> Op:
        """Returns an op that sets all variables to what the checkpoint has. Raises ArgumentError without one."""
        model = self.model
        if model.checkpoint is None:
            raise ArgumentError(f"{model.name} has no checkpoint", fix="importer.import_meta_graph(path, checkpoint_path)")
        held = [(node, stored) for node, name in model.handles.items() if (stored := model.stored(name)) is not None]
        pairs = [(self._variable(model.graph.nodes[node]), np.array(stored.array)) for node, stored in held]
        return doall([assign(variable, constant(array, variable.axes)) for variable, array in pairs])

    @property
    def init_ops(self) -> list[Op]:
        """The ops of nodes named `init`, which set variables to their first values."""
        return [self.get_op_handle_by_name(n.name) for n in self.model.graph.nodes.values() if n.op == "NoOp" and n.name == "init"]

    def _get_unimplemented_ops(self, pb_path: str) -> list[str]:
        """Returns the names of ops in a file's graph that have no translation."""
        model = opened(pb_path)
        ops = {n.op for n in model.proto.node} | {n.op for f in model.proto.library.function for n in f.node_def}
        return sorted(op for op in ops if op not in table.TABLE and op not in folding.FOLD and op not in model)

    # ---- reading
    def _handle(self, node: Node, value: str) -> Op:
        model = self.model
        if node.op in HANDLES:
            return self._variable(node)
        if _is_hole(node):
            return self._hole(node)[0]
        check_supported(model, model.name, model.graph, [value])
        handles = {f"{home}:0": name for home, name in model.handles.items()}
        effects = assigned(model, model.graph, [value], handles)
        k = int(value.rpartition(":")[2]) if has_results(node.op) else -1
        shared = not effects and (k < self._results[node.name] or not self._results[node.name])
        self._results[node.name] = max(self._results[node.name], k + 1)
        g, frame = self._pure if shared else self._reading()
        for _, n in needed(model, model.graph, [value]):
            if n.op in HANDLES:
                self._variable(n)
        g.scopes.append(frame.names)
        try:
            for n in model.graph.order([value], frame.names)[0]:
                if _is_hole(n):
                    frame.names[f"{n.name}:0"] = self._hole(n)[1]
                else:
                    apply(g, frame, TensorflowNode(g, frame, n, [f"{n.name}:{k}" for k in range(self._results[n.name])], model))
        finally:
            g.scopes.pop()
        found = frame.names.get(value)
        t = None if found is None else g.full(g.tensor(model.read(g, found)))
        made = None if t is None else broadcast(t.op, t.dims)
        changes = g.changes()
        stores = [assign(self._variables[name], op) for name, op in changes.items()]
        if not stores and made is not None:
            return made
        # what is read is read before anything is written
        return doall(stores) if made is None else sequential([made, *changes.values(), *stores, made])

    def _reading(self) -> tuple[HandleTrace, Frame]:
        return HandleTrace(self._variables), Frame()

    def _hole(self, node: Node) -> tuple[Op, Value]:
        """Returns a placeholder of the graph as an op, and as a value of a reading."""
        if node.name not in self._holes:
            dtype = numpy_type(node.proto.attr["dtype"].type)
            shape = shape_of(node.proto.attr["shape"].shape) if "shape" in node.proto.attr else None
            if shape is None or dtype is None or dtype.hasobject:
                raise UnsupportedError(f"the placeholder {node.name!r} has no rank, or takes no numbers", fix="use ng.tensorflow.load")
            axes = [make_axis(n if isinstance(n, int) else None, name=f"{node.name}.{k}") for k, n in enumerate(shape)]
            axes[:1] = [self._batch] if axes and axes[0].length is None else axes[:1]
            op = placeholder(axes, dtype=as_dtype(dtype), name=node.name)
            self._holes[node.name] = op, self._pure[0].ones(Tensor(op, axes))
        return self._holes[node.name]

    def _variable(self, node: Node) -> Op:
        """Returns a variable of the graph: it starts as the checkpoint says, else as zeros, which the graph's own `init` replaces."""
        name = self.model.handles[node.name]
        if name not in self._variables:
            stored, dtype = self.model.stored(name), numpy_type(node.proto.attr["dtype"].type)
            shape = shape_of(node.proto.attr["shape"].shape)
            if stored is None and (dtype is None or shape is None or not all(isinstance(n, int) for n in shape)):
                raise UnsupportedError(f"the variable {name!r} has no shape", fix="give the graph's checkpoint")
            self._variables[name] = parameter(name, np.array(stored.array) if stored is not None else np.zeros(shape, dtype))
        return self._variables[name]


def _is_hole(node: Node) -> bool:
    return node.op in ("Placeholder", "PlaceholderV2") and numbers(node)


def make_tf_importer() -> TFImporter:
    """Returns a TFImporter."""
    return TFImporter()
