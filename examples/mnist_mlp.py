"""MNIST with two layers of weights, 784-100-10, in neon.

python examples/mnist_mlp.py [--quick] [--help]

The full run, 10 epochs, ends at 97.8 % of the test images.
"""

from example import fell, flags

import ngraph as ng
from ngraph.frontends.neon import (
    MNIST,
    Accuracy,
    Affine,
    ArrayIterator,
    ConfusionMatrix,
    Cosine,
    CrossEntropyMulti,
    GlorotInit,
    GradientDescentMomentum,
    KaimingInit,
    Preprocess,
    Rectlin,
    Sequential,
    Softmax,
    Trainer,
    ax,
)

args = flags(__doc__).parse_args()

train, valid = MNIST().load_data()
ax.Y.length = 10
model = Sequential(
    [
        Preprocess(lambda x: ng.cast(x, ng.float32) / 255),
        Affine(KaimingInit(), nout=100, activation=Rectlin()),
        Affine(GlorotInit(), axes=[ax.Y], activation=Softmax()),
    ]
)
steps = 200 if args.quick else args.epochs * (60000 // args.batch_size)
trainer = Trainer(
    model,
    GradientDescentMomentum(Cosine(0.1, steps), momentum_coef=0.9),
    CrossEntropyMulti(),
    metrics=[Accuracy(), ConfusionMatrix()],
    folder=args.save_path or "out/mnist_mlp",
)
report = trainer.fit(
    ArrayIterator(train, args.batch_size, shuffle=True, last="drop"), ArrayIterator(valid, 1000, last="short"), steps=steps
)
print(trainer.summary({"image": valid["image"]["data"][:128]}))
print(report)
if args.quick:
    fell(trainer.record["cost/train"], 4)
