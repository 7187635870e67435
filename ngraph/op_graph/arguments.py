"""The kinds that arguments of public functions may have, by argument name, and the errors for arguments of another kind.

A correct call costs nothing extra: the arguments are checked only after something inside has failed, and the first one of a wrong kind
is named. An error that the arguments do not explain, or that comes out of a function of the user's, passes unchanged.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Set, ValuesView
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ngraph.errors import ArgumentError, ArgumentTypeError, NgraphError, NoTensor, UnknownName, by_user, nearest
from ngraph.op_graph.axes import Axes, Axis
from ngraph.op_graph.dtypes import DType, as_dtype
from ngraph.op_graph.op import Op

F = TypeVar("F", bound=Callable[..., Any])


class Unsaid:
    """The default of a record's attribute. The record itself decides its value, or that it must be given."""

    def __repr__(self) -> str:
        return "…"


UNSAID = Unsaid()


class ArgumentKind(NamedTuple):
    """A kind of argument: its description in errors, its test, and the fix to suggest."""

    says: str
    fits: Callable[[Any], bool]
    fix: str


def _is_array(x: Any) -> bool:
    """Whether `x` is numbers to NumPy, or offers itself as an array (`__array__`, `__dlpack__`)."""
    if isinstance(x, (np.ndarray, np.generic)):
        return _is_dtype(x.dtype)
    if isinstance(x, (list, tuple)) and any(isinstance(part, (Op, Axis)) for part in x):
        return False
    if not isinstance(x, (list, tuple)):
        return hasattr(type(x), "__array__") or hasattr(type(x), "__dlpack__")
    try:
        return _is_dtype(np.asarray(x).dtype)
    except (TypeError, ValueError):
        return False


def _is_tensor(x: Any) -> bool:
    return x.is_tensor_op if isinstance(x, Op) else isinstance(x, (bool, int, float)) or _is_array(x)


def _is_dtype(x: Any) -> bool:
    try:
        return x is not None and isinstance(as_dtype(x), DType)
    except (NgraphError, TypeError, ValueError):
        return False


def _is_whole(x: Any) -> bool:
    return not isinstance(x, (bool, np.bool_, np.ndarray, Axis)) and hasattr(type(x), "__index__")


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, np.integer, np.floating)) and not isinstance(x, bool)


def _is_axis(x: Any) -> bool:
    return isinstance(x, (Axis, str))


def _is_axes(x: Any) -> bool:
    return isinstance(x, (Axis, Axes, str)) or isinstance(x, (list, tuple, Set)) and all(_is_axis(a) or _is_axes(a) for a in x)


