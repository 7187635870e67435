"""Names for people: scopes that prefix the names of ops made inside, and name scopes whose attributes name their values.

>>> from ngraph.op_graph.axes import make_axis
>>> ax = make_name_scope("ax")
>>> ax.N = make_axis(128)
>>> ax.N.name
'ax.N'
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ngraph.errors import GraphError
from ngraph.parts.scopes import ScopedValue

_fresh = itertools.count()
_entered: set[str] = set()  # the scopes entered so far
_scope = ScopedValue("ngraph_scope", "")
_called: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_metadata: ScopedValue[dict[str, Any]] = ScopedValue("ngraph_metadata", {})  # never changed in place


def current_scope() -> str:
    """The names of the open `name_scope`s, outermost first, joined by `/`."""
    return _scope.get()


def current_metadata() -> dict[str, Any]:
    """Returns the notes of the open `metadata` blocks; inner blocks override outer ones."""
    return _metadata.get()


def called(thing: Any, name: str) -> None:
    """Records that the user gave `thing` this name."""
    _called[name] = thing


def get_object_by_name(name: str) -> Any:
    """Returns the op or axis that was given this name last, if it is still alive; scopes are prefixes, as in `encoder/w`.

    Names need not be unique, and a name keeps nothing alive. Raises GraphError.
    """
    found = _called.get(name)
    if found is None:
        alike = sorted(n for n in list(_called) if n.rsplit("/", 1)[-1] == name.rsplit("/", 1)[-1])
        there = f"there are {', '.join(alike)}" if alike else "keep the op or axis in a variable, and name it with .named(...)"
        raise GraphError(f"nothing that is in use was named {name!r}", fix=there)
    return found


@contextmanager
def name_scope(name: str | NameScope | None = None, reuse_scope: bool = True) -> Iterator[str]:
    """Prefixes ops made in this block with `name`: `with ng.name_scope("encoder"): ...`; also a decorator.

    Without a name it gets a fresh one. reuse_scope: False adds a number to a name that was entered before.

    >>> with ng.name_scope("encoder"):
    ...     w = ng.variable("K=3").named("w")
    >>> w.name
    'encoder/w'
    """
    outer = _scope.get()
    base = name.name if isinstance(name, NameScope) else name or f"scope_{next(_fresh)}"
    full = f"{outer}/{base}" if outer else base
    if not reuse_scope and full in _entered:
        full = next(numbered for n in itertools.count(1) if (numbered := f"{full}_{n}") not in _entered)
    _entered.add(full)
    with _scope.of(full):
        yield full


@contextmanager
def metadata(**notes: Any) -> Iterator[None]:
    """Attaches these notes to `op.metadata` of ops made in this block; nested blocks accumulate.

    >>> with ng.metadata(part="head"):
    ...     op = ng.constant(1.0) * 2
    >>> op.metadata["part"]
    'head'
    """
    with _metadata.of({**_metadata.get(), **notes}):
        yield


with_name_scope = name_scope
_noted = metadata


def with_op_metadata(function: Callable[..., Any], metadata: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Returns a decorator that attaches notes to ops made inside the function, with those in the `metadata` dict of a method's object.

    >>> ng.with_op_metadata(lambda x: x * 2, {"part": "head"})(ng.constant(1.0)).metadata["part"]
    'head'
    """
    notes = dict(metadata or {})

    @functools.wraps(function)
    def noted(*args: Any, **options: Any) -> Any:
        own = getattr(type(args[0]), "metadata", None) if args else None
        with _noted(**{**notes, **(own if isinstance(own, dict) else {})}):
            return function(*args, **options)

    return noted


class NameScope:
    """A scope that names the values assigned to its attributes: after `ax.N = make_axis(...)` the axis is called `ax.N`."""

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


def make_name_scope(name: str | None = None) -> NameScope:
    """Returns a scope that names axes (or ops) by the attribute they are assigned to; without a name it gets a fresh one.

    >>> ng.make_name_scope("encoder").name
    'encoder'
    """
    return NameScope(f"scope_{next(_fresh)}" if name is None else name)
