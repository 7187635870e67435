"""Samples of functions that reduce, rank, count, move and normalise along axes."""

import numpy as np
import scipy.special
import torch
from function_table import ANY, FLOATS, INTS, NUMBERS, row

import ngraph as ng

SEGMENTS, SINGLE = ng.make_axis(4, name="S"), ["float32", "float64"]

# ---- creation ---------------------------------------------------------------------------------------------------------

for _name, _call, _value in (
    ("zeros", lambda: ng.zeros("A=3 B=4", "int8"), np.zeros((3, 4))),
    ("ones", lambda: ng.ones("A=3 B=4"), np.ones((3, 4))),
    ("full", lambda: ng.full("A=3 B=2", 7.5), np.full((3, 2), 7.5)),
    ("full of whole numbers", lambda: ng.full("A=3", -4), np.full(3, -4)),
    ("eye", lambda: ng.eye("A=3", "B=4"), np.eye(3, 4)),
    ("eye beside", lambda: ng.eye("A=3", "B=4", 1), np.eye(3, 4, 1)),
    ("eye of a dual", lambda: ng.eye("A=3", dtype="int32"), np.eye(3)),
    ("arange", lambda: ng.arange(5, axis="K"), np.arange(5)),
    ("arange down", lambda: ng.arange(9, 2, -3, axis="K"), np.arange(9, 2, -3)),
    ("arange of floats", lambda: ng.arange(0.5, 3, 0.4, axis="K"), np.arange(0.5, 3, 0.4)),
    ("arange of nothing", lambda: ng.arange(3, 3, axis="K"), np.arange(3, 3)),
    ("linspace", lambda: ng.linspace(-1, 3, "K=7"), np.linspace(-1, 3, 7)),
    ("linspace without the end", lambda: ng.linspace(-1, 3, "K=7", endpoint=False), np.linspace(-1, 3, 7, endpoint=False)),
    ("linspace of one", lambda: ng.linspace(2, 3, "K=1"), np.linspace(2, 3, 1)),
):
    row(_name, [], _call, lambda v=_value: v, dtypes=["float32"], slope=False, lengths=())

# ---- statistics -------------------------------------------------------------------------------------------------------

row("var", ["A B"], lambda x: ng.var(x, "B"), lambda x: np.var(x, 1), torch=lambda x: x.var(1, correction=0))
row("var of a sample", ["A B"], lambda x: ng.var(x, "A", correction=1), lambda x: np.var(x, 0, ddof=1), torch=lambda x: x.var(0))
row("std", ["A B C"], lambda x: ng.std(x, "A C"), lambda x: np.std(x, (0, 2)), torch=lambda x: x.std((0, 2), correction=0))
row("std of whole numbers", ["A B"], lambda x: ng.std(x, "B"), lambda x: np.std(x, 1), dtypes=INTS, slope=False, lengths=(1,))
for _p in (2, 1, np.inf, -np.inf, 3, 0.5, 0):
    row(
        f"norm {_p}",
        ["A B"],
        lambda x, p=_p: ng.norm(x, p, "B"),
        lambda x, p=_p: np.linalg.norm(x, p, 1),
        torch=lambda x, p=_p: torch.linalg.vector_norm(x, p, 1),
        lengths=(1,),
        slope=_p != 0,
        ulp=24,
    )
for _name, _call, _numpy in (("any", ng.any, np.any), ("all", ng.all, np.all)):
    row(_name, ["A B"], lambda x, f=_call: f(x, "B"), lambda x, f=_numpy: f(x, 1), dtypes=ANY, slope=False, edges=True)
for _m in ("linear", "lower", "higher", "nearest", "midpoint"):
    row(
        f"quantile {_m}",
        ["A B"],
        lambda x, m=_m: ng.quantile(x, 0.3, "B", method=m),
        lambda x, m=_m: np.quantile(x, 0.3, 1, method=m),
        torch=lambda x, m=_m: torch.quantile(x, 0.3, 1, interpolation=m),
        lengths=(1,),
        edges=_m == "lower",
    )
