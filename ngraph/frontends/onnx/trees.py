"""Translators of ai.onnx.ml's tree ensembles: all trees are walked at once, a level in a step, by reading tables at each one's node.

A leaf stays where it is, so as many steps as the deepest tree has end everywhere; each leaf then adds a row to the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.onnx.scores import FAMILY, binary, chosen, column, labelled, post
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional.shapes import joined
from ngraph.frontends.positional.values import Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.control import while_loop
from ngraph.ops.indexing import gather
from ngraph.ops.rearrange import broadcast
from ngraph.ops.reduce import count, reduce

Array = np.ndarray[Any, Any]
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
LEAF = len(MODES)
UNROLLED = 12  # levels; deeper trees are walked in a loop


class Forest(NamedTuple):
    """Trees as tables over all their nodes. A leaf's branches lead to itself."""

    mode: Array
    feature: Array
    threshold: Array
    missing: Array  # where NaN goes the way of true
    true: Array
    false: Array
    roots: Array
    leaves: Array  # [nodes, targets]; NaN where a leaf says nothing of a target

    @property
    def depth(self) -> int:
        """The steps from a root to the farthest leaf. Raises GraphError for trees that go round."""
        level, steps = np.unique(self.roots), 0
        while (inner := level[self.mode[level] != LEAF]).size:
            steps += 1
            if steps > len(self.mode):
                raise GraphError("the nodes of a tree go round in a circle", fix="is the file damaged?")
            level = np.unique(np.concatenate([self.true[inner], self.false[inner]]))
        return steps


def listed(n: Any, name: str, kind: Any) -> Array:
    """An attribute that is a list of numbers, or a tensor of them."""
    held = n.attr(f"{name}_as_tensor")
    return np.asarray((n.attr(name) or []) if held is None else held, kind if held is None else None)


