"""Deconvolution against PyTorch's transposed convolution, values and both gradients; by name and by position."""

import itertools

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import AxisError

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(5)


def axes(**lengths):
    return [ng.make_axis(n, name=name) for name, n in lengths.items()]


def compute(results, feeds):
    with ngt.make_transformer() as transformer:
        return transformer.computation(results, *feeds)(*feeds.values())


def hole(*axes, shape=None):
    return ng.placeholder(axes, dtype="float64"), RNG.normal(size=shape or [len(a) for a in axes])


def with_gradients(y, x, f, error):
    e = ng.placeholder(y.axes, dtype="float64")
    return [y, ng.deriv(y, x, error=e), ng.deriv(y, f, error=e)], {e: error}


SPATIAL = {1: ("H",), 2: ("H", "W"), 3: ("D", "H", "W")}
CASES = [
    (dims, *numbers)
    for dims in (1, 2)
    for numbers in itertools.product((1, 2, 3), (0, 1, 2), (1, 2), (1, 2), (0, 1))
    if numbers[4] < numbers[0]
] + [(3, 1, 0, 1, 1, 0), (3, 2, 1, 1, 2, 1), (3, 3, 2, 2, 1, 2)]


@pytest.mark.parametrize("dims, stride, padding, dilation, groups, more", CASES)
def test_values_and_gradients_equal_pytorch(dims, stride, padding, dilation, groups, more):
    names = SPATIAL[dims]
    n, g, c, k = axes(N=2, G=groups, C=3, K=2)
    space = axes(**{name: 5 - at for at, name in enumerate(names)})
    window = axes(**{"F" + name: 3 - at if dims < 3 else 3 for at, name in enumerate(names)})
    x, xs = hole(n, g, c, *space)
    f, fs = hole(g, c, k, *window)
    long = [(len(a) - 1) * stride + (len(r) - 1) * dilation + 1 - 2 * padding + more for a, r in zip(space, window, strict=True)]
    out = {a: ng.make_axis(m, name=a.name) for a, m in zip(space, long, strict=True)} if more else None
    y = ng.deconv(x, f, dict(zip(space, window, strict=True)), stride=stride, padding=padding, dilation=dilation, groups=g, out=out)
    assert y.axes.names == ("N", "G", "K", *names) and list(y.axes.lengths[3:]) == long
    tx = torch.tensor(xs.reshape(2, groups * 3, *xs.shape[3:]), requires_grad=True)
    tf = torch.tensor(fs.reshape(groups * 3, 2, *fs.shape[3:]), requires_grad=True)
    function = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)[dims - 1]
    ty = function(tx, tf, None, stride, padding, more, groups, dilation)
    error = RNG.normal(size=[len(a) for a in y.axes])
    results, feed = with_gradients(y, x, f, error)
    got = compute(results, {x: xs, f: fs, **feed})
    expected = [t.detach().numpy() for t in (ty, *torch.autograd.grad(ty, (tx, tf), torch.tensor(error.reshape(ty.shape))))]
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b.reshape(a.shape), rtol=1e-9, atol=1e-10)


def test_it_is_the_adjoint_of_convolution():
    """<conv(x), y> = <x, deconv(y)> with the same filter and numbers."""
    c, h, w, r, s, k, n = axes(C=2, H=7, W=6, R=3, S=2, K=3, N=2)
    x, xs = hole(c, h, w, n)
    f, fs = hole(c, r, s, k)
    numbers = {"stride": {h: 2, w: 3}, "padding": {h: (1, 0), w: 1}, "dilation": {h: 1, w: 2}}
    there = ng.conv(x, f, {h: r, w: s}, **numbers)
    y, ys = hole(*there.axes)
    back = ng.deconv(
        y, f, {"H": r, "W": s}, **{key: {a.name: v for a, v in by.items()} for key, by in numbers.items()}, out={"H": h, "W": w}
    )
    one, other = compute([ng.sum(there * y, out_axes=()), ng.sum(x * back, out_axes=())], {x: xs, f: fs, y: ys})
    np.testing.assert_allclose(one, other, rtol=1e-12)


PARAMS = {
    f"{what}_{side}": v
    for what, values in (("pad", (0, 1, 2)), ("str", (1, 2, 3)), ("dil", (1, 2, 1)))
    for side, v in zip("dhw", values, strict=True)
}


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("known", [True, False])
def test_five_axes_by_position(known, more):
    c, d, h, w, n, t, r, s, k = axes(C=2, D=2, H=3, W=4, N=2, T=1, R=3, S=2, K=3)
    x, xs = hole(c, d, h, w, n)
    f, fs = hole(c, t, r, s, k)
    lengths = (2, 1 * 2 + 2 * 2 + 1 + 2 - 2 + more * known, 3 * 3 + 1 + 1 - 4 + more * known)
    out = axes(**{name: m if known else None for name, m in zip("MPQ", lengths, strict=True)})
    y = ng.deconvolution(PARAMS, x, f, [k, *out, n])
    assert y.axes.lengths == (3, *lengths, 2) and y.axes.names == ("K", "M", "P", "Q", "N")
    ty = torch.conv_transpose3d(
        torch.tensor(xs).permute(4, 0, 1, 2, 3),
        torch.tensor(fs).permute(0, 4, 1, 2, 3),
        None,
        (1, 2, 3),
        (0, 1, 2),
        (0, more * known, more * known),
        1,
        (1, 2, 1),
    )
    np.testing.assert_allclose(compute(y, {x: xs, f: fs}), ty.permute(1, 2, 3, 4, 0).numpy(), rtol=1e-10, atol=1e-12)


def test_lengths_may_come_with_the_call():
    c, r, k, n = axes(C=2, R=3, K=2, N=2)
    h = ng.make_axis(name="H")
    x, xs = hole(c, h, n, shape=(2, 4, 2))
    f, fs = hole(c, r, k)
    ty = torch.conv_transpose1d(torch.tensor(xs).permute(2, 0, 1), torch.tensor(fs).permute(0, 2, 1), stride=2, padding=1)
    got = compute(ng.deconv(x, f, {h: r}, stride=2, padding=1), {x: xs, f: fs})
    np.testing.assert_allclose(got, ty.permute(1, 2, 0).numpy(), rtol=1e-12)


def test_what_does_not_fit_is_refused():
    c, d, h, w, n, t, r, s, k = axes(C=2, D=2, H=3, W=4, N=2, T=1, R=3, S=2, K=3)
    x, f = hole(c, d, h, w, n)[0], hole(c, t, r, s, k)[0]
    with pytest.raises(AxisError, match=r"deconvolution.*str_h"):
        ng.deconvolution({key: v for key, v in PARAMS.items() if key != "str_h"}, x, f, [k, d, h, w, n])
    with pytest.raises(AxisError, match="would have length 2"):
        ng.deconvolution(PARAMS, x, f, [k, ng.make_axis(5, name="M"), ng.make_axis(name="P"), ng.make_axis(name="Q"), n])
    with pytest.raises(AxisError, match="length 7 to 8"):
        ng.deconvolution(PARAMS, x, f, [k, ng.make_axis(name="M"), ng.make_axis(9, name="P"), ng.make_axis(name="Q"), n])
    with pytest.raises(AxisError, match="stride 0"):
        ng.deconv(x, f, {h: r}, stride=0)
    with pytest.raises(AxisError, match="not five"):
        ng.deconvolution(PARAMS, ng.sum(x, reduction_axes=[d]), f, [k, d, h, w, n])
