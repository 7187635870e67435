"""The time of a computation by kernel: as a table, as a trace for Chrome or Perfetto, as a page."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape

SHOWN = 40  # kernels in a table; the page and the trace have all


@dataclass(frozen=True)
class KernelProfile:
    """One kernel: the user's ops and lines in it, its runs and seconds in one call, its operations and bytes.

    `flops` and `bytes` are of one run, `predicted` the plan's seconds for one, `limit` the machine's least seconds for one,
    `shape` the largest of its results, `reads` the user's names of its inputs, `scopes` those of its ops.
    """

    ops: str
    lines: tuple[str, ...]
    calls: float
    seconds: float
    flops: float
    bytes: float
    predicted: float
    limit: float
    start: float = 0.0  # of its last run in the call, and its end, in seconds from the call's start
    end: float = 0.0
    shape: str = ""
    reads: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()

    @property
    def rate(self) -> str:
        """The achieved rate: GFLOP/s where operations bound it, else GB/s."""
        if not self.seconds:
            return "-"
        each = self.calls / self.seconds / 1e9
        return f"{self.flops * each:.1f} GFLOP/s" if self.bound == "flops" else f"{self.bytes * each:.1f} GB/s"

    @property
    def places(self) -> str:
        """Its lines, each file named once: "model.py:3, 7; layers.py:12"; or the nodes of a file."""
        found: dict[str, list[str]] = {}
        for line in self.lines:
            file, _, number = line.rpartition(":")
            plain = number.isdigit()
            found.setdefault(file if plain else line, []).extend([number] * plain)
        return "; ".join([f"{file}:{', '.join(numbers)}" if numbers else file for file, numbers in found.items()])

    @property
    def bound(self) -> str:
        return "flops" if self.flops > 8 * self.bytes else "bytes"

    @property
    def share(self) -> float:
        """The share of the machine's limit that it achieves."""
        return min(1.0, self.limit * self.calls / self.seconds) if self.seconds else 0.0


@dataclass(frozen=True)
class Profile:
    """The kernels of a computation in the order in which they run, and the seconds of a whole call: the fastest of `calls`."""

    name: str
    rows: tuple[KernelProfile, ...]
    seconds: float
    calls: int
    threads: int
    limits: tuple[float, float] = (0.0, 0.0)  # bytes and operations per second
    measured: bool = False  # the limits were measured by `ngraph doctor --measure`
    host: tuple[str, ...] = ()  # the host callbacks: their ops, with the user's lines
    together: int = 1  # products per instruction of some kernel, whose limit is as many times as high
    versions: tuple[tuple[str, int], ...] = ()  # code for lengths, and how often calls have used it

    @property
    def inside(self) -> float:
        """Seconds of a call in kernels."""
        return sum(r.seconds for r in self.rows)

    @property
    def ranked(self) -> list[KernelProfile]:
        """The kernels, the longest first."""
        return sorted(self.rows, key=lambda r: -r.seconds)

    def said(self) -> list[str]:
        """Returns a summary of the whole, in sentences."""
        flops, moved = sum(r.flops * r.calls for r in self.rows), sum(r.bytes * r.calls for r in self.rows)
        threads = f"{self.threads} thread{'s' * (self.threads != 1)}"
        first = f"{_time(self.seconds)}, the fastest of {self.calls} calls; {_time(self.inside)} in {len(self.rows)} kernels on {threads}."
        first += f" Python runs {', '.join(self.host)}." * bool(self.host)
        calls = "; ".join([f"{lengths}: {n}" for lengths, n in self.versions])
        first += f" Calls by version: {calls}." * bool(self.versions)
        rate = 1e-9 / max(self.inside, 1e-12)
        predicted = sum(r.predicted * r.calls for r in self.rows)
        second = f"Kernels: {flops * rate:.1f} GFLOP/s and {moved * rate:.1f} GB/s; {_time(predicted)} were predicted."
        if not any(self.limits):
            return [first, second]
        how = "measured" if self.measured else "guessed: `ngraph doctor --measure` measures"
        memory, peak = (f"{limit / 1e9:{form}}" for limit, form in zip(self.limits, (".1f", ",.0f"), strict=True))
        more = f" ({self.together * self.limits[1] / 1e9:,.0f} for products {self.together} at a time)" if self.together > 1 else ""
        return [first, second, f"Limits of this machine: {peak} GFLOP/s{more}, {memory} GB/s ({how})."]

    def __str__(self) -> str:
        head = ("time", "share", "runs", "rate", "of limit", "predicted", "kernel")
        table = [head]
        for r in self.ranked[:SHOWN]:
            share, predicted = f"{r.seconds / max(self.inside, 1e-12):.1%}", _time(r.predicted * r.calls)
            what = "  ".join(filter(None, [r.ops, r.shape, f"of {', '.join(r.reads[:2])}" * bool(r.reads), r.places]))
            table.append((_time(r.seconds), share, f"{r.calls:g}", r.rate, f"{r.share:.0%}", predicted, what))
        wide = [max(len(row[k]) for row in table) for k in range(len(head))]
        rows = ["  ".join([*(c.rjust(w) for c, w in zip(row[:-1], wide, strict=False)), row[-1]]) for row in table]
        rest = self.ranked[SHOWN:]
        if rest:
            rows.append(f"and {len(rest)} more kernels, {_time(sum(r.seconds for r in rest))}; save('profile.html') has them all")
        return "\n".join([f"{self.name}: {' '.join(self.said())}", *rows])

    def json(self) -> str:
        """Returns the call as trace events, for chrome://tracing or ui.perfetto.dev; times in microseconds."""
        events = [
            {
                "name": r.ops,
                "ph": "X",
                "pid": 1,
                "tid": 1,
                "ts": r.start * 1e6,
                "dur": (r.end - r.start) * 1e6,
                "args": {
                    "lines": list(r.lines),
                    "result": r.shape,
                    "reads": list(r.reads),
                    "runs": r.calls,
                    "seconds in a call": r.seconds,
                    "rate": r.rate,
                    "share of limit": round(r.share, 3),
                    "predicted seconds": r.predicted,
                },
            }
            for r in self.rows
            if r.end > r.start
        ]
        named = {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": self.name}}
        return json.dumps({"traceEvents": [named, *events], "displayTimeUnit": "ms"})

    def html(self) -> str:
        """Returns a self-contained page: the call as a line of kernels, then a bar for each, dark up to the machine's limit."""
        longest = max((r.seconds for r in self.rows), default=0) or 1.0
        number = {id(r): k for k, r in enumerate(self.rows)}
        rows = []
        for r in self.ranked:
            width, dark = 100 * r.seconds / longest, 100 * r.share
            bar = f'<div class=bar style="width:{width:.2f}%"><i style="width:{dark:.1f}%"></i></div>'
            cells = [f"{number[id(r)]}", _time(r.seconds), f"{r.seconds / max(self.inside, 1e-12):.1%}", f"{r.calls:g}", r.rate]
            cells += [f"{r.share:.0%}", _time(r.predicted * r.calls)]
            more = [f"<code>{escape(r.shape)}</code>" * bool(r.shape), escape(f"of {', '.join(r.reads)}") * bool(r.reads)]
            small = "<br>".join([" ".join(filter(None, more)), escape(r.places)])
            rows.append(f"<tr><td>{'<td>'.join(cells)}<td class=b>{bar}<td class=k>{escape(r.ops)}<br><small>{small}</small>")
        page = PAGE.replace("TITLE", escape(self.name)).replace("SAID", escape(" ".join(self.said())))
        return page.replace("STRIP", self._strip()).replace("ROWS", "\n".join(rows))

    def _strip(self) -> str:
        """Returns the call from left to right, as an SVG."""
        end = max((r.end for r in self.rows), default=0) or 1.0
        parts = []
        for k, r in enumerate(self.rows):
            if r.end > r.start:
                said = escape(f"{k}: {r.ops} {r.shape}, {_time(r.end - r.start)}, {r.share:.0%} of the limit", quote=True)
                shade = f"hsl({10 + 110 * r.share:.0f} 45% {45 + 10 * (k % 2)}%)"
                x, width = 1000 * r.start / end, 1000 * (r.end - r.start) / end
                parts.append(f'<rect x="{x:.2f}" width="{width:.2f}" height="28" fill="{shade}"><title>{said}</title></rect>')
        return f'<svg viewBox="0 0 1000 28" preserveAspectRatio="none">{"".join(parts)}</svg>'

    def _repr_html_(self) -> str:
        return self.html()

    def save(self, path: str) -> None:
        """Writes a page for the extension .html, a trace for .json, else the table."""
        text = self.html() if path.endswith(".html") else self.json() if path.endswith(".json") else f"{self}\n"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds * 1e6:.2f} us"


