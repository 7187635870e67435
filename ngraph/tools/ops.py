"""Prints the op records: the table of aspects, the core ops of the spec, and the reference page of all ops.

`ngraph ops --docs docs` writes the last two: `docs/ops.md`, and the table of `docs/spec.md` between its two marks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, getdoc, isfunction, signature, unwrap
from shutil import get_terminal_size
from typing import Any

import ngraph
import ngraph.api
from ngraph.errors import UnknownName, nearest
from ngraph.op_graph.files import told
from ngraph.op_graph.opdef import FIELDS, ONNX, OPS, REGISTRY, TENSORFLOW, TORCH, OpDef, core_ops, help_of
from ngraph.parts.registry import HOME
from ngraph.program.program import Step
from ngraph.tools.api import call, write_pages
from ngraph.tools.files import write
from ngraph.transformers.base import TRANSFORMERS
from ngraph.verbs import Answer, UsageError, verb

HEADINGS = ("op", "is", "gradient", "taken whole by", "kinds", "onnx", "torch", "tf", "meaning")
GROUPS = {
    "core": "The core ops, into which lowering takes every program apart. Each transformer runs all of them.",
    "made of others": "Lowering takes these apart into core ops, where no transformer takes them whole.",
    "leaf or effect": "What a graph starts from and what it does to state; lowering turns these into a program's two ends.",
}


def group(record: OpDef) -> str:
    """Returns the entry of GROUPS that a record belongs to."""
    return "core" if record.core and record.reference else "made of others" if record.lower else "leaf or effect"


def takers() -> dict[str, set[str]]:
    """Returns the composite ops that each transformer here runs as one op, tested with an empty step."""
    made = {name: cls() for name, cls in TRANSFORMERS.items() if not cls.unavailable()}
    taken = {name: {r.name for r in REGISTRY.values() if t.takes(Step((), r.name, (), {}))} for name, t in made.items()}
    for t in made.values():
        t.close()
    return taken


def aspects(record: OpDef, taken: dict[str, set[str]]) -> tuple[str, ...]:
    """Returns one row of the aspect table."""
    return (
        record.name,
        group(record),
        "yes" if record.grad else "of what it is made of" if record.lower else "-",
        " ".join(name for name, ops in taken.items() if record.name in ops) or "-",
        " ".join(record.kinds) if record.samples else "-",
        ONNX[record.name] or "-",
        TORCH[record.name] or "-",
        TENSORFLOW[record.name] or "-",
        record.doc,
    )


def columns(rows: Iterable[Sequence[str]]) -> str:
    """Returns rows with aligned columns."""
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in table)


def _parameters(function: Callable[..., Any] | None, skip: int) -> list[Parameter]:
    return list(signature(function).parameters.values())[skip:] if function else []


def form(record: OpDef) -> str:
    """Returns `gather(x, i…; axes, mode)`: the record's form; else the inputs of its functions, and the attributes of its type."""
    if record.form:
        return record.name + record.form
    named = [_parameters(record.grad, 2), _parameters(record.lower, 1), _parameters(record.reference, 1)]
    best = next((p for p in named if p and not any(i.kind is Parameter.VAR_POSITIONAL for i in p)), named[2])
    inputs = ", ".join(p.name + ("…" if p.kind is Parameter.VAR_POSITIONAL else "") for p in best)
    attrs = ", ".join(p.name for p in _parameters(record.type, 1) if p.kind is not Parameter.VAR_KEYWORD)
    return f"{record.name}({inputs}{f'; {attrs}' if attrs else ''})"


def spec() -> str:
    """Returns the core ops as the table of `docs/spec.md`."""
    rows = [f"| `{form(r)}` | {r.doc} |" for r in core_ops() if r.reference]
    return "\n".join(["| op(inputs; attrs) | meaning |", "| --- | --- |", *rows])


def _bound(record: OpDef) -> str:
    return f"{record.ulp:g} units in the last place" + (f", or {record.error:g}" if record.error else "")


def _gradient(record: OpDef) -> str:
    if not record.grad:
        return "that of the ops that it is made of" if record.lower else "none"
    return "yes" if record.smooth else "yes, where there is one"


