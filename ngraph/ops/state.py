"""Inputs and state: placeholders, variables, assignment, and the order of effects.

`assign` requests a value that the variable has after the computation; only inside `sequential` do later parts see it (docs/spec.md 5).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from ngraph.errors import ArgumentTypeError, AxisError, DTypeError, GraphError, show_line
from ngraph.op_graph import dtypes
from ngraph.op_graph.arrays import immutable
from ngraph.op_graph.axes import Axes, show_axes
from ngraph.op_graph.dtypes import as_dtype, check_fits
from ngraph.op_graph.labelled import arranged
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import OpDef, op, show_input
from ngraph.ops.elementwise import ALL, array_of, as_op, cast, constant
from ngraph.ops.reduce import ordered_as

_leaf = {"type": lambda inputs, axes, dtype, **attrs: TensorType(axes, dtype), "core": False}
placeholder_record: OpDef = op("placeholder", "A value that the caller gives with each call.", **_leaf)
variable_record: OpDef = op("variable", "A value that stays from call to call.", **_leaf)
part: OpDef = op(
    "part", "One result of an op that has several.", form="(x; index)", type=lambda inputs, index: inputs[0][index], core=False
)
together: OpDef = op(
    "together",
    "Several tensors as the results of one op: what an op with several results lowers to.",
    form="(x…)",
    type=lambda inputs: inputs,
    grad=lambda op, dys, *inputs: tuple([None if dy is None or (dy.is_constant and dy.attrs["value"] == 0) else dy for dy in dys]),
    core=False,
)
assign_record: OpDef = op(
    "assign", "The second input becomes the value of the first, a variable.", form="(variable, x)", type=lambda inputs: None, core=False
)
doall_record: OpDef = op("doall", "All inputs happen, in no order; no value.", form="(x…)", type=lambda inputs: None, core=False)
sequential_record: OpDef = op(
    "sequential",
    "The inputs one after another; the value is the last one's.",
    form="(x…)",
    type=lambda inputs: inputs[-1],
    grad=lambda op, dy, *inputs: (*(None for _ in inputs[1:]), dy),
    core=False,
)
value_of_record: OpDef = op(
    "value_of",
    "The value at this place.",
    type=lambda inputs: inputs[0],
    reference=lambda call, x: x,
    lower=lambda op, x: x,
    grad=lambda op, dy, x: dy,
    samples=lambda s: [value_of(s.x(s.I, s.J)), value_of(s.special(s.K)), value_of(s.x(s.Z))],
    kinds=ALL,
)


def parts(x: Op) -> tuple[Op, ...]:
    """Returns the results of an op that has several, each as an op."""
    return tuple(part.build(x, index=k) for k in range(len(x.type)))


Text = str | None
Notes = Mapping[str, Any] | None


def placeholder(
    axes: Any = (),
    dtype: Any = None,
    initial_value: Any = None,
    name: str | None = None,
    docstring: str | None = None,
    metadata: Notes = None,
) -> Op:
    """Returns a placeholder: an input whose value the caller passes.

    axes: the tensor's axes in the order of the caller's arrays; () for a scalar. Lengths may be unknown until the call.
    dtype: float32 by default. docstring, metadata: notes for `op.metadata`.

    >>> ng.placeholder("N=? H=28", dtype="int32")
    <placeholder: int32[N=?, H=28]>
    """
    d = as_dtype(dtype) if dtype is not None else dtypes.float32
    made = placeholder_record.build(axes=Axes(axes), dtype=d)
    if initial_value is not None:
        made.attrs["initial_value"] = _held(initial_value)
    return made.described(name, docstring, metadata)


def _held(value: Any) -> Any:
    """Returns an initial value that later writes by its owner do not change."""
    if value is None or isinstance(value, (bool, int, float, np.generic, Op)) or callable(value):
        return value
    return immutable(array_of(value, "an initial value"))


def takes_axes(function: Any) -> bool:
    """Returns whether a function of an initial value takes the Axes, or nothing. Raises ArgumentTypeError for one that needs more."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    for arguments in ((None,), ()):
        with suppress(TypeError):
            signature.bind(*arguments)
            return bool(arguments)
    raise ArgumentTypeError(
        f"an initial value is a function of {', '.join(signature.parameters)}, and is given the Axes alone",
        fix="give a function of nothing or of the Axes, as lambda axes: numpy.ones(axes.lengths)",
    )


