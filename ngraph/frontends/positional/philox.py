"""The generator Philox-4x32-10 as ops: four words of 32 bits for each counter of four words.

Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11). A word is a uint64 below 2**32, so that products are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ngraph.frontends.positional import shapes
from ngraph.frontends.positional.values import Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import ExprLike
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.random import MULTIPLIERS, WEYL
from ngraph.ops.rearrange import iota, product

WORD = 0xFFFFFFFF


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
