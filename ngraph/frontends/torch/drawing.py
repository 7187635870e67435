"""Random ops as draws of ours: torch's generator gives each of them a seed, and Philox makes the numbers inside the kernels that use them.

`ngraph::seed` draws the seed, in torch, so that `torch.manual_seed` repeats all that follows. `ngraph::draw` makes numbers of a seed, the
same ones each time, so that a backward graph draws a mask again instead of keeping it. Random ops of PyTorch are taken apart into both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ngraph.errors import OperandError
from ngraph.frontends.positional.values import Tensor
from ngraph.frontends.torch import checking, private
from ngraph.frontends.torch.graph import TorchNode
from ngraph.frontends.torch.table import translates
from ngraph.op_graph import dtypes
from ngraph.ops import elementwise as e
from ngraph.ops import random as ops
from ngraph.ops.random import normal_record, uniform_record
from ngraph.ops.rearrange import broadcast

MOST = 1 << 62  # seeds are below it, and not negative

Rule = Callable[..., Any]


def seed() -> torch.Tensor:
    """Two whole numbers from torch's generator."""
    return torch.randint(0, MOST, (2,))


def eager(seed: torch.Tensor, size: Sequence[int], kind: str) -> torch.Tensor:
    """Numbers in float32 that depend on the seed alone, where torch has to make them."""
    generator = torch.Generator().manual_seed(int(seed[0]) ^ int(seed[1]))
    return (torch.rand if kind == "uniform" else torch.randn)(size, generator=generator)


