"""Loops, choice and effects: core ops with bodies, and the functions that trace Python functions into bodies.

A body is a `Body` of ops in an op-graph and a closed program below it; this room uses only its `inputs` and `outputs` with types.
Surrounding values that a traced function uses (weights, for example) become further inputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ngraph.errors import ArgumentError, AxisError, DTypeError, GraphError
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axes, Axis, Clash, as_axis, merge, show_axes
from ngraph.op_graph.op import Body, Op, TensorType, copy_graph, numbers_in, ordered
from ngraph.op_graph.opdef import REGISTRY, Call, OpDef, find_axis, op, show_input
from ngraph.ops.aligned import axes_like, without
from ngraph.ops.elementwise import ALL, as_op, as_ops, cast, filled, less
from ngraph.ops.state import parts, placeholder, sequential_record
from ngraph.parts import nest
from ngraph.parts.scopes import ScopedValue

NO_GRADIENT = "how often it runs is known only when it has run; use ng.scan, whose trips are the length of an axis"


def check_values(name: str, what: str, values: Sequence[Any], wanted: Sequence[TensorType]) -> None:
    """Raises GraphError or AxisError unless the values of a body have these types, in any order of axes."""
    if len(values) != len(wanted):
        raise GraphError(f"{name}: the {what} has {len(values)} values where the op has {len(wanted)}")
    for value, t in zip(values, wanted, strict=True):
        if set(value.type.axes) != set(t.axes) or value.type.dtype is not t.dtype:
            raise AxisError(f"{name}: {value.type} in the {what} stands where the op has {t}")


def _one_or_all(types: Sequence[TensorType]) -> Any:
    return types[0] if len(types) == 1 else tuple(types)


def _ordered(array: Any, have: Sequence[Any], want: Sequence[Any]) -> Any:
    return array if array is None or tuple(have) == tuple(want) else np.transpose(array, [list(have).index(a) for a in want])


def run_body(call: Call, body: Any, arrays: Sequence[Any], types: Sequence[TensorType], results: Sequence[TensorType]) -> list[Any]:
    """Runs a body on arrays whose dims are in the order of `types`; returns its results in the order of `results`."""
    taken = [_ordered(a, t.axes, v.type.axes) for a, t, v in zip(arrays, types, body.inputs, strict=True)]
    assert call.run_program is not None
    given = call.run_program(body, taken)
    return [_ordered(a, v.type.axes, t.axes) for a, v, t in zip(given, body.outputs, results, strict=True)]


# ---- scan -------------------------------------------------------------------------------------------------------------


def _slices(inputs: Sequence[TensorType], axis: Any, carries: int, xs: int) -> list[TensorType]:
    return [TensorType(without(t.axes, (axis,)), t.dtype) if carries <= k < carries + xs else t for k, t in enumerate(inputs)]


def _scan_type(inputs: tuple[TensorType, ...], body: Any, axis: Any, reverse: bool, carries: int, xs: int) -> Any:
    for t in inputs[carries : carries + xs]:
        if axis not in t.axes:
            raise AxisError(f"scan over {axis}: an input to be sliced has the axes {list(t.axes)}")
    check_values("scan", "body's inputs", body.inputs, _slices(inputs, axis, carries, xs))
    check_values("scan", "body's first outputs", body.outputs[:carries], inputs[:carries])
    ys = [y.type for y in body.outputs[carries:]]
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
        given = run_body(call, body, [*carry, *now, *consts], types, out_types)
        carry = given[:carries]
        for stack, y in zip(stacks, given[carries:], strict=True):
            stack[trip] = y
    stacked = []
    for stack, y, t in zip(stacks, ys_types, call.results[carries:], strict=True):
        whole = np.empty((len(trips), *call.shape(y.axes)), t.dtype.np)
        for trip, value in stack.items():
            whole[trip] = value
        stacked.append(_ordered(whole, (axis, *y.axes), t.axes))
    first = [_ordered(c, i.axes, r.axes) for c, i, r in zip(carry, call.inputs, call.results, strict=False)]
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
        return scan_record.build(*carry, *xs, *consts, body=body, axis=axis, reverse=reverse, carries=len(carry), xs=len(xs))

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
        case(lambda c, x: (PrintOp(PrintOp(c, "c =") + x), c * x), j, [s.x(i)], [s.x(j, i)]),
    ]


scan_record: OpDef = op(
    "scan",
    "A body once per index of `axis`, which takes carries, slices of xs, consts and gives carries, ys. Results: carries, then ys "
    "stacked along `axis`. `carries`, `xs` count them.",
    form="(carry…, xs…, consts…; body, axis, reverse, carries, xs)",
    type=_scan_type,
    reference=_scan,
    samples=_scan_samples,
    kinds=("float", "int"),
)

# ---- while ------------------------------------------------------------------------------------------------------------


def _while_type(inputs: tuple[TensorType, ...], cond: Any, body: Any, carries: int) -> Any:
    for what, program in (("condition's inputs", cond), ("body's inputs", body)):
        check_values("while", what, program.inputs, inputs)
    check_values("while", "condition's outputs", cond.outputs, [TensorType((), dtypes.bool_)])
    check_values("while", "body's outputs", body.outputs, inputs[:carries])
    return _one_or_all(inputs[:carries])


def _while(call: Call, *arrays: Any) -> Any:
    carries = call.attrs["carries"]
    types = call.inputs
    carry, consts = list(arrays[:carries]), arrays[carries:]
    while run_body(call, call.attrs["cond"], [*carry, *consts], types, [TensorType((), dtypes.bool_)])[0]:
        carry = run_body(call, call.attrs["body"], [*carry, *consts], types, types[:carries])
    return tuple([_ordered(c, i.axes, r.axes) for c, i, r in zip(carry, types, call.results, strict=False)])


def _while_samples(s: Any) -> list[Op]:
    def case(turns: int, function: Callable[[Op, Op], Op], x: Op, w: Op) -> Op:
        count, limit = s.ints(low=0, high=0), s.ints(low=turns, high=turns)
        inputs = (count, x, w, limit)
        holds = s.body(lambda n, x, w, limit: less(n, limit), *inputs)
        body = s.body(lambda n, x, w, limit: (n + 1, function(x, w)), *inputs)
        return while_record.build(*inputs, cond=holds, body=body, carries=2)

    i, j = s.I, s.J
    return [
        case(3, lambda x, w: x + w, s.x(i, j), s.x(j)),
        case(0, lambda x, w: x + w, s.x(i, j), s.x(j)),
        case(1, lambda x, w: x * w, s.x(), s.x()),
        case(4, lambda x, w: x * w, s.special(s.N, i), s.special(i)),
        case(2, lambda x, w: w - x, s.x(i, i - 1), s.x(i - 1, i)),
        case(2, lambda x, w: x + w, s.x(s.Z, i), s.x(i)),
        case(3, lambda x, w: PrintOp(x + w, "x ="), s.x(i), s.x(i)),
    ]


while_record: OpDef = op(
    "while",
    "A body while the one bool scalar of `cond` holds; both take carries, consts, and the body gives carries.",
    form="(carry…, consts…; cond, body, carries)",
    type=_while_type,
    reference=_while,
    samples=_while_samples,
    kinds=("float", "int"),
)

# ---- cond -------------------------------------------------------------------------------------------------------------


def _cond_type(inputs: tuple[TensorType, ...], **bodies: Any) -> Any:
    p, *args = inputs
    if p.dtype.kind != "bool" or p.axes:
        raise DTypeError(f"cond of {p}", fix="its first input is one bool scalar: reduce it, or use ng.where for a choice per element")
    for branch in ("then", "else"):
        check_values("cond", f"inputs of '{branch}'", bodies[branch].inputs, args)
    types = [v.type for v in bodies["then"].outputs]
    check_values("cond", "outputs of 'else'", bodies["else"].outputs, types)
    return _one_or_all(types)


def _cond(call: Call, p: np.ndarray, *arrays: Any) -> Any:
    return tuple(run_body(call, call.attrs["then" if p else "else"], arrays, call.inputs[1:], call.results))


def _cond_samples(s: Any) -> list[Op]:
    def case(p: bool, then: Callable[..., Any], other: Callable[..., Any], *args: Op) -> Op:
        bodies = {"then": s.body(then, *args), "else": s.body(other, *args)}
        return cond_record.build(s.given(p, dtype=dtypes.bool_), *args, **bodies)

    i, j = s.I, s.J
    return [
        *(case(p, lambda x, y: (x + y, x), lambda x, y: (y - x, x * x), s.x(i, j), s.x(j, i)) for p in (True, False)),
        *(case(p, lambda x: x, lambda x: x + x, s.x()) for p in (True, False)),
        *(case(p, lambda x, y: x * y, lambda x, y: y + x, s.special(i, s.N), s.special(s.N)) for p in (True, False)),
        case(True, lambda x: x, lambda x: x * x, s.x(s.Z, i)),
        case(False, lambda x, y: x + y, lambda x, y: x * y, s.x(i, i - 1), s.x(i - 1, i)),
        *(case(p, lambda x: PrintOp(x + x, "then"), lambda x: x * x, s.x(i)) for p in (True, False)),
    ]


cond_record: OpDef = op(
    "cond",
    "One of two bodies with equal result types, as p, a bool scalar, says; only that one runs.",
    form="(p, args…; then, else)",
    type=_cond_type,
    reference=_cond,
    samples=_cond_samples,
    kinds=("float", "int"),
)
while_record.attrs["no_gradient"] = while_record.attrs["no_gradient_check"] = NO_GRADIENT

# ---- effects ----------------------------------------------------------------------------------------------------------


def _nonempty(text: str, count: np.ndarray) -> None:
    """Raises ArgumentError where there are no elements."""
    if not count:
        raise ArgumentError(f"{text}: among no elements there is none to choose")


HOST_CALLS: dict[str, Callable[..., None]] = {  # kind -> (text, *arrays)
    "print": lambda text, *arrays: print(text, *arrays),
    "nonempty": _nonempty,
    "nothing": lambda text, *arrays: None,  # the other branch of a choice in which one has an effect
}


def _effect_type(inputs: tuple[TensorType, ...], kind: str, text: str = "") -> Any:
    """Returns no type in an op-graph, where an effect has no value; in a program the type of its first input, a token."""
    if kind not in HOST_CALLS:
        raise GraphError(
            f"effect {kind!r} is not a registered host call; there are {', '.join(HOST_CALLS)}", fix="put it into HOST_CALLS first"
        )
    return inputs[0] if inputs and inputs[0].dtype is dtypes.token else None


def _effect(call: Call, token: Any, *arrays: np.ndarray) -> Any:
    HOST_CALLS[call.attrs["kind"]](call.attrs["text"], *arrays)
    return token


effect: OpDef = op(
    "effect",
    "Something outside happens: `kind` is `print`, or a registered host call; the token, taken and given, keeps such steps in order.",
    form="(token, x…; kind, text) → token",
    type=_effect_type,
    reference=_effect,
    samples=lambda s: [effect.build(s.x(s.I, s.J), kind="print", text="x"), effect.build(s.x(), s.special(s.K), kind="print", text="")],
    kinds=ALL,
)


def print_values(*xs: Any, text: str = "") -> Op:
    """Returns an op without a value that prints tensors, after `text`, when it runs: put it among the results, or into a `sequential`.

    >>> ng.print_values(ng.placeholder("H=3"), text="x:")
    <effect: no value>
    """
    return effect.build(*as_ops(xs), kind="print", text=text)


print_record: OpDef = op(
    "print",
    "x, which is printed whenever it is computed.",
    type=lambda inputs, text: inputs[0],
    reference=lambda call, x: x,
    lower=lambda op, x: sequential_record.build(effect.build(x, kind="print", text=op.attrs["text"]), x),
    grad=lambda op, dy, x: dy,
    samples=lambda s: [
        PrintOp(s.x(s.I, s.J), "x ="),
        PrintOp(s.x(s.J)),
        PrintOp(PrintOp(s.special(s.K), "a"), "b"),
        PrintOp(s.x(s.Z)),
    ],
    kinds=ALL,
)


def PrintOp(x: Any, prefix: str | None = None) -> Op:
    """Returns `x`, printed after `prefix` whenever a computation needs its value; gradients pass through, and print nothing.

    >>> ng.PrintOp(ng.placeholder("N=2 H=3 W=4"), prefix="x: ").axes
    Axes(N=2, H=3, W=4)
    """
    return print_record.build(as_op(x), text=prefix or "")


# ---- tracing ----------------------------------------------------------------------------------------------------------

_trips: ScopedValue[tuple[Op, ...]] = ScopedValue("ngraph_trips", ())


def open_trips() -> tuple[Op, ...]:
    """Returns the trip numbers of the loops being traced, outermost first: random ops draw new numbers in each trip."""
    return _trips.get()


def _trip(index: Op | None) -> AbstractContextManager[object]:
    return _trips.of((*_trips.get(), index) if index is not None else _trips.get())


def _numbers(x: Any) -> bool:
    """Whether a list inside of a nest is an array of numbers."""
    return isinstance(x, (list, tuple)) and bool(x) and not any(isinstance(leaf, Op) for leaf in nest.leaves(x))


def _parts(x: Any) -> Any:
    """Returns the outermost parts of a nest as a tuple where they are a list."""
    return tuple(x) if isinstance(x, list) else x


def _array_inside(form: Any) -> nest.Leaf:
    return lambda x: x is not form and _numbers(x)


def _leaves(form: Any) -> list[Any]:
    return nest.leaves(form, _array_inside(form))


def _flat(x: Any) -> tuple[Op, ...]:
    return _tensors(as_ops(_leaves(_parts(x))))


def _tensors(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Returns what a function of a loop or choice gave. Raises GraphError for an op without a value, such as an assign."""
    for o in ops:
        if type(o.type) is not TensorType:
            raise GraphError(
                f"the function of a loop or choice gives {o.label}, which has no value",
                fix="carry what changes, and assign what the loop or choice gives",
            )
    return ops


