"""Rules for ops that move elements: names and orders of axes, reads at index expressions, reads and writes at computed indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.export.onnx.lengths import beyond, indexed, numbers, same
from ngraph.export.onnx.rules import BOOL, INT32
from ngraph.export.onnx.writer import INT64, NODES, Cannot, GraphWriter, TensorRef
from ngraph.numpy_ops.reindex import affine, digit
from ngraph.op_graph import expr
from ngraph.op_graph.dtypes import REGISTRY as DTYPES
from ngraph.op_graph.expr import Bin, ExprLike, Idx
from ngraph.program.program import AxisId, Step, Value

END = 1 << 62  # beyond the end of any axis
MAX_INDEX_ELEMENTS = 1 << 16  # index arrays of more elements are computed by the graph, not held in it

# ---- names, order, repetition -------------------------------------------------------------------------------------------


@NODES.of("broadcast")
def _broadcast(w: GraphWriter, step: Step, x: TensorRef, axes: tuple[AxisId, ...]) -> TensorRef:
    """Returns x itself: rules that need repeated elements expand it (`GraphWriter.full`)."""
    return x


@NODES.of("rename")
def _rename(w: GraphWriter, step: Step, x: TensorRef, to: tuple[tuple[AxisId, AxisId], ...]) -> TensorRef:
    new = dict(to)
    return TensorRef(x.name, tuple([None if a is None else new.get(a, a) for a in x.dims]), x.dtype)


@NODES.of("concat")
def _concat(w: GraphWriter, step: Step, *refs: TensorRef, parts: tuple[AxisId, ...], axis: AxisId) -> TensorRef:
    """Returns the concatenation along a dim of the first operand that has all axes; the others follow its order."""
    every = tuple(step.result.axes)
    template = next((r for r, part in zip(refs, parts, strict=True) if len(r.axes) == len(every)), None)
    if template is not None:
        part = parts[refs.index(template)]
        dims = tuple([axis if a == part else a for a in template.dims])
    else:
        dims = every
    given = [w.full(r, tuple([part if a == axis else a for a in dims])) for r, part in zip(refs, parts, strict=True)]
    return w.op("Concat", *given, dims=dims, dtype=given[0].dtype, axis=dims.index(axis))


# ---- reads at index expressions -----------------------------------------------------------------------------------------


@NODES.of("reindex")
def _reindex(
    w: GraphWriter, step: Step, x: TensorRef, axes: tuple[AxisId, ...], index: Any, predicate: tuple[ExprLike, ...], pad_value: Any
) -> TensorRef:
    """Returns the read, one group of axes after another: a group's indices share axes of the result."""
    if any(w.length(a) == 0 for a in (*step.inputs[0].axes, *axes)):
        return w.filled(pad_value, axes, x.dtype)
    reads = {a: w.settle(e) for a, e in index}
    predicates = [g for g in map(w.settle, predicate) if (beyond(g, END, w.length) or (1, 0))[0]]  # those that may be negative
    missing = [a for a, e in reads.items() if a not in x.axes and beyond(e, w.length(a), w.length) != (0, 0)]
    if missing:
        x = w.full(x, (*x.dims, *missing))
    todo = {_source(a): e for a, e in reads.items() if a in x.axes}
    w.lengths.update({_source(a): w.length(a) for a in x.axes})
    x = TensorRef(x.name, tuple([None if a is None else _source(a) for a in x.dims]), x.dtype)
    read = _Read(w, pad_value)
    x, todo, predicates = read.spread(x, todo, predicates)
    for group in _groups(todo):
        x = read.group(x, {a: todo[a] for a in group})
    for g in predicates:
        zero = w.number(0, INT64)
        inside = w.elementwise("LessOrEqual", zero, w.placed(g), dtype=BOOL)
        x = w.elementwise("Where", inside, x, w.number(pad_value, x.dtype))
    return x


