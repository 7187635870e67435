"""Callbacks that write: a CSV of losses, TensorBoard events, plots; and callbacks for early stopping and checkpoints."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

import numpy as np

from ngraph.errors import ArgumentError, nearest
from ngraph.frontends.neon.bounds import COUNT, NOT_NEGATIVE, check
from ngraph.frontends.neon.callbacks import Callback, Record
from ngraph.frontends.neon.calls import one_of, refuse


class CsvCallback(Callback):
    """Writes each number at once as a line `step,path,value`. A resumed training rewrites the lines of its record."""

    def __init__(self, path: str):
        self.path = path
        self.file: TextIO | None = None
        self.written: dict[str, int] = {}

    def train_pre_(self, transformer: Any, record: Record, data: Any, idx: Any) -> None:
        self.file = open(self.path, "w", encoding="utf-8")
        self.file.write("step,path,value\n")
        self.written = {}
        self._write(record)

    def _write(self, record: Record) -> None:
        new = [(step, name, v) for name, pairs in record.lists.items() for step, v in pairs[self.written.get(name, 0) :]]
        for step, name, value in sorted(new, key=lambda line: line[:2]):
            self._line(f"{step},{name},{value!r}\n")
        self.written = {name: len(pairs) for name, pairs in record.lists.items()}

    def _line(self, text: str) -> None:
        if self.file is not None:
            self.file.write(text)

    def minibatch_post(self, transformer: Any, record: Record, data: Any, idx: int) -> None:
        self._write(record)

    def interval_post(self, transformer: Any, record: Record, data: Any, idx: int) -> None:
        self._write(record)
        if self.file is not None:
            self.file.flush()

    def train_post(self, transformer: Any, record: Record, data: Any, idx: Any) -> None:
        self._write(record)
        if self.file is not None:
            self.file.close()
            self.file = None


class TensorBoardCallback(Callback):
    """Writes each number as a TensorBoard event in `folder`, and at interval ends histograms of `weights()`. Needs tensorboardX."""

    def __init__(self, folder: str, weights: Callable[[], dict[str, np.ndarray]] | None = None, start: int = 0):
        from tensorboardX import SummaryWriter

        self.writer = SummaryWriter(folder, purge_step=start or None)
        self.weights = weights
        self.written: dict[str, int] = {}

    def train_pre_(self, transformer: Any, record: Record, data: Any, idx: Any) -> None:
        self.written = {name: len(pairs) for name, pairs in record.lists.items()}

    def minibatch_post(self, transformer: Any, record: Record, data: Any, idx: int) -> None:
        for name, pairs in record.lists.items():
            for step, value in pairs[self.written.get(name, 0) :]:
                self.writer.add_scalar(name, value, step)
            self.written[name] = len(pairs)

    def interval_post(self, transformer: Any, record: Record, data: Any, idx: int) -> None:
        self.minibatch_post(transformer, record, data, idx)
        for name, array in (self.weights() if self.weights else {}).items():
            self.writer.add_histogram(name, array, idx)
        self.writer.flush()

    def train_post(self, transformer: Any, record: Record, data: Any, idx: Any) -> None:
        self.minibatch_post(transformer, record, data, idx)
        self.writer.close()


RECORDED = {"loss": "cost/train", "val_loss": "cost/valid"}  # names of Keras for lists of a record


class _Improving(Callback):
    """Base of callbacks that act on whether the last number at `path` of the record is better than all before it.

    path: `cost/valid`, `cost/train`, or `metric/` and a metric's name. better: "min" or "max". least: the least change that counts.
    """

    def __init__(self, path: str, better: str, least: float = 0.0):
        name = type(self).__name__
        one_of(name, "better", better, ("min", "max"))
        check(name, NOT_NEGATIVE, least=least)
        self.path, self.sign, self.least = RECORDED.get(path, path), {"min": 1.0, "max": -1.0}[better], float(least or 0)
        self.best = float("inf")

    def improved(self, record: Record) -> bool:
        """Whether the record's last number is the best up to now. Raises ArgumentError where there is no such list."""
        if self.path not in record:
            name = type(self).__name__
            meant = None if self.path == "cost/valid" else nearest(self.path, record.lists)
            fix = f"{name}(path={meant!r})" if meant else "give fit() a valid set"
            raise ArgumentError(f"{name} looks at {self.path!r}, and there are {', '.join(record.lists)}", fix=fix)
        now = record.last(self.path) * self.sign
        if not now < self.best - self.least:
            return False
        self.best = now
        return True

    def state(self) -> Any:
        return {"best": None if self.best == float("inf") else self.best}

    def restore(self, state: Any) -> None:
        self.best = float("inf") if state["best"] is None else state["best"]


