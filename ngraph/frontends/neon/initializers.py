"""Initial values of weights: functions of the weight's Axes. Axes at level 0 are outputs, duals (level -1) inputs.

A layer passes its weight's path, too, so initial values depend on `set_seed` and on the path alone, not on other parts of a program.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from ngraph.errors import ArgumentTypeError
from ngraph.frontends.neon.bounds import NOT_NEGATIVE, check
from ngraph.frontends.neon.calls import Checked, refuse
from ngraph.op_graph.axes import Axes

Array = np.ndarray
_state: dict[str, Any] = {"seed": 0, "free": np.random.default_rng(0)}


def set_seed(seed: int) -> None:
    """Seeds all initial values, and the shuffling of later iterators without a seed of their own."""
    _state["seed"], _state["free"] = int(seed), np.random.default_rng(int(seed))


def current_seed() -> int:
    """Returns the seed of `set_seed`; 0 where none was set."""
    seed: int = _state["seed"]
    return seed


def fans(axes: Axes) -> tuple[int, int]:
    """Returns (fan-in, fan-out) of weights; without duals all but the last axis are inputs."""
    ins = [len(a) for a in axes if a.dual] or [len(a) for a in axes[:-1]]
    outs = [len(a) for a in axes if not a.dual] if any(a.dual for a in axes) else [len(a) for a in axes[-1:]]
    return int(np.prod(ins)), int(np.prod(outs))


class Initializer(Checked):
    """An initialiser: called with Axes it returns an array of their lengths. A subclass defines `draw(axes, random)`."""

    def draw(self, axes: Axes, random: np.random.Generator) -> Array:
        raise NotImplementedError(f"{type(self).__name__} has no draw")

    def __call__(self, axes: Any, path: str | None = None) -> Array:
        axes = Axes(axes)
        random: Any = _state["free"] if path is None else np.random.default_rng([_state["seed"], zlib.crc32(path.encode())])
        return np.asarray(self.draw(axes, random))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


class GaussianInit(Initializer):
    """Normal numbers. `std` is the standard deviation; `var` is its name in neon of 2016."""

    def __init__(self, mean: float = 0.0, std: float = 0.01, var: float | None = None):
        self.mean, self.std = mean, std if var is None else var
        check("GaussianInit", NOT_NEGATIVE, std=self.std)

    def draw(self, axes: Axes, random: np.random.Generator) -> Array:
        return random.normal(self.mean, self.std, axes.lengths)


class UniformInit(Initializer):
    """Uniform numbers in [low, high)."""

    def __init__(self, low: float = -0.01, high: float = 0.01):
        if low > high:
            raise refuse("UniformInit", f"low={low} is above high={high}", f"UniformInit({high}, {low})")
        self.low, self.high = low, high

    def draw(self, axes: Axes, random: np.random.Generator) -> Array:
        return random.uniform(self.low, self.high, axes.lengths)


class ConstantInit(Initializer):
    """One number for all elements."""

    def __init__(self, val: float = 0.0):
        self.val = val

    def draw(self, axes: Axes, random: np.random.Generator) -> Array:
        return np.full(axes.lengths, self.val)


class GlorotInit(Initializer):
    """Uniform within sqrt(6 / (fan-in + fan-out)). Source: X. Glorot, Y. Bengio, "Understanding the difficulty ..." (2010)."""

    def draw(self, axes: Axes, random: np.random.Generator) -> Array:
        bound = np.sqrt(6 / sum(fans(axes)))
        return random.uniform(-bound, bound, axes.lengths)


class XavierInit(Initializer):
    """Uniform within sqrt(3 / fan-in): variance 1 / fan-in, as Caffe's filler of that name."""

    def draw(self, axes: Axes, random: np.random.Generator) -> Array:
        bound = np.sqrt(3 / fans(axes)[0])
        return random.uniform(-bound, bound, axes.lengths)


class KaimingInit(Initializer):
    """Normal with variance 2 / fan-in, for relu. Source: K. He and others, "Delving deep into rectifiers" (2015)."""

    def draw(self, axes: Axes, random: np.random.Generator) -> Array:
        return random.normal(0.0, np.sqrt(2 / fans(axes)[0]), axes.lengths)


class OrthogonalInit(Initializer):
    """Orthonormal rows or columns, times `gain`. Source: A. Saxe and others, "Exact solutions to the nonlinear dynamics ..." (2013)."""

    def __init__(self, gain: float = 1.0):
        self.gain = gain

    def draw(self, axes: Axes, random: np.random.Generator) -> Array:
        duals = [k for k, a in enumerate(axes) if a.dual]
        order = [k for k in range(len(axes)) if k not in duals] + duals
        ins, outs = fans(axes)
        q, r = np.linalg.qr(random.normal(size=(max(ins, outs), min(ins, outs))))
        q = q * np.sign(np.diag(r))
        matrix = (q if outs >= ins else q.T) * self.gain
        return matrix.reshape([len(axes[k]) for k in order]).transpose(np.argsort(order))


def first_value(init: Any, path: str) -> Any:
    """Returns the initial value of the variable with this path: a number, an array, or a function of Axes. Raises ArgumentTypeError."""
    if isinstance(init, str):
        raise ArgumentTypeError(
            f"{path}: initial values are a number, an array or a function of axes such as GlorotInit(), not {init!r}",
            fix="pass GlorotInit()",
        )
    return (lambda axes: init(axes, path)) if isinstance(init, Initializer) else 0.0 if init is None else init
