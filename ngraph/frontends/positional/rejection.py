"""Samples that are drawn by trying, over NumPy: each has a Philox generator of its own, and takes numbers until it accepts some.

The functions are those of TensorFlow's processor kernels (stateless_random_gamma_op.cc, random_poisson_op.cc, random_binomial_op.cc,
parameterized_truncated_normal_op.cc, shuffle_common.h), so that equal keys and counters give its numbers. Sources of the methods:
G. Marsaglia and W. Tsang, "A simple method for generating gamma variables" (2000); W. Hörmann, "The transformed rejection method for
generating Poisson random variables" (1993) and "The generation of binomial random variates" (1993); C. Robert, "Simulation of truncated
normal variables" (1995); D. Knuth, The Art of Computer Programming, volume 2, 3.4.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.op_graph.dtypes import as_dtype
from ngraph.ops.random import philox

Array = np.ndarray[Any, Any]
WORD, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
APART = 256  # counters from one sample to the next
APART_FEW = 42  # the same where few numbers of trials succeed
LEAST = 1e-7  # below which no logarithm is taken
INSIDE = 1.3  # deviations that bounds leave to a side of the mean where normal numbers are tried
Source = tuple[int, int, int]  # a key, and the low and the high half of a counter
# What Stirling's formula for the logarithm of k! lacks, for k below 10.
STIRLING = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
    0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287,
)  # fmt: skip


def exactly(function: Callable[..., float], *arrays: Array) -> Array:
    """Returns a function of Python's `math` of each element: TensorFlow's kernels call it too, and NumPy's differ in the last bit."""
    return np.array(list(map(function, *[a.tolist() for a in arrays])), np.float64)


def skipped(low: int, high: int, by: int) -> tuple[int, int]:
    """Returns the halves of the counter that stands so far behind one."""
    there = (high << 64 | low) + by
    return there & (1 << 64) - 1, there >> 64 & (1 << 64) - 1


def counters(low: int, high: int, apart: int, count: int) -> tuple[Array, Array]:
    """Returns the halves of so many counters of 128 bits, from one on."""
    with np.errstate(over="ignore"):
        lows = np.uint64(low) + np.arange(count, dtype=np.uint64) * np.uint64(apart)
        return lows, np.uint64(high) + (lows < np.uint64(low)).astype(np.uint64)


def words(key: int, low: Any, high: Any) -> list[Array]:
    """Returns four words for each counter, whose halves are uint64."""
    return philox((low & WORD, low >> HALF, high & WORD, high >> HALF), (key & int(WORD), key >> 32))


def _uniform(first: Array, second: Array) -> Array:
    bits = (first.astype(np.uint64) << HALF | second) & np.uint64((1 << 52) - 1)
    return bits.astype(np.float64) * 2.0**-52


def uniforms(*four: Array, dtype: Any = np.float64) -> Array:
    """Returns uniform numbers from 0 to below 1, a row for each four words: two of float64, four of a narrower dtype."""
    if dtype is np.float64:
        return np.stack([_uniform(four[0], four[1]), _uniform(four[2], four[3])], -1)
    bits = np.finfo(dtype).nmant
    return np.stack([((w & np.uint32((1 << bits) - 1)) * 2.0**-bits).astype(dtype) for w in four], -1)


def normals(*four: Array, dtype: Any = np.float64) -> Array:
    """Returns normal numbers, as many as `uniforms`, by Box and Muller; those of 16 bits are computed in float32."""
    drawn = uniforms(*four, dtype=dtype if dtype is np.float64 else np.float32)
    a, b = drawn[:, ::2].ravel(), drawn[:, 1::2].ravel()
    kind = drawn.dtype.type
    radius = np.sqrt(kind(-2.0) * exactly(math.log, np.maximum(a, kind(LEAST))).astype(kind))
    angle = (2 * math.pi * b.astype(np.float64)).astype(kind)
    found = np.stack([exactly(function, angle).astype(kind) * radius for function in (math.sin, math.cos)], -1)
    return found.reshape(drawn.shape).astype(dtype)


