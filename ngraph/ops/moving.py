"""Ops that move elements, composed of reads at computed indices: triangles, rolls, repeats, parts, padding, products of structures."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.errors import AxisError
from ngraph.op_graph import expr
from ngraph.op_graph.arguments import one_of
from ngraph.op_graph.axes import Axis, as_axis, show_axes
from ngraph.op_graph.checks import checked_lengths, distance
from ngraph.op_graph.dtypes import check_fits
from ngraph.op_graph.expr import Expr, ExprLike, Idx
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import find_axis, own_axes, show_input
from ngraph.ops.elementwise import arithmetic, as_op, common, equal, less_equal, where
from ngraph.ops.rearrange import (
    both_sides,
    cast_axes,
    concat,
    diagonal,
    iota,
    reindex,
    slice_along_axis,
    windows,
)
from ngraph.ops.reduce import reduce


def read(x: Op, axes: Iterable[Axis], index: Mapping[Axis, ExprLike], pad_value: Any = 0) -> Op:
    """Returns `x` read at `index`; axes without an entry are read as they are."""
    return reindex(x, axes=tuple(axes), index={a: index.get(a, Idx(a)) for a in x.axes}, pad_value=pad_value)


PARTS = 16  # parts of one concatenation; an index with more runs is read element by element
LONGEST = 1 << 22  # elements along an axis whose places are looked through for runs: 32 MiB of them


def _runs(places: np.ndarray) -> list[tuple[int, int, int]] | None:
    """Returns places in an axis as (first place, step, count) of runs with the step -1, 0 or 1; None where there are more than `PARTS`."""
    steps = np.diff(places)
    ends = np.append(np.flatnonzero(steps[1:] != steps[:-1]) + 1, len(places) - 1)  # a run with the step of i ends at the next of these
    found: list[tuple[int, int, int]] = []
    i = 0
    while i < len(places):
        if len(found) == PARTS:
            return None
        step = int(steps[i]) if i < len(steps) else 0
        end = int(ends[np.searchsorted(ends, i, "right")]) if abs(step) <= 1 and i < len(steps) else i
        found.append((int(places[i]), step, end + 1 - i))
        i = end + 1
    return found


def _moved(x: Op, long: Mapping[Axis, Axis], index: Mapping[Axis, ExprLike], places: Callable[[Axis], np.ndarray]) -> Op:
    """Returns `x` read at `index`, with the axes `long` in place of its own.

    Along the last axis, whose elements lie side by side, the result is a concatenation of runs: a vector is read from consecutive
    elements, and not each at a remainder or a minimum. places: the numbers that `index` gives along an axis of known length.
    """
    a = x.axes[-1]
    size = long[a].length if a in long else None
    runs = _runs(places(a)) if size and a.length and size <= LONGEST else None
    if runs is None:
        return read(x, _resized(x, long), index)
    parts = [a.resized(count) for _, _, count in runs]
    reads = [
        read(x, _resized(x, {**long, a: part}), {**index, a: Idx(part) * step + first})
        for part, (first, step, _) in zip(parts, runs, strict=True)
    ]
    return reads[0] if len(reads) == 1 else concat.build(*reads, parts=tuple(parts), axis=long[a])


def _resized(x: Op, new: Mapping[Axis, Axis]) -> list[Axis]:
    return [new.get(a, a) for a in x.axes]


# ---- triangles and diagonals ------------------------------------------------------------------------------------------


def _two_axes(x: Op, axis: Axis | str, other: Axis | str, name: str) -> tuple[Axis, Axis]:
    """Returns two axes of x. Raises AxisError where both are one."""
    a, b = find_axis(x, axis, name), find_axis(x, other, name)
    if a == b:
        raise AxisError(f"{name}({x.label}): {a!r} is both axes", details=(show_input(x),), fix="name two different axes")
    return a, b


def tril(x: Any, axis: Axis | str, other: Axis | str, offset: int = 0) -> Op:
    """Returns the lower triangle of a matrix with rows along `axis` and columns along `other`; zeros above the diagonal.

    offset: how far the diagonal is moved to higher columns. Other axes are batch axes. Raises AxisError.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.tril(ng.ones("I=2 J=3"), "I", "J"))()
        array([[1., 0., 0.],
               [1., 1., 0.]], dtype=float32)
    """
    x = as_op(x)
    row, column = _two_axes(x, axis, other, "tril")
    return where(less_equal(iota(column), iota(row) + offset), x, 0)


def triu(x: Any, axis: Axis | str, other: Axis | str, offset: int = 0) -> Op:
    """Returns the upper triangle of a matrix with rows along `axis` and columns along `other`; zeros below the diagonal.

    offset: how far the diagonal is moved to higher columns. Other axes are batch axes. Raises AxisError.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.triu(ng.ones("I=2 J=3"), "I", "J", offset=1))()
        array([[0., 1., 1.],
               [0., 0., 1.]], dtype=float32)
    """
    x = as_op(x)
    row, column = _two_axes(x, axis, other, "triu")
    return where(less_equal(iota(row) + offset, iota(column)), x, 0)


def diag(x: Any, axis: Axis | str, other: Axis | str) -> Op:
    """Returns the diagonal of a matrix along `axis` and `other`; of a vector along `axis` the matrix with it as the diagonal.

    other: an axis of x, which goes; or a new one, of the same length as `axis`, behind it. Other axes are batch axes.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.diag(ng.constant([1.0, 2.0], "I=2"), "I", "J"))()
        array([[1., 0.],
               [0., 2.]])
    """
    x = as_op(x)
    row = find_axis(x, axis, "diag")
    known = [a for a in x.axes if (a.label == other or a.short_name == other if isinstance(other, str) else a == other)]
    if known:
        return diagonal(x, row, known[0])
    column = as_axis(other) if not isinstance(other, str) or "=" in other else as_axis(f"{other}=?").resized(row.size)
    if column.length is None:
        column = column.resized(row.size)
    if row.length is not None and column.length != row.length:
        raise AxisError(f"diag({x.label}): {row!r} and {column!r} differ", details=(show_input(x),), fix="give them one length")
    at = x.axes.index(row) + 1
    square = where(equal(iota(row), iota(column)), x, 0)
    return read(square, (*x.axes[:at], column, *x.axes[at:]), {})


def trace(x: Any, axis: Axis | str, other: Axis | str) -> Op:
    """Returns the sum of the diagonal of a matrix along two axes, which both go; other axes are batch axes.

    >>> import ngraph as ng
    >>> from ngraph.util.utils import executor
    >>> executor(ng.trace(ng.eye("I=3", "J=3"), "I", "J"))()
    array(3., dtype=float32)
    """
    line = diagonal(x, axis, other)
    return reduce.build(line, kind="add", axes=(find_axis(line, find_axis(as_op(x), axis, "trace"), "trace"),))


# ---- order and repetition ---------------------------------------------------------------------------------------------


def roll(x: Any, shift: int | Mapping[Any, int], axis: Axis | str | None = None) -> Op:
    """Returns `x` with its elements moved by `shift` places along `axis`; those beyond the end come in again at the front.

    shift: a number, or a dict of them by axis. Raises AxisError.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.roll(ng.arange(4, axis="H"), 1, "H"))()
        array([3, 0, 1, 2], dtype=int32)
    """
    x = as_op(x)
    if not isinstance(shift, Mapping) and axis is None:
        raise AxisError(f"roll({x.label}): along which axis?", details=(show_input(x),), fix='name it: ng.roll(x, 1, "H")')
    shifts: Iterable[tuple[Any, int]] = shift.items() if isinstance(shift, Mapping) else [(axis, shift)]
    by = {find_axis(x, name, "roll"): n for name, n in shifts}
    index = {a: (Idx(a) - n) % a.size if a.size != 0 else Idx(a) for a, n in by.items()}
    return _moved(x, {a: a for a in by}, index, lambda a: np.roll(np.arange(a.length or 0), by[a]))


def _times(x: Op, a: Axis, count: int, name: str) -> Axis:
    """Returns an axis `count` times as long. Raises AxisError for a count below 0."""
    if count < 0:
        raise AxisError(f"{name}({x.label}): {a!r} is taken {count} times", details=(show_input(x),), fix="give a count of 0 or more")
    return a.resized(a.size * count)


def repeat(x: Any, count: int, axis: Axis | str) -> Op:
    """Returns `x` with each element along `axis` `count` times in a row; the axis keeps its name. Raises AxisError.

    >>> import ngraph as ng
    >>> from ngraph.util.utils import executor
    >>> executor(ng.repeat(ng.arange(3, axis="H"), 2, "H"))()
    array([0, 0, 1, 1, 2, 2], dtype=int32)
    """
    x = as_op(x)
    a = find_axis(x, axis, "repeat")
    long = _times(x, a, count, "repeat")
    return read(x, _resized(x, {a: long}), {a: Idx(long) // max(count, 1)})


def tile(x: Any, counts: Mapping[Any, int]) -> Op:
    """Returns `x` as a whole several times in a row along some axes, {axis: count}; they keep their names. Raises AxisError.

    >>> import ngraph as ng
    >>> from ngraph.util.utils import executor
    >>> executor(ng.tile(ng.arange(3, axis="H"), {"H": 2}))()
    array([0, 1, 2, 0, 1, 2], dtype=int32)
    """
    x = as_op(x)
    many = {find_axis(x, a, "tile"): n for a, n in counts.items()}
    long = {a: _times(x, a, n, "tile") for a, n in many.items()}
    index = {a: Idx(b) % a.size if a.size != 0 else Idx(b) for a, b in long.items()}
    return _moved(x, long, index, lambda a: np.tile(np.arange(a.length or 0), many[a]))


def split(x: Any, axis: Axis | str, parts: int | Sequence[int]) -> tuple[Op, ...]:
    """Returns `x` cut along `axis` into parts, which keep its name: a number of equal ones, or their lengths in order.

    Raises AxisError where the lengths do not add up to that of the axis; where a call brings its length, the call raises BoundsError.

        >>> import ngraph as ng
        >>> ng.split(ng.ones("N=2 H=6"), "H", [4, 2])[1].axes.lengths
        (2, 2)
    """
    x = as_op(x)
    a = find_axis(x, axis, "split")
    n: ExprLike = a.size
    first: ExprLike = 0
    lengths: list[ExprLike]
    if not isinstance(parts, Iterable):
        many = operator.index(parts)
        if many < 1 or (isinstance(n, int) and n % many):
            raise AxisError(
                f"split({x.label}): {a!r} has no {many} equal parts", details=(show_input(x),), fix="give their lengths in a list"
            )
        lengths = [n // many] * many
        if isinstance(n, Expr):
            first = checked_lengths(a, n % many, f"axis {a.label} in {many} equal parts", f"take a length that {many} divides")
    else:
        each = [operator.index(p) for p in parts]
        lengths, total = [*each], sum(each)
        if any(p < 0 for p in each):
            raise AxisError(f"split({x.label}): {each} are no lengths", details=(show_input(x),), fix="each is 0 or more")
        if isinstance(n, Expr):
            what = f"axis {a.label} in parts of {', '.join(map(str, each))}"
            first = checked_lengths(a, distance(n, total), what, f"they sum to {total}")
        elif total != n:
            raise AxisError(f"split({x.label}): {each} do not add up to {a!r}", details=(show_input(x),), fix=f"they sum to {total}")
    made = []
    for p in lengths:
        part = a.resized(p)
        made.append(read(x, [part if b == a else b for b in x.axes], {a: Idx(part) + first}))
        first = first + p
    return tuple(made)


def unstack(x: Any, axis: Axis | str) -> tuple[Op, ...]:
    """Returns the slices of `x` along `axis`, which they lack: the inverse of `ng.stack`. Raises AxisError for an unknown length.

    >>> import ngraph as ng
    >>> [part.axes.lengths for part in ng.unstack(ng.ones("T=2 H=3"), "T")]
    [(3,), (3,)]
    """
    x = as_op(x)
    a = find_axis(x, axis, "unstack")
    if a.length is None:
        raise AxisError(f"unstack({x.label}): the length of {a!r} is not known", details=(show_input(x),), fix="take ng.scan over it")
    return tuple(slice_along_axis(x, a, k) for k in range(a.length))


# ---- padding and windows ----------------------------------------------------------------------------------------------

PADDED = ("constant", "edge", "reflect", "circular")
NUMPY_MODES = {"circular": "wrap"}  # names of modes in np.pad, where they are others


def place_inside(mode: str, i: ExprLike, size: ExprLike, near: bool = False) -> ExprLike:
    """Returns the index that padding reads for `i`, which may lie outside an axis of this length: see `pad`.

    near: whether `i` lies outside by less than the length, so that one reflection brings it inside, without a remainder.
    """
    if mode == "edge":
        return expr.minimum(expr.maximum(i, 0), size - 1)
    if mode == "circular":
        return i % size
    if mode == "reflect":
        period = expr.maximum((size - 1) * 2, 1)  # 1 where there is one element, which all places read
        i = expr.maximum(i, 0 - i) if near else i % period
        return expr.minimum(i, period - i)
    return i


def padded(x: Op, sides: Mapping[Axis, tuple[ExprLike, ExprLike]], wide: Mapping[Axis, Axis], mode: str, value: Any = 0) -> Op:
    """Returns `x` with so many elements before and after axes, in place of which it has those of `wide`: see `pad`."""
    known = {a: (before, after) for a, (before, after) in sides.items() if isinstance(before, int) and isinstance(after, int) and a.length}
    known = {a: both for a, both in known.items() if min(both) >= 0}
    near = {a for a, both in known.items() if max(both) < len(a)}
    index = {a: place_inside(mode, Idx(wide[a]) - before, a.size, a in near) for a, (before, _) in sides.items()}
    if mode == "constant" or len(known) < len(sides):
        return read(x, _resized(x, wide), index, pad_value=value)
    in_numpy: Any = NUMPY_MODES.get(mode, mode)
    return _moved(x, wide, index, lambda a: np.pad(np.arange(len(a)), known[a], in_numpy))


def pad(x: Any, paddings: Any, axes: Any = None, value: Any = 0, mode: str = "constant") -> Op:
    """Returns `x` with more elements at both ends of some axes.

    paddings: for each axis a number for both sides, or (before, after); or a dict {axis: padding}. Axes keep their names.
    axes: new axes, by position. value: of the new elements, in mode `constant`; `edge` repeats the last element, `reflect` mirrors the
    elements beside it, `circular` goes on at the other end. Raises AxisError for negative paddings, or another number of them than axes.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.pad(ng.arange(3, axis="H"), {"H": (2, 1)}, mode="reflect"))()
        array([2, 1, 0, 1, 2, 1], dtype=int32)
    """
    one_of("pad", "mode", mode, PADDED)
    x, value = as_op(x), int(value) if isinstance(value, (bool, np.bool_)) else value
    if not isinstance(paddings, Mapping):
        if len(paddings) != len(x.axes):
            raise AxisError(
                f"pad({x.label}): {len(paddings)} paddings for {show_axes(x.axes)}", details=(show_input(x),), fix="give one for each axis"
            )
        paddings = dict(zip(x.axes, paddings, strict=True))
    both = {find_axis(x, a, "pad"): both_sides(p) for a, p in paddings.items()}
    wrong = [f"{p} along {a!r}" for a, p in both.items() if min(p) < 0]
    if wrong:
        raise AxisError(f"pad({x.label}): negative padding {', '.join(wrong)}", details=(show_input(x),), fix="cut with a slice: x[1:-1]")
    both = {a: p for a, p in both.items() if p != (0, 0)}
    if mode != "constant" and any(a.length == 0 for a in both):
        raise AxisError(f"pad({x.label}): there is no element to repeat", details=(show_input(x),), fix="pad with mode='constant'")
    wide = {a: a.resized(a.size + (before + after)) for a, (before, after) in both.items()}
    check_fits("the value of a padding", value, x.dtype, x.label)
    result = padded(x, both, wide, mode, value) if both else x
    return result if axes is None else cast_axes(result, axes)


def unfold(x: Any, spatial: Mapping[Any, Axis | str], stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Op:
    """Returns sliding windows: {"H": "R=3"} adds the axis R along each window, and H then counts the windows; others stay.

    stride, dilation: a number for all, or a dict by axis. padding: a number, (before, after), or a dict of them, read as 0.
    Raises AxisError where no window fits. Source: im2col, K. Chellapilla and others (2006).

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.unfold(ng.arange(5, axis="H"), {"H": "R=3"}, stride=2))()
        array([[0, 1, 2],
               [2, 3, 4]], dtype=int32)
    """
    return windows(x, {a: as_axis(r) for a, r in spatial.items()}, stride, padding, dilation)


def pixel_shuffle(x: Any, channel: Axis | str, factors: Mapping[Any, int]) -> Op:
    """Returns `x` with its channels laid out as pixels: axes of `factors`, {"H": 2, "W": 2}, grow by these, the channels shrink by all.

    Along the channels the new pixels of the last of these axes lie next to each other. Raises AxisError where the length does not divide.
    Source: W. Shi and others, "Real-time single image and video super-resolution" (2016).

        >>> import ngraph as ng
        >>> ng.pixel_shuffle(ng.ones("C=8 H=3 W=3"), "C", {"H": 2, "W": 2}).axes.lengths
        (2, 6, 6)
    """
    x = as_op(x)
    c = find_axis(x, channel, "pixel_shuffle")
    by = {find_axis(x, a, "pixel_shuffle"): int(n) for a, n in factors.items()}
    whole = 1
    for n in by.values():
        whole *= n
    if c.length is not None and c.length % whole:
        raise AxisError(f"pixel_shuffle({x.label}): {c!r} does not divide by {whole}", details=(show_input(x),), fix="take more channels")
    few = c.resized(c.size // whole)
    long = {a: a.resized(a.size * n) for a, n in by.items()}
    place: ExprLike = Idx(few)
    for a, n in by.items():
        place = place * n + Idx(long[a]) % n
    if isinstance(c.size, Expr):
        place = place + checked_lengths(c, c.size % whole, f"axis {c.label} in {whole} parts", f"take a length that {whole} divides")
    return read(x, _resized(x, {c: few, **long}), {c: place, **{a: Idx(b) // by[a] for a, b in long.items()}})


# ---- products ---------------------------------------------------------------------------------------------------------


def outer(x: Any, y: Any) -> Op:
    """Returns every product of an element of `x` and one of `y`: the axes of x, then those of y. Raises AxisError for an axis of both.

    >>> import ngraph as ng
    >>> ng.outer(ng.ones("I=2"), ng.ones("J=3")).axes.lengths
    (2, 3)
    """
    (x, y), _ = arithmetic((x, y), {})
    both = [a for a in x.axes if a in y.axes]
    if both:
        raise AxisError(
            f"outer({x.label}, {y.label}): both have {show_axes(both)}",
            details=(show_input(x), show_input(y)),
            fix=f"rename one: ng.map_roles({y.label}, {{{both[0].label!r}: '{both[0].short_name}2'}}); x * y pairs them",
        )
    return read(x * y, (*x.axes, *y.axes), {})


def kron(x: Any, y: Any, axes: Any = None) -> Op:
    """Returns the Kronecker product: along the axes that both have, each element of `x` becomes that element times all of `y`.

    axes: some of these axes; the others are batch axes. They keep their names; their lengths are multiplied. Raises AxisError.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.kron(ng.constant([1.0, 10.0], "I=2"), ng.constant([1.0, 2.0, 3.0], ng.make_axis(3, name="I"))))()
        array([ 1.,  2.,  3., 10., 20., 30.])
    """
    (x, y), _ = arithmetic((x, y), {})
    shared = [a for a in x.axes if a in y.axes] if axes is None else list(own_axes(x, axes, "kron"))
    if not shared:
        raise AxisError(f"kron({x.label}, {y.label}): no axis of both", details=(show_input(x), show_input(y)), fix="x * y, or ng.outer")
    inner = {a: find_axis(y, a, "kron") for a in shared}
    long = {a: a.resized(a.size * b.size) for a, b in inner.items()}
    high = read(x, _resized(x, long), {a: Idx(long[a]) // b.size if b.size != 0 else 0 for a, b in inner.items()})
    low = read(y, _resized(y, long), {b: Idx(long[a]) % b.size if b.size != 0 else 0 for a, b in inner.items()})
    return high * low


def cross(x: Any, y: Any, axis: Axis | str) -> Op:
    """Returns the cross product of vectors of three elements along `axis`, which both have; other axes are matched. Raises AxisError.

    >>> import ngraph as ng
    >>> from ngraph.util.utils import executor
    >>> x, y = ng.constant([1.0, 0.0, 0.0], "D=3"), ng.constant([0.0, 1.0, 0.0], "D=3")
    >>> executor(ng.cross(x, y, "D"))()
    array([0., 0., 1.])
    """
    x, y = common((as_op(x), y))
    a = find_axis(x, axis, "cross")
    find_axis(y, a, "cross")
    if a.length not in (3, None):
        raise AxisError(
            f"cross({x.label}, {y.label}): {a!r} does not have three elements", details=(show_input(x),), fix="take vectors of three"
        )

    first = checked_lengths(a, distance(a.size, 3), f"axis {a.label} of vectors", "take vectors of three")

    def turned(t: Op, by: int) -> Op:
        return read(t, t.axes, {a: (Idx(a) + by) % 3 + first})

    return turned(x, 1) * turned(y, 2) - turned(x, 2) * turned(y, 1)
