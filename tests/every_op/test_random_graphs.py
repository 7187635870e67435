"""Random op-graphs on the cpu give what the oracle gives, with equal bits for any number of threads, and stay inside their buffers.

Any seed will do, `SEEDS` says which are run: `SEEDS=1000-2000 pytest tests/every_op/test_random_graphs.py`.
"""

import contextlib
import os

import numpy as np
import pytest
from fences import fenced
from graphs import graph

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import AxisError, UnsupportedError
from ngraph.plan import arrays, parse, text, verify
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower
from ngraph.runtime.state import initial
from ngraph.transformers.cpu import frame, table

FIRST, LAST = map(int, os.environ.get("SEEDS", "0-40").split("-"))
CASES = [(seed, exact) for exact in (True, False) for seed in range(FIRST, LAST)]
CASES += [(7008, False), (7293, True), (7414, True), (7581, True), (7582, False)]  # that were wrong once
TOLERANCE = 3e-4  # of the largest element


def expected(results, updates, holes, calls):
    """What the oracle gives for each call, the state going on."""
    lowered = lower([*results, *updates], holes)
    state = {s.name: initial(lowered.states[s.name]) for s in lowered.program.state_in}
    found = []
    with np.errstate(all="ignore"):
        for arguments in calls:
            outputs, after = interpret(lowered.program, arguments, dict(state))
            state.update(after)
            found.append(outputs[: len(results)])
    return found


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
        np.any(np.abs(a[np.isfinite(a)]) > 2.0 ** (24 if a.dtype.itemsize == 4 else 50 if a.dtype.itemsize == 8 else 8)) for a in results
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
    bits = None
    for threads in (1, 3):
        if threads > 1:  # all that can be cut up is
            monkeypatch.setattr(table, "SHARE", 1e-12)
            monkeypatch.setattr(frame, "SHARE", 1e-12)
        inside = fenced() if seed % 2 and threads == 1 else contextlib.nullcontext()
        with inside, ng.config(num_threads=threads), ngt.allocate_transformer("cpu") as t:
            f = t.computation([*results, *updates], *g.holes)
            got = [f(*arguments)[: len(results)] for arguments in calls]
            if threads == 1:
                shown = text(verify(f.native.chosen.plan))
                assert text(verify(parse(shown, arrays(f.native.chosen.plan)))) == shown
        for k, (a, b) in enumerate(zip(got, wanted, strict=True)):
            for r, x, y in zip(results, a, b, strict=True):
                assert close(x, y, exact) or (exact and too_large(floats)), f"call {k}, {r}:\n{x}\n{y}"
        now = [[np.asarray(a).tobytes() for a in every] for every in got]
        bits = bits or now
        assert bits == now, "other bits on several threads"
