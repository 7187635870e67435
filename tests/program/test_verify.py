"""The program verifier: what lowering makes is valid, and each way of breaking an invariant is found and named."""

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ngraph as ng
from ngraph.errors import ParseError, ProgramError
from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.expr import Idx, Len, Run
from ngraph.op_graph.op import Origin, TensorType
from ngraph.program.lower import lower
from ngraph.program.program import AxisId, Program, State, Step, Value
from ngraph.program.text import equal, from_json, parse, text, to_json
from ngraph.program.verify import END_INVARIANTS, PROGRAM_INVARIANTS, STEP_INVARIANTS, TYPE_INVARIANTS, verify

C, N, D = AxisId("C"), AxisId("N"), AxisId("D")
HERE = (Origin("y", "", "net.py", 12),)
LAWS = {**PROGRAM_INVARIANTS, **STEP_INVARIANTS, **TYPE_INVARIANTS, **END_INVARIANTS}


def value(*axes, dtype=dtypes.float32, hint=""):
    return Value(TensorType(axes, dtype), hint)


def step(result, op, *inputs, **attrs):
    return Step((result,), op, inputs, attrs, HERE)


def lawful():
    """x, W -> tanh(x) * W; W is written."""
    x, w, y, z = value(C, N, hint="x"), value(C, hint="W"), value(N, C, hint="y"), value(C, N, hint="z")
    return Program(
        axes={C: 4, N: Len(N)},
        inputs=(x,),
        state_in=(State("W", w),),
        steps=(step(y, "tanh", x), step(z, "multiply", y, w)),
        outputs=(z,),
        state_out=(("W", w),),
    )


def with_step(op, *inputs, results=None, origin=HERE, **attrs):
    """The valid program with one more step. Inputs may be names: x, y, z."""
    p = lawful()
    known = {"x": p.inputs[0], "y": p.steps[0].result, "z": p.outputs[0]}
    taken = tuple(known.get(i, i) for i in inputs)
    return p.with_(steps=(*p.steps, Step((value(C, N),) if results is None else results, op, taken, attrs, origin)))


def body(**changes):
    x = value(C)
    return Program(axes={C: 4}, inputs=(x,), outputs=(x,)).with_(**changes)


def over(inner):
    return with_step("scan", "x", body=inner, axis=N, reverse=False, carries=0, xs=1)


TOKEN = dtypes.token
token, second = value(dtype=TOKEN, hint="token"), value(dtype=TOKEN, hint="second")
w, other = value(C, hint="W"), value(N, hint="other")
count, late = value(dtype=dtypes.int32, hint="count"), value(dtype=dtypes.int32, hint="late")


def effect(taken, given):
    return Step((given,), "effect", (taken,), {"kind": "print", "text": ""}, HERE)


