"""Translation of a program to ONNX nodes, in which axes get positions: a `TensorRef` is a tensor of the graph with the axis of each dim.

Rules (the column `onnx_nodes`, one for each op) take refs and return refs. They may omit axes along which a value is constant, as
NumPy's broadcasting allows, and may keep dims of length 1 that are not axis (`None`), such as a batch of one, which the next convolution
needs again.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx

from ngraph.export.onnx.lengths import numbers, positive
from ngraph.export.onnx.names import onnx_name, onnx_type
from ngraph.op_graph import expr
from ngraph.op_graph.dtypes import REGISTRY as DTYPES
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Bin, Expr, ExprLike, Idx, Len, Run
from ngraph.op_graph.opdef import ELEMENTWISE, ONNX, OPS
from ngraph.parts.registry import Column
from ngraph.program.program import AxisId, Program, Step, Value

Dims = tuple[AxisId | None, ...]
Array = np.ndarray[Any, Any]
INT64 = DTYPES["int64"]


class Cannot(Exception):
    """An error for a step that ONNX, at this opset, has no node for."""


class TensorRef(NamedTuple):
    """A tensor of the graph: its name, the axis of each dim (None: of length 1, and no axis), its element type."""

    name: str
    dims: Dims
    dtype: DType

    @property
    def axes(self) -> tuple[AxisId, ...]:
        return tuple([a for a in self.dims if a is not None])


class OutputNode:
    """A node of the new graph; attributes that are graphs are `OutputGraph`s.

    name    what the node it was read from is called; "" for one that is called after its result
    last    whether it gives the result of that node
    """

    __slots__ = ("op", "inputs", "outputs", "attrs", "name", "last", "part")

    def __init__(self, op: str, inputs: list[str], outputs: list[str], attrs: dict[str, Any], name: str, part: OutputGraph):
        self.op, self.inputs, self.outputs, self.attrs, self.name, self.part = op, inputs, outputs, attrs, name, part
        self.last = False


class OutputGraph:
    """A graph: nodes, and its inputs and outputs, as (name, element type, shape)."""

    def __init__(self, name: str):
        self.name = name
        self.nodes: list[OutputNode] = []
        self.inputs: list[TensorRef] = []
        self.outputs: list[TensorRef] = []


# ---- ONNX's schemas -----------------------------------------------------------------------------------------------------


@functools.cache
def schema(op: str, opset: int) -> Any:
    """Returns the schema of an op at an opset; None where it has none."""
    try:
        return onnx.defs.get_schema(op, opset, "")
    except onnx.defs.SchemaError:
        return None


@functools.cache
def constraints(op: str, opset: int) -> Mapping[str, frozenset[str]]:
    """Returns the element types that each of the op's type variables allows."""
    return {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema(op, opset).type_constraints}


@functools.cache
def since(op: str) -> int:
    """Returns the first opset that has the op."""
    return min((s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == op and s.domain == ""), default=0)


def takes(op: str, opset: int, dtype: DType, formal: int = 0) -> bool:
    """Whether an op, at an opset, accepts this element type for an input."""
    found = schema(op, opset)
    if found is None:
        return False
    kind = found.inputs[formal].type_str
    return onnx_name(dtype) in constraints(op, opset).get(kind, frozenset([kind]))


# Ops that accept elements of any type. The others compute in types that every runtime supports: small integers in int32, uint32 in int64,
# bfloat16 in float32, whose results are rounded once.
MOVING = frozenset(
    "BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Concat Expand Gather GatherElements GatherND Identity If Loop Pad "
    "Range Reshape Scan ScatterElements ScatterND Shape Slice Squeeze Transpose Unsqueeze Where And Or Not Xor "
    "RandomUniform RandomNormal".split()
)
ARITHMETIC = {"+": "Add", "-": "Sub", "*": "Mul", "//": "Div", "%": "Mod", "min": "Min", "max": "Max"}  # of lengths and indices
COMPUTED = {**dict.fromkeys(("int8", "uint8", "int16", "uint16"), "int32"), "uint32": "int64", "bfloat16": "float32"}
LACKED = {  # for which ONNX Runtime has no kernel; the results of these ops have the same bits in the wider types
    "Where": {"int16": "int32", "uint16": "int32", "uint64": "int64", "bfloat16": "float32"},
    "Expand": {"bfloat16": "float32"},
    "Pad": {"int16": "int32", "uint16": "int32"},
    **dict.fromkeys(("CumSum", "ReduceSum", "ReduceProd"), {"uint64": "int64"}),
}
WIDER = {  # where a type is refused, the first of these that is accepted and represents all its values
    "bool": ("uint8", "int32", "float32"),
    "int8": ("int16", "int32", "int64"),
    "uint8": ("int16", "int32", "int64"),
    "int16": ("int32", "int64"),
    "uint16": ("int32", "int64"),
    "int32": ("int64", "float64"),
    "uint32": ("int64", "float64"),
    "uint64": ("int64",),
    "float16": ("float32", "float64"),
    "bfloat16": ("float32", "float64"),
    "float32": ("float64",),
}


