"""The documentation says what is so: its code runs and prints what the page shows, its links lead somewhere, its index lists every page."""

import glob
import os
import re
import subprocess
import sys
import tempfile

import pytest

from ngraph.frontends import neon
from ngraph.tools import errors

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RUN = os.path.join("tests", "docs", "pages.py")
PAGES = sorted(["README.md", *(os.path.relpath(f, ROOT) for f in glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True))])
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, os.path.join(ROOT, "examples")]), "PYTHONIOENCODING": "utf-8"}
ENVIRONMENT["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="torch_cache_")  # a graph found in it has the lines of an older page
SETTINGS = ("DEBUG", "DUMP", "CHECK", "NGRAPH_TRANSFORMER", "NGRAPH_EXACT", "NGRAPH_STRICT", "NGRAPH_SEED")


def read(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return file.read()


def rerun(path, page):
    """The page with its outputs as they are now; again where that moved lines whose numbers it shows."""
    plain = {k: v for k, v in ENVIRONMENT.items() if k not in SETTINGS}
    for _ in range(3):
        before = page
        done = subprocess.run(
            [sys.executable, RUN, path], input=page, cwd=ROOT, env=plain, capture_output=True, text=True, encoding="utf-8"
        )
        assert done.returncode == 0, done.stderr
        page = done.stdout
        if page == before:
            break
    return page


@pytest.mark.parametrize("page", [p for p in PAGES if "```python" in read(p)])
def test_code_prints_what_the_page_shows(page, golden):
    golden(page, rerun(page, read(page)))


def test_an_output_that_is_wrong_is_found():
    page = "```python\nx = 1\n```\n\n```python\nprint(x + 1)\n```\n\n```text\n3\n```\n"
    assert rerun("page.md", page) == page.replace("3", "2")


def test_lines_of_the_page_are_those_that_are_shown():
    code = "```python\nimport ngraph as ng\n\nprint(ng.constant(1).line[1])\nprint('two lines')\n```\n\n```text\n```\n"
    assert rerun("page.md", code + code).count("\n4\n") == 1 and "\n15\n" in rerun("page.md", code + code)


def test_every_output_stands_behind_code_that_prints():
    for page in PAGES:
        kinds = re.findall(r"^```(python|text)$", read(page), re.M)
        assert all(k == "python" or before == "python" for before, k in zip([None, *kinds], kinds, strict=False)), page


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", re.sub(r"`[^`\n]*`", "", read(page)))
    folder = os.path.join(ROOT, os.path.dirname(page))
    assert [link for link in links if not os.path.exists(os.path.join(folder, link))] == []


def test_the_index_lists_every_page():
    listed = set(re.findall(r"\]\(([^)#:]+)\)", read("docs/README.md")))
    there = {os.path.basename(p) for p in PAGES if os.path.dirname(p) == "docs"} - {"README.md"}
    assert there <= listed
    in_the_site = re.findall(r"^(?:[^`:{}\n]* <)?([\w-]+)>?$", re.sub(r"(?s)^.*?```{toctree}", "", read("docs/index.md"), count=1), re.M)
    assert {name.removesuffix(".md") for name in there} - {"index"} == set(in_the_site)
    assert {f"decisions/{os.path.basename(p)}" for p in PAGES if os.path.dirname(p) == "docs/decisions"} <= listed


def test_the_layer_reference_has_every_name():
    page = read("docs/neon-layers.md")
    described = set(re.findall(r"^\.\. auto(?:class|function):: (\w+)$", page, re.M))
    assert described <= set(dir(neon))
    assert [n for n in neon.__all__ if n not in described and f"`{n}`" not in page] == []


def test_pages_that_the_source_points_to_are_there():
    missing = []
    for file in glob.glob(os.path.join(ROOT, "ngraph", "**", "*.py"), recursive=True):
        for name in re.findall(r"docs/[\w/.-]*\w", read(file)):
            if not glob.glob(os.path.join(ROOT, name + "*")):
                missing.append((file, name))
    assert missing == []


def test_the_error_reference_is_what_the_command_prints(golden):
    command = [sys.executable, "-m", "ngraph.tools", "errors", "--docs"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True, env=ENVIRONMENT)
    golden("docs/errors.md", done.stdout)


def test_every_error_says_how_to_mend_it():
    for c in errors.classes():
        assert c.__doc__ and len(c.__doc__) > 60, c


def test_the_glossary_has_at_most_fifty_words_in_order():
    words = re.findall(r"^\| (\w[^|]*) \|", read("docs/glossary.md"), re.M)[1:]
    assert 20 < len(words) <= 50 and words == sorted(words, key=str.lower)
