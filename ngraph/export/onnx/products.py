"""Rules for contractions and windows: contractions, convolutions with both gradients, pooling."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.export.onnx.lengths import constant, same
from ngraph.export.onnx.rules import CLAIMS, FLOAT32, reduced
from ngraph.export.onnx.writer import NODES, Cannot, GraphWriter, TensorRef, since, takes
from ngraph.numpy_ops.reindex import affine
from ngraph.op_graph import expr
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import ExprLike, Idx
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import ONNX
from ngraph.ops.aligned import without
from ngraph.program.program import AxisId, Step, Value

Axes = tuple[AxisId, ...]
AXIS_OF_DFT = 20  # the opset from which the axis of DFT is an input

# ---- contractions -------------------------------------------------------------------------------------------------------


def _alone(w: GraphWriter, x: TensorRef, other: TensorRef, over: Axes) -> TensorRef:
    """Returns x summed over the axes that only x has."""
    mine = tuple([a for a in x.axes if a in over and a not in other.axes])
    return reduced(w, "ReduceSum", x, mine, x.dtype) if mine else x


@NODES.of("contract")
def _contract(w: GraphWriter, step: Step, x: TensorRef, y: TensorRef, over: Axes, accumulate: DType) -> TensorRef:
    dtype = x.dtype
    if accumulate.bits > 32 or not dtype.is_float:  # the accumulator of 16-bit floats is the runtime's choice
        x, y = w.cast(x, accumulate), w.cast(y, accumulate)
    lost = tuple([a for a in over if a not in x.axes and a not in y.axes])
    x = w.full(x, (*x.dims, *lost)) if lost else x
    if any(w.length(a) == 0 for a in over):
        return w.filled(0, tuple(step.result.axes), dtype)
    x, y = _alone(w, x, y, over), _alone(w, y, x, over)
    sums = tuple([a for a in x.axes if a in over])
    if not sums:
        return w.cast(w.elementwise("Mul", x, y), dtype)
    return w.cast(_product(w, x, y, sums), dtype)


def _product(w: GraphWriter, x: TensorRef, y: TensorRef, sums: Axes) -> TensorRef:
    """Returns MatMul or Gemm where operands are matrices or batches of them, up to the order of their axes; else Einsum."""
    batch = tuple([a for a in x.axes if a in y.axes and a not in sums])
    rows = tuple([a for a in x.axes if a not in y.axes])
    columns = tuple([a for a in y.axes if a not in x.axes])
    if len(sums) > 1 and not batch:
        joined = _joined(w, x, y, sums, rows, columns)
        if joined is not None:
            return joined
    if len(sums) > 1 or (len(batch) > 0 and max(len(rows), len(columns)) > 1) or min(len(rows), len(columns)) > 1:
        return _einsum(w, x, y, sums)
    if len(columns) > 1:
        x, y, rows, columns = y, x, columns, rows
    if not batch and len(rows) == len(columns) == 1:
        gemm = _gemm(w, x, y, sums, rows, columns)
        if gemm is not None:
            return gemm
    if not batch and not rows and columns and y.axes != (*sums, *columns):
        x, y, rows, columns = y, x, columns, rows  # a vector on the other side needs no transposed matrix
    # a batch of vectors is one of matrices with a dim of length 1; so is a vector beside transposed matrices, where ONNX Runtime 1.32
    # fuses Transpose and MatMul to a product that reads wrong elements
    turned = not columns and len(rows) > 1 and x.dims != (*rows, *sums)
    one = (None,) if batch or turned else ()
    left, right = (*batch, *(rows or one), *sums), (*batch, *sums, *(columns or one))
    dims = (*batch, *(rows or one), *(columns or one))
    return w.op("MatMul", w.arranged(x, left), w.arranged(y, right), dims=dims, dtype=x.dtype)


def _gemm(w: GraphWriter, x: TensorRef, y: TensorRef, sums: Axes, rows: Axes, columns: Axes) -> TensorRef | None:
    """Returns Gemm for two matrices in any order of axes; None where MatMul takes them as they are, or Gemm cannot."""
    if x.dims == (*rows, *sums) and y.dims == (*sums, *columns) or not takes("Gemm", w.opset, x.dtype) or not x.dtype.is_float:
        return None
    a, b = w.arranged(x, x.axes), w.arranged(y, y.axes)
    turned = a.dims[0] != rows[0], b.dims[0] != sums[0]
    if not any(turned):
        return None
    return w.op("Gemm", a, b, dims=(*rows, *columns), dtype=x.dtype, transA=int(turned[0]) or None, transB=int(turned[1]) or None)


def _joined(w: GraphWriter, x: TensorRef, y: TensorRef, sums: Axes, rows: Axes, columns: Axes) -> TensorRef | None:
    """Returns the product with several summed axes joined; None where they are not adjacent in both operands."""
    if len(rows) > 1 or len(columns) > 1:
        return None
    a, b = w.merged(x, [rows, sums]), w.merged(y, [sums, columns])
    dims = (*(rows or (None,)), *(columns or (None,)))
    one = AxisId(f"<{'*'.join(sums)}")
    w.lengths[one] = w.size(sums)
    left, right = TensorRef(a.name, (dims[0], one), x.dtype), TensorRef(b.name, (one, dims[1]), y.dtype)
    return w.op("MatMul", left, right, dims=dims, dtype=x.dtype)


def _einsum(w: GraphWriter, x: TensorRef, y: TensorRef, sums: Axes) -> TensorRef:
    """Returns an Einsum, for any contraction and any order of axes."""
    x, y = w.arranged(x, x.axes), w.arranged(y, y.axes)
    dims = tuple(dict.fromkeys(a for a in (*x.axes, *y.axes) if a not in sums))
    every = tuple(dict.fromkeys((*x.axes, *y.axes)))
    letters = dict(zip(every, string.ascii_letters, strict=False))
    terms = ["".join(letters[a] for a in axes) for axes in (x.axes, y.axes, dims)]
    return w.op("Einsum", x, y, dims=dims, dtype=x.dtype, equation=f"{terms[0]},{terms[1]}->{terms[2]}")


# ---- convolutions -------------------------------------------------------------------------------------------------------

Spatial = tuple[AxisId, AxisId, AxisId, int, int, int, int]  # in, filter, out; stride, dilation, in_dilation, pad


@NODES.of("convolve")
def _convolve(
    w: GraphWriter, step: Step, x: TensorRef, f: TensorRef, over: Axes, spatial: tuple[Spatial, ...], accumulate: DType
) -> TensorRef:
    """Returns a Conv; a ConvTranspose where the input is dilated, or the filter is flipped as in the gradient."""
    tx, tf = step.inputs
    dtype = x.dtype
    if any(w.length(a) == 0 for v in (tx, tf) for a in v.axes):
        return w.filled(0, tuple(step.result.axes), dtype)
    ins, taps, outs = tuple([s[0] for s in spatial]), tuple([s[1] for s in spatial]), tuple([s[2] for s in spatial])
    x, f = (w.full(r, (*r.dims, *[a for a in axes if a not in r.axes])) for r, axes in ((x, ins), (f, taps)))
    if not dtype.is_float or not 1 <= len(spatial) <= 3 or any(s[3] > 1 and s[5] > 1 for s in spatial):
        return _by_windows(w, step, x, f, over, spatial, accumulate)
    if accumulate.bits > 32:
        x, f = w.cast(x, accumulate), w.cast(f, accumulate)
    x, f = (
        TensorRef(r.name, tuple([None if a is None else _apart(w, a, own) for a in r.dims]), r.dtype) for r, own in ((x, ins), (f, taps))
    )
    ins, taps = (tuple([_apart(w, a, own) for a in own]) for own in (ins, taps))
    x_rest, f_rest = without(x.axes, ins), without(f.axes, taps)
    lone = [tuple([a for a in mine if a in over and a not in others]) for mine, others in ((x_rest, f_rest), (f_rest, x_rest))]
    x, f = (reduced(w, "ReduceSum", r, axes, r.dtype) if axes else r for r, axes in ((x, lone[0]), (f, lone[1])))
    inner = [a for a in x_rest if a in f_rest and a in over]
    groups = [a for a in x_rest if a in f_rest and a not in over]
    batch = [a for a in x_rest if a not in f_rest and a not in over]
    outer = [a for a in f_rest if a not in x_rest and a not in over]
    count = w.size(groups)
    if not isinstance(count, int):
        raise Cannot("a convolution whose number of groups comes with the call")
    whole = [(i, r, *s[2:]) for i, r, s in zip(ins, taps, spatial, strict=True)]
    data = w.merged(x, [batch, [*groups, *inner], *[[a] for a in ins]])
    dims = [batch, [*groups, *outer], *[[a] for a in outs]]
    turned = all(s[3] == 1 for s in spatial) and (any(s[5] > 1 for s in spatial) or all(s[4] < 0 for s in spatial))
    made = (_transposed if turned else _straight)(w, data, f, whole, [groups, inner, outer], count)
    return w.cast(w.split(TensorRef(made.name, (), made.dtype), dims), dtype)


def _apart(w: GraphWriter, axis: AxisId, spatial: Axes) -> AxisId:
    """Returns another name for a spatial axis of an operand, since the other may have one of that name."""
    if axis not in spatial:
        return axis
    made = AxisId(f"<{axis}")
    w.lengths[made] = w.length(axis)
    return made


def _flipped(w: GraphWriter, f: TensorRef, taps: Sequence[AxisId]) -> TensorRef:
    """Returns the filter flipped along some axes."""
    if not taps:
        return f
    count = len(taps)
    far = 1 << 62
    places = w.ints(f.dims.index(a) for a in taps)
    return w.op("Slice", f, w.ints([far] * count), w.ints([-far] * count), places, w.ints([-1] * count), dims=f.dims, dtype=f.dtype)


def _trimmed(w: GraphWriter, x: TensorRef, before: Sequence[int], after: Sequence[int]) -> TensorRef:
    """Returns spatial dims padded with zeros, or cropped where the number is negative."""
    if any(n > 0 for n in (*before, *after)):
        pads = [0, 0, *[max(n, 0) for n in before], 0, 0, *[max(n, 0) for n in after]]
        x = w.op("Pad", x, w.ints(pads), dims=x.dims, dtype=x.dtype)
    cut = [k for k in range(len(before)) if before[k] < 0 or after[k] < 0]
    if cut:
        starts, stops = w.ints(max(-before[k], 0) for k in cut), w.ints(after[k] if after[k] < 0 else 1 << 62 for k in cut)
        x = w.op("Slice", x, starts, stops, w.ints(k + 2 for k in cut), dims=x.dims, dtype=x.dtype)
    return x


def ends(n: ExprLike, out: ExprLike, size: ExprLike, stride: int, dilation: int, before: int) -> int:
    """Returns the trailing padding for which windows of `size` give `out` results: the one nearest to `before` among those that do."""
    span = constant((out - 1) * stride + (size - 1) * dilation + 1 - n - before)
    if span is not None:
        return min(max(before, span), span + stride - 1)
    for k in range(64 * stride):  # out is a floor of n, so the missing length varies with the remainder
        for after in (k, -k):
            if constant((n + (before + after) - ((size - 1) * dilation + 1)) // stride + 1 - out) == 0:
                return after
    raise Cannot("windows over a length that comes with the call, to a length that does not follow from it")


def windowed(pads: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> dict[str, Any]:
    """Returns attributes of windows, without defaults."""
    return {
        "pads": list(pads) if any(pads) else None,
        "strides": list(strides) if set(strides) != {1} else None,
        "dilations": list(dilations) if set(dilations) != {1} else None,
    }


def _straight(
    w: GraphWriter, x: TensorRef, f: TensorRef, spatial: Sequence[Any], kinds: Sequence[Sequence[AxisId]], count: int
) -> TensorRef:
    groups, inner, outer = kinds
    f = _flipped(w, f, [s[1] for s in spatial if s[4] < 0])
    before, after, stride, dilation = [], [], [], []
    for i, r, o, s, d, _, pad in spatial:
        size = w.length(r)
        if d < 0:
            if not isinstance(size, int):
                raise Cannot("a filter whose length comes with the call, read backwards")
            pad, d = pad - (size - 1) * d, -d
        before.append(pad)
        after.append(ends(w.length(i), w.length(o), size, s, d, pad))
        stride.append(s)
        dilation.append(d)
    less = [min(n, 0) for n in before], [min(n, 0) for n in after]
    x = _trimmed(w, x, *less)
    pads = [max(n, 0) for n in (*before, *after)]
    weights = w.merged(f, [[*groups, *outer], inner, *[[s[1]] for s in spatial]])
    known = [w.length(s[1]) for s in spatial]
    return w.op(
        "Conv",
        x,
        weights,
        dims=(),
        dtype=x.dtype,
        **windowed(pads, stride, dilation),
        group=count if count != 1 else None,
        kernel_shape=known if all(isinstance(n, int) for n in known) else None,
    )


def _transposed(
    w: GraphWriter, x: TensorRef, f: TensorRef, spatial: Sequence[Any], kinds: Sequence[Sequence[AxisId]], count: int
) -> TensorRef:
    """Returns a ConvTranspose: each input element adds to the results o = i * in_dilation - r * dilation + pad."""
    groups, inner, outer = kinds
    f = _flipped(w, f, [s[1] for s in spatial if s[4] > 0])
    before, after, more, stride, dilation = [], [], [], [], []
    for i, r, o, _, d, spread, pad in spatial:
        size = w.length(r)
        if d > 0:
            if not isinstance(size, int):
                raise Cannot("a filter whose length comes with the call, read backwards")
            cut = (size - 1) * d - pad
        else:
            cut = -pad
        rest = constant((w.length(i) - 1) * spread + (size - 1) * abs(d) + 1 - cut - w.length(o))
        if rest is None:
            raise Cannot("a gradient of windows over a length that comes with the call")
        before.append(cut)
        after.append(rest)
        more.append(-rest if 0 < -rest < spread else 0)
        stride.append(spread)
        dilation.append(abs(d))
    pads = [max(n, 0) for n in (*before, *after)]
    weights = w.merged(f, [[*groups, *inner], outer, *[[s[1]] for s in spatial]])
    known = [w.length(s[1]) for s in spatial]
    made = w.op(
        "ConvTranspose",
        x,
        weights,
        dims=(None, None, *[s[2] for s in spatial]),
        dtype=x.dtype,
        **windowed(pads, stride, dilation),
        output_padding=more if any(more) else None,
        group=count if count != 1 else None,
        kernel_shape=known if all(isinstance(n, int) for n in known) else None,
    )
    return _trimmed(w, made, [max(-n, 0) for n in before], [max(-n - m, 0) for n, m in zip(after, more, strict=True)])


def _by_windows(
    w: GraphWriter, step: Step, x: TensorRef, f: TensorRef, over: Axes, spatial: tuple[Spatial, ...], accumulate: DType
) -> TensorRef:
    """Returns windows of x, read by index, contracted with the filter, for dtypes or sizes that Conv does not support."""
    tx, tf = step.inputs
    outs = {s[0]: s for s in spatial}
    taps = {}
    for s in spatial:
        taps[s[1]] = AxisId(f"<tap {s[1]}")
        w.lengths[taps[s[1]]] = w.length(s[1])
    index: list[tuple[AxisId, ExprLike]] = []
    predicate: list[ExprLike] = []
    axes: list[AxisId] = []
    for a in tx.axes:
        if a not in outs:
            index.append((a, Idx(a)))
            axes.append(a)
            continue
        _, r, o, stride, dilation, spread, pad = outs[a]
        e = Idx(o) * stride + Idx(taps[r]) * dilation - pad
        if spread > 1:
            predicate.append(0 - e % spread)
        index.append((a, e // spread))
        axes += [o, taps[r]]
    windows = Value(TensorType(tuple(axes), x.dtype))
    attrs = {"axes": tuple(axes), "index": tuple(index), "predicate": tuple(predicate), "pad_value": 0}
    read = w.step("reindex", [tx], [x], windows, attrs)
    renamed = Value(TensorType(tuple([taps.get(a, a) for a in tf.axes]), f.dtype))
    other = TensorRef(f.name, tuple([None if a is None else taps.get(a, a) for a in f.dims]), f.dtype)
    return w.step("contract", [windows, renamed], [read, other], step.result, {"over": (*over, *taps.values()), "accumulate": accumulate})


# ---- pooling ------------------------------------------------------------------------------------------------------------


Window = tuple[AxisId, AxisId, AxisId, int, int, int]  # in, within, out; stride, dilation, pad


def fits(windows: Sequence[Any], length: Callable[[Any], ExprLike]) -> bool:
    """Whether ONNX supports these windows: along at most three axes, of known length and padding, none wholly in the padding."""
    if not 1 <= len(windows) <= 3:
        return False
    for i, r, o, stride, dilation, pad in windows:
        size, whole = length(r), length(i)
        try:
            after = ends(whole, length(o), size, stride, dilation, pad)
        except Cannot:
            return False
        if isinstance(whole, int) and whole < dilation and (pad, after) != (0, 0):
            return False
        if not (isinstance(size, int) and isinstance(pad, int) and isinstance(after, int)) or not (0 <= pad < size and 0 <= after < size):
            return False
    return True


def poolable(op: Op, opset: int) -> bool:
    """Whether ONNX has this pooling as one node."""
    name, windows = ONNX[op.opdef.name], op.attrs["windows"]
    spread = name == "AveragePool" and opset < 19 and any(w[4] > 1 for w in windows)
    return takes(name, opset, op.dtype) and not spread and fits(windows, lambda axis: axis.size)


CLAIMS.update(max_pool=poolable, avg_pool=poolable)


def window_read(step: Step, inside: Axes, length: Callable[[AxisId], ExprLike]) -> tuple[Window, ...] | None:
    """Returns the windows that a `reindex` reads, if the axes `inside` are exactly those within windows; else None."""
    axes = step.inputs[0].axes
    if step.attrs["predicate"] or not inside or any(a in axes for a in inside):
        return None
    found: list[Window] = []
    for axis, e in step.attrs["index"]:
        if isinstance(e, Idx) and e.of == axis:
            continue
        start, moves = affine(expr.substitute(e, lambda leaf: length(leaf.of) if isinstance(leaf, expr.Len) else leaf)) or (None, {})
        start = None if start is None else constant(start)
        within, outer = [a for a in moves if a in inside], [a for a in moves if a not in inside]
        if len(within) != 1 or len(outer) != 1 or start is None:
            return None
        stride, dilation = moves[outer[0]], moves[within[0]]
        if not (isinstance(stride, int) and isinstance(dilation, int) and stride > 0 and dilation > 0):
            return None
        found.append((axis, within[0], outer[0], stride, dilation, -start))
    return tuple(found) if sorted(w[1] for w in found) == sorted(inside) else None


@NODES.of("max_pool", "avg_pool")
def _pool(w: GraphWriter, step: Step, x: TensorRef, windows: tuple[Any, ...]) -> TensorRef:
    return pool(w, "MaxPool" if step.op == "max_pool" else "AveragePool", x, windows)


def pool(w: GraphWriter, op: str, x: TensorRef, windows: Sequence[Window], **attrs: Any) -> TensorRef:
    """Returns a pooling node; axes other than the windows' become batch and channel."""
    ins = [s[0] for s in windows]
    x = w.full(x, (*x.dims, *[a for a in ins if a not in x.axes]))
    rest = [a for a in x.axes if a not in ins]
    groups = [rest[:-1], rest[-1:]]
    if len(rest) == 1 and x.dims[:2] == (rest[0], None):
        groups = [rest, []]
    data = w.merged(x, [*groups, *[[a] for a in ins]])
    sizes = [(w.length(i), w.length(r), w.length(o), s, d, pad) for i, r, o, s, d, pad in windows]
    pads = [pad for *_, pad in sizes] + [ends(n, out, size, s, d, pad) for n, size, out, s, d, pad in sizes]
    strides, dilations = [s for *_, s, _, _ in sizes], [d for *_, d, _ in sizes]
    made = w.op(
        op,
        data,
        dims=(),
        dtype=x.dtype,
        kernel_shape=[size for _, size, *_ in sizes],
        **windowed(pads, strides, dilations),
        **attrs,
    )
    return w.split(TensorRef(made.name, (), made.dtype), [*groups, *[[s[2]] for s in windows]])


