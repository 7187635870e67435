"""Recurrent layers against torch.nn: values and all gradients, both directions, states given and kept; and a scan beside unrolled steps."""

import numpy as np
import pytest
import torch
from against import compare

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.frontends.neon import (
    GRU,
    LSTM,
    BiRNN,
    GaussianInit,
    GlorotInit,
    Logistic,
    LSTMCell,
    Recurrent,
    RNNCell,
    Tanh,
    UniformInit,
    unroll,
)

IN, OUT, STEPS, BATCH = 4, 3, 6, 2
ORDER = {"lstm": [0, 1, 3, 2], "gru": [0, 1, 2], "rnn": [0]}  # torch's gates, as places among ours: i f g o of i f o g


def axes():
    return [ng.make_axis(IN, name="F"), ng.make_axis(STEPS, name="REC"), ng.make_axis(BATCH, name="N")]


def module(kind, w, prefix="cell/"):
    """torch.nn with our weights, as a function of [F, REC, N] that autograd sees through."""
    made = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[kind](IN, OUT).double()
    stacked = lambda x: torch.cat([x[k] for k in ORDER[kind]]) if kind != "rnn" else x
    bias = torch.zeros_like(stacked(w[prefix + "b"]))
    if kind == "gru":
        bias = torch.cat([bias[: 2 * OUT], w[prefix + "b_hn"]])
    weights = {
        "weight_ih_l0": stacked(w[prefix + "W_x"]),
        "weight_hh_l0": stacked(w[prefix + "W_h"]),
        "bias_ih_l0": stacked(w[prefix + "b"]),
        "bias_hh_l0": bias,
    }
    return lambda x, h=None: torch.func.functional_call(made, weights, (x.permute(1, 2, 0),) if h is None else (x.permute(1, 2, 0), h))


LAYERS = {"lstm": LSTM, "gru": GRU, "rnn": Recurrent}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("sequence", [True, False])
def test_over_time(kind, backward, sequence):
    def theirs(x, w):
        x = x.flip(1) if backward else x
        y, _ = module(kind, w)(x)
        y = y.permute(2, 0, 1)
        y = y.flip(1) if backward else y
        return y if sequence else y[:, 0 if backward else -1]

    layer = LAYERS[kind](OUT, GaussianInit(), backward=backward, return_sequence=sequence)
    compare(layer, theirs, np.random.default_rng(1).normal(size=(IN, STEPS, BATCH)), axes())


@pytest.mark.parametrize("kind", LAYERS)
def test_starting_state(kind):
    start = np.random.default_rng(2).normal(size=(OUT, BATCH))
    layer = LAYERS[kind](OUT, GaussianInit())

    class Started:
        paths = layer.paths

        def __call__(self, x):
            return layer(x, ng.constant(start, [ng.make_axis(OUT, name="other"), x.axes[2]], dtype="float64"))

    def theirs(x, w):
        h = torch.tensor(start).T[None].contiguous()
        return module(kind, w)(x, (h, torch.zeros_like(h)) if kind == "lstm" else h)[0].permute(2, 0, 1)

    compare(Started(), theirs, np.random.default_rng(1).normal(size=(IN, STEPS, BATCH)), axes())


@pytest.mark.parametrize("cell", [Recurrent, LSTM, GRU])
def test_both_directions(cell):
    kind = {Recurrent: "rnn", LSTM: "lstm", GRU: "gru"}[cell]

    def theirs(x, w):
        forward = module(kind, w, "forward/cell/")(x)[0].permute(2, 0, 1)
        back = module(kind, w, "backward/cell/")(x.flip(1))[0].permute(2, 0, 1).flip(1)
        return torch.cat([forward, back])

    layer = BiRNN(OUT, GaussianInit(), reset_cells=True, concat_out=True, cell=cell)
    compare(layer, theirs, np.random.default_rng(1).normal(size=(IN, STEPS, BATCH)), axes())


