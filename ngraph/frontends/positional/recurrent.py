"""Recurrent layers: one loop over time for each direction, the product with the inputs before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.products import matmul, multiplied
from ngraph.frontends.positional.shapes import at, check_sizes, joined, part, stacked
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.expr import Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.control import scan
from ngraph.ops.rearrange import broadcast, iota, reindex, rename_record

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}  # RNN: the state; GRU: update, reset, state; LSTM: input, output, forget, state


class Recurrence(NamedTuple):
    """The definition of a recurrent layer.

    kind       a name of GATES                             backwards  for each direction whether it goes from the last step to the first
    functions  for each direction its activations          clip       the bound of an activation's argument
    coupled    an LSTM's forget gate is 1 less its input gate
    separate   a GRU's reset gate is applied after the product with the state
    """

    kind: str
    hidden: int
    backwards: Sequence[bool]
    functions: Sequence[Sequence[Callable[[Op], Op]]]
    clip: float | None = None
    coupled: bool = False
    separate: bool = False


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


def recurrent(
    g: Any, how: Recurrence, t: Tensor, w: Value, r: Value, bias: Value, lengths: Value, first: Sequence[Value], peephole: Value
) -> list[Tensor]:
    """All states [time, directions, batch, hidden], then the last h, and of an LSTM the last c [directions, batch, hidden].

    t [time, batch, inputs]; w [directions, gates * hidden, inputs] and r [directions, gates * hidden, hidden] meet inputs and state, bias
    [directions, 2 * gates * hidden] is added to both; lengths [batch]: the steps of each row; first: the states at the start; peephole
    [directions, 3 * hidden]: from c to the gates.
    """
    gates, hidden = GATES[how.kind], how.hidden
    _, rows, inputs = t.shape
    shapes = {
        "weights": (w, (gates * hidden, inputs)),
        "weights of the state": (r, (gates * hidden, hidden)),
        "bias": (bias, (2 * gates * hidden,)),
        "peephole": (peephole, (3 * hidden,)),
        **{f"first state {k}": (v, (rows, hidden)) for k, v in enumerate(first)},
    }
    for what, (v, sizes) in shapes.items():
        if v is not None:
            check_sizes(g, v, what, len(how.backwards), *sizes)
    if lengths is not None:
        check_sizes(g, lengths, "lengths", rows)
    t = g.full(t)
    time, batch, inside = t.dims
    width = g.number(w.shape[-1])
    ends: list[list[Tensor]] = []
    for d, back in enumerate(how.backwards):
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
        separate = how.kind == "GRU" and how.separate
        if wb is not None and rb is not None:
            xg = xg + wb
            if not separate:
                xg = xg + rb
        state = [_start(g, v, d, (batch, H), t.op.dtype) for v in first]
        mask = None
        if lengths is not None:
            many = g.renamed(g.full(g.tensor(lengths)), [batch]).op
            mask = e.less(iota(time), e.cast(many, dtypes.int32))
        cell = Cell(how, G, H, K, rd.op, rb if separate else None, how.functions[d], peeps)

        def step(carry: Any, xs: Any, cell: Cell = cell, mask: Op | None = mask) -> tuple[Any, Any]:
            new = cell.step(list(carry), xs[0])
            if mask is None:
                return tuple(new), new[0]
            kept = [e.where(xs[1], a, b) for a, b in zip(new, carry, strict=True)]
            return tuple(kept), e.where(xs[1], new[0], 0.0)

        after, ys = scan(step, tuple(state), (xg,) if mask is None else (xg, mask), time, reverse=back)
        ends.append([Tensor(ys, [time, batch, H]), *(Tensor(a, [batch, H]) for a in after)])
    return [stacked(g, [e_[k] for e_ in ends], 1 if k == 0 else 0) for k in range(len(ends[0]))]


def _start(g: Any, v: Value, direction: int, axes: tuple[Axis, Axis], dtype: Any) -> Op:
    if v is None:
        return e.filled(0, axes, dtype)
    t = g.full(at(g, g.full(g.tensor(v)), 0, direction))
    return broadcast(g.renamed(t, list(axes)).op, axes)


class Cell:
    """One step of a recurrent layer: from state and what the inputs give to the gates, to the next state."""

    def __init__(self, how: Recurrence, G: Axis, H: Axis, K: Axis, r: Op, rb: Op | None, functions: Any, peeps: list[Op] | None):
        self.kind, self.G, self.H, self.K, self.r, self.rb, self.f, self.peeps = how.kind, G, H, K, r, rb, functions, peeps
        self.clip, self.forget, self.linear = how.clip, how.coupled, how.separate

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


def lstm_block(
    g: Any,
    gates: tuple[str, float, float],
    x: Tensor,
    c: Tensor,
    h: Tensor,
    w: Tensor,
    peepholes: Sequence[Tensor],
    b: Tensor,
    steps: Value = None,
) -> tuple[Tensor, ...]:
    """Returns what an LSTM computes in one step: input gate, cell, forget gate, output gate, candidate, tanh of the cell, output.

    x [batch, inputs]; with a time in front the results have it, too, and are 0 from `steps` on. w [inputs + hidden, 4 * hidden] meets
    inputs and output, b is added. gates: their order, as "icfo", what is added to the forget gate, and a bound of the
    cell, if it is above 0.
    """
    order, forget, clip = gates
    hidden, inputs = c.shape[1], x.shape[-1]
    z = g.full(g.reshape(each(g, e.add, matmul(g, x, part(g, w, 0, 0, inputs)), b), [*x.shape[:-1], 4, hidden]))
    *time, batch, G, H = z.dims
    K = g.fresh(hidden)
    r = g.renamed(g.full(g.reshape(part(g, w, 0, inputs, hidden), [hidden, 4, hidden])), [K, G, H]).op
    peeps = [g.renamed(g.full(p), [H]).op for p in peepholes]
    start = tuple([g.renamed(g.full(v), [batch, H]).op for v in (c, h)])

    def step(carry: Any, xs: Any) -> tuple[Any, Any]:
        c, h = carry
        z = xs[0] + multiplied(rename_record.build(h, to=((H, K),)), r, (K,))
        i, u, f, o = (gate(z, G, order.index(name)) for name in "icfo")
        if peeps:
            i, f = i + peeps[0] * c, f + peeps[1] * c
        i, u, f = e.sigmoid(i), e.tanh(u), e.sigmoid(f + forget)
        new = u * i + c * f
        if clip > 0:  # of which derivatives know nothing
            new = new + e.stop_gradient(e.minimum(e.maximum(new, -clip), clip) - new)
        most = e.tanh(new)
        o = e.sigmoid(o + peeps[2] * new if peeps else o)
        found = i, new, f, o, u, most, o * most
        return (new, found[-1]), found if len(xs) < 2 else tuple([e.where(xs[1], v, 0.0) for v in found])

    if not time:
        return tuple([Tensor(v, [batch, H]) for v in step(start, (z.op,))[1]])
    inside = e.less(iota(time[0], dtypes.int64), e.cast(g.tensor(steps).op, dtypes.int64))
    return tuple([Tensor(v, [time[0], batch, H]) for v in scan(step, start, (z.op, inside), time[0])[1]])


def gru_block(g: Any, x: Tensor, h: Tensor, w: Tensor, w_new: Tensor, b: Tensor, b_new: Tensor) -> tuple[Tensor, ...]:
    """Returns what a GRU computes in one step: reset gate, update gate, candidate, output.

    x [batch, inputs], h [batch, hidden]; w [inputs + hidden, 2 * hidden] gives reset and update gate, w_new [inputs + hidden, hidden] the
    candidate, from inputs and the output of before times the reset gate.
    """
    both = each(g, lambda z: e.sigmoid(z), each(g, e.add, matmul(g, joined(g, [x, h], 1), w), b))
    reset, update = (part(g, both, 1, k * h.shape[1], h.shape[1]) for k in (0, 1))
    kept = each(g, e.multiply, h, reset)
    new = each(g, lambda z: e.tanh(z), each(g, e.add, matmul(g, joined(g, [x, kept], 1), w_new), b_new))
    return reset, update, new, each(g, lambda u, c, h: u * h + (1.0 - u) * c, update, new, h)
