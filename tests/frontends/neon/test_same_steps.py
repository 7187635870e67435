"""neon costs nothing: the training programs of the bench's workloads, after their passes, are those of the same models written with `ng`
alone, as text."""

import importlib.util
import os
import re

import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.program.text import text

BENCH = os.path.join(os.path.dirname(__file__), "..", "..", "..", "bench", "neon.py")
spec = importlib.util.spec_from_file_location("bench_neon", BENCH)
bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench)


def axis(length, name):
    return ng.make_axis(length, name=name)


# ---- the models in bare ng ----------------------------------------------------------------------------------------------


def linear(x, *outs, bias=True):
    y = ng.dot(ng.variable([*outs, *(a - 1 for a in x.axes if not a.is_batch and not a.is_recurrent)]), x)
    return y + ng.variable(list(outs)) if bias else y


def conv(x, size, filters, stride=1, padding=0):
    n, channel, h, w = x.axes
    out, r, s = axis(filters, "K_out"), axis(size, "H_filter"), axis(size, "W_filter")
    f = ng.variable([out, channel, r, s])
    return ng.map_roles(ng.conv(x, f, {h: r, w: s}, stride=stride, padding=padding), {out: channel.resized(filters)})


def batch_norm(x, rho=0.9, eps=1e-3):
    n, channel, h, w = x.axes
    gamma, beta = ng.variable([channel], initial_value=1.0), ng.variable([channel], initial_value=0.0)
    means, variances = (ng.persistent_tensor([channel], initial_value=v) for v in (0.0, 1.0))
    mean = ng.mean(x, out_axes=[channel])
    apart = x - mean
    variance = ng.mean(apart * apart, out_axes=[channel])
    kept = [ng.assign(old, old * rho + new * (1 - rho)) for old, new in ((means, mean), (variances, variance))]
    return ng.sequential([*kept, apart * (gamma / ng.sqrt(variance + eps)) + beta])


def unit(x, size, filters, stride=1, active=True):
    y = batch_norm(conv(x, size, filters, stride, size // 2))
    return ng.relu(y) if active else y


def residual(x, neck, filters, stride, first):
    if neck:
        y = unit(unit(unit(x, 1, filters), 3, filters, stride), 1, 4 * filters, active=False)
    else:
        y = unit(unit(x, 3, filters, stride), 3, filters, active=False)
    return ng.relu(y + (unit(x, 1, 4 * filters if neck else filters, stride, active=False) if first else x))


def residual_net(x, y, neck, stages):
    for filters, count, stride in stages:
        for k in range(count):
            x = residual(x, neck, filters, stride if k == 0 else 1, k == 0 and (stride > 1 or neck))
    return linear(ng.mean(x, out_axes=list(x.axes[:2])), y)


def lstm(x, units):
    feature, (time,) = x.axes.feature_axes()[0].resized(units), x.axes.recurrent_axes()
    batch, gate = x.axes.batch_axis(), axis(4, "gate")
    z = ng.axes_with_order(linear(x, gate, feature), [time, batch, gate, feature])
    inner, zero = ng.variable([gate, feature, feature - 1]), ng.broadcast(ng.constant(0.0), [batch, feature])

    def step(carry, now):
        h, c = carry
        all = now + ng.dot(inner, h)
        i, forget, o = (ng.sigmoid(all[{gate: k}]) for k in range(3))
        c = forget * c + i * ng.tanh(all[{gate: 3}])
        h = o * ng.tanh(c)
        return (h, c), h

    return ng.axes_with_order(ng.scan(step, (zero, zero), z, time)[1], [feature, time, batch])


def language(x, y, words, width, units, layers):
    rows, f = axis(words, "vocabulary"), axis(width, "F")
    z = ng.lookuptable(ng.variable([rows, f]), x, [f, *x.axes])
    for _ in range(layers):
        z = lstm(z, units)
    return linear(z, y)


def small_net(x, y):
    for k in (16, 32):
        z = conv(x, 5, k)
        z = ng.relu(z + ng.variable([z.axes[1]]))
        x = ng.max_pool(z, {z.axes[2]: 2, z.axes[3]: 2})
    return linear(ng.relu(linear(x, axis(500, "F"))), y)


def bottom(x):
    z = unit(x, 7, 64, 2)
    return ng.max_pool(z, dict.fromkeys(z.axes[2:], 3), stride=2, padding=1)


BARE = {
    "T1": lambda x, y: linear(x, bias=False),
    "T2": lambda x, y: linear(ng.relu(linear(x, x.axes[1].resized(100))), y),
    "T3": small_net,
    "T4": lambda x, y: language(x, y, 10000, 650, 650, 2),
    "T4c": lambda x, y: language(x, y, 87, 64, 128, 1),
    "T5": lambda x, y: residual_net(unit(x, 3, 16), y, False, [(16, 3, 1), (32, 3, 2), (64, 3, 2)]),
    "T6": lambda x, y: residual_net(bottom(x), y, True, [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]),
}


def bare_training(name, x, t):
    """The cost of each example and its update by gradient descent with momentum, as a user of `ng` writes them."""
    y = axis(bench.CLASSES[name], "Y")
    scores = BARE[name](x, y)
    if name == "T1":
        cost = ng.cross_entropy_binary_inner(ng.sigmoid(scores), t)
    else:
        cost = ng.cross_entropy_multi(ng.softmax(scores, [y]), ng.one_hot(t, y), out_axes=[a for a in scores.axes if a != y])
    time = cost.axes.recurrent_axes()
    if time:
        cost = ng.sum(ng.mean(cost, reduction_axes=time), out_axes=cost.axes.batch_axes())
    rate, momentum = bench.RATES[name]
    total, updates = ng.sum(cost, out_axes=()), []
    for w in cost.variables():
        step = ng.deriv(total, w) / ng.batch_size(cost) * rate
        if momentum:
            v = ng.persistent_tensor(w.axes, initial_value=0.0)
            step = v * momentum - step
            updates += [ng.assign(v, step), ng.assign(w, w + step)]
        else:
            updates.append(ng.assign(w, w - step))
    return cost, ng.sequential([ng.doall(updates), ng.constant(0)])


def steps(cost, update, *inputs):
    """Every line of the program's text, and of bodies in it, without the names and numbers of values; sorted, for independent steps
    stand in any order."""
    made = ngt.make_transformer_factory("numpy")().computation([ng.mean(cost, out_axes=()), update], *inputs, name="train").program
    plain = re.sub(r'%\d+(?: (?:"[^"]*"|[A-Za-z_]\w*))?', "%", text(made, origins=False))
    plain = re.sub(r'(state|state_out) "[^"]*"', r"\1", plain)
    return sorted(re.sub(r"\[([A-Z][\w.', ]*)\]", lambda m: str(sorted(m[1].split(", "))), plain).splitlines())  # axes are a set


@pytest.mark.parametrize("name", bench.ALL)
def test_same_program(name):
    cost, update, x, t = bench.neon_training(name)
    ours = steps(cost, update, x, t)
    assert len(ours) > 10 and ours == steps(*bare_training(name, x, t), x, t)
