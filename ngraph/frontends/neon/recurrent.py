"""Recurrent layers: cells, and one function that runs a cell over time, `over_time`, a scan: 150 steps compile like one.

A cell has `project`, computed for all steps at once, and `step`, which depends on the previous step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

import numpy as np

import ngraph as ng
from ngraph.errors import AxisError
from ngraph.frontends.neon.activations import Logistic, Tanh
from ngraph.frontends.neon.axis import out_axis, recurrent_axis
from ngraph.frontends.neon.bounds import COUNT, check
from ngraph.frontends.neon.calls import arguments_of, public, refuse, wrong_kind
from ngraph.frontends.neon.initializers import first_value
from ngraph.frontends.neon.layer import Layer, computed, scoped
from ngraph.frontends.neon.layers import norm_of
from ngraph.op_graph.arguments import shown
from ngraph.op_graph.axes import Axes, Axis, make_axis, show_axes
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import show_input

States = dict[str, Op]


class BaseRNNCell(Layer):
    """Base of cells. A call takes one step: (input, states) -> (output, states); `states` names them.

    A user's cell defines `project(x)` and `step(projected, states)`, with weights from `self.parameter`.
    """

    states: tuple[str, ...] = ("h",)
    gates: tuple[str, ...] = ("h",)

    def __init__(
        self,
        nout: int,
        init: Any,
        init_h2h: Any = None,
        bias_init: Any = None,
        activation: Callable[[Op], Op] | None = None,
        batch_norm: Any = False,
        reset_cells: bool = True,
        name: str | None = None,
    ):
        super().__init__(name)
        check(type(self).__name__, COUNT, nout=nout)
        self.nout, self.init, self.bias_init = nout, init, bias_init
        self.init_h2h = init if init_h2h is None else init_h2h
        self.activation = Tanh() if activation is None else activation
        self.batch_norm = norm_of(batch_norm, bias_init, type(self).__name__)
        self.reset_cells = reset_cells

    # parts of a cell
    def hidden(self, x: Op) -> Axis:
        """Returns the axis of the cell's output: named as the input's only feature axis, else F."""
        return out_axis(x, self.nout)

    def _gate(self) -> Axes:
        return Axes([make_axis(len(self.gates), name="gate")]) if len(self.gates) > 1 else Axes()

    def _each_gate(self, init: Any, name: str) -> Any:
        """Returns initial values drawn for each gate separately, as for a weight of its own."""
        if not self._gate() or not callable(init):
            return init
        return lambda axes: np.stack([first_value(init, f"{self.path}/{name}_{g}")(axes[1:]) for g in self.gates])

    def project(self, x: Op) -> Any:
        """Returns W_x x + b for all steps at once, with batch norm."""
        x = computed(x)
        hidden, gate = self.hidden(x), self._gate()
        ins = x.axes.feature_axes()
        y = ng.dot(self.parameter("W_x", [*gate, *Axes.linear_map_axes(ins, [hidden])], self._each_gate(self.init, "W_x")), x)
        if self.batch_norm is not None:
            return self.batch_norm(y)
        return y + self.parameter("b", [*gate, hidden], self._first_bias())

    def _first_bias(self) -> Any:
        return self.bias_init

    def recur(self, h: Op) -> Op:
        """Returns W_h h."""
        hidden = h.axes.feature_axes()
        return ng.dot(
            self.parameter("W_h", [*self._gate(), *Axes.linear_map_axes(hidden, hidden)], self._each_gate(self.init_h2h, "W_h")), h
        )

    def step(self, projected: Any, states: States) -> tuple[Op, States]:
        raise NotImplementedError(f"{type(self).__name__} has no step")

    # states
    def initialize_states(self, x: Op, reset_cells: bool | None = None) -> States:
        """Returns zeros; or, where cells are not reset, the state carried from call to call: see `Layer.carried`."""
        axes = Axes([*(a for a in x.axes if not a.is_recurrent and a not in x.axes.feature_axes()), self.hidden(x)])
        if self.reset_cells if reset_cells is None else reset_cells:
            zero = ng.constant(0.0, dtype=computed(x).dtype)
            return {n: ng.broadcast(zero, axes) for n in self.states}
        open_ = [a.label for a in axes if a.length is None]
        if open_:
            raise AxisError(
                f"{self.path} keeps its state from call to call, so needs the length of {', '.join(open_)}",
                fix="set it before the call, as in ax.N.length = batch_size, or take reset_cells=True",
            )
        return {n: self.carried(f"{n}_init", axes) for n in self.states}

    @scoped
    def __call__(self, in_obj: Op, states: States | None = None) -> tuple[Op, States]:
        return self.step(self.project(in_obj), self.initialize_states(in_obj) if states is None else states)

    def _arguments(self) -> str:
        return f"{self.nout}"


class RNNCell(BaseRNNCell):
    """h = activation(W_x x + W_h h + b). init: initial values of W_x; init_h2h: of W_h, `init` by default."""

    def step(self, projected: Any, states: States) -> tuple[Op, States]:
        h = self.activation(projected + self.recur(states["h"]))
        return h, {"h": h}


class LSTMCell(BaseRNNCell):
    """Long short-term memory: c = f * c + i * g, h = o * activation(c). The gates' weights lie along the axis `gate`: i, f, o, g.

    gate_activation: for i, f and o, Logistic by default; activation: for g and c, Tanh by default. forget_bias: added
    to the initial bias of f; above 0 it remembers from the start. Source: S. Hochreiter, J. Schmidhuber, "Long short-term memory" (1997).
    """

    states, gates = ("h", "c"), ("i", "f", "o", "g")

    def __init__(self, *args: Any, gate_activation: Callable[[Op], Op] | None = None, forget_bias: float = 0.0, **options: Any):
        super().__init__(*args, **options)
        self.gate_activation = Logistic() if gate_activation is None else gate_activation
        if forget_bias and self.batch_norm is not None:
            why = f"batch_norm has a shift of its own, so forget_bias={forget_bias!r} would do nothing"
            raise refuse(type(self).__name__, why, "leave out forget_bias, or batch_norm")
        self.forget_bias = forget_bias

    def _first_bias(self) -> Any:
        if not self.forget_bias:
            return self.bias_init
        own = first_value(self.bias_init, f"{self.path}/b")
        more = np.array([[self.forget_bias if g == "f" else 0.0] for g in self.gates])
        return lambda axes: np.broadcast_to(own(axes) if callable(own) else own, axes.lengths) + more

    def step(self, projected: Any, states: States) -> tuple[Op, States]:
        z = projected + self.recur(states["h"])
        gate = self._gate()[0]
        i, f, o = (self.gate_activation(ng.slice_along_axis(z, gate, k)) for k in range(3))
        c = f * states["c"] + i * self.activation(ng.slice_along_axis(z, gate, 3))
        h = o * self.activation(c)
        return h, {"h": h, "c": c}


class GRUCell(BaseRNNCell):
    """Gated recurrent unit: h = (1 - z) * n + z * h, with n = activation(W_n x + b_n + r * (W_hn h + b_hn)). Gates: r, z, n.

    Source: K. Cho and others, "Learning phrase representations ..." (2014), in the form with one product for all gates.
    """

    gates = ("r", "z", "n")

    def __init__(self, *args: Any, gate_activation: Callable[[Op], Op] | None = None, **options: Any):
        super().__init__(*args, **options)
        self.gate_activation = Logistic() if gate_activation is None else gate_activation

    def step(self, projected: Any, states: States) -> tuple[Op, States]:
        h, gate = states["h"], self._gate()[0]
        again = self.recur(h)
        parts = [(ng.slice_along_axis(projected, gate, k), ng.slice_along_axis(again, gate, k)) for k in range(3)]
        r, z = (self.gate_activation(x + y) for x, y in parts[:2])
        x, y = parts[2]
        n = self.activation(x + r * (y + self.parameter("b_hn", h.axes.feature_axes(), 0.0)))
        h = n + z * (h - n)
        return h, {"h": h}


# ---- over time ----------------------------------------------------------------------------------------------------------


def over_time(cell: BaseRNNCell, x: Op, states: States, backward: bool = False) -> tuple[Op, States]:
    """Returns (outputs along the time axis of x, states after the last step): the cell's steps in one scan."""
    time = recurrent_axis(x, cell.path)
    names = list(states)
    projected = cell.project(x)
    if isinstance(projected, Op):  # features last, as in the states: the order in which a step's products are fast
        inner = projected.axes.feature_axes()
        projected = ng.axes_with_order(projected, [*(a for a in projected.axes if a not in inner), *inner])

    def step(carry: tuple[Op, ...], now: Any) -> tuple[tuple[Op, ...], Op]:
        out, new = cell.step(now, dict(zip(names, carry, strict=True)))
        return tuple(new[n] for n in names), out

    last, outputs = ng.scan(step, tuple(states.values()), projected, time, reverse=backward)
    batch = [a for a in outputs.axes if a.is_batch]
    features = [a for a in outputs.axes if a != time and not a.is_batch]
    return ng.axes_with_order(outputs, [*features, time, *batch]), dict(zip(names, last, strict=True))


