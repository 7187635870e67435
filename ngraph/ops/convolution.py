"""Convolution over any number of named spatial axes: the core `convolve`, whose two gradients are `convolve` again.

One relation connects input index i, output index o and filter index r along a spatial axis:

    i * in_dilation = o * stride + r * dilation - pad

Each of the three may be the result's, so gradients only exchange the numbers. As usual in deep learning, the filter is not flipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.errors import AxisError, DTypeError
from ngraph.op_graph.axes import Axes, Axis, merge, new_axis, show_axes
from ngraph.op_graph.dtypes import DType, accumulator, computes
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import Call, OpDef, find_axis, op, own_axes, show_input
from ngraph.ops.aligned import axes_like, without
from ngraph.ops.elementwise import NUMERIC, arithmetic, as_op
from ngraph.ops.rearrange import axes_with_order, both_sides, cast_axes, checked_out, per_axis, windows_along

Spatial = tuple[Any, Any, Any, int, int, int, int]  # in, filter, out axis; stride, dilation, in_dilation, pad


def _rests(x: TensorType, f: TensorType, spatial: Sequence[Spatial]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Returns the axes of x and of f that are not spatial. An axis may be spatial in one of the two only."""
    return without(x.axes, [s[0] for s in spatial]), without(f.axes, [s[1] for s in spatial])


def _type(inputs: tuple[TensorType, ...], over: tuple[Any, ...], spatial: tuple[Spatial, ...], accumulate: DType) -> TensorType:
    x, f = inputs
    computes("convolve", x.dtype, f.dtype)
    if x.dtype is not f.dtype or x.dtype.kind == "bool":
        raise DTypeError(f"convolve of {x.dtype} and {f.dtype}", fix="cast to one numeric dtype")
    missing = [f"{a} in {list(t.axes)}" for s in spatial for a, t in ((s[0], x), (s[1], f)) if a not in t.axes]
    if missing:
        raise AxisError(f"convolve: there is no {', no '.join(missing)}")
    if any(s[3] < 1 or s[4] == 0 or s[5] < 1 for s in spatial):
        raise AxisError("convolve: stride and in_dilation are at least 1, dilation is not 0")
    for k, whose in enumerate("xf"):
        axes = [s[k] for s in spatial]
        if len(set(axes)) != len(axes):
            raise AxisError(
                f"convolve along {axes} of {whose}: an axis occurs twice", fix="give each spatial axis a filter axis of its own"
            )
    rest, others = _rests(x, f, spatial)
    if not set(over) <= set(merge(rest, others)):
        raise AxisError(f"convolve over {list(over)}: x has {list(rest)} and f {list(others)} beside their spatial axes")
    new = [a for a in others if a not in rest and a not in over]
    outs = {s[0]: s[2] for s in spatial}
    axes = []
    for a in x.axes:
        if a in outs:
            axes.append(outs[a])
        elif a in over:  # the filter's own axes stand in the place of the first axis that is summed
            axes += new
            new = []
        else:
            axes.append(a)
    axes += new
    if len(set(axes)) != len(axes):
        raise AxisError(f"convolve gives {axes}: an axis occurs twice", fix="rename it in one of the operands, or name another `out` axis")
    return TensorType(axes_like(x.axes, axes), x.dtype)


def read_windows(x: np.ndarray, dim: int, size: int, window: int, numbers: tuple[int, int, int, int], pad_value: Any = 0) -> np.ndarray:
    """Returns x with the axis `dim` replaced by two, output index and filter index, for references; `pad_value` outside of x.

    numbers: stride, dilation, in_dilation, pad.
    """
    stride, dilation, in_dilation, pad = numbers
    at = np.arange(size)[:, None] * stride + np.arange(window) * dilation - pad
    i, off = at // in_dilation, at % in_dilation
    n = x.shape[dim]
    inside = (off == 0) & (i >= 0) & (i < n)
    padded = np.concatenate([x, np.full((*x.shape[:dim], 1, *x.shape[dim + 1 :]), pad_value).astype(x.dtype)], axis=dim)
    return np.take(padded, np.where(inside, i, n), axis=dim)


