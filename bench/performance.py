"""The tables of docs/performance.md, from what the peer benchmark measured.

`bench/README.md` says how to run the peer benchmark; this reads its results files and prints Markdown: a row a workload with the
ratio to the best other peer beside the goal, then every peer's figures, then compile time and memory. With several files (runs) the
median over the runs is taken.

    python bench/performance.py results-1.json results-2.json … > tables.md
"""

import json
import math
import statistics
import sys
from typing import Any

GOALS = {
    "X1": 2.0,
    "T1": 4.0,
    "T2": 2.0,
    "T3": 2.0,
    "T4": 1.4,
    "T4c": 1.8,
    "T5": 1.5,
    "T6": 1.35,
    "I1": 1.15,
    "I1b8": 1.1,
    "I2": 1.15,
    "I3": 1.4,
    "I4": 1.25,
    "I5": 1.15,
    "I6": 2.7,
    "I6r": 2.7,
}  # ratio: the best other peer's time / ours
COMPILE = {"T2": 0.6, "I1": 2.5, "I2": 2.5, "T5": 5.0, "T6": 10.0}  # seconds
PROBE = "sgemm"


def main(paths: list[str]) -> None:
    runs = []
    for path in paths:
        with open(path) as file:
            runs.append(json.load(file))
    found = [w for w in GOALS if any(timed(run, w, "ngraph") for run in runs)]
    rates = [
        r.get("gflops_best", 0.0)
        for run in runs
        for m in run["machine_runs"]
        for k, r in m.items()
        if k.startswith("sgemm") and k.endswith("2t")
    ]
    bands = [r.get("triad_gbs_best", 0.0) for run in runs for m in run["machine_runs"] for k, r in m.items() if k == "memory_2t"]
    print(f"{runs[0]['cpu']}, {runs[0]['threads']} threads; best SGEMM {max(rates, default=math.nan):.0f} GFLOP/s,", end=" ")
    print(f"best triad {max(bands, default=math.nan):.1f} GB/s; {len(runs)} runs.\n")
    summary(runs, found)
    everyone(runs, found)
    compiling(runs, found)


