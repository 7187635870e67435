"""Lengths that come late: which unknown axes are one, and which are not, although they have the same name."""

import functools

import numpy as np
import pytest
import torch

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError, AxisError, BoundsError, GraphError, UnsupportedError


def executor(results, *parameters):
    return ngt.make_transformer().computation(results, *parameters)


def axis(length, name="H"):
    return ng.make_axis(length, name=name)


def test_an_unknown_length_that_meets_a_known_one_takes_it():
    x, y = ng.placeholder([axis(None)]), ng.placeholder([axis(3)])
    f = executor(ng.sum(x * 1.0, out_axes=()) + ng.sum(x + y, out_axes=()), x, y)
    assert f([1, 2, 3], [1, 1, 1]) == 15
    assert f.program.symbols() == []


def test_meeting_goes_through_others():
    x, y, z = (ng.placeholder([axis(n)]) for n in (None, None, 3))
    assert executor([x + y, y + z], x, y, z).program.symbols() == []


def test_an_unknown_length_that_never_meets_a_known_one_stays_open():
    x, f = ng.placeholder([axis(None)]), ng.placeholder([axis(3)])
    run = executor(ng.conv(x, f, {"H": "H"}), x, f)
    assert run(np.ones(7), np.ones(3)).tolist() == [3] * 5 and run(np.ones(4), np.ones(3)).tolist() == [3] * 2
    past, new = ng.placeholder([axis(None, "REC")]), ng.placeholder([axis(1, "REC")])
    joined = executor(ng.concat_along_axis([past, new], past.axes[0]), past, new)
    assert joined([1, 2, 3], [4]).tolist() == [1, 2, 3, 4] and joined([], [4]).tolist() == [4]


def test_an_assigned_value_of_unknown_length_takes_the_variables():
    v, x = ng.variable([axis(2)], initial_value=0), ng.placeholder([axis(None)])
    f = executor([ng.assign(v, x), v], x)
    assert f([5, 6])[1].tolist() == [5, 6] and f.program.symbols() == []


def test_lengths_set_after_the_graph_are_checked_when_it_is_lowered():
    a, b = axis(None), axis(None)
    x, y = ng.placeholder([a]).named("x"), ng.placeholder([b]).named("y")
    z = x + y
    a.length, b.length = 3, 4
    with pytest.raises(AxisError, match=r"lengths given since"):
        executor(z, x, y)


def test_a_length_that_is_computed_from_an_open_one_is_not_that_one():
    x = ng.placeholder([axis(None)])
    twice = ng.concat_along_axis([x, x], x.axes[0])
    with pytest.raises(AxisError, match="do not fit"):
        executor(ng.maximum(x, twice), x)
    assert executor(ng.mean(twice, reduction_axes=twice.axes), x)([1, 2, 6]) == 3


LEVELS = np.arange(12.0).reshape(3, 4)
AS_LONG = {
    "of the axis in a list": (lambda x: ng.iota([x.axes[0]], "float64"), lambda a: np.arange(len(a))[:, None]),
    "of a joined axis": (lambda x: ng.ones([[x.axes[0]], x.axes[1]], dtype="float64"), np.ones_like),
    "padded and cut": (lambda x: ng.pad(x, {"T": (1, 0)})["T", :-1], lambda a: np.roll(a, 1, 0) * (np.arange(len(a)) > 0)[:, None]),
    "padded, in windows": (lambda x: ng.unfold(ng.pad(x, {"T": (1, 0)}), {"T": "R=2"})["R", 1], lambda a: a),
    "cut and joined": (lambda x: ng.concat_along_axis([x["T", 1:], x["T", :1]], "T"), lambda a: np.roll(a, -1, 0)),
    "cut at the end and joined": (lambda x: ng.concat_along_axis([x["T", -1:], x["T", :-1]], "T"), lambda a: np.roll(a, 1, 0)),
    "each second of twice as many": (lambda x: ng.repeat(x, 2, "T")["T", ::2], lambda a: a),
}


@pytest.mark.parametrize("kind", AS_LONG)
def test_what_is_as_long_as_an_open_axis_of_its_name_is_combined_with_it(kind):
    made, plain = AS_LONG[kind]
    x = ng.placeholder("T=? D=4", dtype="float64")
    f = executor([x + made(x), ng.deriv(ng.sum(x * made(x), out_axes=()), x)], x)
    w = LEVELS + 1
    for n in (3, 1, 0):
        y, slope = f(w[:n])
        np.testing.assert_array_equal(y, w[:n] + plain(w[:n]))
        assert (
            slope.shape == (n, 4)
            and np.sum(slope * w[:n])
            == pytest.approx(  # a form of degree 2, or 1 where `made` is constant
                np.sum(w[:n] * plain(w[:n])) * (1 if kind in ("of the axis in a list", "of a joined axis") else 2)
            )
        )