def _stateful(axes: Any, dtype: Any, initial_value: Any, trainable: bool, saved: bool) -> Op:
    d = as_dtype(dtype) if dtype is not None else dtypes.float32
    axes = Axes(axes)
    value = initial_value
    if isinstance(value, Op):
        if not value.is_constant:
            raise GraphError(
                f"the initial value {value.label} is computed",
                details=(show_input(value),),
                fix="give a number, an array, or a function, or assign the op in a computation of its own",
            )
        value = value.attrs["value"]
        value = getattr(value, "array", value)
    if callable(value) and not isinstance(value, np.ndarray):
        takes_axes(value)  # or neither: that is told where the variable is made
    if value is not None and not callable(value):
        value = _held(arranged(value, axes, "an initial value"))
        array = np.asarray(value)
        try:
            known = tuple([a.length for a in axes])
            if None not in known:
                np.broadcast_to(array, known)
        except ValueError:
            raise AxisError(
                f"an initial value of shape {array.shape} does not fit the axes {show_axes(axes)}",
                fix="give a number, or an array of their lengths",
            ) from None
        check_fits("an initial value", array, d)
        if array.ndim == len(axes):
            for axis, n in zip(axes, array.shape, strict=True):
                if axis.length is None:
                    axis.length = n
    return variable_record.build(axes=axes, dtype=d, trainable=trainable, saved=saved, initial_value=value)


def variable(
    axes: Any = (),
    dtype: Any = None,
    initial_value: Any = None,
    name: str | None = None,
    docstring: str | None = None,
    metadata: Notes = None,
) -> Op:
    """Returns a variable: trainable state that keeps its value from call to call.

    axes: as in `placeholder`. dtype: float32 by default.
    initial_value: a number, an array that broadcasts to the axes' lengths, or a function of nothing or of the Axes that gives
    one; 0 by default. An array is copied now, so that later writes to it change nothing. One that nobody can write, as
    `np.load(path, mmap_mode="r")` gives it, is not copied: it stays in its file until the variable is written, and `cpu` packs it
    from there. docstring, metadata: notes for `op.metadata`. Raises AxisError for a value that does not fit.

    >>> ng.variable("D=3 K=5", initial_value=ng.KaimingInit())
    <variable: float32[D=3, K=5]>
    """
    return _stateful(axes, dtype, initial_value, True, True).described(name, docstring, metadata)


def persistent_tensor(
    axes: Any = (),
    dtype: Any = None,
    initial_value: Any = None,
    name: str | None = None,
    docstring: str | None = None,
    metadata: Notes = None,
) -> Op:
    """Returns state like a `variable` that no optimizer trains.

    >>> ng.persistent_tensor("K=3", initial_value=1.0).is_trainable
    False
    """
    return _stateful(axes, dtype, initial_value, False, True).described(name, docstring, metadata)


def temporary(axes: Any = (), dtype: Any = None, name: Text = None, docstring: Text = None, metadata: Notes = None) -> Op:
    """Returns state that is not saved.

    >>> ng.temporary("K=3").axes
    Axes(K=3)
    """
    return _stateful(axes, dtype, None, False, False).described(name, docstring, metadata)


