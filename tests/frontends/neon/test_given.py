"""fit, evaluate and predict on data as users have them: arrays, tensors, tables, loaders; against torch on the same batches."""

import numpy as np
import pytest
import torch

import ngraph as ng
from ngraph.errors import ArgumentError
from ngraph.frontends.neon import (
    GRU,
    LSTM,
    Accuracy,
    Adam,
    Affine,
    ArrayIterator,
    ConstantInit,
    Convolution,
    CrossEntropyMulti,
    GaussianInit,
    GlorotInit,
    GradientDescentMomentum,
    KaimingInit,
    LookupTable,
    MeanSquared,
    Rectlin,
    Sequential,
    Tanh,
    Trainer,
    given,
)

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(103, 4))
LABELS = (X.sum(1) > 0).astype(int)


def classifier(**options):
    layers = [Affine(KaimingInit(), nout=8, activation=Rectlin()), Affine(GlorotInit(), nout=2)]
    return Trainer(Sequential(layers), Adam(0.02), CrossEntropyMulti(logits=True), [Accuracy()], say=lambda line: None, **options)


def line(nout=1, **options):
    model = Sequential([Affine(ConstantInit(0.1), nout=nout)])
    return Trainer(model, GradientDescentMomentum(0.1, 0.5), MeanSquared(), say=lambda line: None, **options)


def torch_losses(batches, nout=1):
    """The loss of each batch as torch trains the same linear model."""
    model = torch.nn.Linear(4, nout).double()
    torch.nn.init.constant_(model.weight, 0.1)
    torch.nn.init.constant_(model.bias, 0.0)
    rule = torch.optim.SGD(model.parameters(), 0.1, momentum=0.5)
    for x, y in batches:
        loss = ((model(torch.tensor(x)) - torch.tensor(y).reshape(len(x), -1)) ** 2).mean()
        rule.zero_grad()
        loss.backward()
        rule.step()
        yield loss.item()


@pytest.mark.parametrize("size", [1, 7, 32, 103, 500])
def test_batches_of_arrays_are_those_of_torch(size):
    """Any length of the last batch, and each epoch in the same order."""
    y = X @ [1.0, -2.0, 0.5, 0.0] + 0.3
    made = line()
    report = made.fit(X, y, epochs=2, batch_size=size, shuffle=False)
    parts = [(X[k : k + size], y[k : k + size]) for k in range(0, 103, size)] * 2
    np.testing.assert_allclose(made.record["cost/train"], np.array(list(torch_losses(parts))), rtol=2e-4, atol=1e-6)
    assert report.steps == len(parts) and report.examples == 206


def test_shuffled_passes_have_each_example_once_and_follow_the_seed():
    def orders(seed, **options):
        seen = []
        made = line(seed=seed)
        run = made._run
        made._run = lambda batch: (seen.append(batch["x"][:, 0].copy()), run(batch))[1]
        made.fit(X, X[:, 0], epochs=2, batch_size=10, **options)
        made.fit(X, X[:, 0], batch_size=10, **options)
        return [np.concatenate(seen[k : k + 11]) for k in (0, 11, 22)]

    one, two, three = orders(1)
    for order in (one, two, three):
        np.testing.assert_array_equal(np.sort(order), np.sort(X[:, 0].astype(np.float32)))
    assert (one != two).any() and (two != three).any() and (one != three).any()  # the second fit goes on
    np.testing.assert_array_equal(orders(1), [one, two, three])
    assert (orders(2)[0] != one).any()
    np.testing.assert_array_equal(orders(1, shuffle=False), [X[:, 0].astype(np.float32)] * 3)


@pytest.mark.parametrize("shape", [(), (1,), (2,)])
def test_targets_of_a_regression(shape):
    y = np.stack([X.sum(1), X[:, 0]], 1)[:, : shape[0]] if shape else X.sum(1)
    made = line(*shape or (1,))
    made.fit(X, y, epochs=1, batch_size=103)
    (first,) = torch_losses([(X, y)], *shape or (1,))
    assert made.record["cost/train"][0] == pytest.approx(first, rel=1e-4)
    assert made.predict(X).shape == (103, *(shape or (1,)))
    assert made.evaluate(X, y)["cost"] == pytest.approx(np.mean((made.predict(X) - y.reshape(103, -1)) ** 2), rel=1e-4)


