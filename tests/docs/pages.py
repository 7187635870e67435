"""Runs the Python blocks of a page in order, in one namespace, and prints the page with what they say in the `text` blocks after them.

Code is compiled under the page's own name and line numbers, so the lines that ngraph shows are lines of the page.
"""

import contextlib
import io
import re
import sys

BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.M | re.S)


def rerun(path, page):
    """`page` with its outputs as they are now."""
    space, said, parts, done = {"__name__": "page"}, "", [], 0
    for block in BLOCK.finditer(page):
        kind, body = block.groups()
        if kind == "text":
            parts += [page[done : block.start(2)], said]
            done = block.end(2)
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * page.count("\n", 0, block.start(2)) + body, path, "exec"), space)
        said = printed.getvalue()
    return "".join([*parts, page[done:]])


if __name__ == "__main__":
    sys.stdout.write(rerun(sys.argv[1], sys.stdin.read()))  # the page comes in, its name is an argument
