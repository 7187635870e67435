"""The oracle is held against what runs none of our code: NumPy formulas and PyTorch."""

import math

import numpy as np
import pytest
import torch

import ngraph as ng
from ngraph.errors import ArgumentError, ProgramError
from ngraph.op_graph import dtypes
from ngraph.op_graph.opdef import REGISTRY, op
from ngraph.ops import control, sorting
from ngraph.ops.convolution import conv
from ngraph.ops.pooling import avg_pool, max_pool
from ngraph.program.interpret import interpret, whole
from ngraph.program.lower import lower
from ngraph.program.program import Program, Step, TensorType, Value
from ngraph.testing.samples import SampleSource

DRAW = np.random.default_rng(5)


def axes(**lengths):
    return [ng.make_axis(n, name=name) for name, n in lengths.items()]


def run(build, *arrays_and_axes):
    """The oracle on a graph of placeholders, one for each (array, axes)."""
    holes = [ng.placeholder(a, dtype=np.asarray(array).dtype) for array, a in arrays_and_axes]
    made = build(*holes)
    results = made if isinstance(made, (tuple, list)) else [made]
    return interpret(lower(results, holes).program, [np.asarray(array) for array, _ in arrays_and_axes])[0]


def core(name, **attrs):
    return lambda *inputs: REGISTRY[name].build(*inputs, **attrs)


