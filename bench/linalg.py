"""Prints seconds of `ng.linalg` beside NumPy's on the same matrices, in turns: medians and their ratio (above 1: ngraph is faster).

`lu` and `triangular_solve` stand beside SciPy's, which NumPy has not.

    python bench/linalg.py [--seconds 0.3] [--only cholesky]

Sizes: one matrix of 64, 256, 512 and 1,024 rows, and 10,000 of 8 rows; float64.
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

SHAPES = ((64, 64), (256, 256), (512, 512), (1024, 1024), (10_000, 8, 8))
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "cholesky": (lambda a, b: ng.linalg.cholesky(a, "i", "j"), lambda a, b: np.linalg.cholesky(a)),
    "solve": (lambda a, b: ng.linalg.solve(a, b, "i", "j"), lambda a, b: np.linalg.solve(a, b)),
    "inv": (lambda a, b: ng.linalg.inv(a, "i", "j"), lambda a, b: np.linalg.inv(a)),
    "det": (lambda a, b: ng.linalg.det(a, "i", "j"), lambda a, b: np.linalg.det(a)),
    "triangular": (lambda a, b: ng.linalg.triangular_solve(a, b, "i", "j"), lambda a, b: linalg.solve_triangular(a, b, lower=True)),
    "lu": (lambda a, b: ng.linalg.lu(a, "i", "j")[2], lambda a, b: linalg.lu(a, p_indices=True)[2]),
}


def drawn(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Returns positive definite matrices of about the size of the identity, and right-hand sides, 8 for each."""
    r = np.random.default_rng(0)
    x = r.standard_normal(shape)
    n = shape[-1]
    return x @ np.swapaxes(x, -1, -2) / n + np.eye(n), r.standard_normal((*shape[:-1], 8))


def seconds(calls: list[Callable[[], Any]], budget: float) -> list[float]:
    """Returns the median seconds of each call; they take turns."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(times[0]) < 5:
        for call, t in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            t.append(time.perf_counter() - start)
    return [statistics.median(t) for t in times]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--seconds", type=float, default=0.3)
    options.add_argument("--only", choices=FUNCTIONS)
    chosen = options.parse_args()
    print(f"{'':10}{'matrices':>14}{'ngraph us':>12}{'other us':>12}{'ratio':>8}")
    for name, (ours, theirs) in FUNCTIONS.items():
        for shape in SHAPES if chosen.only in (None, name) else ():
            a, b = drawn(shape)
            text = "".join(f"b{k}={n} " for k, n in enumerate(shape[:-2]))
            x = ng.placeholder(f"{text}i={shape[-2]} j={shape[-1]}", dtype="float64")
            y = ng.placeholder(f"{text}i={shape[-2]} k=8", dtype="float64")
            inputs, arrays = ((x, y), (a, b)) if name in ("solve", "triangular") else ((x,), (a,))
            with executor(ours(x, y), *inputs) as f:
                got, expected = f(*arrays), theirs(a, b)
                assert np.allclose(got, expected, rtol=1e-6, atol=1e-9), name
                mine, other = seconds([lambda f=f, arrays=arrays: f(*arrays), lambda a=a, b=b, t=theirs: t(a, b)], chosen.seconds)
            print(f"{name:10}{'x'.join(map(str, shape)):>14}{mine * 1e6:12.1f}{other * 1e6:12.1f}{other / mine:8.2f}")


if __name__ == "__main__":
    main()