def test_forgetting_starts_where_it_is_said():
    x = ng.placeholder(axes())
    layer = LSTM(OUT, GlorotInit(), forget_bias=1.0)
    t = ngt.make_transformer()
    t.computation(layer(x), x)
    assert t.get(layer.cell.weights["b"]).tolist() == [[0] * OUT, [1] * OUT, [0] * OUT, [0] * OUT]


@pytest.mark.parametrize("bias", [0.25, [[0.25] * OUT] * 4, lambda axes: np.full(axes.lengths, 0.25), UniformInit(0.25, 0.25)])
def test_a_forget_bias_is_added_to_the_first_bias_that_is_given(bias):
    x = ng.placeholder(axes())
    layer = LSTM(OUT, GlorotInit(), forget_bias=1.0, bias_init=bias)
    t = ngt.make_transformer()
    t.computation(layer(x), x)
    assert t.get(layer.cell.weights["b"]).tolist() == [[0.25] * OUT, [1.25] * OUT, [0.25] * OUT, [0.25] * OUT]


def test_a_forget_bias_beside_batch_norm_is_refused():
    with pytest.raises(ValueError, match="batch_norm.*forget_bias=1.0 would do nothing"):
        LSTM(OUT, GlorotInit(), forget_bias=1.0, batch_norm=True)


def test_a_pair_without_sum_or_concat():
    pair = BiRNN(OUT, GlorotInit(), reset_cells=True)(ng.placeholder(axes()))
    assert len(pair) == 2 and [a.name for a in pair[0].axes] == ["F", "REC", "N"]


def test_state_is_kept_and_not_trained():
    x = ng.placeholder(axes())
    for layer in (Recurrent(OUT, GlorotInit(), reset_cells=False), LSTM(OUT, GlorotInit(), reset_cells=False)):
        y = layer(x, return_cell_state=True)[0] if isinstance(layer, LSTM) else layer(x)
        assert {w.short_name for w in y.variables()} == {"W_x", "W_h", "b"}
        whole = type(layer)(OUT, GlorotInit())
        long = ng.placeholder([x.axes[0], ng.make_axis(2 * STEPS, name="REC"), x.axes[2]])
        z = whole(long)
        t = ngt.make_transformer()
        one, two = t.computation(y, x), t.computation(z, long)
        for name in ("W_x", "W_h", "b"):
            t.set(whole.cell.weights[name], t.get(layer.cell.weights[name]))
        data = np.random.default_rng(3).normal(size=(IN, 2 * STEPS, BATCH)).astype(np.float32)
        pieces = [one(data[:, :STEPS]), one(data[:, STEPS:])]
        np.testing.assert_allclose(np.concatenate(pieces, 1), two(data), atol=1e-6)


@pytest.mark.parametrize("kind", LAYERS)
def test_inference_carries_a_state_of_its_own_for_each_batch_size(kind):
    layer = LAYERS[kind](OUT, GlorotInit(), reset_cells=False)
    x, single = ng.placeholder(axes()), ng.placeholder([*axes()[:2], ng.make_axis(1, name="N")])
    t = ngt.make_transformer()
    train = t.computation(layer(x), x)
    with layer.inference_mode_on():
        test, one = t.computation(layer(x), x), t.computation(layer(single), single)
    assert len(layer.carried_states(inference=False)) == len(layer.cell.states)
    assert len(layer.carried_states()) == 3 * len(layer.cell.states)
    assert not [p for p in layer.paths() if "_init" in p]  # no weights, so files of weights fit other batch sizes
    data = np.random.default_rng(5).normal(size=(IN, STEPS, BATCH)).astype(np.float32)
    first, tested, alone = train(data), test(data), one(data[:, :, :1])
    np.testing.assert_array_equal(tested, first)
    np.testing.assert_allclose(alone, first[:, :, :1], atol=1e-6)
    second = train(data)
    assert not np.allclose(second, first)
    np.testing.assert_array_equal(test(data), second)
    layer.reset_states(t, inference=True)
    np.testing.assert_array_equal(test(data), first)
    assert not np.allclose(train(data), first)
    layer.reset_states(t)
    np.testing.assert_array_equal(train(data), first)


