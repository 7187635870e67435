"""Callbacks that stop, keep and test: early stopping, the best weights, nan, learning rates; rates of layers, averages of weights."""

import os

import numpy as np
import pytest

import ngraph as ng
from ngraph.frontends.neon import (
    Accuracy,
    Adam,
    Affine,
    Callback,
    CrossEntropyMulti,
    Dropout,
    EarlyStop,
    EarlyStopping,
    GlorotInit,
    GradientDescentMomentum,
    LRFinder,
    MeanSquared,
    ModelCheckpoint,
    Rectlin,
    Sequential,
    Tanh,
    TerminateOnNaN,
    Trainer,
    checkpoint,
)

R = np.random.default_rng(0)
X = R.normal(size=(200, 4)).astype(np.float32)
LABELS = (X[:, 0] + 0.5 * X[:, 1] > 0).astype(np.int32)


def classifier(name=None):
    return Sequential([Affine(GlorotInit(), nout=8, activation=Rectlin()), Affine(GlorotInit(), nout=2)], name=name)


def trainer(optimizer=None, **options):
    model = options.pop("model", None) or classifier()
    return Trainer(model, optimizer or Adam(0.01), CrossEntropyMulti(logits=True), [Accuracy()], seed=1, say=lambda line: None, **options)


class Weights(Callback):
    """Keeps the weights before the first step and after each one."""

    def __init__(self, own):
        self.trainer, self.seen = own, []

    def minibatch_post(self, transformer, record, data, idx):
        self.seen.append(self.trainer.weights())


def test_the_line_of_all_of_them(tmp_path):
    made = trainer(folder=str(tmp_path))
    report = made.fit(X, LABELS, epochs=3, valid=0.2, callbacks=[ModelCheckpoint, EarlyStopping, TerminateOnNaN, LRFinder])
    assert report.steps == 15 and {"best.safetensors", "learning_rates.png", "loss.png"} <= set(os.listdir(tmp_path))
    assert str(tmp_path / "best.safetensors") in report.files and str(tmp_path / "learning_rates.png") in report.files


def test_the_best_weights_are_kept(tmp_path):
    place = str(tmp_path / "kept" / "best.npz")
    made = trainer(GradientDescentMomentum(8.0, 0.9))  # too fast, so costs go up and down
    made.fit(X, LABELS, epochs=8, valid=(X[:50], LABELS[:50]), callbacks=[ModelCheckpoint(place)])
    costs = made.record["cost/valid"]
    assert costs.argmin() < 7
    assert set(made.load(place)["matched"]) == set(made.weights())
    assert made.evaluate(X[:50], LABELS[:50])["cost"] == pytest.approx(costs.min())


def test_every_interval_has_a_file_of_its_own(tmp_path):
    kept = ModelCheckpoint(str(tmp_path / "at-{step}.safetensors"), best_only=False)
    report = trainer().fit(X, LABELS, epochs=2, callbacks=[kept])
    assert sorted(os.listdir(tmp_path)) == ["at-14.safetensors", "at-7.safetensors"] and sorted(report.files) == sorted(kept.files)


def test_early_stopping_goes_by_any_list():
    assert EarlyStop is EarlyStopping
    stop = EarlyStopping(2, "metric/accuracy", "max")
    report = trainer(GradientDescentMomentum(0.0)).fit(X, LABELS, epochs=9, valid=0.2, callbacks=[stop])
    assert report.steps == 15 and "metric/accuracy did not become better in 2" in report.stopped
    stop = EarlyStopping(1, "val_loss", least=10.0)
    assert trainer().fit(X, LABELS, epochs=9, valid=0.2, callbacks=[stop]).steps == 10


@pytest.mark.parametrize("nans", ["raise", "ignore"])
def test_a_nan_ends_the_training_without_an_error(nans):
    spoiled = X.copy()
    spoiled[150, 2] = np.nan
    made = trainer(nans=nans)
    seen = Weights(made)
    report = made.fit(spoiled, LABELS, epochs=3, shuffle=False, callbacks=[TerminateOnNaN(), seen])
    assert "step 4: the batch has nan in 'x', example 22" in report.stopped and report.steps == 4 == made.step
    assert all(np.array_equal(w, seen.seen[3][k]) for k, w in made.weights().items())  # those before the step
    if nans == "raise":
        with pytest.raises(ng.NgraphError, match="the batch has nan"):
            made.fit(spoiled, LABELS, shuffle=False)


