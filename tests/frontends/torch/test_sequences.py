"""Packed sequences: packing, recurrent layers over them and unpacking are one graph of ours, equal to eager's in values and derivatives."""

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

import ngraph as ng
from ngraph.frontends.torch import backend

STRICT = {"backend": backend, "fullgraph": True, "options": {"fallback": "error"}}
KINDS = {
    "lstm": lambda first: torch.nn.LSTM(4, 5, 2, bidirectional=True, batch_first=first),
    "projection": lambda first: torch.nn.LSTM(4, 5, 1, proj_size=3, bias=False, batch_first=first),
    "gru": lambda first: torch.nn.GRU(4, 5, bidirectional=True, batch_first=first),
}


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    ng.torch.reset()


def outcome(function, x, lengths, parameters):
    """The results of a call, and the derivatives of all that goes in."""
    x, leaves = x.clone().requires_grad_(), list(parameters)
    results = function(x, lengths)
    loss = sum((k + 1) * (r * r).sum() for k, r in enumerate(results) if r.is_floating_point())
    return [*results, *torch.autograd.grad(loss, [x, *leaves])]


def compare(found, wanted, near=1e-5):
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=near, atol=near)
        assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("kind, first, falling", [("lstm", True, False), ("projection", False, True), ("gru", False, False)])
def test_layers_over_packed_sequences_are_those_of_eager(kind, first, falling):
    model = KINDS[kind](first)

    def run(x, lengths):
        packed = pack_padded_sequence(x, lengths, first, falling)
        y, state = model(packed)
        return *pad_packed_sequence(y, first, -2.0, 7), packed.data, *(state if isinstance(state, tuple) else (state,))

    compiled = torch.compile(run, **STRICT)
    for lengths in ([6, 4, 2], [5, 4, 4], [1, 1, 1]) if falling else ([4, 6, 2], [1, 3, 3]):
        x = torch.randn(3, 6, 4) if first else torch.randn(6, 3, 4)
        lengths = torch.tensor(lengths)
        compare(*[outcome(f, x, lengths, model.parameters()) for f in (compiled, run)])
    assert not ng.torch.report().in_torch and len(ng.torch.report().functions) == 1


def test_all_lengths_of_a_batch_are_one_graph():
    model = torch.nn.GRU(4, 5, batch_first=True)

    def run(x, lengths):
        y, state = model(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        return pad_packed_sequence(y, batch_first=True)[0].sum(1), state

    compiled = torch.compile(run, **STRICT, dynamic=True)
    for batch, steps in ((3, 5), (2, 9), (7, 4)):
        x, lengths = torch.randn(batch, steps, 4), torch.randint(1, steps + 1, (batch,))
        compare(*[outcome(f, x, lengths, model.parameters()) for f in (compiled, run)])
    assert len(ng.torch.report().functions) == 1


def test_a_packed_sequence_goes_in_and_comes_out():
    model, x = torch.nn.LSTM(4, 5), torch.randn(6, 3, 4)
    compiled = torch.compile(model, **STRICT)
    for falling, lengths in ((True, [6, 4, 2]), (False, [2, 6, 6])):
        packed = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=falling)
        state = torch.randn(1, 3, 5), torch.randn(1, 3, 5)
        for given in ((packed,), (packed, state)):
            (ours, ends), (theirs, wanted) = compiled(*given), model(*given)
            assert type(ours) is PackedSequence
            compare([t for t in (*ours, *ends) if t is not None], [t for t in (*theirs, *wanted) if t is not None])
            compare(pad_packed_sequence(ours), pad_packed_sequence(theirs))
    with pytest.raises(RuntimeError, match="as many sequences"):
        compiled(pack_padded_sequence(x, torch.tensor([6, 4, 2])), (torch.randn(1, 2, 5), torch.randn(1, 2, 5)))


def test_sequences_of_a_list_and_rows_without_features():
    def run(*sequences):
        packed = pack_sequence(sequences, enforce_sorted=False)
        return *pad_packed_sequence(PackedSequence(packed.data * 2, *packed[1:]), batch_first=True), packed.batch_sizes

    sequences = torch.randn(2), torch.randn(4), torch.randn(3)
    compare(torch.compile(run, **STRICT)(*sequences), run(*sequences))


