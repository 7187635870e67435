"""Activations: callables on ops, with parameters of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ngraph as ng
from ngraph.frontends.neon.calls import Checked
from ngraph.op_graph.op import Op


class Transform(Checked):
    """Base of all activations: a short `repr` with their parameters."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


class Rectlin(Transform):
    """x where it is positive, `slope` times x elsewhere."""

    def __init__(self, slope: float = 0):
        self.slope = slope

    def __call__(self, x: Op) -> Op:
        return ng.relu(x) if self.slope == 0 else ng.where(x > 0, x, x * float(self.slope))


class Rectlinclip(Transform):
    """Like Rectlin, limited to `cutoff`."""

    def __init__(self, slope: float = 0, cutoff: float = 20.0):
        self.slope, self.cutoff = slope, cutoff

    def __call__(self, x: Op) -> Op:
        return ng.minimum(Rectlin(self.slope)(x), float(self.cutoff))


class Identity(Transform):
    """The identity."""

    def __call__(self, x: Op) -> Op:
        return x


class Explin(Transform):
    """x where it is positive, alpha * (exp(x) - 1) elsewhere: the exponential linear unit, ELU."""

    def __init__(self, alpha: float = 1.0):
        self.alpha = alpha

    def __call__(self, x: Op) -> Op:
        return ng.elu(x, self.alpha)


ELU = Explin


class Normalizer(Transform):
    """x divided by a number."""

    def __init__(self, divisor: float = 128.0):
        self.divisor = divisor

    def __call__(self, x: Op) -> Op:
        return x / float(self.divisor)


class Softmax(Transform):
    """Probabilities along `axes`: all but batch and recurrent axes by default."""

    def __init__(self, axes: Any = None):
        self.axes = axes

    def __call__(self, x: Op) -> Op:
        return ng.softmax(x, self.axes)


class Gelu(Transform):
    """x times the standard normal distribution function of x; `approximate`: with a tanh."""

    def __init__(self, approximate: bool = False):
        self.approximate = approximate

    def __call__(self, x: Op) -> Op:
        return ng.gelu(x, self.approximate)


def _plain(name: str, function: Callable[[Any], Op], doc: str) -> Any:
    call = lambda self, x: function(x)
    return type(name, (Transform,), {"__call__": call, "__doc__": doc, "__module__": __name__})


Tanh: Any = _plain("Tanh", lambda x: ng.tanh(x), "The hyperbolic tangent.")
Logistic: Any = _plain("Logistic", lambda x: ng.sigmoid(x), "1 / (1 + e to the -x): the sigmoid.")
Silu: Any = _plain("Silu", lambda x: ng.silu(x), "x times its sigmoid, also called swish.")
Softplus: Any = _plain("Softplus", lambda x: ng.softplus(x), "log(1 + e to the x).")