def _source(a: AxisId) -> AxisId:
    """Returns a name for an axis of the operand, distinct from the result's axes; its length changes during the reads."""
    return AxisId(f"<{a}")


def _groups(reads: Mapping[AxisId, ExprLike]) -> list[list[AxisId]]:
    groups: list[tuple[list[AxisId], set[AxisId]]] = []
    for a, e in reads.items():
        mine, over = [a], set(indexed(e))
        for other in [g for g in groups if g[1] & over]:
            groups.remove(other)
            mine, over = other[0] + mine, over | other[1]
        groups.append((mine, over))
    return [g for g, _ in groups]


class _Read:
    """A partly translated read, and its pad value."""

    def __init__(self, w: GraphWriter, pad_value: Any):
        self.w, self.pad_value = w, pad_value

    def spread(
        self, x: TensorRef, reads: dict[AxisId, ExprLike], predicates: list[ExprLike]
    ) -> tuple[TensorRef, dict[AxisId, ExprLike], list[ExprLike]]:
        """Dilates axes that are read at every k-th index, by a predicate on a remainder: inserts zeros between the elements."""
        w = self.w
        for a, e in reads.items():
            if not (isinstance(e, Bin) and e.op == "//" and type(e.b) is int and 0 - e.a % e.b in predicates):
                continue
            predicates = [g for g in predicates if g != 0 - e.a % e.b]
            at, rank = x.dims.index(a), len(x.dims)
            shape = self.w.shape(x.dims)
            shape = [*shape[: at + 1], e.b, *shape[at + 1 :]]
            dims = (*x.dims[: at + 1], None, *x.dims[at + 1 :])
            pads = w.ints([0] * (rank + 1) + [e.b - 1 if k == at + 1 else 0 for k in range(rank + 1)])
            apart = w.op("Unsqueeze", x, w.ints([at + 1]), dims=dims, dtype=x.dtype)
            apart = w.op("Pad", apart, pads, self.value(x), dims=dims, dtype=x.dtype)
            self.w.lengths[a] = self.w.lengths[a] * e.b
            x = w.reshaped(apart.name, self.w.shape(x.dims), x.dims, x.dtype, shape)
            reads = {**reads, a: e.a}
        return x, reads, predicates

    def value(self, x: TensorRef) -> TensorRef:
        return self.w.number(self.pad_value, x.dtype)

    def group(self, x: TensorRef, reads: Mapping[AxisId, ExprLike]) -> TensorRef:
        over = list(dict.fromkeys(a for e in reads.values() for a in indexed(e)))
        if len(reads) == 1:
            ((axis, e),) = reads.items()
            if not over:
                return self.at(x, axis, e)
            form = affine(e)
            if len(over) == 1 and form is not None and type(form[1].get(over[0])) is int:
                made = self.slice(x, axis, over[0], form[0], int(form[1][over[0]]))  # type: ignore[arg-type]  # form[0] counts from 0 here
                if made is not None:
                    return made
            made = self.unflatten(x, axis, e, over)
            if made is not None:
                return made
        elif len(over) == 1:
            made = self.flatten(x, reads, over[0])
            if made is not None:
                return made
        return self.anywhere(x, reads, over)

    def put(self, x: TensorRef, axis: AxisId, new: Sequence[AxisId]) -> tuple[AxisId | None, ...]:
        at = x.dims.index(axis)
        return (*x.dims[:at], *new, *x.dims[at + 1 :])

    def padded(self, x: TensorRef, axis: AxisId, before: int, after: int) -> TensorRef:
        """Returns x padded with the pad value at both ends of an axis."""
        at, rank = x.dims.index(axis), len(x.dims)
        pads = [before if k == at else after if k == at + rank else 0 for k in range(2 * rank)]
        self.w.lengths[axis] = self.w.length(axis) + (before + after)
        return self.w.op("Pad", x, self.w.ints(pads), self.value(x), dims=x.dims, dtype=x.dtype)

    def at(self, x: TensorRef, axis: AxisId, e: ExprLike) -> TensorRef:
        """Returns x at one index of an axis, which is removed."""
        w, n = self.w, self.w.length(axis)
        if type(e) is int and type(n) is int and not 0 <= e < n:
            return w.number(self.pad_value, x.dtype)
        if n == 1 and e == 0:
            return TensorRef(x.name, tuple([None if a == axis else a for a in x.dims]), x.dtype)
        if beyond(e, n, w.length) != (0, 0):
            return self.anywhere(x, {axis: e}, [])
        return w.op("Gather", x, w.scalar(e), dims=self.put(x, axis, ()), dtype=x.dtype, axis=x.dims.index(axis))

    def slice(self, x: TensorRef, axis: AxisId, new: AxisId, start: ExprLike, step: int) -> TensorRef | None:
        """Returns x padded where the read exceeds the ends, then sliced; None where that extent is unknown."""
        w, count = self.w, self.w.length(new)
        out = beyond(start + Idx(new) * step, w.length(axis), w.length)
        if out is None:
            return None
        if any(out):
            x = self.padded(x, axis, *out)
        start, n = start + out[0], w.length(axis)
        dims = self.put(x, axis, (new,))
        if step == 1 and start == 0 and same(count, n):
            return TensorRef(x.name, dims, x.dtype)
        stop: ExprLike = start + count * step
        if step > 0:
            stop = END if all(a >= b for a, b in numbers(stop, n) or [(0, 1)]) else stop
        elif all(a < 0 for (a,) in numbers(stop) or [(0,)]):
            stop = -END  # negative numbers count from the end
        elif not all(a >= 0 for (a,) in numbers(stop) or [(-1,)]):
            return None
        start = END if step < 0 and same(start, n - 1) else start
        ends = [w.vector([v]) for v in (start, stop)]
        return w.op("Slice", x, *ends, w.ints([x.dims.index(axis)]), w.ints([step]), dims=dims, dtype=x.dtype)

    def flatten(self, x: TensorRef, reads: Mapping[AxisId, ExprLike], new: AxisId) -> TensorRef | None:
        """Returns axes read at the digits of one index as one axis. None where the index has another form."""
        left = []
        for a, e in reads.items():
            found = digit(e)
            if found is None:
                return None
            left.append((a, found[1], found[2]))
        order: list[AxisId] = []
        divisor: ExprLike = 1
        while left:
            part = next((p for p in left if same(p[1], divisor) and self._whole(p, len(left) == 1)), None)
            if part is None:
                return None
            left.remove(part)
            order.insert(0, part[0])
            divisor = divisor * self.w.lengths[part[0]]
        if not same(divisor, self.w.length(new)):
            return None
        rest = [a for a in x.dims if a not in reads]
        first = min(x.dims.index(a) for a in reads)
        at = sum(1 for a in x.dims[:first] if a not in reads)
        x = self.w.arranged(x, (*rest[:at], *order, *rest[at:]))
        old = self.w.shape(x.dims)
        dims = (*rest[:at], new, *rest[at:])
        return self.w.reshaped(x.name, self.w.shape(dims), dims, x.dtype, old)

    def _whole(self, part: tuple[AxisId, ExprLike, ExprLike | None], last: bool) -> bool:
        return last if part[2] is None else same(part[2], self.w.lengths[part[0]])

    def unflatten(self, x: TensorRef, axis: AxisId, e: ExprLike, over: Sequence[AxisId]) -> TensorRef | None:
        """Returns an axis read at the flat position of several indices split into axes. None where the index has another form."""
        form = affine(e)
        if form is None or form[0] != 0 or len(form[1]) != len(over):
            return None
        left, order = dict(form[1]), list[AxisId]()
        size: ExprLike = 1
        while left:
            a = next((a for a, c in left.items() if same(c, size)), None)
            if a is None:
                return None
            left.pop(a)
            order.insert(0, a)
            size = size * self.w.length(a)
        if not same(size, self.w.lengths[axis]):
            return None
        dims = self.put(x, axis, order)
        return self.w.reshaped(x.name, self.w.shape(dims), dims, x.dtype, self.w.shape(x.dims))

    def anywhere(self, x: TensorRef, reads: Mapping[AxisId, ExprLike], over: Sequence[AxisId]) -> TensorRef:
        """Returns the axes joined into one, which is gathered at computed positions, and the pad value where one is outside."""
        w = self.w
        inside: TensorRef | None = None
        flat: ExprLike = 0
        for a, e in reads.items():
            n = w.length(a)
            out = beyond(e, n, w.length)
            if out is not None and any(out) and len(reads) == 1 and max(out) <= 1 << 12:
                x = self.padded(x, a, *out)
                e = e + out[0]
            elif out != (0, 0):
                inside = self.check(inside, e, n)
                e = expr.maximum(expr.minimum(e, n - 1), 0)
            flat = flat * self.w.lengths[a] + e
        order = tuple(reads)
        if len(order) > 1:
            rest = [a for a in x.dims if a not in reads]
            x = w.arranged(x, (*order, *rest))
            joined = AxisId(f"<{'*'.join(order)}")
            w.lengths[joined] = w.size(order)
            dims = (joined, *rest)
            x = w.reshaped(x.name, self.w.shape(dims), dims, x.dtype, self.w.shape(x.dims))
        else:
            joined = order[0]
        places = self.places(flat, over)
        made = w.op("Gather", x, places, dims=self.put(x, joined, places.axes), dtype=x.dtype, axis=x.dims.index(joined))
        return made if inside is None else w.elementwise("Where", inside, made, w.number(self.pad_value, x.dtype))

    def check(self, inside: TensorRef | None, e: ExprLike, n: ExprLike) -> TensorRef:
        w = self.w
        at = w.placed(e)
        here = w.elementwise("LessOrEqual", w.number(0, INT64), at, dtype=BOOL)
        here = w.elementwise("And", here, w.elementwise("Less", at, TensorRef(w.scalar(n), (), INT64), dtype=BOOL))
        return here if inside is None else w.elementwise("And", inside, here)

    def places(self, e: ExprLike, over: Sequence[AxisId]) -> TensorRef:
        """Returns index numbers over axes: a constant where lengths are known."""
        w = self.w
        sizes = [w.known(a) for a in over]
        total = 1
        for n in sizes:
            total *= -1 if n is None else n
        if 0 <= total <= MAX_INDEX_ELEMENTS and all(isinstance(leaf, Idx) for leaf in expr.leaves(e)):

            def leaf(leaf: Any) -> Any:
                k = over.index(leaf.of)
                return np.arange(sizes[k] or 0).reshape([-1 if j == k else 1 for j in range(len(over))])

            array = np.broadcast_to(np.asarray(expr.evaluate(e, leaf), np.int64), [n or 0 for n in sizes])
            return TensorRef(w.constant(np.ascontiguousarray(array)), tuple(over), INT64)
        return w.placed(e)


