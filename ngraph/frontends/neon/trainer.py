"""Trainer: a model, an optimizer, a cost and metrics; `fit` trains them in the loop of `loop_train`, with the same callbacks."""

from __future__ import annotations

import importlib.util
import itertools
import os
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import AxisError, GraphError, NanError, UnknownName, nearest
from ngraph.frontends.neon import checkpoint, reports
from ngraph.frontends.neon.bounds import BELOW_1, COUNT, WHOLE, check
from ngraph.frontends.neon.callbacks import (
    Callback,
    CallbackContainer,
    ProgressCallback,
    Record,
    RunTimerCallback,
    TrainCostCallback,
    loop_train,
)
from ngraph.frontends.neon.calls import Checked, one_of, public, refuse, wrong_kind
from ngraph.frontends.neon.costs import Cost
from ngraph.frontends.neon.data.buckets import BucketIterator
from ngraph.frontends.neon.data.iterators import TARGETS, ArrayIterator, Batches, Full, dtype_of, padded, rows
from ngraph.frontends.neon.expected import check_labels, computed_labels, labels_in, predictions_in
from ngraph.frontends.neon.given import are_sets, batches_of, has_targets, held_out, input_axes, is_frame
from ngraph.frontends.neon.initializers import current_seed
from ngraph.frontends.neon.inside import flops, machine_limit, summary
from ngraph.frontends.neon.layer import Layer, computed, inference_mode_on, precision
from ngraph.frontends.neon.metrics import ConfusionMatrix, Metric, Streamed
from ngraph.frontends.neon.nans import HALVINGS, NanWatch
from ngraph.frontends.neon.saver import read_weights, transfer, write_weights
from ngraph.op_graph.arguments import shown
from ngraph.op_graph.axes import show_axes
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import show_input
from ngraph.parts import nest

Batch = Mapping[str, Any]


class Report:
    """The result of a training: steps, seconds, examples per second, final losses and metrics, files; `str` of it is the summary."""

    def __init__(self, **facts: Any):
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["facts"][name]
        except KeyError:
            meant = nearest(name, self.facts)
            raise UnknownName(
                f"the report has {', '.join(self.facts)}, and no {name!r}", fix=f"take report.{meant}" if meant else "take one of these"
            ) from None

    def __str__(self) -> str:
        f = self.facts
        done = f"nothing more to do after {f['before']:,} steps"
        if f["steps"]:
            done = f"{f['steps']:,} steps, {f['examples']:,} examples in {f['seconds']:.1f} s, the first step in {f['first']:.1f} s"
        if f["rate"]:
            done += f"; then {f['rate']:,.0f} examples/s"
        held = ", ".join(f"{k} {v:.5g}" for k, v in f["valid"].items() if np.ndim(v) == 0)
        limit = f"{f['gflops']:.1f} Gflop/s on the transformer {f['transformer']!r}, {f['share']:.0%} of {f['limit']}"
        lines = [
            ("trained", done + (f"; ended early: {f['stopped']}" if f["stopped"] else "")),
            ("loss", f"{f['loss']:.5g} over the last steps" + (f"; held-out: {held}" if held else "")),
            ("machine", limit if f["rate"] else ""),
            ("files", ", ".join(f["files"])),
        ]
        return "\n".join(f"{name:9} {text}" for name, text in lines if text)


BATCH = 256  # examples of a batch where arrays are evaluated


def _entries(batch: Any, keys: Sequence[str], who: str) -> list[Any]:
    """Returns the entries of a batch that a computation takes. Raises ArgumentTypeError for no dict, GraphError that names missing ones."""
    if not isinstance(batch, Mapping):
        raise wrong_kind(who, f"a batch is a dict of arrays, not {type(batch).__name__}", f"pass {{{keys[0]!r}: array}}")
    missing = [k for k in keys if k not in batch]
    if missing:
        raise GraphError(
            f"{who}: the batch has {', '.join(map(str, batch)) or 'nothing'}, and lacks {', '.join(missing)}",
            fix=f"pass a dict with {', '.join(map(repr, keys))}",
        )
    return [batch[k] for k in keys]


BESIDE = ("mask", "iteration")  # entries of batches that are neither inputs nor targets


def _check_names(keys: Sequence[str], data: Batches) -> None:
    """Raises ArgumentError where a batch lacks an entry that the training step takes."""
    own, names = [k for k in keys if k not in BESIDE], [n for n in data.batch(0) if n not in BESIDE]
    if not set(own) <= set(names):
        why = f"the training step was made for {', '.join(own)}, and a batch has {', '.join(names)}"
        raise refuse("fit", why, "give the entries of all data the same names; arrays are x and y")


def _with_examples(who: str, data: Batches) -> Batches:
    """Returns the data. Raises ArgumentError where they are arrays of no examples."""
    if isinstance(data, ArrayIterator) and not data.ndata:
        shapes = ", ".join(f"{key} {array.shape}" for key, array in data.arrays.items())
        raise refuse(who, f"there are no examples: {shapes}", "pass arrays with at least one row")
    return data