@pytest.mark.parametrize("kind", ["numbers", "column", "one-hot", "tensor", "lists"])
def test_targets_of_classes(kind):
    x, y = X, LABELS
    y = {"column": y[:, None], "one-hot": np.eye(2)[y], "tensor": torch.tensor(y), "lists": y.tolist()}.get(kind, y)
    x = torch.tensor(x, requires_grad=True) if kind == "tensor" else x.tolist() if kind == "lists" else x
    made = classifier()
    report = made.fit(x, y, epochs=20, valid=(x, y))
    guess = made.predict(x).argmax(1)
    assert report.valid == made.evaluate(x, y) and report.valid["accuracy"] == np.mean(guess == LABELS) > 0.9
    assert made.predict(x[:1]).shape == (1, 2) and made.predict(X[:0]).shape == (0, 2)


def test_the_last_examples_are_held_out():
    made = classifier()
    report = made.fit(X, LABELS, epochs=3, valid=0.2)
    assert report.examples == 3 * 83 and report.valid == made.evaluate(X[83:], LABELS[83:])
    named = classifier()
    named.fit(ArrayIterator({"image": X.astype(np.float32), "label": LABELS}, 20), steps=1)
    assert named.predict(X).shape == named.predict({"image": X}).shape == (103, 2)  # by the data's own name, too
    with pytest.raises(ValueError, match=r"valid=0.9 leaves none of 1 examples"):
        classifier().fit(X[:1], LABELS[:1], valid=0.9)
    with pytest.raises(ValueError, match="a share of arrays"):
        classifier().fit(ArrayIterator({"x": X, "y": LABELS}, 10, tgt_key="y"), valid=0.2)


def test_a_second_fit_trains_on_and_evaluates_after_each_of_its_epochs():
    made = classifier()
    made.fit(X, LABELS, epochs=2, valid=(X, LABELS), batch_size=40)
    again = made.fit(X[:50], LABELS[:50], epochs=3, valid=(X, LABELS), batch_size=40)
    assert again.steps == 6 and made.step == 12 and [s for s, _ in made.record.lists["cost/valid"]] == [2, 5, 7, 9, 11]


def test_tables():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X.astype(np.float32), columns=list("abcd"))
    both = {**table, "label": pandas.Series(LABELS)}
    results = []
    for x, y in ((table, pandas.Series(LABELS)), (pandas.DataFrame(both), "label"), (pandas.DataFrame(both), None), (X, LABELS)):
        made = line(2)
        made.cost = CrossEntropyMulti(logits=True)
        made.fit(x, y, epochs=2, shuffle=False)
        results.append(made.record["cost/train"])
        assert made.predict(table).shape == (103, 2)
        assert made.evaluate(x, y)["cost"] == pytest.approx(made.evaluate(X, LABELS)["cost"])
    np.testing.assert_array_equal(results, [results[0]] * 4)
    ints = pandas.DataFrame({"a": pandas.array([1, 2, None], dtype="Int64"), "b": [True, False, True], "c": [1.5, 2, 3]})
    assert given.array_of(ints, "x").dtype == np.float32 and np.isnan(given.array_of(ints, "x")[2, 0])
    for spoil, said in (
        (table.assign(s="x"), r"x\['s'\] has text, and models take numbers[\s\S]*fix: encode it"),
        (table.assign(s=pandas.Timestamp("2020")), r"x\['s'\] has dates"),
        (table[[]], "x has no columns"),
    ):
        with pytest.raises(ng.NgraphError, match=said):
            classifier().fit(spoil, LABELS)
    with pytest.raises(ValueError, match=r"y names 'lable', and the data have a, b, c, d, label[\s\S]*y='label'"):
        classifier().fit(pandas.DataFrame(both), "lable")


def test_tables_are_read_by_the_names_of_their_columns():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X.astype(np.float32), columns=list("abcd"))
    made = line(2)
    made.fit(table, table[["b", "d"]].to_numpy(), shuffle=False)
    same = made.predict(table)
    np.testing.assert_array_equal(made.predict(table[list("cadb")]), same)
    np.testing.assert_array_equal(made.predict(table.assign(z="text")), same)
    with pytest.raises(ng.NgraphError, match=r"x has no column b; the model was given a, b, c, d[\s\S]*to_numpy"):
        made.predict(table[list("acd")])
    results = []
    for x, y in ((table, ["d", "b"]), (table[list("dcab")], ["d", "b"]), (table[["a", "c"]], table[["d", "b"]])):
        two = line(2)
        two.fit(x, y, epochs=2, shuffle=False, valid=0.2)
        results.append([two.evaluate(x, y)["cost"], *two.record["cost/valid"]])
    np.testing.assert_allclose(results, [results[0]] * 3, rtol=1e-5)
    with pytest.raises(ng.NgraphError, match="y names 'e', and the data have a, b, c, d"):
        line(2).fit(table, ["d", "e"])


