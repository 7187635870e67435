"""A graph of torch.fx as it is read: its nodes as translators see them, and the ops that they become."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Node

from ngraph.errors import GraphError, NgraphError, UnsupportedError, by_user
from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.shapes import at, size_op
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value, call
from ngraph.frontends.torch import dtype as kinds
from ngraph.frontends.torch import private, table
from ngraph.frontends.torch.lengths import SymbolicTrace, TorchTrace
from ngraph.op_graph import dtypes
from ngraph.op_graph.arrays import slowest_first
from ngraph.op_graph.axes import Axis, merge
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Expr, ExprLike, Len
from ngraph.op_graph.op import Op, SourceLocation, made_for
from ngraph.ops import elementwise as e
from ngraph.ops.rearrange import broadcast
from ngraph.ops.state import placeholder, variable

VALUE_CHECKS = frozenset(f"aten.{name}" for name in "_assert_async _linalg_check_errors".split())  # the others check lengths and dtypes
CHECKS = VALUE_CHECKS | frozenset(
    f"aten.{name}" for name in "_assert_scalar _assert_tensor_metadata sym_constrain_range sym_constrain_range_for_size".split()
)
TAKE_NUMBERS = frozenset(
    f"aten.{name}"
    for name in "add sub rsub mul div remainder pow eq ne lt le gt ge maximum minimum clamp clamp_min clamp_max masked_fill full"
    " scalar_tensor".split()
)
SETTINGS = frozenset(  # numbers in schemas that the code of an op depends on
    "alpha beta correction input_scale lambd max_val maxnorm min_val negative_slope ord p scale threshold".split()
)
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
FORMULAS: dict[Any, Callable[..., Op]] = {  # how numbers follow from lengths: those of SymFloats
    operator.truediv: e.divide,
    operator.mul: e.multiply,
    operator.add: e.add,
    operator.sub: e.subtract,
    operator.pow: e.power,
    operator.neg: e.negative,
    torch.sym_float: lambda x: x,
    torch._sym_sqrt: e.sqrt,
}


def name_of(node: Node) -> str:
    """Returns what a node calls, `aten.add.Tensor`, `higher_order.cond`."""
    target = node.target
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    return str(target) if isinstance(target, torch._ops.OpOverload) else getattr(target, "__name__", str(target))


def fetch(gm: GraphModule, path: str) -> Any:
    """Returns what a module holds under a dotted name."""
    found: Any = gm
    for part in path.split("."):
        found = getattr(found, part)
    return found


def called(node: Node) -> str:
    """Returns what a node calls, or what a call that is kept in order by a token calls."""
    return str(node.args[1]) if name_of(node) == "higher_order.with_effects" else name_of(node)


def is_check(node: Node) -> bool:
    """Whether a node only checks lengths or values, and raises an error: between segments torch runs it."""
    return called(node).rpartition(".")[0] in CHECKS


def checks_values(node: Node) -> bool:
    """Whether a node only checks values: its translator gives zeros, of int64, and the call fails where they are computed of wrong ones."""
    return called(node).rpartition(".")[0] in VALUE_CHECKS


def skipped(node: Node) -> bool:
    """Whether a node computes or checks lengths alone, which are known without it."""
    return isinstance(node.meta.get("val"), SYMBOLIC) or is_check(node) and not checks_values(node)


def if_zero(g: SymbolicTrace, t: Tensor, *nothing: Tensor) -> Tensor:
    """Returns a tensor, computed behind checks: zeros that are broadcast to it."""

    def taken(x: Op, y: Op) -> Op:
        return e.where(e.equal(y, 0), broadcast(x, merge(x.axes, y.axes)), e.filled(0, (), x.dtype))

    for zeros in nothing:
        t = each(g, taken, t, zeros)
    return t


def behind_checks(g: SymbolicTrace, results: Sequence[Value], nodes: Iterable[Node], values: Mapping[Node, Value]) -> list[Value]:
    """Returns results of which the first tensor is computed behind the checks of values among the nodes."""
    found = list(results)
    nothing = [v[1] if isinstance(v, tuple) else v for v in [values[n] for n in nodes if n in values and checks_values(n)]]
    first = next((k for k, v in enumerate(found) if isinstance(v, Tensor)), None)
    if first is not None and nothing:
        found[first] = if_zero(g, found[first], *nothing)
    return found


def told(node: Node) -> list[tuple[str, int | None]]:
    """Returns the lengths that a node's value tells by itself: symbols, and the dim of a tensor that has each; None for a SymInt."""
    val = node.meta.get("val")
    if isinstance(val, torch.SymInt):
        return [(str(val.node.expr), None)] if val.node.expr.is_Symbol else []
    if not isinstance(val, torch.Tensor):
        return []
    return [(str(n.node.expr), k) for k, n in enumerate(val.shape) if isinstance(n, torch.SymInt) and n.node.expr.is_Symbol]


