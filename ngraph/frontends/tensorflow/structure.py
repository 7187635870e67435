"""Control flow of TensorFlow 1 as the nodes While and If, whose bodies are functions.

TensorFlow 1 has no nodes with bodies. `Switch` sends a value one of two ways and leaves the other one dead; `Merge` gives the input that is
alive. A loop is a frame: `Enter` brings values in, `Exit` takes them out, and a `Merge` of a start and a `NextIteration` is what a turn
begins with ("Implementation of Control Flow in TensorFlow", Google, 2017). Here each frame becomes a While, from the innermost outwards,
and then the merges of one predicate become an If. What is left, such as a merge of two predicates, is decided in each call by values that
are dead (`graph.DEAD`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ngraph.errors import ParseError, UnsupportedError
from ngraph.frontends.positional.walk import in_order
from ngraph.frontends.tensorflow.dtypes import make_constant
from ngraph.frontends.tensorflow.graph import (
    HANDLES,
    REFERENCED,
    WRITERS,
    FunctionLibrary,
    GraphBody,
    Node,
    functions_in,
    handed_on,
    has_results,
    node_of,
)
from ngraph.frontends.tensorflow.messages import classes
from ngraph.parts.walk import closure

PRIMITIVES = frozenset(f"{ref}{op}" for ref in ("", "Ref") for op in ("Switch", "Merge", "Enter", "Exit", "NextIteration")) | {"LoopCond"}
PASSING = PRIMITIVES | {"Identity", "RefIdentity"}  # ops that hand their first input on

Nodes = dict[str, Node]


def structured(body: GraphBody, library: FunctionLibrary) -> GraphBody:
    """Returns a body whose loops and branches are While and If nodes; their functions are added to the library.

    Raises ParseError for a frame that is not a loop.
    """
    body = _reading_late(body)
    if not any(node.op in PRIMITIVES for node in body.nodes.values()):
        return _without_idle(body, library)
    for node in body.nodes.values():
        there = all(node_of(t) in body.nodes or t in body.takes for t in node.takes)
        if node.op in PASSING and (not there or len(node.takes) < (2 if primitive(node) == "Switch" else 1)):
            raise ParseError(f"node {node.name!r} ({node.op}) lacks an input", fix="is the file damaged?")
    nodes = _without_loops(_without_stacks(dict(body.nodes)), body.name, library)
    nodes = _without_branches(nodes, body.name, library)
    return _without_idle(GraphBody(body.name, list(nodes.values()), body.takes, body.gives, body.wanted), library)


def _reading_late(body: GraphBody) -> GraphBody:
    """Returns a body whose nodes behind a write of a variable of TensorFlow 1 take the variable itself, where they take what was read.

    What such a variable is read as shares its memory, which is written in place: who runs after the write sees what was written.
    """
    nodes = body.nodes
    bits = {name: 1 << k for k, name in enumerate([n.name for n in nodes.values() if n.op in REFERENCED])}
    if not bits or not any(n.op.startswith(WRITERS) for n in nodes.values()):
        return body
    found, before, through = dict(nodes), dict[str, int](), {n.op for n in nodes.values() if n.op.startswith(WRITERS)} | {"RefIdentity"}
    for node in _ordered(nodes):
        written = 0  # the variables that were written before
        for name in _before(node):
            written |= before.get(name, 0)
        if written:
            sources = [handed_on(nodes, t) for t in node.takes]
            takes = [s if written & bits.get(node_of(s), 0) else t for t, s in zip(node.takes, sources, strict=True)]
            behind = [node_of(t) for t, s in zip(node.takes, takes, strict=True) if t != s]  # the write may be what only the read waits for
            found[node.name] = Node(node.proto, takes, [*node.after, *behind])
        if node.op in through:
            for t in node.takes:
                written |= bits.get(node_of(handed_on(nodes, t, through)), 0)
        before[node.name] = written
    return GraphBody(body.name, list(found.values()), body.takes, body.gives, body.wanted)


def primitive(node: Node | None) -> str:
    """Returns a node's op where it is one of control flow, for references to variables as for values; "" for another one."""
    return node.op.removeprefix("Ref") if node is not None and node.op in PRIMITIVES else ""


