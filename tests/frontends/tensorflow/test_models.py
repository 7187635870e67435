"""Whole models that TensorFlow saved: their answers, variables, signatures, sessions; and the command on them."""

import json
import re
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest

import ngraph as ng
from ngraph.errors import ArgumentError, FileError, UnsupportedError

NAMES = ("mlp", "cnn", "embedding", "attention", "lstm", "gru", "convlstm")


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_model_gives_its_answers(models, name):
    with np.load(models / f"{name}.npz") as file:
        x, y, two = file["x"], file["y"], file["two"]
    model = ng.tensorflow.load(models / name)
    for _ in range(2):
        np.testing.assert_allclose(model(x), y, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(model(x[:2]), two, rtol=1e-5, atol=1e-6)
    assert model.readings == 1 and not model.host_callbacks  # one reading serves every batch, and Python runs nothing


def test_a_convolution_with_channels_last_is_not_moved(models):
    """A layout is an order of dims: the plan has no kernel that only copies an image."""
    with np.load(models / "cnn.npz") as file:
        x = file["x"]
    model = ng.tensorflow.load(models / "cnn")
    ((computation, _),) = model.reader.computations(model.about.bound({model.inputs[0].name: x}))
    plan = str(dict(computation.stages())["allocate"])
    kernels = [k for k in plan.split("\nkernel")[1:] if " read %b0" in k]  # those that read the image
    assert kernels
    for kernel in kernels:
        assert any(" = " in line and "= read" not in line for line in kernel.splitlines()), kernel  # they compute, none only copies


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_a_loop_carries_what_its_turns_change(models, name):
    """The sequence, the weights and the counters stay outside of the loop, which is a scan of a counted number of turns."""
    with np.load(models / f"{name}.npz") as file:
        x = file["x"]
    model = ng.tensorflow.load(models / name)
    ((computation, _),) = model.reader.computations(model.about.bound({model.inputs[0].name: x}))
    plan = str(dict(computation.stages())["allocate"])
    carried = [int(number) for number in re.findall(r"routine scan\(.*|carries: (\d+)", plan) if number]
    assert "routine while" not in plan and len(carried) == 2  # two layers, or directions
    assert max(carried) <= {"lstm": 3, "gru": 2}[name]  # the states, and the last output


def test_variables_are_written_and_shared_by_signatures(models, tmp_path):
    with np.load(models / "counter.npz") as file:
        a, b, totals, losses, w = (file[k] for k in ("a", "b", "totals", "losses", "w"))
    model = ng.tensorflow.load(models / "counter")
    assert sorted(model.signatures) == ["add", "train"]
    for want in totals:
        np.testing.assert_allclose(model.signatures["add"](a), want, rtol=1e-5)
    found = [float(model.signatures["train"](a=a[: 5 - k % 2], b=b[: 5 - k % 2])) for k in range(20)]  # Adam, batches of 5 and 4
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    np.testing.assert_allclose(model.value("w"), w, rtol=1e-5)

    model.save_checkpoint(tmp_path / "after")
    checkpoint = ng.tensorflow.load_checkpoint(tmp_path / "after")
    np.testing.assert_array_equal(checkpoint.get_tensor("w/.ATTRIBUTES/VARIABLE_VALUE"), model.value("w"))
    before = model.signatures["add"](a)
    np.testing.assert_allclose(before - totals[-1], (a @ model.value("w")).sum(0), rtol=1e-4)  # `add` sees the trained weights


def test_a_meta_graph_with_its_checkpoint_runs_as_a_session(models):
    """Also partitioned variables, and values fed in the middle of the graph."""
    with np.load(models / "old.npz") as file:
        x, hidden, y, w = (file[k] for k in ("x", "hidden", "y", "w"))
    model = ng.tensorflow.load(models / "old" / "model.meta")
    assert [p.name for p in model.inputs] == ["x"] and [p.name for p in model.outputs] == ["y"]
    np.testing.assert_allclose(model(x), y, rtol=1e-5, atol=1e-6)
    for found, want in zip(model.run(["hidden:0", "y:0"], {"x:0": x}), (hidden, y), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.run(["y:0"], {"hidden:0": hidden})[0], y, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(model.value("w"), w)
    with pytest.raises(ArgumentError, match="has no value 'hiden:0'"):
        model.run(["hiden:0"], {"x:0": x})


def test_training_a_saved_model(models):
    """Its variables are trained by ngraph's own gradients, which NumPy confirms by differences."""
    with np.load(models / "mlp.npz") as file:
        x = file["x"]
    model = ng.tensorflow.load(models / "mlp", trainable="*")
    graph = model.graph({model.inputs[0].name: x.shape})
    (y,) = graph.outputs.values()
    (given,) = graph.inputs.values()
    loss = ng.sum(y * y, out_axes=())
    name, variable = next((n, v) for n, v in graph.variables.items() if len(v.axes) == 2)
    step = model.transformer.computation([loss, ng.deriv(loss, variable)], given)
    first, slope = step(x)
    value = model.value(name).astype(np.float64)
    model.transformer.set(variable, (value - 1e-2 * slope).astype(np.float32))
    assert step(x)[0] < first


def test_lists_of_what_is_there():
    with pytest.raises(FileError, match="is not a SavedModel"):
        ng.tensorflow.load(".")
    with pytest.raises(FileError, match="cannot be read"):
        ng.tensorflow.load("nowhere.pb")
    with pytest.raises(ArgumentError, match="from a path, not from int"):
        ng.tensorflow.load(3)


def test_wrong_names(models):
    with pytest.raises(ArgumentError, match="no signature 'train'"):
        ng.tensorflow.load(models / "mlp", signature="train")
    with pytest.raises(ArgumentError, match="no graph with the tags gpu"):
        ng.tensorflow.load(models / "mlp", tags="gpu")
    model = ng.tensorflow.load(models / "mlp")
    with pytest.raises(ArgumentError, match="got the shape"):
        model(np.zeros((3, 7), np.float32))


def test_all_ops_without_a_translation_are_named(models):
    from ngraph.frontends.tensorflow.saved import opened

    file = opened(models / "mlp")
    proto = type(file.proto)()
    proto.CopyFrom(file.proto)
    for function in proto.library.function:
        for node in function.node_def:
            if node.op == "MatMul":
                node.op = "MatMull"
    with pytest.raises(UnsupportedError) as caught:
        ng.tensorflow.load(proto.SerializeToString())
    assert str(caught.value).count("MatMull, node") >= 2 and "the nearest is MatMul" in str(caught.value)


def command(*words):
    return subprocess.run([sys.executable, "-m", "ngraph", *map(str, words)], capture_output=True, text=True, timeout=120)


def test_the_command_runs_and_converts(models, tmp_path):
    with np.load(models / "cnn.npz") as file:
        x, y = file["x"], file["y"]
    np.savez(tmp_path / "in.npz", keras_tensor=x)
    info = command("info", models / "cnn")
    name = info.stdout.split("input   ")[1].split(":")[0]
    np.savez(tmp_path / "in.npz", **{name: x})
    ran = command("run", models / "cnn", "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
    assert ran.returncode == 0, ran.stderr
    with np.load(tmp_path / "out.npz") as file:
        np.testing.assert_allclose(file["output_0"], y, rtol=1e-5, atol=1e-6)
    written = command("convert", models / "cnn", tmp_path / "cnn.onnx")
    assert written.returncode == 0, written.stderr
    session = onnxruntime.InferenceSession(tmp_path / "cnn.onnx")
    np.testing.assert_allclose(session.run(None, {session.get_inputs()[0].name: x})[0], y, rtol=1e-5, atol=1e-6)
    checked = command("check", models / "cnn")
    assert checked.returncode == 0 and json.dumps(checked.stdout)
