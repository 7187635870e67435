"""TensorFlow's models without TensorFlow: `load` reads SavedModels, graphs and meta graphs, `load_checkpoint` reads checkpoints.

Within TensorFlow: `bridge.enable()` puts into ngraph what it can run of each `tf.function`, `function` does so for one, and `report` says
what ran where. They need TensorFlow itself. The others need the packages protobuf and google-crc32c: `pip install 'ngraph-axes[tf]'`.

Words: docs/glossary.md.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ngraph.errors import UnsupportedError

if find_spec("google") is None or find_spec("google.protobuf") is None or find_spec("google_crc32c") is None:
    raise UnsupportedError(
        "ng.tensorflow needs the packages protobuf and google-crc32c, which are not both installed", fix="pip install 'ngraph-axes[tf]'"
    )

from ngraph.frontends.tensorflow.model import TensorflowModel, load

if TYPE_CHECKING:
    from ngraph.frontends.tensorflow.bundle import Checkpoint, load_checkpoint, save_checkpoint

__all__ = ["Checkpoint", "TensorflowModel", "load", "load_checkpoint", "save_checkpoint"]

_ROOMS = dict.fromkeys(("bridge", "function", "report"), "ngraph.bridge") | dict.fromkeys(
    ("Checkpoint", "load_checkpoint", "save_checkpoint"), f"{__name__}.bundle"
)


def __getattr__(name: str) -> Any:
    """Returns what needs TensorFlow or the package protobuf, which is imported then."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = importlib.import_module(_ROOMS[name])
    found = globals()[name] = room if name == "bridge" else getattr(room, name)
    return found
