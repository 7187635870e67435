"""Products of matrices in registers (AMX): any machine interprets the schedules, a processor that has them gives the same bits."""

import ml_dtypes
import numpy as np
import plans
import pytest
from kernels import HOST
from plan_programs import axis, hole, program

import ngraph as ng
from ngraph.codegen.kernel import emit
from ngraph.errors import ProgramError
from ngraph.op_graph.expr import Len
from ngraph.plan.kernels import Kernel
from ngraph.plan.planner import plan
from ngraph.plan.text import arrays
from ngraph.runtime.host import jit
from ngraph.schedule.cpu import schedule_plan
from ngraph.schedule.interpret import interpret
from ngraph.schedule.text import parse, text
from ngraph.schedule.verify import verify
from ngraph.targets import DEFAULT, extended
from ngraph.targets.products import AMX_BF16

SHORT = ml_dtypes.bfloat16
AMX = extended(DEFAULT, ["avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8"])
RUNS = HOST.matrix("dot2") is not None


def scheduled(p):
    """A program's schedule for AMX, once it is lawful and its text says the same."""
    made = plan(p, machine=AMX)
    found = verify(schedule_plan(made, AMX))
    shown = text(found)
    assert text(verify(parse(shown, {AMX.name: AMX}, arrays(made)))) == shown
    return found, shown


def outputs(p, inputs, length=None):
    """The results of a program whose products are of matrices, as interpreted: where the processor has them, its bits, too."""
    found, shown = scheduled(p)
    assert " matrix " in shown
    open_ = {a: length for a in found.plan.axes if found.plan.axes[a] == Len(a)} if length is not None else {}
    results, _ = interpret(found, inputs, lengths=open_)
    if RUNS:
        for got, wanted in zip(plans.run(found.plan, inputs, lengths=open_, target=AMX)[0], results, strict=True):
            np.testing.assert_array_equal(got, wanted)
    return results


def drawn(*shape, dtype=SHORT, seed=0):
    draw = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return draw.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)
    return draw.standard_normal(shape).astype(dtype)


SIZES = [(64, 64, 64), (65, 62, 70), (37, 130, 33), (40, 402, 34), (100, 392, 96), (40, 1000, 50)]


@pytest.mark.parametrize("m, k, n", SIZES)
@pytest.mark.parametrize("turned", ["", "x", "w", "xw", "y"])
def test_operands_in_any_order(m, k, n, turned):
    rows, terms, lanes = axis(m, "M"), axis(k, "K"), axis(n, "N")
    x = hole(*((terms, rows) if "x" in turned else (rows, terms)), dtype=SHORT)
    w = hole(*((lanes, terms) if "w" in turned else (terms, lanes)), dtype=SHORT)
    y = ng.contract(ng.cast(x, np.float32), ng.cast(w, np.float32), over=terms)
    p = program([ng.axes_with_order(y, [lanes, rows] if "y" in turned else [rows, lanes])], x, w)
    a, b = drawn(m, k), drawn(k, n, seed=1)
    (got,) = outputs(p, [a.T.copy() if "x" in turned else a, b.T.copy() if "w" in turned else b])
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(got.T if "y" in turned else got, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())


@pytest.mark.parametrize("m", [1, 15, 33, 100])
def test_open_lengths(m):
    """Rows of an open number, and sums over it, which are gradients of weights."""
    rows, terms, lanes = axis(None, "M"), axis(192, "K"), axis(80, "N")
    x, w, d = hole(rows, terms, dtype=SHORT), hole(terms, lanes, dtype=SHORT), hole(rows, lanes, dtype=SHORT)
    wide = [ng.cast(v, np.float32) for v in (x, w, d)]
    p = program([ng.contract(wide[0], wide[1], over=terms), ng.contract(wide[0], wide[2], over=rows)], x, w, d)
    a, b, c = drawn(m, 192), drawn(192, 80, seed=1), drawn(m, 80, seed=2)
    forward, gradient = outputs(p, [a, b, c], m)
    np.testing.assert_allclose(forward, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(gradient, a.astype(np.float64).T @ c.astype(np.float64), rtol=1e-5, atol=1e-4)


def test_a_row_does_not_depend_on_the_others():
    rows, terms, lanes = axis(None, "M"), axis(192, "K"), axis(80, "N")
    x, w = hole(rows, terms, dtype=SHORT), hole(terms, lanes, dtype=SHORT)
    p = program([ng.contract(ng.cast(x, np.float32), ng.cast(w, np.float32), over=terms)], x, w)
    a, b = drawn(90, 192), drawn(192, 80, seed=1)
    (whole,) = outputs(p, [a, b], 90)
    for k in (1, 7, 16, 47):
        (some,) = outputs(p, [a[:k], b], k)
        np.testing.assert_array_equal(some, whole[:k])


def test_epilogues_and_batches():
    batch, rows, terms, lanes = axis(3, "B"), axis(50, "M"), axis(96, "K"), axis(72, "N")
    x, w, bias = hole(batch, rows, terms, dtype=SHORT), hole(batch, terms, lanes, dtype=SHORT), hole(lanes, dtype=SHORT)
    y = ng.cast(ng.contract(ng.cast(x, np.float32), ng.cast(w, np.float32), over=terms), SHORT)
    p = program([ng.axes_with_order(ng.relu(y + bias), [batch, rows, lanes])], x, w, bias)
    a, b, c = drawn(3, 50, 96), drawn(3, 96, 72, seed=1), drawn(72, seed=2)
    (got,) = outputs(p, [a, b, c])
    exact = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64), 0)
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=2e-2, atol=2e-2 * np.abs(exact).max())