# what breaks which law, and what the message says
BROKEN = [
    (lambda p: p.with_(axes={C: -1, N: Len(N)}), "every length", "C has length -1"),
    (lambda p: p.with_(axes={C: True, N: Len(N)}), "every length", "C has True for a length"),
    (lambda p: p.with_(axes={C: 4.0, N: Len(N)}), "every length", "C has 4.0 for a length"),
    (lambda p: p.with_(axes={"C": 4, N: Len(N)}), "every length", "'C' is a str, no AxisId"),
    (lambda p: p.with_(axes={C: 4, N: Len(D)}), "every length", "N depends on D, which the program does not list"),
    (lambda p: p.with_(axes={C: Idx(N) + 1, N: Len(N)}), "every length", "C depends on an index"),
    (lambda p: p.with_(axes={C: Len(N) + 1, N: Len(D), D: Len(C) * 2}), "every length", "C, D, N are said in terms of themselves"),
    (lambda p: p.with_(axes={C: Len(C) + 1, N: Len(N)}), "every length", "C are said in terms of themselves"),
    (lambda p: p.with_(axes={C: 4, N: Run(late)}), "every length", "N is late (int32[]), which no step defines"),
    (lambda p: p.with_(axes={C: 4, N: Len(N), D: Run(p.inputs[0])}), "every length", "x (float32[C, N]) is not a whole number"),
    (lambda p: p.with_(axes={C: 4}), "listed", "x (float32[C, N]) has the axes N, which the program does not list"),
    (lambda p: p.with_(inputs=(*p.inputs, value(C, C))), "listed", "has an axis twice"),
    (lambda p: p.with_(inputs=(*p.inputs, value(dtype=TOKEN))), "listed", "is a token among inputs and state"),
    (lambda p: p.with_(token_in=count), "listed", "token_in is count"),
    (lambda p: p.with_(inputs=(Value(None),)), "listed", "has no type"),
    (lambda p: p.with_(inputs=(p.inputs[0], p.inputs[0])), "defined once", "x (float32[C, N]) occurs twice"),
    (lambda p: p.with_(state_in=(*p.state_in, State("W", value(C)))), "a state is written once", "occurs twice in state_in"),
    (lambda p: p.with_(state_out=p.state_out * 2), "a state is written once", "W is written twice"),
    (lambda p: p.with_(state_out=(("V", w),)), "a state is written once", "V is written and is not state"),
    (lambda p: p.with_(state_out=(("W", p.outputs[0]),)), "a state is written once", "at the start and float32[C, N] at the end"),
    (lambda p: p.with_(writes=((0, 1),)), "an input is written once", "output 1 replaces input 0, of 1 outputs and 1 inputs"),
    (lambda p: p.with_(writes=((0, 0), (0, 0))), "an input is written once", "input 0 occurs twice"),
    (lambda p: p.with_(outputs=(w,), writes=((0, 0),)), "an input is written once", "W (float32[C]) replaces x (float32[C, N])"),
    (lambda p: with_step("hyperbola", "x"), "core op", "hyperbola is not a registered op"),
    (lambda p: with_step("sigmoid", "x"), "core op", "sigmoid is not a core op: it has to be lowered"),
    (lambda p: with_step("tanh", other), "before it is used", "input other (float32[N]) is not defined before it"),
    (lambda p: p.with_(steps=p.steps[::-1]), "before it is used", "input y (float32[N, C]) is not defined before it"),
    (lambda p: p.with_(steps=(step(p.inputs[0], "tanh", p.inputs[0]),)), "defined once", "x"),
    (lambda p: p.with_(steps=(*p.steps, p.steps[0])), "defined once", "result y (float32[N, C]) was defined before"),
    (lambda p: with_step("sort", "x", axis=C, descending=False, nan_largest=False, results=(w, w)), "defined once", "W"),
    (lambda p: with_step("tanh", "x", results=(value(C, D),)), "listed", "has the axes D, which the program does not list"),
    (lambda p: with_step("tanh", "x", results=(value(C, C),)), "listed", "has an axis twice"),
    (lambda p: with_step("reduce", "x", kind="add", axes=(D,)), "attributes hold", "axes: axis D is not listed"),
    (lambda p: with_step("reduce", "x", kind="add", axes=[C]), "attributes hold", "is of type list"),
    (lambda p: with_step("reduce", "x", kind="add", axes=(np.int64(1),)), "attributes hold", "is of type int64"),
    (lambda p: with_step("reduce", "x", kind=None, axes=(C,)), "attributes hold", "is of type NoneType"),
    (lambda p: with_step("tanh", "x", a=Len(D) + 1), "attributes hold", "a: axis D is not listed"),
    (lambda p: with_step("tanh", "x", a=(Run(late),)), "attributes hold", "a: late (int32[]) is not defined before it"),
    (lambda p: with_step("tanh", "x", a=Run(p.inputs[0]) + 1), "attributes hold", "not defined before it"),
    (lambda p: with_step("tanh", "x", origin=()), "every step has an origin", "it has none"),
    (
        lambda p: p.with_(token_in=token, steps=(effect(token, second), effect(token, value(dtype=TOKEN))), token_out=second, outputs=()),
        "one after another",
        "taken by a step before",
    ),
    (lambda p: p.with_(token_in=token), "one after another", "no token leaves"),
    (lambda p: p.with_(token_in=token, steps=(*p.steps, effect(token, second)), token_out=token), "one after another", "not the last one"),
    (lambda p: p.with_(token_out=p.outputs[0]), "one after another", "a token leaves, and none comes in"),
    (lambda p: with_step("tanh", "x", results=(value(C),)), "record gives", "a value (float32[C]) should be float32[C, N]"),
    (lambda p: with_step("tanh", "x", results=(value(C, N, dtype=dtypes.float64),)), "record gives", "should be float32[C, N]"),
    (lambda p: with_step("tanh", "x", results=(value(C, N), value(C, N))), "record gives", "it has 2 results, its record gives 1"),
    (lambda p: with_step("tanh"), "record gives", "its record refuses it: tanh takes 1 tensor, and got 0"),
    (lambda p: with_step("reduce", "x", axes=(C,)), "record gives", "its record refuses it: TypeError"),
    (lambda p: p.with_(outputs=(other,)), "before it is used", "other (float32[N]) leaves the program, and no step defines it"),
    (lambda p: over(body(state_in=(State("s", w),))), "a body has", "it has state_in"),
    (lambda p: over(body(token_in=token)), "a body has", "it has token_in"),
    (lambda p: over(body(writes=((0, 0),))), "a body has", "it has writes"),
    (
        lambda p: over(body(axes={C: 5})),
        "a body has",
        "axis C has length 5 in the body and 4 around it",
    ),
    (lambda p: over(body(outputs=(other,))), "before it is used", "other"),
]


@pytest.mark.parametrize(("broken", "law", "message"), BROKEN)
def test_each_way_of_breaking_the_law_is_named(broken, law, message):
    p = broken(lawful())
    with pytest.raises(ProgramError) as e:
        verify(p)
    first = str(e.value).split("\n")[0]
    assert law in first and message in first