def _chosen(what: str, names: Any, placeholders: Mapping[str, Op]) -> Any:
    """Returns the entries that the argument `what` of a Trainer names. Raises GraphError for a name that no entry of a batch has."""
    if callable(names):
        return names(placeholders)
    if not isinstance(names, (str, list, tuple)):
        raise wrong_kind("Trainer", f"{what} is {shown(names)}, no name of an entry", f"take {what}={next(iter(placeholders))!r}")
    for name in [names] if isinstance(names, str) else names:
        if name not in placeholders:
            meant = nearest(str(name), placeholders)
            fix = f"{what}={meant!r}" if meant and isinstance(names, str) else repr(meant) if meant else f"one of {', '.join(placeholders)}"
            raise GraphError(
                f"Trainer: {what} names {name!r}, and a batch has {', '.join(placeholders)}",
                fix=f"take {fix}",
            )
    return placeholders[names] if isinstance(names, str) else {name: placeholders[name] for name in names}


def _target(names: Container[str], data: Batches) -> str | None:
    """Returns the name of the target: the iterator's tgt_key, or the one usual name of a target that a batch has."""
    usual = [n for n in TARGETS if n in names]
    return data.tgt_key if data.tgt_key in names else usual[0] if len(usual) == 1 else None


def _objects(callbacks: Sequence[Any]) -> list[Any]:
    """Returns callbacks, with an object for each class."""
    return [c() if isinstance(c, type) else c for c in callbacks]


