"""Derivatives of op-graphs, from the gradients in the op records: `deriv`, and for loops and choices, `control`.

`functions` and `batching` transform functions of ops: `grad`, `jacobian`, `vmap` and the like.

The result is an ordinary graph, so gradients of gradients work, on every transformer.

Words: docs/glossary.md.
"""

from ngraph.autodiff import checkpoint as _checkpoint  # gives its record its gradient
from ngraph.autodiff import control as _control  # gives the records of scan and cond their gradients
from ngraph.autodiff.backward import deriv, fit, jvp, vjp

__all__ = ["deriv", "fit", "jvp", "vjp"]
