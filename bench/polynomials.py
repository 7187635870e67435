"""Where the coefficients of functions come from: `python bench/polynomials.py` rewrites ngraph/codegen/coefficients.py, those of
generated code, and ngraph/ops/coefficients.py, those of ops that lower to polynomials.

Each is the interpolation of a smooth remainder at Chebyshev nodes, in 60 digits, which is within a small factor of the best
polynomial of its length. The remainder is what is left of the function after its exact leading terms, divided by the next power,
so that the error of the polynomial stays far below the last bit of the result. Where every bit counts, the error is weighed with the
argument, for that is what it is multiplied with (Lawson's algorithm, 1961). Needs mpmath and NumPy.
"""

import os

import mpmath as mp
import numpy as np

mp.mp.dps = 80
EXP = mp.log(2) / 2 * mp.mpf("1.0005")  # rounding to the nearest multiple of ln 2 leaves a little more than its half
TINY = mp.mpf(10) ** -16


def even(f):
    """`f` of x as a function of x squared; its value at 0 by continuity."""
    return lambda z: f(mp.sqrt(max(z, TINY)))


def at_zero(f):
    return lambda x: f(x if abs(x) > TINY else TINY)


# name: (function, interval, centre of the powers, terms)
TABLE = {
    "exp32": (at_zero(lambda r: (mp.exp(r) - 1 - r) / r**2), (-EXP, EXP), 0, 5),
    "exp64": (at_zero(lambda r: (mp.exp(r) - 1 - r) / r**2), (-EXP, EXP), 0, 11),
    "log32": (at_zero(lambda f: (mp.log1p(f) - f + f * f / 2) / f**3), (mp.sqrt(0.5) - 1, mp.sqrt(2) - 1), 0, 9),
    "log64": (even(lambda s: (2 * mp.atanh(s) / s - 2) / s**2), (0, (3 - 2 * mp.sqrt(2)) ** 2), 0, 8),
    "power": (even(lambda s: (2 * mp.atanh(s) / s - 2 - 2 * s**2 / 3 - 2 * s**4 / 5) / s**6), (0, (3 - 2 * mp.sqrt(2)) ** 2), 0, 8),
    "sin32": (even(lambda s: (mp.sin(s) / s - 1) / s**2), (0, (mp.pi / 4) ** 2), 0, 4),
    "sin64": (even(lambda s: (mp.sin(s) / s - 1) / s**2), (0, (mp.pi / 4) ** 2), 0, 7),
    "cos32": (even(lambda s: (mp.cos(s) - 1 + s**2 / 2) / s**4), (0, (mp.pi / 4) ** 2), 0, 3),
    "cos64": (even(lambda s: (mp.cos(s) - 1 + s**2 / 2) / s**4), (0, (mp.pi / 4) ** 2), 0, 6),
    "tanh32": (even(lambda s: (mp.tanh(s) / s - 1) / s**2), (0, mp.mpf(0.625) ** 2), 0, 6),
    "tanh64": (even(lambda s: (mp.tanh(s) / s - 1) / s**2), (0, mp.mpf(0.625) ** 2), 0, 12),
    "atan32": (even(lambda s: (mp.atan(s) / s - 1) / s**2), (0, (mp.sqrt(2) - 1) ** 2), 0, 5),
    "atan64": (even(lambda s: (mp.atan(s) / s - 1) / s**2), (0, (mp.sqrt(2) - 1) ** 2), 0, 11),
    "erf32": (even(lambda s: mp.erf(s) / s - 1), (0, 1), 0, 7),
    "erf64": (even(lambda s: mp.erf(s) / s - 1), (0, 1), 0, 13),
    "erf32_large": (mp.erf, (1, 4), 2.5, 14),
    "erfc64": (lambda x: -mp.log(mp.erfc(x)), (1, 2.5), 1.75, 17),
    "erfc64_far": (lambda x: -mp.log(mp.erfc(x)), (2.5, 6), 4.25, 17),
}
WEIGHED = {"exp32"}
ROOT = mp.findroot(mp.digamma, 1.46)


def inverse_erf(w):
    """The inverse error function of x, divided by x, for x with 1 - x * x = e**-w."""
    x = mp.sqrt(-mp.expm1(-max(w, TINY)))
    return mp.erfinv(x) / x


def stirling(u):
    """What lgamma(x) is beyond (x - 1/2) log x - x + log(2 pi) / 2, times x, for 1 / x**2 = u."""
    x = 1 / mp.sqrt(max(u, TINY))
    return (mp.loggamma(x) - (x - 0.5) * mp.log(x) + x - mp.log(2 * mp.pi) / 2) * x


def beyond_log(u):
    """What digamma(x) is beyond log x - 1 / (2 x), times x squared, for 1 / x**2 = u."""
    x = 1 / mp.sqrt(max(u, TINY))
    return (mp.digamma(x) - mp.log(x) + 1 / (2 * x)) * x * x


def trigamma_rest(u):
    """What trigamma(x) is beyond 1 / x + 1 / (2 x**2), times x cubed, for 1 / x**2 = u."""
    x = 1 / mp.sqrt(max(u, TINY))
    return (mp.polygamma(1, x) - 1 / x - 1 / (2 * x * x)) * x**3


def lgamma_near_2(t):
    """lgamma(2 + t) / t."""
    return mp.loggamma(2 + t) / t


def digamma_near_root(t):
    """digamma(x) / (x - its root), for x = 1.5 + t."""
    x = t + mp.mpf(1.5)
    return mp.digamma(x) / (x - ROOT) if abs(x - ROOT) > TINY else mp.polygamma(1, ROOT)


