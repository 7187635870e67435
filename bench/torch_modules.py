"""The shared bench's modules through PyTorch: eager, channels-last, Inductor, Inductor freezing, ours, ours frozen, and our own API.

    python bench/torch_modules.py I2 T6 [--ways eager,ngraph] [--rounds 7] [--json FILE] [--caches FOLDER]
    python bench/torch_modules.py --table FILE …              the table of docs/performance.md, from such files
    python bench/torch_modules.py --calls                      one tensor and 200 parameters, beside eager's `x + 1` and `.detach().numpy()`
    python bench/torch_modules.py --steps 100,1000             an LSTM of so many steps: seconds until ready, and eager ÷ ours

A call is what a user calls, with tensors: a forward pass under no_grad, or a training step with forward, loss, backward and update. Each
way has a process of its own, so that no library waits for the threads of another. The ways take turns, a slice of calls each, while the
others sleep; a ratio is the median over the rounds of one way's time divided by another's in the same round. `ready` is the time of the
first call, from empty caches, and the processor seconds of that, with those of compilers that are started; with `--caches` these are kept,
so that the next run is ready at once. `peak` is the largest resident set. BENCH names the folder of the shared bench.
"""

import argparse
import contextlib
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BENCH = os.environ.get("BENCH", os.path.join(os.path.dirname(ROOT), "shared", "bench"))
THREADS = 2
SLICE = 0.15  # seconds of one way's calls in a round
WAYS = ("eager", "channels_last", "inductor", "freezing", "ngraph", "frozen", "step", "own")
OTHERS = WAYS[:4]  # those that ours is compared with

if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))
    caches = sys.argv[sys.argv.index("--caches") + 1] if "--caches" in sys.argv else tempfile.mkdtemp(prefix="torch_modules_")
    os.environ["TORCHINDUCTOR_CACHE_DIR"], os.environ["NGRAPH_CACHE"] = os.path.join(caches, "torch"), os.path.join(caches, "ngraph")
    sys.path[:0] = [ROOT, BENCH]

import torch  # noqa: E402  after the number of threads

import ngraph as ng  # noqa: E402


def loss_of(w):
    """The loss of a workload, of the module's output and the labels."""
    cross, binary = torch.nn.functional.cross_entropy, torch.nn.functional.binary_cross_entropy_with_logits
    return (lambda z, y: cross(z.reshape(-1, z.shape[-1]), y.reshape(-1))) if w.loss == "ce" else binary


def call_of(w, way):
    """Returns a function of the number of a call. Raises whatever a way cannot do."""
    if way == "own":
        from bench.peer_adapter import Adapter

        return Adapter([], THREADS).load(w).call
    from peerbench.adapters.adapter_torch import Net

    last = way == "channels_last"
    g = w.graph()
    if last and not any(n.op == "conv" for n in g.nodes):
        raise LookupError("no images")
    module = Net(w, last)
    data = []
    for feeds, y in w.batches(g):
        given = {k: torch.as_tensor(a) for k, a in feeds.items()}
        if last:
            given = {k: t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t for k, t in given.items()}
        data.append((given, None if y is None else torch.as_tensor(y)))
    options = {"freeze": True} if way == "frozen" else None
    kinds = {"inductor": {}, "freezing": {}, "ngraph": {"backend": ng.torch.backend}, "frozen": {"backend": ng.torch.backend}}
    compiled = None if way not in kinds else lambda f: torch.compile(f, options=options, **kinds[way])
    if w.kind != "train":
        if way == "step" or way == "freezing" and g.state:
            raise LookupError("no training, or state")
        forward = compiled(module.eval()) if compiled else module.eval()

        def infer(i):
            with torch.no_grad():
                return forward(**data[i % len(data)][0])

        return infer
    if way in ("freezing", "frozen"):
        raise LookupError("gradients")
    module.train()
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=w.lr, momentum=w.momentum)
    loss = loss_of(w)
    if way == "step":
        step = ng.torch.compile_step(lambda feeds, y: loss(module(**feeds), y), None, optimizer)
        return lambda i: step(*data[i % len(data)]).item()
    whole, update = (lambda feeds, y: loss(module(**feeds), y)), optimizer.step
    if compiled:
        whole, update = compiled(whole), compiled(lambda: optimizer.step())

    def train(i):
        feeds, y = data[i % len(data)]
        optimizer.zero_grad(set_to_none=True)
        found = whole(feeds, y)
        found.backward()
        update()
        return found.item()

    return train