def test_gradients_through_a_carried_state_end_at_the_start_of_the_window():
    """The second window's gradients are those of torch.nn with the first's last state as a number."""
    x = ng.placeholder(axes())
    layer = LSTM(OUT, GaussianInit(0, 0.5), reset_cells=False)
    y = layer(x)
    weights = layer.paths()
    t = ngt.make_transformer()
    run = t.computation([y, *(ng.deriv(ng.sum(y * y, out_axes=()), w) for w in weights.values())], x)
    data = np.random.default_rng(6).normal(size=(2, IN, STEPS, BATCH)).astype(np.float32)
    run(data[0])
    found = run(data[1])
    w = {k: torch.tensor(t.get(v).astype(np.float64), requires_grad=True) for k, v in weights.items()}
    lstm, (one, two) = module("lstm", w), torch.tensor(data.astype(np.float64))
    with torch.no_grad():
        state = lstm(one)[1]
    out = lstm(two, state)[0]
    gradients = torch.autograd.grad((out * out).sum(), list(w.values()))
    np.testing.assert_allclose(found[0], out.detach().permute(2, 0, 1), atol=1e-5)
    for ours, theirs in zip(found[1:], gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_unroll_is_the_steps_one_by_one():
    x = ng.placeholder(axes(), dtype="float32")
    cell = LSTMCell(OUT, GlorotInit(), activation=Tanh(), gate_activation=Logistic())
    scanned = unroll(cell, STEPS, x)
    states, outs = cell.initialize_states(x), []
    for k in range(STEPS):
        out, states = cell(ng.slice_along_axis(x, x.axes[1], k), states)
        outs.append(out)
    data = np.random.default_rng(4).normal(size=(IN, STEPS, BATCH)).astype(np.float32)
    t = ngt.make_transformer()
    whole, *each = t.computation([scanned, *outs], x)(data)
    np.testing.assert_allclose(whole, np.stack(each, 1), atol=1e-6)
    back = t.computation(unroll(cell, STEPS, x, reverse_mode=True), x)(data)
    np.testing.assert_allclose(back, t.computation(scanned, x)(data[:, ::-1])[:, ::-1], atol=1e-6)
    last = t.computation(unroll(cell, STEPS - 2, x, return_sequence=False), x)(data)
    np.testing.assert_allclose(last, whole[:, STEPS - 3], atol=1e-6)


def test_150_steps_are_as_many_program_steps_as_6():
    def size(steps):
        x = ng.placeholder([ng.make_axis(IN, name="F"), ng.make_axis(steps, name="REC"), ng.make_axis(BATCH, name="N")])
        layer = LSTM(OUT, GlorotInit())
        y = ng.sum(layer(x), out_axes=())
        return len(ngt.make_transformer().computation([ng.deriv(y, w) for w in y.variables()], x).program.steps)

    assert size(150) == size(6)


def test_errors_name_layer_and_axes():
    layer = Recurrent(OUT, GlorotInit())
    with pytest.raises(ng.NgraphError, match=r"Recurrent_\d+/cell.*no recurrent axis[\s\S]*fix: name the axis of time REC"):
        layer(ng.placeholder([ng.make_axis(IN, name="F"), ng.make_axis(BATCH, name="N")]))
    with pytest.raises(ng.NgraphError, match="needs the length of N"):
        Recurrent(OUT, GlorotInit(), reset_cells=False)(ng.placeholder([*axes()[:2], ng.make_axis(name="N")]))
    with pytest.raises(ng.NgraphError, match="shorter than 9 steps"):
        unroll(RNNCell(OUT, GlorotInit()), 9, ng.placeholder(axes()))
