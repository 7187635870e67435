"""neon as it was in 2016 and 2019: every name, and the traps of its time mended."""

import argparse

import numpy as np
import pytest

import ngraph as ng
import ngraph.frontends.neon as neon
import ngraph.transformers as ngt
from ngraph.frontends.neon import (
    LSTM,
    Adam,
    Affine,
    ArrayIterator,
    BatchNorm,
    Bias,
    Convolution,
    CrossEntropyMulti,
    Deconvolution,
    Dropout,
    Embedding,
    GaussianInit,
    GlorotInit,
    Growing,
    KaimingInit,
    Layer,
    Linear,
    LookupTable,
    NgraphArgparser,
    OrthogonalInit,
    Parallel,
    Pooling,
    Preprocess,
    Rectlin,
    ResidualModule,
    Saver,
    Sequential,
    SequentialArrayIterator,
    Softmax,
    SubGraph,
    Trainer,
    TransformerBlock,
    UniformInit,
    XavierInit,
    ar,
    ax,
    make_axes,
    make_bound_computation,
    make_conv,
    scope_ops,
)
from ngraph.frontends.neon.callbacks import Record

NAMES = """
Layer Preprocess Linear Bias Affine Activation Convolution Deconvolution ConvBase DeconvBase make_conv Pooling BatchNorm Dropout
LookupTable Recurrent BiRNN LSTM RNNCell BaseRNNCell unroll
Rectlin Rectlinclip Identity Explin Normalizer Softmax Tanh Logistic GaussianInit UniformInit
ConstantInit GlorotInit XavierInit KaimingInit GradientDescentMomentum RMSProp Adam Adagrad clip_gradient_norm clip_gradient_value
clip_weight_value Sequential Parallel ResidualModule Container make_bound_computation BoundComputation ComputationalGraph SubGraph scope_ops
CallbackPhase Callback TrainCostCallback TrainLoggerCallback LossCallback ProgressCallback RunTimerCallback CallbackContainer
make_default_callbacks loop_train loop_eval Saver NgraphArgparser ArrayIterator SequentialArrayIterator MNIST CIFAR10 CIFAR100 PTB IMDB
Shakespeare make_axes ax ar
"""


def test_every_name_is_there():
    assert [n for n in NAMES.split() if not hasattr(neon, n) or n not in neon.__all__] == []
    assert all(hasattr(neon, n) for n in neon.__all__)
    assert all(getattr(ax, n).name == n for n in "N C D H W REC R S T J K M P Q Y".split())
    assert ng.make_axis(roles=[ar.H]).has_role("H") and ax.N.is_batch and ax.REC.is_recurrent and ax.C.is_channel
    assert make_axes([ax.C]) == ng.make_axes([ng.make_axis(name="C")])


def image(n=3, c=4, h=6, w=6):
    return ng.placeholder([ng.make_axis(size, name=name) for size, name in zip((n, c, h, w), "NCHW", strict=True)])


def features(n=3, f=4):
    return ng.placeholder([ng.make_axis(n, name="N"), ng.make_axis(f, name="F")])


def value(op, *parameters, arrays=(), transformer=None):
    return (transformer or ngt.make_transformer()).computation(op, *parameters)(*arrays)


# ---- traps ----------------------------------------------------------------------------------------------------------------


def test_dropout_has_a_mask_for_each_example_and_keeps_the_mean():
    n, f = ng.make_axis(400, name="N"), ng.make_axis(50, name="F")
    x = ng.placeholder([n, f])
    layer = Dropout(0.25)
    ones = np.ones((400, 50), np.float32)
    t = ngt.make_transformer()
    run = t.computation(layer(x), x)
    first = run(ones)
    assert set(np.unique(first)) == {0.0, 4.0} and abs(first.mean() - 1) < 0.05
    assert (first != first[0]).any() and (run(ones) != first).any()
    with Layer.inference_mode_on():
        np.testing.assert_array_equal(value(layer(x), x, arrays=[ones]), ones)
    with pytest.raises(ValueError, match="keep is a number above 0, up to 1, not 0.0"):
        Dropout(0.0)


def test_inference_mode_ends_with_an_exception():
    layer = Dropout()
    with pytest.raises(RuntimeError), Layer.inference_mode_on():
        assert layer.inference_mode
        raise RuntimeError
    assert not layer.inference_mode


