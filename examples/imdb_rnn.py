"""Good or bad: the sentiment of film reviews from words, by a recurrent layer over a LookupTable.

    python examples/imdb_rnn.py [--layer_type rnn|birnn|lstm|gru] [--quick] [--help]

Without the reviews in their folder it makes some up, of words with a tendency, and says so.

The full run on those, 2 epochs, gets all of them right: they are easy. It has not been run on the reviews themselves.
"""

import numpy as np
from example import fell, fit, training_flags

import ngraph as ng
from ngraph.data.mnist import Unavailable
from ngraph.frontends.neon import (
    AUC,
    GRU,
    IMDB,
    LSTM,
    Accuracy,
    Adam,
    Affine,
    ArrayIterator,
    BiRNN,
    CrossEntropyMulti,
    Dropout,
    GlorotInit,
    LookupTable,
    Recurrent,
    Sequential,
    Softmax,
    Trainer,
    UniformInit,
)

parser = training_flags(__doc__, quick={"num_iterations": 60}, batch_size=64, epochs=2)
parser.add_argument("--layer_type", choices=["rnn", "birnn", "lstm", "gru"], default="gru", help="the recurrent layer")
args = parser.parse_args()
length, words, units = (16, 300, 24) if args.quick else (128, 20000, 128)


def made_up(count):
    random = np.random.default_rng(0)
    tendency = random.normal(size=words)
    label = random.integers(0, 2, count).astype(np.int32)
    chances = np.exp(np.array([-1, 1])[:, None] * 0.7 * tendency)
    chances /= chances.sum(1, keepdims=True)
    review = np.stack([random.choice(words, length, p=chances[k]) for k in label]).astype(np.int32)
    data = {"review": {"data": review, "axes": ("N", "REC")}, "label": {"data": label, "axes": ("N",)}}
    cut = count * 4 // 5
    return tuple({k: {**v, "data": v["data"][s]} for k, v in data.items()} for s in (slice(0, cut), slice(cut, None)))


try:
    held = IMDB(vocab_size=words, sentence_length=length).load_data()
    train, valid = held["train"], held["valid"]
except Unavailable:
    print("the reviews are not in their folder (NGRAPH_DATA); making some up")
    train, valid = made_up(2500)

last = {"return_sequence": False}
layer = {
    "rnn": lambda: Recurrent(units, GlorotInit(), **last),
    "lstm": lambda: LSTM(units, GlorotInit(), **last),
    "gru": lambda: GRU(units, GlorotInit(), **last),
    "birnn": lambda: BiRNN(units, GlorotInit(), reset_cells=True, sum_out=True, **last),
}[args.layer_type]()
model = Sequential(
    [
        LookupTable(words, units, UniformInit(-0.1, 0.1)),
        layer,
        Dropout(0.8),
        Affine(GlorotInit(), axes=[ng.make_axis(2, name="Y")], activation=Softmax()),
    ]
)
trainer = Trainer(model, Adam(5e-3, gradient_clip_value=15), CrossEntropyMulti(), [Accuracy(), AUC()], folder=args.save_path)
print(fit(trainer, args, ArrayIterator(train, args.batch_size, shuffle=True), ArrayIterator(valid, 100, last="short")))
if args.check:
    fell(trainer.record["cost/train"], 1.5)
