"""Arrays by reference: how graphs and programs hold constants without copying or comparing large ones."""

from __future__ import annotations

import numpy as np

from ngraph.op_graph.dtypes import DType, as_dtype

SMALL = 64  # bytes: an array up to this size stands in a program by value


class ArrayRef:
    """An array by reference. Small ones compare by value, large ones by identity; never written to."""

    __slots__ = ("array", "name", "_key")

    def __init__(self, array: np.ndarray, name: str = ""):
        array = np.asarray(array)
        if array.nbytes <= SMALL or not array.flags.owndata:
            array = array.copy()
        array.flags.writeable = False
        self.array, self.name = array, name
        self._key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes()) if array.nbytes <= SMALL else None

    @property
    def small(self) -> bool:
        return self._key is not None

    @property
    def dtype(self) -> DType:
        return as_dtype(self.array.dtype)

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is ArrayRef and self._key is not None and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key) if self._key is not None else id(self)

    def __repr__(self) -> str:
        return f"ArrayRef({self.array.dtype}{list(self.array.shape)}{' ' + self.name if self.name else ''})"
