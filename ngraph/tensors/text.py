"""Tensor graphs as text that can be read and parsed back: `text`, `parse`, `arrays`.

    ngraph tensors 1
    axis N = 4
    axis C.2 = 2 made
    input %0 x : float32[N]
    constant %1 : float32[N] = array("w")
    %2 : float32[N] = multiply(%0, %1[N: 3 - Idx(N)])
    %3 : float32[] = reduce add(%2 where [2 - Idx(N)] pad 0) over [N]
    %4 : float32[N] = join scatter() disjoint
    part [] %3 at [N: 1]
    prefer %2 along N by 64.0
    output %4

A read is printed as the name of its source, with the index of each axis that is not at the reader's own index; an expression may hold
`Load(read)`. A number is `0.5 : float32`, an integer computed from the index `index(Idx(N) + 1) : int64`. Flags of a node follow its
operation: `once`, `turned`, `disjoint`, `inline`, `split_k chunk`, `selects max`. Axes, attributes and origins stand
as they do in programs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ngraph.op_graph import expr
from ngraph.op_graph.expr import ExprLike, Idx, Leaf, Len, Run
from ngraph.op_graph.op import TensorType
from ngraph.op_graph.text import FORMAT
from ngraph.program.program import AxisId, State, Value
from ngraph.program.text import _END, _Parser, _Printer
from ngraph.tensors.graph import (
    Arg,
    Constant,
    IndexValue,
    PiecewisePart,
    ScalarConstant,
    TensorGraph,
    TensorNode,
    set_field,
    sizes,
)
from ngraph.tensors.index import Load, Read

FLAGS = ("once", "turned", "disjoint", "inline")
KINDS = ("reduce", "join", "routine", "part")  # which stand before the operation; what has none is elementwise


def text(graph: TensorGraph, origins: bool = True) -> str:
    """Returns the graph as text; `origins=False` leaves out the origins of nodes."""
    name = "" if graph.name == "program" else f" {json.dumps(graph.name)}"
    return f"ngraph tensors {FORMAT}{name}\n" + _GraphPrinter(origins).graph(graph)


def node_text(graph: TensorGraph, n: TensorNode) -> str:
    """Returns one node as `text` prints it, also an invalid one."""
    printer = _GraphPrinter(False, strict=False)
    printer.number_nodes(graph)
    return printer.node(n)


def arrays(graph: TensorGraph) -> dict[str, np.ndarray]:
    """Returns the large constants of a graph by the names that `text` gives them."""
    printer = _GraphPrinter(False)
    printer.graph(graph)
    return printer.arrays


class _NodeText:
    op, origin = "a node", ()


_NOWHERE: Any = _NodeText()


class _GraphPrinter(_Printer):
    """Numbers sources, constants and nodes, and prints line by line."""

    names: dict[Any, str]

    def number_nodes(self, g: TensorGraph) -> list[Constant]:
        """Names all sources of reads; returns the constants."""
        found = [r.source for n in g.nodes for r in n.reads if type(r.source) is Constant]
        constants = list(dict.fromkeys(found))
        for k, x in enumerate(dict.fromkeys((*g.sources, *constants, *g.nodes))):
            self.names[x] = f"%{k}"
        self.runs = {v: self.names.get(r.source, "%undefined") for v, r in g.numbers.items()}
        return constants

    def graph(self, g: TensorGraph) -> str:
        constants = self.number_nodes(g)
        out = []
        for a, n in g.axes.items():
            length = "" if n == Len(a) else f" = {self.expr(n)}"
            out.append(f"axis {self.axis(a)}{length}{' few' if a in g.few else ''}{' made' if a in g.made else ''}")
        out += [f"input {self.defined(v)}{' steady' if v in g.loop_invariant else ''}" for v in g.inputs]
        out += [f"state {json.dumps(s.name)} = {self.defined(s.value)}" for s in g.states]
        out += [f"token_in {self.defined(g.token_in)}"] if g.token_in is not None else []
        for c in constants:
            listed = ", ".join(map(self.axis, c.axes))
            out.append(f"constant {self.names[c]} : {c.dtype.name}[{listed}] = {self.array(c.value)}")
        out += map(self.node, g.nodes)
        out += [f"prefer {self.names[s]} along {self.axis(a)} by {self.attr(w, _NOWHERE)}" for s, a, w in g.preferences if s in self.names]
        out += [f"number {name}" for name in dict.fromkeys(self.runs.values())]
        out += [f"output {', '.join([self.names[n] for n in g.outputs])}"] if g.outputs else []
        out += [f"state_out {json.dumps(name)} = {self.names[n]}" for name, _, n in g.state_out]
        out += [f"write {self.names[g.inputs[k]]} = output {n}" for k, n in g.writes]
        out += [f"token_out {self.names[g.token_out]}"] if g.token_out is not None else []
        return "".join([line + "\n" for line in out])

    def node(self, n: TensorNode) -> str:
        kind = "" if n.kind == "elem" else f"{n.kind} "
        listed = ", ".join(map(self.axis, n.axes))
        line = f"{self.names[n]} {self.word(n.hint) + ' ' if n.hint else ''}: {n.dtype.name}[{listed}] = {kind}{self.word(n.op)}"
        line += f"({', '.join(map(self.arg, n.args))})" + (f" over [{', '.join(map(self.axis, n.reduced))}]" if n.reduced else "")
        if n.attrs:
            line += f" {{{', '.join([f'{self.word(k)}: {self.attr(a, _NOWHERE)}' for k, a in n.attrs.items()])}}}"
        line += "".join([f" {flag}" for flag in FLAGS if getattr(n, flag)])
        line += f" split_k {self.axis(n.split_k)}" if n.split_k is not None else ""
        line += f" selects {n.selects}" if n.selects else ""
        line += self.origin(n.origin) if self.origins else ""
        return "\n".join([line, *map(self.part, n.parts)])

    def part(self, p: PiecewisePart) -> str:
        by = "" if p.combine == "set" else f" by {p.combine}"
        return f"part [{', '.join(map(self.axis, p.axes))}] {self.arg(p.arg)} at [{self.index(p.place)}]{self.where(p.predicate)}{by}"

    def arg(self, a: Arg) -> str:
        if isinstance(a, Read):
            order = {k: n for n, k in enumerate(a.source.axes)}
            index = sorted(a.index.items(), key=lambda pair: order.get(pair[0], len(order)))
            moved = {k: e for k, e in index if not (type(e) is Idx and e.of == k)}
            padded = f" pad {self.attr(a.pad_value, _NOWHERE)}" if a.predicate else ""
            return self.names.get(a.source, "%undefined") + (f"[{self.index(moved)}]" if moved else "") + self.where(a.predicate) + padded
        shown = f"index({self.expr(a.value)})" if type(a) is IndexValue else self.attr(a.value, _NOWHERE)
        return f"{shown} : {a.dtype.name}"

    def index(self, index: Mapping[AxisId, ExprLike]) -> str:
        return ", ".join([f"{self.axis(k)}: {self.expr(e)}" for k, e in index.items()])

    def where(self, predicate: tuple[ExprLike, ...]) -> str:
        return f" where [{', '.join(map(self.expr, predicate))}]" if predicate else ""

    def expr(self, e: ExprLike) -> str:
        return expr.text(e, self.leaf)

    def leaf(self, leaf: Leaf) -> str:
        if type(leaf) is Load:
            return f"Load({self.arg(leaf.of)})"
        return f"Run({self.runs.get(leaf.of, '%undefined')})" if type(leaf) is Run else super().leaf(leaf)


# ---- parsing ----------------------------------------------------------------------------------------------------------------


def parse(source: str, arrays: Mapping[str, Any] | None = None) -> TensorGraph:
    """Returns the graph that `text` printed; `arrays` are its large constants. Raises ParseError with line and column for anything else."""
    return _GraphParser(source, arrays or {}).whole_graph()


class _GraphParser(_Parser):
    """The state of one parse; `there` holds the values that can be read, by name."""

    def whole_graph(self) -> TensorGraph:
        name = self.head("tensors")
        self.end_of_line()
        self.there: dict[str, Any] = {}
        self.runs: dict[str, Value] = {}
        made = self.graph(name)
        for n in made.nodes:
            size, size_in_bytes = sizes(n, made.guesses)
            set_field(n, "size", size)
            set_field(n, "bytes", size_in_bytes)
        return made

    def graph(self, name: str) -> TensorGraph:
        axes: dict[AxisId, ExprLike] = {}
        late: list[tuple[AxisId, int]] = []
        few, made, steady = list[AxisId](), list[AxisId](), list[Value]()
        inputs, states, nodes, outputs = list[Value](), list[State](), list[TensorNode](), list[TensorNode]()
        state_out, preferences, numbers, tokens = list[Any](), list[Any](), list[Any](), dict[str, Any]()
        writes = list[tuple[int, int]]()
        while (token := self.tokens[self.k]) != _END:
            self.k += 1
            if token == "axis":
                a = self.axis()
                axes[a] = Len(a)
                if self.accept("="):
                    late.append((a, self.skip_to("made")))
                few += [a] if self.accept("few") else []
                made += [a] if self.accept("made") else []
            elif token == "input":
                inputs.append(self.incoming())
                steady += inputs[-1:] if self.accept("steady") else []
            elif token == "state":
                called = self.string()
                self.expect("=")
                states.append(State(called, self.incoming()))
            elif token == "token_in":
                tokens[token] = self.incoming()
            elif token == "constant":
                self.constant()
            elif token[:1] == "%":
                self.k -= 1
                nodes.append(self.node())
                continue
            elif token == "prefer":
                preferences.append((self.one(), self.then("along", self.axis), self.then("by", self.element)))
            elif token == "number":
                numbers.append((self.tokens[self.k], self.one()))
            elif token == "output":
                outputs.append(self.one())
                while self.accept(","):
                    outputs.append(self.one())
            elif token == "state_out":
                called = self.string()
                self.expect("=")
                state_out.append((called, next((s.value for s in states if s.name == called), None), self.one()))
            elif token == "write":
                writes.append(self.written(inputs))
            elif token == "token_out":
                tokens[token] = self.one()
            else:
                self.k -= 1
                self.fail(f"a statement of a tensor graph is expected, and here is {self.found()}")
            self.end_of_line()
        for of, found in numbers:
            self.runs[of] = found if type(found) is Value else Value(TensorType((), found.dtype), found.hint)
        for a, self.k in late:
            axes[a] = self.expr(bare=False)
        for name_of, _, n in state_out:
            set_field(n, "state", name_of)
        for n in (*outputs, *[n for _, _, n in state_out], *[x for _, x in numbers if isinstance(x, TensorNode)]):
            set_field(n, "result", True)
        return TensorGraph(
            axes=axes,
            nodes=tuple(nodes),
            inputs=tuple(inputs),
            states=tuple(states),
            token_in=tokens.get("token_in"),
            outputs=tuple(outputs),
            state_out=tuple(state_out),
            writes=tuple(writes),
            token_out=tokens.get("token_out"),
            numbers={self.runs[of]: Read(x, {}) for of, x in numbers},
            made=frozenset(made),
            few=frozenset(few),
            loop_invariant=frozenset(steady),
            preferences=tuple(preferences),
            name=name,
        )

    def written(self, inputs: list[Value]) -> tuple[int, int]:
        at = self.one()
        k = next((k for k, v in enumerate(inputs) if v is at), None)
        if k is None:
            self.fail("an input is expected", self.k - 1)
        self.expect("=")
        self.expect("output")
        return k, self.integer()

    def then(self, word: str, what: Any) -> Any:
        self.expect(word)
        return what()

    def incoming(self) -> Value:
        token = self.tokens[self.k]
        value = self.there[token] = self.defined()
        return value

    def constant(self) -> None:
        token = self.tokens[self.k]
        self.k += 1
        self.expect(":")
        kind = self.type()
        self.expect("=")
        self.there[token] = Constant(self.array(), kind.axes, kind.dtype)

    def one(self) -> Any:
        found = self.there.get(self.tokens[self.k])
        if found is None:
            self.fail(f"a value that stands above is expected, and here is {self.found()}")
        self.k += 1
        return found

    def node(self) -> TensorNode:
        token = self.tokens[self.k]
        if token in self.there:
            self.fail(f"{token} is defined twice")
        self.k += 1
        hint = "" if self.tokens[self.k] == ":" else self.word("a name or :")
        self.expect(":")
        kind = self.type()
        self.expect("=")
        op = self.word("an operation")
        what = "elem"
        if op in KINDS and self.tokens[self.k] != "(":
            what, op = op, self.word("an operation")
        self.expect("(")
        args = tuple(self.listed(self.arg, ")"))
        reduced: tuple[AxisId, ...] = ()
        if self.accept("over"):
            self.expect("[")
            reduced = tuple(self.listed(self.axis))
        attrs = self.attributes()
        flags: dict[str, Any] = {flag: self.accept(flag) for flag in FLAGS}
        split_k = self.axis() if self.accept("split_k") else None
        selects = self.word("max or min") if self.accept("selects") else ""
        origin = self.origin() if self.tokens[self.k] == "#" else ()
        self.end_of_line()
        parts = []
        while self.accept("part"):
            parts.append(self.part())
            self.end_of_line()
        more: dict[str, Any] = {"split_k": split_k, "selects": selects, "origin": origin, "hint": hint, "parts": tuple(parts)}
        made = self.there[token] = TensorNode(what, op, args, kind.axes, kind.dtype, reduced=reduced, attrs=attrs, **more, **flags)
        return made

    def part(self) -> PiecewisePart:
        self.expect("[")
        axes, arg = tuple(self.listed(self.axis)), self.arg()
        self.expect("at")
        self.expect("[")
        place = dict(self.listed(self.entry))
        predicate = self.where()
        return PiecewisePart(axes, arg, place, predicate, self.word("how to combine") if self.accept("by") else "set")

    def arg(self) -> Arg:
        if self.tokens[self.k][:1] == "%":
            return self.read()
        if self.tokens[self.k] == "index" and self.tokens[self.k + 1] == "(":
            self.k += 2
            value = self.expr()
            self.expect(")")
            self.expect(":")
            return IndexValue(value, self.dtype())
        number = self.element()
        self.expect(":")
        return ScalarConstant(number, self.dtype())

    def read(self) -> Read:
        source = self.one()
        moved = dict(self.listed(self.entry)) if self.accept("[") else {}
        predicate = self.where()
        pad_value = self.attr() if self.accept("pad") else 0
        return Read(source, {a: moved.get(a, Idx(a)) for a in source.axes}, predicate, pad_value)

    def attr(self) -> Any:
        return self.expr() if self.tokens[self.k] in ("Load", "Run") else super().attr()

    def operand(self, bare: bool) -> Any:
        token = self.tokens[self.k]
        if token not in ("Load", "Run"):
            return super().operand(bare)
        self.k += 1
        self.expect("(")
        if token == "Load":
            found: Leaf = Load(self.read())
        else:
            of = self.tokens[self.k]
            if of not in self.runs:
                self.fail(f"a number that a length needs is expected, and here is {self.found()}")
            self.k += 1
            found = Run(self.runs[of])
        self.expect(")")
        return found
