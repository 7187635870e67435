"""Lists of tensors that loops fill: TensorLists, and the TensorArrays of TensorFlow 1, whose `flow` is such a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.positional import control, indexing, shapes
from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional.folding import is_text
from ngraph.frontends.positional.text import in_python
from ngraph.frontends.positional.trace import Inside
from ngraph.frontends.positional.values import NOTHING, ConstantArray, Sizes, Tensor, Value, settled
from ngraph.frontends.tensorflow.table import EARLY, Ints, Length, rows, translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import ExprLike
from ngraph.ops import elementwise as e
from ngraph.ops.indexing import gather, scatter

SETTING = frozenset({"TensorListSetItem", "TensorArrayWriteV3"})  # ops that set the place of their second input


class TensorList:
    """A list of tensors of one shape: one tensor with a dim in front, None before the first one is set.

    count  their number, -1: that of a loop's turns      shape  the shape of each, as far as the file says it
    dtype  NumPy's dtype of their elements               gradient  whether it holds derivatives of another list's
    each   the value of each, where all are known to be it    turns  whether they are the numbers of a loop's turns, in order
    last   the tensor that was set last    text  of a list of strings these, along a dim in front
    items  the values, where they are no tensors of one kind: what the branches of a loop's turns keep for their derivatives
    """

    __slots__ = ("count", "dtype", "each", "gradient", "items", "last", "shape", "tensor", "text", "turns")

    def __init__(self, tensor: Tensor | None, count: ExprLike, shape: Sequence[Any] | None, dtype: Any, gradient: bool = False):
        self.tensor, self.count, self.shape, self.dtype, self.gradient = tensor, count, shape, np.dtype(dtype), gradient
        self.each, self.turns, self.last, self.text = None, False, None, None
        self.items: list[Value] | None = None

    @property
    def empty(self) -> bool:
        """Whether none of its values has been set."""
        return self.tensor is None and self.items is None

    def of(self, tensor: Tensor | None, count: ExprLike | None = None) -> TensorList:
        """Returns a list like it with these tensors."""
        return TensorList(tensor, self.count if count is None else count, self.shape, self.dtype, self.gradient)

    def holding(self, items: list[Value]) -> TensorList:
        """Returns a list like it of values that are no tensors of one kind."""
        made = self.of(None, len(items))
        made.items = items
        return made

    def filled(self, n: Any, shape: Sequence[ExprLike]) -> TensorList:
        """Returns the list with zeros for its tensors. Raises GraphError where their number is that of turns, which is not known."""
        if self.count == -1:
            raise GraphError("a stack is filled in a loop that does not count its turns", fix="loop while a counter is below a limit")
        return self.of(shapes.filled(n.g, np.zeros((), self.dtype)[()], [self.count, *shape]))

    def made(self, n: Any, said: Value = None) -> Tensor:
        """Returns the list as one tensor. said: the shape of each tensor, as the op that reads them has it, -1 for what is open.

        Raises GraphError where none of its tensors has been set, and the file says no shape.
        """
        if self.tensor is not None:
            return self.tensor
        shape = self.shape
        if isinstance(said, ConstantArray) and said.array.ndim and (said.array >= 0).all():
            shape = said.array.tolist()
        if shape is None or None in shape:
            raise GraphError("a list of tensors is read of which none has been set, and whose shape is open")
        found = self.filled(n, [s for s in shape if s is not None]).tensor
        assert found is not None
        return found

    def from_end(self, n: Any, turn: Value) -> Value:
        """Returns the last tensor but `turn` others."""
        if self.each is not None:
            return self.each
        if self.items is not None:
            if not isinstance(turn, ConstantArray):
                raise Inside
            return self.items[-1 - int(turn.array)]
        t = n.g.full(self.tensor, [0])
        at = shapes.size_op(t.shape[0], dtypes.int64) - 1 - e.cast(control.scalar(n.g, n.g.tensor(turn)), dtypes.int64)
        return n.g.made(gather(t.op, at, axes=(t.dims[0],), mode="clip"), t.dims[1:])

    def resized(self, n: Any, many: ExprLike) -> TensorList:
        """Returns the list with `many` tensors: its first ones, and zeros behind them where it had fewer."""
        g = n.g
        if self.items is not None:
            return self.holding(self.items[: g.number(many)])
        if g.same(many, 0) or self.tensor is None:
            return self.of(None, many)
        if g.same(many, self.count):
            return self
        if g.truth("lt", many, self.count):
            return self.of(shapes.sliced(g, self.tensor, 0, 0, 1, many), many)
        return self.of(shapes.padded(g, g.full(self.tensor, [0]), 0, 0, many - self.count), many)

    def length(self, n: Any) -> Value:
        """Returns the number of its tensors."""
        return settled(self.count, np.int32)


class TurnItem(TensorList):
    """A list within a turn of a loop: the tensor that the turn sets at its number, pushes, or pops.

    turn: the turn's number, where the list has as many tensors before it, and one more behind it.
    """

    __slots__ = ("item", "turn")

    def __init__(self, items: TensorList, turn: Value = None):
        super().__init__(items.tensor, items.count, items.shape, items.dtype, items.gradient)
        self.item: Value = None
        self.turn = turn

    def having(self, item: Value) -> TurnItem:
        """Returns the list behind what sets or pushes this."""
        made = TurnItem(self, self.turn)
        made.item = item
        return made

    def length(self, n: Any) -> Value:
        """See `TensorList.length`."""
        if self.turn is None:
            return super().length(n)
        return self.turn if self.item is None else by_element.alone(n.g, lambda op: op + 1, self.turn)


def _element_shape(n: Any, v: Value) -> Sequence[Any] | None:
    """Returns the shape in an input, -1 as None; None for an unknown rank."""
    known = n.g.sizes(v) if isinstance(v, (ConstantArray, Sizes)) else None
    if known is None or (v.rank == 0):
        return None
    return [None if isinstance(s, int) and s < 0 else s for s in known]


@translates("TensorListReserve")
def reserve(n: Any, shape: Value, many: Length, *, element_dtype: Any) -> TensorList:
    made = TensorList(None, many, _element_shape(n, shape), element_dtype)
    return made.filled(n, list(made.shape)) if made.shape is not None and None not in made.shape else made


def of_strings(items: TensorList, text: Value, count: ExprLike) -> TensorList:
    """Returns a list like another one with strings."""
    made = items.of(None, count)
    made.text = text
    return made


@translates("TensorListFromTensor")
def from_tensor(n: Any, x: Value, shape: Value = None) -> Value:
    if x is NOTHING or isinstance(x, TensorList):  # see `stack_items`
        return x
    if is_text(x):  # how many there are is known from here on
        count = int(n.g.known(in_python(n, lambda a: np.array(len(a)), [x], [np.int32])[0]))
        return of_strings(TensorList(None, count, None, np.dtype(object)), x, count)
    t = n.g.full(n.g.tensor(x), [0])
    return TensorList(t, t.shape[0], t.shape[1:], t.np)


@translates("TensorListStack")
def stack_items(n: Any, items: TensorList, shape: Value = None) -> Value:
    """Returns the items as one tensor; the list itself where `structure` keeps it and they are none."""
    if items.text is not None:
        return items.text
    return items if shape is None and items.tensor is None else items.made(n, shape)


@translates("TensorListElementShape")
def element_shape(n: Any, items: TensorList, *, shape_type: DType = dtypes.int32) -> Value:
    sizes = items.tensor.shape[1:] if items.tensor is not None else [(-1 if s is None else s) for s in items.shape or ()]
    return settled(sizes, shape_type.np)


@translates("TensorListGetItem", "TensorListGather")
def gather_items(n: Any, items: Value, indices: Value, shape: Value = None) -> Value:
    if items is NOTHING or (items.empty and items.text is None and items.shape is None and n.g.same(items.count, 0)):
        raise Inside("it reads a list without tensors")  # unless in a branch that is not taken, or a loop without turns
    if items.text is not None:
        return in_python(n, lambda a, i: np.asarray(a[i], object), [items.text, indices], [object])[0]
    if items.each is not None and indices.rank == 0:
        return items.each
    if items.items is not None:
        return items.items[int(n.g.known(indices))]
    return indexing.gathered(n.g, items.made(n, shape), indices, 0, n.takes[0])


def resizes(node: Any) -> bool:
    """Returns whether a node's list grows where an item is set behind its end."""
    return bool(node.proto.attr["resize_if_index_out_of_bounds"].b)


