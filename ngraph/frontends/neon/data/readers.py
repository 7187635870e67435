"""Readers of data sets in their distributed file formats. Errors name an invalid file, the expectation and the finding."""

from __future__ import annotations

import errno
import io
import math
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from ngraph.data.mnist import read_idx
from ngraph.errors import ParseError
from ngraph.frontends.neon.data import pickles
from ngraph.op_graph.files import told

Array = np.ndarray
MAX_MEMBER = 1 << 30  # bytes of an array in an .npz file: ten times the largest in imdb.npz


def refuse(path: str, expected: str, found: str) -> ParseError:
    return ParseError(f"{path}: expected {expected}, found {found}", fix="delete the file, or put a whole one in its place")


# ---- pickles without code -----------------------------------------------------------------------------------------------


def unpickle(path: str, content: bytes | None = None) -> Any:
    """Returns the plain data of a pickle file, read by `pickles.loads`; texts of Python 2 are bytes. Raises ParseError."""
    if content is None:
        with open(path, "rb") as file:
            content = file.read()
    try:
        return pickles.loads(content)
    except pickles.Unreadable as error:
        raise refuse(path, "a whole pickle of arrays", f"something else ({error})") from None


def _flat(values: Any) -> Array | None:
    """Returns integers as an array: from an array of one axis, or a list that holds nothing else; None for anything else."""
    if isinstance(values, list) and all(t is int or issubclass(t, np.integer) for t in set(map(type, values))):
        with suppress(OverflowError):
            values = np.array(values, np.int64)
    return values if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iu" else None


# ---- images -------------------------------------------------------------------------------------------------------------


def idx_pair(folder: str, prefix: str) -> tuple[Array, Array]:
    """Returns (images, labels) of a part of MNIST or Fashion-MNIST, plain or gzipped, as bytes. Raises FileNotFoundError, ParseError."""
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


def _cifar_binary(paths: list[str], classes: tuple[int, ...]) -> tuple[Array, Array]:
    images, numbers = [], []
    labels = len(classes)
    size = labels + 3072
    for path in paths:
        raw = np.fromfile(path, np.uint8)
        if not raw.size or raw.size % size:
            raise refuse(path, f"records of {size} bytes, {labels} of them labels", f"{raw.size:,} bytes, which is not a multiple")
        rows = raw.reshape(-1, size)
        for k, most in enumerate(classes):
            if rows[:, k].max() >= most:
                raise refuse(path, f"labels from 0 to {most - 1}", str(rows[:, k].max()))
        images.append(rows[:, labels:].reshape(-1, 3, 32, 32))
        numbers.append(rows[:, :labels])
    return np.concatenate(images), np.concatenate(numbers)


def _cifar_pickled(paths: list[str], keys: tuple[bytes, ...], classes: tuple[int, ...]) -> tuple[Array, Array]:
    images, numbers = [], []
    for path in paths:
        held = unpickle(path)
        if not isinstance(held, dict) or any(k not in held for k in (b"data", *keys)):
            raise refuse(path, f"a dict with data and {', '.join(k.decode() for k in keys)}", f"{type(held).__name__}")
        data, labels = held[b"data"], [_flat(held[k]) for k in keys]
        if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != 3072 or data.dtype != np.uint8:
            found = f"{data.dtype}{list(data.shape)}" if isinstance(data, np.ndarray) else type(data).__name__
            raise refuse(path, "uint8 data of 3072 columns", found)
        for key, own, most in zip(keys, labels, classes, strict=True):
            what = f"{len(data):,} {key.decode()} from 0 to {most - 1}"
            if own is None or len(own) != len(data):
                raise refuse(path, what, "something else" if own is None else f"{len(own):,}")
            if len(own) and not 0 <= own.min() <= own.max() < most:
                raise refuse(path, what, f"{own.min()} to {own.max()}")
        images.append(data.reshape(-1, 3, 32, 32))
        numbers.append(np.stack([own for own in labels if own is not None], axis=1))
    return np.concatenate(images), np.concatenate(numbers)


