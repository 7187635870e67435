"""The translators: for each op of TensorFlow a function, and for ops of several results what these are called.

    @translates("Softmax")
    def softmax(n, x): ...

`n` is the node (`graph.TensorflowNode`), or `g` its reading alone, then come its inputs; it gives a value, or a tuple of them. Annotations
say how inputs are read (`READ`), and parameters that are passed by name alone are attributes:

    @translates("Cumsum")
    def cumulated(g, t: Tensor, k: Dim, *, exclusive: bool = False, reverse: bool = False): ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, signature
from itertools import chain, repeat
from typing import Any

import numpy as np

from ngraph.frontends.positional.reductions import dims_of
from ngraph.frontends.positional.values import Value
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.expr import ExprLike

Translator = Callable[..., Any]

Ints = list[int]
Dim = int
Dims = list[int]
Length = ExprLike
Lengths = list[ExprLike]
Array = np.ndarray[Any, Any]


def only(items: Sequence[Any]) -> Any:
    """Returns the item of a list of one."""
    (item,) = items
    return item


# By the annotation of a translator's parameter: how its input is read, beside the node's first tensor. Others are taken as they are.
READ: dict[str, Callable[[Any, Value, Value], Any]] = {
    "Tensor": lambda g, v, t: g.tensor(v),
    "Ints": lambda g, v, t: g.ints(v),
    "Dim": lambda g, v, t: only(dims_of(g, t, g.ints(v))),
    "Dims": lambda g, v, t: dims_of(g, t, g.ints(v)),
    "Length": lambda g, v, t: only(g.sizes(v)),
    "Lengths": lambda g, v, t: g.sizes(v),
    "Array": lambda g, v, t: g.known(v),
}

TABLE: dict[str, Translator] = {}

# Results by name, in order, of ops that have several which are not a list: functions refer to results by these names (`node:values:0`).
# `values*num_split` is a list, whose length an attribute says, or has.
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
        register(reading(function), ops, results, references, python)
        return function

    return add


def register(translator: Translator, ops: Sequence[str], results: str = "", references: bool = False, python: bool = False) -> None:
    """Puts a function of a node and its inputs into the table, see `translates`."""
    for op in ops:
        if op in TABLE:
            raise ValueError(f"there are two translators of {op}")
        TABLE[op] = translator
        if references:
            REFERENCES.add(op)
        if python:
            IN_PYTHON.add(op)
        if results:
            RESULTS[op] = tuple(results.split())


def rows(table: dict[str, Translator]) -> None:
    """Registers a function for each row, whose key names one op, or several."""
    for ops, function in table.items():
        translates(*ops.split())(function)


def reading(function: Translator) -> Translator:
    """Returns a translator that takes a node and inputs as they are, of one whose parameters say what it takes."""
    whole, *parameters = signature(function).parameters.values()
    inputs_of, attributes = [p for p in parameters if p.kind is not Parameter.KEYWORD_ONLY], attributes_of(function)
    kinds = [str(p.annotation).partition(" | ")[0] for p in inputs_of]
    takes = [READ.get(kind) for kind in kinds]
    first = kinds.index("Tensor") if "Tensor" in kinds else 0
    rest = takes[-1] if any(p.kind is Parameter.VAR_POSITIONAL for p in inputs_of) else None

    @wraps(function)
    def run(n: Any, *inputs: Value) -> Any:
        found = list(inputs)
        for k, (read, v) in enumerate(zip(chain(takes, repeat(rest)), inputs, strict=False)):
            if read is not None:
                found[k] = read(n.g, v, inputs[first])
        return function(n.g if whole.name == "g" else n, *found, **attributes(n))

    return run


def attributes_of(function: Callable[..., Any]) -> Callable[[Any], dict[str, Any]]:
    """Returns what reads those attributes of a node that a function takes by name alone; as our dtypes where it says so."""
    named = [p for p in signature(function).parameters.values() if p.kind is Parameter.KEYWORD_ONLY]

    def read(n: Any, p: Parameter) -> Any:
        value = n.attr(p.name, None if p.default is Parameter.empty else p.default)
        return as_dtype(value) if p.annotation == "DType" else value

    return lambda n: {p.name: read(n, p) for p in named}
