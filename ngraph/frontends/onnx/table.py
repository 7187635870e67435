"""The translators: for each op of each domain, and each version in which its meaning changed, a function.

    @translates("Flatten")
    def flatten(n, x): ...

`n` is the node (`Node`), then come its inputs, None for one left out. It gives a value, or a tuple of them. Ops that are one of ours
name by name, element by element, need none: their records say what ONNX calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ngraph.op_graph.opdef import ELEMENTWISE, ONNX, REGISTRY, OpDef

Translator = Callable[..., Any]

TABLE: dict[tuple[str, str], list[tuple[int, Translator]]] = {}  # (domain, op) -> (since, translator), the newest first


def translates(*ops: str, since: int = 1, domain: str = "") -> Callable[[Translator], Translator]:
    """Registers the function under it for these ops, from this version of the domain on."""

    def add(function: Translator) -> Translator:
        for op in ops:
            rows = TABLE.setdefault((domain, op), [])
            rows.append((since, function))
            rows.sort(key=lambda row: -row[0])
        return function

    return add


def find(domain: str, op: str, version: int) -> Translator | None:
    """The translator of an op in a version of its domain."""
    for since, function in TABLE.get((domain, op), ()):
        if since <= version:
            return function
    return None


def one_to_one() -> dict[str, OpDef]:
    """The records that an ONNX op is without more: what it is called, and the record."""
    return {ONNX[name]: REGISTRY[name] for name in ELEMENTWISE.names if ONNX[name] and ("", ONNX[name]) not in TABLE}
