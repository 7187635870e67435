"""`model.export(path, format="onnx")`: the model's computation, written by ngraph's exporter."""

from __future__ import annotations

from typing import Any

from ngraph.errors import UnsupportedError


class ExportArchive:
    """The archive of TensorFlow's SavedModels, which are not written. Raises UnsupportedError when it is made."""

    def __init__(self, *args: Any, **kwargs: Any):
        raise UnsupportedError("SavedModels are not written with the ngraph backend", fix='model.export(path, format="onnx")')