def _start(carry: Any) -> tuple[Op, ...]:
    """Returns the ops of a carry; a Python int counts in int32, and in int64 where int32 cannot hold it."""
    form = _parts(carry)
    whole = [filled(x, (), dtypes.int32 if -(2**31) <= x < 2**31 else dtypes.int64) if type(x) is int else x for x in _leaves(form)]
    return as_ops(whole)


def _widened(start: Sequence[Op], given: Sequence[Op], carry: Any) -> Any:
    """Returns a carry whose Python numbers have the dtypes that the function gave them; None where they had them already.

    A Python number has no dtype of its own: `0` that is carried as `total + x` is a float.
    """
    wide = list(start)
    for at, (x, new) in enumerate(zip(_leaves(_parts(carry)), given, strict=False)):
        if type(x) in (int, float):
            wide[at] = cast(start[at], dtypes.promote(new.dtype, start[at].dtype))
    return in_form(carry, wide) if [x.dtype for x in wide] != [x.dtype for x in start] else None


def _flat_like(name: str, form: Any, x: Any) -> tuple[Op, ...]:
    """Returns the ops of a nest in the order of another's keys. Raises GraphError where it has other parts."""
    form, x = _parts(form), _parts(x)
    try:
        return _tensors(as_ops(nest.leaves_like(form, x, _array_inside(x), _array_inside(form))))
    except ValueError as error:
        raise GraphError(f"{name} gives {error}", fix="give the same parts") from None


