"""Every public function with something of a wrong kind in every position: an NgraphError at the user's line, or an answer, never else.

Each function has one call that is right; then each of its arguments in turn is replaced, left away, or joined by others.
"""

import inspect
import traceback

import numpy as np
import pytest

import ngraph as ng
from ngraph.errors import ArgumentTypeError, NgraphError, UnknownName
from ngraph.op_graph.opdef import OpDef

C, H, W, N, R, S, K, D = [
    ng.make_axis(n, name=a) for a, n in (("C", 2), ("H", 4), ("W", 4), ("N", 3), ("R", 2), ("S", 2), ("K", 5), ("D", 3))
]
L = ng.make_axis(4, name="H")


def x(*axes, dtype=None):
    return ng.placeholder(axes or [H, W], dtype=dtype)


F = lambda *a, **k: (a, k)


def image():
    return x(C, H, W, N)


VALID = {
    "all_gather": lambda: F(x(), "H", ng.make_axis(4, name="G")),
    "all_reduce": lambda: F(x(), "add", ""),
    "argmax": lambda: F(x(), reduction_axes=[H], dtype=ng.int32),
    "argmin": lambda: F(x(), reduction_axes=[H]),
    "as_op": lambda: F(x()),
    "as_ops": lambda: F([x()]),
    "assign": lambda: F(ng.variable([H]), x(H)),
    "attention": lambda: F(x(N, H, D), x(N, W, D), x(N, W, D), features=D, queries=H, keys=W, mask=None, causal=False, scale=1.0),
    "avg_pool": lambda: F(image(), {H: 2}, stride=1, padding=0, dilation=1),
    "max_pool": lambda: F(image(), {H: 2}, stride=1, padding=0),
    "Axes": lambda: F([H, W]),
    "axes_with_order": lambda: F(x(), [W, H]),
    "AxesMap": lambda: F({"H": "P"}),
    "batch_size": lambda: F(x(N, H)),
    "bernoulli": lambda: F(x(), 0.5, dtype=ng.float32, seed=3),
    "bitcast": lambda: F(x(), dtype="int32"),
    "broadcast": lambda: F(x(), [H, W, N]),
    "broadcast_from": lambda: F(x(), 0, ""),
    "cast": lambda: F(x(), "int32", False),
    "cast_axes": lambda: F(x(), [R2, W]),
    "cast_role": lambda: F(x(), [R2, W]),
    "checkpoint": lambda: F(lambda a: a * 2, x()),
    "clip": lambda: F(x(), 0, 1),
    "computation": lambda: F(ng.variable(()), name="f"),
    "compute_reduction_axes": lambda: F(x(), [H]),
    "concat_along_axis": lambda: F([x(), x()], H),
    "cond": lambda: F(ng.constant(True), lambda: x(), lambda: x()),
    "constant": lambda: F(3.0, [H], "float32", name="c", docstring="d", metadata={}),
    "constant_storage": lambda: F([H], "float32", 1),
    "constant_value": lambda: F(ng.constant(1)),
    "contract": lambda: F(x(), x(), over=(H,)),
    "conv": lambda: F(image(), x(C, R, K), {H: R}, stride=1, padding=0, dilation=1),
    "cross_entropy_binary": lambda: F(x(), x()),
    "cross_entropy_binary_inner": lambda: F(x(), x()),
    "cross_entropy_multi": lambda: F(ng.softmax(x(C, N)), x(C, N)),
    "cumsum": lambda: F(x(), H),
    "custom_gradient": lambda: F(lambda a: (a, lambda e: e)),
    "deconv": lambda: F(image(), x(C, R, K), {H: R}),
    "deriv": lambda: (lambda w: F(ng.sum(w * w, out_axes=()), w))(ng.variable([H])),
    "diagonal": lambda: F(x(), H, W),
    "doall": lambda: F([ng.assign(ng.variable(()), 1)]),
    "dot": lambda: F(x(), x(W)),
    "dualed_axes": lambda: F(x(), lambda a: True, 1, 0),
    "einsum": lambda: F("H W, W -> H", x(), x(W)),
    "elu": lambda: F(x(), 1.0),
    "expand_dims": lambda: F(x(), N, 0),
    "fill": lambda: F(ng.variable([H]), 1.0),
    "flatten": lambda: F(x(), [H, W]),
    "flatten_at": lambda: F(x(), 1),
    "FlattenedAxis": lambda: F([H, W]),
    "flip": lambda: F(x(), [H]),
    "gather": lambda: F(x(), x(N, dtype="int32"), axes=(H,), mode="fill"),
    "gelu": lambda: F(x()),
    "function": lambda: F(y := x(H), *y.placeholders()),
    "grad": lambda: F(lambda w: ng.sum(w * w, out_axes=()), 0, False),
    "value_and_grad": lambda: F(lambda w: ng.sum(w * w, out_axes=()), 0, False),
    "jacobian": lambda: F(lambda w: w * w, 0),
    "hessian": lambda: F(lambda w: ng.sum(w * w, out_axes=()), 0),
    "hvp": lambda: F(lambda w: ng.sum(w * w, out_axes=()), x(H), x(H)),
    "vmap": lambda: F(lambda w: w * w, "H"),
    "init_tensor": lambda: F(ng.variable([H]), 1.0),
    "iota": lambda: F(H, "int32"),
    "jvp": lambda: (lambda w: F(w * w, [w], [ng.constant(1.0)]))(ng.variable([H])),
    "vjp": lambda: (lambda w: F(w * w, [w], ng.constant(1.0)))(ng.variable([H])),
    "L1_norm": lambda: F(x()),
    "L2_norm": lambda: F(x()),
    "squared_L2": lambda: F(x()),
    "linear_map_axes": lambda: F([H], [W]),
    "log_softmax": lambda: F(x(C, N)),
    "softmax": lambda: F(x(C, N)),
    "logsumexp": lambda: F(x()),
    "lookuptable": lambda: F(x(K, D), x(N, dtype="int32"), [D, N]),
    "make_axes": lambda: F([H]),
    "axes": lambda: F("H=4 W=?"),
    "make_axis": lambda: F(3, name="A", batch=None, roles=(), docstring=None),
    "make_axis_role": lambda: F("height"),
    "map_roles": lambda: F(x(), {"H": "P"}),
    "nonzero": lambda: F(x(H)),
    "normal": lambda: F(None, 0.0, 1.0, axes=[H], dtype=None, seed=1),
    "uniform": lambda: F(None, 0.0, 1.0, axes=[H]),
    "randint": lambda: F(None, 0, 5, axes=[H]),
    "permutation": lambda: F(H, 1),
    "one_hot": lambda: F(x(N, dtype="int32"), K),
    "pad": lambda: F(x(), [1, 1], value=0),
    "persistent_tensor": lambda: F([H], "float32", 0.0),
    "variable": lambda: F([H], "float32", 0.0, name="v"),
    "placeholder": lambda: F([H], "float32", name="v", metadata={}),
    "temporary": lambda: F([H], "float32"),
    "print_values": lambda: F(x(), text="t"),
    "PrintOp": lambda: F(x(), "p"),
    "put": lambda: F(x(), x(N, dtype="int32"), x(N, W), H),
    "scatter_add": lambda: F(x(), x(N, dtype="int32"), x(N, W), H),
    "scatter": lambda: F(x(), x(N, dtype="int32"), x(N, W), axes=(H,), combine="set", mode="fill"),
    "rearrange": lambda: F(x(), "H W -> (H W)"),
    "reduce_scatter": lambda: F(x(), "H", ng.make_axis(4, name="G")),
    "safelog": lambda: F(x(), -50.0),
    "scan": lambda: F(lambda c, a: (c + a, c), ng.constant(0.0), x(H), H),
    "while_loop": lambda: F(lambda c: c < 3.0, lambda c: c + 1.0, ng.constant(0.0)),
    "sequential": lambda: F([x()]),
    "set_item": lambda: F(ng.variable([H]), slice(0, 2), 1.0),
    "silu": lambda: F(x()),
    "slice_along_axis": lambda: F(x(), H, 1),
    "slice_axis": lambda: F(H, slice(0, 2)),
    "sort": lambda: F(x(), H),
    "spatial_axis": lambda: F([ng.make_axis(9, name="height")], 3, 0, 1, "height"),
    "stack": lambda: F([x(), x()], ng.make_axis(2, name="T")),
    "take": lambda: F(x(), x(N, dtype="int32"), H),
    "tensor_size": lambda: F(x()),
    "tensor_slice": lambda: F(x(), [slice(0, 2), 1]),
    "top_k": lambda: F(x(), H, 2),
    "unflatten": lambda: F(ng.flatten(x())),
    "value_of": lambda: F(x()),
    "variance": lambda: F(x()),
    "where": lambda: F(x() > 0, x(), x()),
    "floordivide": lambda: F(x(), x()),
    "mod": lambda: F(x(), x()),
    "logical_not": lambda: F(x() > 0),
    "max": lambda: F(x(), [H]),
    "min": lambda: F(x(), [H]),
    "sum": lambda: F(x(), [H]),
    "mean": lambda: F(x(), [H]),
    "prod": lambda: F(x(), [H]),
    "ctc": lambda: F(
        ng.placeholder([ng.make_axis(5, name="REC"), K, N]),
        x(ng.make_axis(2, name="LL"), N, dtype="int32"),
        x(N, dtype="int32"),
        x(N, dtype="int32"),
    ),
    "with_op_metadata": lambda: F(lambda: 1, {}),
}
VALID |= {
    "categorical": lambda: F(x(), H),
    "fft": lambda: F(x(), H),
    "ifft": lambda: F(x(), H),
    "rfft": lambda: F(x(), H),
    "irfft": lambda: F(x(), H),
    "stft": lambda: F(x(), H, 2, 1),
    "gamma": lambda: F([H], 2.0),
    "gumbel": lambda: F([H]),
    "poisson": lambda: F([H], 2.0),
    "truncated_normal": lambda: F([H]),
    "grid_sample": lambda: F(x(H), x(N, ONE), H, ONE),
    "interpolate": lambda: F(x(), {H: 7}),
    "any": lambda: F(x(), [H]),
    "all": lambda: F(x(), [H]),
    "arange": lambda: F(0, 5, 2, axis="K2"),
    "argsort": lambda: F(x(), H),
    "batch_norm": lambda: F(x(), H, x(H), x(H), eps=1e-5),
    "bincount": lambda: F(x(N, dtype="int32"), "K2=4"),
    "cross": lambda: F(x(D3, N), x(D3, N), D3),
    "cummax": lambda: F(x(), H),
    "cummin": lambda: F(x(), H),
    "cumprod": lambda: F(x(), H),
    "diag": lambda: F(x(H), H, "K2"),
    "dropout": lambda: F(x(), 0.5),
    "eye": lambda: F("I=3", "J=4", 0),
    "full": lambda: F([H], 3.0),
    "glu": lambda: F(x(), H),
    "group_norm": lambda: F(x(N, H), H, 2),
    "histogram": lambda: F(x(), "K2=4", 0, 1),
    "kron": lambda: F(x(), x(W)),
    "layer_norm": lambda: F(x(), H, x(H), x(H), eps=1e-5),
    "linspace": lambda: F(0, 1, "K2=4"),
    "logcumsumexp": lambda: F(x(), H),
    "norm": lambda: F(x(), 2, [H]),
    "ones": lambda: F([H]),
    "zeros": lambda: F([H]),
    "outer": lambda: F(x(H), x(W)),
    "pixel_shuffle": lambda: F(x(H, N), H, {N: 2}),
    "quantile": lambda: F(x(), 0.5, [H]),
    "repeat": lambda: F(x(), 2, H),
    "rms_norm": lambda: F(x(), H, x(H), eps=1e-5),
    "roll": lambda: F(x(), 1, H),
    "searchsorted": lambda: F(x(H), x(N)),
    "segment_max": lambda: F(x(), x(H, dtype="int32"), "K2=4"),
    "segment_mean": lambda: F(x(), x(H, dtype="int32"), "K2=4"),
    "segment_sum": lambda: F(x(), x(H, dtype="int32"), "K2=4"),
    "split": lambda: F(x(), H, 2),
    "tile": lambda: F(x(), {H: 2}),
    "trace": lambda: F(x(), H, W),
    "tril": lambda: F(x(), H, W),
    "triu": lambda: F(x(), H, W),
    "unfold": lambda: F(x(), {H: "R9=2"}),
    "unstack": lambda: F(x(), H),
}
for n in (
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "power",
    "atan2",
    "hypot",
    "logaddexp",
    "logical_xor",
    "prelu",
):
    VALID.setdefault(n, lambda: F(x(), x()))
