"""Metrics: each batch's contribution is computed in the graph; contributions are combined, and the result computed, in NumPy.

    batch(y, t) -> {name: op}      combine(total, new) -> total, a sum by default      result(total) -> number or array

`mask` excludes positions (padding). Predictions are scores or probabilities along one axis, targets integers without it or one-hot.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

import ngraph as ng
from ngraph.errors import AxisError, Line, user_line
from ngraph.frontends.neon.bounds import COUNT, INTEGER, check
from ngraph.frontends.neon.calls import Checked, one_of, refuse
from ngraph.frontends.neon.costs import alike, as_probabilities, class_axis, either, kept
from ngraph.frontends.neon.expected import labelled, predicted
from ngraph.frontends.neon.layer import wide
from ngraph.op_graph.op import Op

Sums = dict[str, Any]


def _total(x: Op) -> Op:
    return ng.sum(ng.cast(x, ng.float32) if not x.dtype.is_float else x, out_axes=())


def _hits(guess: Op, y: Op, t: Op, metric: Metric) -> Op:
    """Returns whether a guess is the target's class."""
    name = type(metric).__name__
    axis = class_axis(y, t, name)
    if axis in t.axes:
        return ng.equal(guess, ng.argmax(t, reduction_axes=[axis]))
    return labelled(ng.equal(guess, ng.cast(t, ng.int32)), name, t, axis.length, metric.ignore)


class Metric(Checked):
    """Base of metrics. `name` is shown by progress bars and tables; `better` is "max" or "min".

    `ignore`, where a metric has it, is the label of positions that do not count, such as -1.
    """

    name = "metric"
    better = "max"
    ignore: int | None = None
    _line: Line | None = None

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        made = super().__new__(cls)
        made._line = user_line()
        return made

    def batch(self, y: Op, t: Op, mask: Any = None) -> dict[str, Op]:
        """Returns the contribution of one batch, as ops."""
        raise NotImplementedError(f"{type(self).__name__} has no batch")

    def combine(self, total: Sums | None, new: Sums) -> Sums:
        """Returns the totals after one more batch."""
        new = {k: np.asarray(v, np.float64) for k, v in new.items()}
        return new if total is None else {k: total[k] + v for k, v in new.items()}

    def result(self, total: Sums) -> Any:
        """Returns the metric's number for totals."""
        return float(total["sum"] / total["count"]) if total["count"] else float("nan")

    def _mean(self, each: Op, mask: Any) -> dict[str, Op]:
        """Returns the sum of a quantity over positions, and the number of positions."""
        each = ng.cast(each, ng.float32) if each.dtype is not ng.float64 else each
        weight = ng.broadcast(ng.constant(1.0), each.axes) if mask is None else ng.cast(ng.as_op(mask), ng.float32)
        return {"sum": _total(each * weight), "count": _total(ng.broadcast(weight, each.axes) if mask is not None else weight)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items() if k[0] != '_')})"


class Accuracy(Metric):
    """The share of positions whose highest score is the target's class; without a class axis, those on the right side of `threshold`."""

    name = "accuracy"

    def __init__(self, threshold: float = 0.5, ignore: int | None = None):
        check(type(self).__name__, INTEGER, ignore=ignore)
        self.threshold, self.ignore = threshold, ignore

    def batch(self, y: Op, t: Op, mask: Any = None) -> dict[str, Op]:
        if set(y.axes) == set(t.axes) and not y.axes.feature_axes():
            right = ng.equal(y > self.threshold, ng.cast(t, ng.float32) > 0.5)
            return self._mean(labelled(right, type(self).__name__, t, 2, None, whole=False), mask)
        best = ng.argmax(y, reduction_axes=[class_axis(y, t, type(self).__name__)])
        return self._mean(_hits(best, y, t, self), kept(t, y, self.ignore, mask))


class Misclassification(Accuracy):
    """The share of positions whose highest score is not the target's class."""

    name, better = "misclassification", "min"

    def result(self, total: Sums) -> float:
        return 1.0 - float(super().result(total))


