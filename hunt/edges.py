"""Functions at zeros, infinities, NaN and ties: values, first and second derivatives compared with PyTorch's.

`EXCEPTIONS` lists intended differences; docs/autodiff.md shows the same list, and a test compares the two.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

import ngraph as ng
import ngraph.transformers as ngt
from hunt.differentiable import BINARY, REDUCTIONS, UNARY
from ngraph.op_graph.opdef import REGISTRY

inf, nan = np.inf, np.nan
SPECIAL = (-inf, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, inf, nan)  # 1.0 and 2.0 are also what ties are made of
TOLERANCE = {"float64": 1e-8, "float32": 1e-4}  # relative, of second derivatives: thousands of roundings
OUR_OWN = ("safelog", "safelog, low", "binary cross-entropy of shares")  # PyTorch has no function that stops at a limit

Elementwise = tuple[str, Callable[..., Any]]  # source, PyTorch's meaning


class Edge(NamedTuple):
    """A function of one or two vectors along the axis A: its source, PyTorch's meaning, and whether it is elementwise."""

    source: str
    torch: Callable[..., Any]
    alone: bool = True


def _weighted(x: Any) -> Any:
    return x * torch.arange(1, len(x) + 1)


def _along(source: str) -> str:
    """Returns source that gives each element a weight of its own."""
    return f"{source} * ng.constant(np.arange(A.length) + 1.0, [A])"


def _running(kind: str) -> str:
    return _along(f"REGISTRY['cumulate'].build({{0}}, kind='{kind}', axis=A, exclusive=False, reverse=False)")


EDGES: dict[str, Edge] = {
    **{row[0]: Edge(row[1], row[3]) for row in (*UNARY, *BINARY) if row[0] not in OUR_OWN},
    **{row[0]: Edge(f"ng.{row[0]}({{0}}, out_axes=[])", lambda x, f=row[3]: f(x, (0,), {}), False) for row in REDUCTIONS},
    "softmax": Edge(_along("ng.softmax({0})"), lambda x: _weighted(x.softmax(0)), False),
    "log_softmax": Edge(_along("ng.log_softmax({0})"), lambda x: _weighted(x.log_softmax(0)), False),
    "running sum": Edge(_along("ng.cumsum({0}, A)"), lambda x: _weighted(x.cumsum(0)), False),
    "running max": Edge(_running("max"), lambda x: _weighted(x.cummax(0)[0]), False),
    "sort": Edge(_along("ng.sort({0}, A)"), lambda x: _weighted(x.sort(stable=True)[0]), False),
    "where of log": Edge("ng.where({0} > 0.0, ng.log({0}), 0.0)", lambda x: torch.where(x > 0, x.log(), 0.0)),
    "standard deviation": Edge("ng.sqrt(ng.variance({0}, out_axes=[]))", lambda x: x.var(unbiased=False).sqrt(), False),
}


class Exceptional(NamedTuple):
    """An intended difference of ngraph: the function, "value", "first" or "second", and the operands (in words, and as a test).

    kernels: those of PyTorch that differ, where not all do, as torch.backends.cpu.get_cpu_capability() names them.
    """

    function: str
    what: str
    where: str
    holds: Callable[..., Any]
    ours: str
    pytorch: str
    reason: str
    kernels: str = ""


def _never_finite(x: Any) -> Any:
    return ~np.isfinite(x).all()


def _ties(x: Any) -> Any:
    return len(np.unique(x)) < len(x) or np.isnan(x).any()


EXCEPTIONS = (
    Exceptional("relu", "first", "x is NaN", np.isnan, "0", "1", "JAX's, and 0 wherever x is not above 0"),
    Exceptional("sign", "value", "x is NaN", np.isnan, "NaN", "0", "NumPy's and JAX's"),
    Exceptional("absolute", "first", "x is NaN", np.isnan, "NaN", "0", "the sign of NaN is NaN"),
    Exceptional("L1_norm", "first", "an x is NaN", lambda x: np.isnan(x).any(), "NaN", "0", "as for `absolute`"),
    Exceptional("elu", "first", "x is NaN", np.isnan, "NaN", "1", "JAX's"),
    Exceptional("elu", "second", "x is 0 or NaN", lambda x: (x == 0) | np.isnan(x), "that from the left", "0", "the first is, too"),
    Exceptional("gelu", "value", "x is inf", np.isposinf, "inf", "NaN in float32 with AVX-512", "JAX's, and the limit", "AVX512"),
    Exceptional(
        "power", "second", "y is 0, x is not above 0, or one of them is not a number",
        lambda x, y: (y == 0) | ~(x > 0) | ~np.isfinite(x) | ~np.isfinite(y), "the limit where there is one", "often NaN, or 0 for 1 / x",
        "powers are smooth in x also at x ** 0",
    ),
    Exceptional(
        "binary cross-entropy", "value", "x is infinite", lambda x, y: np.isinf(x), "inf at -inf, NaN at inf", "NaN at -inf, inf at inf",
        "one of max(x, 0) - x * t; infinite logits have no probability to be wrong by",
    ),
    Exceptional("binary cross-entropy", "second", "x is infinite", lambda x, y: np.isinf(x), "NaN", "an infinity", "as for the value"),
    Exceptional("prod", "first", "an x is infinite or NaN", _never_finite, "the product of the others", "NaN", "it is the derivative"),
    Exceptional("prod", "second", "an x is infinite or NaN", _never_finite, "NaN", "an infinity or NaN", "zeros times infinities"),
    Exceptional(
        "logsumexp", "first", "all x are -inf", lambda x: np.isneginf(x).all(), "0", "NaN",
        "a row that is masked away leaves the others' gradients whole",
    ),
    Exceptional("logsumexp", "second", "all x are -inf", lambda x: np.isneginf(x).all(), "0", "NaN", "as the first"),
    Exceptional("running max", "first", "there are ties", _ties, "ties share equally", "the last of equal ones", "as `max` and `maximum`"),
)  # fmt: skip


