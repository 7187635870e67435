"""Runs kinds of cases in processes of their own, so that a case which ends its process or never ends is a find like any other."""

import contextlib
import importlib
import json
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

SECONDS = 60.0  # that one case may take before it counts as one that never ends; the slowest honest ones take a few
REDUCTIONS = 400  # the most cases that one find is reduced by: enough for some forty parts, each tried ten times
PAUSE = 120.0  # the most seconds that one find is reduced for


class Find(NamedTuple):
    """A case that shows a difference: its kind, the seed it was drawn from, the reduced case, and what differs."""

    kind: str
    seed: int
    case: Any
    differs: str


def module(kind: str) -> Any:
    """The module of a kind."""
    return importlib.import_module(f"{__package__}.{kind}")


def check(kind: str, case: Any) -> str | None:
    """What `check` of the kind says of a case; an exception is a difference, too."""
    try:
        return module(kind).check(case)
    except Exception:
        return "raises\n" + traceback.format_exc(limit=-6)


def _serve(pipe: Connection) -> None:
    """Answers (kind, seed or None, case) by (case, what differs), until the pipe closes."""
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            kind, seed, case = pipe.recv()
            if seed is not None:
                case = module(kind).draw(seed)
                pipe.send(case)  # before it is checked: whoever asked has it, should this process end
            pipe.send(check(kind, case))


class Worker:
    """A process that checks cases; another one stands in for it where a case has ended it."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.process: Any = None

    def start(self) -> None:
        self.pipe, theirs = self.context.Pipe()
        self.process = self.context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, kind: str, seed: int | None, case: Any = None) -> tuple[Any, str | None]:
        """The case, and what differs. A process that ends or takes more than `SECONDS` is a difference."""
        if self.process is None or not self.process.is_alive():
            self.start()
        ends = time.monotonic() + SECONDS
        try:
            self.pipe.send((kind, seed, case))
            if seed is not None:
                if not self._wait(ends):
                    return None, f"draw({seed}) took more than {SECONDS:.0f} seconds"
                case = self.pipe.recv()
            if not self._wait(ends):
                return case, f"took more than {SECONDS:.0f} seconds"
            return case, self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            code = self.process.exitcode
            return case, f"ended the process: {signal.Signals(-code).name if code < 0 else f'exit {code}'}"

    def _wait(self, ends: float) -> bool:
        if self.pipe.poll(max(0.0, ends - time.monotonic())):
            return True
        self.stop()
        return False

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def reduced(worker: Worker, kind: str, case: Any, differs: str) -> tuple[Any, str]:
    """The simplest case found by following `smaller` as long as a case still differs, and what differs there."""
    tried, until, again = 0, time.monotonic() + PAUSE, True
    while again:
        again = False
        for simpler in module(kind).smaller(case):
            tried += 1
            if tried > REDUCTIONS or time.monotonic() > until:
                return case, differs
            found = worker.ask(kind, None, simpler)[1]
            if found is not None:
                case, differs, again = simpler, found, True
                break
    return case, differs


def hunt(kind: str, seeds: Iterator[int], until: float) -> Iterator[tuple[int, Find | None]]:
    """Each seed tried before the clock `time.monotonic()` says `until`, with its find."""
    worker = Worker()
    try:
        for seed in seeds:
            if time.monotonic() >= until:
                return
            case, differs = worker.ask(kind, seed)
            if differs is None:
                yield seed, None
                continue
            if case is not None:
                case, differs = reduced(worker, kind, case, differs)
            yield seed, Find(kind, seed, case, differs)
    finally:
        worker.stop()


def write(find: Find, folder: str) -> str:
    """Keeps a find as a case and as a program in `folder`; the path of the program."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{find.kind}_{find.seed}")
    with open(path + ".json", "w", encoding="utf-8") as file:
        json.dump({"kind": find.kind, "seed": find.seed, "case": find.case}, file, indent=1)
    with open(path + ".py", "w", encoding="utf-8") as file:
        file.write("".join(f"# {line}\n" for line in find.differs.splitlines()) + module(find.kind).program(find.case))
    return path + ".py"
