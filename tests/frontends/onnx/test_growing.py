"""State that grows: the keys and values of a decoder's past as variables, beside the same file fed with what it gave (and ONNX Runtime)."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper as h  # noqa: E402  this needs what is looked for above

import ngraph as ng  # noqa: E402
import ngraph.transformers as ngt  # noqa: E402
from ngraph.errors import ArgumentError, BoundsError, GraphError  # noqa: E402
from tests.frontends.onnx.made import F, agree, model  # noqa: E402

HEADS, WIDTH = 2, 3
FEATURES = HEADS * WIDTH
PAIRS = {f"past.{k}": f"new.{k}" for k in range(4)}


@pytest.fixture(params=["direct", "numpy", "cpu"])
def transformer(request):
    with ngt.allocate_transformer(request.param) as made, ng.config(lengths="open"):
        yield made


def decoder(joined="plain"):
    """Two layers of attention over [1, heads, past + time, width]; each gives its keys and values, those of the past in front.

    joined: how past and new ones meet: by Concat; with more behind it (`scaled`), so that all of the state changes; or Identity around it.
    """
    constants = {"split": np.array([1, -1, HEADS, WIDTH]), "merged": np.array([1, -1, FEATURES]), "half": np.float32(0.5)}
    random, nodes = np.random.default_rng(0), []
    x = "x"
    for layer in range(2):
        sides = []
        for side in "qkv":
            name = f"{side}{layer}"
            constants[f"w{name}"] = random.standard_normal((FEATURES, FEATURES), np.float32) / 2
            nodes += [
                h.make_node("MatMul", [x, f"w{name}"], [f"{name}.flat"]),
                h.make_node("Reshape", [f"{name}.flat", "split"], [f"{name}.apart"]),
                h.make_node("Transpose", [f"{name}.apart"], [name], perm=[0, 2, 1, 3]),
            ]
            sides.append(name)
        for k, side in enumerate(sides[1:], 2 * layer):
            past, new = f"past.{k}", f"new.{k}"
            whole, same = f"{new}.whole", f"{past}.same"
            if joined == "scaled":
                nodes += [h.make_node("Concat", [past, side], [whole], axis=2), h.make_node("Mul", [whole, "half"], [new])]
            elif joined == "identity":
                nodes += [h.make_node("Identity", [past], [same]), h.make_node("Concat", [same, side], [whole], axis=-2)]
                nodes += [h.make_node("Identity", [whole], [new])]
            else:
                nodes += [h.make_node("Concat", [past, side], [new], axis=-2)]
        nodes += [
            h.make_node("Transpose", [f"new.{2 * layer}"], [f"turned{layer}"], perm=[0, 1, 3, 2]),
            h.make_node("MatMul", [sides[0], f"turned{layer}"], [f"scores{layer}"]),
            h.make_node("Softmax", [f"scores{layer}"], [f"weights{layer}"], axis=-1),
            h.make_node("MatMul", [f"weights{layer}", f"new.{2 * layer + 1}"], [f"mean{layer}"]),
            h.make_node("Transpose", [f"mean{layer}"], [f"back{layer}"], perm=[0, 2, 1, 3]),
            h.make_node("Reshape", [f"back{layer}", "merged"], [f"y{layer}"]),
        ]
        x = f"y{layer}"
    inputs = [("x", F, [1, "time", FEATURES]), *((name, F, [1, HEADS, "past", WIDTH]) for name in PAIRS)]
    outputs = [(x, F, [1, "time", FEATURES]), *((name, F, [1, HEADS, None, WIDTH]) for name in PAIRS.values())]
    return model(nodes, inputs, outputs, constants)


def fed(proto, parts):
    """What the file gives for parts of a text, its past going in and coming out by hand."""
    plain, past = ng.onnx.load(proto, ngt.make_transformer()), {name: np.zeros((1, HEADS, 0, WIDTH), np.float32) for name in PAIRS}
    found = []
    for part in parts:
        first, *new = plain.run(None, {"x": part, **past})
        past = dict(zip(PAIRS, new, strict=True))
        found.append(first)
    return found, list(past.values())


def text(*sizes, seed=0):
    return [np.random.default_rng((seed, k)).standard_normal((1, n, FEATURES), np.float32) for k, n in enumerate(sizes)]


def kept(m):
    """The used part of each state."""
    return [m.transformer.get(m.variables[name])[:, :, : m.used["past"]] for name in PAIRS]


def test_the_file_fed_by_hand_agrees_with_onnx_runtime():
    zero = {name: np.zeros((1, HEADS, n, WIDTH), np.float32) + 0.1 for n in (0, 3) for name in PAIRS}
    agree(decoder(), {"x": text(2)[0], **zero})


@pytest.mark.parametrize("joined", ["plain", "identity", "scaled"])
@pytest.mark.parametrize("sizes", [[1] * 13, [5, 1, 1, 3, 1, 2], [13]], ids=["tokens", "parts", "whole"])
def test_it_gives_what_the_file_gives_that_is_fed_by_hand(transformer, joined, sizes):
    proto, parts = decoder(joined), text(*sizes)
    want, past = fed(proto, parts)
    m = ng.onnx.load(proto, transformer, state=PAIRS, capacity=13)
    assert [p.name for p in m.inputs] == ["x"] and [p.name for p in m.outputs] == ["y1"] and m.used == {"past": 0}
    for part, y in zip(parts, want, strict=True):
        np.testing.assert_allclose(m(part), y, rtol=1e-4, atol=1e-5)
    assert m.used == {"past": 13}
    for got, wanted in zip(kept(m), past, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_where_there_is_no_more_room_nothing_has_changed(transformer):
    m = ng.onnx.load(decoder(), transformer, state=PAIRS, capacity=7)
    parts = text(4, 2)
    want = [m(part) for part in parts]
    before = kept(m)
    for size in (2, 3):
        with pytest.raises(BoundsError, match=rf"the state 'past.0' has room for 7 places along past, and gets {6 + size}") as found:
            m(text(size)[0])
        assert "6 are used" in str(found.value) and f"capacity={6 + size}" in found.value.fix
        assert m.used == {"past": 6} and all(np.array_equal(a, b) for a, b in zip(kept(m), before, strict=True))
    m(text(1)[0])
    assert m.used == {"past": 7}
    m.reset()
    assert m.used == {"past": 0}
    for part, y in zip(parts, want, strict=True):
        np.testing.assert_array_equal(m(part), y)


def test_a_text_goes_on_from_an_earlier_place(transformer):
    proto, parts, others = decoder(), text(3, 1, 1), text(2, 1, seed=1)
    m = ng.onnx.load(proto, transformer, state=PAIRS, capacity=16)
    for part in parts:
        m(part)
    m.reset(4)
    want, _ = fed(proto, [*parts[:2], *others])
    for part, y in zip(others, want[2:], strict=True):
        np.testing.assert_allclose(m(part), y, rtol=1e-4, atol=1e-5)
    assert m.used == {"past": 7}
    m.reset(99)
    assert m.used == {"past": 7}


def test_it_is_read_and_compiled_once_and_copies_no_state():
    """The plan has one store into each state, of what is new, and an arena smaller than one of the states."""
    capacity = 200
    with ngt.allocate_transformer("cpu") as t, ng.config(lengths="open"):
        m = ng.onnx.load(decoder(), t, state=PAIRS, capacity=capacity)
        for part in text(*[1] * 20):
            m(part)
        assert m.readings == 1
        ((computation, _),) = m.reader.computations(m.about.bound({"x": text(1)[0]}))
        assert len(computation.executable.native.codes) == 1
        assert computation.memory["arena"] < capacity * FEATURES * 4
        lines = computation.plan.splitlines()
        for name in PAIRS:
            (line,) = [x for x in lines if x.startswith(f'state "{name}"')]
            before, after = line.split()[2], line.split()[4]
            stores = [x for x in lines if x.startswith("store") and (f" in {after}[" in x or f" in {before}[" in x)]
            assert len(stores) == 1 and "Load(" in stores[0], (line, stores)  # at places that are computed


def test_the_newest_attention_appends_too(transformer):
    """The op Attention of opset 24 takes the past and gives it with the new keys and values."""
    node = h.make_node("Attention", ["q", "k", "v", "", "past.0", "past.1"], ["y", "new.0", "new.1"], is_causal=1)
    sides = [(name, F, [1, HEADS, "time", WIDTH]) for name in "qkv"]
    inputs = [*sides, *((f"past.{k}", F, [1, HEADS, "past", WIDTH]) for k in (0, 1))]
    outputs = [("y", F, None), *((f"new.{k}", F, [1, HEADS, None, WIDTH]) for k in (0, 1))]
    proto = model([node], inputs, outputs, opset=24)
    m = ng.onnx.load(proto, transformer, state={"past.0": "new.0", "past.1": "new.1"}, capacity=9)
    plain, past = ng.onnx.load(proto), [np.zeros((1, HEADS, 0, WIDTH), np.float32)] * 2
    random = np.random.default_rng(0)
    for n in (3, 1, 1, 2):
        q, k, v = random.standard_normal((3, 1, HEADS, n, WIDTH), np.float32)
        y, *past = plain.run(None, {"q": q, "k": k, "v": v, "past.0": past[0], "past.1": past[1]})
        np.testing.assert_allclose(m(q, k, v), y, rtol=1e-5, atol=1e-6)
    assert m.used == {"past": 7}


def test_state_of_both_kinds(transformer):
    """One that grows, and a counter of calls beside it; reset() sets both back."""
    nodes = [h.make_node("Concat", ["past", "x"], ["new"], axis=0), h.make_node("Add", ["calls", "one"], ["more"])]
    nodes += [h.make_node("ReduceSum", ["new"], ["sum"], keepdims=0), h.make_node("Mul", ["sum", "more"], ["y"])]
    inputs = [("x", F, ["n"]), ("past", F, ["p"]), ("calls", F, [])]
    proto = model(nodes, inputs, [("y", F, []), ("new", F, [None]), ("more", F, [])], {"one": np.float32(1)})
    m = ng.onnx.load(proto, transformer, state={"past": "new", "calls": "more"}, capacity=10)
    for _ in range(2):
        assert [float(m(np.ones(n, np.float32))) for n in (2, 3, 1)] == [2, 10, 18]
        assert m.used == {"p": 6}
        m.reset()


def test_what_grows_unlike_is_refused():
    nodes = [h.make_node("Concat", ["a", "x"], ["a2"], axis=0), h.make_node("Concat", ["b", "x", "x"], ["b2"], axis=0)]
    proto = model(nodes, [("x", F, [1]), ("a", F, ["p"]), ("b", F, ["p"])], [("a2", F, [None]), ("b2", F, [None])])
    with pytest.raises(GraphError, match="state that is as long as p gets 1 and 2 places"):
        ng.onnx.load(proto, state={"a": "a2", "b": "b2"}, capacity=9)(np.ones(1, np.float32))
    two = model([h.make_node("Relu", ["x"], ["y"])], [("x", F, ["N", "M"])], [("y", F, None)])
    with pytest.raises(ArgumentError, match="cannot be state: its lengths are open") as found:
        ng.onnx.load(two, state={"x": "y"}, capacity=9)
    assert found.value.fix == "`ngraph convert --shape` fixes lengths but one"
    for wrong in (0, -1, True, "9", 2.5):
        with pytest.raises(ArgumentError, match="capacity= takes a whole number above 0"):
            ng.onnx.load(proto, state={"a": "a2"}, capacity=wrong)
