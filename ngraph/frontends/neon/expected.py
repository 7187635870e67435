"""Checks of the arguments of costs and metrics: probabilities or scores, and numbers of classes.

A prediction is judged by the op that computes it, where that is enough; else `Trainer` checks the first batch. Labels are checked in
NumPy before each batch runs: one pass over the array.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

import ngraph as ng
from ngraph.errors import ArgumentError, GraphError, Line, show_line
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.op import Op

PASSING = {"cast", "rename", "broadcast", "sequential", "value_of", "stop_gradient", "checkpoint"}  # ops that pass values on
SCORES = {"contract", "convolve", "relu", "tanh", "gelu", "silu", "softplus", "log_softmax", "log"}  # no probabilities
SHARES = {"softmax", "sigmoid"}  # ops whose results are from 0 to 1


class Prediction(NamedTuple):
    """A prediction that its op does not decide: the user, the axis along which probabilities sum to 1, whether scores are expected."""

    who: str
    y: Op
    axis: Axis | None
    logits: bool
    line: Line | None
    fix: str

    @property
    def numbers(self) -> list[Op]:
        """Returns the minimum and maximum, and the largest distance of sums along the axis from 1."""
        y = ng.cast(self.y, ng.float32)
        off = ng.absolute(ng.sum(y, reduction_axes=[self.axis]) - 1.0) if self.axis is not None else ng.constant(0.0)
        return [ng.min(y, out_axes=()), ng.max(y, out_axes=()), ng.max(off, out_axes=()) if off.axes else off]

    def judge(self, low: float, high: float, off: float) -> None:
        """Raises GraphError unless the values of a batch can be the expected kind. nan decides nothing."""
        narrow = _source(self.y).dtype.bits < 32
        if self.logits:
            slack = 0.02 if narrow else 1e-3  # the rounding error of the sum of a softmax
            if low >= 0 and high <= 1 and off <= slack:
                self.refuse(f"values of {self.y.label} sum to 1 along {self.axis!r} in the first batch")
            return
        slack = 0.1 if narrow else 0.01  # more than rounding errors, less than any score that is none by chance
        if low < -slack or high > 1 + slack:
            self.refuse(f"values of {self.y.label} go from {low:.3g} to {high:.3g} in the first batch")
        if off > slack:
            self.refuse(f"values of {self.y.label} sum to 1 along {self.axis!r} only within {off:.3g} in the first batch")

    def refuse(self, why: str) -> None:
        wanted = "scores, and its prediction has probabilities" if self.logits else "probabilities, and its prediction has none"
        raise GraphError(
            f"{self.who} takes {wanted}: {why}",
            details=(f"{self.y.label} was made at {show_line(self.y.line)}",),
            fix=self.fix,
            line=self.line,
        )


class Labels(NamedTuple):
    """Labels of a cost or metric: its name, the op, the number of classes, the number to ignore; `whole`: whether they
    are numbers of classes, else values from 0 to 1."""

    who: str
    target: Op
    classes: int
    ignore: int | None
    whole: bool

    def wrong(self, array: Any) -> np.ndarray | None:
        """Returns a mask of invalid labels; None where all are valid."""
        if not array.size or array.dtype.kind == "b":
            return None
        limit = self.classes - 1 if self.whole else 1
        fine = array.min() >= 0 and array.max() <= limit
        if fine and (not self.whole or array.dtype.kind != "f" or (array == np.rint(array)).all()):
            return None
        bad = ~((array >= 0) & (array <= limit))
        if self.whole and array.dtype.kind == "f":
            bad |= array != np.rint(array)
        if self.ignore is not None:
            bad &= array != self.ignore
        return bad if bad.any() else None

    def check(self, array: Any, key: str, where: str, number: Any) -> None:
        """Raises ArgumentError for the first invalid label. number: the index in the data of an example of the batch, or None."""
        array = np.asarray(array)
        bad = self.wrong(array)
        if bad is None:
            return
        place = tuple(int(k) for k in np.argwhere(bad)[0])
        value = array[place].item()
        value = int(value) if value == np.rint(value) and abs(value) < 1 << 62 else value
        example = place[0] if place else 0
        in_data = number(example)
        at = f"example {example}" + (f" (number {in_data:,} of the data)" if in_data is not None else "")
        inner = f" at {list(place[1:])}" if place[1:] else ""
        allowed = f"whole numbers from 0 to {self.classes - 1}, for {self.classes} classes" if self.whole else "from 0 to 1"
        fix = f"correct the data, or say that {value} is not a label: {self.who}(ignore={value})"
        if not self.whole:
            fix = "give 0 and 1"
        elif not isinstance(value, int):
            fix = "give numbers of classes as integers, or take a cost for numbers, such as MeanSquared()"
        elif value >= self.classes:
            fix = f"count classes from 0, or give the model's last layer {value + 1} outputs or more"
        raise ArgumentError(
            f"{self.who}: {at} of {where} has the label {value}{inner}, and labels are {allowed}",
            details=(f"{bad.sum():,} of the {array.size:,} in {key!r} are none",),
            fix=fix,
        )


_predictions: WeakKeyDictionary[Op, Prediction] = WeakKeyDictionary()
_labels: WeakKeyDictionary[Op, Labels] = WeakKeyDictionary()


# ---- declarations by costs and metrics -----------------------------------------------------------------------------------


def _source(y: Op) -> Op:
    """Returns the op that computes the values of y; others only move them."""
    while y.opdef.name in PASSING and y.inputs:
        y = y.inputs[-1]
    return y


def _are_scores(made: Op) -> bool:
    """Whether an op gives unbounded numbers: a product, with or without a bias, or an activation that is not from 0 to 1."""
    if made.opdef.name == "add":
        return any(i.is_trainable or _are_scores(i) for i in map(_source, made.inputs))
    return made.opdef.name in SCORES


def predicted(result: Op, who: str, y: Op, axis: Axis | None, logits: bool, line: Line | None, fix: str) -> Op:
    """Returns the result of a cost or metric, recorded with its expectation: probabilities (that sum to 1 along the axis) or scores.

    Raises GraphError where the op that computes y shows that it is the other.
    """
    made = _source(y)
    expected = Prediction(who, y, axis, logits, line, fix)
    if logits:
        if made.opdef.name in SHARES:
            expected.refuse(f"{made.opdef.name} made them")
        if axis is not None and not _are_scores(made):
            _predictions[result] = expected
        return result
    if _are_scores(made):
        expected.refuse(f"{made.opdef.name} made it, which gives numbers of any size")
    normal: tuple[Axis, ...] = tuple(made.attrs.get("axes", ())) if made.opdef.name == "softmax" else ()
    if not (made.opdef.name in SHARES if axis is None else len(normal) == 1 and normal[0].length == axis.length and not normal[0].is_batch):
        _predictions[result] = expected
    return result


def labelled(result: Op, who: str, target: Op, classes: int | None, ignore: int | None, whole: bool = True) -> Op:
    """Returns the result of an op over labels, recorded with their valid range."""
    if classes is not None:
        _labels[result] = Labels(who, target, classes, ignore, whole)
    return result


# ---- checks by a training or a computation --------------------------------------------------------------------------------


def predictions_in(roots: Iterable[Op]) -> list[Prediction]:
    """Returns the predictions of costs and metrics among these ops, or their dependencies, that their ops do not decide."""
    return [_predictions[o] for o in Op.all_op_references(list(roots)) if o in _predictions]


def labels_in(roots: Iterable[Op], placeholders: Mapping[str, Op]) -> list[tuple[str, Labels]]:
    """Returns (name of an entry, its valid values) for labels that come directly from a placeholder."""
    names = {p: name for name, p in placeholders.items()}
    return [
        (names[s], _labels[o]) for o in Op.all_op_references(list(roots)) if o in _labels and (s := _source(_labels[o].target)) in names
    ]


def computed_labels(roots: Iterable[Op]) -> list[Labels]:
    """Returns the valid values of labels that are computed from placeholders."""
    found = [_labels[o] for o in Op.all_op_references(list(roots)) if o in _labels]
    return [labels for labels in found if not _source(labels.target).is_placeholder]


def check_labels(found: Iterable[tuple[str, Labels]], batch: Mapping[str, Any], where: str, number: Any = lambda example: None) -> None:
    """Raises ArgumentError that names the first invalid label of a batch."""
    for key, labels in found:
        labels.check(batch[key], key, where, number)
