"""Convolution against PyTorch, values and both gradients; and what only named axes can say, against plain loops."""

import itertools

import numpy as np
import pytest
import torch

import ngraph as ng
from ngraph.autodiff import deriv
from ngraph.errors import AxisError
from ngraph.op_graph import dtypes
from ngraph.ops.convolution import conv, convolution, convolve
from ngraph.ops.rearrange import axes_with_order, cast_axes, flatten, unflatten
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower
from ngraph.transformers import make_transformer_factory

RNG = np.random.default_rng(3)


def compute(results, feeds):
    return interpret(lower(results, list(feeds)).program, list(feeds.values()))[0]


def axes(**lengths):
    return [ng.make_axis(n, name=name) for name, n in lengths.items()]


def hole(*axes, dtype="float64", shape=None):
    x = ng.placeholder(axes, dtype=dtype)
    return x, RNG.normal(size=shape or [len(a) for a in axes]).astype(dtype)


def with_gradients(y, x, f, feeds, error):
    """y, dx, df for an adjoint of y."""
    e = ng.placeholder(y.axes, dtype=y.dtype)
    return compute([y, deriv(y, x, error=e), deriv(y, f, error=e)], {**feeds, e: error})


def torch_gradients(y, x, f, error):
    return [t.detach().numpy() for t in (y, *torch.autograd.grad(y, (x, f), torch.tensor(error)))]


SPATIAL = {1: ("H",), 2: ("H", "W"), 3: ("D", "H", "W")}
CASES = [
    (dims, stride, padding, dilation, groups)
    for dims, (stride, padding, dilation, groups) in itertools.product((1, 2), itertools.product((1, 2, 3), (0, 1, 3), (1, 2), (1, 2)))
] + [(3, 1, 0, 1, 1), (3, 2, 1, 1, 1), (3, 2, 2, 2, 2), (3, 1, 1, 2, 2)]


