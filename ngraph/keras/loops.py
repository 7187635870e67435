"""Branches and loops of `keras.ops.core`: as ops where a computation is read, by Python where values are known."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from keras.src import tree
from keras.src.backend.common import KerasVariable
from keras.src.backend.common.name_scope import name_scope as name_scope

from ngraph.frontends.positional import control
from ngraph.frontends.positional.values import ConstantArray, Tensor
from ngraph.keras.convert import convert_to_tensor, in_dtype
from ngraph.keras.tensors import BackendTensor, OpenLength, lifted
from ngraph.keras.traces import KerasTrace, reading
from ngraph.ops import elementwise as e
from ngraph.parts.deferred import deferred

numpy = deferred("ngraph.keras.numpy")  # which is made of this module


# ---- control flow -------------------------------------------------------------------------------------------------------


def traced(*values: Any) -> KerasTrace | None:
    """Returns the trace to which a tensor among values, or an open length, belongs."""
    for x in tree.flatten(values):
        if isinstance(x, KerasVariable):
            x = x.value
        if isinstance(x, OpenLength) or (isinstance(x, BackendTensor) and x.t is not None):
            return x.g
    return None


class Nested:
    """A nest of tensors as a list of values, and back."""

    def __init__(self, nest: Any):
        self.nest = nest
        self.leaves = tree.flatten(nest)

    def values(self, g: KerasTrace) -> list[Tensor]:
        return [lifted(g, convert_to_tensor(x)) for x in self.leaves]

    def of(self, g: KerasTrace, values: Sequence[Any]) -> Any:
        return tree.pack_sequence_as(self.nest, [BackendTensor(t=g.tensor(v), g=g) for v in values])


def cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """Returns what one of two functions gives; where the predicate is not known yet, both become one op."""
    if not isinstance(pred, (BackendTensor, KerasVariable)):
        return true_fn() if pred else false_fn()
    pred = convert_to_tensor(pred)
    if pred.t is None:
        return true_fn() if bool(pred) else false_fn()
    g = pred.g
    form: list[Nested] = []

    def way(function: Callable[[], Any]) -> Callable[[], list[Tensor]]:
        def values() -> list[Tensor]:
            found = Nested(function())
            kept = [k for k, x in enumerate(found.leaves) if x is not None]
            form.append(found)
            return [lifted(g, convert_to_tensor(found.leaves[k])) for k in kept]

        return values

    made = list(control.branch(g, lifted(g, in_dtype(pred, "bool")), way(true_fn), way(false_fn)))
    rest = iter(made)
    leaves = [None if x is None else BackendTensor(t=g.tensor(next(rest)), g=g) for x in form[0].leaves]
    return tree.pack_sequence_as(form[0].nest, leaves)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Returns what the branch of this number gives; a number outside is taken as the nearest."""
    index = numpy.clip(convert_to_tensor(index), 0, len(branches) - 1)
    if index.t is None:
        return branches[int(index)](*operands)

    def way(k: int) -> Any:
        if k == len(branches) - 1:
            return branches[k](*operands)
        return cond(numpy.equal(index, k), lambda: branches[k](*operands), lambda: way(k + 1))

    return way(0)


def while_loop(cond: Callable[..., Any], body: Callable[..., Any], loop_vars: Any, maximum_iterations: int | None = None) -> Any:
    """Returns the loop's variables after the last trip, for which the condition no longer holds; one op while a computation is read."""
    many = isinstance(loop_vars, (tuple, list))
    state = tuple(loop_vars) if many else (loop_vars,)
    g = traced(state) or reading()

    def step(values: Any) -> tuple[Any, ...]:
        found = body(*values)
        return tuple(found) if isinstance(found, (tuple, list)) else (found,)

    if g is None:
        trip = 0
        state = tree.map_structure(convert_to_tensor, state)
        while (maximum_iterations is None or trip < maximum_iterations) and bool(convert_to_tensor(cond(*state))):
            state, trip = tree.map_structure(convert_to_tensor, step(state)), trip + 1
        return state if many else state[0]
    form = Nested(state)
    dtypes = [v.dtype for v in form.values(g)]

    def holds(values: Any) -> Any:
        return lifted(g, in_dtype(convert_to_tensor(cond(*form.of(g, values))), "bool"))

    def turn(given: Any) -> list[Any]:
        after = Nested(step(form.of(g, given[2:]))).values(g)
        after = [Tensor(e.cast(t.op, d), t.dims) for t, d in zip(after, dtypes, strict=True)]
        return [holds(after), *after]

    start = form.values(g)
    most = None if maximum_iterations is None else g.tensor(ConstantArray(np.array(int(maximum_iterations), np.int64)))
    found = control.loop(g, most, holds(start), start, turn)
    made = form.of(g, found)
    return made if many else made[0]


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any) -> Any:
    """Returns the value after body_fun(k, value) for each k from lower to upper; it has a derivative where both are numbers of Python."""
    if isinstance(lower, int) and isinstance(upper, int):
        return scan(lambda v, k: (body_fun(k, v), None), init_val, numpy.arange(lower, upper, dtype="int32"))[0]
    first = convert_to_tensor(lower, "int32")
    found = while_loop(lambda k, v: k < upper, lambda k, v: (k + 1, body_fun(k, v)), (first, init_val))
    return found[1]


