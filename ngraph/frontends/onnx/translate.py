"""Every module of translators, imported so that they register."""

from ngraph.frontends.onnx import arithmetic, control, layers, microsoft, products, quantised, recurrent, sampling, shapes, signal, text

__all__ = ["arithmetic", "control", "layers", "microsoft", "products", "quantised", "recurrent", "sampling", "shapes", "signal", "text"]
