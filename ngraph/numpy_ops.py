"""Core op → NumPy: one table, read by `direct` (which calls it), `numpy` (which prints it) and the pass that folds constants.

    translate   a program as lines, each one call of a NumPy function, a method, or a function of `numpy_functions`
    walk        lines as a callable
    evaluate    a few steps on given arrays

Lengths may be known only at the call: they stand in the lines as expressions over variables. A tensor may lack dims that its value
has; it then is the same along them, and no broadcast is ever carried out before somebody needs it.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ngraph import numpy_functions
from ngraph.errors import UnsupportedError
from ngraph.op_graph import expr
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.dtypes import REGISTRY as DTYPES
from ngraph.op_graph.expr import Bin, Expr, ExprLike, Idx, Leaf, Len, Run
from ngraph.op_graph.op import Origin
from ngraph.ops.control import HOST_CALLS
from ngraph.program.program import AxisId, Program, Step, Value

Dims = tuple[AxisId, ...]
Orders = Callable[[Program], Mapping[Value, Dims]]


class Var:
    """One name in the lines. `root` is whose memory it is: itself, or what it is a view of.

    holds    what a root is: fresh (made by a line), argument, state, constant, shared (others may hold it too)
    literal  a Python number that stands for it: it has no line
    """

    __slots__ = ("hint", "dtype", "shape", "root", "holds", "literal", "array", "windows")

    def __init__(self, hint: str, dtype: Any, shape: tuple[ExprLike, ...], root: Var | None = None, holds: str = "fresh", literal: Any = None):
        self.hint, self.dtype, self.shape, self.holds, self.literal = hint, dtype, shape, holds, literal
        self.root = root or self
        self.array: np.ndarray | None = None
        self.windows: frozenset[AxisId] = frozenset()  # axes along which a view overlaps itself

    def __repr__(self) -> str:
        return f"<{self.hint} {self.dtype}{list(self.shape)}>"


class Ref(NamedTuple):
    """A variable and which axis each of its dims is."""

    var: Var
    dims: Dims


class Use(Leaf):
    """A variable in an expression."""

    __slots__ = ()


class Name(str):
    """An argument that is itself a function."""

    __slots__ = ()


class Call:
    """One line: targets = fn(args, kwargs). `fits`: an elementwise ufunc, which may write into an operand of its own shape.

    fn: a dotted NumPy name, a function of `numpy_functions`, `.method`, `.property()`, `[]`, `len`, `int`, or `=`.
    """

    __slots__ = ("targets", "fn", "args", "kwargs", "fits", "origin")

    def __init__(self, targets: tuple[Var, ...], fn: str, args: tuple[Any, ...], kwargs: dict[str, Any], fits: bool, origin: tuple[Origin, ...]):
        self.targets, self.fn, self.args, self.kwargs, self.fits, self.origin = targets, fn, args, kwargs, fits, origin


class Lines:
    """A program, or the body of a loop, as lines."""

    def __init__(self, name: str):
        self.name = name
        self.params: list[Var] = []
        self.calls: list[Call] = []
        self.results: list[Var] = []
        self.constants: list[Var] = []
        self.captures: list[Var] = []  # what a body takes from around it
        self.quiet = False  # whether some call can warn about floats

    def find_captures(self) -> None:
        own = set(self.params) | set(self.constants)
        found: dict[Var, None] = {}
        for call in self.calls:
            found.update(dict.fromkeys(v for v in used(call) if v not in own and v.literal is None))
            own.update(call.targets)
        found.update(dict.fromkeys(v for v in self.results if v not in own and v.literal is None))
        self.captures = list(found)


def used(call: Call) -> Iterable[Var]:
    """Every variable that a line reads, repeats included."""
    todo: list[Any] = [*call.args, *call.kwargs.values()]
    while todo:
        a = todo.pop()
        kind = type(a)
        if kind is Var:
            yield a
        elif kind is tuple:
            todo += a
        elif kind is slice:
            todo += (a.start, a.stop, a.step)
        elif kind is Lines:
            yield from a.captures
        elif isinstance(a, Expr):
            for leaf in expr.leaves(a):
                yield leaf.of


# ---- translation ------------------------------------------------------------------------------------------------------


class Translator:
    """A program on its way into lines; table entries use its methods."""

    def __init__(self, program: Program, orders: Orders, parent: Translator | None = None):
        self.program, self.all_orders, self.parent = program, orders, parent
        self.orders = orders(program)
        self.lines = Lines(program.name)
        self.refs: dict[Value, Ref] = {}
        self.lengths: dict[AxisId, ExprLike] = {}
        self.symbols: dict[AxisId, Var] = {}
        self.numbers: dict[Value, Var] = {}
        self.origin: tuple[Origin, ...] = ()

    # lengths
    def length(self, axis: AxisId) -> ExprLike:
        found = self.lengths.get(axis)
        if found is None:
            own = self.program.axes[axis]
            found = self.lengths[axis] = own if type(own) is int else self.settle(own)
        return found

    def settle(self, e: ExprLike) -> ExprLike:
        """An expression over variables; indices stay."""
        return expr.substitute(e, self._leaf)

    def _leaf(self, leaf: Leaf) -> ExprLike:
        if type(leaf) is Len:
            return self.symbol(leaf.of) if self.program.axes.get(leaf.of, leaf) == leaf else self.length(leaf.of)
        return Use(self.number(leaf.of)) if type(leaf) is Run else leaf

    def symbol(self, axis: AxisId) -> ExprLike:
        """The length of an axis that only the arguments know."""
        if axis not in self.symbols:
            if self.parent is not None:
                return self.parent.length(axis)
            self.symbols[axis] = var = Var(str(axis), None, ())
            source = None
            for value in [*self.program.inputs, *(s.value for s in self.program.state_in)]:
                for d, a in enumerate(value.axes):
                    if a == axis or self.program.axes[a] == Len(axis):
                        source = source or (self.refs[value].var, d)
            if source is None:
                raise UnsupportedError(
                    f"{self.program.name}: the length of axis {self.program.hints.get(axis, axis)} is not known, and no argument has the axis",
                    fix="give the axis its length, or pass a tensor that has it",
                )
            self.lines.calls.append(Call((var,), "len", source, {}, False, ()))
        return Use(self.symbols[axis])

    def number(self, value: Value) -> Var:
        """An integer that a step computes."""
        if value not in self.refs and self.parent is not None:
            return self.parent.number(value)
        if value not in self.numbers:
            self.numbers[value] = self.emit("int", (self.refs[value].var,), Var("count", None, ()))
        return self.numbers[value]

    def shape(self, dims: Iterable[AxisId]) -> tuple[ExprLike, ...]:
        return tuple([self.length(a) for a in dims])

    def size(self, dims: Iterable[AxisId]) -> ExprLike:
        total: ExprLike = 1
        for a in dims:
            total = total * self.length(a)
        return total

    # lines
    def emit(self, fn: str, args: tuple[Any, ...], var: Var, fits: bool = False, **kwargs: Any) -> Var:
        self.lines.calls.append(Call((var,), fn, args, kwargs, fits, self.origin))
        return var

    def make(self, fn: str, *args: Any, dims: Dims, dtype: DType, fits: bool = False, hint: str = "", **kwargs: Any) -> Ref:
        """A line that makes a new array."""
        return Ref(self.emit(fn, args, Var(hint or self.hint, dtype, self.shape(dims)), fits, **kwargs), dims)

    def view(self, ref: Ref, fn: str, *args: Any, dims: Dims, shape: tuple[ExprLike, ...] | None = None, dtype: DType | None = None) -> Ref:
        """A line that gives another view of the same memory."""
        var = ref.var
        new = Var(var.hint, dtype or var.dtype, self.shape(dims) if shape is None else shape, var.root)
        return Ref(self.emit(fn, (var, *args), new), dims)

    # tensors
    def literal(self, number: Any, dtype: DType) -> Ref:
        return Ref(Var("", dtype, (), literal=number), ())

    def typed(self, ref: Ref) -> Ref:
        """A number as a NumPy scalar of its dtype."""
        return ref if ref.var.literal is None else self.make("scalar", ref.var.literal, ref.var.dtype, dims=(), dtype=ref.var.dtype, hint="number")

    def operand(self, ref: Ref) -> Any:
        return ref.var if ref.var.literal is None else ref.var.literal

    def permuted(self, ref: Ref, dims: Dims) -> Ref:
        """The same tensor with its dims in this order."""
        if ref.dims == dims:
            return ref
        if len(dims) > 1 and ref.dims == dims[::-1]:
            return self.view(ref, ".T()", dims=dims)
        return self.view(ref, ".transpose", *[ref.dims.index(a) for a in dims], dims=dims)

    def aligned(self, ref: Ref, dims: Dims) -> Ref:
        """The tensor with its dims in this order, length 1 where it has none, as NumPy broadcasts; leading ones are left out."""
        own = set(ref.dims)
        if len(own) == len(dims):
            return self.permuted(ref, dims)
        ref = self.permuted(ref, tuple([a for a in dims if a in own]))
        first = next((k for k, a in enumerate(dims) if a in own), len(dims))
        where = tuple([slice(None) if a in own else None for a in dims[first:]])
        if None not in where:
            return ref
        return self.view(ref, "[]", where, dims=ref.dims, shape=tuple([self.length(a) if a in own else 1 for a in dims[first:]]))

    def full(self, ref: Ref, dims: Dims) -> Ref:
        """The tensor with all of these dims, in this order."""
        if ref.var.literal is not None and dims:
            return self.make("np.full", self.shape(dims), ref.var.literal, ref.var.dtype, dims=dims, dtype=ref.var.dtype)
        ref = self.typed(ref)
        if len(ref.dims) == len(dims):
            return self.permuted(ref, dims)
        return self.view(self.aligned(ref, dims), "np.broadcast_to", self.shape(dims), dims=dims)

    def input(self, step: Step, k: int) -> Ref:
        return self.refs[step.inputs[k]]

    def inputs(self, step: Step) -> list[Ref]:
        return [self.refs[v] for v in step.inputs]

    def order(self, value: Value, present: Iterable[AxisId]) -> Dims:
        """The dims that are there, in the order chosen for the value."""
        there = set(present)
        return tuple([a for a in self.orders[value] if a in there])

    def astype(self, ref: Ref, dtype: DType) -> Ref:
        if ref.var.dtype is dtype:
            return ref
        if ref.var.literal is not None:
            return self.literal(ref.var.literal, dtype)
        return self.make(".astype", ref.var, dtype, dims=ref.dims, dtype=dtype)

    def wide(self, ref: Ref) -> Ref:
        """16-bit floats as float32, in which they compute."""
        return self.astype(ref, DTYPES["float32"]) if ref.var.dtype.is_float and ref.var.dtype.bits == 16 else ref

    # the whole
    def run(self, inputs: Sequence[Ref], states: Sequence[Ref]) -> None:
        program, lines = self.program, self.lines
        self.hint = ""
        for value, ref in zip([*program.inputs, *(s.value for s in program.state_in)], [*inputs, *states], strict=True):
            self.refs[value] = ref
            lines.params.append(ref.var)
        if program.token_in is not None:
            self.refs[program.token_in] = Ref(Var("token", None, (), literal=0), ())
        for step in program.steps:
            self.origin = step.origin
            self.hint = step.results[0].hint or step.op
            entry = TABLE.get(step.op)
            if entry is None:
                raise UnsupportedError(f"{step.op} has no NumPy function", line=(self.origin[0].file, self.origin[0].line) if self.origin else None)
            made = entry(self, step, **step.attrs)
            for value, ref in zip(step.results, (made,) if type(made) is Ref else made, strict=True):
                self.refs[value] = ref
                if value.hint and ref.var.literal is None and ref.var.holds == "fresh":
                    ref.var.hint = value.hint
            if any(v.dtype.is_float for v in step.results) or step.op in ("divide", "remainder", "cast"):
                lines.quiet = True
        self.origin = ()

    def owned(self, ref: Ref, dims: Dims, taken: set[Var], written: set[Var]) -> Var:
        """The tensor as an array that nobody else holds, with all of these dims."""
        var = ref.var
        if not dims:
            if var.literal is not None:
                return self.make("np.array", var.literal, dims=(), dtype=var.dtype, dtype_=var.dtype).var
            return self.make("np.array", var, dims=(), dtype=var.dtype, hint=var.hint).var
        free = var.holds == "fresh" or var.root in written
        if var.root is var and free and var not in taken and ref.dims == dims:
            taken.add(var)
            return var
        if var.literal is not None:
            return self.full(ref, dims).var
        return self.make("np.array", self.full(ref, dims).var, dims=dims, dtype=var.dtype, hint=var.hint, order="C").var

    def body(self, program: Program, inputs: Sequence[Dims], results: Sequence[Dims]) -> Lines:
        """A sub-program as a function that takes and gives arrays with these dims."""
        inner = Translator(program, self.all_orders, self)
        pairs = list(zip(program.inputs, inputs, strict=True))
        params = [Ref(Var(v.hint or f"x{k}", v.dtype, inner.shape(d), holds="shared"), d) for k, (v, d) in enumerate(pairs)]
        inner.run(params, ())
        inner.lines.results = [inner.full(inner.refs[v], dims).var for v, dims in zip(program.outputs, results, strict=True)]
        inner.lines.find_captures()
        self.lines.quiet |= inner.lines.quiet
        return inner.lines


class Translation(NamedTuple):
    """The lines, how many of their results are outputs (the rest are the new states), and which parameters are states written."""

    lines: Lines
    outputs: int
    written: frozenset[Var]

    def memory(self) -> dict[str, int]:
        """Bytes by what they are for; of temporaries, the most there can be at once, no result taking an operand's buffer. Unknown lengths count 1."""
        lines = self.lines
        uses = {v.root: k for k, call in enumerate(lines.calls) for v in used(call)}
        uses.update((v.root, len(lines.calls)) for v in lines.results)
        now = most = 0
        ends: dict[int, int] = {}
        for k, call in enumerate(lines.calls):
            made = sum(bytes_of(v) for v in call.targets if v.root is v)
            now += made
            most = max(most, now)
            for v in call.targets:
                if v.root is v:
                    end = uses.get(v, k)
                    ends[end] = ends.get(end, 0) + bytes_of(v)
            now -= ends.pop(k, 0)
        return {
            "arguments": sum(bytes_of(v) for v in lines.params if v.holds == "argument"),
            "state": sum(bytes_of(v) for v in lines.params if v.holds == "state"),
            "constants": sum(bytes_of(v) for v in lines.constants),
            "temporaries": most,
        }


