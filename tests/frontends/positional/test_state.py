"""State that threads through a reading, layouts as orders of dims, nodes in any order: by a small format that is an example."""

import json

import numpy as np
import pytest
from small_format import STEPS, TRANSLATORS

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.frontends.positional.values import ConstantArray
from ngraph.frontends.positional.walk import in_order
from ngraph.frontends.positional.windows import convolution, windowing

SCALARS = {"inputs": {"x": ["float32", []]}, "arrays": {"zero": 0.0, "one": 1.0, "two": 2.0, "ten": 10.0}, "variables": {"v": 0.0}}


@pytest.fixture
def made(tmp_path):
    """A model of these nodes."""
    count = iter(range(100))

    def make(nodes, outputs, transformer=None, trainable=(), state=None, **file):
        path = tmp_path / f"{next(count)}.steps"
        path.write_text(json.dumps({"name": "small", **SCALARS, **file, "nodes": nodes, "outputs": outputs}))
        return STEPS.load(path, transformer or ngt.allocate_transformer("cpu"), trainable=trainable, state=state)

    return make


def node(op, takes="", gives="", **more):
    return {"op": op, "takes": takes.split(), "gives": gives.split(), **more}


def graph(takes, gives, *nodes):
    return {"takes": takes.split(), "gives": gives.split(), "nodes": list(nodes)}


def held(model, name="v"):
    return np.asarray(model.transformer.get(model.variables[name])).tolist()


READ, CHANGE = node("read", gives="r", variable="v"), node("assign", "s", variable="v", name="changed")


def test_what_is_assigned_is_there_after_the_call_and_read_by_the_next(made):
    model = made([READ, node("add", "r x", "s"), CHANGE, node("read", gives="y", variable="v", after=["changed"])], ["y", "r"])
    assert [tuple(map(float, model(np.float32(x)))) for x in (1, 2, 3)] == [(1, 0), (3, 1), (6, 3)]
    assert held(model) == 6 and model.readings == 1


def test_several_assignments_are_stored_once(made):
    second = node("assign", "t", variable="v", name="again", after=["changed", "r2"])
    nodes = [
        READ,
        node("add", "r x", "s"),
        CHANGE,
        node("read", gives="r2", variable="v", after=["changed"]),
        node("multiply", "r2 two", "t"),
    ]
    model = made([*nodes, second], ["r2"])
    assert float(model(np.float32(1))) == 1 and held(model) == 2
    assert float(model(np.float32(1))) == 3 and held(model) == 6


BIG = {"inputs": {"x": ["float32", [100]]}}


@pytest.mark.parametrize("assigns", ["then", "else", "both", "neither"])
def test_a_branch_that_is_an_op_carries_what_it_assigns(made, assigns):
    change = {"then": node("add", "r ten", "s"), "else": node("add", "r two", "s")}
    bodies = {}
    for k, way in enumerate(("then", "else")):
        nodes = [node("add", "one one" if k else "one zero", "out")]
        if assigns in (way, "both"):
            nodes += [READ, change[way], CHANGE]
        bodies[way] = graph("", "out", *nodes)
    nodes = [node("sum", "x", "total"), node("less", "zero total", "p"), node("if", "p", "y", name="branch", **bodies)]
    model = made([*nodes, node("read", gives="now", variable="v", after=["branch"])], ["y", "now"], **BIG)
    expected = 0.0
    for sign in (1, -1, 1, 1, -1):
        if assigns in ("then" if sign > 0 else "else", "both"):
            expected += 10 if sign > 0 else 2
        y, now = model(np.full(100, sign, np.float32))
        assert (float(y), float(now), held(model)) == (1 if sign > 0 else 2, expected, expected)
    assert model.readings == 1  # one op, whatever the condition


@pytest.mark.parametrize("times", [3, 20])
def test_loops_unrolled_and_not_carry_what_they_assign(made, times):
    body = graph("a", "b", READ, node("add", "r a", "s"), CHANGE, node("add", "a one", "b"))
    model = made([node("repeat", "x", "y", times=times, body=body), node("read", gives="now", variable="v", after=["y"])], ["y", "now"])
    want = 0.0
    for _ in range(2):
        want += sum(range(5, 5 + times))
        y, now = model(np.float32(5))
        assert (float(y), float(now), held(model)) == (5 + times, want, want)


