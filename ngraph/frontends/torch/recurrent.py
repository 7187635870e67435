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
from ngraph.frontends.torch.layers import pullback_of_many
from ngraph.frontends.torch.table import translates
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.control import scan
from ngraph.ops.rearrange import broadcast, rename_record

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}  # LSTM: input, forget, state, output; GRU: reset, update, state
FUNCTIONS = {name: getattr(torch, name) for name in GATES}
KINDS = {function: name for name, function in FUNCTIONS.items()}

SCHEMA = "(Tensor x, Tensor h, Tensor c, Tensor[] weights, str kind, bool reverse, Tensor? there)"
SLOPES = SCHEMA.replace("(", "(Tensor dy, Tensor dh, Tensor dc, ")


def eager(
    x: torch.Tensor,
    h: torch.Tensor,
    c: torch.Tensor,
    weights: Sequence[torch.Tensor],
    kind: str,
    reverse: bool,
    there: torch.Tensor | None,
) -> Any:
    """One layer in one direction, as PyTorch computes it.

    x [time, batch, inputs]; h [batch, outputs]; c [batch, hidden], without elements but of an LSTM; weights: of the inputs, of the state,
    then maybe both biases, then maybe the projection; there [time, batch]: which steps each sequence has, the longest sequence first; None:
    all. Gives all states [time, batch, outputs], 0 where a sequence has no step, the last one, and the last c.
    """
    state = (h[None], c[None]) if kind == "lstm" else h[None]
    given = (state, list(weights), len(weights) >= 4, 1, 0.0, False, False)
    if there is None:
        y, *last = FUNCTIONS[kind](x.flip(0) if reverse else x, *given, False)
        y = y.flip(0) if reverse else y.clone()
    else:
        at = torch.arange(len(x))[:, None].expand(there.shape)
        at = torch.where(there, there.sum(0) - 1 - at, at) if reverse else at  # each sequence backwards, in its own steps
        row = torch.arange(there.shape[1])
        rows, *last = FUNCTIONS[kind](x[at, row][there], there.sum(1), *given)
        y = x.new_zeros(*there.shape, rows.shape[-1]).masked_scatter(there[..., None], rows)[at, row]
    return y, last[0][0].clone(), last[1][0].clone() if kind == "lstm" else c.clone()


def shapes(x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, *others: Any) -> Any:
    """Tensors of the results' shapes."""
    return x.new_empty((x.shape[0], *h.shape)), torch.empty_like(h), torch.empty_like(c)


def eager_backward(dy: torch.Tensor, dh: torch.Tensor, dc: torch.Tensor, *given: Any) -> list[torch.Tensor]:
    """The derivatives for x, h, c and the weights, as PyTorch computes them."""
    x, h, c, weights, *how = given
    leaves = [t.detach().requires_grad_() for t in (x, h, c, *weights)]
    with torch.enable_grad():
        results = eager(leaves[0], leaves[1], leaves[2], leaves[3:], *how)
    found = torch.autograd.grad(results, leaves, (dy, dh, dc), allow_unused=True)
    return [torch.zeros_like(t) if d is None else d.clone() for d, t in zip(found, leaves, strict=True)]


def defined() -> Any:
    """Defines both ops, and returns them."""
    library = torch.library.Library("ngraph", "DEF")
    library.define(f"recurrent{SCHEMA} -> (Tensor, Tensor, Tensor)")
    library.define(f"recurrent_backward{SLOPES} -> Tensor[]")
    library.impl("recurrent", eager, "CPU")
    library.impl("recurrent_backward", eager_backward, "CPU")
    torch.library.register_fake("ngraph::recurrent", shapes, lib=library)
    torch.library.register_fake(
        "ngraph::recurrent_backward", lambda dy, dh, dc, x, h, c, ws, *how: [torch.empty_like(t) for t in (x, h, c, *ws)], lib=library
    )

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        x, h, c, weights, ctx.kind, ctx.reverse, there = inputs
        ctx.save_for_backward(there, x, h, c, *weights)

    def backward(ctx: Any, dy: torch.Tensor, dh: torch.Tensor, dc: torch.Tensor) -> Any:
        there, x, h, c, *weights = ctx.saved_tensors
        dx, first, cell, *slopes = torch.ops.ngraph.recurrent_backward(dy, dh, dc, x, h, c, weights, ctx.kind, ctx.reverse, there)
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
            y, *ends = torch.ops.ngraph.recurrent(x, h[k], c[k] if c is not None else none, mine, kind, way == 1, there)
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


# ---- their translators --------------------------------------------------------------------------------------------------


