"""The functions of `keras.ops.random`: numbers that depend on nothing but the seed, by Philox 4x32-10 under it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from keras.src.backend.common import standardize_dtype
from keras.src.backend.config import floatx
from keras.src.random.seed_generator import SeedGenerator as SeedGenerator
from keras.src.random.seed_generator import draw_seed
from keras.src.random.seed_generator import make_default_seed as make_default_seed

from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.values import Tensor
from ngraph.keras import numpy
from ngraph.keras.convert import cast, convert_to_tensor
from ngraph.keras.elementwise import two
from ngraph.keras.moving import shape_of
from ngraph.keras.tensors import apply, size_of
from ngraph.keras.traces import KerasTrace
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axes, make_axis
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import special
from ngraph.ops.random import normal_record, random_bits, uniform_record
from ngraph.ops.rearrange import rename_record

STREAM = 0xFFFFFFF0  # of draws by a seed tensor; the seed's two words are the key and the counter
MOST_ROUNDS = 64  # of a rejection: one accepts more than 0.95 of the draws, so that 64 leave one in 1e83


def _state(g: KerasTrace, seed: Tensor) -> Any:
    """Returns a seed tensor of two words as the state that draws read."""
    t = g.full(seed)
    axis = make_axis(2, name="seed_words")
    return e.cast(rename_record.build(t.op, to=((t.dims[0], axis),)), dtypes.uint64)


def drawn(g: KerasTrace, seed: Tensor, kind: str, shape: tuple[Any, ...], dtype: str) -> Tensor:
    """Numbers of a shape: `uniform` in [0, 1), `normal`, or `bits`."""
    dims = [g.fresh(size_of(n)) for n in shape]
    state, axes = _state(g, seed), tuple(dims)
    d = as_dtype(dtype)
    if kind == "uniform":
        op = uniform_record.build(state, axes=Axes(axes), dtype=d, stream=STREAM, low=0.0, high=1.0)
    elif kind == "normal":
        op = normal_record.build(state, axes=Axes(axes), dtype=d, stream=STREAM, loc=0.0, scale=1.0)
    else:
        op = random_bits.build(state, stream=STREAM, axes=Axes(axes))
    return g.made(op, dims)


class DrawnSeed(SeedGenerator):
    """A seed that has been drawn."""

    def __init__(self, words: Any):
        self.words = words

    def next(self, ordered: bool = True) -> Any:
        return self.words


def drawn_seed(words: Any, more: int = 0) -> DrawnSeed:
    """Returns words that have been drawn as a seed; more: as another one."""
    words = words.words if isinstance(words, DrawnSeed) else convert_to_tensor(words, "uint32")
    return DrawnSeed(numpy.add(words, convert_to_tensor([more * 12, more * 31], "uint32")) if more else words)


def _draw(kind: str, shape: Any, dtype: Any, seed: Any) -> Any:
    seed = convert_to_tensor(draw_seed(seed), "uint32")
    return apply(drawn, seed, kind=kind, shape=shape_of(shape), dtype=dtype)


def _float(dtype: Any) -> str:
    return standardize_dtype(dtype or floatx())


def _wide(dtype: str) -> str:
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _by_place(g: KerasTrace, *values: Tensor, of: Callable[..., Op]) -> Tensor:
    return each(g, of, *values)


def _each(function: Callable[..., Op], *values: Any) -> Any:
    """Returns a function of ops of tensors of one dtype, place by place, without Keras's promotion to 32 bits."""
    return apply(_by_place, *values, of=function)


def _between(u: Op, low: Op, high: Op) -> Op:
    return u * (high - low) + low


def _moved(z: Op, scale: Op, by: Op) -> Op:
    return z * scale + by


def _truncated(u: Op) -> Op:
    """Returns normal numbers within two deviations of uniform numbers."""
    z = special.erfinv((u * 2.0 - 1.0) * math.erf(math.sqrt(2.0))) * math.sqrt(2.0)
    return e.minimum(e.maximum(z, -2.0), 2.0)


def uniform(shape: Any, minval: Any = 0.0, maxval: Any = 1.0, dtype: Any = None, seed: Any = None) -> Any:
    dtype = _float(dtype)
    return _each(_between, _draw("uniform", shape, dtype, seed), cast(minval, dtype), cast(maxval, dtype))


def normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, seed: Any = None) -> Any:
    dtype = _float(dtype)
    z = cast(_draw("normal", shape, _wide(dtype), seed), dtype)
    return _each(_moved, z, cast(stddev, dtype), cast(mean, dtype))


def truncated_normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, seed: Any = None) -> Any:
    """Returns normal numbers from two deviations below the mean to two above, by inversion."""
    dtype = _float(dtype)
    z = cast(_each(_truncated, _draw("uniform", shape, _wide(dtype), seed)), dtype)
    return _each(_moved, z, cast(stddev, dtype), cast(mean, dtype))


def randint(shape: Any, minval: Any, maxval: Any, dtype: Any = "int32", seed: Any = None) -> Any:
    seed = convert_to_tensor(draw_seed(seed), "uint32")
    many = 2 if standardize_dtype(dtype) in ("int64", "uint64") else 1
    words = [_draw("bits", shape, "uint32", drawn_seed(seed, k)) for k in range(many)]
    return cast(apply(_ranged, cast(minval, "int64"), cast(maxval, "int64"), *words), dtype)


def _ranged(g: KerasTrace, low: Tensor, high: Tensor, *words: Tensor) -> Tensor:
    """Returns int64 from low up to high by one or two random words of 32 bits, without Keras's promotion to 32 bits."""
    span, word, *more = [Tensor(e.cast(t.op, dtypes.uint64), t.dims) for t in (two(g, high, low, "subtract"), *words)]
    if more:
        chosen = two(g, each(g, lambda x, y: e.bitwise(x, 32, kind="shl") + y, word, more[0]), span, "mod")
    else:
        chosen = each(g, lambda x, y: e.bitwise(x * y, 32, kind="shr"), word, span)
    return two(g, Tensor(e.cast(chosen.op, dtypes.int64), chosen.dims), low, "add")


