"""Op-graphs saved and loaded: all that the user said comes back, and what is not an op-graph is refused with a place."""

import copy
import json
import math
import random
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ngraph as ng
from ngraph.errors import GraphError, ParseError
from ngraph.op_graph import dtypes, opdef
from ngraph.op_graph import text as T
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.axes import Axes, make_axis
from ngraph.op_graph.expr import Idx, Len, Run, minimum
from ngraph.op_graph.op import Op, TensorType, ordered
from ngraph.op_graph.text import FORMAT, dumps, load, loads, register_codec, register_function, register_op, save, text
from ngraph.ops.random import rng, uniform
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower


@pytest.fixture
def registries():
    """Records, codecs, functions and ops that a test registers are gone after it."""
    tables = (opdef.REGISTRY, T._ENCODE, T._DECODE, T._FUNCTIONS, T._SHARED)
    before = [dict(t) for t in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


@pytest.fixture
def holder(registries):
    """A record of no inputs that takes any attributes."""
    return opdef.op("test_holder", "Holds attributes.", type=lambda inputs, axes=(), **attrs: TensorType(Axes(axes), dtypes.float32))


def network():
    ax = ng.make_name_scope("ax")
    ax.N = ng.make_axis(name="N")
    ax.C, k = ng.make_axis(4, roles=["features"], docstring="inputs"), ng.make_axis(30, name="K")
    x = ng.placeholder([ax.C, ax.N], name="x")
    w = ng.variable([k, ax.C], initial_value=np.linspace(-1, 1, 120).reshape(30, 4), name="W")
    with ng.name_scope("net"), ng.name_scope("first"), ng.metadata(layer=1, note=("a", 2.5)):
        h = ng.tanh(ng.contract(w, x, over=(ax.C,)) + ng.constant(np.arange(30.0, dtype=np.float32), [k]))
    y = ng.sum(h, reduction_axes=[k]).named("y")
    return [y, ng.assign(w, w * 0.5), h]


def same_graph(before, after):
    """Op for op, everything that stands on an op; axes by name, level, length, flags and line."""
    pairs = list(zip(ordered(before), ordered(after), strict=True))
    number = [{o: n for n, o in enumerate(side)} for side in zip(*pairs, strict=True)]
    for a, b in pairs:
        assert a is not b or a is rng
        assert a.opdef is b.opdef and [number[0][i] for i in a.inputs] == [number[1][i] for i in b.inputs]
        assert (a.hint, a.scope, a.line, a.metadata) == (b.hint, b.scope, b.line, b.metadata)
        for t, u in zip(types(a), types(b), strict=True):
            assert t == u
            for c, d in zip(t.axes, u.axes, strict=True):
                f, g = c.family, d.family
                assert (c.length, f.flags, f.roles, f.doc, f.line, f.parts) == (d.length, g.flags, g.roles, g.doc, g.line, g.parts)


def types(op):
    return () if op.type is None else op.type if type(op.type) is tuple else (op.type,)


def test_all_that_was_said_comes_back():
    roots = network()
    again = loads(dumps(roots))
    same_graph(roots, again)
    assert dumps(again) == dumps(roots) and text(again) == text(roots)
    w = next(o for o in ordered(again) if o.hint == "W")
    assert np.array_equal(w.attrs["initial_value"], np.linspace(-1, 1, 120).reshape(30, 4)) and w.is_trainable


def test_one_op_may_be_given_instead_of_several():
    y = network()[0]
    (again,) = loads(dumps(y))
    same_graph([y], [again])


def test_axes_that_were_one_are_one_again():
    n = make_axis(name="N")
    x, y = ng.placeholder([n]), ng.placeholder([n - 1])
    a, b = loads(dumps([x, y]))
    a.axes[0].length = 5
    assert b.axes[0].length == 5 and n.length is None


def test_lengths_that_follow_from_others_stay_so(holder):
    n = make_axis(name="N")
    half = n.resized(minimum(Len(n) // 2 + 1, 40))
    (again,) = loads(dumps(holder(axes=[n - 1, half.resized(Len(half) * 2).named("M")])))
    m = again.axes[1]
    assert m.length is None
    again.axes[0].length = 9
    assert m.length == 10


def test_lengths_that_an_op_gives_at_run_time_stay_so(holder):
    count = ng.placeholder([], dtype="int32", name="count")
    found = make_axis(name="found")
    found.family.length = minimum(Run(count), 7)
    (again,) = loads(dumps(holder(axes=[found])))
    length = again.axes[0].family.length
    assert type(length.a) is Run and length.b == 7 and length.a.of.hint == "count"


def test_an_axis_whose_length_its_own_op_gives(holder):
    found = make_axis(name="found")
    op = holder(axes=[found])
    found.family.length = Run(op)
    (again,) = loads(dumps(op))
    assert again.axes[0].family.length.of is again


def test_flattened_axes_know_their_parts(holder):
    a, b = make_axis(2, name="A"), make_axis(3, name="B")
    flat = make_axis(6, name="AB")
    flat.family.parts = (a, b - 1)
    (again,) = loads(dumps(holder(axes=[flat])))
    assert again.axes[0].is_flattened and again.axes[0].family.parts == (a, b - 1)


def test_random_streams_and_the_one_state_are_kept():
    u = uniform([make_axis(3, name="I")])
    (again,) = loads(dumps(u))
    assert again.attrs["stream"] == u.attrs["stream"] and rng in list(ordered([again]))
    assert uniform([make_axis(3, name="I")]).attrs["stream"] > again.attrs["stream"]


H = make_axis(5, name="H")
ATTRS = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.sampled_from([H, H - 1, Len(H) + 1, Idx(H - 1) * 3, dtypes.bfloat16, ..., Axes([H, H + 1])]),
        st.sampled_from([np.float32(0.1), np.int64(3), np.bool_(True), ml_dtypes.bfloat16(2)]),
        st.sampled_from([np.arange(3), np.arange(300.0), np.zeros((0, 4), np.int8), np.ones((2, 30), ml_dtypes.bfloat16), np.zeros(())]),
        st.sampled_from([ArrayRef(np.arange(300), "big"), ArrayRef(np.arange(2), "small")]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(), inner, max_size=3),
        st.builds(slice, *[st.one_of(st.none(), st.integers())] * 3),
    ),
    max_leaves=8,
)


def alike(a, b):
    """Equal, of one type, to the last bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, ArrayRef):
        return a.name == b.name and alike(a.array, b.array)
    if isinstance(a, dict):
        return list(a) == list(b) and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(alike, a, b))
    return a == b


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(), ATTRS, max_size=3))
def test_attributes_and_metadata_come_back_exactly(notes):
    with ng.metadata(notes=notes):
        op = ng.placeholder([H])
    op.attrs["kept"] = notes
    (again,) = loads(dumps(op))
    assert alike(again.attrs["kept"], notes) and alike(again.metadata["notes"], notes)


def test_a_function_is_refused_with_its_variable_and_a_fix(registries):
    op = ng.variable([H], initial_value=lambda axes: 0.5, name="W")
    with pytest.raises(GraphError) as e:
        dumps(op)
    assert e.value.line == op.line == (__file__, op.line[1])
    first, fix = str(e.value).split("\n")
    assert first.endswith("variable W cannot be saved: initial_value <lambda> is a function")
    assert fix == "  fix: give it as a number or an array"
    register_function("test.half", op.attrs["initial_value"])
    (again,) = loads(dumps(op))
    assert again.attrs["initial_value"] is op.attrs["initial_value"]


def test_what_has_no_form_is_refused_and_a_codec_gives_it_one(registries):
    op = ng.placeholder([H], name="x")
    op.attrs["when"] = 3 + 4j
    with pytest.raises(GraphError, match="placeholder x cannot be saved: when complex has no form in JSON\n  fix: .*register_codec"):
        dumps(op)
    register_codec(complex, "complex", lambda z, e: [e.encode(z.real), e.encode(z.imag)], lambda p, d: complex(*map(d.decode, p)))
    (again,) = loads(dumps(op))
    assert again.attrs["when"] == 3 + 4j
    for kind, tag in ((complex, "other"), (bytes, "complex")):
        with pytest.raises(ValueError, match="registered already"):
            register_codec(kind, tag, lambda z, e: 0, lambda p, d: 0)


def test_names_are_registered_once(registries):
    x = ng.placeholder([])
    assert register_op("test.x", x) is register_op("test.x", x) is x
    with pytest.raises(ValueError, match="an op 'test.x' is registered already"):
        register_op("test.x", ng.placeholder([]))
    register_function("test.f", len)
    with pytest.raises(ValueError, match="a function 'test.f' is registered already"):
        register_function("test.f", max)
    (again,) = loads(dumps(x + 1))
    assert x in list(ordered([again]))


def test_a_record_that_the_reader_has_not_is_named(registries):
    record = opdef.op("test_gone", "Gone when read.", type=lambda inputs: TensorType(Axes(), dtypes.float32))
    saved = dumps(record() + 1)
    del opdef.REGISTRY["test_gone"]
    with pytest.raises(ParseError, match=r"at ops\[0\]: .*'test_gone' is not a registered op"):
        loads(saved)


def test_a_newer_format_is_refused_with_both_numbers():
    data = json.loads(dumps(network()))
    with pytest.raises(ParseError, match=rf"op-graph has format {FORMAT + 4}, .* up to {FORMAT}"):
        loads(json.dumps({**data, "format": FORMAT + 4}))
    for wrong in (None, "1", 0, True):
        with pytest.raises(ParseError, match="format"):
            loads(json.dumps({**data, "format": wrong}))
    with pytest.raises(ParseError, match="not an op-graph of ngraph"):
        loads(json.dumps({**data, "kind": "program"}))


@pytest.mark.parametrize("source", ["", "{", "[]", "null", '{"a": NaN}', "1" * 5000, "[" * 100_000, b"\xff\xfe\xfa", '"\\ud800"'])
def test_what_is_no_json_of_ours_is_refused(source):
    with pytest.raises(ParseError):
        loads(source)


def change(data, chance):
    """One place of JSON data changed."""
    owner, key, here = None, None, data
    while isinstance(here, (dict, list)) and here and (owner is None or chance.random() < 0.85):
        owner, key = here, chance.choice(list(here)) if isinstance(here, dict) else chance.randrange(len(here))
        here = here[key]
    junk = [None, True, -1, 0, 1, 2, 10**9, 10**30, 1.5, "", "x", "float32", [], [[]], {}, {"axis": [0, 0]}, {"op": 0}, {"list": []}]
    junk += [{"expr": [{"Len": {"axis": [0, 0]}}, 1, "+"]}, {"expr": [{"Run": {"op": 1}}]}]
    junk += [{"array": ["int8", [10**15], {"name": "array"}]}]
    if chance.random() < 0.3:
        del owner[key]
    else:
        owner[key] = copy.deepcopy(chance.choice(junk))


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_changed_json_is_read_or_refused(seed):
    chance = random.Random(seed)
    data = json.loads(SAVED)
    for _ in range(chance.randint(1, 2)):
        change(data, chance)
    try:
        again = loads(json.dumps(data))
    except ParseError as e:
        assert "this op-graph cannot be read, at " in str(e) or "format" in str(e) or "not an op-graph" in str(e)
    else:
        assert dumps(loads(dumps(again))) == dumps(again)
        text(again)


SAVED = dumps([*network(), uniform([H])])


def test_a_length_said_in_terms_of_itself_is_refused():
    data = json.loads(dumps(network()))
    circle = {"expr": [{"Len": {"axis": [0, 0]}}, 1, "+"]}
    data["axes"][0]["length"] = circle
    with pytest.raises(ParseError, match="in terms of itself"):
        loads(json.dumps(data))
    data["axes"][0]["length"], data["axes"][1]["length"] = {"expr": [{"Len": {"axis": [1, 0]}}, 1, "+"]}, circle
    with pytest.raises(ParseError, match="in terms of itself"):
        loads(json.dumps(data))


def test_files_come_back_in_another_process_and_run_to_equal_bits(tmp_path):
    roots = network()
    for _ in range(2):
        save(roots, tmp_path / "g.json")
    assert len(list(tmp_path.iterdir())) == 2 and list(tmp_path.glob("g.json.*.safetensors"))
    same_graph(roots, load(tmp_path / "g.json"))
    code = """
import sys, numpy as np, ngraph as ng
from ngraph.op_graph.text import load
from ngraph.op_graph.op import ordered
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower
roots = load(sys.argv[1])
x = [o for o in ordered(roots) if o.is_placeholder]
w = next(o for o in ordered(roots) if o.hint == "W")
state = {"W": np.asarray(w.attrs["initial_value"], np.float32)}
outputs, state = interpret(lower(roots, x).program, [np.sin(np.arange(28, dtype=np.float32)).reshape(4, 7)], state)
sys.stdout.buffer.write(b"".join(a.tobytes() for a in [*outputs, state["W"]]))
"""
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path / "g.json")], capture_output=True, check=True).stdout
    x = [o for o in ordered(roots) if o.is_placeholder]
    state = {"W": np.linspace(-1, 1, 120).reshape(30, 4).astype(np.float32)}
    outputs, state = interpret(lower(roots, x).program, [np.sin(np.arange(28, dtype=np.float32)).reshape(4, 7)], state)
    assert out == b"".join(a.tobytes() for a in [*outputs, state["W"]])


def test_a_deep_graph_is_no_deeper_than_its_list():
    x = v = ng.placeholder([H])
    for _ in range(20_000):
        v = ng.tanh(v) + x
    (again,) = loads(dumps(v))
    assert sum(1 for _ in ordered([again])) == 40_001 == text(again).count("\n%")
    assert type(again) is Op


def test_text_reads_as_documented():
    n, c = make_axis(name="N"), make_axis(4, name="C")
    x = ng.placeholder([c, n - 1], name="x")
    with ng.name_scope("net"):
        y = ng.sum(ng.tanh(x) * ng.constant([1.0, 2, 3, 4], [c]), reduction_axes=[c]).named("y")
    lines = text(y).split("\n")
    wanted = [
        "axis C = 4  channel",
        "axis N = ?  batch",
        "%0 x : float32[C=4, N'=?] = placeholder()",
        "%1 net/ : float32[C=4, N'=?] = tanh(%0)",
        "%3 net/ : float64[C=4] = constant() {value: [1.0, 2.0, 3.0, 4.0]}",
    ]
    for line in wanted:
        assert any(shown.startswith(line) and "# " in shown and "test_text.py:" in shown for shown in lines), (line, lines)
    assert any("net/y : " in line and "reduce(" in line and "kind: 'add', axes: [C]" in line for line in lines)
    assert lines[-2:] == ["results %5", ""]
