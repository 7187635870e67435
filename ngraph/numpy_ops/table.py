"""The table of NumPy calls for each core op. Indexed reads are in `reindex`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.errors import UnsupportedError
from ngraph.numpy_ops.lines import CallLine, Dims, Name, ReferenceCall, Use, Variable, VariableRef
from ngraph.numpy_ops.translate import LINES, Translator, exact, real
from ngraph.op_graph.arrays import ArrayRef, settled
from ngraph.op_graph.dtypes import REGISTRY as DTYPES
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Expr, ExprLike
from ngraph.op_graph.opdef import NUMPY, REGISTRY, Call
from ngraph.program.interpret import apply, check_shape, interpret, own_order, with_integers
from ngraph.program.program import AxisId, Program, Step, Value, attr_axes, map_attr, run_values

# ---- element by element ------------------------------------------------------------------------------------


def elementwise(
    t: Translator, step: Step, fn: str, inputs: Sequence[VariableRef] | None = None, fits: bool = True, dtype: DType | None = None
) -> VariableRef:
    """Returns one ufunc on aligned operands; 16-bit floats are computed in float32."""
    result = step.results[0]
    refs = [t.wide(r) for r in (t.inputs(step) if inputs is None else inputs)]
    if all(r.var.literal is not None for r in refs):
        refs[-1] = t.typed(refs[-1])
    dims = t.order(result, [a for r in refs for a in r.dims])
    args = [r.var.literal if r.var.literal is not None else t.aligned(r, dims).var for r in refs]
    made = t.make(fn, *args, dims=dims, dtype=dtype or refs[-1].var.dtype, fits=fits)
    return t.astype(made, result.dtype)


COMPARE = {"eq": "np.equal", "lt": "np.less", "le": "np.less_equal"}
BITWISE = {"and": "np.bitwise_and", "or": "np.bitwise_or", "xor": "np.bitwise_xor", "shl": "np.left_shift", "shr": "np.right_shift"}


@LINES.of("ufunc")
def _ufunc(t: Translator, step: Step) -> VariableRef:
    op, refs = step.op, t.inputs(step)
    if not step.results[0].dtype.is_float:
        if op in ("floor", "round"):
            return refs[0]
        if op == "power":
            return elementwise(t, step, "integer_power", [t.typed(r) for r in refs], fits=False)
        if op == "divide":
            return elementwise(t, step, "np.floor_divide")
    if op == "power" and refs[1].var.literal == 2:
        return elementwise(t, step, "np.square", refs[:1])
    fn = NUMPY[op] if isinstance(NUMPY[op], str) else f"numpy:{op}"
    return elementwise(t, step, fn, fits=fn.startswith("np."))


@LINES.of("compare")
def _compare(t: Translator, step: Step, kind: str) -> VariableRef:
    return elementwise(t, step, COMPARE[kind], fits=False, dtype=DTYPES["bool"])


@LINES.of("bitwise")
def _bitwise(t: Translator, step: Step, kind: str) -> VariableRef:
    return elementwise(t, step, BITWISE[kind])


@LINES.of("where")
def _where(t: Translator, step: Step) -> VariableRef:
    c, x, y = t.inputs(step)
    if x.var.dtype.kind == "narrow" or x.var.dtype.bits == 16 and x.var.dtype.is_float:
        x, y = t.typed(x), t.typed(y)
        dims = t.order(step.result, [a for r in (c, x, y) for a in r.dims])
        args = [t.operand(t.aligned(r, dims)) for r in (c, x, y)]
        return t.make("np.where", *args, dims=dims, dtype=x.var.dtype)
    if x.var.literal is not None and y.var.literal is not None:
        y = t.typed(y)
    return elementwise(t, step, "np.where", [t.typed(c), x, y], fits=False, dtype=x.var.dtype)


@LINES.of("cast")
def _cast(t: Translator, step: Step, dtype: DType) -> VariableRef:
    (x,) = t.inputs(step)
    if x.var.dtype is dtype:
        return x
    x = t.typed(x)
    if x.var.dtype.kind == "narrow":
        x = t.astype(x, DTYPES["float32" if x.var.dtype.python is float else "int32"])
    if dtype.kind == "narrow":
        limits = None if dtype.python is float else (dtype.lowest, dtype.highest)
        return t.make("narrowed", x.var, dtype, limits, dims=x.dims, dtype=dtype)
    if dtype.kind == "bool":
        x = t.wide(x)
        return t.make("np.not_equal", x.var, 0, dims=x.dims, dtype=dtype)
    if dtype.is_integer and x.var.dtype.is_float:
        return t.make("saturate", x.var, dtype, dims=x.dims, dtype=dtype)
    if dtype.name == "bfloat16" and x.var.dtype.bits > 16 and x.var.dtype.name != "float32":
        return t.make("rounded_once", x.var, dtype, dims=x.dims, dtype=dtype)
    return t.astype(x, dtype)


@LINES.of("bitcast")
def _bitcast(t: Translator, step: Step, dtype: DType) -> VariableRef:
    x = t.typed(t.input(step, 0))
    return t.view(x, ".view", dtype, dims=x.dims, dtype=dtype)


# ---- sources and names --------------------------------------------------------------------------------------


@LINES.of("constant")
def _constant(t: Translator, step: Step, value: Any, axes: Dims, dtype: DType) -> VariableRef:
    if type(value) is not ArrayRef:
        if isinstance(value, Expr):
            return t.make("scalar", t.settle(value), dtype, dims=(), dtype=dtype)
        return t.literal(exact(value, dtype), dtype)
    if value.array.ndim == 0 and dtype.kind != "narrow" and not (dtype.is_float and dtype.bits == 16):
        return t.literal(exact(value.array[()].item(), dtype), dtype)
    array = settled(value.array)
    var = Variable(value.name or t.hint, dtype, array.shape, holds="constant")
    var.array = array
    t.lines.constants.append(var)
    return VariableRef(var, tuple(axes))


@LINES.of("iota")
def _iota(t: Translator, step: Step, axis: AxisId, dtype: DType) -> VariableRef:
    n = t.length(axis)
    if dtype.bits >= 32 and dtype.kind != "bool":
        return t.make("np.arange", n, dims=(axis,), dtype=dtype, dtype_=dtype)
    return t.astype(t.make("np.arange", n, dims=(axis,), dtype=DTYPES["int64"]), dtype)


@LINES.of("random_bits")
def _random_bits(t: Translator, step: Step, stream: int, axes: Dims) -> VariableRef:
    state, *trips = t.inputs(step)
    trip = t.emit("mix_trips", tuple([t.typed(r).var for r in trips]), Variable("trip", None, ())) if trips else 0
    return t.make("philox", state.var, stream, trip, t.shape(axes), dims=tuple(axes), dtype=step.result.dtype)


@LINES.of("broadcast")
def _broadcast(t: Translator, step: Step, axes: Dims) -> VariableRef:
    return t.input(step, 0)


@LINES.of("rename")
def _rename(t: Translator, step: Step, to: tuple[tuple[AxisId, AxisId], ...]) -> VariableRef:
    (x,), new = t.inputs(step), dict(to)
    return VariableRef(x.var, tuple([new.get(a, a) for a in x.dims]))


# ---- joining, reading and writing by index ----


@LINES.of("concat")
def _concat(t: Translator, step: Step, parts: Dims, axis: AxisId) -> VariableRef:
    dims = t.order(step.result, step.type.axes)
    arrays = tuple([t.full(r, tuple([part if a == axis else a for a in dims])).var for r, part in zip(t.inputs(step), parts, strict=True)])
    return t.make("np.concatenate", arrays, dims=dims, dtype=step.result.dtype, axis=dims.index(axis))


def _indices(t: Translator, refs: Sequence[VariableRef], x_axes: Dims, axes: Dims) -> tuple[tuple[Variable, ...], Dims, Dims]:
    """Returns the index tensors aligned, their dims, and the axes that x shares with them."""
    refs = [t.typed(r) for r in refs]
    dims = tuple(dict.fromkeys(a for r in refs for a in r.dims))
    shared = tuple([a for a in x_axes if a in dims and a not in axes])
    return tuple([t.aligned(r, dims).var for r in refs]), dims, shared


def _index_axes(step: Step, values: Sequence[Value]) -> set[AxisId]:
    return {a for v in values for a in v.axes}


@LINES.of("check_bounds")
def _check_bounds(t: Translator, step: Step, axis: AxisId, **about: Any) -> VariableRef:
    i = t.typed(t.input(step, 0))
    if any(t.length(a) == 0 or not isinstance(t.length(a), int) for a in step.inputs[0].axes if a not in i.dims):
        i = t.full(i, tuple(step.inputs[0].axes))  # no index of an empty tensor is outside
    return t.make("check_bounds", i.var, t.length(axis), *about.values(), dims=i.dims, dtype=step.result.dtype)


@LINES.of("gather")
def _gather(t: Translator, step: Step, axes: Dims, mode: str) -> VariableRef:
    x, *found = t.inputs(step)
    indices, dims, shared = _indices(t, found, x.dims, axes)
    rest = tuple([a for a in x.dims if a not in axes and a not in shared])
    x = t.full(x, (*axes, *shared, *rest))
    return t.make("gather", x.var, indices, mode, tuple([dims.index(a) for a in shared]), dims=(*dims, *rest), dtype=x.var.dtype)


COMBINE = {"add": "np.add", "multiply": "np.multiply", "max": "np.maximum", "min": "np.minimum"}
OF_BOOL = {"add": "np.logical_or", "multiply": "np.logical_and", "max": "np.logical_or", "min": "np.logical_and"}


def combiner(kind: str, dtype: DType) -> str:
    return (OF_BOOL if dtype.kind == "bool" else COMBINE)[kind]


@LINES.of("scatter")
def _scatter(t: Translator, step: Step, axes: Dims, combine: str, mode: str) -> VariableRef:
    x, *found, u = t.inputs(step)
    x_axes = step.inputs[0].axes
    refs = [t.typed(r) for r in found]
    every = _index_axes(step, step.inputs[1:-1])
    dims = tuple([a for a in step.inputs[-1].axes if a in every])
    shared = tuple([a for a in x_axes if a in every and a not in axes])
    indices = tuple([t.full(r, dims).var for r in refs])
    rest = tuple([a for a in x_axes if a not in axes and a not in shared])
    x = t.full(t.wide(x), (*axes, *shared, *rest))
    u = t.full(t.wide(u), (*dims, *rest))
    fn = None if combine == "set" else Name(combiner(combine, x.var.dtype))
    made = t.make("scatter", fn, x.var, indices, u.var, mode, tuple([dims.index(a) for a in shared]), dims=x.dims, dtype=x.var.dtype)
    return t.astype(made, step.result.dtype)


# ---- across axes -------------------------------------------------------------------------------------------


@LINES.of("reduce")
def _reduce(t: Translator, step: Step, kind: str, axes: Dims) -> VariableRef:
    if not axes:
        return t.input(step, 0)
    x = t.wide(t.input(step, 0))
    x = t.full(x, x.dims + tuple([a for a in axes if a not in x.dims]))
    made = _reduced(t, x, kind, axes)
    return t.astype(made, step.result.dtype)


def _reduced(t: Translator, x: VariableRef, kind: str, axes: Sequence[AxisId]) -> VariableRef:
    dtype = x.var.dtype
    dims = tuple([a for a in x.dims if a not in axes])
    count = t.size(axes)
    known = isinstance(count, int) and count > 0
    if isinstance(count, int) and 0 < count <= 64 and x.var.windows.issuperset(axes):
        moved = t.permuted(x, (*dims, *axes))
        return t.make("reduce_windows", Name(combiner(kind, dtype)), moved.var, len(axes), dims=dims, dtype=dtype)
    kwargs: dict[str, Any] = {}
    if kind in ("max", "min") and not known and dtype.kind != "bool":
        kwargs["initial"] = dtype.lowest if kind == "max" else dtype.highest
    if kind in ("add", "multiply") and not dtype.is_float:
        kwargs["dtype_"] = dtype
    where = tuple([x.dims.index(a) for a in axes])
    return t.make(
        f"{combiner(kind, dtype)}.reduce",
        x.var,
        dims=dims,
        dtype=dtype,
        axis=None if not dims else where[0] if len(where) == 1 else where,
        **kwargs,
    )


@LINES.of("argreduce")
def _argreduce(t: Translator, step: Step, kind: str, axes: Dims) -> VariableRef:
    x = t.wide(t.input(step, 0))
    dims = tuple([a for a in x.dims if a not in axes])
    x = t.full(x, (*dims, *axes))
    return t.make("arg_reduce", Name("np.argmax" if kind == "max" else "np.argmin"), x.var, len(axes), dims=dims, dtype=step.result.dtype)


def merged(t: Translator, ref: VariableRef, *groups: Sequence[AxisId]) -> VariableRef:
    """Returns the tensor with one dim for each group of axes, in this order."""
    dims = tuple([a for g in groups for a in g])
    ref = t.permuted(ref, dims)
    if all(len(g) == 1 for g in groups):
        return ref
    sizes = tuple([t.size(g) for g in groups])
    return t.view(ref, ".reshape", *sizes, dims=dims, shape=sizes)


def unmerged(t: Translator, ref: VariableRef, dims: Dims, whole: bool) -> VariableRef:
    """Returns a new array whose dims stand for groups of axes with one dim for each axis; nothing else holds its memory."""
    return VariableRef(ref.var, dims) if whole else t.make(".reshape", ref.var, *t.shape(dims), dims=dims, dtype=ref.var.dtype)


@LINES.of("contract")
def _contract(t: Translator, step: Step, over: Dims, accumulate: DType) -> VariableRef:
    x, y = [t.typed(t.astype(r, accumulate)) for r in t.inputs(step)]
    lost = tuple([a for a in over if a not in x.dims and a not in y.dims])
    x = t.full(x, x.dims + lost) if lost else x
    x, y = _shared(t, x, y, over)
    sums = [a for a in x.dims if a in over]
    batch = [a for a in x.dims if a in y.dims and a not in over]
    rows = [a for a in x.dims if a not in y.dims]
    columns = [a for a in y.dims if a not in x.dims]
    wanted = t.order(step.result, (*batch, *rows, *columns))
    if not sums:
        made = t.make("np.multiply", t.aligned(x, wanted).var, t.aligned(y, wanted).var, dims=wanted, dtype=accumulate, fits=True)
    else:
        batch.sort(key=wanted.index)
        if columns and wanted == (*batch, *columns, *rows):
            x, y, rows, columns = y, x, columns, rows
        made = _matmul(t, x, y, batch, rows, sums, columns, accumulate)
    return t.astype(made, step.result.dtype)


def _shared(t: Translator, x: VariableRef, y: VariableRef, over: Dims) -> tuple[VariableRef, VariableRef]:
    """Returns both operands such that each summed axis is in both or in neither.

    Integers are summed first over the axes that only one of them has. Floats are not, as the result would differ at infinities, and for no
    elements: the other operand is repeated.
    """
    mine, yours = ([a for a in p.dims if a in over and a not in q.dims] for p, q in ((x, y), (y, x)))
    if not x.var.dtype.is_float:
        return tuple(_reduced(t, p, "add", axes) if axes else p for p, axes in ((x, mine), (y, yours)))  # type: ignore[return-value]  # a pair
    return t.full(x, (*x.dims, *yours)) if yours else x, t.full(y, (*y.dims, *mine)) if mine else y


def _matmul(
    t: Translator,
    x: VariableRef,
    y: VariableRef,
    batch: list[AxisId],
    rows: list[AxisId],
    sums: list[AxisId],
    columns: list[AxisId],
    dtype: DType,
) -> VariableRef:
    dims = (*batch, *rows, *columns)
    single = [[a] for a in batch]
    if not rows and not columns and batch:
        a, b = merged(t, x, *single, sums), merged(t, y, *single, sums)
        return t.make("np.einsum", "...k,...k->...", a.var, b.var, dims=dims, dtype=dtype)
    keep_rows, keep_columns = bool(rows or batch), bool(columns or batch)
    a = merged(t, x, *single, *([rows] if keep_rows else []), sums)
    b = merged(t, y, *single, sums, *([columns] if keep_columns else []))
    whole = (len(rows) == 1 or not keep_rows) and (len(columns) == 1 or not keep_columns)
    shape = (*t.shape(batch), *([t.size(rows)] if keep_rows else []), *([t.size(columns)] if keep_columns else []))
    var = t.emit("np.matmul", (a.var, b.var), Variable(t.hint, dtype, shape))
    return unmerged(t, VariableRef(var, dims), dims, whole)


@LINES.of("convolve")
def _convolve(t: Translator, step: Step, over: Dims, spatial: tuple[Any, ...], accumulate: DType) -> VariableRef:
    x, f = [t.typed(t.astype(r, accumulate)) for r in t.inputs(step)]
    x_axes, f_axes = step.inputs[0].axes, step.inputs[1].axes
    ins, taps, outs = (tuple([s[k] for s in spatial]) for k in range(3))
    x, f = t.full(x, tuple(x_axes)), t.full(f, tuple(f_axes))
    x_rest, f_rest = [a for a in x_axes if a not in ins], [a for a in f_axes if a not in taps]  # a name may be spatial in one only
    lone_x = [a for a in x_rest if a in over and a not in f_rest]
    lone_f = [a for a in f_rest if a in over and a not in x_rest]
    x = _reduced(t, x, "add", lone_x) if lone_x else x
    f = _reduced(t, f, "add", lone_f) if lone_f else f
    inner = [a for a in x_rest if a in f_rest and a in over]
    groups = [a for a in x_rest if a in f_rest and a not in over]
    batch = [a for a in x_rest if a not in f_rest and a not in over]
    outer = [a for a in f_rest if a not in x_rest and a not in over]
    a = merged(t, x, batch, groups, inner, *[[i] for i in ins])
    b = merged(t, f, groups, outer, inner, *[[i] for i in taps])
    numbers = tuple([tuple(map(t.settle, s[3:])) for s in spatial])
    dims = (*batch, *groups, *outer, *outs)
    shape = (t.size(batch), t.size(groups), t.size(outer), *t.shape(outs))
    var = t.emit("convolve", (a.var, b.var, numbers, t.shape(outs)), Variable(t.hint, accumulate, shape))
    made = unmerged(t, VariableRef(var, dims), dims, len(batch) == len(groups) == len(outer) == 1)
    return t.astype(made, step.result.dtype)


@LINES.of("cumulate")
def _cumulate(t: Translator, step: Step, kind: str, axis: AxisId, exclusive: bool, reverse: bool) -> VariableRef:
    x = t.wide(t.input(step, 0))
    x = t.full(x, x.dims if axis in x.dims else (*x.dims, axis))
    dtype = x.var.dtype
    start = {"add": 0, "multiply": 1, "max": dtype.lowest, "min": dtype.highest}[kind]
    fn = Name(combiner(kind, dtype))
    made = t.make("cumulate", fn, x.var, x.dims.index(axis), exclusive, reverse, start, dims=x.dims, dtype=dtype)
    return t.astype(made, step.result.dtype)


@LINES.of("sort")
def _sort(t: Translator, step: Step, axis: AxisId, descending: bool, nan_largest: bool) -> tuple[VariableRef, ...]:
    dims = t.order(step.results[0], step.inputs[0].axes)
    arrays = [t.full(r, dims) for r in t.inputs(step)]
    key, dim = t.wide(arrays[0]), dims.index(axis)
    order = t.make("sorted_positions", key.var, dim, descending, nan_largest, dims=dims, dtype=DTYPES["int64"], hint="order")
    return tuple([t.make("np.take_along_axis", a.var, order.var, dim, dims=dims, dtype=a.var.dtype) for a in arrays])


def matrices(t: Translator, step: Step, k: int, rows: AxisId, columns: AxisId) -> VariableRef:
    """Returns an operand with rows and columns as its last dims, wide enough to be computed with."""
    x = t.wide(t.input(step, k))
    return t.full(x, (*[a for a in step.inputs[k].axes if a not in (rows, columns)], rows, columns))


@LINES.of("cholesky_block")
def _cholesky(t: Translator, step: Step, rows: AxisId, columns: AxisId) -> VariableRef:
    x = matrices(t, step, 0, rows, columns)
    return t.astype(t.make("cholesky", x.var, dims=x.dims, dtype=x.var.dtype), step.result.dtype)


@LINES.of("triangular_block")
def _triangular(t: Translator, step: Step, rows: AxisId, columns: AxisId, lower: bool, unit: bool) -> VariableRef:
    a = matrices(t, step, 0, rows, columns)
    batch = a.dims[:-2]
    others = tuple([x for x in step.inputs[1].axes if x not in (*batch, rows)])
    b = t.full(t.wide(t.input(step, 1)), (*batch, rows, *others))
    shape = (*t.shape((*batch, rows)), t.size(others))
    flat = t.view(b, ".reshape", *shape, dims=(*batch, rows), shape=shape)
    solved = t.emit("triangular_solution", (a.var, flat.var, lower, unit), Variable(t.hint, a.var.dtype, shape))
    dims = (*batch, columns, *others)
    return t.astype(t.view(VariableRef(solved, ()), ".reshape", *t.shape(dims), dims=dims), step.result.dtype)


def _factors(t: Translator, step: Step, fn: str, rows: AxisId, columns: AxisId, *results: Dims) -> tuple[VariableRef, ...]:
    """Adds a line that computes factors of matrices; their dims are the batch, then these."""
    x = matrices(t, step, 0, rows, columns)
    dims = [(*x.dims[:-2], *d) for d in results]
    kinds = [x.var.dtype if v.dtype.is_float else v.dtype for v in step.results]
    made = [Variable(v.hint or step.op, kind, t.shape(d)) for v, kind, d in zip(step.results, kinds, dims, strict=True)]
    t.lines.calls.append(CallLine(tuple(made), fn, (x.var,), {}, False, t.origin))
    return tuple([t.astype(VariableRef(v, d), r.dtype) for v, d, r in zip(made, dims, step.results, strict=True)])


@LINES.of("lu_block")
def _lu(t: Translator, step: Step, rows: AxisId, columns: AxisId) -> tuple[VariableRef, ...]:
    return _factors(t, step, "lu_factors", rows, columns, (rows, columns), (rows,), ())


@LINES.of("qr")
def _qr(t: Translator, step: Step, rows: AxisId, columns: AxisId, inner: AxisId) -> tuple[VariableRef, ...]:
    return _factors(t, step, "np.linalg.qr", rows, columns, (rows, inner), (inner, columns))


@LINES.of("svd")
def _svd(t: Translator, step: Step, rows: AxisId, columns: AxisId, inner: AxisId) -> tuple[VariableRef, ...]:
    return _factors(t, step, "singular_values", rows, columns, (rows, inner), (inner,), (columns, inner))


@LINES.of("eigh")
def _eigh(t: Translator, step: Step, rows: AxisId, columns: AxisId, inner: AxisId) -> tuple[VariableRef, ...]:
    return _factors(t, step, "eigen", rows, columns, (inner,), (rows, inner))


@LINES.of("compact")
def _compact(t: Translator, step: Step, axes: Dims, axis: AxisId) -> tuple[VariableRef, VariableRef]:
    c = t.full(t.input(step, 0), tuple(axes))
    found, count = step.results
    places = t.emit("true_positions", (c.var,), Variable(t.hint, found.dtype, ()))
    length = t.emit("len", (places, 0), Variable("count", None, ()))
    number = t.make("scalar", Use(length), count.dtype, dims=(), dtype=count.dtype, hint="count")
    t.refs[count], t.numbers[count] = number, length
    kept = t.length(axis)
    places.shape = (Use(length),)
    if kept == Use(length):
        return VariableRef(places, (axis,)), number
    return t.view(VariableRef(places, (axis,)), "[]", (slice(None, kept),), dims=(axis,)), number


# ---- between processes, of which there is one ----------------------------------------------------------------


@LINES.of("all_reduce")
def _all_reduce(t: Translator, step: Step, kind: str, group: str) -> VariableRef:
    return t.input(step, 0)


@LINES.of("all_gather")
def _all_gather(t: Translator, step: Step, axis: AxisId, out: AxisId, group: str) -> VariableRef:
    x, here, there = t.input(step, 0), t.length(axis), t.length(out)
    if isinstance(here, int) and isinstance(there, int) and here != there:
        raise UnsupportedError(
            f"{step.op} from {axis}={here} to {out}={there}: there is one process, which has all of it",
            fix=f"give {out} the length of {axis}, or run on several processes",
        )
    return VariableRef(x.var, tuple([out if a == axis else a for a in x.dims]))


@LINES.of("reduce_scatter")
def _reduce_scatter(t: Translator, step: Step, kind: str, axis: AxisId, out: AxisId, group: str) -> VariableRef:
    return _all_gather(t, step, axis, out, group)


@LINES.of("broadcast_from")
def _broadcast_from(t: Translator, step: Step, root: int, group: str) -> VariableRef:
    return t.input(step, 0)


# ---- control flow and effects ------------------------------------------------------------------------------


def _several(t: Translator, step: Step, fn: str, args: tuple[Any, ...], dims: Sequence[Dims]) -> tuple[VariableRef, ...]:
    made = [Variable(v.hint or step.op, v.dtype, t.shape(d), holds="shared") for v, d in zip(real(step.results), dims, strict=True)]
    t.lines.calls.append(CallLine(tuple(made), fn, args, {}, False, t.origin))
    refs = iter([VariableRef(v, d) for v, d in zip(made, dims, strict=True)])
    return tuple([t.token if v.dtype.kind == "token" else next(refs) for v in step.results])


@LINES.of("reference")
def _reference(t: Translator, step: Step, **attrs: Any) -> tuple[VariableRef, ...]:
    """An op without an entry of its own: one line calls its record's reference with lengths, run-time integers and arrays."""
    record, inputs, results = REGISTRY[step.op], tuple([v.type for v in step.inputs]), own_order(REGISTRY[step.op], step)
    said = tuple(attrs.values())
    integers: dict[Value, ExprLike] = {}
    map_attr(said, lambda a: a, lambda v: integers.setdefault(v, Use(t.number(v))))
    found = {a for a, n in t.program.axes.items() if any(v in step.results for v in run_values(n))}  # results have these lengths
    lengths = {a: t.length(a) for a in [*(a for r in (*inputs, *results) for a in r.axes), *attr_axes(said)] if a not in found}

    def call(known: tuple[int, ...], counts: tuple[int, ...], *arrays: Any) -> tuple[Any, ...]:
        length, integer = dict(zip(lengths, map(int, known), strict=True)), dict(zip(integers, map(int, counts), strict=True))

        def body(program: Program, given: Sequence[Any]) -> list[Any]:
            return interpret(program, given, lengths={a: length[a] for a in program.symbols() if a in length})[0]

        made = Call({k: with_integers(a, integer.__getitem__) for k, a in attrs.items()}, inputs, results, length.__getitem__, body)
        operands = map(np.asarray, arrays)
        got = apply(record, made, [None if i.dtype.np is None else next(operands) for i in inputs], step.origin)
        for array, r in zip(got, results, strict=True):
            if array is not None and found.isdisjoint(r.axes):
                check_shape(record, r, array, made.length, step.origin)
        return tuple([a for a in got if a is not None])

    made = {
        v: VariableRef(Variable(v.hint or step.op, v.dtype, (), holds="shared"), tuple(r.axes))
        for v, r in zip(step.results, results, strict=True)
    }
    arrays = [t.full(t.refs[v], tuple(v.axes)).var for v in real(step.inputs)]
    args = (tuple(lengths.values()), tuple(integers.values()), *arrays)
    t.lines.calls.append(CallLine(tuple([made[v].var for v in real(made)]), ReferenceCall(step.op, call), args, {}, False, t.origin))
    t.refs.update({v: r for v, r in made.items() if not r.dims})  # the lengths of other results may be among them
    for v in real(made):
        r = made[v]
        r.var.shape = t.shape(r.dims)
        if not found.isdisjoint(r.dims):
            made[v] = t.view(r, "[]", tuple([slice(None, t.length(a) if a in found else None) for a in r.dims]), dims=r.dims)
    return tuple([made[v] if v.dtype.np is not None else t.token for v in step.results])


