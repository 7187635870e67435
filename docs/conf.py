"""Settings of Sphinx: `make html` makes a site of these pages, with every warning an error."""

import re

import ngraph

project, release = "ngraph", ngraph.__version__
copyright = "the ngraph developers"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"
exclude_patterns = ["README.md"]  # the index for those who read the folder itself
html_theme, html_title = "furo", "ngraph"
html_copy_source = html_show_copyright = False
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]  # links to files outside this folder, which a test follows
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 100


def as_plain_text(app, what, name, obj, options, lines):
    """Docstrings are plain text with `code`: what reStructuredText would take for its own marks is escaped."""
    for k, line in enumerate(lines):
        parts = re.split(r"(`[^`]*`)", line)
        lines[k] = "".join(f"`{p}`" if p.startswith("`") else re.sub(r"([*|\\]|_(?!\w))", r"\\\1", p) for p in parts)


def setup(app):
    app.connect("autodoc-process-docstring", as_plain_text)
