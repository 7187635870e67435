"""The training loop: it learns, resumes after being killed, stops early, draws, and says what it did; and neon's own loop."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.frontends.neon import (
    F1,
    LSTM,
    Accuracy,
    Adam,
    Affine,
    ArrayIterator,
    Callback,
    CallbackContainer,
    CallbackPhase,
    ConfusionMatrix,
    CrossEntropyMulti,
    Dropout,
    GaussianInit,
    GlorotInit,
    GradientDescentMomentum,
    IterableSource,
    LayerNorm,
    LookupTable,
    LossCallback,
    Perplexity,
    Prefetch,
    ProgressCallback,
    Rectlin,
    RunTimerCallback,
    Sequential,
    SequentialArrayIterator,
    Softmax,
    Tanh,
    TopK,
    TrainCostCallback,
    Trainer,
    checkpoint,
    inside,
    loop_eval,
    loop_train,
    make_bound_computation,
    make_default_callbacks,
)
from ngraph.frontends.neon.data import Batches
from ngraph.runtime.measure import Measured
from ngraph.warn import forget

HERE = os.path.dirname(__file__)


def clusters(count=200):
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, count).astype(np.int32)
    centres = np.array([[2, 0, 0, 0], [0, 2, 0, 0], [0, 0, 2, 0]])
    images = (centres[labels] + random.normal(size=(count, 4)) * 0.4).astype(np.float32)
    return {"image": {"data": images, "axes": ("N", "F")}, "label": {"data": labels, "axes": ("N",)}}


def classifier():
    return Sequential(
        [Affine(GlorotInit(), nout=8, activation=Rectlin()), Affine(GlorotInit(), axes=[ng.make_axis(3, name="Y")], activation=Softmax())]
    )


def trainer(folder=None, **options):
    said = options.pop("said", [])
    return Trainer(
        options.pop("model", None) or classifier(),
        options.pop("optimizer", None) or GradientDescentMomentum(0.1, 0.9),
        CrossEntropyMulti(),
        [Accuracy(), ConfusionMatrix()],
        folder=folder,
        say=said.append,
        **options,
    )


def test_fit_learns_and_reports(tmp_path):
    said = []
    made = trainer(str(tmp_path / "out"), said=said)
    report = made.fit(ArrayIterator(clusters(), 20, shuffle=True), ArrayIterator(clusters(), 64, last="short"), epochs=5)
    assert report.valid["accuracy"] > 0.95 and report.steps == 50 and report.rate > 0 and 0 < report.share
    assert report.valid["confusion"].sum() == 200
    assert "50 steps, 1,000 examples" in str(report) and f"{report.share:.0%} of {report.limit}" in str(report)
    assert len(said) == 5 and "accuracy" in said[-1]
    with open(tmp_path / "out" / "costs.csv") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["step", "path", "value"]
    assert [float(r[2]) for r in rows if r[1] == "cost/train"] == list(made.record["cost/train"])
    if any(f.endswith("loss.png") for f in report.files):
        assert (tmp_path / "out" / "loss.png").stat().st_size > 1000
        assert (tmp_path / "out" / "confusion.png").stat().st_size > 1000
    predicted = made.predict(ArrayIterator(clusters(), 64, last="short"))
    assert predicted.shape == (200, 3) and (predicted.argmax(1) == clusters()["label"]["data"]).mean() == report.valid["accuracy"]
    table = made.summary({"image": clusters()["image"]["data"][:10]})
    assert made.model.summary().splitlines()[0].split() == ["layer", "axes", "out", "parameters"]
    assert "Affine_0" in table and "40" in table and "flops" in table and "%" in table


@pytest.mark.parametrize("name", ["cpu", "numpy"])
def test_time_is_shared_out_to_all_layers_of_a_fused_kernel(name):
    wide = ng.make_axis(64, name="F")
    model = Sequential([part for _ in range(4) for part in (Affine(GlorotInit(), axes=[wide], activation=Tanh()), LayerNorm())])
    x = ng.placeholder([ng.make_axis(name="N"), wide])
    with ngt.make_transformer_factory(name)() as transformer:
        computation = transformer.computation(model(x), x)
        rows = [line.split() for line in inside.summary(model, computation, np.ones((64, 64), np.float32)).splitlines()[1:]]
    shares = {row[0]: float(row[-1].rstrip("%")) for row in rows}
    whole = shares.pop(model.name)  # a step or two belong to no layer, and how long they take is the machine's affair
    assert len(shares) == 8 and 90 < whole <= 100
    assert sum(shares.values()) == pytest.approx(whole, abs=0.5) and min(v for k, v in shares.items() if "Affine" in k) > 0


def test_the_share_is_of_what_was_measured(monkeypatch):
    known = Measured(1e9, 1e9, 1e9, 2e9, 3e9, 1e-6, 2)
    monkeypatch.setattr(inside, "measured", lambda target: known)
    monkeypatch.setattr(inside, "threads", lambda: 2)
    assert inside.machine_limit() == (3e9, "this machine's limit")
    monkeypatch.setattr(inside, "threads", lambda: 1)
    assert inside.machine_limit() == (2e9, "one core's limit here")
    monkeypatch.setattr(inside, "measured", lambda target: None)
    rate, known_by = inside.machine_limit()
    assert rate > 1e8 and "NumPy" in known_by


def test_evaluation_on_sequences_of_other_lengths():
    """One trainer, windows of 8 and then of 16."""
    letters = np.tile(np.arange(4, dtype=np.int32), 100)
    data = {"inp_txt": {"data": letters[:-1], "axes": ("REC",)}, "tgt_txt": {"data": letters[1:], "axes": ("REC",)}}
    model = Sequential([LookupTable(4, 8, GlorotInit()), Affine(GlorotInit(), axes=[ng.make_axis(4, name="Y")])])
    made = Trainer(model, Adam(0.05), CrossEntropyMulti(logits=True), [Accuracy()], inputs="inp_txt", say=lambda line: None)
    made.fit(SequentialArrayIterator(data, 8, 4), steps=40)
    assert [made.evaluate(SequentialArrayIterator(data, n, 4, shuffle=False))["accuracy"] for n in (8, 16)] == [1.0, 1.0]


def test_several_sets_are_evaluated_by_name():
    made = trainer()
    sets = {name: ArrayIterator(clusters(), size, last="short") for name, size in (("few", 64), ("all", 200))}
    made.fit(ArrayIterator(clusters(), 20), steps=5)
    found, single = made.evaluate(sets), {name: made.evaluate(own) for name, own in sets.items()}
    assert list(found) == ["few", "all"] and found["few"]["confusion"].sum() == 200
    assert all(found[n][k] == single[n][k] for n in sets for k in ("cost", "accuracy"))


def carrying():
    """A model that carries its state, its text, and a function that makes trainers of it."""
    letters = np.random.default_rng(0).integers(0, 4, 403).astype(np.int32)
    data = {"inp_txt": {"data": letters[:-1], "axes": ("REC",)}, "tgt_txt": {"data": letters[1:], "axes": ("REC",)}}
    body = [LookupTable(4, 8, GaussianInit(0, 1)), LSTM(6, GaussianInit(0, 1), reset_cells=False)]
    model = Sequential([*body, Affine(GaussianInit(0, 1), axes=[ng.make_axis(4, name="Y")])])

    def make(rate=0.0, folder=None):
        optimizer = GradientDescentMomentum(rate)
        return Trainer(model, optimizer, CrossEntropyMulti(logits=True), inputs="inp_txt", folder=folder, say=lambda line: None)

    return data, make


def test_state_is_carried_along_the_text():
    """At a learning rate of 0 the costs of short windows are those of long ones; evaluations between batches, on rows of another
    number, change nothing; each pass starts at zeros."""
    data, make = carrying()
    made = make()
    short, long = (SequentialArrayIterator(data, steps, 4) for steps in (5, 25))
    single = SequentialArrayIterator(data, 25, 1)
    made.fit(short, single, steps=40, every=7)
    found = made.record["cost/train"]
    np.testing.assert_array_equal(found[:20], found[20:])
    assert found[:20].mean() == pytest.approx(made.evaluate(long)["cost"], rel=1e-6)
    assert found[0] == pytest.approx(made.evaluate(SequentialArrayIterator(data, 5, 4, total_iterations=1))["cost"], rel=1e-6)
    assert made.evaluate(single) == made.evaluate(single)
    assert len(set(made.record["cost/valid"])) == 1
    first = made.predict(single)
    np.testing.assert_array_equal(made.predict(single), first)
    stretched = make()
    stretched.fit(SequentialArrayIterator(data, 5, 4, stretch=5), steps=20)
    assert not np.isin(stretched.record["cost/train"], found).any()


def test_layers_that_carry_their_state_want_text_that_goes_on():
    data, make = carrying()
    with pytest.raises(ValueError, match="reset_cells=False.*no batch goes on[\\s\\S]*fix: .*strided"):
        make().fit(SequentialArrayIterator(data, 5, 4, shuffle="random"), steps=1)
    with pytest.raises(ValueError, match="no batch goes on"):
        make().fit(SequentialArrayIterator(data, 5, 4, shuffle=False), steps=1)


def test_a_checkpoint_has_the_state_that_is_carried(tmp_path):
    data, make = carrying()
    text = lambda: SequentialArrayIterator(data, 5, 4, stretch=5)
    valid = SequentialArrayIterator(data, 25, 2)
    whole = make(0.1)
    whole.fit(text(), steps=33)
    make(0.1, str(tmp_path)).fit(text(), valid, steps=13, every=4, checkpoint_every=13)
    again = make(0.1, str(tmp_path))
    again.fit(text(), valid, steps=33, every=4, resume=True)
    np.testing.assert_array_equal(again.record["cost/train"], whole.record["cost/train"])


def test_a_checkpoint_at_the_end_of_an_epoch_holds_its_evaluation(tmp_path):
    made = trainer(str(tmp_path))
    made.fit(ArrayIterator(clusters(), 20), ArrayIterator(clusters(), 64, last="short"), steps=20, checkpoint_every=5)  # 10 an epoch
    said, arrays = checkpoint.read(str(tmp_path))
    assert said["step"] == 20 and list(arrays["record/cost/valid"][:, 0]) == [9, 19]


def run_killed(folder, steps, *, kill_after=None):
    process = subprocess.Popen(
        [sys.executable, os.path.join(HERE, "killed.py"), str(folder), str(steps)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]),
        },
    )
    if kill_after is None:
        assert process.wait(timeout=120) == 0, process.stderr.read().decode()
    else:
        kill_after(process)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    process.stderr.close()


def costs(folder):
    with open(os.path.join(folder, "costs.csv")) as file:
        return [tuple(r) for r in csv.reader(file) if r[1].startswith(("cost", "metric"))]


def test_a_killed_training_goes_on_to_the_same_losses_bit_for_bit(tmp_path):
    steps = 250
    run_killed(tmp_path / "whole", steps)
    random = np.random.default_rng(int(time.time()))

    def at_some_moment(process):
        """Waits until it has written a checkpoint of its own, then for a moment that nobody has chosen."""
        place, end = tmp_path / "cut" / "checkpoint.json", time.monotonic() + 60
        before = place.read_bytes() if place.exists() else b""
        while time.monotonic() < end and process.poll() is None:
            if place.exists() and place.read_bytes() != before:
                break
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.03))

    killed = 0
    for _ in range(4):
        run_killed(tmp_path / "cut", steps, kill_after=at_some_moment)
        step = json.loads((tmp_path / "cut" / "checkpoint.json").read_text())["step"]
        killed += step < steps
    assert killed >= 1
    run_killed(tmp_path / "cut", steps)
    assert costs(tmp_path / "cut") == costs(tmp_path / "whole")
    whole, cut = (
        open(p / json.loads((p / "checkpoint.json").read_text())["tensors"], "rb").read() for p in (tmp_path / "whole", tmp_path / "cut")
    )
    from safetensors.numpy import load

    whole, cut = ({k: v for k, v in load(b).items() if not k.startswith("record/time")} for b in (whole, cut))
    assert whole.keys() == cut.keys() and all((whole[k] == cut[k]).all() for k in whole)
    assert {k.split("/")[0] for k in whole} >= {"model", "optimizer", "rng", "record"}


def test_resuming_within_one_process(tmp_path):
    data = clusters()
    straight = trainer(str(tmp_path / "a"), optimizer=Adam(0.01))
    straight.fit(ArrayIterator(data, 20, shuffle=True), epochs=4)
    first = trainer(str(tmp_path / "b"), optimizer=Adam(0.01))
    first.fit(ArrayIterator(data, 20, shuffle=True), steps=17, checkpoint_every=5)
    again = trainer(str(tmp_path / "b"), optimizer=Adam(0.01))
    report = again.fit(ArrayIterator(data, 20, shuffle=True), epochs=4, resume=True)
    assert report.steps == 23  # the end of the first is kept too
    # models in one process start alike only if their weights have one name: compare from the checkpoint on
    assert len(again.record["cost/train"]) == 40
    np.testing.assert_array_equal(again.record["cost/train"][:17], first.record["cost/train"])
    done = str(again.fit(ArrayIterator(data, 20, shuffle=True), epochs=4, resume=True))
    assert "trained   nothing more to do after 40 steps" in done and "machine" not in done


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    data = ArrayIterator(clusters(), 20)
    trainer(str(tmp_path)).fit(data, epochs=1)
    other = trainer(str(tmp_path), model=Sequential([Affine(GaussianInit(), axes=[ng.make_axis(3, name="Y")], activation=Softmax())]))
    with pytest.raises(ng.NgraphError, match="of another model or optimizer"):
        other.fit(ArrayIterator(clusters(), 20), epochs=2, resume=True)
    said = json.loads((tmp_path / "checkpoint.json").read_text())
    (tmp_path / said["tensors"]).write_bytes(b"short")
    with pytest.raises(ng.NgraphError, match="SHA-256 differs"):
        trainer(str(tmp_path)).fit(ArrayIterator(clusters(), 20), epochs=2, resume=True)
    (tmp_path / "checkpoint.json").write_text(json.dumps({**said, "format": 9}))
    with pytest.raises(ng.NgraphError, match="format 9"):
        trainer(str(tmp_path)).fit(ArrayIterator(clusters(), 20), epochs=2, resume=True)


def test_early_stop(tmp_path):
    made = trainer(str(tmp_path), optimizer=GradientDescentMomentum(0.0))
    report = made.fit(ArrayIterator(clusters(), 20), ArrayIterator(clusters(), 50), epochs=50, patience=3)
    assert report.steps == 40 and "did not become better in 3" in report.stopped
    again = trainer(str(tmp_path), optimizer=GradientDescentMomentum(0.0))
    assert again.fit(ArrayIterator(clusters(), 20), ArrayIterator(clusters(), 50), epochs=50, patience=3, resume=True).steps == 0


def test_tensorboard_events(tmp_path):
    pytest.importorskip("tensorboardX")
    trainer(str(tmp_path), tensorboard=True).fit(ArrayIterator(clusters(), 20), ArrayIterator(clusters(), 50), epochs=2)
    (events,) = (tmp_path / "events").iterdir()
    held = events.read_bytes()
    assert all(tag in held for tag in (b"cost/train", b"cost/valid", b"metric/accuracy", b"Affine_0/Linear_0/W"))


def test_a_bar_shows_loss_and_rate(capsys):
    pytest.importorskip("tqdm")
    bar = ProgressCallback(force=True)
    trainer(callbacks=[bar]).fit(ArrayIterator(clusters(), 20), epochs=2)
    said = capsys.readouterr().err
    assert "20" in said and "batch/s" in said
    quiet = ProgressCallback()
    trainer(callbacks=[quiet]).fit(ArrayIterator(clusters(), 20), epochs=1)
    assert quiet.bar is None and capsys.readouterr().err == ""


def test_a_padded_last_batch_counts_once(tmp_path):
    made = trainer()
    made.fit(ArrayIterator(clusters(), 20), epochs=1)
    short = made.evaluate(ArrayIterator(clusters(), 64, last="short"))
    padded = made.evaluate(ArrayIterator(clusters(), 64, last="pad"))
    assert padded["accuracy"] == short["accuracy"] and padded["cost"] == pytest.approx(short["cost"], rel=1e-6)
    assert (padded["confusion"] == short["confusion"]).all()


def test_weights_are_saved_loaded_frozen_and_transferred(tmp_path):
    made = trainer()
    made.fit(ArrayIterator(clusters(), 20), epochs=1)
    for name in ("w.safetensors", "w.npz"):
        made.save(str(tmp_path / name))
        other = trainer()
        other.fit(ArrayIterator(clusters(), 20), steps=1)
        report = other.load(str(tmp_path / name))
        assert len(report["matched"]) == 4 and not report["missing"]
        assert all((other.weights()[k] == v).all() for k, v in made.weights().items())
    smaller = trainer(
        model=Sequential(
            [
                Affine(GaussianInit(), nout=8),
                Affine(GaussianInit(), nout=8),
                Affine(GaussianInit(), axes=[ng.make_axis(3, name="Y")], activation=Softmax()),
            ]
        )
    )
    smaller.fit(ArrayIterator(clusters(), 20), steps=1)
    with pytest.raises(ng.NgraphError, match="do not fit"):
        smaller.load(str(tmp_path / "w.npz"))
    report = smaller.load(str(tmp_path / "w.npz"), strict=False)
    assert (
        report["matched"] == ["Affine_0/Linear_0/W", "Affine_0/Bias_0/bias"]
        and len(report["other shape"]) == 2
        and len(report["missing"]) == 2
    )
    model = classifier()
    model(ng.placeholder([ng.make_axis(4, name="F"), ng.make_axis(name="N")]))
    assert model.freeze("Affine_1/*") == ["Affine_1/Linear_0/W", "Affine_1/Bias_0/bias"]
    frozen = trainer(model=model)
    before = {p: frozen.transformer.get(w) for p, w in model.paths().items()}
    frozen.fit(ArrayIterator(clusters(), 20), epochs=1)
    changed = {k for k, v in frozen.weights().items() if (v != before[k]).any()}
    assert changed == {"Affine_0/Linear_0/W", "Affine_0/Bias_0/bias"}
    model.unfreeze()
    assert len(model.variables) == 4
    with pytest.raises(KeyError, match="has no weight 'Affine_7"):
        model.freeze("Affine_7/*")


@pytest.mark.parametrize("compute, scale", [("bfloat16", None), ("float16", "dynamic"), ("float16", 128.0)])
def test_mixed_precision_learns_with_float32_weights(compute, scale):
    made = trainer(optimizer=GradientDescentMomentum(0.1, 0.9, loss_scale=scale), precision=compute)
    report = made.fit(ArrayIterator(clusters(), 20, shuffle=True), ArrayIterator(clusters(), 50), epochs=5)
    assert report.valid["accuracy"] > 0.95
    assert {v.dtype for v in made.weights().values()} == {np.dtype(np.float32)}
    step, _ = made._train
    assert compute in {str(v.dtype) for s in step.program.steps if s.op == "contract" for v in s.results}


@pytest.mark.parametrize("compute", ["bfloat16", "float16"])
def test_mixed_precision_learns_from_a_confident_mistake(compute):
    """Probabilities in 16 bits are 0 there; the cost sees the scores that they are computed from."""
    x, y = np.array([[40.0, -40.0], [1.0, 2.0]], np.float32), np.array([1, 0])
    changed = []
    for logits in (False, True):
        layer = Affine(lambda axes: np.eye(2, dtype=np.float32), nout=2, activation=None if logits else Softmax())
        made = Trainer(
            Sequential([layer]), GradientDescentMomentum(0.1), CrossEntropyMulti(logits=logits), dtype=compute, say=lambda _: None
        )
        made.fit(x, y, batch_size=2)
        changed.append(made.weights()["Affine_0/Linear_0/W"])
    np.testing.assert_array_equal(*changed)
    assert changed[0][1, 0] > 1


def test_a_plain_iterable_of_dicts_trains():
    data = clusters()
    rows = [{"image": data["image"]["data"][k], "label": data["label"]["data"][k]} for k in range(200)]
    made = trainer()
    report = made.fit(IterableSource(rows, 20, axes={"image": ("N", "F"), "label": ("N",)}), ArrayIterator(data, 50), epochs=5)
    assert report.valid["accuracy"] > 0.95


def test_what_the_model_gets_can_be_said():
    data = clusters()
    data["weight"] = {"data": np.ones(200, np.float32), "axes": ("N",)}
    with pytest.raises(ng.NgraphError, match="inputs names 'picture', and a batch has image, label, weight"):
        trainer(inputs="picture").fit(ArrayIterator(data, 20), steps=1)
    trainer(inputs="image").fit(ArrayIterator(data, 20), steps=1)
    trainer(inputs=lambda p: p["image"] * p["weight"], target=lambda p: p["label"]).fit(ArrayIterator(data, 20), steps=1)


# ---- neon's own loop ----------------------------------------------------------------------------------------------------


def old_program(batch=20):
    train = ArrayIterator(clusters(), batch, total_iterations=30)
    inputs = train.make_placeholders(include_iteration=True)
    model = classifier()
    model.layers.insert(0, Dropout(0.9))
    optimizer = GradientDescentMomentum(0.1, 0.9, iteration=inputs["iteration"])
    hot = ng.one_hot(inputs["label"], axis=ng.make_axis(3, name="Y"))
    loss = ng.cross_entropy_multi(model(inputs["image"]), hot)
    cost = ng.sequential([optimizer(loss), ng.mean(loss, out_axes=())])
    with Dropout.inference_mode_on():
        inference = model(inputs["image"])
    eval_loss = ng.cross_entropy_multi(inference, hot)
    wrong = ng.not_equal(ng.argmax(inference, out_axes=[inputs["label"].axes[0]]), inputs["label"])
    t = ngt.make_transformer()
    step = make_bound_computation(t, {"batch_cost": cost}, inputs)
    evaluate = make_bound_computation(t, {"cross_ent_loss": eval_loss, "misclass": ng.cast(wrong, ng.float32)}, inputs)
    return train, t, step, evaluate


@pytest.mark.parametrize("end", [".npz", ".csv", ".hdf5"])
def test_a_2019_program(tmp_path, capsys, end):
    if end == ".hdf5":
        pytest.importorskip("h5py")
    train, t, step, evaluate = old_program()
    out = str(tmp_path / f"out{end}")
    valid = ArrayIterator(clusters(50), 20)
    callbacks = make_default_callbacks(t, out, 10, step, 30, eval_set=valid, loss_computation=evaluate, use_progress_bar=False)
    loop_train(train, step, callbacks)
    said = capsys.readouterr().out
    assert "iteration 30: mean training cost of the last 10" in said and "misclass" in said
    record = callbacks.callback_data
    assert len(record["cost/train"]) == 30 and record["cost/misclass"][-1] < 0.2 and len(record["cost/cross_ent_loss"]) == 3
    assert record["cost/train"][-5:].mean() < record["cost/train"][:5].mean() / 2
    assert os.path.getsize(out) > 100
    if end == ".npz":
        assert np.load(out)["cost/train"].shape == (30, 2)


def test_containers_do_not_share_callbacks_and_need_no_file():
    t = ngt.make_transformer()
    one, other = CallbackContainer(t, None, 3), CallbackContainer(t, None, 3)
    one.add_callback(RunTimerCallback())
    assert len(one.callbacks) == 1 and not other.callbacks
    record = loop_train([{"x": np.ones(3)}] * 3, lambda batch: {"batch_cost": batch["x"].sum()}, one)
    assert list(record["cost/train"]) == [3, 3, 3] and len(record["time/train"]) == 3 and len(record["time/total"]) == 1
    with pytest.raises(ValueError, match="no step"):
        loop_train([], None, other)


def test_phases_come_in_order():
    seen = []

    class Listener(Callback):
        def __call__(self, transformer, data, phase, batch, idx):
            seen.append((phase, idx))

    container = CallbackContainer(None, None, 4, [TrainCostCallback(lambda b: b), Listener()], interval=2)
    loop_train([1.0, 2.0, 3.0, 4.0], None, container)
    P = CallbackPhase
    batch = lambda k: [(P.minibatch_pre_, k), (P.minibatch_post, k)]
    assert seen == [
        (P.train_pre_, None),
        *[(P.interval_pre_, 0), *batch(0), *batch(1), (P.interval_post, 1)],
        *[(P.interval_pre_, 2), *batch(2), *batch(3), (P.interval_post, 3)],
        (P.train_post, 3),
    ]


def test_loop_eval_counts_each_example_once():
    data = {"image": np.arange(5.0), "label": np.zeros(5)}
    found = loop_eval(ArrayIterator(data, 2), lambda b: {"image": b["image"], "mean": b["image"][:, None] * np.ones(3)})
    assert found["image"] == 2.0 and (found["mean"] == 2.0).all()
    assert LossCallback(1, [], None).frequency == 1


# ---- each example counts once -------------------------------------------------------------------------------------------


class Linked(Batches):
    """A user's iterator: it goes round and round, and its last batch begins anew. `said`: whether it tells how many examples there are."""

    def __init__(self, data, batch_size, said=True):
        super().__init__(batch_size, None)
        self.data, self.said = data, said

    @property
    def nbatches(self):
        return -(-len(self.data["label"]["data"]) // self.batch_size)

    @property
    def ndata(self):
        if not self.said:
            raise NotImplementedError
        return len(self.data["label"]["data"])

    def batch(self, k):
        k %= self.nbatches
        return {n: np.take(e["data"], range(k * self.batch_size, (k + 1) * self.batch_size), 0, mode="wrap") for n, e in self.data.items()}

    def axis_names(self):
        return {n: e["axes"] for n, e in self.data.items()}


EVALUATED = {
    **{f"{last} {how}": (lambda d, n, last=last, how=how: ArrayIterator(d, n, last=last, shuffle=how == "shuffled"))
       for last in ("wrap", "drop", "short", "pad") for how in ("in order", "shuffled")},
    "twice": lambda d, n: ArrayIterator(d, n, total_iterations=60),
    "prefetch": lambda d, n: Prefetch(ArrayIterator(d, n)),
    "augmented": lambda d, n: type("Augmented", (ArrayIterator,), {"batch": lambda self, k: dict(ArrayIterator.batch(self, k))})(d, n),
    "user's": Linked,
    "user's, prefetched": lambda d, n: Prefetch(Linked(d, n)),
    "loader": lambda d, n: IterableSource([{k: e["data"][i : i + n] for k, e in d.items()} for i in range(0, 50, n)],
                                          axes={k: e["axes"] for k, e in d.items()}),
    "examples": lambda d, n: IterableSource([{k: e["data"][i] for k, e in d.items()} for i in range(50)], n,
                                            axes={k: e["axes"] for k, e in d.items()}),
    "endless": lambda d, n: IterableSource(lambda: ({k: e["data"][i] for k, e in d.items()} for i in range(50)), n,
                                           axes={k: e["axes"] for k, e in d.items()}),
}  # fmt: skip


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("kind", EVALUATED)
def test_each_example_counts_once(kind, fixed):
    """Every metric, for batches that divide the 50 examples and such that do not, against NumPy's over all of them."""
    data = clusters(50)
    made = trainer(fixed_batch=fixed)
    made.metrics = [Accuracy(), ConfusionMatrix(), TopK(2), Perplexity(), F1()]
    for size in (1, 10, 16, 50) if not fixed else (16,):
        source = EVALUATED[kind](data, size)
        next(iter(source))
        at = source.state()
        found = made.evaluate(source)
        labels = data["label"]["data"]
        plain = Sequential([*made.model.layers])
        x = ng.placeholder([ng.make_axis(50, name="N"), ng.make_axis(4, name="F")])
        p = made.transformer.computation(plain(x), x)(data["image"]["data"]).astype(np.float64).T
        p = p if p.shape == (50, 3) else p.T
        counts = np.zeros((3, 3), int)
        np.add.at(counts, (labels, p.argmax(1)), 1)
        nll = -np.log(p[np.arange(50), labels])
        assert (found["confusion"] == counts).all()
        assert found["accuracy"] == pytest.approx(np.trace(counts) / 50)
        assert found["top_2"] == pytest.approx((np.argsort(-p, 1)[:, :2] == labels[:, None]).any(1).mean())
        assert found["cost"] == pytest.approx(nll.mean(), rel=1e-5)
        assert found["perplexity"] == pytest.approx(np.exp(nll.mean()), rel=1e-5)
        predicted = made.predict(source)
        assert predicted.shape == (50, 3)
        if "shuffled" not in kind:
            np.testing.assert_allclose(predicted, p, rtol=1e-5)
        if "user" not in kind:  # others are reset, as nobody knows how to copy them
            assert source.state() == at


def test_an_iterator_that_does_not_say_how_much_it_has_counts_what_comes():
    made = trainer()
    assert made.evaluate(Linked(clusters(50), 20, said=False))["confusion"].sum() == 60


def test_windows_of_text_count_once():
    """Windows that fill no batch are evaluated too, from the beginning."""
    letters = np.random.default_rng(0).integers(0, 4, 404).astype(np.int32)
    data = {"inp_txt": {"data": letters[:-1], "axes": ("REC",)}, "tgt_txt": {"data": letters[1:], "axes": ("REC",)}}
    for options in ({"shuffle": False}, {"shuffle": True}, {"shuffle": "random"}, {"stretch": 3}):
        source = SequentialArrayIterator(data, 5, 7, **options)
        seen = [tuple(row) for batch in source.once() for row in np.concatenate([batch["inp_txt"], batch["tgt_txt"][:, -1:]], 1)]
        assert sorted(seen) == sorted(tuple(letters[k : k + 6]) for k in range(0, 400, 5))
    made = carrying()[1]()
    assert np.isfinite(made.evaluate(SequentialArrayIterator(data, 5, 7, shuffle=False))["cost"])


@pytest.mark.parametrize("size", [1, 10, 16])
def test_loop_eval_counts_once(size):
    data = clusters(50)
    train = ArrayIterator(data, size)
    inputs = train.make_placeholders()
    per = ng.sum(inputs["image"], out_axes=[inputs["label"].axes[0]])
    transformer = ngt.make_transformer()
    step = make_bound_computation(transformer, {"each": per, "mean": ng.mean(per, out_axes=())}, inputs)
    wanted = data["image"]["data"].sum(1, dtype=np.float64).mean()
    for source in (train, ArrayIterator(data, size, last="drop"), ArrayIterator(data, size, last="pad"), Linked(data, size)):
        if 50 % size:
            with pytest.warns(ng.NgraphWarning, match="'mean' is a mean over batches of 16, of which the last has only 2 examples"):
                forget()
                found = loop_eval(source, step)
        else:
            found = loop_eval(source, step)
            assert found["mean"] == pytest.approx(wanted, rel=1e-5)
        assert found["each"] == pytest.approx(wanted, rel=1e-5)


def test_a_cost_that_is_a_mean_is_weighted_by_the_examples_of_its_batch():
    data = clusters(50)
    made = trainer()
    each = made.evaluate(ArrayIterator(data, 16))["cost"]
    own = CrossEntropyMulti()
    made.cost = lambda y, t: ng.mean(own(y, t), out_axes=())
    made._evaluations.clear()
    assert made.evaluate(ArrayIterator(data, 16))["cost"] == pytest.approx(each, rel=1e-5)
