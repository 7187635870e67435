"""Contractions: the axis along which their vectors lie, and the operand reads that have no window."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ngraph.op_graph import expr
from ngraph.op_graph.expr import Idx
from ngraph.program.program import AxisId
from ngraph.targets.tuning import MIN_PARAMETER_RATIO, MIN_UNPACKED_TERMS, OPEN_VECTORS
from ngraph.tensors.index import Read, affine, loop_variant_axes

Length = Callable[[AxisId], int | None]


class OperandAxes(NamedTuple):
    """One operand of a product: its loop-variant axes, those of them without a window, and whether it consists of parameters."""

    axes: tuple[AxisId, ...]
    identity_indexed: frozenset[AxisId]
    parameters: bool


def operand_axes(r: Read, space: Sequence[AxisId], length: Callable[[AxisId], int], parameters: bool) -> OperandAxes:
    """Returns what a read is as the operand of a product over these axes."""
    windowless_axes = frozenset([a for a in space if windowless(r, a, length)])
    return OperandAxes(tuple([a for a in space if a in r.axes]), windowless_axes, parameters)


def vectors_of(n: int, lanes: int) -> float:
    """Returns the number of vectors for so many elements; a half-filled last vector counts as a half."""
    half = max(1, lanes // 2)
    return -(-n // half) * half / lanes if n > lanes else 1


def vector_of(
    free: Sequence[AxisId],
    factors: Sequence[OperandAxes],
    last: AxisId | None,
    length: Callable[[AxisId], int],
    known: Callable[[AxisId], int | None],
    lanes: int,
    blocks: Mapping[AxisId, int] = {},
) -> AxisId | None:
    """Returns the free axis along which the vectors of a contraction lie: it fills vectors well, belongs to one operand, and has no window.

    The result's last axis is best, and so is an axis of parameters: they can be prepacked, and values then have their features last. If
    neither operand is a parameter, because a training step changes them, the much smaller one is treated as such, unless the sum is short:
    storing the result transposed then costs as much. Vectors along an axis of open length, of which `known` is None, are partly empty.
    `blocks`: the part of each axis that a work item has.
    """
    sizes = {f: math.prod([length(x) for x in f.axes]) for f in factors}
    terms = math.prod([length(x) for x in {x for f in factors for x in f.axes}.difference(free)])
    still = any(f.parameters for f in factors)

    def score(a: AxisId) -> tuple[float, float, int]:
        n = length(a)
        having = [f for f in factors if a in f.axes]
        own = sum([sizes[f] for f in having])
        windows = sum([a not in f.identity_indexed for f in having])
        small = min([sizes[f] for f in having], default=0) * MIN_PARAMETER_RATIO <= sum(sizes.values())
        slight = (last is None or terms >= MIN_UNPACKED_TERMS) and n > lanes and small
        features = any(f.parameters for f in having) if still else slight
        shared = len(having) > 1 and not (features and small)  # filters that each have one channel are read along it, too
        here = min(n, blocks.get(a, n))
        good = here / (vectors_of(here, lanes) * lanes) / (1 + 3 * windows) / (1 + shared)
        good *= (1.5 if a == last else 1) * (1.5 if features else 1) * (OPEN_VECTORS if known(a) is None else 1)
        return good, -own, free.index(a)

    return max([a for a in free if length(a) > 1], key=score, default=None)


def windowless(r: Read, a: AxisId, length: Length) -> bool:
    """Whether a read visits each index along an axis once, without predicate: no window. Axes may be mixed-radix digits of the index."""
    if a in loop_variant_axes(*r.predicate):
        return False
    for e in r.index.values():
        if type(e) is Idx:  # the place itself
            continue
        form = affine(e)
        if form is None:
            if a in loop_variant_axes(e) and not (type(e) is expr.Bin and e.op in ("//", "%") and type(e.a) is Idx and type(e.b) is int):
                return False
        elif a in form[0]:
            k, n = abs(form[0][a]), length(a) or 0
            if any(abs(c) < k * n and k < abs(c) * (length(x) or 0) for x, c in form[0].items() if x != a and length(x) != 1):
                return False
    return True
