"""The peer benchmark's workloads at two revisions, in turns: `python bench/paired.py REV [WORKLOAD ...]`; BENCH names the peer benchmark.

Prints, for each workload, the median time of a call at REV and here, and the median ratio of neighbouring turns (above 1: faster here).
Each revision runs in a process of its own, from an empty cache, on the same cores with the same number of threads.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEERS = os.environ.get("BENCH", os.path.join(os.path.dirname(ROOT), "shared", "bench"))


class Revision:
    """A worker of the peer benchmark that runs ngraph from the folder `home`."""

    def __init__(self, home, workload, threads, folder):
        os.makedirs(folder)
        asked = {"module": "ngraph", "workload": workload, "options": {}, "threads": threads, "tmp": folder, "warmup": 1.0}
        given = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([home, PEERS]),
            "PEERBENCH_PROJECT": home,
            "NGRAPH_CACHE": os.path.join(folder, "cache"),
            "NGRAPH_NUM_THREADS": str(threads),
        }
        command = [sys.executable, "-m", "peerbench.worker", json.dumps(asked)]
        self.process = subprocess.Popen(
            command, cwd=home, env=given, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def ask(self, cmd, **more):
        """The worker's answer to one command; exits where it failed."""
        self.process.stdin.write(json.dumps({"cmd": cmd, **more}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline() or '{"ok": false, "error": "the worker ended"}')
        if not answer["ok"]:
            sys.exit(f"{cmd}: {answer['error']}")
        return answer

    def close(self):
        self.process.kill()
        self.process.wait()


def measured(homes, workload, threads, rounds, seconds):
    """The median seconds of a call at each home, the median ratio of neighbouring turns, and the seconds that compiling took."""
    with tempfile.TemporaryDirectory() as folder:
        sides = [Revision(home, workload, threads, os.path.join(folder, str(k))) for k, home in enumerate(homes)]
        try:
            loads = [side.ask("load") for side in sides]
            turns = []
            for k in range(rounds):
                order = sides if k % 2 == 0 else sides[::-1]
                found = {side: statistics.median(side.ask("time", seconds=seconds)["samples"]) for side in order}
                turns.append([found[side] for side in sides])
        finally:
            for side in sides:
                side.close()
    before, here = (statistics.median(t[k] for t in turns) for k in (0, 1))
    return before, here, statistics.median(b / h for b, h in turns), [load["build_s"] + load["first_s"] for load in loads]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision", help="a revision of this repository, or a folder that holds a checkout")
    parser.add_argument("workloads", nargs="*", help="their names; all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9, help="turns of each side")
    parser.add_argument("--seconds", type=float, default=1.0, help="that a turn takes at least")
    asked = parser.parse_args()
    sys.path.insert(0, PEERS)
    from peerbench.workloads import WORKLOADS

    with tempfile.TemporaryDirectory() as folder:
        home = asked.revision
        if not os.path.isdir(home):
            home = folder
            archive = subprocess.run(["git", "archive", asked.revision, "ngraph", "bench"], cwd=ROOT, check=True, capture_output=True)
            subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        print(
            f"| workload | {asked.revision[:12]} ms | here ms | ratio | ready, before s | here s |\n| --- | --- | --- | --- | --- | --- |"
        )
        ratios = []
        for name in asked.workloads or WORKLOADS:
            before, here, ratio, ready = measured((os.path.abspath(home), ROOT), name, asked.threads, asked.rounds, asked.seconds)
            ratios.append(ratio)
            print(f"| {name} | {before * 1e3:.4g} | {here * 1e3:.4g} | {ratio:.3f} | {ready[0]:.2f} | {ready[1]:.2f} |", flush=True)
        print(f"\ngeometric mean {statistics.geometric_mean(ratios):.3f}, lowest {min(ratios):.3f}")


if __name__ == "__main__":
    main()
