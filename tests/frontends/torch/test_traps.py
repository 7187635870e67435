"""Aliases, views, writes, odd lengths and dtypes: what a compiled function must not change."""

import gc
import os
import re
import signal
import subprocess
import sys
import weakref

import pytest
import torch

from ngraph.errors import BoundsError, NgraphWarning, OperandError
from ngraph.frontends.torch import backend, dynamo, private, report, reset
from ngraph.frontends.torch.segments import Segments
from ngraph.frontends.torch.steps import CompiledGraph, OurStep


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    reset()


def compiled(f, **options):
    return torch.compile(f, backend=backend, options={"fallback": "error"}, **options)


def agree(f, *inputs, ours=True):
    """Both ways give the same tensors, with the same strides, and leave the same in the inputs."""
    mine = [x.clone() if isinstance(x, torch.Tensor) and x.is_contiguous() else x for x in inputs]
    wanted, found = f(*inputs), compiled(f)(*mine)
    for a, b in zip(wanted if isinstance(wanted, tuple) else (wanted,), found if isinstance(found, tuple) else (found,), strict=True):
        torch.testing.assert_close(b, a, equal_nan=True)
        assert b.dtype is a.dtype and b.stride() == a.stride()
    for a, b in zip(inputs, mine, strict=True):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(b, a, equal_nan=True)
    if ours:
        assert report().ours > 0
    return found, mine


def test_mutated_inputs_are_written():
    def f(x, y):
        x.add_(1)
        y[1:].mul_(2)
        return x + y

    agree(f, torch.randn(4), torch.randn(4))


def test_inputs_that_share_memory_see_each_others_writes():
    def f(x, y):
        x.mul_(3)
        return y + 1

    base = torch.randn(6)
    wanted_base = base.clone()
    wanted = f(wanted_base[:4], wanted_base[2:])
    found = compiled(f)(base[:4], base[2:])
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(base, wanted_base)


@pytest.mark.parametrize("kind", [torch.float16, torch.bool, torch.int64])
def test_what_is_put_into_a_tensor_takes_its_dtype(kind):
    def f(x, y):
        z = x.clone()
        z[0] = y[1]
        return x.select_scatter(y[0], 0, -1), x.slice_scatter(y[:1], 0, 0, 1), x.diagonal_scatter(y[0, :3]), z

    agree(f, torch.randn(3, 4).to(kind), torch.randn(3, 4))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_views_of_written_inputs_of_open_lengths_are_views_of_the_inputs(order):
    def f(x):
        rows, columns = x[x.shape[0] // 2 :], x.chunk(2, 1)[1]
        rows *= 2
        columns += 1
        return rows, columns, columns.t()[1:]

    function = compiled(f, dynamic=True)
    for n in (6, 3):
        x, y = (torch.arange(4.0 * n).reshape((n, 4) if order == (0, 1) else (4, n)).permute(order) for _ in range(2))
        for a, b in zip(f(x), function(y), strict=True):
            assert torch.equal(a, b) and a.stride() == b.stride() and a.storage_offset() == b.storage_offset()
            b.zero_(), a.zero_()
        assert torch.equal(x, y)


def test_results_of_open_lengths_that_are_parts_have_the_strides_of_eager():
    def f(x):
        return (x * 2)[:, x.shape[1] // 2 :], x.exp()[::2]

    function = compiled(f, dynamic=True)
    for shape in ((6, 4), (3, 8)):
        x = torch.randn(shape)
        for a, b in zip(f(x), function(x), strict=True):
            torch.testing.assert_close(b, a)
            assert a.stride() == b.stride()


def test_expanded_and_strided_inputs():
    agree(lambda x, y: x * 2 + y.sum(0), torch.randn(1, 3).expand(4, 3), torch.randn(6, 6)[::2, ::2])
    agree(lambda x: (x + 1).sum(-1), torch.randn(3, 4).T)
    agree(lambda x: x.relu() * 2, torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)])
def test_copies_lie_as_they_are_asked_to(order):
    """Copies of one value in several orders, of an input and of a result: each has the strides of eager."""

    def f(x):
        y = x + 1
        last = torch.channels_last
        copies = [(t.clone(), t.contiguous(), t.contiguous(memory_format=last), t.mT.contiguous().mT) for t in (x, y)]
        return *copies[0], *copies[1], x.contiguous().expand(2, *x.shape)

    x = torch.randn(2, 3, 4, 5).permute(order).contiguous().permute([order.index(k) for k in range(4)])
    agree(f, x)
    agree(lambda x: x.contiguous(), x)
    agree(lambda x: x.contiguous(memory_format=torch.channels_last), x)


