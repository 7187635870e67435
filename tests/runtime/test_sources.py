"""A changed module of ngraph's finds nothing of what was kept before it changed; nor does another LLVM, NumPy or Python."""

import os
import shutil
import subprocess
import sys
import textwrap
import time

import ml_dtypes
import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.runtime import cache as room
from ngraph.runtime import graph_cache, sources, tune
from ngraph.runtime.host import worker
from ngraph.targets import host

ELSE = {  # files of the package that are not modules, and why what was compiled depends on none of them
    "data/LICENSE.md": "words",
    "data/digits.npz": "numbers that programs take as arguments, or as constants, whose contents are in keys",
    "py.typed": "for type checkers",
    "tools/viewer.html": "a page that is shown",
}


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the package, by whose files this process goes."""
    home = tmp_path / "ngraph"
    shutil.copytree(sources.HOME, home, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sources, "HOME", str(home))
    monkeypatch.setattr(room, "BEGAN", time.time_ns() + 10**12)
    with ng.config(cache=str(tmp_path / "cache")):
        yield home


def said():
    return room.sources.__wrapped__()


def test_each_file_is_a_module_that_is_in_the_key_or_is_told(copy):
    paths = {os.path.relpath(os.path.join(folder, f), copy) for folder, _, files in os.walk(copy) for f in files}
    modules = set(sources.modules())
    assert paths - modules == set(ELSE) and len(modules) > 200
    first, seen = said(), set()
    for path in sorted(modules):
        content = (copy / path).read_bytes()
        (copy / path).write_bytes(content + b"\n# changed\n")
        seen.add(said())
        (copy / path).write_bytes(content)
    assert len(seen | {first}) == len(modules) + 1
    for path in ELSE:
        (copy / path).write_bytes(b"changed")
    assert said() == first


@pytest.mark.parametrize("change", ["new", "renamed", "gone", "compiled", "byte"])
def test_any_other_change_of_the_files_is_seen(copy, monkeypatch, change):
    monkeypatch.setattr(room, "COARSE", -(10**12))  # notes are taken
    first, file = said(), copy / "numpy_functions.py"
    content = file.read_bytes()
    if change == "new":
        (copy / "plan" / "more.py").write_text("")
    elif change == "renamed":
        file.rename(copy / "numpy_function.py")
    elif change == "gone":
        file.unlink()
    elif change == "compiled":
        file.rename(copy / "numpy_functions.pyc")
    else:  # of the same length, and with the same time of its last change
        before = file.stat()
        file.write_bytes(content.replace(b"np.minimum", b"np.maximum", 1))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert file.stat().st_size == before.st_size and file.stat().st_mtime_ns == before.st_mtime_ns and file.read_bytes() != content
    assert said() != first


def test_files_are_read_once(copy, monkeypatch):
    """The folder notes what they say, unless they are so new that the next change might leave the same time."""
    read = []
    true = sources.contents
    monkeypatch.setattr(room, "contents", lambda found: read.append(1) or true(found))
    first = said()
    assert said() == first and len(read) == 2
    monkeypatch.setattr(room, "COARSE", -(10**12))
    assert [said() for _ in range(3)] == [first] * 3 and len(read) == 3
    os.utime(copy / "numpy_functions.py")
    assert said() == first and len(read) == 4
    for note in os.scandir(os.path.join(ng.config.cache, "sources")):
        os.truncate(note.path, 7)
    assert said() == first and len(read) == 5


def test_where_no_files_are_nothing_is_found_again(copy):
    shutil.rmtree(copy)
    assert said() != said()


def test_what_else_makes_programs_is_in_the_key(monkeypatch):
    keys = {room.makers()}
    changes = (room, "sources", lambda: b"x"), (room, "compiler", lambda: b"x"), (np, "__version__", "x"), (ml_dtypes, "__version__", "x")
    for where, name, value in (*changes, (sys, "version", "x")):
        with monkeypatch.context() as other:
            other.setattr(where, name, value)
            keys.add(room._makers.__wrapped__())
    assert len(keys) == 6


def test_the_module_that_compiles_is_in_the_key_of_objects(tmp_path, monkeypatch):
    first = room.compiler.__wrapped__()
    assert first == room.compiler()
    with open(worker.__file__, "rb") as file:
        (tmp_path / "worker.py").write_bytes(file.read().replace(b"opt=3", b"opt=0"))
    monkeypatch.setattr(worker, "__file__", str(tmp_path / "worker.py"))
    assert room.compiler.__wrapped__() != first


def test_every_key_of_what_is_made_of_a_graph_holds_its_makers(monkeypatch):
    x = ng.placeholder([ng.make_axis(8, name="N")])
    f = ngt.make_transformer_factory("cpu")().computation(ng.exp(x), x)
    f(np.zeros(8))
    plan = f.native.chosen.plan

    def keys():
        graph = ngt.make_transformer_factory("cpu")().graph([ng.exp(x)], [x])
        return {graph.key, room.Cache("").plan_key(b"meaning", "facts"), tune._key(plan, plan.steps[0], host())}

    first = keys()
    for where in (room, graph_cache, tune):
        monkeypatch.setattr(where, "makers", lambda: b"another version")
    assert len(first | keys()) == 6


# ---- whole runs, in processes of their own

SCRIPT = """
import sys
import numpy as np
import ngraph as ng, ngraph.transformers as ngt
import ngraph.transformers.base as base
assert ng.__file__.startswith(sys.argv[1])
lowered, true = [], base.lower
base.lower = lambda *given, **named: lowered.append(1) or true(*given, **named)
x = ng.placeholder(())
values = ng.erf(ng.constant(np.linspace(-1, 1, 40), [ng.make_axis(40)]))  # folded
made = ng.tanh(x) + ng.sum(values * values, out_axes=())
f = ngt.make_transformer_factory("cpu")().computation([made, ng.deriv(made, x)], x)
if len(sys.argv) > 2:
    with open(sys.argv[2], "a") as file:
        file.write("# changed")
