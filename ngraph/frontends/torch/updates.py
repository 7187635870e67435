"""The rules by which PyTorch's optimizers change a parameter, as ops: one function for each optimizer.

A rule gets an `UpdatedParameter`: the parameter, its gradient and its state as ops, and the hyperparameters as scalars that each call
brings anew, so that learning-rate schedulers need no new program. It gives the new parameter and the new state; the numbers in the state
(`COUNTS`), such as that of the steps, are scalars like the hyperparameters, and `count` changes them. What a rule asks of its group as a
Python value (`flags`) decides its form: another value is another program. Scalars are float64, as Python's numbers are in PyTorch.
Source: PyTorch 2.13, torch/optim, the forms for one tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ngraph.errors import UnsupportedError, nearest
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.reduce import mean
from ngraph.ops.reduce import sum as total

New = tuple[Op, dict[str, Op]]


class UpdatedParameter:
    """A parameter in the middle of an update, all in the dtype in which PyTorch computes.

    p, g   the parameter and its gradient     state   by name      flags   Python values of the group
    """

    def __init__(
        self,
        p: Op,
        g: Op,
        state: Mapping[str, Op],
        scalars: Mapping[str, Op],
        flags: Mapping[str, Any],
        dtype: DType,
        shape: tuple[int, ...],
    ):
        self.p, self.state, self.scalars, self.flags, self.dtype, self.shape = p, state, scalars, flags, dtype, shape
        self.g = -g if flags.get("maximize") else g

    def __getattr__(self, name: str) -> Op:
        """Returns a hyperparameter as a scalar, float64."""
        if name not in self.scalars:
            raise AttributeError(name)
        return self.scalars[name]

    def near(self, scalar: Any) -> Op:
        """Returns a scalar in the dtype of the computation."""
        return e.cast(scalar, self.dtype)

    def decayed(self) -> None:
        """Applies weight decay, to the parameter itself or to its gradient."""
        if not self.flags["weight_decay"]:
            return
        if self.flags.get("decoupled_weight_decay"):
            self.p = self.p * self.near(1.0 - self.lr * self.weight_decay)
        else:
            self.g = self.g + self.p * self.near(self.weight_decay)


def toward(old: Op, new: Op, weight: Op) -> Op:
    """Returns `old` moved toward `new`: `lerp`."""
    return old + (new - old) * weight


def norm(x: Op) -> Op:
    """Returns the root of the sum of squares, a scalar."""
    return e.sqrt(total(e.square(x), x.axes)) if x.axes else e.absolute(x)


def sgd(u: UpdatedParameter) -> New:
    u.decayed()
    if not u.flags["momentum"]:
        return u.p - u.g * u.near(u.lr), {}
    before = u.state["momentum_buffer"]
    buffer = before * u.near(u.momentum) + u.g * u.near(1.0 - u.dampening)
    buffer = e.where(e.not_equal(u.fresh, 0.0), u.g, buffer)  # the first is the gradient itself
    step = u.g + buffer * u.near(u.momentum) if u.flags["nesterov"] else buffer
    return u.p - step * u.near(u.lr), {"momentum_buffer": buffer}


def adam(u: UpdatedParameter) -> New:
    step = u.step + 1.0
    u.decayed()
    mean1 = toward(u.state["exp_avg"], u.g, u.near(1.0 - u.betas_0))
    mean2 = u.state["exp_avg_sq"] * u.near(u.betas_1) + e.square(u.g) * u.near(1.0 - u.betas_1)
    new = {"exp_avg": mean1, "exp_avg_sq": mean2}
    most = mean2
    if u.flags["amsgrad"]:
        most = new["max_exp_avg_sq"] = e.maximum(u.state["max_exp_avg_sq"], mean2)
    root = e.sqrt(1.0 - e.power(u.betas_1, step))
    denominator = e.sqrt(most) / u.near(root) + u.near(u.eps)
    return u.p - mean1 / denominator * u.near(u.lr / (1.0 - e.power(u.betas_0, step))), new


def adagrad(u: UpdatedParameter) -> New:
    u.decayed()
    squares = u.state["sum"] + e.square(u.g)
    rate = u.lr / (1.0 + u.step * u.lr_decay)
    return u.p - u.g / (e.sqrt(squares) + u.near(u.eps)) * u.near(rate), {"sum": squares}


def rmsprop(u: UpdatedParameter) -> New:
    u.decayed()
    squares = u.state["square_avg"] * u.near(u.alpha) + e.square(u.g) * u.near(1.0 - u.alpha)
    new, spread = {"square_avg": squares}, squares
    if u.flags["centered"]:
        new["grad_avg"] = toward(u.state["grad_avg"], u.g, u.near(1.0 - u.alpha))
        spread = squares - e.square(new["grad_avg"])
    step = u.g / (e.sqrt(spread) + u.near(u.eps))
    if u.flags["momentum"]:
        step = new["momentum_buffer"] = u.state["momentum_buffer"] * u.near(u.momentum) + step
    return u.p - step * u.near(u.lr), new


def nadam(u: UpdatedParameter) -> New:
    step = u.step + 1.0
    u.decayed()
    now, later = [u.betas_0 * (1.0 - 0.5 * e.power(0.96, n * u.momentum_decay)) for n in (step, step + 1.0)]
    product = e.cast(e.cast(u.mu_product * now, "float32"), "float64")  # as PyTorch keeps it
    mean1 = toward(u.state["exp_avg"], u.g, u.near(1.0 - u.betas_0))
    mean2 = u.state["exp_avg_sq"] * u.near(u.betas_1) + e.square(u.g) * u.near(1.0 - u.betas_1)
    denominator = e.sqrt(mean2 / u.near(1.0 - e.power(u.betas_1, step))) + u.near(u.eps)
    p = u.p - u.g / denominator * u.near(u.lr * (1.0 - now) / (1.0 - product))
    return p - mean1 / denominator * u.near(u.lr * later / (1.0 - product * later)), {"exp_avg": mean1, "exp_avg_sq": mean2}


def adafactor(u: UpdatedParameter) -> New:
    step = u.step + 1.0
    share = u.near(e.power(step, u.beta2_decay))
    rate = e.minimum(u.lr, 1.0 / e.sqrt(step))
    size = math.prod(u.shape) ** 0.5
    scale = e.maximum(u.eps_1, e.cast(norm(u.p), "float64") * (1.0 / max(size, 1e-300))) * rate
    least = u.near(u.eps_0)
    if u.flags["weight_decay"]:
        u.p = u.p * u.near(1.0 - u.lr * u.weight_decay)
    new = {}
    if len(u.shape) > 1:
        rows, columns = u.p.axes[-2:]
        flat = [total(u.state[name], [u.state[name].axes[at]]) for name, at in (("row_var", -1), ("col_var", -2))]  # an axis of length 1
        new["row_var"] = row = toward(flat[0], mean(e.square(u.g), [columns]), share)
        new["col_var"] = column = toward(flat[1], mean(e.square(u.g), [rows]), share)
        estimate = row * column / e.maximum(mean(row, [rows]), least)
    else:
        estimate = new["variance"] = toward(u.state["variance"], e.square(u.g), share)
    change = u.g / e.sqrt(e.maximum(estimate, e.square(least)))
    limit = e.maximum(1.0, e.cast(norm(change), "float64") / (size * u.d))
    return u.p - change * u.near(scale / limit), new


COUNTS = ("step", "mu_product")  # numbers in the state of a parameter


def count(states: Sequence[Mapping[str, torch.Tensor]], group: Mapping[str, Any], step: float) -> None:
    """Changes the numbers in the states of parameters of a group, which have made so many steps, as their update does."""
    if states and "mu_product" in states[0]:
        now = group["betas"][0] * (1.0 - 0.5 * (0.96 ** ((step + 1.0) * group["momentum_decay"])))
        torch._foreach_mul_([own["mu_product"] for own in states], now)
    if states and "step" in states[0]:
        torch._foreach_add_([own["step"] for own in states], 1)


class UpdateRule(NamedTuple):
    """An optimizer's rule, and names of hyperparameters in groups: those that calls bring, and those whose truth decides the form."""

    update: Callable[[UpdatedParameter], New]
    scalars: tuple[str, ...]
    flags: tuple[str, ...]


