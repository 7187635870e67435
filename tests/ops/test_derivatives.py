"""Derivatives by any op of a graph, and vector-Jacobian products whose errors depend on the inputs; beside PyTorch."""

import numpy as np
import pytest
import torch

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import StateError
from ngraph.testing import ExecutorFactory
from ngraph.util.utils import executor

A, T = ng.make_axis(3, name="A"), ng.make_axis(4, name="T")
AT = np.array([1.0, 2.0, 3.0])

RESULTS = {  # here and in PyTorch
    "square": (lambda x: x * x, lambda x: x * x),
    "exp": (ng.exp, torch.exp),
    "running sum": (lambda x: ng.cumsum(x * x, A), lambda x: (x * x).cumsum(0)),
    "share": (lambda x: x / ng.sum(x, out_axes=()), lambda x: x / x.sum()),
}
ERRORS = {
    "the result": (lambda r, x: r, lambda r, x: r),
    "of the result": (lambda r, x: ng.exp(r / 9.0), lambda r, x: (r / 9).exp()),
    "the input": (lambda r, x: x, lambda r, x: x),
}


@pytest.fixture
def x():
    return ng.placeholder([A], dtype="float64").named("x")


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("result", RESULTS)
def test_errors_are_held_fixed(x, result, error):
    (ours, theirs), (our_error, their_error) = RESULTS[result], ERRORS[error]
    t = torch.tensor(AT, requires_grad=True)
    r = theirs(t)
    (first,) = torch.autograd.grad(r, t, their_error(r, t), create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), t)
    made = ng.vjp(ours(x), x, our_error(ours(x), x))
    again = ng.deriv(ng.sum(made, out_axes=()), x)  # here the error moves with x
    for op, expected in ((made, first), (ng.deriv(ours(x), x, our_error(ours(x), x)), first), (again, second)):
        np.testing.assert_allclose(executor(op, x)(AT), expected.detach().numpy(), rtol=1e-12, atol=1e-14)


def test_several_results_take_one_walk(x):
    """A result that another one is made of, one that is given twice, and an error of fewer axes."""
    y = x * x
    z = ng.exp(y / 9.0)
    t = torch.tensor(AT, requires_grad=True)
    u = t * t
    v = (u / 9).exp()
    (expected,) = torch.autograd.grad([u, v, u], t, [v.detach(), torch.full_like(v, 2.0), u.detach()])
    np.testing.assert_allclose(executor(ng.vjp([y, z, y], x, [z, 2.0, y]), x)(AT), expected.numpy(), rtol=1e-12)


def test_a_product_with_the_jacobian_takes_tangents_that_depend_on_the_input(x):
    r = ng.cumsum(x * x, A)
    _, expected = torch.func.jvp(lambda t: (t * t).cumsum(0), (torch.tensor(AT),), (torch.tensor(AT).exp(),))
    np.testing.assert_allclose(executor(ng.jvp(r, x, ng.exp(x)), x)(AT), expected.numpy(), rtol=1e-12)


def test_a_derivative_by_a_constant():
    c, k = ng.constant(AT, [A]), ng.constant(3.0)
    assert executor(ng.deriv(ng.sum(c * c * k, out_axes=()), c))().tolist() == [6.0, 12.0, 18.0]
    assert executor(ng.deriv(k * k, k))() == 6.0
    assert executor(ng.deriv(k, k))() == 1.0
    assert executor(ng.deriv(k * k, c))().tolist() == [0.0, 0.0, 0.0]
    assert executor(ng.vjp([c * k, k * k], [c, k], [c, 1.0]))()[1] == 14.0 + 6.0


def test_a_derivative_by_a_value_on_the_way(x):
    y = ng.exp(x)
    assert np.allclose(executor(ng.deriv(ng.sum(y * y * x, out_axes=()), y), x)(AT), 2 * np.exp(AT) * AT)


