"""The verifier of programs (docs/spec.md 2): `verify` names the step, the rule that it violates, and what disagreed.

A rule is a function that returns a complaint or None; the tables below list them all. It uses the op records alone, so it applies to
records, passes and transformers of other packages, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ngraph.errors import NgraphError, ProgramError
from ngraph.op_graph import expr
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.axes import Clash
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Bin, Expr, Idx, Len, Run
from ngraph.op_graph.op import TensorType
from ngraph.op_graph.opdef import REGISTRY, find
from ngraph.program.program import AxisId, Program, Step, Value
from ngraph.program.text import step_text

Complaint = str | None


def verify(program: Program, full: bool = True, body: bool = False) -> Program:
    """Returns the program itself, if it is valid. `full=False` omits the records' type rules, which take most of the time.

    `body`: it is what a loop or a choice runs, which may carry a token. Raises ProgramError that names the step, the rule, and both sides.
    """
    _Check(program, full, body=body).run()
    return program


class _Check:
    """The state of one verification of a (sub-)program."""

    def __init__(self, program: Program, full: bool, outer: _Check | None = None, body: bool = False):
        self.program, self.full, self.outer, self.body = program, full, outer, body or outer is not None
        self.known: set[Value] = set()  # values defined so far
        self.spent: set[Value] = set()  # tokens consumed so far
        self.sound: set[TensorType] = set()  # types that passed
        self.bodies: dict[int, Program] = outer.bodies if outer else {}  # bodies that passed; several steps may share one

    def run(self) -> None:
        p = self.program
        for rule, check in PROGRAM_INVARIANTS.items():
            self.demand(rule, check(self))
        checks = [*STEP_INVARIANTS.items(), *(TYPE_INVARIANTS.items() if self.full else ())]
        for v in p.sources():
            self.demand("a value is defined once", f"{_show(v)} occurs twice among inputs, states and token" if v in self.known else None)
            self.known.add(v)
        for step in p.steps:
            for rule, check in checks:
                complaint = check(self, step)
                if complaint is not None:
                    self.demand(rule, complaint, step)
            self.known.update(step.results)
        for rule, check in END_INVARIANTS.items():
            self.demand(rule, check(self))

    def demand(self, rule: str, complaint: Complaint, step: Step | None = None) -> None:
        if complaint is None:
            return
        p = self.program
        origin = next((o for o in step.origin if o.file), None) if step is not None else None
        where = "" if step is None else f", step {next(n for n, s in enumerate(p.steps) if s is step)} ({step.op})"
        raise ProgramError(
            f"program {p.name}{where} violates the rule that {rule}: {complaint}",
            details=() if step is None else tuple(step_text(p, step).splitlines()),
            line=(origin.file, origin.line) if origin else None,
        )

    def type_complaint(self, v: Value) -> Complaint:
        """Returns the violation in a value's type, considered alone."""
        t = v.type
        if t in self.sound:
            return None
        if type(t) is not TensorType or type(t.dtype) is not DType or type(t.axes) is not tuple:
            return f"{_show(v)} has no type of axes and dtype"
        unlisted = [a for a in t.axes if a not in self.program.axes]
        if unlisted:
            return f"{_show(v)} has the axes {', '.join(map(str, unlisted))}, which the program does not list"
        if len(set(t.axes)) != len(t.axes):
            return f"{_show(v)} has an axis twice"
        if t.dtype.kind == "token" and t.axes:
            return f"{_show(v)} is a token with axes"
        self.sound.add(t)
        return None


def _show(v: Any) -> str:
    return f"{v.hint or 'a value'} ({getattr(v, 'type', '?')})" if type(v) is Value else repr(v)


# ---- rules of a program -----------------------------------------------------------------------------------------------


def _lengths(c: _Check) -> Complaint:
    axes = c.program.axes
    for a, length in axes.items():
        if type(a) is not AxisId:
            return f"{a!r} is a {type(a).__name__}, no AxisId"
        if type(length) is int:
            if length < 0:
                return f"{a} has length {length}"
        elif not isinstance(length, Expr):
            return f"{a} has {length!r} for a length"
        else:
            for leaf in expr.leaves(length):
                if type(leaf) is Idx:
                    return f"the length of {a} depends on an index: {length!r}"
                if type(leaf) is Len and leaf.of not in axes:
                    return f"the length of {a} depends on {leaf.of}, which the program does not list"
    return _circle(axes)


