"""The record of what ran where: for each function that torch.compile has compiled its graphs, breaks, ops in torch, and seconds."""

from __future__ import annotations

import contextlib
import json
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ngraph.frontends.torch import private
from ngraph.frontends.torch.graph import line_of, name_of
from ngraph.frontends.torch.segments import Segments, bytes_of
from ngraph.frontends.torch.steps import Calls, CompiledGraph, OurStep
from ngraph.op_graph.html import table


class GraphReport:
    """One graph of ATen's: forward, backward or inference.

    ours      nodes that are in our segments              segments  how many there are
    in_torch  op -> [{reason, line, count, bytes}]        seconds   by part
    """

    def __init__(self, kind: str):
        self.kind, self.ours, self.segments = kind, 0, 0
        self.in_torch: dict[str, list[dict[str, Any]]] = {}
        self.seconds = {"translation": 0.0}
        self.calls = Calls()
        self._made: Callable[[], CompiledGraph | None] = lambda: None

    @property
    def made(self) -> CompiledGraph | None:
        """Returns the graph as it runs; None where it was dropped."""
        return self._made()

    def fill(self, segments: Segments, made: CompiledGraph) -> None:
        """Takes what a graph became."""
        self.ours = segments.ours
        self._take(made)
        self.segments = sum(isinstance(s, OurStep) for s in made.steps)
        for node, left in segments.left.items():
            rows = self.in_torch.setdefault(name_of(node), [])
            line = line_of(node)
            row = next((r for r in rows if (r["reason"], r["line"]) == (left.reason, line)), None)
            if row is None:
                rows.append(row := {"reason": left.reason, "line": line, "count": 0, "bytes": 0})
            row["count"] += 1
            crossed = [a for a in node.all_input_nodes if segments.kind.get(a) == "ours"]
            crossed += [node] if any(segments.kind.get(u) == "ours" for u in node.users) else []
            row["bytes"] += sum(bytes_of(a.meta.get("val")) for a in crossed)

    def said(self) -> dict[str, Any]:
        """Returns what another process has to know of a graph that it finds compiled."""
        return {"kind": self.kind, "ours": self.ours, "segments": self.segments, "in_torch": self.in_torch}

    def again(self, said: dict[str, Any], made: CompiledGraph) -> None:
        """Takes what `said` gave, of a graph that was found compiled."""
        self.ours, self.segments, self.in_torch = said["ours"], said["segments"], said["in_torch"]
        self._take(made)

    def _take(self, made: CompiledGraph) -> None:
        """Takes the graph that runs."""
        self.calls, self._made, made.label = made.made, weakref.ref(made), f"ngraph {self.kind}"

    def json(self) -> dict[str, Any]:
        """Returns it as numbers and texts."""
        seconds = {**self.seconds, "plan and code": self.calls.seconds}
        return {
            "kind": self.kind,
            "calls": self.calls.count,
            "ours": self.ours,
            "segments": self.segments,
            "in torch": self.in_torch,
            "seconds": seconds,
        }


class FunctionReport:
    """The graphs that one call of the backend made, of one piece of a function of the user's."""

    def __init__(self, about: private.Compiled):
        self.about = about
        self.graphs: list[GraphReport] = []
        self.seconds: dict[str, float] = {}

    def graph(self, kind: str) -> GraphReport:
        """Returns the report of a new graph."""
        made = GraphReport(kind)
        self.graphs.append(made)
        return made


