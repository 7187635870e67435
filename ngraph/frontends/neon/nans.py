"""The first nan or infinity of a training: in which step, layer and op it was made, and of what.

A step costs nothing more than a look at its loss. Now and then, for a share of the time that nobody notices, the state is copied. Where a
loss or a weight is not finite, the steps since the last copy are run again, from that copy and the same batches, up to the first that
makes a nan; that one is replayed step by step (`ngraph.runtime.nans`). Weights then are those before it.
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

SHARE = 1 / 200  # of the time of a training: what copies of its state may take
ROOM = 1 / 4  # of the memory that is free: what a copy may take
FREE_COPY_BYTES = 1 << 26  # bytes of a copy that is made in any case
HALVINGS = 16  # steps without a finite loss that a dynamic loss scale may take: from 2**15 to 1, and one more

RunStep = Callable[[Mapping[str, Any], int], float]


def _free() -> float:
    """Bytes of memory that are free; infinite where the system does not say."""
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return float("inf")


class NanWatch:
    """What a training keeps to find its first nan: a copy of the state, and the number of the batch that came next.

    step: the training computation. run: runs a batch with its number, and gives the loss. batch: the batch of a number.
    tolerated: so many losses one after another may be infinite or nan.
    """

    def __init__(
        self, transformer: Any, step: Any, keys: list[str], run: RunStep, batch: Callable[[int], Mapping[str, Any]], tolerated: int
    ):
        self.transformer, self.step, self.keys, self.run, self.batch, self.tolerated = transformer, step, keys, run, batch, tolerated
        self.variables: list[Op] = list(step.states.values())
        self.copy: dict[Op, np.ndarray] | None = None
        self.first = 0  # the number of the first batch after the copy
        self.due = 0.0  # when the next copy may be made, on time.perf_counter's clock
        self.bad = 0  # losses up to now, one after another, that were not finite
        self.at = 0  # the step that was found to be at fault

    def before(self, number: int) -> None:
        """To be called before the step of the batch of this number."""
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
        """Whether what was finite in the copy still is."""
        return self.copy is None or all(finite(a) or not finite(self.copy[v]) for v, a in state.items())

    def after(self, loss: float, batch: Mapping[str, Any], number: int, step: int) -> None:
        """To be called with the loss of a step. Raises NanError where it is not finite."""
        if np.isfinite(loss):
            self.bad = 0
            return
        self.bad += 1
        if self.bad > self.tolerated:
            raise self.error(f"the loss of step {step} is {loss}", batch, number, step)

    def check(self, number: int, step: int) -> None:
        """Raises NanError where the state is not finite, before it is kept or shown; `number` is that of the last batch, of this step."""
        if self.copy is None or self._sound(state := {v: self.transformer.get(v) for v in self.variables}):
            return
        names = [v.name for v, a in state.items() if not finite(a) and finite(self.copy[v])]
        raise self.error(f"{', '.join(names[:3])} {'is' if len(names) == 1 else 'are'} not finite after step {step}", None, number, step)

    def error(self, what: str, last: Mapping[str, Any] | None, number: int, step: int) -> NanError:
        """The error that names the step at fault: one of those from the copy to this one. The state is left as it was before that."""
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
    """Which entry of a batch has a nan or an infinity, and in which example; "" where none has."""
    for key in keys:
        array = np.asarray(batch[key])
        if not finite(array):
            place = np.argwhere(~np.isfinite(array.astype(np.float64)))[0]
            return f"the batch has {array[tuple(place)]} in {key!r}, example {place[0] if len(place) else 0}"
    return ""