def wider(dtype: DType, allowed: frozenset[str]) -> DType | None:
    """Returns the element type to compute in: the type itself, or the next that represents all its values; None where there is none."""
    if dtype.form is not None:
        names: tuple[str, ...] = ("float32",) if dtype.python is float else ("int8", "int32", "uint8")
    else:
        names = WIDER.get(dtype.name, ())
    return next((DTYPES[n] for n in (dtype.name, *names) if onnx_name(DTYPES[n]) in allowed), None)


# ---- rules --------------------------------------------------------------------------------------------------------------

Rule = Callable[..., Any]
NODES: Column[Any] = OPS.column("onnx_nodes", Callable, None, "(writer, step, *refs, **attributes): a step as nodes of ONNX; ref or refs")


def rule_of(op: str) -> Any:
    """Returns the function that writes the steps of an op: its own, or that of elementwise ops that ONNX has by name; None for others."""
    return NODES[op] or (NODES["elementwise"] if ELEMENTWISE[op] and ONNX[op] else None)


class Shared:
    """State shared by the graphs of one model: names, constants, the opset."""

    def __init__(self, opset: int, read: Mapping[str, tuple[int | None, ...]] = {}):
        self.opset, self.read = opset, read  # dims of values that were read from a file, by name: see `Exported`
        self.taken: set[str] = set()
        self.reserved: set[str] = set()  # names of values that have no node so far
        self.tried: dict[str, int] = {}
        self.arrays: dict[str, Array] = {}  # constants, by name
        self.known: dict[Any, str] = {}  # small constants, by value
        self.made_of: dict[str, tuple[TensorRef, Dims]] = {}  # the tensor that a tensor is a rearrangement of, with those dims
        self.makers: dict[str, OutputNode] = {}
        self.variants: dict[str, str] = {}  # constants and the constants that they are made of
        self.swapped: dict[str, str] = {}  # names that are exchanged at the end
        self.called: set[str] = set()  # names whose values have names of their own
        self.sums: dict[str, tuple[TensorRef, tuple[AxisId, ...]]] = {}  # the operand and axes of sums
        self.sizes: dict[str, ExprLike] = {}  # scalars that are lengths
        self.types: dict[str, tuple[DType, tuple[ExprLike, ...], Dims]] = {}

    def fresh(self, base: str) -> str:
        """Returns the name, with the first free number where it is taken or is another value's."""
        name, n = base, self.tried.get(base, 1)
        while name in self.taken or name in self.reserved:
            n += 1
            name = f"{base}_{n}"
        self.tried[base] = n
        self.taken.add(name)
        return name