def _circle(axes: dict[AxisId, Any]) -> Complaint:
    """Returns a complaint where lengths are defined in terms of themselves, a symbol's own `Len` aside."""
    needs = {a: {leaf.of for leaf in expr.leaves(length) if type(leaf) is Len} - {a} for a, length in axes.items() if length != Len(a)}
    circular = [a for a, length in axes.items() if length != Len(a) and Len(a) in expr.leaves(length)]
    users: dict[AxisId, list[AxisId]] = {}
    for a, others in needs.items():
        for o in others:
            users.setdefault(o, []).append(a)
    free = [a for a in axes if not needs.get(a)]
    for a in free:  # grows as lengths are resolved
        for user in users.get(a, ()):
            needs[user].discard(a)
            if not needs[user]:
                free.append(user)
    stuck = sorted({*circular, *(a for a, others in needs.items() if others)})
    return f"the lengths of {', '.join(stuck)} are said in terms of themselves" if stuck else None


def _sources(c: _Check) -> Complaint:
    p = c.program
    for v in p.sources():
        complaint = c.type_complaint(v)
        if complaint:
            return complaint
    for v in (*(() if c.body else p.inputs), *(s.value for s in p.state_in)):  # bodies of loops carry it
        if v.dtype.kind == "token":
            return f"{_show(v)} is a token among inputs and state"
    if p.token_in is not None and p.token_in.dtype.kind != "token":
        return f"token_in is {_show(p.token_in)}"
    return None


def _states(c: _Check) -> Complaint:
    p = c.program
    before = {s.name: s.value for s in p.state_in}
    if len(before) != len(p.state_in):
        return "a name occurs twice in state_in"
    written = [name for name, _ in p.state_out]
    twice = sorted({name for name in written if written.count(name) > 1}) if len(set(written)) != len(written) else ()
    if twice:
        return f"{', '.join(twice)} is written twice"
    for name, after in p.state_out:
        if name not in before:
            return f"{name} is written and is not state of the program"
        old, new = before[name].type, after.type
        if old.dtype is not new.dtype or set(old.axes) != set(new.axes):
            return f"{name} is {old} at the start and {new} at the end"
    return None


def _writes(c: _Check) -> Complaint:
    p = c.program
    for k, n in p.writes:
        if not (0 <= k < len(p.inputs) and 0 <= n < len(p.outputs)):
            return f"output {n} replaces input {k}, of {len(p.outputs)} outputs and {len(p.inputs)} inputs"
        old, new = p.inputs[k], p.outputs[n]
        if old.type != new.type:
            return f"{_show(new)} replaces {_show(old)}"
    for what, each in (("input", [k for k, _ in p.writes]), ("output", [n for _, n in p.writes])):
        twice = sorted({k for k in each if each.count(k) > 1}) if len(set(each)) != len(each) else ()
        if twice:
            return f"{what} {', '.join(map(str, twice))} occurs twice in writes"
    return None


def _closed(c: _Check) -> Complaint:
    if c.outer is None:
        return None
    p, around = c.program, c.outer.program
    for what in ("state_in", "state_out", "writes", "token_in", "token_out"):
        if getattr(p, what):
            return f"it has {what}"
    for a, length in p.axes.items():
        other = around.axes.get(a, length)
        if length != other and length != Len(a):
            return f"axis {a} has length {length!r} in the body and {other!r} around it"
    return None


# ---- rules of a step --------------------------------------------------------------------------------------------------


def _core(c: _Check, s: Step) -> Complaint:
    record = find(s.op)
    if record is None:
        return f"{s.op} is not a registered op"
    return None if record.core else f"{s.op} is not a core op" + (": it has to be lowered" if record.lower else "")


def _before_use(c: _Check, s: Step) -> Complaint:
    for v in s.inputs:
        if v not in c.known:
            return f"input {_show(v)} is not defined before it"
    return None


def _once(c: _Check, s: Step) -> Complaint:
    for n, v in enumerate(s.results):
        if v in c.known or v in s.results[:n]:
            return f"result {_show(v)} was defined before"
    return None


def _types(c: _Check, s: Step) -> Complaint:
    for v in s.results:
        complaint = None if v.type in c.sound else c.type_complaint(v)
        if complaint:
            return complaint
    return None


def _origin(c: _Check, s: Step) -> Complaint:
    return None if s.origin else "it has none"


def _tokens(c: _Check, s: Step) -> Complaint:
    for v in s.inputs:
        if v.type.dtype.kind == "token":
            if v in c.spent:
                return f"{_show(v)} was taken by a step before it"
            c.spent.add(v)
    return None


def _attrs(c: _Check, s: Step) -> Complaint:
    for name, a in s.attrs.items():
        kind = type(a)
        if kind in _PLAIN:
            continue
        complaint = _attr(c, s, a)
        if complaint:
            return f"{name}: {complaint}"
    return None


_PLAIN = frozenset((bool, int, float, str, DType, ArrayRef))


