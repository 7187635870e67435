"""Layers without space or time: Linear, Bias, Affine, Activation, Dropout, LookupTable, Embedding, Preprocess."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import ngraph as ng
from ngraph.errors import AxisError, GraphError
from ngraph.frontends.neon.axis import out_axis, recurrent_axis
from ngraph.frontends.neon.bounds import ABOVE_0, COUNT, INTEGER, WHOLE, check
from ngraph.frontends.neon.calls import one_of, refuse, speaker, wrong_kind
from ngraph.frontends.neon.initializers import GaussianInit, first_value
from ngraph.frontends.neon.layer import Layer, computed, scoped, wide
from ngraph.frontends.neon.norms import BatchNorm
from ngraph.op_graph.arguments import shown
from ngraph.op_graph.axes import Axes, Axis, make_axis, show_axes
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import show_input


class Preprocess(Layer):
    """Any function of an op as a layer."""

    def __init__(self, functor: Callable[[Any], Any], name: str | None = None):
        super().__init__(name)
        self.functor = functor

    @scoped
    def __call__(self, in_obj: Any) -> Any:
        return self.functor(in_obj)


class Linear(Layer):
    """W x: each output element is a weighted sum over all features of x.

    init: initial value of the weights, whose axes are the output's and the duals of the input's.
    nout: number of outputs, along an axis named as the input's only feature axis (else F); or axes: the output axes themselves.
    keep_axes: axes of x that are not summed: those of batch and time by default.
    Raises ArgumentError unless exactly one of nout and axes is given, AxisError for axes that are both kept and outputs.
    """

    def __init__(self, init: Any, nout: int | None = None, axes: Any = None, keep_axes: Any = None, name: str | None = None):
        super().__init__(name)
        if (nout is None) == (axes is None):
            name = speaker(type(self).__name__)
            number = next((v for v in (init,) if isinstance(v, int) and not isinstance(v, bool) and v > 0), None)
            says = f"; {number} is taken for the first value of its weights" if nout is None and number is not None else ""
            fix = f"{name}(nout={number or 10}), or {name}(axes=[ax.Y])" if nout is None else "leave out one of the two"
            raise refuse(name, f"it takes one of nout and axes, and got {'neither' if nout is None else 'both'}{says}", fix)
        if nout is not None:
            check(type(self).__name__, COUNT, nout=nout)
        self.init, self.nout, self.keep_axes = init, nout, keep_axes
        self.axes = None if axes is None else Axes(axes)

    @scoped
    def __call__(self, in_obj: Op) -> Op:
        x = computed(in_obj)
        keep = Axes(a for a in x.axes if a.is_batch or a.is_recurrent) if self.keep_axes is None else Axes(self.keep_axes)
        out = self.axes if self.axes is not None else Axes(out_axis(x, self.nout or 0))
        both = [a for a in out if (a in keep or a.is_batch or a.is_recurrent) and a in x.axes]
        if both:
            raise AxisError(
                f"{self.path}({x.label}): {show_axes(both)} is kept, so cannot be put out",
                details=(show_input(x),),
                fix="give the output other axes, or keep_axes without it",
            )
        ins = Axes(a for a in x.axes if a not in keep)
        return ng.dot(self.parameter("W", Axes.linear_map_axes(ins, out), self.init), x)

    def _arguments(self) -> str:
        return f"{self.nout}" if self.axes is None else show_axes(self.axes)


class Bias(Layer):
    """x + b. `init` None makes zeros, which are trained. shared: one number for each channel, where there is a channel axis."""

    def __init__(self, init: Any = None, shared: bool = True, name: str | None = None):
        super().__init__(name)
        self.init, self.shared = init, shared

    @scoped
    def __call__(self, in_obj: Op) -> Op:
        channel = in_obj.axes.channel_axis()
        axes = Axes(channel) if self.shared and channel is not None else in_obj.axes.feature_axes()
        return in_obj + self.parameter("bias", axes, self.init)


class Activation(Layer):
    """A function of each element, such as `Rectlin()`; None is the identity."""

    def __init__(self, transform: Callable[[Op], Op] | None, name: str | None = None):
        super().__init__(name)
        self.transform = transform

    @scoped
    def __call__(self, in_obj: Op) -> Op:
        return in_obj if self.transform is None else self.transform(in_obj)

    def _arguments(self) -> str:
        return repr(self.transform)


def norm_of(batch_norm: Any, bias_init: Any, name: str) -> Any:
    """Returns the normalising layer for `batch_norm=`: none, a new BatchNorm, or the given layer."""
    if not batch_norm:
        return None
    if bias_init is not None:
        why = f"batch_norm has a shift of its own, so bias_init={bias_init!r} would do nothing"
        raise refuse(name, why, "leave out bias_init, or batch_norm")
    return batch_norm if isinstance(batch_norm, Layer) else BatchNorm()


class Affine(Layer):
    """activation(W x + b), or activation(batch_norm(W x)).

    weight_init, nout, axes: as for Linear. bias_init: initial value of the bias; None makes zeros, which are trained.
    batch_norm: True, or a BatchNorm; then there is no bias, and a bias_init raises ArgumentError.
    """

    def __init__(
        self,
        weight_init: Any = None,
        nout: int | None = None,
        bias_init: Any = None,
        activation: Callable[[Op], Op] | None = None,
        batch_norm: Any = False,
        axes: Any = None,
        name: str | None = None,
        bias: bool = True,
        init: Any = None,
    ):
        super().__init__(name)
        self.batch_norm = norm_of(batch_norm, bias_init, "Affine")
        first = weight_init if weight_init is not None else init
        self.linear = Linear(first if first is not None else GaussianInit(), nout, axes)
        self.shift = Bias(bias_init) if bias and self.batch_norm is None else None
        self.activation = Activation(activation) if activation is not None else None

    @scoped
    def __call__(self, in_obj: Op) -> Op:
        x = in_obj
        for part in (self.linear, self.batch_norm, self.shift, self.activation):
            x = x if part is None else part(x)
        return x

    def _arguments(self) -> str:
        parts = [
            self.linear._arguments(),
            "batch_norm" if self.batch_norm else "",
            repr(self.activation.transform) if self.activation else "",
        ]
        return ", ".join(p for p in parts if p)


class Dropout(Layer):
    """Keeps each element with probability `keep`, divided by it; the others become 0; masks differ between examples of a batch.

    In inference it is the identity. seed: makes the masks independent of other random ops.
    Source: N. Srivastava and others, "Dropout" (JMLR 2014).
    """

    def __init__(self, keep: float = 0.5, seed: int | None = None, name: str | None = None):
        super().__init__(name)
        check("Dropout", ABOVE_0, keep=keep)
        check("Dropout", INTEGER, seed=seed)
        self.keep, self.seed = keep, seed

    @scoped
    def __call__(self, in_obj: Op) -> Op:
        if self.inference_mode or self.keep == 1:
            return in_obj
        return in_obj * (ng.bernoulli(in_obj, self.keep, dtype=in_obj.dtype, seed=self.seed) / self.keep)

    def _arguments(self) -> str:
        return f"keep={self.keep}"


class LookupTable(Layer):
    """A row of a table for each integer: an embedding. Input [N] or [REC, N], output [F, ...]; input of floats warns, and is read as int32.

    vocab_size, embed_dim: rows and their length. update: whether the table is trained.
    pad_idx: a row that starts as zeros and is not trained; None for none.
    """

    def __init__(
        self, vocab_size: int, embed_dim: int, init: Any, update: bool = True, pad_idx: int | None = None, name: str | None = None
    ):
        super().__init__(name)
        check("LookupTable", COUNT, vocab_size=vocab_size, embed_dim=embed_dim)
        check("LookupTable", WHOLE, pad_idx=pad_idx)
        if pad_idx is not None and not 0 <= pad_idx < vocab_size:
            why = f"pad_idx {pad_idx} is none of the {vocab_size} rows"
            raise refuse("LookupTable", why, f"take one from 0 to {vocab_size - 1}")
        self.vocab_size, self.embed_dim, self.init, self.update, self.pad_idx = vocab_size, embed_dim, init, update, pad_idx

    def _first(self, axes: Axes) -> Any:
        value = first_value(self.init, f"{self.path}/W")
        table = np.array(np.broadcast_to(value(axes) if callable(value) else value, axes.lengths))
        if self.pad_idx is not None:
            table[self.pad_idx] = 0
        return table

    @property
    def axes(self) -> Axes:
        """The table's axes: its rows, then F."""
        return Axes([make_axis(self.vocab_size, name="vocabulary"), make_axis(self.embed_dim, name="F")])

    @scoped
    def __call__(self, in_obj: Op) -> Op:
        table = self.parameter("W", self.axes, self._first, trainable=self.update)
        index = ng.cast(in_obj, ng.int32) if in_obj.dtype.kind == "bool" else in_obj
        return ng.lookuptable(table, index, [self.axes[1], *index.axes], update=self.update, pad_idx=self.pad_idx)

    def _arguments(self) -> str:
        return f"{self.vocab_size}, {self.embed_dim}"


