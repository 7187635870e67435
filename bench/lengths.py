"""Code for open lengths beside code for the very lengths of a call, kernel by kernel.

python bench/lengths.py MODEL.onnx --input x:1,3,48,w --at w=192 [--calls 20] [--rows 20] [--schedules FOLDER]

The model is loaded twice. One gets code for open lengths, the other code for the lengths of `--at`. Kernels of both that share nodes of the
model stand in one row: where fusion differs, several on a side. `--schedules` writes the schedules of both, to see what differs.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("NGRAPH_NUM_THREADS", "2")

import numpy as np

import ngraph as ng
from ngraph.plan.text import text as plan_text
from ngraph.runtime.profile import KernelProfile

MIN_SHARE = 0.02  # of the time of a call, from which on a kernel counts by itself


class Row(NamedTuple):
    """Kernels that compute the same: those of the call with open and with known lengths."""

    open: tuple[KernelProfile, ...]
    known: tuple[KernelProfile, ...]

    @property
    def seconds(self) -> tuple[float, float]:
        return sum(k.seconds for k in self.open), sum(k.seconds for k in self.known)

    @property
    def ratio(self) -> float:
        mine, other = self.seconds
        return mine / other if other else math.inf


def lengths(text: str) -> dict[str, int]:
    """Returns {name: length} of `w=192,h=48`."""
    return {name: int(n) for name, n in (part.split("=") for part in text.split(",") if part)}


def feeds(inputs: Iterable[str], at: Mapping[str, int]) -> dict[str, Any]:
    """Returns random inputs of `name:dims` or `name:dtype:dims`."""
    draw, found = np.random.default_rng(0), {}
    for text in inputs:
        name, *dtype, dims = text.split(":")
        shape = [int(d) if d.isdigit() else at[d] for d in dims.split(",") if d]
        kind = np.dtype(dtype[0] if dtype else "float32")
        found[name] = draw.standard_normal(shape).astype(kind) if kind.kind == "f" else draw.integers(0, 100, shape).astype(kind)
    return found


def joined(sides: Sequence[Sequence[KernelProfile]]) -> list[Row]:
    """Groups the kernels of both sides by the nodes that they share."""
    groups: list[tuple[frozenset[str], tuple[list[KernelProfile], list[KernelProfile]]]] = []
    for side, kernels in enumerate(sides):
        for k in kernels:
            lines = frozenset(k.lines or [k.ops])
            same = [g for g in groups if not lines.isdisjoint(g[0])]
            mine: tuple[list[KernelProfile], list[KernelProfile]] = ([], [])
            for more, found in same:
                lines |= more
                for to, some in zip(mine, found, strict=True):
                    to.extend(some)
            mine[side].append(k)
            groups = [*[g for g in groups if g not in same], (lines, mine)]
    return [Row(tuple(a), tuple(b)) for _, (a, b) in groups]


def computations(model: Any, given: Mapping[str, Any]) -> list[Any]:
    return list(model.reader.computations(model.about.bound(given)))


def profiled(models: Sequence[Any], given: Mapping[str, Any], calls: int, rounds: int = 3) -> list[list[KernelProfile]]:
    """Returns the kernels of each model; of several rounds in turn, that in which the kernels took least."""
    best: list[list[KernelProfile]] = [[] for _ in models]
    for _ in range(rounds):
        for k, model in enumerate(models):
            rows = [r for call, arrays in computations(model, given) for r in call.profile(*arrays, calls=calls).rows]
            if not best[k] or sum(r.seconds for r in rows) < sum(r.seconds for r in best[k]):
                best[k] = rows
    return best


def table(rows: Sequence[Row], most: int) -> list[str]:
    """Returns the rows as text, those that cost most above known lengths first, then the summary."""
    total = [sum(r.seconds[k] for r in rows) for k in (0, 1)]
    lines = [f"{'open':>9} {'known':>9} {'ratio':>6} {'kernels':>8}"]
    for r in sorted(rows, key=lambda r: r.seconds[1] - r.seconds[0])[:most]:
        a, b = r.seconds
        first = max(r.open or r.known, key=lambda k: k.seconds)
        what = f"{first.ops[:70]}  {first.shape}"
        lines.append(f"{a * 1e6:7.0f}us {b * 1e6:7.0f}us {r.ratio:6.2f} {len(r.open):4}/{len(r.known):<3} {what}")
    both = [r for r in rows if r.open and r.known and min(r.seconds) > 0]
    large = [r for r in both if max(a / t for a, t in zip(r.seconds, total, strict=True)) > MIN_SHARE]
    mean = statistics.geometric_mean([r.ratio for r in both])
    worst = max([r.ratio for r in large], default=0.0)
    lines.append(
        f"{total[0] * 1e3:.2f} ms open, {total[1] * 1e3:.2f} ms known, ratio {total[0] / total[1]:.2f}; {len(both)} rows, geometric mean "
        f"{mean:.2f}; of {len(large)} rows above {MIN_SHARE:.0%}: geometric mean "
        f"{statistics.geometric_mean([r.ratio for r in large]) if large else 0:.2f}, worst {worst:.2f}"
    )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--input", action="append", required=True)
    parser.add_argument("--at", type=lengths, required=True)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--schedules", metavar="FOLDER")
    o = parser.parse_args()
    given, sides = feeds(o.input, o.at), {}
    for setting in ("open", "first"):
        with ng.config(lengths=setting):
            model = sides[setting] = ng.onnx.load(o.model)
            computations(model, given)  # reads the graph, where `run` finds what an earlier process compiled
            model.run(None, given)
    open_, known = sides["open"], sides["first"]
    results = [m.run(None, given) for m in (known, open_)]
    differs = max([float(np.abs(np.asarray(a, "f8") - b).max(initial=0)) for a, b in zip(*results, strict=True)])
    rows = joined(profiled((open_, known), given, o.calls))
    print("\n".join(table(rows, o.rows)))
    print(f"results differ by {differs:.1e}")
    if o.schedules:
        os.makedirs(o.schedules, exist_ok=True)
        write(o.schedules, {"open": computations(open_, given), "known": computations(known, given)})


def write(folder: str, models: Mapping[str, list[Any]]) -> None:
    """Writes plans and schedules of the code that ran last."""
    writing = importlib.import_module("ngraph.transformers.cpu.writing")
    for name, calls in models.items():
        for k, (call, _) in enumerate(calls):
            native = call.native
            code = [*native.codes.values()][-1]
            for kind, text in (("plan", plan_text(code.plan)), ("schedule", writing.scheduled(code))):
                with open(os.path.join(folder, f"{name}.{k}.{kind}"), "w", encoding="utf-8") as file:
                    file.write(text)


if __name__ == "__main__":
    main()
