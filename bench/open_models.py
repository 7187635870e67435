"""Networks with an open batch or length, random weights, as cases for files.py: kinds that no other bench has.

python bench/open_models.py FOLDER [NAME …]        writes FOLDER/NAME.SIZE for each size, unless it is there
python bench/files.py FOLDER --python onnxruntime=PYTHON --python openvino=PYTHON
"""

import os
import sys

import numpy as np
import torch
from serving_models import export
from torch import nn
from torch.nn import functional as F


def convolution(given, made, size=3, stride=1):
    """A convolution, batch normalisation and an activation."""
    return nn.Sequential(nn.Conv2d(given, made, size, stride, size // 2, bias=False), nn.BatchNorm2d(made), nn.ReLU())


class SuperResolution(nn.Module):
    """A residual network that ends with a pixel shuffle and a convolution."""

    def __init__(self, width=64, blocks=6):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, 1, 1)
        pairs = [nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1)) for _ in range(blocks)]
        self.blocks = nn.ModuleList(pairs)
        self.last = nn.Sequential(nn.Conv2d(width, 4 * width, 3, 1, 1), nn.PixelShuffle(2), nn.Conv2d(width, 3, 3, 1, 1))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + 0.1 * block(x)
        return self.last(x)


class Separation(nn.Module):
    """A network over sound: dilated depthwise convolutions with group normalisation over channels and time (Conv-TasNet)."""

    def __init__(self, width=128, inner=256, blocks=8):
        super().__init__()
        self.encode, self.enter = nn.Conv1d(1, inner, 16, 8), nn.Conv1d(inner, width, 1)
        self.blocks = nn.ModuleList([self.block(width, inner, 2**k) for k in range(blocks)])
        self.mask, self.decode = nn.Conv1d(width, inner, 1), nn.ConvTranspose1d(inner, 1, 16, 8)

    def block(self, width, inner, far):
        deep = nn.Conv1d(inner, inner, 3, padding=far, dilation=far, groups=inner)
        ends = nn.PReLU(), nn.GroupNorm(1, inner)
        return nn.Sequential(nn.Conv1d(width, inner, 1), *ends, deep, nn.PReLU(), nn.GroupNorm(1, inner), nn.Conv1d(inner, width, 1))

    def forward(self, x):
        encoded = F.relu(self.encode(x))
        y = self.enter(encoded)
        for block in self.blocks:
            y = y + block(y)
        return self.decode(encoded * torch.sigmoid(self.mask(y)))


class Denoiser(nn.Module):
    """A U-Net of two levels with group normalisation, attention and an upsampled map."""

    def __init__(self, width=64):
        super().__init__()
        self.first, self.down = nn.Conv2d(4, width, 3, 1, 1), nn.Conv2d(width, width, 3, 2, 1)
        self.blocks = nn.ModuleList([self.block(width) for _ in range(4)])
        self.norm, self.three, self.out = nn.GroupNorm(8, width), nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)
        self.up, self.last = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, 4, 3, 1, 1)

    def block(self, width):
        return nn.Sequential(*[m for _ in range(2) for m in (nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, 1, 1))])

    def forward(self, x):
        x = self.first(x)
        x = x + self.blocks[0](x)
        y = self.down(x)
        y = y + self.blocks[1](y)
        n, c, h, w = y.shape
        q, k, v = self.three(self.norm(y)).reshape(n, 3, 4, c // 4, h * w).unbind(1)
        scores = (q.transpose(-1, -2) @ k * (c // 4) ** -0.5).softmax(-1)
        y = y + self.out((v @ scores.transpose(-1, -2)).reshape(n, c, h, w))
        y = y + self.blocks[2](y)
        x = x + self.up(F.interpolate(y, scale_factor=2.0))
        return self.last(x + self.blocks[3](x))


class Graph(nn.Module):
    """Graph convolutions over a dense adjacency matrix."""

    def __init__(self, widths=(64, 128, 128, 10)):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(widths, widths[1:], strict=False)])

    def forward(self, x, near):
        root = near.sum(1).clamp(min=1).rsqrt()
        near = near * root[:, None] * root[None]
        for layer in self.layers:
            x = torch.relu(near @ layer(x))
        return x


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(convolution(3, 32, 3, 2), convolution(32, 64, 3, 2), convolution(64, 128, 3, 2), nn.Flatten())
        self.small, self.large = nn.Linear(128 * 64, 64), nn.Linear(64, 128 * 64)
        widths = (128, 64, 32, 3)
        self.made = nn.ModuleList([nn.ConvTranspose2d(a, b, 4, 2, 1) for a, b in zip(widths, widths[1:], strict=False)])

    def forward(self, x):
        x = self.large(self.small(self.encoder(x))).unflatten(1, (128, 8, 8))
        for k, layer in enumerate(self.made):
            x = layer(F.relu(x) if k else x)
        return torch.sigmoid(x)


class Generator(nn.Module):
    """Deconvolutions from 100 numbers to a picture (DCGAN)."""

    def __init__(self, widths=(100, 512, 256, 128, 64)):
        super().__init__()
        pairs = list(zip(widths, widths[1:], strict=False))
        first = nn.ConvTranspose2d(*pairs[0], 4, bias=False)
        self.layers = nn.ModuleList([first, *[nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False) for a, b in pairs[1:]]])
        self.norms, self.last = nn.ModuleList([nn.BatchNorm2d(n) for n in widths[1:]]), nn.ConvTranspose2d(widths[-1], 3, 4, 2, 1)

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = F.relu(norm(layer(x)))
        return torch.tanh(self.last(x))


