"""Learning-rate schedules: a policy is a function from a step's number (an op) to a rate (an op), in the table POLICIES.

A rate is given as a number, as a dict `{"name": "step", "base_lr": 0.1, ...}`, or as a Schedule: `Cosine(0.1, steps=1000, warmup=50)`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import ngraph as ng
from ngraph.errors import ArgumentError, nearest
from ngraph.frontends.neon.bounds import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, WHOLE, check
from ngraph.frontends.neon.calls import Checked, public, refuse, wrong_kind
from ngraph.op_graph.arguments import shown
from ngraph.op_graph.op import Op

Rate = Callable[..., Op]


def _steps(t: Op, edges: Sequence[float], factors: Sequence[float]) -> Op:
    """Returns the product of the factors whose edge has been reached."""
    rate: Op = ng.as_op(1.0)
    for edge, factor in zip(edges, factors, strict=True):
        rate = rate * ng.where(t >= float(edge), float(factor), 1.0)
    return rate


def _schedule(t: Op, base_lr: float, gamma: Any, schedule: Sequence[float]) -> Op:
    factors = list(gamma) if isinstance(gamma, (list, tuple)) else [gamma] * len(schedule)
    if len(factors) != len(schedule):
        raise refuse("policy schedule", f"{len(factors)} gammas for {len(schedule)} steps", "give one gamma for each step, or one for all")
    return base_lr * _steps(t, schedule, factors)


def _change(t: Op, base_lr: float, step_config: Any, change: Any) -> Op:
    """Returns the schedule of neon in 2016: times `change` after every step_config steps, or at each step in the list step_config; where
    `change` is a list, too, it has the rates from those steps on."""
    if step_config is None:
        return ng.as_op(float(base_lr))
    if isinstance(step_config, int):
        return base_lr * ng.power(float(change), ng.floor(t / float(step_config)))
    if not isinstance(change, (list, tuple)):
        return base_lr * _steps(t, step_config, [change] * len(step_config))
    if len(change) != len(step_config):
        raise refuse("Schedule", f"{len(change)} changes for {len(step_config)} steps", "give one change for each step, or one for all")
    rate = ng.as_op(float(base_lr))
    for edge, value in zip(step_config, change, strict=True):
        rate = ng.where(t >= float(edge), float(value), rate)
    return rate


def _warm(t: Op, warmup: float) -> Op:
    return ng.minimum((t + 1.0) / float(max(warmup, 1)), 1.0)


def _part(t: Op, start: float, end: float) -> Op:
    """Returns the position of t between two steps, from 0 to 1."""
    return ng.clip((t - float(start)) / float(max(end - start, 1)), 0.0, 1.0)


def _half_cosine(part: Op) -> Op:
    """Returns half a cosine, from 1 to 0, flat at both ends."""
    return (ng.cos(part * math.pi) + 1.0) * 0.5


def _one_cycle(t: Op, base_lr: float, steps: int, peak: float, divide: float, final_divide: float) -> Op:
    """Returns the rate up from base_lr / divide to base_lr, then down to base_lr / (divide * final_divide). Source: L. Smith (2018)."""
    top, low = peak * steps - 1, base_lr / divide
    up = low + (base_lr - low) * (1.0 - _half_cosine(_part(t, 0, top)))
    end = low / final_divide
    down = end + (base_lr - end) * _half_cosine(_part(t, top, steps - 1))
    return ng.where(t <= top, up, down)


# name -> (function of the step and the dict's entries, defaults of optional ones)
POLICIES: dict[str, tuple[Rate, dict[str, Any]]] = {
    "fixed": (lambda t, base_lr: ng.as_op(float(base_lr)), {}),
    "step": (lambda t, base_lr, gamma, step: base_lr * ng.power(float(gamma), ng.floor(t / float(step))), {}),
    "schedule": (_schedule, {}),
    "exp": (lambda t, base_lr, gamma: base_lr * ng.power(float(gamma), t), {}),
    "inv": (lambda t, base_lr, gamma, power: base_lr * ng.power(t * gamma + 1.0, -float(power)), {}),
    "poly": (lambda t, base_lr, max_iter, power: base_lr * ng.power(1.0 - _part(t, 0, max_iter), float(power)), {}),
    "sigmoid": (lambda t, base_lr, gamma, step_size: base_lr * ng.sigmoid((t - step_size) * gamma), {}),
    "provided": (lambda t, lr_placeholder: lr_placeholder, {}),
    "warmup": (lambda t, base_lr, warmup: base_lr * _warm(t, warmup), {}),
    "cosine": (
        lambda t, base_lr, steps, warmup, final: _warm(t, warmup) * (final + (base_lr - final) * _half_cosine(_part(t, warmup, steps))),
        {"warmup": 0, "final": 0.0},
    ),
    "change": (_change, {"base_lr": 1.0, "step_config": None, "change": 1.0}),
    "one_cycle": (_one_cycle, {"peak": 0.3, "divide": 25.0, "final_divide": 1e4}),
}


BOUNDS = {
    "base_lr": NOT_NEGATIVE,
    "final": NOT_NEGATIVE,
    "steps": COUNT,
    "max_iter": COUNT,
    "step": COUNT,
    "warmup": WHOLE,
    "peak": SHARE,
    "divide": POSITIVE,
    "final_divide": POSITIVE,
}


class Schedule(Checked):
    """A policy with its numbers: called with a step's number, a number or an op, it returns the rate as an op.

    `Schedule(step_config, change)` is the schedule of neon in 2016, for the option `schedule` of an optimizer: the rate times `change`
    after every `step_config` steps, or at each of a list of steps; a list of changes has the rates themselves. Raises ArgumentError for an
    unknown policy, or numbers that do not fit it.
    """

    def __init__(self, name: Any = "change", change: Any = 1.0, **numbers: Any):
        if not isinstance(name, str):
            name, numbers = "change", {"step_config": name, **numbers}
        if name == "change":
            numbers = {"change": change, **numbers}
        if name not in POLICIES:
            meant = nearest(name, POLICIES)
            fix = f"take {meant!r}" if meant else f"take one of {', '.join(POLICIES)}"
            raise ArgumentError(f"there is no learning-rate policy {name!r}; there are {', '.join(POLICIES)}", fix=fix)
        self.name, self.numbers = name, {**POLICIES[name][1], **numbers}
        for key, value in self.numbers.items():
            if key in BOUNDS:
                check(f"learning-rate policy {name!r}", BOUNDS[key], **{key: value})
        if (self.numbers.get("warmup") or 0) > self.numbers.get("steps", math.inf):
            why = f"a warm-up of {self.numbers['warmup']} in {self.numbers['steps']} steps"
            raise refuse(f"learning-rate policy {name!r}", why, "take a shorter warm-up")
        probe = self.numbers if name != "provided" else {"lr_placeholder": ng.as_op(0.0), **self.numbers}
        try:
            self.rule(ng.as_op(0.0), **probe)
        except TypeError:
            takes = ", ".join(n for n in inspect.signature(self.rule).parameters if n != "t")
            why = f"it takes {takes}, and got {', '.join(self.numbers) or 'nothing'}"
            raise refuse(f"learning-rate policy {name!r}", why, f"give it {takes}") from None

    @property
    def rule(self) -> Rate:
        """The policy's function of the step and the numbers."""
        return POLICIES[self.name][0]

    def of(self, rate: float) -> Schedule:
        """Returns the same policy with another base rate."""
        return Schedule(self.name, **{**self.numbers, "base_lr": float(rate)})

    def __call__(self, iteration: Any) -> Op:
        return ng.as_op(self.rule(ng.cast(ng.as_op(iteration), ng.float32), **self.numbers))

    def __repr__(self) -> str:
        return f"Schedule({', '.join([repr(self.name), *(f'{k}={v!r}' for k, v in self.numbers.items())])})"


