"""`==` and `!=` of ops: tensors in a graph, identity in containers, refused where a truth is tested."""

import copy

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import AxisError, GraphError, user_line
from ngraph.ops.equality import Equality

A = ng.make_axis(3, name="A")
P, Q = ng.placeholder([A]).named("p"), ng.placeholder([A]).named("q")
p_, q_ = np.array([0, 1, np.nan], np.float32), np.array([0, 2, np.nan], np.float32)


def computed(*ops):
    return [np.asarray(x) for x in ngt.make_transformer().computation(list(ops), P, Q)(p_, q_)]


IN_GRAPHS = {
    "where": (lambda: ng.where(P == Q, 5.0, 7.0), lambda: np.where(p_ == q_, 5.0, 7.0)),
    "where not": (lambda: ng.where(P != Q, 5.0, 7.0), lambda: np.where(p_ != q_, 5.0, 7.0)),
    "mean": (lambda: ng.mean(P == Q), lambda: (p_ == q_).mean()),
    "a number": (lambda: P == 1, lambda: p_ == 1),
    "a number before": (lambda: 1 == P, lambda: p_ == 1),
    "a NumPy number": (lambda: np.float32(1) == P, lambda: p_ == 1),
    "an array": (lambda: P == q_, lambda: p_ == q_),
    "an array before": (lambda: q_ != P, lambda: p_ != q_),
    "a list": (lambda: P == [0, 1, 2], lambda: p_ == [0, 1, 2]),
    "itself": (lambda: P == P, lambda: p_ == p_),
    "operators": (lambda: ~(P == Q) | (P == 1), lambda: ~(p_ == q_) | (p_ == 1)),
    "arithmetic": (lambda: (P == Q) * 2 + 1, lambda: (p_ == q_) * 2.0 + 1),
    "an equality of equalities": (lambda: (P == 1) == (Q == 1), lambda: (p_ == 1) == (q_ == 1)),
    "a result": (lambda: P == Q, lambda: p_ == q_),
}


@pytest.mark.parametrize("name", IN_GRAPHS)
def test_in_a_graph_it_compares_values(name):
    made, wanted = IN_GRAPHS[name]
    (got,) = computed(made())
    np.testing.assert_array_equal(got, wanted())


def test_in_containers_it_is_identity():
    twin = P + 0
    assert P in [Q, P] and P not in [Q, twin] and [Q, P].index(P) == 1 and [Q, P, P].count(P) == 2
    assert ([P, Q] == [P, Q]) is True and ([P] == [Q]) is False and ([P] != [twin]) is True and ((P, 1) == (P, 1)) is True
    assert {P: 1, Q: 2}[Q] == 2 and len({P, Q, P, twin}) == 3 and twin not in {P: 1} and P not in [1, "p", None, A, p_]
    ops = [P, Q, twin]
    ops.remove(twin)
    assert ops == [P, Q] and any(o == Q for o in ops) and copy.copy(ops) == ops


def test_a_search_adds_nothing_to_the_graph_and_cannot_fail():
    other = ng.placeholder([ng.make_axis(4, name="A")])
    with ng.Op.all_ops() as made:
        assert other not in [P, ng.assign(ng.variable(()), 0)]
    assert [o.opdef.name for o in made] == ["variable", "constant", "assign"]


def test_what_can_be_no_tensor_is_never_equal():
    assert (P == None) is False and (P != None) is True and (P == "p") is False and (P == A) is False  # noqa: E711


TESTS = ["if P == Q: pass", "if P != Q: pass", "assert P == Q", "not (P == Q)", "P == 3 and 1", "P == Q or 1", "while P == Q: pass"]
TESTS += ["1 if P == P else 2", "[x for x in [P] if x == Q]", "0 == P == 0"]


@pytest.mark.parametrize("line", TESTS)
def test_a_test_of_its_truth_is_refused(line):
    with pytest.raises(GraphError, match="no value while the graph is built"):
        exec(line, {"P": P, "Q": Q})


def test_once_used_it_is_an_op_like_any_other():
    with ng.Op.all_ops() as made:
        same = P == Q
    assert not made and type(same) is Equality
    line = same.line
    assert type(same) is ng.Op and same.dtype is ng.bool_ and same.axes == P.axes and line[0] == __file__
    with pytest.raises(GraphError), ng.Op.all_ops() as made:
        bool((P == Q).named("same"))
    assert [o.label for o in made] == ["same"]


def test_axes_that_do_not_fit_are_told_at_the_line_that_compares():
    other = ng.placeholder([ng.make_axis(4, name="A")])
    here, same = user_line(), P == other
    with pytest.raises(AxisError, match="length 3 in p and 4") as told:
        ng.where(same, 1, 0)
    assert told.value.line == here
