"""bfloat16 dot products, two terms at a time, for machines that have an instruction for it (Intel's AVX512_BF16).

Integers up to 256 are bfloat16 values, too, whatever their dtype is; they use the same instruction. Products of two bfloat16 values are
exact in float32, so that adding two of them to a sum in float32 is what two fused multiply-adds do, the odd term first; only numbers below
2**-126 count as 0. Terms that follow each other along one axis of the sum become halves of 32 bits (`pack2`), the sum of the products of
such halves is `dot2`: to all other passes that is a product like any other, in a sum half as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import ExprLike, Idx
from ngraph.parts.runner import pass_
from ngraph.program.program import AxisId
from ngraph.targets.machine import Cpu
from ngraph.targets.products import ProductInstruction
from ngraph.targets.tuning import (
    MATRIX_SPEED,
    MAX_DOT_TIME,
    MIN_DOT_PRODUCTS,
    MIN_MATRIX_LENGTH,
    MIN_MATRIX_TERMS,
    PACKING_COST,
    PRODUCT_COST,
)
from ngraph.tensors.edit import Draft, GraphEditor, summed
from ngraph.tensors.graph import Arg, ScalarConstant, TensorGraph, dtype_of
from ngraph.tensors.index import Read, identity_index, loop_variant_axes
from ngraph.tensors.memo import memo
from ngraph.tensors.value_range import BFLOAT16_INTEGERS_END, integer_range


class DotOperand(NamedTuple):
    """One operand of a product: its read, and the axis of the source along which the terms of a group are adjacent."""

    read: Read
    at: AxisId


class Packed(NamedTuple):
    """The value of a packed group along the axes of a source, 0 in a group where it is `zero`; `pad_value` where the source is 0."""

    value: Read
    dtype: DType
    zero: int = 0
    pad_value: int = 0


@pass_(needs=("machine",), keeps=("integer sums",))
def use_bf16_dots(graph: TensorGraph, machine: Cpu) -> TensorGraph:
    """Replaces sums of products by sums over pairs of terms where that takes less time."""
    row = machine.product("dot2")
    if row is None or not has_long_sums(graph, dtypes.float32):
        return graph
    e = GraphEditor(graph)
    known: dict[Hashable, Read] = {}
    still = e.parameters()

    def by_two(n: Draft) -> Draft | None:
        product, over, factors = _pairs(e, n)
        sides = [_packed_where_smaller(e, f) for f in factors]
        if product is None or over is None or not pays(e, n, [f for f, _ in sides], row.k, still):
            return None
        made: Draft = shorter(e, n, product, over, sides, row, known).source
        return made

    return regrouped(e, by_two)


def cost_of_pairs(graph: GraphEditor, n: Draft, machine: Cpu) -> float | None:
    """Returns the cost of a sum whose products are taken by pairs, in vector instructions per lane; None where they are not."""
    row, (product, over, factors), still = machine.product("dot2"), _pairs(graph, n), graph.parameters()
    factors = tuple([_packed_where_smaller(graph, f)[0] for f in factors])
    if row is None or product is None or over is None or not pays(graph, n, factors, row.k, still):
        return None
    count = row.k
    if machine.matrix("dot2") is not None and _in_matrices(graph, n, product, over, row.k):
        count *= MATRIX_SPEED
    return PRODUCT_COST * n.size / count + _packing(graph, factors, still)


def _in_matrices(graph: GraphEditor, n: Draft, product: Draft, over: AxisId, k: int) -> bool:
    """Whether registers of matrices fill: with terms, and with axes of the result that one of the factors alone has."""
    length, reads = graph.guesses(), [r for r in product.args if type(r) is Read]
    own = [[a for a in n.axes if a in x.axes and a not in y.axes] for x, y in (reads, reads[::-1])]
    most = [max([length[a] for a in axes], default=1) for axes in own]
    return length[over] >= MIN_MATRIX_TERMS * k and min(most) >= MIN_MATRIX_LENGTH


def _pairs(graph: GraphEditor, n: Draft) -> tuple[Draft | None, AxisId | None, tuple[DotOperand, ...]]:
    """Returns the product that a sum adds up, the axis along which it has pairs, and both factors; nothing where there are none."""
    product = summed(n) if n.dtype is dtypes.float32 else None
    if product is None or not all(map(_short, product.args)):
        return None, None, ()
    return product, *terms(graph, n, product.args)


def _short(a: Arg) -> bool:
    """Whether bfloat16 represents the value exactly: it was cast from bfloat16, or is a small integer."""
    if type(a) is not Read or (a.predicate and a.pad_value != 0):
        return False
    found = integer_range(a)
    return _cast(a) is not None or (found is not None and max(map(abs, found)) <= BFLOAT16_INTEGERS_END)


def _packed_where_smaller(graph: GraphEditor, f: DotOperand) -> tuple[DotOperand, Packed]:
    """Returns an operand and what is packed of it: the value from which it is gathered, where that has fewer elements."""
    value, (read, at) = _cast(f.read), f
    if value is None:
        return f, Packed(Read(read.source, identity_index(read.source.axes)), dtypes.bfloat16)
    rows = [a for a, e in value.index.items() if at in loop_variant_axes(e)]
    gathered, whole = (math.prod([graph.guesses()[a] for a in source.axes]) for source in (read.source, value.source))
    if read.predicate or len(rows) != 1 or value.index[rows[0]] != Idx(at) or whole >= gathered:
        return f, Packed(value, dtypes.bfloat16)
    return DotOperand(value.at(read.index), rows[0]), Packed(Read(value.source, identity_index(value.source.axes)), dtypes.bfloat16)


def _cast(r: Read) -> Read | None:
    """Returns the bfloat16 value of which this value is a cast."""
    s = r.source
    x = s.args[0] if isinstance(s, Draft) and s.kind == "elem" and s.op == "cast" else None
    return x if type(x) is Read and x.source.dtype is dtypes.bfloat16 and not x.predicate else None


# ---- groups of any number of terms ----------------------------------------------------------------------------------------


def has_long_sums(graph: TensorGraph, *kinds: DType) -> bool:
    """Whether some sum of products of these dtypes is long enough for the dot-product form to pay."""
    return any(n.kind == "reduce" and n.op == "add" and n.dtype in kinds and n.size >= MIN_DOT_PRODUCTS for n in graph.nodes)


def regrouped(graph: GraphEditor, instead: Callable[[Draft], Draft | None]) -> TensorGraph:
    """Returns the graph in which `instead(sum)` replaces each node for which it returns another one."""
    nodes = graph.nodes
    graph.nodes = []
    for n in nodes:
        graph.nodes.append(n)
        graph.origin = n.origin
        made = instead(n)
        if made is not None:
            graph.replaced(n, made)
    return graph.frozen()


def terms(graph: GraphEditor, n: Draft, args: Sequence[Arg]) -> tuple[AxisId | None, tuple[DotOperand, ...]]:
    """Returns the longest axis of a sum along which both operands are read at its own index."""
    best: tuple[AxisId | None, tuple[DotOperand, ...]] = None, ()
    most, reads, guesses = 1, [r for r in args if type(r) is Read], graph.guesses()
    for a in n.reduced:
        factors = [DotOperand(r, k) for r in reads for k, e in r.index.items() if type(e) is Idx and e.of == a]
        ways = [sum([a in loop_variant_axes(e) for e in (*r.index.values(), *r.predicate)]) for r in reads]
        if guesses[a] > most and len(factors) == 2 and ways == [1, 1] and not graph.found_by_steps(a):
            most, best = guesses[a], (a, tuple(factors))
    return best


def pays(graph: GraphEditor, n: Draft, factors: Iterable[DotOperand], count: int, still: Callable[[Read], bool]) -> bool:
    """Whether groups of so many terms save more time in products than packing the operands that change takes."""
    return n.size >= MIN_DOT_PRODUCTS and _packing(graph, factors, still) < (MAX_DOT_TIME - 1 / count) * PRODUCT_COST * n.size


def _packing(graph: GraphEditor, factors: Iterable[DotOperand], still: Callable[[Read], bool]) -> float:
    """Returns the cost of packing the operands that change, in vector instructions per lane."""
    changing = [f.read.source for f in factors if not is_call_invariant(f.read, still)]
    return PACKING_COST * sum([math.prod([graph.guesses()[a] for a in source.axes]) for source in changing])


def is_call_invariant(a: Arg, known: Callable[[Read], bool]) -> bool:
    """Whether the value depends on parameters alone."""
    if type(a) is not Read or known(a):
        return True
    return isinstance(a.source, Draft) and a.source.kind == "elem" and all(is_call_invariant(b, known) for b in a.source.args)


def shorter(
    graph: GraphEditor,
    n: Draft,
    product: Draft,
    over: AxisId,
    sides: Sequence[tuple[DotOperand, Packed]],
    row: ProductInstruction,
    known: dict[Hashable, Read],
) -> Read:
    """Returns the sum over groups of as many terms as the instruction adds; both operands are packed along the axis `over`."""
    group = graph.axis(f"{over}.{row.pack}", (graph.length(over) + (row.k - 1)) // row.k)
    args = [_packed(graph, f, value, group, row, known) for f, value in sides]
    axes, reduced = (tuple([group if a == over else a for a in some]) for some in (product.axes, n.reduced))
    p = graph.elem(row.op, *args, axes=axes, dtype=row.sum)
    return graph.node("reduce", "add", [p], n.axes, row.sum, reduced=reduced)


def _packed(graph: GraphEditor, f: DotOperand, x: Packed, group: AxisId, row: ProductInstruction, known: dict[Hashable, Read]) -> Read:
    """Returns an operand, packed."""
    bits = row.operand_bits
    made = memo(known, _groups, graph, row, x.value, f.read.source.axes, f.at, graph.formula(group), x.zero, x.dtype).source
    (own,) = [a for a in made.axes if a not in f.read.source.axes]
    index: dict[AxisId, Any] = {a: e for a, e in f.read.index.items() if a != f.at} | {own: Idx(group)}
    pad_value = sum([(x.pad_value & (1 << bits) - 1) << bits * k for k in range(row.k)]) if f.read.predicate else 0
    return Read(made, index, f.read.predicate, pad_value)


def _groups(
    graph: GraphEditor,
    row: ProductInstruction,
    value: Read,
    axes: tuple[AxisId, ...],
    at: AxisId,
    groups: ExprLike,
    zero: int,
    dtype: DType,
) -> Read:
    """Returns a value over `axes` as groups along one of them; elements behind the end are 0."""
    group = graph.axis(f"{at}.{row.pack}", groups)
    grouped = tuple([group if a == at else a for a in axes])
    parts: list[Arg] = []
    for place in [row.k * Idx(group) + k for k in range(row.k)]:
        part = graph.predicated(value, axes, {at: place}, [graph.length(at) - 1 - place], zero)
        if zero:
            part = graph.elem("subtract", part, ScalarConstant(zero, dtype_of(part)), axes=grouped, dtype=dtype_of(part))
        held = dtype_of(part).bits == row.operand_bits and dtype_of(part).kind != "bool"  # which is a bit in registers
        parts.append(part if held else graph.cast(part, grouped, dtype))
    return graph.elem(row.pack, *parts, axes=grouped, dtype=dtypes.uint32)
