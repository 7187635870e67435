"""Op-graphs, neon models and training steps as ONNX files: what ONNX Runtime makes of them, which nodes they have, and what is refused."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from exported import exported, kinds, session  # noqa: E402

import ngraph as ng  # noqa: E402
import ngraph.transformers as ngt  # noqa: E402
from ngraph.frontends import neon  # noqa: E402


def drawn(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype)


def close(got, expected, rtol=1e-4, atol=1e-5):
    for g, e in zip(got, expected, strict=True):
        assert g.dtype == e.dtype and g.shape == e.shape
        np.testing.assert_allclose(g, e, rtol, atol)


# ---- neon ---------------------------------------------------------------------------------------------------------------


def inferred(model, x, feeds, opset=None):
    """A model in inference mode on this transformer and on ONNX Runtime, for each of some inputs; the exported file."""
    with neon.inference_mode_on():
        y = model(x)
    with ngt.make_transformer() as transformer:
        run = transformer.computation(y, x)
        for v in Variables(y):  # other values than the first ones
            transformer.set(v, transformer.get(v) + 0.05 * abs(drawn(*v.axes.lengths)))
        made = exported(model, opset, inputs={"x": x}, transformer=transformer)
        there = session(made)
        for feed in feeds:
            close(there.run(None, {"x": feed}), [run(feed)])
    return made


def Variables(op):
    return [o for o in ng.Op.ordered_ops([op]) if o.is_variable]


def picture(length=None, size=28):
    axes = [ng.make_axis(n, name=name) for name, n in (("C", 1), ("H", size), ("W", size), ("N", length))]
    return ng.placeholder(axes)


def test_mnist_cnn():
    """Convolutions, batch norm, pooling and affine layers: one node each, up to norms folded by hand-written constants."""
    init = neon.GlorotInit()
    model = neon.Sequential(
        [
            neon.Convolution((3, 3, 8), init, padding=1, batch_norm=True, activation=neon.Rectlin()),
            neon.Pooling((2, 2), strides=2),
            neon.Convolution((3, 3, 6), init, padding=1, activation=neon.Rectlin()),
            neon.Pooling((2, 2), strides=2, pool_type="avg"),
            neon.Affine(init, nout=16, activation=neon.Rectlin()),
            neon.Dropout(0.6),
            neon.Affine(init, axes=[ng.make_axis(10, name="Y")], activation=neon.Softmax()),
        ]
    )
    x = picture()
    made = inferred(model, x, [drawn(1, 28, 28, n) for n in (1, 3)])
    found = kinds(made)
    assert (found["Conv"], found["MaxPool"], found["AveragePool"], found["Softmax"]) == (2, 1, 1, 1)
    assert found.get("Gemm", 0) + found.get("MatMul", 0) == 2 and found["Relu"] == 3
    assert found["Transpose"] == 2, found
    names = {t.name for t in made.graph.initializer}
    assert any(n.endswith("/W") for n in names), names
    (dims,) = [v.type.tensor_type.shape.dim for v in made.graph.input]
    assert [d.dim_param or d.dim_value for d in dims] == [1, 28, 28, "N"]
    axes = json.loads({p.key: p.value for p in made.metadata_props}["ngraph.axes"])
    assert axes["x"] == ["C", "H", "W", "N"]


def test_residual_network():
    """ResNet-20, batch first."""
    init = neon.KaimingInit()

    def conv(size, filters, strides=1, activation=True):
        relu = neon.Rectlin() if activation else None
        return neon.Convolution((size, size, filters), init, strides, size // 2, batch_norm=True, activation=relu)

    def module(filters, strides):
        main = neon.Sequential([conv(3, filters, strides), conv(3, filters, activation=False)])
        side = conv(1, filters, strides, activation=False) if strides > 1 else None
        return [neon.ResidualModule(main, side), neon.Activation(neon.Rectlin())]

    stages = [layer for f in (16, 32, 64) for k in range(3) for layer in module(f, 2 if k == 0 and f > 16 else 1)]
    model = neon.Sequential([conv(3, 16), *stages, neon.GlobalPooling(), neon.Affine(init, axes=[ng.make_axis(10, name="Y")])])
    axes = [ng.make_axis(n, name=name) for name, n in (("N", None), ("C", 3), ("H", 32), ("W", 32))]
    made = inferred(model, ng.placeholder(axes), [drawn(n, 3, 32, 32) for n in (2,)])
    found = kinds(made)
    assert found["Conv"] == 21 and found["Relu"] == 19 and found.get("Transpose", 0) <= 2, found


def test_language_model():
    """An embedding, an LSTM and an affine layer: a Scan, over sentences of any number and length."""
    words = neon.Sequential(
        [
            neon.LookupTable(50, 8, neon.UniformInit(-0.1, 0.1)),
            neon.LSTM(12, neon.GlorotInit()),
            neon.Affine(neon.GlorotInit(), axes=[ng.make_axis(50, name="Y")]),
        ]
    )
    x = ng.placeholder([ng.make_axis(name="REC"), ng.make_axis(name="N")], dtype="int32")
    feeds = [np.random.default_rng(k).integers(0, 50, (k, 3)).astype(np.int32) for k in (1, 5)]
    made = inferred(words, x, feeds)
    assert kinds(made)["Scan"] == 1


def test_transformer_block():
    """Attention, norms and gelu."""
    block = neon.TransformerBlock(2, init=neon.GlorotInit(), causal=True)
    axes = [ng.make_axis(name="N"), ng.make_axis(name="REC"), ng.make_axis(8, name="F")]
    made = inferred(block, ng.placeholder(axes), [drawn(2, 5, 8), drawn(1, 3, 8)])
    found = kinds(made)
    assert found["Softmax"] == 1 and found["Gelu"] == 1, found


def test_random_layers_draw_from_the_runtime():
    """Dropout in training: the share that stays, from run to run other elements."""
    x = ng.placeholder([ng.make_axis(400, name="F"), ng.make_axis(name="N")])
    made = exported({"y": neon.Dropout(0.75)(x)}, inputs={"x": x})
    there = session(made)
    ones = np.ones((400, 20), np.float32)
    first, second = (there.run(None, {"x": ones})[0] for _ in range(2))
    assert abs((first > 0).mean() - 0.75) < 0.05 and abs(first.mean() - 1) < 0.05
    assert kinds(made).get("RandomUniform", 0) + kinds(made).get("RandomUniformLike", 0) == 1
    assert (first != second).any()


# ---- training -----------------------------------------------------------------------------------------------------------


def test_a_training_step_runs_elsewhere():
    """Loss, gradients and new weights; fed with what it gave, ONNX Runtime trains as this transformer does."""
    model = neon.Sequential(
        [
            neon.Convolution((3, 3, 4), neon.GlorotInit(), strides=2, padding=1, activation=neon.Rectlin()),
            neon.Pooling((2, 2), strides=2),
            neon.Affine(neon.GlorotInit(), axes=[ng.make_axis(3, name="Y")], activation=neon.Softmax()),
        ]
    )
    axes = {name: ng.make_axis(n, name=name) for name, n in (("N", 4), ("C", 2), ("H", 12), ("W", 12), ("Y", 3))}
    x = ng.placeholder([axes[a] for a in "NCHW"])
    t = ng.placeholder([axes["N"], axes["Y"]])
    y = model(x)
    loss = ng.mean(ng.cross_entropy_multi(y, t, out_axes=[axes["N"]]), out_axes=())
    weights = y.variables()
    gradients = {f"d {v.name}": ng.deriv(loss, v) for v in weights}
    steps = {f"step {k}": ng.assign(v, v - 0.1 * g) for k, (v, g) in enumerate(zip(weights, gradients.values(), strict=True))}
    made = exported({"loss": loss, **gradients, **steps}, 18, inputs={"x": x, "t": t})
    there = session(made)
    images, targets = drawn(4, 2, 12, 12), np.eye(3, dtype=np.float32)[[0, 2, 1, 1]]
    with ngt.make_transformer() as transformer:
        train = transformer.computation([loss, *gradients.values(), *steps.values()], x, t)
        state, losses = {}, []
        for _ in range(4):
            given = dict(zip([o.name for o in there.get_outputs()], there.run(None, {"x": images, "t": targets, **state}), strict=True))
            mine = train(images, targets)
            close([given["loss"], *(given[g] for g in gradients)], [np.asarray(a) for a in mine[: 1 + len(weights)]])
            state = {name.removesuffix(".new"): value for name, value in given.items() if name.endswith(".new")}
            losses.append(float(given["loss"]))
        close([state[v.name] for v in weights], [transformer.get(v) for v in weights])
    assert losses == sorted(losses, reverse=True) and len(state) == len(weights)
