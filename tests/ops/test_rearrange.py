"""Slices, padding, joining and splitting of axes against NumPy: values, and adjoints by following each element's number."""

import numpy as np
import pytest

import ngraph as ng
from ngraph.autodiff import deriv
from ngraph.errors import AxisError, DTypeError
from ngraph.op_graph.expr import Idx, Len, maximum, minimum
from ngraph.op_graph.op import Op
from ngraph.ops.moving import pad
from ngraph.ops.rearrange import (
    axes_with_order,
    broadcast,
    cast_axes,
    cast_role,
    concat_along_axis,
    diagonal,
    expand_dims,
    flatten,
    flatten_at,
    flip,
    iota,
    map_roles,
    reindex,
    slice_along_axis,
    stack,
    tensor_slice,
    unflatten,
    windows,
)
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower

RNG = np.random.default_rng(11)
H, W, C, N = (ng.make_axis(n, name=name) for name, n in {"H": 5, "W": 4, "C": 3, "N": 2}.items())
UNKNOWN = {a: ng.make_axis(name=a.name) for a in (H, W, C, N)}  # the same axes before their lengths come


def compute(results, feeds):
    return interpret(lower(results, list(feeds)).program, list(feeds.values()))[0]


def kinds_of(op):
    return {o.opdef.name for o in Op.ordered_ops([op])}


def check(function, wanted, axes, scatters=False):
    """`function` moves elements as `wanted` does with an array of their numbers (-1: no element); so does its adjoint, twice."""
    shape = tuple(len(a) for a in axes)
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    source = wanted(numbers)
    for own in (axes, [UNKNOWN.get(a, a) if not a.dual else a for a in axes]):
        x = ng.placeholder(own, dtype="float64")
        xs = RNG.normal(size=shape)
        y = function(x)
        e, g = ng.placeholder(y.axes, dtype="float64"), ng.placeholder(x.axes, dtype="float64")
        es, gs = RNG.normal(size=source.shape), RNG.normal(size=shape)
        dx = deriv(y, x, error=e)
        again = deriv(dx, e, error=g)  # the adjoint of the adjoint is the function itself
        assert dx.axes == x.axes and again.axes == y.axes
        found = compute([y, dx, again], {x: xs, e: es, g: gs})
        by_number = lambda values: np.where(source < 0, 0.0, values.ravel()[source] if values.size else 0.0)
        np.testing.assert_array_equal(found[0], by_number(xs))
        adjoint = np.zeros(numbers.size + 1)
        np.add.at(adjoint, source, es)
        np.testing.assert_allclose(found[1], adjoint[:-1].reshape(shape), atol=1e-15)
        np.testing.assert_array_equal(found[2], by_number(gs))
        assert ("scatter" in kinds_of(dx)) == scatters


SLICES = [
    *(np.s_[1:], np.s_[:-1], np.s_[1:4], np.s_[-3:], np.s_[-4:-1], np.s_[::2], np.s_[1::3]),
    *(np.s_[::-1], np.s_[3:0:-1], np.s_[-2::-2], np.s_[9::-2], np.s_[:-9:-1], np.s_[-9::-1], np.s_[2:-7:-1]),
    *(np.s_[7:], np.s_[:9], np.s_[-9:], np.s_[:-9], np.s_[4:2], np.s_[:0]),
    *(0, -1, 2),
]


@pytest.mark.parametrize("s", SLICES, ids=str)
def test_every_slice_is_numpys(s):
    check(lambda x: x[s], lambda a: a[s], [H, W])
    check(lambda x: x[..., s], lambda a: a[..., s], [W, H])
    check(lambda x: slice_along_axis(x, H, s), lambda a: a[:, s], [W, H])
    check(lambda x: x[{H: s}], lambda a: a[:, s], [W, H])
    check(lambda x: tensor_slice(x, [s, slice(None)]), lambda a: a[s], [H, W])


