"""Runs a table of instructions in Python, one launch after another: what `runtime.host.pool` does in generated code."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph.runtime.host import bytecode
from ngraph.runtime.host.bytecode import FRAME, TIMES, WORDS

if TYPE_CHECKING:
    from ngraph.transformers.executable.device import KernelDevice


def word(address: int) -> ctypes.c_int64:
    return ctypes.c_int64.from_address(address)


def _read(kind: Any, a: int, _: int) -> int:
    return int(kind.from_address(a).value)


AT_ONCE = bytecode.OPERATIONS.index("at once")
COMPUTED: dict[str, Callable[[int, int], int]] = {
    **{name: partial(_read, getattr(ctypes, f"c_{name}")) for name in bytecode.INTEGERS},
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b if b else 0,
    "%": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
}


def run(device: KernelDevice, frame: np.ndarray) -> int:
    """Runs a table; returns how it ended: `bytecode.DONE`, or HOST_CALLBACK with the frame's `pc` at the instruction."""
    table, scratch, times = (int(frame[FRAME[f]]) for f in ("table", "scratch", "times"))
    while True:
        pc = int(frame[FRAME["pc"]])
        kind, *rest = [word(table + 8 * (WORDS * pc + k)).value for k in range(WORDS)]
        a, b, c, op = rest[:4]
        after = pc + 1
        if kind == bytecode.KERNEL:
            began = time.monotonic_ns()
            if c > 0:
                device.launch(a, b, c, scratch)
            if times:
                _timed(times + 8 * TIMES * pc, began)
        elif kind == bytecode.COPY:
            device.copy(*[word(a + 8 * k).value for k in range(3)])
        elif kind == bytecode.MOVES:
            for at in range(a, a + 24 * b, 24):
                to, source, more = [word(at + 8 * k).value for k in range(3)]
                word(to).value = word(source).value + more
        elif kind == bytecode.COMPUTE:
            x, y = word(b).value, word(c).value
            word(a).value = bytecode.at_once(x, y, rest[4]) if op == AT_ONCE else COMPUTED[bytecode.OPERATIONS[op]](x, y)
        elif kind == bytecode.JUMP:
            after = a
        elif kind == bytecode.UNLESS:
            after = after if ctypes.c_uint8.from_address(word(a).value).value else b
        elif kind == bytecode.LOOP:
            count = word(a)
            count.value += 1
            after = c if count.value < b else after
        else:
            return bytecode.HOST_CALLBACK if kind == bytecode.HOST else bytecode.DONE
        frame[FRAME["pc"]] = after


def _timed(at: int, began: int) -> None:
    ended = time.monotonic_ns()
    word(at).value += ended - began
    word(at + 8).value += 1
    word(at + 16).value, word(at + 24).value = began, ended
