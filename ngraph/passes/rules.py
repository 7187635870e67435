"""The rules of `simplify`, as data. Exact ones first; later ones state where they differ, and need `ng.config(exact=False)`.

Exact means: equal also at NaN, infinities and signed zeros; rounding may differ where the spec lets sums be reordered or an op has a
tolerance of its own. Broadcasts sink towards the results: steps compute on the fewest axes, and filled constants become scalars.
"""

from __future__ import annotations

import math
from typing import Any

from ngraph.op_graph import expr
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.dtypes import DType, float32
from ngraph.op_graph.expr import ExprLike, Idx, Len
from ngraph.op_graph.opdef import ELEMENTWISE
from ngraph.passes.reach import inside, never_negative
from ngraph.program.program import AxisId, Step
from ngraph.rewrite.driver import Builder, Built
from ngraph.rewrite.pattern import Rule, Rules, any_of, functions, many, same_number, var, wrapped

x, y, z, c, p = (var(n) for n in "xyzcp")
a, b = var("a"), var("b")  # attributes
floor, rounded, exp, expm1, log, log1p, sqrt, cos = functions("floor round exp expm1 log log1p sqrt cos")
absolute, cast, bitcast, compare, bitwise, where = functions("abs cast bitcast compare bitwise where")
maximum, minimum, constant, iota, broadcast, rename = functions("maximum minimum constant iota broadcast rename")
reindex, concat, gather, reduce, contract, cond = functions("reindex concat gather reduce contract cond")
whole = any_of(("floor", "round"))


# ---- conditions and parts of right sides --------------------------------------------------------------------------------


def is_integer(x: Built) -> bool:
    return x.dtype.is_integer


def is_float(x: Built) -> bool:
    return x.dtype.is_float


def not_float(x: Built) -> bool:
    return x.dtype.python is not float


def negated(c: Built) -> Any:
    """Returns the number of `c`, negated in its dtype."""
    n = c.number
    return -n if c.dtype.is_float else wrapped(-int(n), c.dtype)


_DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_EXPONENTS = {"float16": 5, "bfloat16": 8, "float32": 8, "float64": 11}


def holds_all(wide: DType, narrow: DType) -> bool:
    """Whether `wide` represents every value of `narrow`."""
    if wide is narrow or narrow.kind == "bool":
        return wide.name != "float8_e8m0fnu" or wide is narrow
    if narrow.form is not None and narrow.form.exponent and wide.bits >= 32:
        return wide.is_float
    if wide.kind == "narrow" or narrow.kind == "narrow":
        return False
    if wide.kind == "bool" or (narrow.is_float and not wide.is_float):
        return False
    if wide.is_float:
        if narrow.is_float:
            return _DIGITS[wide.name] >= _DIGITS[narrow.name] and _EXPONENTS[wide.name] >= _EXPONENTS[narrow.name]
        return _DIGITS[wide.name] >= narrow.bits - (narrow.kind == "int")
    if narrow.kind == "int" and wide.kind == "uint":
        return False
    return wide.bits > narrow.bits or (wide.kind == narrow.kind and wide.bits == narrow.bits)


def through(x: Built, a: DType, b: DType) -> bool:
    """Whether casting by way of `a` makes no difference: it represents every value, or all are integers and only low bits count."""
    return holds_all(a, x.dtype) or (x.dtype.is_integer and a.is_integer and b.is_integer and a.bits >= b.bits)


def power_of_two(x: Built, c: Built) -> bool:
    n = c.number
    return x.dtype.is_float and n is not None and 2**-13 <= abs(n) <= 2**13 and math.frexp(abs(n))[0] == 0.5


def is_edge(c: Built, edge: str) -> bool:
    """Whether `c` is filled with the least (`lowest`) or largest (`highest`) value of its dtype."""
    n = c.number
    return n is not None and same_number(n, getattr(c.dtype, edge), c.dtype)


def both_numbers(c: Built, z: Built) -> bool:
    return c.dtype.is_integer and c.number is not None and z.number is not None


def all_ones(x: Built, c: Built) -> bool:
    n = c.number
    return n is not None and wrapped(int(n), x.dtype) == (1 if x.dtype.kind == "bool" else wrapped(-1, x.dtype))


