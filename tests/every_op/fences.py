"""Every buffer of a call in memory of its own, between bytes that nobody may write; memory without values holds NaN.

`fenced()` puts it around all that the cpu is given and makes: arguments, results, state, constants, each buffer of the arena, scratch.
`fenced("before")` and `fenced("behind")` take a page that nobody may touch: whoever reads there ends the process.
"""

import contextlib
import ctypes
import mmap
import weakref
from unittest import mock

import numpy as np

from ngraph.runtime.state import StateArrays
from ngraph.transformers.cpu.device import CpuDevice
from ngraph.transformers.executable import frame
from ngraph.transformers.executable.device import DeviceMemory
from ngraph.transformers.executable.frame import ActivationRecord, BufferAddresses, InstantiatedPlan, root
from ngraph.transformers.executable.table import ABSOLUTE, Address

WIDTH, BYTE, EMPTY = 256, 0xA7, 0xFF


class Fences:
    def __init__(self, side=None):
        self.side, self.memory = side, []  # what lies between fences, with them, as long as somebody else holds it

    def pages(self, size, alignment):
        page, room = mmap.PAGESIZE, -(-max(size, 1) // alignment) * alignment
        whole = -(-room // page) * page
        raw = np.frombuffer(mmap.mmap(-1, whole + page), np.uint8)
        raw[...] = EMPTY
        start, closed = (page, 0) if self.side == "before" else (whole - room, whole)
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        assert not protect(ctypes.c_void_p(raw.ctypes.data + closed), ctypes.c_size_t(page), 0)
        return raw[start : start + size]

    def bytes(self, size, alignment):
        if self.side is not None:
            return self.pages(size, alignment)
        raw = np.full(size + alignment + 2 * WIDTH, BYTE, np.uint8)
        start = -(-(raw.ctypes.data + WIDTH) // alignment) * alignment - raw.ctypes.data
        made = raw[start : start + size]
        made[...] = EMPTY
        self.memory.append((weakref.ref(raw), start, size))
        return made

    def alloc(self, size):
        made = self.bytes(size, 64)
        return DeviceMemory(made, made.ctypes.data)

    def empty(self, shape, dtype):
        size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
        return self.bytes(size, np.dtype(dtype).itemsize).view(dtype).reshape(shape)

    def like(self, array):
        made = self.empty(array.shape, array.dtype)
        made[...] = array
        return made

    def check(self):
        for held, start, size in self.memory:
            if (raw := held()) is None:
                continue
            torn = [k - start for k in np.flatnonzero(raw != BYTE) if not start <= k < start + size] if self.torn(raw, start, size) else []
            assert not torn, f"{len(torn)} bytes beside a buffer of {size} bytes were written, the first at {torn[0]}"
        self.memory = [kept for kept in self.memory if kept[0]() is not None]

    @staticmethod
    def torn(raw, start, size):
        return (raw[:start] != BYTE).any() or (raw[start + size :] != BYTE).any()

    def resolve(self, scope, b):
        b = root(b)
        if b in scope.named:
            return scope.named[b]
        constant = b in scope.bound.constants
        holder = scope.bound.shared if constant or b.storage == "once" and scope.bound.outer is None else scope.bound
        own = holder.__dict__.setdefault("fenced", {})
        if constant:
            if b not in own:
                own[b] = self.like(scope.bound.constants[b])
            return Address(ABSOLUTE, own[b].ctypes.data)
        if b not in scope.bound.layout.offsets:
            return Address(b)
        place = b, scope.kept if b.storage == "once" else scope.base
        if place not in own:
            own[place] = self.bytes(scope.bound.sizes[b], 64)
        return Address(ABSOLUTE, own[place].ctypes.data)


@contextlib.contextmanager
def fenced(side=None):
    fences, call, ensure = Fences(side), ActivationRecord.call, StateArrays.ensure

    def checked(self, given, states):
        results = call(self, {b: fences.like(a) if a is not None and b in self.plan.inputs else a for b, a in given.items()}, states)
        fences.check()
        return results

    def made(self, variables):
        new = [v for v in variables if v not in self.arrays]
        ensure(self, variables)
        self.arrays.update({v: fences.like(self.arrays[v]) for v in new})

    with contextlib.ExitStack() as stack:
        for owner, name, value in (
            (frame, "empty", fences.empty),
            (CpuDevice, "alloc", lambda _, size: fences.alloc(size)),
            (CpuDevice, "entry", lambda *_: None),
            (BufferAddresses, "resolve", lambda scope, b: fences.resolve(scope, b)),
            (ActivationRecord, "call", checked),
            (ActivationRecord, "settle", ActivationRecord.__init__),  # its buffers are of the size that other lengths had
            (InstantiatedPlan, "fits", lambda *_: False),
            (StateArrays, "ensure", made),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield fences
        fences.check()