class EarlyStopping(_Improving):
    """Ends training when `path` has not improved by `least` in `patience` intervals. better: "min" or "max"."""

    def __init__(self, patience: int = 3, path: str = "cost/valid", better: str = "min", least: float = 0.0):
        check("EarlyStopping", COUNT, patience=patience)
        super().__init__(path, better, least)
        self.patience, self.waited = patience, 0

    def interval_post(self, transformer: Any, record: Record, data: Any, idx: int) -> None:
        self.waited = 0 if self.improved(record) else self.waited + 1
        if self.waited >= self.patience:
            record.stop = f"{self.path} did not become better in {self.patience} intervals"

    def state(self) -> Any:
        return {**super().state(), "waited": self.waited}

    def restore(self, state: Any) -> None:
        super().restore(state)
        self.waited = state["waited"]


EarlyStop = EarlyStopping  # its name in 0.1


class ModelCheckpoint(_Improving):
    """Writes the model's weights after each interval in which `path` is the best up to now, or after every one with best_only=False.

    filename: .safetensors or .npz; `{step}` in it is the number of steps; by default best.safetensors in the Trainer's folder.
    `trainer.load(filename)` reads it. Raises ArgumentError without a filename and a folder.
    """

    def __init__(self, filename: Any = None, path: str = "cost/valid", better: str = "min", least: float = 0.0, best_only: bool = True):
        super().__init__(path, better, least)
        self.filename, self.best_only = filename, best_only

    def attach(self, trainer: Any, data: Any) -> None:
        if self.filename is None and trainer.folder is None:
            raise refuse("ModelCheckpoint", "there is no file to write", "ModelCheckpoint('best.safetensors'), or Trainer(folder='out')")
        self.trainer = trainer

    def interval_post(self, transformer: Any, record: Record, data: Any, idx: int) -> None:
        if not self.best_only or self.improved(record):
            name = os.path.join(self.trainer.folder, "best.safetensors") if self.filename is None else os.fspath(self.filename)
            made_folder(os.path.dirname(name) or ".")
            name = name.replace("{step}", str(idx + 1))
            self.trainer.save(name)
            self.files = [*(f for f in self.files if f != name), name]


class TerminateOnNaN(Callback):
    """Makes the first nan or infinity end the training without an error; the report's `stopped` names step and op. Weights are then those
    before that step. Without it, `fit` raises NanError there."""


class CheckpointCallback(Callback):
    """Calls `save(step)` after `step` batches, at intervals of batches and, once its results are shown, at the end of each interval."""

    def __init__(self, save: Callable[[int], Any], every: int | None, interval: int, origin: int = 0):
        self.save, self.every, self.interval, self.origin = save, every, interval, origin

    def minibatch_post(self, transformer: Any, record: Record, data: Any, idx: int) -> None:
        if self.every and (idx + 1) % self.every == 0 and (idx + 1 - self.origin) % self.interval:
            self.save(idx + 1)

    def interval_post(self, transformer: Any, record: Record, data: Any, idx: int) -> None:
        self.save(idx + 1)


class SayCallback(Callback):
    """Prints one line for each interval, where no progress bar shows it."""

    def __init__(self, say: Callable[[str], Any], interval: int):
        self.say, self.interval = say, interval

    def interval_post(self, transformer: Any, record: Record, data: Any, idx: int) -> None:
        shown = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in record.status.items())
        self.say(f"step {idx + 1}: loss {record.recent('cost/train', self.interval):.4g}" + (f", {shown}" if shown else ""))


# ---- plots --------------------------------------------------------------------------------------------------------------


