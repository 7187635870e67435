"""Normalisation: BatchNorm with running averages; LayerNorm, GroupNorm, InstanceNorm and RMSNorm, with statistics of single examples."""

from __future__ import annotations

from typing import Any

import ngraph as ng
from ngraph.errors import AxisError
from ngraph.frontends.neon.axis import named_axes
from ngraph.frontends.neon.bounds import COUNT, NOT_NEGATIVE, SHARE, check
from ngraph.frontends.neon.layer import Layer, computed, scoped, wide
from ngraph.op_graph.axes import Axes, make_axis
from ngraph.op_graph.op import Op


class BatchNorm(Layer):
    """gamma * (x - mean) / sqrt(variance + eps) + beta, for each channel (each feature where there is no channel axis).

    Training computes mean and variance over all other axes, those of batch and time included, and keeps running averages
    (rho * old + (1 - rho) * new, from 0 and 1) for inference. init_gamma, init_beta: initial values.
    Source: S. Ioffe, C. Szegedy, "Batch normalization" (2015).
    """

    def __init__(self, rho: float = 0.9, eps: float = 1e-3, init_gamma: Any = 1.0, init_beta: Any = 0.0, name: str | None = None):
        super().__init__(name)
        check("BatchNorm", SHARE, rho=rho)
        check("BatchNorm", NOT_NEGATIVE, eps=eps)
        self.rho, self.eps, self.init_gamma, self.init_beta = rho, eps, init_gamma, init_beta
        self._batch_index: Any = None

    def set_tuning_iteration(self, batch_index: Any) -> None:
        """Makes later training calls average all batches equally: `batch_index`, a number or an op, is their count. None ends it."""
        self._batch_index = batch_index

    @scoped
    def __call__(self, in_obj: Op) -> Op:
        x = wide(in_obj)
        channel = x.axes.channel_axis()
        axes = Axes(channel) if channel is not None else x.axes.feature_axes()
        gamma, beta = (wide(self.parameter(n, axes, first)) for n, first in (("gamma", self.init_gamma), ("beta", self.init_beta)))
        means, variances = (self.parameter(n, axes, first, trainable=False) for n, first in (("gmean", 0.0), ("gvar", 1.0)))
        if self.inference_mode:
            scale = gamma / ng.sqrt(variances + self.eps)
            return ng.axes_with_order(computed((x - means) * scale + beta), in_obj.axes)
        mean = ng.mean(x, out_axes=axes)
        apart = x - mean
        variance = ng.mean(apart * apart, out_axes=axes)
        y = apart * (gamma / ng.sqrt(variance + self.eps)) + beta
        updates = [ng.assign(old, self._running(old, new)) for old, new in ((means, mean), (variances, variance))]
        return ng.sequential([*updates, ng.axes_with_order(computed(y), in_obj.axes)])

    def _running(self, old: Op, new: Op) -> Op:
        if self._batch_index is None:
            return old * self.rho + new * (1 - self.rho)
        seen = ng.cast(ng.as_op(self._batch_index), ng.float32)
        return (old * seen + new) / (seen + 1.0)

    def _arguments(self) -> str:
        return f"rho={self.rho}, eps={self.eps}"


class _OverFeatures(Layer):
    """Statistics of each example over `axes` (all feature axes by default), then gamma and beta along `affine_axes`."""

    centred, shifted = True, True

    def __init__(self, axes: Any = None, eps: float = 1e-5, init_gamma: Any = 1.0, init_beta: Any = 0.0, name: str | None = None):
        super().__init__(name)
        check(type(self).__name__, NOT_NEGATIVE, eps=eps)
        self.axes, self.eps, self.init_gamma, self.init_beta = axes, eps, init_gamma, init_beta

    def _normal(self, x: Op, over: Axes) -> Op:
        keep = Axes(a for a in x.axes if a not in over)
        apart = x - ng.mean(x, out_axes=keep) if self.centred else x
        return apart / ng.sqrt(ng.mean(apart * apart, out_axes=keep) + self.eps)

    def _over(self, x: Op) -> Axes:
        over = x.axes.feature_axes() if self.axes is None else named_axes(x, self.axes)
        if not over:
            raise AxisError(f"{self.path}({x.label}): {list(x.axes)} has none of the axes to normalise over", fix="give axes=[...]")
        return over

    def _affine(self, y: Op, axes: Axes) -> Op:
        y = y * wide(self.parameter("gamma", axes, self.init_gamma))
        return y + wide(self.parameter("beta", axes, self.init_beta)) if self.shifted else y

    @scoped
    def __call__(self, in_obj: Op) -> Op:
        x = wide(in_obj)
        over = self._over(x)
        return ng.axes_with_order(computed(self._affine(self._normal(x, over), over)), in_obj.axes)

    def _arguments(self) -> str:
        return "" if self.axes is None else f"{list(self.axes)}"


class LayerNorm(_OverFeatures):
    """(x - mean) / sqrt(variance + eps) of each example (and time) over its features, times gamma, plus beta.

    axes: of the statistics; all but batch and time by default. Source: J. Ba and others, "Layer normalization" (2016).
    """


class RMSNorm(_OverFeatures):
    """x / sqrt(mean of squares + eps) over features, times gamma. Source: B. Zhang, R. Sennrich, "Root mean square layer norm" (2019)."""

    centred, shifted = False, False


class GroupNorm(_OverFeatures):
    """Like LayerNorm, over groups of channels and space; gamma and beta for each channel. InstanceNorm has one channel in each group.

    groups: their number, a divisor of the channels. Raises AxisError. Source: Y. Wu, K. He, "Group normalization" (2018).
    """

    def __init__(self, groups: int | None, eps: float = 1e-5, init_gamma: Any = 1.0, init_beta: Any = 0.0, name: str | None = None):
        super().__init__(None, eps, init_gamma, init_beta, name)
        check("GroupNorm", COUNT, groups=groups)
        self.groups = groups

    @scoped
    def __call__(self, in_obj: Op) -> Op:
        x = wide(in_obj)
        channel = x.axes.channel_axis()
        if channel is None:
            raise AxisError(f"{self.path}({x.label}): {list(x.axes)} has no channel axis", fix="name one of them C")
        groups = len(channel) if self.groups is None else self.groups
        if len(channel) % groups:
            raise AxisError(f"{self.path}({x.label}): {channel!r} is not made of {groups} equal groups", fix="take a divisor")
        parts = Axes([make_axis(groups, name="norm_group"), make_axis(len(channel) // groups, name="norm_member")])
        apart = Axes(p for a in x.axes for p in (parts if a == channel else (a,)))
        split = ng.unflatten(x, apart)
        over = Axes(a for a in split.axes.feature_axes() if a != parts[0])
        y = ng.cast_axes(ng.flatten(self._normal(split, over), parts), Axes(a for a in x.axes))
        return ng.axes_with_order(computed(self._affine(y, Axes(channel))), in_obj.axes)

    def _arguments(self) -> str:
        return f"{self.groups}"


class InstanceNorm(GroupNorm):
    """GroupNorm with a group for each channel. Source: D. Ulyanov and others, "Instance normalization" (2016)."""

    def __init__(self, eps: float = 1e-5, name: str | None = None):
        super().__init__(None, eps, name=name)

    def _arguments(self) -> str:
        return ""
