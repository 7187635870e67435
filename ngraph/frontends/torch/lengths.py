"""Lengths that stay open: SymInts as expressions over axes, and the questions of a reading as questions to the ShapeEnv.

Dynamo guards what the ShapeEnv is asked, so that a call with another answer compiles anew, and says why in its own logs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from fractions import Fraction
from functools import reduce
from hashlib import sha256
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import CeilToInt, FloorDiv, FloorToInt, Max, Min, Mod, PythonMod, ToFloat, TruncToInt

from ngraph.errors import NgraphError, UnsupportedError
from ngraph.frontends.positional.stages import Ask, StageRun
from ngraph.frontends.positional.trace import ASK, ModelTrace
from ngraph.frontends.torch import private
from ngraph.op_graph import expr
from ngraph.op_graph.axes import Axis, make_axis
from ngraph.op_graph.expr import Bin, ExprLike, Len

KINDS: dict[type, Callable[[ExprLike, ExprLike], ExprLike]] = {
    sympy.Add: lambda a, b: a + b,
    sympy.Mul: lambda a, b: a * b,
    FloorDiv: lambda a, b: a // b,
    Mod: lambda a, b: a % b,
    PythonMod: lambda a, b: a % b,
    Max: expr.maximum,
    Min: expr.minimum,
}
MAX_FACTOR_BITS = 30  # of the numerator and denominator of a factor: its product with a length below 2**23 is exact in float64
LARGEST = 2**31  # absolute value of an int that is an axis' length: a call makes an array of so many bytes, which nobody reads


def scaled(e: Any) -> tuple[Fraction, Any] | None:
    """Returns (factor, whole number) for the float that is their product; None for others, and where rounding may decide its whole part."""
    factors = e.args if isinstance(e, sympy.Mul) else (e,)
    wholes = [f.args[0] for f in factors if isinstance(f, ToFloat)]
    numbers = [Fraction(float(f)) for f in factors if f.is_Float or f.is_Integer]
    if len(wholes) != 1 or len(numbers) != len(factors) - 1 or len(numbers) > 1:
        return None
    factor = numbers[0] if numbers else Fraction(1)
    fits = factor > 0 and max(factor.numerator, factor.denominator).bit_length() <= MAX_FACTOR_BITS
    return (factor, wholes[0]) if fits else None


def symint_of(symint: Any) -> sympy.Expr:
    """Returns the expression that a SymInt stands for."""
    return symint.node.expr


class SymbolicTrace(ModelTrace):
    """One reading of a graph of torch.fx, with SymInts for lengths."""

    def length(self, n: Any) -> ExprLike:
        """Returns an int or a SymInt as a length. Raises UnsupportedError for an expression of an operator that lengths lack."""
        if isinstance(n, torch.SymInt):
            simple = n.node.maybe_as_int()
            return self._expression(symint_of(n), n) if simple is None else simple
        return int(n)

    def _expression(self, e: Any, symint: Any) -> ExprLike:
        if e.is_Integer:
            return int(e)
        if e.is_Symbol:
            return self.symbol(e, symint)
        if isinstance(e, sympy.Pow) and e.exp.is_Integer and 0 < int(e.exp) <= 8:
            return reduce(lambda a, b: a * b, [self._expression(e.base, symint)] * int(e.exp))
        if isinstance(e, (TruncToInt, FloorToInt, CeilToInt)) and (found := scaled(e.args[0])) is not None:
            factor, whole = found
            up = factor.denominator - 1 if isinstance(e, CeilToInt) else 0
            return (self._expression(whole, symint) * factor.numerator + up) // factor.denominator
        kind = KINDS.get(type(e))
        if kind is None:
            return self.computed_length(e, symint)
        return reduce(kind, [self._expression(a, symint) for a in e.args])

    def symbol(self, e: Any, symint: Any) -> ExprLike:
        """Returns the length that a symbol of PyTorch's stands for."""
        raise NotImplementedError

    def computed_length(self, e: Any, symint: Any) -> ExprLike:
        """Returns the length that an expression stands for whose operator lengths lack. Raises UnsupportedError."""
        raise UnsupportedError(f"a length is the expression {e}", fix="fix that length: torch._dynamo.mark_static(x, dim)")


class ExportTrace(SymbolicTrace):
    """One reading of an exported program. symbols: the lengths of its inputs' dims, by the symbol."""

    symbols: dict[str, ExprLike] = {}

    def symbol(self, e: Any, symint: Any) -> ExprLike:
        """See `SymbolicTrace.symbol`."""
        if str(e) not in self.symbols:
            raise UnsupportedError(
                f"the length {e} is known only when it has run", fix="export the model so that inputs determine all lengths"
            )
        return self.symbols[str(e)]


