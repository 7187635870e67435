"""Costs as classes: called with a prediction and a target they return the cost of each example, as an op; `Trainer` takes the mean.

Targets of classes may be integers (without the class axis) or probabilities along it.
"""

from __future__ import annotations

from typing import Any, Self

import ngraph as ng
from ngraph.errors import AxisError, Line, user_line
from ngraph.frontends.neon.bounds import BELOW_1, INTEGER, NOT_NEGATIVE, POSITIVE, WHOLE, check
from ngraph.frontends.neon.calls import Checked, refuse, wrong_kind
from ngraph.frontends.neon.expected import labelled, predicted
from ngraph.frontends.neon.layer import wide
from ngraph.op_graph.arguments import shown
from ngraph.op_graph.axes import Axis, show_axes
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import show_input


def class_axis(y: Op, t: Op, name: str) -> Axis:
    """Returns the axis of classes: the feature axis of y that integer targets lack, or y's only feature axis. Raises AxisError."""
    free = [a for a in y.axes if a not in t.axes and not a.is_batch]
    found = free or list(y.axes.feature_axes())
    if len(found) != 1:
        raise AxisError(
            f"{name}({y.label}, {t.label}): which axis of {show_axes(y.axes)} are the classes? The target has {show_axes(t.axes)}",
            details=(show_input(y), show_input(t)),
            fix="give predictions one axis that the target lacks, such as ax.Y",
        )
    return found[0]


def as_probabilities(y: Op, t: Op, name: str, ignore: int | None = None) -> Op:
    """Returns the target along y's class axis: one-hot where it holds numbers of classes. Raises AxisError where y lacks an axis of it."""
    axis = class_axis(y, t, name)
    more = [a for a in t.axes if a not in y.axes and a.length != 1]
    if more:
        raise AxisError(
            f"{name}({y.label}, {t.label}): the target has {show_axes(more)}, which the prediction {show_axes(y.axes)} lacks",
            details=(show_input(y), show_input(t)),
            fix=f"let it have {show_axes([axis])} in its place, or be numbers of classes without it",
        )
    return t if axis in t.axes else labelled(ng.cast(ng.one_hot(t, axis), y.dtype), name, t, axis.length, ignore)


def kept(t: Op, y: Op, ignore: int | None, mask: Any = None) -> Op | None:
    """Returns `mask`, with 0 where labels are to be ignored; None where all count. Targets along a class axis ignore none."""
    if ignore is None or set(y.axes) <= set(t.axes):
        return None if mask is None else ng.as_op(mask)
    own = ng.cast(ng.not_equal(t, ignore), ng.float32)
    return own if mask is None else own * ng.cast(ng.as_op(mask), ng.float32)


def alike(y: Op, t: Any, name: str) -> Op:
    """Returns the target, if it has the prediction's axes, up to those of length 1. Raises AxisError: others would broadcast it."""
    t = ng.as_op(t)
    unlike = [a for a in {*y.axes} ^ {*t.axes} if a.length != 1]
    if unlike and t.axes:
        raise AxisError(
            f"{name}({y.label}, {t.label}): {show_axes(sorted(unlike, key=repr))} is on one side only",
            details=(show_input(y), show_input(t)),
            fix="give prediction and target the same axes",
        )
    return t


def weighted(cost: Op, mask: Any) -> Op:
    """Returns a cost with a weight for each position; the sum over time is divided by the mean weight there."""
    return cost if mask is None else cost * ng.cast(ng.as_op(mask), cost.dtype)


def per_example(x: Op) -> Op:
    """Returns the sum over all but the batch axis."""
    return ng.sum(x, out_axes=[a for a in x.axes if a.is_batch])


def per_step(x: Op) -> Op:
    """Returns the mean over time, and the sum over features, of each example."""
    time = x.axes.recurrent_axes()
    return per_example(ng.mean(x, reduction_axes=time) if time else x)


def either(name: str, logits: bool, activation: str) -> str:
    """Returns fixes for a model and a cost that disagree on probabilities or scores."""
    if logits:
        return f"{name}() without logits=True, or a last layer without an activation"
    return f"{name}(logits=True), or activation={activation} in the last layer"


