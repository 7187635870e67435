"""Derivatives: in a computation that is being read by `ng.deriv`, of functions that run at once by a tape of what they ran."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial, reduce
from itertools import chain
from typing import Any

import numpy as np
from keras.src import tree
from keras.src.backend.common import KerasVariable

from ngraph.autodiff.backward import deriv, jvp, vjp
from ngraph.autodiff.custom import custom_gradient
from ngraph.errors import ArgumentError
from ngraph.frontends.positional.values import Tensor
from ngraph.keras.tensors import BackendTensor, apply, lifted, whole
from ngraph.keras.traces import KerasTrace, TapeRecord, Taping, reading, record, taping
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.rearrange import broadcast, rename_record
from ngraph.parts.deferred import deferred

core, steps = deferred("ngraph.keras.core"), deferred("ngraph.keras.steps")  # which differentiate

NOT_SCALAR = "the function to differentiate gives a tensor of the shape {}"
SUM = "give the sum or the mean of it"


def _is_float(x: Any) -> bool:
    return np.dtype(x.dtype).kind == "f" or np.dtype(x.dtype).name == "bfloat16"


def value_and_grad(function: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Returns a function that gives the value of `function` and its derivatives by its arguments `argnums`, in their nests.

    function: gives a float scalar, or with has_aux a pair of it and anything else. Its arguments may be tensors or variables, whose
    derivatives are those of the variable's values wherever the function reads it; what it assigns to the variable is a value of its own.
    In a compiled function it becomes part of it; elsewhere it runs op by op. Raises ArgumentError where the value is not a scalar.
    """
    places = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def found(*args: Any, **kwargs: Any) -> Any:
        nests = [args[k] for k in places]
        leaves = list(tree.flatten(nests))
        g = reading()
        value, grads = (_at_once if g is None else _in_trace)(function, args, kwargs, leaves, places, has_aux)
        made = tree.pack_sequence_as(nests, grads)
        return value, (made[0] if isinstance(argnums, int) else tuple(made))

    return found


def _loss(value: Any, has_aux: bool) -> BackendTensor:
    loss = core.convert_to_tensor(value[0] if has_aux else value)
    if loss.ndim and any(n != 1 for n in loss.shape):
        raise ArgumentError(NOT_SCALAR.format(loss.shape), fix=SUM)
    return loss


def _followed(stack: ExitStack, given: Sequence[Any]) -> list[Sequence[Any]]:
    """Returns for each input what is assigned to it until the stack is closed; nothing for what is not a variable."""
    return [stack.enter_context(x.followed()) if isinstance(x, KerasVariable) else () for x in given]


def _in_trace(function: Any, args: Any, kwargs: Any, leaves: Sequence[Any], places: Any, has_aux: bool) -> Any:
    """The value and the derivatives as values of the computation that is being read."""
    g = reading()
    assert g is not None
    tensors = []
    given = []
    before: dict[str, Any] = {}  # the state of variables that something has read: what was computed from them is constant here
    for x in leaves:
        if isinstance(x, KerasVariable):
            read = str(id(x)) in g.variables
            name = g.name_of(x)
            t = g.tensor(g.state[name]) if name in g.state else Tensor(g.variables[name], g.variables[name].axes)
            if read:
                before.setdefault(name, g.state.get(name))
                g.state[name] = t = _apart(t)
            given.append(x)
        else:
            t = _apart(lifted(g, core.convert_to_tensor(x)))
            given.append(BackendTensor(t=t, g=g))
        tensors.append(t)
    apart = {name: g.state[name] for name in before}
    nests = tree.pack_sequence_as([args[k] for k in places], given)
    mine = list(args)
    for k, nest in zip(places, nests, strict=True):
        mine[k] = nest
    with ExitStack() as stack:
        later = _followed(stack, given)
        value = function(*mine, **kwargs)
    for name, old in before.items():
        if g.state[name] is apart[name]:  # the function has not assigned it
            del g.state[name]
            g.state.update({} if old is None else {name: old})
    loss = lifted(g, _loss(value, has_aux))
    scalar = loss.op if not loss.op.axes else g.reshape(loss, []).op
    grads: list[Any] = []
    for t, more in zip(tensors, later, strict=True):
        if not t.dtype.is_float:
            grads.append(None)
            continue
        slopes = [g.ones(Tensor(deriv(scalar, v.op), v.dims)) for v in (t, *more)]
        grads.append(BackendTensor(t=reduce(partial(_added, g), slopes), g=g))
    return value, grads


