"""The differentiable functions of ngraph, a row each: its source in ngraph, and its meaning in NumPy and in PyTorch.

A value is a pair (axes, array): names of axes in the order of the array's dims. Nothing here runs ngraph: a row says how ngraph builds
its function as source text, and the two meanings are written with NumPy and with PyTorch alone. What both libraries call alike
(reshaping, indexing with lists) is written once. A row's `choose` draws operands among the values made so far, and refuses those that
lie at a kink, a tie or the edge of the domain, so that differences of nearby values mean something.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

MARGIN = 0.05  # the least distance of an operand from a kink, a tie or the edge of a domain; steps of differences are 100 times smaller
MOST = 64  # elements in a value: cases stay fast and readable

Value = tuple[tuple[str, ...], Any]


class Row(NamedTuple):
    """A function: `source` builds it in ngraph, `numpy` and `torch` are its meanings, `choose` draws its operands and attributes."""

    source: Callable[..., str]  # (attrs, axes of the operands, names of the operands) -> an expression
    numpy: Callable[..., Value]  # (attrs, *values) -> value
    torch: Callable[..., Value] | None
    choose: Callable[..., Any]  # (Draw, values) -> (operand positions, attrs) or None
    held: tuple[int, ...] = ()  # operands that count as constants: no derivative flows to them


class Draw:
    """Random choices of a case, and the axes that it has made."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.lengths: dict[str, int] = {}

    def whole(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def one(self, things: Sequence[Any]) -> Any:
        return things[int(self.rng.integers(len(things)))]

    def some(self, things: Sequence[Any], least: int = 0) -> list[Any]:
        count = self.whole(least, len(things))
        return [things[k] for k in sorted(self.rng.permutation(len(things))[:count])]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def axis(self, length: int) -> str:
        name = f"X{len(self.lengths)}"
        self.lengths[name] = length
        return name

    def numbers(self, axes: Sequence[str]) -> Any:
        return np.round(self.rng.normal(size=[self.lengths[a] for a in axes]), 3)


# ---- arrays with named axes, in both libraries -------------------------------------------------------------------------


def ordered(value: Value, axes: Sequence[str]) -> Any:
    """Returns the array with its dims in the order of `axes`, which are those of the value."""
    have, array = value
    order = [have.index(a) for a in axes]
    return array.permute(order) if torch.is_tensor(array) else array.transpose(order)


def lined(*values: Value) -> tuple[tuple[str, ...], list[Any]]:
    """Returns the union of the axes, and the arrays with their dims in its order, of length 1 where a value lacks the axis."""
    axes = tuple(dict.fromkeys(a for have, _ in values for a in have))
    made = []
    for have, array in values:
        mine = [a for a in axes if a in have]
        array = ordered((have, array), mine)
        lengths = dict(zip(mine, array.shape, strict=True))
        made.append(array.reshape([lengths.get(a, 1) for a in axes]))
    return axes, made


def spread(x: Any, shape: Sequence[int]) -> Any:
    return x.expand(tuple(shape)) if torch.is_tensor(x) else np.broadcast_to(x, shape)


def full(x: Any, shape: Sequence[int], number: float) -> Any:
    return torch.full(tuple(shape), number, dtype=x.dtype) if torch.is_tensor(x) else np.full(tuple(shape), number)


def joined(xs: Sequence[Any], dim: int) -> Any:
    return torch.cat(list(xs), dim) if torch.is_tensor(xs[0]) else np.concatenate(list(xs), dim)


def stacked(xs: Sequence[Any], dim: int) -> Any:
    return torch.stack(list(xs), dim) if torch.is_tensor(xs[0]) else np.stack(list(xs), dim)


def at(x: Any, dim: int, index: Any) -> Any:
    """Returns `x` at an index or a list of indices along one dim."""
    return x[(slice(None),) * dim + (index,)]


def summed(x: Any, dims: Sequence[int]) -> Any:
    return x.sum(tuple(dims)) if dims else x


def text(axes: Sequence[str]) -> str:
    return f"[{', '.join(axes)}]"


# ---- domains -----------------------------------------------------------------------------------------------------------


def anywhere(*xs: Any) -> bool:
    return True


def beyond(low: float, high: float) -> Callable[..., bool]:
    """Returns a predicate: all elements lie between the two numbers."""
    return lambda x: bool(np.all((x > low) & (x < high)))


def off(*kinks: float) -> Callable[..., bool]:
    """Returns a predicate: no element is near these numbers."""
    return lambda x: all(bool(np.all(np.abs(x - k) > MARGIN)) for k in kinks)


def unlike(*xs: Any) -> bool:
    """Whether no two elements of one tensor are near each other; of two tensors, no aligned elements."""
    if len(xs) == 2:
        return bool(np.all(np.abs(xs[0] - xs[1]) > MARGIN))
    each = np.sort(xs[0].ravel())
    return bool(np.all(np.diff(each) > MARGIN / 4))


def no_whole(x: Any, y: Any = 1.0) -> bool:
    return bool(np.all(np.abs(y) > 0.3) and np.all(np.abs(x / y - np.rint(x / y)) > MARGIN))


# ---- elementwise -------------------------------------------------------------------------------------------------------

erf = np.vectorize(math.erf, otypes=[np.float64])
F = torch.nn.functional


def np_sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def np_softplus(x: Any) -> Any:
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


ROWS: dict[str, Row] = {}


def elementwise(
    name: str, source: str, f: Callable[..., Any], g: Callable[..., Any], domain: Callable[..., bool] = anywhere, nested: bool = False
) -> None:
    """Adds a row of one or more operands, matched by axis names; `source` has {0}, {1}, ... for them. `nested`: one has all axes."""
    arity = sum(f"{{{k}}}" in source for k in range(3))

    def meaning(function: Callable[..., Any]) -> Callable[..., Value]:
        def run(attrs: Any, *values: Value) -> Value:
            axes, arrays = lined(*values)
            return axes, function(*arrays)

        return run

    def choose(draw: Draw, values: Sequence[Value]) -> Any:
        picked = [draw.whole(0, len(values) - 1) for _ in range(arity)]
        axes, arrays = lined(*(values[k] for k in picked))
        if math.prod(draw.lengths[a] for a in axes) > MOST or not domain(*arrays):
            return None
        if nested and not any(set(values[k][0]) == set(axes) for k in picked):
            return None
        return picked, {}

    ROWS[name] = Row(lambda attrs, axes, names: source.format(*names), meaning(f), meaning(g), choose)


UNARY = (
    ("exp", "ng.exp({0})", np.exp, torch.exp, beyond(-9, 2.5)),
    ("expm1", "ng.expm1({0})", np.expm1, torch.expm1, beyond(-9, 2.5)),
    ("log", "ng.log({0})", np.log, torch.log, beyond(0.15, 90)),
    ("log1p", "ng.log1p({0})", np.log1p, torch.log1p, beyond(-0.8, 90)),
    ("safelog", "ng.safelog({0})", np.log, torch.log, beyond(0.15, 90)),
    ("safelog, low", "ng.safelog({0}, -1.0)", lambda x: np.maximum(np.log(np.maximum(x, 1e-9)), -1.0),
     lambda x: torch.log(x.clamp(min=1e-9)).clamp(min=-1.0), lambda x: off(math.exp(-1.0))(x) and bool(np.all(x > 0.05))),
    ("sqrt", "ng.sqrt({0})", np.sqrt, torch.sqrt, beyond(0.15, 90)),
    ("square", "ng.square({0})", np.square, torch.square, anywhere),
    ("sin", "ng.sin({0})", np.sin, torch.sin, anywhere),
    ("cos", "ng.cos({0})", np.cos, torch.cos, anywhere),
    ("tanh", "ng.tanh({0})", np.tanh, torch.tanh, anywhere),
    ("atan", "ng.atan({0})", np.arctan, torch.atan, anywhere),
    ("erf", "ng.erf({0})", erf, torch.erf, anywhere),
    ("sigmoid", "ng.sigmoid({0})", np_sigmoid, torch.sigmoid, anywhere),
    ("reciprocal", "ng.reciprocal({0})", lambda x: 1 / x, torch.reciprocal, off(0.0, 0.1, -0.1)),
    ("negative", "-{0}", np.negative, torch.neg, anywhere),
    ("absolute", "abs({0})", np.abs, torch.abs, off(0.0)),
    ("relu", "ng.relu({0})", lambda x: np.maximum(x, 0), torch.relu, off(0.0)),
    ("sign", "ng.sign({0})", np.sign, torch.sign, off(0.0)),
    ("floor", "ng.floor({0})", np.floor, torch.floor, no_whole),
    ("round", "ng.rounded({0})", np.rint, torch.round, lambda x: no_whole(x + 0.5)),
    ("gelu", "ng.gelu({0})", lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2))), F.gelu, anywhere),
    ("gelu, approximate", "ng.gelu({0}, approximate=True)",
     lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), lambda x: F.gelu(x, approximate="tanh"), anywhere),
    ("silu", "ng.silu({0})", lambda x: x * np_sigmoid(x), F.silu, anywhere),
    ("softplus", "ng.softplus({0})", np_softplus, lambda x: F.softplus(x, threshold=1000.0), anywhere),
    ("elu", "ng.elu({0}, 0.7)", lambda x: np.where(x > 0, x, 0.7 * np.expm1(np.minimum(x, 0))), lambda x: F.elu(x, 0.7), off(0.0)),
    ("clip", "ng.clip({0}, -0.6, 0.9)", lambda x: np.clip(x, -0.6, 0.9), lambda x: x.clamp(-0.6, 0.9), off(-0.6, 0.9)),
    ("plus a number", "{0} + 1.5", lambda x: x + 1.5, lambda x: x + 1.5, anywhere),
    ("times a number", "0.8 * {0}", lambda x: 0.8 * x, lambda x: 0.8 * x, anywhere),
    ("number over", "2.0 / {0}", lambda x: 2 / x, lambda x: 2 / x, off(0.0, 0.1, -0.1)),
    ("x ** 2", "{0} ** 2", lambda x: x**2, lambda x: x**2, anywhere),
    ("x ** 3", "{0} ** 3", lambda x: x**3, lambda x: x**3, beyond(-5, 5)),
    ("x ** 0", "{0} ** 0", lambda x: x**0, lambda x: x**0, anywhere),
    ("x ** -1.5", "{0} ** -1.5", lambda x: x**-1.5, lambda x: x**-1.5, beyond(0.2, 90)),
    ("2 ** x", "2 ** {0}", lambda x: 2**x, lambda x: 2**x, beyond(-9, 4)),
    ("mod a number", "{0} % 1.75", lambda x: np.mod(x, 1.75), lambda x: torch.remainder(x, 1.75), lambda x: no_whole(x, 1.75)),
    ("cast", "ng.cast({0}, 'float64')", lambda x: x, lambda x: x, anywhere),
    ("value_of", "ng.value_of({0})", lambda x: x, lambda x: x, anywhere),
)  # fmt: skip
BINARY = (
    ("add", "{0} + {1}", np.add, torch.add, anywhere),
    ("subtract", "{0} - {1}", np.subtract, torch.sub, anywhere),
    ("multiply", "{0} * {1}", np.multiply, torch.mul, anywhere),
    ("divide", "{0} / {1}", np.divide, torch.div, lambda x, y: off(0.0, 0.1, -0.1)(y)),
    ("power", "{0} ** {1}", np.power, torch.pow, lambda x, y: bool(np.all((x > 0.2) & (x < 4)) and np.all(np.abs(y) < 3))),
    ("maximum", "ng.maximum({0}, {1})", np.maximum, torch.maximum, unlike),
    ("minimum", "ng.minimum({0}, {1})", np.minimum, torch.minimum, unlike),
    ("mod", "ng.mod({0}, {1})", np.mod, torch.remainder, no_whole),
    ("floordivide", "{0} // {1}", np.floor_divide, lambda x, y: torch.div(x, y, rounding_mode="floor"), no_whole),
    ("where", "ng.where({0} > {1}, {0} * {1}, ng.sin({1}))", lambda x, y: np.where(x > y, x * y, np.sin(y)),
     lambda x, y: torch.where(x > y, x * y, torch.sin(y)), unlike),
    ("binary cross-entropy", "ng.cross_entropy_binary_inner(ng.sigmoid({0}), ng.sigmoid({1}))",
     lambda x, y: np_softplus(x) - x * np_sigmoid(y),
     lambda x, y: F.binary_cross_entropy_with_logits(*torch.broadcast_tensors(x, torch.sigmoid(y)), reduction="none"), anywhere, True),
    ("binary cross-entropy of shares", "ng.cross_entropy_binary_inner({0}, {1})",
     lambda p, t: -(t * np.log(p) + (1 - t) * np.log(1 - p)), lambda p, t: -(t * torch.log(p) + (1 - t) * torch.log(1 - p)),
     lambda p, t: bool(np.all((p > 0.1) & (p < 0.9))), True),
)  # fmt: skip
for _row in (*UNARY, *BINARY):
    elementwise(*_row)


