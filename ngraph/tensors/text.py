"""Tensor graphs as text, and what holds of them between passes."""

from __future__ import annotations

from typing import Any

from ngraph.errors import ProgramError
from ngraph.op_graph import expr
from ngraph.op_graph.expr import ExprLike, Idx, Leaf
from ngraph.tensors.build import Arg, Constant, IndexValue, Node, NodeGraph
from ngraph.tensors.index import Load, Read


def graph_text(graph: NodeGraph) -> str:
    """The axes that nodes are over, sources, nodes in order, results."""
    return _GraphPrinter(graph).text()


def verify_graph(graph: NodeGraph) -> NodeGraph:
    """The graph itself, if each node reads only what stands before it, at an index of each of its axes. Raises ProgramError otherwise."""
    there: set[Any] = set(graph.sources)
    for n in graph.nodes:
        for r in n.reads:
            if type(r.source) is not Constant and r.source not in there:
                raise ProgramError(f"{n!r} reads {r.source!r}, which does not stand before it")
            if n.kind != "part" and set(r.index) != set(r.source.axes):
                raise ProgramError(f"{n!r} reads {r.source!r} at an index of [{', '.join(r.index)}]")
        there.add(n)
    missing = [n for n in (*graph.outputs, *(n for _, _, n in graph.state)) if n not in there]
    if missing:
        raise ProgramError(f"{missing[0]!r} leaves the graph and does not stand in it")
    return graph


class _GraphPrinter:
    def __init__(self, graph: NodeGraph):
        self.graph = graph
        self.every: list[Any] = [*graph.sources, *graph.nodes]
        self.names: dict[Any, str] = {s: f"%{k}" for k, s in enumerate(self.every)}

    def text(self) -> str:
        g, axes = self.graph, dict.fromkeys([a for n in self.every for a in n.axes])
        axes |= dict.fromkeys([a for n in g.nodes for a in n.reduced])
        out = [f"ngraph tensor graph 1 {g.program.name}", *[f"axis {a} = {self.expr(g.length(a))}" for a in axes]]
        out += [f"source {self.names[s]} {s.hint}: {s.dtype.name}[{', '.join(s.axes)}]" for s in g.sources]
        out += [self.node(n) for n in g.nodes]
        out += [f"output {self.names[n]}" for n in g.outputs]
        out += [f"state {name} {self.names[old]} becomes {self.names[new]}" for name, old, new in g.state]
        return "\n".join(out) + "\n"

    def node(self, n: Node) -> str:
        over = f" over [{', '.join(n.reduced)}]" if n.reduced else ""
        attrs = ", ".join([f"{k}: {a if isinstance(a, str | int | float | tuple) else type(a).__name__}" for k, a in n.attrs.items()])
        notes = [*(["once"] if n.once else []), *([f"split along {n.split_k}"] if n.split_k else []), *(["turned"] if n.turned else [])]
        what = "" if n.kind in (n.op, "elem") else f"{n.kind} "
        line = f"{self.names[n]} {n.hint}{' ' * bool(n.hint)}: {n.dtype.name}[{', '.join(n.axes)}] = {what}{n.op}"
        line += f"({', '.join(map(self.arg, n.args))}){over}" + (f" {{{attrs}}}" if attrs else "") + "".join([f" {note}" for note in notes])
        for p in n.parts:
            line += f"\n    part [{', '.join(p.axes)}] {self.arg(p.arg)} at [{self.index(p.place)}]{self.where(p.guard)} by {p.combine}"
        return line

    def arg(self, a: Arg) -> str:
        if type(a) is Read:
            moved = {k: e for k, e in a.index.items() if not (type(e) is Idx and e.of == k)}
            name = self.names.get(a.source) or repr(a.source.value)
            return name + (f"[{self.index(moved)}]" if moved else "") + self.where(a.guard) + (f" fill {a.fill}" if a.guard else "")
        return self.expr(a.value) if type(a) is IndexValue else f"{a.value}"  # type: ignore[union-attr]

    def index(self, index: Any) -> str:
        return ", ".join([f"{k}: {self.expr(e)}" for k, e in index.items()])

    def where(self, guard: tuple[ExprLike, ...]) -> str:
        return f" where [{', '.join(map(self.expr, guard))}]" if guard else ""

    def expr(self, e: ExprLike) -> str:
        return expr.text(e, self.leaf)

    def leaf(self, leaf: Leaf) -> str:
        if type(leaf) is Load:
            return f"Load({self.arg(leaf.of)})"
        return f"{type(leaf).__name__}({self.names.get(leaf.of, leaf.of)})"