def bytes_of(v: Var) -> int:
    """The size of a variable's array; unknown lengths count as 1."""
    if v.dtype is None or v.literal is not None:
        return 0
    return math.prod(n if type(n) is int else 1 for n in v.shape) * v.dtype.np.itemsize  # type: ignore[misc]


def translate(program: Program, orders: Orders) -> Translation:
    """A program as lines: parameters are inputs, then states; results are outputs, then the states written, in their declared orders.

    Raises UnsupportedError for an op that the table lacks, or a length that no argument has.
    """
    t = Translator(program, orders)

    def ref(value: Value, hint: str, holds: str) -> Ref:
        return Ref(Var(hint, value.dtype, (), holds=holds), tuple(value.axes))

    writes = {name for name, _ in program.state_out}
    inputs = [ref(v, v.hint, "argument") for v in program.inputs]
    states = [ref(s.value, s.name, "state") for s in program.state_in]
    for value, r in zip([*program.inputs, *(s.value for s in program.state_in)], [*inputs, *states], strict=True):
        t.refs[value] = r
    for r in [*inputs, *states]:
        r.var.shape = t.shape(r.dims)
    t.run(inputs, states)
    home = {s.name: s.value for s in program.state_in}
    written = {t.refs[home[name]].var for name in writes}
    taken: set[Var] = set()
    results: list[Var | None] = [None] * (len(program.outputs) + len(program.state_out))
    leaving = [(v, tuple(v.axes)) for v in program.outputs] + [(v, tuple(home[name].axes)) for name, v in program.state_out]
    for k in [*range(len(program.outputs), len(leaving)), *range(len(program.outputs))]:  # states first: they stay where they are
        value, dims = leaving[k]
        t.hint = value.hint or "result"
        results[k] = t.owned(t.refs[value], dims, taken, written)
    t.lines.results = results  # type: ignore[assignment]
    return Translation(t.lines, len(program.outputs), frozenset(written))


