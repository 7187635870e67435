"""The whole vocabulary: every name is there, takes the parameters it is known for, and gives what NumPy says.

Tables in the order of the sections: what is exported, signatures, values, reductions, losses and shapes, axes, state, graph queries,
testing. A row that is missing here is a name that nobody holds to its meaning.
"""

import gc
import inspect
import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError, AxisError, GraphError, StateError
from ngraph.op_graph.opdef import find_axis
from ngraph.op_graph.serde import serde
from ngraph.op_graph.text import dumps, loads
from ngraph.util.utils import executor

RNG = np.random.default_rng(11)
A, B, C, N, REC = (ng.make_axis(n, name=name) for n, name in ((2, "A"), (3, "B"), (4, "C"), (5, "N"), (3, "REC")))
FED = {}


def given(array, *axes, dtype="float64"):
    """A placeholder, and what is fed to it."""
    made = ng.placeholder(axes, dtype=dtype)
    FED[made] = np.asarray(array).astype(dtype)
    return made


def compute(*results, transformer=None):
    """The values of ops on a fresh transformer, everything fed from FED."""
    holes = sorted({p for r in results for p in r.placeholders()}, key=lambda p: p.serial)
    with transformer or ngt.make_transformer() as t:
        return t.computation(list(results), *holes)(*(FED[h] for h in holes))


x_, y_ = RNG.uniform(0.5, 2, (2, 3)), RNG.uniform(0.5, 2, (2, 3))
s_ = RNG.normal(size=(2, 3))
n_ = RNG.normal(size=(2, 3, 5))
r_ = RNG.normal(size=(2, 3, 5))
i_, j_ = np.array([[7, -7, 9], [-9, 5, 0]]), np.array([[2, 2, -4], [4, -3, 5]])
X, Y, S = given(x_, A, B), given(y_, A, B), given(s_, A, B)
BATCH, SEQ = given(n_, A, B, N), given(r_, A, REC, N)
I, J = given(i_, A, B, dtype="int32"), given(j_, A, B, dtype="int32")


# ---- what is exported -------------------------------------------------------------------------------------------------

EXPORTED = """
    absolute add as_op as_ops axes_with_order batch_size broadcast cast_axes computation constant convolution cos ctc deconvolution exp fill
    log lookuptable make_axes make_axis negative one_hot pad persistent_tensor placeholder pooling reciprocal safelog sequential sigmoid
    sign sin slice_along_axis sqrt square squared_L2 stack tanh temporary tensor_size tensor_slice testing value_of variable variance
    dot deriv sum mean max min prod argmax argmin softmax cross_entropy_multi cross_entropy_binary cross_entropy_binary_inner assign doall
    multiply subtract divide maximum minimum equal uniform normal flatten expand_dims metadata concat_along_axis map_roles cast_role
    floordivide mod power not_equal greater less greater_equal less_equal sigmoidAtomic stop_gradient L2_norm L1_norm compute_reduction_axes
    flatten_at unflatten set_item with_op_metadata PrintOp slice_axis
    make_axis_role make_name_scope name_scope with_name_scope spatial_axis is_constant is_constant_scalar constant_value constant_storage
    init_tensor dualed_axes linear_map_axes transformers types Axis Axes AxesMap FlattenedAxis DuplicateAxisNames IncompatibleAxesError
    UnmatchedAxesError Op
""".split()


@pytest.mark.parametrize("name", EXPORTED)
def test_the_name_is_there(name):
    assert getattr(ng, name) is not None


def test_no_helpers_leak_out():
    leaked = {"np", "wraps", "contextmanager", "inspect", "defaultdict", "importlib", "Any"} & set(vars(ng))
    assert not leaked
    with pytest.raises(AttributeError, match="no attribute 'absolut'"):
        ng.absolut  # noqa: B018  raises


TYPES = "AssignableTensorOp Axis Axes Computation NameableValue NameScope Op TensorOp Transformer".split()


@pytest.mark.parametrize("name", TYPES)
def test_the_type_is_there(name):
    assert inspect.isclass(getattr(ng.types, name))


def test_types_tell_kinds_of_ops():
    v, c, total, assigned = ng.variable([A]), ng.constant(1), X + 1, ng.assign(ng.variable([A]), 1)
    things = (X, v, c, total, assigned, A, 3)
    table = {
        "TensorOp": (1, 1, 1, 1, 0, 0, 0),
        "AssignableTensorOp": (1, 1, 1, 0, 0, 0, 0),
        "NameableValue": (1, 1, 1, 1, 1, 1, 0),
        "Op": (1, 1, 1, 1, 1, 0, 0),
        "Axis": (0, 0, 0, 0, 0, 1, 0),
    }
    assert {name: tuple(isinstance(t, getattr(ng.types, name)) for t in things) for name in table} == table


# ---- signatures -------------------------------------------------------------------------------------------------------

SIGNATURES = """
    make_axes(axes) slice_axis(axis,s) constant(const,axes,dtype) placeholder(axes,dtype,initial_value) variable(axes,dtype,initial_value)
    persistent_tensor(axes,dtype,initial_value) temporary(axes,dtype) as_op(x) as_ops(xs) value_of(tensor) safelog(x,limit)
    floordivide(x,y,dtype) mod(x,y,dtype) equal(x,y,dtype) greater(x,y,dtype) less(x,y,dtype) greater_equal(x,y,dtype) less_equal(x,y,dtype)
    sum(x,reduction_axes,out_axes,dtype) prod(x,reduction_axes,out_axes,dtype) max(x,reduction_axes,out_axes,dtype)
    min(x,reduction_axes,out_axes,dtype) argmax(x,dtype) argmin(x,dtype) mean(x,reduction_axes,out_axes) variance(x,out_axes,reduction_axes)
    squared_L2(x,out_axes,reduction_axes) L2_norm(x,eps,out_axes,reduction_axes) L1_norm(x,out_axes,reduction_axes)
    tensor_size(x,reduction_axes,out_axes) batch_size(x) compute_reduction_axes(x,reduction_axes,out_axes) dot(x,y)
    convolution(conv_params,inputs,filters,axes,docstring) deconvolution(conv_params,inputs,filters,axes,docstring)
    pooling(poolparams,inputs,axes,docstring) lookuptable(lut,idx,axes,update,pad_idx,docstring) one_hot(x,axis)
    ctc(activations,labels,activation_lens,label_lens,axes) softmax(x,normalization_axes)
    cross_entropy_multi(y,t,usebits,out_axes,enable_softmax_opt,enable_diff_opt)
    cross_entropy_binary(y,t,usebits,out_axes,enable_sig_opt,enable_diff_opt) cross_entropy_binary_inner(y,t,enable_sig_opt,enable_diff_opt)
    axes_with_order(x,axes) broadcast(x,axes) cast_axes(x,axes) cast_role(x,axes) map_roles(x,axes_map) expand_dims(x,axis,dim)
    flatten(x,axes) flatten_at(x,idx) unflatten(x,axes) tensor_slice(x,slices,axes) slice_along_axis(x,axis,idx) pad(x,paddings,axes)
    stack(x_list,axis,pos) concat_along_axis(x_list,axis) assign(lvalue,rvalue) set_item(tensor,item,value) fill(x,scalar) doall(all)
    sequential(ops) uniform(x,low,high) normal(x,loc,scale) deriv(dependent,independent,error) PrintOp(x,prefix)
    with_op_metadata(function,metadata) name_scope(name,reuse_scope) make_axis_role(name,docstring) make_name_scope(name)
    is_constant(x) is_constant_scalar(x) constant_value(x) constant_storage(axes,dtype,initial_value) init_tensor(tensor,value)
    spatial_axis(axes,kernel_size,padding,stride,role) linear_map_axes(in_axes,out_axes)
""".split()


@pytest.mark.parametrize("signature", SIGNATURES)
def test_the_parameters_are_those_known(signature):
    name, wanted = signature.rstrip(")").split("(")
    wanted = wanted.split(",")
    have = list(inspect.signature(getattr(ng, name)).parameters)
    assert have[: len(wanted)] == wanted


def test_make_axis_takes_the_arguments_of_both_eras():
    have = list(inspect.signature(ng.make_axis).parameters)
    assert have[:2] == ["length", "name"] and {"batch", "recurrent", "match_on_length", "roles", "docstring"} <= set(have)
    assert ng.make_axis(3, name="P", docstring="pixels").docstring == "pixels" and ng.make_axis(3, match_on_length=False).length == 3
    with pytest.raises(AxisError, match="there is no match_on_length"):
        ng.make_axis(3, match_on_length=True)


