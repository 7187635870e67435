"""Sums of products of 8-bit integers four terms at a time, for machines that have an instruction for it (VNNI, i8mm).

It multiplies bytes of 0 to 255 with bytes of -128 to 127 and adds to int32. Whole numbers of another range, whatever their dtype is, are
bytes and an offset that is the same along the sum, be it known or not (a zero point): with x = u + c and w = s + d

    sum x w  =  sum u s  +  c sum w  +  d sum x  -  c d n

in int32, which wraps around, so that it is right as long as the result fits. The sum of what no call changes is taken before any call.
Parameters that such numbers are multiplied by, the same along the sum (the scales of quantised values), multiply the sum instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.parts.runner import pass_
from ngraph.program.program import AxisId
from ngraph.targets.machine import Cpu
from ngraph.tensors.bf16_dot import DotOperand, Packed, has_long_sums, is_call_invariant, pays, regrouped, shorter, terms
from ngraph.tensors.edit import Draft, GraphEditor, summed
from ngraph.tensors.graph import Arg, ScalarConstant, TensorGraph
from ngraph.tensors.index import Read, identity_index
from ngraph.tensors.value_range import Range, integer_range

FITS = 1 << 31
UNSIGNED, SIGNED = (0, 255), (-128, 127)


class Side(NamedTuple):
    """A factor as bytes and an offset: a number, and a value that is taken from it (`sign` -1) or added."""

    factor: DotOperand
    bytes: Packed
    offset: int
    sign: int = 0
    moved: Arg | None = None


@pass_(needs=("integer sums", "machine"), keeps=("integer sums",))
def use_int8_dots(graph: TensorGraph, machine: Cpu) -> TensorGraph:
    """The graph with sums over groups of four in the place of those that then take less time."""
    row = machine.product("dot4")
    if row is None or not has_long_sums(graph, dtypes.float32, dtypes.int32):
        return graph
    e = GraphEditor(graph)
    known: dict[Hashable, Read] = {}
    still = e.parameters()

    def by_four(n: Draft) -> Draft | None:
        product = summed(n) if n.dtype in (dtypes.float32, dtypes.int32) else None
        args = [] if product is None else [_unscaled(a, n, still) for a in product.args]
        if product is None or not _small(e, n, [r for r, _ in args]):
            return None
        over, factors = terms(e, n, [r for r, _ in args])
        if over is None or not pays(e, n, factors, row.k, still):
            return None
        sides = _best(n, factors, still)
        if sides is None:
            return None
        total = shorter(e, n, product, over, [(s.factor, s.bytes) for s in sides], row, known)
        made = e.cast(_corrected(e, n, total, sides), n.axes, n.dtype)
        scales = [s for _, some in args for s in some]
        if scales:  # a sum of products begins at +0, so that it is never -0
            by = scales[0]
            for s in scales[1:]:
                by = e.elem("multiply", by, s, axes=_along(n, by, s), dtype=n.dtype)
            made = e.elem("fma", made, by, ScalarConstant(0.0, n.dtype), axes=n.axes, dtype=n.dtype)
        return cast(Read, made).source

    return regrouped(e, by_four)


def _along(n: Draft, *args: Arg) -> tuple[AxisId, ...]:
    """The axes of a sum along which any of these moves."""
    return tuple([a for a in n.axes if any(a in x.axes for x in args if type(x) is Read)])


def _unscaled(a: Arg, n: Draft, still: Callable[[Read], bool]) -> tuple[Arg, list[Arg]]:
    """The whole numbers that a factor is made of, casts left out, and what they are multiplied by."""
    scales: list[Arg] = []
    while type(a) is Read and (inner := _inner(a, n, still)) is not None:
        a, more = inner
        scales += more
    return a, scales


def _inner(a: Read, n: Draft, still: Callable[[Read], bool]) -> tuple[Read, list[Arg]] | None:
    """The whole numbers that a factor is a cast or a multiple of, and its multiplier."""
    node = a.source
    if not isinstance(node, Draft) or node.kind != "elem" or node.op not in ("cast", "multiply") or (a.predicate and a.pad_value != 0):
        return None
    for x, *by in (node.args, node.args[::-1])[: len(node.args)]:
        found, scales = integer_range(x), [s.at(a.index) for s in by]
        if type(x) is not Read or found is None or (x.predicate and a.predicate):
            continue
        apart = all(is_call_invariant(s, still) and (type(s) is not Read or not s.axes.intersection(n.reduced)) for s in scales)
        if (n.dtype is dtypes.float32 and apart) if scales else found == integer_range(Read(node, identity_index(node.axes))):
            inner = x.at(a.index)
            return Read(
                inner.source, inner.index, inner.predicate or a.predicate, inner.pad_value if inner.predicate else a.pad_value
            ), scales
    return None


def _small(graph: GraphEditor, n: Draft, factors: Sequence[Arg]) -> bool:
    """Whether a sum of whole numbers fits into int32 for certain."""
    ranges = [integer_range(a) if type(a) is Read and (not a.predicate or a.pad_value == 0) else None for a in factors]
    if len(ranges) != 2 or None in ranges:
        return False
    lengths = [graph.known(a) for a in n.reduced]
    most = math.prod([max(map(abs, r)) for r in ranges if r is not None]) * math.prod([k or 0 for k in lengths])
    return None not in lengths and (n.dtype is dtypes.int32 or most < FITS)


def _best(n: Draft, factors: Sequence[DotOperand], still: Callable[[Read], bool]) -> tuple[Side, Side] | None:
    """Returns the operand that becomes unsigned, and the other: such that fewer variable sums are needed, then fewer others."""

    def cost(sides: tuple[Side, Side]) -> tuple[int, int]:
        needed = [other for s, other in (sides, sides[::-1]) if s.offset or s.moved is not None]
        return sum([not is_call_invariant(s.factor.read, still) for s in needed]), len(needed)

    found = [(u, s) for a, b in (factors, factors[::-1]) for u in _sides(a, UNSIGNED, n.reduced) for s in _sides(b, SIGNED, n.reduced)]
    return min(found, key=cost) if found else None


def _sides(f: DotOperand, limits: Range, reduced: Sequence[AxisId]) -> Iterator[Side]:
    """Yields the ways in which an operand is bytes between these limits: as it is, or before an offset."""
    source = f.read.source
    found = integer_range(f.read)
    args: list[tuple[int, Arg, Arg]] = []
    if isinstance(source, Draft) and source.kind == "elem" and source.op in ("subtract", "add"):
        x, y = source.args
        args = [(-1, x, y)] if source.op == "subtract" else [(1, x, y), (1, y, x)]
    if found is not None and found[1] - found[0] <= 255:
        offset = _offset(found, limits)
        inner = [(x, sign * int(q.value)) for sign, x, q in args if type(q) is ScalarConstant and type(x) is Read]
        value, by = inner[0] if inner else (Read(source, identity_index(source.axes)), 0)
        yield Side(f, Packed(_as_bytes(value), _dtype(limits), offset - by, -offset), offset)
        return
    for sign, x, q in args:
        part = integer_range(x)
        apart = q if type(q) is not Read else q.at(f.read.index)
        loop_invariant = type(apart) is not Read or not apart.axes.intersection(reduced)
        if (
            type(x) is Read
            and part is not None
            and part[1] - part[0] <= 255
            and integer_range(q) is not None
            and loop_invariant
            and not f.read.predicate
        ):
            offset = _offset(part, limits)
            yield Side(f, Packed(_as_bytes(x), _dtype(limits), offset), offset, sign, apart)


def _dtype(limits: Range) -> DType:
    return dtypes.uint8 if limits == UNSIGNED else dtypes.int8


def _offset(found: Range, limits: Range) -> int:
    """Returns the number to subtract from integers of this range so that they lie between the limits."""
    return 0 if limits[0] <= found[0] and found[1] <= limits[1] else int(found[0] - limits[0])


def _as_bytes(r: Read) -> Read:
    """Returns the operand of a cast, if it has 8 bits and the same values; else the read itself."""
    s = r.source
    inner = s.args[0] if isinstance(s, Draft) and s.kind == "elem" and s.op == "cast" else None
    if type(inner) is not Read or inner.source.dtype not in (dtypes.uint8, dtypes.int8) or r.predicate:
        return r
    return inner.at(r.index) if integer_range(inner) == integer_range(r) else r


def _corrected(graph: GraphEditor, n: Draft, total: Read, sides: tuple[Side, Side]) -> Arg:
    """The sum of products of bytes with what the offsets add to it."""

    def made(op: str, *args: Arg) -> Arg:
        return graph.elem(op, *args, axes=_along(n, *args), dtype=dtypes.int32)

    def offset(s: Side) -> Arg | None:
        known = ScalarConstant(s.offset, dtypes.int32)
        if s.moved is None:
            return known if s.offset else None
        moved = graph.cast(s.moved, _along(n, s.moved), dtypes.int32)
        return made("subtract" if s.sign < 0 else "add", known, moved)

    def whole_sum(s: Side) -> Arg:
        own = s.factor.read.axes
        over, rest = ([a for a in n.reduced if (a in own) == there] for there in (True, False))
        total = graph.reduce("add", s.factor.read, _along(n, s.factor.read), tuple(over), dtypes.int32)
        return made("multiply", total, ScalarConstant(count(rest), dtypes.int32)) if count(rest) > 1 else total

    def count(axes: Iterable[AxisId]) -> int:
        return math.prod([graph.known(a) or 0 for a in axes])

    u, s = sides
    c, d, result = offset(u), offset(s), cast(Arg, total)
    if c is not None:
        result = made("add", result, made("multiply", c, whole_sum(s)))
    if d is not None:
        rest = whole_sum(u)
        if c is not None:
            rest = made("subtract", rest, made("multiply", c, ScalarConstant(count(n.reduced), dtypes.int32)))
        result = made("add", result, made("multiply", d, rest))
    return result