def test_a_loop_whose_condition_reads_a_variable_and_whose_body_branches(made):
    """while v < total: v = v + 10 if v < 2 else v * 2"""
    holds = graph("a", "on", READ, node("less", "r total", "on"))
    grow, double = (
        graph("", "o", node("add", "r ten", "o"), node("assign", "o", variable="v")),
        graph("", "o", node("multiply", "r two", "o")),
    )
    double["nodes"].append(node("assign", "o", variable="v"))
    body = graph(
        "a", "b", READ, node("less", "r two", "p"), node("if", "p", "q", **{"then": grow, "else": double}), node("add", "a one", "b")
    )
    model = made([node("sum", "x", "total"), node("while", "zero", "turns", holds=holds, body=body)], ["turns"], **BIG)
    assert float(model(np.full(100, 1, np.float32))) == 5 and held(model) == 160  # 10 20 40 80 160
    assert float(model(np.full(100, 1, np.float32))) == 0 and held(model) == 160
    assert float(model(np.full(100, 5, np.float32))) == 2 and held(model) == 640


def test_stages_commit_together(made):
    """A value that decides the shape of what comes next makes two stages; an error in the second leaves the variable as it was."""
    nodes = [READ, node("add", "r x", "s"), CHANGE, node("read", gives="now", variable="v", after=["changed"]), node("known", "now", "k")]
    nodes += [node("assign", "k", variable="w"), node("fails", "k", "y")]

    def known(n, v):
        value = n.g.known(v)
        return ConstantArray(value + 1)

    def fails(n, v):
        if float(n.g.known(v)) > 3:
            raise ValueError("too much")
        return v

    TRANSLATORS.update(known=known, fails=fails)
    try:
        model = made(nodes, ["y"], variables={"v": 0.0, "w": 0.0})
        assert float(model(np.float32(1))) == 2 and (held(model), held(model, "w")) == (1, 2)
        assert float(model(np.float32(1))) == 3 and (held(model), held(model, "w")) == (2, 3)
        with pytest.raises(ng.NgraphError, match="too much"):
            model(np.float32(1))
        assert (held(model), held(model, "w")) == (2, 3)
    finally:
        del TRANSLATORS["known"], TRANSLATORS["fails"]


def test_an_assignment_of_another_shape_is_refused(made):
    model = made([node("assign", "x", variable="v")], ["x"], inputs={"x": ["float32", [2]]})
    with pytest.raises(ng.NgraphError, match=r"the variable 'v' is float32\[\], and gets float32\[2\]"):
        model(np.zeros(2, np.float32))
    with pytest.raises(ng.NgraphError, match="there is no variable 'u'"):
        made([node("read", gives="y", variable="u")], ["y"])(np.float32(0))


def test_as_op_graph_a_model_gives_what_it_assigns(made):
    inputs, outputs, variables = made([READ, node("add", "r x", "s"), CHANGE], ["s"]).graph({"x": ()})
    assert list(inputs) == ["x"] and list(outputs) == ["s", "v.new"] and list(variables) == ["v"]


def test_training_in_a_file(made):
    """w <- w - (w x - 6) x until w x = 6, a step of gradient descent in each call."""
    nodes = [READ, node("multiply", "r x", "p"), node("add", "p target", "d"), node("multiply", "d x", "slope")]
    nodes += [node("multiply", "slope rate", "step"), node("add", "r step", "s"), CHANGE]
    model = made(nodes, ["d"], arrays={"target": -6.0, "rate": -0.1})
    for _ in range(50):
        model(np.float32(2))
    assert held(model) == pytest.approx(3, rel=1e-4) and model.readings == 1


# ---- order --------------------------------------------------------------------------------------------------------------


def ordered(nodes, wanted=None):
    found = in_order(nodes, lambda n: n[1].split(), lambda n: [n[0]], lambda n: n[2].split() if len(n) > 2 else (), wanted)
    return " ".join(n[0] for n in found)


def test_nodes_come_behind_what_they_need_and_else_as_they_are():
    assert ordered([("c", "b a"), ("a", "x"), ("b", "a")]) == "a b c"
    assert ordered([("p", ""), ("q", ""), ("r", "p")]) == "p q r"
    assert ordered([("a", "", "z"), ("b", ""), ("z", "")]) == "z a b"
    assert ordered([("c", "b"), ("a", ""), ("b", ""), ("d", "a")], ["c"]) == "b c"
    assert ordered([(str(k), str(k + 1)) for k in range(5000)]).startswith("4999 4998")


