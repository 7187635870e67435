"""Clusters as they run: read and compiled with the first call, called with `out=`, and given back to TensorFlow where that fails."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ngraph.bridge import prices
from ngraph.bridge.encapsulate import ClusterGraph, typed_cluster
from ngraph.bridge.kernel import KernelCall, Targets
from ngraph.errors import NgraphError, NgraphWarning
from ngraph.frontends.positional.reader import ShapeReplay
from ngraph.frontends.tensorflow.format import Tensorflow
from ngraph.frontends.tensorflow.messages import parsed
from ngraph.frontends.tensorflow.model import TensorflowModel
from ngraph.frontends.tensorflow.saved import of_graph
from ngraph.runtime.computation import Computation
from ngraph.targets import chosen
from ngraph.transformers.base import make_transformer, make_transformer_factory

Array = np.ndarray[Any, Any]

LONGEST = 4  # calls in which values decided what comes next, after which TensorFlow has the cluster: each reads a part of it again
REMEMBERED = 256  # shapes of arguments for which the way to the computation is remembered


class Way(NamedTuple):
    """The way of a call: the computation, places of its arguments, place, shape and dtype of each result, and other results of the cluster.

    A result of the cluster is the place of one of the computation's, a negative one (-1: the first) of an argument, or an array.
    """

    call: Callable[..., Any] | None
    takes: tuple[int, ...]
    gives: Targets
    others: tuple[tuple[int, int | Array], ...]


class RunningCluster:
    """A cluster of a function that runs. Any number of threads may call it.

    failure  why TensorFlow runs it; "" as long as it does not      calls, fallbacks  how often it was called, and TensorFlow ran it
    prices   seconds here and in TensorFlow, once the first call is over
    seconds  of first calls, in which it is read and compiled        decided  calls in which values decided what comes next
    """

    def __init__(self, about: ClusterGraph, function: str, backend: str, priced: bool = True):
        self.about, self.function, self.backend = about, function, backend
        self.failure, self.calls, self.fallbacks, self.seconds, self.decided = "", 0, 0, 0.0, 0
        self.priced = priced  # whether its price is still to be taken
        self.prices: tuple[float, float] | None = None
        self._ways: dict[Hashable, Way] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """Returns how messages name it."""
        return f"cluster {self.about.number} of {self.function}"

    # ---- ours
    @cached_property
    def model(self) -> TensorflowModel:
        """The cluster as a model. Raises NgraphErrors where it cannot be read."""
        graph = parsed("GraphDef", self.about.graph.SerializeToString(), self.name)
        inputs = [f"argument_{k}" for k in range(len(self.about.takes))]
        file = of_graph(graph, self.name, inputs, self.about.results)
        file.few_decide = False  # each choice would be read anew, and given back after a few
        return TensorflowModel(file, Tensorflow(), _transformer(self.backend), (), "raise")

    def results(self, arguments: Sequence[Array], key: Hashable) -> list[Array]:
        """Returns the results for arguments of new shapes, and remembers the way to them."""
        start = time.perf_counter()
        slots = {-1 - k: a for k, a in enumerate(arguments)}
        found, _ = self.model.reader.call(slots)
        results = [np.asarray(a) for a in found]
        replay = self.model.reader.replay(slots) if len(self._ways) < REMEMBERED else None
        if replay is not None:
            self._ways[key] = _way(replay, results)
            if self.priced:
                self._price(replay.call, arguments)
        elif len(self._ways) < REMEMBERED:
            self.decided += 1
        with self._lock:
            self.seconds += time.perf_counter() - start
        return results

    @property
    def slower(self) -> str:
        """Why TensorFlow is to run it, by its plan's price; "" where it is not."""
        return "" if self.prices is None else prices.why_given_back(*self.prices)

    def _price(self, call: Any, arguments: Sequence[Array]) -> None:
        """Compares the plan of a first call with TensorFlow's price of the same nodes, for the lengths of the call."""
        self.priced = False
        native = call.executable.native if isinstance(call, Computation) else None
        plan = None if native is None else native.predicted()
        if plan is None:
            return
        theirs = prices.in_tensorflow(typed_cluster(self.about, arguments), self.about.nodes, chosen())
        if theirs is not None:
            self.prices = prices.here(len(self.about.takes) + len(self.about.gives), plan), theirs

    def run(self, call: KernelCall) -> None:
        """Runs one call of the kernel. Raises the errors of TensorFlow's function."""
        with self._lock:
            self.calls += 1
        arguments = call.inputs()
        if not self.failure:
            try:
                way = self._ways.get(call.key)
                if way is None:
                    _put(call, self.results(arguments, call.key))
                else:
                    way_of(call, way, arguments)
                if self.decided >= LONGEST:
                    self.give_back("values decide its shapes")
                return
            except Exception as error:
                reason = error.message if isinstance(error, NgraphError) else f"{type(error).__name__}: {error}"
                results = self.theirs(arguments)  # raises where the fault is in the call itself, which is the user's to see
                self.give_back(reason)
                _put(call, results)
                return
        _put(call, self.theirs(arguments))

    def give_back(self, reason: str) -> None:
        """Notes that TensorFlow runs the cluster from now on, and says so once."""
        with self._lock:
            if self.failure:
                return
            self.failure = reason.splitlines()[0] if reason else "failed"
        said = f"{self.name} is TensorFlow's again: {self.failure}\n  fix: ng.tensorflow.report() has its nodes; results are TensorFlow's"
        warnings.warn(said, NgraphWarning, stacklevel=2)

    # ---- TensorFlow's
    @cached_property
    def _session(self) -> Callable[..., Any]:
        """The cluster's graph as TensorFlow runs it: in threads of its own, since those that call kernels wait for it."""
        with tf.Graph().as_default() as graph:
            tf.graph_util.import_graph_def(self.about.graph, name="")
        options = tf.compat.v1.ConfigProto(use_per_session_threads=True)
        session = tf.compat.v1.Session(graph=graph, config=options)
        feeds = [f"argument_{k}:0" for k in range(len(self.about.takes))]
        run: Callable[..., Any] = session.make_callable(self.about.results, feed_list=feeds)
        return run

    def theirs(self, arguments: Sequence[Array]) -> list[Array]:
        """Returns what TensorFlow computes for the cluster."""
        with self._lock:
            self.fallbacks += 1
            run = self._session
        return [np.asarray(a) for a in run(*arguments)]


