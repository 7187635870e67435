"""The small models of first.py: written in PyTorch, random weights, exported with known lengths; each has 20 to 200 nodes of its kind.

python bench/first_models.py FOLDER        writes FOLDER/NAME.onnx and FOLDER/NAME.npz, its input, unless they are there
"""

import os
import sys

import numpy as np
import torch
from serving_models import export
from torch import nn
from torch.nn import functional as F


def convolution(kind, given, made, size=3, **options):
    """A convolution that keeps the size of a map, batch normalisation and an activation."""
    return nn.Sequential(nn.Conv2d(given, made, size, padding=size // 2, bias=False, **options), nn.BatchNorm2d(made), kind())


class UNet(nn.Module):
    def __init__(self, widths=(16, 32, 64, 128)):
        super().__init__()
        pairs = list(zip((3, *widths), widths, strict=False))
        self.down = nn.ModuleList([nn.Sequential(convolution(nn.ReLU, a, b), convolution(nn.ReLU, b, b)) for a, b in pairs])
        back = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList([nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in back])
        self.join = nn.ModuleList([nn.Sequential(convolution(nn.ReLU, 2 * b, b), convolution(nn.ReLU, b, b)) for _, b in back])
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x):
        kept = []
        for k, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if k else x)
            kept.append(x)
        for up, join, other in zip(self.up, self.join, kept[-2::-1], strict=True):
            x = join(torch.cat([up(x), other], 1))
        return self.last(x)


class Inverted(nn.Module):
    """EfficientNet's block: expanded, depthwise, squeezed and excited, projected."""

    def __init__(self, given, made, stride, size, expand=4):
        super().__init__()
        wide = given * expand
        self.expand, self.same = convolution(nn.SiLU, given, wide, 1), given == made and stride == 1
        self.depth = convolution(nn.SiLU, wide, wide, size, stride=stride, groups=wide)
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, given // 4, 1), nn.SiLU(), nn.Conv2d(given // 4, wide, 1), nn.Sigmoid()
        )
        self.project = convolution(nn.Identity, wide, made, 1)

    def forward(self, x):
        y = self.depth(self.expand(x))
        y = self.project(y * self.squeeze(y))
        return x + y if self.same else y


def efficientnet():
    rows = [
        (16, 24, 2, 3),
        (24, 24, 1, 3),
        (24, 40, 2, 5),
        (40, 40, 1, 5),
        (40, 80, 2, 3),
        (80, 80, 1, 3),
        (80, 112, 1, 5),
        (112, 112, 1, 5),
    ]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(448, 1000))
    return nn.Sequential(convolution(nn.SiLU, 3, 16, stride=2), *[Inverted(*r) for r in rows], convolution(nn.SiLU, 112, 448, 1), head)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.run, self.last = (
            nn.Embedding(500, 96),
            nn.GRU(96, 128, num_layers=2, bidirectional=True, batch_first=True),
            nn.Linear(256, 40),
        )

    def forward(self, tokens):
        return self.last(self.run(self.embed(tokens))[0])


def volumes():
    def block(given, made, **options):
        return nn.Sequential(nn.Conv3d(given, made, 3, padding=1, bias=False, **options), nn.BatchNorm3d(made), nn.ReLU())

    head = nn.Sequential(nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(64, 20))
    return nn.Sequential(block(1, 16), nn.MaxPool3d(2), block(16, 32), block(32, 32), nn.MaxPool3d(2), block(32, 64), block(64, 64), head)


class Mixing(nn.Module):
    def __init__(self, places, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.places = nn.Sequential(nn.Linear(places, 128), nn.GELU(), nn.Linear(128, places))
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.places(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.second(x))


class Patches(nn.Module):
    """Blocks over the patches of a picture, their mean and a classifier."""

    def __init__(self, block, width, count, size, side):
        super().__init__()
        places = (side // size) ** 2
        self.cut = nn.Conv2d(3, width, size, stride=size)
        self.at = nn.Parameter(torch.randn(1, places, width) * 0.02)
        self.blocks = nn.Sequential(*[block(places, width) for _ in range(count)])
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, x):
        x = self.cut(x).flatten(2).transpose(1, 2) + self.at
        return self.last(self.norm(self.blocks(x)).mean(1))


class Attending(nn.Module):
    def __init__(self, places, width, heads=3):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.three, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        n, places, width = x.shape
        q, k, v = self.three(self.first(x)).reshape(n, places, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, places, width))
        return x + self.channels(self.second(x))


class Recommender(nn.Module):
    """DLRM: tables of embeddings, products of each two of them, two perceptrons."""

    def __init__(self, tables=12, width=16):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(1000 + 37 * k, width) for k in range(tables)])
        self.dense = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        rows, columns = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("pairs", rows * (tables + 1) + columns)
        self.last = nn.Sequential(
            nn.Linear(width + len(rows), 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1), nn.Sigmoid()
        )

    def forward(self, dense, rows):
        x = self.dense(dense)
        all_ = torch.stack([x, *[table(rows[:, k]) for k, table in enumerate(self.tables)]], 1)
        products = (all_ @ all_.transpose(1, 2)).flatten(1)[:, self.pairs]
        return self.last(torch.cat([x, products], 1))


