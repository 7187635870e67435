"""Translators of ops that move elements: shapes, slices, joins, gathers and scatters, and those that make tensors of sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ngraph.frontends.onnx.proto import numpy_type
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional import indexing, shapes, text
from ngraph.frontends.positional.values import ConstantArray, StringInput, Tensor, Value, settled
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import as_dtype
from ngraph.ops import elementwise as e
from ngraph.ops.rearrange import product

# ---- constants and shapes -----------------------------------------------------------------------------------------------


@translates("Constant")
def constant(n: Any) -> Value:
    for name, dtype in (("value_int", np.int64), ("value_ints", np.int64), ("value_float", np.float32), ("value_floats", np.float32)):
        if n.has(name):
            return ConstantArray(np.array(n.attr(name), dtype))
    for name in ("value_string", "value_strings"):
        if n.has(name):
            return ConstantArray(np.array(n.attr(name), object))
    if n.has("sparse_value"):
        return n.frame.library.constant(n.attr("sparse_value"))
    a = n.given.get("value")
    if a is not None and not a.ref_attr_name:
        return n.frame.library.constant(a.t)
    return None if n.attr("value") is None else ConstantArray(n.attr("value"))  # None: of a function whose caller leaves it out


@translates("Identity")
def identity(n: Any, x: Value) -> Value:
    return list(x) if isinstance(x, list) else x


@translates("Shape")
def shape(n: Any, x: Value) -> Value:
    """Returns the lengths of dims: of strings of a call in a step in Python, since their lengths are no symbols."""
    start, end = n.attr("start", 0), n.attr("end")
    if isinstance(x, StringInput):
        return text.in_python(n, lambda a: np.array(a.shape[start:end]), [x], [np.int64])[0]
    return shapes.shape_of(x, start, end)


@translates("Size")
def size(n: Any, x: Value) -> Value:
    if isinstance(x, StringInput):
        return text.in_python(n, lambda a: np.array(a.size), [x], [np.int64])[0]
    return settled(np.array(product(x.shape), object))


@translates("Reshape")
def reshape(n: Any, x: Value, wanted: Value = None) -> Tensor:
    sizes = n.attr("shape") if wanted is None else n.g.sizes(wanted)
    return shapes.reshaped(n.g, n.g.tensor(x), sizes, not n.attr("allowzero", 0))


@translates("Flatten")
def flatten(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    at = n.attr("axis", 1)
    at = at + t.rank if at < 0 else at
    return n.g.reshape(t, [product(t.shape[:at]), product(t.shape[at:])])


@translates("Transpose")
def transpose(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    return shapes.transposed(t, n.attr("perm") or list(range(t.rank))[::-1])


@translates("Squeeze")
def squeeze(n: Any, x: Value, axes: Value = None) -> Tensor:
    return shapes.squeezed(n.g, n.g.tensor(x), n.attr("axes") if axes is None else n.g.ints(axes))


@translates("Unsqueeze")
def unsqueeze(n: Any, x: Value, axes: Value = None) -> Tensor:
    return shapes.unsqueezed(n.g.tensor(x), n.attr("axes") if axes is None else n.g.ints(axes))


@translates("Expand")
def expand(n: Any, x: Value, wanted: Value) -> Tensor:
    return n.g.expanded(n.g.tensor(x), n.g.sizes(wanted))


@translates("Tile")
def tile(n: Any, x: Value, repeats: Value, axis: Value = None) -> Tensor:
    t, times = n.g.tensor(x), n.g.sizes(repeats)
    if axis is not None and n.version < 6:
        k = n.g.ints(axis)[0]
        times = [times[0] if j == k else 1 for j in range(t.rank)]
    return shapes.tiled(n.g, t, times)


@translates("ConstantOfShape")
def constant_of_shape(n: Any, wanted: Value) -> Tensor:
    value = n.attr("value")
    return shapes.filled(n.g, np.float32(0) if value is None else value.ravel()[0], n.g.sizes(wanted))


@translates("Range")
def range_(n: Any, start: Value, limit: Value, delta: Value) -> Value:
    return shapes.ranged(n.g, start, limit, delta)


@translates("EyeLike")
def eye_like(n: Any, x: Value) -> Tensor:
    return shapes.eye(n.g, x.shape, n.attr("k", 0), as_dtype(numpy_type(n.attr("dtype")) if n.has("dtype") else x.np))


@translates("Trilu")
def trilu(n: Any, x: Value, k: Value = None) -> Tensor:
    return shapes.triangle(n.g, x, 0 if k is None else n.g.sizes(k)[0], bool(n.attr("upper", 1)))


@translates("OneHot")
def one_hot(n: Any, indices: Value, depth: Value, values: Value) -> Tensor:
    length = n.g.sizes(depth)[0] if not np.dtype(depth.np).kind == "f" else int(n.g.known(depth).ravel()[0])
    t, pair = n.g.tensor(indices), n.g.tensor(values)
    x = e.cast(t.op, dtypes.int64)
    t = Tensor(e.where(e.less(x, 0), x + shapes.size_op(length), x), t.dims)  # negative ones count from the end
    off, on = (shapes.at(n.g, pair, 0, k).op for k in (0, 1))
    return shapes.one_hot(n.g, t, length, n.attr("axis", -1), on, off)


# ---- slices, joins, paddings --------------------------------------------------------------------------------------------


@translates("Slice")
def slice_(n: Any, x: Value, starts: Value = None, ends: Value = None, axes: Value = None, steps: Value = None) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    if starts is None:
        firsts, lasts, dims = n.attr("starts"), n.attr("ends"), n.attr("axes")
    else:
        firsts, lasts, dims = g.sizes(starts), g.sizes(ends), None if axes is None else g.ints(axes)
    by = [1] * len(firsts) if steps is None else g.sizes(steps)
    return shapes.slices(g, t, firsts, lasts, list(range(len(firsts))) if dims is None else dims, by, 0)


@translates("Split")
def split(n: Any, x: Value, sizes: Value = None) -> tuple[Tensor, ...]:
    t = n.g.tensor(x)
    k = n.attr("axis", 0) % t.rank
    each = n.attr("split") if sizes is None else n.g.sizes(sizes)
    if each is None:
        size, parts = t.shape[k], len(n.proto.output)
        step = (size + (parts - 1)) // parts
        each = [step] * (parts - 1) + [size - step * (parts - 1)]
    return tuple(shapes.split(n.g, t, k, each))


@translates("Concat")
def concat(n: Any, *values: Value) -> Value:
    k = n.attr("axis", 1)
    return shapes.joined(n.g, [n.g.tensor(v) for v in values], k + values[0].rank if k < 0 else k)


@translates("Pad")
def pad(n: Any, x: Value, pads: Value = None, value: Value = None, axes: Value = None) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    if pads is None:
        sizes, pad_value = n.attr("pads", n.attr("paddings")), n.attr("value", 0.0)
    else:
        sizes, pad_value = g.sizes(pads), 0 if value is None else g.known(value).ravel()[0].item()
    dims = list(range(t.rank)) if axes is None else [k % t.rank for k in g.ints(axes)]
    half = len(sizes) // 2
    for k, before, after in zip(dims, sizes[:half], sizes[half:], strict=True):
        if not (isinstance(before, int) and isinstance(after, int) and before == after == 0):
            t = shapes.padded(g, t, k, before, after, n.attr("mode", "constant"), pad_value)
    return t


# ---- gathers and scatters -----------------------------------------------------------------------------------------------


COMBINE = {"none": "set", "add": "add", "mul": "multiply", "min": "min", "max": "max"}


@translates("Gather")
def gather(n: Any, x: Value, indices: Value) -> Tensor:
    t = n.g.tensor(x)
    return indexing.gathered(n.g, t, indices, n.attr("axis", 0) % t.rank, n.takes[0])


@translates("GatherElements")
def gather_elements(n: Any, x: Value, indices: Value) -> Tensor:
    t = n.g.tensor(x)
    return indexing.gathered_elements(n.g, t, indices, n.attr("axis", 0) % t.rank, n.takes[0])


@translates("ScatterElements", "Scatter")
def scatter_elements(n: Any, x: Value, indices: Value, updates: Value) -> Tensor:
    t, how = n.g.tensor(x), COMBINE[n.attr("reduction", "none")]
    return indexing.scattered_elements(n.g, t, indices, updates, n.attr("axis", 0) % t.rank, how, n.takes[0])


@translates("GatherND")
def gather_nd(n: Any, x: Value, indices: Value) -> Tensor:
    return indexing.gathered_slices(n.g, x, indices, n.attr("batch_dims", 0), n.takes[0])


@translates("ScatterND")
def scatter_nd(n: Any, x: Value, indices: Value, updates: Value) -> Tensor:
    return indexing.scattered_slices(n.g, x, indices, updates, COMBINE[n.attr("reduction", "none")], n.takes[0])


@translates("TensorScatter")
def tensor_scatter(n: Any, past: Value, update: Value, places: Value = None) -> Tensor:
    wrap = n.attr("mode", "linear") == "circular"
    return indexing.written_at(n.g, past, update, places, n.attr("axis", -2) % past.rank, wrap, n.takes[0])


@translates("ReverseSequence")
def reverse_sequence(n: Any, x: Value, lengths: Value) -> Tensor:
    return indexing.reversed_parts(n.g, x, lengths, n.attr("batch_axis", 1), n.attr("time_axis", 0), n.takes[0])


@translates("TopK")
def top_k(n: Any, x: Value, k: Value = None) -> tuple[Tensor, Tensor]:
    t = n.g.tensor(x)
    count = n.attr("k") if k is None else n.g.sizes(k)[0]
    return indexing.top_k(n.g, t, n.attr("axis", -1) % t.rank, count, bool(n.attr("largest", 1)))


@translates("NonZero")
def nonzero(n: Any, x: Value) -> Tensor:
    return indexing.nonzero(n.g, n.g.tensor(x))


@translates("Compress")
def compress(n: Any, x: Value, condition: Value) -> Tensor:
    g, t, at = n.g, n.g.tensor(x), n.attr("axis")
    if at is None:
        t, at = g.reshape(t, [product(t.shape)]), 0
    return indexing.compressed(g, t, condition, at % t.rank)


@translates("Unique")
def unique(n: Any, x: Value) -> tuple[Value, ...]:
    axis, in_order = n.attr("axis"), bool(n.attr("sorted", 1))
    return tuple(n.g.host("Unique", lambda a: indexing.unique(a, axis, in_order), [x], [x.np, np.int64, np.int64, np.int64]))


# ---- blocks -------------------------------------------------------------------------------------------------------------


@translates("DepthToSpace", "SpaceToDepth")
def blocks(n: Any, x: Value) -> Tensor:
    function = shapes.depth_to_space if n.op == "DepthToSpace" else shapes.space_to_depth
    return function(n.g, n.g.tensor(x), n.attr("blocksize"), n.attr("mode", "DCR") == "DCR")
