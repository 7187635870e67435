"""Batches of sequences of unlike length: which examples come, what is padding, and trainings over them beside PyTorch's losses."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import NgraphError
from ngraph.frontends.neon import (
    LSTM,
    Adam,
    Affine,
    BucketIterator,
    CrossEntropyMulti,
    GaussianInit,
    GlorotInit,
    GradientDescentMomentum,
    IterableSource,
    LookupTable,
    Prefetch,
    Rectlin,
    Sequential,
    Trainer,
    TransformerBlock,
    UniformInit,
)
from ngraph.frontends.neon.data.iterators import Full
from ngraph.transformers.executable.layout import root

WORDS = 13


def texts(count, low, high, seed=0):
    """Random texts, and for each word the one behind it."""
    draw = np.random.default_rng(seed)
    made = [draw.integers(0, WORDS, n).astype("i4") for n in draw.integers(low, high, count)]
    return {"text": made, "next": [np.roll(t, -1) for t in made]}


def bucketed(data, size=8, **options):
    return BucketIterator(data, size, **{"padding": {"next": -1}, "tgt_key": "next", "seed": 3, **options})


def model(middle):
    return Sequential([LookupTable(WORDS, 10, UniformInit(-1, 1)), middle, Affine(GlorotInit(), axes=[ng.make_axis(WORDS, name="Y")])])


def trainer(middle, optimizer=None):
    cost = CrossEntropyMulti(logits=True, ignore=-1)
    return Trainer(model(middle), optimizer or Adam(1e-3), cost, seed=0, progress_bar=False, say=lambda *_: None)


# ---- batches


@pytest.mark.parametrize(("last", "count"), [("short", 5), ("drop", 4)])
@pytest.mark.parametrize("wrapped", [lambda d: d, Prefetch], ids=["alone", "prefetched"])
def test_a_pass_has_each_example_once_padded_to_the_longest_of_its_batch(last, count, wrapped):
    held = texts(37, 0, 30)
    data = wrapped(bucketed({**held, "label": np.arange(37)}, lengths="steps", last=last, pool=2))
    passes = [list(data) for _ in range(2)]
    for number, batches in enumerate(passes):
        assert len(batches) == count == len(data)
        seen = []
        for k, b in enumerate(batches):
            assert b["text"].shape == b["next"].shape == (len(b["label"]), b["steps"].max()) and b["steps"].dtype == np.int32
            for row, i in enumerate(b["label"]):
                n = b["steps"][row]
                np.testing.assert_array_equal(b["text"][row, :n], held["text"][i])
                np.testing.assert_array_equal(b["next"][row, :n], held["next"][i])
                assert (b["text"][row, n:] == 0).all() and (b["next"][row, n:] == -1).all()
                assert data.which(number * count + k, row) == i
            seen += b["label"].tolist()
        assert len(set(seen)) == len(seen) == (37 if last == "short" else 32)
    assert [b["label"].tolist() for b in passes[0]] != [b["label"].tolist() for b in passes[1]]
    again = bucketed({**held, "label": np.arange(37)}, last=last, pool=2)
    again.restore({"done": count + 1, "began": count})
    assert [b["label"].tolist() for b in again] == [b["label"].tolist() for b in passes[1][1:]]


def test_examples_of_like_length_come_together():
    held = texts(900, 1, 100)
    padding = {pool: np.mean([(b["next"] == -1).mean() for b in bucketed(held, 32, pool=pool)]) for pool in (1, 10, 50)}
    assert padding[1] > 0.35 and padding[10] < 0.2 and padding[50] < 0.1, padding
    lengths = [b["text"].shape[1] for b in bucketed(held, 32)]
    assert lengths != sorted(lengths)  # batches come in any order
    once = [b["text"].shape[1] for b in bucketed(held, 32).once()]
    assert once == sorted(once)


def test_steps_may_have_dims_and_texts_be_given_as_lists():
    data = BucketIterator({"x": [np.ones((n, 3), "f") for n in (4, 2, 1)], "label": [0, 1, 2]}, 2, shuffle=False)
    assert [b["x"].shape for b in data] == [(2, 2, 3), (1, 4, 3)] and [b["label"].tolist() for b in data] == [[2, 1], [0]]
    assert data.axis_names() == {"x": ("N", "REC", "x_2"), "label": ("N",)} and data.open_axes == Full(data).open_axes == {"REC"}
    made = data.make_placeholders()
    assert [a.length for a in made["x"].axes] == [2, None, 3]
    assert BucketIterator({"x": [[1, 2], [3]], "label": [0, 1]}, 2).batch(0)["x"].shape == (2, 2)


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        ({"x": [[1, 2]], "y": [[1]]}, {}, "example 0 of y has 1 steps, and of x 2"),
        ({"x": [[1, 2]], "y": [[1], [2]]}, {}, "y has 2 examples, and x 1"),
        ({"x": [[1, 2], [1]], "y": [1]}, {}, "y has 1 examples, and x 2"),
        ({"x": [[1, 2], 3]}, {}, "examples of 'x' have 0 and 1 dims"),
        ({"x": np.arange(3)}, {}, "x have one value for each example, and no sequences"),
        ({"x": [np.ones((2, 3)), np.ones((2, 4))]}, {}, r"examples of x have steps of float64\[3\] and of float64\[4\]"),
        ({"x": [np.array([1, 2], "u1")]}, {"padding": -1}, "padding of x is -1, and no uint8"),
        ({"x": [[1, 2]]}, {"padding": {"z": 1}}, "padding names z, which hold no sequences"),
        ({"x": [[1, 2]]}, {"batch_size": 2, "last": "drop"}, "1 examples make no batch of 2"),
        ({"x": [[1, 2]], "n": [1]}, {"lengths": "n"}, "lengths names 'n', which the data have"),
        ({"x": [[1, 2]]}, {"tgt_key": "X"}, "tgt_key is 'X', and a batch has x"),
        ({"x": [[1, 2]]}, {"pool": 0}, "pool is a whole number above 0, not 0"),
        ([[1, 2]], {}, "the data are"),
        ({"x": []}, {}, "x have one value for each example, and no sequences"),
    ],
)
def test_wrong_data(data, options, said):
    with pytest.raises(NgraphError, match=said):
        BucketIterator(data, **{"batch_size": 1, **options})


def test_a_source_says_which_axes_change():
    with pytest.raises(NgraphError, match="open_axes names 'REC', and axes are not named"):
        IterableSource([{"text": np.ones((2, 3))}], open_axes=["REC"])


# ---- trainings


def theirs(weights, batches, rate, momentum):
    """The losses of PyTorch's LSTM over the same batches, and the weights afterwards."""
    torch = pytest.importorskip("torch")
    w = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True) for k, v in weights.items()}
    table, wx, wh, b, out, shift = w.values()
    lstm, losses = torch.nn.LSTM(10, 7, batch_first=True).double(), []
    optimizer = torch.optim.SGD(w.values(), rate, momentum)
    for batch in batches:
        stacked = {k: torch.cat([v[g] for g in (0, 1, 3, 2)]) for k, v in (("weight_ih_l0", wx), ("weight_hh_l0", wh), ("bias_ih_l0", b))}
        x = torch.nn.functional.embedding(torch.tensor(batch["text"]).long(), table)
        y, _ = torch.func.functional_call(lstm, {**stacked, "bias_hh_l0": torch.zeros(28, dtype=torch.float64)}, (x,))
        scores, targets = y @ out.T + shift, torch.tensor(batch["next"]).long()
        costs = torch.nn.functional.cross_entropy(scores.transpose(1, 2), targets, ignore_index=-1, reduction="none")
        loss = (costs.sum(1) / (targets >= 0).sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [v.detach().numpy() for v in w.values()]


@pytest.mark.parametrize("source", [False, True], ids=["buckets", "a loader that pads"])
def test_an_lstm_over_texts_of_any_length_has_pytorchs_losses(source):
    data = bucketed(texts(43, 1, 40), pool=2)
    batches = [data.batch(k) for k in range(18)]  # three passes, with short batches
    given = data
    if source:
        names = dict.fromkeys(("text", "next"), ("N", "REC"))
        given = IterableSource(batches, axes=names, tgt_key="next", open_axes=["REC"])
    t = trainer(LSTM(7, GaussianInit()), GradientDescentMomentum(0.1, 0.9))
    t.evaluate(data)  # makes the weights
    made = t.weights()
    keys = [next(k for k in made if k.endswith(end)) for end in ("W", "cell/W_x", "cell/W_h", "cell/b", "W", "b")]
    keys[0], keys[4], keys[5] = (k for k in made if "cell" not in k)
    before = {k: made[k] for k in keys}
    if before[keys[4]].shape[0] != WORDS:
        before[keys[4]] = before[keys[4]].T
    losses, after = theirs(before, batches, 0.1, 0.9)
    t.fit(given, steps=len(batches))
    np.testing.assert_allclose(t.record["cost/train"], losses, rtol=2e-4)
    now = t.weights()
    for k, w in zip(keys, after, strict=True):
        np.testing.assert_allclose(now[k] if now[k].shape == w.shape else now[k].T, w, rtol=2e-3, atol=2e-4)
    assert len(t._train[0].native.codes) == 1 and len(next(iter(t._evaluations.values()))[0].native.codes) == 1


def test_padding_changes_neither_cost_nor_predictions_of_a_transformer():
    """Batches of one text each, in which nothing is padding, give the same."""
    held = texts(21, 1, 33)
    t = trainer(TransformerBlock(2, causal=True))
    alone, together = bucketed(held, 1), bucketed(held, 8)
    costs = [t.evaluate(d)["cost"] for d in (alone, together)]
    assert len(t._evaluations) == 1
    np.testing.assert_allclose(*costs, rtol=1e-5)
    for text, one, several in zip(held["text"], t.predict(alone), t.predict(together), strict=True):
        assert one.shape == several.shape == (WORDS, len(text)) or one.shape == (len(text), WORDS)
        np.testing.assert_allclose(one, several, rtol=1e-4, atol=1e-5)
    report = t.fit(together, epochs=2, valid=alone)
    assert report.steps == 6 and t.record["cost/train"][-3:].mean() < t.record["cost/train"][:3].mean()


def test_predictions_of_whole_texts_are_one_array_in_the_datas_order():
    held = {"text": texts(19, 2, 20)["text"], "label": np.arange(19) % 3}
    layers = [LookupTable(WORDS, 10, UniformInit(-1, 1)), LSTM(5, GaussianInit(), return_sequence=False)]
    t = Trainer(
        Sequential([*layers, Affine(GlorotInit(), axes=[ng.make_axis(3, name="Y")])]), Adam(1e-3), CrossEntropyMulti(logits=True), seed=0
    )
    # each batch has texts of one length: what stands behind the end of a text is read as words otherwise
    data = BucketIterator(held, 1, seed=0)
    t.evaluate(data)
    got = t.predict(data)
    assert got.shape == (19, 3)
    for k in (0, 7, 18):
        np.testing.assert_allclose(got[k], t.predict({"text": held["text"][k][None]})[0], rtol=1e-4, atol=1e-6)


# ---- short batches


@pytest.mark.parametrize(("optimizer", "copied"), [(Adam(1e-3), 2), (GradientDescentMomentum(0.01, 0.9), 0)], ids=["adam", "momentum"])
def test_steps_of_short_batches_keep_weights_where_they_are_and_run_no_python(optimizer, copied):
    """New weights are made behind the last reader of the old ones. Adam's first update also makes scalars for the others, so that its
    results are copied to where the old values were."""
    n, f = ng.make_axis(name="N"), ng.make_axis(784, name="F")
    x, t = ng.placeholder([n, f]), ng.placeholder([n], dtype="int32")
    body = [Affine(GlorotInit(), nout=256, activation=Rectlin()), Affine(GlorotInit(), axes=[ng.make_axis(7, name="Y")])]
    cost = CrossEntropyMulti(logits=True)(Sequential(body)(x), t)
    with ngt.allocate_transformer("cpu") as transformer:
        step = transformer.computation([ng.mean(cost, out_axes=()), optimizer(cost)], x, t)
        draw, losses = np.random.default_rng(0), []
        for k in range(40):
            rows = (64, 3, 24, 1)[k % 4]
            labels = draw.integers(0, 7, rows).astype("i4")
            given = draw.standard_normal((rows, 784)).astype("f") * 0.1
            given[np.arange(rows), labels] += 3.0
            losses.append(float(step(given, labels)[0]))
        states = next(iter(step.native.bound.values())).plan.state
        assert sum(root(after) is not before for _, before, after in states) <= copied
        assert step._fast.call.calls > 30 and np.mean(losses[-8:]) < 0.9 * np.mean(losses[:8])
