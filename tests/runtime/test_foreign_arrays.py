"""PyTorch's tensors as arguments, through DLPack's C exchange API: no copies, all dtypes that have a record, any strides."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError
from ngraph.op_graph.arrays import as_array
from ngraph.op_graph.dlpack import exchange_api
from ngraph.op_graph.dtypes import as_dtype
from ngraph.runtime.host import blocks
from ngraph.runtime.host.blocks import ResultBlocks

ALL = pytest.mark.parametrize("name", ["cpu", "numpy", "direct"])
DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
]  # fmt: skip


def made(name: str) -> Any:
    return ngt.make_transformer_factory(name)()


def bits(x: torch.Tensor) -> np.ndarray:
    return x.detach().contiguous().view(torch.uint8).numpy()


@ALL
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_that_has_a_record(name: str, dtype: str) -> None:
    p, m = ng.make_axis(3, name="P"), ng.make_axis(4, name="M")
    x = ng.placeholder([p, m], dtype=dtype)
    f = made(name).computation(ng.axes_with_order(x, [m, p]), x)
    values = torch.arange(12).reshape(4, 3).float().to(getattr(torch, dtype)).t()
    for _ in range(3):
        got = f(values)
        assert got.dtype == as_dtype(dtype).np
        assert (got.view(np.uint8).reshape(-1) == bits(values.t()).reshape(-1)).all()


@ALL
def test_parameters_and_what_requires_a_gradient(name: str) -> None:
    p = ng.make_axis(3, name="P")
    x = ng.placeholder([p])
    f = made(name).computation(x + 1.0, x)
    w = torch.nn.Parameter(torch.ones(3))
    for given in (w, w * 2, w.detach(), torch.ones(6, requires_grad=True)[::2]):
        for _ in range(3):
            np.testing.assert_array_equal(f(given), given.detach().numpy() + 1)


@ALL
def test_tensors_are_written_where_they_lie(name: str) -> None:
    p, m = ng.make_axis(3, name="P"), ng.make_axis(4, name="M")
    x, y = ng.placeholder([p, m]), ng.placeholder([m])
    f = made(name).computation(ng.sum(x, p), x, y, writes={x: x + y})
    for given in (torch.zeros(3, 4), torch.nn.Parameter(torch.zeros(3, 4)), torch.zeros(4, 3).t(), torch.zeros(6, 8)[::2, ::2]):
        at = given.data_ptr()
        for k in range(4):
            np.testing.assert_array_equal(f(given, torch.arange(4.0)), np.arange(4.0) * 3 * k)
        np.testing.assert_array_equal(given.detach().numpy(), np.tile(np.arange(4.0) * 4, (3, 1)))
        assert given.data_ptr() == at
    with pytest.raises(ArgumentError, match="share one"):
        f(torch.zeros(4).expand(3, 4), torch.zeros(4))


@ALL
def test_what_has_no_memory_here(name: str) -> None:
    p, m = ng.make_axis(3, name="P"), ng.make_axis(3, name="M")
    x = ng.placeholder([p, m]).named("x")
    f = made(name).computation(x + 1.0, x)
    for bad, said in [
        (torch.eye(3).to_sparse(), "no memory to read"),
        (torch.zeros(3, 3, device="meta"), "no memory to read"),
        (torch.zeros(3, 3, dtype=torch.complex64), "DLPack's code 5 of 64 bits"),
        (torch.zeros(3, 2), "length 3, and got 2"),
    ]:
        for _ in range(2):
            with pytest.raises(ArgumentError, match=said):
                f(bad)
        f(torch.zeros(3, 3))


@pytest.mark.parametrize("seed", range(20))
def test_views_have_the_values_of_the_tensor(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.random([int(n) for n in rng.integers(1, 6, int(rng.integers(0, 5)))]).astype("f"))
    for d in range(x.ndim):
        step = int(rng.integers(1, 3))
        x = x.narrow(d, int(rng.integers(x.shape[d])), 1) if rng.random() < 0.2 else x[(slice(None),) * d + (slice(None, None, step),)]
    x = x.permute(*rng.permutation(x.ndim).tolist()) if x.ndim else x
    x = x.expand(3, *x.shape) if rng.random() < 0.3 else x[..., :0] if rng.random() < 0.1 and x.ndim else x
    got = as_array(x)
    np.testing.assert_array_equal(got, x.numpy())
    assert got.size == 0 or got.__array_interface__["data"][0] == x.data_ptr()


def test_a_view_keeps_the_tensor_alive() -> None:
    got = as_array(torch.full((1000,), 7.0))
    gc.collect()
    other = torch.zeros(1000)
    assert (got == 7).all() and other.sum() == 0


def test_new_arrays_are_the_librarys() -> None:
    api = exchange_api(torch.Tensor)
    assert api is not None and exchange_api(np.ndarray) is None and exchange_api(int) is None
    for dtype in DTYPES:
        x = api.empty((2, 3), as_dtype(dtype))
        assert type(x) is torch.Tensor and x.dtype == getattr(torch, dtype) and x.shape == (2, 3)
    assert api.empty((), as_dtype("float32")).shape == ()
    assert api.empty((0, 3), as_dtype("float32")).shape == (0, 3)
    with pytest.raises(MemoryError):
        api.empty((1 << 50,), as_dtype("float64"))


def large(shape: list[int | None]) -> Any:
    """A computation of `x + 1`, whose results PyTorch has; it was called for all open lengths 1."""
    x = ng.placeholder([ng.make_axis(n, name=f"A{k}") for k, n in enumerate(shape)])
    with ng.config(lengths="open"):
        f = made("cpu").computation(x + 1.0, x, array_type=torch.Tensor)
        for _ in range(3):
            f(torch.zeros([n or 1 for n in shape]))
    return f


def kept() -> ResultBlocks:
    return next(b for b in blocks._blocks)


def test_memory_of_large_results_is_used_again() -> None:
    shape = [512, 1200]
    f, x = large(shape), torch.randn(shape)
    first = f(x)
    at, row = first.data_ptr(), first[3]
    del first
    assert f(x).data_ptr() != at  # a view has it
    np.testing.assert_array_equal(row.numpy(), x[3].numpy() + 1)
    del row
    second = f(x)
    places = {second.data_ptr(), *[f(x * k).data_ptr() for k in range(5)]}
    assert len(places) == 2 and at in places
    np.testing.assert_array_equal(second.numpy(), x.numpy() + 1)
    assert second.untyped_storage().nbytes() == 4 * 512 * 1200 and second.is_contiguous() and at % 64 == 0


def test_memory_is_no_more_than_was_in_use_at_a_time() -> None:
    gc.collect()
    f = large([None, 1 << 19])
    base, rng = kept().used, np.random.default_rng(3)
    living: list[tuple[torch.Tensor, float]] = []
    most = 0
    for k in range(120):
        rows = int(rng.integers(1, 9))
        living.append((f(torch.full((rows, 1 << 19), float(k))), k + 1.0))
        most = max(most, sum(t.nbytes for t, _ in living))
        while living and rng.random() < 0.6:
            t, value = living.pop(int(rng.integers(len(living))))
            assert t[0, 0] == value and t[-1, -1] == value and bool((t == value).all())
            del t
        assert kept().held <= max(kept().most, base + 2 * most)
    assert all(bool((t == value).all()) for t, value in living)
    del living, f
    gc.collect()
    assert kept().used == base


def test_threads_give_back_what_others_made() -> None:
    shape = [1024, 1024]
    f = large(shape)

    def work(k: int) -> None:
        for n in range(20):
            x = torch.full(shape, float(k * 100 + n))
            w = torch.zeros(shape, requires_grad=True)
            y = f(x)
            (w * y).sum().backward()  # autograd's own thread releases what it saved
            assert bool((y == x + 1).all())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert kept().lock == 0


def test_large_results_may_outlive_the_modules() -> None:
    program = """
