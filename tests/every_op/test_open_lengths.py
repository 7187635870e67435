"""Each record's samples, and their gradients, with axes whose length comes with a call: one alone, and all together, about every tile.

Here is a part of them, always the same. `OPEN=all pytest tests/every_op/test_open_lengths.py` (`make open`) runs all records in all dtypes
at all lengths, on every kind of processor that this one runs or emulates.
"""

import contextlib
import functools
import io
import os

import cells
import numpy as np
import pytest
from cells import case, differs
from opened import REFUSED, Opened, every_axis, lengths

import ngraph.transformers as ngt
from ngraph.op_graph.opdef import ELEMENTWISE
from ngraph.targets import runnable
from ngraph.transformers.executable.versions import symbols

WHOLE = os.environ.get("OPEN") == "all"
MANY = (*range(10), 11, 13, 15, 16, 17, 23, 24, 25, 31, 32, 33, 37, 47, 48, 49, 63, 64, 65, 67, 95, 96, 97, 127, 128, 129, 131)
FEW = (5, 0, 1, 2, 3, 4, 7, 8, 9, 13, 16, 17, 33)
SEVERAL = (5, 0, 1, 2, 3, 4, 9)  # for all axes at once: sums over all of them stay within the bounds of short ones
EMULATED = (5, 0, 1, 2, 4, 9, 17)  # each call of a kernel is a process
UNLIKE = 14 if WHOLE else 3  # draws of a length for each axis
FEW_ELEMENTWISE = 12  # of ops that differ in one instruction alone, as many are enough here
FEW_TARGETS, FEW_GRADIENTS, FEW_EMULATED = 14, 12, 40  # one record in so many is run on each lower level, differentiated, emulated
TARGETS = (*(runnable() if WHOLE else runnable()[:-1]), *(["aarch64"] if runnable()[-1] != "aarch64" else []))
WITHOUT = {
    "compact": "a copy of a graph keeps its axes, so a run-time length stays that of the first graph",
    "constant": "its samples read no placeholder",
    "cut": "a copy of a graph keeps its axes, so a run-time length stays that of the first graph",
    "effect": "its samples give no tensor",
    "iota": "its samples read no placeholder",
}


