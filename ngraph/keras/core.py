"""Variables, conversions, control flow and shapes of results: `keras.src.backend.core`."""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from keras.src import tree
from keras.src.backend.common import KerasVariable, standardize_dtype
from keras.src.backend.common.dtypes import result_type
from keras.src.backend.common.keras_tensor import KerasTensor
from keras.src.backend.common.name_scope import name_scope as name_scope
from keras.src.backend.common.stateless_scope import StatelessScope
from keras.src.backend.common.symbolic_scope import SymbolicScope

from ngraph.autodiff.batching import with_axes
from ngraph.errors import ArgumentError, UnsupportedError
from ngraph.frontends.positional import control, indexing
from ngraph.frontends.positional.values import ConstantArray, Tensor
from ngraph.keras.gradients import differentiated
from ngraph.keras.tensors import BackendTensor, KerasTrace, OpenLength, TraceScope, apply, lifted, reading, size_of, taping
from ngraph.op_graph.dtypes import as_dtype
from ngraph.ops import elementwise as e
from ngraph.ops.checkpoint import checkpoint
from ngraph.parts.deferred import deferred

numpy = deferred("ngraph.keras.numpy")  # which is made of this module

SUPPORTS_SPARSE_TENSORS = False
SUPPORTS_RAGGED_TENSORS = False
SUPPORTS_COMPLEX_DTYPES = False
IS_THREAD_SAFE = True

SPEC_LENGTHS = (83, 89)  # what open lengths are for a shape: dims of a result that differ between the two are open


class TracedVariable(KerasVariable):
    """A variable: an array of its own, which compiled steps write in place, or its value in the computation that is being read."""

    @property
    def _value(self) -> Any:
        held = self.__dict__.get("_held")
        g = reading()
        if g is not None and held is not None:
            return BackendTensor(t=g.tensor(g.current(g.name_of(self))), g=g)
        if held is not None:
            self._lent = True
        return held

    @_value.setter
    def _value(self, value: Any) -> None:
        g = reading()
        if g is not None and value is not None and self.__dict__.get("_held") is not None:
            name = g.name_of(self)
            g.current(name)
            g.assign(name, lifted(g, value))
            return
        if value is not None and value.t is not None:
            raise UnsupportedError(
                f"the variable {self.path} gets a value of a computation that is being read",
                fix="create variables before: model.build(...)",
            )
        self._held, self._lent = value, True

    @property
    def array(self) -> Any:
        """The array of its value before the computation that is being read."""
        return self._held.array

    def own_array(self) -> Any:
        """Returns the array, which may be written: a copy where somebody else may have it."""
        array = self._held.array
        if self._lent or not array.flags.writeable or not array.flags.c_contiguous:
            array = np.array(array, order="C")
            self._held, self._lent = BackendTensor(array), False
        return array

    def _initialize(self, value: Any) -> None:
        self._value = value

    def _direct_assign(self, value: Any) -> None:
        self._value = value

    def _convert_to_tensor(self, value: Any, dtype: Any = None) -> Any:
        return convert_to_tensor(value, dtype=dtype)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.value.__array__(dtype, copy)


# ---- conversions --------------------------------------------------------------------------------------------------------


def casted(g: KerasTrace, t: Tensor, dtype: str) -> Tensor:
    """The value as another dtype."""
    return Tensor(e.cast(t.op, as_dtype(dtype)), t.dims)


def cast(x: Any, dtype: Any) -> Any:
    return convert_to_tensor(x, dtype)


def _as_dtype(x: BackendTensor, dtype: str) -> BackendTensor:
    if x.dtype.name == dtype:
        return x
    if x.t is None and not taping():
        with np.errstate(all="ignore"):
            return BackendTensor(x.array.astype(np.dtype(dtype)))
    return apply(casted, x, dtype=dtype)