# ---- reads and writes at computed places --------------------------------------------------------------------------------


@NODES.of("check_bounds")
def _check_bounds(w: GraphWriter, step: Step, i: TensorRef, axis: AxisId, negative: bool | str, **about: Any) -> TensorRef:
    """Returns the index itself where all of its readers check it; else a gather from an iota, which checks it and counts from the start."""
    open_ = any(w.known(a) is None for a in step.inputs[0].axes)  # along an axis that is empty in a call there is nothing to check
    i = w.cast(w.full(i, step.inputs[0].axes) if open_ else i, INT64)
    if not negative:  # negative ones become indices outside
        below = w.elementwise("Less", i, w.number(0, INT64), dtype=BOOL)
        i = w.elementwise("Where", below, TensorRef(w.scalar(w.length(axis)), (), INT64), i)
    if w.uses.get(step.result) == w.indices.get(step.result):
        return i
    return w.op("Gather", w.counted(axis), i, dims=i.dims, dtype=INT64, axis=0)


def _checked(w: GraphWriter, v: Value) -> bool:
    """Whether a value is an index that a check gives."""
    maker = w.steps.get(v)
    return maker is not None and maker.op == "check_bounds"


def _placed(w: GraphWriter, step: Step, k: int, i: TensorRef, axis: AxisId, mode: str) -> tuple[TensorRef, TensorRef | None]:
    """Returns a step's index k, as int64 and within its axis, or checked by the node; and for `fill`, whether it was inside."""
    if _checked(w, step.inputs[1 + k]):
        return i, None
    n = w.length(axis)
    array = w.array(i)
    i = w.cast(i, INT64)
    if array is not None and isinstance(n, int) and ((array >= 0) & (array < n)).all():
        return i, None
    size = TensorRef(w.scalar(n), (), INT64)
    if mode == "wrap":
        return w.elementwise("Mod", i, size), None
    last = w.elementwise("Sub", size, w.number(1, INT64)) if not isinstance(n, int) else w.number(n - 1, INT64)
    near = w.op("Clip", i, w.number(0, INT64), last, dims=i.dims, dtype=INT64)
    return near, w.elementwise("Equal", i, near, dtype=BOOL) if mode == "fill" else None


