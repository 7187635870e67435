"""Common-subexpression elimination across loops: a later loop reuses values that an earlier loop over the same trips computed.

The backward scan of a recurrent layer is such a loop: its gates are functions of the values that the forward scan saved. Saving the
gates instead of their operands avoids computing the exponentials twice. A choice that would move more bytes through memory than
before is not taken.
"""

from __future__ import annotations

import math
from typing import Any

from ngraph.op_graph.op import TensorType
from ngraph.op_graph.opdef import COST
from ngraph.parts.runner import pass_
from ngraph.passes.dead import dead
from ngraph.passes.hoist import PRODUCTS
from ngraph.passes.share import step_key
from ngraph.program.program import Program, Step, Value

EXPENSIVE = 5  # vector instructions per element from which on a value is saved rather than recomputed
SUMS = PRODUCTS | {"reduce"}


def expensive(op: str) -> bool:
    """Whether results of the op are saved rather than recomputed: reductions, and ops of many instructions."""
    return op in SUMS or COST[op] >= EXPENSIVE


@pass_(needs=("hoisted",), gives=("saved",), keeps=("hoisted",))
def loop_cse(program: Program) -> Program:
    """Returns `program` whose later loops read values that earlier ones have already computed."""
    loops = [k for k, s in enumerate(program.steps) if s.op == "scan" and program.axes[s.attrs["axis"]] != 1]  # one trip: a checkpoint
    best = program
    for n, k in enumerate(loops):
        for earlier in loops[:n]:
            first, then = program.steps[earlier], program.steps[k]
            wanted = _repeated(first, then) if first.attrs["axis"] == then.attrs["axis"] else {}
            if wanted:
                made = _handed_on(program, first, then, wanted)
                slim = dead(made)
                if _moved(slim) <= _moved(best):
                    program, best = made, slim
    return best


def _repeated(first: Step, then: Step) -> dict[Value, Value]:
    """Returns {value of the later body: the equal one of the earlier body} for expensive values that a new value depends on."""
    same = _inputs(first, then)
    place: dict[Value, int] = {v: k for k, v in enumerate(first.attrs["body"].inputs)}
    known: dict[Any, Step] = {}
    for s in first.attrs["body"].steps:
        known.setdefault(step_key(s, place, _same), s)
        place.update((v, len(place)) for v in s.results)
    body = then.attrs["body"]
    for s in body.steps:
        if all(v in same for v in s.inputs):
            key = step_key(Step(s.results, s.op, tuple([same[v] for v in s.inputs]), s.attrs, s.origin), place, _same)
            if key in known and key is not None:
                same.update(zip(s.results, known[key].results, strict=True))
    asked = {v for s in body.steps if not all(r in same for r in s.results) for v in s.inputs}.union(body.outputs)
    found: dict[Value, Value] = {}
    long: set[Value] = set()  # values that are expensive to compute from the available ones
    for s in body.steps:
        if expensive(s.op) or any(v in long for v in s.inputs):
            long.update(s.results)
        for v in s.results:
            if v in long and v in same and v in asked and first.attrs["axis"] not in v.axes:  # a stack along the axis cannot have it twice
                found[v] = same[v]
                long.remove(v)
    return found


def _same(v: Value) -> Value:
    return v


def _inputs(first: Step, then: Step) -> dict[Value, Value]:
    """Returns the inputs of the later body that the earlier one also has, or gives: slices of one array, and loop invariants."""
    a, b = first.attrs, then.attrs
    there = dict(zip(first.results[a["carries"] :], a["body"].outputs[a["carries"] :], strict=True))
    slices = dict(zip(first.inputs[a["carries"] : a["carries"] + a["xs"]], a["body"].inputs[a["carries"] :], strict=False))
    still = dict(zip(first.inputs[a["carries"] + a["xs"] :], a["body"].inputs[a["carries"] + a["xs"] :], strict=True))
    found = {}
    for k, (inner, outer) in enumerate(zip(b["body"].inputs, then.inputs, strict=True)):
        of = {} if k < b["carries"] else {**slices, **there} if k < b["carries"] + b["xs"] else still
        if outer in of:
            found[inner] = of[outer]
    return found


def _handed_on(program: Program, first: Step, then: Step, wanted: dict[Value, Value]) -> Program:
    """Returns the program in which the earlier loop stacks these values, and the later one takes slices of them."""
    axis, body = first.attrs["axis"], first.attrs["body"]
    given = dict(zip(body.outputs[first.attrs["carries"] :], first.results[first.attrs["carries"] :], strict=True))
    new = [v for v in dict.fromkeys(wanted.values()) if v not in given]
    given.update({v: Value(TensorType((axis, *v.axes), v.dtype), v.hint) for v in new})
    attrs = {**first.attrs, "body": body.with_(outputs=(*body.outputs, *new))}
    one = Step((*first.results, *[given[v] for v in new]), "scan", first.inputs, attrs, first.origin)
    body, at = then.attrs["body"], then.attrs["carries"] + then.attrs["xs"]
    steps = tuple([s for s in body.steps if not any(v in wanted for v in s.results)])
    body = body.with_(inputs=(*body.inputs[:at], *wanted, *body.inputs[at:]), steps=steps)
    inputs = (*then.inputs[:at], *[given[v] for v in wanted.values()], *then.inputs[at:])
    two = Step(then.results, "scan", inputs, {**then.attrs, "body": body, "xs": then.attrs["xs"] + len(wanted)}, then.origin)
    return program.with_(steps=tuple([one if s is first else two if s is then else s for s in program.steps]))


def _moved(program: Program) -> int:
    """Returns the bits that all trips read from slices and write to stacks; axes of unknown length do not count."""
    total = 0
    for s in program.steps:
        if s.op == "scan":
            carries, xs = s.attrs["carries"], s.attrs["xs"]
            for v in (*s.inputs[carries : carries + xs], *s.results[carries:]):
                total += v.dtype.bits * math.prod(n for a in v.axes if isinstance(n := program.axes[a], int) and a != s.attrs["axis"])
    return total
