"""Inputs and outputs of a model, and a call's arrays made to fit them. Nothing here needs the package onnx."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ngraph.errors import ArgumentError


class Port(NamedTuple):
    """An input or output: its name, its ONNX type (such as `tensor(float)`), and its dims: numbers, names, or None; None for any rank."""

    name: str
    type: str
    shape: tuple[int | str | None, ...] | None
    dtype: Any
    kind: str  # tensor, sequence or optional

    def __str__(self) -> str:
        dims = "…" if self.shape is None else ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.name}: {self.type}[{dims}]"


class About(NamedTuple):
    """A model's name, inputs and outputs. `defaults` are initializers that a call may replace."""

    name: str
    inputs: tuple[Port, ...]
    defaults: tuple[Port, ...]
    outputs: tuple[Port, ...]

    @property
    def every(self) -> tuple[Port, ...]:
        """All values that a call may pass: the input in slot -1, that in slot -2, …"""
        return *self.inputs, *self.defaults

    def bound(self, feeds: Mapping[str, Any]) -> dict[int, Any]:
        """Arrays by slot. Raises ArgumentError naming all that is missing, unknown, or does not fit."""
        every = self.every
        known = {p.name for p in every}
        wrong = [f"there is no input {name!r}" for name in feeds if name not in known]
        slots: dict[int, Any] = {}
        for p in self.inputs:
            if p.name not in feeds:
                wrong.append(f"input {p} is missing")
        for k, p in enumerate(every):
            if p.name not in feeds:
                continue
            given = feeds[p.name]
            if p.kind == "tensor":
                slots[-1 - k] = fitted(p, given, wrong)
            else:
                slots[-1 - k] = None if given is None else given if isinstance(given, (list, tuple)) else np.asarray(given)
        if wrong:
            raise ArgumentError(f"{self.name}: {'; '.join(wrong)}", fix=f"it takes {'; '.join(map(str, self.inputs)) or 'nothing'}")
        return slots


def fitted(p: Port, given: Any, wrong: list[str]) -> Any:
    """Returns a port's argument as an array of its type; complaints are added to `wrong`."""
    try:
        array = np.asarray(given)
    except ValueError:
        wrong.append(f"{p} got lists of different lengths")
        return np.zeros(0)
    if array.dtype.kind in "SU":
        array = array.astype(object)
    if p.dtype is not None and array.dtype != p.dtype:
        if not np.can_cast(array.dtype, p.dtype, "same_kind") and not isinstance(given, (bool, int, float, list)):
            wrong.append(f"{p} got an array of {array.dtype}")
            return array
        array = array.astype(p.dtype)
    if p.shape is not None:
        if array.ndim != len(p.shape) or any(isinstance(d, int) and d != n for d, n in zip(p.shape, array.shape, strict=True)):
            wrong.append(f"{p} got the shape {list(array.shape)}")
    return array
