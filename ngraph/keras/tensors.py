"""Tensors of the Keras backend: arrays that are known, and values of a computation that is being read.

A backend function is written once, over the tensors of `frontends.positional`. `apply` either adds its ops to the computation that is being
read (a train step, the shape of a layer's result), or makes a computation of them alone, runs it by NumPy calls and keeps it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph.errors import UnsupportedError
from ngraph.frontends.positional.values import ConstantArray, Sizes, Tensor
from ngraph.keras.traces import KerasTrace, NotTraceable, TraceScope, record, traces
from ngraph.op_graph.expr import Expr, ExprLike
from ngraph.op_graph.op import Op
from ngraph.ops.rearrange import broadcast
from ngraph.transformers.base import allocate_transformer

MOST_KEPT = 4096  # computations of single functions that are kept, some 20 KB each: a model run op by op has a few hundred


class OpenLength:
    """The length of a dim that is not fixed while a computation is read; arithmetic gives lengths, a comparison is a question of the call.

    Where a number is needed (range, NumPy), the computation is read again with the length as it is in this call.
    """

    __slots__ = ("g", "size")

    def __init__(self, g: KerasTrace, size: ExprLike):
        self.g, self.size = g, size

    def __index__(self) -> int:
        return self.g.number(self.size)

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.g.number(self.size))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(int(self), dtype)

    def _with(self, other: Any, function: Callable[[Any, Any], Any], turned: bool = False) -> Any:
        if isinstance(other, (float, BackendTensor)):
            mine = self.tensor() if isinstance(other, BackendTensor) else float(self)
            return function(other, mine) if turned else function(mine, other)
        if not isinstance(other, (int, np.integer, OpenLength)):
            return NotImplemented
        b = size_of(other)
        return length(self.g, function(b, self.size) if turned else function(self.size, b))

    def tensor(self) -> BackendTensor:
        """Returns the length as an int32 scalar."""
        from_size = self.g.size_tensor(_sizes(self.size))
        return BackendTensor(t=from_size, g=self.g)

    def __truediv__(self, other: Any) -> Any:
        return float(self) / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / float(self)

    def __neg__(self) -> Any:
        return length(self.g, self.size * -1)

    def _compared(self, kind: str, other: Any, turned: bool = False) -> bool:
        a, b = (size_of(other), self.size) if turned else (self.size, size_of(other))
        return self.g.truth(kind, a, b)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (int, np.integer, OpenLength)) and self._compared("eq", other)

    def __lt__(self, other: Any) -> bool:
        return self._compared("lt", other)

    def __le__(self, other: Any) -> bool:
        return self._compared("le", other)

    def __gt__(self, other: Any) -> bool:
        return self._compared("lt", other, True)

    def __ge__(self, other: Any) -> bool:
        return self._compared("le", other, True)

    def __hash__(self) -> int:
        return hash(self.size)

    def __bool__(self) -> bool:
        return not self._compared("eq", 0)

    def __repr__(self) -> str:
        return "None"  # Keras's word for it, in errors that show shapes


def _operator(function: Callable[[Any, Any], Any], turned: bool) -> Callable[[Any, Any], Any]:
    return lambda self, other: self._with(other, function, turned)


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    setattr(OpenLength, f"__{_name}__", _operator(getattr(operator, _name), False))
    setattr(OpenLength, f"__r{_name}__", _operator(getattr(operator, _name), True))


def _sizes(size: ExprLike) -> Any:
    held = np.empty((), object)
    held[()] = size
    return Sizes(held, np.int32)


def closed_shape(shape: Any) -> Any:
    """Returns a shape with None for lengths that are open."""
    return tuple([None if isinstance(n, OpenLength) else n for n in shape]) if isinstance(shape, (tuple, list)) else shape


def size_of(n: Any) -> ExprLike:
    """Returns a length as the op-graph has it: a number, or an expression of open lengths."""
    return n.size if isinstance(n, OpenLength) else int(n)


def length(g: KerasTrace, size: ExprLike) -> Any:
    """Returns a length as Keras sees it."""
    return OpenLength(g, size) if isinstance(size, Expr) else int(size)


class BackendTensor:
    """A tensor of Keras: an array (`array`), or a value (`t`) of the computation `g` that is being read. It is never written."""

    __slots__ = ("array", "t", "g", "__weakref__", "_keras_mask", "_keras_history", "trainable")
    __array_priority__ = 100

    def __init__(self, array: Any = None, t: Tensor | None = None, g: KerasTrace | None = None):
        self.array, self.t, self.g = array, t, g

    @property
    def shape(self) -> tuple[Any, ...]:
        if self.t is None:
            return self.array.shape
        return tuple([length(self.g, n) for n in self.t.shape])  # type: ignore[arg-type]

    @property
    def dtype(self) -> Any:
        return self.array.dtype if self.t is None else self.t.np

    @property
    def ndim(self) -> int:
        return self.array.ndim if self.t is None else self.t.rank

    @property
    def size(self) -> Any:
        return math.prod(self.shape)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if self.t is not None:
            raise NotTraceable
        a = self.array if dtype is None else self.array.astype(dtype, copy=False)
        if copy or a is not self.array:
            return a.copy() if a is self.array else a
        view = a.view()
        view.flags.writeable = False
        return view

    if TYPE_CHECKING:  # given by `operators`

        def __getattr__(self, name: str) -> Any: ...

        def __getitem__(self, key: Any) -> Any: ...

    def numpy(self) -> Any:
        """Returns a copy as a NumPy array."""
        return np.array(self)

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def __int__(self) -> int:
        return int(np.asarray(self))

    def __index__(self) -> int:
        a = np.asarray(self)
        if a.dtype.kind not in "iub" or a.ndim:
            raise TypeError("only integer scalars are indices")
        return int(a)

    def __float__(self) -> float:
        return float(np.asarray(self))

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a scalar has no length")
        return int(self.shape[0])

    def __iter__(self) -> Any:
        return iter([self[k] for k in range(len(self))])

    def __hash__(self) -> int:
        return id(self)

    def __format__(self, spec: str) -> str:
        return format(np.asarray(self).item() if not self.ndim else np.asarray(self), spec) if self.t is None else repr(self)

    def __repr__(self) -> str:
        if self.t is None:
            return f"<ngraph tensor {np.array2string(self.array, separator=', ')}, shape {self.shape}, {self.dtype}>"
        return f"<ngraph tensor of a computation, shape {self.shape}, {self.dtype}>"

    def __deepcopy__(self, memo: Any) -> BackendTensor:
        return self if self.t is not None else BackendTensor(self.array.copy())

    def __reduce__(self) -> Any:
        return BackendTensor, (np.asarray(self).copy(),)


Form = Any  # Tensor, or a tuple of them


def lifted(g: KerasTrace, x: Any) -> Tensor:
    """Returns a tensor's value in a trace: a constant where it is an array. Raises UnsupportedError for one of another trace."""
    if x.t is None:
        return g.tensor(ConstantArray(x.array))
    if x.g is not g:
        raise UnsupportedError(
            "a tensor of a computation that has been read is used outside of it", fix="return it from the function that is compiled"
        )
    return x.t


