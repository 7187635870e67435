"""The thread pool: every range once whoever runs it, records of control, forks, signals, limits of the system."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import ngraph as ng
from ngraph.runtime.host import jit, pool
from ngraph.runtime.host.bytecode import (
    COMPUTE,
    COPY,
    DONE,
    FRAME,
    HOST,
    HOST_CALLBACK,
    INTEGERS,
    JUMP,
    KERNEL,
    LOOP,
    MOVES,
    OPERATIONS,
    UNLESS,
    WORDS,
    at_once,
)
from ngraph.runtime.host.pool import FIELDS, aligned
from ngraph.transformers.executable.walk import COMPUTED

COUNT = """
define void @kernel(ptr %args, i64 %first, i64 %last, ptr %scratch) nounwind {
entry:
  %p = load ptr, ptr %args
  store i64 %first, ptr %scratch
  br label %l
l:
  %i = phi i64 [ %first, %entry ], [ %i1, %l ]
  %q = getelementptr i64, ptr %p, i64 %i
  %v = load i64, ptr %q
  %w = add i64 %v, 1
  store i64 %w, ptr %q
  %i1 = add i64 %i, 1
  %c = icmp slt i64 %i1, %last
  br i1 %c, label %l, label %o
o:
  ret void
}
"""
SLOW = """
define void @kernel(ptr %args, i64 %first, i64 %last, ptr %scratch) nounwind { ; about a millisecond a work item
entry:
  %items = sub i64 %last, %first
  %n = mul i64 %items, 1000000
  br label %l
l:
  %i = phi i64 [ 0, %entry ], [ %i1, %l ]
  store volatile i64 %i, ptr %scratch
  %i1 = add i64 %i, 1
  %c = icmp slt i64 %i1, %n
  br i1 %c, label %l, label %o
o:
  ret void
}
"""


@pytest.fixture(scope="module")
def count():
    return jit.load(COUNT)


@pytest.fixture(scope="module")
def slow():
    return jit.load(SLOW)


def the_pool():
    return pool.pool(lambda write, target: jit.load(write(target), target))


class Program:
    """A frame over these records."""

    def __init__(self, records, threads=1, release=True):
        self.pool, self.table, self.words = the_pool(), np.zeros((len(records) + 1, WORDS), np.int64), np.zeros(len(FRAME), np.int64)
        for k, r in enumerate(records):
            self.table[k, : len(r)] = r
        self.scratch, at = aligned(64 * threads)
        self.pool.ensure(threads)
        for name, value in {
            "table": self.table.ctypes.data,
            "scratch": at,
            "stride": 64,
            "threads": threads,
            "release": int(release),
        }.items():
            self.words[FRAME[name]] = value

    def run(self, start=0):
        self.words[FRAME["pc"]] = start
        return self.pool.run(self.pool.address, self.words.ctypes.data)

    @property
    def pc(self):
        return int(self.words[FRAME["pc"]])


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(("items", "grain", "long"), [(1, 1, 0), (7, 1, 0), (64, 16, 1), (1000, 7, 1), (5, 100, 0), (0, 1, 0)])
def test_every_work_item_runs_once(count, threads, items, grain, long):
    hits = np.zeros(items + 1, np.int64)
    args = np.array([hits.ctypes.data])
    program = Program([(KERNEL, count.address("kernel"), args.ctypes.data, items, grain, threads, long)] * 50, threads)
    for _ in range(20):
        assert program.run() == DONE
    assert (hits[:items] == 1000).all() and hits[items] == 0


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_no_range_can_be_had_when_a_kernel_is_over(count, threads):
    """A worker that comes late has the last kernel's tag, and may see what is written for the next: no counter has that tag then."""
    hits = np.zeros(64, np.int64)
    args = np.array([hits.ctypes.data])
    program = Program([(KERNEL, count.address("kernel"), args.ctypes.data, 64, 4, threads, 1)], threads)
    fields = FIELDS["pool"]
    for _ in range(20):
        program.run()
        at = program.pool.address
        generation = ctypes.c_int32.from_address(at + fields["generation"]).value
        slots = [ctypes.c_int64.from_address(at + fields["slots"] + 64 * k).value for k in range(threads)]
        assert generation > 0 and all(c >> 32 == -1 for c in slots)


def test_kernels_run_one_after_another(count):
    """A kernel starts when all ranges of the one before have ended: each adds up what the one before left."""
    cells = np.zeros(2, np.int64)
    hits = np.zeros((100, 16), np.int64)
    args = [np.array([row.ctypes.data]) for row in hits]
    records = [(KERNEL, count.address("kernel"), a.ctypes.data, 16, 4, 4, 1) for a in args]
    assert Program(records, 4).run() == DONE and (hits == 1).all() and not cells.any()