def _ordered(nodes: Nodes, wanted: Iterable[str] | None = None) -> list[Node]:
    """Returns the nodes that are wanted, each behind those that it needs, but for what the last turn of a loop gives."""

    def takes(node: Node) -> list[str]:
        return [node_of(t) for t in node.takes if primitive(nodes.get(node_of(t))) != "NextIteration"]

    return in_order(list(nodes.values()), takes, lambda n: [n.name], lambda n: n.after, wanted)


def _new_node(op: str, name: str, takes: Sequence[str], after: Iterable[str] = (), **functions: str) -> Node:
    """Returns a node of a new name and op; functions: its attributes that are functions, by name."""
    proto = classes()["NodeDef"](name=name, op=op)
    for key, function in functions.items():
        proto.attr[key].func.name = function
    return Node(proto, list(takes), list(after))


def _int_node(name: str, number: int) -> Node:
    """Returns a Const of one int32."""
    proto = classes()["NodeDef"](name=name)
    make_constant(proto, np.array(number, np.int32))
    return Node(proto, [], [])


def _body(nodes: Nodes, name: str, takes: Sequence[str], gives: Sequence[str], library: FunctionLibrary) -> None:
    """Adds the function of these nodes to the library, with what its results need, and its branches as If nodes."""
    needed = {n.name: n for n in _ordered(nodes, map(node_of, gives))}
    inside = {n.name: Node(n.proto, n.takes, [a for a in n.after if a in needed]) for n in needed.values()}
    library.add(_without_idle(GraphBody(name, list(_without_branches(inside, name, library).values()), takes, gives), library))


def _handle_of(nodes: Mapping[str, Node], value: str) -> Node | None:
    """Returns the node that makes a variable's handle, where a value is one that was handed on."""
    node = nodes.get(node_of(handed_on(nodes, value, PASSING)))
    return node if node is not None and node.op in HANDLES else None


def _decides(nodes: Mapping[str, Node], switch: Node | None) -> str:
    """Returns the value that decides a switch, as it is made; "" for another node."""
    return handed_on(nodes, switch.takes[1]) if switch is not None and primitive(switch) == "Switch" else ""


# ---- nodes that are run for their order alone --------------------------------------------------------------------------------

CHECKS = frozenset({"Assert", "NoOp", "ControlTrigger", "Print", "PrintV2", "StackCloseV2", "TensorArrayCloseV3", "DisableCopyOnRead"})
# How ops begin that read what others write, or have effects outside of variables.
OUTSIDE = tuple("ReadVariableOp VariableShape LookupTable InitializeTable Iterator Save Restore".split())
OUTSIDE += tuple("PyFunc EagerPyFunc Queue Write Barrier Send Outfeed".split())


def _without_idle(body: GraphBody, library: FunctionLibrary) -> GraphBody:
    """Returns a body whose nodes wait for none that only computes, such as what an Assert would check, but for those that it waits for."""
    nodes = body.nodes
    if not any(node.after for node in nodes.values()) or any(node.op in PRIMITIVES for node in nodes.values()):
        return body  # waiting for what is dead makes dead
    acting, last = list[str](), dict[str, int]()  # the nodes that do something; the last of them before or at each node, as bits
    found = dict(nodes)

    def named(bits: int) -> list[str]:
        names = []
        while bits:
            names.append(acting[bits.bit_length() - 1])
            bits ^= 1 << (bits.bit_length() - 1)
        return names[::-1]

    for node in _ordered(nodes):
        waits = every = 0
        for name in node.after:
            waits |= last.get(name, 0)
        for name in _before(node):
            every |= last.get(name, 0)
        if node.op == "Assert":
            found[node.name] = Node(node.proto, [], named(every))
        elif node.after:
            found[node.name] = Node(node.proto, node.takes, named(waits))
        if _acts(node, nodes, library):
            every = 1 << len(acting)
            acting.append(node.name)
        last[node.name] = every
    return GraphBody(body.name, list(found.values()), body.takes, body.gives, body.wanted)


