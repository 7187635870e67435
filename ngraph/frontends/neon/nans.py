"""The first nan or infinity of a training: the step, layer and op that computed it, and its operands.

A step's only cost is a test of its loss. At intervals, within a small share of the time, the state is copied. Where a loss or a weight
is not finite, the steps since the last copy are run again, from that copy on the same batches, up to the first that computes a nan; that
one is replayed step by step (`ngraph.runtime.nans`). The weights are then those before it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ngraph.errors import NanError
from ngraph.op_graph.op import Op
from ngraph.runtime.nans import explain, finite

SHARE = 1 / 200  # of the time of a training, for copies of its state
ROOM = 1 / 4  # of the free memory, for a copy
FREE_COPY_BYTES = 1 << 26  # bytes of a copy that is made in any case
HALVINGS = 16  # steps without a finite loss that a dynamic loss scale may take: from 2**15 to 1, and one more

RunStep = Callable[[Mapping[str, Any], int], float]


def _free() -> float:
    """Returns the bytes of free memory; infinite where the system does not report it."""
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return float("inf")


class NanWatch:
    """The data that a training keeps to find its first nan: a copy of the state, and the number of the next batch after it.

    step: the training computation. run: runs a batch with its number, and returns the loss. batch: the batch of a number.
    tolerated: the number of consecutive losses that may be infinite or nan.
    """

    def __init__(
        self, transformer: Any, step: Any, keys: list[str], run: RunStep, batch: Callable[[int], Mapping[str, Any]], tolerated: int
    ):
        self.transformer, self.step, self.keys, self.run, self.batch, self.tolerated = transformer, step, keys, run, batch, tolerated
        self.variables: list[Op] = list(step.states.values())
        self.copy: dict[Op, np.ndarray] | None = None
        self.first = 0  # the number of the first batch after the copy
        self.due = 0.0  # time of the next copy, on time.perf_counter's clock
        self.bad = 0  # consecutive losses up to now that were not finite
        self.at = 0  # the step found to be at fault

    def before(self, number: int) -> None:
        """Makes a copy of the state where one is due. Called before the step of the batch of this number."""
        start = time.perf_counter()
        if start < self.due or self.bad:
            return
        size = sum((v.axes.size or 0) * v.dtype.bits // 8 for v in self.variables)
        found = {v: self.transformer.get(v) for v in self.variables} if size < max(ROOM * _free(), FREE_COPY_BYTES) else None
        if found is not None and self.copy is not None and not self._sound(found):
            return  # the loss of this step, or the end of the interval, will tell
        self.copy, self.first = found, number
        now = time.perf_counter()
        self.due = now + (now - start) / SHARE

    def _sound(self, state: Mapping[Op, np.ndarray]) -> bool:
        """Whether everything that was finite in the copy still is."""
        return self.copy is None or all(finite(a) or not finite(self.copy[v]) for v, a in state.items())

    def after(self, loss: float, batch: Mapping[str, Any], number: int, step: int) -> None:
        """Raises NanError where the loss of a step is not finite. Called after each step."""
        if np.isfinite(loss):
            self.bad = 0
            return
        self.bad += 1
        if self.bad > self.tolerated:
            raise self.error(f"the loss of step {step} is {loss}", batch, number, step)

    def check(self, number: int, step: int) -> None:
        """Raises NanError where the state is not finite, before it is saved or shown; `number` is that of the last batch, of this step."""
        if self.copy is None or self._sound(state := {v: self.transformer.get(v) for v in self.variables}):
            return
        names = [v.name for v, a in state.items() if not finite(a) and finite(self.copy[v])]
        raise self.error(f"{', '.join(names[:3])} {'is' if len(names) == 1 else 'are'} not finite after step {step}", None, number, step)

    def error(self, what: str, last: Mapping[str, Any] | None, number: int, step: int) -> NanError:
        """Returns the error that names the step at fault, one of those since the copy. The state is set to that before it."""
        if self.copy is None:
            return NanError(what, details=("the state was too large to be copied, so the step could not be run again",), fix=FIX)
        self.at = step
        self.transformer.state.put(self.copy)
        for k in range(self.first, number + 1):
            batch = last if last is not None and k == number else self.batch(k)
            before = {v: self.transformer.get(v) for v in self.variables}
            loss = self.run(batch, k)
            state = {v: self.transformer.get(v) for v in self.variables}
            lost = not np.isfinite(loss) and (k == number or not self.tolerated)
            if self._sound(state) and not lost:
                continue
            self.transformer.state.put(before)
            self.at = at = step - (number - k)
            spoiled = _spoiled(batch, self.keys)
            if spoiled:
                return NanError(f"step {at}: {spoiled}", details=(what,), fix="correct the data; " + GO_ON)
            found = explain(self.step, [batch[key] for key in self.keys], before)
            if found is None:
                break
            kept = f"replayed on `direct` from the state before step {at}, which the weights have now"
            return found.error(f"step {at}: ", fix=FIX, details=(what, kept))
        return NanError(
            what,
            details=("the same steps, run again, made none: batches or ops of this training are not the same each time",),
            fix=FIX,
        )


GO_ON = 'Trainer(nans="ignore") goes on'
FIX = f"take a lower learning rate, or clip gradients: gradient_clip_norm=1.0; {GO_ON}"


def _spoiled(batch: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Returns a sentence about the batch's entry and example with a nan or an infinity; "" where there is none."""
    for key in keys:
        array = np.asarray(batch[key])
        if not finite(array):
            place = np.argwhere(~np.isfinite(array.astype(np.float64)))[0]
            return f"the batch has {array[tuple(place)]} in {key!r}, example {place[0] if len(place) else 0}"
    return ""
