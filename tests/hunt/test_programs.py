"""The hunt of programs: every public function has a row, what it finds can be repeated, and a planted mistake is found."""

import contextlib
import inspect
import io
import json

import pytest

import ngraph as ng
from hunt import oracle, planted_programs, programs

MAKES_NO_OP = (  # axes, names, settings, questions
    "axes compute_reduction_axes config constant_value FlattenedAxis is_constant is_constant_scalar linear_map_axes make_axes make_axis "
    "make_axis_role make_name_scope metadata name_scope slice_axis spatial_axis with_name_scope with_op_metadata"
).split()


def test_every_public_function_that_makes_an_op_has_a_row_or_a_reason():
    functions = {n for n in ng.__all__ if callable(getattr(ng, n)) and not inspect.isclass(getattr(ng, n))}
    rows = {row.makes for row in programs.ROWS.values()}
    reasons = {n for names in programs.WITHOUT_A_ROW for n in names.split()}
    assert functions - rows - reasons - {*MAKES_NO_OP} == set()
    assert reasons & rows == set() and (reasons | {*MAKES_NO_OP}) <= functions
    assert set(programs.ROWS) <= set(oracle.FUNCTIONS)


def test_the_oracle_runs_none_of_ngraphs_code():
    source = inspect.getsource(oracle)
    assert "import ngraph" not in source and "from ngraph" not in source


@pytest.mark.parametrize("first", [1, 2_000_000])
def test_random_programs_agree(first):
    drawn: set[str] = set()
    for seed in range(first, first + 60):
        case = programs.draw(seed)
        assert case == programs.draw(seed) == json.loads(json.dumps(case))
        drawn |= {op["op"] for op in programs._every(case["ops"])}
        found = programs.check(case)
        assert found is None, f"{found}\n{programs.program(case)}"
    assert len(drawn) > len(programs.ROWS) / 2


def test_most_of_what_a_program_gives_is_checked():
    """Bounds that are infinite, where a rounding decides, are few."""
    unknown = every = 0
    for seed in range(300):
        case = programs.draw(seed)
        for outputs, _ in programs.expected(case, {}):
            for value in outputs.values():
                unknown += int((value.e == oracle.INF).sum())
                every += value.e.size
    assert unknown < every / 8


@pytest.mark.parametrize("name", ["exclusive ignored", "an unstable sort", "a sequential reads the start", "while runs once too often"])
def test_a_planted_mistake_is_found(name, monkeypatch):
    for module, what in PLACES[name]:
        monkeypatch.setattr(module, what, getattr(module, what))  # put back what the mistake changes
    planted_programs.MISTAKES[name]()
    try:
        assert any(differs(seed) for seed in range(200))
    finally:
        planted_programs.numpy_ops.named_function.cache_clear()


PLACES = {
    "exclusive ignored": [(planted_programs.numpy_functions, "cumulate")],
    "an unstable sort": [(planted_programs.numpy_functions, "sorted_positions")],
    "a sequential reads the start": [(planted_programs.lower.Lowering, "read")],
    "while runs once too often": [(planted_programs.numpy_functions, "while_loop")],
}


def differs(seed):
    try:
        return programs.check(programs.draw(seed)) is not None
    except Exception:
        return True


def test_a_find_is_made_smaller_and_shown():
    case = programs.draw(12)
    assert all(json.loads(json.dumps(c)) == c for c, _ in zip(programs.smaller(case), range(20), strict=False))
    for seed in range(40):  # of which each kind of op is one
        text = programs.program(programs.draw(seed))
        with contextlib.redirect_stdout(io.StringIO()) as said, ng.config(warnings="off"):
            exec(compile(text, "find.py", "exec"), {})
        assert "import hunt" not in text and said.getvalue().count("call 1") == 3, text
