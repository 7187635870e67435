"""Machines for which programs are planned in tests: any plan has to be right."""

import math
from dataclasses import replace

import numpy as np

from ngraph.targets import DEFAULT
from ngraph.targets.products import AVX512_BF16, AVX512_VNNI
from ngraph.targets.tuning import USABLE_L1, USABLE_L2, USABLE_L3

BF16, INT8 = (replace(DEFAULT, products=(*DEFAULT.products, row)) for row in (AVX512_BF16, AVX512_VNNI))


def usable(l1=None, l2=None, l3=None, machine=DEFAULT):
    """A machine that lets a kernel count on so many bytes of its caches."""
    parts = {"l1": (l1, USABLE_L1), "l2": (l2, USABLE_L2), "l3": (l3, USABLE_L3)}
    return replace(machine, **{name: math.ceil(n / part) for name, (n, part) in parts.items() if n is not None})


def machines(seed, count):
    """Machines that may be or not: with small caches, say, or slow memory."""
    draw = np.random.default_rng(seed)

    def between(low, high):
        return float(np.exp(draw.uniform(np.log(low), np.log(high))))

    for _ in range(count):
        cores = int(draw.integers(1, 9))
        made = usable(int(between(1 << 8, 48 << 10)), int(between(1 << 10, 2 << 20)), int(between(1 << 12, 64 << 20)))
        memory, cache, speed, launch = between(1e7, 1e11), between(1e8, 1e12), between(1e8, 1e12), between(1e-9, 1e-4)
        yield replace(
            made,
            cores=cores,
            memory_bandwidth=memory,
            cache_bandwidth=cache / cores,
            lane_speed=speed / made.lanes32,
            launch=launch,
        )