@pytest.mark.parametrize("nodes, said", [([("a", "c"), ("b", "a"), ("c", "", "b")], "a -> c -> b -> a"), ([("a", "a")], "a -> a")])
def test_nodes_that_wait_for_each_other_are_named(nodes, said):
    with pytest.raises(ng.NgraphError, match=f"wait for each other: {said}"):
        ordered(nodes)


def test_a_file_keeps_its_nodes_in_any_order(made):
    nodes = [node("multiply", "more x", "y"), CHANGE, node("add", "r one", "s"), node("add", "s zero", "more"), READ]
    for turned in (nodes, nodes[::-1]):
        model = made(turned, ["y"])
        assert [float(model(np.float32(10))) for _ in range(3)] == [10, 20, 30]


# ---- layout -------------------------------------------------------------------------------------------------------------


def conv(x, w, pad):
    """A convolution [n, h, w, c] by [h, w, c, m]."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0))), (3, 3), (1, 2))
    return np.einsum("nhwcij,ijcm->nhwm", windows, w)


def channels_first(n, x, w):
    by = windowing(n.g.numbers(w.shape[2:]), auto=n.about.get("padding", "VALID"))
    return convolution(n.g, n.g.tensor(x), w, by)


@pytest.mark.skipif("cpu" not in ngt.transformer_choices(), reason="there is no machine code here")
@pytest.mark.parametrize("size", [20, 28])  # products over windows, and tiles of Winograd
def test_convolutions_with_channels_last_add_no_copy(made, size, monkeypatch):
    """The plan of a network [n, h, w, c] has the kernels of the one [n, c, h, w]: its convolutions, and its relu within one of them."""
    monkeypatch.setitem(TRANSLATORS, "conv first", channels_first)
    random = np.random.default_rng(0)
    shape, deep = (2, size, size, 16 if size == 20 else 32), 32 if size == 20 else 64
    x = random.standard_normal(shape).astype(np.float32)
    w1, w2 = (random.standard_normal(s).astype(np.float32) for s in ((3, 3, shape[-1], deep), (3, 3, deep, 16)))
    found = []
    for op, order, other in (("conv", (0, 1, 2, 3), (0, 1, 2, 3)), ("conv first", (0, 3, 1, 2), (3, 2, 0, 1))):
        nodes = [node(op, "x w1", "a", padding="SAME_UPPER"), node("relu", "a", "b"), node(op, "b w2", "y")]
        arrays = {"w1": w1.transpose(other).tolist(), "w2": w2.transpose(other).tolist()}
        given = x.transpose(order)
        model = made(nodes, ["y"], inputs={"x": ["float32", list(given.shape)]}, arrays=arrays, variables={})
        want = conv(np.maximum(conv(x, w1, 1), 0), w2, 0).transpose(order)
        np.testing.assert_allclose(model(given), want, rtol=1e-2, atol=1e-2)
        ((computation, arrays),) = model.reader.computations(model.about.bound({"x": given}))
        found.append([row.ops for row in computation.profile(*arrays, calls=1).rows])
    assert found[0] == found[1] and not {"copy", "broadcast", "reindex", "transpose"} & set(" ".join(found[0]).replace(",", "").split())
    assert size != 20 or found[0] == ["a, b", "y"]  # kernels are called by the values of the file


def test_a_constant_is_declared_as_it_lies_in_memory(made, monkeypatch):
    """Filters that a format has in another order are a view of theirs, and the op's axes are in the order of memory."""
    found = []

    def read_turned(n, x, w):
        turned = n.g.tensor(ConstantArray(np.transpose(w.array, (3, 2, 0, 1)), w.name))
        found.append((turned.op.const, [a.length for a in turned.dims], w.array))
        return convolution(n.g, n.g.tensor(x), turned, windowing([2, 3]))

    monkeypatch.setitem(TRANSLATORS, "conv turned", read_turned)
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(s).astype(np.float32) for s in ((2, 4, 7, 9), (2, 3, 4, 5)))
    model = made([node("conv turned", "x w", "y")], ["y"], inputs={"x": ["float32", [2, 4, 7, 9]]}, arrays={"w": w.tolist()}, variables={})
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 3), (2, 3))
    np.testing.assert_allclose(model(x), np.einsum("nchwij,ijcm->nmhw", windows, w), rtol=1e-4, atol=1e-4)
    held, lengths, array = found[0]
    assert lengths == [5, 4, 2, 3]
    assert held.shape == (2, 3, 4, 5) and held.flags.c_contiguous and np.array_equal(held, array)
