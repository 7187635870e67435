"""Runs the peer benchmark's workloads on ngraph: builds each neutral graph through the public API, as a user would.

Inference takes its parameters out of a file, mapped, as whoever gets a model does. `NGRAPH_TRANSFORMER` chooses the transformer; with
`NGRAPH_BENCH=neon` training workloads are those of neon.py. Axes are named by what they are: N for the batch, one name per width.
"""

import importlib
import itertools
import math
import os
import sys
import tempfile
import time

import numpy as np
from peerbench.adapter import NotAvailable
from peerbench.graph import draw

import ngraph as ng
import ngraph.transformers as ngt


class Model:
    """A workload's graph as ops, and the variables of its parameters by name."""

    def __init__(self, g, parameters, training=False, state=()):
        self.g, self.parameters, self.training, self.made = g, parameters, training, {}
        self.state, self.updates = dict(state), []
        self.names = itertools.count()
        self.variables = {}
        self.inputs = {}
        outer = ("T", "N") if any(node.op == "lstm" for node in g.nodes) else ("N",)
        shape = next(iter(g.inputs.values()))[0]
        self.outer = [self.axis(n, name) for n, name in zip(shape, outer, strict=False)]  # what all inputs have in front
        for name, (shape, dtype) in g.inputs.items():
            axes = [*self.outer, *(self.axis(n) for n in shape[len(self.outer) :])] if shape else []
            self.inputs[name] = self.made[name] = ng.placeholder(axes, dtype=dtype).named(name)
        for node in g.nodes:
            build = getattr(self, node.op, None)
            if build is None:
                raise NotAvailable(f"{node.op} is not written for ngraph yet")
            self.made[node.out] = build(node.a, *node.ins)
        self.output = self.made[g.output]

    def axis(self, length, name=None):
        return ng.make_axis(length, name=name or f"A{next(self.names)}")

    def parameter(self, name, axes):
        if name not in self.variables:
            value = self.parameters[name].reshape([len(a) for a in axes])
            self.variables[name] = ng.variable(axes, initial_value=value).named(name)
        return self.variables[name]

    def linear(self, a, x, w, b=None):
        x = self.made[x]
        features = x.axes[-3:] if "from_flat" in a else x.axes[-1:]
        out = self.axis(self.g.shape[w][1])
        y = ng.dot(x, self.parameter(w, [*features, out]))
        return y if b is None else y + self.parameter(b, [out])

    def conv(self, a, x, w, b=None):
        x = self.made[x]
        channels, rows, columns = x.axes[1:]
        r, s = self.axis(a["k"]), self.axis(a["k"])
        where = {rows: r, columns: s}
        if a["groups"] == 1:
            k = self.axis(self.g.shape[w][0])
            y = ng.conv(x, self.parameter(w, [k, channels, r, s]), where, stride=a["stride"], padding=a["pad"])
        elif a["groups"] == len(channels):
            k = channels
            y = ng.conv(x, self.parameter(w, [k, r, s]), where, stride=a["stride"], padding=a["pad"], groups=k)
        else:
            raise NotAvailable("no workload has groups of several channels")
        return y if b is None else y + self.parameter(b, [k])

    def bn(self, a, x, gamma, beta, mean, var):
        x = self.made[x]
        n, channels, *pixels = x.axes
        if self.training:
            mean = ng.mean(x, out_axes=[channels])
            x = x - mean
            var = ng.mean(x * x, out_axes=[channels])
        else:
            x, var = x - self.parameter(mean, [channels]), self.parameter(var, [channels])
        return x * (self.parameter(gamma, [channels]) / ng.sqrt(var + a["eps"])) + self.parameter(beta, [channels])

    def maxpool(self, a, x):
        x = self.made[x]
        return ng.max_pool(x, dict.fromkeys(x.axes[2:], a["k"]), stride=a["s"], padding=a["p"])

    def gap(self, a, x):
        x = self.made[x]
        return ng.mean(x, out_axes=x.axes[:2])

    def flatten(self, a, x):
        return self.made[x]  # named axes need no flattening: the linear layer sums over all three

    def embed(self, a, ids, table):
        rows, width = (self.axis(n) for n in self.g.shape[table])
        ids = self.made[ids]
        y = ng.take(self.parameter(table, [rows, width]), ids, rows)
        return ng.axes_with_order(y, [*ids.axes, width])

    def attention(self, a, q, k, v):
        n, s, width = self.made[q].axes
        heads, size = self.axis(a["heads"]), self.axis(len(width) // a["heads"])
        split = [ng.unflatten(ng.cast_axes(self.made[x], [n, s, width]), [n, s, heads, size]) for x in (q, k, v)]
        q, k, v = split[0], *(ng.map_roles(x, {s: self.names_like(s)}) for x in split[1:])
        past = k.axes[1]
        score = ng.contract(q, k, over=[size]) * (1 / len(size) ** 0.5)
        y = ng.contract(ng.softmax(score, [past]), v, over=[past])
        return ng.unflatten(ng.flatten(ng.axes_with_order(y, [n, s, heads, size]), [heads, size]), [n, s, width])

    def attn_cache(self, a, q, k, v, kc, vc):
        """One new token: its key and value go to their place in the caches, its query looks at all up to there."""
        n, s, width = self.made[q].axes
        heads, past, size = (self.axis(length) for length in self.g.shape[kc][1:])
        q, k, v = (ng.unflatten(ng.cast_axes(self.made[x], [n, s, width]), [n, s, heads, size])[{s: 0}] for x in (q, k, v))
        caches = []
        for name, new in ((kc, k), (vc, v)):
            cache = ng.persistent_tensor([n, heads, past, size], initial_value=self.state[name]).named(name)
            caches.append(ng.put(cache, ng.constant(a["pos"], dtype="int32"), new, past))
            self.updates.append(ng.assign(cache, caches[-1]))
        keys, values = (c[{past: slice(0, a["pos"] + 1)}] for c in caches)
        seen = keys.axes[2]
        score = ng.contract(q, keys, over=[size]) * (1 / len(size) ** 0.5)
        y = ng.contract(ng.softmax(score, [seen]), values, over=[seen])
        return ng.unflatten(ng.flatten(ng.axes_with_order(ng.expand_dims(y, s, 1), [n, s, heads, size]), [heads, size]), [n, s, width])

    def lstm(self, a, x, wx, wh, b):
        """Gates i, f, g, o stand along an axis of their own."""
        x = self.made[x]
        time, n, features = x.axes
        gates, hidden = self.axis(4), self.axis(a["hidden"])
        weights, bias = self.parameter(wx, [features, gates, hidden]), self.parameter(b, [gates, hidden])
        inner = self.parameter(wh, [hidden - 1, gates, hidden])

        def step(state, x):
            h, c = state
            i, f, g, o = (z[{gates: k}] for z in [x + ng.dot(inner, h)] for k in range(4))
            c = ng.sigmoid(f) * c + ng.sigmoid(i) * ng.tanh(g)
            h = ng.sigmoid(o) * ng.tanh(c)
            return (h, c), h

        zero = ng.constant(0.0, [n, hidden])
        _, y = ng.scan(step, (zero, zero), ng.dot(x, weights) + bias, time)
        return ng.axes_with_order(y, [time, n, hidden])

    def last(self, a, x):
        x = self.made[x]
        return x[{x.axes[0]: -1}]

    def names_like(self, axis):
        return axis.name + "_past"

    def layernorm(self, a, x, gamma, beta):
        x = self.made[x]
        features = x.axes[-1]
        centred = x - ng.mean(x, reduction_axes=[features])
        scale = 1 / ng.sqrt(ng.mean(centred * centred, reduction_axes=[features]) + a["eps"])
        return centred * scale * self.parameter(gamma, [features]) + self.parameter(beta, [features])

    def gelu(self, a, x):
        x = self.made[x]
        if a["approx"] == "none":
            return x * 0.5 * (ng.erf(x * 0.5**0.5) + 1)
        return x * ng.sigmoid(1.5957691216 * (x + 0.044715 * x * x * x))

    def addc(self, a, x):
        return self.made[x] + a["c"]

    def mulc(self, a, x):
        return self.made[x] * a["c"]

    def add(self, a, x, y):
        return self.made[x] + self.same_axes(y, x)

    def mul(self, a, x, y):
        return self.made[x] * self.same_axes(y, x)

    def same_axes(self, name, other):
        """The second operand over the axes of the first: two inputs of one shape are the same axes here."""
        op, axes = self.made[name], self.made[other].axes
        return op if set(op.axes) <= set(axes) else ng.cast_axes(op, axes[len(axes) - len(op.axes) :])

    def relu(self, a, x):
        return ng.relu(self.made[x])

    def relu6(self, a, x):
        return ng.minimum(ng.relu(self.made[x]), 6.0)

    def sigmoid(self, a, x):
        return ng.sigmoid(self.made[x])

    def tanh(self, a, x):
        return ng.tanh(self.made[x])

    def square(self, a, x):
        return ng.square(self.made[x])

    def mean_all(self, a, x):
        return ng.mean(self.made[x], out_axes=())


class Infer:
    """NumPy in, NumPy out; resident workloads keep their output array."""

    def __init__(self, w):
        g = w.graph()
        model = Model(g, w.params_cache, state=w.state(g))
        self.feeds = [w.batches(g)[0][0][name] for name in model.inputs]
        results = ng.sequential([*model.updates, model.output]) if model.updates else model.output
        self.run = ngt.make_transformer().computation(results, *model.inputs.values())
        self.out = self.run(*self.feeds) if w.resident else None

    def call(self, i):
        return self.run(*self.feeds) if self.out is None else self.run(*self.feeds, out=self.out)

    def output(self):
        return np.array(self.call(0))


class Train:
    """One call is a step: loss, gradients, momentum update."""

    def __init__(self, w):
        g = w.graph()
        self.data = [(*feeds.values(), labels) for feeds, labels in w.batches(g)]
        model = Model(g, w.params_cache, training=True)
        y = model.output
        if w.loss == "ce":
            label = ng.placeholder(y.axes[:-1], dtype=ng.int64).named("label")
            classes = y.axes[-1]
            losses = ng.cross_entropy_multi(ng.softmax(y, [classes]), ng.one_hot(label, classes), out_axes=y.axes[:-1])
        else:
            label = ng.placeholder(y.axes).named("label")
            losses = ng.cross_entropy_binary_inner(ng.sigmoid(y), label)
        loss = ng.mean(losses, out_axes=())
        updates = []
        for name in g.trainable():
            p = model.variables[name]
            step = ng.deriv(loss, p)
            if w.momentum:
                v = ng.persistent_tensor(p.axes, initial_value=0).named(name + ".v")
                step = v * w.momentum + step
                updates.append(ng.assign(v, step))
            updates.append(ng.assign(p, p - w.lr * step))
        self.run = ngt.make_transformer().computation([loss, ng.doall(updates)], *model.inputs.values(), label)

    def call(self, i):
        return float(self.run(*self.data[i % len(self.data)])[0])


def in_file(g, path):
    """The parameters of a graph in a file, mapped: each begins at a line of the cache."""
    places, end = {}, 0
    with open(path, "wb") as file:
        for name, (shape, init) in g.params.items():
            value = draw(f"{g.seed_name}/{name}", shape, init)
            file.write(value.tobytes() + bytes(-value.nbytes % 64))
            places[name], end = (end, shape), end + -(-value.size // 16) * 16
    whole = np.memmap(path, np.float32, "r") if end else np.empty(0, np.float32)
    return {name: whole[first : first + math.prod(shape)].reshape(shape) for name, (first, shape) in places.items()}


class Adapter:
    needs_params = False

    def __init__(self, options, threads):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", str(threads))
        os.environ.setdefault("NGRAPH_NUM_THREADS", str(threads))

    def versions(self):
        return {"ngraph": ng.__version__, "numpy": np.__version__}

    def load(self, w):
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            g = w.graph()
            w.params_cache = g.init() if w.kind == "train" else in_file(g, os.path.join(folder, "parameters"))
            excluded = time.perf_counter() - start  # where parameters come from is nobody's own time
            runner = self.runner(w)
        runner.excluded_s = excluded
        return runner

    def runner(self, w):
        if w.kind != "train":
            return Infer(w)
        if os.environ.get("NGRAPH_BENCH") == "neon":
            sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
            return importlib.import_module("neon").Train(w)
        return Train(w)
