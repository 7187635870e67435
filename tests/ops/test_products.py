"""Vector-Jacobian and Jacobian-vector products against torch.func in float64; recomputation, counted."""

import tracemalloc

import numpy as np
import pytest
import torch

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import AxisError, DTypeError, GraphError
from ngraph.passes import default_passes
from ngraph.program.lower import lower
from ngraph.rewrite.runner import run as run_passes

H, K, N, T = (ng.make_axis(n, name=a) for n, a in ((3, "H"), (4, "K"), (5, "N"), (6, "T")))
R = np.random.default_rng(0)


@pytest.fixture(params=["direct", "numpy", "cpu"])
def compute(request):
    def run(ops, parameters=(), values=()):
        with ngt.make_transformer_factory(request.param)() as transformer:
            return transformer.computation(ops, *parameters)(*values)

    return run


def layer(w, x):
    y = ng.tanh(ng.dot(w, x))
    return y, ng.sum(y * y, out_axes=[N])


def torch_layer(w, x):
    y = torch.tanh(w @ x)
    return y, (y * y).sum(0)


def inputs():
    w, x = ng.placeholder([H, K], dtype="float64"), ng.placeholder([K, N], dtype="float64")
    return (w, x), [R.normal(size=(3, 4)), R.normal(size=(4, 5))]


def test_vector_jacobian_products(compute):
    (w, x), values = inputs()
    errors = [R.normal(size=(3, 5)), R.normal(size=5)]
    made = ng.vjp(list(layer(w, x)), [w, x], [ng.constant(errors[0], [H, N]), ng.constant(errors[1], [N])])
    _, back = torch.func.vjp(torch_layer, *map(torch.tensor, values))
    for g, e in zip(compute(made, (w, x), values), back(tuple(map(torch.tensor, errors))), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-12, atol=1e-15)
    one = ng.vjp(layer(w, x)[0], x, ng.constant(errors[0], [H, N]))
    expected = torch.func.vjp(lambda x: torch_layer(torch.tensor(values[0]), x)[0], torch.tensor(values[1]))[1](torch.tensor(errors[0]))
    np.testing.assert_allclose(compute(one, (w, x), values), expected[0], rtol=1e-12, atol=1e-15)


def test_jacobian_vector_products(compute):
    (w, x), values = inputs()
    along = [R.normal(size=(3, 4)), R.normal(size=(4, 5))]
    made = ng.jvp(list(layer(w, x)), [w, x], [ng.constant(along[0], [H, K]), ng.constant(along[1].T, [N, K])])
    assert [m.axes for m in made] == [(H, N), (N,)]
    _, expected = torch.func.jvp(torch_layer, tuple(map(torch.tensor, values)), tuple(map(torch.tensor, along)))
    for g, e in zip(compute(made, (w, x), values), expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-12, atol=1e-15)
    one = ng.jvp(layer(w, x)[1], x, ng.constant(along[1], [K, N]))
    _, expected = torch.func.jvp(
        lambda x: torch_layer(torch.tensor(values[0]), x)[1], (torch.tensor(values[1]),), (torch.tensor(along[1]),)
    )
    np.testing.assert_allclose(compute(one, (w, x), values), expected, rtol=1e-12, atol=1e-15)


CURVED = {
    "softmax": (lambda x: ng.softmax(x, normalization_axes=[K]), lambda x: torch.softmax(x, 0)),
    "sort": (lambda x: ng.sort(x, K), lambda x: x.sort(0)[0]),
    "largest": (lambda x: ng.max(x, reduction_axes=[K]), lambda x: x.amax(0)),
    "product": (lambda x: ng.prod(x, reduction_axes=[N]), lambda x: x.prod(1)),
    "running": (lambda x: ng.cumsum(x * x, N), lambda x: (x * x).cumsum(1)),
    "power": (lambda x: ng.exp(x) ** x, lambda x: torch.exp(x) ** x),
    "logits": (lambda x: ng.logsumexp(ng.sin(x), out_axes=[N]), lambda x: torch.logsumexp(torch.sin(x), 0)),
    "checkpoint": (lambda x: ng.checkpoint(lambda y: ng.sin(ng.exp(y)), x), lambda x: torch.sin(torch.exp(x))),
}


@pytest.mark.parametrize("case", CURVED)
def test_jacobian_vector_products_of_curved_functions(compute, case):
    ours, theirs = CURVED[case]
    x, v, along = ng.placeholder([K, N], dtype="float64"), R.normal(size=(4, 5)), R.normal(size=(4, 5))
    _, expected = torch.func.jvp(theirs, (torch.tensor(v),), (torch.tensor(along),))
    np.testing.assert_allclose(compute(ng.jvp(ours(x), x, ng.constant(along, [K, N])), [x], [v]), expected, rtol=1e-10, atol=1e-12)


