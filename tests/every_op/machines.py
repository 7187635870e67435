"""Machines for which programs are planned in tests: any plan has to be right."""

import numpy as np

from ngraph.plan import MachineModel


def machines(seed, count):
    """Machines that may be or not: with small caches, say, or slow memory."""
    draw = np.random.default_rng(seed)

    def between(low, high):
        return float(np.exp(draw.uniform(np.log(low), np.log(high))))

    for _ in range(count):
        yield MachineModel(
            cores=int(draw.integers(1, 9)),
            l1=int(between(1 << 8, 48 << 10)),
            l2=int(between(1 << 10, 2 << 20)),
            l3=int(between(1 << 12, 64 << 20)),
            memory=between(1e7, 1e11),
            cache=between(1e8, 1e12),
            speed=between(1e8, 1e12),
            launch=between(1e-9, 1e-4),
        )
