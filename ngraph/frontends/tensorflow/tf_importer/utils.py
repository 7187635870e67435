"""Small helpers of the importer of 2017."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np

from ngraph.errors import ArgumentError

__all__ = ["get_nested_attr", "np_layout_shuffle", "remove_tf_name_prefix", "tf_obj_shape", "to_int"]


def np_layout_shuffle(in_tensor: np.ndarray[Any, Any], in_axes: str, out_axes: str) -> np.ndarray[Any, Any]:
    """Returns an array with its dims in another order: `np_layout_shuffle(picture, "NHWC", "CDHWN")`.

    in_axes, out_axes: a letter for each dim. Dims that only the result has are of length 1; those that only the input has must be.
    Raises ArgumentError for letters that do not fit.
    """
    if len(in_axes) != np.ndim(in_tensor):
        raise ArgumentError(f"{in_axes!r} names {len(in_axes)} dims of an array with {np.ndim(in_tensor)}", fix="name each dim by a letter")
    gone = [k for k, axis in enumerate(in_axes) if axis not in out_axes]
    if any(in_tensor.shape[k] != 1 for k in gone):
        raise ArgumentError(f"{out_axes!r} lacks dims of {in_axes!r} that are longer than 1", fix="name them")
    kept = "".join(axis for axis in in_axes if axis in out_axes)
    new = "".join(axis for axis in out_axes if axis not in in_axes)
    found = np.squeeze(in_tensor, tuple(gone))
    found = found.reshape(found.shape + (1,) * len(new))
    return np.transpose(found, [(kept + new).index(axis) for axis in out_axes])


def remove_tf_name_prefix(name: str) -> str:
    """Returns a node's name without the `^` that marks a control edge."""
    return name.removeprefix("^")


def tf_obj_shape(input: Any) -> tuple[int, ...]:
    """Returns the shape of a tensor, TensorShape, AttrValue or NodeDef of TensorFlow's, -1 where it is open. Raises TypeError."""
    if hasattr(input, "get_shape"):
        input = input.get_shape()
    if hasattr(input, "as_list"):
        return tuple([-1 if n is None else int(n) for n in input.as_list()])
    if hasattr(input, "attr"):
        input = input.attr["shape"]
    if hasattr(input, "shape") and hasattr(input.shape, "dim"):
        return tuple([int(d.size) for d in input.shape.dim])
    raise TypeError(f"{type(input).__name__} has no shape of TensorFlow's")


def to_int(input: Any) -> Any:
    """Returns an array, tuple, list or number with its numbers as ints."""
    if isinstance(input, np.ndarray):
        return input.astype(int)
    return type(input)(int(i) for i in input) if isinstance(input, (list, tuple)) else int(input)


def get_nested_attr(obj: Any, name: str) -> Any:
    """Returns an attribute by a path: `get_nested_attr(tf, "nn.relu")`."""
    return attrgetter(name)(obj)
