"""Layers that PyTorch's transformer modules call as one op in inference, compiled and exported, beside eager."""

import numpy as np
import pytest
import torch
from torch import nn

import ngraph as ng
from ngraph.frontends.torch import backend, report, reset

BATCH, TIME, WIDTH = 3, 5, 8
PADDING = torch.arange(TIME) >= torch.tensor([[5], [3], [4]])
FUTURE = torch.ones(TIME, TIME, dtype=torch.bool).triu(1)
MASKS = {
    "none": {},
    "padding": {"src_key_padding_mask": PADDING},
    "future": {"mask": FUTURE},
    "both": {"src_key_padding_mask": PADDING, "mask": FUTURE},
}


def compiled(function, dynamic=False):
    torch._dynamo.reset()
    reset()
    return torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic, options={"fallback": "error"})


def encoder(norm_first, activation):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 12, activation=activation, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * 0.5)
    return model


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize(("norm_first", "activation"), [(False, "relu"), (True, "gelu"), (False, "gelu")])
def test_an_encoder_in_inference(norm_first, activation, masks):
    model, x = encoder(norm_first, activation), torch.randn(BATCH, TIME, WIDTH)
    with torch.no_grad():
        torch.testing.assert_close(compiled(model)(x, **MASKS[masks]), model(x, **MASKS[masks]), rtol=1e-4, atol=1e-5)
    assert report().ours


@pytest.mark.parametrize("dynamic", [False, True], ids=["known", "open"])
def test_the_ops_themselves(dynamic):
    """Their masks have three types, and scores of a query without a key are NaN."""
    model, aten = encoder(False, "relu").layers[0], torch.ops.aten
    given = (WIDTH, 2, model.self_attn.in_proj_weight, model.self_attn.in_proj_bias)
    given = (*given, model.self_attn.out_proj.weight, model.self_attn.out_proj.bias)
    nothing = torch.ones_like(PADDING[:1]).expand(BATCH, TIME)
    both = (PADDING[:, None, None] | FUTURE).expand(BATCH, 2, TIME, TIME)
    for mask, kind in ((None, None), (FUTURE, 0), (PADDING, 1), (both, 2), (nothing, 1)):
        for weights, mean in ((True, True), (True, False), (False, True)):

            def attention(x, mask, kind=kind, weights=weights, mean=mean):
                return aten._native_multi_head_attention(x, x, x, *given, mask, weights, mean, kind)[: 1 + weights]

            x = torch.randn(BATCH, TIME, WIDTH)
            with torch.no_grad():
                found, want = compiled(attention, dynamic)(x, mask), attention(x, mask)
            torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert report().ours


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = encoder(False, "relu").layers[0].self_attn

    def forward(self, x, padding):
        m = self.layer
        given = (WIDTH, 2, m.in_proj_weight, m.in_proj_bias, m.out_proj.weight, m.out_proj.bias)
        return torch.ops.aten._native_multi_head_attention(x, x, x, *given, padding, True, True, 1)


def test_an_exported_layer():
    model, x = Attention(), torch.randn(BATCH, TIME, WIDTH)
    with torch.no_grad():
        program, want = torch.export.export(model, (x, PADDING)), model(x, PADDING)
    found = ng.torch.load(program).run({"x": x.numpy(), "padding": PADDING.numpy()})
    for ours, theirs in zip(found.values(), want, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-4, atol=1e-5)


def test_an_exported_bag_of_embeddings():
    torch.manual_seed(0)
    model, words, starts = nn.EmbeddingBag(9, 4, mode="mean"), torch.tensor([1, 3, 3, 8, 0]), torch.tensor([0, 2, 2])
    program = torch.export.export(model, (words, starts))
    (found,) = ng.torch.load(program).run({"input": words.numpy(), "offsets": starts.numpy()}).values()
    np.testing.assert_allclose(found, model(words, starts).detach().numpy(), rtol=1e-5)