class Embedding(Layer):
    """A LookupTable plus positions: for texts of integers [REC, N] it gives [F, REC, N].

    positions: "learned", up to `max_len` of them, "sinusoidal", or None.
    start: an op with the number of the first position, for text in several parts.
    Source of the sinusoids: A. Vaswani and others, "Attention is all you need" (2017).
    """

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        init: Any = None,
        positions: str | None = "learned",
        max_len: int = 512,
        dropout: float = 1.0,
        name: str | None = None,
    ):
        super().__init__(name)
        one_of("Embedding", "positions", positions, ("learned", "sinusoidal", None))
        check("Embedding", COUNT, max_len=max_len)
        check("Embedding", ABOVE_0, dropout=dropout)
        self.init = GaussianInit(0.0, 0.02) if init is None else init
        self.table, self.positions, self.max_len = LookupTable(vocab_size, embed_dim, self.init), positions, max_len
        self.dropout = Dropout(dropout)

    @scoped
    def __call__(self, in_obj: Op, start: Any = None) -> Op:
        y = self.table(in_obj)
        if self.positions is None:
            return self.dropout(y)
        time, features = recurrent_axis(in_obj, self.path), y.axes[0]
        if self.positions == "learned" and (time.length or 0) > self.max_len:
            raise AxisError(f"{self.path}({in_obj.label}): {time!r} is longer than max_len={self.max_len}", fix="raise max_len")
        at = ng.iota(time) if start is None else ng.iota(time) + ng.as_op(start)
        return self.dropout(y + self._places(at, features))

    def _places(self, at: Op, features: Axis) -> Op:
        if self.positions == "learned":
            axes = Axes([make_axis(self.max_len, name="positions"), features])
            return ng.lookuptable(self.parameter("positions", axes, self.init), at, [features, *at.axes])
        k = ng.iota(features)
        rate = ng.exp(ng.cast(ng.floordivide(k, 2), ng.float32) * (-2 * float(np.log(10000.0)) / len(features)))
        angle = ng.cast(at, ng.float32) * rate
        return computed(ng.where(ng.equal(ng.mod(k, 2), 0), ng.sin(angle), ng.cos(angle)))


