"""Callbacks: code that runs around the steps of a training loop. `loop_train` runs the loop; a callback is called in every phase.

A callback is a function (transformer, callback_data, phase, data, idx), or a Callback, which has a method for each phase that it
handles, such as `minibatch_post`. `callback_data` is a Record: lists of numbers by path (`cost/train`), and the state of the loop.
"""

from __future__ import annotations

import csv
import enum
import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.errors import UnsupportedError
from ngraph.frontends.neon.bounds import COUNT, check
from ngraph.frontends.neon.calls import Checked, public, refuse
from ngraph.frontends.neon.containers import BoundComputation
from ngraph.frontends.neon.data.iterators import Batches, examples, padded, rows
from ngraph.op_graph.files import write_whole
from ngraph.warn import warn

Batch = Mapping[str, Any]


class CallbackPhase(enum.Enum):
    """The times at which callbacks are called: around training, around an interval of batches, around each batch."""

    train_pre_ = 0
    train_post = 1
    interval_pre_ = 2
    interval_post = 3
    minibatch_pre_ = 4
    minibatch_post = 5


class Record:
    """The record of a training: lists of (step, number) by path; `status`, shown by a progress bar; `stop`, set to end the loop."""

    def __init__(self) -> None:
        self.lists: dict[str, list[tuple[int, float]]] = {}
        self.status: dict[str, Any] = {}
        self.total: int | None = None  # batches in all
        self.stop = ""  # the reason, where a callback ends the loop

    def add(self, path: str, step: int, value: Any) -> None:
        self.lists.setdefault(path, []).append((int(step), float(value)))

    def __getitem__(self, path: str) -> np.ndarray:
        """Returns the numbers at a path, in order."""
        return np.array([v for _, v in self.lists.get(path, [])])

    def __contains__(self, path: str) -> bool:
        return path in self.lists

    def recent(self, path: str, count: int) -> float:
        """Returns the mean of the last `count` numbers at a path."""
        return float(np.mean([v for _, v in self.lists[path][-count:]]))

    def last(self, path: str) -> float:
        return self.lists[path][-1][1]

    # files
    def save(self, path: str) -> None:
        """Writes all lists, by the file's extension: .npz, .csv (step, path, value), or .hdf5 in neon's layout (needs h5py)."""
        end = os.path.splitext(path)[1].lower()
        if end == ".csv":
            text = io.StringIO()
            rows = csv.writer(text, lineterminator="\n")
            rows.writerow(["path", "step", "value"])
            rows.writerows([name, step, repr(value)] for name, pairs in self.lists.items() for step, value in pairs)
            write_whole(path, text.getvalue().encode())
        elif end == ".npz":
            held = io.BytesIO()
            arrays: dict[str, Any] = {name: np.array(pairs, np.float64) for name, pairs in self.lists.items()}
            np.savez(held, **arrays)
            write_whole(path, held.getvalue())
        elif end in (".hdf5", ".h5"):
            import h5py

            with h5py.File(path, "w") as file:
                for name, pairs in self.lists.items():
                    file.create_dataset(name, data=np.array([v for _, v in pairs]))
        else:
            raise UnsupportedError(f"costs cannot be written to {path}", fix="name it .csv, .npz or .hdf5")


class Callback(Checked):
    """Base of callbacks: a method for each phase, of its name. One that is saved with checkpoints has `state` and `restore`.

    `Trainer.fit` calls `attach` before the first phase. files: those that it wrote, for the report.
    """

    files: Sequence[str] = ()

    def __call__(self, transformer: Any, callback_data: Record, phase: CallbackPhase, data: Any, idx: Any) -> None:
        minded = getattr(self, phase.name, None)
        if minded is not None:
            minded(transformer, callback_data, data, idx)

    def attach(self, trainer: Any, data: Any) -> None:
        """Receives the Trainer and its training data, an iterator, before the first step of a `fit`."""

    def state(self) -> Any:
        """Returns its state for a checkpoint, as JSON values; None for nothing."""
        return None

    def restore(self, state: Any) -> None:
        """Restores its state from a checkpoint."""


class TrainCostCallback(Callback):
    """Runs the training step, `computation`, on each batch, and records its `batch_cost` (its only or first output) as cost/train.

    computation: a BoundComputation, or a function of a batch that gives a dict or a number.
    """

    def __init__(self, computation: Callable[[Batch], Any]):
        self.computation = computation

    def minibatch_pre_(self, transformer: Any, record: Record, data: Batch, idx: int) -> None:
        made = self.computation(data)
        if isinstance(made, Mapping):
            made = made["batch_cost"] if "batch_cost" in made else next(iter(made.values()))
        record.add("cost/train", idx, np.mean(made))