@pytest.mark.parametrize("dynamic", [False, True])
def test_results_of_ops_that_are_taken_apart_lie_as_in_eager(dynamic):
    """PyTorch's rules give `baddbmm` the order of its first operand, and `select_scatter` that of a dense tensor."""

    def f(a, b, c):
        y, z = torch.baddbmm(a, b, c), torch.select_scatter(a, b[:, :, 0], 2, 1)
        return y, y.view(-1), torch.as_strided(y, (3,), (2,)), z, z.mT.view(-1)

    a, b, c = (torch.randn(shape).mT for shape in ((2, 6, 4), (2, 3, 4), (2, 6, 3)))
    function = torch.compile(f, backend=backend, fullgraph=True, dynamic=dynamic, options={"fallback": "silent"})
    for x, y in zip(f(a, b, c), function(a, b, c), strict=True):
        torch.testing.assert_close(y, x)
        assert y.stride() == x.stride()


def test_outputs_that_are_inputs_or_views_of_them():
    def f(x):
        return x, x.T, x.view(-1)[2:], x * 2

    x = torch.randn(3, 4)
    a, b, c, _ = compiled(f)(x)
    x.zero_()
    assert a is x and not b.any() and not c.any()


def test_outputs_that_are_views_of_each_other():
    def f(x):
        y = x + 1
        return y, y.T, y[0]

    y, t, row = compiled(f)(torch.randn(3, 4))
    y.zero_()
    assert not t.any() and not row.any()


def test_expanded_outputs_and_constants():
    agree(lambda x: (x.sum().expand(3, 2), torch.arange(5), torch.ones(2)), torch.randn(4))
    agree(lambda x: x + torch.tensor([1.0, 2.0]), torch.randn(3, 2))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0, 2), (), (1,), (1, 1)])
def test_lengths_of_zero_and_no_dims(shape):
    agree(lambda x: (x + 1, x.sum(), (x * 2).reshape(-1), x.mean()), torch.randn(shape))


def test_every_way_to_write_a_parameter_is_seen():
    layer = torch.nn.Linear(3, 2)
    call = compiled(layer)
    x = torch.randn(4, 3)

    def check():
        with torch.no_grad():
            torch.testing.assert_close(call(x), layer(x))

    check()
    writes = [
        lambda: layer.weight.data.mul_(2),
        lambda: layer.weight.detach().numpy().fill(0.5),
        lambda: setattr(layer.weight, "data", torch.randn(2, 3)),
        lambda: layer.load_state_dict({"weight": torch.ones(2, 3), "bias": torch.zeros(2)}),
    ]
    for write in writes:
        write()
        check()
    with torch.no_grad():
        layer.bias.add_(1)
    check()
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    call(x).sum().backward()
    optimizer.step()
    check()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float64, torch.float16, torch.bfloat16])
def test_dtypes_are_kept_and_promoted(dtype):
    x = (torch.arange(6) % 4).to(dtype)
    y = torch.arange(6).float()
    agree(lambda x, y: (x + x, x * y, x.sum(), x / 2 if dtype is not torch.bool else x, x > 1, x.float(), x.cumsum(0)), x, y)