def categorical(logits: Any, num_samples: int, dtype: Any = "int32", seed: Any = None) -> Any:
    """Returns numbers of classes, drawn by logits [batch, classes]: the largest of logits with Gumbel noise."""
    logits = convert_to_tensor(logits)
    logits = logits if as_dtype(logits.dtype).is_float else cast(logits, floatx())
    rows, classes = logits.shape
    u = _draw("uniform", (rows, num_samples, classes), _wide(logits.dtype.name), seed)
    noise = numpy.negative(numpy.log(numpy.negative(numpy.log(numpy.maximum(u, 1e-20)))))
    return cast(numpy.argmax(numpy.add(numpy.expand_dims(logits, 1), noise), -1), dtype)


def dropout(inputs: Any, rate: Any, noise_shape: Any = None, seed: Any = None) -> Any:
    x = convert_to_tensor(inputs)
    keep = 1.0 - rate
    if isinstance(keep, float) and keep <= 0.0:
        return numpy.zeros_like(x)
    shape = x.shape if noise_shape is None else [n if m is None else m for n, m in zip(x.shape, noise_shape, strict=True)]
    u = _draw("uniform", shape, "float32", seed)
    return numpy.where(numpy.less(u, keep), numpy.divide(x, cast(keep, x.dtype)), numpy.zeros((), x.dtype))


def shuffle(x: Any, axis: int = 0, seed: Any = None) -> Any:
    x = convert_to_tensor(x)
    keys = _draw("uniform", (x.shape[axis],), "float32", seed)
    return numpy.take(x, numpy.argsort(keys), axis=axis)


def _gamma_mode(a: Op) -> Op:
    """Returns the parameter d of the source; parameters below 1 are those of one more, whose draws are made smaller."""
    return e.where(e.less(a, 1.0), a + 1.0, a) - 1.0 / 3.0


def _gamma_tried(found: Op, z: Op, u: Op, d: Op) -> Op:
    """Returns what has been found, and where that is below 0 this draw, or -1 where it does not fit."""
    root = z / e.sqrt(d * 9.0) + 1.0
    cube = e.maximum(root, 1e-10) ** 3.0
    bound = 0.5 * z * z + d - d * cube + d * e.log(cube)
    fits = e.logical_and(e.less(0.0, root), e.less(e.log(e.maximum(u, 1e-30)), bound))
    return e.where(e.less(found, 0.0), e.where(fits, d * cube, -1.0), found)


def _gamma_made(found: Op, u: Op, d: Op, a: Op) -> Op:
    """Returns gamma numbers of those that have been found; where none was, of d, which is close to the mean."""
    found = e.where(e.less(found, 0.0), d, found)
    small = e.less(a, 1.0)
    return e.where(small, found * e.maximum(u, 1e-30) ** (1.0 / e.where(small, a, 1.0)), found)


def gamma(shape: Any, alpha: Any, dtype: Any = None, seed: Any = None) -> Any:
    """Returns numbers of the gamma distribution of this shape parameter. Source: G. Marsaglia and W. Tsang (2000).

    Each place takes the first draw that fits.
    """
    dtype = _float(dtype)
    wide = _wide(dtype)
    a = numpy.broadcast_to(cast(alpha, wide), shape)
    d = _each(_gamma_mode, a)
    words = convert_to_tensor(draw_seed(seed), "uint32")

    def draws(kind: str, *more: int) -> Any:
        return apply(drawn, numpy.add(words, convert_to_tensor(more, "uint32")), kind=kind, shape=shape_of(shape), dtype=wide)

    found = cast(-1.0, wide)
    for k in range(MOST_ROUNDS):
        found = _each(_gamma_tried, found, draws("normal", 2 * k + 1, 7919), draws("uniform", 2 * k + 2, 7920), d)
        if found.t is None and not bool(numpy.any(numpy.less(found, 0.0))):
            break
        if found.t is not None and k >= 8:  # in a compiled step: 9 rounds leave one place in 1e12 with the mean
            break
    return cast(_each(_gamma_made, found, draws("uniform", 0, 104729), d, a), dtype)


def _share(a: Op, b: Op) -> Op:
    return a / (a + b)


def beta(shape: Any, alpha: Any, beta: Any, dtype: Any = None, seed: Any = None) -> Any:
    dtype = _float(dtype)
    words = convert_to_tensor(draw_seed(seed), "uint32")
    a = gamma(shape, cast(alpha, _wide(dtype)), _wide(dtype), DrawnSeed(words))
    b = gamma(shape, cast(beta, _wide(dtype)), _wide(dtype), drawn_seed(words, 1))
    return cast(_each(_share, a, b), dtype)


def binomial(shape: Any, counts: Any, probabilities: Any, dtype: Any = None, seed: Any = None) -> Any:
    """Returns how many of `counts` uniform numbers lie below a probability."""
    dtype = _float(dtype)
    counts, p = convert_to_tensor(counts, "float32"), convert_to_tensor(probabilities, "float32")
    most = int(np.asarray(numpy.max(counts)))
    u = _draw("uniform", (most, *shape_of(shape)), "float32", seed)
    k = numpy.reshape(numpy.arange(most, dtype="float32"), (most, *[1] * len(shape_of(shape))))
    hit = numpy.logical_and(numpy.less(u, p), numpy.less(k, counts))
    return cast(numpy.sum(cast(hit, "float32"), 0), dtype)