R2, D3, ONE = ng.make_axis(4, name="R2"), ng.make_axis(3, name="D3"), ng.make_axis(1, name="ONE")
Q = ng.make_axis(9, name="Q")
BAD = {
    "None": None,
    "text": "abc",
    "float": 2.5,
    "bool": True,
    "list": [1, 2, 3],
    "array": np.ones((2, 7)),
    "objects": np.array([object()]),
    "axis": Q,
    "op": ng.placeholder([Q]),
    "no value": ng.assign(ng.variable(()), 1),
    "set": {1, 2},
    "dict": {"a": 1},
    "int": 7,
    "negative": -3,
    "function": lambda: 3,
    "class": object,
    "ragged": [[[[1], 2]]],
}
NO_CALL = {"config", "is_constant", "is_constant_scalar", "make_name_scope", "metadata", "name_scope", "with_name_scope"}  # take anything
OLD = {"convolution", "deconvolution", "pooling"}  # dicts of parameters, as earlier versions had them


def public():
    """Names of functions and records, each with its right call."""
    for name in sorted(ng.__all__):
        if name in ("testing", "transformers", "types"):
            continue
        found = getattr(ng, name)
        if isinstance(found, OpDef) or callable(found) and not isinstance(found, type) or name in ("Axes", "AxesMap"):
            yield name


