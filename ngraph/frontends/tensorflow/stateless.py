"""Translators of TensorFlow's stateless random ops, whose numbers are TensorFlow's: Philox 4x32-10, four words for each counter.

Sources: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11), for the generator; tensorflow/core/lib/random
(`random_distributions.h`) for how words become numbers, and stateless_random_ops.cc for how a seed becomes a key and a counter. Logarithm,
sine and cosine are this compiler's, not the C library's: some normal numbers differ by one or two units in the last place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.errors import UnsupportedError
from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional import philox, rejection, shapes
from ngraph.frontends.positional.indexing import gathered
from ngraph.frontends.positional.text import Array, in_python
from ngraph.frontends.positional.values import ConstantArray, Sizes, Tensor, Value, settled
from ngraph.frontends.tensorflow.table import Length, translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType, as_dtype
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e

SEED_KEY = (0x3EC8F720, 0x02461E29)  # the key under which a seed is mixed
PHILOX, CHOSEN = 1, 3  # numbers of algorithms: the second leaves the choice to the device, which is Philox on CPUs
RESERVED = 256  # words that TensorFlow sets aside for each truncated number
TRIES = 6  # counters that are tried: 24 numbers for 4, or 12 for 2


def scalars(n: Any, v: Value, count: int) -> list[Op]:
    """Returns the numbers of a vector as uint64 scalars with the same bits."""
    t = n.g.tensor(v)
    found = [shapes.at(n.g, t, 0, k).op for k in range(count)]
    found = [e.cast(x, dtypes.int64) if x.dtype.kind == "int" else x for x in found]
    return [x if x.dtype is dtypes.uint64 else by_element.bitcast(x, dtypes.uint64) for x in found]


def seeded(n: Any, seed: Value) -> tuple[Op, tuple[Op, Op]]:
    """Returns the key and the counter, a low and a high half, that a seed of two numbers stands for, as uint64 scalars."""
    a, b = scalars(n, seed, 2)
    words = philox.philox([philox.low_word(a), philox.high_word(a), philox.low_word(b), philox.high_word(b)], SEED_KEY)
    return philox.joined_words(words[0], words[1]), (philox.whole(0), philox.joined_words(words[2], words[3]))


def _from(n: Any, key: Value, counter: Value, algorithm: Value) -> tuple[Op, tuple[Op, Op]]:
    if not isinstance(algorithm, ConstantArray) or int(algorithm.array) not in (PHILOX, CHOSEN):
        raise UnsupportedError("random numbers of another algorithm than Philox", fix="give alg='philox'")
    low, high = scalars(n, counter, 2)
    return scalars(n, key, 1)[0], (low, high)


def _numbers(n: Any, bounds: Sequence[Value]) -> Callable[..., list[Op]]:
    dtype = as_dtype(n.attr("dtype", np.dtype(np.float32 if not bounds else np.int32)))
    if bounds:
        return philox.in_range(dtype, *(n.g.tensor(b).op for b in bounds))
    if "FullInt" in n.op:
        return lambda *words: [by_element.bitcast(x, dtype) for x in philox.integers(dtype)(*words)]
    return (philox.truncated if "Truncated" in n.op else philox.normals_of if "Normal" in n.op else philox.fractions)(dtype)


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
    return philox.drawn(n.g, shape, seeded(n, seed), _numbers(n, bounds), *_spread(n))


@translates(*(f"{_named(kind)}V2" for kind in KINDS))
def by_counter(n: Any, shape: Value, key: Value, counter: Value, algorithm: Value, *bounds: Value) -> Tensor:
    return philox.drawn(n.g, shape, _from(n, key, counter, algorithm), _numbers(n, bounds), *_spread(n))


@translates("StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg", results="key counter alg")
def key_and_counter(n: Any, seed: Value) -> tuple[Value, ...]:
    key, counter = seeded(n, seed)
    vectors = [shapes.stacked(n.g, [n.g.made(x, []) for x in ops]) for ops in ([key], counter)]
    return *vectors, ConstantArray(np.array(PHILOX, np.int32))


translates("StatelessRandomGetAlg")(lambda n: ConstantArray(np.array(PHILOX, np.int32)))


@translates("StatelessMultinomial")
def multinomial(n: Any, t: Tensor, many: Length, seed: Value, *, output_dtype: DType = dtypes.int64) -> Value:
    g, t = n.g, n.g.full(Tensor(e.cast(t.op, dtypes.float64), t.dims))
    u = g.full(philox.drawn(g, settled([t.shape[0], many]), seeded(n, seed), philox.fractions(dtypes.float64)))
    return philox.classes(g, t, u, output_dtype)


# ---- samples that are drawn by trying: steps in Python --------------------------------------------------------------------

Source = tuple[Op, tuple[Op, Op]]


def _step(n: Any, source: Source, function: Callable[..., Array], inputs: Sequence[Value], dtype: Any) -> Value:
    """Returns the result of a step in Python. function: of the key and the counter's halves, and of the arrays of the inputs."""
    key, (low, high) = source
    given = [n.g.made(x, []) for x in (key, low, high)] + [n.g.tensor(v) if isinstance(v, Sizes) else v for v in inputs]
    return in_python(n, lambda k, a, b, *arrays: function((int(k), int(a), int(b)), *arrays), given, [dtype])[0]


def sampled(n: Any, source: Source, shape: Value, parameters: Sequence[Value], after: bool = False) -> Value:
    """Returns samples of a shape, which ends with that of the parameters; after: where that stands behind the shape given."""
    kind = next(k for k in rejection.SAMPLERS if k in n.op)
    dtype = np.dtype(n.attr("dtype", n.attr("T") or np.dtype(np.int64)))

    def run(source: rejection.Source, shape: Array, *arrays: Array) -> Array:
        lengths = [*shape.tolist(), *(np.broadcast_shapes(*[a.shape for a in arrays]) if after else ())]
        return rejection.sampled(kind, source, lengths, dtype, *arrays)

    return _step(n, source, run, [shape, *parameters], dtype)


@translates("StatelessRandomGammaV2", "StatelessRandomPoisson", "StatelessRandomBinomial", python=True)
@translates("StatelessParameterizedTruncatedNormal", python=True)
def sampled_by_seed(n: Any, shape: Value, seed: Value, *parameters: Value) -> Value:
    return sampled(n, seeded(n, seed), shape, parameters)


@translates("StatelessRandomGammaV3", python=True)
def sampled_by_counter(n: Any, shape: Value, key: Value, counter: Value, algorithm: Value, alpha: Value) -> Value:
    return sampled(n, _from(n, key, counter, algorithm), shape, [alpha])


@translates("StatelessShuffle", python=True)
def shuffled(n: Any, x: Value, key: Value, counter: Value, algorithm: Value) -> Value:
    """Returns the rows in an order drawn at random."""
    g, source = n.g, _from(n, key, counter, algorithm)
    many = g.tensor(settled(np.array([x.shape[0]], object)))
    order = _step(n, source, lambda source, count: rejection.shuffled(source, int(count[0])), [many], np.int64)
    return gathered(g, g.tensor(x), order, 0, n.takes[0])
