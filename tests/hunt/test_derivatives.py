"""The kind `derivatives`: its cases agree, mean something, become smaller, and its exceptions are those of docs/autodiff.md."""

import itertools
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import hunt
from hunt import derivatives, edges
from hunt.differentiable import ROWS

SPECIAL = list(edges.SPECIAL)


def test_cases_agree():
    found = {seed: derivatives.check(derivatives.draw(seed)) for seed in range(60)}
    assert {seed: differs for seed, differs in found.items() if differs} == {}


def test_a_case_is_drawn_again_and_kept_in_a_file():
    for seed in range(20):
        case = derivatives.draw(seed)
        text = json.dumps(case)
        assert text == json.dumps(derivatives.draw(seed)) == json.dumps(json.loads(text))


def compositions(count):
    return [case for seed in range(count) if "edge" not in (case := derivatives.draw(seed))]


def test_every_function_is_drawn():
    drawn = {step[0] for case in compositions(3000) for step in case["steps"]}
    assert drawn == set(ROWS)


def test_few_derivatives_are_zeros():
    some = [case for case in compositions(150) if derivatives._by_torch(case, case["by"])[0]]
    zeros = sum(not any(g.any() for g in derivatives._by_torch(case, case["by"])[0]) for case in some)
    assert zeros < len(some) / 10


def test_differences_agree_with_pytorch():
    """Both oracles say the same of first derivatives where neither has seen ngraph."""
    for case in compositions(60):
        first, _ = derivatives._by_torch(case, case["by"])
        with np.errstate(all="ignore"):
            answers = derivatives.Differences(case, case["by"]).answers()
        for k, (g, (slope, unsure)) in enumerate(zip(first, answers, strict=True)):
            size = max(1.0, float(np.abs(g).max(initial=0)))
            assert abs(float((g * derivatives._direction(g.shape, k)).sum()) - slope) <= 2 * unsure + 1e-6 * size


def test_smaller_cases_are_sound_and_no_larger():
    for case in compositions(25):
        size = len(case["leaves"]) + len(case["steps"])
        for simpler in derivatives.smaller(case):
            assert len(simpler["leaves"]) + len(simpler["steps"]) <= size
            assert derivatives.check(simpler) is None


def test_a_program_shows_what_the_case_asks():
    case = next(c for c in compositions(30) if c["second"])
    root = os.path.dirname(os.path.dirname(hunt.__file__))
    done = subprocess.run(
        [sys.executable, "-c", derivatives.program(case)],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": root},
    )
    shown = [line.split(" wanted ") for line in done.stdout.splitlines()]
    assert shown and all(np.allclose(json.loads(got), json.loads(wanted)) for got, wanted in shown)


# ---- edges ---------------------------------------------------------------------------------------------------------------


def special_cases(name):
    """All special values in each operand; for functions that mix elements, all vectors of up to two."""
    edge = edges.EDGES[name]
    if not edge.alone:
        vectors = [list(v) for n in (1, 2) for v in itertools.product(SPECIAL, repeat=n)]
        operands = [[v] for v in vectors]
    else:
        operands = [[list(v) for v in zip(*itertools.product(SPECIAL, SPECIAL), strict=True)] if "{1}" in edge.source else [SPECIAL]]
    return [
        {"edge": name, "values": values, "dtype": dtype, "transformer": "direct"} for values in operands for dtype in ("float64", "float32")
    ]


@pytest.mark.parametrize("name", [n for n, e in edges.EDGES.items() if e.alone])
def test_special_values_of_elementwise_functions(name):
    assert [edges.check(case) for case in special_cases(name)] == [None, None]


@pytest.mark.parametrize("name", sorted({e.function for e in edges.EXCEPTIONS}))
def test_every_exception_is_one(name):
    """What the list calls different is different somewhere, and nothing else is."""
    met = set()
    for case in special_cases(name):
        assert edges.check(case) is None
        for _, kind, _, _, far in edges.differing(case):
            operands = [np.array(v) for v in case["values"]]
            met |= {e for e in edges.EXCEPTIONS if e.function == name and e.what == kind and np.any(far & e.holds(*operands))}
    assert met == {e for e in edges.EXCEPTIONS if e.function == name and e.kernels in ("", torch.backends.cpu.get_cpu_capability())}


def test_the_documentation_lists_the_exceptions():
    root = os.path.dirname(os.path.dirname(hunt.__file__))
    with open(os.path.join(root, "docs", "autodiff.md"), encoding="utf-8") as file:
        page = file.read()
    table = page[page.index("| where | here | PyTorch | reason |") :].split("\n\n")[0].splitlines()
    assert table[2:] == edges.table()