def test_whole_numbers_divide_as_in_torch():
    x, y = torch.tensor([7, -7, 7, -7, 0]), torch.tensor([2, 2, -2, -2, 3])
    agree(lambda x, y: (x // y, x % y, torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y), x / y, x**2), x, y)
    agree(lambda x, y: (x // y, x % y, torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y)), x.float(), y.float() / 3)


DIVISIONS = {
    "floor": lambda x, y: x // y,
    "rest": lambda x, y: x % y,
    "of a number": lambda x, y: 7 % y + x,
    "fmod": torch.fmod,
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "by a number": lambda x, y: x % 0 + y,
    "quotient": lambda x, y: x / y,
    "float": lambda x, y: x.double() // y,
}


@pytest.mark.parametrize("name", DIVISIONS)
def test_whole_numbers_divided_by_zero_are_the_error_of_eager(name):
    f = DIVISIONS[name]
    function = compiled(f, dynamic=True, fullgraph=True)
    some = torch.tensor([5, -7, 9])
    for x, y in (
        (some, some),
        (some, torch.tensor([2, 0, 3])),
        (some[:, None], torch.tensor([1, 0])),
        (some[:0, None], torch.tensor([1, 0])),
    ):
        try:
            wanted = f(x, y)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=str(error)):
                function(x, y)
        else:
            torch.testing.assert_close(function(x, y), wanted)


@pytest.mark.parametrize("name", ["pool", "volume", "shuffle", "shape"])
def test_an_op_that_eager_refuses_for_no_elements_is_the_error_of_eager(name):
    f, shape = {
        "pool": (lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 2) + 1, (2, 3, 0, 5)),
        "volume": (lambda x: torch.nn.functional.adaptive_avg_pool3d(x, 2), (2, 0, 4, 4, 4)),
        "shuffle": (lambda x: torch.nn.functional.pixel_unshuffle(x, 2), (2, 3, 0, 5)),
        "shape": (lambda x: torch.nn.functional.pixel_unshuffle(x, 2).exp(), (2, 0, 4, 4)),  # not refused, but of another shape than traced
    }[name]
    x = torch.zeros(shape)
    function = torch.compile(f, backend=backend, fullgraph=True)
    with pytest.warns(NgraphWarning, match="a tensor of no elements"):
        try:
            wanted = f(x)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=re.escape(str(error))):
                function(x)
        else:
            assert function(x).shape == wanted.shape
    ((op, count),) = report().in_torch.items()
    assert op in ("adaptive_avg_pool2d", "adaptive_avg_pool3d", "pixel_unshuffle") and count == 1
    torch._dynamo.reset()
    with pytest.raises(Exception, match=f"test_traps.py:[0-9]+: PyTorch would run this graph, which calls {op}"):
        compiled(f)(x)
    some = torch.randn(*[n + 4 for n in shape[:-2]], 4, 4)
    torch._dynamo.reset()
    torch.testing.assert_close(compiled(f)(some), f(some))


def test_ops_of_the_users_own_are_not_tried_for_no_elements():
    calls = []

    @torch.library.custom_op("ngraph_tests::told", mutates_args=())
    def told(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.shape)
        return x.clone()

    told.register_fake(lambda x: torch.empty_like(x))
    torch.compile(lambda x: told(x) + 1, backend=backend, options={"fallback": "silent"}, fullgraph=True)(torch.zeros(0, 3))
    assert len(calls) == 1


@pytest.mark.parametrize("transform", [torch.func.grad, torch.vmap, torch.func.hessian])
def test_transforms_of_no_elements_are_compiled(transform):
    f = transform(lambda x: (x * x).sum())
    for x in (torch.zeros(0), torch.zeros(3, 0), torch.zeros(0, 3)):
        if transform is torch.vmap and x.ndim < 2:
            continue
        torch._dynamo.reset()
        torch.testing.assert_close(compiled(f, fullgraph=True)(x), f(x))


def test_floats_that_torch_makes_constants_of_are_constants_of_one_graph():
    rate = [0.5]

    def f(x, y):
        return x.add(y, alpha=-rate[0])

    function = compiled(f)
    for rate[0] in (0.5, 0.25, 0.125, 0.0625):
        torch.testing.assert_close(function(torch.ones(3), torch.ones(3)), torch.ones(3) * (1 - rate[0]))


def test_divisors_of_as_many_numbers_as_values_decide_are_checked():
    def f(x, y):
        some = x[x > 2]
        return some // y, some % some, y // some

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        function = compiled(f, fullgraph=True)
        for x, y in ([5, 1, 7], 2), ([0, 9, 1, 8], 3), ([1, 0], 0):
            for a, b in zip(function(torch.tensor(x), torch.tensor([y])), f(torch.tensor(x), torch.tensor([y])), strict=True):
                torch.testing.assert_close(a, b)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            function(torch.tensor([3]), torch.tensor([0]))


@pytest.mark.parametrize("f", [lambda x: x.max(), lambda x: x.min(), lambda x: torch.as_strided(x * 2, (2, 2), (1, 2))])
def test_what_there_is_no_memory_for_is_the_error_of_eager(f):
    for x in (torch.zeros(0), torch.zeros(0, 3)):
        with pytest.raises(RuntimeError) as wanted:
            f(x)
        with pytest.raises(RuntimeError, match=re.escape(str(wanted.value))):
            torch.compile(f, backend=backend, options={"fallback": "silent"}, fullgraph=True)(x)


def test_dims_that_reach_beyond_the_memory_of_a_value_are_an_error():
    function = torch.compile(
        lambda x: torch.as_strided(x * 2, (2, 3), (3, 1), 1), backend=backend, options={"fallback": "silent"}, dynamic=True
    )
    x = torch.arange(8.0)
    torch.testing.assert_close(function(x), torch.as_strided(x * 2, (2, 3), (3, 1), 1))
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        function(x[:6].clone())


REFUSED = {
    "masked_scatter": (
        lambda x, m: x.masked_scatter(x[:, :3] > 0.5, m),
        [(torch.ones(4, 3), torch.ones(5)), (torch.ones(2, 3), torch.ones(0))],
    ),
    "bernoulli": (
        lambda p, like: torch.bernoulli(p) + like,
        [(torch.tensor(p), torch.ones(2)) for p in ([0.5, 1.5], [-0.1, 1], [0.5, torch.nan])],
    ),
    "normal": (lambda mean, std: torch.normal(mean, std), [(torch.ones(2), torch.tensor(std)) for std in ([1, -1.0], [torch.nan, 1])]),
    "binary_cross_entropy": (
        torch.nn.functional.binary_cross_entropy,
        [(torch.tensor(p), torch.tensor(t)) for p, t in (([0.5, 1.5], [0.0, 1]), ([0.5, torch.nan], [0.0, 1]), ([0.5, 0.5], [-0.5, 1]))],
    ),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_values_that_eager_refuses_are_refused(name, dynamic):
    f, refused = REFUSED[name]
    function = compiled(f, dynamic=dynamic)
    for given in refused:
        with pytest.raises(RuntimeError):
            f(*given)
        with pytest.raises(OperandError, match=rf"(test_traps.py|functional.py):[0-9]+: .*{name}"):
            function(*given)
        ones = torch.ones_like(given[0]), torch.ones(given[0].numel())
        if "masked" in name or "cross" in name:
            torch.testing.assert_close(function(*ones), f(*ones))
        else:
            assert function(*ones).isfinite().all()


def test_the_loss_of_shares_and_its_derivative_are_those_of_eager():
    weight = torch.rand(3)
    for reduction in ("none", "mean", "sum"):

        def f(x, t, reduction=reduction):
            return torch.nn.functional.binary_cross_entropy(x, t, weight, reduction=reduction).sum()

        t, made = torch.rand(5, 3), []
        start = torch.cat([torch.rand(3, 3), torch.tensor([[0.0, 1, 1], [1, 0, 0.5]])])
        for function in (f, compiled(f)):
            x = start.clone().requires_grad_()
            y = function(x, t)
            y.backward()
            made.append((y.detach(), x.grad))
        torch.testing.assert_close(*made)


@pytest.mark.parametrize("upper", [False, True])
def test_a_matrix_that_is_not_positive_definite_is_the_error_of_eager(upper):
    function = compiled(lambda x: torch.cholesky(x, upper=upper))
    x = torch.randn(3, 3)
    x = x @ x.T + torch.eye(3)
    torch.testing.assert_close(function(x), torch.linalg.cholesky(x, upper=upper), rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="cholesky: The factorization could not be completed"):
        function(x - 100 * torch.eye(3))


@pytest.mark.parametrize("name", ["mse_loss", "smooth_l1_loss", "huber_loss"])
def test_means_of_no_loss_have_an_empty_derivative(name):
    x = torch.zeros(0, 3, requires_grad=True)
    y = compiled(lambda x: getattr(torch.nn.functional, name)(x, x.detach() + 1))(x)
    assert y.isnan() and torch.autograd.grad(y, x)[0].shape == x.shape


@pytest.mark.parametrize("shape", [(2, 0, 3), (2, 4, 0), (0, 4, 3)])
def test_a_group_norm_of_nothing_has_a_derivative(shape):
    model, x = torch.nn.GroupNorm(2, shape[1]), torch.zeros(shape, requires_grad=True)
    found = [torch.autograd.grad(f(x).sum(), (x, model.weight, model.bias)) for f in (compiled(model), model)]
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)


def test_pools_of_no_windows_are_empty():
    F = torch.nn.functional
    agree(lambda x: (*F.adaptive_max_pool2d(x, (0, 2), True), F.adaptive_avg_pool2d(x, 0)), torch.ones(1, 2, 3, 3))


POOLS = {
    "pairs": (2, {}, (2, 3, 7, 8)),
    "overlapping": (3, {"stride": 2, "padding": 1}, (2, 3, 7, 8)),
    "dilated, up": ((2, 3), {"dilation": 2, "stride": (2, 1), "ceil_mode": True}, (2, 3, 7, 8)),
    "one picture": (3, {"stride": 1}, (3, 5, 6)),
    "volumes": (2, {"ceil_mode": True}, (1, 2, 3, 4, 5)),
    "no picture": (2, {}, (0, 3, 4, 4)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", POOLS)
def test_a_pooling_finds_its_maxima_again(name, dtype):
    """The forward graph keeps no places; of equal elements the first one has the derivative."""
    kernel, options, shape = POOLS[name]
    pool = torch.nn.functional.max_pool3d if len(shape) == 5 else torch.nn.functional.max_pool2d
    x = torch.randint(-2, 3, shape).to(dtype)
    found = []
    for f in (lambda x: pool(x, kernel, **options), compiled(lambda x: pool(x, kernel, **options))):
        given = x.clone().requires_grad_()
        y = f(given)
        kept = getattr(y.grad_fn, "saved_tensors", ())
        y.backward(torch.arange(1, y.numel() + 1).reshape(y.shape).to(dtype))
        found.append((y, given.grad))
    torch.testing.assert_close(*found)
    assert kept and all(t.is_floating_point() for t in kept)


def test_the_places_of_a_pooling_that_a_user_gives_count():
    def f(x, dy, places):
        y, own = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
        return y, own, torch.ops.aten.max_pool2d_with_indices_backward(dy, x, [2, 2], [], [0, 0], [1, 1], False, places)

    agree(f, torch.randn(2, 3, 4, 4), torch.randn(2, 3, 2, 2), torch.randint(16, (2, 3, 2, 2)))
    x = torch.randn(2, 3, 4, 4, requires_grad=True)
    y, own = compiled(lambda x: torch.nn.functional.max_pool2d(x, 2, return_indices=True))(x)
    y.sum().backward()
    wanted = torch.zeros(2, 3, 16).scatter(2, own.flatten(2), 1.0).reshape(x.shape)
    torch.testing.assert_close(x.grad, wanted)


def test_pivots_out_of_bounds_are_an_error():
    packed, pivots = torch.linalg.lu_factor(torch.randn(3, 3))
    agree(lambda a, b: torch.lu_unpack(a, b)[0], packed, pivots)
    with pytest.raises(BoundsError, match="index 3 is out of bounds of the rows, which pivots count from 1"):
        compiled(lambda a, b: torch.lu_unpack(a, b)[0])(packed, pivots + torch.tensor([0, 0, 4 - pivots[2]], dtype=torch.int32))


@pytest.mark.parametrize(
    "f, i",
    [
        (lambda x, i: torch.nn.functional.embedding(i, x), [1, -1]),
        (lambda x, i: x.gather(1, i), [[-1], [0]]),
        (lambda x, i: x.index_select(1, i), [-1]),
        (lambda x, i: x.scatter(1, i, 1.0), [[-1], [0]]),
        (lambda x, i: x.scatter_add(1, i, torch.ones(2, 1)), [[0], [-2]]),
        (lambda x, i: torch.nn.functional.cross_entropy(x, i), [1, -1]),
    ],
)
def test_an_index_below_zero_is_out_of_bounds_where_it_is_for_eager(f, i):
    x, i = torch.randn(2, 4), torch.tensor(i)
    with pytest.raises((IndexError, RuntimeError)):
        f(x, i)
    with pytest.raises(BoundsError, match=r"index -\d is out of bounds"):
        compiled(f)(x, i)


def test_an_index_below_zero_counts_from_the_end_where_it_does_for_eager():
    i = torch.tensor([1, -1])
    agree(lambda x, i: (x[i], x[:, i], x.index_put((i,), torch.zeros(())), x.take(i)), torch.randn(2, 4), i)


def test_nan_and_ties():
    x = torch.tensor([1.0, float("nan"), 3.0, 3.0, -0.0, 2.5, 0.5])
    y = torch.tensor([float("nan"), 2.0, 3.0, 1.0, 0.0, 1.0, -1.0])
    agree(lambda x, y: (torch.maximum(x, y), torch.fmin(x, y), x.clamp(0, 2), x.relu(), x.round(), x.max(), x == x), x, y)
    agree(lambda x: (x.argmax(), x.argmin(), x.max(0).indices, torch.sort(x, stable=True).indices), torch.tensor([1.0, 3.0, 3.0, 1.0]))


def test_a_factor_of_bytes_wraps():
    x = torch.tensor([0, 1, 7, 200], dtype=torch.uint8)
    agree(lambda x: (torch.sub(x, x.flip(0), alpha=-1), torch.add(x, 3, alpha=-2), x[1].sub(x[2], alpha=-3)), x)


@pytest.mark.parametrize("transformer", ["cpu", "numpy"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.uint8])
def test_remainders_of_all_signs_zeros_and_infinities(dtype, transformer):
    if dtype.is_floating_point:
        numbers = [0.0, -0.0, 1, -1, 0.5, -0.75, 3, -3, 2.5, -7, 100, float("inf"), -float("inf"), float("nan")]
    else:
        numbers = [1, 2, 3, 7, 100, 127] if dtype is torch.uint8 else [1, -1, 2, -2, 3, -3, 7, -7, 127, -127]
    values = torch.tensor(numbers, dtype=torch.float64).to(dtype)
    small = torch.tensor([least := torch.finfo(dtype).tiny, -least / 4] if dtype.is_floating_point else [], dtype=dtype)
    a, b = (t.flatten() for t in torch.meshgrid(torch.cat([values, small]), values, indexing="ij"))

    def f(a, b):
        return torch.remainder(a, b), torch.fmod(a, b), torch.floor_divide(a, b), torch.remainder(a, 3), torch.fmod(a, 3)

    options = {"fallback": "error", "transformer": transformer}
    for found, wanted in zip(torch.compile(f, backend=backend, options=options)(a, b), f(a, b), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
        number = ~wanted.isnan()
        assert torch.equal(found[number].signbit(), wanted[number].signbit())


def test_a_graph_break_in_a_loop():
    def f(x):
        for k in range(3):
            x = x * (k + 1)
            if k == 1:
                torch._dynamo.graph_break()
        return x + 1

    x = torch.randn(3)
    torch.testing.assert_close(compiled(f)(x), f(x))


def test_indices_outside_are_errors():
    call = compiled(lambda x, i: x[i] * 2)
    x = torch.randn(4)
    torch.testing.assert_close(call(x, torch.tensor([0, -1, 3])), x[[0, -1, 3]] * 2)
    with pytest.raises(IndexError):
        call(x, torch.tensor([0, 4, 1]))


def test_gradients_flow_through_views_and_writes():
    def f(x):
        y = x * 2
        y[0].mul_(3)
        return y.T.sum(0) @ torch.arange(3.0)

    x = torch.randn(3, 4, requires_grad=True)
    f(x).backward()
    wanted, x.grad = x.grad, None
    compiled(f)(x).backward()
    torch.testing.assert_close(x.grad, wanted)


def test_a_written_buffer_is_kept_for_the_backward_pass():
    ours, theirs = (torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(6, 4)) for _ in range(2))
    ours.load_state_dict(theirs.state_dict())
    call, x = compiled(ours), torch.randn(3, 6)
    for _ in range(3):
        found, wanted = call(x), theirs(x)
        torch.testing.assert_close(found, wanted)
        for model, y in ((ours, found), (theirs, wanted)):
            gradients = torch.autograd.grad(y.square().sum(), list(model.parameters()))
            with torch.no_grad():
                for p, dp in zip(model.parameters(), gradients, strict=True):
                    p.sub_(dp, alpha=0.1)
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


@pytest.mark.parametrize("dim", [0, 2])
def test_gradients_of_a_weight_norm(dim):
    v = torch.randn(3, 5, 4, requires_grad=True)
    g = torch.randn([n if k == dim else 1 for k, n in enumerate(v.shape)], requires_grad=True)
    found, wanted = compiled(torch._weight_norm)(v, g, dim), torch._weight_norm(v, g, dim)
    torch.testing.assert_close(found, wanted)
    dw = torch.randn(v.shape)
    torch.testing.assert_close(torch.autograd.grad(found, (v, g), dw), torch.autograd.grad(wanted, (v, g), dw))


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("few", [1, 2])
def test_heads_of_keys_that_serve_groups_of_queries(few, dynamic):
    def f(q, k, v, one, own):
        ways = ({"is_causal": True}, {"attn_mask": one}, {"attn_mask": own}, {"attn_mask": one[0, 0] > 0}, {"scale": 0.3})
        return tuple(torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, **way) for way in ways)

    call = compiled(f, dynamic=dynamic, fullgraph=True)
    for batch, time in ((2, 5), (3, 7)):
        q, k, v = (torch.randn(batch, h, time, 8, requires_grad=True) for h in (6, few, few))
        one, own = torch.randn(batch, 1, time, time), torch.randn(1, 6, time, time)
        found, wanted = call(q, k, v, one, own), f(q, k, v, one, own)
        torch.testing.assert_close(found, wanted)
        weights = [torch.randn(y.shape) for y in wanted]
        torch.testing.assert_close(torch.autograd.grad(found, (q, k, v), weights), torch.autograd.grad(wanted, (q, k, v), weights))
    half = [t.detach().bfloat16() for t in (q, k, v, one, own)]
    torch.testing.assert_close(call(*half), tuple(y.bfloat16() for y in f(*(t.float() for t in half))))


def test_a_query_that_may_attend_to_nothing():
    """It gives 0, and passes no gradient on."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 3, 4, requires_grad=True) for _ in range(3))
    mask = torch.ones(3, 3, dtype=torch.bool)
    mask[1] = False

    def f(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    want, got = f(q, k, v), torch.compile(f, backend=backend)(q, k, v)
    torch.testing.assert_close(got, want)
    weight = torch.randn_like(want)
    for a, b in zip(*[torch.autograd.grad((y * weight).sum(), (q, k, v)) for y in (got, want)], strict=True):
        torch.testing.assert_close(a, b)


VIEWS = {
    "chunk": lambda x: x.chunk(2)[1],
    "split": lambda x: x.split(2)[1:],
    "tensor_split": lambda x: torch.tensor_split(x, 3)[2],
    "unbind": lambda x: x.unbind(1),
    "unfold": lambda x: x.unfold(0, 2, 1),
    "chunk of a view": lambda x: x.T.chunk(2, 1)[1],
    "read too": lambda x: (x.chunk(2)[1], x.chunk(2)[0] * 2),
    "of what is computed": lambda x: (x * 2).chunk(2),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", VIEWS)
def test_one_of_several_views_is_a_view(name, dynamic):
    """It lies in the memory of the input, or with the others in that of what was computed, however that input lies."""
    f = VIEWS[name]
    call = compiled(f, dynamic=dynamic, fullgraph=True)
    for x in (torch.randn(6, 4), torch.randn(7, 9)[:, 1::2], torch.randn(5, 9).T[:, ::2], torch.randn(6, 4)):
        wanted, found = f(x), call(x)
        if isinstance(wanted, torch.Tensor):
            wanted, found = (wanted,), (found,)
        for a, b in zip(wanted, found, strict=True):
            torch.testing.assert_close(b, a)
        places = [t.untyped_storage().data_ptr() for t in (*found, x)]
        assert [p == places[0] for p in places] == [
            t.untyped_storage().data_ptr() == wanted[0].untyped_storage().data_ptr() for t in (*wanted, x)
        ]
    assert not report().in_torch


# ---- what a call may meet -----------------------------------------------------------------------------------------------


def test_overlapping_inputs_are_read_as_in_eager():
    base = torch.arange(12.0)
    agree(lambda x, y: (x * 2 + y, x.sum(0)), base.as_strided((4, 3), (2, 1)), base[3:6])


def test_a_graph_that_is_kept_is_differentiated_again():
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Dropout(0.0), torch.nn.Linear(7, 3))
    compiled, x = torch.compile(layer, backend="ngraph"), torch.randn(4, 5)

    def slopes(f):
        f(x).sum().backward()  # the backward graph is compiled for one that is not kept
        layer.zero_grad()
        y = f(x)
        y.sum().backward(retain_graph=True)
        first = [p.grad.clone() for p in layer.parameters()]
        (y * y).mean().backward(retain_graph=True)
        (y**3).sum().backward()
        return first + [p.grad.clone() for p in layer.parameters()]

    torch.testing.assert_close(slopes(compiled), slopes(layer), rtol=1e-5, atol=1e-5)


def test_a_second_derivative_is_refused():
    x = torch.randn(3, requires_grad=True)
    (slope,) = torch.autograd.grad(compiled(lambda x: (x**3).sum())(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        slope.sum().backward()


@pytest.mark.parametrize("place", ["Segments.compiled", "OurStep.begin"])
def test_an_interrupted_first_call_is_made_anew(place, monkeypatch):
    holder, name = (Segments if place.startswith("Segments") else OurStep), place.partition(".")[2]

    def interrupted(self, *args):
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT)
        return getattr(self, name)(*args)

    monkeypatch.setattr(holder, name, interrupted)
    call, x = compiled(lambda x: x.sin() * 2), torch.randn(5)
    with pytest.raises(KeyboardInterrupt):
        call(x)
    torch.testing.assert_close(call(x), x.sin() * 2)
    assert len(report().functions) == 1


def test_modules_that_are_dropped_leave_nothing():
    """Neither the module nor what was compiled for it, though the report tells of its calls."""
    gc.collect()
    dropped, before = [], {id(o) for o in gc.get_objects() if type(o) is CompiledGraph}
    for k in range(4):
        layer = torch.nn.Linear(20, 30 + k)
        call = compiled(layer)
        call(torch.ones(2, 20))
        dropped += [weakref.ref(layer), weakref.ref(layer.weight)]
        del layer, call
    dropped += [weakref.ref(o) for o in gc.get_objects() if type(o) is CompiledGraph and id(o) not in before]
    assert len(dropped) > 8
    torch._dynamo.reset()
    gc.collect()
    assert not [r for r in dropped if r() is not None]
    assert sum(g.calls.count for f in report().functions for g in f.graphs) == 4


def test_another_version_of_torch_is_warned_of(monkeypatch):
    monkeypatch.setattr(private, "TESTED", "1.9")
    with pytest.warns(NgraphWarning, match=r"this backend is tested with 1\.9"):
        dynamo.warn_of_version()


def test_no_compiler_is_needed():
    """In a process that can start no program of the PATH."""
    script = "import torch, ngraph as ng; print(torch.compile(torch.nn.GELU(), backend=ng.torch.backend)(torch.zeros(2)).tolist())"
    env = {**os.environ, "PATH": "/nonexistent", "CXX": "/nonexistent/c++", "NGRAPH_CACHE": "off"}
    made = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert made.stdout == "[0.0, 0.0]\n", made.stderr


def test_bools_that_are_added_stay_true_however_many_they_are():
    """256 of them at one place: as numbers of 8 bits their sum is 0."""
    x, at, v = torch.zeros(7, dtype=torch.bool), torch.full((256,), 3), torch.ones(256, dtype=torch.bool)

    def added(x, at, v):
        with_all = x.scatter_add(0, at, v), x.index_put((at,), v, accumulate=True), x.put(at, v, accumulate=True), x.index_add(0, at, v)
        return *with_all, (~x).scatter_reduce(0, at, ~v, "prod")

    found = torch.compile(added, backend=backend, fullgraph=True, options={"fallback": "error"})(x, at, v)
    for y, wanted in zip(found, added(x, at, v), strict=True):
        assert y.dtype is wanted.dtype and torch.equal(y, wanted)


@pytest.mark.parametrize("channels, batch", [(0, 2), (3, 0)])
def test_convolutions_of_nothing(channels, batch):
    """PyTorch gives no channels where the input has none, and derivatives of zeros."""
    for needs in ((True, True), (False, True)):
        torch._dynamo.reset()
        x, w, b = torch.ones(batch, channels, 7), torch.ones(4, channels, 3), torch.ones(4, requires_grad=True)
        x.requires_grad_(needs[0])
        w.requires_grad_(needs[1])
        wanted = torch.nn.functional.conv1d(x, w, b, padding=1)
        found = compiled(lambda x, w, b: torch.nn.functional.conv1d(x, w, b, padding=1))(x, w, b)
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        leaves = [t for t in (x, w, b) if t.requires_grad]
        for a, c in zip(torch.autograd.grad(found.sum(), leaves), torch.autograd.grad(wanted.sum(), leaves), strict=True):
            assert torch.equal(a, c)


def test_strides_over_a_tensor_whose_dims_lie_in_another_order():
    """Such as what Longformer makes of the heads of one row: a view that no copy was made of. And the derivative."""

    def f(x):
        y = (x * 2).transpose(0, 1).reshape(2, 6, 3)  # [heads, time, width] of [time, heads, width]
        return y.as_strided((2, 5, 2, 3), (3, 6, 6, 1)).sin()

    agree(f, torch.randn(6, 2, 3))
    x = torch.randn(6, 2, 3, requires_grad=True)
    found, want = torch.compile(f, backend=backend, fullgraph=True, options={"fallback": "error"})(x), f(x)
    slope = torch.randn_like(want)
    torch.testing.assert_close(torch.autograd.grad(found, x, slope), torch.autograd.grad(want, x, slope))


def test_code_that_dynamo_writes_may_have_constants_without_a_hash():
    """Behind the break Dynamo's code holds a dict; each frame of the stack is asked whose it is."""

    def f(x, n):
        torch._check_tensor_all(n.sum() == x.shape[0], lambda: "as many as x has")
        return x * 2

    function, x = torch.compile(f, backend=backend), torch.ones(4)
    assert torch.equal(function(x, torch.tensor([1, 3])), x * 2)
    with pytest.raises(RuntimeError, match="as many as x has"):
        function(x, torch.tensor([1, 4]))
