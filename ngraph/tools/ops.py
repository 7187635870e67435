"""Tables printed from the op records: who has a gradient, who is core, what it is called elsewhere; and the core ops of the spec."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, signature
from typing import Any

import ngraph  # noqa: F401  all records are registered
from ngraph.op_graph.opdef import REGISTRY, OpDef, core_ops
from ngraph.verbs import Answer, verb

HEADINGS = ("op", "core", "gradient", "kinds", "onnx", "meaning")


def aspects(record: OpDef) -> tuple[str, ...]:
    """One row of the aspect table."""
    return (
        record.name,
        "core" if record.core and record.reference else "made of others" if record.lower else "leaf or effect",
        "yes" if record.grad else "-",
        " ".join(record.kinds) if record.samples else "-",
        record.onnx or "-",
        record.doc,
    )


def columns(rows: Iterable[Sequence[str]]) -> str:
    """Rows with their columns under each other."""
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in table)


def _parameters(function: Callable[..., Any] | None) -> list[Parameter]:
    return list(signature(function).parameters.values()) if function else []


def form(record: OpDef) -> str:
    """`gather(x, indices…; axes, mode)`: inputs as the record's functions name them, then attributes."""
    named = [_parameters(record.grad)[2:], _parameters(record.lower)[1:], _parameters(record.reference)[1:]]
    best = next((p for p in named if p and not any(i.kind is Parameter.VAR_POSITIONAL for i in p)), named[2])
    inputs = ", ".join(p.name + ("…" if p.kind is Parameter.VAR_POSITIONAL else "") for p in best)
    attrs = ", ".join(p.name for p in _parameters(record.type)[1:] if p.kind is not Parameter.VAR_KEYWORD)
    said = record.attrs.get("form")
    return f"{record.name}({said if said is not None else inputs + (f'; {attrs}' if attrs else '')})"


def spec() -> str:
    """The core ops as the table of `docs/spec.md`."""
    rows = [f"| `{form(r)}` | {r.doc} |" for r in core_ops() if r.reference]
    return "\n".join(["| op(inputs; attrs) | meaning |", "| --- | --- |", *rows])


@verb(
    "ops",
    "print the table of op records",
    lambda p: p.add_argument("--spec", action="store_true", help="the core ops as the spec has them"),
)
def ops(arguments: Any) -> Answer:
    """`ngraph ops` and `ngraph ops --spec`."""
    if arguments.spec:
        return Answer(spec(), [{"op": r.name, "form": form(r), "meaning": r.doc} for r in core_ops() if r.reference])
    rows = [aspects(r) for r in REGISTRY.values()]
    return Answer(columns([HEADINGS, *rows]), [dict(zip(HEADINGS, row, strict=True)) for row in rows])
