"""Python's operators of tensors: those of `keras.ops`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from keras.src.backend.common.keras_tensor import KerasTensor

from ngraph.keras import indices, numpy
from ngraph.keras.convert import cast, convert_to_tensor
from ngraph.keras.tensors import BackendTensor

BOTH = (
    "add subtract:sub multiply:mul divide:truediv floor_divide:floordiv mod power:pow matmul bitwise_and:and bitwise_or:or bitwise_xor:xor "
    "left_shift:lshift right_shift:rshift"
)
COMPARED = "equal:eq not_equal:ne less:lt less_equal:le greater:gt greater_equal:ge"


def _operator(function: Callable[[Any, Any], Any], turned: bool = False) -> Callable[[Any, Any], Any]:
    def operator(self: Any, other: Any) -> Any:
        if isinstance(other, KerasTensor) or other is None or isinstance(other, str):
            return NotImplemented
        return function(other, self) if turned else function(self, other)

    return operator


def install() -> None:
    """Gives tensors their operators and the methods that arrays have."""
    named: dict[str, Any] = {}
    for pair in f"{BOTH} {COMPARED}".split():
        name, _, short = pair.partition(":")
        function = getattr(numpy, name)
        named[f"__{short or name}__"] = _operator(function)
        if pair in BOTH.split():
            named[f"__r{short or name}__"] = _operator(function, True)
    named.update(
        __neg__=lambda x: numpy.negative(x),
        __abs__=lambda x: numpy.absolute(x),
        __invert__=lambda x: numpy.bitwise_not(x),
        __getitem__=indices.getitem,
        __round__=lambda x, n=0: numpy.round(x, n or 0),
        astype=lambda x, dtype: cast(x, dtype),
        reshape=lambda x, *shape: numpy.reshape(x, shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape),
        transpose=lambda x, *axes: numpy.transpose(x, axes or None),
        T=property(lambda x: numpy.transpose(x)),
        **{name: getattr(numpy, name) for name in "sum mean max min prod std var argmax argmin all any".split()},
        item=lambda x: np.asarray(x).item(),
        tolist=lambda x: np.asarray(x).tolist(),
        flatten=lambda x: numpy.ravel(x),
        copy=lambda x: convert_to_tensor(x),
    )
    for name, function in named.items():
        setattr(BackendTensor, name, function)


install()
