"""Packed operands: copies in panels, before the contractions that read them repeatedly.

A panel has `w` adjacent elements of the vector axis, row after row in the order of the sum: `(v, w, None) k … (v, 1, w)`.
Operands that are constant at run time are copied once; those of one work item to a Local of it; all others by a separate kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from ngraph.op_graph import expr
from ngraph.op_graph.expr import ExprLike
from ngraph.op_graph.op import Origin
from ngraph.parts.walk import closure
from ngraph.plan.blocking import in_blocks
from ngraph.plan.kernels import (
    Buffer,
    Combine,
    Dim,
    Kernel,
    Line,
    Local,
    Plan,
    PlanStep,
    Stage,
    Store,
    dims_of,
    renumbered,
    renumbered_store,
    used,
)
from ngraph.program.program import AxisId
from ngraph.targets.machine import Cpu
from ngraph.targets.products import PACKED_BITS, PACKS, PRODUCTS
from ngraph.targets.tuning import (
    CONFLICT_BYTES,
    COPY_ITEMS_PER_CORE,
    MATRIX_COLUMNS,
    MAX_COPY_GROWTH,
    MAX_READS_UNPACKED,
    MIN_FAR_ROW_BYTES,
    MIN_ITEM_ELEMENTS,
    MIN_MATRIX_ROWS,
    MIN_MATRIX_TERMS,
    MIN_READS_FOR_MATRICES,
    MIN_READS_TO_COPY_IN_ITEM,
    MIN_READS_TO_PACK,
    MIN_READS_TO_PACK_FAR_ROWS,
    MIN_TERMS_PER_READ,
    MIN_TILE_ROWS,
    MIN_UNPACKED_TERMS,
    PLANNED_CORES,
)
from ngraph.tensors.contraction import Length, OperandAxes, vector_of, windowless
from ngraph.tensors.index import Load, Read, affine, identity_index, loads, loop_variant_axes, without_digits
from ngraph.tensors.memo import memo, memo_key

GREAT = 1 << 62
K = TypeVar("K")


def panel_width(n: int, rows: int, machine: Cpu, block: int = 0, deep: int = 1) -> int:
    """Returns the panel width for a vector axis of length n: the vectors of a register tile that divides the axis and `rows` best.

    Where work items take `block` elements each, that is a whole number of panels. An element has `deep` bytes; a panel
    must fit in the cache.
    """
    lanes, need = machine.lanes32, -(-n // machine.lanes32)
    if need <= 4:
        return need * lanes

    def waste(w: int) -> tuple[float, int]:
        tile = max(1, (machine.vector_registers - 4) // w)
        height = -(-rows // -(-rows // tile))  # equal tiles
        whole = -(-need // w) * w / need * -(-rows // height) * height / rows
        return round(whole * (1 + 0.1 * (1 / w + 1 / height)), 3), -w

    near = [w for w in (2, 3, 4) if w * lanes * deep <= machine.usable_l2 // 2]
    return min([w for w in near if block % (w * lanes) == 0] or [2], key=waste) * lanes


class Operand:
    """A line of a stage as an operand, with all of its reads."""

    def __init__(self, stage: Stage, line: int, space: Sequence[AxisId], length: Length):
        self.line, self.dtype = line, stage.before[line].dtype
        self.lines = sorted(closure([line], lambda n: stage.before[n].args))
        made = [stage.before[n] for n in self.lines]
        exprs = [e for x in made for e in _exprs(x)]
        self.reads = [x.read for x in made if x.read is not None]
        along = set(loop_variant_axes(*exprs))
        self.axes = tuple([a for a in space if a in along])
        self.identity_indexed = frozenset([a for a in self.axes if all(windowless(r, a, length) for r in self.reads)])
        self.movable = bool(self.reads) and not any(type(x) is Load for e in exprs for x in expr.leaves(e))
        number = {n: k for k, n in enumerate(self.lines)}
        self.copy = tuple([replace(x, args=tuple([number[a] for a in x.args])) for x in made])

    @property
    def factor(self) -> OperandAxes:
        return OperandAxes(self.axes, self.identity_indexed, any(r.source.parameters for r in self.reads))


def _exprs(line: Line) -> Iterable[ExprLike]:
    if line.read is not None:
        yield from (*line.read.index.values(), *line.read.predicate)
    elif line.op in ("index", "predicate"):
        value = line.attrs[{"index": "value", "predicate": "predicate"}[line.op]]
        yield from value if type(value) is tuple else (value,)


class Product(NamedTuple):
    """A contraction in a stage, and the axis of its vectors."""

    operands: tuple[Operand, Operand]
    vector: AxisId
    space: tuple[AxisId, ...]
    inner: tuple[AxisId, ...]  # the axes of the stage
    reduced: tuple[AxisId, ...]


def product_of(kernel: Kernel, stage: Stage, c: Combine, length: Length, known: Length, machine: Cpu) -> Product | None:
    """Returns the product that an accumulator sums, if it sums one. `length` is a guess for axes whose length is open, `known` is None."""
    line = stage.before[c.line]
    fixed = tuple([a for a, b in kernel.loops if b == 1])
    inner = (*stage.free, *stage.reduced)
    space = (*fixed, *inner)
    if line.op not in PRODUCTS or not stage.reduced:
        return None
    operands = (Operand(stage, line.args[0], space, length), Operand(stage, line.args[1], space, length))
    lasts = [s.target.dims[-1][0] for s in stage.to if s.line >= len(stage.before) and s.target.dims]
    factors, last = [o.factor for o in operands], lasts[0] if lasts else None
    v = vector_of(stage.free, factors, last, lambda a: length(a) or 0, known, machine.lanes32, dict(kernel.loops))
    return None if v is None else Product(operands, v, space, inner, stage.reduced)


def stride(r: Read, a: AxisId, length: Length) -> float:
    """Returns the distance in elements of two steps along an axis; infinite where it varies."""
    total: float = 0
    for step, e in walked(r, length):
        form = affine(e)
        if form is None:
            total += math.inf if a in loop_variant_axes(e) else 0
        elif a in form[0]:
            total += form[0][a] * step
    return abs(total)


def walked(r: Read, length: Length) -> list[tuple[Any, ExprLike]]:
    """Returns the index along each dim of the source, and the elements from one place to the next; 0 along upper digits of an axis.

    Where two dims are read at the digits of one index, as by a flattening, that index.
    """
    found, step = list[tuple[int, ExprLike]](), 1
    for axis, div, mod in reversed(r.source.dims):
        found.append((step if div == 1 else 0, r.index[axis]))
        step *= _places(length(axis) or 0, div, mod)
    return without_digits(found, lambda a: length(a) or 0)


def _places(n: int, div: int, mod: int | None) -> int:
    n = -(-n // div)
    return n if mod is None else min(n, mod)


def _in_order(makers: Sequence[PlanStep], copies: Sequence[PlanStep]) -> tuple[PlanStep, ...]:
    """Returns the steps with copies directly after the step that makes their source; copies of earlier values at the end."""
    maker = {b: k for k, step in enumerate(makers) for b in step.targets}
    lines: list[list[PlanStep]] = [*[[m] for m in makers], []]
    for c in copies:
        lines[max([maker.get(b, -1) for b in c.sources], default=-1)].append(c)
    return tuple([step for line in lines for step in line])


class Packer:
    """Inserts packed copies into the kernels of a plan, and caches them.

    length   of each axis, a guess for those that are open: it decides what is copied and how wide panels are
    known    of those whose length is known
    """

    def __init__(self, plan: Plan, still: set[Buffer], length: Length, known: Length, machine: Cpu):
        self.plan, self.still, self.length, self.known, self.machine = plan, still, length, known, machine
        self.made: list[Buffer] = []
        self.once: list[PlanStep] = []
        self.copies: dict[Any, tuple[Buffer, Kernel]] = {}
        self.ways: dict[Any, set[AxisId]] = {}  # axes along which vectors lie, by constant operand, over all of its readers
        self.spreads: dict[Buffer, Buffer] = {}
        self.found: dict[Any, tuple[Stage, Product | None]] = {}  # by the loops of a kernel, a stage and its sum; entries keep stages alive

    def size(self, axes: Iterable[AxisId]) -> int:
        return math.prod([self.length(a) or 0 for a in axes])

    def again(self, p: Product, o: Operand) -> int:
        """Returns how often a product reads each element of an operand."""
        return self.size([a for a in p.space if a not in o.axes])

    def fixed(self, o: Operand) -> bool:
        """Whether an operand is constant at run time: its lengths, too."""
        return not any(loads(self.plan.formula(a)) for a in o.axes) and self.still.issuperset([r.source for r in o.reads])

    def pack(self) -> None:
        for kernel in self.plan.kernels:
            for stage in kernel.stages:
                if self.still.isdisjoint([r.source for r in stage.reads()]):
                    continue
                for p in self.products(kernel, stage):
                    for r in [r for o in p.operands for r in o.reads]:
                        self.ways.setdefault(r.source, set()).update([a for a, e in r.index.items() if p.vector in loop_variant_axes(e)])
        steps: list[PlanStep] = []
        for step in self.plan.steps:
            steps += self.kernel(in_blocks(self, step)) if type(step) is Kernel else [step]
        self.plan.steps, self.plan.once = tuple(steps), _in_order(self.plan.once, self.once)
        self.plan.buffers += tuple(self.made)

    def products(self, kernel: Kernel, stage: Stage) -> list[Product]:
        """Returns the products that a stage sums."""
        return [p for k in range(len(stage.combine)) if (p := self.product(kernel, stage, k))]

    def product(self, kernel: Kernel, stage: Stage, k: int) -> Product | None:
        """Returns the product that an accumulator of a stage sums, if it sums one."""
        key = kernel.loops, id(stage), k
        if key not in self.found:
            self.found[key] = stage, product_of(kernel, stage, stage.combine[k], self.length, self.known, self.machine)
        return self.found[key][1]

    def kernel(self, kernel: Kernel) -> list[PlanStep]:
        """Returns the copies that a kernel needs before it, and the kernel."""
        before: list[PlanStep] = []
        stages: list[Stage] = []
        own = {s.target for stage in kernel.stages for s in stage.to}
        for stage in kernel.stages:
            for k in range(len(stage.combine)):
                for side in (0, 1):
                    p = self.product(kernel, stage, k)
                    if p is None:
                        continue
                    deep = self.deep(stage, p)
                    if deep is not None:
                        o = p.operands[side]
                        if not self.lies(p, o, deep) and p.vector in o.axes:
                            stage = self.copied(kernel, stage, p, o, own, before, stages, MATRIX_COLUMNS * self.machine.lanes32)
                        elif not self.lies(p, o, deep):
                            sums = [*[a for a in p.reduced if a in o.axes and a != deep], deep]
                            stage = self.gathered(kernel, stage, p, o, own, before, stages, sums)
                        continue
                    if self.narrow(kernel, p):
                        continue
                    if self.wants(kernel, p, p.operands[side]):
                        stage = self.copied(kernel, stage, p, p.operands[side], own, before, stages)
                    elif self.is_non_affine(kernel, p, p.operands[side], own):
                        stage = self.gathered_into_buffer(kernel, stage, p, p.operands[side], before)
                    elif self.is_across(p, p.operands[side]):
                        o, other = p.operands[side], p.operands[1 - side]
                        sums = self.order(p, o, o if self.wants(kernel, p, other) else other)
                        stage = self.gathered(kernel, stage, p, o, own, before, stages, sums)
                    else:
                        before += self.copy_spread_rows(kernel, p, p.operands[side])
            stages.append(stage)
        return [*before, replace(kernel, stages=tuple(stages))]

    # ---- factors of products of matrices in registers

    def deep(self, stage: Stage, p: Product) -> AxisId | None:
        """Returns the axis of the sum along which instructions for matrices lie; None where there are none, or copies take too long."""
        line = next((x for x in stage.before if x.args == tuple([o.line for o in p.operands]) and x.op in PRODUCTS), None)
        alone = len(stage.combine) == 1 and all(s.line >= len(stage.before) and s.combine == "set" for s in stage.to)
        if line is None or not alone or self.machine.matrix(line.op) is None:
            return None
        (lanes,), (rows,) = ([o for o in p.operands if (p.vector in o.axes) is along] for along in (True, False))
        down = [a for a in rows.axes if a in stage.free and a not in lanes.axes and (self.length(a) or 0) >= MIN_MATRIX_ROWS]
        both = [a for a in p.reduced if a in lanes.axes and a in rows.axes and (self.length(a) or 0) >= MIN_MATRIX_TERMS]
        for a in sorted(both if down else [], key=lambda a: -(self.length(a) or 0)):
            apart = [o for o in p.operands if not self.lies(p, o, a)]
            if all(o.movable and (self.fixed(o) or self.again(p, o) >= MIN_READS_FOR_MATRICES) and self.dense(o) for o in apart):
                return a
        return None

    def dense(self, o: Operand) -> bool:
        """Whether a copy of an operand is no larger than what it is made of, much."""
        return self.size(o.axes) <= MAX_COPY_GROWTH * max([self.size(r.source.axes) for r in o.reads], default=0)

    def lies(self, p: Product, o: Operand, deep: AxisId) -> bool:
        """Whether an operand lies in memory as instructions for matrices load it: lanes side by side, or the terms of a row."""
        along, last = p.vector if p.vector in o.axes else deep, o.copy[-1]
        if any(r.predicate or any(affine(e) is None for e in r.index.values()) for r in o.reads):
            return False
        if last.op == "read":
            return last.dtype.bits == PACKED_BITS and stride(o.reads[0], along, self.length) == 1
        if along != deep or last.op not in PACKS or len(o.copy) != len(last.args) + 1:
            return False
        parts = [o.copy[n].read for n in last.args]
        first, row = parts[0], PACKS[last.op]
        if first is None or first.source.dtype.bits * row.k != PACKED_BITS:
            return False
        for k, r in enumerate(parts):
            if r is None or r.source is not first.source or stride(r, deep, self.length) != row.k:
                return False
            apart = [expr.combine("-", r.index[a], first.index[a]) for a in r.source.axes]
            if any(e != 0 for e in apart[:-1]) or affine(apart[-1]) != ({}, k):
                return False
        return True

    def gathered(
        self,
        kernel: Kernel,
        stage: Stage,
        p: Product,
        o: Operand,
        own: set[Buffer],
        before: list[PlanStep],
        stages: list[Stage],
        sums: Sequence[AxisId],
    ) -> Stage:
        """Returns the stage, with an operand read from a copy whose rows have their terms side by side, in the order of `sums`."""
        inside = not self.fixed(o) and (any(r.source in own for r in o.reads) or self.fits(kernel, p, o))
        fixed = [a for a, b in kernel.loops if b == 1] if inside else []
        free = (*[a for a in o.axes if a not in sums and a not in fixed], *sums)
        if inside:
            return self.copied_to_local(kernel, stage, o, own, stages, free, dims_of(free))
        return self.copied_before(kernel, stage, o, before, free, dims_of(free), self.work_items(free, sums[-1], self.machine.lanes32))

    def narrow(self, kernel: Kernel, p: Product) -> bool:
        """Whether both operands are contiguous along a long sum, as passed, and the one to copy has few reads: no copy is made."""
        if any(len(o.lines) > 1 or not o.movable or self.fixed(o) for o in p.operands):
            return False
        copied = [o for o in p.operands if p.vector in o.axes or self.meets(p, o)]
        again = min([self.again(p, o) for o in copied], default=GREAT)
        return again <= MAX_READS_UNPACKED and self.run(kernel, p) >= max(MIN_UNPACKED_TERMS, MIN_TERMS_PER_READ * again)

    def run(self, kernel: Kernel, p: Product) -> int:
        """Returns the number of terms of a work item's sum that are contiguous in both operands."""
        blocks, reads = dict(kernel.loops), [r for o in p.operands for r in o.reads]
        terms, apart = 1, 1
        while a := next((a for a in p.reduced if self.length(a) != 1 and all(stride(r, a, self.length) == apart for r in reads)), None):
            n = self.length(a) or 0
            if apart == 1 and n < self.machine.lanes32:
                break
            terms, apart = terms * min(n, blocks.get(a, n)), apart * n
            if terms < apart:
                break
        return terms

    def meets(self, p: Product, o: Operand) -> bool:
        """Whether the rows of an operand that a tile reads together conflict in the cache."""
        rows = [a for a in o.axes if a in p.inner and a not in p.reduced and (self.length(a) or 0) >= MIN_TILE_ROWS]
        near = [s * r.source.dtype.bits // 8 for r in o.reads for a in rows if (s := stride(r, a, self.known))]
        return min(near, default=1.0) % CONFLICT_BYTES == 0

    def wants(self, kernel: Kernel, p: Product, o: Operand) -> bool:
        """Whether a copy of an operand is profitable: it is read often enough, or copied once, and its layout is bad.

        An operand that each call reads in both orders, as a matrix and its transpose, would have two copies, which need more cache.
        """
        if not o.movable or p.vector not in o.axes or not set(o.axes).intersection(p.reduced):
            return False
        once, again = self.fixed(o), self.again(p, o)
        having = [r for r in o.reads if p.vector in r.axes]
        small = self.size(o.axes) <= 1.1 * max([self.size(r.source.axes) for r in having], default=0)
        least = min([self.least(kernel, p, r) for r in having], default=GREAT)
        return small and (again >= least or (once and least < GREAT and all(len(self.ways.get(r.source, ())) < 2 for r in having)))

    def least(self, kernel: Kernel, p: Product, r: Read) -> int:
        """Returns how often an operand must be read for a copy in each call to be profitable. A Local has the rows of a work item alone."""
        blocks = dict(kernel.loops) if type(r.source) is Local else {}

        def length(a: AxisId) -> int | None:
            n = self.length(a)
            return n if n is None else min(n, blocks.get(a, n))

        if stride(r, p.vector, length) != 1:
            return MIN_READS_TO_PACK
        far = self.apart(r, p.reduced, length)
        if far < MIN_FAR_ROW_BYTES and (type(r.source) is Local or not self.overflows(r, p.reduced, length)):
            return GREAT
        return MIN_READS_TO_PACK_FAR_ROWS if far % CONFLICT_BYTES else 2 * MIN_READS_TO_PACK

    def copied(
        self,
        kernel: Kernel,
        stage: Stage,
        p: Product,
        o: Operand,
        own: set[Buffer],
        before: list[PlanStep],
        stages: list[Stage],
        widest: int = GREAT,
    ) -> Stage:
        """Returns the stage, with an operand read from a copy in panels of at most so many elements."""
        v, blocks = p.vector, dict(kernel.loops)
        inside = not self.fixed(o) and (any(r.source in own for r in o.reads) or self.fits(kernel, p, o))
        axes = [a for a in o.axes if a in p.inner or not inside]
        n = self.length(v) or 0
        n = min(blocks.get(v, n), n) if inside else n
        others = [a for a in p.inner if a in stage.free and a not in o.axes]
        height = min(blocks.get(others[-1], GREAT), self.length(others[-1]) or 1) if others else 1
        rows = self.order(p, o)
        deep = math.prod([self.length(a) or 1 for a in rows]) * o.dtype.bits // 8
        w = panel_width(n, height, self.machine, 0 if inside else blocks.get(v, 0), deep)
        w = min(w, widest)
        outer = [a for a in axes if a != v and a not in rows]
        free = (*outer, *rows, v)
        dims: tuple[Dim, ...] = tuple([(a, 1, None) for a in (*outer, *rows)])
        dims = (
            (*dims, (v, 1, None))
            if n <= w and self.known(v) is not None
            else (*dims[: len(outer)], (v, w, None), *dims[len(outer) :], (v, 1, w))
        )
        if inside:
            return self.copied_to_local(kernel, stage, o, own, stages, free, dims)
        return self.copied_before(kernel, stage, o, before, free, dims, self.work_items(free, v, w))

    def copied_to_local(
        self,
        kernel: Kernel,
        stage: Stage,
        o: Operand,
        own: set[Buffer],
        stages: list[Stage],
        free: tuple[AxisId, ...],
        dims: tuple[Dim, ...],
    ) -> Stage:
        """Returns the stage, with an operand read from a Local that a stage before it fills: the same one for all that read one copy."""
        at = identity_index(free)
        for made in stages if own.isdisjoint([r.source for r in o.reads]) else ():
            target = made.to[0].target
            if type(target) is Local and (made.free, target.dims, memo_key(made.before)) == (free, dims, memo_key(o.copy)):
                return _reading(stage, o.line, target, at)
        local = Local(f"p{len(stages)}", dims, o.dtype)
        depth = max([k for k, (a, _) in enumerate(kernel.loops, 1) if a in o.axes], default=0)
        if any(r.source in own for r in o.reads):
            depth = max([depth, *[s.depth for s in stages if {t.target for t in s.to}.intersection([r.source for r in o.reads])]])
        stages.append(Stage(free, (), o.copy, (), (), (Store(len(o.copy) - 1, local, at),), depth))
        return _reading(stage, o.line, local, at)

    def copied_before(
        self,
        kernel: Kernel,
        stage: Stage,
        o: Operand,
        before: list[PlanStep],
        free: tuple[AxisId, ...],
        dims: tuple[Dim, ...],
        loops: tuple[tuple[AxisId, int], ...],
    ) -> Stage:
        """Returns the stage, with an operand read from a copy that a kernel before it makes: once, where no call changes it."""
        once = self.fixed(o)
        table = self.copies if once else {}
        target, copy = memo(table, _copied, o.copy, free, dims, loops, "once" if once else "arena")
        if target not in self.made:
            self.made.append(target)
            (self.once if once else before).append(replace(copy, origin=kernel.origin))
            if once:
                self.still.add(target)
        return _reading(stage, o.line, target, identity_index(free))

    def is_non_affine(self, kernel: Kernel, p: Product, o: Operand, own: set[Buffer]) -> bool:
        """Whether an operand is read repeatedly at an index that is not affine, such as the mirrored ends of a signal,
        or in long steps along the other operand's contiguous axis.
        """
        if p.vector in o.axes or not o.movable or self.again(p, o) < MIN_READS_TO_PACK:
            return False
        if any(r.source in own for r in o.reads) or self.size(o.axes) > MAX_COPY_GROWTH * max([self.size(r.source.axes) for r in o.reads]):
            return False
        indices = [e for r in o.reads for _, e in walked(r, self.length)]
        if any(affine(e) is None and not set(p.reduced).isdisjoint(loop_variant_axes(e)) for e in indices):
            return True
        (other,) = [x for x in p.operands if x is not o]
        long = [a for a in p.reduced if (self.length(a) or 0) >= self.machine.lanes32]
        near = [a for a in long if all(stride(r, a, self.length) == 1 for r in other.reads)]
        apart = any(stride(r, a, self.length) > 1 for a in near for r in o.reads)
        return apart and not self.wants(kernel, p, other)

    def is_across(self, p: Product, o: Operand) -> bool:
        """Whether an operand that is read often has adjacent rows, and the terms of its sum too far apart for the first cache."""
        if p.vector in o.axes or not o.movable or len(o.reads) != 1 or self.again(p, o) < MIN_READS_TO_PACK_FAR_ROWS:
            return False
        (r,) = o.reads
        rows = [a for a in o.axes if a in p.inner and a not in p.reduced]
        return any(stride(r, a, self.length) == 1 for a in rows) and self.overflows(r, p.reduced, self.length) and self.dense(o)

    def overflows(self, r: Read, sums: Iterable[AxisId], length: Length) -> bool:
        """Whether the first cache cannot hold a line of each term of a sum, as far apart as they lie: some fall into few of its sets."""
        apart = self.apart(r, sums, length)
        if not self.machine.line <= apart < math.inf:
            return False
        terms = math.prod([length(a) or 1 for a in sums if stride(r, a, length)])
        return terms * self.machine.share_of_l1(int(apart)) > self.machine.usable_l1

    def apart(self, r: Read, sums: Iterable[AxisId], length: Length) -> float:
        """Returns the bytes from one term of a sum to the next one, along the axis on which they are nearest; 0 where no axis moves."""
        strides = [s for a in sums if (self.length(a) or 0) > 1 and (s := stride(r, a, length))]
        return min(strides, default=0.0) * r.source.dtype.bits // 8

    def gathered_into_buffer(self, kernel: Kernel, stage: Stage, p: Product, o: Operand, before: list[PlanStep]) -> Stage:
        """Returns the stage, with such an operand read from a copy in the order of the sum."""
        rows = self.order(p, o)
        axes = (*[a for a in o.axes if a not in rows], *rows)
        target = Buffer(o.reads[0].source.name, dims_of(axes), o.dtype, "arena")
        self.made.append(target)
        loops = self.work_items(axes, axes[-1], self.machine.lanes32)
        made = Stage(axes, (), o.copy, (), (), (Store(len(o.copy) - 1, target, identity_index(axes)),), len(loops))
        before.append(Kernel(loops, (made,), kernel.origin))
        return _reading(stage, o.line, target, identity_index(axes))

    def copy_spread_rows(self, kernel: Kernel, p: Product, o: Operand) -> list[PlanStep]:
        """Returns a copy of a buffer that the plan does not own, where rows that a tile reads together conflict in the cache."""
        if p.vector in o.axes or len(o.reads) != 1 or self.again(p, o) < MIN_READS_TO_PACK:
            return []
        (r,), b = o.reads, o.reads[0].source
        mine = b.storage == "input" or (b in self.still and b.storage in ("state", "constant"))
        flat = any(stride(r, a, self.length) == 1 for a in p.reduced)
        if not (mine and flat and self.meets(p, o)) or len(b.axes) != len(b.dims):
            return []
        known = b in self.spreads
        if not known:
            self.spreads[b], copy = copy_of(b, self.length, kernel.origin)
            self.made.append(self.spreads[b])
        r.source = self.spreads[b]
        return [] if known else [copy]

    def fits(self, kernel: Kernel, p: Product, o: Operand) -> bool:
        """Whether each work item has its own part of an operand, which fits into the second-level cache.

        Where sums are in blocks, work items may copy the same part, if each reads it often enough for what a copy of vectors costs.
        """
        vectors = kernel.serial and all(stride(r, p.vector, self.length) == 1 for r in o.reads)
        shared = vectors and self.reads_in_item(kernel, p, o) >= MIN_READS_TO_COPY_IN_ITEM
        part = self.size(o.axes) * o.dtype.bits // 8
        for a, b in kernel.loops:
            n = self.length(a) or 0
            if a in o.axes:
                part = part * min(b, n) // n if n else 0
            elif not shared:
                return False
        return bool(kernel.loops) and part <= self.machine.usable_l2 // 2

    def reads_in_item(self, kernel: Kernel, p: Product, o: Operand) -> int:
        """Returns how often a work item reads each element of an operand."""
        blocks = dict(kernel.loops)
        return math.prod([min(self.length(a) or 0, blocks.get(a, GREAT)) for a in p.space if a not in o.axes])

    def order(self, p: Product, o: Operand, by: Operand | None = None) -> list[AxisId]:
        """Returns the summed axes of an operand, in the order of the memory of one: by default of the other one."""
        other = next((x for x in p.operands if x is not o), o) if by is None else by

        def key(a: AxisId) -> float:
            return max([stride(r, a, self.length) for r in other.reads], default=0.0)

        return sorted([a for a in p.reduced if a in o.axes], key=key, reverse=True)

    def work_items(self, axes: Sequence[AxisId], v: AxisId, w: int) -> tuple[tuple[AxisId, int], ...]:
        """Returns the loops of a copy: whole panels, else parts of its longest axis."""
        most = COPY_ITEMS_PER_CORE * PLANNED_CORES
        if self.size(axes) < MIN_ITEM_ELEMENTS * most:
            return ()
        n = self.length(v) or 0
        longest = max([a for a in axes if a != v], key=lambda a: self.length(a) or 0, default=v)
        a, step = (v, w) if n >= w * PLANNED_CORES else (longest, 1)
        n = self.length(a) or 0
        block = -(-n // (most * step)) * step
        return ((a, block),) if 1 < block < n else ()


def copy_of(b: Buffer, length: Length, origin: tuple[Origin, ...]) -> tuple[Buffer, Kernel]:
    """Returns a buffer with the same content, and the kernel that fills it."""
    axes = b.axes
    made = Buffer(b.name, dims_of(axes), b.dtype, "arena")
    turned = next((k for k, a in enumerate(axes[:-1]) if (length(a) or 0) > 1), None)
    loops = () if turned is None else ((axes[turned], 1),)
    line = Line("read", (), b.dtype, {}, Read(b, identity_index(axes)))
    free = tuple([a for k, a in enumerate(axes) if k != turned])
    stage = Stage(free, (), (line,), (), (), (Store(0, made, identity_index(axes)),), len(loops))
    return made, Kernel(loops, (stage,), origin)


def _copied(
    lines: tuple[Line, ...], free: tuple[AxisId, ...], dims: tuple[Dim, ...], loops: tuple[tuple[AxisId, int], ...], storage: str
) -> tuple[Buffer, Kernel]:
    """Returns a buffer of these dims for the value of the last of these lines, and the kernel that fills it."""
    name = next(x.read.source.name for x in lines if x.read is not None)
    made = Buffer(name, dims, lines[-1].dtype, storage)
    return made, Kernel(loops, (Stage(free, (), lines, (), (), (Store(len(lines) - 1, made, identity_index(free)),), len(loops)),), ())


def _reading(stage: Stage, line: int, source: Buffer, at: dict[AxisId, ExprLike]) -> Stage:
    """Returns the stage with one line read from a buffer, and without dead lines."""
    before = list(stage.before)
    before[line] = Line("read", (), before[line].dtype, {}, Read(source, {a: at[a] for a in source.axes}))
    border = len(before)
    todo = [c.line for c in stage.combine] + [s.line for s in stage.to if s.line < border]
    for s in stage.to:
        todo += [u for u in used(*s.index.values(), *s.predicate) if u < border]
    needed = closure(todo, lambda n: [*before[n].args, *used(*_exprs(before[n]))])
    new = {n: k for k, n in enumerate(sorted(needed))}
    new |= {n: n - border + len(needed) for n in range(border, border + len(stage.combine) + len(stage.after))}

    return replace(
        stage,
        before=tuple([renumbered(x, new) for n, x in enumerate(before) if n in needed]),
        combine=tuple([replace(c, line=new[c.line]) for c in stage.combine]),
        after=tuple([renumbered(x, new) for x in stage.after]),
        to=tuple([renumbered_store(s, new) for s in stage.to]),
    )
