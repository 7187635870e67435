"""Conversion of callers' arguments to arrays of a program's inputs; and the errors for arguments that do not fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.errors import ArgumentError, show_line
from ngraph.op_graph.arrays import as_array
from ngraph.op_graph.axes import show_axes
from ngraph.op_graph.dtypes import DType, cast_array
from ngraph.op_graph.expr import Len
from ngraph.op_graph.labelled import arranged
from ngraph.op_graph.op import Op
from ngraph.parts import nest
from ngraph.program.program import AxisId, Program, Value
from ngraph.warn import warn


def matched(form: Any, value: Any, name: str) -> Iterator[Any]:
    """Yields what stands in a value where `form` has leaves, whatever it is. Raises ValueError, which says where it has other parts."""
    wanted = nest.parts(form)
    if wanted is None:
        yield value
        return
    inner = nest.parts(value) or {}
    if set(wanted) != set(inner):
        got = ", ".join(map(str, inner)) or type(value).__name__
        raise ValueError(f"{name} has the parts {', '.join(map(str, wanted))}, and got {got}")
    for key, part in wanted.items():
        yield from matched(part, inner[key], f"{name}.{key}")


def converted(x: Any, dtype: DType, what: str) -> np.ndarray:
    """Returns `x` as an array of `dtype`. Floats may lose digits, never their fractions; integers must fit. Raises ArgumentError.

    Floats for an integer input are taken with a warning where all of them are whole numbers that fit, as programs of 2016 to 2019 fed them.
    """
    if isinstance(x, Op):
        raise ArgumentError(f"{what} got the op {x.label}", fix="pass the value: a number or an array")
    try:
        array = as_array(x)
    except (TypeError, ValueError, BufferError) as error:
        rows = isinstance(x, (list, tuple)) and "inhomogeneous" in str(error)
        why = "rows of different lengths" if rows else f"{type(x).__name__}, which is not an array: {error}"
        raise ArgumentError(f"{what} got {why}", fix="pass an array of numbers") from None
    kind = _kind(array.dtype)
    if array.dtype == dtype.np:
        return array
    if kind is None:
        got = array.dtype if array.dtype != object else "an array of objects" if isinstance(x, np.ndarray) else type(x).__name__
        raise ArgumentError(f"{what} is {dtype}, and got {got}", fix="pass a number or an array of numbers")
    if array.size and kind == "f" and dtype.is_integer:
        fix = f"convert on purpose: x.astype({dtype.np.name!r})"
        other = _not_whole(array, dtype)
        if other is not None:
            raise ArgumentError(f"{what} is {dtype}, and got {array.dtype} with {other}, which it cannot hold", fix=fix)
        warn(f"{what} is {dtype}, and got {array.dtype} of whole numbers, which are taken as such", fix=fix, error=ArgumentError)
    elif array.size and (kind == "f" and not dtype.is_float or dtype.kind == "bool" and kind != "b"):
        raise ArgumentError(f"{what} is {dtype}, and got {array.dtype}", fix=f"convert on purpose: x.astype({dtype.np.name!r})")
    if dtype.is_integer and kind in "iu" and array.size:
        low, high = int(array.min()), int(array.max())
        if low < dtype.lowest or high > dtype.highest:
            raise ArgumentError(
                f"{what} is {dtype}, and got {array.dtype} from {low} to {high}", fix=f"keep it between {dtype.lowest} and {dtype.highest}"
            )
    with np.errstate(all="ignore"):
        return cast_array(array, dtype)


def _not_whole(array: np.ndarray, dtype: DType) -> float | None:
    """Returns the first element that is not a whole number, or that `dtype` cannot hold; None where there is none."""
    wide = array.astype(np.float64)
    with np.errstate(invalid="ignore"):
        wrong = (wide != np.rint(wide)) | (wide < float(dtype.lowest)) | (wide >= float(dtype.highest) + 1) | ~np.isfinite(wide)
    return float(wide[wrong].flat[0]) if wrong.any() else None


def _kind(dtype: np.dtype) -> str | None:
    """Returns 'b', 'i', 'u' or 'f'; None for a dtype that is not a number."""
    if dtype.kind in "biuf":
        return dtype.kind
    return "f" if dtype.kind == "V" and dtype.name in ("bfloat16",) else None


class Binder:
    """Fits arguments to the inputs of a program, and determines the lengths of its symbols."""

    def __init__(self, program: Program, ops: Sequence[Op], nonempty: Sequence[AxisId] = ()):
        self.program, self.ops, self.nonempty = program, tuple(ops), nonempty
        self.lengths: dict[AxisId, int] = {}
        self.given_by: dict[AxisId, int] = {}

    def label(self, k: int) -> str:
        return f"{'variable' if self.ops[k].is_variable else 'placeholder'} {self.ops[k].label}"

    def fit(self, arguments: Sequence[Any]) -> list[np.ndarray]:
        """Returns the arguments as arrays of the right dtype and shape. Raises ArgumentError that names all that do not fit."""
        given = [arranged(x, p.axes, self.label(k), ArgumentError) for k, (x, p) in enumerate(zip(arguments, self.ops, strict=True))]
        arrays = [converted(x, v.dtype, self.label(k)) for k, (x, v) in enumerate(zip(given, self.program.inputs, strict=True))]
        pairs = list(enumerate(zip(arrays, self.program.inputs, strict=True)))
        wrong = [(k, self._ranks(k, a)) for k, (a, v) in pairs if a.shape and a.ndim != len(v.axes)]
        dims = [(k, axis, n) for k, (a, v) in pairs if a.ndim == len(v.axes) for axis, n in zip(v.axes, a.shape, strict=True)]
        unlike = [(k, axis, said) for k, axis, n in dims if (said := self._bind(axis, n, k))]
        wrong += [(k, said) for k, _, said in unlike]
        wrong += [(k, said) for k, axis, n in dims if (said := self._check(axis, n, k))]
        if wrong:
            lengths = [self.program.axes[axis] for _, axis, _ in unlike]
            givers = [self.given_by[n.of] for n in lengths if isinstance(n, Len)]  # whose lengths others disagree with
            told = dict.fromkeys([*givers, *(k for k, _ in wrong)])
            if unlike and len(unlike) == len(wrong):
                name = self.hint(unlike[0][1])
                fix = f"give arrays of one length along {name}, or, where they are two axes, another name to one: {name}2=?"
            elif len(wrong) > 1 or "shape" in wrong[0][1]:
                fix = "give arrays whose dims are the axes in this order"
            else:
                fix = f"give an array of the lengths of {show_axes(self.ops[wrong[0][0]].axes)}"
            raise ArgumentError(
                f"{self.program.name}: {'; '.join(w for _, w in wrong)}",
                details=tuple(f"{self.ops[k].label}: {show_axes(self.ops[k].axes)}   made at {show_line(self.ops[k].line)}" for k in told),
                fix=fix,
            )
        for axis in self.nonempty:
            if self.length(axis) == 0:
                raise ArgumentError(
                    f"{self.program.name}: argmax or argmin along {self.hint(axis)}, of which there are 0 elements to choose from",
                    details=tuple(f"{op.label}: {show_axes(op.axes)}   made at {show_line(op.line)}" for op in self.ops),
                    fix="pass arrays that have at least one",
                )
        return [self._filled(a, v, k) for k, (a, v) in pairs]

    def _bind(self, axis: AxisId, n: int, k: int) -> str:
        own = self.program.axes[axis]
        if not isinstance(own, Len):
            return ""
        symbol = own.of
        if self.lengths.setdefault(symbol, n) != n:
            first = self.given_by[symbol]
            return f"axis {self.hint(axis)} has length {self.lengths[symbol]} in {self.ops[first].label} and {n} in {self.ops[k].label}"
        self.given_by.setdefault(symbol, k)
        return ""

    def _check(self, axis: AxisId, n: int, k: int) -> str:
        """Returns a complaint about a length that disagrees with a known one, or one that follows from those bound; else ""."""
        wanted = None if isinstance(self.program.axes[axis], Len) else self.length(axis)
        if wanted is None or wanted == n:
            return ""
        return f"axis {self.hint(axis)} of {self.label(k)} has length {wanted}, and got {n}"

    def _ranks(self, k: int, array: np.ndarray) -> str:
        return f"{self.label(k)} has the axes {show_axes(self.ops[k].axes)}, and got an array of shape {array.shape}"

    def hint(self, axis: AxisId) -> str:
        return self.program.hints.get(axis, str(axis))

    def length(self, axis: AxisId) -> int | None:
        try:
            return self.program.length(axis, self.lengths)
        except LookupError:
            return None

    def _filled(self, array: np.ndarray, value: Value, k: int) -> np.ndarray:
        if array.shape or not value.axes:
            return array
        shape = [n for a in value.axes if (n := self.length(a)) is not None]
        if len(shape) < len(value.axes):
            raise ArgumentError(
                f"{self.label(k)} got the number {array[()]}, and the length of {show_axes(self.ops[k].axes)} is not known",
                fix="pass an array",
            )
        return np.full(shape, array, array.dtype)


# ---- arrays that a call writes ----------------------------------------------------------------------------------------


def unwritable(op: Op, got: Any, why: str) -> ArgumentError:
    """Returns the error for an array that a call cannot write."""
    what = f"{got.dtype.name}{list(got.shape)}" if isinstance(got, np.ndarray) else f"a {type(got).__name__}"
    return ArgumentError(
        f"{op.label} is written by the call: it {why}, and got {what}",
        details=(f"{op.label}: {show_axes(op.axes)}   made at {show_line(op.line)}",),
        fix="pass an array of its dtype and lengths whose memory can be written",
    )


def written(arguments: Sequence[Any], numbers: Iterable[int], program: Program, ops: Sequence[Op]) -> dict[int, np.ndarray]:
    """Returns the caller's memory for each parameter that is written. Raises ArgumentError where it cannot be written as it is."""
    found: dict[int, np.ndarray] = {}
    for k in numbers:
        x, op, dtype = arguments[k], ops[k], program.inputs[k].dtype
        given = arranged(x, op.axes, op.label, ArgumentError)
        if not isinstance(given, np.ndarray) and not hasattr(given, "__dlpack__"):
            raise unwritable(op, x, f"takes an array of {dtype}")
        array = as_array(given)
        if array.dtype != dtype.np:
            raise unwritable(op, array, f"is {dtype}")
        if array.ndim != len(op.axes):
            raise unwritable(op, array, f"has the axes {show_axes(op.axes)}")
        if not array.flags.writeable:
            raise unwritable(op, array, "takes an array that can be written, and this one is read-only")
        if array.size and not _distinct(array):
            raise unwritable(op, array, "takes an array whose elements have a place each, and some of these share one")
        found[k] = array
    return found


