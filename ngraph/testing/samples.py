"""Inputs of the generated tests: a source makes placeholders, and keeps the values to feed them.

A record's `samples(s)` builds small graphs from `s`. The standard lists cover frequent causes of errors: lengths 0 and 1, other orders
of the axes, a dual axis, ties, signed zeros, NaN, infinities, extremes of integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axis, make_axis
from ngraph.op_graph.dtypes import DType, as_dtype
from ngraph.op_graph.op import Body, Op
from ngraph.op_graph.opdef import OpDef
from ngraph.ops.state import parts, placeholder


class SampleSource:
    """Inputs of one dtype for the samples of one record. Equal seeds give equal values, exact in float32, for every float dtype.

    values   {placeholder: array}       smooth   those with distinct regular values, suited to numeric derivatives
    """

    def __init__(self, dtype: Any, seed: int = 0):
        self.dtype: DType = as_dtype(dtype)
        self.kind = self.dtype.kind
        self.values: dict[Op, np.ndarray] = {}
        self.smooth: list[Op] = []
        self.rough: list[Op] = []
        self._draw = np.random.Generator(np.random.PCG64(seed))
        lengths = {"I": 3, "J": 4, "K": 2, "N": 5, "Z": 0, "O": 1}
        self.I, self.J, self.K, self.N, self.Z, self.O = (make_axis(n, name=name) for name, n in lengths.items())

    def axis(self, length: int | None, name: str | None = None) -> Axis:
        return make_axis(length, name=name)

    # inputs
    def given(self, array: Any, *axes: Axis, dtype: Any = None) -> Op:
        """Returns a placeholder with these values; their dtype is the source's unless given."""
        d = as_dtype(dtype) if dtype is not None else self.dtype
        array = np.asarray(array).astype(d.np)
        made = placeholder(axes, dtype=d)
        self.values[made] = array.reshape([len(a) for a in axes])
        return made

    def x(self, *axes: Axis, low: float = -2, high: float = 2) -> Op:
        """Returns a placeholder with distinct values between low and high, in random order; integers have eight times the range."""
        count = math.prod(len(a) for a in axes)
        values: np.ndarray
        if self.dtype.python is float:
            steps = self._draw.permutation(count) + self._draw.uniform(0.25, 0.75, count)
            values = (low + (high - low) * steps / max(count, 1)).astype(np.float32)
        elif self.kind == "bool":
            values = self._draw.integers(0, 2, count)
        else:
            least = max(math.ceil(low * 8), int(self.dtype.lowest), -100)
            most = min(max(math.floor(high * 8), least + 1), int(self.dtype.highest))
            span = self._draw.permutation(np.arange(least, most + 1))
            values = np.resize(span, count)
        made = self.given(values, *axes)
        self.smooth.append(made)
        return made

    def special(self, *axes: Axis) -> Op:
        """Returns a placeholder with ties, signed zeros, NaN and infinities of floats; extremes of integers."""
        lowest, highest = self.dtype.lowest, self.dtype.highest
        if self.dtype.python is float:
            values: list[Any] = [1.0, -0.0, 0.0, 1.0, -np.inf, -1.0, np.inf, 0.5, np.nan, 2.5, -1.0, 1e-30, -3e4]
        else:
            values = [True, False, False, True] if self.kind == "bool" else [1, 0, highest, 1, lowest, 2, highest - 1, lowest + 1, 3]
        count = math.prod(len(a) for a in axes)
        start = int(self._draw.integers(len(values)))
        with np.errstate(all="ignore"):
            made = self.given(np.resize(np.array(values[start:] + values[:start]).astype(self.dtype.np), count), *axes)
        self.rough.append(made)
        return made

    def ints(self, *axes: Axis, low: int = 0, high: int = 2, dtype: Any = dtypes.int32) -> Op:
        """Returns a placeholder with random integers from low to high, inclusive."""
        return self.given(self._draw.integers(low, high, [len(a) for a in axes], endpoint=True), *axes, dtype=dtype)

    def bools(self, *axes: Axis) -> Op:
        return self.given(self._draw.integers(0, 2, [len(a) for a in axes]), *axes, dtype=dtypes.bool_)

    def body(self, function: Callable[..., Any], *inputs: Any) -> Body:
        """Returns a body for scan, while and cond: `function` of one placeholder per input (an op of its type, or axes)."""
        holes = [placeholder(i.axes, dtype=i.dtype) if isinstance(i, Op) else placeholder(i, dtype=self.dtype) for i in inputs]
        results = function(*holes)
        return Body(holes, results if isinstance(results, (list, tuple)) else (results,))

    # standard lists
    def shapes(self) -> list[tuple[Axis, ...]]:
        """Returns axes that every op is tested with: none, one, two in both orders, lengths 0 and 1, a dual."""
        return [(), (self.I,), (self.I, self.J), (self.J, self.I), (self.Z, self.J), (self.O, self.I), (self.I, self.I - 1)]

    def unary(self, f: Callable[[Op], Any], low: float = -2, high: float = 2) -> list[Any]:
        """Returns `f` of every shape, and of special values."""
        return [f(self.x(*axes, low=low, high=high)) for axes in self.shapes()] + [f(self.special(self.I, self.N)), f(self.special(self.N))]

    def binary(self, f: Callable[[Op, Op], Any], low: float = -2, high: float = 2) -> list[Any]:
        """Returns `f` of operands with equal axes, in other orders, one lacking axes, none in common, scalars; and of special values."""
        i, j, k = self.I, self.J, self.K
        pairs: list[tuple[tuple[Axis, ...], tuple[Axis, ...]]] = [
            *((axes, axes) for axes in self.shapes()),
            ((i, j), (j, i)),
            ((i, j), (j,)),
            ((i,), (j, i)),
            ((i, j), ()),
            ((), (i,)),
            ((i, j), (j, k)),
            ((self.O, j), (j, self.I)),
            ((i, self.Z), (i,)),
            ((i, i - 1), (i - 1, i)),
        ]
        plain = [f(self.x(*a, low=low, high=high), self.x(*b, low=low, high=high)) for a, b in pairs]
        n, m = self.axis(26, name="S"), self.axis(13, name="T")
        return [
            *plain,
            f(self.special(n), self.special(m)),
            f(self.special(i, self.N), self.x(i)),
            f(self.x(self.N), self.special(self.N, i)),
        ]


def samples(record: OpDef, dtype: Any, seed: int = 0) -> tuple[SampleSource, list[Op]]:
    """Returns the record's samples for one dtype, with the source that has the values of their placeholders."""
    source = SampleSource(dtype, seed)
    assert record.samples is not None, record
    return source, list(record.samples(source))


def tensors(ops: Iterable[Op]) -> list[Op]:
    """Returns the ops themselves, or the parts of those that have several results."""
    return [t for o in ops for t in (parts(o) if type(o.type) is tuple else (o,))]


def feed(source: SampleSource, ops: Iterable[Op]) -> tuple[list[Op], list[np.ndarray]]:
    """Returns the placeholders that `ops` need, in order of creation, and their values."""
    need = {p for o in ops for p in Op.ordered_ops([o]) if p.is_placeholder}
    holes = [p for p in source.values if p in need]
    return holes, [source.values[p] for p in holes]
