"""CIFAR-10 with one hidden layer of 200 units, as neon's example of 2016 had it.

    python examples/cifar10_mlp.py [--quick] [--help]

Without CIFAR-10 in its folder it takes made-up pictures of the same shape, and says so.

The full run on those, 2,000 batches, gets all of them right: they are easy. It has not been run on CIFAR-10 itself.
"""

from example import cifar10, fell, fit, training_flags

import ngraph as ng
from ngraph.frontends.neon import (
    Accuracy,
    Affine,
    ArrayIterator,
    CrossEntropyBinary,
    GradientDescentMomentum,
    Logistic,
    Preprocess,
    Rectlin,
    Sequential,
    Trainer,
    UniformInit,
    ax,
)

args = training_flags(__doc__, quick={"num_iterations": 60}, num_iterations=2000).parse_args()
train, valid = cifar10()
ax.Y.length = 10
init = UniformInit(-0.1, 0.1)
model = Sequential(
    [
        Preprocess(lambda x: ng.cast(x, ng.float32) / 128 - 1),
        Affine(init, nout=200, activation=Rectlin()),
        Affine(init, axes=[ax.Y], activation=Logistic()),
    ]
)
trainer = Trainer(model, GradientDescentMomentum(0.1, 0.9), CrossEntropyBinary(), [Accuracy()], folder=args.save_path)
print(fit(trainer, args, ArrayIterator(train, args.batch_size, shuffle=True), ArrayIterator(valid, 500, last="short")))
if args.check:
    fell(trainer.record["cost/train"], 1.3)
