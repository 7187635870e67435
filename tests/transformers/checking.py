"""A second device: it records what is allocated, copied and launched, checks each address, and runs kernels by the plan's interpreter.

No code is generated and no table runs by itself: `transformers.executable` alone plans memory, writes instructions, walks and versions.
"""

import ctypes
import math
from typing import NamedTuple

import numpy as np

from ngraph.codegen.signature import KernelCode
from ngraph.op_graph.expr import Len
from ngraph.plan.interpret import GARBAGE, PlanRun
from ngraph.plan.kernels import Kernel, Local, OpaqueOp, room_of, shape_of
from ngraph.plan.planner import plan as planned
from ngraph.targets import host
from ngraph.transformers.base import Transformer
from ngraph.transformers.executable.code import CompiledKernel, CompiledPlan
from ngraph.transformers.executable.device import DeviceMemory, KernelDevice, LoadedKernel
from ngraph.transformers.executable.versions import VersionedExecutable

FENCE = 128  # bytes on each side of an allocation that nobody may write
FENCE_BYTE = 0x5A


class Launch(NamedTuple):
    name: str
    work_items: int
    addresses: tuple


class CheckingDevice(KernelDevice):
    target = host()

    def __init__(self):
        self.kernels, self.addresses = {}, {}  # by address: plan, step, signature; by key: the address
        self.allocations, self.copies, self.launches = [], [], []

    def register(self, key, *what):
        self.addresses.setdefault(key, 1000 + len(self.addresses))
        self.kernels[self.addresses[key]] = what

    # ---- memory

    def alloc(self, size):
        raw = np.full(size + 2 * FENCE + 64, FENCE_BYTE, np.uint8)
        start = -(-(raw.ctypes.data + FENCE) // 64) * 64 - raw.ctypes.data
        made = raw[start : start + size]
        made[...] = GARBAGE
        self.allocations.append((raw, start, size))
        return DeviceMemory(made, made.ctypes.data)

    def check(self):
        """No allocation was written outside."""
        for raw, start, size in self.allocations:
            assert (raw[:start] == FENCE_BYTE).all() and (raw[start + size :] == FENCE_BYTE).all()

    def bytes(self, address, size):
        """Memory at an address: all of it inside one allocation, or an array of the host's."""
        for raw, start, room in self.allocations:
            inside = address - raw.ctypes.data
            if -size < inside < raw.nbytes:
                assert start <= inside and inside + size <= start + room, "a buffer lies across the end of an allocation"
        return np.frombuffer((ctypes.c_char * size).from_address(address), np.uint8)

    def copy(self, to, source, size):
        self.copies.append((to, source, size))
        self.bytes(to, size)[...] = self.bytes(source, size).copy()

    # ---- kernels

    def load(self, keys, again):
        keys = list(keys)
        if not self.addresses.keys() >= set(keys):
            again()
        return {key: LoadedKernel(key, None, self.addresses[key]) for key in keys}

    def launch(self, kernel, arguments, work_items, scratch):
        plan, step, code = self.kernels[kernel]
        count = len(code.buffers) + len(code.lengths)
        words = np.frombuffer((ctypes.c_int64 * count).from_address(arguments), np.int64).tolist()
        run = PlanRun(plan, dict(zip(code.lengths, words[len(code.buffers) :], strict=True)))
        for b, address in zip(code.buffers, words, strict=False):
            run.arrays[b] = self.view(run, b, address)
        assert work_items == math.prod([-(-run.length(a) // block) for a, block in step.loops])
        run.work_items(step)
        self.launches.append(Launch(plan.name, work_items, tuple(words[: len(code.buffers)])))

    def view(self, run, b, address):
        shape = tuple(shape_of(b, run.length))
        full = tuple(room_of(b, run.length))
        memory = self.bytes(address, math.prod(full) * b.dtype.np.itemsize)
        return memory.view(b.dtype.np).reshape(full)[(..., *[slice(n) for n in shape])]


class CheckedExecutable(VersionedExecutable):
    """Kernels are launched, whatever else there is Python runs."""

    def facts(self):
        return ("checking",)

    def compile(self, lengths, facts):
        return self.compiled(planned(self.program, lengths))

    def compiled(self, plan):
        parts = [(self.signature(plan, s),) if type(s) is Kernel else () for s in plan.every]
        made = CompiledPlan(plan, tuple(parts), tuple(map(self.compiled, plan.bodies)))
        self.register(made)
        return made

    def register(self, made):
        for step, parts in zip(made.plan.every, made.parts, strict=True):
            for part in parts:
                self.device.register(part.key, made.plan, step, part.code)
        for body in made.bodies:
            self.register(body)

    again = register

    def signature(self, plan, kernel):
        buffers = tuple([b for b in dict.fromkeys((*kernel.sources, *kernel.targets)) if type(b) is not Local])
        lengths, items = [], 1
        for a in plan.axes:
            try:
                plan.length(a)
            except LookupError:
                lengths.append(a)
        for a, block in kernel.loops:
            n = Len(a) if a in lengths else plan.length(a)
            items = items * ((n + (block - 1)) // block)
        return CompiledKernel(KernelCode("", buffers, tuple(lengths), items, 0, items), b"%d" % id(kernel))

    def missing(self, step):
        assert type(step) is OpaqueOp

    def report(self, code, compiling):
        pass


class CheckingTransformer(Transformer):
    """Without a name, so that it is in no list of transformers."""

    def __init__(self):
        super().__init__()
        self.checking = CheckingDevice()

    def compile(self, program):
        program.check_lengths()
        return CheckedExecutable(self.checking, program).executable()