HYNDMAN_FAN = (
    "inverted_cdf averaged_inverted_cdf closest_observation interpolated_inverted_cdf hazen weibull median_unbiased normal_unbiased"
).split()
for _m in HYNDMAN_FAN:
    row(
        f"quantile {_m}",
        ["A=13 B=5"],
        lambda x, m=_m: [ng.quantile(x, q, "A", method=m) for q in (0, 0.07, 0.3, 0.77, 1)],
        lambda x, m=_m: [np.quantile(x, q, 0, method=m) for q in (0, 0.07, 0.3, 0.77, 1)],
        lengths=(1,),
        edges=_m in ("inverted_cdf", "closest_observation"),
    )
row(
    "quantile of several shares",
    ["A B C", "D:0..1"],
    lambda x, q: ng.quantile(x, ng.cast(q, "float32") if q.dtype.bits == 16 else q, "A C"),
    lambda x, q: np.quantile(x, q, (0, 2)),
    dtypes=SINGLE,
    lengths=(1,),
)
row("median", ["A B"], lambda x: ng.median(x, "B"), lambda x: np.median(x, 1), lengths=(1,))
row("median of three", ["A B"], lambda x: ng.median(x, "A"), lambda x: np.median(x, 0), lengths=(1,), torch=lambda x: x.median(0).values)
row("median of all", ["A B"], lambda x: ng.median(x, out_axes=()), np.median, lengths=(1,))

IDS = "A=9:ints -1..4"


def by_segment(function, empty):
    """NumPy's function of the rows of each of four segments."""
    return lambda x, i: np.stack([function(x[i == k], 0) if (i == k).any() else np.full(x.shape[1:], empty(x)) for k in range(4)])


row(
    "segment_sum",
    ["A=9 B", IDS],
    lambda x, i: ng.segment_sum(x, i, SEGMENTS),
    by_segment(lambda x, a: x.sum(a, dtype=x.dtype), lambda x: 0),
    dtypes=NUMBERS,
)
row(
    "segment_max",
    ["A=9 B", IDS],
    lambda x, i: ng.segment_max(x, i, SEGMENTS),
    by_segment(np.max, lambda x: -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min),
    dtypes=NUMBERS,
    slope=False,
)
row("segment_mean", ["A=9 B", IDS], lambda x, i: ng.segment_mean(x, i, SEGMENTS), by_segment(np.mean, lambda x: 0))
row("bincount", ["A=9:ints 0..5"], lambda i: ng.bincount(i, "K=6"), lambda i: np.bincount(i, minlength=6), dtypes=["int32"], slope=False)
row(
    "bincount by weights",
    ["A=9:ints 0..5", "A=9"],
    lambda i, w: ng.bincount(i, "K=6", w),
    lambda i, w: np.bincount(i, w, 6),
    dtypes=FLOATS,
)
row(
    "histogram",
    ["A B"],
    lambda x: ng.histogram(x, "K=5"),
    lambda x: np.histogram(x, 5),
    lengths=(1,),
    slope=False,
    dtypes=SINGLE,
)
row(
    "histogram within",
    ["A B"],
    lambda x: ng.histogram(x, "K=4", -1, 1),
    lambda x: np.histogram(x, 4, (-1, 1)),
    slope=False,
    dtypes=SINGLE,
)
row("argsort", ["A B"], lambda x: ng.argsort(x, "B"), lambda x: np.argsort(x, 1, kind="stable"), dtypes=NUMBERS, slope=False, edges=True)
row(
    "argsort down",
    ["A B"],
    lambda x: ng.argsort(x, "B", descending=True),
    lambda x: np.argsort(-x.astype(np.int64 if x.dtype.kind in "iu" else x.dtype), 1, kind="stable"),
    dtypes=NUMBERS,
    slope=False,
)
for _side in ("left", "right"):
    row(
        f"searchsorted {_side}",
        ["A=13", "B C"],
        lambda x, v, s=_side: ng.searchsorted(ng.sort(x, "A"), v, side=s),
        lambda x, v, s=_side: np.searchsorted(np.sort(x), v, s),
        dtypes=NUMBERS,
        edges=True,
        slope=False,
    )