def _several(one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Returns a test whether `x` fits `one`, or is a list, tuple, set or dict of values that do."""

    def fits(x: Any) -> bool:
        if isinstance(x, Mapping):
            return all(map(fits, x.values()))
        return isinstance(x, (list, tuple, Set)) and all(map(fits, x)) or one(x)

    return fits


def _by_axis(one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Returns a test whether `x` fits `one`, or is a dict from axes to values that do."""
    return lambda x: all(_is_axis(a) and one(v) for a, v in x.items()) if isinstance(x, Mapping) else one(x)


def _is_padding(x: Any) -> bool:
    return isinstance(x, str) or _is_whole(x) or isinstance(x, (list, tuple)) and len(x) == 2 and all(map(_is_whole, x))


def _is_value(x: Any) -> bool:
    """Whether `x` can be an initial value of state: a tensor or a function."""
    return _is_tensor(x) or callable(x)


def _mapping(one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Returns a test whether `x` is a dict from axes to values that fit `one`."""
    return lambda x: isinstance(x, Mapping) and all(_is_axis(a) and one(v) for a, v in x.items())


TENSOR = ArgumentKind("not a tensor", _is_tensor, "pass an op, a number or an array of numbers")
TENSORS = ArgumentKind(
    "not a list of tensors",
    lambda x: isinstance(x, Iterator) or isinstance(x, (list, tuple, Set, ValuesView)) and all(map(_is_tensor, x)),
    "pass a list: [x, y]",
)
OPS = ArgumentKind(
    "neither an op nor a list of them", _several(lambda x: x is None or isinstance(x, Op) or _is_tensor(x)), "pass an op, or a list: [x, y]"
)
OP = ArgumentKind("not an op", lambda x: isinstance(x, Op), "pass what ng.variable or ng.placeholder made, or what was computed from it")
AXIS = ArgumentKind("not an axis", _is_axis, "pass what ng.make_axis made, or its name")
NEW_AXIS = ArgumentKind("not an axis", _is_axis, 'pass what ng.make_axis made, or text such as "K=5"')
AXES = ArgumentKind("not a list of axes", _is_axes, "pass axes as a list: [H, W]")
NEW_AXES = ArgumentKind("not a list of axes", lambda x: isinstance(x, Mapping) or _is_axes(x), "pass axes as a list: [H, W]")
DTYPE = ArgumentKind("not a dtype", _is_dtype, "pass one, or its name: 'float32'")
ACCUMULATE = ArgumentKind("not a dtype", _is_dtype, "pass the one that sums are kept in, such as 'float32'")
WHOLE = ArgumentKind("not a whole number", _is_whole, "pass a whole number")
NUMBER = ArgumentKind("not a number", _is_number, "pass a number")
ELEMENT = ArgumentKind("not a number", lambda x: _is_number(x) or isinstance(x, (bool, np.bool_)), "pass a number, True or False")
NUMBER_OR_NONE = ArgumentKind("not a number", lambda x: x is None or _is_number(x), "pass a number, or leave it out")
EXTENT = ArgumentKind(
    "neither a whole number nor a dict of them by axis", _by_axis(_is_whole), "pass a whole number, or one for each axis: {H: 2, W: 1}"
)
PADDING = ArgumentKind("not padding", _by_axis(_is_padding), "pass a whole number, (before, after), 'same', or a dict of these by axis")
VALUE = ArgumentKind("not a value that a tensor can have", _is_value, "pass a number, an array, or a function that gives one")
CARRY = ArgumentKind(
    "neither a tensor nor a list of them", _several(lambda x: x is None or _is_tensor(x)), "pass a tensor, or a tuple of them"
)
STEPS = ArgumentKind("not a list of ops", lambda x: isinstance(x, (Op, list, tuple, Set)), "pass a list: [ng.assign(v, 1), y]")
RETURNS = ArgumentKind(
    "neither an op nor a list of them", _several(lambda x: x is None or isinstance(x, Op)), "pass an op, or a list of ops"
)
TRUTH = ArgumentKind(
    "neither True nor False", lambda x: isinstance(x, (bool, np.bool_)) or _is_whole(x) and x in (0, 1), "pass True or False"
)
TEXT = ArgumentKind("not text", lambda x: isinstance(x, str), "pass a string")
NAME = ArgumentKind("not a name", lambda x: isinstance(x, (str, int, float)), "pass a string")
ROLES = ArgumentKind("not a list of names", lambda x: isinstance(x, (list, tuple, Set)), 'pass a list: ["height"]')
MAPPING = ArgumentKind("not a dict", lambda x: isinstance(x, Mapping), "pass a dict")
WINDOW = ArgumentKind("not a dict of axes", _mapping(lambda v: True), "pass a dict by axis or name: {H: 2}")
SIZES = ArgumentKind("not a dict of whole numbers by axis", _mapping(_is_whole), "pass a whole number for each axis or name: {H: 2}")
POOLED = ArgumentKind("not a dict of lengths by axis", _mapping(lambda v: _is_whole(v) or isinstance(v, Axis)), SIZES.fix)
NEW_WINDOW = ArgumentKind("not a dict from axes to new ones", _mapping(_is_axis), 'pass the axis along each window: {"H": "R=3"}')
FUNCTION = ArgumentKind("not a function", callable, "pass a function, as in lambda x: x + 1")
OF_OPS = ArgumentKind("not a function", callable, "pass a function of ops, as in lambda w: ...; of ops themselves: ng.deriv(loss, w)")
INDEX = ArgumentKind(
    "not an index", lambda x: isinstance(x, slice) or _is_whole(x) or _is_tensor(x), "pass a whole number, a slice or a tensor of integers"
)
LIST = ArgumentKind("not a list", lambda x: isinstance(x, (list, tuple, Mapping)), "pass a list, one entry for each axis")
AXIS_OR_WHOLE = ArgumentKind("neither a whole number nor an axis", lambda x: _is_axis(x) or _is_whole(x), "pass a whole number, or an axis")

_NAMES = (  # kinds by the names of arguments, the same in every function but for those below
    (
        TENSOR,
        "x y t q k v mask filters lut idx values activations labels activation_lens label_lens rvalue scalar predicate error const p c",
    ),
    (TENSOR, "inputs operands conv_inputs"),
    (TENSORS, "x_list"),
    (OPS, "ops all outputs independent tangents errors"),
    (RETURNS, "returns parameters"),
    (CARRY, "carry"),
    (VALUE, "initial_value"),
    (OP, "dependent lvalue tensor"),
    (AXIS, "axis other queries keys"),
    (NEW_AXIS, "out"),
    (AXES, "axes reduction_axes out_axes normalization_axes in_axes spatial over groups parts features"),
    (DTYPE, "dtype"),
    (ACCUMULATE, "accumulate"),
    (WHOLE, "length root blank dim pos kernel_size in_dual_offset out_dual_offset seed pad_idx"),
    (TENSOR, "alpha eps"),
    (NUMBER, "limit loc scale low high"),
    (EXTENT, "stride dilation"),
    (PADDING, "padding"),
    (TRUTH, "saturate usebits exclusive reverse largest descending causal approximate update batch recurrent channel match_on_length"),
    (TRUTH, "nan_largest enable_sig_opt enable_diff_opt enable_softmax_opt reuse_scope"),
    (TEXT, "pattern kind group mode combine role"),
    (NAME, "name docstring text prefix"),
    (MAPPING, "axes_map metadata conv_params poolparams"),
    (POOLED, "window"),
    (FUNCTION, "function then otherwise condition filter"),
    (LIST, "slices"),
    (TENSOR, "logits grid ids weight bias mean_of_x variance_of_x ordered q weights slope"),
    (NUMBER, "nan posinf neginf rate correction"),
    (WHOLE, "offset size hop n"),
    (NEW_AXIS, "segments bins"),
    (TEXT, "method side norm frames frequencies"),
    (SIZES, "factors counts"),
    (TRUTH, "endpoint inverse onesided align_corners antialias"),
    (ROLES, "roles"),
)
KINDS = {name: kind for kind, names in _NAMES for name in names.split()}
ELSEWHERE = {  # entries whose argument name means something else in that function
    **{("placeholder", n): NEW_AXES for n in ("axes",)},
    ("axes", "text"): NEW_AXES,
    **{(f, "axes"): NEW_AXES for f in ("variable", "persistent_tensor", "temporary", "constant", "make_axes", "cast_role", "Axes")},
    **{(f, "inputs"): OPS for f in ("jvp", "vjp")},
    **{(f, "spatial"): WINDOW for f in ("conv", "deconv")},
    **{(f, n): TENSOR for f in ("clip", "bernoulli") for n in ("low", "high", "p")},
    **{(f, "out"): WINDOW for f in ("conv", "deconv", "max_pool", "avg_pool")},
    **{(f, n): WHOLE for f in ("randint",) for n in ("low", "high")},
    **{(f, "axis"): NEW_AXIS for f in ("iota", "permutation", "expand_dims", "one_hot", "stack", "slice_axis")},
    **{
        (f, "x"): ArgumentKind("neither axes nor a tensor", lambda x: _is_axes(x) or _is_tensor(x), "pass axes as a list: [H, W]")
        for f in ("uniform", "normal", "bernoulli", "randint", "gumbel", "gamma", "poisson", "truncated_normal")
    },
    **{(f, "function"): OF_OPS for f in ("grad", "value_and_grad", "jacobian", "hessian", "hvp")},
    ("flatten_at", "idx"): WHOLE,
    ("scan", "xs"): OPS,
    **{(f, "axes"): NEW_AXES for f in ("full", "zeros", "ones")},
    **{("eye", n): NEW_AXIS for n in ("axis", "other")},
    **{("arange", n): NUMBER for n in ("start", "stop", "step")},
    **{("linspace", n): TENSOR for n in ("start", "stop")},
    **{(f, "axis"): NEW_AXIS for f in ("arange", "linspace")},
    **{(f, "channel"): AXIS for f in ("pixel_shuffle", "group_norm")},
    **{("histogram", n): TENSOR for n in ("low", "high")},
    **{(f, "eps"): NUMBER for f in ("layer_norm", "rms_norm", "batch_norm", "group_norm")},
    ("group_norm", "groups"): WHOLE,
    ("full", "value"): TENSOR,
    ("norm", "p"): NUMBER,
    ("pinv", "rcond"): NUMBER_OR_NONE,
    ("repeat", "count"): WHOLE,
    ("roll", "shift"): EXTENT,
    ("leaky_relu", "slope"): NUMBER,
    ("diag", "other"): AXIS,
    ("unfold", "spatial"): NEW_WINDOW,
    ("unique", "counts"): TRUTH,
    ("split", "parts"): ArgumentKind(
        "neither a whole number nor a list of them",
        lambda x: _is_whole(x) or isinstance(x, (list, tuple)) and all(map(_is_whole, x)),
        "pass the number of equal parts, or their lengths",
    ),
    ("dropout", "training"): TENSOR,
    **{(f, "shape" if f == "gamma" else "rate"): TENSOR for f in ("gamma", "poisson")},
    ("stft", "window"): TENSOR,
    ("categorical", "axes"): NEW_AXES,
    ("grid_sample", "parts"): AXIS,
    ("grid_sample", "padding"): TEXT,
    ("interpolate", "lengths"): SIZES,
    ("slice_along_axis", "idx"): INDEX,
    ("lookuptable", "pad_idx"): WHOLE,
    ("top_k", "k"): AXIS_OR_WHOLE,
    ("print_values", "xs"): TENSOR,
    ("as_ops", "xs"): ArgumentKind(
        "not a list of tensors", lambda x: hasattr(type(x), "__iter__") and not isinstance(x, (Op, str)), "pass a list: [x, y]"
    ),
    ("spatial_axis", "padding"): ArgumentKind(
        "not padding", lambda x: _is_padding(x) and not isinstance(x, str), "pass a whole number, or (before, after)"
    ),
    ("spatial_axis", "stride"): WHOLE,
    ("slice_axis", "s"): ArgumentKind("not a slice", lambda x: isinstance(x, slice), "pass slice(start, stop)"),
    ("pad", "value"): ELEMENT,
    ("pad", "paddings"): ArgumentKind(
        "not a list of paddings", lambda x: isinstance(x, (list, tuple, Mapping)), "pass one for each axis: {H: 1}"
    ),
    ("set_item", "value"): TENSOR,
    ("init_tensor", "value"): TENSOR,
    ("sequential", "ops"): STEPS,
    ("doall", "all"): STEPS,
    ("unflatten", "axes"): ArgumentKind("not axes", lambda x: _is_axes(x) or isinstance(x, str), "pass an axis, or a list of axes"),
    ("cumsum", "axis"): AXIS,
}

# kinds that are checked before each call, since a value of another kind might be accepted and give an unintended result
EAGER = (
    WHOLE,
    NUMBER,
    ELEMENT,
    NUMBER_OR_NONE,
    EXTENT,
    PADDING,
    TRUTH,
    TEXT,
    NAME,
    ROLES,
    MAPPING,
    FUNCTION,
    OF_OPS,
    LIST,
    SIZES,
    POOLED,
    TENSORS,
    VALUE,
    ACCUMULATE,
    AXIS_OR_WHOLE,
)

# argument names of other libraries, and ours for them: the first that the function has is suggested
SYNONYMS = {
    **dict.fromkeys(("axis", "axes", "dim", "dims"), ("axis", "reduction_axes", "axes", "normalization_axes", "spatial", "over")),
    **dict.fromkeys(("keepdims", "keepdim"), ("out_axes",)),
    **dict.fromkeys(("shape", "size"), ("axes", "length", "lengths")),
    **dict.fromkeys(("type", "astype"), ("dtype",)),
    **dict.fromkeys(("input", "a", "tensor"), ("x",)),
    **dict.fromkeys(("value", "init", "initializer"), ("initial_value",)),
    **dict.fromkeys(("descending",), ("largest",)),
    **dict.fromkeys(("pool_size", "kernel_size", "ksize"), ("window", "spatial")),
    **dict.fromkeys(("strides",), ("stride",)),
    **dict.fromkeys(("k", "diagonal"), ("offset",)),
    **dict.fromkeys(("std", "stddev", "sigma"), ("scale",)),
    **dict.fromkeys(("mean", "mu"), ("loc",)),
    **dict.fromkeys(("ddof", "unbiased"), ("correction",)),
    **dict.fromkeys(("scale_factor",), ("lengths",)),
    **dict.fromkeys(("num_classes", "num_segments", "depth"), ("segments", "axis")),
    **dict.fromkeys(("return_inverse",), ("inverse",)),
    **dict.fromkeys(("return_counts",), ("counts",)),
    **dict.fromkeys(("p",), ("rate", "ord")),
    **dict.fromkeys(("ord",), ("p",)),
    **dict.fromkeys(("mode", "interpolation"), ("method",)),
    **dict.fromkeys(("padding_mode",), ("padding",)),
    **dict.fromkeys(("pad", "pad_width"), ("paddings",)),
    **dict.fromkeys(("constant_values", "fill_value"), ("value",)),
    **dict.fromkeys(("normalized_shape",), ("axes",)),
    **dict.fromkeys(("epsilon",), ("eps",)),
    **dict.fromkeys(("alpha", "negative_slope"), ("slope",)),
    **dict.fromkeys(("sections", "indices_or_sections", "split_size_or_sections"), ("parts",)),
    **dict.fromkeys(("repeats", "reps"), ("count", "counts")),
    **dict.fromkeys(("n_fft",), ("size",)),
    **dict.fromkeys(("hop_length",), ("hop",)),
    **dict.fromkeys(("cond", "condition"), ("c",)),
    **dict.fromkeys(("a_min", "min", "minval"), ("low",)),
    **dict.fromkeys(("a_max", "max", "maxval"), ("high",)),
    **dict.fromkeys(("minlength",), ("bins",)),
    **dict.fromkeys(("right",), ("side",)),
    **dict.fromkeys(("indices",), ("idx",)),
    **dict.fromkeys(("segment_ids",), ("ids",)),
    **dict.fromkeys(("upscale_factor",), ("factors",)),
    **dict.fromkeys(("concentration",), ("shape",)),
    **dict.fromkeys(("lam",), ("rate",)),
    **dict.fromkeys(("end",), ("stop",)),
    **dict.fromkeys(("num", "steps"), ("axis",)),
    **dict.fromkeys(("upper",), ("lower",)),
    **dict.fromkeys(("unitriangular", "unit_diagonal"), ("unit",)),
    **dict.fromkeys(("rtol",), ("rcond",)),
}

# values of other libraries, and ours for them: the first that the argument takes is suggested
VALUES = {
    **dict.fromkeys(("wrap", "periodic"), ("circular",)),
    **dict.fromkeys(("replicate", "nearest", "border"), ("edge", "border", "clip")),
    **dict.fromkeys(("reflection", "mirror"), ("reflect", "reflection")),
    **dict.fromkeys(("zeros", "zero", "drop"), ("constant", "zeros", "fill", "drop")),
    **dict.fromkeys(("bilinear", "trilinear"), ("linear",)),
    **dict.fromkeys(("bicubic",), ("cubic",)),
    **dict.fromkeys(("sum", "plus"), ("add", "sum")),
    **dict.fromkeys(("prod", "product", "mul"), ("multiply",)),
    **dict.fromkeys(("amax", "maximum"), ("max",)),
    **dict.fromkeys(("amin", "minimum"), ("min",)),
    **dict.fromkeys(("mean", "average"), ("avg",)),
    **dict.fromkeys(("update", "assign", "replace"), ("set",)),
}

INSTEAD = {  # fixes by function name
    "make_transformer": "ngt.make_transformer_factory('numpy')() makes one by name",
    "map_roles": 'write {"H": "P"} or H="P", the old axis and the new',
    "axes_with_order": 'name them in one text: axes_with_order(x, "W H"), x.transpose("W H")',
}


def shown(x: Any) -> str:
    """Returns an argument as errors print it."""
    if isinstance(x, Op):
        return f"the op {x.label}" if x.type is not None else f"{x.label}, which has no value,"
    if isinstance(x, Axis):
        return f"the axis {x!r}"
    if isinstance(x, np.ndarray) and x.ndim:
        return f"an array of {x.dtype} {x.shape}"
    text = x.__name__ if callable(x) and hasattr(x, "__name__") else repr(x)
    return text if len(text) <= 60 else f"a {type(x).__name__}"


def _users(trace: TracebackType | None) -> bool:
    """Whether an error came out of a function of the user's that a function of this package called."""
    users = False
    while trace is not None:
        whose = by_user(trace.tb_frame.f_code.co_filename)
        users = users if whose is None else whose
        trace = trace.tb_next
    return users


def _signature(name: str, parameters: Iterable[inspect.Parameter]) -> str:
    """Returns the call as the definition writes it, without types."""
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return f"{name}{inspect.Signature(bare)}"


def _unbound(
    name: str,
    parameters: Mapping[str, inspect.Parameter],
    named: Mapping[str, Any],
    why: str,
    synonyms: Mapping[str, tuple[str, ...]] = SYNONYMS,
    missing: str = "",
) -> NgraphError:
    """Returns the error for arguments that a function does not have, or lacks; missing: the attribute of a record without a default."""
    details = (_signature(name, parameters.values()),)
    strangers = [n for n in named if n not in parameters]
    if not strangers:
        needed = [p.name for p in parameters.values() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        fix = INSTEAD.get(name, f"give {missing}=" if missing else f"write {name}({', '.join(needed)})")
        return ArgumentTypeError(f"{name}: {why}", details=details, fix=fix)
    stranger = strangers[0]
    like = [n for n in synonyms.get(stranger, ()) if n in parameters]
    meant = like[0] if like else nearest(stranger, parameters)
    fix = INSTEAD.get(name) or (f"take {meant}=" if meant else f"it has {', '.join(parameters) or 'none'}")
    if stranger in ("keepdims", "keepdim"):
        fix = "omit it: reduced axes are matched by name again, so x - ng.mean(x, ...) needs no length of 1"
    return UnknownName(f"{name} has no argument {stranger}", details=details, fix=fix)


def kind_of(name: str, parameter: str) -> ArgumentKind | None:
    """Returns the kind of a function's argument; None where none is declared."""
    return ELSEWHERE.get((name, parameter)) or KINDS.get(parameter)


def explained(
    name: str,
    parameters: Mapping[str, inspect.Parameter],
    given: Mapping[str, Any],
    kind_of: Callable[[str, str], ArgumentKind | None] = kind_of,
) -> NgraphError | None:
    """Returns the error for the first argument of a wrong kind; None where all fit."""
    wrong = []
    for p, value in given.items():
        kind, rule = kind_of(name, p), parameters.get(p)
        if kind is None or (rule is not None and value is rule.default):
            continue
        values = value if rule is not None and rule.kind is inspect.Parameter.VAR_POSITIONAL else (value,)
        wrong += [(p, v, kind) for v in values if not kind.fits(v)]
    if not wrong:
        return None
    details = (_signature(name, parameters.values()),) if parameters else ()
    p, value, kind = wrong[0]
    for other, mine in given.items():
        theirs = kind_of(name, other)
        named = isinstance(value, str)  # what takes a name takes a number, too
        if theirs is not None and other != p and kind.fits(mine) and theirs.fits(value) and (named or not theirs.fits(mine)):
            return ArgumentTypeError(
                f"{name}: {p} is {shown(value)}, and {other} is {shown(mine)}", details=details, fix=f"exchange {p} and {other}"
            )
    fix = "ng.iota(axis) counts along it" if kind is TENSOR and isinstance(value, Axis) else kind.fix
    if kind is TENSOR and isinstance(value, (list, tuple)) and any(isinstance(v, Op) for v in value):
        fix = "pass one tensor; ng.stack(ops, axis) makes one of several"
    error = NoTensor if kind is TENSOR else ArgumentTypeError
    return error(f"{name}: {p} is {shown(value)}, which is {kind.says}", details=details, fix=fix)


def told(
    name: str,
    parameters: Mapping[str, inspect.Parameter],
    args: Any,
    named: Mapping[str, Any],
    error: Exception,
    kind_of: Callable[[str, str], ArgumentKind | None] = kind_of,
    synonyms: Mapping[str, tuple[str, ...]] = SYNONYMS,
) -> NgraphError | None:
    """Returns the error for a failed call whose arguments explain the failure, else None. kind_of, synonyms: those of the calling room."""
    if isinstance(error, NgraphError) and not isinstance(error, NoTensor) or _users(error.__traceback__):
        return None
    try:
        given = inspect.Signature(list(parameters.values())).bind(*args, **named).arguments
    except TypeError as mismatch:
        return _unbound(name, parameters, named, str(mismatch), synonyms)
    missing = str(error.args[0]) if isinstance(error, KeyError) and error.args else ""
    if missing in parameters and missing not in given:
        return _unbound(name, parameters, named, f"missing a required argument: {missing!r}", synonyms, missing)
    kinds = {p: kind_of(name, p) for p in given}
    if isinstance(error, TypeError) and FUNCTION in kinds.values() and "argument" in str(error):
        return ArgumentTypeError(
            f"{name}: {error}", details=(_signature(name, parameters.values()),), fix="give the function these arguments"
        )
    return explained(name, parameters, given, kind_of)


def one_of(name: str, what: str, value: Any, choices: Iterable[str]) -> None:
    """Raises ArgumentError where the value of the argument `what` is none of these words."""
    words = tuple(choices)
    if value not in words:
        known = [w for w in VALUES.get(value, ()) if w in words] if isinstance(value, str) else []
        meant = known[0] if known else nearest(value, words) if isinstance(value, str) else None
        raise ArgumentError(f"{name} {what} {value!r} is none of {', '.join(words)}", fix=f"take {what}={meant or words[0]!r}")


def checked(function: F) -> F:
    """Returns the function with errors for arguments of a wrong kind: NgraphErrors that name the user's line.

    Arguments of the kinds in `EAGER` are checked before the call.
    """
    name, code = function.__name__, function.__code__
    order = code.co_varnames[: code.co_argcount]
    every = (*order, *code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount])
    kinds = {p: kind for p in every if (kind := kind_of(name, p)) in EAGER and kind is not None}
    places = tuple([(at, kinds[p]) for at, p in enumerate(order) if p in kinds])

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        given = len(args)
        for at, kind in places:
            if at < given and not kind.fits(args[at]):
                refuse(args, named)
        for p in named:
            if p in kinds and not kinds[p].fits(named[p]):
                refuse(args, named)
        try:
            return function(*args, **named)
        except Exception as error:
            said = told(name, inspect.signature(function).parameters, args, named, error)
            if said is None:
                raise
            raise said from None

    def refuse(args: Any, named: Any) -> None:
        """Raises the error for the first argument of a wrong kind; a default value passes."""
        said = told(name, inspect.signature(function).parameters, args, named, TypeError())
        if said is not None:
            raise said

    return call  # type: ignore[return-value]  # it has the signature of the wrapped function