OF_OPS = {
    "erfinv32": (inverse_erf, (0, 5), 2.5, 10),
    "erfinv_far32": (lambda r: inverse_erf(r * r), (mp.sqrt(5), 4.2), 3.2, 11),
    "erfinv64": (inverse_erf, (0, 6.25), 3.125, 24),
    "erfinv_far64": (lambda r: inverse_erf(r * r), (2.5, 4), 3.25, 21),
    "erfinv_end64": (lambda r: inverse_erf(r * r), (4, 6.1), 5, 20),
    "lgamma32": (at_zero(lgamma_near_2), (-0.5, 0.5), 0, 9),
    "lgamma64": (at_zero(lgamma_near_2), (-0.5, 0.5), 0, 19),
    "stirling32": (stirling, (0, 1 / mp.mpf(36)), 0, 3),
    "stirling64": (stirling, (0, 1 / mp.mpf(64)), 0, 7),
    "digamma32": (digamma_near_root, (-0.5, 0.5), 0, 11),
    "digamma64": (digamma_near_root, (-0.5, 0.5), 0, 23),
    "digamma_far32": (beyond_log, (0, 1 / mp.mpf(36)), 0, 3),
    "digamma_far64": (beyond_log, (0, 1 / mp.mpf(100)), 0, 7),
    "trigamma_far32": (trigamma_rest, (0, 1 / mp.mpf(36)), 0, 3),
    "trigamma_far64": (trigamma_rest, (0, 1 / mp.mpf(100)), 0, 8),
}


def weighed(function, low, high, terms):
    """The polynomial that is nearest where errors are multiplied with the argument: least squares, weighed anew by the errors left."""
    x = (low + high) / 2 + (high - low) / 2 * np.cos(np.linspace(0, np.pi, 2000))
    y = np.array([float(function(mp.mpf(t))) for t in x])
    powers, importance = np.vander(x, terms, increasing=True), np.ones_like(x)
    for _ in range(300):
        scale = np.sqrt(importance) * np.abs(x)
        found = np.linalg.lstsq(powers * scale[:, None], y * scale, rcond=None)[0]
        error = np.abs((powers @ found - y) * x)
        importance *= error / error.max()
        importance += 1e-12
    return [float(c) for c in found], float(error.max() / max(abs(x)))


def coefficients(name):
    """The coefficients, of the power 0 first, and the largest error of the polynomial itself."""
    function, (low, high), centre, terms = (TABLE | OF_OPS)[name]
    if name in WEIGHED:
        return weighed(function, float(low), float(high), terms)
    found, error = mp.chebyfit(lambda t: function(t + centre), [low - centre, high - centre], terms, error=True)
    return [float(c) for c in reversed(found)], float(error)


def pieces(x, bits, count):
    """`x` as a sum of `count` numbers of so many bits each, but for the last, which is a full float64."""
    out = []
    for k in range(count):
        if k == count - 1:
            out.append(float(x))
        else:
            scale = mp.mpf(2) ** (bits - 1 - mp.floor(mp.log(x, 2)))
            out.append(float(mp.floor(x * scale) / scale))
        x -= mp.mpf(out[-1])
    return out


def two_over_pi():
    """Words of 64 bits of 2 / pi behind the binary point, as many as the largest float64 needs."""
    with mp.workdps(500):
        whole = int(mp.floor(2 / mp.pi * mp.mpf(2) ** (64 * 22)))
    return [0, *[(whole >> 64 * (21 - k)) & (1 << 64) - 1 for k in range(22)]]


def polynomials(title, table):
    """The lines of a file with a table of polynomials."""
    lines = [
        f'"""{title} Written by `bench/polynomials.py`; do not edit."""',
        "",
        "# of the power 0 first; the comment is the largest error of the polynomial itself",
        "POLYNOMIALS: dict[str, tuple[float, ...]] = {",
    ]
    for name in table:
        numbers, error = coefficients(name)
        lines += [f'    "{name}": (  # {error:.1e}', *[f"        {c!r}," for c in numbers], "    ),"]
    return [*lines, "}"]


def source_of_ops():
    """The file of ops' polynomials; some are in powers of the distance from a centre."""
    lines = polynomials("Coefficients of the functions in `special.py`.", OF_OPS)
    centres = {name: centre for name, (_, _, centre, _) in OF_OPS.items() if centre}
    return "\n".join([*lines, f"CENTRES = {centres!r}", f"DIGAMMA_ROOT = {tuple(pieces(ROOT, 24, 2))!r}  # above 0"]) + "\n"


def source():
    lines = [
        *polynomials("Coefficients of the functions in `math.py`.", TABLE),
        "",
        "# numbers as sums whose first terms have trailing zeros, so that small multiples of them are exact",
    ]
    for name, x, bits, count in (
        ("HALF_PI", mp.pi / 2, 33, 4),
        ("HALF_PI_2", mp.pi / 2, 53, 2),
        ("LN2_64", mp.log(2), 42, 2),
        ("LN2_32", mp.log(2), 15, 2),
        ("LN2_2", mp.log(2), 53, 2),
    ):
        lines.append(f"{name} = {tuple(pieces(x, bits, count))!r}")
    lines += ["", "# 2 / pi in words of 64 bits behind the binary point, one word of zeros ahead", "TWO_OVER_PI = ("]
    return "\n".join([*lines, *[f"    0x{word:016X}," for word in two_over_pi()], ")"]) + "\n"


def main():
    package = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "ngraph")
    for room, text in (("codegen", source()), ("ops", source_of_ops())):
        with open(os.path.join(package, room, "coefficients.py"), "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
