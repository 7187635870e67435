"""Discrete Fourier transforms along a named axis. Complex numbers are real and imaginary parts along an axis of length 2, `complex`.

A transform of a composite length is one of two shorter ones (J. Cooley and J. Tukey 1965); of a short one a product with a matrix; of a
long prime length a convolution (L. Bluestein 1970). One of a length that a call brings is the core op `dft`, which NumPy computes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ngraph.errors import ArgumentError, AxisError
from ngraph.op_graph import dtypes
from ngraph.op_graph.arguments import one_of
from ngraph.op_graph.axes import Axis, make_axis
from ngraph.op_graph.expr import ExprLike, Idx, minimum
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import find_axis, show_input
from ngraph.ops.elementwise import as_op, cast, constant, equal, floating, logical_or, maximum, rounding_once, sqrt, where
from ngraph.ops.linear import contract
from ngraph.ops.moving import read
from ngraph.ops.rearrange import at_least_zero, axes_with_order, iota, slice_along_axis, stack
from ngraph.ops.reduce import count
from ngraph.ops.spectral import dft
from ngraph.ops.state import parts

MAX_MATRIX_DFT = 128  # a transform of this length or less is one product with a matrix
MAX_MATRIX_PRIME = 512  # so is one of a prime length up to this
PARTS = "complex"  # the name of the axis of the parts
_NORMS = ("backward", "ortho", "forward")

Pair = tuple[Op, Op | None]  # real and imaginary part; None: all 0


def _times_matrix(x: Pair, axis: Axis, out: Axis, table: np.ndarray) -> tuple[Op, Op]:
    """Returns `x` multiplied with a matrix of complex numbers, from `axis` to `out`."""
    re, im = x
    real, imaginary = (constant(np.ascontiguousarray(t).astype(re.dtype.np), [axis, out]) for t in (table.real, table.imag))
    if im is None:
        return contract(re, real, over=(axis,)), contract(re, imaginary, over=(axis,))
    return (
        contract(re, real, over=(axis,)) - contract(im, imaginary, over=(axis,)),
        contract(re, imaginary, over=(axis,)) + contract(im, real, over=(axis,)),
    )


def _rotated(x: Pair, table: np.ndarray, axes: list[Axis]) -> tuple[Op, Op]:
    """Returns `x` times complex numbers along `axes`."""
    re, im = x
    cos, sin = (constant(np.ascontiguousarray(t).astype(re.dtype.np), axes) for t in (table.real, table.imag))
    return (re * cos, re * sin) if im is None else (re * cos - im * sin, re * sin + im * cos)


def _moved(x: Pair, axes: dict[Axis, Any], gone: tuple[Axis, ...], new: tuple[Axis, ...]) -> Pair:
    """Returns both parts read at indices: the axes `new` in place of `gone`."""

    def one(t: Op) -> Op:
        at = min(t.axes.index(a) for a in gone)
        rest = [a for a in t.axes if a not in gone]
        return read(t, [*rest[:at], *new, *rest[at:]], axes)

    return one(x[0]), None if x[1] is None else one(x[1])


def _table(rows: int, columns: int, n: int, sign: float) -> np.ndarray:
    """Returns e to the sign * 2 pi i * row * column / n."""
    return np.asarray(np.exp(sign * 2j * np.pi * (np.outer(np.arange(rows), np.arange(columns)) % max(n, 1)) / max(n, 1)))


def _factor(n: int) -> int:
    """Returns the first of the two lengths that a transform of length n is made of, 1 for one that is not: about the root of n.

    Of p and n / p terms each result is the sum of p + n / p products, which are fewest where both are alike.
    """
    if n <= MAX_MATRIX_DFT:
        return 1
    found = [p for p in range(2, MAX_MATRIX_DFT + 1) if n % p == 0]
    return next((p for p in found if p * p >= n), found[-1] if found else 1)


def transform(x: Pair, axis: Axis, out: Axis, sign: float) -> tuple[Op, Op]:
    """Returns the sums over `axis` of x times e to the sign * 2 pi i * index * index / length, along `out`, of the same length.

    Of a real x `out` may have the first n // 2 + 1 of the n frequencies: then only these are computed.
    """
    if axis.length is None or out.length is None:
        re, im = parts(dft.build(*(axes_with_order(t, x[0].axes) for t in x if t is not None), axis=axis, out=out, inverse=sign > 0))
        return re, im
    re, im = _transform(x, axis, out, sign)
    if x[1] is None:  # these frequencies of a real signal are real, and to the bit: an angle tells 0 from -0
        frequency = np.arange(out.length)
        im = where(constant((frequency == 0) | (2 * frequency == axis.length), [out]), 0.0, im)
    return re, im


def _transform(x: Pair, axis: Axis, out: Axis, sign: float) -> tuple[Op, Op]:
    """Returns `transform` of a known length, to rounding."""
    n, frequencies = axis.length or 0, out.length or 0
    p = _factor(n)
    if p == 1 and n <= MAX_MATRIX_PRIME:
        return _times_matrix(x, axis, out, _table(n, frequencies, n, sign))
    if p == 1:
        return _bluestein(x, axis, out, sign)
    q = n // p
    half = x[1] is None and frequencies < n
    k = p // 2 + 1 if half else p  # frequencies of the first transform, of which a real signal gives the others, conjugate
    a, b, c, d = (make_axis(m, name=f"{axis.name}_{name}") for m, name in ((p, "high"), (q, "low"), (k, "first"), (q, "second")))
    re, im = _transform(_moved(x, {axis: Idx(a) * q + Idx(b)}, (axis,), (a, b)), a, c, sign)
    re, im = _rotated((re, im), _table(k, q, n, sign), [c, b])
    found = _transform((re, im), b, d, sign)
    first, second = Idx(out) % p, Idx(out) // p
    if not half:
        re, joined = _moved(found, {d: second, c: first}, (d, c), (out,))
        assert joined is not None
        return re, joined
    first = minimum(first, p - first)  # frequency i + p j is the conjugate of p - i + p (q - 1 - j)
    direct, mirrored = (_moved(found, {d: at, c: first}, (d, c), (out,)) for at in (second, q - 1 - second))
    here = constant(np.arange(frequencies) % p <= p // 2, [out])
    return where(here, direct[0], mirrored[0]), where(here, direct[1], -mirrored[1])  # type: ignore[operator]  # both parts are there


def _bluestein(x: Pair, axis: Axis, out: Axis, sign: float) -> tuple[Op, Op]:
    """Returns the transform as a convolution with a chirp, by transforms of a power of 2; of the first frequencies for a shorter `out`."""
    n = axis.length or 0
    m = 1 << (2 * n - 2).bit_length()
    k = np.arange(n)
    chirp = np.exp(sign * 1j * np.pi * (k * k % (2 * n)) / n)
    around = np.zeros(m, complex)
    around[:n] = chirp.conj()
    around[m - n + 1 :] = chirp[1:][::-1].conj()
    wide, spectrum, back = (make_axis(m, name=f"{axis.name}_{name}") for name in ("wide", "spectrum", "back"))
    padded = _moved(_rotated(x, chirp, [axis]), {axis: Idx(wide)}, (axis,), (wide,))
    product = _rotated(transform(padded, wide, spectrum, -1.0), np.fft.fft(around) / m, [spectrum])
    re, im = _moved(transform(product, spectrum, back, 1.0), {back: Idx(out)}, (back,), (out,))
    return _rotated((re, im), chirp[: out.length], [out])


def real_of_half(x: Pair, axis: Axis, out: Axis) -> Op:
    """Returns the real signal along `out` of the first half of its spectrum along `axis`."""
    re, im = x
    if axis.length is None or out.length is None:
        frequency, many = iota(axis), count((out,), dtypes.int32)
        weight = where(logical_or(equal(frequency, 0), equal(frequency * 2, many)), 1.0, 2.0) / cast(maximum(many, 1), re.dtype)
        weighted = [axes_with_order(cast(weight, re.dtype) * t, t.axes) for t in x if t is not None]
        return transform((weighted[0], weighted[1] if im is not None else None), axis, out, 1.0)[0]
    n = out.length
    f, i = np.arange(n // 2 + 1)[:, None], np.arange(n)[None]
    weights = np.where((f == 0) | (2 * f == n), 1, 2) / max(n, 1)
    angle = 2 * np.pi * ((f * i) % max(n, 1)) / max(n, 1)
    y = contract(re, constant((weights * np.cos(angle)).astype(re.dtype.np), [axis, out]), over=(axis,))
    if im is None:
        return y
    return y - contract(im, constant((weights * np.sin(angle)).astype(re.dtype.np), [axis, out]), over=(axis,))


# ---- of users' tensors ------------------------------------------------------------------------------------------------


def _parts(x: Op, name: str) -> Pair:
    """Returns the real and imaginary parts of a tensor."""
    found = [a for a in x.axes if a.short_name == PARTS]
    if not found:
        return x, None
    if found[0].length != 2:
        raise AxisError(
            f"{name}({x.label}): {found[0]!r} does not have two parts", details=(show_input(x),), fix="real, then imaginary part"
        )
    return slice_along_axis(x, found[0], 0), slice_along_axis(x, found[0], 1)


def _transformed(x: Op, axis: Any, name: str) -> Axis:
    a = find_axis(x, axis, name)
    if a.length == 0:
        raise AxisError(f"{name}({x.label}): {a!r} has no element", details=(show_input(x),), fix="transform at least one")
    return a


def _scaled(x: Op, axis: Axis, norm: str, inverse: bool) -> Op:
    """Returns sums over the n elements of `axis` as `norm` says: as they are, over n, or over the root of n."""
    one_of("a transform", "norm", norm, _NORMS)
    if norm != "ortho" and (norm == "backward") != inverse:
        return x
    if axis.length is not None:
        return x * (1 / math.sqrt(axis.length) if norm == "ortho" else 1 / axis.length)
    n = count((axis,), x.dtype)
    return x / (sqrt(n) if norm == "ortho" else n)


def _named(name: str, size: ExprLike) -> Axis:
    return make_axis(size, name=name) if isinstance(size, int) else make_axis(name=name).resized(size)


def _together(re: Op, im: Op, like: Op, old: Axis, new: Axis) -> Op:
    """Returns both parts along a new last axis, the others in the order of `like`."""
    order = [new if a == old else a for a in like.axes if a.short_name != PARTS]
    both = [axes_with_order(t, order) for t in (re, im)]
    return stack(both, make_axis(2, name=PARTS), len(order))


def _full(x: Any, axis: Any, norm: str, inverse: bool, name: str, half: bool = False) -> Op:
    (x,), _ = floating((as_op(x),), {})
    a = _transformed(x, axis, name)
    size = a.size // 2 + 1 if half else a.size
    out, new = _named(a.name, size), _named(f"{a.name}_frequency", size)

    def made(x: Op) -> Op:
        re, im = transform(_parts(x, name), a, new, 1.0 if inverse else -1.0)
        return _together(_scaled(re, a, norm, inverse), _scaled(im, a, norm, inverse), x, a, new)

    y = rounding_once(made)(x)
    return read(y, [out if b == new else b for b in y.axes], {new: Idx(out)})


def fft(x: Any, axis: Axis | str, norm: str = "backward") -> Op:
    """Returns the discrete Fourier transform of `x` along `axis`, with real and imaginary parts along a last axis `complex` of length 2.

    x: real, or complex: with such an axis. norm: `backward` scales the inverse alone, by 1 / n; `ortho` both by 1 / sqrt(n); `forward`
    this one alone. Integers and bool become float32. Where a call brings the length, NumPy computes it on the host.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.fft(ng.constant([1.0, 0.0, -1.0, 0.0], "T=4"), "T"))().round(6)[:, 0]
        array([0., 2., 0., 2.])
    """
    return _full(x, axis, norm, False, "fft")


def ifft(x: Any, axis: Axis | str, norm: str = "backward") -> Op:
    """Returns the inverse of `fft` along `axis`, complex as there; all else as in `fft`.

    >>> import ngraph as ng
    >>> from ngraph.util.utils import executor
    >>> x = ng.constant([3.0, 1.0, 2.0], "T=3")
    >>> executor(ng.ifft(ng.fft(x, "T"), "T")[..., 0])().round(6)
    array([3., 1., 2.])
    """
    return _full(x, axis, norm, True, "ifft")


def rfft(x: Any, axis: Axis | str, norm: str = "backward") -> Op:
    """Returns the first half of the Fourier transform of a real `x`, n // 2 + 1 frequencies; the others are its conjugates.

    All else as in `fft`; the axis keeps its name.

        >>> import ngraph as ng
        >>> ng.rfft(ng.ones("N=2 T=8"), "T").axes.lengths
        (2, 5, 2)
    """
    x = as_op(x)
    if any(a.short_name == PARTS for a in x.axes):
        y = fft(x, axis, norm)
        a = find_axis(y, axis if isinstance(axis, str) else axis.name, "rfft")
        out = _named(a.name, a.size // 2 + 1)
        return read(y, [out if b == a else b for b in y.axes], {a: Idx(out)})
    return _full(x, axis, norm, False, "rfft", half=True)


def irfft(x: Any, axis: Axis | str, n: int | None = None, norm: str = "backward") -> Op:
    """Returns the real signal of the first half of its spectrum: the inverse of `rfft`.

    x: complex, with n // 2 + 1 frequencies along `axis`. n: the length of the signal, 2 * (frequencies - 1) by default.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.irfft(ng.rfft(ng.constant([3.0, 1.0, 2.0], "T=3"), "T"), "T", n=3))().round(6)
        array([3., 1., 2.])
    """
    (x,), _ = floating((as_op(x),), {})
    a = _transformed(x, axis, "irfft")
    if a.length is None and n is not None:  # as in NumPy, missing frequencies are 0
        kept = _named(a.name, n // 2 + 1)
        x, a = read(x, [kept if b == a else b for b in x.axes], {a: Idx(kept)}), kept
    size = at_least_zero((a.size - 1) * 2) if n is None else n
    if isinstance(size, int) and (size < 1 or size // 2 + 1 != a.length):
        least = 2 * (a.length or 1) - 2
        raise ArgumentError(f"irfft of {a!r} to a length of {size}", fix=f"take n from {least} to {least + 1}")
    out, new = _named(a.name, size), _named(f"{a.name}_signal", size)

    def made(x: Op) -> Op:
        y = real_of_half(_parts(x, "irfft"), a, new)
        order = [new if b == a else b for b in x.axes if b.short_name != PARTS]
        return axes_with_order(y if norm == "backward" else _scaled(y, new, norm, True) * count((new,), y.dtype), order)

    y = rounding_once(made)(x)
    return read(y, [out if b == new else b for b in y.axes], {new: Idx(out)})


def stft(
    x: Any,
    axis: Axis | str,
    size: int,
    hop: int,
    window: Any = None,
    frames: str = "frame",
    frequencies: str = "frequency",
    onesided: bool = True,
) -> Op:
    """Returns the spectra of frames of a signal along `axis`: frames and frequencies in its place, then `complex`, as in `fft`.

    size: of a frame; hop: from one frame to the next; window: a tensor or an array of that size, which the frames are multiplied with.
    The frames lie inside the signal. onesided: the first half of the frequencies, for real signals.

        >>> import ngraph as ng
        >>> ng.stft(ng.ones("N=2 T=16"), "T", size=8, hop=4).axes.lengths
        (2, 3, 5, 2)
    """
    (x,), _ = floating((as_op(x),), {})
    a = _transformed(x, axis, "stft")
    if not 0 < size <= (size if a.length is None else a.length) or hop < 1:
        raise ArgumentError(f"stft of {a!r} in frames of {size}, {hop} apart", fix="take frames inside the signal, and a hop from 1 on")
    many, inner = _named(frames, at_least_zero((a.size - size) // hop + 1)), make_axis(size, name=frequencies)
    at = x.axes.index(a)
    framed = read(x, [*x.axes[:at], many, inner, *x.axes[at + 1 :]], {a: Idx(many) * hop + Idx(inner)})
    if window is not None:
        w = window if isinstance(window, Op) else constant(np.asarray(window), [inner])
        framed = framed * read(w, [inner], {w.axes[0]: Idx(inner)})
        framed = axes_with_order(framed, [*x.axes[:at], many, inner, *x.axes[at + 1 :]])
    return rfft(framed, inner) if onesided else fft(framed, inner)
