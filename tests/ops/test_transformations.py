"""grad, jacobian, hessian, hvp and vmap against finite differences, PyTorch, and one call for each index."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError, AxisError, DTypeError, GraphError, NgraphError, UnsupportedError

H, K = ng.axes("H=3 K=4")
RANDOM = np.random.default_rng(5)


def run(results, *pairs):
    return ngt.make_transformer_factory("numpy")().computation(results, *[h for h, _ in pairs])(*[v for _, v in pairs])


def hole(text):
    return ng.placeholder(text, dtype="float64")


def test_a_gradient_has_the_form_of_its_argument():
    @dataclasses.dataclass
    class Weights:
        w: Any
        rest: list[Any]

    w, b, x = hole("K=4 H=3"), hole("K=4"), hole("H=3")

    def loss(p, x):
        return ng.sum(ng.tanh(ng.contract(p.w, x, over="H") + p.rest[0]["b"]) ** 2, out_axes=())

    value, slope = ng.value_and_grad(loss)(Weights(w, [{"b": b}]), x)
    assert isinstance(slope, Weights) and slope.w.axes == w.axes and slope.rest[0]["b"].axes == b.axes
    values = [RANDOM.standard_normal(v.axes.lengths) for v in (w, b, x)]
    got = run([value, slope.w, slope.rest[0]["b"]], *zip((w, b, x), values, strict=True))
    tw, tb, tx = (torch.tensor(v, requires_grad=True) for v in values)
    want = (torch.tanh(tw @ tx + tb) ** 2).sum()
    want.backward()
    for a, b in zip(got, (want.detach(), tw.grad, tb.grad), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_what_a_function_uses_beside_its_arguments_is_constant():
    x = hole("")
    assert run(ng.grad(lambda y: x * y)(x), (x, 3.0)) == 3 and run(ng.grad(lambda a, b: a * a * b, (0, 1))(x, x)[1], (x, 3.0)) == 9
    assert run(ng.grad(ng.grad(ng.grad(lambda y: y**4)))(x), (x, 2.0)) == 48 and run(ng.grad(lambda y: y * y)(1.5)) == 3
    slope, extra = ng.grad(lambda y: (y * y, {"twice": y * 2}), has_aux=True)(x)
    assert run([slope, extra["twice"]], (x, 3.0)) == (6, 6)


def test_arguments_of_a_gradient_are_checked():
    with pytest.raises(GraphError, match="which has axes"):
        ng.grad(lambda x: x * x)(hole("H=3"))
    with pytest.raises(DTypeError, match="int32"):
        ng.grad(lambda x: x * x)(ng.placeholder((), dtype="int32"))
    with pytest.raises(NgraphError, match="no argument 2"):
        ng.grad(lambda x: x * x, 2)(hole(""))


FUNCTIONS = {  # of x[H, K], for ngraph and for torch
    "an elementwise one": (lambda x: ng.sin(x) * x, lambda x: torch.sin(x) * x),
    "a softmax": (lambda x: ng.softmax(x, "K"), lambda x: torch.softmax(x, 1)),
    "a sum": (lambda x: ng.sum(x * x, "K"), lambda x: (x * x).sum(1)),
    "a number": (lambda x: ng.sum(x**3, out_axes=()), lambda x: (x**3).sum()),
    "a product with itself": (lambda x: ng.contract(x, ng.map_roles(x, {"H": "I"}), over="K"), lambda x: x @ x.T),
    "a slice": (lambda x: x["K", ::2] ** 2, lambda x: x[:, ::2] ** 2),
    "a pad and a flip": (lambda x: ng.flip(ng.pad(x, {"K": 1}) ** 2, "K"), lambda x: torch.nn.functional.pad(x, (1, 1)).flip(1) ** 2),
    "a flatten": (lambda x: ng.flatten(x) ** 2, lambda x: x.flatten() ** 2),
    "a concat": (lambda x: ng.concat_along_axis([x * x, x], "H"), lambda x: torch.cat([x * x, x])),
    "a sort": (lambda x: ng.sort(x, "K") ** 2, lambda x: x.sort(1).values ** 2),
    "a cumsum": (lambda x: ng.cumsum(x * x, "K"), lambda x: (x * x).cumsum(1)),
    "a gather": (
        lambda x: ng.take(x * x, ng.constant([2, 0, 2], "I=3", dtype="int32"), "H"),
        lambda x: (x * x)[torch.tensor([2, 0, 2])],
    ),
    "a scan": (
        lambda x: ng.scan(lambda c, row: (c * row + 1.0, c), ng.constant(np.ones(4), "K"), x, "H")[1],
        lambda x: torch.stack([torch.ones(4, dtype=x.dtype), x[0] + 1, (x[0] + 1) * x[1] + 1]),
    ),
    "a choice": (
        lambda x: ng.cond(ng.greater(ng.sum(x, out_axes=()), -99.0), lambda: x * x, lambda: x),
        lambda x: x * x,
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jacobians_are_those_of_pytorch(name):
    ours, theirs = FUNCTIONS[name]
    x, value = hole("H=3 K=4"), RANDOM.standard_normal((3, 4))
    y = ours(x)
    slope = ng.jacobian(ours)(x)
    assert slope.axes == (*y.axes, *slope.axes[len(y.axes) :]) and all(a.dual < 0 for a in slope.axes[len(y.axes) :])
    want = torch.func.jacrev(theirs)(torch.tensor(value))
    np.testing.assert_allclose(run(slope, (x, value)), want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("length", ["3", "?"])
def test_a_jacobian_of_a_jacobian(length):
    """The second derivatives of a function of several values, whose Jacobian has an axis and its dual."""
    x, v = hole(f"H={length}"), RANDOM.normal(size=3)

    def f(x):
        return ng.sin(x) * ng.sum(x * x, out_axes=())

    second = ng.jacobian(ng.jacobian(f))(x)
    want = torch.func.jacrev(torch.func.jacrev(lambda t: torch.sin(t) * (t * t).sum()))(torch.tensor(v))
    assert [a.label for a in second.axes] == ["H", "H'", "H''"]
    np.testing.assert_allclose(run(second, (x, v)), want, rtol=1e-12, atol=1e-14)
    inside = ng.jacobian(lambda x: ng.scan(lambda c, t: (c + ng.sum(ng.jacobian(f)(x), "H'") * t, None), x * 0.0, x, "H")[0])(x)

    def looped(t):
        return torch.func.jacrev(lambda t: torch.sin(t) * (t * t).sum())(t).sum(1) * t.sum()

    np.testing.assert_allclose(run(inside, (x, v)), torch.func.jacrev(looped)(torch.tensor(v)), rtol=1e-12, atol=1e-14)


def test_a_jacobian_times_a_vector_is_a_change():
    x, v = hole("H=3 K=4"), hole("H=3 K=4")
    slope = ng.jacobian(lambda x: ng.softmax(x, "K"))(x)
    both = run([ng.dot(slope, v), ng.jvp(ng.softmax(x, "K"), x, v)], (x, RANDOM.random((3, 4))), (v, RANDOM.random((3, 4))))
    np.testing.assert_allclose(*both, rtol=1e-12)


def test_second_derivatives():
    x, v = hole("H=3"), hole("H=3")
    values = RANDOM.random((2, 3))

    def f(x):
        return ng.sum(ng.exp(x) * ng.sum(x * x, "H"), out_axes=())

    hessian, product = run([ng.hessian(f)(x), ng.hvp(f, x, v)], (x, values[0]), (v, values[1]))
    want = torch.func.hessian(lambda x: (torch.exp(x) * (x * x).sum()).sum())(torch.tensor(values[0])).numpy()
    np.testing.assert_allclose(hessian, want, rtol=1e-12)
    np.testing.assert_allclose(product, want @ values[1], rtol=1e-12)
    nested = ng.hessian(lambda p: p["a"] * p["b"] ** 2)({"a": hole(""), "b": x[0]})
    assert set(nested) == {"a", "b"} and set(nested["a"]) == {"a", "b"} and nested["b"]["b"].axes == ()


BATCHED = {
    **{name: ours for name, (ours, _) in FUNCTIONS.items()},
    "a sum over all": lambda x: ng.sum(x * x),
    "an argmax": lambda x: ng.argmax(x, "K"),
    "a top_k": lambda x: ng.top_k(x, "K", 2)[0],
    "a convolution": lambda x: ng.conv(x, ng.constant(np.ones((2, 5)), "R=2 O=5"), {"K": "R"}),
    "a pooling": lambda x: ng.max_pool(x, {"K": 2}),
    "a one_hot": lambda x: ng.one_hot(ng.argmax(x, "K"), "Q=4"),
    "a put": lambda x: ng.put(x, ng.argmax(x, "K"), 0.0, "K"),
    "a choice that differs": lambda x: ng.cond(ng.sum(x, out_axes=()) > 6.0, lambda: x * x, lambda: -x),
    "attention": lambda x: ng.attention(x, x, x, features="K", queries="H", causal=True),
    "a gradient": ng.grad(lambda x: ng.sum(ng.tanh(x) ** 2, out_axes=())),
    "a jacobian": ng.jacobian(lambda x: ng.softmax(x, "K")),
    "a loss": lambda x: ng.cross_entropy_multi(ng.softmax(x, "K"), ng.one_hot(ng.iota("H=3"), "K=4"), out_axes=()),
}


@pytest.mark.parametrize("name", BATCHED)
def test_vmap_is_one_call_for_each_index(name):
    f = BATCHED[name]
    x, one, values = hole("H=3 B=5 K=4"), hole("H=3 K=4"), RANDOM.random((3, 5, 4))
    made = ng.vmap(f, "B")(x)
    assert made.axes[0] == ng.axes("B=5")[0] and made.axes[1:] == f(one).axes
    got = run(made, (x, values))
    single = ngt.make_transformer_factory("numpy")().computation(f(one), one)
    np.testing.assert_allclose(got, [single(values[:, k]) for k in range(5)], rtol=1e-12, atol=1e-12)


def test_vmap_of_several_arguments_and_results():
    x, w = hole("B=5 H=3"), hole("H=3")
    made = ng.vmap(lambda x, p: {"dot": ng.sum(x * p["w"]), "same": p["w"] * 2}, "B")(x, {"w": w})
    assert made["dot"].axes == x.axes[:1] and made["same"].axes == (x.axes[0], *w.axes)
    per_sample = ng.vmap(ng.grad(lambda w, x: ng.sum(w * x) ** 2), "B")(w, x)
    a, b = RANDOM.random((5, 3)), RANDOM.random(3)
    got = run([made["dot"], per_sample], (x, a), (w, b))
    np.testing.assert_allclose(got[0], a @ b)
    np.testing.assert_allclose(got[1], 2 * (a @ b)[:, None] * a)


def test_what_vmap_cannot_do_is_told():
    x = hole("B=5")
    with pytest.raises(AxisError, match="(?s)Q is not an axis.*B=5"):
        ng.vmap(lambda x: x, "Q")(x)


@pytest.mark.parametrize("length", ["4", "?"])
def test_vmap_of_matrices_whose_right_hand_sides_are_one_for_all(length):
    a, b, values = hole(f"B={length} I=3 J=3"), hole("I=3 K=2"), RANDOM.random((4, 3, 3)) + 3 * np.eye(3)
    right = RANDOM.random((3, 2))
    solved = ng.vmap(lambda a: ng.linalg.solve(a, b, "I", "J"), "B")(a)
    lower = ng.vmap(lambda a: ng.linalg.triangular_solve(a, b, "I", "J"), "B")(a)
    got = run([solved, lower], (a, values), (b, right))
    np.testing.assert_allclose(got[0], np.stack([np.linalg.solve(v, right) for v in values]), rtol=1e-10)
    np.testing.assert_allclose(got[1], np.stack([np.linalg.solve(np.tril(v), right) for v in values]), rtol=1e-10)


def test_vmap_through_a_length_that_differs():
    x, n = hole("B=3 T=5"), ng.placeholder("B", dtype="int32")
    with pytest.raises(UnsupportedError, match="the length of T differs along B(?s:.*)choose by ng.where"):
        ng.vmap(lambda x, n: ng.sum(x["T", :n]), "B")(x, n)
    with pytest.raises(UnsupportedError, match="the axis B does not go through compact"):
        ng.vmap(lambda x: ng.sum(ng.nonzero(x)[0]), "B")(x)
    same = ng.vmap(lambda x: ng.sum(x["T", :k]), "B")
    k, values = ng.placeholder((), dtype="int32"), RANDOM.random((3, 5))
    np.testing.assert_allclose(run(same(x), (x, values), (k, 2)), values[:, :2].sum(1))


@pytest.mark.parametrize("length", ["5", "?"])
def test_vmap_of_a_while_whose_condition_differs(length):
    """Each index keeps what it had when its own condition ended: beside loops of Python over rows."""
    x = hole(f"B={length} H=3")

    def steps(v):
        return ng.while_loop(
            lambda i, s, k: (i < 6) & (ng.sum(s * s, "H") < 80.0),
            lambda i, s, k: (i + 1, s * 1.3 + k, k * 0.5),
            (0, v, ng.constant(1.0, dtype="float64")),
        )

    def of_row(v):
        i, s, k = 0, v, 1.0
        while i < 6 and (s * s).sum() < 80:
            i, s, k = i + 1, s * 1.3 + k, k * 0.5
        return i, s, k

    values = RANDOM.normal(size=(5, 3)) * 3
    got = run(list(ng.vmap(steps, "B")(x)), (x, values))
    for mine, theirs in zip(got, zip(*map(of_row, values), strict=True), strict=True):
        np.testing.assert_allclose(mine, np.stack(theirs), rtol=1e-12)
    grown = ng.vmap(lambda v: ng.while_loop(lambda s: ng.sum(s, "H") < 50.0, lambda s: s * 1.7, v * v + 0.1), "B")
    counted = ng.vmap(lambda v: ng.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s * s), (0, v))[1], "B")
    alone, power = run([grown(x), counted(x)], (x, values))
    first = values * values + 0.1
    turns = [max(int(np.ceil(np.log(50 / t) / np.log(1.7))), 0) for t in first.sum(1)]
    np.testing.assert_allclose(alone, first * 1.7 ** np.array(turns)[:, None], rtol=1e-12)
    np.testing.assert_allclose(power, values**8, rtol=1e-12)


@pytest.mark.parametrize("draw", ["uniform", "normal", "randint", "bernoulli"])
def test_vmap_of_a_while_that_draws_and_ends_at_other_trips(draw):
    """Each trip draws the numbers that a loop by itself draws, whichever other indices have ended before."""

    def walk(turns):
        def step(i, s):
            return i + 1, s * 2 + ng.cast(getattr(ng, draw)(axes="H=40", seed=7), "float64")

        return ng.while_loop(lambda i, s: i < turns, step, (0, ng.zeros("H=40", dtype="float64")))[1]

    turns = [3, 0, 1, 5]
    got, *alone = run([ng.vmap(walk, "B")(ng.constant(turns, "B=4")), *[walk(ng.constant(n)) for n in turns]])
    np.testing.assert_array_equal(got, np.stack(alone))
    assert len({*map(bytes, got)}) == 4


def test_vmap_of_vmap_of_a_while():
    x, values = hole("B=5 C=2 H=3"), RANDOM.normal(size=(5, 2, 3))
    inner = ng.vmap(lambda v: ng.while_loop(lambda s: ng.max(s, "H") < 9.0, lambda s: s + ng.absolute(v) + 0.2, v), "C")
    got = run([ng.vmap(inner, "B")(x)], (x, values))[0]
    wanted = values.copy()
    for b, c in np.ndindex(5, 2):
        while wanted[b, c].max() < 9:
            wanted[b, c] += abs(values[b, c]) + 0.2
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_loops_take_natural_functions():
    x = hole("T=3 H=2")
    total, runs = ng.scan(
        lambda a, b, now: ((a + now, b * now), a), (ng.constant(np.zeros(2), "H=2"), ng.constant(np.ones(2), "H=2")), x, "T"
    )
    i, v = ng.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2), (0, total[0]))
    state = ng.while_loop(lambda s: s["i"] < 2, lambda s: {"i": s["i"] + 1, "v": s["v"] + 1}, {"i": 0, "v": x})
    chosen = ng.cond(i > 1, lambda v, w: v + w, lambda v, w: v, v, total[1])
    value = RANDOM.random((3, 2))
    got = run([*total, runs, i, v, state["v"], chosen], (x, value))
    for a, b in zip(
        got,
        (
            value.sum(0),
            value.prod(0),
            np.cumsum(value, 0) - value,
            3,
            value.sum(0) * 8,
            value + 2,
            value.sum(0) * 8 + value.prod(0),
        ),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_nests_are_matched_by_their_keys():
    """What a function returns, and a direction, may list the keys of a dict in another order; other keys are refused."""
    a, b = ng.constant(np.array([1.0, 2.0]), "H=2"), ng.constant(np.array([5.0, 7.0]), "H")
    product = ng.hvp(lambda p: ng.sum(p["a"] ** 2 * p["b"]), {"a": a, "b": b}, {"b": 0 * b, "a": a})
    got = ng.function(product)()
    np.testing.assert_allclose(got["a"], [2 * 5 * 1, 2 * 7 * 2])
    np.testing.assert_allclose(got["b"], [2 * 1 * 1, 2 * 2 * 2])
    with pytest.raises(ArgumentError, match="the direction has the parts c, not a, b"):
        ng.hvp(lambda p: ng.sum(p["a"] * p["b"]), {"a": a, "b": b}, {"c": a})
    with pytest.raises(AxisError, match=r"hvp: the direction has axes \[K=3\], and what is differentiated \[H=2\]"):
        ng.hvp(lambda x: ng.sum(x**2), a, ng.constant(np.ones(3), "K=3"))
    last, _ = ng.scan(lambda c, x: ({"n": c["n"] + 1.0, "s": c["s"] + x}, None), {"s": a[0] * 0, "n": a[0]}, a, "H")
    ran = ng.function(last)()
    assert (float(ran["s"]), float(ran["n"])) == (3, 3)
    end = ng.while_loop(lambda c: c["i"] < 3, lambda c: {"v": c["v"] * 2, "i": c["i"] + 1}, {"i": 0, "v": a})
    np.testing.assert_allclose(ng.function(end["v"])(), [8, 16])
    for sign, expected in ((1.0, (1, 2)), (-1.0, (20, 10))):
        chosen = ng.cond(
            ng.constant(sign) > 0, lambda: {"x": as_float(1), "y": as_float(2)}, lambda: {"y": as_float(10), "x": as_float(20)}
        )
        ran = ng.function(chosen)()
        assert (float(ran["x"]), float(ran["y"])) == expected
    with pytest.raises(GraphError, match="cond: one branch gives the parts z, not x"):
        ng.cond(ng.constant(1.0) > 0, lambda: {"x": as_float(1)}, lambda: {"z": as_float(1)})
    with pytest.raises(GraphError, match="while_loop: the function gives the parts j, not i"):
        ng.while_loop(lambda c: c["i"] < 3, lambda c: {"j": c["i"] + 1}, {"i": 0})


def as_float(n):
    return ng.constant(float(n))


def test_errors_name_the_function_that_was_called():
    whole, v = ng.placeholder("H=3", dtype="int32"), ng.placeholder("H=3")
    with pytest.raises(DTypeError, match="grad: .* is int32, and has no derivative(?s:.*)pass floats; close over"):
        ng.grad(lambda x: ng.sum(x))(whole)
    with pytest.raises(DTypeError, match="value_and_grad: (?s:.*)name other arguments"):
        ng.value_and_grad(lambda x, y: ng.sum(x * y))(whole, v)
    with pytest.raises(GraphError, match="^(.|\n)*grad: the function gives multiply, which has axes"):
        ng.grad(lambda x: x * x)(v)


def test_a_second_derivative_of_logaddexp_at_equal_numbers():
    """It is the product of both shares, and nothing where both are infinite."""
    x = ng.placeholder("N=4", dtype="float64")
    other = ng.constant(np.array([0.5, 0.5, np.inf, -np.inf]), x.axes)
    slope = ng.deriv(ng.sum(ng.logaddexp(x, other), out_axes=()), x)
    found = ng.function(ng.deriv(ng.sum(slope, out_axes=()), x), x)(np.array([0.5, 1.5, np.inf, -np.inf]))
    share = 1 / (1 + np.exp(-1.0))
    np.testing.assert_allclose(found, [0.25, share * (1 - share), 0, 0], rtol=1e-12)


def test_vmap_of_loops_and_choices_whose_lengths_only_a_call_brings():
    """What a body reads of the graph around it is a number in its indices, also where the body gets another axis."""
    x = ng.placeholder("C=2 B=? H=?", dtype="float64")
    n = ng.placeholder((), dtype="int32")
    a = np.arange(24.0).reshape(2, 4, 3) ** 1.5

    def sliced(y):
        return ng.scan(lambda c, v: (c, ng.sum(v["H", :n], out_axes=())), 0.0, y, "B")[1]

    def cut(y):
        return ng.scan(lambda c, v: (c, ng.split(v, "H", 3)[1]["H", 0]), 0.0, y, "B")[1]

    def chosen(y):
        return ng.cond(n > 1, lambda v: ng.sum(v["H", :n], "H"), lambda v: ng.sum(v, "H"), y)

    got = ng.function([ng.vmap(f, "C")(x) for f in (sliced, cut, chosen)], x, n)(a, 2)
    for result, wanted in zip(got, (a[..., :2].sum(2), a[..., 1], a[..., :2].sum(2)), strict=True):
        np.testing.assert_allclose(result, wanted)
    m = ng.placeholder("C=2 T=? i=? j=?", dtype="float64")
    array = np.random.default_rng(0).normal(size=(2, 4, 3, 3))
    logs = ng.vmap(lambda m: ng.scan(lambda c, r: (c, ng.linalg.slogdet(r, "i", "j")[1]), 0.0, m, "T")[1], "C")(m)
    got, slope = ng.function([logs, ng.deriv(ng.sum(logs, out_axes=()), m)], m)(array)
    np.testing.assert_allclose(got, np.linalg.slogdet(array)[1], rtol=1e-9)
    np.testing.assert_allclose(slope, np.swapaxes(np.linalg.inv(array), -1, -2), rtol=1e-7)


def test_vmap_refuses_a_length_that_differs_along_its_axis():
    x, n = ng.placeholder("B=? H=?"), ng.placeholder("B=?", dtype="int32")
    with pytest.raises(ng.NgraphError, match="length of H differs along B"):
        ng.vmap(lambda v, n: ng.sum(v["H", :n], out_axes=()), "B")(x, n)
