"""A model of the thread pool's protocol, as Python.

The functions of `ngraph.runtime.host.pool` that access memory shared by threads stand here as generators of the same names, which yield
the same operations in the same order (test_pool_model.py compares the two lists): (kind, place, ordering, values). Time is abstracted away:
a worker without a job spins, or sleeps at once, as the scenario says. interleavings.py searches all interleavings of the threads.
"""

from typing import Any, NamedTuple

FIELDS = tuple("fn args items grain grains ways scratch stride back".split())  # of a job, in the order in which they are stored
SHUT, FULL = (-1, 0), (1 << 31) - 1  # a counter is (generation of its job, ranges taken)
GENERATIONS = 1 << 32
PROTOCOL = ("work", "worker", "wake", "stop", "stopped", "fork", "member", "run")


class Job(NamedTuple):
    """A kernel: work items, `grain` of them in a range, on at most `ways` threads; a long one wakes workers, and may be interrupted."""

    fn: int  # tells jobs apart
    items: int = 2
    ways: int = 2
    grain: int = 1
    long: int = 0
    back: int = 0  # 2: the last work items come first
    args: int = 0
    scratch: int = 0
    stride: int = 1

    @property
    def grains(self):
        return -(-self.items // self.grain)


class Scenario(NamedTuple):
    """Programs, each a number of threads and its jobs, and the script of each caller. Thread 0 is the first caller, then come the workers.

    A program that a team runs also has the numbers of the team's other threads, which are the last ones of all.

    Steps of a script are ("start", thread), ("run", program), ("end",), which ends the workers if no program is running, and operations.
    """

    programs: tuple[tuple[Any, ...], ...]
    scripts: tuple[tuple[tuple, ...], ...]
    workers: int = 1
    idle: tuple[str, ...] = ("spin",)  # what a worker without a job may do: spin, sleep
    spurious: int = 0  # wake-ups without a cause that a path may have
    interrupts: bool = False  # whether a signal handler may raise
    generation: int = 0
    counter: tuple[int, int] = SHUT  # before its first job
    helpers: int = 0  # threads of a team, besides its caller


# ---- the protocol ---------------------------------------------------------------------------------------------------


def work(generation, me, caller):
    job = ()
    for name in FIELDS:
        job += ((yield "load", name, "monotonic"),)
    fn, args, items, grain, grains, ways, scratch, stride, back = job
    yield "fence", None, "acquire"
    done = code = k = 0
    while me < ways and k < ways:
        share = (me + k) % ways
        low, high = share * grains // ways, (share + 1) * grains // ways
        tag, taken = yield "load", ("slots", share), "acquire"
        if tag != generation:
            break
        if low + taken >= high:
            k += 1
            continue
        if not (yield "cmpxchg", ("slots", share), "acq_rel acquire", (tag, taken), (tag, taken + 1)):
            continue
        first = grain * (high - taken - 1 if back == 2 else low + taken)
        yield "begin", fn, None, args, first, min(first + grain, items), scratch + me * stride
        yield "finish", fn, None, first, min(first + grain, items), scratch + me * stride
        done += 1
        if caller and (yield "interrupt", None, None):
            for k in range(ways):
                _, taken = yield "xchg", ("slots", k), "acq_rel", (generation, FULL)
                done += max(0, (k + 1) * grains // ways - k * grains // ways - taken)
            code = 1
            break
    if done:
        yield "add", "finished", "acq_rel", done
    return code


def worker(me):
    last = yield "load", "generation", "acquire"
    if (yield "load", "stop", "monotonic"):
        return
    while True:
        generation = yield "load", "generation", "acquire"
        if generation != last:
            if (yield "load", "stop", "monotonic"):
                return
            if not (yield "load", "lent", "monotonic"):
                yield from work(generation, me, False)
            last = generation
            continue
        yield "load", "active", "monotonic"
        if (yield "idle", None, None) == "sleep":
            yield "add", "sleepers", "seq_cst", 1
            yield "wait", "generation", None, last
            yield "sub", "sleepers", "seq_cst", 1


def wake():
    if (yield "load", "sleepers", "seq_cst"):
        yield "wake", "generation", None, 1 << 20


def stop():
    if not (yield "cmpxchg", "lock", "acq_rel monotonic", 0, 1):
        return 0
    yield "store", "stop", "monotonic", 1
    yield "add", "generation", "seq_cst", 1
    yield from wake()
    return 1


def stopped():
    yield "store", "stop", "monotonic", 0
    yield "store", "lock", "release", 0


def fork(job, ways):
    yield "fence", None, "release"
    for name in FIELDS:
        yield "store", name, "monotonic", ways if name == "ways" else getattr(job, name)
    yield "store", "finished", "monotonic", 0
    generation = yield "load", "generation", "monotonic"
    generation = (generation + 1) % GENERATIONS
    for k in range(ways):
        yield "store", ("slots", k), "release", (generation, 0)
    yield "xchg", "generation", "seq_cst", generation
    lent = yield "load", "lent", "monotonic"
    if job.long and not lent:
        yield from wake()
    code = yield from work(generation, 0, bool(job.long))
    while (yield "load", "finished", "acquire") != job.grains:
        pass
    for k in range(ways):
        yield "store", ("slots", k), "monotonic", SHUT
    return code


def member(me, *program):
    if me == 0:
        code = yield from walk(*program)
        yield "store", "lent", "release", 0
        return code
    job = yield "load", "generation", "acquire"
    while True:
        yield from work(job, me, False)
        while (generation := (yield "load", "generation", "acquire")) == job:
            if not (yield "load", "lent", "acquire"):
                return None
        job = generation


def parallel(others, threads, jobs):
    """What the library does that a team belongs to."""
    for k in others:
        yield "start", k, None
    code = yield from member(0, threads, jobs)
    for k in others:
        yield "join", k, None
    return code


def run(threads, jobs, others=()):
    if threads > 1 and (yield "cmpxchg", "lock", "acq_rel monotonic", 0, 1):
        if others:
            yield "store", "lent", "monotonic", 1
            code = yield from parallel(others, threads, jobs)
        else:
            yield "store", "active", "seq_cst", 1
            yield from wake()
            code = yield from walk(threads, jobs)
            yield "store", "active", "monotonic", 0
        yield "store", "lock", "release", 0
        return code
    return (yield from walk(1, jobs))


def walk(threads, jobs):
    for job in jobs:
        ways = min(job.ways, threads)
        if ways > 1 and job.items > job.grain:
            if (yield from fork(job, ways)):
                return 1
        else:
            yield "begin", job.fn, None, job.args, 0, job.items, job.scratch
            yield "finish", job.fn, None, 0, job.items, job.scratch
    return 0


def script(scenario, steps):
    results = ()
    for step in steps:
        if step[0] == "run":
            program = scenario.programs[step[1]]
            code = yield from run(*program)
            yield "returned", program[1], None, code
        elif step[0] == "end":
            if (yield from stop()):
                for k in range(1, scenario.workers + 1):
                    yield "join", k, None
                yield from stopped()
        else:
            results += ((yield (*step, None, None)[: max(3, len(step))]),)
    return results