# ---- recomposed ops -----------------------------------------------------------------------------------------------


@NODES.of("batch_norm")
def _batch_norm(w: GraphWriter, step: Step, x: TensorRef, *along: TensorRef, epsilon: float) -> TensorRef:
    """Returns the node with the normalised axis second, after all axes that are not spatial."""
    (channel,) = along[0].axes
    x = w.full(x, x.dims if channel in x.dims else (*x.dims, channel))
    at = x.dims.index(channel)
    if at != 1:
        rest = [a for a in x.axes if a != channel]
        x = w.arranged(x, (rest[0] if rest else None, channel, *rest[1:]))
    given = [w.arranged(r, (channel,)).name for r in along]
    (name,) = w.node("BatchNormalization", [x.name, *given], epsilon=epsilon)
    return TensorRef(name, x.dims, x.dtype)


@NODES.of("layer_norm")
def _layer_norm(w: GraphWriter, step: Step, x: TensorRef, *given: TensorRef, axes: Axes, epsilon: float) -> TensorRef:
    x = w.full(x, x.dims + tuple([a for a in axes if a not in x.dims]))
    axes = tuple([a for a in x.dims if a in axes])
    if x.dims[len(x.dims) - len(axes) :] != axes:
        x = w.arranged(x, (*[a for a in x.dims if a not in axes], *axes))
    ones = [] if given else [w.full(w.number(1, x.dtype), axes)]
    names = [w.arranged(r, axes).name for r in (*given, *ones)]
    (name,) = w.node("LayerNormalization", [x.name, *names], axis=-len(axes), epsilon=epsilon)
    return TensorRef(name, x.dims, x.dtype)


