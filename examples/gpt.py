"""A small GPT on the characters of the Bible, which then writes text with a key-value cache.

    python examples/gpt.py [--seed_text "In the"] [--quick] [--help]

The last tenth of the text is for testing. The training is that of char_lstm.py: a second copy of its text has made-up names of books, and
its own last tenth comes once more at the end. A window has 256 characters; in the last test all of them have at least 128 before them.

Measured on the last tenth, with weights as trained: 1.738 bits a character in windows of their own, 1.628 in overlapping ones; 80
minutes on half of a core (docs/results.md).
"""

import os

import numpy as np
from example import fell, fit, late, text, training_flags

import ngraph as ng
from ngraph.frontends.neon import (
    AdamW,
    BitsPerCharacter,
    Cosine,
    CrossEntropyMulti,
    Embedding,
    GaussianInit,
    Growing,
    Layer,
    LayerNorm,
    Sequential,
    SequentialArrayIterator,
    TiedLinear,
    Trainer,
    TransformerBlock,
    ax,
)

quick = {"num_iterations": 150, "late": 10, "width": 32, "depth": 1, "heads": 2, "steps": 24, "copies": 0}
parser = training_flags(__doc__, quick=quick, batch_size=16, num_iterations=3600, iter_interval=1000)
for name, value, said in (
    ("width", 192, "features of a character"),
    ("depth", 4, "blocks"),
    ("heads", 6, "of attention, in each block"),
    ("steps", 256, "characters of a window"),
    ("copies", 1, "of the text with made-up names of books"),
    ("late", 150, "batches of the end of the training's text, after all others"),
    ("length", 120, "characters to write"),
):
    parser.add_argument(f"--{name}", type=int, default=value, help=said)
parser.add_argument("--seed_text", default="In the beginning", help="how the text that it writes starts")
args = parser.parse_args()
steps, rate = args.steps, 3e-3 if args.quick else 1.5e-3

held = text(args, copies=args.copies)
written = list(held.encode(args.seed_text))  # before the training: it may have characters that the text has not
init = GaussianInit(0.0, 0.08 if args.quick else 0.05)
embed = Embedding(len(held.vocab), args.width, init, max_len=steps)
blocks = [TransformerBlock(args.heads, init=init, causal=True) for _ in range(args.depth)]
model = Sequential([embed, *blocks, LayerNorm(), TiedLinear(embed)])


def trainer_of(rate, total, folder, **options):
    """What trains the model for so many batches."""
    adam = AdamW(Cosine(rate, total, warmup=total // 20), wdecay=0.05, beta_2=0.98, gradient_clip_norm=1.0)
    cost, metric = CrossEntropyMulti(logits=True, usebits=True), BitsPerCharacter(logits=True)
    return Trainer(model, adam, cost, [metric], inputs="inp_txt", folder=folder, **options)


trainer = trainer_of(rate, args.num_iterations, args.save_path)
train = SequentialArrayIterator(held.train, steps, args.batch_size, shuffle="random")
valid = SequentialArrayIterator(held.test, steps, 16)
print(fit(trainer, args, train, valid))
if args.late:
    nearer = trainer_of(rate / 3, args.late, os.path.join(args.save_path, "late"), transformer=trainer.transformer)
    print(
        nearer.fit(
            SequentialArrayIterator(late(held.train), steps, args.batch_size, shuffle="random"), valid, steps=args.late, every=args.late
        )
    )
print(trainer.summary(train.batch(0)))

# ---- the test once more, in windows of which each has the second half of the one before it as its first half: that is not counted

valid = SequentialArrayIterator(held.test, steps, 16, stride=steps // 2)
read = valid.make_placeholders()
with Layer.inference_mode_on():
    bits = trainer.cost.of(model(read["inp_txt"]), read["tgt_txt"])
counted = ng.mean(ng.slice_along_axis(bits, ax.REC, slice(steps // 2, None)), out_axes=())
measure = trainer.transformer.computation(counted, read["inp_txt"], read["tgt_txt"])
found = [measure(batch["inp_txt"], batch["tgt_txt"]) for batch in valid]
print(f"the last tenth, each character with {steps // 2} or more before it: {np.mean(found):.3f} bits")

# ---- writing text: each character is computed once, earlier ones are in the cache

N, REC = ng.make_axis(1, name="N"), ng.make_axis(1, name="REC")
one, at = ng.placeholder([N, REC], dtype=ng.int32), ng.placeholder((), dtype=ng.int32)
growing = Growing(steps, at, N)
with Layer.inference_mode_on():
    x = embed(one, start=at)
    for block in blocks:
        x = block(x, growing=growing)
    scores = model[-1](model[-2](x))
write = trainer.transformer.computation(ng.softmax(scores[{N: 0, REC: 0}]), one, at)
random = np.random.default_rng(0)
for k in range(min(args.length, steps) - 1):
    p = write(np.array([[written[k]]], np.int32), k).astype(np.float64)
    if k == len(written) - 1:
        written.append(random.choice(len(p), p=p / p.sum()))
print("-" * 40, held.decode(written), "-" * 40, sep="\n")
if args.check:
    fell(trainer.record["cost/train"], 1.3)
