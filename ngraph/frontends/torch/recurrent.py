"""Recurrent layers as loops: `torch.lstm`, `gru` and `rnn` of a graph of Dynamo's become ops of ours, one for each layer and direction.

PyTorch has no rule that takes such a layer apart and keeps it a loop, so this happens before AOTAutograd. `ngraph::recurrent` is its op,
with a derivative of its own, `ngraph::recurrent_backward`; what is around it (the order of dims, dropout, both directions side by side)
is written with ops of PyTorch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ngraph.frontends.positional.products import multiplied
from ngraph.frontends.positional.recurrent import gate
from ngraph.frontends.positional.values import Tensor
from ngraph.frontends.torch import dtype as kinds
from ngraph.frontends.torch import private
from ngraph.frontends.torch.graph import TorchNode
from ngraph.frontends.torch.table import translates
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.control import scan
from ngraph.ops.rearrange import broadcast, rename_record, stack
from ngraph.ops.reduce import sum as total

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}  # LSTM: input, forget, state, output; GRU: reset, update, state
FUNCTIONS = {name: getattr(torch, name) for name in GATES}
KINDS = {function: name for name, function in FUNCTIONS.items()}

KEPT = {"lstm": 6, "gru": 5, "rnn_tanh": 2, "rnn_relu": 2}  # tensors that a derivative reads, of the six for which there is room
ROOM = 6

SCHEMA = "(Tensor x, Tensor h, Tensor c, Tensor[] weights, str kind, bool reverse, Tensor? there)"
SLOPES = SCHEMA.replace("(", "(Tensor dy, Tensor dh, Tensor dc, ").replace(")", ", Tensor[] kept)")


def eager(
    x: torch.Tensor,
    h: torch.Tensor,
    c: torch.Tensor,
    weights: Sequence[torch.Tensor],
    kind: str,
    reverse: bool,
    there: torch.Tensor | None,
) -> tuple[torch.Tensor, ...]:
    """One layer in one direction, step by step, with ops of PyTorch's.

    x [time, batch, inputs]; h [batch, outputs]; c [batch, hidden], without elements but of an LSTM; weights: of the inputs, of the state,
    then maybe both biases, then maybe the projection; there [time, batch]: which steps each sequence has; None: all. Gives all states
    [time, batch, outputs], 0 where a sequence has no step, the last one, the last c, and what the derivative reads of each step, [time,
    batch, ...]: the state before it; of an LSTM c before it and its gates; of a GRU its gates and the state's part of the last one; of
    an RNN the new state; then tensors without elements.
    """
    linear, biases = torch.nn.functional.linear, weights[2:4] if len(weights) >= 4 else (None, None)
    states, kept = [x.new_zeros(0)] * len(x), [[x.new_zeros(0)] * len(x) for _ in range(KEPT[kind])]
    for t in reversed(range(len(x))) if reverse else range(len(x)):
        xs, hs = linear(x[t], weights[0], biases[0]), linear(h, weights[1], biases[1])
        cell, memory = c, tuple[torch.Tensor, ...]()
        if kind == "lstm":
            i, f, s, o = (xs + hs).chunk(4, -1)
            memory = c, i.sigmoid(), f.sigmoid(), s.tanh(), o.sigmoid()
            cell = memory[2] * c + memory[1] * memory[3]
            new = memory[4] * cell.tanh()
            new = linear(new, weights[-1]) if len(weights) in (3, 5) else new
        elif kind == "gru":
            (rx, zx, nx), (rh, zh, nh) = xs.chunk(3, -1), hs.chunk(3, -1)
            r, z = (rx + rh).sigmoid(), (zx + zh).sigmoid()
            memory = r, z, (nx + r * nh).tanh(), nh
            new = (1 - z) * memory[2] + z * h
        else:
            new = (xs + hs).tanh() if kind == "rnn_tanh" else (xs + hs).relu()
            memory = (new,)
        for tensors, value in zip(kept, (h, *memory), strict=True):
            tensors[t] = value
        here = None if there is None else there[t][:, None]
        states[t] = new if here is None else torch.where(here, new, 0.0)
        h = new if here is None else torch.where(here, new, h)
        c = cell if here is None or kind != "lstm" else torch.where(here, cell, c)
    read = [torch.stack(v).to(kinds.computed_in(x.dtype)) for v in kept]
    return torch.stack(states), h.clone(), c.clone(), *read, *[c.clone() for _ in range(ROOM - len(read))]


def shapes(x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, weights: Sequence[torch.Tensor], kind: str, *others: Any) -> Any:
    """Tensors of the results' shapes."""
    hidden, many = (c if kind == "lstm" else h).shape, KEPT[kind]
    kept = [x.new_empty((x.shape[0], *shape), dtype=kinds.computed_in(x.dtype)) for shape in (h.shape, *[hidden] * (many - 1))]
    return x.new_empty((x.shape[0], *h.shape)), torch.empty_like(h), torch.empty_like(c), *kept, *[torch.empty_like(c)] * (ROOM - many)


