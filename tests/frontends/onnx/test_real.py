"""Models that nobody here wrote, run by the command and compared with ONNX Runtime; and files of a size that weights have."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("onnx")

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
RUNNER = os.path.join(os.path.dirname(ROOT), "shared", "models", "get_models.py")
CASES = ("mtcnn_p", "mtcnn_o", "magika", "silero_op18", "ocr_cls_v2")  # the quick ones of eleven; without --case all are run


@pytest.mark.skipif(not os.path.exists(RUNNER), reason="the runner of real models is not beside the project: ../shared/models")
def test_real_models_equal_onnx_runtime(tmp_path):
    venv = os.environ.get("NGRAPH_MODELS") or os.path.join(ROOT, "out", "models")  # kept, for to install the models takes a while
    command = f"env PYTHONPATH={ROOT} {sys.executable} -m ngraph.tools run {{model}} --inputs {{inputs}} --outputs {{outputs}}"
    asked = [a for case in CASES for a in ("--case", case)]
    told = str(tmp_path / "told.json")
    done = subprocess.run([sys.executable, RUNNER, venv, "--run", command, "--json", told, *asked], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    with open(told, encoding="utf-8") as file:
        assert {case: found["status"] for case, found in json.load(file).items()} == dict.fromkeys(CASES, "pass")


LARGE = """
import resource, sys
import numpy as np, onnx
from onnx import helper as h
import ngraph as ng

def status(field):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(field))

layers, side = 20, 2500  # 500 MB
F = onnx.TensorProto.FLOAT

def model(path, layers, side):
    nodes = [h.make_node("MatMul", [f"x{k}", f"w{k}"], [f"x{k + 1}"]) for k in range(layers)]
    ends = [h.make_tensor_value_info(name, F, ["N", side]) for name in ("x0", f"x{layers}")]
    graph = h.make_graph(nodes, "large", ends[:1], ends[1:])
    for k in range(layers):
        t = graph.initializer.add(name=f"w{k}", data_type=F, dims=[side, side], data_location=onnx.TensorProto.EXTERNAL)
        for key, value in {"location": path + ".data", "offset": k * side * side * 4, "length": side * side * 4}.items():
            t.external_data.add(key=key, value=str(value))
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9), path)
    with open(path + ".data", "wb") as file:
        file.truncate(layers * side * side * 4)  # a hole: it takes no disk

model("small.onnx", 2, 4)
ng.onnx.load("small.onnx").graph({"x0": (3, 4)})  # what is imported late is there now
model("large.onnx", layers, side)
before, spare = status("RssAnon"), 100 << 20
resource.setrlimit(resource.RLIMIT_DATA, (status("VmData") + spare, resource.RLIM_INFINITY))  # what would copy it fails
found = ng.onnx.load("large.onnx").graph({"x0": (3, side)})
assert [a.length for a in found.outputs[f"x{layers}"].axes][1:] == [side]
print(status("RssAnon") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is told apart by /proc")
def test_reading_half_a_gigabyte_of_external_data_takes_no_memory_of_its_own(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LARGE], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ROOT}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert os.path.getsize(tmp_path / "large.onnx.data") == 500_000_000 and int(done.stdout) < 100 << 20, done.stdout
