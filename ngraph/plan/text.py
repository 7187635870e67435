"""Plans as text that parses back: `text`, `parse`, `arrays`.

    ngraph plan 1
    axis N = 4
    buffer %b0 x : float32[N] input
    buffer %b1 : float32[] output
    buffer %b2 : float32[C // 16, 1 + H + 1, W, C % 16] arena pad -inf row 32
    kernel N by 1, H by 32  # sum at "net.py":7
    stage [] over [N] depth 0
    %0 : float32 = read %b0[N: Idx(N)]
    %1 : float32 = combine add(%0)
    store %1 in %b1[]
    routine sort(%b0) gives %b1 {axis: N}
    inputs %b0
    outputs %b1

Axes, numbers, expressions, arrays and origins are printed as in programs; a sub-plan is in braces, as a body is. Where some
steps do not run in every call, the lines `once`, `start` and `call` precede those that run once, at the start, and always.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ngraph.op_graph import expr
from ngraph.op_graph.expr import ExprLike, Leaf, Len
from ngraph.op_graph.text import FORMAT
from ngraph.plan.kernels import Buffer, Combine, Dim, Kernel, Line, Local, OpaqueOp, Plan, PlanStep, Stage, Store
from ngraph.plan.memory import allocate
from ngraph.program.program import AxisId
from ngraph.program.text import _END, _Parser, _Printer
from ngraph.tensors.index import Load, Read

STORAGE_CLASSES = ("input", "state", "output", "constant", "arena", "once", "run")
WHEN = {"once": "once", "start": "start", "call": "steps"}


def text(plan: Plan, origins: bool = True) -> str:
    """Returns the plan as text. `origins=False` omits the kernels' origins."""
    return f"ngraph plan {FORMAT}{_title(plan)}\n" + _PlanPrinter(origins).plan(plan)


def step_text(plan: Plan, step: PlanStep) -> list[str]:
    """Returns one step of a plan as lines, its buffers first."""
    printer = _PlanPrinter(False)
    printer.plan(plan)
    named = [printer.buffer(b) for b in dict.fromkeys((*step.sources, *step.targets)) if type(b) is not Local]
    return named + (printer.kernel(step) if type(step) is Kernel else [printer.routine(step)] if type(step) is OpaqueOp else [])


def arrays(plan: Plan) -> dict[str, np.ndarray]:
    """Returns the large constants of a plan and its sub-plans, by the names that `text` gives them."""
    printer = _PlanPrinter(False)
    printer.plan(plan)
    return printer.arrays


def _title(plan: Plan) -> str:
    return "" if plan.name == "program" else f" {json.dumps(plan.name)}"


