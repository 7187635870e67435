"""Every module of translators, imported so that they register."""

from ngraph.frontends.onnx import (
    arithmetic,
    attention,
    control,
    layers,
    microsoft,
    ml,
    products,
    quantised,
    recurrent,
    sampling,
    shapes,
    signal,
    text,
    trees,
)

__all__ = [
    "arithmetic",
    "attention",
    "control",
    "layers",
    "microsoft",
    "ml",
    "products",
    "quantised",
    "recurrent",
    "sampling",
    "shapes",
    "signal",
    "text",
    "trees",
]
