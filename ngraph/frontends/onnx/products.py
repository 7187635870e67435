"""Translators of matrix products, einsum and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ngraph.errors import GraphError
from ngraph.frontends.onnx.sampling import between
from ngraph.frontends.onnx.shapes import padded
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.dtypes import DType, accumulator
from ngraph.op_graph.expr import Expr, ExprLike, Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.convolution import convolve
from ngraph.ops.linear import contract
from ngraph.ops.rearrange import iota, product
from ngraph.ops.reduce import reduce

# ---- products -----------------------------------------------------------------------------------------------------------


def matmul(g: Any, a: Tensor, b: Tensor, accumulate: DType | None = None) -> Tensor:
    """NumPy's matmul: the rows of a meet the columns of b, dims in front are broadcast."""
    if not a.rank or not b.rank:
        raise GraphError(f"a matrix product of {g.show(a)} and {g.show(b)}")
    if not g.same(a.shape[-1], b.shape[-2 if b.rank > 1 else -1]):
        m, n = g.hint(a.shape[-1]), g.hint(b.shape[-2 if b.rank > 1 else -1])
        raise GraphError(f"{g.show(a)} and {g.show(b)} have no product: the last dim of the one has length {m}, the rows of the other {n}")
    left = a.dims if a.rank > 1 else [None, *a.dims]
    right = b.dims if b.rank > 1 else [*b.dims, None]
    (x, y), dims = g.meet([Tensor(a.op, [*left, None]), Tensor(b.op, [*right[:-2], None, *right[-2:]])])
    over = () if dims[-2] is None else (dims[-2],)
    op = multiplied(x.op, y.op, over, accumulate)
    kept = [*dims[:-3], *([dims[-3]] if a.rank > 1 else []), *([dims[-1]] if b.rank > 1 else [])]
    return g.made(op, kept)


def multiplied(x: Op, y: Op, over: tuple[Any, ...], accumulate: DType | None = None) -> Op:
    """The sum of products over axes, of which either may lack some."""
    mine = tuple([a for a in over if a in x.axes or a in y.axes])
    return contract.build(x, y, over=mine, accumulate=accumulate or accumulator(x.dtype)) if mine else x * y


@translates("MatMul")
def _matmul(n: Any, a: Value, b: Value) -> Tensor:
    return matmul(n.g, n.g.tensor(a), n.g.tensor(b))


def turned(t: Tensor) -> Tensor:
    """A matrix transposed."""
    return Tensor(t.op, [*t.dims[:-2], t.dims[-1], t.dims[-2]])


def scaled(x: Op, by: float) -> Op:
    return x if by == 1 else x * (by if x.dtype.is_float else int(by))


@translates("Gemm")
def gemm(n: Any, a: Value, b: Value, c: Value = None) -> Tensor:
    g = n.g
    x, y = g.tensor(a), g.tensor(b)
    x, y = turned(x) if n.attr("transA", 0) else x, turned(y) if n.attr("transB", 0) else y
    z = matmul(g, x, y)
    z = Tensor(scaled(z.op, n.attr("alpha", 1.0)), z.dims)
    if c is None:
        return z
    (p, q), dims = g.align(z, c)
    return g.made(p + scaled(q, n.attr("beta", 1.0)), dims)


@translates("Einsum")
def einsum(n: Any, *values: Value) -> Tensor:
    g = n.g
    ts = [g.tensor(v) for v in values]
    text = n.attr("equation").replace(" ", "")
    taken, _, given = text.partition("->")
    terms = [letters(term, t.rank) for term, t in zip(taken.split(","), ts, strict=True)]
    if "->" in text:
        spread = max((len([x for x in term if x.startswith(".")]) for term in terms), default=0)
        out = letters(given, len(given.replace("...", "")) + (spread if "..." in given else 0))
    else:
        every = [x for term in terms for x in term]
        dots = sorted({x for x in every if x.startswith(".")}, key=lambda x: -int(x[1:]))
        out = [*dots, *sorted(x for x in set(every) if not x.startswith(".") and every.count(x) == 1)]
    ts = [diagonal(g, t, term) for t, term in zip(ts, terms, strict=True)]
    terms = [list(dict.fromkeys(term)) for term in terms]
    names = list(dict.fromkeys(x for term in terms for x in term))
    spread_out = [Tensor(t.op, [t.dims[term.index(x)] if x in term else None for x in names]) for t, term in zip(ts, terms, strict=True)]
    met, dims = g.meet(spread_out)
    total: Op | None = None
    for k, t in enumerate(met):
        later = {d for other in met[k + 1 :] for d in other.dims}
        done = [d for d, x in zip(dims, names, strict=True) if d is not None and x not in out and d not in later]
        if total is None:
            gone = tuple([d for d in done if d in t.op.axes]) if len(met) == 1 else ()
            total = reduce.build(t.op, kind="add", axes=gone) if gone else t.op
        else:
            total = multiplied(total, t.op, tuple(done))
    assert total is not None
    return g.made(total, [dims[names.index(x)] for x in out])


