"""A navigable picture of an op-graph as one HTML file: scopes fold, boxes are found by name, the pointer shows the user's line.

The page (`viewer.html`) does the drawing. Its input is a tree: boxes, and groups of boxes that share a scope. A folded group is one
box, so no path may leave a group and return: a scope is split into as many groups as that needs (layers and their gradients, say).
"""

from __future__ import annotations

import linecache
import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from ngraph.errors import show_line
from ngraph.tools import layout
from ngraph.tools.pages import embedded, filled

if TYPE_CHECKING:
    from ngraph.tools.graph import Picture

# boxes without a scope from which on they are grouped; then boxes per group, or groups in all
MAX_UNSCOPED_BOXES, STRETCH, PARTS = 150, 60, 25
Edge = tuple[int, int]


class Group(NamedTuple):
    """A group: its name, its enclosing group (-1: none), and its number among those of the same name, from 1."""

    label: str
    parent: int
    turn: int


def pieces(labels: Sequence[str], edges: Sequence[Edge]) -> list[int]:
    """Returns a number for each box such that boxes of equal label and number can be merged without a cycle; "" stays unmerged.

    Edges go from lower to higher boxes. A number never decreases along an edge, and increases where the label changes.
    """
    number = [0] * len(labels)
    users: list[list[int]] = [[] for _ in labels]
    inputs: list[list[int]] = [[] for _ in labels]
    for a, b in edges:
        inputs[b].append(a)
        users[a].append(b)

    def together(a: int, b: int) -> bool:
        return labels[a] == labels[b] != ""

    for b in range(len(labels)):
        number[b] = max((number[a] + (not together(a, b)) for a in inputs[b]), default=0)
    there: dict[str, list[int]] = {}
    for b in sorted(range(len(labels)), key=number.__getitem__):
        there.setdefault(labels[b], []).append(number[b])
    for a in reversed(range(len(labels))):  # towards users: weights to their first use, shortcuts to their end
        if not labels[a] or not users[a]:
            continue
        latest = min(number[u] - (not together(a, u)) for u in users[a])
        if any(together(a, u) for u in users[a]):
            number[a] = max(number[a], latest)
        elif not inputs[a]:
            number[a] = there[labels[a]][bisect_right(there[labels[a]], latest) - 1]
    return number


def grouped(scopes: Sequence[str], edges: Sequence[Edge]) -> tuple[list[Group], list[int]]:
    """Returns the groups, and the group of each box (-1: none). Scopes are names joined by `/`."""
    paths = [tuple(s.split("/")) if s else () for s in scopes]
    groups: list[Group] = []
    of = [-1] * len(paths)
    level, todo = 0, list(range(len(paths)))
    while todo:
        # boxes in other groups have other labels, so all groups of a level are split at once
        labels = [f"{of[b]}/{paths[b][level]}" if len(paths[b]) > level else "" for b in range(len(paths))]
        number = pieces(labels, [e for e in edges if of[e[0]] == of[e[1]]])
        found: dict[tuple[str, int], int] = {}
        turns: dict[str, int] = {}
        order = sorted((b for b in todo if labels[b]), key=lambda b: (number[b], b))
        for b in order:
            key = (labels[b], number[b])
            if key not in found:
                turns[labels[b]] = turns.get(labels[b], 0) + 1
                found[key] = len(groups)
                groups.append(Group(paths[b][level], of[b], turns[labels[b]]))
        of = [found[labels[b], number[b]] if labels[b] else of[b] for b in range(len(paths))]
        todo = [b for b in todo if labels[b]]
        level += 1
    return groups, of


def with_stretches(scopes: Sequence[str], names: Sequence[str], edges: Sequence[Edge]) -> list[str]:
    """Returns the scopes; where very many boxes have none, these are grouped by ranges of rows, named after their first named box."""
    bare = [b for b, scope in enumerate(scopes) if not scope]
    if len(bare) <= MAX_UNSCOPED_BOXES:
        return list(scopes)
    rows = layout.rows_of(len(scopes), edges)
    bare.sort(key=rows.__getitem__)
    parts: list[list[int]] = [[]]
    enough = max(STRETCH, len(bare) // PARTS)
    for b in bare:
        if len(parts[-1]) >= enough and rows[b] != rows[parts[-1][-1]]:
            parts.append([])
        parts[-1].append(b)
    made = list(scopes)
    for k, part in enumerate(parts, 1):
        name = next((names[b] for b in part if names[b]), "").replace("/", ".")
        for b in part:
            made[b] = f"part {k}: {name} …" if name else f"part {k}"
    return made


def _source(line: tuple[str, int] | None) -> str:
    return linecache.getline(*line).strip() if line else ""


def page(drawn: Picture, fills: Mapping[str, str], title: str) -> str:
    """Returns the HTML of a picture; `fills` are the colours of the kinds of boxes."""
    edges = sorted(drawn.edges, key=lambda e: e[1])
    names = [box.lines[0] if box.kind in ("placeholder", "variable") else "" for box in drawn.boxes]
    scopes = with_stretches([box.scope for box in drawn.boxes], names, edges)
    groups, of = grouped(scopes, edges)
    lines = {box.line: [show_line(box.line), _source(box.line)] for box in drawn.boxes}
    place = {line: k for k, line in enumerate(lines)}
    boxes = []
    for box, group in zip(drawn.boxes, of, strict=True):
        shown = box.lines[:-1] if box.type else box.lines
        note = "\n".join(box.note.split("\n")[:-2])  # the line is shown separately, and the number has no meaning here
        boxes.append({"t": shown, "y": box.type, "k": box.kind, "n": note, "l": place[box.line], "g": group, "r": int(box.result)})
    data: dict[str, Any] = {"boxes": boxes, "edges": edges, "groups": groups, "lines": list(lines.values()), "fills": dict(fills)}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "viewer.html"), encoding="utf-8") as template:
        return filled(template.read(), TITLE=escape(title), DATA=embedded(data))