class Draws:
    """Numbers for samples, each from counters of its own; a counter gives two numbers, of which the second one is taken first.

    key, low, high: of the generator; apart: counters from one sample to the next; count: of the samples.
    """

    def __init__(self, source: Source, apart: int, count: int):
        self.key, low, high = source
        self.low, self.high = counters(low, high, apart, count)
        self.held = {kind: (np.empty((count, 2)), np.zeros(count, np.intp)) for kind in (uniforms, normals)}

    def _take(self, kind: Callable[..., Array], who: Array) -> Array:
        """Returns the next number of some samples."""
        values, left = self.held[kind]
        empty = who[left[who] == 0]
        if len(empty):
            values[empty] = kind(*words(self.key, self.low[empty], self.high[empty]))
            left[empty] = 2
            self.low[empty] += np.uint64(1)
            self.high[empty] += (self.low[empty] == 0).astype(np.uint64)
        left[who] -= 1
        return values[who, left[who]]

    def uniform(self, who: Array) -> Array:
        """Returns the next uniform number of the samples with these numbers."""
        return self._take(uniforms, who)

    def normal(self, who: Array) -> Array:
        """Returns the next normal number of the samples with these numbers."""
        return self._take(normals, who)


def accepted(who: Array, turn: Callable[[Array], tuple[Array, Array]]) -> Array:
    """Returns a value for each of `who`, numbers of samples. turn: from numbers to values and which are accepted; the others try again."""
    found, todo = np.empty(len(who)), np.arange(len(who))
    while len(todo):
        values, good = turn(who[todo])
        found[todo[good]] = values[good]
        todo = todo[~good]
    return found


def gamma(source: Source, alpha: Array) -> Array:
    """Returns samples of the gamma distribution of rate 1. alpha: the concentration of each, positive float64."""
    draws, found = Draws(source, APART, len(alpha)), np.empty(len(alpha))
    one, small = alpha == 1, alpha < 1
    whose = np.flatnonzero(one)
    found[whose] = -exactly(math.log1p, -draws.uniform(whose))
    d = alpha + np.where(small, 2.0 / 3, -1.0 / 3)
    c = 1.0 / 3 / np.sqrt(d)

    def turn(who: Array) -> tuple[Array, Array]:
        x = draws.normal(who)
        v = 1 + c[who] * x
        good = ~(v <= 0)
        who, x, v = who[good], x[good], v[good]
        v = v * v * v
        u = draws.uniform(who)
        with np.errstate(divide="ignore"):
            slow = np.log(u) < 0.5 * x * x + d[who] * (1 - v + np.log(v))
        inside = (u < 1 - 0.0331 * (x * x) * (x * x)) | slow
        values = np.zeros(len(good))
        values[good] = d[who] * v
        good[good] = inside
        return values, good

    whose = np.flatnonzero(~one)
    found[whose] = accepted(whose, turn)
    whose = np.flatnonzero(small)
    found[whose] *= exactly(math.pow, draws.uniform(whose), 1 / alpha[whose])
    return found


def poisson(source: Source, rate: Array, most: float) -> Array:
    """Returns samples of Poisson's distribution, whole numbers up to `most`. rate: of each, float64; beyond `most` the result is NaN."""
    draws, found = Draws(source, APART, len(rate)), np.empty(len(rate))
    limit, product, events = exactly(math.exp, -np.maximum(rate, 0)), np.ones(len(rate)), np.zeros(len(rate))

    def few(who: Array) -> tuple[Array, Array]:
        product[who] *= draws.uniform(who)
        values = events[who]
        events[who] += 1
        return values, (product[who] <= limit[who]) & (values <= most)

    with np.errstate(all="ignore"):
        b = 0.931 + 2.53 * np.sqrt(rate)
        a = -0.059 + 0.02483 * b
        scale, logarithm, box = 1.1239 + 1.1328 / (b - 3.4), np.log(rate), 0.9277 - 3.6224 / (b - 2)

    def many(who: Array) -> tuple[Array, Array]:
        u = draws.uniform(who) - 0.5
        v = draws.uniform(who)
        beside = 0.5 - np.abs(u)
        with np.errstate(all="ignore"):
            k = np.floor((2 * a[who] / beside + b[who]) * u + rate[who] + 0.43)
            slow = ~((k < 0) | ((beside < 0.013) & (v > beside)))
            s = np.log(v * scale[who] / (a[who] / (beside * beside) + b[who]))
            slow[slow] = s[slow] <= -rate[who][slow] + k[slow] * logarithm[who][slow] - exactly(math.lgamma, k[slow] + 1)
        return k, ((beside >= 0.07) & (v <= box[who]) | slow) & (k <= most)

    possible = np.isfinite(rate) & (rate <= most)
    found[~possible] = np.nan
    for whose, turn in ((possible & (rate < 10), few), (possible & (rate >= 10), many)):
        found[whose] = accepted(np.flatnonzero(whose), turn)
    return found


