"""Keras's own tests, which come in its wheel, on ngraph and on another backend.

`run BACKEND OUT PART...` runs the test modules below these folders of keras/src, one process for each, and writes each case's outcome.
`compare NGRAPH OTHER` prints, of what passes on the other backend, the share that passes on ngraph, by folder, and the cases that do not.
Run it with a Python that has Keras, pytest and the backend.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

LONGEST = 1800  # seconds that one test module may take

# of the modules that make no sense for a backend other than the one that they are named after
NOT_OURS = ("backend/jax", "backend/torch", "backend/tensorflow", "backend/openvino", "litert", "openvino", "tfsm", "saved_model")


class Outcomes:
    """A plugin of pytest that keeps each case's outcome."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self.why: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.found[report.nodeid] = report.outcome
            if report.outcome == "failed":
                text = str(report.longrepr)
                self.why[report.nodeid] = next((line for line in reversed(text.splitlines()) if line.startswith("E  ")), text[-200:])[:300]


def one(backend: str, path: str, out: str) -> None:
    """Runs one module in this process."""
    if backend == "ngraph":
        import ngraph.keras  # noqa: F401
    else:
        os.environ["KERAS_BACKEND"] = backend
    import pytest

    kept = Outcomes()
    pytest.main(
        ["-q", "-x" if os.environ.get("FIRST") else "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", path], plugins=[kept]
    )
    Path(out).write_text(json.dumps({"found": kept.found, "why": kept.why}))


def modules(parts: list[str]) -> list[str]:
    """Returns the test modules below these folders, or these modules."""
    spec = importlib.util.find_spec("keras")
    assert spec is not None and spec.origin is not None
    home = Path(spec.origin).parent / "src"
    found = []
    for part in parts or ["."]:
        path = home / part
        found += [path] if path.is_file() else sorted(path.rglob("*_test.py"))
    return [str(p) for p in found if not any(n in str(p) for n in NOT_OURS)]


def run(backend: str, out: str, parts: list[str]) -> None:
    """Runs modules and writes their outcomes."""
    found: dict[str, str] = {}
    why: dict[str, str] = {}
    for path in modules(parts):
        start = time.time()
        made = Path(f"{out}.part")
        made.unlink(missing_ok=True)
        command = [sys.executable, __file__, "one", backend, path, str(made)]
        try:
            subprocess.run(command, timeout=LONGEST, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        except subprocess.TimeoutExpired:
            pass
        name = path.split("/keras/src/")[-1]
        if made.exists():
            more = json.loads(made.read_text())
            found.update({f"{name}::{k.split('::', 1)[-1]}": v for k, v in more["found"].items()})
            why.update({f"{name}::{k.split('::', 1)[-1]}": v for k, v in more["why"].items()})
            print(f"{name}: {dict(Counter(more['found'].values()))} {time.time() - start:.0f} s", flush=True)
        else:
            found[f"{name}::crash"] = "failed"
            print(f"{name}: no outcome", flush=True)
        Path(out).write_text(json.dumps({"found": found, "why": why}))


def compare(ours: str, theirs: str) -> None:
    """Prints the share of what passes on the other backend that passes on ngraph."""
    a, b = json.loads(Path(ours).read_text()), json.loads(Path(theirs).read_text())
    passed = [k for k, v in b["found"].items() if v == "passed"]
    wanted, good = Counter(k.split("/")[0] for k in passed), Counter(k.split("/")[0] for k in passed if a["found"].get(k) == "passed")
    for part in sorted(wanted):
        print(f"{part}: {good[part]} of {wanted[part]} ({good[part] / wanted[part]:.1%})")
    print(f"all: {sum(good.values())} of {len(passed)} ({sum(good.values()) / max(len(passed), 1):.1%})")
    for k in passed:
        if a["found"].get(k) != "passed":
            print(f"  {k}: {a['found'].get(k, 'no outcome')} {a['why'].get(k, '')}")


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "one":
        one(*rest)
    elif verb == "run":
        run(rest[0], rest[1], rest[2:])
    else:
        compare(*rest)
