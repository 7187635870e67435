"""The examples in the parts' own pages run, in a process that has no NumPy; the parts import nothing but Python's own modules."""

import ast
import os
import subprocess
import sys

import pytest

import ngraph.parts

FOLDER = os.path.dirname(ngraph.parts.__file__)
PARTS = sorted(file.removesuffix(".py") for file in os.listdir(FOLDER) if file.endswith(".py") and file != "__init__.py")
MOST = 800  # lines of all parts together: who reads them all stays a reader


@pytest.mark.parametrize("part", PARTS)
def test_examples_run_without_numpy(part):
    script = f"import doctest, sys, ngraph.parts.{part} as p; print(doctest.testmod(p), 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("TestResults(failed=0, attempted=") and "attempted=0" not in done.stdout, done.stdout
    assert done.stdout.endswith(" False\n")


def test_parts_are_small_and_stand_alone():
    lines = 0
    for part in [*PARTS, "__init__"]:
        with open(os.path.join(FOLDER, f"{part}.py"), encoding="utf-8") as source:
            text = source.read()
        lines += text.count("\n")
        for node in ast.walk(ast.parse(text)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            assert all(name.split(".")[0] in sys.stdlib_module_names for name in names), (part, names)
    assert lines <= MOST