class Cost(Checked):
    """Base of costs: `cost(y, t)`. A subclass defines `of(y, t)`, the cost of each element or position.

    `ignore`, where a cost has it, is the label of positions that do not count: they cost nothing, and means are over the others.
    """

    aligned = True  # whether the target is one tensor, with axes of the prediction
    ignore: int | None = None
    _line: Line | None = None

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        made = super().__new__(cls)
        made._line = user_line()
        return made

    def of(self, y: Op, t: Op) -> Op:
        raise NotImplementedError(f"{type(self).__name__} has no of(y, t)")

    def __call__(self, y: Op, t: Any, mask: Any = None) -> Op:
        """Returns the cost of each example. mask: weights of positions, such as time steps; the mean is then weighted."""
        t = ng.as_op(t)
        cost = self.of(wide(y), t)
        m = kept(t, y, self.ignore, mask)
        if m is None:
            return per_step(cost)
        m = ng.cast(m, cost.dtype)
        if not set(m.axes) <= set(cost.axes):
            raise AxisError(
                f"{type(self).__name__}: the mask has {show_axes(m.axes)}, and the cost {show_axes(cost.axes)}",
                fix="give the mask axes of places, such as time and batch",
            )
        seen = per_example(m)
        return per_example(cost * m) / ng.maximum(seen, 1.0)

    def weight(self, y: Any, t: Any) -> Op | None:
        """Returns 1 for examples that count, and 0 for those whose labels are all ignored; None where all count."""
        m = kept(t, y, self.ignore) if isinstance(y, Op) and isinstance(t, Op) else None
        return None if m is None else ng.max(m, out_axes=m.axes.batch_axes())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items() if k[0] != '_')})"


class CrossEntropyMulti(Cost):
    """Minus the sum over classes of t * log(y), where y are probabilities, or with `logits` scores before softmax.

    smoothing: the share of each target that is spread over all classes. usebits: in bits. ignore: the label of positions that do not count,
    such as -1. Raises GraphError where the model's last op shows that y is the other of the two.
    Source of smoothing: C. Szegedy and others, "Rethinking the Inception architecture" (2015).
    """

    def __init__(self, logits: bool = False, smoothing: float = 0.0, usebits: bool = False, ignore: int | None = None):
        check("CrossEntropyMulti", BELOW_1, smoothing=smoothing)
        check("CrossEntropyMulti", INTEGER, ignore=ignore)
        self.logits, self.smoothing, self.usebits, self.ignore = logits, smoothing, usebits, ignore

    def of(self, y: Op, t: Op) -> Op:
        axis = class_axis(y, t, type(self).__name__)
        t = as_probabilities(y, t, type(self).__name__, self.ignore)
        if self.smoothing:
            t = t * (1.0 - self.smoothing) + self.smoothing / len(axis)
        p = ng.softmax(y, [axis]) if self.logits else y
        cost = ng.cross_entropy_multi(p, t, usebits=self.usebits, out_axes=[a for a in y.axes if a != axis])
        return predicted(cost, type(self).__name__, y, axis, self.logits, self._line, either(type(self).__name__, self.logits, "Softmax()"))


class CrossEntropyBinary(Cost):
    """-(t log y + (1 - t) log(1 - y)) of each output; y are probabilities, or with `logits` scores before the sigmoid. Integer targets
    become one-hot; `ignore` is the label of positions that do not count. Raises GraphError where the model's last op shows that y is the
    other of the two."""

    def __init__(self, logits: bool = False, usebits: bool = False, ignore: int | None = None):
        check("CrossEntropyBinary", INTEGER, ignore=ignore)
        self.logits, self.usebits, self.ignore = logits, usebits, ignore

    def of(self, y: Op, t: Op) -> Op:
        name = type(self).__name__
        numbers = set(y.axes) != set(t.axes)
        target = as_probabilities(y, t, name, self.ignore) if numbers else t
        cost = ng.cross_entropy_binary_inner(ng.sigmoid(y) if self.logits else y, target)
        cost = predicted(cost, name, y, None, self.logits, self._line, either(name, self.logits, "Logistic()"))
        cost = cost if numbers else labelled(cost, name, t, 2, self.ignore, whole=False)
        return cost * (1 / 0.6931471805599453) if self.usebits else cost