def _apart(t: Tensor) -> Tensor:
    """Returns a tensor as a value of its own: derivatives by it leave out what was computed from the tensor elsewhere."""
    return Tensor(e.stop_gradient(t.op) if t.op.is_constant else rename_record.build(t.op, to=()), t.dims)


def along(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool) -> Any:
    """Returns the value of a function, its derivative in the direction of tangents and, with has_aux, what else it gives."""

    def both(primals: Any, tangents: Any) -> Any:
        g = reading()
        assert g is not None
        given = list(primals)
        value = function(*given)
        value, aux = value if has_aux else (value, None)
        leaves = tree.flatten(value)
        ys = [lifted(g, y) for y in leaves]
        xs = [lifted(g, x) for x in given]
        directions = [broadcast(g.renamed(g.full(lifted(g, d)), g.full(x).dims).op, x.op.axes) for d, x in zip(tangents, xs, strict=True)]
        slopes = jvp([y.op for y in ys], [x.op for x in xs], directions)
        made = [BackendTensor(t=Tensor(s, y.dims), g=g) for s, y in zip(slopes, ys, strict=True)]
        found = value, tree.pack_sequence_as(value, made)
        return (*found, aux) if has_aux else found

    primals, tangents = (tuple([core.convert_to_tensor(x) for x in xs]) for xs in (primals, tangents))
    return both(primals, tangents) if reading() is not None else steps.CompiledFunction(both, "direct")(primals, tangents)


# ---- op by op -----------------------------------------------------------------------------------------------------------


def _at_once(function: Any, args: Any, kwargs: Any, leaves: Sequence[Any], places: Any, has_aux: bool) -> Any:
    """The value and the derivatives, run op by op."""
    given = [x if isinstance(x, KerasVariable) else BackendTensor(core.convert_to_tensor(x).array) for x in leaves]
    inputs = [x._held if isinstance(x, KerasVariable) else x for x in given]
    mine = list(args)
    for k, nest in zip(places, tree.pack_sequence_as([args[k] for k in places], given), strict=True):
        mine[k] = nest
    with Taping() as tape, ExitStack() as stack:
        later = _followed(stack, given)
        value = function(*mine, **kwargs)
        loss = _loss(value, has_aux)
    adjoints: dict[int, BackendTensor] = {id(loss): BackendTensor(np.ones(loss.shape, loss.dtype))}
    wanted = {id(x) for x in (*inputs, *chain(*later))}
    needed = _dependents(tape, wanted)
    for r in reversed(tape):
        if not any(id(y) in adjoints for y in r.outputs) or not any(id(x) in needed for x in r.inputs):
            continue
        moving = [k for k, x in enumerate(r.inputs) if _is_float(x) and id(x) in needed]
        for k, dx in zip(moving, _slopes(r, moving, adjoints), strict=True):
            i = id(r.inputs[k])
            adjoints[i] = apply(_added, adjoints[i], dx) if i in adjoints else dx
    sums = [[_adjoint(adjoints, v) for v in (x, *more)] for x, more in zip(inputs, later, strict=True)]
    grads = [reduce(partial(apply, _added), each) if _is_float(x) else None for x, each in zip(inputs, sums, strict=True)]
    return value, grads


def _adjoint(adjoints: dict[int, BackendTensor], x: BackendTensor) -> BackendTensor:
    """Returns the derivative by a tensor; zeros where nothing depends on it."""
    found = adjoints.get(id(x))
    return BackendTensor(np.zeros(x.shape, x.dtype)) if found is None else found


def _dependents(tape: Sequence[TapeRecord], wanted: set[int]) -> set[int]:
    """Returns the tensors that depend on the wanted ones, by identity; the tape keeps them alive."""
    found = set(wanted)
    for r in tape:
        if any(id(x) in found for x in r.inputs):
            found.update(id(y) for y in r.outputs)
    return found


def _added(g: KerasTrace, a: Tensor, b: Tensor) -> Tensor:
    (x, y), dims = g.align(a, b)
    return g.made(x + y, dims)