def _attr(c: _Check, s: Step, a: Any) -> Complaint:
    kind = type(a)
    if kind in _PLAIN:
        return None
    if kind is AxisId:
        return None if a in c.program.axes else f"axis {a} is not listed by the program"
    if kind is tuple:
        return _first(_attr(c, s, x) for x in a)
    if kind in (Len, Idx, Run, Bin):
        return _first(_leaf(c, leaf) for leaf in expr.leaves(a))
    if kind is Program:
        if id(a) not in c.bodies:
            c.bodies[id(a)] = a
            _Check(a, c.full, c).run()
        return None
    return f"{a!r} is of type {kind.__name__}, which no attribute may have"


def _leaf(c: _Check, leaf: expr.Leaf) -> Complaint:
    if type(leaf) is Run:
        if leaf.of not in c.known:
            return f"{_show(leaf.of)} is not defined before it"
        return _scalar(leaf.of)
    return None if leaf.of in c.program.axes else f"axis {leaf.of} is not listed by the program"


def _scalar(v: Value) -> Complaint:
    return None if v.dtype.is_integer and not v.axes else f"{_show(v)} is not a whole number, so neither a length nor an index"


def _first(complaints: Iterable[Complaint]) -> Complaint:
    return next((x for x in complaints if x), None)


def _rule(c: _Check, s: Step) -> Complaint:
    """Returns a complaint unless the results have the types that the record gives for these inputs and attributes."""
    try:
        made = REGISTRY[s.op].type(tuple([v.type for v in s.inputs]), **s.attrs)
        made = (made,) if type(made) is TensorType else made or ()
        same = [
            v.type.dtype is t.dtype and (v.type.axes == t.axes or set(v.type.axes) == set(t.axes))
            for v, t in zip(s.results, made, strict=False)
        ]
    except Clash as clash:
        return f"its inputs disagree on {', '.join(f'{a!r} and {b!r}' for a, b in clash.pairs)}"
    except Exception as e:
        message = str(e).split("\n")[0]
        return f"its record refuses it: {e.message if isinstance(e, NgraphError) else f'{type(e).__name__}: {message}'}"
    if len(made) != len(s.results):
        return f"it has {len(s.results)} results, its record gives {len(made)}: {', '.join(map(repr, made))}"
    return _first(None if ok else f"{_show(v)} should be {t!r}" for ok, v, t in zip(same, s.results, made, strict=True))


# ---- rules of what leaves ---------------------------------------------------------------------------------------------


def _defined_results(c: _Check) -> Complaint:
    return _first(None if v in c.known else f"{_show(v)} leaves the program, and no step defines it" for v in c.program.results())


def _lengths_run(c: _Check) -> Complaint:
    for a, length in c.program.axes.items():
        for leaf in expr.leaves(length):
            if type(leaf) is Run:
                if leaf.of not in c.known:
                    return f"the length of {a} is {_show(leaf.of)}, which no step defines"
                complaint = _scalar(leaf.of)
                if complaint:
                    return f"the length of {a}: {complaint}"
    return None


def _token_leaves(c: _Check) -> Complaint:
    p = c.program
    for v in p.outputs:
        if v.dtype.kind == "token" and v in c.spent:
            return f"{_show(v)} leaves the body, and is not the last token"
    if p.token_out is None:
        return "token_in comes in, and no token leaves" if p.token_in is not None else None
    if p.token_in is None:
        return "a token leaves, and none comes in"
    if p.token_out.dtype.kind != "token" or p.token_out in c.spent:
        return f"token_out is {_show(p.token_out)}, not the last one"
    return None


ProgramInvariant = Callable[[_Check], Complaint]
StepInvariant = Callable[[_Check, Step], Complaint]

PROGRAM_INVARIANTS: dict[str, ProgramInvariant] = {
    "every length is a number or follows from others": _lengths,
    "a body has inputs and outputs only, and its axes are those around it": _closed,
    "axes are distinct within a value and listed by the program": _sources,
    "a state is written once and keeps its type": _states,
    "an input is written once, by an output of its type": _writes,
}
STEP_INVARIANTS: dict[str, StepInvariant] = {
    "a step is a core op": _core,
    "a value is defined before it is used": _before_use,
    "a value is defined once": _once,
    "axes are distinct within a value and listed by the program": _types,
    "attributes hold nothing but numbers, strings, dtypes, axes, expressions, arrays and bodies": _attrs,
    "effects happen one after another": _tokens,
    "every step has an origin": _origin,
}
TYPE_INVARIANTS: dict[str, StepInvariant] = {"results have the types that the op's record gives": _rule}
END_INVARIANTS: dict[str, ProgramInvariant] = {
    "a value is defined before it is used": _defined_results,
    "every length is a number or follows from others": _lengths_run,
    "effects happen one after another": _token_leaves,
}
