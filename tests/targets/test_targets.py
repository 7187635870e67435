"""Machines as records: product instructions as rows, what costs ask for, and tuned numbers that say where they come from."""

import ast
import inspect
import re
from dataclasses import replace

import pytest

import ngraph.targets
from ngraph.targets import DEFAULT, GPUS, TARGETS, caches, extended, tuning
from ngraph.targets.products import AMX_BF16, AMX_INT8, AVX_VNNI, DOTS, FMA, I8MM, MMA_BF16, PACKED_BITS, PACKS, PRODUCTS, WGMMA_BF16

FLAGS = ["avx512_bf16", "avx512_vnni", "avx_vnni", "i8mm"]
ROWS = {row for t in TARGETS.values() for row in extended(t, FLAGS).products}


def test_rows_of_one_operation_add_up_the_same():
    for row in ROWS:
        known = PRODUCTS[row.op]
        assert (row.m, row.n, row.k) == (known.m, known.n, known.k) == (1, 1, row.k)
        assert row.op == "multiply" or (row.operands, row.sum) == (known.operands, known.sum)
        assert row.op == "multiply" or all(d.bits == row.operand_bits for d in row.operands)
    assert {row.op for row in ROWS} == set(PRODUCTS) and {"dot2", "dot4"} == set(DOTS)
    assert all(row.k * row.operand_bits == PACKED_BITS for row in PACKS.values())


@pytest.mark.parametrize("name", TARGETS)
def test_a_processor_has_the_rows_whose_flags_it_has(name):
    plain = TARGETS[name]
    assert plain.product("dot2") is plain.product("dot4") is None
    assert plain.fma == (plain.product("multiply") is FMA) == (name != "x86-64-v2")
    more = extended(plain, FLAGS)
    added = [row for row in more.products if row not in plain.products]
    assert all(row.feature in more.features.split(",") for row in added)
    assert all(32 * max(row.lanes) <= more.vector_bits for row in added)
    assert {"x86-64-v3": [AVX_VNNI], "aarch64": [I8MM], "x86-64-v2": []}.get(name, added) == added


def test_registers_of_matrices_are_of_processors_with_vectors_of_512_bits():
    flags = ["avx512_bf16", "amx_bf16", "amx_tile", "amx_int8"]
    more = extended(TARGETS["x86-64-v4"], flags)
    assert more.matrix("dot2") is AMX_BF16 and more.matrix("dot4") is AMX_INT8 and more.matrix("multiply") is None
    assert more.features.split(",").count("+amx-tile") == 1
    assert extended(TARGETS["x86-64-v3"], flags).matrix("dot2") is None


@pytest.mark.parametrize("answer", [0, -1])
def test_without_linux_there_are_no_registers_of_matrices(monkeypatch, answer):
    flags, asked = ["avx512_bf16", "amx_bf16", "amx_tile", "amx_int8"], []

    class Library:
        def __init__(self, *_, **__):
            pass

        def syscall(self, *numbers):
            asked.append(numbers)
            return answer

    monkeypatch.setattr(ngraph.targets.ctypes, "CDLL", Library)
    assert ngraph.targets._permitted(flags) == (["avx512_bf16"] if answer else flags)
    assert ngraph.targets._permitted(["avx2"]) == ["avx2"] and asked == [(158, 0x1023, 18)]


def test_what_costs_ask_for_follows_from_the_record():
    assert DEFAULT.usable_l1 == 24 << 10 and DEFAULT.usable_l2 == 600 << 10 and DEFAULT.usable_l3 == 16 << 20
    assert DEFAULT.lanes32 == 16 and DEFAULT.speed == 40e9 and DEFAULT.all_caches_bandwidth == 120e9
    assert replace(DEFAULT, vector_bits=256).speed == 20e9 and replace(DEFAULT, cores=4).all_caches_bandwidth == 120e9
    assert [space.name for space in DEFAULT.spaces] == ["L1", "L2", "L3", "memory"]
    assert len({DEFAULT, replace(DEFAULT), replace(DEFAULT, cores=3)}) == 2


REPORTS = {"virtual Xeon": ("491520K", 480, 32), "EPYC": ("32768K", 32, 32), "laptop": ("8M", 8, 8), "stacked cache": ("98304K", 96, 32)}


@pytest.mark.parametrize("name", REPORTS)
def test_a_process_counts_on_a_share_of_the_third_cache(name, tmp_path, monkeypatch):
    size, reported, counted = REPORTS[name]
    for k, (kind, level, text) in enumerate([("Data", 1, "48K"), ("Instruction", 1, "64K"), ("Unified", 2, "2048K"), ("Unified", 3, size)]):
        folder = tmp_path / f"index{k}"
        folder.mkdir()
        for file, said in (("type", kind), ("level", level), ("size", text), ("coherency_line_size", 64)):
            (folder / file).write_text(f"{said}\n")
    found = caches(str(tmp_path))
    assert found == {"l1": 48 << 10, "l2": 2 << 20, "l3": reported << 20, "line": 64}
    monkeypatch.setattr(ngraph.targets, "caches", lambda: found)
    for cores in (2, 64):  # how many there are must not decide how sums are added up
        monkeypatch.setattr(ngraph.targets.os, "cpu_count", lambda cores=cores: cores)
        made = ngraph.targets.host.__wrapped__()
        assert (made.l1, made.l2, made.l3, made.cores) == (48 << 10, 2 << 20, counted << 20, cores)


def test_a_graphics_processor_is_a_record_of_the_same_kind():
    g = GPUS["sm_90"]
    assert g.warp == 32 and g.threads_per_block == 1024 and g.spaces[0].bytes == 227 << 10
    assert [space.name for space in g.spaces] == ["shared", "L2", "memory"]
    assert g.product("mma16x8x16") is MMA_BF16 and g.product("mma64x256x16") is WGMMA_BF16 and g.product("dot2") is None


def test_every_tuned_number_says_its_unit_and_where_it_comes_from():
    body = ast.parse(inspect.getsource(tuning)).body
    names = [(k, node.targets[0].id) for k, node in enumerate(body) if isinstance(node, ast.Assign)]
    assert len(names) > 20
    for k, name in names:
        said = body[k + 1].value.value if isinstance(body[k + 1], ast.Expr) else ""
        assert re.fullmatch(r"\[[^\]]+\] .+ (Rule|Limit|Chosen|Measured)(:| of) .+\.", said, re.DOTALL), (name, said)
