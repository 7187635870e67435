"""Random models by the public API: a seed gives one step of training, or of inference, at sizes that fill vectors, tiles and caches.

Layers are drawn one after the other: convolutions of any kind, norms with running statistics, pooling, gates, attention, recurrent cells,
residual sums; then a loss, its gradients, and an optimizer's updates.
"""

from __future__ import annotations

import math

import numpy as np

import ngraph as ng

SIZE, WORK = 120_000, 60_000_000  # elements of a value, multiplications of a layer
WIDTHS = (1, 3, 4, 7, 8, 10, 16, 17, 20, 24, 32, 33, 48, 64, 65, 96, 128)
RATE = 0.01


class Model:
    """A model under construction: `x` is what the next layer takes, `n` the axis of the examples, `space` its spatial axes or its time."""

    def __init__(self, seed: int, dtype: str = "float32"):
        self.random, self.dtype = np.random.default_rng(seed), np.dtype(dtype)
        self.variables: list = []
        self.updates: list = []
        self.made = 0
        self.training = self.chance(0.7)
        self.open = self.chance(0.15)
        self.batch = self.pick((1, 2, 3, 4, 5, 8, 16, 17, 32))
        self.n = ng.make_axis(name="N") if self.open else self.axis(self.batch, "N")

    # choices
    def chance(self, p):
        return self.random.random() < p

    def pick(self, xs):
        return xs[int(self.random.integers(len(xs)))]

    def axis(self, length, name="A"):
        self.made += 1
        return ng.make_axis(int(length), name=f"{name}{self.made}")

    def width(self, rest):
        """The length of a new axis, beside which a value has `rest` elements."""
        return self.pick([w for w in WIDTHS if w * rest * self.batch <= SIZE] or [1])

    def shuffled(self, axes):
        return [axes[k] for k in self.random.permutation(len(axes))] if self.chance(0.3) else list(axes)

    def size(self, axes):
        return math.prod([self.batch if a == self.n else a.length for a in axes])

    # values
    def weight(self, axes, fan=1, around=0.0, trained=True):
        axes = self.shuffled(axes)
        value = around + self.random.normal(size=[a.length for a in axes]) / math.sqrt(fan) * (0.2 if around else 1)
        v = ng.variable(axes, dtype=self.dtype, initial_value=value.astype(self.dtype))
        if trained:
            self.variables.append(v)
        return v

    def data(self, axes):
        return self.random.normal(size=[self.batch if a == self.n else a.length for a in axes]).astype(self.dtype)

    def active(self, x):
        ways = (ng.relu, ng.relu, ng.tanh, ng.sigmoid, ng.gelu, ng.silu, lambda v: ng.minimum(ng.relu(v), 6), lambda v: v)
        return self.pick(ways)(x)


# ---- layers: each takes a model and what the last one gave, and gives its own --------------------------------------------------


def joined(m, x, axes):
    """`x` with axes in one, and that one."""
    x = ng.flatten(x, axes)
    f = m.axis(m.size(axes), "F")
    return ng.cast_axes(x, [f if a not in (m.n, *axes) and a.is_flattened else a for a in x.axes]), f