# ---- the table: element by element ------------------------------------------------------------------------------------

Entry = Callable[..., Any]
TABLE: dict[str, Entry] = {}


def entry(*names: str) -> Callable[[Entry], Entry]:
    def put(function: Entry) -> Entry:
        for name in names:
            TABLE[name] = function
        return function

    return put


def elementwise(t: Translator, step: Step, fn: str, inputs: Sequence[Ref] | None = None, fits: bool = True, dtype: DType | None = None) -> Ref:
    """One ufunc on aligned operands; 16-bit floats go through float32."""
    result = step.results[0]
    refs = [t.wide(r) for r in (t.inputs(step) if inputs is None else inputs)]
    if all(r.var.literal is not None for r in refs):
        refs[-1] = t.typed(refs[-1])
    dims = t.order(result, [a for r in refs for a in r.dims])
    args = [r.var.literal if r.var.literal is not None else t.aligned(r, dims).var for r in refs]
    made = t.make(fn, *args, dims=dims, dtype=dtype or refs[-1].var.dtype, fits=fits)
    return t.astype(made, result.dtype)


UFUNCS = {
    "add": "np.add", "subtract": "np.subtract", "multiply": "np.multiply", "divide": "np.divide", "remainder": "np.remainder",
    "power": "np.power", "maximum": "np.maximum", "minimum": "np.minimum", "abs": "np.abs", "exp": "np.exp", "expm1": "np.expm1",
    "log": "np.log", "log1p": "np.log1p", "sqrt": "np.sqrt", "sin": "np.sin", "cos": "np.cos", "tanh": "np.tanh", "atan": "np.arctan",
    "floor": "np.floor", "round": "np.rint",
}  # fmt: skip
COMPARE = {"eq": "np.equal", "lt": "np.less", "le": "np.less_equal"}
BITWISE = {"and": "np.bitwise_and", "or": "np.bitwise_or", "xor": "np.bitwise_xor", "shl": "np.left_shift", "shr": "np.right_shift"}


@entry(*UFUNCS)
def _ufunc(t: Translator, step: Step) -> Ref:
    op, refs = step.op, t.inputs(step)
    if not step.results[0].dtype.is_float:
        if op in ("floor", "round"):
            return refs[0]
        if op == "power":
            return elementwise(t, step, "integer_power", [t.typed(r) for r in refs], fits=False)
        if op == "divide":
            return elementwise(t, step, "np.floor_divide")
    if op == "power" and refs[1].var.literal == 2:
        return elementwise(t, step, "np.square", refs[:1])
    return elementwise(t, step, UFUNCS[op])


@entry("compare")
def _compare(t: Translator, step: Step, kind: str) -> Ref:
    return elementwise(t, step, COMPARE[kind], fits=False, dtype=DTYPES["bool"])


@entry("bitwise")
def _bitwise(t: Translator, step: Step, kind: str) -> Ref:
    return elementwise(t, step, BITWISE[kind])


