"""Functions of arrays that core ops need and NumPy lacks, independent of each other except where one calls another in this file.

`numpy_ops` names them in its calls; the `numpy` transformer prints their source beside the code that uses them, so a function here
may use only NumPy and other functions named in this file. Dims are in the order that each docstring states.

Words: docs/glossary.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.op_graph.dtypes import rounded_once as rounded_once

Array = Any  # an ndarray, or a NumPy scalar where a ufunc returned one

# ---- elementwise ------------------------------------------------------------------------------------------------------

# Chebyshev fits, computed with 50 digits: erf(x)/x in x*x for x up to 1, then erfc(x)*exp(x*x) in 1/(x + 2)
ERF = {
    4: (
        (1.1283791658483509, -0.37612626666720334, 0.11283594715160218, -0.026854212010626412, 0.005189087423433974,
         -0.000801686428716587, 7.875875062685488e-05),
        (0.25539567631050575, 0.1423953299228289, 0.026850911280617798, 0.0029247520788123972, 4.607866369061166e-05,
         -2.802938325549644e-05, -1.1494861984942571e-06),
        (4.0, 12.0, 3.0),
    ),
    8: (
        (1.1283791670955126, -0.37612638903183543, 0.11283791670945006, -0.02686617064323777, 0.0052239776071164225,
         -0.0008548325975389692, 0.00012055294904839707, -1.492473690741966e-05, 1.6447424703317362e-06,
         -1.6208483801871705e-07, 1.3720064546777686e-08, -7.795898827002142e-10),
        (0.22142954022993183, 0.16189356804102498, 0.03856057042517875, 0.005588816281840148, 0.00019713917780504528,
         -8.079220427446309e-05, -7.3405185545281365e-06, 1.9795619117948376e-06, 1.6350179331888476e-07,
         -7.00535615043276e-08, -5.937642934649013e-10, 2.6248030731791732e-09, -2.6260417449824267e-10,
         -7.45510449620631e-11, 1.8386753405993422e-11, 4.4133850329466983e-13),
        (6.0, 9.6, 2.2),
    ),
}  # fmt: skip


def erf(x: Array) -> Array:
    """Returns the error function, of float32 and float64 within 2 units in the last place."""
    near, far, (top, scale, offset) = ERF[x.dtype.itemsize]
    size = np.abs(x)
    square = np.minimum(size, 1) ** 2
    low = np.full_like(square, near[-1])
    for c in near[-2::-1]:
        low = low * square + c
    size = np.clip(size, 1, top)
    t = scale / (size + 2) - offset
    high = np.full_like(t, far[-1])
    for c in far[-2::-1]:
        high = high * t + c
    return np.where(np.abs(x) <= 1, x * low, np.copysign(1 - high * np.exp(-size * size), x))


def integer_power(x: Array, y: Array) -> Array:
    """Returns x to the y, wrapping; a negative exponent gives the truncated reciprocal, 0 for x = 0."""
    x, y = np.broadcast_arrays(x, y)
    result, base, left = np.ones_like(x), x, np.maximum(y, 0)
    while left.any():
        result = np.where(left & 1, np.multiply(result, base), result)
        base, left = np.multiply(base, base), left >> 1
    if x.dtype.kind == "u":
        return result
    inverse = np.where(x == 1, 1, np.where(x == -1, 1 - 2 * (y & 1), 0)).astype(x.dtype)
    return np.where(y < 0, inverse, result)


def saturate(x: Array, dtype: Any) -> Array:
    """Returns floats as integers: truncated toward zero, saturated at the limits, NaN as 0."""
    limits = np.iinfo(dtype)
    x = x.astype(np.float64)
    above, below = x >= float(limits.max), x <= float(limits.min)  # the limit itself counts: int64's is not a float64
    inside = np.where(above | below | np.isnan(x), 0, x).astype(dtype)
    return np.where(above, np.array(limits.max, dtype), np.where(below, np.array(limits.min, dtype), inside))


def narrowed(x: Array, dtype: Any, limits: tuple[int, int] | None) -> Array:
    """Returns numbers in a narrow dtype: of integers, which have `limits`, or of floats, by way of float32."""
    if limits is None:
        return x.astype(np.float32).astype(dtype)
    return (x if x.dtype.kind in "iub" else np.clip(saturate(x, np.int8), *limits)).astype(dtype)


# ---- along axes -------------------------------------------------------------------------------------------------------


def arg_reduce(function: Callable[..., Array], x: Array, count: int) -> Array:
    """Returns flat positions over the last `count` dims, which are taken as one."""
    flat = x.reshape(*x.shape[: x.ndim - count], -1) if x.size else np.zeros((*x.shape[: x.ndim - count], 1), np.int8)
    return function(flat, axis=-1).astype(np.int32)


def reduce_windows(function: Any, x: Array, count: int) -> Array:
    """Reduces the last `count` dims, one position at a time: for windows, which are small and overlap."""
    result = None
    for at in np.ndindex(*x.shape[x.ndim - count :]):
        part = x[(..., *at)]
        result = part.copy() if result is None else function(result, part, out=result if result.ndim else None)
    return result


def cumulate(function: Any, x: Array, dim: int, exclusive: bool, reverse: bool, start: Any) -> Array:
    """Returns the cumulative `function` along `dim`; `start` comes first where each element is excluded from its own result."""
    x = np.moveaxis(x, dim, 0)
    if reverse:
        x = x[::-1]
    result = np.empty_like(x)
    if exclusive:
        result[:1] = start
        function.accumulate(x[:-1], axis=0, dtype=x.dtype, out=result[1:])
    else:
        function.accumulate(x, axis=0, dtype=x.dtype, out=result)
    if reverse:
        result = result[::-1]
    return np.moveaxis(result, 0, dim)


def sorted_positions(key: Array, dim: int, descending: bool, nan_largest: bool) -> Array:
    """Returns the source index of each element in a stable sort; take_along_axis moves keys and values."""
    if descending and nan_largest:  # from the end, where NaN is and the last of equal elements
        return np.flip(key.shape[dim] - 1 - np.argsort(np.flip(key, dim), axis=dim, kind="stable"), dim)
    if descending:
        key = np.negative(key) if key.dtype.kind == "f" else np.invert(key)
    return np.argsort(key, axis=dim, kind="stable")


# ---- random numbers ---------------------------------------------------------------------------------------------------


def mix_trips(*indices: Array) -> int:
    """Returns one number from the trip indices of nested loops, outermost first."""
    trip = 0
    for index in indices:
        trip = (trip * 0x9E3779B1 + int(index) + 1) & 0xFFFFFFFF
    return trip


def philox(state: Array, stream: int, trip: int, shape: tuple[int, ...]) -> Array:
    """Returns random words by Philox-4x32-10 (Salmon et al., 2011), key state[0], counter (index // 4, state[1], stream, trip)."""
    count = int(np.prod(shape, dtype=np.int64))
    mask = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    seed, step = int(state[0]), int(state[1])
    low, high = seed & 0xFFFFFFFF, seed >> 32
    a = np.arange(-(-count // 4), dtype=np.uint64) & mask
    b, c, d = (np.full_like(a, word & 0xFFFFFFFF) for word in (step, stream, trip))
    for _ in range(10):
        p = a * np.uint64(0xD2511F53)
        q = c * np.uint64(0xCD9E8D57)
        a, b, c, d = (q >> shift) ^ b ^ np.uint64(low), q & mask, (p >> shift) ^ d ^ np.uint64(high), p & mask
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    words = np.stack([a, b, c, d], axis=-1).astype(np.uint32)
    return words.reshape(-1)[:count].reshape(shape)


# ---- reading and writing by index -------------------------------------------------------------------------------------


def strided(x: Array, terms: Sequence[tuple[int, Sequence[tuple[int, int]]]], shape: tuple[int, ...], pad_value: Any = 0) -> Array:
    """Returns x read at affine indices: a view, of a padded copy where an index is outside of its dim.

    terms: for each dim of x, (start, ((dim of the result, coefficient), ...)); `pad_value` is the value outside of x.
    """
    if 0 in shape:
        return np.empty(shape, x.dtype)
    ranges = []
    for start, moves in terms:
        ends = [c * (shape[d] - 1) for d, c in moves]
        ranges.append((start + sum(e for e in ends if e < 0), start + sum(e for e in ends if e > 0)))
    inside = [low >= 0 and high < n for (low, high), n in zip(ranges, x.shape, strict=True)]
    first = [start for start, _ in terms]
    if not all(inside):
        big = np.full([n if ok else high - low + 1 for n, ok, (low, high) in zip(x.shape, inside, ranges, strict=True)], pad_value, x.dtype)
        source, target = [], []
        for k, (ok, (low, high), n) in enumerate(zip(inside, ranges, x.shape, strict=True)):
            if ok:
                source.append(slice(None))
                target.append(slice(None))
            else:
                source.append(slice(max(low, 0), max(min(high + 1, n), 0)))
                target.append(slice(max(-low, 0), max(-low, 0) + max(min(high + 1, n) - max(low, 0), 0)))
                first[k] -= low
        big[tuple(target)] = x[tuple(source)]
        x = big
    kind, strides = x.dtype, [0] * len(shape)
    if kind.itemsize == 1:  # NumPy has no name for some 8-bit types
        x = x.view(np.uint8)
    for (_, moves), step in zip(terms, x.strides, strict=True):
        for d, c in moves:
            strides[d] += c * step
    return np.lib.stride_tricks.as_strided(x[tuple([slice(f, None) for f in first])], shape, strides, writeable=False).view(kind)


def indexed(x: Array, indices: Sequence[Array], shape: tuple[int, ...], predicates: Sequence[Array] = (), pad_value: Any = 0) -> Array:
    """Returns x at these indices, one for each of its dims, broadcast to `shape`; `pad_value` outside of x and for a negative predicate."""
    inside: Any = True
    safe = []
    for index, n in zip(indices, x.shape, strict=True):
        inside = inside & (np.greater_equal(index, 0) & np.less(index, n))
        safe.append(np.clip(index, 0, max(n - 1, 0)))
    for predicate in predicates:
        inside = inside & np.greater_equal(predicate, 0)
    if not x.size:
        return np.full(shape, pad_value, x.dtype)
    found = x[tuple(safe)] if safe else x
    return np.where(np.broadcast_to(inside, shape), found, np.array(pad_value).astype(x.dtype))


def spread(x: Array, dim: int, step: int, pad_value: Any = 0) -> Array:
    """Returns x's elements `step` apart along a dim, with `pad_value` between them."""
    shape = list(x.shape)
    shape[dim] = max((shape[dim] - 1) * step + 1, 0)
    result = np.full(shape, pad_value, x.dtype)
    result[(*[slice(None)] * dim, slice(None, None, step))] = x
    return result


def positions(indices: Sequence[Array], lengths: Sequence[int], mode: str, shared: Sequence[tuple[int, int]]) -> tuple[Any, Any]:
    """Returns the indices clamped, then one for each shared axis; and a mask of indices inside (True for all modes but fill)."""
    dims = max(np.ndim(i) for i in indices)
    inside: Any = True
    safe: list[Any] = []
    for index, n in zip(indices, lengths, strict=True):
        if index.dtype == np.uint64:
            index = np.remainder(index, np.uint64(max(n, 1))) if mode == "wrap" else np.minimum(index, np.uint64(2**62))
        index = np.asarray(index).astype(np.intp)
        if mode == "fill":
            inside = inside & (index >= 0) & (index < n)
        safe.append(np.remainder(index, max(n, 1)) if mode == "wrap" else np.clip(index, 0, max(n - 1, 0)))
    for dim, n in shared:
        safe.append(np.arange(n).reshape([n if d == dim else 1 for d in range(dims)]))
    return tuple(np.broadcast_arrays(*safe)), inside


def check_bounds(index: Array, n: int, negative: bool | str, what: str, *about: Any) -> Array:
    """Returns the index along an axis of length n, as int64, counted from its start. Raises IndexError where it is outside.

    negative: whether indices from -n on are valid; see `out_of_bounds`.
    """
    index = np.asarray(index)
    outside = np.less(index, -n if negative else 0) | np.greater_equal(index, n)
    if np.any(outside):
        raise IndexError(out_of_bounds(index[outside][0], n, negative, what))
    found = index.astype(np.int64)
    return np.where(found < 0, found + n, found)


def out_of_bounds(index: Any, n: int, negative: bool | str, what: str) -> str:
    """Returns the message for an index outside of an axis of length n.

    negative: "length" where any index at all means that the length does not fit; "divisor" where it stands for a divisor of 0;
    "operand" where it stands for values that an operation does not take, of which `what` is the message.
    """
    if negative == "operand":
        return what
    if negative == "divisor":
        return f"ZeroDivisionError: {what} is 0"
    if negative == "length":
        return f"{what}, which has length {n} in this call, does not fit"
    return f"index {index} is out of bounds of {what}, which has length {n}"


def gather(x: Array, indices: Sequence[Array], mode: str, shared: Sequence[int] = ()) -> Array:
    """Returns x[indexed dims, shared dims, rest] at the indices: [dims of the indices, rest]. `shared`: their dims among the indices'."""
    count = len(indices) + len(shared)
    at, inside = positions(indices, x.shape[: len(indices)], mode, list(zip(shared, x.shape[len(indices) : count], strict=True)))
    if 0 in x.shape[:count]:
        return np.zeros((*at[0].shape, *x.shape[count:]), x.dtype)
    found = x[at]
    if mode != "fill" or np.all(inside):
        return found
    inside = np.broadcast_to(inside, at[0].shape)
    return np.where(inside.reshape((*inside.shape, *[1] * (x.ndim - count))), found, np.zeros((), x.dtype))


def scatter(function: Any, x: Array, indices: Sequence[Array], u: Array, mode: str, shared: Sequence[int] = ()) -> Array:
    """Returns a copy of x[indexed dims, shared dims, rest] into which u[dims of the indices, rest] is combined; `function` None sets.

    Targets that occur more than once are sorted and reduced first: many times faster than one at a time.
    """
    count = len(indices) + len(shared)
    result = np.array(x, order="C")
    if not u.size or not result.size:
        return result
    at, inside = positions(indices, x.shape[: len(indices)], mode, list(zip(shared, x.shape[len(indices) : count], strict=True)))
    flat = np.ravel_multi_index([i.reshape(-1) for i in at], x.shape[:count])
    u = u.reshape(flat.size, -1)
    if mode == "fill":
        keep = np.broadcast_to(inside, at[0].shape).reshape(-1)
        flat, u = flat[keep], u[keep]
    rows = result.reshape(-1, u.shape[1])
    if function is None:
        rows[flat] = u
    elif flat.size:
        order = np.argsort(flat, kind="stable")
        flat = flat[order]
        starts = np.flatnonzero(np.concatenate(([True], flat[1:] != flat[:-1])))
        target = flat[starts]
        rows[target] = function(rows[target], function.reduceat(u[order], starts, axis=0, dtype=u.dtype))
    return result


def true_positions(c: Array) -> Array:
    """Returns the flat positions of true elements."""
    return np.flatnonzero(c).astype(np.int32)


# ---- convolution ------------------------------------------------------------------------------------------------------

COLUMNS = 1 << 22  # bytes of unfolded input at a time, sized for a second-level cache


def convolve(x: Array, f: Array, spatial: Sequence[tuple[int, int, int, int]], out: tuple[int, ...]) -> Array:
    """Returns x[batch, group, inner, in...] convolved with f[group, outer, inner, filter...]: [batch, group, outer, out...].

    spatial: (stride, dilation, in_dilation, pad) of each; windows are unfolded in chunks, each for one large product.
    """
    b, g, c = x.shape[:3]
    k, size, n = f.shape[1], f.shape[3:], len(out)
    taps, places = int(np.prod(size)), int(np.prod(out))
    if not (places and f.size and x.size):
        return np.zeros((b, g, k, *out), x.dtype)
    result = np.empty((b, g, k, *out), x.dtype)
    for d, (_, _, gap, _) in enumerate(spatial):
        if gap > 1:
            x = spread(x, 3 + d, gap)
    terms: list[Any] = [(0, ((0, 1),)), (0, ((1, 1),)), (0, ((2, 1),))]
    terms += [(-pad, ((3 + d, stride), (3 + n + d, dilation))) for d, (stride, dilation, _, pad) in enumerate(spatial)]
    windows = strided(x, terms, (b, g, c, *out, *size))
    outs, filters = range(3, 3 + n), range(3 + n, 3 + 2 * n)
    if c == k == 1 and taps <= places:  # depthwise: too thin for a matrix product
        part = np.empty_like(result)
        result[...] = 0
        for at in np.ndindex(*size):
            np.multiply(windows[(..., *at)], f[(slice(None), slice(None), slice(None), *at)].reshape(g, 1, *[1] * n), out=part)
            result += part
        return result
    step = max(1, COLUMNS // max(1, g * c * taps * places * x.itemsize))
    if taps <= places:
        left = f.reshape(g, k, c * taps)
        for i in range(0, b, step):
            piece = windows[i : i + step].transpose(0, 1, 2, *filters, *outs)
            np.matmul(left, piece.reshape(len(piece), g, c * taps, places), out=result[i : i + step].reshape(-1, g, k, places))
        return result
    right = f.reshape(g, k, c * taps).transpose(0, 2, 1)  # few outputs, many taps: the gradient of a filter
    for i in range(0, b, step):
        piece = windows[i : i + step].transpose(1, 0, *outs, 2, *filters)
        rows = np.matmul(piece.reshape(g, -1, c * taps), right).reshape(g, -1, places, k)
        result[i : i + step] = rows.transpose(1, 0, 3, 2).reshape(-1, g, k, *out)
    return result


# ---- control flow -----------------------------------------------------------------------------------------------------


def scan(
    body: Callable[..., Any],
    carries: Sequence[Array],
    xs: Sequence[Array],
    consts: Sequence[Array],
    trips: int,
    reverse: bool,
    stacked: Any,
) -> tuple[Array, ...]:
    """Runs `body` once per index of the first dim of `xs`; returns the last carries, then its other results, stacked.

    stacked: (shape, dtype) of one slice of each.
    """
    many = [np.empty((trips, *shape), dtype) for shape, dtype in stacked]
    count = len(carries)
    for t in reversed(range(trips)) if reverse else range(trips):
        results = body(*carries, *[x[t] for x in xs], *consts)
        carries = results[:count]
        for whole, part in zip(many, results[count:], strict=True):
            whole[t] = part
    return (*carries, *many)


def while_loop(
    condition: Callable[..., Any], body: Callable[..., Any], carries: Sequence[Array], consts: Sequence[Array]
) -> tuple[Array, ...]:
    """Runs `body` while `condition` holds; returns the last carries."""
    carries = tuple(carries)
    while condition(*carries, *consts)[0]:
        carries = tuple(body(*carries, *consts))
    return carries


def branch(p: Array, then: Callable[..., Any], otherwise: Callable[..., Any], args: Sequence[Array]) -> tuple[Array, ...]:
    """Returns the results of `then` or of `otherwise`."""
    return tuple((then if p else otherwise)(*args))


# ---- matrices, the last two dims ----------------------------------------------------------------------------------------


def cholesky(x: Array) -> Array:
    """Returns the lower triangular factors of symmetric positive definite matrices; NaN from the first negative pivot on."""
    if x.dtype.itemsize >= 4:
        try:
            return np.linalg.cholesky(x)
        except np.linalg.LinAlgError:
            pass
    result = np.zeros_like(x)
    for k in range(x.shape[-1]):
        rest = x[..., k:, k] - (result[..., k:, :k] * result[..., k : k + 1, :k]).sum(-1)
        result[..., k:, k] = rest / np.sqrt(rest[..., :1])
    return result


def triangular_solution(a: Array, b: Array, lower: bool, unit: bool) -> Array:
    """Returns the x with a x = b; of a one triangle is read, without its diagonal where that is `unit`."""
    n = a.shape[-1]
    x = np.empty(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + b.shape[-2:], b.dtype)
    x[...] = b
    for k in range(n) if lower else range(n - 1, -1, -1):
        done = slice(0, k) if lower else slice(k + 1, None)
        x[..., k, :] -= (a[..., k, None, done] @ x[..., done, :])[..., 0, :]
        if not unit:
            x[..., k, :] /= a[..., k, k, None]
    return x


def lu_factors(x: Array) -> tuple[Array, Array, Array]:
    """Returns L and U of matrices in one array, the row of x that each row is, and the sign of that permutation."""
    packed = x.copy()
    *counts, m, n = x.shape
    order, sign = np.broadcast_to(np.arange(m, dtype=np.int32), (*counts, m)).copy(), np.ones(counts, np.int32)
    for at in np.ndindex(*counts):
        a, p = packed[at], order[at]
        for k in range(min(m, n)):
            best = k + int(np.argmax(np.abs(a[k:, k])))
            if best != k:
                a[[k, best]], p[[k, best]] = a[[best, k]], p[[best, k]]
                sign[at] *= -1
            a[k + 1 :, k] /= a[k, k] or 1  # below a pivot of 0 are zeros
            a[k + 1 :, k + 1 :] -= a[k + 1 :, k, None] * a[k, k + 1 :]
    return packed, order, sign


def singular_values(x: Array) -> tuple[Array, Array, Array]:
    """Returns orthogonal columns, singular values, the largest first, and orthogonal columns whose product is x; NaN for x not finite."""
    u, s, v = _of_finite(lambda y: np.linalg.svd(y, full_matrices=False), x)
    return u, s, np.swapaxes(v, -1, -2)


def eigen(x: Array) -> tuple[Array, Array]:
    """Returns eigenvalues of symmetric matrices, the smallest first, and orthogonal eigenvectors; NaN for x not finite."""
    values, vectors = _of_finite(np.linalg.eigh, x)
    return values, vectors


def _of_finite(factors: Callable[[Array], tuple[Array, ...]], x: Array) -> list[Array]:
    """Returns the factors of matrices, NaN for those with elements that are not finite: LAPACK finds none, which NumPy makes an error."""
    wrong = ~np.isfinite(x).all((-1, -2))
    results = [*factors(np.where(wrong[..., None, None], 0, x) if wrong.any() else x)]
    for r in results:
        r[wrong] = np.nan
    return results
