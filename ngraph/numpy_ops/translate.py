"""Program → lines. Each core op has an entry in the table, which uses the methods of `Translator`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ngraph.errors import UnsupportedError
from ngraph.numpy_ops.lines import CallLine, Dims, Lines, Use, Variable, VariableRef, bytes_of, used
from ngraph.op_graph import expr
from ngraph.op_graph.dtypes import REGISTRY as DTYPES
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import ExprLike, Leaf, Len, Run
from ngraph.op_graph.op import Origin
from ngraph.op_graph.opdef import NUMPY, OPS, REGISTRY
from ngraph.parts.registry import Column
from ngraph.program.program import AxisId, Program, Step, Value

Orders = Callable[[Program], Mapping[Value, Dims]]
LINES: Column[Any] = OPS.column("numpy_lines", Callable, None, "(translator, step, **attributes): a step as lines of NumPy calls")


def real(values: Iterable[Value]) -> list[Value]:
    """Returns the values that are not the token: Python executes lines in order anyway."""
    return [v for v in values if v.dtype.kind != "token"]


class Translator:
    """The state of the translation of one program; table entries use its methods."""

    def __init__(self, program: Program, orders: Orders, parent: Translator | None = None):
        self.program, self.all_orders, self.parent = program, orders, parent
        self.orders = orders(program)
        self.lines = Lines(program.name)
        self.refs: dict[Value, VariableRef] = {}
        self.lengths: dict[AxisId, ExprLike] = {}
        self.symbols: dict[AxisId, Variable] = {}
        self.numbers: dict[Value, Variable] = {}
        self.origin: tuple[Origin, ...] = ()
        self.token = VariableRef(Variable("token", None, (), literal=0), ())

    # lengths
    def length(self, axis: AxisId) -> ExprLike:
        found = self.lengths.get(axis)
        if found is None:
            own = self.program.axes[axis]
            found = self.lengths[axis] = own if type(own) is int else self.settle(own)
        return found

    def settle(self, e: ExprLike) -> ExprLike:
        """Returns an expression over variables; indices stay."""
        return expr.substitute(e, self._leaf)

    def _leaf(self, leaf: Leaf) -> ExprLike:
        if type(leaf) is Len:
            return self.symbol(leaf.of) if self.program.axes.get(leaf.of, leaf) == leaf else self.length(leaf.of)
        if type(leaf) is not Run:
            return leaf
        known = self.refs[leaf.of].var.literal if leaf.of in self.refs else None
        return Use(self.number(leaf.of)) if known is None else int(known)

    def symbol(self, axis: AxisId) -> ExprLike:
        """Returns the length of an axis that only the arguments determine."""
        if axis not in self.symbols:
            if self.parent is not None:
                return self.parent.length(axis)
            self.symbols[axis] = var = Variable(str(axis), None, ())
            source = None
            for value in [*self.program.inputs, *(s.value for s in self.program.state_in)]:
                for d, a in enumerate(value.axes):
                    if a == axis or self.program.axes[a] == Len(axis):
                        source = source or (self.refs[value].var, d)
            if source is None:
                raise self.program.no_length(axis)
            self.lines.calls.append(CallLine((var,), "len", source, {}, False, ()))
        return Use(self.symbols[axis])

    def number(self, value: Value) -> Variable:
        """Returns an integer that a step computes."""
        if value not in self.refs and self.parent is not None:
            return self.parent.number(value)
        if value not in self.refs:
            raise UnsupportedError(f"{self.program.name}: a length is a number that no step computes")
        if value not in self.numbers:
            self.numbers[value] = self.emit("int", (self.refs[value].var,), Variable("count", None, ()))
        return self.numbers[value]

    def shape(self, dims: Iterable[AxisId]) -> tuple[ExprLike, ...]:
        return tuple([self.length(a) for a in dims])

    def size(self, dims: Iterable[AxisId]) -> ExprLike:
        total: ExprLike = 1
        for a in dims:
            total = total * self.length(a)
        return total

    # lines
    def emit(self, fn: str, args: tuple[Any, ...], var: Variable, fits: bool = False, **kwargs: Any) -> Variable:
        self.lines.calls.append(CallLine((var,), fn, args, kwargs, fits, self.origin))
        return var

    def make(self, fn: str, *args: Any, dims: Dims, dtype: DType, fits: bool = False, hint: str = "", **kwargs: Any) -> VariableRef:
        """Adds a line that makes a new array."""
        return VariableRef(self.emit(fn, args, Variable(hint or self.hint, dtype, self.shape(dims)), fits, **kwargs), dims)

    def view(
        self, ref: VariableRef, fn: str, *args: Any, dims: Dims, shape: tuple[ExprLike, ...] | None = None, dtype: DType | None = None
    ) -> VariableRef:
        """Adds a line that makes another view of the same memory."""
        var = ref.var
        new = Variable(var.hint, dtype or var.dtype, self.shape(dims) if shape is None else shape, var.root)
        return VariableRef(self.emit(fn, (var, *args), new), dims)

    # tensors
    def literal(self, number: Any, dtype: DType) -> VariableRef:
        return VariableRef(Variable("", dtype, (), literal=number), ())

    def typed(self, ref: VariableRef) -> VariableRef:
        """Returns a number as a NumPy scalar of its dtype."""
        return (
            ref
            if ref.var.literal is None
            else self.make("scalar", ref.var.literal, ref.var.dtype, dims=(), dtype=ref.var.dtype, hint="number")
        )

    def operand(self, ref: VariableRef) -> Any:
        return ref.var if ref.var.literal is None else ref.var.literal

    def permuted(self, ref: VariableRef, dims: Dims) -> VariableRef:
        """Returns the same tensor with its dims in this order."""
        if ref.dims == dims:
            return ref
        if len(dims) > 1 and ref.dims == dims[::-1]:
            return self.view(ref, ".T()", dims=dims)
        return self.view(ref, ".transpose", *[ref.dims.index(a) for a in dims], dims=dims)

    def aligned(self, ref: VariableRef, dims: Dims) -> VariableRef:
        """Returns the tensor with its dims in this order and length 1 where it lacks one, as NumPy broadcasts; leading ones are omitted."""
        own = set(ref.dims)
        if len(own) == len(dims):
            return self.permuted(ref, dims)
        ref = self.permuted(ref, tuple([a for a in dims if a in own]))
        first = next((k for k, a in enumerate(dims) if a in own), len(dims))
        where = tuple([slice(None) if a in own else None for a in dims[first:]])
        if None not in where:
            return ref
        return self.view(ref, "[]", where, dims=ref.dims, shape=tuple([self.length(a) if a in own else 1 for a in dims[first:]]))

    def full(self, ref: VariableRef, dims: Dims) -> VariableRef:
        """Returns the tensor with all of these dims, in this order."""
        if ref.var.literal is not None and dims:
            return self.make("np.full", self.shape(dims), ref.var.literal, ref.var.dtype, dims=dims, dtype=ref.var.dtype)
        ref = self.typed(ref)
        if len(ref.dims) == len(dims):
            return self.permuted(ref, dims)
        return self.view(self.aligned(ref, dims), "np.broadcast_to", self.shape(dims), dims=dims)

    def input(self, step: Step, k: int) -> VariableRef:
        return self.refs[step.inputs[k]]

    def inputs(self, step: Step) -> list[VariableRef]:
        return [self.refs[v] for v in step.inputs]

    def order(self, value: Value, present: Iterable[AxisId]) -> Dims:
        """Returns the present dims, in the order chosen for the value."""
        there = set(present)
        return tuple([a for a in self.orders[value] if a in there])

    def astype(self, ref: VariableRef, dtype: DType) -> VariableRef:
        if ref.var.dtype is dtype:
            return ref
        if ref.var.literal is not None:
            return self.literal(ref.var.literal, dtype)
        return self.make(".astype", ref.var, dtype, dims=ref.dims, dtype=dtype)

    def wide(self, ref: VariableRef) -> VariableRef:
        """Returns 16-bit floats as float32, in which they are computed."""
        return self.astype(ref, DTYPES["float32"]) if ref.var.dtype.is_float and ref.var.dtype.bits == 16 else ref

    # whole program
    def run(self, inputs: Sequence[VariableRef], states: Sequence[VariableRef]) -> None:
        program, lines = self.program, self.lines
        self.hint = ""
        given = real(program.inputs)
        for value, ref in zip([*given, *(s.value for s in program.state_in)], [*inputs, *states], strict=True):
            self.refs[value] = ref
            lines.params.append(ref.var)
        self.refs.update((v, self.token) for v in (program.token_in, *program.inputs) if v is not None and v.dtype.kind == "token")
        for step in program.steps:
            self.origin = step.origin
            self.hint = step.results[0].hint or step.op
            make = LINES[step.op] or LINES["ufunc" if NUMPY[step.op] else "reference"]
            if make is LINES["reference"] and REGISTRY[step.op].reference is None:
                raise UnsupportedError(
                    f"{step.op} has no lowering, no reference and no entry in the table of NumPy calls",
                    line=(self.origin[0].file, self.origin[0].line) if self.origin else None,
                    fix="give its record lower=, or reference=, a function of (call, *arrays)",
                )
            made = make(self, step, **step.attrs)
            for value, ref in zip(step.results, (made,) if type(made) is VariableRef else made, strict=True):
                self.refs[value] = ref
                if value.hint and ref.var.literal is None and ref.var.holds == "fresh":
                    ref.var.hint = value.hint
            if any(v.dtype.is_float for v in step.results) or step.op in ("divide", "remainder", "cast"):
                lines.quiet = True
        self.origin = ()

    def owned(self, ref: VariableRef, dims: Dims, taken: set[Variable], written: set[Variable]) -> Variable:
        """Returns the tensor as an array that nothing else holds, with all of these dims."""
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
        """Returns a sub-program as a function that takes and gives arrays with these dims."""
        inner = Translator(program, self.all_orders, self)
        pairs = list(zip(real(program.inputs), inputs, strict=True))
        params = [VariableRef(Variable(v.hint or f"x{k}", v.dtype, inner.shape(d), holds="shared"), d) for k, (v, d) in enumerate(pairs)]
        inner.run(params, ())
        given = real(program.outputs)
        inner.lines.results = [inner.full(inner.refs[v], dims).var for v, dims in zip(given, results, strict=True)]
        inner.lines.find_captures()
        self.lines.quiet |= inner.lines.quiet
        return inner.lines


class Translation(NamedTuple):
    """The lines, how many of their results are outputs (the rest are the new states), and which parameters are written states.

    `writes` has (k, n) where the caller writes result n into the memory of parameter k.
    """

    lines: Lines
    outputs: int
    written: frozenset[Variable]
    writes: tuple[tuple[int, int], ...] = ()

    def memory(self) -> dict[str, int]:
        """Returns bytes by purpose, unknown lengths counting 1; of temporaries the peak, if none reuses another's buffer."""
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


