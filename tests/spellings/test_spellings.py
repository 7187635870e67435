"""Names of NumPy, PyTorch and jax.numpy: each is here, or the error for it names what to use; and that exists."""

import re

import numpy as np
import pytest
import torch

import ngraph as ng
from ngraph.errors import ArgumentTypeError, UnknownName
from ngraph.op_graph import misspelt

F = torch.nn.functional

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
    tables = {**misspelt.OF_NGRAPH, **misspelt.OF_LINALG}
    wrong = {n: said for n, said in tables.items() for f in re.findall(r"\bng\.(\w+)", said) if not hasattr(ng, f)}
    wrong |= {n: said for n, said in tables.items() for f in re.findall(r"\bng\.linalg\.(\w+)", said) if not hasattr(ng.linalg, f)}
    assert wrong == {}


X, Y = np.random.default_rng(3).uniform(-0.9, 0.9, (2, 5, 4))
OF_ONE = {  # names whose error gives an expression of x [N, K], and what the library computes that has the name
    "logsigmoid": F.logsigmoid,
    "softsign": F.softsign,
    "celu": F.celu,
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "hardsigmoid": F.hardsigmoid,
    "tanhshrink": F.tanhshrink,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "expit": torch.special.expit,
    "erfc": torch.special.erfc,
    "gammaln": torch.special.gammaln,
    "ndtr": torch.special.ndtr,
    "signbit": torch.signbit,
    "cbrt": lambda x: torch.tensor(np.cbrt(x.numpy())),
    "rad2deg": torch.rad2deg,
    "deg2rad": torch.deg2rad,
    "fix": torch.fix,
    "diff": torch.diff,
    "selu": F.selu,
    "nansum": torch.nansum,
    "nanmean": torch.nanmean,
    "nanmax": lambda x: torch.tensor(np.nanmax(x.numpy())),
    "count_nonzero": torch.count_nonzero,
    "cov": lambda x: torch.cov(x.T),
    "corrcoef": lambda x: torch.corrcoef(x.T),
}
OF_TWO = {  # of x and y [N, K]
    "xlogy": torch.special.xlogy,
    "copysign": torch.copysign,
    "heaviside": torch.heaviside,
    "ldexp": torch.ldexp,
    "cosine_similarity": F.cosine_similarity,
    "pairwise_distance": lambda x, y: F.pairwise_distance(x, y, eps=0),
    "mse_loss": F.mse_loss,
    "l1_loss": F.l1_loss,
}


@pytest.mark.parametrize("name", [*OF_ONE, *OF_TWO])
def test_an_expression_that_an_error_gives_is_that_function(name):
    x, y = (ng.placeholder("N=5 K=4", dtype="float64") for _ in "xy")
    text = misspelt.OF_NGRAPH[name].partition(", of d = ")
    names = {"ng": ng, "x": x, "y": y, "axes": ("N", "K"), "D": "K", "n": 5, "inf": float("inf")}
    names["d"] = eval(text[2], names) if text[2] else None
    first = np.where(X > 0.8, np.nan, X) if name.startswith("nan") else X
    got = ng.function(eval(text[0].replace("'D'", "'K'"), names), x, y)(first, Y)
    a, b = torch.tensor(first), torch.tensor(Y)
    want = OF_ONE[name](a) if name in OF_ONE else OF_TWO[name](a, b)
    assert np.shape(got) == tuple(want.shape)
    np.testing.assert_allclose(np.asarray(got, float), want, rtol=1e-4 if name == "selu" else 1e-9, atol=1e-9)


def test_linear_algebra_says_its_names_and_arguments():
    x = ng.placeholder("H=3 K=3")
    assert dir(ng.linalg) == sorted(ng.linalg.__all__)
    for name in ("norm", "eigvalsh", "cond", "solve_triangular", "vector_norm"):
        with pytest.raises(UnknownName, match="fix: write ng"):
            getattr(ng.linalg, name)
    with pytest.raises(UnknownName, match="fix: write ng.linalg.cholesky"):
        _ = ng.linalg.choleski
    with pytest.raises(ArgumentTypeError, match="columns"):
        ng.linalg.solve(x, x, "H")
    assert not hasattr(ng.linalg, "__wrapped__")


def test_arguments_of_other_libraries_are_named():
    x = ng.placeholder("H=3 K=3")
    for call, meant in {
        lambda: ng.tril(x, "H", "K", k=1): "offset=",
        lambda: ng.normal("K=3", std=2.0): "scale=",
        lambda: ng.var(x, "K", ddof=1): "correction=",
        lambda: ng.interpolate(x, scale_factor=2): "lengths=",
        lambda: ng.unique(x, return_counts=True): "counts=",
    }.items():
        with pytest.raises(UnknownName, match=f"fix: take {meant}"):
            call()


def test_a_verb_of_the_command_and_an_op_are_guessed(capsys):
    from ngraph.tools.main import main

    assert main(["opz"]) == 2 and "did you mean ops?" in capsys.readouterr().err
    assert main(["ops", "tanhh"]) == 2 and "did you mean tanh?" in capsys.readouterr().err
    assert main([]) == 0 and "usage: ngraph" in capsys.readouterr().out
