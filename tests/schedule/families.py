"""Programs that blocks of threads run in the tests: each with arguments, and what NumPy gives for them."""

import numpy as np

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.op_graph import dtypes
from ngraph.plan.planner import plan
from ngraph.schedule.gpu import schedule_plan
from ngraph.targets import GPUS

SM_90 = GPUS["sm_90"]


def axes(**lengths):
    return [ng.make_axis(n, name=name) for name, n in lengths.items()]


def drawn(dtype, *shapes):
    draw = np.random.default_rng(sum(sum(shape) for shape in shapes))
    return [draw.standard_normal(shape).astype(dtypes.as_dtype(dtype).np) for shape in shapes]


def made(y, inputs, given):
    """The kernels of an op for a described GPU."""
    program = ngt.make_transformer_factory("direct")().computation(y, *inputs).program
    return schedule_plan(plan(program, winograd=False), SM_90), given


def gemm(n, c, k, dtype="float32"):
    """relu(x · w + b)"""
    N, C, K = axes(N=n, C=c, K=k)
    x, w, b = (ng.placeholder(a, dtype=dtype) for a in ([N, C], [C, K], [K]))
    given = drawn(dtype, (n, c), (c, k), (k,))
    xs, ws, bs = (a.astype(float) for a in given)
    return *made(ng.axes_with_order(ng.relu(ng.dot(x, w) + b), [N, K]), [x, w, b], given), np.maximum(xs @ ws + bs, 0)


def softmax(n, c, dtype="float32"):
    N, C = axes(N=n, C=c)
    x, given = ng.placeholder([N, C], dtype=dtype), drawn(dtype, (n, c))
    e = np.exp(given[0].astype(float) - given[0].astype(float).max(1, keepdims=True))
    return *made(ng.softmax(x, normalization_axes=C), [x], given), e / e.sum(1, keepdims=True)


def layer_norm(n, c, dtype="float32"):
    N, C = axes(N=n, C=c)
    x, g = ng.placeholder([N, C], dtype=dtype), ng.placeholder([C], dtype=dtype)
    given = drawn(dtype, (n, c), (c,))
    d = x - ng.mean(x, reduction_axes=C)
    y = d / ng.sqrt(ng.mean(d * d, reduction_axes=C) + 1e-3) * g
    xs, gs = (a.astype(float) for a in given)
    away = xs - xs.mean(1, keepdims=True)
    return *made(y, [x, g], given), away / np.sqrt((away * away).mean(1, keepdims=True) + 1e-3) * gs


def total(n, c, dtype="float32"):
    """The sum over all axes."""
    N, C = axes(N=n, C=c)
    x, given = ng.placeholder([N, C], dtype=dtype), drawn(dtype, (n, c))
    return *made(ng.sum(x, reduction_axes=[N, C]), [x], given), given[0].astype(float).sum()


def convolution(n, c, h, k, dtype="float32"):
    """relu of a 3x3 convolution of pictures h x (h + 2), padded by one."""
    N, C, H, W, K, R, S = axes(N=n, C=c, H=h, W=h + 2, K=k, R=3, S=3)
    x, w = ng.placeholder([N, C, H, W], dtype=dtype), ng.placeholder([K, C, R, S], dtype=dtype)
    given = drawn(dtype, (n, c, h, h + 2), (k, c, 3, 3))
    y = ng.relu(ng.conv(x, w, {H: R, W: S}, padding=1))
    wide = np.pad(given[0].astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    wanted = dict(zip("NKHW", (0, 1, 2, 3), strict=True))
    out = np.maximum(np.einsum("nchwrs,kcrs->nkhw", windows, given[1].astype(float)), 0)
    return *made(y, [x, w], given), out.transpose([wanted[a.name] for a in y.axes])


def cell(t, n, c, dtype="float32"):
    """The last state of t trips of h = tanh(h · w + x)."""
    T, N, C, D = axes(T=t, N=n, C=c, D=c)
    x, w, h = (ng.placeholder(a, dtype=dtype) for a in ([T, N, C], [C, D], [N, C]))
    given = drawn(dtype, (t, n, c), (c, c), (n, c))
    given[1] = (given[1].astype(float) / 4).astype(given[1].dtype)

    def step(before, now):
        after = ng.tanh(ng.cast_axes(ng.dot(before, w), [N, C]) + now)
        return after, after

    end, _ = ng.scan(step, h, x, axis=T)
    xs, ws, hs = (a.astype(float) for a in given)
    for row in xs:
        hs = np.tanh(hs @ ws + row)
    return *made(end, [x, w, h], given), hs


def kernels(scheduled):
    """All kernels, those of loops' bodies too."""
    return [*scheduled.kernels.values(), *[k for body in scheduled.bodies.values() for k in kernels(body)]]


def stages(scheduled):
    return [s for k in kernels(scheduled) for v in k.versions for s in v.stages]