def filled_with(step: Step) -> Any:
    """Returns the number (or length expression) of a constant that is uniform, but not written in the shortest form; else None."""
    value = step.attrs["value"]
    if type(value) is not ArrayRef:
        return value if step.attrs["axes"] else None
    if not value.small or value.array.size == 0:
        return None
    flat = value.array.ravel()
    return flat[0].item() if flat.tobytes() == flat[:1].tobytes() * flat.size else None


def fill_scalar(step: Step, new: Builder) -> Built:
    value, dtype = filled_with(step), step.attrs["dtype"]
    if isinstance(value, expr.Expr):
        made = new.build("constant", (), {"value": value, "axes": (), "dtype": dtype})
        assert isinstance(made, Built)
        return made
    return new.constant(value, dtype)


def bare(x: Built) -> Built:
    """Returns `x` before its broadcasts."""
    while x.maker is not None and x.maker.op == "broadcast":
        x = x.of(x.maker.inputs[0])
    return x


def sink(step: Step, xs: tuple[Built, ...]) -> Any:
    """Returns the op applied before broadcasting; the driver broadcasts its result to the axes that other inputs do not have."""
    return xs[0].apply(step.op, tuple([bare(x) for x in xs]), step.attrs)


# reductions


def repeats(x: Built, step: Step) -> int | None:
    """Returns the number of copies of each element of `x` in a reduction of its broadcast; None where that is unknown."""
    total = 1
    for axis in step.attrs["axes"]:
        if axis not in x.axes:
            n = x.length(axis)
            if n is None:
                return None
            total *= n
    return total


def reduced_bare(x: Built, step: Step) -> Built:
    axes = tuple([axis for axis in step.attrs["axes"] if axis in x.axes])
    return reduce(x, kind=step.attrs["kind"], axes=axes) if axes else x


def sum_of_number(x: Built, step: Step) -> Any:
    n = x.number
    if n is None or x.axes or not math.isfinite(n) or n == 0:
        return None
    total = repeats(x, step)
    return None if not total or total >= 1 << 24 else n * total


def single(x: Built, b: tuple[AxisId, ...]) -> bool:
    return bool(b) and all(x.length(axis) == 1 for axis in b)


def at_zero(x: Built, b: tuple[AxisId, ...]) -> Built:
    """Returns `x` at index 0 of the axes `b`."""
    rest = tuple([axis for axis in x.axes if axis not in b])
    index = tuple([(axis, 0 if axis in b else Idx(axis)) for axis in x.axes])
    return reindex(x, axes=rest, index=index, predicate=(), pad_value=0)


def precise(x: Built) -> bool:
    """Whether a partial sum has the precision of the sum (16-bit floats are rounded between two reductions)."""
    return not (x.dtype.is_float and x.dtype.bits == 16)


def alone(x: Built, step: Step) -> bool:
    """Whether this step is the only use of its input: another use needs that value anyway, and it is smaller than its operands."""
    return x.of(step.inputs[0]).uses == 1


def keeps(x: Built, a: DType) -> bool:
    """Whether a contraction that accumulates in `a` rounds as products and sums of x's dtype do."""
    return a is x.dtype or (not precise(x) and a is float32)


def contract_bare(y: Built, step: Step) -> Any:
    """Returns a contraction of operands before broadcasting, except along summed axes that would then be in neither operand."""
    operands = [y.of(v) for v in step.inputs]
    u, v = [bare(o) for o in operands]
    needed = [axis for axis in step.attrs["over"] if axis not in u.axes and axis not in v.axes]
    if len(u.axes) + len(v.axes) + len(needed) >= sum(len(o.axes) for o in operands):
        return None
    return contract(broadcast(u, axes=(*u.axes, *needed)) if needed else u, v, **step.attrs)


# positions


def same_length(x: Built, a: AxisId, b: AxisId) -> bool:
    axes = x.builder.axes
    return a == b or axes[a] == axes[b] or axes[a] == Len(b) or axes[b] == Len(a)


