"""Packed sequences: what PyTorch packs, unpacks and runs recurrent layers over, in ops that Dynamo traces.

PyTorch does both in C++, of which Dynamo makes no graph. The functions here are traced in their place, for our backend alone. A packed
sequence stays PyTorch's: `data` [rows, ...] has the rows of all sequences step by step, the longest sequence first, and `batch_sizes`
[steps] says how many sequences each step has. Both lengths are read from the sequences' lengths when these are known (`item()`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils import rnn
from torch.nn.utils.rnn import PackedSequence

from ngraph.frontends.torch import private
from ngraph.frontends.torch.recurrent import layered

MODULES = {torch.nn.LSTM: ("LSTM",), torch.nn.GRU: ("GRU",), torch.nn.RNN: ("RNN_TANH", "RNN_RELU")}  # with their modes


def pack_padded_sequence(input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True) -> Any:
    """See `torch.nn.utils.rnn.pack_padded_sequence`."""
    lengths = torch.as_tensor(lengths, dtype=torch.int64)
    batch = input.shape[0 if batch_first else 1]
    torch._check(lengths.shape[0] == batch, lambda: "lengths to pack: give one for each sequence of the input")
    order = None
    if not enforce_sorted:
        lengths, order = torch.sort(lengths, descending=True)
        input = input.index_select(0 if batch_first else 1, order)
    x = input.transpose(0, 1) if batch_first else input
    fit = (lengths[-1] > 0).logical_and(lengths[0] <= x.shape[0])
    torch._assert_async(fit, "a sequence to pack has at least one step, and no more than the input")
    if enforce_sorted:
        falls = (lengths[1:] <= lengths[:-1]).all()
        torch._assert_async(falls, "lengths must fall from sequence to sequence; fix: enforce_sorted=False")
    with private.numbers_inside():
        steps, rows = lengths[0].item(), lengths.sum().item()
    sizes = (lengths > torch.arange(steps).unsqueeze(1)).sum(1)
    sizes.ngraph_batch = batch
    return rnn._packed_sequence_init(x[places(sizes, rows, batch)], sizes, order, None)


def places(sizes: torch.Tensor, rows: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the step and the sequence of each packed row, both [rows]. sizes [steps]: how many sequences each step has."""
    ends, row = sizes.cumsum(0), torch.arange(rows)
    step = torch.searchsorted(ends, row, right=True)
    return step, (row - (ends - sizes)[step]).clamp(max=batch - 1)  # what is wrong is said by an assertion, behind it


def many(sequence: Any, state: Any = None) -> Any:
    """Returns how many sequences are packed: known from what packed them or a state [layers, batch, ...], else read from the first step."""
    known = getattr(sequence.batch_sizes, "ngraph_batch", None)
    if known is not None:
        return known
    if sequence.unsorted_indices is not None:
        return sequence.unsorted_indices.shape[0]
    if state is not None:
        batch = state.shape[1]
        torch._assert_async(sequence.batch_sizes[0] == batch, "the state is not of as many sequences as were packed")
        return batch
    with private.numbers_inside():
        return sequence.batch_sizes[0].item()


def padded(data: torch.Tensor, sizes: torch.Tensor, batch: Any, value: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns packed rows as [steps, batch, ...], and whether each sequence has each step; where it has not stands the value."""
    number = torch.arange(batch)
    there = number < sizes.unsqueeze(1)
    found = data[torch.where(there, (sizes.cumsum(0) - sizes).unsqueeze(1) + number, 0)]
    return torch.where(there.reshape(there.shape + (1,) * (data.dim() - 1)), found, value), there


def pad_packed_sequence(
    sequence: Any, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `torch.nn.utils.rnn.pad_packed_sequence`."""
    sizes = sequence.batch_sizes
    if total_length is not None:
        steps = sizes.shape[0]
        torch._check_value(steps <= total_length)
        step = torch.arange(total_length)
        sizes = torch.where(step < steps, sizes[step.clamp(max=steps - 1)], 0)
    y, there = padded(sequence.data, sizes, many(sequence), padding_value)
    lengths = there.sum(0)
    y = y.transpose(0, 1) if batch_first else y
    order = sequence.unsorted_indices
    if order is None:
        return y, lengths
    return y.index_select(0 if batch_first else 1, order), lengths[order]


PLAIN = {kind: private.plain(module.forward) for module, kinds in MODULES.items() for kind in kinds}


def forward(self: Any, input: Any, hx: Any = None) -> Any:
    """The `forward` of a recurrent module: that of PyTorch but for packed sequences.

    Dynamo guards it as if it were PyTorch's, so that it has no closure, and the same defaults.
    """
    if not isinstance(input, PackedSequence) or not private.taking():
        return PLAIN[self.mode](self, input, hx)
    self._update_flat_weights()
    data, sizes, order, back = input
    self.check_input(data, sizes)
    count = self.num_layers * (2 if self.bidirectional else 1)
    h, c = (None, None) if hx is None else hx if self.mode == "LSTM" else (hx, None)
    batch = many(input, h)
    if h is None:
        h = data.new_zeros(count, batch, self.proj_size or self.hidden_size)
        c = data.new_zeros(count, batch, self.hidden_size)
    else:
        self.check_hidden_size(h, (count, batch, self.proj_size or self.hidden_size))
        if c is not None:
            self.check_hidden_size(c, (count, batch, self.hidden_size), "Expected hidden[1] size {}, got {}")
        if order is not None:
            h, c = h.index_select(1, order), None if c is None else c.index_select(1, order)
    x, there = padded(data, sizes, batch, 0.0)
    state = (h, c) if self.mode == "LSTM" else h
    drop, train = self.dropout, self.training
    weights, ways = self._flat_weights, self.bidirectional
    y, *ends = layered(self.mode.lower(), x, state, weights, self.bias, self.num_layers, drop, train, ways, False, there)
    if back is not None:
        ends = [s.index_select(1, back) for s in ends]
    made = PackedSequence(y[places(sizes, data.shape[0], batch)], sizes, order, back)
    return made, tuple(ends) if self.mode == "LSTM" else ends[0]


def taken() -> None:
    """Lets Dynamo trace these functions in place of PyTorch's, for our backend."""
    private.traced_as(rnn.pack_padded_sequence, pack_padded_sequence)
    private.traced_as(rnn.pad_packed_sequence, pad_packed_sequence)
    for module in MODULES:
        private.traced_as(module.forward, forward)