@entry("where")
def _where(t: Translator, step: Step) -> Ref:
    c, x, y = t.inputs(step)
    if x.var.dtype.bits == 16 and x.var.dtype.is_float:
        x, y = t.typed(x), t.typed(y)
        dims = t.order(step.result, [a for r in (c, x, y) for a in r.dims])
        args = [t.operand(t.aligned(r, dims)) for r in (c, x, y)]
        return t.make("np.where", *args, dims=dims, dtype=x.var.dtype)
    if x.var.literal is not None and y.var.literal is not None:
        y = t.typed(y)
    return elementwise(t, step, "np.where", [t.typed(c), x, y], fits=False, dtype=x.var.dtype)


@entry("erf")
def _erf(t: Translator, step: Step) -> Ref:
    return elementwise(t, step, "erf", fits=False)


@entry("cast")
def _cast(t: Translator, step: Step, dtype: DType) -> Ref:
    (x,) = t.inputs(step)
    if x.var.dtype is dtype:
        return x
    x = t.typed(x)
    if dtype.kind == "bool":
        x = t.wide(x)
        return t.make("np.not_equal", x.var, 0, dims=x.dims, dtype=dtype)
    if dtype.is_integer and x.var.dtype.is_float:
        return t.make("saturate", x.var, dtype, dims=x.dims, dtype=dtype)
    return t.astype(x, dtype)


@entry("bitcast")
def _bitcast(t: Translator, step: Step, dtype: DType) -> Ref:
    x = t.typed(t.input(step, 0))
    return t.view(x, ".view", dtype, dims=x.dims, dtype=dtype)


# ---- the table: sources and names --------------------------------------------------------------------------------------


def exact(number: Any, dtype: DType) -> Any:
    """The Python number that NumPy turns into this dtype's nearest, as short as it can be written."""
    if dtype.kind == "bool":
        return bool(number)
    if not dtype.is_float:
        return int(np.array(number).astype(dtype.np))
    with np.errstate(all="ignore"):
        nearest = np.asarray(number).astype(dtype.np)[()]
    return float(str(nearest)) if dtype.bits == 32 else float(nearest)


@entry("constant")
def _constant(t: Translator, step: Step, value: Any, axes: Dims, dtype: DType) -> Ref:
    if type(value) is not ArrayRef:
        if isinstance(value, Expr):
            return t.make("scalar", t.settle(value), dtype, dims=(), dtype=dtype)
        return t.literal(exact(value, dtype), dtype)
    if value.array.ndim == 0 and not (dtype.is_float and dtype.bits == 16):
        return t.literal(exact(value.array[()].item(), dtype), dtype)
    array = value.array
    var = Var(value.name or t.hint, dtype, array.shape, holds="constant")
    var.array = array
    t.lines.constants.append(var)
    return Ref(var, tuple(axes))


@entry("iota")
def _iota(t: Translator, step: Step, axis: AxisId, dtype: DType) -> Ref:
    n = t.length(axis)
    if dtype.bits >= 32 and dtype.kind != "bool":
        return t.make("np.arange", n, dims=(axis,), dtype=dtype, dtype_=dtype)
    return t.astype(t.make("np.arange", n, dims=(axis,), dtype=DTYPES["int64"]), dtype)


@entry("random_bits")
def _random_bits(t: Translator, step: Step, stream: int, axes: Dims) -> Ref:
    state, *trips = t.inputs(step)
    trip = t.emit("mix_trips", tuple([t.typed(r).var for r in trips]), Var("trip", None, ())) if trips else 0
    return t.make("philox", state.var, stream, trip, t.shape(axes), dims=tuple(axes), dtype=step.result.dtype)


@entry("broadcast")
def _broadcast(t: Translator, step: Step, axes: Dims) -> Ref:
    return t.input(step, 0)


@entry("rename")
def _rename(t: Translator, step: Step, to: tuple[tuple[AxisId, AxisId], ...]) -> Ref:
    (x,), new = t.inputs(step), dict(to)
    return Ref(x.var, tuple([new.get(a, a) for a in x.dims]))


# ---- the table: reindex -----------------------------------------------------------------------------------------------


def affine(e: ExprLike) -> tuple[ExprLike, dict[AxisId, ExprLike]] | None:
    """start, {axis: coefficient}; None where an index stands under another operator."""
    if isinstance(e, Idx):
        return 0, {e.of: 1}
    if not isinstance(e, Bin):
        return e, {}
    if not any(type(leaf) is Idx for leaf in expr.leaves(e)):
        return e, {}
    if e.op not in ("+", "-", "*"):
        return None
    a, b = affine(e.a), affine(e.b)
    if a is None or b is None:
        return None
    if e.op == "*":
        if a[1] and b[1]:
            return None
        (start, moves), factor = (a, b[0]) if a[1] else (b, a[0])
        return start * factor, {k: c * factor for k, c in moves.items()}
    sign = 1 if e.op == "+" else -1
    moves = dict(a[1])
    for k, c in b[1].items():
        moves[k] = moves.get(k, 0) + c * sign
    return a[0] + b[0] * sign, {k: c for k, c in moves.items() if not (type(c) is int and c == 0)}


def digit(e: ExprLike) -> tuple[AxisId, ExprLike, ExprLike | None] | None:
    """(axis, divisor, modulus) of Idx(axis) // divisor % modulus."""
    modulus, divisor = None, 1
    if isinstance(e, Bin) and e.op == "%":
        e, modulus = e.a, e.b
    if isinstance(e, Bin) and e.op == "//":
        e, divisor = e.a, e.b
    return (e.of, divisor, modulus) if isinstance(e, Idx) else None


def _flatten(t: Translator, x: Ref, index: Mapping[AxisId, ExprLike], sizes: Mapping[AxisId, ExprLike]) -> Ref | None:
    """Axes read at the digits of one index are one axis: a reshape. None where they are not that."""
    groups: dict[AxisId, list[tuple[AxisId, ExprLike, ExprLike | None]]] = {}
    for a in x.dims:
        found = digit(index[a])
        if found is None:
            return None
        groups.setdefault(found[0], []).append((a, found[1], found[2]))
    order: list[AxisId] = []
    for joined, parts in groups.items():
        sequence: list[AxisId] = []
        divisor: ExprLike = 1
        left = list(parts)
        while left:
            part = next((p for p in left if p[1] == divisor and (p[2] == sizes[p[0]] or (p[2] is None and len(left) == 1))), None)
            if part is None:
                return None
            left.remove(part)
            sequence.insert(0, part[0])
            divisor = divisor * sizes[part[0]]
        if not _same(divisor, t.length(joined)):
            return None
        order += sequence
    x = t.permuted(x, tuple(order))
    if len(order) == len(groups):
        return Ref(x.var, tuple(groups))
    return t.view(x, ".reshape", *t.shape(groups), dims=tuple(groups))


