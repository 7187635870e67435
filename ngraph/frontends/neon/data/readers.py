"""Readers of data sets as they lie on disk. A file that is not what it should be is named, with what was expected and what was found."""

from __future__ import annotations

import io
import os
import pickle
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from ngraph.data.mnist import read_idx
from ngraph.errors import ParseError

Array = np.ndarray


def refuse(path: str, expected: str, found: str) -> ParseError:
    return ParseError(f"{path}: expected {expected}, found {found}", fix="delete the file, or put a whole one in its place")


# ---- pickles without code -----------------------------------------------------------------------------------------------

_HARMLESS = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0] for core in ("core", "_core")},
    ("_codecs", "encode"): lambda text, encoding: text.encode("latin1"),
}


class Restricted(pickle.Unpickler):
    """Unpickles numbers, texts, lists, dicts and arrays; anything else is refused, so no code of a file ever runs."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _HARMLESS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, and only arrays are allowed") from None


def unpickle(path: str, content: bytes | None = None) -> Any:
    """What a pickle file of plain data holds; texts of Python 2 are bytes. Raises ParseError naming the file."""
    if content is None:
        with open(path, "rb") as file:
            content = file.read()
    try:
        return Restricted(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # what broken pickles raise is not to be foreseen
        raise refuse(path, "a whole pickle of arrays", f"{type(error).__name__}: {error}") from None


# ---- images -------------------------------------------------------------------------------------------------------------


def idx_pair(folder: str, prefix: str) -> tuple[Array, Array]:
    """(images, labels) of a part of MNIST or Fashion-MNIST, plain or gzipped, as bytes. Raises FileNotFoundError, ParseError."""
    found = []
    for kind, rank in (("images-idx3", 3), ("labels-idx1", 1)):
        names = [f"{prefix}-{kind}-ubyte{end}" for end in ("", ".gz")] + [f"{prefix}-{kind.replace('-', '.')}-ubyte"]
        path = next((p for n in names if os.path.exists(p := os.path.join(folder, n))), None)
        if path is None:
            raise FileNotFoundError(f"{folder} has none of {', '.join(names)}")
        found.append((path, read_idx(path, rank)))
    (_, images), (path, labels) = found
    if len(images) != len(labels):
        raise refuse(path, f"{len(images):,} labels, one per image", f"{len(labels):,}")
    return images, labels


def _cifar_binary(paths: list[str], labels: int, classes: int) -> tuple[Array, Array]:
    images, numbers = [], []
    size = labels + 3072
    for path in paths:
        raw = np.fromfile(path, np.uint8)
        if not raw.size or raw.size % size:
            raise refuse(path, f"records of {size} bytes, {labels} of them labels", f"{raw.size:,} bytes, which is no multiple")
        rows = raw.reshape(-1, size)
        if rows[:, labels - 1].max() >= classes:
            raise refuse(path, f"labels from 0 to {classes - 1}", str(rows[:, labels - 1].max()))
        images.append(rows[:, labels:].reshape(-1, 3, 32, 32))
        numbers.append(rows[:, :labels])
    return np.concatenate(images), np.concatenate(numbers)


def _cifar_pickled(paths: list[str], keys: tuple[bytes, ...]) -> tuple[Array, Array]:
    images, numbers = [], []
    for path in paths:
        held = unpickle(path)
        if not isinstance(held, dict) or any(k not in held for k in (b"data", *keys)):
            raise refuse(path, f"a dict with data and {', '.join(k.decode() for k in keys)}", f"{type(held).__name__}")
        data = np.asarray(held[b"data"])
        labels = np.stack([np.asarray(held[k]) for k in keys], axis=1)
        if data.ndim != 2 or data.shape[1] != 3072 or data.dtype != np.uint8 or len(labels) != len(data):
            raise refuse(
                path, "uint8 data of 3072 columns, and a label for each row", f"{data.dtype}{list(data.shape)}, {len(labels)} labels"
            )
        images.append(data.reshape(-1, 3, 32, 32))
        numbers.append(labels)
    return np.concatenate(images), np.concatenate(numbers)


def cifar(folder: str, classes: int) -> dict[str, tuple[Array, Array]]:
    """{"train", "test": (images uint8 [count, 3, 32, 32], labels)} of CIFAR-10 or, with `classes` 100, CIFAR-100, whose labels are
    [count, 2]: coarse, fine. Binary files or Python pickles, in the folder or in the one that the archive makes.

    Raises FileNotFoundError naming what is missing, ParseError.
    """
    inner = {10: ("cifar-10-batches-bin", "cifar-10-batches-py"), 100: ("cifar-100-binary", "cifar-100-python")}[classes]
    parts = {
        10: {"train": [f"data_batch_{k}" for k in range(1, 6)], "test": ["test_batch"]},
        100: {"train": ["train"], "test": ["test"]},
    }[classes]
    labels, keys = {10: (1, (b"labels",)), 100: (2, (b"coarse_labels", b"fine_labels"))}[classes]
    for place in (folder, *(os.path.join(folder, i) for i in inner)):
        for end in (".bin", ""):
            paths = {part: [os.path.join(place, n + end) for n in names] for part, names in parts.items()}
            if all(os.path.isfile(p) for ps in paths.values() for p in ps):
                if end:
                    return {part: _cifar_binary(ps, labels, classes) for part, ps in paths.items()}
                return {part: _cifar_pickled(ps, keys) for part, ps in paths.items()}
    names = ", ".join(n for ns in parts.values() for n in ns)
    raise FileNotFoundError(f"{folder} has neither {names} with .bin (binary) nor without (Python pickles)")


def image_folder(folder: str, size: tuple[int, int] | None = None) -> tuple[Array, Array, list[str]]:
    """(images uint8 [count, 3, rows, columns], labels, names) from a folder with one folder of pictures for each class. Needs Pillow.

    size: (rows, columns) to which pictures are scaled; without it all have to be alike. Raises ParseError naming the picture.
    """
    from PIL import Image

    names = sorted(d for d in os.listdir(folder) if os.path.isdir(os.path.join(folder, d)))
    if not names:
        raise FileNotFoundError(f"{folder} has no folders; it needs one of pictures for each class")
    images: list[Array] = []
    labels: list[int] = []
    for k, name in enumerate(names):
        for file in sorted(os.listdir(os.path.join(folder, name))):
            path = os.path.join(folder, name, file)
            try:
                with Image.open(path) as picture:
                    rgb = picture.convert("RGB")
                    pixels = np.asarray(rgb.resize(size[::-1]) if size else rgb)
            except OSError as error:
                raise refuse(path, "a picture", str(error)) from None
            if images and pixels.shape != images[0].shape:
                raise refuse(path, f"a picture of {images[0].shape[:2]}, as the first one (or give size=)", str(pixels.shape[:2]))
            images.append(pixels)
            labels.append(k)
    return np.ascontiguousarray(np.stack(images).transpose(0, 3, 1, 2)), np.asarray(labels, np.int32), names


# ---- text ---------------------------------------------------------------------------------------------------------------


def text_file(path: str) -> str:
    """A text in UTF-8. Raises ParseError naming the byte that is none."""
    with open(path, "rb") as file:
        raw = file.read()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise refuse(path, "text in UTF-8", f"byte {raw[error.start]:#04x} at {error.start:,}") from None


def text_folder(path: str) -> str:
    """A text file, or all `.txt` files of a folder one after another, in the order of their names."""
    if os.path.isfile(path):
        return text_file(path)
    names = sorted(n for n in os.listdir(path) if n.endswith(".txt"))
    if not names:
        raise FileNotFoundError(f"{path} has no .txt file")
    return "\n".join(text_file(os.path.join(path, n)) for n in names)


def penn_treebank(folder: str) -> dict[str, str]:
    """{"train", "valid", "test": text} of ptb.train.txt, ptb.valid.txt and ptb.test.txt. Raises FileNotFoundError naming those missing."""
    paths = {part: os.path.join(folder, f"ptb.{part}.txt") for part in ("train", "valid", "test")}
    missing = [p for p in paths.values() if not os.path.exists(p)]
    if missing:
        raise FileNotFoundError(f"missing: {', '.join(missing)}")
    return {part: text_file(p) for part, p in paths.items()}


def _reviews_in(folder: str) -> Iterator[tuple[str, int]]:
    for label, name in enumerate(("neg", "pos")):
        place = os.path.join(folder, name)
        if not os.path.isdir(place):
            raise FileNotFoundError(f"{folder} has no folder {name}")
        for file in sorted(os.listdir(place)):
            yield text_file(os.path.join(place, file)), label


def imdb(folder: str) -> tuple[list[list[int]], Array] | list[tuple[str, int]]:
    """Reviews: (lists of word numbers, labels) from imdb.npz, or (text, label) pairs from aclImdb/train and test with pos and neg.

    Raises FileNotFoundError, ParseError.
    """
    packed = os.path.join(folder, "imdb.npz")
    if os.path.exists(packed):
        found = {k: _object_array(packed, f"{k}.npy") for k in ("x_train", "y_train", "x_test", "y_test")}
        return [*found["x_train"], *found["x_test"]], np.concatenate([found["y_train"], found["y_test"]])
    root = next((r for r in (folder, os.path.join(folder, "aclImdb")) if os.path.isdir(os.path.join(r, "train"))), None)
    if root is None:
        raise FileNotFoundError(f"{folder} has neither imdb.npz nor the folders train and test of aclImdb")
    return [pair for part in ("train", "test") for pair in _reviews_in(os.path.join(root, part))]


def _object_array(path: str, member: str) -> Array:
    """An array of an .npz file; one of Python lists is unpickled without running code."""
    try:
        with zipfile.ZipFile(path) as archive:
            content = archive.read(member)
    except (zipfile.BadZipFile, KeyError) as error:
        raise refuse(path, f"an .npz archive with {member}", str(error)) from None
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        return np.asarray(unpickle(f"{path}:{member}", stream.read()), object).reshape(shape)
    return np.frombuffer(stream.read(), dtype).reshape(shape)


def words_of(text: str) -> list[str]:
    """Words in lower case, and punctuation, one by one."""
    return re.findall(r"[a-z0-9']+|[.,!?;:()]", text.lower().replace("<br />", " "))
