"""Derivatives of op-graphs, from the gradients in the op records: `deriv`, and of loops and choices, `control`.

The result is ordinary graph, so gradients of gradients work, and every transformer has them.
"""

from ngraph.autodiff import checkpoint as _checkpoint  # gives its record its gradient
from ngraph.autodiff import control as _control  # gives the records of scan and cond their gradients
from ngraph.autodiff.backward import deriv, fit, jvp, vjp

__all__ = ["deriv", "fit", "jvp", "vjp"]
