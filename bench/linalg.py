"""Prints seconds of `ng.linalg` beside NumPy's on the same matrices: medians and their ratio (above 1: ngraph is faster).

`lu` and `triangular_solve` stand beside SciPy's, which NumPy has not.

    python bench/linalg.py [--seconds 0.2] [--only cholesky] [--dtype float32] [--sizes 64 10000x8]

Both take turns of many calls with a pause before each, since threads of either library wait for the next call in a loop and would take
the other's core. "cpu" is processor time of all threads, in which such waiting counts, too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import linalg

import ngraph as ng
from ngraph.util.utils import executor

SIZES = ("10000x8", "10000x16", "32", "64", "100", "128", "256", "512", "1024")
TURNS = 4
PAUSE = 0.06  # seconds: longer than OpenBLAS's threads wait in a loop
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "cholesky": (lambda a, b: ng.linalg.cholesky(a, "i", "j"), lambda a, b: np.linalg.cholesky(a)),
    "triangular": (lambda a, b: ng.linalg.triangular_solve(a, b, "i", "j"), lambda a, b: linalg.solve_triangular(a, b, lower=True)),
    "solve": (lambda a, b: ng.linalg.solve(a, b, "i", "j"), lambda a, b: np.linalg.solve(a, b)),
    "lu": (lambda a, b: list(ng.linalg.lu(a, "i", "j")), lambda a, b: linalg.lu(a, p_indices=True)),
    "det": (lambda a, b: ng.linalg.det(a, "i", "j"), lambda a, b: np.linalg.det(a)),
    "slogdet": (lambda a, b: list(ng.linalg.slogdet(a, "i", "j")), lambda a, b: np.linalg.slogdet(a)),
    "inv": (lambda a, b: ng.linalg.inv(a, "i", "j"), lambda a, b: np.linalg.inv(a)),
}
SYSTEMS = ("triangular", "solve")  # with one right-hand side, and with as many as there are rows


def drawn(count: int, n: int, sides: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns positive definite matrices of about the size of the identity, and right-hand sides."""
    r = np.random.default_rng(0)
    x = r.standard_normal((count, n, n))
    a = x @ np.swapaxes(x, -1, -2) / n + np.eye(n)
    return a.astype(dtype), r.standard_normal((count, n, sides)).astype(dtype)


def seconds(calls: list[Callable[[], Any]], budget: float) -> list[tuple[float, float]]:
    """Returns the median wall time of each call, and its processor time."""
    walls: list[list[float]] = [[] for _ in calls]
    processor = [0.0 for _ in calls]
    for _ in range(TURNS):
        for k, call in enumerate(calls):
            time.sleep(PAUSE)
            call()
            start, end = time.process_time(), time.perf_counter() + budget / TURNS
            while time.perf_counter() < end or len(walls[k]) < 3:
                begin = time.perf_counter()
                call()
                walls[k].append(time.perf_counter() - begin)
            processor[k] += time.process_time() - start
    return [(statistics.median(t), p / len(t)) for t, p in zip(walls, processor, strict=True)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--seconds", type=float, default=0.2)
    options.add_argument("--only", choices=FUNCTIONS, nargs="*", default=list(FUNCTIONS))
    options.add_argument("--dtype", choices=("float32", "float64"), nargs="*", default=["float64", "float32"])
    options.add_argument("--sizes", nargs="*", default=SIZES)
    chosen = options.parse_args()
    print(f"{'':14}{'dtype':9}{'matrices':>9}{'ngraph us':>12}{'other us':>12}{'ratio':>8}{'cpu us':>12}{'other cpu':>12}{'ratio':>8}")
    for dtype in chosen.dtype:
        for name in chosen.only:
            ours, theirs = FUNCTIONS[name]
            for size in chosen.sizes:
                count, n = (int(t) for t in size.split("x")) if "x" in size else (0, int(size))
                for sides in (1, n) if name in SYSTEMS else (1,):
                    a, b = drawn(max(count, 1), n, sides, dtype)
                    a, b = (a, b) if count else (a[0], b[0])
                    text = f"b={count} " * bool(count)
                    x, y = ng.placeholder(f"{text}i={n} j={n}", dtype=dtype), ng.placeholder(f"{text}i={n} k={sides}", dtype=dtype)
                    inputs, arrays = ((x, y), (a, b)) if name in SYSTEMS else ((x,), (a,))
                    with executor(ours(x, y), *inputs) as f:
                        got, expected = f(*arrays), theirs(a, b)
                        got, expected = (v if isinstance(v, tuple | list) else (v,) for v in (got, expected))
                        near = {"rtol": 1e-6, "atol": 1e-9} if dtype == "float64" else {"rtol": 1e-2, "atol": 1e-3}
                        for mine, other in zip(got, expected, strict=True):
                            assert np.allclose(mine, other, **near), (name, size)
                        calls: list[Callable[[], Any]] = [
                            lambda f=f, arrays=arrays: f(*arrays),
                            lambda a=a, b=b, t=theirs: t(a, b),
                        ]
                        (mine, cpu), (other, other_cpu) = seconds(calls, chosen.seconds)
                    title = f"{name} of {'1' if sides == 1 else 'n'}" if name in SYSTEMS else name
                    print(
                        f"{title:14}{dtype:9}{size:>9}{mine * 1e6:12.1f}{other * 1e6:12.1f}{other / mine:8.2f}"
                        f"{cpu * 1e6:12.1f}{other_cpu * 1e6:12.1f}{other_cpu / cpu:8.2f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