def _by_axis(w: GraphWriter, x: TensorRef, scale: TensorRef, zero: TensorRef | None, dtype: DType) -> tuple[list[str], int | None]:
    """Returns scale and zero point as the node takes them: scalars, or vectors of one length along an axis."""
    axes = scale.axes or (zero.axes if zero is not None else ())
    values = [w.array(scale), np.zeros(()) if zero is None else w.array(zero)]
    length = (w.known(axes[0]) or 0,) if axes else ()
    flat = [np.broadcast_to(np.asarray(v).reshape(-1) if axes else np.asarray(v).reshape(()), length) for v in values]
    names = [w.constant(flat[0].astype(np.float32), scale.name), w.constant(flat[1].astype(dtype.np))]
    return names, x.dims.index(axes[0]) if axes else None


@NODES.of("quantize")
def _quantize(w: GraphWriter, step: Step, x: TensorRef, scale: TensorRef, zero: TensorRef, dtype: DType) -> TensorRef:
    x = w.full(x, (*x.dims, *[a for a in scale.axes if a not in x.axes]))
    names, axis = _by_axis(w, x, scale, zero, dtype)
    (name,) = w.node("QuantizeLinear", [x.name, *names], axis=axis)
    return TensorRef(name, x.dims, dtype)


@NODES.of("dequantize")
def _dequantize(w: GraphWriter, step: Step, x: TensorRef, scale: TensorRef, zero: TensorRef | None = None) -> TensorRef:
    x = w.full(x, (*x.dims, *[a for a in scale.axes if a not in x.axes]))
    names, axis = _by_axis(w, x, scale, zero, x.dtype)
    (name,) = w.node("DequantizeLinear", [x.name, *names], axis=axis)
    return TensorRef(name, x.dims, step.result.dtype)