# ---- convolution and pooling ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride,dilation,pad", [(1, 1, 0), (2, 1, 1), (1, 2, 2), (3, 2, 1), (2, 3, 4)])
def test_convolution(stride, dilation, pad):
    N, C, H, W, K, R, S = axes(N=2, C=3, H=11, W=9, K=4, R=3, S=2)
    x, f = DRAW.standard_normal((2, 3, 11, 9)), DRAW.standard_normal((4, 3, 3, 2))
    wanted = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(f), stride=stride, dilation=dilation, padding=pad).numpy()
    windows = {H: R, W: S}

    def build(a, b):
        made = conv(a, b, windows, stride=stride, padding=pad, dilation=dilation)
        return ng.axes_with_order(made, [made.axes.get_by_names(n) for n in "NKHW"])

    (got,) = run(build, (x, [N, C, H, W]), (f, [K, C, R, S]))
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("groups,stride,pad", [(2, 1, 1), (3, 2, 0)])
def test_groups_are_an_axis_of_both(groups, stride, pad):
    N, G, C, H, K, R = axes(N=2, G=groups, C=2, H=10, K=3, R=3)
    P = ng.make_axis((10 + 2 * pad - 3) // stride + 1, name="P")
    x, f = DRAW.standard_normal((2, groups, 2, 10)), DRAW.standard_normal((groups, 3, 2, 3))
    spatial = ((H, R, P, stride, 1, 1, pad),)
    build = core("convolve", over=(C,), spatial=spatial, accumulate=dtypes.float64)
    holes = [ng.placeholder([N, G, C, H], dtype="float64"), ng.placeholder([G, K, C, R], dtype="float64")]
    made = build(*holes)
    (got,) = interpret(lower([made], holes).program, [x, f])[0]
    flat = torch.tensor(x.reshape(2, -1, 10)), torch.tensor(f.reshape(-1, 2, 3))
    wanted = torch.nn.functional.conv1d(*flat, stride=stride, padding=pad, groups=groups)
    names = [a.name for a in made.axes]
    np.testing.assert_allclose(
        np.transpose(got, [names.index(n) for n in "NGKP"]), wanted.numpy().reshape(2, groups, 3, -1), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("stride,pad,window", [(1, 0, 2), (2, 1, 3), (3, 1, 3), (2, 0, 4)])
def test_pooling(stride, pad, window):
    N, C, H, W = axes(N=2, C=3, H=10, W=9)
    x = DRAW.standard_normal((2, 3, 10, 9))
    t = torch.tensor(x)
    f = torch.nn.functional
    (got,) = run(lambda a: max_pool(a, {H: window, W: window}, stride=stride, padding=pad), (x, [N, C, H, W]))
    np.testing.assert_array_equal(got, f.max_pool2d(t, window, stride, pad).numpy())
    (got,) = run(lambda a: avg_pool(a, {H: window, W: window}, stride=stride, padding=pad), (x, [N, C, H, W]))
    wanted = f.avg_pool2d(t, window, stride, pad, count_include_pad=False).numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-15)


# ---- reductions, running values, order --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind,numpy", [("add", np.sum), ("multiply", np.prod), ("max", np.max), ("min", np.min)])
def test_reductions(kind, numpy):
    I, J, K = axes(I=3, J=4, K=5)
    x = DRAW.standard_normal((3, 4, 5))
    (got,) = run(core("reduce", kind=kind, axes=(I, K)), (x, [I, J, K]))
    np.testing.assert_allclose(got, numpy(x, axis=(0, 2)), rtol=1e-14)
    (got,) = run(core("reduce", kind=kind, axes=(I, K)), (x.transpose(2, 0, 1), [K, I, J]))
    np.testing.assert_allclose(got, numpy(x, axis=(0, 2)), rtol=1e-14)


def test_contraction_is_einsum():
    I, J, K, L = axes(I=3, J=4, K=5, L=2)
    x, y = DRAW.standard_normal((3, 4, 5)), DRAW.standard_normal((5, 2, 3))
    (got,) = run(core("contract", over=(K, J), accumulate=dtypes.float64), (x, [I, J, K]), (y, [K, L, I]))
    np.testing.assert_allclose(got, np.einsum("ijk,kli->il", x, y), rtol=1e-13)


@pytest.mark.parametrize("exclusive,reverse", [(False, False), (True, False), (False, True), (True, True)])
def test_running_values(exclusive, reverse):
    I, J = axes(I=3, J=6)
    x = DRAW.integers(-3, 4, (3, 6)).astype(np.float64)
    t = torch.tensor(x).flip(1) if reverse else torch.tensor(x)
    for kind, function, start in (
        ("add", torch.cumsum, 0),
        ("multiply", torch.cumprod, 1),
        ("max", lambda a, dim: torch.cummax(a, dim)[0], -np.inf),
        ("min", lambda a, dim: torch.cummin(a, dim)[0], np.inf),
    ):
        given = torch.cat([torch.full((3, 1), float(start), dtype=t.dtype), t[:, :-1]], 1) if exclusive else t
        wanted = function(given, 1)
        (got,) = run(core("cumulate", kind=kind, axis=J, exclusive=exclusive, reverse=reverse), (x, [I, J]))
        np.testing.assert_array_equal(got, (wanted.flip(1) if reverse else wanted).numpy())


@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable_with_nan_last(descending):
    I, J = axes(I=3, J=40)
    x = DRAW.integers(-4, 5, (3, 40)).astype(np.float32)
    keep = DRAW.permutation(120).reshape(3, 40)
    (key, moved) = run(
        lambda a, v: sorting.parts(sorting.sort_record.build(a, v, axis=J, descending=descending, nan_largest=False)),
        (x, [I, J]),
        (keep, [I, J]),
    )
    wanted, places = torch.sort(torch.tensor(x), dim=1, descending=descending, stable=True)
    np.testing.assert_array_equal(key, wanted.numpy())
    np.testing.assert_array_equal(moved, np.take_along_axis(keep, places.numpy(), 1))
    (got,) = run(lambda a: sorting.sort(a, "Q", descending=descending), (np.array([2, np.nan, -np.inf, np.inf, np.nan, 1.0]), axes(Q=6)))
    numbers = np.sort([2, -np.inf, np.inf, 1.0])[:: -1 if descending else 1]
    np.testing.assert_array_equal(got, [*numbers, np.nan, np.nan])
    given = np.array([2, np.nan, -np.inf, np.inf, np.nan, 1.0, -0.0, 0.0])
    wanted, order = torch.sort(torch.tensor(given), descending=descending, stable=True)
    got = run(lambda a, v: sorting.sort(a, "Q", v, descending=descending, nan_largest=True), (given, axes(Q=8)), (np.arange(8), axes(Q=8)))
    np.testing.assert_array_equal(got[0], wanted.numpy())
    np.testing.assert_array_equal(got[1], order.numpy())


@pytest.mark.parametrize("kind", ["max", "min"])
def test_position_of_the_best(kind):
    I, J, K = axes(I=3, J=4, K=5)
    x = DRAW.integers(0, 4, (3, 4, 5)).astype(np.float64)
    x[1, 2, 3] = np.nan
    numpy = {"max": np.argmax, "min": np.argmin}[kind]
    (got,) = run(core("argreduce", kind=kind, axes=(K, I)), (x, [I, J, K]))
    np.testing.assert_array_equal(got, numpy(x.transpose(1, 2, 0).reshape(4, 15), axis=1))


def test_gather_and_scatter():
    I, J, N = axes(I=4, J=3, N=6)
    x, i = DRAW.standard_normal((4, 3)), np.array([0, 3, -1, 4, 2, 3], np.int32)
    inside = (i >= 0) & (i < 4)
    for mode, wanted in (
        ("clip", x[np.clip(i, 0, 3)]),
        ("wrap", x[i % 4]),
        ("fill", np.where(inside[:, None], x[np.clip(i, 0, 3)], 0)),
    ):
        holes = [ng.placeholder([I, J], dtype="float64"), ng.placeholder([N], dtype="int32")]
        made = REGISTRY["gather"].build(*holes, axes=(I,), mode=mode)
        (got,) = interpret(lower([made], holes).program, [x, i])[0]
        np.testing.assert_array_equal(got if made.axes[0] == N else got.T, wanted)
    u = DRAW.standard_normal((6, 3))
    for combine, reduce in (("add", "sum"), ("multiply", "prod"), ("min", "amin"), ("max", "amax")):
        target = torch.tensor(np.clip(i, 0, 3)).long()[:, None].expand(6, 3)
        wanted = torch.tensor(x).scatter_reduce(0, target, torch.tensor(u), reduce=reduce).numpy()
        (got,) = run(core("scatter", axes=(I,), combine=combine, mode="clip"), (x, [I, J]), (i, [N]), (u, [N, J]))
        np.testing.assert_allclose(got, wanted, rtol=1e-14)


# ---- elements ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tanh", "atan", "erf", "floor", "round", "abs"])
def test_functions(name):
    (I,) = axes(I=200)
    x = np.linspace(0.01, 6, 200) if name.startswith(("log", "sqrt")) else np.linspace(-4, 4, 200)
    (got,) = run(core(name), (x, [I]))
    np.testing.assert_allclose(got, getattr(torch, name)(torch.tensor(x)).numpy(), rtol=1e-14, atol=1e-15)


def test_integer_arithmetic_wraps_and_floors():
    (I,) = axes(I=6)
    x, y = np.array([7, -7, 7, -7, -128, 5], np.int8), np.array([2, 2, -2, -2, -1, 0], np.int8)
    (quotient, rest, product) = run(lambda a, b: [core(n)(a, b) for n in ("divide", "remainder", "multiply")], (x, [I]), (y, [I]))
    np.testing.assert_array_equal(quotient[[0, 1, 2, 3, 5]], [7 // 2, -7 // 2, 7 // -2, -7 // -2, 0])
    np.testing.assert_array_equal(rest, [7 % 2, -7 % 2, 7 % -2, -7 % -2, 0, 0])
    np.testing.assert_array_equal(product, [14, -14, -14, 14, -128, 0])


def test_casts_truncate_and_saturate():
    (I,) = axes(I=6)
    x = np.array([2.9, -2.9, 300, -300, np.nan, np.inf], np.float32)
    (got,) = run(lambda a: ng.cast(a, "int8"), (x, [I]))
    np.testing.assert_array_equal(got, [2, -2, 127, -128, 0, 127])


# ---- control ----------------------------------------------------------------------------------------------------------


def test_scan_is_a_loop():
    s = SampleSource("float64")
    T, I = axes(T=7, I=3)
    x, c, w = DRAW.standard_normal((7, 3)), DRAW.standard_normal(3), DRAW.standard_normal(3)
    for reverse in (False, True):
        body = s.body(lambda h, v, k: (ng.tanh(h * k + v), h), [I], [I], [I])
        build = core("scan", body=body, axis=T, reverse=reverse, carries=1, xs=1)
        holes = [ng.placeholder(a, dtype="float64") for a in ([I], [T, I], [I])]
        last, before = interpret(lower(sorting.parts(build(*holes)), holes).program, [c, x, w])[0]
        h, seen = c, {}
        for t in reversed(range(7)) if reverse else range(7):
            seen[t], h = h, np.tanh(h * w + x[t])
        np.testing.assert_allclose(last, h, rtol=1e-14)
        np.testing.assert_allclose(before, np.stack([seen[t] for t in range(7)]), rtol=1e-14)


def test_while_runs_as_long_as_its_condition_holds():
    s = SampleSource("float64")
    (I,) = axes(I=3)
    inputs = ([I],)
    body = s.body(lambda x: x * 2.0, *inputs)
    holds = s.body(lambda x: ng.less(ng.sum(x, out_axes=()), 100.0), *inputs)
    (got,) = run(core("while", cond=holds, body=body, carries=1), (np.array([1.0, 2.0, 3.0]), [I]))
    np.testing.assert_array_equal(got, np.array([1.0, 2.0, 3.0]) * 32)


def test_cond_runs_one_of_two():
    s = SampleSource("float64")
    (I,) = axes(I=2)
    bodies = {"then": s.body(lambda x: x + 1.0, [I]), "else": s.body(lambda x: x * 10.0, [I])}
    for p, wanted in ((True, [2.0, 3.0]), (False, [10.0, 20.0])):
        (got,) = run(core("cond", **bodies), (np.array(p), []), (np.array([1.0, 2.0]), [I]))
        np.testing.assert_array_equal(got, wanted)


def test_effects_print(capsys):
    (I,) = axes(I=2)
    x = ng.placeholder([I], dtype="float64")
    program = lower([control.print_values(x, text="x is"), x + 1.0], [x]).program
    interpret(program, [np.array([1.0, 2.0])])
    assert capsys.readouterr().out == "x is [1. 2.]\n"


# ---- lengths and state ------------------------------------------------------------------------------------------------


def test_run_time_lengths():
    I, J = axes(I=3, J=4)
    x = DRAW.standard_normal((3, 4))
    for bound in (12, 2):
        hole = ng.placeholder([I, J], dtype="float64")
        positions, count = sorting.compact(ng.less(0.0, hole), bound=bound)
        found = positions * 2
        program = lower([found, count, ng.sum(positions, out_axes=())], [hole]).program
        got, number, total = interpret(program, [x])[0]
        wanted = np.flatnonzero(x > 0)
        assert number == len(wanted)
        np.testing.assert_array_equal(got, wanted[:bound] * 2)
        assert total == wanted[:bound].sum()


def test_lengths_come_from_the_arrays():
    N, M = ng.make_axis(name="N"), ng.make_axis(3, name="M")
    x, y = ng.placeholder([N, M], dtype="float64"), ng.placeholder([N], dtype="float64")
    program = lower([ng.sum(x * y, out_axes=[M])], [x, y]).program
    for n in (0, 1, 5):
        a, b = DRAW.standard_normal((n, 3)), DRAW.standard_normal(n)
        np.testing.assert_allclose(interpret(program, [a, b])[0][0], b @ a, atol=1e-14)
    for wrong, words in (
        ([np.zeros((4, 3)), np.zeros(5)], "axis N has length 5"),
        ([np.zeros((4, 2)), np.zeros(4)], "length 3, and got 2"),
        ([np.zeros((4, 3), np.float32), np.zeros(4)], "float64, and got float32"),
        ([np.zeros(4), np.zeros(4)], "shape"),
        ([np.zeros((4, 3))], "2 inputs, not 1"),
    ):
        with pytest.raises(ArgumentError, match=words):
            interpret(program, wrong)


def test_state_comes_back():
    w = ng.variable([], initial_value=3.0, name="w")
    program = lower([ng.assign(w, w * 2.0), w]).program
    outputs, state = interpret(program, [], {"w": np.float32(3.0)})
    assert outputs == [6.0] and state == {"w": 6.0} and state["w"].dtype == np.float32
    with pytest.raises(ArgumentError, match="needs the state w"):
        interpret(program, [])


def test_random_state_advances_once():
    (I,) = axes(I=5)
    program = lower([ng.uniform([I]), ng.normal([I])]).program
    outputs, state = interpret(program, [], {"rng": np.array([7, 3], np.uint64)})
    assert [o.dtype for o in outputs] == [np.float32, np.float32]
    np.testing.assert_array_equal(state["rng"], np.array([7, 4], np.uint64))


def test_a_reference_that_breaks_its_type_is_named():
    value = Value(TensorType((), dtypes.float64))
    fed = Value(TensorType((), dtypes.float32))
    program = Program(inputs=(fed,), steps=(Step((value,), "broken_on_purpose", (fed,), {}, ()),), outputs=(value,))
    op("broken_on_purpose", "Nothing.", type=lambda i: TensorType((), dtypes.float64), reference=lambda call, x: x)
    try:
        with pytest.raises(ProgramError, match="broken_on_purpose gives float32, its type float64"):
            interpret(program, [np.float32(1)])
    finally:
        del REGISTRY["broken_on_purpose"]
    with pytest.raises(ProgramError, match="not a registered op"):
        interpret(program, [np.float32(1)])


def test_whole_is_one_reference():
    I, J = axes(I=3, J=4)
    x = ng.placeholder([I, J], dtype="float64")
    a = DRAW.standard_normal((3, 4))
    (got,) = whole(ng.sigmoid(x), [a])
    np.testing.assert_allclose(got, 1 / (1 + np.exp(-a)), rtol=1e-15)
    assert math.isclose(float(whole(ng.sigmoid(ng.constant(0.0, dtype="float64")), [np.float64(0)])[0]), 0.5)