def start_states(cell: BaseRNNCell, x: Op, given: Any, reset_cells: bool | None = None) -> States:
    """Returns the initial states: those given (an op for the first, a sequence, or a dict by name), the others from the cell."""
    own = cell.initialize_states(x, reset_cells)
    if given is None:
        return own
    pairs = given if isinstance(given, Mapping) else dict(zip(own, given if isinstance(given, (list, tuple)) else [given], strict=False))
    for n, state in pairs.items():
        if not isinstance(state, Op):
            raise wrong_kind(
                cell.path, f"the state {n} is {shown(state)}, which is not an op", "pass a placeholder, or what another layer gave"
            )
    unknown = [n for n in pairs if n not in own]
    if unknown:
        raise AxisError(f"{cell.path} has no state {', '.join(unknown)}; it has {', '.join(own)}", fix=f"name one of {', '.join(own)}")
    return {n: _fitted(cell, n, pairs[n], s) if n in pairs else s for n, s in own.items()}


def _fitted(cell: BaseRNNCell, name: str, given: Op, own: Op) -> Op:
    """Returns a given state with the cell's axes: its feature axis may have another name."""
    mine, theirs = own.axes.feature_axes(), given.axes.feature_axes()
    if len(mine) != len(theirs) or [len(a) for a in mine] != [a.length for a in theirs]:
        why = f"the state {name} has {show_axes(own.axes)}, and {given.label} has {show_axes(given.axes)}"
        raise AxisError(f"{cell.path}: {why}", details=(show_input(given),), fix="give it a feature axis of this length")
    renamed = ng.map_roles(given, dict(zip(theirs, mine, strict=True))) if mine != theirs else given
    return ng.broadcast(computed(renamed), own.axes)


