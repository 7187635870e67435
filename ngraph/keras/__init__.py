"""Keras 3 on ngraph: `import ngraph.keras` before `import keras`, or `python -m ngraph.keras script.py`.

hook         gives Keras the backend's name            tensors     arrays, and values of a computation that is being read
core         variables, control flow, shapes           gradients   derivatives
elementwise, reductions, moving, numpy, operators, nn, math, linalg, image, random, rnn   the functions of keras.ops
steps        compiled functions                        trainer     fit, evaluate, predict
export       models as ONNX files

Words: docs/glossary.md.
"""

from ngraph.keras import hook as _hook

_hook.install()

from ngraph.keras.gradients import value_and_grad  # noqa: E402  Keras has to be imported with the hook
from ngraph.keras.steps import CompiledFunction, jit  # noqa: E402

__all__ = ["CompiledFunction", "jit", "value_and_grad"]