def letters(term: str, rank: int) -> list[str]:
    """The letters of an einsum term; dims under the dots are `.k`, counted from the last of them."""
    if "..." not in term:
        return list(term)
    before, after = term.split("...")
    many = rank - len(before) - len(after)
    return [*before, *(f".{k}" for k in range(many - 1, -1, -1)), *after]


def diagonal(g: Any, t: Tensor, term: Sequence[str]) -> Tensor:
    """The tensor where dims of one letter have one index."""
    for x in dict.fromkeys(term):
        places = [k for k, y in enumerate(term) if y == x]
        if len(places) > 1:
            t = g.full(t, places)
            first = t.dims[places[0]]
            index = {t.dims[k]: Idx(first) for k in places[1:]}
            t = g.read(t, [d for k, d in enumerate(t.dims) if k not in places[1:]], index)
            term = [y for k, y in enumerate(term) if k not in places[1:]]
    return t


# ---- windows ------------------------------------------------------------------------------------------------------------


class Window(NamedTuple):
    """How windows of one spatial dim lie: how long, how far apart, padding at both ends, and how many there are."""

    size: int
    stride: int
    dilation: int
    before: ExprLike
    after: ExprLike
    many: ExprLike


def windows(n: Any, t: Tensor, kernel: Sequence[int]) -> list[Window]:
    """The windows along the dims from 2 on, as strides, dilations, pads, auto_pad and ceil_mode say."""
    g, k = n.g, len(kernel)
    strides, dilations = n.attr("strides") or [1] * k, n.attr("dilations") or [1] * k
    pads, auto, up = n.attr("pads") or [0] * 2 * k, n.attr("auto_pad", "NOTSET"), n.attr("ceil_mode", 0)
    if not len(strides) == len(dilations) == k or len(pads) != 2 * k or t.rank != k + 2 or min(*strides, *dilations, *kernel) < 1:
        raise GraphError(f"a kernel of {list(kernel)}, strides {strides}, dilations {dilations}, pads {pads} do not fit {g.show(t)}")
    found = []
    for j, size in enumerate(t.shape[2:]):
        reach = (kernel[j] - 1) * dilations[j] + 1
        before, after = pads[j], pads[j + k]
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            count = (size + (strides[j] - 1)) // strides[j]
            missing = reach - 1 if strides[j] == 1 else expr.maximum((count - 1) * strides[j] + reach - size, 0)
            before = missing // 2 if auto == "SAME_UPPER" else missing - missing // 2
            after = missing - before
        else:
            if auto == "VALID":
                before = after = 0
            span = size + (before + after - reach)
            count = (span + (strides[j] - 1 if up else 0)) // strides[j] + 1
            if up and strides[j] > 1 and g.truth("le", size + before, (count - 1) * strides[j]):
                count = count - 1
        found.append(Window(kernel[j], strides[j], dilations[j], before, after, count))
    return found


def outs_of(g: Any, t: Tensor, ws: Sequence[Window]) -> list[Axis]:
    """An axis for the windows of each spatial dim."""
    return [g.resized(d, w.many) for d, w in zip(t.dims[2:], ws, strict=True)]


# ---- convolution --------------------------------------------------------------------------------------------------------