class RunTimerCallback(Callback):
    """Records the seconds of each batch as time/train, and those of the whole training as time/total."""

    def train_pre_(self, transformer: Any, record: Record, data: Any, idx: Any) -> None:
        self.began = time.perf_counter()

    def minibatch_pre_(self, transformer: Any, record: Record, data: Any, idx: Any) -> None:
        self.at = time.perf_counter()

    def minibatch_post(self, transformer: Any, record: Record, data: Any, idx: int) -> None:
        record.add("time/train", idx, time.perf_counter() - self.at)

    def train_post(self, transformer: Any, record: Record, data: Any, idx: Any) -> None:
        record.add("time/total", len(record["time/train"]), time.perf_counter() - self.began)


class TrainLoggerCallback(Callback):
    """Prints the mean cost of each interval of `frequency` batches, the last batch included."""

    def __init__(self, frequency: int, say: Callable[[str], Any] = print):
        check("TrainLoggerCallback", COUNT, frequency=frequency)
        self.frequency, self.say = frequency, say

    def minibatch_post(self, transformer: Any, record: Record, data: Any, idx: int) -> None:
        if (idx + 1) % self.frequency == 0:
            mean = record.recent("cost/train", self.frequency)
            self.say(f"iteration {idx + 1}: mean training cost of the last {self.frequency} {mean:.6g}")


class LossCallback(Callback):
    """Computes the mean of each output of `interval_loss_comp` over a data set, every `frequency` batches and at the end.

    An output that has axes beside the batch counts as one number, the mean over all of them, as in neon.
    """

    def __init__(self, frequency: int, dataset: Any, interval_loss_comp: Any, say: Callable[[str], Any] = print):
        check("LossCallback", COUNT, frequency=frequency)
        self.frequency, self.dataset, self.computation, self.say = frequency, dataset, interval_loss_comp, say
        self.done = -1

    def minibatch_post(self, transformer: Any, record: Record, data: Any, idx: int) -> None:
        self.at = idx
        if (idx + 1) % self.frequency == 0:
            self._evaluate(record, idx)

    def train_post(self, transformer: Any, record: Record, data: Any, idx: Any) -> None:
        if self.done != self.at:
            self._evaluate(record, self.at)

    def _evaluate(self, record: Record, idx: int) -> None:
        self.done = idx
        began = time.perf_counter()
        found = {name: float(np.mean(value)) for name, value in loop_eval(self.dataset, self.computation).items()}
        for name, value in found.items():
            record.add(f"cost/{name}", idx, value)
        record.add("time/loss", idx, time.perf_counter() - began)
        self.say(f"iteration {idx + 1}: " + ", ".join(f"{k} {v:.6g}" for k, v in found.items()))


class ProgressCallback(Callback):
    """A progress bar with `callback_data.status` and the rate; only on a terminal, and only where tqdm is installed."""

    def __init__(self, total: int | None = None, unit: str = "batch", start: int = 0, force: bool = False):
        self.total, self.unit, self.start, self.force = total, unit, start, force
        self.bar: Any = None

    def train_pre_(self, transformer: Any, record: Record, data: Any, idx: Any) -> None:
        if not (self.force or sys.stderr.isatty()):
            return
        try:
            from tqdm import tqdm
        except ImportError:
            return
        total = self.total if self.total is not None else record.total
        self.bar = tqdm(total=total, initial=self.start, unit=f" {self.unit}", smoothing=0.05, leave=False)

    def minibatch_post(self, transformer: Any, record: Record, data: Any, idx: int) -> None:
        if self.bar is None:
            return
        self.bar.update()
        if idx % 10 == 0:
            shown = {"loss": record.recent("cost/train", 20), **record.status}
            self.bar.set_postfix({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in shown.items()}, refresh=False)

    def train_post(self, transformer: Any, record: Record, data: Any, idx: Any) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


class CallbackContainer(Checked):
    """Callbacks in their order, their record, and the file to which it is written at the end (None for none).

    interval: number of batches between interval_pre_ and interval_post. start: the number of the first batch. origin: that from which
    intervals are counted.
    """

    def __init__(
        self,
        transformer: Any,
        output_file: str | None,
        total_iterations: int | None,
        callback_list: Sequence[Any] = (),
        interval: int | None = None,
        start: int = 0,
        origin: int = 0,
    ):
        self.transformer, self.output_file, self.total_iterations = transformer, output_file, total_iterations
        self.callbacks: list[Any] = list(callback_list)
        self.interval, self.start, self.origin = interval, start, origin
        self.callback_data = Record()
        self.callback_data.total = total_iterations

    def add_callback(self, callback: Any, insert_pos: int | None = None) -> None:
        self.callbacks.insert(len(self.callbacks) if insert_pos is None else insert_pos, callback)

    append_callback = add_callback

    def __iter__(self) -> Any:
        return iter(self.callbacks)

    def __call__(self, phase: CallbackPhase, data: Any = None, idx: Any = None) -> None:
        for callback in self.callbacks:
            callback(self.transformer, self.callback_data, phase, data, idx)
        if phase is CallbackPhase.train_post and self.output_file:
            self.callback_data.save(self.output_file)


