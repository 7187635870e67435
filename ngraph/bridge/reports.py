"""The record of what ran where: for each function nodes, clusters, edges not contracted, ops that stay, seconds, calls, fallbacks."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from ngraph.bridge import functions, pictures
from ngraph.bridge.clustering import kinds
from ngraph.bridge.functions import BridgedFunction
from ngraph.bridge.running import RunningCluster

MOST_EDGES = 8  # reasons of edges that the text shows for a function; `json()` has all


class BridgeReport:
    """All functions that the bridge has looked at since the start, or since `reset`. Print it, or take `json()` or `svg()`."""

    def __init__(self, found: list[BridgedFunction]):
        self.functions = found

    @property
    def fallbacks(self) -> int:
        """Returns how often TensorFlow ran a cluster in our place."""
        return sum(c["fallbacks"] for f in self.functions for c in _clusters(f))

    @property
    def unsupported(self) -> dict[str, int]:
        """Returns how often each op stands in functions and is TensorFlow's."""
        found: Counter[str] = Counter()
        for f in self.functions:
            found.update({op: sum(reasons.values()) for op, reasons in f.left.items()})
        return dict(found.most_common())

    def json(self) -> dict[str, Any]:
        """Returns it as numbers, texts, lists and dicts, which `json.dumps` takes."""
        return {
            "functions": [_function(f) for f in self.functions],
            "nodes": sum(f.nodes for f in self.functions),
            "marked": sum(f.marked for f in self.functions),
            "clustered": sum(f.clustered for f in self.functions),
            "unsupported": self.unsupported,
            "fallbacks": self.fallbacks,
        }

    def dumps(self) -> str:
        """Returns `json()` as text."""
        return json.dumps(self.json(), indent=2)

    def svg(self) -> str:
        """Returns a picture of the function that has the most nodes in clusters, with clusters coloured; "" where none has any."""
        drawn = [f for f in self.functions if f.picture is not None]
        best = max(drawn, key=lambda f: f.clustered, default=None)
        return "" if best is None or best.picture is None else pictures.svg(*best.picture)

    def __str__(self) -> str:
        given = self.json()
        lines = [
            f"{len(self.functions)} functions, {given['nodes']} nodes, {given['marked']} marked, {given['clustered']} in clusters,"
            f" {self.fallbacks} fallbacks"
        ]
        for f in given["functions"]:
            state = f"left as it is: {f['reason']}" if f["reason"] else f"{len(f['clusters'])} clusters"
            lines.append(
                f"{f['name']}: {f['nodes']} nodes, {f['marked']} marked, {f['clustered']} in clusters; {state}; {f['seconds']:.2f} s"
            )
            for c in f["clusters"]:
                lines.append(
                    f"  cluster {c['number']}: {c['nodes']} nodes, {c['arguments']} arguments, {c['results']} results, {c['calls']} calls,"
                    f" {c['fallbacks']} fallbacks, {c['seconds']:.2f} s to compile"
                    + (f", price {c['price'] * 1e6:.0f} us, TensorFlow's {c['price in TensorFlow'] * 1e6:.0f}" if "price" in c else "")
                    + (f"; failed: {c['failure']}" if c["failure"] else "")
                )
            lines += [f"  given back, {len(d['nodes'])} nodes: {d['reason']}" for d in f["given back"]]
            lines += _left(f["in TensorFlow"])
            shown = sorted(f["edges"].items(), key=lambda item: -item[1])
            lines += [f"  {n} edges not contracted: {why}" for why, n in shown[:MOST_EDGES]]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def _left(ops: dict[str, dict[str, int]]) -> list[str]:
    """Returns a line for each reason why nodes are TensorFlow's: how many, and of which ops. ops: the counts by op and reason."""
    by_reason: dict[str, Counter[str]] = {}
    for op, reasons in ops.items():
        for why, n in reasons.items():
            by_reason.setdefault(why, Counter())[op] += n
    lines = list[str]()
    for why, found in sorted(by_reason.items(), key=lambda item: -item[1].total()):
        named = ", ".join(op if n == 1 else f"{op} {n}" for op, n in found.most_common())
        lines.append(f"  TensorFlow runs {found.total()} node{'s' * (found.total() > 1)}, {named}: {why}")
    return lines


def _function(f: BridgedFunction) -> dict[str, Any]:
    return {
        "name": f.name,
        "reason": f.reason,
        "nodes": f.nodes,
        "marked": f.marked,
        "clustered": f.clustered,
        "clusters": _clusters(f),
        "given back": [{"reason": reason, "nodes": nodes} for reason, nodes in f.dropped],
        "in TensorFlow": f.left,
        "edges": dict(Counter(e.reason for e in f.edges)),
        "seconds": f.seconds,
    }


def _clusters(f: BridgedFunction) -> list[dict[str, Any]]:
    return [_cluster(f, c) for c in (*f.clusters, *f.former)]


def _cluster(f: BridgedFunction, c: RunningCluster) -> dict[str, Any]:
    return {
        "number": c.about.number,
        "nodes": len(c.about.nodes),
        "ops": {} if f.picture is None else kinds(f.picture[0], c.about.nodes),
        "arguments": len(c.about.takes),
        "results": len(c.about.gives),
        "calls": c.calls,
        "fallbacks": c.fallbacks,
        "seconds": c.seconds,
        "failure": c.failure,
        **({} if c.prices is None else {"price": c.prices[0], "price in TensorFlow": c.prices[1]}),
    }


def report() -> BridgeReport:
    """Returns what the bridge has made of the functions that TensorFlow called."""
    return BridgeReport(functions.reported())


def reset() -> None:
    """Forgets functions that are no more, and the counts of the others."""
    functions.reset()
