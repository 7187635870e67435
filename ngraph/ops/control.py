"""Loops, choice and effects: core ops whose bodies are closed programs.

A body takes what its op takes and names its axes as the enclosing program does: by id there, by label (`H`, `H'`) in an op-graph.
This room knows of a program only that it has `inputs` and `outputs` with types, `axes` and `hints`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ngraph.errors import AxisError, DTypeError, GraphError
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axes
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import Call, OpDef, op
from ngraph.ops.aligned import axes_like, without
from ngraph.ops.elementwise import ALL, as_ops, less

Body = Any  # a Program: a room above this one

NO_GRADIENT = "a loop or a choice has no derivative yet; write the steps out, or use cumsum and where"


# ---- how a body's axes and the op's meet ------------------------------------------------------------------------------


def _is_graph(inputs: Iterable[TensorType]) -> bool:
    return any(type(t.axes) is Axes for t in inputs)


def _outer(axes: Iterable[Any]) -> list[str]:
    return [a if isinstance(a, str) else a.label for a in axes]


def _inner(axes: Iterable[Any], body: Body, graph: bool) -> list[str]:
    return [body.hints.get(a, str(a)) if graph else a for a in axes]


def _check(name: str, what: str, body: Body, values: Sequence[Any], wanted: Sequence[TensorType], graph: bool) -> None:
    """The values of a body are of these types, whatever the order of their axes."""
    if len(values) != len(wanted):
        raise GraphError(f"{name}: the {what} has {len(values)} values where the op has {len(wanted)}")
    for value, t in zip(values, wanted, strict=True):
        if set(_inner(value.type.axes, body, graph)) != set(_outer(t.axes)) or value.type.dtype is not t.dtype:
            raise AxisError(f"{name}: {value.type} in the {what} stands where the op has {t}")


def _given(body: Body, values: Sequence[Any], inputs: Sequence[TensorType], more: Iterable[Any] = ()) -> list[TensorType]:
    """The types of a body's results, in the axes of the op."""
    graph = _is_graph(inputs)
    known = {label: axis for axes in (*(t.axes for t in inputs), tuple(more)) for label, axis in zip(_outer(axes), axes, strict=True)}
    types = []
    for v in values:
        labels = _inner(v.type.axes, body, graph)
        missing = [a for a in labels if graph and a not in known]
        if missing:
            raise AxisError(
                f"a body gives axis {', '.join(missing)}, which no input of its op has", fix="give a tensor with that axis as an input"
            )
        axes = [known[a] if graph else a for a in labels]
        types.append(TensorType(Axes(axes) if graph else tuple(axes), v.type.dtype))
    return types


def _one_or_all(types: Sequence[TensorType]) -> Any:
    return types[0] if len(types) == 1 else tuple(types)


def _ordered(array: Any, have: Sequence[str], want: Sequence[str]) -> Any:
    return None if array is None else np.transpose(array, [list(have).index(a) for a in want])


def _run(call: Call, body: Body, arrays: Sequence[Any], types: Sequence[TensorType], results: Sequence[TensorType]) -> list[Any]:
    """A body run on arrays whose dims are in the order of `types`; its results in the order of `results`."""
    graph = _is_graph((*types, *results))
    taken = [_ordered(a, _outer(t.axes), _inner(v.type.axes, body, graph)) for a, t, v in zip(arrays, types, body.inputs, strict=True)]
    assert call.run_program is not None
    given = call.run_program(body, taken)
    return [_ordered(a, _inner(v.type.axes, body, graph), _outer(t.axes)) for a, v, t in zip(given, body.outputs, results, strict=True)]


# ---- scan -------------------------------------------------------------------------------------------------------------


def _slices(inputs: Sequence[TensorType], axis: Any, carries: int, xs: int) -> list[TensorType]:
    return [TensorType(without(t.axes, (axis,)), t.dtype) if carries <= k < carries + xs else t for k, t in enumerate(inputs)]


def _scan_type(inputs: tuple[TensorType, ...], body: Body, axis: Any, reverse: bool, carries: int, xs: int) -> Any:
    graph = _is_graph(inputs) or not isinstance(axis, str)
    for t in inputs[carries : carries + xs]:
        if axis not in t.axes:
            raise AxisError(f"scan over {axis}: an input to be sliced has the axes {list(t.axes)}")
    _check("scan", "body's inputs", body, body.inputs, _slices(inputs, axis, carries, xs), graph)
    _check("scan", "body's first outputs", body, body.outputs[:carries], inputs[:carries], graph)
    ys = _given(body, body.outputs[carries:], inputs)
    stacked = [TensorType(axes_like(y.axes, (axis, *y.axes)), y.dtype) for y in ys]
    return _one_or_all([*inputs[:carries], *stacked])


