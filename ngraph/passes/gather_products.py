"""Products with gathered rows of a small table are computed once per row of the table, not once per index.

    rows of E at i, times W          →  rows of E·W at i
    G·W, added to a table at i       →  that table, and (G scattered at i)·W           the gradient of E
    rows of E at i, times G over i   →  rows of E in i, times (G scattered at i)       the gradient of W

Embeddings of characters before a recurrent or linear layer are of this kind: thousands of indices, and a hundred rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.op import Origin
from ngraph.op_graph.opdef import REGISTRY
from ngraph.parts.runner import pass_
from ngraph.passes.dead import dead
from ngraph.passes.facts import Makers, Uses
from ngraph.passes.share import share
from ngraph.program.program import AxisId, Program, Step, Value
from ngraph.rewrite.driver import finish, with_inputs
from ngraph.rewrite.pattern import number

MIN_ROW_REUSE = 4  # minimum number of indices per row
MIN_PRODUCTS_PER_PLACE = 16  # minimum number of products per index for which scattering their operand is cheaper


class Lookup(NamedTuple):
    """A gather: the table, the indices, the axes of the table that they index, and the axes of the indices."""

    table: Value
    indices: tuple[Value, ...]
    rows: tuple[AxisId, ...]
    places: frozenset[AxisId]
    mode: str


@pass_(needs=("hoisted", "makers", "uses"), gives=("lookups",), keeps=("hoisted",))
def gather_products(program: Program, makers: Makers, uses: Uses) -> Program:
    """Returns `program` with products of gathered rows computed per row, where there are far fewer rows than indices."""
    if not any(s.op in ("gather", "scatter") for s in program.steps):
        return program
    made = _GatherProducts(program, dict(makers), uses).program()
    return program if made is program else dead(share(made))


class _GatherProducts:
    """The rewrite of one program; a product whose number of rows is a run-time length stays."""

    def __init__(self, old: Program, maker: Makers, uses: Uses):
        self.old, self.maker, self.uses = old, maker, uses
        self.steps: list[Step] = []

    def program(self) -> Program:
        rules: dict[str, Callable[[Step], Value | None]] = {"contract": self.product, "scatter": self.added}
        replaced: dict[Value, Value] = {}
        for step in self.old.steps:
            step = with_inputs(step, replaced)
            start = len(self.steps)
            new = rules[step.op](step) if step.op in rules else None
            if new is None:
                del self.steps[start:]
                self.steps.append(step)
                self.maker.update((v, step) for v in step.results)
            else:
                replaced[step.result] = new
        return finish(self.old, self.steps, replaced) if replaced else self.old

    def product(self, step: Step) -> Value | None:
        for x, other in (step.inputs, step.inputs[::-1]):
            found = self.lookup(x)
            if found is not None and found.rows and not set(found.rows).intersection(other.axes):
                made = self.by_row(step, found, other) or self.by_sum(step, found, other)
                if made is not None:
                    return made
        return None

    def lookup(self, x: Value) -> Lookup | None:
        s = self.maker.get(x)
        return None if s is None or s.op != "gather" else self.places(s, s.inputs[0], s.inputs[1:])

    def places(self, s: Step, table: Value, indices: tuple[Value, ...]) -> Lookup | None:
        """Returns a gather or scatter of few rows as a Lookup, if table and indices share no axis."""
        rows, over = tuple(s.attrs["axes"]), frozenset([a for i in indices for a in i.axes])
        few, many = self.size(rows), self.size(over)
        if not over.isdisjoint(table.axes) or few is None or many is None or many < MIN_ROW_REUSE * few:
            return None
        return Lookup(table, indices, rows, over, s.attrs["mode"])

    def size(self, axes: Any) -> int | None:
        lengths = [self.old.axes[a] for a in axes]
        return math.prod(n for n in lengths if isinstance(n, int)) if all(isinstance(n, int) for n in lengths) else None

    def by_row(self, step: Step, x: Lookup, w: Value) -> Value | None:
        """Returns (E·W) at i."""
        if not set(step.attrs["over"]) <= set(x.table.axes) or not x.places.isdisjoint(w.axes):
            return None
        rows = self.made("contract", (x.table, w), step.attrs, step.origin)
        return self.made("gather", (rows, *x.indices), {"axes": x.rows, "mode": x.mode}, step.origin)

    def by_sum(self, step: Step, x: Lookup, g: Value) -> Value | None:
        """Returns E times (G scattered at i), over the rows; rows without an index do not count, whatever their values."""
        over = [a for a in step.attrs["over"] if a not in x.places]
        long = self.size([a for a in x.table.axes if a not in x.rows])
        if long is None or long < MIN_PRODUCTS_PER_PLACE or step.attrs["accumulate"] is not g.dtype:
            return None
        if not x.places <= {*step.attrs["over"]} & {*g.axes}:
            return None
        total = self.total(x, g, step.origin)
        one = self.constant(1.0, tuple(dict.fromkeys([a for i in x.indices for a in i.axes])), x.table.dtype, step.origin)
        named = self.scatter(x, self.constant(0.0, x.rows, x.table.dtype, step.origin), one, "max", step.origin)
        zero = self.constant(0.0, (), x.table.dtype, step.origin)
        table = self.made("where", (self.made("compare", (zero, named), {"kind": "lt"}, step.origin), x.table, zero), {}, step.origin)
        return self.made("contract", (table, total), {**step.attrs, "over": (*x.rows, *over)}, step.origin)

    def added(self, step: Step) -> Value | None:
        """Returns a table to which G·W is added at i."""
        into, *indices, u = step.inputs
        x, p = self.places(step, into, tuple(indices)), self.maker.get(u)
        if x is None or p is None or p.op != "contract" or self.uses.get(u) != 1:
            return None
        if step.attrs["combine"] != "add" or p.attrs["accumulate"] is not u.dtype:
            return None
        for g, w in (p.inputs, p.inputs[::-1]):
            there = x.places <= set(g.axes) and x.places.isdisjoint((*w.axes, *p.attrs["over"]))
            if there and not set(x.rows).intersection((*g.axes, *w.axes)):
                sums = self.made("contract", (self.total(x, g, step.origin), w), p.attrs, p.origin)
                return sums if number(into, self.maker) == 0 else self.made("add", (into, sums), {}, step.origin)
        return None

    def total(self, x: Lookup, g: Value, origin: tuple[Origin, ...]) -> Value:
        """Returns G scattered at the indices: rows replace its places."""
        zero = self.constant(0.0, (*x.rows, *[a for a in g.axes if a not in x.places]), g.dtype, origin)
        return self.scatter(x, zero, g, "add", origin)

    def scatter(self, x: Lookup, into: Value, u: Value, combine: str, origin: tuple[Origin, ...]) -> Value:
        return self.made("scatter", (into, *x.indices, u), {"axes": x.rows, "combine": combine, "mode": x.mode}, origin)

    def constant(self, value: float, axes: tuple[AxisId, ...], dtype: DType, origin: tuple[Origin, ...]) -> Value:
        v = self.made("constant", (), {"value": dtype.python(value), "axes": (), "dtype": dtype}, origin)
        return self.made("broadcast", (v,), {"axes": axes}, origin) if axes else v

    def made(self, op: str, inputs: tuple[Value, ...], attrs: dict[str, Any], origin: tuple[Origin, ...]) -> Value:
        step = Step((Value(REGISTRY[op].type(tuple([v.type for v in inputs]), **attrs)),), op, inputs, attrs, origin)
        self.steps.append(step)
        self.maker[step.result] = step
        return step.result
