"""Random programs of ATen calls through `torch.compile(backend="ngraph")`, compared with eager.

A case: {"lengths": {letter: length}, "others": the same letters with other lengths, or None, "dynamic": "static", "marked" or "dynamic",
"gradient": bool, "transformer": name, "inputs": [{"shape": letters, "dtype": name, "layout": name, "seed": s}], "steps": [[overload,
arguments, keywords]], "results": [numbers of values]}. An argument is a number, a bool, None, a list, {"v": k} for the value k, {"size":
[k, d]} for a length of it, or {"dtype": name}. Programs of several results add all of them to the values.

Eager runs twice, in the dtypes of the case and with float64 in place of other floats: what rounds is as uncertain as these two differ.
Ops that jump (comparisons, rounding, sorting) take only values that are the same in both.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import ngraph as ng
from ngraph.frontends.torch import backend

torch.set_num_threads(1)

MOST = 1e4  # the largest float that a value may hold: products of more of them leave float16
ULP = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}
MOST_ULPS = 64  # of the largest element of a value, by which it may differ from eager's
LAYOUTS = ("dense", "dense", "turned", "steps", "offset", "expanded")
DTYPES = ("float32", "float32", "float32", "float32", "float64", "int64", "int32", "bool", "bfloat16", "float16", "uint8", "int8", "int16")

LISTS = ("chunk", "split", "unbind", "tensor_split")  # ops that give a list
TRACED = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}  # of Dynamo: lengths that values decide

Case = dict[str, Any]


# ---- values ---------------------------------------------------------------------------------------------------------------------


def tensor(given: dict[str, Any], lengths: dict[str, int]) -> torch.Tensor:
    """Returns an input: multiples of a quarter, or small integers, in the memory order that the case wants."""
    r = torch.Generator().manual_seed(given["seed"])
    shape = [1 if c == "1" else lengths[c] for c in given["shape"]]
    dtype, layout = getattr(torch, given["dtype"]), given["layout"]
    whole, take = list(shape), [slice(None)] * len(shape)
    if layout == "expanded" and shape:
        whole[0] = 1
    if layout == "steps" and shape:
        whole[-1], take[-1] = 2 * shape[-1] + 1, slice(1, 2 * shape[-1], 2)
    if layout == "offset" and shape:
        whole[0], take[0] = shape[0] + 2, slice(2, None)
    if layout == "turned":
        whole = whole[::-1]
    low = 0 if dtype is torch.uint8 else -9
    made = torch.randint(low, 10, whole, generator=r)
    x = made > 0 if dtype is torch.bool else (made / 4).to(dtype) if dtype.is_floating_point else made.to(dtype)
    if layout == "turned":
        return x.permute(*range(len(shape) - 1, -1, -1)) if shape else x
    return x.expand(shape) if layout == "expanded" else x[tuple(take)] if shape else x


def inputs(case: Case, lengths: dict[str, int]) -> list[torch.Tensor]:
    return [tensor(given, lengths) for given in case["inputs"]]


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x.dtype.is_floating_point else x


def argument(x: Any, values: list[Any], wide: bool) -> Any:
    """Returns an argument of a step as it is passed."""
    if isinstance(x, list):
        return [argument(y, values, wide) for y in x]
    if not isinstance(x, dict):
        return x
    if "v" in x:
        return values[x["v"]]
    if "size" in x:
        return values[x["size"][0]].shape[x["size"][1]]
    dtype = getattr(torch, x["dtype"])
    return torch.float64 if wide and dtype.is_floating_point else dtype


def ran(steps: list[Any], values: list[Any], wide: bool = False) -> list[Any]:
    """Returns the values, and those of the steps behind them."""
    values, usual = list(values), torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if wide else usual)  # what integers are promoted to
    try:
        for name, arguments, keywords in steps:
            packet, _, overload = name.partition(".")
            f = getattr(getattr(torch.ops.aten, packet), overload or "default")
            y = f(*argument(arguments, values, wide), **{k: argument(x, values, wide) for k, x in keywords.items()})
            values += list(y) if isinstance(y, (list, tuple)) else [y]
    finally:
        torch.set_default_dtype(usual)
    return values


# ---- draws ----------------------------------------------------------------------------------------------------------------------


class Draw:
    """The values that a step may take, in the dtypes of the case and in float64, and those of its other lengths, if it has any."""

    def __init__(self, r: random.Random, values: list[torch.Tensor], wide: list[torch.Tensor], others: list[torch.Tensor]) -> None:
        self.r, self.values, self.wide, self.others = r, values, wide, others

    def value(self, want: Callable[[torch.Tensor], bool] = lambda x: True, exact: bool = False) -> int:
        """Returns the number of a value. Raises LookupError where there is none."""
        fits = [k for k, x in enumerate(self.values) if want(x) and not (exact and not self.exact(k))]
        recent = [k for k in fits if k >= len(self.values) - 4]
        return self.r.choice(recent if recent and self.r.random() < 0.6 else fits)

    def exact(self, k: int) -> bool:
        x, y = self.values[k], self.wide[k]
        return bool(torch.equal(doubled(x), doubled(y)))

    def like(self, k: int, exact: bool = False) -> int:
        """Returns another value that broadcasts with one."""
        shape = self.values[k].shape

        def fits(y: torch.Tensor) -> bool:
            return all(a == b or 1 in (a, b) for a, b in zip(shape[::-1], y.shape[::-1], strict=False))

        return self.value(fits, exact)

    def dim(self, k: int) -> int:
        rank = self.values[k].dim()
        return self.r.randrange(-rank, rank)

    def number(self) -> Any:
        return self.r.choice([-2, 0.5, 1, 3, -0.25, 2])


def v(k: int) -> dict[str, int]:
    return {"v": k}


def floating(x: torch.Tensor) -> bool:
    return x.dtype.is_floating_point


def ranked(least: int) -> Callable[[torch.Tensor], bool]:
    return lambda x: x.dim() >= least


def unary(d: Draw) -> Any:
    names = "abs neg exp sigmoid tanh sin cos erf gelu relu silu expm1 atan softplus hardswish hardsigmoid elu mish log_sigmoid asinh"
    return d.r.choice(names.split()), [v(d.value(floating))], {}


def positive(d: Draw) -> Any:
    k = d.value(lambda x: floating(x) and x.numel() > 0 and bool((x > 0).all()))
    return d.r.choice("log sqrt rsqrt log1p reciprocal log2".split()), [v(k)], {}


def jumping(d: Draw) -> Any:
    name = d.r.choice("floor ceil round trunc sign isnan logical_not signbit".split())
    return name, [v(d.value(exact=True))], {}


def binary(d: Draw) -> Any:
    k = d.value()
    name = d.r.choice("add.Tensor sub.Tensor mul.Tensor mul.Tensor div.Tensor maximum minimum atan2 hypot".split())
    keywords = {"alpha": d.r.choice([2, -1])} if name[:3] in ("add", "sub") and d.r.random() < 0.2 else {}
    return name, [v(k), v(d.like(k, name in ("maximum", "minimum")))], keywords


def binary_jumping(d: Draw) -> Any:
    k = d.value(exact=True)
    names = "eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor logical_and logical_or logical_xor".split()
    names += ["remainder.Tensor", "fmod.Tensor", "floor_divide"]
    return d.r.choice(names), [v(k), v(d.like(k, True))], {}


def scalar(d: Draw) -> Any:
    name = d.r.choice("add.Scalar mul.Scalar sub.Scalar div.Scalar rsub.Scalar pow.Tensor_Scalar".split())
    number = d.r.choice([2, 3, 1, 0]) if name.startswith("pow") else d.number()
    return name, [v(d.value()), number], {}


def scalar_jumping(d: Draw) -> Any:
    name = d.r.choice("remainder.Scalar fmod.Scalar gt.Scalar le.Scalar eq.Scalar floor_divide.Scalar clamp_min clamp_max".split())
    return name, [v(d.value(exact=True)), d.r.choice([1, 2, -2, 3, 0.5])], {}


def division(d: Draw) -> Any:
    k = d.value(exact=True)
    return "div.Tensor_mode", [v(k), v(d.like(k, True))], {"rounding_mode": d.r.choice(["floor", "trunc"])}


def clamp(d: Draw) -> Any:
    return "clamp", [v(d.value(exact=True)), d.r.choice([None, -1, -0.5]), d.r.choice([1, 1.5])], {}


def bits(d: Draw) -> Any:
    k = d.value(lambda x: not floating(x))
    j = d.value(lambda x: not floating(x) and x.shape == d.values[k].shape)
    return d.r.choice("bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor".split()), [v(k), v(j)], {}


def where(d: Draw) -> Any:
    k = d.value(lambda x: x.dtype is torch.bool)
    a = d.like(k)
    b = d.value(lambda x: x.shape == d.values[a].shape)
    return "where.self", [v(k), v(a), v(b)], {}


def mixed(d: Draw) -> Any:
    k = d.value(floating)
    j = d.value(lambda x: floating(x) and x.shape == d.values[k].shape and x.dtype is d.values[k].dtype)
    name = d.r.choice(["addcmul", "lerp.Scalar"])
    return (name, [v(k), v(j), v(k)], {"value": 0.5}) if name == "addcmul" else (name, [v(k), v(j), 0.25], {})


def reduction(d: Draw) -> Any:
    k = d.value(ranked(1))
    rank = d.values[k].dim()
    dims = d.r.sample(range(rank), d.r.randint(1, rank))
    keep = d.r.random() < 0.5
    name = d.r.choice("sum.dim_IntList mean.dim amax amin logsumexp var.correction linalg_vector_norm any.dims all.dims".split())
    if name == "var.correction":
        return name, [v(k), dims], {"correction": d.r.choice([0, 1]), "keepdim": keep}
    return name, [v(k), d.r.choice([1, 2]), dims, keep] if name.startswith("linalg") else [v(k), dims, keep], {}


def whole(d: Draw) -> Any:
    name = d.r.choice("sum mean prod any all max min".split())
    return name, [v(d.value(exact=name in ("any", "all")))], {}


def along(d: Draw) -> Any:
    k = d.value(ranked(1))
    name = d.r.choice("cumsum cumprod softmax.int log_softmax.int prod.dim_int logcumsumexp".split())
    return name, [v(k), d.dim(k)], {}


def positions(d: Draw) -> Any:
    k = d.value(ranked(1), exact=True)
    name = d.r.choice("sort.stable argmax argmin cummax cummin max.dim min.dim".split())
    if name == "sort.stable":
        return name, [v(k)], {"stable": True, "dim": d.dim(k), "descending": d.r.random() < 0.5}
    return name, [v(k), d.dim(k)], {}


def product(d: Draw) -> Any:
    k = d.value(lambda x: 1 <= x.dim() <= 3)
    x = d.values[k]

    def fits(y: torch.Tensor) -> bool:
        return 1 <= y.dim() <= 3 and y.dtype is x.dtype and y.shape[-2 if y.dim() > 1 else 0] == x.shape[-1]

    return "matmul", [v(k), v(d.value(fits))], {}


def linear(d: Draw) -> Any:
    k = d.value(lambda x: floating(x) and x.dim() >= 1)
    j = d.value(lambda y: y.dim() == 2 and y.dtype is d.values[k].dtype and y.shape[1] == d.values[k].shape[-1])
    return "linear", [v(k), v(j)], {}


def turned(d: Draw) -> Any:
    k = d.value(ranked(2))
    if d.r.random() < 0.5:
        return "transpose.int", [v(k), d.dim(k), d.dim(k)], {}
    return "permute", [v(k), d.r.sample(range(d.values[k].dim()), d.values[k].dim())], {}


def reshaped(d: Draw) -> Any:
    k = d.value(ranked(1))
    rank = d.values[k].dim()
    sizes: list[Any] = [{"size": [k, j]} for j in range(rank)]
    at = d.r.randrange(rank)
    kind = d.r.randrange(3)
    if kind == 0 and rank > 1:
        return "reshape", [v(k), [*sizes[:at], -1, *sizes[at + 2 :]]], {}
    return ("reshape", [v(k), [-1]], {}) if kind == 1 else ("reshape", [v(k), [*sizes[:at], 1, *sizes[at:]]], {})


def moved(d: Draw) -> Any:
    k = d.value(ranked(1))
    at = d.dim(k)
    kind = d.r.randrange(9)
    if kind == 0:
        return "unsqueeze", [v(k), at], {}
    if kind == 1:
        return "slice.Tensor", [v(k), at, d.r.choice([0, 1, -2]), d.r.choice([None, 3, -1, 9223372036854775807]), d.r.choice([1, 2])], {}
    if kind == 2:
        return "select.int", [v(k), at, d.r.choice([0, -1, 1])], {}
    if kind == 3:
        return "flip", [v(k), [at]], {}
    if kind == 4:
        return "roll", [v(k), [d.r.choice([1, -2, 5])], [at]], {}
    if kind == 5:
        pads = [d.r.choice([0, 1, 2, -1]) for _ in range(2)]
        return "constant_pad_nd", [v(k), pads, d.r.choice([0, 1])], {}
    if kind == 6:
        return "repeat", [v(k), [d.r.choice([1, 2]) for _ in range(d.values[k].dim() + d.r.randrange(2))]], {}
    if kind == 7:
        return "unfold", [v(k), at, 2, d.r.choice([1, 2])], {}
    return "repeat_interleave.self_int", [v(k), 2, at], {}


def corners(d: Draw) -> Any:
    k = d.value(ranked(2))
    kind = d.r.randrange(2)
    if kind:
        return d.r.choice(["tril", "triu"]), [v(k), d.r.choice([0, 1, -1])], {}
    a, b = d.r.sample(range(d.values[k].dim()), 2)
    return "diagonal", [v(k), d.r.choice([0, 1, -1]), a, b], {}


def squeezed(d: Draw) -> Any:
    k = d.value(lambda x: 1 in x.shape)
    return "squeeze.dim", [v(k), d.dim(k)], {}


def expanded(d: Draw) -> Any:
    k = d.value()
    j = d.like(k)
    return "expand", [v(k), [{"size": [j, i]} for i in range(d.values[j].dim())]], {}


def joined(d: Draw) -> Any:
    k = d.value(ranked(1))
    j = d.value(lambda x: x.shape == d.values[k].shape)
    return d.r.choice(["cat", "stack"]), [[v(k), v(j), v(k)][: d.r.randint(2, 3)], d.dim(k)], {}


def split(d: Draw) -> Any:
    k = d.value(lambda x: x.dim() >= 1 and x.shape[0] > 1)
    kind = d.r.randrange(2)
    return ("chunk", [v(k), 2, 0], {}) if kind else ("split.Tensor", [v(k), 2, 0], {})


def picked(d: Draw) -> Any:
    k = d.value(lambda x: x.dim() >= 1 and x.shape[0] > 0)
    length = d.values[k].shape[0]
    j = d.value(lambda y: y.dtype is torch.int64 and y.dim() >= 1 and bool((y >= -length).all()) and bool((y < length).all()))
    if d.values[j].dim() == 1 and bool((d.values[j] >= 0).all()) and d.r.random() < 0.5:
        return "index_select", [v(k), 0, v(j)], {}
    return "index.Tensor", [v(k), [v(j)]], {}


def gathered(d: Draw) -> Any:
    k = d.value(ranked(1))
    x, at = d.values[k], d.dim(k)

    def fits(y: torch.Tensor) -> bool:
        inside = y.dtype is torch.int64 and y.dim() == x.dim() and bool((y >= 0).all()) and bool((y < x.shape[at]).all())
        return inside and all(a <= b for j, (a, b) in enumerate(zip(y.shape, x.shape, strict=True)) if j != at % x.dim())

    j = d.value(fits)
    name = d.r.choice(["gather", "scatter_add", "scatter.value"])
    if name == "scatter_add":
        s = d.value(lambda y: y.dtype is x.dtype and y.shape == d.values[j].shape)
        return name, [v(k), at, v(j), v(s)], {}
    return name, [v(k), at, v(j), *([1] if name == "scatter.value" else [])], {}


def limited(d: Draw) -> Any:
    """Positions inside of an axis, of integers."""
    k = d.value(lambda x: x.dtype is torch.int64)
    return "clamp", [v(k), d.r.choice([0, -1]), 1], {}


def filled(d: Draw) -> Any:
    k = d.value(lambda x: x.dtype is torch.bool)
    return "masked_fill.Scalar", [v(d.like(k)), v(k), 2], {}


def converted(d: Draw) -> Any:
    return "to.dtype", [v(d.value(exact=True)), {"dtype": d.r.choice(DTYPES[:-1])}], {}


def made(d: Draw) -> Any:
    k = d.value()
    kind = d.r.randrange(3)
    if kind == 0:
        return d.r.choice(["zeros_like", "ones_like"]), [v(k)], {}
    if kind == 1 and d.values[k].dim():
        return "arange", [{"size": [k, d.r.randrange(d.values[k].dim())]}], {}
    return "full_like", [v(k), d.r.choice([1, 2])], {}


def normed(d: Draw) -> Any:
    k = d.value(lambda x: floating(x) and x.dim() >= 1)
    return "layer_norm", [v(k), [{"size": [k, d.values[k].dim() - 1]}]], {}


def pooled(d: Draw) -> Any:
    k = d.value(lambda x: floating(x) and 2 <= x.dim() <= 3, exact=True)
    return d.r.choice(["avg_pool1d", "max_pool1d"]), [v(k), [2], [d.r.choice([1, 2])], [d.r.choice([0, 1])]], {}


def convolved(d: Draw) -> Any:
    k = d.value(lambda x: floating(x) and x.dim() == 3 and x.dtype is not torch.float16)  # eager ends the process where all lengths are 1
    x = d.values[k]
    j = d.value(lambda y: y.dtype is x.dtype and y.dim() == 3 and y.shape[1] == x.shape[1])
    return "conv1d", [v(k), v(j), None, [d.r.choice([1, 2])], [d.r.choice([0, 1, 2])], [d.r.choice([1, 2])]], {}


def places(d: Draw, length: int) -> int:
    """Returns the number of a value of positions along an axis, among which may be the same ones."""
    return d.value(lambda y: y.dtype is torch.int64 and y.dim() >= 1 and bool((y >= -length).all()) and bool((y < length).all()))


def gathered_into(d: Draw) -> Any:
    k = d.value(ranked(1), exact=True)
    x, at = d.values[k], d.dim(k)

    def fits(y: torch.Tensor) -> bool:
        inside = y.dtype is torch.int64 and y.dim() == x.dim() and bool((y >= 0).all()) and bool((y < x.shape[at]).all())
        return inside and all(a <= b for j, (a, b) in enumerate(zip(y.shape, x.shape, strict=True)) if j != at % x.dim())

    j = d.value(fits)
    source = d.value(lambda y: y.dtype is x.dtype and y.shape == d.values[j].shape, exact=True)
    way = d.r.choice(["sum", "prod", "mean", "amax", "amin"])
    return "scatter_reduce.two", [v(k), at, v(j), v(source), way], {"include_self": d.r.random() < 0.5}


def added_at(d: Draw) -> Any:
    k = d.value(lambda x: x.dim() >= 1 and x.shape[0] > 0)
    x, j = d.values[k], places(d, d.values[k].shape[0])
    at = d.values[j]
    source = d.value(lambda y: y.dtype is x.dtype and y.shape in (at.shape + x.shape[1:], x.shape[1:], torch.Size()))
    if at.dim() == 1 and d.values[source].shape == at.shape + x.shape[1:] and bool((at >= 0).all()) and d.r.random() < 0.5:
        return "index_add", [v(k), 0, v(j), v(source)], {"alpha": d.r.choice([1, 2])}
    return "index_put", [v(k), [v(j)], v(source), True], {}


def contracted(d: Draw) -> Any:
    k = d.value(lambda x: 1 <= x.dim() <= 3 and x.dtype is not torch.bool)
    x = d.values[k]
    j = d.value(lambda y: 1 <= y.dim() <= 3 and y.dtype is x.dtype)
    letters, rest = "ijk"[: x.dim()], list("lmn")
    other = ""
    for n in d.values[j].shape:
        same = [c for c, m in zip(letters, x.shape, strict=True) if m == n and c not in other]
        other += d.r.choice(same) if same and d.r.random() < 0.7 else rest.pop()
    every = sorted({*letters, *other})
    return "einsum", [f"{letters},{other}->{''.join(d.r.sample(every, d.r.randint(0, len(every))))}", [v(k), v(j)]], {}


def rearranged(d: Draw) -> Any:
    k = d.value(ranked(1))
    x, at = d.values[k], d.dim(k)
    ways: list[Any] = [
        ("movedim.int", [v(k), at, d.dim(k)]),
        ("tile", [v(k), [d.r.choice([1, 2]) for _ in range(x.dim())]]),
        ("narrow", [v(k), at, d.r.choice([0, 1]), 1]),
        ("flatten.using_ints", [v(k), *sorted([at % x.dim(), d.dim(k) % x.dim()])]),
        ("diag_embed", [v(k), d.r.choice([0, 1, -1])]),
        ("tensor_split.sections", [v(k), d.r.choice([2, 3]), at]),
        ("diff", [v(k), 1, at]),
    ]
    if x.shape[at]:
        ways.append(("unbind.int", [v(k), at]))
    if x.dim() > 1:
        ways.append(("rot90", [v(k), d.r.choice([1, 2, -1]), d.r.sample(range(x.dim()), 2)]))
    return *d.r.choice(ways), {}


def put_back(d: Draw) -> Any:
    """A part of a value is replaced by another value."""
    k = d.value(ranked(1))
    x, at = d.values[k], d.dim(k)
    row = d.value(lambda y: y.dtype is x.dtype and y.shape == x.select(at, 0).shape)
    return "select_scatter", [v(k), v(row), at, d.r.choice([0, -1])], {}


def summarised(d: Draw) -> Any:
    k = d.value(ranked(1), exact=True)
    name = d.r.choice("aminmax nansum count_nonzero.dim_IntList std.correction".split())
    if name == "aminmax":
        return name, [v(k)], {"dim": d.dim(k), "keepdim": d.r.random() < 0.5}
    return name, [v(k), [d.dim(k)]], {}


def matrices(d: Draw) -> Any:
    k = d.value(lambda x: x.dim() in (2, 3) and floating(x))
    x = d.values[k]
    j = d.value(lambda y: y.dim() == x.dim() and y.dtype is x.dtype and y.shape[-2] == x.shape[-1] and y.shape[:-2] == x.shape[:-2])
    to = (*x.shape[:-1], d.values[j].shape[-1])
    c = d.value(
        lambda y: y.dtype is x.dtype and y.dim() <= x.dim() and all(a in (1, b) for a, b in zip(y.shape[::-1], to[::-1], strict=False))
    )
    keywords = {"beta": d.r.choice([1, 0.5, -1]), "alpha": d.r.choice([1, 2])}
    return "addmm" if x.dim() == 2 else "baddbmm", [v(c), v(k), v(j)], keywords


def written(d: Draw) -> Any:
    k = d.value()
    ways: list[Callable[[], Any]] = [
        lambda: ("mul_.Scalar", [v(k), d.r.choice([2, -1])]),
        lambda: ("add_.Tensor", [v(k), v(d.like(k))]),
        lambda: ("copy_.default", [v(k), v(d.like(k, True))]),
        lambda: ("zero_.default", [v(k)]),
        lambda: ("masked_fill_.Scalar", [v(k), v(d.value(lambda x: x.dtype is torch.bool)), 2]),
        lambda: ("mul_.Tensor", [v(k), v(d.like(k))]),
        lambda: ("clamp_.default", [v(d.value(exact=True)), -1, 2]),
    ]
    return *d.r.choice(ways)(), {}


def written_at(d: Draw) -> Any:
    """A part of a value, often of a view, is written where a mask or positions say."""
    k = d.value(lambda x: x.dim() >= 1 and x.shape[0] > 0)
    x = d.values[k]
    mask = d.value(lambda y: y.dtype is torch.bool and 1 <= y.dim() <= x.dim() and y.shape == x.shape[: y.dim()])
    rest = x.shape[d.values[mask].dim() :]
    source = d.value(lambda y: y.dtype is x.dtype and y.shape in (rest, torch.Size()), exact=True)
    ways: list[Callable[[], Any]] = [
        lambda: ("index_put", [v(k), [v(mask)], v(source), d.r.random() < 0.5]),
        lambda: ("index_put_.default", [v(k), [v(mask)], v(source), d.r.random() < 0.5]),
        lambda: ("index_fill_.int_Scalar", [v(k), 0, v(places(d, x.shape[0])), 2]),
        lambda: ("masked_scatter", [v(k), v(mask), v(d.value(lambda y: y.dtype is x.dtype and y.numel() >= x.numel()))]),
        lambda: ("fill_.Scalar", [v(k), d.r.choice([0, 1, 2])]),
        lambda: ("sub_.Tensor", [v(k), v(d.like(k))]),
    ]
    return *d.r.choice(ways)(), {}


def chosen(d: Draw) -> Any:
    """Elements whose number values decide."""
    k = d.value(lambda x: x.dim() >= 1, exact=True)
    x = d.values[k]
    kind = d.r.randrange(4)
    if kind == 0:
        return "nonzero", [v(k)], {}
    if kind == 1:
        return d.r.choice(["_unique2", "unique_consecutive"]), [v(k)], {"return_inverse": True, "return_counts": True}
    mask = d.value(lambda y: y.dtype is torch.bool and 1 <= y.dim() <= x.dim() and y.shape == x.shape[: y.dim()])
    return ("index.Tensor", [v(k), [v(mask)]], {}) if kind == 2 else ("masked_select", [v(k), v(mask)], {})


def largest(d: Draw) -> Any:
    """The largest or smallest elements, where no two are equal."""
    at = -1

    def different(x: torch.Tensor) -> bool:
        return x.dim() >= 1 and x.shape[at] > 0 and bool((x.sort(at).values.diff(dim=at) != 0).all())

    fits = [different(x) and all(map(different, d.others[k : k + 1])) for k, x in enumerate(d.values)]
    k = d.r.choice([k for k, fit in enumerate(fits) if fit and d.exact(k)])
    if d.r.random() < 0.5:
        return "kthvalue", [v(k), 1, at, d.r.random() < 0.5], {}
    return "topk", [v(k), 1 if d.values[k].shape[at] < 3 else 2, at, d.r.random() < 0.5], {}


def strided(d: Draw) -> Any:
    k = d.value(lambda x: x.dim() >= 1 and x.is_contiguous() and x.numel() > 3)
    n = d.values[k].numel()
    ways: list[Any] = [
        [[2, 2], [1, 1], d.r.choice([0, 1])],
        [[{"size": [k, 0]}], [1], 0],
        [[n // 2], [2], n % 2],
        [[3, 2], [0, 1], 1],
    ]
    return "as_strided", [v(k), *d.r.choice(ways)], {}


def integers(d: Draw) -> Any:
    k = d.value(lambda x: not floating(x) and x.dtype is not torch.bool)
    name = d.r.choice("floor_divide.Scalar remainder.Scalar fmod.Scalar div.Scalar_mode pow.Tensor_Scalar sign neg abs bitwise_not".split())
    if name in ("sign", "neg", "abs", "bitwise_not"):
        return name, [v(k)], {}
    if name.startswith("pow"):
        return name, [v(k), d.r.choice([0, 1, 2, 3])], {}
    keywords = {"rounding_mode": d.r.choice(["floor", "trunc"])} if name.startswith("div") else {}
    return name, [v(k), d.r.choice([2, 3, -2, 5, 1])], keywords


def several(d: Draw) -> Any:
    k = d.value(ranked(1), exact=True)
    x, at = d.values[k], d.dim(k)
    ways: list[Callable[[], Any]] = [
        lambda: ("take", [v(k), v(places(d, x.numel()))]),
        lambda: ("bucketize.Tensor", [v(k), v(d.value(lambda y: y.dim() == 1 and bool((y.diff() >= 0).all()), exact=True))]),
        lambda: ("cumsum", [v(k), at]),
        lambda: ("slice_scatter", [v(k), v(d.value(lambda y: y.dtype is x.dtype and y.shape == x.shape)), at]),
        lambda: ("index_copy", [v(k), at, v(d.value(lambda y: y.dim() == 1 and y.numel() == 1 and y.dtype is torch.int64)), v(k)]),
        lambda: ("where.ScalarSelf", [v(d.value(lambda y: y.dtype is torch.bool)), 2, v(k)]),
        lambda: ("nan_to_num", [v(k)]),
        lambda: ("logaddexp", [v(d.value(floating)), v(d.like(k))]),
        lambda: (
            "bincount",
            [v(d.value(lambda y: y.dim() == 1 and not floating(y) and bool((y >= 0).all()) and y.dtype is not torch.bool))],
        ),
        lambda: (
            "repeat_interleave.self_Tensor",
            [v(k), v(d.value(lambda y: y.dim() == 1 and y.dtype is torch.int64 and bool((y >= 0).all()))), at],
        ),
        lambda: ("trace", [v(d.value(lambda y: y.dim() == 2))]),
        lambda: ("upsample_nearest1d.vec", [v(d.value(lambda y: y.dim() == 3 and floating(y))), [5], None]),
        lambda: ("glu", [v(d.value(floating)), at]),
        lambda: ("hardtanh", [v(k), -1, 1]),
        lambda: ("std_mean.correction", [v(d.value(floating)), [at]]),
        lambda: ("max_pool2d", [v(d.value(lambda y: y.dim() in (3, 4) and floating(y), exact=True)), [2, 2], [1, 1]]),
        lambda: ("prelu", [v(d.value(floating)), v(d.value(lambda y: floating(y) and y.numel() == 1 and y.dim() < 2))]),
        lambda: (
            "cdist",
            [
                v(d.value(lambda y: floating(y) and y.dim() == 2)),
                v(d.value(lambda y: floating(y) and y.dim() == 2)),
                d.r.choice([1.0, 2.0]),
            ],
        ),
        lambda: ("scatter.src", [v(k), at, v(d.value(lambda y: y.dtype is torch.int64 and y.numel() == 1 and y.dim() == x.dim())), v(k)]),
        lambda: ("sum.dim_IntList", [v(k), [at]]),
        lambda: ("median.dim", [v(k), at]),
        lambda: ("pow.Tensor_Tensor", [v(k), v(d.like(k, True))]),
    ]
    return *d.r.choice(ways)(), {}


def copied(d: Draw) -> Any:
    return "clone", [v(d.value())], {}


STEPS: list[Callable[[Draw], Any]] = [
    *[unary, binary, binary, scalar, reduction, moved, moved, turned, product],
    *[positive, jumping, binary_jumping, scalar_jumping, division, clamp, bits, where, mixed, whole, along, positions, linear, reshaped],
    *[corners, squeezed, expanded, joined, split, picked, picked, gathered, gathered, limited, filled, converted, made, normed, pooled],
    *[convolved, written, written, copied, gathered_into, added_at, added_at, contracted, rearranged, rearranged, put_back, summarised],
    *[matrices, written_at, written_at, chosen, largest, strided, integers, several, several, several],
]


def sound(values: list[Any], wide: list[Any]) -> bool:
    """Whether values are small enough for their dtypes, and in float64 the same but for rounding."""
    if len(values) != len(wide) or not all(isinstance(x, torch.Tensor) for x in values):
        return False
    for x, y in zip(values, wide, strict=True):
        if x.shape != y.shape or x.numel() > 4000 or x.dim() > 5 or x.is_complex():
            return False
        if x.numel() and not bool((doubled(x).abs() <= (100 if x.dtype in (torch.uint8, torch.int8) else MOST)).all()):
            return False
        if not torch.allclose(doubled(x).double(), y.double(), rtol=0.1, atol=0.1):
            return False
    return True


def draw(seed: int) -> Case:
    """Returns the case of a seed: 3 to 30 steps."""
    r = random.Random(seed)
    while len((case := drawn(r))["steps"]) < 3:
        pass
    return case


def drawn(r: random.Random) -> Case:
    """Returns a case; with few inputs that fit together it has few steps."""
    letters = "abcd"
    lengths = {c: r.choice([2, 3, 4, 5, 7, 9, 16, 17] * 3 + [0, 1]) for c in letters}
    dynamic = r.choice(["static", "static", "marked", "dynamic"])
    if dynamic == "marked":
        lengths = {c: max(2, n) for c, n in lengths.items()}
    others = None if dynamic == "static" else {c: n if n < 2 else r.randint(2, 19) for c, n in lengths.items()}
    favourite = r.choice(DTYPES)
    given = [
        {
            "shape": "".join(r.choice(letters + "1") for _ in range(r.choice([0, 1, 2, 2, 3, 3, 4]))),
            "dtype": favourite if r.random() < 0.6 else r.choice(DTYPES),
            "layout": r.choice(LAYOUTS),
            "seed": r.randrange(10**6),
        }
        for _ in range(r.randint(1, 4))
    ]
    case: Case = {"lengths": lengths, "others": others, "dynamic": dynamic, "gradient": r.random() < 0.4, "inputs": given}
    case |= {"transformer": r.choice(["cpu", "numpy"]), "steps": [], "results": []}
    values = inputs(case, lengths)
    wide = [doubled(x).clone() for x in values]
    second = [] if others is None else inputs(case, others)
    also = second
    wanted, tries = r.randint(3, 30), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while len(case["steps"]) < wanted and tries < 400:
            tries += 1
            try:
                step = r.choice(STEPS)(Draw(r, values, wide, also))
            except (LookupError, ValueError):
                continue
            steps = [*case["steps"], list(step)]
            try:
                starts = (leaves(inputs(case, lengths), case["gradient"]), leaves(_wide(case, lengths), case["gradient"]))
                after, exact = ([x.detach() for x in ran(steps, xs, w)] for xs, w in zip(starts, (False, True), strict=True))
                if not sound(after, exact):
                    continue
                if others is not None:
                    narrow = ran(steps, [x.clone() for x in second])
                    if len(narrow) != len(after) or not sound(narrow, ran(steps, _wide(case, others), True)):
                        continue
                    also = narrow
            except (RuntimeError, IndexError, ValueError, NotImplementedError, TypeError):
                continue
            case["steps"], values, wide = steps, after, exact
    made_ = range(len(given), len(values))
    case["results"] = sorted({len(values) - 1, *r.sample(made_, min(len(made_), r.randint(0, 3)))}) if made_ else [0]
    return case


def leaves(xs: list[torch.Tensor], gradient: bool) -> list[torch.Tensor]:
    """Returns the inputs of a call; with gradients they may not be written."""
    return [x.clone().requires_grad_(gradient and floating(x)) for x in xs]


def _wide(case: Case, lengths: dict[str, int]) -> list[torch.Tensor]:
    return [doubled(x).clone() for x in inputs(case, lengths)]


# ---- checks ---------------------------------------------------------------------------------------------------------------------


def called(f: Callable[..., Any], xs: list[torch.Tensor], gradient: bool) -> list[Any]:
    """Returns the results of a call, and the gradients of their sum, in which each element has a weight of its own."""
    if gradient:
        xs = [x.detach().requires_grad_(floating(x)) for x in xs]
    ys = list(f(*xs))
    if not gradient:
        return [*ys, *xs]  # those that are written, too
    sums = [(y.double() * (torch.arange(y.numel()).reshape(y.shape) % 5 - 2)).sum() for y in ys if floating(y) and y.requires_grad]
    leaves = [x for x in xs if x.requires_grad]
    if not sums or not leaves:
        return [y.detach() for y in ys]
    return [*(y.detach() for y in ys), *torch.autograd.grad(sum(sums), leaves, allow_unused=True)]


def far(a: Any, b: Any, exact: Any, ulp: float) -> str | None:
    """Returns how a result differs from eager's, further than it may. exact: eager's in float64. ulp: of the case's narrowest dtype."""
    if a is None or b is None:
        zero = a if b is None else b
        return None if zero is None or not zero.abs().max() > 0 else f"{a} for {b}"
    if a.shape != b.shape or a.dtype is not b.dtype:
        return f"{tuple(a.shape)} of {a.dtype} for {tuple(b.shape)} of {b.dtype}"
    if not b.numel():
        return None
    if not b.dtype.is_floating_point:
        return (
            None
            if torch.equal(a, b)
            else f"{int((a != b).sum())} elements differ: {a.flatten()[:9].tolist()} for {b.flatten()[:9].tolist()}"
        )
    a, b, exact = a.double(), b.double(), exact.double()
    usual = exact.isfinite() & b.isfinite()
    size = float(exact[usual].abs().max()) if bool(usual.any()) else 1.0
    rounds = float((b - exact)[usual].abs().max()) if bool(usual.any()) else 0.0
    near = 16 * rounds + ULP.get(exact.dtype, 0) + 1e-12 + size * MOST_ULPS * ulp
    wrong = usual & ~((a - b).abs() <= near)
    wrong |= (b.isnan() & exact.isnan() & ~a.isnan()) | (b.isinf() & exact.isinf() & (a != b))
    if not bool(wrong.any()):
        return None
    at = wrong.nonzero()[0].tolist()
    return f"{int(wrong.sum())} of {b.numel()} elements differ by more than {near:.3g}, first at {at}: {a[tuple(at)]} for {b[tuple(at)]}"


