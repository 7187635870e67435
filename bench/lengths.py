"""Code for open lengths beside code for the very lengths of a call, kernel by kernel.

python bench/lengths.py MODEL.onnx --input x:1,3,48,w --at w=64 --at w=192 [--calls 30] [--rows 20] [--schedules FOLDER]
python bench/lengths.py training:lstm --input tokens:int64:32,t --input targets:int64:32,t --at t=70     or training:transformer

The model is loaded once for open lengths, and once for the lengths of each `--at`. Kernels of both that share nodes of the model stand in
one row: where fusion differs, several on a side. A kernel counts with the least time of all calls, so that other programs on the machine
disturb little; NGRAPH_NUM_THREADS=1 disturbs least. `--schedules` writes the schedules of both, to see what differs.
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
import serving_training

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


class Training:
    """One step of a training of bench/serving_training.py, with the interface of a model from a file."""

    def __init__(self, kind: str) -> None:
        self.step = serving_training.computation(kind)

    def run(self, _: None, given: Mapping[str, Any]) -> list[Any]:
        return [self.step(*given.values())[0]]


def loaded(model: str) -> Any:
    """Returns the model of a file, or the training step that `training:KIND` names."""
    kind = model.partition("training:")[2]
    return Training(kind) if kind else ng.onnx.load(model)


def computations(model: Any, given: Mapping[str, Any]) -> list[Any]:
    if type(model) is Training:
        return [(model.step, list(given.values()))]
    return list(model.reader.computations(model.about.bound(given)))


def profiled(models: Sequence[Any], given: Mapping[str, Any], calls: int) -> list[list[KernelProfile]]:
    """Returns the kernels of each model, each with its least time in so many calls. The models take turns."""
    best: list[list[KernelProfile]] = [[] for _ in models]
    for _ in range(calls):
        for k, model in enumerate(models):
            rows = [r for call, arrays in computations(model, given) for r in call.profile(*arrays, calls=1).rows]
            best[k] = [min(pair, key=lambda r: r.seconds) for pair in zip(rows, best[k] or rows, strict=True)]
    return best


def table(rows: Sequence[Row], most: int) -> list[str]:
    """Returns the rows as text, those that cost most above known lengths first, then the summary."""
    total = totals(rows)
    lines = [f"{'open':>9} {'known':>9} {'ratio':>6} {'kernels':>8}"]
    for r in sorted(rows, key=lambda r: r.seconds[1] - r.seconds[0])[:most]:
        a, b = r.seconds
        first = max(r.open or r.known, key=lambda k: k.seconds)
        what = f"{first.ops[:70]}  {first.shape}"
        lines.append(f"{a * 1e6:7.0f}us {b * 1e6:7.0f}us {r.ratio:6.2f} {len(r.open):4}/{len(r.known):<3} {what}")
    both, heavy = compared(rows), [r.ratio for r in large(rows)]
    lines.append(
        f"{total[0] * 1e3:.3f} ms open, {total[1] * 1e3:.3f} ms known, ratio {total[0] / total[1]:.2f}; {len(both)} rows, geometric mean "
        f"{statistics.geometric_mean([r.ratio for r in both]):.2f}; of {len(heavy)} rows above {MIN_SHARE:.0%}: geometric mean "
        f"{statistics.geometric_mean(heavy) if heavy else 0:.2f}, worst {max(heavy, default=0.0):.2f}"
    )
    return lines


def totals(rows: Sequence[Row]) -> list[float]:
    """Returns the seconds of all kernels, of each side."""
    return [sum(r.seconds[k] for r in rows) for k in (0, 1)]


def compared(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows that both sides have."""
    return [r for r in rows if r.open and r.known and min(r.seconds) > 0]


def large(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows that both sides have and that take more than `MIN_SHARE` of the time of one."""
    total = totals(rows)
    return [r for r in compared(rows) if max(a / t for a, t in zip(r.seconds, total, strict=True)) > MIN_SHARE]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--input", action="append", required=True)
    parser.add_argument("--at", type=lengths, action="append", required=True)
    parser.add_argument("--calls", type=int, default=30)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--schedules", metavar="FOLDER")
    o = parser.parse_args()
    ratios: list[float] = []
    open_ = None
    for at in o.at:
        given = feeds(o.input, at)
        with ng.config(lengths="open"):
            open_ = open_ or loaded(o.model)
            computations(open_, given)  # reads the graph, where `run` finds what an earlier process compiled
            mine = open_.run(None, given)
        with ng.config(lengths="first"):
            known = loaded(o.model)
            computations(known, given)
            other = known.run(None, given)
        differs = max([float(np.abs(np.asarray(a, "f8") - b).max(initial=0)) for a, b in zip(mine, other, strict=True)])
        rows = joined(profiled((open_, known), given, o.calls))
        print(f"{at}\n" + "\n".join(table(rows, o.rows)))
        print(f"results differ by {differs:.1e}", flush=True)
        ratios += [r.ratio for r in large(rows)]
        if o.schedules:
            folder = os.path.join(o.schedules, "-".join(f"{name}{n}" for name, n in at.items()))
            os.makedirs(folder, exist_ok=True)
            write(folder, {"open": computations(open_, given), "known": computations(known, given)})
    mean = statistics.geometric_mean(ratios) if ratios else math.nan
    print(f"all: {len(ratios)} rows above {MIN_SHARE:.0%}, geometric mean {mean:.2f}, worst {max(ratios, default=math.nan):.2f}")


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
