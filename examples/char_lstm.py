"""A character model of the Bible: an LSTM, or recurrent layers of another kind; writes text of its own at the end.

    python examples/char_lstm.py [--layer lstm|rnn|gru] [--seed_text "In the"] [--quick] [--help]

The last tenth of the text is for testing. The state is carried along the text: in training over stretches of 1,024 characters, through
windows of 128 that gradients go through; in testing along the whole.

Measured: 1.946 bits a character on the last tenth, and 1.665 where it learns on as it reads, each character counted before it is learned;
84 minutes on a fifth of a core, 16 minutes of processor time (docs/results.md).
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

parser = flags(__doc__, batch_size=32, num_iterations=2600)
parser.add_argument("--layer", choices=["lstm", "rnn", "gru"], default="lstm")
for name, value, said in (
    ("units", 384, "of each recurrent layer"),
    ("depth", 1, "how many recurrent layers"),
    ("embed", 64, "numbers for a character"),
    ("steps", 128, "characters of a window, which gradients go through"),
    ("stretch", 8, "windows that the state is carried through in training"),
    ("length", 400, "characters to write"),
):
    parser.add_argument(f"--{name}", type=int, default=value, help=said)
parser.add_argument("--rate", type=float, default=5e-3, help="the highest learning rate")
parser.add_argument("--dropout", type=float, default=0.1, help="the share of each layer's results that training leaves out")
parser.add_argument("--adapt", type=float, default=1e-3, help="the rate at which it learns on as it reads the last tenth again; 0: no")
parser.add_argument("--seed_text", default="In the beginning", help="how the text that it writes starts")
parser.add_argument("--resume", action="store_true", help="go on from the checkpoint that an earlier run left")
args = parser.parse_args()
units, steps = (48, 16) if args.quick else (args.units, args.steps)

held = text(args)
written = list(held.encode(args.seed_text))  # before the training: it may have characters that the text has not
Y = ng.make_axis(len(held.vocab), name="Y")
kind = {"lstm": LSTM, "rnn": Recurrent, "gru": GRU}[args.layer]
more = {"forget_bias": 1.0} if args.layer == "lstm" else {}
layers = [kind(units, GlorotInit(), reset_cells=False, **more) for _ in range(args.depth)]
body = [part for layer in layers for part in (layer, Dropout(1 - args.dropout))]
model = Sequential([LookupTable(len(held.vocab), args.embed, UniformInit(-0.1, 0.1)), *body, Affine(GlorotInit(), axes=[Y])])
total = 120 if args.quick else args.num_iterations
trainer = Trainer(
    model,
    Adam(Cosine(args.rate, total, warmup=total // 50), gradient_clip_norm=1.0),
    CrossEntropyMulti(logits=True, usebits=True),
    [BitsPerCharacter(logits=True)],
    inputs="inp_txt",
    folder=args.save_path or "out/char_lstm",
)
train = SequentialArrayIterator(held.train, steps, args.batch_size, stretch=args.stretch)
valid = SequentialArrayIterator(held.test, 2 * steps, 8, shuffle=False)
print(trainer.fit(train, valid, steps=total, every=min(total, 1000), checkpoint_every=100, resume=args.resume))

# ---- writing text: one step at a time, with the state in the transformer

N, REC = ng.make_axis(1, name="N"), ng.make_axis(1, name="REC")
one = ng.placeholder([N, REC], dtype=ng.int32)
with Layer.inference_mode_on():
    x = model[0](one)
    for layer in layers:
        x = layer(x)
    chances = ng.softmax(model[-1](x), [Y])
write = trainer.transformer.computation(ng.axes_with_order(chances[{N: 0, REC: 0}], [Y]), one)
random = np.random.default_rng(0)
for k in range(40 if args.quick else args.length):
    for letter in written if k == 0 else written[-1:]:
        p = write(np.array([[letter]], np.int32)).astype(np.float64)
    written.append(random.choice(len(p), p=p / p.sum()))
print("-" * 40, held.decode(written), "-" * 40, sep="\n")
# ---- reading on: each character is counted before it is learned -----------------------------------------------------------

if args.adapt:
    for part in body[1::2]:
        part.keep = 1.0
    reader = Trainer(model, Adam(args.adapt, gradient_clip_norm=1.0), trainer.cost, inputs="inp_txt", transformer=trainer.transformer)
    print(reader.fit(SequentialArrayIterator(held.test, 32, 4, shuffle=False)))
    print(f"the last tenth, learning while it reads: {np.mean(reader.record['cost/train']):.3f} bits a character")
if args.quick:
    fell(trainer.record["cost/train"], 1.3)
