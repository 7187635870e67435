"""Convolution, Deconvolution and Pooling over named axes: one, two or three spatial axes, dilated, grouped, depthwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ngraph as ng
from ngraph.errors import AxisError
from ngraph.frontends.neon.axis import named_axes
from ngraph.frontends.neon.bounds import COUNT, check
from ngraph.frontends.neon.calls import one_of, public
from ngraph.frontends.neon.initializers import first_value
from ngraph.frontends.neon.layer import Layer, computed, scoped
from ngraph.frontends.neon.layers import Activation, Bias, norm_of
from ngraph.op_graph.axes import Axes, Axis, make_axis, show_axes
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import show_input

SIDES = ("D", "H", "W")
Numbers = dict[str, Any]


def window_of(shape: Any, keys: Sequence[str], layer: str) -> dict[str, int]:
    """Returns {side: length} from a dict, or from a tuple whose last entries belong to the last of `keys`, as a new dict."""
    if isinstance(shape, Mapping):
        unknown = [k for k in shape if k not in keys]
        if unknown:
            raise AxisError(f"{layer}: {unknown} in {dict(shape)}", fix=f"take keys from {', '.join(keys)}")
        return dict(shape)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if not 1 <= len(shape) <= len(keys):
        raise AxisError(f"{layer}: {shape} has {len(shape)} numbers", fix=f"at most {len(keys)} of them: {', '.join(keys)}")
    return dict(zip(keys[-len(shape) :], shape, strict=True))


def per_side(setting: Any, sides: Sequence[str], layer: str, pairs: bool = False) -> Numbers:
    """Returns {side: setting} from one for all, a dict, or (unless pairs of numbers mean before and after) a tuple with one for each."""
    if isinstance(setting, Mapping):
        unknown = [k for k in setting if k not in (*SIDES, *sides)]
        if unknown:
            raise AxisError(f"{layer}: {unknown} in {dict(setting)}", fix=f"take keys from {', '.join(sides)}")
        return {s: setting.get(s, 0 if pairs else 1) for s in sides}
    if isinstance(setting, (tuple, list)) and not (pairs and len(setting) == 2 and all(isinstance(p, int) for p in setting)):
        if len(setting) != len(sides):
            raise AxisError(f"{layer}: {setting} has {len(setting)} entries for {', '.join(sides)}", fix="give one for each, or a dict")
        return dict(zip(sides, setting, strict=True))
    return dict.fromkeys(sides, setting)


def paddings(padding: Any, sides: Sequence[str], layer: str, words: Sequence[str]) -> Numbers:
    """Returns {side: padding}. Raises ArgumentError for an unknown word."""
    found = per_side(padding, sides, layer, pairs=True)
    for own in found.values():
        if isinstance(own, str):
            one_of(layer, "padding", own, words)
    return found


def padding_numbers(padding: Any, length: int, dilation: int) -> Any:
    """Returns "full" and "causal" as (before, after); paddings that `ng.conv` accepts are unchanged."""
    reach = (length - 1) * dilation
    return {"full": (reach, reach), "causal": (reach, 0)}.get(padding, padding) if isinstance(padding, str) else padding


class ConvBase(Layer):
    """Base of Convolution and Deconvolution: the filter's axes, and the axes of the input along which it is applied."""

    def __init__(
        self,
        filter_shape: Any,
        filter_init: Any,
        strides: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        bias_init: Any = None,
        activation: Callable[[Op], Op] | None = None,
        batch_norm: Any = False,
        groups: int = 1,
        name: str | None = None,
    ):
        super().__init__(name)
        kind = type(self).__name__
        check(kind, COUNT, groups=groups)
        shape = window_of(filter_shape, (*SIDES, "K"), kind)
        if "K" not in shape or len(shape) < 2:
            raise AxisError(f"{kind}: {filter_shape} has no spatial length and K", fix="write (W, K), (H, W, K), (D, H, W, K) or a dict")
        self.nout = shape.pop("K")
        self.window, self.init, self.groups = shape, filter_init, groups
        sides = tuple(shape)
        self.strides = per_side(strides, sides, kind)
        self.dilation = per_side(dilation, sides, kind)
        pads = paddings(padding, sides, kind, ("same", "valid", "full", "causal"))
        self.padding = {s: padding_numbers(pads[s], shape[s], self.dilation[s]) for s in sides}
        self.batch_norm = norm_of(batch_norm, bias_init, kind)
        self.shift = Bias(bias_init, shared=True) if bias_init is not None else None
        self.activation = Activation(activation) if activation is not None else None

    def _along(self, x: Op, spatial_axes: Any) -> dict[str, Axis]:
        """Returns {side: axis of x}. Raises AxisError where x lacks one."""
        names = {**dict(zip(SIDES, SIDES, strict=True)), **spatial_axes} if isinstance(spatial_axes, Mapping) else None
        if names is None:
            given = [spatial_axes] if isinstance(spatial_axes, (str, Axis)) else list(spatial_axes)
            names = dict(zip(SIDES[len(SIDES) - len(given) :], given, strict=True))
        found = {s: x.axes.find_axis(names[s]) for s in self.window if s in names}
        missing = [str(names.get(s, s)) for s in self.window if found.get(s) is None]
        if missing:
            raise AxisError(
                f"{self.path}({x.label}): the filter {self.window} goes along {', '.join(missing)}, which {show_axes(x.axes)} lacks",
                details=(show_input(x),),
                fix="say which axes it goes along, as in layer(x, spatial_axes=('REC',)), or rename axes: ng.map_roles(x, {'rows': 'H'})",
            )
        return {s: a for s, a in found.items() if a is not None}

    def _with_channel(self, x: Op, channel_axes: Any, along: Mapping[str, Axis]) -> tuple[Op, Axis]:
        """Returns x with a channel axis, of length 1 where there was none, and that axis; several are joined."""
        names = [channel_axes] if isinstance(channel_axes, (str, Axis)) else list(channel_axes)
        channels = named_axes(x, names)
        if len(channels) > 1:
            x = ng.map_roles(ng.flatten(x, channels), {ng.FlattenedAxis(channels): make_axis(name="C")})
            return x, x.axes[[a.name for a in x.axes].index("C")]
        if channels:
            return x, channels[0]
        axis = make_axis(1, name=names[0] if isinstance(names[0], str) else names[0].name)
        return ng.expand_dims(x, axis, min(x.axes.index(a) for a in along.values())), axis

    def _filter(self, axes: Sequence[Axis], ins: Axes, outs: Axes) -> Op:
        """Returns the filter with these axes. Initialisers get outs and duals of ins, from which they derive fan-in and fan-out."""
        first, between = first_value(self.init, f"{self.path}/W"), Axes.linear_map_axes(ins, outs)
        return self.parameter("W", axes, (lambda _: first(between)) if callable(first) else first)

    def _finish(self, y: Op) -> Op:
        for part in (self.batch_norm, self.shift, self.activation):
            y = y if part is None else part(y)
        return y

    def _arguments(self) -> str:
        shown = [f"{'x'.join(map(str, self.window.values()))}, {self.nout}"]
        shown += [
            f"{k}={v}"
            for k, v in (("strides", self.strides), ("padding", self.padding), ("dilation", self.dilation))
            if any(n not in (0 if k == "padding" else 1,) for n in v.values())
        ]
        return ", ".join([*shown, *([f"groups={self.groups}"] if self.groups > 1 else [])])