def only_moves(x: Built, step: Step) -> bool:
    """Whether a reindex takes every element once, at the index of another axis of equal length."""
    targets = [e.of for _, e in step.attrs["index"] if type(e) is Idx]
    if step.attrs["predicate"] or len(targets) != len(x.axes) or len(set(targets)) != len(targets):
        return False
    return all(same_length(x, axis, e.of) for axis, e in step.attrs["index"])


def renamed(x: Built, pairs: Any) -> Built:
    to = tuple([(old, new) for old, new in pairs if old != new])
    return rename(x, to=to) if to else x


def rename_through(x: Built, a: Any, b: Any) -> Built:
    """Returns one renaming for two: `a` first, then `b`."""
    first, second = dict(a), dict(b)
    return renamed(x, [(axis, second.get(first.get(axis, axis), first.get(axis, axis))) for axis in x.axes])


def rename_bare(x: Built, b: Any) -> Built:
    return renamed(x, [(old, new) for old, new in b if old in x.axes])


def _at(e: ExprLike, index: dict[AxisId, ExprLike]) -> ExprLike:
    return expr.substitute(e, lambda leaf: index[leaf.of] if type(leaf) is Idx else leaf)


def compose(x: Built, inner: Step, step: Step) -> Any:
    """Returns two reindexes as one, where their pad values agree; else None."""
    outer_index = dict(step.attrs["index"])
    index = tuple([(axis, _at(e, outer_index)) for axis, e in inner.attrs["index"]])
    predicate = [_at(g, outer_index) for g in inner.attrs["predicate"]]
    middle = [
        g
        for axis, e in step.attrs["index"]
        if not inside(e, x.length(axis), x.length)
        for g in (e, _length(x, axis) - 1 - e)
        if not never_negative(g, x.length)
    ]
    outer = [*step.attrs["predicate"], *middle]
    fills = inner.attrs["pad_value"], step.attrs["pad_value"]
    safe = not inner.attrs["predicate"] and all(inside(e, x.length(axis), x.length) for axis, e in inner.attrs["index"])
    if safe:
        pad_value = fills[1]  # only the outer one can be out of bounds
    elif not outer:
        pad_value = fills[0]  # only the inner one can be out of bounds
    elif same_number(*fills, x.dtype):
        pad_value = fills[0]
    else:
        return None
    predicates = tuple(dict.fromkeys([*outer, *predicate]))
    return reindex(x, axes=step.attrs["axes"], index=index, predicate=predicates, pad_value=pad_value)


def _length(x: Built, axis: AxisId) -> ExprLike:
    n = x.length(axis)
    return Len(axis) if n is None else n


def reindex_bare(x: Built, step: Step) -> Any:
    """Returns a reindex of `x` before its broadcasts without the missing axes, if no index into those is out of bounds; else None."""
    if not all(axis in x.axes or inside(e, x.length(axis), x.length) for axis, e in step.attrs["index"]):
        return None
    index = tuple([(axis, e) for axis, e in step.attrs["index"] if axis in x.axes])
    return reindex(x, axes=step.attrs["axes"], index=index, predicate=step.attrs["predicate"], pad_value=step.attrs["pad_value"])


def read_at(x: Built, step: Step, at: ExprLike) -> Built:
    """Returns a gather with one index that is an expression as a reindex."""
    (axis,) = step.attrs["axes"]
    index = tuple([(own, at if own == axis else Idx(own)) for own in x.axes])
    return reindex(x, axes=step.results[0].axes, index=index, predicate=(), pad_value=0)


def gather_iota(x: Built, a: AxisId, c: Built, step: Step) -> Any:
    (axis,) = step.attrs["axes"]
    have, want = x.length(axis), x.length(a)
    fits = have is not None and want is not None and want <= have
    return read_at(x, step, Idx(a)) if c.dtype.bits >= 32 and (fits or step.attrs["mode"] == "fill") else None


def gather_number(x: Built, c: Built, step: Step) -> Any:
    (axis,) = step.attrs["axes"]
    n, k = x.length(axis), c.number
    if k is None:
        return None
    if step.attrs["mode"] != "fill":
        if not n:
            return None
        k = min(max(k, 0), n - 1) if step.attrs["mode"] == "clip" else k % n
    return read_at(x, step, k)


