"""Machines as data. `machine` has the record, `products` the product instructions, `tuning` every tuned number.

`host()` is this machine, `chosen()` what NGRAPH_TARGET asks for (default: the host), `runnable()` what runs here, `TARGETS` are all.
Nothing here loads LLVM, so that a warm start need not.

Words: docs/glossary.md.
"""

from __future__ import annotations

import ctypes
import glob
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

from ngraph.errors import NgraphError
from ngraph.targets.machine import Cpu, Gpu, MemorySpace, Target
from ngraph.targets.products import (
    AMX_BF16,
    AMX_INT8,
    AVX512_BF16,
    AVX512_VNNI,
    AVX_VNNI,
    FMA,
    FMA64,
    I8MM,
    MMA_BF16,
    WGMMA_BF16,
    ProductInstruction,
)
from ngraph.targets.tuning import MAX_L3_BYTES_PER_CORE, PLANNED_CORES

__all__ = [
    "DEFAULT",
    "GPUS",
    "TARGETS",
    "Cpu",
    "Gpu",
    "MemorySpace",
    "ProductInstruction",
    "Target",
    "allowed_cores",
    "caches",
    "chosen",
    "extended",
    "host",
    "level",
    "missing",
    "named",
    "runnable",
]

_X86 = "x86_64-unknown-linux-gnu"
_FMA = (FMA, FMA64)
TARGETS: dict[str, Cpu] = {
    t.name: t
    for t in (
        Cpu("x86-64-v2", triple=_X86, cpu="x86-64-v2"),
        Cpu("x86-64-v3", _FMA, triple=_X86, cpu="x86-64-v3", vector_bits=256, half=True),
        Cpu(
            "x86-64-v4",
            _FMA,
            triple=_X86,
            cpu="x86-64-v4",
            features="-prefer-256-bit",  # LLVM's default splits vectors of 512 bits
            vector_bits=512,
            vector_registers=32,
            mask_registers=True,
            half=True,
            scale=True,
            l2=1 << 20,
        ),
        Cpu(
            "aarch64",
            _FMA,
            triple="aarch64-unknown-linux-gnu",
            cpu="generic",
            features="+neon",
            vector_registers=32,
            half=True,
            l1=64 << 10,
            l2=1 << 20,
        ),
    )
}
DEFAULT = replace(TARGETS["x86-64-v4"], cores=2, l3=32 << 20)  # what plans are made for where nobody names a target

# machines that are described and that no code is generated for yet
GPUS = {
    g.name: g
    for g in (
        Gpu(
            "sm_90",
            (MMA_BF16, WGMMA_BF16),
            line=128,
            launch=5e-6,
            multiprocessors=132,
            shared=227 << 10,
            l2=50 << 20,
            memory=80 << 30,
            shared_bandwidth=33e12,
            l2_bandwidth=5.5e12,
            memory_bandwidth=3.3e12,
        ),
    )
}

# flags of /proc/cpuinfo that make a processor of a level, best first
_LEVELS = (
    ("x86-64-v4", "avx512f avx512bw avx512cd avx512dq avx512vl avx2 fma f16c bmi1 bmi2 movbe abm"),
    ("x86-64-v3", "avx2 fma f16c bmi1 bmi2 movbe abm"),
    ("x86-64-v2", "sse4_1 sse4_2 ssse3 popcnt cx16"),
)


def level(flags: Iterable[str]) -> Cpu:
    """The best x86-64 target that a processor with these flags of /proc/cpuinfo runs. Raises NgraphError where it runs none."""
    have = set(flags)
    for name, needed in _LEVELS:
        if have.issuperset(needed.split()):
            return TARGETS[name]
    raise NgraphError("this x86-64 processor lacks SSE 4.2", fix="take a transformer that compiles nothing: NGRAPH_TRANSFORMER=numpy")


# the product instructions that processors may have beside those of their target
_MORE = {"x86-64-v4": (AVX512_BF16, AVX512_VNNI, AMX_BF16, AMX_INT8), "x86-64-v3": (AVX_VNNI,), "aarch64": (I8MM,)}


def extended(target: Cpu, flags: Iterable[str]) -> Cpu:
    """A target with the instructions that a processor with these flags of /proc/cpuinfo has beside it."""
    have = set(flags)
    rows = [row for row in _MORE.get(target.name, ()) if row.flag in have]
    features = ",".join(dict.fromkeys([f for some in (target.features, *[row.feature for row in rows]) for f in some.split(",") if f]))
    return replace(target, features=features, products=(*target.products, *rows))


SYSCALL_ARCH_PRCTL = 158  # on x86-64
SYSTEMS = {"darwin": "macOS", "win32": "Windows", "cygwin": "Windows"}  # as people call what `sys.platform` says
MACHINES = {"x86_64": "x86-64", "amd64": "x86-64", "aarch64": "aarch64", "arm64": "aarch64"}


