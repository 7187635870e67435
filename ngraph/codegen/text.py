"""The writer of final LLVM IR text. What it writes LLVM only has to select instructions for: no pass follows.

An instruction without effects that is written twice where the first still holds is one instruction: each loop body and branch
has a table of what is known in it. That gives common subexpressions and loop-invariant operands without a pass.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.targets import Cpu
from ngraph.targets.products import DOTS, PACKED_BITS, ProductInstruction

# how a dtype is held in a register; 16-bit floats and narrow ones are their bits, for no instruction works on them
REGISTER = {"bool": "i1", "float16": "i16", "bfloat16": "i16", "float32": "float", "float64": "double"}
REGISTER |= {f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
REGISTER |= dict.fromkeys(dtypes.NARROW, "i8")
STORAGE = {**REGISTER, "bool": "i8"}
_MANGLED = {"half": "f16", "float": "f32", "double": "f64"}


@cache
def type_name(dtype: DType, lanes: int = 1) -> str:
    """The type of a register that holds so many elements."""
    return REGISTER[dtype.name] if lanes == 1 else f"<{lanes} x {REGISTER[dtype.name]}>"


@cache
def storage_name(dtype: DType, lanes: int = 1) -> str:
    """The type of so many elements in memory."""
    return STORAGE[dtype.name] if lanes == 1 else f"<{lanes} x {STORAGE[dtype.name]}>"


@cache
def mangled(type_: str) -> str:
    """A type as it stands in the name of an intrinsic."""
    if type_[0] == "<":
        lanes, _, element = type_[1:-1].split(" ")
        return f"v{lanes}{mangled(element)}"
    return "p0" if type_ == "ptr" else _MANGLED.get(type_, type_)


class IRValue(NamedTuple):
    """A register or constant: its name in the text, its element type, and how many elements it holds (1: a scalar)."""

    name: str
    dtype: DType
    lanes: int = 1

    @property
    def type(self) -> str:
        return type_name(self.dtype, self.lanes)

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


def constant(number: Any, dtype: DType, lanes: int = 1) -> IRValue:
    """A constant of a dtype, exact: floats are rounded once and written by their bits."""
    if dtype.is_float or dtype.kind == "narrow":
        return _literal(struct.pack("<d", float(number)), dtype, lanes)
    return _literal(int(number), dtype, lanes)


@cache
def _literal(number: int | bytes, dtype: DType, lanes: int = 1) -> IRValue:
    """Floats come by the bits of a float64, so that equal keys are equal constants, and are rounded once."""
    one = _digits(number, dtype)
    return IRValue(one if lanes == 1 else f"splat ({REGISTER[dtype.name]} {one})", dtype, lanes)


def _digits(number: int | bytes, dtype: DType) -> str:
    if type(number) is not bytes:
        return ("true" if number else "false") if dtype.kind == "bool" else str(number)
    (x,) = struct.unpack("<d", number)
    if dtype.name == "float64":
        return f"0x{int.from_bytes(number, 'little'):016X}"
    rounded = dtype.array(x)
    bits = int.from_bytes(rounded.tobytes(), "little")
    if dtype.bits <= 16:
        return str(bits)
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(rounded)))[0]:016X}"


def plain(v: IRValue) -> bool:
    """Whether it is a constant float of 32 or 64 bits other than NaN."""
    digits = v.name.rpartition(" ")[2].rstrip(")")
    return v.dtype.is_float and digits.startswith("0x") and int(digits, 16) & (1 << 63) - 1 <= 0x7FF << 52


def counting(dtype: DType, lanes: int) -> IRValue:
    """0, 1, 2 … as a constant vector of integers."""
    element = REGISTER[dtype.name]
    return IRValue("<" + ", ".join(f"{element} {k}" for k in range(lanes)) + ">", dtype, lanes)


def vector(numbers: Sequence[int], dtype: DType) -> IRValue:
    """These whole numbers, or truths, as a constant."""
    if len(set(numbers)) == 1:
        return _literal(numbers[0], dtype, len(numbers))
    element = REGISTER[dtype.name]
    return IRValue("<" + ", ".join(f"{element} {_digits(n, dtype)}" for n in numbers) + ">", dtype, len(numbers))


def literal(x: IRValue) -> list[int] | None:
    """The whole numbers, or truths, of a constant; None for what is no such constant."""
    if x.dtype.is_float or x.name[0] in "%@":
        return None
    one = x.name.removeprefix("splat (").removesuffix(")")
    words = [w.split(" ")[-1] for w in one.strip("<>").split(", ")] if x.lanes > 1 else [one]
    known = {"true": 1, "false": 0}
    if not all(w in known or w.lstrip("-").isdigit() for w in words):
        return None
    numbers = [known.get(w, 0) if w in known else int(w) for w in words]
    return numbers * (x.lanes if len(numbers) == 1 else 1)


# what is computed here where all is constant: a mask that LLVM finds to be one is not told apart from others, see `IRWriter.store`
_FOLDED: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "and": operator.and_,
    "icmp sgt": operator.gt,
    "icmp sge": operator.ge,
    "icmp slt": operator.lt,
}

Index: TypeAlias = int | IRValue


def _int64(index: Index) -> IRValue:
    return index if isinstance(index, IRValue) else constant(index, dtypes.int64)


Body = Callable[..., Sequence[IRValue]]


def silent(body: Callable[..., None]) -> Callable[..., list[IRValue]]:
    """A body that carries nothing."""

    def run(*values: IRValue) -> list[IRValue]:
        body(*values)
        return []

    return run


class IRWriter:
    """One module under construction. Instructions go to the current block of the current function."""

    def __init__(self, target: Cpu):
        self.target = target
        self.functions: list[str] = []
        self.declared: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.lines: list[str] = []
        self.entry: list[str] = []  # slots on the stack
        self.known: list[dict[str, str]] = [{}]  # text of an instruction -> its result, for each open body
        self.count = 0
        self.block = "entry"

    # ---- the module

    def function(self, name: str, parameters: Sequence[str], body: Callable[..., None]) -> None:
        """`define void @name(…)`: `parameters` are types, with attributes if wished ("ptr noalias", "i64"); `body` takes their names."""
        names = [f"%p{k}" for k in range(len(parameters))]
        self.lines, self.entry, self.known, self.block, self.count = [], [], [{}], "entry", 0
        body(*names)
        head = ", ".join(f"{p} {n}" for p, n in zip(parameters, names, strict=True))
        self.functions.append(
            "\n".join([f"define void @{name}({head}) nounwind {{", "entry:", *self.entry, *self.lines, "  ret void", "}"])
        )

    def text(self) -> str:
        """The module."""
        head = f'target triple = "{self.target.triple}"'
        return "\n".join([head, *self.globals.values(), *self.functions, *self.declared.values()]) + "\n"

    def table(self, numbers: Sequence[Any], dtype: DType, align: int = 64) -> str:
        """A constant array in the module; equal ones are one. The result is its address."""
        element = STORAGE[dtype.name]
        held = ", ".join(f"{element} {constant(n, dtype).name}" for n in numbers)
        text = f"internal unnamed_addr constant [{len(numbers)} x {element}] [{held}], align {align}"
        name = f"@table{len(self.globals)}"
        if text in self.globals:
            return self.globals[text].split(" ", 1)[0]
        self.globals[text] = f"{name} = {text}"
        return name

    # ---- how floats are computed

    def flush_denormals(self) -> str:
        """From here on this thread takes denormal numbers as 0, and gives 0 instead; returns the mode before."""
        if self.target.triple.startswith("aarch64"):
            self.declared["@llvm.aarch64.get.fpcr"] = "declare i64 @llvm.aarch64.get.fpcr()"
            before, bits, kind = self.effect("call i64 @llvm.aarch64.get.fpcr()"), 1 << 24, "i64"  # FZ
        else:
            self.declared["@llvm.x86.sse.stmxcsr"] = "declare void @llvm.x86.sse.stmxcsr(ptr)"
            self.entry.append("  %floatmode = alloca i32, align 4")
            self.do("call void @llvm.x86.sse.stmxcsr(ptr %floatmode)")
            before, bits, kind = self.effect("load i32, ptr %floatmode"), 1 << 15 | 1 << 6, "i32"  # flush to zero, denormals are zeros
        self.float_mode(self.effect(f"or {kind} {before}, {bits}"))
        return before

    def float_mode(self, mode: str) -> None:
        """Sets the mode of floats as `flush_denormals` gave it."""
        if self.target.triple.startswith("aarch64"):
            self.declared["@llvm.aarch64.set.fpcr"] = "declare void @llvm.aarch64.set.fpcr(i64)"
            self.do(f"call void @llvm.aarch64.set.fpcr(i64 {mode})")
        else:
            self.declared["@llvm.x86.sse.ldmxcsr"] = "declare void @llvm.x86.sse.ldmxcsr(ptr)"
            self.do(f"store i32 {mode}, ptr %floatmode")
            self.do("call void @llvm.x86.sse.ldmxcsr(ptr %floatmode)")

    # ---- instructions

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def do(self, instruction: str) -> None:
        """An instruction without result."""
        self.lines.append("  " + instruction)

    def effect(self, instruction: str) -> str:
        """An instruction with a result that must run each time: a load, an atomic."""
        name = self.fresh()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def pure(self, instruction: str) -> str:
        """An instruction whose result depends on its operands alone; at most once in a body."""
        for known in self.known:
            if instruction in known:
                return known[instruction]
        self.known[-1][instruction] = name = self.fresh()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def op(self, name: str, x: IRValue, *more: IRValue, dtype: DType | None = None) -> IRValue:
        """`name type x, y …`: arithmetic and comparisons, which give bool with `dtype` so."""
        if x.name[0] not in "%@" and name in _FOLDED and x.dtype.name in ("bool", "int64") and more[0].name[0] not in "%@":
            a, b = literal(x), literal(more[0])
            if a is not None and b is not None:
                numbers = [int(_FOLDED[name](m, n)) for m, n in zip(a, b, strict=True)]
                if all(-(1 << 63) <= n < 1 << 63 for n in numbers):
                    return vector(numbers, dtype or x.dtype)
        operands = "".join([f", {v.name}" for v in more])
        return IRValue(self.pure(f"{name} {x.type} {x.name}{operands}"), dtype or x.dtype, x.lanes)

    def convert(self, name: str, x: IRValue, dtype: DType) -> IRValue:
        """`name type x to type`; nothing where the types are the same."""
        to = type_name(dtype, x.lanes)
        return IRValue(x.name if to == x.type else self.pure(f"{name} {x} to {to}"), dtype, x.lanes)

    def select(self, c: IRValue, x: IRValue, y: IRValue) -> IRValue:
        return IRValue(self.pure(f"select {c}, {x}, {y}"), x.dtype, x.lanes)

    def intrinsic(self, name: str, result: DType, lanes: int, *operands: IRValue | str, types: Sequence[str] | None = None) -> IRValue:
        """A call of @llvm.name, declared as used; mangled with `types`, the first operand's by default. Strings are "type name"."""
        signature = [o.type if type(o) is IRValue else str(o).rpartition(" ")[0] for o in operands]
        suffix = types if types is not None else signature[:1]
        full = ".".join([f"@llvm.{name}", *map(mangled, suffix)])
        to = type_name(result, lanes)
        self.declared.setdefault(full, f"declare {to} {full}({', '.join(signature)})")
        return IRValue(self.pure(f"call {to} {full}({', '.join(map(str, operands))})"), result, lanes)

    def splat(self, x: IRValue, lanes: int) -> IRValue:
        """A scalar in every lane."""
        if lanes == 1 or x.lanes == lanes:
            return x
        if x.name[0] not in "%@":
            return IRValue(f"splat ({x})", x.dtype, lanes)
        wide = type_name(x.dtype, lanes)
        one = self.pure(f"insertelement {wide} poison, {x}, i32 0")
        return IRValue(self.pure(f"shufflevector {wide} {one}, {wide} poison, <{lanes} x i32> zeroinitializer"), x.dtype, lanes)

    def constant(self, number: Any, like: IRValue) -> IRValue:
        """A number as `like` is: its dtype and lanes."""
        return constant(number, like.dtype, like.lanes)

    def any(self, mask: IRValue) -> IRValue:
        """Whether any lane of a bool holds."""
        return mask if mask.lanes == 1 else self.intrinsic("vector.reduce.or", dtypes.bool_, 1, mask)

    def each_lane(self, mask: IRValue, body: Body) -> None:
        """`body(lane)` for each lane of a bool that holds, the first one first."""
        bits = self.pure(f"bitcast {mask} to i{mask.lanes}")
        some = IRValue(self.pure(f"zext i{mask.lanes} {bits} to i64") if mask.lanes < 64 else bits, dtypes.int64)

        def lane(left: IRValue) -> Sequence[IRValue]:
            body(self.intrinsic("cttz", dtypes.int64, 1, left, constant(True, dtypes.bool_)))
            return [self.op("and", left, self.op("sub", left, constant(1, dtypes.int64)))]

        self.loop_while([some], lambda left: self.op("icmp ne", left, constant(0, dtypes.int64), dtype=dtypes.bool_), lane)

    def fma(self, x: IRValue, y: IRValue, z: IRValue) -> IRValue:
        """x * y + z: rounded once where the target can, else twice."""
        if self.target.fma:
            return self.intrinsic("fma", x.dtype, x.lanes, x, y, z)
        return self.op("fadd", self.op("fmul", x, y), z)

    def dot(self, op: str, x: IRValue, y: IRValue, z: IRValue) -> IRValue:
        """z and the sums of as many products as `op` takes of each element of x and y; by one instruction where the target has one."""
        row = self.target.product(op)
        n = next((k for k in row.lanes if k >= z.lanes), 0) if row is not None else 0
        if row is None or not n:
            return (self._dot_floats if DOTS[op].sum.is_float else self._dot_integers)(DOTS[op], x, y, z)
        if n > z.lanes:  # no instruction is so short
            wide = [self.splat(v, n) if v.lanes == 1 else self.shuffle(v, [*range(v.lanes)] + [0] * (n - v.lanes)) for v in (x, y, z)]
            made = self.dot(op, *wide)
            return self.lane(made, 0) if z.lanes == 1 else self.shuffle(made, range(z.lanes))
        each: list[Any] = [x, y]
        if row.passed:
            kind = f"<{row.k * n} x {row.passed}>"
            each = [f"{kind} {self.pure(f'bitcast {v} to {kind}')}" for v in each]
        return self.intrinsic(row.intrinsic.format(bits=32 * n), z.dtype, n, z, *each, types=())

    def _dot_floats(self, row: ProductInstruction, x: IRValue, y: IRValue, z: IRValue) -> IRValue:
        """The same for bfloat16, which is the upper half of a float32: the upper operands first, as the instruction does."""
        for name, k in (("and", 0xFFFF0000), ("shl", row.operand_bits)):
            a, b = (self.convert("bitcast", self.op(name, v, self.constant(k, v)), z.dtype) for v in (x, y))
            z = self.fma(a, b, z)
        return z

    def _dot_integers(self, row: ProductInstruction, x: IRValue, y: IRValue, z: IRValue) -> IRValue:
        """The same for unsigned integers times signed ones; the sum wraps around."""
        bits = row.operand_bits
        for k in range(0, PACKED_BITS, bits):
            a = self.op("and", self.op("lshr", x, self.constant(k, x)), self.constant((1 << bits) - 1, x))
            b = self.op("ashr", self.op("shl", y, self.constant(PACKED_BITS - bits - k, y)), self.constant(PACKED_BITS - bits, y))
            z = self.op("add", z, self.op("mul", a, b)._replace(dtype=z.dtype))
        return z

    # ---- memory

    def at(self, pointer: str, index: Index, dtype: DType) -> str:
        """The address of an element, counted in elements of the dtype."""
        if index == 0:
            return pointer
        where = f"i64 {index}" if type(index) is int else str(index)
        return self.pure(f"getelementptr {STORAGE[dtype.name]}, ptr {pointer}, {where}")

    def slot(self, dtype: DType, count: int) -> str:
        """Room for so many elements on the stack."""
        name = self.fresh()
        self.entry.append(f"  {name} = alloca [{count} x {STORAGE[dtype.name]}], align 64")
        return name

    def load(self, pointer: str, dtype: DType, lanes: int = 1, align: int = 0, mask: IRValue | None = None) -> IRValue:
        """Elements from memory; where `mask` is false nothing is read and the lane is 0. `align` in bytes, by default an element's."""
        kind, align = storage_name(dtype, lanes), align or dtype.bits // 8
        if mask is None:
            name = self.effect(f"load {kind}, ptr {pointer}, align {align}")
        else:
            full = f"@llvm.masked.load.{mangled(kind)}.p0"
            self.declared.setdefault(full, f"declare {kind} {full}(ptr, i32, {mask.type}, {kind})")
            name = self.effect(f"call {kind} {full}(ptr {pointer}, i32 {align}, {mask}, {kind} zeroinitializer)")
        return self._from_memory(name, dtype, lanes)

    def _from_memory(self, name: str, dtype: DType, lanes: int) -> IRValue:
        if dtype.kind != "bool":
            return IRValue(name, dtype, lanes)
        zero = "0" if lanes == 1 else "zeroinitializer"
        return IRValue(self.pure(f"icmp ne {storage_name(dtype, lanes)} {name}, {zero}"), dtype, lanes)

    def store(self, x: IRValue, pointer: str, align: int = 0, mask: IRValue | None = None) -> None:
        """Elements to memory; where `mask` is false nothing is written."""
        known = None if mask is None else literal(mask)
        if known is not None and all(known):
            mask = None
        elif known is not None and sum(known) == 1:  # of a narrowed vector LLVM would store the wide element
            k = known.index(1)
            return self.store(self.lane(x, k), self.at(pointer, k, x.dtype), align if k == 0 else 0)
        kind, align = storage_name(x.dtype, x.lanes), align or x.dtype.bits // 8
        name = self.pure(f"zext {x} to {kind}") if x.dtype.kind == "bool" else x.name
        if mask is None:
            self.do(f"store {kind} {name}, ptr {pointer}, align {align}")
        else:
            full = f"@llvm.masked.store.{mangled(kind)}.p0"
            self.declared.setdefault(full, f"declare void {full}({kind}, ptr, i32, {mask.type})")
            self.do(f"call void {full}({kind} {name}, ptr {pointer}, i32 {align}, {mask})")

    def gather(self, pointer: str, offsets: IRValue, dtype: DType, mask: IRValue | None = None) -> IRValue:
        """Elements that lie apart: `offsets` from the pointer, in elements. Where `mask` is false nothing is read and the lane is 0."""
        lanes, kind = offsets.lanes, storage_name(dtype, offsets.lanes)
        places = self.pure(f"getelementptr {STORAGE[dtype.name]}, ptr {pointer}, {offsets}")
        where = mask or constant(True, dtypes.bool_, lanes)
        full = f"@llvm.masked.gather.{mangled(kind)}.v{lanes}p0"
        self.declared.setdefault(full, f"declare {kind} {full}(<{lanes} x ptr>, i32, {where.type}, {kind})")
        call = f"call {kind} {full}(<{lanes} x ptr> {places}, i32 {dtype.bits // 8}, {where}, {kind} zeroinitializer)"
        return self._from_memory(self.effect(call), dtype, lanes)

    def scatter(self, x: IRValue, pointer: str, offsets: IRValue, mask: IRValue | None = None) -> None:
        """Elements to places apart; where two meet, the last lane stays."""
        lanes, kind = x.lanes, storage_name(x.dtype, x.lanes)
        places = self.pure(f"getelementptr {STORAGE[x.dtype.name]}, ptr {pointer}, {offsets}")
        name = self.pure(f"zext {x} to {kind}") if x.dtype.kind == "bool" else x.name
        where = mask or constant(True, dtypes.bool_, lanes)
        full = f"@llvm.masked.scatter.{mangled(kind)}.v{lanes}p0"
        self.declared.setdefault(full, f"declare void {full}({kind}, <{lanes} x ptr>, i32, {where.type})")
        self.do(f"call void {full}({kind} {name}, <{lanes} x ptr> {places}, i32 {x.dtype.bits // 8}, {where})")

    def shuffle(self, x: IRValue, lanes: Sequence[int], y: IRValue | None = None) -> IRValue:
        """These lanes of x, or of x and y one after the other."""
        held = literal(x) if y is None and x.lanes > 1 else None
        if held is not None:
            return vector([held[k] for k in lanes], x.dtype)
        picked = ", ".join(f"i32 {k}" for k in lanes)
        other = f"{x.type} poison" if y is None else str(y)
        return IRValue(self.pure(f"shufflevector {x}, {other}, <{len(lanes)} x i32> <{picked}>"), x.dtype, len(lanes))

    def lane(self, x: IRValue, k: int) -> IRValue:
        """One element of a vector."""
        return x if x.lanes == 1 else IRValue(self.pure(f"extractelement {x}, i32 {k}"), x.dtype)

    def tail(self, count: IRValue, lanes: int) -> IRValue:
        """The mask of the first `count` lanes; count is an int64."""
        return self.op("icmp sgt", self.splat(count, lanes), vector(range(lanes), dtypes.int64), dtype=dtypes.bool_)

    def prefetch(self, pointer: str, write: bool = False, locality: int = 3) -> None:
        """Asks for a line of memory ahead of its use."""
        self.declared.setdefault("@llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.do(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 {int(write)}, i32 {locality}, i32 1)")

    # ---- control

    def label(self) -> str:
        self.count += 1
        return f"b{self.count}"

    def start(self, block: str) -> None:
        self.lines.append(f"{block}:")
        self.block = block

    def _inside(self, body: Body, *values: IRValue) -> tuple[IRValue, ...]:
        self.known.append({})
        try:
            return tuple(body(*values))
        finally:
            self.known.pop()

    def _phis(self, carried: Sequence[IRValue]) -> tuple[int, tuple[IRValue, ...]]:
        """Slots for the phis of these values, and their names; `_fill` writes them once the last block is known."""
        at = len(self.lines)
        self.lines += [""] * len(carried)
        return at, tuple([IRValue(self.fresh(), v.dtype, v.lanes) for v in carried])

    def _fill(self, at: int, phis: Sequence[IRValue], *comings: tuple[str, Sequence[IRValue]]) -> None:
        for k, phi in enumerate(phis):
            pairs = ", ".join(f"[ {values[k].name}, %{block} ]" for block, values in comings)
            self.lines[at + k] = f"  {phi.name} = phi {phi.type} {pairs}"

    def loop(self, start: Index, stop: Index, step: int, carried: Sequence[IRValue], body: Body) -> tuple[IRValue, ...]:
        """`for i in range(start, stop, step): carried = body(i, *carried)`, step above 0; what is carried afterwards."""
        first, last = _int64(start), _int64(stop)
        fixed = isinstance(start, int) and isinstance(stop, int)
        if isinstance(start, int) and isinstance(stop, int) and start + step >= stop:
            return self._inside(body, first, *carried) if start < stop else tuple(carried)
        before, inside, after = self.block, self.label(), self.label()
        if fixed:
            self.do(f"br label %{inside}")
        else:
            some = self.pure(f"icmp slt {first}, {last.name}")
            self.do(f"br i1 {some}, label %{inside}, label %{after}")
        self.start(inside)
        at, phis = self._phis([first, *carried])
        results = self._inside(body, *phis)
        following = IRValue(self.effect(f"add nsw {phis[0]}, {step}"), dtypes.int64)
        more = self.effect(f"icmp slt {following}, {last.name}")
        self.do(f"br i1 {more}, label %{inside}, label %{after}")
        self._fill(at, phis, (before, [first, *carried]), (self.block, [following, *results]))
        end = self.block
        self.start(after)
        if fixed:
            return results
        at, merged = self._phis(carried)
        self._fill(at, merged, (before, carried), (end, results))
        return merged

    def loop_while(self, carried: Sequence[IRValue], test: Callable[..., IRValue], body: Body) -> tuple[IRValue, ...]:
        """`while test(*carried): carried = body(*carried)`; the test gives a scalar bool."""
        before, head, inside, after = self.block, self.label(), self.label(), self.label()
        self.do(f"br label %{head}")
        self.start(head)
        at, phis = self._phis(carried)
        (more,) = self._inside(lambda *values: (test(*values),), *phis)
        self.do(f"br {more}, label %{inside}, label %{after}")
        self.start(inside)
        results = self._inside(body, *phis)
        self.do(f"br label %{head}")
        self._fill(at, phis, (before, carried), (self.block, results))
        self.start(after)
        return phis

    def when(self, condition: IRValue, otherwise: Sequence[IRValue], body: Body, rare: bool = True) -> tuple[IRValue, ...]:
        """`body()` where the scalar condition holds, which is thought rare unless told; else `otherwise`."""
        before, inside, after = self.block, self.label(), self.label()
        self.do(f"br {condition}, label %{inside}, label %{after}{', !prof !0' if rare else ''}")
        if rare:
            self.globals["prof"] = '!0 = !{!"branch_weights", i32 1, i32 1000}'
        self.start(inside)
        results = self._inside(body)
        end = self.block
        self.do(f"br label %{after}")
        self.start(after)
        at, merged = self._phis(otherwise)
        self._fill(at, merged, (before, otherwise), (end, results))
        return merged
