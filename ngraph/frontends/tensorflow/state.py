"""Translators of TensorFlow's variables, and of the ops by which optimizers write them.

What is read is what was assigned last on the way there; what is assigned is written when the call ends (`positional.trace`). The formulas
of optimizers are those of tensorflow/core/kernels/training_ops.cc.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.positional import indexing, philox, shapes
from ngraph.frontends.positional.elementwise import bitcast, each
from ngraph.frontends.positional.rejection import APART
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.frontends.tensorflow.graph import Reference, Resource
from ngraph.frontends.tensorflow.stateless import Source, sampled, scalars
from ngraph.frontends.tensorflow.table import TABLE, rows, translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.rearrange import product


def current(n: Any, variable: Value) -> Value:
    """Returns what a variable holds now. Raises GraphError for what is not a variable, or has no value."""
    if not isinstance(variable, Resource):
        raise GraphError(f"{n.g.described(variable)} where a variable is needed")
    return n.library.current(n.g, variable.name)


def write(n: Any, handle: Value, value: Value) -> None:
    """A variable holds this value from here on; what initialisation writes, such as the path of an asset, before all calls."""
    if n.library.initializing and isinstance(value, ConstantArray):
        n.library.put(handle.name, value)
    else:
        n.library.unset.discard(handle.name)
        n.g.assign(handle.name, value)


rows(
    {
        "VarHandleOp": lambda n: Resource(n.library.handles.get(n.name, n.name)),
        "VariableV2 Variable": lambda n: Reference(n.library.handles.get(n.name, n.name)),
        "ReadVariableOp": current,
        "VariableShape": lambda n, x: ConstantArray(np.array(n.g.numbers(current(n, x).shape), n.attr("out_type", np.int32))),
        "ResourceGather": lambda n, x, i: indexing.gathered(n.g, n.g.tensor(current(n, x)), i, 0, n.takes[0]),
    }
)


translates("VarIsInitializedOp", "IsVariableInitialized", references=True)(
    lambda n, x: ConstantArray(np.array(n.library.has_value(n.g, x.name)))
)


@translates("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
@translates("Assign", "AssignAdd", "AssignSub", references=True)
def assign(n: Any, x: Value, value: Value) -> Any:
    """Writes a variable; gives the reference to one of TensorFlow 1."""
    value = n.library.read(n.g, value)
    function = {"AssignAdd": e.add, "AssignSub": e.subtract}.get(n.op.removesuffix("VariableOp"))
    write(n, x, value if function is None else each(n.g, function, current(n, x), value))
    return () if n.op.endswith("VariableOp") else x


SCATTERS = {"Add": "add", "Sub": "add", "Update": "set", "Max": "max", "Min": "min", "Mul": "multiply", "Div": "multiply"}


@translates(*(f"{of}Scatter{kind}" for kind in SCATTERS for of in ("", "Resource")), references=True)
@translates(*(f"{of}ScatterNd{kind}" for kind in ("Add", "Sub", "Update", "Max", "Min") for of in ("", "Resource")), references=True)
def scatter(n: Any, x: Value, i: Value, u: Value) -> Value:
    """Writes rows of a variable, or slices of it."""
    kind = n.op.rpartition("Scatter")[2].removeprefix("Nd")
    old, numbers, t = current(n, x), n.g.tensor(n.library.read(n.g, i)), n.g.tensor(n.library.read(n.g, u))
    if kind in ("Sub", "Div"):
        t = Tensor(-t.op if kind == "Sub" else 1.0 / t.op, t.dims)
    scattered = indexing.scattered_slices if "ScatterNd" in n.op else indexing.scattered_rows
    if "ScatterNd" not in n.op and t.rank < numbers.rank + old.rank - 1:  # one number for all
        t = n.g.expanded(t, [*numbers.shape, *old.shape[1:]])
    write(n, x, scattered(n.g, old, numbers, t, SCATTERS[kind], n.takes[0]))
    return x


@translates("ResourceStridedSliceAssign", "StridedSliceAssign", references=True)
def strided_slice_assign(n: Any, x: Value, begin: Value, end: Value, strides: Value, value: Value) -> Value:
    """Writes a slice of a variable."""
    where = [n.library.read(n.g, v) for v in (begin, end, strides, value)]
    write(n, x, TABLE["TensorStridedSliceUpdate"](n, current(n, x), *where))
    return x


# ---- generators: a counter and a key of Philox in a variable, `tf.random.Generator` ------------------------------------------


def _skips(n: Any, handle: Value, count: Op) -> tuple[Value, Source]:
    """Returns what a generator holds, also as key and counter, and sets its counter so much further."""
    old = current(n, handle)
    low, high, key = scalars(n, old, 3)
    new = low + count
    words = (new, high + e.cast(e.less(new, low), dtypes.uint64), key)
    write(n, handle, shapes.stacked(n.g, [n.g.made(bitcast(x, dtypes.int64), []) for x in words]))
    return old, (key, (low, high))


@translates("RngReadAndSkip")
def read_and_skip(n: Any, handle: Value, algorithm: Value, count: Tensor) -> Value:
    return _skips(n, handle, e.cast(count.op, dtypes.uint64) * philox.whole(APART))[0]


@translates("StatefulRandomBinomial", python=True)
def binomial(n: Any, handle: Value, algorithm: Value, shape: Value, *parameters: Value) -> Value:
    lengths, rank = n.g.sizes(shape), max(p.rank for p in parameters)
    each, many = product(lengths[: len(lengths) - rank]), product(lengths[len(lengths) - rank :])
    count = e.cast(n.g.number(many * 200 * (each + 3) // 4), dtypes.uint64)
    return sampled(n, _skips(n, handle, count * philox.whole(APART))[1], shape, parameters)


# ---- optimizers ---------------------------------------------------------------------------------------------------------

Step = Callable[..., tuple[Op, ...]]


def _applies(op: str, states: int, step: Step, of: Sequence[str] = ("", "Resource"), rows_of: Sequence[str] = ("", "Resource")) -> None:
    """Registers an optimizer's op: `states` variables in front of its numbers.

    of, rows_of: for what it exists, references ("") or handles ("Resource"), and for what its form exists that changes some rows alone.

    step: from the node and the values of all inputs, of which `g` is the gradient, to what the variables hold next. The form for rows
    has their indices behind the gradient; no row may come twice, which TensorFlow's own optimizers see to.
    """
    place = list(inspect.signature(step).parameters).index("g") - states  # of the indices, among the numbers

    def apply(n: Any, *inputs: Value) -> Value:
        homes, given = inputs[:states], [n.library.read(n.g, v) for v in inputs[states:]]
        at = given.pop(place) if "SparseApply" in n.op else None
        olds = [n.g.tensor(current(n, h)) for h in homes]
        changed = olds if at is None else [indexing.gathered(n.g, old, at, 0, n.takes[0]) for old in olds]
        ops, dims = n.g.align(*changed, *given)
        for home, old, op in zip(homes, olds, step(n, *ops), strict=True):
            new = n.g.made(op, dims)
            write(n, home, new if at is None else indexing.scattered_rows(n.g, old, at, new, "set", n.takes[0]))
        return homes[0]

    every = [*(f"{kind}Apply{op}" for kind in of), *(f"{kind}SparseApply{op}" for kind in rows_of)]
    translates(*every, references=True)(apply)


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


def _adagrad(n: Any, x: Op, s: Op, rate: Op, eps: Op | float, g: Op) -> tuple[Op, ...]:
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


def _amsgrad(n: Any, x: Op, m: Op, v: Op, most: Op, power1: Op, power2: Op, rate: Op, b1: Op, b2: Op, eps: Op, g: Op) -> tuple[Op, ...]:
    rate = rate * e.sqrt(1.0 - power2) / (1.0 - power1)
    m = m + (g - m) * (1.0 - b1)
    v = v + (g * g - v) * (1.0 - b2)
    most = e.maximum(most, v)
    return x - m * rate / (e.sqrt(most) + eps), m, v, most


def _shrunk(x: Op, by: Op) -> Op:
    """Returns x nearer to 0 by so much, 0 where it would change its sign."""
    return e.sign(x) * e.maximum(e.absolute(x) - by, 0.0)


def _ftrl(n: Any, x: Op, s: Op, linear: Op, g: Op, rate: Op, l1: Op, l2: Op, power: Op, more: Op | float = 0.0) -> tuple[Op, ...]:
    """Follows the regularised leader; more: the gradient of what shrinks x, by x."""
    new = s + g * g
    before, after = (e.power(a, -power) for a in (s, new))
    step = g + more * x
    if n.attr("multiply_linear_by_lr", False):
        linear = linear + step * rate - (after - before) * x
        return -_shrunk(linear, l1 * rate) / (after + 2.0 * l2 * rate), new, linear
    linear = linear + step - (after - before) / rate * x
    return -_shrunk(linear, l1) / (after / rate + 2.0 * l2), new, linear


def _ftrl_v2(n: Any, x: Op, s: Op, linear: Op, g: Op, rate: Op, l1: Op, l2: Op, shrinkage: Op, power: Op) -> tuple[Op, ...]:
    return _ftrl(n, x, s, linear, g, rate, l1, l2, power, 2.0 * shrinkage)


def _proximal(n: Any, x: Op, rate: Op, l1: Op, l2: Op, g: Op) -> tuple[Op, ...]:
    return (_shrunk(x - g * rate, rate * l1) / (1.0 + rate * l2),)


def _proximal_adagrad(n: Any, x: Op, s: Op, rate: Op, l1: Op, l2: Op, g: Op) -> tuple[Op, ...]:
    s = s + g * g
    rate = rate / e.sqrt(s)
    return _shrunk(x - g * rate, rate * l1) / (1.0 + rate * l2), s


def _adagrad_da(n: Any, x: Op, sums: Op, squares: Op, g: Op, rate: Op, l1: Op, l2: Op, step: Op) -> tuple[Op, ...]:
    sums, squares, step = sums + g, squares + g * g, e.cast(step, x.dtype)
    return -rate * _shrunk(sums, l1 * step) / (l2 * step * rate + e.sqrt(squares)), sums, squares


def _add_sign(n: Any, x: Op, m: Op, rate: Op, alpha: Op, decay: Op, beta: Op, g: Op) -> tuple[Op, ...]:
    m = m * beta + g * (1.0 - beta)
    return x - rate * (alpha + decay * e.sign(g) * e.sign(m)) * g, m


def _power_sign(n: Any, x: Op, m: Op, rate: Op, base: Op, decay: Op, beta: Op, g: Op) -> tuple[Op, ...]:
    m = m * beta + g * (1.0 - beta)
    return x - rate * e.exp(base * decay * e.sign(g) * e.sign(m)) * g, m


_applies("GradientDescent", 1, lambda n, x, rate, g: (x - g * rate,), rows_of=())
_applies("Momentum", 2, _momentum)
_applies("KerasMomentum", 2, _keras_momentum, ["Resource"], ["Resource"])
_applies("Adam", 3, _adam, rows_of=())
_applies("AdamWithAmsgrad", 4, _amsgrad, ["Resource"], [])
_applies("Adagrad", 2, lambda n, x, s, rate, g: _adagrad(n, x, s, rate, 0.0, g))
_applies("AdagradV2", 2, _adagrad)
_applies("AdagradDA", 3, _adagrad_da)
_applies("RMSProp", 3, _rmsprop)
_applies("CenteredRMSProp", 4, _centered)
_applies("Adadelta", 3, _adadelta)
_applies("AdaMax", 3, _adamax, rows_of=())
_applies("Ftrl", 3, _ftrl)
_applies("FtrlV2", 3, _ftrl_v2)
_applies("ProximalGradientDescent", 1, _proximal)
_applies("ProximalAdagrad", 2, _proximal_adagrad)
_applies("AddSign", 2, _add_sign, rows_of=())
_applies("PowerSign", 2, _power_sign, rows_of=())
