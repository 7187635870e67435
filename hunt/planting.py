"""Puts a mistake into a function of the running process, by its source text."""

import functools
import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any


def edited(where: str, old: str, new: str) -> Callable[[], None]:
    """A function that makes the mistake: in `module:name` or `module:Class.name`, the text `old` becomes `new`.

    The function that comes of it stands for the former one in every module that has imported it. Raises ValueError where the text does
    not stand there once, as after a change of the code: a mistake that is not made would not be found.
    """
    return functools.partial(_edit, where, old, new)


def _edit(where: str, old: str, new: str) -> None:
    module_name, path = where.split(":")
    module = importlib.import_module(module_name)
    *outer, name = path.split(".")
    owner: Any = functools.reduce(getattr, outer, module)
    function = inspect.unwrap(getattr(owner, name))
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(old) != 1:
        raise ValueError(f"{where} has {source.count(old)} times {old!r}")
    made: dict[str, Any] = {}
    code = compile("from __future__ import annotations\n" + source.replace(old, new), inspect.getsourcefile(function) or where, "exec")
    exec(code, module.__dict__, made)
    mistaken = made[function.__name__]  # which an attribute of a class may hold by another name
    if outer:
        static = isinstance(inspect.getattr_static(owner, name), staticmethod)
        setattr(owner, name, staticmethod(mistaken) if static else mistaken)
        return
    before = getattr(module, name)
    for other in list(sys.modules.values()):
        for key, value in list(vars(other).items()) if hasattr(other, "__dict__") else ():
            if value is before:
                setattr(other, key, mistaken)
