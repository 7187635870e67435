"""Code is generated for Linux. Elsewhere all but the transformer `cpu` works, and says so once."""

import os
import platform
import subprocess
import sys

import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph import targets
from ngraph.errors import UnsupportedError

PROGRAM = """
import builtins, ctypes, importlib.metadata, io, json, mmap, os, platform, signal, subprocess, sys, tempfile, threading, warnings
import ml_dtypes, numpy, safetensors.numpy
system = sys.argv[1]
if system == "win32":  # what Python has not got there
    for module in ("fcntl", "resource", "pwd", "grp", "termios"):
        sys.modules[module] = None
    absent = {
        os: ["sched_getaffinity", "register_at_fork", "geteuid", "getuid", "fork", "O_NOFOLLOW", "O_CLOEXEC", "uname", "sysconf"],
        mmap: [n for n in dir(mmap) if n.startswith(("MAP_", "PROT_", "MADV_"))],
    }
else:
    absent = {os: ["sched_getaffinity"]}
for module, names in absent.items():
    for name in names:
        delattr(module, name)
sys.platform = system
true = open
def opened(file, *more, **named):
    if str(file).startswith(("/proc", "/sys")):
        raise FileNotFoundError(file)
    return true(file, *more, **named)
builtins.open = io.open = opened

import ngraph as ng, ngraph.transformers as ngt
print(*ngt.transformer_choices())
x, w = ng.placeholder(()), ng.variable((), initial_value=2.0)
with warnings.catch_warnings(record=True) as seen:
    for _ in range(2):
        transformer = ngt.make_transformer()
print(len(seen), seen[0].filename, str(seen[0].message).splitlines()[0])
run = transformer.computation([x * w, ng.assign(w, w + 1)], x)
transformer.save(sys.argv[2])
print(transformer.name, run(3.0)[0], run(3.0)[0])
transformer.restore(sys.argv[2])
print(run(3.0)[0])
try:
    ngt.make_transformer_factory("cpu")
except ng.errors.UnsupportedError as error:
    print(str(error).split(": ", 1)[1].splitlines()[0])
from ngraph.tools.main import main
assert main(["cache"]) == main(["doctor"]) == 0
import ngraph.frontends.neon
"""


@pytest.mark.parametrize("system, name", [("win32", "Windows"), ("darwin", "macOS")])
def test_elsewhere_numpy_runs(system, name, tmp_path):
    environment = {**os.environ, "NGRAPH_TRANSFORMER": "", "NGRAPH_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM, system, str(tmp_path / "a.safetensors")]
    made = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert made.returncode == 0, made.stderr
    why = f"transformer 'cpu' cannot be had here: it generates code for Linux, and this is {name}"
    lines = made.stdout.splitlines()
    assert lines[:5] == ["direct numpy", f"1 <string> {why}; 'numpy' runs instead", "numpy 6.0 9.0", "6.0", why]
    assert any("target" in line and "none: it generates code for Linux" in line for line in lines)


def test_nothing_is_said_where_it_runs_or_was_chosen(monkeypatch, recwarn):
    with ng.config(transformer=""):
        assert ngt.make_transformer().name == "cpu"
    monkeypatch.setattr(sys, "platform", "win32")
    with ng.config(transformer="numpy"):
        assert ngt.make_transformer().name == "numpy"
    assert not [w for w in recwarn if "transformer" in str(w.message)]
    with ng.config(transformer="", strict=True), pytest.raises(UnsupportedError, match="Windows; 'numpy' runs instead"):
        ngt.make_transformer()


def test_other_processors_have_no_code_either(monkeypatch):
    for machine in ("x86_64", "AMD64", "aarch64", "arm64"):
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        assert targets.missing() == ""
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert targets.missing() == "it generates code for x86-64 and aarch64, and this is riscv64"
    assert "cpu" not in ngt.transformer_choices()


def test_the_metadata_say_linux():
    home = os.path.dirname(os.path.dirname(os.path.abspath(ng.__file__)))
    with open(os.path.join(home, "pyproject.toml"), encoding="utf-8") as file:
        said = [line.strip(' ",\n') for line in file if "Operating System" in line]
    assert said == ["Operating System :: POSIX :: Linux"]