MADE = {
    "constant": lambda **notes: ng.constant(1.0, [A], **notes),
    "an array": lambda **notes: ng.constant(x_, [A, B], **notes),
    **{f.__name__: partial(f, [A]) for f in (ng.placeholder, ng.variable, ng.persistent_tensor, ng.temporary)},
}


@pytest.mark.parametrize("what", MADE)
def test_tensors_are_described_when_they_are_made(what):
    with ng.metadata(part="encoder"):
        made = MADE[what](name="w", docstring="weights", metadata={"rate": 2})
    assert (made.name, made.docstring, made.metadata) == ("w", "weights", {"part": "encoder", "rate": 2, "docstring": "weights"})
    assert MADE[what]().docstring is None


# ---- element-wise -----------------------------------------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


UNARY = {
    "negative": np.negative,
    "absolute": np.abs,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "exp": np.exp,
    "reciprocal": np.reciprocal,
    "sign": np.sign,
    "square": np.square,
    "sigmoid": sigmoid,
    "sigmoidAtomic": sigmoid,
    "stop_gradient": lambda x: x,
    "PrintOp": lambda x: x,
}


@pytest.mark.parametrize("name", [*UNARY, "log", "sqrt"])
def test_unary(name):
    function = UNARY.get(name) or getattr(np, name)
    x, value = (S, s_) if name in UNARY else (X, x_)
    np.testing.assert_allclose(compute(getattr(ng, name)(x))[0], function(value), rtol=1e-14)


BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "floordivide": np.floor_divide,
    "mod": np.mod,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "power": np.power,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "less": np.less,
    "greater_equal": np.greater_equal,
    "less_equal": np.less_equal,
}


@pytest.mark.parametrize("name", BINARY)
def test_the_dtype_that_is_asked_for(name):
    """Also of comparisons, which are bool otherwise: programs count with them."""
    op = getattr(ng, name)(X, Y, dtype="float32")
    assert op.dtype is ng.float32
    np.testing.assert_allclose(compute(op)[0], BINARY[name](x_, y_), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    function, values = getattr(ng, name), BINARY[name]
    got = compute(function(X, Y), function(X, 1.5), function(1.5, X))
    for g, e in zip(got, (values(x_, y_), values(x_, 1.5), values(1.5, x_)), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-14)
        assert g.dtype == e.dtype


@pytest.mark.parametrize("name", ["floordivide", "mod"])
def test_division_of_integers_is_pythons(name):
    function = getattr(ng, name)
    np.testing.assert_array_equal(compute(function(I, J))[0], BINARY[name](i_, j_))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_quotient_of_16_bit_floats_is_rounded_once(dtype):
    """Where whole numbers are no longer dense (beyond 256 in bfloat16), the exact one is rounded: -1.4609375 // 0.00830078125 is -176."""
    d = getattr(ng, dtype).np
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(4099) * 10.0 ** rng.uniform(-3, 3, 4099) for _ in "xy")
    x, y = np.append(x, [-1.4609375, 0.0, -0.0, 1.0]).astype(d), np.append(y, [0.00830078125, -3.0, 3.0, 0.1]).astype(d)
    n = ng.make_axis(len(x), name="Q")
    got = compute(ng.floordivide(ng.constant(x, [n], dtype=dtype), ng.constant(y, [n], dtype=dtype)))[0].astype(float)
    with np.errstate(over="ignore"):
        expected = np.floor_divide(x.astype(float), y.astype(float)).astype(d).astype(float)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


OPERATORS = {
    "x + y": lambda x, y: x + y,
    "x - y": lambda x, y: x - y,
    "x * y": lambda x, y: x * y,
    "x / y": lambda x, y: x / y,
    "x // y": lambda x, y: x // y,
    "x % y": lambda x, y: x % y,
    "x ** y": lambda x, y: x**y,
    "-x": lambda x, y: -x,
    "+x": lambda x, y: +x,
    "abs(x)": lambda x, y: abs(x),
    "divmod(x, y)[0]": lambda x, y: divmod(x, y)[0],
    "divmod(3, x)[1]": lambda x, y: divmod(3, x)[1],
    "x < y": lambda x, y: x < y,
    "x > y": lambda x, y: x > y,
    "x <= y": lambda x, y: x <= y,
    "x >= y": lambda x, y: x >= y,
    "3 + x": lambda x, y: 3 + x,
    "3 - x": lambda x, y: 3 - x,
    "3 * x": lambda x, y: 3 * x,
    "3 / x": lambda x, y: 3 / x,
    "3 // x": lambda x, y: 3 // x,
    "3 % x": lambda x, y: 3 % x,
    "3 ** x": lambda x, y: 3**x,
    "x[1]": lambda x, y: x[1],
    "x[:, 1:]": lambda x, y: x[:, 1:],
    "x[..., ::-1]": lambda x, y: x[..., ::-1],
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_operators(operator):
    np.testing.assert_allclose(compute(OPERATORS[operator](X, Y))[0], OPERATORS[operator](x_, y_), rtol=1e-14)


def test_safelog_has_a_floor():
    x = given([0.0, 1e-30, 1.0, 2.0], C)
    np.testing.assert_allclose(compute(ng.safelog(x), ng.safelog(x, limit=-2))[0], np.maximum(np.log([1e-300, 1e-30, 1, 2]), -50))
    np.testing.assert_allclose(compute(ng.safelog(x, limit=-2))[0], [-2, -2, 0, math.log(2)])


def test_comparisons_are_bool_and_numbers_weak():
    assert (X < Y).dtype is ng.bool_ and (X + 1).dtype is ng.float64 and (I + 1).dtype is ng.int32 and ng.constant(1).dtype is ng.float32


# ---- reductions -------------------------------------------------------------------------------------------------------


def flat_argmax(x):
    return x.reshape(6, 5).argmax(axis=0)


REDUCED = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "mean": np.mean,
    "variance": np.var,
    "squared_L2": lambda x, axis: np.sum(x * x, axis=axis),
    "L1_norm": lambda x, axis: np.sum(np.abs(x), axis=axis),
    "L2_norm": lambda x, axis: np.sqrt(np.sum(x * x, axis=axis) + 1e-8),
}


@pytest.mark.parametrize("name", REDUCED)
def test_reductions(name):
    """By default all but batch and recurrent axes; else what the arguments say."""
    f, e = getattr(ng, name), REDUCED[name]
    cases = [
        (f(BATCH), e(n_, axis=(0, 1))),
        (f(SEQ), e(r_, axis=0)),
        (f(BATCH, out_axes=[B]), e(n_, axis=(0, 2))),
        (f(BATCH, reduction_axes=[B]), e(n_, axis=1)),
        (f(BATCH, reduction_axes=[B, A], out_axes=[N]), e(n_, axis=(0, 1))),
        (f(BATCH, out_axes=()), e(n_, axis=(0, 1, 2))),
        (f(BATCH, out_axes=[N, A]), e(n_, axis=1).T),
        (f(BATCH, reduction_axes=[]), e(n_[..., None], axis=3)),
    ]
    for got, (op, expected) in zip(compute(*(op for op, _ in cases)), cases, strict=True):
        assert got.shape == np.shape(expected) == op.axes.lengths
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15)
    for wrong in ({"reduction_axes": [A], "out_axes": [A, B, N]}, {"reduction_axes": [A], "out_axes": [B]}, {"out_axes": [C]}):
        with pytest.raises(ValueError):
            f(BATCH, **wrong)


def test_a_mean_with_a_recurrent_axis_is_that_of_what_is_summed():
    assert (compute(ng.mean(given(np.ones((2, 3, 5)), A, REC, N)))[0] == 1).all()


@pytest.mark.parametrize("name, by", [("argmax", np.argmax), ("argmin", np.argmin)])
def test_positions_of_extremes(name, by):
    f = getattr(ng, name)
    ties = given([[1, 3, 3], [0, 0, 2]], A, B)
    got = compute(
        f(BATCH),
        f(BATCH, reduction_axes=[B]),
        f(BATCH, out_axes=[A]),
        f(BATCH, reduction_axes=[N, B]),
        f(BATCH, out_axes=()),
        f(ties, out_axes=[A]),
    )
    expected = [
        by(n_.reshape(6, 5), axis=0),
        by(n_, axis=1),
        by(n_.reshape(2, 15), axis=1),
        by(n_.transpose(0, 2, 1).reshape(2, 15), axis=1),
        by(n_),
        by([[1, 3, 3], [0, 0, 2]], axis=1),
    ]
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_array_equal(g, e)
        assert g.dtype == np.int32
    assert f(BATCH, dtype="int64").dtype is ng.int64