def test_calls_of_2016_share_weights():
    model = Sequential([Affine(GaussianInit(), nout=5, batch_norm=True), Dropout(0.5), Affine(GaussianInit(), nout=2)])
    x = features()
    train, infer = model.train_outputs(x), model.inference_outputs(x)
    assert set(infer.variables()) <= set(train.variables()) and len(model.variables) == 5
    t = ngt.make_transformer()
    run = t.computation(infer, x)
    data = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(run(data), run(data))


def test_batch_norm_keeps_running_averages():
    layer = BatchNorm(rho=0.5)
    x = features(8, 3)
    y = layer(x)
    with Layer.inference_mode_on():
        z = layer(x)
    t = ngt.make_transformer()
    train, infer = t.computation(y, x), t.computation(z, x)
    data = np.random.default_rng(0).normal(2, 3, (8, 3)).astype(np.float32)
    train(data)
    mean, var = 0.5 * data.mean(0), 0.5 * 1 + 0.5 * data.var(0)
    np.testing.assert_allclose(t.get(layer.weights["gmean"]), mean, rtol=1e-5)
    np.testing.assert_allclose(t.get(layer.weights["gvar"]), var, rtol=1e-5)
    np.testing.assert_allclose(infer(data), (data - mean) / np.sqrt(var + 1e-3), rtol=1e-4, atol=1e-5)
    tuned = BatchNorm()
    k = ng.placeholder(())
    tuned.set_tuning_iteration(k)
    run = t.computation(tuned(x), x, k)
    batches = [data + i for i in range(3)]
    for i, batch in enumerate(batches):
        run(batch, i)
    np.testing.assert_allclose(t.get(tuned.weights["gmean"]), np.mean([b.mean(0) for b in batches], 0), rtol=1e-5)


@pytest.mark.parametrize("pad", [None, 2])
def test_lookup_table_starts_with_its_values(pad):
    ids = ng.placeholder([ng.make_axis(2, name="REC"), ng.make_axis(3, name="N")], dtype="int32")
    table = LookupTable(6, 4, UniformInit(1, 2), pad_idx=pad)
    y = table(ids)
    assert [a.name for a in y.axes] == ["F", "REC", "N"]
    t = ngt.make_transformer()
    t.computation(y, ids)(np.zeros((2, 3), np.int32))
    rows = t.get(table.weights["W"])
    assert ((rows == 0).all(1) == [k == pad for k in range(6)]).all()
    assert not LookupTable(6, 4, 0.1, update=False)(ids).variables()


def test_callers_dicts_and_lists_stay():
    shape, layers = {"H": 3, "W": 3, "K": 2}, [Rectlin()]
    Convolution(shape, GaussianInit())
    Sequential(layers).layers.append(None)
    assert shape == {"H": 3, "W": 3, "K": 2} and len(layers) == 1


def test_affine_and_its_bias():
    x = features()
    plain = Affine(GaussianInit(), nout=5)
    plain(x)
    assert list(plain.paths()) == ["Linear_0/W", "Bias_0/bias"]
    without = Affine(GaussianInit(), nout=5, bias=False)
    without(x)
    assert list(without.paths()) == ["Linear_0/W"]
    with pytest.raises(ValueError, match="batch_norm has a shift of its own"):
        Affine(GaussianInit(), nout=5, bias_init=GaussianInit(), batch_norm=True)
    normed = Affine(GaussianInit(), nout=5, batch_norm=BatchNorm(rho=0.5))
    normed(x)
    assert "BatchNorm_0/gamma" in normed.paths()
    for both in ({}, {"nout": 3, "axes": [ax.Y]}):
        with pytest.raises(ValueError, match="one of nout and axes"):
            Linear(GaussianInit(), **both)
    shared, own = Bias(GaussianInit()), Bias(None, shared=False)
    shared(image()), own(image())
    assert [a.name for a in shared.weights["bias"].axes] == ["C"] and [a.name for a in own.weights["bias"].axes] == ["C", "H", "W"]


