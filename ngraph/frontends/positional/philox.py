"""The generator Philox-4x32-10 as ops: four words of 32 bits for each counter of four words.

Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11). A word is a uint64 below 2**32, so that products are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional import shapes
from ngraph.frontends.positional.reductions import total
from ngraph.frontends.positional.values import Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import ExprLike
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import functions
from ngraph.ops.random import MULTIPLIERS, WEYL
from ngraph.ops.rearrange import iota, product
from ngraph.ops.sorting import cumsum

WORD = 0xFFFFFFFF
TRUNCATED = 2.0  # deviations within which truncated normal numbers are; one in 22 is not
LEAST = 1e-7  # below which no logarithm is taken
FRACTION_BITS = {dtypes.bfloat16: 7, dtypes.float16: 10, dtypes.float32: 23, dtypes.float64: 52}


def whole(n: int) -> Op:
    """Returns a number as a uint64 scalar."""
    return e.filled(n, (), dtypes.uint64)


def low_word(x: Op) -> Op:
    """Returns the lower 32 bits."""
    return e.bitwise(x, whole(WORD), kind="and")


def high_word(x: Op) -> Op:
    """Returns the upper 32 bits, as a word."""
    return e.bitwise(x, whole(32), kind="shr")


def joined_words(low: Op, high: Op) -> Op:
    """Returns 64 bits, of two words."""
    return e.bitwise(low, e.bitwise(high, whole(32), kind="shl"), kind="or")


def _mixed(x: Op, *others: Op) -> Op:
    for y in others:
        x = e.bitwise(x, y, kind="xor")
    return x


def philox(counter: Sequence[Op], key: tuple[Any, Any]) -> list[Op]:
    """Returns four words, as uint64, for counters of four words under a key of two: uint64 ops below 2**32, or numbers."""
    c0, c1, c2, c3 = counter
    k0, k1 = (k if isinstance(k, Op) else whole(k) for k in key)
    for turn in range(10):
        a, b = c0 * whole(MULTIPLIERS[0]), c2 * whole(MULTIPLIERS[1])
        first, second = (low_word(k + whole(turn * w & WORD)) for k, w in zip((k0, k1), WEYL, strict=True))
        c0, c1, c2, c3 = _mixed(high_word(b), c1, first), low_word(b), _mixed(high_word(a), c3, second), low_word(a)
    return [c0, c1, c2, c3]


def drawn(
    g: Any, shape: Value, source: tuple[Op, tuple[Op, Op]], numbers: Callable[..., list[Op]], count_of: int = 1, apart: int = 1
) -> Tensor:
    """Returns numbers of a shape. numbers: from the words of `count_of` counters, four each, uint64 ops, to their numbers in order.

    apart: from the first of these counters to that of the next numbers.
    """
    key, (low, high) = source
    sizes = g.sizes(shape)
    count = product(sizes)
    each = len(numbers(*[whole(0)] * 4 * count_of))
    blocks: ExprLike = (count + (each - 1)) // each
    axis = g.fresh(blocks)
    words = list[Op]()
    for k in range(count_of):
        at = low + iota(axis, dtypes.uint64) * whole(apart) + whole(k)
        carried = high + e.cast(e.less(at, low), dtypes.uint64)
        words += philox([low_word(at), high_word(at), low_word(carried), high_word(carried)], (low_word(key), high_word(key)))
    made = g.full(shapes.stacked(g, [g.made(x, [axis]) for x in numbers(*words)], 1))
    flat = g.full(g.reshape(made, [blocks * each]), [0])
    return g.reshape(shapes.sliced(g, flat, 0, 0, 1, count), sizes)


# ---- from words to numbers ------------------------------------------------------------------------------------------------


def fractions(dtype: Any) -> Callable[..., list[Op]]:
    """Returns the function from four words to uniform numbers from 0 to below 1: low bits of words, of two for float64."""
    bits = FRACTION_BITS[dtype]

    def fraction(x: Op) -> Op:
        kept = e.bitwise(x, whole((1 << bits) - 1), kind="and")
        wide = dtypes.float64 if bits > 23 else dtypes.float32
        return e.cast(e.cast(kept, wide) * e.filled(2.0**-bits, (), wide), dtype)

    def numbers(*words: Op) -> list[Op]:
        if bits <= 23:
            return [fraction(w) for w in words]
        return [fraction(joined_words(words[k + 1], words[k])) for k in (0, 2)]

    return numbers


def normals_of(dtype: Any) -> Callable[..., list[Op]]:
    """Returns the function from four words to normal numbers, by Box and Muller; those of 16 bits are computed in float32.

    Logarithms, sines and cosines of float32 are float64's, rounded: those of C libraries, which other generators take, are as near.
    """
    uniform = fractions(dtypes.float64 if dtype is dtypes.float64 else dtypes.float32)

    def rounded(function: Callable[[Op], Op], x: Op) -> Op:
        return e.cast(function(e.cast(x, dtypes.float64)), x.dtype)

    def numbers(*words: Op) -> list[Op]:
        found, us = [], uniform(*words)
        for a, b in zip(us[::2], us[1::2], strict=True):
            radius = e.sqrt(rounded(e.log, e.maximum(a, e.filled(LEAST, (), a.dtype))) * e.filled(-2.0, (), a.dtype))
            angle = rounded(lambda x: x * e.filled(2.0 * math.pi, (), x.dtype), b)
            found += [e.cast(rounded(function, angle) * radius, dtype) for function in (e.sin, e.cos)]
        return found

    return numbers


def truncated(dtype: Any) -> Callable[..., list[Op]]:
    """Returns the function from the words of some counters to the first of their normal numbers within two deviations."""
    normals, wanted = normals_of(dtypes.float64 if dtype is dtypes.float64 else dtypes.float32), 2 if dtype is dtypes.float64 else 4

    def numbers(*words: Op) -> list[Op]:
        tried = [x for k in range(0, len(words), 4) for x in normals(*words[k : k + 4])]
        found = [e.filled(0.0, (), tried[0].dtype)] * wanted
        taken = e.filled(0, (), dtypes.int32)
        for x in tried:
            good = e.less(e.maximum(x, -x), e.filled(TRUNCATED, (), x.dtype))
            found = [e.where(e.logical_and(good, e.equal(taken, k)), x, old) for k, old in enumerate(found)]
            taken = taken + e.cast(good, dtypes.int32)
        return [e.cast(x, dtype) for x in found]

    return numbers


def integers(dtype: Any) -> Callable[..., list[Op]]:
    """Returns the function from four words to unsigned numbers of the bits of a dtype."""
    if dtype.bits == 64:
        return lambda *words: [joined_words(words[0], words[1]), joined_words(words[2], words[3])]
    return lambda *words: [e.cast(w, dtypes.uint32) for w in words]


def in_range(dtype: Any, low: Op, high: Op) -> Callable[..., list[Op]]:
    """Returns the function from four words to whole numbers from `low` to below `high`."""
    unsigned = dtypes.uint64 if dtype.bits == 64 else dtypes.uint32
    first, last = (by_element.bitcast(x, unsigned) for x in (low, high))
    return lambda *words: [by_element.bitcast(first + e.mod(x, last - first), dtype) for x in integers(dtype)(*words)]


def classes(g: Any, t: Tensor, u: Tensor, dtype: Any) -> Value:
    """Returns classes by their logits, for uniform numbers: how many have a summed probability that is not above the number.

    t: logits [rows, classes] of float64; u: numbers [rows, how many]
    """
    row, kind = t.dims
    u = g.renamed(u, [row, u.dims[1]])
    nothing = e.filled(0.0, (), dtypes.float64)
    finite = functions.isfinite(t.op)
    top = total(e.where(finite, t.op, e.filled(dtypes.float64.lowest, (), dtypes.float64)), (kind,), "max")
    sums = cumsum(e.where(finite, e.exp(t.op - top), nothing), kind)
    below = e.less_equal(sums, u.op * sums[{kind: g.number(kind.size) - 1}])
    return g.made(total(e.cast(below, dtype), (kind,)), u.dims)
