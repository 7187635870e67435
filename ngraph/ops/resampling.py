"""Reading between elements: axes of another length, and places that a grid says.

Sources: R. Keys, "Cubic convolution interpolation" (1981); M. Jaderberg and others, "Spatial transformer networks" (2015).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from itertools import product as every
from typing import Any

import numpy as np

from ngraph.errors import ArgumentError, AxisError, GraphError
from ngraph.op_graph import dtypes
from ngraph.op_graph.arguments import one_of
from ngraph.op_graph.axes import Axis, make_axis
from ngraph.op_graph.checks import checked_lengths, distance
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Idx
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import find_axis, own_axes, show_input
from ngraph.ops.elementwise import (
    absolute,
    add,
    as_op,
    cast,
    constant,
    divide,
    equal,
    filled,
    floating,
    floor,
    less,
    less_equal,
    logical_and,
    maximum,
    minimum,
    remainder,
    rounded,
    where,
)
from ngraph.ops.indexing import gather
from ngraph.ops.linear import contract
from ngraph.ops.moving import read
from ngraph.ops.rearrange import broadcast, iota, slice_along_axis
from ngraph.ops.reduce import count
from ngraph.ops.reduce import sum as total

Taps = list[tuple[Op, Op]]  # index and weight of each element that is read along an axis


def tapped(x: Op, axes: Sequence[Axis], taps: Sequence[Taps], mode: str = "fill") -> Op:
    """Returns the weighted sum of what every choice of a tap along each axis reads."""
    found: Op | None = None
    for chosen in every(*taps):
        part = gather(x, *(i for i, _ in chosen), axes=tuple(axes), mode=mode)
        weight = chosen[0][1]
        for _, w in chosen[1:]:
            weight = weight * w
        part = part * cast(weight, x.dtype)
        found = part if found is None else found + part
    assert found is not None
    return found


# ---- other lengths ----------------------------------------------------------------------------------------------------


def _half_pixel(o: Any, scale: Any) -> Any:
    return (o + 0.5) / scale - 0.5


SCALED: dict[str, Callable[[Any, Any], Any]] = {  # modes in which places follow from the scale, for arrays and for ops
    "half_pixel": _half_pixel,
    "pytorch_half_pixel": _half_pixel,  # but for a single element
    "asymmetric": lambda o, scale: o / scale,
    "tf_half_pixel_for_nn": lambda o, scale: (o + 0.5) / scale,
}


def places(
    mode: str, size: int, many: int, scale: float, region: tuple[float, float] = (0.0, 1.0), dtype: Any = np.float64, single: bool = False
) -> np.ndarray[Any, Any]:
    """Returns the position in an axis of `size` elements that each of `many` elements reads, as a real number; modes are ONNX's.

    dtype: in which positions are computed; its rounding decides which of two equally near elements is read. single: whether positions and
    the step between them are rounded to float32, as PyTorch does by one multiplication and addition.
    """
    if single:
        step = (size - 1) / (scale * size - 1 or 1.0) if mode == "align_corners" else 1.0 / scale
        o, step = np.arange(many), float(np.float32(step))
        return (o * step if mode == "align_corners" else SCALED[mode](o, 1.0 / step)).astype(np.float32).astype(dtype)
    o = np.arange(many, dtype=dtype)
    whole, scale = scale * size, dtype(scale)
    if mode == "align_corners":
        return o * 0 if whole == 1 else o * (size - 1) / (whole - 1)
    if mode == "tf_crop_and_resize":
        first, last = map(dtype, region)
        if many == 1:
            return np.full(1, dtype(0.5) * (first + last) * (size - 1))
        return first * (size - 1) + o * (last - first) * (size - 1) / (many - 1)
    if mode == "half_pixel_symmetric":
        return dtype(size / 2) * (1 - dtype(many) / (scale * dtype(size))) + (o + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel" and many == 1:
        return np.full(1, 0.0)
    if mode in SCALED:
        return np.asarray(SCALED[mode](o, scale))
    raise GraphError(f"there is no coordinate_transformation_mode {mode!r}")


def hat(x: Any) -> Any:
    """Returns the linear kernel of a distance."""
    return np.clip(1 - abs(x), 0, None)


def cubic(a: float) -> Callable[[Any], Any]:
    """Returns the cubic convolution kernel with this parameter."""

    def kernel(x: Any) -> Any:
        x = abs(x)
        near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0))

    return kernel


def kernel_weights(at: Any, kernel: Callable[[Any], Any], reach: int, scale: float) -> tuple[Any, Any]:
    """Returns for each place the elements around it, and their weights; a scale below 1 widens the kernel."""
    scale = min(scale, 1.0)
    base = np.floor(at)
    first = int(math.floor(-reach / scale) + 1)
    near = base[:, None] + np.arange(first, 2 - first)
    w = kernel((near - at[:, None]) * scale)
    return near.astype(int), w / w.sum(1, keepdims=True)


# ---- lengths that come with calls: the same, computed by ops

Steps = tuple[int, int, int]  # (a, b, c): row k reads elements from (a k + b) // c on
MAX_PERIOD = 8  # outputs after which the steps between places repeat; for a longer period the indices are an array
CUBIC_TAPS = (-1, 0, 1, 2)  # the elements that a cubic kernel takes, from the one below a place
PLACED = (*SCALED, "align_corners")  # modes of `placed`


def placed(mode: str, out: Axis, size: Op, many: Op, scale: float = 0.0, single: bool = False) -> Op:
    """Returns what `places` returns, along `out`, for lengths that come with calls, in the dtype of theirs. scale: 0 is many / size."""

    def rounded_to(x: Op) -> Op:
        return cast(cast(x, dtypes.float32), size.dtype)

    o = cast(iota(out), size.dtype)
    if mode == "align_corners":
        steps = (many if scale == 0.0 else size * scale) - 1.0
        last, some = size - 1.0, where(equal(steps, 0.0), 1.0, steps)
        return where(equal(steps, 0.0), 0.0, rounded_to(o * rounded_to(last / some)) if single else o * last / some)
    ratio = many / size if scale == 0.0 else filled(scale, (), size.dtype)
    at: Op = rounded_to(SCALED[mode](o, 1.0 / rounded_to(1.0 / ratio))) if single else SCALED[mode](o, ratio)
    return where(equal(many, 1.0), 0.0, at) if mode == "pytorch_half_pixel" else at


def regular_places(mode: str, scale: float) -> Steps | None:
    """Returns (a, b, c) where element k of the result lies in [n, n + 1) of the old axis, n = (a k + b) // c; else None.

    So it is for a mode whose places follow from the scale, where this is a ratio of small numbers as float32 has it.
    """
    ratio = Fraction(scale).limit_denominator(MAX_PERIOD)
    many, size = ratio.as_integer_ratio()
    if not 0 < many <= MAX_PERIOD or np.float32(many / size) != np.float32(scale):
        return None
    if mode == "asymmetric":
        return size, 0, many
    if mode == "half_pixel" or mode == "pytorch_half_pixel" and many >= size:  # a single element lies at 0, which is beside it
        return size, (size - many) // 2, many
    return None


def _whole(i: Op) -> Op:
    return cast(i, dtypes.int32)


def taps_around(at: Op, method: str, a: float = -0.75, index: Callable[[Op], Op] = _whole, base: Op | None = None) -> Taps:
    """Returns the taps at places between elements, linear or cubic with the parameter `a`.

    index: of a whole number as a float. base: the whole numbers below the places, where they are known.
    """
    base = floor(at) if base is None else base
    part = at - base
    if method == "linear":
        return [(index(base), 1.0 - part), (index(base + 1.0), part)]
    if method == "cubic":
        return [(index(base + float(k)), keys(absolute(part - float(k)), a)) for k in CUBIC_TAPS]
    raise GraphError(f"there is no mode {method!r}")


def between(x: Op, axis: Axis, at: Op, method: str, a: float = -0.75, inside: bool = False, steps: Steps | None = None) -> Op:
    """Returns `x` read along an axis at places between its elements, as `taps_around` says; integers are rounded.

    Places outside of the axis read its first or last element; inside: they have no weight. steps: what `regular_places` says of the
    places, which lie along one axis; then reads need no computed indices.
    """
    wide = cast(x, _wide(x))
    if steps is not None:
        return _narrowed(_between_regularly(wide, axis, at, method, a, inside, steps), x.dtype)
    taps = taps_around(at, method, a)
    if inside:
        taps = _shares(_within(taps, count([axis], dtypes.int32)))
    return _narrowed(tapped(wide, [axis], [taps], "clip"), x.dtype)


def _within(taps: Taps, size: Op) -> Taps:
    """Returns the taps without the weights of those outside of an axis of this length."""
    return [(i, where(logical_and(less_equal(0, i), less(i, size)), w, 0.0)) for i, w in taps]


def _shares(taps: Taps) -> Taps:
    """Returns the taps with weights that sum to 1."""
    total = reduce(add, [w for _, w in taps])
    return [(i, w / total) for i, w in taps]


def _between_regularly(x: Op, axis: Axis, at: Op, method: str, cubic: float, inside: bool, steps: Steps) -> Op:
    """Returns `x` read at places whose whole numbers follow from `steps`: reads beside a place, by weights along the new axis."""
    (out,), (a, b, c) = at.axes, steps
    base = floor((cast(iota(out), at.dtype) * float(a) + float(b)) / float(c))
    size = count([axis], at.dtype)
    taps = taps_around(at, method, cubic, lambda i: i, base)
    held = _within(taps, size)
    if inside:
        held = _shares(held)
    else:
        below = reduce(add, [where(less(i, 0.0), w, 0.0) for i, w in taps])
        above = reduce(add, [where(less_equal(size, i), w, 0.0) for i, w in taps])
        held = [(i, w + where(equal(i, 0.0), below, 0.0) + where(equal(i, size - 1.0), above, 0.0)) for i, w in held]
    first = CUBIC_TAPS[0] if method == "cubic" else 0
    order = [out if d == axis else d for d in x.axes]
    reads = [read(x, order, {axis: (Idx(out) * a + b) // c + k}) for k in range(first, first + len(taps))]
    return reduce(add, [part * cast(w, x.dtype) for part, w in zip(reads, [w for _, w in held], strict=True)])


def _wide(x: Op) -> DType:
    """Returns the dtype in which elements of `x` are weighted."""
    return dtypes.float32 if not x.dtype.is_float or x.dtype.bits < 32 else x.dtype


def _narrowed(x: Op, dtype: DType) -> Op:
    """Returns weighted sums in the dtype of what was weighted; integers are rounded."""
    return cast(minimum(maximum(rounded(x), float(dtype.lowest)), float(dtype.highest)) if dtype.is_integer else x, dtype)


def _shares_read(axis: Axis, out: Axis, method: str, align_corners: bool) -> Op:
    """Returns what each element of `out` takes of each element of `axis`, as float64, for `area` and for `antialias`."""
    i, o = iota(axis, dtypes.int64), iota(out, dtypes.int64)
    size, many = count([axis], dtypes.int64), count([out], dtypes.int64)
    if method == "area":
        weights = logical_and(less_equal(divide.build(o * size, many), i), less(i * many, (o + 1) * size))
        weights = cast(weights, dtypes.float64)
    else:
        old, new = cast(size, dtypes.float64), cast(many, dtypes.float64)
        between_corners = where(equal(new, 1.0), 0.0, (old - 1.0) / maximum(new - 1.0, 1.0))
        step = between_corners if align_corners else old / new
        at = (cast(o, dtypes.float64) + 0.5) * step - 0.5
        away = absolute(cast(i, dtypes.float64) - at) / maximum(step, 1.0)
        weights = keys(away, -0.5) if method == "cubic" else maximum(1.0 - away, 0.0)
    return weights / total(weights, (axis,))


def _stretched(x: Op, axis: Axis, out: Axis, method: str, align_corners: bool, antialias: bool) -> Op:
    """Returns `x` with `out` in place of an axis whose length comes with the call, as `interpolate` says."""
    if antialias or method == "area":
        wide = _wide(x)
        weights = cast(_shares_read(axis, out, method, align_corners), wide)
        parts = where(equal(weights, 0.0), 0.0, cast(x, wide) * weights)  # infinities elsewhere do not count
        return _narrowed(broadcast(total(parts, (axis,)), [out if a == axis else a for a in x.axes]), x.dtype)
    if method.startswith("nearest"):
        ratio = cast(count([axis], dtypes.float64) / count([out], dtypes.float64), dtypes.float32)
        start = 0.5 if method == "nearest-exact" else 0.0
        return gather(x, cast(floor((cast(iota(out), dtypes.float32) + start) * ratio), dtypes.int32), axes=(axis,), mode="clip")
    lengths = count([axis], dtypes.float64), count([out], dtypes.float64)
    return between(x, axis, placed("align_corners" if align_corners else "half_pixel", out, *lengths), method)


SMALL = 0.5  # share of its elements that an axis keeps, below which a pass along it makes later ones much shorter
MAX_UNROLLED_TAPS = 16  # elements that each output adds up one by one; more are a contraction


def regular_step(near: Any) -> Steps | None:
    """Returns (a, b, c) where row k of `near` is the elements from (a k + b) // c on, one after another, and c is small; else None."""
    first, many = near[:, 0], len(near)
    if (near != first[:, None] + np.arange(near.shape[1])).any():
        return None
    k = np.arange(many)
    for c in range(1, min(MAX_PERIOD, many - 1) + 1):
        a = int(first[c] - first[0])
        for b in range(c * int(first[0]), c * int(first[0]) + c):
            if (first == (a * k + b) // c).all():
                return a, b, c
    return None


def _inside(near: Any, w: Any, size: int) -> Any:
    """Returns weights of the elements inside alone: those outside add theirs to the first or last element; None where a row lacks it."""
    found = np.where((near >= 0) & (near < size), w, 0)
    for edge, out in ((0, near < 0), (size - 1, near >= size)):
        rows = out.any(1)
        here = near[rows] == edge
        if not here.any(1).all():
            return None
        found[rows] += here * np.where(out, w, 0).sum(1)[rows, None]
    return found


def _weighted_sum(taken: Sequence[Op], w: Any, out: Axis, wide: DType) -> Op:
    """Returns the sum of what was read, the k-th times column k of `w` along `out`."""
    parts = [cast(x, wide) * constant(column.astype(wide.np), [out]) for x, column in zip(taken, w.T, strict=True)]
    return reduce(add, parts)


def mixed(x: Op, axis: Axis, out: Axis, near: Any, w: Any) -> Op:
    """Returns `x` with `out` in place of `axis`: for each row of `near` the elements there, weighted by `w`; integers are rounded.

    Places outside of the axis read its first or last element.
    """
    used = (w != 0).any(0)
    used[:1] |= not used.any()
    near, w = near[:, used], w[:, used]
    size = axis.length or 0
    if near.shape[1] == 1 and (w == 1).all():
        return gather(x, constant(near[:, 0].clip(0, size - 1).astype(np.int32), [out]), axes=(axis,), mode="clip")
    wide = _wide(x)
    step, inside = regular_step(near), _inside(near, w, size)
    if near.shape[1] > MAX_UNROLLED_TAPS:
        tap = make_axis(near.shape[1], name=f"{axis.name}_tap")
        taken = gather(x, constant(near.T.clip(0, size - 1).astype(np.int32), [tap, out]), axes=(axis,), mode="clip")
        made = contract(cast(taken, wide), constant(w.T.astype(wide.np), [tap, out]), over=(tap,), accumulate=wide)
    elif step is not None and inside is not None:
        a, b, c = step
        order = [out if d == axis else d for d in x.axes]
        made = _weighted_sum([read(x, order, {axis: (Idx(out) * a + b + c * k) // c}) for k in range(near.shape[1])], inside, out, wide)
    else:
        found = [constant(k.clip(0, size - 1).astype(np.int32), [out]) for k in near.T]
        made = _weighted_sum([gather(x, k, axes=(axis,), mode="clip") for k in found], w, out, wide)
    return _narrowed(made, x.dtype)


def order_of_passes(scales: Sequence[float]) -> list[int]:
    """Returns the numbers of axes, outermost first, in the order in which to resize them one after another. scales: many / size of each.

    A pass along the last axis reads element by element, so it comes before passes that add rows, and after those that leave few.
    """
    numbers = range(len(scales))
    return sorted(numbers, key=lambda k: (scales[k] >= SMALL, -k if scales[k] >= SMALL else k))


_METHODS = ("nearest", "linear", "cubic")
_OTHER_LENGTHS = (*_METHODS, "nearest-exact", "area")


def rows_read(size: int, many: int, method: str, align_corners: bool, antialias: bool) -> tuple[Any, Any]:
    """Returns the elements that each of `many` elements reads of an axis of `size`, and their weights."""
    o = np.arange(many)
    if method in ("nearest", "nearest-exact"):
        start = np.float32(0.5 if method == "nearest-exact" else 0.0)
        near = np.minimum(np.floor((o.astype(np.float32) + start) * np.float32(size / many)), size - 1).astype(int)
        return near[:, None], np.ones((many, 1))
    if method == "area":
        first, last = o * size // many, -(-(o + 1) * size // many)
        near = first[:, None] + np.arange((last - first).max())
        inside = near < last[:, None]
        return near, inside / (last - first)[:, None]
    kernel, reach = (hat, 1) if method == "linear" else (cubic(-0.5 if antialias else -0.75), 2)
    if not antialias:
        return kernel_weights(places("align_corners" if align_corners else "half_pixel", size, many, many / size), kernel, reach, 1.0)
    if align_corners:  # PyTorch takes the step between corners, and centers as without them
        step = (size - 1) / (many - 1) if many > 1 else 0.0
        near, w = kernel_weights((o + 0.5) * step - 0.5, kernel, reach, 1 / step if step else 1.0)
    else:
        near, w = kernel_weights(places("half_pixel", size, many, many / size), kernel, reach, many / size)
    w = np.where((near >= 0) & (near < size), w, 0)  # only elements inside have weight
    return near, w / w.sum(1, keepdims=True)


def interpolate(x: Any, lengths: Mapping[Any, int], method: str = "linear", align_corners: bool = False, antialias: bool = False) -> Op:
    """Returns `x` with axes of other lengths, {"H": 56, "W": 56}; they keep their names. Values are those of PyTorch's `interpolate`.

    method: `nearest` or `nearest-exact` (the element under the middle), `linear` (bilinear of two axes), `cubic`, or `area`, the mean of
    all elements that an element of the result covers. align_corners: the first and last elements stay in place; else elements are squares
    of equal size. antialias: a smaller result takes in all elements, not those beside a place alone. Both are of `linear` and `cubic`;
    with both, element k of the result lies at (k + 0.5) s - 0.5, where s = (size - 1) / (many - 1). Integers are rounded.
    Raises AxisError where a length is 0.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.interpolate(ng.constant([0.0, 4.0], "H=2"), {"H": 5}, align_corners=True))()
        array([0., 1., 2., 3., 4.])
    """
    one_of("interpolate", "method", method, _OTHER_LENGTHS)
    if (align_corners or antialias) and method not in ("linear", "cubic"):
        which = "align_corners" if align_corners else "antialias"
        raise ArgumentError(f"interpolate: {which} is of the methods linear and cubic, not of {method}", fix=f"leave out {which}")
    x = as_op(x)
    if x.dtype.kind == "bool" or not method.startswith("nearest") and not x.dtype.is_float and not x.dtype.is_integer:
        (x,), _ = floating((x,), {})
    wanted = {find_axis(x, name, "interpolate"): many for name, many in lengths.items()}
    resized = [a for a in x.axes if a in wanted]
    for axis in [resized[k] for k in order_of_passes([wanted[a] / a.length if a.length else 1.0 for a in resized])]:
        size, many = axis.length, wanted[axis]
        if size == 0 or many < 1:
            raise AxisError(f"interpolate({x.label}): {axis!r} to {many}", details=(show_input(x),), fix="lengths are 1 or more")
        new = axis.resized(many)
        order = [new if a == axis else a for a in x.axes]
        if size == many:
            continue
        if size is not None and method.startswith("nearest") and many % size == 0:
            x = read(x, order, {axis: Idx(new) // (many // size)})
            continue
        out = make_axis(many, name=f"{axis.name}_resized")
        if size is None:
            y = _stretched(x, axis, out, method, align_corners, antialias)
        else:
            y = mixed(x, axis, out, *rows_read(size, many, method, align_corners, antialias))
        x = read(y, order, {out: Idx(new)})
    return x


# ---- grids ------------------------------------------------------------------------------------------------------------


def reflected(x: Op, low: Op, high: Op) -> Op:
    """Returns x folded back between two ends."""
    span = high - low
    turn = remainder(x - low, maximum(span * 2.0, 1.0))  # ends that coincide, those of one element, are 0, and x is whole
    return low + span - absolute(turn - span)


def keys(x: Op, a: float = -0.75) -> Op:
    """Returns the cubic convolution kernel of a distance."""
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1.0, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return where(less_equal(x, 1.0), near, where(less(x, 2.0), far, 0.0))


def grid_taps(at: Op, size: Op, mode: str, padding: str, corners: bool) -> Taps:
    """Returns the taps along one axis for places from -1 to 1. size: of the axis. Words as in `grid_sample`.

    A border bounds places, and with the cubic method each element that is read.
    """
    wide = at.dtype
    low = filled(0.0 if corners else -0.5, (), wide)
    high = size - (1.0 if corners else 0.5)
    v = (at + 1.0) * 0.5 * (size - 1.0) if corners else ((at + 1.0) * size - 1.0) * 0.5
    if mode == "nearest":
        v = rounded(v)
    if padding == "border" and mode != "cubic":
        v = minimum(maximum(v, 0.0), size - 1.0)
    elif padding == "reflection":
        v = reflected(v, low, high)

    def index(i: Op) -> Op:
        if padding == "reflection":
            i = minimum(maximum(rounded(reflected(i, low, high)), 0.0), size - 1.0)
        elif padding == "border":
            i = minimum(maximum(i, 0.0), size - 1.0)
        return _whole(i)

    if mode == "nearest":
        return [(index(rounded(v)), filled(1.0, (), wide))]
    return taps_around(v, mode, index=index)


def grid_sample(
    x: Any, grid: Any, axes: Any, parts: Axis | str, method: str = "linear", padding: str = "zeros", align_corners: bool = False
) -> Op:
    """Returns `x` at places between its elements along `axes`, which the grid's other axes replace; axes that both have are matched.

    grid: places from -1 to 1, with the coordinate along axes[k] at index k of the grid's axis `parts`. PyTorch's grids have the last
    spatial axis first: `ng.grid_sample(x, grid, "W H", "xy")`. method: `nearest`, `linear` or `cubic`. padding: `zeros` outside, or the
    nearest element of the `border`, or `reflection`. align_corners: -1 and 1 are the middles of the first and last elements, not their
    ends. Differentiable by x and by the grid. Raises AxisError.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> x, grid = ng.constant([0.0, 4.0], "W=2"), ng.constant([[-1.0], [0.0]], "P=2 xy=1")
        >>> executor(ng.grid_sample(x, grid, "W", "xy", align_corners=True))()
        array([0., 2.])
    """
    one_of("grid_sample", "method", method, _METHODS)
    one_of("grid_sample", "padding", padding, ("zeros", "border", "reflection"))
    (x, grid), _ = floating((as_op(x), grid), {})
    spatial = own_axes(x, axes, "grid_sample")
    last = find_axis(grid, parts, "grid_sample")
    if last.length not in (None, len(spatial)):
        raise AxisError(
            f"grid_sample: {last!r} and {len(spatial)} axes of x", details=(show_input(x), show_input(grid)), fix="one for each"
        )
    if last.length is None:
        first = checked_lengths(last, distance(last.size, len(spatial)), f"axis {last.label} of places", "give one number for each axis")
        grid = read(grid, grid.axes, {last: Idx(last) + first})
    taps = [
        grid_taps(slice_along_axis(grid, last, k), count((a,), grid.dtype), method, padding, align_corners) for k, a in enumerate(spatial)
    ]
    return tapped(x, spatial, taps)
