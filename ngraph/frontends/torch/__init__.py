"""PyTorch: `torch.compile(model, backend="ngraph")`, and `load` for exported programs.

    >>> import torch
    >>> f = torch.compile(torch.nn.GELU(), backend="ngraph")
    >>> f(torch.ones(2))
    tensor([0.8413, 0.8413])

`dynamo` the backend, which torch calls · `options` what it takes · `caching` graphs for the next process · `private` names that torch
keeps to itself · `segments` a graph cut into segments · `steps` the line of them that runs · `graph` nodes as translators see them ·
`lengths` SymInts · `empties` tensors of no elements that torch refuses · `dtype` element types and memory · `table` and `translate` the
translators · `replacing` and `adafactor` functions in place of PyTorch's · `reports` what ran where · `training` and `updates` whole
training steps · `model`, `format`, `exported` and `reading` exported programs. They need the package torch: `pip install
'ngraph-axes[torch]'`.

Words: docs/glossary.md.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ngraph.errors import UnsupportedError

if find_spec("torch") is None:
    raise UnsupportedError(
        "ng.torch needs the package torch, which is not installed", fix="pip install 'ngraph-axes[torch]', or pip install torch"
    )

if TYPE_CHECKING:
    from ngraph.frontends.torch.dynamo import backend
    from ngraph.frontends.torch.model import load
    from ngraph.frontends.torch.reports import TorchReport, report, reset
    from ngraph.frontends.torch.steps import refresh
    from ngraph.frontends.torch.training import compile_step

__all__ = ["TorchReport", "backend", "compile_step", "load", "refresh", "report", "reset"]

_HOMES = {
    "backend": "dynamo",
    "compile_step": "training",
    "load": "model",
    "TorchReport": "reports",
    "refresh": "steps",
    "report": "reports",
    "reset": "reports",
}


def __getattr__(name: str) -> Any:
    """Returns a public name, with the package torch imported: the command imports this room for every file, to see whose it is."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found
