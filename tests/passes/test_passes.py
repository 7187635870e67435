"""share, fold, dead, specialise: what each does, and what it leaves alone."""

import numpy as np
import pytest

from ngraph.errors import AxisError
from ngraph.op_graph import dtypes
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.expr import Idx, Len, Run, evaluate, minimum
from ngraph.op_graph.op import TensorType
from ngraph.passes import dead, fold, share, specialise
from ngraph.passes.reach import inside, never_negative, reach
from ngraph.program.interpret import interpret
from ngraph.program.program import AxisId, State, Step, Value
from ngraph.program.verify import verify
from ngraph.testing.rules import Steps


def ops(program):
    return [s.op for s in program.steps]


# ---- share ----


def test_equal_steps_become_one_with_the_origins_of_both():
    s = Steps(H=3)
    v = s.input("H")
    program = s.program(s("add", s("exp", v), s("exp", v)))
    after = verify(share(program))
    assert ops(after) == ["exp", "add"]
    assert after.steps[1].inputs[0] is after.steps[1].inputs[1]
    assert [o.line for o in after.steps[0].origin] == [1, 2]


def test_equality_follows_from_equal_inputs():
    s = Steps(H=3)
    v = s.input("H")
    program = s.program(s("add", s("tanh", s("exp", v)), s("tanh", s("exp", v))))
    assert ops(share(program)) == ["exp", "tanh", "add"]


@pytest.mark.parametrize(("op", "count"), [("add", 1), ("multiply", 1), ("subtract", 2), ("divide", 2), ("maximum", 2)])
def test_operands_in_the_other_order_are_equal_where_that_is_exact(op, count):
    s = Steps(H=3)
    v, w = s.input("H"), s.input("H")
    assert ops(share(s.program(s(op, v, w), s(op, w, v)))) == [op] * count


def test_kinds_decide_whether_order_matters():
    s = Steps(H=3)
    v, w = s.input("H"), s.input("H")
    program = s.program(*(s("compare", *pair, kind=kind) for kind in ("eq", "lt") for pair in ((v, w), (w, v))))
    assert [st.attrs["kind"] for st in share(program).steps] == ["eq", "lt", "lt"]


def test_constants_are_told_apart_by_bits():
    s = Steps(H=3)
    numbers = [0.0, -0.0, float("nan"), float("nan"), 1.0]
    program = s.program(*(s.number(n) for n in numbers))
    assert [repr(st.attrs["value"]) for st in share(program).steps] == ["0.0", "-0.0", "nan", "1.0"]


def test_small_arrays_are_shared_by_value_and_large_ones_by_identity():
    s = Steps(H=3, W=400)
    large = [ArrayRef(np.zeros(400, np.float32)) for _ in range(2)]
    small = [ArrayRef(np.zeros(3, np.float32)) for _ in range(2)]
    made = [s("constant", value=a, axes=("W",), dtype=dtypes.float32) for a in (*large, large[0])]
    made += [s("constant", value=a, axes=("H",), dtype=dtypes.float32) for a in small]
    assert len(share(s.program(*made)).steps) == 3


def test_draws_of_one_stream_are_equal_and_of_two_are_not():
    s = Steps(H=3, rng=2)
    state = s.input("rng", dtype=dtypes.uint64)
    draws = [s("random_bits", state, stream=k, axes=("H",)) for k in (1, 1, 2)]
    assert [st.attrs["stream"] for st in share(s.program(*draws)).steps] == [1, 2]


def test_effects_are_never_merged_nor_dropped():
    s = Steps(H=3)
    v = s.input("H")
    token = Value(TensorType((), dtypes.token), "token")
    one = s("effect", token, v, kind="print", text="x")
    two = s("effect", one, v, kind="print", text="x")
    program = s.program(v, token_in=token, token_out=two)
    assert ops(dead(share(program))) == ["effect", "effect"]


def body_of(op):
    body = Steps(H=3)
    carry, item = body.input("H"), body.input("H")
    made = body(op, carry, item)
    body("exp", made)
    return body.program(made, made)


def test_loops_with_equal_bodies_are_equal():
    s = Steps(H=3, T=5)
    start, items = s.input("H"), s.input("H", "T")
    made = [s("scan", start, items, body=body_of(op), axis="T", reverse=False, carries=1, xs=1)[1] for op in ("add", "add", "multiply")]
    assert len(share(s.program(*made)).steps) == 2


