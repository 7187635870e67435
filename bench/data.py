"""What neon's iterators cost: bytes a second from a memory map, and how long a training step on MNIST waits for its batch.

    python bench/data.py [--megabytes 256] [--seconds 1]

The map has pictures of 3 x 32 x 32 float32 in batches of 128, read once before, so it comes from memory. "copied out" reads all of what
the views show. The training is examples/mnist_mlp.py's: batches of 128, shuffled.
"""

import argparse
import itertools
import os
import statistics
import tempfile
import time

import numpy as np

import ngraph as ng
from ngraph.frontends.neon import (
    MNIST,
    Affine,
    ArrayIterator,
    CrossEntropyMulti,
    GaussianInit,
    GradientDescentMomentum,
    Prefetch,
    Preprocess,
    Rectlin,
    Sequential,
    Softmax,
    Trainer,
)

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--megabytes", type=int, default=256)
parser.add_argument("--seconds", type=float, default=1)


def rate(batches, use, seconds):
    """GB/s of the batches' images, each given to `use`."""
    start, moved = time.perf_counter(), 0
    for batch in batches:
        use(batch["image"])
        moved += batch["image"].nbytes
        if time.perf_counter() > start + seconds:
            break
    return moved / (time.perf_counter() - start) / 1e9


def from_a_map(megabytes, seconds):
    count = megabytes * 2**20 // (3 * 32 * 32 * 4)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "images.npy")
        written = np.lib.format.open_memmap(path, "w+", np.float32, (count, 3, 32, 32))
        written[:] = 1
        written.flush()
        data = {"image": np.load(path, mmap_mode="r"), "label": np.zeros(count, np.int32)}
        data["image"].sum()
        out = np.empty((128, 3, 32, 32), np.float32)
        order = np.random.default_rng(0).permutation(count)
        gathered = ({"image": data["image"].take(order[k : k + 128], axis=0)} for k in itertools.cycle(range(0, count - 128, 128)))

        def endless(**options):
            return itertools.chain.from_iterable(itertools.repeat(ArrayIterator(data, 128, **options)))

        ahead = itertools.chain.from_iterable(itertools.repeat(Prefetch(ArrayIterator(data, 128, shuffle=True))))
        rows = {
            "in order, views": (endless(), lambda x: None),
            "in order, copied out": (endless(), lambda x: np.copyto(out[: len(x)], x)),
            "shuffled": (endless(shuffle=True), lambda x: None),
            "shuffled, made ahead on a thread": (ahead, lambda x: None),
            "NumPy's take alone": (gathered, lambda x: None),
        }
        for name, (batches, use) in rows.items():
            print(f"{name:34}{rate(batches, use, seconds):8.1f} GB/s", flush=True)


def waits(source, steps=1000):
    """(median microseconds that a step waits for its batch, median microseconds of a step) of the MLP on MNIST."""
    body = [Affine(GaussianInit(), nout=100, activation=Rectlin()), Affine(GaussianInit(), axes=[ng.make_axis(10, name="Y")])]
    model = Sequential([Preprocess(lambda x: ng.cast(x, ng.float32) / 255), *body, Softmax()])
    trainer = Trainer(model, GradientDescentMomentum(0.1, 0.9), CrossEntropyMulti(), say=lambda line: None)
    trainer.fit(source, steps=10)
    batches, waited, took = iter(source), [], []
    while len(took) < min(steps, len(source) - 10):
        start = time.perf_counter()
        batch = next(batches)
        made = time.perf_counter()
        trainer._run(batch)
        waited.append(made - start)
        took.append(time.perf_counter() - made)
    return statistics.median(waited) * 1e6, statistics.median(took) * 1e6


def main():
    args = parser.parse_args()
    from_a_map(args.megabytes, args.seconds)
    train = MNIST().load_data()[0]
    for name, source in (
        ("", ArrayIterator(train, 128, shuffle=True)),
        (", ahead on a thread", Prefetch(ArrayIterator(train, 128, shuffle=True))),
    ):
        wait, step = waits(source)
        print(f"MNIST{name}: a step of {step:.0f} µs waits {wait:.0f} µs for its batch ({wait / step:.1%})")


if __name__ == "__main__":
    main()
