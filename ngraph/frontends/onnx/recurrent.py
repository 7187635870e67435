"""Translators of RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional import recurrent
from ngraph.frontends.positional.elementwise import ACTIVATIONS, activation
from ngraph.frontends.positional.recurrent import Recurrence
from ngraph.frontends.positional.shapes import check_dims, permuted
from ngraph.frontends.positional.values import Tensor, Value
from ngraph.op_graph.op import Op

DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


def activations(n: Any, kind: str, directions: int) -> list[list[Callable[[Op], Op]]]:
    """The functions of each direction; numbers come from two lists, to those that take one, in order."""
    rest = [list(n.attr("activation_alpha") or []), list(n.attr("activation_beta") or [])]
    made = []
    for name in n.attr("activations") or DEFAULTS[kind] * directions:
        _, numbers = ACTIVATIONS.get(name.lower(), (None, ()))
        made.append(activation(name, [given.pop(0) if given else number for given, number in zip(rest, numbers, strict=False)]))
    each = len(made) // directions
    return [made[k * each : (k + 1) * each] for k in range(directions)]


@translates("RNN", "GRU", "LSTM")
def layer(n: Any, *values: Value) -> tuple[Tensor, ...]:
    return recurrent_layer(n, n.op, *values)


def recurrent_layer(n: Any, kind: str, *values: Value) -> tuple[Tensor, ...]:
    """A layer of this kind, as a node's attributes say."""
    x, w, r, bias, lengths, first_h, first_c, peephole = n.inputs(values, 3, 8)
    g, t = n.g, n.g.tensor(x)
    by_batch = n.attr("layout", 0)
    check_dims(g, t, "the input", *(("batch", "steps") if by_batch else ("steps", "batch")), "width")
    if by_batch:
        t = permuted(t, 1, 0, 2)
        first_h, first_c = (None if v is None else permuted(g.tensor(v), 1, 0, 2) for v in (first_h, first_c))
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[n.attr("direction", "forward")]
    hidden, flags = (
        n.attr("hidden_size") or g.number(r.shape[-1]),
        (bool(n.attr(name, 0)) for name in ("input_forget", "linear_before_reset")),
    )
    how = Recurrence(kind, hidden, backwards, activations(n, kind, len(backwards)), n.attr("clip"), *flags)
    first = (first_h, first_c) if kind == "LSTM" else (first_h,)
    y, *ends = recurrent.recurrent(g, how, t, w, r, bias, lengths, first, peephole)
    return (permuted(y, 2, 0, 1, 3), *(permuted(v, 1, 0, 2) for v in ends)) if by_batch else (y, *ends)