class SquaredL2(Cost):
    """The sum of (y - t)²; `half`: half of it."""

    def __init__(self, half: bool = False):
        self.half = half

    def of(self, y: Op, t: Op) -> Op:
        return ng.square(y - alike(y, t, "SquaredL2")) * (0.5 if self.half else 1.0)


class MeanSquared(Cost):
    """The mean of (y - t)² over features and time."""

    def of(self, y: Op, t: Op) -> Op:
        return ng.mean(ng.square(y - alike(y, t, "MeanSquared")), out_axes=y.axes.batch_axes())


class MeanAbsolute(Cost):
    """The mean of |y - t| over features and time."""

    def of(self, y: Op, t: Op) -> Op:
        return ng.mean(ng.absolute(y - alike(y, t, "MeanAbsolute")), out_axes=y.axes.batch_axes())


class Huber(Cost):
    """Half of d² where d = |y - t| is below delta, else delta * (d - delta / 2); the mean over features. Source: P. Huber (1964)."""

    def __init__(self, delta: float = 1.0):
        check("Huber", POSITIVE, delta=delta)
        self.delta = delta

    def of(self, y: Op, t: Op) -> Op:
        d = ng.absolute(y - alike(y, t, "Huber"))
        cost = ng.where(d < self.delta, ng.square(d) * 0.5, (d - self.delta / 2) * self.delta)
        return ng.mean(cost, out_axes=y.axes.batch_axes())


class CTC(Cost):
    """Connectionist temporal classification: see `ng.ctc`. The target is (labels, lengths of predictions, lengths of labels).

    A Trainer gets them by `target=lambda p: (p["labels"], p["lengths"], p["label_lengths"])`. An axis of the labels that has the name of
    one of the prediction's is another axis.
    Source: A. Graves and others (2006).
    """

    aligned = False

    def __init__(self, blank: int = 0):
        check("CTC", WHOLE, blank=blank)
        self.blank = blank

    def __call__(self, y: Op, t: Any, mask: Any = None) -> Op:
        if not isinstance(t, (tuple, list)) or len(t) != 3:
            raise wrong_kind(
                "CTC",
                f"the target is (labels, lengths of predictions, lengths of labels), not {shown(t)}",
                "Trainer(..., target=lambda p: (p['labels'], p['lengths'], p['label_lengths']))",
            )
        labels, lengths, label_lengths = map(ng.as_op, t)
        theirs = {a: f"{a.name}_labels" for a in labels.axes if not a.is_batch and a in y.axes}
        labels = ng.map_roles(labels, theirs)
        classes = [a for a in y.axes.feature_axes() if a.length is not None and a.length <= self.blank]
        if classes:
            why = f"the blank {self.blank} is none of the classes of {show_axes(classes)}, which begin with 0"
            raise refuse("CTC", why, f"CTC(blank={len(classes[0]) - 1}), or a last layer with {self.blank + 1} outputs")
        return ng.ctc(wide(y), labels, lengths, label_lengths, blank=self.blank)


class Triplet(Cost):
    """max(0, |anchor - positive|² - |anchor - negative|² + margin); the prediction is (anchor, positive, negative), without a target.

    Source: F. Schroff and others, "FaceNet" (2015).
    """

    def __init__(self, margin: float = 1.0):
        check("Triplet", NOT_NEGATIVE, margin=margin)
        self.margin = margin

    def __call__(self, y: Any, t: Any = None, mask: Any = None) -> Op:
        if not isinstance(y, (tuple, list)) or len(y) != 3:
            why = f"the prediction is (anchor, positive, negative), not {shown(y)}"
            raise wrong_kind("Triplet", why, "let the model give a tuple of three")
        anchor, positive, negative = map(wide, y)
        near, far = (per_example(ng.square(anchor - other)) for other in (positive, negative))
        return ng.maximum(near - far + self.margin, 0.0)