def test_learning_rates_are_tested_and_nothing_is_left_of_it(tmp_path):
    def trained(*callbacks):
        made = trainer(Adam(0.01, accumulate=2), model=classifier("net"), folder=str(tmp_path))
        made.fit(X, LABELS, epochs=2, callbacks=callbacks)
        return made.record["cost/train"]

    finder = LRFinder(1e-4, 10.0, steps=60)
    np.testing.assert_array_equal(trained(finder), trained())
    assert 1e-3 < finder.rate < 1.0 and len(finder.rates) == len(finder.costs) == len(finder.smoothed) <= 60
    np.testing.assert_allclose(finder.rates, 1e-4 * 1e5 ** (np.arange(60) / 59)[: len(finder.rates)])
    with open(finder.plot(str(tmp_path / "again.png")), "rb") as drawn:
        assert drawn.read(4) == b"\x89PNG"


def test_random_numbers_and_moments_are_those_before_a_test():
    model = Sequential([Affine(GlorotInit(), nout=8, activation=Tanh()), Dropout(0.8), Affine(GlorotInit(), nout=2)])
    made = trainer(Adam(0.01), model=model)

    def saved():
        states = checkpoint.named_states(made.transformer, made.model, made.optimizer)
        return {name: made.transformer.get(v) for name, v in states.items()}

    made.fit(X, LABELS)
    before = saved()
    made.fit(X, LABELS, epochs=0, callbacks=[LRFinder(steps=20)])
    after = saved()
    assert before.keys() == after.keys() and "rng" in before and any(name.startswith("optimizer/") for name in before)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_the_costs_are_those_of_gradient_descent_at_growing_rates():
    w, b = R.normal(size=(3, 1)).astype(np.float32), R.normal(size=(60, 3)).astype(np.float32)
    model = Sequential([Affine(lambda axes: np.float32(0.5) * np.ones(axes.lengths, np.float32), nout=1, bias_init=0.0)])
    made = Trainer(model, GradientDescentMomentum(0.1), MeanSquared(), say=lambda line: None)
    finder = LRFinder(1e-3, 0.5, steps=12)
    made.fit(b, b @ w, epochs=0, batch_size=5, shuffle=False, callbacks=[finder])
    own, bias, expected = np.full((3, 1), 0.5), np.zeros(1), []
    for k, rate in enumerate(finder.rates):
        x = b[5 * k : 5 * k + 5].astype(np.float64)
        wrong = x @ own + bias - x @ w
        expected.append((wrong**2).mean())
        own, bias = own - rate * 2 * x.T @ wrong / 5, bias - rate * 2 * wrong.mean(0)
    np.testing.assert_allclose(finder.costs, expected, rtol=1e-4)
    average, smoothed = 0.0, []
    for k, cost in enumerate(expected):
        average = 0.9 * average + 0.1 * cost
        smoothed.append(average / (1 - 0.9 ** (k + 1)))
    np.testing.assert_allclose(finder.smoothed, smoothed, rtol=1e-4)


def test_a_found_rate_is_applied_and_a_test_ends_where_costs_diverge():
    made = trainer(Adam(1e-7))
    finder = LRFinder(1e-4, 1.0, apply=True)
    made.fit(X, LABELS, epochs=4, callbacks=[finder])
    assert made.optimizer.schedule.numbers["base_lr"] == finder.rate and made.record["cost/train"][-5:].mean() < 0.4
    with pytest.raises(ng.NgraphError, match="in its first fit"):
        made.fit(X, LABELS, callbacks=[LRFinder(apply=True)])
    steep = LRFinder(1e-2, 1e4, steps=80)
    trainer(GradientDescentMomentum(0.1)).fit(X, LABELS, epochs=0, callbacks=[steep])
    assert len(steep.rates) < 80
    for wrong in (lambda: LRFinder(1.0, 0.1), lambda: LRFinder(steps=1), lambda: LRFinder(low=-1)):
        with pytest.raises(ng.NgraphError, match="LRFinder"):
            wrong()


