"""Training steps of models that the peer benchmark has not, through neon, beside PyTorch's: `python bench/steps.py [NAME …]`

Each step is the loss, its gradients and Adam's update. Both take turns in one process on NGRAPH_NUM_THREADS threads (2 unless told), after
a tenth of a second of warming up; medians of calls, then of rounds. The ratio is PyTorch's time over ours. Weights are drawn apart: what
is compared is the loss of models that have learnt nothing. Each model is trained in float32, and once more with layers that compute in
bfloat16 on weights of float32 (PyTorch: autocast). NAME: what a model's name begins with. Needs PyTorch, which the tests' virtual
environment has.
"""

import sys
import time
from functools import partial

import numpy as np
import torch
from beside import axes, main, medians
from torch import nn
from torch.nn import functional as F

import ngraph as ng
import ngraph.frontends.neon as neon
import ngraph.transformers as ngt

CALLS, WARM = 9, 0.1
DRAW = np.random.default_rng(0)
INIT = neon.GaussianInit(0.0, 0.02)


def drawn(*shape):
    return DRAW.standard_normal(shape, dtype=np.float32)


def chosen(count, *shape):
    return DRAW.integers(0, count, shape).astype(np.int32)


def ours(kind, model, x, y, arrays):
    """The step, its first loss, and the seconds until that was there; layers compute in `kind`."""
    with neon.precision(kind):
        made = model(x)
    loss = ng.mean(neon.CrossEntropyMulti(logits=True).of(made, y), out_axes=())
    begin = time.perf_counter()
    step = ngt.make_transformer().computation(ng.sequential([neon.Adam(1e-4)(loss), loss]), x, y)
    first = float(step(*arrays))
    return (lambda: step(*arrays)), first, time.perf_counter() - begin


