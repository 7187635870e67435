"""The peer benchmark's workloads at two revisions, in turns: `python bench/paired.py REV [WORKLOAD ...]`; BENCH names the peer benchmark.

    python bench/paired.py REV --files FOLDER [CASE ...]     the models of FOLDER instead, as bench/files.py has them

Prints, for each workload, the median time of a call at REV and here, the median ratio of neighbouring turns (above 1: faster here), the
seconds to the first result, and the peak memory of each process.
Each revision runs in a process of its own, from an empty cache, on the same cores with the same number of threads.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

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

    def ready(self):
        """The seconds until the first result."""
        loaded = self.ask("load")
        return loaded["build_s"] + loaded["first_s"]

    def time(self, seconds):
        """The median seconds of a call, of calls that take so long together."""
        return statistics.median(self.ask("time", seconds=seconds)["samples"])

    def memory(self):
        """The most memory that the process has had, in MiB; the processes that compiled for it are not in it."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def close(self):
        self.process.kill()
        self.process.wait()


class FileRevision(Revision):
    """A worker of bench/files.py that runs a case, (name, model, inputs), by ngraph from the folder `home`."""

    def __init__(self, home, case, threads, folder):
        _, model, inputs = case
        given = {**os.environ, "PYTHONPATH": home, "NGRAPH_CACHE": os.path.join(folder, "cache"), "NGRAPH_NUM_THREADS": str(threads)}
        command = [sys.executable, os.path.join(home, "bench", "files.py"), "--worker", "ngraph", model, inputs]
        self.process = subprocess.Popen(
            command, cwd=home, env=given, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def answer(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else sys.exit("the worker ended")

    def ready(self):
        return self.answer()["ready"]

    def time(self, seconds):
        print(seconds, file=self.process.stdin, flush=True)
        return self.answer()


def measured(kind, homes, workload, threads, rounds, seconds):
    """The median seconds of a call at each home, the median ratio of neighbouring turns, seconds to the first result, peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        sides = [kind(home, workload, threads, os.path.join(folder, str(k))) for k, home in enumerate(homes)]
        try:
            ready = [side.ready() for side in sides]
            turns = []
            for k in range(rounds):
                order = sides if k % 2 == 0 else sides[::-1]
                found = {side: side.time(seconds) for side in order}
                turns.append([found[side] for side in sides])
            memory = [side.memory() for side in sides]
        finally:
            for side in sides:
                side.close()
    before, here = (statistics.median(t[k] for t in turns) for k in (0, 1))
    return before, here, statistics.median(b / h for b, h in turns), ready, memory


def cases(asked):
    """What runs, by name, and the kind of worker that runs it."""
    if asked.files is None:
        sys.path.insert(0, PEERS)
        from peerbench.workloads import WORKLOADS

        return {name: name for name in asked.workloads or WORKLOADS}, Revision
    import files

    return {case[0]: case for case in files.cases(asked.files.resolve(), asked.workloads)}, FileRevision


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision", help="a revision of this repository, or a folder that holds a checkout")
    parser.add_argument("workloads", nargs="*", help="their names; all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9, help="turns of each side")
    parser.add_argument("--seconds", type=float, default=1.0, help="that a turn takes at least")
    parser.add_argument("--files", type=Path, metavar="FOLDER", help="models of bench/files.py; names are the beginnings of cases")
    asked = parser.parse_intermixed_args()
    every, kind = cases(asked)
    if not every:
        sys.exit("no case begins so")
    with tempfile.TemporaryDirectory() as folder:
        home = asked.revision
        if not os.path.isdir(home):
            home = folder
            archive = subprocess.run(["git", "archive", asked.revision, "ngraph", "bench"], cwd=ROOT, check=True, capture_output=True)
            subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        print(f"| workload | {asked.revision[:12]} ms | here ms | ratio | ready, before s | here s | memory, before MiB | here MiB |")
        print("| --- " * 8 + "|")
        ratios = []
        for name, workload in every.items():
            homes = os.path.abspath(home), ROOT
            before, here, ratio, ready, memory = measured(kind, homes, workload, asked.threads, asked.rounds, asked.seconds)
            ratios.append(ratio)
            more = f"{ready[0]:.2f} | {ready[1]:.2f} | {memory[0]:.1f} | {memory[1]:.1f}"
            print(f"| {name} | {before * 1e3:.4g} | {here * 1e3:.4g} | {ratio:.3f} | {more} |", flush=True)
    print(f"\ngeometric mean {statistics.geometric_mean(ratios):.3f}, lowest {min(ratios):.3f}")


if __name__ == "__main__":
    main()