class _PlanPrinter(_Printer):
    """Numbers buffers and locals in order of appearance, and prints line by line."""

    def plan(self, p: Plan) -> str:
        self.buffers: dict[Buffer, str] = {b: f"%b{k}" for k, b in enumerate(p.buffers)}
        out = [
            f"axis {self.axis(a)}" + ("" if n == Len(a) else f" = {self.whole_number(n)}") + " few" * (a in p.few)
            for a, n in p.axes.items()
        ]
        out += [self.buffer(b) for b in p.buffers]
        for when, of in WHEN.items():
            out += [when] if getattr(p, of) and (p.once or p.start) else []
            for step in getattr(p, of):
                out += self.kernel(step) if type(step) is Kernel else [self.routine(step)]
        lists = (("inputs", p.inputs), ("steady", p.loop_invariant), ("outputs", p.outputs))
        out += [f"{what} {self.names_of(which)}" for what, which in lists if which]
        out += [f"state {json.dumps(name)} {self.buffers[a]} becomes {self.buffers[b]}" for name, a, b in p.state]
        out += [f"write {self.buffers[p.inputs[k]]} = output {n}" for k, n in p.writes]
        tokens = (("token_in", p.token_in), ("token_out", p.token_out))
        out += [f"{what} {self.buffers[b]}" for what, b in tokens if b is not None]
        return "".join([line + "\n" for line in out])

    def names_of(self, buffers: Iterable[Buffer]) -> str:
        return ", ".join([self.buffers[b] for b in buffers])

    def leaf(self, leaf: Leaf) -> str:
        if type(leaf) is Load:
            return f"Load(%{leaf.of})" if type(leaf.of) is int else f"Load({self.buffers[leaf.of]})"
        return super().leaf(leaf)

    def whole_number(self, e: ExprLike) -> str:
        return expr.text(e, self.leaf)

    def type_of(self, b: Buffer) -> str:
        return f"{b.dtype.name}[{', '.join([self.dim(d, b.border.get(d[0])) for d in b.dims])}]"

    def dim(self, d: Dim, border: tuple[int, int] | None) -> str:
        axis, div, mod = d
        if border is not None:
            return f"{border[0]} + {self.axis(axis)} + {border[1]}"
        return self.axis(axis) + (f" // {div}" if div != 1 else "") + (f" % {mod}" if mod is not None else "")

    def buffer(self, b: Buffer) -> str:
        line = f"buffer {self.buffers[b]} {self.word(b.name) + ' ' if b.name else ''}: {self.type_of(b)} {b.storage}"
        line += "" if b.value is None else f" = {self.array(b.value)}"
        line += "" if b.shares is None else f" shares {self.buffers[b.shares]}"
        line += self.pad_of(b)
        line += f" row {b.row}" if b.row else ""
        return line + ("" if b.offset is None else f" at {b.offset}")

    def pad_of(self, b: Buffer) -> str:
        return f" pad {self.attr(b.pad_value, _NOWHERE)}" if b.border else ""

    def kernel(self, k: Kernel) -> list[str]:
        out = self.kernel_head(k)
        for s in k.stages:
            out += self.stage(s)
        return out

    def kernel_head(self, k: Kernel) -> list[str]:
        """The line of a kernel, and those of its Locals."""
        loops = ", ".join([f"{self.axis(a)} by {b}" for a, b in k.loops]) + (" serial" if k.serial else "")
        out = [f"kernel{' ' + loops if loops else ''}{self.origin(k.origin) if self.origins else ''}"]
        locals_ = dict.fromkeys([s.target for stage in k.stages for s in stage.to if type(s.target) is Local])
        for n, b in enumerate(locals_):
            self.buffers[b] = f"%l{n}"
            out.append(f"local %l{n} : {self.type_of(b)}{self.pad_of(b)}{self.local_place(k, b)}")
        return out

    def local_place(self, k: Kernel, b: Local) -> str:
        """Returns the storage of a Local as text; "" in a plan, which leaves it open."""
        return ""

    def stage_head(self, s: Stage) -> str:
        listed = [", ".join(map(self.axis, axes)) for axes in (s.free, s.reduced)]
        return f"stage [{listed[0]}] over [{listed[1]}] depth {s.depth}"

    def stage(self, s: Stage) -> list[str]:
        out = [self.stage_head(s)]
        lines = [self.numbered_line(n, line) for n, line in s.lines()]
        out += [*lines[: len(s.before)], *self.sums(s), *lines[len(s.before) :]]
        out += [self.store(t) for t in s.to]
        return out

    def numbered_line(self, n: int, line: Line) -> str:
        return f"%{n} : {line.dtype.name} = {self.line(line)}"

    def sums(self, s: Stage) -> list[str]:
        """The lines of a stage's reductions."""
        return [f"%{n} : {c.dtype.name} = combine {c.kind}(%{c.line})" for n, c in enumerate(s.combine, len(s.before))]

    def store(self, t: Store) -> str:
        by = "" if t.combine == "set" else f" by {t.combine}"
        return f"store %{t.line} in {self.at(t.target, t.index)}{self.where(t.predicate)}{by}"

    def line(self, line: Line) -> str:
        if line.read is not None:
            r = line.read
            return f"read {self.at(r.source, r.index)}{self.where(r.predicate)}" + (
                f" pad {self.attr(r.pad_value, _NOWHERE)}" if r.predicate else ""
            )
        return f"{line.op}({', '.join([f'%{k}' for k in line.args])}){self.attributes(line.attrs)}"

    def at(self, b: Buffer, index: Mapping[AxisId, ExprLike]) -> str:
        return f"{self.buffers[b]}[{', '.join([f'{self.axis(a)}: {self.whole_number(e)}' for a, e in index.items()])}]"

    def where(self, predicate: tuple[ExprLike, ...]) -> str:
        return f" where [{', '.join(map(self.whole_number, predicate))}]" if predicate else ""

    def attributes(self, attrs: Mapping[str, Any]) -> str:
        return f" {{{', '.join([f'{self.word(k)}: {self.attr(a, _NOWHERE)}' for k, a in attrs.items()])}}}" if attrs else ""

    def attr(self, a: Any, s: Any) -> str:
        if type(a) is not Plan:
            return super().attr(a, s)
        return f"plan{_title(a)} {{\n{self.inner(a).plan(a)}}}"

    def inner(self, body: Plan) -> _PlanPrinter:
        """The printer of a plan inside an opaque op."""
        return _PlanPrinter(self.origins, self.strict, self)

    def routine(self, r: OpaqueOp) -> str:
        line = f"routine {self.word(r.op)}({self.names_of(r.inputs)}) gives {self.names_of(r.results)}{self.attributes(r.attrs)}"
        return line + (self.origin(r.origin) if self.origins else "")


class _Nowhere:
    op, origin = "a line", ()


_NOWHERE: Any = _Nowhere()