def test_convolution_of_two_numbers_is_one_axis():
    x = ng.placeholder([ng.make_axis(3, name="N"), ng.make_axis(4, name="C"), ng.make_axis(9, name="W")])
    assert [a.length for a in Convolution((3, 5), GaussianInit())(x).axes] == [3, 5, 7]
    assert isinstance(make_conv((3, 5), GaussianInit(), deconv=True), Deconvolution)
    with pytest.raises(ng.NgraphError, match=r"goes along W, which \[N=3, C=4, H=6\] lacks"):
        Convolution((3, 5), GaussianInit())(ng.placeholder([ng.make_axis(n, name=a) for n, a in ((3, "N"), (4, "C"), (6, "H"))]))
    with pytest.raises(ng.NgraphError, match="do not divide into 3 groups"):
        Convolution((3, 3, 6), GaussianInit(), groups=3)(image())


# ---- containers, names, selection -------------------------------------------------------------------------------------------


def test_containers():
    x = image()
    conv = lambda k: Convolution((3, 3, k), GaussianInit(), padding=1)
    joined = Parallel([conv(2), Sequential([conv(3), Rectlin()])])(x)
    assert [a.length for a in joined.axes] == [3, 5, 6, 6]
    assert len(Parallel([conv(2), conv(2)], mode=None)(x)) == 2
    assert Parallel([conv(2), conv(2)], mode="sum")(x).axes[1].length == 2
    with pytest.raises(ng.NgraphError, match="no channel axis to join along"):
        Parallel([lambda x: x, lambda x: x])(
            ng.placeholder([ng.make_axis(3, name="N"), ng.make_axis(4, name="H"), ng.make_axis(4, name="W")])
        )
    assert ResidualModule(conv(4))(x).axes == x.axes
    with pytest.raises(ng.NgraphError, match="main path gives .*C=5.*side path .*C=4[\\s\\S]*fix: give a side_path"):
        ResidualModule(conv(5))(x)
    model = Sequential([conv(2), [conv(3), Rectlin()]])
    y = model(x)
    assert len(model) == 3 and model[0] is model.layers[0] and model[:2](x).axes == y.axes
    with pytest.raises(TypeError, match="is neither a layer"):
        Sequential([3])


def test_bound_computation_by_name():
    x, unused = features(), ng.placeholder(())
    run = make_bound_computation(ngt.make_transformer(), {"double": x * 2}, {"x": x, "unused": unused})
    assert (run({"x": np.ones((3, 4)), "more": 1})["double"] == 2).all()
    with pytest.raises(KeyError, match="needs x"):
        run({})


def test_paths_depend_on_the_model_alone():
    def paths():
        model = Sequential([Affine(GaussianInit(), nout=3), Affine(GaussianInit(), nout=3), Convolution((3, 3, 2), GaussianInit())])
        Sequential(model.layers[:2], name="m")(features())
        return [list(layer.paths()) for layer in model.layers[:2]]

    assert paths() == paths()
    model = Sequential([Affine(GaussianInit(), nout=3, name="first"), Affine(GaussianInit(), nout=3)])
    y = model(features())
    assert list(model.paths()) == ["first/Linear_0/W", "first/Bias_0/bias", "Affine_0/Linear_0/W", "Affine_0/Bias_0/bias"]
    assert model["Affine_0/Bias_0/bias"].axes[0].length == 3
    with pytest.raises(KeyError, match="it has first/Linear_0/W"):
        model["W"]
    assert len(model.variables) == 4 and set(model.placeholders) and model.outputs == [y] and len(model.inputs) == 1


def test_selectors():
    model = Sequential([Affine(GaussianInit(), nout=3), Affine(GaussianInit(), nout=3, activation=Rectlin())], name="net")
    with ng.metadata(step=3):
        model(features())
    assert len(model.select("Affine .bias")) == 2 and len(model.select("#Affine_1 .bias")) == 1
    assert {o.opdef.name for o in model.select("Activation")} == {"relu"} and model.select("Dropout .bias") == []
    assert len(model.select("variable, contract")) == 6 and len(model.select("[step=3]")) == len(model.ops)
    assert not model.select("[step=4]") and len(model.select("#net Affine Linear .W")) == 2
    with pytest.raises(ValueError, match="is not a selector"):
        model.select("a>b")