def _both(w: GraphWriter, refs: Iterable[TensorRef | None]) -> TensorRef | None:
    found: TensorRef | None = None
    for r in refs:
        found = r if found is None else found if r is None else w.elementwise("And", found, r)
    return found


@NODES.of("gather")
def _gather(w: GraphWriter, step: Step, x: TensorRef, *indices: TensorRef, axes: tuple[AxisId, ...], mode: str) -> TensorRef:
    if any(w.length(a) == 0 and not _checked(w, v) for a, v in zip(axes, step.inputs[1:], strict=True)):
        return w.filled(0, tuple(step.result.axes), x.dtype)
    x = w.full(x, (*x.dims, *[a for a in axes if a not in x.dims]))
    placed = [_placed(w, step, k, i, a, mode) for k, (i, a) in enumerate(zip(indices, axes, strict=True))]
    inside = _both(w, [p[1] for p in placed])
    over = tuple(dict.fromkeys(a for i, _ in placed for a in i.axes))
    shared = tuple([a for a in x.axes if a in over and a not in axes])
    if len(axes) == 1 and not shared:
        i = placed[0][0]
        at = x.dims.index(axes[0])
        made = w.op("Gather", x, i, dims=(*x.dims[:at], *i.dims, *x.dims[at + 1 :]), dtype=x.dtype, axis=at)
    else:
        made = _gather_several(w, x, [p[0] for p in placed], axes, over, shared)
    return made if inside is None else w.elementwise("Where", inside, made, w.number(0, x.dtype))