def run(cell: BaseRNNCell, x: Op, init_states: Any, reset_cells: bool, return_sequence: bool, backward: bool) -> tuple[Op, States]:
    """Initialises states, runs over time, and assigns the states where cells are not reset; common to layers and `unroll`."""
    first = start_states(cell, x, init_states, reset_cells)
    outputs, states = over_time(cell, x, first, backward)
    if not return_sequence:
        time = recurrent_axis(x, cell.path)
        outputs = ng.slice_along_axis(outputs, time, 0 if backward else -1)
    if not reset_cells:
        kept = [ng.assign(variable, states[n]) for n, variable in cell.initialize_states(x, False).items()]
        outputs = ng.sequential([ng.doall(kept), outputs])
    return outputs, states


@public
def unroll(
    cell: BaseRNNCell,
    num_steps: int,
    inputs: Op,
    init_states: Any = None,
    reset_cells: bool = True,
    return_sequence: bool = True,
    reverse_mode: bool = False,
) -> Op:
    """Runs a cell over the time axis of `inputs`, `num_steps` of it; the output has features, time, batch, in that order.

    init_states: an op for the first state, or a dict by name; zeros by default. reset_cells: False keeps the states for the next call.
    return_sequence: False gives the last step's output alone. reverse_mode: from the last step to the first.
    Raises AxisError where the inputs are shorter than num_steps.
    """
    time = recurrent_axis(inputs, "unroll")
    if time.length is not None and time.length != num_steps:
        if time.length < num_steps:
            raise AxisError(
                f"unroll({inputs.label}): {time!r} is shorter than {num_steps} steps", fix=f"take num_steps={time.length} or fewer"
            )
        inputs = ng.slice_along_axis(inputs, time, slice(0, num_steps))
    with cell.scope():
        outputs, _ = run(cell, inputs, init_states, reset_cells, return_sequence, reverse_mode)
    cell.inputs.append(inputs)
    cell.outputs.append(outputs)
    return outputs