def test_selectors_find_layers_with_names_of_their_own():
    inner = Sequential([Affine(GaussianInit(), nout=3, name="head"), Affine(GaussianInit(), nout=3)], name="body")
    model = Sequential([inner, Affine(GaussianInit(), nout=2, name="tail_7")], name="net")
    other = Sequential([Dropout(0.5, name="body")], name="net")  # the same names as others
    other(features())
    model(features())
    assert [op.name for op in model.select("Affine .bias")] == [op.name for op in model.select(".bias")]
    assert len(model.select("Affine .bias")) == 3 and len(model.select("Sequential Affine .W")) == 3
    assert len(model.select("Sequential Sequential Affine .W")) == 2 and len(model.select("#head .bias")) == 1
    assert len(inner.select("Affine .W")) == 2 and model.select("head .bias") == [] and model.select("tail .bias") == []
    assert other.select("Dropout") and not model.select("Dropout")


def test_scopes_and_modes():
    with scope_ops("outside", mode="inference", metadata={"who": "me"}) as piece:
        y = features() * 2
    assert y in piece.ops and y.metadata == {"who": "me", "mode": "inference"} and "outside" in piece.scopes and piece.modes

    class Doubler(SubGraph):
        @SubGraph.scope_op_creation
        def __call__(self, x):
            return x * 2

    doubler = Doubler()
    assert doubler(features()).scope == doubler.name and len(doubler.ops) >= 1


def test_a_second_call_with_other_axes_is_an_error_that_names_all():
    layer = Affine(GaussianInit(), nout=3)
    layer(features(3, 4))
    with pytest.raises(
        ng.NgraphError, match=r"Linear_0 has W \[F=3, F'=4\] .*this call needs \[F=3, F'=5\][\s\S]*earlier call: .*test_neon"
    ):
        layer(features(3, 5))
    with pytest.raises(ng.NgraphError, match="the length of F' is not known"):
        Affine(GaussianInit(), axes=[ax.Y.resized(3)])(ng.placeholder([ng.make_axis(3, name="N"), ng.make_axis(name="F")]))


def test_wrong_arguments_are_named():
    """What a newcomer may write, each with an error that says what is wrong."""
    glorot = GlorotInit()
    with pytest.raises(ng.NgraphError, match="no window of H_filter=7 fits along H=6") as caught:
        Sequential([Convolution((3, 3, 2), glorot, padding=1), Convolution((7, 7, 2), glorot)])(image())
    assert [note.split("/")[-1] for note in caught.value.__notes__] == ["Convolution_1"]
    with pytest.raises(ng.NgraphError, match="no window of H_window=8 fits along H=6"):
        Pooling((8, 2))(image())
    with pytest.raises(ValueError, match="Affine: nout is a whole number above 0, not '10'"):
        Affine(glorot, nout="10")
    with pytest.raises(ValueError, match="LSTM: nout is a whole number above 0, not 0"):
        LSTM(0, glorot)
    with pytest.raises(ValueError, match="SequentialArrayIterator: time_steps is a whole number above 0, not 0"):
        SequentialArrayIterator({"inp_txt": np.zeros(9)}, 0, 1)
    with pytest.raises(ValueError, match="ArrayIterator: batch_size is a whole number above 0, not -1"):
        ArrayIterator({"x": np.zeros(9)}, -1)
    with pytest.raises(TypeError, match="weight_init is 'glorot', which is not an initial value"):
        Affine("glorot", nout=3)(features())
    with pytest.raises(TypeError, match="a learning rate is a number.*not 'fast'"):
        Adam("fast")
    with pytest.raises(ng.NgraphError, match="'float17' is not an element type"):
        Trainer(Sequential([]), Adam(0.1), CrossEntropyMulti(), precision="float17")
    with pytest.raises(ValueError, match=r"x has shape \(8, 6\), and axes N"):
        ArrayIterator({"x": {"data": np.zeros((8, 6)), "axes": ("N",)}}, 2)
    data = {"x": np.zeros((8, 3), np.float32), "label": np.full(8, 7, np.int32)}
    with pytest.raises(ValueError, match="example 0 .*label 7, and labels are whole numbers from 0 to 2, for 3 classes"):
        Trainer(Sequential([Affine(glorot, nout=3)]), Adam(0.1), CrossEntropyMulti(logits=True)).fit(ArrayIterator(data, 4))


