"""Gradients alone, of arrays in the order in which a user has them, beside PyTorch's: `python bench/gradients.py [NAME …]`

For each op three times: its gradients alone (PyTorch has then kept what its own pass found, as the places of maxima; ngraph finds it
again), the op with its gradients, and the op alone. Both take turns in one process on NGRAPH_NUM_THREADS threads (2 unless told); medians
of calls, then of rounds. A ratio is PyTorch's time over ours; results are compared first. NAME: what an op's name begins with. Needs
PyTorch, which the tests' virtual environment has.
"""

import numpy as np
import torch
from beside import axes, main, medians
from torch.nn import functional as F

import ngraph as ng
import ngraph.transformers as ngt

CALLS = 25
DRAW = np.random.default_rng(0)


def drawn(op):
    return DRAW.standard_normal([len(a) for a in op.axes], dtype=np.float32)


def images(n, c, h, last):
    """A placeholder of images, its axes N, C, H, W in the order asked for, and the two functions that turn arrays about for PyTorch."""
    n, c, h, w = axes(N=n, C=c, H=h, W=h)
    x = ng.placeholder([n, h, w, c] if last else [n, c, h, w])
    if last:
        return x, h, w, c, (lambda t: t.permute(0, 3, 1, 2)), (lambda t: t.permute(0, 2, 3, 1))
    return x, h, w, c, (lambda t: t), (lambda t: t)


def pooling(kind, window, stride, pad, size, last=False):
    x, h, w, _, there, back = images(8, 64, size, last)
    if kind == "max":
        y = ng.max_pool(x, {h: window, w: window}, stride=stride, padding=pad)
        return y, [x], lambda t: back(F.max_pool2d(there(t), window, stride, pad))
    y = ng.avg_pool(x, {h: window, w: window}, stride=stride, padding=pad)
    return y, [x], lambda t: back(F.avg_pool2d(there(t), window, stride, pad, count_include_pad=False))