def _distinct(array: np.ndarray) -> bool:
    """Whether the strides of an array keep its elements apart: sorted, each one steps over all that the smaller ones reach."""
    reach = array.itemsize
    for step, n in sorted([(abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1]):
        if step < reach:
            return False
        reach += step * (n - 1)
    return True


def _span(array: np.ndarray) -> tuple[int, int]:
    """Returns the first byte of an array's memory, and the one after the last."""
    start = end = array.__array_interface__["data"][0]
    for step, n in zip(array.strides, array.shape, strict=True):
        if n == 0:
            return start, start
        if step < 0:
            start += step * (n - 1)
        else:
            end += step * (n - 1)
    return start, end + array.itemsize


def _shared(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether arrays share memory; True, too, where that is hard to say."""
    most: Any = 1000  # candidates; NumPy's stubs know of two numbers alone
    try:
        return np.shares_memory(a, b, max_work=most)
    except np.exceptions.TooHardError:
        return True


def apart(arrays: Sequence[np.ndarray], targets: Mapping[int, np.ndarray], ops: Sequence[Op]) -> list[np.ndarray]:
    """Returns the arrays of a call, those that share memory with one that is written as copies. Raises ArgumentError for two written."""
    made = list(arrays)
    spans = sorted([(*_span(a), k) for k, a in enumerate(arrays)])
    for n, (_, end, k) in enumerate(spans):
        for start, _, other in spans[n + 1 :]:
            if start >= end:
                break
            if not {k, other}.isdisjoint(targets) and _shared(arrays[k], arrays[other]):
                if k in targets and other in targets:
                    raise ArgumentError(
                        f"{ops[k].label} and {ops[other].label} are both written by the call, and share memory",
                        fix="pass arrays that are apart",
                    )
                read = other if k in targets else k
                made[read] = np.array(arrays[read])
    return made


def check_out(outs: Iterable[Any], targets: Mapping[int, np.ndarray], ops: Sequence[Op]) -> None:
    """Raises ArgumentError where results are wanted in memory that the call writes."""
    for out in outs:
        for k, target in targets.items():
            if isinstance(out, np.ndarray) and _shared(out, target):
                raise ArgumentError(f"out= shares memory with {ops[k].label}, which the call writes", fix="pass arrays that are apart")


def from_feeds(feeds: Mapping[Op, Any], ops: Sequence[Op], name: str) -> list[Any]:
    """Returns the arguments in order from {op: value}. Raises ArgumentError that names missing and superfluous ones."""
    if not isinstance(feeds, Mapping):
        raise ArgumentError(f"{name}: feed_dict is a {type(feeds).__name__}", fix="pass a dict by placeholder: feed_dict={x: value}")
    known = set(ops)
    extra = [f for f in feeds if f not in known]
    missing = [op for op in ops if op not in feeds]
    if extra or missing:
        said = [f"{op.label} {show_axes(op.axes)} is not fed" for op in missing]
        said += [f"{getattr(f, 'label', repr(f))} is not a parameter of it" for f in extra]
        wanted = ", ".join(f"{op.label}: value" for op in ops)
        raise ArgumentError(
            f"{name}: {'; '.join(said)}",
            details=tuple(f"{op.label} made at {show_line(op.line)}" for op in missing),
            fix=f"feed_dict={{{wanted}}}, whose keys are the placeholders themselves",
        )
    return [feeds[op] for op in ops]


def miscounted(count: int, ops: Sequence[Op], name: str) -> ArgumentError:
    """Returns the error for a wrong number of arguments."""
    missing = [f"{op.label} {show_axes(op.axes)}, made at {show_line(op.line)}, is not fed" for op in ops[count:]]
    return ArgumentError(
        f"{name} takes {len(ops)} argument{'s' * (len(ops) != 1)}, not {count}",
        details=tuple(missing) or (f"its parameters: {', '.join(op.label for op in ops) or 'none'}",),
        fix="pass one value for each parameter, in order, or feed_dict={op: value}",
    )
