"""Deconvolution (transposed convolution): each element of x adds the filter, scaled by it, to the result.

It is `convolve` with the relation of `ngraph.ops.convolution` solved for the other side: output index o, filter index r and input
index i satisfy

    o = i * stride + r * dilation - pad

so the stride becomes the dilation of the input. The filter is not flipped; without padding, stride n restores the length that a
convolution with stride n reduced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ngraph.errors import AxisError
from ngraph.op_graph.axes import Axis, new_axis, rests_on
from ngraph.op_graph.checks import checked_lengths
from ngraph.op_graph.expr import ExprLike, Idx, maximum
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import find_axis, show_input
from ngraph.ops.convolution import Spatial, by_position, contracted, convolve, spatial_pairs
from ngraph.ops.elementwise import arithmetic
from ngraph.ops.moving import read
from ngraph.ops.rearrange import at_least_zero, both_sides, per_axis, windows_along


def spread_size(n: ExprLike, window: ExprLike, stride: int, padding: tuple[int, int], dilation: int) -> ExprLike:
    """Returns the length of the result for `n` windows at distance `stride`, less the padding."""
    return at_least_zero((n - 1) * stride + (window - 1) * dilation + 1 - sum(padding))


def _out(x: Op, given: Axis | None, axis: Axis, size: ExprLike, stride: int, windows: Callable[[Axis], ExprLike]) -> tuple[Op, Axis]:
    """Returns x and the result's axis. A given one may exceed `size` by less than a stride: these lengths convolve to the same one.

    windows: how many windows lie along an axis.
    """
    if given is None:
        return x, axis.resized(size)
    if given.family.length is None and not rests_on(size, {given.family}):
        given.family.length = size
    elif given.length is None:
        return x, given if windows(given) == axis.size else given.resized(size)  # that of the convolution's input, or another one
    elif not isinstance(size, int):
        what, fix = f"axis {axis.label} for a result of {given!r}", "leave the length of the result's axis open"
        wrong = maximum(size - given.size, given.size - size - (stride - 1))
        return read(x, x.axes, {axis: Idx(axis) + checked_lengths(axis, maximum(wrong, 0), what, fix)}), given
    elif not size <= given.length < size + stride:
        lengths = str(size) if stride == 1 else f"{size} to {size + stride - 1}"
        raise AxisError(
            f"deconv({x.label}): the result's axis {given!r} would have length {lengths}",
            details=(show_input(x),),
            fix=f"ng.make_axis({size}, name={given.name!r}), or leave its length open",
        )
    return x, given


def deconv(
    x: Any,
    filters: Any,
    spatial: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = (),
    out: Mapping[Any, Axis] | None = None,
    accumulate: Any = None,
) -> Op:
    """Returns the deconvolution along named axes: the adjoint of `conv` with these arguments, with respect to its input.

    Arguments are those of `conv`; padding is removed at either end (a number, (before, after), "valid", or a dict of those).
    out: axes for the result; known lengths may be longer by less than a stride, and the axis of the convolution's input has its own
    length. Raises AxisError.
    Source: M. Zeiler, D. Krishnan, G. Taylor, R. Fergus, "Deconvolutional networks" (CVPR 2010).

    >>> x, w = ng.placeholder("N=2 K=5 P=4"), ng.placeholder("K=5 C=3 R=3")
    >>> ng.deconv(x, w, {"P": "R"}, stride=2).axes
    Axes(N=2, C=3, P=9)
    """
    (x, f), _ = arithmetic((x, filters), {})
    pairs = spatial_pairs(x, spatial, "deconv")
    along = {find_axis(x, a, "deconv"): find_axis(f, r, "deconv") for a, r in pairs.items()}
    strides, dilations, pads = (per_axis(x, along, setting, "deconv") for setting in (stride, dilation, padding))
    wrong = [f"stride {strides[a]}, dilation {dilations[a]} along {a!r}" for a in along if strides[a] < 1 or dilations[a] < 1]
    if wrong:
        raise AxisError(f"deconv({x.label}, {f.label}): {'; '.join(wrong)}", details=(show_input(x),), fix="both are at least 1")
    outs = {find_axis(x, a, "deconv"): new_axis(o) for a, o in (out or {}).items()}
    numbers: list[Spatial] = []
    for a, r in along.items():
        before, after = both_sides(0 if pads[a] == "valid" else pads[a])
        size = spread_size(a.size, r.size, strides[a], (before, after), dilations[a])
        how: dict[str, Any] = {"window": r, "stride": strides[a], "padding": (before, after), "dilation": dilations[a], "name": "deconv"}
        counted = partial(windows_along, x, **how)
        x, made = _out(x, outs.get(a), a, size, strides[a], counted)
        numbers.append((a, r, made, 1, -dilations[a], strides[a], -before))
    return convolve(x, f, over=contracted(x, f, numbers, groups), spatial=tuple(numbers), accumulate=accumulate)


def deconvolution(conv_params: Mapping[str, int], inputs: Any, filters: Any, axes: Any, docstring: str | None = None) -> Op:
    """Returns the deconvolution of five-axis tensors by position: inputs C D H W N with filters C T R S K gives `axes` K M P Q N.

    conv_params: pad_d pad_h pad_w str_d str_h str_w dil_d dil_h dil_w, all of them, of the convolution whose adjoint this is. Unknown
    lengths of `axes` are filled in: (length - 1) * stride + (window - 1) * dilation + 1 - 2 * pad; given ones may be longer by less
    than a stride. Raises AxisError for missing parameters, other numbers of axes, other lengths. `deconv` takes axes by name.

    >>> by_side = {f"{what}_{d}": k for what, k in (("pad", 0), ("str", 1), ("dil", 1)) for d in "dhw"}
    >>> x, w = ng.placeholder("C=5 D=1 H=6 W=6 N=2"), ng.placeholder("C=5 T=1 R=3 S=3 K=3")
    >>> ng.deconvolution(by_side, x, w, ng.axes("K=3 M=? P=? Q=? N=2")).axes
    Axes(K=3, M=1, P=8, Q=8, N=2)
    """
    return by_position(deconv, "deconvolution", conv_params, inputs, filters, axes)
