"""Modules that are loaded on first use, as values at the top of the file that uses them.

>>> statistics = deferred("statistics")
>>> statistics.mean([1, 2, 3])
2
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class DeferredModule:
    """A module that is loaded when a name of it is first looked up."""

    def __init__(self, name: str):
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def deferred(name: str) -> Any:
    """Returns the module of this name, to be loaded on first use: one that most processes never need.

    The rule that rooms import downwards only holds for it too: `name` is written out, and `ngraph.tools.rooms` reads it.
    """
    return DeferredModule(name)
