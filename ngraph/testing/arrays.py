"""Arrays for tests: random ones of given axes, comparison within dtype tolerances, NumPy's warnings as errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ngraph.op_graph.axes import Axes
from ngraph.op_graph.dtypes import as_dtype

TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-5, "float64": 1e-9}  # relative tolerance for any transformer


class RandomTensorGenerator:
    """Random arrays with the lengths of axes; equal seeds give equal arrays."""

    def __init__(self, seed: int = 0, dtype: Any = np.float32):
        self.seed, self.dtype = seed, as_dtype(dtype).np
        self.reset()

    def reset(self, seed: int | None = None) -> None:
        """Restarts, with another seed if it is given."""
        self.seed = self.seed if seed is None else seed
        self.rng = np.random.default_rng(self.seed)

    def _as(self, array: Any, dtype: Any = None) -> np.ndarray:
        return np.asarray(array).astype(self.dtype if dtype is None else as_dtype(dtype).np)

    def uniform(self, low: float = 0.0, high: float = 1.0, axes: Any = (), dtype: Any = None) -> np.ndarray:
        return self._as(self.rng.uniform(low, high, Axes(axes).lengths), dtype)

    def discrete_uniform(self, low: float, high: float, quantum: float, axes: Any = (), dtype: Any = None) -> np.ndarray:
        """Returns multiples of `quantum` above low, at most high."""
        steps = int((high - low) // quantum)
        return self._as(low + quantum * self.rng.integers(0, steps, Axes(axes).lengths, endpoint=True), dtype)

    def random_integers(self, low: int, high: int, axes: Any = (), dtype: Any = np.int8) -> np.ndarray:
        """Returns integers from low to high, inclusive."""
        return self._as(self.rng.integers(low, high, Axes(axes).lengths, endpoint=True), dtype)

    def normal(self, loc: float = 0.0, scale: float = 1.0, axes: Any = (), dtype: Any = None) -> np.ndarray:
        return self._as(self.rng.normal(loc, scale, Axes(axes).lengths), dtype)

    def randn_abs_clip(self, axes: Any = (), clip_min: float = 0.0, clip_max: float = 1.0, dtype: Any = None) -> np.ndarray:
        """Returns absolute values of normal numbers, clipped."""
        return np.clip(np.abs(self.normal(axes=axes, dtype=dtype)), clip_min, clip_max)


def assert_allclose(
    actual: Any,
    desired: Any,
    rtol: float = 1e-7,
    atol: float = 0.0,
    atol_multiplier: float = 1,
    transformer_overwrite: bool = True,
    **options: Any,
) -> None:
    """Compares as NumPy does, with tolerances at least those of the coarser dtype; as given with `transformer_overwrite=False`.

    atol_multiplier: factor of the absolute tolerance.
    """
    if transformer_overwrite:
        floats = [as_dtype(np.asarray(a).dtype) for a in (actual, desired)]
        least = max((TOLERANCE[d.name] for d in floats if d.is_float), default=0.0)
        rtol, atol = max(rtol, least), max(atol, least)
    actual, desired = (np.asarray(a, np.float64) if np.asarray(a).dtype.kind not in "iub" else np.asarray(a) for a in (actual, desired))
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=atol * atol_multiplier, **options)


def with_error_settings(**settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator under which NumPy handles floating-point errors in the function as in `numpy.errstate(**settings)`."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **options: Any) -> Any:
            with np.errstate(**settings):
                return function(*args, **options)

        return run

    return decorated


raise_all_numpy_errors = with_error_settings(all="raise")


def is_flex_factory(factory: Any) -> bool:
    """Whether a transformer factory makes one that computes in shared-exponent integers, for which tests widen tolerances."""
    return str(getattr(factory, "name", "")).startswith("flex")