@pytest.mark.parametrize("dims, stride, padding, dilation, groups", CASES)
def test_values_and_gradients_equal_pytorch(dims, stride, padding, dilation, groups):
    names = SPATIAL[dims]
    n, g, c, k = axes(N=2, G=groups, C=3, K=2)
    space = axes(**{name: 8 - 2 * at for at, name in enumerate(names)})
    window = axes(**{"F" + name: 3 - at for at, name in enumerate(names)})
    x, xs = hole(n, g, c, *space)
    f, fs = hole(g, k, c, *window)
    y = conv(x, f, dict(zip(space, window, strict=True)), stride=stride, padding=padding, dilation=dilation, groups=g)
    function = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}[dims]
    tx = torch.tensor(xs.reshape(2, groups * 3, *xs.shape[3:]), requires_grad=True)
    tf = torch.tensor(fs.reshape(groups * 2, 3, *fs.shape[3:]), requires_grad=True)
    ty = function(tx, tf, stride=stride, padding=padding, dilation=dilation, groups=groups)
    error = RNG.normal(size=ty.shape)
    assert [a.name for a in y.axes] == ["N", "G", "K", *names]
    found = with_gradients(y, x, f, {x: xs, f: fs}, error.reshape(2, groups, 2, *ty.shape[2:]))
    for mine, theirs in zip(found, torch_gradients(ty, tx, tf, error), strict=True):
        np.testing.assert_allclose(mine.reshape(theirs.shape), theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("stride, dilation", [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_gradients_of_gradients_equal_pytorch(stride, dilation):
    n, c, k, h, w, r, s = axes(N=2, C=2, K=3, H=7, W=6, R=3, S=2)
    x, xs = hole(n, c, h, w)
    f, fs = hole(k, c, r, s)
    y = conv(x, f, {h: r, w: s}, stride=stride, padding=1, dilation=dilation)
    loss = ng.sum(y * y * y, out_axes=())
    dx, df = deriv(loss, [x, f])
    second = deriv(ng.sum(dx * dx, out_axes=()) + ng.sum(df * df * df, out_axes=()), [x, f])
    found = compute([dx, df, *second], {x: xs, f: fs})
    tx, tf = torch.tensor(xs, requires_grad=True), torch.tensor(fs, requires_grad=True)
    first = torch.autograd.grad((torch.conv2d(tx, tf, stride=stride, padding=1, dilation=dilation) ** 3).sum(), (tx, tf), create_graph=True)
    again = torch.autograd.grad((first[0] ** 2).sum() + (first[1] ** 3).sum(), (tx, tf))
    for mine, theirs in zip(found, (*first, *again), strict=True):
        np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=1e-9, atol=1e-9 * np.abs(mine).max())


def test_input_dilation_is_pytorchs_transposed_convolution():
    n, c, k, h, r = axes(N=2, C=3, K=2, H=5, R=3)
    x, xs = hole(n, c, h)
    f, fs = hole(c, k, r)
    out = ng.make_axis(11, name="P")  # (5 - 1) * 2 - 2 * 1 + 3 - 1 + 1 + output padding 1
    y = convolve(x, f, over=(c,), spatial=((h, r, out, 1, -1, 2, -1),))
    theirs = torch.conv_transpose1d(torch.tensor(xs), torch.tensor(fs), stride=2, padding=1, output_padding=0)
    found = compute([y], {x: xs, f: fs})[0]
    assert [a.name for a in y.axes] == ["N", "K", "P"]
    np.testing.assert_allclose(found[..., : theirs.shape[-1]], theirs.numpy(), rtol=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_any_numbers_follow_the_relation_of_the_three_indices(seed):
    """i * in_dilation = o * stride + r * dilation - pad, by plain loops; gradients by linearity in each operand."""
    draw = np.random.default_rng(seed)
    n, c, k, g = axes(N=2, C=2, K=2, G=2)
    h, r, o = (ng.make_axis(int(draw.integers(1, 7)), name=name) for name in draw.choice(["H", "R", "P"], 3))
    stride, in_dilation = int(draw.integers(1, 4)), int(draw.integers(1, 4))
    dilation, pad = int(draw.choice([-3, -2, -1, 1, 2, 3])), int(draw.integers(-4, 5))
    x, xs = hole(n, h, g, c)
    f, fs = hole(c, k, r, g)
    y = convolve(x, f, over=(c,), spatial=((h, r, o, stride, dilation, in_dilation, pad),))
    reads = np.zeros((len(o), len(r), len(h)))
    for at in np.ndindex(*reads.shape):
        reads[at] = at[2] * in_dilation == at[0] * stride + at[1] * dilation - pad
    error = RNG.normal(size=y.axes.lengths)
    assert [a.label for a in y.axes] == ["N", o.name, "G", "K"]
    found = with_gradients(y, x, f, {x: xs, f: fs}, error)
    np.testing.assert_allclose(found[0], np.einsum("nhgc,ckrg,orh->nogk", xs, fs, reads), atol=1e-12)
    np.testing.assert_allclose(found[1], np.einsum("nogk,ckrg,orh->nhgc", error, fs, reads), atol=1e-12)
    np.testing.assert_allclose(found[2], np.einsum("nhgc,nogk,orh->ckrg", xs, error, reads), atol=1e-12)


def test_depthwise_and_names_of_channels_do_not_matter():
    n, c, h, w, r, s = axes(N=2, channels=4, H=6, W=5, R=3, S=3)
    x, xs = hole(h, n, w, c)
    f, fs = hole(r, c, s)
    y = conv(x, f, {"H": "R", "W": "S"}, groups="channels", padding="same")
    theirs = torch.conv2d(torch.tensor(xs.transpose(1, 3, 0, 2)), torch.tensor(fs.transpose(1, 0, 2)[:, None]), padding="same", groups=4)
    assert [a.name for a in y.axes] == ["H", "N", "W", "channels"]
    np.testing.assert_allclose(compute([y], {x: xs, f: fs})[0].transpose(1, 3, 0, 2), theirs.numpy(), rtol=1e-11)


def test_groups_of_a_joined_axis():
    """How a framework's `groups=2` is said: the channels are taken apart."""
    n, c, k, g, h, r = axes(N=2, C=4, K=6, G=2, H=5, R=3)
    inner, outer = ng.make_axis(2, name="CG"), ng.make_axis(3, name="KG")
    x, xs = hole(n, c, h)
    f, fs = hole(k, inner, r)
    y = conv(unflatten(x, [n, g, inner, h]), unflatten(f, [g, outer, inner, r]), {h: r}, groups=g)
    y = flatten(y, [g, outer])
    theirs = torch.conv1d(torch.tensor(xs), torch.tensor(fs), groups=2)
    np.testing.assert_allclose(compute([y], {x: xs, f: fs})[0], theirs.numpy(), rtol=1e-11)


def test_one_axis_in_several_roles():
    """The filter's axis is called H as the input's is, so is the result's; and the batch's name returns in the filter."""
    h, h3, c, n, k = axes(H=6, H_=3, C=2, N=2, K=2)
    h3.family.name = "H"
    x, xs = hole(c, h, n)
    f, fs = hole(h3, k, c)
    y = conv(x, f, [h], padding="same")
    tx, tf = torch.tensor(xs.transpose(2, 0, 1), requires_grad=True), torch.tensor(fs.transpose(1, 2, 0), requires_grad=True)
    ty = torch.conv1d(tx, tf, padding=1)
    error = RNG.normal(size=ty.shape)
    y_, dx, df = with_gradients(y, x, f, {x: xs, f: fs}, error.transpose(1, 2, 0))
    wanted = torch_gradients(ty, tx, tf, error)
    assert [a.name for a in y.axes] == ["K", "H", "N"]
    np.testing.assert_allclose(y_, wanted[0].transpose(1, 2, 0), rtol=1e-11)
    np.testing.assert_allclose(dx, wanted[1].transpose(1, 2, 0), rtol=1e-11)
    np.testing.assert_allclose(df, wanted[2].transpose(2, 0, 1), rtol=1e-11)


def test_the_batch_axis_of_a_filter_stays():
    """Each example has its own filter: one convolution for each."""
    n, h, r = axes(N=3, H=6, R=2)
    x, xs = hole(n, h)
    f, fs = hole(n, r)
    found = compute([conv(x, f, {h: r})], {x: xs, f: fs})[0]
    np.testing.assert_allclose(found, [np.correlate(a, b, "valid") for a, b in zip(xs, fs, strict=True)], rtol=1e-11)


def test_sixteen_bit_floats_are_summed_in_32():
    n, c, h, r = axes(N=2, C=600, H=4, R=3)
    x, xs = hole(n, c, h, dtype="float16")
    f, fs = hole(c, r, dtype="float16")
    y = conv(x, f, {h: r})
    assert y.attrs["accumulate"] is dtypes.float32 and y.dtype is dtypes.float16
    theirs = torch.conv1d(torch.tensor(xs.astype(np.float32)), torch.tensor(fs.astype(np.float32))[None]).numpy()[:, 0]
    np.testing.assert_allclose(compute([y], {x: xs, f: fs})[0].astype(np.float32), theirs, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("transformer", ["numpy", "direct", "cpu"])
def test_the_dtype_of_sums_may_be_a_name(transformer):
    c, h, r, k = axes(C=300, H=4, R=3, K=2)
    x, xs = hole(c, h, dtype="float16")
    f, fs = hole(c, r, dtype="float16")
    w, ws = hole(c, k, dtype="float16")
    made = ng.contract(x, w, over="C", accumulate="float64"), conv(x, f, {h: r}, accumulate=np.float64)
    with make_transformer_factory(transformer)() as t:
        product, windows = t.computation(made, x, f, w)(xs, fs, ws)
    a, b, c = (v.astype(np.float64) for v in (xs, fs, ws))
    np.testing.assert_array_equal(product, (a.T @ c).astype(np.float16))
    np.testing.assert_array_equal(windows, np.array([(a[:, k : k + 3] * b).sum() for k in (0, 1)]).astype(np.float16))


@pytest.mark.parametrize("length", [5, 8, 9])
@pytest.mark.parametrize("stride, padding", [(1, 0), (2, 1), (3, (2, 0)), (1, "same")])
def test_lengths_that_come_with_the_call(length, stride, padding):
    n, h = ng.make_axis(name="N"), ng.make_axis(name="H")
    c, k, r = axes(C=2, K=3, R=3)
    x, xs = hole(n, c, h, shape=(2, 2, length))
    f, fs = hole(k, c, r)
    y = conv(x, f, {h: r}, stride=stride, padding=padding)
    assert y.axes.lengths == (None, 3, None)
    before, after = {"same": (1, 1)}.get(padding, padding if isinstance(padding, tuple) else (padding, padding))
    tx, tf = torch.tensor(xs, requires_grad=True), torch.tensor(fs, requires_grad=True)
    ty = torch.conv1d(torch.nn.functional.pad(tx, (before, after)), tf, stride=stride)
    error = RNG.normal(size=ty.shape)
    found = with_gradients(y, x, f, {x: xs, f: fs}, error)
    for mine, theirs in zip(found, torch_gradients(ty, tx, tf, error), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-12)


def five(order=(0, 1, 2, 3, 4), names="KMPQN", open_lengths=False):
    """A convolution by position with unlike numbers along each side, and what PyTorch makes of it."""
    c, d, h, w, n, t, r, s, k = axes(C=2, D=5, H=7, W=6, N=3, T=2, R=3, S=2, K=4)
    params = {"pad_d": 0, "pad_h": 1, "pad_w": 2, "str_d": 1, "str_h": 2, "str_w": 3, "dil_d": 2, "dil_h": 1, "dil_w": 2}
    x, xs = hole(c, d, h, w, n)
    f, fs = hole(c, t, r, s, k)
    theirs = torch.conv3d(
        torch.tensor(xs.transpose(4, 0, 1, 2, 3)),
        torch.tensor(fs.transpose(4, 0, 1, 2, 3)),
        stride=(1, 2, 3),
        padding=(0, 1, 2),
        dilation=(2, 1, 2),
    )
    theirs = theirs.numpy().transpose(1, 2, 3, 4, 0)
    out = [ng.make_axis(None if open_lengths else m, name=name) for m, name in zip(theirs.shape, names, strict=True)]
    out = [k if name == "K" else n if name == "N" else a for a, name in zip(out, names, strict=True)]
    y = convolution(params, x, f, [out[i] for i in order])
    return y, {x: xs, f: fs}, theirs.transpose(order), [out[i] for i in order]


@pytest.mark.parametrize("names", ["KMPQN", "CDHWN", "KDHWB"])
@pytest.mark.parametrize("open_lengths", [False, True])
def test_five_axes_by_position(names, open_lengths):
    y, feeds, theirs, out = five(names=names, open_lengths=open_lengths)
    assert list(y.axes) == out and y.axes.lengths == theirs.shape
    np.testing.assert_allclose(compute([y], feeds)[0], theirs, rtol=1e-11)


def test_five_axes_in_the_callers_order():
    y, feeds, theirs, out = five(order=(4, 0, 1, 2, 3))
    assert list(y.axes) == out
    np.testing.assert_allclose(compute([y], feeds)[0], theirs, rtol=1e-11)


def test_integers_wrap():
    h, r = axes(H=4, R=2)
    x, f = ng.placeholder([h], dtype="int8"), ng.placeholder([r], dtype="int8")
    found = compute([conv(x, f, {h: r})], {x: np.array([100, 100, -3, 2], "int8"), f: np.array([2, 1], "int8")})[0]
    np.testing.assert_array_equal(found, np.array([300, 197, -4]).astype("int8"))


class TestMistakes:
    def setup_method(self):
        self.c, self.h, self.n, self.r, self.k = axes(C=3, H=5, N=2, R=3, K=2)
        self.x, self.f = ng.placeholder([self.c, self.h, self.n]), ng.placeholder([self.c, self.r, self.k])

    def error(self, call, *parts):
        with pytest.raises(AxisError) as caught:
            call()
        message = str(caught.value)
        assert message.startswith("test") or "test_convolution.py" in message.splitlines()[0], message
        for part in parts:
            assert part in message, message

    def test_channels_of_unlike_length(self):
        f = ng.placeholder([ng.make_axis(4, name="C"), self.r, self.k])
        self.error(lambda: conv(self.x, f, {self.h: self.r}), "C has length 3", "4")

    def test_an_axis_that_is_not_there(self):
        self.error(lambda: conv(self.x, self.f, {self.r: self.r}), "R is not an axis", "C=3, H=5, N=2")

    def test_a_window_that_fits_nowhere(self):
        wide = ng.placeholder([self.c, ng.make_axis(8, name="R"), self.k])
        self.error(lambda: conv(self.x, wide, {self.h: "R"}, padding=1), "R=8 fits along H=5", "(1, 1) is 7", "more padding")
        self.error(lambda: conv(self.x, self.f, {self.h: self.r}, dilation=3), "with dilation 3 it is 7 long")
        assert conv(self.x, wide, {self.h: "R"}, padding=(1, 2)).axes[1].length == 1

    def test_one_filter_axis_for_two(self):
        self.error(lambda: conv(self.x, self.f, {self.h: self.r, self.n: self.r}, padding=1), "[R=3, R=3] of f", "a filter axis of its own")

    def test_a_filter_axis_that_is_in_the_input_too(self):
        f = ng.placeholder([self.c, self.r, ng.make_axis(5, name="H")])
        self.error(lambda: conv(self.x, f, {self.h: self.r}), "twice")

    def test_an_output_axis_of_another_length(self):
        self.error(lambda: conv(self.x, self.f, {self.h: self.r}, out={self.h: ng.make_axis(4, name="P")}), "P=4", "length 3")

    def test_numbers_below_one(self):
        self.error(lambda: conv(self.x, self.f, {self.h: self.r}, stride=0), "stride 0")
        self.error(lambda: conv(self.x, self.f, {self.h: self.r}, dilation=-1), "dilation -1")

    def test_a_setting_for_no_axis(self):
        self.error(lambda: conv(self.x, self.f, {self.h: self.r}, stride={self.n: 2}), "nothing is said for H")

    def test_same_with_a_stride_needs_lengths(self):
        x = ng.placeholder([self.c, ng.make_axis(name="H")])
        self.error(lambda: conv(x, self.f, {"H": self.r}, stride=2, padding="same"), "needs the lengths")

    def test_missing_parameters_are_all_named(self):
        x = ng.placeholder(axes(C=3, D=1, H=5, W=5, N=2))
        f = ng.placeholder(axes(C=3, T=1, R=3, S=3, K=2))
        given = dict.fromkeys(("pad_d", "pad_h", "pad_w", "str_d", "str_h", "str_w"), 1)
        self.error(lambda: convolution(given, x, f, axes(K=2, M=1, P=3, Q=3, N=2)), "dil_d, dil_h, dil_w")

    def test_first_axes_that_differ(self):
        x = ng.placeholder(axes(C=3, D=1, H=5, W=5, N=2))
        f = ng.placeholder(axes(B=3, T=1, R=3, S=3, K=2))
        given = {f"{what}_{side}": int(what != "pad") for what in ("pad", "str", "dil") for side in "dhw"}
        self.error(lambda: convolution(given, x, f, axes(K=2, M=1, P=3, Q=3, N=2)), "C=3", "B=3", "map_roles")
        f = ng.placeholder(axes(C=3, T=1, R=3, S=3, K=2))
        self.error(lambda: convolution(given, x, f, axes(K=2, M=1, P=4, Q=3, N=2)), "P=4", "length 3")
        self.error(lambda: convolution(given, self.x, f, axes(K=2, M=1, P=4, Q=3, N=2)), "five axes C D H W N")


def test_any_order_of_the_axes_gives_the_same():
    n, c, k, h, w, r, s = axes(N=2, C=2, K=3, H=5, W=4, R=3, S=2)
    x, xs = hole(n, c, h, w)
    f, fs = hole(k, c, r, s)
    wanted = compute([conv(x, f, {h: r, w: s}, padding=1)], {x: xs, f: fs})[0]
    for order in itertools.permutations(range(4)):
        px, pf = ng.placeholder([x.axes[i] for i in order], dtype="float64"), ng.placeholder([f.axes[i] for i in order], dtype="float64")
        y = axes_with_order(conv(px, pf, {w: s, h: r}, padding=1), [n, k, h, w])
        found = compute([y], {px: xs.transpose(order), pf: fs.transpose(order)})[0]
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_positions_only_name_the_result():
    h, r, p = axes(H=5, R=3, P=3)
    x, xs = hole(h)
    f, fs = hole(r)
    named = conv(x, f, {h: r}, out={h: p})
    cast = cast_axes(conv(x, f, {h: r}), [p])
    a, b = compute([named, cast], {x: xs, f: fs})
    assert list(named.axes) == list(cast.axes) == [p]
    np.testing.assert_array_equal(a, b)
