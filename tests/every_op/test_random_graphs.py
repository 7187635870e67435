"""Random op-graphs on the cpu give what the oracle gives, with equal bits for any number of threads, and stay inside their buffers.

Any seed will do, `SEEDS` says which are run: `SEEDS=1000-2000 pytest tests/every_op/test_random_graphs.py`.
"""

import os

import numpy as np
import pytest
from graphs import graph
from runs import another_machine, expected, on_cpu

import ngraph.transformers as ngt
from ngraph.errors import AxisError, UnsupportedError

FIRST, LAST = map(int, os.environ.get("SEEDS", "0-40").split("-"))
CASES = [(seed, exact) for exact in (True, False) for seed in range(FIRST, LAST)]
CASES += [(7008, False), (7293, True), (7414, True), (7581, True), (7582, False)]  # that were wrong once
TOLERANCE = 3e-4  # of the largest element


def close(got, wanted, exact):
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return False
    g, w = got.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(all="ignore"):
        finite = np.abs(w[np.isfinite(w)])
        if exact or wanted.dtype.kind in "biu":
            room = 0.0 if got.dtype.itemsize != 2 or got.dtype.kind in "iu" else 2.0**-6 * np.maximum(np.abs(w), 1)
        else:
            room = TOLERANCE * max(1e-3, finite.max() if finite.size else 0)
        return bool(np.all((np.abs(g - w) <= room) | (g == w) | (np.isnan(g) & np.isnan(w))))


def too_large(results):
    """Whether whole numbers were so large that their sums are rounded."""
    return any(
        np.any(np.abs(a[np.isfinite(a)]) >= 2.0 ** (24 if a.dtype.itemsize == 4 else 50 if a.dtype.itemsize == 8 else 8)) for a in results
    )


@pytest.mark.parametrize(("seed", "exact"), CASES, ids=[f"{'exact' if e else 'smooth'}-{s}" for s, e in CASES])
def test_a_random_graph(seed, exact, monkeypatch):
    g, results, updates = graph(seed, exact)
    calls = [g.arguments()]
    for _ in range(2):
        g.other_lengths()
        calls.append(g.arguments())
    try:
        wanted = expected(results, updates, g.holes, calls)
    except (AxisError, LookupError):  # lengths that only calls know do not fit, or are not known
        with pytest.raises((AxisError, UnsupportedError)), ngt.allocate_transformer("cpu") as t:
            t.computation([*results, *updates], *g.holes)(*calls[0])
        return
    floats = [a for every in wanted for a in every if a.dtype.kind not in "biu"]
    if seed % 3 == 0:
        another_machine(seed, monkeypatch)
    got = on_cpu(results, updates, g.holes, calls, monkeypatch, fences=seed % 2 > 0, winograd=not exact)
    for k, (a, b) in enumerate(zip(got, wanted, strict=True)):
        for r, x, y in zip(results, a, b, strict=True):
            assert close(x, y, exact) or (exact and too_large(floats)), f"call {k}, {r}:\n{x}\n{y}"