def test_slices_of_several_axes():
    check(lambda x: x[1:, ..., 0], lambda a: a[1:, ..., 0], [H, W, C])
    check(lambda x: x[0], lambda a: a[0], [H])
    check(lambda x: x[-1:], lambda a: a[-1:], [H])
    check(lambda x: x[2, 1, -1], lambda a: a[2, 1, -1], [H, W, C])
    check(lambda x: x[...], lambda a: a, [H, W])
    check(lambda x: x[{"W": 2, H: slice(None, None, -1)}], lambda a: a[::-1, 2], [H, W, C])
    check(lambda x: x[{H - 1: slice(1, None)}], lambda a: a[:, 1:], [H, H - 1])
    check(lambda x: x[1:][:, ::2][::-1], lambda a: a[1:][:, ::2][::-1], [H, W])
    P = ng.make_axis(name="P")
    y = tensor_slice(ng.placeholder([H, W]), [slice(1, 3), 0], axes=[P])
    assert list(y.axes) == [P] and P.length == 2


def test_like_slices_of_an_unknown_length_are_alike():
    h = ng.make_axis(name="H")
    x = ng.placeholder([h], dtype="float64")
    results = [x[1:] - x[:-1], x + x[::-1], x[::2] + x[::-2][::-1], x[2:] + x[1:-1] + x[:-2]]
    for n in (3, 9):
        a = RNG.normal(size=n)
        wanted = [np.diff(a), a + a[::-1], a[::2] + a[::-2][::-1], a[2:] + a[1:-1] + a[:-2]]
        for found, w in zip(compute(results, {x: a}), wanted, strict=True):
            np.testing.assert_allclose(found, w)


def test_a_sliced_axis_keeps_its_name_and_flags():
    batch = ng.make_axis(6, name="examples", batch=True)
    y = ng.placeholder([batch, H])[::2]
    assert y.axes[0] == batch and y.axes[0].length == 3 and y.axes[0].is_batch


