"""Steps of a plan that Python runs: effects, and control flow whose bodies are compiled plans of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.numpy_ops import evaluate
from ngraph.op_graph import expr
from ngraph.op_graph.expr import Expr, Len, Run
from ngraph.passes.orders import orders
from ngraph.plan.kernels import Buffer, Load, Plan, Routine
from ngraph.program.program import Program, Step, Value


def run_routine(frame: Any, step: Routine) -> None:
    """Runs a routine over a frame's arrays, and puts its results where the plan says."""
    runner = CONTROL.get(step.op, _through_numpy)
    got = runner(frame, step, [None if b.dtype.np is None else frame.array(b) for b in step.inputs])
    for b, array in zip(step.results, got, strict=True):
        if b.dtype.np is None or array is None:
            frame.arrays[b] = None
        else:
            frame.arrays.pop(b, None) if frame.address(b) is not None else None
    settled = [(b, a) for b, a in zip(step.results, got, strict=True) if b.dtype.np is not None]
    for b, array in sorted(settled, key=lambda pair: len(pair[0].axes)):  # counts before what they count
        target = frame.place(b)
        target[...] = array[tuple([slice(n) for n in target.shape])]


def _body(frame: Any, body: Plan) -> Any:
    """A callable of the arrays of a body's inputs, tokens being None."""
    bound = frame.bodies.get(id(body))
    if bound is None:
        known = {a: frame.length(a) for a, n in body.axes.items() if n == Len(a) and a in frame.plan.axes}
        bound = frame.bodies[id(body)] = type(frame.bound)(frame.bound.code.bodies[id(body)], known)
    return lambda *arrays: bound([None if a is None else np.require(a, requirements="CA") for a in arrays], ())[0]


def _scan(frame: Any, step: Routine, arrays: Sequence[Any]) -> list[Any]:
    axis, carries, xs = step.attrs["axis"], step.attrs["carries"], step.attrs["xs"]
    body = _body(frame, step.attrs["body"])
    trips, dims = frame.length(axis), [b.axes.index(axis) if axis in b.axes else 0 for b in step.inputs]
    state: list[Any] = [None if a is None else np.array(a) for a in arrays[:carries]]
    rolled = [np.moveaxis(a, d, 0) for a, d in zip(arrays[carries : carries + xs], dims[carries : carries + xs], strict=True)]
    made = [np.empty(frame.shape(b), b.dtype.np) for b in step.results[carries:]]
    views = [np.moveaxis(m, b.axes.index(axis), 0) for m, b in zip(made, step.results[carries:], strict=True)]
    for t in reversed(range(trips)) if step.attrs["reverse"] else range(trips):
        got = body(*state, *[x[t] for x in rolled], *arrays[carries + xs :])
        state = list(got[:carries])
        for view, y in zip(views, got[carries:], strict=True):
            view[t] = y
    return [*state, *made]


def _while(frame: Any, step: Routine, arrays: Sequence[Any]) -> list[Any]:
    carries = step.attrs["carries"]
    holds, body = _body(frame, step.attrs["cond"]), _body(frame, step.attrs["body"])
    state, consts = list(arrays[:carries]), arrays[carries:]
    while holds(*state, *consts)[0]:
        state = body(*state, *consts)
    return state


def _cond(frame: Any, step: Routine, arrays: Sequence[Any]) -> list[Any]:
    got: list[Any] = _body(frame, step.attrs["then" if arrays[0] else "else"])(*arrays[1:])
    return got


def _through_numpy(frame: Any, step: Routine, arrays: Sequence[Any]) -> list[Any]:
    """One core op by its entry in the table of NumPy calls, as a program of one step."""
    values = {b: Value(b.type, b.name) for b in (*step.inputs, *step.results)}
    own = set(step.results)

    def settled(e: Any) -> Any:
        if isinstance(e, tuple):
            return tuple([settled(x) for x in e])
        if not isinstance(e, Expr):
            return e
        return expr.substitute(e, lambda x: x if type(x) is not Load else Run(values[x.of]) if x.of in own else frame.run_length(x.of))

    attrs = {k: settled(a) for k, a in step.attrs.items()}
    made = Step(tuple([values[b] for b in step.results]), step.op, tuple([values[b] for b in step.inputs]), attrs, step.origin)
    axes: dict[Any, Any] = {}
    todo = [a for b in (*step.inputs, *step.results) for a in b.axes]
    while todo:
        a = todo.pop()
        if a not in axes:
            try:
                axes[a] = frame.length(a)
            except LookupError:
                axes[a] = settled(frame.plan.axes[a])
                todo += [leaf.of for leaf in expr.leaves(axes[a]) if type(leaf) is Len]
    real = [b for b in step.results if b.dtype.np is not None]
    program = Program(
        axes=axes,
        inputs=tuple([values[b] for b in step.inputs if b.dtype.np is not None]),
        steps=(made,),
        outputs=tuple([values[b] for b in real]),
        token_in=next((values[b] for b in step.inputs if b.dtype.np is None), None),
        token_out=next((values[b] for b in step.results if b.dtype.np is None), None),
    )
    given = [np.array(a) for a in arrays if a is not None]  # a host call may keep them
    got: dict[Buffer, Any] = dict(zip(real, evaluate(program, orders, given), strict=True))
    return [got.get(b) for b in step.results]


CONTROL = {"scan": _scan, "while": _while, "cond": _cond}
