"""`ng.linalg` on matrices of several blocks, against NumPy; gradients against PyTorch in float64; what is refused."""

import numpy as np
import pytest
import torch

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import AxisError
from ngraph.util.utils import executor


def drawn(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def positive(n, *batch):
    x = drawn((*batch, n, n))
    return x @ np.swapaxes(x, -1, -2) + n * np.eye(n)


def made(function, array, names="i j", dtype="float64", **feeds):
    """The results of a function of one tensor whose last axes have these names."""
    names = [*(f"b{k}" for k in range(array.ndim - len(names.split()))), *names.split()]
    x = ng.placeholder(" ".join(f"{a}={n}" for a, n in zip(names, array.shape, strict=True)), dtype=dtype)
    results = function(x)
    with executor(list(results) if isinstance(results, tuple) else results, x) as f:
        return f(array.astype(dtype))


@pytest.mark.parametrize("n", [1, 7, 63, 64, 65, 129, 200])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_factors_of_several_blocks(n, dtype):
    near = {"rtol": 1e-4, "atol": 1e-4} if dtype == "float32" else {"rtol": 1e-10, "atol": 1e-10}
    a = positive(n)
    np.testing.assert_allclose(made(lambda x: ng.linalg.cholesky(x, "i", "j"), a, dtype=dtype), np.linalg.cholesky(a), **near)
    b = drawn((n, n), 1)
    order, lower, upper = made(lambda x: ng.linalg.lu(x, "i", "j", inner="k"), b, dtype=dtype)
    assert sorted(order) == list(range(n)) and np.all(np.abs(lower) <= 1 + 1e-6)
    np.testing.assert_allclose(lower @ upper, b[order], **near)
    solved = made(
        lambda x: ng.linalg.solve(x, ng.constant(b[:, :3], ng.axes(f"i={n} c={min(n, 3)}"), dtype=dtype), "i", "j"), a, dtype=dtype
    )
    np.testing.assert_allclose(solved, np.linalg.solve(a, b[:, :3]), **near)
    np.testing.assert_allclose(made(lambda x: ng.linalg.inv(x, "i", "j"), a, dtype=dtype), np.linalg.inv(a), **near)


@pytest.mark.parametrize(("count", "n"), [(1, 5), (3, 8), (33, 4), (100, 8), (17, 31), (9, 70)])
def test_many_matrices(count, n):
    a, b = positive(n, count), drawn((count, n, n), 2)
    near = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(made(lambda x: ng.linalg.cholesky(x, "i", "j"), a), np.linalg.cholesky(a), **near)
    np.testing.assert_allclose(made(lambda x: ng.linalg.inv(x, "i", "j"), b), np.linalg.inv(b), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(made(lambda x: ng.linalg.det(x, "i", "j"), b), np.linalg.det(b), rtol=1e-7)
    signs, logs = made(lambda x: ng.linalg.slogdet(x, "i", "j"), b)
    np.testing.assert_allclose((signs, logs), np.linalg.slogdet(b), rtol=1e-7)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (2, 6, 3), (130, 70), (70, 130)])
