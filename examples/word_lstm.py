"""A word model of the Bible: an LSTM over the 8,000 most frequent words; perplexity on the last tenth.

python examples/word_lstm.py [--quick] [--help]
"""

from example import fell, flags, text

import ngraph as ng
from ngraph.frontends.neon import (
    LSTM,
    Adam,
    Affine,
    Cosine,
    CrossEntropyMulti,
    Dropout,
    GlorotInit,
    LookupTable,
    Perplexity,
    Sequential,
    SequentialArrayIterator,
    Trainer,
    UniformInit,
)

parser = flags(__doc__, batch_size=32, num_iterations=6000)
for name, value in (("units", 200), ("steps", 32), ("words", 8000)):
    parser.add_argument(f"--{name}", type=int, default=value)
parser.add_argument("--resume", action="store_true", help="go on from the checkpoint that an earlier run left")
args = parser.parse_args()
words, units, steps = (500, 48, 12) if args.quick else (args.words, args.units, args.steps)
held = text(args, use_words=True, vocab_size=words)
Y = ng.make_axis(len(held.vocab), name="Y")
model = Sequential(
    [LookupTable(len(held.vocab), units, UniformInit(-0.1, 0.1)), Dropout(0.8), LSTM(units, GlorotInit()), Affine(GlorotInit(), axes=[Y])]
)
total = 120 if args.quick else args.num_iterations
trainer = Trainer(
    model,
    Adam(Cosine(1e-2 if args.quick else 3e-3, total), gradient_clip_norm=1.0),
    CrossEntropyMulti(logits=True),
    [Perplexity(logits=True)],
    inputs="inp_txt",
    folder=args.save_path or "out/word_lstm",
)
train = SequentialArrayIterator(held.train, steps, args.batch_size)
valid = SequentialArrayIterator(held.test, steps, 16, shuffle=False)
print(trainer.fit(train, valid, steps=total, every=min(total, 1000), checkpoint_every=1000, resume=args.resume))
if args.quick:
    fell(trainer.record["cost/train"], 1.2)