def loop(
    n: TorchNode, x: Tensor, h: Tensor, c: Tensor, weights: Sequence[Tensor], kind: str, reverse: bool, there: Tensor | None
) -> list[Tensor]:
    """The states of all steps, the last state and the last c: one product with all inputs, then one loop.

    Where a sequence has no step, its state stays, and 0 stands among those of all steps.
    """
    g, gates = n.g, GATES[kind]
    time, batch, inside = (x := g.full(x)).dims
    hidden = g.number(weights[1].shape[0]) // gates
    w, r = (g.full(g.reshape(t, [gates, hidden, t.shape[-1]])) for t in weights[:2])
    G, H, K = g.fresh(gates), g.fresh(hidden), g.fresh(r.shape[-1])
    w, r = g.renamed(w, [G, H, inside]), g.renamed(r, [G, H, K])
    biases = [g.renamed(g.full(g.reshape(b, [gates, hidden])), [G, H]).op for b in weights[2:4]] if len(weights) >= 4 else []
    projected = weights[-1] if len(weights) in (3, 5) else None
    P = g.fresh(projected.shape[0]) if projected is not None else H
    project = None if projected is None else g.renamed(g.full(projected), [P, H]).op
    xg = multiplied(x.op, w.op, (inside,))
    for b in biases[: 1 if kind == "gru" else 2]:
        xg = xg + b
    start = [broadcast(g.renamed(g.full(h), [batch, P]).op, [batch, P])]
    if kind == "lstm":
        start.append(broadcast(g.renamed(g.full(c), [batch, H]).op, [batch, H]))
    cell = TorchCell(kind, G, P, K, r.op, biases[1] if kind == "gru" and biases else None, project, H)

    held = None if there is None else g.renamed(g.full(there), [time, batch]).op

    def step(carry: Any, xs: Any) -> tuple[Any, Op]:
        new = [broadcast(s, old.axes) for s, old in zip(cell.step(list(carry), xs[0]), start, strict=True)]
        if held is None:
            return tuple(new), new[0]
        return tuple([e.where(xs[1], s, old) for s, old in zip(new, carry, strict=True)]), e.where(xs[1], new[0], 0.0)

    after, ys = scan(step, tuple(start), (xg,) if held is None else (xg, held), time, reverse=reverse)
    ends = [g.made(s, [batch, d]) for s, d in zip(after, (P, H), strict=False)]
    return [g.made(ys, [time, batch, P]), ends[0], ends[1] if kind == "lstm" else c]


class TorchCell:
    """One step of a layer: from the state, and the inputs' part of the gates, to the next state."""

    def __init__(self, kind: str, G: Axis, P: Axis, K: Axis, r: Op, bias: Op | None, project: Op | None, H: Axis):
        self.kind, self.G, self.P, self.K, self.r, self.bias, self.project, self.H = kind, G, P, K, r, bias, project, H

    def step(self, state: list[Op], xg: Op) -> list[Op]:
        hidden = multiplied(rename_record.build(state[0], to=((self.P, self.K),)), self.r, (self.K,))
        if self.bias is not None:
            hidden = hidden + self.bias
        if self.kind == "gru":
            (rx, zx, nx), (rh, zh, nh) = ([gate(t, self.G, k) for k in range(3)] for t in (xg, hidden))
            z = e.sigmoid(zx + zh)
            return [(1.0 - z) * e.tanh(nx + e.sigmoid(rx + rh) * nh) + z * state[0]]
        total = xg + hidden
        if self.kind != "lstm":
            made = gate(total, self.G, 0)
            return [e.tanh(made) if self.kind == "rnn_tanh" else e.maximum(made, 0.0)]
        i, f, s, o = (gate(total, self.G, k) for k in range(4))
        cell = e.sigmoid(f) * state[1] + e.sigmoid(i) * e.tanh(s)
        h = e.sigmoid(o) * e.tanh(cell)
        return [h if self.project is None else multiplied(h, self.project, (self.H,)), cell]


@translates("ngraph.recurrent")
def recurrent(
    n: TorchNode, x: Tensor, h: Tensor, c: Tensor, weights: Sequence[Tensor], kind: str, reverse: bool, there: Tensor | None
) -> tuple[Tensor, ...]:
    wide = kinds.wide(x.dtype)
    given = [n.of(t, wide) for t in (x, h, c, *weights)]
    return tuple([n.give(t) for t in loop(n, given[0], given[1], given[2], given[3:], kind, reverse, there)])


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
) -> list[Tensor]:
    wide = kinds.wide(x.dtype)
    given = [n.of(t, wide) for t in (x, h, c, *weights)]
    outs = 3 if kind == "lstm" else 2
    leaves = given if kind == "lstm" else [*given[:2], *given[3:]]

    def forward(*ts: Tensor) -> list[Tensor]:
        x, h, *rest = ts
        cell, ws = (rest[0], rest[1:]) if kind == "lstm" else (c, rest)
        return loop(n, x, h, cell, ws, kind, reverse, there)[:outs]

    found = pullback_of_many(n, forward, leaves, [n.of(t, wide) for t in (dy, dh, dc)[:outs]])
    if kind != "lstm":
        found.insert(2, n.of(dc, wide))
    return [n.of(t, kinds.OURS[v.dtype]) for t, v in zip(found, n.val, strict=True)]