def section(record: OpDef, taken: dict[str, set[str]]) -> str:
    """Returns the reference of one op, in Markdown."""
    facts = {"in Python": f"`ng.{record.name}`" if record.name in ngraph.api.__all__ else ""}
    if record.samples:
        facts |= {"kinds of elements": ", ".join(record.kinds), "error bound": _bound(record)}
    facts["gradient"] = _gradient(record)
    if group(record) != "core":
        facts["taken whole by"] = ", ".join(name for name, ops in taken.items() if record.name in ops)
    foreign = {"ONNX": ONNX[record.name], "PyTorch": TORCH[record.name], "TensorFlow": TENSORFLOW[record.name]}
    facts["elsewhere"] = ", ".join(f"{where} `{name}`" for where, name in foreign.items() if name)
    said = [f"- {what}: {fact}" for what, fact in facts.items() if fact]
    return "\n".join([f"### {record.name}", "", f"`{form(record)}`", "", record.doc, "", *said])


def reference() -> str:
    """Returns `docs/ops.md`: every op in a section of its own, by group, then by name."""
    taken = takers()
    parts = [
        "# The ops",
        "Printed from the op records by `make docs`. An op is written `name(inputs; attributes)`; `…` stands for any number of inputs, "
        "`→` for the dtype of the result where it is not that of the first input. *Kinds of elements* are those that its tests run on; "
        "the *error bound* is what a transformer may differ by from the exact value; *elsewhere* is the name of its counterpart.",
    ]
    for name, about in GROUPS.items():
        records = sorted([r for r in REGISTRY.values() if group(r) == name], key=lambda r: r.name)
        links = " · ".join(f"[{r.name}](#{r.name})" for r in records)
        parts += [f"## {name[0].upper()}{name[1:]}", about, links, *(section(r, taken) for r in records)]
    return "\n\n".join(parts) + "\n"


def marks(what: str) -> tuple[str, str]:
    """Returns the lines of a page between which the table of these ops stands."""
    return f"<!-- {what}, printed by `ngraph ops --docs docs` -->", f"<!-- the end of {what} -->"


def with_table(page: str, text: str, table: str, what: str = "the ops") -> str:
    """Returns a page's text with a table between its marks. Raises UsageError where these are missing."""
    before, first, rest = text.partition(marks(what)[0])
    _, second, after = rest.partition(marks(what)[1])
    if not first or not second:
        raise UsageError(f"{page} has no lines {' and '.join(map(repr, marks(what)))}, between which the table stands")
    return f"{before}{first}\n\n{table}\n\n{second}{after}"


def _write(folder: str) -> list[str]:
    page = os.path.join(folder, "spec.md")
    with told(page, "read"), open(page, encoding="utf-8") as file:
        pages = {page: with_table("spec.md", file.read(), spec(), "the core ops"), os.path.join(folder, "ops.md"): reference()}
    for name, package in FORMATS.items():
        page = os.path.join(folder, f"{name}.md")
        if os.path.exists(page) and find_spec(package):
            with open(page, encoding="utf-8") as file:
                pages[page] = with_table(f"{name}.md", file.read(), import_module(f"ngraph.frontends.{name}.support").page())
    for path, text in pages.items():
        write(path, text)
    return list(pages)


FORMATS = {"onnx": "onnx", "tensorflow": "google_crc32c"}  # frontends whose ops a page lists, and a package that each needs

SAID = ("fact", "value", "said at", "what it means")
SAYING = (  # modules that fill in facts when they are loaded
    "ngraph.codegen.math",
    "ngraph.codegen.routines",
    "ngraph.export.onnx.model",
)


def said(name: str) -> list[tuple[str, str, str, str]]:
    """Returns each fact about an op: its column, its value, its `file:line`, and the meaning of the column."""
    for module in SAYING:
        if not module.startswith("ngraph.export.onnx") or find_spec("onnx"):
            import_module(module)
    record = REGISTRY[name]
    rows = [
        (f, _short(shown(value)), _where(value), "of the record") for f in FIELDS if (value := getattr(record, f)) not in (None, "", {})
    ]
    for column, facts in OPS.facts(name).items():
        doc = OPS.columns[column].doc if column in OPS.columns else "no column: no room reads it"
        for k, fact in enumerate(facts):
            rows.append((column, shown(fact.value), _short(fact.where), doc if k == 0 else f"level {fact.level}, below {facts[0].level}"))
    return rows


def shown(value: Any) -> str:
    """Returns a fact in a few words: a function by its name."""
    name = getattr(value, "__name__", "")
    return str(value) if not name else "a function" if name == "<lambda>" else f"{name}()"