def test_rectangular_matrices(shape):
    a = drawn(shape, 3)
    order, lower, upper = made(lambda x: ng.linalg.lu(x, "i", "j"), a)
    np.testing.assert_allclose(lower @ upper, np.take_along_axis(a, order[..., None].astype(int), -2), rtol=1e-9, atol=1e-9)
    for got, expected in zip(made(lambda x: ng.linalg.qr(x, "i", "j"), a), np.linalg.qr(a), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)
    u, s, v = made(lambda x: ng.linalg.svd(x, "i", "j"), a)
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), rtol=1e-9)
    np.testing.assert_allclose((u * s[..., None, :]) @ np.swapaxes(v, -1, -2), a, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(made(lambda x: ng.linalg.pinv(x, "i", "j"), a), np.linalg.pinv(a), rtol=1e-8, atol=1e-9)
    if a.ndim == 2:
        b = drawn((shape[0], 2), 4)
        got = made(lambda x: ng.linalg.lstsq(x, ng.constant(b, ng.axes(f"i={shape[0]} c=2"), dtype="float64"), "i", "j"), a)
        np.testing.assert_allclose(got, np.linalg.lstsq(a, b)[0], rtol=1e-8, atol=1e-9)
    for order in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        got = made(lambda x, order=order: ng.linalg.matrix_norm(x, "i", "j", order), a)
        np.testing.assert_allclose(got, np.linalg.matrix_norm(a, ord=order), rtol=1e-9)


@pytest.mark.parametrize("power", [-3, -1, 0, 1, 2, 5, 8])
def test_powers(power):
    a = drawn((3, 4, 4), 5)
    got = made(lambda x: ng.linalg.matrix_power(x, power, "i", "j"), a)
    np.testing.assert_allclose(got, np.linalg.matrix_power(a, power), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("power", [-2, -1, 2])
def test_a_power_has_the_axes_of_its_matrices(power):
    a, b = drawn((4, 4), 5), drawn((4, 2), 6)
    sides = ng.constant(b, ng.axes("j=4 c=2"), dtype="float64")
    got = made(lambda x: ng.contract(ng.linalg.matrix_power(x, power, "i", "j"), sides, over="j"), a)
    np.testing.assert_allclose(got, np.linalg.matrix_power(a, power) @ b, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("transformer", ["cpu", "numpy", "direct"])
def test_matrices_that_are_not_finite_spoil_no_others(transformer):
    a = positive(3, 3)
    a[1, 0, 0] = np.nan
    x = ng.placeholder("b=3 i=3 j=3", dtype="float64")
    results = [ng.linalg.eigh(x, "i", "j")[0], ng.linalg.svd(x, "i", "j")[1], ng.linalg.pinv(x, "i", "j")]
    with ngt.allocate_transformer(transformer) as held:
        values, singular, inverse = held.computation(results, x)(a)
    for got, of in ((values, np.linalg.eigvalsh), (singular, lambda y: np.linalg.svd(y, compute_uv=False)), (inverse, np.linalg.pinv)):
        assert np.isnan(got[1]).all()
        np.testing.assert_allclose(got[[0, 2]], of(a[[0, 2]]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("order", "count", "n"), [("b i j", 19, 9), ("j b i", 8, 8), ("i j b", 17, 5), ("b j i", 3, 17)])
def test_matrices_side_by_side_in_any_order_of_axes(order, count, n):
    a, b = drawn((count, n, n), 7) + 2 * np.eye(n), drawn((3, count, n), 8)
    lengths = {"b": count, "i": n, "j": n}
    x = ng.placeholder(" ".join(f"{k}={lengths[k]}" for k in order.split()), dtype="float64")
    y = ng.placeholder(f"k=3 b={count} i={n}", dtype="float64")
    s = a @ np.swapaxes(a, 1, 2) + np.eye(n)
    results = [ng.linalg.solve(x, y, "i", "j"), ng.linalg.cholesky(x, "i", "j"), ng.linalg.triangular_solve(x, y, "i", "j", lower=False)]
    with executor(results, x, y) as f:
        turned = [["b", "i", "j"].index(k) for k in order.split()]
        solved, factor, triangular = f(np.transpose(s, turned), b)
    sides = np.moveaxis(b, 0, -1)
    np.testing.assert_allclose(solved, np.moveaxis(np.linalg.solve(s, sides), -1, 0), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(np.transpose(factor, np.argsort(turned)), np.linalg.cholesky(s), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(triangular, np.moveaxis(np.linalg.solve(np.triu(s), sides), -1, 0), rtol=1e-7, atol=1e-9)


GRADIENTS = {
    "cholesky": (lambda x: ng.linalg.cholesky(x, "i", "j"), torch.linalg.cholesky, True),
    "inv": (lambda x: ng.linalg.inv(x, "i", "j"), torch.linalg.inv, False),
    "det": (lambda x: ng.linalg.det(x, "i", "j"), torch.linalg.det, False),
    "slogdet": (lambda x: ng.linalg.slogdet(x, "i", "j")[1], lambda t: torch.linalg.slogdet(t)[1], False),
    "lu": (lambda x: ng.linalg.lu(x, "i", "j")[2], lambda t: torch.linalg.lu(t)[2], False),
    "qr": (lambda x: ng.linalg.qr(x, "i", "j")[1], lambda t: torch.linalg.qr(t)[1], False),
    "svd": (lambda x: ng.linalg.svd(x, "i", "j")[1], lambda t: torch.linalg.svd(t)[1], False),
    "eigh": (lambda x: ng.linalg.eigh(x, "i", "j")[0], lambda t: torch.linalg.eigh(t)[0], True),
    "pinv": (lambda x: ng.linalg.pinv(x, "i", "j"), torch.linalg.pinv, False),
}


@pytest.mark.parametrize("n", [4, 70])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_equal_torch_s(name, n):
    ours, theirs, symmetric = GRADIENTS[name]
    array = positive(n) if symmetric else drawn((n, n), 6) + (3 if n == 4 else 20) * np.eye(n)
    array = array / n if name == "det" and n > 4 else array

    def loss(x):
        y = ours(x)
        return ng.deriv(ng.sum(y * y, out_axes=()) if name != "det" else ng.sum(y, out_axes=()), x)

    t = torch.tensor(array, requires_grad=True)
    y = theirs(t)
    (y.sum() if name == "det" else (y * y).sum()).backward()
    np.testing.assert_allclose(made(loss, array), t.grad.numpy(), rtol=1e-7, atol=1e-8 * float(t.grad.abs().max()))


def test_not_positive_definite_is_nan_from_its_column_on():
    a = np.diag([1.0, 4.0, -1.0, 9.0])
    got = made(lambda x: ng.linalg.cholesky(x, "i", "j"), a)
    assert np.array_equal(got[:, :2], [[1, 0], [0, 2], [0, 0], [0, 0]]) and np.isnan(got[2:, 2]).all() and np.isnan(got[3, 3])


@pytest.mark.parametrize("lengths", [(5,), (5, 64, 65, 130)])
def test_lengths_that_come_with_the_call(lengths):
    i = ng.make_axis(name="i")
    j = ng.make_axis(name="j")
    x = ng.placeholder([i, j], dtype="float64")
    with executor(ng.linalg.cholesky(ng.map_roles(x, {}), "i", "j"), x) as f:
        for n in lengths:
            np.testing.assert_allclose(f(positive(n)), np.linalg.cholesky(positive(n)), rtol=1e-9, atol=1e-9)


def test_refusals_name_both_sides():
    x, b = ng.placeholder("i=3 j=4").named("x"), ng.placeholder("k=3").named("b")
    with pytest.raises(ValueError, match="3 rows.*4 columns.*not square"):
        ng.linalg.inv(x, "i", "j")
    with pytest.raises(ValueError, match="not an axis of x"):
        ng.linalg.qr(x, "i", "k")
    with pytest.raises(ValueError, match="right-hand sides have the matrices' rows"):
        ng.linalg.solve(ng.placeholder("i=3 j=3"), b, "i", "j")
    with pytest.raises(ValueError, match="no norm 'x'"):
        ng.linalg.matrix_norm(x, "i", "j", "x")


@pytest.mark.parametrize("kind", ["cpu", "direct"])
@pytest.mark.parametrize("n, many, sides", [(0, 3, 2), (2, 0, 2), (0, 0, 2), (2, 3, 0), (0, 0, 0)])
def test_no_elements(kind, n, many, sides):
    """Matrices of length 0, none of them, or no right-hand sides: the shapes are NumPy's."""
    i, j, batch, k = (ng.make_axis(m, name=name) for m, name in ((n, "i"), (n, "j"), (many, "B"), (sides, "k")))
    a, b = ng.placeholder([batch, i, j]), ng.placeholder([batch, i, k])
    given = np.broadcast_to(np.eye(n, dtype=np.float32), (many, n, n)), np.zeros((many, n, sides), np.float32)
    made = [ng.linalg.inv(a, "i", "j"), ng.linalg.det(a, "i", "j"), ng.linalg.cholesky(a, "i", "j")]
    made += [ng.linalg.solve(a, b, "i", "j"), ng.linalg.triangular_solve(a, b, "i", "j")]
    with ngt.make_transformer_factory(kind)() as transformer:
        found = transformer.computation(made, a, b)(*given)
    wanted = [np.linalg.inv(given[0]), np.linalg.det(given[0]), given[0], given[1], given[1]]
    for got, want in zip(found, wanted, strict=True):
        assert np.asarray(got).size == want.size
        np.testing.assert_array_equal(np.asarray(got).ravel(), want.ravel())


@pytest.mark.parametrize("solve", [ng.linalg.solve, ng.linalg.triangular_solve, ng.linalg.lstsq])
@pytest.mark.parametrize("axes, wrong", [(("i=4", "n=2"), "i"), (("i=3", "n=5"), "n")])
def test_right_hand_sides_of_other_lengths_are_refused(solve, axes, wrong):
    a, b = ng.placeholder("n=2 i=3 j=3"), ng.placeholder([ng.make_axis(int(t[2:]), name=t[0]) for t in axes])
    with pytest.raises(AxisError, match=rf"axis {wrong} has length"):
        solve(a, b, "i", "j")


@pytest.mark.parametrize("a", [np.eye(3), np.diag([1.0, 1, 2]), np.diag([3.0, 0, 0])], ids=["three", "two", "zeros"])
@pytest.mark.parametrize("transformer_name", ["direct", "cpu"])
def test_gradients_of_values_that_are_equal(transformer_name, a):
    """What depends on no vectors has no quotient by differences of values."""
    x = ng.placeholder("i=3 j=3", dtype="float64")
    theirs = torch.tensor(a, requires_grad=True)
    cases = [
        (ng.sum(ng.linalg.eigh(x, "i", "j")[0] ** 3, out_axes=()), (torch.linalg.eigvalsh(theirs) ** 3).sum()),
        (ng.sum(ng.exp(ng.linalg.svd(x, "i", "j")[1]), out_axes=()), torch.linalg.svdvals(theirs).exp().sum()),
        (ng.linalg.matrix_norm(x, "i", "j", ord="nuc"), torch.linalg.svdvals(theirs).sum()),
    ]
    with ngt.make_transformer_factory(transformer_name)() as transformer:
        found = transformer.computation([ng.deriv(y, x) for y, _ in cases], x)(a)
    for got, (_, y) in zip(found, cases, strict=True):
        if a[-1, -1] or y is cases[0][1]:  # the vectors of singular values of 0 have any signs
            np.testing.assert_allclose(got, torch.autograd.grad(y, theirs)[0], atol=1e-12)
        else:
            assert np.isfinite(got).all()


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (1, 1), (0, 2), (2, 0)])
def test_matrices_whose_lengths_only_a_call_brings(shape):
    """Either side may be the longer one: least squares, LU factors in order, and their gradients."""
    x, b = ng.placeholder("i=? j=?", dtype="float64"), ng.placeholder("i=? c=2", dtype="float64")
    a, right = drawn(shape, 6), drawn((shape[0], 2), 7)
    order, lower, upper = ng.linalg.lu(x, "i", "j", "k")
    product = ng.take(ng.contract(lower, upper, over="k"), ng.argsort(order, "i"), "i")
    with executor([ng.linalg.lstsq(x, b, "i", "j"), product], x, b) as f:
        solved, again = f(a, right)
    np.testing.assert_allclose(solved, np.linalg.pinv(a) @ right, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(again, a, atol=1e-12)
    if min(shape) == 0:
        return
    q, r = ng.linalg.qr(x, "i", "j", "m")

    def weigh(t):
        return ng.sum(ng.cumsum(t, t.dims[0]) ** 3 * 0.1 + t, out_axes=())

    def theirs(t):
        return (torch.cumsum(t, 0) ** 3 * 0.1 + t).sum()

    losses = [weigh(lower), weigh(upper), weigh(q), weigh(r)]
    with executor([ng.deriv(loss, x) for loss in losses], x) as f:
        got = f(a)
    for k, made in enumerate(got):
        t = torch.tensor(a, requires_grad=True)
        factors = (*torch.linalg.lu(t)[1:], *torch.linalg.qr(t))
        theirs(factors[k]).backward()
        np.testing.assert_allclose(made, t.grad, rtol=1e-7, atol=1e-9)


def test_gradients_of_determinants_whose_lengths_only_a_call_brings():
    x = ng.placeholder("N=? i=? j=?", dtype="float64")
    total = ng.sum(ng.linalg.det(x, "i", "j") ** 2 + ng.linalg.slogdet(x, "i", "j")[1], out_axes=())
    a = drawn((2, 4, 4), 9)
    t = torch.tensor(a, requires_grad=True)
    (torch.linalg.det(t) ** 2 + torch.linalg.slogdet(t)[1]).sum().backward()
    with executor(ng.deriv(total, x), x) as f:
        np.testing.assert_allclose(f(a), t.grad, rtol=1e-9)