# ---- one operand, some of its axes ---------------------------------------------------------------------------------------


def along(
    name: str,
    source: Callable[[str, list[str], Any], str],
    f: Callable[..., Any],
    g: Callable[..., Any] | None,
    domain: Callable[..., bool] = anywhere,
    *,
    reduces: bool = False,
    one: bool = False,
    attrs: Callable[[Draw], Any] = lambda draw: {},
) -> None:
    """Adds a row that works along some axes of its operand: f(array, dims, attrs); `one`: along exactly one."""

    def meaning(function: Callable[..., Any]) -> Callable[..., Value]:
        def run(attrs: Any, value: Value) -> Value:
            axes, array = value
            dims = tuple(axes.index(a) for a in attrs["axes"])
            return tuple(a for a in axes if not reduces or a not in attrs["axes"]), function(array, dims[0] if one else dims, attrs)

        return run

    def choose(draw: Draw, values: Sequence[Value]) -> Any:
        k = draw.whole(0, len(values) - 1)
        axes, array = values[k]
        if not axes or not domain(array):
            return None
        return [k], {"axes": [draw.one(axes)] if one else draw.some(axes, 1), **attrs(draw)}

    ROWS[name] = Row(
        lambda attrs, axes, names: source(names[0], attrs["axes"], attrs), meaning(f), None if g is None else meaning(g), choose
    )


