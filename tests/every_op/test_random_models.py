"""Random models on the cpu, at sizes that fill vectors, tiles and caches, give what the oracle gives, steps of training included.

Any seed will do, `SEEDS` says which are run: `SEEDS=1000-2000 pytest tests/every_op/test_random_models.py`.
"""

import os
from dataclasses import replace

import numpy as np
import pytest
from machines import usable
from networks import model
from runs import another_machine, expected, on_cpu

from ngraph.plan import cost
from ngraph.plan.planner import plan
from ngraph.plan.verify import verify
from ngraph.program.lower import lower

FIRST, LAST = map(int, os.environ.get("SEEDS", "0-16").split("-"))
CASES = [(seed, ("float32", "float32", "float64")[seed % 3], other) for seed in range(FIRST, LAST) for other in (False, True)]
CASES += [(seed, "float32", False) for seed in (102, 140, 3068, 3260, 3324)]  # that were wrong once
TOLERANCE = {"float32": (5e-3, 1e-3), "float64": (1e-8, 1e-6)}  # of the largest element, or of this


@pytest.mark.parametrize(
    ("seed", "dtype", "other"), CASES, ids=[f"{dtype}-{seed}{'-planned for another machine' * o}" for seed, dtype, o in CASES]
)
def test_a_random_model(seed, dtype, other, monkeypatch):
    if other:
        another_machine(seed, monkeypatch)
    m, holes, draw, results, updates = model(seed, dtype)
    calls = [draw(), draw()]
    if m.open:
        m.batch = m.pick((1, 3, 7, 20))
        calls.append(draw())
    wanted = expected(results, updates, holes, calls)
    got = on_cpu(results, updates, holes, calls, monkeypatch, fences=seed % 2 > 0)
    share, least = TOLERANCE[dtype]
    for k, (a, b) in enumerate(zip(got, wanted, strict=True)):
        for r, x, y in zip(results, a, b, strict=True):
            assert x.shape == y.shape and x.dtype == y.dtype
            lost = np.isnan(x) & np.isnan(y)
            away = np.abs(np.where(lost, 0, x.astype(np.float64) - y)).max(initial=0)
            assert away <= share * max(least, np.abs(y).max(initial=0, where=~np.isnan(y))), f"call {k}, {r}:\n{x}\n{y}"


@pytest.mark.parametrize("seed", [*range(8), 30])
def test_plans_are_whole_where_every_sum_is_cut_that_can_be(seed, monkeypatch):
    """Also those that could be cut only once the parts of others are put together."""
    monkeypatch.setattr(cost, "MAX_SPLIT_K_TIME", 1000)
    _, holes, _, results, updates = model(seed)
    verify(
        plan(
            lower([*results, *updates], holes).program,
            machine=replace(usable(l2=8 << 10, l3=1 << 20), cores=8, launch=1e-9, memory_bandwidth=1e9),
        )
    )
