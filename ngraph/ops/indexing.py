"""Reads and writes at computed positions: the core `gather` and `scatter`, and take, lookuptable, one_hot on top of them.

`mode` defines indices outside of the axis: `clip` takes the nearest end, `wrap` is modular, `fill` reads 0 and drops writes. Reads of an
axis without elements give zeros. `take` and `put` also have the mode `raise`: indices from -n to -1 count from the end, and all others
outside end the call with a BoundsError (the core op `check_bounds` in front of a gather that clips).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.errors import AxisError, BoundsError, DTypeError
from ngraph.op_graph import dtypes
from ngraph.op_graph.arguments import one_of
from ngraph.op_graph.axes import Axes, Axis, as_axis, merge, show_axes
from ngraph.op_graph.dtypes import DType, computes
from ngraph.op_graph.op import Op, TensorType, place_of_now
from ngraph.op_graph.opdef import Call, OpDef, find_axis, op, own_axes, own_or_new_axes, show_input
from ngraph.ops.aligned import align, axes_like, union, wide, without
from ngraph.ops.elementwise import ALL, MOVED, WHOLE, as_op, as_ops, cast, common, constant, equal, filled, not_equal, where
from ngraph.ops.rearrange import axes_with_order, broadcast, iota
from ngraph.warn import warn

MODES = ("clip", "fill", "wrap")
COMBINE = {"set": None, "add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}


def _check(
    name: str, indices: Sequence[TensorType], axes: Sequence[Any], mode: str, x: TensorType
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Returns the axes of the indices, and those of x that are not indexed; raises for arguments that disagree."""
    one_of(name, "mode", mode, MODES)
    if len(indices) != len(axes) or len(set(axes)) != len(axes) or any(a not in x.axes for a in axes) or not axes:
        raise AxisError(f"{name}: {len(indices)} indices for the axes {list(axes)} of {list(x.axes)}", fix="give one index for each axis")
    for i in indices:
        if not i.dtype.is_integer:
            raise DTypeError(f"{name}: an index of {i.dtype}", fix="cast it: ng.cast(index, 'int32')")
    rest = without(x.axes, axes)
    places = axes_like(x.axes, merge(*[i.axes for i in indices]))
    merge(rest, places)
    return places, rest


def _prepare(inputs: tuple[Any, ...], attrs: dict[str, Any]) -> tuple[tuple[Op, ...], dict[str, Any]]:
    """Returns inputs with numbers and arrays as constants, and `axes` as those of x, also by name."""
    x, *others = as_ops(inputs)
    return (x, *others), {**attrs, "axes": tuple(own_axes(x, attrs["axes"], "gather or scatter"))}


def _gather_type(inputs: tuple[TensorType, ...], axes: tuple[Any, ...], mode: str) -> TensorType:
    x, *indices = inputs
    places, rest = _check("gather", indices, axes, mode, x)
    at = next(k for k, a in enumerate(x.axes) if a in axes)
    before = [a for a in x.axes[:at] if a not in axes]
    after = [a for a in x.axes[at:] if a not in axes]
    return TensorType(axes_like(x.axes, [*before, *(a for a in places if a not in rest), *after]), x.dtype)


