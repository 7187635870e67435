"""The kind `kernels`: its cases agree, are the same for the same seed, and become smaller."""

import json

from hunt import kernels


def test_cases_agree():
    found = {seed: kernels.check(kernels.draw(seed)) for seed in range(60)}
    assert {seed: differs for seed, differs in found.items() if differs} == {}


def test_a_case_is_drawn_again_and_kept_in_a_file():
    for seed in range(20):
        case = kernels.draw(seed)
        assert case == kernels.draw(seed) == json.loads(json.dumps(case)) or "NaN" in json.dumps(case)


def test_most_cases_mean_something():
    """Nearly every case is one in which all numbers are exact, so that it is compared."""
    sound = 0
    for seed in range(100):
        try:
            kernels.meaning(kernels.draw(seed))
            sound += 1
        except kernels.Invalid:
            pass
    assert sound >= 95


def test_smaller_cases_are_no_larger():
    case = kernels.draw(7)
    places = sum(case["axes"].values()) + len(case["steps"]) * 100 + len(case["outputs"])
    for simpler in kernels.smaller(case):
        assert sum(simpler["axes"].values()) + len(simpler["steps"]) * 100 + len(simpler["outputs"]) <= places
