"""Finds the origin of a nan or an infinity: replays a call step by step as NumPy calls, and names the first step that computes one.

The replay starts from the lowered program, before any pass, so each step has the line and the scope of the user's op. Then it
searches backwards from a result: through operands that are nan to the first step whose operands are not; and where an operand of that
is infinite, to the step that computed the infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ngraph.errors import Line, NanError, show_line
from ngraph.numpy_ops.lines import CallLine, Lines, Variable, used
from ngraph.numpy_ops.translate import translate
from ngraph.numpy_ops.walk import LineRunner
from ngraph.op_graph.arrays import as_array
from ngraph.op_graph.op import Op
from ngraph.passes.dim_orders import dim_orders
from ngraph.runtime.arguments import Binder

if TYPE_CHECKING:
    from ngraph.runtime.computation import Computation

FLOATS = "fc"  # kinds of NumPy's own dtypes that have nan; those of ml_dtypes are of kind V
FIXES = {
    "log": "keep what goes into it above 0, as ng.safelog does",
    "log1p": "keep what goes into it above -1, as ng.maximum(x, -0.999) does",
    "sqrt": "keep what goes into it at 0 or more, as ng.maximum(x, 0.0) does",
    "divide": "keep the divisor away from 0, as x / (y + 1e-6) does",
    "remainder": "keep the divisor away from 0",
    "power": "keep the base above 0, as ng.maximum(x, 1e-6) does",
    "exp": "keep what goes into it below 88, as ng.minimum(x, 80.0) does",
}


def _float(array: Any) -> np.ndarray | None:
    """Returns the array as floats that NumPy can test; None where it holds none."""
    if not isinstance(array, (np.ndarray, np.generic, float)):
        return None
    array = np.asarray(array)
    if array.dtype.kind in FLOATS:
        return array
    return array.astype(np.float32) if array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize <= 2 else None


def finite(array: Any) -> bool:
    """Whether no element is nan or infinite; True for dtypes without such values."""
    floats = _float(array)
    if floats is None:
        return True
    with np.errstate(all="ignore"):
        return bool(np.isfinite(floats).all())


class Range(NamedTuple):
    """The values of an array: whether some are nan, whether some are infinite, and the least and largest of the others."""

    nan: bool
    inf: bool
    low: float
    high: float
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, array: Any) -> Range | None:
        """Returns the range of an array's values; None where it holds no numbers."""
        if not isinstance(array, (np.ndarray, np.generic, float, int)):
            return None
        own = np.asarray(array)
        floats = _float(own)
        values = own if floats is None else floats
        if values.dtype.kind not in "fciub":
            return None
        bad = np.zeros(values.shape, bool) if floats is None else ~np.isfinite(values)
        fine = np.real(values[~bad]) if bad.any() else np.real(values)
        low, high = (float(fine.min()), float(fine.max())) if fine.size else (float("nan"), float("nan"))
        return cls(bool(np.isnan(values).any()) if bad.any() else False, bool(np.isinf(values).any()), low, high, own.shape, own.dtype.name)

    def __str__(self) -> str:
        has = [word for word, on in (("nan", self.nan), ("infinities", self.inf)) if on]
        span = "" if self.low != self.low else f"from {self.low:.6g} to {self.high:.6g}" if self.low < self.high else f"{self.low:.6g}"
        return f"{self.dtype}{list(self.shape)}, {' and '.join([*([span] if span else []), *has])}"


class FirstNan(NamedTuple):
    """The step that computed the first nan (or infinity): its name, scope and line, its operands, and the step where inf became nan."""

    op: str
    scope: str
    line: Line | None
    made: str
    operands: tuple[str, ...]
    then: str

    def error(self, what: str, fix: str = "", details: Sequence[str] = ()) -> NanError:
        """Returns the error that names it, at its line."""
        layer = f" in {self.scope}" if self.scope else ""
        own = FIXES.get(self.op.split(" ")[0], "")
        return NanError(
            f"{what}{self.op}{layer} made the first {self.made}",
            details=(*self.operands, *((self.then,) if self.then else ()), *details),
            fix="; or ".join(f for f in (own, fix) if f),
            line=self.line,
        )