def missing() -> str:
    """Why no code is generated for this machine; "" where it is. What its processor lacks is not looked at."""
    if not sys.platform.startswith("linux"):
        return f"it generates code for Linux, and this is {SYSTEMS.get(sys.platform, sys.platform)}"
    machine = platform.machine().lower()
    return "" if machine in MACHINES else f"it generates code for {' and '.join(dict.fromkeys(MACHINES.values()))}, and this is {machine}"


@cache
def host() -> Cpu:
    """This machine: its instruction set, caches and cores; of the third cache what the cores that plans are made for may count on."""
    machine = platform.machine().lower()
    if machine not in MACHINES:
        raise NgraphError(f"no code is generated for {machine}", fix=f"there are {', '.join(TARGETS)}")
    flags = _permitted(_flags())
    base = extended(level(flags) if MACHINES[machine] == "x86-64" else TARGETS["aarch64"], flags)
    found = caches()
    sizes = {size: found.get(size, getattr(base, size)) for size in ("l1", "l2", "l3", "line")}
    l3 = min(sizes["l3"], PLANNED_CORES * MAX_L3_BYTES_PER_CORE)
    return replace(base, name="host", cores=os.cpu_count() or 1, l1=sizes["l1"], l2=sizes["l2"], l3=l3, line=sizes["line"])


def chosen() -> Cpu:
    """The target that NGRAPH_TARGET names; the host where it is unset. Raises NgraphError where there is none, or none that runs here."""
    name = os.environ.get("NGRAPH_TARGET", "") or "host"
    if name == "host":
        return host()
    if name not in TARGETS:
        raise NgraphError(f"NGRAPH_TARGET is {name!r}", fix=f"there are host, {', '.join(TARGETS)}")
    if name not in (runs := runnable()):
        raise NgraphError(f"NGRAPH_TARGET is {name!r}, which this machine cannot run", fix=f"it can run {', '.join(runs)}")
    return replace(TARGETS[name], cores=host().cores)


def runnable() -> tuple[str, ...]:
    """The targets whose code this machine runs, the best one last."""
    best = named(host())
    levels = [name for name, _ in reversed(_LEVELS)]
    return tuple(levels[: levels.index(best) + 1]) if best in levels else (best,)


def named(target: Cpu) -> str:
    """The entry of `TARGETS` whose instructions it has, be there others beside them."""
    return next(t.name for t in TARGETS.values() if (t.triple, t.cpu) == (target.triple, target.cpu))


def _flags() -> list[str]:
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", read_text("/proc/cpuinfo"), re.MULTILINE)
    if found:
        return found[1].split()
    try:
        from llvmlite import binding  # where there is no /proc
    except (ImportError, OSError):
        return []
    renamed = {"sse4.1": "sse4_1", "sse4.2": "sse4_2", "bmi": "bmi1", "lzcnt": "abm"}
    return [renamed.get(name, name) for name, there in binding.get_host_cpu_features().items() if there]


PERMISSION, TILES = 0x1023, 18  # Linux's ARCH_REQ_XCOMP_PERM, and the part of a thread's state that registers of matrices are


def _permitted(flags: list[str]) -> list[str]:
    """Returns the flags without those of registers of matrices, where Linux does not let this process use them.

    They are of the whole process and of threads that begin later; Linux gives them to those that ask.
    """
    if "amx_tile" not in flags:
        return flags
    ask = getattr(ctypes.CDLL(None, use_errno=True), "syscall", None)
    given = ask is not None and ask(SYSCALL_ARCH_PRCTL, PERMISSION, TILES) == 0
    return flags if given else [f for f in flags if not f.startswith("amx")]


def allowed_cores() -> int:
    """Returns the number of cores that this process may use."""
    allowed: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def caches(folder: str = "/sys/devices/system/cpu/cpu0/cache") -> dict[str, int]:
    """Returns the sizes of the data caches and of their line that the system reports in `folder`: keys l1, l2, l3, line."""
    found: dict[str, int] = {}
    for index in sorted(glob.glob(os.path.join(folder, "index*"))):
        kind, depth, size, line = (read_text(os.path.join(index, f)).strip() for f in ("type", "level", "size", "coherency_line_size"))
        amount = re.fullmatch(r"(\d+)([KMG]?)", size)
        if kind in ("Data", "Unified") and depth in ("1", "2", "3") and amount:
            found[f"l{depth}"] = int(amount[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[amount[2]]
            if line.isdigit():
                found["line"] = int(line)
    return found


def read_text(path: str) -> str:
    """Returns the text of a file of the system; "" where it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
