"""Which part of the Bible a passage is from, by convolutions over its characters, one-hot; verse marks are left out.

python examples/char_conv.py [--quick] [--help]

Six parts: law, history, poetry, prophets, gospels (with Acts), letters (with Revelation). Every tenth passage is for testing.

The full run, 900 batches, ends at 76.6 % of the passages it has not seen.
"""

import re

import numpy as np
from example import bible, fell, fit, training_flags

import ngraph as ng
from ngraph.frontends.neon import (
    Accuracy,
    AdamW,
    Affine,
    ArrayIterator,
    ConfusionMatrix,
    Convolution,
    Cosine,
    CrossEntropyMulti,
    Dropout,
    GlobalPooling,
    GlorotInit,
    KaimingInit,
    Pooling,
    Preprocess,
    Rectlin,
    Sequential,
    Trainer,
)
from ngraph.frontends.neon.data.readers import text_file

PARTS = {"law": "Ge", "history": "Josh", "poetry": "Job", "prophets": "Isa", "gospels": "Mat", "letters": "Rom"}  # and their first books
LETTERS = " abcdefghijklmnopqrstuvwxyz.,:;'()?!-"

args = training_flags(__doc__, quick={"num_iterations": 120, "batch_size": 32}, num_iterations=900, iter_interval=300).parse_args()
length, filters = (192, 32) if args.quick else (256, 96)

# ---- passages: [count, length] numbers of letters, and the number of each one's part

verses, part = {name: [] for name in PARTS}, None
for mark, words in re.findall(r"^(\w+?)\d+:\d+ (.*?)(?=^\w+?\d+:|\Z)", text_file(bible()), re.M | re.S):
    part = next((name for name, book in PARTS.items() if mark == book), part)
    verses[part].append(" ".join(words.lower().split()))
split = {"train": [], "valid": []}
for label, name in enumerate(PARTS):
    numbers = np.array([LETTERS.find(c) + 1 for c in " ".join(verses[name])], np.int32)
    passages = numbers[: len(numbers) // length * length].reshape(-1, length)
    for kind, tenths in (("train", range(9)), ("valid", [9])):
        chosen = passages[np.isin(np.arange(len(passages)) % 10, tenths)]
        split[kind].append((chosen, np.full(len(chosen), label, np.int32)))
train, valid = (
    {"text": {"data": np.concatenate(x), "axes": ("N", "W")}, "label": {"data": np.concatenate(y), "axes": ("N",)}}
    for x, y in (zip(*split[kind], strict=True) for kind in ("train", "valid"))
)
print(f"{len(train['label']['data']):,} passages of {length} letters, {len(valid['label']['data']):,} for testing")

# ---- the model

C, Y = ng.make_axis(len(LETTERS) + 1, name="C"), ng.make_axis(len(PARTS), name="Y")
init, relu = KaimingInit(), Rectlin()
model = Sequential(
    [
        Preprocess(lambda x: ng.one_hot(x, axis=C)),
        Convolution((7, filters), init, padding="same", batch_norm=True, activation=relu),
        Pooling(3, strides=3),
        Convolution((5, filters), init, padding="same", batch_norm=True, activation=relu),
        Pooling(3, strides=3),
        Convolution((3, filters), init, padding="same", batch_norm=True, activation=relu),
        GlobalPooling("avg"),
        Dropout(0.5),
        Affine(GlorotInit(), axes=[Y]),
    ]
)
trainer = Trainer(
    model,
    AdamW(Cosine(1e-2 if args.quick else 1e-3, args.num_iterations), wdecay=0.1, gradient_clip_norm=1.0),
    CrossEntropyMulti(logits=True),
    [Accuracy(), ConfusionMatrix()],
    folder=args.save_path,
)
report = fit(trainer, args, ArrayIterator(train, args.batch_size, shuffle=True), ArrayIterator(valid, 100, last="short"))
print(report)
for name, row in zip(PARTS, report.valid["confusion"], strict=True):
    print(f"{name:9} {row[list(PARTS).index(name)] / row.sum():5.0%} right, of {row.sum():.0f}")
if args.check:
    fell(trainer.record["cost/train"], 1.2)
