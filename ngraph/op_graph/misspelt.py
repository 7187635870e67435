"""Unknown names: the equivalent here for names of other libraries (`foreign_names`), else the nearest name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from inspect import signature
from typing import Any, NoReturn

from ngraph import errors
from ngraph.errors import NoTensor, UnknownName, nearest
from ngraph.op_graph.dtypes import DType

OF_COMPUTATIONS = dict.fromkeys(("run", "eval", "forward", "predict", "execute"), "f(x), which computes it")
OF_TRANSFORMERS = {
    **dict.fromkeys(("compute", "function", "run", "eval", "execute", "executor"), "transformer.computation(y, x)"),
    **dict.fromkeys(("get_tensor_view_value", "device_to_host", "value"), "transformer.get(variable)"),
    **dict.fromkeys(("host_to_device",), "transformer.set(variable, value)"),
    **dict.fromkeys(("transformer_name",), "transformer.name"),
}


def foreign() -> Any:
    """Returns the module of other libraries' names, which is loaded for the first error."""
    return import_module("ngraph.op_graph.foreign_names")


def no_attribute(what: str, name: str, elsewhere: Mapping[str, str], there: Iterable[str], prefix: str) -> UnknownName:
    """Returns the error for an unknown attribute. `elsewhere`: equivalents of other libraries' names; `there`: the existing names."""
    is_error = isinstance(getattr(errors, name, None), type) and issubclass(getattr(errors, name), errors.NgraphError)
    said, meant = f"ngraph.errors.{name}" if is_error else elsewhere.get(name), nearest(name, [n for n in there if not n.startswith("_")])
    fix = f"write {said or f'{prefix}.{meant}'}" if said or meant else f"dir({prefix}) lists what there is"
    return UnknownName(f"{what} has no attribute {name!r}", fix=fix)


def missing_attribute(error: Callable[[Any, str], UnknownName]) -> Callable[[Any, str], NoReturn]:
    """Returns a `__getattr__` for a class that raises `error(instance, name)` for public names that the class lacks.

    A property that fails, or an empty slot, raises its own error; names that begin with "_" raise a plain AttributeError, since Python
    itself probes for those. Classes assign it under `if not TYPE_CHECKING:`, because type checkers report unknown names themselves.
    """

    def __getattr__(self: Any, name: str) -> NoReturn:
        if hasattr(type(self), name):
            object.__getattribute__(self, name)
        raise AttributeError(name) if name.startswith("_") else error(self, name)

    return __getattr__


def no_attribute_of_op(label: str, name: str, there: Iterable[str]) -> UnknownName:
    """Returns the error for an attribute that an op lacks; it may name a function of the package."""
    return no_attribute(label, name, _functions_for(name) | foreign().OF_OPS, there, "x")


def no_function_for(label: str, name: str) -> NoTensor:
    """Returns the error for a NumPy function that was given an op."""
    said = _functions_for(name).get(name)
    fix = f"write {said}" if said else "compute the op first: ngraph.transformers.make_transformer().computation(x)()"
    return NoTensor(f"np.{name} takes arrays, and {label} is an op", fix=fix)


def _functions_for(name: str) -> dict[str, str]:
    """Returns functions of the package by other libraries' names for them, and by `name` where the package has it."""
    package = sys.modules.get("ngraph")
    there = getattr(package, name) if name in getattr(package, "__all__", ()) else None
    if isinstance(there, DType):
        return {name: f"x.astype(ng.{name})"}
    if isinstance(there, type) or not callable(there):
        return foreign().OF_NGRAPH
    rules = signature(there).parameters.values()
    needed = [p.name for p in rules if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return foreign().OF_NGRAPH | {name: f"ng.{name}({', '.join(needed) if len(needed) > 1 else 'x'})"}
