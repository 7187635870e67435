"""Translators of TensorFlow's variables, and of the ops by which optimizers write them.

What is read is what was assigned last on the way there; what is assigned is written when the call ends (`positional.trace`). The formulas
of optimizers are those of tensorflow/core/kernels/training_ops.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.positional import indexing
from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.frontends.tensorflow.graph import Resource, node_of
from ngraph.frontends.tensorflow.table import translates
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e


def current(n: Any, handle: Value) -> Value:
    """Returns what a variable holds now. Raises GraphError for what is no variable, or has no value."""
    if not isinstance(handle, Resource):
        raise GraphError(f"{n.g.described(handle)} where the handle of a variable is needed")
    if handle.name in n.g.variables:
        return n.g.current(handle.name)
    found = n.library.stored(handle.name)
    if found is None:
        raise GraphError(f"the variable {handle.name!r} has no value", fix="give the checkpoint that belongs to the graph")
    return found


def write(n: Any, handle: Value, value: Value) -> None:
    """A variable holds this value from here on."""
    n.g.assign(handle.name, value)


@translates("VarHandleOp")
def handle(n: Any) -> Resource:
    return Resource(n.library.handles.get(n.name, n.name))


@translates("ReadVariableOp")
def read(n: Any, x: Value) -> Value:
    return current(n, x)


@translates("VariableV2", "Variable")
def variable(n: Any) -> Value:
    return current(n, Resource(n.library.handles.get(n.name, n.name)))


@translates("VarIsInitializedOp", "IsVariableInitialized")
def initialized(n: Any, x: Value) -> Value:
    return ConstantArray(np.array(True))


@translates("VariableShape")
def variable_shape(n: Any, x: Value) -> Value:
    shape = [n.g.number(s) for s in current(n, x).shape]
    return ConstantArray(np.array(shape, n.attr("out_type", np.dtype(np.int32))))


@translates("AssignVariableOp")
def assign(n: Any, x: Value, value: Value) -> tuple[Value, ...]:
    write(n, x, value)
    return ()


@translates("AssignAddVariableOp", "AssignSubVariableOp")
def assign_more(n: Any, x: Value, value: Value) -> tuple[Value, ...]:
    function = e.add if n.op == "AssignAddVariableOp" else e.subtract
    write(n, x, each(n.g, function, current(n, x), value))
    return ()


@translates("Assign", "AssignAdd", "AssignSub")
def assign_ref(n: Any, old: Value, value: Value) -> Value:
    """Writes a variable of TensorFlow 1, whose node is named by the first input."""
    name = node_of(n.takes[0])
    home = Resource(n.library.handles.get(name, name))
    function: Any = {"AssignAdd": e.add, "AssignSub": e.subtract}.get(n.op)
    write(n, home, value if function is None else each(n.g, function, current(n, home), value))
    return current(n, home)


@translates("ResourceGather")
def gather(n: Any, x: Value, i: Value) -> Tensor:
    return indexing.gathered(n.g, n.g.tensor(current(n, x)), i, 0, n.takes[0])


@translates("ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterUpdate", "ResourceScatterMax", "ResourceScatterMin")
def scatter(n: Any, x: Value, i: Value, u: Value) -> tuple[Value, ...]:
    kind = n.op.removeprefix("ResourceScatter")
    if kind == "Sub":
        t = n.g.tensor(u)
        u = Tensor(-t.op, t.dims)
    rows = n.g.tensor(i)
    index = Tensor(rows.op, [*rows.dims, None])
    combine = {"Add": "add", "Sub": "add", "Update": "set", "Max": "max", "Min": "min"}[kind]
    t = n.g.tensor(u)
    if t.rank < rows.rank + current(n, x).rank - 1:  # one number for all
        shape = [*rows.shape, *current(n, x).shape[1:]]
        t = n.g.expanded(t, shape)
    write(n, x, indexing.scattered_slices(n.g, current(n, x), index, t, combine, n.takes[0]))
    return ()


# ---- optimizers ---------------------------------------------------------------------------------------------------------

Step = Callable[..., tuple[Op, ...]]


def _applies(op: str, states: int, step: Step) -> None:
    """Registers an optimizer's op: `states` variables in front of its numbers; step: from all of them to what the variables hold next."""

    def translate(n: Any, *given: Value) -> tuple[Value, ...]:
        homes = given[:states]
        olds = [n.g.tensor(current(n, h)) for h in homes]
        ops, dims = n.g.align(*olds, *given[states:])
        for home, new in zip(homes, step(n, *ops), strict=True):
            write(n, home, n.g.made(new, dims))
        return ()

    translates(op)(translate)


