"""ONNX models: `load` reads one, and gives a `Model` to be called; `save` writes one. Needs the package onnx: `pip install 'ngraph-axes[onnx]'`."""

from __future__ import annotations

from importlib.util import find_spec

from ngraph.errors import UnsupportedError

if find_spec("onnx") is None:  # it is imported when a graph is read: what was compiled before runs without
    raise UnsupportedError(
        "ng.onnx needs the package onnx, which is not installed", fix="pip install 'ngraph-axes[onnx]', or pip install onnx"
    )

from ngraph.frontends.onnx.export import save
from ngraph.frontends.onnx.model import Model, Port, load

__all__ = ["Model", "Port", "load", "save"]