def check(case: Case) -> str | None:
    """Returns how the compiled program differs from eager, or None."""
    steps, results = case["steps"], case["results"]
    narrow = [g["dtype"] for g in case["inputs"]] + [str(y["dtype"]) for s in steps for y in s[1] if isinstance(y, dict) and "dtype" in y]
    ulp = max(ULP.get(getattr(torch, d), 2.0**-23) for d in ["float32", *narrow])

    held: dict[str, Any] = {}
    exec("\n".join(function(case)), held)
    f = held["f"]

    def wide(*xs: torch.Tensor) -> list[torch.Tensor]:
        values = ran(steps, list(xs), True)
        return [values[k] for k in results]

    torch._dynamo.reset()
    ng.torch.reset()
    options = {"fallback": "silent", "transformer": case["transformer"]}
    compiled = torch.compile(f, backend=backend, fullgraph=True, dynamic=True if case["dynamic"] == "dynamic" else None, options=options)
    with warnings.catch_warnings(), ng.config(warnings="off"), torch._dynamo.config.patch(TRACED):
        warnings.simplefilter("ignore")
        for lengths in [case["lengths"], *([case["others"]] if case["others"] else [])]:
            xs = inputs(case, lengths)
            if case["dynamic"] == "marked":
                for x, given in zip(xs, case["inputs"], strict=True):
                    for j, c in enumerate(given["shape"]):
                        if c != "1":
                            torch._dynamo.maybe_mark_dynamic(x, j)
            try:
                wanted = called(f, [x if not written_in(steps) else x.clone() for x in inputs(case, lengths)], case["gradient"])
                exact = called(wide, _wide(case, lengths), case["gradient"])
            except (RuntimeError, NotImplementedError):
                return None  # eager refuses its gradient
            try:
                found = called(compiled, [x if not written_in(steps) else x.clone() for x in xs], case["gradient"])
            except Exception:
                if torchs_own(f, case):
                    return None
                raise
            for k, (a, b, c) in enumerate(zip(found, wanted, exact, strict=True)):
                differs = far(a, b, c, ulp)
                if differs:
                    kind = "result" if k < len(results) else "gradient" if case["gradient"] else "input"
                    return f"{kind} {k if k < len(results) else k - len(results)}, lengths {lengths}: {differs}"
    return None