def eager_backward(dy: torch.Tensor, dh: torch.Tensor, dc: torch.Tensor, *given: Any) -> list[torch.Tensor]:
    """The derivatives for x, h, c and the weights, as PyTorch computes them."""
    x, h, c, weights, *how, _ = given
    leaves = [t.detach().requires_grad_() for t in (x, h, c, *weights)]
    with torch.enable_grad():
        results = eager(leaves[0], leaves[1], leaves[2], leaves[3:], *how)[:3]
    found = torch.autograd.grad(results, leaves, (dy, dh, dc), allow_unused=True)
    return [torch.zeros_like(t) if d is None else d.clone() for d, t in zip(found, leaves, strict=True)]


def defined() -> Any:
    """Defines both ops, and returns them."""
    library = torch.library.Library("ngraph", "DEF")
    library.define(f"recurrent{SCHEMA} -> ({', '.join(['Tensor'] * (3 + ROOM))})")
    library.define(f"recurrent_backward{SLOPES} -> Tensor[]")
    library.impl("recurrent", eager, "CPU")
    library.impl("recurrent_backward", eager_backward, "CPU")
    torch.library.register_fake("ngraph::recurrent", shapes, lib=library)
    torch.library.register_fake(
        "ngraph::recurrent_backward", lambda dy, dh, dc, x, h, c, ws, *how: [torch.empty_like(t) for t in (x, h, c, *ws)], lib=library
    )

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        x, h, c, weights, ctx.kind, ctx.reverse, there = inputs
        ctx.mark_non_differentiable(*output[3:])
        ctx.save_for_backward(there, *output[3 : 3 + KEPT[ctx.kind]], x, h, c, *weights)

    def backward(ctx: Any, dy: torch.Tensor, dh: torch.Tensor, dc: torch.Tensor, *others: Any) -> Any:
        there, *rest = ctx.saved_tensors
        kept, (x, h, c, *weights) = rest[: KEPT[ctx.kind]], rest[KEPT[ctx.kind] :]
        dx, first, cell, *slopes = torch.ops.ngraph.recurrent_backward(dy, dh, dc, x, h, c, weights, ctx.kind, ctx.reverse, there, kept)
        return dx, first, cell, slopes, None, None, None

    torch.library.register_autograd("ngraph::recurrent", backward, setup_context=keep, lib=library)
    return library


LIBRARY = defined()  # the ops are there as long as this is


# ---- graphs of Dynamo's -------------------------------------------------------------------------------------------------


def layered(
    kind: str,
    x: torch.Tensor,
    state: Any,
    weights: Sequence[torch.Tensor],
    biases: bool,
    layers: int,
    dropout: Any,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    there: torch.Tensor | None = None,
) -> Any:
    """All layers and directions of what `torch.lstm` and its like are called for, with their arguments; there: see `eager`."""
    h, c = state if kind == "lstm" else (state, None)
    alone = x.dim() == 2
    x = x.unsqueeze(1) if alone else x.transpose(0, 1) if batch_first else x
    if alone:
        h, c = h.unsqueeze(1), None if c is None else c.unsqueeze(1)
    ways = 2 if bidirectional else 1
    each = len(weights) // (layers * ways)
    none = x.new_zeros(0)
    last_h, last_c = [], []
    for layer in range(layers):
        found = []
        for way in range(ways):
            k = layer * ways + way
            mine = list(weights[k * each : (k + 1) * each])
            y, *ends = torch.ops.ngraph.recurrent(x, h[k], c[k] if c is not None else none, mine, kind, way == 1, there)[:3]
            found.append(y)
            last_h.append(ends[0])
            last_c.append(ends[1])
        x = torch.cat(found, -1) if ways > 1 else found[0]
        if train and layer < layers - 1:
            x = torch.nn.functional.dropout(x, dropout, True)
    x = x.squeeze(1) if alone else x.transpose(0, 1) if batch_first else x
    ends = [torch.stack(last_h)] + ([torch.stack(last_c)] if kind == "lstm" else [])
    return x, *[s.squeeze(1) if alone else s for s in ends]


