"""ng.custom_gradient against PyTorch's autograd.Function, finite differences of what it replaces, and one call for each index."""

import copy
from typing import NamedTuple

import numpy as np
import pytest
import torch

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import AxisError, GraphError
from ngraph.op_graph.op import Op

R = np.random.default_rng(3)


@pytest.fixture(params=["direct", "numpy", "cpu"])
def compute(request):
    def run(results, *pairs):
        with ngt.make_transformer_factory(request.param)() as transformer:
            return transformer.computation(results, *[h for h, _ in pairs])(*[v for _, v in pairs])

    return run


def hole(text):
    return ng.placeholder(text, dtype="float64")


@ng.custom_gradient
def cubed(x):
    """A derivative that is not that of x ** 3, so that one sees whose it is."""
    y = x * x
    return y * x, lambda error: error * (2 * y + 1)


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, error):
        (x,) = ctx.saved_tensors
        return error * (2 * x * x + 1)


def close(got, want):
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, np.asarray(b), rtol=1e-12, atol=1e-13)


def test_value_and_derivatives_of_two_orders(compute):
    x, v = hole("H=4"), R.normal(size=4)
    value, first = ng.value_and_grad(lambda x: ng.sum(ng.sin(cubed(x)), out_axes=()))(x)
    t = torch.tensor(v, requires_grad=True)
    there = torch.sin(Cubed.apply(t)).sum()
    (d,) = torch.autograd.grad(there, t, create_graph=True)
    (dd,) = torch.autograd.grad(d.sum(), t)
    along = ng.jvp(cubed(x), x, ng.cos(x))
    got = compute([value, first, ng.deriv(ng.sum(first, out_axes=()), x), along], (x, v))
    close(got, [there.detach(), d.detach(), dd, (2 * v * v + 1) * np.cos(v)])


def test_a_step_has_the_derivative_of_the_identity(compute):
    """The straight-through estimator: a quantised value is trained as if it were not."""
    quantised = ng.custom_gradient(lambda x, step: (ng.rounded(x / step) * step, lambda error: (error, None)))
    x, s, v = hole("H=3"), hole(""), np.array([0.3, 1.2, -0.8])
    y = quantised(x, s)
    got = compute([y, *ng.deriv(ng.sum(y * y, out_axes=()), [x, s])], (x, v), (s, 0.5))
    close(got, [[0.5, 1.0, -1.0], [1.0, 2.0, -2.0], 0.0])


def test_nests_of_arguments_and_results(compute):
    class Pair(NamedTuple):
        a: Op
        b: Op

    @ng.custom_gradient
    def both(p, k, *, twice):
        def gradient(errors):
            assert isinstance(errors, Pair)
            return {"w": errors.a * 5, "rest": [errors.b * 7]}, None

        return Pair(p["w"] * k, p["rest"][0] * (2 if twice else 1)), gradient

    w, r = hole("H=2"), hole("")
    made = both({"w": w, "rest": [r]}, 3, twice=True)
    got = compute([made.a, made.b, *ng.vjp([made.a, made.b], [w, r], [1.0, 1.0])], (w, [1.0, 2.0]), (r, 4.0))
    close(got, [[3, 6], 8, [5, 5], 7])
    spread = ng.custom_gradient(lambda x, y: ((x * y, x + y), lambda e, f: (e * y + f, e * x + f)))  # the elements of a tuple
    one, two = spread(w, r)
    got = compute([*ng.vjp([one, two], [w, r], [w, 1.0]), ng.deriv(ng.sum(one, out_axes=()), r)], (w, [1.0, 2.0]), (r, 4.0))
    close(got, [[1 * 4 + 1, 2 * 4 + 1], 1 + 4 + 2, 3.0])


