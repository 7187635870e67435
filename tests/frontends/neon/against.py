"""A layer beside a PyTorch function of the same weights: values, and gradients of the input and of each weight."""

import numpy as np
import torch

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.frontends.neon import precision

LIMIT = {"float64": 1e-9, "float32": 1e-5}


def compare(layer, theirs, array, axes, dtype="float64", out=None, limit=None):
    """`theirs(x, weights)` takes tensors, weights by path; `out` names the axes of its result in order."""
    x = ng.placeholder(axes, dtype=dtype)
    with precision(dtype, dtype):
        y = layer(x)
    if out is not None:
        y = ng.axes_with_order(y, [y.axes.find_axis(n) for n in out])
    slope = np.random.default_rng(5).normal(size=[len(a) for a in y.axes]).astype(dtype)
    weights = {p: v for p, v in layer.paths().items() if v.is_trainable}
    random = np.random.default_rng(7)
    total = ng.sum(y * ng.constant(slope, y.axes), out_axes=())
    with ngt.make_transformer() as transformer:
        run = transformer.computation([y, ng.deriv(total, x), *(ng.deriv(total, w) for w in weights.values())], x)
        values = {p: random.normal(size=w.axes.lengths).astype(dtype) * 0.5 for p, w in weights.items()}
        for p, w in weights.items():
            transformer.set(w, values[p])
        got = run(array.astype(dtype))
    tx = torch.tensor(array.astype(dtype), requires_grad=True)
    tw = {p: torch.tensor(v, requires_grad=True) for p, v in values.items()}
    ty = theirs(tx, tw)
    (ty * torch.tensor(slope)).sum().backward()
    expected = [ty.detach(), tx.grad, *(w.grad for w in tw.values())]
    for name, a, b in zip(["value", "input", *tw], got, expected, strict=True):
        b = b.numpy()
        assert a.shape == b.shape, (name, a.shape, b.shape)
        scale = max(np.abs(b).max(), 1.0) if b.size else 1.0
        assert np.abs(a - b).max(initial=0) <= (limit or LIMIT[dtype]) * scale, (name, np.abs(a - b).max() / scale)
