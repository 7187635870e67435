"""MNIST with two convolutions, batch norm and dropout, in neon.

python examples/mnist_cnn.py [--quick] [--help]

The full run, 7 epochs, ends at 99.0 % of the test images.
"""

from example import fell, flags

import ngraph as ng
from ngraph.frontends.neon import (
    MNIST,
    Accuracy,
    Adam,
    Affine,
    ArrayIterator,
    ConfusionMatrix,
    Convolution,
    Cosine,
    CrossEntropyMulti,
    Dropout,
    GlorotInit,
    KaimingInit,
    Pooling,
    Preprocess,
    Rectlin,
    Sequential,
    Trainer,
    ax,
)

args = flags(__doc__, epochs=7).parse_args()
train, valid = MNIST().load_data()
ax.Y.length = 10
model = Sequential(
    [
        Preprocess(lambda x: ng.cast(x, ng.float32) / 255),
        Convolution((3, 3, 16), KaimingInit(), padding=1, batch_norm=True, activation=Rectlin()),
        Pooling((2, 2), strides=2),
        Convolution((3, 3, 32), KaimingInit(), padding=1, batch_norm=True, activation=Rectlin()),
        Pooling((2, 2), strides=2),
        Affine(KaimingInit(), nout=128, activation=Rectlin()),
        Dropout(0.6),
        Affine(GlorotInit(), axes=[ax.Y]),
    ]
)
steps = 40 if args.quick else args.epochs * (60000 // args.batch_size)
trainer = Trainer(
    model,
    Adam(Cosine(2e-3, steps)),
    CrossEntropyMulti(logits=True),
    [Accuracy(), ConfusionMatrix()],
    folder=args.save_path or "out/mnist_cnn",
)
valid = {k: {**v, "data": v["data"][:500]} for k, v in valid.items()} if args.quick else valid
batches = ArrayIterator(train, 32 if args.quick else args.batch_size, shuffle=True, last="drop")
print(trainer.fit(batches, ArrayIterator(valid, 500, last="short"), steps=steps))
print(trainer.summary(batches.batch(0)))
if args.quick:
    fell(trainer.record["cost/train"], 2, last=10)
