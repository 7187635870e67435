"""Names of NumPy, PyTorch and jax.numpy: each is here, or the error for it names what to use; and that exists."""

import ast
import math
import re

import numpy as np
import pytest
import scipy.special
import torch

import ngraph as ng
from ngraph.errors import ArgumentTypeError, UnknownName
from ngraph.op_graph import foreign_names

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
MORE = """
    addbmm addmv addr adaptive_avg_pool2d adjoint affine_grid aminmax angle argpartition argwhere atleast_1d bitwise_and block bucketize
    cbrt cdist celu choose clip_by_norm column_stack complex compress conj conv_transpose2d copysign corrcoef count_nonzero cov ctc_loss
    degrees delete diag_embed diff digitize dist divmod embedding_bag empty_like expand_as extract fft2 fftshift fill_diagonal fix fliplr
    float_power fmax fmin fold frac gammaln gather_nd geomspace hamming hanning hard_swish heaviside histc huber_loss imag index_add
    index_copy index_put inf insert interp inverse isin isneginf istft kl_div kthvalue lerp lexsort logaddexp2 logdet logit logspace
    manual_seed masked_scatter matrix_rank meshgrid mode movedim multigammaln nan nanargmax nancumsum nanmedian nanprod nanstd
    nanvar ndtr nll_loss nn normalize optim percentile permute_dims pi pixel_unshuffle polar polygamma polyval putmask radians random
    ravel_multi_index real remat renorm repeat_interleave result_type rrelu save scatter_reduce segment_min select seterr sgn shape
    size smooth_l1_loss softmin softshrink softsign std_mean strided_slice swish take_along_dim tanhshrink tensor_scatter_nd_update
    tensor_split threshold trapezoid tri triangular_solve union1d unravel_index upsample var_mean vecdot vector_norm view_as_real
    xlog1py xlogy zero_grad Tensor Parameter Module Linear Conv2d Sequential DataLoader Adam GradientTape convert_to_tensor lax tree_map
    make_jaxpr device eval_shape associative_scan custom_vjp
""".split()
STACK = """
    Backend Session Symbol batch_matmul block_grad broadcast_add broadcast_distributed broadcast_like broadcast_mul convert
    convolution_backprop_data dense depth_to_space dequantize deserialize elemwise_add elemwise_sub expand_like gemm
    global_avg_pool2d greater_eq group gru_cell initialize_all_variables less_eq parameter product quantize replace_slice reverse
    scatter_nd_add serialize shape_of slice space_to_depth train upsampling
""".split()  # nGraph of 2019, NNVM and TinyFlow
JAX = "grad value_and_grad jit vmap pmap hessian jacobian jacfwd jacrev jvp vjp scan cond while_loop fori_loop switch stop_gradient".split()
NAMES = sorted({*NUMPY, *TORCH, *JAX, *MORE, *STACK})


def test_there_are_enough():
    assert len(NAMES) >= 300
    assert [n for n in NUMPY if not hasattr(np, n)] == []
    assert [n for n in TORCH if not hasattr(torch, n) and not hasattr(torch.nn.functional, n)] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_here_or_its_error_says_what_to_use(name):
    try:
        assert getattr(ng, name) is not None
    except UnknownName as error:
        named = [n for n in re.findall(r"\bng\.(\w+)", error.fix) if not hasattr(ng, n)]
        assert error.fix.startswith("write ") and name in foreign_names.OF_NGRAPH, error.fix
        assert named == [], f"{error.fix}: there is no {named}"