def lowered(gm: GraphModule) -> GraphModule:
    """Returns a graph of Dynamo's whose recurrent layers are loops of ours; those over packed sequences stay PyTorch's."""
    found = [n for n in gm.graph.nodes if n.op == "call_function" and n.target in KINDS and len(n.args) == 9 and not n.kwargs]
    for node in found:
        kind = KINDS[node.target]
        with gm.graph.inserting_before(node):
            ours = gm.graph.call_function(LAYERS[kind], node.args)
            private.keyed(ours)
            ours.meta["stack_trace"] = node.meta.get("stack_trace")
            node.replace_all_uses_with(ours)
        gm.graph.erase_node(node)
    if found:
        gm.recompile()
    return gm


def lstm(*args: Any) -> Any:
    """`layered` of this kind, as a graph calls it: by a name that another process finds, too."""
    return layered("lstm", *args)


def gru(*args: Any) -> Any:
    """See `lstm`."""
    return layered("gru", *args)


def rnn_tanh(*args: Any) -> Any:
    """See `lstm`."""
    return layered("rnn_tanh", *args)


def rnn_relu(*args: Any) -> Any:
    """See `lstm`."""
    return layered("rnn_relu", *args)


LAYERS: dict[str, Any] = {f.__name__: f for f in (lstm, gru, rnn_tanh, rnn_relu)}


def rules() -> dict[Any, Any]:
    """Returns how recurrent layers of an exported program are taken apart, by overload: PyTorch's rules unroll their steps."""
    return {getattr(torch.ops.aten, kind).input: layers for kind, layers in LAYERS.items()}


# ---- their translators --------------------------------------------------------------------------------------------------


