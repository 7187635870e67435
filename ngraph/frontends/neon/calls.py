"""The kinds of arguments of neon's classes and functions, by argument name; and errors that name the user's call.

A class that is constructed within another one, as the Linear within an Affine, reports errors under the outer one's name.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ngraph.errors import ArgumentError, ArgumentTypeError, NgraphError, UnknownName, nearest
from ngraph.op_graph.arguments import AXES, FUNCTION, MAPPING, NUMBER, TENSOR, TEXT, TRUTH, ArgumentKind, explained, told
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.op import Op
from ngraph.parts.scopes import ScopedValue

F = TypeVar("F", bound=Callable[..., Any])
_outer = ScopedValue("neon_outer", "")


def speaker(name: str) -> str:
    """Returns the name that a message shows: the outermost class or function of neon that is being called, else `name`."""
    return _outer.get() or name


def speaking(name: str) -> AbstractContextManager[object]:
    """Makes messages of this block show this name, unless an outer block has set one."""
    return _outer.of(_outer.get() or name)


def _object(x: Any) -> bool:
    return callable(x) and not isinstance(x, (type, str))


def _first(x: Any) -> bool:
    return _object(x) or TENSOR.fits(x) and not isinstance(x, bool)


def _weights(x: Any) -> bool:
    return _first(x) and not (isinstance(x, int) and abs(x) > 1)


def _ops(x: Any) -> bool:
    if isinstance(x, Mapping):
        return all(map(_ops, x.values()))
    return x is None or isinstance(x, Op) or isinstance(x, (list, tuple)) and all(map(_ops, x))


def _is_path(x: Any) -> bool:
    return isinstance(x, (str, os.PathLike))


def _side(x: Any) -> bool:
    return isinstance(x, (int, np.integer, str)) and not isinstance(x, bool)


def _sides(x: Any) -> bool:
    return _side(x) or isinstance(x, (list, tuple)) and all(map(_sides, x)) or isinstance(x, Mapping) and all(map(_sides, x.values()))


def _steps(x: Any) -> bool:
    numbers = x.values() if isinstance(x, Mapping) else x if isinstance(x, (list, tuple)) else [x]
    return all(_side(n) and not isinstance(n, str) for n in numbers)


def _shape(x: Any) -> bool:
    numbers = x.values() if isinstance(x, Mapping) else x if isinstance(x, (list, tuple)) else [x]
    return all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n > 0 for n in numbers)


ACTIVATION = ArgumentKind(
    "not an activation", lambda x: x is None or _object(x), "pass an object, such as Rectlin(), or a function of an op"
)
FIRST = ArgumentKind("not an initial value", _first, "pass a number, an array, or an object such as GlorotInit()")
WEIGHTS = ArgumentKind(
    "not an initial value of weights",
    _weights,
    "pass an object, such as GlorotInit(), or ConstantInit(2) for equal weights; outputs are counted by nout=64, and inputs not at all",
)
LAYERS = ArgumentKind("not a list of layers", lambda x: isinstance(x, (list, tuple)), "pass a list: [Affine(...), Affine(...)]")
PART = ArgumentKind("not a layer", _object, "pass a layer, or a function of an op")
NORM = ArgumentKind("not True, False or BatchNorm()", lambda x: isinstance(x, (bool, np.bool_)) or _object(x), "pass True, or a layer")
MAKER = ArgumentKind("not a class of a layer", lambda x: isinstance(x, type) or callable(x), "pass the class, as in norm=LayerNorm")
WORD = ArgumentKind("not a name", lambda x: x is None or isinstance(x, str), "pass a string")
PATH = ArgumentKind("not a path", _is_path, "pass a string")
OPERAND = ArgumentKind("not an op", _ops, "pass a placeholder: ng.placeholder([...]), or what another layer gave")
ONE_OP = ArgumentKind(
    "not an op",
    lambda x: isinstance(x, Op),
    "pass one op, such as a placeholder; where a Trainer passes a dict, name an entry: inputs='x'",
)
ALONE = """Affine BatchNorm Bias Convolution Deconvolution Dropout Embedding GRU GlobalPooling GroupNorm InstanceNorm LSTM LayerNorm Linear
LookupTable MultiHeadAttention Pooling RMSNorm Recurrent TiedLinear TransformerBlock""".split()  # layers that take one op
SIZES = ArgumentKind("not numbers by side", _sides, "pass a number, a tuple with one for each side, or a dict such as {'H': 2, 'W': 1}")
STEPS = ArgumentKind(
    "not whole numbers by side",
    _steps,
    "pass a number, a tuple with one for each side, or a dict such as {'H': 2, 'W': 1}; words are for padding='same' and pool_type='max'",
)
SHAPE = ArgumentKind("not a shape", _shape, "pass whole numbers above 0, such as (3, 3, 16), or a dict such as {'H': 3, 'W': 3, 'K': 16}")
SPLITS = ArgumentKind(
    "not a two shares",
    lambda x: isinstance(x, (list, tuple)) and len(x) == 2 and all(isinstance(s, (int, float)) and 0 <= s < 1 for s in x) and sum(x) < 1,
    "pass those of valid and test, such as (0.05, 0.05)",
)
SCHEDULE = ArgumentKind("not a schedule", lambda x: x is None or hasattr(x, "of"), "pass one, such as Schedule([100, 200], 0.1)")
METRICS = ArgumentKind("not a list of metrics", lambda x: isinstance(x, (list, tuple)), "pass a list: [Accuracy()]")
CALLBACKS = ArgumentKind(
    "not a list of callbacks", lambda x: isinstance(x, (list, tuple)) and all(map(callable, x)), "pass a list: [EarlyStopping(patience=3)]"
)
NAMED = ArgumentKind("not axes", lambda x: x is None or isinstance(x, (str, Axis, list, tuple, Mapping)), "pass their names: ('H', 'W')")

BATCHES = ArgumentKind(
    "not an iterator over batches",
    lambda x: hasattr(x, "batch") and hasattr(x, "once"),
    "pass ArrayIterator({'image': images}, batch_size=128)",
)
SOURCE = ArgumentKind(
    "not an iterable, and no function that gives one",
    lambda x: callable(x) or hasattr(x, "__iter__") or hasattr(x, "__getitem__"),
    "pass a list of dicts, a loader, or a function that gives one",
)
BATCH_SIZE = ArgumentKind(
    "not a number",
    NUMBER.fits,
    "pass arrays as a dict, then a number: ArrayIterator({'image': images, 'label': labels}, 128)",
)

_NAMES = (
    (
        TRUTH,
        "logits usebits half bias causal reset_cells return_sequence backward sum_out concat_out shared update approximate nesterov shuffle"
        " reverse_target get_prev_target include_iteration cross fixed_batch tensorboard progress_bar force deconv time use_words"
        " shift_target reverse_mode strict compress resume use_progress_bar best_only apply",
    ),
    (ACTIVATION, "activation gate_activation transform"),
    (WEIGHTS, "init weight_init filter_init"),
    (FIRST, "bias_init init_inner init_h2h init_gamma init_beta val"),
    (LAYERS, "layers branches"),
    (PART, "main_path side_path functor"),
    (NORM, "batch_norm"),
    (MAKER, "norm"),
    (WORD, "name"),
    (SCHEDULE, "schedule"),
    (
        NUMBER,
        "mean std var low high gain slope cutoff divisor threshold eps forget_bias accumulate steps time_steps stretch clip_norm clip_value"
        " min_value_override",
    ),
    (OPERAND, "in_obj memory"),
    (AXES, "axes"),
    (TENSOR, "alpha"),
    (SIZES, "padding"),
    (STEPS, "strides dilation"),
    (SHAPE, "filter_shape pool_shape deconv_out_shape"),
    (SPLITS, "splits"),
    (METRICS, "metrics"),
    (CALLBACKS, "callbacks callback_list"),
    (SOURCE, "source"),
    (FUNCTION, "say save"),
    (NAMED, "channel_axes spatial_axes keep_axes"),
    (MAPPING, "named_inputs rate_factors"),
    (PATH, "path filename"),
    (TEXT, "text tgt_key"),
)
KINDS = {name: kind for kind, names in _NAMES for name in names.split()}
ELSEWHERE = {  # entries whose argument name means something else, and None where any value is allowed
    **{(c, "axes"): NAMED for c in ("LayerNorm", "RMSNorm", "Softmax")},
    **{(c, "axes"): MAPPING for c in ("IterableSource",)},
    **{(c, "in_obj"): ONE_OP for c in ALONE},
    ("ArrayIterator", "batch_size"): BATCH_SIZE,
    ("SequentialArrayIterator", "batch_size"): NUMBER,
    ("BiRNN", "cell"): ArgumentKind(
        "not a class of a recurrent layer", lambda x: hasattr(x, "cell_type"), "pass the class, as in cell=LSTM"
    ),
    ("Prefetch", "source"): BATCHES,
    ("SequentialArrayIterator", "shuffle"): None,
    ("BucketIterator", "padding"): None,
    ("fit", "axes"): ArgumentKind(
        "not names of axes",
        lambda x: x is None or isinstance(x, (str, list, tuple, Mapping)),
        'pass text, axes="N H W C", or a dict of it by input',
    ),
    ("loop_train", "callbacks"): ArgumentKind(
        "not a container of callbacks", lambda x: hasattr(x, "callback_data"), "pass what make_default_callbacks returns"
    ),
    ("UniformInit", "init"): None,
    ("RMSProp", "name"): WORD,
    ("Shakespeare", "path"): PATH,
    ("Metric", "batch"): None,
    ("Schedule", "name"): None,
    ("ModelCheckpoint", "filename"): ArgumentKind("not a path", lambda x: x is None or _is_path(x), "pass a string: 'best.safetensors'"),
}

SYNONYMS = {  # argument names of other libraries
    **dict.fromkeys(("units", "out_features", "hidden_size", "num_units", "n_out", "size", "outputs"), ("nout", "embed_dim", "head_size")),
    **dict.fromkeys(("kernel_initializer", "initializer", "weights"), ("weight_init", "filter_init", "init")),
    **dict.fromkeys(("kernel_size", "kernel"), ("filter_shape", "pool_shape")),
    **dict.fromkeys(("use_bias",), ("bias", "bias_init")),
    **dict.fromkeys(("stride",), ("strides",)),
    **dict.fromkeys(("pad",), ("padding", "last")),
    **dict.fromkeys(("lr", "rate", "alpha", "step_size"), ("learning_rate", "base_lr")),
    **dict.fromkeys(("momentum",), ("momentum_coef", "rho")),
    **dict.fromkeys(("weight_decay", "decay"), ("wdecay", "decay_rate", "rho")),
    **dict.fromkeys(("betas", "beta1"), ("beta_1",)),
    **dict.fromkeys(("beta2",), ("beta_2",)),
    **dict.fromkeys(("eps",), ("epsilon", "eps")),
    **dict.fromkeys(("p", "rate", "keep_prob"), ("keep",)),
    **dict.fromkeys(("from_logits",), ("logits",)),
    **dict.fromkeys(("label_smoothing",), ("smoothing",)),
    **dict.fromkeys(("ignore_index",), ("ignore",)),
    **dict.fromkeys(("num_epochs", "nb_epoch", "epoch"), ("epochs",)),
    **dict.fromkeys(("validation_data", "val", "valid_set"), ("valid",)),
    **dict.fromkeys(("clipnorm", "clip_norm"), ("gradient_clip_norm",)),
    **dict.fromkeys(("num_heads", "nheads"), ("heads",)),
    **dict.fromkeys(("num_embeddings", "input_dim"), ("vocab_size",)),
    **dict.fromkeys(("embedding_dim", "output_dim"), ("embed_dim",)),
    **dict.fromkeys(("padding_idx",), ("pad_idx",)),
    **dict.fromkeys(("bidirectional", "go_backwards"), ("backward",)),
    **dict.fromkeys(("return_sequences",), ("return_sequence",)),
    **dict.fromkeys(("stateful",), ("reset_cells",)),
    **dict.fromkeys(("drop_last",), ("last",)),
    **dict.fromkeys(("loss",), ("cost",)),
    **dict.fromkeys(("monitor",), ("path",)),
    **dict.fromkeys(("mode",), ("better",)),
    **dict.fromkeys(("min_delta",), ("least",)),
    **dict.fromkeys(("filepath",), ("filename",)),
    **dict.fromkeys(("save_best_only",), ("best_only",)),
    **dict.fromkeys(("min_lr",), ("low",)),
    **dict.fromkeys(("max_lr",), ("high",)),
    **dict.fromkeys(("num_training", "num_iter"), ("steps",)),
    **dict.fromkeys(("mixed_precision", "autocast"), ("dtype",)),
}

CLASSES = {  # class names of other libraries
    **dict.fromkeys(("Dense", "FullyConnected"), "Affine(nout=100)"),
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d", "Conv1D", "Conv2D", "Conv3D"), "Convolution((3, 3, 16), KaimingInit())"),
    **dict.fromkeys(("ConvTranspose2d", "Conv2DTranspose"), "Deconvolution((3, 3, 16), KaimingInit())"),
    **dict.fromkeys(("MaxPool2d", "MaxPooling2D"), "Pooling((2, 2), strides=2)"),
    **dict.fromkeys(("AvgPool2d", "AveragePooling2D"), "Pooling((2, 2), strides=2, pool_type='avg')"),
    **dict.fromkeys(("AdaptiveAvgPool2d", "GlobalAveragePooling2D"), "GlobalPooling()"),
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "BatchNormalization"), "BatchNorm()"),
    **dict.fromkeys(("LayerNormalization",), "LayerNorm()"),
    **dict.fromkeys(("ReLU", "Relu"), "Rectlin()"),
    **dict.fromkeys(("LeakyReLU",), "Rectlin(slope=0.01)"),
    **dict.fromkeys(("Sigmoid",), "Logistic()"),
    **dict.fromkeys(("Lambda",), "Preprocess(function)"),
    **dict.fromkeys(("Flatten",), "nothing: Affine takes all features together"),
    **dict.fromkeys(("RNN", "SimpleRNN"), "Recurrent(100, GlorotInit())"),
    **dict.fromkeys(("Bidirectional",), "BiRNN(100, GlorotInit())"),
    **dict.fromkeys(("Module", "Model"), "Sequential([...]), or a class of your own on Layer"),
    **dict.fromkeys(("SGD", "Momentum"), "GradientDescentMomentum(0.1, momentum_coef=0.9)"),
    **dict.fromkeys(("MSELoss", "MeanSquaredError"), "MeanSquared()"),
    **dict.fromkeys(("L1Loss", "MeanAbsoluteError"), "MeanAbsolute()"),
    **dict.fromkeys(("CrossEntropy", "CrossEntropyLoss", "CategoricalCrossentropy"), "CrossEntropyMulti()"),
    **dict.fromkeys(("NLLLoss", "SparseCategoricalCrossentropy"), "CrossEntropyMulti()"),
    **dict.fromkeys(("BCELoss", "BCEWithLogitsLoss", "BinaryCrossentropy"), "CrossEntropyBinary()"),
    **dict.fromkeys(("DataLoader", "Dataset"), "ArrayIterator({'image': images, 'label': labels}, 128), or IterableSource(loader)"),
    **dict.fromkeys(("LearningRateFinder", "LRFind"), "LRFinder()"),
    **dict.fromkeys(("HeInit", "HeNormal"), "KaimingInit()"),
    **dict.fromkeys(("GlorotUniform",), "GlorotInit()"),
}


_TRAINER = "Trainer(model, Adam(1e-3), CrossEntropyMulti())"
OF_LAYERS = {  # methods that models of other libraries have -> what to write
    **dict.fromkeys(("fit", "compile", "train_on_batch", "fit_generator"), f"{_TRAINER}.fit(x, y)"),
    **dict.fromkeys(("evaluate", "test_on_batch"), f"{_TRAINER}.evaluate(x, y)"),
    **dict.fromkeys(("predict", "predict_on_batch"), f"{_TRAINER}.predict(x)"),
    **dict.fromkeys(("train", "eval"), "with Layer.inference_mode_on(): y = model(x); without the block it is a training graph"),
    **dict.fromkeys(("save", "save_weights", "load", "load_weights", "load_state_dict"), "trainer.save(path) and trainer.load(path)"),
    **dict.fromkeys(
        ("parameters", "named_parameters", "state_dict", "get_weights", "trainable_variables"), "model.paths(), weights by path"
    ),
    **dict.fromkeys(("add", "append"), "Sequential([*layers, layer])"),
    **dict.fromkeys(("forward", "call"), "model(x)"),
    **dict.fromkeys(("modules", "named_modules", "named_children"), "model.layers_below()"),
    **dict.fromkeys(("to", "cuda", "cpu"), "nothing: models run on the processor"),
    **dict.fromkeys(("zero_grad", "backward"), "optimizer(cost): the op that it returns computes gradients and updates weights"),
}


def no_name(name: str, there: Iterable[str]) -> UnknownName:
    """Returns the error for an unknown name of neon: the fix is the equivalent here, or the nearest name."""
    meant = CLASSES.get(name) or nearest(name, there)
    return UnknownName(f"neon has no {name!r}", fix=f"write {meant}" if meant else "dir(ngraph.frontends.neon) lists what there is")


def kind_of(name: str, parameter: str) -> ArgumentKind | None:
    """Returns the kind of an argument of neon's classes and functions; None where none is declared."""
    return ELSEWHERE[name, parameter] if (name, parameter) in ELSEWHERE else KINDS.get(parameter)