def is_item(node: Node) -> bool:
    """Whether a node takes the number out of a tensor, as `item()` does."""
    return name_of(node) == "aten._local_scalar_dense.default"


@cache
def place_of(stack: str | None) -> tuple[str, int]:
    """Returns the file and line of the user's innermost call in a node's stack trace, else of a library's; ("", 0) where it has none."""
    users = between = "", 0
    for row in (stack or "").splitlines():
        row = row.strip()
        if row.startswith('File "'):
            file, _, rest = row[6:].partition('", line ')
            owner = by_user(file)
            if owner:
                users = file, int(rest.partition(",")[0])
            elif owner is None:
                between = file, int(rest.partition(",")[0])
    return users if users[0] else between


def place_in(nodes: Iterable[Node]) -> tuple[str, int] | None:
    """Returns the first place of the user's in the stack traces of nodes; None where they have none."""
    return next((place for n in nodes if (place := place_of(n.meta.get("stack_trace")))[0]), None)


def place_at(gm: GraphModule, line: tuple[str, int] | None) -> None:
    """Gives each node of a graph that comes from no line of the user's this one."""
    for node in gm.graph.nodes:
        if line is not None and not line_of(node):
            node.meta["stack_trace"] = f'File "{line[0]}", line {line[1]}, in compile_step'


def line_of(node: Node) -> str:
    """Returns the user's line that a node comes from, `model.py:12`; "" where it is not known."""
    file, number = place_of(node.meta.get("stack_trace"))
    return f"{file}:{number}" if file else ""


def at_line_of(node: Node) -> AbstractContextManager[object]:
    """Gives ops made in this block the user's line that a node comes from, or its name where that is not known."""
    file, number = place_of(node.meta.get("stack_trace"))
    return made_for(SourceLocation((file or f"{name_of(node)} {node.name!r}", number), ""))


class TorchNode:
    """A node as its translator sees it.

    g      the reading      node   the node      val  what it gives: a tensor that has no elements, or a tuple of them
    dtype  of its (first) result                 shape  its lengths
    """

    __slots__ = ("g", "node", "val")

    def __init__(self, g: SymbolicTrace, node: Node):
        self.g, self.node, self.val = g, node, node.meta.get("val")

    @property
    def first(self) -> Any:
        return self.val[0] if isinstance(self.val, (tuple, list)) else self.val

    @property
    def dtype(self) -> DType:
        return kinds.OURS[self.first.dtype]

    @property
    def shape(self) -> list[ExprLike]:
        return self.shape_of(0)

    def shape_of(self, k: int) -> list[ExprLike]:
        """The lengths of its k-th result."""
        val = self.val[k] if isinstance(self.val, (tuple, list)) else self.val
        return [self.g.length(n) for n in val.shape]

    def of(self, value: Any, dtype: DType | None = None) -> Tensor:
        """Returns a tensor, a Python number, or a length as a tensor of a dtype."""
        if isinstance(value, Tensor):
            return value if dtype is None or value.dtype is dtype else Tensor(e.cast(value.op, dtype), value.dims)
        if isinstance(value, Expr):
            return Tensor(e.cast(size_op(value), dtype or dtypes.int64), [])
        dtype = dtype or (dtypes.bool_ if isinstance(value, bool) else dtypes.int64 if isinstance(value, int) else dtypes.float32)
        if dtype.is_integer or dtype.kind == "bool":
            value = dtype.np.type(np.asarray(value).astype(dtype.np)).item()
        return Tensor(e.filled(value, (), dtype), [])

    def each(self, function: Callable[..., Op], *values: Any, dtype: DType | None = None) -> Tensor:
        """A function of ops, element by element, of values that are broadcast, computed in a dtype; by default that of the result."""
        dtype = dtype or kinds.wide(self.dtype)
        return self.give(each(self.g, function, *[self.of(v, dtype) for v in values]))

    def give(self, t: Tensor) -> Tensor:
        """Returns a tensor in the dtype of the result."""
        return self.of(t, self.dtype)

    def common(self, *args: Any) -> DType:
        """The dtype to which PyTorch promotes these arguments of the node."""
        fakes = [a.meta["val"] if isinstance(a, Node) else a for a in args]
        return kinds.OURS[torch.result_type(*fakes)]

    def lack(self, what: str, fix: str = "") -> UnsupportedError:
        """Returns the error for what there is no translation of."""
        return UnsupportedError(what, fix=fix)


def tensors_in(val: Any) -> list[Any]:
    """The tensors of a node's value."""
    if isinstance(val, torch.Tensor):
        return [val]
    if isinstance(val, (tuple, list)):
        return [t for v in val for t in tensors_in(v)]
    return []


