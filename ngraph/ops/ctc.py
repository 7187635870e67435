"""Connectionist temporal classification: the loss of a sequence of scores against a shorter sequence of labels.

An alignment gives each time step a label or the blank; removing repetitions, then blanks, leaves the labels. The loss is minus the
logarithm of the summed probability of all alignments, computed by the forward recursion over the states

    blank l1 blank l2 blank … lL blank          (axis `states`, 2 L + 1 of them; L differs in each sample of a batch)

A time step keeps its state, advances to the next, or skips a blank between different labels. The gradient is the softmax less the
posterior of each label, which takes the backward recursion. Both are scans of logarithms, in which -1e30 stands for log 0: finite, so
differences of it are not NaN, and derivatives of every order exist.

Source: A. Graves, S. Fernández, F. Gomez, J. Schmidhuber, "Connectionist temporal classification" (ICML 2006).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ngraph.errors import AxisError, DTypeError
from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.axes import Axes, Axis, make_axis, show_axes
from ngraph.op_graph.expr import ExprLike, Idx
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import Call, OpDef, op, show_input
from ngraph.ops.aligned import align, wide, without
from ngraph.ops.control import scan
from ngraph.ops.elementwise import (
    as_op,
    cast,
    equal,
    exp,
    filled,
    floating,
    less,
    log,
    logical_and,
    logical_or,
    maximum,
    mod,
    not_equal,
    stop_gradient,
    where,
)
from ngraph.ops.indexing import gather, scatter
from ngraph.ops.rearrange import axes_with_order, broadcast, iota, reindex
from ngraph.ops.reduce import reduce
from ngraph.ops.sorting import cumsum

NEVER = -1e30  # log 0
INFINITE = 1e29  # a loss above it has no alignment


class _Lattice(NamedTuple):
    """The inputs of both recursions: log-probabilities, and the states of each sample."""

    states: Axis
    score: Op  # log-probability of every class [time, classes, …]
    label: Op  # the class of each state [states, …]
    emission: Op  # the score of a state's class [time, states, …]
    running: Op  # whether a time step counts [time, …]
    skips: Op  # whether a state may be reached from the one two before [states, …]
    last: Op  # the number of the last state […]


def _read(x: Op, axis: Axis, new: Axis, index: ExprLike, pad_value: Any) -> Op:
    """Returns `x` read at an index along one axis, which `new` replaces; `pad_value` outside."""
    index_of = {a: index if a == axis else Idx(a) for a in x.axes}
    return reindex(x, axes=[new if a == axis else a for a in x.axes], index=index_of, pad_value=pad_value)


def _shift(x: Op, states: Axis, by: int, pad_value: Any) -> Op:
    """Returns at each state the value of the state `by` before it."""
    return _read(x, states, states, Idx(states) - by, pad_value)


def _log_sum(*terms: Op) -> Op:
    """Returns log(exp(first) + exp(second) + …)."""
    top = terms[0]
    for t in terms[1:]:
        top = maximum(top, t)
    top = stop_gradient(top)
    total = exp(terms[0] - top)
    for t in terms[1:]:
        total = total + exp(t - top)
    return log(total) + top


def _log_softmax(x: Op, axis: Axis) -> Op:
    shifted = x - reduce.build(x, kind="max", axes=(axis,))
    return shifted - log(reduce.build(exp(shifted), kind="add", axes=(axis,)))


def _lattice(attrs: dict[str, Any], x: Op, labels: Op, steps: Op, counts: Op) -> _Lattice:
    time, classes, symbols, blank = (attrs[k] for k in ("time", "classes", "symbols", "blank"))
    states = make_axis(name=f"{symbols.name}_states").resized(symbols.size * 2 + 1)
    number = iota(states)
    is_blank = equal(mod(number, 2), 0)
    label = where(is_blank, blank, _read(labels, symbols, states, Idx(states) // 2, blank))
    skips = logical_and(not_equal(label, blank), not_equal(label, _shift(label, states, 2, blank)))
    score = _log_softmax(cast(x, dtypes.promote(x.dtype, dtypes.float32)), classes)
    emission = gather.build(score, label, axes=(classes,), mode="clip")
    return _Lattice(states, score, label, emission, less(iota(time), steps), skips, counts * 2)


def _pass(g: _Lattice, time: Axis, start: Op, by: int) -> tuple[Op, Op]:
    """Runs the recursion over time, forward (by 1) or backward (by -1), from log-probabilities of the states before the first step.

    Returns the last log-probabilities, and for each step those of its states before its own emission.
    """
    skips = g.skips if by == 1 else _shift(g.skips, g.states, -2, False)
    axes = Axes(a for a in g.emission.axes if a != time)

    def step(now: Op, xs: tuple[Op, Op]) -> tuple[Op, Op]:
        emission, running = xs
        two = where(skips, _shift(now, g.states, 2 * by, NEVER), NEVER)
        come = broadcast(_log_sum(now, _shift(now, g.states, by, NEVER), two), axes)
        return where(running, maximum(come + emission, NEVER), now), come

    return scan(step, broadcast(start, axes), (g.emission, g.running), time, reverse=by == -1)


def _at(g: _Lattice, state: Any) -> Op:
    """Returns log 1 at a state, log 0 elsewhere."""
    return where(equal(iota(g.states), state), filled(0, (), g.score.dtype), NEVER)


def _forward(g: _Lattice, time: Axis) -> tuple[Op, Op]:
    """Returns minus the log-probability of all alignments, and for each step the log-probabilities of its states before emission."""
    after, come = _pass(g, time, _at(g, 0), 1)
    number = iota(g.states)
    final = logical_or(equal(number, g.last), equal(number, g.last - 1))
    ends = where(final, after, NEVER)
    top = stop_gradient(reduce.build(ends, kind="max", axes=(g.states,)))
    return -(log(reduce.build(exp(ends - top), kind="add", axes=(g.states,))) + top), come


def _lower(op: Op, *inputs: Op) -> Op:
    loss, _ = _forward(_lattice(op.attrs, *inputs), op.attrs["time"])
    return cast(where(less(INFINITE, loss), np.inf, loss), op.dtype)


def _gradient(op: Op, dy: Op, x: Op, *others: Op) -> tuple[Op | None, ...]:
    """Returns softmax(x) less the posterior of each class, in the steps that count; NaN where no alignment exists."""
    time, classes = op.attrs["time"], op.attrs["classes"]
    g = _lattice(op.attrs, x, *others)
    loss, come = _forward(g, time)
    _, left = _pass(g, time, _at(g, g.last), -1)
    posterior = where(g.running, exp(come + g.emission + left + loss), 0.0)
    axes = Axes(g.score.axes)
    update = broadcast(posterior, (*(a for a in axes if a != classes), g.states))
    found = scatter.build(filled(0, axes, posterior.dtype), g.label, update, axes=(classes,), combine="add", mode="clip")
    slope = where(g.running, where(less(loss, INFINITE), exp(g.score) - found, np.nan), 0.0)
    return dy * cast(slope, x.dtype), *(None for _ in others)


def _type(inputs: tuple[TensorType, ...], time: Any, classes: Any, symbols: Any, blank: int) -> TensorType:
    x, labels, *lengths = inputs
    batch = without(x.axes, (time, classes))
    if not x.dtype.is_float or not all(t.dtype.is_integer for t in (labels, *lengths)):
        raise DTypeError(f"ctc of {', '.join(str(t.dtype) for t in inputs)}", fix="scores are floats, labels and lengths integers")
    if symbols not in labels.axes or symbols in x.axes or len(batch) != len(x.axes) - 2:
        raise AxisError(f"ctc along {time} and {classes} of {list(x.axes)}, {symbols} of {list(labels.axes)}")
    extra = [a for t in (labels, *lengths) for a in without(t.axes, (symbols, *batch))]
    if extra or any(symbols in t.axes for t in lengths):
        raise AxisError(f"ctc of {list(x.axes)} with labels {list(labels.axes)} and lengths {[list(t.axes) for t in lengths]}")
    return TensorType(batch, x.dtype)


def _one(score: np.ndarray, labels: np.ndarray, blank: int) -> float:
    """Returns the loss of one sample from log-probabilities [time, classes] and its labels."""
    path = [blank]
    for k in labels:
        path += [int(k), blank]
    now = np.full(len(path), -np.inf)
    now[0] = 0.0
    for row in score:
        come = now.copy()
        come[1:] = np.logaddexp(come[1:], now[:-1])
        for s in range(2, len(path)):
            if path[s] not in (blank, path[s - 2]):
                come[s] = np.logaddexp(come[s], now[s - 2])
        now = come + row[path]
    return -float(np.logaddexp.reduce(now[-2:]))


def _reference(call: Call, x: np.ndarray, *others: np.ndarray) -> np.ndarray:
    time, classes, symbols, blank = (call.attrs[k] for k in ("time", "classes", "symbols", "blank"))
    batch = call.axes
    x = align(wide(x), call.inputs[0].axes, (*batch, time, classes))
    tail = ((symbols,), (), ())
    labels, steps, counts = (
        np.broadcast_to(align(a, t.axes, (*batch, *rest)), (*call.shape(batch), *(call.length(a) for a in rest)))
        for a, t, rest in zip(others, call.inputs[1:], tail, strict=True)
    )
    loss = np.zeros(call.shape(batch))
    with np.errstate(all="ignore"):
        shifted = x - x.max(axis=-1, keepdims=True, initial=-np.inf)
        score = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        for n in np.ndindex(*loss.shape):
            loss[n] = _one(score[n][: steps[n]], labels[n][: counts[n]], blank)
    return loss.astype(call.dtype.np)


def _samples(s: Any) -> list[Op]:
    t, c, n, k = s.axis(5, name="REC"), s.J, s.axis(4, name="N"), s.axis(3, name="L")

    def case(x: Op, labels: Op, steps: Any, counts: Any, blank: int = 0) -> Op:
        time, classes, symbols = t, c, next(a for a in labels.axes if a.name == "L")
        return ctc_record.build(x, labels, steps, counts, time=time, classes=classes, symbols=symbols, blank=blank)

    def whole(values: Any, *axes: Axis) -> Op:
        return s.given(values, *axes, dtype=dtypes.int32)

    repeated = whole([[1, 2, 3, 1], [1, 3, 1, 2], [2, 3, 1, 2]], k, n)
    one = s.axis(1, name="L")
    return [
        case(s.x(t, c, n), repeated, whole([5, 4, 5, 4], n), whole([3, 2, 1, 0], n)),
        case(s.x(n, t, c), s.ints(n, k, low=0, high=2), whole([5, 5, 5, 5], n), s.ints(n, low=0, high=2), blank=3),
        case(s.x(c, t), whole([2, 2, 1], k), whole(5), whole(3)),
        case(s.x(t, c), whole([1], one), whole(1), whole(1)),
        case(s.x(t, c, n), whole([1, 2, 3], k), whole(4), whole([0, 1, 2, 3], n)),
        case(s.x(t, c, s.Z), s.ints(k, s.Z, low=1, high=2), s.ints(s.Z), s.ints(s.Z)),
        case(s.x(t, c, s.I - 1), s.ints(s.I - 1, k, low=1, high=1), whole([5, 5, 1], s.I - 1), whole([3, 2, 1], s.I - 1)),
        case(s.special(t, c, n), repeated, whole([5, 2, 3, 0], n), whole([3, 3, 2, 1], n)),
    ]


ctc_record: OpDef = op(
    "ctc",
    "Minus the logarithm of the probability that time steps with these scores spell the labels.",
    type=_type,
    reference=_reference,
    lower=_lower,
    grad=_gradient,
    samples=_samples,
    ulp=64,
    error=2e-5,
    torch="aten._ctc_loss",
)


def _spread(labels: Op, counts: Op, time: Axis) -> tuple[Op, Axis]:
    """Returns concatenated labels of all samples as one row for each sample, at most as long as there are time steps."""
    (packed,) = labels.axes
    symbols = make_axis(name=f"{packed.name}_of_sample").resized(expr.minimum(packed.size, time.size))
    batch = counts.axes.batch_axis()
    start = cumsum(counts, batch, exclusive=True) if batch is not None else filled(0, (), dtypes.int32)
    return gather.build(labels, start + iota(symbols), axes=(packed,), mode="fill"), symbols


def ctc(activations: Any, labels: Any, activation_lens: Any, label_lens: Any, axes: Any = None, blank: int = 0) -> Op:
    """Returns the connectionist temporal classification loss of each sample; infinite where no alignment fits its time steps.

    activations: scores before softmax: a recurrent axis, at most one batch axis, and one more for the classes.
    labels: integers, one row for each sample along an axis of their own; or all samples' labels concatenated along one axis.
    activation_lens, label_lens: numbers of time steps and labels of each sample; elements beyond are ignored.
    axes: the order of the result's axes. blank: the class that stands for no label.
    Only the activations have a gradient. Raises AxisError, DTypeError. Source: see the module.

    >>> time = ng.make_axis(6, name="REC", recurrent=True)
    >>> scores = ng.placeholder([time, *ng.axes("C=5 N=2")])
    >>> labels = ng.constant([[1, 2], [3, 3]], "L=2 N=2", dtype="int32")
    >>> steps, counts = (ng.constant([k, k], "N=2", dtype="int32") for k in (6, 2))
    >>> ng.ctc(scores, labels, steps, counts).axes
    Axes(N=2)
    """
    (x,), _ = floating((as_op(activations),), {})
    labels, steps, counts = (cast(as_op(a), dtypes.int32) for a in (labels, activation_lens, label_lens))
    time, batch = x.axes.recurrent_axis(), x.axes.batch_axes()
    classes = [a for a in x.axes if a is not time and not a.is_batch]
    own = [a for a in labels.axes if a not in x.axes]
    if time is None or len(batch) > 1 or len(classes) != 1 or len(own) != 1:
        raise AxisError(
            f"ctc({x.label}, {labels.label}): {show_axes(x.axes)} and {show_axes(labels.axes)}",
            details=(show_input(x), show_input(labels)),
            fix="activations have a recurrent axis (REC), a batch axis (N) and one of classes; labels one of their own, and may have N",
        )
    symbols = own[0]
    if len(labels.axes) == 1 and counts.axes:
        labels, symbols = _spread(labels, counts, time)
    made = ctc_record.build(x, labels, steps, counts, time=time, classes=classes[0], symbols=symbols, blank=int(blank))
    return made if axes is None else axes_with_order(made, axes)
