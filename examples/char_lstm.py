"""A character model of the Bible: LSTMs, or recurrent layers of another kind; writes text of its own at the end.

    python examples/char_lstm.py [--layer lstm|rnn|gru] [--seed_text "In the"] [--quick] [--help]

The last tenth of the text is for testing. The state is carried along the text: in training over stretches of 1,152 characters, through
windows of 192 that gradients go through; in testing along the whole. Verses are marked with their books, and those of the last tenth are
named nowhere else: the training also reads a copy of its text in which each chapter's book has a made-up name, so that it learns to copy
names. It ends with the last tenth of its own text once more, which is nearest to what it is tested on.

Measured: 1.866 bits a character on the last tenth, 1.847 after the end once more, and 1.627 where it learns on as it reads, each
character counted before it is learned; 97 minutes on half of a core (docs/results.md).
"""

import os

import numpy as np
from example import fell, fit, late, text, training_flags

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

quick = {"num_iterations": 120, "late": 10, "units": 48, "depth": 1, "steps": 16, "copies": 0, "length": 40}
parser = training_flags(__doc__, quick=quick, batch_size=24, num_iterations=3000, iter_interval=1000)
parser.add_argument("--layer", choices=["lstm", "rnn", "gru"], default="lstm")
for name, value, said in (
    ("units", 448, "of each recurrent layer"),
    ("depth", 2, "how many recurrent layers"),
    ("embed", 64, "numbers for a character"),
    ("steps", 192, "characters of a window, which gradients go through"),
    ("stretch", 6, "windows that the state is carried through in training"),
    ("copies", 1, "of the text with made-up names of books"),
    ("late", 150, "batches of the end of the training's text, after all others"),
    ("length", 400, "characters to write"),
):
    parser.add_argument(f"--{name}", type=int, default=value, help=said)
parser.add_argument("--rate", type=float, default=3e-3, help="the highest learning rate")
parser.add_argument("--dropout", type=float, default=0.1, help="the share of each layer's results that training leaves out")
parser.add_argument("--adapt", type=float, default=1e-3, help="the rate at which it learns on as it reads the last tenth again; 0: no")
parser.add_argument("--seed_text", default="In the beginning", help="how the text that it writes starts")
args = parser.parse_args()

held = text(args, copies=args.copies)
written = list(held.encode(args.seed_text))  # before the training: it may have characters that the text has not
Y = ng.make_axis(len(held.vocab), name="Y")
kind = {"lstm": LSTM, "rnn": Recurrent, "gru": GRU}[args.layer]
more = {"forget_bias": 1.0} if args.layer == "lstm" else {}
layers = [kind(args.units, GlorotInit(), reset_cells=False, **more) for _ in range(args.depth)]
body = [part for layer in layers for part in (layer, Dropout(1 - args.dropout))]
model = Sequential([LookupTable(len(held.vocab), args.embed, UniformInit(-0.1, 0.1)), *body, Affine(GlorotInit(), axes=[Y])])


def trainer_of(rate, total, folder, **options):
    """What trains the model for so many batches."""
    adam = Adam(Cosine(rate, total, warmup=total // 50), gradient_clip_norm=1.0)
    cost, metric = CrossEntropyMulti(logits=True, usebits=True), BitsPerCharacter(logits=True)
    return Trainer(model, adam, cost, [metric], inputs="inp_txt", folder=folder, **options)


trainer = trainer_of(args.rate, args.num_iterations, args.save_path)
valid = SequentialArrayIterator(held.test, 2 * args.steps, 8)
print(fit(trainer, args, SequentialArrayIterator(held.train, args.steps, args.batch_size, stretch=args.stretch), valid))
if args.late:
    nearer = trainer_of(1e-3, args.late, os.path.join(args.save_path, "late"), transformer=trainer.transformer)
    end = SequentialArrayIterator(late(held.train), args.steps, args.batch_size, stretch=args.stretch)
    print(nearer.fit(end, valid, steps=args.late, every=args.late))

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
for k in range(args.length):
    for letter in written if k == 0 else written[-1:]:
        p = write(np.array([[letter]], np.int32)).astype(np.float64)
    written.append(random.choice(len(p), p=p / p.sum()))
print("-" * 40, held.decode(written), "-" * 40, sep="\n")
# ---- reading on: each character is counted before it is learned -----------------------------------------------------------

if args.adapt:
    for part in body[1::2]:
        part.keep = 1.0
    reader = Trainer(model, Adam(args.adapt, gradient_clip_norm=1.0), trainer.cost, inputs="inp_txt", transformer=trainer.transformer)
    print(reader.fit(SequentialArrayIterator(held.test, 32, 4)))
    print(f"the last tenth, learning while it reads: {np.mean(reader.record['cost/train']):.3f} bits a character")
if args.check:
    fell(trainer.record["cost/train"], 1.3)
