"""An explicit-state search over all interleavings of the threads of `pool_model`, depth first, with a set of the states visited.

Between two operations a thread runs without interruption; at each one, every thread is tried. The system's futex calls are operations, too:
wait compares and sleeps in one step, wake wakes any choice of the sleepers, and a sleeper may also wake without a cause.

Memory is that of C++ without out-of-thin-air values, as an operational model with timestamps and views (Kang et al., "A promising semantics
for relaxed-memory concurrency", POPL 2017, without promises): a location is the list of its stores in modification order, and the view of a
thread has, for each location, the position of the oldest store that the thread may still read. Sequentially consistent operations are
ordered on each location only, which is weaker than C++, so that no execution is missed.
"""

from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

import pool_model
from pool_model import FIELDS, GENERATIONS

UNTOUCHED, RUNNING, DONE, DROPPED = range(4)  # states of a work item


class Broken(AssertionError):
    """The protocol violates a property."""


# ---- memory ---------------------------------------------------------------------------------------------------------


class Thread(NamedTuple):
    local: int  # the number of its local state; -1: not started
    view: tuple[int, ...]
    acquired: tuple[int, ...]  # what the view becomes at an acquire fence
    released: tuple[int, ...]  # what the view was at the last release fence


class Store(NamedTuple):
    value: Any
    view: tuple[int, ...]  # what a thread that acquires it comes to know
    rmw: bool = False  # nothing may come between it and the store before it


class State(NamedTuple):
    threads: tuple[Thread, ...]
    stores: tuple[tuple[Store, ...], ...]  # of each location, in modification order
    ordered: tuple[int, ...]  # for each location the newest store that a sequentially consistent operation has read or written
    spurious: int  # wake-ups without a cause that may still come


def changed(row, k, x):
    return (*row[:k], x, *row[k + 1 :])


def joined(a, b):
    return a if a == b else tuple(map(max, a, b))


def learnt(thread, view):
    """The thread after what was done with this view has come to happen before what it does next."""
    return thread._replace(view=joined(thread.view, view), acquired=joined(thread.acquired, view))


def accessed(state, t, place, position, order, thread):
    """The state after this thread has read or written the store at a position."""
    thread = learnt(thread, changed(thread.view, place, position))
    ordered = changed(state.ordered, place, max(position, state.ordered[place])) if order == "seq_cst" else state.ordered
    return state._replace(threads=changed(state.threads, t, thread), ordered=ordered)


def read(state, t, place, position, order):
    thread, seen = state.threads[t], state.stores[place][position].view
    acquires = order in ("acquire", "acq_rel", "seq_cst")
    thread = learnt(thread, seen) if acquires else thread._replace(acquired=joined(thread.acquired, seen))
    return accessed(state, t, place, position, order, thread)


def write(state, t, place, position, value, order, rmw=False):
    """The state after a store that comes at a position; what stands there moves up. A read-modify-write continues a release sequence."""
    if position < len(state.stores[place]):
        state = rewritten(state, state.stores, moved, place, position)
    state = accessed(state, t, place, position, order, state.threads[t])
    thread, row = state.threads[t], state.stores[place]
    releases = order in ("release", "acq_rel", "seq_cst")
    view = thread.view if releases else changed(thread.released, place, position)
    view = joined(view, row[position - 1].view) if rmw else view
    row = (*row[:position], Store(value, view, rmw), *row[position:])
    return state._replace(stores=changed(state.stores, place, row))


@lru_cache(1 << 18)
def moved(view, place, position):
    """A view after a store has been put in front of the one at a position."""
    return changed(view, place, view[place] + (view[place] >= position))


@lru_cache(1 << 18)
def dropped(view, oldest):
    """A view after the stores before the oldest of each location have been dropped."""
    return tuple([max(0, x - first) for x, first in zip(view, oldest, strict=True)])


@lru_cache(1 << 18)
def renumbered(row, new, *given):
    return tuple([Store(x, new(view, *given), rmw) for x, view, rmw in row])


def rewritten(state, stores, new, *given):
    """The state with these stores, and with a function applied to every view."""
    threads = tuple([Thread(local, new(a, *given), new(b, *given), new(c, *given)) for local, a, b, c in state.threads])
    return State(threads, tuple([renumbered(row, new, *given) for row in stores]), new(state.ordered, *given), state.spurious)


