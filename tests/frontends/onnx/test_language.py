"""Language and vision models of the package transformers, as PyTorch exports them in both its ways: ONNX Runtime's numbers, PyTorch's
derivatives. Small ones, with random weights."""

import io
import warnings

import numpy as np
import pytest

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")
models = pytest.importorskip("transformers")
pytest.importorskip("onnxscript")

import ngraph as ng  # noqa: E402  needs what is looked for above

WORDS = 99


class Plain(torch.nn.Module):
    """A model of tensors: its first result alone."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=True)[0]


def words(batch, length):
    return torch.randint(0, WORDS, (batch, length))


def masked(batch, length):
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, max(length - 2, 1) :] = 0
    return words(batch, length), mask


def pictures(batch, _):
    return (torch.randn(batch, 3, 32, 32),)


SIZES = {"num_attention_heads": 4, "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 37}


def bert():
    return models.BertModel(models.BertConfig(vocab_size=WORDS, **SIZES)), ("input_ids", "attention_mask"), masked


def gpt2():
    config = models.GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, use_cache=False)
    return models.GPT2LMHeadModel(config), ("input_ids", "attention_mask"), masked


def llama():
    config = models.LlamaConfig(vocab_size=WORDS, num_key_value_heads=2, use_cache=False, **SIZES)
    return models.LlamaForCausalLM(config), ("input_ids", "attention_mask"), masked


def t5():
    config = models.T5Config(vocab_size=WORDS, d_model=32, num_layers=2, num_heads=4, d_ff=37, d_kv=8)
    return models.T5EncoderModel(config), ("input_ids",), lambda b, t: (words(b, t),)


def vit():
    return models.ViTModel(models.ViTConfig(image_size=32, patch_size=8, **SIZES)), ("pixel_values",), pictures


def made(make):
    torch.manual_seed(0)
    model, names, inputs = make()
    with torch.no_grad():
        for p in model.parameters():  # no two alike: the exporter makes one of them
            p.add_(0.05 * torch.randn_like(p))
    return Plain(model.eval(), names).eval(), names, inputs


def exported(network, names, example, dynamo, **how):
    axes = {0: "batch", 1: "length"} if example[0].ndim == 2 else {0: "batch"}
    out, given = io.BytesIO(), {"input_names": list(names), "output_names": ["y"], **how}
    with warnings.catch_warnings(action="ignore"):
        if dynamo:
            shapes = tuple(dict.fromkeys(axes, torch.export.Dim.AUTO) for _ in names)
            torch.onnx.export(network, example, dynamo=True, dynamic_shapes=(shapes,), verbose=False, **given).save(out)
        else:
            axes = dict.fromkeys(names, axes)
            torch.onnx.export(network, example, out, dynamo=False, opset_version=17, dynamic_axes=axes, **given)
    return out.getvalue()


def session(content, **settings):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for name, value in settings.items():
        setattr(options, name, value)
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("make", "dynamo"),
    [*[(make, False) for make in (bert, gpt2, llama, t5, vit)], *[(make, True) for make in (bert, gpt2, llama, vit)]],  # T5 it cannot
    ids=lambda x: {False: "traced", True: "dynamo"}[x] if isinstance(x, bool) else x.__name__,
)
def test_other_lengths_are_one_reading(make, dynamo):
    network, names, inputs = made(make)
    content = exported(network, names, inputs(2, 7), dynamo)
    theirs, mine = session(content), ng.onnx.load(content)
    for batch, length in ((2, 7), (3, 9), (4, 12)):
        feeds = {port.name: x.numpy() for port, x in zip(theirs.get_inputs(), inputs(batch, length), strict=True)}
        (got,), (wanted,) = mine.run(None, feeds), theirs.run(None, feeds)
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)
    assert mine.readings == 1


def test_training_a_bert_from_its_file():
    """Its weights by name are variables, whose derivatives are PyTorch's; steps along them lower the loss, and the model sees that."""
    network, names, inputs = made(bert)
    example = masked(3, 6)
    content = exported(network, names, example, False, do_constant_folding=False)
    m = ng.onnx.load(content, trainable="*")
    graph = m.graph({name: x.numpy() for name, x in zip(names, example, strict=True)})
    y = graph.outputs["y"]
    loss = ng.mean(y * y * y, out_axes=())
    theirs = {f"model.{k}" if f"model.{k}" in graph.variables else k: p for k, p in network.named_parameters()}
    weights = {name: v for name, v in graph.variables.items() if name in theirs}
    assert len(weights) > 30 and "model.embeddings.word_embeddings.weight" in weights
    slopes = [ng.deriv(loss, v) for v in weights.values()]
    steps = [ng.assign(v, v - 0.01 * slope) for v, slope in zip(weights.values(), slopes, strict=True)]
    step, given = m.transformer.computation([loss, *slopes, *steps], *graph.inputs.values()), [x.numpy() for x in example]
    first, *found = step(*given)[: 1 + len(slopes)]
    cost = (network(*example) ** 3).mean()
    cost.backward()
    np.testing.assert_allclose(first, cost.item(), rtol=1e-3, atol=1e-6)
    for name, slope in zip(weights, found, strict=True):
        wanted = theirs[name].grad.numpy()
        np.testing.assert_allclose(slope, wanted, rtol=1e-3, atol=1e-5 + 1e-4 * np.abs(wanted).max(), err_msg=name)
    for _ in range(10):
        last = step(*given)[0]
    assert last < first and (m(*given) ** 3).mean() < last + 1e-6


def test_a_bert_by_onnx_runtimes_quantiser(tmp_path):
    """Products of 8-bit integers, weights quantised beforehand, values in each call."""
    tools = pytest.importorskip("onnxruntime.quantization")
    network, names, inputs = made(bert)
    before, after = str(tmp_path / "float.onnx"), str(tmp_path / "whole.onnx")
    with open(before, "wb") as file:
        file.write(exported(network, names, inputs(2, 7), False))
    tools.quantize_dynamic(before, after, weight_type=tools.QuantType.QInt8)
    theirs = session(after, graph_optimization_level=onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    mine = ng.onnx.load(after)
    for batch, length in ((2, 7), (3, 10)):
        feeds = {name: x.numpy() for name, x in zip(names, inputs(batch, length), strict=True)}
        got, wanted = mine.run(None, feeds)[0], theirs.run(None, feeds)[0]
        assert np.abs(got - wanted).max() < 0.02 * np.abs(wanted).max() and np.abs(got - wanted).mean() < 1e-3
