"""A file without the data of its large tensors is the same model, and the data is where it says."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ngraph as ng
from ngraph.errors import ParseError
from ngraph.frontends.onnx import proto, wire
from ngraph.op_graph.arrays import content_of


def model(width=64, **more):
    random = np.random.default_rng(0)
    arrays = {"w": random.standard_normal((width, width), np.float32), "b": random.standard_normal(width, np.float32)}
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, name) for name, a in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], **more), arrays


def test_the_rest_of_the_model_is_the_same():
    full, arrays = model(doc_string="é" * 300, producer_name="p")
    content = full.SerializeToString()
    found, home = proto.read(content)
    assert len(wire.skeleton(content)) < 2000 < len(content)
    for t in found.graph.initializer:
        a = proto.array(t, home)
        assert np.array_equal(a, arrays[t.name]) and type(content_of(a)) is bytes
    for t in (*full.graph.initializer, *found.graph.initializer):
        t.ClearField("raw_data"), t.ClearField("external_data"), t.ClearField("data_location")
    assert found == full


def inside():
    """A model whose large tensors are in nodes: of the graph, of a branch, of a function."""
    random = np.random.default_rng(2)
    arrays = [random.standard_normal((64, 64), np.float32) for _ in range(4)]

    def constant(k, name):
        return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(arrays[k], f"t{k}"))

    def branch(k):
        nodes = [constant(k, "b"), helper.make_node("MatMul", ["h", "b"], ["r"])]
        return helper.make_graph(nodes, f"branch{k}", [], [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)])

    opset = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    function = helper.make_function(
        "own", "times", ["a"], ["c"], [constant(1, "w"), helper.make_node("MatMul", ["a", "w"], ["c"])], opset[:1]
    )
    graph = helper.make_graph(
        [
            constant(0, "w"),
            helper.make_node("MatMul", ["x", "w"], ["g"]),
            helper.make_node("times", ["g"], ["h"], domain="own"),
            helper.make_node("If", ["c"], ["y"], then_branch=branch(2), else_branch=branch(3)),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=opset, functions=[function]), arrays


def tensors(model):
    """The tensors of a model, those of its nodes too."""

    def of_nodes(nodes):
        for a in [a for n in nodes for a in n.attribute]:
            if a.HasField("t"):
                yield a.t
            yield from of_nodes(a.g.node)

    found = [*model.graph.initializer, *of_nodes(model.graph.node)]
    return [*found, *[t for f in model.functions for t in of_nodes(f.node)]]


@pytest.mark.parametrize("chosen", [0, 1])
def test_tensors_of_nodes_stay_in_the_file(chosen, tmp_path):
    full, (w, own, *branches) = inside()
    onnx.save(full, tmp_path / "m.onnx")
    found, home = proto.read(tmp_path / "m.onnx")
    assert found.ByteSize() < 2500 < full.ByteSize()
    assert all(content_of(proto.array(t, home)) is home.content for t in tensors(found))
    x = np.random.default_rng(0).standard_normal((3, 64), np.float32)
    y = ng.onnx.load(tmp_path / "m.onnx")(x=x, c=np.array(not chosen))
    np.testing.assert_allclose(y, x @ w @ own @ branches[chosen], rtol=1e-4, atol=1e-3)


def test_an_attribute_that_is_given_twice_is_left_whole():
    """A parser merges both values: the later data counts."""
    attribute = helper.make_attribute("value", numpy_helper.from_array(np.zeros(4096, np.float32)))
    later = onnx.AttributeProto(t=TensorProto(raw_data=np.ones(4096, np.float32).tobytes()))
    twice = attribute.SerializeToString() + later.SerializeToString()
    node = wire.message(5, twice) + onnx.NodeProto(op_type="Constant", output=["y"]).SerializeToString()
    content = helper.make_model(onnx.GraphProto(name="g")).SerializeToString() + wire.message(7, wire.message(1, node))
    found = proto.parsed(wire.skeleton(content), "the model")
    assert proto.array(found.graph.node[0].attribute[0].t, proto.Home("", content))[4095] == 1


@pytest.mark.parametrize("made", [model, inside])
def test_damaged_bytes_never_pass_for_others(made):
    """Whatever is cut or changed, the skeleton parses where the whole does, to the same tensors, and fails where it fails."""
    content = made()[0].SerializeToString()
    random = np.random.default_rng(1)
    for _ in range(400):
        bad = bytearray(content)
        if random.random() < 0.3:
            del bad[int(random.integers(len(bad))) :]
        edge = (*range(200), *range(len(bad) - 400, len(bad)))  # where the fields are
        for _ in range(int(random.integers(1, 4))):
            bad[int(random.choice(edge)) % len(bad)] = int(random.integers(256))
        bad = bytes(bad)
        try:
            whole = proto.parsed(bad, "the model")
        except ParseError:
            with pytest.raises(ParseError):
                proto.parsed(wire.skeleton(bad), "the model")
            continue
        found = proto.parsed(wire.skeleton(bad), "the model")
        assert len(tensors(found)) == len(tensors(whole))
        for a, b in zip(tensors(found), tensors(whole), strict=True):
            values = []
            for t in (a, b):
                try:
                    values.append(proto.array(t, proto.Home("", bad)).tobytes())
                except Exception as error:
                    values.append(type(error))
            assert values[0] == values[1] or a.data_location == b.data_location == 1


def test_a_changed_file_is_refused(tmp_path):
    full, arrays = model()
    onnx.save(full, tmp_path / "m.onnx")
    m, x = ng.onnx.load(tmp_path / "m.onnx"), np.ones((2, 64), np.float32)
    (tmp_path / "m.onnx").write_bytes(b"now something else")
    with pytest.raises(ParseError, match="has changed"):
        m(x)
    onnx.save(full, tmp_path / "m.onnx")
    m = ng.onnx.load(tmp_path / "m.onnx")
    want = m(x)
    np.testing.assert_allclose(want, x @ arrays["w"] + arrays["b"], rtol=1e-4, atol=1e-4)
    (tmp_path / "m.onnx").write_bytes(b"")
    assert np.array_equal(m(x), want)  # what it needed, it has


def test_many_tensors_of_one_file_take_one_map(tmp_path):
    arrays = [np.full(2048, k, np.float32) for k in range(1500)]  # more than a process may have files open
    graph = helper.make_graph(
        [helper.make_node("Sum", [f"w{k}" for k in range(1500)], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2048])],
        [numpy_helper.from_array(a, f"w{k}") for k, a in enumerate(arrays)],
    )
    full = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    onnx.save(full, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    found, home = proto.read(tmp_path / "m.onnx")
    read = [proto.array(t, home) for t in found.graph.initializer]
    assert len({id(content_of(a)) for a in read}) == 1 and len(os.listdir("/proc/self/fd")) < 1000


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
def test_large_weights_take_no_memory_beside_what_is_packed(tmp_path):
    """A file of 64 MB, in a process of its own: reading it takes next to nothing, a call one packed copy."""
    full, _ = model(4096)
    onnx.save(full, tmp_path / "m.onnx")
    script = f"""
        import numpy as np, ngraph as ng

        def own():
            return {{l.split()[0]: int(l.split()[1]) >> 10 for l in open("/proc/self/status") if "kB" in l}}["RssAnon:"]

        ng.exp  # ngraph itself is loaded when a name of it is used
        before = own()
        m = ng.onnx.load({str(tmp_path / "m.onnx")!r})
        read = own() - before
        m(np.ones((2, 4096), np.float32))
        print(read, own() - before)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    read, called = map(int, done.stdout.split())
    assert read < 20 and called < 64 + 40, (read, called)