def test_a_derivative_is_summed_and_broadcast_as_its_argument_needs(compute):
    scaled = ng.custom_gradient(lambda x, w: (x * w, lambda error: (error * w, error * x)))
    x, w, v = hole("N=3 H=2"), hole("H=2"), R.normal(size=(3, 2))
    got = compute(ng.deriv(ng.sum(scaled(x, w), out_axes=()), [x, w]), (x, v), (w, [2.0, 3.0]))
    close(got, [np.broadcast_to([2.0, 3.0], (3, 2)), v.sum(0)])
    flat = ng.custom_gradient(lambda x: (ng.sum(x, out_axes=()), lambda error: error))
    close([compute(ng.grad(flat)(x), (x, v))], [np.ones((3, 2))])


def test_what_it_uses_beside_its_arguments_is_constant(compute):
    x, w = hole("H=2"), ng.variable("H=2", initial_value=[2.0, 5.0], dtype="float64")
    doubled = ng.exp(w)
    scaled = ng.custom_gradient(lambda x: (x * doubled + w, lambda error: error * doubled * 3))
    first = ng.deriv(ng.sum(scaled(x), out_axes=()), [x, w])
    got = compute([*first, ng.deriv(ng.sum(first[0], out_axes=()), w)], (x, [1.0, 1.0]))
    close(got, [3 * np.exp([2.0, 5.0]), [0, 0], [0, 0]])
    c = ng.constant([1.0, 2.0], "H=2", dtype="float64")
    close([compute(ng.deriv(ng.sum(cubed(c), out_axes=()), c))], [[3.0, 9.0]])


@pytest.mark.parametrize("length", ["4", "?"])
def test_in_loops_choices_and_checkpoints(compute, length):
    x, xs, v, u = hole("H=3"), hole(f"T={length} H=3"), R.normal(size=3) * 0.5, R.normal(size=(4, 3)) * 0.5
    last, seen = ng.scan(lambda h, now: (ng.tanh(cubed(h) + now), cubed(h * now)), x, xs, "T")
    chosen = ng.cond(ng.sum(x, out_axes=()) > -100, lambda: cubed(last), lambda: last)
    total = ng.sum(ng.checkpoint(lambda y: cubed(y) * y, chosen), out_axes=()) + ng.sum(seen, out_axes=())
    first = ng.deriv(total, [x, xs])
    second = ng.deriv(ng.sum(first[0] * ng.cos(x), out_axes=()), x)
    t, ts = torch.tensor(v, requires_grad=True), torch.tensor(u, requires_grad=True)
    h, there = t, 0.0
    for now in ts:
        there = there + Cubed.apply(h * now).sum()
        h = torch.tanh(Cubed.apply(h) + now)
    y = Cubed.apply(h)
    there = there + (Cubed.apply(y) * y).sum()
    d = torch.autograd.grad(there, [t, ts], create_graph=True)
    (dd,) = torch.autograd.grad((d[0] * torch.cos(t)).sum(), t)
    close(compute([total, *first, second], (x, v), (xs, u)), [q.detach() for q in (there, *d, dd)])


def test_under_vmap_the_derivatives_are_its_own(compute):
    """Of a mapped function, of each index of a derivative, and of arguments that are the same at each index."""
    x, w, v, u = hole("B=4 H=3"), hole("H=3"), R.normal(size=(4, 3)), R.normal(size=3)
    other = ng.custom_gradient(lambda x, w: ((ng.sum(x * w), w * 2), lambda e, f: (e * w * 3, f + 5.0)))

    def cost(x, w):
        y, z = other(cubed(x), w)
        return ng.sum(y) ** 2 + ng.sum(z, out_axes=())

    def derivatives(x, w):
        y = (x**3 * w).sum()
        return 2 * y * w * 3 * (2 * x * x + 1), np.full(3, 6.0)

    of_sum = ng.grad(lambda x, w: ng.sum(ng.vmap(lambda x: cost(x, w), "B")(x), out_axes=()), (0, 1))(x, w)
    by_index = ng.vmap(ng.grad(cost, (0, 1)), "B")(x, w)
    jacobian = ng.jacobian(cubed)(x)
    single = [derivatives(row, u) for row in v]
    got = compute([*of_sum, *by_index, ng.sum(jacobian, ["B'", "H'"])], (x, v), (w, u))
    want = [np.stack([s[k] for s in single]) for k in (0, 1)]
    close(got, [want[0], want[1].sum(0), *want, 2 * v * v + 1])


