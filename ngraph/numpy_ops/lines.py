"""The form of programs for NumPy: lines, each a call that defines a variable; independent of any op."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ngraph.op_graph import expr
from ngraph.op_graph.expr import Expr, ExprLike, Leaf
from ngraph.op_graph.op import Origin
from ngraph.program.program import AxisId

Dims = tuple[AxisId, ...]


SEVERAL = (  # functions that return a tuple, one part for each target
    "scan",
    "while_loop",
    "branch",
    "lu_factors",
    "singular_values",
    "np.linalg.qr",
    "eigen",
)


class Variable:
    """One name in the lines. `root` owns its memory: the variable itself, or the one that it is a view of.

    holds    a root is: fresh (made by a line), argument, state, constant, shared (others may hold it, too)
    literal  a Python number in its place: it has no line
    """

    __slots__ = ("hint", "dtype", "shape", "root", "holds", "literal", "array", "windows")

    def __init__(
        self, hint: str, dtype: Any, shape: tuple[ExprLike, ...], root: Variable | None = None, holds: str = "fresh", literal: Any = None
    ):
        self.hint, self.dtype, self.shape, self.holds, self.literal = hint, dtype, shape, holds, literal
        self.root = root or self
        self.array: np.ndarray | None = None
        self.windows: frozenset[AxisId] = frozenset()  # axes along which a view overlaps itself

    def __repr__(self) -> str:
        return f"<{self.hint} {self.dtype}{list(self.shape)}>"


class VariableRef(NamedTuple):
    """A variable, and the axis of each of its dims."""

    var: Variable
    dims: Dims


class Use(Leaf):
    """A variable in an expression."""

    __slots__ = ()


class Name(str):
    """An argument that is itself a function."""

    __slots__ = ()


class ReferenceCall(str):
    """An op's reference as the function of a line, of lengths, run-time integers and arrays; each is a function of its own."""

    __slots__ = ("call",)
    call: Callable[..., tuple[Any, ...]]
    __eq__, __hash__ = object.__eq__, object.__hash__

    def __new__(cls, op: str, call: Callable[..., tuple[Any, ...]]) -> ReferenceCall:
        made = super().__new__(cls, f"reference:{op}")
        made.call = call
        return made


def several(fn: str) -> bool:
    """Whether a function returns a tuple, one part for each target."""
    return fn in SEVERAL or type(fn) is ReferenceCall


class CallLine:
    """One line: targets = fn(args, kwargs). `fits`: an elementwise ufunc, which may write into an operand of its own shape.

    fn: a dotted NumPy name, a function of `numpy_functions`, `.method`, `.property()`, `[]`, `len`, `int`, `=`, or a `ReferenceCall`.
    """

    __slots__ = ("targets", "fn", "args", "kwargs", "fits", "origin")

    def __init__(
        self, targets: tuple[Variable, ...], fn: str, args: tuple[Any, ...], kwargs: dict[str, Any], fits: bool, origin: tuple[Origin, ...]
    ):
        self.targets, self.fn, self.args, self.kwargs, self.fits, self.origin = targets, fn, args, kwargs, fits, origin


class Lines:
    """A program, or the body of a loop, as lines."""

    def __init__(self, name: str):
        self.name = name
        self.params: list[Variable] = []
        self.calls: list[CallLine] = []
        self.results: list[Variable] = []
        self.constants: list[Variable] = []
        self.captures: list[Variable] = []  # variables that a body captures
        self.quiet = False  # whether some call can warn about floats

    def find_captures(self) -> None:
        own = set(self.params) | set(self.constants)
        found: dict[Variable, None] = {}
        for call in self.calls:
            found.update(dict.fromkeys(v for v in used(call) if v not in own and v.literal is None))
            own.update(call.targets)
        found.update(dict.fromkeys(v for v in self.results if v not in own and v.literal is None))
        self.captures = list(found)


def used(call: CallLine) -> Iterable[Variable]:
    """Yields every variable that a line reads, with repetition."""
    todo: list[Any] = [*call.args, *call.kwargs.values()]
    while todo:
        a = todo.pop()
        kind = type(a)
        if kind is Variable:
            yield a
        elif kind is tuple:
            todo += a
        elif kind is slice:
            todo += (a.start, a.stop, a.step)
        elif kind is Lines:
            yield from a.captures
        elif isinstance(a, Expr):
            for leaf in expr.leaves(a):
                yield leaf.of


def bytes_of(v: Variable) -> int:
    """Returns the size of a variable's array in bytes; unknown lengths count as 1."""
    if v.dtype is None or v.literal is not None:
        return 0
    return math.prod(n if type(n) is int else 1 for n in v.shape) * v.dtype.np.itemsize
