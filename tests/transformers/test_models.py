"""Small models of the kinds that people train, on the cpu: losses and all gradients are PyTorch's, at lengths that fill no vector."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import ngraph as ng
import ngraph.transformers as ngt

R = np.random.default_rng(0)


class Model:
    """Parameters made on both sides; `check` compares the loss and its derivatives."""

    def __init__(self, dtype):
        self.dtype, self.pairs = dtype, []

    def tensor(self, *axes, scale=1.0):
        value = (R.standard_normal([a.length for a in axes]) * scale).astype(self.dtype)
        ours, theirs = ng.placeholder(axes, dtype=self.dtype), torch.tensor(value, requires_grad=True)
        self.pairs.append((ours, theirs))
        return ours, theirs

    def check(self, ours, theirs, threads=2):
        theirs.backward()
        holes, values = [o for o, _ in self.pairs], [t.detach().numpy() for _, t in self.pairs]
        with ng.config(num_threads=threads), ngt.allocate_transformer("cpu") as t:
            loss, *slopes = t.computation([ours, *ng.deriv(ours, holes)], *holes)(*values)
        near = {"float32": 2e-4, "float64": 1e-10}[self.dtype]
        np.testing.assert_allclose(loss, theirs.detach(), rtol=near)
        for o, slope, (_, t) in zip(holes, slopes, self.pairs, strict=True):
            wanted = t.grad.numpy()
            np.testing.assert_allclose(slope, wanted, rtol=10 * near, atol=near * float(np.abs(wanted).max()), err_msg=str(o))


@pytest.fixture(params=["float32", "float64"])
def model(request):
    return Model(request.param)


def axes(**lengths):
    return [ng.make_axis(n, name=name) for name, n in lengths.items()]


def batch_norm(x, gain, bias, kept):
    over = [a for a in x.axes if a is not kept]
    away = x - ng.mean(x, over)
    return away / ng.sqrt(ng.mean(ng.square(away), over) + 1e-5) * gain + bias


@pytest.mark.parametrize("stride", [1, 2])
def test_a_residual_block(model, stride):
    n, c, h, w, k, r, s = axes(N=3, C=6, H=13, W=11, K=17, R=3, S=3)
    (x, tx), (f, tf), (g, tg), (b, tb) = model.tensor(n, c, h, w), model.tensor(k, c, r, s, scale=0.2), model.tensor(k), model.tensor(k)
    (p, tp), (o, one) = model.tensor(k, c, scale=0.3), axes(R=1, S=1)
    y = ng.relu(batch_norm(ng.conv(x, f, {h: r, w: s}, stride=stride, padding=1), g, b, k))
    short = ng.conv(x, ng.broadcast(p, [k, c, o, one]), {h: o, w: one}, stride=stride)
    out = ng.relu(y + short)
    ty = F.relu(F.batch_norm(F.conv2d(tx, tf, stride=stride, padding=1), None, None, tg, tb, training=True))
    tout = F.relu(ty + F.conv2d(tx, tp[:, :, None, None], stride=stride))
    pooled = ng.max_pool(out, dict.fromkeys(out.axes[2:], 2), stride=2)
    model.check(ng.sum(ng.square(pooled), out_axes=()), F.max_pool2d(tout, 2, 2).square().sum())


def test_a_transformer_block(model):
    n, t, d, m, e, u = axes(N=2, T=19, D=24, M=3, E=8, U=50)
    x, tx = model.tensor(n, t, d)
    (wq, tq), (wk, tk), (wv, tv) = (model.tensor(d, m, e, scale=0.2) for _ in range(3))
    (wo, to), (w1, t1), (w2, t2) = model.tensor(m, e, d, scale=0.2), model.tensor(d, u, scale=0.2), model.tensor(u, d, scale=0.2)
    s = ng.make_axis(19, name="S")

    def norm(v):
        away = v - ng.mean(v, [d])
        return away / ng.sqrt(ng.mean(ng.square(away), [d]) + 1e-5)

    def heads(v, w, rows):
        return ng.cast_axes(ng.axes_with_order(ng.dot(v, w), [n, t, m, e]), [n, rows, m, e])

    y = norm(x)
    mixed = ng.attention(heads(y, wq, t), heads(y, wk, s), heads(y, wv, s), features=[e], queries=t, keys=s, causal=True)
    h = x + ng.dot(mixed, wo)
    out = h + ng.dot(ng.gelu(ng.dot(norm(h), w1)), w2)
    ty = F.layer_norm(tx, [24])
    q, k, v = (torch.einsum("ntd,dme->nmte", ty, w) for w in (tq, tk, tv))
    th = tx + torch.einsum("nmte,med->ntd", F.scaled_dot_product_attention(q, k, v, is_causal=True), to)
    tout = th + F.gelu(F.layer_norm(th, [24]) @ t1) @ t2
    model.check(ng.mean(ng.square(out), out_axes=()), tout.square().mean())


def test_a_recurrent_network(model):
    t, n, i, h = axes(REC=9, N=5, I=7, H=13)
    k = ng.make_axis(13, name="K")
    x, tx = model.tensor(t, n, i)
    w, u, b = ([model.tensor(*a, scale=0.4) for _ in range(4)] for a in ((h, i), (h, k), (h,)))
    zero = ng.broadcast(ng.cast(ng.constant(0.0), model.dtype), [n, h])

    def step(carry, x):
        before, cell = carry
        own = ng.cast_axes(before, [n, k])
        gates = [ng.axes_with_order(ng.dot(x, w[g][0]) + ng.dot(own, u[g][0]) + b[g][0], [n, h]) for g in range(4)]
        cell = ng.sigmoid(gates[1]) * cell + ng.sigmoid(gates[0]) * ng.tanh(gates[2])
        after = ng.sigmoid(gates[3]) * ng.tanh(cell)
        return (after, cell), after

    _, every = ng.scan(step, (zero, zero), x, t)
    weights = [torch.cat([p[1] for p in own]) for own in (w, u, b)]
    lstm = torch.nn.LSTM(7, 13, dtype=tx.dtype)
    names = dict(zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0"), weights, strict=True))
    theirs = torch.func.functional_call(lstm, names | {"bias_hh_l0": torch.zeros(52, dtype=tx.dtype)}, (tx,))[0]
    model.check(ng.sum(ng.square(every), out_axes=()), theirs.square().sum())


def test_a_network_that_goes_down_and_up_again(model):
    n, c, h, w, k, m, r, s = axes(N=2, C=3, H=16, W=12, K=5, M=9, R=3, S=3)
    a, b = axes(R=2, S=2)
    (x, tx), (f1, t1), (f2, t2) = model.tensor(n, c, h, w), model.tensor(k, c, r, s, scale=0.3), model.tensor(m, k, r, s, scale=0.3)
    (up, tup), (f3, t3) = model.tensor(m, k, a, b, scale=0.3), model.tensor(c, m, r, s, scale=0.3)
    first = ng.relu(ng.conv(x, f1, {h: r, w: s}, padding=1))
    hh, ww = first.axes[2:]
    low = ng.relu(ng.conv(ng.max_pool(first, {hh: 2, ww: 2}, stride=2), f2, {hh: r, ww: s}, padding=1))
    high = ng.deconv(low, up, {low.axes[2]: a, low.axes[3]: b}, stride=2)
    joined = ng.concat_along_axis([first, ng.cast_axes(high, first.axes)], k)
    wide = joined.axes[1]
    taken = ng.slice_along_axis(joined, wide, slice(0, 9))
    out = ng.conv(taken, ng.cast_axes(f3, [c, taken.axes[1], r, s]), {hh: r, ww: s}, padding=1)
    tfirst = F.relu(F.conv2d(tx, t1, padding=1))
    tlow = F.relu(F.conv2d(F.max_pool2d(tfirst, 2, 2), t2, padding=1))
    tjoined = torch.cat([tfirst, F.conv_transpose2d(tlow, tup, stride=2)], 1)
    model.check(ng.mean(ng.square(out), out_axes=()), F.conv2d(tjoined[:, :9], t3, padding=1).square().mean())


@pytest.mark.parametrize("size", [(3, 3, 1), (5, 3, (2, 1)), (2, 3, (0, 1))], ids=["kept", "kept, wide", "shorter"])
@pytest.mark.parametrize("known", [True, False], ids=["lengths known", "open"])
def test_derivatives_of_derivatives_of_convolutions(model, size, known):
    """A penalty on gradients. Where a map keeps its length, the filter of what it needs has the axis of its result."""
    rows, columns, padding = size
    n, c, h, w, k, r, s = axes(N=2, C=3, H=9, W=7, K=5, R=rows, S=columns)
    if not known:
        h, w = ng.make_axis(name="H"), ng.make_axis(name="W")
    draw = {"N": 2, "C": 3, "H": 9, "W": 7, "K": 5, "R": rows, "S": columns}
    for names, scale in (("NCHW", 1.0), ("KCRS", 0.3)):
        own = [dict(zip("NCHWKRS", (n, c, h, w, k, r, s), strict=True))[a] for a in names]
        value = (R.standard_normal([draw[a] for a in names]) * scale).astype(model.dtype)
        model.pairs.append((ng.placeholder(own, dtype=model.dtype), torch.tensor(value, requires_grad=True)))
    (x, tx), (f, tf) = model.pairs
    y = ng.tanh(ng.conv(x, f, {h: r, w: s}, padding=dict(zip((h, w), padding, strict=True)) if isinstance(padding, tuple) else padding))
    ty = torch.tanh(F.conv2d(tx, tf, padding=padding))
    slopes, theirs = ng.deriv(ng.sum(y, out_axes=()), [x, f]), torch.autograd.grad(ty.sum(), [tx, tf], create_graph=True)
    model.check(sum(ng.sum(d * d, out_axes=()) for d in slopes), sum((d * d).sum() for d in theirs))


def test_a_filter_as_wide_as_there_are_examples_may_have_their_axis(model):
    """What its gradient is summed over is then an axis of the gradient."""
    n, c, h, k = axes(N=3, C=2, H=7, K=4)
    for own, shape in (((n, c, h), (3, 2, 7)), ((k, c, n), (4, 2, 3))):
        value = R.standard_normal(shape).astype(model.dtype)
        model.pairs.append((ng.placeholder(own, dtype=model.dtype), torch.tensor(value, requires_grad=True)))
    (x, tx), (f, tf) = model.pairs
    y, ty = ng.tanh(ng.conv(x, f, {h: n}, padding=1)), torch.tanh(F.conv1d(tx, tf, padding=1))
    slopes, theirs = ng.deriv(ng.sum(y * y, out_axes=()), [x, f]), torch.autograd.grad((ty * ty).sum(), [tx, tf], create_graph=True)
    model.check(sum(ng.sum(d * d, out_axes=()) for d in slopes), sum((d * d).sum() for d in theirs))