def _stirling(k: Array) -> Array:
    square = (k + 1) * (k + 1)
    tail = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)
    return np.where(k <= 9, np.take(STIRLING, np.clip(k, 0, 9).astype(np.intp)), tail)


def binomial(source: Source, count: Array, chance: Array, often: Array) -> Array:
    """Returns how many of `count` trials succeed. count, chance: of each sample, float64; often: where 10 are expected.

    Chances are up to a half. Counts and chances of 0 and below give 0; where one is not finite, the result is NaN.
    """
    finite = np.isfinite(count) & np.isfinite(chance)
    found = np.where(finite, 0.0, np.nan)
    real = finite & (count > 0) & (chance > 0)
    summed, numbers = np.zeros(len(count)), np.zeros(len(count))
    few_draws, draws = Draws(source, APART_FEW, len(count)), Draws(source, APART, len(count))
    with np.errstate(all="ignore"):
        spread = np.sqrt(count * chance * (1 - chance))
        b = 1.15 + 2.53 * spread
        a = -0.0873 + 0.0248 * b + 0.01 * chance
        middle, box, odds = count * chance + 0.5, 0.92 - 4.2 / b, chance / (1 - chance)
        alpha, m = (2.83 + 5.1 / b) * spread, np.floor((count + 1) * chance)
        failing = np.log1p(-chance)

    def few(who: Array) -> tuple[Array, Array]:
        with np.errstate(divide="ignore"):
            summed[who] += np.ceil(np.log(few_draws.uniform(who)) / failing[who])
        values = numbers[who]
        numbers[who] += 1
        return values, summed[who] > count[who]

    def many(who: Array) -> tuple[Array, Array]:
        u = draws.uniform(who)
        v = draws.uniform(who)
        u = u - 0.5
        beside = 0.5 - np.abs(u)
        n, r, mode = count[who], odds[who], m[who]
        with np.errstate(all="ignore"):
            k = np.floor((2 * a[who] / beside + b[who]) * u + middle[who])
            v_log = np.log(v * alpha[who] / (a[who] / (beside * beside) + b[who]))
            bound = (
                (mode + 0.5) * np.log((mode + 1) / (r * (n - mode + 1)))
                + (n + 1) * np.log((n - mode + 1) / (n - k + 1))
                + (k + 0.5) * np.log(r * (n - k + 1) / (k + 1))
                + _stirling(mode) + _stirling(n - mode) - _stirling(k) - _stirling(n - k)
            )  # fmt: skip
            slow = (k >= 0) & (k <= n) & (v_log <= bound)
        return k, (beside >= 0.07) & (v <= box[who]) | slow

    for whose, turn in ((real & ~often, few), (real & often, many)):
        found[whose] = accepted(np.flatnonzero(whose), turn)
    return found


def _binomial(source: Source, count: Array, chance: Array) -> Array:
    """Returns successes, or trials less failures where those are likelier; what is likelier is decided in the dtype of the parameters."""
    likely = chance > chance.dtype.type(0.5)
    less = np.where(likely, np.maximum(chance.dtype.type(1) - chance, 0), chance)
    found = binomial(source, count.astype(np.float64), less.astype(np.float64), count.astype(less.dtype) * less >= 10)
    return np.where(likely & (count > 0), count.astype(np.float64) - found, found)


