"""Convolution and deconvolution in plain NumPy, by position, with their gradients: references that run none of the compiler.

Inputs are C D H W N, filters C T R S K, results K M P Q N; slices of the padded arrays are multiplied, one filter element at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.op_graph.axes import make_axes, make_axis

_SIDES = "dhw"
Taps = Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]


def _numbers(conv_params: Mapping[str, int], what: str) -> list[int]:
    return [conv_params[f"{what}_{side}"] for side in _SIDES]


def _taps(conv_params: Mapping[str, int], window: Sequence[int], count: Sequence[int]) -> Taps:
    """Yields each filter element with the slices of the padded longer array that it pairs with the `count` elements of the shorter one."""
    strides, dilations = _numbers(conv_params, "str"), _numbers(conv_params, "dil")
    for tap in itertools.product(*map(range, window)):
        starts = [t * d for t, d in zip(tap, dilations, strict=True)]
        spans = [slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(starts, count, strides, strict=True)]
        yield tap, (slice(None), *spans, slice(None))


def _padded(conv_params: Mapping[str, int], x: np.ndarray) -> np.ndarray:
    return np.pad(x, [(0, 0), *((p, p) for p in _numbers(conv_params, "pad")), (0, 0)])


def _unpadded(conv_params: Mapping[str, int], x: np.ndarray) -> np.ndarray:
    pads = _numbers(conv_params, "pad")
    return x[(slice(None), *(slice(p, n - p) for p, n in zip(pads, x.shape[1:4], strict=True)), slice(None))]


def _length(n: int, window: int, pad: int, stride: int, dilation: int, deconv: bool) -> int:
    span = (window - 1) * dilation + 1
    return (n - 1) * stride + span - 2 * pad if deconv else (n + 2 * pad - span) // stride + 1


class ConvParams:
    """Sizes of a convolution (with `deconv` a deconvolution); `dimI dimF dimO`, axes `ax_i ax_f ax_o` and `conv_params` are derived."""

    def __init__(
        self,
        C: int = 1,
        N: int = 1,
        K: int = 1,
        D: int = 1,
        H: int = 1,
        W: int = 1,
        T: int = 1,
        R: int = 1,
        S: int = 1,
        pad_d: int = 0,
        pad_h: int = 0,
        pad_w: int = 0,
        str_d: int = 1,
        str_h: int = 1,
        str_w: int = 1,
        dil_d: int = 1,
        dil_h: int = 1,
        dil_w: int = 1,
        deconv: bool = False,
    ):
        pads, strides, dilations = (pad_d, pad_h, pad_w), (str_d, str_h, str_w), (dil_d, dil_h, dil_w)
        self.conv_params = {
            f"{what}_{side}": n
            for what, numbers in (("pad", pads), ("str", strides), ("dil", dilations))
            for side, n in zip(_SIDES, numbers, strict=True)
        }
        M, P, Q = (_length(n, w, p, s, d, deconv) for n, w, p, s, d in zip((D, H, W), (T, R, S), pads, strides, dilations, strict=True))
        self.dimI, self.dimF, self.dimO = (C, D, H, W, N), (C, T, R, S, K), (K, M, P, Q, N)
        self.batch_axis = make_axis(N, name="N")
        self.ax_i, self.ax_o = (
            make_axes([*(make_axis(n, name=name) for name, n in zip("CDHW", dims, strict=False)), self.batch_axis])
            for dims in (self.dimI, self.dimO)
        )
        self.ax_f = make_axes([make_axis(n, name=name) for name, n in zip("CTRSK", self.dimF, strict=True)])


def reference_conv(
    dimI: Sequence[int], dimF: Sequence[int], dimO: Sequence[int], conv_params: Mapping[str, int], valI: Any, valF: Any, valE: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the convolution of valI with valF, and for an error valE of its shape the gradients of both: (O, dI, dF)."""
    x, f, e = (np.asarray(v, np.float64).reshape(d) for v, d in ((valI, dimI), (valF, dimF), (valE, dimO)))
    wide = _padded(conv_params, x)
    out, dx, df = np.zeros(tuple(dimO)), np.zeros_like(wide), np.zeros_like(f)
    for (t, r, s), at in _taps(conv_params, dimF[1:4], dimO[1:4]):
        out += np.einsum("cmpqn,ck->kmpqn", wide[at], f[:, t, r, s])
        dx[at] += np.einsum("kmpqn,ck->cmpqn", e, f[:, t, r, s])
        df[:, t, r, s] = np.einsum("cmpqn,kmpqn->ck", wide[at], e)
    return out, _unpadded(conv_params, dx), df


def _reach(conv_params: Mapping[str, int], x: np.ndarray, f: np.ndarray) -> list[int]:
    """Returns the lengths of a deconvolution's result before padding is removed."""
    strides, dilations = _numbers(conv_params, "str"), _numbers(conv_params, "dil")
    return [_length(n, w, 0, s, d, True) for n, w, s, d in zip(x.shape[1:4], f.shape[1:4], strides, dilations, strict=True)]


def reference_deconv_fprop(conv_params: Mapping[str, int], valI: Any, valF: Any) -> np.ndarray:
    """Returns the deconvolution of valI with valF."""
    x, f = np.asarray(valI, np.float64), np.asarray(valF, np.float64)
    out = np.zeros((f.shape[4], *_reach(conv_params, x, f), x.shape[4]))
    for (t, r, s), at in _taps(conv_params, f.shape[1:4], x.shape[1:4]):
        out[at] += np.einsum("cdhwn,ck->kdhwn", x, f[:, t, r, s])
    return _unpadded(conv_params, out)


def reference_deconv_bprop(conv_params: Mapping[str, int], valE: Any, valI: Any, valF: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns the gradients of both operands for an error valE of the result's shape: (dI, dF)."""
    e, x, f = (np.asarray(v, np.float64) for v in (valE, valI, valF))
    wide = _padded(conv_params, e)
    dx, df = np.zeros_like(x), np.zeros_like(f)
    for (t, r, s), at in _taps(conv_params, f.shape[1:4], x.shape[1:4]):
        dx += np.einsum("kdhwn,ck->cdhwn", wide[at], f[:, t, r, s])
        df[:, t, r, s] = np.einsum("cdhwn,kdhwn->ck", x, wide[at])
    return dx, df
