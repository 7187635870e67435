"""What `repr` and notebooks show: one short line each, and a small table in which every text is escaped."""

import xml.etree.ElementTree as xml

import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.op_graph import html

C, N = ng.make_axis(3, name="C"), ng.make_axis(name="N")


@pytest.fixture
def shown():
    x = ng.placeholder([C, N]).named("x")
    w = ng.variable([C], initial_value=1).named("w")
    y = ng.tanh(x * w).named("y")
    transformer = ngt.allocate_transformer("numpy")
    train = transformer.computation([y, ng.assign(w, w * 2)], x, name="train")
    return {"axis": C, "dual": C - 1, "axes": y.axes, "op": y, "input": x, "effect": train.results.ops[1], "computation": train} | {
        "program": train.program,
        "transformer": transformer,
    }


def cells(page):
    return [[c.text or "" for c in row] for row in xml.fromstring(f"<div>{page}</div>").iter("tr")]


@pytest.mark.parametrize(
    "what, line",
    [
        ("axis", "C=3"),
        ("dual", "C'=3"),
        ("axes", "Axes(C=3, N=?)"),
        ("op", "<tanh y: float32[C=3, N=?]>"),
        ("input", "<placeholder x: float32[C=3, N=?]>"),
        ("effect", "<assign: no value>"),
        ("computation", "<Computation train(x[C=3, N=?]) -> y[C=3, N=?], assign>"),
        ("program", "<Program train(x: float32[C, N]) -> float32[C, N], w ←: 4 steps>"),
        ("transformer", "<transformer numpy: train>"),
    ],
)
def test_repr_is_one_short_line(shown, what, line):
    assert repr(shown[what]) == line


def test_a_notebook_shows_tables(shown):
    pages = {what: cells(x._repr_html_()) for what, x in shown.items()}
    assert pages["axis"][1][:3] == ["C", "3", "channel"] and "test_shown.py:" in pages["axis"][1][3]
    assert [row[:3] for row in pages["axes"]] == [["axis", "length", ""], ["C", "3", "channel"], ["N", "?", "batch"]]
    assert pages["dual"][1][:3] == ["C'", "3", ""]
    assert pages["op"][:2] == [["gives", "float32[C=3, N=?]"], ["takes", "<multiply: float32[C=3, N=?]>"]]
    assert pages["op"][-1][0] == "written at" and "test_shown.py:" in pages["op"][-1][1]
    assert [row[:2] for row in pages["computation"]] == [["takes", "x"], ["gives", "y"], ["gives", "assign"], ["writes", "w"]]
    assert [row[2] for row in pages["program"]] == ["op", "", "", "multiply", "tanh", "constant", "multiply"]
    assert [row[:2] for row in pages["transformer"]] == [["computation", "train"], ["state", "w"]]
    assert "the program that runs: 4 steps" in shown["computation"]._repr_html_()
    assert ng.make_axes()._repr_html_() == "no axes"


def test_a_closed_transformer_says_so(shown):
    shown["transformer"].close()
    assert repr(shown["transformer"]) == "<transformer numpy (closed): train>"


def test_names_are_escaped():
    evil = ng.placeholder([ng.make_axis(2, name="<b>&")]).named('<script>"')
    for x in (evil, evil.axes, ngt.make_transformer().computation(evil, evil)):
        assert "<script" not in x._repr_html_() and "<b>&" not in x._repr_html_() and cells(x._repr_html_())


def test_long_things_stay_short():
    xs = [ng.placeholder([C]).named(f"x{k}") for k in range(300)]
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    c = ngt.make_transformer().computation(total, *xs)
    assert len(repr(c)) < 200 and "… 294 more" in repr(c) and len(repr(c.program)) < 200
    assert len(cells(c.program._repr_html_())) == html.SHOWN + 2 and cells(c.program._repr_html_())[-1] == ["and 399 more"]
    assert "more lines" in c._repr_html_()
    table = ng.constant(list(range(300)), [ng.make_axis(300)])
    assert len(table._repr_html_()) < 1000