def np_logsumexp(x: Any, dims: Any, keepdims: bool = False) -> Any:
    m = x.max(axis=dims, keepdims=True)
    found = np.log(np.exp(x - m).sum(axis=dims, keepdims=True)) + m
    return found if keepdims else found.reshape([n for k, n in enumerate(x.shape) if k not in dims])


def t_prod(x: Any, dims: Sequence[int], _: Any) -> Any:
    for d in sorted(dims, reverse=True):
        x = x.prod(d)
    return x


def called(function: str) -> Callable[[str, list[str], Any], str]:
    return lambda x, axes, attrs: f"ng.{function}({x}, reduction_axes={text(axes)})"


def normalized(function: str) -> Callable[[str, list[str], Any], str]:
    return lambda x, axes, attrs: f"ng.{function}({x}, normalization_axes={text(axes)})"


REDUCTIONS: tuple[Any, ...] = (
    ("sum", called("sum"), lambda x, d, a: x.sum(d), lambda x, d, a: x.sum(d)),
    ("mean", called("mean"), lambda x, d, a: x.mean(d), lambda x, d, a: x.mean(d)),
    ("max", called("max"), lambda x, d, a: x.max(d), lambda x, d, a: x.amax(d), unlike),
    ("min", called("min"), lambda x, d, a: x.min(d), lambda x, d, a: x.amin(d), unlike),
    ("prod", called("prod"), lambda x, d, a: x.prod(d), t_prod),
    ("variance", called("variance"), lambda x, d, a: x.var(d), lambda x, d, a: x.var(d, unbiased=False)),
    ("L1_norm", called("L1_norm"), lambda x, d, a: np.abs(x).sum(d), lambda x, d, a: x.abs().sum(d), off(0.0)),
    ("squared_L2", called("squared_L2"), lambda x, d, a: (x * x).sum(d), lambda x, d, a: (x * x).sum(d)),
    (
        "L2_norm",
        called("L2_norm"),
        lambda x, d, a: np.sqrt((x * x).sum(d) + 1e-8),
        lambda x, d, a: ((x * x).sum(d) + 1e-8).sqrt(),
        off(0.0),
    ),
    ("logsumexp", called("logsumexp"), lambda x, d, a: np_logsumexp(x, d), lambda x, d, a: x.logsumexp(d)),
)
for _row in REDUCTIONS:
    along(*_row, reduces=True)


def np_softmax(x: Any, dims: Any, _: Any = None) -> Any:
    return np.exp(x - np_logsumexp(x, dims, True))


along("softmax", normalized("softmax"), np_softmax, lambda x, d, a: (x - x.logsumexp(d, keepdim=True)).exp())
along(
    "log_softmax",
    normalized("log_softmax"),
    lambda x, d, a: x - np_logsumexp(x, d, True),
    lambda x, d, a: x - x.logsumexp(d, keepdim=True),
)


def cumulated(f: Callable[[Any, Any], Any], start: float) -> Callable[..., Any]:
    """Returns a cumulative f along a dim, one element after the other, in either library."""

    def run(x: Any, dim: int, attrs: Any) -> Any:
        n = x.shape[dim]
        now, made = full(at(x, dim, 0), at(x, dim, 0).shape, start), {}
        for k in reversed(range(n)) if attrs["reverse"] else range(n):
            after = f(now, at(x, dim, k))
            made[k] = now if attrs["exclusive"] else after
            now = after
        return stacked([made[k] for k in range(n)], dim)

    return run


def any_way(draw: Draw) -> Any:
    return {"exclusive": draw.chance(0.5), "reverse": draw.chance(0.5)}


def larger(x: Any, y: Any) -> Any:
    return torch.maximum(x, y) if torch.is_tensor(x) else np.maximum(x, y)


def running(kind: str) -> Callable[[str, list[str], Any], str]:
    from_record = f"REGISTRY['cumulate'].build({{0}}, kind='{kind}', axis={{1}}, exclusive={{2}}, reverse={{3}})"
    source = "ng.cumsum({0}, {1}, exclusive={2}, reverse={3})" if kind == "add" else from_record
    return lambda x, axes, attrs: source.format(x, axes[0], attrs["exclusive"], attrs["reverse"])


for _kind, _f, _start, _domain in (
    ("add", lambda x, y: x + y, 0.0, anywhere),
    ("multiply", lambda x, y: x * y, 1.0, anywhere),
    ("max", larger, -50.0, unlike),  # beyond all values
    ("min", lambda x, y: -larger(-x, -y), 50.0, unlike),
):
    _run = cumulated(_f, _start)
    # without the element itself the first of the largest is the lowest number of all: that is another's to test
    _attrs = any_way if _kind in ("add", "multiply") else lambda draw: {"exclusive": False, "reverse": draw.chance(0.5)}
    along(f"running {_kind}", running(_kind), _run, _run, _domain, one=True, attrs=_attrs)


def np_sorted(x: Any, dim: int, attrs: Any) -> Any:
    return np.flip(np.sort(x, dim), dim) if attrs["descending"] else np.sort(x, dim)


def falling(draw: Draw) -> Any:
    return {"descending": draw.chance(0.5)}


along(
    "sort",
    lambda x, axes, attrs: f"ng.sort({x}, {axes[0]}, descending={attrs['descending']})",
    np_sorted,
    lambda x, d, a: x.sort(d, descending=a["descending"])[0],
    unlike,
    one=True,
    attrs=falling,
)
along("flip", lambda x, axes, attrs: f"ng.flip({x}, {text(axes)})", lambda x, d, a: np.flip(x, d), lambda x, d, a: torch.flip(x, d))


# ---- axes that come and go ------------------------------------------------------------------------------------------------


def shaped(name: str, source: Any, f: Any, choose: Any, g: Any = None) -> None:
    """Adds a row whose meaning uses functions of both libraries, unless `g` is PyTorch's."""
    ROWS[name] = Row(source, f, f if g is None else g, choose)


def with_axes(values: Sequence[Value], draw: Draw, least: int = 1) -> int | None:
    fit = [k for k, (axes, _) in enumerate(values) if len(axes) >= least]
    return draw.one(fit) if fit else None