@pytest.mark.parametrize("kinds", [(np.uint8, np.int8), (np.int8, np.int8), (np.int8, np.uint8)])
@pytest.mark.parametrize("m, k, n", SIZES)
def test_sums_of_bytes_are_exact(kinds, m, k, n):
    rows, terms, lanes = axis(m, "M"), axis(k, "K"), axis(n, "N")
    x, w = hole(rows, terms, dtype=kinds[0]), hole(terms, lanes, dtype=kinds[1])
    p = program([ng.contract(ng.cast(x, np.int32), ng.cast(w, np.int32), over=terms)], x, w)
    a, b = drawn(m, k, dtype=kinds[0]), drawn(k, n, dtype=kinds[1], seed=1)
    (got,) = outputs(p, [a, b])
    np.testing.assert_array_equal(got, a.astype(np.int64) @ b.astype(np.int64))


def test_its_instructions_are_in_the_code():
    rows, terms, lanes = axis(128, "M"), axis(512, "K"), axis(256, "N")
    x, w = hole(rows, terms, dtype=SHORT), hole(terms, lanes, dtype=SHORT)
    made = plan(program([ng.contract(ng.cast(x, np.float32), ng.cast(w, np.float32), over=terms)], x, w), machine=AMX)
    shown = "".join([jit.compile_assembly(emit(made, k, AMX).text, AMX) for k in made.every if isinstance(k, Kernel)])
    assert shown.count("tdpbf16ps") >= 2 and "vdpbf16ps" not in shown and shown.count("tilerelease") == 1


def test_a_tile_fits_into_registers_and_its_loops_are_those_of_the_instruction():
    rows, terms, lanes = axis(128, "M"), axis(512, "K"), axis(256, "N")
    x, w = hole(rows, terms, dtype=SHORT), hole(terms, lanes, dtype=SHORT)
    p = program([ng.contract(ng.cast(x, np.float32), ng.cast(w, np.float32), over=terms)], x, w)
    for wrong, said in (
        (lambda t: t._replace(rows=48), "do not fit into 8 matrices"),
        (lambda t: t._replace(terms=17), "takes 17 places"),
        (lambda t: t._replace(tile=t.vector, vector=t.tile, across=t.tile), "none of an instruction for matrices"),
    ):
        found, _ = scheduled(p)
        (stage,) = [s for k in found.kernels.values() for v in k.versions for s in v.stages if s.tile.deep is not None]
        stage.tile = wrong(stage.tile)
        with pytest.raises(ProgramError, match=said):
            verify(found)


def test_without_the_row_nothing_of_it_is_chosen():
    rows, terms, lanes = axis(128, "M"), axis(512, "K"), axis(256, "N")
    x, w = hole(rows, terms, dtype=SHORT), hole(terms, lanes, dtype=SHORT)
    p = program([ng.contract(ng.cast(x, np.float32), ng.cast(w, np.float32), over=terms)], x, w)
    plain = extended(DEFAULT, ["avx512_bf16"])
    assert " matrix " not in text(schedule_plan(plan(p, machine=plain), plain)) and plain.matrix("dot2") is None
    assert AMX.matrix("dot2") is AMX_BF16 and AMX.matrix("multiply") is None


def test_convolutions_are_products_of_matrices_over_windows():
    """Windows of 3 x 3, directly: nine products in registers of matrices take less time than transforms in float32."""
    sizes = (("C", 64), ("D", 1), ("H", 18), ("W", 17), ("N", 2), ("T", 1), ("R", 3), ("S", 3), ("K", 48))
    c, d, h, w, n, t, r, s, k = (axis(size, name) for name, size in sizes)
    out = [k, axis(1, "M"), axis(16, "P"), axis(15, "Q"), n]
    x, f = hole(c, d, h, w, n, dtype=SHORT), hole(c, t, r, s, k, dtype=SHORT)
    by_side = {f"{what}_{side}": size for what, size in (("pad", 0), ("str", 1), ("dil", 1)) for side in "dhw"}
    image, filters = drawn(64, 1, 18, 17, 2), drawn(64, 1, 3, 3, 48, seed=1)
    (got,) = outputs(program([ng.convolution(by_side, ng.cast(x, np.float32), ng.cast(f, np.float32), out)], x, f), [image, filters])
    windows = np.lib.stride_tricks.sliding_window_view(image[:, 0].astype(np.float64), (3, 3), (1, 2))
    exact = np.einsum("cpqnrs,crsk->kpqn", windows, filters[:, 0].astype(np.float64))
    np.testing.assert_allclose(got[:, 0], exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())
