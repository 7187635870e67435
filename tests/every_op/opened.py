"""The samples of a record with axes whose length comes with a call, beside the same samples typed for each length.

Graphs are those of `cells`, typed again once axes have lost their lengths; samples whose types need a number are left out by that. What is
expected at some lengths is what the oracle gives for the graph typed with these lengths, so that nothing of open lengths takes part in it.
"""

import contextlib
import functools
import operator
import warnings

import numpy as np

import ngraph as ng
from ngraph.op_graph.op import copy_graph, ordered
from ngraph.ops.state import placeholder
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower

REFUSED = (ng.NgraphError, TypeError, ValueError, LookupError, ZeroDivisionError, AssertionError)  # of a graph that has no such lengths
MOST = 60_000  # elements of one argument


def every_axis(c):
    """The axes of a record's placeholders that have several elements."""
    return list(dict.fromkeys(a.primary for h in c.holes for a in h.axes if a.length and a.length > 1))


@contextlib.contextmanager
def lengths(axes, values):
    """Axes with other lengths, or none, while the graph is typed again."""
    before = [a.length for a in axes]
    for a, n in zip(axes, values, strict=True):
        a.length = n
    try:
        yield
    finally:
        for a, n in zip(axes, before, strict=True):
            a.length = n


def slopes(results, holes):
    """Derivatives of weighted sums of float results by the holes that they depend on, with the numbers of both."""
    found = []
    for k, t in enumerate(results):
        inputs = [h for h in holes if h.dtype is t.dtype and h in set(ordered([t]))] if t.dtype.is_float and t.dtype.bits > 16 else []
        if inputs:
            places = [ng.cast(ng.iota(a), t.dtype) * (0.7 + 0.4 * i) for i, a in enumerate(t.axes)]
            weights = ng.cos(functools.reduce(operator.add, places)) if places else 1.5
            with contextlib.suppress(*REFUSED):
                made = ng.deriv(ng.sum(t * weights, out_axes=()), inputs)
                found += [(f"{k} by {holes.index(h)}", g) for h, g in zip(inputs, made, strict=True)]
    return found


def typed(c, check):
    """Placeholders like those of the samples, and (name, result) of all that can be typed and lowered with the axes' present lengths."""
    new = {h: placeholder(list(h.axes), dtype=h.dtype) for h in c.holes}
    holes, results = list(new.values()), []
    steep = c.steep if check == "gradient" else range(len(c.tensors))
    for k in steep:
        root = c.tensors[k]
        with contextlib.suppress(*REFUSED):
            made = copy_graph([root], new)[root]
            if made is not root:
                named = [(str(k), made)] if check == "value" else [(f"{k}: {n}", g) for n, g in slopes([made], holes)]
                for name, r in named:
                    with contextlib.suppress(*REFUSED):
                        lower([r], [h for h in holes if h in set(ordered([r]))])
                        results.append((name, r))
    return holes, results


class Opened:
    """The samples of a record, or gradients of them, in which some axes have no length, as a computation of placeholders of its own."""

    def __init__(self, c, axes, check="value"):
        self.c, self.axes, self.check = c, axes, check
        with lengths(axes, [None] * len(axes)):
            holes, self.results = typed(c, check)
        needed = set(ordered([r for _, r in self.results]))
        needed.update(h for h in holes if check == "gradient" and h.dtype.is_float)  # its length may be all that a slope reads of it
        self.used = [k for k, h in enumerate(holes) if h in needed]
        self.holes = [holes[k] for k in self.used]

    def lowered(self):
        with lengths(self.axes, [None] * len(self.axes)):
            return lower([r for _, r in self.results], self.holes).program

    def values(self, at):
        """The arrays of the placeholders with these lengths of the open axes: the elements that there are, again and again."""
        found, at = [], dict(zip(self.axes, at, strict=True))
        for k in self.used:
            value = self.c.values[k]
            for d, a in enumerate(self.c.holes[k].axes):
                if a.primary in at:
                    if not value.shape[d]:
                        return None
                    value = np.take(value, np.arange(at[a.primary]) % value.shape[d], axis=d)
            if value.size > MOST:
                return None
            found.append(np.array(value, order="C"))
        return found

    def expected(self, at, values):
        """{name: array} of what the graph typed for these lengths gives by the oracle; None where there is none."""
        with lengths(self.axes, at), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                holes, results = typed(self.c, self.check)
                known = dict(results)
                names = [name for name, _ in self.results if name in known]
                program = lower([known[n] for n in names], [holes[k] for k in self.used]).program
                return dict(zip(names, interpret(program, values)[0], strict=True))
            except REFUSED:
                return None