def collected(state):
    """The state without the stores that no thread can read any more."""
    oldest = tuple(map(min, *(x.view for x in state.threads if x.local >= 0), state.threads[0].view))
    if not any(oldest):
        return state
    return rewritten(state, [row[first:] for row, first in zip(state.stores, oldest, strict=True)], dropped, oldest)


# ---- the search -----------------------------------------------------------------------------------------------------


class Model:
    """The threads and memory of a scenario. A thread's local state is what its generators' frames hold; it is found again by replay."""

    def __init__(self, scenario, functions):
        self.scenario, self.functions = scenario, functions
        self.jobs = [job for _, jobs, *_ in scenario.programs for job in jobs]
        values = {name: {getattr(job, name) for job in self.jobs} for name in FIELDS}
        self.constants = {name: min(vs) for name, vs in values.items() if len(vs) == 1 and name != "fn"}  # cannot be read stale
        self.constants |= {} if scenario.helpers else {"lent": 0}
        first = {"generation": scenario.generation} | dict.fromkeys(["finished", "sleepers", "lock", "active", "stop", "lent", *FIELDS], 0)
        first |= {("slots", k): scenario.counter for k in range(max(scenario.workers, scenario.helpers) + 1)}
        first |= {(job.fn, k): UNTOUCHED for job in self.jobs for k in range(job.items)}
        self.first = [x for name, x in first.items() if name not in self.constants]
        self.places = {name: k for k, name in enumerate(x for x in first if x not in self.constants)}
        self.threads = [("script", scenario, scenario.scripts[0]), *(("worker", k + 1) for k in range(scenario.workers))]
        self.threads += [("script", scenario, steps) for steps in scenario.scripts[1:]]
        self.threads += [("member", k + 1) for k in range(scenario.helpers)]
        self.numbers, self.keys, self.ops, self.histories, self.known = {}, [], [], [], {}  # of local states

    def local(self, *history):
        """The number of the local state of a thread whose operations have returned these values."""
        key = self.replayed(*history)
        number = self.numbers.setdefault(key, len(self.ops))
        if number == len(self.ops):
            self.keys.append(key)
            self.ops.append(key[-1])
            self.histories.append(history)
        return number

    def resume(self, local, value):
        if (local, value) not in self.known:
            self.known[local, value] = self.local(*self.histories[local], value)
        return self.known[local, value]

    def replayed(self, t, *values):
        """What the frames of a thread hold, and its operation."""
        name, *given = self.threads[t]
        generator, values = self.functions[name](*given), list(values)
        try:
            op = next(generator)
            while values or op[1] in self.constants:
                if op[1] in self.constants:
                    assert op[0] == "load" or op[3] == self.constants[op[1]]
                    op = generator.send(self.constants[op[1]])
                elif values[0] == "asleep":
                    op = (values.pop(0), *op[1:])
                else:
                    op = generator.send(values.pop(0))
        except StopIteration as end:
            return (str(t),), ("end", end.value)
        frames, inner = [], generator
        while inner is not None:
            frames.append((inner.gi_code.co_name, inner.gi_frame.f_lasti, tuple(inner.gi_frame.f_locals.items())))
            inner = inner.gi_yieldfrom
        return (*frames, op)


def steps(model, state):
    """Each next state, with the thread that goes on; -1 where a sleeper wakes without a cause."""
    for t, thread in enumerate(state.threads):
        if thread.local >= 0:
            if state.spurious and model.ops[thread.local][0] == "asleep":
                yield -1, collected(resumed(model, state._replace(spurious=state.spurious - 1), t))
            yield from ((t, collected(after)) for after in merged(model, state, t, {thread.local}))


