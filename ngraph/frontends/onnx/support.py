"""The supported part of ONNX, printed from the table of translators: `ngraph ops --onnx`."""

from __future__ import annotations

from typing import NamedTuple

import onnx

from ngraph.frontends.onnx import graph, table, translate

__all__ = ["page", "rows", "translate"]

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")


class SupportedOp(NamedTuple):
    """One op: its domain, its name, the versions in which it was changed, and how it is read; "" where it is not."""

    domain: str
    op: str
    versions: list[int]
    how: str


def rows() -> list[SupportedOp]:
    """Every op of the standard, and those of other domains that have a translator."""
    found: dict[tuple[str, str], list[int]] = {}
    for s in onnx.defs.get_all_schemas_with_history():
        if s.domain in DOMAINS and not s.deprecated:
            found.setdefault((s.domain, s.name), []).append(s.since_version)
    for key, entries in table.TABLE.items():
        found.setdefault(key, [since for since, _ in entries])
    return [SupportedOp(d, op, sorted(v), how(d, op, max(v))) for (d, op), v in sorted(found.items())]


def how(domain: str, op: str, version: int) -> str:
    if table.find(domain, op, version) is not None:
        return "translator"
    if domain == "" and op in table.one_to_one():
        return "one of ours"
    return "function of the standard" if graph.known(domain, op, version) else ""


def page() -> str:
    """The table, as Markdown."""
    found = rows()
    lines = []
    for domain in dict.fromkeys(r.domain for r in found):
        mine = [r for r in found if r.domain == domain]
        lines += ["", f"### {domain or 'ai.onnx'}", "", "| op | versions | read as |", "| --- | --- | --- |"]
        lines += [f"| {r.op} | {' '.join(map(str, r.versions))} | {r.how or '**not yet**'} |" for r in mine]
    return "\n".join(lines[1:])