def _acts(node: Node, nodes: Nodes, library: FunctionLibrary) -> bool:
    """Returns whether a node reads or writes what others write, or has another effect, itself or by what it calls."""
    if node.op in library:
        return True
    for body in (library.made(name) for name in functions_in(node)[1:] if name):
        if body is None or any(_acts(n, body.nodes, library) for n in body.nodes.values()):
            return True
    if node.op.startswith((*WRITERS, *OUTSIDE)) or not (node.op in CHECKS or has_results(node.op)):
        return True
    return any(t in nodes and nodes[t].op in REFERENCED for t in map(node_of, node.takes))


# ---- stacks --------------------------------------------------------------------------------------------------------------


class _Level(NamedTuple):
    """A loop that a stack enters on its way to a push or pop, None outside of all, and the branches that it enters there.

    branches  predicate and side, the innermost first
    """

    enter: Node | None
    branches: list[tuple[str, int]]


def _origin(nodes: Nodes, value: str) -> Node | None:
    """Returns the node that makes a value, outside of the loops and branches that it enters."""
    return nodes.get(node_of(handed_on(nodes, value, ("Enter", "Identity", "Switch"))))


def _levels(nodes: Nodes, value: str) -> list[_Level]:
    """Returns the loops that a value enters, the innermost first, and last what is outside of them.

    A branch belongs to the loop in which its predicate is made: a derivative's pops take it within inner loops.
    """
    enters, switches = list[Node](), list[tuple[int, str, int]]()
    while (node := nodes.get(node_of(value := handed_on(nodes, value)))) is not None and node.op in ("Enter", "Switch"):
        if node.op == "Enter":
            enters.append(node)
        else:
            predicate, level = node.takes[1], len(enters)
            while (entered := nodes.get(node_of(handed_on(nodes, predicate)))) is not None and entered.op == "Enter":
                predicate, level = entered.takes[0], level + 1
            switches.append((level, predicate, int(value.rpartition(":")[2])))
        value = node.takes[0]
    return [_Level(e, [(p, side) for at, p, side in switches if at == k]) for k, e in enumerate((*enters, None))]


def _optional(nodes: Nodes, value: str, name: str, branches: Sequence[tuple[str, int]]) -> str:
    """Returns a value outside of these branches, as an optional that has none where they are not taken."""
    for k, (predicate, side) in enumerate(branches):
        here = f"{name}/{k}"
        for node in (
            _new_node("OptionalFromValue", f"{here}/some", [value]),
            _new_node("OptionalNone", f"{here}/none", [], [node_of(predicate)]),  # in the loop that the predicate stands in
            _new_node("Switch", f"{here}/switch", [f"{here}/none:0", predicate]),
            _new_node("Merge", f"{here}/merge", [f"{here}/some:0", f"{here}/switch:{1 - side}"]),
        ):
            nodes[node.name] = node
        value = f"{here}/merge:0"
    return value


def _of_optional(nodes: Nodes, value: str, name: str, branches: Sequence[tuple[str, int]], dtype: int) -> str:
    """Returns within these branches the value of an optional, as the node `name`. dtype: the number of the value's."""
    for k, (predicate, side) in reversed(list(enumerate(branches))):
        switch = _new_node("Switch", f"{name}/switch {k}", [value, predicate])
        nodes[switch.name], value = switch, f"{switch.name}:{side}"
    get = nodes[name] = _new_node("OptionalGetValue", name, [value])
    get.proto.attr["output_types"].list.type.append(dtype)
    return f"{name}:0"


def _frame(enter: Node) -> str:
    """Returns the name of the frame that a node enters."""
    return enter.proto.attr["frame_name"].s.decode("utf-8", "replace")


