"""Costs against PyTorch and formulas; metrics against scikit-learn, over batches of unlike sizes."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.frontends.neon import (
    AUC,
    CTC,
    F1,
    MAE,
    MSE,
    Accuracy,
    Adam,
    Affine,
    BitsPerCharacter,
    ConfusionMatrix,
    CrossEntropyBinary,
    CrossEntropyMulti,
    GlorotInit,
    Huber,
    MeanAbsolute,
    MeanSquared,
    Misclassification,
    Perplexity,
    Precision,
    Recall,
    Sequential,
    SquaredL2,
    TopK,
    Trainer,
    Triplet,
)
from ngraph.frontends.neon.metrics import Streamed

N, Y, REC = ng.make_axis(name="N"), ng.make_axis(5, name="Y"), ng.make_axis(4, name="REC")
RANDOM = np.random.default_rng(0)
SCORES = RANDOM.normal(size=(7, 5)).astype(np.float32)
CLASSES = RANDOM.integers(0, 5, 7).astype(np.int32)


def run(op, **values):
    places = [o for o in ng.Op.ordered_ops([op]) if o.is_placeholder]
    return ngt.make_transformer().computation(op, *places)(*[values[p.hint] for p in places])


def given(name, axes, dtype="float32"):
    return ng.placeholder(axes, dtype=dtype).named(name)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("logits", [True, False])
@pytest.mark.parametrize("hot", [True, False])
def test_cross_entropy_of_classes(smoothing, logits, hot):
    y = given("y", [N, Y])
    t = given("t", [Y, N]) if hot else given("t", [N], "int32")
    cost = CrossEntropyMulti(logits=logits, smoothing=smoothing)(y if logits else ng.softmax(y), t)
    got = run(cost, y=SCORES, t=np.eye(5)[CLASSES].T if hot else CLASSES)
    expected = F.cross_entropy(torch.tensor(SCORES), torch.tensor(CLASSES).long(), reduction="none", label_smoothing=smoothing)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_cross_entropy_over_time_is_the_mean_of_steps_seen():
    scores, classes = RANDOM.normal(size=(3, 5, 4)).astype(np.float32), RANDOM.integers(0, 5, (3, 4)).astype(np.int32)
    y, t, m = given("y", [N, Y, REC]), given("t", [N, REC], "int32"), given("m", [N, REC])
    each = F.cross_entropy(torch.tensor(scores), torch.tensor(classes).long(), reduction="none").numpy()
    np.testing.assert_allclose(run(CrossEntropyMulti(logits=True)(y, t), y=scores, t=classes), each.mean(1), rtol=1e-5)
    seen = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], np.float32)
    got = run(CrossEntropyMulti(logits=True)(y, t, mask=m), y=scores, t=classes, m=seen)
    np.testing.assert_allclose(got, (each * seen).sum(1) / seen.sum(1), rtol=1e-5)
    bits = run(CrossEntropyMulti(logits=True, usebits=True)(y, t), y=scores, t=classes)
    np.testing.assert_allclose(bits, each.mean(1) / np.log(2), rtol=1e-5)


def test_other_costs():
    y, t = given("y", [N, Y]), given("t", [N, Y])
    target = RANDOM.normal(size=(7, 5)).astype(np.float32)
    a, b = torch.tensor(SCORES), torch.tensor(target)
    pairs = [
        (SquaredL2()(y, t), ((a - b) ** 2).sum(1)),
        (SquaredL2(half=True)(y, t), ((a - b) ** 2).sum(1) / 2),
        (MeanSquared()(y, t), F.mse_loss(a, b, reduction="none").mean(1)),
        (MeanAbsolute()(y, t), F.l1_loss(a, b, reduction="none").mean(1)),
        (Huber(0.7)(y, t), F.huber_loss(a, b, reduction="none", delta=0.7).mean(1)),
    ]
    for cost, expected in pairs:
        np.testing.assert_allclose(run(cost, y=SCORES, t=target), expected, rtol=1e-5)
    chance = (target > 0).astype(np.float32)
    expected = F.binary_cross_entropy_with_logits(a, torch.tensor(chance), reduction="none").sum(1)
    np.testing.assert_allclose(run(CrossEntropyBinary(logits=True)(y, t), y=SCORES, t=chance), expected, rtol=1e-5)
    np.testing.assert_allclose(run(CrossEntropyBinary()(ng.sigmoid(y), t), y=SCORES, t=chance), expected, rtol=1e-5)


def test_triplet_and_ctc():
    a, p, n = (RANDOM.normal(size=(7, 5)).astype(np.float32) for _ in range(3))
    places = [given(k, [N, Y]) for k in "apn"]
    expected = np.maximum(((a - p) ** 2).sum(1) - ((a - n) ** 2).sum(1) + 0.5, 0)
    np.testing.assert_allclose(run(Triplet(0.5)(places), a=a, p=p, n=n), expected, rtol=1e-5, atol=1e-5)
    steps, batch = 9, 2
    scores = RANDOM.normal(size=(steps, batch, 5)).astype(np.float32)
    labels, counts = np.array([[1, 2, 2], [3, 1, 0]], np.int32), np.array([3, 2], np.int32)
    time, n, s = ng.make_axis(steps, name="REC"), ng.make_axis(batch, name="N"), ng.make_axis(3, name="symbols")
    cost = CTC()(given("y", [time, n, Y]), (given("t", [n, s], "int32"), given("l", [n], "int32"), given("c", [n], "int32")))
    lengths = np.array([9, 7], np.int32)
    expected = F.ctc_loss(
        torch.tensor(scores).log_softmax(2), torch.tensor(labels), torch.tensor(lengths), torch.tensor(counts), reduction="none"
    )
    np.testing.assert_allclose(run(cost, y=scores, t=labels, l=lengths, c=counts), expected, rtol=1e-4)


def test_ctc_of_arrays_whose_labels_have_the_name_of_the_classes():
    x, labels = RANDOM.normal(size=(6, 8, 4)).astype(np.float32), RANDOM.integers(1, 5, (6, 3)).astype(np.int32)
    counts, steps = np.array([3, 1, 2, 3, 2, 1], np.int32), np.array([8, 7, 8, 6, 8, 8], np.int32)
    data = {"x": x, "labels": labels, "steps": steps, "counts": counts}
    model = Sequential([Affine(GlorotInit(), nout=5)])
    trainer = Trainer(model, Adam(), CTC(), inputs="x", target=lambda p: (p["labels"], p["steps"], p["counts"]), say=lambda line: None)
    trainer.fit(data, epochs=1, batch_size=4, axes={"x": "N REC F", "labels": "N F"})
    scores = torch.tensor(trainer.predict({"x": x})).permute(2, 0, 1)  # classes before time
    expected = F.ctc_loss(scores.log_softmax(2), *map(torch.tensor, (labels, steps, counts)), reduction="none")
    np.testing.assert_allclose(trainer.evaluate(data)["cost"], float(expected.mean()), rtol=1e-4)
    with pytest.raises(ng.NgraphError, match=r"the target is \(labels, lengths of predictions, lengths of labels\), not the op y"):
        Trainer(Sequential([Affine(GlorotInit(), nout=5)]), Adam(), CTC()).fit(x, labels, axes="N REC F")


def test_an_unclear_class_axis_is_an_error():
    with pytest.raises(ng.NgraphError, match="which axis .* are the classes"):
        CrossEntropyMulti()(given("y", [N, Y, ng.make_axis(3, name="Z")]), given("t", [N], "int32"))


# ---- metrics ------------------------------------------------------------------------------------------------------------


def streamed(metrics, batches, axes=((N, Y), (N,)), mask=False):
    y, t = given("y", axes[0]), given("t", axes[1], "int32")
    m = given("m", axes[1]) if mask else None
    held = Streamed(metrics, y, t, m)
    step = ngt.make_transformer().computation(held.ops, *([y, t, m] if mask else [y, t]))
    for batch in batches:
        held.add(step(*batch))
    return held.results()


def test_metrics_of_classes_as_scikit_learn():
    sklearn = pytest.importorskip("sklearn.metrics")
    scores = RANDOM.normal(size=(101, 5)).astype(np.float32)
    classes = RANDOM.integers(0, 4, 101).astype(np.int32)  # class 4 never is true
    batches = [(scores[s], classes[s]) for s in (slice(0, 40), slice(40, 100), slice(100, 101))]
    guess = scores.argmax(1)
    found = streamed([Accuracy(), Misclassification(), TopK(2), ConfusionMatrix(), Precision(), Recall(), F1()], batches)
    assert found["accuracy"] == pytest.approx(sklearn.accuracy_score(classes, guess))
    assert found["misclassification"] == pytest.approx(1 - sklearn.accuracy_score(classes, guess))
    assert found["top_2"] == pytest.approx(sklearn.top_k_accuracy_score(classes, scores, k=2, labels=range(5)))
    assert (found["confusion"] == sklearn.confusion_matrix(classes, guess, labels=range(5))).all()
    for average in ("macro", "micro", None):
        got = streamed([Precision(average), Recall(average), F1(average)], batches)
        for name, function in (("precision", "precision_score"), ("recall", "recall_score"), ("f1", "f1_score")):
            expected = getattr(sklearn, function)(classes, guess, labels=range(5), average=average, zero_division=0)
            np.testing.assert_allclose(got[name], expected, rtol=1e-6)


def test_area_under_the_curve_with_ties():
    sklearn = pytest.importorskip("sklearn.metrics")
    scores = RANDOM.normal(size=60).round(1).astype(np.float32)
    labels = RANDOM.integers(0, 2, 60).astype(np.int32)
    batches = [(scores[:25], labels[:25]), (scores[25:], labels[25:])]
    found = streamed([AUC(), Accuracy()], batches, ((N,), (N,)))
    assert found["auc"] == pytest.approx(sklearn.roc_auc_score(labels, scores))
    assert found["accuracy"] == pytest.approx(((scores > 0.5) == labels).mean())
    with pytest.raises(ValueError, match="both classes"):
        streamed([AUC()], [(scores, np.ones(60, np.int32))], ((N,), (N,)))


def test_masks_leave_places_out():
    scores, classes = RANDOM.normal(size=(3, 5, 4)).astype(np.float32), RANDOM.integers(0, 5, (3, 4)).astype(np.int32)
    seen = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], np.float32)
    found = streamed(
        [Accuracy(), ConfusionMatrix(), Perplexity(logits=True), BitsPerCharacter(logits=True)],
        [(scores, classes, seen)],
        ((N, Y, REC), (N, REC)),
        mask=True,
    )
    right = (scores.argmax(1) == classes)[seen > 0]
    assert found["accuracy"] == pytest.approx(right.mean()) and found["confusion"].sum() == 7
    nll = F.cross_entropy(torch.tensor(scores), torch.tensor(classes).long(), reduction="none").numpy()[seen > 0].mean()
    assert found["perplexity"] == pytest.approx(np.exp(nll), rel=1e-5) and found["bits"] == pytest.approx(nll / np.log(2), rel=1e-5)


def test_errors_of_numbers():
    y, t = given("y", [N, Y]), given("t", [Y, N])
    held = Streamed([MSE(), MAE()], y, t)
    target = RANDOM.normal(size=(5, 7)).astype(np.float32)
    held.add(ngt.make_transformer().computation(held.ops, y, t)(SCORES, target))
    d = SCORES - target.T
    assert held.results() == {"mse": pytest.approx((d**2).mean(), rel=1e-5), "mae": pytest.approx(np.abs(d).mean(), rel=1e-5)}