def _factors(e: ExprLike) -> tuple[int, list[ExprLike]]:
    if isinstance(e, Bin) and e.op == "*":
        (m, a), (n, b) = _factors(e.a), _factors(e.b)
        return m * n, a + b
    return (e, []) if isinstance(e, int) else (1, [e])


def _same(a: ExprLike, b: ExprLike) -> bool:
    """Whether two lengths are surely equal: as products, in any order."""
    if a == b:
        return True
    (m, x), (n, y) = _factors(a), _factors(b)
    return m == n and len(x) == len(y) and all(f in y for f in x) and all(f in x for f in y)


def _slices(t: Translator, x: Ref, forms: Mapping[AxisId, tuple[ExprLike, dict[AxisId, ExprLike]]], sizes: Mapping[AxisId, ExprLike]) -> Ref | None:
    """A read of known places, each axis of the result moving along one of x: NumPy's own slices. None where it is not that."""
    where: list[Any] = []
    dims: list[AxisId] = []
    for a in x.dims:
        start, moves = forms[a]
        n = sizes[a]
        if len(moves) > 1:
            return None
        if not moves:
            if type(start) is not int or type(n) is not int or not 0 <= start < n:
                return None
            where.append(start)
            continue
        ((axis, step),) = moves.items()
        length = t.length(axis)
        if axis in dims or type(step) is not int or step == 0:
            return None
        if start == 0 and step == 1 and _same(length, n):
            where.append(slice(None))
        elif type(start) is int and type(n) is int and type(length) is int:
            last = start + step * (length - 1)
            if length and not (0 <= start < n and 0 <= last < n):
                return None
            stop = last + (1 if step > 0 else -1) if length else start
            where.append(slice(start, stop if stop >= 0 else None, None if step == 1 else step))
        else:
            return None
        dims.append(axis)
    if all(w == slice(None) for w in where):
        return Ref(x.var, tuple(dims))
    return t.view(x, "[]", tuple(where), dims=tuple(dims))


@entry("reindex")
def _reindex(t: Translator, step: Step, axes: Dims, index: Any, guard: tuple[ExprLike, ...], fill: Any) -> Ref:
    x = t.typed(t.input(step, 0))
    reads = {a: t.settle(e) for a, e in index}
    guards = [t.settle(g) for g in guard]
    x = t.full(x, x.dims + tuple([a for a, e in reads.items() if a not in x.dims and not _inside(t, e, t.length(a))]))
    reads = {a: e for a, e in reads.items() if a in x.dims}
    sizes = {a: t.length(a) for a in x.dims}
    fill = exact(fill, x.var.dtype)
    if not guards:
        flat = _flatten(t, x, reads, sizes)
        if flat is not None:
            return flat
    for a, e in reads.items():  # every c-th place, by a guard on the remainder: spread x out first
        if isinstance(e, Bin) and e.op == "//" and type(e.b) is int and 0 - e.a % e.b in guards and affine(e.a) is not None:
            guards.remove(0 - e.a % e.b)
            sizes[a] = expr.maximum((sizes[a] - 1) * e.b + 1, 0)
            shape = tuple([sizes[b] for b in x.dims])
            var = t.emit("spread", (x.var, x.dims.index(a), e.b, fill), Var(t.hint, x.var.dtype, shape))
            x, reads[a] = Ref(var, x.dims), e.a
    forms = {a: affine(e) for a, e in reads.items()}
    if not guards and None not in forms.values():
        return _slices(t, x, forms, sizes) or _strided(t, x, forms, axes, fill)  # type: ignore[arg-type]
    return _indexed(t, x, reads, guards, axes, fill)


def _inside(t: Translator, e: ExprLike, n: ExprLike) -> bool:
    """Whether an index surely stays in its axis."""
    form = affine(e)
    if form is None or type(n) is not int or type(form[0]) is not int:
        return False
    low = high = form[0]
    for a, c in form[1].items():
        length = t.length(a)
        if type(length) is not int or type(c) is not int:
            return False
        low += min(0, c * (length - 1))
        high += max(0, c * (length - 1))
    return low >= 0 and high < n


def _strided(t: Translator, x: Ref, forms: Mapping[AxisId, tuple[ExprLike, dict[AxisId, ExprLike]]], axes: Dims, fill: Any) -> Ref:
    moving = {a for _, moves in forms.values() for a in moves}
    dims = tuple([a for a in axes if a in moving])
    terms = tuple([(forms[a][0], tuple([(dims.index(b), c) for b, c in forms[a][1].items()])) for a in x.dims])
    made = t.view(x, "strided", terms, t.shape(dims), fill, dims=dims)
    made.var.windows = frozenset(b for _, moves in forms.values() if len(moves) > 1 for b in moves)
    return made


def _indexed(t: Translator, x: Ref, reads: Mapping[AxisId, ExprLike], guards: Sequence[ExprLike], axes: Dims, fill: Any) -> Ref:
    moving = {leaf.of for e in (*reads.values(), *guards) for leaf in expr.leaves(e) if type(leaf) is Idx}
    dims = tuple([a for a in axes if a in moving])
    places: dict[AxisId, Expr] = {}
    for a in dims:
        along = t.emit("np.arange", (t.length(a),), Var(str(a).lower(), DTYPES["int64"], t.shape((a,))))
        places[a] = Use(t.aligned(Ref(along, (a,)), dims).var)

    def placed(e: ExprLike) -> ExprLike:
        return expr.substitute(e, lambda leaf: places[leaf.of] if type(leaf) is Idx else leaf)

    indices = tuple([placed(reads[a]) for a in x.dims])
    return t.make("indexed", x.var, indices, t.shape(dims), tuple(map(placed, guards)), fill, dims=dims, dtype=x.var.dtype)


@entry("concat")
def _concat(t: Translator, step: Step, parts: Dims, axis: AxisId) -> Ref:
    dims = t.order(step.result, step.type.axes)
    arrays = tuple([t.full(r, tuple([part if a == axis else a for a in dims])).var for r, part in zip(t.inputs(step), parts, strict=True)])
    return t.make("np.concatenate", arrays, dims=dims, dtype=step.result.dtype, axis=dims.index(axis))


def _indices(t: Translator, refs: Sequence[Ref], x_axes: Dims, axes: Dims) -> tuple[tuple[Var, ...], Dims, Dims]:
    """The index tensors lined up, their dims, and the axes that x shares with them."""
    refs = [t.typed(r) for r in refs]
    dims = tuple(dict.fromkeys(a for r in refs for a in r.dims))
    shared = tuple([a for a in x_axes if a in dims and a not in axes])
    return tuple([t.aligned(r, dims).var for r in refs]), dims, shared


def _index_axes(step: Step, values: Sequence[Value]) -> set[AxisId]:
    return {a for v in values for a in v.axes}


