"""Runs a tensor graph in NumPy, node by node: as slow and as plain as can be, so that what rewrites do can be held against the oracle.

Nothing is fused, and each value lies somewhere whole. What lies outside of an array cannot be read or written where predicates hold, and
each place of a join has to be written, once where its parts are disjoint: ProgramError says which node did otherwise. Partial results of a
reduction all lie in the first part; the others have what adding nothing gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.errors import ProgramError
from ngraph.op_graph import expr
from ngraph.op_graph.expr import Expr, ExprLike, Idx, Leaf, Len
from ngraph.op_graph.op import TensorType
from ngraph.op_graph.opdef import REGISTRY, Call
from ngraph.program.interpret import interpret as interpret_program
from ngraph.program.program import AxisId, Program, Value
from ngraph.tensors.graph import Arg, Constant, IndexValue, PiecewisePart, ScalarConstant, TensorGraph, TensorNode
from ngraph.tensors.index import Load, Read, depth
from ngraph.tensors.scalars import COMBINE, combined, elementwise


def interpret(
    graph: TensorGraph,
    inputs: Sequence[Any],
    state: Mapping[str, Any] | None = None,
    lengths: Mapping[AxisId, int] | None = None,
) -> tuple[list[Any], dict[str, np.ndarray]]:
    """The outputs, and the state afterwards; arguments as those of `ngraph.program.interpret`, which runs bodies of loops alone."""
    run, given = _GraphRun(graph, dict(lengths or {})), dict(state or {})
    for v, array in zip(graph.inputs, inputs, strict=True):
        run.take(v, array)
    for s in graph.states:
        run.take(s.value, given[s.name])
    if graph.token_in is not None:
        run.arrays[graph.token_in] = None
    with np.errstate(all="ignore"):
        for n in graph.nodes:
            run.node(n)
    given.update({name: run.arrays[n] for name, _, n in graph.state_out})
    return [run.arrays[n] for n in graph.outputs], given


class _GraphRun:
    """The values so far, and the lengths of the symbols."""

    def __init__(self, graph: TensorGraph, lengths: dict[AxisId, int]):
        self.graph, self.lengths = graph, lengths
        self.arrays: dict[Any, Any] = {}

    def take(self, v: Value, array: Any) -> None:
        array = np.asarray(array)
        for a, n in zip(v.axes, array.shape, strict=True):
            if self.graph.axes[a] == Len(a):
                self.lengths.setdefault(a, n)
        self.arrays[v] = array

    def length(self, a: AxisId) -> int:
        if a in self.lengths:
            return self.lengths[a]
        own = self.graph.axes[a]
        if own == Len(a):
            raise LookupError(f"the length of axis {a} is not known")
        return int(expr.evaluate(own, lambda x: self.length(x.of) if type(x) is Len else int(self.arrays[self.graph.numbers[x.of].source])))

    def shape(self, axes: tuple[AxisId, ...]) -> tuple[int, ...]:
        return tuple(map(self.length, axes))

    # nodes
    def node(self, n: TensorNode) -> None:
        if n.kind == "routine":
            self.routine(n)
        elif n.kind == "join":
            self.arrays[n] = self.join(n)
        elif n.kind == "reduce":
            self.arrays[n] = self.reduce(n)
        elif n.kind == "elem":
            shape = self.shape(n.axes)
            args = [self.value(n, a, n.axes, shape) for a in n.args]
            self.arrays[n] = np.array(args[0]) if n.op == "copy" else elementwise(n.op, n.attrs, n.dtype, args, shape)
        array = self.arrays.get(n)
        if array is not None and (array.dtype != n.dtype.np or array.shape != self.shape(n.axes)):
            raise ProgramError(f"{n!r} gives {array.dtype} of shape {array.shape}, and its axes are {self.shape(n.axes)} long")

    def reduce(self, n: TensorNode) -> np.ndarray:
        free = tuple([a for a in n.axes if a != n.split_k])
        axes = (*free, *n.reduced)
        x = np.ascontiguousarray(self.value(n, n.args[0], axes, self.shape(axes)))
        total = combined(n.op, x, tuple(range(len(free), len(axes))), n.dtype)
        if n.split_k is None:
            return total
        dim = n.axes.index(n.split_k)
        nothing = combined(n.op, x.reshape(*total.shape, -1)[..., :0], (total.ndim,), n.dtype)
        return np.stack([total] + [nothing] * (self.length(n.split_k) - 1), dim)

    def join(self, n: TensorNode) -> np.ndarray:
        made = np.zeros(self.shape(n.axes), n.dtype.np)
        flat, times = made.reshape(-1), np.zeros(made.size, np.int64)
        for k, p in enumerate(n.parts):
            at, value = self.part(n, k, p, made.shape)
            if p.combine == "set":
                flat[at] = value
            else:
                COMBINE[p.combine].at(flat, at, value)
            np.add.at(times, at, 1)
        if times.size and (times.min() < 1 or (n.disjoint and times.max() > 1)):
            how = "no part writes" if times.min() < 1 else "two parts write, which are said to be disjoint"
            raise ProgramError(f"{n!r} has places that {how}")
        return made

    def part(self, n: TensorNode, k: int, p: PiecewisePart, whole: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the elements that a part writes, as places of a flat array, and their values."""
        shape = self.shape(p.axes)
        ok = self.holds(n, p.predicate, p.axes, np.ones(shape, bool))
        value = np.broadcast_to(self.value(n, p.arg, p.axes, shape, ok), shape)[ok]
        at = self.places(f"part {k} of {n!r}", n, n.axes, p.place, p.axes, ok)
        return (np.ravel_multi_index(at, whole) if at and value.size else np.zeros(value.size, np.int64)), value

    def routine(self, n: TensorNode) -> None:
        """A core op by its record, with results that lie as its parts say."""
        record, parts = REGISTRY[n.op], sorted(self.graph.users[n], key=lambda part: part.attrs["k"])
        if record.reference is None:
            raise ProgramError(f"{n.op} has no reference to run")
        sources = [a.source for a in n.args if type(a) is Read]
        types = tuple([TensorType(s.axes, s.dtype) for s in sources])
        results = tuple([TensorType(p.axes, p.dtype) for p in parts])
        attrs = {k: self.settled(a) for k, a in n.attrs.items()}
        arrays = [None if s.dtype.np is None else np.array(self.whole(s)) for s in sources]
        got = record.reference(Call(attrs, types, results, self.length, self.body), *arrays)
        each = got if type(got) in (tuple, list) else (got,)
        for p, array in zip(parts, each if parts else (), strict=True):  # of a check nothing comes but an error
            self.arrays[p] = None if p.dtype.np is None else np.asarray(array)
        for p in parts:
            if self.arrays[p] is not None:
                self.arrays[p] = self.arrays[p][tuple([slice(self.length(a)) for a in p.axes])]

    def body(self, program: Program, arrays: Sequence[Any]) -> list[Any]:
        known = {a: self.length(a) for a in program.symbols() if a in self.graph.axes}
        return list(interpret_program(program, arrays, lengths=known)[0])

    def settled(self, a: Any) -> Any:
        if isinstance(a, tuple):
            return tuple([self.settled(x) for x in a])
        if isinstance(a, Expr):
            return expr.substitute(a, lambda x: int(self.whole(x.of.source)) if type(x) is Load else x)
        return a

    # values
    def whole(self, source: Any) -> Any:
        return source.value.array if type(source) is Constant else self.arrays[source]

    def value(self, n: TensorNode, a: Arg, axes: tuple[AxisId, ...], shape: tuple[int, ...], ok: np.ndarray | None = None) -> np.ndarray:
        """An argument at every index over these axes; anything where `ok` does not hold."""
        ok = np.ones(shape, bool) if ok is None else ok
        if isinstance(a, ScalarConstant):
            return np.broadcast_to(a.dtype.array(a.value), shape)
        if isinstance(a, IndexValue):
            return np.broadcast_to(self.index(n, a.value, axes, ok), shape).astype(a.dtype.np)
        return self.read(n, a, axes, ok)

    def read(self, n: TensorNode, r: Read, axes: tuple[AxisId, ...], ok: np.ndarray) -> np.ndarray:
        source, array = r.source, self.whole(r.source)
        here = self.holds(n, r.predicate, axes, ok)
        made = np.full(ok.shape, source.dtype.array(r.pad_value) if r.predicate else 0, source.dtype.np)
        made[here] = array[self.places(f"{n!r}", n, source.axes, r.index, axes, here)]
        return made

    def places(
        self, who: str, n: TensorNode, to: tuple[AxisId, ...], index: Mapping[AxisId, ExprLike], axes: tuple[AxisId, ...], ok: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """The places along each of the axes `to`, where `ok` holds."""
        found = []
        for a in to:
            at, size = np.broadcast_to(self.index(n, index[a], axes, ok), ok.shape)[ok], self.length(a)
            if at.size and (at.min() < 0 or at.max() >= size):
                raise ProgramError(f"{who} asks for {at.min()} to {at.max()} along {a}, which has {size} places")
            found.append(at)
        return tuple(found)

    def holds(self, n: TensorNode, predicate: tuple[ExprLike, ...], axes: tuple[AxisId, ...], ok: np.ndarray) -> np.ndarray:
        """Returns the mask of indices at which all predicates hold; a number is read where those hold that are known without it."""
        for e in sorted(predicate, key=depth):
            ok = ok & (self.index(n, e, axes, ok) >= 0)
        return ok

    def index(self, n: TensorNode, e: ExprLike, axes: tuple[AxisId, ...], ok: np.ndarray) -> Any:
        """Returns an expression at every index, as an array that broadcasts."""

        def leaf(x: Leaf) -> Any:
            if type(x) is Idx:
                if x.of not in axes:
                    raise ProgramError(f"{n!r} moves along {x.of}, over which it is not")
                return np.arange(self.length(x.of), dtype=np.int64).reshape([-1 if a == x.of else 1 for a in axes])
            return self.read(n, x.of, axes, ok).astype(np.int64) if type(x) is Load else self.length(x.of)

        return expr.evaluate(e, leaf)
