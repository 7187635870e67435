"""What a computation's time goes into, kernel by kernel: as a table, as a trace for Chrome or Perfetto, as a page."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Row:
    """One kernel: the user's ops and lines in it, how often it ran in one call, seconds in one call, what it computes and moves.

    `flops` and `bytes` are of one run, `predicted` are the plan's seconds for one, `limit` what the machine needs at least for one.
    """

    ops: str
    lines: tuple[str, ...]
    calls: float
    seconds: float
    flops: float
    bytes: float
    predicted: float
    limit: float
    start: float = 0.0  # of the last run, and its end, in seconds from the call's start
    end: float = 0.0

    @property
    def rate(self) -> str:
        """Achieved: GFLOP/s where that is what bounds it, else GB/s."""
        if not self.seconds:
            return "-"
        each = self.calls / self.seconds / 1e9
        return f"{self.flops * each:.1f} GFLOP/s" if self.bound == "flops" else f"{self.bytes * each:.1f} GB/s"

    @property
    def bound(self) -> str:
        return "flops" if self.flops > 8 * self.bytes else "bytes"

    @property
    def share(self) -> float:
        """Of the machine's limit."""
        return min(1.0, self.limit * self.calls / self.seconds) if self.seconds else 0.0


@dataclass(frozen=True)
class Profile:
    """The kernels of a computation in the order in which they run, and the seconds of a whole call."""

    name: str
    rows: tuple[Row, ...]
    seconds: float
    calls: int
    threads: int

    def __str__(self) -> str:
        inside = sum(r.seconds for r in self.rows)
        head = ("seconds", "share", "runs", "rate", "of limit", "predicted", "kernel")
        table = [head]
        for r in sorted(self.rows, key=lambda r: -r.seconds):
            times = f"{r.predicted * r.calls / r.seconds:.2f} x" if r.seconds else "-"
            share = f"{r.seconds / max(inside, 1e-12):.1%}"
            lines = f"  {', '.join(r.lines[:3])}{' …' if len(r.lines) > 3 else ''}"
            table.append((_time(r.seconds), share, f"{r.calls:g}", r.rate, f"{r.share:.0%}", times, r.ops + lines))
        wide = [max(len(row[k]) for row in table) for k in range(len(head))]
        rows = ["  ".join([*(c.rjust(w) for c, w in zip(row[:-1], wide, strict=False)), row[-1]]) for row in table]
        said = f"{self.name}: {_time(self.seconds)} a call, {_time(inside)} of it in kernels, on {self.threads} threads, {self.calls} calls"
        return "\n".join([said, *rows])

    def json(self) -> str:
        """The last call as trace events, for chrome://tracing or ui.perfetto.dev; times in microseconds."""
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
        """A page of its own: a bar for each kernel, dark as far as the machine's limit goes."""
        inside = max(sum(r.seconds for r in self.rows), 1e-12)
        longest = max((r.seconds for r in self.rows), default=0) or 1.0
        rows = []
        for k, r in enumerate(self.rows):
            width, dark = 100 * r.seconds / longest, 100 * r.share
            bar = f'<div class=bar style="width:{width:.2f}%"><i style="width:{dark:.1f}%"></i></div>'
            cells = [str(k), _time(r.seconds), f"{r.seconds / inside:.1%}", f"{r.calls:g}", r.rate, f"{r.share:.0%}"]
            cells.append(_time(r.predicted * r.calls))
            lines = "".join(f"<br><small>{escape(line)}</small>" for line in r.lines)
            rows.append(f"<tr><td>{'<td>'.join(cells)}<td class=b>{bar}<td class=k>{escape(r.ops)}{lines}")
        said = f"{_time(self.seconds)} a call, {_time(inside)} of it in kernels, on {self.threads} threads"
        return PAGE.replace("TITLE", escape(self.name)).replace("SAID", said).replace("ROWS", "\n".join(rows))

    def _repr_html_(self) -> str:
        return self.html()

    def save(self, path: str) -> None:
        """As a page where the name ends in .html, as a trace where it ends in .json, else as the table."""
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
table{border-collapse:collapse}td,th{padding:3px 8px;text-align:right;vertical-align:top;border-bottom:1px solid #ddd;white-space:nowrap}
.k{text-align:left;white-space:normal}.b{width:260px}.bar{background:#bcd;height:14px}.bar i{display:block;background:#357;height:14px}
th{cursor:pointer;position:sticky;top:0;background:#fff}small{color:#777}
@media(prefers-color-scheme:dark){
body,th{background:#1b1b1b;color:#ddd}td,th{border-color:#333}.bar{background:#345}.bar i{background:#8bd}}
</style><h1>TITLE</h1><p>SAID. Dark: the machine's limit for what the kernel computes and moves. A click on a heading sorts.
<table><thead><tr><th>#<th>time<th>share<th>runs<th>rate<th>of limit<th>predicted<th class=b>time<th class=k>kernel</thead><tbody>
ROWS
</tbody></table>
<script>
const unit={us:1,ms:1e3,s:1e6},value=t=>{const m=t.match(/^([\\d.]+) ?(\\S*)/);return m?m[1]*(unit[m[2]]||1):0}
document.querySelectorAll("th").forEach((h,k)=>h.onclick=()=>{const b=document.querySelector("tbody")
const up=h.up=!h.up;[...b.rows].sort((p,q)=>(value(q.cells[k].innerText)-value(p.cells[k].innerText))*(up?1:-1)).forEach(r=>b.append(r))})
</script>
"""