def test_random_numbers_of_a_value_are_those_of_its_derivative(compute):
    dropped = ng.custom_gradient(lambda x: (x * (keep := ng.bernoulli(x, 0.5, dtype="float64")), lambda error: error * keep))
    x = hole("H=40")
    y = dropped(x)
    value, slope = compute([y, ng.deriv(ng.sum(y, out_axes=()), x)], (x, np.ones(40)))
    np.testing.assert_array_equal(value, slope)
    assert 0 < value.sum() < 40


def test_what_value_and_derivative_share_is_computed_once():
    shared = ng.custom_gradient(lambda x: (ng.log((e := ng.exp(x)) + 1), lambda error: error * e / (e + 1)))
    x = hole("H=3")
    y = shared(x)
    computation = ngt.make_transformer_factory("numpy")().computation([y, ng.deriv(ng.sum(y, out_axes=()), x)], x)
    assert [s.op for s in computation.program.steps].count("exp") == 1


def test_prints_happen_once(capfd):
    def printed(x):
        y = ng.PrintOp(x, "value ")
        return y * y, lambda error: ng.PrintOp(error, "error ") * y * 2

    x = hole("")
    y = ng.custom_gradient(printed)(x)
    slope = ngt.make_transformer_factory("numpy")().computation([y, ng.deriv(y, x)], x)(3.0)[1]
    said = capfd.readouterr()
    assert slope == 6 and [w for w in (said.out + said.err).split() if w in ("value", "error")] == ["value", "error"]


def test_it_is_copied_and_written_with_its_graph():
    from ngraph.op_graph.serde.serde import deserialize_graph, serialize_graph

    x = hole("H=2").named("x")
    y = ng.sum(cubed(x), out_axes=()).named("y")
    back = next(o for o in deserialize_graph(serialize_graph([y])) if o.hint == "y")
    (there,) = back.placeholders()
    run = ngt.make_transformer_factory("numpy")().computation([back, ng.deriv(back, there)], there)
    close(run([1.0, 2.0]), [9.0, [3.0, 9.0]])
    assert copy.copy(cubed) is cubed or copy.copy(cubed)(x).axes == x.axes


@pytest.mark.parametrize(
    "function, error, said",
    [
        (lambda x: x, GraphError, "gives Op, not a pair of its result and its gradient"),
        (lambda x: (x, x), GraphError, "gives tuple, not a pair"),
        (lambda x: (x, lambda e: (e, e)), GraphError, "the gradient gives the parts 0, 1, which is not the form of the argument"),
        (lambda x: (x, lambda e: ng.zeros("H=7")), AxisError, "a derivative has .*H=7.*, and its argument .*H=3"),
        (lambda x: (ng.sequential([ng.assign(ng.persistent_tensor("H=3"), x), x]), lambda e: e), GraphError, "has effects: assign"),
        (lambda x: (x, lambda e: ng.sequential([ng.assign(ng.persistent_tensor("H=3"), e), e])), GraphError, "has effects: assign"),
    ],
)
def test_errors_say_what_disagrees(function, error, said):
    with pytest.raises(error, match=said) as found:
        ng.custom_gradient(function)(ng.placeholder("H=3"))
    assert "fix:" in str(found.value) and "test_custom_gradient.py" in str(found.value)


def test_several_arguments_need_as_many_derivatives():
    with pytest.raises(GraphError, match="gives one value, which is not the form of the 2 arguments"):
        ng.custom_gradient(lambda x, y: (x * y, lambda e: e * y))(hole("H=3"), hole("H=3"))