def test_a_shared_output_keeps_its_order_of_axes():
    s = Steps(H=3, W=4)
    v, w = s.input("H"), s.input("W")
    one, two = s("add", v, w), s("add", w, v)
    program = s.program(one, two)
    assert [o.axes for o in program.outputs] == [("H", "W"), ("W", "H")]
    after = verify(share(program))
    assert [o.axes for o in after.outputs] == [("H", "W"), ("W", "H")] and ops(after) == ["add", "broadcast"]
    arrays = [np.arange(3, dtype=np.float32), np.arange(4, dtype=np.float32)]
    for a, b in zip(interpret(program, arrays)[0], interpret(after, arrays)[0], strict=True):
        assert np.array_equal(a, b)


# ---- dead ----


def test_what_reaches_no_result_goes_and_inputs_stay():
    s = Steps(H=3, W=4)
    v, unused = s.input("H"), s.input("W")
    s("exp", v)
    kept = s("tanh", v)
    s("exp", kept)
    after = verify(dead(s.program(kept)))
    assert ops(after) == ["tanh"] and after.inputs == (v, unused) and list(after.axes) == ["H", "W"]


def test_state_that_is_only_read_and_not_needed_goes():
    s = Steps(H=3, W=4)
    read, written, idle = (Value(TensorType((AxisId(a),), dtypes.float32), n) for a, n in (("H", "r"), ("H", "w"), ("W", "i")))
    s("exp", idle)
    program = s.program(
        s("exp", read), state_in=(State("r", read), State("w", written), State("i", idle)), state_out=(("w", s("tanh", read)),)
    )
    after = verify(dead(program))
    assert [st.name for st in after.state_in] == ["r", "w"] and ops(after) == ["exp", "tanh"] and list(after.axes) == ["H"]


def test_a_step_that_a_length_needs_stays():
    s = Steps(H=3, found=None)
    where, count = s("compact", s.input("H", dtype=dtypes.bool_), axes=("H",), axis="found")
    s.axes["found"] = minimum(Run(count), Len("H"))
    s("exp", s.input("H"))
    after = verify(dead(s.program(s("iota", axis="found", dtype=dtypes.int32))))
    assert ops(after) == ["compact", "iota"] and set(after.axes) == {"H", "found"}


def test_bodies_lose_what_is_dead_in_them():
    s = Steps(H=3, T=5)
    start, items = s.input("H"), s.input("H", "T")
    program = s.program(*s("scan", start, items, body=body_of("add"), axis="T", reverse=False, carries=1, xs=1))
    assert ops(dead(program).steps[0].attrs["body"]) == ["add"]


def agree(program, after, arrays):
    for a, b in zip(interpret(program, arrays)[0], interpret(after, arrays)[0], strict=True):
        assert np.array_equal(a, b)


def loop_of_three_carries():
    """Carry 0 reads itself and 1; carry 1 reads itself; carry 2 reads itself and an item and a constant that nobody else reads."""
    body = Steps()
    a, b, c, item, other, const = (body.input() for _ in range(6))
    one, two, three = body("add", a, b), body("multiply", b, item), body("add", c, body("multiply", other, const))
    s = Steps(T=4)
    starts, items = [s.input() for _ in range(3)], [s.input("T") for _ in range(2)]
    inner = body.program(one, two, three, one, three)
    return s, s("scan", *starts, *items, s.input(), body=inner, axis="T", reverse=False, carries=3, xs=2)


@pytest.mark.parametrize(
    ("wanted", "carries", "xs", "inputs", "results"),
    [
        ([0], 2, 1, 3, 2),
        ([1], 1, 1, 2, 1),
        ([2], 1, 1, 3, 1),
        ([3], 2, 1, 3, 3),
        ([4], 1, 1, 3, 2),
        ([0, 2], 3, 2, 6, 3),
        ([0, 1, 2, 3, 4], 3, 2, 6, 5),
    ],
)
def test_loops_carry_only_what_is_read(wanted, carries, xs, inputs, results):
    s, made = loop_of_three_carries()
    program = s.program(*(made[k] for k in wanted))
    after = verify(dead(program))
    (step,) = after.steps
    assert (step.attrs["carries"], step.attrs["xs"], len(step.inputs), len(step.results)) == (carries, xs, inputs, results)
    assert len(step.attrs["body"].inputs) == inputs
    draw = np.random.Generator(np.random.PCG64(0))
    agree(program, after, [draw.standard_normal(tuple(program.length(a) for a in v.axes)).astype(np.float32) for v in program.inputs])


def test_a_while_keeps_what_its_condition_reads():
    def inner(result):
        body = Steps()
        given = [body.input() for _ in range(5)]  # carries: counter, value, idle; constants: limit, idle step
        counter, value, idle, limit, step = given
        return body, result(body, counter, value, idle, limit, step)

    body, made = inner(lambda b, n, v, i, limit, step: (b("add", n, b.number(1)), b("multiply", v, b.number(2)), b("add", i, step)))
    cond, below = inner(lambda b, n, v, i, limit, step: b("compare", n, limit, kind="lt"))
    s = Steps()
    results = s("while", *(s.input() for _ in range(5)), cond=cond.program(below), body=body.program(*made), carries=3)
    program = s.program(results[1])
    after = verify(dead(program))
    assert after.steps[0].attrs["carries"] == 2 and after.steps[0].inputs == tuple(program.inputs[k] for k in (0, 1, 3))
    agree(program, after, [np.float32(k) for k in (0, 1, 0, 5, 1)])


