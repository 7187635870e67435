"""Attention, log_softmax, logsumexp and activations against PyTorch; clip, top_k, nonzero, scatter_add against PyTorch and NumPy."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import AxisError

N, H, T, S, D, E = (ng.make_axis(n, name=a) for n, a in ((2, "N"), (3, "H"), (5, "T"), (6, "S"), (4, "D"), (7, "E")))
R = np.random.default_rng(0)


@pytest.fixture(params=["direct", "numpy", "cpu"])
def compute(request):
    def run(ops, parameters=(), values=()):
        with ngt.make_transformer_factory(request.param)() as transformer:
            return transformer.computation(ops, *parameters)(*values)

    return run


def torches(*values):
    return [torch.tensor(v, requires_grad=True) for v in values]


def against_torch(compute, made, expected, inputs, values, tensors, atol=1e-12):
    """Value and all gradients of a weighted sum."""
    weights = R.normal(size=made.axes.lengths)
    loss = ng.sum(made * ng.constant(weights, made.axes), out_axes=())
    got = compute([made, *ng.deriv(loss, list(inputs))], inputs, values)
    (expected * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(got[0], expected.detach(), atol=atol)
    for g, t in zip(got[1:], tensors, strict=True):
        np.testing.assert_allclose(g, t.grad, rtol=1e-9, atol=atol)


ATTENTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "bool mask": {"mask": "bool"},
    "float mask": {"mask": "float"},
    "causal with a mask": {"causal": True, "mask": "bool"},
    "scale": {"scale": 0.3},
}


@pytest.mark.parametrize("case", ATTENTIONS)
def test_attention_is_that_of_torch(compute, case):
    said = dict(ATTENTIONS[case])
    axes = [(N, H, T, D), (N, H, S, D), (N, H, S, E)]
    q, k, v = (ng.placeholder(a, dtype="float64") for a in axes)
    values = [R.normal(size=[len(x) for x in a]) for a in axes]
    allowed = R.random((5, 6)) < 0.6
    allowed[:, 0] = True
    mask, torch_mask = None, None
    if said.get("mask") == "bool":
        mask, torch_mask = ng.constant(allowed, [T, S]), torch.tensor(allowed)
    if said.get("mask") == "float":
        added = R.normal(size=(3, 5, 6))
        mask, torch_mask = ng.constant(added.transpose(2, 0, 1), [S, H, T]), torch.tensor(added)
    if said.get("causal"):
        lower = torch.ones(5, 6, dtype=torch.bool).tril()
        torch_mask = lower if torch_mask is None else lower & torch_mask
    said["mask"] = mask
    made = ng.attention(q, k, v, features=D, queries=T, keys=S, **said)
    tensors = torches(*values)
    expected = F.scaled_dot_product_attention(*tensors, attn_mask=torch_mask, scale=said.get("scale"))
    assert made.axes == (N, H, T, E)
    against_torch(compute, made, expected, (q, k, v), values, tensors)


def test_self_attention_with_one_axis_for_queries_and_keys(compute):
    q, k, v = (ng.placeholder([N, T, H, D], dtype="float64") for _ in range(3))
    values = [R.normal(size=(2, 5, 3, 4)) for _ in range(3)]
    allowed = np.tril(R.random((5, 5)) < 0.7) | np.eye(5, dtype=bool)
    for mask, causal in ((None, True), (ng.constant(allowed, [T, T - 1]), False)):
        made = ng.attention(q, k, v, features="D", queries="T", causal=causal, mask=mask, out_axes=[N, T, H, D])
        tensors = torches(*values)
        heads = [t.transpose(1, 2) for t in tensors]
        expected = F.scaled_dot_product_attention(*heads, is_causal=causal, attn_mask=None if mask is None else torch.tensor(allowed))
        against_torch(compute, made, expected.transpose(1, 2), (q, k, v), values, tensors)


def test_grouped_heads_share_keys(compute):
    G = ng.make_axis(3, name="G")
    q, k, v = (ng.placeholder(a, dtype="float64") for a in ((H, G, T, D), (H, S, D), (H, S, E)))
    values = [R.normal(size=s) for s in ((3, 3, 5, 4), (3, 6, 4), (3, 6, 7))]
    made = ng.attention(q, k, v, features=D, queries=T, keys=S)
    tensors = torches(*values)
    expected = F.scaled_dot_product_attention(tensors[0], tensors[1][:, None], tensors[2][:, None])
    against_torch(compute, made, expected, (q, k, v), values, tensors)


def test_a_query_that_may_look_nowhere_gives_zeros_and_no_slope(compute):
    q, k, v = (ng.placeholder(a, dtype="float64") for a in ((T, D), (S, D), (S, E)))
    allowed = np.ones((5, 6), bool)
    allowed[2] = False
    made = ng.attention(q, k, v, features=D, queries=T, keys=S, mask=ng.constant(allowed, [T, S]))
    values = [R.normal(size=s) for s in ((5, 4), (6, 4), (6, 7))]
    out, *slopes = compute([made, *ng.deriv(ng.sum(made * made, out_axes=()), [q, k, v])], (q, k, v), values)
    assert not out[2].any() and not slopes[0][2].any() and all(np.isfinite(s).all() for s in slopes)


def test_attention_says_what_is_wrong():
    q, k = ng.placeholder([T, D]), ng.placeholder([S, D])
    with pytest.raises(AxisError, match="E is not an axis"):
        ng.attention(q, k, k, features=E, queries=T, keys=S)
    with pytest.raises(AxisError, match="q has the keys' axis"):
        ng.attention(ng.placeholder([T, S, D]), k, k, features=D, queries=T, keys=S)
    with pytest.raises(AxisError, match="the mask has"):
        ng.attention(q, k, k, features=D, queries=T, keys=S, mask=ng.placeholder([E]))


def test_log_softmax_and_logsumexp(compute):
    x, v = ng.placeholder([H, T], dtype="float64"), R.normal(size=(3, 5)) * 300
    for made, expected in (
        (ng.log_softmax(x, normalization_axes=[T]), lambda t: F.log_softmax(t, 1)),
        (ng.logsumexp(x, reduction_axes=[H]), lambda t: torch.logsumexp(t, 0)),
        (ng.logsumexp(x), lambda t: torch.logsumexp(t, (0, 1))),
    ):
        tensors = torches(v)
        against_torch(compute, made, expected(*tensors), [x], [v], tensors)
    edges = np.array([[-np.inf] * 5, [np.inf, 1, 2, 3, 4], [-np.inf, 1, 2, 3, 4]])
    got = compute(ng.logsumexp(x, reduction_axes=[T]), [x], [edges])
    np.testing.assert_allclose(got, torch.logsumexp(torch.tensor(edges), 1))


@pytest.mark.parametrize("low", [-3, -40])
def test_activations(compute, low):
    x, v = ng.placeholder([T, S], dtype="float64"), np.linspace(low, -low + 0.1, 30).reshape(5, 6)
    for made, expected in (
        (ng.gelu(x), F.gelu),
        (ng.gelu(x, approximate=True), lambda t: F.gelu(t, approximate="tanh")),
        (ng.silu(x), F.silu),
        (ng.softplus(x), lambda t: F.softplus(t, threshold=100)),
        (ng.elu(x, 0.7), lambda t: F.elu(t, 0.7)),
        (ng.clip(x, -1, 2), lambda t: t.clamp(-1, 2)),
        (ng.clip(x, high=0.25), lambda t: t.clamp(max=0.25)),
        (ng.clip(x, low=0.25), lambda t: t.clamp(min=0.25)),
    ):
        tensors = torches(v)
        against_torch(compute, made, expected(*tensors), [x], [v], tensors, atol=1e-11)


def test_clip_has_its_slope_on_the_bounds_and_gives_it_to_them(compute):
    x, low, high = ng.placeholder([S], dtype="float64"), ng.placeholder((), dtype="float64"), ng.placeholder([S], dtype="float64")
    values = [np.array([-2.0, -1, 0, 1, 2, np.nan]), np.array(-1.0), np.array([1.0, 1, -0.5, 1, 1, 1])]
    tensors = torches(*values)
    against_torch(compute, ng.clip(x, low, high), torch.clamp(*tensors), (x, low, high), values, tensors)
    whole = ng.placeholder([S], dtype="int32")
    np.testing.assert_array_equal(compute(ng.clip(whole, 1, 3), [whole], [np.arange(6)]), np.clip(np.arange(6), 1, 3))
    assert ng.clip(whole, 1).dtype is ng.int32


@pytest.mark.parametrize("largest", [True, False])
def test_top_k_and_its_gradient(compute, largest):
    x, v = ng.placeholder([T, S], dtype="float64"), R.normal(size=(5, 6))
    values, indices = ng.top_k(x, S, 3, largest)
    assert values.axes == (T, S) and values.axes[1].length == 3 and indices.dtype is ng.int32
    (tensor,) = torches(v)
    expected, places = torch.topk(tensor, 3, largest=largest)
    against_torch(compute, values, expected, [x], [v], [tensor])
    np.testing.assert_array_equal(compute(indices, [x], [v]), places)
    best = ng.make_axis(2, name="best")
    assert ng.top_k(x, "T", best)[0].axes == (best, S)
    again = ng.take(ng.map_roles(x, {S: "S2"}), ng.map_roles(indices, {S: "best"}), "S2")
    np.testing.assert_allclose(compute(again, [x], [v]), expected.detach())
    with pytest.raises(AxisError, match="ask for at most"):
        ng.top_k(x, S, 7)


def test_lengths_may_come_with_the_call(compute):
    L, v = ng.make_axis(name="L"), np.array([3.0, 1, 0, 2])
    x = ng.placeholder([L], dtype="float64")
    (values, where), (found,) = ng.top_k(x, L, 2), ng.nonzero(x)
    slope = ng.deriv(ng.sum(values * values, out_axes=()), x)
    again = ng.checkpoint(lambda x: ng.sin(x) * x, x)
    back = ng.deriv(ng.sum(again, out_axes=()), x)
    got = compute([values, where, slope, found, again, back], [x], [v])
    for g, e in zip(got, ([3, 2], [0, 3], [6, 0, 0, 4], [0, 1, 3], np.sin(v) * v, np.sin(v) + v * np.cos(v)), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-12)
    q = ng.placeholder([L, D], dtype="float64")
    made = ng.attention(q, q, q, features=D, queries=L, causal=True)
    for n in (2, 6):
        w = R.normal(size=(n, 4))
        expected = F.scaled_dot_product_attention(*[torch.tensor(w)] * 3, is_causal=True)
        np.testing.assert_allclose(compute(made, [q], [w]), expected, rtol=1e-12)


def test_what_was_found_may_be_computed_with_in_a_loop(compute):
    """A body may have an axis whose length the program around it computes."""
    x, v = ng.placeholder([T, S], dtype="float64"), R.normal(size=(5, 6))
    i, j = ng.nonzero(ng.greater(x, 0.0), name="P")
    chosen = ng.gather(x, i, j, axes=(T, S), mode="clip")
    trips = ng.make_axis(3, name="trips")
    last, _ = ng.scan(lambda c, _: (c * chosen, None), chosen, None, trips)
    again = ng.checkpoint(lambda c: ng.sin(c) * c, chosen)
    slopes = [ng.deriv(ng.sum(y, out_axes=()), x) for y in (last, again)]
    got = compute([last, again, *slopes], [x], [v])
    p = v[v > 0]
    for g, e in zip(got[:2], (p**4, np.sin(p) * p), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-12)
    for g, e in zip(got[2:], (4 * v**3, np.sin(v) + v * np.cos(v)), strict=True):
        np.testing.assert_allclose(g, np.where(v > 0, e, 0), rtol=1e-12)


def test_of_equal_elements_top_k_takes_the_first():
    x = ng.placeholder([S])
    with ngt.make_transformer() as t:
        values, indices = t.computation(list(ng.top_k(x, S, 6)), x)([1, 3, np.nan, 3, 1, 2])
    np.testing.assert_array_equal(indices, [1, 3, 5, 0, 4, 2])
    np.testing.assert_array_equal(values, [3, 3, 2, 1, 1, np.nan])


@pytest.mark.parametrize("axes", [(T,), (T, S), (N, T, S)])
def test_nonzero_is_that_of_numpy(compute, axes):
    x = ng.placeholder(axes)
    for share in (0.0, 0.4, 1.0):
        v = R.normal(size=[len(a) for a in axes]) * (R.random([len(a) for a in axes]) < share)
        got = compute(list(ng.nonzero(x, name="found")), [x], [v])
        for g, e in zip(got, np.nonzero(v), strict=True):
            np.testing.assert_array_equal(g, e)
            assert g.dtype == np.int32


def test_what_nonzero_found_can_be_turned_around(compute):
    x = ng.placeholder([S])
    (found,) = ng.nonzero(x)
    value = np.where(np.arange(S.length) % 2, 1.0, 0.0)
    back = ng.flip(found, found.axes)
    got = compute([back, ng.pad(back, [1])], [x], [value])
    assert got[0].tolist() == np.nonzero(value)[0][::-1].tolist() and got[1].tolist() == [0, *got[0], 0]


def test_what_nonzero_found_can_be_searched(compute):
    """The place of the smallest, in a length that only a step knows, is an index in the same kernel."""
    x = ng.placeholder([S], dtype="int32")
    (found,) = ng.nonzero(x)
    least = ng.argmin(ng.mod(found, 2), reduction_axes=found.axes)
    got = compute([ng.take(found, least, found.axes[0], mode=m) for m in ("clip", "fill", "wrap")], [x], [[1, 1, 0, 0, 1, 1]])
    assert got == (0, 0, 0)
    got = compute([ng.take(found, least, found.axes[0], mode=m) for m in ("clip", "fill", "wrap")], [x], [[0, 1, 1, 0, 1, 1]])
    assert got == (2, 2, 2)


def test_elements_found_by_nonzero_can_be_computed_with(compute):
    x, v = ng.placeholder([T, S], dtype="float64"), R.normal(size=(5, 6))
    i, j = ng.nonzero(ng.greater(x, 0.0), name="P")
    chosen = ng.gather(x, i, j, axes=(T, S), mode="clip")
    got, total = compute([chosen, ng.sum(chosen, out_axes=())], [x], [v])
    np.testing.assert_array_equal(got, v[v > 0])
    np.testing.assert_allclose(total, v[v > 0].sum())
    with pytest.raises(AxisError, match="without axes"):
        ng.nonzero(ng.placeholder(()))


def test_scatter_add_adds_at_equal_positions(compute):
    x, u, i = ng.placeholder([T, S], dtype="float64"), ng.placeholder([N, S], dtype="float64"), ng.placeholder([N], dtype="int32")
    values = [R.normal(size=(5, 6)), R.normal(size=(2, 6))]
    tensors = torches(*values)
    made = ng.scatter_add(x, i, u, T)
    expected = tensors[0].index_add(0, torch.tensor([3, 3]), tensors[1])
    weights = R.normal(size=(5, 6))
    loss = ng.sum(made * ng.constant(weights, made.axes), out_axes=())
    got = compute([made, *ng.deriv(loss, [x, u])], [x, u, i], [*values, [3, 3]])
    (expected * torch.tensor(weights)).sum().backward()
    for g, e in zip(got, (expected.detach(), tensors[0].grad, tensors[1].grad), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-12)
