"""CIFAR-10 with a residual network of 6 * stage_depth + 2 layers, and a learning rate that falls in steps.

    python examples/cifar10_msra.py [--stage_depth 2] [--quick] [--help]

The full run is 64,000 batches of 128. Without CIFAR-10 in its folder it takes made-up pictures of the same shape and 200 batches, and
says so.
Measured on those: all of 500 right after 48 batches; 42 s of one core for the 200. It has not been run on CIFAR-10 itself.
"""

from example import cifar10, fell, fit, training_flags

import ngraph as ng
from ngraph.frontends.neon import (
    Accuracy,
    Activation,
    Affine,
    ArrayIterator,
    Convolution,
    CrossEntropyMulti,
    GlobalPooling,
    GradientDescentMomentum,
    KaimingInit,
    Preprocess,
    Rectlin,
    ResidualModule,
    Sequential,
    Softmax,
    Trainer,
    ax,
)

parser = training_flags(__doc__, quick={"num_iterations": 20, "batch_size": 16, "stage_depth": 1}, num_iterations=None, iter_interval=1000)
parser.add_argument("--stage_depth", type=int, default=2, help="modules in each of three stages")
args = parser.parse_args()
train, valid = cifar10()
if args.num_iterations is None:
    args.num_iterations = 64000 if len(train["label"]["data"]) == 50000 else 200
ax.Y.length = 10


def conv(size, filters, strides=1, activation=True):
    return Convolution(
        (size, size, filters), KaimingInit(), strides, size // 2, batch_norm=True, activation=Rectlin() if activation else None
    )


def module(filters, strides, first):
    main = Sequential([conv(3, filters, strides), conv(3, filters, activation=False)])
    side = conv(1, filters, strides, activation=False) if first and strides > 1 else None
    return [ResidualModule(main, side), Activation(Rectlin())]


stages = [[module(f, 2 if k == 0 and f > 16 else 1, k == 0) for k in range(args.stage_depth)] for f in (16, 32, 64)]
model = Sequential(
    [
        Preprocess(lambda x: ng.cast(x, ng.float32) / 128 - 1),
        conv(3, 16),
        *(layer for stage in stages for pair in stage for layer in pair),
        GlobalPooling(),
        Affine(KaimingInit(), axes=[ax.Y], activation=Softmax()),
    ]
)
rate = {"name": "schedule", "base_lr": 0.1, "gamma": 0.1, "schedule": [32000, 48000]}
trainer = Trainer(model, GradientDescentMomentum(rate, 0.9, wdecay=1e-4), CrossEntropyMulti(), [Accuracy()], folder=args.save_path)
valid = {k: {**v, "data": v["data"][:200]} for k, v in valid.items()} if args.quick else valid
batches = ArrayIterator(train, args.batch_size, shuffle=True)
print(fit(trainer, args, batches, ArrayIterator(valid, 100, last="short")))
print(trainer.summary(batches.batch(0)))
if args.check:
    fell(trainer.record["cost/train"], 1.3, first=3, last=5)
