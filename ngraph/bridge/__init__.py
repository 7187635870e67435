"""The bridge: what ngraph can run of a TensorFlow program runs in ngraph, and the rest stays where it is.

`flatten` a function with what it calls · `marking`, `clustering`, `encapsulate` the phases · `prices` what clusters cost · `kernel` the op
and its kernel · `running` clusters as they run · `functions` where TensorFlow calls functions, and the API · `pictures`, `reports` views.
It needs TensorFlow.

Words: docs/glossary.md.
"""

from __future__ import annotations

from importlib.util import find_spec

from ngraph.errors import UnsupportedError

if find_spec("tensorflow") is None:
    raise UnsupportedError("the bridge needs the package tensorflow, which is not installed", fix="pip install tensorflow-cpu==2.21.0")

from ngraph.bridge.functions import (
    disable,
    enable,
    function,
    get_backend,
    get_disabled_ops,
    is_enabled,
    is_logging_placement,
    is_supported_backend,
    list_backends,
    set_backend,
    set_disabled_ops,
    start_logging_placement,
    stop_logging_placement,
)
from ngraph.bridge.reports import BridgeReport, report, reset

__all__ = [
    "BridgeReport",
    "disable",
    "enable",
    "function",
    "get_backend",
    "get_disabled_ops",
    "is_enabled",
    "is_logging_placement",
    "is_supported_backend",
    "list_backends",
    "report",
    "reset",
    "set_backend",
    "set_disabled_ops",
    "start_logging_placement",
    "stop_logging_placement",
]