class _Recurrent(Layer):
    """A cell run over time, as a layer."""

    cell_type: type[BaseRNNCell]

    def __init__(
        self,
        nout: int,
        init: Any,
        init_inner: Any = None,
        activation: Callable[[Op], Op] | None = None,
        batch_norm: Any = False,
        reset_cells: bool = True,
        return_sequence: bool = True,
        backward: bool = False,
        name: str | None = None,
        **cell_options: Any,
    ):
        super().__init__(name)
        self.nout, self.reset_cells, self.return_sequence, self.backward = nout, reset_cells, return_sequence, backward
        self.cell = self.cell_type(
            nout, init, init_inner, activation=activation, batch_norm=batch_norm, reset_cells=reset_cells, **cell_options
        ).named("cell")

    @classmethod
    def _further(cls) -> dict[str, Parameter]:
        cell: Any = cls.cell_type
        return {name: p for name, p in arguments_of(cell, cell).items() if name != "init_h2h"}  # which is init_inner here

    def _run(self, in_obj: Op, init_state: Any) -> tuple[Op, States]:
        with self.cell.scope():
            return run(self.cell, in_obj, init_state, self.reset_cells, self.return_sequence, self.backward)

    @scoped
    def __call__(self, in_obj: Op, init_state: Any = None) -> Op:
        return self._run(in_obj, init_state)[0]

    def _arguments(self) -> str:
        flags = [n for n, on in (("backward", self.backward), ("last", not self.return_sequence), ("stateful", not self.reset_cells)) if on]
        return ", ".join([f"{self.nout}", *flags])


class Recurrent(_Recurrent):
    """h = activation(W_x x + W_h h + b) over the time axis of x; the output is [feature, REC, N].

    nout: number of output features. init: initial values of the input's weights; init_inner: of the others, `init` by default.
    activation: Tanh by default. batch_norm: of W_x x. reset_cells: True starts each call at zeros, False at the end of the call before;
    that state is kept in the transformer and not trained. return_sequence: False gives the last step alone: [feature, N].
    backward: from the last step to the first. Call: (x, init_state=None).
    """

    cell_type = RNNCell


class GRU(_Recurrent):
    """Gated recurrent units over time; arguments as for Recurrent, and gate_activation. See GRUCell."""

    cell_type = GRUCell


class LSTM(_Recurrent):
    """Long short-term memory over time; arguments as for Recurrent, and gate_activation. See LSTMCell.

    Call: (x, init_state=None, return_cell_state=False); init_state is h, or (h, c), or a dict of them. With return_cell_state it
    returns (output, {"h": ..., "c": ...}), the states after the last step.
    """

    cell_type = LSTMCell

    @scoped
    def __call__(self, in_obj: Op, init_state: Any = None, return_cell_state: bool = False) -> Any:
        outputs, states = self._run(in_obj, init_state)
        return (outputs, states) if return_cell_state else outputs


class BiRNN(Layer):
    """Two recurrent layers, forwards and backwards in time. The result is a pair, or their sum, or both along one feature axis.

    Arguments as for Recurrent, but that reset_cells is False by default, as upstream's: both directions start where the call before ended.
    sum_out, concat_out: at most one of them. cell: Recurrent, LSTM or GRU.
    init_state, in the call: one for both, or a pair.
    """

    def __init__(
        self,
        nout: int,
        init: Any,
        init_inner: Any = None,
        activation: Callable[[Op], Op] | None = None,
        batch_norm: Any = False,
        reset_cells: bool = False,
        return_sequence: bool = True,
        sum_out: bool = False,
        concat_out: bool = False,
        name: str | None = None,
        cell: type[_Recurrent] = Recurrent,
    ):
        super().__init__(name)
        if sum_out and concat_out:
            raise refuse("BiRNN", "at most one of sum_out and concat_out", "leave out one of the two")
        self.sum_out, self.concat_out = sum_out, concat_out
        both = (
            cell(nout, init, init_inner, activation, batch_norm if isinstance(batch_norm, bool) else True, reset_cells, return_sequence, b)
            for b in (False, True)
        )
        self.fwd_rnn, self.bwd_rnn = (layer.named(n) for layer, n in zip(both, ("forward", "backward"), strict=True))

    @scoped
    def __call__(self, in_obj: Any, init_state: Any = None) -> Any:
        x = in_obj if isinstance(in_obj, (list, tuple)) else (in_obj, in_obj)
        states = init_state if isinstance(init_state, (list, tuple)) else (init_state, init_state)
        pair = self.fwd_rnn(x[0], states[0]), self.bwd_rnn(x[1], states[1])
        if self.sum_out:
            return pair[0] + pair[1]
        return ng.concat_along_axis(pair, pair[0].axes.feature_axes()[0]) if self.concat_out else pair

    def _arguments(self) -> str:
        return self.fwd_rnn._arguments() + (", sum" if self.sum_out else ", concat" if self.concat_out else "")
