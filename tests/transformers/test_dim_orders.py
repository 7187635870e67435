"""Orders of dims: any is right, so the tests look at what is spared."""

import itertools

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.passes.dim_orders import dim_orders

A, B, D, E = (ng.make_axis(n, name=name) for n, name in ((2, "A"), (3, "B"), (4, "D"), (5, "E")))


def program_of(results, *parameters):
    return ngt.allocate_transformer("direct").computation(results, *parameters).program


def test_what_comes_in_keeps_its_order():
    x, w = ng.placeholder([A, B]), ng.variable([B, A])
    program = program_of([x + 1, ng.assign(w, w * 2)], x)
    chosen = dim_orders(program)
    assert chosen[program.inputs[0]] == ("A", "B") and chosen[program.state_in[0].value] == ("B", "A")


@pytest.mark.parametrize("declared", [(A, D), (D, A)])
def test_a_product_is_made_in_the_order_that_leaves(declared):
    x, y = ng.placeholder([A, B]), ng.placeholder([B, D])
    run = ngt.allocate_transformer("numpy").computation(ng.axes_with_order(ng.exp(ng.dot(x, y) * 2), declared), x, y)
    assert "transpose" not in run.source.replace(".T,", "") and "np.array(" not in run.source
    a, b = np.ones((2, 3)), np.arange(12.0).reshape(3, 4) / 10
    want = np.exp(a @ b * 2)
    np.testing.assert_allclose(run(a, b), want if declared == (A, D) else want.T, rtol=1e-5)


def test_gradients_are_made_in_the_order_of_their_weights():
    for axes in ((A, B), (B, A)):
        x, w = ng.placeholder([D, A]), ng.variable(axes, initial_value=1)
        loss = ng.sum(ng.square(ng.dot(x, w)), out_axes=())
        run = ngt.allocate_transformer("numpy").computation(ng.assign(w, w - ng.deriv(loss, w) * 0.1), x)
        update = run.source[run.source.index("np.subtract") :].splitlines()[0]
        assert ".T" not in update and "transpose" not in update


@pytest.mark.parametrize(
    "kinds", list(itertools.product([(A, B, D), (D, A, B), (B, D, A)], [(B, D, E), (E, D, B)], ["direct", "numpy", "cpu"]))
)
def test_any_orders_give_the_same(kinds):
    left, right, name = kinds
    x, y = ng.placeholder(left), ng.placeholder(right)
    product = ng.dot(x, y)
    results = [product, ng.sum(product, out_axes=[E]), ng.max(x * ng.sum(y, out_axes=[B, D]), out_axes=[D, A])]
    r = np.random.default_rng(0)
    a, b = r.normal(size=[len(i) for i in left]).astype("f"), r.normal(size=[len(i) for i in right]).astype("f")
    given = ngt.allocate_transformer(name).computation(results, x, y)(a, b)
    short = {A: "a", B: "b", D: "d", E: "e"}
    l, m = "".join(short[i] for i in left), "".join(short[i] for i in right)
    wanted = [
        np.einsum(f"{l},{m}->ae", a, b),
        np.einsum(f"{l},{m}->e", a, b),
        np.max(np.einsum(f"{l}->dab", a) * np.einsum(f"{m}->bd", b).T[:, None, :], axis=2),
    ]
    for got, want in zip(given, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
