"""Rules: patterns are programs with holes, written with the operators and functions of the ops themselves.

    x, y = var("x"), var("y")
    exp, log = functions("exp log")
    table = Rules(
        ("x * 1", x * 1, lambda x: x),
        ("log exp x", log(exp(x)), lambda x: x, "differs where exp overflows"),
        Rule("x + 0", x + 0, lambda x: x, when=lambda x: x.dtype.is_integer),
    )

The right side builds new steps by the same notation, on the values of the holes. Its parameters, and those of a condition,
are named after the holes; `step` is the matched step, `new` the builder of new ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.opdef import OPS
from ngraph.parts.registry import Column
from ngraph.program.program import Step, Value

COMMUTES: Column[Any] = OPS.column("commutes", (bool, tuple), False, "whether two inputs may change places: always, or of which `kind`s")


def commutes(op: str, attrs: Mapping[str, Any]) -> bool:
    """Whether the two inputs of a step may be exchanged."""
    always = COMMUTES[op]
    return always if isinstance(always, bool) else attrs.get("kind") in always


def _operator(op: str, swapped: bool = False) -> Callable[[Any, Any], Any]:
    return lambda self, other: self.apply(op, (other, self) if swapped else (self, other), {})


class Term:
    """An operand of operators and `functions`: a part of a pattern, or a value for which steps are built."""

    __slots__ = ()

    def apply(self, op: str, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        raise NotImplementedError

    def __neg__(self) -> Any:
        return self.apply("multiply", (self, -1), {})

    __add__, __radd__ = _operator("add"), _operator("add", True)
    __sub__, __rsub__ = _operator("subtract"), _operator("subtract", True)
    __mul__, __rmul__ = _operator("multiply"), _operator("multiply", True)
    __truediv__, __rtruediv__ = _operator("divide"), _operator("divide", True)
    __mod__, __rmod__ = _operator("remainder"), _operator("remainder", True)
    __pow__, __rpow__ = _operator("power"), _operator("power", True)


def functions(names: str) -> Any:
    """Returns for each op named a function that builds it: in a pattern, or in a rule's right side."""
    made = [_function(name) for name in names.split()]
    return made[0] if len(made) == 1 else tuple(made)


def _function(op: str) -> Callable[..., Any]:
    def build(*inputs: Any, **attrs: Any) -> Any:
        for i in (*inputs, *attrs.values()):
            if isinstance(i, Term):
                return i.apply(op, inputs, attrs)
        return StepPattern(op, inputs, attrs)

    build.__name__ = op
    return build


# ---- patterns ---------------------------------------------------------------------------------------------------------