import sys, torch, ngraph as ng, ngraph.transformers as ngt
x = ng.placeholder([ng.make_axis(1 << 20, name="A")])
f = ngt.make_transformer().computation(x + 1.0, x, array_type=torch.Tensor)
sys.kept = [f(torch.zeros(1 << 20)) for _ in range(4)]
__builtins__.also = f(torch.zeros(1 << 20))
results = [f(torch.zeros(1 << 20)) for _ in range(4)]
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_memory_is_freed_with_the_last_computation() -> None:
    program = """
import gc, torch, ngraph as ng, ngraph.transformers as ngt
from ngraph.runtime.host import blocks
x = ng.placeholder([ng.make_axis(1 << 20, name="A")])
f = ngt.make_transformer().computation(x + 1.0, x, array_type=torch.Tensor)
for _ in range(4):
    y = f(torch.zeros(1 << 20))
(b,) = blocks._blocks
assert b.users > 0 and (b.used, b.held, b.count) == (1 << 22, 2 << 22, 1), (b.users, b.used, b.held, b.count)
del f
gc.collect()
assert (b.users, b.used, b.held, b.count) == (0, 1 << 22, 1 << 22, 0), (b.users, b.used, b.held, b.count)
assert y[-1] == 1
del y
assert (b.used, b.held) == (0, 0)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("length", [64 * 700 + 3, None])
def test_results_of_the_same_values_are_arrays_of_their_own(length: int | None) -> None:
    p, m = ng.make_axis(3, name="P"), ng.make_axis(length, name="M")
    x = ng.placeholder([p, m])
    results = [x + 1.0, ng.sum(x, p), x + 1.0, ng.axes_with_order(x + 1.0, [m, p])]
    for kind in (torch.Tensor, np.ndarray):
        f = made("cpu").computation(results, x, array_type=kind)
        for k in range(5):
            given = torch.full((3, length or 77), float(k))
            got = f(given if kind is torch.Tensor else given.numpy())
            first, total, second, turned = [np.asarray(a) for a in got]
            assert f._fast is not None and second.ctypes.data != first.ctypes.data
            for a in (first, second, turned.T):
                np.testing.assert_array_equal(a, given + 1)
            np.testing.assert_array_equal(total, given.sum(0))
        out = [np.zeros_like(np.asarray(a)) for a in got]
        assert f(given if kind is torch.Tensor else given.numpy(), out=out) is out
        np.testing.assert_array_equal(out[2], given + 1)


def test_memory_is_used_again_where_python_takes_the_calls() -> None:
    f, places = large([600, 1000]), set()
    for k in range(6):
        got = f.call(torch.full((600, 1000), float(k)))
        places.add(got.data_ptr())
        assert bool((got == k + 1).all())
    assert len(places) == 2