class Convolution(ConvBase):
    """Convolution; the filter is not flipped. Axes may be in any order, and keep it.

    filter_shape: (W, K), (H, W, K), (D, H, W, K) or a dict with these keys; K is the number of filters. filter_init: initial values.
    strides, dilation: a number, a tuple with one for each side, or a dict. padding: a number, (before, after), "same", "valid", "full",
    "causal", or a dict of those. bias_init: None for no bias. groups: number of groups of channels, each with its own
    filters; as many as channels make it depthwise.
    Call: (x, channel_axes="C", spatial_axes=("D", "H", "W")), names or axes of x; fewer spatial axes are the last ones. Raises AxisError.
    """

    @scoped
    def __call__(self, in_obj: Op, channel_axes: Any = "C", spatial_axes: Any = SIDES) -> Op:
        x = computed(in_obj)
        along = self._along(x, spatial_axes)
        x, channel = self._with_channel(x, channel_axes, along)
        windows = {s: make_axis(self.window[s], name=f"{a.name}_filter") for s, a in along.items()}
        settings: dict[str, Any] = {
            "stride": {a: self.strides[s] for s, a in along.items()},
            "padding": {a: self.padding[s] for s, a in along.items()},
            "dilation": {a: self.dilation[s] for s, a in along.items()},
        }
        where = {a: windows[s] for s, a in along.items()}
        convolved = self._plain if self.groups == 1 else self._grouped
        return self._finish(convolved(x, channel, where, settings))

    def _plain(self, x: Op, channel: Axis, where: dict[Axis, Axis], settings: Numbers) -> Op:
        out = make_axis(self.nout, name="K_out")
        ins = [channel, *where.values()]
        f = self._filter([out, *ins], Axes(ins), Axes([out]))
        y = ng.conv(x, f, where, **settings)
        return ng.map_roles(y, {out: channel.resized(self.nout)})

    def _grouped(self, x: Op, channel: Axis, where: dict[Axis, Axis], settings: Numbers) -> Op:
        n = self.groups
        if len(channel) % n or self.nout % n:
            raise AxisError(
                f"{self.path}({x.label}): {channel!r} and {self.nout} filters do not divide into {n} groups", fix="take a divisor of both"
            )
        group, member = make_axis(n, name="group"), make_axis(len(channel) // n, name="member")
        out = make_axis(self.nout // n, name="K_out")
        x = ng.unflatten(x, [p for a in x.axes for p in ((group, member) if a == channel else (a,))])
        ins = [member, *where.values()]
        f = self._filter([group, out, *ins], Axes(ins), Axes([group, out]))
        y = ng.conv(x, f, where, groups=[group], **settings)
        place = y.axes.index(group)
        y = ng.axes_with_order(y, [*(a for a in y.axes[:place] if a != out), group, out, *(a for a in y.axes[place + 1 :] if a != out)])
        joined = ng.flatten(y, [group, out])
        return ng.map_roles(joined, {ng.FlattenedAxis([group, out]): channel.resized(self.nout)})


class Deconvolution(ConvBase):
    """Deconvolution: the adjoint of a convolution with these arguments. Arguments as for Convolution; padding is removed from the result.

    deconv_out_shape: lengths of the result by side, a dict or a tuple; a longer result is cropped equally on both sides.
    """

    def __init__(self, filter_shape: Any, filter_init: Any, *args: Any, deconv_out_shape: Any = None, **options: Any):
        super().__init__(filter_shape, filter_init, *args, **options)
        self.out_shape = None if deconv_out_shape is None else window_of(deconv_out_shape, tuple(self.window), "Deconvolution")
        if self.groups != 1:
            raise AxisError("Deconvolution has no groups", fix="leave groups out")

    @scoped
    def __call__(self, in_obj: Op, channel_axes: Any = "C", spatial_axes: Any = SIDES) -> Op:
        x = computed(in_obj)
        along = self._along(x, spatial_axes)
        x, channel = self._with_channel(x, channel_axes, along)
        windows = {s: make_axis(self.window[s], name=f"{a.name}_filter") for s, a in along.items()}
        out = make_axis(self.nout, name="K_out")
        outs = [out, *windows.values()]
        f = self._filter([*outs, channel], Axes([channel]), Axes(outs))
        y = ng.deconv(
            x,
            f,
            {a: windows[s] for s, a in along.items()},
            stride={a: self.strides[s] for s, a in along.items()},
            padding={a: self._taken_off(a, s) for s, a in along.items()},
            dilation={a: self.dilation[s] for s, a in along.items()},
        )
        y = ng.map_roles(y, {out: channel.resized(self.nout)})
        return self._finish(self._trimmed(y, along))

    def _taken_off(self, axis: Axis, side: str) -> Any:
        """Returns the padding to remove; "same": the result has the input's length times the stride."""
        if self.padding[side] != "same":
            return self.padding[side]
        reach = (self.window[side] - 1) * self.dilation[side] + 1
        over = max(reach - self.strides[side], 0)
        return over // 2, over - over // 2

    def _trimmed(self, y: Op, along: Mapping[str, Axis]) -> Op:
        for s, length in (self.out_shape or {}).items():
            axis = y.axes.find_axis(along[s])
            over = len(axis or ()) - length
            if over < 0:
                raise AxisError(
                    f"{self.path}: the result has {axis!r}, shorter than deconv_out_shape {length}",
                    fix=f"take {s}={len(axis or ())} or less",
                )
            y = ng.slice_along_axis(y, axis or along[s], slice(over // 2, over // 2 + length))
        return y


@public
def make_conv(
    filter_shape: Any, init: Any, strides: Any = 1, padding: Any = 0, dilation: Any = 1, deconv: bool = False, **options: Any
) -> Any:
    """Returns a Convolution, or a Deconvolution where `deconv` is set."""
    return (Deconvolution if deconv else Convolution)(filter_shape, init, strides, padding, dilation, **options)


DeconvBase = Deconvolution


class Pooling(Layer):
    """The maximum, or the mean, of each window.

    pool_shape: 1 to 4 numbers, W, HW, DHW or CDHW, or a dict. strides: **1 by default**, not the window's length. padding: a number,
    (before, after), "same", "valid", or a dict; it is never the maximum, and does not count in means. pool_type: "max" or "avg".
    """

    def __init__(self, pool_shape: Any, strides: Any = 1, padding: Any = 0, pool_type: str = "max", name: str | None = None):
        super().__init__(name)
        one_of("Pooling", "pool_type", pool_type, ("max", "avg"))
        self.window = window_of(pool_shape, ("C", *SIDES), "Pooling")
        self.strides = per_side(strides, tuple(self.window), "Pooling")
        self.padding = paddings(padding, tuple(self.window), "Pooling", ("same", "valid"))
        self.pool_type = pool_type

    @scoped
    def __call__(self, in_obj: Op) -> Op:
        along = {s: in_obj.axes.find_axis(s) for s in self.window}
        missing = [s for s, a in along.items() if a is None]
        if missing:
            raise AxisError(
                f"{self.path}({in_obj.label}): the window {self.window} goes along {', '.join(missing)},"
                f" which {show_axes(in_obj.axes)} lacks",
                details=(show_input(in_obj),),
                fix="rename axes: ng.map_roles(x, {'rows': 'H'})",
            )
        pool = ng.max_pool if self.pool_type == "max" else ng.avg_pool
        return pool(
            in_obj,
            {a: self.window[s] for s, a in along.items()},
            stride={a: self.strides[s] for s, a in along.items()},
            padding={a: self.padding[s] for s, a in along.items()},
        )

    def _arguments(self) -> str:
        return f"{self.pool_type}, {self.window}, strides={self.strides}"


class GlobalPooling(Layer):
    """The mean, or the maximum, over all spatial axes (and those of time, where `time` is set): the result is [C, N]."""

    def __init__(self, pool_type: str = "avg", time: bool = False, name: str | None = None):
        super().__init__(name)
        one_of("GlobalPooling", "pool_type", pool_type, ("max", "avg"))
        self.pool_type, self.time = pool_type, time

    @scoped
    def __call__(self, in_obj: Op) -> Op:
        over = in_obj.axes.spatial_axes() | (in_obj.axes.recurrent_axes() if self.time else ())
        reduce: Any = ng.mean if self.pool_type == "avg" else ng.max
        made: Op = reduce(in_obj, reduction_axes=over) if over else in_obj
        return made
