"""This processor as a device: host memory, kernels as machine code, and a pool of threads that runs tables."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from ngraph.runtime.cache import cache
from ngraph.runtime.host import pool as pools
from ngraph.runtime.host.loader import LoadedObjects
from ngraph.targets import Cpu, chosen
from ngraph.transformers.cpu.fast import Fast, fast, load_text
from ngraph.transformers.executable.device import DeviceMemory, KernelDevice, LoadedKernel
from ngraph.transformers.executable.frame import InstantiatedPlan, empty

KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
LARGE = 1 << 16  # bytes from which on memory is not zeroed
_kernels: weakref.WeakValueDictionary[bytes, LoadedKernel] = weakref.WeakValueDictionary()


class CpuDevice(KernelDevice):
    """The device of this process; each different kernel is loaded once, for all plans."""

    @property
    def target(self) -> Cpu:
        return chosen()

    @property
    def pool(self) -> pools.Pool:
        return pools.pool(load_text)

    def alloc(self, size: int) -> DeviceMemory:
        if size < LARGE:
            return DeviceMemory(*pools.aligned(size))
        array = empty((size,), np.uint8)
        return DeviceMemory(array, array.ctypes.data)

    def copy(self, to: int, source: int, size: int) -> None:
        ctypes.memmove(to, source, size)

    def launch(self, kernel: int, arguments: int, work_items: int, scratch: int) -> None:
        KERNEL(kernel)(arguments, 0, work_items, scratch)

    def load(self, keys: Iterable[bytes], again: Callable[[], Any]) -> dict[bytes, LoadedKernel]:
        """Loads the kernels that this process does not have yet, all at once."""
        found = {k: _kernels.get(k) for k in keys}
        missing = [k for k, e in found.items() if e is None]
        if missing:
            objects = [cache().find(k) for k in missing]
            if None in objects:
                again()
                objects = [cache().find(k) for k in missing]
                if None in objects:
                    raise LookupError("kernels are gone from the cache")
            loaded = LoadedObjects(*[o for o in objects if o is not None])
            for which, k in enumerate(missing):
                found[k] = _kernels[k] = LoadedKernel(k, loaded, loaded.address("kernel", which))
        return {k: e for k, e in found.items() if e is not None}

    def threads(self) -> int:
        return pools.threads()

    def start(self, threads: int) -> int:
        return self.pool.ensure(threads)

    def runner(self, frame: np.ndarray) -> Callable[[], int]:
        return partial(self.pool.run, self.pool.address, frame.ctypes.data)

    def entry(self, bound: InstantiatedPlan, order: Any, slow: Callable[..., Any], *how: Any) -> Fast | None:
        return fast(bound, order, slow, *how)
