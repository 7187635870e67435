"""Each feature once, in the order of the docs: the first file to read. Every test runs on each transformer."""

import threading

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError, AxisError, GraphError, StateError
from ngraph.op_graph import opdef
from ngraph.util.utils import executor


@pytest.fixture(params=["direct", "numpy"], autouse=True)
def transformer_name(request, monkeypatch):
    monkeypatch.setenv("NGRAPH_TRANSFORMER", request.param)
    with ng.config(transformer=request.param):
        yield request.param


def compute(op, *parameters, values=()):
    """The value of one op on a fresh transformer."""
    return executor(op, *parameters)(*values)


# ---- named axes ----------------------------------------------------------------------------------------------------------


def test_axes_are_names_with_lengths():
    ax = ng.make_name_scope("ax")
    ax.N = ng.make_axis(128, batch=True)
    ax.C = ng.make_axis(4)
    assert (ax.N.name, ax.N.is_batch, ax.C.is_batch) == ("ax.N", True, False)
    assert (ax.C - 1) + 1 == ax.C and ax.C - 1 != ax.C and ax.C.T == ax.C - 1
    assert (ng.make_axes([ax.C]) + ax.N).lengths == (4, 128)
    assert ng.make_axis(3, name="N").is_batch and not ng.make_axis(3, name="N", batch=False).is_batch


def test_operands_meet_by_name_whatever_their_order():
    A, B = ng.make_axis(2, name="A"), ng.make_axis(3, name="B")
    a, b = np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(3, 2) * 10
    x, y = ng.placeholder([A, B]), ng.placeholder([B, A])
    assert (x + y).axes == x.axes
    np.testing.assert_array_equal(compute(x + y, x, y, values=(a, b)), a + b.T)
    z = ng.placeholder([B])
    np.testing.assert_array_equal(compute(z * x, x, z, values=(a, [1, 2, 3])), a * [1, 2, 3])


def test_dot_pairs_duals_then_equal_axes():
    H, N, K = ng.make_axis(3, name="H"), ng.make_axis(5, name="N"), ng.make_axis(2, name="K")
    r = np.random.default_rng(0)
    w, h, k = r.normal(size=(3, 3)), r.normal(size=(3, 5)), r.normal(size=(2, 3))
    W, X, U = ng.placeholder([H, H - 1]), ng.placeholder([H, N]), ng.placeholder([K, H])
    np.testing.assert_allclose(compute(ng.dot(W, X), W, X, values=(w, h)), w @ h, rtol=1e-5)
    np.testing.assert_allclose(compute(U @ X, U, X, values=(k, h)), k @ h, rtol=1e-5)
    assert ng.dot(W, X).axes == ng.make_axes([H, N]) and (U @ X).axes == ng.make_axes([K, N])


def test_lengths_may_come_with_the_call():
    N, C = ng.make_axis(name="N"), ng.make_axis(name="C")
    x = ng.placeholder([N, C])
    with executor([ng.sum(x, out_axes=()), ng.mean(x, out_axes=[N])], x) as f:
        for shape in ((2, 3), (5, 1), (1, 7), (0, 4)):
            a = np.ones(shape, np.float32)
            total, means = f(a)
            assert total == a.size
            np.testing.assert_array_equal(means, np.ones(shape[0]))


def test_axes_that_do_not_fit_are_refused_when_the_graph_is_built():
    x, y = ng.placeholder([ng.make_axis(4, name="C")]), ng.placeholder([ng.make_axis(5, name="C")])
    with pytest.raises(AxisError, match="axis C has length 4 in placeholder and 5"):
        x + y


# ---- ops -----------------------------------------------------------------------------------------------------------------


