"""Tensor graphs: after each rewrite one is lawful, parses back, and means what the program means; a rewrite with nothing to do keeps it."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import BF16, INT8
from models import MODELS
from plan_programs import arrays_for, axis, hole, program
from test_random_programs import LENGTHS, cases, same

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ParseError
from ngraph.parts.runner import watching
from ngraph.plan.planner import GRAPH_PASSES, plan
from ngraph.program import interpret as oracle
from ngraph.program.lower import lower
from ngraph.program.text import text as program_text
from ngraph.targets import DEFAULT
from ngraph.tensors.build import build
from ngraph.tensors.graph import TensorGraph
from ngraph.tensors.interpret import interpret
from ngraph.tensors.simplify import contract_fma, rename_axes
from ngraph.tensors.text import arrays, parse, text
from ngraph.tensors.verify import verify
from ngraph.tools.explain import stages

MACHINES = [DEFAULT, BF16, INT8]


def versions(whole, machine, lengths=None):
    """The graph of a program, and that after each rewrite, by name; those of bodies have names with a dot."""
    with watching() as seen:
        plan(whole, lengths, machine)
    found = [(ran.name, ran.value) for ran in seen if type(ran.value) is TensorGraph]
    assert {"tensors", *GRAPH_PASSES.names} <= {name for name, _ in found}
    return found


def read_back(graph):
    """The graph that its text is parsed to, which prints the same."""
    shown = text(verify(graph))
    again = parse(shown, arrays(graph))
    assert text(verify(again)) == shown
    return again


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(cases(), st.sampled_from(MACHINES), st.sampled_from([None, LENGTHS]))
def test_each_rewrite_keeps_what_a_graph_means(case, machine, lengths):
    asked, inputs, expected = case
    before = None
    for name, graph in versions(asked, machine, lengths):
        if graph is before or "." in name:
            continue
        before = graph
        for g in (graph, read_back(graph)):
            got, _ = interpret(g, inputs, lengths=LENGTHS)
            assert same(got, expected), f"after {name}\n{program_text(asked)}\n{text(g)}"


@pytest.mark.parametrize("machine", MACHINES, ids=["plain", "bf16", "int8"])
@pytest.mark.parametrize("name", MODELS)
def test_models_mean_the_same_after_each_rewrite(name, machine):
    made, parameters = MODELS[name]()
    whole = ngt.make_transformer_factory("numpy")().computation(made, *parameters, name=name).program
    lengths = dict.fromkeys(whole.symbols(), 3)
    inputs, state = arrays_for(whole.with_(axes={a: 3 if a in lengths else n for a, n in whole.axes.items()}))
    state = {k: v * np.asarray(0.1, v.dtype) if v.dtype.kind == "f" else v for k, v in state.items()}
    expected, after = oracle.interpret(whole, inputs, dict(state), lengths)
    for step, graph in versions(whole, machine):
        if "." in step:
            read_back(graph)
            continue
        got, now = interpret(read_back(graph), inputs, dict(state), lengths)
        for a, b in [*zip(got, expected, strict=True), *[(now[k], after[k]) for k in after]]:
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4, err_msg=step)


def test_a_rewrite_that_finds_nothing_returns_the_graph_itself():
    n = axis(8, "N")
    x = hole(n)
    graph = contract_fma(rename_axes(build(program([ng.exp(x)], x))))
    for rewrite in GRAPH_PASSES:
        if rewrite.name != "assign_layouts":
            assert rewrite(graph, *[MACHINES[0] for need in rewrite.needs if need == "machine"]) is graph


def test_nodes_that_nobody_touches_are_shared():
    n = axis(8, "N")
    x, y, z = hole(n), hole(n), hole(n)
    graph = build(program([ng.exp(x), x * y + z], x, y, z))
    after = contract_fma(graph)
    assert after is not graph and [m.op for m in after.nodes] == ["exp", "fma"]
    assert after.nodes[0] is graph.nodes[0] and [m.op for m in graph.nodes] == ["exp", "multiply", "add"]


def test_a_node_is_a_value():
    n = axis(8, "N")
    x = hole(n)
    graph = build(program([ng.exp(x)], x))
    with pytest.raises(AttributeError, match="is a value"):
        graph.nodes[0].op = "log"
    with pytest.raises(AttributeError):
        graph.nodes = ()


def test_a_length_that_a_step_finds_parses_back():
    n = axis(6, "N")
    x = hole(n)
    (places,) = ng.nonzero(x)
    graph = build(lower([places * 2], [x]).program)
    assert "Run(" in text(graph)
    got, _ = interpret(read_back(graph), [np.array([0, 1, 0, 2, 3, 0], np.float32)])
    assert got[0].tolist() == [2, 6, 8]


@pytest.mark.parametrize("bad", ["ngraph tensors 1\n%0 : float32[] = exp(%7)\n", "ngraph tensors 1\nloop N\n", "ngraph plan 1\n"])
def test_what_is_no_graph_is_refused(bad):
    with pytest.raises(ParseError):
        parse(bad)


def test_explain_prints_each_rewrite_and_the_text_parses_back():
    c, n, h = axis(64, "C"), axis(16, "N"), axis(32, "H")
    x, w = hole(c, n), hole(h, c)
    with ngt.allocate_transformer("cpu") as t:
        f = t.computation(ng.relu(ng.dot(w, x)), w, x)
        found = {s.name: s.text for s in stages(f)}
    for name in ("tensors", *GRAPH_PASSES.names):
        assert text(verify(parse(found[name]))).splitlines() == found[name].splitlines()
