"""The thread pool's protocol: that its model is the generated code's, holds in all interleavings, and breaks where a mistake is put in."""

import ast
import inspect
import re

import pool_model
import pytest
from interleavings import Broken, explore
from pool_model import FIELDS, GENERATIONS, PROTOCOL, Job, Scenario

from ngraph.runtime.host import pool

TEXT = pool.WORK + pool.FORK + pool.WALK + pool.COPY
ALONE = ((("start", 1), ("run", 0), ("end",)),)
TWICE = ((("start", 1), ("run", 0), ("run", 1), ("end",)),)
CALLERS = ((("start", 1), ("start", 2), ("run", 0), ("join", 2), ("end",)), (("run", 1),))


def one(*jobs, threads=2):
    return ((threads, jobs),)


def two(first, second):
    return ((2, (first,)), (2, (second,)))


SCENARIOS = {
    "two short jobs, workers spin or sleep": Scenario(one(Job(1), Job(2)), ALONE, idle=("spin", "sleep")),
    "two short jobs, a spurious wake-up": Scenario(one(Job(1), Job(2)), ALONE, idle=("sleep",), spurious=1),
    "two long jobs wake workers": Scenario(one(Job(1, long=1), Job(2, 3, long=1)), ALONE, idle=("sleep",)),
    "the next job has more work items": Scenario(one(Job(1), Job(2, 3)), ALONE),
    "generations begin again at 0": Scenario(one(Job(1), Job(2, 3)), ALONE, generation=GENERATIONS - 2),
    "two callers": Scenario(two(Job(1), Job(2, 3)), CALLERS),
    "two callers of jobs alike": Scenario(two(Job(1), Job(2)), CALLERS),
    "a job is interrupted, and another runs": Scenario(two(Job(1, 3, long=1), Job(2, 3)), TWICE, interrupts=True),
    "workers end and start again": Scenario(
        two(Job(1, long=1), Job(2, long=1)),
        ((("start", 1), ("run", 0), ("end",), ("start", 1), ("run", 1), ("end",)),),
        idle=("sleep",),
    ),
    "workers are told to end while a program runs": Scenario(
        two(Job(1, long=1), Job(2)),
        ((("start", 1), ("start", 2), ("run", 0), ("join", 2), ("end",)), (("end",), ("run", 1))),
    ),
    "two workers sleep when all is over": Scenario(
        one(Job(1, 1)), ((("start", 1), ("start", 2), ("end",)),), workers=2, idle=("sleep",), spurious=1
    ),
    "a later worker's first counter": Scenario(
        ((2, (Job(1),)), (3, (Job(2, ways=3),))),
        ((("start", 2), ("run", 0), ("run", 1), ("end",)),),
        workers=2,
        generation=GENERATIONS - 1,
    ),
}
TEAM = "a team runs a program beside a worker"
SCENARIOS |= {
    TEAM: Scenario(((2, (Job(1), Job(2)), (2,)),), ((("start", 1), ("run", 0), ("end",)),), helpers=1),
    "a worker sleeps while a team runs": Scenario(((2, (Job(1, long=1),), (2,)),), ALONE, idle=("sleep",), helpers=1),
    "a team runs alone": Scenario(((2, (Job(1, 3), Job(2, 3)), (1,)),), ((("run", 0),),), workers=0, helpers=1),
    "a team runs, then a worker": Scenario(((2, (Job(1),), (2,)), (2, (Job(2),))), TWICE, helpers=1),
    "a worker runs, then a team": Scenario(((2, (Job(1),)), (2, (Job(2),), (2,))), TWICE, helpers=1),
    "a team is interrupted": Scenario(((2, (Job(1, 3, long=1),), (1,)),), ((("run", 0),),), workers=0, interrupts=True, helpers=1),
}
SCENARIOS |= {
    f"two programs' jobs differ in {name}": Scenario(two(Job(1), Job(2, **{name: value})), TWICE)
    for name, value in {"args": 1, "items": 3, "grain": 2, "ways": 3, "scratch": 1, "stride": 2, "back": 2}.items()
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_all_interleavings(name):
    """A work item runs once, in its own job, before its caller returns and sees it; no sleep is for good, no job's data read too late."""
    states, _ = explore(SCENARIOS[name])
    assert states > 100


# ---- the model is the generated code's ------------------------------------------------------------------------------


def operations_of_the_text(name):
    """The operations of a generated function on memory that threads share, as LLVM IR has them, and its calls."""
    body = re.search(rf"define [^@]*@{name}\(.*?\n}}", TEXT, re.S)[0]
    at = dict(re.findall(r"(%\w+) = ref %pool\.(\w+)", body))
    at |= dict.fromkeys(re.findall(r"(%\w+) = getelementptr i8, ptr %slots,", body), "slots")
    forms = (
        r"%\w+ = (?P<get>get) (?P<order>monotonic) \w+ %pool\.(?P<field>\w+)",
        r"(?P<put>put) (?P<order>monotonic) \w+ \S+, %pool\.(?P<field>\w+)",
        r"%\w+ = (?P<kind>load) atomic \w+, ptr (?P<at>%\w+) (?P<order>\w+),",
        r"(?P<kind>store) atomic \w+ \S+, ptr (?P<at>%\w+) (?P<order>\w+),",
        r"%\w+ = atomicrmw (?P<kind>\w+) ptr (?P<at>%\w+), \w+ \S+ (?P<order>\w+),",
        r"%\w+ = (?P<kind>cmpxchg) ptr (?P<at>%\w+), .* (?P<order>\w+ \w+),",
        r"(?P<kind>fence) (?P<order>\w+)",
        r"%\w+ = call i64 \(i64, \.\.\.\) %syscall\(i64 FUTEX, ptr (?P<at>%\w+), i64 (?P<futex>128|129), .*",
        r"(%\w+ = )?call \w+ @(?P<call>work|wake|walk|fork)\(.*",
        r"call void %(?P<call>parallel)\(ptr @member, .*",
        r"call void (?P<begin>%fn)\(.*",
        r"%\w+ = call i32 (?P<interrupt>@look)\(.*",
    )
    found = []
    for line in body.splitlines():
        if match := next(filter(None, (re.match(form, line.strip()) for form in forms)), None):
            parts = {k: v for k, v in match.groupdict().items() if v}
            named = {"get": "load", "put": "store", "128": "wait", "129": "wake", "%fn": "begin", "@look": "interrupt"}
            kind = next(named.get(v, v) for k, v in parts.items() if k not in ("order", "field", "at"))
            found.append((kind, parts.get("field", at.get(parts.get("at"))), parts.get("order")))
        else:  # any other access of shared memory is plain: of what was written before there were threads, or of `used`, below the lock
            assert (
                not re.search(r"atomic|cmpxchg|fence|@\w+\(|ret\b.*@", line.split(";")[0])
                or "define" in line
                or re.search(r"@(clock|copy|compute)\b", line)
            ), line
            for field in re.findall(r"(?:get|put) \w+ .*%pool\.(\w+)", line):
                assert field in ("spins", "syscall", "save", "restore", "clock", "signals", "parallel", "number", "size", "used"), line
    return found


def operations_of_the_model(name):
    found = []
    for node in ast.walk(ast.parse(inspect.getsource(getattr(pool_model, name)))):
        if isinstance(node, ast.YieldFrom):
            found.append((node.lineno, (node.value.func.id, None, None)))
        elif isinstance(node, ast.Yield):
            kind, place, order, *_ = node.value.elts
            if isinstance(place, ast.Tuple):  # a counter
                place = place.elts[0]
            if isinstance(place, ast.Name):  # a job, or each of its fields
                fields = FIELDS if kind.value in ("load", "store") else [None]
            else:
                fields = [place.value]
            if kind.value not in ("finish", "idle"):
                found += [(node.lineno, (kind.value, field, order.value)) for field in fields]
    return [operation for _, operation in sorted(found, key=lambda pair: pair[0])]


@pytest.mark.parametrize("name", PROTOCOL)
def test_the_generated_code_is_that_of_the_model(name):
    """The same operations on the same fields with the same orderings, in the same order; whatever else the code shares is constant."""
    assert operations_of_the_text(name) == operations_of_the_model(name)


def test_no_other_function_shares_memory():
    others = set(re.findall(r"define [^@]*@(\w+)\(", TEXT)) - set(PROTOCOL)
    assert others == {"clock", "look", "walk", "compute", "copy", "pauses"}
    for name in others:
        assert {kind for kind, *_ in operations_of_the_text(name)} <= {"begin", "interrupt", "fork"}


# ---- the model breaks where a mistake is put in ---------------------------------------------------------------------

LONG, SHORT, LONGER, OVER = list(SCENARIOS)[2], list(SCENARIOS)[0], list(SCENARIOS)[3], "two workers sleep when all is over"
ALIKE, CUT, TOLD = "two callers of jobs alike", "a job is interrupted, and another runs", "workers are told to end while a program runs"
RANGE = '        yield "begin", fn, None, args, first, min(first + grain, items), scratch + me * stride\n'
ANNOUNCE = '    yield "xchg", "generation", "seq_cst", generation\n'
LENT = '    lent = yield "load", "lent", "monotonic"\n'
ROUSE = LENT + "    if job.long and not lent:\n        yield from wake()\n"
STOP = '    yield "store", "stop", "monotonic", 1\n'
TELL = '    yield "add", "generation", "seq_cst", 1\n'
WAKE = "    yield from wake()\n"
RELEASE = '    yield "fence", None, "release"\n'
FINISHED = '        yield "add", "finished", "acq_rel", done\n'
CLAIM = '"cmpxchg", ("slots", share), "acq_rel acquire", (tag, taken), (tag, taken + 1)'
LOCK = '(yield "cmpxchg", "lock", "acq_rel monotonic", 0, 1)'
LOCKED = '((yield "cmpxchg", "lock", "acq_rel monotonic", 0, 1) in (0, 1))'

MUTANTS = {  # mistake: scenario, function, what it says instead of what
    "a long job wakes no worker": (LONG, "fork", ROUSE, ""),
    "a long job wakes workers before it is announced": (LONG, "fork", ANNOUNCE + ROUSE, ROUSE + ANNOUNCE),
    "nobody is woken to end": (OVER, "stop", WAKE, ""),
    "one worker is woken to end": (OVER, "wake", "1 << 20", "1"),
    "workers are woken before they are told to end": (OVER, "stop", TELL + WAKE, WAKE + TELL),
    "stop is stored last": (OVER, "stop", STOP + TELL + WAKE, TELL + WAKE + STOP),
    "a worker does not compare before it sleeps": (
        OVER,
        "worker",
        '            yield "wait", "generation", None, last\n',
        '            last = yield "load", "generation", "acquire"\n            yield "wait", "generation", None, last\n',
    ),
    "a worker that sleeps is not counted": (OVER, "worker", '"add", "sleepers", "seq_cst", 1', '"add", "sleepers", "seq_cst", 0'),
    "a worker is counted without an order": (OVER, "worker", '"add", "sleepers", "seq_cst"', '"add", "sleepers", "monotonic"'),
    "sleepers are read without an order": (OVER, "wake", "seq_cst", "monotonic"),
    "sleepers are counted by a load and a store": (
        OVER,
        "worker",
        '            yield "add", "sleepers", "seq_cst", 1\n',
        '            last = last, (yield "load", "sleepers", "seq_cst")\n'
        '            yield "store", "sleepers", "seq_cst", last[1] + 1\n            last = last[0]\n',
    ),
    "a worker that is woken does not look whether to end": (
        OVER,
        "worker",
        '            if (yield "load", "stop", "monotonic"):\n                return\n',
        "",
    ),
    "a worker that starts does not look whether to end": (
        OVER,
        "worker",
        '    if (yield "load", "stop", "monotonic"):\n        return\n',
        "",
    ),
    "a range is counted before it runs": (
        SHORT,
        "work",
        RANGE,
        '        yield "add", "finished", "acq_rel", 1\n        done -= 1\n' + RANGE,
    ),
    "ranges are counted by a load and a store": (
        LONGER,
        "work",
        FINISHED,
        '        done += yield "load", "finished", "acquire"\n        yield "store", "finished", "release", done\n',
    ),
    "what a range wrote is not released": (LONGER, "work", FINISHED, FINISHED.replace("acq_rel", "monotonic")),
    "what a range wrote is not acquired": (LONGER, "fork", '"finished", "acquire"', '"finished", "monotonic"'),
    "the caller does not wait": (LONGER, "fork", '    while (yield "load", "finished", "acquire") != job.grains:\n        pass\n', ""),
    "counters are not shut": (LONGER, "fork", '        yield "store", ("slots", k), "monotonic", SHUT\n', "        pass\n"),
    "fields and counters are read in any order": (LONGER, "work", '    yield "fence", None, "acquire"\n', ""),
    "counters are shut and fields stored in any order": (LONGER, "fork", RELEASE, ""),
    "the release fence is behind the counters, in the caller before": (
        "two callers",
        "fork",
        RELEASE,
        "",
        "    return code",
        RELEASE + "    return code",
    ),
    "a job is not released": (LONGER, "fork", '"xchg", "generation", "seq_cst"', '"xchg", "generation", "monotonic"'),
    "a job is not acquired": (
        LONGER,
        "worker",
        '        generation = yield "load", "generation", "acquire"',
        '        generation = yield "load", "generation", "monotonic"',
    ),
    "a range is taken by a load and a store": (
        LONGER,
        "work",
        f"not (yield {CLAIM})",
        '(yield "store", ("slots", share), "release", (tag, taken + 1))',
    ),
    "a counter's generation is not looked at": (LONGER, "work", "tag != generation", "False"),
    "dropped ranges are not counted": (CUT, "work", "done += max(0, (k + 1) * grains // ways - k * grains // ways - taken)", "pass"),
    "ranges that have begun are counted as dropped": (CUT, "work", "k * grains // ways - taken)", "k * grains // ways)"),
    "an interrupted caller does not take what is left": (
        CUT,
        "work",
        '"xchg", ("slots", k), "acq_rel", (generation, FULL)',
        '"load", ("slots", k), "acquire"',
    ),
    "both callers have the pool at once": (ALIKE, "run", LOCK, LOCKED),
    "the lock is not released": (ALIKE, "run", '"lock", "release"', '"lock", "monotonic"'),
    "the lock is not acquired": (ALIKE, "run", "acq_rel monotonic", "release monotonic"),
    "workers are told to end whoever has the lock": (TOLD, "stop", LOCK, LOCKED),
    "a worker takes part in a team's job": (TEAM, "worker", 'if not (yield "load", "lent", "monotonic"):', "if True:"),
    "a team's program does not say that it is lent": (TEAM, "run", '"store", "lent", "monotonic", 1', '"store", "lent", "monotonic", 0'),
    "a team's threads do not end": (TEAM, "member", '        yield "store", "lent", "release", 0\n', ""),
}
MUTANTS |= {
    "a team's threads are told to end before the program runs": (
        TEAM,
        "member",
        '        code = yield from walk(*program)\n        yield "store", "lent", "release", 0\n',
        '        yield "store", "lent", "release", 0\n        code = yield from walk(*program)\n',
    ),
}


def mutant(name, *changes):
    """The model's functions, of which one is changed."""
    sources = {f: inspect.getsource(getattr(pool_model, f)) for f in (*PROTOCOL, "walk", "parallel", "script")}
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in sources[name]
        sources[name] = sources[name].replace(old, new, 1)
    namespace = dict(vars(pool_model))
    exec("\n".join(sources.values()), namespace)
    return namespace


@pytest.mark.parametrize("name", MUTANTS)
def test_mistakes_are_seen(name):
    where, function, *changes = MUTANTS[name]
    with pytest.raises(Broken):
        explore(SCENARIOS[where], mutant(function, *changes))


def test_counters_that_no_job_has_used_are_shut_too():
    """The pool's memory is made so; at zero, the tag of a generation, a worker that comes late could take a range of the next job."""
    with pytest.raises(Broken, match="runs twice"):
        explore(SCENARIOS["a later worker's first counter"]._replace(counter=(0, 0)))


# ---- the memory model, by the litmus tests of the literature --------------------------------------------------------

X, Y = "active", "stop"
MESSAGE = (("load", Y, "monotonic"), ("load", X, "monotonic"))


def outcomes(one, other):
    """What the loads of two threads return."""
    _, results = explore(Scenario(((1, (Job(1),)),), ((("start", 1), *one), other), workers=0))
    return {(first[1:], second) for first, second in results}


@pytest.mark.parametrize(
    ("store", "load", "both"), [("monotonic", "monotonic", True), ("release", "acquire", True), ("seq_cst", "seq_cst", False)]
)
def test_store_buffering(store, load, both):
    seen = outcomes((("store", X, store, 1), ("load", Y, load)), (("store", Y, store, 1), ("load", X, load)))
    assert {(a[1], b[1]) for a, b in seen} == {(0, 1), (1, 0), (1, 1)} | ({(0, 0)} if both else set())


@pytest.mark.parametrize(
    ("store", "load", "stale"), [("monotonic", "monotonic", True), ("release", "monotonic", True), ("release", "acquire", False)]
)
def test_message_passing(store, load, stale):
    seen = outcomes((("store", X, "monotonic", 1), ("store", Y, store, 1)), (("load", Y, load), MESSAGE[1]))
    assert {b for _, b in seen} == {(0, 0), (0, 1), (1, 1)} | ({(1, 0)} if stale else set())


def test_message_passing_by_fences():
    sender = (("store", X, "monotonic", 1), ("fence", None, "release"), ("store", Y, "monotonic", 1))
    seen = outcomes(sender, (MESSAGE[0], ("fence", None, "acquire"), MESSAGE[1]))
    assert {(b[0], b[2]) for _, b in seen} == {(0, 0), (0, 1), (1, 1)}


def test_one_location_is_coherent():
    seen = outcomes((("store", X, "monotonic", 1),), (("load", X, "monotonic"), ("load", X, "monotonic")))
    assert {b for _, b in seen} == {(0, 0), (0, 1), (1, 1)}  # never the new value, then the old one


def test_stores_may_land_before_what_others_stored():
    def both(x, y):
        return (("store", x, "monotonic", 2), ("store", y, "monotonic", 1), ("load", y, "monotonic"))

    seen = outcomes(both(X, Y), both(Y, X))
    assert {(a[2], b[2]) for a, b in seen} == {(1, 1), (1, 2), (2, 1), (2, 2)}


def test_no_addition_is_lost():
    add = (("add", X, "monotonic", 1),)
    assert {(a[0], b[0]) for a, b in outcomes(add, add)} == {(0, 1), (1, 0)}
