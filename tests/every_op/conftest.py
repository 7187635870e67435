"""Prints how many cells of the generated tests are left out."""

import cells


def pytest_terminal_summary(terminalreporter):
    total, out = cells.count()
    terminalreporter.write_line(
        f"every op: {total} cells of record, dtype, check and transformer; {out} left out with a reason ({out / total:.2%})"
    )
