"""A computation's stages as texts, for `ngraph explain` and for `DUMP=folder`, which gives each computation a folder of its own:

DUMP/train/0-op-graph.txt  1-lower.txt  2-share.txt  3-simplify.txt  3-simplify.rules.txt …  9-source.py  stages.json
for machine code, instead of the source:  9-plan.txt  10-llvm.ll  11-asm.s
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ngraph.op_graph import text as graph_text
from ngraph.op_graph.files import told
from ngraph.op_graph.op import Op
from ngraph.parts.runner import Ran, numbered
from ngraph.program import text as program_text
from ngraph.program.program import Program

INDEX = "stages.json"
SUFFIX = {"source": ".py", "llvm": ".ll", "asm": ".s"}
CODE = ("source", "plan", "schedule", "llvm", "asm")  # stages that are not programs
_taken: dict[str, int] = {}  # folders written by this process, with counts: two computations may have one name


class DumpedStage(NamedTuple):
    """One stage: its name (`simplify.2` where a pass runs again), its text, its size (ops, steps or lines), the number of applications
    of each rule, a line for each of them, and the seconds of the pass."""

    name: str
    text: str
    size: int
    rules: Mapping[str, int]
    fired: str
    unit: str = "lines"
    seconds: float | None = None

    @property
    def file(self) -> str:
        return self.name + SUFFIX.get(self.name, ".txt")


def stages(results: Sequence[Op], lowered: Program, history: Sequence[Ran], source: str, native: Any = None) -> list[DumpedStage]:
    """Returns every stage of a computation, from the op-graph to the generated code; `native` is its machine code."""
    found = [
        DumpedStage("op-graph", graph_text.text(results), len(Op.ordered_ops(results)), {}, "", "ops"),
        DumpedStage("lower", program_text.text(lowered), len(lowered.steps), {}, "", "steps"),
    ]
    for name, ran in zip(numbered([ran.name for ran in history]), history, strict=True):
        found.append(DumpedStage(name, ran.text, ran.size, ran.trace.counts(), str(ran.trace), ran.form.unit, ran.seconds))
    if source:
        found.append(DumpedStage("source", source, source.count("\n"), {}, ""))
    if native is not None:
        native = native.named()
        found.append(DumpedStage("plan", native.plan_text(), len(native.chosen.plan.every), {}, "", "kernels"))
        codes = (("schedule", native.schedule_text()), ("llvm", native.llvm()), ("asm", native.asm()))
        found += [DumpedStage(name, code, code.count("\n"), {}, "") for name, code in codes]
    return found


def write(folder: str, name: str, stages: Sequence[DumpedStage], seconds: Mapping[str, float]) -> str:
    """Writes the stages into a folder of their own inside `folder`, over those of an earlier process; returns its path."""
    place = os.path.join(folder, name)
    _taken[place] = _taken.get(place, 0) + 1
    if _taken[place] > 1:
        place = f"{place}.{_taken[place]}"
    with told(folder, "written"):
        os.makedirs(place, exist_ok=True)
    listed: list[dict[str, Any]] = []
    for k, stage in enumerate(stages):
        file = f"{k}-{stage.file}"
        _write(os.path.join(place, file), stage.text)
        if stage.rules:
            _write(os.path.join(place, f"{k}-{stage.name}.rules.txt"), stage.fired + "\n")
        listed.append(
            {
                "stage": stage.name,
                "file": file,
                "size": stage.size,
                "unit": stage.unit,
                "rules": dict(stage.rules),
                "seconds": stage.seconds,
            }
        )
    _write(os.path.join(place, INDEX), json.dumps({"computation": name, "seconds": dict(seconds), "stages": listed}, indent=1) + "\n")
    return place


def read(folder: str) -> dict[str, tuple[dict[str, float], list[DumpedStage]]]:
    """Reads folders that `write` wrote: the seconds and stages of each computation, by the name of its folder."""
    found = {}
    for name in sorted(os.listdir(folder)):
        place = os.path.join(folder, name)
        if os.path.isfile(os.path.join(place, INDEX)):
            index = json.loads(_read(os.path.join(place, INDEX)))
            listed = []
            for k, s in enumerate(index["stages"]):
                rules = os.path.join(place, f"{k}-{s['stage']}.rules.txt")
                fired = _read(rules).rstrip("\n") if s["rules"] else ""
                listed.append(
                    DumpedStage(s["stage"], _read(os.path.join(place, s["file"])), s["size"], s["rules"], fired, s["unit"], s["seconds"])
                )
            found[name] = (index["seconds"], listed)
    return found


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