LOOPS = {
    "scan": lambda c, x: ng.scan(lambda h, _: (h * c + x, None), x, None, T)[0],
    "scan in a scan": lambda c, x: ng.scan(lambda h, _: (ng.scan(lambda g, _: (g * c, None), h, None, T)[0] + x, None), x, None, T)[0],
    "checkpoint": lambda c, x: ng.checkpoint(lambda v: ng.sin(v * c) * c, x),
    "cond": lambda c, x: ng.cond(ng.sum(x, out_axes=()) > 0, lambda: x * c * c, lambda: x - c),
    "inside and outside": lambda c, x: ng.scan(lambda h, _: (h * c, None), x * c, None, T)[0] + c,
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_constant_in_the_body_of_a_loop(x, loop):
    """The derivative by a constant is the one by a placeholder that stands in its place."""
    c, p = ng.constant(np.array([0.5, 1.5, -1.0]), [A]), ng.placeholder([A], dtype="float64")
    by_constant = ng.deriv(ng.sum(LOOPS[loop](c, x), out_axes=()), c)
    by_placeholder = ng.deriv(ng.sum(LOOPS[loop](p, x), out_axes=()), p)
    expected = executor(by_placeholder, x, p)(AT, [0.5, 1.5, -1.0])
    assert np.abs(expected).max() > 0
    np.testing.assert_allclose(executor(by_constant, x)(AT), expected, rtol=1e-12)


def test_what_hides_a_constant_is_computed_once(x):
    """Behind it something is assigned and returned beside the derivative; the scale of the op that hides it counts once."""
    c, kept = ng.constant(np.array([0.5, 1.5, -1.0]), [A]), ng.persistent_tensor([A], dtype="float64")
    chosen = ng.cond(ng.sum(x, out_axes=()) > 0.0, lambda: c * x, lambda: x)
    chosen.scale = 3.0
    y = ng.sequential([ng.assign(kept, chosen), chosen * chosen])
    got, slope, state = executor([y, ng.deriv(ng.sum(y, out_axes=()), c), kept], x)(AT)
    np.testing.assert_allclose(state, [0.5, 3.0, -3.0], rtol=1e-12)
    np.testing.assert_allclose(got, state**2, rtol=1e-12)
    np.testing.assert_allclose(slope, 3.0 * 2.0 * state * AT, rtol=1e-12)


def test_no_derivative_by_an_integer():
    k = ng.constant(np.array([1, 2, 3]), [A])
    with pytest.raises(ng.NgraphError, match="not a float tensor"):
        ng.deriv(ng.sum(k * 1.0, out_axes=()), k)


def test_an_integer_is_made_a_float_first():
    """The fix of the message, applied."""
    k = ng.constant(np.array([1, 2, 3]), [A])
    y = ng.cast(k, "float32")
    with pytest.raises(ng.NgraphError, match="use x"):
        ng.deriv(ng.sum(y * y, out_axes=()), k)
    assert executor(ng.deriv(ng.sum(y * y, out_axes=()), y))().tolist() == [2.0, 4.0, 6.0]


def test_an_error_of_other_axes_is_refused(x):
    with pytest.raises(ng.NgraphError, match="has T, which .* lacks"):
        ng.deriv(x * x, x, ng.placeholder([T]))


def test_second_derivatives_of_two_derivatives_of_one_loop(x):
    """Each walk makes parts of the loop of its own: their adjoints add up."""
    b = ng.placeholder([A], dtype="float64")
    y = ng.scan(lambda h, _: (ng.sin(h * x + b), None), x, None, T)[0]
    total = sum(ng.sum(ng.deriv(ng.sum(y, out_axes=()), i), out_axes=()) for i in (b, x))
    by_two_walks = ng.sum(ng.vjp(y, x, np.ones(3)), out_axes=()) + ng.sum(ng.vjp(y, b, np.ones(3)), out_axes=())
    t, u = (torch.tensor(AT / k, requires_grad=True) for k in (1, 2))
    h = t
    for _ in range(4):
        h = torch.sin(h * t + u)
    first = torch.autograd.grad(h.sum(), [u, t], create_graph=True)
    (expected,) = torch.autograd.grad(first[0].sum() + first[1].sum(), t)
    for made in (total, by_two_walks):
        np.testing.assert_allclose(executor(ng.deriv(made, x), x, b)(AT, AT / 2), expected, rtol=1e-10)


PROBABILITIES = {  # losses that are computed from logits where their probabilities come straight from a softmax or sigmoid
    "of many": (
        lambda x: ng.softmax(x, normalization_axes=[A]),
        lambda p, t: ng.cross_entropy_multi(p, t, out_axes=[]),
        lambda p, t: -(t * p.log()).sum(),
        lambda v: v.softmax(0),
    ),
    "of many, in bits": (
        lambda x: ng.softmax(x, normalization_axes=[A]),
        lambda p, t: ng.cross_entropy_multi(p, t, usebits=True, out_axes=[]),
        lambda p, t: -(t * p.log()).sum() / np.log(2),
        lambda v: v.softmax(0),
    ),
    "of two": (
        ng.sigmoid,
        lambda p, t: ng.cross_entropy_binary(p, t, out_axes=[]),
        lambda p, t: -(t * p.log() + (1 - t) * (1 - p).log()).sum(),
        torch.sigmoid,
    ),
}


@pytest.mark.parametrize("name", PROBABILITIES)
def test_a_loss_from_logits_depends_on_its_probabilities(x, name):
    squash, ours, theirs, torch_squash = PROBABILITIES[name]
    p, t = squash(x), ng.constant(np.array([0.2, 0.3, 0.5]), [A])
    loss = ours(p, t)
    q = torch_squash(torch.tensor(AT)).requires_grad_()
    (expected,) = torch.autograd.grad(theirs(q, torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)), q)
    by_p, by_x = executor(ng.deriv(loss * 2.0, [p, x]), x)(AT)
    np.testing.assert_allclose(by_p, 2 * expected, rtol=1e-10)
    v = torch.tensor(AT, requires_grad=True)
    (expected,) = torch.autograd.grad(theirs(torch_squash(v), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)), v)
    np.testing.assert_allclose(by_x, 2 * expected, rtol=1e-10)