def one_axis(attrs: Callable[[Draw, int], Any]) -> Callable[..., Any]:
    """Draws an operand and one of its axes; `attrs` says the rest, from the length of that axis, or refuses."""

    def choose(draw: Draw, values: Sequence[Value]) -> Any:
        k = with_axes(values, draw)
        if k is None:
            return None
        axis = draw.one(values[k][0])
        more = attrs(draw, draw.lengths[axis])
        return None if more is None else ([k], {"axis": axis, **more})

    return choose


def renamed(axes: Sequence[str], old: str, new: str) -> tuple[str, ...]:
    return tuple(new if a == old else a for a in axes)


def moved(x: str, axes: Sequence[str], old: str, new: str) -> str:
    """Returns source that gives the changed axis a new name."""
    return f"ng.cast_axes({x}, {text(renamed(axes, old, new))})"


def a_slice(draw: Draw, n: int) -> Any:
    step = draw.one([1, 2, 3, -1, -2])
    span = sorted(draw.whole(0, n) for _ in range(2))
    start, stop = (span[0], span[1]) if step > 0 else (span[1] - 1, span[0] - 1)
    count = len(range(start, stop, step))
    if count < 1 or start < 0:
        return None
    return {"start": start, "stop": stop if stop >= 0 else None, "step": step, "new": draw.axis(count)}


def indices_of(attrs: Any, n: int) -> list[int]:
    return list(range(n))[attrs["start"] : attrs["stop"] : attrs["step"]]


def sliced(attrs: Any, value: Value) -> Value:
    axes, x = value
    dim = axes.index(attrs["axis"])
    return renamed(axes, attrs["axis"], attrs["new"]), at(x, dim, indices_of(attrs, x.shape[dim]))


def slice_source(attrs: Any, axes: Any, names: Any) -> str:
    s = f"slice({attrs['start']}, {attrs['stop']}, {attrs['step']})"
    return moved(f"ng.slice_along_axis({names[0]}, {attrs['axis']}, {s})", axes[0], attrs["axis"], attrs["new"])


shaped("slice", slice_source, sliced, one_axis(a_slice))
shaped(
    "index",
    lambda attrs, axes, names: f"ng.slice_along_axis({names[0]}, {attrs['axis']}, {attrs['index']})",
    lambda attrs, v: (tuple(a for a in v[0] if a != attrs["axis"]), at(v[1], v[0].index(attrs["axis"]), attrs["index"])),
    one_axis(lambda draw, n: {"index": draw.whole(0, n - 1)}),
)


def padded(attrs: Any, value: Value) -> Value:
    axes, x = value
    dim = axes.index(attrs["axis"])
    before, after = ([*x.shape[:dim], n, *x.shape[dim + 1 :]] for n in (attrs["before"], attrs["after"]))
    return renamed(axes, attrs["axis"], attrs["new"]), joined([full(x, before, 0.5), x, full(x, after, 0.5)], dim)


def a_padding(draw: Draw, n: int) -> Any:
    before, after = draw.whole(0, 2), draw.whole(0, 2)
    return {"before": before, "after": after, "new": draw.axis(n + before + after)}


shaped(
    "pad",
    lambda attrs, axes, names: moved(
        f"ng.pad({names[0]}, {{{attrs['axis']}: ({attrs['before']}, {attrs['after']})}}, value=0.5)", axes[0], attrs["axis"], attrs["new"]
    ),
    padded,
    one_axis(a_padding),
)


def choose_rename(draw: Draw, n: int) -> Any:
    return {"new": draw.axis(n)}


for _name, _source in (
    ("cast_axes", lambda attrs, axes, names: moved(names[0], axes[0], attrs["axis"], attrs["new"])),
    ("map_roles", lambda attrs, axes, names: f"ng.map_roles({names[0]}, {{{attrs['axis']}: {attrs['new']}}})"),
):
    shaped(_name, _source, lambda attrs, v: (renamed(v[0], attrs["axis"], attrs["new"]), v[1]), one_axis(choose_rename))


def choose_broadcast(draw: Draw, values: Sequence[Value]) -> Any:
    k = draw.whole(0, len(values) - 1)
    axes = list(values[k][0])
    axes.insert(draw.whole(0, len(axes)), draw.axis(draw.whole(1, 3)))
    return [k], {"axes": [axes[j] for j in draw.rng.permutation(len(axes))]}


def broadcasted(attrs: Any, value: Value) -> Value:
    axes, x = value
    have = [a for a in attrs["axes"] if a in axes]
    lengths = dict(zip(axes, x.shape, strict=True))
    x = ordered(value, have).reshape([lengths.get(a, 1) for a in attrs["axes"]])
    return tuple(attrs["axes"]), spread(x, [lengths.get(a, attrs["lengths"].get(a, 1)) for a in attrs["axes"]])


def with_lengths(choose: Callable[..., Any]) -> Callable[..., Any]:
    """Keeps the lengths of the axes among the attributes, for rows that make axes."""

    def run(draw: Draw, values: Sequence[Value]) -> Any:
        made = choose(draw, values)
        if made is not None:
            made[1]["lengths"] = {a: draw.lengths[a] for a in made[1]["axes"]}
        return made

    return run


shaped(
    "broadcast", lambda attrs, axes, names: f"ng.broadcast({names[0]}, {text(attrs['axes'])})", broadcasted, with_lengths(choose_broadcast)
)


def choose_order(draw: Draw, values: Sequence[Value]) -> Any:
    """Returns another order of the axes."""
    k = with_axes(values, draw, 2)
    if k is None:
        return None
    axes = list(values[k][0])
    order = [axes[j] for j in draw.rng.permutation(len(axes))]
    return [k], {"axes": order if order != axes else order[::-1]}


shaped(
    "axes_with_order",
    lambda attrs, axes, names: f"ng.axes_with_order({names[0]}, {text(attrs['axes'])})",
    lambda attrs, v: (tuple(attrs["axes"]), ordered(v, attrs["axes"])),
    choose_order,
)


def choose_flatten(draw: Draw, values: Sequence[Value]) -> Any:
    k = with_axes(values, draw, 2)
    if k is None:
        return None
    axes = values[k][0]
    order = [axes[j] for j in draw.rng.permutation(len(axes))]
    return [k], {"axes": order, "new": draw.axis(math.prod(draw.lengths[a] for a in order))}


shaped(
    "flatten",
    lambda attrs, axes, names: f"ng.cast_axes(ng.flatten({names[0]}, {text(attrs['axes'])}), [{attrs['new']}])",
    lambda attrs, v: ((attrs["new"],), ordered(v, attrs["axes"]).reshape(-1)),
    choose_flatten,
)
shaped(
    "flatten and unflatten",
    lambda attrs, axes, names: f"ng.unflatten(ng.flatten({names[0]}, {text(attrs['axes'])}) * 2.0)",
    lambda attrs, v: (tuple(attrs["axes"]), ordered(v, attrs["axes"]) * 2.0),
    choose_flatten,
)


