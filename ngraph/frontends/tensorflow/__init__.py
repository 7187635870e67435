"""TensorFlow's models without TensorFlow: `load` reads SavedModels, graphs and meta graphs, `load_checkpoint` reads checkpoints.

They need the packages protobuf and google-crc32c: `pip install 'ngraph-axes[tf]'`.

Words: docs/glossary.md.
"""

from __future__ import annotations

from importlib.util import find_spec

from ngraph.errors import UnsupportedError

if find_spec("google") is None or find_spec("google.protobuf") is None or find_spec("google_crc32c") is None:
    raise UnsupportedError(
        "ng.tensorflow needs the packages protobuf and google-crc32c, which are not both installed", fix="pip install 'ngraph-axes[tf]'"
    )

from ngraph.frontends.tensorflow.bundle import Checkpoint, load_checkpoint, save_checkpoint
from ngraph.frontends.tensorflow.model import TensorflowModel, load

__all__ = ["Checkpoint", "TensorflowModel", "load", "load_checkpoint", "save_checkpoint"]