def forest(n: Any, prefix: str, targets: int) -> Forest:
    """The forest of a TreeEnsembleRegressor (`target`) or TreeEnsembleClassifier (`class`)."""
    trees, ids = (np.asarray(n.attr(f"nodes_{name}"), np.int64) for name in ("treeids", "nodeids"))
    size = len(ids)
    place = {key: k for k, key in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    names = {mode: k for k, mode in enumerate((*MODES, "LEAF"))}
    mode = np.array([names[m] for m in n.attr("nodes_modes")])
    leaf = mode == LEAF
    own = np.arange(size)

    def branch(name: str) -> Array:
        to = n.attr(f"nodes_{name}nodeids")
        return np.array([k if leaf[k] else place[t, i] for k, (t, i) in enumerate(zip(trees.tolist(), to, strict=True))], np.int64)

    true, false = branch("true"), branch("false")
    missing = np.asarray(n.attr("nodes_missing_value_tracks_true") or np.zeros(size), bool)
    reached = np.zeros(size, bool)
    reached[true[~leaf]] = reached[false[~leaf]] = True
    first = own[~reached]
    order = dict.fromkeys(trees.tolist())
    roots = np.array([next(k for k in first if trees[k] == t) for t in order], np.int64)
    threshold = listed(n, "nodes_values", np.float32)
    feature = np.asarray(n.attr("nodes_featureids"), np.int64)
    leaves = np.full((size, targets), np.nan, threshold.dtype)
    of = (n.attr(f"{prefix}_{name}") for name in ("treeids", "nodeids", "ids"))
    for t, i, c, w in zip(*of, listed(n, f"{prefix}_weights", np.float32).tolist(), strict=True):
        k = place[t, i]
        leaves[k, c] = w if np.isnan(leaves[k, c]) else leaves[k, c] + w
    return Forest(mode, np.where(leaf, 0, feature), threshold, missing, true, false, roots, leaves)


def walked(n: Any, x: Value, trees: Forest) -> tuple[Tensor, Any]:
    """The scores before base values [rows, trees, targets], and the axis of trees (None for one tree)."""
    g, t = n.g, n.g.tensor(x)
    if t.rank == 1:
        t = Tensor(t.op, [None, *t.dims])
    if t.op.dtype is not dtypes.float64:
        t = Tensor(e.cast(t.op, dtypes.float32), t.dims)
    t = g.full(t, [1])
    kind, features = t.op.dtype, t.dims[1]
    if g.truth("le", t.shape[1], int(trees.feature.max(initial=0))):
        raise GraphError(f"the trees ask for feature {int(trees.feature.max())}, and x is {g.show(t)}")
    nodes, every = g.fresh(len(trees.mode)), g.fresh(len(trees.roots))
    modes = np.unique(trees.mode[trees.mode != LEAF])

    def table(values: Array, dtype: Any) -> Op:
        return e.constant(values.astype(dtype.np), [nodes])

    feature, threshold = table(trees.feature, dtypes.int32), table(trees.threshold, kind)
    true, false = table(trees.true, dtypes.int32), table(trees.false, dtypes.int32)
    kinds = table(trees.mode, dtypes.int32)
    missing = table(trees.missing, dtypes.bool_) if trees.missing.any() else None

    def step(node: Op) -> Op:
        def at(values: Op) -> Op:
            return gather.build(values, node, axes=(nodes,), mode="clip")

        value, edge = gather.build(t.op, at(feature), axes=(features,), mode="clip"), at(threshold)
        tests = (e.less_equal, e.less, e.greater_equal, e.greater, e.equal, e.not_equal)
        go: Any = None
        for k in modes:
            this = tests[k](value, edge)
            go = this if go is None else e.where(e.equal(at(kinds), int(k)), this, go)
        if missing is not None:
            go = e.logical_or(go, e.logical_and(e.not_equal(value, value), at(missing)))
        return e.where(go, at(true), at(false))

    axes = [a for a in t.op.axes if a != features]
    node = broadcast(e.constant(trees.roots.astype(np.int32), [every]), [*axes, every])
    depth = trees.depth
    if depth <= UNROLLED:
        for _ in range(depth):
            node = step(node)
    else:
        left = e.filled(depth, (), dtypes.int32)
        node, _ = while_loop(lambda c: e.less(0, c[1]), lambda c: (step(c[0]), c[1] - 1), (node, left))
    targets = trees.leaves.shape[1]
    score = g.fresh(targets)
    rows = e.constant(trees.leaves.astype(kind.np), [nodes, score])
    return Tensor(gather.build(rows, node, axes=(nodes,), mode="clip"), [t.dims[0], every, score]), every


def summed(n: Any, scores: Tensor, every: Any, how: str, base: Array, dtype: Any = dtypes.float32, silent: bool = False) -> Tensor:
    """Scores of all trees in one, and the base values. silent: a target of which no leaf speaks is 0, as ONNX Runtime has it."""
    said = e.equal(scores.op, scores.op)  # NaN: a leaf says nothing
    if how in ("SUM", "AVERAGE"):
        y = reduce.build(e.where(said, scores.op, 0.0), kind="add", axes=(every,))
        y = y / count((every,), y.dtype) if how == "AVERAGE" else y
    elif how in ("MIN", "MAX"):
        end = np.inf if how == "MIN" else -np.inf
        y = reduce.build(e.where(said, scores.op, end), kind=how.lower(), axes=(every,))
    else:
        raise GraphError(f"there is no aggregate_function {how!r}", fix="there are SUM, AVERAGE, MIN and MAX")
    if base.size:
        b = e.constant(base.astype(y.dtype.np), [scores.dims[2]]) if base.size > 1 else e.filled(float(base[0]), (), y.dtype)
        y = y + b
    if how in ("MIN", "MAX") or silent and scores.dims[2].length != 1:
        y = e.where(reduce.build(said, kind="max", axes=(every,)), y, 0.0)
    return n.g.made(e.cast(y, dtype), [scores.dims[0], scores.dims[2]])


@translates("TreeEnsembleRegressor", domain=FAMILY)
def regressor(n: Any, x: Value) -> Tensor:
    scores, every = walked(n, x, forest(n, "target", n.attr("n_targets") or 1))
    y = summed(n, scores, every, n.attr("aggregate_function", "SUM"), listed(n, "base_values", np.float32), silent=True)
    return post(n.g, y, n.attr("post_transform", "NONE"))


@translates("TreeEnsembleClassifier", domain=FAMILY)
def classifier(n: Any, x: Value) -> tuple[Value, ...]:
    """The label of the best class, and all scores. Two classes whose leaves speak of one alone: that is the score of the second."""
    labels = n.attr("classlabels_strings") or n.attr("classlabels_int64s")
    trees = forest(n, "class", len(labels))
    base = listed(n, "base_values", np.float32)
    spoken = [k for k in range(len(labels)) if not np.isnan(trees.leaves[:, k]).all()]
    transform = n.attr("post_transform", "NONE")
    if len(labels) == 2 and len(spoken) == 1 and base.size < 2:
        single = trees._replace(leaves=trees.leaves[:, spoken])
        scores, every = walked(n, x, single)
        y = summed(n, scores, every, "SUM", base if spoken == [0] else np.zeros(0))
        positive = bool((np.nan_to_num(single.leaves) >= 0).all())
        label, both = binary(n, y, labels, 0.5 if positive else 0.0, transform, positive)
        if spoken == [1]:  # the other score is there, and 0
            first = Tensor(e.filled(float(base[0]) if base.size else 0.0, y.op.axes, y.op.dtype), y.dims)
            both = post(n.g, joined(n.g, [first, y], 1), transform)
        return label, both
    scores, every = walked(n, x, trees)
    y = summed(n, scores, every, "SUM", base)
    said = reduce.build(e.equal(scores.op, scores.op), kind="max", axes=(every,))
    heard = n.g.made(said if not base.size else e.filled(True, said.axes, dtypes.bool_), [scores.dims[0], scores.dims[2]])
    if len(labels) == 2:  # as ONNX Runtime has it: whether the second's score, or the first's if no leaf speaks of the second, is above 0
        deciding = e.where(column(n.g, heard, 1), column(n.g, y, 1), column(n.g, y, 0))
        return labelled(n, Tensor(e.cast(e.less(0.0, deciding), dtypes.int32), y.dims[:1]), labels), post(n.g, y, transform)
    best = Tensor(e.where(heard.op, y.op, -np.inf), y.dims)  # of classes of which a leaf of this row speaks
    return chosen(n, best, labels), post(n.g, y, transform)


# ---- TreeEnsemble, of version 5 -------------------------------------------------------------------------------------------------

MEMBER = 6  # one of several values; the modes before it are numbered as in MODES


@translates("TreeEnsemble", domain=FAMILY, since=5)
def ensemble(n: Any, x: Value) -> Tensor:
    trees = plain(n)
    scores, every = walked(n, x, trees)
    how = ("AVERAGE", "SUM", "MIN", "MAX")[n.attr("aggregate_function", 1)]
    y = summed(n, scores, every, how, np.zeros(0), scores.op.dtype)
    return post(n.g, y, ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[n.attr("post_transform", 0)])


def plain(n: Any) -> Forest:
    """Inner nodes and leaves in one table; a test for one of several values becomes a row of tests for one."""
    mode, splits = np.asarray(n.attr("nodes_modes")).tolist(), np.asarray(n.attr("nodes_splits"))
    features = n.attr("nodes_featureids")
    to = {side: (n.attr(f"nodes_{side}nodeids"), n.attr(f"nodes_{side}leafs")) for side in ("true", "false")}
    missing = n.attr("nodes_missing_value_tracks_true") or [0] * len(mode)
    weights, ids = np.asarray(n.attr("leaf_weights")), n.attr("leaf_targetids")
    members = members_of(n, mode)
    inner = len(mode)
    extra = sum(len(m) - 1 for m in members.values())
    first_leaf = inner + extra

    def target(side: str, k: int) -> int:
        ids_, leafs = to[side]
        return int(ids_[k]) + (first_leaf if leafs[k] else 0)

    rows = [[mode[k], features[k], float(splits[k]), missing[k], target("true", k), target("false", k)] for k in range(inner)]
    for k, values in members.items():
        yes, no, at = rows[k][4], rows[k][5], k
        for j, value in enumerate(values):
            last = j == len(values) - 1
            row = [4, features[k], value, missing[k], yes, no if last else len(rows)]
            rows[at] = row
            if not last:
                at = len(rows)
                rows.append([])
    for k in range(len(ids)):
        rows.append([LEAF, 0, 0.0, 0, first_leaf + k, first_leaf + k])
    columns = list(zip(*rows, strict=True))
    leaves = np.full((len(rows), n.attr("n_targets") or 1), np.nan, weights.dtype)
    leaves[first_leaf + np.arange(len(ids)), ids] = weights
    whole = [np.asarray(c) for c in columns]
    roots = np.asarray(n.attr("tree_roots"))
    return Forest(whole[0], whole[1], whole[2].astype(splits.dtype), whole[3].astype(bool), whole[4], whole[5], roots, leaves)


def members_of(n: Any, mode: Sequence[int]) -> dict[int, list[float]]:
    """The values of each test for one of several; in the attribute they stand one after another, NaN behind each."""
    wanted = [k for k, m in enumerate(mode) if m == MEMBER]
    if not wanted:
        return {}
    sets: list[list[float]] = [[]]
    for v in np.asarray(n.attr("membership_values")).tolist():
        if v != v:
            sets.append([])
        else:
            sets[-1].append(v)
    sets = [s for s in sets if s]
    if len(sets) < len(wanted):
        raise GraphError(f"{len(wanted)} tests for one of several values have {len(sets)} lists of values", fix="is the file damaged?")
    return dict(zip(wanted, sets, strict=False))