class Pattern(Term):
    """A part of a pattern."""

    __slots__ = ()

    def apply(self, op: str, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Pattern:
        return StepPattern(op, inputs, attrs)


class PatternVar(Pattern):
    """A hole: matches any value, or any attribute; the same one twice must match the same. `many` takes all remaining inputs."""

    __slots__ = ("name", "many", "among")

    def __init__(self, name: str, many: bool = False, among: tuple[str, ...] = ()):
        self.name, self.many, self.among = name, many, among

    def __repr__(self) -> str:
        return f"*{self.name}" if self.many else self.name


class ConstantPattern(Pattern):
    """A constant of this value, filled over any axes; 0.0 and -0.0 differ for floats."""

    __slots__ = ("value",)

    def __init__(self, value: float):
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


class StepPattern(Pattern):
    """A step of one of these ops, with these inputs and (at least) these attributes."""

    __slots__ = ("ops", "inputs", "attrs")

    def __init__(self, op: str | Collection[str], inputs: Iterable[Any], attrs: Mapping[str, Any]):
        self.ops = (op,) if isinstance(op, str) else op
        self.inputs = tuple([i if isinstance(i, Pattern) else ConstantPattern(i) for i in inputs])
        self.attrs = dict(attrs)

    def __repr__(self) -> str:
        what = [*map(repr, self.inputs), *(f"{k}={v!r}" for k, v in self.attrs.items())]
        return f"{'|'.join(self.ops)}({', '.join(what)})"


def var(name: str) -> PatternVar:
    """Returns a hole for one value or one attribute."""
    return PatternVar(name)


def many(name: str, among: str = "") -> PatternVar:
    """Returns a hole for all remaining inputs; with `among`, at least one of them is the result of one of these ops."""
    return PatternVar(name, True, tuple(among.split()))


def any_of(names: Collection[str]) -> Callable[..., StepPattern]:
    """Returns a function whose pattern matches any of these ops; of a column's names also those that are filled in later."""
    return lambda *inputs, **attrs: StepPattern(names, inputs, attrs)


def _orders(node: Any) -> Iterator[Any]:
    """Yields the pattern with the inputs of commutative nodes in each order."""
    if type(node) is not StepPattern:
        yield node
        return
    both = len(node.inputs) == 2 and all(commutes(op, node.attrs) for op in node.ops)
    for inputs in itertools.product(*[list(_orders(i)) for i in node.inputs]):
        yield StepPattern(node.ops, inputs, node.attrs)
        if both and not (type(inputs[0]) is PatternVar and type(inputs[1]) is PatternVar and node.inputs[0] is node.inputs[1]):
            yield StepPattern(node.ops, inputs[::-1], node.attrs)


# ---- matching -----------------------------------------------------------------------------------------------------------

Makers = Mapping[Value, Step]  # the step that computes a value, for results of steps
Bound = dict[str, Any]


def wrapped(n: int, dtype: DType) -> int:
    """Returns the integer as `dtype` represents it, modulo 2 to its bits."""
    n &= (1 << dtype.bits) - 1
    return n - (1 << dtype.bits) if dtype.kind == "int" and n >> (dtype.bits - 1) else n


def number(value: Value, makers: Makers) -> Any:
    """Returns the Python number that fills `value`, if it is a constant (or a broadcast of one); else None."""
    step = makers.get(value)
    while step is not None and step.op == "broadcast":
        step = makers.get(step.inputs[0])
    if step is None or step.op != "constant":
        return None
    held = step.attrs["value"]
    if type(held) is ArrayRef and held.array.ndim == 0:
        held = held.array.item()
    if not isinstance(held, (bool, int, float)):
        return None  # a length expression is not a number yet
    return wrapped(int(held), value.type.dtype) if value.type.dtype.is_integer else held


def same_number(a: Any, b: Any, dtype: DType) -> bool:
    """Whether two numbers are one value of this dtype; zeros differ by sign, NaN equals NaN."""
    if dtype.is_integer:
        return bool(a == int(a) and b == int(b) and wrapped(int(a), dtype) == wrapped(int(b), dtype))
    if dtype.python is not float:
        return bool(a == b)
    if a != a or b != b:
        return bool(a != a and b != b)
    a, b = a and _rounded(a, dtype), b and _rounded(b, dtype)
    return bool(a == b and (a != 0 or math.copysign(1, a) == math.copysign(1, b)))


@lru_cache(4096)
def _rounded(a: float, dtype: DType) -> float:
    """Returns a number other than 0 as `dtype` represents it."""
    with np.errstate(all="ignore"):
        return float(np.asarray(a).astype(dtype.np))


def match(node: StepPattern, step: Step, makers: Makers, bound: Bound, used: list[Step]) -> bool:
    """Whether `step` matches the pattern; fills `bound` (holes) and `used` (the matched steps)."""
    for name, wanted in node.attrs.items():
        if name not in step.attrs or not _match_attr(wanted, step.attrs[name], bound):
            return False
    used.append(step)
    inputs = step.inputs
    patterns = node.inputs
    if patterns and type(patterns[-1]) is PatternVar and patterns[-1].many:
        head = len(patterns) - 1
        if len(inputs) < head:
            return False
        bound[patterns[-1].name] = inputs[head:]
        patterns = patterns[:-1]
    elif len(inputs) != len(patterns):
        return False
    return all(_match_value(p, v, makers, bound, used) for p, v in zip(patterns, inputs, strict=False))


def _match_value(pattern: Any, value: Value, makers: Makers, bound: Bound, used: list[Step]) -> bool:
    if type(pattern) is PatternVar:
        return bound.setdefault(pattern.name, value) is value
    if type(pattern) is ConstantPattern:
        n = number(value, makers)
        return n is not None and same_number(n, pattern.value, value.type.dtype)
    maker = makers.get(value)
    return maker is not None and maker.op in pattern.ops and len(maker.results) == 1 and match(pattern, maker, makers, bound, used)


def _match_attr(wanted: Any, held: Any, bound: Bound) -> bool:
    if type(wanted) is PatternVar:
        before = bound.setdefault(wanted.name, held)
        return before is held or bool(before == held)
    return bool(wanted == held)


# ---- rules --------------------------------------------------------------------------------------------------------------


class Rule:
    """One equivalence: `result` may replace `pattern`.

    result    a function of the holes (Built terms; attributes as they are); returns a term, a number, or one per result. None: no
    inexact   where the two sides differ: then the rule applies only under `ng.config(exact=False)`
    when      a predicate of the holes, the rule's condition
    """

    def __init__(
        self, name: str, pattern: StepPattern, result: Callable[..., Any], inexact: str = "", when: Callable[..., Any] | None = None
    ):
        self.name, self.pattern, self.result, self.inexact, self.when = name, pattern, result, inexact, when
        self.takes = _parameters(result)
        self.asks = _parameters(when) if when is not None else ()

    @cached_property
    def variants(self) -> tuple[StepPattern, ...]:
        """The pattern with the inputs of commutative nodes in each order; computed when a program is first rewritten."""
        return tuple(_orders(self.pattern))

    def without_condition(self) -> Rule:
        """Returns the same rule without its condition, for tests of the tests."""
        return Rule(self.name, self.pattern, self.result, self.inexact)

    def __repr__(self) -> str:
        return f"<rule {self.name}: {self.pattern!r}{' (inexact)' if self.inexact else ''}>"


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount]


