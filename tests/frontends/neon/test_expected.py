"""Costs that do not fit the last layer, and labels that are none: told before the training goes wrong."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.frontends.neon import (
    AUC,
    F1,
    Accuracy,
    Adam,
    Affine,
    ArrayIterator,
    BitsPerCharacter,
    ConfusionMatrix,
    CrossEntropyBinary,
    CrossEntropyMulti,
    GlorotInit,
    IterableSource,
    Logistic,
    MeanSquared,
    Misclassification,
    Perplexity,
    Precision,
    Preprocess,
    Rectlin,
    Sequential,
    Softmax,
    Tanh,
    TopK,
    Trainer,
    make_bound_computation,
)

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(size=(40, 6)).astype(np.float32)
LABELS = RANDOM.integers(0, 3, 40).astype(np.int32)


def data(labels=LABELS, axes=("N",)):
    return {"image": {"data": IMAGES, "axes": ("N", "F")}, "label": {"data": np.asarray(labels), "axes": axes}}


def trainer(cost, *last, metrics=(), **options):
    model = Sequential([Affine(GlorotInit(), axes=[ng.make_axis(options.pop("outputs", 3), name="Y")]), *last])
    return Trainer(model, Adam(0.1), cost, metrics, say=lambda line: None, **options)


def fitted(made, labels=LABELS, axes=("N",), **options):
    return made.fit(ArrayIterator(data(labels, axes), 16, last="short"), steps=3, **options)


# ---- probabilities or scores ---------------------------------------------------------------------------------------------

SMALL = Preprocess(lambda y: y * 1e-3)  # makes nothing that its op shows
SHARES = {
    "softmax": [Softmax()],
    "moved": [Softmax(), Preprocess(lambda y: ng.cast(ng.axes_with_order(y, list(y.axes)[::-1]), ng.float32))],
    "mean of two": [Preprocess(lambda y: (ng.softmax(y) + ng.softmax(-y)) * 0.5)],
    "divided by the sum": [Preprocess(lambda y: (e := ng.exp(y)) / ng.sum(e, reduction_axes=y.axes.feature_axes()))],
}
SCORES = {
    "product": [],
    "relu": [Rectlin()],
    "tanh": [Tanh()],
    "log": [Preprocess(lambda y: ng.log_softmax(y))],
    "scaled": [SMALL],
    "shifted": [Softmax(), Preprocess(lambda y: y - 0.3)],
    "over the batch": [Preprocess(lambda y: ng.softmax(y, y.axes.batch_axes()))],
    "sigmoids": [Logistic()],
}


@pytest.mark.parametrize("last", SHARES)
def test_probabilities_are_taken_for_such(last):
    fitted(trainer(CrossEntropyMulti(), *SHARES[last]))


@pytest.mark.parametrize("last", SCORES)
def test_scores_where_probabilities_are_wanted(last):
    cost = CrossEntropyMulti()
    with pytest.raises(ng.NgraphError, match="CrossEntropyMulti takes probabilities[\\s\\S]*fix: .*logits=True.*Softmax") as error:
        fitted(trainer(cost, *SCORES[last]))
    assert error.value.line[0] == __file__
    with pytest.raises(ng.NgraphError, match="Perplexity takes probabilities"):
        y = ng.placeholder([ng.make_axis(5, name="N"), ng.make_axis(3, name="Y")])
        Perplexity().batch(Sequential([Affine(GlorotInit(), nout=3)])(y), ng.placeholder([y.axes[0]], dtype=ng.int32))


@pytest.mark.parametrize("last", SHARES)
def test_probabilities_where_scores_are_wanted(last):
    why = "softmax made them" if last in ("softmax", "moved") else "values of .* sum to 1 along Y=3 in the first batch"
    for precision in (None, "bfloat16"):
        made = trainer(CrossEntropyMulti(logits=True), *SHARES[last], precision=precision)
        with pytest.raises(ng.NgraphError, match=f"CrossEntropyMulti takes scores.*{why}[\\s\\S]*fix: .*without logits"):
            fitted(made)
    with pytest.raises(ng.NgraphError, match="CrossEntropyBinary takes scores.*sigmoid made them"):
        fitted(trainer(CrossEntropyBinary(logits=True), Logistic()))


def test_scores_are_taken_for_such():
    for last in ([], [Rectlin()], [SMALL], [Tanh()]):
        fitted(trainer(CrossEntropyMulti(logits=True), *last))
        fitted(trainer(CrossEntropyBinary(logits=True), *last))
    fitted(trainer(CrossEntropyBinary(), Logistic()))
    fitted(trainer(CrossEntropyBinary(), Softmax()))
    fitted(trainer(CrossEntropyMulti(), Softmax(), precision="bfloat16"))
    with pytest.raises(ng.NgraphError, match="CrossEntropyBinary takes probabilities"):
        fitted(trainer(CrossEntropyBinary()))


# ---- labels --------------------------------------------------------------------------------------------------------------


def spoiled(value, dtype=np.int32):
    labels = LABELS.astype(dtype)
    labels[21] = value
    return labels


WRONG = {
    "negative": (spoiled(-1), "label -1.*whole numbers from 0 to 2, for 3 classes[\\s\\S]*ignore=-1"),
    "too large": (spoiled(3), "label 3, [\\s\\S]*last layer 4 outputs"),
    "fractional": (spoiled(1.5, np.float32), "label 1.5, [\\s\\S]*as integers"),
    "nan": (spoiled(np.nan, np.float32), "label nan"),
    "unsigned": (spoiled(200, np.uint8), "label 200"),
}
COSTS = [CrossEntropyMulti(), CrossEntropyBinary()]
METRICS = [Accuracy(), Misclassification(), TopK(2), ConfusionMatrix(), Precision(), F1(), Perplexity(), BitsPerCharacter()]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("cost", COSTS, ids=lambda c: type(c).__name__)
def test_a_label_that_is_none_is_named_with_its_example(wrong, cost):
    labels, says = WRONG[wrong]
    made = trainer(cost, Softmax())
    with pytest.raises(ng.NgraphError, match=f"{type(cost).__name__}: example 5 .number 21 of the data. of step 1 has the {says}") as error:
        fitted(made, labels)
    assert error.value.line[0] == __file__ and made.step == 1
    made = trainer(cost, Softmax())
    with pytest.raises(ng.NgraphError, match=f"example 5 .number 21 of the data. of batch 1 has the {says}"):
        made.evaluate(ArrayIterator(data(labels), 16, shuffle=False))
    rows = [{"image": IMAGES[k], "label": labels[k]} for k in range(40)]
    with pytest.raises(ng.NgraphError, match="example 5 of step 1 has the label"):
        trainer(cost, Softmax()).fit(IterableSource(rows, 16, axes={"image": ("N", "F"), "label": ("N",)}), steps=2)


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: type(m).__name__)
def test_metrics_name_labels_too(metric):
    made = trainer(CrossEntropyMulti(ignore=-1), Softmax(), metrics=[metric])
    with pytest.raises(ng.NgraphError, match=f"{type(metric).__name__}: example 5 [\\s\\S]*{type(metric).__name__}.ignore=-1."):
        made.evaluate(ArrayIterator(data(spoiled(-1)), 16))


def test_numbers_of_examples_are_those_of_the_data_in_any_order():
    for last in ("wrap", "short", "drop"):
        with pytest.raises(ng.NgraphError, match="number 21 of the data"):
            trainer(CrossEntropyMulti(), Softmax()).fit(ArrayIterator(data(spoiled(7)), 8, shuffle=True, last=last), epochs=1)


def test_labels_that_are_computed():
    """Those of the first batch are looked at."""
    labels = {1: LABELS + 1, 3: LABELS * 0 + 3}
    for high, own in labels.items():
        good = trainer(CrossEntropyMulti(logits=True), inputs="image", target=lambda p, high=high: p["label"] - high)
        fitted(good, own)
        bad = trainer(CrossEntropyMulti(logits=True), inputs="image", target=lambda p, high=high: p["label"] - high - 1)
        with pytest.raises(ng.NgraphError, match="of the first batch has the label -1, and labels are whole numbers from 0 to 2") as error:
            fitted(bad, own)
        assert error.value.line[0] == __file__


def test_binary_labels_are_0_and_1():
    for t, axes in ((np.where(LABELS > 1, 1, -1), ("N",)), (LABELS, ("N",))):
        made = Trainer(
            Preprocess(lambda x: ng.sigmoid(ng.sum(x, reduction_axes=x.axes.feature_axes()) * ng.variable(()))),
            Adam(0.1),
            CrossEntropyBinary(),
        )
        with pytest.raises(ng.NgraphError, match=f"the label {t[(t < 0) | (t > 1)][0]}, and labels are from 0 to 1"):
            fitted(made, t.astype(np.float32), axes)
    made = Trainer(
        Preprocess(lambda x: ng.sum(x, reduction_axes=x.axes.feature_axes())), Adam(0.1), MeanSquared(), [AUC(), Accuracy()], say=print
    )
    with pytest.raises(ng.NgraphError, match="AUC: .*the label -1"):
        made.evaluate(ArrayIterator(data(np.where(LABELS > 1, 1, -1).astype(np.float32)), 16))


@pytest.mark.parametrize("cost", [CrossEntropyMulti(ignore=-1), CrossEntropyBinary(ignore=-1)], ids=lambda c: type(c).__name__)
def test_ignored_labels_do_not_count(cost):
    """Costs, metrics and updates are those of the other examples alone."""
    labels = np.where(RANDOM.random(40) < 0.4, -1, LABELS)
    rest = {k: {"data": e["data"][labels >= 0], "axes": e["axes"]} for k, e in data(labels).items()}
    plain = type(cost)()
    models = [
        Sequential([Affine(np.full((3, 6), 0.1) * np.arange(6), axes=[ng.make_axis(3, name="Y")], activation=Softmax())]) for _ in range(2)
    ]
    ignoring = [type(m)(**({"k": 2} if isinstance(m, TopK) else {}), ignore=-1) for m in METRICS]
    one = Trainer(models[0], Adam(0.1), cost, ignoring, say=lambda line: None)
    two = Trainer(models[1], Adam(0.1), plain, METRICS, say=lambda line: None)
    one.fit(ArrayIterator(data(labels), 40), steps=3)
    two.fit(ArrayIterator(rest, (labels >= 0).sum()), steps=3)
    np.testing.assert_allclose(one.record["cost/train"], two.record["cost/train"], rtol=1e-5)
    found, wanted = one.evaluate(ArrayIterator(data(labels), 7)), two.evaluate(ArrayIterator(rest, 7))
    assert found.keys() == wanted.keys()
    for name in found:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, err_msg=name)


def test_ignored_steps_of_sequences():
    """The mean is over the steps that count, of each sequence."""
    N, REC, Y = ng.make_axis(4, name="N"), ng.make_axis(5, name="REC"), ng.make_axis(3, name="Y")
    y, t = ng.placeholder([Y, REC, N]), ng.placeholder([REC, N], dtype=ng.int32)
    p = np.exp(RANDOM.normal(size=(3, 5, 4)))
    p = (p / p.sum(0)).astype(np.float32)
    labels = RANDOM.integers(0, 3, (5, 4)).astype(np.int32)
    labels[RANDOM.random((5, 4)) < 0.4] = 9
    labels[:, 2] = 9
    found = ngt.make_transformer().computation(CrossEntropyMulti(ignore=9)(y, t), y, t)(p, labels)
    wanted = [np.mean([-np.log(p[labels[s, n], s, n]) for s in range(5) if labels[s, n] != 9] or [0]) for n in range(4)]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_bound_computations_check_their_labels():
    batches = ArrayIterator(data(spoiled(-1)), 40)
    inputs = batches.make_placeholders()
    y = Affine(GlorotInit(), axes=[ng.make_axis(3, name="Y")], activation=Softmax())(inputs["image"])
    step = make_bound_computation(ngt.make_transformer(), {"cost": CrossEntropyMulti()(y, inputs["label"])}, inputs)
    with pytest.raises(ng.NgraphError, match="CrossEntropyMulti: example 21 of the batch has the label -1"):
        step(next(iter(batches)))