def test_jacobian_vector_product_of_a_loop(compute):
    w, x, h = ng.placeholder([H, H - 1], dtype="float64"), ng.placeholder([T, H], dtype="float64"), ng.placeholder([H], dtype="float64")
    last, each = ng.scan(lambda h, x: (ng.tanh(ng.dot(w, h) + x),) * 2, h, x, T)
    values, along = ([R.normal(size=s) for s in ((3, 3), (6, 3), (3,))] for _ in range(2))

    def loop(w, x, h):
        every = []
        for t in range(6):
            h = torch.tanh(w @ h + x[t])
            every.append(h)
        return h, torch.stack(every)

    _, expected = torch.func.jvp(loop, tuple(map(torch.tensor, values)), tuple(map(torch.tensor, along)))
    made = ng.jvp([last, each], [w, x, h], [ng.constant(a, p.axes) for a, p in zip(along, (w, x, h), strict=True)])
    for g, e in zip(compute(made, (w, x, h), values), expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-10)


def test_a_hessian_vector_product_is_a_jvp_of_a_derivative(compute):
    x, v, along = ng.placeholder([K], dtype="float64"), R.normal(size=4), R.normal(size=4)
    loss = ng.sum(ng.sin(x) * x * x, out_axes=())
    made = ng.jvp(ng.deriv(loss, x), x, ng.constant(along, [K]))
    hessian = torch.func.hessian(lambda x: (torch.sin(x) * x * x).sum())(torch.tensor(v))
    np.testing.assert_allclose(compute(made, [x], [v]), hessian @ torch.tensor(along), rtol=1e-10)


def test_products_with_a_jacobian_say_what_is_wrong():
    (w, x), _ = inputs()
    y, _ = layer(w, x)
    with pytest.raises(GraphError, match="1 given where 2 belong"):
        ng.vjp([y, y], w, [y])
    with pytest.raises(AxisError, match="has T, which .* lacks"):
        ng.jvp(y, x, ng.placeholder([T]))
    with pytest.raises(DTypeError, match="not a float tensor"):
        ng.vjp(ng.argmax(y), x, y)


def test_derivatives_with_respect_to_several(compute):
    (w, x), values = inputs()
    cost = ng.sum(layer(w, x)[0], out_axes=())
    got = compute(ng.deriv(cost, [w, x]), (w, x), values)
    for g, p in zip(got, (w, x), strict=True):
        np.testing.assert_array_equal(g, compute(ng.deriv(cost, p), (w, x), values))


# ---- checkpoint ---------------------------------------------------------------------------------------------------------


def deep(kept, blocks=4, length=6, axes=(N, H), dtype="float64"):
    """A chain of blocks of many layers; the loss and its derivatives with respect to input and weights."""
    x = ng.placeholder(axes, dtype=dtype)
    weights = [ng.variable((), dtype=dtype, initial_value=0.9 + k / 20) for k in range(blocks)]
    y = x
    for w in weights:

        def block(y, w=w):
            for _ in range(length):
                y = ng.tanh(y) * w
            return y

        y = block(y) if kept else ng.checkpoint(block, y)
    loss = ng.sum(y * y, out_axes=())
    return x, [loss, *ng.deriv(loss, [x, *weights])]


def test_checkpoint_changes_no_value_and_no_derivative(compute):
    v = R.normal(size=(5, 3))
    for (x, plain), (z, again) in ((deep(True), deep(False)),):
        for a, b in zip(compute(plain, [x], [v]), compute(again, [z], [v]), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)


def steps(program):
    """How many steps of each op there are, those in bodies among them."""
    found = {}
    todo = [program]
    while todo:
        for s in todo.pop().steps:
            found[s.op] = found.get(s.op, 0) + 1
            todo += [a for a in s.attrs.values() if hasattr(a, "steps")]
    return found


def live(program):
    """The largest number of elements in values of the program alive at once, as it stands; a body counts while its step runs."""
    last, size = {}, {}
    for k, s in enumerate(program.steps):
        for v in (*s.inputs, *s.results):
            last[v] = k
            size[v] = np.prod([program.length(a) for a in v.axes], dtype=int)
    for v in program.outputs:
        last[v] = len(program.steps)
    alive, most = 0, 0
    made = {v for s in program.steps for v in s.results}
    for k, s in enumerate(program.steps):
        alive += sum(size[v] for v in s.results)
        inside = sum(live(a) for a in s.attrs.values() if hasattr(a, "steps"))
        most = max(most, alive + inside)
        alive -= sum(size[v] for v in {*s.inputs, *s.results} if v in made and last[v] == k)
    return most