def defined() -> Any:
    """Defines both ops, and returns what holds them."""
    library = torch.library.Library("ngraph", "FRAGMENT")
    library.define("seed() -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
    library.define("draw(Tensor seed, SymInt[] size, str kind) -> Tensor")
    library.impl("seed", seed, "CompositeExplicitAutograd")
    library.impl("draw", eager, "CPU")
    torch.library.register_fake("ngraph::seed", lambda: torch.empty(2, dtype=torch.int64), lib=library)
    torch.library.register_fake("ngraph::draw", lambda seed, size, kind: torch.empty(size), lib=library)
    return library


LIBRARY = defined()  # the ops are there as long as this is
SEED = "ngraph.seed.default"


@translates("ngraph.draw")
def draw(n: TorchNode, seed: Tensor | None, size: Any, kind: str) -> Tensor:
    """Numbers of a seed; None, as in exported programs, draws with the state of the transformer."""
    g = n.g
    dims = [g.fresh(s) for s in n.shape]
    if seed is None:
        return g.made((ops.uniform if kind == "uniform" else ops.normal)(dims), dims)
    state = e.cast(g.full(seed).op, dtypes.uint64)
    if kind == "uniform":
        made = uniform_record.build(state, axes=tuple(dims), dtype=dtypes.float32, stream=0, low=0.0, high=1.0)
    else:
        made = normal_record.build(state, axes=tuple(dims), dtype=dtypes.float32, stream=0, loc=0.0, scale=1.0)
    return g.made(broadcast(made, dims), dims)


# ---- random ops taken apart; where a parameter is out of bounds they are left to torch, which raises its error ----------


def uniform(size: Any) -> torch.Tensor:
    """Numbers from 0 up to 1."""
    return torch.ops.ngraph.draw(torch.ops.ngraph.seed(), list(size), "uniform")


def standard(size: Any) -> torch.Tensor:
    """Numbers of the standard normal distribution."""
    return torch.ops.ngraph.draw(torch.ops.ngraph.seed(), list(size), "normal")


def kind_of(dtype: torch.dtype | None) -> torch.dtype:
    return torch.get_default_dtype() if dtype is None else dtype


def dropout(x: torch.Tensor, p: float, train: bool | None) -> Any:
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if not 0 <= p <= 1:
        return NotImplemented
    mask = uniform(x.shape) >= p
    return x * mask * (1.0 / (1.0 - p) if p < 1 else 0.0), mask


def rand(size: Any, dtype: torch.dtype | None = None, **named: Any) -> torch.Tensor:
    return uniform(size).to(kind_of(dtype))


def randn(size: Any, dtype: torch.dtype | None = None, **named: Any) -> torch.Tensor:
    return standard(size).to(kind_of(dtype))


def rand_like(x: torch.Tensor, dtype: torch.dtype | None = None, **named: Any) -> torch.Tensor:
    return uniform(x.shape).to(dtype or x.dtype)


def randn_like(x: torch.Tensor, dtype: torch.dtype | None = None, **named: Any) -> torch.Tensor:
    return standard(x.shape).to(dtype or x.dtype)


def whole(size: Any, low: Any, high: Any) -> torch.Tensor:
    """Whole numbers from `low` up to `high`. A number of float32 has 24 bits; a range that may be longer takes two of them."""
    drawn = uniform(size).to(torch.float64)
    if not private.surely(high - low <= 1 << 24):
        drawn = drawn + uniform(size).to(torch.float64) / (1 << 24)
    return (drawn * (high - low)).floor().to(torch.int64) + low


def randint(high: int, size: Any, dtype: torch.dtype | None = None, **named: Any) -> torch.Tensor:
    return randint_from(0, high, size, dtype)


def randint_from(low: int, high: int, size: Any, dtype: torch.dtype | None = None, **named: Any) -> Any:
    if private.surely(high - low > 1 << 48) or private.surely(high <= low):
        return NotImplemented  # two numbers of float32 have no more bits; an empty range is torch's error
    return whole(size, low, high).to(torch.int64 if dtype is None else dtype)


def randint_like(x: torch.Tensor, high: Any, dtype: torch.dtype | None = None, **named: Any) -> Any:
    return randint_from(0, high, x.shape, dtype or x.dtype)


def randint_like_from(x: torch.Tensor, low: Any, high: Any, dtype: torch.dtype | None = None, **named: Any) -> Any:
    return randint_from(low, high, x.shape, dtype or x.dtype)


def bernoulli(x: torch.Tensor, generator: Any = None) -> Any:
    if generator is not None or not x.is_floating_point():
        return NotImplemented
    return (uniform(x.shape) < checking.shares(x, "probabilities of bernoulli", "x.clamp(0, 1)")).to(x.dtype)


def bernoulli_of(x: torch.Tensor, p: float = 0.5, generator: Any = None) -> Any:
    return (uniform(x.shape) < p).to(x.dtype) if generator is None and 0 <= p <= 1 else NotImplemented


def uniform_like(x: torch.Tensor, low: float = 0.0, high: float = 1.0, generator: Any = None) -> Any:
    return (uniform(x.shape) * (high - low) + low).to(x.dtype) if generator is None and low <= high else NotImplemented


def normal_like(x: torch.Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
    return (standard(x.shape) * std + mean).to(x.dtype) if generator is None and std >= 0 else NotImplemented


def normal(mean: torch.Tensor, std: torch.Tensor, generator: Any = None) -> Any:
    like = mean + std
    if generator is not None:
        return NotImplemented
    std = torch.ops.ngraph.checked(std, ~(std >= 0), "elements of the std of normal are below 0", "std.abs()")
    return standard(like.shape).to(like.dtype) * std + mean


def exponential(x: torch.Tensor, rate: float = 1.0, generator: Any = None) -> Any:
    return (-torch.log1p(-uniform(x.shape)) / rate).to(x.dtype) if generator is None and rate > 0 else NotImplemented


def log_normal(x: torch.Tensor, mean: float = 1.0, std: float = 2.0, generator: Any = None) -> Any:
    return torch.exp(standard(x.shape) * std + mean).to(x.dtype) if generator is None and std > 0 else NotImplemented


def cauchy(x: torch.Tensor, median: float = 0.0, sigma: float = 1.0, generator: Any = None) -> Any:
    if generator is not None or not sigma > 0:
        return NotImplemented
    return (torch.tan((uniform(x.shape) - 0.5) * math.pi) * sigma + median).to(x.dtype)


def geometric(x: torch.Tensor, p: float, generator: Any = None) -> Any:
    """Numbers of trials up to the first success."""
    if generator is not None or not isinstance(p, float) or not 0 < p < 1:
        return NotImplemented
    return (torch.log1p(-uniform(x.shape)) / math.log1p(-p)).ceil().clamp(min=1).to(x.dtype)


def randperm(n: Any, dtype: torch.dtype | None = None, **named: Any) -> torch.Tensor:
    """The whole numbers below n in a random order: equal numbers of float32 are not rare, so a second draw decides between them."""
    order = torch.argsort(uniform((n,)))
    order = order[torch.argsort(uniform((n,))[order], stable=True)]
    return order.to(torch.int64 if dtype is None else dtype)


def dropped(x: torch.Tensor, p: float, train: bool | None) -> torch.Tensor:
    """Returns x itself where nothing is dropped, as the kernel does, so that what is written in the result is written in x.

    Raises OperandError for a p that is not from 0 to 1, in inference too.
    """
    if not 0 <= p <= 1:
        raise OperandError(f"the probability of dropout is {p}, which is not from 0 to 1", fix="torch.dropout(x, 0.5, train)")
    return torch.ops.aten.native_dropout(x, p, train)[0] if train and p else x


def before_autograd() -> dict[Any, Rule]:
    """Returns how dropout is taken apart."""
    return {torch.ops.aten.dropout.default: dropped}


def rules() -> dict[Any, Rule]:
    """Returns how random ops are taken apart, by overload."""
    aten = torch.ops.aten
    return {
        aten.native_dropout.default: dropout,
        aten.rand.default: rand,
        aten.randn.default: randn,
        aten.rand_like.default: rand_like,
        aten.randn_like.default: randn_like,
        aten.randint.default: randint,
        aten.randint.low: randint_from,
        aten.randint_like.default: randint_like,
        aten.randint_like.low_dtype: randint_like_from,
        aten.randperm.default: randperm,
        aten.bernoulli.default: bernoulli,
        aten.bernoulli.p: bernoulli_of,
        aten.uniform.default: uniform_like,
        aten.normal_functional.default: normal_like,
        aten.normal.Tensor_Tensor: normal,
        aten.exponential.default: exponential,
        aten.log_normal.default: log_normal,
        aten.cauchy.default: cauchy,
        aten.geometric.default: geometric,
    }
