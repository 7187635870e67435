"""The models of serving.py: files exported from PyTorch with random weights and dynamic axes, made once in a folder.

Sizes are those of the published models: BERT-base, GPT-2-small with a key-value cache, ResNet-50, MobileNetV2.
"""

import os
import warnings


def bert(path):
    import torch
    from transformers import BertConfig, BertModel

    model = Outputs(seeded(lambda: BertModel(BertConfig(attn_implementation="eager"))), ("input_ids", "attention_mask"))
    tokens = torch.randint(0, 100, (2, 12))
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    export(model, (tokens, torch.ones_like(tokens)), path, ["input_ids", "attention_mask"], {"tensors": ({0: batch, 1: length},) * 2})


def gpt2(path):
    """Takes one token and the keys and values of those before it; gives the scores, and keys and values with the token's own."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(attn_implementation="eager")
    model = Decoder(seeded(lambda: GPT2LMHeadModel(config)))
    cache = [torch.randn(1, config.n_head, 7, config.n_embd // config.n_head) for _ in range(2 * config.n_layer)]
    names = [f"past.{k}" for k in range(len(cache))]
    past = torch.export.Dim("past")
    dims = {"tokens": {}, "past": tuple([{2: past}] * len(cache))}
    export(model, (torch.tensor([[5]]), *cache), path, ["input_ids", *names], dims, ["scores", *[n.replace("past", "new") for n in names]])


def resnet50(path):
    from transformers import ResNetConfig, ResNetForImageClassification

    picture(lambda: ResNetForImageClassification(ResNetConfig(num_labels=1000)), path)


def mobilenet(path):
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    picture(lambda: MobileNetV2ForImageClassification(MobileNetV2Config(num_labels=1000)), path)


def picture(make, path):
    import torch

    model = Outputs(seeded(make), ("pixel_values",))
    export(model, (torch.randn(2, 3, 224, 224),), path, ["pixel_values"], {"tensors": ({0: torch.export.Dim("batch")},)})


MADE = {"bert": bert, "gpt2": gpt2, "resnet50": resnet50, "mobilenet": mobilenet}


def seeded(make):
    """A model with the same random weights every time, ready for inference."""
    import torch

    torch.manual_seed(0)
    return make().eval()


def Outputs(model, names):
    """A module of positional tensors that gives the first result of `model` alone."""
    import torch

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *tensors):
            return self.model(**dict(zip(names, tensors, strict=True)), return_dict=True)[0]

    return Module().eval()


def Decoder(model):
    """A module of one token and a list of cached keys and values, two for each layer."""
    import torch
    from transformers import DynamicCache

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, tokens, *past):
            cache = DynamicCache()
            for k in range(len(past) // 2):
                cache.update(past[2 * k], past[2 * k + 1], k)
            made = self.model(tokens, past_key_values=cache, use_cache=True, return_dict=True)
            return made.logits, *[x for layer in made.past_key_values.layers for x in (layer.keys, layer.values)]

    return Module().eval()


def export(model, arguments, path, inputs, dims, outputs=None):
    import torch

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            arguments,
            path + ".part",
            input_names=inputs,
            output_names=outputs,
            dynamic_shapes=dims,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    os.replace(path + ".part", path)


def found(name, folder):
    """The path of a made model's file; it is exported unless it is there."""
    path = os.path.join(folder, f"{name}.onnx")
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        MADE[name](path)
    return path