NAMES = [name for name in public() if name not in NO_CALL | OLD]


def right(name):
    return VALID.get(name, lambda: F(x()))()


def replaced(name):
    """(what was replaced by what, arguments, named arguments)"""
    args, named = right(name)
    own = {} if isinstance(getattr(ng, name), OpDef) else inspect.signature(getattr(ng, name)).parameters
    more = [p for k, p in enumerate(own) if k >= len(args) and p not in named and own[p].kind is not inspect.Parameter.VAR_POSITIONAL]
    places = [*range(len(args)), *named, *([] if name == "AxesMap" else more)]
    for place in places:
        for what in [*BAD, "generator"]:
            args, named = right(name)
            args = list(args)
            value = (k for k in [1]) if what == "generator" else BAD[what]
            if isinstance(place, int):
                args[place] = value
            else:
                named[place] = value
            yield f"{place}={what}", args, named
    if name not in ("Axes", "AxesMap"):
        args, named = right(name)
        yield "one too few", args[:-1], named
        yield "too many", [*right(name)[0], *range(1, 10)], named
        yield "a stranger", right(name)[0], {**named, "keepdims": True}


def ended(function, args, named):
    """What came of a call: None for an answer, an NgraphError, or the text of another error."""
    try:
        function(*args, **named)
    except NgraphError as error:
        return error if error.line and error.line[0] == __file__ else f"blames {error.line}: {error}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return None if last.name == "<lambda>" else f"{type(error).__name__}: {error}, from {last.filename}:{last.lineno}"
    return None


