"""What was compiled is found again by whoever asks for the same; nothing broken is ever taken; processes do not disturb each other."""

import ctypes
import os
import pickle
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from ngraph.op_graph import dtypes
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.op import Origin
from ngraph.plan.planner import plan
from ngraph.plan.text import arrays, text
from ngraph.program.program import AxisId
from ngraph.program.text import parse
from ngraph.runtime.cache import HEAD, Cache, digest
from ngraph.runtime.host.loader import LoadedObjects
from ngraph.runtime.host.workers import Failed, Workers
from ngraph.targets import TARGETS, host

HOST = host()


def ir(k, name="kernel"):
    return f"define i64 @{name}() {{\n  ret i64 {k}\n}}\n"


def value(data):
    code = LoadedObjects(data)
    return ctypes.CFUNCTYPE(ctypes.c_int64)(code.address("kernel"))()


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "cache")


@pytest.fixture
def counted(monkeypatch):
    """What is compiled from here on."""
    seen = []

    def compile(self, texts, target):
        texts = list(texts)
        seen.extend(texts)
        return true(self, texts, target)

    true = Workers.compile
    monkeypatch.setattr(Workers, "compile", compile)
    return seen


def files(folder, kind="objects"):
    return sorted(os.path.join(folder, kind, f) for f in os.listdir(os.path.join(folder, kind)))


# ---- objects


def test_an_object_is_compiled_once(folder, counted):
    first = Cache(folder)
    made = first.objects([ir(1), ir(2), ir(1)], HOST)
    assert [value(m) for m in made] == [1, 2, 1] and counted == [ir(1), ir(2)]
    assert first.objects([ir(2), ir(1)], HOST) == [made[1], made[0]] and len(counted) == 2
    other = Cache(folder)  # another process, as it were
    assert other.objects([ir(1), ir(2), ir(3)], HOST)[:2] == made[:2]
    assert counted == [ir(1), ir(2), ir(3)]
    for cache in (first, other):
        cache.folder.tell()
    assert other.folder.told() == [2, 3]


def test_a_target_has_objects_of_its_own(folder, counted):
    cache = Cache(folder)
    made = [cache.object(ir(1), t) for t in TARGETS.values()]
    assert len(set(made)) >= 2 and len(counted) == len(TARGETS) == len(files(folder))


def test_a_text_whose_object_is_there_is_not_written(folder, counted):
    written = []

    def write(target, *facts):
        written.append(facts)
        return ir(*facts)

    first = Cache(folder).written(write, host(), 1)
    assert Cache(folder).written(write, host(), 1) == first == Cache(folder).object(ir(1), host()) and written == [(1,)]
    assert Cache(folder).written(write, host(), 2) == Cache(folder).object(ir(2), host()) != first and written == [(1,), (2,)]
    Cache(folder).written(write, replace(host(), flush=True), 1)
    assert written == [(1,), (2,), (1,)]


def test_a_text_is_written_again_without_its_object_and_by_other_makers(folder, counted, monkeypatch):
    written = []

    def write(target):
        written.append(target)
        return ir(1)

    first = Cache(folder).written(write, host())
    for kind in ("objects", "texts"):
        for path in files(folder, kind):
            os.truncate(path, 7)
        assert Cache(folder).written(write, host()) == first
    assert len(written) == 3
    monkeypatch.setattr("ngraph.runtime.cache.makers", lambda: b"others")
    assert Cache(folder).written(write, host()) == first and len(written) == 4


def test_without_a_folder_nothing_is_written(tmp_path, counted, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache = Cache("")
    assert cache.object(ir(1), HOST) == cache.object(ir(1), HOST) and len(counted) == 1
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_is_done_without(tmp_path):
    (tmp_path / "file").write_text("")
    cache = Cache(str(tmp_path / "file" / "cache"))
    assert value(cache.object(ir(1), HOST)) == 1
    cache.folder.tell()


def test_a_folder_that_can_only_be_read_is_read(folder, counted, monkeypatch):
    made = Cache(folder).object(ir(1), HOST)

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr("os.utime", refuse)
    assert Cache(folder).object(ir(1), HOST) == made and len(counted) == 1


def test_a_full_disk_leaves_nothing_half_written(folder, counted):
    """No file may grow beyond a few bytes in this process."""
    before, signals = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    cache = Cache(folder)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (256, before[1]))
        assert value(cache.object(ir(1), HOST)) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, signals)
    assert files(folder) == []
    assert value(Cache(folder).object(ir(1), HOST)) == 1 and len(files(folder)) == 1 and len(counted) == 2