def beside(path, data_type, dims, **about):
    """Writes a model that gives one tensor, whose data lies elsewhere."""
    held = TensorProto(name="w", data_type=data_type, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in about.items():
        held.external_data.add(key=key, value=str(value))
    result = helper.make_tensor_value_info("y", data_type, None)
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [result], [held])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11).SerializeToString())
    return path


def test_data_without_a_length_is_as_long_as_its_tensor(tmp_path):
    content = np.arange(12, dtype=np.float32)
    (tmp_path / "d").write_bytes(content.tobytes())
    for dims, offset, kind, wanted in (
        ([2, 3], 8, TensorProto.FLOAT, content[2:8].reshape(2, 3)),
        ([0, 3], 0, TensorProto.FLOAT, np.zeros((0, 3), np.float32)),
        ([2], 0, TensorProto.INT64, content[:4].view(np.int64)),
    ):
        path = beside(tmp_path / "m.onnx", kind, dims, location="d", offset=offset)
        np.testing.assert_array_equal(ng.onnx.load(path).run({})["y"], wanted)
        np.testing.assert_array_equal(numpy_helper.to_array(proto.whole(path).graph.initializer[0]), wanted)
    (tmp_path / "d").write_bytes(bytes([0x21, 0x43, 0x65]))
    path = beside(tmp_path / "m.onnx", TensorProto.UINT4, [3], location="d", offset=1)
    assert ng.onnx.load(path).run({})["y"].astype(int).tolist() == [3, 4, 5]


@pytest.mark.parametrize(
    "about, said",
    [
        ({}, "in a file without a name"),
        ({"location": "d", "offset": 4096}, "lies at 4096 to 4144 of 'd', which has 48 bytes"),
        ({"location": "d", "offset": -4}, "lies at -4 to 44 of 'd'"),
        ({"location": "d", "offset": 2**70}, "which has 48 bytes"),
        ({"location": "d", "offset": 40, "length": -8}, "lies at 40 to 32"),
    ],
)
def test_data_that_lies_nowhere(about, said, tmp_path):
    (tmp_path / "d").write_bytes(bytes(48))
    with pytest.raises(ParseError, match=said):
        ng.onnx.load(beside(tmp_path / "m.onnx", TensorProto.FLOAT, [12], **about)).run({})


def test_a_model_of_links_has_its_data_where_the_files_are(tmp_path):
    """The cache of a model hub: a folder of links to files in another, model and data side by side there as well."""
    files, links, other = (tmp_path / name for name in ("files", "links", "other"))
    for folder in (files, links, other):
        folder.mkdir()
    content = np.arange(4, dtype=np.float32)
    (files / "bb").write_bytes(content.tobytes())
    beside(files / "aa", TensorProto.FLOAT, [4], location="m.data")
    for name, at in (("m.onnx", "aa"), ("m.data", "bb")):
        (links / name).symlink_to(files / at)
    assert ng.onnx.load(links / "m.onnx").run({})["y"].tolist() == content.tolist()
    assert proto.whole(links / "m.onnx").graph.initializer[0].raw_data == content.tobytes()
    beside(other / "m.onnx", TensorProto.FLOAT, [4], location="m.data")
    (other / "m.data").symlink_to(files / "bb")
    with pytest.raises(ParseError, match="outside the model's folder"):
        ng.onnx.load(other / "m.onnx").run({})