@pytest.mark.parametrize("key", ["Affine_0/*", "layer", "weight"])
def test_layers_have_rates_of_their_own(key):
    model = classifier("net")
    model(ng.placeholder("F=4 N=?"))
    chosen = {"Affine_0/*": "Affine_0/*", "layer": model[0], "weight": model[0].W}[key]

    def steps(**options):
        made = trainer(GradientDescentMomentum(0.1, 0.9, **options), model=model)
        start = {p: made.transformer.get(v) for p, v in model.paths().items()}
        made.fit(X[:40], LABELS[:40], batch_size=40)
        return {p: w - start[p] for p, w in made.weights().items()}

    plain, factored = steps(), steps(rate_factors={chosen: 0.25})
    for path, moved in plain.items():
        factor = 0.25 if path.startswith("Affine_0") and (key != "weight" or path.endswith("W")) else 1.0
        np.testing.assert_allclose(factored[path], factor * moved, rtol=1e-3, atol=1e-7)
    assert not any(moved.any() for moved in steps(rate_factors={"*": 0}).values())


def test_what_names_no_weight():
    with pytest.raises(ng.NgraphError, match=r"(?s)rate_factors names 'Afine_0/\*'.*take 'Affine_0/\*'"):
        trainer(Adam(0.01, rate_factors={"Afine_0/*": 0.1})).fit(X, LABELS)
    with pytest.raises(ng.NgraphError, match="rate_factors.* is a number, 0 or more, not -1"):
        Adam(0.01, rate_factors={"*": -1})
    with pytest.raises(ng.NgraphError, match="rate_factors is 3, which is not a dict"):
        Adam(0.01, rate_factors=3)


def test_averages_of_weights_are_evaluated_and_saved(tmp_path):
    made = trainer(Adam(0.05, ema_decay=0.9))
    with pytest.raises(ng.NgraphError, match="keeps no averages"), made.averaged():
        pass
    seen = Weights(made)
    made.fit(X, LABELS, epochs=3, callbacks=[seen])
    average = {}
    for t, weights in enumerate(seen.seen, start=1):
        decay = min(0.9, (t - 1) / (t + 9))
        average = {p: decay * average.get(p, w) + (1 - decay) * w for p, w in weights.items()}
    own = made.weights()
    with made.averaged():
        for path, found in made.weights().items():
            np.testing.assert_allclose(found, average[path], rtol=1e-4, atol=1e-6)
        made.save(str(tmp_path / "averaged.npz"))
        cost = made.evaluate(X, LABELS)["cost"]
    assert all(np.array_equal(w, own[p]) for p, w in made.weights().items()) and made.evaluate(X, LABELS)["cost"] != cost
    made.load(str(tmp_path / "averaged.npz"))
    assert made.evaluate(X, LABELS)["cost"] == cost


def test_dtype_is_the_precision():
    made = trainer(dtype="bfloat16")
    made.fit(X, LABELS, epochs=4)
    assert made.evaluate(X, LABELS)["accuracy"] > 0.8 and {w.dtype for w in made.weights().values()} == {np.dtype(np.float32)}
    assert {"bfloat16"} == {str(v.dtype) for s in made._train[0].program.steps if s.op == "contract" for v in s.results if len(v.axes) > 1}
    with pytest.raises(ng.NgraphError, match="two names of one argument"):
        trainer(dtype="bfloat16", precision="bfloat16")
    with pytest.raises(ng.NgraphError, match="dtype is 'bfloat16' or 'float16', not 'int8'"):
        trainer(dtype="int8")


def test_objects_and_classes_without_what_they_need():
    with pytest.raises(ng.NgraphError, match="there is no file to write"):
        trainer().fit(X, LABELS, callbacks=[ModelCheckpoint])
    with pytest.raises(ng.NgraphError, match="give fit\\(\\) a valid set"):
        trainer().fit(X, LABELS, callbacks=[EarlyStopping])
    with pytest.raises(ng.NgraphError, match="(?s)no argument monitor.*take path="):
        EarlyStopping(monitor="val_loss")
