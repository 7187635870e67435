"""Values with operators, so that formulas of `math.py` read as formulas. Each operator writes one instruction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngraph.codegen.text import IRValue, IRWriter, constant, plain
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType

BITS = {32: (dtypes.int32, 23, 127), 64: (dtypes.int64, 52, 1023)}  # width: integer as wide, bits of the fraction, bias


class Number:
    """A value with its writer. Operands may be Python numbers; `kind` of the dtype picks the instruction."""

    __slots__ = ("w", "v")

    def __init__(self, w: IRWriter, v: IRValue):
        self.w, self.v = w, v

    def like(self, y: Any) -> Number:
        """`y` itself, or the number `y` with this dtype and as many lanes."""
        return y if type(y) is Number else Number(self.w, constant(y, self.v.dtype, self.v.lanes))

    def _op(self, floating: str, signed: str, unsigned: str, y: Any) -> Number:
        kind = self.v.dtype.kind
        return Number(self.w, self.w.op(floating if kind == "float" else signed if kind == "int" else unsigned, self.v, self.like(y).v))

    def __add__(self, y: Any) -> Number:
        return self._op("fadd", "add", "add", y)

    def __sub__(self, y: Any) -> Number:
        return self._op("fsub", "sub", "sub", y)

    def __mul__(self, y: Any) -> Number:
        return self._op("fmul", "mul", "mul", y)

    def __truediv__(self, y: Any) -> Number:
        return self._op("fdiv", "sdiv", "udiv", y)

    def __mod__(self, y: Any) -> Number:
        return self._op("frem", "srem", "urem", y)

    def __and__(self, y: Any) -> Number:
        return self._op("", "and", "and", y)

    def __or__(self, y: Any) -> Number:
        return self._op("", "or", "or", y)

    def __xor__(self, y: Any) -> Number:
        return self._op("", "xor", "xor", y)

    def __lshift__(self, y: Any) -> Number:
        return self._op("", "shl", "shl", y)

    def __rshift__(self, y: Any) -> Number:
        return self._op("", "ashr", "lshr", y)

    def __radd__(self, x: Any) -> Number:
        return self.like(x) + self

    def __rsub__(self, x: Any) -> Number:
        return self.like(x) - self

    def __rmul__(self, x: Any) -> Number:
        return self.like(x) * self

    def __rtruediv__(self, x: Any) -> Number:
        return self.like(x) / self

    def __neg__(self) -> Number:
        return Number(self.w, self.w.op("fneg", self.v)) if self.v.dtype.is_float else self.like(0) - self

    def __invert__(self) -> Number:
        return self ^ (1 if self.v.dtype.kind == "bool" else -1)

    def _test(self, floating: str, signed: str, unsigned: str, y: Any) -> Number:
        kind = self.v.dtype.kind
        name = f"fcmp {floating}" if kind == "float" else f"icmp {signed if kind == 'int' else unsigned}"
        return Number(self.w, self.w.op(name, self.v, self.like(y).v, dtype=dtypes.bool_))

    def __lt__(self, y: Any) -> Number:
        return self._test("olt", "slt", "ult", y)

    def __le__(self, y: Any) -> Number:
        return self._test("ole", "sle", "ule", y)

    def __gt__(self, y: Any) -> Number:
        return self._test("ogt", "sgt", "ugt", y)

    def __ge__(self, y: Any) -> Number:
        return self._test("oge", "sge", "uge", y)

    def equal(self, y: Any) -> Number:
        return self._test("oeq", "eq", "eq", y)

    def differs(self, y: Any) -> Number:
        """Not equal, or NaN."""
        return self._test("une", "ne", "ne", y)

    def is_nan(self) -> Number:
        return self._test("uno", "", "", self)

    def select(self, x: Any, y: Any, like: Number | None = None) -> Number:
        """x where this bool holds, else y; two Python numbers become as `like` is."""
        form = like or (x if type(x) is Number else y)
        return Number(self.w, self.w.select(self.v, form.like(x).v, form.like(y).v))

    def call(self, name: str, *operands: Any) -> Number:
        """An intrinsic whose operands and result are all like this."""
        return Number(self.w, self.w.intrinsic(name, self.v.dtype, self.v.lanes, self.v, *[self.like(o).v for o in operands]))

    def convert(self, name: str, dtype: DType) -> Number:
        return Number(self.w, self.w.convert(name, self.v, dtype))

    def bits(self) -> Number:
        """A float's bits as a signed integer."""
        return self.convert("bitcast", BITS[self.v.dtype.bits][0])

    def floating(self) -> Number:
        """The float with these bits."""
        return self.convert("bitcast", dtypes.float32 if self.v.dtype.bits == 32 else dtypes.float64)

    def unsigned(self) -> Number:
        """The same bits as an unsigned integer."""
        return Number(self.w, self.v._replace(dtype=dtypes.REGISTRY[f"uint{self.v.dtype.bits}"]))

    def signed(self) -> Number:
        """The same bits as a signed integer."""
        return Number(self.w, self.v._replace(dtype=dtypes.REGISTRY[f"int{self.v.dtype.bits}"]))

    def magnitude(self) -> Number:
        return self.call("fabs")

    def with_sign(self, y: Number) -> Number:
        return self.call("copysign", y)

    @property
    def plain(self) -> bool:
        """Whether this is a constant float other than NaN."""
        return plain(self.v)

    @property
    def wide(self) -> bool:
        """Whether this is float64."""
        return self.v.dtype.bits == 64


def fma(x: Number, y: Any, z: Any) -> Number:
    """x * y + z, by one instruction where the target has it."""
    return Number(x.w, x.w.fma(x.v, x.like(y).v, x.like(z).v))


def polynomial(x: Number, coefficients: Sequence[Any]) -> Number:
    """Horner's scheme; the coefficient of the power 0 comes first."""
    *rest, top = coefficients
    result = x.like(top)
    for c in reversed(rest):
        result = fma(result, x, c)
    return result


def two_sum(x: Number, y: Number) -> tuple[Number, Number]:
    """x + y, and what its rounding lost (Knuth, The Art of Computer Programming 2, 4.2.2)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def quick_two_sum(x: Number, y: Number) -> tuple[Number, Number]:
    """The same where |x| >= |y| (Dekker 1971)."""
    total = x + y
    return total, y - (total - x)


def two_product(x: Number, y: Number) -> tuple[Number, Number]:
    """x * y, and what its rounding lost. Without a fused multiply-add float64 is cut in halves of 26 and 27 bits."""
    product = x * y
    if x.w.target.fma:
        return product, fma(x, y, -product)
    (a, b), (c, d) = _halves(x), _halves(y)
    return product, ((a * c - product) + a * d + b * c) + b * d


def _halves(x: Number) -> tuple[Number, Number]:
    high = (x.bits() & -(1 << 27)).floating()
    return high, x - high