Parameters = Mapping[str, inspect.Parameter]


def blamed(name: str, parameters: Parameters, args: Any, named: Any, error: Exception) -> NgraphError | None:
    """Returns the error for a failed call whose arguments explain the failure, else None."""
    return told(name, parameters, args, named, error, kind_of, SYNONYMS)


def _call(name: str, parameters: Parameters, args: Any, named: Any, run: Callable[[], Any]) -> Any:
    """Returns the result of `run`. Raises the NgraphError for an argument of a wrong kind, before the call or after it fails."""
    try:
        given = inspect.Signature(list(parameters.values())).bind(*args, **named).arguments
    except TypeError as error:
        raise blamed(name, parameters, args, named, error) or error from None
    wrong = explained(name, parameters, given, kind_of)
    if wrong is not None:
        raise wrong
    try:
        with speaking(name):
            return run()
    except Exception as error:
        said = blamed(name, parameters, args, named, error)
        if said is None:
            raise
        raise said from None


def _without_self(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return {n: p for n, p in inspect.signature(function).parameters.items() if n != "self"}


def public(function: F) -> F:
    """Returns a function or method with checks of its arguments; errors show its name."""
    method = "self" in inspect.signature(function).parameters
    parameters = _without_self(function)

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        if _outer.get():
            return function(*args, **named)
        return _call(function.__name__, parameters, args[method:], named, lambda: function(*args, **named))

    return call  # type: ignore[return-value]  # it has the signature of the wrapped function


class _Signature:
    """The signature of a class, with the arguments that its constructor passes on to those of its base classes."""

    def __get__(self, made: Any, owner: type) -> inspect.Signature:
        if made is not None:
            raise AttributeError("__signature__")  # that of an object is its `__call__`'s
        return inspect.Signature(list(arguments_of(owner, owner).values()))


class Checked:
    """A class whose constructor checks its arguments; constructors of the user's own classes are not changed."""

    if not TYPE_CHECKING:  # type checkers read the constructors
        __signature__ = _Signature()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls) and cls.__module__.startswith(__name__.rpartition(".")[0]):
            setattr(cls, "__init__", _constructor(cls, vars(cls)["__init__"]))  # noqa: B010 - no type checker lets it be assigned

    @classmethod
    def _further(cls) -> Parameters:
        """Returns the parameters that `**options` of the constructor allows, where no base class takes them."""
        return {}


