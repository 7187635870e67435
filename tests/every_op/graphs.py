"""Random op-graphs by the public API: a seed gives a graph, what it is fed, and calls with other lengths.

`exact` graphs compute with small whole numbers, in which arithmetic is exact: results can be compared bit by bit. The others are made of
functions under which errors of rounding stay small.
"""

from __future__ import annotations

import numpy as np

import ngraph as ng
from ngraph.errors import NgraphError
from ngraph.op_graph.dtypes import as_dtype

LENGTHS, ODDS = (0, 1, 2, 3, 5, 8, 16, 17, 33, 64, 129), (0.02, 0.05, 0.1, 0.15, 0.1, 0.1, 0.1, 0.15, 0.1, 0.05, 0.08)
DTYPES = ("float64", "int32", "int64", "int8", "uint8", "int16", "uint16", "uint32", "uint64", "bool", "float16", "bfloat16")
LARGE = 20_000  # elements of a value


class Unfit(Exception):
    """There is no value that an op could take."""


class Graph:
    """A graph under construction: `values` are what ops may take, `holes` the parameters, `state` the variables."""

    def __init__(self, seed, exact):
        self.random, self.exact = np.random.default_rng(seed), exact
        self.axes, self.open, self.holes, self.state, self.values = [], {}, [], [], []
        for name in "ABCD"[: self.random.integers(2, 5)]:
            length = self.length()
            axis = ng.make_axis(name=name) if self.chance(0.25) else ng.make_axis(length, name=name)
            self.axes.append(axis)
            if axis.length is None:
                self.open[axis] = length
        others = DTYPES if exact else ("float32", "float64")
        for _ in range(self.random.integers(1, 4)):
            hole = ng.placeholder(self.some(3), dtype=self.pick(("float32", self.pick(others))))
            self.holes.append(hole)
            self.values.append(hole)

    # choices
    def chance(self, p):
        return self.random.random() < p

    def pick(self, xs):
        return xs[int(self.random.integers(len(xs)))]

    def length(self):
        return int(self.random.choice(LENGTHS, p=ODDS))

    def some(self, most):
        """A few axes, in any order, of which a value is not too large."""
        found, size = [], 1
        for k in self.random.permutation(len(self.axes))[: self.random.integers(0, most + 1)]:
            size *= max(self.size(self.axes[k]), 1)
            found += [self.axes[k]] if size <= LARGE else []
        return found

    def size(self, axis):
        return self.open.get(axis, 8) if axis.length is None else axis.length

    def take(self, test=lambda v: True):
        """One of the latest values that fit."""
        fitting = [v for v in self.values if test(v)][-6:]
        if not fitting:
            raise Unfit
        return self.pick(fitting)

    def number(self):
        return self.take(lambda v: v.dtype.kind != "bool" if self.exact else v.dtype.is_float)

    def wide(self, known=False):
        return self.take(
            lambda v: v.axes and (v.dtype.kind != "bool" if self.exact else v.dtype.is_float) and not (known and None in v.axes.lengths)
        )

    def like(self, x):
        return self.take(lambda v: v.dtype is x.dtype)

    def alike(self, x):
        return self.take(lambda v: v.dtype is x.dtype and set(map(str, v.axes)) == set(map(str, x.axes)))

    def part(self, axes):
        return [a for a in axes if self.chance(0.5)]

    def fresh(self, *lengths):
        return ng.make_axis(int(self.pick(lengths)), name=f"Q{len(self.values)}_{self.random.integers(1000)}")

    def data(self, shape, dtype):
        d = as_dtype(dtype)
        if d.kind == "bool":
            return self.random.random(shape) < 0.5
        if self.exact:
            return self.random.integers(0 if d.name.startswith("uint") else -3, 4, shape).astype(d.np)
        return self.random.uniform(-1.5, 1.5, shape).astype(d.np)

    def weights(self, axes, dtype):
        value = self.data([a.length for a in axes], dtype)
        if self.chance(0.4):
            return ng.constant(value, axes)
        self.state.append(made := ng.variable(axes, dtype=dtype, initial_value=value))
        return made

    def small(self, x):
        """A sum of several values, as large as one of them."""
        return x if self.exact else x * 0.1

    # a call
    def arguments(self):
        return [self.data([self.size(a) for a in h.axes], h.dtype) for h in self.holes]

    def other_lengths(self):
        for axis in self.open:
            self.open[axis] = self.length()
        for h in self.holes:
            if np.prod([max(self.size(a), 1) for a in h.axes]) > LARGE:
                self.open.update({a: 3 for a in h.axes if a in self.open})


# ---- the ops: each takes values of a graph and gives new ones ----------------------------------------------------------------

EXACT = (abs, ng.negative, ng.floor, ng.rounded, ng.sign, ng.relu, ng.square)
SMOOTH = (ng.tanh, ng.sigmoid, ng.sin, ng.cos, ng.gelu, ng.erf, ng.atan, ng.softplus, ng.relu, ng.silu, ng.elu, lambda x: x / (1 + abs(x)))
PAIRS = (ng.add, ng.subtract, ng.multiply, ng.maximum, ng.minimum)