class RecurrentLayer:
    """The tensors of a layer in one direction, as ops with axes: its inputs, parameters and first state."""

    def __init__(self, n: TorchNode, x: Tensor, h: Tensor, c: Tensor, weights: Sequence[Tensor], kind: str, there: Tensor | None):
        self.g, self.kind, gates = n.g, kind, GATES[kind]
        g, hidden = n.g, n.g.number(weights[1].shape[0]) // gates
        x = g.full(x)
        self.time, self.batch, self.inside = x.dims
        w, r = (g.full(g.reshape(t, [gates, hidden, t.shape[-1]])) for t in weights[:2])
        self.G, self.H, self.K = G, H, K = g.fresh(gates), g.fresh(hidden), g.fresh(r.shape[-1])
        self.x, self.w, self.r = x.op, g.renamed(w, [G, H, self.inside]).op, g.renamed(r, [G, H, K]).op
        self.biases = [g.renamed(g.full(g.reshape(b, [gates, hidden])), [G, H]).op for b in weights[2:4]] if len(weights) >= 4 else []
        projected = weights[-1] if len(weights) in (3, 5) else None
        self.P = P = g.fresh(projected.shape[0]) if projected is not None else H
        self.project = None if projected is None else g.renamed(g.full(projected), [P, H]).op
        first = [(h, P), (c, H)] if kind == "lstm" else [(h, P)]
        self.first = [self.of(t, [self.batch, d]) for t, d in first]
        self.there = None if there is None else self.of(there, [self.time, self.batch])

    def of(self, t: Tensor, dims: list[Any]) -> Op:
        """A tensor with these dims."""
        return broadcast(self.g.renamed(self.g.full(t), dims).op, dims)

    def stacks(self) -> list[list[Any]]:
        """The dims of what the derivative reads."""
        return [[self.time, self.batch, d] for d in (self.P, *[self.H] * (KEPT[self.kind] - 1))]

    def step(self, state: list[Op], xg: Op) -> tuple[list[Op], list[Op]]:
        """The next state, and what the derivative reads; xg: the inputs' part of the gates."""
        hidden = multiplied(rename_record.build(state[0], to=((self.P, self.K),)), self.r, (self.K,))
        if self.kind == "gru":
            if self.biases:
                hidden = hidden + self.biases[1]
            (rx, zx, nx), (rh, zh, nh) = ([gate(t, self.G, k) for k in range(3)] for t in (xg, hidden))
            r, z = e.sigmoid(rx + rh), e.sigmoid(zx + zh)
            new = e.tanh(nx + r * nh)
            return [(1.0 - z) * new + z * state[0]], [state[0], r, z, new, nh]
        total = xg + hidden
        if self.kind != "lstm":
            made = gate(total, self.G, 0)
            new = e.tanh(made) if self.kind == "rnn_tanh" else e.maximum(made, 0.0)
            return [new], [state[0], new]
        i, f, s, o = (gate(total, self.G, k) for k in range(4))
        i, f, s, o = e.sigmoid(i), e.sigmoid(f), e.tanh(s), e.sigmoid(o)
        cell = f * state[1] + i * s
        h = o * e.tanh(cell)
        return [h if self.project is None else multiplied(h, self.project, (self.H,)), cell], [*state, i, f, s, o]

    def back(self, ds: list[Op], kept: list[Op]) -> tuple[list[Op], Op, Op]:
        """The derivatives for the state before a step, and for both parts of its gates; ds: for the state after it."""
        dh, *_ = ds
        if self.kind == "gru":
            before, r, z, new, nh = kept
            dn = dh * (1.0 - z) * (1.0 - new * new)
            dr, dz = dn * nh * r * (1.0 - r), dh * (before - new) * z * (1.0 - z)
            dxg, dhg = stack([dr, dz, dn], self.G), stack([dr, dz, dn * r], self.G)
            return [dh * z + self.through(dhg)], dxg, dhg
        if self.kind != "lstm":
            new = kept[1]
            da = dh * (1.0 - new * new) if self.kind == "rnn_tanh" else e.where(new > 0.0, dh, 0.0)
            da = stack([da], self.G)
            return [self.through(da)], da, da
        _, before, i, f, s, o = kept
        if self.project is not None:
            dh = multiplied(dh, self.project, (self.P,))
        squashed = e.tanh(f * before + i * s)
        dc = ds[1] + dh * o * (1.0 - squashed * squashed)
        gates = dc * s * i * (1.0 - i), dc * before * f * (1.0 - f), dc * i * (1.0 - s * s), dh * squashed * o * (1.0 - o)
        da = stack(list(gates), self.G)
        return [self.through(da), dc * f], da, da

    def through(self, da: Op) -> Op:
        """The derivative for the state before a step, from that for its part of the gates."""
        return rename_record.build(multiplied(da, self.r, (self.G, self.H)), to=((self.K, self.P),))


def loop(layer: RecurrentLayer, reverse: bool) -> tuple[list[Tensor], list[Tensor]]:
    """The states of all steps, the last state and the last c; what the derivative reads: one product with all inputs, then one loop.

    Where a sequence has no step, its state stays, and 0 stands among those of all steps.
    """
    start, held = layer.first, layer.there
    xg = multiplied(layer.x, layer.w, (layer.inside,))
    for b in layer.biases[: 1 if layer.kind == "gru" else 2]:
        xg = xg + b

    def step(carry: Any, xs: Any) -> Any:
        made, kept = layer.step(list(carry), xs[0])
        new = [broadcast(s, old.axes) for s, old in zip(made, start, strict=True)]
        if held is None:
            return tuple(new), (new[0], *kept)
        return tuple([e.where(xs[1], s, old) for s, old in zip(new, carry, strict=True)]), (e.where(xs[1], new[0], 0.0), *kept)

    after, (ys, *kept) = scan(step, tuple(start), (xg,) if held is None else (xg, held), layer.time, reverse=reverse)
    made, batch = layer.g.made, layer.batch
    results = [made(ys, [layer.time, batch, layer.P]), *[made(s, [batch, d]) for s, d in zip(after, (layer.P, layer.H), strict=False)]]
    return results, [made(op, dims) for op, dims in zip(kept, layer.stacks(), strict=True)]


