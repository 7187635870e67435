"""Transformers turn programs into computations.

    >>> import ngraph as ng
    >>> import ngraph.transformers as ngt
    >>> x = ng.placeholder(())
    >>> with ngt.make_transformer() as transformer:
    ...     plus_one = transformer.computation(x + 1, x)
    ...     print([float(plus_one(i)) for i in range(3)])
    [1.0, 2.0, 3.0]

`base` the interface, and what every transformer has: computations, shared state, saving · `direct` walks a program over NumPy calls ·
`numpy` prints it as readable Python. Another package adds its own by subclassing `Transformer`, found through the entry point group
`ngraph.transformers`.

Words: docs/glossary.md.
"""

import ngraph.api  # all ops have their records: a graph that is run or loaded may contain any
from ngraph.transformers.base import (
    Transformer,
    allocate_transformer,
    make_transformer,
    make_transformer_factory,
    set_transformer_factory,
    transformer_choices,
)
from ngraph.transformers.cpu import CpuTransformer
from ngraph.transformers.direct import DirectTransformer
from ngraph.transformers.numpy import NumPyTransformer

__all__ = [
    "CpuTransformer",
    "DirectTransformer",
    "NumPyTransformer",
    "Transformer",
    "allocate_transformer",
    "make_transformer",
    "make_transformer_factory",
    "set_transformer_factory",
    "transformer_choices",
]
