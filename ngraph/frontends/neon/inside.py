"""Inspection of a model: parameters, floating-point operations, and time, layer by layer."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph.errors import GraphError, UnsupportedError
from ngraph.numpy_ops.lines import Lines
from ngraph.numpy_ops.translate import translate
from ngraph.numpy_ops.walk import LineRunner
from ngraph.passes.dim_orders import dim_orders
from ngraph.program.program import AxisId, Program, Step
from ngraph.runtime.host.pool import threads
from ngraph.runtime.measure import measured
from ngraph.targets import chosen

if TYPE_CHECKING:
    from ngraph.frontends.neon.layer import Layer


def work(program: Program, lengths: Mapping[AxisId, int] | None = None, times: int = 1) -> Iterator[tuple[Step, int]]:
    """Yields each step with its floating-point operations: 2 for each multiplication of a product or convolution, 1 for each other result.

    A scan's body counts once per trip; of a branch, the larger one; a while loop's body once.
    """
    known = lengths or {}

    def size(axes: Any) -> int:
        return math.prod(program.length(a, known) for a in axes)

    for step in program.steps:
        if step.op in ("contract", "convolve"):
            axes = dict.fromkeys([*step.result.axes, *step.attrs["over"], *(s[1] for s in step.attrs.get("spatial", ()))])
            yield step, 2 * size(axes) * times
        elif step.op in ("scan", "while", "cond"):
            bodies = [a for a in step.attrs.values() if isinstance(a, Program)]
            trips = program.length(step.attrs["axis"], known) if step.op == "scan" else 1
            inner = [list(work(b, {**known, **_shared(program, b, known)}, times * trips)) for b in bodies]
            yield from max(inner, key=lambda found: sum(n for _, n in found), default=[])
        elif step.op not in _FREE:
            yield step, times * sum(size(v.axes) for v in step.results if v.type is not None and hasattr(v.type, "axes"))


_FREE = {"constant", "rename", "broadcast", "reindex", "concat", "iota", "cast", "bitcast", "gather", "scatter", "effect", "compact"}


def _shared(outer: Program, body: Program, known: Mapping[AxisId, int]) -> dict[AxisId, int]:
    """Returns the lengths of a body's axes that the enclosing program determines."""
    found = {}
    for a in body.axes:
        try:
            found[a] = outer.length(a, known) if a in outer.axes else body.length(a, known)
        except LookupError:
            continue
    return found


def lengths_of(program: Program, arrays: Any) -> dict[AxisId, int]:
    """Returns the lengths of unknown axes in a call with these arrays."""
    return {a: n for v, x in zip(program.inputs, arrays, strict=True) for a, n in zip(v.axes, np.shape(x), strict=True)}


def flops(computation: Any, *arrays: Any) -> int:
    """Returns the number of floating-point operations of one call with such arrays."""
    return sum(n for _, n in work(computation.program, lengths_of(computation.program, arrays)))


def machine_rate(seconds: float = 0.3) -> float:
    """Returns the operations per second of NumPy's best matrix product here, measured now."""
    a = np.random.default_rng(0).random((768, 768), np.float32)
    best, until = math.inf, time.perf_counter() + seconds
    while best == math.inf or time.perf_counter() < until:
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2 * 768**3 / best


def machine_limit() -> tuple[float, str]:
    """Returns the peak operations per second of this machine, and their source: `ngraph doctor --measure`, else a product by NumPy."""
    known = measured(chosen())
    if known is None:
        return machine_rate(), "NumPy's best matrix product here"
    return (known.flops_of_one, "one core's limit here") if threads() == 1 else (known.flops, "this machine's limit")


