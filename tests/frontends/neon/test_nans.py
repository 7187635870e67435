"""A training stops at the first nan, names the step and the op that made it, and leaves weights and checkpoint of the steps before."""

import json

import numpy as np
import pytest

import ngraph as ng
from ngraph.errors import NanError
from ngraph.frontends.neon import (
    Adam,
    Affine,
    ArrayIterator,
    CrossEntropyMulti,
    Dropout,
    GlorotInit,
    GradientDescentMomentum,
    IterableSource,
    MeanSquared,
    Prefetch,
    Preprocess,
    Sequential,
    Softmax,
    Trainer,
    nans,
)

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(0.5, 2, (80, 4)).astype(np.float32)
Y = RANDOM.normal(size=(80, 3)).astype(np.float32)
AXES = {"x": ("N", "F"), "label": ("N", "Y")}


class Spoiled(ArrayIterator):
    """Batches of which one has a number below 0."""

    at = 5

    def batch(self, k):
        made = super().batch(k)
        if k == self.at:
            made = {**made, "x": made["x"].copy()}
            made["x"][2, 1] = -3
        return made


def data(kind=Spoiled, **options):
    return kind({"x": {"data": X, "axes": AXES["x"]}, "label": {"data": Y, "axes": AXES["label"]}}, 8, **options)


def trainer(*first, optimizer=None, **options):
    model = Sequential([*first, Affine(GlorotInit(), axes=[ng.make_axis(3, name="Y")])])
    return Trainer(model, optimizer or Adam(0.01), MeanSquared(), say=lambda line: None, **options)


def logarithm():
    return Preprocess(lambda x: ng.log(x))