class Candidate(NamedTuple):
    """One order of inputs of one rule's pattern."""

    rule: Rule
    node: StepPattern


def _possible(node: StepPattern, makers: tuple[str, ...]) -> bool:
    """Whether inputs computed by these ops ("" for none) could match; looks one level deep."""
    patterns = node.inputs
    if patterns and type(patterns[-1]) is PatternVar and patterns[-1].many:
        among = patterns[-1].among
        if among and not any(m in among for m in makers):
            return False
        patterns = patterns[:-1]
    elif len(patterns) != len(makers):
        return False
    for p, maker in zip(patterns, makers, strict=False):
        if type(p) is StepPattern and maker not in p.ops:
            return False
        if type(p) is ConstantPattern and maker not in ("constant", "broadcast"):
            return False
    return True


class Rules:
    """A table of rules, tried in order. `a + b` has the rules of both; `register` adds one from any package."""

    def __init__(self, *rules: Rule | tuple[Any, ...]):
        self.rules: list[Rule] = []
        self._names: set[str] = set()
        self._by_op: dict[bool, dict[str, list[Candidate]]] = {}
        self._version = 0  # of the facts from which the candidates were derived
        self._by_makers: dict[bool, dict[Any, tuple[Candidate, ...]]] = {True: {}, False: {}}
        for rule in rules:
            self._add(rule)

    def register(self, rule: Rule | tuple[Any, ...]) -> Rule:
        """Adds a rule, after the present ones. Raises ValueError where its name is taken."""
        self._forget()
        return self._add(rule)

    def _add(self, rule: Rule | tuple[Any, ...]) -> Rule:
        made = rule if isinstance(rule, Rule) else Rule(*rule)
        if made.name in self._names:
            raise ValueError(f"a rule {made.name!r} stands in this table already")
        self._names.add(made.name)
        self.rules.append(made)
        return made

    def remove(self, name: str) -> Rule:
        """Removes a rule. Raises KeyError."""
        rule = self[name]
        self.rules.remove(rule)
        self._names.remove(name)
        self._forget()
        return rule

    def _forget(self) -> None:
        self._by_op = {}
        self._by_makers = {True: {}, False: {}}

    def candidates(self, exact: bool) -> Callable[[str, tuple[str, ...]], tuple[Candidate, ...]]:
        """Returns a function from a step's op and the ops of its inputs to the possible candidates, in order."""
        if self._version != OPS.version:
            self._forget()
            self._version = OPS.version
        if exact not in self._by_op:
            table: dict[str, list[Candidate]] = {}
            for rule in self.rules:
                if not (exact and rule.inexact):
                    for node in rule.variants:
                        for op in node.ops:
                            table.setdefault(op, []).append(Candidate(rule, node))
            self._by_op[exact] = table
        by_op, found = self._by_op[exact], self._by_makers[exact]

        def candidates(op: str, makers: tuple[str, ...]) -> tuple[Candidate, ...]:
            got = found.get((op, makers))
            if got is None:
                got = tuple([c for c in by_op.get(op, ()) if _possible(c.node, makers)])
                if len(makers) <= 3:  # longer ones have too many combinations to cache
                    found[op, makers] = got
            return got

        return candidates

    def __add__(self, other: Rules) -> Rules:
        return Rules(*self.rules, *other.rules)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def __getitem__(self, name: str) -> Rule:
        for rule in self.rules:
            if rule.name == name:
                return rule
        raise KeyError(name)

    def __repr__(self) -> str:
        return f"Rules({', '.join(r.name for r in self.rules)})"