def choose_alike(draw: Draw, values: Sequence[Value]) -> Any:
    """Returns operands of equal axes."""
    first = with_axes(values, draw)
    if first is None:
        return None
    same = [k for k, (axes, _) in enumerate(values) if set(axes) == set(values[first][0])]
    picked = [draw.one(same) for _ in range(draw.whole(1, 3))]
    axis = draw.one(values[first][0])
    return picked, {"axis": axis, "new": draw.axis(draw.lengths[axis] * len(picked)), "stacked": draw.axis(len(picked))}


def all_ordered(values: Sequence[Value]) -> list[Any]:
    return [ordered(v, values[0][0]) for v in values]


shaped(
    "concat",
    lambda attrs, axes, names: moved(f"ng.concat_along_axis([{', '.join(names)}], {attrs['axis']})", axes[0], attrs["axis"], attrs["new"]),
    lambda attrs, *vs: (renamed(vs[0][0], attrs["axis"], attrs["new"]), joined(all_ordered(vs), vs[0][0].index(attrs["axis"]))),
    choose_alike,
)
shaped(
    "stack",
    lambda attrs, axes, names: f"ng.stack([{', '.join(names)}], {attrs['stacked']}, pos=1)",
    lambda attrs, *vs: ((vs[0][0][0], attrs["stacked"], *vs[0][0][1:]), stacked(all_ordered(vs), 1)),
    choose_alike,
)


def choose_diagonal(draw: Draw, values: Sequence[Value]) -> Any:
    k = with_axes(values, draw, 2)
    if k is None:
        return None
    pair = [values[k][0][j] for j in draw.rng.permutation(len(values[k][0]))[:2]]
    return [k], {"axes": pair, "new": draw.axis(min(draw.lengths[a] for a in pair))}


def diagonal(attrs: Any, value: Value) -> Value:
    axes, x = value
    rest = [a for a in axes if a not in attrs["axes"]]
    x = ordered(value, [*attrs["axes"], *rest])
    n = list(range(min(x.shape[:2])))
    return (attrs["new"], *rest), x[n, n]


def diagonal_source(attrs: Any, axes: Any, names: Any) -> str:
    rest = [a for a in axes[0] if a not in attrs["axes"]]
    first = f"ng.axes_with_order({names[0]}, {text([*attrs['axes'], *rest])})"
    return f"ng.cast_axes(ng.diagonal({first}, {attrs['axes'][0]}, {attrs['axes'][1]}), {text([attrs['new'], *rest])})"


shaped("diagonal", diagonal_source, diagonal, choose_diagonal)


def choose_top(draw: Draw, values: Sequence[Value]) -> Any:
    made = one_axis(lambda draw, n: {"new": draw.axis(draw.whole(1, n)), "largest": draw.chance(0.5)})(draw, values)
    return made if made is not None and unlike(values[made[0][0]][1]) else None


def top(order: Callable[[Any, int], Any]) -> Callable[..., Value]:
    def run(attrs: Any, value: Value) -> Value:
        axes, x = value
        dim = axes.index(attrs["axis"])
        rising, n = order(x, dim), x.shape[dim]
        k = attrs["count"]
        return renamed(axes, attrs["axis"], attrs["new"]), at(rising, dim, [n - 1 - j if attrs["largest"] else j for j in range(k)])

    return run


def counted(choose: Callable[..., Any]) -> Callable[..., Any]:
    def run(draw: Draw, values: Sequence[Value]) -> Any:
        made = choose(draw, values)
        if made is not None:
            made[1]["count"] = draw.lengths[made[1]["new"]]
        return made

    return run


shaped(
    "top_k",
    lambda attrs, axes, names: f"ng.top_k({names[0]}, {attrs['axis']}, {attrs['new']}, largest={attrs['largest']})[0]",
    top(np.sort),
    counted(choose_top),
    top(lambda x, dim: x.sort(dim)[0]),
)


# ---- products --------------------------------------------------------------------------------------------------------------


def einsummed(values: Sequence[Value], out: Sequence[str]) -> Any:
    letters = {a: chr(97 + k) for k, a in enumerate(dict.fromkeys(a for axes, _ in values for a in axes))}
    form = ",".join("".join(letters[a] for a in axes) for axes, _ in values) + "->" + "".join(letters[a] for a in out)
    arrays = [x for _, x in values]
    return torch.einsum(form, *arrays) if torch.is_tensor(arrays[0]) else np.einsum(form, *arrays)


def choose_einsum(draw: Draw, values: Sequence[Value]) -> Any:
    picked = [draw.whole(0, len(values) - 1) for _ in range(draw.whole(1, 3))]
    axes = list(dict.fromkeys(a for k in picked for a in values[k][0]))
    if not axes or math.prod(draw.lengths[a] for a in axes) > 8 * MOST:
        return None
    out = draw.some(axes)
    return picked, {"out": [out[j] for j in draw.rng.permutation(len(out))]}


shaped(
    "einsum",
    lambda attrs, axes, names: f"ng.einsum({', '.join(names)}, out_axes={text(attrs['out'])})",
    lambda attrs, *vs: (tuple(attrs["out"]), einsummed(vs, attrs["out"])),
    choose_einsum,
)


def choose_two(draw: Draw, values: Sequence[Value]) -> Any:
    """Returns two operands with a common axis."""
    j, k = (draw.whole(0, len(values) - 1) for _ in range(2))
    shared = [a for a in values[j][0] if a in values[k][0]]
    every = {*values[j][0], *values[k][0]}
    if not shared or math.prod(draw.lengths[a] for a in every) > 8 * MOST:
        return None
    return [j, k], {"axis": draw.one(shared), "dual": draw.chance(0.5)}


def dotted(attrs: Any, x: Value, y: Value) -> Value:
    """Returns the product with all shared axes summed; of a dual pair, the other side keeps its own name."""
    gone = [a for a in x[0] if a in y[0]]
    out = [a for a in dict.fromkeys((*x[0], *y[0])) if a not in gone]
    return tuple(out), einsummed([x, y], out)


def dot_source(attrs: Any, axes: Any, names: Any) -> str:
    x = names[0]
    if attrs["dual"]:
        x = f"ng.cast_axes({x}, [{', '.join(f'{a} - 1' if a in axes[1] else a for a in axes[0])}])"
    return f"ng.dot({x}, {names[1]})"


shaped("dot", dot_source, dotted, choose_two)


# ---- windows ---------------------------------------------------------------------------------------------------------------


