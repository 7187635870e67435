"""What the benches beside PyTorch share: both on as many threads in one process, taking turns; medians; a table of the chosen cases."""

import statistics
import sys
import time

import torch

import ngraph as ng


def axes(**lengths):
    return [ng.make_axis(n, name=name) for name, n in lengths.items()]


def seconds(call, calls, warm):
    """The median of so many calls, after one, or as many as so many seconds take."""
    begin = time.perf_counter()
    call()
    while time.perf_counter() - begin < warm:
        call()
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def medians(pairs, calls, warm=0.0, rounds=3):
    """[(our seconds, theirs)] of each pair of calls, medians of some rounds."""
    found = [[[seconds(call, calls, warm) for call in pair] for pair in pairs] for _ in range(rounds)]
    return [tuple(statistics.median([r[k][side] for r in found]) for side in (0, 1)) for k in range(len(pairs))]


def main(cases, head, row):
    """A table of the cases whose names begin with an argument, by `row(name, case)`; on NGRAPH_NUM_THREADS threads, 2 unless told."""
    begins = tuple(sys.argv[1:]) or ("",)
    chosen = {name: case for name, case in cases.items() if name.startswith(begins)}
    if not chosen:
        sys.exit(f"no name begins with {' or '.join(begins)}; there are:\n  " + "\n  ".join(cases))
    threads = ng.config.num_threads or 2
    torch.set_num_threads(threads)
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    with ng.config(num_threads=threads):
        for name, case in chosen.items():
            print(f"| {name} | {' | '.join(row(name, case))} |", flush=True)
