"""Optimizers against torch.optim over 50 steps; what is around every rule against formulas."""

import inspect
import pickle

import numpy as np
import pytest
import torch

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.frontends.neon import (
    LAMB,
    Adagrad,
    Adam,
    AdamW,
    Cosine,
    GradientDescentMomentum,
    LookupTable,
    Nadam,
    OneCycle,
    RMSProp,
    Schedule,
    Sequential,
    TiedLinear,
    Warmup,
    clip_gradient_norm,
    clip_gradient_value,
    clip_weight_value,
)

A, B = ng.make_axis(5, name="A"), ng.make_axis(3, name="B")
STEPS = 50
START = np.random.default_rng(1).normal(size=(5, 3))
DATA = np.random.default_rng(2).normal(size=(STEPS, 5, 3))


def ours(optimizer, steps=STEPS, start=START, cost=None, more=()):
    """The weights after each step."""
    w = ng.variable([A, B], dtype="float64", initial_value=start)
    x = ng.placeholder([A, B], dtype="float64")
    cost = ng.sum(ng.square(w * x - 1.0) + ng.sin(w), out_axes=()) if cost is None else cost(w, x)
    with ngt.make_transformer() as t:
        run = t.computation([optimizer(cost), w, *(m() for m in more)], x)
        return [run(DATA[k])[1:] for k in range(steps)]


def torch_weights(make, steps=STEPS):
    w = torch.tensor(START, requires_grad=True)
    rule = make([w])
    for k in range(steps):
        rule.zero_grad()
        ((w * torch.tensor(DATA[k]) - 1) ** 2 + torch.sin(w)).sum().backward()
        rule.step()
        yield w.detach().numpy().copy()


def preset(rule, value):
    """torch.optim.RMSprop with its mean of squares starting at `value`."""
    (w,) = rule.param_groups[0]["params"]
    rule.state[w] = {"step": torch.tensor(0.0), "square_avg": torch.full_like(w, value), "momentum_buffer": torch.zeros_like(w)}
    return rule