def choose_convolution(back: bool) -> Callable[..., Any]:
    def choose(draw: Draw, values: Sequence[Value]) -> Any:
        j, k = (with_axes(values, draw) for _ in range(2))
        if j is None or k is None or j == k:
            return None
        over, window = draw.one(values[j][0]), draw.one(values[k][0])
        if over in values[k][0] or window in values[j][0]:
            return None
        stride, dilation, n, m = draw.whole(1, 3), draw.whole(1, 2), draw.lengths[over], draw.lengths[window]
        reach = (m - 1) * dilation + 1
        pad = draw.whole(0, 2)
        out = (n - 1) * stride + reach - 2 * pad if back else (n + 2 * pad - reach) // stride + 1
        if out < 1 or out > 12 or pad >= reach:
            return None
        both_have = [a for a in values[j][0] if a in values[k][0]]
        groups = draw.some(both_have)
        left = [a for a in dict.fromkeys((*values[j][0], *values[k][0])) if a not in (over, window) and (a not in both_have or a in groups)]
        if out * math.prod(draw.lengths[a] for a in left) > MOST:
            return None
        return [j, k], {
            "over": over,
            "window": window,
            "stride": stride,
            "dilation": dilation,
            "pad": pad,
            "new": draw.axis(out),
            "count": out,
            "groups": groups,
            "left": left,
        }

    return choose


def convolved(attrs: Any, x: Value, f: Value) -> Value:
    """Returns the convolution: one product for each element of the window; elements outside of x are zeros."""
    over, window, new = attrs["over"], attrs["window"], attrs["new"]
    total = None
    n, dim = x[1].shape[x[0].index(over)], x[0].index(over)
    for r in range(f[1].shape[f[0].index(window)]):
        tap = tuple(a for a in f[0] if a != window), at(f[1], f[0].index(window), r)
        places = [p * attrs["stride"] + r * attrs["dilation"] - attrs["pad"] for p in range(attrs["count"])]
        shape = [*x[1].shape[:dim], 1, *x[1].shape[dim + 1 :]]
        with_zero = joined([x[1], full(x[1], shape, 0.0)], dim)
        read = renamed(x[0], over, new), at(with_zero, dim, [p if 0 <= p < n else n for p in places])
        product = einsummed([read, tap], [new, *attrs["left"]])
        total = product if total is None else total + product
    return (new, *attrs["left"]), total


def deconvolved(attrs: Any, x: Value, f: Value) -> Value:
    """Returns the deconvolution: each element of x adds the window at its position; elements outside are dropped."""
    over, window, new = attrs["over"], attrs["window"], attrs["new"]
    rest = attrs["left"]
    parts: dict[int, Any] = {}
    for i in range(x[1].shape[x[0].index(over)]):
        for r in range(f[1].shape[f[0].index(window)]):
            p = i * attrs["stride"] + r * attrs["dilation"] - attrs["pad"]
            one = tuple(a for a in x[0] if a != over), at(x[1], x[0].index(over), i)
            tap = tuple(a for a in f[0] if a != window), at(f[1], f[0].index(window), r)
            product = einsummed([one, tap], rest)
            parts[p] = parts[p] + product if p in parts else product
    nothing = full(x[1], next(iter(parts.values())).shape, 0.0)
    return (new, *rest), stacked([parts.get(p, nothing) for p in range(attrs["count"])], 0)


def windowed(function: str) -> Callable[..., str]:
    def source(attrs: Any, axes: Any, names: Any) -> str:
        return (
            f"ng.{function}({names[0]}, {names[1]}, {{{attrs['over']}: {attrs['window']}}}, stride={attrs['stride']}, "
            f"padding={attrs['pad']}, dilation={attrs['dilation']}, groups={text(attrs['groups'])}, "
            f"out={{{attrs['over']}: {attrs['new']}}})"
        )

    return source


shaped("convolution", windowed("conv"), convolved, choose_convolution(False))
shaped("deconvolution", windowed("deconv"), deconvolved, choose_convolution(True))


def a_pooling(draw: Draw, n: int) -> Any:
    window, stride, dilation = draw.whole(1, min(n, 4)), draw.whole(1, 3), draw.whole(1, 2)
    before, after = (draw.whole(0, window - 1) for _ in range(2))
    reach = (window - 1) * dilation + 1
    out = (n + before + after - reach) // stride + 1
    places = [[p * stride + r * dilation - before for r in range(window)] for p in range(out)]
    if out < 1 or any(all(not 0 <= i < n for i in w) for w in places):
        return None
    return {
        "window": window,
        "stride": stride,
        "dilation": dilation,
        "pad": [before, after],
        "new": draw.axis(out),
        "places": [[i for i in w if 0 <= i < n] for w in places],
    }


def pooled(f: Callable[[Any, int], Any]) -> Callable[..., Value]:
    def run(attrs: Any, value: Value) -> Value:
        axes, x = value
        dim = axes.index(attrs["axis"])
        return renamed(axes, attrs["axis"], attrs["new"]), stacked([f(at(x, dim, w), dim) for w in attrs["places"]], dim)

    return run


def pool_source(function: str) -> Callable[..., str]:
    return lambda attrs, axes, names: (
        f"ng.{function}({names[0]}, {{{attrs['axis']}: {attrs['window']}}}, stride={attrs['stride']}, padding={tuple(attrs['pad'])}, "
        f"dilation={attrs['dilation']}, out={{{attrs['axis']}: {attrs['new']}}})"
    )


def choose_max_pool(draw: Draw, values: Sequence[Value]) -> Any:
    made = one_axis(a_pooling)(draw, values)
    return made if made is not None and unlike(values[made[0][0]][1]) else None


shaped(
    "max_pool",
    pool_source("max_pool"),
    pooled(lambda x, dim: x.max(dim)),
    choose_max_pool,
    pooled(lambda x, dim: x.amax(dim)),
)
shaped("avg_pool", pool_source("avg_pool"), pooled(lambda x, dim: x.mean(dim)), one_axis(a_pooling))


# ---- computed positions ----------------------------------------------------------------------------------------------------


def place(i: int, n: int, mode: str) -> int | None:
    """Returns the position that an index denotes; None where it denotes none."""
    if mode == "wrap":
        return i % n
    return min(max(i, 0), n - 1) if mode == "clip" else i if 0 <= i < n else None


def an_index(draw: Draw, n: int) -> Any:
    count, mode = draw.whole(1, 4), draw.one(["clip", "fill", "wrap"])
    return {"index": [draw.whole(-2, n + 1) for _ in range(count)], "mode": mode, "new": draw.axis(count)}


def index_source(attrs: Any) -> str:
    return f"ng.constant(np.array({attrs['index']}), [{attrs['new']}])"


def taken(attrs: Any, value: Value) -> Value:
    axes, x = value
    dim = axes.index(attrs["axis"])
    places = [place(i, x.shape[dim], attrs["mode"]) for i in attrs["index"]]
    zero = full(x, at(x, dim, 0).shape, 0.0)
    return renamed(axes, attrs["axis"], attrs["new"]), stacked([zero if p is None else at(x, dim, p) for p in places], dim)


shaped(
    "take",
    lambda attrs, axes, names: f"ng.take({names[0]}, {index_source(attrs)}, {attrs['axis']}, mode='{attrs['mode']}')",
    taken,
    one_axis(an_index),
)


shaped(
    "lookuptable",
    lambda attrs, axes, names: f"ng.lookuptable({names[0]}, {index_source(attrs)}, {text(renamed(axes[0], attrs['axis'], attrs['new']))})",
    lambda attrs, v: taken({**attrs, "mode": "fill"}, v),
    one_axis(an_index),
)