def parse(source: str, arrays: Mapping[str, Any] | None = None) -> Plan:
    """Returns the plan that `text` printed; `arrays` are its large constants. Raises ParseError with line and column for anything else.

    A plan in which a buffer has no place yet, as before the pass `allocate`, stays as it is.
    """
    return _PlanParser(source, arrays or {}).whole_plan()


class _PlanParser(_Parser):
    """The state of one parse; `buffers` are those of the current plan."""

    def whole_plan(self) -> Plan:
        name = self.head("plan")
        self.end_of_line()
        return self.plan(name, _END)

    def plan(self, name: str, end: str) -> Plan:
        p = Plan({}, (), (), (), (), (), name=name)
        buffers: list[Buffer] = []
        when: dict[str, list[Any]] = {"once": [], "start": [], "call": []}
        steps = when["call"]
        outer: dict[str, Buffer] = getattr(self, "buffers", {})
        self.buffers: dict[str, Buffer] = {}
        late: list[tuple[AxisId, int]] = []
        while (token := self.tokens[self.k]) != end:
            self.k += 1
            if token == "axis":
                self.length(p, late)
            elif token == "buffer":
                buffers.append(self.buffer())
            elif token == "kernel":
                steps.append(self.kernel())
                continue
            elif token == "routine":
                steps.append(self.routine())
            elif token in when:
                steps = when[token]
            elif token == "steady":
                for b in self.some():
                    b.loop_invariant = True
            elif token in ("inputs", "outputs"):
                setattr(p, token, tuple(self.some()))
            elif token in ("token_in", "token_out"):
                setattr(p, token, self.one())
            elif token == "state":
                called, before = self.string(), self.one()
                self.expect("becomes")
                p.state += ((called, before, self.one()),)
            elif token == "write":
                p.writes += (self.written(p),)
            else:
                self.k -= 1
                self.fail(f"a statement of a plan is expected, and here is {self.found()}")
            self.end_of_line()
        here = self.k
        for a, self.k in late:
            p.axes[a] = self.expr(bare=False)
        self.k, self.buffers = here, outer
        p.buffers, p.once, p.start, p.steps = tuple(buffers), *[tuple(s) for s in when.values()]
        placed = all(b.offset is not None for b in buffers if b.storage in ("arena", "once"))
        return allocate(p) if placed else p  # which gives sizes and strides; of a plan before `allocate` it would choose places, too

    def length(self, p: Plan, late: list[tuple[AxisId, int]]) -> None:
        """Parses a length, which may load from a buffer declared below: it is resolved at the end."""
        a = self.axis()
        p.axes[a] = Len(a)
        if self.accept("="):
            late.append((a, self.skip_to()))
        elif self.accept("few"):
            p.few |= {a}

    def written(self, p: Plan) -> tuple[int, int]:
        b = self.one()
        if b not in p.inputs:
            self.fail("an input is expected", self.k - 1)
        self.expect("=")
        self.expect("output")
        return p.inputs.index(b), self.integer()

    def one(self) -> Buffer:
        found = self.buffers.get(self.tokens[self.k])
        if found is None:
            self.fail(f"a buffer is expected, and here is {self.found()}")
        self.k += 1
        return found

    def some(self) -> list[Buffer]:
        found = []
        while self.tokens[self.k][:1] == "%":
            found.append(self.one())
            if not self.accept(","):
                break
        return found

    def dims(self) -> tuple[Any, tuple[Dim, ...], dict[AxisId, tuple[int, int]]]:
        self.expect(":")
        dtype = self.dtype()
        self.expect("[")
        border: dict[AxisId, tuple[int, int]] = {}
        return dtype, tuple(self.listed(lambda: self.dim(border))), border

    def dim(self, border: dict[AxisId, tuple[int, int]]) -> Dim:
        before = self.integer() if self.tokens[self.k].isdigit() else None
        if before is not None:
            self.expect("+")
        a = self.axis()
        if before is not None:
            self.expect("+")
            border[a] = (before, self.integer())
        div = self.integer() if self.accept("//") else 1
        return a, div, self.integer() if self.accept("%") else None

    def border_of(self, b: Buffer, border: dict[AxisId, tuple[int, int]]) -> None:
        """Reads the value of a border, which belongs to these dims."""
        b.border = border
        if self.accept("pad"):
            b.pad_value = self.attr()

    def buffer(self) -> Buffer:
        token = self.tokens[self.k]
        self.k += 1
        name = "" if self.tokens[self.k] == ":" else self.word("a name or :")
        dtype, dims, border = self.dims()
        storage = self.word("where the buffer lies")
        if storage not in STORAGE_CLASSES:
            self.fail(f"a buffer lies in one of {', '.join(STORAGE_CLASSES)}, not in {storage}", self.k - 1)
        made = self.buffers[token] = Buffer(name, dims, dtype, storage)
        if self.accept("="):
            made.value = self.array()
        if self.accept("shares"):
            made.shares = self.one()
        self.border_of(made, border)
        if self.accept("row"):
            made.row = self.integer()
        if self.accept("at"):
            made.offset = self.integer()
        return made

    def kernel(self) -> Kernel:
        loops, serial = [], False
        while self.tokens[self.k] not in ("#", _END) and self.tokens[self.k][0] != "\n":
            a = self.axis()
            self.expect("by")
            loops.append((a, self.integer()))
            serial = self.accept("serial")
            self.accept(",")
        origin = self.origin() if self.tokens[self.k] == "#" else ()
        self.end_of_line()
        self.kernel_facts()
        while self.accept("local"):
            token = self.tokens[self.k]
            self.k += 1
            dtype, dims, border = self.dims()
            made = self.buffers[token] = Local(token[1:], dims, dtype)
            self.border_of(made, border)
            self.local_place()
            self.end_of_line()
        return Kernel(tuple(loops), self.stages(), origin, serial=serial)

    def kernel_facts(self) -> None:
        """Reads what stands of a kernel as a whole; a plan says nothing."""

    def local_place(self) -> None:
        """Reads where a Local lies; a plan does not say."""

    def stages(self) -> tuple[Stage, ...]:
        stages = []
        while self.accept("stage"):
            stages.append(self.stage())
        return tuple(stages)

    def stage_head(self) -> tuple[tuple[AxisId, ...], tuple[AxisId, ...], int]:
        self.expect("[")
        free = tuple(self.listed(self.axis))
        self.expect("over")
        self.expect("[")
        reduced = tuple(self.listed(self.axis))
        self.expect("depth")
        depth = self.integer()
        self.end_of_line()
        return free, reduced, depth

    def stage(self) -> Stage:
        free, reduced, depth = self.stage_head()
        before: list[Line] = []
        after: list[Line] = []
        combine: list[Combine] = []
        to = []
        while self.tokens[self.k][:1] == "%":
            _, made = self.numbered_line()
            if isinstance(made, Combine):
                combine.append(made)
            else:
                (after if combine else before).append(made)
            self.end_of_line()
        while self.accept("store"):
            to.append(self.store())
            self.end_of_line()
        return Stage(free, reduced, tuple(before), tuple(combine), tuple(after), tuple(to), depth)

    def store(self) -> Store:
        line = self.numbered()
        self.expect("in")
        target, index = self.at()
        predicate = self.where()
        return Store(line, target, index, predicate, self.word("how to combine") if self.accept("by") else "set")

    def numbered_line(self) -> tuple[int, Line | Combine]:
        """Parses `%3 : dtype = …`: the number, and the line or the combination of a reduction."""
        n = self.numbered()
        self.expect(":")
        dtype = self.dtype()
        self.expect("=")
        if not self.accept("combine"):
            return n, self.line(dtype)
        kind = self.word("how to combine")
        self.expect("(")
        made = Combine(kind, self.numbered(), dtype)
        self.expect(")")
        return n, made

    def numbered(self) -> int:
        token = self.tokens[self.k]
        if token[:1] != "%" or not token[1:].isdigit():
            self.fail(f"the number of a line is expected, and here is {self.found()}")
        self.k += 1
        return int(token[1:])

    def line(self, dtype: Any) -> Line:
        if self.accept("read"):
            source, index = self.at()
            predicate = self.where()
            pad_value: Any = self.attr() if self.accept("pad") else 0
            return Line("read", (), dtype, {}, Read(source, index, predicate, pad_value))
        op = self.word("an operation")
        self.expect("(")
        args = tuple(self.listed(self.numbered, ")"))
        return Line(op, args, dtype, self.attributes())

    def at(self) -> tuple[Buffer, dict[AxisId, ExprLike]]:
        source = self.one()
        self.expect("[")
        return source, dict(self.listed(self.entry))

    def attr(self) -> Any:
        if self.tokens[self.k] == "Load":
            return self.expr()
        if self.tokens[self.k] != "plan" or self.tokens[self.k + 1] == ",":
            return super().attr()
        self.k += 1
        name = self.title()
        self.expect("{")
        self.end_of_line()
        made = self.plan(name, "}")
        self.k += 1
        return made

    def operand(self, bare: bool) -> Any:
        if self.tokens[self.k] != "Load":
            return super().operand(bare)
        self.k += 1
        self.expect("(")
        of: Any = self.numbered() if self.tokens[self.k][1:].isdigit() else self.one()
        self.expect(")")
        return Load(of)

    def routine(self) -> OpaqueOp:
        op = self.word("the name of an op")
        self.expect("(")
        inputs = tuple(self.some())
        self.expect(")")
        self.expect("gives")
        results = tuple(self.some())
        attrs = self.attributes()
        return OpaqueOp(op, inputs, results, attrs, self.origin() if self.tokens[self.k] == "#" else ())
