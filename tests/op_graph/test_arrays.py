"""Arrays that lie in files or in bytes: nobody copies them, and a file that changes is noticed."""

import os

import numpy as np
import pytest

import ngraph as ng
from ngraph.errors import ParseError
from ngraph.op_graph.arrays import ArrayRef, MappedFile, content_of, settled


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(np.arange(4096, dtype=np.float32).tobytes())
    return path


def floats(content, offset=0):
    return np.frombuffer(content, np.float32, 1024, offset)


def test_content_is_found_through_views(path):
    file = MappedFile.of(path)
    assert content_of(floats(file).reshape(32, 32)[3:].T) is file and MappedFile.of(path) is file
    assert content_of(np.zeros(1024)) is None and type(content_of(floats(bytes(4096)))) is bytes
    assert content_of(floats(bytearray(4096))) is None  # which can be written


def test_constants_of_files_are_not_copied(path):
    file = MappedFile.of(path)
    for array in (floats(file), floats(file, 3)):
        assert np.shares_memory(ArrayRef(array).array, array)
        assert np.shares_memory(ng.constant(array, [ng.make_axis(1024)]).attrs["value"].array, array)


def test_settled_arrays_leave_the_file_and_stand_at_a_line(path):
    array = floats(MappedFile.of(path), 12)
    own = settled(array)
    assert np.array_equal(own, array) and content_of(own) is None and own.ctypes.data % 64 == 0
    there = np.ones((4, 4))
    assert settled(there) is there and settled(there.T).flags.c_contiguous


@pytest.mark.parametrize("transformer", ["direct", "numpy", "cpu"])
def test_any_offset_computes(path, transformer):
    file, axis, out = MappedFile.of(path), ng.make_axis(32, name="A"), ng.make_axis(32, name="B")
    x = ng.placeholder([axis])
    given = np.linspace(-1, 1, 32, dtype=np.float32)
    for offset in (0, 4, 6, 7):
        w = floats(file, offset).reshape(32, 32)
        usable = np.nan_to_num(np.clip(w, -10, 10), posinf=0, neginf=0)
        y = ng.dot(ng.minimum(ng.maximum(ng.constant(w, [axis, out]), -10.0), 10.0), x)
        if np.isfinite(w).all():
            got = ng.transformers.make_transformer_factory(transformer)().computation(y, x)(given)
            np.testing.assert_allclose(got, given @ usable, rtol=1e-4, atol=1e-4)


def test_a_file_written_again_is_noticed(path):
    file = MappedFile.of(path)
    file.check()
    os.utime(path, ns=(1, 1))
    with pytest.raises(ParseError, match="has changed"):
        file.check()
    with pytest.raises(ParseError, match="has changed"):
        settled(floats(file))


def test_a_new_file_in_its_place_does_no_harm(path):
    file = MappedFile.of(path)
    other = path.with_name("other")
    other.write_bytes(b"short")
    os.replace(other, path)
    file.check()
    assert floats(file)[5] == 5


def test_an_empty_file_has_no_bytes(tmp_path):
    (tmp_path / "nothing").write_bytes(b"")
    assert MappedFile.of(tmp_path / "nothing") == b""
