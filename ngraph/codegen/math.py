"""Each elementwise core op once, as instructions: for scalars and vectors alike, for every dtype and target. Nothing calls a library.

`emit(w, op, values, attrs)` writes one op; the column `machine_code` holds the functions. 16-bit floats compute in float32 and
are rounded after each op, as the meaning of a program says (docs/spec.md 3).
Errors, measured by tests/codegen: float32 at most 2 ulp (tan 3; erf, tanh: or 2e-7); float64 at most 2 ulp, tan 3, power and erf 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ngraph.codegen.coefficients import HALF_PI, HALF_PI_2, LN2_32, LN2_64, POLYNOMIALS, TWO_OVER_PI
from ngraph.codegen.number import BITS, Number, fma, polynomial, quick_two_sum, two_product, two_sum
from ngraph.codegen.text import IRValue, IRWriter, constant
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.opdef import OPS
from ngraph.parts.registry import Column
from ngraph.targets.products import DOTS, PACKED_BITS, PACKS

Function = Callable[..., Number]
MACHINE_CODE: Column[Any] = OPS.column(
    "machine_code", Callable, None, "(*Numbers, **attributes) -> Number: writes the instructions of an elementwise op, for any lanes"
)
STORED = {"where", "bitcast", "cast", *PACKS}  # take 16-bit floats and narrow ones as their bits; all others as float32
INFINITY, NAN = float("inf"), float("nan")
TWO_THIRDS_LOW = 3.700743415417188e-17  # 2 / 3 less the float64 2 / 3
LOG2_E, TWO_OVER_PI_1, LN2 = 1.4426950408889634, 0.6366197723675814, 0.6931471805599453
LOG10_E = 0.4342944819032518, 1.098319650216765e-17  # 1 / ln 10 in two parts
LOG10_E_32 = 0.4342944920063019, -1.0103049952192578e-08  # the same of float32
LOG10_2_32 = 0.301025390625, 4.605039066518657e-06  # ln 2 / ln 10 in two parts, the first of 16 bits


def emit(w: IRWriter, op: str, values: Sequence[IRValue], attrs: Mapping[str, Any] = {}) -> IRValue:
    """Writes one elementwise op. Values are of one dtype but for `where`'s condition; scalars beside vectors are splatted."""
    lanes = max(v.lanes for v in values)
    numbers = [Number(w, w.splat(v, lanes)) for v in values]
    last = values[-1].dtype
    if op in STORED or not (last.is_float and last.bits == 16):
        return MACHINE_CODE[op](*numbers, **attrs).v
    result = MACHINE_CODE[op](*map(widen, numbers), **attrs)
    return narrow(result, last).v if result.v.dtype is dtypes.float32 else result.v


# ---- 16-bit floats and casts ---------------------------------------------------------------------------------------------


def widen(x: Number) -> Number:
    """A 16-bit float, held as bits, as float32; exact."""
    bits = x.unsigned()
    if x.v.dtype is dtypes.bfloat16:
        return (bits.convert("zext", dtypes.uint32) << 16).floating()
    if x.w.target.half:
        half = x.w.pure(f"bitcast {x.v} to {_half_type(x)}")
        result = x.w.pure(f"fpext {_half_type(x)} {half} to {constant(0, dtypes.float32, x.v.lanes).type}")
        return Number(x.w, IRValue(result, dtypes.float32, x.v.lanes))
    wide = bits.convert("zext", dtypes.uint32)
    magnitude = (wide & 0x7FFF) << 13
    scaled = magnitude.floating() * 2.0**112  # the exponents' biases differ by 112; this makes denormals right too
    special = scaled.bits().unsigned() | (magnitude >= 0x1F << 23).select(0x7F800000, 0, like=wide)
    return (special | ((wide & 0x8000) << 16)).floating()


def _half_type(x: Number) -> str:
    return "half" if x.v.lanes == 1 else f"<{x.v.lanes} x half>"


