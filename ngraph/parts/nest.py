"""Nests: dicts, lists, tuples, named tuples and dataclasses in each other, with leaves of any other kind. None is an empty nest.

>>> leaves({"w": [1, 2], "b": None})
[1, 2]
>>> rebuilt({"w": [1, 2], "b": None}, "xy")
{'w': ['x', 'y'], 'b': None}
>>> paths({"w": [1, 2], "b": 3})
['w.0', 'w.1', 'b']
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Leaf = Callable[[Any], bool]


def never(x: Any) -> bool:
    """Whether a list, tuple, dict or dataclass is a leaf: no."""
    return False


def parts(nest: Any, leaf: Leaf = never) -> dict[Any, Any] | None:
    """Returns what a nest consists of by key, index or field; None for a leaf. `leaf` says which lists and dicts are leaves, too."""
    if nest is None:
        return {}
    if isinstance(nest, (list, tuple)) and not leaf(nest):
        return dict(zip(getattr(nest, "_fields", range(len(nest))), nest, strict=True))
    if isinstance(nest, Mapping) and not leaf(nest):
        return dict(nest)
    if dataclasses.is_dataclass(nest) and not isinstance(nest, type) and not leaf(nest):
        return {f.name: getattr(nest, f.name) for f in dataclasses.fields(nest) if f.init}
    return None


def leaves(nest: Any, leaf: Leaf = never) -> list[Any]:
    """Returns the leaves, from left to right."""
    inner = parts(nest, leaf)
    return [nest] if inner is None else [x for part in inner.values() for x in leaves(part, leaf)]


def leaves_like(form: Any, nest: Any, leaf: Leaf = never, of_form: Leaf | None = None) -> list[Any]:
    """Returns the leaves of a nest in the order in which `form` has the same keys. Raises ValueError where a part has other keys.

    leaf, of_form: which lists and dicts are leaves in the nest, and in the form, if there others are.

    >>> leaves_like({"a": 0, "b": [0, 0]}, {"b": [2, 3], "a": 1})
    [1, 2, 3]
    """
    wanted, inner = parts(form, of_form or leaf), parts(nest, leaf)
    if wanted is None or inner is None:
        return leaves(nest, leaf)
    if set(wanted) != set(inner):
        raise ValueError(f"the parts {', '.join(map(str, inner)) or 'none'}, not {', '.join(map(str, wanted)) or 'none'}")
    return [x for key, part in wanted.items() for x in leaves_like(part, inner[key], leaf, of_form)]


def paths(nest: Any, leaf: Leaf = never) -> list[str]:
    """Returns the way to each leaf, keys joined by dots; "" for a nest that is a leaf itself."""
    inner = parts(nest, leaf)
    if inner is None:
        return [""]
    return [f"{key}.{path}" if path else str(key) for key, part in inner.items() for path in paths(part, leaf)]


def rebuilt(nest: Any, new: Iterable[Any], leaf: Leaf = never) -> Any:
    """Returns a nest of this form with new leaves, from left to right."""
    return _filled(nest, iter(new), leaf)


def _filled(nest: Any, new: Iterator[Any], leaf: Leaf) -> Any:
    inner = parts(nest, leaf)
    if inner is None:
        return next(new)
    if nest is None:
        return None
    made = {key: _filled(part, new, leaf) for key, part in inner.items()}
    if isinstance(nest, (list, tuple)):
        return type(nest)(*made.values()) if hasattr(nest, "_fields") else type(nest)(made.values())
    return made if isinstance(nest, Mapping) else dataclasses.replace(nest, **made)
