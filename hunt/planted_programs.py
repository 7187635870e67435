"""Mistakes put in on purpose, each by a function of nothing that changes this process: `programs` finds each within two minutes.

They stand where values are decided: the ops' own formulas, lowering, rules and passes, and what `direct` and `numpy` call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hunt.planting import edited
from ngraph import numpy_functions, numpy_ops
from ngraph.op_graph.opdef import OPS, REGISTRY
from ngraph.ops import losses, pooling, random, reduce
from ngraph.passes import rules
from ngraph.passes.dead import dead as right_dead
from ngraph.program import lower
from ngraph.rewrite.pattern import Rule
from ngraph.transformers import base

MEMORY = "ngraph.plan.memory"
fold, share = (sys.modules[f"ngraph.passes.{name}"] for name in ("fold", "share"))  # the modules: the package has functions of these names


def _in_numpy(name: str, wrong: Callable[..., Any]) -> Callable[[], None]:
    """`wrong(right, *arguments)` in place of a function that stands beside generated code."""

    def plant() -> None:
        right = getattr(numpy_functions, name)
        setattr(numpy_functions, name, lambda *args, **named: wrong(right, *args, **named))
        numpy_ops.named_function.cache_clear()

    return plant


def _ufunc(op: str, name: str) -> Callable[[], None]:
    """Another NumPy function is an op."""
    return lambda: OPS.fill(op, level=1, numpy=name)


def _narrow_counts() -> None:
    """Sums of 16-bit floats are rounded before they are divided, by a count in their own dtype."""
    for room in (reduce, losses, pooling):
        room.rounding_once = lambda function: function  # type: ignore[attr-defined]
    REGISTRY["softmax"].lower = lambda op, x: _shares(x, op.attrs["axes"])


def _shares(x: Any, axes: Any) -> Any:
    _, e, total = losses._exponentials(x, axes)
    return e * (1.0 / total)


def _rule(name: str, wrong: Callable[[Rule], Rule]) -> Callable[[], None]:
    """Another rule in the place of one."""

    def plant() -> None:
        table = rules.simplify_rules
        table.rules[:] = [wrong(rule) if rule.name == name else rule for rule in table.rules]
        table._forget()

    return plant


def _without_condition(name: str) -> Callable[[], None]:
    return _rule(name, lambda rule: rule.without_condition())


def _another_rule(name: str, result: Callable[..., Any]) -> Callable[[], None]:
    return _rule(name, lambda rule: Rule(rule.name, rule.pattern, result, rule.inexact, rule.when))


def _effects_dropped() -> None:
    """Dead code goes from the outputs alone, and an effect gives none."""

    def wrong(program: Any) -> Any:
        return right_dead(program if program.token_out is None else program.with_(token_in=None, token_out=None))

    _pass("dead", wrong)


def _pass(name: str, wrong: Callable[..., Any]) -> None:
    base.Transformer.passes = tuple(wrong if p.__name__ == name else p for p in base.Transformer.passes)


def _folds_cut() -> None:
    """Truncates folded constants to 10 binary places instead of rounding them."""
    right = fold.evaluate

    def wrong(program: Any, declared: Any, arrays: Any) -> Any:
        def cut(a: Any) -> Any:
            a = np.asarray(a)
            if a.dtype not in (np.float32, np.float64):
                return a
            with np.errstate(all="ignore"):
                q = np.ldexp(1.0, np.frexp(a)[1] - 10)
                return np.where(np.isfinite(a), np.trunc(a / q) * q, a).astype(a.dtype)

        return [cut(a) for a in right(program, declared, arrays)]

    fold.evaluate = wrong  # type: ignore[attr-defined]


def _shares_across(attribute: str) -> Callable[[], None]:
    def plant() -> None:
        right = share.step_key

        def wrong(step: Any, place: Any, at: Any) -> Any:
            key = right(step, place, at)
            return key if key is None or len(key) < 3 else (key[0], key[1], tuple(a for a in key[2] if a[0] != attribute))

        share.step_key = wrong

    return plant


def _last_tie(right: Any, function: Any, x: Any, count: int) -> Any:
    flat = x.reshape((*x.shape[: x.ndim - count], int(np.prod(x.shape[x.ndim - count :], dtype=int))))
    return (flat.shape[-1] - 1 - function(flat[..., ::-1], axis=-1)).astype(np.int32) if flat.size else right(function, x, count)


def _once_more(right: Any, condition: Any, body: Any, carries: Any, consts: Any) -> Any:
    return tuple(body(*right(condition, body, carries, consts), *consts))


def _written_first() -> None:
    """A read sees what the computation has assigned by then."""
    right = lower.Lowering.read

    def wrong(self: Any, variable: Any, scope: Any) -> Any:
        return self.written[variable][1] if variable in self.written else right(self, variable, scope)

    lower.Lowering.read = wrong  # type: ignore[method-assign]


def _one_stream() -> None:
    """All random ops draw the same numbers."""
    random._Streams.fresh = lambda self: 0  # type: ignore[method-assign]


def _defaults() -> None:
    """Batch axes are summed with the others."""
    right = reduce.reduced_axes

    def wrong(x: Any, reduction_axes: Any = None, out_axes: Any = None, name: str = "reduce") -> Any:
        return x.axes if reduction_axes is None and out_axes is None else right(x, reduction_axes, out_axes, name)

    reduce.reduced_axes = wrong


def _stale_state() -> None:
    """Inside of a `sequential` everything reads what was there at the start."""
    right = lower.Lowering.read

    def wrong(self: Any, variable: Any, scope: Any) -> Any:
        return self.initial(variable) if scope.sequential is not None else right(self, variable, scope)

    lower.Lowering.read = wrong  # type: ignore[method-assign]


MISTAKES: dict[str, Callable[[], None]] = {
    "count in the narrow type": _narrow_counts,
    "a rule without its condition: x * 0": _without_condition("x * 0, integers"),
    "a rule without its condition: cast of cast": _without_condition("cast of cast"),
    "a rule without its condition: sum of contract": _without_condition("contract with 1"),
    "a wrong rule: where not": _another_rule("where not", lambda c, x, y: rules.where(c, x, y)),
    "dead code drops an effect": _effects_dropped,
    "fold cuts where it should round": _folds_cut,
    "equal steps whatever their direction": _shares_across("reverse"),
    "equal steps whatever their axes": _shares_across("axes"),
    "a saturating cast wraps": _in_numpy(
        "saturate", lambda f, x, dtype: np.nan_to_num(x.astype(np.float64)).astype(np.int64).astype(dtype)
    ),
    "integer division cuts": _in_numpy("integer_power", lambda f, x, y: f(x, np.abs(y))),
    "the remainder has the sign of x": _ufunc("remainder", "np.fmod"),
    "argmax takes the last of equal ones": _in_numpy("arg_reduce", _last_tie),
    "an unstable sort": _in_numpy("sorted_positions", lambda f, key, dim, down: np.flip(f(np.flip(key, dim), dim, down), dim)),
    "exclusive ignored": _in_numpy("cumulate", lambda f, g, x, dim, exclusive, reverse, start: f(g, x, dim, False, reverse, start)),
    "a loop backwards runs forwards": _in_numpy("scan", lambda f, *args: f(*args[:5], False, *args[6:])),
    "while runs once too often": _in_numpy("while_loop", _once_more),
    "gather wraps as clip": _in_numpy("gather", lambda f, x, i, mode, *rest, **k: f(x, i, "clip" if mode == "wrap" else mode, *rest, **k)),
    "NaN lost in maximum": _ufunc("maximum", "np.fmax"),
    "halves are rounded up": _in_numpy("narrowed", lambda f, x, dtype, limits: f(x * 1.0001 if x.dtype.kind == "f" else x, dtype, limits)),
    "state is written before it is read": _written_first,
    "a sequential reads the start": _stale_state,
    "all random ops draw the same": _one_stream,
    "the trip forgotten": _in_numpy("mix_trips", lambda f, *indices: 0),
    "batch axes are summed": _defaults,
    "the place of a value is taken before its last reader": edited(
        f"{MEMORY}:_place", "last.get(x[2], -1) >= k]", "last.get(x[2], -1) > k]"
    ),
    "a result lies where others still read": edited(f"{MEMORY}:may_replace", "k > at or read.predicate or not _own(read.index)", "k > at"),
    "half of a value fits into a gap": edited("ngraph.parts.storage:lowest_place", "at + size <= offset", "at + size // 2 <= offset"),
    "bfloat16 is cut where it should be rounded": edited(
        "ngraph.codegen.math:narrow", "(bits + 0x7FFF + ((bits >> 16) & 1)) >> 16", "bits >> 16"
    ),
}