def test_what_the_table_names_is_here():
    tables = {**foreign_names.OF_NGRAPH, **foreign_names.OF_LINALG}
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
    "arccosh": torch.acosh,
    "arcsinh": torch.arcsinh,
    "arctanh": torch.arctanh,
    "nanprod": lambda x: torch.tensor(np.nanprod(x.numpy())),
    "nancumsum": lambda x: torch.tensor(np.nancumsum(x.numpy(), 1)),
    "nancumprod": lambda x: torch.tensor(np.nancumprod(x.numpy(), 1)),
    "nanargmax": lambda x: torch.tensor(np.nanargmax(x.numpy())),
    "nanargmin": lambda x: torch.tensor(np.nanargmin(x.numpy())),
    "nanvar": lambda x: torch.tensor(np.nanvar(x.numpy())),
    "nanstd": lambda x: torch.tensor(np.nanstd(x.numpy())),
    "radians": torch.deg2rad,
    "degrees": torch.rad2deg,
    "frac": torch.frac,
    "sgn": torch.sgn,
    "isposinf": torch.isposinf,
    "isneginf": torch.isneginf,
    "clamp_min": lambda x: torch.clamp_min(x, 0.3),
    "clamp_max": lambda x: torch.clamp_max(x, 0.3),
    "erfcinv": lambda x: torch.tensor(scipy.special.erfcinv(x.numpy())),
    "mvlgamma": lambda x: torch.mvlgamma(x, 2),
    "swish": F.silu,
    "hard_swish": F.hardswish,
    "cumulative_trapezoid": lambda x: torch.cumulative_trapezoid(x, dx=0.5),
    "msort": lambda x: torch.sort(x, 1).values,
    "as_strided": lambda x: x.unfold(1, 2, 1),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool1d(x, 2),
    "fft2": lambda x: torch.view_as_real(torch.fft.fft2(x)),
    "fftshift": lambda x: torch.fft.fftshift(x, 0),
    "ifftshift": lambda x: torch.fft.ifftshift(x, 0),
    "clip_by_norm": lambda x: x * min(1.0, 0.3 / x.norm().item()),
    "normalize": lambda x: F.normalize(x, dim=1),
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "full_like": lambda x: torch.full_like(x, 0.3),
    "amax": torch.amax,
    "ptp": lambda x: torch.tensor(np.ptp(x.numpy())),
    "select": lambda x: x[:, 2],
    "narrow": lambda x: torch.narrow(x, 1, 0, 2),
    "strided_slice": lambda x: x[:, 1:3:2],
    "repeat_interleave": lambda x: torch.repeat_interleave(x, 2, 1),
    "fill_diagonal": lambda x: torch.tensor(np.where(np.eye(5, 4) > 0, 0.3, x.numpy())),
    "softmin": lambda x: F.softmin(x.flatten(), 0).reshape(x.shape),
    "delete": lambda x: torch.tensor(np.delete(x.numpy(), 2, 1)),
}
OF_TWO = {  # of x and y [N, K]
    "xlogy": torch.special.xlogy,
    "copysign": torch.copysign,
    "heaviside": torch.heaviside,
    "ldexp": torch.ldexp,
    "cosine_similarity": F.cosine_similarity,
    "pairwise_distance": lambda x, y: F.pairwise_distance(x, y, eps=0),
    "fmod": torch.fmod,
    "divmod": lambda x, y: torch.stack([torch.floor_divide(x, y), torch.remainder(x, y)]),
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "float_power": torch.float_power,
    "logaddexp2": torch.logaddexp2,
    "squared_difference": lambda x, y: (x - y) ** 2,
    "addcmul": lambda x, y: torch.addcmul(torch.ones_like(x), x, y, value=0.3),
    "addcdiv": lambda x, y: torch.addcdiv(torch.ones_like(x), x, y, value=0.3),
    "xlog1py": torch.special.xlog1py,
    "dist": torch.dist,
    "smooth_l1_loss": F.smooth_l1_loss,
    "huber_loss": F.huber_loss,
    "binary_cross_entropy": F.binary_cross_entropy,
    "binary_cross_entropy_with_logits": F.binary_cross_entropy_with_logits,
    "kl_div": F.kl_div,
    "poisson_nll_loss": F.poisson_nll_loss,
    "gaussian_nll_loss": lambda x, y: F.gaussian_nll_loss(x, y, x * x + 0.1),
    "soft_margin_loss": F.soft_margin_loss,
    "hinge_embedding_loss": F.hinge_embedding_loss,
    "margin_ranking_loss": lambda x, y: F.margin_ranking_loss(x, y, torch.ones_like(x)),
    "triplet_margin_loss": lambda x, y: F.triplet_margin_loss(x, y, torch.ones_like(x), eps=0),
    "union1d": lambda x, y: torch.tensor(np.union1d(x.numpy(), y.numpy())),
    "choose": lambda x, y: torch.tensor(np.choose([1, 0, 1, 1], [x.numpy(), y.numpy()])),
    "allclose": lambda x, y: torch.tensor(torch.allclose(x, y)),
    "array_equal": lambda x, y: torch.tensor(torch.equal(x, y)),
    "polar": lambda x, y: torch.view_as_real(torch.polar(x.abs(), y)),
    "mse_loss": F.mse_loss,
    "l1_loss": F.l1_loss,
}


def one_or_minus_one(y):
    return y / abs(y)