@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
@pytest.mark.parametrize("squash, loss", [(ng.softmax, ng.cross_entropy_multi), (ng.sigmoid, ng.cross_entropy_binary)])
def test_a_loss_sees_logits_through_a_cast_of_their_probabilities(squash, loss, narrow):
    """As mixed precision makes one: where 16 bits hold no probability as small, the gradient is not zero."""
    x = ng.placeholder([A])
    p = squash(ng.cast(x, narrow))
    total = loss(ng.cast(p, "float32"), ng.constant(np.array([0.0, 1.0, 0.0], np.float32), [A]), out_axes=())
    f = executor([total, ng.deriv(total, x), ng.deriv(total, p), p], x)
    value, by_x, _, _ = f([40.0, -40.0, 0.0])
    np.testing.assert_allclose(value, 80.0 if squash is ng.softmax else 80.0 + np.log(2), rtol=1e-6)
    np.testing.assert_allclose(by_x, [1, -1, 0] if squash is ng.softmax else [1, -1, 0.5], atol=1e-6)
    _, _, by_p, q = (np.asarray(r, np.float32) for r in f([1.0, 2.0, 0.0]))
    np.testing.assert_allclose(by_p, [0, -1 / q[1], 0] if squash is ng.softmax else [1 / (1 - q[0]), -1 / q[1], 2], rtol=0.02)


def test_what_a_while_loop_does_not_use_has_a_derivative(x):
    w = ng.placeholder([A], dtype="float64")
    y = ng.while_loop(lambda c: ng.sum(c, out_axes=()) < 50.0, lambda c: c * 2.0, x) * w
    assert executor(ng.deriv(ng.sum(y, out_axes=()), w), x, w)(AT, AT).tolist() == [16.0, 32.0, 48.0]
    with pytest.raises(ng.NgraphError, match="no derivative: how often it runs"):
        ng.deriv(ng.sum(y, out_axes=()), x)


def test_a_product_outside_of_a_loop_is_not_one_of_its_results(x):
    """A product that the body only uses may have the axis of the loop."""
    squares = ng.einsum(x, x, x, out_axes=[A])
    mean = ng.einsum(squares, x, out_axes=[])
    last, each = ng.scan(lambda h, v: (ng.sin(h * mean + v), h * v), mean, x, A)
    y = last * ng.sum(each, out_axes=())
    t = torch.tensor(AT / 4, requires_grad=True)
    m = h = ((t * t * t) * t).sum()
    total = 0.0
    for v in t:
        h, total = torch.sin(h * m + v), total + h * v
    (expected,) = torch.autograd.grad(h * total, t)
    np.testing.assert_allclose(executor(ng.deriv(y, x), x)(AT / 4), expected, rtol=1e-10)
    assert len(last.inputs[0].type) == 3  # the carry, what each trip gives, and the carries for the way back


