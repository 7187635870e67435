"""The command takes files of any format that is registered: here of an example's own, which no package reads."""

import json
import os
import shutil
from importlib import metadata

import numpy as np
import pytest
from small_format import STEPS

import ngraph.frontends.positional.formats as formats
from ngraph.tools import main as command

NODES = [
    {"op": "relu", "takes": ["h"], "gives": ["y"], "name": "last"},
    {"op": "matmul", "takes": ["x", "w"], "gives": ["h"], "name": "layer/product"},
]
FILE = {"name": "small", "inputs": {"x": ["float32", ["N", 3]]}, "outputs": ["y"], "arrays": {"w": [[1, 0], [0, -1], [1, 1]]}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("formats")
    (home / "good.steps").write_text(json.dumps({**FILE, "nodes": NODES}))
    (home / "other.steps").write_text(json.dumps({**FILE, "nodes": [{**NODES[0], "op": "add", "takes": ["h", "h"]}, NODES[1]]}))
    (home / "bad.steps").write_text(json.dumps({**FILE, "nodes": [{**NODES[0], "op": "relux"}, NODES[1]]}))
    np.savez(home / "in.npz", x=np.arange(6, dtype=np.float32).reshape(2, 3))
    return home


@pytest.fixture
def ngraph(folder, capsys, monkeypatch):
    """The command, called in this process, where the format is registered: exit code, what it prints, what it says of errors."""
    monkeypatch.chdir(folder)

    def call(*words):
        try:
            code = command.main(words)
        except SystemExit as stop:
            code = stop.code
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def test_a_file_is_run_measured_profiled_and_drawn(ngraph, tmp_path):
    code, out, err = ngraph("run", "good.steps", "--inputs", "in.npz")
    assert (code, err) == (0, "") and out == "y: float32[2, 2] 2.0, 1.0, 8.0, 1.0\n"
    assert ngraph("bench", "good.steps", "-t", "0.1")[0] == 0
    code, out, _ = ngraph("profile", "good.steps", "--shape", "x:64,3")
    assert code == 0 and "product" in out
    code, out, _ = ngraph("view", "good.steps", "-o", str(tmp_path / "good.html"))
    assert code == 0 and "3 boxes, 2 arrows" in out and "layer" in (tmp_path / "good.html").read_text()


def test_what_it_holds_and_what_cannot_be_read(ngraph):
    code, out, _ = ngraph("info", "good.steps", "--json")
    data = json.loads(out)
    assert code == 0 and data["ops"] == {"relu": 1, "matmul": 1} and data["parameters"] == 6 and data["nodes"] == 2
    assert data["inputs"] == [{"name": "x", "type": "float32", "shape": ["N", 3]}]
    assert ngraph("check", "good.steps")[:2] == (0, "good.steps: all 2 nodes can be run\n")
    code, _, err = ngraph("run", "bad.steps")
    assert code == 1 and "1 nodes of small cannot be translated" in err and "relux, node last" in err


def test_two_files_are_compared_node_by_node(ngraph):
    code, _, err = ngraph("diff", "good.steps", "other.steps", "--inputs", "in.npz")
    assert code == 1 and "node last (relu) is the first that differs: y" in err
    code, _, err = ngraph("diff", "good.steps", "good.steps", "--inputs", "in.npz")
    assert code == 1 and "other runtimes here do not read steps" in err and "ngraph convert" in err
    assert ngraph("bench", "good.steps", "--against", "onnxruntime")[0] == 1


def test_it_is_converted_to_onnx_and_not_back(ngraph, tmp_path):
    pytest.importorskip("onnx")
    made = str(tmp_path / "made.onnx")
    code, out, _ = ngraph("convert", "good.steps", made)
    assert code == 0 and "opset 20, " in out and "(good.steps: 2)" in out
    code, out, _ = ngraph("run", made, "--inputs", "in.npz")
    assert code == 0 and out == "y: float32[2, 2] 2.0, 1.0, 8.0, 1.0\n"
    code, _, err = ngraph("convert", made, str(tmp_path / "made.steps"))
    assert code == 1 and "steps files are read, not written" in err


def test_a_model_is_no_program(ngraph):
    code, _, err = ngraph("explain", "good.steps:f")
    assert code == 2 and "good.steps is a model, no program" in err


def test_formats_are_found_by_ending_and_registered_once():
    assert formats.of("a/b.STEPS") is STEPS and formats.of("b.onnx").name == formats.of("no_ending").name == "ONNX"
    with pytest.raises(ValueError, match="the format steps is registered already, for files that end in .steps"):
        formats.register(type("Again", (formats.Format,), {"name": "again", "endings": (".steps",)})())


class Folders(formats.Format):
    """Models that are folders with a file `model.steps`, as another package would have them."""

    name = "folders"

    def owns(self, path):
        return os.path.isfile(os.path.join(path, "model.steps"))

    def read(self, source, *options):
        return STEPS.read(os.path.join(source, "model.steps"), *options)


def test_a_package_adds_a_format_of_folders(ngraph, folder, monkeypatch):
    class Point:
        def load(self):
            if not any(f.name == "folders" for f in formats.FORMATS):
                formats.register(Folders())

    found = metadata.entry_points
    monkeypatch.setattr(formats, "FORMATS", list(formats.FORMATS))
    monkeypatch.setattr(metadata, "entry_points", lambda group: [Point()] if group == "ngraph.formats" else found(group=group))
    os.makedirs(folder / "saved")
    assert ngraph("run", "saved")[0] == 2  # a folder that nobody owns
    shutil.copy(folder / "good.steps", folder / "saved" / "model.steps")
    assert ngraph("run", "saved", "--inputs", "in.npz")[:2] == (0, "y: float32[2, 2] 2.0, 1.0, 8.0, 1.0\n")