def test_arithmetic_and_functions():
    x = ng.placeholder([ng.make_axis(4)])
    v = np.array([0.5, -1.5, 2.0, 3.0], np.float32)
    for op, expected in (
        (x + 1, v + 1),
        (2 - x, 2 - v),
        (x * x / 3, v * v / 3),
        (x**2, v**2),
        (x // 2, v // 2),
        (x % 2, v % 2),
        (7 // x, 7 // v),
        (-x, -v),
        (abs(x), abs(v)),
        (ng.exp(x), np.exp(v)),
        (ng.tanh(x), np.tanh(v)),
        (ng.sigmoid(x), 1 / (1 + np.exp(-v))),
        (ng.maximum(x, 1), np.maximum(v, 1)),
        (ng.where(x < 1, x, 0), np.where(v < 1, v, 0)),
        (x >= 2, v >= 2),
    ):
        np.testing.assert_allclose(compute(op, x, values=(v,)), expected, rtol=2e-6)
    assert (x < 1).dtype is ng.bool_ and (x + 1).dtype is ng.float32


def test_dtypes_promote_and_numbers_are_weak():
    i, h, d = (ng.placeholder((), dtype=t) for t in ("int32", "float16", "float64"))
    assert [(i + 1).dtype, (i + 1.5).dtype, (i / 2).dtype, (i + h).dtype, (h + 1.5).dtype, (h + d).dtype] == [
        ng.int32,
        ng.float32,
        ng.float32,
        ng.float16,
        ng.float16,
        ng.float64,
    ]
    assert compute(i // 4, i, values=(-7,)) == -2 and compute(i % 4, i, values=(-7,)) == 1 and compute(i // 0, i, values=(3,)) == 0


def test_reductions_keep_the_batch_axis():
    N, REC, C = ng.make_axis(2, name="N"), ng.make_axis(3, name="REC"), ng.make_axis(4, name="C")
    x = ng.placeholder([C, REC, N])
    v = np.random.default_rng(1).normal(size=(4, 3, 2)).astype(np.float32)
    np.testing.assert_allclose(compute(ng.sum(x), x, values=(v,)), v.sum(0), rtol=1e-5)
    np.testing.assert_allclose(compute(ng.mean(x), x, values=(v,)), v.mean(0), rtol=1e-5)
    np.testing.assert_allclose(compute(ng.max(x, out_axes=[N, C]), x, values=(v,)), v.max(1).T)
    np.testing.assert_allclose(compute(ng.variance(x, reduction_axes=[REC]), x, values=(v,)), v.var(1), rtol=1e-4)
    assert compute(ng.tensor_size(ng.placeholder([N]))) == 1 and compute(ng.batch_size(x)) == 2


def test_softmax_and_cross_entropies():
    N, C = ng.make_axis(3, name="N"), ng.make_axis(4, name="C")
    logits = np.random.default_rng(2).normal(size=(4, 3)).astype(np.float32) * 30
    target = np.eye(4, dtype=np.float32)[[1, 3, 0]].T
    x, t = ng.placeholder([C, N]), ng.placeholder([C, N])
    shifted = logits.astype(np.float64) - logits.max(0)
    log_softmax = shifted - np.log(np.exp(shifted).sum(0))
    np.testing.assert_allclose(compute(ng.softmax(x), x, values=(logits,)), np.exp(log_softmax), rtol=1e-5, atol=1e-7)
    loss = ng.cross_entropy_multi(ng.softmax(x), t)
    np.testing.assert_allclose(compute(loss, x, t, values=(logits, target)), -(target * log_softmax).sum(0), rtol=1e-5, atol=1e-6)


def test_axes_are_sliced_joined_moved_and_renamed():
    A, B = ng.make_axis(3, name="A"), ng.make_axis(4, name="B")
    v = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    x = ng.placeholder([A, B])
    for op, expected in (
        (x[1], v[1]),
        (x[:, 1:3], v[:, 1:3]),
        (x[..., ::-1], v[:, ::-1]),
        (ng.pad(x, [1, (0, 2)]), np.pad(v, ((1, 1), (0, 2)))),
        (ng.flatten(x), v.ravel()),
        (ng.axes_with_order(x, [B, A]), v.T),
        (ng.concat_along_axis([x, x], A), np.concatenate([v, v])),
        (ng.one_hot(ng.constant(np.array([2, 0]), [ng.make_axis(2, name="N")]), B), np.eye(4)[[2, 0]].T),
    ):
        np.testing.assert_array_equal(compute(op, x, values=(v,)) if op.placeholders() else compute(op), expected)


def test_convolution_and_pooling_by_axis_name():
    torch = pytest.importorskip("torch")
    N, C, H, W = (ng.make_axis(n, name=a) for n, a in ((2, "N"), (3, "C"), (8, "H"), (7, "W")))
    K, R, S = (ng.make_axis(n, name=a) for n, a in ((4, "K"), (3, "R"), (3, "S")))
    r = np.random.default_rng(3)
    x, f = r.normal(size=(2, 3, 8, 7)).astype(np.float32), r.normal(size=(4, 3, 3, 3)).astype(np.float32)
    X, F = ng.placeholder([N, C, H, W]), ng.placeholder([K, C, R, S])
    y = ng.max_pool(ng.conv(X, F, {H: R, W: S}, stride=2, padding=1), {"H": 2, "W": 2}, stride=2)
    got = compute(y, X, F, values=(x, f))
    expected = torch.max_pool2d(torch.conv2d(torch.tensor(x), torch.tensor(f), stride=2, padding=1), 2)
    np.testing.assert_allclose(np.transpose(got, [y.axes.index(y.axes.find_by_name(a)[0]) for a in "NKHW"]), expected, rtol=1e-4, atol=1e-5)


# ---- derivatives -----------------------------------------------------------------------------------------------------------


def test_derivatives_of_any_order():
    v = ng.variable((), initial_value=2).named("v")
    cube = v * v * v
    first = ng.deriv(cube, v)
    assert [float(x) for x in compute([cube, first, ng.deriv(first, v)])] == [8, 12, 12]


def test_a_vector_jacobian_product():
    A = ng.make_axis(3, name="A")
    x, e = ng.placeholder([A]), ng.placeholder([A])
    got = compute(ng.deriv(ng.exp(x), x, error=e), x, e, values=([0.0, 1, 2], [1, 10, 100]))
    np.testing.assert_allclose(got, np.exp([0, 1, 2]) * [1, 10, 100], rtol=1e-6)


def test_where_derivatives_are_easily_wrong():
    A = ng.make_axis(4, name="A")
    x = ng.placeholder([A])

    def slope(op, values):
        return list(map(float, compute(ng.deriv(ng.sum(op, out_axes=()), x), x, values=(values,))))

    assert slope(x / 2, [0, 1, 2, 3]) == [0.5] * 4
    assert slope(x**2, [0, 1, 2, 3]) == [0, 2, 4, 6]
    assert slope(ng.relu(x), [-1, 0, 1, 2]) == [0, 0, 1, 1]
    assert slope(ng.maximum(x, 1), [0, 1, 2, 3]) == [0, 0.5, 1, 1]
    assert slope(ng.max(x), [5, 1, 5, 0]) == [0.5, 0, 0.5, 0]
    assert slope(ng.prod(x), [2, 0, 3, 1]) == [0, 6, 0, 0]
    assert slope(ng.stop_gradient(x) * x, [1, 2, 3, 4]) == [1, 2, 3, 4]


# ---- state and order -------------------------------------------------------------------------------------------------------


def test_variables_keep_their_value_and_computations_share_it(tmp_path):
    A = ng.make_axis(2, name="A")
    v = ng.variable([A], initial_value=lambda axes: np.arange(axes[0].length)).named("v")
    x = ng.placeholder(())
    transformer = ngt.make_transformer()
    step = transformer.computation([ng.assign(v, v + x), v], x)
    look = transformer.computation(v)
    assert step(1)[1].tolist() == [1, 2] and step(10)[1].tolist() == [11, 12] and look().tolist() == [11, 12]
    transformer.save(tmp_path / "state.safetensors")
    step(5)
    transformer.restore(tmp_path / "state.safetensors")
    assert look().tolist() == [11, 12]


def test_the_order_of_effects_is_said_by_sequential():
    w = ng.variable((), initial_value=0)
    plain, ordered = w + 1, ng.sequential([ng.assign(w, 5), w + 1])
    assert [float(v) for v in compute([plain, ordered, w])] == [1, 6, 5]


def test_random_numbers_are_reproducible():
    A = ng.make_axis(1000, name="A")
    u, n = ng.uniform([A], low=-1, high=3), ng.normal([A], loc=2, scale=0.5)
    f = executor([u, n])
    (u1, n1), (u2, _) = f(), f()
    assert not np.array_equal(u1, u2) and -1 <= u1.min() < u1.max() < 3
    assert abs(u1.mean() - 1) < 0.2 and abs(n1.mean() - 2) < 0.1 and abs(n1.std() - 0.5) < 0.1
    g = executor([n, u])
    again = g()
    assert np.array_equal(again[0], n1) and np.array_equal(again[1], u1)


# ---- transformers and computations -------------------------------------------------------------------------------------------


def test_results_are_the_callers_own():
    x = ng.placeholder([ng.make_axis(3)])
    f = executor(x + 1, x)
    first, second = f([1, 2, 3]), f([4, 5, 6])
    first[:] = 0
    assert second.tolist() == [5, 6, 7] and [float(v) for v in f(0)] == [1, 1, 1]
    out = np.empty(3, np.float32)
    assert f([1, 1, 1], out=out) is out and out.tolist() == [2, 2, 2]


def test_results_have_the_shape_of_the_request():
    x = ng.placeholder(())
    a, b, v = x + 1, x + 2, ng.variable(())
    assert executor([a, b], x)(1) == (2, 3)
    assert executor({a, b}, x)(1) == {a: 2, b: 3}
    assert executor(ng.assign(v, x), x)(1) is None
    assert executor(a, x)(feed_dict={x: 4}) == 5


def test_arguments_are_checked():
    C = ng.make_axis(4, name="C")
    x = ng.placeholder([C]).named("x")
    f = executor(x * 2, x)
    strided = np.arange(16, dtype=np.float64)[::4]
    assert f(strided).tolist() == [0, 8, 16, 24] and f([1, 2, 3, 4]).tolist() == [2, 4, 6, 8]
    for wrong in (np.ones(5), np.ones((4, 1)), ["a"] * 4):
        with pytest.raises(ArgumentError, match="x"):
            f(wrong)
    with pytest.raises(ArgumentError, match="x"):
        f()
    with pytest.raises(GraphError, match="placeholder x"):
        executor(x * 2)


def test_after_initialize_no_computation_can_be_added():
    x = ng.placeholder(())
    transformer = ngt.make_transformer()
    assert transformer.computation(x + 1, x)(1) == 2
    assert transformer.computation(x + 2, x)(1) == 3
    transformer.initialize()
    with pytest.raises(StateError, match="initialize"):
        transformer.computation(x + 3, x)


def test_transformers_are_chosen_by_name(transformer_name):
    assert {"direct", "numpy"} <= set(ngt.transformer_choices())
    assert ngt.make_transformer().name == transformer_name
    assert ngt.make_transformer_factory("direct")().name == "direct"


def test_a_computation_may_be_called_from_threads():
    x = ng.placeholder([ng.make_axis(100)])
    f = executor(ng.sum(x * x), x)
    wrong = []

    def work(k):
        for _ in range(50):
            if f(np.full(100, k)) != 100 * k * k:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_no_transformer_reads_a_reference(monkeypatch):
    for record in opdef.REGISTRY.values():
        monkeypatch.setattr(record, "reference", None)
    C, N = ng.make_axis(4, name="C"), ng.make_axis(5, name="N")
    x, w = ng.placeholder([C, N]), ng.variable([C - 1], initial_value=1)
    loss = ng.sum(ng.square(ng.sigmoid(ng.dot(w, x))), out_axes=())
    assert executor([loss, ng.assign(w, w - ng.deriv(loss, w))], x)(np.ones((4, 5)))[0] > 0


# ---- a network that learns -----------------------------------------------------------------------------------------------------


def test_a_small_network_learns():
    N, F, H, Y = (ng.make_axis(n, name=a) for n, a in ((64, "N"), (2, "F"), (16, "H"), (2, "Y")))
    r = np.random.default_rng(4)
    X, T = ng.placeholder([N, F]), ng.placeholder([N], dtype="int32")
    W1 = ng.variable([F, H], initial_value=r.normal(size=(2, 16)))
    W2 = ng.variable([H, Y], initial_value=r.normal(size=(16, 2)) * 0.3)
    b = ng.variable([H], initial_value=0)
    p = ng.softmax(ng.dot(ng.tanh(ng.dot(X, W1) + b), W2))
    loss = ng.mean(ng.cross_entropy_multi(p, ng.one_hot(T, Y)), out_axes=())
    assert set(loss.variables()) == {W1, W2, b}
    transformer = ngt.make_transformer()
    train = transformer.computation([loss, ng.doall(ng.assign(v, v - 0.5 * ng.deriv(loss, v)) for v in loss.variables())], X, T)
    test = transformer.computation(p, X)
    points = r.normal(size=(64, 2))
    label = (points[:, 0] * points[:, 1] > 0).astype(np.int32)
    losses = [float(train(points, label)[0]) for _ in range(300)]
    assert losses[-1] < 0.3 * losses[0]
    assert (np.argmax(test(points), axis=p.axes.index(Y)) == label).mean() > 0.9
