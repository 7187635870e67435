"""neon costs nothing: a model's training program, after its passes, is that of the same model written with `ng` alone, as text."""

import re

import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.frontends.neon import (
    LSTM,
    Affine,
    Convolution,
    CrossEntropyMulti,
    GlorotInit,
    GradientDescentMomentum,
    LookupTable,
    Pooling,
    Rectlin,
    Sequential,
)
from ngraph.program.text import text

RATE, MOMENTUM = 0.1, 0.9


def axis(length, name):
    return ng.make_axis(length, name=name)


def bare_update(cost):
    """Gradient descent with momentum, as a user of `ng` writes it."""
    total, updates = ng.sum(cost, out_axes=()), []
    for w in cost.variables():
        v = ng.persistent_tensor(w.axes, initial_value=0.0)
        faster = v * MOMENTUM - ng.deriv(total, w) / ng.batch_size(cost) * RATE
        updates += [ng.assign(v, faster), ng.assign(w, w + faster)]
    return ng.sequential([ng.doall(updates), ng.constant(0)])


def steps(cost, update, *inputs):
    """Every line of the program's text, and of bodies in it, without the names and numbers of values; sorted, for independent steps
    stand in any order."""
    made = ngt.make_transformer_factory("numpy")().computation([ng.mean(cost, out_axes=()), update], *inputs, name="train").program
    plain = re.sub(r'%\d+(?: (?:"[^"]*"|[A-Za-z_]\w*))?', "%", text(made, origins=False))
    plain = re.sub(r'(state|state_out) "[^"]*"', r"\1", plain)
    return sorted(re.sub(r"\[([A-Z][\w.', ]*)\]", lambda m: str(sorted(m[1].split(", "))), plain).splitlines())  # axes are a set


def classes(x, t, scores, y):
    return ng.cross_entropy_multi(ng.softmax(scores, [y]), ng.one_hot(t, y), out_axes=[a for a in scores.axes if a != y])


def mlp(neon):
    n, h, w, f, y = axis(32, "N"), axis(28, "H"), axis(28, "W"), axis(100, "F"), axis(10, "Y")
    x, t = ng.placeholder([n, h, w]), ng.placeholder([n], dtype="int32")
    if neon:
        model = Sequential([Affine(GlorotInit(), nout=100, activation=Rectlin()), Affine(GlorotInit(), axes=[y])])
        return CrossEntropyMulti(logits=True)(model(x), t), x, t
    hidden = ng.relu(ng.dot(ng.variable([f, h - 1, w - 1]), x) + ng.variable([f]))
    return classes(x, t, ng.dot(ng.variable([y, f - 1]), hidden) + ng.variable([y]), y), x, t


def cnn(neon):
    n, c, h, w, y = axis(16, "N"), axis(3, "C"), axis(12, "H"), axis(12, "W"), axis(10, "Y")
    x, t = ng.placeholder([n, c, h, w]), ng.placeholder([n], dtype="int32")
    if neon:
        layers = [Convolution((3, 3, k), GlorotInit(), padding=1, bias_init=0.0, activation=Rectlin()) for k in (8, 16)]
        model = Sequential([layers[0], Pooling((2, 2), strides=2), layers[1], Pooling((2, 2), strides=2), Affine(GlorotInit(), axes=[y])])
        return CrossEntropyMulti(logits=True)(model(x), t), x, t
    z = x
    for k in (8, 16):
        channel, out = z.axes[1], axis(k, "K_out")
        r, s = axis(3, "H_filter"), axis(3, "W_filter")
        f = ng.cast_axes(ng.variable([out, channel - 1, r - 1, s - 1]), [out, channel, r, s])
        z = ng.map_roles(ng.conv(z, f, {z.axes[2]: r, z.axes[3]: s}, padding=1), {out: channel.resized(k)})
        z = ng.relu(z + ng.variable([z.axes[1]]))
        z = ng.max_pool(z, {z.axes[2]: 2, z.axes[3]: 2})
    scores = ng.dot(ng.variable([y, *(a - 1 for a in z.axes[1:])]), z) + ng.variable([y])
    return classes(x, t, scores, y), x, t


def lstm(neon):
    n, time, y, f = axis(8, "N"), axis(12, "REC"), axis(30, "Y"), axis(16, "F")
    x, t = ng.placeholder([n, time], dtype="int32"), ng.placeholder([n, time], dtype="int32")
    if neon:
        model = Sequential([LookupTable(30, 16, GlorotInit()), LSTM(16, GlorotInit()), Affine(GlorotInit(), axes=[y])])
        return CrossEntropyMulti(logits=True)(model(x), t), x, t
    rows, gate = axis(30, "vocabulary"), axis(4, "gate")
    z = ng.lookuptable(ng.variable([rows, f]), x, [f, n, time])
    z = ng.dot(ng.variable([gate, f, f - 1]), z) + ng.variable([gate, f])
    inner = ng.variable([gate, f, f - 1])
    zero = ng.broadcast(ng.constant(0.0), [f, n])

    def step(carry, now):
        h, c = carry
        all = now + ng.dot(inner, h)
        i, forget, o = (ng.sigmoid(all[{gate: k}]) for k in range(3))
        c = forget * c + i * ng.tanh(all[{gate: 3}])
        h = o * ng.tanh(c)
        return (h, c), h

    _, out = ng.scan(step, (zero, zero), z, time)
    out = ng.axes_with_order(out, [f, time, n])
    cost = classes(x, t, ng.dot(ng.variable([y, f - 1]), out) + ng.variable([y]), y)
    return ng.sum(ng.mean(cost, reduction_axes=[time]), out_axes=[n]), x, t


@pytest.mark.parametrize("model", [mlp, cnn, lstm], ids=lambda m: m.__name__)
def test_same_program(model):
    cost, *inputs = model(True)
    ours = steps(cost, GradientDescentMomentum(RATE, MOMENTUM)(cost), *inputs)
    cost, *inputs = model(False)
    bare = steps(cost, bare_update(cost), *inputs)
    assert len(ours) > 20 and ours == bare