SPELLED = {
    "cut, then halved": lambda x: x["T", 2:]["T", ::2] - x["T", 2::2],
    "even and odd rows joined": lambda x: ng.concat_along_axis([x["T", ::2], x["T", 1::2]], "T") + x,
    "pools of pools": lambda x: ng.max_pool(ng.max_pool(x, {"T": 2}), {"T": 2}) + ng.max_pool(x, {"T": 4}),
    "three pieces joined": lambda x: ng.concat_along_axis([x["T", :1], x["T", 1:4], x["T", 4:]], "T") + x,
    "strided convolution": lambda x: ng.conv(x, ng.ones("R=3", dtype="float64"), {"T": "R"}, stride=2, padding=1) + x["T", ::2],
    "deconvolution": lambda x: ng.deconv(x, ng.ones("R=2", dtype="float64"), {"T": "R"}, stride=2) + ng.repeat(x, 2, "T"),
}


@pytest.mark.parametrize("case", SPELLED)
def test_lengths_that_are_equal_in_every_call_need_no_check(case):
    x = ng.placeholder("T=?", dtype="float64")
    y = SPELLED[case](x)
    f = executor([y, ng.deriv(ng.sum(y, out_axes=()), x)], x)
    assert "check_bounds" not in [s.op for s in f.lowered.steps]
    for n in (7, 8, 4):
        assert f(np.arange(float(n)))[1].shape == (n,)


def test_what_is_cut_twice_is_as_long_as_what_is_cut_once():
    x = ng.placeholder("T=? D=4", dtype="float64")
    rise = x["T", 1:] - x["T", :-1]
    f = executor(rise["T", 1:] - rise["T", :-1] + x["T", 1:-1], x)
    for n in (3, 2, 1, 0):
        np.testing.assert_array_equal(
            f(LEVELS[:n] ** 2), np.diff(LEVELS[:n] ** 2, 2, axis=0) + LEVELS[1 : n - 1] ** 2 if n > 2 else np.zeros((0, 4))
        )


def test_the_end_of_a_longer_text_has_a_known_length():
    """A convolution over a text that comes in pieces: the state keeps the last two rows, which there are in every call."""
    x, w = ng.placeholder("T=? C=2", dtype="float64"), ng.placeholder("R=3 C=2", dtype="float64")
    state = ng.persistent_tensor("T=2 C=2", dtype="float64", initial_value=0)
    whole = ng.concat_along_axis([state, x], "T")
    assert whole["T", -2:].axes[0].length == 2
    y = ng.conv(whole, w, {"T": "R"}) + x["C", 0] * 0  # as many rows as x has
    step = executor([y, ng.assign(state, whole["T", -2:])], x, w)
    rows, filters = np.random.default_rng(0).standard_normal((20, 2)), np.random.default_rng(1).standard_normal((3, 2))
    ends = np.cumsum([0, 1, 0, 3, 2, 7, 5, 1, 1])
    found = np.concatenate([step(rows[a:b], filters)[0] for a, b in zip(ends, ends[1:], strict=False)])
    padded = np.concatenate([np.zeros((2, 2)), rows])
    np.testing.assert_allclose(found, [(padded[t : t + 3] * filters).sum() for t in range(20)], rtol=1e-12, atol=1e-12)


def test_what_is_padded_and_cut_to_a_number_has_that_length():
    x, y = ng.placeholder("T=?", dtype="float64"), ng.placeholder("T=4", dtype="float64")
    f = executor(ng.pad(x, {"T": (0, 4)})["T", :4] + y, x, y)
    for n in (0, 1, 4, 6):
        np.testing.assert_array_equal(f(np.arange(n) + 1.0, np.ones(4)), np.pad(np.arange(n) + 1.0, (0, 4))[:4] + 1)


TWICE = {
    "cast to an open axis": lambda x: ng.cast_axes(ng.flatten(ng.repeat(x, 2, "T"), "T"), [ng.make_axis(name="T"), x.axes[1]]),
    "renamed to the axis": lambda x: ng.map_roles(ng.map_roles(ng.repeat(x, 2, "T"), {"T": "U"}), {"U": x.axes[0]}),
    "renamed to an open axis": lambda x: ng.map_roles(ng.map_roles(x["T", 1:], {"T": "U"}), {"U": ng.make_axis(name="T")}),
    "cast to a cut axis": lambda x: ng.cast_axes(ng.repeat(x, 2, "T"), x["T", 1:].axes),
}


@pytest.mark.parametrize("kind", TWICE)
def test_an_axis_keeps_its_length_under_another_name(kind):
    """The new name is that of an axis with another length: it is not taken for one."""
    x = ng.placeholder("T=? D=2", dtype="float64").named("x")
    with pytest.raises(AxisError, match="axis T has the lengths .* and T, which do not fit in any call"):
        executor(TWICE[kind](x) + x, x)


