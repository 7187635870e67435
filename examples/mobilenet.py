"""MobileNet of depthwise convolutions on random pictures: building, compiling and the time of a training step.

python examples/mobilenet.py [--size 96] [--width 0.5] [--quick] [--help]
"""

import time

import numpy as np
from example import flags

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

parser = flags(__doc__, batch_size=8, num_iterations=20)
parser.add_argument("--size", type=int, default=96, help="rows and columns of a picture")
parser.add_argument("--width", type=float, default=0.5, help="the share of filters that there are")
args = parser.parse_args()
size, width, batch, steps = (32, 0.25, 4, 4) if args.quick else (args.size, args.width, args.batch_size, args.num_iterations)


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
    "image": {"data": random.normal(size=(4 * batch, 3, size, size)).astype(np.float32), "axes": ("N", "C", "H", "W")},
    "label": {"data": random.integers(0, 100, 4 * batch).astype(np.int32), "axes": ("N",)},
}
trainer = Trainer(model, GradientDescentMomentum(0.01, 0.9), CrossEntropyMulti(logits=True))
start = time.perf_counter()
trainer.fit(ArrayIterator(data, batch), steps=1)
print(f"built and compiled, and a first step: {time.perf_counter() - start:.1f} s")
print(trainer.fit(ArrayIterator(data, batch), steps=1 + steps))
print(trainer.summary())
if args.quick:
    assert np.isfinite(trainer.record["cost/train"]).all() and len(trainer.record["cost/train"]) == 1 + steps
