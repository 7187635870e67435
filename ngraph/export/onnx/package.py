"""The package onnx, of which only the messages of its files are loaded until something else is asked for.

Reading and running a file needs the messages alone. `import onnx` loads its checker, its converters and a JSON parser as well, which
takes longer than the import of ngraph. The classes are those that the package itself gives, since Protocol Buffers keeps one class of each
message.
"""

from __future__ import annotations

import importlib
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any


def _messages() -> Any:
    """Returns the module that Protocol Buffers' compiler wrote for onnx.proto, run apart from its package."""
    package = find_spec("onnx")
    found = package and PathFinder.find_spec("onnx_ml_pb2", package.submodule_search_locations)
    if not found or not found.loader:
        raise ModuleNotFoundError("No module named 'onnx'", name="onnx")
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


_MESSAGES = _messages()


def __getattr__(name: str) -> Any:
    """Returns a message class of ONNX, or else what the whole package calls by that name."""
    if name.startswith("__"):
        raise AttributeError(name)
    home = _MESSAGES if hasattr(_MESSAGES, name) else importlib.import_module("onnx")
    return globals().setdefault(name, getattr(home, name))
