"""The shared bench's modules through PyTorch: eager, channels-last, Inductor, Inductor freezing, ours, ours frozen, and our own API.

    python bench/torch_modules.py I2 T6 [--ways eager,ngraph] [--rounds 7] [--json FILE]     whole calls, paired in one process
    python bench/torch_modules.py I2 --memory                  the peak resident set of each way, in a process of its own
    python bench/torch_modules.py --calls                      one tensor and 200 parameters, beside eager's `x + 1` and `.detach().numpy()`
    python bench/torch_modules.py --steps 100,1000             an LSTM of so many steps: seconds until ready, and eager ÷ ours

A call is what a user calls, with tensors: a forward pass under no_grad, or a training step with forward, loss, backward and update. The
ways take turns, a slice of calls each; a ratio is the median over the rounds of one way's time divided by another's in the same round.
`ready` is the time of the first call, from empty caches. BENCH names the folder of the shared bench. All ways share one process, and so
the threads that each library keeps waiting: compare eager's milliseconds with a run of `--ways eager` alone before believing a ratio.
"""

import argparse
import contextlib
import json
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
    caches = tempfile.mkdtemp(prefix="torch_modules_")
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


def first(w, way):
    """Returns the call, and the seconds of the first one with all that it compiles."""
    frozen = torch._inductor.config.patch(freezing=True) if way == "freezing" else contextlib.nullcontext()
    start = time.perf_counter()
    with frozen:
        call = call_of(w, way)
        call(0)
    return call, time.perf_counter() - start


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


def measured(name, ways, rounds):
    """Returns a row: milliseconds and seconds until ready by way, and the best of the others divided by ours."""
    from peerbench.workloads import WORKLOADS

    w = WORKLOADS[name]
    w.params_cache = w.graph().init()
    calls, ready = {}, {}
    for way in ways:
        try:
            calls[way], ready[way] = first(w, way)
        except LookupError:
            continue
        except Exception as error:
            print(f"{name} {way}: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)
    took = compared(calls, rounds)
    row = {"name": name, "ms": {k: 1e3 * statistics.median(v) for k, v in took.items()}, "ready": ready, "ratios": {}}
    others = [took[k] for k in OTHERS if k in took]
    for ours in ("ngraph", "frozen", "step"):
        if ours in took and others:
            best = [min(each) for each in zip(*others, strict=True)]
            row["ratios"][ours] = ratio(best, took[ours])
        if ours in took and "own" in took:
            row["ratios"][f"{ours}/own"] = ratio(took[ours], took["own"])
    return row


def show(row):
    """Prints a row."""
    print(row["name"], " ".join(f"{k} {v:.3f} ms (ready {row['ready'][k]:.1f} s)" for k, v in row["ms"].items()))
    print("   ", " ".join(f"{k} {v:.2f}" for k, v in row["ratios"].items()), flush=True)


def memory(name, ways):
    """Prints the peak resident set of each way, in a process of its own, in MiB."""
    for way in ways:
        command = [sys.executable, os.path.abspath(__file__), name, "--ways", way, "--rounds", "1", "--peak"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        print(name, way, (ran.stdout.splitlines() or ["failed"])[-1], flush=True)


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
    asked.add_argument("--memory", action="store_true")
    asked.add_argument("--peak", action="store_true", help=argparse.SUPPRESS)
    asked.add_argument("--calls", action="store_true")
    asked.add_argument("--steps")
    given = asked.parse_args()
    ways = given.ways.split(",")
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    if given.calls:
        calls()
    if given.steps:
        lstm([int(n) for n in given.steps.split(",")])
    rows = []
    for name in given.names:
        if given.memory:
            memory(name, ways)
            continue
        rows.append(measured(name, ways, given.rounds))
        show(rows[-1])
    if given.peak:
        print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    if given.json:
        with open(given.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