def _slopes(r: TapeRecord, moving: Sequence[int], adjoints: dict[int, BackendTensor]) -> Sequence[BackendTensor]:
    """Returns the derivatives by some inputs of a record, from those by its outputs."""
    have = [k for k, y in enumerate(r.outputs) if id(y) in adjoints and _is_float(y)]
    errors = [adjoints[id(r.outputs[k])] for k in have]
    if not have:
        return [BackendTensor(np.zeros(r.inputs[k].shape, r.inputs[k].dtype)) for k in moving]
    if "gradient" in r.static:
        ups = [_adjoint(adjoints, y) for y in r.outputs]
        slopes = r.static["gradient"](*ups)
        return [slopes[k] for k in moving]
    if r.function not in _backward:
        _backward[r.function] = _backward_of(r.function)
    made = apply(_backward[r.function], *r.inputs, *errors, many=len(r.inputs), moving=tuple(moving), have=tuple(have), static=r.static)
    return made


_backward: dict[Any, Callable[..., Any]] = {}


def _backward_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the vector-Jacobian product of a function of a trace."""

    def slopes(g: KerasTrace, *values: Tensor, many: int, moving: Any, have: Any, static: Any) -> Any:
        inputs = [Tensor(e.multiply(t.op, 1), t.dims) if t.op.is_constant else t for t in values[:many]]
        found = function(g, *inputs, **static)
        outputs = [found] if isinstance(found, Tensor) else list(found)
        ys, ups = [], []
        for k, up in zip(have, values[many:], strict=True):
            ys.append(whole(g, outputs[k]))
            up = g.full(up)
            ups.append(broadcast(g.renamed(up, ys[-1].axes).op, ys[-1].axes))
        slopes = vjp(ys, [inputs[k].op for k in moving], ups)
        return tuple([Tensor(s, inputs[k].dims) for s, k in zip(slopes, moving, strict=True)])

    return slopes


# ---- derivatives of one's own -------------------------------------------------------------------------------------------


def differentiated(g: KerasTrace | None, fun: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Any:
    """Returns the result of `fun`, whose second result is the function that gives derivatives by its arguments from those by the result."""
    places = [k for k, a in enumerate(args) if isinstance(a, BackendTensor)]

    def chosen(made: Any) -> list[Any]:
        found = list(made) if isinstance(made, (tuple, list)) else [made]
        return [found[k] for k in places] if len(found) == len(args) else found

    if g is None:
        found, gradient = fun(*args, **kwargs)
        leaves = tree.flatten(found)
        if taping():
            leaves = [BackendTensor(y.array) for y in leaves]
            record(fun, [args[k] for k in places], {"gradient": lambda *ups: chosen(gradient(*ups))}, tuple(leaves))
        return tree.pack_sequence_as(found, leaves)
    inputs = [lifted(g, args[k]) for k in places]
    form: list[Any] = []

    def traced(*ops: Op) -> Any:
        own, mine = list(args), [Tensor(op, x.dims) for op, x in zip(ops, inputs, strict=True)]
        for k, x in zip(places, mine, strict=True):
            own[k] = BackendTensor(t=x, g=g)
        found, gradient = fun(*own, **kwargs)
        outputs = [lifted(g, y) for y in tree.flatten(found)]
        form[:] = [found, outputs]

        def slopes(errors: tuple[Op, ...]) -> Any:
            ups = [BackendTensor(t=Tensor(op, y.dims), g=g) for op, y in zip(errors, outputs, strict=True)]
            given = [
                None if dx is None or not x.dtype.is_float else _onto(g, g.renamed(g.full(lifted(g, dx)), g.full(x).dims), x)
                for dx, x in zip(chosen(gradient(*ups)), mine, strict=True)
            ]
            return given[0] if len(given) == 1 else tuple(given)

        return tuple([y.op for y in outputs]), slopes

    made = custom_gradient(traced)(*[x.op for x in inputs])
    found, outputs = form
    return tree.pack_sequence_as(found, [BackendTensor(t=Tensor(op, y.dims), g=g) for op, y in zip(made, outputs, strict=True)])


def _onto(g: KerasTrace, t: Tensor, x: Tensor) -> Any:
    """Returns a derivative with the axes of its input."""
    for k, d in enumerate(x.dims):
        if d is None:
            t = g.squeezed(t, k)
    return broadcast(e.cast(t.op, x.dtype), x.op.axes)
