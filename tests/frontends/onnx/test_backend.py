"""A part of onnx's own tests; all of them by `make onnx`, or ONNX_BACKEND=all."""

import os
import subprocess
import sys
import zlib

import pytest

pytest.importorskip("onnx")
from backend import cases

PART = 1 if os.environ.get("ONNX_BACKEND") == "all" else 16
globals().update(cases(__name__, lambda name: zlib.crc32(name.encode()) % PART == 0))

ALONE = """
import sys, numpy, onnx
from onnx import helper
from ngraph import onnx_backend
node = helper.make_node("Add", ["x", "y"], ["z"])
print(onnx_backend.run_node(node, [numpy.ones(2, "f4"), numpy.ones(2, "f4")])[0], onnx_backend.supports_device("CPU"))
print([m for m in sys.modules if m.startswith(("onnxruntime", "onnx.reference"))])
"""


def test_no_other_runtime_is_loaded():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    assert done.stdout == "[2. 2.] True\n[]\n"
