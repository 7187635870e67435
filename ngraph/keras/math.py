"""The functions of `keras.ops.math`: segments, largest elements, Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
from keras.src import backend

from ngraph.errors import UnsupportedError
from ngraph.frontends.positional.values import Tensor
from ngraph.keras import numpy
from ngraph.keras.convert import cast, convert_to_tensor
from ngraph.keras.core import scatter_update
from ngraph.keras.elementwise import erf as erf
from ngraph.keras.elementwise import erfc as erfc
from ngraph.keras.elementwise import erfinv as erfinv
from ngraph.keras.elementwise import in_float
from ngraph.keras.elementwise import rsqrt as rsqrt
from ngraph.keras.linalg import slogdet
from ngraph.keras.reductions import logsumexp as logsumexp
from ngraph.keras.reductions import top
from ngraph.keras.tensors import apply
from ngraph.keras.traces import KerasTrace
from ngraph.op_graph.dtypes import as_dtype
from ngraph.ops.fourier import transform


def _segments(kind: str | None, empty: str) -> Any:
    """Returns a reduction over the rows of each segment. empty: what a segment without rows gives."""

    def function(data: Any, segment_ids: Any, num_segments: Any = None, sorted: bool = False) -> Any:
        data, ids = convert_to_tensor(data), convert_to_tensor(segment_ids, "int32")
        if num_segments is None:
            num_segments = int(numpy.max(ids)) + 1
        d = as_dtype(data.dtype)
        ends = {"zero": 0, "one": 1, "low": -np.inf if d.is_float else d.lowest, "high": np.inf if d.is_float else d.highest}
        start = numpy.full((num_segments + 1, *data.shape[1:]), ends[empty], data.dtype)
        inside = numpy.logical_and(numpy.greater_equal(ids, 0), numpy.less(ids, num_segments))
        ids = numpy.where(inside, ids, num_segments)  # rows of no segment go into one more
        return scatter_update(start, numpy.reshape(ids, (-1, 1)), data, kind)[:num_segments]

    return function


segment_sum, segment_prod = _segments("add", "zero"), _segments("mul", "one")
segment_max, segment_min = _segments("max", "low"), _segments("min", "high")


def top_k(x: Any, k: int, sorted: bool = True) -> Any:
    return apply(top, convert_to_tensor(x), k=int(k))


def in_top_k(targets: Any, predictions: Any, k: int) -> Any:
    targets, x = convert_to_tensor(targets, "int32"), convert_to_tensor(predictions)
    chosen = numpy.take_along_axis(x, numpy.expand_dims(targets, -1), -1)
    inside = numpy.logical_and(numpy.greater_equal(targets, 0), numpy.less(targets, x.shape[-1]))
    better = numpy.sum(cast(numpy.greater(x, chosen), "int32"), -1)
    return numpy.logical_and(numpy.logical_and(inside, numpy.less(better, k)), numpy.isfinite(chosen[..., 0]))


def cdist(x: Any, y: Any) -> Any:
    x, y = numpy.met(x, y, floats=True)
    gap = numpy.subtract(numpy.expand_dims(x, -2), numpy.expand_dims(y, -3))
    return numpy.sqrt(numpy.sum(numpy.square(gap), -1))


def logdet(x: Any) -> Any:
    return slogdet(x)[1]


# ---- signals ------------------------------------------------------------------------------------------------------------


def extract_sequences(x: Any, sequence_length: int, sequence_stride: int) -> Any:
    x = convert_to_tensor(x)
    many = 1 + (int(x.shape[-1]) - sequence_length) // sequence_stride
    at = np.arange(many)[:, None] * sequence_stride + np.arange(sequence_length)
    return numpy.take(x, at, axis=-1)


def turned(g: KerasTrace, re: Tensor, im: Tensor, axis: int, sign: float) -> tuple[Tensor, Tensor]:
    """The Fourier transform along a dim, of a real and an imaginary part."""
    re, im = g.full(re), g.full(im)
    im = g.renamed(im, re.dims)
    out = g.fresh(re.shape[axis])
    a, b = transform((re.op, im.op), re.dims[axis], out, sign)
    dims = [out if k == axis else d for k, d in enumerate(re.dims)]
    return g.made(a, dims), g.made(b, dims)


def _complex(x: Any) -> tuple[Any, Any]:
    if not isinstance(x, (tuple, list)) or len(x) != 2:
        raise ValueError(f"Input `x` should be a tuple of two tensors - real and imaginary. Received: x={x}")
    re, im = numpy.met(*x, floats=True)
    if re.shape != im.shape:
        raise ValueError(
            "Input `x` should be a tuple of two tensors - real and imaginary. Both the real and imaginary parts should have the same "
            f"shape. Received: x[0].shape = {re.shape}, x[1].shape = {im.shape}"
        )
    return re, im


def _transformed(re: Any, im: Any, axis: int, sign: float) -> tuple[Any, Any]:
    return apply(turned, re, im, axis=axis % re.ndim, sign=sign)


def _get_complex_tensor_from_tuple(x: Any) -> Any:
    raise UnsupportedError(
        "there are no complex tensors on ngraph", fix="compute r * cos(angle) and r * sin(angle) in place of polar(r, angle)"
    )


def fft(x: Any) -> Any:
    return _transformed(*_complex(x), -1, -1.0)


def fft2(x: Any) -> Any:
    return _transformed(*_transformed(*_complex(x), -1, -1.0), -2, -1.0)


def ifft2(x: Any) -> Any:
    re, im = _transformed(*_transformed(*_complex(x), -1, 1.0), -2, 1.0)
    many = int(re.shape[-1]) * int(re.shape[-2])
    return numpy.divide(re, many), numpy.divide(im, many)


def _fitted(x: Any, n: int) -> Any:
    """Returns a tensor whose last dim is cut, or filled with zeros, to a length."""
    size = int(x.shape[-1])
    return x[..., :n] if size >= n else numpy.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, n - size)])


def rfft(x: Any, fft_length: Any = None) -> Any:
    x = in_float(x)
    n = int(x.shape[-1]) if fft_length is None else int(fft_length)
    x = _fitted(x, n)
    re, im = _transformed(x, numpy.zeros_like(x), -1, -1.0)
    return re[..., : n // 2 + 1], im[..., : n // 2 + 1]


def irfft(x: Any, fft_length: Any = None) -> Any:
    re, im = _complex(x)
    n = 2 * (int(re.shape[-1]) - 1) if fft_length is None else int(fft_length)
    many = n // 2 + 1
    re, im = _fitted(re, many), _fitted(im, many)
    back = list(range((n - 1) // 2, 0, -1))  # the conjugates of the other half
    whole = numpy.concatenate([re, numpy.take(re, np.array(back, np.int32), axis=-1)], -1) if back else re
    other = numpy.concatenate([im, numpy.negative(numpy.take(im, np.array(back, np.int32), axis=-1))], -1) if back else im
    at = np.zeros(many, bool)
    at[0] = True
    if n % 2 == 0:
        at[-1] = True
    keep = np.concatenate([~at, np.ones(len(back), bool)])
    other = numpy.where(convert_to_tensor(keep), other, numpy.zeros_like(other))  # what has no conjugate is real
    found, _ = _transformed(whole, other, -1, 1.0)
    return numpy.divide(found, n)


def _window(window: Any, length: int, fft_length: int, dtype: Any) -> Any:
    if window is None:
        return None
    if isinstance(window, str):
        if window not in ("hann", "hamming"):
            raise ValueError(f"If a string is passed to `window`, it must be one of `'hann'`, `'hamming'`. Received: window={window}")
        at = 2 * np.pi * np.arange(length) / length
        window = 0.5 - 0.5 * np.cos(at) if window == "hann" else 0.54 - 0.46 * np.cos(at)
    window = convert_to_tensor(window, dtype)
    if window.ndim != 1 or int(window.shape[0]) != length:
        raise ValueError(f"The shape of `window` must be equal to [sequence_length]. Received: window shape={window.shape}")
    left = (fft_length - length) // 2
    return numpy.pad(window, [(left, fft_length - length - left)])


def stft(x: Any, sequence_length: int, sequence_stride: int, fft_length: int, window: Any = "hann", center: bool = True) -> Any:
    x = convert_to_tensor(x)
    if backend.standardize_dtype(x.dtype) not in ("float32", "float64"):
        raise TypeError(f"Invalid input type. Expected `float32` or `float64`. Received: input type={x.dtype}")
    if fft_length < sequence_length:
        raise ValueError(f"`fft_length` must equal or larger than `sequence_length`. Received: {sequence_length=}, fft_length={fft_length}")
    by = _window(window, sequence_length, fft_length, x.dtype)
    if center:
        x = numpy.pad(x, [(0, 0)] * (x.ndim - 1) + [(fft_length // 2, fft_length // 2)], mode="reflect")
    frames = extract_sequences(x, fft_length, sequence_stride)
    return rfft(frames if by is None else numpy.multiply(frames, by), fft_length)


def overlap_sequences(x: Any, sequence_stride: int) -> Any:
    """Returns the sum of frames [..., many, length] laid at multiples of a stride."""
    x = convert_to_tensor(x)
    many, size = int(x.shape[-2]), int(x.shape[-1])
    at = np.arange(many)[:, None] * sequence_stride + np.arange(size)
    total = (many - 1) * sequence_stride + size
    rows = numpy.reshape(x, (-1, many * size))
    start = numpy.zeros((total, rows.shape[0]), x.dtype)
    found = scatter_update(start, at.reshape(-1, 1), numpy.transpose(rows), "add")
    return numpy.reshape(numpy.transpose(found), (*x.shape[:-2], total))


def istft(
    x: Any,
    sequence_length: int,
    sequence_stride: int,
    fft_length: int,
    length: Any = None,
    window: Any = "hann",
    center: bool = True,
) -> Any:
    re, im = _complex(x)
    frames = irfft((re, im), fft_length)
    by = _window(window, sequence_length, fft_length, frames.dtype)
    if by is None:
        found = overlap_sequences(frames, sequence_stride)
    else:
        found = overlap_sequences(numpy.multiply(frames, by), sequence_stride)
        many = int(frames.shape[-2])
        weight = overlap_sequences(numpy.broadcast_to(numpy.square(by), (many, fft_length)), sequence_stride)
        found = numpy.where(numpy.greater(weight, 1e-10), numpy.divide(found, numpy.maximum(weight, 1e-10)), found)
    start = fft_length // 2 if center else 0
    end = int(found.shape[-1]) - (fft_length // 2 if center else 0)
    if length is not None:
        end = min(start + length, int(found.shape[-1]))
    found = found[..., start:end]
    if length is not None and int(found.shape[-1]) < length:
        found = _fitted(found, length)
    return found
