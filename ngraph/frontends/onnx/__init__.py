"""ONNX models: `load` reads one, and gives a `Model` to be called. Needs the package onnx: `pip install 'ngraph-axes[onnx]'`."""

from __future__ import annotations

from ngraph.errors import UnsupportedError

try:
    import onnx as _onnx
except ImportError:
    raise UnsupportedError(
        "ng.onnx needs the package onnx, which is not installed", fix="pip install 'ngraph-axes[onnx]', or pip install onnx"
    ) from None

from ngraph.frontends.onnx import translate
from ngraph.frontends.onnx.model import Model, Port, load

__all__ = ["Model", "Port", "load"]
