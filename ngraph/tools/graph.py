"""Pictures of op-graphs: a plain SVG that any browser opens, a navigable page for large ones, and DOT text for graphviz.

    >>> import ngraph as ng
    >>> x = ng.placeholder([ng.make_axis(3, name="H")]).named("x")
    >>> print(dot(x * 2))
    digraph {
      node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=11]
      0 [label="x\\n[H=3]", fillcolor="#d9f0d3"]
      1 [label="multiply(·, 2)\\n[H=3]", fillcolor="#ffffff", penwidth=2]
      0 -> 1
    }

A scalar constant is printed in its user's box. In the SVG an arrow that would pass many rows is cut: a dashed box with the
source's name is drawn at its end, so that the picture of a training step stays readable.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from typing import Any

from ngraph.errors import Line, show_line
from ngraph.op_graph import expr
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.dtypes import DType, float32
from ngraph.op_graph.op import Op, TensorType, ordered
from ngraph.runtime.computation import Computation
from ngraph.tools import layout, viewer
from ngraph.tools.files import check_output, write
from ngraph.tools.load import find
from ngraph.verbs import Answer, verb

FILLS = {
    "placeholder": "#d9f0d3",
    "variable": "#fde3b8",
    "constant": "#ececec",
    "random": "#e6daf2",
    "effect": "#f9d5d3",
    "op": "#ffffff",
    "reference": "#ffffff",
}
EFFECTS = ("assign", "doall", "sequential", "effect")
ENDINGS = (".svg", ".html", ".dot")
MAX_ROWS_PASSED = 3  # rows that an arrow may pass in the SVG


@dataclass
class Box:
    """One box: its kind (a key of FILLS), lines of text, and the note for the pointer; for an op also its type, the last of the
    lines, its scope, and the user's line."""

    kind: str
    lines: list[str]
    note: str
    result: bool = False
    type: str = ""
    scope: str = ""
    line: Line | None = None


@dataclass
class Picture:
    """Boxes, numbered from inputs to users, and the arrows between them."""

    boxes: list[Box] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)


def _axis(a: Axis) -> str:
    return repr(a).rsplit(".", 1)[-1]


def _type(t: Any) -> str:
    if type(t) is not TensorType:
        return "" if t is None else ", ".join(map(_type, t))
    return ("" if t.dtype is float32 else f"{t.dtype} ") + f"[{', '.join(map(_axis, t.axes))}]"


def _attr(a: Any) -> str:
    if isinstance(a, Axis):
        return _axis(a)
    if isinstance(a, DType):
        return a.name
    if isinstance(a, tuple | list):
        return f"({', '.join(map(_attr, a))})"
    return repr(a) if isinstance(a, bool | int | float | str | None.__class__) else f"<{type(a).__name__}>"


def _kind(op: Op) -> str:
    name = op.opdef.name
    return "effect" if name in EFFECTS else "random" if name == "random_bits" else name if name in FILLS else "op"


def _written(op: Op) -> str | None:
    """Returns the text of a constant that is one number or length, which is printed in its user's box; None for others."""
    value = op.attrs.get("value")
    if op.opdef.name != "constant" or isinstance(value, ArrayRef):
        return None
    return expr.text(value, lambda leaf: leaf.of.label.rsplit(".", 1)[-1]) if isinstance(value, expr.Expr) else f"{value:.4g}"


def _what(op: Op, written: dict[Op, str]) -> str:
    """Returns the op as a formula: its name, `·` for each arrow, constants as they are."""
    if op.opdef.name == "assign":
        return f"{op.inputs[0].label} ← {written.get(op.inputs[1], '')}".rstrip()
    name = op.opdef.name + "".join(f" {v}" for k, v in op.attrs.items() if k == "kind")
    return f"{name}({', '.join(written.get(i, '·') for i in op.inputs)})" if any(i in written for i in op.inputs) else name


