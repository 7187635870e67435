"""Recurrent loops of Keras: any cell as a scan, and LSTM and GRU with their inputs' products in front of it."""

from __future__ import annotations

from typing import Any

from keras.src import activations, tree

from ngraph.keras import numpy
from ngraph.keras.convert import cast, convert_to_tensor
from ngraph.keras.loops import scan


def _turned(x: Any) -> Any:
    """Returns a tensor with batch and time exchanged."""
    return numpy.swapaxes(convert_to_tensor(x), 0, 1)


def rnn(
    step_function: Any,
    inputs: Any,
    initial_states: Any,
    go_backwards: bool = False,
    mask: Any = None,
    constants: Any = None,
    unroll: bool = False,
    input_length: Any = None,
    time_major: bool = False,
    zero_output_for_mask: bool = False,
    return_all_outputs: bool = True,
) -> tuple[Any, Any, Any]:
    """Returns the last output, all outputs and the last states of a cell that goes over time.

    Where the mask is False a step keeps the states, and gives the output before (zeros where zero_output_for_mask is set).
    """
    if not time_major:
        inputs = tree.map_structure(_turned, inputs)
    if mask is not None:
        mask = cast(mask, "bool")
        mask = numpy.expand_dims(mask, -1) if mask.ndim == 2 else mask
        mask = mask if time_major else _turned(mask)
    states = tree.map_structure(convert_to_tensor, list(initial_states))

    def fitted(m: Any, x: Any) -> Any:
        return numpy.reshape(m, (*m.shape, *[1] * (x.ndim - m.ndim))) if x.ndim > m.ndim else m

    def step(carry: Any, slices: Any) -> Any:
        if mask is None:
            output, after = step_function(slices, [*carry, *(constants or ())])
            return list(after), output
        (before, last), (x, keep) = carry, slices
        output, after = step_function(x, [*before, *(constants or ())])
        kept = tree.map_structure(lambda o, p: numpy.where(fitted(keep, o), o, p), output, last)
        shown = tree.map_structure(lambda o: numpy.where(fitted(keep, o), o, numpy.zeros_like(o)), output) if zero_output_for_mask else kept
        after = tree.map_structure(lambda s, n: numpy.where(fitted(keep, s), n, s), list(before), list(after))
        return (after, kept), shown

    carry: Any = states
    if mask is not None:
        output, _ = step_function(tree.map_structure(lambda x: x[0], inputs), [*states, *(constants or ())])
        carry = (states, tree.map_structure(numpy.zeros_like, output))
    carry, outputs = scan(step, carry, inputs if mask is None else (inputs, mask), reverse=go_backwards)
    new_states = carry[0] if mask is not None else carry
    if go_backwards:
        outputs = tree.map_structure(lambda y: numpy.flip(y, 0), outputs)
    last_output = tree.map_structure(lambda y: y[-1], outputs)
    if not return_all_outputs:
        outputs = tree.map_structure(lambda y: y[-1:], outputs)
    if not time_major:
        outputs = tree.map_structure(_turned, outputs)
    return last_output, outputs, new_states


def _plain(mask: Any, unroll: bool) -> None:
    """Raises NotImplementedError for what the generic loop does."""
    if mask is not None or unroll:
        raise NotImplementedError("masks and unrolled loops are the generic loop's")


def _over_time(
    step: Any, states: list[Any], inputs: Any, kernel: Any, bias: Any, return_sequences: bool, go_backwards: bool
) -> tuple[Any, Any, Any]:
    """Returns the last output, the outputs and the states of a cell.

    step: a function of the states and a step's product of the inputs [batch, time, width] with the kernel; the products of all steps are
    computed in front of the loop.
    """
    products = numpy.matmul(_turned(inputs), kernel)
    products = products if bias is None else numpy.add(products, bias)
    states, outputs = scan(step, [convert_to_tensor(s) for s in states], products, reverse=go_backwards)
    outputs = numpy.flip(outputs, 0) if go_backwards else outputs
    last = states[0]
    return last, _turned(outputs) if return_sequences else numpy.expand_dims(last, 1), states


def lstm(
    inputs: Any,
    initial_state_h: Any,
    initial_state_c: Any,
    mask: Any,
    kernel: Any,
    recurrent_kernel: Any,
    bias: Any,
    activation: Any,
    recurrent_activation: Any,
    return_sequences: bool = False,
    go_backwards: bool = False,
    unroll: bool = False,
) -> tuple[Any, Any, Any]:
    """Returns the last output, the outputs and the states of an LSTM without a mask."""
    _plain(mask, unroll)
    act, gate = activations.get(activation), activations.get(recurrent_activation)
    u = convert_to_tensor(recurrent_kernel)

    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, z, o = numpy.split(numpy.add(x, numpy.matmul(h, u)), 4, -1)
        c = numpy.add(numpy.multiply(gate(f), c), numpy.multiply(gate(i), act(z)))
        h = numpy.multiply(gate(o), act(c))
        return [h, c], h

    return _over_time(step, [initial_state_h, initial_state_c], inputs, kernel, bias, return_sequences, go_backwards)


def gru(
    inputs: Any,
    initial_state: Any,
    mask: Any,
    kernel: Any,
    recurrent_kernel: Any,
    bias: Any,
    activation: Any,
    recurrent_activation: Any,
    return_sequences: bool = False,
    go_backwards: bool = False,
    unroll: bool = False,
    reset_after: bool = True,
) -> tuple[Any, Any, Any]:
    """Returns the last output, the outputs and the states of a GRU without a mask."""
    _plain(mask, unroll)
    act, gate = activations.get(activation), activations.get(recurrent_activation)
    u = convert_to_tensor(recurrent_kernel)
    inner = None
    if bias is not None:
        bias = convert_to_tensor(bias)
        bias, inner = (bias[0], bias[1]) if bias.ndim == 2 else (bias, None)
    width = int(u.shape[0])

    def step(carry: Any, x: Any) -> Any:
        (h,) = carry
        xz, xr, xh = numpy.split(x, 3, -1)
        if reset_after:
            made = numpy.matmul(h, u)
            made = made if inner is None else numpy.add(made, inner)
            hz, hr, hh = numpy.split(made, 3, -1)
            z, r = gate(numpy.add(xz, hz)), gate(numpy.add(xr, hr))
            new = act(numpy.add(xh, numpy.multiply(r, hh)))
        else:
            hz, hr = numpy.split(numpy.matmul(h, u[:, : 2 * width]), 2, -1)
            z, r = gate(numpy.add(xz, hz)), gate(numpy.add(xr, hr))
            new = act(numpy.add(xh, numpy.matmul(numpy.multiply(r, h), u[:, 2 * width :])))
        h = numpy.add(numpy.multiply(z, h), numpy.multiply(numpy.subtract(1.0, z), new))
        return [h], h

    return _over_time(step, [initial_state], inputs, kernel, bias, return_sequences, go_backwards)


def bidirectional_lstm(*args: Any, **kwargs: Any) -> Any:
    """Raises NotImplementedError: Keras then runs two loops."""
    raise NotImplementedError("two loops are run one after the other")


bidirectional_gru = bidirectional_lstm


def cudnn_ok(*args: Any, **kwargs: Any) -> bool:
    return False