class TopK(Metric):
    """The share of positions whose target's class is among the k highest scores."""

    def __init__(self, k: int = 5, ignore: int | None = None):
        check("TopK", COUNT, k=k)
        check("TopK", INTEGER, ignore=ignore)
        self.k, self.ignore = k, ignore

    @property
    def name(self) -> str:  # type: ignore[override]  # a field in the base class
        return f"top_{self.k}"

    def batch(self, y: Op, t: Op, mask: Any = None) -> dict[str, Op]:
        axis = class_axis(y, t, "TopK")
        _, best = ng.top_k(y, axis, ng.make_axis(self.k, name="best"))
        hit = ng.max(ng.cast(_hits(best, y, t, self), ng.float32), reduction_axes=[best.axes.find_axis("best")])
        return self._mean(hit, kept(t, y, self.ignore, mask))


class ConfusionMatrix(Metric):
    """The number of positions of each class (rows) predicted as each class (columns)."""

    name = "confusion"

    def __init__(self, ignore: int | None = None):
        check(type(self).__name__, INTEGER, ignore=ignore)
        self.ignore = ignore

    def batch(self, y: Op, t: Op, mask: Any = None) -> dict[str, Op]:
        axis = class_axis(y, t, type(self).__name__)
        seen = ng.make_axis(len(axis), name="predicted")
        truth = as_probabilities(y, t, type(self).__name__, self.ignore)
        mask = kept(t, y, self.ignore, mask)
        if mask is not None:
            truth = truth * ng.cast(mask, truth.dtype)
        guess = ng.one_hot(ng.argmax(y, reduction_axes=[axis]), seen)
        return {"counts": ng.contract(truth, guess, over=tuple(a for a in guess.axes if a != seen))}

    def result(self, total: Sums) -> Any:
        return total["counts"].astype(np.int64)


def _ratio(a: Any, b: Any) -> Any:
    return np.divide(a, b, out=np.zeros_like(a, np.float64), where=b != 0)


class _OfConfusion(ConfusionMatrix):
    """A number from the confusion matrix. average: "macro" (mean over classes), "micro", or None (one for each class)."""

    def __init__(self, average: str | None = "macro", ignore: int | None = None):
        super().__init__(ignore)
        one_of(type(self).__name__, "average", average, ("macro", "micro", None))
        self.average = average

    def _of(self, right: Any, said: Any, true: Any) -> Any:
        raise NotImplementedError

    def result(self, total: Sums) -> Any:
        counts = total["counts"]
        right, said, true = np.diag(counts), counts.sum(0), counts.sum(1)
        if self.average == "micro":
            right, said, true = right.sum(keepdims=True), said.sum(keepdims=True), true.sum(keepdims=True)
        each = self._of(right, said, true)
        return each if self.average is None else float(each.mean())


class Precision(_OfConfusion):
    """Of positions predicted as a class, the share that belong to it."""

    name = "precision"

    def _of(self, right: Any, said: Any, true: Any) -> Any:
        return _ratio(right, said)


class Recall(_OfConfusion):
    """Of positions of a class, the share predicted as it."""

    name = "recall"

    def _of(self, right: Any, said: Any, true: Any) -> Any:
        return _ratio(right, true)


class F1(_OfConfusion):
    """The harmonic mean of precision and recall."""

    name = "f1"

    def _of(self, right: Any, said: Any, true: Any) -> Any:
        return _ratio(2 * right, said + true)


class MSE(Metric):
    """The mean of (y - t)² over all elements."""

    name, better = "mse", "min"

    def batch(self, y: Op, t: Op, mask: Any = None) -> dict[str, Op]:
        return self._mean(ng.square(wide(y) - alike(y, t, "MSE")), mask)


class MAE(Metric):
    """The mean of |y - t| over all elements."""

    name, better = "mae", "min"

    def batch(self, y: Op, t: Op, mask: Any = None) -> dict[str, Op]:
        return self._mean(ng.absolute(wide(y) - alike(y, t, "MAE")), mask)