def _counters(nodes: Nodes, users: Sequence[Node], *ops: str) -> dict[str, Node]:
    """Returns the node that counts the turns of a frame, by the frame's name, where users of a stack stand; ops: of such nodes."""
    found: dict[str, Node] = {}
    for user in users:
        node: Node | None = user
        ordered = list[str]()  # by the op itself, or by the branch that it takes the stack from
        while node is not None and (node is user or node.op in ("Switch", "Identity")):
            ordered += node.after
            node = nodes.get(node_of(node.takes[0]))
        counts = [nodes[a] for a in ordered if a in nodes and nodes[a].op in ops]
        enter = _levels(nodes, user.takes[0])[0].enter
        if counts and enter is not None:
            found[_frame(enter)] = counts[0]
    return found


def _not_read(said: str) -> UnsupportedError:
    """Returns the error for derivatives of loops that are not read."""
    return UnsupportedError(f"{said}: such derivatives are not read", fix="export the graph with tf.compat.v1.enable_control_flow_v2()")


def _without_stacks(nodes: Nodes) -> Nodes:
    """Returns the nodes with lists for stacks: a push sets the place of its loop's counter, a pop reads that of the derivative's.

    TensorFlow 1 derives a loop by another one, whose counter runs down from the first one's last; pushes run before the counter is
    increased, and pops behind its decrease. A stack that is filled in a loop within another one becomes a list for each turn of the
    outer loop, in a list of these; what is pushed in a branch becomes an optional, which each turn of its loop has, and an outer list has
    nothing for a turn whose branch has no inner list. What is popped for its order alone is neither pushed nor popped.
    """
    pushes, pops = ([n for n in nodes.values() if n.op == op] for op in ("StackPushV2", "StackPopV2"))
    if pushes or pops:
        _ordered(nodes)  # raises an error for a cycle
    exits: dict[str, tuple[str, list[bool]]] = {}  # the list that a loop leaves, and in which of its loops values are optional
    read = {node_of(handed_on(nodes, t)) for n in nodes.values() if n.op != "Identity" for t in n.takes}
    used = {stack.name for p in pops if p.name in read and (stack := _origin(nodes, p.takes[0])) is not None}
    handed = [(n, node_of(handed_on(nodes, n.takes[0]))) for n in nodes.values() if n.op == "Identity" and n.takes]
    rising, falling = _counters(nodes, pushes, "Add", "AddV2"), _counters(nodes, pops, "Sub")
    for push in pushes:
        stack, levels = _origin(nodes, push.takes[0]), _levels(nodes, push.takes[0])[:-1]
        nodes[push.name] = _new_node("Identity", push.name, push.takes[1:2], push.after)
        if stack is None or stack.name not in used:
            continue
        counts = [rising.get(_frame(level.enter)) for level in levels if level.enter is not None]
        switches = [None if count is None else nodes.get(node_of(handed_on(nodes, count.takes[0]))) for count in counts]
        if not levels or stack.name in exits or any(s is None or s.op != "Switch" for s in switches):
            raise _not_read(f"node {push.name!r} pushes in no loop that counts")
        value, name = push.takes[1], f"{push.name}/list"
        for k, ((enter, branches), count, switch) in enumerate(zip(levels, counts, switches, strict=True)):
            assert enter is not None and count is not None and switch is not None
            if k and branches:
                stacked = nodes[f"{name}/stacked"] = _new_node("TensorListStack", f"{name}/stacked", [value])
                value = f"{stacked.name}:0"
            value = _optional(nodes, value, f"{name}/kept", branches)
            start = _new_node("Enter", f"{name}/enter", enter.takes)
            start.proto.attr["frame_name"].s = enter.proto.attr["frame_name"].s
            for node in (
                start,
                _new_node("Merge", f"{name}/merge", [f"{name}/enter:0", f"{name}/next:0"]),
                _new_node("Switch", f"{name}/switch", [f"{name}/merge:0", switch.takes[1]]),
                _new_node("TensorListPushBack", name, [f"{name}/switch:1", value]),
                _new_node("NextIteration", f"{name}/next", [f"{name}:0"]),
                _new_node("Exit", f"{name}/exit", [f"{name}/switch:0"]),
            ):
                nodes[node.name] = node
            value, name = f"{name}/exit:0", f"{name}/list"
        exits[stack.name] = value, [bool(level.branches) for level in levels]
    for pop in pops:
        stack, levels = _origin(nodes, pop.takes[0]), _levels(nodes, pop.takes[0])[:-1]
        if stack is not None and stack.name not in used:
            for node in (pop, *(n for n, source in handed if source == pop.name)):
                nodes[node.name] = _new_node("NoOp", node.name, [], node.after)
            continue
        frames = [_frame(level.enter) for level in levels if level.enter is not None]
        if stack is None or not levels or stack.name not in exits or not falling.keys() >= set(frames):
            raise ParseError(f"node {pop.name!r} pops in no loop that counts down", fix="is the file damaged?")
        value, kept = exits[stack.name]
        if len(kept) != len(levels):
            raise _not_read(f"node {pop.name!r} pops in {len(levels)} loops what {len(kept)} have pushed")
        for k in reversed(range(len(levels))):
            enter, branches = levels[k]
            assert enter is not None
            nodes[enter.name] = Node(enter.proto, [value], enter.after)
            name = f"{pop.name}/list {k}" if k else pop.name
            item = f"{name}/item" if kept[k] else name
            takes = [f"{enter.name}:0", f"{falling[_frame(enter)].name}:0"]
            nodes[item] = _new_node("TensorListGetItem", item, takes, () if k or kept[k] else pop.after)
            value = f"{item}:0"
            if kept[k] and k:
                nodes[name] = _new_node("TensorListFromTensor", name, [value])
                value = f"{name}:0"
            elif kept[k]:
                value = _of_optional(nodes, value, name, branches, pop.proto.attr["elem_type"].type)
    return nodes