O = torch.optim
PAIRS = {
    "sgd": (lambda: GradientDescentMomentum(0.01), lambda p: O.SGD(p, 0.01), 1e-12),
    "momentum": (lambda: GradientDescentMomentum(0.01, 0.9, 0.1), lambda p: O.SGD(p, 0.01, 0.9, weight_decay=0.1), 1e-12),
    "nesterov": (lambda: GradientDescentMomentum(0.01, 0.9, nesterov=True), lambda p: O.SGD(p, 0.01, 0.9, nesterov=True), 1e-12),
    "adam": (lambda: Adam(0.01), lambda p: O.Adam(p, 0.01), 1e-12),
    "adamw": (lambda: AdamW(0.01, wdecay=0.1), lambda p: O.AdamW(p, 0.01, weight_decay=0.1), 1e-12),
    "nadam": (lambda: Nadam(0.01), lambda p: O.NAdam(p, 0.01), 1e-8),  # torch keeps the product of momenta in float32
    "adagrad": (lambda: Adagrad(0.01, epsilon=0.0), lambda p: O.Adagrad(p, 0.01, eps=0.0), 1e-12),
    "rmsprop": (lambda: RMSProp(0.9, 0.01, 1e-30), lambda p: preset(O.RMSprop(p, 0.01, 0.9, 0.0), 1.0), 1e-12),
    "rmsprop_momentum": (
        lambda: RMSProp(0.9, 0.01, 1e-30, momentum_coef=0.5),
        lambda p: preset(O.RMSprop(p, 0.01, 0.9, 0.0, momentum=0.5), 1.0),
        1e-12,
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_fifty_steps_as_torch(name):
    make, theirs, limit = PAIRS[name]
    for (got,), expected in zip(ours(make()), torch_weights(theirs), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=limit)


def test_lamb_follows_its_paper():
    w, m, v = START.copy(), 0, 0
    for k, (got,) in enumerate(ours(LAMB(0.01, wdecay=0.1)), 1):
        g = 2 * DATA[k - 1] * (w * DATA[k - 1] - 1) + np.cos(w)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        step = m / (1 - 0.9**k) / (np.sqrt(v / (1 - 0.999**k)) + 1e-8) + 0.1 * w
        w = w - 0.01 * np.linalg.norm(w) / np.linalg.norm(step) * step
        np.testing.assert_allclose(got, w, atol=1e-7)


def linear(w, x):
    """A cost whose gradient is x, whatever w is."""
    return ng.sum(w * x, out_axes=())


@pytest.mark.parametrize("kind", [GradientDescentMomentum, Adam, RMSProp, Adagrad])
def test_every_optimizer_clips_values_norms_and_weights(kind):
    clipped = ours(kind(learning_rate=0.5, gradient_clip_value=0.3), 5, cost=linear)
    by_hand = ours(kind(learning_rate=0.5), 5, cost=lambda w, x: ng.sum(w * ng.clip(x, -0.3, 0.3), out_axes=()))
    free = ours(kind(learning_rate=0.5), 5, cost=linear)
    np.testing.assert_allclose(clipped, by_hand, atol=1e-12)
    assert np.abs(np.array(clipped) - np.array(free)).max() > 1e-3
    assert np.abs(ours(kind(learning_rate=0.5, weight_clip_value=0.2), 5, cost=linear)).max() <= 0.2
    norms = np.sqrt((DATA[:5] ** 2).sum((1, 2), keepdims=True))
    normed = ours(kind(learning_rate=0.5, gradient_clip_norm=1.0), 5, cost=linear)
    scaled = ours(
        kind(learning_rate=0.5), 5, cost=lambda w, x: ng.sum(w * x / ng.maximum(ng.sqrt(ng.sum(x * x, out_axes=())), 1.0), out_axes=())
    )
    np.testing.assert_allclose(normed, scaled, atol=1e-5)
    assert (norms > 1).all()


def test_bounds_of_elements_and_of_the_norm_together_are_those_of_2017():
    """v - lr * s * clip(g), where s is by the norm of g as it came."""
    both = ours(GradientDescentMomentum(0.5, gradient_clip_norm=1.0, gradient_clip_value=0.3), 3, cost=linear)
    w = START.copy()
    for (got,), g in zip(both, DATA[:3], strict=True):
        w = w - 0.5 * np.clip(g, -0.3, 0.3) / max(np.sqrt((g * g).sum()), 1.0)
        np.testing.assert_allclose(got, w, atol=1e-6)


@pytest.mark.parametrize("momentum, decay", [(0.0, 0.0), (0.9, 0.01)])
def test_rmsprop_of_2017(momentum, decay):
    """Its state begins at 1, and epsilon is within the root."""
    found = ours(RMSProp(0.95, 0.02, 1e-2, momentum_coef=momentum, wdecay=decay), 6, cost=linear)
    w, n, v = START.copy(), np.ones_like(START), np.zeros_like(START)
    for (got,), g in zip(found, DATA[:6], strict=True):
        n = 0.95 * n + 0.05 * g * g
        v = momentum * v - 0.02 * (g / np.sqrt(n + 1e-2) + decay * w)
        w = w + v
        np.testing.assert_allclose(got, w, atol=1e-7)


def test_clipping_functions():
    x = np.array([3.0, -4.0], np.float32)
    p = ng.placeholder([ng.make_axis(2, name="two")])
    t = ngt.make_transformer()
    run = lambda op: t.computation(op, p)(x)
    np.testing.assert_allclose(run(clip_gradient_norm(p, 1.0)), x / 5, rtol=1e-6)
    np.testing.assert_allclose(run(clip_gradient_norm([p, p], 100.0)[1]), x)
    np.testing.assert_allclose(run(clip_gradient_value(p, 3.5)), [3, -3.5])
    np.testing.assert_allclose(run(clip_weight_value(p, 2.0, min_value_override=-1.0)), [2, -1])
    assert clip_gradient_norm(p) is p and clip_gradient_value(p) is p and clip_weight_value(p) is p


def test_gradients_are_divided_by_the_batch():
    n = ng.make_axis(4, name="N")
    w, x = ng.variable((), initial_value=1.0), ng.placeholder([n])
    t = ngt.make_transformer()
    run = t.computation([GradientDescentMomentum(1.0)(w * x), w], x)
    assert run(np.array([1, 2, 3, 6.0]))[1] == 1 - 3


def test_accumulation_is_one_step_of_the_mean():
    got = ours(Adam(0.01, accumulate=5))
    w, m, v, sums = START.copy(), 0, 0, 0
    for k in range(STEPS):
        sums = sums + 2 * DATA[k] * (w * DATA[k] - 1) + np.cos(w)
        if k % 5 == 4:
            g, t, sums = sums / 5, k // 5 + 1, 0
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            w = w - 0.01 * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(got[k][0], w, atol=1e-10)


def test_averages_and_lookahead():
    optimizer = GradientDescentMomentum(0.01, ema_decay=0.9)
    w = ng.variable([A, B], dtype="float64", initial_value=START)
    x = ng.placeholder([A, B], dtype="float64")
    t = ngt.make_transformer()
    update = optimizer(linear(w, x))
    run = t.computation([update, w, optimizer.averages[w]], x)
    mean = None
    for k in range(10):
        _, value, average = run(DATA[k])
        decay = min(0.9, k / (10 + k))
        mean = value if mean is None else decay * mean + (1 - decay) * value
        np.testing.assert_allclose(average, mean, atol=1e-7)
    got = ours(GradientDescentMomentum(0.1, lookahead=(3, 0.5)), 9, cost=linear)
    fast, slow = START.copy(), START.copy()
    for k in range(9):
        fast = fast - 0.1 * DATA[k]
        if k % 3 == 2:
            slow = slow + 0.5 * (fast - slow)
            fast = slow
        np.testing.assert_allclose(got[k][0], fast, atol=1e-7)


def test_dynamic_loss_scale_leaves_bad_steps_out():
    optimizer = GradientDescentMomentum(0.1, loss_scale="dynamic")
    w, x = ng.variable((), initial_value=1.0), ng.placeholder(())
    t = ngt.make_transformer()
    run = t.computation([optimizer(w * x), w], x)
    scale = next(s for s in optimizer.states if s.hint == "loss_scale")
    assert run(2.0)[1] == pytest.approx(0.8)
    assert run(np.inf)[1] == pytest.approx(0.8) and t.get(scale) == 2.0**14
    assert run(2.0)[1] == pytest.approx(0.6)


RULES = {
    "fixed": ({"base_lr": 0.5}, lambda t: 0.5),
    "step": ({"base_lr": 0.5, "gamma": 0.1, "step": 3}, lambda t: 0.5 * 0.1 ** (t // 3)),
    "schedule": (
        {"base_lr": 0.5, "gamma": [0.1, 0.5], "schedule": [2, 6]},
        lambda t: 0.5 * (0.1 if t >= 2 else 1) * (0.5 if t >= 6 else 1),
    ),
    "exp": ({"base_lr": 0.5, "gamma": 0.9}, lambda t: 0.5 * 0.9**t),
    "inv": ({"base_lr": 0.5, "gamma": 0.1, "power": 0.75}, lambda t: 0.5 * (1 + 0.1 * t) ** -0.75),
    "poly": ({"base_lr": 0.5, "max_iter": 8, "power": 2}, lambda t: 0.5 * (1 - min(t / 8, 1)) ** 2),
    "sigmoid": ({"base_lr": 0.5, "gamma": -0.3, "step_size": 4}, lambda t: 0.5 / (1 + np.exp(0.3 * (t - 4)))),
    "warmup": ({"base_lr": 0.5, "warmup": 4}, lambda t: 0.5 * min((t + 1) / 4, 1)),
    "change": ({"base_lr": 0.5, "step_config": 3, "change": 0.1}, lambda t: 0.5 * 0.1 ** (t // 3)),
    "cosine": ({"base_lr": 0.5, "steps": 9}, lambda t: 0.25 * (1 + np.cos(np.pi * min(t / 9, 1)))),
}


@pytest.mark.parametrize("name", RULES)
def test_policies(name):
    numbers, expected = RULES[name]
    given = {"name": name, **numbers}
    before = repr(given)
    t = ng.placeholder(())
    made = GradientDescentMomentum(given).schedule
    rate = ngt.make_transformer().computation(made(t), t)
    for k in range(12):
        np.testing.assert_allclose(rate(k), expected(k), rtol=2e-6, atol=1e-7)
    assert repr(given) == before


def test_schedules_end_where_they_say():
    t = ng.placeholder(())
    transformer = ngt.make_transformer()
    rate = lambda s, k: float(transformer.computation(s(t), t)(k))
    cycle = OneCycle(1.0, 100)
    assert rate(cycle, 0) == pytest.approx(1 / 25, rel=0.02) and rate(cycle, 29) == pytest.approx(1, rel=1e-3)
    assert rate(cycle, 99) < 1e-4
    cosine = Cosine(1.0, 100, warmup=10, final=0.1)
    assert rate(cosine, 0) == pytest.approx(0.1) and rate(cosine, 10) == pytest.approx(1) and rate(cosine, 100) == pytest.approx(0.1)
    assert rate(Warmup(2.0, 4), 7) == 2
    with pytest.raises(ValueError, match="no learning-rate policy 'stairs'"):
        Schedule("stairs")
    with pytest.raises(ValueError, match="gamma"):
        Schedule("exp", base_lr=1.0)


def test_the_schedule_of_2016():
    """Factors at steps, or rates from steps on; as an option beside a number."""
    w = ng.variable((), initial_value=0.0)
    for schedule, rates in (
        (Schedule([1, 3], 0.5), [1, 0.5, 0.5, 0.25]),
        (Schedule(2, 0.5), [1, 1, 0.5, 0.5]),
        (Schedule(step_config=[1, 3], change=[0.3, 0.2]), [1, 0.3, 0.3, 0.2]),
        (Schedule(), [1, 1, 1, 1]),
    ):
        run = ngt.make_transformer().computation([GradientDescentMomentum(1.0, schedule=schedule)(w * 1.0), w])
        steps = np.diff([0.0, *(float(run()[1]) for _ in range(4))])
        np.testing.assert_allclose(-steps, rates, rtol=1e-6)
    with pytest.raises(ValueError, match="1 changes for 2 steps"):
        Schedule([1, 3], [0.5])


def test_a_schedule_goes_by_updates_or_by_what_is_given():
    given = ng.placeholder(())
    for iteration, feed in ((0, ()), (given, (given,))):
        optimizer = GradientDescentMomentum({"name": "step", "base_lr": 1.0, "gamma": 0.5, "step": 2}, iteration=iteration)
        w = ng.variable((), initial_value=0.0)
        run = ngt.make_transformer().computation([optimizer(w * 1.0), w], *feed)
        assert [float(run(*([k] if feed else []))[1]) for k in range(4)] == [-1.0, -2.0, -2.5, -3.0]
    rate = ng.placeholder(())
    w = ng.variable((), initial_value=0.0)
    run = ngt.make_transformer().computation([GradientDescentMomentum({"name": "provided", "lr_placeholder": rate})(w * 1.0), w], rate)
    assert run(0.25)[1] == -0.25


def test_choice_of_variables_and_errors():
    u, v = ng.variable((), initial_value=1.0).named("u"), ng.variable((), initial_value=1.0).named("v")
    t = ngt.make_transformer()
    run = t.computation([GradientDescentMomentum(0.1)(u * v, variables=[u]), u, v])
    assert [float(a) for a in run()[1:]] == [pytest.approx(0.9), 1.0]
    with pytest.raises(ng.NgraphError, match="does not depend on v"):
        GradientDescentMomentum(0.1)(u * 2.0, variables=[v])
    with pytest.raises(ng.NgraphError, match="no trainable variable"):
        GradientDescentMomentum(0.1)(ng.placeholder(()) * 2.0)
    with pytest.raises(TypeError, match="Adam has no argument momentum"):
        Adam(momentum=0.9)


def test_optimizers_and_models_that_no_graph_has_are_pickled():
    for made in (Adam(learning_rate=1e-3), GradientDescentMomentum({"name": "cosine", "base_lr": 0.1, "steps": 9}, 0.9)):
        again = pickle.loads(pickle.dumps(made))
        assert repr(again) == repr(made)
    table = LookupTable(7, 4, ng.UniformInit(-1, 1))
    model = pickle.loads(pickle.dumps(Sequential([table, TiedLinear(table)])))
    first, last = model.layers
    assert last.tied() is first


def test_signatures_name_the_arguments_of_base_classes():
    """As `help` and completion show them; that of an object is the signature of its call."""
    assert list(inspect.signature(Adam).parameters)[:4] == ["learning_rate", "beta_1", "beta_2", "epsilon"]
    assert {"accumulate", "ema_decay", "rate_factors", "loss_scale"} <= set(inspect.signature(Adam).parameters)
    assert "options" not in inspect.signature(Adam).parameters
    assert list(inspect.signature(Adam(0.1)).parameters)[0] == "cost_func"

    class Own(Adam):
        def __init__(self, factor=2.0, **options):
            super().__init__(**options)

    assert list(inspect.signature(Own).parameters)[0] == "factor" and "beta_1" in inspect.signature(Own).parameters
