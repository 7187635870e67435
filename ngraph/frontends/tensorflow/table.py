"""The translators: for each op of TensorFlow a function, and for ops of several results what these are called.

    @translates("Softmax")
    def softmax(n, x): ...

`n` is the node (`graph.TensorflowNode`), then come its inputs. A translator gives a value, or a tuple of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Translator = Callable[..., Any]

TABLE: dict[str, Translator] = {}

# Results by name, in order, of ops that have several which are not a list: functions refer to results by these names (`node:values:0`).
RESULTS: dict[str, tuple[str, ...]] = {}


# Ops that take references to variables of TensorFlow 1 as they are; all others take what the variable holds when they run.
REFERENCES: set[str] = set()

# Ops that are steps in Python, and those whose lengths follow from values: TensorFlow's own kernels are faster where it runs.
IN_PYTHON: set[str] = set()

# Functions of a node and its inputs that are asked before its translator, and give NotImplemented where they leave the node to it.
EARLY: list[Callable[..., Any]] = []


def translates(*ops: str, results: str = "", references: bool = False, python: bool = False) -> Callable[[Translator], Translator]:
    """Registers the function under it for these ops.

    results: their results' names, where there are several that are not a list. references: whether they take references to variables.
    python: whether it makes them a step in Python, or their lengths follow from values.
    """

    def add(function: Translator) -> Translator:
        for op in ops:
            if op in TABLE:
                raise ValueError(f"there are two translators of {op}")
            TABLE[op] = function
            if references:
                REFERENCES.add(op)
            if python:
                IN_PYTHON.add(op)
            if results:
                RESULTS[op] = tuple(results.split())
        return function

    return add
