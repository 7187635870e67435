"""Small models whose program, passes and generated code are kept as text. Each is a function that gives results and parameters.

The lines of their steps are left out of the text, so that this file may be edited.
"""

import math

import ngraph as ng


def axis(length, name):
    return ng.make_axis(length, name=name)


def descend(loss, rate=0.1):
    """The loss, and a step of gradient descent on all it depends on."""
    return [loss, ng.doall([ng.assign(v, v - rate * ng.deriv(loss, v)) for v in loss.variables()])]


def logistic_regression():
    C, N = axis(4, "C"), axis(128, "N")
    alpha, X, Y = (ng.placeholder(a).named(name) for a, name in (((), "alpha"), ([C, N], "X"), ([N], "Y")))
    W = ng.variable([C - 1], initial_value=0).named("W")
    p = ng.sigmoid(ng.dot(W, X)).named("p")
    loss = (ng.cross_entropy_binary(p, Y, out_axes=()) / ng.batch_size(p)).named("loss")
    return [loss, W, ng.assign(W, W - alpha * ng.deriv(loss, W) / ng.tensor_size(p))], [alpha, X, Y]


def perceptron():
    N, I, H, O = axis(32, "N"), axis(20, "I"), axis(10, "H"), axis(5, "O")
    x, y = ng.placeholder([N, I]).named("x"), ng.placeholder([N], dtype="int32").named("y")
    w1, w2 = ng.variable([I, H]).named("w1"), ng.variable([H, O]).named("w2")
    b1, b2 = ng.variable([H]).named("b1"), ng.variable([O]).named("b2")
    h = ng.relu(ng.dot(x, w1) + b1).named("h")
    z = (ng.dot(h, w2) + b2).named("z")
    return descend(ng.mean(ng.cross_entropy_multi(ng.softmax(z, [O]), ng.one_hot(y, O), out_axes=[N]), out_axes=()).named("loss")), [x, y]


def convolutional_network():
    N, C, H, W = axis(8, "N"), axis(3, "C"), axis(12, "H"), axis(12, "W")
    K, R, S, O = axis(4, "K"), axis(3, "R"), axis(3, "S"), axis(5, "O")
    x, t = ng.placeholder([N, C, H, W]).named("x"), ng.placeholder([N, O]).named("t")
    f = ng.variable([K, C, R, S]).named("f")
    y = ng.max_pool(ng.relu(ng.conv(x, f, {H: R, W: S}, stride=2, padding=1)), {"H": 2, "W": 2}, stride=2).named("y")
    w = ng.variable([*(a - 1 for a in y.axes if a is not y.axes.batch_axis()), O]).named("w")
    return descend(ng.mean(ng.square(ng.dot(w, y) - t), out_axes=()).named("loss")), [x, t]


def attention():
    N, T, D = axis(2, "N"), axis(6, "T"), axis(8, "D")
    S, E = axis(6, "S"), axis(8, "E")
    q, k, v = ng.placeholder([N, T, D]).named("q"), ng.placeholder([N, S, D]).named("k"), ng.placeholder([N, S, E]).named("v")
    scores = (ng.contract(q, k, over=(D,)) * (1 / math.sqrt(8))).named("scores")
    weights = ng.softmax(scores, [S]).named("weights")
    return ng.contract(weights, v, over=(S,)).named("attended"), [q, k, v]


def recurrent_network():
    N, T, I, H = axis(4, "N"), axis(7, "T"), axis(3, "I"), axis(5, "H")
    xs, t = ng.placeholder([T, N, I]).named("xs"), ng.placeholder([N, H]).named("t")
    u, w = ng.variable([H, I - 1]).named("u"), ng.variable([H, H - 1]).named("w")
    last, _ = ng.scan(lambda h, x: (ng.tanh(ng.dot(w, h) + ng.dot(u, x)), None), ng.constant(0.0, [H, N]), xs, T)
    return descend(ng.mean(ng.square(last - t), out_axes=()).named("loss")), [xs, t]


def batch_norm():
    N, C = axis(16, "N"), axis(6, "C")
    x, t = ng.placeholder([N, C]).named("x"), ng.placeholder([N, C]).named("t")
    gamma, beta = ng.variable([C], initial_value=1).named("gamma"), ng.variable([C]).named("beta")
    running = ng.persistent_tensor([C]).named("running_mean")
    mean, variance = ng.mean(x, out_axes=[C]), ng.variance(x, out_axes=[C])
    y = (x - mean) / ng.sqrt(variance + 1e-5) * gamma + beta
    results = descend(ng.mean(ng.square(y - t), out_axes=()).named("loss"))
    return [*results, ng.assign(running, running * 0.9 + mean * 0.1)], [x, t]


def lengths_that_come_later():
    N, T = ng.make_axis(name="N"), ng.make_axis(name="T")
    x = ng.placeholder([N, T]).named("x")
    late = ng.pad(x[:, 1:], [0, (2, 0)]).named("late")
    return [ng.mean(x, out_axes=[N]).named("means"), late, ng.cumsum(late, late.axes[1]).named("sums")], [x]


def state_in_order():
    H = axis(3, "H")
    v, x = ng.persistent_tensor([H], initial_value=1).named("v"), ng.placeholder([H]).named("x")
    before = ng.value_of(v)
    after = ng.sequential([before, ng.assign(v, v * x), ng.assign(v, v + 1), v * 2])
    noise = ng.uniform([H]).named("noise")
    return [before, after, noise, v], [x]


MODELS = {
    f.__name__: f
    for f in (
        logistic_regression,
        perceptron,
        convolutional_network,
        attention,
        recurrent_network,
        batch_norm,
        lengths_that_come_later,
        state_in_order,
    )
}