def _momentum(n: Any, x: Op, m: Op, rate: Op, g: Op, by: Op) -> tuple[Op, ...]:
    m = m * by + g
    return x - (g * rate + m * by * rate if n.attr("use_nesterov", False) else m * rate), m


def _keras_momentum(n: Any, x: Op, m: Op, rate: Op, g: Op, by: Op) -> tuple[Op, ...]:
    m = m * by - g * rate
    return x + (m * by - g * rate if n.attr("use_nesterov", False) else m), m


def _adam(n: Any, x: Op, m: Op, v: Op, power1: Op, power2: Op, rate: Op, b1: Op, b2: Op, eps: Op, g: Op) -> tuple[Op, ...]:
    rate = rate * e.sqrt(1.0 - power2) / (1.0 - power1)
    m = m + (g - m) * (1.0 - b1)
    v = v + (g * g - v) * (1.0 - b2)
    step = m * b1 + g * (1.0 - b1) if n.attr("use_nesterov", False) else m
    return x - step * rate / (e.sqrt(v) + eps), m, v


def _adagrad(n: Any, x: Op, s: Op, rate: Op, g: Op) -> tuple[Op, ...]:
    s = s + g * g if n.attr("update_slots", True) else s
    return x - g * rate / e.sqrt(s), s


def _adagrad_v2(n: Any, x: Op, s: Op, rate: Op, eps: Op, g: Op) -> tuple[Op, ...]:
    s = s + g * g if n.attr("update_slots", True) else s
    return x - g * rate / (e.sqrt(s) + eps), s


def _rmsprop(n: Any, x: Op, s: Op, m: Op, rate: Op, rho: Op, by: Op, eps: Op, g: Op) -> tuple[Op, ...]:
    s = s + (g * g - s) * (1.0 - rho)
    m = m * by + g * rate / e.sqrt(s + eps)
    return x - m, s, m


def _centered(n: Any, x: Op, mean: Op, s: Op, m: Op, rate: Op, rho: Op, by: Op, eps: Op, g: Op) -> tuple[Op, ...]:
    s = s + (g * g - s) * (1.0 - rho)
    mean = mean + (g - mean) * (1.0 - rho)
    m = m * by + g * rate / e.sqrt(s - mean * mean + eps)
    return x - m, mean, s, m


def _adadelta(n: Any, x: Op, s: Op, u: Op, rate: Op, rho: Op, eps: Op, g: Op) -> tuple[Op, ...]:
    s = s * rho + g * g * (1.0 - rho)
    step = e.sqrt(u + eps) / e.sqrt(s + eps) * g
    return x - step * rate, s, u * rho + step * step * (1.0 - rho)


def _adamax(n: Any, x: Op, m: Op, v: Op, power1: Op, rate: Op, b1: Op, b2: Op, eps: Op, g: Op) -> tuple[Op, ...]:
    m = m + (g - m) * (1.0 - b1)
    v = e.maximum(v * b2, e.absolute(g))
    return x - rate / (1.0 - power1) * (m / (v + eps)), m, v


_applies("ResourceApplyGradientDescent", 1, lambda n, x, rate, g: (x - g * rate,))
_applies("ResourceApplyMomentum", 2, _momentum)
_applies("ResourceApplyKerasMomentum", 2, _keras_momentum)
_applies("ResourceApplyAdam", 3, _adam)
_applies("ResourceApplyAdagrad", 2, _adagrad)
_applies("ResourceApplyAdagradV2", 2, _adagrad_v2)
_applies("ResourceApplyRMSProp", 3, _rmsprop)
_applies("ResourceApplyCenteredRMSProp", 4, _centered)
_applies("ResourceApplyAdadelta", 3, _adadelta)
_applies("ResourceApplyAdaMax", 3, _adamax)
