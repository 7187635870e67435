"""What the page on the parts claims: the three rooms import no op, and its program runs where no op has been imported."""

import os
import subprocess
import sys

from ngraph.tools import rooms

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARTS = ("op_graph", "program", "rewrite")

ALONE = """
import sys
sys.path.insert(0, "tests/docs")
import pages
page = open("docs/using-the-parts.md", encoding="utf-8").read()
assert pages.rerun("docs/using-the-parts.md", page) == page
print(*sorted({m.split(".")[1] for m in sys.modules if m.startswith("ngraph.")}))
"""


def test_the_page_runs_where_no_op_has_been_imported():
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == "" and set(done.stdout.split()) == {"config", "errors", "parts", "runtime", *PARTS}


def test_the_parts_import_each_other_only():
    assert {b for a, b in rooms.edges() if a in PARTS} <= {*PARTS, "config", "errors", "parts"}
