"""Translators of ai.onnx.ml but its trees: linear models, support vectors, scaling, encoding of categories, and labels."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.onnx.scores import FAMILY, binary, chosen, column, post
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.indexing import dim_named, index_along, known_array
from ngraph.frontends.positional.products import matmul
from ngraph.frontends.positional.reductions import along, total
from ngraph.frontends.positional.shapes import joined, padded
from ngraph.frontends.positional.text import in_python
from ngraph.frontends.positional.values import ConstantArray, StringInput, Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.control import while_loop
from ngraph.ops.indexing import bounded, gather
from ngraph.ops.rearrange import iota, product
from ngraph.ops.reduce import reduce

Array = np.ndarray[Any, Any]
sum_of = partial(functools.reduce, operator.add)  # of ops


def floats(n: Any, x: Value) -> Tensor:
    """A matrix of float32."""
    t = n.g.tensor(x)
    return Tensor(e.cast(t.op, dtypes.float32), [None, *t.dims] if t.rank == 1 else t.dims)


def vector(n: Any, values: Sequence[Any], dtype: Any = dtypes.float32) -> Tensor:
    return n.g.tensor(ConstantArray(np.asarray(values, dtype.np)))


# ---- scaling ------------------------------------------------------------------------------------------------------------------


@translates("Scaler", domain=FAMILY)
def scaler(n: Any, x: Value) -> Tensor:
    """(x - offset) * scale, each one for all features or one for each."""
    t = n.g.tensor(x)
    t = Tensor(e.cast(t.op, dtypes.float32), t.dims)
    offset, scale = (vector(n, n.attr(name) or [start]) for name, start in (("offset", 0.0), ("scale", 1.0)))
    return each(n.g, lambda a, b, c: (a - b) * c, t, offset, scale)


@translates("Normalizer", domain=FAMILY)
def normalizer(n: Any, x: Value) -> Tensor:
    """Rows over their largest, the sum of their sizes, or their length; rows of zeros stay."""
    t = n.g.tensor(x)
    t = Tensor(e.cast(t.op, dtypes.float32), t.dims)
    axes = along(t, [-1])
    norm = {"MAX": lambda x: total(x, axes, "max"), "L1": lambda x: total(e.absolute(x), axes), "L2": lambda x: e.sqrt(total(x * x, axes))}
    size = norm[n.attr("norm", "MAX")](t.op)
    return Tensor(t.op / e.where(e.equal(size, 0.0), 1.0, size), t.dims)


@translates("Binarizer", domain=FAMILY)
def binarizer(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    return Tensor(e.cast(e.less(n.attr("threshold", 0.0), e.cast(t.op, dtypes.promote(t.op.dtype, dtypes.float32))), t.op.dtype), t.dims)


@translates("Imputer", domain=FAMILY)
def imputer(n: Any, x: Value) -> Tensor:
    """Replaces missing values, NaN or a given number, by one number for all features, or one for each."""
    t = n.g.tensor(x)
    if t.op.dtype.is_float:
        values, gone = n.attr("imputed_value_floats"), n.attr("replaced_value_float", 0.0)
        is_gone: Callable[[Op], Op] = (lambda a: e.not_equal(a, a)) if gone != gone else (lambda a: e.equal(a, gone))
    else:
        values, gone = n.attr("imputed_value_int64s"), n.attr("replaced_value_int64", 0)
        is_gone = lambda a: e.equal(a, gone)
    return each(n.g, lambda a, b: e.where(is_gone(a), b, a), t, vector(n, values, t.op.dtype))


@translates("FeatureVectorizer", domain=FAMILY)
def feature_vectorizer(n: Any, *parts: Value) -> Tensor:
    """Columns of all inputs beside each other, each with as many as it is to have: the first ones, and zeros behind them."""
    ts = [n.g.tensor(v) for v in parts]
    ts = [Tensor(e.cast(t.op, dtypes.float32), t.dims if t.rank == 2 else [*t.dims, None]) for t in ts]
    for k, wide in enumerate(n.attr("inputdimensions") or []):
        missing = wide - n.g.number(ts[k].shape[1])
        if missing:
            ts[k] = padded(n.g, ts[k], 1, 0, missing)
    return joined(n.g, ts, 1)


@translates("ArrayFeatureExtractor", domain=FAMILY)
def feature_extractor(n: Any, x: Value, index: Value) -> Value:
    """Some columns of the last dim."""
    g = n.g
    if isinstance(x, StringInput) or np.dtype(x.np) == object:
        return in_python(n, lambda a, k: np.take(a, k.ravel(), axis=-1).reshape(*a.shape[:-1], k.size), [x, index], [object])[0]
    t = g.tensor(x)
    t = Tensor(t.op, [None, *t.dims]) if t.rank == 1 else t
    t = g.full(t, [t.rank - 1])
    at = g.reshape(g.tensor(index), [g.number(product(index.shape))])
    axis = t.dims[-1]
    place = index_along(g, at.op, known_array(index), axis, dim_named(t.rank - 1, n.takes[0]), negative=False)
    return g.made(gather.build(t.op, place, axes=(axis,), mode="clip"), [*t.dims[:-1], at.dims[0]])


# ---- categories ---------------------------------------------------------------------------------------------------------------


def number_of(g: Any, t: Tensor, keys: Array) -> Tensor:
    """Returns the index of each element among the keys; the number of keys where it is none of them. NaN equals NaN."""
    own = g.fresh(len(keys))
    kind = t.op.dtype
    known = e.constant(keys.astype(kind.np), [own])
    same = e.equal(t.op, known)
    if kind.is_float and np.isnan(keys).any():
        same = e.logical_or(same, e.logical_and(e.not_equal(t.op, t.op), e.not_equal(known, known)))
    place = e.where(same, iota(own), len(keys))
    return g.made(reduce.build(place, kind="min", axes=(own,)), t.dims)


LISTS = {"strings": object, "int64s": np.int64, "floats": np.float32}


def list_of(n: Any, name: str) -> Array | None:
    """Keys or values, in whichever attribute they stand."""
    for kind, dtype in LISTS.items():
        if n.has(f"{name}_{kind}"):
            return np.array(n.attr(f"{name}_{kind}"), dtype)
    held = n.attr(f"{name}_tensor")
    return None if held is None else np.asarray(held)


@translates("LabelEncoder", domain=FAMILY)
def label_encoder(n: Any, x: Value) -> Value:
    """Keys become values, whatever types both have; what is not a key becomes the default."""
    if n.version < 2:
        return mapped(n, x, np.array(n.attr("classes_strings"), object), np.arange(len(n.attr("classes_strings"))))
    keys, values = list_of(n, "keys"), list_of(n, "values")
    if keys is None or values is None or keys.shape != values.shape:
        raise GraphError("a LabelEncoder without keys and as many values", fix="is the file damaged?")
    return mapped(n, x, keys.ravel(), values.ravel())


def default_of(n: Any, values: Array) -> Any:
    held = n.attr("default_tensor")
    if held is not None and np.asarray(held).size:
        return np.asarray(held).ravel()[0]
    if values.dtype == object:
        return n.attr("default_string", "_Unused")
    return n.attr("default_float", -0.0) if values.dtype.kind == "f" else n.attr("default_int64", -1)


def mapped(n: Any, x: Value, keys: Array, values: Array) -> Value:
    default = default_of(n, values)
    if np.dtype(x.np) == object or values.dtype == object:
        table = {"nan" if k != k else k: v for k, v in zip(keys.tolist(), values.tolist(), strict=True)}

        def look(a: Array) -> Array:
            found = [table.get("nan" if v != v else v, default) for v in a.ravel().tolist()]
            return np.array(found, values.dtype).reshape(a.shape)

        return in_python(n, look, [x], [values.dtype])[0]
    g, t = n.g, n.g.tensor(x)
    own = g.fresh(len(values) + 1)
    kept = e.constant(np.append(values, np.asarray(default, values.dtype)), [own])
    return g.made(gather.build(kept, number_of(g, t, keys).op, axes=(own,), mode="clip"), t.dims)


@translates("CategoryMapper", domain=FAMILY)
def category_mapper(n: Any, x: Value) -> Value:
    names, numbers = np.array(n.attr("cats_strings"), object), np.array(n.attr("cats_int64s"), np.int64)
    return mapped(n, x, names, numbers) if np.dtype(x.np) == object else mapped(n, x, numbers, names)


@translates("OneHotEncoder", domain=FAMILY)
def one_hot(n: Any, x: Value) -> Value:
    """1 at the number of the category along a new last dim, 0 elsewhere."""
    names, numbers = n.attr("cats_strings"), n.attr("cats_int64s")
    if names:
        places = {v: k for k, v in enumerate(names)}

        def look(a: Array) -> Array:
            made = np.zeros((a.size, len(names)), np.float32)
            for row, v in enumerate(a.ravel()):
                if v in places:
                    made[row, places[v]] = 1
                elif not n.attr("zeros", 1):
                    raise GraphError(f"{v!r} is not a category of a OneHotEncoder", fix="give one of its categories")
            return made.reshape(*a.shape, len(names))

        return in_python(n, look, [x], [np.float32])[0]
    g, t = n.g, n.g.tensor(x)
    own = g.fresh(len(numbers))
    known = e.constant(np.array(numbers, np.int64), [own])
    same = e.equal(e.cast(t.op, dtypes.int64), known)
    made = e.cast(same, dtypes.float32)
    if not n.attr("zeros", 1):
        strange = e.cast(e.logical_not(reduce.build(same, kind="max", axes=(own,))), dtypes.int32)
        what, fix = "a number is not a category of a OneHotEncoder", "give one of its categories"
        made = e.where(e.equal(bounded(strange, g.fresh(1), what, "operand", fix), 0), made, 0.0)
    return g.made(made, [*t.dims, own])


@translates("ZipMap", domain=FAMILY)
def zip_map(n: Any, x: Value) -> Value:
    """A dict of labels and scores for each row, in an array of objects."""
    labels = n.attr("classlabels_strings") or n.attr("classlabels_int64s")

    def run(a: Array) -> Array:
        made = np.empty(len(a), object)
        made[:] = [dict(zip(labels, row.tolist(), strict=True)) for row in a]
        return made

    return n.g.host("ZipMap", run, [x], [object])[0]


# ---- linear models --------------------------------------------------------------------------------------------------------------


def linear(n: Any, x: Value, classes: int) -> Tensor:
    t = floats(n, x)
    coefficients = np.asarray(n.attr("coefficients"), np.float32).reshape(classes, -1)
    y = matmul(n.g, t, n.g.tensor(ConstantArray(coefficients.T.copy())))
    intercepts = n.attr("intercepts")
    return each(n.g, e.add, y, vector(n, intercepts)) if intercepts else y


@translates("LinearRegressor", domain=FAMILY)
def linear_regressor(n: Any, x: Value) -> Tensor:
    return post(n.g, linear(n, x, n.attr("targets", 1)), n.attr("post_transform", "NONE"))


@translates("LinearClassifier", domain=FAMILY)
def linear_classifier(n: Any, x: Value) -> tuple[Value, ...]:
    labels = n.attr("classlabels_strings") or n.attr("classlabels_ints")
    classes = len(n.attr("intercepts") or labels)
    scores = linear(n, x, classes)
    transform = n.attr("post_transform", "NONE")
    if classes == 1 and len(labels) == 2:
        edge = 0.5 if transform == "LOGISTIC" and not n.attr("multi_class", 0) else 0.0
        if transform == "LOGISTIC":
            scores = Tensor(e.sigmoid(scores.op), scores.dims)
        return binary(n, scores, labels, edge, "NONE", True)
    return chosen(n, scores, labels), post(n.g, scores, transform)


# ---- support vectors --------------------------------------------------------------------------------------------------------------


def kernel(n: Any, t: Tensor, vectors: Array) -> Tensor:
    """Returns the kernel between rows and the support vectors: [rows, vectors]."""
    gamma, coef0, degree = (n.attr("kernel_params") or [0.0, 0.0, 3.0])[:3]
    g, kind = n.g, n.attr("kernel_type", "LINEAR")
    products = matmul(g, t, g.tensor(ConstantArray(vectors.T.copy())))
    if kind == "LINEAR":
        return products
    if kind == "RBF":
        own = Tensor(total(t.op * t.op, along(t, [1])), [t.dims[0], None])
        theirs = vector(n, (vectors.astype(np.float64) ** 2).sum(1))
        return each(g, lambda p, a, b: e.exp(-gamma * (a + b - 2.0 * p)), products, own, theirs)
    if kind == "POLY":
        return each(g, lambda p: e.power(gamma * p + coef0, degree), products)
    if kind == "SIGMOID":
        return each(g, lambda p: e.tanh(gamma * p + coef0), products)
    raise GraphError(f"there is no kernel_type {kind!r}", fix="there are LINEAR, POLY, RBF and SIGMOID")


@translates("SVMRegressor", domain=FAMILY)
def svm_regressor(n: Any, x: Value) -> Tensor:
    t = floats(n, x)
    many = n.attr("n_supports", 0)
    rho = float((n.attr("rho") or [0.0])[0])
    if many:
        vectors = np.asarray(n.attr("support_vectors"), np.float32).reshape(many, -1)
        y = matmul(n.g, kernel(n, t, vectors), n.g.tensor(ConstantArray(np.asarray(n.attr("coefficients"), np.float32).reshape(-1, 1))))
    else:
        y = matmul(n.g, t, n.g.tensor(ConstantArray(np.asarray(n.attr("coefficients"), np.float32).reshape(-1, 1))))
    op = y.op + rho
    if n.attr("one_class", 0):
        op = e.where(e.less(0.0, op), 1.0, -1.0)
        return Tensor(op, y.dims)
    return post(n.g, Tensor(op, y.dims), n.attr("post_transform", "NONE"))


@translates("SVMClassifier", domain=FAMILY)
def svm_classifier(n: Any, x: Value) -> tuple[Value, ...]:
    """Each pair of classes votes by the sign of its decision; with prob_a the probabilities come from all pairs together."""
    g, labels = n.g, n.attr("classlabels_strings") or n.attr("classlabels_ints")
    t = floats(n, x)
    each_class = n.attr("vectors_per_class")
    coefficients = np.asarray(n.attr("coefficients"), np.float32)
    transform = n.attr("post_transform", "NONE")
    if not each_class:  # one plane for each class
        planes = coefficients.reshape(len(labels), -1)
        y = matmul(g, kernel(n, t, planes), g.tensor(ConstantArray(np.eye(len(planes), dtype=np.float32))))
        y = Tensor(y.op + float(n.attr("rho")[0]), y.dims)
        return chosen(n, y, labels), post(g, y, transform)
    classes, many = len(each_class), sum(each_class)
    vectors = np.asarray(n.attr("support_vectors"), np.float32).reshape(many, -1)
    coefficients = coefficients.reshape(classes - 1, many)
    starts = np.concatenate([[0], np.cumsum(each_class)])
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    weights = np.zeros((many, len(pairs)), np.float32)
    for k, (i, j) in enumerate(pairs):
        weights[starts[i] : starts[i + 1], k] = coefficients[j - 1, starts[i] : starts[i + 1]]
        weights[starts[j] : starts[j + 1], k] = coefficients[i, starts[j] : starts[j + 1]]
    decisions = each(g, e.add, matmul(g, kernel(n, t, vectors), g.tensor(ConstantArray(weights))), vector(n, n.attr("rho")))
    left, right = (np.array([[float(p[side] == c) for c in range(classes)] for p in pairs], np.float32) for side in (0, 1))
    positive = Tensor(e.cast(e.less(0.0, decisions.op), dtypes.float32), decisions.dims)
    negative = Tensor(1.0 - positive.op, decisions.dims)
    votes = each(g, e.add, matmul(g, positive, g.tensor(ConstantArray(left))), matmul(g, negative, g.tensor(ConstantArray(right))))
    if n.attr("prob_a"):
        scores = probabilities(n, decisions, pairs, classes)
    elif classes == 2:
        scores = joined(g, [Tensor(s, decisions.dims) for s in (-decisions.op, decisions.op)], 1)
    else:
        scores = decisions
    return chosen(n, votes, labels), post(g, scores, transform)


def probabilities(n: Any, decisions: Tensor, pairs: Sequence[tuple[int, int]], classes: int) -> Tensor:
    """From the probabilities of all pairs those of the classes: Wu, Lin and Weng 2004, second method, iterated as libsvm does."""
    g = n.g
    f = each(g, lambda d, a, b: d * a + b, decisions, vector(n, n.attr("prob_a")), vector(n, n.attr("prob_b")))
    r: dict[tuple[int, int], Op] = {}
    for k, (i, j) in enumerate(pairs):
        p = e.sigmoid(-column(g, f, k))
        p = e.minimum(e.maximum(p, 1e-7), 1 - 1e-7)
        r[i, j], r[j, i] = p, 1.0 - p
    every = range(classes)
    q = [[sum_of([r[i, t] * r[i, t] for i in every if i != t]) if j == t else -(r[j, t] * r[t, j]) for j in every] for t in every]

    def products(p: Sequence[Op]) -> tuple[list[Op], Op]:
        qp = [sum_of([q[t][j] * p[j] for j in range(classes)]) for t in range(classes)]
        return qp, sum_of([p[t] * qp[t] for t in range(classes)])

    def open_rows(p: Sequence[Op]) -> Op:
        qp, whole = products(p)
        worst = e.absolute(qp[0] - whole)
        for v in qp[1:]:
            worst = e.maximum(worst, e.absolute(v - whole))
        return e.less_equal(0.005 / classes, worst)

    def turn(carry: tuple[Op, ...]) -> tuple[Op, ...]:
        trips, *p = carry
        going = open_rows(p)
        old = list(p)
        qp, whole = products(p)
        for t in range(classes):
            diff = (whole - qp[t]) / q[t][t]
            p[t] = p[t] + diff
            below = 1.0 + diff
            whole = (whole + diff * (diff * q[t][t] + 2.0 * qp[t])) / (below * below)
            qp = [(qp[j] + diff * q[t][j]) / below for j in range(classes)]
            p = [v / below for v in p]
        return (trips - 1, *(e.where(going, new, was) for new, was in zip(p, old, strict=True)))

    def more(carry: tuple[Op, ...]) -> Op:
        going = open_rows(carry[1:])
        return e.logical_and(e.less(0, carry[0]), total(going, tuple(going.axes), "max"))

    rows = r[0, 1].axes
    start = [e.filled(max(100, classes), (), dtypes.int32), *(e.filled(1 / classes, rows, dtypes.float32) for _ in range(classes))]
    _, *p = while_loop(more, turn, tuple(start))
    return beside(g, p, decisions.dims[0])


def beside(g: Any, columns: Sequence[Op], rows: Any) -> Tensor:
    """Vectors as the columns of a matrix."""
    return joined(g, [Tensor(c, [rows, None]) for c in columns], 1)
