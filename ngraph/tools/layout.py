"""Layered drawing of a directed acyclic graph: boxes in rows, arrows downwards (after Sugiyama, Tagawa and Toda, 1981).

Rows by longest path, long arrows broken at every row they pass, rows ordered by barycentres to cross little, and columns by least
squares: the place nearest to the neighbours' mean that keeps order and gaps is an isotonic regression.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Point = tuple[float, float]
SWEEPS, GAP, ROW_GAP = 12, 18.0, 34.0


@dataclass
class GraphLayout:
    """The layout: `centres[i]` of box i, `routes[k]` the points of edge k from box to box, and the size of the whole."""

    width: float
    height: float
    centres: list[Point]
    routes: list[list[Point]]


def rows_of(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Returns the row of each box: below all of its sources. Boxes without sources, and their chains, are directly above their user."""
    users: list[list[int]] = [[] for _ in range(count)]
    inputs: list[list[int]] = [[] for _ in range(count)]
    row, chain = [0] * count, [True] * count
    for a, b in sorted(edges, key=lambda edge: edge[1]):  # every edge goes to a higher number, so a is final when it is reached
        users[a].append(b)
        inputs[b].append(a)
        row[b] = max(row[b], row[a] + 1)
        chain[b] = chain[a] and len(inputs[b]) == 1
    for i in reversed(range(count)):
        if chain[i] and users[i]:
            row[i] = min(row[u] for u in users[i]) - 1
    return row


def _ordered(rows: list[list[int]], up: list[list[int]], down: list[list[int]]) -> list[list[int]]:
    """Returns the rows, each in the order with the fewest crossings among the barycentre sweeps."""
    place = {v: float(i) for row in rows for i, v in enumerate(row)}
    best, fewest = [list(r) for r in rows], _crossings(rows, down, place)
    for sweep in range(SWEEPS):
        neighbours = up if sweep % 2 == 0 else down
        for row in rows if sweep % 2 == 0 else reversed(rows):
            row.sort(key=lambda v: sum(place[n] for n in neighbours[v]) / len(neighbours[v]) if neighbours[v] else place[v])
            place.update((v, float(i)) for i, v in enumerate(row))
        crossings = _crossings(rows, down, place)
        if crossings < fewest:
            best, fewest = [list(r) for r in rows], crossings
        if not fewest:
            break
    return best


def _crossings(rows: list[list[int]], down: list[list[int]], place: dict[int, float]) -> int:
    total = 0
    for row in rows:
        seen: list[float] = []
        for v in row:
            ends = sorted(place[u] for u in down[v])
            total += sum(len(seen) - bisect_left(seen, e + 0.5) for e in ends)
            for e in ends:
                insort(seen, e)
    return total


def _nearest(wanted: Sequence[float], weights: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """Returns positions closest to `wanted` with at least the gaps of `offsets`, by pooling neighbours that would overlap."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        mean, many = want - offset, 1
        while pools and pools[-1][0] > mean:
            m, w, n = pools.pop()
            mean, weight, many = (mean * weight + m * w) / (weight + w), weight + w, many + n
        pools.append((mean, weight, many))
    placed = [mean for mean, _, many in pools for _ in range(many)]
    return [p + o for p, o in zip(placed, offsets, strict=True)]


def _columns(rows: list[list[int]], widths: list[float], up: list[list[int]], down: list[list[int]], real: int) -> list[float]:
    x = [0.0] * len(widths)
    offsets = []
    for row in rows:
        at, offset = 0.0, []
        for v in row:
            offset.append(at + widths[v] / 2)
            at += widths[v] + GAP
        offsets.append(offset)
        for v, o in zip(row, offset, strict=True):
            x[v] = o - at / 2
    for sweep in range(SWEEPS):
        both = sweep >= SWEEPS - 2
        turns = list(enumerate(rows))
        for r, row in turns if sweep % 2 == 0 else reversed(turns):
            wanted, weights = [], []
            for v in row:
                near = up[v] + down[v] if both else (up if sweep % 2 == 0 else down)[v]
                wanted.append(sum(x[n] for n in near) / len(near) if near else x[v])
                weights.append(8.0 if v >= real else 1.0 if near else 0.1)
            for v, place in zip(row, _nearest(wanted, weights, offsets[r]), strict=True):
                x[v] = place
    return x


def layered(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> GraphLayout:
    """Returns a layout for boxes of these sizes. Boxes are numbered from inputs to users: edges go from lower to higher numbers."""
    real = len(sizes)
    row = rows_of(real, edges)
    widths = [w for w, _ in sizes]
    up: list[list[int]] = [[] for _ in sizes]
    down: list[list[int]] = [[] for _ in sizes]
    paths = []
    for a, b in edges:
        path = [a]
        for r in range(row[a] + 1, row[b]):
            path.append(len(row))
            row.append(r)
            widths.append(2.0)
            up.append([])
            down.append([])
        path.append(b)
        for p, q in zip(path, path[1:], strict=False):
            down[p].append(q)
            up[q].append(p)
        paths.append(path)
    rows: list[list[int]] = [[] for _ in range(max(row, default=-1) + 1)]
    for v in _depth_first(up, down, row):
        rows[row[v]].append(v)
    rows = _ordered(rows, up, down)
    x = _columns(rows, widths, up, down, real)
    left = min((x[v] - widths[v] / 2 for v in range(len(x))), default=0.0)
    heights = [max((sizes[v][1] for v in r if v < real), default=0.0) for r in rows]
    tops, y = [], 0.0
    for h in heights:
        tops.append(y)
        y += h + ROW_GAP
    middle = [tops[r] + heights[r] / 2 for r in row]
    right = max((x[v] + widths[v] / 2 for v in range(len(x))), default=0.0)
    routes = []
    for path in paths:
        a, b = path[0], path[-1]
        points = [(x[a] - left, middle[a] + sizes[a][1] / 2)]
        for v in path[1:-1]:
            points += [(x[v] - left, tops[row[v]]), (x[v] - left, tops[row[v]] + heights[row[v]])]
        routes.append([*points, (x[b] - left, middle[b] - sizes[b][1] / 2)])
    centres = [(x[v] - left, middle[v]) for v in range(real)]
    return GraphLayout(right - left, max(0.0, y - ROW_GAP), centres, routes)


def _depth_first(up: list[list[int]], down: list[list[int]], row: list[int]) -> Iterable[int]:
    """Returns an initial order in which neighbours are close: depth first over arrows both ways, from the top."""
    seen = [False] * len(row)
    for start in sorted(range(len(row)), key=row.__getitem__):
        stack = [start]
        while stack:
            v = stack.pop()
            if not seen[v]:
                seen[v] = True
                yield v
                stack += up[v][::-1] + down[v][::-1]
