"""Keras's own tests, which come in its wheel, on ngraph and on another backend.

`run BACKEND OUT PART...` runs the test modules below these folders of keras/src in as few processes as do not crash, and adds each case's
outcome to OUT, a line of JSON each; cases whose outcomes stand there are not run again. `--share N` runs one case in N, chosen by a hash
of its name, `--cases FILE` those that a file names. `compare OURS THEIRS` prints what share of what passes on the other backend passes
on ngraph, by folder, and the cases that do not. `check FILE FOLDER...` runs those cases of FILE in these folders, and ends with an
error where one does not end as FILE says. `draw OUT FILE N` writes FILE: one in N of the cases in OUT, and those below `# always`.
Run it with a Python that has Keras, pytest and the backend.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import types
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

LONGEST = 60  # seconds that one case may take

# of the modules that make no sense for a backend other than the one that they are named after
NOT_OURS = ("backend/jax", "backend/torch", "backend/tensorflow", "backend/openvino", "litert", "openvino", "tfsm", "saved_model")


def drawn(name: str, share: int) -> bool:
    """Whether a case belongs to the sample of one in `share`: by its name, never by its outcome."""
    return zlib.crc32(name.encode()) % share == 0


class Missing:
    """Finds JAX, TensorFlow and Grain, where they are not installed, as empty packages, while test modules are read that import them."""

    def __init__(self) -> None:
        self.names = [n for n in ("jax", "tensorflow", "grain") if importlib.util.find_spec(n) is None]

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        found = fullname.split(".")[0] in self.names
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if found else None  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        return None

    def __enter__(self) -> None:
        sys.meta_path.append(self)  # type: ignore[arg-type]

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        for name in [n for n in sys.modules if n.split(".")[0] in self.names]:
            del sys.modules[name]


class Outcomes:
    """A plugin of pytest that appends each case's outcome to a file, and gives each a time limit."""

    def __init__(self, out: str, chosen: Callable[[str], bool]):
        have = outcomes(out)
        self.out = open(out, "a", encoding="utf-8")
        self.chosen = lambda case: case not in have and chosen(case)

    def write(self, **line: Any) -> None:
        print(json.dumps(line), file=self.out, flush=True)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self, session: Any) -> Any:
        with Missing():
            return (yield)

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        items[:] = [item for item in items if self.chosen(case_name(item.nodeid))]

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome == "failed":
            self.write(case=f"{case_name(report.nodeid)}::collection", outcome="failed", why=last_line(report), seconds=0)

    def pytest_runtest_setup(self, item: Any) -> None:
        # these cases draw data and weights without a seed, and some bounds hold for most draws alone
        seed = zlib.crc32(case_name(item.nodeid).encode())
        random.seed(seed)
        np.random.seed(seed)
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
    """Returns the error of a report in one line: the first of its message."""
    text = [line for line in str(report.longrepr).splitlines() if line]
    named = [line for line in text if re.match(r"[\w.]*(Error|Exception|Failed|Interrupt)\b", line)]
    return (named or text)[-1][:300]


def one(backend: str, out: str, chosen: Callable[[str], bool], paths: list[str]) -> None:
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
    # what a few tests import of the conftest.py that Keras's wheel leaves out
    missing: Any = types.ModuleType("conftest")
    missing.skip_if_backend = lambda given, reason: pytest.mark.skipif(backend == given, reason=reason)
    sys.modules["conftest"] = missing
    kept = Outcomes(out, chosen)
    for path in paths:  # none of our settings, and no collection of garbage after each module
        alone = ["-c", os.devnull, "--rootdir", path.split("/keras/src/")[0], "-p", "no:cacheprovider", "-p", "no:unraisableexception"]
        pytest.main(["-q", "--no-header", "--tb=native", *alone, *more, path], plugins=[kept])
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


def run(backend: str, out: str, options: list[str], parts: list[str]) -> None:
    """Runs modules and writes their outcomes; a module in which the process dies is run no further."""
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    have = {line.get("module") for line in lines(out)}
    left = [m for m in modules(parts) if m.split("/keras/src/")[-1] not in have]
    while left:
        start, before = time.time(), len(lines(out))
        command = [sys.executable, __file__, "one", backend, out, *left, *options]
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


def named(path: str) -> dict[str, str]:
    """Returns the cases of a file, and for each the reason why it is expected to fail, or nothing: a line is `case  # reason`."""
    texts = [line.partition("  # ") for line in Path(path).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {case: reason for case, _, reason in texts}


def surprises(out: str, cases: dict[str, str]) -> list[str]:
    """Returns a line for each of these cases whose outcome is not the expected one: to pass, or to fail where a reason says so."""
    found = outcomes(out)
    told = []
    for case, reason in cases.items():
        line = found.get(case, {"outcome": "not found", "why": "the module has no such case, or could not be read"})
        if reason and line["outcome"] == "passed":
            told.append(f"{case}: passes, but is expected to fail: {reason}")
        elif line["outcome"] != ("failed" if reason else "passed"):
            told.append(f"{case}: {line['outcome']}: {line.get('why', '')}")
    unread = [f"{k}: {v.get('why', '')}" for k, v in found.items() if k not in cases and v["outcome"] == "failed"]
    return told + unread


def check(path: str, parts: list[str]) -> None:
    """Runs the cases of a file that belong to these folders; ends with an error, and a line for each, where outcomes surprise."""
    cases = {case: reason for case, reason in named(path).items() if case.split("/")[0] in parts}
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/outcomes.jsonl"
        run("ngraph", out, ["--cases", path], sorted({case.split("::")[0] for case in cases}))
        told = surprises(out, cases)
    print(f"{len(cases) - len(told)} of {len(cases)} cases of Keras's own tests end as {path} says", *told, sep="\n")
    if told or not cases:
        raise SystemExit(1)


def draw(out: str, path: str, share: int) -> None:
    """Writes a file of cases: one in so many of those in OUT that ran with the packages here, and those below `# always`."""
    found = outcomes(out)
    head, mark, always = Path(path).read_text(encoding="utf-8").partition("# always")
    first = [line for line in head.splitlines() if line.startswith("#")]
    kept = {line.partition("  # ")[0] for line in always.splitlines()}
    lacking = re.compile(r"(module named|module|requires|requires the) '?(jax|tensorflow|grain)\b", re.IGNORECASE)
    rows = []
    for case, line in sorted(found.items()):
        why = line.get("why", "")
        ran = line["outcome"] != "skipped" and not case.endswith("::collection") and not lacking.search(why)
        if ran and drawn(case, share) and case not in kept:
            rows.append(case + (f"  # {why}" if line["outcome"] == "failed" else ""))
    Path(path).write_text("\n".join([*first, *rows]) + f"\n{mark}{always}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["run", "one", "compare", "check", "draw"])
    parser.add_argument("rest", nargs="+")
    parser.add_argument("--share", type=int, default=1)
    parser.add_argument("--cases")
    given = parser.parse_intermixed_args()
    rest = given.rest
    if given.verb == "run":
        cases = ["--cases", given.cases] if given.cases else []
        run(rest[0], rest[1], ["--share", str(given.share), *cases], rest[2:])
    elif given.verb == "one":
        these = named(given.cases) if given.cases else None
        one(rest[0], rest[1], lambda case: drawn(case, given.share) and (these is None or case in these), rest[2:])
    elif given.verb == "check":
        check(rest[0], rest[1:])
    elif given.verb == "compare":
        compare(*rest)
    else:
        draw(rest[0], rest[1], int(rest[2]))


if __name__ == "__main__":
    main()
