"""A training that a test kills: python killed.py FOLDER STEPS. Dropout, shuffling, momentum, batch norm and a schedule are all in it."""

import sys

import numpy as np

import ngraph as ng
from ngraph.frontends.neon import (
    Accuracy,
    Adam,
    Affine,
    ArrayIterator,
    BatchNorm,
    Cosine,
    CrossEntropyMulti,
    Dropout,
    GlorotInit,
    KaimingInit,
    Prefetch,
    Rectlin,
    Sequential,
    Softmax,
    Trainer,
)


def main(folder, steps):
    random = np.random.default_rng(0)
    images, labels = random.normal(size=(300, 8)).astype(np.float32), random.integers(0, 3, 300).astype(np.int32)
    data = {"image": {"data": images, "axes": ("N", "F")}, "label": {"data": labels, "axes": ("N",)}}
    model = Sequential(
        [
            Affine(KaimingInit(), nout=16, activation=Rectlin(), batch_norm=BatchNorm()),
            Dropout(0.8),
            Affine(GlorotInit(), axes=[ng.make_axis(3, name="Y")], activation=Softmax()),
        ]
    )
    trainer = Trainer(model, Adam(Cosine(0.01, 400), ema_decay=0.9), CrossEntropyMulti(), [Accuracy()], folder=folder, seed=3)
    train = Prefetch(ArrayIterator(data, 32, shuffle=True, seed=1))
    trainer.fit(train, ArrayIterator(data, 100, last="short"), steps=steps, checkpoint_every=7, resume=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
