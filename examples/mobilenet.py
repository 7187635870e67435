"""MobileNet of depthwise convolutions on random pictures: building, compiling and the time of a training step.

python examples/mobilenet.py [--size 96] [--width 0.5] [--quick] [--help]

The full run: 2.6 s to build, compile and make a first step of one core, then 308 pictures a second, 46 % of what it can do.
"""

import numpy as np
from example import fell, fit, training_flags

import ngraph as ng
from ngraph.frontends.neon import (
    Affine,
    ArrayIterator,
    Convolution,
    CrossEntropyMulti,
    GlobalPooling,
    GradientDescentMomentum,
    KaimingInit,
    Rectlinclip,
    Sequential,
    Trainer,
)

parser = training_flags(__doc__, quick={"num_iterations": 12, "batch_size": 4, "size": 32, "width": 0.25}, batch_size=8, num_iterations=20)
parser.add_argument("--size", type=int, default=96, help="rows and columns of a picture")
parser.add_argument("--width", type=float, default=0.5, help="the share of filters that there are")
args = parser.parse_args()
width, batch = args.width, args.batch_size


def conv(size, filters, strides=1, groups=1):
    relu6 = Rectlinclip(cutoff=6.0)
    return Convolution((size, size, filters), KaimingInit(), strides, size // 2, batch_norm=True, activation=relu6, groups=groups)


filters, layers = int(32 * width), [conv(3, int(32 * width), 2)]
for out, strides in (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * (1 if args.quick else 5),
    (1024, 2),
    (1024, 1),
):
    layers += [conv(3, filters, strides, groups=filters), conv(1, int(out * width))]
    filters = int(out * width)
model = Sequential([*layers, GlobalPooling(), Affine(KaimingInit(), axes=[ng.make_axis(100, name="Y")])])
random = np.random.default_rng(0)
data = {
    "image": {"data": random.normal(size=(4 * batch, 3, args.size, args.size)).astype(np.float32), "axes": ("N", "C", "H", "W")},
    "label": {"data": random.integers(0, 100, 4 * batch).astype(np.int32), "axes": ("N",)},
}
trainer = Trainer(model, GradientDescentMomentum(0.01, 0.9), CrossEntropyMulti(logits=True), folder=args.save_path)
batches = ArrayIterator(data, batch)
print(fit(trainer, args, batches, None))  # its first step is building and compiling, too
print(trainer.summary(batches.batch(0)))
if args.check:
    fell(trainer.record["cost/train"], 1.1, first=len(batches), last=len(batches))
