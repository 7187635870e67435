"""Checkpoints and damaged files: what is written is read, and what is damaged is refused with a clear error."""

import os
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import scipy.special

import ngraph as ng
from ngraph.errors import ArgumentError, FileError, GraphError, NgraphError, ParseError, UnsupportedError
from ngraph.frontends.positional import leveldb
from ngraph.frontends.tensorflow import bundle
from ngraph.frontends.tensorflow.messages import classes


def arrays():
    r = np.random.default_rng(3)
    kinds = ("float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool", "float16")
    made = {f"layer_{k}/kernel:{kind}": r.integers(0, 2, (k, 3)).astype(kind) for k, kind in enumerate(kinds)}
    return made | {"scalar": np.float32(2.5), "none": np.zeros((0, 4), np.float32), "bf": np.ones(3, ng.bfloat16.np)}


def test_a_checkpoint_comes_back(tmp_path):
    given = arrays()
    ng.tensorflow.save_checkpoint(tmp_path / "model", given)
    found = ng.tensorflow.load_checkpoint(tmp_path / "model")
    assert sorted(found) == sorted(given) and len(found) == len(given)
    for name, array in given.items():
        got = found.get_tensor(name)
        assert got.dtype == np.asarray(array).dtype
        np.testing.assert_array_equal(got, array)
    assert found.get_variable_to_shape_map()["none"] == [0, 4]
    assert ng.tensorflow.load_checkpoint(tmp_path).prefix == found.prefix  # a folder's latest


def test_the_key_of_a_slice_is_tensorflows():
    """OrderedCode: 0 becomes 0 and 255, a text ends with 0 and 1 (tensorflow/core/lib/strings/ordered_code.h)."""
    whole = classes()["TensorSliceProto"]()
    whole.extent.add()
    assert bundle._slice_key("a\0b", whole) == b"\0a\0\xffb\0\1\1\1\x80\x7f"


def test_many_names_fill_several_blocks(tmp_path):
    given = {f"a/{'x' * 60}/{k:05d}": np.full(2, k, np.int32) for k in range(4000)}
    ng.tensorflow.save_checkpoint(tmp_path / "many", given)
    found = ng.tensorflow.load_checkpoint(tmp_path / "many")
    assert len(found) == 4000 and all(found.get_tensor(n)[0] == a[0] for n, a in given.items())


def test_what_is_missing(tmp_path):
    with pytest.raises(FileError, match="there is no checkpoint"):
        ng.tensorflow.load_checkpoint(tmp_path / "none")
    ng.tensorflow.save_checkpoint(tmp_path / "m", {"weights": np.zeros(3)})
    found = ng.tensorflow.load_checkpoint(tmp_path / "m")
    with pytest.raises(NgraphError, match="has no array 'weight'"):
        found.get_tensor("weight")
    (tmp_path / "m.data-00000-of-00001").unlink()
    with pytest.raises(FileError, match="which holds 'weights', cannot be read"):
        ng.tensorflow.load_checkpoint(tmp_path / "m").get_tensor("weights")


def test_changed_data_are_noticed(tmp_path):
    ng.tensorflow.save_checkpoint(tmp_path / "m", {"weights": np.zeros(3)})
    path = tmp_path / "m.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(ParseError, match="data and checksum do not agree"):
        ng.tensorflow.load_checkpoint(tmp_path / "m").get_tensor("weights")


def test_damaged_indices_are_refused(tmp_path):
    """Every byte changed, and every length cut: an error of ours, or an index that still is right."""
    ng.tensorflow.save_checkpoint(tmp_path / "m", arrays())
    whole = (tmp_path / "m.index").read_bytes()
    r = np.random.default_rng(5)
    refused = 0
    for k in range(len(whole)):
        damaged = bytearray(whole[: k + 1] if k % 3 == 0 else whole)
        damaged[k] ^= int(r.integers(1, 256))
        (tmp_path / "m.index").write_bytes(damaged)
        try:
            found = ng.tensorflow.load_checkpoint(tmp_path / "m")
            for name, array in arrays().items():
                np.testing.assert_array_equal(found.get_tensor(name), array)
        except NgraphError:
            refused += 1
    assert refused > len(whole) * 0.9


def test_damaged_graphs_are_refused(models):
    """Random changes of a saved model: it runs, or an error of ours says why not."""
    data = (models / "mlp" / "saved_model.pb").read_bytes()
    with np.load(models / "mlp.npz") as file:
        x = file["x"]
    r = np.random.default_rng(7)
    ends = {"ran": 0, "refused": 0}
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(int(r.integers(1, 4))):
            damaged[int(r.integers(len(damaged)))] = int(r.integers(256))
        if r.integers(4) == 0:
            damaged = damaged[: int(r.integers(len(damaged)))]
        (models / "mlp" / "saved_model.pb").write_bytes(damaged)
        try:
            ng.tensorflow.load(models / "mlp")(x)
            ends["ran"] += 1
        except NgraphError:
            ends["refused"] += 1
        finally:
            (models / "mlp" / "saved_model.pb").write_bytes(data)
    assert ends["refused"] > 10, ends


