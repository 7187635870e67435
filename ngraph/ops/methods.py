"""Functions of the package as methods of ops: `x.sum("N")` is `ng.sum(x, "N")`. One table, no logic of its own.

The names are those that the array API standard, xarray and PyTorch share.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import OpDef

METHODS: dict[str, str] = {  # method -> function of `ng`
    **{
        name: name
        for name in (
            # of each element
            "acos acosh add asin asinh atan atanh ceil clip cos cosh divide erf exp exp2 expm1 floor isfinite isinf isnan log log10 log1p "
            "log2 logical_and logical_not logical_or maximum minimum multiply negative reciprocal relu sigmoid sign sin sinh sqrt square "
            "subtract tan tanh trunc "
            # along axes
            "all any argmax argmin argsort cummax cummin cumprod cumsum diagonal dot flip log_softmax logcumsumexp logsumexp max mean "
            "median min norm prod quantile roll softmax sort std sum top_k unique var "
            # of axes
            "broadcast flatten pad rearrange repeat split take tile tril triu unflatten unstack"
        ).split()
    },
    "abs": "absolute",
    "astype": "cast",
    "clamp": "clip",
    "div": "divide",
    "mul": "multiply",
    "neg": "negative",
    "pow": "power",
    "round": "rounded",
    "sub": "subtract",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "detach": "stop_gradient",
    "rename": "map_roles",
    "transpose": "axes_with_order",
}


def installed() -> dict[str, str]:
    """Returns the methods that ops have, each with the function that it is."""
    return {name: function for name, function in METHODS.items() if name in vars(Op)}


def table() -> str:
    """Returns the methods as a table in Markdown."""
    return "".join(
        ["| method | function |\n| --- | --- |\n", *(f"| `x.{m}(...)` | `ng.{f}(x, ...)` |\n" for m, f in sorted(installed().items()))]
    )


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function as a method, with its signature and help."""

    def method(self: Op, *args: Any, **named: Any) -> Any:
        return function(self, *args, **named)

    if isinstance(function, OpDef):
        method.__doc__ = function.doc
        parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY), *list(function.parameters.values())[1:]]
        method.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it, and mypy knows it not
    else:
        functools.update_wrapper(method, function)
    method.__name__, method.__qualname__ = name, f"Op.{name}"
    return method


class _LateMethod:
    """A method of ops whose function is looked up when the method first is."""

    def __init__(self, name: str, function: str, find: Callable[[str], Any]):
        self.name, self.function, self.find = name, function, find

    def __get__(self, x: Op | None, owner: Any = None) -> Any:
        setattr(Op, self.name, made := _method(self.name, self.find(self.function)))
        return made.__get__(x, owner)


def install(functions: Mapping[str, Any], late: Mapping[str, Callable[[str], Any]] = {}) -> None:
    """Gives ops the methods of the table whose functions are among these; `late` ones are found by a function of their name."""
    for name, function in METHODS.items():
        if function in functions:
            setattr(Op, name, _method(name, functions[function]))
        elif function in late:
            setattr(Op, name, _LateMethod(name, function, late[function]))
    Op.T = property(lambda x: x.transpose(x.axes[::-1]), doc="The op with its axes in reversed order; the duals are `x.axes.T`.")  # type: ignore[assignment]  # its declaration is for readers
