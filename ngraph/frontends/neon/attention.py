"""Attention with named axes: multi-head attention, with a key-value cache for decoding, and the transformer block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ngraph as ng
from ngraph.errors import AxisError, GraphError
from ngraph.frontends.neon.activations import Gelu
from ngraph.frontends.neon.axis import feature_axis, recurrent_axis
from ngraph.frontends.neon.bounds import COUNT, check
from ngraph.frontends.neon.initializers import GlorotInit
from ngraph.frontends.neon.layer import Layer, computed, scoped
from ngraph.frontends.neon.layers import Affine, Dropout
from ngraph.frontends.neon.norms import LayerNorm
from ngraph.op_graph.axes import Axes, Axis, make_axis, show_axes
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import find_axis, show_input


class Growing:
    """The state of step-by-step decoding: `at`, an op, is the position of the first new word; `length`, the size of the cache.

    Layers called with it cache keys and values of earlier words in the transformer, for `batch` texts at a time, and attend to as much of
    the cache as is used. `at` has no axis, or `batch`: then each text has a length of its own. A call with a position from `length` on
    ends with a BoundsError.
    """

    def __init__(self, length: int, at: Op, batch: Axis):
        if batch.length is None:
            raise AxisError(f"Growing: the cache needs the length of {batch.label}", fix="give it: ng.make_axis(1, name='N')")
        check("Growing", COUNT, length=length)
        at = ng.as_op(at)
        if any(a != batch for a in at.axes) or not at.dtype.is_integer:
            what = f"Growing: {at.label} is {at.dtype.name}{list(at.axes)}, no position"
            raise AxisError(what, fix=f"give one whole number for all texts, or one along {batch.label} for each")
        self.length, self.at, self.batch = length, ng.cast(ng.as_op(at), ng.int32), batch


class MultiHeadAttention(Layer):
    """Multi-head attention of each time step to the time steps of x, or of `memory`, with `heads` heads. [F, REC, N] in and out.

    heads: their number; head_size: features of each, F / heads by default. init: initial values of the four weights.
    causal: a step attends to itself and earlier ones. dropout: the probability of keeping an output. bias: whether products have
    one.
    Call: (x, memory=None, mask=None, growing=None). mask: bool, True where a step attends, along any of N, REC (of x) and the memory's
    time axis; for x itself that is `REC - 1`. growing: see `Growing`; x then has the new time steps only.
    Raises AxisError. Source: A. Vaswani and others, "Attention is all you need" (2017).
    """

    def __init__(
        self,
        heads: int,
        head_size: int | None = None,
        init: Any = None,
        causal: bool = False,
        dropout: float = 1.0,
        bias: bool = True,
        name: str | None = None,
    ):
        super().__init__(name)
        check("MultiHeadAttention", COUNT, heads=heads, head_size=head_size)
        self.heads, self.head_size, self.causal, self.bias = heads, head_size, causal, bias
        self.init = GlorotInit() if init is None else init
        self.dropout = Dropout(dropout)

    def _product(self, name: str, x: Op, ins: Axes, outs: Axes) -> Op:
        y = ng.dot(self.parameter(f"W_{name}", Axes.linear_map_axes(ins, outs), self.init), x)
        return y + self.parameter(f"b_{name}", outs, 0.0) if self.bias else y

    @scoped
    def __call__(self, in_obj: Op, memory: Op | None = None, mask: Any = None, growing: Growing | None = None) -> Op:
        x = computed(in_obj)
        features, time = feature_axis(x, self.path), recurrent_axis(x, self.path)
        if self.head_size is None and len(features) % self.heads:
            raise AxisError(f"{self.path}({in_obj.label}): {features!r} does not divide into {self.heads} heads", fix="give head_size")
        head = make_axis(self.heads, name="head")
        size = make_axis(self.head_size or len(features) // self.heads, name="head_feature")
        source = x if memory is None else computed(memory)
        q = self._product("q", x, Axes([features]), Axes([head, size]))
        theirs = feature_axis(source, self.path)
        k, v = (self._product(n, source, Axes([theirs]), Axes([head, size])) for n in "kv")
        keys: Axis = recurrent_axis(source, self.path)
        causal = self.causal
        if growing is not None and memory is None:
            return self._out(self._grown(q, k, v, size, time, growing), features, in_obj)
        if memory is not None and keys == time:
            k, v = (ng.map_roles(t, {keys: time - 1}) for t in (k, v))
            keys = time - 1
        if mask is not None:
            mask = self._mask(ng.as_op(mask), q, time, time - 1 if memory is None else keys)
        looked = ng.attention(q, k, v, features=size, queries=time, keys=keys if memory is not None else None, mask=mask, causal=causal)
        return self._out(looked, features, in_obj)

    def _mask(self, mask: Op, q: Op, time: Axis, keys: Axis) -> Op:
        known = [*(a for a in q.axes if a.is_batch), time, keys]
        unknown = [a for a in mask.axes if a not in known]
        if unknown or mask.dtype is not ng.bool_:
            wrong = f"{show_axes(unknown)}, which is none of {show_axes(known)}" if unknown else f"{mask.dtype.name} elements"
            fix = "give the mask of past steps the axis REC - 1" if unknown else "compare, as in mask > 0: True is where a step may look"
            raise AxisError(f"{self.path}: the mask has {wrong}", details=(show_input(mask),), fix=fix)
        return mask

    def _out(self, looked: Op, features: Axis, x: Op) -> Op:
        ins = Axes(a for a in looked.axes if a.name in ("head", "head_feature"))
        y = self._product("o", looked, ins, Axes([features]))
        return self.dropout(ng.axes_with_order(y, x.axes))

    def _grown(self, q: Op, k: Op, v: Op, size: Axis, time: Axis, growing: Growing) -> Op:
        """Writes new keys and values into the cache; queries attend to positions up to their own."""
        past = make_axis(growing.length, name="past")
        places = ng.iota(time) + growing.at
        used = ng.max(places, reduction_axes=places.axes) + 1
        filled, kept = [], []
        for name, new in (("keys", k), ("values", v)):
            axes = Axes([*(a for a in new.axes if a not in (time, growing.batch)), past, growing.batch])
            cache = self.parameter(f"{name}_{growing.length}_{growing.batch.length}", axes, 0.0, trainable=False)
            filled.append(ng.put(cache, places, ng.cast(new, cache.dtype), past, mode="raise"))
            kept.append(ng.assign(cache, filled[-1]))
        k, v = (computed(f[{past: slice(used)}]) for f in filled)
        seen = ng.less_equal(ng.iota(find_axis(k, past, "Growing")), places)
        looked = ng.attention(q, k, v, features=size, queries=time, keys=past, mask=seen)
        return ng.sequential([ng.doall(kept), looked])

    def _arguments(self) -> str:
        return f"{self.heads} heads" + (", causal" if self.causal else "")


class TransformerBlock(Layer):
    """x + attention(norm(x)), then x + feed_forward(norm(x)): the block of GPT-2; with `cross`, attention to a memory in between.

    heads, init, causal, dropout (the probability of keeping): as for MultiHeadAttention. hidden: features inside the feed-forward part, 4 F
    by default. activation: Gelu(). norm: makes a normalising layer. Call: (x, memory=None, mask=None, growing=None).
    Source: A. Radford and others, "Language models are unsupervised multitask learners" (2019).
    """

    def __init__(
        self,
        heads: int,
        hidden: int | None = None,
        init: Any = None,
        causal: bool = False,
        dropout: float = 1.0,
        activation: Callable[[Op], Op] | None = None,
        cross: bool = False,
        norm: Callable[[], Layer] = LayerNorm,
        name: str | None = None,
    ):
        super().__init__(name)
        self.hidden, self.init = hidden, GlorotInit() if init is None else init
        self.activation = Gelu() if activation is None else activation
        self.norm_1, self.attention = norm(), MultiHeadAttention(heads, None, self.init, causal, dropout)
        self.norm_m: Layer | None = norm() if cross else None
        self.cross: MultiHeadAttention | None = MultiHeadAttention(heads, None, self.init, False, dropout) if cross else None
        self.norm_2, self.dropout = norm(), Dropout(dropout)
        self.expand: Affine | None = None
        self.contract: Affine | None = None

    @scoped
    def __call__(self, in_obj: Op, memory: Op | None = None, mask: Any = None, growing: Growing | None = None) -> Op:
        features = feature_axis(in_obj, self.path)
        if (memory is None) == (self.cross is not None):
            wrong = "has cross=True, and no memory" if memory is None else "has a memory, and no cross=True"
            raise GraphError(f"{self.path}({in_obj.label}) {wrong}", fix="give both, or neither")
        if self.expand is None:
            inner = make_axis(self.hidden or 4 * len(features), name="hidden")
            self.expand = Affine(self.init, axes=[inner], activation=self.activation)
            self.contract = Affine(self.init, axes=[features])
        assert self.contract is not None
        x = in_obj + self.attention(self.norm_1(in_obj), mask=mask, growing=growing)
        if self.cross is not None and self.norm_m is not None:
            x = x + self.cross(self.norm_m(x), memory)
        y = self.contract(self.expand(self.norm_2(x)))
        return x + self.dropout(ng.axes_with_order(y, x.axes))

    def _arguments(self) -> str:
        return self.attention._arguments()