GIVEN = {  # what x, or x and y, are in their place
    "arccosh": [lambda x: abs(x) + 1.1],
    "mvlgamma": [lambda x: x + 2],
    "erfcinv": [lambda x: abs(x) + 0.5],
    "float_power": [abs, lambda y: y],
    "smooth_l1_loss": [lambda x: x * 3, lambda y: y],
    "huber_loss": [lambda x: x * 3, lambda y: y],
    "binary_cross_entropy": [abs, lambda y: one_or_minus_one(y) * 0.5 + 0.5],
    "binary_cross_entropy_with_logits": [lambda x: x, lambda y: one_or_minus_one(y) * 0.5 + 0.5],
    "kl_div": [lambda x: x, abs],
    **{n: [lambda x: x, one_or_minus_one] for n in ("soft_margin_loss", "hinge_embedding_loss")},
}


def expression(text):
    """The longest beginning of a text that is an expression of Python, without the words behind it."""
    for end in sorted({len(text), *(m.start() for m in re.finditer(r", |: |; ", text))}, reverse=True):
        try:
            ast.parse(text[:end], mode="eval")
        except SyntaxError:
            continue
        return text[:end]
    raise AssertionError(f"{text!r} begins with no expression")


@pytest.mark.parametrize("name", [*OF_ONE, *OF_TWO])
def test_an_expression_that_an_error_gives_is_that_function(name):
    holes = [ng.placeholder("N=5 K=4", dtype="float64") for _ in "xy"]
    same = [lambda x: x, lambda y: y]
    given = [*GIVEN.get(name, ()), *same[len(GIVEN.get(name, ())) :]]
    x, y = (f(h) for f, h in zip(given, holes, strict=True))
    text, _, defined = foreign_names.OF_NGRAPH[name].partition(", of d = ")
    names = {"ng": ng, "math": math, "x": x, "y": y, "z": ng.ones("N=5 K=4", "float64"), "axes": ("N", "K"), "axis": "K", "D": "K", "n": 5}
    names |= {"number": 0.3, "step": 0.5, "count": 2, "weights": 1.0, "variance": x * x + 0.1, "r": abs(x), "angle": y}
    names |= {"rows": "N=5", "columns": "K=4", "indices": ng.constant(np.array([1, 0, 1, 1]), "K=4")}
    names["d"] = eval(defined, names) if defined else None
    first = np.where(X > 0.8, np.nan, X) if name.startswith("nan") or name in ("fmax", "fmin") else X
    got = ng.function(eval(expression(text).replace("'D'", "'K'"), names), *holes)(first, Y)
    a, b = (f(torch.tensor(array)) for f, array in zip(given, (first, Y), strict=True))
    want = OF_ONE[name](a) if name in OF_ONE else OF_TWO[name](a, b)
    assert np.shape(got) == tuple(want.shape)
    np.testing.assert_allclose(np.asarray(got, float), want, rtol=1e-4 if name == "selu" else 1e-9, atol=1e-9)


def test_blocks_are_put_behind_and_before_channels_as_onnx_does():
    array = np.arange(2 * 8 * 4 * 6, dtype=np.float32).reshape(2, 8, 4, 6)
    x = ng.placeholder("N=2 C=8 H=4 W=6")
    values = {
        "space_to_depth": array.reshape(2, 8, 2, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(2, 32, 2, 3),
        "depth_to_space": array.reshape(2, 2, 2, 2, 4, 6).transpose(0, 3, 4, 1, 5, 2).reshape(2, 2, 8, 12),
    }
    for name, want in values.items():
        np.testing.assert_array_equal(ng.function(eval(foreign_names.OF_NGRAPH[name], {"ng": ng, "x": x}), x)(array), want)


def test_quantized_values_are_rounded_to_even_and_bounded():
    x, q = ng.placeholder("N=6"), ng.placeholder("N=6", dtype="int8")
    given, kept = np.array([0.25, 0.75, -0.25, -1, 100, -100], np.float32), np.array([3, 5, 3, 1, 127, -128], np.int8)
    names = {"ng": ng, "scale": 0.5, "zero_point": 3}
    got = ng.function(eval(foreign_names.OF_NGRAPH["quantize"], {**names, "x": x}), x)(given)
    assert got.dtype == np.int8 and got.tolist() == kept.tolist()
    assert ng.function(eval(foreign_names.OF_NGRAPH["dequantize"], {**names, "x": q}), q)(kept).tolist() == [0, 1, 0, -1, 62, -65.5]


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


def test_dtypes_as_methods_name_their_own():
    x = ng.placeholder("N=2 K=3")
    for name, dtype in (
        ("float", "float32"),
        ("double", "float64"),
        ("half", "float16"),
        ("bfloat16", "bfloat16"),
        ("long", "int64"),
        ("bool", "bool"),
    ):
        with pytest.raises(AttributeError) as error:
            getattr(x, name)
        written = str(error.value).partition("write ")[2]
        assert eval(written, {"x": x}).dtype.name == dtype
