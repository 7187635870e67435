"""What a newcomer may write by mistake: each is named in one line, when it is written and not when it runs."""

import inspect

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.frontends import neon
from ngraph.frontends.neon import (
    AUC,
    CTC,
    LAMB,
    Accuracy,
    Adam,
    AdamW,
    Affine,
    ArrayIterator,
    BatchNorm,
    Cosine,
    CrossEntropyMulti,
    EarlyStopping,
    GlorotInit,
    GradientDescentMomentum,
    Growing,
    Huber,
    IterableSource,
    LookupTable,
    MeanSquared,
    MultiHeadAttention,
    Nadam,
    OneCycle,
    Sequential,
    TopK,
    Trainer,
    TransformerBlock,
    Triplet,
)
from ngraph.frontends.neon.calls import arguments_of

RANDOM = np.random.default_rng(0)
DATA = {
    "image": {"data": RANDOM.normal(size=(40, 6)).astype(np.float32), "axes": ("N", "F")},
    "label": {"data": RANDOM.integers(0, 3, 40).astype(np.int32), "axes": ("N",)},
}


def tensor(dtype="float32", **lengths):
    return ng.placeholder([ng.make_axis(n, name=a) for a, n in lengths.items()], dtype=dtype)


def cost():
    y = Affine(GlorotInit(), nout=3)(tensor(F=6, N=4))
    return CrossEntropyMulti(logits=True)(y, tensor("int32", N=4))


def trained(call=None, metrics=(), **changes):
    model = Sequential([Affine(GlorotInit(), axes=[ng.make_axis(3, name="Y")])])
    given = {"model": model, "optimizer": Adam(0.1), "cost": CrossEntropyMulti(logits=True), **changes}
    trainer = Trainer(given["model"], given["optimizer"], given["cost"], metrics, say=lambda line: None)
    valid = ArrayIterator(DATA, 20)
    if call is None or "after" in call.__name__:
        trainer.fit(ArrayIterator(DATA, 20), valid, steps=1)
    if call is not None:
        call(trainer, valid)


def before(**settings):
    def fit(trainer, valid):
        trainer.fit(ArrayIterator(DATA, 20), valid, **settings)

    return fit


def after(method, *args):
    def call_after(trainer, valid):
        getattr(trainer, method)(*args)

    return call_after


