"""PyTorch's tensors as arguments, through DLPack's C exchange API: no copies, all dtypes that have a record, any strides."""

from __future__ import annotations

import gc
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