def _where(value: Any) -> str:
    code = getattr(value, "__code__", None)
    return "" if code is None else _short(f"{code.co_filename}:{code.co_firstlineno}")


def _short(where: str) -> str:
    return where.removeprefix(HOME.removesuffix(os.path.join("ngraph", "")))


def _arguments(parser: Any) -> None:
    parser.add_argument("op", nargs="?", metavar="OP", help="the help of this op or function, and each fact about it with its line")
    parser.add_argument("--spec", action="store_true", help="the core ops as the spec has them")
    parser.add_argument("--reference", action="store_true", help="every op in a section of its own, as Markdown")
    parser.add_argument("--onnx", action="store_true", help="the ops of ONNX and how each is read, as Markdown")
    parser.add_argument("--tensorflow", action="store_true", help="the ops of TensorFlow that are read, as Markdown")
    parser.add_argument("--api", metavar="FOLDER", help="write a page with every public name of ng, ng.linalg and neon into FOLDER")
    parser.add_argument("--docs", metavar="FOLDER", help="write the reference into FOLDER/ops.md, the core ops into FOLDER/spec.md")


@verb("ops", "print the table of op records", _arguments)
def ops(arguments: Any) -> Answer:
    """Runs `ngraph ops`, and prints the docs generated from the records."""
    if arguments.docs:
        written = _write(arguments.docs)
        return Answer("\n".join(written), written)
    if arguments.api:
        written = write_pages(arguments.api)
        return Answer("\n".join(written), written)
    if arguments.spec:
        return Answer(spec(), [{"op": r.name, "form": form(r), "meaning": r.doc} for r in core_ops() if r.reference])
    if arguments.reference:
        page = reference()
        return Answer(page.rstrip("\n"), page)
    for name in FORMATS:
        if getattr(arguments, name):
            support = import_module(f"ngraph.frontends.{name}.support")
            return Answer(support.page(), [row._asdict() for row in support.rows()])
    if arguments.op:
        return _told(arguments.op)
    taken = takers()
    rows = [aspects(r, taken) for r in REGISTRY.values()]
    text = _fitted(columns([("op", "meaning"), *((r[0], r[-1]) for r in rows)]))
    return Answer(text, [dict(zip(HEADINGS, row, strict=True)) for row in rows])


def _fitted(table: str) -> str:
    """Returns a table with lines that are as long as the terminal is wide, or shorter."""
    width = get_terminal_size((140, 24)).columns
    return "\n".join(line if len(line) <= width else f"{line[: width - 1].rstrip()}…" for line in table.split("\n"))


def _told(name: str) -> Answer:
    """Returns the help of an op, or of a function that is made of several, and what the record of the op says.

    Raises UsageError that names the nearest, or what to write here for a name of another library.
    """
    public: Any = ngraph
    try:
        for part in name.removeprefix("ng.").split("."):
            public = getattr(public, part)
    except AttributeError as error:
        public = None
        if name not in REGISTRY:
            known = nearest(name, [*REGISTRY, *ngraph.api.__all__])
            foreign = error.fix if isinstance(error, UnknownName) else ""
            fix = f"did you mean {known}?" if known else foreign or "`ngraph ops` prints them all"
            raise UsageError(f"there is no op or function {name!r}", fix=fix) from error
    record = public if isinstance(public, OpDef) else REGISTRY.get(name)
    text = _help_of_function(public) if isfunction(public) else "" if record is None else help_of(record)
    if not text:
        raise UsageError(f"{name!r} is no op or function", fix="`ngraph ops` prints the ops")
    facts = said(record.name) if record is not None else []
    table = columns([SAID, *facts])
    if max(map(len, table.split("\n"))) > get_terminal_size((140, 24)).columns:  # what they mean is the same for all ops: --json has it
        table = columns([row[:-1] for row in (SAID, *facts)])
    return Answer(
        f"{text}\n\n{_fitted(table)}" if facts else text, [dict(zip(SAID, row, strict=True)) for row in facts] if facts else {"help": text}
    )


def _help_of_function(function: Callable[..., Any]) -> str:
    """Returns how a function is called, its documentation, and its source."""
    module = "ng.linalg" if unwrap(function).__module__ == "ngraph.ops.linalg" else "ng"
    return f"{call(f'{module}.{function.__name__}', function)}\n\n{getdoc(function)}\n\nsource: {_where(unwrap(function))}"