def conv(m, x, c, space):
    groups, each = (), c
    k = m.axis(m.width(math.prod([a.length for a in space])), "K")
    many = [g for g in (2, 3, 4, 8, c.length) if c.length % g == 0 and g > 1]
    depthwise = False
    if many and m.chance(0.35):
        g, depthwise = m.axis(m.pick(many), "G"), m.chance(0.5)
        each = m.axis(c.length // g.length, "C")
        if depthwise and g.length == c.length:
            k = m.axis(1, "K")
        x = ng.unflatten(x, [b for a in x.axes for b in ((g, each) if a == c else (a,))])
        groups = (g,)
        k = m.axis(max(1, k.length // g.length), "K")
    windows = {a: m.axis(m.pick([w for w in (1, 2, 3, 3, 5, 7) if w <= a.length + 2]), "R") for a in space}
    taps = math.prod([w.length for w in windows.values()])
    stride, dilation = m.pick((1, 1, 1, 2, 3)), m.pick((1, 1, 1, 2))
    padding = m.pick((0, 1, 1, 2))
    reach = {a: a.length + 2 * padding - dilation * (w.length - 1) for a, w in windows.items()}
    if min(reach.values()) < 1:
        stride, dilation, padding = 1, 1, 3
    if m.size(x.axes) * k.length * taps > WORK:
        return None
    f = m.weight([*groups, k, each, *windows.values()], fan=each.length * taps)
    back = not groups and stride > 1 and m.chance(0.2) and m.size(x.axes) * stride ** len(windows) < SIZE
    y = (ng.deconv if back else ng.conv)(x, f, windows, stride=stride, padding=padding, dilation=dilation, groups=groups)
    space = [a for a in y.axes if a.name in {b.name for b in space}]
    if m.chance(0.5):
        y = y + m.weight([*groups, k], fan=4)
    if groups:
        y, k = joined(m, y, [groups[0], k])
    return y, k, space


def dense(m, x, c, space):
    k = m.axis(m.width(m.size([a for a in x.axes if a != c and a != m.n])), "F")
    if m.size(x.axes) * k.length > WORK:
        return None
    y = ng.dot(x, m.weight([c, k], fan=c.length))
    return (y + m.weight([k], fan=4) if m.chance(0.7) else y), k, space


def activation(m, x, c, space):
    return m.active(x), c, space


def batch_norm(m, x, c, space):
    over = [a for a in x.axes if a != c]
    if m.size(over) < 4:
        return None
    gain, shift = m.weight([c], fan=4, around=1), m.weight([c], fan=4)
    if m.training:
        mean, spread = ng.mean(x, over), ng.variance(x, reduction_axes=over)
        for old, new in ((m.weight([c], trained=False), mean), (m.weight([c], around=1, trained=False), spread)):
            m.updates.append(ng.assign(old, old * 0.9 + new * 0.1))
    else:
        mean, spread = m.weight([c], fan=4, trained=False), abs(m.weight([c], around=1, trained=False)) + 0.1
    return (x - mean) / ng.sqrt(spread + 1e-2) * gain + shift, c, space


def layer_norm(m, x, c, space):
    if c.length < 3:
        return None
    away = x - ng.mean(x, [c])
    return away / ng.sqrt(ng.mean(away * away, [c]) + 1e-2) * m.weight([c], fan=4, around=1) + m.weight([c], fan=4), c, space


def pool(m, x, c, space):
    windows = {a: m.pick((2, 3)) for a in space if a.length >= 3}
    if not windows:
        return None
    y = m.pick((ng.max_pool, ng.avg_pool))(x, windows, stride=m.pick((1, 2, 2, 3)), padding=m.pick((0, 0, 1)))
    return y, c, [a for a in y.axes if a.name in {b.name for b in space}]


def gate(m, x, c, space):
    """Squeeze and excite."""
    small = m.axis(max(1, c.length // 4), "S")
    s = ng.relu(ng.dot(ng.mean(x, space), m.weight([c, small], fan=c.length)))
    return x * ng.sigmoid(ng.dot(s, m.weight([small, c], fan=small.length))), c, space


def dropout(m, x, c, space):
    if not m.training or m.open:
        return None
    keep = ng.cast(ng.uniform(axes=x.axes, seed=int(m.random.integers(9))) < 0.7, x.dtype)
    return x * keep / 0.7, c, space


def residual(m, x, c, space):
    """A few layers, and what they took beside what they give."""
    y, k, now = x, c, space
    for _ in range(m.random.integers(1, 4)):
        found = m.pick((conv, batch_norm, activation, dense, layer_norm))(m, y, k, now)
        y, k, now = found or (y, k, now)
    if [a.length for a in now] != [a.length for a in space]:
        return y, k, now
    if set(y.axes) - set(x.axes) - {k}:
        x = ng.cast_axes(x, [b for a in x.axes for b in [next((s for s in now if s.name == a.name), a)]])
    other = x if k == c else ng.dot(x, m.weight([c, k], fan=c.length))
    return m.active(y + other), k, now


def attention(m, x, c, space):
    t = space[0]
    if len(space) != 1 or t.length > 70:
        return None
    heads, deep, u = m.axis(m.pick((1, 2, 3, 4)), "H"), m.axis(m.pick((4, 8, 16, 20)), "D"), m.axis(t.length, "U")
    q, k, v = (ng.dot(x, m.weight([c, heads, deep], fan=c.length)) for _ in range(3))
    k, v = (ng.cast_axes(w, [u if a == t else a for a in w.axes]) for w in (k, v))
    scores = ng.contract(q, k, over=(deep,)) / math.sqrt(deep.length)
    if m.chance(0.5):
        scores = ng.where(ng.greater(ng.iota(u), ng.iota(t)), -1e9, scores)
    y = ng.contract(ng.softmax(scores, [u]), v, over=(u,))
    o = ng.contract(y, m.weight([heads, deep, c], fan=heads.length * deep.length), over=(heads, deep))
    return x + o, c, space


def recurrent(m, x, c, space):
    t = space[0]
    if len(space) != 1 or m.open:
        return None
    kind = m.pick(("lstm", "lstm", "plain", "maxout"))
    h, g = m.axis(m.pick((3, 8, 16, 20, 33, 48)), "H"), m.axis(4, "G")
    h0 = m.axis(h.length, "P")
    zero = ng.constant(np.zeros((m.batch, h.length), m.dtype), [m.n, h])
    if kind == "lstm":
        w, r, b = m.weight([c, g, h], fan=c.length), m.weight([h0, g, h], fan=h.length), m.weight([g, h], fan=4)
        before = m.chance(0.5)
        xs = ng.dot(x, w) + b if before else x

        def step(carry, now):
            out, cell = carry
            z = (now if before else ng.dot(now, w) + b) + ng.dot(ng.cast_axes(out, [m.n, h0]), r)
            i, f, o, new = (ng.tensor_slice(z, [k if a == g else slice(None) for a in z.axes]) for k in range(4))
            cell = ng.sigmoid(f) * cell + ng.sigmoid(i) * ng.tanh(new)
            out = ng.sigmoid(o) * ng.tanh(cell)
            return (ng.axes_with_order(out, [m.n, h]), ng.axes_with_order(cell, [m.n, h])), out

        _, every = ng.scan(step, (zero, zero), xs, t, reverse=m.chance(0.3))
    elif kind == "maxout":
        w, r, s = m.weight([c, g, h], fan=c.length), m.weight([h0, g, h], fan=h.length), m.weight([g, h], fan=4)

        def step(carry, now):
            z = s * ng.tanh(ng.dot(now, w)) + ng.dot(ng.cast_axes(carry, [m.n, h0]), r)
            out = ng.max(z * s + 0.1, reduction_axes=[g])
            return ng.axes_with_order(out, [m.n, h]), out

        _, every = ng.scan(step, zero, x, t, reverse=m.chance(0.3))
    else:
        w, r = m.weight([c, h], fan=c.length), m.weight([h0, h], fan=h.length)

        def step(carry, now):
            out = ng.tanh(ng.dot(now, w) + ng.dot(ng.cast_axes(carry, [m.n, h0]), r))
            return ng.axes_with_order(out, [m.n, h]), out

        _, every = ng.scan(step, zero, x, t, reverse=m.chance(0.3))
    return every, h, space


def whole(m, x, c, space):
    """All axes but the examples' in one."""
    return *joined(m, x, [a for a in x.axes if a != m.n]), []


def maxout(m, x, c, space):
    """The largest of a few affine maps."""
    k, p = m.axis(m.width(m.size([a for a in x.axes if a != c])), "K"), m.axis(m.pick((2, 3, 4)), "P")
    if m.size(x.axes) * k.length * p.length > WORK or m.size(x.axes) // c.length * k.length * p.length > SIZE:
        return None
    y = ng.dot(x, m.weight([c, k, p], fan=c.length)) * m.weight([k, p], fan=1, around=1) + m.weight([k, p], fan=4)
    return m.pick((ng.max, ng.max, ng.min))(y, reduction_axes=[p]), k, space


def pooled(m, x, c, space):
    return (m.pick((ng.mean, ng.max))(x, space) if space else x), c, []


IMAGE = (
    conv,
    conv,
    conv,
    conv,
    batch_norm,
    batch_norm,
    activation,
    activation,
    pool,
    gate,
    dropout,
    residual,
    residual,
    layer_norm,
    maxout,
)
TEXT = (dense, activation, layer_norm, attention, attention, recurrent, recurrent, residual, dropout, conv, maxout)
PLAIN = (dense, dense, maxout, activation, batch_norm, layer_norm, dropout)


def head(m, x, c):
    """A loss over the examples."""
    if m.chance(0.3):
        y = ng.placeholder([m.n, c], dtype=m.dtype)
        return [y], lambda: [m.data([m.n, c])], ng.mean((x - y) * (x - y), out_axes=())
    k = m.axis(m.pick((2, 3, 10, 17, 33)), "Y")
    y = ng.placeholder([m.n], dtype="int32")
    scores = ng.dot(x, m.weight([c, k], fan=c.length)) + m.weight([k], fan=4)
    loss = -ng.sum(ng.log_softmax(scores, [k]) * ng.one_hot(y, k), out_axes=[m.n])
    return [y], lambda: [m.random.integers(0, k.length, m.batch).astype(np.int32)], ng.mean(loss, out_axes=())


def optimizer(m, loss):
    gradients = ng.deriv(loss, m.variables)
    way = m.random.integers(4)
    found = []
    for v, d in zip(m.variables, gradients, strict=True):
        first = ng.variable(v.axes, dtype=m.dtype, initial_value=np.zeros(v.axes.lengths, m.dtype))
        second = ng.variable(v.axes, dtype=m.dtype, initial_value=np.zeros(v.axes.lengths, m.dtype))
        if way == 0:
            found.append(ng.assign(v, v - RATE * d))
        elif way == 1:
            moment = 0.9 * first - RATE * d
            found += [ng.assign(first, moment), ng.assign(v, v + moment)]
        elif way == 2:
            a, b = 0.9 * first + 0.1 * d, 0.99 * second + 0.01 * d * d
            found += [ng.assign(first, a), ng.assign(second, b), ng.assign(v, v - RATE * a / (ng.sqrt(b) + 0.1))]
    if way == 3:
        return gradients, []
    return ([m.pick(gradients)] if gradients and m.chance(0.5) else []), found


def model(seed, dtype="float32"):
    """A model, its holes, a function that draws arguments, its results, and its updates."""
    m = Model(seed, dtype)
    kind = m.pick(("image", "image", "image", "text", "text", "plain"))
    if kind == "image":
        space = [m.axis(m.pick((4, 5, 7, 8, 9, 12, 14, 16, 17, 23, 28, 32)), name) for name in "HW"[: m.pick((1, 2, 2, 2))]]
        c = m.axis(m.width(m.size(space)), "C")
    else:
        space = [m.axis(m.pick((1, 2, 5, 8, 13, 20, 33, 64)), "T")] if kind == "text" else []
        c = m.axis(m.width(m.size(space)), "C")
    if kind == "text" and m.chance(0.5):
        words = m.axis(m.pick((5, 17, 60, 200)), "V")
        hole = ng.placeholder(m.shuffled([m.n, *space]), dtype="int32")
        x = ng.take(m.weight([words, c]), hole, words)
        draw = lambda: m.random.integers(0, words.length, [m.batch if a == m.n else a.length for a in hole.axes]).astype(np.int32)
    else:
        hole = x = ng.placeholder(m.shuffled([m.n, c, *space]), dtype=m.dtype)
        draw = lambda: m.data(hole.axes)
    kept = []
    for _ in range(m.random.integers(2, 9)):
        found = m.pick({"image": IMAGE, "text": TEXT, "plain": PLAIN}[kind])(m, x, c, space)
        if found is not None and m.size(found[0].axes) <= SIZE:
            x, c, space = found
            kept += [x] if m.chance(0.15) else []
    if space:
        x, c, space = m.pick((whole, pooled))(m, x, c, space) if not m.open else pooled(m, x, c, space)
    more, drawn, loss = head(m, x, c)
    results, updates = [loss, *kept[:2]], m.updates
    if m.training:
        shown, stepped = optimizer(m, loss)
        results, updates = [*results, *shown], [*updates, *stepped]
    elif m.chance(0.7):
        results = [x, *kept[:1], loss]
    return m, [hole, *more], lambda: [draw(), *drawn()], results, updates
