"""Names of NumPy, PyTorch and jax.numpy: each is here, or the error for it names what to use; and that exists."""

import re

import numpy as np
import pytest
import torch

import ngraph as ng
from ngraph.errors import UnknownName
from ngraph.op_graph import misspelt

NUMPY = """
    abs absolute add all allclose amax amin any append arange arccos arcsin arctan arctan2 argmax argmin argsort array array_equal asarray
    average broadcast_to ceil clip concatenate cos cosh cross cumprod cumsum deg2rad diag diagonal divide dot einsum empty equal exp exp2
    expand_dims expm1 eye flip floor floor_divide fmod full full_like gradient greater greater_equal histogram hstack identity
    inner isclose isfinite isinf isnan kron less less_equal linspace log log10 log1p log2 logaddexp logical_and logical_not logical_or
    logical_xor matmul max maximum mean median min minimum mod moveaxis multiply nan_to_num nanmean nansum negative nonzero not_equal
    ones ones_like outer pad percentile power prod ptp quantile ravel reciprocal remainder repeat reshape rint roll rot90 round
    searchsorted sign sin sinh sort split sqrt square squeeze stack std subtract sum swapaxes take tan tanh tensordot tile trace transpose
    tril triu true_divide trunc unique unstack vander var vdot vstack where zeros zeros_like
""".split()
TORCH = """
    addmm baddbmm bernoulli bmm cat chunk clamp conv1d conv2d cross_entropy cumsum detach dropout embedding erf erfinv
    flatten from_numpy gather gelu index_select layer_norm lgamma log_softmax logsumexp masked_fill masked_select mm multinomial
    narrow no_grad norm normal one_hot permute rand randint randn randperm relu rsqrt scatter_add selu sigmoid silu softmax
    softplus tensor topk unbind unflatten unsqueeze
""".split()
JAX = "grad value_and_grad jit vmap pmap hessian jacobian jacfwd jacrev jvp vjp scan cond while_loop fori_loop switch stop_gradient".split()
NAMES = sorted({*NUMPY, *TORCH, *JAX})


def test_there_are_enough():
    assert len(NAMES) >= 150
    assert [n for n in NUMPY if not hasattr(np, n)] == []
    assert [n for n in TORCH if not hasattr(torch, n) and not hasattr(torch.nn.functional, n)] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_here_or_its_error_says_what_to_use(name):
    try:
        assert getattr(ng, name) is not None
    except UnknownName as error:
        named = [n for n in re.findall(r"\bng\.(\w+)", error.fix) if not hasattr(ng, n)]
        assert error.fix.startswith("write ") and name in misspelt.OF_NGRAPH, error.fix
        assert named == [], f"{error.fix}: there is no {named}"


def test_what_the_table_names_is_here():
    wrong = {n: said for n, said in misspelt.OF_NGRAPH.items() for f in re.findall(r"\bng\.(\w+)", said) if not hasattr(ng, f)}
    assert wrong == {}


def test_a_verb_of_the_command_and_an_op_are_guessed(capsys):
    from ngraph.tools.main import main

    assert main(["opz"]) == 2 and "did you mean ops?" in capsys.readouterr().err
    assert main(["ops", "tanhh"]) == 2 and "did you mean tanh?" in capsys.readouterr().err
    assert main([]) == 0 and "usage: ngraph" in capsys.readouterr().out
