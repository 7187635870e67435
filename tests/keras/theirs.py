"""Keras's own tests, which come in its wheel, on ngraph and on another backend.

`run BACKEND OUT PART...` runs the test modules below these folders of keras/src in as few processes as do not crash, and adds each case's
outcome to OUT, a line of JSON each; modules whose outcomes stand there are not run again. `--share N` runs one case in N, chosen by a hash
of its name. `compare OURS THEIRS` prints, of what passes on the other backend, the share that passes on ngraph, by folder, and the cases
that do not. `check OURS EXPECTED` ends with an error where a case fails that EXPECTED does not name, or passes although it does.
Run it with a Python that has Keras, pytest and the backend.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import types
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

LONGEST = 60  # seconds that one case may take

# of the modules that make no sense for a backend other than the one that they are named after
NOT_OURS = ("backend/jax", "backend/torch", "backend/tensorflow", "backend/openvino", "litert", "openvino", "tfsm", "saved_model")


def drawn(name: str, share: int) -> bool:
    """Whether a case belongs to the sample of one in `share`: by its name, never by its outcome."""
    return zlib.crc32(name.encode()) % share == 0


class Outcomes:
    """A plugin of pytest that appends each case's outcome to a file, and gives each a time limit."""

    def __init__(self, out: str, share: int):
        self.out = open(out, "a", encoding="utf-8")
        self.share = share

    def write(self, **line: Any) -> None:
        print(json.dumps(line), file=self.out, flush=True)

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        items[:] = [item for item in items if drawn(case_name(item.nodeid), self.share)]

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome == "failed":
            self.write(case=f"{case_name(report.nodeid)}::collection", outcome="failed", why=last_line(report), seconds=0)

    def pytest_runtest_setup(self, item: Any) -> None:
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(LONGEST)

    def pytest_runtest_teardown(self, item: Any) -> None:
        signal.alarm(0)

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self.write(begun=case_name(nodeid))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            why = {"why": last_line(report)} if report.outcome == "failed" else {}
            self.write(case=case_name(report.nodeid), outcome=report.outcome, seconds=round(report.duration, 3), **why)


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"the case took more than {LONGEST} s")


def case_name(nodeid: str) -> str:
    """Returns a case's name below keras/src."""
    return nodeid.split("keras/src/")[-1]


def last_line(report: Any) -> str:
    """Returns the error of a report in one line."""
    text = str(report.longrepr)
    return next((line for line in reversed(text.splitlines()) if line.startswith("E  ")), text[-200:])[:300]


def one(backend: str, out: str, share: int, paths: list[str]) -> None:
    """Runs modules in this process."""
    more = []
    if backend == "ngraph":
        import ngraph.keras.hook as hook

        # this module chooses a class and a device by the backend's name
        chain, text = hook.branch("backend.backend()", "    from ngraph.keras.trainer import NgraphTrainer as Trainer\n")
        place = re.compile(rf"{chain.pattern}|(?=\"tensorflow\": \"CPU:0\",)", re.MULTILINE)
        hook.BRANCHES["keras.src.trainers.trainer_test"] = place, lambda found: text if found.group() else '"ngraph": "cpu:0", '
        more = ["--assert=plain"]  # or pytest loads the module itself
    else:
        os.environ["KERAS_BACKEND"] = backend
    import pytest

    # what a few tests import of the conftest.py that Keras's wheel leaves out
    missing: Any = types.ModuleType("conftest")
    missing.skip_if_backend = lambda given, reason: pytest.mark.skipif(backend == given, reason=reason)
    sys.modules["conftest"] = missing
    kept = Outcomes(out, share)
    for path in paths:
        pytest.main(["-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", *more, path], plugins=[kept])
        kept.write(module=path.split("/keras/src/")[-1])


def modules(parts: list[str]) -> list[str]:
    """Returns the test modules below these folders, or these modules."""
    spec = importlib.util.find_spec("keras")
    assert spec is not None and spec.origin is not None
    home = Path(spec.origin).parent / "src"
    found: list[Path] = []
    for part in parts or ["."]:
        path = home / part
        found += [path] if path.is_file() else sorted(path.rglob("*_test.py"))
    return [str(p) for p in found if not any(n in str(p) for n in NOT_OURS)]


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(out).read_text().splitlines()] if Path(out).exists() else []


