"""Machine descriptions as data: what the plan and the code generator need to know of a processor. A new machine is a table entry.

`host()` is this machine, `chosen()` what NGRAPH_TARGET asks for (default: the host), `runnable()` what runs here, `TARGETS` are all.
Nothing here loads LLVM, so that a warm start need not.
"""

from __future__ import annotations

import glob
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache

from ngraph.errors import NgraphError


@dataclass(frozen=True)
class Target:
    """A processor. Sizes are in bytes; `features` and `cpu` are LLVM's words."""

    name: str
    triple: str
    cpu: str
    features: str = ""
    vector_bits: int = 128
    vector_registers: int = 16
    mask_registers: bool = False  # masked loads and stores cost what plain ones do
    fma: bool = False  # without it a fused multiply-add is two roundings
    half: bool = False  # converts float16 to float32 and back
    pairs: bool = False  # adds products of bfloat16 to float32 two at a time
    quads: bool = False  # adds products of uint8 and int8 to int32 four at a time
    scale: bool = False  # multiplies by a power of two, given as a float, in one instruction
    l1: int = 32 << 10
    l2: int = 512 << 10
    l3: int = 8 << 20
    line: int = 64
    cores: int = 1

    def lanes(self, bits: int) -> int:
        """How many elements of so many bits one register holds."""
        return max(1, self.vector_bits // bits)


_X86 = "x86_64-unknown-linux-gnu"
TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target("x86-64-v2", _X86, "x86-64-v2"),
        Target("x86-64-v3", _X86, "x86-64-v3", vector_bits=256, fma=True, half=True),
        Target(
            "x86-64-v4",
            _X86,
            "x86-64-v4",
            "-prefer-256-bit",  # LLVM's default splits vectors of 512 bits
            vector_bits=512,
            vector_registers=32,
            mask_registers=True,
            fma=True,
            half=True,
            scale=True,
            l2=1 << 20,
        ),
        Target(
            "aarch64", "aarch64-unknown-linux-gnu", "generic", "+neon", vector_registers=32, fma=True, half=True, l1=64 << 10, l2=1 << 20
        ),
    )
}

# flags of /proc/cpuinfo that make a processor of a level, best first
_LEVELS = (
    ("x86-64-v4", "avx512f avx512bw avx512cd avx512dq avx512vl avx2 fma f16c bmi1 bmi2 movbe abm"),
    ("x86-64-v3", "avx2 fma f16c bmi1 bmi2 movbe abm"),
    ("x86-64-v2", "sse4_1 sse4_2 ssse3 popcnt cx16"),
)


def level(flags: Iterable[str]) -> Target:
    """The best x86-64 target that a processor with these flags of /proc/cpuinfo runs. Raises NgraphError where it runs none."""
    have = set(flags)
    for name, needed in _LEVELS:
        if have.issuperset(needed.split()):
            return TARGETS[name]
    raise NgraphError("this x86-64 processor lacks SSE 4.2", fix="take a transformer that compiles nothing: NGRAPH_TRANSFORMER=numpy")


# what processors may have beside a target: the flag of /proc/cpuinfo, LLVM's word, and the field that says so
_MORE = {
    "x86-64-v4": (("avx512_bf16", "+avx512bf16", "pairs"), ("avx512_vnni", "+avx512vnni", "quads")),
    "x86-64-v3": (("avx_vnni", "+avxvnni", "quads"),),
    "aarch64": (("i8mm", "+i8mm", "quads"),),
}


def extended(target: Target, flags: Iterable[str]) -> Target:
    """A target with the instructions that a processor with these flags has beside it."""
    found = [(word, field) for flag, word, field in _MORE.get(target.name, ()) if flag in set(flags)]
    fields = {field for _, field in found}
    features = ",".join([f for f in (target.features, *[word for word, _ in found]) if f])
    return replace(target, features=features, pairs="pairs" in fields, quads="quads" in fields)


SYSTEMS = {"darwin": "macOS", "win32": "Windows", "cygwin": "Windows"}  # as people call what `sys.platform` says
MACHINES = {"x86_64": "x86-64", "amd64": "x86-64", "aarch64": "aarch64", "arm64": "aarch64"}


def missing() -> str:
    """Why no code is generated for this machine; "" where it is. What its processor lacks is not looked at."""
    if not sys.platform.startswith("linux"):
        return f"it generates code for Linux, and this is {SYSTEMS.get(sys.platform, sys.platform)}"
    machine = platform.machine().lower()
    return "" if machine in MACHINES else f"it generates code for {' and '.join(dict.fromkeys(MACHINES.values()))}, and this is {machine}"


@cache
def host() -> Target:
    """This machine: its instruction set, caches and the cores that this process may use."""
    machine = platform.machine().lower()
    if machine not in MACHINES:
        raise NgraphError(f"no code is generated for {machine}", fix=f"there are {', '.join(TARGETS)}")
    flags = _flags()
    base = extended(level(flags) if MACHINES[machine] == "x86-64" else TARGETS["aarch64"], flags)
    found = caches()
    sizes = {size: found.get(size, getattr(base, size)) for size in ("l1", "l2", "l3", "line")}
    return replace(base, name="host", cores=_cores(), l1=sizes["l1"], l2=sizes["l2"], l3=sizes["l3"], line=sizes["line"])


def chosen() -> Target:
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


def named(target: Target) -> str:
    """The entry of `TARGETS` whose instructions it has, be there others beside them."""
    return next(t.name for t in TARGETS.values() if (t.triple, t.cpu) == (target.triple, target.cpu))


def _flags() -> list[str]:
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", _read("/proc/cpuinfo"), re.MULTILINE)
    if found:
        return found[1].split()
    try:
        from llvmlite import binding  # where there is no /proc
    except (ImportError, OSError):
        return []
    renamed = {"sse4.1": "sse4_1", "sse4.2": "sse4_2", "bmi": "bmi1", "lzcnt": "abm"}
    return [renamed.get(name, name) for name, there in binding.get_host_cpu_features().items() if there]


def _cores() -> int:
    allowed: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def caches(folder: str = "/sys/devices/system/cpu/cpu0/cache") -> dict[str, int]:
    """Sizes of the data caches and of their line, as far as `folder` tells: keys l1, l2, l3, line."""
    found: dict[str, int] = {}
    for index in sorted(glob.glob(os.path.join(folder, "index*"))):
        kind, depth, size, line = (_read(os.path.join(index, f)).strip() for f in ("type", "level", "size", "coherency_line_size"))
        amount = re.fullmatch(r"(\d+)([KMG]?)", size)
        if kind in ("Data", "Unified") and depth in ("1", "2", "3") and amount:
            found[f"l{depth}"] = int(amount[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[amount[2]]
            if line.isdigit():
                found["line"] = int(line)
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
