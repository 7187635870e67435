"""Op-graphs, neon models and training steps as ONNX files: what ONNX Runtime makes of them, which nodes they have, and what is refused."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from exported import exported, kinds, run, session  # noqa: E402

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


def test_a_trainer_is_exported_with_what_it_has_learnt(tmp_path):
    x, y = drawn(12, 3, 6, 6), np.arange(12) % 4
    init = neon.KaimingInit()
    layers = [neon.Convolution((3, 3, 5), init, batch_norm=True, activation=neon.Rectlin()), neon.Dropout(0.7), neon.Affine(init, nout=4)]
    trainer = neon.Trainer(neon.Sequential(layers), neon.Adam(0.1), neon.CrossEntropyMulti(logits=True), say=lambda line: None)
    with pytest.raises(ng.NgraphError, match="predict before fit or evaluate"):
        ng.onnx.save(trainer, tmp_path / "model.onnx")
    trainer.fit(x, y, epochs=2, batch_size=5)
    ng.onnx.save(trainer, tmp_path / "model.onnx")
    there = session(onnx.load(tmp_path / "model.onnx"))
    for n in (1, 12):
        close(there.run(None, {"x": x[:n]}), [trainer.predict(x[:n])])


def test_a_trainer_of_several_results_gives_them_their_names(tmp_path):
    x, layers = drawn(6, 4), {name: neon.Affine(neon.GlorotInit(), nout=n) for name, n in (("mean", 3), ("scale", 2))}
    model = lambda x: {name: layer(x) for name, layer in layers.items()}
    cost = lambda y, t: ng.sum(y["mean"] ** 2) + ng.sum(y["scale"] ** 2)
    trainer = neon.Trainer(model, neon.Adam(), cost, say=lambda line: None)
    trainer.fit(x, x, epochs=1)
    ng.onnx.save(trainer, tmp_path / "model.onnx")
    there = session(onnx.load(tmp_path / "model.onnx"))
    assert [o.name for o in there.get_outputs()] == ["mean", "scale"]
    close(there.run(None, {"x": x}), trainer.predict(x).values())


def test_a_function_of_arrays_keeps_the_names_of_its_inputs_and_results(tmp_path):
    x, w = ng.placeholder("N=? D=3"), ng.variable("D K=2", initial_value=ng.KaimingInit())
    scale = {"by": [ng.placeholder("D=3")]}
    f = ng.function({"mean": (x @ w).mean("N"), "parts": [x * scale["by"][0], {"top": ng.argmax(x @ w, "K")}]}, x, scale)
    path = str(tmp_path / "f.onnx")
    ng.onnx.save(f, path)
    a, b = drawn(4, 3), drawn(3, seed=1)
    s = session(onnx.load(path))
    assert [i.name for i in s.get_inputs()] == ["x", "scale.by.0"]
    assert [o.name for o in s.get_outputs()] == ["mean", "parts.0", "parts.1.top"]
    made = f(a, {"by": [b]})
    close(s.run(None, {"x": a, "scale.by.0": b}), [made["mean"], made["parts"][0], made["parts"][1]["top"]])
    for results, names in ((x * 2.0, ["output"]), ((x * 2.0).named("y"), ["y"]), ([x * 2.0, x + 1.0], ["output", "output_2"])):
        ng.onnx.save(ng.function(results, x), path)
        assert [o.name for o in session(onnx.load(path)).get_outputs()] == names


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


def test_a_bias_is_only_taken_in_where_nobody_else_reads_the_product():
    """Under other names of its axes a product may be read twice."""
    n, c, k, m = (ng.make_axis(3, name=name) for name in "NCKM")
    x = ng.placeholder([n, c]).named("x")
    w, b = (ng.variable(axes, initial_value=drawn(*(3 for _ in axes))) for axes in ([k, c], [k]))
    product = ng.contract(x, w, over=(c,))
    results = {"y": product + b, "z": ng.exp(ng.map_roles(product, {k: m})), "u": ng.contract(x, w, over=(c,)) * 2.0}
    made = exported(results, inputs={"x": x})
    feed = drawn(3, 3, seed=2)
    with ngt.make_transformer() as transformer:
        close(session(made).run(None, {"x": feed}), transformer.computation(list(results.values()), x)(feed))


# ---- files --------------------------------------------------------------------------------------------------------------


def small():
    """x times a weight, through a loop over an open length, and a branch."""
    axes = [ng.make_axis(name="T"), ng.make_axis(6, name="C")]
    x = ng.placeholder(axes).named("x")
    w = ng.variable([axes[1]], initial_value=drawn(6)).named("scale")

    def add(carry, now):
        new = carry * 0.5 + now * w
        return new, new

    last, every = ng.scan(add, ng.constant(np.zeros(6, np.float32), [axes[1]]), x, axis=axes[0])
    high = ng.less(0.0, ng.sum(last, out_axes=()))
    chosen = ng.cond(high, lambda: ng.exp(last), lambda: last * 2.0)
    return x, {"every": every, "chosen": chosen}


OPSETS = range(13, min(28, onnx.defs.onnx_opset_version()) + 1)


@pytest.mark.parametrize("opset", OPSETS)
def test_every_opset(opset):
    """Control flow, an LSTM, a picture: the same numbers, whatever the opset."""
    x, results = small()
    made = exported(results, opset, inputs={"x": x})
    assert made.opset_import[0].version == opset
    assert {"Scan", "If"} <= set(kinds(made))
    model = neon.Sequential([neon.LSTM(4, neon.GlorotInit()), neon.Affine(neon.GlorotInit(), axes=[ng.make_axis(3, name="Y")])])
    z = ng.placeholder([ng.make_axis(5, name="F"), ng.make_axis(4, name="REC"), ng.make_axis(name="N")])
    convolved = neon.Convolution((3, 3, 4), neon.GlorotInit(), padding=1, batch_norm=True, activation=neon.Gelu())
    p = picture(size=8)
    with neon.inference_mode_on():
        others = {"y": model(z), "q": neon.Pooling((2, 2), strides=2, pool_type="avg")(convolved(p)), "n": neon.LayerNorm()(z)}
    both = exported(others, opset, inputs={"z": z, "p": p})
    if opset <= 24:  # ONNX Runtime's highest
        feeds = {"z": drawn(5, 4, 2), "p": drawn(1, 8, 8, 2)}
        with ngt.make_transformer() as transformer:
            close(session(both).run(None, feeds), transformer.computation(list(others.values()), z, p)(*feeds.values()))
            for n in (1, 4):
                feed = drawn(n, 6, seed=n)
                close(session(made).run(None, {"x": feed}), transformer.computation(list(results.values()), x)(feed))


def test_names_axes_and_values(tmp_path):
    """Variables are initializers of their names, with the values that the transformer holds; axes and lengths are named."""
    x, results = small()
    (w,) = Variables(results["every"])
    with ngt.make_transformer() as transformer:
        transformer.computation(results["every"], x)(drawn(2, 6))
        transformer.set(w, np.arange(6))
        ng.onnx.save(results, tmp_path / "m.onnx", transformer=transformer)
        ng.onnx.save(transformer.computation(list(results.values()), x), tmp_path / "c.onnx")
    for name in ("m", "c"):
        made = onnx.load(tmp_path / f"{name}.onnx")
        values = {t.name: onnx.numpy_helper.to_array(t) for t in made.graph.initializer}
        assert values["scale"].tolist() == list(range(6))
        about = json.loads({p.key: p.value for p in made.metadata_props}["ngraph.axes"])
        assert about["scale"] == ["C"] and about["x"] == ["T", "C"]
        (first, *_) = made.graph.output
        assert [d.dim_param or d.dim_value for d in first.type.tensor_type.shape.dim] == ["T", 6]
    assert [o.name for o in onnx.load(tmp_path / "m.onnx").graph.output] == ["every", "chosen"]


SCRIPT = """
import sys
import numpy as np
sys.path.insert(0, {home!r})
from test_export import small
import ngraph as ng
x, results = small()
ng.onnx.save(results, {path!r}, opset=18, external=16)
"""


def test_bytes_are_the_same_in_every_process(tmp_path):
    found = []
    for seed in ("1", "77"):
        path = tmp_path / seed
        path.mkdir()
        code = SCRIPT.format(home=os.path.dirname(__file__), path=str(path / "m.onnx"))
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONHASHSEED": seed})
        found.append([(path / name).read_bytes() for name in ("m.onnx", "m.onnx.data")])
    assert found[0] == found[1]


def test_arrays_beside_the_model(tmp_path):
    """By choice at a number of bytes; read back by this library, ONNX Runtime and onnx."""
    init = neon.GlorotInit()
    x = ng.placeholder([ng.make_axis(40, name="F"), ng.make_axis(name="N")]).named("x")
    y = neon.Sequential([neon.Affine(init, nout=64, activation=neon.Rectlin()), neon.Affine(init, nout=3)])(x)
    ng.onnx.save({"y": y}, tmp_path / "whole.onnx")
    ng.onnx.save({"y": y}, tmp_path / "parts.onnx", external=1000)
    assert sorted(os.listdir(tmp_path)) == ["parts.onnx", "parts.onnx.data", "whole.onnx"]
    assert (tmp_path / "parts.onnx").stat().st_size < 6000 < (tmp_path / "parts.onnx.data").stat().st_size
    onnx.checker.check_model(str(tmp_path / "parts.onnx"), full_check=True)
    places = [
        {e.key: e.value for e in t.external_data} for t in onnx.load(tmp_path / "parts.onnx", load_external_data=False).graph.initializer
    ]
    assert {p["location"] for p in places if p} == {"parts.onnx.data"} and all(int(p["offset"]) % 4096 == 0 for p in places if p)
    feed = drawn(40, 2)
    import onnxruntime

    first, second = (onnxruntime.InferenceSession(str(tmp_path / f"{n}.onnx")).run(None, {"x": feed})[0] for n in ("whole", "parts"))
    assert first.tobytes() == second.tobytes()
    close([ng.onnx.load(tmp_path / "parts.onnx").run({"x": feed})["y"]], [first])


def test_what_one_file_cannot_hold_goes_beside_it(tmp_path, monkeypatch):
    """Beyond what protobuf takes, here a number that a test can reach, without being asked."""
    x = ng.placeholder([ng.make_axis(64, name="F")]).named("x")
    y = neon.Affine(neon.GlorotInit(), nout=64)(x)
    ng.onnx.save(y, tmp_path / "a.onnx")
    monkeypatch.setattr("ngraph.export.onnx.file.LIMIT", 10_000)
    ng.onnx.save(y, tmp_path / "b.onnx")
    assert sorted(os.listdir(tmp_path)) == ["a.onnx", "b.onnx", "b.onnx.data"]
    a, b = (onnx.load(tmp_path / f"{n}.onnx") for n in "ab")
    assert [t.raw_data for t in a.graph.initializer] == [t.raw_data for t in b.graph.initializer]


def test_a_file_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    x, results = small()
    path = tmp_path / "m.onnx"
    ng.onnx.save(results, path, external=16)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    monkeypatch.setattr(os, "replace", lambda a, b: (_ for _ in ()).throw(OSError("no")))
    with pytest.raises(OSError):
        ng.onnx.save(results, path, opset=13, external=16)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    monkeypatch.undo()
    said = "nowhere/m.onnx cannot be written: no such file or directory\n  fix: make the folder before"
    with pytest.raises(ng.errors.FileError, match=said):
        ng.onnx.save(results, tmp_path / "nowhere" / "m.onnx")


# ---- what is refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [12, OPSETS[-1] + 1, True, "20"])
def test_opsets_that_cannot_be_written(opset, tmp_path):
    with pytest.raises(ng.errors.UnsupportedError, match="take one from 13"):
        ng.onnx.save(small()[1], tmp_path / "m.onnx", opset=opset)
    assert not list(tmp_path.iterdir())


def test_all_that_cannot_be_said_is_named_at_once(tmp_path):
    x = ng.placeholder([ng.make_axis(3, name="C")], dtype="int32")
    printed = ng.PrintOp(x, "x")
    y = printed & (x + 1)
    with pytest.raises(ng.errors.UnsupportedError) as found:
        ng.onnx.save({"y": y, "z": ng.bitcast(ng.cast(x, "int64"), dtype="float64")}, tmp_path / "m.onnx", opset=17)
    text = str(found.value)
    assert "3 ops" in text and text.count("test_export.py") >= 3
    for word in ("a print", "BitwiseAnd", "opset 18", "BitCast", "opset 26"):
        assert word in text, text
    assert not list(tmp_path.iterdir())


def test_wrong_calls(tmp_path):
    x, results = small()
    layer = neon.Affine(neon.GlorotInit(), nout=2)
    for call, words in (
        (lambda: ng.onnx.save({"y": 3}, tmp_path / "m.onnx"), "to be exported are ops"),
        (lambda: ng.onnx.save([], tmp_path / "m.onnx"), "nothing to export"),
        (lambda: ng.onnx.save(results, tmp_path / "m.onnx", external=-1), "external=-1 is no number of bytes"),
        (lambda: ng.onnx.save(results, tmp_path / "m.onnx", external="1k"), "external='1k' is no number of bytes"),
        (lambda: ng.onnx.save(layer, tmp_path / "m.onnx"), "inputs=placeholder"),
        (lambda: ng.onnx.save(results, tmp_path / "m.onnx", shapes={"q": (1, 6)}), "there is no input q"),
        (lambda: ng.onnx.save(results, tmp_path / "m.onnx", shapes={"x": (1, 7)}), "has length 6, and 7 was given"),
        (lambda: ng.onnx.save(results, tmp_path / "m.onnx", shapes={"x": (1,)}), "has the axes T, C"),
        (lambda: ng.onnx.save(results, tmp_path / "m.onnx", shapes={"x": 6}), "the shape of x is 6"),
        (lambda: ng.onnx.save(results, tmp_path / "m.onnx", shapes=[6]), "shapes= takes lengths by the names of inputs"),
    ):
        with pytest.raises(ng.errors.ArgumentError, match=words):
            call()
    assert not list(tmp_path.iterdir())


def test_lengths_can_be_fixed(tmp_path):
    x, results = small()
    ng.onnx.save(results, tmp_path / "m.onnx", shapes={"x": (4, None)})
    (given,) = onnx.load(tmp_path / "m.onnx").graph.input
    assert [d.dim_value for d in given.type.tensor_type.shape.dim] == [4, 6]


# ---- names and element types ----------------------------------------------------------------------------------------------


def pair(*names):
    n = ng.make_axis(3, name="N")
    return [ng.placeholder([n]).named(k) for k in names[:-1]] + [ng.variable([n], initial_value=[1, 2, 3]).named(names[-1])]


def test_a_variable_makes_way_for_an_input_and_a_result_of_its_name():
    x, v = pair("v", "v")
    made = exported({"y": x * v, "more": ng.assign(v, v + 1)})
    assert [i.name for i in made.graph.initializer][0] == "v_2" and [o.name for o in made.graph.output] == ["y", "v_2.new"]
    close(session(made).run(["y"], {"v": drawn(3)}), [drawn(3) * [np.float32(1), np.float32(2), np.float32(3)]])
    (v,) = pair("v")
    for what in (v, {"v": v}, [v]):
        made = exported(what)
        assert [o.name for o in made.graph.output] == ["v"]
        close(session(made).run(None, {}), [np.array([1, 2, 3], np.float32)])


def test_an_input_that_is_a_result_has_two_names():
    x, _ = pair("x", "v")
    assert [o.name for o in exported(x).graph.output] == ["x_2"]
    for names, said in (({"x": x + 1}, "an input and a result are called x"), ({"": x + 1}, "an output has no name")):
        with pytest.raises(ng.errors.ArgumentError, match=said):
            exported(names)


def test_results_and_inputs_of_types_that_begin_later_are_refused():
    x = ng.placeholder("A=2 B=3", dtype="int4").named("x")
    y = ng.axes_with_order(x, x.axes[::-1])
    for what in (y, {"y": x}):
        with pytest.raises(ng.errors.UnsupportedError, match="x has elements of type int4") as refused:
            exported(what, 20)
        assert refused.value.fix == f"opset={OPSETS[-1]} has them"
        assert exported(what, 21)


@pytest.mark.parametrize("dtype", ["int16", "uint16", "uint64"])
def test_integers_for_which_a_runtime_lacks_kernels(dtype):
    n = ng.make_axis(4, name="N")
    x, c = ng.placeholder([n], dtype=dtype).named("x"), ng.placeholder([n], dtype="bool").named("c")
    results = {
        "chosen": ng.where(c, x, x + x),
        "padded": ng.pad(x, [(1, 2)]),
        "running": ng.cumsum(x, n),
        "product": ng.prod(x, out_axes=()),
    }
    a, b = np.array([0, 3, np.iinfo(dtype).max, 9], dtype), np.array([True, False, True, False])
    with np.errstate(all="ignore"):
        wanted = [np.where(b, a, a + a), np.pad(a, (1, 2)), np.cumsum(a, dtype=dtype), np.prod(a, dtype=dtype)]
    for g, e in zip(session(exported(results)).run(None, {"x": a, "c": b}), wanted, strict=True):
        np.testing.assert_array_equal(g, e, strict=True)


# ---- edges ---------------------------------------------------------------------------------------------------------------


def test_the_logarithm_of_a_sum_along_no_axis():
    x = ng.placeholder("N=? C=3").named("x")
    close(session(exported({"y": ng.logsumexp(x, reduction_axes=[])})).run(None, {"x": drawn(2, 3)}), [drawn(2, 3)])


def test_a_bound_that_is_no_number():
    x = ng.placeholder("N=3").named("x")
    results = {"low": ng.clip(x, float("nan"), 1.0), "high": ng.clip(x, None, float("nan"))}
    for found in session(exported(results)).run(None, {"x": drawn(3)}):
        assert np.isnan(found).all()


def test_infinity_stays_where_one_bound_is_given():
    x = ng.placeholder("N=3").named("x")
    a, inf = np.array([-np.inf, 0.5, np.inf], np.float32), np.float32(np.inf)
    results = {"above": ng.clip(x, 0.0, None), "below": ng.clip(x, None, 1.0), "far": ng.clip(x, float("inf"), None)}
    close(session(exported(results)).run(None, {"x": a}), [a.clip(0), a.clip(None, 1), np.full(3, inf)])


@pytest.mark.parametrize("kind", ["Scan", "Loop", "If"])
def test_loops_that_carry_types_that_begin_later_are_refused(kind):
    x, t = ng.placeholder("N=3", dtype="bfloat16").named("x"), ng.make_axis(4, name="T")
    if kind == "Scan":
        made = ng.scan(lambda s, _: (s + s, s), x, ng.placeholder([t]).named("z"), t)
    elif kind == "Loop":
        made = ng.while_loop(lambda s: ng.less(ng.max(s, out_axes=()), 5), lambda s: s + s, x)
    else:
        made = ng.cond(ng.less(ng.max(x, out_axes=()), 5), lambda: x + x, lambda: x * x)
    with pytest.raises(ng.errors.UnsupportedError, match=f"{kind} of bfloat16 at opset 14"):
        exported({"y": made if isinstance(made, ng.Op) else made[0]}, 14)
    assert exported({"y": made if isinstance(made, ng.Op) else made[0]}, 16)


def test_the_mean_of_a_window_that_has_padding_alone():
    x = ng.placeholder("N=2 W=1").named("x")
    y = ng.avg_pool(x, {"W": 2}, stride=1, padding=1, dilation=2)
    with ngt.make_transformer() as transformer:
        wanted = transformer.computation(y, x)(drawn(2, 1))
    assert np.isnan(wanted).all()
    close(session(exported({"y": y})).run(None, {"x": drawn(2, 1)}), [wanted])


def test_slices_without_elements_in_a_loop():
    """ONNX Runtime ends the process where its Scan transposes them."""
    a, t = ng.make_axis(name="A"), ng.make_axis(4, name="T")
    x, first = ng.placeholder([a, t]).named("x"), ng.placeholder([a]).named("first")
    last, all_ = ng.scan(lambda s, now: (s + now, s), first, x, t)
    run = session(exported({"last": last, "all": all_})).run
    for n in (3, 0, 1):
        found = run(None, {"x": drawn(n, 4), "first": drawn(n, seed=1)})
        each = np.cumsum(np.concatenate([drawn(n, seed=1)[:, None], drawn(n, 4)], 1), 1)
        close(found, [each[:, -1], each[:, :-1].T])


@pytest.mark.parametrize("length", [2, None])
def test_backward_slices_that_begin_before_the_first_element_have_none(length):
    """In a file, -1 is the last element."""
    H, A = ng.make_axis(2, name="H"), ng.make_axis(length, name="A")
    x = ng.placeholder([H, A]).named("x")
    ops = {"y": x[-3:3:-2, :], "z": x[-6:-5:-1, -3:-1:3], "w": x[:, -3:3:-2]}
    array = np.arange(4, dtype=np.float32).reshape(2, 2)
    found, _ = run(exported(ops), {"x": array})
    for got, want in zip(found, (array[-3:3:-2], array[-6:-5:-1, -3:-1:3], array[:, -3:3:-2]), strict=True):
        assert np.array_equal(got, want), (got, want)


@pytest.mark.parametrize("narrow, beyond", [("float8_e4m3fn", np.nan), ("float8_e5m2", np.inf), ("float8_e4m3fnuz", np.nan)])
def test_casts_to_8_bits_do_not_saturate_unless_they_say_so(narrow, beyond):
    A = ng.make_axis(None, name="A")
    x = ng.placeholder([A]).named("x")
    ops = {"plain": ng.cast(ng.cast(x, narrow), "float32"), "saturated": ng.cast(ng.cast(x, narrow, saturate=True), "float32")}
    (plain, saturated), _ = run(exported(ops), {"x": np.array([1.5, 1e6], np.float32)})
    assert np.array_equal(plain, [1.5, beyond], equal_nan=True) and saturated[0] == 1.5 and 200 < saturated[1] < 1e5


def test_powers_of_two_are_cast_to_the_nearest():
    A = ng.make_axis(None, name="A")
    x = ng.placeholder([A]).named("x")
    y = ng.cast(ng.cast(x, "float8_e8m0fnu"), "float32")
    (found,), _ = run(exported(y, 25), {"x": np.array([1.3, 1.5, 1.7, 2], np.float32)})
    assert found.tolist() == [1, 2, 2, 2]


def test_a_network_of_bfloat16_runs_in_onnx_runtime():
    """It has no arithmetic of bfloat16 on processors: nodes compute in float32, and each result is rounded once."""
    x = ng.placeholder("N=? D=20")
    wide, narrow = (ng.constant(drawn(*shape, seed=k), axes) for k, (shape, axes) in enumerate([((20, 8), "D=20 K=8"), ((8,), "K=8")]))
    w, b = (ng.cast(v, "bfloat16") for v in (wide, narrow))
    h = ng.relu(ng.contract(ng.cast(x, "bfloat16"), w, over="D") + b)
    h = ng.where(ng.greater(h, ng.cast(0.5, "bfloat16")), h * h, ng.broadcast(b, h.axes))
    y = ng.cast(ng.softmax(ng.concat_along_axis([h, h], "K"), "K"), "float32")
    given = drawn(5, 20, seed=9)
    (found,) = session(exported({"y": y}, inputs={"x": x})).run(None, {"x": given})
    np.testing.assert_array_equal(found, ng.function(y, x, transformer=ngt.make_transformer_factory("numpy")())(given))
