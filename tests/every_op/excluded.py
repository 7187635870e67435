"""The cells of the generated tests that are left out: record, dtype, check, transformer ("*": all; "a|b": these), and why.

Gradients of records that say `no_gradient_check` are left out for the reason given there, and count too.
"""

EXCLUDED: list[tuple[str, str, str, str, str]] = [
    ("compact", "*", "orders", "*", "a copy of a graph keeps its axes, so a run-time length stays that of the first graph"),
    ("cut", "*", "orders", "*", "a copy of a graph keeps its axes, so a run-time length stays that of the first graph"),
]
