"""Products of bfloat16 by pairs: one instruction where the machine has it, elsewhere two fused ones with the same bits."""

import ml_dtypes
import numpy as np
import plans
import pytest
from kernels import HOST, RUNNABLE, run, single
from machines import BF16
from plan_programs import arrays_for, axis, hole, program

import ngraph as ng
from ngraph.codegen.kernel import emit
from ngraph.op_graph import dtypes
from ngraph.ops.indexing import gather
from ngraph.plan.kernels import Kernel
from ngraph.plan.planner import plan
from ngraph.plan.text import text
from ngraph.runtime.host import jit
from ngraph.targets import TARGETS, extended

SHORT = ml_dtypes.bfloat16
WITH = extended(TARGETS["x86-64-v4"], ["avx512_bf16"])


def dot(m, k, n):
    m, k, n = axis(m, "M"), axis(k, "K"), axis(n, "N")
    a, b = hole(m, k, dtype=SHORT), hole(k, n, dtype=SHORT)
    return program([ng.dot(ng.cast(a, np.float32), ng.cast(b, np.float32))], a, b)


@pytest.mark.parametrize("m, k, n", [(64, 64, 64), (65, 63, 70), (33, 130, 17), (40, 401, 33)])
def test_any_machine_gives_the_same_sums(m, k, n):
    p = dot(m, k, n)
    made = plan(p, machine=BF16)
    assert "dot2" in text(made)
    (a, b), _ = arrays_for(p)
    every = {t: plans.run(made, [a, b], target=t)[0][0] for t in (*RUNNABLE, HOST, *([WITH] if HOST.product("dot2") else []))}
    exact = a.astype(np.float64) @ b.astype(np.float64)
    for got in every.values():
        np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())
    if HOST.product("dot2"):  # two fused multiply-adds, the odd term first, are what its instruction does
        np.testing.assert_array_equal(every[WITH], every[TARGETS["x86-64-v4"]])


def test_sums_of_open_length():
    """Gradients of weights sum over the batch: pairs along an axis whose length comes with the call, odd and short ones, too."""
    batch, m, n = axis(None, "N"), axis(48, "M"), axis(64, "K")
    x, y = hole(m, batch, dtype=SHORT), hole(n, batch, dtype=SHORT)
    product = ng.contract(ng.cast(x, np.float32), ng.cast(y, np.float32), over=batch)
    assert "dot2" in text(plan(program([product], x, y), machine=BF16))
    f = ng.function(product, x, y)
    draw = np.random.default_rng(1)
    for length in (64, 63, 2, 1, 0, 129):
        p, q = (draw.standard_normal((k, length)).astype(SHORT) for k in (48, 64))
        exact = p.astype(np.float64) @ q.astype(np.float64).T
        np.testing.assert_allclose(f(p, q), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("k", [64, 63, 130])
def test_matrices_that_several_rows_take_are_packed_once(k):
    """They are packed before they are gathered; where the terms of a sum are gathered, pairs of them are not those of the source."""
    groups, tiles, rows, terms, n = axis(3, "G"), axis(20, "T"), axis(32, "M"), axis(k, "K"), axis(70, "N")
    x, w, of = hole(tiles, rows, terms, dtype=SHORT), hole(groups, terms, n, dtype=SHORT), hole(tiles, dtype=np.int32)
    product = ng.contract(ng.cast(x, np.float32), ng.cast(gather(w, of, axes=(groups,), mode="clip"), np.float32), over=terms)
    made = plan(program([product], x, w, of), machine=BF16)
    assert "dot2" in text(made)
    assert any("G" in b.axes for b in made.buffers if b.dtype.name == "uint32")
    draw = np.random.default_rng(k)
    p, q = draw.standard_normal((20, 32, k)).astype(SHORT), draw.standard_normal((3, k, 70)).astype(SHORT)
    chosen = draw.integers(0, 3, 20).astype(np.int32)
    exact = np.einsum("tmk,tkn->tmn", p.astype(np.float64), q.astype(np.float64)[chosen])
    np.testing.assert_allclose(ng.function(product, x, w, of)(p, q, chosen), exact, rtol=1e-5, atol=1e-4)
    order = draw.permutation(np.repeat(np.arange(k), 2)).astype(np.int32)
    long = axis(2 * k, "L")
    y, at = hole(rows, terms, dtype=SHORT), hole(long, dtype=np.int32)
    z = hole(long, n, dtype=SHORT)
    gathered = ng.contract(ng.cast(gather(y, at, axes=(terms,), mode="clip"), np.float32), ng.cast(z, np.float32), over=long)
    b = draw.standard_normal((2 * k, 70)).astype(SHORT)
    exact = p[0].astype(np.float64)[:, order] @ b.astype(np.float64)
    np.testing.assert_allclose(ng.function(gathered, y, at, z)(p[0], order, b), exact, rtol=1e-5, atol=1e-4)


def test_halves_and_their_products_for_any_width():
    draw = np.random.default_rng(0)
    low, high = draw.integers(0, 1 << 16, (2, 403), dtype=np.uint16)
    packed = low.astype(np.uint32) | high.astype(np.uint32) << 16
    x, y = ((draw.integers(100, 150, (2, 403)) << 7 | half & 0x807F).astype(np.uint32) for half in (low, high))  # no sum that overflows
    x, y = (v[0] | v[1] << 16 for v in (x, y))
    high_x, low_x, high_y, low_y = ((v << k & 0xFFFF0000).view(np.float32) for v in (x, y) for k in (0, 16))
    products = low_x.astype(np.float64) * low_y + high_x * high_y  # the second is exact in float32
    for target in (HOST, *RUNNABLE):
        for lanes in (1, 3, 4, 7, 8, 13, 16):
            code = jit.load(single(target, "pack2", [dtypes.bfloat16] * 2, dtypes.uint32, {}, lanes), target)
            np.testing.assert_array_equal(run(code, [low.view(SHORT), high.view(SHORT)], [dtypes.uint32])[0], packed)
            code = jit.load(single(target, "dot2", [dtypes.uint32] * 2, dtypes.float32, {}, lanes), target)
            np.testing.assert_array_equal(run(code, [x, y], [dtypes.float32])[0], products.astype(np.float32))


def test_where_there_is_an_instruction_it_is_taken():
    made = plan(dot(128, 512, 256), machine=BF16)
    every = [emit(made, k, WITH) for k in made.every if isinstance(k, Kernel)]
    assert sum([jit.compile_assembly(code.text, WITH).count("vdpbf16ps") for code in every]) >= 20
