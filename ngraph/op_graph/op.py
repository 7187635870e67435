"""Op: a node of the op-graph, compared by identity, that records the user's line that made it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ngraph.errors import ArgumentTypeError, GraphError, Line, StateError, show_line, user_line
from ngraph.op_graph import expr, names
from ngraph.op_graph.axes import Axes, TensorShape, show_axes
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.html import shortened, table
from ngraph.op_graph.misspelt import missing_attribute, no_attribute_of_op, no_function_for
from ngraph.parts.scopes import ScopedValue
from ngraph.parts.walk import post_order

if TYPE_CHECKING:
    import numpy as np

    from ngraph.op_graph.opdef import OpDef

_serial = itertools.count()


class TensorType(NamedTuple):
    """The type of a value: its axes (in the op-graph `Axis`, in a program ids) and its dtype, without layout or device."""

    axes: tuple[Any, ...]
    dtype: DType

    def __repr__(self) -> str:
        return f"{self.dtype}[{', '.join(getattr(a, 'label', None) or str(a) for a in self.axes)}]"


class Origin(NamedTuple):
    """The source of a step or kernel: the op's name, its scope, and the user's line."""

    name: str
    scope: str
    file: str
    line: int


# the lists that `Op.all_ops` blocks are filling
_collecting: ScopedValue[tuple[list[Op], ...]] = ScopedValue("ngraph_collecting", ())


def collecting_lists() -> tuple[list[Op], ...]:
    """Returns the lists to which `Op.all_ops` blocks add the ops made now."""
    return _collecting.get()


class SourceLocation(NamedTuple):
    """The source of ops: a line, or a place outside of Python such as a node of a file: its name, and 0."""

    line: Line | None
    scope: str = ""
    metadata: dict[str, Any] = {}


# while an op is lowered or differentiated, new ops take their source from that op
_made_for: ScopedValue[Op | SourceLocation | None] = ScopedValue("ngraph_made_for", None)


def made_for(op: Op | SourceLocation | None) -> AbstractContextManager[object]:
    """Gives ops made in this block the line, scope and metadata of `op`."""
    return _made_for.of(op)


def place_of_now() -> Op | SourceLocation:
    """Returns the source that an op made now would record."""
    parent = _made_for.get()
    return SourceLocation(user_line(), names.current_scope(), names.current_metadata()) if parent is None else parent


# NumPy's functions for the operators of arrays, and the operators that `op OPERATOR array` is in place of `array OPERATOR op`.
FLIPPED = {
    "add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__", "divide": "__rtruediv__", "floor_divide": "__rfloordiv__",
    "remainder": "__rmod__", "power": "__rpow__", "matmul": "__rmatmul__", "bitwise_and": "__rand__", "bitwise_or": "__ror__",
    "bitwise_xor": "__rxor__", "left_shift": "__rlshift__", "right_shift": "__rrshift__", "less": "__gt__", "less_equal": "__ge__",
    "greater": "__lt__", "greater_equal": "__le__", "equal": "__eq__", "not_equal": "__ne__",
}  # fmt: skip


class Op:
    """A node: an op record, its inputs, attributes, and the type of its value.

    opdef    the record (`ngraph.op_graph.opdef`)      inputs   tuple of Op
    attrs    dict of attributes                        type     TensorType; None without a value; a tuple with several parts
    name     for people; `named("W")` sets it          line     (file, line number) of the user's code
    """

    __slots__ = ("opdef", "inputs", "attrs", "type", "hint", "scope", "line", "metadata", "scale", "serial", "traversals", "__weakref__")
    if TYPE_CHECKING:  # the operators, which `ops` assigns

        def _unary(self) -> Op: ...
        def _binary(self, other: Any) -> Op: ...

        __neg__ = __pos__ = __abs__ = __invert__ = _unary
        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _binary
        __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _binary
        __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rshift__ = _binary
        __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = _binary
        T: Op

        def _method(self, *args: Any, **named: Any) -> Op: ...  # those of `ngraph.ops.methods`
        def _several(self, *args: Any, **named: Any) -> Any: ...

        abs = acos = acosh = add = all = any = argmax = argmin = argsort = asin = asinh = astype = atan = atanh = broadcast = ceil = _method
        clamp = clip = cos = cosh = cummax = cummin = cumprod = cumsum = detach = diagonal = div = divide = dot = eq = erf = exp = _method
        exp2 = expm1 = flatten = flip = floor = ge = gt = isfinite = isinf = isnan = le = log = log10 = log1p = log2 = log_softmax = _method
        logcumsumexp = logical_and = logical_not = logical_or = logsumexp = lt = max = maximum = mean = median = min = minimum = _method
        mul = multiply = ne = neg = negative = norm = pad = pow = prod = quantile = rearrange = reciprocal = relu = rename = _method
        repeat = roll = round = sigmoid = sign = sin = sinh = softmax = sort = sqrt = square = std = sub = subtract = sum = take = _method
        tan = tanh = tile = transpose = tril = triu = trunc = unflatten = var = _method
        split = top_k = unique = unstack = _several

    def __init__(self, opdef: OpDef, inputs: tuple[Op, ...], attrs: dict[str, Any], type: Any, hint: str | None = None):
        self.opdef, self.inputs, self.attrs, self.type, self.hint = opdef, inputs, attrs, type, hint
        self.serial = next(_serial)
        self.scale = 1.0  # factor of derivatives that pass through this op, if set before they are computed
        self.traversals: dict[Any, Any] | None = None  # the reverse-mode traversals that start at this op, by their seeds
        for kept in _collecting.get():
            kept.append(self)
        parent = _made_for.get()
        if parent is None:
            self.line: Line | None = user_line()
            self.scope = names.current_scope()
            self.metadata = names.current_metadata()
        else:
            self.line, self.scope, self.metadata = parent.line, parent.scope, parent.metadata

    @property
    def name(self) -> str:
        """The name given by `named`, else the record's name with a number; scopes stand in front."""
        own = self.hint or f"{self.opdef.name}_{self.serial}"
        return f"{self.scope}/{own}" if self.scope else own

    @name.setter
    def name(self, name: str) -> None:
        self.hint = str(name)
        names.called(self, self.name)

    def named(self, name: str) -> Op:
        """Returns the op itself, which this name stands for in errors, files and calls by name."""
        self.name = name
        return self

    def described(self, name: str | None, docstring: str | None, metadata: Mapping[str, Any] | None) -> Op:
        """Returns the op itself, with the user's name, description and notes."""
        notes = {**(metadata or {}), **({"docstring": docstring} if docstring else {})}
        if notes:
            self.metadata = {**self.metadata, **notes}
        return self.named(name) if name else self

    @property
    def docstring(self) -> str | None:
        """The description that was given when the op was made."""
        return self.metadata.get("docstring")

    @property
    def short_name(self) -> str:
        return self.name.rsplit("/", 1)[-1]

    @property
    def safe_name(self) -> str:
        """The name as a Python identifier."""
        clean = "".join(c if c.isalnum() else "_" for c in self.name)
        return clean if clean[0].isalpha() else f"_{clean}"

    @property
    def graph_label(self) -> str:
        """The name in pictures: the short name, followed by the record's where they differ."""
        kind = self.opdef.name
        return self.short_name if self.short_name.startswith(kind) else f"{self.short_name}[{kind}]"

    @property
    def origin(self) -> Origin:
        file, line = self.line or ("", 0)
        return Origin(self.hint or self.opdef.name, self.scope, file, line)

    @property
    def axes(self) -> Axes:
        if type(self.type) is not TensorType:
            raise GraphError(f"{self.label} has no axes: it is not a tensor", details=(f"made at {show_line(self.line)}",))
        return self.type.axes  # type: ignore[return-value]  # those of an op are Axis objects

    @property
    def dtype(self) -> DType:
        if type(self.type) is not TensorType:
            raise GraphError(f"{self.label} has no dtype: it is not a tensor", details=(f"made at {show_line(self.line)}",))
        return self.type.dtype

    @property
    def shape(self) -> TensorShape:
        """The axes; `x.shape["H"]` is the length of one, None while it is unknown."""
        return TensorShape(self.axes)

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the axes, in order."""
        return tuple(a.label for a in self.axes)

    @property
    def lengths(self) -> tuple[int | None, ...]:
        """The lengths of the axes, in order; None while one is unknown."""
        return self.axes.lengths

    @property
    def sizes(self) -> dict[str, int | None]:
        """The lengths of the axes by name; None while one is unknown."""
        return {a.label: a.length for a in self.axes}

    @property
    def args(self) -> tuple[Op, ...]:
        return self.inputs

    @property
    def control_deps(self) -> tuple[Op, ...]:
        """The inputs that are executed for their effects alone: of a `doall` all, of a `sequential` all but the last."""
        kind = self.opdef.name
        return self.inputs if kind == "doall" else self.inputs[:-1] if kind == "sequential" else ()

    @property
    def all_deps(self) -> tuple[Op, ...]:
        """All ops that have to be executed first, without repetition."""
        return tuple(dict.fromkeys(self.inputs))

    @property
    def const(self) -> Any:
        """The number or array of a constant; None for other ops."""
        value = self.attrs["value"] if self.is_constant else None
        return getattr(value, "array", value)

    @property
    def tensor(self) -> Op:
        """The op whose value this is: of a `sequential` its last part."""
        op = self
        while op.opdef.name == "sequential":
            op = op.inputs[-1]
        return op

    @property
    def is_tensor_op(self) -> bool:
        return type(self.type) is TensorType

    @property
    def is_scalar(self) -> bool:
        return self.is_tensor_op and not self.axes

    @property
    def is_constant(self) -> bool:
        return self.opdef.name == "constant"

    @property
    def is_placeholder(self) -> bool:
        return self.opdef.name == "placeholder"

    @property
    def is_trainable(self) -> bool:
        return bool(self.attrs.get("trainable"))

    @property
    def is_variable(self) -> bool:
        """Whether it is state of any kind, made by `variable`, `persistent_tensor` or `temporary`."""
        return self.opdef.name == "variable"

    @property
    def is_persistent(self) -> bool:
        """Whether its value outlives a call and is not computed."""
        return self.is_constant or self.is_placeholder or (self.is_variable and bool(self.attrs.get("saved")))

    @property
    def is_input(self) -> bool:
        """Whether the caller may give its value."""
        return self.is_persistent and not self.is_constant

    @property
    def is_state_op(self) -> bool:
        return self.is_placeholder or self.is_variable

    @property
    def is_device_op(self) -> bool:
        """Whether a transformer computes it; leaves and ops that only order others are not computed."""
        return not (self.is_state_op or self.opdef.name in ("part", "assign", "doall", "sequential"))

    @property
    def is_commutative(self) -> bool:
        """Whether exchanging its two inputs gives the same value."""
        kind = self.attrs.get("kind")
        return self.opdef.name in _COMMUTATIVE or (self.opdef.name, kind) in _COMMUTATIVE

    @property
    def has_side_effects(self) -> bool:
        """Whether it has an effect beside its value; of a `sequential`, a loop or a choice, whether any op inside does."""
        bodies = [o for a in self.attrs.values() if type(a) is Body for o in a.outputs]
        within = ordered((*self.inputs, *bodies) if self.opdef.name == "sequential" else bodies)
        return self.opdef.name in _EFFECTS or any(o.opdef.name in _EFFECTS for o in within)

    @property
    def label(self) -> str:
        """The op's name in errors: the user's, else the record's."""
        return self.hint or self.opdef.name

    # graph queries
    def variables(self, filter: Callable[[Op], bool] | None = None) -> list[Op]:
        """Returns the trainable variables that this depends on, in dependency order."""
        keep = filter or (lambda op: True)
        return [op for op in ordered([self]) if op.is_trainable and keep(op)]

    def placeholders(self) -> list[Op]:
        """Returns the placeholders that this depends on, in dependency order."""
        return [op for op in ordered([self]) if op.is_placeholder]

    @staticmethod
    def ordered_ops(roots: Iterable[Op]) -> list[Op]:
        """Returns every op that the roots depend on, inputs before users."""
        return list(ordered(roots))

    @staticmethod
    def visit_input_closure(roots: Iterable[Op], fun: Callable[[Op], Any]) -> None:
        """Calls `fun` with every op that the roots depend on, inputs before users."""
        for op in ordered(roots):
            fun(op)

    @staticmethod
    def all_op_references(ops: Iterable[Op]) -> list[Op]:
        """Returns every op that these refer to: their dependencies, and ops in attributes, such as bodies of loops."""
        found: dict[Op, None] = {}
        todo = list(ops)
        while todo:
            for op in ordered(todo):
                found.setdefault(op)
            referred = [o for op in ordered(todo) for o in _referred(op.attrs.values())]
            todo = [o for o in dict.fromkeys(referred) if o not in found]
        return list(found)

    @staticmethod
    @contextmanager
    def all_ops(ops: list[Op] | None = None, isolate: bool = False) -> Iterator[list[Op]]:
        """Collects the ops made in this block, in order: `with ng.Op.all_ops() as made: ...`

        ops: a list to fill instead of a new one. isolate: enclosing blocks do not collect these ops.
        """
        made: list[Op] = [] if ops is None else ops
        with _collecting.of((made,) if isolate else (*_collecting.get(), made)):
            yield made

    def __bool__(self) -> bool:
        raise GraphError(
            f"{self.label} has no value while the graph is built, so it is neither true nor false",
            fix="ng.where(condition, a, b) chooses by value; ng.logical_and, ng.logical_or and ~ stand for and, or, not",
        )

    def _no_value(self, *_: Any, **__: Any) -> NoReturn:
        """Raises GraphError where Python or NumPy asks an op for its number or array."""
        raise GraphError(
            f"{self.label} has no value while the graph is built", fix="compute it: ngt.make_transformer().computation(x)() is an array"
        )

    __float__ = __int__ = __complex__ = __array__ = _no_value

    def __format__(self, spec: str) -> str:
        return self._no_value() if spec else str(self)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Op:
        """Returns the op of `array + op` and its like. Raises NoTensor where another NumPy function is given an op."""
        operator = method == "__call__" and not named and len(inputs) == 2 and not isinstance(inputs[0], Op)
        flipped = FLIPPED.get(ufunc.__name__) if operator else None
        if flipped is None:
            raise no_function_for(self.label, ufunc.__name__)
        made: Op = getattr(self, flipped)(inputs[0])
        return made

    def __array_function__(self, function: Callable[..., Any], *_: Any) -> NoReturn:
        """Raises NoTensor where a NumPy function is given an op."""
        raise no_function_for(self.label, function.__name__)

    def __len__(self) -> int:
        raise GraphError(f"{self.label} has no length", fix="that of an axis is x.axes[0].length; x.axes.size is the number of elements")

    if not TYPE_CHECKING:
        __getattr__ = missing_attribute(lambda self, name: no_attribute_of_op(self.label, name, dir(type(self))))

    def __reduce__(self) -> NoReturn:
        raise StateError(
            f"{self.label} can be neither copied nor pickled: an op is what it is by identity",
            details=(f"made at {show_line(self.line)}",),
            fix="ngraph.op_graph.text.save(x, path) and load(path) carry a graph over; to have two, call twice what makes it",
        )

    def __iter__(self) -> Iterator[Op]:
        raise ArgumentTypeError(f"{self.label} cannot be iterated", fix="slice it by axis, as in x[..., 0], or loop with ng.scan")

    def __repr__(self) -> str:
        kind = self.opdef.name
        if type(self.type) is TensorType:
            what = f"{self.type.dtype}{show_axes(self.type.axes)}"
        else:
            what = "no value" if self.type is None else ", ".join(map(repr, self.type))
        return f"<{kind}{' ' + self.hint if self.hint else ''}: {what}>"

    def _repr_html_(self) -> str:
        values = [self.type] if type(self.type) is TensorType else list(self.type or ())
        rows = [
            *(("gives", f"{t.dtype}{show_axes(t.axes)}") for t in values),
            *(("takes", i) for i in self.inputs),
            *((name, shortened(repr(a))) for name, a in self.attrs.items()),
            ("written at", show_line(self.line)),
        ]
        return table(f"{self.opdef.name} {self.name}" if self.hint else self.opdef.name, rows)


