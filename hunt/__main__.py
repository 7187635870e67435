"""The command: `python -m hunt [--minutes M] [--jobs J] [--seed S] [--first S] [kind ...]`; exit 1 where anything was found.

The seeds are those from `--first` on; two runs with one first seed differ only in the number of seeds tried.
"""

import argparse
import itertools
import os
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from importlib.util import find_spec

from hunt import KINDS, runner


def one(kind: str, seed: int) -> int:
    """Prints one seed of one kind: its program, and the difference."""
    case = runner.module(kind).draw(seed)
    print(runner.module(kind).program(case))
    differs = runner.check(kind, case)
    print(differs or "agrees")
    return int(differs is not None)


def stretch(kind: str, seeds: Iterator[int], seconds: float, folder: str) -> tuple[int, int, list[str]]:
    """Returns how many seeds were tried, how many were finds, and the finds as text; writes their programs to `folder`."""
    tried, found, shown = 0, 0, []
    for seed, find in runner.hunt(kind, seeds, time.monotonic() + seconds):
        tried += 1
        if find is not None:
            found += 1
            path = runner.write(find, folder) if find.case is not None else ""
            shown.append(f"{kind} seed {seed}: {find.differs.splitlines()[0][:160]}\n    {path}")
            print(shown[-1], flush=True)
    return tried, found, shown


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hunt", description="Random cases against independent answers.")
    parser.add_argument("kinds", nargs="*", metavar="kind", help=f"any of {', '.join(KINDS)}; all")
    parser.add_argument("--minutes", type=float, default=2.0, help="for all kinds together; 2")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time; one for each core")
    parser.add_argument("--first", type=int, help="the first seed; a random one")
    parser.add_argument("--most", type=int, help="how many seeds of each kind are tried at most; as many as there is time for")
    parser.add_argument("--seed", type=int, help="show this seed of the one kind that is named")
    parser.add_argument("--out", default=os.path.join("out", "hunt"), help="the folder for finds; out/hunt")
    asked = parser.parse_args()
    if not asked.kinds:
        asked.kinds = [k for k in KINDS if find_spec(f"{__package__}.{k}")]
        print("".join(f"there is no hunt for {k} here\n" for k in KINDS if k not in asked.kinds), end="", flush=True)
    unknown = [k for k in asked.kinds if k not in KINDS]
    if unknown:
        parser.error(f"no kind {', '.join(unknown)}; there are {', '.join(KINDS)}")
    if asked.seed is not None:
        if len(asked.kinds) != 1:
            parser.error("--seed wants the name of one kind")
        return one(asked.kinds[0], asked.seed)
    first = asked.first if asked.first is not None else random.SystemRandom().randrange(10**9)
    share = asked.minutes * 60 / len(asked.kinds)  # seconds: all jobs run one kind at a time
    totals = {kind: [0, 0] for kind in asked.kinds}
    print(f"seeds from {first}, {share:.0f} seconds for each of {', '.join(asked.kinds)}", flush=True)
    with ThreadPoolExecutor(asked.jobs) as pool:
        made = [
            (kind, pool.submit(stretch, kind, itertools.islice(itertools.count(first), j, asked.most, asked.jobs), share, asked.out))
            for kind in asked.kinds
            for j in range(asked.jobs)
        ]
        try:
            wait([future for _, future in made])
        except KeyboardInterrupt:
            runner.stopping.set()
            pool.shutdown(cancel_futures=True)
        for kind, future in made:
            if not future.cancelled():
                tried, found, _ = future.result()
                totals[kind] = [totals[kind][0] + tried, totals[kind][1] + found]
    for kind, (tried, found) in totals.items():
        print(f"{kind:12} {tried:7} seeds tried, {found} finds, {tried / max(share, 1e-9) * 60:7.0f} seeds a minute")
    finds = sum(found for _, found in totals.values())
    print(f"seeds tried: {sum(tried for tried, _ in totals.values())}, finds: {finds}" + (", stopped" if runner.stopping.is_set() else ""))
    return int(finds > 0)


if __name__ == "__main__":
    sys.exit(main())
