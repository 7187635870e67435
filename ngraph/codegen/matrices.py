"""Sums of a tile by an instruction that multiplies matrices in registers (Intel's AMX).

A register has up to 16 rows of 64 bytes; how many of them each one has is configured, which makes all of them 0. Tiles of sums come first,
then those of the factor with rows, then those of the factor with lanes. What is left of an axis takes registers with fewer rows or bytes,
so nothing outside of a factor is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ngraph.codegen.access import offset
from ngraph.codegen.forms import Whole, apply, plus, register, times
from ngraph.codegen.scope import Open
from ngraph.codegen.text import IRValue, IRWriter, constant
from ngraph.op_graph import dtypes
from ngraph.schedule.matrix import Factor, factor, instruction

if TYPE_CHECKING:
    from ngraph.codegen.nest import Nest

CONFIGURATION = 64  # bytes: the kind of table, 16 numbers of bytes (2 bytes each) from byte 16, 16 numbers of rows from byte 48
BYTES_AT, ROWS_AT = 16, 48
MATRIX_SUMS = 4 * 16 * 16  # of which registers hold most beside two rows and two columns of factors


class MatrixSums:
    """The sums of one tile: `rows` of them, known or not, and as many columns of lanes as are open."""

    def __init__(self, nest: Nest, rows: Whole) -> None:
        self.nest, self.w, self.rows, tile = nest, nest.w, rows, nest.tile
        self.row, _ = instruction(nest.stage, nest.kernel.target)
        assert tile.deep is not None and tile.vector is not None and tile.tile is not None
        self.deep, self.down, self.terms = tile.deep, tile.tile, tile.terms
        self.columns = nest.units(tile.vector)
        self.left = [nest.left(j) for j in range(self.columns)]
        line = nest.lines[nest.stage.combine[0].line]
        found = [f for n in line.args if (f := factor(nest.stage, nest.reads, n)) is not None]
        self.swapped = self.down not in found[0].access.deps
        self.a, self.b = found[::-1] if self.swapped else found
        m = self.row.m
        self.high: list[Whole] = [min(m, rows - k) for k in range(0, rows, m)] if isinstance(rows, int) else [rows]
        self.room = nest.kernel.tile_room(nest.stage.combine[0].dtype)
        self.stride = tile.columns * self.row.n  # elements from row to row in the room

    # ---- instructions

    def do(self, name: str, *operands: str) -> None:
        full = f"@llvm.x86.{name}"
        self.w.declared.setdefault(full, f"declare void {full}({', '.join([o.rpartition(' ')[0] for o in operands])})")
        self.w.do(f"call void {full}({', '.join(operands)})")

    def sum(self, i: int, j: int) -> int:
        """Returns the register of the sums of a row of registers and a column."""
        return i * self.columns + j

    def first(self, i: int) -> int:
        """Returns the register of the factor that has rows."""
        return len(self.high) * self.columns + i

    def second(self, j: int) -> int:
        """Returns the register of the factor that has lanes."""
        return len(self.high) * (self.columns + 1) + j

    def configure(self, terms: Whole) -> None:
        """Sets the rows and bytes of all registers, for so many terms, and makes them 0."""
        shapes: dict[int, tuple[Whole, Whole]] = {}
        for j, lanes in enumerate(self.left):
            shapes[self.second(j)] = terms, lanes
            for i, rows in enumerate(self.high):
                shapes[self.sum(i, j)], shapes[self.first(i)] = (rows, lanes), (rows, terms)
        held = [0] * CONFIGURATION
        held[0] = 1
        later: list[tuple[int, IRValue]] = []
        for k, (rows, lanes) in shapes.items():
            places: list[tuple[int, Whole]] = [(BYTES_AT + 2 * k, times(self.w, lanes, 4)), (ROWS_AT + k, rows)]
            for at, n in places:
                if isinstance(n, int):
                    held[at] = n
                else:
                    later.append((at, n))
        where = self.w.table(held, dtypes.uint8)
        if later:
            table, where = where, self.nest.kernel.configuration_room()
            self.w.store(self.w.load(table, dtypes.uint8, CONFIGURATION), where)
            for at, n in later:
                self.w.store(self.w.convert("trunc", n, dtypes.uint8), self.w.at(where, at, dtypes.uint8))
        self.do("ldtilecfg", f"ptr {where}")

    def move(self, name: str) -> None:
        """Stores the sums in their room, or loads them from there."""
        for i in range(len(self.high)):
            for j in range(self.columns):
                place = i * self.row.m * self.stride + j * self.row.n
                at = self.w.at(self.room, place, self.row.sum)
                self.do(name, f"i8 {self.sum(i, j)}", f"ptr {at}", f"i64 {self.stride * 4}")

    def bytes(self, f: Factor, d: Whole) -> str:
        """A number of elements in bytes, as an operand."""
        return str(register(times(self.w, d, f.access.dtype.bits // 8)))

    def product(self, at: Whole) -> None:
        """Adds the products of the terms that registers are configured for, from a place of the reduced loop on."""
        w, nest = self.w, self.nest
        with nest.scope({self.deep: Open(None, at) if isinstance(at, int) else Open(at, 0)}):
            starts = [self.start(f) for f in (self.a, self.b)]
            down, deep = nest.coef(self.a.access, self.down), nest.coef(self.b.access, self.deep)
            lanes = [w.at(starts[1], j * self.row.n * self.b.parts, self.b.access.dtype) for j in range(self.columns)]
            for i in range(len(self.high)):
                rows = w.at(starts[0], times(w, down, i * self.row.m), self.a.access.dtype)
                self.do("tileloadd64", f"i8 {self.first(i)}", f"ptr {rows}", self.bytes(self.a, down))
                for j in range(self.columns):
                    if i == 0:
                        self.do("tileloadd64", f"i8 {self.second(j)}", f"ptr {lanes[j]}", self.bytes(self.b, deep))
                    name = self.row.intrinsic.removeprefix("x86.")
                    if self.swapped and name == "tdpbusd":
                        name = "tdpbsud"
                    self.do(name, f"i8 {self.sum(i, j)}", f"i8 {self.first(i)}", f"i8 {self.second(j)}")

    def start(self, f: Factor) -> str:
        """The address of the first element of a factor's matrix."""
        w, nest, a = self.w, self.nest, f.access
        base = nest.opened[self.deep].base
        pointer = nest.pointer(a) if base is None else w.at(nest.pointer(a), times(w, base, nest.coef(a, self.deep)), a.dtype)
        return w.at(pointer, offset(nest, a, 0, 0), a.dtype)

    # ---- sums

    def write(self) -> None:
        """Makes the sums and stores them in their room."""
        nest, w = self.nest, self.w
        n = nest.size(self.deep)
        known = isinstance(n, int)
        whole = apply(w, "*", apply(w, "//", n, self.terms), self.terms)
        rest = apply(w, "-", n, whole)
        self.configure(self.terms)
        order = [d for d in nest.scheduled.sums if d is not self.deep]

        def again() -> list[IRValue]:
            self.move("tilestored64")
            self.configure(rest)
            self.move("tileloadd64")
            self.product(whole)
            if order:  # the next place of the loops outside begins with whole matrices
                self.move("tilestored64")
                self.configure(self.terms)
                self.move("tileloadd64")
            return []

        def level(k: int) -> None:
            if k < len(order):
                nest.each(order[k], lambda: level(k + 1))
                return

            def step(i: IRValue) -> list[IRValue]:
                self.product(i if i.name[0] == "%" else int(i.name))
                return []

            w.loop(0, whole, self.terms, [], step)
            if not known:
                some = w.op("icmp sgt", register(rest), constant(0, dtypes.int64), dtype=dtypes.bool_)
                w.when(some, [], again, rare=False)
            elif rest:
                again()

        level(0)
        self.move("tilestored64")

    def value(self, i: Whole, j: int) -> IRValue:
        """The sums of a row and a column, from their room."""
        w = self.w
        at = w.at(self.room, plus(w, times(w, i, self.stride), j * self.row.n), self.row.sum)
        return w.load(at, self.row.sum, self.nest.width(j))


def release(w: IRWriter) -> None:
    """Gives registers of matrices back, so that Linux does not save them with the thread."""
    w.declared.setdefault("@llvm.x86.tilerelease", "declare void @llvm.x86.tilerelease()")
    w.do("call void @llvm.x86.tilerelease()")
