"""The index of model files: a later process runs what was compiled without reading the graph; nothing broken, foreign or old is taken."""

import contextvars
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper as h  # noqa: E402  all this needs what is looked for above

import ngraph as ng  # noqa: E402
import ngraph.transformers as ngt  # noqa: E402
from ngraph.errors import UnsupportedError  # noqa: E402
from ngraph.export.onnx.names import onnx_type  # noqa: E402
from ngraph.frontends.onnx import reading  # noqa: E402
from ngraph.frontends.onnx.proto import numpy_type  # noqa: E402
from ngraph.frontends.positional import index as room  # noqa: E402
from ngraph.frontends.positional.ports import About, Port  # noqa: E402
from ngraph.op_graph.dtypes import as_dtype  # noqa: E402
from ngraph.runtime import cache as caches  # noqa: E402
from tests.frontends.onnx.made import B, F, I, model  # noqa: E402

pytestmark = pytest.mark.skipif("cpu" not in ngt.transformer_choices(), reason="there is no machine code here")
RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.standard_normal((64, 300), np.float32)
TABLE = RANDOM.standard_normal((40, 300), np.float32)  # in a node
X = RANDOM.standard_normal((3, 64), np.float32)


def network(weight=WEIGHT):
    nodes = [
        h.make_node("MatMul", ["x", "w"], ["a"]),
        h.make_node("Constant", [], ["t"], value=onnx.numpy_helper.from_array(TABLE)),
        h.make_node("ReduceSum", ["t", "zero"], ["s"], keepdims=0),
        h.make_node("Gather", ["t", "which"], ["row"]),
        h.make_node("Add", ["a", "s"], ["b"]),
        h.make_node("Mul", ["b", "row"], ["c"]),
        h.make_node("Relu", ["c"], ["y"]),
    ]
    constants = {"w": weight, "zero": np.array([0]), "which": np.array(7)}
    return model(nodes, [("x", F, ["N", 64])], [("y", F, ["N", 300])], constants)


