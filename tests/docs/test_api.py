"""The pages of public names are what the command prints, and have every name once."""

import re

import pytest

import ngraph as ng
from ngraph.frontends import neon
from ngraph.tools import api

PAGES = api.pages()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_is_what_the_source_says(name, golden):
    golden(f"docs/api/{name}", PAGES[name])


@pytest.mark.parametrize("name, module", [("ng.md", ng), ("neon.md", neon), ("linalg.md", ng.linalg)])
def test_a_page_has_every_public_name_once(name, module):
    page, names = PAGES[name], api.public(module)
    sections = re.findall(r"(?m)^### (\w+)$", page)
    dtypes = [n for n, thing in names.items() if isinstance(thing, api.DType)]
    assert len(names) >= 14 and sorted([*sections, *dtypes]) == sorted(names)
    assert all(f"`{n}`" in page for n in dtypes)


def test_a_page_reads_on_a_file_host():
    for page in PAGES.values():
        assert "```{" not in page and ".. auto" not in page and " at 0x" not in page
        assert page.count("```") % 2 == 0 and "\\>\\>\\>" not in page


def test_a_docstring_becomes_markdown():
    indented = "Returns a.\n\n    >>> f(1)\n    2"
    assert api.text(indented) == "Returns a.\n\n```python-console\n>>> f(1)\n2\n```"
    doc = "Returns a*b.\n\nx, y: numbers\nof any kind.\nRaises AxisError.\n\n>>> f(1)\n2"
    assert (
        api.text(doc) == "Returns a\\*b.\n\n- `x`, `y`: numbers\nof any kind.\n\nRaises AxisError.\n\n```python-console\n>>> f(1)\n2\n```"
    )