def test_a_renamed_input_is_as_long_as_the_axis_whose_name_it_gets():
    x, y = ng.placeholder("T=?", dtype="float64").named("x"), ng.placeholder("U=?", dtype="float64").named("y")
    f = executor(x["T", 1:] - ng.cast_axes(y, x["T", 1:].axes), x, y)
    np.testing.assert_array_equal(f([1, 2, 4], [1, 1]), [1, 3])
    with pytest.raises(ArgumentError, match="axis U of placeholder y has length 2, and got 3"):
        f([1, 2, 4], [1, 1, 1])


@pytest.mark.parametrize("transformer_name", ["cpu", "numpy", "direct"])
def test_a_known_length_under_a_new_name_is_checked_in_each_call(transformer_name):
    """The length of a diagonal is the smaller one of two, of which a call brings one; its derivative comes along the axis given."""
    x, dy = ng.placeholder("A=? B=3 C=2", dtype="float64"), ng.placeholder("P=3 C=2", dtype="float64")
    y = ng.cast_axes(ng.diagonal(x, "A", "B"), dy.axes)
    assert y.axes == dy.axes
    f = ngt.make_transformer_factory(transformer_name)().computation([y - dy, *ng.vjp([y], [x], [dy])], x, dy)
    rows, cotangent = np.arange(24.0).reshape(4, 3, 2), np.arange(6.0).reshape(3, 2) + 1
    value, gradient = f(rows, cotangent)
    np.testing.assert_array_equal(value, np.einsum("iic->ic", rows[:3]) - cotangent)
    wanted = np.zeros((4, 3, 2))
    wanted[range(3), range(3)] = cotangent
    np.testing.assert_array_equal(gradient, wanted)
    with pytest.raises(BoundsError, match="axis A for a result of P=3, which has length 2 in this call, does not fit"):
        f(rows[:2], cotangent)


