"""Translators of RNN, GRU and LSTM: one loop over time for each direction, the product with the inputs before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ngraph.errors import GraphError
from ngraph.frontends.onnx.control import stacked
from ngraph.frontends.onnx.products import multiplied
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.expr import Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.control import scan
from ngraph.ops.rearrange import broadcast, iota, reindex, rename_record

Activation = Callable[[Op], Op]

# each by ONNX's name, with alpha and beta; defaults in front
ACTIVATIONS: dict[str, tuple[float, float, Callable[[Op, float, float], Op]]] = {
    "relu": (0, 0, lambda x, a, b: e.relu(x)),
    "tanh": (0, 0, lambda x, a, b: e.tanh(x)),
    "sigmoid": (0, 0, lambda x, a, b: e.sigmoid(x)),
    "affine": (1.0, 0.0, lambda x, a, b: x * a + b),
    "leakyrelu": (0.01, 0, lambda x, a, b: e.where(e.less(x, 0.0), x * a, x)),
    "thresholdedrelu": (1.0, 0, lambda x, a, b: e.where(e.less(a, x), x, 0.0)),
    "scaledtanh": (1.0, 1.0, lambda x, a, b: e.tanh(x * b) * a),
    "hardsigmoid": (0.2, 0.5, lambda x, a, b: e.minimum(e.maximum(x * a + b, 0.0), 1.0)),
    "elu": (1.0, 0, lambda x, a, b: e.where(e.less(x, 0.0), e.expm1(e.minimum(x, 0.0)) * a, x)),
    "softsign": (0, 0, lambda x, a, b: x / (e.absolute(x) + 1.0)),
    "softplus": (0, 0, lambda x, a, b: e.maximum(x, 0.0) + e.log1p(e.exp(-e.absolute(x)))),
}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def activations(n: Any, directions: int) -> list[list[Activation]]:
    """The functions of each direction."""
    names = n.attr("activations") or DEFAULTS[n.op] * directions
    alphas, betas = list(n.attr("activation_alpha") or []), list(n.attr("activation_beta") or [])
    made: list[Activation] = []
    for name in names:
        if name.lower() not in ACTIVATIONS:
            raise GraphError(f"there is no activation {name!r}", fix=f"there are {', '.join(ACTIVATIONS)}")
        a, b, function = ACTIVATIONS[name.lower()]
        if name.lower() in ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"):
            a = alphas.pop(0) if alphas else a
        if name.lower() in ("affine", "scaledtanh", "hardsigmoid"):
            b = betas.pop(0) if betas else b
        made.append(lambda x, f=function, a=a, b=b: f(x, a, b))  # type: ignore[misc]
    each = len(made) // directions
    return [made[k * each : (k + 1) * each] for k in range(directions)]


def part_of(g: Any, v: Value, direction: int, shape: list[int]) -> Tensor:
    """One direction of a parameter, in this shape with all axes."""
    if isinstance(v, ConstantArray):
        return g.full(g.tensor(ConstantArray(v.array[direction].reshape(shape))))
    t = g.full(g.tensor(v), [0])
    one = g.read(t, [None, *t.dims[1:]], {t.dims[0]: direction})
    return g.full(g.reshape(Tensor(one.op, one.dims[1:]), shape))


def gate(x: Op, axis: Axis, k: int) -> Op:
    """One of the gates along their axis."""
    return reindex(x, axes=tuple(a for a in x.axes if a != axis), index={a: k if a == axis else Idx(a) for a in x.axes})


@translates("RNN", "GRU", "LSTM")
def recurrent(
    n: Any,
    x: Value,
    w: Value,
    r: Value,
    bias: Value = None,
    lengths: Value = None,
    first_h: Value = None,
    first_c: Value = None,
    peephole: Value = None,
) -> tuple[Tensor, ...]:
    g, gates = n.g, GATES[n.op]
    t = g.tensor(x)
    by_batch = n.attr("layout", 0)
    if by_batch:
        t = Tensor(t.op, [t.dims[1], t.dims[0], *t.dims[2:]])
        first_h, first_c = (None if v is None else _turned(g.tensor(v)) for v in (first_h, first_c))
    t = g.full(t)
    time, batch, inside = t.dims
    direction = n.attr("direction", "forward")
    directions = 2 if direction == "bidirectional" else 1
    hidden = n.attr("hidden_size") or g.number(r.shape[-1])
    width = g.number(w.shape[-1])
    functions = activations(n, directions)
    ends: list[list[Tensor]] = []
    for d in range(directions):
        back = direction == "reverse" or d == 1
        wd = part_of(g, w, d, [gates, hidden, width])
        rd = part_of(g, r, d, [gates, hidden, hidden])
        G, H = wd.dims[0], wd.dims[1]
        wd = g.renamed(wd, [G, H, inside])
        K = g.fresh(hidden)
        rd = g.renamed(rd, [G, H, K])
        bd = None if bias is None else g.renamed(part_of(g, bias, d, [2, gates, hidden]), [g.fresh(2), G, H])
        wb, rb = (None, None) if bd is None else (gate(bd.op, bd.dims[0], k) for k in (0, 1))
        peeps = None
        if peephole is not None:
            p = part_of(g, peephole, d, [3, hidden])
            p = g.renamed(p, [p.dims[0], H])
            peeps = [gate(p.op, p.dims[0], k) for k in range(3)]
        xg = multiplied(t.op, wd.op, (inside,))
        separate = n.op == "GRU" and n.attr("linear_before_reset", 0)
        if wb is not None and rb is not None:
            xg = xg + wb
            if not separate:
                xg = xg + rb
        state = [_start(g, v, d, (batch, H), t.op.dtype) for v in ((first_h, first_c) if n.op == "LSTM" else (first_h,))]
        mask = None
        if lengths is not None:
            many = g.renamed(g.full(g.tensor(lengths)), [batch]).op
            mask = e.less(iota(time), e.cast(many, dtypes.int32))
        cell = Cell(n, G, H, K, rd.op, rb if separate else None, functions[d], peeps)

        def step(carry: Any, xs: Any, cell: Cell = cell, mask: Op | None = mask) -> tuple[Any, Any]:
            new = cell.step(list(carry), xs[0])
            if mask is None:
                return tuple(new), new[0]
            kept = [e.where(xs[1], a, b) for a, b in zip(new, carry, strict=True)]
            return tuple(kept), e.where(xs[1], new[0], 0.0)

        after, ys = scan(step, tuple(state), (xg,) if mask is None else (xg, mask), time, reverse=back)
        ends.append([Tensor(ys, [time, batch, H]), *(Tensor(a, [batch, H]) for a in after)])
    results = []
    for k in range(len(ends[0])):
        results.append(stacked(g, [e_[k] for e_ in ends], 1 if k == 0 else 0))
    if by_batch:
        y = results[0]
        results = [Tensor(y.op, [y.dims[2], y.dims[0], y.dims[1], y.dims[3]]), *(_turned(v) for v in results[1:])]
    return tuple(results)


def _turned(t: Tensor) -> Tensor:
    return Tensor(t.op, [t.dims[1], t.dims[0], *t.dims[2:]])


def _start(g: Any, v: Value, direction: int, axes: tuple[Axis, Axis], dtype: Any) -> Op:
    if v is None:
        return e.filled(0, axes, dtype)
    t = g.full(g.tensor(v))
    one = g.read(t, [None, *t.dims[1:]], {t.dims[0]: direction})
    t = g.full(Tensor(one.op, one.dims[1:]))
    return broadcast(g.renamed(t, list(axes)).op, axes)


class Cell:
    """One step of a recurrent layer: from state and what the inputs give to the gates, to the next state."""

    def __init__(self, n: Any, G: Axis, H: Axis, K: Axis, r: Op, rb: Op | None, functions: list[Activation], peeps: list[Op] | None):
        self.kind, self.G, self.H, self.K, self.r, self.rb, self.f, self.peeps = n.op, G, H, K, r, rb, functions, peeps
        self.clip, self.forget = n.attr("clip"), n.attr("input_forget", 0)
        self.linear = n.attr("linear_before_reset", 0)

    def act(self, k: int, x: Op) -> Op:
        return self.f[k](x if self.clip is None else e.minimum(e.maximum(x, -self.clip), self.clip))

    def times(self, h: Op, r: Op) -> Op:
        return multiplied(rename_record.build(h, to=((self.H, self.K),)), r, (self.K,))

    def step(self, state: list[Op], xg: Op) -> list[Op]:
        h = state[0]
        if self.kind == "GRU":
            return self.gru(h, xg)
        z = xg + self.times(h, self.r)
        if self.kind == "RNN":
            return [self.act(0, gate(z, self.G, 0))]
        i, o, f, c = (gate(z, self.G, k) for k in range(4))
        cell = state[1]
        if self.peeps is not None:
            i, f = i + self.peeps[0] * cell, f + self.peeps[2] * cell
        i = self.act(0, i)
        f = 1.0 - i if self.forget else self.act(0, f)
        new = f * cell + i * self.act(1, c)
        if self.peeps is not None:
            o = o + self.peeps[1] * new
        return [self.act(0, o) * self.f[2](new), new]

    def gru(self, h: Op, xg: Op) -> list[Op]:
        parts = [gate(self.r, self.G, k) for k in range(3)]
        biases = [gate(self.rb, self.G, k) for k in range(3)] if self.rb is not None else [None] * 3

        def at(k: int, h: Op) -> Op:
            made = self.times(h, parts[k])
            b = biases[k]
            return made if b is None else made + b

        z = self.act(0, gate(xg, self.G, 0) + at(0, h))
        r = self.act(0, gate(xg, self.G, 1) + at(1, h))
        if self.linear:
            new = self.act(1, gate(xg, self.G, 2) + r * at(2, h))
        else:
            new = self.act(1, gate(xg, self.G, 2) + at(2, r * h))
        return [(1.0 - z) * new + z * h]