def _itself(x: Any) -> Any:
    return x


class TiedLinear(Layer):
    """Scores of all words of a LookupTable or Embedding: its table, transposed, times x. The result has the axis Y.

    Source: O. Press, L. Wolf, "Using the output embedding to improve language models" (2017).
    """

    def __init__(self, table: LookupTable | Embedding, name: str | None = None):
        super().__init__(name)
        if not isinstance(table, (LookupTable, Embedding)):
            raise wrong_kind(
                "TiedLinear",
                f"the table is {shown(table)}, which is neither a LookupTable nor an Embedding",
                "pass the LookupTable or Embedding that it is tied to",
            )
        lookup = table.table if isinstance(table, Embedding) else table
        self.tied: Callable[[], LookupTable] = partial(_itself, lookup)  # no layer of this one

    @scoped
    def __call__(self, in_obj: Op) -> Op:
        table = self.tied()
        if "W" not in table.weights:
            raise GraphError(f"{self.path} is tied to a table that has not been called yet", fix="call the embedding first")
        rows = make_axis(table.vocab_size, name="Y")
        x = ng.map_roles(in_obj, {in_obj.axes.feature_axes()[0]: "F"})
        return wide(ng.dot(computed(ng.cast_axes(table.weights["W"], [rows, table.axes[1]])), x))
