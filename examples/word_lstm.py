"""A word model of the Bible: an LSTM over the 8,000 most frequent words; perplexity on the last tenth.

python examples/word_lstm.py [--quick] [--help]

The full run, 2,000 batches, ends at a perplexity of 123.6 among 8,000 words; 296 s of one core.
"""

from example import fell, fit, text, training_flags

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

quick = {"num_iterations": 120, "units": 48, "steps": 12, "words": 500}
parser = training_flags(__doc__, quick=quick, batch_size=32, num_iterations=2000, iter_interval=1000)
for name, value, said in (("units", 200, "of the LSTM"), ("steps", 32, "words of a window"), ("words", 8000, "that are told apart")):
    parser.add_argument(f"--{name}", type=int, default=value, help=said)
args = parser.parse_args()
held, units = text(args, use_words=True, vocab_size=args.words), args.units
Y = ng.make_axis(len(held.vocab), name="Y")
model = Sequential(
    [LookupTable(len(held.vocab), units, UniformInit(-0.1, 0.1)), Dropout(0.8), LSTM(units, GlorotInit()), Affine(GlorotInit(), axes=[Y])]
)
trainer = Trainer(
    model,
    Adam(Cosine(1e-2 if args.quick else 3e-3, args.num_iterations), gradient_clip_norm=1.0),
    CrossEntropyMulti(logits=True),
    [Perplexity(logits=True)],
    inputs="inp_txt",
    folder=args.save_path,
)
train = SequentialArrayIterator(held.train, args.steps, args.batch_size, shuffle="random")
valid = SequentialArrayIterator(held.test, args.steps, 16)
print(fit(trainer, args, train, valid))
if args.check:
    fell(trainer.record["cost/train"], 1.2)
