"""Compiled code reads and writes inside its buffers: the samples of every record, and programs whose lengths fill no vector."""

import contextlib
import io
import zlib

import cells
import numpy as np
import pytest
from cells import assert_close, case
from fences import fenced

import ngraph.transformers as ngt

DTYPES = {r: [d for rr, d, t in cells.cells("value") if rr == r and t == "cpu"] for r in sorted({r for r, _, _ in cells.cells("value")})}
# float32 where it is taken, and one dtype more, another one for each record
CASES = [(r, d) for r, ds in DTYPES.items() for d in sorted({*({"float32"} & set(ds)), ds[zlib.crc32(r.encode()) % len(ds)]})]


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
        raw, start, _ = [fences.bytes(5, 1), fences.memory[0]][1]
        raw[start - 1] = 0