@public
def make_default_callbacks(
    transformer: Any,
    output_file: str | None,
    frequency: int,
    train_computation: Any,
    total_iterations: int,
    eval_set: Any = None,
    loss_computation: Any = None,
    use_progress_bar: bool = True,
) -> CallbackContainer:
    """Returns the step, a timer, a logger, an evaluation every `frequency` batches if there is an eval_set, and a progress bar."""
    container = CallbackContainer(transformer, output_file, total_iterations, [RunTimerCallback()], frequency)
    container.add_callback(TrainCostCallback(train_computation))
    container.add_callback(TrainLoggerCallback(frequency))
    if eval_set is not None:
        if loss_computation is None:
            raise refuse("make_default_callbacks", "an eval_set needs a loss_computation", "pass loss_computation=")
        container.add_callback(LossCallback(frequency, eval_set, loss_computation))
    if use_progress_bar:
        container.add_callback(ProgressCallback(total_iterations))
    return container


@public
def loop_train(dataset: Iterable[Batch], computation: Any, callbacks: CallbackContainer) -> Record:
    """Runs one loop over batches: callbacks are called in every phase, and run the step. Returns their record.

    computation: the step, for a container without a TrainCostCallback; else it is not needed. Raises ArgumentError where neither is given.
    """
    if not any(isinstance(c, TrainCostCallback) for c in callbacks):
        if computation is None:
            raise refuse("loop_train", "there is no step", "pass a computation, or a TrainCostCallback among the callbacks")
        callbacks.add_callback(TrainCostCallback(computation), 0)
    record, every = callbacks.callback_data, callbacks.interval
    idx = callbacks.start
    callbacks(CallbackPhase.train_pre_)
    try:
        for data in dataset:
            if every and (idx - callbacks.origin) % every == 0:
                callbacks(CallbackPhase.interval_pre_, None, idx)
            callbacks(CallbackPhase.minibatch_pre_, data, idx)
            callbacks(CallbackPhase.minibatch_post, data, idx)
            idx += 1
            if every and (idx - callbacks.origin) % every == 0:
                callbacks(CallbackPhase.interval_post, None, idx - 1)
            if record.stop:
                break
    finally:
        callbacks(CallbackPhase.train_post, None, idx - 1)
    return record


def _batch_length(computation: Any) -> int | None:
    """Returns the length of the batch axis of a computation's inputs, if there is one of known length."""
    if not isinstance(computation, BoundComputation):
        return None
    found = [a.length for k in computation.needed for a in computation.inputs[k].axes.batch_axes()]
    return next((n for n in found if n is not None), None)


def _batch_place(computation: Any, name: str, shape: tuple[int, ...], size: int) -> int | None:
    """Returns the dimension of an output that is the batch: its batch axis, or for functions the last or the first, if of that length."""
    if isinstance(computation, BoundComputation):
        axes = computation.outputs[name].axes
        return next((d for d, a in enumerate(axes) if a.is_batch), None)
    return next((d for d in (len(shape) - 1, 0) if shape and shape[d] == size), None)


@public
def loop_eval(dataset: Iterable[Batch], computation: BoundComputation | Callable[[Batch], Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the mean of each output over the examples of a data set, each counted once.

    Outputs have the batch first or last, or are means over it. Warns of such a mean over a batch with examples that do not count.
    """
    bound, fixed = isinstance(computation, BoundComputation), _batch_length(computation)
    once = dataset.once() if bound and isinstance(dataset, Batches) else dataset
    if hasattr(once, "reset"):
        once.reset()
    left = examples(once)
    held: dict[str, list[np.ndarray]] = {}
    weights: list[int] = []
    for batch in once:
        used = rows(batch) if left is None else min(rows(batch), left)
        if used == 0:
            break
        left = None if left is None else left - used
        whole = padded(batch, fixed or 0)
        size = rows(whole)
        weights.append(used)
        for name, value in computation(whole).items():
            array = np.asarray(value)
            along = _batch_place(computation, name, array.shape, size)
            if along is None and used < size:
                warn(
                    f"loop_eval: {name!r} is a mean over batches of {size}, of which the last has only {used} examples that count",
                    fix="let the computation give the value of each example, or take a batch size that divides the examples",
                )
            mean = array.mean() if along is None else array.take(range(used), along).mean(along)
            held.setdefault(name, []).append(np.asarray(mean))
    if hasattr(once, "reset"):
        once.reset()
    share = np.array(weights) / max(sum(weights), 1)
    means = {k: np.tensordot(share, np.stack(v), 1) for k, v in held.items()}
    return {k: float(v) if np.ndim(v) == 0 else v for k, v in means.items()}
