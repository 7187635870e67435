"""`executor`: a transformer and a computation in one call, for programs with a single computation.

>>> import ngraph as ng
>>> x = ng.placeholder(())
>>> float(executor(x + 1, x)(2))
3.0
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from ngraph.op_graph.op import Op
from ngraph.transformers import make_transformer


class executor:
    """A computation of `results` from `parameters` on a transformer of its own: call it, or use it in a `with` block.

    Takes and returns what `Transformer.computation` does. Each executor has its own state, so two of them never share a variable. It can
    be called after the block, too, until `close`, or until nothing refers to it.
    """

    def __init__(self, results: Any, *parameters: Op) -> None:
        self.transformer = make_transformer()
        self.computation = self.transformer.computation(results, *parameters)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.computation(*arguments, **options)

    def __enter__(self) -> executor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Closes nothing: programs of 2016 to 2019 call a computation after its block."""

    def close(self) -> None:
        """Releases the state; the computation can no longer be called."""
        self.transformer.close()