def test_sizes():
    sizes = [
        ng.tensor_size(BATCH),
        ng.tensor_size(BATCH, out_axes=()),
        ng.tensor_size(BATCH, reduction_axes=[A, N]),
        ng.tensor_size(given(np.ones(5), N)),
    ]
    assert [float(v) for v in compute(*sizes, ng.batch_size(BATCH), ng.batch_size(X))] == [6, 30, 10, 1, 5, 1]
    assert ng.compute_reduction_axes(BATCH, None, [B]) == ng.make_axes([A, N]) == ng.compute_reduction_axes(BATCH, [N, A])


# ---- several axes at once ---------------------------------------------------------------------------------------------


def test_dot_by_duals_and_by_names():
    H, W = ng.make_axis(2, name="H"), ng.make_axis(3, name="W")
    w, v, rec = RNG.normal(size=(2, 3)), RNG.normal(size=(3, 5)), RNG.normal(size=(2, 2))
    left, plain, right, state = given(w, H, W - 1), given(w, H, W), given(v, W, N), given(rec, H, H - 1)
    h = given(w @ v, H, N)
    got = compute(
        ng.dot(left, right), ng.dot(plain, right), ng.dot(state, h), ng.dot(plain, ng.constant(2.0, dtype="float64")), left @ right
    )
    for g, e in zip(got, (w @ v, w @ v, rec @ w @ v, 2 * w, w @ v), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-12)
    assert ng.dot(plain, right).axes == ng.make_axes([H, N])


def test_lookups_and_their_gradient():
    lut, idx = given(RNG.normal(size=(4, 2)), C, A), given([0, 3, 3, 1, 2], N, dtype="int32")
    rows = ng.lookuptable(lut, idx, [A, N], pad_idx=3)
    value, slope, still = compute(
        rows, ng.deriv(ng.sum(rows, out_axes=()), lut), ng.deriv(ng.sum(ng.lookuptable(lut, idx, [A, N], update=False), out_axes=()), lut)
    )
    np.testing.assert_array_equal(value, FED[lut][[0, 3, 3, 1, 2]].T)
    np.testing.assert_array_equal(slope, [[1, 1], [1, 1], [1, 1], [0, 0]])
    assert not still.any()


def test_one_hot_puts_its_axis_first():
    made = ng.one_hot(given([1, 0, 3, 9, -1], N, dtype="int32"), C)
    assert made.axes == ng.make_axes([C, N])
    np.testing.assert_array_equal(compute(made)[0], (np.arange(4)[:, None] == [1, 0, 3, 9, -1]).astype(np.float32))


POOL = {
    "J": 1,
    "T": 1,
    "R": 2,
    "S": 2,
    **{f"pad_{k}": v for k, v in zip("cdhw", (0, 0, 1, 0), strict=True)},
    **{f"str_{k}": v for k, v in zip("cdhw", (1, 1, 2, 1), strict=True)},
}


@pytest.mark.parametrize("op", ["max", "avg"])
def test_pooling_counts_what_lies_inside(op):
    axes = [ng.make_axis(n, name=name) for n, name in ((2, "C"), (1, "D"), (4, "H"), (3, "W"), (2, "N"))]
    x = RNG.normal(size=(2, 1, 4, 3, 2))
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0), (0, 0)), constant_values=np.nan)
    by = {"max": np.nanmax, "avg": np.nanmean}[op]
    expected = np.stack([np.stack([by(wide[:, :, h : h + 2, w : w + 2], axis=(2, 3)) for w in range(2)], 2) for h in (0, 2, 4)], 2)
    out = [axes[0], axes[1], ng.make_axis(name="P"), ng.make_axis(name="Q"), axes[4]]
    np.testing.assert_allclose(compute(ng.pooling({**POOL, "op": op}, given(x, *axes), out))[0], expected, rtol=1e-14)
    with pytest.raises(ValueError):
        ng.pooling({**POOL, "op": "median"}, given(x, *axes), out)


@pytest.mark.parametrize("deconv", [False, True])
def test_convolution_and_deconvolution_against_the_references(deconv):
    p = ng.testing.ConvParams(
        C=2, N=3, K=2, D=2, H=5, W=4, T=1, R=3, S=2, pad_h=1, str_h=2, str_w=2, dil_h=2 if deconv else 1, deconv=deconv
    )
    x, f, e = (RNG.normal(size=dims) for dims in (p.dimI, p.dimF, p.dimO))
    xs, fs = given(x, *p.ax_i), given(f, *p.ax_f)
    made = (ng.deconvolution if deconv else ng.convolution)(p.conv_params, xs, fs, p.ax_o)
    error = given(e, *p.ax_o)
    got = compute(made, ng.deriv(made, xs, error=error), ng.deriv(made, fs, error=error))
    if deconv:
        expected = (ng.testing.reference_deconv_fprop(p.conv_params, x, f), *ng.testing.reference_deconv_bprop(p.conv_params, e, x, f))
    else:
        expected = ng.testing.reference_conv(p.dimI, p.dimF, p.dimO, p.conv_params, x, f, e)
    for g, want in zip(got, expected, strict=True):
        np.testing.assert_allclose(g, want, rtol=1e-10, atol=1e-12)
    missing = {k: v for k, v in p.conv_params.items() if k != "dil_w"}
    with pytest.raises(ValueError, match="dil_w"):
        (ng.deconvolution if deconv else ng.convolution)(missing, xs, fs, p.ax_o)


# ---- losses -----------------------------------------------------------------------------------------------------------


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def test_softmax_and_its_gradient_over_any_axes():
    w = given(RNG.normal(size=n_.shape), A, B, N)
    for axes, dims in ((None, (0, 1)), ([B], (1,)), ([N], (2,))):
        y = ng.softmax(BATCH, axes) if axes else ng.softmax(BATCH)
        value, slope = compute(y, ng.deriv(ng.sum(y * w, out_axes=()), BATCH))
        p = softmax(n_, dims)
        np.testing.assert_allclose(value, p, rtol=1e-12)
        np.testing.assert_allclose(slope, p * (FED[w] - (FED[w] * p).sum(axis=dims, keepdims=True)), rtol=1e-9, atol=1e-14)


def test_cross_entropies():
    t = softmax(RNG.normal(size=n_.shape), (0, 1))
    T, p, q = given(t, A, B, N), softmax(n_, (0, 1)), sigmoid(n_)
    multi = -(t * np.log(p)).sum(axis=(0, 1))
    each = -(t * np.log(q) + (1 - t) * np.log(1 - q))
    y, z = ng.softmax(BATCH), ng.sigmoid(BATCH)
    rows = [
        (ng.cross_entropy_multi(y, T), multi),
        (ng.cross_entropy_multi(y, T, usebits=True), multi / math.log(2)),
        (ng.cross_entropy_multi(y, T, enable_softmax_opt=False), multi),
        (ng.cross_entropy_multi(y, T, out_axes=()), multi.sum()),
        (ng.cross_entropy_binary_inner(z, T), each),
        (ng.cross_entropy_binary_inner(z, T, enable_sig_opt=False), each),
        (ng.cross_entropy_binary(z, T), each.sum(axis=(0, 1))),
        (ng.cross_entropy_binary(z, T, usebits=True, out_axes=[A]), each.sum(axis=(1, 2)) / math.log(2)),
    ]
    for got, (_, expected) in zip(compute(*(op for op, _ in rows)), rows, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10)
    with pytest.raises(ng.UnmatchedAxesError):
        ng.cross_entropy_multi(ng.softmax(X), given(np.ones((3, 4)), B, C))


# ---- shapes -----------------------------------------------------------------------------------------------------------