def test_strings_that_disagree_with_their_checksum(tmp_path):
    """Of a checkpoint that TensorFlow wrote, one bit of a string is turned."""
    with zipfile.ZipFile(os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded", "tables.zip")) as file:
        file.extractall(tmp_path)
    prefix = str(tmp_path / "tables" / "variables" / "variables")
    name = "counts/.ATTRIBUTES/table-keys"
    assert ng.tensorflow.load_checkpoint(prefix).get_tensor(name).tolist() == [b"seen"]
    shard = f"{prefix}.data-00000-of-00001"
    with open(shard, "rb") as file:
        data = file.read()
    assert data.count(b"seen") == 1
    with open(shard, "wb") as file:
        file.write(data.replace(b"seen", b"seem"))
    with pytest.raises(ParseError, match="table-keys.*data and checksum do not agree"):
        ng.tensorflow.load_checkpoint(prefix).get_tensor(name)


def test_a_block_with_more_restarts_than_bytes(tmp_path):
    ng.tensorflow.save_checkpoint(tmp_path / "m", {"weights": np.zeros(3)})
    index = tmp_path / "m.index"
    data = index.read_bytes()
    rows = leveldb.packed_block(list(leveldb.table(data, "m", bundle._checksum)))
    assert data.startswith(rows)
    changed = rows[:-4] + (1 << 20).to_bytes(4, "little") + b"\0"
    index.write_bytes(changed + bundle._checksum(changed).to_bytes(4, "little") + data[len(rows) + 5 :])
    with pytest.raises(ParseError, match="more restarts than bytes"):
        ng.tensorflow.load_checkpoint(tmp_path / "m")


def test_a_reduction_that_names_a_dim_twice():
    """Refused, as TensorFlow does ("Axes contains duplicate dimension"), however often it is named."""
    graph = classes()["GraphDef"]()
    x = graph.node.add(name="x", op="Placeholder")
    x.attr["dtype"].type = 1
    for size in (2, 3):
        x.attr["shape"].shape.dim.add(size=size)
    axes = graph.node.add(name="axes", op="Const")
    axes.attr["dtype"].type = axes.attr["value"].tensor.dtype = 3
    axes.attr["value"].tensor.tensor_shape.dim.add(size=1 << 20)
    axes.attr["value"].tensor.int_val.append(-1)
    graph.node.add(name="y", op="Mean", input=["x", "axes"]).attr["T"].type = 1
    model = ng.tensorflow.load(graph.SerializeToString())
    with pytest.raises(GraphError, match="names one of them twice"):
        model.run(["y:0"], {"x:0": np.ones((2, 3), np.float32)})


@pytest.mark.parametrize(("op", "low", "high"), [("Erfc", -3.0, 9.0), ("Ndtri", 1e-30, 0.999)])
def test_ends_of_special_functions_keep_their_digits(op, low, high):
    graph = classes()["GraphDef"]()
    graph.node.add(name="x", op="Placeholder").attr["dtype"].type = 1
    graph.node.add(name="y", op=op, input=["x"]).attr["T"].type = 1
    x = np.concatenate([np.linspace(low, high, 99), np.geomspace(1e-30, 0.5, 50)]).astype(np.float32)
    (y,) = ng.tensorflow.load(graph.SerializeToString()).run(["y:0"], {"x:0": x})
    np.testing.assert_allclose(y, getattr(scipy.special, op.lower())(x.astype(np.float64)), 2e-6)


def flattened(shape):
    """A graph that makes one row of a placeholder; shape: what it says of the placeholder, None for nothing."""
    graph = classes()["GraphDef"]()
    x, row = graph.node.add(name="x", op="Placeholder"), graph.node.add(name="row", op="Const")
    x.attr["dtype"].type, x.attr["shape"].shape.unknown_rank = 1, shape is None
    for size in shape or ():
        x.attr["shape"].shape.dim.add(size=size)
    row.attr["dtype"].type = row.attr["value"].tensor.dtype = 3
    row.attr["value"].tensor.tensor_shape.dim.add(size=2)
    row.attr["value"].tensor.int_val.extend([1, 6])
    graph.node.add(name="y", op="Reshape", input=["x", "row"]).attr["T"].type = 1
    return graph


def test_lengths_of_a_placeholder_hold_where_its_signature_leaves_them_open(tmp_path):
    meta = classes()["MetaGraphDef"]()
    meta.graph_def.CopyFrom(flattened([1, -1, 3]))
    signature = meta.signature_def["serving_default"]
    signature.outputs["y"].name, signature.outputs["y"].dtype = "y:0", 1
    for key, sizes in (("open", [-1, 2, -1]), ("nothing", None)):
        info = signature.inputs["x"]
        info.Clear()
        info.name, info.dtype, info.tensor_shape.unknown_rank = "x:0", 1, sizes is None
        for size in sizes or ():
            info.tensor_shape.dim.add(size=size)
        (tmp_path / f"{key}.meta").write_bytes(meta.SerializeToString())
        (port,) = ng.tensorflow.load(tmp_path / f"{key}.meta").inputs
        assert port.shape == ((1, 2, 3) if sizes else (1, None, 3))
    model = ng.tensorflow.load(tmp_path / "open.meta")
    ng.onnx.save(model, tmp_path / "model.onnx")
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    np.testing.assert_array_equal(ng.onnx.load(tmp_path / "model.onnx")(x), x.reshape(1, 6))
    with pytest.raises(ArgumentError, match="x"):
        model(np.zeros((2, 2, 3), np.float32))


def test_an_input_of_unknown_rank_is_exported_with_given_dims(tmp_path):
    model, path = ng.tensorflow.load(flattened(None).SerializeToString()), tmp_path / "model.onnx"
    with pytest.raises(UnsupportedError, match="does not say how many dims x has"):
        ng.onnx.save(model, path)
    ng.onnx.save(model, path, shapes={"x": (1, 2, 3)})
    exported = ng.onnx.load(path)
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    assert exported.inputs[0].shape == (1, 2, 3)
    np.testing.assert_array_equal(exported(x), x.reshape(1, 6))


# ---- starts of later processes


@pytest.fixture
def index(tmp_path):
    """A folder for compiled programs, of this test alone."""
    with ng.config(cache=str(tmp_path / "cache"), debug=0, dump="", check=False):
        yield str(tmp_path / "cache")


def copied(models, tmp_path, name="copy"):
    return shutil.copytree(models / "cnn", tmp_path / name)


def called(path, x):
    model = ng.tensorflow.load(path)
    return model(x), model.readings


@pytest.fixture
def cnn(models):
    port = ng.tensorflow.load(models / "cnn").inputs[0]
    return np.random.default_rng(1).random([2 if n is None or isinstance(n, str) else n for n in port.shape]).astype(np.float32)


def test_a_second_process_reads_no_graph_and_imports_no_protobuf(models, tmp_path, index, cnn):
    path = copied(models, tmp_path)
    wanted, readings = called(path, cnn)
    assert readings == 1
    np.save(tmp_path / "x.npy", cnn)
    program = (
        "import sys, numpy as np, ngraph as ng\n"
        "m = ng.tensorflow.load(sys.argv[1])\n"
        "y = m(np.load(sys.argv[2]))\n"
        "assert m.readings == 0, m.readings\n"
        "print([n for n in ('google.protobuf', 'llvmlite', 'ngraph.frontends.tensorflow.reading') if n in sys.modules])\n"
        "np.save(sys.argv[2], y)\n"
        "assert sorted(m.signatures) and m.signature == 'serving_default' and m.readings == 0\n"  # these are read from the file
    )
    environment = {**os.environ, "NGRAPH_CACHE": index, "DEBUG": "0", "DUMP": "", "CHECK": "0"}
    command = [sys.executable, "-c", program, str(path), str(tmp_path / "x.npy")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
    assert np.array_equal(np.load(tmp_path / "x.npy"), wanted)


def test_the_index_knows_the_checkpoint_and_the_signature(models, tmp_path, index, cnn):
    path, other = copied(models, tmp_path), copied(models, tmp_path, "other")
    wanted, _ = called(path, cnn)
    found = ng.tensorflow.load(other).file.checkpoint
    held = {n: a for n in found if not (a := found.get_tensor(n)).dtype.hasobject}
    held = {n: a * np.float32(0.5) if a.dtype == np.float32 else a for n, a in held.items()}  # the same graph with other weights
    ng.tensorflow.save_checkpoint(tmp_path / "new", held)
    for end in ("index", "data-00000-of-00001"):
        os.replace(tmp_path / f"new.{end}", other / "variables" / f"variables.{end}")
    different, readings = called(other, cnn)
    assert readings == 1 and not np.allclose(different, wanted)
    again, readings = called(path, cnn)
    assert readings == 0 and np.array_equal(again, wanted)
    with pytest.raises(NgraphError, match="has no signature 'none'"):
        ng.tensorflow.load(path, signature="none")
    assert called(path, cnn[:1])[1] == 1  # of another length


def test_a_value_that_no_branch_keeps_is_an_error_of_the_model(tmp_path):
    (tmp_path / "none.pbtxt").write_text(
        'node { name: "none" op: "OptionalNone" } node { name: "y" op: "OptionalGetValue" input: "none"'
        ' attr { key: "output_types" value { list { type: DT_FLOAT } } } attr { key: "output_shapes" value { list { shape { } } } } }'
    )
    with pytest.raises(UnsupportedError, match="has only where it is taken"):
        ng.tensorflow.load(tmp_path / "none.pbtxt").run(None, {})
