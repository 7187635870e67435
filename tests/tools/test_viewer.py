"""The picture to move around in: groups that can fold without a circle, every box and arrow there, nothing fetched from elsewhere."""

import json
import random
import re

import pytest

import ngraph as ng
from ngraph.tools import graph, viewer

C, N = ng.make_axis(3, name="C"), ng.make_axis(4, name="N")


def model(blocks):
    """A residual network with its training step, in scopes."""
    x = h = ng.placeholder([C, N]).named("x")
    weights = []
    for k in range(blocks):
        with ng.name_scope(f"block{k}"):
            weights.append(ng.variable([C, C - 1], initial_value=0).named("w"))
            with ng.name_scope("act"):
                h = h + ng.tanh(ng.dot(weights[-1], h))
    loss = ng.mean(h * h, out_axes=()).named("loss")
    return x, [loss, ng.doall([ng.assign(w, w - 0.1 * ng.deriv(loss, w)) for w in weights])]


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def path_of(groups, g):
    return [] if g < 0 else [*path_of(groups, groups[g][1]), g]


def folded_edges(groups, of, edges):
    """The arrows between the boxes and groups of every group, when all are folded: by the group that they stand in."""
    found = {}
    for a, b in edges:
        pa, pb = [*path_of(groups, of[a]), ("box", a)], [*path_of(groups, of[b]), ("box", b)]
        depth = next(k for k in range(len(pa)) if pa[k] != pb[k])
        found.setdefault(pa[depth - 1] if depth else -1, set()).add((pa[depth], pb[depth]))
    return found


def is_acyclic(edges):
    left, users = {}, {}
    for a, b in edges:
        left.setdefault(a, 0)
        left[b] = left.get(b, 0) + 1
        users.setdefault(a, []).append(b)
    free = [v for v, n in left.items() if not n]
    for v in free:
        for u in users.get(v, ()):
            left[u] -= 1
            if not left[u]:
                free.append(u)
    return len(free) == len(left)


@pytest.mark.parametrize("seed", range(30))
def test_groups_fold_without_a_circle(seed):
    r = random.Random(seed)
    count = r.randint(2, 60)
    edges = sorted({tuple(sorted(r.sample(range(count), 2))) for _ in range(2 * count)}, key=lambda e: e[1])
    scopes = [r.choice(["", "a", "b", "a/x", "a/y", "b/x/z", "c"]) for _ in range(count)]
    groups, of = viewer.grouped(scopes, edges)
    assert ["/".join(groups[g].label for g in path_of(groups, of[b])) for b in range(count)] == scopes
    assert all(is_acyclic(inside) for inside in folded_edges(groups, of, edges).values())
    named = [(path_of(groups, g)[:-1], groups[g].label, groups[g].turn) for g in range(len(groups))]
    assert len({repr(n) for n in named}) == len(groups)


def test_a_chain_through_scopes_makes_one_group_each_and_their_gradients_a_second():
    scopes = ["", "a", "a", "b", "b", "b", "a", ""]
    groups, of = viewer.grouped(scopes, [(k, k + 1) for k in range(7)])
    assert [(g.label, g.turn) for g in groups] == [("a", 1), ("b", 1), ("a", 2)] and of == [-1, 0, 0, 1, 1, 1, 2, -1]


def test_what_a_scope_only_reads_stands_beside_its_readers():
    scopes = ["", "a", "b", "b", "b"]  # 2 is a weight of b, which a comes before
    groups, of = viewer.grouped(scopes, [(0, 1), (1, 3), (2, 3), (3, 4)])
    assert [(g.label, g.turn) for g in groups] == [("a", 1), ("b", 1)] and of == [-1, 0, 1, 1, 1]


def test_the_page_has_every_box_arrow_and_line():
    x, train = model(3)
    drawn, data = graph.picture(train), data_of(graph.html(train, "a model"))
    assert len(data["boxes"]) == len(drawn.boxes) and {tuple(e) for e in data["edges"]} == set(drawn.edges)
    assert [b["t"] for b in data["boxes"]] == [b.lines[:-1] if b.type else b.lines for b in drawn.boxes]
    where, line = data["lines"][next(b for b in data["boxes"] if b["t"] == ["x"])["l"]]
    assert re.fullmatch(r".*test_viewer\.py:\d+", where) and line == 'x = h = ng.placeholder([C, N]).named("x")'
    assert {b["y"] for b in data["boxes"] if b["t"] == ["w"]} == {"[C=3, C'=3]"}
    labels = [(label, turn) for label, parent, turn in data["groups"] if parent < 0]
    assert {(f"block{k}", turn) for k in range(3) for turn in (1, 2)} <= set(labels)
    assert sum(b["r"] for b in data["boxes"]) == 2


def test_the_page_fetches_nothing(tmp_path):
    graph.save(model(1)[1], str(tmp_path / "a.html"))
    page = (tmp_path / "a.html").read_text()
    assert "<title>a</title>" in page
    assert not re.search(r"<(link|img|iframe|script)[^>]*(src|href)|https?://|@import|url\(|fetch\(|XMLHttpRequest|import\(", page)


def test_names_cannot_end_the_script():
    evil = "</script><b>&<!--"
    with ng.name_scope(evil.replace("/", "")):
        y = ng.placeholder([C]).named(evil) + 1
    page = graph.html(y, evil)
    data = data_of(page)
    assert [evil] in [b["t"] for b in data["boxes"]] and data["groups"][0][0] == evil.replace("/", "")
    assert page.count("</script>") == 2 and evil not in page


def test_many_boxes_without_scopes_stand_in_parts():
    y = ng.placeholder([C]).named("x")
    for k in range(1000):
        y = ng.tanh(y) if k % 100 else y * ng.variable([C], initial_value=1).named(f"layer/{k}")
    data = data_of(graph.html(y, "long"))
    outer = [label for label, parent, _ in data["groups"] if parent < 0]
    assert 10 <= len(outer) <= 30 and outer[0].startswith("part 1: x") and all(b["g"] >= 0 for b in data["boxes"])
    assert any("layer.100" in label for label in outer)


def test_a_few_boxes_without_scopes_stand_by_themselves():
    data = data_of(graph.html(ng.tanh(ng.placeholder([C])) + 1, "short"))
    assert data["groups"] == [] and [b["g"] for b in data["boxes"]] == [-1, -1, -1]


def test_a_large_training_step_has_an_overview():
    with ng.name_scope("net"):
        _, train = model(200)
    data = data_of(graph.html(train, "large"))
    assert len(data["boxes"]) > 3000
    at_once = sum(b["g"] < 0 for b in data["boxes"]) + sum(parent < 0 for _, parent, _ in data["groups"])
    assert at_once < 60
    groups, of = [viewer.Group(*g) for g in data["groups"]], [b["g"] for b in data["boxes"]]
    assert all(is_acyclic(inside) for inside in folded_edges(groups, of, map(tuple, data["edges"])).values())
