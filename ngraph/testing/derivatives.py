"""Numeric derivatives by central differences, and their comparison with those of `ng.deriv`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from ngraph.autodiff import deriv
from ngraph.op_graph.op import Op
from ngraph.ops.state import placeholder
from ngraph.testing.arrays import assert_allclose
from ngraph.transformers import make_transformer


def numeric_derivative(f: Callable[[Any], Any], x: Any, dx: float) -> np.ndarray:
    """Returns the derivative of `f` at `x` by central differences of width 2 dx: an array with the dims of f(x), then those of x."""
    x = np.array(x, dtype=None if np.asarray(x).dtype.kind == "f" else np.float64)
    columns = []
    for at in np.ndindex(*x.shape):
        low, high = x.copy(), x.copy()
        low[at] -= dx
        high[at] += dx
        columns.append((np.asarray(f(high), np.float64) - np.asarray(f(low), np.float64)) / (float(high[at]) - float(low[at])))
    shape = np.shape(f(x))
    stacked = np.stack(columns, axis=-1) if columns else np.zeros((*shape, 0))
    return stacked.reshape((*shape, *x.shape))


class ExecutorFactory:
    """One transformer for several computations and their derivatives: `with ExecutorFactory() as ex: f = ex.executor(y, x)`.

    The computations can be called after the block, too, until `close`, or until nothing refers to them.
    """

    def __init__(self) -> None:
        self.transformer = make_transformer()

    def executor(self, results: Any, *parameters: Op) -> Any:
        """Returns the computation of `results`; those of one factory share their state."""
        return self.transformer.computation(results, *parameters)

    def get_tensor_view_value(self, op: Op, host_tensor: np.ndarray | None = None) -> np.ndarray:
        """Returns a variable's value, copied into `host_tensor` where it is given."""
        value = self.transformer.get(op)
        if host_tensor is None:
            return value
        np.copyto(host_tensor, value)
        return host_tensor

    def numeric_derivative(self, f: Op, p_x: Op, dx: float, *params: Op) -> Callable[..., np.ndarray]:
        """Returns a function of a value for `p_x`, and values for `params`: `numeric_derivative` of the computation of `f`."""
        compute = self.executor(f, p_x, *params)
        return lambda x, *args: numeric_derivative(lambda at: compute(at, *args), x, dx)

    def derivative(self, f: Op, px: Op, *params: Op) -> Callable[..., np.ndarray]:
        """Returns the same function by `ng.deriv`, one vector-Jacobian product for each element of `f`."""
        error = placeholder(f.axes, dtype=f.dtype)
        compute = self.executor(deriv(f, px, error=error), error, px, *params)

        def jacobian(x: Any, *args: Any) -> np.ndarray:
            shape = f.axes.lengths
            rows = []
            for at in np.ndindex(*shape):
                one = np.zeros(shape, f.dtype.np)
                one[at] = 1
                rows.append(compute(one, x, *args))
            return np.stack(rows).reshape((*shape, *np.shape(x))) if rows else np.zeros((*shape, *np.shape(x)))

        return jacobian

    def close(self) -> None:
        self.transformer.close()

    def __enter__(self) -> ExecutorFactory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Closes nothing: programs of 2016 to 2019 call a computation after its block."""


def check_derivative(
    f: Op, x: Op, delta: float, x_value: Any, parameters: Sequence[Op] = (), parameter_values: Sequence[Any] = (), **tolerances: Any
) -> None:
    """Raises AssertionError unless `ng.deriv` of `f` by `x` at `x_value` agrees with central differences of width 2 delta.

    tolerances: those of `assert_allclose`.
    """
    with ExecutorFactory() as ex:
        by_differences = ex.numeric_derivative(f, x, delta, *parameters)(x_value, *parameter_values)
        assert_allclose(ex.derivative(f, x, *parameters)(x_value, *parameter_values), by_differences, **tolerances)
