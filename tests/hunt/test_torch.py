"""The hunt of ATen programs: what it draws can be repeated, agrees with eager, and is compiled by us; a planted mistake is found."""

import contextlib
import io
import json

import pytest
import torch

import ngraph as ng
from hunt import runner
from hunt import torch as programs
from ngraph.frontends.torch import moving, table


@pytest.mark.parametrize("first", [1, 2_000_000])
def test_random_programs_agree_with_eager(first):
    for seed in range(first, first + 5):
        case = programs.draw(seed)
        assert case == programs.draw(seed) == json.loads(json.dumps(case))
        assert 3 <= len(case["steps"]) <= 30
        found = runner.check("torch", case)
        assert found is None, f"{found}\n{programs.program(case)}"


def test_draws_have_every_kind():
    cases = [programs.draw(seed) for seed in range(40)]
    assert {c["dynamic"] for c in cases} == {"static", "marked", "dynamic"} and {c["gradient"] for c in cases} == {False, True}
    assert {g["layout"] for c in cases for g in c["inputs"]} == set(programs.LAYOUTS)
    assert len({step[0] for c in cases for step in c["steps"]}) > 90


CASE = {
    "lengths": {"a": 3, "b": 4},
    "others": None,
    "dynamic": "static",
    "gradient": False,
    "transformer": "numpy",
    "inputs": [{"shape": "ab", "dtype": "float32", "layout": "steps", "seed": 1}],
    "steps": [["neg", [{"v": 0}], {}], ["constant_pad_nd", [{"v": 1}, [1, 0], 0], {}], ["clone", [{"v": 2}], {}]],
    "results": [3],
}


def test_a_planted_mistake_is_found_and_made_smaller(monkeypatch):
    assert programs.check(CASE) is None
    name = next(n for n, f in table.TABLE.items() if f is moving.pad)
    monkeypatch.setitem(table.TABLE, name, lambda n, a, sizes, value=0: moving.pad(n, a, sizes, 1))
    assert "elements differ" in programs.check(CASE)
    smaller = next(c for c in programs.smaller(CASE) if programs.check(c))
    assert len(smaller["steps"]) == 2


def test_a_case_is_shown_as_a_program():
    with contextlib.redirect_stdout(io.StringIO()) as said, ng.config(warnings="off"):
        exec(compile(programs.program(CASE), "find.py", "exec"), {})
    eager, ours = said.getvalue().replace("-0.", " 0.").split("(tensor")[1:]
    assert eager.split() == ours.split()
    assert torch.is_tensor(programs.inputs(CASE, CASE["lengths"])[0])


def test_integers_are_promoted_to_float64_in_the_exact_run():
    step = ["div.Tensor", [{"v": 0}, 3], {}]
    given = [torch.tensor(1)]
    assert [programs.ran([step], given, wide)[-1].dtype for wide in (False, True)] == [torch.float32, torch.float64]