def convolution(c, k, size, window, stride, last=False, depthwise=False, n=16):
    x, h, w, channels, there, back = images(n, c, size, last)
    k, r, s = axes(K=k, R=window, S=window)
    f = ng.placeholder([channels, r, s] if depthwise else [k, channels, r, s])
    y = ng.conv(x, f, {h: r, w: s}, stride=stride, padding=window // 2, groups=channels if depthwise else ())
    if depthwise:
        return y, [x, f], lambda t, u: back(F.conv2d(there(t), u[:, None], stride=stride, padding=window // 2, groups=c))
    return y, [x, f], lambda t, u: back(F.conv2d(there(t), u, stride=stride, padding=window // 2))


def rows(make, other):
    n, c = axes(N=4096, C=1024)
    x = ng.placeholder([n, c])
    return make(x, c), [x], other


def layer_norm():
    n, c = axes(N=4096, C=1024)
    x, g, b = ng.placeholder([n, c]), ng.placeholder([c]), ng.placeholder([c])
    d = x - ng.mean(x, reduction_axes=[c])
    y = d / ng.sqrt(ng.mean(d * d, reduction_axes=[c]) + 1e-5) * g + b
    return y, [x, g, b], lambda t, u, v: F.layer_norm(t, (1024,), u, v, 1e-5)


def batch_norm():
    x, h, w, c, *_ = images(32, 64, 56, False)
    g, b = ng.placeholder([c]), ng.placeholder([c])
    d = x - ng.mean(x, out_axes=[c])
    y = ng.cast_axes(d / ng.sqrt(ng.mean(d * d, out_axes=[c]) + 1e-5) * g + b, x.axes)
    return y, [x, g, b], lambda t, u, v: F.batch_norm(t, None, None, u, v, True)


def padded():
    x, h, w, *_ = images(16, 3, 512, False)
    return ng.pad(x, {h: (3, 3), w: (3, 3)}), [x], lambda t: F.pad(t, (3, 3, 3, 3))


def vectors():
    b, n, k = axes(B=4, N=1024, K=1024)
    m, v = ng.placeholder([b, n, k]), ng.placeholder([b, k])
    return ng.sum(m * v, reduction_axes=[k]), [m, v], lambda t, u: (t @ u[:, :, None])[:, :, 0]


OPS = {}
for last, order in ((False, "NCHW"), (True, "NHWC")):
    OPS |= {
        f"max pool 3 x 3, stride 2, 112, {order}": lambda last=last: pooling("max", 3, 2, 1, 112, last),
        f"max pool 3 x 3, stride 2, 111, {order}": lambda last=last: pooling("max", 3, 2, 1, 111, last),
        f"max pool 2 x 2, 112, {order}": lambda last=last: pooling("max", 2, 2, 0, 112, last),
        f"average pool 3 x 3, stride 2, 112, {order}": lambda last=last: pooling("avg", 3, 2, 1, 112, last),
        f"average pool 2 x 2, 112, {order}": lambda last=last: pooling("avg", 2, 2, 0, 112, last),
        f"conv 64 to 64, 56, 3 x 3, {order}": lambda last=last: convolution(64, 64, 56, 3, 1, last),
        f"conv 64 to 128, 56, 3 x 3, stride 2, {order}": lambda last=last: convolution(64, 128, 56, 3, 2, last),
        f"conv 64 to 256, 56, 1 x 1, {order}": lambda last=last: convolution(64, 256, 56, 1, 1, last),
        f"conv 256 to 512, 28, 1 x 1, stride 2, {order}": lambda last=last: convolution(256, 512, 28, 1, 2, last),
        f"conv 3 to 64, 224, 7 x 7, stride 2, {order}": lambda last=last: convolution(3, 64, 224, 7, 2, last, n=8),
    }
OPS |= {
    "depthwise conv 64, 56, 3 x 3, NCHW": lambda: convolution(64, 64, 56, 3, 1, depthwise=True, n=8),
    "depthwise conv 64, 112, 3 x 3, stride 2, NCHW": lambda: convolution(64, 64, 112, 3, 2, depthwise=True, n=8),
    "softmax, rows of 1,024": lambda: rows(lambda x, c: ng.softmax(x, [c]), lambda t: torch.softmax(t, 1)),
    "log softmax, rows of 1,024": lambda: rows(lambda x, c: ng.log(ng.softmax(x, [c])), lambda t: torch.log_softmax(t, 1)),
    "layer norm, rows of 1,024": layer_norm,
    "batch norm, 32 x 64 x 56 x 56": batch_norm,
    "gelu, 4,096 x 1,024": lambda: rows(lambda x, c: ng.gelu(x), F.gelu),
    "tanh, 4,096 x 1,024": lambda: rows(lambda x, c: ng.tanh(x), torch.tanh),
    "maximum of rows of 1,024": lambda: rows(lambda x, c: ng.max(x, reduction_axes=[c]), lambda t: t.amax(1)),
    "largest 8 of rows of 1,024": lambda: rows(lambda x, c: ng.top_k(x, c, 8)[0], lambda t: t.topk(8, 1)[0]),
    "running sums of rows of 1,024": lambda: rows(lambda x, c: ng.cumsum(x, c), lambda t: t.cumsum(1)),
    "rows of 1,024 the other way round": lambda: rows(lambda x, c: ng.flip(x, c), lambda t: t.flip(1)),
    "turned over, 4,096 x 1,024": lambda: rows(lambda x, c: ng.axes_with_order(x, x.axes[::-1]) + 0.0, lambda t: t.t().contiguous()),
    "padded by 3, 16 x 3 x 512 x 512": padded,
    "4 matrices of 1,024 x 1,024 times vectors": vectors,
}


def measured(make):
    """[(our seconds, PyTorch's)] of the gradients, of the op with them, of the op."""
    y, holes, other = make()
    dy = ng.placeholder(y.axes)
    arrays, d = [drawn(x) for x in holes], drawn(y)
    tensors, td = [torch.tensor(a, requires_grad=True) for a in arrays], torch.tensor(d)
    out = other(*tensors)
    t = ngt.make_transformer()
    gradients = [ng.deriv(y, x, dy) for x in holes]
    alone, both, forward = t.computation(gradients, *holes, dy), t.computation([y, *gradients], *holes, dy), t.computation(y, *holes)
    for got, tensor in zip(alone(*arrays, d), torch.autograd.grad(out, tensors, td, retain_graph=True), strict=True):
        wanted = tensor.numpy()
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3 * max(1.0, float(np.abs(wanted).max())))

    def forward_there():
        with torch.no_grad():
            other(*tensors)

    pairs = [
        (lambda: alone(*arrays, d), lambda: torch.autograd.grad(out, tensors, td, retain_graph=True)),
        (lambda: both(*arrays, d), lambda: torch.autograd.grad(other(*tensors), tensors, td)),
        (lambda: forward(*arrays), forward_there),
    ]
    return medians(pairs, CALLS)


def row(_, make):
    return [f"{mine * 1e3:.2f}, {theirs * 1e3:.2f}: {theirs / mine:.2f}" for mine, theirs in measured(make)]


if __name__ == "__main__":
    main(OPS, ["milliseconds, ngraph and PyTorch: ratio", "gradients alone", "with the op", "the op alone"], row)