def as_schedule(rate: Any) -> Schedule:
    """Returns a number, an op, a dict or a Schedule as a Schedule. The user's dict is not changed."""
    if isinstance(rate, Schedule):
        return rate
    if isinstance(rate, Mapping):
        return Schedule(**{"name": "fixed", **rate})
    if isinstance(rate, Op):
        return Schedule("provided", lr_placeholder=rate)
    if not hasattr(rate, "__float__") or isinstance(rate, (bool, type)) or np.ndim(rate):
        raise wrong_kind(
            "learning_rate", f"a learning rate is a number, an op, a dict or a Schedule, not {shown(rate)}", "take learning_rate=0.001"
        )
    if not float(rate) >= 0:
        raise refuse("learning_rate", f"a learning rate is a number, 0 or more, not {rate}", "take learning_rate=0.001")
    return Schedule("fixed", base_lr=float(rate))


@public
def Warmup(base_lr: float, warmup: int) -> Schedule:
    """Returns a linear warm-up from base_lr / warmup to base_lr in `warmup` steps, then constant."""
    return Schedule("warmup", base_lr=base_lr, warmup=warmup)


@public
def Cosine(base_lr: float, steps: int, warmup: int = 0, final: float = 0.0) -> Schedule:
    """Returns half a cosine from base_lr to `final` in `steps` steps, after a linear warm-up. Source: I. Loshchilov, F. Hutter (2016)."""
    return Schedule("cosine", base_lr=base_lr, steps=steps, warmup=warmup, final=final)


@public
def OneCycle(base_lr: float, steps: int, peak: float = 0.3, divide: float = 25.0, final_divide: float = 1e4) -> Schedule:
    """Returns a rise to base_lr at the share `peak` of the steps, then a decay to base_lr / divide / final_divide."""
    return Schedule("one_cycle", base_lr=base_lr, steps=steps, peak=peak, divide=divide, final_divide=final_divide)