@pytest.mark.parametrize("form", ["pairs", "dicts", "unsized", "a list of pairs", "a list of dicts"])
def test_loaders(form):
    """Batches of any last length, float64 and int64 as torch makes them; the losses are those of the same arrays."""
    pairs = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(LABELS))

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(pairs)

    source = {"dicts": [{"x": x, "label": y} for x, y in pairs], "unsized": Stream()}.get(form, pairs)
    loader = torch.utils.data.DataLoader(source, batch_size=20)
    if form == "a list of pairs":
        loader = [(X[k : k + 20], LABELS[k : k + 20]) for k in range(0, 103, 20)]
    elif form == "a list of dicts":
        loader = [{"x": X[k : k + 20], "label": LABELS[k : k + 20]} for k in range(0, 103, 20)]
    made, same = (line(2) for _ in range(2))
    made.cost = same.cost = CrossEntropyMulti(logits=True)
    report = made.fit(loader, loader, epochs=2)
    same.fit(X, LABELS, epochs=2, batch_size=20, shuffle=False)
    np.testing.assert_array_equal(made.record["cost/train"], same.record["cost/train"])
    assert report.steps == 12 and report.examples == 206 and report.valid["cost"] == pytest.approx(same.evaluate(X, LABELS)["cost"])
    np.testing.assert_array_equal(made.predict(loader), made.predict(X))
    found = made.evaluate({"few": (X[:20], LABELS[:20]), "all": loader})
    assert found["all"] == made.evaluate(loader) and found["few"] == made.evaluate(X[:20], LABELS[:20])


def test_sequences_and_images_get_the_axes_that_the_model_reads():
    x = RANDOM.normal(size=(40, 7, 3))
    words = RANDOM.integers(0, 9, (40, 7))

    def fitted(layers, x, y, cost, **options):
        made = Trainer(Sequential(layers), Adam(0.01), cost, say=lambda line: None)
        made.fit(x, y, **options)
        return made

    last = fitted([LSTM(5, GlorotInit(), return_sequence=False), Affine(GlorotInit(), nout=1)], x, x.sum((1, 2)), MeanSquared())
    each = fitted([LSTM(5, GlorotInit()), Affine(GlorotInit(), nout=7)], x, np.tile(x[:, :, :1], 7), MeanSquared())
    assert [a.label for a in last.model[0].cell.weights["W_x"].axes][-1] == "F'" and each.predict(x).shape == (40, 7, 7)
    text = [LookupTable(9, 5, GlorotInit()), LSTM(5, GlorotInit()), Affine(GlorotInit(), nout=9)]
    assert fitted(text, words, words[:, ::-1], CrossEntropyMulti(logits=True)).predict(words).shape == (40, 9, 7)
    for layer in (GRU(1, GlorotInit()), LSTM(1, GlorotInit())):  # predictions have the order of the target, to be compared with it
        made = fitted([layer], x, np.cumsum(x[:, :, :1], 1), MeanSquared())
        assert made.predict(x).shape == (40, 7, 1)
        assert made.evaluate(x, x[:, :, :1])["cost"] == pytest.approx(np.mean((made.predict(x) - x[:, :, :1]) ** 2), rel=1e-4)
    carried = [LSTM(5, GlorotInit(), return_sequence=False, reset_cells=False), Affine(GlorotInit(), nout=1)]
    assert fitted(carried, x, x.sum((1, 2)), MeanSquared(), batch_size=16, shuffle=False).predict(x).shape == (40, 1)
    for shape, axes in (
        ((40, 3, 8, 8), None),
        ((40, 8, 8, 3), None),
        ((40, 8, 3, 6), "N W C H"),
        ((40, 8, 3, 6), {"x": ("N", "W", "C", "H")}),
    ):
        image = RANDOM.normal(size=shape)
        layers = [Convolution((3, 3, 4), KaimingInit()), Affine(GlorotInit(), nout=2)]
        made = fitted(layers, image, np.arange(40) % 2, CrossEntropyMulti(logits=True), axes=axes)
        assert {a.label: a.length for a in made.model[0].W.axes}["C"] == 3 and made.predict(image).shape == (40, 2)