def cifar(folder: str, classes: int) -> dict[str, tuple[Array, Array]]:
    """Returns {"train", "test": (images uint8 [count, 3, 32, 32], labels)} of CIFAR-10 or, with `classes` 100, CIFAR-100, whose labels
    are [count, 2]: coarse, fine. Reads binary files or Python pickles, in the folder or in the one that the archive makes.

    Raises FileNotFoundError that names missing files, ParseError.
    """
    inner = {10: ("cifar-10-batches-bin", "cifar-10-batches-py"), 100: ("cifar-100-binary", "cifar-100-python")}[classes]
    parts = {
        10: {"train": [f"data_batch_{k}" for k in range(1, 6)], "test": ["test_batch"]},
        100: {"train": ["train"], "test": ["test"]},
    }[classes]
    keys, most = {10: ((b"labels",), (10,)), 100: ((b"coarse_labels", b"fine_labels"), (20, 100))}[classes]
    for place in (folder, *(os.path.join(folder, i) for i in inner)):
        for end in (".bin", ""):
            paths = {part: [os.path.join(place, n + end) for n in names] for part, names in parts.items()}
            if all(os.path.isfile(p) for ps in paths.values() for p in ps):
                if end:
                    return {part: _cifar_binary(ps, most) for part, ps in paths.items()}
                return {part: _cifar_pickled(ps, keys, most) for part, ps in paths.items()}
    names = ", ".join(n for ns in parts.values() for n in ns)
    raise FileNotFoundError(f"{folder} has neither {names} with .bin (binary) nor without (Python pickles)")


def image_folder(folder: str, size: tuple[int, int] | None = None) -> tuple[Array, Array, list[str]]:
    """Returns (images uint8 [count, 3, rows, columns], labels, names) from a folder with one folder of images per class. Needs Pillow.

    size: (rows, columns) to which images are scaled; without it all must have one size. Raises ParseError that names the image.
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
    """Returns a text in UTF-8. Raises ParseError that names an invalid byte."""
    with told(path, "read"), open(path, "rb") as file:
        raw = file.read()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise refuse(path, "text in UTF-8", f"byte {raw[error.start]:#04x} at {error.start:,}") from None


def text_folder(path: str) -> str:
    """Returns a text file, or all `.txt` files of a folder concatenated, in the order of their names."""
    if os.path.isfile(path):
        return text_file(path)
    with told(path, "read"):
        names = sorted(n for n in os.listdir(path) if n.endswith(".txt"))
        if not names:
            raise FileNotFoundError(errno.ENOENT, "there is no .txt file in it")
    return "\n".join(text_file(os.path.join(path, n)) for n in names)


def penn_treebank(folder: str) -> dict[str, str]:
    """Returns {"train", "valid", "test": text} of ptb.train.txt, ptb.valid.txt, ptb.test.txt. Raises FileNotFoundError."""
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


def imdb(folder: str) -> tuple[list[Array], Array] | list[tuple[str, int]]:
    """Returns reviews: (arrays of word numbers, labels) from imdb.npz, or (text, label) pairs from aclImdb/train and test with pos and neg.

    Raises FileNotFoundError, ParseError.
    """
    packed = os.path.join(folder, "imdb.npz")
    if os.path.exists(packed):
        (reviews, labels), (more, others) = (_reviews_of(packed, part) for part in ("train", "test"))
        return [*reviews, *more], np.concatenate([labels, others])
    root = next((r for r in (folder, os.path.join(folder, "aclImdb")) if os.path.isdir(os.path.join(r, "train"))), None)
    if root is None:
        raise FileNotFoundError(f"{folder} has neither imdb.npz nor the folders train and test of aclImdb")
    return [pair for part in ("train", "test") for pair in _reviews_in(os.path.join(root, part))]


def _reviews_of(path: str, part: str) -> tuple[list[Array], Array]:
    """Returns the reviews of a part of imdb.npz as arrays of word numbers, and their labels."""
    held, labels = _member(path, f"x_{part}.npy"), _flat(_member(path, f"y_{part}.npy"))
    reviews = [_flat(words) for words in held] if isinstance(held, (list, np.ndarray)) else []
    words = [r for r in reviews if r is not None and (not len(r) or r.min() >= 0)]
    if len(words) != len(held) or labels is None or len(labels) != len(words) or labels.size and not 0 <= labels.min() <= labels.max() <= 1:
        raise refuse(path, f"x_{part}, lists of word numbers, and y_{part}, a 0 or 1 for each", "something else")
    return words, labels


def _member(path: str, member: str) -> Any:
    """Returns an array of an .npz file; one of Python objects is a list, unpickled without running code."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(member).file_size > MAX_MEMBER:
                raise refuse(path, f"at most {MAX_MEMBER:,} bytes in {member}", f"{archive.getinfo(member).file_size:,}")
            content = archive.read(member)
        stream = io.BytesIO(content)
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
        if not dtype.hasobject:
            return np.frombuffer(content, dtype, math.prod(shape), stream.tell()).reshape(shape, order="F" if fortran else "C")
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        raise refuse(path, f"an .npz archive with {member}", str(error)) from None
    return unpickle(f"{path}:{member}", content[stream.tell() :])


def words_of(text: str) -> list[str]:
    """Returns words in lower case, and punctuation marks."""
    return re.findall(r"[a-z0-9']+|[.,!?;:()]", text.lower().replace("<br />", " "))