def _string_set(n: Any, items: TensorList, index: Value, item: Value) -> TensorList:
    """Returns a list with strings at a place."""
    count = n.g.number(items.count)

    def run(item: Any, i: Any, *old: Any) -> Any:
        many = max(count, int(i) + 1)
        whole = np.full([many, *item.shape], b"", object)
        for a in old:
            whole[: len(a)] = a
        whole[int(i)] = item
        return whole

    given = [item, index, *([] if items.text is None else [items.text])]
    return of_strings(items, in_python(n, run, given, [object])[0], count)


@translates("TensorListSetItem")
def set_item(n: Any, items: TensorList, index: Value, item: Value) -> TensorList:
    g = n.g
    if isinstance(items, TurnItem):
        return items.having(item)
    if is_text(item):
        return _string_set(n, items, index, item)
    new = g.tensor(item)
    if resizes(n.node):
        if g.bodies and not isinstance(index, ConstantArray):
            raise Inside  # it may grow
        many = int(g.known(index)) + 1
        items = items.resized(n, many) if g.truth("lt", items.count, many) else items
    if items.tensor is None:
        items = items.filled(n, new.shape)
    assert items.tensor is not None
    t, u = g.full(items.tensor), g.full(new)
    if u.rank != t.rank - 1 or not all(g.same(a, b) for a, b in zip(u.shape, t.shape[1:], strict=True)):
        raise GraphError(f"{g.described(u)} is set in a list of tensors of the shape {[g.hint(s) for s in t.shape[1:]]}")
    u = g.renamed(u, t.dims[1:])
    at = control.scalar(g, g.tensor(index))
    place = indexing.index_along(g, at, indexing.known_array(index), t.dims[0], indexing.dim_named(0, n.takes[0]), negative=False)
    made = items.of(g.made(scatter.build(t.op, place, u.op, axes=(t.dims[0],), combine="set", mode="clip"), t.dims))
    made.last = item
    return made