def torchs_own(f: Callable[..., Any], case: Case) -> bool:
    """Whether PyTorch refuses to trace the program for its own backend, too."""
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=True if case["dynamic"] == "dynamic" else None)
    try:
        with torch._dynamo.config.patch(TRACED):
            for lengths in [case["lengths"], *([case["others"]] if case["others"] else [])]:
                called(compiled, [x.clone() for x in inputs(case, lengths)], case["gradient"])
    except Exception:
        return True
    return False


def written_in(steps: list[Any]) -> bool:
    return any("_." in name for name, _, _ in steps)


# ---- reducing and showing -------------------------------------------------------------------------------------------------------


def counts(case: Case) -> list[int] | None:
    """Returns how many values there are before each step; None where the case does not run."""
    values = [x.clone() for x in inputs(case, case["lengths"])]
    found = []
    try:
        for step in case["steps"]:
            found.append(len(values))
            values = ran([step], values)
    except (RuntimeError, IndexError, ValueError, NotImplementedError, TypeError):
        return None
    return [*found, len(values)]


def uses(x: Any) -> set[int]:
    if isinstance(x, list):
        return {k for y in x for k in uses(y)}
    return {x["v"]} if isinstance(x, dict) and "v" in x else {x["size"][0]} if isinstance(x, dict) and "size" in x else set()


