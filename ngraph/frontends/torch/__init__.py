"""PyTorch: `torch.compile(model, backend="ngraph")`.

    >>> import torch
    >>> f = torch.compile(torch.nn.GELU(), backend="ngraph")
    >>> f(torch.ones(2))
    tensor([0.8413, 0.8413])

`backend` what torch calls · `private` names that torch keeps to itself · `segments` a graph as steps, ours and torch's · `graph` nodes as
translators see them · `lengths` SymInts · `dtype` element types and memory · `table` and `translate` the translators · `report` what ran
where. They need the package torch: `pip install 'ngraph-axes[torch]'`.

Words: docs/glossary.md.
"""

from __future__ import annotations

from importlib.util import find_spec

from ngraph.errors import UnsupportedError

if find_spec("torch") is None:
    raise UnsupportedError(
        "ng.torch needs the package torch, which is not installed", fix="pip install 'ngraph-axes[torch]', or pip install torch"
    )

from ngraph.frontends.torch.backend import backend
from ngraph.frontends.torch.report import TorchReport, report, reset

__all__ = ["TorchReport", "backend", "report", "reset"]
