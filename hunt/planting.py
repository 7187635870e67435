"""Puts a mistake into a function of the running process, by its source text."""

import ast
import functools
import importlib
import inspect
import textwrap
from collections.abc import Callable
from typing import Any


def edited(where: str, old: str, new: str) -> Callable[[], None]:
    """A function that makes the mistake: in `module:name` or `module:Class.name`, the text `old` becomes `new`.

    The function gets the code that comes of it, so that all who hold the function have the mistake: tables, importers, wrappers. Raises
    ValueError where the text does not stand there once, as after a change of the code: a mistake that is not made would not be found.
    """
    return functools.partial(_edit, where, old, new)


def _edit(where: str, old: str, new: str) -> None:
    module_name, path = where.split(":")
    module = importlib.import_module(module_name)
    function = inspect.unwrap(functools.reduce(getattr, path.split("."), module))
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(old) != 1:
        raise ValueError(f"{where} has {source.count(old)} times {old!r}")
    code, name = function.__code__, function.__name__
    body = textwrap.indent(source.replace(old, new), " ")
    outer = f"def made({', '.join(code.co_freevars)}):\n global {name}\n{body}\n return {name}"  # in which `super()` finds its class
    tree: Any = ast.parse(f"from __future__ import annotations\n{outer}")
    tree.body[1].body[1].decorator_list = []
    made: dict[str, Any] = {}
    exec(compile(tree, code.co_filename, "exec"), dict(module.__dict__), made)
    function.__code__ = made["made"](*code.co_freevars).__code__