def scan(
    f: Callable[[Any, Any], Any], init: Any, xs: Any = None, length: Any = None, reverse: bool = False, unroll: Any = 1
) -> tuple[Any, Any]:
    """Returns the carry after the last trip and the stacked results of `f(carry, slice)`, as `jax.lax.scan` does."""
    if not callable(f):
        raise TypeError(f"`f` should be a callable. Received: f={f}")
    if not isinstance(unroll, bool) and (not isinstance(unroll, int) or unroll < 1):
        raise ValueError(f"`unroll` must be an positive integer or boolean. Received: unroll={unroll}")
    if xs is None and length is None:
        raise ValueError("Got no `xs` to scan over and `length` not provided.")
    xs = tree.map_structure(lambda x: None if x is None else convert_to_tensor(x), xs)
    count = length if length is not None else tree.flatten(xs)[0].shape[0]
    g = traced(init, xs, count) or reading()
    if g is not None and not isinstance(count, OpenLength) and int(count) == 0:
        g = None
    if g is None:
        carry, found = tree.map_structure(convert_to_tensor, init), []
        for k in reversed(range(int(count))) if reverse else range(int(count)):
            carry, y = f(carry, None if xs is None else tree.map_structure(lambda x, k=k: x[k], xs))
            found.append(y)
        found = found[::-1] if reverse else found
        if not found:
            return carry, tree.map_structure(lambda x: None if x is None else x[None][:0], f(init, xs)[1] if xs is None else None)
        return carry, tree.map_structure(lambda *ys: None if ys[0] is None else numpy.stack(ys), *found)
    state, slices = Nested(init), Nested(xs if xs is not None else ())
    dtypes = [v.dtype for v in state.values(g)]
    stacked: list[Nested] = []

    def turn(given: Any) -> list[Any]:
        many = len(state.leaves)
        own = slices.of(g, given[many : many + len(slices.leaves)]) if xs is not None else None
        carry, y = f(state.of(g, given[:many]), own)
        after = [Tensor(e.cast(t.op, d), t.dims) for t, d in zip(Nested(carry).values(g), dtypes, strict=True)]
        stacked[:] = [Nested(y)]
        return [*after, *[lifted(g, convert_to_tensor(v)) for v in stacked[0].leaves if v is not None]]

    values = slices.values(g) or [lifted(g, numpy.arange(count))]
    outs, backs = list[int](), list[bool]()  # an entry for each stacked result, known when the body has been read
    way = control.Slices([0] * len(values), [reverse] * len(values), outs, backs)

    def counted(given: Any) -> list[Any]:
        after = turn(given)
        outs[:] = [0] * (len(after) - len(state.leaves))
        backs[:] = [reverse] * len(outs)
        return after

    def attempt(names: Sequence[str]) -> Any:
        start = [*[g.current(n) for n in names], *state.values(g)]
        return control.scan_rolled(g, start, values, control.with_state(g, names, counted, 0, 0), way)

    made = control.as_op(g, attempt)
    if made is None:
        made = control.scan_unrolled(g, state.values(g), values, turn, way)
    carry = state.of(g, made[: len(state.leaves)])
    rest = iter(made[len(state.leaves) :])
    ys = [None if v is None else BackendTensor(t=g.tensor(next(rest)), g=g) for v in stacked[0].leaves]
    return carry, tree.pack_sequence_as(stacked[0].nest, ys)


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """Returns f of each slice, stacked."""
    return scan(lambda carry, x: (carry, f(x)), (), xs)[1]


def associative_scan(f: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Returns the running results of an associative function along a dim, in log2(length) rounds.

    Each round combines every place with the one 1, 2, 4, … before it.
    """
    leaves = [convert_to_tensor(x) for x in tree.flatten(elems)]
    axis = axis % leaves[0].ndim if leaves[0].ndim else 0
    count = int(leaves[0].shape[axis])
    if any(int(x.shape[axis]) != count for x in leaves):
        raise ValueError(f"Array inputs to associative_scan must have the same first dimension. (saw: {[x.shape for x in leaves]})")
    if reverse:
        leaves = [numpy.flip(x, axis) for x in leaves]

    def part(x: Any, start: int, end: int) -> Any:
        return x[(*[slice_all] * axis, builtins.slice(start, end))]

    slice_all, step = builtins.slice(None), 1
    while step < count:
        early = tree.pack_sequence_as(elems, [part(x, 0, count - step) for x in leaves])
        late = tree.pack_sequence_as(elems, [part(x, step, count) for x in leaves])
        met = [convert_to_tensor(x) for x in tree.flatten(f(early, late))]
        leaves = [numpy.concatenate([part(x, 0, step), m], axis) for x, m in zip(leaves, met, strict=True)]
        step *= 2
    return tree.pack_sequence_as(elems, [numpy.flip(x, axis) if reverse else x for x in leaves])