def profile(computation: Any, *arrays: Any, repeats: int = 5) -> dict[str, float]:
    """Returns seconds by scope of one call, the best of `repeats`; state is not changed.

    For machine code that writes no state, its kernels are timed; the time of a kernel with parts of several layers is
    divided in proportion to their operations. Otherwise the steps are timed one by one as NumPy calls.
    """
    program = computation.program
    if not program.state_out:
        with suppress(UnsupportedError):
            rows = computation.profile(*arrays, calls=repeats).rows
            operations, found = dict[str, float](), dict[str, float]()
            for step, n in work(program, lengths_of(program, arrays)):
                if step.origin:
                    operations[step.origin[0].scope] = operations.get(step.origin[0].scope, 1.0) + n
            for row in rows:
                total = sum(operations.get(scope, 1.0) for scope in row.scopes)
                for scope in row.scopes:
                    found[scope] = found.get(scope, 0.0) + row.seconds * operations.get(scope, 1.0) / total
            return found
    lines: Lines = translate(program, dim_orders).lines
    walk = LineRunner(lines)
    states = [computation.state.get(v) for v in computation.variables]
    scopes = [call.origin[0].scope if call.origin else "" for call in lines.calls]
    best: dict[str, float] | None = None
    for _ in range(repeats):
        spent: dict[str, float] = {}
        env = walk.start.copy()
        env[: walk.count] = [*(np.array(a, v.dtype.np) for a, v in zip(arrays, program.inputs, strict=True)), *(s.copy() for s in states)]
        with np.errstate(all="ignore"):
            for (fn, ins, out, dead), scope in zip(walk.code, scopes, strict=True):
                start = time.perf_counter()
                made = fn(env) if ins is None else fn(*[env[i] for i in ins])
                spent[scope] = spent.get(scope, 0.0) + time.perf_counter() - start
                for i, m in [(out, made)] if isinstance(out, int) else zip(out, made, strict=True):
                    env[i] = m
                for i in dead:
                    env[i] = None
        if best is None or sum(spent.values()) < sum(best.values()):
            best = spent
    return best or {}


def _within(scope: str, places: list[str]) -> bool:
    return any(scope == p or scope.startswith(p + "/") for p in places)


def summary(layer: Layer, computation: Any = None, *arrays: Any, depth: int = 2) -> str:
    """Returns a table of a model that has been called: layer, axes out, parameters; and with a computation of it and arrays for one call
    floating-point operations and share of time.

    depth: levels of nested layers. Raises GraphError for a model that has not been called.
    """
    if not layer.initialized:
        raise GraphError(f"{type(layer).__name__} has not been called, so has no weights to show", fix="call it with a placeholder first")
    counted: list[tuple[str, int]] = []
    spent: dict[str, float] = {}
    if computation is not None:
        known = lengths_of(computation.program, arrays)
        counted = [(step.origin[0].scope if step.origin else "", n) for step, n in work(computation.program, known)]
        spent = profile(computation, *arrays)
    total = sum(spent.values()) or 1.0
    rows = [("layer", "axes out", "parameters", "flops", "time")]
    for level, inner in _levels(layer, depth):
        weights = {w for below in inner.layers_below() for w in below.weights.values() if w.attrs["trainable"] or w.attrs.get("frozen")}
        out = next((o for o in inner.outputs if o.is_tensor_op), None)
        n = sum(k for scope, k in counted if _within(scope, inner.places))
        share = sum(s for scope, s in spent.items() if _within(scope, inner.places)) / total
        frozen = ", frozen" if weights and all(w.attrs.get("frozen") for w in weights) else ""
        axes = "" if out is None else " ".join(map(repr, out.axes))
        rows.append(
            (
                "  " * level + inner.name,
                axes,
                f"{sum(w.axes.size or 0 for w in weights):,}{frozen}",
                f"{n:,}" if counted else "",
                f"{share:.1%}" if spent else "",
            )
        )
    widths = [max(len(r[k]) for r in rows) for k in range(5)]
    shown = [k for k in range(5) if k < 3 or any(r[k] for r in rows[1:])]
    lines = ["  ".join(r[k].ljust(widths[k]) if k < 2 else r[k].rjust(widths[k]) for k in shown).rstrip() for r in rows]
    return "\n".join(lines)


def _levels(layer: Layer, depth: int) -> Iterator[tuple[int, Layer]]:
    """Yields a layer and nested ones, with their depth; those that were never called are skipped."""
    todo: list[tuple[int, Layer]] = [(0, layer)]
    seen: set[Layer] = set()
    while todo:
        level, inner = todo.pop()
        if inner in seen or not inner.initialized:
            continue
        seen.add(inner)
        yield level, inner
        if level < depth - 1:
            todo += [(level + 1, child) for child in reversed(inner.children())]