def unfit(val: Any) -> str:
    """Returns why a value cannot be ours; "" where it can."""
    for t in tensors_in(val):
        if t.layout is not torch.strided or t.is_quantized:
            return f"layout {str(t.layout).removeprefix('torch.')}"
        if t.dtype not in kinds.OURS:
            return f"dtype {str(t.dtype).removeprefix('torch.')}"
        if t.device.type != "cpu":
            return f"device {t.device.type}"
        if t.is_sparse:
            return "a sparse tensor"
    return ""


class NodeReading:
    """Nodes of a graph as they are read: their values, by node."""

    def __init__(self, g: SymbolicTrace):
        self.g = g
        self.values: dict[Node, Value] = {}
        self.scalars = False  # whether the node that is read takes a tensor for a number

    def of(self, a: Any) -> Any:
        """Returns an argument of a node as its translator gets it."""
        if isinstance(a, Node):
            if a in self.values:
                return self.values[a]
            val = a.meta.get("val")
            if isinstance(val, torch.SymInt):
                return self.g.length(val)
            if isinstance(val, torch.SymFloat) and is_item(a) and self.scalars:
                return self.g.reshape(self.of(a.args[0]), [])
            if isinstance(val, torch.SymFloat) and a.target in FORMULAS and self.scalars:
                self.values[a] = made = Tensor(FORMULAS[a.target](*[self._number(x) for x in a.args]), [])
                return made
            if isinstance(val, SYMBOLIC):
                raise UnsupportedError(f"a {type(val).__name__} is an argument")
            if a.op == "get_attr":
                return self.held(a)
            raise GraphError(f"{a.name} has no value where it is used")
        if isinstance(a, torch.SymInt):
            return self.g.length(a)
        if isinstance(a, (list, tuple)):
            return type(a)([self.of(x) for x in a]) if type(a) in (list, tuple) else [self.of(x) for x in a]
        if isinstance(a, dict):
            return {k: self.of(v) for k, v in a.items()}
        return a

    def _number(self, a: Any) -> Op:
        """Returns an argument of a formula as a scalar."""
        found = self.of(a)
        if isinstance(found, Tensor):
            return found.op
        return e.cast(size_op(found), dtypes.float64) if isinstance(found, (int, Expr)) else e.filled(found, [], dtypes.float64)

    def held(self, node: Node) -> Any:
        """Returns what a `get_attr` is: a graph for a body, or a tensor as a constant."""
        found = fetch(node.graph.owning_module, str(node.target))
        if not isinstance(found, torch.Tensor):
            return found
        with private.no_fakes():
            return self.g.tensor(ConstantArray(np.array(kinds.array_of(found))))

    def read(self, node: Node) -> None:
        """Translates a node. Raises UnsupportedError for what is not ours."""
        name = name_of(node)
        if name == "getitem":
            self.values[node] = self.values[node.args[0]][node.args[1]]
            call(self.values[node], node.name)
            return
        n = TorchNode(self.g, node)
        function = table.find(name)
        if function is None:
            record = table.one_to_one().get(name.rpartition(".")[0])
            if record is None:
                raise UnsupportedError("no translation")
            function = plain(record)
        self.scalars = name.rpartition(".")[0] in TAKE_NUMBERS
        try:
            args, named = self.arguments(node)
            with at_line_of(node):
                self.values[node] = function(n, *args, **named)
            call(self.values[node], node.name)
        except UnsupportedError:
            raise
        except NgraphError as error:
            where = (f"at {line_of(node)}", *error.details)
            raise type(error)(f"{name} ({node.name}): {error.message}", details=where, fix=error.fix) from error

    def arguments(self, node: Node) -> tuple[Any, dict[str, Any]]:
        """Returns a node's arguments as its translator gets them. An open length that is no length to the op, but a number that the code
        depends on, such as the p of a norm, is taken as it is in this call, with a guard."""
        args, named = self.of(node.args), self.of(node.kwargs)
        if not any(isinstance(a, Expr) for a in (*args, *named.values())):
            return args, named
        schema = getattr(node.target, "_schema", None)
        names = [a.name for a in schema.arguments] if schema is not None else [""] * len(args)
        return tuple(map(self._settled, names, args)), {name: self._settled(name, a) for name, a in named.items()}

    def _settled(self, name: str, a: Any) -> Any:
        return self.g.number(a) if isinstance(a, Expr) and name in SETTINGS else a

    def read_inside(self, node: Node) -> None:
        """Translates a node of a body. Raises UnsupportedError, which names it, for what is not ours."""
        try:
            if reason := unfit(node.meta.get("val")):
                raise UnsupportedError(f"its result has {reason}")
            self.g.count()
            self.read(node)
        except UnsupportedError as error:
            raise UnsupportedError(f"{name_of(node)} in its body: {error.message}", fix=error.fix) from error