@pytest.mark.parametrize("name", NAMES)
def test_what_is_of_a_wrong_kind_is_told(name, recwarn):
    assert ended(getattr(ng, name), *right(name)) is None, "the call that is right"
    raw = {what: said for what, *call in replaced(name) if isinstance(said := ended(getattr(ng, name), *call), str)}
    assert not raw


def test_an_operator_and_an_index_too():
    for what, value in BAD.items():
        for apply in (lambda v: x() + v, lambda v: v * x(), lambda v: x() @ v, lambda v: x()[v], lambda v: x() < v, lambda v: x() ** v):
            said = ended(apply, [value], {})
            assert not isinstance(said, str), (what, said)


REFUSED = {  # what some function would take in silence
    "a number of tensors": lambda: ng.tanh(x(), 3),
    "too few tensors": lambda: ng.add(x()),
    "a stride that is not a whole number": lambda: ng.max_pool(image(), {H: 2}, stride=1.5),
    "a seed that is not a whole number": lambda: ng.uniform(axes=[H], seed=2.5),
    "a flag that is a word": lambda: ng.cumsum(x(), H, reverse="no"),
    "no dtype": lambda: ng.cast(x(), None),
    "a value of words": lambda: ng.variable([H], initial_value="zeros"),
    "roles in one word": lambda: ng.make_axis(3, roles="height"),
    "padding with a tensor": lambda: ng.pad(x(), [1, 1], value=x()),
    "slices in no order": lambda: ng.tensor_slice(x(), {1, 2}),
    "an attribute that a record has not": lambda: ng.contract(x(), x(), over=(H,), keepdims=True),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_means_nothing_is_refused(what):
    with pytest.raises(NgraphError):
        REFUSED[what]()


def test_arguments_that_are_exchanged_are_told():
    with pytest.raises(ArgumentTypeError, match="x is the axis H=4, and axis is the op placeholder.*\n.*\n  fix: exchange x and axis"):
        ng.cumsum(H, x())


def test_names_of_other_libraries_are_told():
    with pytest.raises(UnknownName, match="sum has no argument axis\n.*\n  fix: take reduction_axes="):
        ng.sum(x(), axis=0)
    with pytest.raises(UnknownName, match="has no argument keepdims\n.*\n  fix: omit it"):
        ng.mean(x(), keepdims=True)
    with pytest.raises(UnknownName, match="placeholder has no argument shape\n.*\n  fix: take axes="):
        ng.placeholder(shape=[H])


def test_errors_of_the_users_own_functions_stay():
    def step(carry, item):
        return carry + len(5), carry

    with pytest.raises(TypeError) as told:
        ng.scan(step, ng.constant(0.0), x(H), H)
    assert not isinstance(told.value, NgraphError)


def test_a_function_of_other_arguments_is_told():
    with pytest.raises(ArgumentTypeError, match="scan: .*takes 1 positional argument but 2 were given"):
        ng.scan(lambda carry: carry, ng.constant(0.0), x(H), H)


ELSEWHERE = [
    (lambda: ng.sum(x(), axes="H"), "reduction_axes="), (lambda: ng.cumsum(x(), dim="H"), "axis="), (lambda: ng.norm(x(), ord=2), "p="),
    (lambda: ng.interpolate(x(), {"H": 2}, mode="linear"), "method="), (lambda: ng.pad(x(), pad_width={"H": (1, 1)}), "paddings="),
    (lambda: ng.leaky_relu(x(), negative_slope=0.1), "slope="), (lambda: ng.split(x(), "H", sections=2), "parts="),
    (lambda: ng.repeat(x(), repeats=2, axis="H"), "count="), (lambda: ng.clip(x(), min=0), "low="),
    (lambda: ng.full("H=2", fill_value=1), "value="),
    (lambda: ng.segment_sum(x(), segment_ids=0, segments="S=2"), "ids="), (lambda: ng.stft(x(), "H", n_fft=4, hop=2), "size="),
    (lambda: ng.linalg.matrix_norm(x(), "H", "W", p=2), "ord="), (lambda: ng.linalg.pinv(x(), "H", "W", rtol=0.1), "rcond="),
]  # fmt: skip


@pytest.mark.parametrize(("call", "meant"), ELSEWHERE, ids=[meant for _, meant in ELSEWHERE])
def test_arguments_of_other_libraries_name_those_here(call, meant):
    with pytest.raises(UnknownName, match=f"has no argument .*\n.*\n  fix: take {meant}"):
        call()


def test_methods_of_other_libraries_name_all_that_the_function_needs():
    for call, fix in (
        (lambda: x().where(x() > 0, 0.0), r"write ng.where\(c, x, y\)"),
        (lambda: x().one_hot, r"write ng.one_hot\(x, axis\)"),
        (lambda: x().float64, r"write x.astype\(ng.float64\)"),
        (lambda: x().softplus, r"write ng.softplus\(x\)"),
    ):
        with pytest.raises(UnknownName, match=fix):
            call()
    with pytest.raises(ArgumentTypeError, match=r"name them in one text: .* x.transpose\(\"W H\"\)"):
        x().transpose("W", "H")


def test_only_arguments_that_are_both_wrong_are_to_be_exchanged():
    with pytest.raises(ArgumentTypeError, match="stride is .*, which is neither a whole number nor a dict"):
        ng.unfold(x(), {"H": "R=2"}, stride=(1, 2), padding=1)
    with pytest.raises(ArgumentTypeError, match="fix: exchange shift and axis"):
        ng.roll(x(), "H", 1)
