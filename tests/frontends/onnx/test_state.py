"""State of ONNX models: inputs that become variables, which hold after each call what an output gave."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper as h  # noqa: E402  this needs what is looked for above

import ngraph as ng  # noqa: E402
from tests.frontends.onnx.made import F, I, graph, model  # noqa: E402

RANDOM = np.random.default_rng(0)


def held(m, name):
    return m.transformer.get(m.variables[name])


def test_an_exported_training_step_trains(tmp_path):
    N, K = ng.make_axis(name="N"), ng.make_axis(2, name="K")
    x, target = ng.placeholder([N, K]).named("x"), ng.placeholder([N]).named("t")
    w = ng.variable([K], initial_value=[1, 1]).named("w")
    loss = ng.mean((ng.contract(x, w, over=(K,)) - target) ** 2, out_axes=())
    path = str(tmp_path / "step.onnx")
    ng.onnx.save({"loss": loss, "step": ng.assign(w, w - 0.1 * ng.deriv(loss, w))}, path)
    m = ng.onnx.load(path, state={"w": "w.new"})
    assert [p.name for p in m.inputs] == ["x", "t"] and [p.name for p in m.outputs] == ["loss"] and held(m, "w").tolist() == [1, 1]
    for n in [50, 20] * 40:
        given = RANDOM.standard_normal((n, 2), np.float32)
        last = m(given, given @ np.array([1, -2], np.float32))
    assert last < 1e-6 and m.readings <= 2
    np.testing.assert_allclose(held(m, "w"), [1, -2], rtol=1e-3)
    again = str(tmp_path / "again.onnx")
    ng.onnx.save(m, again)
    assert [p.name for p in ng.onnx.load(again).outputs] == ["loss", "w.new"]


def test_a_recurrent_layer_goes_on_where_it_stood():
    """An LSTM over a sequence in pieces gives what it gives over the whole."""
    arrays = {"w": RANDOM.standard_normal((1, 16, 3), np.float32), "r": RANDOM.standard_normal((1, 16, 4), np.float32)}
    node = h.make_node("LSTM", ["x", "w", "r", "", "", "h", "c"], ["y", "h_new", "c_new"], hidden_size=4)
    state = [(name, F, [1, 2, 4]) for name in ("h", "c", "h_new", "c_new")]
    proto = model([node], [("x", F, ["T", 2, 3]), *state[:2]], [("y", F, None), *state[2:]], arrays)
    x, zero = RANDOM.standard_normal((12, 2, 3), np.float32), np.zeros((1, 2, 4), np.float32)
    want = ng.onnx.load(proto)(x, zero, zero)[0]
    m = ng.onnx.load(proto, state={"h": "h_new", "c": "c_new"})
    got = np.concatenate([m(part) for part in np.split(x, [5, 9])])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [2, 100])
def test_it_threads_through_a_branch_and_a_stage(size):
    """s' = s + 1 where the sum of x is above 0, else 0; the number of elements above 0 is found on the way."""
    branches = {
        "then_branch": graph([h.make_node("Add", ["s", "one"], ["t"])], [], [("t", F, [])]),
        "else_branch": graph([h.make_node("Mul", ["s", "zero"], ["t"])], [], [("t", F, [])]),
    }
    nodes = [
        h.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        h.make_node("Greater", ["sum", "zero"], ["p"]),
        h.make_node("If", ["p"], ["s_new"], **branches),
        h.make_node("Greater", ["x", "zero"], ["above"]),
        h.make_node("NonZero", ["above"], ["y"]),
    ]
    arrays = {"one": np.float32(1), "zero": np.float32(0)}
    m = ng.onnx.load(model(nodes, [("x", F, [size]), ("s", F, [])], [("s_new", F, []), ("y", I, [1, None])], arrays), state={"s": "s_new"})
    found = []
    for sign in (1, 1, -1, 1):
        assert m(np.full(size, sign, np.float32)).shape == (1, size if sign > 0 else 0)
        found.append(float(held(m, "s")))
    assert found == [1, 2, 0, 1]


@pytest.mark.parametrize(
    "state, said",
    [
        ({"z": "y"}, "there is no input 'z' with an output 'y'"),
        ({"x": "z"}, "there is no input 'x' with an output 'z'"),
        ({"x": "y"}, r"x: tensor\(float\)\[N, 2\] cannot be state: its lengths are open"),
        ("x", "state= takes names of inputs with names of outputs, not 'x'"),
    ],
)
def test_state_that_cannot_be_is_refused(state, said):
    proto = model([h.make_node("Relu", ["x"], ["y"])], [("x", F, ["N", 2])], [("y", F, ["N", 2])])
    with pytest.raises(ng.NgraphError, match=said):
        ng.onnx.load(proto, state=state)
