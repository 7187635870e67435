"""Layers against PyTorch with the same weights: values and all gradients, over orders of axes, paddings, strides, dilations, groups."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from against import compare

import ngraph as ng
from ngraph.errors import AxisError
from ngraph.frontends.neon import (
    ELU,
    LSTM,
    Affine,
    BatchNorm,
    Convolution,
    Deconvolution,
    Explin,
    GaussianInit,
    Gelu,
    GlobalPooling,
    GroupNorm,
    InstanceNorm,
    Layer,
    LayerNorm,
    Linear,
    Logistic,
    LookupTable,
    MultiHeadAttention,
    Pooling,
    Rectlin,
    Rectlinclip,
    Recurrent,
    RMSNorm,
    Sequential,
    Silu,
    Softmax,
    Softplus,
    Tanh,
    TransformerBlock,
)

SIZES = {"N": 3, "C": 4, "D": 5, "H": 7, "W": 6, "REC": 5, "F": 6}
RANDOM = np.random.default_rng(0)


def axes(names):
    return [ng.make_axis(SIZES[n], name=n) for n in names]


def array(names):
    return RANDOM.normal(size=[SIZES[n] for n in names])


def moved(x, source, target):
    """A tensor with named dims in another order."""
    return x.permute([source.index(n) for n in target])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("order", [("N", "F"), ("F", "N"), ("REC", "F", "N"), ("N", "C", "H", "W")])
def test_affine(order, dtype):
    features = [n for n in order if n not in ("N", "REC")]

    def theirs(x, w):
        weight = w["Linear_0/W"]
        bias = w["Bias_0/bias"]
        letters = dict(zip(order, "abcd", strict=False))
        ins = "".join(letters[n] for n in order)
        summed = "".join(letters[n] for n in features)
        kept = "".join(letters[n] for n in order if n not in features)
        return torch.relu(torch.einsum(f"z{summed},{ins}->z{kept}", weight, x) + bias.reshape(-1, *[1] * len(kept)))

    compare(Affine(GaussianInit(), nout=5, activation=Rectlin()), theirs, array(order), axes(order), dtype)


ORDERS = [("N", "C", "H", "W"), ("C", "H", "W", "N"), ("H", "N", "W", "C")]
SETTINGS = [
    {},
    {"padding": 1},
    {"strides": 2, "padding": (1, 1)},
    {"dilation": 2, "padding": {"H": 2, "W": 1}},
    {"strides": {"H": 2, "W": 1}, "padding": 2},
    {"groups": 2, "padding": 1},
    {"groups": 4, "strides": 2},
]


def torch_conv(x, w, options, n):
    def each(setting, default):
        setting = options.get(setting, default)
        sides = ("D", "H", "W")[3 - n :]
        if isinstance(setting, dict):
            return [setting[s] for s in sides]
        return [setting[0] if isinstance(setting, tuple) else setting] * n

    groups = options.get("groups", 1)
    return getattr(F, f"conv{n}d")(x, w, None, each("strides", 1), each("padding", 0), each("dilation", 1), groups)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_convolution(order, options, dtype):
    def theirs(x, w):
        f, groups = w["W"], options.get("groups", 1)
        f = f.flatten(0, 1) if groups > 1 else f  # [K, C, R, S]
        return torch_conv(moved(x, order, "NCHW"), f, options, 2)

    layer = Convolution((3, 2, 8), GaussianInit(), **options)
    compare(layer, theirs, array(order), axes(order), dtype, out="NCHW", limit=2e-5 if dtype == "float32" else None)


@pytest.mark.parametrize("n", [1, 3])
def test_convolution_of_one_and_three_axes(n):
    order = ("N", "C", "W") if n == 1 else ("N", "C", "D", "H", "W")
    layer = Convolution((*[2] * n, 5), GaussianInit(), padding=1, bias_init=GaussianInit())
    theirs = lambda x, w: torch_conv(x, w["W"], {"padding": 1}, n) + w["Bias_0/bias"].reshape(-1, *[1] * n)
    compare(layer, theirs, array(order), axes(order), out=order)


def test_convolution_without_channels_and_along_time():
    compare(
        Convolution((3, 3, 2), GaussianInit()),
        lambda x, w: F.conv2d(x[:, None], w["W"]),
        array("NHW"),
        axes("NHW"),
        out="NCHW",
    )
    order = ("F", "REC", "N")
    made = Convolution({"W": 3, "K": 2}, GaussianInit(), padding="causal")

    class Timed:
        paths = made.paths
        __call__ = staticmethod(lambda x: made(x, channel_axes="F", spatial_axes={"W": "REC"}))

    theirs = lambda x, w: F.conv1d(F.pad(x.permute(2, 0, 1), (2, 0)), w["W"])
    compare(Timed(), theirs, array(order), axes(order), out=("N", "F", "REC"))


@pytest.mark.parametrize("kind, before_after", [("same", (1, 1)), ("full", (2, 2)), ("valid", (0, 0)), ("causal", (2, 0))])
def test_paddings_by_name(kind, before_after):
    theirs = lambda x, w: F.conv1d(F.pad(x, before_after), w["W"])
    compare(Convolution((3, 2), GaussianInit(), padding=kind), theirs, array("NCW"), axes("NCW"), out="NCW")


@pytest.mark.parametrize("stride, padding, dilation", [(1, 0, 1), (2, 1, 1), (2, 0, 2), (3, 1, 1)])
def test_deconvolution(stride, padding, dilation):
    layer = Deconvolution((3, 4, 2), GaussianInit(), stride, padding, dilation)

    def theirs(x, w):
        return F.conv_transpose2d(x, w["W"].permute(3, 0, 1, 2), None, stride, padding, 0, 1, dilation)

    compare(layer, theirs, array("NCHW"), axes("NCHW"), out="NCHW")


def test_deconvolution_trims_to_a_shape():
    layer = Deconvolution((4, 4, 2), GaussianInit(), strides=2, deconv_out_shape=(14, 12))
    theirs = lambda x, w: F.conv_transpose2d(x, w["W"].permute(3, 0, 1, 2), None, 2)[:, :, 1:15, 1:13]
    compare(layer, theirs, array("NCHW"), axes("NCHW"), out="NCHW")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("stride, padding", [(1, 0), (2, 1), (3, 0)])
def test_pooling(order, stride, padding):
    for kind, function in (("max", F.max_pool2d), ("avg", lambda *a: F.avg_pool2d(*a, count_include_pad=False))):
        theirs = lambda x, w, function=function: function(moved(x, order, "NCHW"), 3, stride, padding)
        compare(Pooling((3, 3), stride, padding, kind), theirs, array(order), axes(order), out="NCHW")
    assert Pooling((2, 2)).strides == {"H": 1, "W": 1}


def test_pooling_over_channels_and_globally():
    theirs = lambda x, w: F.max_pool3d(x[:, None], (2, 3, 3), 1)[:, 0]
    compare(Pooling({"C": 2, "H": 3, "W": 3}), theirs, array("NCHW"), axes("NCHW"), out="NCHW")
    compare(GlobalPooling(), lambda x, w: x.mean((2, 3)), array("NCHW"), axes("NCHW"))
    compare(GlobalPooling("max"), lambda x, w: x.amax((2, 3)), array("NCHW"), axes("NCHW"))


@pytest.mark.parametrize("order", ORDERS)
def test_batch_norm(order):
    theirs = lambda x, w: F.batch_norm(moved(x, order, "NCHW"), None, None, w["gamma"], w["beta"], True, 0.1, 1e-3)
    compare(BatchNorm(), theirs, array(order), axes(order), out="NCHW")


def test_batch_norm_of_features_over_time_too():
    theirs = lambda x, w: F.batch_norm(x.permute(2, 0, 1), None, None, w["gamma"], w["beta"], True, 0.1, 1e-3)
    compare(BatchNorm(), theirs, array(("F", "REC", "N")), axes(("F", "REC", "N")), out=("N", "F", "REC"))


def test_norms_of_one_example():
    compare(LayerNorm(), lambda x, w: F.layer_norm(x, (6,), w["gamma"], w["beta"]), array(("N", "REC", "F")), axes(("N", "REC", "F")))
    compare(LayerNorm(axes=["C"]), lambda x, w: F.layer_norm(x, (4,), w["gamma"], w["beta"]), array("NHC"), axes("NHC"))
    compare(RMSNorm(), lambda x, w: F.rms_norm(x, (6,), w["gamma"], 1e-5), array("NF"), axes("NF"))
    for layer, groups in ((GroupNorm(2), 2), (InstanceNorm(), 4)):
        for order in ORDERS:
            theirs = lambda x, w, groups=groups, order=order: F.group_norm(moved(x, order, "NCHW"), groups, w["gamma"], w["beta"])
            compare(type(layer)(2) if groups == 2 else InstanceNorm(), theirs, array(order), axes(order), out="NCHW")


@pytest.mark.parametrize(
    "ours, theirs",
    [
        pytest.param(*pair, id=repr(pair[0]))
        for pair in (
            (Rectlin(), torch.relu),
            (Rectlin(0.1), lambda x: F.leaky_relu(x, 0.1)),
            (Rectlinclip(0, 1.5), lambda x: x.clamp(0, 1.5)),
            (Explin(0.7), lambda x: F.elu(x, 0.7)),
            (ELU(), F.elu),
            (Softmax(), lambda x: torch.softmax(x, 1)),
            (Tanh(), torch.tanh),
            (Logistic(), torch.sigmoid),
            (Gelu(), F.gelu),
            (Gelu(True), lambda x: F.gelu(x, approximate="tanh")),
            (Silu(), F.silu),
            (Softplus(), F.softplus),
        )
    ],
)
def test_activations(ours, theirs):
    from ngraph.frontends.neon import Activation

    compare(Activation(ours), lambda x, w: theirs(x), array("NF") * 2, axes("NF"))


def test_lookup_table_gradient_leaves_padding_alone():
    rows, index = 7, np.array([[1, 0, 3], [3, 3, 6]], np.int32)
    table = LookupTable(rows, 4, GaussianInit(), pad_idx=3)
    ids = ng.placeholder([ng.make_axis(2, name="N"), ng.make_axis(3, name="REC")], dtype="int32")
    y = table(ids)
    assert [a.name for a in y.axes] == ["F", "N", "REC"]
    import ngraph.transformers as ngt

    t = ngt.make_transformer()
    run = t.computation([y, ng.deriv(ng.sum(y * y, out_axes=()), table.weights["W"])], ids)
    values, slope = run(index)
    held = t.get(table.weights["W"])
    assert (held[3] == 0).all() and (held[[0, 1, 2, 4, 5, 6]] != 0).all()
    w = torch.tensor(held, requires_grad=True)
    looked = F.embedding(torch.tensor(index.astype(np.int64)), w, padding_idx=3)
    (looked**2).sum().backward()
    np.testing.assert_allclose(values, looked.detach().permute(2, 0, 1), atol=1e-6)
    np.testing.assert_allclose(slope, w.grad, atol=1e-6)


def torch_attention(x, memory, w, heads, causal, mask=None):
    """x, memory: [N, T, F]."""
    q = torch.einsum("hsf,ntf->nhts", w["W_q"], x) + w["b_q"][:, None]
    k, v = (torch.einsum("hsf,ntf->nhts", w[f"W_{n}"], memory) + w[f"b_{n}"][:, None] for n in "kv")
    looked = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    return torch.einsum("fhs,nhts->ntf", w["W_o"], looked) + w["b_o"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("order", [("F", "REC", "N"), ("N", "REC", "F")])
def test_attention(causal, order):
    theirs = lambda x, w: torch_attention(*[moved(x, order, ("N", "REC", "F"))] * 2, w, 2, causal)
    compare(MultiHeadAttention(2, causal=causal), theirs, array(order), axes(order), out=("N", "REC", "F"))


def test_attention_to_a_memory_under_a_mask():
    memory = array(("N", "REC", "F"))[:, :4]
    seen = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], bool)
    layer = MultiHeadAttention(2)
    time, n = ng.make_axis(4, name="REC"), ng.make_axis(3, name="N")

    class Looking:
        paths = layer.paths

        def __call__(self, x):
            held = ng.constant(memory, [n, time, ng.make_axis(6, name="F")], dtype="float64")
            return layer(x, held, mask=ng.constant(seen, [n, time - 1]))

    theirs = lambda x, w: torch_attention(x, torch.tensor(memory), w, 2, False, torch.tensor(seen)[:, None, None])
    compare(Looking(), theirs, array(("N", "REC", "F")), axes(("N", "REC", "F")))  # the memory's time is longer, under one name


def test_transformer_block():
    order = ("N", "REC", "F")

    def theirs(x, w):
        norm = lambda x, k: F.layer_norm(x, (6,), w[f"{k}/gamma"], w[f"{k}/beta"])
        inside = {p.split("/")[1]: v for p, v in w.items() if p.startswith("MultiHeadAttention_0/")}
        first = norm(x, "LayerNorm_0")
        x = x + torch_attention(first, first, inside, 3, True)
        y = F.gelu(norm(x, "LayerNorm_1") @ w["Affine_0/Linear_0/W"].T + w["Affine_0/Bias_0/bias"])
        return x + y @ w["Affine_1/Linear_0/W"].T + w["Affine_1/Bias_0/bias"]

    compare(TransformerBlock(3, hidden=10, causal=True), theirs, array(order), axes(order), out=order)


def test_linear_keeps_axes_on_request():
    layer = Linear(GaussianInit(), nout=5, keep_axes=[ng.make_axis(name="N"), ng.make_axis(name="H")])
    compare(layer, lambda x, w: torch.einsum("zc,nch->znh", w["W"], x), array("NCH"), axes("NCH"))


# ---- weights by name ----------------------------------------------------------------------------------------------------


def test_weights_are_attributes_by_their_names_of_2017():
    x = ng.placeholder(axes(("F", "N")))
    model = Sequential([Affine(nout=5, batch_norm=True), Affine(nout=3)])
    model(x)
    first, second = model.layers
    assert first.W is first.linear.W is first.linear.weights["W"]
    assert first.W is model["Affine_0/Linear_0/W"] is first.weight
    norm = first.batch_norm
    assert [norm.gamma, norm.beta, norm.gmean, norm.gvar] == [norm.weights[n] for n in ("gamma", "beta", "gmean", "gvar")]
    assert second.bias is model["Affine_1/Bias_0/bias"] and second["Bias_0/bias"] is second.bias and model[1] is second
    assert norm.weight is norm.gamma and norm.bias is first.bias is norm.beta  # as PyTorch's BatchNorm1d has them
    assert norm.running_mean is norm.gmean and norm.running_var is norm.gvar
    with pytest.raises(AttributeError, match="has 2 weights weight: Affine_0/Linear_0/W"):
        model.weight.axes  # noqa: B018 - the read itself fails


def test_weights_of_recurrent_layers_by_the_names_of_2017():
    text = ng.placeholder(axes(("REC", "F", "N")))
    for kind in (Recurrent, LSTM):
        layer = kind(4, GaussianInit(), reset_cells=False)
        layer(text)
        assert layer.W_input is layer.cell.weights["W_x"] and layer.W_recur is layer["cell/W_h"] and layer.b is layer["cell/b"]
        with Layer.inference_mode_on():
            layer(text)  # whose state is another one
        assert layer.h_init is layer.carried_states(inference=False)[0] and not layer.h_init.is_trainable
    assert layer.c_init is layer.carried_states(inference=False)[1]
    layer = LSTM(4, GaussianInit())
    layer(text)
    with pytest.raises(AttributeError, match=r"begins at zeros\s*fix: LSTM\(\.\.\., reset_cells=False\) keeps the state"):
        layer.h_init.axes  # noqa: B018 - the read itself fails


def test_weights_that_a_name_does_not_tell_apart_and_names_of_none():
    x = ng.placeholder(axes(("F", "N")))
    model = Sequential([Affine(nout=5), Affine(nout=3)])
    with pytest.raises(ng.NgraphError, match="no weights before its first call"):
        model.W.axes  # noqa: B018 - the read itself fails
    model(x)
    with pytest.raises(AttributeError, match="has 2 weights W: Affine_0/Linear_0/W, Affine_1/Linear_0/W"):
        model.W.axes  # noqa: B018
    with pytest.raises(AttributeError, match=r"'wieght'; its weights are W, bias"):
        model[0].wieght.axes  # noqa: B018
    assert not hasattr(model, "gamma") and copy.copy(model).layers is model.layers
    for wrong, kind in (("Affine_7/W", KeyError), (0, TypeError)):
        with pytest.raises(kind):
            model[0][wrong]


@pytest.mark.parametrize("setting", ["strides", "padding", "dilation"])
def test_unknown_sides_in_a_dict_are_told(setting):
    x = ng.placeholder("C=3 H=8 W=8 N=2")
    with pytest.raises(AxisError, match=r"\['str_h'\] in"):
        Convolution((3, 3, 4), 0.5, **{setting: {"str_h": 2}})(x)
    every = {setting: {"D": 1, "H": 1}}  # it may name sides that the layer lacks
    assert Convolution((3, 3, 4), 0.5, **every)(x).axes


def test_completion_shows_weights():
    """As attributes where one is meant, and as keys."""
    x = ng.placeholder("N=2 F=3")
    model = Sequential([Affine(nout=3, batch_norm=True), Affine(nout=2)])
    assert not {"W", "weight", "bias"} & set(dir(model))
    model(x)
    assert {"W", "weight", "bias", "gamma", "beta", "gmean", "gvar"} <= set(dir(model[0]))
    assert "gamma" in dir(model) and not {"W", "weight"} & set(dir(model))  # there are two
    assert model._ipython_key_completions_() == list(model.paths())
    lstm = LSTM(6, GaussianInit(), activation=Tanh(), gate_activation=Logistic(), reset_cells=False)
    lstm(ng.placeholder("F=3 REC=5 N=4"))
    assert {"W_input", "W_recur", "h_init", "c_init", "b", "bias"} <= set(dir(lstm))
    for layer in (model, model[0], lstm):
        assert all(hasattr(layer, name) for name in dir(layer) if name[0] != "_")