def answer(x=X, weight=WEIGHT):
    return np.maximum((x @ weight + TABLE.sum(0)) * TABLE[7], 0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache of its own; `folder.fresh()` forgets what this process has of it, as if another one started."""

    class Folder:
        path = str(tmp_path / "cache")

        def fresh(self):
            monkeypatch.setattr(caches, "_caches", {})

        def files(self, kind="models"):
            home = os.path.join(self.path, kind)
            return [os.path.join(home, f) for f in sorted(os.listdir(home))] if os.path.isdir(home) else []

    found = Folder()
    found.fresh()
    with ng.config(cache=found.path, debug=0, dump="", check=False):
        yield found


@pytest.fixture
def path(tmp_path):
    name = str(tmp_path / "model.onnx")
    onnx.save(network(), name)
    return name


def start(folder, path, x=X, wanted=None, **more):
    """How often a fresh process reads the graph for this call; its answer is right."""
    folder.fresh()
    m = ng.onnx.load(path, **more)
    np.testing.assert_allclose(m(x), answer(x) if wanted is None else wanted, rtol=1e-4, atol=1e-3)
    return m.readings


def elsewhere(program, folder, *arguments):
    """The exit status, the output and the errors of a program in a process of its own, with this cache."""
    environment = {**os.environ, "NGRAPH_CACHE": folder.path, "DEBUG": "0", "DUMP": "", "CHECK": "0"}
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout, done.stderr


def test_a_second_process_imports_neither_the_package_onnx_nor_llvm(folder, path, tmp_path):
    assert start(folder, path) == 1
    np.save(tmp_path / "x.npy", X)
    program = (
        "import sys, numpy as np, ngraph as ng\n"
        "m = ng.onnx.load(sys.argv[1])\n"
        "y = m(np.load(sys.argv[2])); again = m.run({'x': np.load(sys.argv[2])})['y']\n"
        "assert (y == again).all() and m.readings == 0\n"
        "print([n for n in ('onnx', 'google.protobuf', 'llvmlite', 'ngraph.frontends.onnx.reading') if n in sys.modules])\n"
        "np.save(sys.argv[2], y)"
    )
    assert elsewhere(program, folder, path, str(tmp_path / "x.npy")) == (0, "[]\n", "")
    assert np.array_equal(np.load(tmp_path / "x.npy"), ng.onnx.load(path)(X))  # bit for bit


def test_reading_a_file_imports_only_the_messages_of_onnx(folder, path, tmp_path):
    np.save(tmp_path / "x.npy", X)
    program = (
        "import sys, numpy as np, ngraph as ng\n"
        "x = np.load(sys.argv[2])\n"
        "m = ng.onnx.load(sys.argv[1]); y = m(x)\n"
        "print(m.readings, 'onnx' in sys.modules)\n"
        "import onnx, onnx.onnx_ml_pb2\n"
        "model = onnx.load(sys.argv[1])\n"
        "assert type(model) is onnx.onnx_ml_pb2.ModelProto and (ng.onnx.load(model)(x) == y).all()"
    )
    assert elsewhere(program, folder, path, str(tmp_path / "x.npy")) == (0, "1 False\n", "")


@pytest.mark.parametrize("number", onnx.TensorProto.DataType.values())
def test_element_types_are_those_of_the_package(number):
    name = onnx.TensorProto.DataType.Name(number)
    if name == "UNDEFINED":
        with pytest.raises(UnsupportedError, match="data type 0"):
            numpy_type(number)
    else:
        assert numpy_type(number) == onnx.helper.tensor_dtype_to_np_dtype(number)
        if name not in ("STRING", "COMPLEX64", "COMPLEX128"):
            assert onnx_type(as_dtype(numpy_type(number))) == number


def test_a_call_of_other_lengths_reads_the_graph(folder, path):
    assert start(folder, path) == 1 and start(folder, path) == 0
    m = ng.onnx.load(path)
    for n in (3, 5, 1, 3, 7):
        x = RANDOM.standard_normal((n, 64), np.float32)
        np.testing.assert_allclose(m(x), answer(x), rtol=1e-4, atol=1e-3)
    assert start(folder, path, X[:1]) == 1 and start(folder, path, X[:1]) == 0 and start(folder, path) == 0


@pytest.mark.parametrize("ways", [("first", "open"), ("open", "first")])
def test_code_for_known_lengths_is_not_found_for_open_ones(folder, path, ways):
    """What another process compiled under another setting has other sums, and serves other lengths."""
    for k, way in enumerate((*ways, *ways)):
        with ng.config(lengths=way):
            assert start(folder, path) == (k < 2), way


def test_arguments_that_do_not_fit_as_they_are_come_to_fit(folder, path):
    assert start(folder, path) == 1 and start(folder, path) == 0
    m = ng.onnx.load(path)
    m(X)
    wide = np.zeros((3, 128), np.float32)
    wide[:, ::2] = X
    for x in (wide[:, ::2], np.asfortranarray(X), X.tolist(), X.astype(np.float64)):
        np.testing.assert_allclose(m(x), answer(), rtol=1e-4, atol=1e-3)
    assert m.readings == 0
    with pytest.raises(ng.NgraphError, match=r"got the shape \[3, 63\]"):
        m(X[:, 1:])


def test_results_are_the_callers(folder, path):
    start(folder, path)
    folder.fresh()
    m = ng.onnx.load(path)
    first = m(X)
    kept = first.copy()
    m(2 * X)[:] = 5
    assert np.array_equal(first, kept) and np.array_equal(m(X), kept)


def test_large_arrays_are_not_stored_twice(folder, path):
    start(folder, path)
    sizes = [os.path.getsize(f) for f in folder.files()]
    assert len(sizes) == 2 and sum(sizes) < 4000 < WEIGHT.nbytes


def test_arrays_that_reading_made_are_stored(folder, tmp_path):
    path = str(tmp_path / "folded.onnx")
    nodes = [h.make_node("Transpose", ["w"], ["v"]), h.make_node("MatMul", ["x", "v"], ["y"])]
    onnx.save(model(nodes, [("x", F, ["N", 300])], [("y", F, None)], {"w": WEIGHT}), path)
    x = RANDOM.standard_normal((2, 300), np.float32)
    assert [start(folder, path, x, x @ WEIGHT.T) for _ in range(2)] == [1, 0]


def test_another_file_of_the_same_name_has_its_own_answer(folder, path):
    assert start(folder, path) == 1
    onnx.save(network(WEIGHT + 1), path)
    assert [start(folder, path, wanted=answer(weight=WEIGHT + 1)) for _ in range(2)] == [1, 0]
    copy = path + ".copy"
    onnx.save(network(), copy)
    assert start(folder, copy) == 0  # what counts is the content


def test_external_data_that_changes_is_seen(folder, tmp_path):
    def save(weight):
        onnx.save(network(weight), path, save_as_external_data=True, location="data.bin", size_threshold=1000)

    path = str(tmp_path / "model.onnx")
    save(WEIGHT)
    assert [start(folder, path) for _ in range(2)] == [1, 0]
    os.remove(tmp_path / "data.bin")
    save(WEIGHT * 2)
    assert [start(folder, path, wanted=answer(weight=WEIGHT * 2)) for _ in range(2)] == [1, 0]
    os.remove(tmp_path / "data.bin")
    with pytest.raises(ng.NgraphError, match="is not there"):
        start(folder, path)


def test_large_files_are_told_by_their_time(folder, path, monkeypatch):
    monkeypatch.setattr(room, "MAX_HASHED_BYTES", 1000)
    assert [start(folder, path) for _ in range(2)] == [1, 0]
    os.utime(path, ns=(0, 12345))
    assert start(folder, path) == 1


@pytest.mark.parametrize(
    "change",
    [{"exact": False}, {"winograd": False}, {"debug": 1}],
    ids=["exact", "winograd", "debug"],
)
def test_other_settings_have_other_entries(folder, path, change, capsys):
    assert start(folder, path) == 1
    with ng.config(**change):
        assert start(folder, path) == 1
    assert start(folder, path) == 0


def test_settings_that_change_between_load_and_call_are_seen(folder, path):
    start(folder, path)
    folder.fresh()
    m = ng.onnx.load(path)
    with ng.config(exact=False):
        m(X)
    assert m.readings == 1 and len(folder.files()) == 2


def test_what_reads_graphs_is_in_the_key(folder, path, monkeypatch):
    assert start(folder, path) == 1
    for name, other in (("installed", lambda package: b"another package"), ("makers", lambda: b"another version")):
        with monkeypatch.context() as m:
            m.setattr(room, name, other)
            assert start(folder, path) == 1
    assert start(folder, path) == 0


def test_other_transformers_passes_and_variables_have_none(folder, path):
    start(folder, path)
    for name in ("numpy", "direct"):
        assert start(folder, path, transformer=ngt.make_transformer_factory(name)()) == 1
    own = ngt.make_transformer_factory("cpu")()
    own.register_graph_pass(lambda program: program)
    assert start(folder, path, transformer=own) == 1
    assert start(folder, path, trainable="*") == 1
    with ng.config(cache=""):
        assert start(folder, path) == 1


def body(*nodes):
    return h.make_graph(nodes, "body", [], [h.make_empty_tensor_value_info("r")])


NEG, SUM = h.make_node("Neg", ["x"], ["r"]), h.make_node("ReduceSum", ["x"], ["r"], keepdims=0)
VALUES = {
    "a branch that a value decides": (
        h.make_node("If", ["c"], ["y"], then_branch=body(NEG), else_branch=body(SUM)),
        {"x": X, "c": np.array(True)},
        -X,
    ),
    "a shape that is an input": (h.make_node("Reshape", ["x", "s"], ["y"]), {"x": X, "s": np.array([-1])}, X.ravel()),
    "an output that is an input": (h.make_node("Identity", ["x"], ["y"]), {"x": X}, X),
}


@pytest.mark.parametrize("what", VALUES)
def test_models_that_values_lead_have_none(folder, tmp_path, what):
    node, feeds, wanted = VALUES[what]
    kinds = {"f": F, "i": I, "b": B}
    path = str(tmp_path / "values.onnx")
    onnx.save(model([node], [(k, kinds[a.dtype.kind], a.shape) for k, a in feeds.items()], [("y", F, None)]), path)
    for _ in range(2):
        folder.fresh()
        m = ng.onnx.load(path)
        assert np.array_equal(m.run(feeds)["y"], wanted) and m.readings == 1
    assert not folder.files()


def test_a_length_that_a_step_finds_is_no_hindrance(folder, tmp_path):
    path, x = str(tmp_path / "found.onnx"), (X > 0).astype(np.float32)
    onnx.save(model([h.make_node("NonZero", ["x"], ["y"])], [("x", F, [3, 64])], [("y", I, None)]), path)
    assert [start(folder, path, some, np.array(np.nonzero(some))) for some in (x, 1 - x, 0 * x)] == [1, 0, 0]


# ---- broken entries


def altered(data, how):
    if how == "cut off":
        return data[:-7]
    if how == "only begun":
        return data[:3]
    if how == "empty":
        return b""
    if how == "another version":
        return b"ngraph 0" + data[8:]
    changed = bytearray(data)
    changed[len(data) - 20] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("how", ["cut off", "only begun", "empty", "another version", "a bit changed"])
@pytest.mark.parametrize("kind", ["models", "plans", "objects"])
def test_a_broken_entry_is_made_again(folder, path, kind, how):
    assert start(folder, path) == 1
    for file in folder.files(kind):
        with open(file, "rb") as f:
            data = f.read()
        with open(file, "wb") as f:
            f.write(altered(data, how))
    assert start(folder, path) == (kind != "objects")  # objects are compiled again from the plan
    assert start(folder, path) == 0


def test_entries_that_changed_places_are_made_again(folder, path):
    assert start(folder, path) == 1
    a, b = folder.files()
    os.rename(a, a + "~")
    os.rename(b, a)
    os.rename(a + "~", b)
    assert [start(folder, path) for _ in range(2)] == [1, 0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_an_entry_of_another_user_is_made_again(folder, path):
    assert start(folder, path) == 1
    for file in folder.files():
        os.chown(file, 12345, -1)
    assert [start(folder, path) for _ in range(2)] == [1, 0]


GIVEN = ["", "[]", "3", "{}", "null", "{", '{"about": 3, "files": 4}', '{"kept": [1], "arrays": [[[9, 9], "float32", [2]]], "takes": 1}']
PARTS = {
    "kept": [None, [], ["zz", 1, []], ["00", 1, []], ["", -1, [[5, 5]]]],
    "arrays": [None, [], [[[0, 1 << 70], "float32", [300]]], [[[7, 0], "float32", [300]]], [[[0, 0], "float99", [-300]]]],
    "takes": [None, 5],
    "order": [None, 5],
    "about": [None, [], ["a"], ["a", [], [], [[1]]]],
    "files": [None, 3, {"nowhere": "00"}],
}


def rewritten(folder, change):
    """Every entry with other content under a right checksum."""
    for file in folder.files():
        with open(file, "rb") as f:
            head, _, stored = f.read()[caches.HEAD.size :].partition(b"\n")
        caches.cache().folder.put("models", {bytes.fromhex(os.path.basename(file)): change(head, stored)})


@pytest.mark.parametrize("text", GIVEN)
def test_an_entry_that_says_nothing_is_made_again(folder, path, text):
    assert start(folder, path) == 1
    rewritten(folder, lambda head, stored: text.encode() + b"\n" + stored)
    assert [start(folder, path) for _ in range(2)] == [1, 0]


@pytest.mark.parametrize("part", PARTS)
def test_an_entry_with_one_wrong_part_is_made_again(folder, path, part):
    assert start(folder, path) == 1
    for wrong in PARTS[part]:

        def change(head, stored, wrong=wrong):
            entry = json.loads(head)
            return json.dumps({**entry, part: wrong} if part in entry else entry).encode() + b"\n" + stored

        rewritten(folder, change)
        assert start(folder, path) == 1, wrong
        assert start(folder, path) == 0


def test_a_file_that_changed_since_it_was_loaded_is_not_read_by_halves(folder, path):
    start(folder, path)
    folder.fresh()
    m = ng.onnx.load(path)
    m(X)
    os.remove(path)
    onnx.save(model([h.make_node("Neg", ["z"], ["y"])], [("z", F, [2])], [("y", F, [2])]), path)
    assert m(X).shape == (3, 300)
    with pytest.raises(ng.NgraphError, match="has changed since it was loaded"):
        m(X[:2])


def test_threads_find_it_at_once(folder, path):
    start(folder, path)
    folder.fresh()
    m, found = ng.onnx.load(path), []
    meet = threading.Barrier(4)

    def call():
        meet.wait(30)
        found.extend([m(X) for _ in range(10)])

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(call,)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 40 and m.readings == 0 and all(np.array_equal(y, found[0]) for y in found)


def test_ports_are_written_and_read():
    numbers = [n for n in onnx.TensorProto.DataType.values() if n != onnx.TensorProto.UNDEFINED]
    values = [h.make_tensor_value_info(f"p/{n}:0 ü", n, [1, "N", None]) for n in numbers]
    values.append(h.make_tensor_sequence_value_info("list", F, None))
    about = About("named", tuple([reading.port(v) for v in values]), (), (Port("y", "any", None, None, "tensor"),))
    assert room.ported(json.loads(json.dumps([about.name, *room.written(about)]))) == about
