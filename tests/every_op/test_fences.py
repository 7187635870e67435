"""Compiled code reads and writes inside its buffers: the samples of every record, and programs whose lengths fill no vector."""

import contextlib
import io
import os
import subprocess
import sys

import cells
import numpy as np
import pytest
from cells import assert_close, case
from fences import fenced

import ngraph.transformers as ngt

CASES = sorted(sum(cells.some_cells(), []))


@pytest.mark.parametrize(("record", "dtype"), CASES, ids=["-".join(c) for c in CASES])
def test_samples_stay_inside(record, dtype):
    c = case(record, dtype)
    with fenced(), ngt.allocate_transformer("cpu") as t, contextlib.redirect_stdout(io.StringIO()):
        got = t.computation(list(c.roots), *c.holes)(*c.values)
    assert_close([g for g in got if g is not None], c.expected[0], c.record, c.tensors)


def test_a_byte_outside_would_be_seen():
    with pytest.raises(AssertionError, match="1 bytes beside a buffer of 5 bytes were written, the first at 5"), fenced() as fences:
        made = fences.bytes(5, 1)
        np.lib.stride_tricks.as_strided(made, (6,))[5] = 0
    with pytest.raises(AssertionError, match="the first at -1"), fenced() as fences:
        made = fences.bytes(5, 1)
        (held, start, _) = fences.memory[0]
        held()[start - 1] = 0


READS = """
import sys
sys.path[:0] = sys.argv[2:]
import numpy as np
import ngraph as ng, ngraph.transformers as ngt
from fences import fenced
from graphs import graph

def run(results, holes, arguments):
    with fenced(sys.argv[1]), ngt.allocate_transformer("cpu") as t:
        return t.computation(results, *holes)(*arguments)

for seed in range(12):
    for exact in (True, False):
        g, results, updates = graph(seed, exact)
        try:
            run([*results, *updates], g.holes, g.arguments())
        except ng.NgraphError:
            pass
for rows, columns in ((3, 2), (33, 4), (40, 3)):
    a, b = ng.make_axis(rows, name="A"), ng.make_axis(columns, name="B")
    x, value = ng.placeholder([a, b]), np.arange(rows * columns, dtype="f").reshape(rows, columns)
    total, turned = run([ng.sum(ng.flip(x, [b]), out_axes=()), ng.tensor_slice(x, [slice(None), slice(None, None, -2)]) * 2], [x], [value])
    assert total == value.sum() and (turned == 2 * value[:, ::-2]).all()
print("inside")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are closed by mprotect")
@pytest.mark.parametrize("side", ["before", "behind"])
def test_nothing_outside_is_read(side):
    """In a process of its own, for reading outside ends it."""
    here = os.path.dirname(os.path.abspath(__file__))
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", READS, side, here], capture_output=True, text=True)
    assert done.stdout == "inside\n", done.stderr[-2000:]
