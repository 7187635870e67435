"""Walks a graph of named values: each node takes values and gives values; functions, branches and loops are graphs within it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ngraph.errors import BoundsError, GraphError, NgraphError, ParseError, UnsupportedError
from ngraph.frontends.positional.trace import Fixed, Inside, ModelTrace
from ngraph.frontends.positional.values import Tensor, Value, call
from ngraph.op_graph.op import SourceLocation, made_for

T = TypeVar("T")

DEEPEST = 64  # graphs within each other


class Frame:
    """The names of one graph while it is walked, and those around it."""

    def __init__(self, outer: Frame | None = None):
        self.outer = outer
        self.names: dict[str, Value] = {}
        self.depth: int = outer.depth + 1 if outer else 0

    def find(self, name: str) -> Value:
        """Returns the value of a name. Raises GraphError where it has none."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names:
                return frame.names[name]
            frame = frame.outer
        raise GraphError(f"nothing is called {name!r} where it is used", fix="export the model again: a node in front of it has to give it")


class GraphNode:
    """A node as its translator sees it, made for one walk.

    op    what it does, in the words of the format        takes, gives  the names of its inputs and outputs; "" where one is left out
    name  what it is called; slashes in it are scopes
    """

    __slots__ = ("g", "frame", "op", "takes", "gives", "name")

    def __init__(self, g: ModelTrace, frame: Frame, op: str, takes: Sequence[str], gives: Sequence[str], name: str = ""):
        self.g, self.frame, self.op, self.takes, self.gives, self.name = g, frame, op, takes, gives, name

    @property
    def place(self) -> SourceLocation:
        """The source of its ops: the node's op and name, and the scope in its name."""
        name = self.name or next((str(o) for o in self.gives if o), "")
        return SourceLocation((f"{self.op} {name!r}", 0), "/".join(filter(None, name.split("/")[:-1])))

    @property
    def label(self) -> str:
        """The node in an error's words."""
        name = f"{self.name!r} " if self.name else ""
        return f"node {name}({self.described}, gives {', '.join(str(o) for o in self.gives if o) or 'nothing'})"

    @property
    def described(self) -> str:
        """Its op in an error's words."""
        return self.op

    def translate(self, inputs: list[Value]) -> Any:
        """Its result, or a tuple of results, for these inputs; None stands for an input that is left out."""
        raise NotImplementedError


def in_order(
    nodes: Sequence[T],
    takes: Callable[[T], Iterable[str]],
    gives: Callable[[T], Iterable[str]],
    after: Callable[[T], Iterable[str]] = lambda node: (),
    wanted: Iterable[str] | None = None,
) -> list[T]:
    """Nodes of a file that keeps them in any order, each behind those that it needs; where that leaves a choice, as in the file.

    takes, gives: names of values. after: what else is to happen before, names of values or, if it gives none, of the node itself as `gives`
    has it. wanted: names; what none of them needs is left out. Raises ParseError for nodes that wait for each other.
    """
    makers = {name: k for k, node in enumerate(nodes) for name in gives(node)}
    found: list[T] = []
    done, waiting = set[int](), dict[int, None]()  # the latter in the order in which they were come to
    todo = [makers[name] for name in wanted if name in makers] if wanted is not None else list(range(len(nodes)))
    todo.reverse()
    while todo:
        k = todo[-1]
        if k in waiting:
            del waiting[k]
            done.add(k)
            found.append(nodes[k])
        if k in done:
            todo.pop()
            continue
        waiting[k] = None
        needed = [makers[name] for name in (*takes(nodes[k]), *after(nodes[k])) if name in makers]
        if any(j in waiting for j in needed):
            names = [next(iter(gives(nodes[j])), "?") for j in waiting]
            first = names[list(waiting).index(next(j for j in needed if j in waiting)) :]
            raise ParseError(f"nodes wait for each other: {' -> '.join([*first, first[0]])}", fix="a loop is a graph of its own")
        todo += [j for j in needed[::-1] if j not in done]
    return found


def last_uses(used: Iterable[Iterable[str]], outputs: Sequence[str]) -> dict[str, int]:
    """The last node that uses each name, of what each node uses, and a number beyond all for outputs."""
    last: dict[str, int] = {}
    k = -1
    for k, names in enumerate(used):
        last.update(dict.fromkeys(names, k))
    last.update(dict.fromkeys(outputs, k + 1))
    return last


def walk(g: ModelTrace, frame: Frame, nodes: Iterable[GraphNode], outputs: Sequence[str], last: Mapping[str, int]) -> list[Value]:
    """The outputs, with nodes taken in their order; what nothing later uses is forgotten."""
    if frame.depth > DEEPEST:
        raise ParseError(f"graphs stand more than {DEEPEST} deep within each other", fix="is the file damaged?")
    g.scopes.append(frame.names)
    try:
        for k, node in enumerate(nodes):
            apply(g, frame, node)
            for name in (*node.takes, *node.gives):
                if last.get(name, -1) <= k:
                    frame.names.pop(name, None)
        return [frame.find(name) for name in outputs]
    finally:
        g.scopes.pop()


def apply(g: ModelTrace, frame: Frame, node: GraphNode) -> None:
    """One node: its results into the frame. Their ops take the names of the file where they have none."""
    inputs: list[Value] = []
    try:
        g.count()
        inputs = [frame.find(name) if name else None for name in node.takes]
        with made_for(node.place):
            results = node.translate(inputs)
    except (Fixed, Inside):
        raise
    except Exception as error:  # of a damaged file anything may be missing; what went wrong goes along as the cause
        if error is g.blamed:
            raise
        details = tuple([f"{name}: {g.described(v)}" for name, v in zip(node.takes, inputs, strict=False) if name])
        text, fix = str(error), ""
        if isinstance(error, NgraphError):
            text, details, fix = error.message, (*error.details, *details), error.fix
        kind = type(error) if isinstance(error, (UnsupportedError, ParseError, BoundsError)) else GraphError
        g.blamed = kind(f"{node.label}: {text or type(error).__name__}", details=details, fix=fix)
        raise g.blamed from error
    if not isinstance(results, tuple):
        results = (results,)
    for name, value in zip(node.gives, results, strict=False):
        if name:
            frame.names[name] = value
            call(value, str(name))
            if type(value) is Tensor and value.op.hint == name:
                order = [None if d is None else value.op.axes.index(d) for d in value.dims]
                g.dims.setdefault(str(name), tuple(order))
    missing = [name for name in node.gives[len(results) :] if name]
    if missing:
        raise GraphError(f"{node.label}: it has no result {', '.join(missing)}", fix="is the file damaged?")