def merged(model, state, t, passed):
    """The states after a thread's next operation, and after those that need no interleaving of their own (partial-order reduction).

    A store that is not sequentially consistent may as well be done right after the operation before it, since other threads may still read
    an older store; a load right before the operation after it, since what it reads stays. A fence concerns its own thread alone.
    """
    op = model.ops[state.threads[t].local]
    for after in outcomes(model, state, t, op):
        local = after.threads[t].local
        following = model.ops[local]
        early = following[0] in ("fence", "idle", "interrupt", "begin") or (following[0] == "store" and following[2] != "seq_cst")
        late = op[0] == "finish" or (op[0] == "load" and op[2] != "seq_cst")
        late = late and following[0] in ("load", "store", "add", "sub", "xchg", "cmpxchg")
        yield from merged(model, after, t, passed | {local}) if local not in passed and (early or late) else [after]


def resumed(model, state, t, value=0, thread=None):
    """The state in which a thread's operation has returned a value."""
    thread = thread or state.threads[t]
    return state._replace(threads=changed(state.threads, t, thread._replace(local=model.resume(thread.local, value))))


def accesses(model, state, t, kind, name, orders, *values):
    """The states that an access of shared memory may lead to: it reads any store that its thread may read, or writes right behind it."""
    order, *failed = orders.split()
    place = model.places[name]
    row = state.stores[place]
    for position in range(max(state.threads[t].view[place], state.ordered[place] if order == "seq_cst" else 0), len(row)):
        old = row[position].value
        if kind == "load" or (kind == "cmpxchg" and old != values[0]):
            yield resumed(model, read(state, t, place, position, *failed or [order]), t, old if kind == "load" else 0)
        elif position + 1 == len(row) or not row[position + 1].rmw:
            after = state if kind == "store" else read(state, t, place, position, order)
            new = (old + values[0]) % GENERATIONS if kind == "add" else old - values[0] if kind == "sub" else values[-1]
            after = write(after, t, place, position + 1, new, order, kind != "store")
            yield resumed(model, after, t, {"store": 0, "cmpxchg": 1}.get(kind, old))


def outcomes(model, state, t, op):
    """The states that a thread's next operation may lead to."""
    thread, threads = state.threads[t], state.threads
    match op:
        case ("load" | "store" | "add" | "sub" | "xchg" | "cmpxchg", *_):
            yield from accesses(model, state, t, *op)
        case ("fence", _, "acquire"):
            yield resumed(model, state, t, 0, thread._replace(view=joined(thread.view, thread.acquired)))
        case ("fence", _, "release"):
            yield resumed(model, state, t, 0, thread._replace(released=thread.view))
        case ("idle" | "interrupt" as kind, *_):
            choices = model.scenario.idle if kind == "idle" else range(1 + model.scenario.interrupts)
            yield from (resumed(model, state, t, choice) for choice in choices)
        case ("wait", name, _, expected):  # the system compares and sleeps at once, behind a barrier of its own: with the newest value
            row = state.stores[model.places[name]]
            after = read(state, t, model.places[name], len(row) - 1, "monotonic")
            yield resumed(model, after, t, "asleep" if row[-1].value == expected else 0)
        case ("wake", _, _, most):
            asleep = [u for u, other in enumerate(threads) if other.local >= 0 and model.ops[other.local][0] == "asleep"]
            for woken in combinations(asleep, min(most, len(asleep))):
                after = resumed(model, state, t)
                for u in woken:
                    after = resumed(model, after, u)
                yield after
        case ("start", u, *_):
            began = Thread(model.local(u), thread.view, thread.view, (0,) * len(thread.view))
            yield resumed(model, state._replace(threads=changed(threads, u, began)), t)
        case ("join", u, *_):
            if threads[u].local < 0 or model.ops[threads[u].local][0] == "end":
                yield resumed(model, state, t, 0, learnt(thread, threads[u].view))
        case ("begin", fn, _, args, first, last, scratch):
            jobs = next(jobs for _, jobs, *_ in model.scenario.programs if fn in [job.fn for job in jobs])
            for job in jobs[: [job.fn for job in jobs].index(fn)]:
                state = advanced(model, state, t, job.fn, range(job.items), {DONE: DONE}, "is not done when the next job begins")
            job = next(job for job in jobs if job.fn == fn)
            others = [model.ops[u.local] for u in threads if u.local >= 0]
            if any(op[:2] == ("finish", fn) and op[-1] == scratch for op in others):
                raise Broken(f"two threads use one scratch in job {fn}")
            if args != job.args or (scratch - job.scratch) % job.stride or not 0 <= first < last <= job.items:
                raise Broken(f"a range of job {fn} is given what is not its own: {op}")
            late = "runs twice, or after its caller has returned"
            yield resumed(model, advanced(model, state, t, fn, range(first, last), {UNTOUCHED: RUNNING}, late), t)
        case ("finish", fn, _, first, last, _):
            yield resumed(model, advanced(model, state, t, fn, range(first, last), {RUNNING: DONE}, "does not run"), t)
        case ("returned", jobs, _, code):
            for job in jobs:
                to = {DONE: DONE} | ({UNTOUCHED: DROPPED} if code else {})
                state = advanced(model, state, t, job.fn, range(job.items), to, "is not done when its caller returns")
            yield resumed(model, state, t)