_EFFECTS = {"assign", "doall", "effect", "print"}
_COMMUTATIVE = {
    *("add", "multiply", "maximum", "minimum", "not_equal"),
    *(("compare", "eq"), ("bitwise", "and"), ("bitwise", "or"), ("bitwise", "xor")),
}


def _referred(attrs: Iterable[Any]) -> Iterator[Op]:
    """Yields the ops that stand in attributes."""
    for a in attrs:
        if isinstance(a, Op):
            yield a
        elif isinstance(a, Body):
            yield from (*a.inputs, *a.outputs)
        elif isinstance(a, tuple):
            yield from _referred(a)


class Body:
    """A function inside an op: its placeholders and its outputs. It depends on nothing else but constants.

    Lowering makes it a program that shares the axes of the program around it.
    """

    __slots__ = ("inputs", "outputs")

    def __init__(self, inputs: Iterable[Op], outputs: Iterable[Op]):
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)

    def __repr__(self) -> str:
        return f"Body({', '.join(repr(i.type) for i in self.inputs)} -> {', '.join(repr(o.type) for o in self.outputs)})"


_inputs = attrgetter("inputs")


def ordered(roots: Iterable[Op]) -> Iterator[Op]:
    """Yields inputs before users, each op once, in the order of `roots` and inputs, without recursion."""
    return post_order(roots, _inputs)


