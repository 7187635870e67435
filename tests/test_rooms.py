"""The house stands as it was drawn: rooms import downwards only, late imports are of optional packages, no room is the house."""

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys

import pytest

import ngraph
from ngraph.tools import rooms


def test_a_room_imports_only_rooms_below_it():
    assert [f"{i.file}:{i.line} {i.room} -> {i.name}" for i in rooms.upward()] == []


def test_every_room_has_its_place():
    assert {room for _, room in rooms.files()} - {""} <= set(rooms.ORDER)


def test_every_room_has_its_line_in_the_essay():
    words = set(re.findall(r"[\w.]+", ngraph.__doc__))
    assert {room for _, room in rooms.files()} - {""} <= words


def test_the_name_of_a_class_means_one_thing():
    defined = {}
    for path, _ in rooms.files():
        with open(path, encoding="utf-8") as source:
            for node in ast.walk(ast.parse(source.read())):
                if isinstance(node, ast.ClassDef):
                    defined.setdefault(node.name, []).append(f"{path}:{node.lineno}")
    assert {name: where for name, where in defined.items() if len(where) > 1} == {}


def test_public_names_are_listed():
    """`from ngraph import *` and type checkers see the same names; the rooms behind them stay out."""
    assert all(hasattr(ngraph, n) for n in ngraph.__all__)  # which loads those that are loaded on first use
    public = {n for n, x in vars(ngraph.api).items() if not n.startswith("_") and not inspect.ismodule(x)}
    assert all(getattr(ngraph, n) is getattr(ngraph.api, n) for n in public)
    below = {n: getattr(importlib.import_module(room), n) for n, room in ngraph._BELOW.items()}
    assert all(getattr(ngraph, n) is x for n, x in below.items()) and not public & set(below)
    public |= set(below)
    assert all(getattr(ngraph, n) is not None for n in public) and set(ngraph.__all__) < set(dir(ngraph))
    assert sorted(ngraph.__all__, key=lambda n: (n.lower(), n)) == ngraph.__all__
    assert set(ngraph.__all__) == public | {"linalg", "testing", "transformers", "types"}
    assert [n for n in ngraph.__all__ if callable(getattr(ngraph, n)) and not (getattr(ngraph, n).__doc__ or "").strip()] == []


def test_what_formats_share_knows_none_of_them():
    """`frontends/positional` imports no frontend, and no package that reads a format."""
    home = os.path.join(rooms.HOME, "frontends", "positional", "")
    names = {i.name for i in rooms.imports() if i.file.startswith(home)}
    assert {n for n in names if n.startswith("ngraph.frontends.") and not n.startswith("ngraph.frontends.positional.")} == set()
    assert {n.split(".")[0] for n in names} <= {"ngraph", "numpy", "__future__"} | sys.stdlib_module_names


def test_functions_import_only_optional_packages():
    assert [f"{i.file}:{i.line} {i.name}" for i in rooms.hidden()] == []


def test_the_picture_in_the_docs_shows_the_rooms(golden):
    golden("docs/rooms.svg", rooms.map_of_rooms(lines=False))


def test_no_room_is_over_a_third_of_the_house():
    sizes = rooms.sizes()
    assert max(sizes.values()) <= 0.3 * sum(sizes.values()), sizes


@pytest.mark.parametrize(
    "text, check",
    [
        ("import toy.tools\n", rooms.upward),
        ("from toy.tools import x\n", rooms.upward),
        ("from ..tools import x\n", rooms.upward),
        ("def f():\n    from toy import tools\n", rooms.upward),
        ("if True:\n    import toy.nowhere\n", rooms.upward),
        ("later = deferred('toy.tools')\n", rooms.upward),
        ("def f():\n    import json\n", rooms.hidden),
    ],
)
def test_a_planted_mistake_is_found(tmp_path, text, check):
    for room, source in (("ops", text), ("tools", ""), ("nowhere", "")):
        (tmp_path / "toy" / room).mkdir(parents=True)
        (tmp_path / "toy" / room / "__init__.py").write_text(source)
    (tmp_path / "toy" / "__init__.py").write_text("")
    found = check(str(tmp_path / "toy"))
    assert [i.room for i in found] == ["ops"]


@pytest.mark.parametrize("inner, outer, wrong", [("import toy.runtime.a\n", "", ["runtime.host"]), ("", "import toy.runtime.host.b\n", [])])
def test_a_room_inside_a_package_is_below_the_rest_of_it(tmp_path, inner, outer, wrong):
    (tmp_path / "toy" / "runtime" / "host").mkdir(parents=True)
    (tmp_path / "toy" / "runtime" / "a.py").write_text(outer)
    (tmp_path / "toy" / "runtime" / "host" / "b.py").write_text(inner)
    assert [i.room for i in rooms.upward(str(tmp_path / "toy"))] == wrong
    assert set(rooms.sizes(str(tmp_path / "toy"))) == {"runtime", "runtime.host"}


def test_type_checking_imports_do_not_count(tmp_path):
    (tmp_path / "toy" / "ops").mkdir(parents=True)
    (tmp_path / "toy" / "tools.py").write_text('"""Docs."""\n\nx = 1  # one\n')
    (tmp_path / "toy" / "ops" / "a.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import toy.tools\n")
    assert rooms.upward(str(tmp_path / "toy")) == []
    assert rooms.sizes(str(tmp_path / "toy")) == {"tools": 1, "ops": 3}


def test_nothing_is_loaded_before_it_is_named():
    asked = "print(*[m in sys.modules for m in ('numpy', 'ngraph.ops')])"
    script = f"import ngraph, ngraph.parts.registry, sys; {asked}; ngraph.exp; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    before, after = done.stdout.splitlines()
    assert before == "False False" and {"numpy", "ngraph.api", "ngraph.ops.elementwise"} <= set(after.split())


def test_a_room_that_is_called_as_a_name_is_the_name():
    """`ng.config` is the settings, whatever module was imported first."""
    script = "import ngraph.transformers, ngraph.config, ngraph as ng; print(type(ng.config).__name__, ng.config is ng.api.config)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "Config True\n"


HEAVY = "llvmlite matplotlib torch onnx tensorflow tqdm unittest asyncio multiprocessing"


def test_import_ngraph_is_light():
    heavy = f"*[m for m in {HEAVY.split()} if m in sys.modules], *[m for m in sys.modules if 'frontends' in m]"
    script = f"import sys, ngraph; ngraph.exp; print({heavy})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