def graph_values(g: SymbolicTrace, body: GraphModule, operands: Sequence[Value]) -> list[Value]:
    """Reads the graph of a branch or of one turn of a loop for these operands. Raises UnsupportedError for what is not ours in it."""
    reading = NodeReading(g)
    g.scopes.append(reading.values)  # stages put other values in place of these
    try:
        given = iter(operands)
        for node in body.graph.nodes:
            if node.op == "placeholder":
                reading.values[node] = next(given)
            elif is_item(node) and {name_of(user) for user in node.users} == {"aten.select.int"}:
                reading.values[node] = reading.of(node.args[0])
            elif node.op == "call_function" and not skipped(node):
                reading.read_inside(node)
        output = body.graph.output_node().args[0]
        results = [reading.of(a) for a in (output if isinstance(output, (tuple, list)) else [output])]
        return behind_checks(g, results, body.graph.nodes, reading.values)
    finally:
        g.scopes.pop()


class Reading(NodeReading):
    """One reading of some nodes of a graph: the values of nodes as ops, and the placeholders that they are made of.

    holes   node -> its placeholder, and the order in which its dims lie in memory
    still   inputs that are state: what is computed of them alone is computed once
    states  node -> its variable, with axes in the order of memory
    """

    g: TorchTrace

    def __init__(self, still: Collection[Node] = ()):
        super().__init__(TorchTrace())
        self.holes: dict[Node, tuple[Op, tuple[int, ...]]] = {}
        self.states: dict[Node, Op] = {}
        self.still = still

    # ---- inputs
    def hole(self, node: Node) -> None:
        """Makes a placeholder of a node's tensor, or a variable."""
        val = node.meta["val"]
        if node in self.still:
            self._state(node, val)
            return
        g, taken, axes = self.g, set[Axis](), []
        for size in val.shape:
            n = g.length(size)
            axis = n.of if isinstance(n, Len) and n.of not in taken else g.fresh(n)
            taken.add(axis)
            axes.append(axis)
        t = g.input(-1 - len(self.holes), kinds.OURS[val.dtype], axes, node.name)
        op = next(o for o, (slot, _) in g.slots.items() if slot == -1 - len(self.holes) and o.is_placeholder)
        self.holes[node] = op, memory_order(val)
        self.values[node] = t

    def _state(self, node: Node, val: Any) -> None:
        axes, order = [self.g.fresh(n) for n in val.shape], memory_order(val)
        self.states[node] = made = variable([axes[k] for k in order], dtype=kinds.OURS[val.dtype], name=node.name)
        self.values[node] = self.g.made(broadcast(made, axes), axes)

    def constant(self, node: Node) -> None:
        """Takes a tensor that the graph holds."""
        self.values[node] = self.held(node)

    # ---- results
    def op(self, node: Node, order: Sequence[int], gone: Sequence[int] = ()) -> Op:
        """Returns a node's tensor as an op whose axes are its dims in this order; of dims in `gone` the first element alone."""
        t: Tensor = self.values[node]
        for k in gone:
            t = at(self.g, t, k, 0)
            t = Tensor(t.op, [*t.dims[:k], None, *t.dims[k:]])
        t = self.g.full(t)
        return broadcast(t.op, [t.dims[k] for k in order])

    def like(self, node: Node, hole: Op) -> Op:
        """Returns a node's tensor as an op with the axes of a placeholder."""
        t: Tensor = self.values[node]
        return self.g.renamed(t, hole.axes).op

    def lengths(self, holes: Sequence[Op]) -> dict[str, Op]:
        """Returns a placeholder for each symbol that none of these tells; it has that length, and no values that are read."""
        told = {a.name for op in holes for a in op.axes}
        return {name: placeholder([axis], dtype=dtypes.bool_) for name, (axis, _) in self.g.symbols.items() if name not in told}


def plain(record: Any) -> Callable[..., Tensor]:
    """The translator of an op that is a record: of the dtype of the result, or of the operands' where that is bool."""

    def translate(n: TorchNode, *values: Any) -> Tensor:
        if n.dtype.kind == "bool":
            return n.each(record, *values, dtype=n.common(*n.node.args) if len(values) > 1 else values[0].dtype)
        return n.each(record, *values)

    return translate


def hint(n: Any) -> int:
    """Returns a length or a stride as it is in the call that is being compiled."""
    return n if isinstance(n, int) else private.hint_of(n)


def memory_order(val: Any) -> tuple[int, ...]:
    """Returns a tensor's dims in the order in which they lie in memory, the slowest first."""
    return slowest_first([hint(s) for s in val.stride()])