def convert_to_tensor(x: Any, dtype: Any = None, sparse: Any = None, ragged: Any = None) -> Any:
    """Returns x, a number, an array, nested lists or a variable, as a tensor. Raises UnsupportedError for sparse or ragged ones."""
    if sparse or ragged:
        raise ValueError(f"`{'sparse' if sparse else 'ragged'}=True` is not supported with the ngraph backend")
    dtype = None if dtype is None else standardize_dtype(dtype)
    if isinstance(x, KerasVariable):
        x = x.value
    if isinstance(x, BackendTensor):
        return x if dtype is None else _as_dtype(x, dtype)
    if isinstance(x, OpenLength):
        return _as_dtype(x.tensor(), dtype or "int32")
    if isinstance(x, KerasTensor):
        raise ValueError(
            "A KerasTensor is symbolic: it's a placeholder for a shape and a dtype. It doesn't have any actual numerical value. "
            "You cannot convert it to a tensor."
        )
    if isinstance(x, (list, tuple)):
        leaves = tree.flatten(x)
        if any(isinstance(v, (BackendTensor, KerasVariable, OpenLength)) for v in leaves):
            return _of_nest(x, dtype)
        if dtype is None:
            dtype = result_type(*[getattr(v, "dtype", type(v)) for v in leaves]) if leaves else "float32"
    elif dtype is None and isinstance(x, (bool, int, float)):
        dtype = result_type(type(x))
    if hasattr(x, "detach") and hasattr(x, "numpy") and not hasattr(x, "device_buffer"):
        x = x.detach().cpu().numpy()
    array = np.asarray(x)
    if array.dtype.kind in "SUO" and dtype is None:
        raise ValueError(f"a tensor of numbers is wanted, not of {array.dtype}")
    if array.dtype.kind == "c":
        raise UnsupportedError("there are no complex tensors with the ngraph backend", fix="pass a real and an imaginary part")
    wanted = np.dtype(dtype) if dtype is not None else array.dtype
    if array.dtype == wanted:
        return BackendTensor(np.array(array, order="C"))
    with np.errstate(all="ignore"):
        return BackendTensor(np.ascontiguousarray(array.astype(wanted)).reshape(array.shape))


def _of_nest(x: Sequence[Any], dtype: str | None) -> BackendTensor:
    parts = [convert_to_tensor(v) for v in x]
    dtype = dtype or result_type(*[p.dtype for p in parts])
    return numpy.stack([_as_dtype(p, dtype) for p in parts])


def convert_to_numpy(x: Any) -> Any:
    if isinstance(x, KerasVariable):
        x = x.value
    return np.array(x)


def is_tensor(x: Any) -> bool:
    return isinstance(x, BackendTensor)


def shape(x: Any) -> Any:
    return tuple(convert_to_tensor(x).shape) if not hasattr(x, "shape") else tuple(x.shape)


def random_seed_dtype() -> str:
    return "uint32"


@contextlib.contextmanager
def device_scope(device_name: Any) -> Iterator[None]:
    """A context that names a device: there is one, the CPU. Raises ArgumentError for another."""
    if not str(device_name).lower().startswith("cpu"):
        raise ArgumentError(f"there is no device {device_name!r} for the ngraph backend", fix="name cpu:0")
    yield


# ---- shapes of results --------------------------------------------------------------------------------------------------


def _spec(function: Callable[..., Any], args: Any, kwargs: Any, size: int) -> Any:
    """Returns the results of a function of placeholders, whose open lengths have this size."""
    g = KerasTrace()

    def given(x: Any) -> Any:
        if isinstance(x, KerasTensor):
            _, t = g.holes_of([size if n is None else n for n in x.shape], x.dtype)
            return BackendTensor(t=t, g=g)
        return x

    with TraceScope(g), StatelessScope(), SymbolicScope():
        args, kwargs = tree.map_structure(given, (args, kwargs))
        found = function(*args, **kwargs)
        return tree.map_structure(lambda x: KerasTensor(x.shape, standardize_dtype(x.dtype)) if isinstance(x, BackendTensor) else x, found)