def test_the_quotient_of_floats_is_that_of_numpy():
    """1 // 0.1 is 9, for 10 * 0.1 is above 1; and the slope of x % y by y is minus that quotient."""
    special = np.array([-np.inf, -7.7, -1.0, -0.0, 0.0, 0.1, 0.3, 1.0, 6.3, np.inf, np.nan])
    a, b = np.repeat(special, 11), np.tile(special, 11)
    P = ng.make_axis(121, name="P")
    p, q = (ng.placeholder([P], dtype="float64") for _ in range(2))
    by_q = ng.deriv(ng.sum(ng.mod(p, q), out_axes=()), q)
    with np.errstate(all="ignore"):
        expected = np.floor_divide(a, b)
        got, slope = executor([p // q, by_q], p, q)(a, b)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(slope, -expected)


AXIS_TWICE = {  # loops over T whose bodies have values along T: in ngraph, in PyTorch
    "a captured tensor": (
        lambda w, x: ng.scan(lambda h, v: (ng.tanh(ng.sum(w * h, out_axes=()) + v), None), x[{T: 0}], x, T)[0],
        lambda w, h, v: torch.tanh((w * h).sum() + v),
        False,
    ),
    "a product inside": (
        lambda w, x: ng.scan(lambda h, v: (ng.tanh(ng.einsum(w * h, w, out_axes=[]) + v), None), x[{T: 0}], x, T)[0],
        lambda w, h, v: torch.tanh((w * h * w).sum() + v),
        False,
    ),
    "a carry": (
        lambda w, x: ng.scan(lambda h, v: (ng.tanh(h * w + v), None), w, x, T)[0],
        lambda w, h, v: torch.tanh(h * w + v),
        True,
    ),
}


@pytest.mark.parametrize("name", AXIS_TWICE)
def test_values_of_a_loop_may_have_its_axis(name):
    """First, second and third derivatives: each way back stacks what the loop before carried."""
    ours, step, from_w = AXIS_TWICE[name]
    at = [np.array([0.2, 0.7, -0.4, 0.5]), np.array([0.3, -0.5, 0.8, 0.1])]
    w, x = (ng.placeholder([T], dtype="float64") for _ in range(2))
    y = ng.sum(ours(w, x), out_axes=())
    t, u = (torch.tensor(v, requires_grad=True) for v in at)
    h = t if from_w else u[0]
    for v in u:
        h = step(t, h, v)
    z = h.sum()
    for _ in range(3):
        y = sum(ng.sum(g * g, out_axes=()) for g in ng.deriv(y, [w, x]))
        z = sum((g * g).sum() for g in torch.autograd.grad(z, [t, u], create_graph=True))
        np.testing.assert_allclose(executor(y, w, x)(*at), z.detach(), rtol=1e-9)


@pytest.mark.parametrize("factory", [False, True])
def test_a_computation_outlives_the_block_that_made_it(x, factory):
    w = ng.variable([A], dtype="float64", initial_value=2.0)
    with ExecutorFactory() if factory else executor([ng.assign(w, w * x), w * 1.0], x) as made:
        run = made.executor([ng.assign(w, w * x), w * 1.0], x) if factory else made
    first = run(AT)[1]
    np.testing.assert_array_equal([first, run(AT)[1]], [first, first * AT])
    made.close()
    with pytest.raises(StateError, match="closed"):
        run(AT)


@pytest.mark.parametrize("reverse", [False, True])
def test_running_products_and_extrema_are_one_walk_back(reverse):
    """Zeros among the factors; the memory that the call takes grows with the length, not with its square."""
    x = ng.placeholder("T=? B=2", dtype="float64")
    runs = [ng.cumprod(x, "T", reverse=reverse), ng.cummax(x, "T", reverse=reverse), ng.cummin(x, "T", reverse=reverse)]
    f = ngt.make_transformer_factory("cpu")().computation([ng.deriv(ng.sum(y * y, out_axes=()), x) for y in runs], x)
    for n in (5000, 1, 0, 2, 37):
        given = np.random.default_rng(n).uniform(-1.1, 1.1, (n, 2))
        given[n // 2 :: 50] = 0
        t = torch.tensor(given, requires_grad=True)
        along = t.flip(0) if reverse else t
        wanted = (along.cumprod(0), *((along.cummax(0).values, along.cummin(0).values) if n else (along, along)))
        for got, y in zip(f(given), wanted, strict=True):
            np.testing.assert_allclose(got, torch.autograd.grad((y * y).sum(), t, retain_graph=True)[0].numpy(), rtol=1e-9, atol=1e-12)
    assert f.memory["arena"] < 4e6  # bytes


def test_equal_elements_share_the_derivative_of_a_running_maximum():
    x, dy = (ng.placeholder("T=6", dtype="float64") for _ in range(2))
    f = ng.function(ng.deriv(ng.cummax(x, "T"), x, dy), x, dy)
    np.testing.assert_allclose(f([2, 1, 2, 5, 4, 5], [1, 2, 4, 8, 16, 32]), [1 + 2 + 4 / 2, 0, 4 / 2, 8 + 16 + 32 / 2, 0, 32 / 2])
