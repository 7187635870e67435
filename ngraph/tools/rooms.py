"""The imports between rooms, read from the source: the rule that a room imports only rooms above it, and a map of them.

A room is a module or package right inside `ngraph`, or one inside such a package that ORDER names: what surrounds it is then another room.
Imports under `if TYPE_CHECKING:` do not count; those inside functions, and `deferred` ones, do.
"""

from __future__ import annotations

import ast
import os
import tokenize
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from ngraph.tools.files import check_output, write
from ngraph.tools.graph import Box, Picture, draw
from ngraph.verbs import Answer, verb

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# in order of dependence: a room may import those named before it
ORDER = (
    "parts errors config warn verbs data op_graph ops autodiff api program rewrite numpy_functions numpy_ops passes targets tensors "
    "plan schedule codegen runtime.host runtime transformers.executable transformers export frontends.positional frontends.neon "
    "frontends.onnx frontends.tensorflow frontends.torch frontends "
    "keras bridge serve capi tools util types testing onnx_backend"
).split()

# packages that a function may import, since they are optional dependencies or slow to load
OPTIONAL = {
    "matplotlib",
    "tqdm",
    "llvmlite",
    "torch",
    "onnx",
    "tensorflow",
    "tensorboardX",
    "pooch",
    "PIL",
    "h5py",
    "google",
    "google_crc32c",
    "keras",
}


class Import(NamedTuple):
    """One import: the file and line, its room, the full name imported, and whether it is inside a function."""

    file: str
    line: int
    room: str
    name: str
    late: bool


def room_of(parts: Sequence[str]) -> str:
    """The room of a module of the package: the innermost one that ORDER names, else the module or package right inside."""
    names = [".".join(parts[:k]) for k in range(len(parts), 0, -1)]
    return next((name for name in names if name in ORDER), parts[0])


def files(home: str = HOME) -> Iterator[tuple[str, str]]:
    """Yields every source file with its room; the package's own `__init__` is the room ""."""
    for folder, _, names in os.walk(home):
        for name in sorted(names):
            if name.endswith(".py"):
                parts = os.path.relpath(os.path.join(folder, name), home)[:-3].split(os.sep)
                yield os.path.join(folder, name), "" if parts in (["__init__"], ["__main__"]) else room_of(parts)


@cache
def imports(home: str = HOME) -> list[Import]:
    """Returns every import of the package."""
    package, found = os.path.basename(home), list[Import]()
    for path, room in files(home):
        inside = [package, *os.path.relpath(path, home).split(os.sep)[:-1]]
        with open(path, encoding="utf-8") as source:
            todo: list[tuple[ast.AST, bool]] = [(ast.parse(source.read(), path), False)]
        while todo:
            node, late = todo.pop()
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                todo += [(child, late) for child in node.orelse]
                continue
            found += [Import(path, getattr(node, "lineno", 0), room, name, late) for name in _names(node, inside)]
            late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            todo += [(child, late) for child in ast.iter_child_nodes(node)]
    return found


def _names(node: ast.AST, inside: list[str]) -> list[str]:
    if isinstance(node, ast.Import):
        return [a.name for a in node.names]
    if isinstance(node, ast.ImportFrom):
        above = inside[: len(inside) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        return [f"{base}.{a.name}" for a in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "deferred":
        return [str(a.value) for a in node.args if isinstance(a, ast.Constant)]
    return []


def edges(home: str = HOME) -> dict[tuple[str, str], list[Import]]:
    """Returns the imports from room to room."""
    package, known = os.path.basename(home), {room for _, room in files(home)}
    found: dict[tuple[str, str], list[Import]] = {}
    for i in imports(home):
        top, *parts = i.name.split(".")
        room = room_of(parts) if top == package and parts else ""
        if room in known and room != i.room and room and i.room:
            found.setdefault((i.room, room), []).append(i)
    return found


def upward(home: str = HOME) -> list[Import]:
    """Returns the imports that violate the rule: of a room later in ORDER, or missing there."""
    level = {room: n for n, room in enumerate(ORDER)}
    return [i for (a, b), found in edges(home).items() for i in found if not level.get(b, len(level)) < level.get(a, -1)]


def hidden(home: str = HOME) -> list[Import]:
    """Returns imports inside functions of packages that are not optional."""
    return [i for i in imports(home) if i.late and i.name.split(".")[0] not in OPTIONAL]


def sizes(home: str = HOME) -> dict[str, int]:
    """Returns the source lines of each room: those with a token that is neither a comment nor a docstring."""
    found: dict[str, int] = {}
    for path, room in files(home):
        found[room] = found.get(room, 0) + _lines(path)
    return found


@cache
def _lines(path: str) -> int:
    lines: set[int] = set()
    fresh = True  # at the start of a statement, where a string is a docstring
    with open(path, "rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
                fresh = True
            elif token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER):
                if not (fresh and token.type == tokenize.STRING):
                    lines.update(range(token.start[0], token.end[0] + 1))
                fresh = False
    return len(lines)


def map_of_rooms(home: str = HOME, lines: bool = True) -> str:
    """Returns an SVG with an arrow from each room down to its importers, without implied arrows; rooms with invalid imports are red."""
    size, arrows = sizes(home), {(b, a) for a, b in edges(home)}
    wrong = {i.room for i in upward(home)}
    rooms = sorted((r for r in size if r), key=lambda r: ORDER.index(r) if r in ORDER else len(ORDER))
    number = {r: n for n, r in enumerate(rooms)}
    drawn = Picture([Box("effect" if r in wrong else "op", [r, f"[{size[r]:,} lines]"] if lines else [r], r) for r in rooms])
    drawn.edges = _needed({(number[a], number[b]) for a, b in arrows if number[a] < number[b]}, len(rooms))
    return draw(drawn)


def _needed(pairs: set[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """Returns the pairs that no path over other pairs implies; every pair goes up."""
    reach: list[set[int]] = [set() for _ in range(count)]
    kept = []
    for a in reversed(range(count)):
        for b in sorted(b for x, b in pairs if x == a):
            if b not in reach[a]:
                kept.append((a, b))
            reach[a] |= {b} | reach[b]
    return kept


def _arguments(parser: Any) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", help="draw them into this SVG")


@verb("rooms", "show which room of ngraph's own source imports which", _arguments)
def rooms(arguments: Any) -> Answer:
    """Runs `ngraph rooms -o map.svg`: every room, its size, its imports, and violations of the rule."""
    check_output(arguments.output, ".svg")
    size, arrows, wrong = sizes(), edges(), upward()
    if arguments.output:
        write(arguments.output, map_of_rooms() + "\n")
    total, lines = sum(size.values()), []
    for room in sorted(size, key=lambda r: ORDER.index(r) if r in ORDER else -1):
        below = [b for a, b in arrows if a == room]
        lines.append(
            f"{room or 'ngraph':16}{size[room]:6} lines {100 * size[room] / total:3.0f}%  {' '.join(sorted(below, key=ORDER.index))}"
        )
    lines += [f"{i.file}:{i.line}: {i.room} imports {i.name}, which stands above it" for i in wrong]
    data = {r or "ngraph": {"lines": n, "imports": sorted(b for a, b in arrows if a == r)} for r, n in size.items()}
    return Answer("\n".join(lines), {"rooms": data, "wrong": [i._asdict() for i in wrong]})