def test_what_is_checkpointed_is_computed_twice_and_not_kept():
    programs = []
    for kept in (True, False):
        x, results = deep(kept, axes=(ng.make_axis(100, name="A"),))
        programs.append(run_passes(lower(results, [x]).program, default_passes))
    plain, again = programs
    assert steps(plain)["tanh"] == 24  # 4 blocks of 6
    assert steps(again)["tanh"] == 48  # each of them again on the way back
    assert live(plain) >= 24 * 100 and live(again) <= live(plain) / 2


@pytest.mark.parametrize("name", ["direct", "numpy"])
def test_memory_is_saved(name):
    """The most bytes that NumPy holds during a call, in arrays of the size of the input."""
    A = ng.make_axis(1 << 16, name="A")
    v, most = R.normal(size=1 << 16).astype(np.float32), []
    for kept in (True, False):
        x, results = deep(kept, blocks=5, length=8, axes=(A,), dtype="float32")
        with ngt.make_transformer_factory(name)() as transformer:
            computation = transformer.computation(results, x)
            computation(v)
            tracemalloc.start()
            computation(v)
            most.append(tracemalloc.get_traced_memory()[1] / v.nbytes)
            tracemalloc.stop()
    assert most[0] > 40 and most[1] < most[0] / 2, most


def test_checkpoint_takes_what_is_around_it_and_gives_several(compute):
    (w, x), values = inputs()
    scale = ng.exp(ng.sum(w, out_axes=()) * 0.1)

    def function(x):
        b = ng.variable([H], dtype="float64", initial_value=[1.0, 2.0, 3.0])  # a layer may make its weights here
        y = ng.tanh(ng.dot(w, x) * scale + b)
        return y, ng.sum(y * y, out_axes=[N])

    def losses(pair):
        return ng.sum(pair[0], out_axes=()) + ng.sum(ng.sin(pair[1]), out_axes=())

    plain, again = losses(function(x)), losses(ng.checkpoint(function, x))
    got = compute([plain, again, *ng.deriv(plain, [w, x]), *ng.deriv(again, [w, x])], (w, x), values)
    for a, b in ((0, 1), (2, 4), (3, 5)):
        np.testing.assert_allclose(got[a], got[b], rtol=1e-12, atol=1e-15)
    assert len(again.variables()) == 1
    slope = compute(ng.deriv(again, again.variables()[0]), (w, x), values)
    np.testing.assert_allclose(slope, compute(ng.deriv(plain, plain.variables()[0]), (w, x), values), rtol=1e-12, atol=1e-15)


def test_random_numbers_in_a_checkpoint_are_drawn_again_the_same(compute):
    x = ng.placeholder([N, K], dtype="float64")
    y = ng.checkpoint(lambda x: x * x * ng.bernoulli(x, 0.5, dtype="float64"), x)
    v = R.normal(size=(5, 4))
    value, slope = compute([y, ng.deriv(ng.sum(y, out_axes=()), x)], [x], [v])
    np.testing.assert_allclose(slope, 2 * v * (value != 0), rtol=1e-12, atol=1e-15)
    assert 0 < (value != 0).sum() < 20


def test_checkpoints_in_checkpoints_and_their_second_derivatives(compute):
    x, v = ng.placeholder([K], dtype="float64"), R.normal(size=4)

    def inner(y):
        return ng.sin(y) * y

    def outer(y):
        return ng.exp(ng.checkpoint(inner, ng.checkpoint(inner, y)))

    y = ng.checkpoint(outer, x)
    first = ng.deriv(ng.sum(y, out_axes=()), x)
    got = compute([y, first, ng.deriv(ng.sum(first, out_axes=()), x)], [x], [v])
    t = torch.tensor(v, requires_grad=True)
    e = t
    for _ in range(2):
        e = torch.sin(e) * e
    e = torch.exp(e)
    (d,) = torch.autograd.grad(e.sum(), t, create_graph=True)
    (dd,) = torch.autograd.grad(d.sum(), t)
    for g, want in zip(got, (e, d, dd), strict=True):
        np.testing.assert_allclose(g, want.detach(), rtol=1e-10)


def test_what_would_happen_twice_is_refused():
    x, seen = ng.placeholder([K]), ng.persistent_tensor([K])
    with pytest.raises(GraphError, match="has effects: assign"):
        ng.checkpoint(lambda x: ng.sequential([ng.assign(seen, x), x * 2]), x)


def test_checkpoints_in_a_loop(compute):
    w, h = ng.placeholder([H, H - 1], dtype="float64"), ng.placeholder([H], dtype="float64")
    values = [R.normal(size=(3, 3)), R.normal(size=3)]
    found = []
    for wrap in (lambda f, *xs: f(*xs), ng.checkpoint):
        last, _ = ng.scan(lambda h, _, wrap=wrap: (wrap(lambda h: ng.tanh(ng.dot(w, h)), h), None), h, None, T)
        found += ng.deriv(ng.sum(last, out_axes=()), [w, h])
    got = compute(found, (w, h), values)
    for a, b in zip(got[:2], got[2:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)
