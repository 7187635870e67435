"""Translators of special functions, element by element: those of `positional.special`, and polynomials by their recurrences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ngraph.frontends.positional import special as functions_of
from ngraph.frontends.positional.elementwise import alone, each, next_after, remainder
from ngraph.frontends.positional.reductions import total
from ngraph.frontends.positional.values import Tensor
from ngraph.frontends.torch import dtype as kinds
from ngraph.frontends.torch.graph import TorchNode
from ngraph.frontends.torch.table import translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import merge
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import functions, incomplete, special
from ngraph.ops.control import while_loop
from ngraph.ops.rearrange import broadcast
from ngraph.ops.reduce import reduce

INF = float("inf")


def in_double(n: TorchNode, f: Callable[..., Op], *values: Any) -> Tensor:
    """A function of floats computed in float64: float32 has too few digits for its series."""
    return n.give(each(n.g, f, *[n.of(v, dtypes.float64) for v in values]))


IN_DOUBLE: dict[str, Callable[..., Op]] = {
    "special_zeta": functions_of.zeta,
    "special_ndtri": functions_of.ndtri,
    **dict.fromkeys(("igamma", "special_gammainc"), lambda a, x: incomplete.gamma_shares(a, x)[0]),
    **dict.fromkeys(("igammac", "special_gammaincc"), lambda a, x: incomplete.gamma_shares(a, x)[1]),
    **{f"special_bessel_{name}": functions_of.BESSEL[name] for name in ("j0", "j1", "y0", "y1")},
    **{f"special_modified_bessel_{name}": functions_of.BESSEL[name] for name in ("i0", "i1", "k0", "k1")},
    **{f"special_scaled_modified_bessel_{name}": functions_of.BESSEL[f"{name}e"] for name in ("k0", "k1")},
    "i0": functions_of.BESSEL["i0"],
    **{f"special_{name}": functions_of.BESSEL[name] for name in ("i0e", "i1", "i1e")},
}
for _name, _function in IN_DOUBLE.items():
    translates(f"aten.{_name}")(lambda n, *values, function=_function: in_double(n, function, *values))
for _names, _function in ((("aten.erfc",), functions_of.erfc), (("aten.special_erfcx", "prims.erfcx"), functions_of.erfcx)):
    translates(*_names)(lambda n, a, function=_function: n.each(function, a))


@translates("aten.polygamma")
def polygamma(n: TorchNode, k: int, a: Tensor) -> Tensor:
    def of(x: Op) -> Op:
        return special.trigamma(x) if k == 1 else functions_of.polygamma(e.filled(k, x.axes, x.dtype), x)

    return in_double(n, of, a)


# ---- orthogonal polynomials ---------------------------------------------------------------------------------------------

# of degree 1, and of degree k + 1 from those of degrees k and k - 1: what PyTorch calls them, and both rules
POLYNOMIALS: dict[str, tuple[Callable[[Op], Op], Callable[[Op, Op, Op, Op], Op]]] = {
    "chebyshev_polynomial_t": (lambda x: x, lambda k, x, p, q: 2.0 * x * p - q),
    "chebyshev_polynomial_u": (lambda x: 2.0 * x, lambda k, x, p, q: 2.0 * x * p - q),
    "chebyshev_polynomial_v": (lambda x: 2.0 * x - 1.0, lambda k, x, p, q: 2.0 * x * p - q),
    "chebyshev_polynomial_w": (lambda x: 2.0 * x + 1.0, lambda k, x, p, q: 2.0 * x * p - q),
    "shifted_chebyshev_polynomial_t": (lambda x: 2.0 * x - 1.0, lambda k, x, p, q: (4.0 * x - 2.0) * p - q),
    "shifted_chebyshev_polynomial_u": (lambda x: 4.0 * x - 2.0, lambda k, x, p, q: (4.0 * x - 2.0) * p - q),
    "shifted_chebyshev_polynomial_v": (lambda x: 4.0 * x - 3.0, lambda k, x, p, q: (4.0 * x - 2.0) * p - q),
    "shifted_chebyshev_polynomial_w": (lambda x: 4.0 * x - 1.0, lambda k, x, p, q: (4.0 * x - 2.0) * p - q),
    "hermite_polynomial_h": (lambda x: 2.0 * x, lambda k, x, p, q: 2.0 * x * p - 2.0 * k * q),
    "hermite_polynomial_he": (lambda x: x, lambda k, x, p, q: x * p - k * q),
    "laguerre_polynomial_l": (lambda x: 1.0 - x, lambda k, x, p, q: ((2.0 * k + 1.0 - x) * p - k * q) / (k + 1.0)),
    "legendre_polynomial_p": (lambda x: x, lambda k, x, p, q: ((2.0 * k + 1.0) * x * p - k * q) / (k + 1.0)),
}


def polynomial(n: TorchNode, x: Any, degree: Any, name: str) -> Tensor:
    """A polynomial of a degree for each element, by its recurrence: a loop up to the largest degree. Of one below 0 it is 0."""
    first, next_ = POLYNOMIALS[name]

    def function(x: Op, degree: Op) -> Op:
        degree = functions.trunc(degree)
        axes = (x + degree).axes
        one = e.filled(1, axes, x.dtype)
        top = reduce.build(degree, kind="max", axes=tuple(degree.axes)) if len(degree.axes) else degree

        def step(k: Op, p: Op, q: Op) -> tuple[Op, ...]:
            more = e.less(k, degree)
            return k + 1.0, e.where(more, next_(k, x, p, q), p), e.where(more, p, q)

        start = (e.filled(1, (), x.dtype), broadcast(first(x), axes), one)
        _, p, _ = while_loop(lambda k, p, q: e.less(k, top), step, start)
        return e.where(e.less(degree, 0.0), 0.0, e.where(e.equal(degree, 0.0), one, p))

    return in_double(n, function, x, degree)


for _name in POLYNOMIALS:
    translates(f"aten.special_{_name}")(lambda n, x, degree, name=_name: polynomial(n, x, degree, name))


# ---- bits of floats -----------------------------------------------------------------------------------------------------


@translates("aten.nextafter")
def next_float(n: TorchNode, a: Any, b: Any) -> Tensor:
    halves = n.dtype in kinds.HALVES
    return n.give(each(n.g, next_after, n.of(a, n.dtype), n.of(b, n.dtype))) if halves else n.each(next_after, a, b)


@translates("aten.ldexp")
def scaled_by_power(n: TorchNode, a: Any, b: Any) -> Tensor:
    return n.each(lambda x, y: x * e.power(2.0, y), a, b)


@translates("aten.frexp")
def mantissa_and_exponent(n: TorchNode, a: Tensor) -> tuple[Tensor, Tensor]:
    """m from 0.5 up to 1 and a whole k with m * 2 ** k = x."""

    def exponent(x: Op) -> Op:
        x = e.cast(x, dtypes.float64)
        bits = e.bitwise(e.bitwise(e.bitcast(x, dtype=dtypes.int64), 52, kind="shr"), 0x7FF, kind="and")
        k = e.cast(bits, dtypes.int32) - 1022
        finite = e.logical_and(e.less(e.absolute(x), INF), e.not_equal(x, 0.0))
        return e.where(finite, k, e.filled(0, (), dtypes.int32))

    k = alone(n.g, exponent, a)
    m = each(n.g, lambda x, k: e.cast(e.cast(x, dtypes.float64) * e.power(2.0, -e.cast(k, dtypes.float64)), x.dtype), a, k)
    return m, k


# ---- whole numbers --------------------------------------------------------------------------------------------------------


@translates("prims.gcd", "aten.gcd")
def greatest_common_divisor(n: TorchNode, a: Any, b: Any) -> Tensor:
    """Euclid's algorithm, on all elements until each is done. The lowest integer has no absolute value, and is taken as it is."""

    def gcd(x: Op, y: Op) -> Op:
        axes = merge(x.axes, y.axes)
        x, y = (broadcast(e.absolute(t) if t.dtype.kind == "int" else t, axes) for t in (x, y))

        def goes_on(x: Op, y: Op) -> Op:
            return e.less(0, total(e.cast(e.not_equal(y, 0), dtypes.uint8), tuple(axes), "max"))

        def step(x: Op, y: Op) -> tuple[Op, Op]:
            done = e.equal(y, 0)
            return e.where(done, x, y), e.where(done, 0, remainder(x, e.where(done, 1, y), True))

        return while_loop(goes_on, step, (y, x))[0]

    return n.each(gcd, a, b)
