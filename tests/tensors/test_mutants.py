"""Mistakes put into tensor graphs on purpose: the verifier, or the interpreter beside the program's own, has to see each."""

from dataclasses import replace

import numpy as np
import pytest
from plan_programs import axis, hole, program

import ngraph as ng
from ngraph.errors import NgraphError
from ngraph.program import interpret as oracle
from ngraph.tensors.build import build
from ngraph.tensors.graph import changed
from ngraph.tensors.index import Read
from ngraph.tensors.interpret import interpret
from ngraph.tensors.simplify import contract_fma, rename_axes, split_reductions
from ngraph.tensors.strided_reductions import split_strided_reductions
from ngraph.tensors.text import arrays, parse, text
from ngraph.tensors.verify import verify


def graph_of(results, *holes):
    whole = program(results, *holes)
    return whole, split_strided_reductions(contract_fma(rename_axes(build(whole))))


def convolution():
    n, c, k, h, w, r, s = (axis(m, a) for m, a in ((2, "N"), (3, "C"), (2, "K"), (6, "H"), (6, "W"), (3, "R"), (3, "S")))
    x, f = hole(n, c, h, w), hole(k, c, r, s)
    return graph_of([ng.conv(x, f, {h: r, w: s}, padding=1)], x, f)


def strided_gradient():
    n, c, k, h, w, r, s = (axis(m, a) for m, a in ((2, "N"), (3, "C"), (2, "K"), (7, "H"), (7, "W"), (3, "R"), (3, "S")))
    x, f = hole(n, c, h, w), hole(k, c, r, s)
    y = ng.conv(x, f, {h: r, w: s}, stride=2, padding=1)
    dy = hole(*y.axes)
    return graph_of([ng.deriv(y, x, dy)], x, f, dy)


def product():
    m, k = axis(4, "M"), axis(4, "K")
    x, y = hole(m, k), hole(m, k)
    return graph_of([ng.sum(ng.exp(x) * y, out_axes=[m])], x, y)


def padded_rows():
    """Rows at constant indices, padded: the index is read where the padding's predicates hold."""
    h, k = axis(3, "H"), axis(4, "K")
    x = hole(h)
    return graph_of([ng.exp(ng.pad(ng.take(x, ng.constant(np.array([0, 0, 2, 1]), [k]), h), {k: (1, 2)}))], x)


def caught(whole, graph):
    """Which of the two sees that something is wrong: "verify", "interpret", or nobody."""
    try:
        verify(graph)
    except NgraphError:
        return "verify"
    draw = np.random.default_rng(0)
    inputs = [draw.normal(size=[whole.length(a) for a in v.axes]).astype(v.dtype.np) for v in whole.inputs]
    try:
        got = interpret(graph, inputs)[0]
    except NgraphError:
        return "interpret"
    same = [np.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(got, oracle.interpret(whole, inputs)[0], strict=True)]
    return "" if all(same) else "interpret"


def edited(old, new, count=1):
    """A mistake in what the graph says: `old` becomes `new` in its text."""

    def make(graph):
        shown = text(graph, origins=False)
        assert shown.count(old) >= 1, f"{old!r} does not stand in\n{shown}"
        return parse(shown.replace(old, new, count), arrays(graph))

    return make


def without_a_predicate(graph):
    n = next(n for n in graph.nodes if any(r.predicate for r in n.args if type(r) is Read))
    lost = [Read(a.source, a.index, a.predicate[1:], a.pad_value) if type(a) is Read and a.predicate else a for a in n.args]
    return put(graph, n, changed(n, args=tuple(lost)))


def without_those_of_the_padding(graph):
    n = next(n for n in graph.nodes if any(type(r) is Read and len(r.predicate) == 4 for r in n.args))
    return put(graph, n, changed(n, args=tuple([Read(a.source, a.index, a.predicate[:2], a.pad_value) for a in n.args])))


def put(graph, n, other):
    """The graph with one node in the place of another, for all that read it."""
    now = {n: other}
    nodes = [other if m is n else m for m in graph.nodes]
    for k, m in enumerate(nodes):
        if any(type(a) is Read and a.source in now for a in m.args):
            args = tuple([a.of(now[a.source]) if type(a) is Read and a.source in now else a for a in m.args])
            now[m] = nodes[k] = changed(m, args=args)
    return replace(graph, nodes=tuple(nodes), outputs=tuple([now.get(m, m) for m in graph.outputs]))


