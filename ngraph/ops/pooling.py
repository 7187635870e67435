"""Pooling: the maximum or the mean of each window along named axes, as a reduction of a windowed read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.errors import AxisError
from ngraph.op_graph.axes import Axes, Axis, Family, new_axis, show_axes
from ngraph.op_graph.dtypes import computes
from ngraph.op_graph.expr import ExprLike, Idx
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import REGISTRY, Call, OpDef, find_axis, op, show_input
from ngraph.ops.aligned import axes_like, wide
from ngraph.ops.convolution import five_axes, needed, padding_of, read_windows
from ngraph.ops.elementwise import ALL, as_op, equal, filled, floating, rounding_once, where
from ngraph.ops.rearrange import cast_axes, checked_out, iota, per_axis, reindex, windows_along
from ngraph.ops.reduce import reduce

Window = tuple[Any, Any, Any, int, int, ExprLike]  # in, window, out axis; stride, dilation, pad


def _type(inputs: tuple[TensorType, ...], windows: tuple[Window, ...], **attrs: Any) -> TensorType:
    (x,) = inputs
    computes("pooling", x.dtype)
    outs = {w[0]: w[2] for w in windows}
    axes = [outs.get(a, a) for a in x.axes]
    if len(outs) != len(windows) or any(a not in x.axes for a in outs) or len(set(axes)) != len(axes):
        raise AxisError(
            f"pooling {list(x.axes)} along {list(outs)} gives {axes}", fix="pool along axes of x, each once, into axes of their own"
        )
    return TensorType(axes_like(x.axes, axes), x.dtype)


def _read(x: Op, windows: Sequence[Window], pad_value: Any) -> Op:
    """Returns `x` with an axis along each window."""
    outs = {w[0]: w[2] for w in windows}
    index: dict[Axis, ExprLike] = {a: Idx(a) for a in x.axes}
    index.update({a: Idx(o) * stride + Idx(r) * dilation - pad for a, r, o, stride, dilation, pad in windows})
    axes = Axes((*(outs.get(a, a) for a in x.axes), *(w[1] for w in windows)))
    return reindex.build(x, axes=axes, index=tuple(index.items()), predicate=(), pad_value=pad_value)


def _inside(windows: Sequence[Window]) -> tuple[Any, ...]:
    return tuple([w[1] for w in windows])


def _lower_max(op: Op, x: Op) -> Op:
    """Lowers to the maximum of each window.

    Windows that overlap much are taken along one axis after another: 5 x 5 elements next to each other are 10 comparisons in place of
    25. That needs half as many comparisons or fewer, since the maxima along the first axes are stored.
    """
    windows = op.attrs["windows"]
    sizes, strides = [w[1].length for w in windows], [w[3] for w in windows]
    steps = [windows]
    if None not in sizes and 2 * sum(r * math.prod(strides[k + 1 :]) for k, r in enumerate(sizes)) <= math.prod(sizes):
        steps = [(w,) for w in windows]
    for step in steps:
        x = reduce.build(_read(x, step, x.dtype.lowest), kind="max", axes=_inside(step))
    return x


def _gradient_max(op: Op, dy: Op, x: Op) -> Op:
    """Returns the gradient: the first maximum of each window takes all of it."""
    windows = op.attrs["windows"]
    first, *more = _inside(windows)
    read = _read(x, windows, x.dtype.lowest)
    place = iota(first)
    for r in more:
        place = place * len(r) + iota(r)
    winner = REGISTRY["argreduce"].build(read, kind="max", axes=(first, *more))
    assert reindex.grad is not None
    dx: Op = reindex.grad(read, where(equal(winner, place), dy, 0.0), x)
    return dx


def _counts(x: Op, windows: tuple[Window, ...]) -> Op:
    """Returns the number of elements of x in each window."""
    total = filled(1, (), x.dtype)
    for window in windows:
        a, r, o, stride, dilation, pad = window
        ends = a.size, (o.size - 1) * stride + (r.size - 1) * dilation + 1
        if pad == 0 and all(isinstance(n, int) for n in ends) and ends[1] <= ends[0]:
            total = total * len(r)
        else:
            total = total * reduce.build(_read(filled(1, (a,), x.dtype), (window,), 0), kind="add", axes=(r,))
    return total


def _lower_avg(op: Op, x: Op) -> Op:
    windows = op.attrs["windows"]

    def means(x: Op) -> Op:
        total = reduce.build(_read(x, windows, 0), kind="add", axes=_inside(windows))
        return total / _counts(x, windows)

    return rounding_once(means)(x)


def _windowed(call: Call, x: np.ndarray, pad_value: Any) -> np.ndarray:
    """Returns x with a dim for each window at the end."""
    axes = call.inputs[0].axes
    for a, r, o, stride, dilation, pad in call.attrs["windows"]:
        dim = axes.index(a)
        x = np.moveaxis(read_windows(x, dim, call.length(o), call.length(r), (stride, dilation, 1, pad), pad_value), dim + 1, -1)
    return x


def _max_reference(call: Call, x: np.ndarray) -> np.ndarray:
    every = tuple(range(x.ndim, x.ndim + len(call.attrs["windows"])))
    return np.asarray(_windowed(call, wide(x), call.dtype.lowest).max(axis=every)).astype(call.dtype.np)


def _avg_reference(call: Call, x: np.ndarray) -> np.ndarray:
    every = tuple(range(x.ndim, x.ndim + len(call.attrs["windows"])))
    count = _windowed(call, np.ones(x.shape, int), 0).sum(axis=every)
    with np.errstate(all="ignore"):
        return np.asarray(_windowed(call, wide(x), 0).sum(axis=every) / count).astype(call.dtype.np)


def _samples(pool: Callable[..., Op]) -> Callable[[Any], list[Op]]:
    def samples(s: Any) -> list[Op]:
        h, w, d, c = s.axis(6, name="H"), s.axis(5, name="W"), s.axis(4, name="D"), s.axis(2, name="C")
        return [
            pool(s.x(c, h, w, s.K), {h: 2, w: 2}),
            pool(s.x(h, c), {h: 3}, stride=2, padding=1),
            pool(s.x(s.N, w, h), {h: 3, w: 2}, stride={h: 1, w: 2}, padding={h: (1, 2), w: 0}),
            pool(s.x(d, h, w), {d: 2, h: 2, w: 3}, stride=2, padding=1),
            pool(s.x(h), {h: 3}, stride=1, dilation=2),
            pool(s.x(h, c), {h: 3}, stride=2, padding="same"),
            pool(s.x(h, h - 1), {h - 1: 2}),
            pool(s.x(h, s.Z), {h: 2}),
            pool(s.x(s.O, c), {s.O: 1}),
            pool(s.special(h, s.N), {h: 2}, padding=(0, 1)),
        ]

    return samples


max_record: OpDef = op(
    "max_pool",
    "The largest of each window; the first of equal ones has the gradient.",
    type=_type,
    reference=_max_reference,
    lower=_lower_max,
    grad=_gradient_max,
    samples=_samples(lambda *a, **k: max_pool(*a, **k)),
    kinds=ALL,
    smooth=False,
    onnx="MaxPool",
    torch="aten.max_pool2d",
)
avg_record: OpDef = op(
    "avg_pool",
    "The mean of what lies inside each window; padding does not count.",
    type=_type,
    reference=_avg_reference,
    lower=_lower_avg,
    prepare=floating,
    samples=_samples(lambda *a, **k: avg_pool(*a, **k)),
    ulp=16,
    onnx="AveragePool",
    torch="aten.avg_pool2d",
)


# ---- what users call --------------------------------------------------------------------------------------------------


def _pool(
    record: OpDef, x: Any, window: Mapping[Any, Any], stride: Any, padding: Any, dilation: Any, out: Mapping[Any, Axis] | None, name: str
) -> Op:
    x = as_op(x)
    sizes = {find_axis(x, a, name): r for a, r in window.items()}
    strides = per_axis(x, sizes, {a: getattr(r, "length", r) for a, r in sizes.items()} if stride is None else stride, name)
    pads, dilations = per_axis(x, sizes, padding, name), per_axis(x, sizes, dilation, name)
    outs = {find_axis(x, a, name): new_axis(o) for a, o in (out or {}).items()}
    windows: list[Window] = []
    for a, size in sizes.items():
        r = size if isinstance(size, Axis) else Axis(Family(f"{a.label}_window", int(size), {}, frozenset(), None))
        if r.length is None or min(r.length, strides[a], dilations[a]) < 1:
            raise AxisError(
                f"{name}({x.label}): window {r!r}, stride {strides[a]}, dilation {dilations[a]} along {a!r}",
                details=(show_input(x),),
                fix="each of these is a whole number of at least 1",
            )
        if r in x.axes:
            raise AxisError(
                f"{name}({x.label}): the window {r!r} is an axis of {x.label} already", details=(show_input(x),), fix="rename it"
            )
        before, after = padding_of(x, pads[a], a, r, strides[a], dilations[a])
        if max(before, after) > (r.length - 1) * dilations[a] or min(before, after) < 0:
            raise AxisError(
                f"{name}({x.label}): padding {(before, after)} along {a!r} leaves windows of {r.length} with nothing in them",
                details=(show_input(x),),
                fix="pad less than the window is long",
            )
        length = windows_along(x, a, r, strides[a], (before, after), dilations[a], name)
        x, made = checked_out(x, a, outs[a], length, name) if a in outs else (x, a.resized(length))
        windows.append((a, r, made, strides[a], dilations[a], before))
    return record(x, windows=tuple(windows)) if windows else x


def max_pool(x: Any, window: Mapping[Any, Any], *, stride: Any = None, padding: Any = 0, dilation: Any = 1, out: Any = None) -> Op:
    """Returns the maximum of each window along named axes, any number of them.

    window: {axis: length}. stride: by default the window's length. padding: a number, (before, after), "same", "valid"; it is never
    the maximum. stride, padding, dilation: one for all, or a dict by axis. out: other axes for the result, {axis: axis}; by default
    the axes keep their names, with another length. The first of equal maxima has the gradient. Raises AxisError.

    >>> ng.max_pool(ng.placeholder("N=2 H=6 W=8"), {"H": 2, "W": 2}).axes
    Axes(N=2, H=3, W=4)
    """
    return _pool(max_record, x, window, stride, padding, dilation, out, "max_pool")


def avg_pool(x: Any, window: Mapping[Any, Any], *, stride: Any = None, padding: Any = 0, dilation: Any = 1, out: Any = None) -> Op:
    """Returns the mean of each window along named axes, over its elements inside: padding does not count. Arguments as in `max_pool`.

    Integers and bool become float32. Raises AxisError.

    >>> ng.avg_pool(ng.placeholder("N=2 H=6 W=8"), {"H": 2, "W": 2}).axes
    Axes(N=2, H=3, W=4)
    """
    return _pool(avg_record, x, window, stride, padding, dilation, out, "avg_pool")


_SIDES = {"c": "J", "d": "T", "h": "R", "w": "S"}


def pooling(poolparams: Mapping[str, Any], inputs: Any, axes: Any, docstring: str | None = None) -> Op:
    """Returns the pooling of a five-axis tensor C D H W N by position, along all but the last.

    poolparams: op ("max" or "avg"); J T R S, the window's length along C D H W; pad_c pad_d pad_h pad_w; str_c str_d str_h str_w.
    The mean excludes padding. axes: the result's five, in the same order; unknown lengths are filled in.
    Raises AxisError for missing parameters, other numbers of axes, lengths that disagree with the parameters, an unknown op.

    >>> window = {"op": "max", "J": 1, "T": 1, "R": 2, "S": 2}
    >>> by_side = {f"{what}_{d}": k for what, k in (("pad", 0), ("str", 1)) for d in "cdhw"}
    >>> x = ng.placeholder("C=3 D=1 H=8 W=8 N=2")
    >>> ng.pooling({**window, **by_side}, x, ng.axes("C=3 M=? P=? Q=? N=2")).axes
    Axes(C=3, M=1, P=7, Q=7, N=2)
    """
    x, axes = as_op(inputs), Axes(axes)
    needed(poolparams, ["op", *_SIDES.values(), *(f"{what}_{side}" for what in ("pad", "str") for side in _SIDES)], "pooling")
    five_axes(x, "C D H W N", "pooling")
    if len(axes) != 5:
        raise AxisError(f"pooling({x.label}): the result's axes {show_axes(axes)} are not five: C D H W N", details=(show_input(x),))
    records = {"max": max_record, "avg": avg_record}
    if poolparams["op"] not in records:
        raise AxisError(f"pooling({x.label}): there is no op {poolparams['op']!r}", fix="take 'max' or 'avg'")
    sides = {
        a: (poolparams[size], poolparams[f"str_{side}"], poolparams[f"pad_{side}"])
        for a, (side, size) in zip(x.axes, _SIDES.items(), strict=False)
    }
    pooled = {a: numbers for a, numbers in sides.items() if numbers != (1, 1, 0)}
    window, stride, padding = ({a: numbers[k] for a, numbers in pooled.items()} for k in range(3))
    out = {a: o for a, o in zip(x.axes, axes, strict=True) if a in pooled}
    result = _pool(records[poolparams["op"]], x, window, stride, padding, 1, out, "pooling")
    return cast_axes(result, axes)
