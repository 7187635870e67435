"""Lengths that come late: which unknown axes are one, and which are not, although they have the same name."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError, AxisError, UnsupportedError


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


def test_what_is_cut_twice_is_as_long_as_what_is_cut_once():
    x = ng.placeholder("T=? D=4", dtype="float64")
    rise = x["T", 1:] - x["T", :-1]
    f = executor(rise["T", 1:] - rise["T", :-1] + x["T", 1:-1], x)
    for n in (3, 2, 1, 0):
        np.testing.assert_array_equal(
            f(LEVELS[:n] ** 2), np.diff(LEVELS[:n] ** 2, 2, axis=0) + LEVELS[1 : n - 1] ** 2 if n > 2 else np.zeros((0, 4))
        )


def test_an_error_names_the_lengths_that_differ_in_some_calls():
    x = ng.placeholder("T=? D=4").named("x")
    later = ng.concat_along_axis([ng.zeros("T=1 D=4"), x["T", :-1]], "T")
    with pytest.raises(AxisError, match=r"axis T has the lengths T and max\(T - 1, 0\) \+ 1, which do not fit in every call") as caught:
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


@pytest.mark.parametrize("joined", ["concat", "stack", "put"])
def test_an_error_of_joined_tensors_names_the_lengths_that_differ_in_some_calls(joined):
    x = ng.placeholder("C=2 H=? W=?").named("x")
    up = ng.repeat(ng.max_pool(x, {"H": 2}), 2, "H")
    made = {
        "concat": lambda: ng.concat_along_axis([up, x], "C"),
        "stack": lambda: ng.stack([up, x], "P=2"),
        "put": lambda: ng.put(x, ng.constant([0], "C=1", dtype="int32"), up["C", :1], "C"),
    }[joined]()
    with pytest.raises(AxisError, match=r"axis H has the lengths max.* and H, which do not fit in every call"):
        executor(made, x)


def test_a_length_that_an_op_computes_from_an_open_one_does_not_give_that_one():
    """The count of x's rows cuts a table: the table's length follows from x, and x's from each call."""
    x, table = ng.placeholder("T=? D=4").named("x"), ng.placeholder("T=16 D=4").named("table")
    for count in (ng.tensor_size(x, "T"), ng.sum(x, out_axes=())):
        cut = table["T", : ng.cast(count, "int32")]
        assert cut.axes[0].family.found_length() is not None
        with pytest.raises(AxisError, match="axis T has the lengths T and max.*, which do not fit in every call"):
            executor(x + cut, x, table)


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