class WaveNet(nn.Module):
    def __init__(self, width=32, layers=16):
        super().__init__()
        self.first, self.last = nn.Conv1d(1, width, 1), nn.Sequential(nn.ReLU(), nn.Conv1d(width, 64, 1), nn.ReLU(), nn.Conv1d(64, 256, 1))
        self.gates = nn.ModuleList([nn.Conv1d(width, 2 * width, 2, dilation=2 ** (k % 8)) for k in range(layers)])
        self.mixes = nn.ModuleList([nn.Conv1d(width, 2 * width, 1) for _ in range(layers)])

    def forward(self, x):
        x, total = self.first(x), 0
        for gate, mix in zip(self.gates, self.mixes, strict=True):
            a, b = gate(F.pad(x, (gate.dilation[0], 0))).chunk(2, 1)
            skip, more = mix(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x, total = x + more, total + skip
        return self.last(total)


class Llama(nn.Module):
    """Causal grouped-query attention with rotated positions, and a gated perceptron; root-mean-square norms."""

    class Block(nn.Module):
        def __init__(self, width, heads, groups):
            super().__init__()
            self.heads, self.groups, self.size = heads, groups, width // heads
            self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
            self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
            self.k, self.v = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
            self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
            self.down = nn.Linear(3 * width, width, bias=False)

        def forward(self, x, cos, sin):
            n, places, width = x.shape

            def split(y, heads):
                return y.view(n, places, heads, self.size).transpose(1, 2)

            def turned(y):
                a, b = y.chunk(2, -1)
                return y * cos + torch.cat([-b, a], -1) * sin

            y = self.first(x)
            q, k, v = turned(split(self.q(y), self.heads)), turned(split(self.k(y), self.groups)), split(self.v(y), self.groups)
            k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (k, v))
            made = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(made.transpose(1, 2).reshape(n, places, width))
            y = self.second(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def __init__(self, width=256, heads=8, groups=2, layers=4, places=512):
        super().__init__()
        self.embed = nn.Embedding(2000, width)
        self.blocks = nn.ModuleList([self.Block(width, heads, groups) for _ in range(layers)])
        self.norm, self.last = nn.RMSNorm(width), nn.Linear(width, 2000, bias=False)
        angles = torch.arange(places)[:, None] / 10000 ** (torch.arange(0, width // heads, 2) / (width // heads))
        self.register_buffer("angles", torch.cat([angles, angles], -1))

    def forward(self, tokens):
        x, cos, sin = self.embed(tokens), self.angles.cos(), self.angles.sin()
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.last(self.norm(x))


class Next(nn.Module):
    """ConvNeXt's block."""

    def __init__(self, width):
        super().__init__()
        self.depth, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.wide, self.narrow, self.scale = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
            nn.Parameter(torch.full((width,), 0.1)),
        )

    def forward(self, x):
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.narrow(F.gelu(self.wide(y)))).permute(0, 3, 1, 2)


class Last(nn.Module):
    """A layer over the channels of maps."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def convnext(widths=(32, 64, 128, 256), counts=(2, 2, 4, 2)):
    parts, before = [], 3
    for width, count in zip(widths, counts, strict=True):
        size = 4 if before == 3 else 2
        parts += [] if before == 3 else [Last(nn.LayerNorm(before))]
        parts += [nn.Conv2d(before, width, size, stride=size), *[Next(width) for _ in range(count)]]
        before = width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(before), nn.Linear(before, 100))


def pictures(side):
    return lambda: (torch.randn(1, 3, side, side),)


MADE = {
    "unet": (UNet, pictures(128)),
    "efficientnet": (efficientnet, pictures(160)),
    "gru": (Recurrent, lambda: (torch.randint(0, 500, (4, 40)),)),
    "volumes": (volumes, lambda: (torch.randn(1, 1, 24, 48, 48),)),
    "mixer": (lambda: Patches(Mixing, 128, 6, 16, 128), pictures(128)),
    "recommender": (Recommender, lambda: (torch.randn(64, 13), torch.randint(0, 1000, (64, 12)))),
    "wavenet": (WaveNet, lambda: (torch.randn(1, 1, 2000),)),
    "vit": (lambda: Patches(Attending, 192, 6, 16, 160), pictures(160)),
    "llama": (Llama, lambda: (torch.randint(0, 2000, (1, 512)),)),
    "convnext": (convnext, pictures(128)),
}


def made(folder):
    """{name: path of the model}; the input lies beside it, `.npz`."""
    os.makedirs(folder, exist_ok=True)
    for name, (model, given) in MADE.items():
        path = os.path.join(folder, f"{name}.onnx")
        if not os.path.exists(path):
            torch.manual_seed(0)
            arguments = given()
            names = [f"x{k}" for k in range(len(arguments))]
            np.savez(os.path.join(folder, f"{name}.npz"), **{n: a.numpy() for n, a in zip(names, arguments, strict=True)})
            export(model().eval(), arguments, path, names, None, ["y"])
    return {name: os.path.join(folder, f"{name}.onnx") for name in MADE}


if __name__ == "__main__":
    print(*made(sys.argv[1]).values(), sep="\n")