def test_every_law_is_broken_by_some_case():
    for law in LAWS:
        assert any(part in law for _, part, _ in BROKEN), law


def test_the_message_names_the_users_line_the_step_and_both_sides():
    p = with_step("tanh", "x", results=(value(C, hint="bad"),))
    with pytest.raises(ProgramError) as e:
        verify(p)
    assert str(e.value).split("\n") == [
        "net.py:12: program program, step 2 (tanh) violates the rule that results have the types that the op's record gives: "
        "bad (float32[C]) should be float32[C, N]",
        '    %4 bad : float32[C] = tanh(%0)  # y at "net.py":12',
    ]


def test_only_the_set_of_axes_is_meaning():
    p = verify(lawful())
    assert verify(p) is p
    assert p.steps[0].type.axes != p.inputs[0].type.axes


def test_what_only_the_records_know_is_left_out_unless_full():
    p = with_step("tanh", "x", results=(value(C),))
    assert verify(p, full=False) is p


def test_bodies_may_leave_open_a_length_that_is_known_around_them():
    x = value(C)
    inner = Program(axes={C: Len(C)}, inputs=(x,), outputs=(x,))
    verify(over(inner))


def test_a_run_time_length_is_one_that_some_step_defines():
    found, n = value(D, dtype=dtypes.int32), value(dtype=dtypes.int32)
    c = value(C, dtype=dtypes.bool_)
    compact = Step((found, n), "compact", (c,), {"axes": (C,), "axis": D}, HERE)
    p = Program(axes={C: 4, D: expr.minimum(Run(n), 4)}, inputs=(c,), steps=(compact,), outputs=(found,))
    verify(p)
    verify(parse(text(p)))


# ---- what lowering makes ----------------------------------------------------------------------------------------------


def random_graph(chance):
    """A graph of some twenty ops over few axes, of known and unknown length."""
    axes = [ng.make_axis(3, name="A"), ng.make_axis(name="B"), ng.make_axis(2, name="H"), ng.make_axis(1, name="O")]
    axes.append(axes[2] - 1)
    x = ng.placeholder(chance.sample(axes, 3), name="x")
    made = [x, ng.placeholder([], dtype="int32"), ng.variable(chance.sample(axes, 2), name="W"), ng.constant(np.arange(3.0), [axes[0]])]
    for _ in range(20):
        a, b = chance.choice(made), chance.choice(made)
        match chance.randrange(6):
            case 0:
                made.append(ng.tanh(a))
            case 1:
                made.append(a + b)
            case 2:
                made.append(ng.sum(a, reduction_axes=chance.sample(list(a.axes), chance.randint(0, len(a.axes)))))
            case 3:
                made.append(ng.where(ng.less(a, b), a * 2, b))
            case 4:
                made.append(ng.contract(a, b, over=tuple(chance.sample(list(a.axes), min(1, len(a.axes))))))
            case 5:
                made.append(ng.maximum(ng.cast(a, chance.choice(["float32", "float64", "float16"])), 0))
    assigned = [v for v in made if v.opdef.name != "variable" and set(v.axes) <= set(made[2].axes)]
    return lower([*made[4:], *[ng.assign(made[2], ng.cast(v, "float32")) for v in assigned[:1]]], made[:2]).program


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False))
def test_what_lowering_makes_is_lawful_and_comes_back_from_text(chance):
    p = verify(random_graph(chance))
    q = verify(from_json(to_json(p)))
    assert equal(p, q, notes=True)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_changed_programs_pass_or_are_named(seed):
    chance = random.Random(seed)
    data = json.loads(json.dumps(to_json(random_graph(chance))))
    for _ in range(chance.randint(1, 2)):
        change(data["program"], chance)
    try:
        p = from_json(data)
    except ParseError:
        return
    try:
        verify(p)
    except ProgramError as e:
        assert "violates the rule that" in str(e)


def change(program, chance):
    """One number, axis or name somewhere in the program becomes another."""
    steps = program["steps"]
    s = chance.choice(steps)
    n = len(program["values"])
    match chance.randrange(7):
        case 0:
            s["inputs"] = [chance.randrange(n) for _ in s["inputs"]]
        case 1:
            s["op"] = chance.choice(steps)["op"]
        case 2:
            s["attrs"] = chance.choice(steps)["attrs"]
        case 3:
            chance.shuffle(steps)
        case 4:
            chance.choice(program["values"])[0] = chance.randrange(len(program["types"]))
        case 5:
            chance.choice(program["axes"])[2] = {"expr": [{"Len": {"id": chance.choice(program["axes"])[0]}}, 1, "+"]}
        case 6:
            program["outputs"] = program["outputs"][::-1][1:]


def test_arrays_may_stand_in_attributes_and_the_law_does_not_read_them():
    y = value(C)
    made = step(y, "constant", value=ArrayRef(np.zeros(4, np.float32)), axes=(C,), dtype=dtypes.float32)
    verify(Program(axes={C: 4}, steps=(made,), outputs=(y,)))
