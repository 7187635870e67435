"""Names for people: scopes that prefix the names of ops made inside, and name scopes that name what is assigned to them.

>>> from ngraph.op_graph.axes import make_axis
>>> ax = make_name_scope("ax")
>>> ax.N = make_axis(128)
>>> ax.N.name
'ax.N'
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_scope: ContextVar[str] = ContextVar("ngraph_scope", default="")
_NONE: dict[str, Any] = {}  # never changed in place
_metadata: ContextVar[dict[str, Any]] = ContextVar("ngraph_metadata")


def current_scope() -> str:
    """The names of the open `name_scope`s, outermost first, joined by `/`."""
    return _scope.get()


def current_metadata() -> dict[str, Any]:
    """What the open `metadata` blocks say, inner ones winning."""
    return _metadata.get(_NONE)


@contextmanager
def name_scope(name: str) -> Iterator[str]:
    """Ops made in this block carry `name` in front of theirs: `with ng.name_scope("encoder"): ...`"""
    outer = _scope.get()
    full = f"{outer}/{name}" if outer else name
    token = _scope.set(full)
    try:
        yield full
    finally:
        _scope.reset(token)


@contextmanager
def metadata(**notes: Any) -> Iterator[None]:
    """Ops made in this block carry these notes in `op.metadata`; nested blocks add up."""
    token = _metadata.set({**_metadata.get(_NONE), **notes})
    try:
        yield
    finally:
        _metadata.reset(token)


class NameScope:
    """Names what is assigned to its attributes: after `ax.N = make_axis(...)` the axis is called `ax.N`."""

    name: str

    def __init__(self, name: str):
        object.__setattr__(self, "name", name)

    def __setattr__(self, attribute: str, value: Any) -> None:
        if hasattr(value, "named"):
            value.named(f"{self.name}.{attribute}")
        object.__setattr__(self, attribute, value)

    def __repr__(self) -> str:
        inside = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if k != "name")
        return f"NameScope({self.name}: {inside})"


def make_name_scope(name: str) -> NameScope:
    """A scope that names axes (or ops) by the attribute they are assigned to."""
    return NameScope(name)
