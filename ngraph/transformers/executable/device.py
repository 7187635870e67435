"""The interface of a machine that runs plans."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ngraph.targets import Cpu
from ngraph.transformers.executable import walk


class DeviceMemory(NamedTuple):
    """Bytes in the host's address space, with the address for kernels. They are valid while `array` lives."""

    array: np.ndarray
    address: int


class LoadedKernel:
    """A kernel that can be launched: by its `address`, while `held` lives; `key` is that of its object."""

    __slots__ = ("key", "held", "address", "__weakref__")

    def __init__(self, key: bytes, held: Any, address: int):
        self.key, self.held, self.address = key, held, address


class KernelDevice(ABC):
    """A kind of machine: memory, copies, launches. Its memory is in the host's address space.

    A device that can run a whole table by itself also overrides `runner`, one with several threads `threads` and `start`.
    """

    @property
    @abstractmethod
    def target(self) -> Cpu:
        """The machine that kernels are compiled for."""

    @abstractmethod
    def alloc(self, size: int) -> DeviceMemory:
        """Allocates `size` bytes, aligned to 64. Raises OutOfMemoryError."""

    @abstractmethod
    def copy(self, to: int, source: int, size: int) -> None:
        """Copies bytes from one address to another."""

    @abstractmethod
    def launch(self, kernel: int, arguments: int, work_items: int, scratch: int) -> None:
        """Runs all work items of a kernel; `arguments` is the address of its words, `scratch` that of its memory."""

    @abstractmethod
    def load(self, keys: Iterable[bytes], again: Callable[[], Any]) -> Mapping[bytes, LoadedKernel]:
        """Returns kernels by their keys; `again` compiles those that are not in the cache any more. Raises LookupError where it cannot."""

    def threads(self) -> int:
        """The number of threads that share out a kernel."""
        return 1

    def start(self, threads: int) -> int:
        """Starts this many threads; returns how many there are."""
        return 1

    def runner(self, frame: np.ndarray) -> Callable[[], int]:
        """Returns a function that runs a table from the frame's next instruction on, and returns how the run ended."""
        return partial(walk.run, self, frame)

    def entry(self, bound: Any, order: Any, slow: Callable[..., Any], *how: Any) -> Any:
        """Returns a faster entry into an instantiated plan than its call from Python, see `cpu.fast.fast`; None where there is none."""
        return None
