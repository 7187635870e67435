"""The record of a machine: what passes, costs, schedules and the code generator know of it.

`Target` is the common part, `Cpu` and `Gpu` are the two kinds. A new machine is a table entry.

All numbers are those of a description, never of a measurement: what is compiled, and with it the last bit of every sum, is the same on
equal machines. `ngraph doctor --measure` measures rates; reports compare with them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ngraph.targets.products import PRODUCTS, ProductInstruction
from ngraph.targets.tuning import (
    CACHE_BANDWIDTH,
    CONFLICT_BYTES,
    LANE_SPEED,
    LAUNCH_SECONDS,
    LEVEL_BANDWIDTH,
    MEMORY_BANDWIDTH,
    PLANNED_CORES,
    USABLE_L1,
    USABLE_L2,
    USABLE_L3,
    VECTOR_SPEED,
)


class MemorySpace(NamedTuple):
    """A level of memory: its bytes (0 where a description does not say), and the bytes per second that move to and from it."""

    name: str
    bytes: int
    bandwidth: float


@dataclass(frozen=True)
class Target:
    """A machine, as far as all kinds have it in common.

    products    its product instructions
    line        bytes that memory moves at once
    launch      seconds that a kernel takes to begin and to end
    vector_bits that one instruction of a thread loads, stores or computes
    """

    name: str
    products: tuple[ProductInstruction, ...] = ()
    line: int = 64
    launch: float = LAUNCH_SECONDS
    vector_bits: int = 128

    def lanes(self, bits: int) -> int:
        """Returns the number of elements of this many bits in one register."""
        return max(1, self.vector_bits // bits)

    @property
    def spaces(self) -> tuple[MemorySpace, ...]:
        """Its levels of memory, the nearest first."""
        raise NotImplementedError

    def product(self, op: str) -> ProductInstruction | None:
        """The instruction for a product of plans (`multiply`, `dot2`, `dot4`), the one of most sums; None where it has none."""
        rows = [row for row in self.products if row.op == op]
        return max(rows, key=lambda row: row.m * row.n, default=None)

    def matrix(self, op: str) -> ProductInstruction | None:
        """The instruction that adds many products of plans (`dot2`, `dot4`) to a matrix of sums in registers; None where it has none."""
        of = PRODUCTS.get(op)
        rows = [row for row in self.products if of is not None and row.registers and (row.operands, row.sum) == (of.operands, of.sum)]
        return rows[0] if rows else None


@dataclass(frozen=True)
class Cpu(Target):
    """A processor. Sizes are in bytes, of one core but for the third cache; `features` and `cpu` are LLVM's words.

    mask_registers      masked loads and stores cost what others do
    half                converts float16 to float32 and back
    scale               multiplies by a power of two, given as a float, in one instruction
    flush               kernels take denormal numbers as 0
    cores               that the machine has, however many of them this process may use
    memory_bandwidth    bytes per second of all cores together; `cache_bandwidth` of each
    lane_speed          elementwise operations per second of 32 bits of a vector
    level_bandwidth     bytes per second from one cache of a core to the next
    vector_speed        vector instructions per second of one core
    """

    triple: str = ""
    cpu: str = ""
    features: str = ""
    vector_registers: int = 16
    mask_registers: bool = False
    half: bool = False
    scale: bool = False
    flush: bool = False
    l1: int = 32 << 10
    l2: int = 512 << 10
    l3: int = 8 << 20
    cores: int = 1
    memory_bandwidth: float = MEMORY_BANDWIDTH
    cache_bandwidth: float = CACHE_BANDWIDTH
    lane_speed: float = LANE_SPEED
    level_bandwidth: float = LEVEL_BANDWIDTH
    vector_speed: float = VECTOR_SPEED

    @cached_property
    def spaces(self) -> tuple[MemorySpace, ...]:
        caches = [MemorySpace(name, size, self.all_caches_bandwidth) for name, size in (("L1", self.l1), ("L2", self.l2), ("L3", self.l3))]
        return (*caches, MemorySpace("memory", 0, self.memory_bandwidth))

    @cached_property
    def fma(self) -> bool:
        """Whether a multiply-add is rounded once; without it, it is two roundings."""
        return self.product("multiply") is not None

    # ---- what costs ask for

    @cached_property
    def lanes32(self) -> int:
        """Elements of 32 bits in a vector."""
        return self.lanes(32)

    @cached_property
    def usable_l1(self) -> int:
        """Bytes of the first cache that a kernel may count on."""
        return int(self.l1 * USABLE_L1)

    def share_of_l1(self, apart: int) -> int:
        """Returns the bytes of the first cache that each of many lines takes up, so many bytes apart: some fall into few of its sets."""
        return max(self.line, math.gcd(apart, 2 * CONFLICT_BYTES))

    @cached_property
    def usable_l2(self) -> int:
        """Bytes of the second cache that a kernel may count on."""
        return int(self.l2 * USABLE_L2)

    @cached_property
    def usable_l3(self) -> int:
        """Bytes of the third cache that a kernel may count on."""
        return int(self.l3 * USABLE_L3)

    @cached_property
    def all_caches_bandwidth(self) -> float:
        """Bytes per second that the cores that plans are made for move together to and from their caches."""
        return self.cache_bandwidth * PLANNED_CORES

    @cached_property
    def levels(self) -> tuple[tuple[int, float], ...]:
        """The bytes that a kernel may count on in each cache, the nearest first, and the bytes per second from behind it to one core."""
        rates = (self.level_bandwidth, self.level_bandwidth, self.memory_bandwidth)
        return tuple(zip((self.usable_l1, self.usable_l2, self.usable_l3), rates, strict=True))

    @cached_property
    def speed(self) -> float:
        """Elementwise operations per second of one core, on elements of 32 bits."""
        return self.lane_speed * self.lanes32


@dataclass(frozen=True)
class Gpu(Target):
    """A graphics processor. `shared` is the bytes of a block of threads, `l2` and `memory` of all; bandwidths are bytes per second."""

    warp: int = 32
    threads_per_block: int = 1024
    registers_per_thread: int = 255
    multiprocessors: int = 1
    shared: int = 48 << 10
    l2: int = 4 << 20
    memory: int = 0
    shared_bandwidth: float = 0.0
    l2_bandwidth: float = 0.0
    memory_bandwidth: float = 0.0

    @cached_property
    def spaces(self) -> tuple[MemorySpace, ...]:
        shared = MemorySpace("shared", self.shared, self.shared_bandwidth)
        return shared, MemorySpace("L2", self.l2, self.l2_bandwidth), MemorySpace("memory", self.memory, self.memory_bandwidth)
