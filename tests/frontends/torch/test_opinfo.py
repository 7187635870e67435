"""A fixed part of PyTorch's table of ops, each entry's first samples; `make torch-ops` runs all of them."""

from pathlib import Path

import pytest
import torch

from tests.frontends.torch import opinfo

FORWARD = """diff cummax searchsorted nn.functional.adaptive_max_pool2d masked_scatter linalg.lu_factor linalg.solve special.zeta
mode histc scatter_reduce.mean nextafter special.legendre_polynomial_p igammac i0 special.i1e special.bessel_j0 special.bessel_y1
special.modified_bessel_k0 special.scaled_modified_bessel_k1""".split()
BACKWARD = "cdist linalg.det nn.functional.adaptive_avg_pool2d diagonal_scatter logcumsumexp".split()


@pytest.fixture(autouse=True)
def _prepared():
    with opinfo.prepared():
        yield


def test_the_table_of_the_docs_is_the_record():
    """By `make torch-ops`, which also says what has to be kept of it: 650 entries agree, 500 of them wholly ours, 400 with derivatives."""
    docs = Path(__file__).parents[3] / "docs" / "torch.md"
    assert opinfo.with_table(docs.read_text()) == docs.read_text()
    rows = {line.split(" |")[0].strip("| "): [int(x) for x in line.split("|")[2:5]] for line in opinfo.page().splitlines()[2:4]}
    (entries, agree, ours), derivatives = rows["float32"], rows["float32, gradients"]
    assert entries == 677 and agree >= 650 and ours >= 500 and derivatives[0] == 540 and derivatives[2] >= 400


@pytest.mark.parametrize(("name", "gradients"), [*[(n, False) for n in FORWARD], *[(n, True) for n in BACKWARD]])
def test_entries_agree_with_eager_and_are_wholly_ours(name, gradients):
    entry = opinfo.entries(torch.float32)[name]
    found = opinfo.check(name, entry, torch.float32, 2, gradients, "")
    assert found["samples"] and found["agree"] == found["samples"], found["failed"]
    assert found["calls"] and not found["in_torch"]