@entry("gather")
def _gather(t: Translator, step: Step, axes: Dims, mode: str) -> Ref:
    x, *found = t.inputs(step)
    indices, dims, shared = _indices(t, found, x.dims, axes)
    rest = tuple([a for a in x.dims if a not in axes and a not in shared])
    x = t.full(x, (*axes, *shared, *rest))
    return t.make("gather", x.var, indices, mode, tuple([dims.index(a) for a in shared]), dims=(*dims, *rest), dtype=x.var.dtype)


COMBINE = {"add": "np.add", "multiply": "np.multiply", "max": "np.maximum", "min": "np.minimum"}
OF_BOOL = {"add": "np.logical_or", "multiply": "np.logical_and", "max": "np.logical_or", "min": "np.logical_and"}


def combiner(kind: str, dtype: DType) -> str:
    return (OF_BOOL if dtype.kind == "bool" else COMBINE)[kind]


@entry("scatter")
def _scatter(t: Translator, step: Step, axes: Dims, combine: str, mode: str) -> Ref:
    x, *found, u = t.inputs(step)
    x_axes = step.inputs[0].axes
    refs = [t.typed(r) for r in found]
    every = _index_axes(step, step.inputs[1:-1])
    dims = tuple([a for a in step.inputs[-1].axes if a in every])
    shared = tuple([a for a in x_axes if a in every and a not in axes])
    indices = tuple([t.full(r, dims).var for r in refs])
    rest = tuple([a for a in x_axes if a not in axes and a not in shared])
    x = t.full(t.wide(x), (*axes, *shared, *rest))
    u = t.full(t.wide(u), (*dims, *rest))
    fn = None if combine == "set" else Name(combiner(combine, x.var.dtype))
    made = t.make("scatter", fn, x.var, indices, u.var, mode, tuple([dims.index(a) for a in shared]), dims=x.dims, dtype=x.var.dtype)
    return t.astype(made, step.result.dtype)


# ---- the table: across axes -------------------------------------------------------------------------------------------


@entry("reduce")
def _reduce(t: Translator, step: Step, kind: str, axes: Dims) -> Ref:
    if not axes:
        return t.input(step, 0)
    x = t.wide(t.input(step, 0))
    x = t.full(x, x.dims + tuple([a for a in axes if a not in x.dims]))
    made = _reduced(t, x, kind, axes)
    return t.astype(made, step.result.dtype)


def _reduced(t: Translator, x: Ref, kind: str, axes: Sequence[AxisId]) -> Ref:
    dtype = x.var.dtype
    dims = tuple([a for a in x.dims if a not in axes])
    sizes = t.shape(axes)
    known = all(type(n) is int and n for n in sizes)
    if known and x.var.windows.issuperset(axes) and math.prod(sizes) <= 64:  # type: ignore[arg-type]
        moved = t.permuted(x, (*dims, *axes))
        return t.make("reduce_windows", Name(combiner(kind, dtype)), moved.var, len(axes), dims=dims, dtype=dtype)
    kwargs: dict[str, Any] = {}
    if kind in ("max", "min") and not known and dtype.kind != "bool":
        kwargs["initial"] = dtype.lowest if kind == "max" else dtype.highest
    if kind in ("add", "multiply") and not dtype.is_float:
        kwargs["dtype_"] = dtype
    where = tuple([x.dims.index(a) for a in axes])
    return t.make(f"{combiner(kind, dtype)}.reduce", x.var, dims=dims, dtype=dtype, axis=None if not dims else where[0] if len(where) == 1 else where, **kwargs)


@entry("argreduce")
def _argreduce(t: Translator, step: Step, kind: str, axes: Dims) -> Ref:
    x = t.wide(t.input(step, 0))
    dims = tuple([a for a in x.dims if a not in axes])
    x = t.full(x, (*dims, *axes))
    return t.make("arg_reduce", Name("np.argmax" if kind == "max" else "np.argmin"), x.var, len(axes), dims=dims, dtype=step.result.dtype)


def merged(t: Translator, ref: Ref, *groups: Sequence[AxisId]) -> Ref:
    """The tensor with one dim for each group of axes, in this order."""
    dims = tuple([a for g in groups for a in g])
    ref = t.permuted(ref, dims)
    if all(len(g) == 1 for g in groups):
        return ref
    sizes = tuple([t.size(g) for g in groups])
    return t.view(ref, ".reshape", *sizes, dims=dims, shape=sizes)


def unmerged(t: Translator, ref: Ref, dims: Dims, whole: bool) -> Ref:
    """A made array whose dims stand for groups of axes, with one dim for each axis; nobody else holds its memory."""
    return Ref(ref.var, dims) if whole else t.make(".reshape", ref.var, *t.shape(dims), dims=dims, dtype=ref.var.dtype)


@entry("contract")
def _contract(t: Translator, step: Step, over: Dims, accumulate: DType) -> Ref:
    x, y = [t.typed(t.astype(r, accumulate)) for r in t.inputs(step)]
    lost = tuple([a for a in over if a not in x.dims and a not in y.dims])
    x = t.full(x, x.dims + lost) if lost else x
    x, y = _alone(t, x, y, over), _alone(t, y, x, over)
    sums = [a for a in x.dims if a in over]
    batch = [a for a in x.dims if a in y.dims and a not in over]
    rows = [a for a in x.dims if a not in y.dims]
    columns = [a for a in y.dims if a not in x.dims]
    wanted = t.order(step.result, (*batch, *rows, *columns))
    if not sums:
        made = t.make("np.multiply", t.aligned(x, wanted).var, t.aligned(y, wanted).var, dims=wanted, dtype=accumulate, fits=True)
    else:
        batch.sort(key=wanted.index)
        if columns and wanted == (*batch, *columns, *rows):
            x, y, rows, columns = y, x, columns, rows
        made = _matmul(t, x, y, batch, rows, sums, columns, accumulate)
    return t.astype(made, step.result.dtype)


def _alone(t: Translator, x: Ref, other: Ref, over: Dims) -> Ref:
    """x summed over the axes that only x has."""
    mine = [a for a in x.dims if a in over and a not in other.dims]
    return _reduced(t, x, "add", mine) if mine else x