def run(backend: str, out: str, share: int, parts: list[str]) -> None:
    """Runs modules and writes their outcomes; a module in which the process dies is run no further."""
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    have = {line.get("module") for line in lines(out)}
    left = [m for m in modules(parts) if m.split("/keras/src/")[-1] not in have]
    while left:
        start, before = time.time(), len(lines(out))
        command = [sys.executable, __file__, "one", backend, out, *left, "--share", str(share)]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        new = lines(out)[before:]
        done = {line["module"] for line in new if "module" in line}
        left = [m for m in left if m.split("/keras/src/")[-1] not in done]
        counts = Counter(line["outcome"] for line in new if "outcome" in line)
        print(f"{len(done)} modules: {dict(counts)} {time.time() - start:.0f} s", flush=True)
        if left:  # the process ended in the midst of this one
            with open(out, "a", encoding="utf-8") as file:
                begun = next((line["begun"] for line in reversed(new) if "begun" in line), left[0])
                print(json.dumps({"case": begun, "outcome": "failed", "why": "the process ended", "seconds": 0}), file=file)
                print(json.dumps({"module": left[0].split("/keras/src/")[-1]}), file=file)
            del left[0]


def outcomes(out: str) -> dict[str, dict[str, Any]]:
    """Returns the line of each case; of several that which failed."""
    found: dict[str, dict[str, Any]] = {}
    for line in lines(out):
        if "case" in line and found.get(line["case"], {}).get("outcome") != "failed":
            found[line["case"]] = line
    return found


def part_of(case: str) -> str:
    """Returns the row of the table to which a case belongs: a folder, and of ops a module."""
    path = case.split("::")[0]
    return path if path.startswith("ops/") else path.split("/")[0]


def compare(ours: str, theirs: str) -> None:
    """Prints the share of what passes on the other backend that passes on ngraph."""
    a, b = outcomes(ours), outcomes(theirs)
    passed = [k for k, v in b.items() if v["outcome"] == "passed"]
    wanted, good = Counter(map(part_of, passed)), Counter(part_of(k) for k in passed if a.get(k, {}).get("outcome") == "passed")
    print("| part | pass on the other | of these on ngraph | share |\n| --- | --- | --- | --- |")
    for part in sorted(wanted):
        print(f"| `{part}` | {wanted[part]:,} | {good[part]:,} | {good[part] / wanted[part]:.1%} |")
    print(f"| all | {len(passed):,} | {sum(good.values()):,} | {sum(good.values()) / max(len(passed), 1):.1%} |")
    for k in passed:
        if a.get(k, {}).get("outcome") != "passed":
            line = a.get(k, {"outcome": "no outcome"})
            print(f"  {k}: {line['outcome']} {line.get('why', '')}")


def check(ours: str, expected: str) -> None:
    """Ends with an error where outcomes are not those that a file of expected failures, `case: reason` a line, lets one expect."""
    texts = [line for line in Path(expected).read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    reasons = dict(line.split(": ", 1) for line in texts)
    found = outcomes(ours)
    failed = [k for k, v in found.items() if v["outcome"] == "failed"]
    new = [k for k in failed if k not in reasons]
    gone = [k for k in reasons if found.get(k, {}).get("outcome") == "passed"]
    counts = Counter(v["outcome"] for v in found.values())
    print(f"Keras's own tests: {dict(counts)}; {len(failed) - len(new)} of the failures are expected")
    for k in new:
        print(f"  fails: {k}: {found[k].get('why', '')}")
    for k in gone:
        print(f"  passes, but stands in {expected}: {k}")
    if new or gone or not counts["passed"]:
        raise SystemExit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["run", "one", "compare", "check"])
    parser.add_argument("rest", nargs="+")
    parser.add_argument("--share", type=int, default=1)
    given = parser.parse_args()
    rest = given.rest
    if given.verb == "run":
        run(rest[0], rest[1], given.share, rest[2:])
    elif given.verb == "one":
        one(rest[0], rest[1], given.share, rest[2:])
    else:
        (compare if given.verb == "compare" else check)(*rest)


if __name__ == "__main__":
    main()