def test_repr_is_short():
    model = Sequential([Affine(GaussianInit(), nout=3, activation=Rectlin()), Dropout(0.5)])
    assert repr(model) == "Sequential(Affine(3, Rectlin(slope=0)), Dropout(keep=0.5))"
    assert repr(Convolution((3, 3, 8), GaussianInit(), strides=2)) == "Convolution(3x3, 8, strides={'H': 2, 'W': 2})"


# ---- first values -------------------------------------------------------------------------------------------------------------


def test_initializers():
    axes = ng.make_axes([ng.make_axis(40, name="F"), ng.make_axis(60, name="G") - 1])
    assert GaussianInit(1.0, 0.1)(axes).shape == (40, 60) and abs(GaussianInit(1.0, 0.1)(axes).mean() - 1) < 0.01
    assert abs(GaussianInit(0, var=0.5)(axes).std() - 0.5) < 0.05
    bounds = {GlorotInit(): np.sqrt(6 / 100), XavierInit(): np.sqrt(3 / 60)}
    for init, bound in bounds.items():
        assert 0.95 * bound < np.abs(init(axes)).max() <= bound
    assert abs(KaimingInit()(axes).std() - np.sqrt(2 / 60)) < 0.01
    q = OrthogonalInit(2.0)(axes)
    np.testing.assert_allclose(q @ q.T, 4 * np.eye(40), atol=1e-9)
    assert (neon.ConstantInit(3)(axes) == 3).all()


def test_first_values_depend_on_seed_and_path_alone():
    def first(seed, before=0):
        neon.initializers.set_seed(seed)
        for _ in range(before):
            GaussianInit()(ng.make_axes([ax.Y.resized(3)]))
        layer = Affine(GaussianInit(), nout=3, name="same")
        x = features()
        t = ngt.make_transformer()
        t.computation(layer(x), x)
        return t.get(layer["Linear_0/W"])

    try:
        assert (first(1) == first(1, before=5)).all() and (first(1) != first(2)).any()
    finally:
        neon.initializers.set_seed(0)


# ---- saving, arguments, text ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["", ".safetensors"])
def test_saver(tmp_path, end):
    x = features()
    model = Sequential([Affine(GaussianInit(), nout=3, batch_norm=True)])
    y = model(x)
    t, other = ngt.make_transformer(), ngt.make_transformer()
    run = t.computation(y, x)
    data = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    run(data)
    saver, path = Saver(), str(tmp_path / f"weights{end}")
    with pytest.raises(ng.NgraphError, match="without setup_save"):
        saver.save(path)
    saver.setup_save(t, run)
    saver.save(path, compress=True)
    again = other.computation(y, x)
    saver.setup_restore(other, again, path)
    assert len(saver.restore()["matched"]) == 5
    for w in model.paths().values():
        np.testing.assert_array_equal(t.get(w), other.get(w))
    more = Affine(GaussianInit(), nout=2, name="another")
    z = other.computation(more(x), x)
    with pytest.warns(UserWarning, match="missing: another"):
        Saver().restore(other, z, path)


@pytest.mark.parametrize("form", ["an op", "a computation", "all", "a dict", "bound"])
def test_a_saver_takes_any_form_of_a_computation(tmp_path, form):
    x = features()
    model = Sequential([Affine(GaussianInit(), nout=3)])
    y, t, path = model(x), ngt.make_transformer(), str(tmp_path / "weights")
    bound = make_bound_computation(t, {"y": y}, {"x": x})
    bound({"x": np.ones((3, 4))})
    forms = {"an op": y, "a computation": ng.computation(y, x), "all": ng.computation([y], "all"), "a dict": {"y": y}, "bound": bound}
    saver = Saver()
    saver.setup_save(transformer=t, computation=forms[form])
    saver.save(path)
    with np.load(path + ".npz") as kept:
        assert {k: v.tolist() for k, v in kept.items()} == {w.name: t.get(w).tolist() for w in model.variables.values()}
    for w in model.variables.values():
        t.set(w, 7)
    assert len(saver.restore(t, forms[form], path)["matched"]) == 2 and (t.get(model[0].W) != 7).all()


