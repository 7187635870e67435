"""Arrays with named dims, such as xarray's, which are matched to axes by name in any order. xarray itself is never imported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ngraph.errors import AxisError, NgraphError
from ngraph.op_graph.axes import Axes, Axis, make_axis, show_axes


def dims_of(x: Any) -> tuple[str, ...] | None:
    """Returns the dim names of an xarray DataArray or Variable; None for anything else."""
    if getattr(x, "dims", None) is None or not any(c.__module__.split(".")[0] == "xarray" for c in type(x).__mro__):
        return None
    return tuple(map(str, x.dims)) if hasattr(x, "transpose") and hasattr(x, "dtype") else None


def _named(axes: Iterable[Axis], dim: str) -> Axis | None:
    """Returns the axis of this label, or else the only one of this name, in whatever scope; None for none, or several."""
    axes = list(axes)
    found = [a for a in axes if dim == a.label] or [a for a in axes if dim in (a.name, f"{a.short_name}{a.mark}")]
    found = found or [a for a in axes if a.short_name == dim]
    return found[0] if len(found) == 1 else None


def axes_of(x: Any, beside: Axes) -> Axes | None:
    """Returns axes for the dims of `x`: those of `beside` by name, new ones for the rest; None for an array without dim names."""
    dims = dims_of(x)
    if dims is None:
        return None
    return Axes(_named(beside, d) or make_axis(n, name=d) for d, n in zip(dims, x.shape, strict=True))


def arranged(x: Any, axes: Axes, what: str, error: type[NgraphError] = AxisError) -> Any:
    """Returns `x` with its dims in the order of `axes`, by name; `x` itself where it has no names. Raises `error` where names differ."""
    dims = dims_of(x)
    if dims is None:
        return x
    places = {_named(axes, d): k for k, d in enumerate(dims)}
    if len(dims) != len(axes) or set(places) != set(axes):
        raise error(
            f"{what} has the axes {show_axes(axes)}, and got the dims ({', '.join(dims)})",
            fix="name the dims after the axes: x.rename(...), or pass the plain array: x.values",
        )
    return np.transpose(np.asarray(x), [places[a] for a in axes])
