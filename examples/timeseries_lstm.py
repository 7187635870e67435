"""An LSTM that learns a Lissajous curve from its past, and then draws on by itself from its own predictions.

python examples/timeseries_lstm.py [--quick] [--help]

The full run, 20 epochs, draws 200 steps by itself and is off by 0.011 on average, of a curve between -1 and 1.
"""

import numpy as np
from example import fell, fit, length, training_flags

import ngraph as ng
from ngraph.frontends.neon import (
    LSTM,
    MAE,
    Adam,
    Affine,
    ArrayIterator,
    Cosine,
    GlorotInit,
    MeanSquared,
    Sequential,
    Trainer,
)

args = training_flags(__doc__, quick={"num_iterations": 100}, batch_size=64, epochs=20).parse_args()
steps, units = (12, 24) if args.quick else (32, 64)
time = np.arange(4000) * 2 * np.pi / 200
curve = np.stack([np.sin(2 * time), np.sin(3 * time + 0.5)], 1).astype(np.float32)
windows = np.stack([curve[k : k + steps] for k in range(len(curve) - steps)])
data = {"past": {"data": windows, "axes": ("N", "REC", "F")}, "next": {"data": curve[steps:], "axes": ("N", "F")}}
cut = 3500
train, valid = ({k: {**v, "data": v["data"][s]} for k, v in data.items()} for s in (slice(0, cut), slice(cut, None)))

model = Sequential([LSTM(units, GlorotInit(), return_sequence=False), Affine(GlorotInit(), axes=[ng.make_axis(2, name="F")])])
batches = ArrayIterator(train, args.batch_size, shuffle=True, tgt_key="next", last="drop")
rate = Cosine(1e-2, length(args, batches))
trainer = Trainer(model, Adam(rate), MeanSquared(), [MAE()], inputs="past", target="next", folder=args.save_path)
print(fit(trainer, args, batches, ArrayIterator(valid, 100, tgt_key="next", last="short")))

seen = list(windows[cut])  # from here on it sees what it said itself
for _ in range(200):
    seen.append(trainer.predict({"past": np.array(seen[-steps:])[None], "next": np.zeros((1, 2), np.float32)})[0])
off = np.abs(np.array(seen[steps:]) - curve[cut + steps : cut + steps + 200]).mean()
print(f"200 steps on its own: off by {off:.3f} on average, of a curve between -1 and 1")
if args.check:
    fell(trainer.record["cost/train"], 10)
