"""`ngraph cache` and `ngraph doctor`, as a user calls them."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

import ngraph
from ngraph.targets import host, runnable
from ngraph.tools import doctor

USED = """
from ngraph.runtime.cache import cache
from ngraph.targets import host
text = "define i64 @kernel() {\\n  ret i64 1\\n}\\n"
for _ in range(3):
    cache().here.clear()
    cache().object(text, host())
"""


@pytest.fixture
def command(tmp_path):
    def run(*arguments, **environment):
        done = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "NGRAPH_CACHE": str(tmp_path / "cache"), **environment},
            stdin=subprocess.DEVNULL,
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_cache_lists_and_clears(command, tmp_path):
    verb = ("-m", "ngraph.tools", "cache")
    assert command(*verb)[0] == 0 and not (tmp_path / "cache").exists()
    assert command("-c", USED)[0] == 0
    data = json.loads(command(*verb, "--json")[1])
    assert data["folder"] == str(tmp_path / "cache") and (data["hits"], data["misses"]) == (2, 1)
    assert data["kinds"]["objects"]["count"] == 1 and 200 < data["kinds"]["objects"]["bytes"] < 5000
    out = command(*verb)[1]
    assert "objects   1  " in out and "found 2 of 3 requested entries" in out
    assert command(*verb, "clear")[1] == f"dropped 1 entries of {tmp_path / 'cache'}\n"
    data = json.loads(command(*verb, "--json")[1])
    assert data["kinds"]["objects"] == {"count": 0, "bytes": 0} and data["hits"] == 0
    assert command(*verb, "burn")[0] == 2


def test_cache_without_a_folder(command, tmp_path):
    for verb in (("cache",), ("cache", "clear")):
        code, out, _ = command("-m", "ngraph.tools", *verb, NGRAPH_CACHE="off")
        assert code == 0 and out.startswith("nothing is kept")


def test_the_folder_is_that_of_the_user(command, tmp_path):
    where = "from ngraph.config import config; print(config.cache)"
    assert command("-c", where)[1] == f"{tmp_path / 'cache'}\n"
    environment = {k: v for k, v in os.environ.items() if k not in ("NGRAPH_CACHE", "XDG_CACHE_HOME")}

    def said(**more):
        return subprocess.run([sys.executable, "-c", where], capture_output=True, text=True, env={**environment, **more}).stdout.strip()

    assert said(XDG_CACHE_HOME="/var/x") == "/var/x/ngraph"
    assert said(XDG_CACHE_HOME="x", HOME="/home/u") == "/home/u/.cache/ngraph"  # a relative one does not count
    assert said(NGRAPH_CACHE="0") == ""


def test_doctor_says_what_there_is(command, tmp_path):
    code, out, _ = command("-m", "ngraph.tools", "doctor")
    assert code == 0 and f"target     {runnable()[-1]}" in out and "not measured" in out and str(tmp_path / "cache") in out
    data = json.loads(command("-m", "ngraph.tools", "doctor", "--json", NGRAPH_NUM_THREADS="1", NGRAPH_TARGET=runnable()[0])[1])
    assert data["machine"]["threads"] == "1 (NGRAPH_NUM_THREADS=1)" and data["machine"]["target"].startswith(runnable()[0])
    assert data["packages"]["ngraph"] == ngraph.__version__ and data["limits"] is None
    assert data["transformers"]["cpu"] == data["transformers"]["direct"] == "works here"


def test_doctor_says_both_sizes_of_a_third_cache_that_others_share(monkeypatch):
    monkeypatch.setattr(doctor, "caches", lambda: {"l3": 480 << 20})
    shared, whole = (doctor.machine_facts(replace(host(), l3=size << 20))["caches"] for size in (32, 480))
    assert "L3 32,768 KiB of 491,520 KiB that the system reports" in shared
    assert "L3 491,520 KiB, lines" in whole


def test_doctor_measures_once(command):
    data = json.loads(command("-m", "ngraph.tools", "doctor", "--measure", "--json")[1])
    assert 1e8 < data["limits"]["memory"] < 1e13 and 1e8 < data["limits"]["flops"] < 1e14 and 0 < data["limits"]["launch"] < 1
    again = json.loads(command("-m", "ngraph.tools", "doctor", "--json")[1])
    assert again["limits"] == data["limits"]


def test_a_target_that_is_not_here_is_refused(command):
    code, _, err = command("-m", "ngraph.tools", "doctor", NGRAPH_TARGET="z80")
    assert code == 1 and "there are host, x86-64-v2" in err
    other = "aarch64" if "aarch64" not in runnable() else "x86-64-v2"
    code, _, err = command("-m", "ngraph.tools", "doctor", NGRAPH_TARGET=other)
    assert code == 1 and f"it can run {', '.join(runnable())}" in err
