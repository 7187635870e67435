"""Formats of model files: what each is called, and what reads it.

A frontend fills in a `Format` of its own; what is heavy is imported when a file is read, so that a call that was compiled before needs none
of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ngraph.frontends.positional.reader import Reader


class Format:
    """A format of model files.

    name     as people call it, such as ONNX
    package  the Python package that reads it; "" where a file needs none: then what was compiled for it is not looked for in the cache
    """

    name = ""
    package = ""

    def read(self, source: Any, transformer: Any, trainable: Sequence[str], indices: str) -> Reader:
        """The reader of a file. Raises UnsupportedError for nodes that have no translation, ParseError for a damaged file."""
        raise NotImplementedError