# ---- loops --------------------------------------------------------------------------------------------------------------


def _frames(nodes: Nodes) -> dict[str, tuple[str, ...]]:
    """Returns the frames around each node by their names, the outermost first."""
    found: dict[str, tuple[str, ...]] = {}
    for node in _ordered(nodes):
        before = [nodes[name] for name in _before(node) if name in found]
        around = max((found[b.name][: -1 if primitive(b) == "Exit" else None] for b in before), key=len, default=())
        if primitive(node) == "Enter":
            around = (*around, _frame(node))
        found[node.name] = around
    return found


def _without_loops(nodes: Nodes, name: str, library: FunctionLibrary) -> Nodes:
    frames = _frames(nodes)
    for frame in sorted({f for f in frames.values() if f}, key=len, reverse=True):
        members = {n: nodes[n] for n, f in frames.items() if f == frame and n in nodes}
        for node in _loop(nodes, members, f"{name}/{'/'.join(frame)}", library):
            frames[node.name] = frame[:-1]
            nodes[node.name] = node
    return nodes


def _loop(nodes: Nodes, members: Nodes, name: str, library: FunctionLibrary) -> list[Node]:
    """Returns the While of a frame, and for each Exit a node of its name; takes the frame's nodes away.

    The loop carries what its merges give, and behind these the values that no turn changes.
    """
    of = {kind: [m for m in members.values() if primitive(m) == kind] for kind in ("Enter", "Merge", "Switch", "Exit", "LoopCond")}
    if len(of["LoopCond"]) != 1:
        raise ParseError(f"the loop {name} has {len(of['LoopCond'])} conditions", fix="is the file damaged?")
    (condition,) = of["LoopCond"]
    turns = [m for m in of["Merge"] if any(primitive(nodes.get(node_of(t))) == "NextIteration" for t in m.takes)]
    starts, nexts, alias, entered = list[str](), list[str](), dict[str, str](), set[str]()
    exits: dict[str, int] = {}
    for k, merge in enumerate(turns):
        sources = {primitive(nodes.get(node_of(t))): nodes[node_of(t)] for t in merge.takes if node_of(t) in nodes}
        if set(sources) != {"Enter", "NextIteration"}:
            raise ParseError(f"node {merge.name!r} of the loop {name} has no start, or no next value", fix="is the file damaged?")
        starts.append(sources["Enter"].takes[0])
        nexts.append(sources["NextIteration"].takes[0])
        entered.add(sources["Enter"].name)
        ways = [s for s in of["Switch"] if node_of(s.takes[0]) == merge.name and node_of(s.takes[1]) == condition.name]
        alias.update({f"{s.name}:1": f"{merge.name}/turn:0" for s in ways})
        exits.update({e.name: k for e in of["Exit"] for s in ways if handed_on(nodes, e.takes[0]) == f"{s.name}:0"})
    constants = [e for e in of["Enter"] if e.name not in entered]
    outside = [a for n in members.values() for a in n.after if a not in members]
    own = {m.name for m in turns} | {s.name for s in of["Switch"] if node_of(s.takes[1]) == condition.name}
    left = {n: m for n, m in members.items() if not primitive(m) or (primitive(m) in ("Switch", "Merge") and n not in own)}
    for e in list(constants):  # a variable is written under its own name
        handle = _handle_of(nodes, e.takes[0])
        if handle is not None:
            constants.remove(e)
            alias[f"{e.name}:0"] = f"{handle.name}:0"
            left[handle.name] = handle
    inside = {n: Node(m.proto, [alias.get(t, t) for t in m.takes], m.after) for n, m in left.items()}
    kept = [f"{e.name}:0" for e in constants]
    _body(inside, f"{name}.cond", [*(f"{m.name}:0" for m in turns), *kept], [condition.takes[0]], library)
    given = [alias.get(v, v) for v in nexts]
    _body(inside, f"{name}.body", [*(f"{m.name}/turn:0" for m in turns), *kept], [*given, *kept], library)
    takes = [*starts, *(e.takes[0] for e in constants)]
    loop = _new_node("While", f"{condition.name}/While", takes, dict.fromkeys(outside), cond=f"{name}.cond", body=f"{name}.body")
    for n in members:
        del nodes[n]
    missing = [e.name for e in of["Exit"] if e.name not in exits]
    if missing:
        raise ParseError(f"node {missing[0]!r} leaves no loop", fix="is the file damaged?")
    return [loop, *(_new_node("Identity", e, [f"{loop.name}:{k}"]) for e, k in exits.items())]