class Perplexity(Metric):
    """e to the mean of minus log of the target's probability; `logits`: predictions are scores before softmax."""

    name, better = "perplexity", "min"

    def __init__(self, logits: bool = False, ignore: int | None = None):
        check(type(self).__name__, INTEGER, ignore=ignore)
        self.logits, self.ignore = logits, ignore

    def batch(self, y: Op, t: Op, mask: Any = None) -> dict[str, Op]:
        name = type(self).__name__
        axis = class_axis(y, t, name)
        logs = ng.log_softmax(wide(y), [axis]) if self.logits else ng.safelog(wide(y))
        picked = ng.sum(logs * as_probabilities(y, t, name, self.ignore), reduction_axes=[axis])
        picked = predicted(picked, name, y, axis, self.logits, self._line, either(name, self.logits, "Softmax()"))
        return self._mean(-picked, kept(t, y, self.ignore, mask))

    def result(self, total: Sums) -> Any:
        return float(np.exp(super().result(total)))


class BitsPerCharacter(Perplexity):
    """The mean of minus log2 of the target's probability."""

    name = "bits"

    def result(self, total: Sums) -> Any:
        return float(total["sum"] / total["count"] / np.log(2))


class AUC(Metric):
    """The area under the receiver operating characteristic of scores without a class axis, or of class 1 of two; exact, with ties halved.

    It keeps all scores. Raises ArgumentError where only one class occurs.
    """

    name = "auc"

    def batch(self, y: Op, t: Op, mask: Any = None) -> dict[str, Op]:
        if y.axes.feature_axes() and set(y.axes) != set(t.axes):
            axis = class_axis(y, t, "AUC")
            if axis.length != 2:
                raise AxisError(f"AUC({y.label}): {axis!r} are more than two classes", fix="give scores of one class, or of two")
            y = ng.slice_along_axis(y, axis, 1)
        t = labelled(ng.axes_with_order(ng.cast(t, ng.float32), y.axes), "AUC", t, 2, None, whole=False)
        one = ng.broadcast(ng.constant(1.0), y.axes) if mask is None else ng.broadcast(ng.cast(ng.as_op(mask), ng.float32), y.axes)
        return {"scores": y, "labels": t, "weights": one}

    def combine(self, total: Sums | None, new: Sums) -> Sums:
        flat = {k: [np.asarray(v).ravel()] for k, v in new.items()}
        return flat if total is None else {k: total[k] + v for k, v in flat.items()}

    def result(self, total: Sums) -> float:
        scores, labels, weights = (np.concatenate(total[k]) for k in ("scores", "labels", "weights"))
        scores, labels = scores[weights > 0], labels[weights > 0] > 0.5
        positives, negatives = int(labels.sum()), int((~labels).sum())
        if not positives or not negatives:
            why = f"AUC needs both classes, and saw {positives} positives and {negatives} negatives"
            raise refuse("AUC", why, "evaluate it on data that have both")
        _, which, count = np.unique(scores, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(count) - (count - 1) / 2)[which]
        return float((ranks[labels].sum() - positives * (positives + 1) / 2) / (positives * negatives))


class Streamed:
    """Metrics over batches: `ops` for a computation, `add` with its results, `results` at the end."""

    def __init__(self, metrics: Any, y: Any, t: Any, mask: Any = None):
        self.metrics: list[Metric] = list(metrics)
        self.keys: list[tuple[int, str]] = []
        self.ops: list[Op] = []
        for k, metric in enumerate(self.metrics):
            for name, op in metric.batch(y, t, mask).items():
                self.keys.append((k, name))
                self.ops.append(op)
        self.reset()

    def reset(self) -> None:
        self.totals: list[Sums | None] = [None] * len(self.metrics)

    def add(self, values: Any) -> None:
        """Adds the results of `ops` for one batch."""
        found: list[Sums] = [{} for _ in self.metrics]
        for (k, name), value in zip(self.keys, values, strict=True):
            found[k][name] = value
        self.totals = [m.combine(t, new) for m, t, new in zip(self.metrics, self.totals, found, strict=True)]

    def results(self) -> dict[str, Any]:
        """Returns {name: number}; empty before the first batch."""
        return {m.name: m.result(t) for m, t in zip(self.metrics, self.totals, strict=True) if t is not None}
