"""The supported ops of TensorFlow, printed from the table of translators: `ngraph ops --tensorflow`."""

from __future__ import annotations

from typing import NamedTuple

from ngraph.frontends.tensorflow import table, translate

__all__ = ["page", "rows", "translate"]


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
    groups = {group: ", ".join([row.op for row in found if row.group == group]) for group in dict.fromkeys(row.group for row in found)}
    return "\n".join([f"{len(found)} ops.", "", "| group | ops |", "| --- | --- |", *(f"| {g} | {ops} |" for g, ops in groups.items())])