ADAM = ("lr", "betas_0", "betas_1", "eps", "weight_decay")
RULES: dict[type, UpdateRule] = {
    torch.optim.SGD: UpdateRule(sgd, ("lr", "momentum", "dampening", "weight_decay"), ("momentum", "weight_decay", "nesterov", "maximize")),
    torch.optim.Adam: UpdateRule(adam, ADAM, ("weight_decay", "amsgrad", "maximize", "decoupled_weight_decay")),
    torch.optim.AdamW: UpdateRule(adam, ADAM, ("weight_decay", "amsgrad", "maximize", "decoupled_weight_decay")),
    torch.optim.Adagrad: UpdateRule(adagrad, ("lr", "lr_decay", "eps", "weight_decay"), ("weight_decay", "maximize")),
    torch.optim.RMSprop: UpdateRule(
        rmsprop, ("lr", "alpha", "eps", "weight_decay", "momentum"), ("weight_decay", "centered", "momentum", "maximize")
    ),
    torch.optim.NAdam: UpdateRule(nadam, (*ADAM, "momentum_decay"), ("weight_decay", "maximize", "decoupled_weight_decay")),
    torch.optim.Adafactor: UpdateRule(
        adafactor, ("lr", "beta2_decay", "eps_0", "eps_1", "d", "weight_decay"), ("weight_decay", "maximize")
    ),
}


def rule_of(optimizer: Any) -> UpdateRule:
    """Returns the rule of an optimizer. Raises UnsupportedError where there is none."""
    found = RULES.get(type(optimizer))
    if found is None:
        name, known = type(optimizer).__name__, [t.__name__ for t in RULES]
        near = nearest(name, known)
        raise UnsupportedError(
            f"compile_step has no rule for the optimizer {name}",
            details=(f"there are {', '.join(known)}{f'; the nearest is {near}' if near else ''}",),
            fix="torch.compile(model, backend='ngraph') and torch.compile(optimizer.step, backend='ngraph') take any",
        )
    return found


def hyperparameter(group: Mapping[str, Any], name: str) -> Any:
    """Returns a value of a group: `betas_1` is the second of `betas`."""
    base, _, place = name.rpartition("_")
    return group[base][int(place)] if place.isdigit() else group[name]


def number(value: Any, dtype: torch.dtype) -> float:
    """Returns a hyperparameter as a number. None is Adafactor's for the least difference of a dtype."""
    return torch.finfo(dtype).eps if value is None else float(value)


def flags_of(rule: UpdateRule, group: Mapping[str, Any]) -> tuple[bool, ...]:
    """Returns the truth of what decides the form of an update."""
    return tuple([bool(group.get(name, False)) for name in rule.flags])


def states_of(optimizer: Any, p: torch.Tensor) -> dict[str, torch.Tensor]:
    """Returns the tensors in the state of a parameter by name, in order, but its numbers."""
    own = optimizer.state.get(p) or {}
    return {name: t for name, t in sorted(own.items()) if isinstance(t, torch.Tensor) and name not in COUNTS}