def _constructor(owner: type, init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def construct(self: Any, *args: Any, **named: Any) -> None:
        if _outer.get():
            return init(self, *args, **named)
        name, arguments = type(self).__name__, arguments_of(owner, self.__class__)
        return _call(name, arguments, args, named, lambda: init(self, *args, **named))

    return construct


@functools.cache
def arguments_of(owner: Any, cls: Any) -> dict[str, inspect.Parameter]:
    """Returns the constructor's parameters of `owner` for a `cls`: its own and, where it passes others on, those of its base classes."""
    by_place: dict[str, inspect.Parameter] = {}
    by_name: dict[str, inspect.Parameter] = {}
    own: dict[str, inspect.Parameter] = {}
    hands_on: set[Any] = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    for base in cls.__mro__[cls.__mro__.index(owner) :]:
        if "__init__" not in vars(base) or base is object:
            continue
        own = _without_self(vars(base)["__init__"])
        for name, p in own.items():
            if p.kind in hands_on or name in by_place or name in by_name:
                continue
            if inspect.Parameter.VAR_POSITIONAL in hands_on and p.kind is p.POSITIONAL_OR_KEYWORD:
                by_place[name] = p
            else:
                by_name[name] = p.replace(kind=p.KEYWORD_ONLY)
        hands_on = {p.kind for p in own.values()} & hands_on
        if inspect.Parameter.VAR_KEYWORD not in hands_on:
            break
    else:  # the last constructor takes any
        by_name.update({n: p for n, p in own.items() if p.kind is p.VAR_KEYWORD and not cls._further()})
    further = {n: p.replace(kind=p.KEYWORD_ONLY) for n, p in cls._further().items() if n not in by_name}
    return {**by_place, **{n: p for n, p in {**further, **by_name}.items() if n not in by_place}}


def one_of(name: str, what: str, value: Any, choices: Sequence[Any]) -> None:
    """Raises ArgumentError where an argument is none of these."""
    if not (value is None or isinstance(value, str)) or value not in choices:
        meant = nearest(value, [c for c in choices if isinstance(c, str)]) if isinstance(value, str) else None
        words = " or ".join([", ".join(repr(c) for c in choices[:-1]), repr(choices[-1])])
        fix = f"take {what}={meant!r}" if meant else f"take one of these, such as {what}={choices[0]!r}"
        raise ArgumentError(f"{speaker(name)}: {what} is {words}, not {value!r}", fix=fix)


def refuse(name: str, why: str, fix: str) -> ArgumentError:
    """Returns the error for an argument, under the name of the user's call."""
    return ArgumentError(f"{speaker(name)}: {why}", fix=fix)


def wrong_kind(name: str, why: str, fix: str) -> ArgumentTypeError:
    """Returns the same error, for an argument of a wrong kind."""
    return ArgumentTypeError(f"{speaker(name)}: {why}", fix=fix)
