"""Products of 8-bit integers by fours: one instruction where the machine has it, elsewhere products of int32, and the same bits."""

from dataclasses import replace

import numpy as np
import plans
import pytest
import static
from kernels import HOST, RUNNABLE, run, single
from machines import INT8
from plan_programs import arrays_for, axis, hole, program

import ngraph as ng
from ngraph.codegen.kernel import emit
from ngraph.op_graph import dtypes
from ngraph.plan.kernels import Kernel
from ngraph.plan.planner import plan
from ngraph.plan.text import text
from ngraph.runtime.host import jit
from ngraph.targets import TARGETS, extended

HAVE = [("x86-64-v4", "avx512_vnni", "vpdpbusd"), ("x86-64-v3", "avx_vnni", "vpdpbusd"), ("aarch64", "asimd i8mm", "usdot")]


def dot(m, k, n):
    m, k, n = axis(m, "M"), axis(k, "K"), axis(n, "N")
    a, b = hole(m, k, dtype=np.uint8), hole(k, n, dtype=np.int8)
    return program([ng.dot(ng.cast(a, np.int32) - 3, ng.cast(b, np.int32))], a, b)


@pytest.mark.parametrize("m, k, n", [(64, 64, 64), (65, 63, 70), (33, 130, 17), (40, 401, 33)])
def test_any_machine_gives_the_same_sums(m, k, n):
    p = dot(m, k, n)
    made = plan(p, machine=INT8)
    assert "dot4" in text(made)
    (a, b), _ = arrays_for(p)
    exact = (a.astype(np.int64) - 3) @ b.astype(np.int64)
    for t in (*RUNNABLE, HOST):
        np.testing.assert_array_equal(plans.run(made, [a, b], target=t)[0][0], exact)


def test_bytes_and_their_products_for_any_width():
    draw = np.random.default_rng(0)
    parts = draw.integers(0, 256, (4, 403), dtype=np.uint8)
    signed = draw.integers(-128, 128, (4, 403)).astype(np.int8)
    x, y = (sum(p.view(np.uint8).astype(np.uint32) << 8 * k for k, p in enumerate(four)) for four in (parts, signed))
    products = (parts.astype(np.int32) * signed).sum(0, dtype=np.int32)
    for target in (HOST, *RUNNABLE):
        for lanes in (1, 3, 4, 7, 8, 13, 16):
            for kind, four, packed in ((dtypes.uint8, parts, x), (dtypes.int8, signed, y)):
                code = jit.load(single(target, "pack4", [kind] * 4, dtypes.uint32, {}, lanes), target)
                np.testing.assert_array_equal(run(code, [*four], [dtypes.uint32])[0], packed)
            code = jit.load(single(target, "dot4", [dtypes.uint32] * 2, dtypes.int32, {}, lanes), target)
            np.testing.assert_array_equal(run(code, [x, y], [dtypes.int32])[0], products)


@pytest.mark.parametrize("level, flags, word", HAVE, ids=[h[0] for h in HAVE])
def test_where_there_is_an_instruction_it_is_taken(level, flags, word):
    target = extended(TARGETS[level], flags.split())
    assert target.product("dot4") and not extended(TARGETS[level], []).product("dot4")
    made = plan(dot(128, 512, 256), machine=INT8)
    every = [emit(made, k, target) for k in made.every if isinstance(k, Kernel)]
    assert sum([jit.compile_assembly(code.text, target).count(word) for code in every]) >= 20


@static.emulated
def test_aarch64_with_its_instruction_gives_the_same_sums():
    p = dot(21, 37, 18)
    made = plan(p, machine=replace(INT8, vector_bits=128))
    (a, b), _ = arrays_for(p)
    got = plans.run(made, [a, b], target=extended(TARGETS["aarch64"], ["i8mm"]), kind=static.Emulated)[0][0]
    np.testing.assert_array_equal(got, (a.astype(np.int64) - 3) @ b.astype(np.int64))