def unary(g):
    return g.pick(EXACT if g.exact else SMOOTH)(g.number())


def binary(g):
    x = g.number()
    return g.pick(PAIRS)(x, g.like(x))


def choice(g):
    x = g.number()
    y = g.like(x)
    test = ng.less(x, y) if g.exact else ng.less(ng.iota(g.pick(g.axes)), int(g.random.integers(9)))
    return [test, ng.where(test, x, y)] if g.exact else ng.where(test, x, y)


def cast(g):
    return ng.cast(g.take(), g.pick(("float32", *DTYPES))) if g.exact else ng.cast(g.number(), g.pick(("float32", "float64")))


def reduction(g):
    x = g.number()
    kinds = (ng.sum, ng.max, ng.min) if g.exact else (lambda *a: g.small(ng.sum(*a)), ng.mean, ng.max, ng.variance)
    return g.pick(kinds)(x, g.part(x.axes))


def place(g):
    x = g.wide()
    return g.pick((ng.argmax, ng.argmin))(x, reduction_axes=g.part(x.axes) or [x.axes[0]])


def normalized(g):
    x = g.wide()
    a = g.part(x.axes) or [x.axes[0]]
    away = x - ng.mean(x, a)
    return g.pick((lambda: ng.softmax(x, a), lambda: ng.log_softmax(x, a), lambda: away / ng.sqrt(ng.mean(ng.square(away), a) + 0.1)))()


def product(g):
    x = g.number()
    y = g.like(x)
    every = list(dict.fromkeys([*x.axes, *y.axes]))
    if np.prod([max(g.size(a), 1) for a in every]) > 10 * LARGE:
        raise Unfit
    return g.small(ng.contract(x, y, over=tuple(g.part(every)), accumulate=x.dtype))


def layer(g):
    x = g.wide()
    a = g.pick(x.axes)
    if a.length is None or not x.dtype.is_float:
        raise Unfit
    width = g.fresh(1, 2, 7, 8, 16, 17, 33, 65)
    return g.small(ng.dot(x, g.weights(g.pick(([a, width], [width, a])), x.dtype)))


def convolution(g):
    n, c, k, group = g.fresh(1, 2, 3), g.fresh(1, 3, 5, 16, 17), g.fresh(1, 4, 16, 20), g.fresh(2, 3)
    many = int(g.random.integers(1, 3))
    space, window = [g.fresh(1, 4, 7, 9, 16, 17) for _ in range(many)], [g.fresh(1, 2, 3, 5) for _ in range(many)]
    groups = (group,) if g.chance(0.25) else ()
    axes = [n, c, *space, *groups]
    x = ng.placeholder([axes[m] for m in g.random.permutation(len(axes))], dtype=g.pick(("float32", "float32", "float64")))
    f = ng.placeholder([*groups, k, c, *window], dtype=x.dtype)
    how = {"stride": g.pick((1, 1, 2, 3)), "padding": g.pick((0, 1, 2)), "dilation": g.pick((1, 1, 2)), "groups": groups}
    y = g.pick((ng.conv, ng.conv, ng.deconv))(x, f, dict(zip(space, window, strict=True)), **how)
    g.holes += [x, f]
    found = [g.small(y)]
    if g.chance(0.4):
        found += [g.small(d) for d in ng.deriv(ng.sum(y * 2 if g.exact else y * y, out_axes=()), [x, f])]
    return found


def pooling(g):
    x = g.wide()
    windows = {a: int(g.random.integers(2, min(4, a.length) + 1)) for a in x.axes if (a.length or 0) > 1 and g.chance(0.6)}
    if not windows or not x.dtype.is_float:
        raise Unfit
    y = (ng.max_pool if g.exact else g.pick((ng.max_pool, ng.avg_pool)))(x, windows, stride=g.pick((1, 2, 3)), padding=g.pick((0, 1)))
    return [y, ng.deriv(ng.sum(y * 2, out_axes=()), x)] if g.chance(0.4) else y


def cut(g):
    x = g.wide(known=True)
    a = g.pick(x.axes)
    first = int(g.random.integers(0, a.length)) if a.length else 0
    own = slice(first, None, g.pick((1, 2, 3))) if g.chance(0.6) else slice(None, None, -g.pick((1, 2)))
    return ng.tensor_slice(x, [own if b is a else slice(None) for b in x.axes])


