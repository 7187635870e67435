"""Shapes of results, transformations of functions, updates at indices, and `convert` and `loops`: `keras.src.backend.core`."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from keras.src import tree
from keras.src.backend.common import KerasVariable, standardize_dtype
from keras.src.backend.common.keras_tensor import KerasTensor
from keras.src.backend.common.name_scope import name_scope as name_scope
from keras.src.backend.common.stateless_scope import StatelessScope
from keras.src.backend.common.symbolic_scope import SymbolicScope

from ngraph.autodiff.batching import with_axes
from ngraph.frontends.positional import indexing
from ngraph.frontends.positional.values import Tensor
from ngraph.keras.convert import *  # noqa: F403
from ngraph.keras.convert import cast, convert_to_tensor, in_dtype
from ngraph.keras.gradients import differentiated
from ngraph.keras.loops import *  # noqa: F403
from ngraph.keras.loops import Nested, traced
from ngraph.keras.tensors import BackendTensor, OpenLength, apply, lifted, size_of
from ngraph.keras.traces import KerasTrace, TraceScope, reading, taping
from ngraph.ops import elementwise as e
from ngraph.ops.checkpoint import checkpoint
from ngraph.parts.deferred import deferred

numpy = deferred("ngraph.keras.numpy")  # which is made of this module

SUPPORTS_SPARSE_TENSORS = False
SUPPORTS_RAGGED_TENSORS = False
SUPPORTS_COMPLEX_DTYPES = False
IS_THREAD_SAFE = True

SPEC_LENGTHS = (83, 89)  # what open lengths are for a shape: dims of a result that differ between the two are open


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
    return apply(_scattered, inputs, in_dtype(indices, "int64"), updates, combine=COMBINED[reduction])


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
    axis = numpy.axis_of(x, axis)
    return [x[(*[builtins.slice(None)] * axis, k)] for k in range(int(x.shape[axis]))]