def concat_without_empty(xs: tuple[Built, ...], step: Step) -> Any:
    parts = [(x, part) for x, part in zip(xs, step.attrs["parts"], strict=True) if x.length(part) != 0]
    if not parts or len(parts) == len(xs):
        return None
    return parts[0][0].apply("concat", tuple([x for x, _ in parts]), {**step.attrs, "parts": tuple([part for _, part in parts])})


def take_branch(p: Built, args: tuple[Built, ...], step: Step, new: Builder) -> Any:
    return new.inline(step.attrs["then" if p.number else "else"], args)


# ---- exact --------------------------------------------------------------------------------------------------------------

arithmetic = Rules(
    ("x * 1", x * 1, lambda x: x),
    ("x / 1", x / 1, lambda x: x),
    ("x + -0", x + -0.0, lambda x: x),  # integers have one 0
    ("x - 0", x - 0, lambda x: x),
    ("-(-x)", x * -1 * -1, lambda x: x),
    ("-x * -y", (-x) * (-y), lambda x, y: x * y),
    Rule("-x * number", (-x) * c, lambda x, c: x * negated(c), when=lambda c: c.number is not None),
    Rule("-(x * number)", -(x * c), lambda x, c: x * negated(c), when=lambda c: c.number is not None),
    Rule("-x / -y", (-x) / (-y), lambda x, y: x / y, when=is_float),
    Rule("-x / number", (-x) / c, lambda x, c: x / negated(c), when=lambda x, c: x.dtype.is_float and c.number is not None),
    Rule("-(x / number)", -(x / c), lambda x, c: x / negated(c), when=lambda x, c: x.dtype.is_float and c.number is not None),
    ("x + -y", x + (-y), lambda x, y: x - y),
    ("x - -y", x - (-y), lambda x, y: x + y),
    Rule("x / power of two", x / c, lambda x, c: x * (1.0 / c.number), when=power_of_two),
    Rule("x * 0, integers", x * 0, lambda x: 0, when=is_integer),
    Rule("x - x, integers", x - x, lambda x: 0, when=is_integer),
    Rule("x % x, integers", x % x, lambda x: 0, when=is_integer),
    Rule("0 / x, integers", 0 / x, lambda x: 0, when=is_integer),
    Rule("x % 1, integers", x % 1, lambda x: 0, when=is_integer),
    Rule("x + number + number", (x + c) + z, lambda x, c, z: x + wrapped(c.number + z.number, x.dtype), when=both_numbers),
    Rule("x * number * number", (x * c) * z, lambda x, c, z: x * wrapped(c.number * z.number, x.dtype), when=both_numbers),
    ("x ** 0", x**0, lambda x: 1),
    ("x ** 1", x**1, lambda x: x),
    ("x ** 2", x**2, lambda x: x * x),
    ("x ** 3", x**3, lambda x: x * x * x),
    Rule("x ** -1", x**-1, lambda x: 1 / x, when=is_float),
    ("1 ** x", 1**x, lambda x: 1),
    ("max(x, x)", maximum(x, x), lambda x: x),
    ("min(x, x)", minimum(x, x), lambda x: x),
    ("max(max(x, y), y)", maximum(maximum(x, y), y), lambda x, y: maximum(x, y)),
    ("min(min(x, y), y)", minimum(minimum(x, y), y), lambda x, y: minimum(x, y)),
    Rule("max(x, lowest)", maximum(x, c), lambda x: x, when=lambda c: is_edge(c, "lowest")),
    Rule("min(x, highest)", minimum(x, c), lambda x: x, when=lambda c: is_edge(c, "highest")),
    Rule("max(x, highest)", maximum(x, c), lambda c: c.number, when=lambda c: not_float(c) and is_edge(c, "highest")),
    Rule("min(x, lowest)", minimum(x, c), lambda c: c.number, when=lambda c: not_float(c) and is_edge(c, "lowest")),
    ("abs abs", absolute(absolute(x)), lambda x: absolute(x)),
    Rule("abs -x", absolute(-x), lambda x: absolute(x), when=lambda x: x.dtype.kind != "uint"),
    Rule("abs of unsigned", absolute(x), lambda x: x, when=lambda x: x.dtype.kind == "uint"),
    Rule("abs of square", absolute(x * x), lambda x: x * x, when=is_float),
    ("cos -x", cos(-x), lambda x: cos(x)),
    Rule("round of integers", whole(x), lambda x: x, when=is_integer),
    ("round of round", whole(whole(x)), lambda x, step: x.of(step.inputs[0])),
    Rule("round of cast integers", whole(cast(x)), lambda x, step: x.of(step.inputs[0]), when=not_float),
)