def _gather_several(
    w: GraphWriter,
    x: TensorRef,
    indices: Sequence[TensorRef],
    axes: tuple[AxisId, ...],
    over: tuple[AxisId, ...],
    shared: tuple[AxisId, ...],
) -> TensorRef:
    """Returns a GatherND: axes that x and the indices share come first in both."""
    rest = tuple([a for a in x.axes if a not in axes and a not in shared])
    free = tuple([a for a in over if a not in shared])
    x = w.arranged(x, (*shared, *axes, *rest))
    at = _stacked(w, indices, (*shared, *free))
    return w.op("GatherND", x, at, dims=(*shared, *free, *rest), dtype=x.dtype, batch_dims=len(shared))


def _stacked(w: GraphWriter, indices: Sequence[TensorRef], dims: tuple[AxisId, ...]) -> TensorRef:
    """Returns indices stacked along a last dim."""
    each = []
    for i in indices:
        i = w.full(i, dims)
        array = w.array(i)
        each.append(w.constant(array[..., None]) if array is not None else w.node("Unsqueeze", [i.name, w.ints([len(dims)])])[0])
    name = each[0] if len(each) == 1 else w.node("Concat", each, axis=len(dims))[0]
    return TensorRef(name, (*dims, None), INT64)


@NODES.of("lookuptable")
def _lookup(w: GraphWriter, step: Step, table: TensorRef, i: TensorRef, axis: AxisId, **attrs: Any) -> TensorRef:
    return _gather(w, step, table, i, axes=(axis,), mode="fill")