@pytest.mark.parametrize("transformer_name", ["cpu", "numpy", "direct"])
def test_results_along_the_open_axis_that_they_come_from(transformer_name):
    x, w = ng.placeholder("T=? D=2", dtype="float64"), ng.placeholder("R=3", dtype="float64")
    T = x.axes[0]
    results = [ng.conv(x, w, {"T": "R"}, out={"T": T}), ng.max_pool(x, {"T": 2}, out={"T": T}), ng.deconv(x, w, {"T": "R"}, out={"T": T})]
    f = ngt.make_transformer_factory(transformer_name)().computation(results, x, w)
    for n in (5, 3):
        assert [v.shape[0] for v in f(np.ones((n, 2)), np.ones(3))] == [n - 2, n // 2, n + 2]


@pytest.mark.parametrize("transformer_name", ["cpu", "numpy", "direct"])
def test_a_deconvolution_gives_back_the_open_axis_of_its_convolution(transformer_name):
    """An autoencoder of pictures of any height: the way up has the lengths of the way down, odd ones too."""
    x, w, v = (ng.placeholder(text, dtype="float64") for text in ("N=? C=1 H=?", "K=2 C R=3", "K C R=3"))
    H = x.axes[2]
    low = ng.conv(x, w, {"H": "R"}, stride=2, padding=1)
    error = ng.deconv(low, v, {"H": "R"}, stride=2, padding=1, out={"H": H}) - x
    f = ngt.make_transformer_factory(transformer_name)().computation([error, ng.deriv(ng.sum(error * error, out_axes=()), w)], x, w, v)
    random = np.random.default_rng(3)
    for n in (1, 2, 5, 8):
        a, b, c = (random.standard_normal(shape) for shape in ((2, 1, n), (2, 1, 3), (2, 1, 3)))
        t = [torch.tensor(array, requires_grad=True) for array in (a, b, c)]
        down = torch.nn.functional.conv1d(t[0], t[1], stride=2, padding=1)
        up = torch.nn.functional.conv_transpose1d(down, t[2], stride=2, padding=1, output_padding=(n - 1) % 2)
        ((up - t[0]) ** 2).sum().backward()
        found, slope = f(a, b, c)
        np.testing.assert_allclose(np.einsum("nch->nch", found), (up - t[0]).detach().numpy(), rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(slope, t[1].grad.numpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("transformer_name", ["cpu", "numpy", "direct"])
def test_a_deconvolution_into_a_given_length_checks_each_call(transformer_name):
    x, w = ng.placeholder("T=?", dtype="float64"), ng.placeholder("R=3", dtype="float64")
    f = ngt.make_transformer_factory(transformer_name)().computation(ng.deconv(x, w, {"T": "R"}, stride=2, out={"T": "P=8"}), x, w)
    assert f(np.ones(3), np.ones(3)).tolist() == [1, 1, 2, 1, 2, 1, 1, 0]
    for n in (2, 4):
        with pytest.raises(BoundsError, match="axis T for a result of P=8, which has length .* in this call"):
            f(np.ones(n), np.ones(3))


SQUARE = {
    "solve": lambda x, b: ng.linalg.solve(x, b, "H", "W"),
    "inv": lambda x, b: ng.linalg.inv(x, "H", "W"),
    "det": lambda x, b: ng.linalg.det(x, "H", "W"),
    "cholesky": lambda x, b: ng.linalg.cholesky(x, "H", "W"),
}


@pytest.mark.parametrize("transformer_name", ["cpu", "numpy", "direct"])
@pytest.mark.parametrize("name", SQUARE)
def test_matrices_of_open_lengths_are_square_in_each_call(name, transformer_name):
    x, b = ng.placeholder("H=? W=?", dtype="float64"), ng.placeholder("H=?", dtype="float64")
    f = ngt.make_transformer_factory(transformer_name)().computation(SQUARE[name](x, b), x, b)
    a, right = np.array([[4.0, 1.0], [1.0, 3.0]]), np.array([1.0, 2.0])
    wanted = np.linalg.solve(a, right) if name == "solve" else getattr(np.linalg, name)(a)
    np.testing.assert_allclose(f(a, right), wanted, rtol=1e-12)
    with pytest.raises(BoundsError, match="axis H of square matrices with columns W"):
        f(np.ones((3, 2)), np.ones(3))


def test_a_cross_entropy_over_a_cut_axis_names_both_lengths():
    x, t = ng.placeholder("N=? Y=?"), ng.placeholder("N=? Y=?")
    with pytest.raises(AxisError, match="axis Y has the lengths .*Y.* which do not fit in any call"):
        executor(ng.cross_entropy_multi(ng.softmax(x, "Y"), t["Y", 1:]), x, t)


@pytest.mark.parametrize("transformer_name", ["cpu", "numpy", "direct"])
def test_places_in_a_grid_are_one_for_each_axis_in_each_call(transformer_name):
    x, grid = ng.placeholder("H=? W=?", dtype="float64"), ng.placeholder("Q=? P=?", dtype="float64")
    f = ngt.make_transformer_factory(transformer_name)().computation(ng.grid_sample(x, grid, "H W", "P"), x, grid)
    assert f(np.ones((2, 3)), np.zeros((4, 2))).tolist() == [1, 1, 1, 1]
    with pytest.raises(BoundsError, match="axis P of places"):
        f(np.ones((2, 3)), np.zeros((4, 3)))


def test_dot_pairs_no_axis_with_a_cut_one():
    C = axis(None, "C")
    w, x = ng.placeholder([axis(2, "K"), C - 1]), ng.placeholder([C, axis(None, "N")])
    with pytest.raises(AxisError, match="axis C has the lengths C and max.*, which do not fit in any call"):
        executor(ng.dot(w, x["C", 1:]), w, x)
    known, open_ = ng.placeholder([axis(2, "K"), axis(3, "C") - 1]), ng.placeholder([axis(None, "C")])
    f = executor(ng.dot(known, open_), known, open_)
    assert f(np.ones((2, 3)), [1, 2, 3]).tolist() == [6, 6]
    with pytest.raises(ArgumentError, match="axis C .* has length 3, and got 4"):
        f(np.ones((2, 3)), np.ones(4))


@pytest.mark.parametrize("transformer_name", ["cpu", "numpy", "direct"])
def test_lengths_that_a_call_brings_must_fit_those_that_were_given(transformer_name):
    x, w = ng.placeholder("T=? D=2", dtype="float64"), ng.placeholder("R=3", dtype="float64")
    rows = np.arange(12.0).reshape(6, 2)
    for made, wanted, wrong in (
        (ng.rearrange(x, "(T P) D -> T P D", P=3), rows.reshape(2, 3, 2), (5, 7)),
        (ng.unflatten(ng.flatten(x, "T D"), "A=4 B=3"), rows.reshape(4, 3), (5, 7)),
        (ng.unflatten(ng.flatten(x, "T D"), "A=? B=3"), rows.reshape(4, 3), (5, 7)),
        (ng.conv(x, w, {"T": "R"}, out={"T": "P=4"}), rows[:-2] + rows[1:-1] + rows[2:], (5, 7)),
        (ng.max_pool(x, {"T": 2}, out={"T": "P=3"}), rows[1::2], (5, 8)),
        (ng.pixel_shuffle(x, "T", {"D": 3})["D", :2], np.stack([rows[::3, 0], rows[1::3, 0]], 1), (5, 7)),
        (ng.cross(x["T", ::2], ng.roll(x["T", ::2], 1, "T") ** 2, "T"), np.cross(rows[::2], np.roll(rows[::2], 1, 0) ** 2, axis=0), (3, 8)),
    ):
        f = ngt.make_transformer_factory(transformer_name)().computation(made, x, w)
        np.testing.assert_array_equal(f(rows, np.ones(3)), wanted)
        for n in wrong:
            with pytest.raises(BoundsError, match="axis T.* in this call, does not fit"):
                f(np.ones((n, 2)), np.ones(3))


def test_an_error_names_the_lengths_that_differ_in_every_call():
    x = ng.placeholder("T=? D=4").named("x")
    later = ng.concat_along_axis([ng.zeros("T=1 D=4"), x], "T")
    with pytest.raises(AxisError, match=r"subtract.*: axis T has the lengths T and T \+ 1, which do not fit in any call") as caught:
        executor(x - later, x)
    assert "ng.pad(x, {'T': (1, 0)})['T', :-1]" in caught.value.fix


@pytest.mark.parametrize("transformer_name", ["cpu", "numpy", "direct"])
def test_two_open_axes_that_are_each_as_long_as_the_other(transformer_name):
    """A table of steps between states: its columns meet its rows, and its rows its columns, under one name each."""
    x, y, m = (ng.placeholder(text, dtype="float64").named(name) for text, name in (("S=?", "x"), ("R=?", "y"), ("S=? R=?", "m")))
    rows, columns = x + ng.map_roles(y, {"R": "S"}), y - ng.map_roles(x, {"S": "R"})
    for results in ([rows, columns, m * rows * columns], [m * columns * rows, rows, columns]):
        f = ngt.make_transformer_factory(transformer_name)().computation(results, x, y, m)
        for n in (3, 1, 0):
            a, b, c = np.arange(n) + 1.0, np.arange(n) ** 2.0, np.ones((n, n)) + np.arange(n)
            found = f(a, b, c)
            wanted = [a + b, b - a, c * (a + b)[:, None] * (b - a)]
            for value, want in zip(found, wanted if results[0] is rows else [wanted[2], *wanted[:2]], strict=True):
                np.testing.assert_array_equal(value, want)
        with pytest.raises(ArgumentError, match="axis [RS] has length"):
            f(np.ones(3), np.ones(2), np.ones((3, 2)))


def test_two_open_axes_of_one_name_that_are_each_as_long_as_the_other():
    x, v = (ng.placeholder([axis(None, "T")], dtype="float64") for _ in range(2))
    sums = x + ng.map_roles(ng.map_roles(v, {"T": "G"}), {"G": "T"})
    twice = ng.cast_axes(ng.repeat(sums, 2, "T"), [axis(None, "T")])
    f = executor(v * ng.rearrange(twice, "(T P) -> T P", P=2)["P", 0], x, v)
    np.testing.assert_array_equal(f(np.arange(3.0), np.ones(3)), np.arange(3.0) + 1)
    with pytest.raises(ArgumentError):
        f(np.ones(3), np.ones(2))


def _up(x):
    """Returns x with each pair of rows replaced by its maximum twice: an odd row is lost."""
    return ng.repeat(ng.max_pool(x, {"H": 2}), 2, "H")


def _up_by_numpy(a):
    return np.repeat(a[:, : a.shape[1] // 2 * 2].reshape(2, -1, 2, a.shape[2]).max(2), 2, 1)


def _put_by_numpy(a):
    return np.concatenate([_up_by_numpy(a)[:1], a[1:]])


# case -> of x [C=2, H, W] and w [H, K=3], and the same by NumPy: tensors with and without the odd row meet
EVEN = {
    "add": (lambda x, w: _up(x) + x, lambda a, w: _up_by_numpy(a) + a),
    "subtract": (lambda x, w: x - _up(x), lambda a, w: a - _up_by_numpy(a)),
    "concat": (lambda x, w: ng.concat_along_axis([_up(x), x], "C"), lambda a, w: np.concatenate([_up_by_numpy(a), a])),
    "stack": (lambda x, w: ng.stack([x, _up(x)], "P=2", 0), lambda a, w: np.stack([a, _up_by_numpy(a)])),
    "put": (lambda x, w: ng.put(x, ng.constant([0], "C=1", dtype="int32"), _up(x)["C", :1], "C"), lambda a, w: _put_by_numpy(a)),
    "where": (lambda x, w: ng.where(_up(x) > 1, x, 2.0), lambda a, w: np.where(_up_by_numpy(a) > 1, a, 2.0)),
    "dot": (lambda x, w: ng.dot(_up(x), w), lambda a, w: np.einsum("chw,hk->cwk", _up_by_numpy(a), w)),
    "softmax": (lambda x, w: ng.sum(ng.softmax(_up(x), "W") * x, "H"), lambda a, w: (_softmax_by_numpy(_up_by_numpy(a)) * a).sum(1)),
    "cumsum": (lambda x, w: ng.cumsum(_up(x) + x, "H"), lambda a, w: np.cumsum(_up_by_numpy(a) + a, 1)),
    "sort": (lambda x, w: ng.sort(_up(x) * x, "H"), lambda a, w: np.sort(_up_by_numpy(a) * a, 1)),
}


def _softmax_by_numpy(a):
    powers = np.exp(a - a.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize("transformer_name", ["cpu", "numpy", "direct"])
@pytest.mark.parametrize("case", EVEN)
def test_lengths_that_are_equal_in_some_calls_are_checked_in_each(case, transformer_name):
    """A network that halves an image and doubles it again has skips over images of even sizes: values, and derivatives by differences."""
    of, by_numpy = EVEN[case]
    x, w = ng.placeholder("C=2 H=? W=?", dtype="float64").named("x"), ng.placeholder("H=? K=3", dtype="float64")
    y = of(x, w)
    loss = ng.sum(y * y, out_axes=())
    f = ngt.make_transformer_factory(transformer_name)().computation([y, ng.deriv(loss, x)], x, w)
    rng = np.random.default_rng(0)
    for h, width in ((4, 3), (2, 1), (6, 2)):
        a, weights = rng.standard_normal((2, h, width)), rng.standard_normal((h, 3))
        value, gradient = f(a, weights)
        np.testing.assert_allclose(value, by_numpy(a, weights), rtol=1e-12, atol=1e-12)
        step = 1e-6 * rng.standard_normal(a.shape)
        ends = [np.square(by_numpy(a + sign * step, weights)).sum() for sign in (1, -1)]
        np.testing.assert_allclose((gradient * step).sum(), (ends[0] - ends[1]) / 2, rtol=1e-6, atol=1e-12)
    if case != "dot":  # where w has the even length, which is known before anything runs
        with pytest.raises(BoundsError, match=r"axis H of .*, which has length \d in this call, does not fit") as caught:
            f(np.ones((2, 5, 3)), np.ones((5, 3)))
        assert "for which" in caught.value.fix and "H // 2 * 2" in caught.value.fix


def test_lengths_of_two_axes_are_equal_in_some_calls():
    x = ng.placeholder("H=? W=?", dtype="float64").named("x")
    small = ng.max_pool(x, {"H": 2, "W": 2})
    f = executor(x * ng.repeat(ng.repeat(small, 2, "H"), 2, "W"), x)
    a = np.arange(24.0).reshape(4, 6)
    np.testing.assert_array_equal(f(a), a * np.kron(a[1::2, 1::2], np.ones((2, 2))))
    for shape, axis in (((5, 6), "H"), ((4, 7), "W")):
        with pytest.raises(BoundsError, match=f"axis {axis} of .* in multiply"):
            f(np.ones(shape))


@pytest.mark.parametrize("transformer_name", ["cpu", "numpy", "direct"])
def test_a_length_that_an_op_computes_from_an_open_one_is_checked_in_each_call(transformer_name):
    """The count of x's rows cuts a table: the table's length follows from x, and x's from each call."""
    x, table = ng.placeholder("T=? D=4").named("x"), ng.placeholder("T=16 D=4").named("table")
    for count, fits in ((ng.tensor_size(x, "T"), True), (ng.sum(x, out_axes=()), False)):
        cut = table["T", : ng.cast(count, "int32")]
        assert cut.axes[0].family.found_length() is not None
        f = ngt.make_transformer_factory(transformer_name)().computation(x + cut, x, table)
        rows = np.arange(64.0).reshape(16, 4)
        if fits:
            np.testing.assert_array_equal(f(np.ones((5, 4)), rows), rows[:5] + 1)
        else:
            np.testing.assert_array_equal(f(np.full((5, 4), 0.25), rows), rows[:5] + 0.25)
            with pytest.raises(BoundsError, match="axis T of .*, which has length .* in this call, does not fit"):
                f(np.ones((2, 4)), rows)


def test_counts_of_computed_lengths_take_any_float_dtype():
    x = ng.placeholder([axis(None)], dtype="float64")
    twice = ng.concat_along_axis([x, x], x.axes[0])
    assert executor(ng.variance(twice, reduction_axes=twice.axes), x)([1, 3]) == 1


@pytest.mark.parametrize("name", ["direct", "numpy", "cpu"])
def test_a_length_that_nobody_gives_is_an_error(name):
    b, x = axis(None), ng.placeholder([axis(2, "C")])
    with ngt.make_transformer_factory(name)() as transformer:
        for wanted in (ng.uniform(axes=[b]), ng.sum(ng.broadcast(x, [*x.axes, b]), out_axes=x.axes)):
            with pytest.raises(UnsupportedError, match="length of axis H is not known, and no argument has it"):
                transformer.computation(wanted, x)([1, 2])


@pytest.mark.parametrize("name", ["direct", "numpy", "cpu"])
def test_the_place_of_the_smallest_of_nothing_is_an_error(name):
    h, c = axis(None), axis(3, "C")
    x = ng.placeholder([h, c], dtype="int32")
    with ngt.make_transformer_factory(name)() as transformer:
        f = transformer.computation(ng.argmin(x, reduction_axes=[h]), x)
        assert f([[3, 1, 2], [1, 2, 3]]).tolist() == [1, 0, 0]
        with pytest.raises(ArgumentError, match="argmin along H, of which there are 0 elements"):
            f(np.zeros((0, 3), "i4"))


ALL = pytest.mark.parametrize("transformer_name", ["cpu", "numpy", "direct"])


def _positive(v):
    """Returns how many elements are above 0, which a step computes."""
    return ng.sum(ng.cast(v > 0, "int32"), out_axes=())


def _derivatives_agree(f, by_numpy, arrays):
    """Whether f gives a value and, for each array, the derivative of its sum of squares: that of NumPy by differences."""
    value, *gradients = f(*arrays)
    np.testing.assert_allclose(value, by_numpy(*arrays), rtol=1e-12, atol=1e-12)
    steps = [1e-6 * np.cos(np.arange(a.size) + 1.0).reshape(a.shape) for a in arrays]
    ends = [np.square(by_numpy(*[a + sign * s for a, s in zip(arrays, steps, strict=True)])).sum() for sign in (1, -1)]
    slope = sum((g * s).sum() for g, s in zip(gradients, steps, strict=True))
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2, rtol=1e-6, atol=1e-12)


def _computation(of, transformer_name):
    """Returns a computation of a function of x [T=?, D=2] and v [T=?], whose axes are two, and of the derivatives of its sum of squares."""
    x, v = ng.placeholder([axis(None, "T"), axis(2, "D")], dtype="float64"), ng.placeholder([axis(None, "T")], dtype="float64")
    y = of(x, v)
    loss = ng.sum(y * y, out_axes=())
    return ngt.make_transformer_factory(transformer_name)().computation([y, *ng.deriv(loss, [x, v])], x, v)


ROWS, MARKS = np.sin(np.arange(12.0)).reshape(6, 2), np.array([0.5, 1.5, 0.25, -1.0, 2.0, 0.75])


def _put_in(v):
    """Returns the elements above 0, along an axis of the name of v's."""
    found = ng.take(v, ng.nonzero(v > 0)[0], "T")
    return ng.map_roles(found, {found.axes[0].name: v.axes[0].name})


# case -> of x and v, and the same by NumPy: a length that a step computes meets another one. All of MARKS but the fourth are above 0.
COMPUTED = {
    "cut and whole": (lambda x, v: v * v["T", : _positive(v)], lambda a, b: b * b[: (b > 0).sum()]),
    "tail and cut": (lambda x, v: v["T", _positive(x["D", 0]) :] + v["T", 3:], lambda a, b: b[(a[:, 0] > 0).sum() :] + b[3:]),
    "chosen elements": (lambda x, v: ng.max_pool(x, {"T": 1}) * _put_in(v), lambda a, b: a * b[b > 0][:, None]),
    "pairs of a cut": (
        lambda x, v: ng.avg_pool(v["T", : _positive(v)], {"T": 2}, stride=2) * v["T", ::2],
        lambda a, b: b[: (b > 0).sum()].reshape(-1, 2).mean(1) * b[::2],
    ),
}


@ALL
@pytest.mark.parametrize("case", COMPUTED)
def test_a_length_that_a_step_computes_meets_others(case, transformer_name):
    of, by_numpy = COMPUTED[case]
    f = _computation(of, transformer_name)
    rows, marks = (ROWS[:3], np.array([0.5, 1.5, 0.25])) if case == "chosen elements" else (ROWS, np.abs(MARKS))
    if case == "tail and cut":
        rows = ROWS * 0 + np.where(np.arange(6) < 3, 1.0, -1.0)[:, None]
    _derivatives_agree(f, by_numpy, (rows, marks))
    with pytest.raises((BoundsError, ArgumentError)):
        f(np.abs(rows), -marks)


@ALL
def test_elements_of_a_computed_cut_are_read_once_its_length_is_known(transformer_name):
    v = ng.placeholder("T=?", dtype="float64")
    n = _positive(v)
    places = [v["T", :n]["T", 0], v["T", :n]["T", -1], v["T", n:]["T", 0], v["T", n:]["T", -1]]
    f = ngt.make_transformer_factory(transformer_name)().computation(places, v)
    for a in ([1.0, -1, 2, -3], [5, 6, -7.0], [3, -4, -5.0, -6, -7]):
        n = sum(x > 0 for x in a)
        assert [float(x) for x in f(np.array(a))] == [a[0], a[n - 1], a[n], a[-1]]


@ALL
def test_a_computed_length_is_pooled_with_strides(transformer_name):
    """The gradient is computed by residue classes, whose number of elements follows from the computed length."""
    of = lambda x, v: ng.max_pool(v["T", _positive(v) :], {"T": 1}, stride=3)
    f = _computation(of, transformer_name)
    for marks in (MARKS[:1], MARKS[3:], np.concatenate([MARKS, -np.abs(MARKS)])):
        _derivatives_agree(f, lambda a, b: b[(b > 0).sum() :][::3], (np.zeros((len(marks), 2)), marks))


def test_a_length_may_be_a_random_number():
    x = ng.placeholder("T=?")
    n = ng.sum(ng.randint(x, low=0, high=2), out_axes=())
    cut, count = executor([x["T", :n], n], x)(np.ones(30))
    assert cut.shape == (count,)


# case -> of x and v, and the same by NumPy: what a loop carries, gives or uses has another length than it began with
LOOPS = {
    "carry": (
        lambda x, v: ng.scan(lambda c, d: (_pairs(c * d), None), ng.tanh(v), x["T", 0], "D")[0],
        lambda a, b: np.tanh(b)[np.arange(len(b)) // 2 * 2] * a[0, 0] * a[0, 1],
    ),
    "values": (
        lambda x, v: ng.scan(lambda c, d: (c + d, _pairs(c) + v), v, x["T", 0], "D")[1],
        lambda a, b: np.stack([b[np.arange(len(b)) // 2 * 2] + b, (b + a[0, 0])[np.arange(len(b)) // 2 * 2] + b]),
    ),
    "branch": (
        lambda x, v: ng.cond(ng.sum(v, out_axes=()) > 100, lambda: v, lambda: _pairs(v) * 2),
        lambda a, b: 2 * b[np.arange(len(b)) // 2 * 2],
    ),
    "computed length reversed": (
        lambda x, v: ng.scan(lambda c, d: (ng.flip(c, "T") * d, None), v["T", : _positive(v)], x["T", 0], "D")[0],
        lambda a, b: b[: (b > 0).sum()] * a[0, 0] * a[0, 1],
    ),
    "sum from the end of halves": (
        lambda x, v: ng.cumsum(ng.cumsum(v["T", ::2], "T") + v["T", 1::2], "T", reverse=True),
        lambda a, b: np.cumsum((np.cumsum(b[::2]) + b[1::2])[::-1])[::-1],
    ),
}


def _pairs(v):
    """Returns each first element of a pair twice: an odd number becomes the next even one."""
    return ng.repeat(ng.avg_pool(v, {"T": 1}, stride=2), 2, "T")


@ALL
@pytest.mark.parametrize("case", LOOPS)
def test_lengths_within_loops_and_branches_are_checked_in_each_call(case, transformer_name):
    of, by_numpy = LOOPS[case]
    f = _computation(of, transformer_name)
    _derivatives_agree(f, by_numpy, (ROWS, MARKS))
    if case != "computed length reversed":
        with pytest.raises(BoundsError, match=r"which has length \d in this call, does not fit"):
            f(ROWS[:5], MARKS[:5])


def test_the_verifier_takes_a_check_of_lengths():
    x = ng.placeholder("T=?")
    with ng.config(check=True):
        f = executor(x["T", ::2] + x["T", 1::2], x)
    assert f([1, 2, 3, 4]).tolist() == [3, 7]


@ALL
@pytest.mark.parametrize("opened", [False, True])
def test_a_branch_finds_a_length_for_itself(opened, transformer_name):
    """It is found before the branch, which has its axes from the program around it."""
    x, chosen = ng.placeholder([axis(None if opened else 4)], dtype="float64"), ng.placeholder((), dtype="bool")

    def positive():
        found = ng.take(x, ng.nonzero(x > 0, "N")[0], "H")
        return ng.scan(lambda h, row: (h * 2.0 + row, None), ng.constant(0.0, dtype="float64"), found, "N")[0]

    y = ng.cond(chosen, positive, lambda: ng.sum(x, out_axes=()))
    f = ngt.make_transformer_factory(transformer_name)().computation(y, x, chosen)
    for value in ([1.0, -2.0, 3.0, 4.0], [-1.0, -2.0, 0.0, 5.0], *[[2.0, 3.0, -1.0], []] * opened):
        assert f(value, False) == sum(value)
        assert f(value, True) == functools.reduce(lambda h, row: h * 2 + row, [v for v in value if v > 0], 0.0)


def test_a_length_that_only_a_body_can_find_is_an_error():
    x = ng.placeholder([axis(3, "S"), axis(4)])
    h, _ = ng.scan(lambda h, row: (h + ng.sum(ng.take(row, ng.nonzero(row > 0, "N")[0], "H"), "N"), None), 0.0, x, "S")
    with pytest.raises(GraphError, match="length of N is found inside a body of scan") as error:
        executor(h, x)
    assert error.value.line[0] == __file__
