"""einsum and rearrange by axis names, against NumPy's einsum and plain reshapes; and out_axes where a result's axes are chosen."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import AxisError

H, K, N, B, P = (ng.make_axis(n, name=a) for n, a in ((3, "H"), (4, "K"), (5, "N"), (2, "B"), (6, "P")))
R = np.random.default_rng(0)


@pytest.fixture(params=["direct", "numpy", "cpu"])
def compute(request):
    def run(op, *parameters, values):
        with ngt.make_transformer_factory(request.param)() as transformer:
            return transformer.computation(op, *parameters)(*values)

    return run


def tensors(*axes):
    return [ng.placeholder(a, dtype="float64") for a in axes], [R.normal(size=[len(x) for x in a]) for a in axes]


EINSUMS = [
    ("H K, K N -> H N", [(H, K), (K, N)], "hk,kn->hn"),
    ("K H, K N -> N H", [(H, K), (K, N)], "hk,kn->nh"),  # on the left the order of names means nothing
    ("H K, K N -> ", [(H, K), (K, N)], "hk,kn->"),
    ("H K -> H", [(H, K)], "hk->h"),
    ("H K -> K H", [(H, K)], "hk->kh"),
    ("H K, H K -> H K", [(H, K), (K, H)], "hk,kh->hk"),
    ("H, K -> K H", [(H,), (K,)], "h,k->kh"),
    ("B H K, B K N -> B H N", [(B, H, K), (B, K, N)], "bhk,bkn->bhn"),
    ("H K, K N, N P -> H P", [(H, K), (K, N), (N, P)], "hk,kn,np->hp"),
    ("H K, K N, N P, P B, H -> B", [(H, K), (K, N), (N, P), (P, B), (H,)], "hk,kn,np,pb,h->b"),
    ("... K, K N -> ... N", [(B, H, K), (K, N)], "bhk,kn->bhn"),
    ("... K, ... K -> ...", [(B, K), (H, K)], "bk,hk->bh"),
]


@pytest.mark.parametrize(("pattern", "axes", "numpy"), EINSUMS, ids=[e[0] for e in EINSUMS])
def test_einsum_is_that_of_numpy(compute, pattern, axes, numpy):
    xs, values = tensors(*axes)
    made = ng.einsum(pattern, *xs)
    expected = np.einsum(numpy, *values)
    slopes = ng.deriv(ng.sum(made * made, out_axes=()), xs)
    got = compute([made, *slopes], *xs, values=values)
    np.testing.assert_allclose(got[0], expected, rtol=1e-12)
    left, right = numpy.split("->")
    letters = left.split(",")
    for k, slope in enumerate(got[1:]):  # the derivative of the sum of squares is twice the result, contracted with the others
        others = [v for j, v in enumerate(values) if j != k]
        spelled = ",".join([right, *(s for j, s in enumerate(letters) if j != k)])
        missing = "".join(c for c in letters[k] if c not in spelled)  # summed away by nobody else: the same along it
        plain = np.einsum(f"{spelled}->{''.join(c for c in letters[k] if c not in missing)}", 2 * expected, *others)
        shape = [1 if c in missing else n for c, n in zip(letters[k], values[k].shape, strict=True)]
        np.testing.assert_allclose(slope, np.broadcast_to(plain.reshape(shape), values[k].shape), rtol=1e-10)
    chosen = ng.einsum(*xs, out_axes=made.axes)
    np.testing.assert_allclose(compute(chosen, *xs, values=values), expected, rtol=1e-12)


def test_many_operands_meet_where_the_product_is_small():
    wide = ng.make_axis(1000, name="W")
    xs = [ng.placeholder(a) for a in ((wide, H), (wide, K), (K,), (H,))]
    made = ng.einsum("W H, W K, K, H -> W", *xs)
    sizes = [np.prod(o.axes.lengths) for o in made.ordered_ops([made]) if o.opdef.name == "contract"]
    assert len(sizes) == 3 and max(sizes) == 1000  # never W by H by K


def test_einsum_by_duals_and_scopes(compute):
    ax = ng.make_name_scope("ax")
    ax.H = ng.make_axis(3)
    w, x = ng.placeholder([ax.H, ax.H - 1]), ng.placeholder([ax.H])
    values = R.normal(size=(3, 3)), R.normal(size=3)
    np.testing.assert_allclose(compute(ng.einsum("H H', H -> H'", w, x), w, x, values=values), values[0].T @ values[1], rtol=1e-5)
    y = ng.placeholder([H])  # another axis that is called H, too
    np.testing.assert_allclose(compute(ng.einsum("H, H ->", x, y), x, y, values=(values[1], values[1])), values[1] @ values[1], rtol=1e-5)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("H K, K N", "->"),
        ("H K -> H", "names 1 operands, and there are 2"),
        ("H K, K -> H", "does not name [N=5]"),
        ("H K, K N -> H P", "P on the right"),
        ("H H, K N -> H", "H occurs twice"),
        ("H K, K N -> (H N)", "brackets"),
        ("H K, K Q -> H", "Q is not an axis"),
        ("HK,KN->HN", "write blanks between: H K"),
        ("H K, K N -> H & N", "'& N'"),
        ("... K, K N -> N", "... on the left only, for [H=3]"),
    ],
)
def test_einsum_says_what_is_wrong(pattern, said):
    with pytest.raises(AxisError) as error:
        ng.einsum(pattern, ng.placeholder([H, K]), ng.placeholder([K, N]))
    assert said in str(error.value) and "fix:" in str(error.value)


def test_einsum_refuses_unlike_lengths_and_both_forms():
    with pytest.raises(AxisError, match="length 4 in .* and 7 in"):
        ng.einsum(ng.placeholder([H, K]), ng.placeholder([ng.make_axis(7, name="K")]), out_axes=[H])
    with pytest.raises(AxisError, match="either a pattern or out_axes"):
        ng.einsum(ng.placeholder([H]), ng.placeholder([H]))
    with pytest.raises(AxisError, match="no operand"):
        ng.einsum(ng.placeholder([H]), out_axes=[K])


C, Q = ng.make_axis(12, name="C"), ng.make_axis(10, name="Q")
REARRANGED = [
    ("N (A D) -> N A D", {"A": 3}, (N, C), lambda v: v.reshape(5, 3, 4)),
    ("N (A D) -> D N A", {"D": 2}, (N, C), lambda v: v.reshape(5, 6, 2).transpose(2, 0, 1)),
    ("N C -> C N", {}, (N, C), lambda v: v.T),
    ("C N -> (N C)", {}, (N, C), lambda v: v.reshape(60)),
    ("C N -> (C N)", {}, (N, C), lambda v: v.T.reshape(60)),
    ("N (A D) -> (A N) D", {"A": 3}, (N, C), lambda v: v.reshape(5, 3, 4).transpose(1, 0, 2).reshape(15, 4)),
    ("(A D) (E F) -> A E D F", {"A": 3, "F": 5}, (C, Q), lambda v: v.reshape(3, 4, 2, 5).transpose(0, 2, 1, 3)),
    ("N (C A) -> A N C", {"A": 4}, (N, C), lambda v: v.reshape(5, 3, 4).transpose(2, 0, 1)),
    ("(C A) (Q D) -> (A D) C Q", {"A": 2, "D": 5}, (C, Q), lambda v: v.reshape(6, 2, 2, 5).transpose(1, 3, 0, 2).reshape(10, 6, 2)),
    ("N ... -> ... N", {}, (N, C, H), lambda v: v.transpose(1, 2, 0)),
]


@pytest.mark.parametrize(("pattern", "lengths", "axes", "plain"), REARRANGED, ids=[r[0] for r in REARRANGED])
def test_rearrange_is_reshape_and_transpose(compute, pattern, lengths, axes, plain):
    (x,), (v,) = tensors(axes)
    made = ng.rearrange(x, pattern, **lengths)
    expected = plain(v)
    slope = ng.deriv(made, x, error=made)
    got, back = compute([made, slope], x, values=[v])
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(back, v)
    assert made.axes.lengths == expected.shape


def test_rearrange_goes_back_by_the_parts_that_an_axis_remembers(compute):
    (x,), (v,) = tensors((N, H, K))
    joined = ng.rearrange(x, "N H K -> (K H) N")
    again = ng.rearrange(joined, "(K H) N -> N H K")
    assert again.axes == x.axes and joined.axes.lengths == (12, 5)
    np.testing.assert_array_equal(compute(again, x, values=[v]), v)
    dotted = ng.rearrange(joined, "(K H) ... -> ... K H")
    np.testing.assert_array_equal(compute(dotted, x, values=[v]), v.transpose(0, 2, 1))


def test_rearrange_takes_axes_for_lengths_and_lengths_that_come_later(compute):
    M = ng.make_axis(name="M")
    x, v = ng.placeholder([M, H], dtype="float64"), R.normal(size=(8, 3))
    made = ng.rearrange(x, "(A D) H -> D (A H)", D=ng.make_axis(2, name="D"))
    np.testing.assert_array_equal(compute(made, x, values=[v]), v.reshape(4, 2, 3).transpose(1, 0, 2).reshape(2, 12))


@pytest.mark.parametrize(
    ("pattern", "lengths", "said"),
    [
        ("N (A D) -> N A D", {}, "lengths of A, D"),
        ("N (A D) -> N A D", {"A": 5}, "cannot be split into"),
        ("N (A D) -> N A", {"A": 3}, "D stands on one side"),
        ("N -> N", {}, "names 1 axes of [N=5, C=12]"),
        ("N C Z -> N C Z", {}, "Z is not an axis"),
        ("N (C -> N C", {}, "brackets"),
        ("N C -> C N", {"A": 3}, "in no bracket"),
        ("N C -> C N", {"N": 4}, "in no bracket"),
        ("N, C -> C N", {}, "more than one tensor"),
        ("N N -> N", {}, "N occurs twice"),
    ],
)
def test_rearrange_says_what_is_wrong(pattern, lengths, said):
    with pytest.raises(AxisError) as error:
        ng.rearrange(ng.placeholder([N, C]), pattern, **lengths)
    assert said in str(error.value)


def test_out_axes_choose_the_order_of_results(compute):
    (x, y), (v, w) = tensors((H, K), (K, N))
    index = ng.placeholder([B], dtype="int32")
    made = [ng.dot(x, y, out_axes=[N, H]), ng.take(x, index, K, out_axes=[B, H]), ng.sum(x, out_axes=[K]), ng.logsumexp(x, out_axes=[K])]
    got = compute(made, x, y, index, values=[v, w, [2, 0]])
    assert [m.axes for m in made] == [(N, H), (B, H), (K,), (K,)]
    for g, e in zip(got, [(v @ w).T, v[:, [2, 0]].T, v.sum(0), np.log(np.exp(v).sum(0))], strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-12)
    f = ng.placeholder([ng.make_axis(2, name="K"), P])
    image, taps = R.normal(size=(3, 4)), R.normal(size=(2, 6))
    hot, filtered = ng.one_hot(index, H, out_axes=[B, H]), ng.conv(x, f, {"K": "K"}, out_axes=[P, K, H])
    got = compute([hot, filtered], index, x, f, values=[[2, 0], image, taps])
    np.testing.assert_array_equal(got[0], np.eye(3)[[2, 0]])
    windows = np.lib.stride_tricks.sliding_window_view(image, 2, axis=1)
    np.testing.assert_allclose(got[1], np.einsum("hkw,wp->pkh", windows, taps), rtol=1e-5)
    with pytest.raises(AxisError, match="not an order of"):
        ng.dot(x, y, out_axes=[H])