@LINES.of("scan")
def _scan(t: Translator, step: Step, body: Program, axis: AxisId, reverse: bool, carries: int, xs: int) -> tuple[VariableRef, ...]:
    carries = len(real(body.inputs[:carries]))
    dims = [tuple(v.axes) for v in real(body.inputs)]
    given = [
        t.full(t.refs[v], (axis, *d) if carries <= k < carries + xs else d).var
        for k, (v, d) in enumerate(zip(real(step.inputs), dims, strict=True))
    ]
    ys = real(body.outputs)[carries:]
    each = [tuple(v.axes) for v in ys]
    args = (
        t.body(body, dims, [*dims[:carries], *each]),
        tuple(given[:carries]),
        tuple(given[carries : carries + xs]),
        tuple(given[carries + xs :]),
        t.length(axis),
        reverse,
        tuple([(t.shape(d), v.dtype) for v, d in zip(ys, each, strict=True)]),
    )
    return _several(t, step, "scan", args, [*dims[:carries], *[(axis, *d) for d in each]])


@LINES.of("while")
def _while(t: Translator, step: Step, cond: Program, body: Program, carries: int) -> tuple[VariableRef, ...]:
    carries = len(real(body.inputs[:carries]))
    dims = [tuple(v.axes) for v in real(body.inputs)]
    given = [t.full(t.refs[v], d).var for v, d in zip(real(step.inputs), dims, strict=True)]
    args = (t.body(cond, dims, [()]), t.body(body, dims, dims[:carries]), tuple(given[:carries]), tuple(given[carries:]))
    return _several(t, step, "while_loop", args, dims[:carries])


@LINES.of("cond")
def _cond(t: Translator, step: Step, **branches: Program) -> tuple[VariableRef, ...]:
    then, otherwise = branches["then"], branches["else"]
    dims = [tuple(v.axes) for v in real(then.inputs)]
    results = [tuple(v.axes) for v in real(then.outputs)]
    given = tuple([t.full(t.refs[v], d).var for v, d in zip(real(step.inputs[1:]), dims, strict=True)])
    chosen = t.typed(t.input(step, 0)).var
    return _several(t, step, "branch", (chosen, t.body(then, dims, results), t.body(otherwise, dims, results), given), results)


@LINES.of("effect")
def _effect(t: Translator, step: Step, kind: str, text: str) -> VariableRef:
    if kind == "nothing":
        return t.token
    arrays = [t.full(r, tuple(v.axes)) for r, v in zip(t.inputs(step)[1:], step.inputs[1:], strict=True)]
    if kind != "print":  # a host call may keep its arguments
        arrays = [t.make("np.array", r.var, dims=r.dims, dtype=r.var.dtype, order="C") for r in arrays]
    t.emit(f"host:{kind}", (text, *[r.var for r in arrays]), Variable("token", None, ()))
    return t.token