def test_records_of_control(count):
    """Moves, loops, jumps, branches and host steps, in one table."""
    cells = np.zeros(8, np.int64)  # 0 counter, 1 address of what the kernel counts, 2 zero, 3 address of a flag
    rows, flag = np.zeros(5, np.int64), np.zeros(1, np.uint8)
    at = cells.ctypes.data
    cells[3] = flag.ctypes.data
    start = np.array([rows.ctypes.data])
    enter = np.array([[at, at + 16, 0], [at + 8, start.ctypes.data, 0]])
    advance = np.array([[at + 8, at + 8, 8]])
    records = [
        (MOVES, enter.ctypes.data, 2),
        (KERNEL, count.address("kernel"), at + 8, 1, 1, 1, 0),
        (MOVES, advance.ctypes.data, 1),
        (LOOP, at, 5, 1),
        (UNLESS, at + 24, 6),
        (KERNEL, count.address("kernel"), start.ctypes.data, 5, 5, 1, 0),
        (HOST,),
        (JUMP, 9),
        (KERNEL, count.address("kernel"), start.ctypes.data, 5, 5, 1, 0),
    ]
    program = Program(records)
    assert program.run() == HOST_CALLBACK and program.pc == 6 and (rows == 1).all()
    assert program.run(7) == DONE and (rows == 1).all()
    flag[0] = 1
    assert program.run() == HOST_CALLBACK and (rows == 3).all()


@pytest.mark.parametrize("op", [op for op in OPERATIONS if op not in INTEGERS])
def test_what_a_table_computes_is_what_python_computes(op):
    """Rounded down; by 0 it is 0. How work items are shared out, too."""
    draw = np.random.default_rng(OPERATIONS.index(op))
    pairs = draw.integers(-50, 50, (300, 2))
    ways = draw.integers(1, 9, 300)
    if op == "at once":
        pairs = np.stack([draw.integers(0, 1 << draw.integers(1, 40, 300)), ways * draw.integers(1, 9, 300)], 1)
    cells = np.zeros((300, 3), np.int64)
    cells[:, :2] = pairs
    at = [cells.ctypes.data + 24 * k for k in range(300)]
    records = [(COMPUTE, a + 16, a, a + 8, OPERATIONS.index(op), int(n)) for a, n in zip(at, ways, strict=True)]
    assert Program(records).run() == DONE
    if op == "at once":
        assert cells[:, 2].tolist() == [at_once(*map(int, x)) for x in zip(*pairs.T, ways, strict=True)]
    else:
        assert cells[:, 2].tolist() == [COMPUTED[op](*map(int, pair)) for pair in pairs]


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_of_all_types_are_read(name):
    info = np.iinfo(name)
    values = np.array([0, 1, 77, info.min, min(info.max, 2**63 - 1)], name)
    cells = np.zeros((len(values), 2), np.int64)
    cells[:, 0] = values.ctypes.data + values.itemsize * np.arange(len(values))
    at = [cells.ctypes.data + 16 * k for k in range(len(values))]
    assert Program([(COMPUTE, a + 8, a, a, OPERATIONS.index(name)) for a in at]).run() == DONE
    assert cells[:, 1].tolist() == values.tolist() == [COMPUTED[name](int(a), 0) for a in cells[:, 0]]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000])
def test_bytes_are_copied(size):
    source, target = np.arange(2000, dtype=np.uint8), np.zeros(2000, np.uint8)
    args = np.array([target.ctypes.data + 7, source.ctypes.data + 3, size])
    assert Program([(COPY, args.ctypes.data)]).run() == DONE
    assert (target[7 : 7 + size] == source[3 : 3 + size]).all() and not target[:7].any() and not target[7 + size :].any()


def test_threads_of_python_share_one_pool(count):
    """One program at a time has the workers; the others run alone, and all are right."""
    hits = np.zeros((8, 1000), np.int64)

    def work(k):
        args = np.array([hits[k].ctypes.data])
        program = Program([(KERNEL, count.address("kernel"), args.ctypes.data, 1000, 50, 2, 1)] * 20, 2)
        for _ in range(50):
            program.run()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert (hits == 1000).all()


def test_the_interpreter_is_free_meanwhile(slow):
    program = Program([(KERNEL, slow.address("kernel"), 0, 300, 10, 1, 1)])
    other, stop = [0], threading.Event()

    def count_up():
        while not stop.is_set():
            other[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count_up)
    thread.start()
    before = other[0]
    program.run()
    seen = other[0] - before
    stop.set()
    thread.join()
    assert seen > 20


@pytest.mark.parametrize("threads", [1, 2])
def test_control_c_ends_a_long_kernel(slow, threads):
    """Ranges that nobody has begun are dropped; what has begun ends; the pool is as before."""
    program = Program([(KERNEL, slow.address("kernel"), 0, 20_000, 5, threads, 1)], threads)
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        program.run()
    assert time.monotonic() - start < 8  # of twenty
    timer.join()
    program.table[0, 3] = 10
    assert program.run() == DONE


