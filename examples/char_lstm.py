"""A character model of the Bible: two LSTMs, or recurrent layers of another kind; writes text of its own at the end.

    python examples/char_lstm.py [--layer lstm|rnn|gru] [--seed_text "In the"] [--quick] [--help]

The last tenth of the text is for testing.
"""

import numpy as np
from example import fell, flags, text

import ngraph as ng
from ngraph.frontends.neon import (
    GRU,
    LSTM,
    Adam,
    Affine,
    BitsPerCharacter,
    Cosine,
    CrossEntropyMulti,
    Dropout,
    GlorotInit,
    Layer,
    LookupTable,
    Recurrent,
    Sequential,
    SequentialArrayIterator,
    Trainer,
    UniformInit,
)

parser = flags(__doc__, batch_size=64, num_iterations=12000)
parser.add_argument("--layer", choices=["lstm", "rnn", "gru"], default="lstm")
for name, value in (("units", 256), ("depth", 2), ("steps", 64), ("length", 400)):
    parser.add_argument(f"--{name}", type=int, default=value)
parser.add_argument("--seed_text", default="In the beginning", help="how the text that it writes starts")
parser.add_argument("--resume", action="store_true", help="go on from the checkpoint that an earlier run left")
args = parser.parse_args()
units, steps = (48, 16) if args.quick else (args.units, args.steps)

held = text(args)
Y = ng.make_axis(len(held.vocab), name="Y")
kind = {"lstm": LSTM, "rnn": Recurrent, "gru": GRU}[args.layer]
more = {"forget_bias": 1.0} if args.layer == "lstm" else {}
layers = [kind(units, GlorotInit(), **more) for _ in range(args.depth)]
model = Sequential([LookupTable(len(held.vocab), units, UniformInit(-0.1, 0.1)), *layers, Dropout(0.9), Affine(GlorotInit(), axes=[Y])])
total = 120 if args.quick else args.num_iterations
trainer = Trainer(
    model,
    Adam(Cosine(5e-3 if args.quick else 3e-3, total, warmup=20), gradient_clip_norm=1.0),
    CrossEntropyMulti(logits=True, usebits=True),
    [BitsPerCharacter(logits=True)],
    inputs="inp_txt",
    folder="out/char_lstm",
)
train = SequentialArrayIterator(held.train, steps, args.batch_size)
valid = SequentialArrayIterator(held.test, 4 * steps, 16, shuffle=False)
print(trainer.fit(train, valid, steps=total, every=min(total, 1000), checkpoint_every=1000, resume=args.resume))

# ---- writing text: one step at a time, with the state in the transformer

N, REC = ng.make_axis(1, name="N"), ng.make_axis(1, name="REC")
one = ng.placeholder([N, REC], dtype=ng.int32)
with Layer.inference_mode_on():
    x = model[0](one)
    for layer in layers:
        layer.reset_cells = False
        x = layer(x)
    chances = ng.softmax(model[-1](x), [Y])
write = trainer.transformer.computation(ng.axes_with_order(chances[{N: 0, REC: 0}], [Y]), one)
random, written = np.random.default_rng(0), list(held.encode(args.seed_text))
for k in range(40 if args.quick else args.length):
    for letter in written if k == 0 else written[-1:]:
        p = write(np.array([[letter]], np.int32)).astype(np.float64)
    written.append(random.choice(len(p), p=p / p.sum()))
print("-" * 40, held.decode(written), "-" * 40, sep="\n")
if args.quick:
    fell(trainer.record["cost/train"], 1.3)
