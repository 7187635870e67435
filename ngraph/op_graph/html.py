"""Display of axes, ops, programs and computations: long lists cut, and small HTML tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SHOWN = 200  # rows, or lines of text, that a notebook displays at most


def escaped(text: object) -> str:
    """Returns the text with HTML's special characters escaped."""
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def some(items: Sequence[object], most: int = 6) -> str:
    """Returns the first `most` items, comma-separated, and the number of further ones."""
    return ", ".join([*map(str, items[:most]), *([f"… {len(items) - most} more"] if len(items) > most else [])])


def shortened(text: str, most: int = 120) -> str:
    """Returns the text, cut at `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def table(caption: str, rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """Returns an HTML table with a caption; beyond `SHOWN` rows, the number of further ones."""
    every = list(rows)
    lines = [*([_row(head, "th")] if head else []), *(_row(row, "td") for row in every[:SHOWN])]
    if len(every) > SHOWN:
        lines.append(_row([f"and {len(every) - SHOWN:,} more"], "td"))
    said = f'<caption style="text-align:left;caption-side:top;white-space:nowrap"><b>{escaped(caption)}</b></caption>' if caption else ""
    return f"<table>{said}{''.join(lines)}</table>"


def _row(cells: Sequence[object], tag: str) -> str:
    return "<tr>" + "".join(f'<{tag} style="text-align:left">{escaped(c)}</{tag}>' for c in cells) + "</tr>"


def folded(summary: str, text: str) -> str:
    """Returns HTML with the text folded behind a summary line."""
    lines = text.rstrip("\n").split("\n")
    more = [f"… and {len(lines) - SHOWN:,} more lines"] if len(lines) > SHOWN else []
    return f"<details><summary>{escaped(summary)}</summary><pre>{escaped(chr(10).join(lines[:SHOWN] + more))}</pre></details>"
