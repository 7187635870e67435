"""Lines as a callable: names become slots, and names of functions become functions."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ngraph import numpy_functions
from ngraph.errors import BoundsError
from ngraph.numpy_ops.lines import CallLine, Lines, Name, ReferenceCall, Variable, several, used
from ngraph.numpy_ops.translate import Orders, translate
from ngraph.op_graph import expr
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Expr
from ngraph.op_graph.opdef import NUMPY
from ngraph.ops.control import HOST_CALLS
from ngraph.parts.storage import lifetimes
from ngraph.program.program import Program


def function(fn: str) -> Callable[..., Any]:
    """Returns the function that a line's `fn` names."""
    return fn.call if type(fn) is ReferenceCall else named_function(fn)


@functools.cache
def named_function(fn: str) -> Callable[..., Any]:
    """Returns the function of NumPy, of Python or of `numpy_functions` with this name, which is looked up once."""
    if fn.startswith("np."):
        found: Any = np
        for part in fn.split(".")[1:]:
            found = getattr(found, part)
        return found
    if fn.endswith("()"):
        return operator.attrgetter(fn[1:-2])
    if fn.startswith("host:"):
        return lambda *args: HOST_CALLS[fn[5:]](*args)
    if fn.startswith("numpy:"):
        return lambda *args: NUMPY[fn[6:]](*args)
    if fn.startswith("."):
        return lambda x, *args, **kwargs: getattr(x, fn[1:])(*args, **kwargs)
    if fn == "check_bounds":
        return check_bounds
    special: dict[str, Callable[..., Any]] = {
        "[]": operator.getitem,
        "len": lambda x, dim: x.shape[dim],
        "int": int,
        "scalar": lambda number, dtype: dtype.type(number),
    }
    return special.get(fn) or getattr(numpy_functions, fn)


def check_bounds(index: Any, n: int, negative: bool | str, what: str, file: str, line: int, fix: str) -> Any:
    """Runs `numpy_functions.check_bounds`. Raises BoundsError with the line where the user requested the check."""
    try:
        return numpy_functions.check_bounds(index, n, negative, what)
    except IndexError as error:
        raise BoundsError.of(str(error), n, negative, file, line, fix) from None


def _plain(a: Any) -> bool:
    """Whether an argument is the same at every call."""
    if type(a) in (Variable, Lines) or isinstance(a, Expr):
        return False
    if type(a) is tuple:
        return all(map(_plain, a))
    return type(a) is not slice or (_plain(a.start) and _plain(a.stop) and _plain(a.step))


def _value(a: Any) -> Any:
    """Returns a constant argument as NumPy takes it."""
    if type(a) is DType:
        return a.np
    if type(a) is Name:
        return function(a)
    return tuple([_value(x) for x in a]) if type(a) is tuple else a


class LineRunner:
    """Lines prepared for execution: slots in place of names, functions in place of their names."""

    def __init__(self, lines: Lines):
        self.slots: dict[Variable, int] = {}
        self.start: list[Any] = []
        self.count = len(lines.params) + len(lines.captures)
        for v in (*lines.params, *lines.captures):
            self._slot(v)
        for v in lines.constants:
            self._slot(v, v.array)
        dead: dict[int, list[Variable]] = {}
        keep = {*lines.results, *lines.constants}
        for v, (_, k) in lifetimes(map(used, lines.calls)).items():
            if v not in keep:
                dead.setdefault(k, []).append(v)
        self.code = [self._code(call, dead.get(k, ())) for k, call in enumerate(lines.calls)]
        self.results = [self._slot(v, None if v.literal is None else v.dtype.np.type(v.literal)) for v in lines.results]

    def _slot(self, v: Variable, value: Any = None) -> int:
        if v not in self.slots:
            self.slots[v] = len(self.start)
            self.start.append(value)
        return self.slots[v]

    def _code(self, call: CallLine, dead: Iterable[Variable]) -> tuple[Any, ...]:
        fn = function(call.fn)
        if call.kwargs:
            fn = functools.partial(fn, **{k.rstrip("_"): _value(a) for k, a in call.kwargs.items()})
        ins: list[int] | None = None
        if all((type(a) is Variable and a.literal is None) or _plain(a) for a in call.args):
            ins = [self.slots[a] if type(a) is Variable else self._constant(a) for a in call.args]
        else:
            fn = _lazy(fn, [self._argument(a) for a in call.args])
        outs = [self._slot(v) for v in call.targets]
        return fn, ins, outs if several(call.fn) else outs[0], [self.slots[v] for v in dead if v.literal is None]

    def _constant(self, a: Any) -> int:
        self.start.append(_value(a))
        return len(self.start) - 1

    def _argument(self, a: Any) -> Callable[[list[Any]], Any]:
        """Returns a function from the values of a call to an argument."""
        if _plain(a):
            value = _value(a)
            return lambda env: value
        if type(a) is Variable:
            slot = self.slots[a]
            return lambda env: env[slot]
        if type(a) is tuple:
            parts = [self._argument(x) for x in a]
            return lambda env: tuple([p(env) for p in parts])
        if type(a) is slice:
            low, high, step = map(self._argument, (a.start, a.stop, a.step))
            return lambda env: slice(low(env), high(env), step(env))
        if type(a) is Lines:
            inner, captured = LineRunner(a), [self.slots[v] for v in a.captures]
            return lambda env: functools.partial(inner.inside, [env[i] for i in captured])
        slots = {leaf: self.slots[leaf.of] for leaf in expr.leaves(a)}
        return lambda env: expr.evaluate(a, lambda leaf: env[slots[leaf]])

    def inside(self, captured: list[Any], *arrays: Any) -> tuple[Any, ...]:
        return self(*arrays, *captured)

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        env = self.start.copy()
        env[: self.count] = arrays
        for fn, ins, out, dead in self.code:
            made = fn(env) if ins is None else fn(*[env[i] for i in ins])
            if type(out) is int:
                env[out] = made
            else:
                for i, m in zip(out, made, strict=True):
                    env[i] = m
            for i in dead:
                env[i] = None
        return tuple([env[i] for i in self.results])


def _lazy(fn: Callable[..., Any], arguments: Sequence[Callable[[list[Any]], Any]]) -> Callable[[list[Any]], Any]:
    return lambda env: fn(*[a(env) for a in arguments])


def walk(lines: Lines) -> Callable[..., tuple[Any, ...]]:
    """Returns lines as a callable of their parameters; floating-point warnings are off."""
    ready = LineRunner(lines)
    return np.errstate(all="ignore")(ready.__call__) if lines.quiet else ready


def evaluate(program: Program, orders: Orders, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """Returns the outputs of a program without state, in the declared order of their axes."""
    return walk(translate(program, orders).lines)(*arrays)
