"""Views of the phases: each as text, and as a picture with clusters coloured. NGRAPH_TF_DUMP_GRAPHS=folder writes them there."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from html import escape

from ngraph.bridge.flatten import TypedFunction, TypedNode
from ngraph.bridge.marking import Marks, in_order
from ngraph.frontends.tensorflow.dtypes import type_name
from ngraph.frontends.tensorflow.graph import node_of

COLOURS = ("#8dd3c7", "#fdb462", "#bebada", "#fb8072", "#80b1d3", "#b3de69", "#fccde5", "#ffed6f", "#ccebc5", "#bc80bd")
MARKED, KNOWN, LEFT = "#e8f4e8", "#f7f7ee", "#ffffff"
MOST_DRAWN = 1500  # nodes in a picture: beyond it no viewer shows more than a blur, and columns are cut

_counter = itertools.count()


def text(function: TypedFunction, marks: Marks | None = None, of: Mapping[str, int] | None = None) -> str:
    """Returns a function's nodes, one a line: where each runs, op, name, what it takes, dtypes and shapes of what it gives."""
    lines = [f"function {function.flat.name}({', '.join(function.flat.takes)})"]
    for node in in_order(function):
        gives = ", ".join(f"{type_name(d)}{_shape(s)}" for d, s in zip(node.dtypes, node.shapes, strict=True))
        after = "".join(f" ^{a}" for a in node.after)
        lines.append(f"{place(node, marks, of):12} {node.op} {node.name}({', '.join(node.takes)}{after}) -> {gives or 'nothing'}")
        if marks is not None and node.name in marks.reasons:
            lines[-1] += f"   # {marks.reasons[node.name]}"
    return "\n".join([*lines, f"return {', '.join(function.flat.gives)}", ""])


def _shape(shape: tuple[int | None, ...] | None) -> str:
    return "[...]" if shape is None else f"[{', '.join('?' if n is None else str(n) for n in shape)}]"


def place(node: TypedNode, marks: Marks | None, of: Mapping[str, int] | None) -> str:
    """Returns where a node runs, in a word or two."""
    if of is not None and node.name in of:
        return f"cluster {of[node.name]}"
    if marks is None:
        return ""
    return "known" if node.name in marks.known else "ours" if node.name in marks.ours else "tensorflow"


def svg(function: TypedFunction, marks: Marks | None = None, of: Mapping[str, int] | None = None) -> str:
    """Returns a picture: nodes in rows by what they need, constants left out, each cluster in a colour of its own."""
    nodes = [n for n in in_order(function) if n.op != "Const"][:MOST_DRAWN]
    rows: dict[str, int] = {}
    for node in nodes:
        rows[node.name] = 1 + max([rows[n] for n in (*map(node_of, node.takes), *node.after) if n in rows], default=-1)
    width, height, gap = 132, 34, 22
    columns: dict[int, int] = {}
    at: dict[str, tuple[int, int]] = {}
    for node in sorted(nodes, key=lambda n: (rows[n.name], (of or {}).get(n.name, -1))):
        row = rows[node.name]
        at[node.name] = (20 + columns.get(row, 0) * (width + 12), 50 + row * (height + gap))
        columns[row] = columns.get(row, 0) + 1
    whole = (40 + max(columns.values(), default=1) * (width + 12), 90 + (max(rows.values(), default=0) + 1) * (height + gap))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole[0]}" height="{whole[1]}" font-family="sans-serif" font-size="10">',
        f'<rect width="{whole[0]}" height="{whole[1]}" fill="white"/>',
        f'<text x="20" y="24" font-size="14">{escape(function.flat.name)}</text>',
    ]
    for node in nodes:
        x, y = at[node.name]
        for name, dashed in (*((node_of(v), False) for v in node.takes), *((a, True) for a in node.after)):
            if name in at:
                a, b = at[name]
                dash = ' stroke-dasharray="3,3"' if dashed else ""
                lines.append(f'<line x1="{a + width // 2}" y1="{b + height}" x2="{x + width // 2}" y2="{y}" stroke="#999"{dash}/>')
    for node in nodes:
        x, y = at[node.name]
        where = place(node, marks, of)
        fill = {"ours": MARKED, "known": KNOWN}.get(where, LEFT)
        if of is not None and node.name in of:
            fill = COLOURS[of[node.name] % len(COLOURS)]
        reason = "" if marks is None else marks.reasons.get(node.name, "")
        title = f"{node.name}: {where}" + (f" ({reason})" if reason else "")
        shape = _shape(node.shapes[0]) if node.shapes else ""
        lines += [
            f"<g><title>{escape(title)}</title>",
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{fill}" stroke="#555"/>',
            f'<text x="{x + 5}" y="{y + 14}">{escape(node.op[:24])}</text>',
            f'<text x="{x + 5}" y="{y + 27}" fill="#666">{escape(f"{where} {shape}"[:26])}</text></g>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def dump(phase: str, function: TypedFunction, marks: Marks | None = None, of: Mapping[str, int] | None = None) -> None:
    """Writes the view of a phase as text and picture into the folder that NGRAPH_TF_DUMP_GRAPHS names; "1" is the working folder."""
    folder = os.environ.get("NGRAPH_TF_DUMP_GRAPHS", "")
    if not folder:
        return
    folder = "." if folder == "1" else folder
    os.makedirs(folder, exist_ok=True)
    base = os.path.join(folder, f"{next(_counter):04d}_{phase}_{function.flat.name}"[:200])
    for ending, said in ((".txt", text(function, marks, of)), (".svg", svg(function, marks, of))):
        with open(base + ending, "w", encoding="utf-8") as f:
            f.write(said)