def test_several_inputs_by_name():
    layers = [Affine(GlorotInit(), nout=1), Affine(GlorotInit(), nout=1)]
    made = Trainer(lambda p: layers[0](p["a"]) + layers[1](p["b"]), Adam(0.01), MeanSquared(), say=lambda line: None)
    inputs = {"a": X, "b": X[:, :2]}
    made.fit(inputs, X[:, 0])
    assert made.predict(inputs).shape == (103, 1) and np.isfinite(made.evaluate(inputs, X[:, 0])["cost"])
    assert list(made.evaluate({"one": (inputs, X[:, 0]), "two": (inputs, X[:, 1])})) == ["one", "two"]
    sets = [ArrayIterator({**inputs, "y": X[:, 0]}, 16)] * 2
    with pytest.raises(ArgumentError, match=r"2 sets came in a list(?s:.*)several by name"):
        made.evaluate(sets)


@pytest.mark.parametrize("form", [dict, list, tuple])
def test_several_results_in_the_form_of_the_model(form):
    two, one = Affine(GlorotInit(), nout=2), Affine(GlorotInit(), axes=[])

    def model(x):
        parts = {"a": two(x), "b": one(x)}
        return parts if form is dict else form(parts.values())

    def cost(y, t):
        a, b = y.values() if form is dict else y
        return CrossEntropyMulti(logits=True)(a, t) + MeanSquared()(b, ng.cast(t, "float32"))

    made = Trainer(model, Adam(0.01), cost, say=lambda line: None)
    made.fit(X, LABELS, batch_size=10)
    found = made.predict(X)
    assert type(found) is form
    a, b = found.values() if form is dict else found
    (w, c), (v, d) = ([made.transformer.get(p) for p in layer.paths().values()] for layer in (two, one))
    np.testing.assert_allclose(a, X @ w.T + c, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(b, X @ v.reshape(4) + d, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(b, made.predict(ArrayIterator({"x": X.astype(np.float32)}, 20))[1 if form is not dict else "b"])


def test_a_fit_on_arrays_resumes_bit_for_bit(tmp_path):
    def losses(name, *lengths):
        for steps in lengths:
            made = Trainer(
                Sequential([Affine(GlorotInit(), nout=2, activation=Tanh())], name="same"),
                Adam(0.02),
                MeanSquared(),
                folder=str(tmp_path / name),
                say=lambda line: None,
            )
            made.fit(X, X[:, :2], steps=steps, batch_size=20, checkpoint_every=3, resume=True)
        return made.record["cost/train"]

    np.testing.assert_array_equal(losses("two", 8, 17), losses("one", 17))


@pytest.mark.parametrize("shape", [(4,), (3, 6, 6)])
@pytest.mark.parametrize("first", ["arrays", "iterator"])
def test_iterators_without_names_of_axes_stand_beside_arrays(shape, first):
    """Their axes get the names that those of arrays get, so either may be evaluated after a fit on the other, to equal costs."""
    x = RANDOM.normal(size=(40, *shape)).astype(np.float32)
    y = RANDOM.integers(0, 2, 40)
    front = [Convolution((3, 3, 2), KaimingInit())] if len(shape) > 1 else []
    trainer = Trainer(Sequential([*front, Affine(GlorotInit(), nout=2)]), Adam(0.02), CrossEntropyMulti(logits=True), say=lambda line: None)
    unnamed = ArrayIterator({"image": x, "label": y}, 16)
    trainer.fit(*((x, y) if first == "arrays" else (unnamed,)))
    assert trainer.evaluate(unnamed)["cost"] == pytest.approx(trainer.evaluate(x, y)["cost"], rel=1e-6)
    np.testing.assert_allclose(trainer.predict(unnamed), trainer.predict(x), rtol=1e-6)
    other = unnamed if first == "arrays" else ArrayIterator({"picture": x, "label": y}, 16)
    with pytest.raises(ValueError, match="the training step was made for .*, and a batch has .*, label"):
        trainer.fit(other)


def test_data_that_do_not_fit():
    big = LABELS.astype(np.int64) + 2**40
    pairs = ((X[k : k + 5], LABELS[k : k + 5]) for k in range(5))
    alone = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.tensor(X)), batch_size=16)
    for arguments, kind, said in (
        ((X, LABELS[:50]), ValueError, "different numbers of examples: x 103, y 50"),
        ((X,), ValueError, r"inputs, and no targets\s*fix: pass both: fit\(x, y\)"),
        ((X, big), ValueError, "y goes from 1099511627776 .*int32 holds less"),
        ((pairs,), TypeError, "gone through only once"),
        ((alone,), TypeError, "a batch is a pair"),
        ((None,), TypeError, "NoneType is neither an array nor an iterator over batches"),
        ((3.0, 4.0), TypeError, "neither an array nor an iterator"),
        ((X, "label"), ValueError, "y names 'label', and the data have x"),
        (([],), ValueError, "no targets"),
        ((X[:0], LABELS[:0]), ValueError, r"there are no examples: x \(0, 4\), y \(0,\)"),
    ):
        with pytest.raises(kind, match=said):
            classifier().fit(*arguments)
    with pytest.raises(ValueError, match=r"the target y has \[N=\?, y_1=3\], and the prediction .* has \[F=2, N=\?\]"):
        line(2).fit(X, X[:, :3])
    with pytest.raises(ValueError, match=r"valid= is one set, and these are 2: few, all\s*fix: .*evaluate"):
        classifier().fit(X, LABELS, valid={"few": (X[:9], LABELS[:9]), "all": (X, LABELS)})
    with pytest.raises(ValueError, match="evaluate: there are no examples"):
        classifier().evaluate(X[:0], LABELS[:0])
    with pytest.raises(ValueError, match="name 2 axes"):
        classifier().fit(X, LABELS, axes="N W C")
    with pytest.raises(ValueError, match="batch_size is a whole number above 0, not 0"):
        classifier().fit(X, LABELS, batch_size=0)
    with pytest.raises(TypeError, match=r"no argument validation_data[\s\S]*fix: take valid="):
        classifier().fit(X, LABELS, validation_data=(X, LABELS))


