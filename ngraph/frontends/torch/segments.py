"""A graph as a straight line of segments: ours, each one computation, and torch's, each a call of one op.

A node is ours where it has a translation and its tensors have dtypes of ours; what torch runs stands between two of our segments. Views
of inputs, and of what torch has given, are torch's: they cost nothing, and alias what they should.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.fx import GraphModule, Node

from ngraph.errors import UnsupportedError
from ngraph.frontends.torch import control, private
from ngraph.frontends.torch.drawing import SEED
from ngraph.frontends.torch.graph import (
    SYMBOLIC,
    Reading,
    at_line_of,
    fetch,
    hint,
    is_check,
    is_item,
    memory_order,
    name_of,
    tensors_in,
    told,
    unfit,
)
from ngraph.frontends.torch.steps import CompiledGraph, Length, LengthStep, OurStep, Result, TensorSlot, TorchStep, slots_in
from ngraph.op_graph.op import ordered as ops_of
from ngraph.ops.rearrange import broadcast
from ngraph.transformers.base import Transformer

VIEWS = frozenset(
    f"aten.{name}"
    for name in "view _unsafe_view reshape permute transpose t expand unsqueeze squeeze slice select alias detach diagonal"
    " as_strided unfold split split_with_sizes unbind".split()
)
DECIDE = frozenset({"aten.nonzero"})  # ops whose result's length depends on values


class Left(NamedTuple):
    """A node that is left to torch, and why."""

    node: Node
    reason: str
    fix: str


class Segments:
    """A graph cut into segments, compiled by `compiled`.

    left    the nodes that torch runs, with the reason      ours  the number of nodes that are in our segments
    settings  of `ngraph.config` for its computations             extra  placeholders of inputs that follow those of the graph
    still   inputs that are state of the transformer, which is then the graph's own
    laid    results that lie in an order of their own: their dims, from the slowest in memory to the fastest
    symbols  lengths that inputs tell                             born   lengths that results tell: the node, and the dim of its tensor
    expressions  lengths that Python computes of these, by name
    """

    def __init__(
        self,
        gm: GraphModule,
        transformer: Transformer,
        settings: Mapping[str, Any] | None = None,
        still: Collection[int] = (),
        laid: Mapping[Node, tuple[int, ...]] | None = None,
    ):
        control.counted(gm)
        take_views_of_inputs(gm)
        self.gm, self.transformer, self.settings, self.laid = gm, transformer, dict(settings or {}), laid or {}
        self.extra: list[Any] = []
        self.nodes: list[Node] = list(gm.graph.nodes)
        self.inputs = [n for n in self.nodes if n.op == "placeholder"]
        self.still = {n for k, n in enumerate(self.inputs) if k in still and can_be_state(n)}
        self.output = next(n for n in self.nodes if n.op == "output")
        self.left: dict[Node, Left] = {}
        self.constants: dict[str, Any] = {str(n.target): fetch(gm, str(n.target)) for n in self.nodes if n.op == "get_attr"}
        self.symbols: dict[str, tuple[int, int | None]] = {}
        self.born: dict[str, tuple[Node, int | None]] = {}
        self.expressions: dict[str, str] = {}
        self.ends: set[Node] = set()  # nodes of ours whose values decide a length: those that read them are in a later segment
        self.kind: dict[Node, str] = {}  # ours, torch, length, input, write
        self.reading = self._sort()
        self.computations: list[Any] = []

    @property
    def ours(self) -> int:
        return sum(1 for kind in self.kind.values() if kind == "ours")

    # ---- which nodes are ours
    def _sort(self) -> Reading:
        """Decides on each node, with all that are ours read."""
        reading = Reading(self.still)
        for k, node in enumerate(self.inputs):
            self._symbols_of(k, node)
        for node in self.nodes:
            if node.op in ("placeholder", "get_attr"):
                self.kind[node] = "input"
            elif writes_input(node):
                self.kind[node] = "write"
            elif node.op == "call_function":
                self._decide(reading, node)
                self._bear(reading, node)
        self._alias()
        return reading

    def _alias(self) -> None:
        """Makes outputs that are views of one tensor share its memory, as they do without a compiler: torch makes them of it."""
        by_root: dict[Node, set[Node]] = {}
        for node in self.output.all_input_nodes:
            by_root.setdefault(self._root(node), set()).add(node)
        for root, views in by_root.items():
            if len(views) > 1:
                for node in views:
                    while node is not root:
                        self.kind[node] = "torch"
                        node = node.args[0]

    def _root(self, node: Node) -> Node:
        """Returns the node of which a view of ours is a view."""
        while self.kind.get(node) == "ours" and is_view(node):
            node = node.args[0]
        return node

    def _symbols_of(self, k: int, node: Node) -> None:
        for symbol, dim in told(node):
            if dim is None:
                self.symbols[symbol] = k, None
            else:
                self.symbols.setdefault(symbol, (k, dim))

    def _bear(self, reading: Reading, node: Node) -> None:
        """Notes the lengths that are known when a node has run. One of ours is read as an input from there on."""
        if self.kind[node] == "length":
            return
        for symbol, dim in told(node):
            if symbol not in self.symbols and symbol not in self.born:
                self.born[symbol] = node, dim
        if self.kind[node] == "ours" and base_name(name_of(node)) in DECIDE:
            self.ends.add(node)
            reading.values.pop(node)

    def _births(self, node: Node) -> list[Node]:
        """Returns the nodes that have to run before the lengths of a node's result, and those among its arguments, are known."""
        if not self.born:
            return []
        used = [node, *node.all_input_nodes] if self.kind[node] == "torch" else [node, *[a for a in node.all_input_nodes if is_length(a)]]
        found = {self.born[symbol][0] for n in used for symbol in symbols_in(n) if symbol in self.born}
        return [n for n in found if n < node]

    def _decide(self, reading: Reading, node: Node) -> None:
        val, name = node.meta.get("val"), name_of(node)
        if isinstance(val, torch.SymInt):
            try:
                reading.g.length(val)
                if not self._unknown(reading):
                    self.kind[node] = "length"
                    return
            except UnsupportedError:
                pass
        if isinstance(val, SYMBOLIC) or is_check(node) or name == SEED:
            self.kind[node] = "torch"
            return
        if node.target is operator.getitem and self.kind[node.args[0]] == "torch":
            if is_view(node) and node.args[0] in reading.values:
                reading.read(node)
            self.kind[node] = "torch"
            return
        base = node.args[0] if node.args else None
        if is_view(node) and isinstance(base, Node) and self.kind[base] in ("input", "torch"):
            try:  # of an input: ours where ours reads it, and torch's where it is needed itself
                self._inputs(reading, node)
                reading.read(node)
            except UnsupportedError:
                pass
            self.kind[node] = "torch"
            return
        try:
            reason = unfit(val)
            if reason:
                raise UnsupportedError(f"its result has {reason}")
            self._inputs(reading, node)
            reading.read(node)
            if self._unknown(reading):
                raise UnsupportedError("its lengths are known only when it has run")
            self.kind[node] = "ours"
        except UnsupportedError as error:
            self._unknown(reading)
            self.kind[node] = "torch"
            self.left[node] = Left(node, error.message, error.fix)

    def _unknown(self, reading: Reading) -> bool:
        """Whether the reading has met a length that nothing tells up to here, which it then forgets."""
        g = reading.g
        known = self.symbols.keys() | self.born.keys()
        for name, e in g.expressions.items():
            if name in g.symbols and known >= {str(symbol) for symbol in e.free_symbols}:
                self.expressions[name] = private.python_of(e)
        unknown = g.symbols.keys() - known - self.expressions.keys()
        for name in unknown:
            del g.symbols[name]
        return bool(unknown)

    def _inputs(self, reading: Reading, node: Node) -> None:
        """Makes placeholders of what a node takes from elsewhere. Raises UnsupportedError."""
        for a in node.all_input_nodes:
            a = a.args[0] if is_item(a) and isinstance(a.meta.get("val"), torch.SymFloat) else a
            val = a.meta.get("val")
            if a in reading.values or not isinstance(val, (torch.Tensor, tuple, list)):
                continue
            reason = unfit(val)
            if reason:
                raise UnsupportedError(f"its input has {reason}")
            if a.op == "get_attr":
                reading.constant(a)
            elif isinstance(val, torch.Tensor):
                reading.hole(a)

    # ---- the line
    def compiled(self) -> CompiledGraph:
        """Returns the graph as steps."""
        level = self._levels()
        wanted = self._wanted(level)
        written, copied = self._writes(level, wanted)
        slot_of: dict[Any, int] = {x: k for k, x in enumerate([*self.inputs, *self.extra])}
        for node in self.nodes:
            if node not in slot_of and (node in wanted or node.op == "get_attr"):
                slot_of[node] = len(slot_of)
        steps: list[Any] = []
        single = not self.ends and not self.born and len({level[n] for n in level if self.kind[n] == "ours"}) <= 1
        for k in range(min(level.values(), default=0), max(level.values(), default=0) + 1):
            here = [n for n in self.nodes if level.get(n) == k]
            ours = [n for n in here if self.kind[n] == "ours"]
            gives = [n for n in ours if n in wanted and isinstance(n.meta["val"], torch.Tensor)]
            writes = [n for n in written if level[n.args[1]] == k]
            if gives or writes:
                steps.append(self._ours(ours, gives, writes, slot_of, self.reading if single else None))
                steps += [step for n in gives for step in self._lengths(n, slot_of)]
            for n in here:
                if self.kind[n] == "torch" and n in wanted:
                    steps += [self._torch(n, slot_of), *self._lengths(n, slot_of)]
        steps += self._copies(copied, slot_of)
        outputs = [self._argument(a, slot_of) for a in self.output.args[0]]
        self._free(steps, outputs)
        kept = [(slot_of[n], self.constants[str(n.target)]) for n in self.nodes if n.op == "get_attr" and (is_tensor(n) or n in wanted)]
        return CompiledGraph(steps, len(self.inputs) + len(self.extra), self.symbols, outputs, kept, self.expressions)

    def _lengths(self, node: Node, slot_of: Mapping[Any, int]) -> list[LengthStep]:
        """Returns the steps that take the lengths which a node tells."""
        return [LengthStep(symbol, slot_of[node], dim) for symbol, (birth, dim) in self.born.items() if birth is node]

    def _writes(self, level: Mapping[Node, int], wanted: set[Node]) -> tuple[list[Node], list[Node]]:
        """Returns the writes into inputs that our segments do where the inputs lie, and those that torch does by copies at the end.

        A segment writes where it computes what is written, if nothing reads the old values after it.
        """
        written, copied = list[Node](), list[Node]()
        for node in self.nodes:
            if self.kind.get(node) != "write":
                continue
            target, source = node.args[0], node.args[1]
            here = self.kind[source] == "ours" and self._late(target, level[source], level, wanted)
            (written if here else copied).append(node)
        todo = [n.args[1] for n in copied]
        while todo:  # those that torch copies have to exist
            node = todo.pop()
            if node not in wanted and self.kind[node] in ("ours", "torch"):
                wanted.add(node)
                todo += node.all_input_nodes if self.kind[node] == "torch" else self._taken(node, level, set())
        return written, copied

    def _late(self, target: Node, at: int, level: Mapping[Node, int], wanted: set[Node]) -> bool:
        """Whether all that reads an input has run when a segment ends. A graph that gives the input itself gives it as it is written."""
        if unfit(target.meta["val"]):
            return False
        todo = [user for user in target.users if user is not self.output]
        while todo:
            node = todo.pop()
            kind = self.kind[node]
            if kind == "torch" and self._through(node):
                if node in wanted:
                    return False
                todo += list(node.users)
            elif kind == "torch" and level[node] >= at or kind == "ours" and level[node] > at:
                return False
            elif kind == "write" and node.args[0] is not target:
                return False
        return True

    def _copies(self, copied: Sequence[Node], slot_of: dict[Any, int]) -> list[TorchStep]:
        """Returns the steps of torch that write inputs at the end; what is written elsewhere is copied before."""
        steps = []
        targets = {n.args[0] for n in copied}
        for node in copied:
            source = node.args[1]
            if source in targets or self.kind[source] == "torch":
                slot_of[node] = len(slot_of)
                steps.append(TorchStep(torch.ops.aten.clone.default, (TensorSlot(slot_of[source]),), {}, slot_of[node]))
        for node in copied:
            source, end = TensorSlot(slot_of.get(node, slot_of[node.args[1]])), len(slot_of)
            slot_of[node] = end
            steps.append(TorchStep(torch.ops.aten.copy_.default, (TensorSlot(slot_of[node.args[0]]), source), {}, end))
        return steps

    def _levels(self) -> dict[Node, int]:
        """The segment of each node: even ones are ours, odd ones torch's; those with effects keep their order. Seeds are drawn first."""
        level: dict[Node, int] = {}
        last = 0
        for node in self.nodes:
            kind = self.kind.get(node)
            if kind not in ("ours", "torch"):
                continue
            if name_of(node) == SEED:
                level[node] = -1
                continue
            found = 0 if kind == "ours" or node not in self.left else 1
            for a in node.all_input_nodes:
                if kind == "ours":
                    found = max(found, self._behind(a, level))
                elif a in level:
                    found = max(found, level[a] + (self.kind[a] == "ours"))
            for birth in self._births(node):
                found = max(found, (level[birth] | 1) + (kind == "ours"))
            if kind == "torch" and ordered(node):
                found = last = max(found, last)
            level[node] = found
        return level

    def _behind(self, a: Node, level: Mapping[Node, int]) -> int:
        """The first segment of ours that can take a node."""
        if a not in level:
            return 0
        if self.kind[a] == "ours":
            return level[a] + 2 * (a in self.ends)
        if self._through(a):
            return max([self._behind(b, level) for b in a.all_input_nodes], default=0)
        return (level[a] | 1) + 1

    def _wanted(self, level: Mapping[Node, int]) -> set[Node]:
        """The nodes whose tensors have to exist: outputs, what torch takes, what a later segment of ours takes."""
        wanted: set[Node] = set()
        todo = list(self.output.all_input_nodes)
        todo += [n for n in self.nodes if self.kind.get(n) == "torch" and ((ordered(n) or not n.users) and n in self.left or is_check(n))]
        seen: set[Node] = set()
        for n in self.nodes:  # what is written exists in the memory of an input
            if self.kind.get(n) == "write" and self.kind[n.args[1]] == "ours":
                todo += self._taken(n.args[1], level, seen)
        while todo:
            node = todo.pop()
            kind = self.kind[node]
            if node in wanted or kind in ("length", "write"):
                continue
            wanted.add(node)
            if kind == "torch":
                todo += [*node.all_input_nodes, *self._births(node)]
            elif kind == "ours":
                todo += self._taken(node, level, seen)
        return wanted

    def _taken(self, node: Node, level: Mapping[Node, int], seen: set[Node]) -> list[Node]:
        """Returns the values that a node of ours needs from other segments."""
        found, todo = [], [node]
        while todo:
            n = todo.pop()
            found += self._births(n)
            for a in n.all_input_nodes:
                kind = self.kind[a]
                if kind == "ours" and level[a] == level[node]:
                    if a not in seen:
                        seen.add(a)
                        todo.append(a)
                elif kind == "torch" and self._through(a):
                    if a not in seen:
                        seen.add(a)
                        todo.append(a)
                elif kind in ("ours", "torch"):
                    found.append(a)
        return found

    def _through(self, node: Node) -> bool:
        """Whether a view that torch makes is read by us as a view of what it is made of."""
        return node not in self.left and node in self.reading.values and node not in self.reading.holes

    # ---- segments
    def _ours(
        self, ours: Sequence[Node], gives: Sequence[Node], writes: Sequence[Node], slot_of: Mapping[Any, int], reading: Reading | None
    ) -> OurStep:
        if reading is None:
            reading = Reading(self.still)
            needed, todo = set[Node](), [*gives, *[n.args[1] for n in writes]]
            mine = set(ours)
            while todo:
                n = todo.pop()
                if n not in needed and (n in mine or (self.kind.get(n) == "torch" and self._through(n))):
                    needed.add(n)
                    todo += n.all_input_nodes
            for n in self.nodes:
                if n in needed and not isinstance(n.meta.get("val"), SYMBOLIC):
                    self._inputs(reading, n)
                    reading.read(n)
        results, forms, laid = [], [], dict(reading.holes.values())
        for n in gives:
            with at_line_of(n):
                op, form, order = self._result(reading, n, slot_of[n])
            before = laid.setdefault(op, order)
            if before != order:  # one op in two orders: the second is a copy with axes in another order
                turned = order if before == tuple(range(len(order))) else before
                op, back = broadcast(op, [op.axes[k] for k in turned]), [turned.index(k) for k in range(len(order))]
                laid[op] = tuple([back[k] for k in order])
                form = form._replace(order=tuple(back if form.order is None else [back[k] for k in form.order]))
            results.append(op)
            forms.append(form)
        written = {}
        for n in writes:
            if n.args[0] not in reading.holes:
                reading.hole(n.args[0])
            hole, _ = reading.holes[n.args[0]]
            with at_line_of(n.args[1]):
                written[hole] = reading.like(n.args[1], hole)
        written |= self.besides(reading)
        used = used_holes([*results, *written.values()], [op for op, _ in reading.holes.values()]) | written.keys()
        holes = {n: hole for n, hole in reading.holes.items() if hole[0] in used}
        laid = {op: laid[op] for op in results} | dict(holes.values())
        orders = {op: [op.axes[k] for k in order] for op, order in laid.items() if order != tuple(range(len(order)))}
        states = {op: n for n, op in reading.states.items()}
        lengths = reading.lengths([op for op, _ in holes.values()])
        parameters = [*[op for op, _ in holes.values()], *self.extra, *lengths.values()]
        computation = self.transformer.computation(results, *parameters, writes=written, orders=orders, array_type=torch.Tensor)
        self.computations.append(computation)
        settings = {**self.settings, "lengths": "open" if reading.g.symbols else "first"}
        node_of = {op: n for n, (op, _) in holes.items()}
        takes, targets = [slot_of[x] for x in (*holes, *self.extra)], [slot_of[node_of.get(op, op)] for op in written]
        frozen = [slot_of[states[op]] for op in computation.variables]
        return OurStep(computation, takes, list(lengths), forms, targets, len(ours), settings, frozen)

    def besides(self, reading: Reading) -> dict[Any, Any]:
        """Returns what the segment writes beside what the graph writes: values by placeholder, of `reading` or of `extra`."""
        return {}

    def _result(self, reading: Reading, node: Node, slot: int) -> tuple[Any, Result, tuple[int, ...]]:
        """Returns a node's tensor as an op, the way from its array, and the order of the op's axes in memory."""
        val = node.meta["val"]
        if node in self.laid:
            return reading.op(node, range(val.ndim)), Result(slot, None, None, None), self.laid[node]
        order = memory_order(val)
        strides = [hint(s) for s in val.stride()]
        gone = [k for k, s in enumerate(strides) if s == 0 and not (isinstance(val.shape[k], int) and val.shape[k] <= 1)]
        plain = order == tuple(range(len(order)))
        empty = any(isinstance(n, int) and n == 0 for n in val.shape)
        if gone and not empty:
            place = tuple([order.index(k) for k in range(len(order))])
            shape = tuple([self._length(reading, n) for n in val.shape])
            op = reading.op(node, order, gone)
            return op, Result(slot, None if plain else place, shape, None), tuple(range(len(op.axes)))
        stride = None
        if empty:
            stride = tuple(strides)
        elif not any(private.unbacked(n) for n in (*val.shape, *val.stride())):
            dense = 1
            for k in reversed(order):
                if not private.surely(val.shape[k] == 1) and not private.surely(val.stride(k) == dense):
                    stride = tuple([self._length(reading, n) for n in val.stride()])
                dense = dense * val.shape[k]
        return reading.op(node, range(len(order))), Result(slot, None, None, stride), order

    def _length(self, reading: Reading, n: Any) -> Any:
        length = reading.g.length(n)
        return length if isinstance(length, int) else Length(length)

    def _torch(self, node: Node, slot_of: Mapping[Any, int]) -> TorchStep:
        target = torch.ops.aten.reshape.default if name_of(node) == "aten.view.default" else node.target
        args, named = self._argument(node.args, slot_of), self._argument(node.kwargs, slot_of)
        return TorchStep(target, args, named, slot_of[node])

    def _argument(self, a: Any, slot_of: Mapping[Any, int]) -> Any:
        if isinstance(a, Node):
            if self.kind[a] == "write":
                a = a.args[0]
            if self.kind[a] == "length":
                return Length(self.reading.g.length(a.meta["val"]))
            return TensorSlot(slot_of[a])
        if isinstance(a, (list, tuple)):
            found = [self._argument(x, slot_of) for x in a]
            return tuple(found) if type(a) is tuple else found
        if isinstance(a, dict):
            return {k: self._argument(v, slot_of) for k, v in a.items()}
        if isinstance(a, torch.SymInt):
            return Length(self.reading.g.length(a))
        return a

    def _free(self, steps: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Says after which step each slot is needed no more."""
        last: dict[int, int] = {}
        for k, step in enumerate(steps):
            last.update(dict.fromkeys(step.slots, k))
        for slot in (*(s.number for s in slots_in(outputs)), *(k for k, _ in self.symbols.values())):
            last.pop(slot, None)
        for k, step in enumerate(steps):
            step.free = tuple([slot for slot, n in last.items() if n == k])


def symbols_in(node: Node) -> set[str]:
    """Returns the symbols in the lengths of a node's value."""
    val = node.meta.get("val")
    lengths = [val] if isinstance(val, SYMBOLIC) else [n for t in tensors_in(val) for n in t.shape]
    return {str(e) for n in lengths if isinstance(n, SYMBOLIC) for e in n.node.expr.free_symbols}


def is_tensor(node: Node) -> bool:
    """Whether a node's value is a tensor; that of a body is a graph."""
    return isinstance(node.meta.get("val"), torch.Tensor)


def is_length(node: Node) -> bool:
    """Whether a node's value is a length, or a number that may follow from some."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat))


def used_holes(results: Sequence[Any], holes: Sequence[Any]) -> set[Any]:
    """Those placeholders that results are made of."""
    every = set(ops_of(results))
    return {h for h in holes if h in every}


def can_be_state(node: Node) -> bool:
    """Whether an input can be state: dense, of known lengths, of a dtype of ours, and not written."""
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor) or unfit(val) or not all(isinstance(n, int) for n in (*val.shape, *val.stride())):
        return False
    dense = 1
    for k in reversed(memory_order(val)):
        if val.shape[k] != 1 and val.stride(k) != dense:
            return False
        dense *= val.shape[k]
    return not any(writes_input(user) and user.args[0] is node for user in node.users)


def base_name(name: str) -> str:
    """The op of an overload: `aten.add` of `aten.add.Tensor`."""
    return name.rpartition(".")[0]


def is_view(node: Node) -> bool:
    """Whether a node gives a view of its first argument, several, or one of several."""
    return base_name(name_of(node)) in VIEWS or node.target is operator.getitem and is_view(node.args[0])


def writes_input(node: Node) -> bool:
    """Whether a node writes a value into an input of the graph: what AOTAutograd makes of all writes."""
    if node.target is not torch.ops.aten.copy_.default or len(node.args) != 2 or any(u.op != "output" for u in node.users):
        return False
    target, source = node.args
    if not (isinstance(target, Node) and target.op == "placeholder" and isinstance(source, Node)):
        return False
    a, b = target.meta.get("val"), source.meta.get("val")
    return isinstance(b, torch.Tensor) and isinstance(a, torch.Tensor) and a.dtype is b.dtype and tuple(a.shape) == tuple(b.shape)


def take_views_of_inputs(gm: GraphModule) -> None:
    """Makes outputs of open lengths that are views of what is written into an input views of the input.

    AOTAutograd takes their strides and where they begin in memory, and makes them of its input.
    """
    nodes, output = gm.graph, gm.graph.output_node()
    target_of = {n.args[1]: n.args[0] for n in nodes.nodes if writes_input(n)}
    for node in output.all_input_nodes if target_of else ():
        chain = [node]
        while is_view(chain[-1]) and chain[-1] not in target_of:
            chain.append(chain[-1].args[0])
        source = chain.pop()
        if source not in target_of or not chain or not has_open_lengths(node.meta.get("val")):
            continue
        now = {source: target_of[source]}
        with nodes.inserting_before(output):
            for n in reversed(chain):
                now[n] = nodes.node_copy(n, lambda a, now=now: now.get(a, a))
        output.replace_input_with(node, now[node])


def has_open_lengths(val: Any) -> bool:
    """Whether a tensor has a length, a stride or a beginning in memory that comes with calls."""
    return isinstance(val, torch.Tensor) and not all(isinstance(n, int) for n in (*val.shape, *val.stride(), val.storage_offset()))


def ordered(node: Node) -> bool:
    """Whether a node has to keep its place among others: it draws random numbers, or writes."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return isinstance(target, torch._ops.HigherOrderOperator)
    return torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable


def bytes_of(val: Any) -> int:
    """Bytes of the tensors of a node, in the call that is being compiled."""
    return sum(int(np.prod([hint(n) for n in t.shape], dtype=np.int64)) * t.dtype.itemsize for t in tensors_in(val))
