"""Random mixes of reads, assigns and sequentials against a simulator of a few lines, in every order of the results."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import ngraph as ng
from ngraph.op_graph.op import Op
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower

NAMES = "abcd"
# an expression is w0 + sum of weights times variables; a part is ("read", e) or ("assign", variable, e)
expressions = st.tuples(st.integers(-3, 3), st.dictionaries(st.sampled_from(NAMES), st.integers(-2, 2), max_size=3))


@st.composite
def requests(draw):
    """Blocks that write disjoint variables: a plain read, a plain assign, or a sequential."""
    free = list(NAMES)
    blocks = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["read", "assign", "sequential"]))
        if kind == "read":
            blocks.append([("read", draw(expressions))])
        elif kind == "assign" and free:
            blocks.append(("assign", free.pop(), draw(expressions)))
        else:
            mine = [free.pop() for _ in range(min(len(free), draw(st.integers(0, 2))))]
            parts = [("read", draw(expressions))]
            for _ in range(draw(st.integers(1, 4))):
                if mine and draw(st.booleans()):
                    parts.append(("assign", draw(st.sampled_from(mine)), draw(expressions)))
                else:
                    parts.append(("read", draw(expressions)))
            blocks.append(["sequential", *parts])
    return blocks


def simulate(blocks, start):
    """The value of each block's last part, and the state afterwards."""
    end, values = dict(start), []

    def value(e, state):
        return e[0] + sum(w * state[n] for n, w in e[1].items())

    for block in blocks:
        if block[0] == "assign":
            end[block[1]] = value(block[2], start)
            values.append(None)
            continue
        state, last, wrote = dict(start), None, set()
        for part in block[1:] if block[0] == "sequential" else block:
            if part[0] == "assign":
                state[part[1]] = value(part[2], state)
                wrote.add(part[1])
                last = None
            else:
                last = value(part[1], state)
        values.append(last)
        end.update({n: state[n] for n in wrote})
    return values, end


def build(blocks, variables):
    def expression(e) -> Op:
        total = ng.constant(float(e[0]))
        for n, w in e[1].items():
            total = total + variables[n] * w
        return total

    def part(p) -> Op:
        return expression(p[1]) if p[0] == "read" else ng.assign(variables[p[1]], expression(p[2]))

    made = []
    for block in blocks:
        if block[0] == "assign":
            made.append(part(block))
        elif block[0] == "sequential":
            made.append(ng.sequential([part(p) for p in block[1:]]))
        else:
            made.append(part(block[0]))
    return made


@settings(max_examples=150, deadline=None)
@given(requests(), st.lists(st.integers(-4, 4), min_size=4, max_size=4))
def test_order_of_results_never_matters(blocks, start):
    start = dict(zip(NAMES, start, strict=True))
    expected, end = simulate(blocks, start)
    variables = {n: ng.variable(()).named(n) for n in NAMES}
    results = build(blocks, variables) + list(variables.values())
    expected = expected + [end[n] for n in NAMES]
    orders = list(itertools.permutations(range(len(results))))
    for order in orders[:: max(1, len(orders) // 6)]:
        lowered = lower([results[k] for k in order])
        outputs, _ = interpret(lowered.program, [], {n: np.float32(start[v.name]) for n, v in lowered.states.items()})
        values = iter(outputs)
        got = [float(next(values)) if results[k].type is not None else None for k in order]
        assert got == [expected[k] for k in order]