def _reference(call: Call, x: np.ndarray, f: np.ndarray) -> np.ndarray:
    spatial: tuple[Spatial, ...] = call.attrs["spatial"]
    kind = call.attrs["accumulate"].np
    tx, tf = call.inputs
    rest, others = _rests(tx, tf, spatial)
    number = {a: k for k, a in enumerate(merge(rest, others))}  # einsum's letters: one for each axis
    first = len(number)
    outs = {s[0]: first + 2 * k for k, s in enumerate(spatial)}
    filters = {s[1]: first + 2 * k + 1 for k, s in enumerate(spatial)}
    spread = x.astype(kind)
    letters: list[int] = []
    for a in tx.axes:
        if a in outs:
            s = next(s for s in spatial if s[0] == a)
            spread = read_windows(spread, len(letters), call.length(s[2]), f.shape[tf.axes.index(s[1])], s[3:])
            letters += [outs[a], outs[a] + 1]
        else:
            letters.append(number[a])
    result = {s[2]: outs[s[0]] for s in spatial} | {a: number[a] for a in number if a not in call.attrs["over"]}
    of_f = [filters[a] if a in filters else number[a] for a in tf.axes]
    wanted = [result[a] for a in call.axes]
    with np.errstate(all="ignore"):
        return np.asarray(np.einsum(spread, letters, f.astype(kind), of_f, wanted, dtype=kind)).astype(call.dtype.np)


def _gradient(op: Op, dy: Op, x: Op, f: Op) -> tuple[Op, Op]:
    spatial: tuple[Spatial, ...] = op.attrs["spatial"]
    accumulate = op.attrs["accumulate"]
    rest, others = _rests(x.type, f.type, spatial)
    kept = without(dy.axes, [s[2] for s in spatial])

    def again(a: Op, b: Op, free: tuple[Any, ...], mine: tuple[Any, ...], new: list[Spatial]) -> Op:
        over = tuple(dict.fromkeys(axis for axis in free if axis not in mine))
        return convolve.build(a, b, over=over, spatial=tuple(new), accumulate=accumulate)

    dx = again(dy, f, (*kept, *others), rest, [(o, r, i, k, -d, s, -p) for i, r, o, s, d, k, p in spatial])
    if all(s[4] > 0 for s in spatial):  # strides are positive in both gradients
        df = again(x, dy, (*rest, *kept), others, [(i, o, r, d, s, k, p) for i, r, o, s, d, k, p in spatial])
    else:
        df = again(dy, x, (*rest, *kept), others, [(o, i, r, -d, k, s, -p) for i, r, o, s, d, k, p in spatial])
    return dx, df


def _prepare(inputs: tuple[Any, ...], attrs: dict[str, Any]) -> tuple[tuple[Op, ...], dict[str, Any]]:
    ops, _ = arithmetic(inputs, {})
    return ops, {**attrs, "accumulate": accumulator(ops[0].dtype, attrs.get("accumulate"))}


def _samples(s: Any) -> list[Op]:
    c, k, n = s.axis(2, name="C"), s.axis(3, name="K"), s.axis(2, name="N")
    h, w, d = s.axis(6, name="H"), s.axis(5, name="W"), s.axis(4, name="D")
    r, q, t = s.axis(3, name="R"), s.axis(2, name="S"), s.axis(2, name="T")
    g = s.axis(2, name="G")
    out, near = s.axis(4, name="P"), s.axis(5, name="H")
    made = [
        conv(s.x(c, h, n), s.x(c, r, k), {h: r}),
        conv(s.x(n, h, c), s.x(k, r, c), {h: r}, stride=2, padding=1),
        conv(s.x(c, h, n), s.x(c, r, k), {h: r}, padding="same", dilation=2),
        conv(s.x(c, h, w, n), s.x(c, r, q, k), {h: r, w: q}, stride={h: 2, w: 1}, padding={h: (0, 2), w: 1}),
        conv(s.x(c, d, h, w, n), s.x(c, t, r, q, k), {d: t, h: r, w: q}, padding=1, stride=3),
        conv(s.x(g, c, h, n), s.x(g, c, r, k), {h: r}, groups=g, dilation=2),
        conv(s.x(c, h, n), s.x(r, c), {h: r}, groups=c, padding=1),
        conv(s.x(h, c), s.x(s.axis(3, name="H"), k, c), {h: h}, padding="same"),
        conv(s.x(h), s.x(s.O), {h: s.O}, stride=4),
        conv(s.x(h, s.Z), s.x(r, s.Z), {h: r}),
        conv(s.x(s.Z, h), s.x(r, k), {h: r}),
        conv(s.x(s.O, c), s.x(r, c, k), {s.O: r}, padding=2),
        conv(s.x(h, h - 1), s.x(r, h - 1), {h: r}, padding=2),
        conv(s.special(h, n), s.x(r), {h: r}),
    ]
    for numbers in ((2, -1, 3, 1), (1, -2, 2, -3), (3, 2, 2, 2)):
        made.append(convolve(s.x(c, h, n), s.x(k, r, c), over=(c,), spatial=((h, r, out, *numbers),)))
    return [*made, convolve(s.x(c, h, n), s.x(k, r), over=(c,), spatial=((h, r, near, 1, 1, 1, 1),))]