choices = Rules(
    ("where equal", where(c, x, x), lambda x: x),
    Rule("where number", where(c, x, y), lambda c, x, y: x if c.number else y, when=lambda c: c.number is not None),
    ("where not", where(bitwise(c, True, kind="xor"), x, y), lambda c, x, y: where(c, y, x)),
    ("where where, first", where(c, where(c, x, y), z), lambda c, x, z: where(c, x, z)),
    ("where where, second", where(c, x, where(c, y, z)), lambda c, x, z: where(c, x, z)),
    ("where 1, 0", where(c, 1, 0), lambda c, step: cast(c, dtype=step.result.dtype)),
    ("where 0, 1", where(c, 0, 1), lambda c, step: cast(bitwise(c, True, kind="xor"), dtype=step.result.dtype)),
    ("x < x", compare(x, x, kind="lt"), lambda x: False),
    Rule("x = x", compare(x, x, kind="eq"), lambda x: True, when=not_float),
    Rule("x <= x", compare(x, x, kind="le"), lambda x: True, when=not_float),
    Rule("x < lowest", compare(x, c, kind="lt"), lambda c: False, when=lambda c: is_edge(c, "lowest")),
    Rule("highest < x", compare(c, x, kind="lt"), lambda c: False, when=lambda c: is_edge(c, "highest")),
    Rule("lowest <= x", compare(c, x, kind="le"), lambda c: True, when=lambda c: not_float(c) and is_edge(c, "lowest")),
    Rule("x <= highest", compare(x, c, kind="le"), lambda c: True, when=lambda c: not_float(c) and is_edge(c, "highest")),
    Rule("x = true", compare(x, True, kind="eq"), lambda x: x, when=lambda x: x.dtype.kind == "bool"),
    Rule("x = false", compare(x, False, kind="eq"), lambda x: bitwise(x, True, kind="xor"), when=lambda x: x.dtype.kind == "bool"),
    Rule("not x < y", bitwise(compare(x, y, kind="lt"), True, kind="xor"), lambda x, y: compare(y, x, kind="le"), when=not_float),
    Rule("not x <= y", bitwise(compare(x, y, kind="le"), True, kind="xor"), lambda x, y: compare(y, x, kind="lt"), when=not_float),
    ("x and x", bitwise(x, x, kind="and"), lambda x: x),
    ("x or x", bitwise(x, x, kind="or"), lambda x: x),
    ("x xor x", bitwise(x, x, kind="xor"), lambda x: 0),
    ("x and 0", bitwise(x, 0, kind="and"), lambda x: 0),
    ("x or 0", bitwise(x, 0, kind="or"), lambda x: x),
    ("x xor 0", bitwise(x, 0, kind="xor"), lambda x: x),
    Rule("x and ones", bitwise(x, c, kind="and"), lambda x: x, when=all_ones),
    Rule("x or ones", bitwise(x, c, kind="or"), lambda c: c, when=lambda x, c: all_ones(x, c)),
    ("x xor y xor y", bitwise(bitwise(x, y, kind="xor"), y, kind="xor"), lambda x: x),
    ("x << 0", bitwise(x, 0, kind="shl"), lambda x: x),
    ("x >> 0", bitwise(x, 0, kind="shr"), lambda x: x),
)

