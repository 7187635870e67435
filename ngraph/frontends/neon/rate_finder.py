"""LRFinder: the cost of steps whose learning rate grows from one to the next, and the rate at which it falls fastest.

Source: L. Smith, "Cyclical learning rates for training neural networks" (2017), section 3.3.
"""

from __future__ import annotations

import copy
import os
from typing import Any

import numpy as np

from ngraph.frontends.neon.bounds import COUNT, POSITIVE, check
from ngraph.frontends.neon.callbacks import Callback
from ngraph.frontends.neon.calls import refuse
from ngraph.frontends.neon.optimizers import Optimizer
from ngraph.frontends.neon.reports import draw_rates, made_folder
from ngraph.frontends.neon.schedules import Schedule

MEMORY = 0.9  # share of the average so far in the smoothed cost: about the last ten steps
SETTLED = 10  # steps after which the smoothed cost is an average of as many as it remembers; earlier slopes are those of single batches
FIRST = 5  # steps before a cost may end the test, since the first costs are of the initial weights


class LRFinder(Callback):
    """Tests learning rates before a training: `steps` batches with rates from `low` to `high`, each a constant factor above the last.

    The test ends early where the smoothed cost is `diverged` times its least value. Weights, the optimizer's state and random numbers are
    then those before it. `rates`, `costs` and `smoothed` are arrays of its steps; `rate` is the rate at which the smoothed cost falls
    fastest, None where it never falls. `plot(path)` draws them; a Trainer with a folder has learning_rates.png there.
    apply: trains with this rate for the base of the optimizer's schedule, in the Trainer's first `fit`; `fit(..., epochs=0)` tests alone.
    Raises ArgumentError for bounds out of order, and for optimizers that are not neon's.
    """

    def __init__(self, low: float = 1e-6, high: float = 1.0, steps: int = 100, diverged: float = 4.0, apply: bool = False):
        check("LRFinder", POSITIVE, low=low, high=high, diverged=diverged)
        check("LRFinder", COUNT, steps=steps)
        if not low < high or steps < 2 or diverged <= 1:
            raise refuse(
                "LRFinder",
                f"rates from {low:g} to {high:g} in {steps} steps, until {diverged:g} times the least cost",
                "take LRFinder(1e-6, 1.0, steps=100, diverged=4.0): low below high, two steps or more, diverged above 1",
            )
        self.low, self.high, self.steps, self.diverged, self.apply = float(low), float(high), int(steps), float(diverged), apply
        self.rates = self.costs = self.smoothed = np.zeros(0)
        self.rate: float | None = None

    def attach(self, trainer: Any, data: Any) -> None:
        optimizer = trainer.optimizer
        if not isinstance(optimizer, Optimizer):
            raise refuse("LRFinder", f"{optimizer!r} is not an optimizer of neon's, whose rate can be set", "take one such as Adam(1e-3)")
        if self.apply and trainer.trains:
            raise refuse("LRFinder", "the Trainer has trained, with its rate in its step", "take apply=True in its first fit")
        if not self.apply:
            trainer.prepare(data)  # before the test's step, so that random ops have the streams of a training without a test
        growth = (self.high / self.low) ** (1 / (self.steps - 1))
        self.rates = self.low * growth ** np.arange(self.steps)
        testing = copy.copy(optimizer)
        testing.schedule, testing.iteration, testing.accumulate = Schedule("exp", base_lr=self.low, gamma=growth), 0, 1
        testing.states, testing.averages = [], {}
        with trainer.trial(data, testing) as run:
            self._test(run)
        for state in testing.states:
            state.attrs["saved"] = False  # it is no part of the training's checkpoints
        self.rate = self._steepest()
        if self.apply and self.rate is not None:
            optimizer.schedule = optimizer.schedule.of(self.rate)
        found = "the cost falls at none of them" if self.rate is None else f"the cost falls fastest at {self.rate:.2g}"
        trainer.say(f"LRFinder: {len(self.rates)} rates from {self.rates[0]:.2g} to {self.rates[-1]:.2g}; {found}")
        if trainer.folder is not None:
            drawn = self.plot(os.path.join(made_folder(trainer.folder), "learning_rates.png"))
            self.files = [drawn] if drawn else []

    def _test(self, run: Any) -> None:
        """Runs the steps, up to one whose cost has diverged; that one is left out."""
        costs: list[float] = []
        smoothed: list[float] = []
        average = 0.0
        for k in range(self.steps):
            cost = run(k)
            average = MEMORY * average + (1 - MEMORY) * cost
            smooth = average / (1 - MEMORY ** (k + 1))
            least = min(smoothed, default=smooth)
            if not np.isfinite(smooth) or k >= FIRST and smooth > least + (self.diverged - 1) * abs(least):
                break
            costs.append(cost)
            smoothed.append(smooth)
        self.costs, self.smoothed, self.rates = np.array(costs), np.array(smoothed), self.rates[: len(costs)]
        if not costs:
            raise refuse("LRFinder", f"the first cost, at the rate {self.low:g}, is not finite", "look at the data and the model")

    def _steepest(self) -> float | None:
        """Returns the rate of the steepest fall of the smoothed cost over the logarithm of the rate, before its least value."""
        least = int(self.smoothed.argmin())
        if least == 0:
            return None
        slopes = np.gradient(self.smoothed, np.log(self.rates))
        start = SETTLED if least > SETTLED else 0
        return float(self.rates[start + int(slopes[start : least + 1].argmin())])

    def plot(self, path: str = "learning_rates.png") -> str:
        """Draws cost over learning rate as PNG; returns the path, "" where matplotlib is missing or there was no test."""
        return draw_rates(self.rates, self.costs, self.smoothed, self.rate, path)