convolve: OpDef = op(
    "convolve",
    "The sum over `over` (axes of x or f or both) and over each spatial filter axis of x*f, added up as dtype "
    "`accumulate`. `spatial`: (in, filter, out, stride, dilation, in_dilation, pad) each: out index o and filter index r read x at "
    "(o*stride + r*dilation - pad) / in_dilation where that divides and lies inside, else 0. dilation may be negative, out's length is "
    "free: so both gradients are convolve again. Other shared axes (groups) are the same index and stay.",
    form="(x, f; over, spatial, accumulate)",
    type=_type,
    reference=_reference,
    prepare=_prepare,
    grad=_gradient,
    samples=_samples,
    kinds=NUMERIC,
    ulp=16,
    error=1e-5,
    onnx="Conv",
    torch="aten.convolution",
)


# ---- what users call --------------------------------------------------------------------------------------------------


def _same(x: Op, axis: Axis, window: Axis, stride: int, dilation: int) -> tuple[int, int]:
    """Returns the padding with which the result has the input's length, or that over the stride, rounded up."""
    n, size = axis.length, window.length
    if size is None or (n is None and stride != 1):
        raise AxisError(
            f"conv({x.label}): padding 'same' along {axis!r} with stride {stride} needs the lengths of {axis!r} and {window!r}",
            details=(show_input(x),),
            fix="set the length of the axis first, or give the padding as numbers",
        )
    total = (size - 1) * dilation if n is None else max((-(-n // stride) - 1) * stride + (size - 1) * dilation + 1 - n, 0)
    return total // 2, total - total // 2


def padding_of(x: Op, given: Any, axis: Axis, window: Axis, stride: int, dilation: int) -> tuple[int, int]:
    """Returns (before, after) along an axis from the user's padding."""
    if given == "same":
        return _same(x, axis, window, stride, dilation)
    return both_sides(0 if given == "valid" else given)


def conv(
    x: Any,
    filters: Any,
    spatial: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = (),
    out: Mapping[Any, Axis] | None = None,
    out_axes: Any = None,
    accumulate: Any = None,
) -> Op:
    """Returns the convolution along named axes; the filter is not flipped.

    spatial: {axis of x: axis of filters}, any number of them; or a list of axes that both have under one name.
    stride, dilation: a number, or a dict by axis of x. padding: a number, (before, after), "same", "valid", or a dict of those.
    groups: axes of both that are matched and kept, as the channels of a depthwise convolution. All other shared axes are summed, except
    a batch axis. Axes that only the filters have replace the summed ones.
    out: other axes for the result, {axis of x: axis}; by default the spatial axes keep their names, with another length.
    out_axes: the result's axes in another order. accumulate: the dtype of the sums. Raises AxisError.
    Source: the relation in the module's docstring.

    >>> x, w = ng.placeholder("N=2 C=3 H=8 W=8"), ng.placeholder("K=5 C=3 R=3 S=3")
    >>> ng.conv(x, w, {"H": "R", "W": "S"}, padding=1).axes
    Axes(N=2, K=5, H=8, W=8)
    """
    (x, f), _ = arithmetic((x, filters), {})
    pairs = spatial_pairs(x, spatial, "conv")
    along = {find_axis(x, a, "conv"): find_axis(f, r, "conv") for a, r in pairs.items()}
    strides, dilations, pads = (per_axis(x, along, setting, "conv") for setting in (stride, dilation, padding))
    wrong = [f"stride {strides[a]}, dilation {dilations[a]} along {a!r}" for a in along if strides[a] < 1 or dilations[a] < 1]
    if wrong:
        raise AxisError(f"conv({x.label}, {f.label}): {'; '.join(wrong)}", details=(show_input(x),), fix="both are at least 1")
    outs = {find_axis(x, a, "conv"): new_axis(o) for a, o in (out or {}).items()}
    numbers: list[Spatial] = []
    for a, r in along.items():
        before, after = padding_of(x, pads[a], a, r, strides[a], dilations[a])
        size = windows_along(x, a, r, strides[a], (before, after), dilations[a], "conv")
        x, made = checked_out(x, a, outs[a], size, "conv") if a in outs else (x, a.resized(size))
        numbers.append((a, r, made, strides[a], dilations[a], 1, before))
    result = convolve(x, f, over=contracted(x, f, numbers, groups), spatial=tuple(numbers), accumulate=accumulate)
    return result if out_axes is None else axes_with_order(result, out_axes)


def spatial_pairs(x: Op, spatial: Any, name: str) -> Mapping[Any, Any]:
    """Returns {axis of x: axis of the filters} for the user's `spatial`, a dict or a list of axes that both have under one name."""
    return spatial if isinstance(spatial, Mapping) else {a: a for a in own_axes(x, spatial, name)}


def contracted(x: Op, f: Op, spatial: Sequence[Spatial], groups: Any) -> tuple[Axis, ...]:
    """Returns the axes that are summed beside the filter's spatial ones: the shared ones without groups and a batch axis."""
    rest, others = _rests(x.type, f.type, spatial)
    stay = {find_axis(f, g, "conv groups") for g in own_axes(x, groups, "conv groups")}
    return tuple(a for a in rest if a in others and a not in stay and not a.is_batch)


_SIDES = ("d", "h", "w")


def needed(params: Mapping[str, Any], keys: Sequence[str], name: str) -> None:
    """Raises AxisError that names all `keys` missing in `params`."""
    missing = [k for k in keys if k not in params]
    if missing:
        raise AxisError(f"{name}: {', '.join(missing)} missing in the parameters", fix=f"give all of {', '.join(keys)}")


def five_axes(x: Op, wanted: str, name: str) -> None:
    if len(x.axes) != 5:
        raise AxisError(
            f"{name}({x.label}): {show_axes(x.axes)} are not five axes {wanted}",
            details=(show_input(x),),
            fix="add missing ones with ng.expand_dims, or use the form by axis names: ng.conv, ng.max_pool",
        )


def convolution(conv_params: Mapping[str, int], inputs: Any, filters: Any, axes: Any, docstring: str | None = None) -> Op:
    """Returns the convolution of five-axis tensors by position: inputs C D H W N with filters C T R S K gives `axes` K M P Q N.

    conv_params: pad_d pad_h pad_w str_d str_h str_w dil_d dil_h dil_w, all of them. Unknown lengths of `axes` are filled in.
    Raises AxisError for missing parameters, other numbers of axes, or lengths that disagree with the parameters. `conv` takes axes by name.

    >>> by_side = {f"{what}_{d}": k for what, k in (("pad", 0), ("str", 1), ("dil", 1)) for d in "dhw"}
    >>> x, w = ng.placeholder("C=3 D=1 H=8 W=8 N=2"), ng.placeholder("C=3 T=1 R=3 S=3 K=5")
    >>> ng.convolution(by_side, x, w, ng.axes("K=5 M=? P=? Q=? N=2")).axes
    Axes(K=5, M=1, P=6, Q=6, N=2)
    """
    return by_position(conv, "convolution", conv_params, inputs, filters, axes)


def by_position(function: Callable[..., Op], name: str, conv_params: Mapping[str, int], inputs: Any, filters: Any, axes: Any) -> Op:
    """Applies `function`, which takes axes by name, to five-axis tensors whose axes are given by position."""
    x, f, axes = as_op(inputs), as_op(filters), Axes(axes)
    needed(conv_params, [f"{what}_{side}" for what in ("pad", "str", "dil") for side in _SIDES], name)
    five_axes(x, "C D H W N", name)
    five_axes(f, "C T R S K", name)
    if len(axes) != 5:
        raise AxisError(f"{name}({x.label}, {f.label}): the result's axes {show_axes(axes)} are not five: K M P Q N")
    if x.axes[0] != f.axes[0]:
        raise AxisError(
            f"{name}({x.label}, {f.label}): the first axes {x.axes[0]!r} and {f.axes[0]!r} differ",
            details=(show_input(x), show_input(f)),
            fix=f"rename one: ng.map_roles(filters, {{{f.axes[0].label!r}: '{x.axes[0].name}'}})",
        )
    stay = (f.axes[4], x.axes[4])
    named = all(a in axes for a in stay)  # then their order does not matter
    places = [a for a in axes if a not in stay] if named else axes[1:4]
    settings = {k: {a: conv_params[f"{k}_{side}"] for a, side in zip(x.axes[1:4], _SIDES, strict=True)} for k in ("str", "pad", "dil")}
    result = function(
        x,
        f,
        dict(zip(x.axes[1:4], f.axes[1:4], strict=True)),
        stride=settings["str"],
        padding=settings["pad"],
        dilation=settings["dil"],
        out=dict(zip(x.axes[1:4], places, strict=True)),
    )
    return axes_with_order(result, axes) if named else cast_axes(result, axes)