def excepted(name: str, what: str, operands: Sequence[Any]) -> Any:
    """Returns the elements for which the list allows a difference: a mask, or one truth for all."""
    found: Any = np.False_
    for e in EXCEPTIONS:
        if e.function == name and (e.what == what or (e.what, what) == ("first", "second") or e.what == "value"):
            found = found | e.holds(*operands)
    return found


def table() -> list[str]:
    """Returns the rows of docs/autodiff.md."""
    what = {"value": "the value", "first": "the derivative", "second": "the second derivative"}
    return [f"| `{e.function}`: {what[e.what]} where {e.where} | {e.ours} | {e.pytorch} | {e.reason} |" for e in EXCEPTIONS]


# ---- the kind of case --------------------------------------------------------------------------------------------------


def draw(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    name = list(EDGES)[int(rng.integers(len(EDGES)))]
    edge = EDGES[name]
    length = int(rng.integers(1, 5)) if not edge.alone else 6
    pool = SPECIAL if rng.random() < 0.5 else rng.choice(SPECIAL, 4)  # few numbers: ties
    return {
        "edge": name,
        "values": [[float(v) for v in rng.choice(pool, length)] for _ in range(1 + ("{1}" in edge.source))],
        "dtype": str(rng.choice(["float64", "float64", "float32"])),
        "transformer": str(rng.choice(["cpu", *["numpy"] * 3, *["direct"] * 3])),
    }


def _lines(case: Any) -> list[str]:
    names = [f"x{k}" for k in range(len(case["values"]))]
    both = f"[{', '.join(names)}]"
    return [
        f'A = ng.make_axis({len(case["values"][0])}, name="A")',
        *(f'{x} = ng.placeholder([A], dtype="{case["dtype"]}")' for x in names),
        f"y = {EDGES[case['edge']].source.format(*names)}",
        f"first = ng.deriv(ng.sum(y, out_axes=()), {both})",
        f"second = [h for g in first for h in ng.deriv(ng.sum(g, out_axes=()), {both})]",
    ]


def ours(case: Any) -> list[Any]:
    """Returns the value, the first and the second derivatives by ngraph."""
    space: dict[str, Any] = {"ng": ng, "np": np, "REGISTRY": REGISTRY}
    for line in _lines(case):
        exec(compile(line, "<hunt>", "exec"), space)
    held = [space[f"x{k}"] for k in range(len(case["values"]))]
    with ngt.make_transformer_factory(case["transformer"])() as transformer, np.errstate(all="ignore"):
        return [np.asarray(r) for r in transformer.computation([space["y"], *space["first"], *space["second"]], *held)(*case["values"])]


def theirs(case: Any) -> list[Any]:
    """Returns the same by PyTorch."""
    given = [torch.tensor(v, dtype=getattr(torch, case["dtype"]), requires_grad=True) for v in case["values"]]

    def slopes(of: Any) -> list[Any]:
        if not of.requires_grad:
            return [torch.zeros_like(x) for x in given]
        made = torch.autograd.grad(of.sum(), given, create_graph=True, allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for g, x in zip(made, given, strict=True)]

    y = EDGES[case["edge"]].torch(*given)
    first = slopes(y)
    return [x.numpy(force=True) for x in (y, *first, *(h for g in first for h in slopes(g)))]


def differing(case: Any) -> Iterator[tuple[str, str, Any, Any, Any]]:
    """(which result, its kind, ngraph's, PyTorch's, where they differ) for each result that differs."""
    n, tolerance = len(case["values"]), TOLERANCE[case["dtype"]]
    kinds = ["value", *["first"] * n, *["second"] * n * n]
    for k, (kind, mine, other) in enumerate(zip(kinds, ours(case), theirs(case), strict=True)):
        far = ~np.isclose(mine, other, rtol=tolerance, atol=tolerance * 1e-2, equal_nan=True)
        if far.any():
            yield f"result {k} ({kind})", kind, mine, other, far


def check(case: Any) -> str | None:
    operands = [np.array(v) for v in case["values"]]
    for what, kind, mine, other, far in differing(case):
        if np.any(far & ~excepted(case["edge"], kind, operands)):
            return f"{case['edge']} of {case['values']}, {what}: ngraph {mine.tolist()}, PyTorch {other.tolist()}"
    return None


def smaller(case: Any) -> Iterator[Any]:
    if case["transformer"] != "direct":
        yield {**case, "transformer": "direct"}
    for k in range(len(case["values"][0]) if len(case["values"][0]) > 1 else 0):
        yield {**case, "values": [v[:k] + v[k + 1 :] for v in case["values"]]}
    for k, n in itertools.product(range(len(case["values"])), range(len(case["values"][0]))):
        if case["values"][k][n] != 1.0:
            values = [list(v) for v in case["values"]]
            values[k][n] = 1.0
            yield {**case, "values": values}


def program(case: Any) -> str:
    lines = [
        "import numpy as np",
        "import ngraph as ng",
        "import ngraph.transformers as ngt",
        "from ngraph.op_graph.opdef import REGISTRY",
        "inf, nan = np.inf, np.nan",
        *_lines(case),
        f'transformer = ngt.make_transformer_factory("{case["transformer"]}")()',
        f"compute = transformer.computation([y, *first, *second], {', '.join(f'x{k}' for k in range(len(case['values'])))})",
        f"for got, wanted in zip(compute(*{case['values']}), {[x.tolist() for x in theirs(case)]}):",
        '    print(np.asarray(got).tolist(), "wanted", wanted)',
        "",
    ]
    return "\n".join(lines)
