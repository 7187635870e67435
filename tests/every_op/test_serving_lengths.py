"""The kernels of models that serve lengths that change, each buffer between fences, at every length: small models of the same layers.

Here are some lengths, and results are those of ONNX Runtime. `SERVING=all` takes every length from 1 to 70; `SERVING=PATHS.json`, a file of
{name: path}, takes the models of bench/serving.py themselves too, between bytes that are looked at and beside pages that end the process:
those that its `found` exports lie in out/serving, where the file does not name them (`make fences`).
"""

import json
import os
from functools import partial

import numpy as np
import pytest
from fences import fenced

import ngraph as ng
import ngraph.transformers as ngt

ort = pytest.importorskip("onnxruntime")
ASKED = os.environ.get("SERVING", "")
LENGTHS = range(1, 71) if ASKED else (1, 2, 7, 16, 17, 33, 50, 70)
PATHS = json.loads(open(ASKED, encoding="utf-8").read()) if os.path.exists(ASKED) else {}
BENCH = os.path.join(os.path.dirname(__file__), "..", "..", "bench")
TOKENS, PICTURE, CHUNKS = ("input_ids", "attention_mask"), "pixel_values", {"h": (1, 1, 128), "c": (1, 1, 128)}


def bert(draw, n, most=3, words=61):
    batch = 1 + n % most
    return {"input_ids": draw.integers(0, words, (batch, n)), "attention_mask": np.ones((batch, n), np.int64)}


def gpt2(draw, n, layers=2, heads=3, width=12, words=61):
    past = {f"past.{k}": draw.standard_normal((1, heads, n - 1, width)).astype("f") for k in range(2 * layers)}
    return {"input_ids": draw.integers(0, words, (1, 1)), **past}


def picture(draw, n):
    return {"pixel_values": draw.standard_normal((n % 9 + 1, 3, 32, 32)).astype("f")}


def photo(draw, n):
    return {"pixel_values": draw.standard_normal((n, 3, 224, 224)).astype("f")}


SMALL = {"bert": bert, "gpt2": gpt2, "resnet": picture, "mobilenet": picture}
MADE = {  # of bench/serving_models.py
    "bert": partial(bert, most=8, words=30000),
    "gpt2": partial(gpt2, layers=12, heads=12, width=64, words=50000),
    "resnet50": photo,
    "mobilenet": photo,
}
MOST = {"resnet50": 16, "mobilenet": 33}  # pictures: activations, each in memory of its own, take 4 GB there
REAL = {
    "ocr_rec_v4": lambda draw, n: {"x": draw.standard_normal((1, 3, 48, 8 * n + n % 8)).astype("f")},
    "ocr_det_v4": lambda draw, n: {"x": draw.standard_normal((1, 3, 32 * (n % 5 + 1), 32 * (n % 7 + 1))).astype("f")},
    "silero_seq": lambda draw, n: {
        "input": draw.standard_normal((n, 576)).astype("f"),
        **{name: np.zeros(shape, "f") for name, shape in CHUNKS.items()},
    },
}


def exported(name, path):
    """Exports a small model of a kind with dynamic axes, as bench/serving_models.py exports the large ones."""
    import torch
    import transformers as hf
    from serving_models import Decoder, Outputs, export, seeded

    small = {"vocab_size": 61, "initializer_range": 0.2}
    eager = {"attn_implementation": "eager"}
    tokens, past = torch.randint(0, 61, (2, 12)), torch.export.Dim("past")
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    if name == "bert":
        sizes = {"hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 72}
        model = Outputs(seeded(lambda: hf.BertModel(hf.BertConfig(**small, **sizes, **eager))), TOKENS)
        export(model, (tokens, torch.ones_like(tokens)), path, list(TOKENS), {"tensors": ({0: batch, 1: length},) * 2})
    elif name == "gpt2":
        config = hf.GPT2Config(**small, n_positions=80, n_embd=36, n_layer=2, n_head=3, **eager)
        cache = [torch.randn(1, 3, 7, 12) for _ in range(4)]
        names = [f"past.{k}" for k in range(4)]
        dims, outputs = {"tokens": {}, "past": tuple([{2: past}] * 4)}, ["scores", *[f"new.{k}" for k in range(4)]]
        export(Decoder(seeded(lambda: hf.GPT2LMHeadModel(config))), (tokens[:1, :1], *cache), path, ["input_ids", *names], dims, outputs)
    else:
        if name == "resnet":
            config = hf.ResNetConfig(embedding_size=16, hidden_sizes=[24, 40], depths=[1, 1], num_labels=10)
            model = seeded(lambda: hf.ResNetForImageClassification(config))
        else:
            config = hf.MobileNetV2Config(depth_multiplier=0.35, num_labels=10, image_size=32)
            model = seeded(lambda: hf.MobileNetV2ForImageClassification(config))
        export(Outputs(model, (PICTURE,)), (torch.randn(2, 3, 32, 32),), path, [PICTURE], {"tensors": ({0: batch},)})


def checked(path, feeds, side=None, lengths=LENGTHS):
    """Compares a model with ONNX Runtime at all lengths, between fences; one compilation serves them."""
    peer = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    draw = np.random.default_rng(0)
    with fenced(side), ngt.allocate_transformer("cpu") as t:
        model = ng.onnx.load(path, transformer=t)
        for n in lengths:
            given = feeds(draw, n)
            for got, wanted in zip(model.run(None, given), peer.run(None, given), strict=True):
                assert np.shape(got) == wanted.shape
                room = 1e-3 * max(1.0, np.abs(wanted).max(initial=0))
                assert np.allclose(got, wanted, rtol=1e-3, atol=room), (n, np.abs(got - wanted).max())
        for call, _ in model.reader.computations(model.about.bound(given)):
            assert len(call.native.codes) <= 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("serving")


@pytest.mark.parametrize("name", SMALL)
def test_models_stay_inside(name, folder, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(BENCH)
    path = str(folder / f"{name}.onnx")
    exported(name, path)
    checked(path, SMALL[name])


if PATHS:

    @pytest.mark.parametrize("side", [None, "before", "behind"], ids=str)
    @pytest.mark.parametrize("name", [name for name in (*REAL, *MADE) if name in PATHS or name in MADE])
    def test_models_of_full_size_stay_inside(name, side, monkeypatch):
        monkeypatch.syspath_prepend(BENCH)
        import serving_models

        path = PATHS.get(name) or serving_models.found(name, os.path.join("out", "serving"))
        checked(path, {**REAL, **MADE}[name], side, range(1, 1 + MOST.get(name, 70)))
