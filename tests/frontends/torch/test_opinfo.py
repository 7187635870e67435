"""A fixed part of PyTorch's table of ops, each entry's first samples; `make torch-ops` runs all of them."""

import pytest
import torch

from tests.frontends.torch import opinfo

FORWARD = """diff cummax searchsorted nn.functional.adaptive_max_pool2d masked_scatter linalg.lu_factor linalg.solve special.zeta
mode histc scatter_reduce.mean nextafter special.legendre_polynomial_p""".split()
BACKWARD = "cdist linalg.det nn.functional.adaptive_avg_pool2d diagonal_scatter logcumsumexp".split()


@pytest.fixture(autouse=True)
def _prepared():
    with opinfo.prepared():
        yield


@pytest.mark.parametrize(("name", "gradients"), [*[(n, False) for n in FORWARD], *[(n, True) for n in BACKWARD]])
def test_entries_agree_with_eager_and_are_wholly_ours(name, gradients):
    entry = opinfo.entries(torch.float32)[name]
    found = opinfo.check(name, entry, torch.float32, 2, gradients, "")
    assert found["samples"] and found["agree"] == found["samples"], found["failed"]
    assert found["calls"] and not found["in_torch"]