class TorchTrace(SymbolicTrace):
    """One reading of a graph of torch.fx, whose open lengths are those of a ShapeEnv."""

    def __init__(self) -> None:
        super().__init__(Ask(lambda run: None), StageRun({}, {}), frozenset(), lambda ops, holes: None)
        self.symbols: dict[str, tuple[Axis, Any]] = {}  # by the symbol's name: the axis that has this length, and the SymInt
        self.expressions: dict[str, Any] = {}  # those of them that Python computes of others, by the names that these have there
        self.indices = "raise"

    def symbol(self, e: Any, symint: Any) -> ExprLike:
        """Returns the length of the axis that stands for a symbol of the ShapeEnv.

        A number of the user's, which no dim has, may be below 0: the axis then has its absolute value, and one that is read of a tensor
        is the difference of two axes. One that is too large for a length is taken as it is.
        """
        env = symint.node.shape_env
        hint = None if e not in env.backed_var_to_val else int(env.backed_var_to_val[e])
        if str(e) not in self.symbols:
            n = env.create_symintnode(e, hint=hint)
            if not private.surely(n >= 0):
                if hint is None:
                    return self.computed_length(Max(0, e), symint) - self.computed_length(Max(0, -e), symint)
                if not (n < LARGEST and n > -LARGEST):
                    return int(n)
                if n < 0:
                    return -1 * self.computed_length(-e, symint)
        return self._own(str(e), e, env, hint)

    def computed_length(self, e: Any, symint: Any) -> ExprLike:
        """Returns the length of an axis that stands for an expression, which Python computes in each call, in PyTorch's floats."""
        name = f"f{sha256(str(e).encode()).hexdigest()[:16]}"
        self.expressions[name] = e
        env = symint.node.shape_env
        hint = None if e.free_symbols - env.backed_var_to_val.keys() else private.hint_of(env.create_symintnode(e, hint=None))
        return self._own(name, e, env, hint)

    def _own(self, name: str, e: Any, env: Any, hint: int | None) -> ExprLike:
        if name not in self.symbols:
            axis = make_axis(None, name=name, batch=False, recurrent=False, channel=False)
            self.symbols[name] = axis, env.create_symintnode(e, hint=hint)
        return Len(self.symbols[name][0])

    # ---- back to PyTorch
    def symint(self, e: ExprLike) -> Any:
        """Returns a length as an int or a SymInt."""
        if isinstance(e, Len):
            name = e.of.name
            return self.symbols[name][1] if name in self.symbols else self.symint(e.of.size)
        if isinstance(e, Bin):
            a, b = self.symint(e.a), self.symint(e.b)
            if e.op in ("min", "max"):
                return (torch.sym_min if e.op == "min" else torch.sym_max)(a, b)
            return expr.APPLY[e.op](a, b)
        assert isinstance(e, int), e
        return e

    # ---- questions
    def ask(self, about: Hashable, question: Callable[[StageRun], Hashable], shapes: bool = False) -> Hashable:
        raise UnsupportedError("what is computed depends on values", fix="compute it outside of the compiled function")

    def few(self, t: Any, most: int = 64) -> bool:
        """Never: another call has other values, and is not compiled anew for them."""
        return False

    def hint(self, e: ExprLike) -> int:
        n = self.symint(e)
        return n if isinstance(n, int) else private.hint_of(n)

    def truth(self, kind: str, a: ExprLike, b: ExprLike) -> bool:
        if a == b:
            return kind != "lt"
        found = private.answer(ASK[kind](self.symint(a), self.symint(b)), kind == "eq")
        if found is None:
            raise UnsupportedError("what is computed depends on a length that is known only when it has run")
        return found

    def unequal(self, error: NgraphError, a: ExprLike, b: ExprLike) -> NgraphError:
        if private.unbacked(self.symint(a)) or private.unbacked(self.symint(b)):
            return UnsupportedError("a length that is known only when it has run meets another one")
        return error

    def number(self, e: ExprLike) -> int:
        n = self.symint(e)
        if private.unbacked(n):
            raise UnsupportedError("a length that is known only when it has run stands where a number is needed")
        return int(n)

    def numbers(self, es: Iterable[ExprLike]) -> list[int]:
        return [self.number(e) for e in es]

    def unknown(self, axis: Axis | None) -> bool:
        return False
