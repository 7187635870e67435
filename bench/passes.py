"""What the passes cost: `python bench/passes.py`. Seconds for 60,000 ops, and how the time grows from 25,000 to 50,000."""

import gc
import statistics
import sys
import time

import ngraph  # noqa: F401  the records
from ngraph.passes import default_passes, run
from ngraph.program.program import Program
from ngraph.rewrite.trace import tracing
from ngraph.testing.rules import Steps


def chain(count: int) -> Program:
    """A program of `count` steps in which every pass finds work everywhere."""
    s = Steps(H=30, W=40)
    v, w = s.input("H", "W"), s.input("W")
    while len(s.steps) < count:
        v = s("multiply", s("add", v, w), s.number(1, axes=["H", "W"]))
        v = s("subtract", s("tanh", v), s("multiply", s("exp", w), s.number(-1)))
        s("exp", v)
    return s.program(v)


def seconds(program: Program, passes: tuple, times: int = 3) -> float:
    took = []
    for _ in range(times):
        gc.collect()
        start = time.perf_counter()
        run(program, passes)
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def main() -> int:
    program = chain(60_000)
    now = program
    for k, p in enumerate(default_passes):
        print(f"{p.__name__:>10} ({k + 1}) {seconds(now, (p,)):6.3f} s  {len(now.steps):>7} steps")
        now = run(now, (p,))
    total = seconds(program, default_passes)
    growth = seconds(chain(50_000), default_passes) / seconds(chain(25_000), default_passes)
    with tracing() as trace:
        run(program, default_passes)
    print(f"{'all':>14} {total:6.3f} s  limit 2.5")
    print(f"25,000 to 50,000 steps: {growth:.2f} times the time, limit 2.3")
    tried, fired = trace.attempts / len(program.steps), len(trace.firings) / len(program.steps)
    print(f"{tried:.2f} patterns tried and {fired:.2f} rules fired for each step")
    return int(total > 2.5 or growth > 2.3)


if __name__ == "__main__":
    sys.exit(main())