class TorchReport:
    """All that torch.compile has compiled with this backend since the start, or since `reset`: text, tables in a notebook, or `json()`."""

    def __init__(self, functions: list[FunctionReport]):
        self.functions = functions

    @property
    def ours(self) -> int:
        """Returns how many nodes are ours."""
        return sum(g.ours for f in self.functions for g in f.graphs)

    @property
    def in_torch(self) -> dict[str, int]:
        """Returns how often each op stands in graphs and is run by torch."""
        found: Counter[str] = Counter()
        for f in self.functions:
            for g in f.graphs:
                found.update({op: sum(r["count"] for r in rows) for op, rows in g.in_torch.items()})
        return dict(found)

    @property
    def breaks(self) -> list[dict[str, str]]:
        """Returns where graphs end before the user's function does, each with Dynamo's reason and the line."""
        return [{"reason": f.about.reason, "line": f.about.where} for f in self.functions if f.about.broken]

    @property
    def recompiles(self) -> list[dict[str, str]]:
        """Returns the functions that Dynamo compiled again, with the guard that failed."""
        seen = {f.about.function for f in self.functions}
        found = []
        for m in _measured():
            frame, _, attempt = str(getattr(m, "compile_id", "") or "").partition("/")
            if frame in seen and attempt not in ("", "0") and getattr(m, "recompile_reason", None):
                found.append({"function": _name(m), "reason": str(m.recompile_reason)})
        return found

    @property
    def skipped(self) -> list[dict[str, str]]:
        """Returns the functions of which Dynamo compiled nothing, and which run as Python, with its reason: an error, or a break before
        their first op."""
        found, seen = [], {f.about.function for f in self.functions}
        for m in _measured():
            reason = m.fail_reason or next(iter(m.restart_reasons or ()), "")
            if reason and str(m.compile_id).partition("/")[0] not in seen:
                found.append({"function": _name(m), "reason": str(reason)})
        return found

    def json(self) -> dict[str, Any]:
        """Returns it as numbers, texts, lists and dicts, which `json.dumps` takes."""
        functions, measured = [], {str(m.compile_id): m for m in _measured()}
        for f in self.functions:
            m = measured.get(f"{f.about.function}/{f.about.attempt}")
            whole, ours = (getattr(m, name, None) for name in ("entire_frame_compile_time_s", "backend_compile_time_s"))
            functions.append(
                {
                    "function": f"frame {f.about.function}" if m is None else _name(m),
                    "graphs": [g.json() for g in f.graphs],
                    "break": {"reason": f.about.reason, "line": f.about.where} if f.about.broken else None,
                    "seconds": ({} if whole is None else {"dynamo": max(whole - (ours or 0.0), 0.0)}) | f.seconds,
                }
            )
        return {
            "functions": functions,
            "graphs": sum(len(f.graphs) for f in self.functions),
            "ours": self.ours,
            "in torch": self.in_torch,
            "breaks": self.breaks,
            "recompiles": self.recompiles,
            "skipped": self.skipped,
        }

    def __str__(self) -> str:
        given = self.json()
        lines = [
            f"{len(self.functions)} pieces, {given['graphs']} graphs, {self.ours} nodes ours, {sum(self.in_torch.values())} in torch,"
            f" {len(self.breaks)} breaks, {len(given['recompiles'])} recompiles"
        ]
        for f in given["functions"]:
            seconds = {PARTS[name]: took for name, took in f["seconds"].items()}
            lines.append(f"piece of {f['function']}: {_said(seconds)}")
            for g in f["graphs"]:
                about = f"{g['ours']} nodes in {g['segments']} segments, {g['calls']} calls"
                lines.append(f"  {g['kind']}: {about}; {_said(g['seconds'])}")
                for op, rows in g["in torch"].items():
                    for r in rows:
                        lines.append(f"    torch runs {op} {r['count']} times: {r['reason']}   {r['line']}   {r['bytes']:,} bytes crossed")
            if f["break"]:
                lines.append(f"  break: {f['break']['reason'].splitlines()[0] if f['break']['reason'] else '?'}   {f['break']['line']}")
        lines += [f"recompiled {r['function']}: {r['reason']}" for r in given["recompiles"]]
        lines += [f"not compiled: {s['function']}: {s['reason'].splitlines()[0]}" for s in given["skipped"]]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Returns tables for a notebook: the graphs, the ops in torch, and what Dynamo ended, compiled again or did not compile."""
        given, graphs, ops = self.json(), list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        for f in given["functions"]:
            for g in f["graphs"]:
                seconds = {**{PARTS[name]: took for name, took in f["seconds"].items()}, **g["seconds"]}
                graphs.append((f["function"], g["kind"], g["ours"], g["segments"], g["calls"], _said(seconds)))
                for op, rows in g["in torch"].items():
                    ops += [(op, r["count"], r["reason"], r["line"], f"{r['bytes']:,}") for r in rows]
        events = [("break", b["line"], b["reason"]) for b in given["breaks"]]
        events += [("compiled again", r["function"], r["reason"]) for r in given["recompiles"]]
        events += [("not compiled", s["function"], s["reason"]) for s in given["skipped"]]
        caption = f"{self.ours:,} nodes are compiled, torch runs {sum(self.in_torch.values()):,}"
        made = table(caption, graphs, ("function", "graph", "nodes", "segments", "calls", "seconds"))
        made += table("run by torch", ops, ("op", "count", "reason", "line", "bytes that crossed")) if ops else ""
        return made + (table("from Dynamo", events, ("", "place", "reason")) if events else "")

    def dumps(self) -> str:
        """Returns `json()` as text."""
        return json.dumps(self.json(), indent=2)


PARTS = {"dynamo": "Dynamo", "aot": "AOTAutograd"}  # of the seconds of a function


def _said(seconds: Mapping[str, float]) -> str:
    return ", ".join([f"{name} {took:.2f} s" for name, took in seconds.items()])


def _name(m: Any) -> str:
    """Returns the function of a compilation that Dynamo measured, and the line where it begins."""
    return f"{m.co_name} ({m.co_filename}:{m.co_firstlineno})"


_functions: list[FunctionReport] = []
_before: list[Any] = []  # compilations that Dynamo had measured at the last reset; it keeps the last 64


def _measured() -> list[Any]:
    """Returns what Dynamo has measured since the last reset."""
    old = set(map(id, _before))
    return [m for m in private.metrics() if id(m) not in old]


def begin(about: private.Compiled) -> FunctionReport:
    """Returns the report of what the backend is called for now."""
    made = FunctionReport(about)
    _functions.append(made)
    return made


def forget(made: FunctionReport) -> None:
    """Takes away the report of what was not compiled."""
    with contextlib.suppress(ValueError):  # `reset` came first
        _functions.remove(made)


def report() -> TorchReport:
    """Returns what torch.compile has compiled with this backend, and what torch runs of it."""
    return TorchReport(list(_functions))


def reset() -> None:
    """Forgets what has been reported so far."""
    _functions.clear()
    _before[:] = private.metrics()
