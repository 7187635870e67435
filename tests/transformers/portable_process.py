"""Runs the files of `test_portable.py`: no plan, no program, no op is known here; every region lies somewhere else in each call."""

import os
import pickle
import sys

import numpy as np

from ngraph.runtime.host.bytecode import DONE, FRAME
from ngraph.runtime.host.image import TableImage
from ngraph.runtime.host.jit import load
from ngraph.runtime.host.loader import LoadedObjects
from ngraph.runtime.host.pool import aligned, pool

PAGE = 4096
held = []  # all memory: none is used twice


def memory(size):
    array, at = aligned(max(size, 1) + 64)
    array[:] = 0xA5
    held.append(array)
    return array, at


class Program:
    """A table in memory."""

    def __init__(self, image, threads):
        self.image, self.memory = image, image.memory.copy()
        held.append(self.memory)
        self.frame = np.zeros(len(FRAME), np.int64)
        threads_there = the_pool.ensure(threads)
        self.set(table=self.memory.ctypes.data, threads=threads_there)
        self.bind("table", self.memory.ctypes.data)

    def set(self, **words):
        for name, value in words.items():
            self.frame[FRAME[name]] = value

    def bind(self, region, base):
        self.image.bind(self.memory, region, base)

    def run(self, pc=0):
        self.set(pc=pc)
        assert the_pool.run(the_pool.address, self.frame.ctypes.data) == DONE

    def lengths(self, lengths):
        for name, k in self.image.lengths.items():
            self.memory[k] = lengths[name]
        self.run(self.image.start)
        return {name: int(self.memory[k]) for name, k in self.image.sizes.items()}


folder = sys.argv[1]
read = lambda name: open(os.path.join(folder, name), "rb").read()
calls, states, outputs, shapes, kernels, constants, threads = pickle.loads(read("calls"))
the_pool = pool(lambda write, target: load(write(target), target))
objects = {name: LoadedObjects(read(name)) for name in kernels}
arrays = {name: np.load(os.path.join(folder, f"{name}.npy")) for name in constants}

for (lengths, arguments, state, wanted), shaped in zip(calls, shapes, strict=True):
    programs = [Program(TableImage.load(read(name)), threads) for name in ("once", "start", "steps")]
    sizes = [p.lengths(lengths) for p in programs]
    arena, once = (memory(max(s[name] for s in sizes))[1] for name in ("arena", "once"))
    results = [np.full(shape, 77, a.dtype) for shape, a in zip(shaped, wanted, strict=True)]
    inputs = [np.array(a, order="C") for a in arguments]
    variables = [np.array(a, order="C") for a in state]
    for p, size in zip(programs, sizes, strict=True):
        stride = -(-size["scratch"] // PAGE) * PAGE + 64
        p.set(scratch=memory(stride * int(p.frame[FRAME["threads"]]))[1], stride=stride)
        p.bind("arena", arena)
        p.bind("once", once)
        for name, loaded in objects.items():
            p.bind(name, loaded.address("kernel"))
        for name, array in arrays.items():
            p.bind(name, array.ctypes.data)
        for k, array in enumerate(inputs):
            p.bind(f"input {k}", array.ctypes.data)
        for k in outputs:
            p.bind(f"output {k}", results[k].ctypes.data)
        for name, array in zip(states, variables, strict=True):
            p.bind(f"state {name}", array.ctypes.data)
        assert p.lengths(lengths) == size
        p.run()
    for got, want in zip(results, wanted, strict=True):
        assert got.tobytes() == want.tobytes(), (lengths, got, want)
assert not [m for m in sys.modules if m.startswith(("ngraph.plan", "ngraph.program", "ngraph.ops", "ngraph.transformers"))]
print(len(calls), "calls")
