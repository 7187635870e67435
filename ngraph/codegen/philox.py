"""Random words as instructions: Philox 4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3; docs/spec.md 6)."""

from __future__ import annotations

from collections.abc import Sequence

from ngraph.codegen import math as scalar
from ngraph.codegen.number import Number
from ngraph.codegen.text import IRValue, IRWriter, counting
from ngraph.op_graph import dtypes

WORDS = 4  # of a block
MULTIPLIERS, WEYL, TRIP = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 0x9E3779B1


def random_bits(w: IRWriter, args: Sequence[IRValue], stream: int) -> IRValue:
    """One word at each flat index: `args` are seed, step, trips and the index."""
    at = Number(w, args[-1]).unsigned()
    words = _words(w, args[:-1], stream, at >> 2)
    which = _low(at) & 3
    found = words[3]
    for k in (2, 1, 0):
        found = which.equal(k).select(words[k], found)
    return found.v


def side_by_side(w: IRWriter, args: Sequence[IRValue], stream: int, first: IRValue, count: int, lanes: int) -> list[IRValue]:
    """The same at `count` x `lanes` flat indices from a multiple of four on, as vectors: each block gives all of its four words."""
    blocks = count * lanes // WORDS
    block = Number(w, w.splat(first, blocks)).unsigned() >> 2
    words = [x.v for x in _words(w, args, stream, block + Number(w, counting(dtypes.uint64, blocks)))]
    pairs = [w.shuffle(words[k], [e // 2 + e % 2 * blocks for e in range(2 * blocks)], words[k + 1]) for k in (0, 2)]
    places = [e // 4 * 2 + e % 2 + (2 * blocks if e % 4 > 1 else 0) for e in range(count * lanes)]
    return [w.shuffle(pairs[0], places[k * lanes : (k + 1) * lanes], pairs[1]) for k in range(count)]


def _words(w: IRWriter, args: Sequence[IRValue], stream: int, block: Number) -> list[Number]:
    """The four words of each block: `args` are seed, step and trips."""
    seed, step, *trips = [Number(w, scalar.emit(w, "cast", (a,), {"dtype": dtypes.uint64})) for a in args]
    trip = _low(seed).like(0)
    for t in trips:
        trip = trip * _signed(TRIP) + _low(t) + 1
    block, lanes = _low(block), block.v.lanes
    one = [Number(w, w.splat(c.v, lanes)) for c in (block, _low(step), block.like(_signed(stream)), trip)]
    return philox(one, [Number(w, w.splat(k.v, lanes)) for k in (_low(seed), _low(seed >> 32))])


def philox(counter: Sequence[Number], key: Sequence[Number]) -> list[Number]:
    """Four words for a counter of four under a key of two, all uint32."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        (high_a, low_a), (high_b, low_b) = _product(c0, MULTIPLIERS[0]), _product(c2, MULTIPLIERS[1])
        c0, c1, c2, c3 = high_b ^ c1 ^ k0, low_b, high_a ^ c3 ^ k1, low_a
        k0, k1 = k0 + _signed(WEYL[0]), k1 + _signed(WEYL[1])
    return [c0, c1, c2, c3]


def _product(x: Number, k: int) -> tuple[Number, Number]:
    """The upper and the lower word of x * k."""
    wide = x.convert("zext", dtypes.uint64) * k
    return _low(wide >> 32), _low(wide)


def _low(x: Number) -> Number:
    return x.convert("trunc", dtypes.uint32)


def _signed(k: int) -> int:
    """The number as LLVM's 32-bit constants are read."""
    return k - (1 << 32) if k >> 31 else k
