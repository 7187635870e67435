"""The peer benchmark's training workloads as a user of neon writes them, beside eager PyTorch in the same process.

    python bench/neon.py [T1 T2 T3 T4 T4c T5 T6] [--seconds 4] [--threads 2]

Slices of both go round in turn; a row has the median step of each, their ratio (above 1: neon is faster), and the time to build and
compile. Without PyTorch there are neon's numbers alone.
"""

import argparse
import contextlib
import os
import statistics
import time

ALL = ["T1", "T2", "T3", "T4", "T4c", "T5", "T6"]
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("workloads", nargs="*", default=ALL)
parser.add_argument("--seconds", type=float, default=4, help="for each peer and workload")
parser.add_argument("--threads", type=int, default=os.cpu_count())
if __name__ == "__main__":
    args = parser.parse_args()
    for name in ("OPENBLAS_NUM_THREADS", "NGRAPH_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, str(args.threads))

import numpy as np  # noqa: E402  the number of threads is read at import

import ngraph as ng  # noqa: E402
import ngraph.transformers as ngt  # noqa: E402
from ngraph.frontends.neon import (  # noqa: E402
    LSTM,
    Activation,
    Affine,
    Convolution,
    CrossEntropyBinary,
    CrossEntropyMulti,
    GlobalPooling,
    GlorotInit,
    GradientDescentMomentum,
    KaimingInit,
    LookupTable,
    Pooling,
    Rectlin,
    ResidualModule,
    Sequential,
    UniformInit,
)

torch = nn = None
if __name__ == "__main__":
    with contextlib.suppress(ImportError):
        import torch
        from torch import nn

relu, he = Rectlin(), KaimingInit()


def conv(size, filters, strides=1, activation=True):
    return Convolution((size, size, filters), he, strides, size // 2, batch_norm=True, activation=relu if activation else None)


def residual(kind, filters, strides, first):
    """A module of ResNet-20 ("plain") or ResNet-50 ("neck")."""
    if kind == "plain":
        main, out = [conv(3, filters, strides), conv(3, filters, activation=False)], filters
    else:
        main, out = [conv(1, filters), conv(3, filters, strides), conv(1, 4 * filters, activation=False)], 4 * filters
    side = conv(1, out, strides, activation=False) if first else None
    return [ResidualModule(Sequential(main), side), Activation(relu)]


def resnet(kind, stem, stages, y):
    body = [residual(kind, f, s if k == 0 else 1, k == 0 and (s > 1 or kind == "neck")) for f, n, s in stages for k in range(n)]
    return Sequential([*stem, *body, GlobalPooling(), Affine(he, axes=[y])])


def neon_model(name, y):
    """The model, and the axes and lengths of what goes in."""
    out = Affine(GlorotInit(), axes=[y])
    small = [(16, 3, 1), (32, 3, 2), (64, 3, 2)]
    large = [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]
    return {
        "T1": lambda: (Affine(0.0, axes=[], bias=False), {"N": 128, "F": 4}),
        "T2": lambda: (Sequential([Affine(he, nout=100, activation=relu), out]), {"N": 128, "F": 784}),
        "T3": lambda: (
            Sequential(
                [
                    *(
                        layer
                        for k in (16, 32)
                        for layer in (Convolution((5, 5, k), he, bias_init=0.0, activation=relu), Pooling((2, 2), strides=2))
                    ),
                    Affine(he, nout=500, activation=relu),
                    out,
                ]
            ),
            {"N": 128, "C": 3, "H": 32, "W": 32},
        ),
        "T4": lambda: (Sequential([LookupTable(10000, 650, UniformInit(-0.05, 0.05)), *lstms(650, 2), out]), {"REC": 35, "N": 20}),
        "T4c": lambda: (Sequential([LookupTable(87, 64, UniformInit(-0.05, 0.05)), *lstms(128, 1), out]), {"REC": 60, "N": 64}),
        "T5": lambda: (resnet("plain", [conv(3, 16)], small, y), {"N": 64, "C": 3, "H": 32, "W": 32}),
        "T6": lambda: (resnet("neck", [conv(7, 64, 2), Pooling((3, 3), 2, 1)], large, y), {"N": 8, "C": 3, "H": 224, "W": 224}),
    }[name]()


def lstms(units, count):
    return [LSTM(units, GlorotInit()) for _ in range(count)]


CLASSES = {"T1": 2, "T2": 10, "T3": 10, "T4": 10000, "T4c": 87, "T5": 10, "T6": 1000}
RATES = {"T1": (0.1, 0.0), "T2": (0.05, 0.9), "T3": (0.01, 0.9), "T4": (0.1, 0.0), "T4c": (0.1, 0.0), "T5": (0.02, 0.9), "T6": (0.01, 0.9)}


def neon_training(name):
    """(cost, update, inputs, labels)."""
    model, lengths = neon_model(name, ng.make_axis(CLASSES[name], name="Y"))
    axes = [ng.make_axis(n, name=a) for a, n in lengths.items()]
    text = "REC" in lengths
    x = ng.placeholder(axes, dtype="int32" if text else "float32")
    places = [a for a in axes if a.is_batch or a.is_recurrent]
    t = ng.placeholder(places, dtype="float32" if name == "T1" else "int32")
    cost = (CrossEntropyBinary if name == "T1" else CrossEntropyMulti)(logits=True)(model(x), t)
    rate, momentum = RATES[name]
    return cost, GradientDescentMomentum(rate, momentum)(cost), x, t


def neon_step(name):
    """(a function of inputs and labels, shape of the inputs, of the labels)."""
    cost, update, x, t = neon_training(name)
    run = ngt.make_transformer().computation([ng.mean(cost, out_axes=()), update], x, t)
    return lambda a, b: float(run(a, b)[0]), x.axes.lengths, t.axes.lengths


# ---- the same in PyTorch ------------------------------------------------------------------------------------------------


def torch_step(name):
    def block(i, o, size, stride=1, act=True):
        return [nn.Conv2d(i, o, size, stride, size // 2, bias=False), nn.BatchNorm2d(o), *([nn.ReLU()] if act else [])]

    class Residual(nn.Module):
        def __init__(self, i, f, stride, neck, first):
            super().__init__()
            o = 4 * f if neck else f
            main = (
                [*block(i, f, 1), *block(f, f, 3, stride), *block(f, o, 1, act=False)]
                if neck
                else [*block(i, f, 3, stride), *block(f, f, 3, act=False)]
            )
            self.main = nn.Sequential(*main)
            self.side = nn.Sequential(*block(i, o, 1, stride, act=False)) if first else nn.Identity()

        def forward(self, x):
            return torch.relu(self.main(x) + self.side(x))

    def stack(i, stages, neck):
        made = []
        for f, n, s in stages:
            for k in range(n):
                made.append(Residual(i, f, s if k == 0 else 1, neck, k == 0 and (s > 1 or neck)))
                i = 4 * f if neck else f
        return [*made, nn.AdaptiveAvgPool2d(1), nn.Flatten()], i

    class Text(nn.Module):
        def __init__(self, words, width, units, layers):
            super().__init__()
            self.embed, self.lstm, self.out = nn.Embedding(words, width), nn.LSTM(width, units, layers), nn.Linear(units, words)

        def forward(self, x):
            return self.out(self.lstm(self.embed(x))[0]).flatten(0, 1)

    def residual_net(name):
        if name == "T5":
            body, last = stack(16, [(16, 3, 1), (32, 3, 2), (64, 3, 2)], False)
            return nn.Sequential(*block(3, 16, 3), *body, nn.Linear(last, 10))
        body, last = stack(64, [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)], True)
        return nn.Sequential(*block(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), *body, nn.Linear(last, 1000))

    model = {
        "T1": lambda: nn.Sequential(nn.Linear(4, 1, bias=False), nn.Flatten(0)),
        "T2": lambda: nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10)),
        "T3": lambda: nn.Sequential(
            nn.Conv2d(3, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(800, 500),
            nn.ReLU(),
            nn.Linear(500, 10),
        ),
        "T4": lambda: Text(10000, 650, 650, 2),
        "T4c": lambda: Text(87, 64, 128, 1),
    }.get(name, lambda: residual_net(name))()
    rate, momentum = RATES[name]
    rule = torch.optim.SGD(model.parameters(), rate, momentum)
    loss = nn.functional.binary_cross_entropy_with_logits if name == "T1" else nn.functional.cross_entropy

    def step(x, t):
        rule.zero_grad()
        cost = loss(model(torch.from_numpy(x)), torch.from_numpy(t).flatten().to(torch.float32 if name == "T1" else torch.int64))
        cost.backward()
        rule.step()
        return cost.item()

    return step


def measure(steps, x, t):
    """The median step of each, in turn, and the first call's seconds."""
    first = {}
    for name, step in steps.items():
        start = time.perf_counter()
        step(x, t)
        first[name] = time.perf_counter() - start
    times = {name: [] for name in steps}
    while min(sum(v) for v in times.values()) < args.seconds:
        for name, step in steps.items():
            until = time.perf_counter() + args.seconds / 8
            while True:
                start = time.perf_counter()
                step(x, t)
                times[name].append(time.perf_counter() - start)
                if time.perf_counter() > until:
                    break
    return {name: statistics.median(v) for name, v in times.items()}, first


def main():
    if torch is not None:
        torch.set_num_threads(args.threads)
    random = np.random.default_rng(0)
    print(f"transformer {ngt.make_transformer().name}, {args.threads} threads\n")
    print(f"{'':5}{'neon':>12}{'PyTorch':>12}{'ratio':>8}{'build + compile':>18}")
    for name in args.workloads:
        start = time.perf_counter()
        step, inputs, labels = neon_step(name)
        built = time.perf_counter() - start
        text = len(inputs) == 2 and name.startswith("T4")
        x = random.integers(0, CLASSES[name], inputs).astype(np.int32) if text else random.normal(size=inputs).astype(np.float32)
        t = random.integers(0, CLASSES[name], labels).astype(np.float32 if name == "T1" else np.int32)
        steps = {"neon": step, **({"torch": torch_step(name)} if torch is not None else {})}
        found, first = measure(steps, x, t)
        other = found.get("torch")
        shown = f"{other * 1e3:9.3f} ms{other / found['neon']:8.2f}" if other else " " * 20
        print(f"{name:5}{found['neon'] * 1e3:9.3f} ms{shown}{built + first['neon'] - found['neon']:16.1f} s", flush=True)


if __name__ == "__main__":
    main()