class Replay(LineRunner):
    """An execution that records the range of each value, and finds the step at fault."""

    def __init__(self, lines: Lines):
        self.lines, self.bodies = lines, dict[Lines, Replay]()
        self.found: FirstNan | None = None  # of a body: in the first trip that computes a nan from operands without one
        super().__init__(lines)

    def _argument(self, a: Any) -> Callable[[list[Any]], Any]:
        if type(a) is not Lines:
            return super()._argument(a)
        inner = self.bodies[a] = Replay(a)
        captured = [self.slots[v] for v in a.captures]
        return lambda env: partial(inner.inside, [env[i] for i in captured])

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        env = self.start.copy()
        env[: self.count] = arrays
        ranges = {v: Range.of(env[i]) for v, i in self.slots.items()}
        for call, (fn, ins, out, dead) in zip(self.lines.calls, self.code, strict=True):
            made = fn(env) if ins is None else fn(*[env[i] for i in ins])
            targets = [out] if type(out) is int else out
            for v, i, m in zip(call.targets, targets, [made] if type(out) is int else made, strict=True):
                env[i], ranges[v] = m, Range.of(m)
            for i in dead:
                env[i] = None
        if self.found is None:
            self.found = self.fault(ranges)
        return tuple([env[i] for i in self.results])

    def fault(self, ranges: Mapping[Variable, Range | None]) -> FirstNan | None:
        """Returns the step at fault for a nan or an infinity among the results; None where there is none, or the inputs had it."""
        made_by = {v: call for call in self.lines.calls for v in call.targets}
        for kind in ("nan", "inf"):
            for v in self.lines.results:
                if _has(ranges, v, kind) and (call := _first(v, kind, made_by, ranges)) is not None:
                    for u in used(call) if kind == "nan" else ():
                        if _has(ranges, u, "inf") and (earlier := _first(u, "inf", made_by, ranges)) is not None:
                            then = f"of it {_called(call)[0]} made nan, at {_place(call)}"
                            return self._named(earlier, "infinity", ranges, then)
                    return self._named(call, {"nan": "nan", "inf": "infinity"}[kind], ranges)
        return None

    def _named(self, call: CallLine, made: str, ranges: Mapping[Variable, Range | None], then: str = "") -> FirstNan:
        for body in [self.bodies[a] for a in call.args if type(a) is Lines]:
            if body.found is not None:
                return body.found
        name, scope, line = _called(call)
        operands = dict.fromkeys(u for u in used(call) if u in ranges)
        shown = [f"{u.hint}: {r}" for u in operands if (r := ranges[u]) is not None]
        shown += [f"and {a!r}" for a in call.args if type(a) in (int, float) and call.fn.startswith("np.")]
        return FirstNan(name, scope, line, made, tuple(shown[:6]), then)


def _has(ranges: Mapping[Variable, Range | None], v: Any, kind: str) -> bool:
    """Whether an operand, a variable or a literal number, has a nan or an infinity."""
    number = v.literal if type(v) is Variable else v
    if type(number) is float:
        return number != number if kind == "nan" else number in (float("inf"), float("-inf"))
    found = ranges.get(v)
    return found is not None and bool(getattr(found, kind))


def _operands(call: CallLine) -> list[Any]:
    """Returns the variables that a call reads, and its literal numbers."""
    return [*used(call), *(a for a in (*call.args, *call.kwargs.values()) if type(a) is float)]


def _first(v: Variable, kind: str, made_by: Mapping[Variable, CallLine], ranges: Mapping[Variable, Range | None]) -> CallLine | None:
    """Returns the call that computed a nan (or an infinity) from operands without one, on some path back from a value that has one."""
    todo, seen = [v], {v}
    while todo:
        call = made_by.get(todo.pop())
        if call is None:
            continue
        given = [u for u in _operands(call) if _has(ranges, u, kind)]
        if not given:
            return call
        todo += [u for u in given if u not in seen]
        seen.update(given)
    return None


def _called(call: CallLine) -> tuple[str, str, Line | None]:
    """Returns (name, scope, line) of a call's user op."""
    own = call.fn.removeprefix("np.").strip("_.()")
    if not call.origin:
        return own, "", None
    origin = call.origin[0]
    step = {"matmul": "contract", "true_divide": "divide"}.get(own, own)
    name = origin.name if origin.name in (own, step) or "." in own else f"{step} of {origin.name}"
    return name, origin.scope, (origin.file, origin.line) if origin.file else None


def _place(call: CallLine) -> str:
    _, scope, line = _called(call)
    return ", ".join(p for p in (show_line(line) if line else "", scope) if p)


# ---- calls --------------------------------------------------------------------------------------------------------------


def explain(computation: Computation, arguments: Sequence[Any], state: Mapping[Op, Any]) -> FirstNan | None:
    """Returns the step of a call at fault for a nan or an infinity in its results or written state; None where no step is.

    arguments: as the computation takes them. state: the values of its variables before the call.
    """
    program = computation.declared
    given = Binder(program, computation.parameters).fit(tuple(arguments))
    by_name = computation.states
    replay = Replay(translate(program, dim_orders).lines)
    with np.errstate(all="ignore"):
        replay(*given, *[state[by_name[s.name]] for s in program.state_in])
    return replay.found


def flat(results: Any) -> Iterable[Any]:
    """Yields the arrays among the results of a call."""
    if isinstance(results, Mapping):
        results = list(results.values())
    return results if isinstance(results, (tuple, list)) else [results]


def checked(computation: Computation, arguments: tuple[Any, ...], call: Callable[..., Any]) -> Any:
    """Returns the results of the call. Raises NanError, with the state as before, where it computes a nan or an infinity from
    arguments and state that have none."""
    state, written = computation.state, computation.written
    before = {v: state.get(v) for v in written}
    held = [np.array(as_array(a)) if k in computation.writes else a for k, a in enumerate(arguments)]
    results = call(*arguments)
    changed = {k: as_array(arguments[k]) for k in computation.writes}
    if all(map(finite, (*flat(results), *changed.values()))) and all(finite(state.get(v)) for v in written):
        return results
    found = explain(computation, held, {v: before[v] if v in before else state.get(v) for v in computation.states.values()})
    if found is None:  # arguments or state had it before
        return results
    state.put({v: before[v] for v in written})
    for k, array in changed.items():
        array[...] = held[k]
    again = "replayed on `direct`; state is as it was before the call"
    raise found.error(f"{computation.name}: ", fix='ng.config(nans="ignore") goes on', details=(again,))