class Trainer(Checked):
    """Trains a model.

    model: a callable from ops to an op, such as Sequential. optimizer: called with the cost. cost: (prediction, target) -> the cost of
    each example. metrics: computed on the valid set after each epoch.
    inputs, target: the entries of a batch for the model and the cost: a name, a list of names (passed as a dict), or a function of the
    dict of placeholders. By default the target is the iterator's `tgt_key`, or the one entry called label, target or the like, and the
    model gets the others.
    folder: for loss.png, costs.csv, checkpoints and other files; None for none of them. callbacks: further ones, before checkpoints;
    a class stands for its object, as EarlyStopping for EarlyStopping().
    dtype: "bfloat16" or "float16" computes in that, with float32 weights (mixed precision); give the optimizer a loss_scale for float16.
    precision: another name of dtype.
    fixed_batch: gives ax.N the iterator's batch size; always so for recurrent layers with reset_cells=False, whose state is carried
    from batch to batch until the iterator starts new sequences (`starts`); evaluations have a state of their own. seed: of the
    transformer's random numbers.
    tensorboard: write events (needs tensorboardX). progress_bar: False prints a line for each interval instead, as without a terminal.
    say: prints lines. transformer: one to use instead of a new one.
    nans: "raise" ends the training with NanError at the first step that computes a nan or an infinity, naming the op; weights are then
    those before it, and the last checkpoint stays. The callback TerminateOnNaN ends it without an error. "ignore" continues.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        optimizer: Any,
        cost: Callable[..., Op],
        metrics: Sequence[Any] = (),
        *,
        inputs: Any = None,
        target: Any = None,
        folder: str | None = None,
        callbacks: Sequence[Any] = (),
        dtype: Any = None,
        precision: Any = None,
        fixed_batch: bool = False,
        seed: int | None = None,
        tensorboard: bool = False,
        progress_bar: bool = True,
        say: Callable[[str], Any] = print,
        transformer: Any = None,
        nans: str = "raise",
    ):
        self.model, self.optimizer, self.cost, self.metrics = model, optimizer, cost, list(metrics)
        for name, given, fix in (
            ("model", model, "Sequential([...])"),
            ("optimizer", optimizer, "Adam(1e-3)"),
            ("cost", cost, "MeanSquared()"),
        ):
            if not callable(given) or isinstance(given, type):
                raise wrong_kind("Trainer", f"the {name} is {given!r}, which cannot be called with ops", f"give an object, such as {fix}")
        for m in self.metrics:
            if not isinstance(m, Metric):
                raise wrong_kind("Trainer", f"{m!r} is not a metric", "give objects, such as Accuracy()")
        self.inputs, self.target, self.folder, self.callbacks = inputs, target, folder, _objects(callbacks)
        self.seed = seed
        if dtype is not None and precision is not None:
            raise refuse("Trainer", "dtype and precision are two names of one argument", f"take dtype={dtype!r}")
        name, compute = ("precision", precision) if dtype is None else ("dtype", dtype)
        self.precision = None if compute is None else as_dtype(compute)
        if self.precision is not None and not self.precision.is_float:
            raise refuse("Trainer", f"{name} is 'bfloat16' or 'float16', not {compute!r}", f"take {name}='bfloat16'")
        one_of("Trainer", "nans", nans, ("raise", "ignore"))
        self.nans = nans
        self.fixed_batch, self.tensorboard, self.progress_bar, self.say = fixed_batch, tensorboard, progress_bar, say
        self.transformer = ngt.make_transformer() if transformer is None else transformer
        if seed is not None:
            self.transformer.seed(seed)
        self.record = Record()
        self.step = 0
        self._ends = False  # whether a nan ends the training without an error
        self._kept = 0  # the step of the newest checkpoint
        self._train: Any = None
        self._watch: NanWatch | None = None
        self._data: Batches
        self._axes: Any = None  # names that the user gave the axes of arrays
        self._columns: dict[str, list[Any]] = {}  # of tables, by entry, as the model was first given them
        self._unnamed: set[Op] = set()  # placeholders whose axes nobody named
        self._predicting: tuple[Any, list[str], Any] | None = None
        self._evaluations: dict[tuple[tuple[str, ...], ...], Any] = {}

    # ---- graphs

    def _placeholders(self, data: Batches) -> dict[str, Op]:
        """Returns a placeholder for each entry; the batch axis has no length, nor have the data's open axes, so batches may differ."""
        if self._fixed():
            made = dict(data.make_placeholders())
        else:
            shared = {n: ng.make_axis(name=n) for n in ("N", *data.open_axes)}
            made, named, first = {}, data.axis_names(), data.batch(0)
            target = _target(first, data) if self.target is None else self.target
            for key, array in first.items():
                if key != "mask":
                    own = input_axes(self.model, np.asarray(array)) if named.get(key) is None and key != target else None
                    sizes = zip(own, np.shape(array), strict=True) if own else data.named_axes(key, array)
                    axes = [shared[n] if n in shared else ng.make_axis(size, name=n) for n, size in sizes]
                    made[key] = ng.placeholder(axes, dtype=dtype_of(key, array)).named(key)
        named = data.axis_names()
        self._unnamed |= {p for key, p in made.items() if named.get(key) is None and len(p.axes) > 1}
        if "mask" in data.batch(0):
            axis = next(iter(made.values())).axes.batch_axis()
            made["mask"] = ng.placeholder([axis]).named("mask")
        return made

    def _fixed(self) -> bool:
        """Whether all batches have the same number of examples."""
        return self.fixed_batch or self._carries()

    def _from_start(self, data: Batches) -> Iterator[Batch]:
        """Yields the batches of a pass in inference; carried state is reset where the data start new sequences."""
        for k, batch in enumerate(data):
            if k == 0 or self._carries() and data.starts(k):
                self._start(inference=True)
            yield batch

    def _parts(self, placeholders: Mapping[str, Op], data: Batches) -> tuple[Any, Any]:
        """Returns the model's inputs, and the target."""
        target = _target(placeholders, data) if self.target is None else self.target
        names = [n for n in placeholders if n != "mask"]
        rest = [n for n in names if n != target]
        if self.inputs is None and not rest or target is None:
            which = f"inputs={names[0]!r}, target={names[-1]!r}" if len(names) > 1 else f"inputs={names[0]!r}, target=lambda p: ..."
            raise GraphError(
                f"Trainer: which of {', '.join(names)} is the target, and which goes into the model?", fix=f"say so: Trainer(..., {which})"
            )
        inputs = (rest[0] if len(rest) == 1 else rest) if self.inputs is None else self.inputs
        return _chosen("inputs", inputs, placeholders), _chosen("target", target, placeholders)

    def _predict(self, x: Any) -> Any:
        with precision(self.precision):
            return self.model(computed(x) if isinstance(x, Op) else x)

    def _aligned(self, y: Any, t: Any) -> Any:
        """Returns the target, with the prediction's axes in their order where nobody named its own: all of them, or all but the classes.

        Raises AxisError where their lengths are others.
        """
        if not isinstance(y, Op) or not isinstance(t, Op) or t not in self._unnamed or not getattr(self.cost, "aligned", True):
            return t
        batch, own = t.axes[0], [a for a in t.axes if not a.is_batch]
        there = sorted([a for a in y.axes if not a.is_batch], key=lambda a: not a.is_recurrent)  # time stands first, as in inputs
        classes = sorted(there, key=lambda a: a.is_recurrent)
        for axes in (there, *([a for a in there if a is not c] for c in classes)):
            if [a.length for a in axes] == [a.length for a in own]:
                return ng.cast_axes(t, [batch, *axes])
        if own[-1].length == 1 and len(own) == 1:
            return ng.cast_axes(t[:, 0], [batch])
        raise AxisError(
            f"the target {t.label} has {show_axes(t.axes)}, and the prediction {y.label} has {show_axes(y.axes)}",
            details=(show_input(t), show_input(y)),
            fix="let the last layer have as many outputs as the target, or give classes as whole numbers, one an example",
        )

    def _cost(self, y: Any, t: Any, mask: Op | None) -> tuple[Op, Op | None]:
        """Returns the cost of each example, and 0 or 1 for whether it counts; None where all do."""
        cost = self.cost(y, t)
        own = self.cost.weight(y, t) if isinstance(self.cost, Cost) else None
        weight = mask if own is None or mask is None else own * mask
        weight = own if weight is None else weight
        return (cost, None) if weight is None else (cost * weight, weight)

    def _check_first(self, data: Batches) -> None:
        """Checks predictions for the first batch, in inference mode, where ops alone do not show whether they are probabilities, and the
        batch's labels where they are computed."""
        placeholders = self._placeholders(data)
        x, t = self._parts(placeholders, data)
        with inference_mode_on():
            y = self._predict(x)
            cost = self._cost(y, self._aligned(y, t), None)[0]
        doubtful, labels = predictions_in([cost]), computed_labels([cost])
        batch, ops = data.batch(0), [*(own.target for own in labels), *(n for p in doubtful for n in p.numbers)]
        found = self.transformer.computation(ops, *placeholders.values(), name="check")(*[batch[k] for k in placeholders])
        for own, array in zip(labels, found, strict=False):
            own.check(array, "the target", "the first batch", partial(data.which, 0))
        for k, p in enumerate(doubtful):
            p.judge(*map(float, found[len(labels) + 3 * k : len(labels) + 3 * k + 3]))

    def _carries(self) -> bool:
        """Whether some layer's state is carried from batch to batch."""
        return isinstance(self.model, Layer) and any(getattr(below, "reset_cells", None) is False for below in self.model.layers_below())

    def _start(self, inference: bool) -> None:
        """Sets the state that layers carry from batch to batch to zeros."""
        if isinstance(self.model, Layer):
            self.model.reset_states(self.transformer, inference)

    def prepare(self, data: Batches) -> None:
        """Makes the training step, unless there is one; `fit` does, after the callbacks' `attach`.

        Raises ArgumentError for data that do not go on from batch to batch, where layers carry state.
        """
        if self._train is not None:
            return
        if self._carries() and (data.shuffle or data.nbatches > 1) and data.starts(1):
            raise refuse(
                "Trainer",
                "layers with reset_cells=False carry their state from batch to batch, and no batch goes on where the one before ended",
                "SequentialArrayIterator(...) in its strided order, or with stretch=8, or reset_cells=True",
            )
        self._train, self._labels = self._stepping(data, self.optimizer)

    def _stepping(self, data: Batches, optimizer: Any) -> tuple[tuple[Any, list[str]], Any]:
        """Returns a step that trains with an optimizer, as (computation, names of a batch's entries), and its labels, for checks."""
        placeholders = self._placeholders(data)
        x, t = self._parts(placeholders, data)
        y = self._predict(x)
        cost, weight = self._cost(y, self._aligned(y, t), placeholders.get("mask"))
        if predictions_in([cost]) or computed_labels([cost]):
            self._check_first(data)
        if weight is not None:  # the mean over the examples that count
            cost = cost * (ng.cast(ng.batch_size(cost), ng.float32) / ng.maximum(ng.sum(weight, out_axes=()), 1.0))
        loss = ng.mean(cost, out_axes=())
        step = self.transformer.computation([loss, optimizer(cost)], *placeholders.values(), name="train")
        return (step, list(placeholders)), labels_in([cost], placeholders)

    @property
    def trains(self) -> bool:
        """Whether there is a training step, which the first `fit` makes."""
        return self._train is not None

    @contextmanager
    def trial(self, data: Batches, optimizer: Any) -> Iterator[Callable[[int], float]]:
        """Gives, within a block, a function that trains with another optimizer on the k-th batch and returns the loss. After the block,
        weights and all other state are those before it."""
        step, labels = self._stepping(data, optimizer)
        before = {v: self.transformer.get(v) for v in step[0].states.values()}
        first = data.done

        def run(k: int) -> float:
            batch = data.batch(first + k)
            check_labels(labels, batch, f"batch {k}", partial(data.which, first + k))
            return self._one(batch, first + k, step)

        try:
            yield run
        finally:
            self.transformer.state.put(before)

    def _evaluation(self, data: Batches) -> Any:
        """Returns (computation, names of a batch's entries, metrics, prediction and target, labels) for such data, in inference mode."""
        open_ = data.open_axes if self._fixed() else {"N", *data.open_axes}
        batch = {key: data.named_axes(key, array) if key != "mask" else [("N", len(array))] for key, array in data.batch(0).items()}
        kind = tuple(sorted((key, *("?" if n in open_ else str(size) for n, size in named)) for key, named in batch.items()))
        if kind not in self._evaluations:
            placeholders = self._placeholders(data)
            x, t = self._parts(placeholders, data)
            with inference_mode_on():
                y = self._predict(x)
                t = self._aligned(y, t)
                cost, weight = self._cost(y, t, placeholders.get("mask"))
                streamed = Streamed(self.metrics, y, t, placeholders.get("mask"))
            if cost.axes.batch_axis() is None:  # a mean over the batch, by the user's own cost
                cost = ng.broadcast(cost, [*cost.axes, *next(iter(placeholders.values())).axes.batch_axes()])
            count = ng.sum(weight, out_axes=()) if weight is not None else ng.batch_size(cost)
            ops = [ng.sum(cost, out_axes=()), count, *streamed.ops]
            self._evaluations[kind] = (
                self.transformer.computation(ops, *placeholders.values(), name="evaluate"),
                list(placeholders),
                streamed,
                (y, t),
                labels_in(ops, placeholders),
            )
        return self._evaluations[kind]

    # ---- public methods

    @public
    def fit(
        self,
        x: Any,
        y: Any = None,
        epochs: int = 1,
        *,
        valid: Any = None,
        batch_size: int = 32,
        shuffle: bool = True,
        axes: Any = None,
        steps: int | None = None,
        checkpoint_every: int | None = None,
        resume: bool = False,
        patience: int | None = None,
        every: int | None = None,
        callbacks: Sequence[Any] = (),
    ) -> Report:
        """Trains for `epochs` passes of the data, or `steps` batches, and returns a report. A second call trains on.

        x, y: arrays of inputs and targets, examples first: NumPy arrays, torch tensors, pandas tables (y may be a column's name, or a
        list of several), or a dict of inputs. Later tables are read by the names of their columns, in any order. Examples come in batches
        of `batch_size`, the last one of an epoch as short as it is, in an order that is new in each epoch, by the seed of the Trainer or
        of `set_seed`; shuffle=False keeps theirs. float64 becomes float32.
        Or x: an iterator such as ArrayIterator, a loader of pairs or dicts such as torch's DataLoader, a list of such batches, or a
        dict with the targets in it; y is then the valid set. axes: names of the inputs' axes, as "N H W C", or a dict by entry; by
        default they go by the number of dims and the model: see `given.input_axes`.
        valid: data that are evaluated at the end of each epoch, or `every` so many steps: an iterator, a loader, a pair (x, y), or the
        share of the last examples of x and y that is held out. patience: ends early after so many of these without a
        lower valid cost. checkpoint_every: batches between checkpoints, which need a folder; one is also written after each evaluation
        and at the end. callbacks: further ones, for this call: EarlyStopping(), ModelCheckpoint("best.npz"), LRFinder().
        resume: continue from the folder's checkpoint, if there is one, to the same losses, bit for bit; epochs and steps are then those of
        the whole training.
        """
        check("fit", COUNT, batch_size=batch_size)
        if y is not None and valid is None and has_targets(x) and has_targets(y) and not (is_frame(x) and is_frame(y)):
            y, valid = None, y
        if isinstance(valid, (int, float)) and not isinstance(valid, bool):
            check("fit", BELOW_1, valid=valid)
            (x, y), valid = held_out(x, y, float(valid)) if valid else ((x, y), None)
        if y is None and self.target is None and not has_targets(x) and (hasattr(x, "__array__") or isinstance(x, (list, tuple))):
            raise refuse("fit", "there are inputs, and no targets", "pass both: fit(x, y); an autoencoder's are fit(x, x)")
        self._axes = self._axes if axes is None else axes
        seed = current_seed() if self.seed is None else self.seed
        last = "drop" if self._fixed() else "short"
        train = self._batches(x, y, batch_size=batch_size, shuffle=shuffle, seed=seed, last=last)
        _with_examples("fit", train)
        if train is not x and not resume:
            train.done = train.began = self.step  # a second call goes on in another order
        if valid is not None:
            if are_sets(valid):
                why = f"valid= is one set, and these are {len(valid)}: {', '.join(map(str, valid))}"
                raise refuse("fit", why, "pass one of them; trainer.evaluate({...}) takes several")
            valid = _with_examples("fit", self._batches(*(valid if isinstance(valid, tuple) else (valid,))))
        return self._fit(train, valid, epochs, steps, checkpoint_every, resume, patience, every, _objects(callbacks))

    def _batches(self, x: Any, y: Any = None, **options: Any) -> Batches:
        """Returns data as batches; those of arrays have `BATCH` examples unless the options, or layers that carry state, say otherwise."""
        size = self._data.batch_size if self._train is not None and self._fixed() else BATCH
        given = {"model": self.model, "target": self.target, "axes": self._axes, "columns": self._columns}
        return batches_of(x, y, **{**given, "batch_size": size, **options})

    def _fit(
        self,
        train: Batches,
        valid: Batches | None,
        epochs: int,
        steps: int | None,
        checkpoint_every: int | None,
        resume: bool,
        patience: int | None,
        every: int | None,
        callbacks: list[Any],
    ) -> Report:
        check("fit", WHOLE, epochs=epochs, steps=steps)
        check("fit", COUNT, every=every, patience=patience, checkpoint_every=checkpoint_every)
        if (checkpoint_every or resume) and self.folder is None:
            raise refuse("fit", "checkpoints need a folder", "Trainer(..., folder='out')")
        if patience and valid is None:
            raise refuse("fit", "patience needs a validation set, and there is none", "fit(train, valid, patience=3)")
        self._data = train
        stopper = [reports.EarlyStopping(patience)] if patience else []
        user = [*stopper, *self.callbacks, *callbacks]
        self._ends = any(isinstance(c, reports.TerminateOnNaN) for c in user)
        for c in user:
            if hasattr(c, "attach"):
                c.attach(self, train)
        self.prepare(train)
        _check_names(self._train[1], train)
        tolerated = HALVINGS if getattr(self.optimizer, "loss_scale", None) == "dynamic" else 0
        step, keys = self._train
        watched = self.nans == "raise" or self._ends
        self._watch = NanWatch(self.transformer, step, keys, self._one, train.batch, tolerated) if watched else None
        interval = every or len(train)
        held = self._resumed(train, user) if resume else None
        start = self.step
        self._origin = int(held.get("origin", 0)) if held else start
        self._seen = 0
        total = self._origin + (steps if steps is not None else epochs * len(train))
        container = CallbackContainer(self.transformer, None, total, interval=interval, start=start, origin=self._origin)
        container.callback_data = self.record
        self.record.total, self.record.stop = total, held["stop"] if held else ""
        for c in self._callbacks(train, valid, user, interval, start, checkpoint_every):
            container.add_callback(c)
        began = time.perf_counter()
        todo = 0 if self.record.stop else max(total - start, 0)
        batches = itertools.islice(self._endless(train), todo)
        if todo:
            loop_train(batches, None, container)
            self._check_state()
            if self.folder is not None and self._kept != self.step:
                self._checkpoint(self.step, train, user)
        files = [file for c in user for file in getattr(c, "files", ())]
        return self._report(time.perf_counter() - began, self.step - start, train, valid, files)

    def _endless(self, train: Batches) -> Iterator[Batch]:
        if not len(train):
            raise refuse("fit", "the training data give no batch", "give it at least one example, and a batch size that is not larger")
        while True:  # a pass resumed at its end gives nothing more
            yield from train

    def _callbacks(
        self, train: Batches, valid: Batches | None, user: list[Any], interval: int, start: int, checkpoint_every: int | None
    ) -> Iterator[Any]:
        yield RunTimerCallback()
        yield TrainCostCallback(self._run)
        yield _CheckState(self)
        yield _Evaluate(self, valid)
        yield from user
        if self.folder is not None:
            folder = reports.made_folder(self.folder)
            yield reports.CsvCallback(os.path.join(folder, "costs.csv"))
            if self.tensorboard:
                yield reports.TensorBoardCallback(os.path.join(folder, "events"), self.weights, start)
            yield reports.CheckpointCallback(lambda step: self._checkpoint(step, train, user), checkpoint_every, interval, self._origin)
        if not self.progress_bar or reports.quiet() or importlib.util.find_spec("tqdm") is None:
            yield reports.SayCallback(self.say, interval)
        else:
            yield ProgressCallback(start=start)

    def _run(self, batch: Batch) -> float:
        """Runs the step of a batch, with checks of its labels and its loss; returns the loss."""
        number, watch = self._data.done - 1, self._watch
        check_labels(self._labels, batch, f"step {self.step}", partial(self._data.which, number))
        if watch is not None:
            watch.before(number)
        loss = self._one(batch, number)
        self.step += 1
        self._seen += rows(batch)
        if watch is not None:
            with self._stopping(watch):  # which sets `step` back to that at fault
                watch.after(loss, batch, number, self.step - 1)
        return loss

    def _one(self, batch: Batch, number: int, own: Any = None) -> float:
        """Returns the loss of the batch of this number; updates the weights, by the training's step or that of a trial."""
        step, keys = self._train if own is None else own
        if self._carries() and self._data.starts(number):
            self._start(inference=False)
        loss, _ = step(*[batch[k] for k in keys])
        return float(loss)

    def _check_state(self) -> None:
        """Raises NanError where weights, or other state of the training, are not finite."""
        if self._watch is not None:
            with self._stopping(self._watch):
                self._watch.check(self._data.done - 1, self.step - 1)

    @contextmanager
    def _stopping(self, watch: NanWatch) -> Iterator[None]:
        """Adds to a NanError of this block the step at fault and the present checkpoint; or, for TerminateOnNaN, ends without an error."""
        try:
            yield
        except NanError as error:
            self.step = watch.at
            if self._ends:
                self.record.stop = error.message
                return
            if self._kept and self.folder is not None:
                error.details += (f"the checkpoint in {self.folder} is of step {self._kept}: fit(..., resume=True) continues from there",)
                error.at(error.line)
            raise

    @public
    def evaluate(self, x: Any, y: Any = None) -> dict[str, Any]:
        """Returns {"cost": mean over the data, metric: its number, ...}, in inference mode; each example counts once, for any `last`.

        x, y: data as `fit` takes them: an iterator, a loader, or arrays and their targets; or several sets by name, of iterators, loaders
        or pairs (x, y), whose results then come by name.
        """
        if y is None and are_sets(x):
            return {name: self.evaluate(*(own if isinstance(own, tuple) else (own,))) for name, own in x.items()}
        data = _with_examples("evaluate", self._batches(x, y))
        once = Full(data.once()) if self._fixed() else data.once()
        computation, keys, streamed, _, labels = self._evaluation(once)
        streamed.reset()
        total = count = 0.0
        for k, batch in enumerate(self._from_start(once)):
            check_labels(labels, batch, f"batch {k}", partial(once.which, k))
            cost, n, *values = computation(*[batch[k] for k in keys])
            total, count = total + float(cost), count + float(n)
            streamed.add(values)
        return {"cost": total / max(count, 1.0), **streamed.results()}

    @public
    def predict(self, data: Any) -> Any:
        """Returns predictions in inference mode, batch first, for an iterator (each example once), an array, tensor or table of inputs, or
        one batch (a dict of arrays); the target may be missing. Dims have the target's order where it has the same axes, and otherwise that
        of the model's result. Predictions of sequences of unlike length are a list of one array each. A model of several results, as a
        dict, list or tuple, gives arrays in the same form."""
        if not isinstance(data, (Batches, Mapping)):
            data = self._batches(data)
            if isinstance(data, ArrayIterator) and not data.ndata:
                data = dict(data.arrays)
        if isinstance(data, Batches):
            size, once, keys = data.batch_size if self._fixed() else 0, data.once(), self._prediction()[1]
            first = data.batch(0)
            own = [n for n in first if n not in BESIDE and n != _target(first, data)]
            alone = {keys[0]: own[0]} if len(keys) == len(own) == 1 else {}  # the only input, of whatever name
            made, counts = [], []
            for b in self._from_start(once):
                made.append(nest.leaves(self.predict(padded({**b, **{k: b[n] for k, n in alone.items()}}, size))))
                counts.append(rows(b))
            form, joined = self._prediction()[2], []
            for y, *arrays in zip(nest.leaves(form), *made, strict=True):
                found = [a[:n] for a, n in zip(arrays, counts, strict=True)]
                joined.append(self._apart(y, found, once) if isinstance(once, BucketIterator) else np.concatenate(found))
            return nest.rebuilt(form, joined)
        computation, keys, form = self._prediction()
        if len(keys) == 1 and keys[0] not in data and "x" in data:  # an array, of whatever name the data had
            data = {keys[0]: data["x"]}
        return nest.rebuilt(form, [np.asarray(a) for a in nest.leaves(computation(*_entries(data, keys, "predict")))])

    def _apart(self, y: Op, found: Sequence[np.ndarray], data: BucketIterator) -> Any:
        """Returns predictions in the order of the examples; where they have an open axis, each without what is behind its example's end."""
        apart: list[Any] = [None] * data.ndata
        names = [a.name for a in y.axes if not a.is_batch]
        for k, batch in enumerate(found):
            for row, array in enumerate(batch):
                place = data.which(k, row)
                assert place is not None
                ends = tuple(slice(data.sizes[place] if n in data.open_axes else None) for n in names)
                apart[place] = array[ends]
        return apart if data.open_axes & set(names) else np.stack(apart)

    def _predicted(self) -> Any:
        """Returns the prediction for data that has been evaluated, in the model's form: each op batch first, then in the target's order
        where that has the same axes."""
        made, t = next(iter(self._evaluations.values()))[3]

        def ordered(y: Op) -> Op:
            order = t.axes if isinstance(t, Op) and set(t.axes) == set(y.axes) else y.axes
            return ng.axes_with_order(y, [*y.axes.batch_axes(), *(a for a in order if not a.is_batch)])

        return nest.rebuilt(made, map(ordered, nest.leaves(made)))

    @public
    def prediction(self) -> Any:
        """Returns the computation that `predict` calls, in inference mode; `ng.onnx.save(trainer, path)` writes it, with the weights.

        Raises GraphError before the first `fit` or `evaluate`.
        """
        return self._prediction()[0]

    def _prediction(self) -> tuple[Any, list[str], Any]:
        """Returns the computation of predictions, the names of its arguments, and the ops that it computes, in the model's form."""
        if self._predicting is None:
            if not self._evaluations and self._train is None:
                raise GraphError("predict before fit or evaluate: what a batch looks like is not known yet", fix="call evaluate(data) once")
            if not self._evaluations:
                self._evaluation(self._data)
            y = self._predicted()
            needed = [o for o in Op.ordered_ops(nest.leaves(y)) if o.is_placeholder]
            results = y if isinstance(y, Op) else nest.leaves(y)
            for name, op in zip(nest.paths(y), nest.leaves(y), strict=True):
                if op.hint is None and name and not name[0].isdigit():
                    op.named(name)
            self._predicting = self.transformer.computation(results, *needed, name="predict"), [p.label for p in needed], y
        return self._predicting

    # ---- weights and checkpoints

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Makes the weights, within a block, the averages that an optimizer with `ema_decay` keeps: for evaluate, predict and save.

        Raises GraphError where it keeps none.
        """
        averages: Mapping[Op, Op] = getattr(self.optimizer, "averages", {})
        if not averages:
            raise GraphError("averaged: the optimizer keeps no averages of weights", fix="Adam(1e-3, ema_decay=0.999), and fit first")
        own = {w: self.transformer.get(w) for w in averages}
        self.transformer.state.put({w: self.transformer.get(a) for w, a in averages.items()})
        try:
            yield
        finally:
            self.transformer.state.put(own)

    def weights(self) -> dict[str, np.ndarray]:
        """Returns the model's variables, trained or not, as arrays by path."""
        return {p: self.transformer.get(v) for p, v in self._layer().paths().items()}

    def _layer(self) -> Layer:
        if not isinstance(self.model, Layer):
            raise GraphError(f"the model {self.model!r} is not a Layer, so its weights have no paths", fix="wrap it: Sequential([model])")
        return self.model

    @public
    def save(self, path: str) -> None:
        """Writes the model's weights as .safetensors or .npz, by path."""
        write_weights(path, self.weights())

    @public
    def load(self, path: str, strict: bool = True) -> dict[str, list[str]]:
        """Loads weights; returns what matched, was missing, left over, or had another shape. strict: StateError unless all match."""
        return transfer(self.transformer, self._layer().paths(), read_weights(path), strict)

    @public
    def summary(self, batch: Batch | None = None, depth: int = 2) -> str:
        """Returns a table of layers; with a batch, with operations and time of a prediction. See `inside.summary`."""
        if batch is None:
            return summary(self._layer(), depth=depth)
        computation, keys, _ = self._prediction()
        return summary(self._layer(), computation, *_entries(batch, keys, "summary"), depth=depth)

    def _checkpoint(self, step: int, train: Batches, user: list[Any]) -> None:
        self._check_state()
        states = checkpoint.named_states(self.transformer, self.model, self.optimizer)
        arrays = {name: self.transformer.get(v) for name, v in states.items()}
        arrays |= {f"record/{name}": np.array(pairs, np.float64) for name, pairs in self.record.lists.items()}
        notes = {
            "data": train.state(),
            "stop": self.record.stop,
            "origin": self._origin,
            "callbacks": [c.state() if hasattr(c, "state") else None for c in user],
            "status": {k: v for k, v in self.record.status.items() if isinstance(v, (int, float, str))},
        }
        checkpoint.save(self.folder or ".", step, arrays, notes)
        self._kept = step

    def _resumed(self, train: Batches, user: list[Any]) -> dict[str, Any] | None:
        found = checkpoint.read(self.folder or ".")
        if found is None:
            return None
        said, arrays = found
        records = {k.removeprefix("record/"): a for k, a in arrays.items() if k.startswith("record/")}
        states = {k: a for k, a in arrays.items() if not k.startswith("record/")}
        checkpoint.put_back(
            self.transformer, checkpoint.named_states(self.transformer, self.model, self.optimizer), states, self.folder or "."
        )
        self.record.lists = {k: [(int(s), float(v)) for s, v in a] for k, a in records.items()}
        self.record.status = dict(said["status"])
        self.step = said["step"]
        train.restore(said["data"])
        for c, state in zip(user, said["callbacks"], strict=True):
            if state is not None:
                c.restore(state)
        self.say(f"resuming after {self.step:,} steps from {self.folder}")
        return said

    # ---- the end

    def _report(self, seconds: float, steps: int, train: Batches, valid: Batches | None, files: list[str]) -> Report:
        computation, keys = self._train
        places = range(0, len(train), max(len(train) // 8, 1)) if train.open_axes else (0,)  # of several, where they are of unlike length
        operations = np.mean([flops(computation, *[batch[k] for k in keys]) for batch in map(train.batch, places)])
        every = self.record["time/train"][-steps:] if steps else np.zeros(0)
        times = every[steps > 1 :]  # the first step compiles
        busy = float(times.mean()) * steps if len(times) else 0.0
        rate = operations * steps / busy if busy else 0.0
        found = self.evaluate(valid) if valid is not None else {}
        losses = self.record["cost/train"]
        limit, known_by = machine_limit() if rate else (1.0, "")
        return Report(
            before=self.step - steps,
            steps=steps,
            examples=self._seen,
            seconds=seconds,
            first=float(every[0]) if len(every) else 0.0,
            rate=self._seen / busy if busy else 0.0,
            loss=float(losses[-min(len(train), len(losses), 100) :].mean()) if len(losses) else float("nan"),
            valid=found,
            stopped=self.record.stop,
            gflops=rate / 1e9,
            share=rate / limit,
            limit=known_by,
            transformer=self.transformer.name,
            files=[*self._pictures(found, valid), *files],
        )

    def _pictures(self, found: Mapping[str, Any], valid: Batches | None) -> list[str]:
        if self.folder is None:
            return []
        made = [os.path.join(self.folder, "costs.csv"), reports.draw_losses(self.record, os.path.join(self.folder, "loss.png"))]
        if valid is not None and any(type(m) is ConfusionMatrix for m in self.metrics):
            made.append(reports.draw_confusion(found["confusion"], os.path.join(self.folder, "confusion.png")))
            made.append(self._misclassified(valid))
        return [m for m in made if m and os.path.exists(m)]

    def _misclassified(self, valid: Batches, count: int = 32) -> str:
        """Plots misclassified examples of the first batches, if they are images; returns the path, or ""."""
        _, keys, _ = self._prediction()
        wrong: list[tuple[np.ndarray, str]] = []
        for batch in itertools.islice(valid.once(), 20):
            images, labels = np.asarray(batch[keys[0]]), np.asarray(batch[valid.tgt_key])
            if images.ndim not in (3, 4) or labels.ndim != 1:
                return ""
            guess = self.predict(padded(batch, valid.batch_size if self._fixed() else 0))[: len(labels)].reshape(len(labels), -1).argmax(1)
            wrong += [(images[i], f"{labels[i]} as {guess[i]}") for i in np.flatnonzero(guess != labels)]
            if len(wrong) >= count:
                break
        chosen = wrong[:count]
        path = os.path.join(self.folder or ".", "misclassified.png")
        title = "What it is, and what it was taken for"
        return reports.draw_samples(np.array([i for i, _ in chosen]), [t for _, t in chosen], path, title) if chosen else ""


class _CheckState(Callback):
    """Checks weights for nan at the end of each interval, before its results are shown."""

    def __init__(self, trainer: Trainer):
        self.trainer = trainer

    def interval_post(self, transformer: Any, record: Record, data: Any, idx: int) -> None:
        self.trainer._check_state()


class _Evaluate(Callback):
    """Evaluates the valid set at the end of each interval: its cost as cost/valid, metrics that are numbers as metric/..."""

    def __init__(self, trainer: Trainer, valid: Batches | None):
        self.trainer, self.valid = trainer, valid

    def interval_post(self, transformer: Any, record: Record, data: Any, idx: int) -> None:
        if self.valid is None:
            return
        found = self.trainer.evaluate(self.valid)
        record.add("cost/valid", idx, found["cost"])
        record.status["valid"] = found["cost"]
        for name, value in found.items():
            if name != "cost" and np.ndim(value) == 0:
                record.add(f"metric/{name}", idx, value)
                record.status[name] = float(value)
