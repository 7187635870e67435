"""State and graphs on disk: no moment at which a kill, a full disk or a forbidden folder costs the last good file."""

import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.op_graph import files
from ngraph.op_graph import text as graphs
from ngraph.runtime import weights

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def python(script, *arguments, **options):
    environment = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)], env=environment, **options)


SAVER = """
import os, sys
import ngraph as ng
import ngraph.transformers as ngt

path = sys.argv[1]
W = ng.make_axis(200_000, name="W")
step, w = ng.persistent_tensor((), initial_value=0).named("step"), ng.persistent_tensor([W], initial_value=0).named("w")
with ngt.make_transformer() as transformer:
    run = transformer.computation([ng.assign(step, step + 1), ng.assign(w, w + 1)]).compile()
    for line in sys.stdin:  # one child for each line, killed while it saves
        transformer.restore(path)
        child = os.fork()
        if not child:
            while True:
                run()
                transformer.save(path)
        os.write(1, b"%d\\n" % child)
        os.waitpid(child, 0)
        os.write(1, b"gone\\n")
"""


def test_two_hundred_kills_while_saving_cost_nothing(tmp_path):
    """Each time, the file is one that was saved whole, no older than what was seen of it before."""
    path = tmp_path / "state.safetensors"
    weights.write_arrays(path, {"step": np.zeros((), "f"), "w": np.zeros(200_000, "f")})
    draw, seen, moved, left = random.Random(0), 0.0, 0, 0
    longest = 0.03  # follows how long a save takes on this machine now
    saver = python(SAVER, path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    try:
        for _ in range(200):
            saver.stdin.write("go\n")
            child = int(saver.stdout.readline())
            time.sleep(draw.uniform(0, longest))
            os.kill(child, signal.SIGKILL)
            assert saver.stdout.readline() == "gone\n"
            arrays = weights.read_arrays(path)
            assert sorted(arrays) == ["step", "w"] and arrays["w"].shape == (200_000,)
            step = float(arrays["step"])
            assert (arrays["w"] == step).all() and step >= seen
            longest *= 0.95 if step > seen else 1.05
            moved, seen = moved + (step > seen), step
            others = [f for f in os.listdir(tmp_path) if f != path.name]
            left += len(others)
            assert len(others) <= 1, others  # what a killed saver left, the next one removes
    finally:
        saver.kill()
        saver.communicate()
    assert moved > 20 and left > 20, (moved, left)  # it was at work, and was met in the middle
    weights.write_arrays(path, {"step": np.zeros((), "f")})
    assert os.listdir(tmp_path) == [path.name]


GRAPH_SAVER = """
import os, sys
import numpy as np
import ngraph as ng
from ngraph.op_graph import text

path, k = sys.argv[1], int(sys.argv[2])
A = ng.make_axis(100_000, name="A")
os.write(1, b"ready")
while True:
    k += 1
    text.save(ng.constant(np.full(100_000, k, "f"), [A]) + float(k), path)
"""


def test_a_graph_and_its_arrays_stay_together(tmp_path):
    path, seen = tmp_path / "graph.json", 0
    draw = random.Random(1)
    A = ng.make_axis(100_000, name="A")
    graphs.save(ng.constant(np.zeros(100_000, "f"), [A]) + 0.0, path)
    for _ in range(12):
        saver = python(GRAPH_SAVER, path, seen, stdout=subprocess.PIPE)
        assert saver.stdout.read(5) == b"ready"
        time.sleep(draw.uniform(0, 0.05))
        saver.kill()
        saver.communicate()
        (root,) = graphs.load(path)
        array, number = (i.attrs["value"] for i in root.inputs)
        k = float(np.ravel(getattr(number, "array", number))[0])
        assert (np.ravel(array.array) == k).all() and k >= seen
        seen = int(k)
    assert seen > 0
    graphs.save(root, path)
    assert not [f for f in os.listdir(tmp_path) if f.endswith(".tmp")]


def test_a_saver_leaves_alone_what_another_is_writing(tmp_path):
    path = tmp_path / "w"
    with files.saving(path):  # as a process does that is in the middle
        other = tmp_path / f".w.{'0' * 16}.tmp"
        other.write_bytes(b"half")
        files.write_whole(path, b"mine")
        assert other.exists()
    users_own = [tmp_path / name for name in (".w.tmp", "w.tmp", ".v.0123456789abcdef.tmp", ".w.0123456789abcdeg.tmp")]
    for f in users_own:
        f.write_bytes(b"")
    files.write_whole(path, b"mine")
    assert not other.exists() and all(f.exists() for f in users_own) and path.read_bytes() == b"mine"


def test_many_savers_at_once(tmp_path):
    script = """
        import sys
        from ngraph.op_graph.files import write_whole
        for k in range(60):
            write_whole(sys.argv[1], sys.argv[2].encode() * 10000)
    """
    path = tmp_path / "w"
    savers = [python(script, path, who) for who in "abcd"]
    while any(s.poll() is None for s in savers):
        if path.exists():
            content = path.read_bytes()
            assert len(content) == 10000 and len(set(content)) == 1
    assert [s.wait() for s in savers] == [0] * 4 and os.listdir(tmp_path) == ["w"]


def test_links_and_permissions_stay(tmp_path):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "w", tmp_path / "link"
    link.symlink_to(target)
    for content in (b"1", b"2"):  # first through a link that leads nowhere yet
        files.write_whole(link, content)
        assert link.is_symlink() and target.read_bytes() == content
        target.chmod(0o640)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["link", "real"] and os.listdir(tmp_path / "real") == ["w"]
    A = ng.make_axis(100, name="A")
    (tmp_path / "graph").symlink_to(tmp_path / "real" / "g.json")
    for path in (tmp_path / "graph", tmp_path / "real" / "g.json"):
        graphs.save(ng.constant(np.arange(100.0), [A]), tmp_path / "graph")
        assert graphs.load(path)[0].attrs["value"].array.tolist() == list(range(100))
    assert len(os.listdir(tmp_path / "real")) == 3  # w, the graph, its arrays


def test_what_is_no_file_is_not_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(OSError, match="not a regular file"):
            files.write_whole(tmp_path / name, b"")
    with pytest.raises(FileNotFoundError):
        files.write_whole(tmp_path / "nowhere" / "w", b"")
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"] and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_full_disk_leaves_the_old_file(tmp_path):
    """The system refuses to write more than a limit, in the middle of the file."""
    script = """
        import resource, sys
        import ngraph as ng
        import ngraph.transformers as ngt
        W = ng.make_axis(100_000, name="W")
        w = ng.variable([W], initial_value=2)
        with ngt.make_transformer() as transformer:
            transformer.computation(w)
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
            try:
                transformer.save(sys.argv[1])
            except OSError as error:
                print("refused:", error)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            assert (transformer.get(w) == 2).all()
            transformer.save(sys.argv[1] + ".second")
    """
    path = tmp_path / "w"
    files.write_whole(path, b"old")
    said, _ = (p := python(script, path, stdout=subprocess.PIPE, text=True)).communicate()
    assert p.returncode == 0 and "refused:" in said and path.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["w", "w.second"]


def test_a_folder_that_must_not_be_written_to():
    """Run without root's rights, which are above permissions."""
    script = """
        import os, sys
        from ngraph.op_graph.files import write_whole
        if os.geteuid() == 0:
            os.setuid(65534)
        for path in sys.argv[1:]:
            try:
                write_whole(path, b"new")
            except PermissionError as error:
                print("refused:", error.filename)
    """
    with tempfile.TemporaryDirectory() as folder:
        closed, blind = os.path.join(folder, "closed"), os.path.join(folder, "blind")
        for f in (closed, blind):
            os.mkdir(f)
            with open(os.path.join(f, "w"), "wb") as file:
                file.write(b"old")
        os.chmod(folder, 0o755)
        os.chmod(closed, 0o555)
        os.chmod(blind, 0o333)  # may be written to, not read
        paths = [os.path.join(f, "w") for f in (closed, blind)]
        said, _ = (p := python(script, *paths, stdout=subprocess.PIPE, text=True)).communicate()
        assert p.returncode == 0 and said.count("refused:") == 1 and closed in said, said
        os.chmod(closed, 0o755), os.chmod(blind, 0o755)
        assert [open(path, "rb").read() for path in paths] == [b"old", b"new"]
        assert [os.listdir(f) for f in (closed, blind)] == [["w"], ["w"]]


def test_a_file_that_is_read_and_written_at_once(tmp_path):
    """Whoever reads gets one state or the next, whole."""
    path = tmp_path / "w"
    w = ng.variable([ng.make_axis(50_000, name="W")], initial_value=0).named("w")
    with ngt.make_transformer() as writer, ngt.make_transformer() as reader:
        run = writer.computation(ng.assign(w, w + 1))
        reader.computation(w)
        writer.save(path)

        def write():
            for _ in range(100):
                run()
                writer.save(path)

        thread, last, seen = threading.Thread(target=write), 0.0, set()
        thread.start()
        while thread.is_alive():
            reader.restore(path)
            got = reader.get(w)
            assert (got == got[0]).all() and got[0] >= last
            last = got[0]
            seen.add(last)
        assert len(seen) > 3
