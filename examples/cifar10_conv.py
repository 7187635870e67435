"""CIFAR-10 with two convolutions and two poolings, as neon's example of 2016 had it.

    python examples/cifar10_conv.py [--use_batch_norm] [--quick] [--help]

Without CIFAR-10 in its folder it takes made-up pictures of the same shape, and says so.

The full run on those, 2,000 batches, gets all of them right: they are easy. It has not been run on CIFAR-10 itself.
"""

from example import cifar10, fell, fit, training_flags

import ngraph as ng
from ngraph.frontends.neon import (
    Accuracy,
    Affine,
    ArrayIterator,
    Convolution,
    CrossEntropyMulti,
    GradientDescentMomentum,
    KaimingInit,
    Pooling,
    Preprocess,
    Rectlin,
    Sequential,
    Softmax,
    Trainer,
    ax,
)

parser = training_flags(__doc__, quick={"num_iterations": 25, "batch_size": 32}, num_iterations=2000)
parser.add_argument("--use_batch_norm", action="store_true", help="batch norm in place of biases")
args = parser.parse_args()
train, valid = cifar10()
ax.Y.length = 10
init, norm = KaimingInit(), args.use_batch_norm
model = Sequential(
    [
        Preprocess(lambda x: ng.cast(x, ng.float32) / 128 - 1),
        Convolution((5, 5, 16), init, activation=Rectlin(), batch_norm=norm),
        Pooling((2, 2), strides=2),
        Convolution((5, 5, 32), init, activation=Rectlin(), batch_norm=norm),
        Pooling((2, 2), strides=2),
        Affine(init, nout=500, activation=Rectlin(), batch_norm=norm),
        Affine(init, axes=[ax.Y], activation=Softmax()),
    ]
)
trainer = Trainer(model, GradientDescentMomentum(0.01, 0.9), CrossEntropyMulti(), [Accuracy()], folder=args.save_path)
print(fit(trainer, args, ArrayIterator(train, args.batch_size, shuffle=True), ArrayIterator(valid, 250, last="short")))
if args.check:
    fell(trainer.record["cost/train"], 1.3, first=2, last=5)