def test_a_loss_that_is_not_one_number_is_its_mean():
    """As in neon, whose programs of 2018 listed the predictions among the outputs to evaluate."""
    x, data = ng.placeholder("N=4 F=3"), np.random.default_rng(2).normal(size=(12, 3)).astype(np.float32)
    bound = make_bound_computation(ngt.make_transformer(), {"results": x * 2, "each": ng.sum(x, "F")}, {"x": x})
    record = Record()
    found = neon.LossCallback(1, ArrayIterator({"x": data}, 4), bound, say=lambda line: None)
    found.minibatch_post(None, record, None, 0)
    np.testing.assert_allclose([record.last("cost/results"), record.last("cost/each")], [2 * data.mean(), data.sum(1).mean()], rtol=1e-5)


def test_arguments(tmp_path):
    parser = NgraphArgparser(description="x")
    parser.add_argument("--more", type=int, default=1)
    (tmp_path / "c").write_text("batch_size: 64\nmore = 7 # seven\n")
    try:
        args = parser.parse_args(["-c", str(tmp_path / "c"), "-r", "5", "-b", "numpy", "-z", "32"])
        assert (args.batch_size, args.more, args.num_iterations, args.epochs) == (32, 7, 2000, 10)
        made = ngt.make_transformer()
        assert made.name == "numpy" and made._seed == 5
        (tmp_path / "c").write_text("what: 3\n")
        with pytest.raises(SystemExit):
            parser.parse_args(["-c", str(tmp_path / "c")])
    finally:
        ngt.set_transformer_factory(None)
        neon.initializers.set_seed(0)
    assert isinstance(parser, argparse.ArgumentParser)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", None])
def test_text_that_grows_is_the_text_as_a_whole(positions):
    batch, words = ng.make_axis(2, name="N"), ng.make_axis(6, name="REC")
    embed, block, head = (
        Embedding(11, 8, positions=positions, max_len=16),
        TransformerBlock(2, causal=True),
        Affine(GlorotInit(), axes=[ax.Y.resized(11)]),
    )
    whole = ng.placeholder([words, batch], dtype="int32")
    y = head(block(embed(whole)))
    at = ng.placeholder((), dtype="int32")
    one = ng.placeholder([ng.make_axis(1, name="REC"), batch], dtype="int32")
    with Layer.inference_mode_on():
        z = head(block(embed(one, start=at), growing=Growing(16, at, batch)))
    t = ngt.make_transformer()
    full, step = t.computation(ng.axes_with_order(y, [*y.axes]), whole), t.computation(z, one, at)
    text = np.random.default_rng(0).integers(0, 11, (6, 2)).astype(np.int32)
    expected = np.moveaxis(full(text), [a.name for a in y.axes].index("REC"), 0)
    for k in range(6):
        got = np.moveaxis(step(text[k : k + 1], k), [a.name for a in z.axes].index("REC"), 0)[0]
        np.testing.assert_allclose(got, expected[k], atol=2e-5)


def test_import_of_ngraph_leaves_neon_alone():
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", "import sys, ngraph; print([m for m in sys.modules if 'neon' in m])"], capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"


def test_softmax_and_preprocess_in_a_model():
    model = Sequential([Preprocess(lambda x: x / 2), Affine(0.0, nout=4, activation=Softmax())])
    x = features()
    np.testing.assert_allclose(value(model(x), x, arrays=[np.ones((3, 4))]), 0.25)


def test_operations_are_counted():
    flops = neon.inside.flops
    x = features(10, 784)
    run = ngt.make_transformer().computation(Linear(GaussianInit(), nout=100)(x), x)
    assert flops(run, np.zeros((10, 784))) == 2 * 784 * 100 * 10
    time = ng.placeholder([ng.make_axis(6, name="F"), ng.make_axis(7, name="REC"), ng.make_axis(name="N")])
    run = ngt.make_transformer().computation(neon.LSTM(8, GaussianInit())(time), time)
    products = 2 * 4 * 8 * (6 + 8) * 7 * 3
    assert products < flops(run, np.zeros((6, 7, 3))) < 1.4 * products
    picture = image()
    run = ngt.make_transformer().computation(Convolution((3, 3, 5), GaussianInit())(picture), picture)
    assert flops(run, np.zeros((3, 4, 6, 6))) == 2 * 3 * 5 * 4 * 4 * 4 * 9