@translates("TensorListPushBack")
def push(n: Any, items: TensorList, item: Value) -> TensorList:
    if isinstance(items, TurnItem):
        return items.having(item)
    g = n.g
    if items.items is None and isinstance(item, (Tensor, ConstantArray, Sizes)):
        t, old = g.tensor(item), items.tensor
        last = Tensor(t.op, [None, *t.dims])
        if old is None or g.same(items.count, 0):
            return TensorList(last, 1, t.shape, t.np)
        if t.np == old.np and t.rank + 1 == old.rank and all(map(g.same, t.shape, old.shape[1:])):
            return items.of(shapes.joined(g, [old, last], 0), items.count + 1)
    before = [shapes.at(g, items.tensor, 0, k) for k in range(g.number(items.count))] if items.tensor is not None else []
    return items.holding([*(items.items or before), item])


@translates("TensorListPopBack", results="output_handle tensor")
def pop(n: Any, items: TensorList, shape: Value = None) -> tuple[Value, ...]:
    if isinstance(items, TurnItem):
        return items, items.item
    if n.g.same(items.count, 0):
        raise Inside("it reads a list without tensors")  # unless in a loop without turns
    last = shapes.at(n.g, items.made(n), 0, items.count - 1) if items.items is None else items.items[-1]
    return items.resized(n, items.count - 1), last