def _scan(call: Call, *arrays: Any) -> Any:
    body, axis, carries, xs = (call.attrs[k] for k in ("body", "axis", "carries", "xs"))
    types = _slices(call.inputs, axis, carries, xs)
    ys_types = [TensorType(without(t.axes, (axis,)), t.dtype) for t in call.results[carries:]]
    out_types = [*types[:carries], *ys_types]
    carry, sliced, consts = list(arrays[:carries]), arrays[carries : carries + xs], arrays[carries + xs :]
    dims = [t.axes.index(axis) for t in call.inputs[carries : carries + xs]]
    trips = range(call.length(axis))
    stacks: list[dict[int, np.ndarray]] = [{} for _ in ys_types]
    for trip in reversed(trips) if call.attrs["reverse"] else trips:
        now = [np.take(x, trip, axis=d) for x, d in zip(sliced, dims, strict=True)]
        given = _run(call, body, [*carry, *now, *consts], types, out_types)
        carry = given[:carries]
        for stack, y in zip(stacks, given[carries:], strict=True):
            stack[trip] = y
    stacked = []
    for stack, y, t in zip(stacks, ys_types, call.results[carries:], strict=True):
        whole = np.empty((len(trips), *call.shape(y.axes)), t.dtype.np)
        for trip, value in stack.items():
            whole[trip] = value
        stacked.append(_ordered(whole, _outer((axis, *y.axes)), _outer(t.axes)))
    first = [_ordered(c, _outer(i.axes), _outer(r.axes)) for c, i, r in zip(carry, call.inputs, call.results, strict=False)]
    return (*first, *stacked)


def _scan_samples(s: Any) -> list[Op]:
    i, j = s.I, s.J

    def running(c: Op, x: Op) -> tuple[Op, Op]:
        return c + x, c * x

    def two(a: Op, b: Op, x: Op, w: Op) -> tuple[Op, ...]:
        return b + w, a + x, a + b * x

    def case(
        function: Callable[..., Any], axis: Any, carry: Sequence[Op], xs: Sequence[Op], consts: Sequence[Op] = (), reverse: bool = False
    ) -> Op:
        slices = [Axes(a for a in x.axes if a != axis) for x in xs]
        body = s.body(function, *carry, *slices, *consts)
        return scan.build(*carry, *xs, *consts, body=body, axis=axis, reverse=reverse, carries=len(carry), xs=len(xs))

    return [
        case(running, j, [s.x(i)], [s.x(j, i)]),
        case(running, j, [s.x(i)], [s.x(i, j)], reverse=True),
        case(running, s.Z, [s.x(i)], [s.x(s.Z, i)]),
        case(running, s.O, [s.x()], [s.x(s.O)]),
        case(two, j, [s.x(i), s.x(i)], [s.x(i, j)], [s.x(i)]),
        case(two, j, [s.x(i, i - 1), s.x(i - 1, i)], [s.x(i, j, i - 1)], [s.x(i, i - 1)]),
        case(lambda c: (c + c, c), j, [s.x(i)], []),
        case(lambda x, w: (x * w,), j, [], [s.x(j, i)], [s.x(i)]),
        case(running, s.N, [s.special(i)], [s.special(s.N, i)]),
    ]


scan: OpDef = op(
    "scan",
    "A body once per index of an axis: carries go from one to the next, slices of xs go in, what else it gives is stacked.",
    type=_scan_type,
    reference=_scan,
    samples=_scan_samples,
    kinds=("float", "int"),
)

# ---- while ------------------------------------------------------------------------------------------------------------


def _while_type(inputs: tuple[TensorType, ...], cond: Body, body: Body, carries: int) -> Any:
    graph = _is_graph(inputs)
    for what, program in (("condition's inputs", cond), ("body's inputs", body)):
        _check("while", what, program, program.inputs, inputs, graph)
    _check("while", "condition's outputs", cond, cond.outputs, [TensorType((), dtypes.bool_)], graph)
    _check("while", "body's outputs", body, body.outputs, inputs[:carries], graph)
    return _one_or_all(inputs[:carries])


def _while(call: Call, *arrays: Any) -> Any:
    carries = call.attrs["carries"]
    types = call.inputs
    carry, consts = list(arrays[:carries]), arrays[carries:]
    while _run(call, call.attrs["cond"], [*carry, *consts], types, [TensorType((), dtypes.bool_)])[0]:
        carry = _run(call, call.attrs["body"], [*carry, *consts], types, types[:carries])
    return tuple([_ordered(c, _outer(i.axes), _outer(r.axes)) for c, i, r in zip(carry, types, call.results, strict=False)])