# ---- branches -----------------------------------------------------------------------------------------------------------


class Joined(NamedTuple):
    """A merge, the predicate that decides it, its input on each side, and what stands between on each side."""

    merge: Node
    predicate: str
    inputs: dict[int, str]
    between: dict[int, dict[str, None]]


def _without_branches(nodes: Nodes, name: str, library: FunctionLibrary) -> Nodes:
    todo = [n for n in _ordered(nodes) if primitive(n) == "Merge"]
    decided = set[str]()
    while todo:
        first, *todo = todo
        found = _joined(nodes, first)
        if found is None:
            continue
        group, names = [found], {first.name}
        for other in list(todo):
            more = _joined(nodes, other)
            if more is not None and more.predicate == found.predicate and not _needs(nodes, other, names):
                group.append(more)
                names.add(other.name)
                todo.remove(other)
        decided.add(found.predicate)
        for node in _branch(nodes, group, f"{name}/{first.name}", library):
            nodes[node.name] = node
    return _without_ends(nodes, decided)


def _joined(nodes: Nodes, merge: Node) -> Joined | None:
    """Returns how a merge is decided; None where that is not by one predicate."""
    if len(merge.takes) != 2:
        return None
    sides, between = list[set[tuple[str, int]]](), list[dict[str, None]]()
    for value in merge.takes:
        ends, found = set[tuple[str, int]](), dict[str, None]()
        todo = [value]
        while todo:
            v = todo.pop()
            node = nodes.get(node_of(v))
            if node is None or node.name in found:
                continue
            if primitive(node) == "Switch":
                side = int(v.rpartition(":")[2])
                if side > 1:
                    return None
                ends.add((_decides(nodes, node), side))
            elif primitive(node):
                return None
            else:
                found[node.name] = None
                todo += [*node.takes, *(f"{a}:0" for a in node.after if primitive(nodes.get(a)) != "Switch")]
        sides.append(ends)
        between.append(found)
    predicates = {p for ends in sides for p, _ in ends}
    if len(predicates) != 1 or any(len(ends) > 1 for ends in sides):
        return None
    way = [next((side for _, side in ends), None) for ends in sides]
    first = way[0] if way[0] is not None else 1 - (way[1] or 0)
    if way[1] == first:
        return None
    inputs = {first: merge.takes[0], 1 - first: merge.takes[1]}
    return Joined(merge, predicates.pop(), inputs, {first: between[0], 1 - first: between[1]})


