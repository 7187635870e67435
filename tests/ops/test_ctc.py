"""The loss of label sequences against PyTorch's: values and gradients in float64, also where nothing can be spelled."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import AxisError, DTypeError

torch = pytest.importorskip("torch")


def axes(T, C, N, L):
    return [ng.make_axis(n, name=name) for n, name in ((T, "REC"), (C, "Y"), (N, "N"), (L, "L"))]


def theirs(x, labels, steps, counts, w, blank=0):
    """PyTorch's losses, and the gradient with respect to the scores [T, C, N]."""
    t = torch.tensor(x.transpose(0, 2, 1), requires_grad=True)
    log = torch.log_softmax(t, -1)
    loss = torch.nn.functional.ctc_loss(
        log, torch.tensor(labels.T), torch.tensor(steps), torch.tensor(counts), blank=blank, reduction="none", zero_infinity=False
    )
    loss.backward(torch.tensor(w))
    return loss.detach().numpy(), t.grad.numpy().transpose(0, 2, 1)


def ours(x, labels, steps, counts, w, blank=0):
    T, C, N, L = axes(*x.shape, len(labels))
    xs = ng.placeholder([T, C, N], dtype="float64")
    rest = [ng.placeholder(a, dtype="int32") for a in ([L, N], [N], [N])]
    weights = ng.placeholder([N], dtype="float64")
    loss = ng.ctc(xs, *rest, blank=blank)
    with ngt.make_transformer() as transformer:
        both = transformer.computation([loss, ng.deriv(loss, xs, error=weights)], xs, *rest, weights)
        return both(x, *(np.asarray(a, np.int32) for a in (labels, steps, counts)), w)


CASES = {
    "lengths of all kinds": ([[1, 2, 3], [4, 1, 2], [2, 2, 4], [1, 4, 3]], [9, 7, 5, 3], [3, 2, 3, 1]),
    "repeated labels": ([[1, 1, 1], [2, 2, 1], [3, 4, 4], [4, 3, 4]], [9, 9, 4, 6], [3, 3, 3, 3]),
    "lengths 1": ([[1, 1, 1]] * 4, [1, 2, 1, 9], [1, 1, 1, 1]),
    "no labels": ([[1, 1, 1]] * 4, [1, 2, 5, 9], [0, 0, 0, 0]),
    "just enough steps": ([[1, 2, 3], [1, 1, 2], [1, 1, 1], [2, 1, 1]], [3, 4, 5, 2], [3, 3, 3, 2]),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_pytorch_s(case):
    labels, steps, counts = CASES[case]
    labels = np.array(labels).T
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(9, 5, 4)) * 3, rng.normal(size=4)
    if case == "just enough steps":
        steps = [3, 4, 5, 3]
    (value, slope), (their_value, their_slope) = ours(x, labels, steps, counts, w), theirs(x, labels, steps, counts, w)
    assert np.isfinite(their_value).all()
    np.testing.assert_allclose(value, their_value, rtol=1e-12)
    np.testing.assert_allclose(slope, their_slope, rtol=1e-9, atol=1e-13)


def test_another_blank():
    rng = np.random.default_rng(1)
    x, w, labels = rng.normal(size=(6, 4, 3)), rng.normal(size=3), np.array([[0, 1, 2], [0, 2, 1]])
    for a, b in zip(ours(x, labels, [6, 5, 4], [2, 2, 1], w, 3), theirs(x, labels, [6, 5, 4], [2, 2, 1], w, 3), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-13)


def test_a_long_sequence_does_not_underflow():
    rng = np.random.default_rng(2)
    x, w, labels = rng.normal(size=(400, 30, 2)) * 5, np.ones(2), rng.integers(1, 30, (60, 2))
    for a, b in zip(ours(x, labels, [400, 311], [60, 41], w), theirs(x, labels, [400, 311], [60, 41], w), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12)