def choose_put(draw: Draw, values: Sequence[Value]) -> Any:
    """A tensor, and values to put into it along one axis: the values have that axis under another name, and maybe lack others."""
    made = one_axis(an_index)(draw, values)
    if made is None:
        return None
    (j,), attrs = made
    axes, x = values[j]
    fits = [k for k, (have, _) in enumerate(values) if set(have) <= {a for a in axes if a != attrs["axis"]}]
    if not fits:
        return None
    k = draw.one(fits)
    attrs["combine"] = draw.one(["set", "add", "multiply", "min", "max"])
    n = draw.lengths[attrs["axis"]]
    if attrs["combine"] == "set":
        places = [place(i, n, attrs["mode"]) for i in attrs["index"]]
        if len(set(places)) < len(places):
            return None
    if attrs["combine"] in ("min", "max"):
        hit = [p for p in (place(i, n, attrs["mode"]) for i in attrs["index"]) if p is not None]
        _, (a, b) = lined(values[j], values[k])
        if len(set(hit)) < len(hit) or not unlike(a, b):
            return None
    return [j, k], attrs


def put(attrs: Any, value: Value, values: Value) -> Value:
    axes, x = value
    axis = attrs["axis"]
    dim, rest = axes.index(axis), tuple(a for a in axes if a != axis)
    have = [a for a in rest if a in values[0]]
    lengths = dict(zip(axes, x.shape, strict=True))
    new = spread(ordered(values, have).reshape([lengths[a] if a in have else 1 for a in rest]), [lengths[a] for a in rest])
    rows = [at(x, dim, k) for k in range(x.shape[dim])]
    for i in attrs["index"]:
        p = place(i, len(rows), attrs["mode"])
        if p is not None:
            old = rows[p]
            rows[p] = {
                "set": lambda old=old: new,
                "add": lambda old=old: old + new,
                "multiply": lambda old=old: old * new,
                "max": lambda old=old: larger(old, new),
                "min": lambda old=old: -larger(-old, -new),
            }[attrs["combine"]]()
    return axes, stacked(rows, dim)


shaped(
    "put",
    lambda attrs, axes, names: (
        f"ng.put({names[0]}, {index_source(attrs)}, {names[1]}, {attrs['axis']}, combine='{attrs['combine']}', mode='{attrs['mode']}')"
    ),
    put,
    choose_put,
)


# ---- networks --------------------------------------------------------------------------------------------------------------


def choose_loss(draw: Draw, values: Sequence[Value]) -> Any:
    k = with_axes(values, draw)
    if k is None:
        return None
    same = [j for j, (axes, _) in enumerate(values) if set(axes) == set(values[k][0])]
    return [k, draw.one(same)], {"axes": draw.some(values[k][0], 1)}


def cross_entropy(log_softmax: Callable[[Any, Any], Any]) -> Callable[..., Value]:
    def run(attrs: Any, x: Value, t: Value) -> Value:
        dims = tuple(x[0].index(a) for a in attrs["axes"])
        return tuple(a for a in x[0] if a not in attrs["axes"]), -summed(log_softmax(x[1], dims) * ordered(t, x[0]), dims)

    return run


shaped(
    "cross-entropy",
    lambda attrs, axes, names: (
        f"ng.cross_entropy_multi(ng.softmax({names[0]}, normalization_axes={text(attrs['axes'])}), {names[1]}, "
        f"out_axes={text([a for a in axes[0] if a not in attrs['axes']])})"
    ),
    cross_entropy(lambda x, dims: x - np_logsumexp(x, dims, True)),
    choose_loss,
    cross_entropy(lambda x, dims: x - x.logsumexp(dims, keepdim=True)),
)


def choose_shares(draw: Draw, values: Sequence[Value]) -> Any:
    made = choose_loss(draw, values)
    return made if made is not None and beyond(0.02, 20)(values[made[0][0]][1]) else None


def loss_of_shares(log: Callable[[Any], Any]) -> Callable[..., Value]:
    def run(attrs: Any, p: Value, t: Value) -> Value:
        dims = tuple(p[0].index(a) for a in attrs["axes"])
        return tuple(a for a in p[0] if a not in attrs["axes"]), -summed(log(p[1]) * ordered(t, p[0]), dims)

    return run


shaped(
    "cross-entropy of shares",
    lambda attrs, axes, names: (
        f"ng.cross_entropy_multi({names[0]}, {names[1]}, out_axes={text([a for a in axes[0] if a not in attrs['axes']])})"
    ),
    loss_of_shares(np.log),
    choose_shares,
    loss_of_shares(torch.log),
)


def choose_attention(draw: Draw, values: Sequence[Value]) -> Any:
    """Three operands over features, queries and keys that are read from values of any two axes and more."""
    found = [k for k, (axes, _) in enumerate(values) if len(axes) == 2]
    if not found:
        return None
    q = draw.one(found)
    row, feature = values[q][0]
    like = [k for k in found if values[k][0] == values[q][0]]
    return [q, draw.one(like), draw.one(like)], {
        "row": row,
        "feature": feature,
        "causal": draw.chance(0.5),
        "keys": draw.axis(draw.lengths[row]),
    }


def attended(attrs: Any, q: Value, k: Value, v: Value) -> Value:
    (x, y, z), n = (t[1] for t in (q, k, v)), q[1].shape[0]
    scores = einsummed([(("a", "f"), x), (("b", "f"), y)], ["a", "b"]) * 0.7
    rows = []
    for i in range(n):
        seen = scores[i, : i + 1 if attrs["causal"] else n]
        weights = seen.exp() if torch.is_tensor(seen) else np.exp(seen)
        rows.append((weights.reshape(-1, 1) * z[: len(seen)]).sum(0) / weights.sum())
    return q[0], stacked(rows, 0)


def attention_source(attrs: Any, axes: Any, names: Any) -> str:
    k, v = (f"ng.cast_axes({x}, [{attrs['keys']}, {attrs['feature']}])" for x in names[1:])
    return (
        f"ng.attention({names[0]}, {k}, {v}, features={attrs['feature']}, queries={attrs['row']}, keys={attrs['keys']}, "
        f"causal={attrs['causal']}, scale=0.7)"
    )


shaped("attention", attention_source, attended, choose_attention)


# ---- state and control -----------------------------------------------------------------------------------------------------


def choose_any(count: int) -> Callable[..., Any]:
    def choose(draw: Draw, values: Sequence[Value]) -> Any:
        picked = [draw.whole(0, len(values) - 1) for _ in range(count)]
        axes = {a for k in picked for a in values[k][0]}
        return (picked, {}) if math.prod(draw.lengths[a] for a in axes) <= MOST else None

    return choose


def times(attrs: Any, x: Value, y: Value) -> Value:
    axes, (a, b) = lined(x, y)
    return axes, a * b


