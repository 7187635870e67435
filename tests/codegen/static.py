"""Runs kernels for another processor: as programs of their own, whole in one file, in an emulator.

A program holds a kernel's code, its buffers and its arguments at fixed addresses; it runs all work items and writes all buffers to stdout.
"""

import functools
import os
import shutil
import struct
import subprocess
import tempfile

import numpy as np
import plans
import pytest

from ngraph.codegen.kernel import emit
from ngraph.codegen.routines import emit_opaque_op
from ngraph.runtime.host.jit import compile_object
from ngraph.runtime.host.loader import AARCH64, PAGE, ObjectLayout
from ngraph.targets import TARGETS

TARGET = TARGETS["aarch64"]
EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
emulated = pytest.mark.skipif(EMULATOR is None, reason="NOT RUN: qemu-aarch64 is not installed (apt-get install qemu-user)")
BASE, DATA = 1 << 20, 1 << 24  # where code lies, and where data
READ, WRITE, EXECUTE = 4, 2, 1


def loaded(register, number):
    """Instructions that put a number into a register: MOVZ and three MOVK."""
    return [(0xF2800000 if k else 0xD2800000) | k << 21 | (number >> 16 * k & 0xFFFF) << 5 | register for k in range(4)]


def start(calls, size):
    """Instructions that make these calls (an address and arguments), write `size` bytes at `DATA` to stdout, and end."""
    words = []
    for address, *arguments in calls:
        for k, number in enumerate(arguments):
            words += loaded(k, number)
        words += [*loaded(16, address), 0xD63F0200]  # blr x16
    words += [*loaded(1, DATA), *loaded(2, size), *loaded(8, 64)]
    again = [*loaded(0, 1), 0xD4000001, 0x8B000021, 0xEB000042]  # svc 0; add x1, x1, x0; subs x2, x2, x0
    words += [*again, 0x5400000C | (-len(again) & 0x7FFFF) << 5]  # b.gt
    words += [*loaded(0, 0), *loaded(8, 93), 0xD4000001]
    return struct.pack(f"<{len(words)}I", *words)


def placed(sizes):
    """Where blocks of these sizes lie, and where they end."""
    places = [DATA]
    for size in sizes:
        places.append(-(-(places[-1] + size) // 64) * 64 + 64)
    return places


@functools.lru_cache(64)
def compiled(text, target):
    """The object of a kernel; calls of other lengths take the same one."""
    return compile_object(text, target)


def program(text, pieces, blocks, target=TARGET):
    """An ELF program (System V ABI, chapter 5) that runs a kernel's work items in these pieces over blocks of bytes, and writes those.

    The last block but one is the kernel's table of arguments, the last one scratch; these are not written.
    """
    *places, end = placed(map(len, blocks))
    *_, args, scratch = places
    layout = ObjectLayout([compiled(text, target)])
    assert BASE + layout.size <= DATA
    image, memory = bytearray(layout.size), bytearray(end - DATA)
    layout.write(image, BASE)
    for place, block in zip(places, blocks, strict=True):
        memory[place - DATA : place - DATA + len(block)] = block
    code = start([(BASE + layout.offset("kernel"), args, *piece, scratch) for piece in pieces], args - DATA)
    segments = [(0, BASE - PAGE, PAGE, READ | EXECUTE)]
    # writing and running have other bits here than in sections
    segments += [(PAGE + at, BASE + at, size, READ | (f & 1) << 1 | f >> 2) for at, size, f in layout.parts]
    segments.append((PAGE + len(image), DATA, len(memory), READ | WRITE))
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 2, AARCH64, 1, BASE - PAGE // 2, 64, 0, 0, 64, 56, len(segments), 0, 0, 0)
    for offset, place, size, flags in segments:
        head += struct.pack("<IIQQQQQQ", 1, flags, offset, place, place, size, size, PAGE)
    return head.ljust(PAGE // 2, b"\0") + code.ljust(PAGE // 2, b"\0") + bytes(image) + bytes(memory)


class Emulated(plans.Compiled):
    """A plan being run: each kernel is a program of its own."""

    target = TARGET
    runs = 0

    def kernel(self, kernel):
        for b in kernel.targets:
            self.place(b)
        self.launch(emit(self.plan, kernel, self.target))

    def routine(self, step):
        if step.op not in ("sort", "cumulate"):
            return super().routine(step)
        for b in step.results:
            self.place(b)
        for code in emit_opaque_op(self.plan, step, self.target):
            self.launch(code)

    def launch(self, code):
        """Runs a kernel's work items in three pieces, the last ones first, on copies of the memory that it uses, and copies that back."""
        blocks, where = {}, {}  # whole pieces of memory by address; for each buffer one of them, and how far in it lies
        for b in code.buffers:
            if b not in self.arrays:  # between the parts of a routine
                self.arrays[b] = np.full(b.bytes, 0xA5, np.uint8)
            if self.inside(self.arrays[b]) is None:
                self.arrays[b] = np.require(self.arrays[b], requirements=("C",))
            at = self.arrays[b].ctypes.data
            whole = self.arrays[b] if (m := self.inside(self.arrays[b])) is None else m
            blocks[whole.ctypes.data] = whole
            where[b] = whole.ctypes.data, at - whole.ctypes.data
        places = dict(zip(blocks, placed([a.nbytes for a in blocks.values()]), strict=False))
        numbers = [places[whole] + off for whole, off in where.values()] + [self.length(a) for a in code.lengths]
        table = struct.pack(f"<{len(numbers) + 1}q", *numbers, 0)
        items = self.number(code.work_items)
        cuts = [0, items // 3, items - items // 3, items]
        contents = [*(a.tobytes() for a in blocks.values()), table, b"\xa5" * (self.number(code.scratch) + 64)]
        written = self.execute(program(code.text, list(zip(cuts, cuts[1:], strict=False))[::-1], contents, self.target))
        for at, a in blocks.items():
            if a.nbytes and a.flags.writeable:
                a.reshape(-1).view(np.uint8)[:] = np.frombuffer(written, np.uint8, a.nbytes, places[at] - DATA)
        Emulated.runs += 1

    def inside(self, array):
        """The arena, or what outlasts calls, where an array lies in it."""
        for memory in self.memory.values():
            if memory.ctypes.data <= array.ctypes.data < memory.ctypes.data + memory.nbytes:
                return memory
        return None

    def execute(self, made):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program")
            with open(path, "wb", opener=lambda p, flags: os.open(p, flags, 0o700)) as file:
                file.write(made)
            done = subprocess.run([EMULATOR, path], capture_output=True, timeout=100)
        assert done.returncode == 0, (done.returncode, done.stderr)
        return done.stdout