def test_what_cannot_be_spelled_is_infinite_and_leaves_others_alone():
    """As with zero_infinity=False: the gradient is not a number in the steps that count, 0 after them."""
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=(6, 5, 4)), rng.normal(size=4)
    labels, steps, counts = np.array([[1, 1, 1, 1], [1, 2, 1, 2], [2, 3, 3, 3]]), [6, 2, 1, 4], [3, 3, 2, 3]
    (value, slope), (their_value, their_slope) = ours(x, labels, steps, counts, w), theirs(x, labels, steps, counts, w)
    assert list(np.isinf(their_value)) == [False, True, True, False]
    np.testing.assert_allclose(value, their_value, rtol=1e-12)
    for n in range(4):
        if np.isfinite(their_value[n]):
            np.testing.assert_allclose(slope[:, :, n], their_slope[:, :, n], rtol=1e-9, atol=1e-13)
        else:
            assert np.isnan(slope[: steps[n], :, n]).all() and not slope[steps[n] :, :, n].any()
            assert np.isnan(their_slope[: steps[n], :, n]).any() and not their_slope[steps[n] :, :, n].any()


def test_labels_one_after_another_are_the_same_as_in_rows():
    rng = np.random.default_rng(4)
    T, C, N, L = axes(6, 5, 3, 3)
    x = rng.normal(size=(6, 5, 3))
    rows, counts, steps = np.array([[1, 2, 3], [4, 4, 0], [2, 0, 0]]), np.array([3, 2, 1], np.int32), np.array([6, 5, 4], np.int32)
    packed = np.concatenate([r[:k] for r, k in zip(rows, counts, strict=True)] + [[0, 0]]).astype(np.int32)
    xs = ng.placeholder([T, C, N], dtype="float64")
    P = ng.make_axis(len(packed), name="P")
    a, b, p, q = (ng.placeholder(axes, dtype="int32") for axes in ([N, L], [P], [N], [N]))
    with ngt.make_transformer() as transformer:
        f = transformer.computation([ng.ctc(xs, a, p, q), ng.ctc(xs, b, p, q, axes=[N])], xs, a, b, p, q)
        one, other = f(x, rows.astype(np.int32), packed, steps, counts)
    np.testing.assert_array_equal(one, other)
    assert one.shape == (3,) and np.isfinite(one).all()


def test_it_trains():
    """Scores that follow the gradient come to spell the labels."""
    T, C, N, L = axes(8, 4, 2, 3)
    scores = ng.variable([T, C, N], initial_value=lambda: np.random.default_rng(5).normal(size=(8, 4, 2)))
    labels = ng.constant(np.array([[1, 3], [2, 3], [1, 2]], np.int32), [L, N])
    lengths = [ng.constant(np.array(v, np.int32), [N]) for v in ([8, 8], [3, 3])]
    loss = ng.sum(ng.ctc(scores, labels, *lengths), out_axes=())
    with ngt.make_transformer() as transformer:
        step = transformer.computation([loss, ng.assign(scores, scores - ng.deriv(loss, scores))])
        losses = [float(step()[0]) for _ in range(100)]
        best = transformer.get(scores).argmax(axis=1)
    assert losses[0] > 2 and losses[-1] < 0.2
    spelled = [[int(k) for k, before in zip(column, [0, *column], strict=False) if k and k != before] for column in best.T]
    assert spelled == [[1, 2, 1], [3, 3, 2]]


def test_what_is_no_such_loss_is_refused():
    T, C, N, L = axes(4, 3, 2, 2)
    x, labels, lengths = ng.placeholder([T, C, N]), ng.placeholder([L, N], dtype="int32"), ng.placeholder([N], dtype="int32")
    for wrong in ([C, N], [T, N], [T, C, L, N]):
        with pytest.raises(AxisError, match="ctc"):
            ng.ctc(ng.placeholder(wrong), labels, lengths, lengths)
    with pytest.raises((AxisError, DTypeError), match="ctc"):
        ng.ctc(x, labels, x, lengths)