def _box(op: Op, written: dict[Op, str], number: int, result: bool) -> Box:
    what = "" if op.hint and _kind(op) in ("placeholder", "variable") else _what(op, written)
    lines = [line for line in (op.hint or "", what, _type(op.type)) if line]
    notes = [
        *([op.name] if op.hint else []),
        repr(op),
        *(f"{k} = {_attr(v)}" for k, v in op.attrs.items()),
        show_line(op.line),
        f"box {number}",
    ]
    return Box(_kind(op), lines, "\n".join(notes), result, _type(op.type), op.scope, op.line)


def picture(roots: Op | Iterable[Op]) -> Picture:
    """Returns the boxes and arrows of all dependencies of the roots."""
    wanted = [roots] if isinstance(roots, Op) else list(roots)
    ops = list(ordered(wanted))
    results = set(wanted)
    written = {o: text for o in ops if o not in results and (text := _written(o)) is not None}
    drawn = Picture()
    number: dict[Op, int] = {}
    for op in ops:
        if op not in written:
            number[op] = len(number)
            drawn.boxes.append(_box(op, written, number[op], op in results))
            shown = op.inputs[1:] if op.opdef.name == "assign" else op.inputs  # the variable's name shows the destination
            drawn.edges += [(number[i], number[op]) for i in dict.fromkeys(shown) if i not in written]
    return drawn


def _with_references(whole: Picture) -> Picture:
    """Returns the picture with every long arrow cut, and a box at its end that names the source."""
    row = layout.rows_of(len(whole.boxes), whole.edges)
    leaf = {b for b, box in enumerate(whole.boxes) if box.kind in ("placeholder", "variable", "constant")}
    far = {(a, b) for a, b in whole.edges if row[b] - row[a] > (1 if a in leaf else MAX_ROWS_PASSED)}
    if not far:
        return whole
    drawn = Picture()
    moved: dict[int, int] = {}
    inputs: dict[int, list[int]] = {}
    named = {a for a, _ in far if a not in leaf}
    for a, b in whole.edges:
        inputs.setdefault(b, []).append(a)
    for b, box in enumerate(whole.boxes):
        sources = []
        for a in inputs.get(b, ()):
            if (a, b) in far:
                sources.append(len(drawn.boxes))
                of = whole.boxes[a]
                drawn.boxes.append(Box("reference", [of.lines[0] + (f" #{a}" if a in named else "")], of.note))
            else:
                sources.append(moved[a])
        moved[b] = len(drawn.boxes)
        drawn.boxes.append(Box(box.kind, [f"{box.lines[0]} #{b}", *box.lines[1:]], box.note, box.result) if b in named else box)
        drawn.edges += [(s, moved[b]) for s in sources]
    return drawn


def dot(roots: Op | Iterable[Op]) -> str:
    """Returns DOT text of the op-graph."""
    whole = picture(roots)
    out = ["digraph {", '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=11]']
    for i, box in enumerate(whole.boxes):
        label = "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in box.lines)
        out.append(f'  {i} [label="{label}", fillcolor="{FILLS[box.kind]}"{", penwidth=2" if box.result else ""}]')
    out += [f"  {a} -> {b}" for a, b in whole.edges]
    return "\n".join([*out, "}"])


TEXT, LINE, PAD = 6.4, 14.0, 12.0  # pixels: width of a letter, height of a line, margin around a box's text


def _size(box: Box) -> tuple[float, float]:
    return max(map(len, box.lines)) * TEXT + 2 * PAD, len(box.lines) * LINE + PAD


def _curve(points: list[tuple[float, float]]) -> str:
    """Returns a path through the points that starts and ends vertically; it bends between rows and is straight within a row."""
    (x, y), *rest = points
    parts = [f"M{x:.1f},{y:.1f}"]
    for k, (u, v) in enumerate(rest):
        bend = (v - y) / 2
        parts.append(f"L{u:.1f},{v:.1f}" if k % 2 else f"C{x:.1f},{y + bend:.1f} {u:.1f},{v - bend:.1f} {u:.1f},{v:.1f}")
        x, y = u, v
    return " ".join(parts)


