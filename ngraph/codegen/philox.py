"""Random words as instructions: Philox 4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3; docs/spec.md 6)."""

from __future__ import annotations

from collections.abc import Sequence

from ngraph.codegen import math as scalar
from ngraph.codegen.number import Number
from ngraph.codegen.text import Value, Writer
from ngraph.op_graph import dtypes

MULTIPLIERS, WEYL, TRIP = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 0x9E3779B1


def random_bits(w: Writer, args: Sequence[Value], stream: int) -> Value:
    """One word at each flat index: `args` are seed, step, trips and the index."""
    seed, step, *trips, at = [Number(w, scalar.emit(w, "cast", (a,), {"dtype": dtypes.uint64})) for a in args]
    trip = _low(seed).like(0)
    for t in trips:
        trip = trip * _signed(TRIP) + _low(t) + 1
    block = _low(at >> 2)
    lanes = at.v.lanes
    one = [Number(w, w.splat(c.v, lanes)) for c in (block, _low(step), block.like(_signed(stream)), trip)]
    words = philox(one, [Number(w, w.splat(k.v, lanes)) for k in (_low(seed), _low(seed >> 32))])
    which = _low(at) & 3
    found = words[3]
    for k in (2, 1, 0):
        found = which.equal(k).select(words[k], found)
    return found.v


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