def _matmul(t: Translator, x: Ref, y: Ref, batch: list[AxisId], rows: list[AxisId], sums: list[AxisId], columns: list[AxisId], dtype: DType) -> Ref:
    dims = (*batch, *rows, *columns)
    single = [[a] for a in batch]
    if not rows and not columns and batch:
        a, b = merged(t, x, *single, sums), merged(t, y, *single, sums)
        return t.make("np.einsum", "...k,...k->...", a.var, b.var, dims=dims, dtype=dtype)
    keep_rows, keep_columns = bool(rows or batch), bool(columns or batch)
    a = merged(t, x, *single, *([rows] if keep_rows else []), sums)
    b = merged(t, y, *single, sums, *([columns] if keep_columns else []))
    whole = (len(rows) == 1 or not keep_rows) and (len(columns) == 1 or not keep_columns)
    shape = (*t.shape(batch), *([t.size(rows)] if keep_rows else []), *([t.size(columns)] if keep_columns else []))
    var = t.emit("np.matmul", (a.var, b.var), Var(t.hint, dtype, shape))
    return unmerged(t, Ref(var, dims), dims, whole)


@entry("convolve")
def _convolve(t: Translator, step: Step, over: Dims, spatial: tuple[Any, ...], accumulate: DType) -> Ref:
    x, f = [t.typed(t.astype(r, accumulate)) for r in t.inputs(step)]
    x_axes, f_axes = step.inputs[0].axes, step.inputs[1].axes
    ins, taps, outs = (tuple([s[k] for s in spatial]) for k in range(3))
    x, f = t.full(x, tuple(x_axes)), t.full(f, tuple(f_axes))
    x_rest, f_rest = [a for a in x_axes if a not in ins], [a for a in f_axes if a not in taps]  # a name may be spatial in one only
    lone_x = [a for a in x_rest if a in over and a not in f_rest]
    lone_f = [a for a in f_rest if a in over and a not in x_rest]
    x = _reduced(t, x, "add", lone_x) if lone_x else x
    f = _reduced(t, f, "add", lone_f) if lone_f else f
    inner = [a for a in x_rest if a in f_rest and a in over]
    groups = [a for a in x_rest if a in f_rest and a not in over]
    batch = [a for a in x_rest if a not in f_rest and a not in over]
    outer = [a for a in f_rest if a not in x_rest and a not in over]
    a = merged(t, x, batch, groups, inner, *[[i] for i in ins])
    b = merged(t, f, groups, outer, inner, *[[i] for i in taps])
    numbers = tuple([tuple(map(t.settle, s[3:])) for s in spatial])
    dims = (*batch, *groups, *outer, *outs)
    shape = (t.size(batch), t.size(groups), t.size(outer), *t.shape(outs))
    var = t.emit("convolve", (a.var, b.var, numbers, t.shape(outs)), Var(t.hint, accumulate, shape))
    made = unmerged(t, Ref(var, dims), dims, len(batch) == len(groups) == len(outer) == 1)
    return t.astype(made, step.result.dtype)


@entry("cumulate")
def _cumulate(t: Translator, step: Step, kind: str, axis: AxisId, exclusive: bool, reverse: bool) -> Ref:
    x = t.wide(t.input(step, 0))
    x = t.full(x, x.dims if axis in x.dims else (*x.dims, axis))
    dtype = x.var.dtype
    start = {"add": 0, "multiply": 1, "max": dtype.lowest, "min": dtype.highest}[kind]
    fn = Name(combiner(kind, dtype))
    made = t.make("cumulate", fn, x.var, x.dims.index(axis), exclusive, reverse, start, dims=x.dims, dtype=dtype)
    return t.astype(made, step.result.dtype)


@entry("sort")
def _sort(t: Translator, step: Step, axis: AxisId, descending: bool) -> tuple[Ref, ...]:
    dims = t.order(step.results[0], step.inputs[0].axes)
    arrays = [t.full(r, dims) for r in t.inputs(step)]
    key, dim = t.wide(arrays[0]), dims.index(axis)
    order = t.make("sorted_positions", key.var, dim, descending, dims=dims, dtype=DTYPES["int64"], hint="order")
    return tuple([t.make("np.take_along_axis", a.var, order.var, dim, dims=dims, dtype=a.var.dtype) for a in arrays])


@entry("compact")
def _compact(t: Translator, step: Step, axes: Dims, axis: AxisId) -> tuple[Ref, Ref]:
    c = t.full(t.input(step, 0), tuple(axes))
    found, count = step.results
    places = t.emit("true_positions", (c.var,), Var(t.hint, found.dtype, ()))
    length = t.emit("len", (places, 0), Var("count", None, ()))
    number = t.make("scalar", Use(length), count.dtype, dims=(), dtype=count.dtype, hint="count")
    t.refs[count], t.numbers[count] = number, length
    kept = t.length(axis)
    places.shape = (Use(length),)
    if kept == Use(length):
        return Ref(places, (axis,)), number
    return t.view(Ref(places, (axis,)), "[]", (slice(None, kept),), dims=(axis,)), number


# ---- the table: control flow and effects ------------------------------------------------------------------------------


def _several(t: Translator, step: Step, fn: str, args: tuple[Any, ...], dims: Sequence[Dims]) -> tuple[Ref, ...]:
    made = [Var(v.hint or step.op, v.dtype, t.shape(d), holds="shared") for v, d in zip(step.results, dims, strict=True)]
    t.lines.calls.append(Call(tuple(made), fn, args, {}, False, t.origin))
    return tuple([Ref(v, d) for v, d in zip(made, dims, strict=True)])


@entry("scan")
def _scan(t: Translator, step: Step, body: Program, axis: AxisId, reverse: bool, carries: int, xs: int) -> tuple[Ref, ...]:
    dims = [tuple(v.axes) for v in body.inputs]
    given = [t.full(r, (axis, *d) if carries <= k < carries + xs else d).var for k, (r, d) in enumerate(zip(t.inputs(step), dims, strict=True))]
    each = [tuple(v.axes) for v in body.outputs[carries:]]
    inner = t.body(body, dims, [*dims[:carries], *each])
    stacked = tuple([(t.shape(d), v.dtype) for v, d in zip(body.outputs[carries:], each, strict=True)])
    args = (inner, tuple(given[:carries]), tuple(given[carries : carries + xs]), tuple(given[carries + xs :]), t.length(axis), reverse, stacked)
    return _several(t, step, "scan", args, [*dims[:carries], *[(axis, *d) for d in each]])


@entry("while")
def _while(t: Translator, step: Step, cond: Program, body: Program, carries: int) -> tuple[Ref, ...]:
    dims = [tuple(v.axes) for v in body.inputs]
    given = [t.full(r, d).var for r, d in zip(t.inputs(step), dims, strict=True)]
    args = (t.body(cond, dims, [()]), t.body(body, dims, dims[:carries]), tuple(given[:carries]), tuple(given[carries:]))
    return _several(t, step, "while_loop", args, dims[:carries])