def _svg_text(line: str, x: float, y: float) -> str:
    look = ' class="type"' if line.endswith("]") else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{look}>{escape(line)}</text>'


def _svg_box(box: Box, x: float, y: float) -> str:
    width, height = _size(box)
    style = f'fill="{FILLS[box.kind]}"' + (' stroke-width="2"' if box.result else "") + (' class="far"' if box.kind == "reference" else "")
    top = y - (len(box.lines) - 1) * LINE / 2 + 4
    text = "".join(_svg_text(line, x, top + k * LINE) for k, line in enumerate(box.lines))
    corner = f'x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<g><title>{escape(box.note)}</title><rect {corner} rx="5" {style}/>{text}</g>'


STYLE = """text{font:11px sans-serif;text-anchor:middle;fill:#222}
.type{fill:#666;font-size:10px}
rect{stroke:#777}
.far{stroke-dasharray:3 2}
path{fill:none;stroke:#8a8f98;marker-end:url(#head)}"""


def svg(roots: Op | Iterable[Op]) -> str:
    """Returns a plain SVG of the op-graph: inputs above, results below; colours by kind, notes for the pointer."""
    return draw(_with_references(picture(roots)))


def draw(whole: Picture) -> str:
    """Returns the SVG of any picture."""
    placed = layout.layered([_size(b) for b in whole.boxes], whole.edges)
    margin = 16.0
    width, height = placed.width + 2 * margin, placed.height + 2 * margin
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">',
            f"<style>{STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
            '<path d="M0,0 L8,4 L0,8 z" style="fill:#8a8f98;stroke:none;marker-end:none"/></marker></defs>',
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff" style="stroke:none"/>',
            f'<g transform="translate({margin:.0f} {margin:.0f})">',
            *(f'<path d="{_curve(route)}"/>' for route in placed.routes),
            *(_svg_box(box, x, y) for box, (x, y) in zip(whole.boxes, placed.centres, strict=True)),
            "</g>",
            "</svg>",
        ]
    )


def html(roots: Op | Iterable[Op], title: str) -> str:
    """Returns a navigable page: scopes fold, boxes are found by name, the pointer shows the user's line. It is self-contained."""
    return viewer.page(picture(roots), FILLS, title)


def save(roots: Op | Iterable[Op], path: str) -> None:
    """Writes a picture of the op-graph: an SVG, a page, or DOT text, by the extension `.svg`, `.html` or `.dot`.

    Raises UsageError for another extension, FileError.
    """
    check_output(path, *ENDINGS)
    name, ending = os.path.splitext(os.path.basename(path))
    text = {".svg": svg, ".html": lambda roots: html(roots, name), ".dot": dot}[ending.lower()](roots)
    write(path, text + "\n")


def is_drawable(x: Any) -> bool:
    """Whether `x` is an op, a list of ops, or a computation."""
    if isinstance(x, list | tuple):
        return bool(x) and all(isinstance(i, Op) for i in x)
    return isinstance(x, Op | Computation)


def _arguments(parser: Any) -> None:
    parser.add_argument("target", metavar="PROGRAM.py[:NAME]", help="a program file, and in it an op, a list of ops or a computation")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where to: .svg, .html for a page to move around in, .dot for DOT text; DOT to the screen without this",
    )


@verb("graph", "draw the op-graph of an op or a computation", _arguments)
def graph(arguments: Any) -> Answer:
    """Runs `ngraph graph model.py:loss -o loss.svg`."""
    check_output(arguments.output, *ENDINGS)
    found = find(arguments.target, is_drawable, "op or computation", lambda x: isinstance(x, Computation))
    roots = found.results.ops if isinstance(found, Computation) else found
    drawn = picture(roots)
    size = f"{len(drawn.boxes)} boxes, {len(drawn.edges)} arrows"
    if arguments.output:
        save(roots, arguments.output)
    data = {"boxes": [{"kind": b.kind, "lines": b.lines} for b in drawn.boxes], "arrows": drawn.edges}
    return Answer(f"{arguments.output}: {size}" if arguments.output else dot(roots), data)
