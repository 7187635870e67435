"""The pages that are printed from the records are today's. Another process prints them: here, tests may have added records."""

import os
import subprocess
import sys

import pytest

from ngraph.op_graph.opdef import REGISTRY, core_ops
from ngraph.tools import ops
from ngraph.verbs import UsageError

DOCS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "docs")


UTF8 = {**os.environ, "PYTHONUTF8": "1"}


def page(name):
    with open(os.path.join(DOCS, name), encoding="utf-8") as file:
        return file.read()


def printed(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "ngraph.tools", "ops", *arguments], capture_output=True, encoding="utf-8", env=UTF8, check=True
    )
    return done.stdout


CORE = ops.marks("the core ops")


def test_the_reference_of_the_ops_is_what_the_records_say():
    assert printed("--reference") == page("ops.md"), "docs/ops.md differs; `make docs` rewrites it"


def test_the_core_ops_of_the_spec_are_what_the_records_say():
    between = page("spec.md").partition(CORE[0])[2].partition(CORE[1])[0]
    assert printed("--spec").strip() == between.strip(), "the table in docs/spec.md differs; `make docs` rewrites it"


def test_every_core_op_says_how_it_is_written():
    assert not [r.name for r in core_ops() if r.reference and not r.form]
    assert len([r for r in core_ops() if r.reference]) == 62, "one op more is a decision"
    assert "There are sixty-two core ops." in page("spec.md")


def test_every_record_has_one_section_with_its_form_meaning_and_gradient():
    sections = {s.split("\n")[0]: s for s in page("ops.md").split("\n### ")[1:]}
    names = printed().splitlines()[1:]
    assert len(sections) == len(names) and set(sections) <= set(REGISTRY)
    for name, text in sections.items():
        assert f"`{ops.form(REGISTRY[name])}`" in text and REGISTRY[name].doc in text and "- gradient: " in text
    assert "- gradient: none" in sections["compare"] and "- gradient: yes" in sections["tanh"]
    assert "ONNX `Tanh`" in sections["tanh"] and "`ng.tanh`" in sections["tanh"]


def test_the_docs_are_written_into_a_folder(tmp_path):
    (tmp_path / "spec.md").write_text(f"before\n{CORE[0]}\nan old table\n{CORE[1]}\nafter\n")
    assert printed("--docs", str(tmp_path)).split() == [str(tmp_path / "spec.md"), str(tmp_path / "ops.md")]
    text = (tmp_path / "spec.md").read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "an old table" not in text and "| `add(x, y)` |" in text
    assert (tmp_path / "ops.md").read_text() == page("ops.md")


def test_a_spec_without_marks_is_refused():
    with pytest.raises(UsageError, match="between which the table stands"):
        ops.with_table("spec.md", "no marks here", "a table")
