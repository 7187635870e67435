"""Values that blocks set, and that whatever runs inside sees: in its own thread and task, until the block ends.

>>> depth = ScopedValue("depth", 0)
>>> with depth.of(1):
...     depth.get()
1
>>> depth.get()
0
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Generic, TypeVar

T = TypeVar("T")


class ScopedValue(Generic[T]):
    """A value that blocks set; `get()` gives that of the innermost open one, the default outside of any."""

    def __init__(self, name: str, default: T):
        self.held: ContextVar[T] = ContextVar(name, default=default)
        self.get = self.held.get  # past a method of this class, for it is asked for every op

    def of(self, value: T) -> ScopeBlock[T]:
        """A block in which the value is this one, however it ends; it gives the value."""
        return ScopeBlock(self.held, value)


class ScopeBlock(Generic[T]):
    """One block, to be entered once; a class and no generator, for one is opened around each op that is lowered."""

    __slots__ = ("held", "value", "token")

    def __init__(self, held: ContextVar[T], value: T):
        self.held, self.value = held, value

    def __enter__(self) -> T:
        self.token: Token[T] = self.held.set(self.value)
        return self.value

    def __exit__(self, *error: object) -> None:
        self.held.reset(self.token)