def test_reading_at_any_index_at_all():
    """Reads whose adjoint cannot be solved for are scattered; all others are reads again."""
    cases = [
        ([Idx(H) % 3], lambda a: a[np.arange(5) % 3], [H], [W], True),
        ([Idx(H) // 2], lambda a: a[np.arange(5) // 2], [H], [W], True),
        ([minimum(maximum(Idx(H) - 1, 0), 3)], lambda a: np.pad(a, (1, 0), mode="edge"), [H], [W], True),
        ([Idx(H) * Idx(H)], lambda a: np.array([0, 1, -1, -1, -1]), [H], [W], True),
        ([3 - Idx(H)], lambda a: np.array([3, 2, 1, 0, -1]), [H], [W], False),
        ([Idx(H) * 2 - 1], lambda a: np.array([-1, 1, 3, -1, -1]), [H], [W], False),
        ([Idx(H) * 0 + 2], lambda a: np.full(5, 2), [H], [W], False),
        ([Idx(C) + Idx(N) * 2 - 1], lambda a: np.array([[-1, 1], [0, 2], [1, 3]]), [C, N], [W], False),
        ([Idx(C) - Idx(W), Idx(C) + Idx(W)], lambda a: _wheel(a), [C, W], [H, C], False),
        ([Idx(H), Idx(H)], lambda a: np.array([0, 5, 10, -1, -1]), [H], [C, W], False),
    ]
    for index, wanted, result, axes, scatters in cases:
        pairs = tuple(zip(axes, index, strict=True))
        check(lambda x, p=pairs, r=result: reindex(x, axes=r, index=p), wanted, axes, scatters)
    x = ng.placeholder([C, W], dtype="float64")
    with pytest.raises(AxisError, match="not an axis of the result"):
        reindex(x, axes=[H], index=((C, Idx(W)), (W, 0)))
    with pytest.raises(AxisError, match="one index for each axis"):
        reindex(x, axes=[H], index=((C, Idx(H)),))


def _wheel(a):
    c, w = np.indices((3, 4))
    i, j = c - w, c + w
    return np.where((i >= 0) & (j < 3), a[np.clip(i, 0, 4), np.clip(j, 0, 2)], -1)


@pytest.mark.parametrize("seed", range(60))
def test_adjoints_of_random_reads(seed):
    """Sums of several indices, the same index in several places, constants, strides of either sign, predicates; names met twice."""
    draw = np.random.default_rng(seed)
    names = ["A", "B", "C", "D"]
    axes = [ng.make_axis(int(draw.integers(1, 6)), name=n) for n in draw.permutation(names)[: draw.integers(1, 4)]]
    result = [ng.make_axis(int(draw.integers(1, 5)), name=n) for n in draw.permutation(names)[: draw.integers(1, 4)]]

    def linear():
        return [int(draw.integers(-2, 3)) for _ in result], int(draw.integers(-2, 4))

    def at(form, values):
        return sum((v * c for c, v in zip(form[0], values, strict=True)), form[1])

    forms, predicates = [linear() for _ in axes], [linear() for _ in range(draw.integers(0, 2))]
    shape, out = [len(a) for a in axes], [len(a) for a in result]
    source = np.full(out, -1)
    for place in np.ndindex(*out):
        read = [at(f, place) for f in forms]
        if all(0 <= i < n for i, n in zip(read, shape, strict=True)) and all(at(g, place) >= 0 for g in predicates):
            source[place] = np.ravel_multi_index(read, shape)
    x, e = ng.placeholder(axes, dtype="float64"), ng.placeholder(result, dtype="float64")
    indices = [Idx(a) for a in result]
    y = reindex(
        x, axes=result, index={a: at(f, indices) for a, f in zip(axes, forms, strict=True)}, predicate=[at(g, indices) for g in predicates]
    )
    xs, es = RNG.normal(size=shape), RNG.normal(size=out)
    dx = deriv(y, x, error=e)
    found = compute([y, dx], {x: xs, e: es})
    np.testing.assert_array_equal(found[0], np.append(xs.ravel(), 0.0)[source])
    adjoint = np.zeros(xs.size + 1)
    np.add.at(adjoint, source, es)
    np.testing.assert_allclose(found[1], adjoint[:-1].reshape(shape), atol=1e-14)
    assert "scatter" not in kinds_of(dx)


def test_predicates_and_pad_value():
    x = ng.placeholder([H], dtype="float64")
    y = reindex(x, axes=[H], index={H: Idx(H)}, predicate=(Idx(H) - 1, Len(H) - 2 - Idx(H)), pad_value=7)
    xs, es = RNG.normal(size=5), RNG.normal(size=5)
    e = ng.placeholder([H], dtype="float64")
    found = compute([y, deriv(y, x, error=e)], {x: xs, e: es})
    np.testing.assert_array_equal(found[0], [7, *xs[1:4], 7])
    np.testing.assert_array_equal(found[1], [0, *es[1:4], 0])


def test_padding():
    check(lambda x: pad(x, [1, (0, 2)]), lambda a: np.pad(a, [(1, 1), (0, 2)], constant_values=-1), [H, W])
    check(lambda x: pad(x, {"W": (2, 0)}), lambda a: np.pad(a, [(0, 0), (2, 0)], constant_values=-1), [H, W])
    check(lambda x: pad(x, [0, 0]), lambda a: a, [H, W])
    x = ng.placeholder([H])
    y = pad(x, [(1, 0)], value=np.inf)
    assert y.axes[0] == H and y.axes[0].length == 6
    np.testing.assert_array_equal(compute([y], {x: np.ones(5, "float32")})[0], [np.inf, 1, 1, 1, 1, 1])
    P = ng.make_axis(7, name="P")
    assert list(pad(x, [1], axes=[P]).axes) == [P]
    m = ng.placeholder([H], dtype="bool")
    at = np.array([True, False, False, True, False])
    for value in (True, False, np.True_):
        np.testing.assert_array_equal(compute([pad(m, [(1, 2)], value=value)], {m: at})[0], [value, *at, value, value])


def test_reversing_and_diagonals():
    check(lambda x: flip(x, "W"), lambda a: a[:, ::-1], [H, W])
    check(lambda x: flip(x, [H, W]), lambda a: a[::-1, ::-1], [H, W])
    check(lambda x: diagonal(x, H, W), lambda a: np.diagonal(a).copy(), [H, W])
    check(lambda x: diagonal(x, W, H), lambda a: np.diagonal(a, axis1=0, axis2=2).T.copy(), [W, C, H])
    check(lambda x: diagonal(x, H, H - 1), lambda a: np.diagonal(a).copy(), [H, H - 1])


@pytest.mark.parametrize("size, stride, padding, dilation", [(2, 1, 0, 1), (3, 2, 1, 1), (2, 3, (0, 1), 2), (4, 1, 2, 1), (1, 2, 0, 1)])
def test_windows(size, stride, padding, dilation):
    before, after = padding if isinstance(padding, tuple) else (padding, padding)
    R = ng.make_axis(size, name="R")

    def wanted(a):
        padded = np.pad(a, [(before, after), (0, 0)], constant_values=-1)
        view = np.lib.stride_tricks.sliding_window_view(padded, (size - 1) * dilation + 1, axis=0)
        return view[::stride, :, ::dilation]

    check(lambda x: windows(x, {H: R}, stride=stride, padding=padding, dilation=dilation), wanted, [H, W])


def test_windows_of_two_axes_and_one_named_as_an_axis_of_the_input():
    """The axis along a window is called H, as one of x is: the adjoint sums over another name."""
    R, S = ng.make_axis(2, name="R"), ng.make_axis(3, name="S")
    view = np.lib.stride_tricks.sliding_window_view
    check(lambda x: windows(x, {H: R, W: S}), lambda a: view(a, (2, 3)), [H, W])
    short = ng.make_axis(2, name="H")
    x, e = ng.placeholder([H], dtype="float64"), ng.placeholder([W, short], dtype="float64")
    y = reindex(x, axes=[W, short], index={H: Idx(W) * 2 + Idx(H)})
    xs, es = RNG.normal(size=5), RNG.normal(size=(4, 2))
    found = compute([y, deriv(y, x, error=e)], {x: xs, e: es})
    np.testing.assert_array_equal(found[0].ravel(), [*xs, 0, 0, 0])
    np.testing.assert_array_equal(found[1], es.ravel()[:5])


def test_joining_and_splitting():
    check(flatten, lambda a: a.reshape(-1), [H, W, C])
    check(lambda x: flatten(x, [H, C]), lambda a: a.transpose(0, 2, 1).reshape(15, 4), [H, W, C])
    check(lambda x: flatten(x, [C, H]), lambda a: a.transpose(2, 0, 1).reshape(15, 4), [H, W, C])
    check(lambda x: flatten_at(x, 1), lambda a: a.reshape(5, 12), [H, W, C])
    check(lambda x: flatten_at(x, 3), lambda a: a.reshape(-1), [H, W, C])
    check(lambda x: flatten_at(x, -1), lambda a: a.reshape(20, 3), [H, W, C])
    check(lambda x: unflatten(flatten(x)), lambda a: a, [H, W, C])
    check(lambda x: unflatten(flatten(x), [C, H, W]), lambda a: a.transpose(2, 0, 1), [H, W, C])
    check(lambda x: unflatten(flatten(flatten(x, [H, W]))), lambda a: a.reshape(20, 3), [H, W, C])
    check(lambda x: flatten(flip(x, W)), lambda a: a[:, ::-1].reshape(-1), [H, W])
    check(lambda x: unflatten(flatten(x))[1:], lambda a: a[1:], [H, W])
    check(flatten, lambda a: a.reshape(-1), [H, ng.make_axis(1, name="O"), W])
    check(flatten, lambda a: a.reshape(-1), [H, ng.make_axis(0, name="Z"), W])
    check(flatten, lambda a: a, [H])
    check(lambda x: flatten(x, [H - 1, H]), lambda a: a.T.reshape(-1), [H, H - 1])
    twelve, three, four = ng.make_axis(12, name="T"), ng.make_axis(3, name="A"), ng.make_axis(4, name="B")
    check(lambda x: unflatten(x, [three, four, N]), lambda a: a.reshape(3, 4, 2), [twelve, N])


def test_a_joined_axis_is_known_by_its_parts():
    x, y = ng.placeholder([C, H, N]), ng.placeholder([N, H, C])
    a, b = flatten(x, [C, H]), flatten(y, [C, H])
    assert a.axes[0] == b.axes[1] and a.axes[0].name == "C*H" and a.axes[0].length == 15 and a.axes[0].is_flattened
    assert a.axes[0] != flatten(x, [H, C]).axes[0]
    assert not flatten(x).axes[0].is_batch and not flatten(ng.placeholder([C, N])).axes[0].is_batch
    assert flatten(x, a.axes).axes == a.axes  # the joined axes can be asked for
    assert list(unflatten(a).axes) == [C, H, N] and list(unflatten(a, a.axes[0]).axes) == [C, H, N]


def test_names():
    x = ng.placeholder([H, W], dtype="float64")
    xs = RNG.normal(size=(5, 4))
    P, Q = ng.make_axis(5, name="P"), ng.make_axis(name="Q")
    for y, names in [
        (cast_axes(x, [P, Q]), ["P", "Q"]),
        (cast_axes(x, [P, W]), ["P", "W"]),
        (cast_role(x, [W, H]), ["W", "H"]),
        (map_roles(x, {"H": "K"}), ["K", "W"]),
        (map_roles(x, {"H": "W", "W": "H"}), ["W", "H"]),
        (map_roles(x, {H: H - 1}), ["H'", "W"]),
    ]:
        assert [a.label for a in y.axes] == names and y.axes.lengths == (5, 4)
        e = ng.placeholder(y.axes, dtype="float64")
        found = compute([y, deriv(y, x, error=e)], {x: xs, e: xs * 2})
        np.testing.assert_array_equal(found[0], xs)
        np.testing.assert_array_equal(found[1], xs * 2)
    assert Q.length == 4
    assert cast_axes(x, [H, W]) is x
    role = ng.make_axis(9, name="R", batch=True)
    assert cast_role(x, [role, W]).axes[0].length == 5 and cast_role(x, [role, W]).axes[0].is_batch


def test_an_unknown_length_goes_with_the_new_name():
    h = ng.make_axis(name="H")
    x = ng.placeholder([h], dtype="float64")
    q = ng.make_axis(name="Q")
    y = cast_axes(x, [q])
    z = ng.placeholder([q], dtype="float64")
    np.testing.assert_array_equal(compute([y + z], {x: np.ones(6), z: np.arange(6.0)})[0], np.arange(6) + 1)
    with pytest.raises(Exception, match="length"):
        compute([y + z], {x: np.ones(6), z: np.ones(5)})


def test_broadcasting_and_order():
    ones = lambda a, n: np.repeat(a[..., None], n, axis=-1)
    check(lambda x: broadcast(x, [H, W]), lambda a: ones(a, 4), [H])
    check(lambda x: broadcast(x, [N, W, H]), lambda a: np.broadcast_to(a.T, (2, 4, 5)), [H, W])
    check(lambda x: expand_dims(x, C, 1), lambda a: np.repeat(a[:, None], 3, 1), [H, W])
    check(lambda x: expand_dims(x, C, -1), lambda a: ones(a, 3), [H, W])
    check(lambda x: axes_with_order(x, [C, H, W]), lambda a: a.transpose(2, 0, 1), [H, W, C])
    x = ng.placeholder([H, W])
    assert expand_dims(x, W, 0) is x and broadcast(x, [H, W]) is x and axes_with_order(x, [H, W]) is x
    assert axes_with_order(x[1:], [W, H]).axes.lengths == (4, 4)  # H says which, not how long


def test_joining_tensors():
    check(lambda x: concat_along_axis([x, x[1:], x[::-1]], H), lambda a: np.concatenate([a, a[1:], a[::-1]]), [H, W])
    check(lambda x: concat_along_axis([x, axes_with_order(x, [W, H])], "W"), lambda a: np.concatenate([a, a], 1), [H, W])
    S = ng.make_axis(3, name="S")
    check(lambda x: stack([x, x, flip(x, H)], S), lambda a: np.stack([a, a, a[::-1]]), [H, W])
    check(lambda x: stack([x, x, flip(x, H)], S, 1), lambda a: np.stack([a, a, a[::-1]], 1), [H, W])
    check(lambda x: stack([x, axes_with_order(x, [W, H])], ng.make_axis(name="S"), 2), lambda a: np.stack([a, a], 2), [H, W])
    check(lambda x: concat_along_axis([x], H), lambda a: a, [H])
    ints, floats = ng.placeholder([H], dtype="int32"), ng.placeholder([H], dtype="float64")
    y = concat_along_axis([ints, floats], H)
    assert y.axes[0] == H and y.axes[0].length == 10 and y.dtype is ng.float64
    np.testing.assert_array_equal(compute([y], {ints: np.arange(5, dtype="int32"), floats: np.ones(5)})[0], [0, 1, 2, 3, 4, 1, 1, 1, 1, 1])


def test_counting():
    for d in ("int32", "float32", "uint8", "int64", "bfloat16"):
        (found,) = compute([iota(H, d)], {})
        assert found.astype(int).tolist() == [0, 1, 2, 3, 4] and found.dtype.name == d
    with pytest.raises(DTypeError, match="iota of bool"):
        iota(H, bool)


X, ODD = ng.placeholder([H, W]).named("X"), ng.make_axis(7, name="H")
MISTAKES = [
    (lambda: broadcast(X, [H, C]), "W is missing in [H=5, C=3]"),
    (lambda: broadcast(X, [ODD, W]), "axis H has length 5 in X and 7"),
    (lambda: axes_with_order(X, [H]), "[H=5] is not an order of [H=5, W=4]"),
    (lambda: expand_dims(X, C, 3), "no position 3"),
    (lambda: cast_axes(X, [H]), "1 new axes for the 2"),
    (lambda: cast_axes(X, [C, W]), "H=5 cannot become C=3"),
    (lambda: cast_axes(X, [ng.make_axis(5, name="W"), W]), "occurs twice"),
    (lambda: map_roles(X, {C: "K"}), "C is not an axis of X"),
    (lambda: map_roles(X, {"H": "W"}), "W would occur twice"),
    (lambda: cast_role(X, [C]), "1 new axes for the 2"),
    (lambda: X[1, 2, 3], "3 indices for [H=5, W=4]"),
    (lambda: X[..., ...], "2 indices"),
    (lambda: X[5], "there are 5 elements"),
    (lambda: X[-6], "there are 5 elements"),
    (lambda: X[1.5], "no index: 1.5 along H=5"),
    (lambda: X[::0], "step of a slice is 0"),
    (lambda: X["a":], "whole numbers"),
    (lambda: X[True], "no index"),
    (lambda: X[None], "no index: None"),
    (lambda: X[[0, 5]], "index 5 is outside along H=5"),
    (lambda: X[np.array([[0], [1]])], "an array of 2 dims along H=5"),
    (lambda: X[{C: 1}], "C is not an axis of X"),
    (lambda: tensor_slice(X, [0]), "1 slices for [H=5, W=4]"),
    (lambda: slice_along_axis(X, "C", 0), "C is not an axis of X"),
    (lambda: pad(X, [1]), "1 paddings"),
    (lambda: pad(X, [1, (0, -1)]), "negative padding (0, -1) along W=4"),
    (lambda: pad(X, [1, (1, 2, 3)]), "(1, 2, 3) is not padding"),
    (lambda: pad(X, [0, 0], axes=[H]), "1 new axes for the 2"),
    (lambda: flip(X, C), "C is not an axis"),
    (lambda: diagonal(X, H, H), "H twice"),
    (lambda: flatten(X, [C]), "C is not an axis"),
    (lambda: flatten_at(X, 3), "no position 3"),
    (lambda: flatten(X, flatten(ng.placeholder([C, N])).axes), "is not made of"),
    (lambda: unflatten(X, [H, ng.make_axis(3, name="A"), ng.make_axis(2, name="B")]), "[W=4] cannot be split into"),
    (lambda: stack([X, X], C), "2 tensors along C=3"),
    (lambda: stack([X, X], ng.make_axis(2, name="H")), "an axis of them already"),
    (lambda: stack([X, X[0]], N), "the axes are not the same"),
    (lambda: stack([], N), "no tensors"),
    (lambda: concat_along_axis([X, X[0]], W), "the axes are not the same"),
    (lambda: concat_along_axis([X, X[0]], H), "H is not an axis"),
    (lambda: concat_along_axis([X, X[1:]], W), "axis H has length 5"),
    (lambda: concat_along_axis([], H), "no tensors"),
    (lambda: windows(X, {H: W}), "W is an axis of X already"),
    (lambda: windows(X, {H: ng.make_axis(9, name="R")}), "R=9 fits along H=5"),
    (lambda: windows(X, {H: C}, out={H: ng.make_axis(9, name="P")}), "would have length 3"),
]


@pytest.mark.parametrize("call, part", MISTAKES, ids=[part for _, part in MISTAKES])
def test_mistakes_are_told(call, part):
    with pytest.raises(AxisError) as caught:
        call()
    assert part in str(caught.value), str(caught.value)
    assert "test_rearrange.py" in str(caught.value).splitlines()[0]
