"""Scheduled plans as text that can be read and parsed back: `text`, `parse`.

    ngraph schedule 1 for x86-64-v4
    axis N = 64
    buffer %b0 x : float32[N, C] input
    kernel N by 32  # dot at "net.py":7
    local %l0 : float32[N] stack
    version N = 32
    stage [N, K] over [C] depth 1
      for K = 64 vector 16 columns 2
        for N = 32 rows 8
          sum C = 128 steps 4 listed
            %0 : float32 = read %b0[N: Idx(N), C: Idx(C)] lanes one
            %1 : float32 = read %b1[C: Idx(C), K: Idx(K)] lanes contiguous prefetch panel 4096
            %2 : float32 = multiply(%0, %1)
            %3 : float32 = combine add(%2)
          store %3 in %b2[N: Idx(N), K: Idx(K)] lanes contiguous

Plans stand as they do in the text of plans. A loop says its axes, its places and how it runs: `vector` lanes, `rows` and `columns` of the
register tile, `steps` of a sum that are written out, `listed` where loops run as one over listed offsets. `for K // 16` goes over blocks of
16 places, and `for H, W` over two axes as one. A loop whose places come with a call says how it ends: `left 4 2 1 masked` are steps of the
tile that each run at most once, then a vector of which a part is masked; 4 or more rows with sums may be up to two less. Indentation is
for readers. Behind `when Len(N) <= 4` stand the versions for such lengths; those behind `otherwise` are for all that none before is for.

A kernel for a graphics processor says how many `threads` run a work item. A loop's places are taken by threads (`thread`), lanes of a warp
(`warp`) or warps (`group`); `mask` and `skip` list the predicates that cut off what lies behind a block's end; `copy` fills the tile of a
line's source in shared memory by loops of its own; `fold` lets the sums of warps meet there; at each `barrier` all threads meet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ngraph.op_graph.expr import ExprLike, Leaf
from ngraph.op_graph.text import FORMAT
from ngraph.parts.deferred import deferred
from ngraph.plan.kernels import Combine, Kernel, Line, Local, Plan, Stage, Store
from ngraph.plan.text import _PlanParser, _PlanPrinter
from ngraph.program.program import AxisId
from ngraph.program.text import _END
from ngraph.schedule import cpu
from ngraph.schedule.form import (
    SPREAD,
    BlockChoice,
    BlockNumber,
    BlockStart,
    CopyChoice,
    LengthBound,
    Loop,
    LoopChoice,
    LoopKind,
    PrefetchAhead,
    ScheduledKernel,
    ScheduledPlan,
    ScheduledStage,
    StageChoice,
    Version,
    whole_steps,
)
from ngraph.schedule.search import LoopSchedule, remainders
from ngraph.targets import Cpu, Gpu, Target

gpu = deferred("ngraph.schedule.gpu")


def text(scheduled: ScheduledPlan, origins: bool = True) -> str:
    """The scheduled plan as text. `origins=False` leaves out where kernels come from."""
    plan = scheduled.plan
    name = "" if plan.name == "program" else f" {json.dumps(plan.name)}"
    return f"ngraph schedule {FORMAT}{name} for {scheduled.target.name}\n" + _SchedulePrinter(scheduled, origins).plan(plan)


class _SchedulePrinter(_PlanPrinter):
    """Prints plans whose kernels are loop nests."""

    def __init__(self, scheduled: ScheduledPlan, origins: bool, strict: bool = True, outer: _PlanPrinter | None = None) -> None:
        super().__init__(origins, strict, outer)
        self.scheduled = scheduled

    def inner(self, body: Plan) -> _PlanPrinter:
        return _SchedulePrinter(self.scheduled.bodies[body], self.origins, self.strict, self)

    def leaf(self, leaf: Leaf) -> str:
        if type(leaf) is BlockStart:
            return f"Start({self.axis(leaf.of)})"
        return f"Block({self.axis(leaf.of)})" if type(leaf) is BlockNumber else super().leaf(leaf)

    def local_place(self, k: Kernel, b: Local) -> str:
        place = self.scheduled.kernels[k].places[b]
        return f" {place.space}" + (f" at {self.whole_number(place.offset)}" if place.space in ("scratch", "shared") else "")

    def kernel(self, k: Kernel) -> list[str]:
        scheduled = self.scheduled.kernels[k]
        head, *locals_ = self.kernel_head(k)
        out = [head, *([f"threads {scheduled.threads}"] if scheduled.threads > 1 else []), *locals_]
        bounds = scheduled.bounds
        for version in scheduled.versions:
            if len(bounds) > 1 and version is scheduled.bounded(version.bound)[0]:
                out.append("otherwise" if version.bound is None else f"when Len({self.axis(version.bound.axis)}) <= {version.bound.most}")
            if scheduled.peeled:
                out.append(self.version(version))
            for stage in version.stages:
                out += self.nest(stage)
        return out

    def version(self, v: Version) -> str:
        return f"version {', '.join([f'{self.axis(a)} = {n}' for a, n in v.blocks.items()])}{' cold' if v.cold else ''}"

    def nest(self, s: ScheduledStage) -> list[str]:
        """The loops of a stage, each within the one before, and its lines where they run."""
        stage, out, depth = s.stage, [self.stage_head(s.stage), *self.barrier(s, "stage", 1)], 1
        for d in s.tile.order:
            out.append("  " * depth + f"for {self.loop(s, d)}")
            depth += 1
        out += self.tails(s.block, depth)
        late = depth
        for k, d in enumerate(s.sums):
            if s.block is not None and k == s.block.outer:
                out += self.copies(s, depth)
            listed = k >= len(s.sums) - s.flattened
            steps = f" steps {s.unroll}" if listed and k == len(s.sums) - 1 else f" matrix {s.tile.terms}" if d is s.tile.deep else ""
            out.append("  " * depth + f"sum {self.loop(s, d)}{steps}{' listed' if listed else ''}")
            depth += 1
        if s.block is not None and s.block.outer == len(s.sums):
            out += self.copies(s, depth)
        border, asked = len(stage.before), s.reads
        lines = [self.numbered_line(n, line) + self.access(s, asked.get(n)) for n, line in stage.lines()]
        stores = [(t.line < border, self.store(t) + self.access(s, a)) for t, a in zip(stage.to, s.stores, strict=True)]
        early = [*lines[:border], *[line for before, line in stores if before], *self.sums(stage)]
        after = [*lines[border:], *[line for before, line in stores if not before]]
        out += ["  " * depth + line for line in early]
        if s.partials:
            places = [self.scheduled_place(b) for b in s.partials]
            out += [*self.barrier(s, "partials", late), "  " * late + f"fold in {', '.join(places)}", *self.barrier(s, "folded", late)]
        return out + ["  " * (late if s.reducing else depth) + line for line in after]

    def scheduled_place(self, b: Local) -> str:
        """The storage of a Local that only the schedule has."""
        place = next(k.places[b] for k in self.scheduled.kernels.values() if b in k.places)
        return f"shared at {self.whole_number(place.offset)}"

    def barrier(self, s: ScheduledStage, where: str, depth: int) -> list[str]:
        """The line of a barrier, if there is one."""
        return ["  " * depth + "barrier"] if s.block is not None and where in s.block.barriers else []

    def tails(self, block: BlockChoice | None, depth: int) -> list[str]:
        """The line of the predicates that cut off what lies behind a block's end."""
        if block is None or not (block.tails or block.skip):
            return []
        return ["  " * depth + f"{'skip' if block.skip else 'mask'} [{', '.join(map(self.whole_number, block.tails))}]"]

    def copies(self, s: ScheduledStage, depth: int) -> list[str]:
        """The tiles of sources, between their barriers."""
        if not s.copies:
            return []
        out = self.barrier(s, "tile", depth)
        for n, tile, stage in s.copies:
            out.append("  " * depth + f"copy %{n} in {self.scheduled_place(tile)}")
            out += ["  " * (depth + 1) + f"for {self.loop(stage, d)}" for d in stage.tile.order]
            out += self.tails(stage.block, depth + 1)
        return out + self.barrier(s, "copied", depth)

    def loop(self, s: ScheduledStage, d: Loop) -> str:
        name = ", ".join([self.axis(a) + (f" // {unit}" if unit != 1 else "") for a, unit, _ in d.parts])
        how = f" vector {s.tile.lanes}" if d is s.tile.vector else ""
        how += f" rows {s.tile.rows}" if d is s.tile.tile else ""
        how += f" columns {s.tile.columns}" if d is s.tile.across and not (s.block is not None and d is s.tile.vector) else ""
        how += f" {d.spread}" if d.spread is not None else ""
        if s.block is None and not isinstance(d.extent, int) and d.lower is None:
            rest = d is s.tile.tile and s.tile.deep is not None
            ending = ["rest"] if rest else _ending(d.extent, s.tile.units(d), s.tile.lanes * (d is s.tile.vector), s.cuts_rows(d))
            how += "".join([f" {word}" for word in ending])
        return f"{name} = {self.whole_number(d.extent)}{how}"

    def access(self, s: ScheduledStage, a: Any) -> str:
        if a is None:
            return ""
        lanes = "" if a.mode == "scalar" else f" lanes {a.mode}"
        return lanes + (f" prefetch {a.prefetch.kind} {a.prefetch.distance}" if a.prefetch is not None else "")


