"""Tests of a rewrite rule by itself: fills its holes at random, runs both sides through the oracle, and compares.

    check_rule(Rule("x * 1", x * 1, lambda x: x))

`Steps` builds programs by hand, for these and other tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ngraph.config import config
from ngraph.errors import NgraphError
from ngraph.op_graph import dtypes
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import ExprLike, Idx, Len
from ngraph.op_graph.op import Origin, TensorType
from ngraph.op_graph.opdef import REGISTRY
from ngraph.program.interpret import interpret
from ngraph.program.program import AxisId, Program, Step, Value
from ngraph.program.verify import verify
from ngraph.rewrite.driver import rewrite
from ngraph.rewrite.pattern import COMMUTES, ConstantPattern, Pattern, PatternVar, Rule, Rules, StepPattern
from ngraph.rewrite.trace import tracing

TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 4e-6, "float64": 1e-12}


class Steps:
    """A program built step by step: `s = Steps(H=3)`, `y = s("exp", s.input("H"))`, `s.program(y)`. Axes of length None are symbols."""

    def __init__(self, **axes: ExprLike | None):
        self.axes: dict[AxisId, ExprLike] = {}
        for name, length in axes.items():
            self.axes[AxisId(name)] = Len(AxisId(name)) if length is None else length
        self.inputs: list[Value] = []
        self.steps: list[Step] = []

    def input(self, *axes: str, dtype: DType = dtypes.float32, hint: str = "") -> Value:
        v = Value(TensorType(tuple(map(AxisId, axes)), dtype), hint or f"x{len(self.inputs)}")
        self.inputs.append(v)
        return v

    def __call__(self, op: str, *inputs: Value, hint: str = "", **attrs: Any) -> Any:
        made = REGISTRY[op].type(tuple([v.type for v in inputs]), **attrs)
        types = (made,) if isinstance(made, TensorType) else tuple(made)
        results = tuple([Value(t, hint) for t in types])
        self.steps.append(Step(results, op, inputs, attrs, (Origin(op, "", "test.py", len(self.steps) + 1),)))
        return results[0] if len(results) == 1 else results

    def number(self, n: Any, dtype: DType = dtypes.float32, axes: Iterable[str] = ()) -> Value:
        held = dtype.python(n)
        v: Value = self("constant", value=held, axes=tuple(map(AxisId, axes)), dtype=dtype)
        return v

    def program(self, *outputs: Value, **fields: Any) -> Program:
        hints = {a: str(a) for a in self.axes}
        return Program(dict(self.axes), hints, tuple(self.inputs), steps=tuple(self.steps), outputs=outputs, **fields)


# ---- programs that match a pattern --------------------------------------------------------------------------------------

LENGTHS: dict[str, int | None] = {"H": 3, "W": 4, "K": 3, "O": 1, "P": 1, "Z": 0, "N": None}
SYMBOL = 2  # the length of N at the call
DTYPES = ("float32", "float64", "float16", "int32", "int8", "uint8", "int64", "bool")
KINDS = {"reduce": ("add", "multiply", "max", "min"), "compare": ("eq", "lt", "le"), "bitwise": ("and", "or", "xor", "shl", "shr")}


class Instance:
    """A random program whose last step matches a pattern. Raises NgraphError where the random choices are incompatible."""

    def __init__(self, pattern: StepPattern, seed: int, tame: bool = False):
        self.tame = tame  # positive numbers only
        self.draw = np.random.Generator(np.random.PCG64(seed))
        self.s = Steps(**LENGTHS)
        self.dtype = self.pick([dtypes.REGISTRY[n] for n in DTYPES])
        self.pool = [AxisId(str(a)) for a in self.draw.choice(list(LENGTHS), 3, replace=False)]
        self.bound: dict[str, Any] = {}
        result = self.node(pattern, None)
        self.program = self.s.program(*(result if isinstance(result, tuple) else (result,)))
        verify(self.program)

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.draw.integers(len(options)))]

    def some(self, options: Sequence[Any]) -> tuple[Any, ...]:
        """Returns a random subset of `options`, in random order."""
        options = [o for o in options if self.draw.random() < 0.6]
        return tuple([options[int(k)] for k in self.draw.permutation(len(options))])

    # values
    def value(self, pattern: Pattern | None, dtype: DType) -> Value:
        if type(pattern) is StepPattern:
            made: Value = self.node(pattern, dtype)
            return made
        if type(pattern) is ConstantPattern:
            return self.s.number(pattern.value, dtype, self.some(self.pool))
        if type(pattern) is PatternVar:
            if pattern.name not in self.bound:
                self.bound[pattern.name] = self.value(None, dtype)
            held: Value = self.bound[pattern.name]
            return held
        choice = self.draw.random()
        if choice < 0.3:
            return self.s.number(self.a_number(dtype), dtype)
        if choice < 0.4:
            return self.s("broadcast", self.s.input(*self.some(self.pool)[:1], dtype=dtype), axes=tuple(self.pool))
        return self.s.input(*self.some(self.pool), dtype=dtype)

    def a_number(self, dtype: DType) -> Any:
        if dtype.kind == "bool":
            return self.pick([True, False])
        if self.tame and dtype.is_float:
            return self.pick([1, 2, 3, 4])
        edges = [dtype.lowest, dtype.highest]
        return self.pick([0, 1, 2, 3, 4, 5, *edges, *([-1, -2] if dtype.kind != "uint" else [])] + ([0.5, -0.0] if dtype.is_float else []))

    # steps
    def node(self, node: StepPattern, dtype: DType | None) -> Any:
        op = self.pick(list(node.ops))
        inputs = self.inputs(op, node, dtype or self.dtype)
        wanted = dtype or self.pick([dtypes.REGISTRY[n] for n in DTYPES])
        attrs = getattr(self, f"attrs_{op}", lambda inputs, dtype: {"kind": self.pick(KINDS[op])} if op in KINDS else {})(inputs, wanted)
        for name, held in node.attrs.items():
            attrs[name] = self.bound.setdefault(held.name, attrs[name]) if type(held) is PatternVar else held
        return self.s(op, *inputs, **attrs)

    def inputs(self, op: str, node: StepPattern, dtype: DType) -> tuple[Value, ...]:
        patterns: list[Any] = list(node.inputs)
        if patterns and type(patterns[-1]) is PatternVar and patterns[-1].many:
            rest = patterns.pop()
            made: list[Any] = [None] * (self.arity(op) - len(patterns))
            if rest.among and made:
                made[int(self.draw.integers(len(made)))] = StepPattern(rest.among, (PatternVar("_bare"),), {})
            patterns += made
        if op in ("cast", "compare", "bitcast"):
            dtype = self.pick([dtypes.REGISTRY[n] for n in DTYPES]) if self.draw.random() < 0.5 else self.dtype
        if op == "concat":
            rest = self.some(["K", "P"])
            patterns = [self.s.input(self.pick(["H", "W", "O", "Z", "N"]), *rest, dtype=dtype) for p in patterns]
            if type(node.inputs[0]) is PatternVar and not node.inputs[0].many:
                self.bound[node.inputs[0].name] = patterns[0]
            return tuple(patterns)
        own = {"where": [dtypes.bool_, dtype, dtype], "gather": [dtype, dtypes.int32], "cond": [dtypes.bool_, dtype]}
        kinds = own.get(op, [dtype] * len(patterns))
        return tuple([self.value(p, d) for p, d in zip(patterns, kinds, strict=False)])

    def arity(self, op: str) -> int:
        if op in ("concat", "cond", "where"):
            return int(self.draw.integers(1, 4)) if op == "concat" else 2 if op == "cond" else 3
        two = bool(COMMUTES[op]) or op in ("subtract", "divide", "remainder", "power")
        return 2 if two else 1

    # attributes that fit the inputs
    def attrs_constant(self, inputs: Any, dtype: DType) -> dict[str, Any]:
        axes = self.some(["H", "W", "O"])
        axes = tuple(map(AxisId, axes))
        if self.draw.random() < 0.5:
            return {"value": _held(self.a_number(dtype), dtype), "axes": axes, "dtype": dtype}
        shape = [LENGTHS[a] or 0 for a in axes]
        array = np.full(shape, self.a_number(dtype)) if self.draw.random() < 0.5 else self.draw.integers(0, 2, shape)
        return {"value": ArrayRef(array.astype(dtype.np)), "axes": axes, "dtype": dtype}

    def attrs_iota(self, inputs: Any, dtype: DType) -> dict[str, Any]:
        return {"axis": AxisId(self.pick(["O", "P", "H", "K", "Z"])), "dtype": dtype if dtype.is_integer else dtypes.int32}

    def attrs_cast(self, inputs: Any, dtype: DType) -> dict[str, Any]:
        return {"dtype": dtype}

    def attrs_bitcast(self, inputs: Any, dtype: DType) -> dict[str, Any]:
        alike = [d for d in dtypes.REGISTRY.values() if d.bits == inputs[0].dtype.bits and d.kind not in ("bool", "narrow")]
        return {"dtype": self.pick(alike)}

    def attrs_broadcast(self, inputs: Any, dtype: DType) -> dict[str, Any]:
        axes = [*inputs[0].axes, *self.some([a for a in self.pool if a not in inputs[0].axes])]
        return {"axes": tuple([axes[int(k)] for k in self.draw.permutation(len(axes))])}

    def attrs_rename(self, inputs: Any, dtype: DType) -> dict[str, Any]:
        alike = [("H", "K"), ("K", "H"), ("O", "P"), ("P", "O"), ("H", "H"), ("W", "W")]
        to = {AxisId(a): AxisId(b) for a, b in alike if a in inputs[0].axes and self.draw.random() < 0.7}
        return {"to": tuple(to.items())}

    def attrs_reduce(self, inputs: Any, dtype: DType) -> dict[str, Any]:
        return {"kind": self.pick(KINDS["reduce"]), "axes": self.some(inputs[0].axes) or inputs[0].axes[:1]}

    def attrs_contract(self, inputs: Any, dtype: DType) -> dict[str, Any]:
        over = self.some(list(dict.fromkeys([*inputs[0].axes, *inputs[1].axes])))
        own = inputs[0].dtype
        return {"over": over, "accumulate": dtypes.float32 if own.bits == 16 or self.draw.random() < 0.1 else own}

    def attrs_reindex(self, inputs: Any, dtype: DType) -> dict[str, Any]:
        axes = self.some(["H", "W", "K", "O", "N"])
        axes = tuple(map(AxisId, axes))

        def index(own: AxisId) -> ExprLike:
            k = int(self.draw.integers(0, 3))
            if not axes or self.draw.random() < 0.2:
                return k
            i = Idx(own if own in axes and self.draw.random() < 0.4 else self.pick(axes))
            return self.pick([i, i, i, i + k - 1, i * 2 - k, Len(own) - 1 - i, i // 2, (i + k) % 2, i + Idx(self.pick(axes))])

        predicates = [self.pick([index(AxisId("H")) + -1, 1 - index(AxisId("W"))])] if self.draw.random() < 0.3 else []
        pairs = tuple([(a, index(a)) for a in inputs[0].axes])
        return {"axes": axes, "index": pairs, "predicate": tuple(predicates), "pad_value": _held(self.pick([0, 0, 1]), inputs[0].dtype)}

    def attrs_concat(self, inputs: Any, dtype: DType) -> dict[str, Any]:
        parts = tuple([v.axes[0] for v in inputs])
        total = self.s.axes[AxisId("all")] = sum([self.s.axes[part] for part in parts], 0)
        fits = [part for part in parts if self.s.axes[part] == total]
        return {"parts": parts, "axis": self.pick([AxisId("all"), *fits])}

    def attrs_gather(self, inputs: Any, dtype: DType) -> dict[str, Any]:
        return {"axes": (self.pick(inputs[0].axes or [AxisId("H")]),), "mode": self.pick(["clip", "fill", "wrap"])}

    def attrs_cond(self, inputs: Any, dtype: DType) -> dict[str, Any]:
        def branch(op: str) -> Program:
            body = Steps()
            body.axes = dict(self.s.axes)
            given = [body.input(*v.axes, dtype=v.dtype) for v in inputs[1:]]
            return body.program(*(body(op, x, x) for x in given))

        return {"then": branch("maximum"), "else": branch("minimum" if self.dtype.kind == "bool" else "add")}


def _held(n: Any, dtype: DType) -> Any:
    return dtype.python(n)


def instances(rule: Rule, tries: int = 300, seed: int = 0) -> Iterator[Program]:
    """Yields random programs that match the rule's pattern, out of `tries` random choices."""
    for k in range(tries):
        try:
            yield Instance(rule.pattern, seed * 100_000 + k, bool(rule.inexact)).program
        except (NgraphError, IndexError, KeyError, ValueError, TypeError):
            continue  # incompatible axes or dtypes


