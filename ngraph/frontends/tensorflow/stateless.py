"""Translators of TensorFlow's stateless random ops, whose numbers are TensorFlow's: Philox 4x32-10, four words for each counter.

Sources: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11), for the generator; tensorflow/core/lib/random
(`random_distributions.h`) for how words become numbers, and stateless_random_ops.cc for how a seed becomes a key and a counter. Logarithm,
sine and cosine are this compiler's: normal numbers differ from TensorFlow's by some units in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.errors import UnsupportedError
from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional import shapes
from ngraph.frontends.positional.philox import drawn, high_word, joined_words, low_word, philox, whole
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.frontends.tensorflow.table import translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e

SEED_KEY = (0x3EC8F720, 0x02461E29)  # the key under which a seed is mixed
PHILOX, CHOSEN = 1, 3  # numbers of algorithms: the second leaves the choice to the device, which is Philox on CPUs
RESERVED = 256  # words that TensorFlow sets aside for each truncated number
TRUNCATED = 2.0  # deviations within which these are; one in 22 is not
TRIES = 6  # counters that are tried: 24 numbers for 4, or 12 for 2
LEAST = 1e-7  # below which no logarithm is taken
FRACTION_BITS = {dtypes.bfloat16: 7, dtypes.float16: 10, dtypes.float32: 23, dtypes.float64: 52}


def _scalars(n: Any, v: Value, count: int) -> list[Op]:
    """Returns the numbers of a vector as uint64 scalars with the same bits."""
    t = n.g.tensor(v)
    found = [shapes.at(n.g, t, 0, k).op for k in range(count)]
    found = [e.cast(x, dtypes.int64) if x.dtype.kind == "int" else x for x in found]
    return [x if x.dtype is dtypes.uint64 else by_element.bitcast(x, dtypes.uint64) for x in found]


def seeded(n: Any, seed: Value) -> tuple[Op, tuple[Op, Op]]:
    """Returns the key and the counter, a low and a high half, that a seed of two numbers stands for, as uint64 scalars."""
    a, b = _scalars(n, seed, 2)
    words = philox([low_word(a), high_word(a), low_word(b), high_word(b)], SEED_KEY)
    return joined_words(words[0], words[1]), (whole(0), joined_words(words[2], words[3]))


def _from(n: Any, key: Value, counter: Value, algorithm: Value) -> tuple[Op, tuple[Op, Op]]:
    if not isinstance(algorithm, ConstantArray) or int(algorithm.array) not in (PHILOX, CHOSEN):
        raise UnsupportedError("random numbers of another algorithm than Philox", fix="give alg='philox'")
    low, high = _scalars(n, counter, 2)
    return _scalars(n, key, 1)[0], (low, high)


def _fractions(dtype: Any) -> Callable[..., list[Op]]:
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


def _normals(dtype: Any) -> Callable[..., list[Op]]:
    """Returns the function from four words to normal numbers, by Box and Muller; those of 16 bits are computed in float32."""
    uniform = _fractions(dtypes.float64 if dtype is dtypes.float64 else dtypes.float32)

    def numbers(*words: Op) -> list[Op]:
        found, us = [], uniform(*words)
        for a, b in zip(us[::2], us[1::2], strict=True):
            radius = e.sqrt(e.log(e.maximum(a, e.filled(LEAST, (), a.dtype))) * e.filled(-2.0, (), a.dtype))
            angle = b * e.filled(2.0 * math.pi, (), b.dtype)
            found += [e.cast(e.sin(angle) * radius, dtype), e.cast(e.cos(angle) * radius, dtype)]
        return found

    return numbers


def _truncated(dtype: Any) -> Callable[..., list[Op]]:
    """Returns the function from the words of TRIES counters to the first of their normal numbers within two deviations."""
    normals, wanted = _normals(dtypes.float64 if dtype is dtypes.float64 else dtypes.float32), 2 if dtype is dtypes.float64 else 4

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


def _whole(dtype: Any) -> Callable[..., list[Op]]:
    """Returns the function from four words to unsigned numbers of the bits of a dtype."""
    if dtype.bits == 64:
        return lambda *words: [joined_words(words[0], words[1]), joined_words(words[2], words[3])]
    return lambda *words: [e.cast(w, dtypes.uint32) for w in words]


def _in_range(dtype: Any, low: Op, high: Op) -> Callable[..., list[Op]]:
    unsigned = dtypes.uint64 if dtype.bits == 64 else dtypes.uint32
    first, last = (by_element.bitcast(x, unsigned) for x in (low, high))
    return lambda *words: [by_element.bitcast(first + e.mod(x, last - first), dtype) for x in _whole(dtype)(*words)]


def _numbers(n: Any, bounds: Sequence[Value]) -> Callable[..., list[Op]]:
    dtype = as_dtype(n.attr("dtype", np.dtype(np.float32 if not bounds else np.int32)))
    if bounds:
        return _in_range(dtype, *(n.g.tensor(b).op for b in bounds))
    if "FullInt" in n.op:
        return lambda *words: [by_element.bitcast(x, dtype) for x in _whole(dtype)(*words)]
    return (_truncated if "Truncated" in n.op else _normals if "Normal" in n.op else _fractions)(dtype)


def _spread(n: Any) -> tuple[int, int]:
    """Returns how many counters a group of numbers may use, and how far apart groups start: 256 words for each number."""
    if "Truncated" not in n.op:
        return 1, 1
    wide = n.attr("dtype") == np.float64
    return TRIES, RESERVED // 4 * (2 if wide else 4)


KINDS = ("Uniform", "Normal", "TruncatedNormal", "UniformInt", "UniformFullInt")


def _named(kind: str) -> str:
    return f"Stateless{'' if kind.startswith('Truncated') else 'Random'}{kind}"


@translates(*map(_named, KINDS))
def by_seed(n: Any, shape: Value, seed: Value, *bounds: Value) -> Tensor:
    return drawn(n.g, shape, seeded(n, seed), _numbers(n, bounds), *_spread(n))


@translates(*(f"{_named(kind)}V2" for kind in KINDS))
def by_counter(n: Any, shape: Value, key: Value, counter: Value, algorithm: Value, *bounds: Value) -> Tensor:
    return drawn(n.g, shape, _from(n, key, counter, algorithm), _numbers(n, bounds), *_spread(n))


@translates("StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg", results="key counter alg")
def key_and_counter(n: Any, seed: Value) -> tuple[Value, ...]:
    key, counter = seeded(n, seed)
    vectors = [shapes.stacked(n.g, [n.g.made(x, []) for x in ops]) for ops in ([key], counter)]
    return *vectors, ConstantArray(np.array(PHILOX, np.int32))


@translates("StatelessRandomGetAlg")
def algorithm(n: Any) -> Value:
    return ConstantArray(np.array(PHILOX, np.int32))