def truncated_normal(source: Source, each: int, *parameters: Array) -> Array:
    """Returns normal numbers within bounds, computed in the dtype of the parameters: mean, deviation, low and high of so many each.

    All are taken from one generator, in order; what is left of a counter when the parameters change is lost.
    """
    key, low, high = source
    found, at = [], 0
    for mean, deviation, least, most in zip(*parameters, strict=True):
        if not (deviation > 0 and least < most and (np.isfinite(least) or np.isfinite(most))):
            said = f"normal numbers from {least} to {most} with the deviation {deviation}"
            raise GraphError(said, fix="give a positive deviation, and bounds in order of which one at least is finite")
        if least == -np.inf or most < mean:  # the other way round
            least, most, deviation = most, least, -deviation
        count, turn = _within((least - mean) / deviation, (most - mean) / deviation)
        kept, left = list[Array](), each
        while left > 0:
            tried = 2 * left + 8
            values, good = turn(words(key, *counters(*skipped(low, high, at), 1, tried * count)))
            ends = np.flatnonzero(good.ravel())[:left]
            kept.append(values.ravel()[ends])
            left -= len(ends)
            at += count * (tried if left else int(ends[-1]) // values.shape[1] + 1)
        found += [values * deviation + mean for values in kept]
    return np.concatenate(found)


def _within(least: Any, most: Any) -> tuple[int, Callable[[list[Array]], tuple[Array, Array]]]:
    """Returns how to draw normal numbers within bounds: how many counters a turn takes, and a function from the words of turns.

    It gives values, a row for each turn, and which are accepted.
    """
    kind = type(least)
    two, four = kind(2), kind(4)
    root = np.sqrt(least * least + four)
    width = most - least
    if (least < -kind(INSIDE) and most >= 0) or (most > kind(INSIDE) and least <= 0):

        def normal(four_words: list[Array]) -> tuple[Array, Array]:
            values = normals(*four_words, dtype=kind)
            return values, (values >= least) & (values <= most)

        return 1, normal
    if width < two * np.exp(kind(0.5) + least * (least - root) / four) / (least + root):

        def uniform(four_words: list[Array]) -> tuple[Array, Array]:
            drawn = uniforms(*four_words, dtype=kind)
            values = drawn[::2] * width + least
            return values, drawn[1::2] <= np.exp(((kind(0) if least < 0 else least * least) - values * values) / two)

        return 2, uniform
    rate = (least + root) / two

    def exponential(four_words: list[Array]) -> tuple[Array, Array]:
        drawn = uniforms(*four_words, dtype=kind)
        with np.errstate(divide="ignore"):
            values = -np.log(drawn[:, ::2].astype(np.float64)).astype(kind) / rate + least
        off = rate - values if least < rate else least - rate
        return values, (drawn[:, 1::2] <= np.exp(-off * off / two)) & (values < most)

    return 1, exponential


# by the name of the distribution: functions of a source, a dtype, how many of each, and parameters
SAMPLERS: dict[str, Callable[..., Array]] = {
    "TruncatedNormal": lambda source, dtype, each, *parameters: truncated_normal(source, each, *parameters),
    "Gamma": lambda source, dtype, each, alpha: gamma(source, np.repeat(alpha, each).astype(np.float64)),
    "Poisson": lambda source, dtype, each, rate: poisson(source, np.repeat(rate, each).astype(np.float64), as_dtype(dtype).highest),
    "Binomial": lambda source, dtype, each, *parameters: _binomial(source, *(np.repeat(a, each) for a in parameters)),
}


def sampled(kind: str, source: Source, lengths: Sequence[int], dtype: np.dtype[Any], *parameters: Array) -> Array:
    """Returns samples of a distribution of `SAMPLERS`, in a shape that ends with that of the parameters.

    The samples of the first parameters have the first generators.
    """
    given = [a.ravel() for a in np.broadcast_arrays(*parameters)]
    each = math.prod(lengths) // max(given[0].size, 1)
    if not math.prod(lengths):
        return np.zeros(lengths, dtype)
    made = SAMPLERS[kind](source, dtype, each, *given)
    with np.errstate(invalid="ignore"):
        return made.reshape(-1, each).T.reshape(lengths).astype(dtype)


def shuffled(source: Source, count: int) -> Array:
    """Returns the numbers below `count` in an order drawn at random: each place in turn takes one of those that are left."""
    key, low, high = source
    drawn = np.stack(words(key, *counters(low, high, 1, -(-count // 4))), -1).ravel()
    steps = drawn[: max(count - 1, 0)] % np.arange(count, 1, -1, dtype=np.uint32)
    order = list(range(count))
    for k, step in enumerate(steps.tolist()):
        order[k], order[k + step] = order[k + step], order[k]
    return np.array(order, np.int64)