def renumbered(x: Any, to: dict[int, int]) -> Any:
    if isinstance(x, list):
        return [renumbered(y, to) for y in x]
    if isinstance(x, dict) and "v" in x:
        return {"v": to[x["v"]]}
    return {"size": [to[x["size"][0]], x["size"][1]]} if isinstance(x, dict) and "size" in x else x


def smaller(case: Case) -> Iterator[Case]:
    """Yields cases with one result, without a step that nobody reads, without gradients, with dense inputs."""
    at = counts(case)
    if at is None:
        return
    for k in range(len(case["steps"])):  # the program up to a step
        for result in range(at[k], at[k + 1]):
            if case["results"] != [result] or k + 1 < len(case["steps"]):
                yield {**case, "steps": case["steps"][: k + 1], "results": [result]}
    for k, step in reversed(list(enumerate(case["steps"]))):  # a step whose values nobody reads
        gone = set(range(at[k], at[k + 1]))
        rest = [*case["steps"][:k], *case["steps"][k + 1 :]]
        read = uses([[s[1], list(s[2].values())] for s in rest]) | set(case["results"])
        if not gone & read and "_." not in step[0]:
            to = {j: j - len(gone) * (j >= at[k]) for j in range(at[-1]) if j not in gone}
            steps = [[n, renumbered(a, to), {key: renumbered(x, to) for key, x in kw.items()}] for n, a, kw in rest]
            yield {**case, "steps": steps, "results": [to[j] for j in case["results"]]}
    for key, value in (("gradient", False), ("dynamic", "static"), ("transformer", "numpy"), ("transformer", "cpu")):
        if case[key] != value and not (key == "transformer" and case[key] == "numpy"):
            yield {**case, key: value, **({"others": None} if value == "static" else {})}
    for k, given in enumerate(case["inputs"]):
        if given["layout"] != "dense":
            simpler = copy.deepcopy(case)
            simpler["inputs"][k]["layout"] = "dense"
            yield simpler