row("unique", ["A B"], ng.unique, np.unique, dtypes=ANY, slope=False, edges=True)
row(
    "unique, with places and counts",
    ["A=5 B:ints 0..6"],
    lambda x: ng.unique(x, "U", inverse=True, counts=True),
    lambda x: np.unique(x, return_inverse=True, return_counts=True),
    dtypes=["int32"],
    slope=False,
)

# ---- running values ---------------------------------------------------------------------------------------------------

row(
    "cumprod",
    ["A B"],
    lambda x: ng.cumprod(x, "B"),
    lambda x: np.cumprod(x, 1, dtype=x.dtype),
    dtypes=NUMBERS,
    torch=lambda x: x.cumprod(1),
)
row(
    "cummax",
    ["A B"],
    lambda x: ng.cummax(x, "B"),
    lambda x: np.maximum.accumulate(x, 1),
    dtypes=ANY,
    torch=lambda x: x.cummax(1).values,
    edges=True,
)
row(
    "cummin",
    ["A B"],
    lambda x: ng.cummin(x, "B"),
    lambda x: np.minimum.accumulate(x, 1),
    dtypes=ANY,
    torch=lambda x: x.cummin(1).values,
    edges=True,
)
row(
    "logcumsumexp",
    ["A B:-30..30"],
    lambda x: ng.logcumsumexp(x, "B"),
    lambda x: np.logaddexp.accumulate(x, 1),
    torch=lambda x: torch.logcumsumexp(x, 1),
)

# ---- moving -----------------------------------------------------------------------------------------------------------

for _k in (-1, 0, 2):
    row(f"tril {_k}", ["A B C"], lambda x, k=_k: ng.tril(x, "B", "C", k), lambda x, k=_k: np.tril(x, k), dtypes=NUMBERS)
    row(f"triu {_k}", ["A B C"], lambda x, k=_k: ng.triu(x, "B", "C", k), lambda x, k=_k: np.triu(x, k), dtypes=NUMBERS)
row("diag of a vector", ["A"], lambda x: ng.diag(x, "A", "K"), np.diag, dtypes=NUMBERS)
row("diag of a matrix", ["A B"], lambda x: ng.diag(x, "A", "B"), np.diag, dtypes=NUMBERS)
row("trace", ["A B C"], lambda x: ng.trace(x, "B", "C"), lambda x: np.trace(x, 0, 1, 2, dtype=x.dtype), dtypes=NUMBERS)
row("roll", ["A B"], lambda x: ng.roll(x, -3, "B"), lambda x: np.roll(x, -3, 1), dtypes=ANY, torch=lambda x: x.roll(-3, 1))
row("roll along two", ["A B"], lambda x: ng.roll(x, {"A": 1, "B": 2}), lambda x: np.roll(x, (1, 2), (0, 1)), dtypes=ANY)
row("repeat", ["A B"], lambda x: ng.repeat(x, 3, "B"), lambda x: np.repeat(x, 3, 1), dtypes=ANY)
row("tile", ["A B"], lambda x: ng.tile(x, {"A": 2, "B": 3}), lambda x: np.tile(x, (2, 3)), dtypes=ANY, torch=lambda x: x.tile(2, 3))
row("split", ["A B=6"], lambda x: ng.split(x, "B", 3), lambda x: np.split(x, 3, 1), dtypes=ANY)
row("split by lengths", ["A B=6"], lambda x: ng.split(x, "B", [1, 0, 5]), lambda x: np.split(x, [1, 1], 1), dtypes=ANY)
row("unstack", ["A=3 B"], lambda x: ng.unstack(x, "A"), list, dtypes=ANY)
row("stack by name", ["A B", "A B"], lambda x, y: ng.stack([x, y], "K", 1), lambda x, y: np.stack([x, y], 1), dtypes=ANY)
for _mode, _numpy in (("reflect", "reflect"), ("edge", "edge"), ("circular", "wrap")):
    row(
        f"pad {_mode}",
        ["A B"],
        lambda x, m=_mode: ng.pad(x, {"A": 1, "B": (5, 2)}, mode=m),
        lambda x, m=_numpy: np.pad(x, ((1, 1), (5, 2)), m),
        dtypes=ANY,
        lengths=(1,),
    )
