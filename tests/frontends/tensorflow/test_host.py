"""Ops on strings, tables, images and examples, with the answers that TensorFlow gave (`record_host.py`)."""

import os

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import GraphError, NgraphError, ParseError, UnsupportedError

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded")
with np.load(os.path.join(HERE, "host.npz"), allow_pickle=True) as file:
    RECORDED = {key: file[key] for key in file.files}
GRAPHS = sorted(key[: -len("|graph")] for key in RECORDED if key.endswith("|graph"))
FAST = 8  # units by which TensorFlow's INTEGER_FAST differs
LOOSE = {"StatelessTruncatedNormal_float16": 1e-3}


@pytest.fixture(scope="module", params=["cpu", "direct"])
def transformer(request):
    with ngt.make_transformer_factory(request.param)() as made:
        yield made


def ran(key, transformer, feeds=None):
    names = [str(n) for n in RECORDED[f"{key}|names"]]
    at = names.index("->")
    model = ng.tensorflow.load(RECORDED[f"{key}|graph"].tobytes(), transformer)
    given = {name: RECORDED[f"{key}|in{k}"] if feeds is None else feeds[k] for k, name in enumerate(names[:at])}
    return model.run(names[at + 1 :], given), model


def same(found, want, key):
    assert np.asarray(found).shape == want.shape, key
    if want.dtype == object or want.dtype.kind == "S":
        assert np.asarray(found).astype(object).tolist() == want.astype(object).tolist()
        return
    assert found.dtype == want.dtype
    if key in ("DecodeImage", "DecodeImage_wide"):
        unit = {"f": 1 / 255, "u": 256 if want.itemsize == 2 else 1}[want.dtype.kind]
        assert np.abs(found.astype(float) - want).max() / unit <= FAST + 0.01
    elif want.dtype.kind == "f" and "Normal" in key:
        np.testing.assert_allclose(found, want, rtol=LOOSE.get(key, 2e-5), atol=1e-6)
    else:
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("key", GRAPHS)
def test_answers(transformer, key):
    found, model = ran(key, transformer)
    for k, y in enumerate(found):
        same(y, RECORDED[f"{key}|out{k}"], key)
    assert model.host_callbacks or "Normal" in key


@pytest.mark.parametrize("key", ["StringMoves", "StringShapes", "ReduceJoin", "StringLength", "StringToHashBucketFast", "DecodePng3"])
def test_other_lengths_of_the_same_model(key):
    """A second call with other lengths gives what it alone gives."""
    with ngt.make_transformer() as transformer:
        _, model = ran(key, transformer)
        names = [str(n) for n in RECORDED[f"{key}|names"]]
        at = names.index("->")
        first = RECORDED[f"{key}|in0"]
        other = np.concatenate([first] * 2, axis=-1) if key == "ReduceJoin" else first[:2] if first.ndim else RECORDED["DecodePng1|in0"]
        others = [other, *(RECORDED[f"{key}|in{k}"] for k in range(1, at))]
        found = model.run(names[at + 1 :], dict(zip(names[:at], others, strict=True)))
        alone, _ = ran(key, transformer, others)
        for a, b in zip(found, alone, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)


def test_tables(tables, transformer):
    want = dict(np.load(tables / "tables.npz", allow_pickle=True))
    model = ng.tensorflow.load(tables / "tables", transformer)
    for _ in range(2):
        found = model.signatures["look"](words=want["words"])
        for key, value in zip(sorted(k for k in want if k.startswith("look|")), found, strict=True):
            same(value, want[key], key)
    for turn in range(2):
        found = model.signatures["count"](words=np.array([b"seen", b"new"], object))
        for key, value in zip(("many", "now"), found, strict=True):
            same(value, want[f"count{turn}|{key}"], key)


def test_a_bitmap_whose_first_row_comes_first(transformer):
    """A negative height turns the rows round (TensorFlow 2.21 itself ends on such a file)."""
    up = RECORDED["DecodeBmp3|in0"][()]
    height = int.from_bytes(up[22:26], "little")
    down = up[:22] + (-height).to_bytes(4, "little", signed=True) + up[26:]
    found, _ = ran("DecodeBmp3", transformer, [np.array(down, object)])
    assert np.array_equal(found[0], RECORDED["DecodeBmp3|out0"][::-1])