@pytest.mark.parametrize("wrapped", [lambda d: d, Prefetch])
@pytest.mark.parametrize("share", [nans.SHARE, 1e9, 1e-9])
def test_it_stops_at_the_step(monkeypatch, share, wrapped):
    """However long ago the state was copied: at each step, or never again."""
    monkeypatch.setattr(nans, "SHARE", share)
    straight = trainer(logarithm(), Dropout(0.8, seed=5), seed=3)
    straight.model.layers[2].linear.init = 0.1
    straight.fit(data(ArrayIterator, shuffle=True, seed=1), steps=5)
    made = trainer(logarithm(), Dropout(0.8, seed=5), seed=3)
    made.model.layers[2].linear.init = 0.1
    with pytest.raises(NanError) as error:
        made.fit(wrapped(data(shuffle=True, seed=1)), steps=20)
    assert error.value.line[0] == __file__ and error.value.message == f"step 5: log in {made.model.name}/Preprocess_0 made the first nan"
    assert "x: float32[8, 4], from -3 to" in error.value.details[0] and "gradient_clip_norm" in error.value.fix
    assert made.step == 5 and len(made.record["cost/train"]) == 5
    for ours, theirs in zip(made.weights().values(), straight.weights().values(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("every", [1, 4, 100])
def test_a_nan_that_only_gradients_have(every):
    """The loss of its step is fine: the next one, the end of an interval, or the end of the training shows it."""
    model = Preprocess(lambda x: ng.sqrt(ng.maximum(x, 0.0) * ng.variable((), initial_value=1.0).named("gain")))
    made = Trainer(model, Adam(0.01), MeanSquared(), inputs="x", target=lambda p: p["x"], say=lambda line: None)
    for steps in (6, 20):  # that step is the last, or not
        with pytest.raises(NanError) as error:
            made.fit(data(), steps=steps, every=every)
        assert error.value.message.startswith("step 5: ") and made.step == 5, error.value
        assert error.value.line[0] == __file__ and "made the first" in error.value.message
        made = Trainer(model, Adam(0.01), MeanSquared(), inputs="x", target=lambda p: p["x"], say=lambda line: None)


def test_weights_that_grow_without_bounds():
    made = trainer(optimizer=GradientDescentMomentum(1e3))
    with pytest.raises(NanError, match="made the first infinity[\\s\\S]*take a lower learning rate") as error:
        made.fit(data(ArrayIterator), steps=200)
    assert 3 < made.step < 100 and f"step {made.step}:" in str(error.value)
    assert all(np.isfinite(w).all() for w in made.weights().values())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_batch_with_a_nan_is_named(value):
    class Holes(ArrayIterator):
        def batch(self, k):
            made = super().batch(k)
            return {**made, "x": np.where((k == 5) & (np.arange(8) == 6)[:, None], np.float32(value), made["x"])}

    made = trainer()
    with pytest.raises(NanError, match=f"step 5: the batch has {value} in 'x', example 6"):
        made.fit(data(Holes), steps=20)


def test_the_last_good_checkpoint_stays(tmp_path):
    for at, kept in ((5, 3), (6, 6)):
        folder = tmp_path / str(at)
        Spoiled.at = at
        made = trainer(logarithm(), folder=str(folder))
        with pytest.raises(NanError) as error:
            made.fit(data(), steps=20, checkpoint_every=3)
        assert json.loads((folder / "checkpoint.json").read_text())["step"] == kept
        assert f"the checkpoint in {folder} is of step {kept}: fit(..., resume=True)" in str(error.value)
        again = trainer(logarithm(), folder=str(folder))
        again.fit(data(ArrayIterator), steps=20, resume=True)
        assert np.isfinite(again.record["cost/train"]).all() and len(again.record["cost/train"]) == 20
    Spoiled.at = 5


def test_no_checkpoint_of_weights_that_are_nan(tmp_path):
    model = Sequential([Preprocess(lambda x: ng.sqrt(ng.maximum(x, 0.0) * ng.variable((), initial_value=1.0).named("gain")))])
    made = Trainer(model, Adam(0.01), MeanSquared(), inputs="x", target=lambda p: p["x"], say=lambda line: None, folder=str(tmp_path))
    with pytest.raises(NanError, match="step 5: "):
        made.fit(data(), steps=20, checkpoint_every=2)
    assert json.loads((tmp_path / "checkpoint.json").read_text())["step"] == 4


def test_ignoring_goes_on():
    made = trainer(logarithm(), nans="ignore")
    made.fit(data(), steps=12)
    assert np.isnan(made.record["cost/train"]).sum() == 7
    with pytest.raises(ng.NgraphError, match="nans is 'raise' or 'ignore', not 'stop'"):
        trainer(nans="stop")


def test_a_dynamic_loss_scale_may_take_its_steps():
    """Steps whose gradients overflow are left out; a loss that is never finite again is told."""
    made = trainer(optimizer=Adam(0.01, loss_scale="dynamic"), precision="float16")
    made.fit(data(ArrayIterator), steps=12)
    made = trainer(logarithm(), optimizer=Adam(0.01, loss_scale="dynamic"))
    made.fit(data(), steps=12)
    assert np.isnan(made.record["cost/train"]).sum() == 1 and all(np.isfinite(w).all() for w in made.weights().values())
    made = trainer(Preprocess(lambda x: ng.log(x - 10.0)), optimizer=Adam(0.01, loss_scale="dynamic"))
    with pytest.raises(NanError, match="step 16: log in"):
        made.fit(data(ArrayIterator), steps=40)


def test_batches_that_are_not_the_same_again():
    """A source with a mind of its own: what can be told is told."""
    random = np.random.default_rng(1)

    def batches():
        for _ in range(20):
            yield {"x": random.normal(size=(8, 4)).astype(np.float32), "label": Y[:8]}

    made = trainer(logarithm())
    with pytest.raises(NanError):
        made.fit(IterableSource(batches, axes=AXES), steps=20)
    model = Sequential([Affine(GlorotInit(), axes=[ng.make_axis(3, name="Y")], activation=Softmax())])
    Trainer(model, Adam(0.01), CrossEntropyMulti(), say=lambda line: None).fit(
        ArrayIterator({"x": X, "label": np.zeros(80, np.int32)}, 8), steps=30
    )
