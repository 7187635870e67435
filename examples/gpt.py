"""A small GPT on the characters of the Bible, which then writes text with a key-value cache.

python examples/gpt.py [--seed_text "In the"] [--quick] [--help]
"""

import numpy as np
from example import fell, flags, text

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
)

parser = flags(__doc__, batch_size=32, num_iterations=8000)
for name, value in (("width", 192), ("depth", 4), ("heads", 6), ("steps", 128), ("length", 120)):
    parser.add_argument(f"--{name}", type=int, default=value)
parser.add_argument("--seed_text", default="In the beginning", help="how the text that it writes starts")
parser.add_argument("--resume", action="store_true", help="go on from the checkpoint that an earlier run left")
args = parser.parse_args()
width, depth, heads, steps = (32, 1, 2, 24) if args.quick else (args.width, args.depth, args.heads, args.steps)

held = text(args)
written = list(held.encode(args.seed_text))  # before the training: it may have characters that the text has not
init = GaussianInit(0.0, 0.08 if args.quick else 0.05)
embed = Embedding(len(held.vocab), width, init, max_len=steps)
blocks = [TransformerBlock(heads, init=init, causal=True) for _ in range(depth)]
model = Sequential([embed, *blocks, LayerNorm(), TiedLinear(embed)])
total = 150 if args.quick else args.num_iterations
trainer = Trainer(
    model,
    AdamW(Cosine(3e-3 if args.quick else 1.5e-3, total, warmup=total // 20), wdecay=0.05, beta_2=0.98, gradient_clip_norm=1.0),
    CrossEntropyMulti(logits=True, usebits=True),
    [BitsPerCharacter(logits=True)],
    inputs="inp_txt",
    folder=args.save_path or "out/gpt",
)
train = SequentialArrayIterator(held.train, steps, args.batch_size)
valid = SequentialArrayIterator(held.test, steps, 16, shuffle=False)
print(trainer.fit(train, valid, steps=total, every=min(total, 1000), checkpoint_every=1000, resume=args.resume))
print(trainer.summary(train.batch(0)))

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
if args.quick:
    fell(trainer.record["cost/train"], 1.3)