def value_for(lvalue: Op, rvalue: Any, what: str) -> Op:
    """Returns a value with the dtype and the axes of `lvalue`, in their order, of which it may lack some. `what` asks for it.

    Raises GraphError for an op without a value, AxisError for axes that `lvalue` lacks, DTypeError where a float would be truncated.
    """
    if isinstance(rvalue, Op):
        value = rvalue
    else:
        array = np.asarray(arranged(rvalue, lvalue.axes, f"{what}: {lvalue.label}"))
        check_fits(f"{what}({lvalue.label}, value)", array, lvalue.dtype)
        value = constant(array if array.ndim else array[()].item(), lvalue.axes if array.ndim else (), dtype=lvalue.dtype)
    if value.type is None:
        raise GraphError(
            f"{what}({lvalue.label}, {value.label}): {value.label} has no value", details=(f"made at {show_line(value.line)}",)
        )
    extra = [a.label for a in value.axes if a not in lvalue.axes]
    if extra:
        raise AxisError(
            f"{what}({lvalue.label}, {value.label}): {', '.join(extra)} is not an axis of {lvalue.label}",
            details=(show_input(lvalue), show_input(value)),
            fix="reduce the value over it first",
        )
    for a in value.axes:
        mine = lvalue.axes[lvalue.axes.index(a)]
        if a.length is not None and mine.length is not None and a.length != mine.length:
            raise AxisError(
                f"{what}({lvalue.label}, {value.label}): axis {a.label} has length {mine.length} in {lvalue.label}"
                f" and {a.length} in {value.label}",
                details=(show_input(lvalue), show_input(value)),
                fix="slice or pad the value to that length",
            )
    if value.dtype.is_float and not lvalue.dtype.is_float:
        raise DTypeError(
            f"{what}({lvalue.label}, {value.label}): {value.dtype} into {lvalue.dtype} would be cut",
            details=(show_input(lvalue), show_input(value)),
            fix=f"cast on purpose: ng.cast(value, '{lvalue.dtype}')",
        )
    return ordered_as(cast(value, lvalue.dtype), lvalue.axes)


def assign(lvalue: Op, rvalue: Any) -> Op:
    """Returns an op that assigns `rvalue` to the variable, effective after the computation.

    The value may lack axes of the variable. Raises GraphError when `lvalue` is not a variable, AxisError for axes that it lacks,
    DTypeError where a float would be truncated to an integer.

    >>> w = ng.variable("K=3")
    >>> ng.function(ng.sequential([ng.assign(w, w + 1), ng.value_of(w)]))()
    ComputedArray([1., 1., 1.], dtype=float32)
    """
    if not isinstance(lvalue, Op) or lvalue.opdef is not variable_record:
        what = lvalue.label if isinstance(lvalue, Op) else repr(lvalue)
        raise GraphError(f"assign to {what}, which is not a variable", fix="assign to what ng.variable or ng.persistent_tensor made")
    return assign_record.build(lvalue, value_for(lvalue, rvalue, "assign"))


def _ops_of(ops: Any) -> tuple[Op, ...]:
    if isinstance(ops, Op):
        return (ops,)
    flat: list[Op] = []
    for o in ops:
        flat += _ops_of(o) if isinstance(o, (list, tuple)) else (as_op(o),)
    return tuple(flat)


def doall(all: Iterable[Op]) -> Op:
    """Returns an op that executes all of these, in no order. It has no value.

    >>> a, b = ng.variable("K=2"), ng.variable("K=2")
    >>> ng.function(ng.sequential([ng.doall([ng.assign(a, 1), ng.assign(b, 2)]), a + b]))()
    ComputedArray([3., 3.], dtype=float32)
    """
    return doall_record.build(*_ops_of(all))


def sequential(ops: Iterable[Op] = ()) -> Op:
    """Returns an op that executes these one after another, each seeing earlier assignments; its value is the last one's.

    An op runs at most once in a computation, at its place here, even if others use it.

    >>> w = ng.variable(())
    >>> float(ng.function(ng.sequential([ng.assign(w, w + 3), w * 2]))())
    6.0
    """
    each = _ops_of(ops)
    if not each:
        raise GraphError("an empty sequential has no value", fix="give it at least one op")
    return sequential_record.build(*each)


def value_of(tensor: Any) -> Op:
    """Returns the value of a tensor at this place in a `sequential` (a bare variable among results gives its value at the end).

    >>> ng.function(ng.value_of(ng.variable("K=2", initial_value=3.0)))()
    ComputedArray([3., 3.], dtype=float32)
    """
    return value_of_record(as_op(tensor))
