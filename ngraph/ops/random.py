"""Counter-based random numbers, functions of seed, step, stream and index: equal bits on every transformer, for any number of threads.

`rng` is the only state: a seed, and a step that each computation with draws increments. Philox 4x32-10 is from J. Salmon, M. Moraes,
R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC11).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.errors import ArgumentError, AxisError, DTypeError
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axes, Axis, as_axis, make_axis
from ngraph.op_graph.dtypes import DType, as_dtype
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import Call, OpDef, op
from ngraph.op_graph.text import register_function, register_op
from ngraph.ops.aligned import align
from ngraph.ops.control import open_trips
from ngraph.ops.elementwise import add, bitwise, cast, constant, cos, less, log, minimum, multiply, sqrt
from ngraph.ops.rearrange import iota
from ngraph.ops.sorting import sort_record
from ngraph.ops.state import parts, persistent_tensor

MULTIPLIERS, WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF
_TRIP = 0x9E3779B1  # mixes the trip numbers of the scans around a draw
_FRACTION = {dtypes.bfloat16: 8, dtypes.float16: 11, dtypes.float32: 24, dtypes.float64: 53}  # bits of a uniform number

rng = persistent_tensor([make_axis(2, name="rng")], dtype=dtypes.uint64, initial_value=0, name="rng")
rng.line = None  # the line that first imports this module did not make it
rng.attrs["advance"] = register_function("rng.advance", lambda state: add(state, constant(np.array([0, 1], np.uint64), state.axes)))
register_op("rng", rng)


class _Streams:
    """Stream ids in order of creation, four apart: a draw may need up to four words per element."""

    def __init__(self) -> None:
        self.next = 0
        self.taken: set[int] = set()  # streams of loaded graphs, too, so that no later op repeats their numbers

    def fresh(self) -> int:
        while self.next in self.taken:
            self.next = (self.next + 4) & _WORD
        return self.next

    def seen(self, stream: int) -> None:
        self.taken.add(stream // 4 * 4)


_streams = _Streams()

# ---- bits -------------------------------------------------------------------------------------------------------------


def philox(counter: Sequence[Any], key: Sequence[int]) -> list[np.ndarray]:
    """Returns four words for each counter of four words (numbers below 2**32, or uint64 arrays of them) under a key of two."""
    c0, c1, c2, c3 = (np.asarray(c, np.uint64) for c in counter)
    k0, k1 = key
    low, high = np.uint64(_WORD), np.uint64(32)
    for _ in range(10):
        a, b = c0 * np.uint64(MULTIPLIERS[0]), c2 * np.uint64(MULTIPLIERS[1])
        c0, c1, c2, c3 = (b >> high) ^ c1 ^ np.uint64(k0), b & low, (a >> high) ^ c3 ^ np.uint64(k1), a & low
        k0, k1 = (k0 + WEYL[0]) & _WORD, (k1 + WEYL[1]) & _WORD
    return [c.astype(np.uint32) for c in (c0, c1, c2, c3)]


def _bits(state: np.ndarray, trips: Sequence[Any], stream: int, shape: tuple[int, ...]) -> np.ndarray:
    """Returns one word per element, in row-major order of `shape`."""
    seed, step = int(state[0]), int(state[1])
    mixed = 0
    for index in trips:
        mixed = (mixed * _TRIP + int(index) + 1) & _WORD
    count = math.prod(shape)
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    words = philox((blocks, step & _WORD, stream, mixed), (seed & _WORD, seed >> 32))
    return np.stack(np.broadcast_arrays(*words), axis=-1).reshape(-1)[:count].reshape(shape)


def _state_type(name: str, inputs: tuple[TensorType, ...], stream: int) -> None:
    state, *trips = inputs
    if state.dtype is not dtypes.uint64 or len(state.axes) != 1:
        raise DTypeError(f"{name} draws from {state}", fix="its first input is ng.rng: seed and step, as uint64")
    for t in trips:
        if t.axes or not t.dtype.is_integer:
            raise AxisError(f"{name}: a trip index is {t}", fix="give integer scalars, outermost first")
    _streams.seen(stream)


def _random_bits_type(inputs: tuple[TensorType, ...], stream: int, axes: tuple[Any, ...]) -> TensorType:
    _state_type("random_bits", inputs, stream)
    return TensorType(axes, dtypes.uint32)


def _random_bits(call: Call, state: np.ndarray, *trips: np.ndarray) -> np.ndarray:
    axes = call.attrs["axes"]
    return align(_bits(state, trips, call.attrs["stream"], call.shape(axes)), axes, call.axes)


SEEDED = _WORD - 3  # the stream of draws with a seed of their own
_streams.seen(SEEDED)


def _state(s: Any, seed: int = 0x1234567890ABCDEF, step: int = 3) -> Op:
    return s.given(np.array([seed, step], np.uint64), s.axis(2, name="rng"), dtype=dtypes.uint64)


random_bits: OpDef = op(
    "random_bits",
    "Random words, Philox 4x32-10: key = state[0] (seed) as two words, counter = (index // 4, step, stream, trip mix), see section 6 of "
    "the spec; trips are the indices of the scans around it.",
    form="(state, trips…; stream, axes) → uint32",
    cost=30,
    type=_random_bits_type,
    reference=_random_bits,
    grad=lambda op, dy, *inputs: (None,) * len(inputs),
    samples=lambda s: [
        *(
            random_bits.build(_state(s), stream=8, axes=Axes(axes))
            for axes in ((), (s.N,), (s.I, s.J), (s.J, s.I), (s.Z, s.J), (s.O, s.I - 1))
        ),
        *(random_bits.build(_state(s), s.ints(low=t, high=t), s.ints(low=2, high=2), stream=8, axes=Axes((s.I, s.N))) for t in (0, 1)),
        random_bits.build(_state(s, (1 << 64) - 1, (1 << 64) - 1), stream=_WORD - 3, axes=Axes((s.N,))),
    ],
    kinds=("uint",),
    ulp=0,
)

# ---- uniform and normal -----------------------------------------------------------------------------------------------


def _draw_type(inputs: tuple[TensorType, ...], axes: tuple[Any, ...], dtype: DType, stream: int, **attrs: Any) -> TensorType:
    if not dtype.is_float:
        raise DTypeError(f"random numbers as {dtype}", fix="draw floats, then floor and cast them")
    _state_type("a random op", inputs, stream)
    return TensorType(axes, dtype)


def _fraction(state: Op, trips: tuple[Op, ...], axes: Axes, dtype: DType, stream: int) -> Op:
    """Returns uniform numbers in [0, 1): the top bits of a word (of two for float64), divided by a power of two."""
    bits = random_bits.build(state, *trips, stream=stream, axes=axes)
    if dtype is not dtypes.float64:
        return multiply(cast(_shifted(bits, 32 - _FRACTION[dtype]), dtype), 2.0 ** -_FRACTION[dtype])
    more = random_bits.build(state, *trips, stream=stream + 1, axes=axes)
    high, low = cast(_shifted(bits, 5), dtype), cast(_shifted(more, 6), dtype)
    return multiply(add(multiply(high, 2.0**26), low), 2.0**-53)


def _shifted(bits: Op, count: int) -> Op:
    return bitwise(bits, count, kind="shr")


def _fraction_reference(call: Call, arrays: Sequence[np.ndarray], dtype: DType, stream: int) -> np.ndarray:
    state, *trips = arrays
    axes = call.attrs["axes"]
    words = [align(_bits(state, trips, stream + k, call.shape(axes)), axes, call.axes).astype(np.uint64) for k in (0, 1)]
    bits = _FRACTION[dtype]
    whole = (words[0] >> np.uint64(5) << np.uint64(26)) + (words[1] >> np.uint64(6)) if bits == 53 else words[0] >> np.uint64(32 - bits)
    return np.asarray(whole.astype(np.float64) / 2.0**bits)


def _below(low: float, high: float, dtype: DType) -> float | None:
    """Returns the last number of `dtype` below `high` (at least `low`) where rounding a draw beside 1 gives `high`, else None."""
    kind = np.dtype(dtype.np).type
    most = kind(1 - 2.0 ** -_FRACTION[dtype])
    exact = kind(np.longdouble(high) - (np.longdouble(high) - np.longdouble(low)) * 2.0 ** -_FRACTION[dtype])  # with one rounding
    if max(exact, most * kind(high - low) + kind(low)) < high:
        return None
    last = kind(high) if kind(high) < high else np.nextafter(kind(high), kind(low))
    return float(max(last, kind(low)))


def _uniform(op: Op, state: Op, *trips: Op) -> Op:
    axes, dtype, stream, low, high = (op.attrs[k] for k in ("axes", "dtype", "stream", "low", "high"))
    u = _fraction(state, trips, axes, dtype, stream)
    if (low, high) == (0.0, 1.0):
        return u
    last = _below(low, high, dtype)
    return u * (high - low) + low if last is None else minimum(u * (high - low) + low, last)


def _uniform_reference(call: Call, *arrays: np.ndarray) -> np.ndarray:
    u = _fraction_reference(call, arrays, call.dtype, call.attrs["stream"])
    low, high = call.attrs["low"], call.attrs["high"]
    drawn = np.asarray(u * (high - low) + low).astype(call.dtype.np)
    return np.where((drawn >= high) & (low < high), np.nextafter(drawn, np.asarray(low, drawn.dtype)), drawn)


def _normal(op: Op, state: Op, *trips: Op) -> Op:
    """Lowers to the Box-Muller transform; 1 - u is never 0."""
    axes, dtype, stream, loc, scale = (op.attrs[k] for k in ("axes", "dtype", "stream", "loc", "scale"))
    inner = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    u, v = (_fraction(state, trips, axes, inner, stream + k) for k in (0, 2))
    z = sqrt(log(1.0 - u) * -2.0) * cos(v * (2 * math.pi))
    return cast(z if (loc, scale) == (0.0, 1.0) else z * scale + loc, dtype)


def _normal_reference(call: Call, *arrays: np.ndarray) -> np.ndarray:
    inner = dtypes.float64 if call.dtype is dtypes.float64 else dtypes.float32
    u, v = (_fraction_reference(call, arrays, inner, call.attrs["stream"] + k) for k in (0, 2))
    z = np.sqrt(-2 * np.log1p(-u)) * np.cos(2 * np.pi * v)
    return np.asarray(z * call.attrs["scale"] + call.attrs["loc"]).astype(call.dtype.np)


def _draws(s: Any, record: OpDef, cases: Sequence[dict[str, float]]) -> list[Op]:
    shapes = [
        Axes(axes) for axes in ((), (s.N,), (s.J, s.I), (s.I, s.J), (s.Z, s.J), (s.O, s.I), (s.I, s.I - 1), (s.axis(64, name="S"), s.N))
    ]
    return [record.build(_state(s), axes=axes, dtype=s.dtype, stream=4 * k, **case) for case in cases for k, axes in enumerate(shapes)]


uniform_record: OpDef = op(
    "uniform",
    "Random numbers from low up to, not including, high.",
    form="(state, trips…; axes, dtype, stream, low, high)",
    type=_draw_type,
    reference=_uniform_reference,
    lower=_uniform,
    grad=lambda op, dy, *inputs: (None,) * len(inputs),
    samples=lambda s: _draws(s, uniform_record, [{"low": 0.0, "high": 1.0}, {"low": -2.0, "high": 3.0}, {"low": 1.0, "high": 2.0}]),
    error=5e-7,
)
normal_record: OpDef = op(
    "normal",
    "Random numbers from the normal distribution with mean loc and standard deviation scale.",
    form="(state, trips…; axes, dtype, stream, loc, scale)",
    type=_draw_type,
    reference=_normal_reference,
    lower=_normal,
    grad=lambda op, dy, *inputs: (None,) * len(inputs),
    samples=lambda s: _draws(s, normal_record, [{"loc": 0.0, "scale": 1.0}, {"loc": 1.5, "scale": 0.25}]),
    ulp=8,
    error=2e-6,
)


def _whole_type(inputs: tuple[TensorType, ...], axes: tuple[Any, ...], dtype: DType, stream: int, low: int, high: int) -> TensorType:
    if not dtype.is_integer:
        raise DTypeError(f"random whole numbers as {dtype}", fix="take an integer dtype, or ng.uniform for floats")
    if not dtype.lowest <= low < high <= min(dtype.highest + 1, low + (1 << 32), 1 << 63):
        raise ArgumentError(
            f"random whole numbers from {low} up to {high} as {dtype}",
            fix="take low < high, at most 2**32 of them, and all in its range",
        )
    _state_type("a random op", inputs, stream)
    return TensorType(axes, dtype)


def _randint(op: Op, state: Op, *trips: Op) -> Op:
    """Lowers to the upper half of a word times the number of values."""
    axes, dtype, stream, low, high = (op.attrs[k] for k in ("axes", "dtype", "stream", "low", "high"))
    bits = cast(random_bits.build(state, *trips, stream=stream, axes=axes), dtypes.uint64)
    return cast(add(cast(_shifted(multiply(bits, high - low), 32), dtypes.int64), low), dtype)


def _randint_reference(call: Call, state: np.ndarray, *trips: np.ndarray) -> np.ndarray:
    axes, low, high = (call.attrs[k] for k in ("axes", "low", "high"))
    words = align(_bits(state, trips, call.attrs["stream"], call.shape(axes)), axes, call.axes)
    return np.array([(int(w) * (high - low) >> 32) + low for w in words.ravel()], call.dtype.np).reshape(words.shape)


randint_record: OpDef = op(
    "randint",
    "Random whole numbers from low up to, not including, high.",
    type=_whole_type,
    reference=_randint_reference,
    lower=_randint,
    grad=lambda op, dy, *inputs: (None,) * len(inputs),
    samples=lambda s: [
        randint_record.build(_state(s), axes=Axes(axes), dtype=s.dtype, stream=4 * k, low=low, high=high)
        for low, high in ((0, 2), (3, 100), (s.dtype.lowest, min(s.dtype.highest, s.dtype.lowest + (1 << 32) - 1)))
        for k, axes in enumerate(((), (s.N,), (s.J, s.I), (s.Z, s.J), (s.O, s.I - 1), (s.axis(64, name="S"), s.N)))
    ],
    kinds=("int", "uint"),
    ulp=0,
)


def _source(seed: int | None) -> tuple[tuple[Op, ...], int]:
    """Returns the state and trips that a draw reads, and its stream: a new one, or the common one of draws with a seed of their own."""
    if seed is None:
        return (rng, *open_trips()), _streams.fresh()
    own = np.array([int(seed) % (1 << 64), 0], np.uint64)
    state = add(multiply(rng, constant(np.array([0, 1], np.uint64), rng.axes)), constant(own, rng.axes))
    return (state, *open_trips()), SEEDED


def _shape(name: str, x: Any, axes: Any) -> Axes:
    if (x is None) == (axes is None):
        raise AxisError(f"{name} needs axes", fix=f"ng.{name}([A, B]), or a tensor that has the axes")
    return Axes(axes if x is None else x.axes if isinstance(x, Op) else x)


def _drawn(record: OpDef, x: Any, axes: Any, dtype: DType, seed: int | None, **numbers: Any) -> Op:
    shape = _shape(record.name, x, axes)
    inputs, stream = _source(seed)
    return record.build(*inputs, axes=shape, dtype=dtype, stream=stream, **numbers)


def uniform(x: Any = None, low: float = 0.0, high: float = 1.0, dtype: Any = None, axes: Any = None, seed: int | None = None) -> Op:
    """Returns random numbers in [low, high), new in each call of a computation; for 0 and 1 equal bit for bit on every transformer.

    x: axes, or a tensor whose axes are taken (or give `axes=`). dtype: a float dtype, float32 by default. The derivative is 0.
    seed: the numbers then depend only on it, the count of the call and the index: not on the transformer's seed, nor on other random
    ops. Two draws with one seed and equal axes are equal.

    >>> ng.uniform(axes="N=2 H=3", low=-1.0, high=1.0).axes
    Axes(N=2, H=3)
    """
    if not (low <= high and math.isfinite(high - low)):
        raise ArgumentError(f"uniform numbers from {low} up to {high}", fix="take finite numbers, low <= high")
    return _drawn(uniform_record, x, axes, as_dtype(dtype or dtypes.float32), seed, low=float(low), high=float(high))


def normal(x: Any = None, loc: float = 0.0, scale: float = 1.0, dtype: Any = None, axes: Any = None, seed: int | None = None) -> Op:
    """Returns random numbers from the normal distribution with this mean and standard deviation; all else as in `uniform`.

    Source: G. Box and M. Muller, "A note on the generation of random normal deviates" (1958).

    >>> ng.normal(axes="N=2 H=3", loc=1.0, scale=2.0).axes
    Axes(N=2, H=3)
    """
    if not scale >= 0:
        raise ArgumentError(f"a normal distribution with standard deviation {scale}", fix="take scale >= 0")
    return _drawn(normal_record, x, axes, as_dtype(dtype or dtypes.float32), seed, loc=float(loc), scale=float(scale))


def bernoulli(x: Any = None, p: Any = 0.5, dtype: Any = None, axes: Any = None, seed: int | None = None) -> Op:
    """Returns True with probability `p`, a number or a tensor; as `dtype`, bool by default; all else as in `uniform`.

    A dropout mask that keeps the mean: `ng.bernoulli(x, keep, dtype=x.dtype) / keep`.

    >>> ng.bernoulli(axes="N=2 H=3", p=0.25).axes
    Axes(N=2, H=3)
    """
    if isinstance(p, (int, float)) and not 0 <= p <= 1:
        raise ArgumentError(f"bernoulli with probability {p}", fix="take a probability from 0 to 1")
    drawn = less(uniform(x, axes=axes, seed=seed), p)
    return drawn if dtype is None else cast(drawn, dtype)


def randint(x: Any = None, low: int = 0, high: int = 2, dtype: Any = None, axes: Any = None, seed: int | None = None) -> Op:
    """Returns random integers from low up to, not including, high; equal bit for bit on every transformer; all else as in `uniform`.

    dtype: an integer dtype that represents them, int32 by default. The bias of a number's probability is at most
    (high - low) / 2**32 of it. Raises DTypeError, and ValueError unless low < high <= low + 2**32.

    >>> ng.randint(axes="N=2 H=3", low=0, high=10).axes
    Axes(N=2, H=3)
    """
    return _drawn(randint_record, x, axes, as_dtype(dtype or dtypes.int32), seed, low=int(low), high=int(high))


def permutation(axis: Axis | str, seed: int | None = None) -> Op:
    """Returns the indices of `axis` in random order, int32; new in each call. `ng.take(x, ng.permutation(H), H)` shuffles x.

    They are sorted by random words. Two words are equal with a probability of 2**-32; then the smaller index stands first.

    >>> ng.permutation("N=5").axes
    Axes(N=5)
    """
    axis = as_axis(axis)
    inputs, stream = _source(seed)
    keys = random_bits.build(*inputs, stream=stream, axes=Axes(axis))
    return parts(sort_record.build(keys, iota(axis), axis=axis, descending=False, nan_largest=False))[1]
