"""Memoisation of functions.

A cached value whose key lacks something on which it depends is a silent wrong answer. So no key is written by hand: the key is the
arguments of the function, which is defined in a module and not in another function, so that it has no other inputs.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, MutableMapping
from typing import Any, TypeVar

import numpy as np

from ngraph.tensors.index import Read

T = TypeVar("T")


def memo(table: MutableMapping[Any, Any], make: Callable[..., T], *args: Any) -> T:
    """Returns `make(*args)`, computed once for equal arguments as long as the table keeps it."""
    key = (make, *map(memo_key, args))
    if key not in table:
        table[key] = make(*args)
    found: T = table[key]
    return found


def memo_key(x: Any) -> Any:
    """Returns the key of an argument: reads and lines by content, numbers by type and the sign of zero, too."""
    if type(x) is Read:
        return Read, x.source, tuple(x.index.items()), x.predicate, memo_key(x.pad_value)
    if hasattr(x, "memo_key"):
        return type(x), *x.memo_key()
    if isinstance(x, tuple):
        return type(x), *map(memo_key, x)
    return (type(x), repr(x)) if isinstance(x, numbers.Number | np.generic) else x