def _before(node: Node) -> list[str]:
    """Returns the names of nodes that come before a node."""
    return [*map(node_of, node.takes), *node.after]


def _needs(nodes: Nodes, node: Node, names: set[str]) -> bool:
    """Returns whether a node needs one of these, over any number of others."""
    return not names.isdisjoint(closure([node.name], lambda name: _before(nodes[name]) if name in nodes else ()))


def _branch(nodes: Nodes, group: Sequence[Joined], name: str, library: FunctionLibrary) -> list[Node]:
    """Returns the If of merges that one predicate decides, and for each merge a node of its name."""
    predicate, given, before = group[0].predicate, dict[str, str](), dict[str, None]()

    def inside(side: int) -> tuple[Nodes, list[str]]:
        members = _behind(nodes, {n for j in group for n in j.between[side]}, predicate)
        made: Nodes = {}

        def value(v: str) -> str:
            node = nodes.get(node_of(v))
            if node is not None and node.name in members:
                return v
            while node is not None and _decides(nodes, node) == predicate:
                v = node.takes[0]
                node = nodes.get(node_of(v))
            handle = _handle_of(nodes, v)
            if handle is not None:
                made[handle.name] = handle
                return f"{handle.name}:0"
            return given.setdefault(v, f"argument {len(given)}:0")

        for m in members:
            node = nodes[m]
            before.update({a: None for a in node.after if a not in members and primitive(nodes.get(a)) != "Switch"})
            made[m] = Node(node.proto, [value(t) for t in node.takes], node.after)
        return made, [value(j.inputs[side]) for j in group]

    ways = [inside(side) for side in (1, 0)]
    functions = [f"{name}.true", f"{name}.false"]
    for function, (made, gives) in zip(functions, ways, strict=True):
        _body(made, function, list(given.values()), gives, library)
    choice = _new_node("If", f"{name}/If", [predicate, *given], before, then_branch=functions[0], else_branch=functions[1])
    found = [choice]
    for k, j in enumerate(group):
        places = [_int_node(f"{j.merge.name}/input {side}", j.merge.takes.index(j.inputs[side])) for side in (1, 0)]
        index = _new_node("SelectV2", f"{j.merge.name}/index", [predicate, *(f"{p.name}:0" for p in places)])
        found += [*places, index, _new_node("IdentityN", j.merge.name, [f"{choice.name}:{k}", f"{index.name}:0"])]
    return found


def _behind(nodes: Nodes, names: set[str], predicate: str) -> dict[str, None]:
    """Returns those of the names, in order, that need a switch of this predicate."""
    found: dict[str, None] = {}
    for node in _ordered({n: nodes[n] for n in names}):
        if any(n in found or _decides(nodes, nodes.get(n)) == predicate for n in _before(node)):
            found[node.name] = None
    return found


def _without_ends(nodes: Nodes, decided: set[str]) -> Nodes:
    """Returns the nodes without those that only stand between the switches and the merges that have become branches."""
    gone: dict[str, None] = {}
    for node in _ordered(nodes):
        starts = _decides(nodes, node) in decided
        if starts or any(n in gone for n in _before(node)):
            if not starts and primitive(node) == "Merge":
                return nodes  # decided in each call, by what is dead
            gone[node.name] = None
    return {n: node for n, node in nodes.items() if n not in gone}