def records():
    """(record, dtype), one dtype of each: all but most of the elementwise ones."""
    main, _ = cells.some_cells()
    if WHOLE:
        return main
    plain = [cell for cell in main if cell[0] in ELEMENTWISE.names]
    return [cell for cell in main if cell not in plain or cell in plain[:: max(len(plain) // FEW_ELEMENTWISE, 1)]]


def every():
    """(record, dtype, check, target); target "" is the transformer cpu as it is."""
    valued = sorted({(r, d) for r, d, _ in cells.cells("value")}) if WHOLE else records()
    found = [(r, d, "value", "") for r, d in valued]
    steep = [(r, "float32") for r in cells.RECORDS if cells.is_there(cells.RECORDS[r], "gradient")]
    found += [(r, d, "gradient", "") for r, d in (steep if WHOLE else steep[::FEW_GRADIENTS])]
    for k, target in enumerate(TARGETS):
        step = 1 if WHOLE else FEW_EMULATED if target == "aarch64" else FEW_TARGETS
        found += [(r, d, "value", target) for r, d in (valued if WHOLE else records()[k::step])]
    return sorted(found) if WHOLE else found  # levels that share what is expected, one behind the other


def sets(axes):
    """The axes that are open: each alone, then all together."""
    alone = axes if WHOLE else axes[:3]
    return [*[[a] for a in alone], *([axes] if len(axes) > 1 else [])]


def sizes(axes, target):
    """The lengths of calls: for several axes the same for all, and draws."""
    if target == "aarch64":
        return [(n,) * len(axes) for n in EMULATED]
    if len(axes) == 1:
        return [(n,) for n in (MANY if WHOLE else FEW)]
    draw = np.random.default_rng(len(axes))
    return [*[(n,) * len(axes) for n in SEVERAL], *map(tuple, draw.choice(FEW, (UNLIKE, len(axes))).tolist())]


def runner(o, target, monkeypatch):
    """A function from the arguments and lengths of a call to results, compiled with open lengths."""
    if target == "aarch64":
        import static

        from ngraph.plan.planner import plan

        program = o.lowered()
        planned = plan(program)
        if program.state_in:
            pytest.skip("random numbers: their state is the transformer's")

        def emulated(values, at):
            lengths = {a: values[k].shape[d] for a, (k, d) in symbols(program).items()}
            return static.plans.run(planned, values, lengths=lengths, kind=static.Served)[0]

        return emulated
    if target:
        monkeypatch.setenv("NGRAPH_TARGET", target)
    transformer = ngt.make_transformer_factory("cpu")()
    f = transformer.computation([r for _, r in o.results], *o.holes)
    return lambda values, at: [np.asarray(a) for a in f(*values)]


@functools.lru_cache(1)
def opened(record, dtype, check):
    """(axes, the graph with these open, what calls of lengths take and give) for each set of axes; levels share what is in there."""
    c = case(record, dtype)
    return c, [(axes, Opened(c, axes, check), {}) for axes in sets(every_axis(c))]


def expected(o, at, known):
    """(arguments, expected results) of a call with these lengths, or None."""
    if at not in known:
        values = o.values(at)
        known[at] = (values, wanted) if values is not None and (wanted := o.expected(at, values)) else None
    return known[at]


def unlike(got, wanted, record, check):
    """What is wrong with a result, or nothing. Sums of many terms, and gradients, are held to a share of the largest element."""
    said = differs(got, wanted, record) if check == "value" else "other values"
    if not said or got.shape != wanted.shape or got.dtype != wanted.dtype or got.dtype.name not in cells.FULL:
        return said
    share = {"value": 3e-5, "gradient": 1e-4}[check] * (1 if got.dtype == np.float32 else 1e-6)
    g, w = got.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(all="ignore"):
        near = np.abs(g - w) <= share * max(1.0, np.abs(w[np.isfinite(w)]).max(initial=0))
    bad = ~(near | (g == w) | (np.isnan(g) & np.isnan(w)))
    return f"{int(bad.sum())} of {bad.size} differ: {g[bad][:3]} instead of {w[bad][:3]}" if bad.any() else ""


@pytest.mark.parametrize(("record", "dtype", "check", "target"), every(), ids=["-".join(filter(None, c)) for c in every()])
def test_open_lengths(record, dtype, check, target, monkeypatch):
    if target == "aarch64":
        emulator = pytest.importorskip("static")
        if emulator.EMULATOR is None:
            pytest.skip("NOT RUN: qemu-aarch64 is not installed (apt-get install qemu-user)")
    (c, graphs), checked = opened(record, dtype, check), 0
    for axes, o, known in graphs:
        calls = [(at, *found) for at in sizes(axes, target) if o.results and (found := expected(o, at, known))]
        if not calls:
            continue
        with lengths(axes, [None] * len(axes)), contextlib.redirect_stdout(io.StringIO()):
            run = runner(o, target, monkeypatch)
            for at, values, wanted in calls:
                where = f"{[a.name for a in axes]} = {at}"
                try:
                    got = run(values, at)
                except REFUSED as error:
                    assert len(wanted) < len(o.results), f"{where}: {error}"
                    continue
                for (name, op), array in zip(o.results, got, strict=True):
                    wrong = unlike(array, wanted[name], c.record, check) if name in wanted else ""
                    assert not wrong, f"{where}, sample {name}, {op}: {wrong}"
                    checked += name in wanted
    assert checked or record in WITHOUT or check == "gradient"


def test_another_result_would_be_seen():
    """What is expected of a call is that of its own lengths: what another length gives is told."""
    c = case("reduce", "float32")
    o = Opened(c, every_axis(c)[:1])
    seven, nine = (o.expected((n,), o.values((n,))) for n in (7, 9))
    assert set(seven) == set(nine) and any(unlike(seven[name], nine[name], c.record, "value") for name in seven)