def test_lengths_as_a_list():
    model, x = torch.nn.RNN(4, 5, batch_first=True), torch.randn(3, 6, 4)
    compiled = torch.compile(lambda x, lengths: model(pack_padded_sequence(x, lengths, batch_first=True))[1], **STRICT)
    for lengths in ([6, 4, 2], [5, 3, 1]):
        wanted = model(pack_padded_sequence(x, lengths, batch_first=True))[1]
        torch.testing.assert_close(compiled(x, lengths), wanted, rtol=1e-5, atol=1e-5)


def test_dropout_between_layers_is_repeated_by_its_seed():
    model = torch.nn.RNN(4, 5, 2, nonlinearity="relu", dropout=0.5)

    def run(x, lengths):
        y, h = model(pack_padded_sequence(x, lengths))
        return y.data, h

    x, lengths, found = torch.randn(6, 3, 4), torch.tensor([6, 4, 2]), []
    compiled = torch.compile(run, **STRICT)
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(compiled(x, lengths)[0])
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])
    model.eval()
    compare(compiled(x, lengths), run(x, lengths))


def test_lengths_that_cannot_be_packed_are_errors():
    x = torch.randn(6, 3, 4)
    compiled = torch.compile(lambda x, lengths: pack_padded_sequence(x, lengths).data, **STRICT)
    for lengths, said in (([2, 4, 3], "enforce_sorted=False"), ([4, 2, 0], "at least one step"), ([7, 2, 1], "no more than the input")):
        with pytest.raises(RuntimeError, match=said):
            compiled(x, torch.tensor(lengths))
    padded = torch.compile(lambda p: pad_packed_sequence(p, total_length=3)[0], **STRICT)
    with pytest.raises(Exception, match="total_length"):
        padded(pack_padded_sequence(x, torch.tensor([6, 4, 2])))


def test_the_op_that_torch_runs_is_ours():
    """`ngraph::recurrent` as an op of PyTorch's gives what our loop gives, also what it keeps, and so does its derivative."""
    there = torch.tensor([[True, True], [True, True], [True, False]])
    for kind, gates, reverse in (("lstm", 4, True), ("gru", 3, False), ("rnn_tanh", 1, True)):
        weights = [torch.randn(5 * gates, n) for n in (4, 5)]
        given = [torch.randn(3, 2, 4), torch.randn(2, 5), torch.randn(2, 5) if kind == "lstm" else torch.zeros(0)]

        def run(x, h, c, *weights, kind=kind, reverse=reverse):
            return torch.ops.ngraph.recurrent(x, h, c, list(weights), kind, reverse, there)

        found = []
        for function in (run, torch.compile(run, **STRICT)):
            leaves = [t.clone().requires_grad_() for t in (*given, *weights)]
            results = function(*leaves)
            sum((r * r).sum() for r in results[:2]).backward()
            found.append([*[r.detach() for r in results], *[t.grad for t in leaves if t.numel()]])
        compare(*found)


def test_other_backends_pack_as_they_did():
    graphs = []

    def other(gm, inputs):
        graphs.append(gm)
        return gm

    compiled = torch.compile(lambda x, lengths: pack_padded_sequence(x + 1, lengths).data * 2, backend=other)
    x, lengths = torch.randn(6, 3, 4), torch.tensor([6, 4, 2])
    torch.compile(lambda x, lengths: pack_padded_sequence(x, lengths).data, backend=backend)(x, lengths)
    assert torch.equal(compiled(x, lengths), pack_padded_sequence(x + 1, lengths).data * 2)
    assert len(graphs) == 1  # the sum before it
    with torch._dynamo.config.patch(allow_rnn=True):
        torch.compile(torch.nn.GRU(4, 5), backend=other)(pack_padded_sequence(x, lengths))
    assert not any("ngraph" in str(n.target) for gm in graphs for n in gm.graph.nodes)


def test_a_break_between_packing_and_unpacking():
    model = torch.nn.GRU(4, 5)

    def run(x, lengths):
        packed = pack_padded_sequence(x, lengths)
        torch._dynamo.graph_break()
        y, state = model(packed)
        torch._dynamo.graph_break()
        return pad_packed_sequence(y)[0], state

    x, lengths = torch.randn(6, 3, 4), torch.tensor([6, 4, 2])
    compiled = torch.compile(run, backend=backend, options={"fallback": "error"})
    compare(*[outcome(f, x, lengths, model.parameters()) for f in (compiled, run)])