def a_later_node_first(graph):
    return replace(graph, nodes=(*graph.nodes[1:], graph.nodes[0]))


def without_a_node(graph):
    return replace(graph, nodes=graph.nodes[1:])


def without_a_reader(graph):
    """The last node is none any more, and what it read leaves the graph in its place."""
    return replace(graph, nodes=graph.nodes[:-1], outputs=graph.nodes[-2:-1])


def summed_twice(graph):
    n = next(n for n in graph.nodes if n.kind == "reduce")
    return put(graph, n, changed(n, reduced=(*n.reduced, n.reduced[0])))


def kept_and_summed(graph):
    n = next(n for n in graph.nodes if n.kind == "reduce")
    return put(graph, n, changed(n, axes=(*n.axes, n.reduced[0])))


def a_class_moved(graph):
    n = next(n for n in graph.nodes if n.parts)
    p = n.parts[0]
    place = {a: e + 1 if k == len(p.place) - 1 else e for k, (a, e) in enumerate(p.place.items())}
    return put(graph, n, changed(n, parts=(p._replace(place=place), *n.parts[1:])))


def a_class_lost(graph):
    n = next(n for n in graph.nodes if n.parts)
    return put(graph, n, changed(n, parts=n.parts[1:]))


def a_class_of_another(graph):
    """Two parts have each other's values."""
    n = next(n for n in graph.nodes if len(n.parts) > 1)
    p, q, *rest = n.parts
    return put(graph, n, changed(n, parts=(p._replace(arg=q.arg), q._replace(arg=p.arg), *rest)))


def stale_facts(graph):
    n = graph.nodes[0]
    return put(graph, n, changed(n, size=n.size + 1))


MISTAKES = {
    "a dropped predicate": (convolution, without_a_predicate),
    "a dropped predicate of the read around": (padded_rows, without_those_of_the_padding),
    "a swapped axis": (product, edited("multiply(%2, %1)", "multiply(%2[M: Idx(K), K: Idx(M)], %1)")),
    "a lost node": (product, without_a_node),
    "a lost reader": (product, without_a_reader),
    "a node before what it reads": (product, a_later_node_first),
    "an axis summed twice": (product, summed_twice),
    "an axis kept and summed": (product, kept_and_summed),
    "an axis not summed": (product, edited("over [K]", "over [M]")),
    "another combination": (product, edited("reduce add(", "reduce max(")),
    "another operation": (product, edited("exp(%0)", "tanh(%0)")),
    "another source": (product, edited("exp(%0)", "exp(%1)")),
    "another dtype": (product, edited("%2 : float32[M, K] = exp", "%2 : float64[M, K] = exp")),
    "an index beyond the end": (product, edited("exp(%0)", "exp(%0[K: Idx(K) + 1])")),
    "a tap of another place": (convolution, edited("Idx(R)", "(2 - Idx(R))")),
    "a wrong residue class": (strided_gradient, a_class_moved),
    "a lost residue class": (strided_gradient, a_class_lost),
    "two classes' values swapped": (strided_gradient, a_class_of_another),
    "a pad value that is summed": (convolution, edited("pad 0", "pad 1", 9)),
    "a stale fact": (product, stale_facts),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_caught(name):
    make, mistake = MISTAKES[name]
    whole, graph = make()
    assert caught(whole, graph) == ""
    assert caught(whole, mistake(graph)) != ""


def test_parts_of_a_sum_mean_the_sum():
    whole, graph = product()
    n = next(n for n in graph.nodes if n.kind == "reduce")
    split, became = split_reductions(graph, {n: 3})
    assert caught(whole, split) == "" and became[n].split_k is not None and became[n].axes == (became[n].split_k, *n.axes)
    assert text(parse(text(split), arrays(split))) == text(split)
    last = split.nodes[-1]
    assert caught(whole, put(split, last, changed(last, op="max"))) == "interpret"
