"""The axes that neon's layers find by name: `ax.N` the batch, `ax.REC` time, `ax.C` channels, `ax.D ax.H ax.W` space, `ax.Y` classes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ngraph.errors import AxisError
from ngraph.op_graph.axes import Axes, Axis, make_axis, make_axis_role
from ngraph.op_graph.names import NameScope
from ngraph.op_graph.op import Op

NAMES = "N C D H W REC R S T J K M P Q Y".split()


class NeonAxes(NameScope):
    """Axes as attributes. An assigned axis is named by its attribute alone, so `ax.H` equals `ng.make_axis(name="H")`."""

    N: Axis
    C: Axis
    D: Axis
    H: Axis
    W: Axis
    REC: Axis
    Y: Axis

    def __setattr__(self, attribute: str, value: Any) -> None:
        if isinstance(value, Axis):
            value.named(attribute)
        object.__setattr__(self, attribute, value)

    def sized(self, name: str, length: int) -> Axis:
        """Returns the axis of that name with this length. Where it has another length, a new axis replaces it in later graphs."""
        axis: Axis | None = getattr(self, name, None)
        if axis is None or (axis.length is not None and axis.length != length):
            setattr(self, name, make_axis(length, name=name))
        elif axis.length is None:
            axis.length = length
        found: Axis = getattr(self, name)
        return found


ax: Any = NeonAxes("ax")
for _name in NAMES:
    setattr(ax, _name, make_axis(name=_name))
ar = SimpleNamespace(**{name: make_axis_role(name) for name in NAMES})


def recurrent_axis(x: Op, layer: str) -> Axis:
    """Returns the time axis of a layer's input. Raises AxisError that names the layer."""
    axis = x.axes.recurrent_axis()
    if axis is None:
        raise AxisError(
            f"{layer}({x.label}): {list(x.axes)} has no recurrent axis",
            fix="name the axis of time REC, or make it with ng.make_axis(length, recurrent=True)",
        )
    return axis


def feature_axis(x: Op, layer: str) -> Axis:
    """Returns the one axis that is neither batch nor time. Raises AxisError that names the layer."""
    features = x.axes.feature_axes()
    if len(features) != 1:
        raise AxisError(
            f"{layer}({x.label}) takes one feature axis beside batch and time, and got {list(features)} of {list(x.axes)}",
            fix="flatten them first: Preprocess(lambda x: ng.flatten(x, [...]))",
        )
    return features[0]


def out_axis(x: Op, length: int) -> Axis:
    """Returns the output's feature axis for a layer with `nout`: named as the input's only one, else F."""
    features = x.axes.feature_axes()
    if len(features) != 1:
        return make_axis(length, name="F")
    return features[0].resized(length)


def named_axes(x: Op, names: Any) -> Axes:
    """Returns the axes of x with these names; unknown names are skipped."""
    return Axes(a for n in names if (a := x.axes.find_axis(n)) is not None)