def compute_output_spec(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Returns the shapes and dtypes of a function's results as KerasTensors; nothing is computed."""
    open_ = any(isinstance(x, KerasTensor) and None in x.shape for x in tree.flatten((args, kwargs)))
    found = _spec(function, args, kwargs, SPEC_LENGTHS[0])
    if not open_:
        return found
    other = _spec(function, args, kwargs, SPEC_LENGTHS[1])

    def met(a: Any, b: Any) -> Any:
        if not isinstance(a, KerasTensor):
            return a
        return KerasTensor([m if m == n else None for m, n in zip(a.shape, b.shape, strict=True)], a.dtype, name=a.name)

    return tree.map_structure(met, found, other)


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

    made = list(control.branch(g, lifted(g, _as_dtype(pred, "bool")), way(true_fn), way(false_fn)))
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
        return lifted(g, _as_dtype(convert_to_tensor(cond(*form.of(g, values))), "bool"))

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
    """Returns the value after body_fun(k, value) for each k from lower to upper."""
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
    outs: list[int] = []  # an entry for each stacked result, known when the body has been read
    way = control.Slices([0] * len(values), [reverse] * len(values), outs, [reverse])

    def counted(given: Any) -> list[Any]:
        after = turn(given)
        outs[:] = [0] * (len(after) - len(state.leaves))
        return after

    def attempt(names: Sequence[str]) -> Any:
        start = [*[g.current(n) for n in names], *state.values(g)]
        return control.scan_rolled(g, start, values, control.with_state(g, names, counted, 0, 0), way)

    made = control.as_op(g, attempt)
    if made is None:
        made = control.scan_unrolled(g, state.values(g), values, turn, way._replace(out_back=[reverse] * len(outs)))
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


# ---- transformations ----------------------------------------------------------------------------------------------------


def vectorized_map(function: Callable[..., Any], elements: Any) -> Any:
    """Returns the function of each element along dim 0, all at once."""
    elements = tree.map_structure(convert_to_tensor, elements)
    leaves = tree.flatten(elements)
    if traced(elements) is None:
        many = len(leaves[0])
        found = [function(tree.map_structure(lambda x, k=k: x[k], elements)) for k in range(many)]
        return tree.map_structure(lambda *ys: numpy.stack([convert_to_tensor(y) for y in ys]), *found)
    g = traced(elements)
    assert g is not None
    along = g.fresh(size_of(leaves[0].shape[0]))
    holes, wide = [], []
    for x in leaves:
        t = g.full(lifted(g, x))
        t = g.renamed(t, [along, *t.dims[1:]])
        op, hole = g.holes_of((), t.dtype, t.dims[1:]) if t.rank > 1 else g.holes_of((), t.dtype)
        holes.append(BackendTensor(t=hole, g=g))
        wide.append((op, t.op))
    form = Nested(function(tree.pack_sequence_as(elements, holes)))
    results = form.values(g)
    made = with_axes([t.op for t in results], dict(wide))
    return form.of(g, [g.made(op, [along, *t.dims]) for op, t in zip(made, results, strict=True)])


def stop_gradient(variable: Any) -> Any:
    return apply(_stopped, convert_to_tensor(variable))


def _stopped(g: KerasTrace, t: Tensor) -> Tensor:
    return Tensor(e.stop_gradient(t.op), t.dims) if t.dtype.is_float else t


def remat(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function with only its inputs kept for derivatives; the rest is computed again."""

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        given = Nested((args, kwargs))
        places = [k for k, x in enumerate(given.leaves) if isinstance(x, (BackendTensor, KerasVariable))]
        g = traced([given.leaves[k] for k in places]) or reading()
        if g is None or not places:
            return f(*args, **kwargs)
        inputs = [g.full(lifted(g, convert_to_tensor(given.leaves[k]))) for k in places]
        form: list[Any] = []

        def body(*ops: Any) -> tuple[Any, ...]:
            leaves = list(given.leaves)
            for k, op, t in zip(places, ops, inputs, strict=True):
                leaves[k] = BackendTensor(t=g.ones(Tensor(op, t.dims)), g=g)
            own, named = tree.pack_sequence_as((args, kwargs), leaves)
            found = Nested(f(*own, **named))
            ts = found.values(g)
            form[:] = [found, ts]
            return tuple([t.op for t in ts])

        made = checkpoint(body, *[t.op for t in inputs])
        made = made if isinstance(made, tuple) else (made,)
        return form[0].of(g, [g.made(op, t.dims) for op, t in zip(made, form[1], strict=True)])

    return recomputed


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of tensors whose derivative is what `fun` gives beside its result: a function of the upstream derivative."""

    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        args = tuple([convert_to_tensor(a) if isinstance(a, (KerasVariable, BackendTensor)) else a for a in args])
        g = traced(args)
        if g is None and not taping():
            return fun(*args, **kwargs)[0]
        return differentiated(g, fun, args, kwargs)

    return with_gradient


# ---- indices ------------------------------------------------------------------------------------------------------------


def scatter(indices: Any, values: Any, shape: Any) -> Any:
    """Returns zeros of a shape with values added at indices."""
    values = convert_to_tensor(values)
    return scatter_update(numpy.zeros(shape, values.dtype), indices, values, "add")


COMBINED = {None: "set", "add": "add", "max": "max", "min": "min", "mul": "multiply"}


def scatter_update(inputs: Any, indices: Any, updates: Any, reduction: str | None = None) -> Any:
    """Returns the tensor with updates at indices [many, dims]. Raises ValueError for an unknown reduction."""
    if reduction not in COMBINED:
        raise ValueError(f"Unsupported reduction: {reduction}")
    inputs = convert_to_tensor(inputs)
    indices, updates = convert_to_tensor(indices), convert_to_tensor(updates, inputs.dtype)
    wanted = (*indices.shape[:-1], *inputs.shape[int(indices.shape[-1]) :])
    if tuple(updates.shape) != wanted:
        updates = numpy.broadcast_to(updates, wanted)
    return apply(_scattered, inputs, _as_dtype(indices, "int64"), updates, combine=COMBINED[reduction])


def _scattered(g: KerasTrace, t: Tensor, i: Tensor, u: Tensor, combine: str) -> Tensor:
    return indexing.scattered_slices(g, t, i, u, combine, "the tensor")


def slice(inputs: Any, start_indices: Any, shape: Any) -> Any:
    """Returns a block of a shape (-1: up to the end), whose first element stands at start_indices."""
    inputs = convert_to_tensor(inputs)
    starts = _starts(start_indices)
    sizes = [
        inputs.shape[k] - s if not isinstance(n, OpenLength) and int(n) == -1 else n
        for k, (s, n) in enumerate(zip(starts, shape, strict=True))
    ]
    for k, (s, n) in enumerate(zip(starts, sizes, strict=True)):
        if isinstance(s, BackendTensor):
            s = numpy.clip(s, 0, inputs.shape[k] - n)
            inputs = numpy.take(inputs, numpy.add(numpy.arange(n, dtype="int32"), cast(s, "int32")), axis=k)
        else:
            s = max(0, min(int(s), int(inputs.shape[k]) - int(n))) if not isinstance(n, OpenLength) else s
            inputs = inputs[(*[builtins.slice(None)] * k, builtins.slice(s, s + n))]
    return inputs


def _starts(start_indices: Any) -> list[Any]:
    """Returns the numbers of a list of indices: ints where they are known, else tensors."""
    if isinstance(start_indices, BackendTensor):
        start_indices = [start_indices[k] for k in range(int(start_indices.shape[0]))]
    return [s if isinstance(s, OpenLength) or (isinstance(s, BackendTensor) and s.t is not None) else int(s) for s in start_indices]


def slice_update(inputs: Any, start_indices: Any, updates: Any) -> Any:
    """Returns the tensor with a block of it, from start_indices on, replaced."""
    inputs = convert_to_tensor(inputs)
    updates = convert_to_tensor(updates, inputs.dtype)
    places = []
    for k, s in enumerate(_starts(start_indices)):
        n = updates.shape[k]
        s = numpy.clip(convert_to_tensor(s, "int32"), 0, inputs.shape[k] - n)
        at = numpy.add(numpy.arange(n, dtype="int32"), s)
        places.append(numpy.reshape(at, [-1 if j == k else 1 for j in range(inputs.ndim)]))
    if not places:
        return updates
    return scatter_update(inputs, numpy.stack([numpy.broadcast_to(p, updates.shape) for p in places], axis=-1), updates)


def unstack(x: Any, num: int | None = None, axis: int = 0) -> list[Any]:
    x = convert_to_tensor(x)
    axis = axis % x.ndim
    return [x[(*[builtins.slice(None)] * axis, k)] for k in range(int(x.shape[axis]))]
