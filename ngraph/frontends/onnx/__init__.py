"""ONNX models: `load` reads one, and gives a `Model` to be called; `save` writes one.

They need the package onnx: `pip install 'ngraph-axes[onnx]'`. It is imported when a graph is read or written, not for what runs compiled.

Words: docs/glossary.md.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

from ngraph.errors import UnsupportedError

if find_spec("onnx") is None:
    raise UnsupportedError(
        "ng.onnx needs the package onnx, which is not installed", fix="pip install 'ngraph-axes[onnx]', or pip install onnx"
    )

from ngraph.frontends.onnx.model import Model, Port, load

__all__ = ["Model", "Port", "load", "save"]


def __getattr__(name: str) -> Any:
    if name == "save":
        return importlib.import_module("ngraph.frontends.onnx.export").save
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
