"""Dot products of small integers in int32, computed in float32: machines multiply floats several times faster.

A float32 holds every integer up to 2**24, so sums that stay below are exact in any order. Longer sums are split into parts below that
bound, and the partial sums are added in int32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import Idx
from ngraph.parts.runner import pass_
from ngraph.targets.tuning import MIN_DOT_PRODUCTS, MIN_EXACT_TERMS
from ngraph.tensors.bf16_dot import has_long_sums, regrouped
from ngraph.tensors.edit import Draft, GraphEditor, summed
from ngraph.tensors.graph import Arg, TensorGraph
from ngraph.tensors.index import Read, identity_index
from ngraph.tensors.memo import memo
from ngraph.tensors.value_range import integer_range

FLOAT32_INTEGERS_END = 1 << 24


@pass_()
def use_float_dots(graph: TensorGraph) -> TensorGraph:
    """Replaces sums in int32 by sums in float32 where these are exact."""
    if not has_long_sums(graph, dtypes.int32):
        return graph
    e = GraphEditor(graph)
    known: dict[Any, Read] = {}

    def as_float(r: Read) -> Read:
        """Casts an operand where it is computed, once for all its readers."""
        return Read(memo(known, _cast, e, r.source).source, r.index, r.predicate, r.pad_value)

    return regrouped(e, lambda n: _floats(e, n, as_float))


def _cast(graph: GraphEditor, source: Any) -> Read:
    return graph.elem("cast", Read(source, identity_index(source.axes)), axes=source.axes, dtype=dtypes.float32)


def _floats(graph: GraphEditor, n: Draft, as_float: Callable[[Read], Read]) -> Draft | None:
    product = summed(n) if n.dtype is dtypes.int32 and n.size >= MIN_DOT_PRODUCTS else None
    factors = [] if product is None else [(a, r) for a in product.args if type(a) is Read and (r := integer_range(a)) is not None]
    lengths = {a: graph.known(a) for a in n.reduced}
    if product is None or len(factors) < 2 or None in lengths.values():
        return None
    terms = math.prod([k or 0 for k in lengths.values()])
    parts = max(1, math.ceil(math.prod([max(map(abs, r)) for _, r in factors]) * terms / FLOAT32_INTEGERS_END))
    longest = max(n.reduced, key=lambda a: lengths[a] or 0)
    count = lengths[longest] or 0
    if parts > 1 and (terms < MIN_EXACT_TERMS * parts or count < parts):
        return None
    args: list[Arg] = [as_float(r) for r, _ in factors]
    axes, reduced, free = product.axes, n.reduced, n.axes
    if parts > 1:
        parts = next((k for k in range(parts, 2 * parts) if count % k == 0), parts)
        size = -(-count // parts)
        part, own = graph.axis(f"{longest}.part", parts), graph.axis(f"{longest}.own", size)
        place = size * Idx(part) + Idx(own)
        axes, reduced = (tuple([own if a == longest else a for a in some]) for some in (axes, reduced))
        axes, free = (part, *axes), (part, *free)
        args = [graph.predicated(a, product.axes, {longest: place}, [count - 1 - place], 0) for a in args]
    p = graph.elem("multiply", *args, axes=axes, dtype=dtypes.float32)
    total = graph.node("reduce", "add", [p], free, dtypes.float32, reduced=reduced)
    made = graph.elem("cast", total, axes=free, dtype=dtypes.int32)
    if parts > 1:
        made = graph.node("reduce", "add", [Read(made.source, identity_index(free))], n.axes, dtypes.int32, reduced=(part,))
    result: Draft = made.source
    return result