def processor():
    """Returns the processor seconds of this process, and of those that it started and that have ended."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


def first(w, way):
    """Returns the call, and the seconds and processor seconds of the first one with all that it compiles."""
    frozen = torch._inductor.config.patch(freezing=True) if way == "freezing" else contextlib.nullcontext()
    start, used = time.perf_counter(), processor()
    with frozen:
        call = call_of(w, way)
        call(0)
    return call, time.perf_counter() - start, processor() - used


def ratio(a, b):
    """Returns the median of one way's times divided by another's, round by round."""
    return statistics.median(x / y for x, y in zip(a, b, strict=True))


def slices(call, count, begin):
    """Returns the seconds of one of `count` calls."""
    start = time.perf_counter()
    for i in range(begin, begin + count):
        call(i)
    return (time.perf_counter() - start) / count


def compared(calls, rounds):
    """Returns the seconds of a call by way and round; the ways take turns."""
    counts = {}
    for way, call in calls.items():
        took = min(slices(call, 1, 1), slices(call, 1, 2))
        counts[way] = max(1, round(SLICE / max(took, 1e-6)))
    took = {way: list[float]() for way in calls}
    for n in range(rounds):
        for way, call in calls.items():
            took[way].append(slices(call, counts[way], 3 + n))
    return took


def serve(name, way):
    """Is the process of one way: says when it is ready, then the seconds of a call for each line of input, `count begin`."""
    from peerbench.workloads import WORKLOADS

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    w = WORKLOADS[name]
    w.params_cache = w.graph().init()
    try:
        call, seconds, used = first(w, way)
    except LookupError:
        return
    print(json.dumps({"ready": seconds, "processor": used}), file=answers, flush=True)
    for line in sys.stdin:
        count, begin = (int(n) for n in line.split())
        print(json.dumps(slices(call, count, begin)), file=answers, flush=True)
    print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024), file=answers, flush=True)


class Way:
    """The process of one way, once it is ready. Raises LookupError where there is no such way."""

    def __init__(self, name, way):
        command = [sys.executable, os.path.abspath(__file__), name, "--ways", way, "--serve", "--caches", caches]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.about = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise LookupError(f"ended with {self.process.wait()}")
        return json.loads(line)

    def took(self, count, begin):
        print(count, begin, file=self.process.stdin, flush=True)
        return self.answer()

    def peak(self):
        self.process.stdin.close()
        found = self.answer()
        self.process.wait()
        return found


def measured(name, ways, rounds):
    """Returns a row: by way milliseconds, seconds until ready, and MiB; and the best of the others divided by ours."""
    processes = {}
    for way in ways:
        try:
            processes[way] = Way(name, way)
        except LookupError as error:
            print(f"{name} {way}: {error}", file=sys.stderr)
    counts = {}
    for way, process in processes.items():
        took = min(process.took(1, 1), process.took(1, 2))
        counts[way] = max(1, round(SLICE / max(took, 1e-6)))
    took = {way: [] for way in processes}
    for n in range(rounds):
        for way, process in processes.items():
            took[way].append(process.took(counts[way], 3 + n))
    row = {
        "name": name,
        "took": took,
        "ready": {k: p.about for k, p in processes.items()},
        "peak": {k: p.peak() for k, p in processes.items()},
    }
    return row | {"ms": {k: 1e3 * statistics.median(v) for k, v in took.items()}, "ratios": ratios(took)}


def ratios(took):
    """Returns what is compared: the best of the others divided by ours, and ours divided by our own API."""
    found = {}
    for ours in ("ngraph", "frozen", "step"):
        others = [took[k] for k in OTHERS if k in took and (k != "freezing" or ours == "frozen")]
        if ours in took and others:
            found[ours] = ratio([min(each) for each in zip(*others, strict=True)], took[ours])
        if ours in took and "own" in took:
            found[f"{ours}/own"] = ratio(took[ours], took["own"])
    return found


def show(row):
    """Prints a row."""
    for k, ms in row["ms"].items():
        about, peak = row["ready"][k], row["peak"][k]
        ready = f"ready {about['ready']:6.1f} s ({about['processor']:6.1f} s processor)"
        print(f"{row['name']:5} {k:13} {ms:10.4g} ms  {ready}  peak {peak:6.0f} MiB")
    print("     ", "  ".join(f"{k} {v:.2f}" for k, v in row["ratios"].items()), flush=True)


def mean(numbers):
    """Returns the geometric mean."""
    return math.exp(statistics.mean([math.log(n) for n in numbers])) if numbers else math.nan


def table(files):
    """Prints the rows of files as a table in Markdown, with geometric means of inference and of training."""
    rows = {}
    for name in files:
        with open(name) as file:
            rows |= {row["name"]: row for row in json.load(file)}
    ways = [way for way in WAYS if any(way in row["ms"] for row in rows.values())]
    kinds = ["ngraph", "frozen", "step", "ngraph/own", "frozen/own", "step/own"]
    print("| | " + " | ".join([f"{way}, ms" for way in ways] + [f"÷ {k}" if "/" not in k else k.replace("/", " ÷ ") for k in kinds]) + " |")
    print("| --- " * (1 + len(ways) + len(kinds)) + "|")
    for name in sorted(rows):
        row = rows[name]
        cells = [f"{row['ms'][way]:.4g}" if way in row["ms"] else "" for way in ways]
        cells += [f"{row['ratios'][k]:.2f}" if k in row["ratios"] else "" for k in kinds]
        print(f"| {name} | " + " | ".join(cells) + " |")
    for kind, what in (("I", "inference"), ("T", "training")):
        each = {k: [row["ratios"][k] for name, row in rows.items() if name.startswith(kind) and k in row["ratios"]] for k in kinds}
        print(f"\n{what}: " + ", ".join(f"{k} {mean(v):.2f}" for k, v in each.items() if v))


def calls():
    """Prints what a call costs above its kernels."""
    x = torch.ones(8)
    one = torch.compile(lambda x: x + 1, backend=ng.torch.backend)
    many = [torch.nn.Parameter(torch.ones(4)) for _ in range(200)]
    total = torch.compile(lambda x, ps: x + ps[0] + ps[199], backend=ng.torch.backend)
    with torch.no_grad():
        pairs = {
            "one tensor ÷ eager x + 1": (lambda i: one(x), lambda i: x + 1),
            "200 parameters ÷ 200 detach().numpy()": (lambda i: total(x[:4], many), lambda i: [p.detach().numpy() for p in many]),
        }
        for what, (ours, theirs) in pairs.items():
            took = compared({"ours": ours, "theirs": theirs}, 15)
            print(f"{what}, with Dynamo's guards: {ratio(took['ours'], took['theirs']):.2f}")
        graph = ng.torch.report().functions[0].graphs[0].made
        took = compared({"ours": lambda i: graph([x]), "theirs": lambda i: x + 1}, 15)
        print(f"our callable alone ÷ eager x + 1: {ratio(took['ours'], took['theirs']):.2f}")


def lstm(lengths):
    """Prints the seconds until ready, and eager divided by ours, for an LSTM of so many steps."""
    for n in lengths:
        torch._dynamo.reset()
        model, x = torch.nn.LSTM(64, 128, batch_first=True), torch.randn(8, n, 64)
        compiled = torch.compile(model, backend=ng.torch.backend)

        def train(f, x=x, model=model):
            model.zero_grad(set_to_none=True)
            f(x)[0].square().mean().backward()

        start = time.perf_counter()
        train(compiled)
        ready = time.perf_counter() - start
        took = compared({"eager": lambda i, m=model: train(m), "ours": lambda i, c=compiled: train(c)}, 5)
        print(f"LSTM of {n} steps, training: ready {ready:.2f} s, eager ÷ ours {ratio(took['eager'], took['ours']):.2f}", flush=True)


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("names", nargs="*")
    asked.add_argument("--ways", default=",".join(WAYS))
    asked.add_argument("--rounds", type=int, default=7)
    asked.add_argument("--json")
    asked.add_argument("--caches", help="a folder that is kept")
    asked.add_argument("--table", nargs="+", help="files of --json")
    asked.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked.add_argument("--calls", action="store_true")
    asked.add_argument("--steps")
    given = asked.parse_args()
    ways = given.ways.split(",")
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    if given.serve:
        serve(given.names[0], ways[0])
        return
    if given.table:
        table(given.table)
    if given.calls:
        calls()
    if given.steps:
        lstm([int(n) for n in given.steps.split(",")])
    rows = []
    for name in given.names:
        rows.append(measured(name, ways, given.rounds))
        show(rows[-1])
    if given.json:
        with open(given.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