SEQUENCE = {"F": 6, "REC": 5, "N": 4}
WRONG = {
    "Adam: accumulate is a whole number above 0, not 0": lambda: Adam(0.1, accumulate=0),
    "Adam: accumulate is a whole number above 0, not 1.5": lambda: Adam(0.1, accumulate=1.5),
    "Adam: loss_scale is a number above 0, or 'dynamic', not 'auto'": lambda: Adam(0.1, loss_scale="auto"),
    "Adam: ema_decay is a number from 0 to below 1, not 2": lambda: Adam(0.1, ema_decay=2),
    "Adam: lookahead is (steps, share), such as (5, 0.5), not 5": lambda: Adam(0.1, lookahead=5),
    "lookahead's steps is a whole number above 0, not 0": lambda: Adam(0.1, lookahead=(0, 0.5)),
    "Adam: gradient_clip_norm is a number above 0, not 'a'": lambda: Adam(0.1, gradient_clip_norm="a"),
    "AdamW has no argument decay": lambda: AdamW(0.1, decay=0.1),
    "AdamW: wdecay is a number, 0 or more, not -1": lambda: AdamW(0.1, wdecay=-1),
    "LAMB: beta_1 is a number from 0 to below 1, not 1.0": lambda: LAMB(0.1, beta_1=1.0),
    "Nadam: beta_2 is a number from 0 to below 1, not nan": lambda: Nadam(0.1, beta_2=float("nan")),
    "momentum_coef is a number from 0 to below 1, not 'x'": lambda: GradientDescentMomentum(0.1, "x"),
    "Adam: a learning rate is a number, 0 or more, not -1.0": lambda: Adam(-1.0),
    "Cosine: steps is a whole number above 0, not 0": lambda: Cosine(0.1, 0),
    "Cosine: a warm-up of 20 in 10 steps": lambda: Cosine(0.1, 10, warmup=20),
    "OneCycle: peak is a number from 0 to 1, not 3": lambda: OneCycle(0.1, 10, peak=3),
    "CrossEntropyMulti: smoothing is a number from 0 to below 1, not 2": lambda: CrossEntropyMulti(smoothing=2),
    "CrossEntropyMulti: the mask has [F=6], and the cost [REC=5, N=4]": lambda: CrossEntropyMulti()(
        tensor(Y=3, REC=5, N=4), tensor("int32", REC=5, N=4), mask=tensor(F=6)
    ),
    "Huber: delta is a number above 0, not -1": lambda: Huber(-1),
    "MeanSquared(placeholder, placeholder): [F=6, Y=3] is on one side only": lambda: MeanSquared()(tensor(Y=3, N=4), tensor(F=6, N=4)),
    "Triplet: the prediction is (anchor, positive, negative)": lambda: Triplet()((tensor(F=6), tensor(F=6))),
    "Triplet: margin is a number, 0 or more, not -1": lambda: Triplet(-1),
    "CTC: the target is (labels, lengths of predictions, lengths of labels)": lambda: CTC()(tensor(Y=3, REC=5, N=4), tensor("int32", N=4)),
    "CTC: the blank 7 is none of the classes of [Y=3]": lambda: CTC(7)(
        tensor(Y=3, REC=5, N=4), (tensor("int32", N=4, L=2), tensor("int32", N=4), tensor("int32", N=4))
    ),
    "MultiHeadAttention: heads is a whole number above 0, not 0": lambda: MultiHeadAttention(0),
    "the mask has float32 elements": lambda: MultiHeadAttention(2)(tensor(**SEQUENCE), mask=tensor(REC=5, N=4)),
    "the mask has [Q=9], which is none of": lambda: MultiHeadAttention(2)(tensor(**SEQUENCE), mask=tensor("bool", Q=9)),
    "has cross=True, and no memory": lambda: TransformerBlock(2, cross=True)(tensor(**SEQUENCE)),
    "has a memory, and no cross=True": lambda: TransformerBlock(2)(tensor(**SEQUENCE), memory=tensor(F=6, REC=7, N=4)),
    "Growing: length is a whole number above 0, not 0": lambda: Growing(0, tensor("int32"), ng.make_axis(1, name="N")),
    "no position": lambda: Growing(5, tensor(), ng.make_axis(1, name="N")),
    "LookupTable: vocab_size is a whole number above 0, not 0": lambda: LookupTable(0, 6, GlorotInit()),
    "BatchNorm: rho is a number from 0 to 1, not 2": lambda: BatchNorm(rho=2),
    "TopK: k is a whole number above 0, not 0": lambda: TopK(0),
    "AUC(add): Y=3 are more than two classes": lambda: trained(metrics=[AUC()]),
    "'accuracy' is not a metric": lambda: trained(metrics=["accuracy"]),
    "Accuracy'> is not a metric": lambda: trained(metrics=[Accuracy]),
    "the cost is 'mse', which cannot be called with ops": lambda: trained(cost="mse"),
    "callbacks is ['EarlyStopping'], which is not a list of callbacks": lambda: trained(before(callbacks=["EarlyStopping"])),
    "Adam: the cost is an array of float64 (3,), which is not an op": lambda: Adam()(np.ones(3)),
    "the optimizer is <class": lambda: trained(optimizer=Adam),
    "fit: epochs is a whole number, 0 or more, not -1": lambda: trained(before(epochs=-1)),
    "fit: every is a whole number above 0, not 0": lambda: trained(before(every=0)),
    "checkpoints need a folder": lambda: trained(before(resume=True)),
    "fit: there are inputs, and no targets": lambda: trained(lambda t, v: t.fit(DATA["image"]["data"])),
    "patience needs a validation set": lambda: trained(lambda t, v: t.fit(v, patience=2)),
    "predict: the batch has img, and lacks image": lambda: trained(after("predict", {"img": 0})),
    "predict: NoneType is neither an array nor an iterator": lambda: trained(after("predict", None)),
    "summary: the batch has img, and lacks image": lambda: trained(after("summary", {"img": 0})),
    "evaluate: float is neither an array nor an iterator": lambda: trained(after("evaluate", 1.0)),
    "EarlyStopping: better is 'min' or 'max', not 'low'": lambda: EarlyStopping(better="low"),
    "IterableSource: the source gives no batch": lambda: IterableSource([]),
    "IterableSource: the source gives tuple, and a batch is a dict": lambda: IterableSource([(1, 2)]),
}


