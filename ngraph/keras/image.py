"""The functions of `keras.ops.image`: colours, resizing by weights along each dim, sampling at coordinates, filters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from keras.src import backend
from keras.src.random.seed_generator import draw_seed

from ngraph.frontends.positional import colours
from ngraph.frontends.positional.values import Tensor
from ngraph.keras import nn, numpy, random
from ngraph.keras.convert import cast, convert_to_tensor
from ngraph.keras.elementwise import in_float
from ngraph.keras.linalg import solve
from ngraph.keras.tensors import apply
from ngraph.keras.traces import KerasTrace
from ngraph.ops import elementwise as e

METHODS = ("linear", "bilinear", "trilinear", "cubic", "bicubic", "tricubic", "lanczos3", "lanczos5")
ORDERS = {"nearest": 0, "bilinear": 1}
FILLS = ("constant", "nearest", "wrap", "mirror", "reflect")


def _ranked(images: Any) -> Any:
    images = convert_to_tensor(images)
    if images.ndim not in (3, 4):
        raise ValueError(
            "Invalid images rank: expected rank 3 (single image) or rank 4 (batch of images). "
            f"Received input with shape: images.shape={images.shape}"
        )
    return images


def _one_of(name: str, given: Any, allowed: Any) -> None:
    if given not in allowed:
        raise ValueError(f"Invalid value for argument `{name}`. Expected of one {set(allowed)}. Received: {name}={given}")


def _channels(data_format: Any) -> int:
    return -1 if backend.standardize_data_format(data_format) == "channels_last" else -3


# ---- colours ------------------------------------------------------------------------------------------------------------


def rgb_to_grayscale(images: Any, data_format: Any = None) -> Any:
    images = _ranked(images)
    axis = _channels(data_format)
    if images.shape[axis] not in (1, 3):
        raise ValueError(f"Invalid channel size: expected 3 (RGB) or 1 (Grayscale). Received input with shape: images.shape={images.shape}")
    if images.shape[axis] == 1:
        return images
    r, g, b = numpy.split(in_float(images), 3, axis)
    return cast(numpy.add(numpy.add(numpy.multiply(r, 0.2989), numpy.multiply(g, 0.5870)), numpy.multiply(b, 0.1140)), images.dtype)


def _floats(images: Any) -> Any:
    images = _ranked(images)
    dtype = backend.standardize_dtype(images.dtype)
    if not backend.is_float_dtype(dtype):
        raise ValueError(f"Invalid images dtype: expected float dtype. Received: images.dtype={dtype}")
    return images


def rgb_to_hsv(images: Any, data_format: Any = None) -> Any:
    images = _floats(images)
    eps = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10}.get(images.dtype.name, 2.0**-7)
    return apply(_in_hsv, images, k=_channels(data_format), eps=eps)


def _in_hsv(g: KerasTrace, t: Tensor, k: int, eps: float) -> Tensor:
    """Returns hue, saturation and value; what is below eps counts as 0."""
    return colours.by_channels(g, lambda *rgb: colours.to_hsv(*[e.where(e.less(e.absolute(x), eps), 0.0, x) for x in rgb]), t, k % t.rank)


def hsv_to_rgb(images: Any, data_format: Any = None) -> Any:
    return apply(_in_rgb, _floats(images), k=_channels(data_format))


def _in_rgb(g: KerasTrace, t: Tensor, k: int) -> Tensor:
    return colours.by_channels(g, lambda h, s, v: colours.from_hsv(h - e.floor(h), s, v), t, k % t.rank)


# ---- resizing -----------------------------------------------------------------------------------------------------------


def _cubic(x: Any) -> Any:
    near, far = ((1.5 * x - 2.5) * x) * x + 1.0, ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return numpy.where(numpy.greater_equal(x, 2.0), 0.0, numpy.where(numpy.greater_equal(x, 1.0), far, near))


def _lanczos(radius: float) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        y = radius * numpy.sin(math.pi * x) * numpy.sin(math.pi * x / radius)
        some = numpy.greater(x, 1e-3)
        found = numpy.where(some, y / numpy.where(some, math.pi**2 * x * x, 1.0), 1.0)
        return numpy.where(numpy.greater(x, radius), 0.0, found)

    return kernel


def _kernel(method: str) -> Callable[[Any], Any]:
    if method.endswith("linear"):
        return lambda x: numpy.maximum(0.0, 1.0 - x)
    return _cubic if method.endswith("cubic") else _lanczos(float(method[-1]))


def _weights(size: int, out: int, scale: Any, shift: Any, method: str, antialias: bool) -> Any:
    """Returns the weights [size, out] by which a dim is scaled, then shifted; places outside the old dim have none."""
    inverse = numpy.divide(1.0, scale)
    reach = numpy.maximum(inverse, 1.0) if antialias else 1.0
    at = (numpy.arange(out, dtype="float32") + 0.5) * inverse - shift * inverse - 0.5
    gap = numpy.absolute(numpy.expand_dims(at, 0) - numpy.expand_dims(numpy.arange(size, dtype="float32"), 1)) / reach
    w = _kernel(method)(gap)
    total = numpy.sum(w, 0, True)
    some = numpy.greater(numpy.absolute(total), 1000.0 * float(np.finfo(np.float32).eps))
    w = numpy.where(some, w / numpy.where(numpy.not_equal(total, 0), total, 1.0), 0.0)
    inside = numpy.logical_and(numpy.greater_equal(at, -0.5), numpy.less_equal(at, size - 0.5))
    return numpy.where(numpy.expand_dims(inside, 0), w, 0.0)


def _along(x: Any, dim: int, w: Any) -> Any:
    """Returns a tensor with a dim multiplied by a matrix [old, new]."""
    return numpy.moveaxis(numpy.tensordot(x, cast(w, x.dtype), axes=([dim], [0])), -1, dim)


def scale_and_translate(
    images: Any, output_shape: Any, scale: Any, translation: Any, spatial_dims: Any, method: str, antialias: bool = True
) -> Any:
    if method not in METHODS:
        raise ValueError(f"Invalid value for argument `method`. Expected of one {set(METHODS)}. Received: method={method}")
    x = in_float(images)
    scale, translation = convert_to_tensor(scale, "float32"), convert_to_tensor(translation, "float32")
    for k, dim in enumerate(spatial_dims):
        dim %= x.ndim
        x = _along(x, dim, _weights(int(x.shape[dim]), int(output_shape[dim]), scale[k], translation[k], method, antialias))
    return x


def _fitted(images: Any, dims: Sequence[int], size: Sequence[int], crop: bool, value: float) -> Any:
    """Returns images cut, or filled up, to the proportions of a size."""
    (h, w), (th, tw) = (int(images.shape[d]) for d in dims), size
    if crop:
        ch, cw = max(min(h, int(float(w * th) / tw)), 1), max(min(w, int(float(h * tw) / th)), 1)
        for d, old, new in zip(dims, (h, w), (ch, cw), strict=True):
            start = int(float(old - new) / 2)
            images = images[(*[slice(None)] * d, slice(start, start + new))]
        return images
    ph, pw = max(h, int(float(w * th) / tw)), max(w, int(float(h * tw) / th))
    top, left = int(float(ph - h) / 2), int(float(pw - w) / 2)
    widths = [(0, 0)] * images.ndim
    if top > 0:
        widths[dims[0]] = (top, top)
    elif left > 0:
        widths[dims[1]] = (left, left)
    return numpy.pad(images, widths, constant_values=value)


def resize(
    images: Any,
    size: Any,
    interpolation: str = "bilinear",
    antialias: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    fill_mode: str = "constant",
    fill_value: float = 0.0,
    data_format: Any = None,
) -> Any:
    _one_of("interpolation", interpolation, ("bilinear", "nearest", "lanczos3", "lanczos5", "bicubic"))
    if fill_mode != "constant":
        raise ValueError(f"Invalid value for argument `fill_mode`. Only `'constant'` is supported. Received: fill_mode={fill_mode}")
    if pad_to_aspect_ratio and crop_to_aspect_ratio:
        raise ValueError("Only one of `pad_to_aspect_ratio` & `crop_to_aspect_ratio` can be `True`.")
    if len(size) != 2:
        raise ValueError(f"Argument `size` must be a tuple of two elements (height, width). Received: size={size}")
    size = tuple(map(int, size))
    images = _ranked(images)
    first = images.ndim - 3 if _channels(data_format) == -1 else images.ndim - 2
    dims = (first, first + 1)
    if crop_to_aspect_ratio or pad_to_aspect_ratio:
        images = _fitted(images, dims, size, crop_to_aspect_ratio, fill_value)
    if interpolation == "nearest":
        for d, n in zip(dims, size, strict=True):
            old = int(images.shape[d])
            at = np.floor((np.arange(n, dtype=np.float32) + 0.5) * old / n).astype(np.int32)
            images = numpy.take(images, at, axis=d)
        return images
    x = in_float(images)
    for d, n in zip(dims, size, strict=True):
        old = int(x.shape[d])
        if old != n:
            x = _along(x, d, _weights(old, n, n / old, 0.0, interpolation, antialias))
    return x


# ---- coordinates --------------------------------------------------------------------------------------------------------


def _place(i: Any, size: int, mode: str) -> Any:
    """Returns an index inside of a dim, as a mode has it."""
    if mode == "wrap":
        return numpy.mod(i, size)
    if mode == "mirror":
        last = size - 1
        return numpy.absolute(numpy.mod(i + last, 2 * last) - last) if last else i * 0
    if mode == "reflect":
        return numpy.floor_divide(_place(2 * i + 1, 2 * size + 1, "mirror") - 1, 2)
    return numpy.clip(i, 0, size - 1)


def _sampled(x: Any, coordinates: Sequence[Any], order: int, mode: str, value: Any, before: Any = None) -> Any:
    """Returns a tensor at coordinates of its first dims, by the nearest element (order 0) or between neighbours (1).

    before: an index of a dim in front of them.
    """
    many = len(coordinates) + (before is not None)
    sizes = [n if k < many - len(coordinates) else int(n) for k, n in enumerate(x.shape[:many])]
    rows = numpy.reshape(x, (-1, *x.shape[many:]))
    floats = in_float(rows)
    nodes: list[list[tuple[Any, Any]]] = []
    for c in coordinates:
        if order == 0:
            nodes.append([(cast(numpy.round(c), "int32"), None)])
        else:
            low = numpy.floor(c)
            part = c - low
            i = cast(low, "int32")
            nodes.append([(i, 1.0 - part), (i + 1, part)])
    total = None
    for corner in itertools.product(*nodes):
        inside: Any = None
        weight, flat = None, before
        for (i, w), n in zip(corner, sizes[many - len(coordinates) :], strict=True):
            here = numpy.logical_and(numpy.greater_equal(i, 0), numpy.less(i, n))
            inside = here if inside is None else numpy.logical_and(inside, here)
            weight = w if weight is None else weight if w is None else weight * w
            at = _place(i, n, mode)
            flat = at if flat is None else numpy.add(numpy.multiply(flat, n), at)
        found = numpy.take(floats, flat, axis=0)
        wide = found.ndim - inside.ndim

        def spread(v: Any, wide: int = wide) -> Any:
            return numpy.reshape(v, (*v.shape, *[1] * wide))

        if mode == "constant":
            found = numpy.where(spread(inside), found, cast(value, found.dtype))
        if weight is not None:
            found = found * cast(spread(weight), found.dtype)
        total = found if total is None else total + found
    return cast(numpy.round(total) if x.dtype.kind in "iu" else total, x.dtype)


def map_coordinates(inputs: Any, coordinates: Any, order: int, fill_mode: str = "constant", fill_value: float = 0.0) -> Any:
    x, at = convert_to_tensor(inputs), in_float(coordinates)
    if at.shape[0] != x.ndim:
        raise ValueError(
            "First dim of `coordinates` must be the same as the rank of `inputs`. "
            f"Received inputs with shape: {x.shape} and coordinate leading dim of {at.shape[0]}"
        )
    if at.ndim < 2:
        raise ValueError(f"Invalid coordinates rank: expected at least rank 2. Received input with shape: {at.shape}")
    if fill_mode not in FILLS:
        raise ValueError(f"Invalid value for argument `fill_mode`. Expected one of {set(FILLS)}. Received: fill_mode={fill_mode}")
    if order not in range(2):
        raise ValueError(f"Invalid value for argument `order`. Expected one of {[0, 1]}. Received: order={order}")
    return _sampled(x, [at[k] for k in range(x.ndim)], order, fill_mode, fill_value)


def _batched(images: Any, data_format: Any, function: Callable[[Any], Any]) -> Any:
    """Returns a function of batches [n, h, w, c] of images in another form."""
    single, first = images.ndim == 3, _channels(data_format) == -3
    x = numpy.expand_dims(images, 0) if single else images
    x = numpy.transpose(x, (0, 2, 3, 1)) if first else x
    y = function(x)
    y = numpy.transpose(y, (0, 3, 1, 2)) if first else y
    return y[0] if single else y


def _at(x: Any, rows: Any, columns: Any, interpolation: str, mode: str, value: Any) -> Any:
    """Returns images [n, h, w, c] at places [n, h, w] of each."""
    n = numpy.reshape(numpy.arange(x.shape[0], dtype="int32"), (-1, 1, 1))
    before = numpy.broadcast_to(n, rows.shape)
    return _sampled(x, [rows, columns], ORDERS[interpolation], mode, value, before)


def affine_transform(
    images: Any,
    transform: Any,
    interpolation: str = "bilinear",
    fill_mode: str = "constant",
    fill_value: Any = 0,
    data_format: Any = None,
) -> Any:
    _one_of("interpolation", interpolation, ORDERS)
    _one_of("fill_mode", fill_mode, FILLS)
    images, t = _ranked(images), in_float(transform)
    if t.ndim not in (1, 2):
        raise ValueError(
            "Invalid transform rank: expected rank 1 (single transform) or rank 2 (batch of transforms). "
            f"Received input with shape: transform.shape={t.shape}"
        )
    t = numpy.expand_dims(t, 0) if t.ndim == 1 else t

    def function(x: Any) -> Any:
        a = [numpy.reshape(t[:, k], (-1, 1, 1)) for k in range(8)]
        i = numpy.reshape(numpy.arange(x.shape[1], dtype=t.dtype), (1, -1, 1))
        j = numpy.reshape(numpy.arange(x.shape[2], dtype=t.dtype), (1, 1, -1))
        shape = (x.shape[0], x.shape[1], x.shape[2])
        rows, columns = (numpy.broadcast_to(v, shape) for v in (a[4] * i + a[3] * j + a[5], a[1] * i + a[0] * j + a[2]))
        return _at(x, rows, columns, interpolation, fill_mode, fill_value)

    return _batched(images, data_format, function)


def compute_homography_matrix(start_points: Any, end_points: Any) -> Any:
    """Returns the eight numbers by which end points are mapped to start points, for each of a batch [n, 4, 2]."""
    start, end = convert_to_tensor(start_points), convert_to_tensor(end_points)
    (sx, sy), (ex, ey) = ((p[..., 0], p[..., 1]) for p in (start, end))
    no, one = numpy.zeros_like(ex), numpy.ones_like(ex)
    xs = numpy.stack([ex, ey, one, no, no, no, -sx * ex, -sx * ey], -1)
    ys = numpy.stack([no, no, no, ex, ey, one, -sy * ex, -sy * ey], -1)
    wanted = numpy.expand_dims(numpy.concatenate([sx, sy], -1), -1)
    return numpy.squeeze(solve(numpy.concatenate([xs, ys], 1), wanted), -1)


def perspective_transform(
    images: Any, start_points: Any, end_points: Any, interpolation: str = "bilinear", fill_value: Any = 0, data_format: Any = None
) -> Any:
    _one_of("interpolation", interpolation, ORDERS)
    images = _ranked(images)
    start, end = convert_to_tensor(start_points), convert_to_tensor(end_points)
    for name, p in (("start_points", start), ("end_points", end)):
        if tuple(p.shape[-2:]) != (4, 2) or p.ndim not in (2, 3):
            raise ValueError(f"Invalid {name} shape: expected (4,2) for a single image or (N,4,2) for a batch. Received shape: {p.shape}")
    if start.shape != end.shape:
        raise ValueError(
            f"start_points and end_points must have the same shape. Received start_points.shape={start.shape}, end_points.shape={end.shape}"
        )
    start, end = (numpy.expand_dims(p, 0) if p.ndim == 2 else p for p in (start, end))

    def function(x: Any) -> Any:
        t = compute_homography_matrix(cast(start, "float32"), cast(end, "float32"))
        a = [numpy.reshape(t[:, k], (-1, 1, 1)) for k in range(8)]
        i = numpy.reshape(numpy.arange(x.shape[1], dtype="float32"), (1, -1, 1))
        j = numpy.reshape(numpy.arange(x.shape[2], dtype="float32"), (1, 1, -1))
        below = a[6] * j + a[7] * i + 1.0
        shape = (x.shape[0], x.shape[1], x.shape[2])
        columns, rows = (numpy.broadcast_to(v, shape) for v in ((a[0] * j + a[1] * i + a[2]) / below, (a[3] * j + a[4] * i + a[5]) / below))
        return _at(x, rows, columns, interpolation, "constant", fill_value)

    return _batched(images, data_format, function)


# ---- filters ------------------------------------------------------------------------------------------------------------


def _filtered(x: Any, kernels: Sequence[Any]) -> list[Any]:
    """Returns images [n, h, w, c] filtered by matrices, each channel by itself."""
    channels = int(x.shape[-1])
    made = []
    for k in kernels:
        k = numpy.reshape(k, (*k.shape, 1, 1))
        made.append(nn.depthwise_conv(x, numpy.tile(k, (1, 1, channels, 1)), 1, "same", "channels_last"))
    return made


def gaussian_blur(images: Any, kernel_size: Any = (3, 3), sigma: Any = (1.0, 1.0), data_format: Any = None) -> Any:
    images = _ranked(images)
    dtype = backend.standardize_dtype(images.dtype)
    sigma = convert_to_tensor(sigma, dtype)

    def bell(size: int, width: Any) -> Any:
        at = numpy.arange(int(size), dtype=dtype) - (int(size) - 1) / 2
        k = numpy.exp(-0.5 * numpy.square(at / width))
        return k / numpy.sum(k)

    kernel = numpy.outer(bell(kernel_size[1], sigma[1]), bell(kernel_size[0], sigma[0]))
    return _batched(images, data_format, lambda x: _filtered(x, [kernel])[0])


def sobel_edges(images: Any, data_format: Any = None) -> Any:
    images = convert_to_tensor(images)
    across = convert_to_tensor([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], images.dtype)
    first = data_format == "channels_first"
    x = numpy.transpose(images, (0, 2, 3, 1)) if first else images
    found = _filtered(x, [numpy.transpose(across), across])
    return numpy.stack([numpy.transpose(y, (0, 3, 1, 2)) if first else y for y in found], -1)


def elastic_transform(
    images: Any,
    alpha: float = 20.0,
    sigma: float = 5.0,
    interpolation: str = "bilinear",
    fill_mode: str = "reflect",
    fill_value: float = 0.0,
    seed: Any = None,
    data_format: Any = None,
) -> Any:
    _one_of("interpolation", interpolation, ORDERS)
    _one_of("fill_mode", fill_mode, FILLS)
    images = _ranked(images)
    size = int(6 * float(np.asarray(sigma))) | 1
    words = random.drawn_seed(draw_seed(seed))

    def function(x: Any) -> Any:
        shape = (x.shape[0], x.shape[1], x.shape[2], 1)
        moved = []
        for own in (words, random.drawn_seed(words, 1)):
            noise = random.normal(shape, dtype="float32", seed=own) * cast(sigma, "float32")
            moved.append(gaussian_blur(noise, (size, size), (sigma, sigma), "channels_last")[..., 0] * cast(alpha, "float32"))
        i = numpy.reshape(numpy.arange(x.shape[1], dtype="float32"), (1, -1, 1))
        j = numpy.reshape(numpy.arange(x.shape[2], dtype="float32"), (1, 1, -1))
        return _at(x, i + moved[0], j + moved[1], interpolation, fill_mode, fill_value)

    return _batched(images, data_format, function)
