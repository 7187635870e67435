"""Random plans of the hunt, and what they should give."""

import os
import sys

import numpy as np
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in (HERE, os.path.join(HERE, "..", ".."), os.path.join(HERE, "..", "codegen")):
    sys.path.insert(0, os.path.abspath(folder))

from hunt import kernels  # noqa: E402  the hunt lies beside the package, and is not installed
from ngraph.plan.planner import plan  # noqa: E402
from ngraph.program.program import AxisId  # noqa: E402
from ngraph.targets import TARGETS, host  # noqa: E402


class Case:
    """A random plan with arguments, and the values that NumPy gives for its outputs and its state."""

    def __init__(self, seed):
        case = kernels.draw(seed)
        values = kernels.meaning(case)
        if kernels._apart(case) and not all(np.isfinite(x.astype(np.float64)).all() for _, _, x in values):
            raise kernels.Invalid("zeros between elements are no terms")
        self.program, self.inputs, self.state = kernels.build(case)
        self.lengths = {AxisId(a): case["axes"][a] for a in case["open"]}
        self.plan = plan(self.program, None, kernels.machine_of(case), winograd=False)
        self.target = TARGETS.get(case["target"], host())
        after = [v for _, (_, v) in zip(self.program.state_out, case.get("state", ()), strict=True)]
        held = [s.value for s in self.program.state_in]
        self.wanted = []
        for v, k in zip([*self.program.outputs, *held], [*case["outputs"], *after], strict=True):
            axes, dtype, x = values[k]
            self.wanted.append((list(v.axes), dtype, x.transpose([axes.index(a) for a in v.axes])))

    def differs(self, outputs, state):
        """What is wrong with results, in a line; None where they agree."""
        names = [name for name, _ in self.program.state_out]
        return kernels._first([*outputs, *[state[name] for name in names]], self.wanted)


@pytest.fixture(scope="session")
def cases():
    """The case of a seed, or None where the seed has none."""
    made = {}

    def case(seed):
        if seed not in made:
            try:
                with np.errstate(all="ignore"):
                    made[seed] = Case(seed)
            except kernels.Invalid:
                made[seed] = None
        return made[seed]

    return case