def _target(i: np.ndarray, n: int, mode: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns positions from 0 to n - 1 for the indices `i`, and whether each index denotes one."""
    if n == 0:
        return np.zeros(i.shape, np.int64), np.zeros(i.shape, bool)
    if mode == "wrap":
        return (i.astype(np.uint64) % np.uint64(n) if i.dtype.kind == "u" else i.astype(np.int64) % n).astype(np.int64), np.ones(
            i.shape, bool
        )
    near = np.minimum(i.astype(np.uint64), np.uint64(n)).astype(np.int64) if i.dtype.kind == "u" else i.astype(np.int64)
    inside = (near >= 0) & (near < n)
    return np.clip(near, 0, n - 1), inside if mode == "fill" else np.ones(i.shape, bool)


def _places(call: Call, indices: Sequence[np.ndarray], over: Sequence[Any]) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Returns for each element along the axes `over` its position in x, one index array for each axis of x; and whether it has one."""
    x = call.inputs[0]
    given = dict(zip(call.attrs["axes"], range(len(indices)), strict=True))
    shape = call.shape(over)
    inside = np.ones(shape, bool)
    at = []
    for axis in x.axes:
        n = call.length(axis)
        if axis in given:
            k = given[axis]
            i, ok = _target(align(indices[k], call.inputs[k + 1].axes, over), n, call.attrs["mode"])
            inside = inside & ok
        else:
            i = align(np.arange(n), [axis], over)
        at.append(np.broadcast_to(i, shape))
    return tuple(at), inside


def _gather_reference(call: Call, x: np.ndarray, *indices: np.ndarray) -> np.ndarray:
    at, inside = _places(call, indices, call.axes)
    if x.size == 0:
        return np.zeros(call.shape(call.axes), x.dtype)
    return np.asarray(np.where(inside, x[at], np.zeros((), x.dtype)))


def _gather_gradient(op: Op, dy: Op, x: Op, *indices: Op) -> tuple[Op | None, ...]:
    zeros = filled(0, x.axes, dy.dtype)
    return scatter.build(zeros, *indices, dy, axes=op.attrs["axes"], combine="add", mode=op.attrs["mode"]), *(None for _ in indices)


gather: OpDef = op(
    "gather",
    "x at `axes[k]` = i_k; other shared axes are the same index; mode `clip`, `fill` (0, or the number whose bits are 0), `wrap`.",
    form="(x, i…; axes, mode)",
    example='>>> ng.gather(ng.placeholder("H=5 W=2"), ng.placeholder("N=3", dtype="int32"), axes="H").axes\nAxes(N=3, W=2)',
    type=_gather_type,
    prepare=lambda inputs, attrs: _prepare(inputs, {"mode": "fill", **attrs}),
    reference=_gather_reference,
    grad=_gather_gradient,
    samples=lambda s: [
        *(take(s.x(s.I, s.J), s.ints(s.N, low=-3, high=5), s.J, mode) for mode in MODES),
        take(s.x(s.I, s.J), s.ints(s.J, low=0, high=2), s.I),
        take(s.x(s.I, s.J), s.ints(s.I, low=-1, high=4), s.J),
        take(s.x(s.J), s.ints(s.J, low=0, high=3), s.J),
        take(s.x(s.K, s.J), s.ints(low=1, high=1), s.J),
        take(s.x(s.J), s.ints(s.Z), s.J),
        take(s.x(s.Z, s.J), s.ints(s.I), s.Z),
        take(s.x(s.O, s.I - 1), s.ints(s.N, s.K, low=0, high=2, dtype=dtypes.uint8), s.I - 1),
        take(s.special(s.N), s.ints(s.I, low=0, high=4, dtype=dtypes.int64), s.N),
        gather.build(s.x(s.I, s.K, s.J), s.ints(s.N, low=0, high=4), s.ints(s.K, s.N, low=-2, high=3), axes=(s.J, s.I), mode="wrap"),
    ],
    kinds=MOVED,
    onnx="Gather",
)


def _scatter_type(inputs: tuple[TensorType, ...], axes: tuple[Any, ...], combine: str, mode: str) -> TensorType:
    x, *indices, u = inputs
    one_of("scatter", "combine", combine, COMBINE)
    if combine != "set":
        computes(f"scatter {combine}", x.dtype)
    if x.dtype is not u.dtype or (x.dtype.kind == "bool" and combine in ("add", "multiply")):
        raise DTypeError(f"scatter {combine} of {u.dtype} into {x.dtype}", fix="cast to one dtype; bool is set, or combined by max and min")
    places, rest = _check("scatter", indices, axes, mode, x)
    wanted = merge(rest, places, u.axes)
    if len(wanted) != len(u.axes) or len(wanted) != len(merge(rest, places)):
        raise AxisError(f"scatter of {list(u.axes)}: wanted are the axes {list(merge(rest, places))}", fix="broadcast the updates to them")
    return x


def _scatter_reference(call: Call, x: np.ndarray, *others: np.ndarray) -> np.ndarray:
    *indices, u = others
    at, inside = _places(call, indices, call.inputs[-1].axes)
    result = np.array(wide(x))
    combine = COMBINE[call.attrs["combine"]]
    kept = tuple(i[inside] for i in at)
    with np.errstate(all="ignore"):
        if combine is None:
            result[kept] = u[inside]
        else:
            combine.at(result, kept, wide(u)[inside])
    return np.asarray(result.astype(call.dtype.np))


def _scatter_gradient(op: Op, dy: Op, x: Op, *others: Op) -> tuple[Op | None, ...]:
    *indices, u = others
    combine, axes, mode = op.attrs["combine"], op.attrs["axes"], op.attrs["mode"]
    none = (None for _ in indices)

    def read(t: Op) -> Op:
        return gather.build(t, *indices, axes=axes, mode=mode)

    def put(t: Op, update: Op, how: str) -> Op:
        return scatter.build(t, *indices, broadcast(update, u.axes), axes=axes, combine=how, mode=mode)

    if combine == "add":
        return dy, *none, read(dy)
    if combine == "set":
        return put(dy, filled(0, u.axes, dy.dtype), "set"), *none, read(dy)
    if combine == "multiply":  # the gradient of each factor is the product of all others, correct where factors are 0, too
        zero = equal(u, 0.0)
        factor = where(zero, 1.0, u)
        others_product = put(filled(1, x.axes, dy.dtype), factor, "multiply")
        zeros = put(filled(0, x.axes, dy.dtype), cast(zero, dy.dtype), "add")
        alone = equal(read(zeros), cast(zero, dy.dtype))
        return dy * put(filled(1, x.axes, dy.dtype), u, "multiply"), *none, where(alone, read(dy * x * others_product) / factor, 0.0)
    mine = cast(equal(x, op), dy.dtype)  # ties of a maximum or minimum share the gradient equally
    theirs = cast(equal(u, read(op)), dy.dtype)
    share = dy / put(mine, theirs, "add")
    return mine * share, *none, theirs * read(share)


def _scatter_samples(s: Any) -> list[Op]:
    def one(x: Op, i: Op, u: Op, axis: Axis, combine: str, mode: str = "fill") -> Op:
        return scatter.build(x, i, u, axes=(axis,), combine=combine, mode=mode)

    made = []
    for how in ("set",) if s.kind == "narrow" else ("set", "min", "max") if s.kind == "bool" else COMBINE:
        spread = s.given([3, -1, 0, 7, 1], s.N, dtype=dtypes.int32) if how == "set" else s.ints(s.N, low=-2, high=5)
        made += [
            one(s.x(s.I, s.J), spread, s.x(s.N, s.I), s.J, how),
            one(s.x(s.J), s.given([2, 0], s.K, dtype=dtypes.uint8), s.x(s.K), s.J, how, "clip"),
            one(s.x(s.J, s.K), s.given([5, -1, 0], s.I, dtype=dtypes.int64), s.x(s.K, s.I), s.J, how, "wrap"),
            one(s.x(s.I, s.J), s.ints(s.I, low=0, high=3), s.x(s.I), s.J, how),
            one(s.x(s.I), s.ints(s.Z), s.x(s.Z), s.I, how),
            one(s.x(s.Z), s.ints(s.I), s.x(s.I), s.Z, how),
            one(s.special(s.J), s.given([1, 3], s.K, dtype=dtypes.int32), s.special(s.K), s.J, how),
        ]
    two = (s.given([0, 2, 1], s.I, dtype=dtypes.int32), s.given([1, 3], s.K, dtype=dtypes.int32))
    return [*made, scatter.build(s.x(s.I - 1, s.J), *two, s.x(s.I, s.K), axes=(s.I - 1, s.J), combine="set", mode="clip")]


scatter: OpDef = op(
    "scatter",
    "A copy of x into which u is combined (`set add multiply min max`) at `axes[k]` = i_k; u has i's axes and x's other axes. `set` "
    "with equal targets: unspecified. mode `clip`, `fill` (dropped), `wrap`.",
    form="(x, i…, u; axes, combine, mode)",
    example='>>> i, u = ng.placeholder("N=3", dtype="int32"), ng.placeholder("N=3 W=2")\n'
    '>>> ng.scatter(ng.placeholder("H=5 W=2"), i, u, axes="H", combine="add").axes\nAxes(H=5, W=2)',
    type=_scatter_type,
    prepare=lambda inputs, attrs: _prepare(inputs, {"combine": "set", "mode": "fill", **attrs}),
    reference=_scatter_reference,
    grad=_scatter_gradient,
    samples=_scatter_samples,
    kinds=MOVED,
    ulp=16,
    smooth=False,
    onnx="ScatterND",
)


# ---- bounds --------------------------------------------------------------------------------------------------------------


def _check_bounds_type(
    inputs: tuple[TensorType, ...], axis: Any, negative: bool | str, what: str, file: str, line: int, fix: str
) -> TensorType:
    (i,) = inputs
    if not i.dtype.is_integer:
        raise DTypeError(f"check_bounds: an index of {i.dtype}", fix="cast it: ng.cast(index, 'int32')")
    return TensorType(i.axes, dtypes.int64)


def _check_bounds_reference(call: Call, i: np.ndarray, *outside: np.ndarray) -> np.ndarray:
    """Raises BoundsError for the first index outside; `outside`: whether there is one, where that is already computed."""
    axis, negative, what, file, line, fix = call.attrs.values()
    n = call.length(axis)
    wrong = [k for k in i.ravel().tolist() if not (-n if negative else 0) <= k < n]
    if wrong:
        said = {
            "length": f"{what}, which has length {n} in this call, does not fit",
            "divisor": f"ZeroDivisionError: {what} is 0",
            "operand": what,
        }
        message = said.get(str(negative), f"index {wrong[0]} is out of bounds of {what}, which has length {n}")
        raise BoundsError.of(message, n, negative, file, line, fix)
    return np.where(i < 0, i.astype(np.int64) + n, i.astype(np.int64))


check_bounds: OpDef = op(
    "check_bounds",
    "int64: the index i of an axis of length n, n more where it is negative; the call fails where i is not from -n (0 unless `negative`) "
    "to n - 1. Where `negative` is 'length', the error is about the length n; where 'divisor', i is 1 for a divisor of 0; "
    "where 'operand', for one that `what` refuses. The other attributes are said then: of what, file, line, fix.",
    form="(i; axis, negative, what, file, line, fix)",
    type=_check_bounds_type,
    reference=_check_bounds_reference,
    samples=lambda s: [
        bounded(s.ints(s.N, low=-4, high=3, dtype=s.dtype if s.kind == "int" else dtypes.int32), s.J, "J"),
        bounded(s.ints(s.N, s.K, low=0, high=3, dtype=s.dtype), s.J, "J", negative=False),
        bounded(s.ints(low=1, high=1), s.I, "I"),
        bounded(s.ints(s.Z), s.I, "I"),
        bounded(s.ints(s.O, s.I, low=-1, high=0), s.O, "O"),
        gather(s.x(s.I, s.J), bounded(s.ints(s.N, low=-4, high=3), s.J, "J"), axes=(s.J,), mode="clip"),
        bounded(s.ints(s.Z), s.J, "J", negative="length"),
        bounded(s.ints(s.N, low=0, high=0), s.O, "a divisor", negative="divisor"),
        bounded(s.ints(s.N, low=0, high=0), s.O, "an operand is not from 0 to 1", negative="operand"),
    ],
    kinds=("int", "uint"),
    smooth=False,
)


def bounded(i: Op, axis: Any, what: str, negative: bool | str = True, fix: str = "") -> Op:
    """Returns the index `i` along `axis`, checked when it is computed; `what` names the indexed tensor in the error."""
    file, line = place_of_now().line or ("", 0)
    return check_bounds.build(i, axis=axis, negative=negative, what=what, file=file, line=line, fix=fix)


# ---- composed of these ------------------------------------------------------------------------------------------------


def _whole_index(x: Op, name: str) -> Op:
    if not x.dtype.is_integer:
        raise DTypeError(f"{name}: the index {x.label} is {x.dtype}", details=(show_input(x),), fix="cast it: ng.cast(index, 'int32')")
    return x


def _word_ids(x: Op) -> Op:
    """Returns the index of a table as integers; floats, such as a placeholder without a dtype, are cast, with a warning."""
    if not x.dtype.is_float or x.dtype.bits < 32:  # 16 bits hold few whole numbers
        return _whole_index(x, "lookuptable")
    fix = "give the placeholder its dtype: dtype='int32'" if x.is_placeholder else "cast it: ng.cast(index, 'int32')"
    what = f"lookuptable: the index {x.label} is {x.dtype}, and is read as int32"
    warn(what, fix=fix, details=(show_input(x),), error=DTypeError)
    return cast(x, dtypes.int32)


def _refusing(idx: Op, axis: Any, mode: str) -> tuple[Op, str]:
    """Returns index and mode of a gather or scatter for a user's mode, which may be `raise`."""
    if mode != "raise":
        return idx, mode
    return bounded(idx, axis, f"axis {axis.label}", fix="mode='clip' takes the nearest place, 'fill' reads 0 and drops writes"), "clip"


def _places_along(x: Op, idx: Any, axis: Any, mode: str, name: str) -> tuple[tuple[Op, ...], tuple[Axis, ...], str]:
    """Returns the indices, the axes that they are along, and the mode of a gather or scatter for a user's mode."""
    one_of(name, "mode", mode, (*MODES, "raise"))
    several = isinstance(axis, (tuple, list, Axes))
    indices, axes = (tuple(idx), tuple(axis)) if several and isinstance(idx, (tuple, list)) else ((idx,), (axis,))
    if len(indices) != len(axes):
        what = f"{name}: {len(indices)} indices for {len(axes)} axes"
        raise AxisError(what, details=(show_input(x),), fix="give one index for each axis")
    along = tuple([find_axis(x, a, name) for a in axes])
    numbers = [constant(i, (), dtypes.int64) if isinstance(i, int) and not isinstance(i, bool) else as_op(i) for i in indices]
    found = [_refusing(_whole_index(i, name), a, mode) for i, a in zip(numbers, along, strict=True)]
    return tuple([i for i, _ in found]), along, found[0][1] if found else mode


def take(x: Any, idx: Any, axis: Any, mode: str = "fill", out_axes: Any = None) -> Op:
    """Returns `x` at the positions `idx` along `axis`, which the axes of `idx` replace; axes that both have are matched.

    Several axes at once: `ng.take(x, (i, j), ("H", "W"))`, an index for each. mode, of indices outside: `fill` reads 0, `clip` takes the
    nearest end, `wrap` is modular, and `raise` ends the call with a BoundsError and counts negative indices from the end.
    out_axes: the result's axes in another order. Raises AxisError, DTypeError for an index that is not an integer.

    >>> ng.function(ng.take(ng.constant([10, 20, 30], "H=3"), ng.constant([2, 0], "K=2"), "H"))()
    ComputedArray([30, 10])
    """
    x = as_op(x)
    indices, along, mode = _places_along(x, idx, axis, mode, "take")
    result = gather(x, *indices, axes=along, mode=mode)
    return result if out_axes is None else axes_with_order(result, out_axes)


def put(x: Any, idx: Any, values: Any, axis: Any, combine: str = "set", mode: str = "fill") -> Op:
    """Returns a copy of `x` into which `values` are combined (`set add multiply min max`) at the positions `idx` along `axis`.

    Several axes at once: `ng.put(x, (i, j), values, ("H", "W"))`, an index for each. values: broadcast to the axes of `idx` and the other
    axes of `x`. If one position is set twice, either value may remain. Assigned to `x`, a variable, it is written in place.
    mode: as in `take`, but that `fill` drops what is written outside.

    >>> x, at = ng.zeros("H=4"), ng.constant([1, 3], "K=2")
    >>> ng.function(ng.put(x, at, ng.ones("K=2"), "H"))()
    ComputedArray([0., 1., 0., 1.], dtype=float32)
    """
    x, values = common((x, values)) if isinstance(values, Op) or isinstance(x, Op) else as_ops((x, values))
    indices, along, mode = _places_along(x, idx, axis, mode, "put")
    wanted = axes_like(x.axes, union(merge(*[i.axes for i in indices]), x.axes - Axes(along)))
    strange = [a.label for a in values.axes if a not in wanted]
    if strange:
        raise AxisError(
            f"put({x.label}, {values.label}): the values have {', '.join(strange)}, and the places {show_axes(wanted)}",
            details=(show_input(x), *map(show_input, indices), show_input(values)),
            fix="give the values axes of the indices, and those of the tensor that are not indexed",
        )
    return scatter(x, *indices, broadcast(values, wanted), axes=along, combine=combine, mode=mode)


def scatter_add(x: Any, idx: Any, values: Any, axis: Axis | str, mode: str = "fill") -> Op:
    """Returns a copy of `x` with `values` added at the positions `idx` along `axis`; repeated positions accumulate. Otherwise as `put`.

    >>> x, at = ng.zeros("H=3"), ng.constant([1, 1], "K=2")
    >>> ng.function(ng.scatter_add(x, at, ng.ones("K=2"), "H"))()
    ComputedArray([0., 2., 0.], dtype=float32)
    """
    return put(x, idx, values, axis, combine="add", mode=mode)


def _lookup_lower(op: Op, lut: Op, idx: Op) -> Op:
    return broadcast(gather.build(lut, idx, axes=(op.attrs["axis"],), mode="fill"), op.axes)


def _lookup_gradient(op: Op, dy: Op, lut: Op, idx: Op) -> tuple[Op | None, None]:
    axis, pad_idx = op.attrs["axis"], op.attrs["pad_idx"]
    if not op.attrs["update"]:
        return None, None
    if pad_idx is not None:
        dy = where(not_equal(idx, pad_idx), dy, 0.0)
    zeros = filled(0, lut.axes, dy.dtype)
    return scatter.build(zeros, idx, dy, axes=(axis,), combine="add", mode="fill"), None


def _lookup_reference(call: Call, lut: np.ndarray, idx: np.ndarray) -> np.ndarray:
    table, index = call.inputs
    axis = call.attrs["axis"]
    rest = [a for a in table.axes if a != axis]
    rows = np.moveaxis(lut, table.axes.index(axis), 0)
    padded = np.concatenate([rows, np.zeros((1, *rows.shape[1:]), rows.dtype)])
    inside = (idx >= 0) & (idx < len(rows))
    found = padded[np.where(inside, idx, len(rows)).astype(np.int64)]
    return align(found, [*index.axes, *rest], call.axes)


lookup_record: OpDef = op(
    "lookuptable",
    "Rows of a table by their numbers; a number outside gives zeros.",
    type=lambda inputs, axis, axes, update, pad_idx: TensorType(axes, inputs[0].dtype),
    reference=_lookup_reference,
    grad=_lookup_gradient,
    lower=_lookup_lower,
    samples=lambda s: [
        lookuptable(s.x(s.J, s.I), s.ints(s.N, low=-1, high=4), (s.I, s.N)),
        lookuptable(s.x(s.I, s.J), s.ints(s.N, s.K, low=0, high=3), (s.N, s.K, s.I)),
        lookuptable(s.x(s.J, s.I), s.ints(s.Z), (s.Z, s.I)),
        lookuptable(s.special(s.J, s.I), s.ints(s.N, low=0, high=3), (s.I, s.N)),
    ],
    kinds=ALL,
    onnx="Gather",
    torch="aten.embedding",
)


def lookuptable(lut: Any, idx: Any, axes: Any, update: bool = True, pad_idx: int | None = None, docstring: str | None = None) -> Op:
    """Returns the rows of the table `lut` with the numbers `idx`.

    axes: the result's: those of `idx`, and those of `lut` but the one that is looked up.
    update: whether the table has a gradient. pad_idx: the row without a gradient.
    idx: integers; or float32 or float64 that are whole numbers, which are cast to int32 with a warning.
    Raises AxisError where the axes do not fit, DTypeError for an index of another dtype.

    >>> ng.lookuptable(ng.ones("V=9 F=4"), ng.constant([3, 5], "N=2"), "F N").axes
    Axes(F=4, N=2)
    """
    lut, idx = as_op(lut), _word_ids(as_op(idx))
    axes = own_or_new_axes((lut, idx), axes)
    looked_up = [a for a in lut.axes if a not in axes or a in idx.axes]
    rest = [a for a in lut.axes if a not in looked_up]
    if len(looked_up) != 1 or set(axes) != {*idx.axes, *rest}:
        raise AxisError(
            f"lookuptable({lut.label}, {idx.label}): {show_axes(axes)} are not the axes of {idx.label} and all of {lut.label} but one",
            details=(show_input(lut), show_input(idx)),
            fix=f"axes=[..., {', '.join(a.label for a in idx.axes)}] with one axis of {lut.label} left out",
        )
    return lookup_record.build(lut, idx, axis=looked_up[0], axes=axes, update=bool(update), pad_idx=pad_idx)


def _one_hot_lower(op: Op, x: Op) -> Op:
    return cast(equal(iota(op.attrs["axis"], x.dtype), x), dtypes.float32)


def _counting(d: DType) -> DType:
    """Returns a dtype that represents both the indices of an axis and values of `d`."""
    return dtypes.float32 if d.is_float and d.bits < 32 else dtypes.promote(d, dtypes.int32)


def _one_hot_type(inputs: tuple[TensorType, ...], axis: Any) -> TensorType:
    (x,) = inputs
    if axis in x.axes:
        raise AxisError(f"one_hot along {axis}, which x {list(x.axes)} has already", fix="give a new axis")
    return TensorType(axes_like(x.axes, (axis, *x.axes)), dtypes.float32)


one_hot_record: OpDef = op(
    "one_hot",
    "1 where the index along a new axis is x, else 0.",
    type=_one_hot_type,
    reference=lambda call, x: (np.arange(call.length(call.attrs["axis"])).reshape(-1, *[1] * x.ndim) == x[None]).astype(np.float32),
    prepare=lambda inputs, attrs: ((cast(as_op(inputs[0]), _counting(as_op(inputs[0]).dtype)),), attrs),
    lower=_one_hot_lower,
    samples=lambda s: [
        one_hot(s.ints(s.N, low=-1, high=3), s.I),
        one_hot(s.ints(s.K, s.N, low=0, high=1, dtype=s.dtype), s.J),
        one_hot(s.ints(low=1, high=1), s.I),
        one_hot(s.ints(s.Z), s.I),
        one_hot(s.ints(s.N, low=0, high=1), s.Z),
        one_hot(s.special(s.N), s.I),
    ],
    kinds=WHOLE,
    onnx="OneHot",
)


def one_hot(x: Any, axis: Axis | str, out_axes: Any = None) -> Op:
    """Returns float32: 1 where the index along `axis`, which stands first, is the value of `x`, else 0; values outside give zeros.

    out_axes: the result's axes in another order. Raises AxisError where `x` has the axis already.

    >>> ng.function(ng.one_hot(ng.constant([2, 0], "N=2"), "Y=3"))()
    ComputedArray([[0., 1.],
                   [0., 0.],
                   [1., 0.]], dtype=float32)
    """
    result = one_hot_record(x, axis=as_axis(axis))
    return result if out_axes is None else axes_with_order(result, out_axes)
