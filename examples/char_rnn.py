"""The character model of 2016 through neon's own loop: one recurrent layer of tanh units on one-hot characters, RMSProp, cost in bits.

    python examples/char_rnn.py [--layer_type rnn|birnn] [--use_lut] [--quick] [--help]

Measured, bits a character over 20 batches of the last tenth: 2.94 after the 1,000 batches of a full run, 2.38 after 3,000 (-t 3000),
150 and 480 s of one core.

It is written as a program of 2019: placeholders, an optimizer op in a `sequential`, computations by name, `loop_train`.
"""

import os

from example import fell, flags, text

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.frontends.neon import (
    Affine,
    BiRNN,
    Layer,
    LookupTable,
    Preprocess,
    Recurrent,
    RMSProp,
    Saver,
    Sequential,
    SequentialArrayIterator,
    Softmax,
    Tanh,
    UniformInit,
    ax,
    loop_train,
    make_bound_computation,
    make_default_callbacks,
)

quick = {"num_iterations": 100, "iter_interval": 50}
parser = flags(__doc__, "no_progress_bar", quick=quick, batch_size=50, num_iterations=1000, iter_interval=250)
parser.add_argument("--layer_type", choices=["rnn", "birnn"], default="rnn", help="read forwards, or both ways")
parser.add_argument("--use_lut", action="store_true", help="a LookupTable in place of one-hot characters")
args = parser.parse_args()
(units, steps), total, every = (48, 12) if args.quick else (500, 150), args.num_iterations, args.iter_interval

held = text(args)
train = SequentialArrayIterator(held.train, steps, args.batch_size, total_iterations=total, shuffle="random")
valid = SequentialArrayIterator(held.test, steps, args.batch_size, total_iterations=None if args.quick else 20, shuffle="random")
inputs = train.make_placeholders()
ax.Y.length = len(held.vocab)

init = UniformInit(-0.08, 0.08)
first = (
    LookupTable(len(held.vocab), units, init)
    if args.use_lut
    else Preprocess(lambda x: ng.one_hot(x, axis=ng.make_axis(len(ax.Y), name="F")))
)
if args.layer_type == "rnn":
    rnn = Recurrent(units, init, activation=Tanh())
else:
    rnn = BiRNN(units, init, activation=Tanh(), reset_cells=True, sum_out=True)
model = Sequential([first, rnn, Affine(init, activation=Softmax(), axes=[ax.Y])])


def cost(prediction):
    return ng.cross_entropy_multi(prediction, ng.one_hot(inputs["tgt_txt"], axis=ax.Y), usebits=True)


train_loss = cost(model(inputs["inp_txt"]))
update = RMSProp(gradient_clip_value=1, learning_rate=2e-2 if args.quick else 2e-3)(ng.mean(train_loss, out_axes=[ax.N]))
batch_cost = ng.sequential([update, ng.mean(train_loss, out_axes=())])
with Layer.inference_mode_on():
    eval_loss = ng.mean(cost(model(inputs["inp_txt"])), out_axes=[ax.N])

transformer = ngt.make_transformer()
step = make_bound_computation(transformer, {"batch_cost": batch_cost}, inputs)
evaluate = make_bound_computation(transformer, {"cross_ent_loss": eval_loss}, inputs)
os.makedirs(args.save_path, exist_ok=True)
costs, weights = (os.path.join(args.save_path, name) for name in ("costs.csv", "weights.npz"))
callbacks = make_default_callbacks(transformer, costs, every, step, total, valid, evaluate, not args.no_progress_bar)
record = loop_train(train, step, callbacks)
Saver().save(weights, transformer=transformer, computation=step)
print(f"costs are in {costs}, weights in {weights}")
if args.check:
    fell(record["cost/train"], 1.2)