def parse(source: str, targets: Mapping[str, Target], arrays: Mapping[str, Any] | None = None) -> ScheduledPlan:
    """The scheduled plan that `text` printed for one of these targets; `arrays` are its large constants.

    Raises ParseError with line and column for anything else, and where loops are not those of the kernel.
    """
    return _ScheduleParser(source, targets, arrays or {}).whole_schedule()


def _ending(extent: ExprLike, units: int, lanes: int, rows: bool) -> list[str]:
    """Returns what is said of the end of a loop of open length: the shorter steps, and whether a masked vector follows (0 lanes: none)."""
    whole = whole_steps(extent, lanes or 1)
    steps = [str(x.units) for x in remainders(units, rows, whole or 1)[1:]]
    return (["left", *steps] if steps else []) + ["masked"] * (lanes > 0 and not whole)


@dataclass(frozen=True, eq=False)
class _LoopLine:
    """A loop as it is printed: (axis, elements for each place) of its digits, its places, and how it runs."""

    parts: tuple[tuple[AxisId, int], ...]
    extent: ExprLike
    words: Mapping[str, int]
    reduced: bool
    token: int
    ends: int  # the token at which its end is said
    ending: tuple[str, ...]


class _StageLines(NamedTuple):
    """The printed parts of a stage's schedule: loops, and for each reading line and each store lanes and prefetch."""

    loops: tuple[_LoopLine, ...]
    block: BlockChoice
    reads: dict[int, tuple[str, PrefetchAhead | None]]
    stores: list[tuple[str, PrefetchAhead | None]]