@translates("ngraph.recurrent")
def recurrent(
    n: TorchNode, x: Tensor, h: Tensor, c: Tensor, weights: Sequence[Tensor], kind: str, reverse: bool, there: Tensor | None
) -> tuple[Tensor, ...]:
    given = [n.of(t, kinds.wide(x.dtype)) for t in (x, h, c, *weights)]
    results, kept = loop(RecurrentLayer(n, given[0], given[1], given[2], given[3:], kind, there), reverse)
    results += [c] * (3 - len(results))
    return tuple([n.of(t, kinds.OURS[v.dtype]) for t, v in zip([*results, *kept, *[c] * (ROOM - len(kept))], n.val, strict=True)])


@translates("ngraph.recurrent_backward")
def recurrent_backward(
    n: TorchNode,
    dy: Tensor,
    dh: Tensor,
    dc: Tensor,
    x: Tensor,
    h: Tensor,
    c: Tensor,
    weights: Sequence[Tensor],
    kind: str,
    reverse: bool,
    there: Tensor | None,
    kept: Sequence[Tensor],
) -> list[Tensor]:
    """One loop the other way, over what was kept, then one product for each parameter."""
    wide = kinds.wide(x.dtype)
    given = [n.of(t, wide) for t in (x, h, c, *weights)]
    layer = RecurrentLayer(n, given[0], given[1], given[2], given[3:], kind, there)
    time, batch, G, H, P, K = layer.time, layer.batch, layer.G, layer.H, layer.P, layer.K
    ends = [(dh, P), (dc, H)] if kind == "lstm" else [(dh, P)]
    start = [layer.of(n.of(d, wide), [batch, dim]) for d, dim in ends]
    xs = [layer.of(n.of(dy, wide), [time, batch, P]), *[layer.of(t, dims) for t, dims in zip(kept, layer.stacks(), strict=True)]]
    held = layer.there

    def step(carry: Any, row: Any) -> Any:
        new, here = row[0], row[-1]
        d = carry[0] + (new if held is None else e.where(here, new, 0.0))
        made, dxg, dhg = layer.back([d, *carry[1:]], row[1 : len(xs)])
        if held is not None:
            made = [e.where(here, m, old) for m, old in zip(made, [d, *carry[1:]], strict=True)]
            dxg, dhg = e.where(here, dxg, 0.0), e.where(here, dhg, 0.0)
        whole = (G, batch, H)
        outs = [broadcast(dxg, whole), *([broadcast(dhg, whole)] if kind == "gru" else [])]
        if layer.project is not None:
            outs.append(d if held is None else e.where(here, d, 0.0))
        return tuple([broadcast(m, old.axes) for m, old in zip(made, start, strict=True)]), tuple(outs)

    first, stacks = scan(step, tuple(start), (*xs, *([] if held is None else [held])), time, reverse=not reverse)
    dxg, dhg = stacks[0], stacks[1] if kind == "gru" else stacks[0]
    steps, g = (time, batch), n.g
    before = rename_record.build(xs[1], to=((P, K),))
    dx = g.made(multiplied(dxg, layer.w, (G, H)), [time, batch, layer.inside])
    found = [dx, *[g.made(s, [batch, d]) for s, d in zip(first, (P, H), strict=False)]]
    found += [n.of(dc, wide)] if kind != "lstm" else []
    slopes = [g.made(multiplied(dxg, layer.x, steps), [G, H, layer.inside]), g.made(multiplied(dhg, before, steps), [G, H, K])]
    if layer.biases:
        slopes += [g.made(total(d, steps), [G, H]) for d in (dxg, dhg)]
    if layer.project is not None:
        _, c_before, i, f, s, o = xs[1:]
        slopes.append(g.made(multiplied(stacks[-1], o * e.tanh(f * c_before + i * s), steps), [P, H]))
    found += [g.reshape(d, w.shape) for d, w in zip(slopes, weights, strict=True)]
    return [n.of(t, kinds.OURS[v.dtype]) for t, v in zip(found, n.val, strict=True)]
