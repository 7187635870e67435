"""Translators of TensorFlow's calls, branches and loops, and of the lists of tensors that loops fill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.errors import GraphError, UnsupportedError
from ngraph.frontends.positional import control, indexing, shapes
from ngraph.frontends.positional.values import ConstantArray, Sizes, Tensor, Value, settled
from ngraph.frontends.tensorflow.graph import Resource
from ngraph.frontends.tensorflow.table import translates
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.expr import ExprLike
from ngraph.ops import elementwise as e
from ngraph.ops.distributions import truncated_normal
from ngraph.ops.indexing import scatter
from ngraph.ops.random import normal, uniform

Values = Sequence[Value]


@translates("PartitionedCall", "StatefulPartitionedCall")
def call(n: Any, *inputs: Value) -> tuple[Value, ...]:
    found: tuple[Value, ...] = n.call(n.attr("f"), inputs)
    return found


@translates("NoOp", "Assert", "Print", "PrintV2", "ControlTrigger", "DisableCopyOnRead")
def nothing(n: Any, *inputs: Value) -> tuple[Value, ...]:
    return tuple(inputs[:1]) if n.op == "Print" else ()


# ---- branches -----------------------------------------------------------------------------------------------------------


def _truth(n: Any, condition: Value) -> Value:
    """Returns a condition as bool: numbers are true where they are not 0."""
    if isinstance(condition, ConstantArray):
        return ConstantArray(np.array(bool(condition.array)))
    t = n.g.tensor(condition)
    return t if t.op.dtype.kind == "bool" else Tensor(e.not_equal(t.op, 0), t.dims)


@translates("If", "StatelessIf")
def if_(n: Any, condition: Value, *inputs: Value) -> tuple[Value, ...]:
    then, other = n.attr("then_branch"), n.attr("else_branch")
    return control.branch(n.g, _truth(n, condition), lambda: n.call(then, inputs), lambda: n.call(other, inputs))


@translates("Case", "StatelessCase")
def case(n: Any, index: Value, *inputs: Value) -> tuple[Value, ...]:
    branches = n.attr("branches")
    t = n.g.tensor(index)

    def way(k: int) -> tuple[Value, ...]:
        if k == len(branches) - 1:  # also for an index that is out of range
            found: tuple[Value, ...] = n.call(branches[k], inputs)
            return found
        here = Tensor(e.equal(t.op, k), t.dims)
        return control.branch(n.g, here, lambda: n.call(branches[k], inputs), lambda: way(k + 1))

    if isinstance(index, ConstantArray):
        k = int(index.array)
        found: tuple[Value, ...] = n.call(branches[k if 0 <= k < len(branches) else -1], inputs)
        return found
    return way(0)


# ---- loops --------------------------------------------------------------------------------------------------------------


@translates("While", "StatelessWhile")
def while_(n: Any, *inputs: Value) -> tuple[Value, ...]:
    """Lists become tensors that the loop carries; handles of variables stay outside of it."""
    g, cond, body = n.g, n.attr("cond"), n.attr("body")
    start = list(inputs)
    if any(isinstance(v, TensorList) and v.tensor is None for v in start):
        start = _with_shapes(n, body, start)
    carried = [k for k, v in enumerate(start) if not isinstance(v, Resource)]

    def whole(values: Values) -> list[Value]:
        found = list(start)
        for k, v in zip(carried, values, strict=True):
            old = start[k]
            found[k] = TensorList(g.tensor(v), old.count, old.shape, old.dtype) if isinstance(old, TensorList) else v
        return found

    def flat(values: Values) -> list[Value]:
        return [values[k].tensor if isinstance(values[k], TensorList) else values[k] for k in carried]

    def turn(values: Values) -> list[Value]:
        given = n.call(body, whole(values[2:]))
        return [_truth(n, n.call(cond, given)[0]), *flat(given)]

    first = _truth(n, n.call(cond, start)[0])
    return tuple(whole(control.loop(g, None, first, flat(start), turn)))


def _with_shapes(n: Any, body: str, start: list[Value]) -> list[Value]:
    """Returns the values of a loop with its lists made of zeros, of the shape that one turn gives them."""
    g = n.g
    before, assigned = dict(g.state), set(g.assigned)
    given = n.call(body, start)
    control.entered(g, before)
    g.assigned = assigned
    found = list(start)
    for k, (old, new) in enumerate(zip(start, given, strict=True)):
        if isinstance(old, TensorList) and old.tensor is None and isinstance(new, TensorList):
            found[k] = new if new.tensor is None else old.filled(n, new.tensor.shape[1:])
    return found


# ---- lists of tensors ---------------------------------------------------------------------------------------------------


class TensorList:
    """A list of tensors of one shape: one tensor with a dim in front, None before the first one is set.

    count  their number      shape  the shape of each, as far as the file says it      dtype  NumPy's dtype of their elements
    """

    __slots__ = ("tensor", "count", "shape", "dtype")

    def __init__(self, tensor: Tensor | None, count: ExprLike, shape: Sequence[Any] | None, dtype: Any):
        self.tensor, self.count, self.shape, self.dtype = tensor, count, shape, np.dtype(dtype)

    def filled(self, n: Any, shape: Sequence[ExprLike]) -> TensorList:
        """Returns the list with zeros for its tensors."""
        zeros = shapes.filled(n.g, np.zeros((), self.dtype)[()], [self.count, *shape])
        return TensorList(zeros, self.count, self.shape, self.dtype)

    def made(self, n: Any) -> Tensor:
        """Returns the list as one tensor. Raises GraphError where none of its tensors has been set, and the file says no shape."""
        if self.tensor is not None:
            return self.tensor
        if self.shape is None or None in self.shape:
            raise GraphError("a list of tensors is read of which none has been set, and whose shape is open")
        found = self.filled(n, [s for s in self.shape if s is not None]).tensor
        assert found is not None
        return found


def _element_shape(n: Any, v: Value) -> Sequence[Any] | None:
    """Returns the shape in an input, -1 as None; None for an unknown rank."""
    known = n.g.sizes(v) if isinstance(v, (ConstantArray, Sizes)) else None
    if known is None or (v.rank == 0):
        return None
    return [None if isinstance(s, int) and s < 0 else s for s in known]


@translates("TensorListReserve")
def reserve(n: Any, shape: Value, count: Value) -> TensorList:
    (many,) = n.g.sizes(count)
    made = TensorList(None, many, _element_shape(n, shape), n.attr("element_dtype"))
    return made.filled(n, list(made.shape)) if made.shape is not None and None not in made.shape else made


@translates("TensorListFromTensor")
def from_tensor(n: Any, x: Value, shape: Value) -> TensorList:
    t = n.g.full(n.g.tensor(x), [0])
    return TensorList(t, t.shape[0], t.shape[1:], t.np)


@translates("TensorListStack")
def stack(n: Any, items: TensorList, shape: Value) -> Tensor:
    return items.made(n)


@translates("TensorListLength")
def length(n: Any, items: TensorList) -> Value:
    return settled(np.array(items.count, object), np.dtype(np.int32))


@translates("TensorListElementShape")
def element_shape(n: Any, items: TensorList) -> Value:
    sizes = items.tensor.shape[1:] if items.tensor is not None else [(-1 if s is None else s) for s in items.shape or ()]
    made = np.empty(len(sizes), object)
    made[:] = list(sizes)
    return settled(made, n.attr("shape_type", np.dtype(np.int32)))


@translates("TensorListGetItem")
def get_item(n: Any, items: TensorList, index: Value, shape: Value = None) -> Tensor:
    return indexing.gathered(n.g, items.made(n), index, 0, n.takes[0])


@translates("TensorListGather")
def gather_items(n: Any, items: TensorList, indices: Value, shape: Value = None) -> Tensor:
    return indexing.gathered(n.g, items.made(n), indices, 0, n.takes[0])


@translates("TensorListSetItem")
def set_item(n: Any, items: TensorList, index: Value, item: Value) -> TensorList:
    g = n.g
    new = g.tensor(item)
    if items.tensor is None:
        items = items.filled(n, new.shape)
    assert items.tensor is not None
    t = g.full(items.tensor)
    u = g.full(new)
    if u.rank != t.rank - 1 or not all(g.same(a, b) for a, b in zip(u.shape, t.shape[1:], strict=True)):
        raise GraphError(f"{g.described(u)} is set in a list of tensors of the shape {[g.hint(s) for s in t.shape[1:]]}")
    u = g.renamed(u, t.dims[1:])
    at = control.scalar(g, g.tensor(index))
    place = indexing.index_along(g, at, indexing.known_array(index), t.dims[0], indexing.dim_named(0, n.takes[0]), negative=False)
    op = scatter.build(t.op, place, u.op, axes=(t.dims[0],), combine="set", mode="clip")
    return TensorList(g.made(op, t.dims), items.count, items.shape, items.dtype)


@translates("EmptyTensorList")
def empty(n: Any, shape: Value, most: Value) -> TensorList:
    return TensorList(None, 0, _element_shape(n, shape), n.attr("element_dtype"))


@translates("TensorListPushBack")
def push(n: Any, items: TensorList, item: Value) -> TensorList:
    t = n.g.tensor(item)
    last = Tensor(t.op, [None, *t.dims])
    if items.tensor is None:
        return TensorList(last, 1, t.shape, t.np)
    return TensorList(shapes.joined(n.g, [items.tensor, last], 0), items.count + 1, items.shape, items.dtype)


@translates("TensorListPopBack", results="output_handle tensor")
def pop(n: Any, items: TensorList, shape: Value = None) -> tuple[Value, ...]:
    t = items.made(n)
    count = items.count - 1
    rest = shapes.sliced(n.g, t, 0, 0, 1, count)
    return TensorList(rest, count, items.shape, items.dtype), shapes.at(n.g, t, 0, count)


@translates("TensorListConcatV2", "TensorListConcat", results="tensor lengths")
def concat_items(n: Any, items: TensorList, *more: Value) -> tuple[Value, ...]:
    t = items.made(n)
    made = n.g.reshape(t, [t.shape[0] * t.shape[1], *t.shape[2:]])
    many = n.g.number(t.shape[0])
    lengths = np.empty(many, object)
    lengths[:] = [t.shape[1]] * many
    return made, settled(lengths)


# ---- randomness ---------------------------------------------------------------------------------------------------------


@translates("RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt")
def random(n: Any, wanted: Value, *bounds: Value) -> Tensor:
    """Draws from the generator of this compiler: the distribution is TensorFlow's, the numbers are not."""
    g = n.g
    dims = [None if isinstance(s, int) and s == 1 else g.fresh(s) for s in g.sizes(wanted)]
    axes = [d for d in dims if d is not None]
    dtype = as_dtype(n.attr("dtype", np.dtype(np.float32)))
    if n.op == "RandomUniformInt":
        low, high = (g.tensor(b).op for b in bounds)
        draw = e.floor(uniform(axes, dtype=as_dtype("float64")) * e.cast(high - low, as_dtype("float64")))
        return Tensor(e.cast(draw, low.dtype) + low, dims)
    makers: dict[str, Callable[..., Any]] = {"RandomUniform": uniform, "RandomStandardNormal": normal, "TruncatedNormal": truncated_normal}
    return Tensor(e.cast(makers[n.op](axes), dtype), dims)


@translates("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond", "RefSwitch", "RefMerge", "RefEnter", "RefExit")
def old_control_flow(n: Any, *inputs: Value) -> Value:
    raise UnsupportedError(
        f"{n.op}, control flow of TensorFlow 1", fix="save the model again with tf.compat.v1.enable_control_flow_v2(), or with TensorFlow 2"
    )
