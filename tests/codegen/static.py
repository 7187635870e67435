"""Runs kernels for another processor: as programs of their own, whole in one file, in an emulator.

A program holds a kernel's code, its buffers and its arguments at fixed addresses; it runs all work items and writes all buffers to stdout.
`Served` takes one program for all kernels instead, which reads them from stdin: a process for each takes longer than what it runs.
"""

import functools
import os
import select
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
ROOM = 1 << 29  # bytes for the data of a kernel that is served; pages that nobody writes take no memory
SECONDS = 100  # for one kernel
READ, WRITE, EXECUTE = 4, 2, 1


def loaded(register, number):
    """Instructions that put a number into a register: MOVZ and three MOVK."""
    return [(0xF2800000 if k else 0xD2800000) | k << 21 | (number >> 16 * k & 0xFFFF) << 5 | register for k in range(4)]


def packed(words):
    return struct.pack(f"<{len(words)}I", *words)


LEAVE = [*loaded(0, 0), *loaded(8, 93), 0xD4000001]  # exit(0)


def start(calls, size, then=LEAVE):
    """Instructions that make these calls (an address and arguments), write `size` bytes at `DATA` to stdout, and end or do what follows."""
    words = []
    for address, *arguments in calls:
        for k, number in enumerate(arguments):
            words += loaded(k, number)
        words += [*loaded(16, address), 0xD63F0200]  # blr x16
    words += [*loaded(1, DATA), *loaded(2, size), *loaded(8, 64)]
    again = [*loaded(0, 1), 0xD4000001, 0x8B000021, 0xEB000042]  # svc 0; add x1, x1, x0; subs x2, x2, x0
    words += [*again, 0x5400000C | (-len(again) & 0x7FFFF) << 5]  # b.gt
    return packed([*words, *then])


def server(head):
    """Instructions that read an address and a size to `head`, then so many bytes to the address, and so on; of size 0 is a jump there."""

    def read(leave):
        """Reads x2 bytes to x1; at the end of the input it jumps to so many words behind its own first."""
        again = [*loaded(0, 0), *loaded(8, 63), 0xD4000001, 0xF100001F]  # svc 0; cmp x0, #0
        again += [0x5400000D | leave - len(again) << 5, 0x8B000021, 0xEB000042]  # b.le; add x1, x1, x0; subs x2, x2, x0
        return [*again, 0x5400000C | (-len(again) & 0x7FFFF) << 5]  # b.gt

    size = len(read(99))
    fields = [*loaded(3, head), 0xF9400061, 0xF9400462, 0xB4000002 | size + 2 << 5]  # ldr x1, [x3]; ldr x2, [x3, 8]; cbz x2
    words = [*loaded(1, head), *loaded(2, 16), *read(size + len(fields) + size + 2), *fields, *read(size + 2)]
    words.append(0x14000000 | -len(words) & 0x3FFFFFF)  # b
    return packed([*words, 0xD61F0020, *LEAVE])  # br x1


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


def linked(text, blocks, target):
    """Where a kernel's parts lie, its code, these blocks of bytes at their places, and where the last two of them lie."""
    *places, end = placed(map(len, blocks))
    layout = ObjectLayout([compiled(text, target)])
    assert BASE + layout.size <= DATA
    image, memory = bytearray(layout.size), bytearray(end - DATA)
    layout.write(image, BASE)
    for place, block in zip(places, blocks, strict=True):
        memory[place - DATA : place - DATA + len(block)] = block
    return layout, image, memory, *places[-2:]


def elf(segments, code):
    """The first page of an ELF program (System V ABI, chapter 5): its segments, and the code that it starts with in the second half."""
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 2, AARCH64, 1, BASE - PAGE // 2, 64, 0, 0, 64, 56, len(segments) + 1, 0, 0, 0)
    for offset, place, size, room, flags in [(0, BASE - PAGE, PAGE, PAGE, READ | EXECUTE), *segments]:
        head += struct.pack("<IIQQQQQQ", 1, flags, offset, place, place, size, room, PAGE)
    return head.ljust(PAGE // 2, b"\0") + code.ljust(PAGE // 2, b"\0")


def program(text, pieces, blocks, target=TARGET):
    """A program that runs a kernel's work items in these pieces over blocks of bytes, and writes those.

    The last block but one is the kernel's table of arguments, the last one scratch; these are not written.
    """
    layout, image, memory, args, scratch = linked(text, blocks, target)
    code = start([(BASE + layout.offset("kernel"), args, *piece, scratch) for piece in pieces], args - DATA)
    # writing and running have other bits here than in sections
    segments = [(PAGE + at, BASE + at, size, size, READ | (f & 1) << 1 | f >> 2) for at, size, f in layout.parts]
    segments.append((PAGE + len(image), DATA, len(memory), len(memory), READ | WRITE))
    return elf(segments, code) + bytes(image) + bytes(memory)


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
        written = self.execute(code.text, list(zip(cuts, cuts[1:], strict=False))[::-1], contents)
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

    def execute(self, text, pieces, blocks):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program")
            with open(path, "wb", opener=lambda p, flags: os.open(p, flags, 0o700)) as file:
                file.write(program(text, pieces, blocks, self.target))
            done = subprocess.run([EMULATOR, path], capture_output=True, timeout=SECONDS)
        assert done.returncode == 0, (done.returncode, done.stderr)
        return done.stdout


class Served(Emulated):
    """The same in one program for all kernels, which reads them from stdin; it may write to its own code, and between buffers."""

    emitted, running = {}, []  # by id of a kernel, which stands beside its code and so is never another one's

    def kernel(self, kernel):
        for b in kernel.targets:
            self.place(b)
        if id(kernel) not in self.emitted:
            self.emitted[id(kernel)] = kernel, emit(self.plan, kernel, self.target)
        self.launch(self.emitted[id(kernel)][1])

    @staticmethod
    def program():
        """The process, which is started where none runs."""
        if not Served.running or Served.running[0].poll() is not None:
            file = os.memfd_create("program")
            os.write(file, elf([(PAGE, BASE, 0, DATA + ROOM - BASE, READ | WRITE | EXECUTE)], server(DATA + ROOM - PAGE)))
            streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            Served.running[:] = [subprocess.Popen([EMULATOR, f"/proc/self/fd/{file}"], pass_fds=[file], **streams)]
            os.close(file)
        return Served.running[0]

    def execute(self, text, pieces, blocks):
        layout, image, memory, args, scratch = linked(text, blocks, self.target)
        assert len(memory) <= ROOM - PAGE, "a kernel's data do not fit"
        calls = [(BASE + layout.offset("kernel"), args, *piece, scratch) for piece in pieces]
        code = start(calls, args - DATA, [*loaded(16, BASE - PAGE // 2), 0xD61F0200])  # br x16
        made, at, found = self.program(), DATA + ROOM - PAGE // 2, b""
        for place, part in ((BASE, image), (DATA, memory), (at, code)):
            made.stdin.write(struct.pack("<QQ", place, len(part)) + part)
        made.stdin.write(struct.pack("<QQ", at, 0))
        made.stdin.flush()
        while len(found) < args - DATA:
            assert select.select([made.stdout], [], [], SECONDS)[0], f"a kernel takes more than {SECONDS} s"
            part = os.read(made.stdout.fileno(), args - DATA - len(found))
            assert part, (made.wait(), "the emulator ended")
            found += part
        return found
