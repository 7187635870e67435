"""Each record's samples with axes whose length comes with a call: one alone, and all together, at lengths about every vector and tile.

The graphs are those of `cells`, typed again once axes have lost their lengths; samples whose types need a number are left out by that.
"""

import warnings

import cells
import numpy as np
import pytest
from cells import assert_close, case

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.op_graph.op import copy_graph
from ngraph.op_graph.opdef import ELEMENTWISE
from ngraph.ops.state import placeholder
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower

LENGTHS = (5, 0, 1, 2, 3, 4, 7, 8, 9, 13, 16, 17, 33)
SHORT = (5, 0, 1, 2, 3, 4, 9)  # for several axes: sums over all of them stay within the bounds of short ones
FEW_ELEMENTWISE = 12  # of ops that differ in one instruction alone, as many are enough here


WITHOUT = {
    "compact": "a copy of a graph keeps its axes, so a run-time length stays that of the first graph",
    "constant": "its samples read no placeholder",
    "cut": "a copy of a graph keeps its axes, so a run-time length stays that of the first graph",
    "effect": "its samples give no tensor",
    "iota": "its samples read no placeholder",
}


def records():
    """(record, dtype): all but most of the elementwise ones."""
    main, _ = cells.some_cells()
    plain = [cell for cell in main if cell[0] in ELEMENTWISE.names]
    return [cell for cell in main if cell not in plain or cell in plain[:: max(len(plain) // FEW_ELEMENTWISE, 1)]]


class Opened:
    """The samples of a record in which some axes have no length, as a computation of their own placeholders."""

    def __init__(self, c, axes):
        self.axes, lengths = axes, [a.length for a in axes]
        for a in axes:
            a.length = None
        try:
            new = {h: placeholder(list(h.axes), dtype=h.dtype) for h in c.holes}
            self.results = []
            for root in c.tensors:
                try:
                    made = copy_graph([root], new)[root]
                    if made is not root:
                        lower([made], [h for h in new.values() if h in set(ng.op_graph.op.ordered([made]))])
                        self.results.append(made)
                except (ng.NgraphError, TypeError, ValueError):  # its type, or one on the way, needs a number
                    continue
            needed = set(ng.op_graph.op.ordered(self.results))
            self.given = [(h, c.values[k]) for k, h in enumerate(c.holes) if new[h] in needed]
            self.holes = [new[h] for h, _ in self.given]
            self.program = lower(self.results, self.holes).program if self.results else None
        finally:
            self.lengths = lengths

    def close(self):
        for a, n in zip(self.axes, self.lengths, strict=True):
            a.length = n

    def values(self, length):
        """The arrays of the placeholders with this length along the open axes: the elements that there are, again and again."""
        found = []
        for h, value in self.given:
            for k, a in enumerate(h.axes):
                if a.primary in self.axes:
                    value = np.take(value, np.arange(length) % max(value.shape[k], 1), axis=k) if value.shape[k] else None
                if value is None:
                    return None
            found.append(np.array(value, order="C"))
        return found


def wanted(program, values):
    """What the references say; None where they refuse such lengths."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return interpret(program, values)[0]
    except (ng.NgraphError, ValueError, LookupError, ZeroDivisionError, AssertionError):
        return None


def open_axes(c):
    """The axes of a record's placeholders, one after the other, then all together."""
    every = list(dict.fromkeys(a.primary for h in c.holes for a in h.axes if a.length and a.length > 1))
    return [*[[a] for a in every[:3]], *([every] if len(every) > 1 else [])]


@pytest.mark.parametrize(("record", "dtype"), records(), ids=[f"{r}-{d}" for r, d in records()])
def test_open_lengths(record, dtype):
    c, checked = case(record, dtype), 0
    for axes in open_axes(c):
        opened = Opened(c, axes)
        try:
            if not opened.results:
                continue
            transformer = ngt.make_transformer_factory("cpu")()
            f = transformer.computation(opened.results, *opened.holes)
            for n in LENGTHS if len(axes) == 1 else SHORT:
                values = opened.values(n)
                expected = None if values is None else wanted(opened.program, values)
                if expected is not None:
                    got = [np.asarray(a) for a in f(*values)]
                    assert_close(got, expected, c.record, opened.results)
                    checked += 1
            transformer.close()
        finally:
            opened.close()
    assert checked or record in WITHOUT