def test_where_no_process_can_be_started_this_one_compiles(monkeypatch):
    monkeypatch.setattr("ngraph.runtime.cache.workers", Workers())
    for program in ("/usr/bin/true", "", None, "/nowhere/python"):
        monkeypatch.setattr(sys, "executable", program)
        assert value(Cache("").object(ir(1), HOST)) == 1


def damages():
    def cut(data, k):
        return data[:k]

    for k in (0, 1, HEAD.size - 1, HEAD.size, HEAD.size + 1):
        yield f"cut at {k}", lambda data, k=k: cut(data, k)
    yield "one byte less", lambda data: data[:-1]
    yield "one byte more", lambda data: data + b"\0"
    for k in (0, 7, 8, 40, 72, 79, HEAD.size, -1):
        yield f"byte {k} differs", lambda data, k=k: bytes([*data[:k], data[k] ^ 1, *data[k:][1:]])
    yield "garbage", lambda data: b"\x7fELF" * 1000
    yield "an older format", lambda data: b"ngraph 0" + data[8:]


@pytest.mark.parametrize("damage", [d for _, d in damages()], ids=[n for n, _ in damages()])
def test_a_broken_entry_is_rebuilt(folder, counted, damage):
    good = Cache(folder).object(ir(1), HOST)
    (path,) = files(folder)
    with open(path, "rb") as file:
        data = file.read()
    with open(path, "wb") as file:
        file.write(damage(data))
    assert Cache(folder).object(ir(1), HOST) == good and len(counted) == 2
    assert Cache(folder).object(ir(1), HOST) == good and len(counted) == 2  # it is whole again


def test_an_entry_under_another_name_is_rebuilt(folder, counted):
    cache = Cache(folder)
    cache.object(ir(1), HOST)
    (one,) = files(folder)
    wanted = cache.key(ir(2), HOST).hex()
    os.rename(one, os.path.join(os.path.dirname(one), wanted))
    assert value(Cache(folder).object(ir(2), HOST)) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_an_entry_of_another_user_is_rebuilt(folder, counted):
    Cache(folder).object(ir(1), HOST)
    (path,) = files(folder)
    os.chown(path, 12345, 12345)
    assert value(Cache(folder).object(ir(1), HOST)) == 1 and len(counted) == 2


def test_others_cannot_read_what_is_kept(folder):
    Cache(folder).object(ir(1), HOST)
    for path in (folder, *files(folder)):
        assert os.stat(path).st_mode & 0o077 == 0


def test_the_least_recently_used_go_first(folder):
    cache = Cache(folder)
    keys = [digest(bytes([k])) for k in range(20)]
    for age, key in enumerate(keys):
        cache.folder.put("plans", {key: bytes(1000)})
        os.utime(os.path.join(folder, "plans", key.hex()), (age, age))
    assert cache.folder.get("plans", keys[0]) == bytes(1000)  # used just now
    small = Cache(folder, limit=10_500)
    small.folder.put("objects", {digest(b"new"): bytes(1000)})
    left = [k for k in range(20) if small.folder.get("plans", keys[k]) is not None]
    assert left == [0, *range(14, 20)]
    assert sum(os.path.getsize(f) for kind in ("plans", "objects") for f in files(folder, kind)) <= 10_500