class GraphWriter:
    """The writer of one graph: the model's, or the body of a loop or a branch, which sees the names of enclosing graphs."""

    def __init__(self, program: Program, shared: Shared, name: str, parent: GraphWriter | None = None):
        self.program, self.shared, self.parent = program, shared, parent
        self.opset = shared.opset
        self.part = OutputGraph(name)
        self.refs: dict[Value, TensorRef] = {}
        self.cache: dict[Any, Any] = {}
        self.lengths: dict[AxisId, ExprLike] = {}
        self.label = ""
        self.node_name = ""  # of the node that the present step was read from
        self.refused: Callable[[Step, str], None] = parent.refused if parent else _never

    @functools.cached_property
    def uses(self) -> dict[Value, int]:
        """The number of uses of each value of the program."""
        found: dict[Value, int] = {}
        for v in [*(v for s in self.program.steps for v in s.inputs), *self.program.results()]:
            found[v] = found.get(v, 0) + 1
        return found

    @functools.cached_property
    def indices(self) -> dict[Value, int]:
        """The number of uses of each value as an index of a gather or a scatter."""
        found: dict[Value, int] = {}
        for s in self.program.steps:
            for v in {"gather": s.inputs[1:], "scatter": s.inputs[1:-1]}.get(s.op, ()):
                found[v] = found.get(v, 0) + 1
        return found

    @functools.cached_property
    def steps(self) -> dict[Value, Step]:
        """The step of the program that computes each value."""
        return {v: s for s in self.program.steps for v in s.results}

    def alone(self, value: Value) -> bool:
        """Whether a tensor has one use only, under any value's name."""
        while self.uses.get(value) == 1:
            step = self.steps.get(value)
            if step is None or not step.inputs or self.refs[step.inputs[0]].name != self.refs[value].name:
                return True
            value = step.inputs[0]
        return False

    # nested graphs
    def body(self, name: str, program: Program | None = None) -> GraphWriter:
        """Returns the writer of a loop's or a branch's graph; without a program of its own, a rule makes its nodes."""
        return GraphWriter(program or self.program, self.shared, self.shared.fresh(f"{self.label or name}_{name}"), self)

    def beside(self, program: Program) -> GraphWriter:
        """Returns a writer of another program into this same graph."""
        made = GraphWriter(program, self.shared, self.part.name, self)
        made.part, made.label, made.node_name = self.part, self.label, self.node_name
        return made

    def taken(self, name: str, ref: TensorRef) -> TensorRef:
        """Adds an input of this graph, of the type of a tensor."""
        made = TensorRef(self.shared.fresh(name or "taken"), ref.dims, ref.dtype)
        self.part.inputs.append(made)
        self.shared.types[made.name] = made.dtype, tuple(self.shape(made.dims)), made.dims
        return made

    def leave(self, refs: Sequence[TensorRef]) -> None:
        """Adds the outputs of this graph: each a name that one of its nodes makes, and none twice."""
        own = {name for node in self.part.nodes for name in node.outputs}
        for ref in refs:
            if ref.name not in own:
                ref = TensorRef(self.node("Identity", [ref.name])[0], ref.dims, ref.dtype)
            own.discard(ref.name)
            self.part.outputs.append(ref)

    @property
    def root(self) -> GraphWriter:
        return self if self.parent is None else self.parent.root

    def remembered(self, key: Any) -> Any:
        """Returns the cached result for a key, here or in an enclosing graph; None where there is none."""
        w: GraphWriter | None = self
        while w is not None:
            if key in w.cache:
                return w.cache[key]
            w = w.parent
        return None

    # ---- nodes
    def node(self, op: str, inputs: Sequence[str], count: int = 1, **attrs: Any) -> list[str]:
        """Adds a node as it is; returns the names of its results."""
        names = [self.shared.fresh(self.label or op.lower()) for _ in range(count)]
        made = OutputNode(op, list(inputs), names, {k: a for k, a in attrs.items() if a is not None}, self.node_name, self.part)
        self.part.nodes.append(made)
        for name in names:
            self.shared.makers[name] = made
        return names

    def op(self, op: str, *inputs: TensorRef | str | None, dims: Dims, dtype: DType, exact: bool = False, **attrs: Any) -> TensorRef:
        """Adds a node, with inputs cast to element types that it accepts; its result is cast to `dtype` where it has another.

        Inputs that are names, not refs, have the required type. exact: an attribute defines the result's type.
        """
        found = schema(op, self.opset)
        if found is None:
            raise Cannot(f"{op} of ONNX, which begins at opset {since(op)}")
        allowed = constraints(op, self.opset)
        formals = [found.inputs[min(k, len(found.inputs) - 1)].type_str for k in range(len(inputs))]
        chosen: dict[str, DType] = {}
        for formal, ref in zip(formals, inputs, strict=True):
            if isinstance(ref, TensorRef) and formal not in chosen and formal in allowed:
                own = ref.dtype.name
                wanted = DTYPES[LACKED.get(op, {}).get(own, own if op in MOVING else COMPUTED.get(own, own))]
                if onnx_name(wanted) not in allowed[formal]:
                    wanted = ref.dtype
                fit = wider(wanted, allowed[formal])
                if fit is None:
                    raise Cannot(f"{op} of {ref.dtype} at opset {self.opset}")
                chosen[formal] = fit
        concrete = {onnx_name(d): d for d in DTYPES.values() if d.np is not None}
        names = []
        for formal, ref in zip(formals, inputs, strict=True):
            if isinstance(ref, TensorRef):
                names.append(self.cast(ref, chosen.get(formal) or concrete[formal]).name)
            else:
                names.append(ref or "")
        while names and not names[-1]:
            names.pop()
        gives = found.outputs[0].type_str
        given = dtype if exact else chosen.get(gives) or concrete.get(gives) or dtype
        (name,) = self.node(op, names, **attrs)
        return self.cast(TensorRef(name, dims, given), dtype)

    def step(self, op: str, inputs: Sequence[Value], refs: Sequence[TensorRef], result: Value, attrs: dict[str, Any]) -> TensorRef:
        """Applies a rule to a step that is not in the program."""
        made: TensorRef = rule_of(op)(self, Step((result,), op, tuple(inputs), attrs), *refs, **attrs)
        return made

    # ---- constants
    def constant(self, array: Any, name: str = "") -> str:
        """Returns a constant's name; equal small ones are shared."""
        array = np.asarray(array)
        key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes()) if array.nbytes <= 4096 else None
        if key is not None and key in self.shared.known:
            return self.shared.known[key]
        made = self.shared.fresh(name or "constant")
        self.shared.arrays[made] = array
        if key is not None:
            self.shared.known[key] = made
        return made

    def variant(self, array: Any, name: str) -> str:
        """Returns a constant made of another, whose name it finally takes if that one is unused."""
        base = self.shared.variants.get(name, name)
        made = self.constant(array, base)
        if made != base and not base.startswith("constant"):
            self.shared.variants[made] = base
        return made

    def ints(self, numbers: Iterable[int]) -> str:
        return self.constant(np.array(list(numbers), np.int64))

    def number(self, value: Any, dtype: DType, name: str = "") -> TensorRef:
        with np.errstate(all="ignore"):
            return TensorRef(self.constant(np.array(value).astype(dtype.np), name), (), dtype)

    def array(self, ref: TensorRef) -> Array | None:
        """Returns the values of a constant; None for other tensors."""
        return self.shared.arrays.get(ref.name)

    def literal(self, ref: TensorRef) -> Any:
        """Returns the number of a constant with one element; None for other tensors."""
        array = self.array(ref)
        return None if array is None or array.size != 1 else array.reshape(())[()].item()

    def filled(self, value: Any, dims: Dims, dtype: DType) -> TensorRef:
        """Returns a number filled over dims."""
        return self.full(self.number(value, dtype), tuple([a for a in dims if a is not None]))

    # ---- element types
    def cast(self, ref: TensorRef, dtype: DType) -> TensorRef:
        if ref.dtype is dtype:
            return ref
        array = self.array(ref)
        if array is not None and dtype.form is None and ref.dtype.form is None and not (ref.dtype.is_float and not dtype.is_float):
            with np.errstate(all="ignore"):
                return TensorRef(self.variant(array.astype(dtype.np), ref.name), ref.dims, dtype)
        key = ("cast", ref.name, dtype)
        found = self.remembered(key)
        if found is None:
            for d, formal in ((ref.dtype, "T1"), (dtype, "T2")):
                if onnx_name(d) not in constraints("Cast", self.opset)[formal]:
                    raise Cannot(f"elements of type {d} at opset {self.opset}")
            attrs: dict[str, Any] = {"to": onnx_type(dtype)}
            if dtype.name.startswith("float8"):
                attrs["saturate"] = 0  # beyond the largest number infinity or NaN, as in docs/spec.md
            if dtype.name == "float8_e8m0fnu":
                attrs["round_mode"] = "nearest"
            (name,) = self.node("Cast", [ref.name], **attrs)
            found = self.cache[key] = TensorRef(name, ref.dims, dtype)
        return TensorRef(found.name, ref.dims, dtype)

    # ---- order of dims
    def arranged(self, ref: TensorRef, dims: Dims) -> TensorRef:
        """Returns the same tensor with exactly these dims: its own axes in this order, and None for dims of length 1."""
        if ref.dims == dims:
            return ref
        array = self.array(ref)
        if array is not None:
            moved = array.reshape([n for n, a in zip(array.shape, ref.dims, strict=True) if a is not None])
            axes = ref.axes
            moved = moved.transpose([axes.index(a) for a in dims if a is not None])
            ones = [k for k, a in enumerate(dims) if a is None]
            return TensorRef(self.variant(np.expand_dims(moved, ones), ref.name), dims, ref.dtype)
        source = self.shared.made_of.get(ref.name)
        if source is not None:  # rearranges the original instead, under its axes' present names
            again = {old: new for old, new in zip(source[1], ref.dims, strict=True) if old is not None}
            below = TensorRef(source[0].name, tuple([None if a is None else again.get(a) for a in source[0].dims]), ref.dtype)
            if len(below.axes) == len(ref.axes):
                return self.arranged(below, dims)
        key = ("arranged", ref.name, tuple([None if a is None else ref.dims.index(a) for a in dims]))
        found = self.remembered(key)
        if found is None:
            found = self.cache[key] = self._rearrange(ref, dims)
            if found != ref.name:
                self.shared.made_of[found] = (ref, dims)
        return TensorRef(found, dims, ref.dtype)

    def _rearrange(self, ref: TensorRef, dims: Dims) -> str:
        now = ref
        wanted = tuple([a for a in dims if a is not None])
        if now.axes != wanted:
            if now.dims.count(None) != dims.count(None) and None in now.dims:
                now = self._without_ones(now)
            ones = [k for k, a in enumerate(now.dims) if a is None]
            if ones and len(now.dims) == len(dims):
                order = [ones.pop(0) if a is None else now.dims.index(a) for a in dims]
                target = dims
            else:
                order, target = [now.dims.index(a) for a in wanted], wanted
            now = self.op("Transpose", now, dims=target, dtype=ref.dtype, perm=order)
        if now.dims != dims and None in now.dims:
            if sum(not isinstance(self.length(a), int) for a in wanted) <= 1:
                return self.reshaped(now.name, [1 if a is None else self.length(a) for a in dims], dims, ref.dtype).name
            now = self._without_ones(now)
        if now.dims != dims:
            now = self.op("Unsqueeze", now, self.ints(k for k, a in enumerate(dims) if a is None), dims=dims, dtype=ref.dtype)
        return now.name

    def _without_ones(self, ref: TensorRef) -> TensorRef:
        return self.op("Squeeze", ref, self.ints(k for k, a in enumerate(ref.dims) if a is None), dims=ref.axes, dtype=ref.dtype)

    def aligned(self, ref: TensorRef, dims: Dims) -> TensorRef:
        """Returns the tensor broadcastable to `dims`: length 1 where it lacks an axis, and leading ones omitted."""
        if len(ref.dims) <= len(dims) and all(a is None or a == b for a, b in zip(ref.dims[::-1], dims[::-1], strict=False)):
            return ref
        own = set(ref.axes)
        first = next((k for k, a in enumerate(dims) if a in own), len(dims))
        return self.arranged(ref, tuple([a if a in own else None for a in dims[first:]]))

    def full(self, ref: TensorRef, dims: Dims) -> TensorRef:
        """Returns the tensor with all of these dims, in this order."""
        if set(ref.axes) == set(dims) - {None}:
            return self.arranged(ref, dims)
        ones = [a for a in dims if a is not None and a not in ref.axes and self.length(a) == 1]
        if ones:  # an axis of length 1 is a dim, and nothing is repeated
            ref = self.aligned(ref, tuple([None if a in ones else a for a in dims]))
            ref = self.arranged(ref, tuple([a if a in ref.axes else None for a in dims if a in ref.axes or a in ones]))
            left = iter([a for a in dims if a in ref.axes or a in ones])
            return self.full(TensorRef(ref.name, tuple([next(left) for _ in ref.dims]), ref.dtype), dims)
        array = self.array(ref)
        lengths = self.shape(dims)
        known = [n for n in lengths if isinstance(n, int)]
        if array is not None and array.size == 1 and len(known) == len(lengths) and math.prod(known) <= 4096:
            return TensorRef(self.constant(np.full(known, array.reshape(()))), dims, ref.dtype)
        key = ("full", ref, dims)
        found = self.remembered(key)
        if found is None:
            found = self.op("Expand", self.aligned(ref, dims), self.vector(lengths), dims=dims, dtype=ref.dtype)
            self.cache[key] = found
        made: TensorRef = found
        return made

    def reshaped(self, name: str, sizes: Sequence[ExprLike], dims: Dims, dtype: DType, old: Sequence[ExprLike] = ()) -> TensorRef:
        """Returns a tensor's elements in another shape; `old`: its present shape, for dims that stay."""
        array = self.shared.arrays.get(name)
        if array is not None and all(isinstance(n, int) for n in sizes):
            return TensorRef(self.variant(array.reshape([int(n) for n in sizes if isinstance(n, int)]), name), dims, dtype)
        key = ("reshaped", name, tuple(sizes))
        found = self.remembered(key)
        if found is None:
            target = list(sizes)
            zeros = any(n == 0 for n in target if isinstance(n, int))
            if not zeros:
                for k, (n, m) in enumerate(zip(target, old, strict=False)):
                    if not isinstance(n, int) and n == m:
                        target[k] = 0
                left = [k for k, n in enumerate(target) if not isinstance(n, int)]
                if len(left) == 1:
                    target[left[0]] = -1
            allow = 1 if zeros and self.opset >= 14 else None
            found = self.op("Reshape", TensorRef(name, (), dtype), self.vector(target), dims=dims, dtype=dtype, allowzero=allow).name
            self.cache[key] = found
        return TensorRef(found, dims, dtype)

    def merged(self, ref: TensorRef, groups: Sequence[Sequence[AxisId]]) -> TensorRef:
        """Returns the tensor with one dim for each group of axes, in this order, of length 1 for an empty group."""
        if all(len(g) <= 1 for g in groups):
            return self.arranged(ref, tuple([g[0] if g else None for g in groups]))
        flat = tuple([a for g in groups for a in g])
        ref = self.arranged(ref, flat)
        made = self.reshaped(ref.name, [self.size(g) for g in groups], (), ref.dtype, self.shape(flat))
        dims = tuple([g[0] if len(g) == 1 else None for g in groups])
        return TensorRef(made.name, dims, ref.dtype)

    def split(self, ref: TensorRef, groups: Sequence[Sequence[AxisId]]) -> TensorRef:
        """Returns a tensor whose dims stand for groups of axes with a dim for each axis: the inverse of `merged`."""
        if all(len(g) <= 1 for g in groups):
            return TensorRef(ref.name, tuple([g[0] if g else None for g in groups]), ref.dtype)
        flat = tuple([a for g in groups for a in g])
        return self.reshaped(ref.name, self.shape(flat), flat, ref.dtype, [self.size(g) for g in groups])

    # ---- lengths
    def length(self, axis: AxisId) -> ExprLike:
        """Returns the number of elements: a number, or an expression over `Len` of axes that calls bring, and `Run`."""
        if axis not in self.lengths:
            own = self.program.axes.get(axis)
            if own is None or own == Len(axis):
                self.lengths[axis] = self.parent.length(axis) if self.parent is not None else Len(axis)
            else:
                self.lengths[axis] = self.settle(own)
        return self.lengths[axis]

    def settle(self, e: ExprLike) -> ExprLike:
        """Returns an expression over lengths that calls bring; indices stay."""
        return expr.substitute(e, lambda leaf: self.length(leaf.of) if type(leaf) is Len else leaf)

    def known(self, axis: AxisId) -> int | None:
        n = self.length(axis)
        return n if isinstance(n, int) else None

    def shape(self, dims: Iterable[AxisId | None]) -> list[ExprLike]:
        return [1 if a is None else self.length(a) for a in dims]

    def size(self, axes: Iterable[AxisId]) -> ExprLike:
        total: ExprLike = 1
        for a in axes:
            total = total * self.length(a)
        return total

    def vector(self, sizes: Sequence[ExprLike]) -> str:
        """Returns lengths as a tensor of int64."""
        if all(isinstance(n, int) for n in sizes):
            return self.ints(int(n) for n in sizes if isinstance(n, int))
        parts: list[str] = []
        run: list[int] = []
        for n in sizes:
            if isinstance(n, int):
                run.append(n)
                continue
            parts += [self.ints(run)] if run else []
            parts.append(self.computed(n))
            run = []
        parts += [self.ints(run)] if run else []
        key = ("vector", tuple(sizes))
        found = self.remembered(key)
        if found is None:
            found = self.cache[key] = parts[0] if len(parts) == 1 else self.node("Concat", parts, axis=0)[0]
        return str(found)

    def computed(self, e: ExprLike) -> str:
        """Returns a length as a tensor of int64 with one element."""
        if isinstance(e, int):
            return self.ints([e])
        free = not any(isinstance(leaf, Run) for leaf in expr.leaves(e))
        w = self.root if free else self
        key = ("length", e)
        found = self.remembered(key)
        if found is None:
            label, w.label = w.label, "length"
            found = w.cache[key] = w._compute(e)
            w.label = label
        return str(found)

    def _compute(self, e: Expr) -> str:
        if isinstance(e, Bin):
            a, b = self.computed(e.a), self.computed(e.b)
            if e.op == "//" and any(n < 0 for (n,) in numbers(e.a) or [(-1,)]):  # Div truncates towards 0
                a = self.node("Sub", [a, self.node("Mod", [a, b])[0]])[0]
            return self.node(ARITHMETIC[e.op], [a, b])[0]
        if isinstance(e, Len):
            return self._measured(e.of)
        assert isinstance(e, Run)
        ref = self.cast(self.refs[e.of] if e.of in self.refs else self._around(e.of), INT64)
        return self.node("Reshape", [ref.name, self.ints([1])])[0]

    def _around(self, value: Value) -> TensorRef:
        w = self.parent
        while w is not None and value not in w.refs:
            w = w.parent
        assert w is not None
        return w.refs[value]

    def _measured(self, axis: AxisId) -> str:
        """Returns the length of an axis that calls bring, taken from an input that has it."""
        for value in self.program.sources():
            for k, a in enumerate(value.axes):
                if a == axis or self.program.axes[a] == Len(axis):
                    name = self.refs[value].name
                    if self.opset >= 15:
                        return self.node("Shape", [name], start=k, end=k + 1)[0]
                    whole = self.remembered(("shape", name)) or self.node("Shape", [name])[0]
                    self.cache["shape", name] = whole
                    return self.node("Gather", [whole, self.ints([k])], axis=0)[0]
        raise self.program.no_length(axis)

    def scalar(self, e: ExprLike) -> str:
        """Returns a length as a scalar of int64."""
        if isinstance(e, int):
            return self.constant(np.array(e, np.int64))
        key = ("scalar", e)
        found = self.remembered(key)
        if found is None:
            found = self.cache[key] = self.node("Squeeze", [self.computed(e), self.ints([0])])[0]
        return str(found)

    def counted(self, axis: AxisId) -> TensorRef:
        """Returns 0, 1, 2 … along an axis, as int64."""
        n = self.length(axis)
        if isinstance(n, int) and n <= 1 << 16:
            return TensorRef(self.constant(np.arange(n)), (axis,), INT64)
        key = ("counted", axis)
        found = self.remembered(key)
        if found is None:
            zero, one = (self.constant(np.array(k, np.int64)) for k in (0, 1))
            found = self.cache[key] = self.op("Range", zero, self.scalar(n), one, dims=(axis,), dtype=INT64, exact=True)
        return TensorRef(found.name, (axis,), INT64)

    def placed(self, e: ExprLike) -> TensorRef:
        """Returns the values of an index expression, as int64, over its axes."""
        if isinstance(e, Idx):
            return self.counted(e.of)
        axes = [leaf.of for leaf in expr.leaves(e) if isinstance(leaf, Idx)]
        if not axes:
            return TensorRef(self.scalar(self.settle(e)), (), INT64)
        assert isinstance(e, Bin)
        a, b = self.placed(e.a), self.placed(e.b)
        if e.op == "//" and not positive(e.a):
            a = self.elementwise("Sub", a, self.elementwise("Mod", a, b))
        return self.elementwise(ARITHMETIC[e.op], a, b)

    # ---- element by element
    def elementwise(self, op: str, *refs: TensorRef, dtype: DType | None = None, **attrs: Any) -> TensorRef:
        """Returns a node on aligned operands: axes in the order of the largest, then the others' further axes."""
        if op == "Where" and refs[1].dtype.kind == "bool":  # for which ONNX Runtime has no kernel
            condition, then, otherwise = refs
            chosen = self.elementwise("And", condition, then)
            constant = self.shared.arrays.get(otherwise.name)
            if constant is not None and not constant.any():
                return chosen
            return self.elementwise("Or", chosen, self.elementwise("And", self.elementwise("Not", condition), otherwise))
        dims = self.common(refs)
        if op in ("Add", "Sub", "Mul") and len(dims) == 2 and all(len(r.axes) == 1 for r in refs):
            # shape inference takes vectors for shapes, and refuses unequal lengths
            refs = self.full(refs[0], tuple([a for a in dims if a is not None])), *refs[1:]
        given = [self.aligned(r, dims) for r in refs]
        rank = max(len(r.dims) for r in given)
        return self.op(op, *given, dims=dims[len(dims) - rank :], dtype=dtype or refs[-1].dtype, **attrs)

    def common(self, refs: Sequence[TensorRef]) -> Dims:
        """Returns the dims of the common result of operands."""
        largest = max(refs, key=lambda r: (len(r.axes), len(r.dims)))
        return largest.dims + tuple(dict.fromkeys(a for r in refs for a in r.axes if a not in largest.dims))

    def output(self, ref: TensorRef, axes: Sequence[AxisId]) -> TensorRef:
        """Returns an output of the graph with all its axes, in their order."""
        return self.full(ref, tuple(axes))

    # whole program
    def run(self) -> None:
        """Adds nodes for all steps. Steps without nodes are added to `refused`, and translation continues."""
        for step in self.program.steps:
            self.label, self.node_name = label(step), node_name(step)
            self.shared.reserved.difference_update([label(step, k) for k in range(len(step.results))])
            first = len(self.part.nodes)
            try:
                made = self._written(step)
            except Cannot as reason:
                self.refused(step, str(reason))
                made = tuple([TensorRef("?", tuple(v.axes), v.dtype) for v in step.results])
            for k, (value, ref) in enumerate(zip(step.results, made, strict=True)):
                self.refs[value] = ref
                self._call(ref, step, k, first)
                if ref.name not in ("?", "") and ref.name not in self.shared.arrays:
                    self.shared.types[ref.name] = ref.dtype, tuple(self.shape(ref.dims)), ref.dims

    def _call(self, ref: TensorRef, step: Step, k: int, first: int) -> None:
        """Names the result number `k` of a step, whose nodes are those from number `first` on; those before it get a number."""
        name = ref.name
        maker, swapped, wanted = self.shared.makers.get(name), self.shared.swapped, label(step, k)
        if maker is None or name in self.shared.called:
            return
        mine = [o for node in self.part.nodes[first:] for o in node.outputs]
        value = step.results[k]
        dims = self.shared.read.get(wanted)
        axes = dict(enumerate(value.axes))
        another = dims is not None and ref.dims != tuple([None if d is None else axes.get(d, "") for d in dims])
        if another:
            # without a dim of length 1, in another order, or before it is broadcast, it is another value than the file's
            for made in {name, *mine} & ({name, wanted} if value.hint else {wanted}):
                swapped[made] = self.shared.fresh(f"{wanted}_rearranged")
        if value.hint:
            self.shared.called.add(name)
            maker.last = True
            if another:
                return
            if (
                name != wanted and wanted not in self.shared.taken
            ):  # nodes are called after the first result; some steps have none of their own
                self.shared.taken.add(wanted)
                swapped[name] = wanted
        first_made = wanted if wanted in mine else mine[0] if mine else ""  # nodes about lengths may stand before
        if name in mine and name != first_made and first_made not in swapped and name.startswith(first_made):
            swapped.update({name: first_made, first_made: name})

    def changed(self, ref: TensorRef) -> TensorRef:
        """Returns a tensor whose node was changed, so that it has the value of this step, and the name of the earlier one no longer."""
        self.shared.called.discard(ref.name)
        self.shared.swapped[ref.name] = self.shared.fresh(self.label)
        return ref

    def _written(self, step: Step) -> tuple[TensorRef, ...]:
        found = rule_of(step.op)
        if found is None:
            raise Cannot(step.op)
        empty = self._empty(step)
        if empty is not None:
            return empty
        refs = [self.refs.get(v, TOKEN) for v in step.inputs]
        made = found(self, step, *refs, **step.attrs)
        return made if type(made) is tuple else (made,)  # a TensorRef is a tuple, too, of another type

    def _empty(self, step: Step) -> tuple[TensorRef, ...] | None:
        """Returns results without elements as constants; None where some have elements."""
        sizes = [[self.length(a) for a in v.axes] for v in step.results]
        if not all(0 in s and all(isinstance(n, int) for n in s) for s in sizes) or not sizes:
            return None
        made = []
        for v, s in zip(step.results, sizes, strict=True):
            name = self.constant(np.zeros([int(n) for n in s if isinstance(n, int)], v.dtype.np))
            made.append(TensorRef(name, tuple(v.axes), v.dtype))
        return tuple(made)


IMPORTED = re.compile(r"\w+ '(.+)'")  # in place of a line for ops from a file


def node_name(step: Step) -> str:
    """Returns the name of the node of a file that a step was read from; "" for others."""
    came = IMPORTED.fullmatch(step.origin[0].file) if step.origin else None
    return came[1] if came else ""


def label(step: Step, k: int = 0) -> str:
    """Returns the name of a step's result number `k`: its own, that of the node it was read from, or its op's; a user's after its scope."""
    own = step.results[k].hint if step.results else ""
    read = node_name(step)
    if read or not step.origin:
        return own or read or step.op
    origin = step.origin[0]
    return "/".join(filter(None, (origin.scope, own or origin.name)))


def hints(program: Program) -> set[str]:
    """Returns the labels of steps whose results have names, in bodies, too."""
    found = {label(s, k) for s in program.steps for k, v in enumerate(s.results) if v.hint}
    return found.union(*[hints(a) for s in program.steps for a in s.attrs.values() if type(a) is Program])


TOKEN = TensorRef("", (), DTYPES["token"])


def _never(step: Step, reason: str) -> None:
    raise Cannot(reason)