def test_a_choice_gives_only_what_is_read():
    def branch(op):
        body = Steps(H=3)
        a, b, c = (body.input("H") for _ in range(3))
        return body.program(body(op, a, a), body(op, b, c))

    s = Steps(H=3)
    p, args = s.input(dtype=dtypes.bool_), [s.input("H") for _ in range(3)]
    results = s("cond", p, *args, **{"then": branch("add"), "else": branch("multiply")})
    for k, count in ((0, 2), (1, 3)):
        program = s.program(results[k])
        after = verify(dead(program))
        assert len(after.steps[0].inputs) == count and len(after.steps[0].results) == 1
        for flag in (True, False):
            agree(program, after, [np.array(flag), *(np.arange(3, dtype=np.float32) + k for k in range(3))])


def test_what_a_loop_inside_a_body_does_not_read_the_outer_loop_does_not_take():
    inner = Steps()
    item, idle = inner.input(), inner.input()
    middle = Steps(T=4)
    start, items, unread = middle.input(), middle.input("T"), middle.input("T")
    sums = middle("scan", items, unread, body=inner.program(inner("exp", item), idle), axis="T", reverse=False, carries=0, xs=2)
    body = middle.program(middle("add", start, middle("reduce", sums[0], kind="add", axes=("T",))))
    s = Steps(T=4, U=2)
    kept = Value(TensorType((AxisId("T"),), dtypes.float32), "kept")
    made = s("scan", s.input(), s.input("T"), kept, body=body, axis=AxisId("U"), reverse=False, carries=1, xs=0)
    program = s.program(made, state_in=(State("kept", kept),))
    after = verify(dead(program))
    assert after.state_in == () and len(after.steps[0].inputs) == 2
    agree(
        program.with_(state_in=(), inputs=(*program.inputs, kept)),
        after.with_(inputs=(*program.inputs, kept)),
        [np.float32(1), np.arange(4, dtype=np.float32), np.ones(4, np.float32)],
    )


# ---- fold ----


def test_steps_on_constants_are_computed():
    s = Steps(H=3)
    array = s("constant", value=ArrayRef(np.arange(3, dtype=np.float32)), axes=("H",), dtype=dtypes.float32)
    total = s("reduce", s("multiply", array, s.number(2)), kind="add", axes=("H",))
    program = s.program(s("add", s.input("H"), total))
    after = verify(dead(fold(program)))
    assert ops(after) == ["constant", "add"] and after.steps[0].attrs["value"] == 6.0
    assert len(after.steps[0].origin) == 4
    x = np.ones(3, np.float32)
    assert np.array_equal(interpret(after, [x])[0][0], interpret(program, [x])[0][0])


def test_small_results_stand_by_value_and_larger_ones_by_reference():
    s = Steps(H=3, W=400)
    small, large = (s("iota", axis=a, dtype=dtypes.int32) for a in ("H", "W"))
    counts = [s("constant", value=ArrayRef(np.arange(n)), axes=(a,), dtype=dtypes.int64) for a, n in (("H", 3), ("W", 400))]
    twos = [s("multiply", v, s.number(2, dtypes.int64)) for v in counts]
    after = dead(fold(s.program(small, large, *twos)))
    values = [st.attrs["value"] for st in after.steps if st.op == "constant"]
    assert [v.small for v in values] == [True, False] and ops(after).count("iota") == 2
    assert np.array_equal(values[1].array, np.arange(400) * 2)


def test_no_constant_over_64_kb_grows():
    s = Steps(H=300, W=300)
    a, b = (s("constant", value=ArrayRef(np.arange(300.0)), axes=(x,), dtype=dtypes.float64) for x in "HW")
    outer = s("multiply", a, b)
    after = fold(s.program(outer))
    assert ops(after) == ["constant", "constant", "multiply"]
    s = Steps(H=300, W=300)
    big = s("constant", value=ArrayRef(np.ones((300, 300))), axes=("H", "W"), dtype=dtypes.float64)
    assert ops(dead(fold(s.program(s("exp", big))))) == ["constant"]


def test_a_broadcast_is_computed_with_but_never_stored():
    s = Steps(H=300, W=300)
    spread = s("broadcast", s.number(0.5), axes=("H", "W"))
    after = dead(fold(s.program(s("reduce", spread, kind="add", axes=("H", "W")), spread)))
    assert sorted(ops(after)) == ["broadcast", "constant", "constant"]
    assert [st.attrs["value"] for st in after.steps if st.op == "constant"] == [0.5, 45000.0]