# ---- both sides ---------------------------------------------------------------------------------------------------------


def arrays_for(program: Program, draw: np.random.Generator, special: bool) -> list[np.ndarray]:
    """Returns inputs. With `special`, a third of the floats are NaN, infinities and zeros of both signs; else all are in 0.5 … 2.

    Integers cover the whole range of their dtype.
    """
    made = []
    for v in program.inputs:
        shape = [program.length(a, dict.fromkeys(program.symbols(), SYMBOL)) for a in v.axes]
        array: np.ndarray
        if not v.dtype.is_float:
            array = draw.integers(*((0, 2) if v.dtype.kind == "bool" else (max(int(v.dtype.lowest), -9), 9)), shape)
            if v.dtype.is_integer:
                low, high = int(v.dtype.lowest), int(v.dtype.highest)
                far = np.where(draw.random(shape) < 0.5, draw.choice([low, high], shape), draw.integers(low, high, shape, v.dtype.np))
                array = np.where(draw.random(shape) < 0.4, far, array)
        elif special:
            odd, share = draw.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0], shape), 0.35
            if v.dtype.name == "float16" and draw.random() < 0.5:  # wider floats may overflow in another order
                odd, share = draw.choice([6e4, -6e4], shape), 0.8
            array = np.where(draw.random(shape) < share, odd, draw.uniform(-3, 3, shape))
        else:
            array = draw.uniform(0.5, 2, shape)
        made.append(np.asarray(array).astype(v.dtype.np))
    return made