def in_form(form: Any, ops: Sequence[Op]) -> Any:
    """Returns the ops in the structure that the user's function returned: None, one op, or a nest; a tuple for a list."""
    form = _parts(form)
    return nest.rebuilt(form, ops, _array_inside(form))


def spread(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function with the arguments, or with the elements of those that are tuples where it takes as many: `lambda i, v: ...`."""
    elements = [e for a in args for e in (a if type(a) is tuple else (a,))]
    return function(*(elements if len(elements) != len(args) and _takes(function, len(elements)) else args))


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can only be called with exactly this number of positional arguments, or with more by default values."""
    try:
        every = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [p for p in every if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    return len(needed) == count and not any(p.kind is p.VAR_POSITIONAL for p in every)


def _holes(types: Iterable[TensorType]) -> list[Op]:
    return [placeholder(t.axes, dtype=t.dtype) for t in types]


def _inside(holes: Sequence[Op], results: Sequence[Op]) -> set[Op]:
    """Returns the holes, and the ops below `results` that depend on them, or are checks made after them."""
    found = set(holes)
    for o in ordered(results):
        if any(i in found for i in o.inputs) or (o.opdef.name == "check_bounds" and o.serial > holes[0].serial):
            found.add(o)
    return found


def close(bodies: Sequence[tuple[Sequence[Op], Sequence[Op]]], since: int | None = None) -> tuple[list[Body], tuple[Op, ...]]:
    """Returns bodies from (holes, results), and the surrounding ops that they use: further inputs of each body.

    An op belongs to the body if it depends on a hole, so that others are computed once, outside; with `since`, if it was made after
    that op. Constants stay where they are used, and so do checks that a loop's function makes: a loop without trips must not fail.
    """
    used: dict[Op, None] = {}
    for holes, results in bodies:
        inside = _inside(holes, results) if since is None else set(holes)
        todo, seen = list(results)[::-1], set(holes)
        while todo:
            o = todo.pop()
            if o in seen or o.is_constant:
                continue
            seen.add(o)
            leaf = o.opdef.name in ("variable", "placeholder")  # a layer may create its weights in the function
            if o in inside or (since is not None and o.serial > since and not leaf):
                todo += (*o.inputs, *(n for a in o.attrs.values() for n in numbers_in(a)))[::-1]
            else:
                used[o] = None
    made = []
    for holes, results in bodies:
        captured = _holes([o.type for o in used])
        new = copy_graph(results, dict(zip(used, captured, strict=True)))
        made.append(Body((*holes, *captured), [new[r] for r in results]))
    return made, tuple(used)


def _of_two_lengths(x: Op, y: Op) -> bool:
    """Whether an axis of both has two known lengths. An open one has the other's from now on."""
    try:
        merge(x.axes, y.axes)
    except Clash as clash:
        return any(a.length != b.length for a, b in clash.pairs)
    return False


def _as_carry(name: str, given: Sequence[Op], carry: Sequence[Op], own: int = 0) -> list[Op]:
    """Returns a body's carries for the next trip, with the axes and dtypes of its inputs; `own` of them are not the user's."""
    if len(given) != len(carry):
        raise GraphError(
            f"{name}: the function gives {len(given) - own} values to carry and takes {len(carry) - own}",
            fix="give as many values as the carry has at the start",
        )
    fitted = []
    for k, (new, old) in enumerate(zip(given, carry, strict=True)):
        which = f" as value {k - own} of the carry" if len(carry) - own > 1 else " to carry"
        if not set(new.axes) <= set(old.axes) or dtypes.promote(new.dtype, old.dtype) is not old.dtype:
            raise AxisError(
                f"{name}: the function takes {old.type} and gives {new.type}{which}",
                details=(show_input(new),),
                fix="start with a value that has all axes, and the dtype, of what is carried",
            )
        if _of_two_lengths(old, new):
            raise AxisError(
                f"{name}: the function takes {show_axes(old.axes)} and gives {show_axes(new.axes)}{which}",
                details=(show_input(new),),
                fix="carry tensors that keep their lengths: ng.put writes parts of one, and a slice keeps as many as there were",
            )
        fitted.append(new if set(new.axes) == set(old.axes) else REGISTRY["broadcast"].build(new, axes=old.axes))
    return [cast(new, old.dtype) for new, old in zip(fitted, carry, strict=True)]


def scan(function: Callable[..., Any], carry: Any, xs: Any, axis: Axis | str, reverse: bool = False) -> tuple[Any, Any]:
    """Loops over the indices of `axis`; returns (the carry after the last trip, the values of all trips, stacked along `axis`).

    function: (carry, slices of xs) -> (next carry, value of this trip). Each of carry, xs and the value is an op, a nest of ops, or
    None; a function of more arguments takes the elements of tuples: `lambda a, b, x: ((a + x, b), b)`. carry keeps its axes and
    dtypes; a Python number starts as int32 or float32, and in the dtype that the function gives it where that is wider. The function
    may use surrounding ops; its random ops draw new numbers in each trip; its prints happen in each trip of the forward pass. It must
    not assign.
    reverse: from the last index to the first. Differentiable in reverse and forward mode. Raises AxisError, GraphError.

    >>> import ngraph as ng
    >>> x = ng.placeholder("T=4 H=3")
    >>> last, sums = ng.scan(lambda total, now: (total + now, total + now), ng.constant(0, "H=3"), x, "T")
    >>> last.axes, sums.axes
    (Axes(H=3), Axes(T=4, H=3))
    """
    start, along = _start(carry), _flat(xs)
    axis = find_axis(along, axis, "scan") if isinstance(axis, str) and along else as_axis(axis)
    for x in along:
        if axis not in x.axes:
            raise AxisError(
                f"scan over {axis!r}: {x.label} has no such axis: {list(x.axes)}",
                fix="use what is the same in each trip inside the function",
            )
        own = x.axes[x.axes.index(axis)]
        if own.length != axis.length and None not in (own.length, axis.length):
            raise AxisError(
                f"scan over {axis!r}: {x.label} has {own!r}",
                details=tuple([show_input(x) for x in along]),
                fix="slice the longer one, or give both one axis",
            )
    trip = REGISTRY["iota"].build(axis=axis, dtype=dtypes.int32)
    holes = _holes([*(c.type for c in start), *_slices([x.type for x in (*along, trip)], axis, 0, len(along) + 1)])
    with _trip(holes[-1]):
        given = spread(function, in_form(carry, holes[: len(start)]), in_form(xs, holes[len(start) : -1]))
    if not isinstance(given, tuple) or len(given) != 2:
        raise GraphError(
            f"scan: the function gives {type(given).__name__}, not a pair", fix="return (next carry, value of this trip); None for none"
        )
    following = _flat_like("scan: to carry the function", carry, given[0])
    wide = _widened(start, following, carry)
    if wide is not None:
        return scan(function, wide, xs, axis, reverse)
    after, ys = _as_carry("scan", following, start), _flat(given[1])
    inside = _inside(holes, [*after, *ys])
    products = [o for o in ordered([*after, *ys]) if o.opdef.name in ("contract", "convolve") and o in inside and o not in ys]
    saved = [o for o in (*holes[: len(start)], *products) if axis not in o.axes]  # stacked along `axis` for the gradient
    (body,), captured = close([(holes, [*after, *ys, *saved])])
    made = scan_record.build(*start, *along, trip, *captured, body=body, axis=axis, reverse=reverse, carries=len(start), xs=len(along) + 1)
    results = parts(made) if type(made.type) is tuple else (made,)
    return in_form(carry, results[: len(start)]), in_form(given[1], results[len(start) : len(start) + len(ys)])


def while_loop(condition: Callable[..., Any], function: Callable[..., Any], carry: Any) -> Any:
    """Applies `function` to the carry while `condition` of it holds; returns the last carry.

    condition: carry -> one bool scalar. function: carry -> next carry, of the same axes and dtypes. carry: an op or a nest of ops, of
    which functions of several arguments take the elements; a Python number starts as int32 or float32, and in the dtype that the
    function gives it where that is wider. It has no derivative, since the number of trips is not known before the call. Raises
    DTypeError, GraphError, AxisError.

    >>> import ngraph as ng
    >>> v = ng.placeholder("H=3")
    >>> i, doubled = ng.while_loop(lambda i, v: i < 10, lambda i, v: (i + 1, v * 2), (0, v))
    >>> doubled.axes
    Axes(H=3)
    """
    start = (filled(0, (), dtypes.int32), *_start(carry))
    holes, asked = _holes([c.type for c in start]), _holes([c.type for c in start])
    holds = as_op(spread(condition, in_form(carry, asked[1:])))
    if holds.dtype.kind != "bool" or holds.axes:
        raise DTypeError(f"while_loop: the condition gives {holds.type}, not one bool", fix="compare: lambda c: c < 10")
    with _trip(holes[0]):
        following = _flat_like("while_loop: the function", carry, spread(function, in_form(carry, holes[1:])))
    wide = _widened(start[1:], following, carry)
    if wide is not None:
        return while_loop(condition, function, wide)
    given = [holes[0] + 1, *following]
    bodies, captured = close([(asked, [holds]), (holes, _as_carry("while_loop", given, start, 1))])
    made = while_record.build(*start, *captured, cond=bodies[0], body=bodies[1], carries=len(start))
    return in_form(carry, parts(made)[1:])


def cond(predicate: Any, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """Returns the results of `then(*operands)` where the bool scalar holds, else those of `otherwise(*operands)`.

    Both give an op or a nest of ops, of equal axes and dtypes. Only the chosen branch is computed, as far as the function makes its ops;
    both may use surrounding ops. Differentiable. Raises AxisError, GraphError.

    >>> import ngraph as ng
    >>> x, rate = ng.placeholder("H=3"), ng.placeholder()
    >>> ng.cond(rate > 1, lambda x: x * rate, lambda x: x, x).axes
    Axes(H=3)
    """
    predicate = as_op(predicate)
    since = filled(0, (), dtypes.int32).serial
    given = [then(*operands), otherwise(*operands)]
    results = [_flat(given[0]), _flat_like("cond: one branch", given[0], given[1])]
    if len(results[0]) != len(results[1]):
        raise GraphError(
            f"cond: one branch gives {len(results[0])} values, the other {len(results[1])}", fix="give as many in both: lambda: (x, y)"
        )
    for mine, other in zip(*results, strict=True):
        if set(mine.axes) != set(other.axes) or mine.dtype is not other.dtype:
            raise AxisError(
                f"cond: one branch gives {mine.type}, the other {other.type}",
                details=(show_input(mine), show_input(other)),
                fix="give both the same axes and dtype, with ng.broadcast and ng.cast",
            )
        if _of_two_lengths(mine, other):
            raise AxisError(
                f"cond: one branch gives {show_axes(mine.axes)}, the other {show_axes(other.axes)}",
                details=(show_input(mine), show_input(other)),
                fix="pad or slice one of them to the other's lengths",
            )
    bodies, captured = close([((), outputs) for outputs in results], since)
    made = cond_record.build(predicate, *captured, **{"then": bodies[0], "else": bodies[1]})
    return in_form(given[0], parts(made) if type(made.type) is tuple else (made,))
