"""Program → plan: nodes, groups, kernels over buffers, memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ngraph.errors import ProgramError
from ngraph.op_graph import expr
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Expr, ExprLike, Run
from ngraph.op_graph.opdef import ELEMENTWISE
from ngraph.parts.deferred import deferred
from ngraph.parts.runner import Pass, Pipeline, form, inside, pass_
from ngraph.parts.storage import lifetimes
from ngraph.passes import plan_passes
from ngraph.passes.specialise import specialise
from ngraph.plan.cost import FusionGroup
from ngraph.plan.deduplication import read_numbers
from ngraph.plan.fuse import fuse
from ngraph.plan.kernels import Buffer, Kernel, OpaqueOp, Plan, PlanStep, dims_of
from ngraph.plan.layout import insert_packing
from ngraph.plan.memory import allocate, kept_in_place, may_replace
from ngraph.plan.packing import copy_of
from ngraph.plan.stages import kernel_of, widened
from ngraph.plan.text import text
from ngraph.plan.verify import verify
from ngraph.program.program import AxisId, Program, Value, map_attr
from ngraph.rewrite.runner import run
from ngraph.targets import DEFAULT
from ngraph.targets.machine import Cpu
from ngraph.targets.tuning import BATCHED_TOP_K_PART, MAX_TOP_K, TOP_K_PART
from ngraph.tensors.bf16_dot import use_bf16_dots
from ngraph.tensors.build import build
from ngraph.tensors.digits import split_digits
from ngraph.tensors.float_dot import use_float_dots
from ngraph.tensors.graph import Constant, TensorGraph, TensorNode
from ngraph.tensors.index import Load, Read, bounds, loads
from ngraph.tensors.int8_dot import use_int8_dots
from ngraph.tensors.layout import assign_layouts
from ngraph.tensors.simplify import contract_fma, drop_result_copies, rename_axes
from ngraph.tensors.strided_reductions import split_strided_reductions
from ngraph.tensors.winograd import winograd

graph_text, graph_verify = deferred("ngraph.tensors.text"), deferred("ngraph.tensors.verify")

form(
    TensorGraph,
    "tensor graph",
    "nodes",
    size=lambda g: len(g.nodes),
    text=lambda g: graph_text.text(g),
    verify=lambda g: graph_verify.verify(g),
    broken=ProgramError,
)
form(Plan, "plan", "steps", size=lambda p: len(p.every), text=text, verify=verify, broken=ProgramError, mutable=True)


@pass_(needs=("scalar_ops", "loop_invariant"), gives=("integer sums",))
def tensors(program: Program, scalar_ops: Collection[str], loop_invariant: Collection[Value]) -> TensorGraph:
    """Returns the program as scalar operations over index spaces; sums of integers stay in their own dtype."""
    return build(program, scalar_ops, loop_invariant)


@pass_(needs=("borders", "unplaced"), keeps=("unplaced",))
def in_place(plan: Plan) -> Plan:
    """Lets a new value of state, or of an input that is written, reuse the memory of the old one where nothing reads the old one later.

    Elements that do not change are not copied. What replaces an input that is read later is copied there when all other steps are done.
    """
    plan.steps = _readers_first(plan)
    read = lifetimes(step.sources for step in plan.steps)
    writer = {b: k for k, step in enumerate(plan.steps) for b in step.targets}
    counted = set(loads(*plan.axes.values()))  # lengths are read from these until the end
    steps = list(plan.steps)

    def replaced(before: Buffer, after: Buffer) -> bool:
        k = writer[after]
        maker = steps[k]
        if type(maker) is not Kernel or before in counted or read.get(before, (-1, -1))[1] > k or not may_replace(maker, before, after):
            return False
        after.shares = before
        steps[k] = kept_in_place(maker, before, after)
        return True

    for _, before, after in plan.state:
        if before is not after:
            replaced(before, after)
    for k, n in plan.writes:
        before, after = plan.inputs[k], plan.outputs[n]
        if not replaced(before, after) and before not in counted:
            origin = steps[writer[after]].origin
            after.storage = "arena"
            made, copy = copy_of(after, _length_in(plan), origin)
            made.name, made.storage, made.shares = before.name, "output", before
            plan.outputs = (*plan.outputs[:n], made, *plan.outputs[n + 1 :])
            plan.buffers += (made,)
            steps.append(copy)
    plan.steps = tuple(steps)
    return plan


def _readers_first(plan: Plan) -> tuple[PlanStep, ...]:
    """Returns the steps with those that make new state behind the last reader of the old, where none between them needs their results."""
    steps = list(plan.steps)
    for _, before, after in plan.state:
        k = next((k for k, s in enumerate(steps) if before is not after and after in s.targets), len(steps))
        last = max([j for j in range(k + 1, len(steps)) if before in steps[j].sources], default=k)
        made = {*steps[k].targets} if last > k else set()
        if last > k and not any(made.intersection(s.sources) for s in steps[k + 1 : last + 1]):
            steps[k : last + 1] = [*steps[k + 1 : last + 1], steps[k]]
    return tuple(steps)


def _length_in(plan: Plan) -> Callable[[AxisId], int | None]:
    def length(a: AxisId) -> int | None:
        try:
            return plan.length(a)
        except LookupError:
            return None

    return length


GRAPH_PASSES = Pipeline(  # before nodes are fused
    split_digits,
    rename_axes,
    drop_result_copies,
    contract_fma,
    split_strided_reductions,
    use_int8_dots,  # before sums of whole numbers become sums of floats
    winograd,
    use_float_dots,
    use_bf16_dots,
    assign_layouts,  # last: nodes made later have no layout
)
BUFFER_PASSES = Pipeline(  # on kernels over buffers
    insert_packing,
    in_place,  # once borders are known: a buffer with a border keeps its memory
    read_numbers,
    allocate,
)


def plan(
    program: Program,
    lengths: Mapping[str, int] | None = None,
    machine: Cpu = DEFAULT,
    winograd: bool = True,
    passes: Iterable[Any] = plan_passes,
    scalar_ops: Collection[str] = ELEMENTWISE.names,
) -> Plan:
    """Returns the plan of a program, for these lengths of its symbols; a symbol without one stays unknown, and costs use a guess.

    Without `winograd` all convolutions are computed directly. `passes` are the passes of the program. Passes of the graph and of the plan
    follow, and are visible in the same way: by `watching()`, `DEBUG=5`, `CHECK=1`.
    `scalar_ops` are the elementwise ops with machine code; others are library calls.
    """
    graph_passes = GRAPH_PASSES if winograd else GRAPH_PASSES.without("winograd")
    return _Planner(run(program, passes, lengths=lengths or {}), machine, graph_passes, scalar_ops).plan()


class _Planner:
    graph: TensorGraph

    def __init__(
        self, program: Program, machine: Cpu, graph_passes: Pipeline, scalar_ops: Collection[str], loop_invariant: slice = slice(0)
    ):
        self.program, self.machine, self.graph_passes, self.scalar_ops = program, machine, graph_passes, scalar_ops
        self.loop_invariant = loop_invariant
        self.buffers: dict[Any, Buffer] = {}
        self.every: list[Buffer] = []

    def buffer(self, key: Any, name: str, axes: Iterable[AxisId], dtype: Any, storage: str, **fields: Any) -> Buffer:
        made = self.buffers[key] = Buffer(name, dims_of(axes), dtype, storage, **fields)
        self.every.append(made)
        return made

    def plan(self) -> Plan:
        kernels = Pass(self.kernels, needs=("layouts",), gives=("unplaced",), keeps=(), name="fuse")
        passes = (tensors, *self.graph_passes, kernels, *BUFFER_PASSES)
        loop_invariant = self.program.inputs[self.loop_invariant]
        made: Plan = run(self.program, passes, machine=self.machine, scalar_ops=self.scalar_ops, loop_invariant=loop_invariant)
        return made

    def kernels(self, g: TensorGraph) -> Plan:
        """Returns the nodes of a graph as kernels over buffers."""
        p = self.program
        inputs = tuple([self.buffer(v, v.hint, v.axes, v.dtype, "input") for v in p.inputs])
        for b in inputs[self.loop_invariant]:
            b.loop_invariant = True
        before = {s.value: self.buffer(s.value, s.name, s.value.axes, s.value.dtype, "state") for s in p.state_in}
        token = None if p.token_in is None else self.buffer(p.token_in, "token", (), p.token_in.dtype, "run")
        self.graph, groups = fuse(g, self.machine)
        g = self.graph
        for group in groups:
            self.results(group)
        steps = tuple([self.step(group) for group in groups if not group.nodes[0].once])
        once = tuple([self.step(group) for group in groups if group.nodes[0].once])
        axes = {a: self.length(e) for a, e in g.axes.items()}
        written = {name: self.buffers[n] for name, _, n in g.state_out}
        state = tuple([(s.name, before[s.value], written.get(s.name, before[s.value])) for s in p.state_in])
        made = Plan(
            axes, tuple(self.every), steps, inputs, state, tuple([self.buffers[n] for n in g.outputs]), token, name=p.name, few=g.few
        )
        made.once, made.writes = once, p.writes
        made.token_out = None if g.token_out is None else self.buffers[g.token_out]
        return made

    def length(self, e: ExprLike) -> ExprLike:
        if not isinstance(e, Expr):
            return e
        return expr.substitute(e, lambda x: Load(self.buffers[self.graph.numbers[x.of].source]) if type(x) is Run else x)

    def results(self, group: FusionGroup) -> None:
        """Adds buffers for the results of a group, and for the constants it reads."""
        called = group.nodes[0].kind == "routine"  # its code stores results in their own dtypes
        for n in group.nodes if called else group.results:
            if n.kind == "routine":
                continue
            storage = "run" if n.dtype.np is None else "state" if n.state else "output" if n.result and n in self.graph.outputs else "arena"
            if n.once and any(not u.once for u in self.graph.users[n]):
                storage = "once"
            dtype = self.held_as(n) if storage in ("arena", "once") and not called else n.dtype
            self.buffer(n, n.hint, n.axes, dtype, storage)
        for _, r in group.outer:
            if type(r.source) is Constant and r.source not in self.buffers:
                c = r.source
                self.buffer(c, c.value.name, c.axes, c.dtype, "constant", value=c.value)

    def held_as(self, n: TensorNode) -> DType:
        """Returns the dtype in which a value is stored: the shorter float of which it is a cast, or to which all readers cast it."""
        users = self.graph.users[n]
        if any(r.predicate and r.pad_value != 0 for u in users for r in u.reads if r.source is n) or any(
            u.kind == "routine" for u in users
        ):
            return n.dtype
        kinds = {u.dtype if u.kind == "elem" and u.op == "cast" else n.dtype for u in users}
        if widened(n) is None and (n.kind != "join" or all(part.combine == "set" for part in n.parts)) and len(kinds) == 1:
            (kind,) = kinds
            return kind if kind.is_float and n.dtype.is_float and kind.bits < n.dtype.bits else n.dtype
        return widened(n) or n.dtype

    def step(self, group: FusionGroup) -> PlanStep:
        call = group.nodes[0]
        if call.kind != "routine":
            return kernel_of(group, self.buffers)
        results = tuple([self.buffers[n] for n in group.nodes[1:]])
        inputs = tuple([self.buffers[a.source] for a in call.args if type(a) is Read])
        attrs = {k: map_attr(a, _same, self.run_buffer, self.body(call)) for k, a in call.attrs.items() if not isinstance(a, Expr)}
        attrs |= {k: a for k, a in call.attrs.items() if isinstance(a, Expr)}
        few = self.asked_for(call, group.nodes[1:]) if call.op == "sort" else None
        return OpaqueOp(call.op, inputs, results, attrs | ({} if few is None else {"few": few}), call.origin)

    def asked_for(self, call: TensorNode, parts: list[TensorNode]) -> int | None:
        """Returns the number of leading elements of each sorted row that are used, if they are few: the others are not computed."""
        axis, known = call.attrs["axis"], self.graph.known
        reads = [r for p in parts for u in self.graph.users[p] for r in u.reads if r.source is p]
        n, most = known(axis), max([bounds(r.index[axis], known)[1] + 1 for r in reads], default=0)
        if n is None or any(p.result for p in parts) or not 0 < most <= n // (TOP_K_PART if most <= MAX_TOP_K else BATCHED_TOP_K_PART):
            return None
        return int(most)

    def run_buffer(self, v: Value) -> Buffer:
        return self.buffers[v]

    def body(self, call: TensorNode) -> Callable[[Program], Plan]:
        """Returns the planner of a routine's bodies: all inputs of a loop but carries and slices are loop-invariant."""
        loop_variant_axes = call.attrs.get("carries", len(call.args)) + call.attrs.get("xs", 0)

        def planned(body: Program) -> Plan:
            known = {a: n for a in body.axes if a in self.program.axes and (n := self.graph.known(a)) is not None}
            open_: dict[str, int] = {a: n for a, n in known.items() if not isinstance(body.axes[a], int)}
            with inside(call.op):
                body = run(body, (specialise,), lengths=open_)
                return _Planner(body, self.machine, self.graph_passes, self.scalar_ops, slice(loop_variant_axes, None)).plan()

        return planned


def _same(a: Any) -> Any:
    return a