def test_a_long_life_stays_within_the_limit(folder):
    cache = Cache(folder, limit=50_000)
    for k in range(300):
        cache.folder.put("plans", {digest(bytes([k % 256, k // 256])): bytes(900)})
        assert sum(map(os.path.getsize, files(folder, "plans"))) <= 50_000


def test_clearing_leaves_what_is_not_ours(folder):
    cache = Cache(folder)
    cache.object(ir(1), HOST)
    with open(os.path.join(folder, "objects", "mine"), "w") as file:
        file.write("keep me")
    assert cache.folder.clear() == 1
    assert [os.path.basename(f) for f in files(folder)] == ["mine"]


# ---- plans

PROGRAM = """ngraph program 1
axis H = 32
axis N
axis T = 3
input %0 x : float32[H, N]
state "W" = %1 W : float32[H]
%2 : float32[H] = constant() {value: array("table"), axes: [H], dtype: float32}  # constant at "net.py":3
%3 : float32[H, N] = multiply(%0, %1)  # multiply at "net.py":4
%4 : float32[H, N] = add(%3, %2)  # add at "net.py":5
%5 total : float32[N] = reduce(%4) {axes: [H], kind: "add"}  # sum at "net.py":6
%6 : float32[H] = add(%1, %2)  # add at "net.py":7
output %5
state_out "W" = %6
"""
RENAMED = (
    PROGRAM.replace("H", "Q").replace("[N", "[M").replace(", N", ", M").replace("axis N", "axis M").replace('"W"', '"weights"')
    .replace("W :", "w :").replace(" x ", " y ").replace("total", "sums").replace("net.py", "other.py").replace('"table"', '"numbers"')
)  # fmt: skip


def program(source=PROGRAM, table=None):
    name = "table" if '"table"' in source else "numbers"
    return parse(source, {name: np.arange(32, dtype=np.float32) if table is None else table})


def test_a_plan_is_made_once_in_a_process_without_a_folder():
    p, cache = program(), Cache("")
    made = cache.plan(p, "", lambda: plan(p))
    assert text(cache.plan(program(), "", never)) == text(made)


def never():
    raise AssertionError("it was planned again")


def test_a_plan_is_made_once(folder):
    p = program()
    made = Cache(folder).plan(p, "facts", lambda: plan(p))
    found = Cache(folder).plan(program(), "facts", never)
    assert text(found) == text(made)
    with pytest.raises(AssertionError):
        Cache(folder).plan(program(), "other facts", never)


def test_names_origins_and_large_arrays_are_those_of_who_asks(folder):
    p, q = program(), program(RENAMED, np.arange(32, dtype=np.float32)[::-1].copy())
    Cache(folder).plan(p, "", lambda: plan(p))
    found = Cache(folder).plan(q, "", never)
    assert text(found) == text(plan(q))
    assert "other.py" in text(found) and '"weights"' in text(found) and "Q" in found.axes and "H" not in text(found)
    (held,) = arrays(found).values()
    assert held[0] == 31


CHANGES = [
    ("H = 32", "H = 48"),
    ("float32", "float64"),
    ("multiply(%0", "add(%0"),
    ('"add"}', '"max"}'),
    ("T = 3", "T = 4"),
    ("(%3, %2)", "(%2, %3)"),
]


@pytest.mark.parametrize("old, new", CHANGES, ids=[new for _, new in CHANGES])
def test_what_a_program_means_is_in_the_key(folder, old, new):
    p = program()
    Cache(folder).plan(p, "", lambda: plan(p))
    assert old in PROGRAM
    table = np.arange(48 if "H" in new else 32, dtype=np.float64 if new == "float64" else np.float32)
    with pytest.raises(AssertionError):
        Cache(folder).plan(program(PROGRAM.replace(old, new), table), "", never)


def test_a_plan_from_other_makers_is_not_taken(folder, monkeypatch):
    p = program()
    Cache(folder).plan(p, "", lambda: plan(p))
    monkeypatch.setattr("ngraph.runtime.cache.makers", lambda: b"another version")
    with pytest.raises(AssertionError):
        Cache(folder).plan(p, "", never)


def test_a_plan_that_names_other_classes_is_not_made(folder):
    p = program()
    cache = Cache(folder)
    cache.plan(p, "", lambda: plan(p))
    (path,) = files(folder, "plans")
    key = bytes.fromhex(os.path.basename(path))
    for harm in (os.getcwd, textwrap.dedent, Cache("").object):
        cache.folder.put("plans", {key: pickle.dumps([]) + pickle.dumps(harm)})
        made = plan(p)
        assert Cache(folder).plan(p, "", lambda made=made: made) is made
        assert text(Cache(folder).plan(p, "", never)) == text(made)


def test_an_axis_that_a_plan_made_does_not_meet_one_of_the_program(folder):
    p, q = program(), program(PROGRAM.replace("axis T", "axis chunk"))
    Cache(folder).plan(p, "", lambda: (AxisId("chunk"), plan(p)))
    made = AxisId("chunk"), plan(q)
    assert Cache(folder).plan(q, "", lambda: made) is made


def test_records_keep_what_they_share(folder):
    p = program()

    def make():
        made = plan(p)
        small = ArrayRef(np.arange(8, dtype=dtypes.bfloat16.np).reshape(2, 4), "small")
        return made, made.buffers[0], dtypes.float32, Origin("by hand", "", "x.py", 1), small, np.float32(1.5)

    Cache(folder).plan(p, "", make)
    made, buffer, dtype, origin, ref, number = Cache(folder).plan(p, "", never)
    assert made.buffers[0] is buffer and dtype is dtypes.float32 and origin.file == "x.py"
    assert ref == ArrayRef(np.arange(8, dtype=dtypes.bfloat16.np).reshape(2, 4)) and ref.name == "small"
    assert number == 1.5 and type(number) is np.float32


def test_a_plan_with_large_arrays_of_its_own_is_not_kept(folder):
    p = program()
    made = ArrayRef(np.arange(100.0))
    assert Cache(folder).plan(p, "", lambda: made) is made
    assert Cache(folder).plan(p, "", lambda: "made again") == "made again"


# ---- processes

SCRIPT = """
import sys, time
from ngraph.runtime.cache import Cache
from ngraph.targets import host
cache = Cache(sys.argv[1])
def ir(k): return "define i64 @kernel() {\\n  ret i64 %d\\n}\\n" % k
"""


def python(folder, script, **more):
    command = [sys.executable, "-c", SCRIPT + textwrap.dedent(script), folder]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more)


def test_a_start_that_finds_all_loads_no_llvm(folder):
    script = """
    made = cache.objects([ir(k) for k in range(5)], host())
    from ngraph.runtime.host.loader import LoadedObjects
    LoadedObjects(*made)
    print("llvmlite" in sys.modules, len(made))
    """
    for _ in range(2):
        assert python(folder, script).communicate()[0] == "False 5\n"
    (_, misses) = Cache(folder).folder.told()
    assert misses == 5


def test_two_processes_at_once(folder):
    script = """
    for k in range(60):
        assert cache.folder.get("plans", bytes([k]) * 32) in (None, bytes([k]) * 5000)
        cache.folder.put("plans", {bytes([k]) * 32: bytes([k]) * 5000})
        assert cache.object(ir(k % 7), host())
    cache.folder.limit = 100_000
    cache.folder.room = None
    cache.folder.put("plans", {})
    """
    both = [python(folder, script) for _ in range(3)]
    assert [p.wait() for p in both] == [0, 0, 0]
    cache = Cache(folder)
    for k in range(60):
        assert cache.folder.get("plans", bytes([k]) * 32) in (None, bytes([k]) * 5000)
    assert not [f for kind in ("plans", "objects") for f in files(folder, kind) if f.endswith(".new")]


def test_a_killed_writer_leaves_nothing_that_harms(folder):
    script = """
    print("ready", flush=True)
    k = 0
    while True:
        k = (k + 1) % 50
        cache.folder.put("plans", {bytes([k]) * 32: bytes([k]) * 300_000})
    """
    for _ in range(6):
        writer = python(folder, script)
        assert writer.stdout.readline() == "ready\n"
        time.sleep(0.05 + 0.01 * np.random.default_rng().random())
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    cache = Cache(folder)
    found = [cache.folder.get("plans", bytes([k]) * 32) for k in range(50)]
    assert any(found) and all(f in (None, bytes([k]) * 300_000) for k, f in enumerate(found))
    cache.folder.put("plans", {})  # takes the lock, which died with its holder, and what was begun away
    assert not [f for f in files(folder, "plans") if f.endswith(".new")]


# ---- the processes that compile


def compilers(w):
    """The numbers of the processes that the first one has forked."""
    with open(f"/proc/{w.processes.popen.pid}/task/{w.processes.popen.pid}/children") as file:
        return list(map(int, file.read().split()))


def test_much_is_compiled_by_several_processes(monkeypatch):
    monkeypatch.setattr("ngraph.runtime.host.workers.MUCH", 100)
    monkeypatch.setattr("ngraph.runtime.host.workers.allowed_cores", lambda: 3)
    w = Workers()
    try:
        made = w.compile((ir(k) for k in range(30)), HOST)
        assert [value(m) for m in made] == list(range(30))
        assert len(compilers(w)) == 3
    finally:
        w.end()


def test_a_process_may_have_many_files_open():
    """Of files whose numbers are above 1,023 `select` wants to know nothing."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2048:
        if hard != resource.RLIM_INFINITY and hard < 2048:
            pytest.skip("no process may open 2,048 files here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    w, open_files = Workers(), [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert value(w.compile([ir(1)], HOST)[0]) == 1
    finally:
        w.end()
        for file in open_files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_ir_is_refused_with_llvms_words():
    w = Workers()
    with pytest.raises(Failed, match="expected top-level entity"):
        w.compile([ir(1), "nonsense", ir(2)], HOST)
    assert w.processes is None and [value(m) for m in w.compile([ir(3)], HOST)] == [3]
    w.end()


def test_llvm_that_dies_is_an_error_of_ours():
    w = Workers()
    w.start()
    w.processes.popen.kill()
    with pytest.raises(Failed, match="signal 9"):
        w.compile([ir(1)], HOST)
    assert value(w.compile([ir(1)], HOST)[0]) == 1
    os.kill(compilers(w)[0], signal.SIGSEGV)
    with pytest.raises(Failed, match="signal 11"):
        w.compile([ir(1)], HOST)
    assert value(w.compile([ir(1)], HOST)[0]) == 1
    w.end()


def test_more_than_a_pipe_holds_is_compiled_while_nobody_listens():
    """Texts and objects of some megabytes: neither side waits for the other for ever."""
    w = Workers()
    big = f'@big = constant [300000 x i8] c"{"x" * 300000}"\n'

    def texts():
        for k in range(40):
            if k == 39:
                time.sleep(0.5)
            yield ir(k) + big

    assert [value(m) for m in w.compile(texts(), HOST)] == list(range(40))
    w.end()


def test_processes_that_have_nothing_to_do_are_ended(monkeypatch):
    monkeypatch.setattr("ngraph.runtime.host.workers.IDLE_SECONDS", 0.05)
    w = Workers()
    assert value(w.compile([ir(1)], HOST)[0]) == 1
    pids = [w.processes.popen.pid, *compilers(w)]
    assert len(pids) == 2
    w.rest.join()
    assert w.processes is None and all(map(gone, pids))
    assert value(w.compile([ir(2)], HOST)[0]) == 2
    w.end()


def test_threads_compile_one_after_the_other():
    w, made = Workers(), {}
    threads = [threading.Thread(target=lambda k=k: made.update({k: value(w.compile([ir(k)], HOST)[0])})) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert made == {k: k for k in range(4)}
    w.end()


def test_a_start_does_not_wait_for_the_texts_of_another_thread():
    w = Workers()
    w.start()

    def texts():
        yield ir(1)
        other = threading.Thread(target=w.start, daemon=True)
        other.start()
        other.join(5)
        assert not other.is_alive()
        yield ir(2)

    try:
        assert [value(m) for m in w.compile(texts(), HOST)] == [1, 2]
    finally:
        w.end()


def test_a_forked_process_has_processes_of_its_own(folder):
    script = """
    import os
    from ngraph.runtime.host.workers import workers
    before = workers.compile([ir(1)], host())
    child = os.fork()
    after = [workers.compile([ir(k)], host())[0] for k in range(3)]
    assert after[1] == before[0]
    if not child:
        os._exit(len(after))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(workers.compile([ir(9)], host())))
    """
    assert python(folder, script).communicate()[0] == "3 1\n"


LONG = """
import os
from ngraph.runtime.host.workers import workers
big = "".join("define i64 @f%d(i64 %%x) { %%y = mul i64 %%x, %d ret i64 %%y }\\n" % (k, k) for k in range(60000))
def texts():
    for k in range(1000):
        yield ir(k) + big
        if k == 3:
            first, forked = workers.processes.popen.pid, ""
            while not forked:
                with open(f"/proc/{first}/task/{first}/children") as file:
                    forked = file.read()
            print(first, forked, flush=True)
try:
    workers.compile(texts(), host())
except KeyboardInterrupt:
    print("interrupted", workers.processes)
"""


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="the system shows no processes")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_compiling_stops_at_once_and_leaves_no_process(folder, how):
    p = python(folder, LONG, start_new_session=True)
    children = list(map(int, p.stdout.readline().split()))
    assert len(children) > 1
    time.sleep(0.2)
    start = time.monotonic()
    if how == signal.SIGINT:
        os.killpg(p.pid, how)  # as a terminal does
        assert p.communicate()[0] == "interrupted None\n"
    else:
        p.send_signal(how)
        p.communicate()
    while not all(map(gone, children)):
        assert time.monotonic() - start < 30
        time.sleep(0.02)


# ---- from one run of a program to the next

MODEL = """
import sys
import numpy as np
import ngraph as ng, ngraph.transformers as ngt
A, B, N = ng.make_axis({a}, name="{A}"), ng.make_axis(7, name="B"), ng.make_axis(5, name="N")
x = ng.placeholder([A, N]).named("{x}")
w = ng.variable([A, B], initial_value=np.linspace(-1, 1, {a} * 7).reshape({a}, 7) * {scale}).named("{w}")
large = ng.constant(np.arange({a} * 5, dtype=np.float32).reshape({a}, 5) * {scale}, [A, N])
y = ng.softmax(ng.dot(w, x + large), B)
loss = ng.sum(y * y, out_axes=())
t = ngt.make_transformer_factory("cpu")()
step = t.computation([ng.sequential([loss, ng.assign(w, w - 0.1 * ng.deriv(loss, w)), loss])], x)
out = t.computation(y, x)
v = np.ones(({a}, 5), np.float32)
print([float(np.sum(r)) for _ in range(3) for r in (*step(v), out(v))])
print("llvmlite" in sys.modules, out.plan.count("{A}"), "{x}" in out.plan)
"""


def started(folder, **names):
    """What a run of the model prints: its results, and what it found in the cache."""
    names = {"a": 9, "A": "A", "x": "x", "w": "w", "scale": 1, **names}
    environment = {**os.environ, "NGRAPH_CACHE": folder}
    before = Cache(folder).folder.told()
    done = subprocess.run([sys.executable, "-c", MODEL.format(**names)], capture_output=True, text=True, check=True, env=environment)
    results, facts = done.stdout.splitlines()
    llvm, seen, named = facts.split()
    assert llvm == "False" and int(seen) > 0 and named == "True"
    hits, misses = (after - b for after, b in zip(Cache(folder).folder.told(), before, strict=True))
    return results, hits, misses


def test_a_second_start_compiles_nothing(folder):
    first, _, missed = started(folder)
    assert missed > 3
    second, found, missed = started(folder)
    assert second == first and found > 3 and missed == 0


def test_a_renamed_model_with_other_weights_compiles_nothing(folder):
    first, *_ = started(folder)
    other, _, missed = started(folder, A="Aa", x="pictures", w="weights", scale=2)
    assert missed == 0 and other != first
    alone, *_ = started(folder + "2", A="Aa", x="pictures", w="weights", scale=2)
    assert other == alone
    assert started(folder, a=10)[2] > 0  # other lengths are another program


def test_a_start_after_every_entry_was_damaged_gives_the_same(folder):
    first, *_ = started(folder)
    for kind in ("objects", "plans"):
        for k, path in enumerate(files(folder, kind)):
            with open(path, "r+b") as file:
                file.seek(HEAD.size + 30 + k)
                file.write(b"\x5a\xa5")
    again, *_ = started(folder)
    assert again == first and started(folder)[2] == 0


def test_a_start_without_some_objects_makes_them_again(folder):
    first, *_ = started(folder)
    for path in files(folder)[::2]:
        os.unlink(path)
    assert started(folder)[0] == first and started(folder)[2] == 0


def test_starts_at_once_give_the_same(folder):
    made = {}
    threads = [threading.Thread(target=lambda k=k: made.update({k: started(folder)[0]})) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(made) == 3 and len(set(made.values())) == 1
