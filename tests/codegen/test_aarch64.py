"""Other processors than this one: the samples of records as aarch64 in an emulator, and as the x86-64 levels below the host's."""

import contextlib
import io
import os
import struct
import subprocess
import sys

import cells
import numpy as np
import plans
import pytest
import static
from cells import RUNNERS, assert_close, case
from plan_programs import arrays_for, axis, hole, program
from test_kernels import network

import ngraph as ng
from ngraph.plan.planner import plan
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower
from ngraph.runtime.host.jit import compile_object
from ngraph.runtime.host.loader import AARCH64, Object, ObjectLayout
from ngraph.targets import TARGETS, runnable

MAIN, OTHER = cells.some_cells()
LOWER = [n for n in runnable()[:-1] if n.startswith("x86")]


def every(cases):
    return pytest.mark.parametrize(("record", "dtype"), cases, ids=["-".join(c) for c in cases])


def agrees(record, dtype, **how):
    """The samples of a record, planned, compiled and run, give what the oracle says."""
    c = case(record, dtype)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), np.errstate(all="ignore"):
        got, _ = plans.run(plan(lower(c.roots, c.holes).program), c.values, **how)
    assert_close(got, c.expected[0], c.record, c.tensors)
    assert printed.getvalue() == c.expected[1]


def convolutions():
    """Contractions and convolutions with their gradients, of lengths that fill no vector."""
    n, h, w, c, k, j = (axis(m, a) for m, a in ((2, "N"), (9, "H"), (11, "W"), (5, "C"), (19, "K"), (37, "J")))
    r, s = axis(3, "R"), axis(3, "S")
    x, f, b, v = hole(n, c, h, w), hole(k, c, r, s), hole(k), hole(k, j)
    y = ng.relu(ng.conv(x, f, {h: r, w: s}, padding=1) + b)
    z = ng.conv(x, f, {h: r, w: s}, stride=2, padding=1)
    return program([y, z, ng.dot(y, v), *[ng.deriv(ng.sum(z * z, out_axes=()), q) for q in (x, f)]], x, f, b, v)


def agree(p, **how):
    """A program, planned, compiled and run, gives what the oracle says."""
    inputs, state = arrays_for(p)
    expected, after = interpret(p, inputs, dict(state))
    got, now = plans.run(plan(p), inputs, state, **how)
    for a, b in zip([*got, *now.values()], [*expected, *after.values()], strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-2)


# ---- aarch64


@static.emulated
@every(MAIN)
def test_aarch64_gives_what_the_oracle_gives(record, dtype):
    agrees(record, dtype, kind=static.Emulated)


@static.emulated
@every(OTHER[::3])
def test_aarch64_in_other_dtypes(record, dtype):
    agrees(record, dtype, kind=static.Emulated)


@static.emulated
@pytest.mark.parametrize("make", [network, convolutions])
def test_whole_programs_on_aarch64(make):
    before = static.Emulated.runs
    agree(make(), kind=static.Emulated)
    assert static.Emulated.runs > before


@static.emulated
def test_a_wrong_result_of_the_emulator_would_be_seen(monkeypatch):
    true = static.start
    monkeypatch.setattr(static, "start", lambda calls, size: true([], size))  # no work item runs
    with pytest.raises(AssertionError):
        agree(network(), kind=static.Emulated)


def test_the_loader_reaches_far_in_aarch64():
    """Addresses in pages and their low bits, branches and words, wherever the code lies."""
    text = """target triple = "aarch64-unknown-linux-gnu"
@far = global [3 x i64] [i64 1, i64 2, i64 3]
@table = constant [2 x i64] [i64 10, i64 20]
@pointer = global ptr @table
define internal i64 @inner(i64 %x) noinline { %y = add i64 %x, 1 ret i64 %y }
define i64 @outer(i64 %x) {
  %p = getelementptr i64, ptr @far, i64 2
  %a = load i64, ptr %p
  %q = load ptr, ptr @pointer
  %b = load i64, ptr %q
  %c = call i64 @inner(i64 %a)
  %d = add i64 %b, %c
  ret i64 %d
}
"""
    made = compile_object(text, TARGETS["aarch64"])
    kinds = {r.kind for r in Object(made).relocations}
    assert Object(made).machine == AARCH64 and kinds & {275, 311} and 257 in kinds
    layout = ObjectLayout([made, made])
    for base in (1 << 20, 1 << 40):
        memory = bytearray(layout.size)
        layout.write(memory, base)
        for which in (0, 1):
            (pointer,) = struct.unpack_from("<Q", memory, layout.offset("pointer", which))
            assert pointer == base + layout.offset("table", which)
            assert adrp_targets(memory, base, layout.offset("outer", which)) <= {(base + at) >> 12 for at in range(0, layout.size, 4096)}


def adrp_targets(memory, base, offset):
    """The pages that the ADRP instructions of a function name."""
    found = set()
    for at in range(offset, offset + 80, 4):
        (word,) = struct.unpack_from("<I", memory, at)
        if word & 0x9F000000 == 0x90000000:
            pages = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
            found.add((base + at >> 12) + (pages - (1 << 21) if pages >> 20 else pages))
    return found


# ---- the levels of x86-64


@pytest.mark.skipif(not LOWER, reason="this processor has no lower level")
@pytest.mark.parametrize("name", LOWER or ["none"])
@every(MAIN)
def test_lower_levels_give_what_the_oracle_gives(record, dtype, name):
    agrees(record, dtype, target=TARGETS[name])


@pytest.mark.parametrize("name", LOWER)
@pytest.mark.parametrize("make", [network, convolutions])
def test_whole_programs_on_lower_levels(make, name):
    agree(make(), target=TARGETS[name])


@pytest.mark.parametrize("name", LOWER)
@pytest.mark.parametrize("record", ["exp", "contract", "softmax", "convolve", "sort", "scan", "where"])
def test_the_transformer_takes_the_target_that_is_chosen(record, name, monkeypatch, tmp_path):
    monkeypatch.setenv("NGRAPH_TARGET", name)
    c = case(record, "float32")
    with ng.config(cache=str(tmp_path)):
        got, _ = RUNNERS["cpu"](c.roots, c.holes, c.values)
    assert_close(got, c.expected[0], c.record, c.tensors)


def test_the_chosen_target_decides_the_code(tmp_path):
    script = """
import numpy as np, ngraph as ng, ngraph.transformers as ngt
A = ng.make_axis(100, name="A")
x = ng.placeholder([A])
run = ngt.make_transformer_factory("cpu")().computation(ng.exp(x), x)
assert np.allclose(run(np.ones(100)), np.e)
print(run.asm)
"""
    texts = {}
    for name in runnable():
        environment = {**os.environ, "NGRAPH_TARGET": name, "NGRAPH_CACHE": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
        texts[name] = done.stdout
    wide = {"x86-64-v2": "xmm", "x86-64-v3": "ymm", "x86-64-v4": "zmm", "aarch64": "v0.4s"}
    for name, text in texts.items():
        assert wide[name] in text and not any(w in text for n, w in wide.items() if n > name and n in texts), name