@MACHINE_CODE.of(*PACKS)
def pack(*parts: Number) -> Number:
    """Short values beside each other in 32 bits, the first one lowest."""
    first, *rest = (x.unsigned().convert("zext", dtypes.uint32) for x in parts)
    for k, x in enumerate(rest, 1):
        first = first | (x << PACKED_BITS // len(parts) * k)
    return first


def narrow(x: Number, dtype: DType) -> Number:
    """float32 as a 16-bit float, rounded to the nearest, ties to even; NaN stays NaN."""
    bits = x.bits().unsigned()
    if dtype is dtypes.bfloat16:
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        result = x.is_nan().select((bits >> 16) | 0x40, rounded)
    elif x.w.target.half:
        half = x.w.pure(f"fptrunc {x.v} to {_half_type(x)}")
        raw = x.w.pure(f"bitcast {_half_type(x)} {half} to {constant(0, dtype, x.v.lanes).type}")
        return Number(x.w, IRValue(raw, dtype, x.v.lanes))
    else:
        size = bits & 0x7FFFFFFF
        normal = (size + 0xFFF + ((size >> 13) & 1) - (112 << 23)) >> 13
        denormal = (size.floating() + 0.5).bits().unsigned() - 0x3F000000  # the last bit of 0.5 to 1 is that of the denormals
        result = (size < 113 << 23).select(denormal, normal)
        result = (size >= (127 + 16) << 23).select(0x7C00, result, like=size)
        result = (size > 0x7F800000).select(0x7E00, result, like=size) | ((bits >> 16) & 0x8000)
    return Number(x.w, result.convert("trunc", dtypes.uint16).v._replace(dtype=dtype))


def decoded(x: Number) -> Number:
    """A narrow dtype's numbers, held as codes: integers as int32, others as float32; exact."""
    form = x.v.dtype.form
    assert form is not None
    code = x.unsigned().convert("zext", dtypes.uint32)
    if not form.exponent:
        moved = code << 32 - form.width
        return (moved.signed() >> 32 - form.width).signed() if form.signed else (moved >> 32 - form.width).signed()
    if form.special == "power":
        return code.equal(0xFF).select(0x7FC00000, code.equal(0).select(1 << 22, code << 23), like=code).floating()
    magnitude = code & (1 << form.width - 1) - 1
    denormal = magnitude.convert("uitofp", dtypes.float32) * 2.0 ** (1 - form.bias - form.fraction)
    normal = (magnitude << 23 - form.fraction) + (127 - form.bias << 23)
    bits = (magnitude < 1 << form.fraction).select(denormal.bits().unsigned(), normal)
    if form.special == "ieee":
        bits = bits | (magnitude > form.top).select(0x7F800000, 0, like=code)
    if form.special == "fn":
        bits = (magnitude > form.top).select(0x7FC00000, bits)
    bits = bits | ((code << 32 - form.width) & 0x80000000)
    return (code.equal(form.infinite).select(0xFFC00000, bits) if form.special == "fnuz" else bits).floating()


def encoded(x: Number, dtype: DType) -> Number:
    """float32 as codes of a narrow dtype that has an exponent: the nearest, ties to even (of powers alone: up); overflow as it has it."""
    form = dtype.form
    assert form is not None
    bits = x.bits().unsigned()
    if form.special == "power":
        exponent = (bits + 0x3FFFFF + (bits >= 1 << 23).select(1, 0, like=bits)) >> 23
        code = ((exponent < 0xFF) & (x > 0.0)).select(exponent, 0xFF)
        return Number(x.w, code.convert("trunc", dtypes.uint8).v._replace(dtype=dtype))
    size, sign, cut = bits & 0x7FFFFFFF, (bits >> 32 - form.width) & (1 << form.width - 1), 23 - form.fraction
    normal = (size + ((1 << cut - 1) - 1) + ((size >> cut) & 1) - (127 - form.bias << 23)) >> cut
    last = size.floating().like(2.0 ** (1 - form.bias - form.fraction + 23))  # its last bit is that of the denormals
    denormal = (size.floating() + last).bits().unsigned() - last.bits().unsigned()
    code = (size < (128 - form.bias) << 23).select(denormal, normal)
    code = (code > form.top).select(form.infinite, code)
    nan = size > 0x7F800000
    if form.special == "finite":  # there is no NaN: 0 of the other sign
        code = nan.select(1 << form.width - 1, code) ^ sign
    elif form.special == "fnuz":  # there is no -0
        code = nan.select(form.infinite, code)
        code = code.equal(0).select(0, code | sign)
    else:
        code = nan.select((1 << form.width - 1) - (2 if form.special == "ieee" else 1), code) | sign
    return Number(x.w, code.convert("trunc", dtypes.uint8).v._replace(dtype=dtype))


def _as_narrow(x: Number, dtype: DType) -> Number:
    """Anything but 16-bit floats as a narrow dtype."""
    form = dtype.form
    assert form is not None
    if form.exponent:
        return encoded(cast(x, dtypes.float32), dtype)
    if x.v.dtype.is_float:
        x = cast(x, dtypes.int32)
        x = x.call("smax", dtype.lowest).call("smin", dtype.highest)
    x = cast(x, dtypes.uint8) & (1 << form.width) - 1
    return Number(x.w, x.v._replace(dtype=dtype))


def _to_odd(x: Number) -> Number:
    """float64 as float32, where inexact the neighbour with an odd last bit: rounding that again to 16 bits is rounding once."""
    near = x.convert("fptrunc", dtypes.float32)
    back = near.convert("fpext", dtypes.float64)
    bits = near.bits()
    cut = (back.magnitude() > x.magnitude()).select(bits - 1, bits) | 1
    return (back.equal(x) | x.is_nan()).select(bits, cut).floating()


def _whole_to_odd(x: Number) -> Number:
    """64-bit integers that float64 holds: beyond 2**53 the lowest 11 bits become 1 unless all are 0, as in `_to_odd`."""
    lost = x & 0x7FF
    odd = (x ^ lost) | lost.differs(0).select(0x800, 0, like=x)
    near = x + (1 << 53) if x.v.dtype.kind == "int" else x
    return (near.unsigned() > (1 << 54 if x.v.dtype.kind == "int" else 1 << 53)).select(odd, x)


def _whole(x: Number, dtype: DType) -> Number:
    """Floats as integers. LLVM's own saturating instruction is taken apart into lanes."""
    top = 2.0 ** (dtype.bits - (dtype.kind == "int"))  # the first float that is too large
    low = (x < float(dtype.lowest)).select(float(dtype.lowest), x)
    inside = (low < top).select(low, 0.0)  # NaN is 0
    wide = dtypes.REGISTRY[f"{dtype.kind}{max(dtype.bits, 32)}"]
    whole = cast(inside.convert("fptosi" if dtype.kind == "int" else "fptoui", wide), dtype)
    return (low >= top).select(dtype.highest, whole)


@MACHINE_CODE.of("cast")
def cast(x: Number, dtype: DType) -> Number:
    """Any dtype to any other, saturating where floats become integers."""
    source = x.v.dtype
    if source is dtype:
        return x
    if source.kind == "narrow" or source.is_float and source.bits == 16:
        x = decoded(x) if source.kind == "narrow" else widen(x)
        source = x.v.dtype
        return x if dtype is source else cast(x, dtype)
    if dtype.kind == "bool":
        return x.differs(0)
    if dtype.kind == "narrow":
        return _as_narrow(x, dtype)
    if dtype.is_float and dtype.bits == 16:
        if source.bits > 16 and source.is_integer:
            x = cast(_whole_to_odd(x) if source.bits == 64 else x, dtypes.float64)
        return narrow(_to_odd(x) if x.v.dtype is dtypes.float64 else cast(x, dtypes.float32), dtype)
    signed = source.kind in ("int", "float")
    if dtype.is_float:
        if source.is_float:
            return x.convert("fpext" if dtype.bits > source.bits else "fptrunc", dtype)
        return x.convert("sitofp" if signed else "uitofp", dtype)
    if source.is_float:
        return _whole(x, dtype)
    if source.kind != "bool" and dtype.bits == source.bits:
        return Number(x.w, x.v._replace(dtype=dtype))
    wider = source.kind == "bool" or dtype.bits > source.bits
    return x.convert(("sext" if signed else "zext") if wider else "trunc", dtype)


@MACHINE_CODE.of("bitcast")
def bitcast(x: Number, dtype: DType) -> Number:
    return x.convert("bitcast", dtype)


# ---- arithmetic ----------------------------------------------------------------------------------------------------------

MACHINE_CODE.of("add")(lambda x, y: x + y)
MACHINE_CODE.of("subtract")(lambda x, y: x - y)
MACHINE_CODE.of("multiply")(lambda x, y: x * y)
MACHINE_CODE.of("dot2")(lambda x, y: Number(x.w, x.w.dot("dot2", x.v, y.v, constant(0, DOTS["dot2"].sum, x.v.lanes))))
MACHINE_CODE.of("dot4")(lambda x, y: Number(x.w, x.w.dot("dot4", x.v, y.v, constant(0, DOTS["dot4"].sum, x.v.lanes))))
MACHINE_CODE.of("fma")(lambda x, y, z: fma(x, y, z))
MACHINE_CODE.of("fms")(lambda x, y, z: fma(x, y, -z))
MACHINE_CODE.of("fnma")(lambda x, y, z: fma(-x, y, z))


def _by_whole(x: Number, y: Number) -> Number:
    """The floor of x / y of integers; y is neither 0 nor -1."""
    dtype = x.v.dtype
    if dtype.bits < 64:  # an exact quotient is never nearer to a whole number than a float of twice the width can tell
        through = dtypes.float32 if dtype.bits < 32 else dtypes.float64
        quotient = (cast(x, through) / cast(y, through)).call("floor")
        wide = dtypes.REGISTRY[f"{dtype.kind}32"]
        return cast(quotient.convert("fptosi" if dtype.kind == "int" else "fptoui", wide), dtype)
    if dtype.kind == "uint":
        return x / y
    quotient = x / y
    rest = x - quotient * y
    return quotient - cast(rest.differs(0) & ((rest ^ y) < 0), dtype)


@MACHINE_CODE.of("divide")
def divide(x: Number, y: Number) -> Number:
    if x.v.dtype.is_float:
        return x / y
    zero, minus = y.equal(0), y.equal(-1 if y.v.dtype.kind == "int" else 0)
    quotient = _by_whole(x, (zero | minus).select(1, y))
    return zero.select(0, minus.select(-x, quotient))


@MACHINE_CODE.of("remainder")
def remainder(x: Number, y: Number) -> Number:
    if x.v.dtype.is_integer:
        return y.equal(0).select(0, x - divide(x, y) * y)
    if not x.wide:
        return _remainder(cast(x, dtypes.float64), cast(y, dtypes.float64)).convert("fptrunc", dtypes.float32)
    return _remainder(x, y)


def _remainder(x: Number, y: Number) -> Number:
    """x - floor(x / y) * y of float64, exact before its one rounding: 48 bits of the quotient a turn."""
    b, size = y.magnitude(), x.magnitude()
    fits = (size < INFINITY) & (b > 0.0)
    a, b = fits.select(size, 0.0), fits.select(b, 1.0)
    w = x.w

    def exponent(v: Number) -> Number:
        small = v < 2.0**-1000
        return (small.select(v * 2.0**64, v).bits() >> 52) - small.select(64, 0, like=v.bits())

    def test(rest: IRValue) -> IRValue:
        return w.any((Number(w, rest) >= b).v)

    def turn(rest: IRValue) -> list[IRValue]:
        r = Number(w, rest)
        gap = exponent(r) - exponent(b) - 48
        gap = (gap > 0).select(gap, 0)
        first = gap >> 1
        part = b * _power_of_two(first) * _power_of_two(gap - first)
        quotient = (r / part * (1 - 2.0**-52)).call("floor")  # never too large; what is missing waits for the next turn
        quotient = (quotient > 1.0).select(quotient, 1.0)
        high, low = two_product(quotient, part)
        return [(r >= b).select((r - high) - low, r).v]

    (rest,) = w.loop_while([a.v], test, turn)
    left = Number(w, rest).with_sign(x)
    turned = left.differs(0.0) & ((left.bits() ^ y.bits()) < 0)
    result = turned.select(left + y, left.equal(0.0).select(left.with_sign(y), left))
    return fits.select(y.is_nan().select(y, result), NAN)


def _power_of_two(n: Number) -> Number:
    """2 to the integer n, which lies in the range of normal exponents."""
    _, fraction, bias = BITS[n.v.dtype.bits]
    return ((n + bias) << fraction).floating()


@MACHINE_CODE.of("maximum")
def maximum(x: Number, y: Number) -> Number:
    return _extreme(x, y, ">", "|")


@MACHINE_CODE.of("minimum")
def minimum(x: Number, y: Number) -> Number:
    return _extreme(x, y, "<", "&")


def _extreme(x: Number, y: Number, test: str, logic: str) -> Number:
    if x.v.dtype.kind == "bool":
        return x | y if logic == "|" else x & y
    if x.v.dtype.is_float:  # a NaN in y fails the test, one in x is asked for
        if y.plain:
            x, y = y, x
        taken = ((x > y) if test == ">" else (x < y)).select(x, y)
        return taken if x.plain else x.is_nan().select(x, taken)
    sign = "s" if x.v.dtype.kind == "int" else "u"
    return x.call(f"{sign}{'max' if test == '>' else 'min'}", y)


_COMPARE: dict[str, Callable[[Number, Number], Number]] = {"eq": Number.equal, "lt": Number.__lt__, "le": Number.__le__}


@MACHINE_CODE.of("compare")
def compare(x: Number, y: Number, kind: str) -> Number:
    return _COMPARE[kind](x, y)


@MACHINE_CODE.of("bitwise")
def bitwise(x: Number, y: Number, kind: str) -> Number:
    if kind in ("and", "or", "xor"):
        return x & y if kind == "and" else x | y if kind == "or" else x ^ y
    bits = x.v.dtype.bits
    inside = y.unsigned() < bits
    count = inside.select(y, 0)
    if kind == "shl":
        return inside.select(x << count, 0)
    return inside.select(x >> count, x >> (bits - 1) if x.v.dtype.kind == "int" else 0)


MACHINE_CODE.of("where")(lambda c, x, y: c.select(x, y))


@MACHINE_CODE.of("abs")
def absolute(x: Number) -> Number:
    if x.v.dtype.is_float:
        return x.magnitude()
    return (x < 0).select(-x, x) if x.v.dtype.kind == "int" else x


MACHINE_CODE.of("floor")(lambda x: x.call("floor") if x.v.dtype.is_float else x)
MACHINE_CODE.of("round")(lambda x: x.call("roundeven") if x.v.dtype.is_float else x)
MACHINE_CODE.of("sqrt")(lambda x: x.call("sqrt"))


# ---- exponentials --------------------------------------------------------------------------------------------------------


def _rounded(x: Number, factor: float) -> tuple[Number, Number]:
    """x * factor, below 2**22 (2**51), plus 1.5 * 2**23 (2**52), which rounds it to the nearest whole number; and that magic number."""
    magic = x.like(1.5 * 2.0 ** BITS[x.v.dtype.bits][1])
    return fma(x, factor, magic), magic


def _nearest(x: Number, factor: float) -> tuple[Number, Number]:
    """The whole number nearest to x * factor, below 2**22 (2**51), as float and integer."""
    moved, magic = _rounded(x, factor)
    return moved - magic, moved.bits() - magic.bits()


def _wide_vector(x: Number) -> bool:
    """Whether there are instructions of AVX-512 for it."""
    return x.w.target.scale and x.v.dtype.bits * x.v.lanes == 512


def _scale(x: Number, n: Number, whole: Number) -> Number:
    """x * 2**n, n as a float and as an integer; rounded once where x is near 1. NaN stays, whatever n is then."""
    lanes = x.v.lanes
    if _wide_vector(x):
        name = f"x86.avx512.mask.scalef.{'pd' if x.wide else 'ps'}.512"
        return Number(x.w, x.w.intrinsic(name, x.v.dtype, lanes, x.v, n.v, x.v, f"i{lanes} -1", "i32 4", types=()))
    half = whole >> 1
    return x * _power_of_two(half) * _power_of_two(whole - half)


def _clamp(x: Number, low: float, high: float) -> Number:
    """x within the limits; NaN stays."""
    x = (x > high).select(high, x)
    return (x < low).select(low, x)


def _reduce(x: Number) -> tuple[Number, Number, Number]:
    """x = n ln 2 + r with |r| at most half of ln 2: n, n as an integer, r."""
    n, whole = _nearest(x, LOG2_E)
    high, low = LN2_64 if x.wide else LN2_32
    return n, whole, fma(-n, low, fma(-n, high, x))


def _exp_of_rest(r: Number) -> Number:
    """(e**r - 1 - r) / r**2, for |r| at most half of ln 2."""
    return polynomial(r, POLYNOMIALS["exp64" if r.wide else "exp32"])


def _one_and_rest(r: Number) -> Number:
    """e**r."""
    p = _exp_of_rest(r)
    return (r + r * r * p) + 1.0 if r.wide else fma(fma(p, r, 1.0), r, 1.0)


def _exp(x: Number, correction: Number | None = None) -> Number:
    """e**(x + correction); x within the limits where neither 0 nor infinity is sure."""
    n, whole, r = _reduce(x)
    if correction is None:
        return _scale(_one_and_rest(r), n, whole)
    high, low = LN2_64
    r, lost = quick_two_sum(fma(-n, high, x), -(n * low))
    bent, lost = r * r * _exp_of_rest(r), lost + correction
    return _scale((r + (bent + fma(lost, r + bent, lost))) + 1.0, n, whole)


@MACHINE_CODE.of("exp")
def exp(x: Number) -> Number:
    return _exp(_clamp(x, *((-746.0, 710.0) if x.wide else (-104.0, 89.0))))


@MACHINE_CODE.of("exp2")
def exp2(x: Number) -> Number:
    """2**n e**(r ln 2) for the whole number n nearest to x; exact where x is whole."""
    x = _clamp(x, *((-1080.0, 1025.0) if x.wide else (-155.0, 129.0)))
    n, whole = _nearest(x, 1.0)
    return _scale(_one_and_rest((x - n) * LN2), n, whole)


@MACHINE_CODE.of("expm1")
def expm1(x: Number) -> Number:
    n, whole, r = _reduce(_clamp(x, *((-40.0, 710.0) if x.wide else (-20.0, 89.0))))
    most = 1000 if x.wide else 100
    less = 1.0 - _power_of_two(-(whole > most).select(most, whole))
    return _scale(fma(r * r, _exp_of_rest(r), r) + less, n, whole).with_sign(x)


def _exp_inside(x: Number) -> Number:
    """e**x where that is a normal number."""
    n, whole, r = _reduce(x)
    return _scale(_one_and_rest(r), n, whole) if _wide_vector(x) else _one_and_rest(r) * _power_of_two(whole)


@MACHINE_CODE.of("tanh")
def tanh(x: Number) -> Number:
    a, top = x.magnitude(), 20.0 if x.wide else 10.0
    if not x.wide and x.w.target.fma:
        return _tanh_32((a > top).select(top, a)).with_sign(x)
    z = x * x
    small = fma(x * z, polynomial(z, POLYNOMIALS["tanh64" if x.wide else "tanh32"]), x)
    a = (a > top).select(top, a)
    return (a < 0.625).select(small, 1.0 - 2.0 / (_exp_inside(a + a) + 1.0)).with_sign(x)


def _tanh_32(a: Number) -> Number:
    """(1 - e**-2a) / (1 + e**-2a), for a from 0 to 10; both times 2**k, where e**-2a = 2**-k (1 + q).

    For small a the sum is less than 2, so that its rounding loses half of what that of e**2a + 1 would.
    """
    twice = a + a
    moved, magic = _rounded(twice, -LOG2_E)
    r = fma(magic - moved, sum(LN2_32), -twice)
    power = (a.like(1.0).bits() - (moved.bits() << 23)).floating()  # 2**k: of the magic number's bits the lowest nine are 0
    q = fma(r * r, _exp_of_rest(r), r)
    return ((power - 1.0) - q) / ((power + 1.0) + q)


# ---- logarithms ----------------------------------------------------------------------------------------------------------


def _parts(x: Number) -> tuple[Number, Number]:
    """x = 2**k m with m from root half to root two: k as a float, m. For x above 0 and finite."""
    integer, fraction, bias = BITS[x.v.dtype.bits]
    tiny = x < 2.0 ** (1 - bias)
    bits = tiny.select(x * 2.0 ** (fraction + 1), x).bits()
    k = (bits - x.like(0.7071067811865476).bits()) >> fraction
    m = (bits - (k << fraction)).floating()
    return _small_float(k - tiny.select(fraction + 1, 0, like=k), x), m


def _small_float(k: Number, like: Number) -> Number:
    """A small integer as a float; AVX2 has no instruction for 64 bits."""
    if not like.wide:
        return k.convert("sitofp", dtypes.float32)
    magic = like.like(1.5 * 2.0**52)
    return (k + magic.bits()).floating() - magic


def _log(k: Number, f: Number, correction: Number | None = None) -> Number:
    """k ln 2 + log(1 + f) + correction, the correction small."""
    square = f * f * 0.5
    high, low = LN2_64 if f.wide else LN2_32
    tail = k * low if correction is None else fma(k, low, correction)
    if f.wide:
        s = f / (f + 2.0)
        z = s * s
        rest = fma(s, fma(z, polynomial(z, POLYNOMIALS["log64"]), square), tail)
    else:
        rest = fma(f * f * f, polynomial(f, POLYNOMIALS["log32"]), tail)
    return k * high + (f - (square - rest))


def _log_edges(result: Number, x: Number) -> Number:
    """Returns a logarithm with its special values: -infinity at 0, infinity at infinity, NaN below 0 and of NaN."""
    result = (x < INFINITY).select(result, x)  # infinity and NaN are their own
    return (x > 0.0).select(result, x.equal(0.0).select(-INFINITY, x.is_nan().select(x, NAN)))


@MACHINE_CODE.of("log")
def log(x: Number) -> Number:
    k, m = _parts(x)
    return _log_edges(_log(k, m - 1.0), x)


@MACHINE_CODE.of("log2")
def log2(x: Number) -> Number:
    """k + log(1 + f) / ln 2; exact for powers of two."""
    k, m = _parts(x)
    return _log_edges(k + _log(k * 0.0, m - 1.0) * LOG2_E, x)


@MACHINE_CODE.of("log10")
def log10(x: Number) -> Number:
    """The natural logarithm over ln 10, in two parts, so that powers of ten are exact; of float32 without fma in float64."""
    if not x.wide:
        if x.w.target.fma:
            return _log_edges(_log10_32(*_parts(x)), x)
        return _log10_near(x.convert("fpext", dtypes.float64)).convert("fptrunc", dtypes.float32)
    high, low = _log_64(x)
    p, p_low = two_product(high, x.like(LOG10_E[0]))
    return _log_edges(p + fma(low, LOG10_E[0], fma(high, LOG10_E[1], p_low)), x)


def _log10_32(k: Number, m: Number) -> Number:
    """k log10(2) + log10(m), for m from root half to root two: log(m) and all products have a low part; k LOG10_2_32[0] is exact."""
    f = m - 1.0
    square, lost = two_product(f, f * 0.5)
    high = f - square
    low = (f - high) - square + fma(f * f * f, polynomial(f, POLYNOMIALS["log32"]), -lost)
    p, p_low = two_product(high, m.like(LOG10_E_32[0]))
    total, rest = quick_two_sum(k * LOG10_2_32[0], p)
    return total + (rest + (p_low + fma(high, LOG10_E_32[1], fma(low, LOG10_E_32[0], k * LOG10_2_32[1]))))


def _log10_near(x: Number) -> Number:
    """The logarithm of base 10, within 2 ulp of float64."""
    k, m = _parts(x)
    return _log_edges(_log(k, m - 1.0) * LOG10_E[0], x)


@MACHINE_CODE.of("log1p")
def log1p(x: Number) -> Number:
    u, lost = two_sum(x.like(1.0), x)
    k, m = _parts(u)
    near = k.equal(0.0)  # then x itself is the fraction
    result = _log(k, near.select(x, m - 1.0), near.select(0.0, lost / u))
    return x.equal(0.0).select(x, _log_edges(result, u))


# ---- circular functions --------------------------------------------------------------------------------------------------


def _quarter_turns(x: Number) -> tuple[Number, Number, Number]:
    """x = q pi / 2 + high + low, for every finite float64: q as an integer of which two bits are meant, |high| at most pi / 4."""
    size = x.magnitude()
    k, q = _nearest(x, TWO_OVER_PI_1)
    first = x - k * HALF_PI[0]  # exact, as are the products: 33 bits and 20
    second, lost = two_sum(first, -(k * HALF_PI[1]))
    third, more = two_sum(second, -(k * HALF_PI[2]))
    high, low = quick_two_sum(third, (lost + more) - k * HALF_PI[3])
    return _or_large(x, size < 2.0**20, q, high, low)


def _quarter_turns_32(x: Number) -> tuple[Number, Number]:
    """The same for float32, by way of float64: q and one float32."""
    wide = x.convert("fpext", dtypes.float64)
    k, q = _nearest(wide, TWO_OVER_PI_1)
    high = (wide - k * HALF_PI[0]) - k * (HALF_PI[1] + HALF_PI[2])
    q, high, _ = _or_large(wide, wide.magnitude() < 2.0**20, q, high, high)
    return q, high.convert("fptrunc", dtypes.float32)


def _or_large(x: Number, small: Number, q: Number, high: Number, low: Number) -> tuple[Number, Number, Number]:
    """Returns the reduction of Payne and Hanek (1983), lane by lane, where `small` does not hold; NaN for infinities."""
    w, lanes = x.w, x.v.lanes

    def large() -> list[IRValue]:
        source, parts = w.slot(dtypes.float64, lanes), [w.slot(d, lanes) for d in (dtypes.int64, dtypes.float64, dtypes.float64)]
        w.store(small.select(2.0**30, x).v, source)

        def lane(i: IRValue) -> list[IRValue]:
            one = Number(w, w.load(w.at(source, i, dtypes.float64), dtypes.float64))
            for slot, part in zip(parts, _payne_hanek(one), strict=True):
                w.store(part.v, w.at(slot, i, part.v.dtype))
            return []

        w.loop(0, lanes, 1, [], lane)
        made = [Number(w, w.load(slot, old.v.dtype, lanes)) for slot, old in zip(parts, (q, high, low), strict=True)]
        made[1] = made[1] + (x - x)  # NaN for infinity
        return [small.select(old, new).v for old, new in zip((q, high, low), made, strict=True)]

    some = Number(w, w.any((~small).v))
    return tuple(Number(w, v) for v in w.when(some.v, [q.v, high.v, low.v], large))  # type: ignore[return-value]  # three parts in, three out


def _payne_hanek(x: Number) -> tuple[Number, Number, Number]:
    """One large float64: its product with the 192 bits of 2 / pi that matter modulo 4 and give 60 bits behind any cancellation."""
    w, bits = x.w, x.bits().unsigned()
    exponent, mantissa = (bits >> 52) & 0x7FF, (bits & (1 << 52) - 1) | 1 << 52
    place = exponent - (1075 - 62)  # of the first bit that counts; one word of zeros lies ahead
    table, word = w.table(TWO_OVER_PI, dtypes.uint64), place >> 6
    words = [Number(w, w.load(w.at(table, (word + k).v, dtypes.uint64), dtypes.uint64)) for k in range(4)]
    first, second, third = (a.call("fshl", b, place & 63) for a, b in zip(words, words[1:], strict=False))

    def wide(v: Number) -> str:
        return w.pure(f"zext {v.v} to i128")

    def i128(name: str, a: str, b: str | int) -> str:
        return w.pure(f"{name} i128 {a}, {b}")

    m = wide(mantissa)
    total = i128("shl", i128("mul", m, wide(first)), 64)
    total = i128("add", total, i128("mul", m, wide(second)))
    total = i128("add", total, i128("lshr", i128("mul", m, wide(third)), 64))  # two whole bits, 126 behind the point
    turns = i128("ashr", i128("add", total, 1 << 125), 126)
    rest = i128("sub", total, i128("shl", turns, 126))
    below = w.pure(f"icmp slt i128 {rest}, 0")
    size = w.pure(f"select i1 {below}, i128 {i128('sub', '0', rest)}, i128 {rest}")
    w.declared.setdefault("@llvm.ctlz.i128", "declare i128 @llvm.ctlz.i128(i128, i1)")
    zeros = w.pure(f"call i128 @llvm.ctlz.i128(i128 {size}, i1 false)")
    size = i128("shl", size, zeros)

    def piece(drop: int) -> Number:
        """53 bits, the first `drop` left out, as a float."""
        shifted = i128("lshr", i128("shl", size, drop), 75)
        return Number(w, IRValue(w.pure(f"trunc i128 {shifted} to i64"), dtypes.int64)).convert("sitofp", dtypes.float64)

    count = Number(w, IRValue(w.pure(f"trunc i128 {zeros} to i64"), dtypes.int64))
    unit = _power_of_two(-51 - count)
    a, b = piece(0) * unit, piece(53) * (unit * 2.0**-53)
    high, low = two_product(a, x.like(HALF_PI_2[0]))
    high, low = quick_two_sum(high, low + (a * HALF_PI_2[1] + b * HALF_PI_2[0]))
    negative, flip = x < 0.0, (x < 0.0) ^ Number(w, IRValue(below, dtypes.bool_))
    q = Number(w, IRValue(w.pure(f"trunc i128 {turns} to i64"), dtypes.int64))
    return negative.select(-q, q), flip.select(-high, high), flip.select(-low, low)


def _sine_and_cosine(x: Number) -> tuple[Number, Number, Number]:
    """q, and sine and cosine of r, where x is q quarter turns and r."""
    if x.wide:
        q, r, low = _quarter_turns(x)
    else:
        q, r = _quarter_turns_32(x)
    z = r * r
    half = z * 0.5
    sine = polynomial(z, POLYNOMIALS["sin64" if x.wide else "sin32"])
    cosine = polynomial(z, POLYNOMIALS["cos64" if x.wide else "cos32"])
    one = 1.0 - half
    lost = (1.0 - one) - half
    if x.wide:
        sine = r + fma(r * z, sine, low * one)
        cosine = one + fma(z * z, cosine, lost - r * low)
    else:
        sine = fma(r * z, sine, r)
        cosine = one + fma(z * z, cosine, lost)
    return q, sine, cosine


def _sine_or_cosine(x: Number, shift: int) -> Number:
    """The sine of x plus `shift` quarter turns."""
    q, sine, cosine = _sine_and_cosine(x)
    q = q + shift if shift else q
    result = (q & 1).equal(0).select(sine, cosine)
    return (q & 2).equal(0).select(result, -result)


@MACHINE_CODE.of("sin")
def sin(x: Number) -> Number:
    tiny = x.magnitude() < 2.0**-30  # there it is x, with the sign of 0
    return tiny.select(x, _sine_or_cosine(x, 0))


@MACHINE_CODE.of("cos")
def cos(x: Number) -> Number:
    return _sine_or_cosine(x, 1)


@MACHINE_CODE.of("tan")
def tan(x: Number) -> Number:
    q, sine, cosine = _sine_and_cosine(x)
    even = (q & 1).equal(0)
    tiny = x.magnitude() < 2.0**-30
    return tiny.select(x, even.select(sine, -cosine) / even.select(cosine, sine))


@MACHINE_CODE.of("atan")
def atan(x: Number) -> Number:
    """By the difference of two angles to at most pi / 8, with one division."""
    a = x.magnitude()
    middle, far = a > 0.41421356237309503, a > 2.414213562373095
    above = far.select(-1.0, middle.select(a - 1.0, a))
    below = far.select(a, middle.select(a + 1.0, 1.0))
    t = above / below
    z = t * t
    rest = t * z * polynomial(z, POLYNOMIALS["atan64" if x.wide else "atan32"])
    high = HALF_PI_2 if x.wide else (1.5707963705062866, -4.371139000186241e-08)
    offset, low = (far.select(h, middle.select(h / 2, 0.0, like=x)) for h in high)
    return (offset + (t + (rest + low))).with_sign(x)


# ---- the error function --------------------------------------------------------------------------------------------------


@MACHINE_CODE.of("erf")
def erf(x: Number) -> Number:
    """A polynomial up to 1; from there another one, for float64 1 - e**q with q a polynomial."""
    a, z = x.magnitude(), x * x
    small = fma(x, polynomial(z, POLYNOMIALS["erf64" if x.wide else "erf32"]), x)
    if x.wide:
        t, far = (a > 6.0).select(6.0, a), a > 2.5
        table = zip(POLYNOMIALS["erfc64"], POLYNOMIALS["erfc64_far"], strict=True)
        q = polynomial(t - far.select(4.25, 1.75, like=x), [far.select(f, n, like=x) for n, f in table])
        large = 1.0 - _exp_inside(-q)
    else:
        large = polynomial((a > 4.0).select(4.0, a) - 2.5, POLYNOMIALS["erf32_large"])  # 1 at 4
    return (a > 1.0).select(large, small).with_sign(x)


# ---- power ---------------------------------------------------------------------------------------------------------------


@MACHINE_CODE.of("power")
def power(x: Number, y: Number) -> Number:
    if x.v.dtype.is_integer:
        return _power_of_integers(x, y)
    if x.wide:
        return _power_edges(x, y, _power_64(x.magnitude(), y))
    a, b = (v.convert("fpext", dtypes.float64) for v in (x, y))
    k, m = _parts(a.magnitude())
    product = _clamp(b * _log(k, m - 1.0), -200.0, 200.0)
    return _power_edges(a, b, _exp(product)).convert("fptrunc", dtypes.float32)


def _log_64(a: Number) -> tuple[Number, Number]:
    """log a of float64, above 0 and finite, as a sum of two."""
    k, m = _parts(a)
    f, below = m - 1.0, m + 1.0
    below_low = m - (below - 1.0)
    inverse = 1.0 / below
    s = f * inverse
    back, back_low = two_product(s, below)
    s_low = (((f - back) - back_low) - s * below_low) * inverse
    z, z_low = two_product(s, s)
    z_low = fma(s + s, s_low, z_low)
    # log m = s (2 + z (2/3 + z (2/5 + z P(z)))): the outer two steps in two parts
    inner = fma(z, polynomial(z, POLYNOMIALS["power"]), 0.4)
    v, v_low = two_product(z, inner)
    v, lost = quick_two_sum(v.like(2 / 3), v)
    v_low = (v_low + lost) + fma(z_low, inner, TWO_THIRDS_LOW)
    u, u_low = two_product(z, v)
    u_low = u_low + fma(z, v_low, z_low * v)
    g, lost = quick_two_sum(u.like(2.0), u)
    g_low = lost + u_low
    high, low = two_product(s, g)
    low = low + fma(s, g_low, s_low * g)
    high, lost = two_sum(k * LN2_64[0], high)
    low = lost + fma(k, LN2_64[1], low)
    return quick_two_sum(high, low)


def _power_64(a: Number, y: Number) -> Number:
    """e**(y log a) with the logarithm, its product and the rest of the exponent as sums of two float64."""
    high, low = _log_64(a)
    p, p_low = two_product(y, high)
    p_low = fma(y, low, p_low)
    inside = p.magnitude() < 750.0
    return _exp(_clamp(p, -746.0, 710.0), inside.select(p_low, 0.0))


def _power_edges(x: Number, y: Number, inside: Number) -> Number:
    """The cases of IEEE 754-2019, 9.2.1, around x**y for positive finite x and finite y."""
    a, b = x.magnitude(), y.magnitude()
    result = ((a < INFINITY) & (a > 0.0) & (b < INFINITY)).select(inside, (a > 1.0).equal(y > 0.0).select(INFINITY, 0.0, like=x))
    result = a.equal(1.0).select(1.0, result)
    whole = y.call("floor").equal(y) | b.equal(INFINITY)
    halved = y * 0.5
    odd = whole & halved.call("floor").differs(halved) & (b < 2.0**53)
    negative = x.bits() < 0
    result = (negative & odd).select(-result, result)
    result = ((x < 0.0) & (a < INFINITY) & ~whole).select(NAN, result)
    result = (x.is_nan() | y.is_nan()).select(x + y, result)
    return (y.equal(0.0) | x.equal(1.0)).select(1.0, result)


def _power_of_integers(x: Number, y: Number) -> Number:
    """By squaring, wrapping; of a negative exponent the whole part of the reciprocal, 0 for x = 0."""
    w, signed = x.w, x.v.dtype.kind == "int"
    negative = y < 0
    exponent = (negative.select(0, y) if signed else y).unsigned()

    def turn(result: IRValue, base: IRValue, rest: IRValue) -> list[IRValue]:
        r, b, e = (Number(w, v) for v in (result, base, rest))
        return [(e & 1).differs(0).select(r * b, r).v, (b * b).v, (e >> 1).v]

    result, *_ = w.loop_while([x.like(1).v, x.v, exponent.v], lambda r, b, e: w.any(Number(w, e).differs(0).v), turn)
    if not signed:
        return Number(w, result)
    sign = (y & 1).equal(0).select(1, -1, like=x)
    reciprocal = x.equal(1).select(1, x.equal(-1).select(sign, 0))
    return negative.select(reciprocal, Number(w, result))