def advanced(model, state, t, fn, items, to, message):
    """The state after work items have changed theirs by this table, which must know it, and the thread too (else there is a data race)."""
    for item in items:
        place = model.places[fn, item]
        position, value = len(state.stores[place]), state.stores[place][-1].value
        if value not in to:
            raise Broken(f"work item {item} of job {fn} {message}")
        if state.threads[t].view[place] + 1 < position:
            raise Broken(f"thread {t} does not see what work item {item} of job {fn} wrote")
        state = write(state, t, place, position, to[value], "plain") if to[value] != value else state
    return state


def explore(scenario, functions=None, most=100_000):
    """How many states there are, and what the callers can return. Raises `Broken` with a path to a state where a property does not hold."""
    model = Model(scenario, functions or vars(pool_model))
    zero = (0,) * len(model.first)
    threads = [Thread(model.local(0) if t == 0 else -1, zero, zero, zero) for t in range(len(model.threads))]
    first = State(tuple(threads), tuple((Store(x, zero),) for x in model.first), zero, scenario.spurious)
    number, states, parents, sources, ends, stack = {first: 0}, [first], [0], [[]], [], [0]

    def path(k):
        lines = []
        while k:
            pairs = enumerate(zip(states[parents[k]].threads, states[k].threads, strict=True))
            lines += [f"thread {t}: {model.ops[old.local] if old.local >= 0 else 'starts'}" for t, (old, new) in pairs if old[0] != new[0]]
            k = parents[k]
        return "\n".join(reversed(lines))

    while stack:
        here = stack.pop()
        state = states[here]
        ops = [model.ops[thread.local] for thread in state.threads if thread.local >= 0]
        if all(op[0] == "end" for op in ops):
            ends.append(here)
        try:
            check_awake(model, state)
            for t, after in steps(model, state):
                there = number.setdefault(after, len(states))
                if there == len(states):
                    states.append(after)
                    parents.append(here)
                    sources.append([])
                    stack.append(there)
                if t >= 0:
                    sources[there].append(here)
        except Broken as broken:
            raise Broken(f"{broken}\n{path(here)}") from None
        assert len(states) <= most, "too many states"
    ending, stack = set(ends), list(ends)  # states from which an end can be reached, though no sleeper wakes without a cause
    while stack:
        new = set(sources[stack.pop()]) - ending
        ending |= new
        stack += new
    if stuck := sorted(set(range(len(states))) - ending):
        raise Broken(f"deadlock or lost wake-up\n{path(stuck[0])}")
    callers = [t for t, (name, *_) in enumerate(model.threads) if name == "script"]
    return len(states), {tuple(model.ops[states[k].threads[t].local][1] for t in callers) for k in ends}


def check_awake(model, state):
    """While a caller works at a long kernel that it has announced, no worker sleeps, unless a team has the kernel."""
    locals_ = [thread.local for thread in state.threads if thread.local >= 0]
    generation = state.stores[model.places["generation"]][-1].value
    asleep = any(model.ops[x][0] == "asleep" and model.ops[x][3] != generation for x in locals_)
    frames = [model.keys[x][:-1] for x in locals_ if all(frame[0] != "member" for frame in model.keys[x][:-1])]
    if asleep and any(frame[0] == "work" and dict(frame[2])["caller"] for held in frames for frame in held[-1:]):
        raise Broken("a worker sleeps through a long kernel")
