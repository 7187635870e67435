"""Pictures of op-graphs: what is drawn, and that it can be read: no boxes on each other, arrows from box to box and downwards."""

import random
import re
import xml.etree.ElementTree as xml

import pytest

import ngraph as ng
from ngraph.tools import graph
from ngraph.tools.layout import layered

N, C = ng.make_axis(5, name="N"), ng.make_axis(3, name="C")


def model(depth):
    """A small network with its training step: forward, backward, momentum."""
    x = ng.placeholder([C, N]).named("x")
    weights = [ng.variable([C, C - 1], initial_value=0).named(f"w{k}") for k in range(depth)]
    h = x
    for w in weights:
        h = ng.tanh(ng.dot(w, h))
    loss = ng.mean(h * h, out_axes=()).named("loss")
    return loss, ng.doall([ng.assign(w, w - 0.1 * ng.deriv(loss, w)) for w in weights])


def geometry(svg):
    """(boxes as (left, top, right, bottom), texts per box, end points of arrows) out of an SVG."""
    root = xml.fromstring(svg)
    space = {"s": "http://www.w3.org/2000/svg"}
    boxes, texts = [], []
    for g in root.findall(".//s:g/s:g", space):
        r = {k: float(g.find("s:rect", space).get(k)) for k in ("x", "y", "width", "height")}
        boxes.append((r["x"], r["y"], r["x"] + r["width"], r["y"] + r["height"]))
        texts.append([t.text for t in g.findall("s:text", space)])
    arrows = []
    for path in root.findall("./s:g/s:path", space):
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", path.get("d"))]
        arrows.append((tuple(numbers[:2]), tuple(numbers[-2:])))
    return boxes, texts, arrows


def overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


@pytest.mark.parametrize("depth", [1, 2, 6])
def test_a_training_step_can_be_read(depth):
    boxes, texts, arrows = geometry(graph.svg(model(depth)))
    assert len(boxes) > 10 * depth
    assert not [(a, b) for k, a in enumerate(boxes) for b in boxes[:k] if overlap(a, b)]
    for start, end in arrows:
        assert any(abs(start[1] - b[3]) < 0.2 and b[0] <= start[0] <= b[2] for b in boxes)
        assert any(abs(end[1] - b[1]) < 0.2 and b[0] <= end[0] <= b[2] for b in boxes)
        assert start[1] < end[1]
    width = max(len(line) for lines in texts for line in lines)
    assert width < 60 and ["w0", "[C=3, C'=3]"] in texts and any(t[0].startswith("w0 ←") for t in texts)


def test_every_op_has_its_box_and_every_input_its_arrow():
    loss, step = model(2)
    drawn = graph.picture([loss, step])
    ops = [o for o in graph.ordered([loss, step]) if not (o.is_constant and not o.axes)]
    assert len(drawn.boxes) == len(ops)
    number = {o: k for k, o in enumerate(ops)}
    expected = {(number[i], number[o]) for o in ops for i in o.inputs[o.opdef.name == "assign" :] if i in number}
    assert set(drawn.edges) == expected and len(drawn.edges) == len(expected)


def test_a_cut_arrow_names_its_source():
    x = ng.placeholder([C]).named("x")
    far = ng.exp(x)
    y = far
    for _ in range(8):
        y = ng.tanh(y)
    _, texts, arrows = geometry(graph.svg(y * far))
    assert ["exp #1", "[C=3]"] in texts and ["exp #1"] in texts
    assert len(arrows) == 11  # ten ops after x, one of them with two inputs


def test_the_dot_text():
    a, b = ng.placeholder([C]).named('say "a"'), ng.variable([C], initial_value=1)
    assert graph.dot(ng.assign(b, a * 2.5)).splitlines() == [
        "digraph {",
        '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=11]',
        '  0 [label="variable\\n[C=3]", fillcolor="#fde3b8"]',
        '  1 [label="say \\"a\\"\\n[C=3]", fillcolor="#d9f0d3"]',
        '  2 [label="multiply(·, 2.5)\\n[C=3]", fillcolor="#ffffff"]',
        '  3 [label="variable ←", fillcolor="#f9d5d3", penwidth=2]',
        "  1 -> 2",
        "  2 -> 3",
        "}",
    ]


def test_names_are_escaped():
    _, texts, _ = geometry(graph.svg(ng.placeholder([C]).named("a<b>&\"c'") + 1))
    assert texts[0][0] == "a<b>&\"c'"


def test_a_single_op_and_an_op_without_a_value():
    assert len(geometry(graph.svg(ng.placeholder(())))[0]) == 1
    assert len(geometry(graph.svg(ng.doall([])))[0]) == 1


def test_save_chooses_by_the_name(tmp_path):
    x = ng.placeholder([C]) + 1
    for name, start in (("a.dot", "digraph"), ("a.svg", "<svg")):
        graph.save(x, str(tmp_path / name))
        assert (tmp_path / name).read_text().startswith(start)


def test_trees_are_drawn_without_a_crossing():
    edges = [(k, 31 - (31 - k) // 2) for k in range(1, 31)]  # a binary tree, root last
    edges = [(a - 1, b - 1) for a, b in ((31 - k, 31 - k // 2) for k in range(31, 1, -1))]
    placed = layered([(10.0, 10.0)] * 31, sorted(edges))
    lines = [(placed.centres[a], placed.centres[b]) for a, b in edges]
    crossed = [
        (p, q) for k, p in enumerate(lines) for q in lines[:k] if p[0][1] == q[0][1] and (p[0][0] - q[0][0]) * (p[1][0] - q[1][0]) < 0
    ]
    assert crossed == []


@pytest.mark.parametrize("seed", range(5))
def test_random_graphs_keep_their_boxes_apart(seed):
    r = random.Random(seed)
    sizes = [(r.uniform(5, 90), r.uniform(5, 40)) for _ in range(60)]
    edges = sorted({tuple(sorted(r.sample(range(60), 2))) for _ in range(90)})
    placed = layered(sizes, edges)
    boxes = [(x - w / 2, y - h / 2, x + w / 2, y + h / 2) for (x, y), (w, h) in zip(placed.centres, sizes, strict=True)]
    assert not [(a, b) for k, a in enumerate(boxes) for b in boxes[:k] if overlap(a, b)]
    assert all(placed.centres[a][1] < placed.centres[b][1] for a, b in edges)
    assert all(-0.01 <= b[0] and b[2] <= placed.width + 0.01 and b[3] <= placed.height + 0.01 for b in boxes)
    for (a, b), route in zip(edges, placed.routes, strict=True):
        assert route[0][0] == placed.centres[a][0] and route[-1][0] == placed.centres[b][0]
        assert [y for _, y in route] == sorted(y for _, y in route)


def test_a_large_graph_is_drawn():
    y = ng.placeholder([C]).named("x")
    for k in range(3000):
        y = ng.tanh(y) * y if k % 3 else y + 1
    assert graph.svg(y).count("<rect") > 5000
