"""Readings of Python functions of tensors: what is being read by each thread, and the tape of what is differentiated op by op."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ngraph.errors import UnsupportedError
from ngraph.frontends.positional.stages import Ask, StageRun
from ngraph.frontends.positional.trace import Fixed, ModelTrace
from ngraph.frontends.positional.values import Tensor
from ngraph.op_graph.axes import make_axis
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.expr import ExprLike
from ngraph.op_graph.op import Op
from ngraph.ops.state import placeholder

if TYPE_CHECKING:
    from ngraph.keras.tensors import BackendTensor

VALUE_NEEDED = "the value of a tensor is needed while a computation is being read, which knows only shapes"
RUN_EAGERLY = "compute it by keras.ops, or compile the model with run_eagerly=True"


class NotTraceable(UnsupportedError):
    """A function that cannot be read as a computation, but can run op by op."""

    def __init__(self, message: str = VALUE_NEEDED, fix: str = RUN_EAGERLY):
        super().__init__(message, fix=fix)


class LengthNeeded(BaseException):
    """These axes must have known lengths: the function is read again with them. No Exception: Keras rewrites those that pass its layers."""

    def __init__(self, names: Iterable[str]):
        self.names = frozenset(names)


class KerasTrace(ModelTrace):
    """One reading of a Python function of tensors: its questions about open lengths, and the variables that it reads and assigns.

    guards   (question, answer) of this reading        held   variables by the name under which the trace knows them
    """

    def __init__(self, run: StageRun | None = None, fixed: frozenset[str] = frozenset()):
        super().__init__(Ask(lambda run: None), run or StageRun({}, {}), fixed, _refused, {})
        self.variables: dict[str, Op] = {}
        self.held: dict[str, Any] = {}
        self.guards: list[tuple[Callable[[StageRun], Any], Any]] = []
        self.indices, self.most = "clip", 1 << 30  # Keras's backends read at the nearest index

    def ask(self, about: Any, question: Callable[[StageRun], Any], shapes: bool = False) -> Any:
        if about not in self.answers:
            self.answers[about] = question(self.run)
            self.guards.append((question, self.answers[about]))
        return self.answers[about]

    def number(self, e: ExprLike) -> int:
        try:
            return super().number(e)
        except Fixed as error:
            raise LengthNeeded(error.names) from None

    def numbers(self, es: Iterable[ExprLike]) -> list[int]:
        return [self.number(e) for e in es]

    def known(self, v: Any) -> Any:
        if isinstance(v, Tensor):
            raise NotTraceable
        return super().known(v)

    def holes_of(self, shape: Sequence[Any], dtype: Any, axes: Sequence[Any] = ()) -> tuple[Op, Tensor]:
        """Returns a placeholder with these axes, or fresh ones of a shape, and the tensor that stands for it."""
        dims = list(axes) or [self.fresh(n) for n in shape]
        op = placeholder(dims, dtype=as_dtype(dtype))
        return op, self.ones(Tensor(op, dims))

    def open_dim(self, name: str, n: int) -> Any:
        """Returns an axis of open length, n in this call; of that length where it is fixed."""
        if name in self.fixed:
            return make_axis(n, name=name)
        self.run.lengths[name] = n
        return make_axis(None, name=name)

    def name_of(self, variable: Any) -> str:
        """Returns the trace's name of a variable, which gets a placeholder when it is first named."""
        name = str(id(variable))
        if name not in self.variables:
            array = variable.array
            self.held[name] = variable
            self.variables[name], _ = self.holes_of(array.shape, array.dtype)
        return name


def _refused(*_: Any) -> Any:
    raise NotTraceable


class TapeRecord(NamedTuple):
    """A function that has been run at once while derivatives are wanted: what it was given, and what it gave."""

    function: Callable[..., Any]
    inputs: tuple[BackendTensor, ...]
    static: dict[str, Any]
    outputs: tuple[BackendTensor, ...]


class _Traces(threading.local):
    def __init__(self) -> None:
        self.stack: list[KerasTrace] = []
        self.tapes: list[list[TapeRecord]] = []  # of functions that are differentiated op by op, the innermost last


traces = _Traces()


def reading() -> KerasTrace | None:
    """Returns the computation that this thread is reading; None where functions run at once."""
    return traces.stack[-1] if traces.stack else None


def taping() -> bool:
    """Whether derivatives of what this thread runs at once are wanted."""
    return bool(traces.tapes)


class Taping:
    """A context in which each function that is run at once leaves a record."""

    def __enter__(self) -> list[TapeRecord]:
        traces.tapes.append([])
        return traces.tapes[-1]

    def __exit__(self, *_: Any) -> None:
        traces.tapes.pop()


def record(function: Callable[..., Any], inputs: Sequence[BackendTensor], static: Any, found: Any) -> None:
    """Leaves a record on the tapes of this thread."""
    made = TapeRecord(function, tuple(inputs), static, found if isinstance(found, tuple) else (found,))
    for tape in traces.tapes:
        tape.append(made)


class TraceScope:
    """A context in which functions of tensors of a trace add to it, and variables have their values there."""

    def __init__(self, g: KerasTrace):
        self.g = g

    def __enter__(self) -> KerasTrace:
        traces.stack.append(self.g)
        return self.g

    def __exit__(self, *_: Any) -> None:
        traces.stack.pop()