def summary(runs: list[Any], found: list[str]) -> None:
    print("| workload | best other peer | ngraph | ratio (runs) | goal | rate | share of the probe in the same rounds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    ratios: dict[str, float] = {}
    for w in found:
        seen = [(best(run, w), run) for run in runs if timed(run, w, "ngraph") and best(run, w)]
        each = [paired(run, w, p, "ngraph") for p, run in seen]
        if not each:
            continue
        ratios[w] = statistics.median(each)
        p, run = seen[0]
        shown = ", ".join(f"{r:.2f}" for r in each)
        mine = statistics.median([timed(run, w, "ngraph")["median_s"] for _, run in seen])
        theirs = statistics.median([timed(run, w, q)["median_s"] for q, run in seen])
        rate, share = rates_of(run, w, mine)
        print(f"| **{w}** {run['workloads'][w]['title']} | {p} {seconds(theirs)} | {seconds(mine)} | **{ratios[w]:.2f}**", end=" ")
        print(f"({shown}) | {GOALS[w]:g} | {rate} | {share} |")
    print()
    for kind, goal in (("T", 1.7), ("I", 1.4)):
        some = [r for w, r in ratios.items() if w.startswith(kind)]
        if some:
            mean = math.exp(statistics.mean(map(math.log, some)))
            print(f"Geometric mean of {'training' if kind == 'T' else 'inference'}: {mean:.2f} (goal {goal:g}).")
    print()


def everyone(runs: list[Any], found: list[str]) -> None:
    print(
        "| workload | peer | median | paired: peer / ngraph | rate | largest relative difference |\n| --- | --- | --- | --- | --- | --- |"
    )
    for w in found:
        peers = sorted({p for run in runs for p in run["workloads"].get(w, {"peers": ()})["peers"] if p != PROBE and timed(run, w, p)})
        rows = []
        for p in peers:
            having = [run for run in runs if timed(run, w, p) and timed(run, w, "ngraph")]
            if having:
                time = statistics.median([timed(run, w, p)["median_s"] for run in having])
                ratio = statistics.median([paired(run, w, p, "ngraph") for run in having])
                rows.append((ratio, p, time, rates_of(having[0], w, time)[0], max(timed(run, w, p)["rel_diff"] for run in having)))
        for k, (ratio, p, time, rate, off) in enumerate(sorted(rows)):
            name = f"**{p}**" if p == "ngraph" else p
            print(f"| {w if k == 0 else ''} | {name} | {seconds(time)} | {ratio:.2f} | {rate} | {off:.0e} |")
        for p, error in sorted({(p, r["error"].splitlines()[-1][:90]) for run in runs for p, r in failed(run, w)}):
            print(f"|  | {p} | failed: {error} | | | |")
    print()


def compiling(runs: list[Any], found: list[str]) -> None:
    print("| workload | compile, s | limit | best peer's | import, s | peak memory, MiB | least of the frameworks |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for w in found:
        mine = [r for run in runs if (r := timed(run, w, "ngraph"))]
        compile_s, import_s, rss = (statistics.median([r[k] for r in mine]) for k in ("compile_s", "import_s", "peak_rss_mib"))
        peers = [(run, p) for run in runs for p in run["workloads"].get(w, {"peers": ()})["peers"] if p not in (PROBE, "ngraph", "numpy")]
        others = [(p, r) for run, p in peers if (r := timed(run, w, p))]
        fastest = min([(r["compile_s"], p) for p, r in others], default=(math.nan, "none"))
        least = min([(r["peak_rss_mib"], p) for p, r in others], default=(math.nan, "none"))
        limit = f"{COMPILE[w]:g}" if w in COMPILE else ""
        print(f"| {w} | {compile_s:.2f} | {limit} | {fastest[0]:.2f} ({fastest[1]}) | {import_s:.2f} | {rss:.0f}", end=" ")
        print(f"| {least[0]:.0f} ({least[1]}) |")


def timed(run: Any, w: str, peer: str) -> Any:
    """What one peer measured; None where it has no time."""
    r = run["workloads"].get(w, {"peers": {}})["peers"].get(peer, {})
    return r if "median_s" in r else None


def failed(run: Any, w: str) -> list[tuple[str, Any]]:
    return [(p, r) for p, r in run["workloads"].get(w, {"peers": {}})["peers"].items() if r["status"] == "failed"]


def best(run: Any, w: str) -> str | None:
    """The other peer with the least median of its slices."""
    rows = [(r["median_s"], p) for p in run["workloads"][w]["peers"] if p not in (PROBE, "ngraph") and (r := timed(run, w, p))]
    return min(rows)[1] if rows else None


def paired(run: Any, w: str, a: str, b: str) -> float:
    """The median over the rounds of a's slice / b's slice: what drifts with the machine cancels."""
    slices = zip(timed(run, w, a)["slice_medians_s"], timed(run, w, b)["slice_medians_s"], strict=False)
    return statistics.median([x / y for x, y in slices])


def rates_of(run: Any, w: str, time: float) -> tuple[str, str]:
    work = run["workloads"][w]
    if work["flops"] > 1e6:
        probe = work.get("sgemm_gflops") if PROBE in work["peers"] else None
        rate = work["flops"] / time / 1e9
        return f"{rate:.1f} GFLOP/s", f"{rate / probe:.0%}" if probe else ""
    if work["bytes_moved"]:
        return f"{work['bytes_moved'] / time / 1e9:.1f} GB/s", ""
    return "", ""


def seconds(s: float) -> str:
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if s * factor < 1000:
            return f"{s * factor:.3g} {unit}"
    return f"{s:.3g} s"


if __name__ == "__main__":
    main(sys.argv[1:])
