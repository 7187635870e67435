"""Whole numbers of generated code: an `int` where it is known while code is written, else an int64 in a register."""

from __future__ import annotations

from ngraph.codegen import math as scalar
from ngraph.codegen.text import IRValue, IRWriter, constant
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import APPLY

Whole = int | IRValue


def certain(a: Whole) -> int:
    """A whole number that is known now."""
    assert isinstance(a, int)
    return a


def plus(w: IRWriter, a: Whole, b: Whole) -> Whole:
    """a + b; scalars and vectors meet."""
    if type(a) is int and type(b) is int:
        return a + b
    if type(a) is int:
        a, b = b, a
    return a if b == 0 else meet(w, "add", a, b)


def times(w: IRWriter, a: Whole, b: Whole) -> Whole:
    """a * b."""
    if type(a) is int and type(b) is int:
        return a * b
    if type(a) is int:
        a, b = b, a
    return a if b == 1 else 0 if b == 0 else meet(w, "mul", a, b)


def register(a: Whole) -> IRValue:
    """A whole number as a value."""
    return a if isinstance(a, IRValue) else constant(a, dtypes.int64)


def as_whole(v: IRValue) -> Whole:
    """A value as a whole number: a number where it is a constant."""
    return v if v.name[0] == "%" else int(v.name)


def meet(w: IRWriter, name: str, a: Whole, b: Whole) -> IRValue:
    """An instruction on two whole numbers."""
    a, b = register(a), register(b)
    lanes = max(a.lanes, b.lanes)
    return w.op(name, w.splat(a, lanes), w.splat(b, lanes))


_SIMPLE = {"+": "add", "-": "sub", "*": "mul"}
_EXTREME = {"min": "smin", "max": "smax"}


def apply(w: IRWriter, op: str, a: Whole, b: Whole, small: bool = False) -> Whole:
    """An operator of expressions; `small`: both are known to lie in 0 … 2**31 - 1."""
    if type(a) is int and type(b) is int:
        return int(APPLY[op](a, b)) if b or op not in ("//", "%") else 0
    if op == "+":
        return plus(w, a, b)
    if op == "*":
        return times(w, a, b)
    if op in _SIMPLE:
        return meet(w, _SIMPLE[op], a, b)
    x, y = register(a), register(b)
    lanes = max(x.lanes, y.lanes)
    x, y = w.splat(x, lanes), w.splat(y, lanes)
    if op in _EXTREME:
        return w.intrinsic(_EXTREME[op], dtypes.int64, lanes, x, y)
    if type(b) is int and b == 1:
        return x if op == "//" else 0
    if type(b) is int and b > 0 and b & (b - 1) == 0:  # shifts and masks round down
        return w.op("ashr", x, w.constant(b.bit_length() - 1, x)) if op == "//" else w.op("and", x, w.constant(b - 1, x))
    if type(b) is int and b > 0 and small:
        half = w.op("udiv" if op == "//" else "urem", w.convert("trunc", x, dtypes.uint32), constant(b, dtypes.uint32, lanes))
        return w.convert("zext", half, dtypes.int64)
    return scalar.emit(w, "divide" if op == "//" else "remainder", (x, y))
