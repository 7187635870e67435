"""Axes: identity, lengths, duals, flags, and the algebra of `Axes`, held against plain lists and sets."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ngraph as ng
from ngraph.errors import AxisError
from ngraph.op_graph.axes import Axes, Axis, Clash, make_axes, make_axis, merge
from ngraph.op_graph.expr import Len
from ngraph.op_graph.names import make_name_scope

POOL = [make_axis(k + 2, name=n) for k, n in enumerate("ABCD")]
POOL += [a - 1 for a in POOL] + [POOL[0] + 1]
lists = st.lists(st.sampled_from(POOL), unique=True)

# ---- identity ---------------------------------------------------------------------------------------------------------


def test_an_axis_is_its_name_and_level_whatever_its_length():
    a, b = make_axis(3, name="H"), make_axis(4, name="H")
    assert a == b and hash(a) == hash(b) and len({a, b}) == 1
    assert a != a - 1 and a - 1 == b - 1 and a != make_axis(3, name="W") and a != "H"


def test_axes_without_a_name_equal_no_other():
    assert make_axis(3) != make_axis(3) and make_axis().name != make_axis().name


def test_scopes_name_axes():
    ax = make_name_scope("ax")
    ax.N = make_axis(128)
    assert (ax.N.name, ax.N.short_name, repr(ax.N)) == ("ax.N", "N", "ax.N=128")
    assert ax.N != make_axis(128, name="N")


# ---- lengths ----------------------------------------------------------------------------------------------------------


def test_lengths_may_come_later():
    h = make_axis(name="H")
    assert h.length is None and h.size == Len(h) and repr(h) == "H=?" and bool(h)
    with pytest.raises(AxisError, match="axis H has no length yet"):
        len(h)
    h.length = 5
    assert (len(h), (h - 1).length, h.size) == (5, 5, 5)


def test_a_length_that_follows_from_another_is_known_with_it():
    n = make_axis(name="N")
    half = n.resized(Len(n) // 2)
    assert half == n and half.length is None and half.size == Len(n) // 2 and half.is_batch
    n.length = 9
    assert half.length == 4 and half.size == 4 and n.length == 9
    assert n.resized(9) is n


@pytest.mark.parametrize("length", [-1, 1.5, "3"])
def test_a_length_is_a_whole_number_from_0(length):
    with pytest.raises(AxisError, match="axis length"):
        make_axis(length)
    axis = make_axis()
    with pytest.raises(AxisError, match="axis length"):
        axis.length = length


def test_an_axis_of_length_0_is_an_axis():
    z = make_axis(0, name="Z")
    assert bool(z) and len(z) == 0 and Axes(z).size == 0


# ---- duals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", range(-3, 4))
def test_levels(level):
    c = make_axis(4, name="C", batch=True, roles=["channel"])
    dual = c + level
    assert dual.dual == level and (dual - level) == c and dual is c + level and dual - 1 is c + (level - 1)
    assert dual.T.dual == -1 - level and dual.T.T is dual
    assert dual.name == "C" and dual.length == 4 and dual.primary is c
    assert (dual.is_batch, dual.has_role("channel"), dual.is_channel) == ((True,) * 3 if level == 0 else (False,) * 3)
    assert dual.label == "C" + {-3: "'''", -2: "''", -1: "'", 0: ""}.get(level, f"+{level}")
    c.length = 7
    assert dual.length == 7
    c.name = "K"
    assert dual.name == "K"


def test_dual_of_axes():
    a = Axes(POOL[:2])
    assert (a - 1) == Axes([POOL[0] - 1, POOL[1] - 1]) == a.get_dual() == a.T and (a - 1) + 1 == a and a.get_dual(2) == a + 2


# ---- flags ------------------------------------------------------------------------------------------------------------

FLAGS = {"is_batch": ("batch", "N"), "is_recurrent": ("recurrent", "REC"), "is_channel": ("channel", "C")}


@pytest.mark.parametrize("flag", FLAGS)
def test_flags_come_from_the_argument_else_from_the_last_component_of_the_name(flag):
    argument, name = FLAGS[flag]
    assert getattr(make_axis(name=name), flag) and getattr(make_axis(name=f"ax.{name}"), flag)
    assert getattr(make_axis(name="H", **{argument: True}), flag)
    assert not getattr(make_axis(name=name, **{argument: False}), flag)
    assert not getattr(make_axis(name="H"), flag) and not getattr(make_axis(name=f"{name}.H"), flag)
    assert not getattr(make_axis(name=name) - 1, flag)
    for other in FLAGS:
        assert other == flag or not getattr(make_axis(name=name), other)


def test_one_name_with_unlike_flags_meeting_is_an_error():
    with pytest.raises(Clash) as e:
        merge([make_axis(3, name="H")], [make_axis(3, name="H", batch=True)])
    assert len(e.value.pairs) == 1


def test_two_known_lengths_meeting_are_an_error_that_holds_every_pair():
    a, b = make_axis(3, name="H"), make_axis(4, name="H")
    c, d = make_axis(5, name="W"), make_axis(6, name="W")
    with pytest.raises(Clash) as e:
        merge([a, c], [b, d])
    assert [(x.length, y.length) for x, y in e.value.pairs] == [(3, 4), (5, 6)]
    unknown = make_axis(name="H")
    assert merge([unknown], [a]) == (a,) and merge([a], [unknown]) == (a,)
    assert merge(("H", "W"), ("W", "C")) == ("H", "W", "C")  # ids of a program


# ---- Axes: a list without repeats, and a set --------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(lists, lists)
def test_algebra(a, b):
    x, y = Axes(a), Axes(b)
    assert list(x) == a and len(x) == len(a)
    assert list(x | y) == a + [c for c in b if c not in a]
    assert list(x & y) == [c for c in a if c in b] == list(x.intersect(y))
    assert list(x - y) == [c for c in a if c not in b]
    assert x.is_sub_set(y) == (set(a) <= set(b)) and x.is_super_set(y) == (set(a) >= set(b))
    assert x.is_equal_set(y) == (set(a) == set(b)) == x.has_same_axes(y) != x.is_not_equal_set(y)
    assert (x == y) == (a == b)
    if set(a) & set(b):
        with pytest.raises(AxisError, match=r"on both sides of \+"):
            x + y
    else:
        assert list(x + y) == a + b
        assert list(a + y) == a + b
    assert ((x - y) | (x & y)).is_equal_set(x) and not (x - y) & y


@settings(max_examples=100, deadline=None)
@given(lists, st.integers(-6, 6), st.integers(-6, 6), st.sampled_from([None, 1, 2, -1]))
def test_order(a, start, stop, stride):
    x = Axes(a)
    part = x[start:stop:stride]
    assert type(part) is Axes and list(part) == a[start:stop:stride]
    assert x.names == tuple(c.name for c in a) and x.lengths == tuple(c.length for c in a)
    size = 1
    for c in a:
        size *= c.length
        assert x.index(c) == a.index(c) and c in x
    assert x.size == size


@settings(max_examples=100, deadline=None)
@given(lists, st.sampled_from(POOL))
def test_one_axis_stands_for_axes_of_one(a, c):
    x = Axes(a)
    assert x | c == x | Axes([c]) and x & c == x & Axes([c]) and x - c == x - Axes([c])
    assert c | x == Axes([c]) | x and c & x == Axes([c]) & x and c - x == Axes([c]) - x
    if c not in x:
        assert x + c == Axes([*a, c]) and c + x == Axes([c, *a])


def test_what_axes_are_made_of():
    a, b = POOL[:2]
    assert Axes(a) == Axes([a]) == Axes((a,)) == make_axes([a]) == a.axes and Axes() == Axes(None) == Axes([])
    assert list(Axes(x for x in (a, b))) == [a, b]
    d = Axes({"P": 3, "Q": None})
    assert d.names == ("P", "Q") and d.lengths == (3, None) and d.size is None
    d.set_shape([3, 4])
    assert d.size == 12
    with pytest.raises(ValueError):
        d.set_shape([3])


@pytest.mark.parametrize("twice", [[POOL[0], POOL[0]], [POOL[0], make_axis(9, name="A")]])
def test_no_axis_stands_twice_even_of_another_length(twice):
    with pytest.raises(AxisError, match="A occurs twice in .*\n.*fix: use the dual"):
        Axes(twice)


def test_what_is_no_axis_is_refused():
    for wrong in ([3], [None], "3", "H==3", "H:3", "H=-3", "H=3.5", ["'H"]):
        with pytest.raises(AxisError, match="is not an axis"):
            Axes(wrong)


def test_kinds_of_axes():
    n, rec, c, h, role = make_axis(8, "ax.N"), make_axis(5, "REC"), make_axis(3, "C"), make_axis(2, "H"), make_axis(2, "W", roles=["wide"])
    x = Axes([c, n, rec, h, role, n - 1])
    assert x.batch_axis() is n and list(x.batch_axes()) == [n]
    assert x.recurrent_axis() is rec and list(x.recurrent_axes()) == [rec]
    assert x.channel_axis() is c
    assert list(x.sample_axes()) == [c, rec, h, role, n - 1]
    assert list(x.feature_axes()) == [c, h, role, n - 1] and list(x.spatial_axes()) == [h, role, n - 1]
    assert list(x.role_axes("wide")) == [role]
    none = Axes([h])
    assert none.batch_axis() is none.recurrent_axis() is none.channel_axis() is None and none.batch_axes() == Axes()


def test_finding_by_name():
    n, h = make_axis(8, "ax.N"), make_axis(2, "H")
    x = Axes([n, h, h - 1])
    assert list(x.find_by_name("H")) == [h, h - 1] and list(x.find_by_name("N")) == list(x.find_by_name("ax.N")) == [n]
    assert x.get_by_names("N") is n and x.get_by_names("H", "N") == (h, n)
    with pytest.raises(KeyError, match="no axis Q in"):
        x.get_by_names("Q")


def test_axes_are_hashable_values():
    assert hash(Axes(POOL[:2])) == hash(Axes(POOL[:2])) and len({Axes(POOL[:2]), Axes(POOL[:2]), Axes(POOL[1::-1])}) == 2
    assert repr(Axes(POOL[:2])) == "Axes(A=2, B=3)" and type(Axes(POOL)[0]) is Axis


def test_halves_that_are_joined_again_and_again_stay_short():
    x = y = ng.placeholder("T=? D=2")
    for _ in range(20):
        y = ng.concat_along_axis([y["T", 1::2], ng.pad(y["T", ::2], {"T": (0, 1)})], "T")
    assert y.axes.find_axis("T").size == x.axes.find_axis("T").size + 20