D2 = ng.make_axis(2, name="D")
FLAT = ng.flatten(X)
SHAPES = {
    "axes_with_order": (ng.axes_with_order(X, [B, A]), x_.T),
    "broadcast": (ng.broadcast(X, [B, N, A]), np.broadcast_to(x_.T[:, None], (3, 5, 2))),
    "cast_axes": (ng.cast_axes(X, [D2, B]), x_),
    "cast_role": (ng.cast_role(X, [ng.make_axis(name="P"), ng.make_axis(9, name="Q")]), x_),
    "map_roles": (ng.map_roles(X, {A: "P"}), x_),
    "map_roles by an AxesMap": (ng.map_roles(X, ng.AxesMap({"A": "B", "B": "A"})), x_),
    "expand_dims": (ng.expand_dims(X, N, 1), np.broadcast_to(x_[:, None], (2, 5, 3))),
    "expand_dims of one it has": (ng.expand_dims(X, B, 0), x_),
    "flatten": (FLAT, x_.ravel()),
    "flatten some": (ng.flatten(BATCH, [N, A]), n_.transpose(2, 0, 1).reshape(10, 3)),
    "flatten_at": (ng.flatten_at(BATCH, 1), n_.reshape(2, 15)),
    "unflatten": (ng.unflatten(FLAT), x_),
    "unflatten to others": (ng.unflatten(ng.flatten(X), [ng.make_axis(3, name="P"), ng.make_axis(2, name="Q")]), x_.reshape(3, 2)),
    "tensor_slice": (ng.tensor_slice(X, [1, slice(0, 2)]), x_[1, :2]),
    "tensor_slice backwards": (ng.tensor_slice(X, [slice(None), slice(None, None, -2)]), x_[:, ::-2]),
    "slice_along_axis": (ng.slice_along_axis(X, B, 2), x_[:, 2]),
    "slice_along_axis by a slice": (ng.slice_along_axis(X, B, slice(1, 3)), x_[:, 1:]),
    "pad": (ng.pad(X, [1, (0, 2)]), np.pad(x_, [(1, 1), (0, 2)])),
    "stack": (ng.stack([X, Y, S], ng.make_axis(3, name="S"), 1), np.stack([x_, y_, s_], axis=1)),
    "concat_along_axis": (ng.concat_along_axis([X, ng.slice_along_axis(Y, B, slice(1, 3))], B), np.concatenate([x_, y_[:, 1:]], axis=1)),
    "dualed_axes": (ng.dualed_axes(X, lambda a: a == B, -1, 0), x_),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    op, expected = SHAPES[name]
    assert op.axes.lengths == expected.shape
    np.testing.assert_array_equal(compute(op)[0], expected)


def test_names_of_shaped_axes():
    names = {
        "pad": ("A", "B"),
        "cast_role": ("P", "Q"),
        "map_roles": ("P", "B"),
        "map_roles by an AxesMap": ("B", "A"),
        "concat_along_axis": ("A", "B"),
    }
    assert {k: SHAPES[k][0].axes.names for k in names} == names
    assert SHAPES["dualed_axes"][0].axes == ng.make_axes([A, B - 1])
    assert find_axis(SHAPES["flatten"][0], "A*B", "here").is_flattened


WRONG = {
    "broadcast": lambda: ng.broadcast(X, [A, N]),
    "axes_with_order": lambda: ng.axes_with_order(X, [A]),
    "cast_axes": lambda: ng.cast_axes(X, [B, A]),
    "cast_axes of another length": lambda: ng.cast_axes(X, [A, C]),
    "tensor_slice": lambda: ng.tensor_slice(X, [1]),
    "an index outside": lambda: X[2],
    "stack": lambda: ng.stack([X, Y], ng.make_axis(3, name="S")),
    "concat_along_axis": lambda: ng.concat_along_axis([X, BATCH], B),
    "pad": lambda: ng.pad(X, [1]),
    "constant": lambda: ng.constant(np.ones(4), [A]),
    "constant of another rank": lambda: ng.constant(np.ones((2, 3)), [A]),
    "array operand": lambda: X + np.ones(4),
    "one_hot": lambda: ng.one_hot(I, B),
    "lookuptable": lambda: ng.lookuptable(X, I, [A, B]),
    "lengths of one name": lambda: X + given(np.ones(7), ng.make_axis(7, name="B")),
    "deriv of no scalar": lambda: ng.deriv(X, X),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_a_value_error_when_it_is_written(what):
    with pytest.raises(ValueError):
        WRONG[what]()


# ---- axes -------------------------------------------------------------------------------------------------------------

FA = ng.FlattenedAxis([A, B])
AB = ng.make_axes([A, B])
AXES = {
    "Axis of a length and a name": lambda: (
        (ng.Axis(4, name="C") == C, ng.Axis(length=4, name="C").length, ng.Axis().length) == (True, 4, None)
    ),
    "unnamed": lambda: ng.make_axis(3) != ng.make_axis(3),
    "equal by name": lambda: ng.make_axis(3, name="Q") == ng.make_axis(4, name="Q"),
    "equal, so hash equal": lambda: hash(ng.make_axis(3, name="Q")) == hash(ng.make_axis(4, name="Q")),
    "flags by name": lambda: (N.is_batch, REC.is_recurrent, C.is_channel, A.is_batch) == (True, True, True, False),
    "flags by argument": lambda: ng.make_axis(2, name="Q", batch=True).is_batch and not ng.make_axis(2, name="N", batch=False).is_batch,
    "a dual has no flags": lambda: not (N - 1).is_batch,
    "duals": lambda: (A - 1) + 1 is A and A.T == A - 1 and (A + 1).T == A - 2 and (A - 1) != A,
    "roles": lambda: ng.make_axis(2, roles=[ng.make_axis_role("Height")]).has_role("Height"),
    "roles by name": lambda: AB.role_axes("B") == ng.make_axes([B]) and not (B - 1).has_role("B"),
    "a role has its docstring": lambda: ng.make_axis_role("Width", docstring="across").docstring == "across",
    "roles without names differ": lambda: ng.make_axis_role() != ng.make_axis_role(),
    "Axes from a dict": lambda: ng.make_axes({"P": 2, "Q": 3}).lengths == (2, 3),
    "Axes from lists": lambda: ng.make_axes([[A, B], N])[0] == FA and ng.make_axes([[A, B], N]).lengths == (6, 5),
    "Axes from an axis, from nothing": lambda: ng.make_axes(A) == ng.make_axes([A]) and len(ng.make_axes()) == 0,
    "a + b": lambda: AB + N == ng.make_axes([A, B, N]) and A + ng.make_axes([B]) == AB,
    "a - b": lambda: AB - A == ng.make_axes([B]) and AB - ng.make_axes([N]) == AB,
    "a | b": lambda: (AB | ng.make_axes([B, N])) == ng.make_axes([A, B, N]) and (A | B) == AB,
    "a & b": lambda: (AB & ng.make_axes([N, B])) == ng.make_axes([B]) and (A & B) == ng.make_axes(),
    "order counts": lambda: AB != ng.make_axes([B, A]) and AB.is_equal_set([B, A]) and AB.has_same_axes([B, A]),
    "is_sub_set": lambda: ng.make_axes([B]).is_sub_set(AB) and not AB.is_sub_set([B]) and AB.is_super_set([B]),
    "is_not_equal_set": lambda: AB.is_not_equal_set([A]) and not AB.is_not_equal_set([B, A]),
    "indexing": lambda: AB[0] == A and AB[1:] == ng.make_axes([B]) and AB.index(B) == 1 and len(AB) == 2,
    "names and lengths": lambda: (AB.names, AB.lengths, AB.size) == (("A", "B"), (2, 3), 6),
    "full_lengths": lambda: ng.make_axes([FA, N]).full_lengths == ((2, 3), 5),
    "batch_axis": lambda: (AB + N).batch_axis() == N and (AB + N).batch_axes() == ng.make_axes([N]) and AB.batch_axis() is None,
    "no batch_axes": lambda: AB.batch_axes() == ng.make_axes(),
    "channel_axis": lambda: ng.make_axes([A, C]).channel_axis() == C,
    "recurrent_axis": lambda: ng.make_axes([A, REC]).recurrent_axis() == REC and AB.recurrent_axes() == ng.make_axes(),
    "sample_axes": lambda: ng.make_axes([A, REC, N]).sample_axes() == ng.make_axes([A, REC]),
    "feature_axes": lambda: ng.make_axes([A, C, REC, N]).feature_axes() == ng.make_axes([A, C]),
    "spatial_axes": lambda: ng.make_axes([A, C, REC, N]).spatial_axes() == ng.make_axes([A]),
    "find_by_name": lambda: AB.find_by_name("B") == ng.make_axes([B]) and AB.find_by_name("Q") == ng.make_axes(),
    "get_by_names": lambda: AB.get_by_names("B") == B and AB.get_by_names("B", "A") == (B, A),
    "flatten": lambda: AB.flatten() == FA and FA.is_flattened and FA.length == 6 and not FA.is_batch,
    "flatten one": lambda: ng.make_axes([A]).flatten() is A and ng.make_axes([A]).flatten(force=True).is_flattened,
    "flattened axes of other parts differ": lambda: ng.FlattenedAxis([A]) != FA and ng.FlattenedAxis([B, A]) != FA,
    "as_nested_list": lambda: ng.Axes.as_nested_list(ng.make_axes([FA, N])) == [[A, B], N],
    "as_flattened_list": lambda: ng.Axes.as_flattened_list([ng.FlattenedAxis([FA, C]), N]) == [A, B, C, N],
    "assert_valid_broadcast": lambda: ng.Axes.assert_valid_broadcast(AB, [B, N, A]) is None,
    "assert_valid_flatten": lambda: ng.Axes.assert_valid_flatten([A, B, N], [FA, N]) is None,
    "assert_valid_unflatten": lambda: ng.Axes.assert_valid_unflatten([FA, N], [A, B, N]) is None,
    "is_valid_flatten_or_unflatten": lambda: not ng.Axes.is_valid_flatten_or_unflatten([B, A], [FA]),
    "check_broadcast": lambda: not ng.Axes.check_broadcast(AB, [A]) and ng.Axes.check_broadcast([A], AB),
    "check_flatten": lambda: ng.Axes.check_flatten(AB, [FA]) and not ng.Axes.check_unflatten([FA], [A, C]),
    "get_dual and T": lambda: AB.get_dual() == ng.make_axes([A - 1, B - 1]) == AB.T and AB.get_dual(1)[0] == A + 1,
    "linear_map_axes": lambda: ng.Axes.linear_map_axes([A], [B]) == ng.make_axes([B, A - 1]) == ng.linear_map_axes([A], [B]),
    "intersect": lambda: AB.intersect([B, N]) == ng.make_axes([B]),
    "append and insert": lambda: AB.append(N) == AB + N and AB.insert(1, N) == ng.make_axes([A, N, B]) and len(AB) == 2,
    "shape_dict": lambda: AB.shape_dict() == {A: 2, B: 3},
    "find": lambda: ng.Axes.find([B, N], [A, B, N]) == 1 and ng.Axes.find([N, B], [A, B, N]) == -1 and AB.find_axis("B") is B,
    "no find_axis": lambda: AB.find_axis(N) is None,
    "AxesMap": lambda: ng.AxesMap({"A": "P", B: C})["B"] == "C" and dict(ng.AxesMap({A: "P"}).invert()) == {"P": "A"},
    "AxesMap.map_axes": lambda: (
        ng.AxesMap({A: "P"}).map_axes([A, N]).names == ("P", "N") and ng.AxesMap({A: "P"}).map_axes(AB).lengths == (2, 3)
    ),
    "AxesMap is a key": lambda: len({ng.AxesMap({A: "P"}), ng.AxesMap({"A": "P"})}) == 1,
    "slice_axis": lambda: ng.slice_axis(C, slice(1, None)) == C and ng.slice_axis(C, slice(None, None, -2)).length == 2,
    "spatial_axis": lambda: (
        ng.spatial_axis([ng.make_axis(7, name="H")], 3, 1, 2, "H").length == 4 and ng.spatial_axis([A], 3, 0, 1, "H").length == 1
    ),
    "len": lambda: len(C) == 4,
}


@pytest.mark.parametrize("what", AXES)
def test_axes(what):
    assert AXES[what]()


WRONG_AXES = {
    "a negative length": (lambda: ng.make_axis(-1), ValueError),
    "a name twice": (lambda: ng.make_axes([A, ng.make_axis(7, name="A")]), ValueError),
    "an overlap in a + b": (lambda: AB + B, ValueError),
    "a missing name": (lambda: AB.get_by_names("Q"), KeyError),
    "a broadcast that loses": (lambda: ng.Axes.assert_valid_broadcast(AB, [A]), ng.IncompatibleAxesError),
    "a broadcast to another length": (lambda: ng.Axes.assert_valid_broadcast(AB, [A, ng.make_axis(9, name="B")]), ng.IncompatibleAxesError),
    "a flatten in another order": (lambda: ng.Axes.assert_valid_flatten([B, A], [FA]), ng.IncompatibleAxesError),
    "an unflatten to others": (lambda: ng.Axes.assert_valid_unflatten([FA], [A, C]), ng.IncompatibleAxesError),
    "two names mapped to one": (lambda: ng.AxesMap({"A": "P", "B": "P"}), ng.DuplicateAxisNames),
    "a name mapped to one that stays": (lambda: ng.AxesMap({"A": "B"}).map_axes(AB), ng.DuplicateAxisNames),
    "a window too wide": (lambda: ng.spatial_axis([ng.make_axis(2, name="H")], 5, 0, 1, "H"), ValueError),
    "len of an unknown length": (lambda: len(ng.make_axis()), ValueError),
}


@pytest.mark.parametrize("what", WRONG_AXES)
def test_wrong_axes(what):
    function, kind = WRONG_AXES[what]
    with pytest.raises(kind) as caught:
        function()
    if kind is ng.DuplicateAxisNames:
        assert caught.value.duplicate_axis_names == {"P" if "to one" in what and "stays" not in what else "B"}


def test_lengths_may_come_after_the_graph():
    h = ng.make_axis(name="H")
    x = ng.placeholder([h])
    total = ng.sum(x * 2, out_axes=())
    ng.make_axes([h]).set_shape([3])
    assert float(executor(total, x)([1, 2, 3])) == 12


def test_name_scopes_name_axes_and_ops():
    ax = ng.make_name_scope("ax")
    ax.Q = ng.make_axis(3)
    assert (ax.Q.name, ax.Q.short_name, ng.make_name_scope().name != ng.make_name_scope().name) == ("ax.Q", "Q", True)
    with ng.name_scope("outer"), ng.name_scope("inner"):
        assert (X + 1).named("sum").name == "outer/inner/sum"
    with ng.name_scope("twice"):
        pass
    with ng.name_scope("twice") as again, ng.name_scope("twice", reuse_scope=False) as other:
        assert (again, other) == ("twice", "twice/twice")
    with ng.name_scope("twice", reuse_scope=False) as other, ng.name_scope() as fresh:
        assert other == "twice_1" and fresh.startswith("twice_1/scope_")

    @ng.with_name_scope("decorated")
    def made():
        return X + 1

    assert made().name.startswith("decorated/add") and made().scope == "decorated" and (X + 1).scope == ""


def test_what_was_named_is_found_by_its_name():
    find = ng.types.NameableValue.get_object_by_name
    axis, first = ng.make_axis(3, name="found_axis"), (X + 1).named("found_op")
    assert find("found_axis") is axis and find("found_op") is first
    second = (X + 2).named("found_op")
    assert find("found_op") is second
    with ng.name_scope("inside"):
        scoped = (X + 3).named("found_there")
    assert find("inside/found_there") is scoped
    axis.named("found_again")
    assert find("found_again") is axis
    with pytest.raises(GraphError, match="there are inside/found_there"):
        find("found_there")
    del second
    gc.collect()
    with pytest.raises(GraphError, match="nothing that is in use was named 'found_op'"):
        find("found_op")


# ---- state and order --------------------------------------------------------------------------------------------------


def run(results, *parameters, times=1, state=()):
    """What the last of `times` calls gives, and what the variables hold then."""
    with ngt.make_transformer() as t:
        f = t.computation(results, *parameters)
        for _ in range(times):
            got = f()
        return got, [t.get(v) for v in state]


INITIAL = {
    "a number": (2, [2, 2, 2]),
    "an array": ([1, 2, 3], [1, 2, 3]),
    "a constant": (ng.constant(4.0), [4, 4, 4]),
    "a function": (lambda: [3, 4, 5], [3, 4, 5]),
    "a function of the axes": (lambda axes: np.arange(axes.size), [0, 1, 2]),
    "nothing": (None, [0, 0, 0]),
}


@pytest.mark.parametrize("make", [ng.variable, ng.persistent_tensor])
@pytest.mark.parametrize("what", INITIAL)
def test_initial_values(make, what):
    value, expected = INITIAL[what]
    np.testing.assert_array_equal(run(make([B], initial_value=value))[0], expected)


def test_a_computed_initial_value_is_refused():
    with pytest.raises(ValueError, match="computed"):
        ng.variable([A], initial_value=ng.constant(1.0) + 1)


FLAGS = (
    "is_constant",
    "is_persistent",
    "is_input",
    "is_trainable",
    "is_placeholder",
    "is_scalar",
    "is_tensor_op",
    "is_device_op",
    "is_state_op",
    "has_side_effects",
)
KINDS = {
    "constant": (ng.constant(1), (1, 1, 0, 0, 0, 1, 1, 1, 0, 0)),
    "placeholder": (X, (0, 1, 1, 0, 1, 0, 1, 0, 1, 0)),
    "persistent_tensor": (ng.persistent_tensor([A]), (0, 1, 1, 0, 0, 0, 1, 0, 1, 0)),
    "variable": (ng.variable([A]), (0, 1, 1, 1, 0, 0, 1, 0, 1, 0)),
    "temporary": (ng.temporary([A]), (0, 0, 0, 0, 0, 0, 1, 0, 1, 0)),
    "a sum": (X + 1, (0, 0, 0, 0, 0, 0, 1, 1, 0, 0)),
    "assign": (ng.assign(ng.variable([A]), 1), (0, 0, 0, 0, 0, 0, 0, 0, 0, 1)),
    "doall": (ng.doall([X]), (0, 0, 0, 0, 0, 0, 0, 0, 0, 1)),
    "print": (ng.PrintOp(X), (0, 0, 0, 0, 0, 0, 1, 1, 0, 1)),
    "sequential": (ng.sequential([ng.assign(ng.variable([A]), 1), X]), (0, 0, 0, 0, 0, 0, 1, 0, 0, 1)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_flags(kind):
    op, expected = KINDS[kind]
    assert {f: getattr(op, f) for f in FLAGS} == {f: bool(e) for f, e in zip(FLAGS, expected, strict=True)}


def test_commutative_ops():
    names = {n: getattr(ng, n)(X, Y).is_commutative for n in BINARY}
    assert {n for n, c in names.items() if c} == {"add", "multiply", "maximum", "minimum", "equal", "not_equal"}


def test_constants_answer():
    array, number, filled = ng.constant([1.0, 2.0], [A]), ng.constant(3), ng.constant(4, [A])
    assert [ng.is_constant(c) for c in (array, number, filled, X, 3)] == [True, True, True, False, False]
    assert [ng.is_constant_scalar(c) for c in (array, number, filled, X)] == [False, True, True, False]
    assert (
        ng.constant_value(number) == 3 == number.const and list(ng.constant_value(array)) == [1, 2] == list(array.const) and X.const is None
    )
    np.testing.assert_array_equal(compute(ng.constant_storage([A], initial_value=[5, 6]))[0], [5, 6])
    with pytest.raises(GraphError, match="not a constant"):
        ng.constant_value(X)
    assert ng.as_op(X) is X and [o.is_constant for o in ng.as_ops([1, X, [1, 2]])] == [True, False, True]


def test_nothing_is_assigned_unless_it_is_asked_for():
    w = ng.variable((), initial_value=1)
    update = ng.assign(w, 5)
    later = w + 1
    assert float(run(later)[0]) == 2
    assert [v if v is None else float(v) for v in run([later, update, w])[0]] == [2, None, 5]
    assert [v if v is None else float(v) for v in run([w, update, later])[0]] == [5, None, 2]
    assert float(run(ng.sequential([ng.assign(w, 5), w + 1]))[0]) == 6


def test_sequential_runs_each_op_once_and_gives_the_last():
    x = ng.variable((), initial_value=0)
    x0, x1 = x + x, x + x
    whole = ng.sequential([x0, ng.assign(x, 2), x1, x0])
    assert [float(v) for v in run([x0, x1, whole])[0]] == [0, 4, 0]
    with pytest.raises(GraphError, match="empty"):
        ng.sequential()


def test_value_of_is_the_value_at_its_place():
    w = ng.variable((), initial_value=1)
    before = ng.value_of(w)
    ((total, after), _) = run([ng.sequential([before, ng.assign(w, w + 4), w + before]), w])
    assert (float(total), float(after)) == (6, 5)


WRITES = {
    "fill": (lambda w: ng.fill(w, 7), lambda v: np.full_like(v, 7)),
    "assign": (lambda w: ng.assign(w, [[1, 2, 3], [4, 5, 6]]), lambda v: np.array([[1, 2, 3], [4, 5, 6]])),
    "assign fewer axes": (lambda w: ng.assign(w, ng.constant([1.0, 2, 3], [B])), lambda v: np.broadcast_to([1, 2, 3], (2, 3))),
    "init_tensor": (lambda w: ng.sequential([ng.fill(w, 3), ng.init_tensor(w)]), lambda v: v),
    "init_tensor to a value": (lambda w: ng.init_tensor(w, [1, 2, 3]), lambda v: np.broadcast_to([1, 2, 3], (2, 3))),
    "w[...] =": (lambda w: ng.set_item(w, ..., 2), lambda v: np.full_like(v, 2)),
    "w[:] =": (lambda w: ng.set_item(w, slice(None), 2), lambda v: np.full_like(v, 2)),
    "w[0] =": (lambda w: ng.set_item(w, 0, [1, 2, 3]), lambda v: np.array([[1, 2, 3], v[1]])),
    "w[:, 1:] =": (lambda w: ng.set_item(w, (slice(None), slice(1, None)), 0), lambda v: v * [1, 0, 0]),
    "w[-1, ::-2] =": (lambda w: ng.set_item(w, (-1, slice(None, None, -2)), [8, 9]), lambda v: np.array([v[0], [9, v[1, 1], 8]])),
    "w[1, 2] =": (lambda w: ng.set_item(w, (1, 2), np.nan), lambda v: np.array([v[0], [*v[1, :2], np.nan]])),
    "w[{B: 0}] =": (lambda w: ng.set_item(w, {B: 0}, ng.slice_along_axis(w, B, 2)), lambda v: np.stack([v[:, 2], v[:, 1], v[:, 2]], 1)),
    "w += 1": (lambda w: w.__iadd__(1), lambda v: v + 1),
    "w -= X": (lambda w: w.__isub__(ng.constant(x_, [A, B])), lambda v: v - x_),
    "w *= 2": (lambda w: w.__imul__(2), lambda v: v * 2),
    "w /= 2": (lambda w: w.__itruediv__(2), lambda v: v / 2),
    "w //= 2": (lambda w: w.__ifloordiv__(2), lambda v: v // 2),
    "w %= 2": (lambda w: w.__imod__(2), lambda v: v % 2),
    "w **= 2": (lambda w: w.__ipow__(2), lambda v: v**2),
}


@pytest.mark.parametrize("what", WRITES)
def test_writing(what):
    start = np.array([[0.5, -1.5, 2.5], [3.5, 4.5, 5.5]])
    make, expected = WRITES[what]
    w = ng.variable([A, B], dtype="float64", initial_value=start)
    update = make(w)
    assert update.type is None
    got, (after,) = run([update, w], state=[w])
    np.testing.assert_allclose(after, expected(start), rtol=1e-12)
    np.testing.assert_array_equal(after, got[1])
    assert got[0] is None


@pytest.mark.parametrize("dtype, value", [("int32", 7), ("bool", True), ("bfloat16", 1.5)])
def test_parts_of_any_dtype_are_written(dtype, value):
    w = ng.variable([B], dtype=dtype, initial_value=[0, 1, 0])
    (_, got), _ = run([ng.set_item(w, slice(1, None), value), w])
    np.testing.assert_array_equal(got.astype(np.float64), [0, value, value])


def test_plus_equals_binds_the_name_to_the_request():
    w, y = ng.variable((), initial_value=3), X
    update = w
    update += 2
    y += 1
    assert update.type is None and run([update, w])[0] == (None, 5) and y.opdef is ng.add and y is not X


def test_item_assignment_needs_somebody_who_keeps_the_request():
    w = ng.variable([B], initial_value=[1, 2, 3])
    with pytest.raises(GraphError, match=r"set_item"):
        w[...] = 2
    with ng.Op.all_ops() as made:
        w[...] = 2
        w[1:] += 5
    (_, after), _ = run([ng.sequential([o for o in made if o.opdef.name == "assign"]), w])
    np.testing.assert_array_equal(after, [2, 7, 7])
    for wrong in (lambda: ng.set_item(X, ..., 1), lambda: ng.assign(X, 1)):
        with pytest.raises(GraphError, match="not a variable"):
            wrong()
    for wrong in (
        lambda: ng.set_item(w, 5, 1),
        lambda: ng.set_item(w, slice(1, None), [1, 2, 3]),
        lambda: ng.set_item(w, ..., X),
        lambda: ng.fill(w, [1, 2]),
    ):
        with pytest.raises(AxisError):
            wrong()


def test_random_tensors_are_new_in_each_call():
    shape = ng.persistent_tensor([A, B])
    for op, inside in ((ng.uniform(shape, 2, 3), lambda v: (v >= 2) & (v < 3)), (ng.normal(shape, 5, 0.01), lambda v: abs(v - 5) < 0.1)):
        with ngt.make_transformer() as t:
            f = t.computation(op)
            one, other = f(), f()
        assert one.shape == (2, 3) and (one != other).all() and inside(one).all()


def test_print_op(capsys):
    """The value passes through, and its gradient; it prints each time, where the value is needed, and only there."""
    x = ng.placeholder([A], dtype="float64")
    shown = ng.PrintOp(x * 2, prefix="twice")
    total = ng.sum(shown * shown, out_axes=())
    with ngt.make_transformer() as t:
        both, linear, other = (
            t.computation([total, ng.deriv(total, x)], x),
            t.computation(ng.deriv(ng.sum(shown, out_axes=()), x), x),
            t.computation(x, x),
        )
        for _ in range(2):
            value, slope = both([1, 2])
        assert float(value) == 20 and list(slope) == [8, 16]
        assert capsys.readouterr().out == "twice [2. 4.]\n" * 2
        assert list(linear([1, 2])) == [2, 2] and list(other([1, 2])) == [1, 2]
        assert capsys.readouterr().out == ""
    w = ng.variable((), initial_value=1)
    whole = ng.sequential(
        [ng.PrintOp(w, "before"), ng.assign(w, w + 1), ng.PrintOp(w + 0, "after"), ng.sequential([ng.assign(w, w * 10), ng.PrintOp(w)])]
    )
    assert float(run(whole)[0]) == 20
    assert capsys.readouterr().out == "before 1.0\nafter 2.0\n 20.0\n"


def test_stop_gradient():
    y = ng.stop_gradient(X) * X
    np.testing.assert_allclose(compute(ng.deriv(ng.sum(y, out_axes=()), X))[0], x_)


def test_computations_are_described_before_a_transformer_has_them():
    x, y = ng.placeholder(()), ng.placeholder(())
    described = [
        ng.computation(x - y, x, y),
        ng.computation([x - y, x], [y, x], name="turned"),
        ng.computation({x}, "all"),
        ng.computation(x - y, "all"),
    ]
    with ngt.make_transformer() as t:
        f, g, h, k = [t.add_computation(c) for c in described]
        assert float(f(5, 3)) == 2 and [float(v) for v in g(3, 5)] == [2, 5] and float(h(4)[x]) == 4 and float(k(5, 3)) == 2
        assert g.name == "turned"
        assert float(f(feed_dict={x: 5, y: 3})) == 2
        with pytest.raises(ArgumentError):
            f(1)
    for wrong in (lambda: ng.computation(x - y, x), lambda: ng.computation(x, x + 1), lambda: ng.computation(x, x, x)):
        with pytest.raises(ValueError):
            wrong()
    with ngt.make_transformer() as t:
        t.initialize()
        with pytest.raises(StateError):
            t.add_computation(described[0])


# ---- derivatives ------------------------------------------------------------------------------------------------------


def slope(function, at):
    x = given(at, B)
    return compute(ng.deriv(ng.sum(function(x), out_axes=()), x))[0]


SLOPES = {
    "x / 2 at 0": (lambda x: x / 2, [0, 0, 0], [0.5] * 3),
    "x ** 2 at 0": (lambda x: x**2, [0, 1, 2], [0, 2, 4]),
    "x ** 3 below 0": (lambda x: x**3, [-1, 0, 2], [3, 0, 12]),
    "largest of ties": (lambda x: ng.max(x, out_axes=()), [2, 1, 2], [0.5, 0, 0.5]),
    "maximum of ties": (lambda x: ng.maximum(x, 0.0), [-1, 0, 1], [0, 0.5, 1]),
    "prod with a zero": (lambda x: ng.prod(x, out_axes=()), [2, 0, 3], [0, 6, 0]),
    "prod with two": (lambda x: ng.prod(x, out_axes=()), [0, 0, 3], [0, 0, 0]),
    "L2_norm at 0": (lambda x: ng.L2_norm(x), [0, 0, 0], [0, 0, 0]),
    "sign": (ng.sign, [-1, 0, 1], [0, 0, 0]),
    "mod": (lambda x: x % 2.0, [0.5, 1.5, 2.5], [1, 1, 1]),
    "not used": (lambda x: ng.constant(1.0, [B], dtype="float64"), [1, 2, 3], [0, 0, 0]),
}


@pytest.mark.parametrize("what", SLOPES)
def test_derivatives_where_they_went_wrong(what):
    function, at, expected = SLOPES[what]
    np.testing.assert_allclose(slope(function, at), expected, atol=1e-12)


def test_second_derivatives_and_vector_jacobian_products():
    v = given(2.0)
    cube = v * v * v
    assert float(compute(ng.deriv(ng.deriv(cube, v), v))[0]) == 12
    np.testing.assert_allclose(compute(ng.deriv(X * X, X, error=Y))[0], 2 * x_ * y_)


# ---- graph queries, annotations ---------------------------------------------------------------------------------------


def test_graph_queries():
    w, v, frozen = ng.variable((), name="w"), ng.variable(()), ng.persistent_tensor(())
    x = ng.placeholder(())
    product = w * x
    cost = product + v + frozen
    assert cost.variables() == [w, v] and cost.variables(filter=lambda o: o is v) == [v] and cost.placeholders() == [x]
    assert product.args == (w, x) == product.all_deps and product.control_deps == ()
    order = ng.Op.ordered_ops([cost])
    assert order[-1] is cost and all(order.index(i) < order.index(o) for o in order for i in o.args)
    visited = []
    ng.Op.visit_input_closure([cost], visited.append)
    assert visited == order
    update = ng.assign(w, 1)
    whole = ng.sequential([update, product])
    assert whole.control_deps == (update,) and whole.all_deps == (update, product) and whole.tensor is product and x.tensor is x
    assert ng.doall([update, cost]).control_deps == (update, cost)


def test_all_op_references_follow_attributes():
    xs, start = given([1.0, 2, 3], B), ng.constant(0.0, dtype="float64")
    total, _ = ng.scan(lambda c, x: (c + ng.sin(x), None), start, xs, B)
    inside = {o.opdef.name for o in ng.Op.all_op_references([total])}
    assert "sin" in inside and "sin" not in {o.opdef.name for o in ng.Op.ordered_ops([total])}


def test_all_ops_collects_what_is_made():
    with ng.Op.all_ops() as outer:
        a = X + 1
        with ng.Op.all_ops() as inner:
            b = X * 2
        with ng.Op.all_ops(isolate=True) as hidden:
            c = X - 1
        mine = []
        with ng.Op.all_ops(mine) as same:
            d = X / 2
    X + 5
    kept = [[o for o in ops if o in (a, b, c, d)] for ops in (outer, inner, hidden, mine)]
    assert kept == [[a, b, d], [b], [c], [d]] and same is mine and not any(o.opdef.name == "add" and o is not a for o in outer)


def test_names():
    op = X + 1
    assert op.named("total") is op and (op.name, op.short_name, op.safe_name, op.graph_label) == ("total", "total", "total", "total[add]")
    with ng.name_scope("a"):
        inner = (X + 1).named("b.c")
    assert (inner.name, inner.short_name, inner.safe_name) == ("a/b.c", "b.c", "a_b_c")
    assert (X + 1).name != (X + 1).name and (X + 1).graph_label.startswith("add_")


def test_metadata():
    with ng.metadata(device="cpu", step=1), ng.metadata(step=2):
        op = X + 1
    assert op.metadata == {"device": "cpu", "step": 2} and (X + 1).metadata == {}

    class Layer:
        metadata = {"layer": "mine"}

        def make(self):
            return X * 2

    noted = ng.with_op_metadata(Layer.make, metadata={"mode": "inference"})
    assert noted(Layer()).metadata == {"mode": "inference", "layer": "mine"} and noted(SimpleNamespace()).metadata == {"mode": "inference"}
    assert ng.with_op_metadata(lambda: X + 1)().metadata == {}
    assert ng.with_op_metadata(lambda x: x + 1, {"a": 1})(op).metadata == {"a": 1}


# ---- graphs as bytes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("only", [False, True])
def test_graphs_go_through_bytes_under_the_names_of_2017(only):
    x, w = ng.placeholder([B]).named("x"), ng.variable([B], initial_value=[0.0, 1.0, 2.0]).named("w")
    y = ng.sum(x * w, out_axes=()).named("y")
    ops = serde.deserialize_graph(serde.serialize_graph([y, ng.deriv(y, x)], only_return_handle_ops=only))
    assert {"x", "w", "y"} <= {o.name for o in ops} if not only else len(ops) == 2
    total, slope = next(o for o in ops if o.name == "y"), ops[-1]
    with ngt.make_transformer() as t:
        got = t.computation([total, slope], *total.placeholders())([1, 2, 3])
    assert got[0] == 8 and got[1].tolist() == [0, 1, 2]
    assert serde.serialize_graph(y, only) == serde.serialize_graph([y], only)


# ---- testing ----------------------------------------------------------------------------------------------------------


def test_executors():
    x = ng.placeholder(())
    assert float(executor(x + 5, x)(10)) == 15 and ng.testing.executor is executor
    with ng.testing.executor([x + 1, x], x) as f:
        assert [float(v) for v in f(2)] == [3, 2]


def test_executor_factory():
    x, y, w = ng.placeholder([A], dtype="float64"), ng.placeholder([B], dtype="float64"), ng.variable((), initial_value=2, dtype="float64")
    outer = ng.sin(x) * y * w
    with ng.testing.ExecutorFactory() as ex:
        ex.executor(ng.assign(w, 3))()
        assert float(ex.get_tensor_view_value(w)) == 3 and float(ex.executor(w)()) == 3
        target = np.zeros(())
        assert ex.get_tensor_view_value(w, target) is target and target == 3
        by_differences, exact = ex.numeric_derivative(outer, x, 1e-5, y)([1, 2], [3, 4, 5]), ex.derivative(outer, x, y)([1, 2], [3, 4, 5])
    expected = np.einsum("a,b,ac->abc", np.cos([1, 2]), [3, 4, 5], np.eye(2)) * 3
    assert by_differences.shape == exact.shape == (2, 3, 2)
    np.testing.assert_allclose(exact, expected, rtol=1e-12)
    np.testing.assert_allclose(by_differences, expected, atol=1e-7)


@pytest.mark.parametrize("name", ["equal", "less", "less_equal", "greater", "greater_equal", "subtract"])
def test_the_order_of_axes_is_that_of_the_operands(name):
    """The order of the operand that has all axes, the left one if both do, or else the left one's, then the right one's others."""
    i, j = ng.axes("I=2 J=3")
    made = [getattr(ng, name)(ng.placeholder(x), ng.placeholder(y)) for x, y in ([[i], [j]], [[i, j], [j, i]], [[i], [j, i]], [[], [j, i]])]
    assert [[a.name for a in op.axes] for op in made] == [["I", "J"], ["I", "J"], ["J", "I"], ["J", "I"]]


def test_numeric_derivatives():
    got = ng.testing.numeric_derivative(lambda x: x @ x, np.array([1, 2, 3]), 1e-4)
    np.testing.assert_allclose(got, [2, 4, 6], rtol=1e-6)
    x, y = ng.placeholder([A], dtype="float64"), ng.placeholder([A], dtype="float64")
    ng.testing.check_derivative(ng.exp(x * y), x, 1e-5, [0.1, 0.2], parameters=[y], parameter_values=[[3, 4]], rtol=1e-6, atol=1e-6)
    number = ng.placeholder((), dtype="float64")
    ng.testing.check_derivative(ng.exp(number), number, 1e-5, 0.3, rtol=1e-6, atol=1e-6)
    with pytest.raises(AssertionError):
        ng.testing.check_derivative(ng.stop_gradient(x) * x, x, 1e-5, [1.0, 2.0])


RANDOM = {
    "uniform": ({"low": 2, "high": 3}, lambda v: ((v >= 2) & (v < 3)).all()),
    "discrete_uniform": (
        {"low": -1, "high": 1, "quantum": 0.5},
        lambda v: set(v.ravel()) <= {-1, -0.5, 0, 0.5, 1} and len(set(v.ravel())) > 2,
    ),
    "random_integers": ({"low": -2, "high": 2}, lambda v: set(v.ravel()) == {-2, -1, 0, 1, 2} and v.dtype == np.int8),
    "normal": ({"loc": 5, "scale": 0.1}, lambda v: abs(v.mean() - 5) < 0.1),
    "randn_abs_clip": ({"clip_min": 0.5, "clip_max": 1}, lambda v: v.min() == 0.5 and v.max() == 1),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_arrays(name):
    arguments, holds = RANDOM[name]
    rng, axes = ng.testing.RandomTensorGenerator(3), [C, ng.make_axis(20, name="Q")]
    one = getattr(rng, name)(axes=axes, **arguments)
    assert one.shape == (4, 20) and holds(one)
    rng.reset()
    again = getattr(rng, name)(axes=axes, **arguments)
    rng.reset(4)
    other = getattr(rng, name)(axes=axes, **arguments)
    assert (one == again).all() and (one != other).any()
    if name == "uniform":
        assert one.dtype == np.float32 and ng.testing.RandomTensorGenerator(0, "float64").uniform(axes=axes).dtype == np.float64


def test_closeness_follows_the_dtype():
    one = np.ones(3, np.float32)
    near, far = one + np.float32(3e-6), one + np.float32(1e-4)
    ng.testing.assert_allclose(one, near)
    ng.testing.assert_allclose(one.astype(np.float64), near)  # the coarser dtype of the two says
    ng.testing.assert_allclose(one * 0, one * 0 + np.float32(3e-5), atol_multiplier=10)
    for a, b, options in (
        (one, far, {}),
        (one, near, {"transformer_overwrite": False}),
        (one.astype(np.float64), near.astype(np.float64), {}),
        (np.array([1, 2]), np.array([1, 3]), {}),
    ):
        with pytest.raises(AssertionError):
            ng.testing.assert_allclose(a, b, **options)


def test_numpy_errors_are_raised_where_asked():
    def divided():
        return np.ones(1) / np.zeros(1)

    with pytest.raises(FloatingPointError):
        ng.testing.raise_all_numpy_errors(divided)()
    assert np.isinf(ng.testing.with_error_settings(divide="ignore")(divided)())
    assert not ng.testing.is_flex_factory(ngt.make_transformer_factory("numpy"))


# ---- the scale of derivatives -----------------------------------------------------------------------------------------


def scaled_models():
    """(what is derived, by what): a scaled op in the open, in a composite, in a loop, in a checkpoint; scale 1 / 4 each."""
    v, w = (ng.variable([B], initial_value=[0.5, 1.0, 2.0], dtype="float64").named(name) for name in "vw")

    def quarter(x):
        x.scale = 0.25
        return x

    T = ng.make_axis(3, name="T")
    xs = ng.placeholder([T, B], dtype="float64")
    FED[xs] = np.ones((3, 3))
    return {
        "in the open": (lambda mark: ng.sum(ng.sin(mark(v * v)), out_axes=()), v),
        "a composite": (lambda mark: ng.sum(mark(ng.softmax(v, [B])) * w, out_axes=()), v),
        "in a loop": (lambda mark: ng.sum(ng.scan(lambda c, x: (c + mark(ng.sin(v * x)), None), w, xs, T)[0], out_axes=()), v),
        "in a checkpoint": (lambda mark: ng.sum(ng.checkpoint(lambda x: ng.sin(mark(x * x)), v), out_axes=()), v),
    }, quarter


@pytest.mark.parametrize("what", scaled_models()[0])
def test_the_scale_of_an_op_multiplies_the_derivatives_through_it(what):
    models, quarter = scaled_models()
    build, v = models[what]
    plain, scaled = ng.deriv(build(lambda x: x), v), ng.deriv(build(quarter), v)
    a, b = compute(plain, scaled)
    np.testing.assert_allclose(b, a / 4, rtol=1e-12)
    (again,) = loads(dumps([build(quarter)]))
    variable = next(o for o in again.variables() if o.hint == "v")
    holes = again.placeholders()
    with ngt.make_transformer() as t:
        slope = ng.deriv(again, variable)
        np.testing.assert_allclose(t.computation(slope, *holes)(*[np.ones((3, 3))] * len(holes)), b, rtol=1e-12)