@translates("TensorListResize")
def resize(n: Any, items: TensorList, many: Value) -> TensorList:
    """Returns the list with so many tensors; in a loop's turn it is done behind the loop."""
    return items if isinstance(items, TurnItem) else items.resized(n, n.g.sizes(many)[0])


@translates("TensorListConcatV2", "TensorListConcat", results="tensor lengths")
def concat_items(n: Any, items: TensorList, *more: Value) -> tuple[Value, ...]:
    if items.items is not None:
        whole = [n.g.tensor(item) for item in items.items]
        return shapes.joined(n.g, whole, 0), settled([t.shape[0] for t in whole])
    t = items.made(n)
    made = n.g.reshape(t, [t.shape[0] * t.shape[1], *t.shape[2:]])
    return made, settled([t.shape[1]] * n.g.number(t.shape[0]))


# ---- TensorArrays -------------------------------------------------------------------------------------------------------
# Their handle and the flow that orders what is done to them are one list here: what a flow has been through is what it holds.


@translates("TensorArrayV3", results="handle flow")
def array(n: Any, many: Length, *, element_shape: Any, dtype: Any) -> tuple[Value, ...]:
    made = TensorList(None, many, element_shape, dtype)
    return made, made


def _held(handle: Value, flow: Any) -> TensorList:
    """Returns what an array holds: that of derivatives is its handle, until a flow has been through it."""
    return handle if isinstance(handle, TensorList) and handle.gradient and not getattr(flow, "gradient", False) else flow


rows(
    {
        "EmptyTensorList": lambda n, shape, most: TensorList(None, 0, _element_shape(n, shape), n.attr("element_dtype")),
        "TensorListLength": lambda n, items: items.length(n),
        "TensorArrayWriteV3": lambda n, handle, index, item, flow: set_item(n, _held(handle, flow), index, item),
        "TensorArrayReadV3": lambda n, handle, index, flow: gather_items(n, _held(handle, flow), index),
        "TensorArraySizeV3": lambda n, handle, flow: settled(_held(handle, flow).count, np.int32),
        "StackV2": lambda n, most: TensorList(None, 0, None, n.attr("elem_type")),  # filled by turns, see below
    }
)
translates("TensorArrayConcatV3", results="value lengths")(lambda n, handle, flow: concat_items(n, _held(handle, flow)))


@translates("TensorArrayGatherV3")
def gather_array(n: Any, handle: Value, indices: Value, flow: TensorList) -> Tensor:
    flow = _held(handle, flow)
    return flow.made(n) if _every(n, indices, flow.count) else gather_items(n, flow, indices)


@translates("TensorArrayScatterV3")
def scatter_array(n: Any, handle: Value, indices: Value, items: Tensor, flow: TensorList) -> TensorList:
    t, flow = n.g.full(items, [0]), _held(handle, flow)
    if flow.tensor is None and _every(n, indices, t.shape[0]):
        return flow.of(t, t.shape[0])
    old = flow if flow.tensor is not None else flow.filled(n, t.shape[1:])
    return old.of(indexing.scattered_rows(n.g, old.tensor, indices, t, "set", n.takes[0]))


@translates("TensorListScatterIntoExistingList")
def scatter_items(n: Any, items: TensorList, t: Tensor, indices: Value) -> TensorList:
    return scatter_array(n, items, indices, t, items)


@translates("TensorListScatterV2", "TensorListScatter")
def scattered_items(n: Any, t: Tensor, indices: Value, shape: Value, many: Value = None) -> TensorList:
    count = -1 if many is None else n.g.sizes(many)[0]
    count = int(n.g.known(indices).max(initial=-1)) + 1 if isinstance(count, int) and count < 0 else count
    return scatter_items(n, TensorList(None, count, t.shape[1:], t.np), t, indices)


