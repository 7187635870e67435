"""The supported ops of TensorFlow, printed from the table of translators: `ngraph ops --tensorflow`."""

from __future__ import annotations

from typing import NamedTuple

from ngraph.frontends.tensorflow import table, translate

__all__ = ["page", "rows", "translate", "with_table"]

MARKS = ("<!-- the ops, printed by `ngraph ops --docs docs` -->", "<!-- the end of the ops -->")


class TranslatedOp(NamedTuple):
    """One op: its name, and the group of translators that has it."""

    op: str
    group: str


def rows() -> list[TranslatedOp]:
    """Returns every op that has a translator, by group and name."""
    found = [TranslatedOp(op, function.__module__.rpartition(".")[2]) for op, function in table.TABLE.items() if op not in REFUSED]
    return sorted(found, key=lambda row: (row.group, row.op))


REFUSED = frozenset("Switch Merge Enter Exit NextIteration LoopCond RefSwitch RefMerge RefEnter RefExit Placeholder PlaceholderV2".split())


def page() -> str:
    """Returns the table, as Markdown."""
    found = rows()
    lines = [f"{len(found)} ops.", "", "| group | ops |", "| --- | --- |"]
    for group in dict.fromkeys(row.group for row in found):
        lines.append(f"| {group} | {', '.join(row.op for row in found if row.group == group)} |")
    return "\n".join(lines)


def with_table(text: str) -> str:
    """Returns the page of the docs with today's table between its marks."""
    before, _, rest = text.partition(MARKS[0])
    return f"{before}{MARKS[0]}\n\n{page()}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}"