def theirs(kind, model, arrays, turned=lambda t: t):
    """PyTorch's step, and its first loss."""
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.normal_(0.0, 0.02)
    x, y = [torch.tensor(a.astype(np.int64) if a.dtype == np.int32 else a) for a in arrays]
    x, rule = turned(x), torch.optim.Adam(model.parameters(), 1e-4)

    def step():
        rule.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "bfloat16"):
            out = model(x)
        loss = F.cross_entropy(out.reshape(-1, out.shape[-1]).float(), y.reshape(-1))
        loss.backward()
        rule.step()
        return loss

    return step, float(step().detach())


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.three, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = self.three(self.first(x)).view(n, t, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class GPT(nn.Module):
    def __init__(self, width, depth, heads, length, vocabulary):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks, self.norm = nn.Sequential(*[Block(width, heads) for _ in range(depth)]), nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(self.blocks(self.words(x) + self.places.weight)) @ self.words.weight.T


def gpt(kind, width, depth, heads, length, batch, vocabulary):
    n, t = axes(N=batch, REC=length)
    x, y = ng.placeholder([n, t], dtype=np.int32), ng.placeholder([n, t], dtype=np.int32)
    embed = neon.Embedding(vocabulary, width, INIT, max_len=length)
    blocks = [neon.TransformerBlock(heads, init=INIT, causal=True) for _ in range(depth)]
    model = neon.Sequential([embed, *blocks, neon.LayerNorm(), neon.TiedLinear(embed)])
    arrays = chosen(vocabulary, batch, length), chosen(vocabulary, batch, length)
    return ours(kind, model, x, y, arrays), theirs(kind, GPT(width, depth, heads, length, vocabulary), arrays)


class Recurrent(nn.Module):
    def __init__(self, layer, width, classes):
        super().__init__()
        self.layer, self.last = layer, nn.Linear(width, classes)

    def forward(self, x):
        return self.last(self.layer(x)[0])


def recurrent(kind, layer, batch, length, features, width, classes):
    n, t, f = axes(N=batch, REC=length, F=features)
    x, y = ng.placeholder([n, t, f]), ng.placeholder([n, t], dtype=np.int32)
    gates = {} if layer == "RNN" else {"gate_activation": neon.Logistic()}
    own = {"RNN": neon.Recurrent, "LSTM": neon.LSTM, "GRU": neon.GRU}[layer](width, INIT, activation=neon.Tanh(), **gates)
    model = neon.Sequential([own, neon.Affine(INIT, nout=classes, bias_init=neon.ConstantInit(0))])
    arrays = drawn(batch, length, features), chosen(classes, batch, length)
    return ours(kind, model, x, y, arrays), theirs(
        kind, Recurrent(getattr(nn, layer)(features, width, batch_first=True), width, classes), arrays
    )


def perceptron(kind, batch, *sizes):
    n, f = axes(N=batch, F=sizes[0])
    x, y = ng.placeholder([n, f]), ng.placeholder([n], dtype=np.int32)
    layers, others = [], []
    for k, (before, size) in enumerate(zip(sizes, sizes[1:], strict=False)):
        inner = k < len(sizes) - 2
        layers.append(neon.Affine(INIT, nout=size, bias_init=neon.ConstantInit(0), activation=neon.Rectlin() if inner else None))
        others.append(nn.Linear(before, size))
        if inner:
            layers.append(neon.Dropout(0.8))
            others += [nn.ReLU(), nn.Dropout(0.2)]
    arrays = drawn(batch, sizes[0]), chosen(sizes[-1], batch)
    return ours(kind, neon.Sequential(layers), x, y, arrays), theirs(kind, nn.Sequential(*others), arrays)


def pictures(kind, batch, size):
    n, c, h, w = axes(N=batch, C=3, H=size, W=size)
    x, y = ng.placeholder([n, c, h, w]), ng.placeholder([n], dtype=np.int32)
    layers, others, before = [], [], 3
    for k in (32, 64, 128):
        for _ in range(2):
            layers.append(neon.Convolution((3, 3, k), INIT, padding=1, batch_norm=True, activation=neon.Rectlin()))
            others += [nn.Conv2d(before, k, 3, padding=1, bias=False), nn.BatchNorm2d(k), nn.ReLU()]
            before = k
        layers.append(neon.Pooling((2, 2), strides=2))
        others.append(nn.MaxPool2d(2))
    layers += [neon.Affine(INIT, nout=256, activation=neon.Rectlin()), neon.Affine(INIT, nout=100)]
    others += [nn.Flatten(), nn.Linear(128 * (size // 8) ** 2, 256), nn.ReLU(), nn.Linear(256, 100)]
    arrays, last = (drawn(batch, 3, size, size), chosen(100, batch)), torch.channels_last
    model = nn.Sequential(*others).to(memory_format=last)
    return ours(kind, neon.Sequential(layers), x, y, arrays), theirs(kind, model, arrays, lambda t: t.to(memory_format=last))


STEPS = {
    "GPT, 4 blocks of 192, 16 x 256 of 90": lambda kind: gpt(kind, 192, 4, 6, 256, 16, 90),
    "GPT, 2 blocks of 768, 8 x 128 of 8,000": lambda kind: gpt(kind, 768, 2, 12, 128, 8, 8000),
    "RNN, 128 to 256, 32 x 50": lambda kind: recurrent(kind, "RNN", 32, 50, 128, 256, 64),
    "LSTM, 128 to 256, 32 x 50": lambda kind: recurrent(kind, "LSTM", 32, 50, 128, 256, 64),
    "LSTM, 512 to 512, 64 x 30": lambda kind: recurrent(kind, "LSTM", 64, 30, 512, 512, 1000),
    "GRU, 128 to 256, 32 x 50": lambda kind: recurrent(kind, "GRU", 32, 50, 128, 256, 64),
    "MLP with dropout, 1,024, 2,048, 2,048, 10": lambda kind: perceptron(kind, 256, 1024, 2048, 2048, 10),
    "CNN with batch norm, 32 x 3 x 64 x 64": lambda kind: pictures(kind, 32, 64),
}
KINDS = {"": None, ", bfloat16": "bfloat16"}


def row(name, make):
    (mine, loss, ready), (other, wanted) = make()
    if abs(loss - wanted) > 0.2 * wanted:
        sys.exit(f"{name}: the first loss is {loss:.3f}, PyTorch's {wanted:.3f}")
    ((a, b),) = medians([(mine, other)], CALLS, WARM)
    return [f"{a * 1e3:.1f}", f"{b * 1e3:.1f}", f"**{b / a:.2f}**", f"{ready:.1f}"]


if __name__ == "__main__":
    cases = {name + more: partial(make, kind) for name, make in STEPS.items() for more, kind in KINDS.items()}
    main(cases, ["step, with Adam", "ngraph, ms", "PyTorch, ms", "ratio", "ready, s"], row)
