"""Every module of translators, imported so that they register."""

from ngraph.frontends.onnx import arithmetic, control, shapes

__all__ = ["arithmetic", "control", "shapes"]