def same(a: np.ndarray, b: np.ndarray, dtype: DType, tolerance: float) -> bool:
    """Whether arrays are equal as the spec requires of exact rules: NaN, infinities and signs of zeros alike, the rest within rounding."""
    if not dtype.is_float:
        return np.array_equal(a, b)
    x, y = a.astype(np.float64), b.astype(np.float64)
    odd = ~np.isfinite(x) | ~np.isfinite(y) | ((x == 0) & (y == 0))
    if not np.array_equal(np.where(odd, x, 1), np.where(odd, y, 1), equal_nan=True):
        return False
    if np.any(np.signbit(x) != np.signbit(y), where=odd & ~np.isnan(x)):
        return False
    x, y = np.where(odd, 0, x), np.where(odd, 0, y)
    return bool(np.all(np.abs(x - y) <= tolerance * (1 + np.abs(x))))


def differs(rule: Rule, program: Program, draw: np.random.Generator, bits: bool = False) -> str | None:
    """Returns how the rule changes the results of `program`: "" for not at all, None where it does not match, else a sentence."""
    with config(exact=not rule.inexact), tracing() as trace:
        try:
            after = rewrite(program, Rules(rule))
            verify(after)
        except (NgraphError, TypeError, ValueError, AttributeError, KeyError, AssertionError, OverflowError) as error:
            return f"breaks the program: {error}"
    if not trace.firings:
        return None
    arrays = arrays_for(program, draw, special=not rule.inexact)
    with np.errstate(all="ignore"):
        try:
            lengths = dict.fromkeys(program.symbols(), SYMBOL)
            pairs = zip(program.outputs, interpret(program, arrays, {}, lengths)[0], interpret(after, arrays, {}, lengths)[0], strict=True)
            for v, old, new in pairs:
                tolerance = 0.0 if bits else TOLERANCE.get(v.dtype.name, 0) * (8 if rule.inexact else 1)
                if not same(old, new, v.dtype, tolerance):
                    return f"gives {new} in place of {old}, from {arrays}"
        except (NgraphError, OverflowError, ValueError) as error:
            return f"gives a program that does not run: {error}"
    return ""


def check_rule(rule: Rule, firings: int = 12, tries: int = 600, bits: bool = False, show: Callable[[Program], str] = repr) -> int:
    """Raises AssertionError where the rule's sides differ on random programs, or where it never matches. Returns the number of matches.

    bits: require equal bits, not equality within rounding. A rule with a statement of inexactness is tested on floats in 0.5 … 2 only.
    """
    fired = 0
    draw = np.random.Generator(np.random.PCG64(len(rule.name)))
    for program in instances(rule, tries):
        found = differs(rule, program, draw, bits)
        if found:
            raise AssertionError(f"rule {rule.name!r} {found}\n{show(program)}")
        fired += found is not None
        if fired == firings:
            break
    if not fired:
        raise AssertionError(f"rule {rule.name!r} never fired on its own pattern {rule.pattern!r}")
    return fired


def needs_condition(rule: Rule, tries: int = 4000) -> bool:
    """Whether the rule without its condition fails on some program: the test of the test above."""
    bare, draw = rule.without_condition(), np.random.Generator(np.random.PCG64(1))
    return any(differs(bare, program, draw) for program in instances(bare, tries))