def frozen(x: Any) -> Any:
    """Returns an argument as something hashable, of its type and value."""
    if isinstance(x, (list, tuple)):
        return tuple([frozen(v) for v in x])
    if isinstance(x, dict):
        return tuple(sorted((k, frozen(v)) for k, v in x.items()))
    return (type(x), x) if isinstance(x, (bool, int, float)) else x


def _open_in(values: Iterable[Any]) -> KerasTrace | None:
    """Returns the trace of an open length among arguments."""
    for v in values:
        if isinstance(v, OpenLength):
            return v.g
        if isinstance(v, (list, tuple)) and (g := _open_in(v)) is not None:
            return g
    return None


def apply(function: Callable[..., Form], *inputs: BackendTensor, **static: Any) -> Any:
    """Returns function(trace, *values, **static) as tensors: read into the computation of its inputs, or run at once.

    static: what the function is told beside its inputs; it is hashable but for lists, and may have open lengths.
    """
    g = next((x.g for x in inputs if x.t is not None), None) or (_open_in(static.values()) if static else None)
    if g is not None:
        found = function(g, *[lifted(g, x) for x in inputs], **static)
        return wrapped(g, found)
    found = at_once(function, [x.array for x in inputs], static)
    if traces.tapes:
        record(function, inputs, static, found)
    return found


def at_once(function: Callable[..., Form], arrays: Sequence[Any], static: Any) -> Any:
    """Returns function(trace, *values, **static) of arrays, by a computation that is kept."""
    key = (function, tuple([(a.shape, a.dtype.str if a.dtype.kind != "V" else a.dtype.name) for a in arrays]), frozen(static))
    made = _single.get(key)
    if made is None:
        made = _single[key] = _computation(function, arrays, static)
        if len(_single) > MOST_KEPT:
            del _single[next(iter(_single))]
    return made(arrays)


def wrapped(g: KerasTrace, found: Form) -> Any:
    """Returns a function's results as tensors of a trace."""
    return BackendTensor(t=found, g=g) if isinstance(found, Tensor) else tuple([wrapped(g, v) for v in found])


_single: dict[Any, Callable[[Sequence[Any]], Any]] = {}
_transformers: dict[str, Any] = {}


def transformer(name: str) -> Any:
    """Returns the backend's transformer of this name."""
    if name not in _transformers or _transformers[name].closed:
        _transformers[name] = allocate_transformer(name)
    return _transformers[name]


def whole(g: KerasTrace, t: Tensor) -> Op:
    """Returns a tensor as an op with an axis for every dim, in their order."""
    t = g.full(t)
    return broadcast(t.op, t.dims)


def _computation(function: Callable[..., Form], arrays: Sequence[Any], static: Any) -> Callable[[Sequence[Any]], Any]:
    """Returns one function as a computation of its own."""
    g = KerasTrace()
    holes = [g.holes_of(a.shape, a.dtype) for a in arrays]
    with TraceScope(g):
        found = function(g, *[t for _, t in holes], **static)
    single = isinstance(found, Tensor)
    results = [whole(g, t) for t in ((found,) if single else found)]
    computation = transformer("direct").computation(results, *[op for op, _ in holes])

    def run(arrays: Sequence[Any]) -> Any:
        with np.errstate(all="ignore"):
            values = [BackendTensor(np.asarray(v)) for v in computation(*arrays)]
        return values[0] if single else tuple(values)

    return run