@entry("cond")
def _cond(t: Translator, step: Step, **branches: Program) -> tuple[Ref, ...]:
    then, otherwise = branches["then"], branches["else"]
    p, *args = t.inputs(step)
    dims = [tuple(v.axes) for v in then.inputs]
    results = [tuple(v.axes) for v in then.outputs]
    given = tuple([t.full(r, d).var for r, d in zip(args, dims, strict=True)])
    return _several(t, step, "branch", (t.typed(p).var, t.body(then, dims, results), t.body(otherwise, dims, results), given), results)


@entry("effect")
def _effect(t: Translator, step: Step, kind: str, text: str) -> Ref:
    arrays = [t.full(r, tuple(v.axes)) for r, v in zip(t.inputs(step)[1:], step.inputs[1:], strict=True)]
    if kind != "print":  # who knows how long it keeps them
        arrays = [t.make("np.array", r.var, dims=r.dims, dtype=r.var.dtype, order="C") for r in arrays]
    return Ref(t.emit(f"host:{kind}", (text, *[r.var for r in arrays]), Var("token", None, ())), ())


# ---- calling what the lines say -----------------------------------------------------------------------------------------


@functools.cache
def function(fn: str) -> Callable[..., Any]:
    """What a line's `fn` is."""
    if fn.startswith("np."):
        found: Any = np
        for part in fn.split(".")[1:]:
            found = getattr(found, part)
        return found  # type: ignore[no-any-return]
    if fn.endswith("()"):
        return operator.attrgetter(fn[1:-2])
    if fn.startswith("host:"):
        return lambda *args: HOST_CALLS[fn[5:]](*args)
    if fn.startswith("."):
        return lambda x, *args, **kwargs: getattr(x, fn[1:])(*args, **kwargs)
    special: dict[str, Callable[..., Any]] = {
        "[]": operator.getitem,
        "len": lambda x, dim: x.shape[dim],
        "int": int,
        "scalar": lambda number, dtype: dtype.type(number),
    }
    return special.get(fn) or getattr(numpy_functions, fn)  # type: ignore[no-any-return]


def _plain(a: Any) -> bool:
    """Whether an argument is the same at every call."""
    if type(a) in (Var, Lines) or isinstance(a, Expr):
        return False
    if type(a) is tuple:
        return all(map(_plain, a))
    return not (type(a) is slice) or (_plain(a.start) and _plain(a.stop) and _plain(a.step))


def _value(a: Any) -> Any:
    """A plain argument as what NumPy takes."""
    if type(a) is DType:
        return a.np
    if type(a) is Name:
        return function(a)
    return tuple([_value(x) for x in a]) if type(a) is tuple else a


class Walk:
    """Lines made ready to be walked: slots in place of names, functions in place of their names."""

    def __init__(self, lines: Lines):
        self.slots: dict[Var, int] = {}
        self.start: list[Any] = []
        self.count = len(lines.params) + len(lines.captures)
        for v in (*lines.params, *lines.captures):
            self._slot(v)
        for v in lines.constants:
            self._slot(v, v.array)
        last: dict[Var, int] = {}
        for k, call in enumerate(lines.calls):
            for v in used(call):
                last[v] = k
        dead: dict[int, list[Var]] = {}
        keep = {*lines.results, *lines.constants}
        for v, k in last.items():
            if v not in keep:
                dead.setdefault(k, []).append(v)
        self.code = [self._code(call, dead.get(k, ())) for k, call in enumerate(lines.calls)]
        self.results = [self._slot(v, None if v.literal is None else v.dtype.np.type(v.literal)) for v in lines.results]

    def _slot(self, v: Var, value: Any = None) -> int:
        if v not in self.slots:
            self.slots[v] = len(self.start)
            self.start.append(value)
        return self.slots[v]

    def _code(self, call: Call, dead: Iterable[Var]) -> tuple[Any, ...]:
        fn = function(call.fn)
        if call.kwargs:
            fn = functools.partial(fn, **{k.rstrip("_"): _value(a) for k, a in call.kwargs.items()})
        ins: list[int] | None = []
        for a in call.args:
            if type(a) is Var and a.literal is None:
                ins.append(self.slots[a])
            elif _plain(a):
                ins.append(len(self.start))
                self.start.append(_value(a))
            else:
                fn, ins = _lazy(fn, [self._argument(a) for a in call.args]), None
                break
        out = self._slot(call.targets[0]) if len(call.targets) == 1 else [self._slot(v) for v in call.targets]
        if len(call.targets) == 1 and call.fn in ("scan", "while_loop", "branch"):
            out = [out]
        return fn, ins, out, [self.slots[v] for v in dead if v.literal is None]

    def _argument(self, a: Any) -> Callable[[list[Any]], Any]:
        """How an argument is found among the values at a call."""
        if _plain(a):
            value = _value(a)
            return lambda env: value
        if type(a) is Var:
            slot = self.slots[a]
            return lambda env: env[slot]
        if type(a) is tuple:
            parts = [self._argument(x) for x in a]
            return lambda env: tuple([p(env) for p in parts])
        if type(a) is slice:
            low, high, step = map(self._argument, (a.start, a.stop, a.step))
            return lambda env: slice(low(env), high(env), step(env))
        if type(a) is Lines:
            inner, captured = Walk(a), [self.slots[v] for v in a.captures]
            return lambda env: functools.partial(inner.inside, [env[i] for i in captured])
        slots = {leaf: self.slots[leaf.of] for leaf in expr.leaves(a)}
        return lambda env: expr.evaluate(a, lambda leaf: env[slots[leaf]])

    def inside(self, captured: list[Any], *arrays: Any) -> tuple[Any, ...]:
        return self(*arrays, *captured)

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        env = self.start.copy()
        env[: self.count] = arrays
        for fn, ins, out, dead in self.code:
            made = fn(env) if ins is None else fn(*[env[i] for i in ins])
            if type(out) is int:
                env[out] = made
            else:
                for i, m in zip(out, made, strict=True):
                    env[i] = m
            for i in dead:
                env[i] = None
        return tuple([env[i] for i in self.results])


def _lazy(fn: Callable[..., Any], arguments: Sequence[Callable[[list[Any]], Any]]) -> Callable[[list[Any]], Any]:
    return lambda env: fn(*[a(env) for a in arguments])


def walk(lines: Lines) -> Callable[..., tuple[Any, ...]]:
    """Lines as a callable of their parameters; silent about what floats do at their limits."""
    ready = Walk(lines)
    return np.errstate(all="ignore")(ready.__call__) if lines.quiet else ready


def evaluate(program: Program, orders: Orders, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """The outputs of a program without state, in the declared order of their axes."""
    return walk(translate(program, orders).lines)(*arrays)