PAGE = """<!doctype html><meta charset=utf-8><title>TITLE</title>
<style>
body{font:14px/1.4 system-ui,sans-serif;margin:24px;color:#222;background:#fff}
p{max-width:75em}svg{width:100%;height:28px;background:#eee;display:block;margin:0 0 20px}
table{border-collapse:collapse;width:100%}
td,th{padding:4px 8px;text-align:right;vertical-align:top;border-bottom:1px solid #ddd;white-space:nowrap}
.k{text-align:left;white-space:normal;width:45%}.b{width:22%;text-align:left}
.bar{background:#bcd;height:14px;min-width:2px}.bar i{display:block;background:#357;height:14px}
th{cursor:pointer;position:sticky;top:0;background:#fff}small{color:#666}code{font:12px ui-monospace,monospace}
@media(prefers-color-scheme:dark){
body,th{background:#1b1b1b;color:#ddd}svg{background:#333}td,th{border-color:#333}
.bar{background:#345}.bar i{background:#8bd}small{color:#999}}
</style><h1>TITLE</h1><p>SAID
<p>The call from left to right; red is far from the machine's limit, green is near, and the mouse on a part says what it is.
STRIP
<p>Each kernel, the longest first. The dark part of a bar is what the machine needs at least for what the kernel computes and moves.
The first column counts in the order of running; a click on a heading sorts by it.
<table><thead><tr><th>#<th>time<th>share<th>runs<th>rate<th>of limit<th>predicted<th class=b>time, and its limit
<th class=k>ops, result, lines</thead><tbody>
ROWS
</tbody></table>
<script>
const unit={us:1,ms:1e3,s:1e6},value=t=>{const m=t.match(/^([\\d.]+) ?(\\S*)/);return m?m[1]*(unit[m[2]]||1):0}
document.querySelectorAll("th").forEach((h,k)=>h.onclick=()=>{const b=document.querySelector("tbody"),c=k==7?1:k
const key=r=>r.cells[c].innerText,up=h.up=!h.up,order=(p,q)=>k==8?key(p).localeCompare(key(q)):value(key(p))-value(key(q));
[...b.rows].sort((p,q)=>order(p,q)*(up?1:-1)).forEach(r=>b.append(r))})
</script>
"""