def grouped(g: Any, v: Value, groups: int, dim: int) -> Tensor:
    """A tensor whose dim is split into groups and the rest."""
    shape = list(v.shape)
    if isinstance(shape[dim], int) and shape[dim] % groups:
        raise GraphError(f"{groups} groups do not divide dim {dim} of {list(shape)}")
    new = [*shape[:dim], groups, shape[dim] // groups, *shape[dim + 1 :]]
    return g.tensor(ConstantArray(v.array.reshape(new))) if isinstance(v, ConstantArray) else g.reshape(g.tensor(v), new)


def convolved(
    g: Any, x: Tensor, w: Tensor, numbers: Sequence[tuple[int, int, int, int]], outs: Sequence[Axis], accumulate: Any = None
) -> Tensor:
    """x [n, g, c, spatial…] with w [g, c, m, spatial…] gives [n, g, m, outs…]; numbers: stride, dilation, in_dilation, pad each."""
    k = len(outs)
    x = g.full(x, range(3, 3 + k))
    w = g.apart(g.full(w, range(3, 3 + k)), [*x.dims, *outs])
    names = list(w.dims)
    for j in (0, 1):
        if w.dims[j] is None and x.dims[j + 1] is not None and g.same(x.dims[j + 1].size, 1):
            x = g.squeezed(x, j + 1)
        a, b = x.dims[j + 1], w.dims[j]
        if (a is None) != (b is None) or (a is not None and b is not None and not g.same(a.size, b.size)):
            what = "groups" if j == 0 else "channels of a group"
            raise GraphError(f"there are {g.hint(x.shape[j + 1])} {what}, and the filters are for {g.hint(w.shape[j])}")
        names[j] = a
    w = g.renamed(w, names)
    over = () if x.dims[2] is None else (x.dims[2],)
    spatial = tuple([(a, r, o, *m) for a, r, o, m in zip(x.dims[3:], w.dims[3:], outs, numbers, strict=True)])
    op = convolve.build(x.op, w.op, over=over, spatial=spatial, accumulate=accumulate or accumulator(x.dtype))
    return g.made(op, [x.dims[0], x.dims[1], w.dims[2], *outs])


def moved(t: Tensor, order: Sequence[int]) -> Tensor:
    return Tensor(t.op, [t.dims[k] for k in order])


def with_bias(g: Any, y: Tensor, bias: Value) -> Tensor:
    if bias is None:
        return y
    b = g.tensor(bias)
    (p, q), dims = g.align(y, Tensor(b.op, [*b.dims, *[None] * (y.rank - 2)]))
    return g.made(p + q, dims)


@translates("Conv")
def conv(n: Any, x: Value, w: Value, bias: Value = None) -> Tensor:
    return with_bias(n.g, convolution(n, n.g.tensor(x), w), bias)


def convolution(n: Any, x: Tensor, w: Value, accumulate: Any = None) -> Tensor:
    g, groups = n.g, n.attr("group", 1)
    kernel = g.numbers(w.shape[2:])
    ws = windows(n, x, kernel)
    k = len(kernel)
    for j, v in enumerate(ws):
        if isinstance(v.before, Expr):  # a padding that depends on a length is put there first
            x = padded(g, x, 2 + j, v.before, v.after)
            ws[j] = v._replace(before=0)
    outs = outs_of(g, x, ws)
    numbers = [(v.stride, v.dilation, 1, g.number(v.before)) for v in ws]
    m = w.shape[0]
    if groups == 1:
        left, right = Tensor(x.op, [x.dims[0], None, *x.dims[1:]]), g.tensor(w)
        right = Tensor(right.op, [None, right.dims[1], right.dims[0], *right.dims[2:]])
        y = convolved(g, left, right, numbers, outs, accumulate)
        return Tensor(y.op, [y.dims[0], *y.dims[2:]])
    left = grouped(g, x, groups, 1)
    right = moved(grouped(g, w, groups, 0), (0, 2, 1, *range(3, 3 + k)))
    y = convolved(g, left, right, numbers, outs, accumulate)
    return g.reshape(y, [y.shape[0], m, *y.shape[3:]])


@translates("ConvTranspose")
def conv_transpose(n: Any, x: Value, w: Value, bias: Value = None) -> Tensor:
    g, groups = n.g, n.attr("group", 1)
    t = g.tensor(x)
    kernel = g.numbers(w.shape[2:])
    k = len(kernel)
    strides, dilations = n.attr("strides") or [1] * k, n.attr("dilations") or [1] * k
    more, auto = n.attr("output_padding") or [0] * k, n.attr("auto_pad", "NOTSET")
    pads, shape = n.attr("pads") or [0] * 2 * k, n.attr("output_shape")
    outs, numbers = [], []
    for j in range(k):
        size = t.shape[2 + j]
        whole = (size - 1) * strides[j] + (more[j] + (kernel[j] - 1) * dilations[j] + 1)
        before: ExprLike = pads[j]
        count: ExprLike = whole - pads[j] - pads[j + k]
        if shape is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
            count = shape[j - k] if shape is not None else size * strides[j]
            left = max(g.number(whole - count), 0)
            before = left // 2 if auto == "SAME_UPPER" else left - left // 2
        outs.append(g.resized(t.dims[2 + j], count))
        numbers.append((1, -dilations[j], strides[j], -g.number(before)))
    left_ = grouped(g, t, groups, 1)
    right = grouped(g, w, groups, 0)
    y = convolved(g, left_, right, numbers, outs)
    y = g.reshape(y, [y.shape[0], product([groups, w.shape[1]]), *y.shape[3:]])
    return with_bias(g, y, bias)


@translates("DeformConv")
def deform_conv(n: Any, x: Value, w: Value, offset: Value, bias: Value = None, mask: Value = None) -> Tensor:
    """Each tap of the filter reads where an offset says, between four elements; outside there is 0."""
    g, groups, bends = n.g, n.attr("group", 1), n.attr("offset_group", 1)
    t = g.tensor(x)
    kernel = g.numbers(w.shape[2:])
    k = len(kernel)
    if k != 2:
        raise GraphError(f"a deformable convolution over {k} dims; there is one over 2")
    ws = windows(n, t, kernel)
    batch, channels = t.shape[:2]
    taps = kernel[0] * kernel[1]
    counts = [v.many for v in ws]
    # offsets [n, b, taps, 2, oh, ow]; x [n, b, c / b, h, w]
    offs = g.full(g.reshape(g.tensor(offset), [batch, bends, kernel[0], kernel[1], 2, *counts]))
    data = grouped(g, t, bends, 1)
    data = g.full(data)
    offs = g.apart(offs, data.dims)
    offs = g.renamed(offs, [*data.dims[:2], *offs.dims[2:]])
    places = []
    for j, v in enumerate(ws):
        d = dtypes.float32
        r, o = offs.dims[2 + j], offs.dims[5 + j]
        base = e.cast(iota(o) * v.stride + iota(r) * v.dilation - v.before, d)
        two = offs.dims[4]
        shift = g.read(offs, [a if i != 4 else None for i, a in enumerate(offs.dims)], {two: j})
        places.append(base + e.cast(shift.op, d))
    read = between(data.op, data.dims[3:], places)
    if mask is not None:
        m = g.full(g.reshape(g.tensor(mask), [batch, bends, kernel[0], kernel[1], *counts]))
        m = g.renamed(m, [*data.dims[:2], offs.dims[2], offs.dims[3], offs.dims[5], offs.dims[6]])
        read = read * m.op
    y = g.made(read, [data.dims[0], data.dims[1], data.dims[2], *offs.dims[2:4], *offs.dims[5:7]])
    y = g.reshape(y, [batch, groups, channels // groups, taps, *counts])
    f = grouped(g, w, groups, 0)  # [g, m / g, c / g, kh, kw]
    f = g.reshape(f, [groups, f.shape[1], f.shape[2], taps])
    (a, b), dims = g.meet(
        [
            Tensor(y.op, [y.dims[0], y.dims[1], None, y.dims[2], y.dims[3], *y.dims[4:]]),
            Tensor(f.op, [None, f.dims[0], f.dims[1], f.dims[2], f.dims[3], None, None]),
        ]
    )
    over = tuple(d for d in dims[3:5] if d is not None)
    z = g.made(multiplied(a.op, b.op, over), [*dims[:3], *dims[5:]])
    return with_bias(g, g.reshape(z, [batch, w.shape[0], *counts]), bias)
