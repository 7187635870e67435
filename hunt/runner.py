"""Runs kinds of cases in processes of their own, so that a case which ends its process or never ends is a find like any other.

A process may be given a planted mistake (`hunt.planted`), which it makes before the first case: what is found then is that.
"""

import contextlib
import importlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

SECONDS = 60.0  # that one case may take before it counts as one that never ends; the slowest honest ones take a few
REDUCTIONS = 400  # the most cases that one find is reduced by: enough for some forty parts, each tried ten times
LOOK = 0.2  # seconds after which a wait looks whether all is to end
PAUSE = 120.0  # the most seconds that one find is reduced for
RAISES = "raises"  # how a difference begins that is an exception


stopping = threading.Event()  # somebody wants all of this to end: no case is asked any more, and no answer counts


class Find(NamedTuple):
    """A case that shows a difference: its kind, the seed it was drawn from, the reduced case, and what differs."""

    kind: str
    seed: int
    case: Any
    differs: str


class PlantError(Exception):
    """A planted mistake could not be made: what it changes is no longer there."""


def module(kind: str) -> Any:
    """The module of a kind: one of this package, or one that is named whole."""
    return importlib.import_module(kind if "." in kind else f"{__package__}.{kind}")


def draw(kind: str, seed: int) -> tuple[Any, str | None]:
    """The case of a seed; where drawing it raises, None and what was raised, which is a find like any other."""
    try:
        return module(kind).draw(seed), None
    except Exception as error:
        return None, f"draw({seed}) raises {error!r}\n" + traceback.format_exc(limit=-6)


def check(kind: str, case: Any) -> str | None:
    """Returns the answer of the kind's `check` for a case; an exception counts as a difference, too."""
    try:
        return module(kind).check(case)
    except Exception:
        return f"{RAISES}\n" + traceback.format_exc(limit=-6)


def _planted(plant: str) -> str | None:
    """Makes a planted mistake in this process; None, or why that failed. Nothing that is compiled with it is kept for others."""
    try:
        if "ngraph" in sys.modules:
            raise PlantError("ngraph was imported before the mistake was made")
        os.environ["NGRAPH_CACHE"] = "off"
        importlib.import_module(f"{__package__}.planted").mistakes()[plant].make()
        return None
    except Exception:
        return traceback.format_exc(limit=-6)


def _serve(pipe: Connection, plant: str | None) -> None:
    """Answers (kind, seed or None, case) by (case, what differs), until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started it
    with contextlib.suppress(EOFError, BrokenPipeError):
        if plant is not None:
            pipe.send(_planted(plant))
        while True:
            kind, seed, case = pipe.recv()
            failed = None
            if seed is not None:
                case, failed = draw(kind, seed)
                pipe.send(case)  # before it is checked: whoever asked has it, should this process end
            pipe.send(failed or check(kind, case))


class Worker:
    """A process that checks cases; another one stands in for it where a case has ended it.

    plant   the name of a mistake that it makes before: a word of `hunt.planted`
    """

    def __init__(self, plant: str | None = None) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["numpy", "torch"])  # which take longer than all else; without torch that is nothing
        self.process: Any = None
        self.plant = plant

    def start(self) -> None:
        """Raises PlantError where the mistake cannot be made."""
        self.pipe, theirs = self.context.Pipe()
        self.process = self.context.Process(target=_serve, args=(theirs, self.plant), daemon=True)
        self.process.start()
        theirs.close()
        if self.plant is not None:
            try:
                failed = self.pipe.recv() if self._wait(time.monotonic() + SECONDS) else "it took too long"
            except (EOFError, ConnectionError):
                failed = "it ended the process"
            if failed is not None:
                self.stop()
                raise PlantError(f"{self.plant} could not be planted: {failed}")

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
            code = self.process.exitcode or 0
            return case, f"ended the process: {signal.Signals(-code).name if code < 0 else f'exit {code}'}"

    def _wait(self, ends: float) -> bool:
        """Whether something comes; where nothing does, and where all is to end, the process is ended."""
        while (left := ends - time.monotonic()) > 0 and not stopping.is_set():
            if self.pipe.poll(min(left, LOOK)):
                return True
        self.stop()
        return False

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def reduced(worker: Worker, kind: str, case: Any, differs: str) -> tuple[Any, str]:
    """The simplest case found by following `smaller` as long as a case still differs, and what differs there.

    A wrong value is not exchanged for an exception, which another mistake may raise, nor the other way round.
    """
    tried, until, again = 0, time.monotonic() + PAUSE, True
    while again:
        again = False
        for simpler in module(kind).smaller(case):
            tried += 1
            if tried > REDUCTIONS or time.monotonic() > until:
                return case, differs
            found = worker.ask(kind, None, simpler)[1]
            if stopping.is_set():
                return case, differs
            if found is not None and found.startswith(RAISES) == differs.startswith(RAISES):
                case, differs, again = simpler, found, True
                break
    return case, differs


def hunt(kind: str, seeds: Iterator[int], until: float, plant: str | None = None) -> Iterator[tuple[int, Find | None]]:
    """Each seed tried before the clock `time.monotonic()` says `until`, with its find; those of a planted mistake are not reduced."""
    worker = Worker(plant)
    try:
        for seed in seeds:
            if time.monotonic() >= until or stopping.is_set():
                return
            case, differs = worker.ask(kind, seed)
            if stopping.is_set():
                return
            if differs is None:
                yield seed, None
                continue
            if case is not None and plant is None:
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
