"""Attention over named axes, and softmax's relatives `log_softmax` and `logsumexp`.

They are records of their own that lower to contractions and a softmax, so that a transformer may run them as one op.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ngraph.errors import AxisError, DTypeError
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axis, show_axes
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import Call, OpDef, find_axis, op, own_axes, show_input
from ngraph.ops.aligned import align, axes_like, union, wide, without
from ngraph.ops.elementwise import absolute, as_op, equal, exp, filled, floating, less, less_equal, log, logical_and, rounding_once, where
from ngraph.ops.linear import contract
from ngraph.ops.losses import softmax_record
from ngraph.ops.rearrange import axes_with_order, iota, map_roles
from ngraph.ops.reduce import in_order, listed, ordered_as, reduce, reduced_axes

# ---- logsumexp and log_softmax ----------------------------------------------------------------------------------------


def _largest(x: Op, axes: Any) -> Op:
    """Returns the maximum along axes, 0 where it is infinite or NaN and must not be subtracted."""
    m = reduce.build(x, kind="max", axes=axes)
    return where(less(absolute(m), math.inf), m, 0.0)


def _logsumexp_lower(op: Op, x: Op) -> Op:
    axes = op.attrs["axes"]

    def found(x: Op) -> Op:
        m = _largest(x, axes)
        return log(reduce.build(exp(x - m), kind="add", axes=axes)) + m

    return rounding_once(found)(x)


def _dims(call: Call) -> tuple[int, ...]:
    return tuple(call.inputs[0].axes.index(a) for a in call.attrs["axes"])


def _logsumexp(call: Call, x: np.ndarray, keepdims: bool = False) -> np.ndarray:
    x, dims = wide(x), _dims(call)
    with np.errstate(all="ignore"):
        m = x.max(axis=dims, keepdims=True, initial=-np.inf)
        m = np.where(np.isfinite(m), m, 0)
        found = np.log(np.exp(x - m).sum(axis=dims, keepdims=True)) + m
        return np.asarray(found if keepdims else found.reshape([n for k, n in enumerate(x.shape) if k not in dims]))


def _along(s: Any) -> list[tuple[Op, tuple[Axis, ...]]]:
    return [
        (s.x(s.I, s.J), (s.J,)),
        (s.x(s.J, s.N, s.I), (s.I, s.J)),
        (s.x(s.O, s.J), (s.O,)),
        (s.x(s.I, s.I - 1), (s.I,)),
        (s.x(s.Z, s.I), (s.I,)),
        (s.special(s.I, s.J), (s.J,)),
    ]


logsumexp_record: OpDef = op(
    "logsumexp",
    "The logarithm of the sum of e to the x along axes.",
    type=lambda inputs, axes: TensorType(without(inputs[0].axes, axes), inputs[0].dtype),
    reference=lambda call, x: _logsumexp(call, x).astype(call.dtype.np),
    lower=_logsumexp_lower,
    grad=lambda op, dy, x: dy * exp(x - where(equal(op, -math.inf), 0.0, op)),
    samples=lambda s: [logsumexp_record.build(x, axes=axes) for x, axes in _along(s)],
    ulp=16,
    error=1e-6,
    onnx="ReduceLogSumExp",
    torch="aten.logsumexp",
)


def _log_softmax_lower(op: Op, x: Op) -> Op:
    axes = op.attrs["axes"]

    def found(x: Op) -> Op:
        shifted = x - reduce.build(x, kind="max", axes=axes)
        return shifted - log(reduce.build(exp(shifted), kind="add", axes=axes))

    return rounding_once(found)(x)


def _log_softmax(call: Call, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        shifted = wide(x) - wide(x).max(axis=_dims(call), keepdims=True, initial=-np.inf)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=_dims(call), keepdims=True))).astype(call.dtype.np)


log_softmax_record: OpDef = op(
    "log_softmax",
    "The logarithm of softmax along axes, exact where softmax is near 0.",
    type=lambda inputs, axes: inputs[0],
    reference=_log_softmax,
    lower=_log_softmax_lower,
    grad=lambda op, dy, x: dy - exp(op) * reduce.build(dy, kind="add", axes=op.attrs["axes"]),
    samples=lambda s: [log_softmax_record.build(x, axes=axes) for x, axes in _along(s)],
    ulp=16,
    error=1e-6,
    onnx="LogSoftmax",
    torch="aten.log_softmax",
)


def logsumexp(x: Any, reduction_axes: Any = None, out_axes: Any = None) -> Op:
    """Returns log(sum(exp(x))) without overflow, over the axes that `sum` reduces; integers and bool as float32. Raises AxisError.

    >>> round(float(ng.function(ng.logsumexp(ng.constant([0.0, 0.0], "Y=2"), "Y"))()), 3)
    0.693
    """
    (x,), _ = floating((as_op(x),), {})
    out_axes = listed(out_axes)
    result = logsumexp_record.build(x, axes=reduced_axes(x, reduction_axes, out_axes, "logsumexp"))
    return result if out_axes is None else in_order(result, out_axes)


def log_softmax(x: Any, normalization_axes: Any = None) -> Op:
    """Returns log(softmax(x)) over `normalization_axes`: all but batch and recurrent axes by default. Raises AxisError.

    >>> ng.function(ng.log_softmax(ng.constant([0.0, 0.0], "Y=2"), "Y"))().round(3)
    array([-0.693, -0.693])
    """
    (x,), _ = floating((as_op(x),), {})
    return log_softmax_record.build(x, axes=reduced_axes(x, normalization_axes, None, "log_softmax"))


# ---- attention --------------------------------------------------------------------------------------------------------


def _score_axes(q: Any, k: Any, features: Any) -> tuple[Any, ...]:
    return union(without(q, features), without(k, (*features, *q)))


def _attention_type(
    inputs: tuple[TensorType, ...], features: tuple[Any, ...], keys: Any, queries: Any, causal: bool, scale: float
) -> TensorType:
    q, k, v, *mask = inputs
    scores = axes_like(q.axes, [*without(q.axes, features), *without(k.axes, (*features, *q.axes))])
    for m in mask:
        extra = [a for a in m.axes if a not in scores]
        if extra:
            raise AxisError(f"attention: the mask has {', '.join(map(str, extra))}, and the scores have {list(scores)}")
        if m.dtype.kind != "bool" and m.dtype is not q.dtype:
            raise DTypeError(f"attention of {q.dtype} with a mask of {m.dtype}", fix="bool masks keys; floats are added to the scores")
    return TensorType(axes_like(q.axes, [a for a in union(scores, v.axes) if a != keys]), q.dtype)


def _allowed(op: Op, mask: tuple[Op, ...]) -> Op | None:
    """Returns the bool mask of keys that a query attends to; None where it attends to all."""
    keys, queries, causal = (op.attrs[name] for name in ("keys", "queries", "causal"))
    said = [m for m in mask if m.dtype.kind == "bool"]
    if causal:
        said.append(less_equal(iota(keys), iota(queries)))
    if not said:
        return None
    return said[0] if len(said) == 1 else logical_and(*said)


def _attention_lower(op: Op, q: Op, k: Op, v: Op, *mask: Op) -> Op:
    keys = op.attrs["keys"]
    scores = contract(q * op.attrs["scale"], k, over=op.attrs["features"])
    for m in mask:
        if m.dtype.kind != "bool":
            scores = scores + m
    allowed = _allowed(op, mask)
    if allowed is None:
        weights = softmax_record.build(scores, axes=(keys,))
    else:  # finite, so that a query that attends to no key gives zeros and not NaN
        edge = float(np.finfo(np.float32).min / 2 if q.dtype.bits > 16 else -3e4)
        weights = where(allowed, softmax_record.build(where(allowed, scores, edge), axes=(keys,)), 0.0)
    return ordered_as(contract(weights, v, over=(keys,)), op.axes)


def _attention_reference(call: Call, q: np.ndarray, k: np.ndarray, v: np.ndarray, *mask: np.ndarray) -> np.ndarray:
    features, keys, queries, causal, scale = (call.attrs[name] for name in ("features", "keys", "queries", "causal", "scale"))
    tq, tk, tv, *tm = call.inputs
    every = list(dict.fromkeys([a for t in (tq, tk, tv) for a in t.axes if a != keys and a not in features]))
    scored = [a for a in every if a in tq.axes or a in tk.axes]
    with np.errstate(all="ignore"):
        a, b = (align(wide(x), t.axes, [*scored, keys, *features]) for x, t in ((q, tq), (k, tk)))
        scores = (a * b).sum(axis=tuple(range(len(scored) + 1, a.ndim))) * a.dtype.type(scale)
        scores = np.broadcast_to(scores, call.shape([*scored, keys]))
        allowed = np.ones(scores.shape, bool)
        for m, t in zip(mask, tm, strict=True):
            lined = align(m, t.axes, [*scored, keys])
            if m.dtype == bool:
                allowed = allowed & lined
            else:
                scores = scores + wide(lined)
        if causal:
            later = np.arange(call.length(keys)) > np.arange(call.length(queries))[:, None]
            allowed = allowed & ~align(later, [queries, keys], [*scored, keys])
        scores = np.where(allowed, scores, -np.inf)
        e = np.where(allowed, np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf)), 0)
        total = e.sum(axis=-1, keepdims=True)
        weights = np.where(allowed, e / np.where(total == 0, 1, total), 0).astype(scores.dtype)
        lost = [a for a in tv.axes if a in features]
        product = align(weights, [*scored, keys], [*every, *lost, keys]) * align(wide(v), tv.axes, [*every, *lost, keys])
        return align(np.asarray(product.sum(axis=-1)), [*every, *lost], call.axes).astype(call.dtype.np)


def _attention_samples(s: Any) -> list[Op]:
    t, d, h, n, e = s.I, s.J, s.K, s.N, s.axis(3, name="E")

    def one(q: Any, k: Any, v: Any, *mask: Op, causal: bool = False, scale: float = 0.5, keys: Any = None) -> Op:
        key_axis = keys or n
        inputs = (s.x(*axes) if isinstance(axes, tuple) else axes for axes in (q, k, v))
        return attention_record.build(*inputs, *mask, features=(d,), keys=key_axis, queries=t, causal=causal, scale=scale)

    never = s.given(np.arange(15).reshape(3, 5) % 4 * np.array([[1], [0], [1]]), t, n, dtype=dtypes.bool_)
    return [
        one((h, t, d), (h, n, d), (h, n, e)),
        one((h, t, d), (h, n, d), (h, n, d), causal=True),
        one((t, h, d), (n, d), (d, n), s.bools(n, t)),
        one((t, d), (d, n), (n, e), s.x(t, n), causal=True, scale=1.0),
        one((h, t, d), (n, d), (n,), never),
        one((h, t, d), (h, t - 1, d), (h, t - 1, d), causal=True, keys=t - 1),
        one((s.O, t, d), (n, s.O, d), (n, e)),
        one((s.Z, t, d), (s.Z, n, d), (s.Z, n, e), causal=True),
        one(s.special(t, d), s.special(n, d), s.special(n, e)),
    ]


attention_record: OpDef = op(
    "attention",
    "The means of v weighted by the softmax along `keys` of scale times the dot product of q and k over `features`, masked.",
    type=_attention_type,
    reference=_attention_reference,
    lower=_attention_lower,
    samples=_attention_samples,
    ulp=64,
    error=4e-6,
    onnx="Attention",
    torch="aten.scaled_dot_product_attention",
)


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    features: Any,
    queries: Axis | str,
    keys: Axis | str | None = None,
    mask: Any = None,
    causal: bool = False,
    scale: float | None = None,
    out_axes: Any = None,
) -> Op:
    """Returns for each query the mean of `v` over the keys, weighted by the softmax of scale * (q · k).

    features: the axis (or axes) of q and k that the dot product sums. queries: the axis of q along which the queries lie; keys: that of
    k and v. Without `keys`, k and v lie along `queries`, too (self-attention), and the keys' axis, for example in a mask, is its dual
    `queries - 1`. All other axes (batch, heads) that operands share are matched; an operand may lack some, as the keys of grouped heads do.
    mask: bool, True where a query attends to a key; or floats that are added to the scores. It may lack axes.
    causal: a query attends to keys up to its own position. A query that attends to no key gives zeros.
    scale: 1 / sqrt(length of the features) by default. out_axes: the order of the result's axes; by default q's without the features,
    then v's own. Raises AxisError, DTypeError. Source: A. Vaswani and others, "Attention is all you need" (2017).

    >>> q, k = ng.placeholder("T=5 D=8"), ng.placeholder("S=7 D=8")
    >>> v = ng.placeholder("S=7 D=8")
    >>> ng.attention(q, k, v, features="D", queries="T", keys="S").axes
    Axes(T=5, D=8)
    """
    (q, k, v), _ = floating((as_op(q), k, v), {})
    over = own_axes(q, features, "attention, features")
    for a in over:
        find_axis(k, a, "attention, features of k")
    row = find_axis(q, queries, "attention, queries")
    if keys is None or (isinstance(keys, Axis) and keys == row):
        column = row - 1
        k, v = (map_roles(x, {find_axis(x, row, "attention, keys"): column}) for x in (k, v))
    else:
        column = find_axis(k, keys, "attention, keys")
        find_axis(v, column, "attention, keys of v")
        if column in q.axes:
            raise AxisError(
                f"attention: q has the keys' axis {column!r} too: {show_axes(q.axes)}",
                details=(show_input(q), show_input(k)),
                fix="give queries and keys different axes, or omit `keys` for self-attention",
            )
    if scale is None:
        lengths = [a.length for a in over]
        if None in lengths:
            raise AxisError(f"attention: the length of {show_axes(over)} is not known", fix="give it, or scale=")
        scale = 1 / math.sqrt(math.prod(n or 1 for n in lengths))
    masks = () if mask is None else (_mask(as_op(mask), q),)
    made = attention_record.build(q, k, v, *masks, features=tuple(over), keys=column, queries=row, causal=bool(causal), scale=float(scale))
    return made if out_axes is None else axes_with_order(made, out_axes)


def _mask(mask: Op, q: Op) -> Op:
    return mask if mask.dtype.kind == "bool" else floating((mask, filled(0, (), q.dtype)), {"dtype": q.dtype})[0][0]