@translates("TensorListSplit")
def split_items(n: Any, t: Tensor, shape: Value, each: Ints) -> TensorList:
    """Returns pieces of a tensor along its first dim."""
    made = TensorList(None, len(each), None, t.np)
    if len(set(each)) != 1:
        return made.holding(list(shapes.split(n.g, t, 0, each)))
    return made.of(n.g.full(n.g.reshape(t, [len(each), each[0], *t.shape[1:]]), [0]))


@translates("TensorArraySplitV3")
def split_array(n: Any, handle: Value, t: Tensor, each: Ints, flow: TensorList) -> TensorList:
    made = split_items(n, t, None, each)
    return made if made.tensor is None else _held(handle, flow).of(made.tensor, made.count)


# ---- derivatives ----------------------------------------------------------------------------------------------------------
# What a loop's turns push, those of its derivative pop: `structure` makes of it a list with a place for each turn.


@translates("TensorArrayGradV3", results="grad_handle flow_out")
def gradient_array(n: Any, handle: TensorList, flow: Value) -> tuple[Value, ...]:
    """Returns the list of derivatives that a flow has been through, or a new one of zeros, where it is that of the array itself.

    TensorFlow adds what several ops write into one array of derivatives; here their flows are added (`summed`).
    """
    if isinstance(flow, TensorList) and flow.gradient:
        return flow, flow
    like = flow if isinstance(flow, TensorList) and flow.tensor is not None else handle
    made = like.filled(n, like.tensor.shape[1:] if like.tensor is not None else [s for s in like.shape or () if s is not None])
    made.gradient = True
    return made, made


def summed(n: Any, inputs: Sequence[Value]) -> Any:
    """Returns the sum of lists, to which a number adds nothing: gradients start at 0; zeros like a list; NotImplemented for other nodes.

    The derivative of an optional without a value is one.
    """
    lists = [v for v in inputs if isinstance(v, TensorList)]
    if n.op not in ("Add", "AddV2", "AddN", "ZerosLike") or not (lists or NOTHING in inputs):
        return NotImplemented
    if n.op == "ZerosLike":
        return _zeros_like(n, inputs[0])
    if not lists:
        some = [v for v in inputs if v is not NOTHING]
        return NOTHING if not some else some[0] if len(some) == 1 else by_element.folded(n.g, e.add, some)
    turn = next((t for t in lists if isinstance(t, TurnItem)), None)
    if turn is not None:  # the turns of a loop add one item each: `control`
        return turn.having(*[t.last for t in lists if t is not turn])
    tensors = [t.made(n) for t in lists]
    return lists[0].of(by_element.folded(n.g, e.add, [n.g.full(t, [0]) for t in tensors]) if len(tensors) > 1 else tensors[0])


def _zeros_like(n: Any, v: Value) -> Value:
    """Returns zeros like a value; a list of zeros like a list, of which none is set where none of its tensors is."""
    if v is NOTHING:
        return NOTHING
    if not isinstance(v, TensorList):
        return by_element.alone(n.g, lambda op: e.filled(0, op.axes, op.dtype), n.g.tensor(v))
    if v.items is not None:
        return v.holding([_zeros_like(n, item) for item in v.items])
    return v if v.tensor is None else v.of(_zeros_like(n, v.tensor))


EARLY.append(summed)


def _every(n: Any, indices: Value, count: ExprLike) -> bool:
    """Returns whether indices are all numbers below `count`, in order."""
    if isinstance(indices, ConstantArray):
        return isinstance(count, int) and np.array_equal(indices.array.ravel(), np.arange(count))
    if isinstance(indices, Tensor):
        op = indices.op
        while op.opdef.name == "cast":
            op = op.inputs[0]
        return bool(op.opdef.name == "iota" and n.g.same(indices.shape[0], count))
    return False