def _way(replay: ShapeReplay, results: Sequence[Array]) -> Way:
    """Returns the way of calls like one with these results."""
    first: dict[int, int] = {}
    others = list[tuple[int, int | Array]]()
    for k, source in enumerate(replay.results):
        if isinstance(source, int) and source >= 0 and source not in first:
            first[source] = k
        else:
            others.append((k, source))
    gives = tuple([(first[j], results[first[j]].shape, results[first[j]].dtype) for j in sorted(first)])
    return Way(replay.call, tuple([-1 - k for k in replay.takes]), Targets(gives), tuple(others))


def way_of(call: KernelCall, way: Way, arguments: Sequence[Array]) -> None:
    """Runs a call whose way is known: results are written where TensorFlow wants them."""
    targets = call.outputs(way.gives)
    if way.call is not None:
        way.call(*[arguments[k] for k in way.takes], out=targets)
    for k, source in way.others:
        made = source if isinstance(source, np.ndarray) else targets[source] if source >= 0 else arguments[-1 - source]
        call.put(k, made)


def _put(call: KernelCall, results: Sequence[Array]) -> None:
    for k, a in enumerate(results):
        call.put(k, a)


_transformers: dict[str, Any] = {}


def _transformer(backend: str) -> Any:
    """Returns the transformer that all clusters of a backend share."""
    if backend not in _transformers:
        _transformers[backend] = make_transformer() if backend == "CPU" else make_transformer_factory(backend.lower())()
    return _transformers[backend]


running: dict[int, RunningCluster] = {}  # by number


def compute(call: KernelCall) -> None:
    """Runs one call of the kernel of `NgraphEncapsulate`."""
    cluster = running.get(call.cluster)
    if cluster is None:
        call.fail(f"there is no cluster {call.cluster} in this process: NgraphEncapsulate is not saved with models")
        return
    cluster.run(call)