def moved(g):
    x = g.wide()
    a, order = g.pick(x.axes), g.random.permutation(len(x.axes))
    wider = [*x.axes, *[b for b in g.some(2) if b not in x.axes]]
    ends = tuple(int(n) for n in g.random.integers(0, 4, 2))
    ways = (
        lambda: ng.flip(x, [a]),
        lambda: ng.pad(x, [ends], axes=[a], value=g.pick((0, 1))),
        lambda: ng.concat_along_axis([x, g.alike(x)], a),
        lambda: ng.stack([x, g.alike(x)], g.fresh(2)),
        lambda: ng.axes_with_order(x, [x.axes[k] for k in order]),
        lambda: ng.broadcast(x, wider),
        lambda: ng.flatten(x, [x.axes[k] for k in order[:2]]) if all(x.axes.lengths) else x,
        lambda: ng.cast_axes(x, [g.fresh(b.length) if b is a and b.length is not None else b for b in x.axes]),
    )
    return g.pick(ways)()


def picked(g):
    x = g.wide()
    a, j = g.pick(x.axes), g.fresh(1, 3, 17, 40)
    where = ng.constant(g.random.integers(-3, g.size(a) + 3, j.length).astype(np.int32), [j])
    if g.chance(0.5):
        return ng.take(x, where, a, mode=g.pick(("clip", "fill", "wrap")))
    values = ng.take(x, ng.constant(g.random.integers(0, 3, j.length).astype(np.int32), [j]), a, mode="clip")
    return ng.put(x, where, values, a, combine=g.pick(("add", "max", "min")), mode=g.pick(("clip", "fill", "wrap")))


def ordered(g):
    x = g.wide()
    a = g.pick(x.axes)
    ways = [
        lambda: g.small(ng.cumsum(x, a, exclusive=g.chance(0.5), reverse=g.chance(0.5))),
        lambda: ng.sort(x, a, descending=g.chance(0.5)),
    ]
    if g.exact and a.length:
        ways.append(lambda: list(ng.top_k(x, a, int(g.random.integers(1, a.length + 1)))))
        ways.append(lambda: list(ng.nonzero(x)))
    return g.pick(ways)()


def loop(g):
    x = g.wide()
    a = g.pick(x.axes)
    rest = [b for b in x.axes if b is not a]
    start, way = ng.broadcast(ng.cast(ng.constant(0), x.dtype), rest), g.random.integers(3)

    def step(carry, x):
        ways = (
            (x + carry, x - carry, ng.maximum(x, carry)) if g.exact else (ng.tanh(carry + x), carry * 0.5 + x, ng.maximum(carry, x) * 0.9)
        )
        new = ng.axes_with_order(ways[way], carry.axes)
        return new, new + x

    last, every = ng.scan(step, start, x, a, reverse=g.chance(0.5))
    return [last, every] if g.exact or g.chance(0.5) else [every, ng.deriv(g.small(ng.sum(every, out_axes=())), x)]


def control(g):
    x = g.number()
    y, limit = g.alike(x), int(g.random.integers(0, 5))
    if g.chance(0.5):
        count = ng.constant(0, dtype="int32")
        return ng.while_loop(
            lambda c: ng.less(c[0], limit), lambda c: (c[0] + 1, g.pick(EXACT[:1] if g.exact else SMOOTH)(c[1])), (count, x)
        )[1]
    test = ng.less(ng.sum(ng.iota(g.pick(g.axes)), out_axes=()), limit * 9)
    return ng.cond(test, lambda: x + 1, lambda: ng.axes_with_order(y * 2 if g.exact else ng.tanh(y), x.axes))


def random(g):
    axes = g.some(2)
    return ng.randint(axes, -3, 4, seed=g.pick((None, 5))) if g.exact else g.pick((ng.uniform, ng.normal))(axes=axes)


def gradient(g):
    y = g.number()
    sources = [s for s in (*g.holes, *g.state) if s.dtype.is_float and s.dtype.bits > 16]
    if g.exact or not sources:
        raise Unfit
    return ng.deriv(ng.mean(ng.square(y), out_axes=()), g.pick(sources))


BOTH = (
    unary,
    unary,
    binary,
    binary,
    choice,
    cast,
    reduction,
    reduction,
    product,
    layer,
    convolution,
    pooling,
    cut,
    moved,
    moved,
    moved,
    picked,
    ordered,
    loop,
    control,
    random,
)
OPS = {True: (*BOTH, place), False: (*BOTH, normalized, normalized, layer, gradient, gradient)}


def graph(seed, exact, most=12):
    """A graph of up to so many ops, its results, and the assigns that go with them."""
    g = Graph(seed, exact)
    for _ in range(g.random.integers(2, most)):
        counts = [len(own) for own in (g.holes, g.state, g.values)]
        try:
            made = g.pick(OPS[exact])(g)
            made = made if isinstance(made, (list, tuple)) else [made]
            g.values += [v for v in made if np.prod([max(g.size(a), 1) for a in v.axes]) <= 3 * LARGE]
        except (NgraphError, Unfit):
            for own, n in zip((g.holes, g.state, g.values), counts, strict=True):
                del own[n:]
    chosen = sorted({len(g.values) - 1, *g.random.integers(0, len(g.values), 2).tolist()})
    updates = [ng.assign(v, v * (1 if exact else 0.5) + 1) for v in g.state if g.chance(0.6)]
    return g, [g.values[k] for k in chosen], updates