COMBINE = {"set": None, "add": "add", "multiply": "mul", "max": "max", "min": "min"}


@NODES.of("scatter")
def _scatter(w: GraphWriter, step: Step, x: TensorRef, *others: TensorRef, axes: tuple[AxisId, ...], combine: str, mode: str) -> TensorRef:
    """Returns a ScatterND on the named axes, and those that x shares with the indices. Dropped writes go to a position beyond the end."""
    *indices, u = others
    reduction = COMBINE[combine]
    if reduction is not None and w.opset < (16 if reduction in ("add", "mul") else 18):
        raise Cannot(f"ScatterND that combines by {combine}, which begins at opset {16 if reduction in ('add', 'mul') else 18}")
    x_axes, u_axes = tuple(step.inputs[0].axes), tuple(step.inputs[-1].axes)
    dtype = x.dtype
    if any(w.length(a) == 0 for a in (*u_axes, *x_axes)):
        return x
    over = tuple([a for a in u_axes if any(a in i.axes for i in step.inputs[1:-1])])
    shared = tuple([a for a in x_axes if a in over and a not in axes])
    rest = tuple([a for a in x_axes if a not in axes and a not in shared])
    order = (*axes, *shared, *rest)
    x, u = w.full(x, order), w.full(u, (*over, *rest))
    if dtype is BOOL and reduction is not None:
        x, u = w.cast(x, INT32), w.cast(u, INT32)
    placed = [_placed(w, step, k, i, a, mode) for k, (i, a) in enumerate(zip(indices, axes, strict=True))]
    inside = _both(w, [p[1] for p in placed])
    at = [p[0] for p in placed]
    if inside is not None:
        at[0] = w.elementwise("Where", inside, at[0], TensorRef(w.scalar(w.length(axes[0])), (), INT64))
        one_more = [0] * len(order) + [1] + [0] * (len(order) - 1)
        x = w.op("Pad", x, w.ints(one_more), w.number(0, x.dtype), dims=x.dims, dtype=x.dtype)
    places = _stacked(w, [*at, *[w.counted(a) for a in shared]], over)
    made = w.op("ScatterND", x, places, u, dims=order, dtype=x.dtype, reduction=reduction)
    if inside is not None:
        end = w.vector([w.length(axes[0])])
        made = w.op("Slice", made, w.ints([0]), end, w.ints([0]), dims=order, dtype=made.dtype)
    return w.cast(made, dtype)


@NODES.of("one_hot")
def _one_hot(w: GraphWriter, step: Step, x: TensorRef, axis: AxisId) -> TensorRef:
    """Returns a comparison, since ONNX's OneHot counts negative numbers from the end."""
    at = w.cast(w.counted(axis), x.dtype)
    return w.cast(w.elementwise("Equal", at, w.arranged(x, (*x.axes, None)), dtype=BOOL), DTYPES["float32"])


@NODES.of("top_k")
def _top_k(
    w: GraphWriter, step: Step, x: TensorRef, axis: AxisId, out: AxisId, largest: bool, nan_largest: bool
) -> tuple[TensorRef, TensorRef]:
    x = w.full(x, x.dims if axis in x.dims else (*x.dims, axis))
    at = x.dims.index(axis)
    values, places = w.node("TopK", [x.name, w.vector([w.length(out)])], 2, axis=at, largest=int(largest), sorted=1)
    dims = tuple([out if a == axis else a for a in x.dims])
    return TensorRef(values, dims, x.dtype), w.cast(TensorRef(places, dims, INT64), INT32)