conversions = Rules(
    Rule("cast to its own", cast(x, dtype=a), lambda x: x, when=lambda x, a: x.dtype is a),
    Rule("cast of cast", cast(cast(x, dtype=a), dtype=b), lambda x, b: cast(x, dtype=b), when=through),
    Rule("bitcast to its own", bitcast(x, dtype=a), lambda x: x, when=lambda x, a: x.dtype is a),
    ("bitcast of bitcast", bitcast(bitcast(x), dtype=b), lambda x, b: bitcast(x, dtype=b)),
)

positions = Rules(
    Rule("filled constant", constant(), fill_scalar, when=lambda step: filled_with(step) is not None),
    Rule("broadcast to its own", broadcast(x, axes=a), lambda x: x, when=lambda x, a: set(x.axes) == set(a)),
    ("broadcast of broadcast", broadcast(broadcast(x), axes=a), lambda x, a: broadcast(x, axes=a)),
    ("broadcast after", any_of(ELEMENTWISE.names)(many("xs", "broadcast")), sink),
    Rule("rename to its own", rename(x, to=a), lambda x: x, when=lambda a: all(old == new for old, new in a)),
    ("rename of rename", rename(rename(x, to=a), to=b), rename_through),
    ("rename of broadcast", rename(broadcast(x), to=b), rename_bare),
    Rule(
        "reindex that moves",
        reindex(x),
        lambda x, step: renamed(x, [(axis, e.of) for axis, e in step.attrs["index"]]),
        when=only_moves,
    ),
    ("reindex of reindex", reindex(reindex(x)), lambda x, step: compose(x, x.of(step.inputs[0]).maker, step)),
    ("reindex of broadcast", reindex(broadcast(x)), reindex_bare),
    ("concat of one", concat(x, parts=a, axis=b), lambda x, a, b: renamed(x, [(a[0], b)])),
    ("concat of empty", concat(many("xs")), concat_without_empty),
    Rule("gather by iota", gather(x, iota(axis=a), axes=b), lambda x, a, step: gather_iota(x, a, x.of(step.inputs[1]), step)),
    ("gather by number", gather(x, c), gather_number),
    Rule("iota of one", iota(axis=a), lambda a: 0, when=lambda a, new: new.length(a) == 1),
    Rule("cond of number", cond(p, many("args")), take_branch, when=lambda p: p.number is not None),
)

sums = Rules(
    Rule("reduce over nothing", reduce(x, kind=c, axes=()), lambda x: x, when=lambda x, c: c != "add" or not is_float(x)),
    Rule(
        "reduce of reduce",
        reduce(reduce(x, kind=c, axes=a), kind=c, axes=b),
        lambda x, a, b, c: reduce(x, kind=c, axes=(*a, *b)),
        when=lambda x, c, step: (c in ("max", "min") or precise(x)) and alone(x, step),
    ),
    Rule("reduce over one", reduce(x, kind=c, axes=b), at_zero, when=lambda x, b, c: single(x, b) and (c != "add" or not is_float(x))),
    Rule("reduce of broadcast", reduce(broadcast(x), axes=b), reduced_bare, when=lambda x, b: all(axis in x.axes for axis in b)),
    Rule("max of repeated", reduce(broadcast(x), kind="max"), reduced_bare, when=lambda x, step: repeats(x, step)),
    Rule("min of repeated", reduce(broadcast(x), kind="min"), reduced_bare, when=lambda x, step: repeats(x, step)),
    Rule(
        "sum of repeated, integers",
        reduce(broadcast(x), kind="add"),
        lambda x, step: reduced_bare(x, step) * wrapped(repeats(x, step) or 0, x.dtype),
        when=lambda x, step: x.dtype.is_integer and repeats(x, step) is not None,
    ),
    Rule("sum of number", reduce(broadcast(x), kind="add"), sum_of_number, when=is_float),
    ("contract of broadcast", contract(broadcast(z), y), contract_bare),
    Rule(
        "contract over nothing",
        contract(x, y, over=(), accumulate=a),
        lambda x, y: x * y,
        when=lambda x, a: is_integer(x) and keeps(x, a),
    ),
    Rule(
        "contract with 1",
        contract(x, 1, over=b, accumulate=a),
        lambda x, b: reduce(x, kind="add", axes=b),
        when=lambda x, a, b: keeps(x, a) and all(axis in x.axes for axis in b),
    ),
    Rule(
        "sum of contract",
        reduce(contract(x, y, over=a, accumulate=c), kind="add", axes=b),
        lambda x, y, a, b, c: contract(x, y, over=(*a, *b), accumulate=c),
        when=lambda x, step: precise(x) and alone(x, step),
    ),
)

