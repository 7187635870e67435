"""An autoencoder of MNIST: digits through convolutions into 32 numbers, and back through deconvolutions.

python examples/autoencoder.py [--quick] [--help]

The full run, 5 epochs, ends at a mean squared error of 0.0100 over the pixels of the test images, after 10 s of one core.
"""

import os

import numpy as np
from example import fell, fit, training_flags

import ngraph as ng
from ngraph.frontends.neon import (
    MNIST,
    MSE,
    Adam,
    Affine,
    ArrayIterator,
    Convolution,
    CrossEntropyBinary,
    Deconvolution,
    GlorotInit,
    KaimingInit,
    Logistic,
    Preprocess,
    Rectlin,
    Sequential,
    Trainer,
)
from ngraph.frontends.neon.reports import draw_samples

args = training_flags(__doc__, quick={"num_iterations": 80, "batch_size": 32}, epochs=5).parse_args()
size = [ng.make_axis(8, name="C"), ng.make_axis(7, name="H"), ng.make_axis(7, name="W")]
init, relu = KaimingInit(), Rectlin()
model = Sequential(
    [
        Preprocess(lambda x: ng.cast(x, ng.float32) / 255),
        Convolution((3, 3, 8), init, strides=2, padding=1, activation=relu),
        Convolution((3, 3, 8), init, strides=2, padding=1, activation=relu),
        Affine(init, nout=32),
        Affine(init, axes=size, activation=relu),
        Deconvolution((4, 4, 8), init, strides=2, padding=1, activation=relu),
        Deconvolution((4, 4, 1), GlorotInit(), strides=2, padding=1, activation=Logistic()),
        Preprocess(lambda x: x[{x.axes.channel_axis(): 0}]),
    ]
)
train, valid = MNIST().load_data()
trainer = Trainer(
    model,
    Adam(3e-3 if args.quick else 1e-3),
    CrossEntropyBinary(),
    [MSE()],
    inputs="image",
    target=lambda p: ng.cast(p["image"], ng.float32) / 255,
    folder=args.save_path,
)
valid = {k: {**v, "data": v["data"][:500]} for k, v in valid.items()}
print(fit(trainer, args, ArrayIterator(train, args.batch_size, shuffle=True, last="drop"), ArrayIterator(valid, 250)))
shown = valid["image"]["data"][:16]
again = trainer.predict({"image": shown})
both = np.concatenate([shown / 255, again.reshape(shown.shape)])
draw_samples(both, ["before"] * 16 + ["after"] * 16, os.path.join(args.save_path, "digits.png"))
if args.check:
    fell(trainer.record["cost/train"], 1.8)
