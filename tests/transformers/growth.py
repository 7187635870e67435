"""Memory that programs keep, each measured in a process of its own: what other tests have left in this one comes and goes."""

import subprocess
import sys

import pytest

RESIDENT = """
def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096
"""
needs_statm = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")


def printed(program):
    """The whole numbers that a program prints; `resident()` in it gives the bytes of its process's resident memory."""
    done = subprocess.run([sys.executable, "-c", RESIDENT + program], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return list(map(int, done.stdout.split()))