ROWS["stop_gradient"] = Row(lambda attrs, axes, names: f"ng.stop_gradient({names[0]}) * {names[1]}", times, times, choose_any(2), held=(0,))
ROWS["read after assign"] = Row(
    lambda attrs, axes, names: f"read_after_assign({names[0]}, {names[1]})", times, times, choose_any(2), held=(0,)
)
ROWS["while"] = Row(
    lambda attrs, axes, names: f"doubled_twice({names[0]}) * {names[1]}",
    lambda attrs, x, y: times(attrs, (x[0], 4 * x[1]), y),
    lambda attrs, x, y: times(attrs, (x[0], 4 * x[1]), y),
    choose_any(2),
    held=(0,),
)
ROWS["sequential"] = Row(lambda attrs, axes, names: f"beside_effects({names[0]}, {names[1]})", times, times, choose_any(2))

BODIES: dict[str, tuple[str, Any, Any]] = {  # functions of one operand that are written inside bodies
    "tanh": ("ng.tanh({0})", np.tanh, torch.tanh),
    "sin": ("ng.sin({0})", np.sin, torch.sin),
    "square": ("ng.square({0}) * 0.3", lambda x: x * x * 0.3, lambda x: x * x * 0.3),
    "sigmoid": ("ng.sigmoid({0})", np_sigmoid, torch.sigmoid),
    "same": ("{0}", lambda x: x, lambda x: x),
}


def inside(name: str, x: Any) -> Any:
    _, f, g = BODIES[name]
    return g(x) if torch.is_tensor(x) else f(x)


def written(name: str, x: str) -> str:
    return BODIES[name][0].format(x)


def choose_scan(draw: Draw, values: Sequence[Value]) -> Any:
    """A carry, slices along the axis of the loop, and a value that is the same in each trip. Some carries have that axis themselves."""
    k = with_axes(values, draw)
    if k is None:
        return None
    axis = draw.one(values[k][0])
    carries = [j for j, (axes, _) in enumerate(values) if set(axes) >= set(values[k][0]) - {axis}]
    carries = [j for j in carries if axis not in values[j][0]] if draw.chance(0.8) else carries
    if not carries:
        return None
    j = draw.one(carries)
    same = [i for i, (axes, _) in enumerate(values) if set(axes) <= set(values[j][0])]
    return [j, k, draw.one(same)], {
        "axis": axis,
        "f": draw.one(list(BODIES)[:4]),
        "g": draw.one(list(BODIES)),
        "reverse": draw.chance(0.5),
        "result": "last" if axis in values[j][0] else draw.one(["carry", "each", "both"]),
        "checkpoint": draw.chance(0.3),
    }


def scanned(attrs: Any, carry: Value, xs: Value, same: Value) -> Value:
    h, dim = carry, xs[0].index(attrs["axis"])
    rest, n = tuple(a for a in xs[0] if a != attrs["axis"]), xs[1].shape[dim]
    each: dict[int, Any] = {}
    for t in reversed(range(n)) if attrs["reverse"] else range(n):
        axes, (a, b, c) = lined(h, (rest, at(xs[1], dim, t)), same)
        each[t] = inside(attrs["g"], a) * c
        h = axes, inside(attrs["f"], a * c + b)
    if attrs["result"] in ("carry", "last"):
        return h
    ys = (attrs["axis"], *h[0]), stacked([each[t] for t in range(n)], 0)
    if attrs["result"] == "each":
        return ys
    axes, (a, b) = lined(ys, h)
    return axes, a * b


def scan_source(attrs: Any, axes: Any, names: Any) -> str:
    h, x = f"h * {names[2]} + x", written(attrs["g"], "h") + f" * {names[2]}"
    after = written(attrs["f"], f"({h})")
    if attrs["checkpoint"]:
        after = f"ng.checkpoint(lambda h, x: {after}, h, x)"
    y = None if attrs["result"] == "last" else x  # which has the axis of the loop, along which it cannot be stacked
    loop = f"ng.scan(lambda h, x: ({after}, {y}), {names[0]}, {names[1]}, {attrs['axis']}, reverse={attrs['reverse']})"
    return f"product_of({loop})" if attrs["result"] == "both" else f"{loop}[{int(attrs['result'] == 'each')}]"


shaped("scan", scan_source, scanned, choose_scan)


def choose_cond(draw: Draw, values: Sequence[Value]) -> Any:
    made = choose_any(2)(draw, values)
    if made is None:
        return None
    picked, _ = made
    total = float(values[picked[0]][1].sum())
    limit = round(total + draw.one([-1.0, 1.0]) * (1.0 + abs(total) / 4), 3)
    return picked, {"limit": limit, "then": draw.one(list(BODIES)), "else": draw.one(list(BODIES)[:4])}


def conditional(attrs: Any, x: Value, y: Value) -> Value:
    axes, (a, b) = lined(x, y)
    return axes, inside(attrs["then"], a) * b if bool(x[1].sum() < attrs["limit"]) else a + inside(attrs["else"], b)


shaped(
    "cond",
    lambda attrs, axes, names: (
        f"ng.cond(ng.sum({names[0]}, out_axes=()) < {attrs['limit']}, lambda: {written(attrs['then'], names[0])} * {names[1]}, "
        f"lambda: ordered_alike({names[0]} + {written(attrs['else'], names[1])}, {names[0]} * {names[1]}))"
    ),
    conditional,
    choose_cond,
)


def choose_checkpoint(draw: Draw, values: Sequence[Value]) -> Any:
    made = choose_any(2)(draw, values)
    return None if made is None else (made[0], {"f": draw.one(list(BODIES)), "g": draw.one(list(BODIES)[:4])})


def checkpointed(attrs: Any, x: Value, y: Value) -> Value:
    axes, (a, b) = lined(x, y)
    return axes, inside(attrs["g"], inside(attrs["f"], a) * b) + a


shaped(
    "checkpoint",
    lambda attrs, axes, names: (
        f"ng.checkpoint(lambda x: {written(attrs['g'], '(' + written(attrs['f'], 'x') + ' * ' + names[1] + ')')} + x, {names[0]})"
    ),
    checkpointed,
    choose_checkpoint,
)

HELPERS = """
def read_after_assign(x, y):
    kept = ng.persistent_tensor(x.axes, dtype="float64")
    return ng.sequential([ng.assign(kept, x), ng.value_of(kept) * y])


def beside_effects(x, y):
    kept = ng.persistent_tensor(x.axes, dtype="float64")
    return ng.sequential([ng.assign(kept, ng.sin(x)), x * y])


def doubled_twice(x):
    return ng.stop_gradient(ng.while_loop(lambda c: c[1] < 2.0, lambda c: (c[0] * 2.0, c[1] + 1.0), (x, ng.constant(0.0)))[0])


def product_of(pair):
    return pair[0] * pair[1]


def ordered_alike(x, y):
    return ng.axes_with_order(x, y.axes)
"""  # what sources call: state, effects and loops take more than an expression