def test_text_is_taken_for_bytes(transformer):
    found, _ = ran("StringLength", transformer, [np.array(["abc", "ä"])])
    assert [list(y) for y in found] == [[3, 2], [3, 1]]


def test_none_and_no_strings(transformer):
    found, _ = ran("StringSplitV2", transformer, [np.zeros(0, object)])
    assert [y.shape for y in found] == [(0, 2), (0,), (2,)] * 2
    found, _ = ran("StringToHashBucketFast", transformer, [np.zeros(0, object)])
    assert [y.shape for y in found] == [(0,), (0,)]


@pytest.mark.parametrize(
    "key, feeds, error, said",
    [
        ("StringToNumber", [np.array([b"1x"], object), np.array([b"1"], object)], GraphError, "is not a number"),
        ("StringToNumber", [np.array([b"99999999999"], object), np.array([b"1"], object)], GraphError, "does not fit into int32"),
        ("Substr", [np.array([b"a"], object)], NgraphError, "of a string of 1"),
        (
            "UnsortedSegmentJoin",
            [RECORDED["UnsortedSegmentJoin|in0"], np.array([4, 0], np.int32)],
            GraphError,
            "has the number 4, and there",
        ),
        ("DecodeRaw", [np.array([b"abc", b"d"], object)], GraphError, "bytes are not rows"),
        ("DecodePng3", [np.array(b"no image", object)], GraphError, "are not an image"),
        ("RegexReplace_given", [np.array([b"a"], object), np.array(b"(", object)], UnsupportedError, "is not a pattern"),
        ("ParseExampleV2", [np.array([b"\xff\xff"], object)], ParseError, "is not a valid Example"),
        ("ParseExampleV2", [np.array([b""], object)], GraphError, "has no feature 'a'"),
        ("ParseSingleExample_old", [np.array([b""], object)], GraphError, "has no feature 'a'"),
        ("DecodeBmp3", [np.array(b"BM" + bytes(60), object)], GraphError, "0 bits a pixel"),
        ("DecodeBmp3", [RECORDED["DecodeBmp4|in0"]], GraphError, "32 bits a pixel is read as 3 channels"),
        ("DecodeBmp3", [np.array(RECORDED["DecodeBmp3|in0"][()][:-30], object)], GraphError, "is the file cut off"),
        ("DecodeBmp3", [RECORDED["DecodePng3|in0"]], GraphError, "are not a BMP file"),
    ],
)
def test_wrong_input(key, feeds, error, said):
    with ngt.make_transformer() as transformer, pytest.raises(error, match=said):
        ran(key, transformer, feeds)


def test_an_asset_outside_of_the_folder(tables, tmp_path):
    import shutil

    shutil.copytree(tables / "tables", tmp_path / "m")
    at = tmp_path / "m" / "saved_model.pb"
    data = at.read_bytes()
    assert data.count(b"vocabulary.txt") >= 1
    at.write_bytes(data.replace(b"vocabulary.txt", b"../../../x.txt"))
    with pytest.raises(ParseError, match="is outside"):
        ng.tensorflow.load(tmp_path / "m")


def test_damaged_models_run_or_are_refused(tmp_path):
    """A few mutants of each kind; tests/frontends/tensorflow/mutations.py takes thousands."""
    import random

    from tests.frontends.tensorflow import mutations

    parents = list(mutations.sources())
    ended = set()
    for k in range(40):
        rng = random.Random(f"few {k}")
        mutant = (mutations.by_bytes, mutations.by_fields)[k % 2](rng.choice(parents), rng, parents)
        ended.add(mutations.taken(mutant, str(tmp_path), "direct"))
    assert {"run", "refused in the run"} <= ended <= {"run", "read", "refused", "refused in the run"}


def test_a_restore_function_without_values_is_an_error_of_ours(tables, tmp_path):
    import shutil

    from ngraph.frontends.tensorflow.messages import classes

    shutil.copytree(tables / "tables", tmp_path / "m")
    at = tmp_path / "m" / "saved_model.pb"
    saved = classes()["SavedModel"]()
    saved.ParseFromString(at.read_bytes())
    for function in saved.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            if node.op == "AssignVariableOp":
                del node.input[1:]
    at.write_bytes(saved.SerializeToString())
    with pytest.raises(ParseError, match="cannot be read"):
        ng.tensorflow.load(tmp_path / "m")