class Loader:
    """Batches that are there already, as a DataLoader with a collate function that pads gives them."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


def test_batches_of_a_loader_are_as_long_as_their_texts():
    """NumPy says the predictions and the cost; one compilation serves all lengths."""
    rng = np.random.default_rng(3)
    batches = [(rng.integers(0, 9, (n, t)).astype("int32"), rng.integers(0, 3, n)) for n, t in ((4, 3), (4, 7), (2, 1), (4, 5), (3, 12))]
    model = Sequential([LookupTable(9, 4, GaussianInit(std=0.5)), lambda x: ng.mean(x, "REC"), Affine(GaussianInit(std=0.5), nout=3)])
    trainer = Trainer(model, Adam(0.01), CrossEntropyMulti(logits=True), say=lambda line: None)
    assert trainer.fit(Loader(batches), epochs=2, axes="N REC").steps == 10
    weights = trainer.weights()
    table, w, b = (
        next(v for k, v in weights.items() if k.startswith(name)) for name in ("LookupTable", "Affine_0/Linear", "Affine_0/Bias")
    )
    logits = [table[x].mean(1) @ (w.T if w.shape == (3, 4) else w) + b for x, _ in batches]
    np.testing.assert_allclose(trainer.predict(Loader(batches)), np.concatenate(logits), rtol=1e-5, atol=1e-6)
    losses = [np.log(np.exp(z).sum(1)) - z[np.arange(len(y)), y] for z, (_, y) in zip(logits, batches, strict=True)]
    np.testing.assert_allclose(trainer.evaluate(Loader(batches))["cost"], np.concatenate(losses).mean(), rtol=1e-5)


def test_batches_of_a_list_may_have_pictures_of_several_sizes():
    """One compilation serves all sizes; torch says the predictions."""
    rng = np.random.default_rng(4)
    batches = [(x := rng.normal(size=(2, 1, *size)).astype(np.float32), (x[:, 0] > 0).astype(int)) for size in ((4, 6), (6, 8), (2, 4))]
    model = Sequential([Convolution((3, 3, 2), KaimingInit(), padding=1)])
    trainer = Trainer(model, Adam(0.01), CrossEntropyMulti(logits=True), say=lambda line: None)
    assert trainer.fit(batches, epochs=2, axes={"x": "N C H W", "y": "N H W"}).steps == 6
    (w,) = trainer.weights().values()
    for x, _ in batches:
        theirs = torch.conv2d(torch.tensor(x), torch.tensor(w), padding=1).numpy()
        np.testing.assert_allclose(trainer.predict({"x": x}), theirs, rtol=1e-4, atol=1e-5)