def test_unknown_lengths_and_state_are_left_alone():
    s = Steps(N=None, rng=2)
    n = s("constant", value=Len("N"), axes=(), dtype=dtypes.float32)
    ones = s("exp", s("broadcast", s.number(1), axes=("N",)))
    program = s.program(s("exp", n), ones, s.input("N"))
    assert ops(fold(program)) == ops(program)


def test_a_constant_renamed_into_another_order_of_axes_is_transposed():
    s = Steps(H=2, W=3, K=3)
    h, w, k = map(AxisId, "HWK")
    given = s("constant", value=ArrayRef(np.arange(6.0).reshape(3, 2)), axes=(w, h), dtype=dtypes.float64)
    result = Value(TensorType((h, k), dtypes.float64), "")  # simplify gives an input another order and leaves the result's
    s.steps.append(Step((result,), "rename", (given,), {"to": ((w, k),)}, s.steps[0].origin))
    program = verify(s.program(result))
    for p in (program, fold(program)):
        (found,) = interpret(p, [])[0]
        assert found.tolist() == [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]
    assert ops(dead(fold(program))) == ["constant"]


# ---- specialise ----


def symbolic():
    s = Steps(N=None, C=3, M=None)
    half_n, n = AxisId("half"), AxisId("N")
    s.axes[half_n] = Len(n) // 2
    v = s.input("N", "C")
    s.input("M")
    body = Steps(C=3, N=None)
    item = body.input("C")
    count = body("constant", value=Len(n), axes=(), dtype=dtypes.float32)
    loop = s("scan", v, body=body.program(body("multiply", item, count)), axis=n, reverse=False, carries=0, xs=1)
    c = AxisId("C")
    half = s("reindex", v, axes=(half_n, c), index=((n, Len(n) - 1 - Idx(half_n)), (c, Idx(c))), predicate=(), pad_value=0)
    program = s.program(loop, half, s("constant", value=Len(n), axes=(), dtype=dtypes.float32))
    program.hints[n] = "ax.N"
    return program


@pytest.mark.parametrize("name", ["N", "ax.N"])
def test_a_length_is_put_in_everywhere(name):
    program = symbolic()
    after = verify(specialise(program, {name: 6}))
    assert after.axes == {"N": 6, "C": 3, "M": Len("M"), "half": 3} and after.symbols() == ["M"]
    scan, reindex, constant = after.steps
    body = scan.attrs["body"]
    assert body.axes["N"] == 6 and body.steps[0].attrs["value"] == 6 and constant.attrs["value"] == 6
    assert dict(reindex.attrs["index"])["N"] == 5 - Idx("half")
    arrays = [np.arange(18, dtype=np.float32).reshape(6, 3), np.zeros(2, np.float32)]
    for a, b in zip(interpret(program, arrays)[0], interpret(after, arrays)[0], strict=True):
        assert np.array_equal(a, b)
    assert program.axes["N"] == Len("N")


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ({"K": 3}, "no axis K"),
        ({"C": 4}, "axis C has length 3"),
        ({"half": 4}, "follows from others"),
        ({"N": -1}, "cannot have length -1"),
        ({"N": 2.5}, "cannot have length 2.5"),
        ({"N": 4, "ax.N": 5}, "has length 4"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(lengths, message):
    with pytest.raises(AxisError, match=message):
        specialise(symbolic(), lengths)
    assert specialise(symbolic(), {"C": 3}).axes == symbolic().axes


# ---- reach ----


def test_reach_holds_every_value_that_an_index_takes():
    lengths = {"a": 5, "b": 3, "z": 0, "n": None}
    i, j = Idx("a"), Idx("b")
    for e in (i + j, i - j, i * 2 - 3 * j, (i + 7) // 2, (i * 3 + j) % 4, i % 9, minimum(i, j) * -2, Len("a") - 1 - i, (j - i) // 3):
        low, high = reach(e, lengths.get)
        at = [{"a": x, "b": y} for x in range(5) for y in range(3)]
        values = {evaluate(e, lambda leaf, p=p: p[leaf.of] if type(leaf) is Idx else lengths[leaf.of]) for p in at}
        assert low <= min(values) and max(values) <= high
    assert all(reach(e, lengths.get) is None for e in (Idx("z"), Idx("n"), i // Idx("b")))
    assert inside(i, 5, lengths.get) and not inside(i + 1, 5, lengths.get) and not inside(i, None, lengths.get)
    assert never_negative(Len("a") - 1 - i, lengths.get) and not never_negative(i - 1, lengths.get)