@NODES.of("det")
def _det(w: GraphWriter, step: Step, x: TensorRef, rows: AxisId, columns: AxisId) -> TensorRef:
    batch = tuple([a for a in x.axes if a not in (rows, columns)])
    return w.op("Det", w.full(x, (*batch, rows, columns)), dims=batch, dtype=x.dtype)


# ---- Fourier transforms -------------------------------------------------------------------------------------------------


@NODES.of("dft")
def _dft(w: GraphWriter, step: Step, *parts: TensorRef, axis: AxisId, out: AxisId, inverse: bool) -> tuple[TensorRef, ...]:
    """Returns both parts of a DFT as long as the longer of both axes, cut to `out`.

    One of the other direction is the conjugate of that of the conjugate: ONNX divides its inverse by the length, ONNX Runtime in float32.
    """
    if w.opset < since("DFT"):
        raise Cannot(f"opset {since('DFT')}")
    dtype = step.results[0].dtype
    others = tuple([a for a in step.inputs[0].axes if a != axis])
    shown = (*others, out)
    size, count = w.length(axis), w.length(out)
    if size == 0:
        return (w.filled(0, shown, dtype), w.filled(0, shown, dtype))
    n = expr.maximum(size, count)
    dims = (*(others or (None,)), axis)
    at, wide = len(dims) - 1, FLOAT32 if dtype.bits < 32 else dtype
    given = [w.full(w.cast(p, wide), dims) for p in parts]
    if inverse and len(given) > 1:
        given[1] = w.elementwise("Neg", given[1])
    found = [w.node("Unsqueeze", [p.name, w.ints([-1])])[0] for p in given]
    x = found[0] if len(found) == 1 else w.node("Concat", found, axis=-1)[0]
    half = len(parts) == 1 and same(count, size // 2 + 1)
    attrs = {"onesided": int(half)}
    inputs = [x, "" if same(n, size) else w.scalar(n)]
    if w.opset < AXIS_OF_DFT:
        attrs["axis"] = at
    else:
        inputs.append(w.scalar(at))
    y = w.node("DFT", inputs, **attrs)[0]
    if not half and not same(n, count):
        y = w.node("Slice", [y, w.ints([0]), w.vector([count]), w.ints([at])])[0]
    made = []
    for k in (0, 1):
        part = TensorRef(w.node("Gather", [y, w.scalar(k)], axis=len(dims))[0], (*dims[:-1], out), wide)
        made.append(w.cast(w.elementwise("Neg", part) if inverse and k else part, dtype))
    return tuple(made)