def _figure(width: float, height: float, layout: str | None = "constrained") -> Any:
    """Returns an empty figure of this size, in inches, which no window shows; None where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    return Figure((width, height), layout=layout)


def _saved(figure: Any, path: str) -> str:
    figure.savefig(path, dpi=120)
    return path


def draw_losses(record: Record, path: str) -> str:
    """Plots the cost of each batch, its running mean, and that of the valid set; returns the path, "" where matplotlib is missing."""
    figure = _figure(8, 4.5)
    if figure is None or "cost/train" not in record:
        return ""
    steps, losses = np.array([pair for pair in record.lists["cost/train"] if np.isfinite(pair[1])]).reshape(-1, 2).T
    if not len(losses):
        return ""
    window = max(1, min(100, len(losses) // 5))
    axes = figure.add_subplot()
    axes.plot(steps, losses, color="0.8", linewidth=0.6, marker="o" if len(losses) < 3 else "", label="one batch")
    axes.plot(steps[window - 1 :], np.convolve(losses, np.ones(window) / window, "valid"), label=f"mean of {window}")
    if "cost/valid" in record:
        axes.plot(*np.array(record.lists["cost/valid"]).T, "o-", markersize=3, label="valid")
    scale = "log" if 0 < 10 * losses.min() <= losses.max() else "linear"
    axes.set(xlabel="batch", ylabel="cost", yscale=scale, title="Cost while training")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend()
    axes.grid(alpha=0.3)
    return _saved(figure, path)


def draw_rates(rates: np.ndarray, losses: np.ndarray, smoothed: np.ndarray, chosen: float | None, path: str) -> str:
    """Plots the loss of each step over its learning rate, smoothed too, and marks the chosen rate. Returns the path, or ""."""
    figure = _figure(8, 4.5)
    if figure is None or not len(rates):
        return ""
    axes = figure.add_subplot()
    axes.plot(rates, losses, color="0.8", linewidth=0.6, marker="o" if len(losses) < 3 else "", label="one batch")
    axes.plot(rates, smoothed, label="smoothed")
    if chosen is not None:
        axes.axvline(chosen, color="C1", linestyle="--", linewidth=1, label=f"steepest: {chosen:.2g}")
    low, high = float(smoothed.min()), float(smoothed[0])
    room = max(high - low, 1e-3 * abs(high), 1e-12)
    axes.set(xlabel="learning rate", ylabel="cost", xscale="log", ylim=(low - room / 2, high + room), title="Cost by learning rate")
    axes.legend()
    axes.grid(alpha=0.3)
    return _saved(figure, path)


def draw_confusion(counts: np.ndarray, path: str, names: list[str] | None = None) -> str:
    """Plots a confusion matrix; up to twenty classes have numbers in their cells, more have ticks at intervals. Returns the path, or ""."""
    figure = _figure(6, 5.7)
    if figure is None:
        return ""
    axes, counts = figure.add_subplot(), np.asarray(counts)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if len(counts) <= 20:
        for (i, j), n in np.ndenumerate(counts):
            axes.text(j, i, str(n), ha="center", va="center", fontsize=6, color="white" if shares[i, j] > 0.5 else "black")
    each = range(0, len(counts), -(-len(counts) // 20))
    shown = [str(k) if names is None else names[k] for k in each]
    right, total = int(np.trace(counts)), int(counts.sum())
    axes.set(
        xlabel="predicted", ylabel="true", xticks=each, yticks=each, title=f"{right:,} of {total:,} right ({right / max(total, 1):.2%})"
    )
    axes.set_xticklabels(shown, fontsize=7, rotation=90 if max(map(len, shown)) > 3 else 0)
    axes.set_yticklabels(shown, fontsize=7)
    return _saved(figure, path)


def draw_samples(images: np.ndarray, titles: list[str], path: str, title: str = "") -> str:
    """Plots images [count, rows, columns] or [count, channels, rows, columns], with a title each and one above. Returns the path, or ""."""
    if not len(images):
        return ""
    columns = min(8, len(images))
    width, height = 1.3 * columns, 1.5 * -(-len(images) // columns) + 0.25
    figure = _figure(width, height, None)
    if figure is None:
        return ""
    figure.suptitle(title, fontsize=9, y=1 - 0.04 / height, va="top")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))  # in inches
    axes.axis("off")
    for k, (image, text) in enumerate(zip(images, titles, strict=False)):
        picture = image if image.ndim == 2 else np.moveaxis(image, 0, -1).squeeze()
        scale = 1.2 / max(picture.shape[:2])
        high, wide = scale * picture.shape[0], scale * picture.shape[1]
        left, top = 1.3 * (k % columns) + (1.3 - wide) / 2, 1.5 * (k // columns) + 0.5
        axes.imshow(picture, cmap="gray", extent=(left, left + wide, top + high, top))
        axes.text(left + wide / 2, top - 0.04, text, fontsize=7, ha="center")
    axes.set(xlim=(0, width), ylim=(height, 0))  # pictures have set others
    return _saved(figure, path)


def quiet() -> bool:
    """Whether output is not interactive: standard error is not a terminal."""
    return not sys.stderr.isatty()


def made_folder(path: str) -> str:
    os.makedirs(path, exist_ok=True)
    return path