# ---- where values are finite, and more ----------------------------------------------------------------------------------

finite = Rules(
    ("x + 0", x + 0, lambda x: x, "differs at -0"),
    ("x - -0", x - -0.0, lambda x: x, "differs at -0"),
    ("x * 0", x * 0, lambda x: 0, "differs where x is infinite or NaN, and in the sign of 0"),
    ("x - x", x - x, lambda x: 0, "differs where x is infinite or NaN"),
    Rule("x / x", x / x, lambda x: 1, "differs where x is 0, infinite or NaN", when=is_float),
    ("0 / x", 0 / x, lambda x: 0, "differs where x is 0 or NaN, and in the sign of 0"),
    ("log exp x", log(exp(x)), lambda x: x, "differs where exp overflows"),
    ("exp log x", exp(log(x)), lambda x: x, "differs below 0"),
    ("log1p expm1 x", log1p(expm1(x)), lambda x: x, "differs where expm1 overflows"),
    ("expm1 log1p x", expm1(log1p(x)), lambda x: x, "differs below -1"),
    ("log(1 + x)", log(x + 1), lambda x: log1p(x), "differs at -0"),
    ("exp(x) - 1", exp(x) - 1, lambda x: expm1(x), "differs at -0"),
    ("exp(x) * exp(y)", exp(x) * exp(y), lambda x, y: exp(x + y), "differs where one overflows"),
    ("exp(x) / exp(y)", exp(x) / exp(y), lambda x, y: exp(x - y), "differs where one overflows"),
    ("sqrt(x) * sqrt(x)", sqrt(x) * sqrt(x), lambda x: x, "differs below 0"),
    ("sqrt(x * x)", sqrt(x * x), lambda x: absolute(x), "differs where x * x overflows"),
    ("x ** 0.5", x**0.5, lambda x: sqrt(x), "differs at -0 and -infinity"),
    Rule("x * y / y", (x * y) / y, lambda x: x, "differs where y is 0 or x * y overflows", when=is_float),
    Rule("x / y * y", (x / y) * y, lambda x: x, "differs where y is 0 or x / y overflows", when=is_float),
    Rule("x / y / z", (x / y) / z, lambda x, y, z: x / (y * z), "differs where y * z overflows", when=is_float),
    Rule("x / (y / z)", x / (y / z), lambda x, y, z: (x * z) / y, "differs where x * z overflows", when=is_float),
    Rule("x * (1 / y)", x * (1 / y), lambda x, y: x / y, "differs where 1 / y overflows", when=is_float),
    ("x * y + x * z", x * y + x * z, lambda x, y, z: x * (y + z), "differs where a product overflows"),
    Rule(
        "sum of x * number",
        reduce(x * c, kind="add", axes=b),
        lambda x, b, c: reduce(x, kind="add", axes=b) * c,
        "differs where the sum overflows",
        when=lambda x, b, c: c.number is not None and not c.axes and all(axis in x.axes for axis in b),
    ),
    Rule(
        "sum of repeated",
        reduce(broadcast(x), kind="add"),
        lambda x, step: reduced_bare(x, step) * float(repeats(x, step) or 0),
        "differs where the product overflows, and at -0",
        when=lambda x, step: x.dtype.is_float and repeats(x, step) is not None,
    ),
    ("sum over nothing", reduce(x, kind="add", axes=()), lambda x: x, "differs at -0"),
    Rule("product over nothing", contract(x, y, over=(), accumulate=a), lambda x, y: x * y, "differs at -0", when=keeps),
    Rule("sum over one", reduce(x, kind="add", axes=b), at_zero, "differs at -0", when=lambda x, b: single(x, b)),
)

exact_rules = arithmetic + choices + conversions + positions + sums
simplify_rules = exact_rules + finite
as_written = [*simplify_rules]  # before packages added or removed rules
