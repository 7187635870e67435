"""The formats of model files: what each is called, what reads it, what the command is told of a file.

A frontend registers a `Format` of its own, in a module `format` that `of` imports, or in any module under the entry point group
`ngraph.formats`. What is heavy is imported when a file is read, so that a call that was compiled before needs none of it.
"""

from __future__ import annotations

import importlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ngraph.errors import UnsupportedError
from ngraph.frontends.positional.model import Model
from ngraph.frontends.positional.ports import Port

if TYPE_CHECKING:
    from ngraph.frontends.positional.reader import Reader

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # the folder of the frontends


class FileNode(NamedTuple):
    """A node as a file has it: attributes in words, and the graphs in it by name."""

    name: str
    op: str
    takes: Sequence[str]
    gives: Sequence[str]
    attributes: Sequence[str] = ()
    graphs: Sequence[tuple[str, FileGraph]] = ()
    constant: bool = False  # it gives an array that it holds


class FileGraph(NamedTuple):
    """A graph as a file has it: nodes, each behind those that it needs, the shapes of the arrays it holds, types of values in words."""

    nodes: Sequence[FileNode]
    inputs: Sequence[str]
    outputs: Sequence[str]
    arrays: Mapping[str, Sequence[int]]
    types: Mapping[str, str]


class FileFacts(NamedTuple):
    """The description of a model file.

    graph     its graph                  refused  its nodes that cannot be translated, each with the reason
    said      further remarks, such as its version               data     the same for programs
    """

    name: str
    inputs: Sequence[Port]
    outputs: Sequence[Port]
    graph: FileGraph
    refused: Sequence[str] = ()
    said: Sequence[str] = ()
    data: Mapping[str, Any] = {}

    @property
    def ops(self) -> Counter[str]:
        """The number of nodes of each op."""
        return Counter(node.op for node in self.graph.nodes)


class Format:
    """A format of model files. A new one needs `name`, `endings`, `read` and `facts`.

    name     as people call it, such as ONNX
    endings  of its files' names, such as .onnx; "": it takes files that no other knows
    package  the Python package that reads it; "" where a file needs none: then what was compiled for it is not looked for in the cache
    """

    name = ""
    endings: Sequence[str] = ()
    package = ""

    def owns(self, path: str) -> bool:
        """Whether a path is of this format, by its name; a format whose models are folders looks into them."""
        ending = os.path.splitext(path)[1].lower()
        return ending != "" and ending in self.endings and not os.path.isdir(path)

    def main(self, source: Any) -> Any:
        """Returns the file of a model that decides what the others are: its own, or for a folder the one in it."""
        return source

    def options(self, source: Any) -> str:
        """Returns what else decides how a file is read, and what its model is called, in words."""
        return ""

    def read(self, source: Any, transformer: Any, trainable: Sequence[str], indices: str) -> Reader:
        """The reader of a file. Raises UnsupportedError for nodes that have no translation, ParseError for a damaged file."""
        raise NotImplementedError

    def facts(self, path: str) -> FileFacts:
        """Returns the description of a file. Raises ParseError for a damaged file."""
        raise NotImplementedError

    def load(self, source: Any, transformer: Any = None, **options: Any) -> Model:
        """The model of a file; options: see `Model`."""
        return Model(source, self, transformer, **options)

    def save(self, model: Model, path: str, **options: Any) -> None:
        """Writes a model of any format. Raises UnsupportedError where the format is only read."""
        raise UnsupportedError(f"{self.name} files are read, not written", fix="give the file to be written another ending, such as .onnx")

    def elsewhere(self, path: str, values: Sequence[str] = ()) -> Any:
        """The file as other runtimes read it; values: with these among its outputs. Raises UnsupportedError where none does."""
        raise UnsupportedError(f"other runtimes here do not read {self.name}", fix="make an ONNX file of it with `ngraph convert`")


FORMATS: list[Format] = []


def register(format: Format) -> Format:
    """Adds a format. Raises ValueError for one whose name or ending is there already."""
    for other in FORMATS:
        if other.name == format.name or set(other.endings) & set(format.endings):
            raise ValueError(f"the format {other.name} is registered already, for files that end in {', '.join(other.endings)}")
    FORMATS.append(format)
    return format


def of(path: str) -> Format:
    """The format of a file, by its ending. Raises UnsupportedError where what reads it is not there."""
    found, missing = registered(path), list[UnsupportedError]()
    if found is None:
        missing = load_frontends()
        found = registered(path) or next((f for f in FORMATS if "" in f.endings), None)
    if found is None:
        there = ", ".join(e for f in FORMATS for e in f.endings)
        raise missing[0] if missing else UnsupportedError(f"nothing here reads {path}", fix=f"there are {there or 'no formats'}")
    return found


def known(path: str) -> bool:
    """Whether a format has a file's ending."""
    if registered(path) is None:
        load_frontends()
    return registered(path) is not None


def load_frontends() -> list[UnsupportedError]:
    """Imports what registers formats; the errors of what is not installed."""
    missing = []
    for name in sorted(os.listdir(HOME)):
        if os.path.isfile(os.path.join(HOME, name, "format.py")):
            try:
                importlib.import_module(f"ngraph.frontends.{name}.format")
            except UnsupportedError as error:
                missing.append(error)
    for point in importlib.import_module("importlib.metadata").entry_points(group="ngraph.formats"):
        point.load()
    return missing


def registered(path: str) -> Format | None:
    """The format that owns a file, among those that are registered."""
    return next((f for f in FORMATS if f.owns(path)), None)
