"""Planted mistakes: does the hunt find what is known to be wrong? `python -m hunt.planted [--seconds S] [--first S] [name or kind ...]`

`hunt/planted_KIND.py` has a dict of them, MISTAKES: a name that says what is wrong, and a function of nothing that makes this mistake in
the running process, by putting something else in the place of a function or of an entry of a table. Each is made in a process of its
own, that the cases of its kind are then checked in, until one differs. KIND in the module says which kind that is, where its name does not.

A case that differs without the mistake too is not a find of it. Exit 1 where fewer than `WANTED` of them are found; what is missed is told.
"""

import argparse
import importlib
import itertools
import os
import pkgutil
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import hunt
from hunt import runner

WANTED = 0.95  # of the mistakes
PREFIX = "planted_"


class Mistake(NamedTuple):
    """A mistake by its name, the kind of cases that shall find it, and what makes it in this process."""

    name: str
    kind: str
    make: Callable[[], Any]


class Outcome(NamedTuple):
    """The outcome of one planted mistake: the difference found, or "", its seed, the seeds and seconds tried, and a remark."""

    mistake: Mistake
    differs: str
    seed: int
    tried: int
    seconds: float
    told: str = ""

    def line(self) -> str:
        name = f"{self.mistake.kind:11} {self.mistake.name[:70]:70}"
        if self.differs:
            return f"{name} found after {self.seconds:5.1f} s, {self.tried:5} seeds, by {self.seed}: {self.differs.splitlines()[0][:60]}"
        return f"{name} {self.told or 'MISSED'} in {self.seconds:5.1f} s, {self.tried:5} seeds"


@cache
def mistakes() -> dict[str, Mistake]:
    """All mistakes, by name. Raises ValueError where two have one name."""
    found: dict[str, Mistake] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(hunt.__path__) if m.name.startswith(PREFIX)):
        room = importlib.import_module(f"{hunt.__name__}.{module}")
        kind = getattr(room, "KIND", module.removeprefix(PREFIX))
        for name, make in room.MISTAKES.items():
            if name in found:
                raise ValueError(f"{module} and {found[name].kind} both have a mistake {name!r}")
            found[name] = Mistake(name, kind, make)
    return found


def sought(mistake: Mistake, seconds: float, seeds: Iterable[int]) -> Outcome:
    """Checks cases with the mistake until one differs that does not differ without it."""
    began, tried, sound = time.monotonic(), 0, runner.Worker()
    wrong: list[int] = []
    try:
        for seed, find in runner.hunt(mistake.kind, iter(seeds), began + seconds, mistake.name):
            tried += 1
            if find is not None and find.case is not None:
                if sound.ask(mistake.kind, None, find.case)[1] is None:
                    return Outcome(mistake, find.differs, seed, tried, time.monotonic() - began)
                wrong.append(seed)
    except runner.PlantError as error:
        print(error, file=sys.stderr)
        return Outcome(mistake, "", 0, tried, time.monotonic() - began, "NOT PLANTED")
    finally:
        sound.stop()
    told = f"MISSED (seeds {', '.join(map(str, wrong[:5]))} differ without it)" if wrong else ""
    return Outcome(mistake, "", 0, tried, time.monotonic() - began, told)


def chosen(words: Iterable[str]) -> list[Mistake]:
    """The mistakes whose name, or kind, is among these words; all without any. Raises KeyError for a word that is neither."""
    known = mistakes()
    kinds = {m.kind for m in known.values()}
    for word in words:
        if word not in known and word not in kinds:
            raise KeyError(word)
    asked = set(words)
    return [m for m in known.values() if not asked or m.name in asked or m.kind in asked]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hunt.planted", description="Plants mistakes, and lets the hunt look for each.")
    parser.add_argument("names", nargs="*", metavar="name", help="of mistakes, or of kinds; all")
    parser.add_argument("--seconds", type=float, default=120.0, help="for each mistake; 120")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mistakes at a time; one for each core")
    parser.add_argument("--first", type=int, default=0, help="the first seed; 0")
    parser.add_argument("--list", action="store_true", help="only list them")
    asked = parser.parse_args(arguments)
    try:
        wanted = chosen(asked.names)
    except KeyError as error:
        parser.error(f"there is no mistake and no kind {error}; --list lists them")
    if asked.list:
        print("\n".join(f"{m.kind:11} {m.name}" for m in wanted))
        return 0
    outcomes = []
    with ThreadPoolExecutor(asked.jobs) as pool:
        try:
            for outcome in pool.map(lambda m: sought(m, asked.seconds, itertools.count(asked.first)), wanted):
                outcomes.append(outcome)
                print(outcome.line(), flush=True)
        except KeyboardInterrupt:
            runner.stopping.set()
            pool.shutdown(cancel_futures=True)
    found = sum(bool(o.differs) for o in outcomes)
    for kind in dict.fromkeys(m.kind for m in wanted):
        of = [o for o in outcomes if o.mistake.kind == kind]
        print(f"{kind:11} {sum(bool(o.differs) for o in of)} of {len(of)} found")
    print(f"found: {found} of {len(wanted)}, {found / max(len(wanted), 1):.0%}; missed: {len(wanted) - found}")
    return int(found < WANTED * len(wanted))


if __name__ == "__main__":
    sys.exit(main())