def test_a_child_makes_threads_of_its_own(count):
    hits = np.zeros(1000, np.int64)
    args = np.array([hits.ctypes.data])
    program = Program([(KERNEL, count.address("kernel"), args.ctypes.data, 1000, 10, 3, 1)], 3)
    program.run()
    child = os.fork()
    if not child:
        own = the_pool()
        alone = len(own.started) == 0
        program.run()
        before = (hits == 2).all()
        own.ensure(3)
        program.run()
        os._exit(0 if alone and before and (hits == 3).all() and len(own.started) == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    program.run()
    assert (hits == 2).all()


def test_workers_sleep_when_there_is_nothing_to_do(count):
    hits = np.zeros(64, np.int64)
    args = np.array([hits.ctypes.data])
    program = Program([(KERNEL, count.address("kernel"), args.ctypes.data, 64, 4, 2, 1)], 2)
    program.run()
    time.sleep(0.3)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1
    program.run()
    assert (hits == 2).all()


def test_stopped_workers_come_again(count):
    hits = np.zeros(64, np.int64)
    args = np.array([hits.ctypes.data])
    program = Program([(KERNEL, count.address("kernel"), args.ctypes.data, 64, 4, 2, 1)], 2)
    the_pool().stop()
    assert not the_pool().started
    program.run()
    the_pool().ensure(2)
    program.run()
    assert (hits == 2).all()


def test_a_worker_that_begins_after_the_end_ends(count):
    """As where a process ends before the system let its new thread run once."""
    mine = pool.Pool(the_pool().code)
    ctypes.c_int32.from_address(mine.address + FIELDS["pool"]["stop"]).value = 1
    mine.ensure(2)
    joined = threading.Thread(target=lambda: ctypes.CDLL(None).pthread_join(mine.started[0], None), daemon=True)
    joined.start()
    joined.join(30)
    assert not joined.is_alive()


def test_workers_do_not_end_while_a_program_has_the_pool(count):
    mine = pool.Pool(the_pool().code)
    mine.ensure(2)
    lock = ctypes.c_int32.from_address(mine.address + FIELDS["pool"]["lock"])
    lock.value = 1
    mine.stop()
    assert len(mine.started) == 1 and lock.value == 1
    lock.value = 0
    mine.stop()
    assert not mine.started and lock.value == 0


def test_counters_are_shut_before_their_first_kernel():
    """Also in a child: a counter of zeros would have the tag of the generation 0, which comes again after four thousand million kernels."""
    mine = pool.Pool(the_pool().code)
    counters = mine.memory[FIELDS["pool"]["slots"] :].view(np.int64)[::8]
    assert (counters == -1).all() and len(counters) == pool.MOST
    counters[:] = 0
    mine.forked()
    assert (counters == -1).all() and mine.word("spins").value > 0


def test_number_of_threads():
    with ng.config(num_threads=3):
        assert pool.threads() == 3
    with ng.config(num_threads=100_000):
        assert pool.threads() == pool.MOST
    with ng.config(num_threads=0):
        assert pool.threads() == pool.cores()
    code = "import ngraph as ng; from ngraph.runtime.host import pool; print(pool.threads())"
    said = subprocess.run([sys.executable, "-c", code], env={**os.environ, "NGRAPH_NUM_THREADS": "5"}, capture_output=True, text=True)
    assert said.stdout.strip() == "5", said.stderr


def test_affinity_counts():
    code = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); from ngraph.runtime.host import pool; print(pool.cores())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.stdout.strip() == "1", said.stderr


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "150000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "100000 100000\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        (
            {
                "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/docker/x\n",
                "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us": "100000",
                "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000",
            },
            1,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/x\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            None,
        ),
    ],
)
def test_limits_of_control_groups(tmp_path, files, limit):
    """Both versions of control groups; the tightest of one's own and those around it counts."""
    assert pool.cores(tree(tmp_path, files)) == (limit or pool.cores(str(tmp_path / "nothing")))


def test_the_code_wants_nothing_from_elsewhere():
    """System calls and Python's functions come as addresses, so the object loads anywhere."""
    from ngraph.runtime.host.loader import undefined_symbols
    from ngraph.targets import TARGETS

    for target in TARGETS.values():
        assert not undefined_symbols(jit.compile_object(pool.text(target), target))


def test_the_process_ends_at_once():
    """With workers asleep, awake, and in the middle of a program of another thread."""
    code = """
import threading, time, numpy as np, ngraph as ng, ngraph.transformers as ngt
x = ng.placeholder([ng.make_axis(1000, name="A"), ng.make_axis(1000, name="B")])
f = ngt.make_transformer_factory("cpu")().computation(ng.sum(ng.exp(x) * ng.tanh(x), out_axes=()), x)
a = np.ones((1000, 1000), "f")
f(a)
def forever():
    while True: f(a)
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.2)
print("end")
"""
    said = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "NGRAPH_NUM_THREADS": "2"}, capture_output=True, text=True, timeout=60
    )
    assert said.returncode == 0 and said.stdout == "end\n", said.stderr


def test_compiling_processes_end_quietly_where_one_has_ended_before():
    """SIGTERM may come between the wait for a process and its leaving the set of those that are there."""
    code = (
        "import os\nfrom ngraph.runtime.host.worker import _Compilers\nall = _Compilers(0)\npid = os.fork() or os._exit(0)\n"
        "os.waitpid(pid, 0)\nall.pids.add(pid)\nall.end(0)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (answer.returncode, answer.stderr) == (0, "")
