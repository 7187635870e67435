"""MNIST with two layers of weights, 784-100-10, in neon.

python examples/mnist_mlp.py [--quick] [--help]
"""

import ngraph as ng
from ngraph.frontends.neon import (
    MNIST,
    Accuracy,
    Affine,
    ArrayIterator,
    ConfusionMatrix,
    Cosine,
    CrossEntropyMulti,
    GlorotInit,
    GradientDescentMomentum,
    KaimingInit,
    NgraphArgparser,
    Preprocess,
    Rectlin,
    Sequential,
    Softmax,
    Trainer,
    ax,
)

parser = NgraphArgparser(description=__doc__)
parser.add_argument("--quick", action="store_true", help="a few seconds, and a check that the loss falls")
args = parser.parse_args()

train, valid = MNIST().load_data()
ax.Y.length = 10
model = Sequential(
    [
        Preprocess(lambda x: ng.cast(x, ng.float32) / 255),
        Affine(KaimingInit(), nout=100, activation=Rectlin()),
        Affine(GlorotInit(), axes=[ax.Y], activation=Softmax()),
    ]
)
steps = 200 if args.quick else args.epochs * (60000 // args.batch_size)
trainer = Trainer(
    model,
    GradientDescentMomentum(Cosine(0.1, steps), momentum_coef=0.9),
    CrossEntropyMulti(),
    metrics=[Accuracy(), ConfusionMatrix()],
    folder="out/mnist_mlp",
)
report = trainer.fit(
    ArrayIterator(train, args.batch_size, shuffle=True, last="drop"), ArrayIterator(valid, 1000, last="short"), steps=steps
)
print(trainer.summary({"image": valid["image"]["data"][:128]}))
print(report)
if args.quick:
    losses = trainer.record["cost/train"]
    assert losses[-20:].mean() < losses[:5].mean() / 4, "the loss did not fall by a factor of 4"