@pytest.mark.parametrize("said", WRONG)
def test_it_is_named(said):
    ngt.set_transformer_factory(ngt.make_transformer_factory("direct"))
    try:
        with pytest.raises(ng.NgraphError) as caught:
            WRONG[said]()
    finally:
        ngt.set_transformer_factory(None)
    assert said in str(caught.value) and "fix: " in str(caught.value)
    assert caught.value.line[0] == __file__


class Halved(Adam):
    """An optimizer of a user's own, with a constructor of its own."""

    def __init__(self, rate):
        super().__init__(learning_rate=rate / 2)


def test_classes_of_the_users_own_take_their_own_arguments():
    assert Halved(0.2).schedule(0) is not None
    with pytest.raises(TypeError, match="unexpected keyword argument 'learning_rate'"):
        Halved(learning_rate=0.1)
    with pytest.raises(ng.NgraphError, match="Halved: a learning rate is a number, 0 or more, not -1.0"):
        Halved(-2)


NEEDED = {  # arguments that a class cannot do without
    **{name: {"nout": 3, "init": 0.1} for name in ("Linear", "Recurrent", "LSTM", "GRU", "BiRNN", "RNNCell", "LSTMCell", "GRUCell")},
    **{name: {"filter_shape": (3, 3, 4), "filter_init": 0.1} for name in ("Convolution", "Deconvolution")},
    **{name: {"base_lr": 0.1, "steps": 10} for name in ("Cosine", "OneCycle")},
    **{name: {"heads": 2} for name in ("MultiHeadAttention", "TransformerBlock")},
    "Affine": {"nout": 3},
    "Activation": {"transform": neon.Rectlin()},
    "ArrayIterator": {"data_arrays": DATA, "batch_size": 8},
    "CallbackContainer": {"transformer": None, "output_file": None, "total_iterations": 3},
    "Embedding": {"vocab_size": 5, "embed_dim": 3},
    "GradientDescentMomentum": {"learning_rate": 0.1},
    "GroupNorm": {"groups": 2},
    "IterableSource": {"source": [{"x": np.zeros(3)}]},
    "LookupTable": {"vocab_size": 5, "embed_dim": 3, "init": 0.1},
    "LossCallback": {"frequency": 1, "dataset": None, "interval_loss_comp": None},
    "Parallel": {"branches": [Affine(nout=3)]},
    "Pooling": {"pool_shape": 2},
    "Prefetch": {"source": ArrayIterator(DATA, 8)},
    "Preprocess": {"functor": abs},
    "ResidualModule": {"main_path": Affine(nout=3)},
    "Schedule": {"name": "fixed", "base_lr": 0.1},
    "Sequential": {"layers": []},
    "SequentialArrayIterator": {"data_arrays": {"tgt_txt": np.zeros(100)}, "time_steps": 5, "batch_size": 2},
    "Text": {"path": "", "text": "a text" * 20},
    "TiedLinear": {"table": LookupTable(5, 3, 0.1)},
    "TrainLoggerCallback": {"frequency": 1},
    "Trainer": {"model": Affine(nout=3), "optimizer": Adam(), "cost": MeanSquared()},
}
PLAIN = """Accuracy Adagrad Adam AdamW BatchNorm Bias CIFAR100 CTC ConfusionMatrix ConstantInit CrossEntropyBinary CrossEntropyMulti
Dropout EarlyStopping Explin F1 GaussianInit Gelu GlobalPooling Huber InstanceNorm LAMB LayerNorm Nadam Normalizer OrthogonalInit Perplexity
RMSNorm RMSProp Rectlin Rectlinclip Softmax SquaredL2 TopK Triplet UniformInit""".split()  # those that need none
ODD = ["x", -1, 1.5, None, [], {}, object(), np.zeros((2, 2)), True, neon.Rectlin, (1, 2, 3), float("nan")]


@pytest.mark.parametrize("name", [*NEEDED, *PLAIN])
def test_whatever_an_argument_is_no_error_is_a_raw_one(name):
    """Either it does, or an NgraphError names a fix."""
    made, needed, refused = getattr(neon, name), NEEDED.get(name, {}), 0
    made(**needed)
    arguments = arguments_of(made, made) if isinstance(made, type) else inspect.signature(made).parameters
    for argument in arguments:
        for odd in ODD:
            try:
                made(**{**needed, argument: odd})
            except ng.NgraphError as error:
                assert error.line[0] == __file__ and "fix: " in str(error), error
                refused += 1
    assert refused, "it takes anything"