def translate(program: Program, orders: Orders) -> Translation:
    """Returns a program as lines: parameters are inputs, then states; results are outputs, then written states, in their declared orders.

    Raises UnsupportedError for an op that the table lacks, or a length that no argument has.
    """
    t = Translator(program, orders)

    def ref(value: Value, hint: str, holds: str) -> VariableRef:
        return VariableRef(Variable(hint, value.dtype, (), holds=holds), tuple(value.axes))

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
    taken: set[Variable] = set()
    results: list[Variable | None] = [None] * (len(program.outputs) + len(program.state_out))
    leaving = [(v, tuple(v.axes)) for v in program.outputs] + [(v, tuple(home[name].axes)) for name, v in program.state_out]
    for k in [*range(len(program.outputs), len(leaving)), *range(len(program.outputs))]:  # states first: they stay in place
        value, dims = leaving[k]
        t.hint = value.hint or "result"
        results[k] = t.owned(t.refs[value], dims, taken, written)
    t.lines.results = results  # type: ignore[assignment]  # the loop above fills each place
    return Translation(t.lines, len(program.outputs), frozenset(written), program.writes)


def exact(number: Any, dtype: DType) -> Any:
    """Returns the shortest Python number that NumPy converts to this dtype's nearest value."""
    if dtype.kind == "bool":
        return bool(number)
    if dtype.python is int:
        return int(np.array(number).astype(dtype.np))
    with np.errstate(all="ignore"):
        nearest = np.asarray(number).astype(dtype.np)[()]
    return float(str(nearest)) if dtype.bits == 32 else float(nearest)
