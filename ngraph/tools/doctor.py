"""`ngraph doctor`: describes this machine and the installed packages; `--measure` measures its limits, once."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ngraph import __version__
from ngraph.config import config
from ngraph.errors import UnsupportedError
from ngraph.runtime.cache import cache
from ngraph.runtime.host import pool
from ngraph.runtime.measure import Measured, measure, measured, processor
from ngraph.targets import Cpu, allowed_cores, caches, chosen, missing, named
from ngraph.tools.cache import listed
from ngraph.tools.ops import columns
from ngraph.transformers.base import TRANSFORMERS
from ngraph.verbs import Answer, verb

NEEDED = ("numpy", "llvmlite", "ml_dtypes", "safetensors")
EXTRAS = {
    "matplotlib": "pictures of training",
    "tqdm": "bars of progress",
    "onnx": "models in ONNX",
    "torch": "models of PyTorch, and tests against it",
    "google-crc32c": "models of TensorFlow",
    "xarray": "arrays with named axes",
}


def installed(package: str) -> str:
    """Returns the version of a package, "" where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def machine_facts(target: Cpu | None) -> dict[str, str]:
    """Returns the target of code generation, and the threads."""
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    if target is None:
        return {"system": system, "processor": processor() or "unknown", "target": f"none: {missing()}"}
    sizes = ", ".join(f"{space.name} {space.bytes >> 10:,} KiB" for space in target.spaces if space.bytes)
    if target.name == "host" and target.l3 < (reported := caches().get("l3", 0)):
        sizes += f" of {reported >> 10:,} KiB that the system reports"
    here = f"{target.cores} in the machine, {allowed_cores()} allowed by affinity, {pool.cores()} with the limits of control groups"
    asked = os.environ.get("NGRAPH_TARGET", "")
    return {
        "system": system,
        "processor": processor() or "unknown",
        "target": f"{named(target)}, vectors of {target.vector_bits} bits"
        + "".join([f", {row.name}" for row in target.products if row.k > 1])
        + (f" (NGRAPH_TARGET={asked})" if asked else ""),
        "caches": f"{sizes}, lines of {target.line} bytes",
        "cores": here,
        "threads": f"{pool.threads()}" + (f" (NGRAPH_NUM_THREADS={config.num_threads})" if config.num_threads else ""),
    }


def cache_facts() -> dict[str, str]:
    """Returns the folder and size of the cache."""
    data, folder = listed(), cache().folder
    if folder is None:
        return {"cache": "none: NGRAPH_CACHE is off, or there is no home folder"}
    held = sum(k["bytes"] for k in data["kinds"].values())
    return {"cache": f"{data['folder']}, {held:,} bytes" + ("" if folder.writable() else ", which cannot be written")}


def package_facts() -> dict[str, str]:
    """Returns versions, and the purpose of each missing package."""
    found = {"ngraph": __version__} | {p: installed(p) or "missing, though needed" for p in NEEDED}
    return found | {p: installed(p) or f"not installed: {what}" for p, what in EXTRAS.items()}


def transformer_facts() -> dict[str, str]:
    """Returns the transformers that work here, and the reasons why others do not."""
    return {name: cls.unavailable() or "works here" for name, cls in TRANSFORMERS.items()}


def limits(found: Measured | None) -> dict[str, str]:
    """Returns the measured limits, in words."""
    if found is None:
        return {"limits": "not measured; `ngraph doctor --measure` does, in some seconds in which nothing else should run"}
    return {
        "memory": f"{found.memory / 1e9:.1f} GB/s",
        "L3": f"{found.l3 / 1e9:.1f} GB/s",
        "L2": f"{found.l2 / 1e9:.1f} GB/s",
        "products": f"{found.flops_of_one / 1e9:.1f} GFLOP/s on one core, {found.flops / 1e9:.1f} on {found.threads}",
        "launch": f"{found.launch * 1e6:.2f} us",
    }


def _table(sections: Mapping[str, Mapping[str, str]]) -> str:
    return "\n\n".join([f"{title}\n{columns([('  ' + k, v) for k, v in facts.items()])}" for title, facts in sections.items()])


def _arguments(parser: Any) -> None:
    parser.add_argument("--measure", action="store_true", help="measure the machine's limits and keep them")


@verb("doctor", "say what this machine is, what is installed, what works", _arguments)
def run(arguments: Any) -> Answer:
    """Runs `ngraph doctor`."""
    target = None if missing() else chosen()
    if target is None and arguments.measure:
        raise UnsupportedError(f"there is nothing to measure: {missing()}", fix="leave --measure out")
    found = None if target is None else measure(target) if arguments.measure else measured(target)
    sections = {
        "machine": machine_facts(target),
        "limits": limits(found),
        "kept": cache_facts(),
        "packages": package_facts(),
        "transformers": transformer_facts(),
    }
    data = {**sections, "limits": None if found is None else found._asdict()}
    return Answer(_table(sections), data)
