"""The stages of a model's call, recorded once while its graph is read and then replayed: a tree.

    Ask        a question about this call, such as whether a length is 1; each answer seen so far has its own way on
    Compute    a computation from slots into slots
    HostStage  a Python function of arrays, for what has no machine code
    Done       the results

Most models are one Ask, one Compute, one Done. Where a value decides what is computed next (a length that a step finds, a branch
with results of its own shapes), several stages follow one another.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ngraph.op_graph import expr
from ngraph.op_graph.expr import ExprLike, Leaf


class StageRun:
    """One call: arrays by slot, the lengths of open axes by name."""

    __slots__ = ("slots", "lengths")

    def __init__(self, slots: dict[int, Any], lengths: dict[str, int]):
        self.slots, self.lengths = slots, lengths

    def put(self, slot: int, array: Any) -> None:
        """An array into a slot; its dims are the lengths of axes that are called after the slot."""
        self.slots[slot] = array
        for k, n in enumerate(array.shape):
            self.lengths[f"R{slot}.{k}"] = n

    def length(self, leaf: Leaf) -> int:
        return self.lengths[leaf.of.name]

    def number(self, e: ExprLike) -> int:
        return int(expr.evaluate(e, self.length))


class CallStage:
    """A step of a call: does something and says which of its children comes next."""

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next: dict[Hashable, CallStage] = {}

    def step(self, run: StageRun) -> Hashable:
        raise NotImplementedError


class Ask(CallStage):
    """A question whose answer decides the way on. `shapes`: it follows from the shapes of the inputs alone."""

    __slots__ = ("question", "shapes")

    def __init__(self, question: Callable[[StageRun], Hashable], shapes: bool = False):
        super().__init__()
        self.question, self.shapes = question, shapes

    def step(self, run: StageRun) -> Hashable:
        return self.question(run)


class Compute(CallStage):
    """A computation, made by a transformer. Behind what it gives may stand effects, which give nothing."""

    __slots__ = ("computation", "takes", "gives")

    def __init__(self, computation: Callable[..., Any], takes: Sequence[int], gives: Sequence[int]):
        super().__init__()
        self.computation, self.takes, self.gives = computation, tuple(takes), tuple(gives)

    def step(self, run: StageRun) -> None:
        slots = run.slots
        for slot, array in zip(self.gives, self.computation(*[slots[s] for s in self.takes]), strict=False):
            run.put(slot, array)


class HostStage(CallStage):
    """A step in Python, such as one on strings; `name` is what it is counted under. It takes slots, and arrays that are known."""

    __slots__ = ("name", "function", "takes", "gives")

    def __init__(self, name: str, function: Callable[..., Any], takes: Sequence[Any], gives: Sequence[int]):
        super().__init__()
        self.name, self.function, self.takes, self.gives = name, function, tuple(takes), tuple(gives)

    def step(self, run: StageRun) -> None:
        arrays = [run.slots[t] if isinstance(t, int) else t for t in self.takes]
        for slot, array in zip(self.gives, self.function(*arrays), strict=True):
            run.put(slot, array)


class Done(CallStage):
    """The results: each a function of the call."""

    __slots__ = ("results",)

    def __init__(self, results: Sequence[Callable[[StageRun], Any]]):
        super().__init__()
        self.results = tuple(results)

    def step(self, run: StageRun) -> None:
        pass


def bytes_of(slot: int) -> Callable[[StageRun], Hashable]:
    """The question what value stands in a slot."""

    def question(run: StageRun) -> Hashable:
        a = run.slots[slot]
        return a.shape, tuple(a.ravel()) if a.dtype == object else a.tobytes()

    return question