def again(op: Op, inputs: Iterable[Op], attrs: Mapping[str, Any]) -> Op:
    """Returns a new op like this one over other inputs."""
    with made_for(op):
        new = op.opdef.build(*inputs, **attrs)
    new.hint, new.scale = op.hint, op.scale
    return new


def numbers_in(a: Any) -> Iterator[Op]:
    """Yields the ops whose values are numbers in the expressions of an attribute: `Run`."""
    if isinstance(a, tuple):
        for x in a:
            yield from numbers_in(x)
    elif isinstance(a, expr.Expr):
        yield from (leaf.of for leaf in expr.leaves(a) if isinstance(leaf, expr.Run))


def with_numbers(a: Any, new: Callable[[Op], Op]) -> Any:
    """Returns an attribute with other ops for the numbers in its expressions."""
    if isinstance(a, tuple) and not isinstance(a, Axes):
        return tuple([with_numbers(x, new) for x in a])
    return (
        expr.substitute(a, lambda leaf: expr.Run(new(leaf.of)) if isinstance(leaf, expr.Run) else leaf) if isinstance(a, expr.Expr) else a
    )


def copy_graph(roots: Iterable[Op], replace: Mapping[Op, Op]) -> dict[Op, Op]:
    """Copies the graph of all that the roots depend on with `replace` substituted; ops that depend on no replaced op are shared.

    Returns the mapping from old op to new (or same) op, for every op reached.
    """
    new: dict[Op, Op] = {}
    for op in ordered(roots):
        if op in replace:
            new[op] = replace[op]
            continue
        inputs = tuple(new[i] for i in op.inputs)
        counted = any(n in replace for a in op.attrs.values() for n in numbers_in(a))
        if all(a is b for a, b in zip(inputs, op.inputs, strict=True)) and not counted:
            new[op] = op
        else:
            attrs = {k: with_numbers(a, lambda n: replace.get(n, n)) for k, a in op.attrs.items()} if counted else op.attrs
            new[op] = again(op, inputs, attrs)
    return new
