"""Pages with every public name of a module, from signatures and docstrings, in Markdown: `ngraph ops --api docs/api` writes them."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from inspect import Parameter, cleandoc, getdoc, isclass, isfunction, ismodule, signature
from typing import Any

from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.opdef import OpDef
from ngraph.tools.files import write

PAGES = {
    "ng": ("ngraph", "ngraph", "Every public name of `ngraph`, which programs import as `ng`."),
    "linalg": (
        "ngraph.linalg",
        "ngraph.ops.linalg",
        "Linear algebra over two named axes; all others are batch axes. `ng.linalg` has these names.",
    ),
    "neon": ("neon", "ngraph.frontends.neon", "Every public name of `ngraph.frontends.neon`: layers, costs, optimizers, data, training."),
}
PRINTED = "Printed from the source by `make docs`; `help` shows the same."


def public(module: Any) -> dict[str, Any]:
    """Returns the public names of a module with their objects: those of `__all__`, else the functions and classes written in it."""
    listed = getattr(module, "__all__", None)
    if listed is None:
        own = {n: o for n, o in vars(module).items() if n[0] != "_" and getattr(o, "__module__", "") == module.__name__}
        return {n: o for n, o in sorted(own.items()) if isfunction(o)}
    return {n: getattr(module, n) for n in sorted(listed, key=lambda n: (n.lower(), n))}


def call(name: str, thing: Any) -> str:
    """Returns `name(x, axis, k=1)`: parameters with their defaults, without annotations. Of what takes no arguments the name."""
    try:
        parameters = list(signature(thing).parameters.values())
    except (TypeError, ValueError):
        return name
    plain = [p.replace(annotation=Parameter.empty) for p in parameters]
    return name + re.sub(r" at 0x\w+", "", str(signature(thing).replace(parameters=plain, return_annotation=Parameter.empty)))


def escaped(text: str) -> str:
    """Returns text in which nothing outside backticks is a mark of Markdown."""
    parts = re.split(r"(`[^`\n]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*_<>\[\]|\\`#])", r"\\\1", p) for p in parts)


def _paragraphs(doc: str) -> Iterator[str]:
    for part in re.split(r"\n\s*\n|\n(?= *>>> )", doc):
        yield cleandoc(part) if part.lstrip().startswith(">>> ") else _lines(part)


def _lines(part: str) -> str:
    """Returns a paragraph of a docstring; lines that explain arguments become a list, which a new sentence on a line of its own ends."""
    made: list[str] = []
    listed = False
    for line in part.splitlines():
        named = re.match(r"([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*): (.*)", line)
        if named and named[1].lower() != "source":
            made += [] if listed or not made else [""]
            line, listed = f"- {', '.join(f'`{n}`' for n in named[1].split(', '))}: {escaped(named[2])}", True
        else:
            ends = listed and made[-1].endswith(".") and line[:1].isupper()
            made += [""] if ends else []
            line, listed = escaped(line.strip()), listed and not ends
        made.append(line)
    return "\n".join(made)


def text(doc: str) -> str:
    """Returns a docstring as Markdown: examples as blocks, arguments as lists. Line numbers, which every edit changes, are left out."""
    lasting = re.sub(r"(?m)^(source: \S+\.py):\d+$", r"\1", doc)
    return "\n\n".join(f"```python-console\n{p}\n```" if p.startswith(">>> ") else p for p in _paragraphs(lasting))


def _methods(cls: type) -> list[str]:
    """Returns the public methods and properties that a class adds, one line each."""
    found = []
    for name in [n for n in vars(cls) if n[0] != "_"]:
        getattr(cls, name)  # methods whose function is looked up on first use replace themselves, in their place
    for name, thing in vars(cls).items():
        plain = thing.__func__ if isinstance(thing, staticmethod | classmethod) else thing
        doc = (cleandoc(getattr(plain, "__doc__", None) or "")).split("\n\n")[0].replace("\n", " ")
        if name[0] != "_" and doc and (isfunction(plain) or isinstance(plain, property)):
            found.append(f"- `.{call(name, plain).replace('(self, ', '(').replace('(self)', '()')}`: {escaped(doc)}")
    return found


def entry(name: str, thing: Any) -> str:
    """Returns the section of one name."""
    said = [f"### {name}"]
    if isinstance(thing, OpDef):
        doc = (getdoc(thing) or "").split("\n\n", 1)
        return "\n\n".join([*said, f"`{call(name, thing)}`", text(doc[-1])])
    if ismodule(thing):
        return "\n\n".join([*said, f"A module: {escaped((getdoc(thing) or '').split(chr(10))[0])}"])
    said += [f"`{call(name, thing)}`"] if callable(thing) else []
    said += [text(getdoc(thing) or "")]
    return "\n\n".join(filter(None, [*said, "\n".join(_methods(thing)) if isclass(thing) else ""]))


def home(thing: Any) -> str:
    """Returns the module that a name is written in."""
    if isinstance(thing, OpDef):
        path = thing.where.rpartition(":")[0]
        return path[path.rindex("ngraph" + os.sep) :].removesuffix(".py").replace(os.sep, ".")
    return thing.__name__ if ismodule(thing) else str(getattr(thing, "__module__", type(thing).__module__))


def _links(names: list[str], seen: Counter[str]) -> str:
    """Returns links to sections; a name that differs from one before in capitals only has a number, as file hosts count."""
    found = []
    for name in names:
        slug = name.lower()
        found.append(f"[{name}](#{slug}{f'-{seen[slug]}' if seen[slug] else ''})")
        seen[slug] += 1
    return " · ".join(found)


def page(title: str, module: Any, about: str) -> str:
    """Returns the page of a module: its names by the file that they are written in."""
    names = public(module)
    dtypes = [n for n, thing in names.items() if isinstance(thing, DType)]
    groups: dict[str, list[str]] = {}
    for name in names:
        if name not in dtypes:
            groups.setdefault(home(names[name]), []).append(name)
    seen: Counter[str] = Counter(re.sub(r"[^\w-]", "", g.lower()) for g in [title, *groups])
    parts = [f"# {title}", f"{about} {PRINTED}"]
    if dtypes:
        parts.append(f"Element types: {', '.join(f'`{n}`' for n in dtypes)}.")
    for group, members in sorted(groups.items()):
        about = (getattr(sys.modules.get(group), "__doc__", None) or "").strip().split("\n\n")[0].replace("\n", " ")
        parts += [f"## {group}", escaped(about), _links(members, seen), *(entry(n, names[n]) for n in members)]
    return "\n\n".join(filter(None, parts)) + "\n"


def pages() -> dict[str, str]:
    """Returns the pages by the name of their file."""
    return {f"{name}.md": page(title, import_module(module), about) for name, (title, module, about) in PAGES.items()}


def write_pages(folder: str) -> list[str]:
    """Writes the pages into a folder; returns their paths."""
    made = {os.path.join(folder, name): text for name, text in pages().items()}
    for path, content in made.items():
        write(path, content)
    return list(made)