class _ScheduleParser(_PlanParser):
    """One reading. A kernel gets the stages of its first version, which all versions have."""

    given_threads = 1  # of the kernel that is being read

    def __init__(self, source: str, targets: Mapping[str, Target], arrays: Mapping[str, Any]) -> None:
        super().__init__(source, arrays)
        self.targets = targets
        self.threads: dict[Stage, int] = {}  # of the kernel, by its first stage
        self.versions: dict[Stage, tuple[list[LengthBound], frozenset[AxisId]]] = {}  # bounds but the last one, and axes with versions
        self.shown: dict[Stage, list[_StageLines]] = {}  # by the stage of the first version, those of all versions

    def whole_schedule(self) -> ScheduledPlan:
        name = self.head("schedule")
        self.expect("for")
        begin = self.skip_to()
        called = "".join(self.tokens[begin : self.k])
        if called not in self.targets:
            self.fail(f"a target is expected, one of {', '.join(self.targets)}, and here is {called}", begin)
        self.end_of_line()
        return self.scheduled(self.plan(name, _END), self.targets[called])

    def scheduled(self, plan: Plan, target: Target) -> ScheduledPlan:
        """The plan with the schedules that were printed."""
        kernels = {step: self.scheduled_kernel(plan, step, target) for step in plan.every if type(step) is Kernel}
        return ScheduledPlan(plan, target, kernels, {body: self.scheduled(body, target) for body in plan.bodies})

    def scheduled_kernel(self, plan: Plan, kernel: Kernel, target: Target) -> ScheduledKernel:
        versions = len(self.shown[kernel.stages[0]]) if kernel.stages else 0
        shown = [self.shown[stage][v] for v in range(versions) for stage in kernel.stages]
        if isinstance(target, Gpu):
            threads = self.threads[kernel.stages[0]] if kernel.stages else target.warp
            made: ScheduledKernel = gpu.chosen_kernel(plan, kernel, target, threads, [lines.block for lines in shown])
        else:
            assert isinstance(target, Cpu)
            bounds, peeled = self.versions[kernel.stages[0]] if kernel.stages else ([], frozenset())
            made = cpu.chosen_kernel(plan, kernel, target, [partial(self.choice, lines) for lines in shown], bounds, peeled)
        for lines, stage in zip(shown, [s for v in made.versions for s in v.stages], strict=True):
            modes = [a.mode for a in stage.accesses]
            if modes != [mode for mode, _ in (*lines.reads.values(), *lines.stores)]:
                self.fail(f"the lanes of the kernel's accesses are {', '.join(modes)}", lines.loops[0].token if lines.loops else None)
        return made

    def choice(self, lines: _StageLines, free: Sequence[Loop], reduced: Sequence[Loop]) -> StageChoice:
        """Returns the choices of the printed loops among the stage's loops. Raises ParseError where they differ."""
        loops = (*free, *reduced)
        numbers: dict[_LoopLine, int] = {}
        for line in lines.loops:
            of = range(len(free), len(loops)) if line.reduced else range(len(free))
            found = [k for k in of if tuple([(a, unit) for a, unit, _ in loops[k].parts]) == line.parts]
            if not found or found[0] in numbers.values() or loops[found[0]].extent != line.extent:
                there = ", ".join([f"{loops[k].name} = {loops[k].extent}" for k in of if k not in numbers.values()])
                self.fail(f"the stage has no such loop left; it has {there or 'none'}", line.token)
            numbers[line] = found[0]
        if len(numbers) != len(loops):
            missing = [d.name for k, d in enumerate(loops) if k not in numbers.values()]
            self.fail(f"the loops {', '.join(missing)} of the stage are missing", lines.loops[0].token if lines.loops else None)

        def with_word(word: str) -> _LoopLine | None:
            return next((line for line in lines.loops if word in line.words), None)

        vector, tile, across = with_word("vector"), with_word("rows"), with_word("columns")
        deep = with_word("matrix")
        chosen = LoopSchedule(
            vector.words["vector"] if vector is not None else 1,
            numbers[vector] if vector is not None else None,
            numbers[tile] if tile is not None else None,
            numbers[across] if across is not None and across is not vector else None,
            tile.words["rows"] if tile is not None else 1,
            across.words["columns"] if across is not None else 1,
            tuple([numbers[line] for line in lines.loops if not line.reduced]),
            None if deep is None else numbers[deep],
        )
        steps = with_word("steps")
        asked = [prefetch for _, prefetch in (*lines.reads.values(), *lines.stores)]
        return StageChoice(
            chosen,
            tuple([numbers[line] for line in lines.loops if line.reduced]),
            sum(["listed" in line.words for line in lines.loops]),
            steps.words["steps"] if steps is not None else 1,
            tuple([(k, prefetch) for k, prefetch in enumerate(asked) if prefetch is not None]),
        )

    # ---- lines

    def local_place(self) -> None:
        if not self.accept("stack") and not self.accept("register"):
            if not self.accept("shared"):
                self.expect("scratch")
            self.expect("at")
            self.expr()

    def operand(self, bare: bool) -> Any:
        kind = {"Block": BlockNumber, "Start": BlockStart}.get(self.tokens[self.k])
        if kind is None or self.tokens[self.k + 1] != "(":
            return super().operand(bare)
        self.k += 1
        self.expect("(")
        a = self.axis()
        self.expect(")")
        return kind(a)

    def stages(self) -> tuple[Stage, ...]:
        first: list[Stage] = []
        bounds: list[LengthBound] = []
        peeled: list[AxisId] = []
        version = 0
        threads, self.given_threads = self.given_threads, 1
        while self.tokens[self.k] in ("when", "otherwise", "version", "stage"):
            if self.accept("when"):
                bounds.append(self.bound())
                self.end_of_line()
            elif self.accept("otherwise"):
                self.end_of_line()
            if self.accept("version"):
                peeled += self.peeled()
            here: list[Stage] = []
            while self.accept("stage"):
                begin = self.k
                stage, lines = self.nest()
                if version:
                    stage = first[len(here)] if len(here) < len(first) else self.fail("the first version has no such stage", begin)
                self.shown.setdefault(stage, []).append(lines)
                here.append(stage)
            first = first or here
            version += 1
        if first:
            self.threads[first[0]], self.versions[first[0]] = threads, (bounds, frozenset(peeled))
        return tuple(first)

    def peeled(self) -> list[AxisId]:
        """The axes whose last block has versions of its own; lengths and numbers of blocks follow from the kernel."""
        found, more = list[AxisId](), True
        while more:
            found.append(self.axis())
            self.expect("=")
            self.integer()
            more = self.accept(",")
        self.accept("cold")
        self.end_of_line()
        return found

    def bound(self) -> LengthBound:
        """The lengths that versions are for."""
        for expected in ("Len", "("):
            self.expect(expected)
        axis = self.axis()
        for expected in (")", "<", "="):
            self.expect(expected)
        return LengthBound(axis, self.integer())

    def kernel_facts(self) -> None:
        if self.accept("threads"):
            self.given_threads = self.integer()
            self.end_of_line()

    def nest(self) -> tuple[Stage, _StageLines]:
        free, reduced, depth = self.stage_head()
        loops, block = self.nest_head()
        before: list[Line] = []
        after: list[Line] = []
        sums: list[Combine] = []
        to: list[Store] = []
        folded = False
        reads: dict[int, tuple[str, PrefetchAhead | None]] = {}
        stores: list[tuple[str, PrefetchAhead | None]] = []
        while self.tokens[self.k][:1] == "%" or self.tokens[self.k] in ("store", "barrier", "fold"):
            if self.accept("barrier"):
                block = block._replace(barriers=block.barriers | {"folded" if folded else "partials"})
            elif self.accept("fold"):
                folded = True
                while self.accept("in") or self.accept(","):
                    for word in ("shared", "at"):
                        self.expect(word)
                    self.integer()
            elif self.accept("store"):
                to.append(self.store())
                stores.append(self.access())
            else:
                n, made = self.numbered_line()
                if isinstance(made, Combine):
                    sums.append(made)
                else:
                    (after if sums else before).append(made)
                    if made.read is not None:
                        reads[n] = self.access()
            self.end_of_line()
        for line in loops:
            units, rows = line.words.get("rows", line.words.get("columns", 1)), "rows" in line.words and bool(sums)
            deep = any("matrix" in other.words for other in loops)
            ending = ["rest"] if rows and deep else _ending(line.extent, units, line.words.get("vector", 0), rows)
            if line.ending and list(line.ending) != ending:
                self.fail(f"the end of a loop with this tile is {' '.join(ending) or 'not said'}", line.ends)
        stage = Stage(free, reduced, tuple(before), tuple(sums), tuple(after), tuple(to), depth)
        return stage, _StageLines(tuple(loops), block, reads, stores)

    def nest_head(self) -> tuple[list[_LoopLine], BlockChoice]:
        """The loops of a stage, and what stands among them for blocks of threads."""
        loops: list[_LoopLine] = []
        own: list[_LoopLine] = []  # of the tile that is being read
        copies: list[CopyChoice] = []
        tails: tuple[ExprLike, ...] = ()
        skip, outer, barriers, copying = False, 0, set[str](), False
        while (word := self.tokens[self.k]) in ("for", "sum", "mask", "skip", "copy", "barrier"):
            if word in ("for", "sum"):
                copying = copying and word == "for"
                (own if copying else loops).append(self.loop())
                if copying:
                    copies[-1] = copies[-1]._replace(loops=tuple([self.loop_choice(line) for line in own]))
            else:
                self.k += 1
                if word in ("mask", "skip"):
                    self.expect("[")
                    found = tuple(self.listed(self.expr))
                    if copying:
                        copies[-1] = copies[-1]._replace(tails=found)
                    else:
                        tails, skip = found, word == "skip"
                elif word == "copy":
                    copying, own, outer = True, [], sum([line.reduced for line in loops])
                    copies.append(CopyChoice(self.numbered(), (), ()))
                    for expected in ("in", "shared", "at"):
                        self.expect(expected)
                    self.integer()
                else:
                    barriers.add("copied" if copies else "tile" if loops else "stage")
                    copying = False
            self.end_of_line()
        free = tuple([self.loop_choice(line) for line in loops if not line.reduced])
        reduced = tuple([self.loop_choice(line) for line in loops if line.reduced])
        return loops, BlockChoice(free, reduced, tails, skip, tuple(copies), outer, frozenset(barriers))

    def loop_choice(self, line: _LoopLine) -> LoopChoice:
        """A printed loop as one of a block of threads."""
        spread = next((LoopKind(word) for word in line.words if word in SPREAD), None)
        tile = next((word for word in ("rows", "columns", "vector") if word in line.words), "")
        ((axis, unit), *_) = line.parts
        return LoopChoice(axis, unit, line.extent, spread, tile)

    def loop(self) -> _LoopLine:
        token = self.k
        reduced = self.tokens[self.k] == "sum"
        self.k += 1
        parts = [self.part()]
        while self.accept(","):
            parts.append(self.part())
        self.expect("=")
        extent = self.expr()
        words: dict[str, int] = {}
        while self.tokens[self.k] in ("vector", "rows", "columns", "steps", "matrix", "listed", *SPREAD):
            word = self.word("how the loop runs")
            words[word] = 1 if word in ("listed", *SPREAD) else self.integer()
        first = self.k
        while self.tokens[self.k] in ("left", "masked", "rest"):
            if self.accept("left"):
                while self.tokens[self.k].isdigit():
                    self.k += 1
            else:
                self.k += 1
        return _LoopLine(tuple(parts), extent, words, reduced, token, first, tuple(self.tokens[first : self.k]))

    def part(self) -> tuple[AxisId, int]:
        a = self.axis()
        return a, self.integer() if self.accept("//") else 1

    def access(self) -> tuple[str, PrefetchAhead | None]:
        mode = self.word("how lanes lie") if self.accept("lanes") else "scalar"
        asked = PrefetchAhead(self.word("what is prefetched"), self.integer()) if self.accept("prefetch") else None
        return mode, asked