row(
    "unfold",
    ["A B=9"],
    lambda x: ng.unfold(x, {"B": "R=3"}, stride=2, padding=1),
    lambda x: np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (1, 1))), 3, 1)[:, ::2],
    dtypes=NUMBERS,
)
row(
    "pixel_shuffle",
    ["N C=12 H W"],
    lambda x: ng.pixel_shuffle(x, "C", {"H": 2, "W": 3}),
    lambda x: x.reshape(len(x), 2, 2, 3, *x.shape[2:]).transpose(0, 1, 4, 2, 5, 3).reshape(len(x), 2, x.shape[2] * 2, x.shape[3] * 3),
    dtypes=["float32", "int8"],
    slope=False,
)
row(
    "pixel_shuffle as PyTorch has it",
    ["N C=8 H W"],
    lambda x: ng.pixel_shuffle(x, "C", {"H": 2, "W": 2}),
    lambda x: torch.pixel_shuffle(torch.tensor(x), 2).numpy(),
    torch=lambda x: torch.pixel_shuffle(x, 2),
    dtypes=["float32"],
)
row("outer", ["A", "B"], ng.outer, np.outer, dtypes=NUMBERS, torch=torch.outer)
row("kron", ["A B", "A=2 B=3"], ng.kron, np.kron, dtypes=NUMBERS, torch=torch.kron)
row("cross", ["A=3 B", "A=3 B"], lambda x, y: ng.cross(x, y, "A"), lambda x, y: np.cross(x, y, 0, 0, 0), dtypes=FLOATS, lengths=(1,))
row("one_hot by name", ["A:ints 0..3"], lambda i: ng.one_hot(i, "K=4"), lambda i: np.eye(4)[:, i], dtypes=["int32"], slope=False)

# ---- norms and gates --------------------------------------------------------------------------------------------------

F = torch.nn.functional


def standard(x, axes, eps=1e-5):
    """x less its mean, over its deviation."""
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


row(
    "layer_norm",
    ["A B C", "C", "C"],
    lambda x, w, b: ng.layer_norm(x, "C", w, b),
    lambda x, w, b: standard(x, 2) * w + b,
    torch=lambda x, w, b: F.layer_norm(x, x.shape[2:], w, b),
    lengths=(1,),
    ulp=24,
)
row("layer_norm alone", ["A B C"], lambda x: ng.layer_norm(x, "B C"), lambda x: standard(x, (1, 2)), lengths=(1,), ulp=24)
row(
    "rms_norm",
    ["A B C", "C"],
    lambda x, w: ng.rms_norm(x, "C", w, eps=1e-5),
    lambda x, w: x / np.sqrt((x * x).mean(2, keepdims=True) + 1e-5) * w,
    torch=lambda x, w: F.rms_norm(x, x.shape[2:], w, 1e-5),
    lengths=(1,),
    ulp=16,
)
row(
    "batch_norm",
    ["N C H", "C", "C"],
    lambda x, w, b: ng.batch_norm(x, "C", w, b),
    lambda x, w, b: standard(x, (0, 2)) * w[:, None] + b[:, None],
    torch=lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
    lengths=(),
    ulp=24,
)
row(
    "batch_norm in inference",
    ["N C H", "C", "C:0.5..2"],
    lambda x, m, v: ng.batch_norm(x, "C", mean_of_x=m, variance_of_x=v),
    lambda x, m, v: (x - m[:, None]) / np.sqrt(v[:, None] + 1e-5),
    torch=lambda x, m, v: (x - m[:, None]) / torch.sqrt(v[:, None] + 1e-5),
)
row(
    "group_norm",
    ["N C=6 H", "C=6", "C=6"],
    lambda x, w, b: ng.group_norm(x, "C", 2, w, b),
    lambda x, w, b: standard(x.reshape(len(x), 2, -1), 2).reshape(x.shape) * w[:, None] + b[:, None],
    torch=lambda x, w, b: F.group_norm(x, 2, w, b),
    lengths=(1,),
    ulp=24,
)
row("glu", ["A B=6"], lambda x: ng.glu(x, "B"), lambda x: x[:, :3] * scipy.special.expit(x[:, 3:]), torch=lambda x: F.glu(x, 1))