def _while_samples(s: Any) -> list[Op]:
    def case(turns: int, function: Callable[[Op, Op], Op], x: Op, w: Op) -> Op:
        count, limit = s.ints(low=0, high=0), s.ints(low=turns, high=turns)
        inputs = (count, x, w, limit)
        holds = s.body(lambda n, x, w, limit: less(n, limit), *inputs)
        body = s.body(lambda n, x, w, limit: (n + 1, function(x, w)), *inputs)
        return while_.build(*inputs, cond=holds, body=body, carries=2)

    i, j = s.I, s.J
    return [
        case(3, lambda x, w: x + w, s.x(i, j), s.x(j)),
        case(0, lambda x, w: x + w, s.x(i, j), s.x(j)),
        case(1, lambda x, w: x * w, s.x(), s.x()),
        case(4, lambda x, w: x * w, s.special(s.N, i), s.special(i)),
        case(2, lambda x, w: w - x, s.x(i, i - 1), s.x(i - 1, i)),
        case(2, lambda x, w: x + w, s.x(s.Z, i), s.x(i)),
    ]


while_: OpDef = op(
    "while",
    "A body as long as a condition on what it carries holds.",
    type=_while_type,
    reference=_while,
    samples=_while_samples,
    kinds=("float", "int"),
)

# ---- cond -------------------------------------------------------------------------------------------------------------


def _cond_type(inputs: tuple[TensorType, ...], **bodies: Body) -> Any:
    p, *args = inputs
    if p.dtype.kind != "bool" or p.axes:
        raise DTypeError(f"cond of {p}", fix="its first input is one bool scalar: reduce it, or use ng.where for a choice per element")
    graph = _is_graph(inputs)
    for branch in ("then", "else"):
        _check("cond", f"inputs of '{branch}'", bodies[branch], bodies[branch].inputs, args, graph)
    types = _given(bodies["then"], bodies["then"].outputs, inputs)
    _check("cond", "outputs of 'else'", bodies["else"], bodies["else"].outputs, types, graph)
    return _one_or_all(types)


def _cond(call: Call, p: np.ndarray, *arrays: Any) -> Any:
    return tuple(_run(call, call.attrs["then" if p else "else"], arrays, call.inputs[1:], call.results))


def _cond_samples(s: Any) -> list[Op]:
    def case(p: bool, then: Callable[..., Any], other: Callable[..., Any], *args: Op) -> Op:
        bodies = {"then": s.body(then, *args), "else": s.body(other, *args)}
        return cond.build(s.given(p, dtype=dtypes.bool_), *args, **bodies)

    i, j = s.I, s.J
    return [
        *(case(p, lambda x, y: (x + y, x), lambda x, y: (y - x, x * x), s.x(i, j), s.x(j, i)) for p in (True, False)),
        *(case(p, lambda x: x, lambda x: x + x, s.x()) for p in (True, False)),
        *(case(p, lambda x, y: x * y, lambda x, y: y + x, s.special(i, s.N), s.special(s.N)) for p in (True, False)),
        case(True, lambda x: x, lambda x: x * x, s.x(s.Z, i)),
        case(False, lambda x, y: x + y, lambda x, y: x * y, s.x(i, i - 1), s.x(i - 1, i)),
    ]


cond: OpDef = op(
    "cond",
    "One of two bodies, as a bool scalar says; only that one runs.",
    type=_cond_type,
    reference=_cond,
    samples=_cond_samples,
    kinds=("float", "int"),
)
for _record in (scan, while_, cond):
    _record.attrs["no_gradient"] = _record.attrs["no_gradient_check"] = NO_GRADIENT

# ---- effects ----------------------------------------------------------------------------------------------------------

HOST_CALLS: dict[str, Callable[..., None]] = {"print": lambda text, *arrays: print(text, *arrays)}  # kind -> (text, *arrays)


def _effect_type(inputs: tuple[TensorType, ...], kind: str, text: str = "") -> Any:
    """In an op-graph an effect has no value; lowering puts a token before its inputs, and that is what it gives."""
    if kind not in HOST_CALLS:
        raise GraphError(
            f"effect {kind!r} is no registered host call; there are {', '.join(HOST_CALLS)}", fix="put it into HOST_CALLS first"
        )
    return inputs[0] if inputs and inputs[0].dtype is dtypes.token else None


def _effect(call: Call, token: Any, *arrays: np.ndarray) -> Any:
    HOST_CALLS[call.attrs["kind"]](call.attrs["text"], *arrays)
    return token


effect: OpDef = op(
    "effect",
    "Something outside happens, such as a line being printed; a token, taken and given, keeps such steps in order.",
    type=_effect_type,
    reference=_effect,
    samples=lambda s: [effect.build(s.x(s.I, s.J), kind="print", text="x"), effect.build(s.x(), s.special(s.K), kind="print", text="")],
    kinds=ALL,
)


def print_values(*xs: Any, text: str = "") -> Op:
    """An op without a value that prints tensors, after `text`, when it runs: ask for it beside the results, or inside a `sequential`."""
    return effect.build(*as_ops(xs), kind="print", text=text)