print(*[float(v) for v in f(0.5)], len(lowered))
"""
CHANGES = {  # module: what is changed in it, and what gives another value for it
    "numpy_functions.py": ("\ndef integer_power(", "\ntrue_erf = erf\nerf = lambda x: 2 * true_erf(x)\n\n\ndef integer_power("),
    "ops/elementwise.py": (
        '"Hyperbolic tangent.", np.tanh, lambda op, dy, x: dy * (1.0 - op * op)',
        '"Hyperbolic tangent.", np.tanh, lambda op, dy, x: dy * 7.0',
    ),
    "autodiff/backward.py": ("from __future__", "# nothing else\nfrom __future__"),
    "codegen/math.py": ("from __future__", "# nothing else\nfrom __future__"),
}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy that other processes run, and its folder for what is kept."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(sources.HOME, folder / "ngraph")
    return folder


def start(package, *changed):
    """Result, derivative, and how often a process had to make the program."""
    environment = {**os.environ, "NGRAPH_CACHE": str(package / "cache"), "PYTHONPATH": str(package), "CHECK": "", "DEBUG": "", "DUMP": ""}
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(package), *changed]
    made = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=package)
    assert made.returncode == 0, made.stderr
    value, slope, lowered = made.stdout.split()
    return float(value), float(slope), int(lowered)


def wanted(times=1.0, slope=None):
    erf = [
        times * sum(2 / np.sqrt(np.pi) * (-1) ** k * v ** (2 * k + 1) / (np.prod(np.arange(1.0, k + 1)) * (2 * k + 1)) for k in range(30))
        for v in np.linspace(-1, 1, 40)
    ]
    return np.tanh(0.5) + np.square(erf).sum(), 1 - np.tanh(0.5) ** 2 if slope is None else slope


def test_the_copy_finds_what_it_kept(package):
    first, second = start(package), start(package)
    assert first[:2] == second[:2] == pytest.approx(wanted(), rel=1e-6) and (first[2], second[2]) == (1, 0)


@pytest.mark.parametrize("path", CHANGES)
def test_a_changed_module_gives_its_own_values(package, path):
    start(package)
    file = package / "ngraph" / path
    content, (old, new) = file.read_text(), CHANGES[path]
    assert content.count(old) == 1
    file.write_text(content.replace(old, new))
    try:
        changed = start(package)
    finally:
        file.write_text(content)
    expected = wanted(times=2.0) if path == "numpy_functions.py" else wanted(slope=7.0) if path == "ops/elementwise.py" else wanted()
    assert changed[:2] == pytest.approx(expected, rel=1e-6) and changed[2] == 1
    assert start(package)[:2] == pytest.approx(wanted(), rel=1e-6)


def test_a_process_that_is_older_than_a_module_keeps_nothing(package):
    """What it runs is not what the file says by now."""
    shutil.rmtree(package / "cache", ignore_errors=True)
    file = package / "ngraph" / "plan" / "fuse.py"
    content = file.read_text()
    try:
        assert start(package, str(file))[2] == 1
        kept = set(os.listdir(package / "cache"))
        assert "objects" in kept and not kept & {"graphs", "plans"}
        assert start(package)[2] == 1 and start(package)[2] == 0
    finally:
        file.write_text(content)
