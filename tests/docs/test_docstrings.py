"""Docstrings open with what is returned or done, and the opening of each room links the glossary."""

import ast
import glob
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
QUESTION = re.compile(r"(What|Where|How|Which|Who)\b")


def questions(source):
    """Yields the lines of docstrings that open with a question word."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if QUESTION.match((ast.get_docstring(node) or "").strip()):
                yield node.body[0].lineno


def sources(*folders):
    """Yields (path, text) of every Python file in these folders."""
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(ROOT, folder, "**", "*.py"), recursive=True)):
            with open(path, encoding="utf-8") as file:
                yield os.path.relpath(path, ROOT), file.read()


def test_no_docstring_opens_with_a_question_word():
    assert [f"{path}:{line}" for path, text in sources("ngraph", "hunt") for line in questions(text)] == []


def test_such_an_opening_is_found():
    source = '"""Where it is."""\ndef f():\n    """Returns one."""\nclass C:\n    def g(self):\n        """What it gives."""\n'
    assert sorted(questions(source)) == [1, 6] and list(questions('"""Whether it is."""')) == []


def test_the_opening_of_each_room_links_the_glossary():
    rooms = [(p, t) for p, t in sources("ngraph") if p.count(os.sep) == 1 or (p.count(os.sep) == 2 and p.endswith("__init__.py"))]
    assert [path for path, text in rooms if "docs/glossary.md" not in (ast.get_docstring(ast.parse(text)) or "")] == []