def shown(x: Any) -> str:
    if isinstance(x, list):
        return f"[{', '.join(map(shown, x))}]"
    if not isinstance(x, dict):
        return repr(x)
    return f"v{x['v']}" if "v" in x else f"v{x['size'][0]}.shape[{x['size'][1]}]" if "size" in x else f"torch.{x['dtype']}"


def function(case: Case) -> list[str]:
    """Returns the lines of the function that is compiled."""
    at = counts(case)
    assert at is not None, "eager does not run it"
    lines = ["import torch", "", "", f"def f({', '.join(f'v{k}' for k in range(len(case['inputs'])))}):"]
    for k, (name, arguments, keywords) in enumerate(case["steps"]):
        left = ", ".join(f"v{j}" for j in range(at[k], at[k + 1])) + "," * name.startswith(LISTS)
        words = [*map(shown, arguments), *(f"{key}={shown(x)}" for key, x in keywords.items())]
        lines.append(f"    {left} = torch.ops.aten.{name}({', '.join(words)})")
    return [*lines, f"    return {', '.join(f'v{k}' for k in case['results'])},"]


def program(case: Case) -> str:
    """Returns a program that prints the results of eager and of ngraph, without gradients."""
    lines = [*function(case), "", ""]
    for lengths in [case["lengths"], *([case["others"]] if case["others"] else [])]:
        for k, x in enumerate(inputs(case, lengths)):
            lines.append(f"x{k} = torch.tensor({x.tolist()}, dtype={x.dtype}).reshape({tuple(x.shape)})")
            if not x.is_contiguous():
                size = 1 + sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
                lines.append(f"x{k} = torch.empty({size}, dtype={x.dtype}).as_strided({tuple(x.shape)}, {x.stride()}).copy_(x{k})")
            if case["gradient"] and floating(x):
                lines.append(f"x{k}.requires_grad_()")
        names = ", ".join(f"x{k}" for k in range(len(case["inputs"])))
        if lengths is case["lengths"]:
            options = f'{{"fallback": "silent", "transformer": {case["transformer"]!r}}}'
            lines.append(
                f'g = torch.compile(f, backend="ngraph", fullgraph=True, dynamic={case["dynamic"] != "static"}, options={options})'
            )
        lines += [f"print(f({names}))", f"print(g({names}))"]
    return "\n".join(lines) + "\n"
