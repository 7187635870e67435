"""Samples of the elementwise functions."""

import numpy as np
import scipy.special
import torch
from function_table import ANY, NUMBERS, row

import ngraph as ng

for _name, _values, _numpy, _torch in (
    ("tan", "-1.2..1.2", np.tan, torch.tan),
    ("exp2", "", np.exp2, torch.exp2),
    ("log2", "0.1..4", np.log2, torch.log2),
    ("log10", "0.1..4", np.log10, torch.log10),
    ("asin", "-0.95..0.95", np.arcsin, torch.asin),
    ("acos", "-0.95..0.95", np.arccos, torch.acos),
    ("sinh", "-9..9", np.sinh, torch.sinh),
    ("cosh", "-9..9", np.cosh, torch.cosh),
    ("asinh", "-9..9", np.arcsinh, torch.asinh),
    ("acosh", "1.01..20", np.arccosh, torch.acosh),
    ("atanh", "-0.95..0.95", np.arctanh, torch.atanh),
    ("sinc", "", np.sinc, torch.sinc),
    ("erfinv", "-0.95..0.95", scipy.special.erfinv, torch.erfinv),
    ("lgamma", "-3.8..12", scipy.special.gammaln, torch.lgamma),
    ("digamma", "-3.8..12", scipy.special.digamma, torch.digamma),
    ("trigamma", "-3.8..12", lambda x: scipy.special.polygamma(1, x), lambda x: torch.polygamma(1, x)),
    ("hardswish", "-6..6", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), torch.nn.functional.hardswish),
    ("mish", "-6..6", lambda x: x * np.tanh(np.logaddexp(x, 0)), torch.nn.functional.mish),
):
    row(
        _name,
        [f"A B:{_values}"],
        getattr(ng, _name),
        _numpy,
        torch=_torch,
        edges=_name not in ("trigamma",),
        ulp=16 if "gamma" in _name else 8,
    )
for _name, _numpy in (("ceil", np.ceil), ("trunc", np.trunc)):
    row(
        _name,
        ["A B:-6..6"],
        getattr(ng, _name),
        lambda x, f=_numpy: f(x) if x.dtype.kind == "f" else x,
        dtypes=NUMBERS,
        edges=True,
        slope=False,
    )
for _name, _numpy in (("isnan", np.isnan), ("isinf", np.isinf), ("isfinite", np.isfinite)):
    row(_name, ["A B:special"], getattr(ng, _name), _numpy, dtypes=ANY, slope=False)
for _name, _values, _numpy, _torch in (
    ("atan2", "", np.arctan2, torch.atan2),
    ("hypot", "", np.hypot, torch.hypot),
    ("logaddexp", "-5..5", np.logaddexp, torch.logaddexp),
):
    row(_name, [f"A B:{_values}"] * 2, getattr(ng, _name), _numpy, torch=_torch, edges=True)

MOST = 3.4028234663852886e38
row(
    "nan_to_num",
    ["A B:special"],
    ng.nan_to_num,
    lambda x: np.nan_to_num(x, posinf=MOST, neginf=-MOST),
    dtypes=["float32"],
    slope=False,
)
row(
    "nan_to_num with numbers",
    ["A B:special"],
    lambda x: ng.nan_to_num(x, 1.0, 2.0, 3.0),
    lambda x: np.nan_to_num(x, nan=1, posinf=2, neginf=3),
    slope=False,
)
row("logical_xor", ["A B", "A B"], ng.logical_xor, np.logical_xor, dtypes=ANY, slope=False)
row(
    "leaky_relu",
    ["A B"],
    lambda x: ng.leaky_relu(x, 0.2),
    lambda x: np.where(x > 0, x, 0.2 * x),
    torch=lambda x: torch.nn.functional.leaky_relu(x, 0.2),
    edges=True,
)
row("prelu", ["A B", "B"], ng.prelu, lambda x, w: np.where(x > 0, x, w * x), torch=lambda x, w: torch.where(x > 0, x, w * x))
