"""The peer benchmark's training workloads as a user of neon writes them.

    python bench/neon.py [T1 T2 T3 T4 T4c T5 T6] [--seconds 4]       building, compiling and a step of each, from an empty cache
    NGRAPH_BENCH=neon python run_peers.py ... --peers torch,ngraph   beside the peers: see README.md

In the peer benchmark they start from its weights and get its data, and its check holds their losses to those of the peers.
"""

import argparse
import os
import statistics
import tempfile
import time

import numpy as np

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.frontends.neon import (
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

ALL = ["T1", "T2", "T3", "T4", "T4c", "T5", "T6"]

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


def neon_training(name, model=None):
    """(cost, update, inputs, labels) of a model and the lengths of what goes in, by default those of the workload."""
    model, lengths = model or neon_model(name, ng.make_axis(CLASSES[name], name="Y"))
    axes = [ng.make_axis(n, name=a) for a, n in lengths.items()]
    text = "REC" in lengths
    x = ng.placeholder(axes, dtype="int32" if text else "float32")
    places = [a for a in axes if a.is_batch or a.is_recurrent]
    t = ng.placeholder(places, dtype="float32" if name == "T1" else "int32")
    cost = (CrossEntropyBinary if name == "T1" else CrossEntropyMulti)(logits=True)(model(x), t)
    rate, momentum = RATES[name]
    return cost, GradientDescentMomentum(rate, momentum)(cost), x, t


def neon_step(name, model=None):
    """(a function of inputs and labels that gives the loss, the axes of the inputs, those of the labels, the transformer)."""
    cost, update, x, t = neon_training(name, model)
    transformer = ngt.make_transformer()
    run = transformer.computation([ng.mean(cost, out_axes=()), update], x, t)
    return lambda a, b: float(run(a, b)[0]), x.axes, t.axes, transformer


# ---- in the peer benchmark ----------------------------------------------------------------------------------------------


def arranged(name, array, axes):
    """A parameter of the neutral graph as the weight of a layer: what comes out stands in front, and gates are i, f, o, g."""
    if name.startswith("lstm"):
        gates = array.reshape(*array.shape[:-1], 4, -1)
        return np.moveaxis(gates, 0, -1)[[0, 1, 3, 2]] if array.ndim == 2 else gates[[0, 1, 3, 2]]
    return array.T.reshape(axes.lengths) if name.startswith("fc") else array


class Train:
    """One call is a step: loss, gradients, momentum update."""

    def __init__(self, w):
        g = w.graph()
        model = neon_model(w.id, ng.make_axis(CLASSES[w.id], name="Y"))
        self.run, x, t, transformer = neon_step(w.id, model)
        kinds = "int32" if w.id.startswith("T4") else "float32", "float32" if w.loss == "bce" else "int32"
        self.data = [(next(iter(f.values())).astype(kinds[0]), labels.astype(kinds[1]).reshape(t.lengths)) for f, labels in w.batches(g)]
        names = g.trainable()
        pieces = [n.partition(".")[0] for n in names]
        names = sorted(
            names, key=lambda n: (pieces.index(n.partition(".")[0]), n.endswith(".wh"))
        )  # a layer's bias stands before its inner weight
        weights = [v for v in model[0].paths().values() if v.is_trainable]
        for name, v in zip(names, weights, strict=True):
            transformer.set(v, arranged(name, w.params_cache[name], v.axes))

    def call(self, i):
        return self.run(*self.data[i % len(self.data)])


# ---- alone --------------------------------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(ALL)}; all by default")
    parser.add_argument("--seconds", type=float, default=4, help="for the steps of each workload")
    args = parser.parse_args()
    unknown = [name for name in args.workloads if name not in ALL]
    if unknown:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(ALL)}")
    random = np.random.default_rng(0)
    print(f"{'':5}{'build':>10}{'compile + first step':>22}{'step':>12}")
    for name in args.workloads or ALL:
        with tempfile.TemporaryDirectory() as empty:
            os.environ["NGRAPH_CACHE"] = empty
            began = time.perf_counter()
            step, inputs, labels, _ = neon_step(name)
            built = time.perf_counter()
            data = [
                random.integers(0, CLASSES[name], a.lengths).astype("int32") if whole else random.normal(size=a.lengths).astype("float32")
                for a, whole in ((inputs, name.startswith("T4")), (labels, name != "T1"))
            ]
            made = time.perf_counter()
            step(*data)
            first = time.perf_counter() - made
            times = []
            while sum(times) < args.seconds or len(times) < 3:
                start = time.perf_counter()
                step(*data)
                times.append(time.perf_counter() - start)
        print(f"{name:5}{built - began:8.2f} s{first:20.2f} s{statistics.median(times) * 1e3:9.3f} ms", flush=True)


if __name__ == "__main__":
    main()