class Reader(nn.Module):
    """Convolutions over a line of text and two bidirectional LSTM layers (CRNN)."""

    def __init__(self):
        super().__init__()
        rows = zip((1, 32, 64, 128), (32, 64, 128, 128), (2, 2, (2, 1), (4, 1)), strict=True)
        self.maps = nn.Sequential(*[m for a, b, pool in rows for m in (convolution(a, b), nn.MaxPool2d(pool))])
        self.run, self.last = nn.LSTM(128, 128, 2, bidirectional=True, batch_first=True), nn.Linear(256, 80)

    def forward(self, x):
        return self.last(self.run(self.maps(x).squeeze(2).transpose(1, 2))[0]).log_softmax(-1)


def deberta():
    from transformers import DebertaV2Config, DebertaV2Model

    config = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024, "num_hidden_layers": 3, "vocab_size": 1000}
    return First(DebertaV2Model(DebertaV2Config(**config, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=64)))


def regnet():
    from transformers import RegNetConfig, RegNetModel

    return First(RegNetModel(RegNetConfig(hidden_sizes=[32, 64, 160, 384], depths=[1, 2, 4, 2], groups_width=16)))


class First(nn.Module):
    """The first result of a model of transformers."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x, return_dict=True)[0]


def small(widths):
    """Convolutions of stride 2 behind one of stride 1, a mean and a classifier."""
    layers = [convolution(a, b, stride=2 if k else 1) for k, (a, b) in enumerate(zip((3, *widths), widths, strict=False))]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10))


def perceptron(*widths):
    layers = [m for a, b in zip(widths, widths[1:], strict=False) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


PICTURE = ("batch", 3, 224, 224)
MODELS = {  # name: (model, shapes of its inputs, where a name is an open length; sizes of these)
    "super_resolution": (SuperResolution, [(1, 3, "height", "width")], [(48, 48), (61, 97)]),
    "separation": (Separation, [(1, 1, "length")], [(8000,), (3003,)]),
    "denoiser": (Denoiser, [("batch", 4, 32, 32)], [(1,), (5,), (32,)]),
    "graph": (Graph, [("nodes", 64), ("nodes", "nodes")], [(300,), (1001,)]),
    "autoencoder": (Autoencoder, [("batch", 3, 64, 64)], [(1,), (5,)]),
    "generator": (Generator, [("batch", 100, 1, 1)], [(1,), (5,)]),
    "reader": (Reader, [("batch", 1, 32, 256)], [(1,), (5,)]),
    "deberta": (deberta, [("batch", 20)], [(1,), (5,), (64,)]),
    "regnet": (regnet, [PICTURE], [(1,), (5,)]),
    "small": (lambda: small((32, 64, 128)), [("batch", 3, 32, 32)], [(1,), (8,), (64,)]),
    "perceptron": (lambda: perceptron(784, 1024, 1024, 1024, 10), [("batch", 784)], [(1,), (8,), (64,)]),
}


def named(shapes):
    """The names of open lengths, in order of appearance."""
    return list(dict.fromkeys([n for shape in shapes for n in shape if isinstance(n, str)]))


def given(shapes, lengths, whole):
    r = np.random.default_rng(0)
    sizes = [[lengths.get(n, n) for n in shape] for shape in shapes]
    return [r.integers(0, 90, s) if whole else r.standard_normal(s).astype("f") for s in sizes]


def write(folder, name):
    make, shapes, sizes = MODELS[name]
    names, path, whole = named(shapes), os.path.join(folder, f"{name}.onnx"), make is deberta
    if not os.path.exists(path):
        torch.manual_seed(0)
        dims = {n: torch.export.Dim(n) for n in names}
        arrays = [torch.from_numpy(x) for x in given(shapes, dict(zip(names, sizes[-1], strict=True)), whole)]
        inputs = [f"input{k}" for k in range(len(shapes))]
        export(make().eval(), tuple(arrays), path, inputs, tuple([{k: dims[n] for k, n in enumerate(s) if n in dims} for s in shapes]))
    for size in sizes:
        case = os.path.join(folder, f"{name}.{'x'.join(map(str, size))}")
        os.makedirs(case, exist_ok=True)
        arrays = given(shapes, dict(zip(names, size, strict=True)), whole)
        np.savez(os.path.join(case, "inputs.npz"), **{f"input{k}": x for k, x in enumerate(arrays)})
        with open(os.path.join(case, "model"), "w") as file:
            file.write(os.path.abspath(path))
        print(case, flush=True)


if __name__ == "__main__":
    unknown = [name for name in sys.argv[2:] if name not in MODELS]
    if unknown or len(sys.argv) < 2:
        sys.exit(f"no network {', '.join(unknown)}; there are {', '.join(MODELS)}" if unknown else __doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    for chosen in sys.argv[2:] or MODELS:
        write(sys.argv[1], chosen)
