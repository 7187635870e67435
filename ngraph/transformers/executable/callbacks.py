"""Host callbacks: steps of a plan that Python runs, for effects and for ops without machine code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.op_graph import expr
from ngraph.op_graph.expr import Expr, Len, Run
from ngraph.parts.deferred import deferred
from ngraph.passes.dim_orders import dim_orders
from ngraph.plan.kernels import Buffer, OpaqueOp
from ngraph.program.program import Program, Step, Value
from ngraph.tensors.index import Load

numpy_ops = deferred("ngraph.numpy_ops")


def run_opaque_op(scope: Any, step: OpaqueOp) -> None:
    """Runs an opaque op on the arrays of a scope, and stores its results in the plan's memory."""
    got = _through_numpy(scope, step, [None if b.dtype.np is None else scope.array(b) for b in step.inputs])
    settled = [(b, a) for b, a in zip(step.results, got, strict=True) if b.dtype.np is not None]
    for b, array in sorted(settled, key=lambda pair: len(pair[0].axes)):  # counts before the values that they count
        target = scope.place(b)
        target[...] = array[tuple([slice(n) for n in target.shape])]


def _through_numpy(scope: Any, step: OpaqueOp, arrays: Sequence[Any]) -> list[Any]:
    """Returns the result of one core op by its entry in the table of NumPy calls, as a program of one step."""
    values = {b: Value(b.type, b.name) for b in (*step.inputs, *step.results)}
    own = set(step.results)

    def settled(e: Any) -> Any:
        if isinstance(e, tuple):
            return tuple([settled(x) for x in e])
        if not isinstance(e, Expr):
            return e
        return expr.substitute(e, lambda x: x if type(x) is not Load else Run(values[x.of]) if x.of in own else scope.run_length(x.of))

    attrs = {k: settled(a) for k, a in step.attrs.items()}
    made = Step(tuple([values[b] for b in step.results]), step.op, tuple([values[b] for b in step.inputs]), attrs, step.origin)
    axes: dict[Any, Any] = {}
    todo = [a for b in (*step.inputs, *step.results) for a in b.axes]
    while todo:
        a = todo.pop()
        if a not in axes:
            made_here = [leaf for leaf in expr.leaves(scope.bound.settled(Len(a))) if type(leaf) is Load and leaf.of in own]
            if made_here:  # memory holds the count of another call
                axes[a] = settled(scope.plan.axes[a])
                todo += [leaf.of for leaf in expr.leaves(axes[a]) if type(leaf) is Len]
            else:
                axes[a] = scope.length(a)
    real = [b for b in step.results if b.dtype.np is not None]
    program = Program(
        axes=axes,
        inputs=tuple([values[b] for b in step.inputs if b.dtype.np is not None]),
        steps=(made,),
        outputs=tuple([values[b] for b in real]),
        token_in=next((values[b] for b in step.inputs if b.dtype.np is None), None),
        token_out=next((values[b] for b in step.results if b.dtype.np is None), None),
    )
    given = [np.array(a) for a in arrays if a is not None]  # a host call may keep its arguments
    got: dict[Buffer, Any] = dict(zip(real, numpy_ops.evaluate(program, dim_orders, given), strict=True))
    return [got.get(b) for b in step.results]
