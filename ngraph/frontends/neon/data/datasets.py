"""Data sets by name: `load_data()` returns parts as dicts {name: {"data": array, "axes": names}}, which iterators take."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.data.mnist import Unavailable, _fetch
from ngraph.errors import ParseError
from ngraph.frontends.neon.bounds import COUNT, SHARE, WHOLE, check
from ngraph.frontends.neon.calls import Checked, one_of
from ngraph.frontends.neon.data import readers
from ngraph.frontends.neon.data.download import fetch, folder_of

Array = np.ndarray
Part = dict[str, dict[str, Any]]


def part(**entries: tuple[Array, Sequence[str]]) -> Part:
    """Returns {name: {"data": array, "axes": names}} from name=(array, names)."""
    return {name: {"data": data, "axes": tuple(axes)} for name, (data, axes) in entries.items()}


class DataSet(Checked):
    """Base of data sets. `path`: their folder, else from NGRAPH_DATA or the cache; missing files are fetched if that is possible."""

    name = ""

    def __init__(self, path: str | None = None):
        self.path = folder_of(self.name, path)

    def read(self, reader: Callable[[str], Any]) -> Any:
        """Returns the result of `reader` for the folder, after fetching if files are missing. Raises Unavailable, ParseError."""
        try:
            return reader(self.path)
        except FileNotFoundError as missing:
            self.fetch(str(missing))
        return reader(self.path)

    def fetch(self, missing: str) -> None:
        fetch(self.name, self.path, missing)


class MNIST(DataSet):
    """Handwritten digits. load_data: train, valid, each image [N, H, W] as bytes and label [N]: 60,000 and 10,000 of 28 x 28."""

    name = "mnist"

    def fetch(self, missing: str) -> None:
        _fetch(self.path)

    def load_data(self) -> tuple[Part, Part]:
        both = self.read(lambda folder: [readers.idx_pair(folder, prefix) for prefix in ("train", "t10k")])
        train, valid = (part(image=(x, ("N", "H", "W")), label=(y.astype(np.int32), ("N",))) for x, y in both)
        return train, valid


class FashionMNIST(MNIST):
    """Images of clothes in MNIST's format."""

    name = "fashion"

    def fetch(self, missing: str) -> None:
        fetch(self.name, self.path, missing)


class CIFAR10(DataSet):
    """Small images of ten classes. load_data: train, valid, each image [N, C, H, W] as bytes and label [N]: 50,000 and 10,000."""

    name, classes = "cifar10", 10

    def _label(self, labels: Array) -> Array:
        return labels[:, 0].astype(np.int32)

    def load_data(self) -> tuple[Part, Part]:
        held = self.read(lambda folder: readers.cifar(folder, self.classes))
        train, valid = (part(image=(held[p][0], ("N", "C", "H", "W")), label=(self._label(held[p][1]), ("N",))) for p in ("train", "test"))
        return train, valid


class CIFAR100(CIFAR10):
    """Small images of 100 classes in 20 groups. label: "coarse" (20, as in neon) or "fine" (100)."""

    name, classes = "cifar100", 100

    def __init__(self, path: str | None = None, label: str = "coarse"):
        super().__init__(path)
        one_of("CIFAR100", "label", label, ("coarse", "fine"))
        self.label = label

    def _label(self, labels: Array) -> Array:
        return labels[:, ("coarse", "fine").index(self.label)].astype(np.int32)


# ---- text ---------------------------------------------------------------------------------------------------------------


class Vocabulary:
    """Numbers for symbols (characters or words), the most frequent first; other symbols are `<unk>`, if that is in it."""

    def __init__(self, symbols: Sequence[str], size: int | None = None):
        counted = Counter(symbols)
        ranked = sorted(counted, key=lambda s: (-counted[s], s))
        self.symbols: list[str] = ranked if size is None or len(ranked) <= size else ["<unk>", *ranked[: size - 1]]
        self.numbers = {s: k for k, s in enumerate(self.symbols)}

    def __len__(self) -> int:
        return len(self.symbols)

    def encode(self, symbols: Sequence[str]) -> Array:
        """Returns the numbers of symbols. Raises ParseError for an unknown one."""
        unknown = self.numbers.get("<unk>")
        try:
            return np.fromiter((self.numbers.get(s, unknown) for s in symbols), np.int32, len(symbols))
        except TypeError:
            strange = next(s for s in symbols if s not in self.numbers)
            raise ParseError(
                f"{strange!r} is not among the {len(self)} known symbols", fix="leave it out, or rebuild the vocabulary"
            ) from None

    def decode(self, numbers: Any) -> list[str]:
        return [self.symbols[int(k)] for k in np.asarray(numbers).ravel()]


def shifted(text: Array, shift: bool = True) -> Part:
    """Returns a text as inp_txt, and as tgt_txt the following symbol (after the last, the first)."""
    return part(inp_txt=(text, ("REC",)), tgt_txt=(np.concatenate([text[1:], text[:1]]) if shift else text, ("REC",)))


class Text(Checked):
    """Any text, as characters or words: `path` is a file, or a folder of .txt files. Attributes: train, valid, test, vocab.

    splits: the shares of valid and test, taken from the end. use_words: words and line ends; vocab_size: how many, the others are `<unk>`.
    """

    def __init__(
        self, path: str, use_words: bool = False, splits: tuple[float, float] = (0.05, 0.05), vocab_size: int | None = None, text: str = ""
    ):
        check("Text", COUNT, vocab_size=vocab_size)
        symbols: Any = text or readers.text_folder(path)
        if use_words:
            symbols = symbols.replace("\n", " <eos> ").split()
        self.vocab = Vocabulary(symbols, vocab_size)
        numbers = self.vocab.encode(symbols)
        ends = [round(len(numbers) * (1 - splits[0] - splits[1])), round(len(numbers) * (1 - splits[1]))]
        self.train, self.valid, self.test = (shifted(p) for p in np.split(numbers, ends))
        self.joined = " " if use_words else ""

    def load_data(self) -> dict[str, Part]:
        return {"train": self.train, "valid": self.valid, "test": self.test}

    def encode(self, text: str) -> Array:
        return self.vocab.encode(text.split() if self.joined else list(text))

    def decode(self, numbers: Any) -> str:
        return self.joined.join(self.vocab.decode(numbers))


class PTB(DataSet):
    """Penn Treebank, as characters or words. load_data: {"train", "valid", "test"}: inp_txt, tgt_txt. Attribute after it: vocab.

    shift_target: the target is the following symbol (the last wraps to the first); False makes it the input.
    """

    name = "ptb"

    def __init__(self, path: str | None = None, use_words: bool = False, shift_target: bool = True):
        super().__init__(path)
        self.use_words, self.shift_target = use_words, shift_target

    def load_data(self) -> dict[str, Part]:
        texts = self.read(readers.penn_treebank)
        symbols = {k: t.replace("\n", " <eos> ").split() if self.use_words else t for k, t in texts.items()}
        self.vocab = Vocabulary(symbols["train"] if self.use_words else "".join(symbols.values()))
        return {k: shifted(self.vocab.encode(s), self.shift_target) for k, s in symbols.items()}


class Shakespeare(Checked):
    """Shakespeare's works, or any text file: `path` is a folder, `filename` a file in it. Attributes: train, test, vocab.

    train_split: the share for training. Raises Unavailable where the file is missing: it has no reliable address.
    """

    def __init__(self, path: str = "./data/", url: str | None = None, filename: str | None = None, train_split: float = 0.9):
        check("Shakespeare", SHARE, train_split=train_split)
        place = os.path.join(path, filename or "shakespeare.txt")
        if not os.path.exists(place):
            raise Unavailable(f"{place} is missing", fix="put any text in UTF-8 there" + (f", such as {url}" if url else ""))
        held = Text(place, splits=(0.0, 1 - train_split))
        self.train, self.test, self.vocab = held.train, held.test, held.vocab


class IMDB(DataSet):
    """Film reviews, good (1) and bad (0). load_data(test_split): {"train", "valid"}: review [N, REC] of word numbers, label [N].

    vocab_size: words kept; others become number 2. sentence_length: words of each review kept, the last ones; shorter reviews are padded
    with pad_idx in front. shuffle: reviews are in random, but always the same, order.
    """

    name = "imdb"

    def __init__(
        self, path: str | None = None, vocab_size: int = 20000, sentence_length: int = 128, pad_idx: int = 0, shuffle: bool = True
    ):
        super().__init__(path)
        check("IMDB", COUNT, vocab_size=vocab_size, sentence_length=sentence_length)
        check("IMDB", WHOLE, pad_idx=pad_idx)
        self.vocab_size, self.sentence_length, self.pad_idx, self.shuffle = vocab_size, sentence_length, pad_idx, shuffle

    def load_data(self, test_split: float = 0.2) -> dict[str, Part]:
        numbers, labels = self._numbers(self.read(readers.imdb))
        reviews = np.full((len(numbers), self.sentence_length), self.pad_idx, np.int32)
        for row, words in zip(reviews, numbers, strict=True):
            kept = np.asarray(words[-self.sentence_length :], np.int32)
            if len(kept):
                row[-len(kept) :] = np.where(kept < self.vocab_size, kept, 2)
        order = np.random.default_rng(0).permutation(len(reviews)) if self.shuffle else np.arange(len(reviews))
        reviews, labels = reviews[order], np.asarray(labels, np.int32)[order]
        cut = round(len(reviews) * (1 - test_split))
        return {
            name: part(review=(reviews[s], ("N", "REC")), label=(labels[s], ("N",)))
            for name, s in (("train", slice(0, cut)), ("valid", slice(cut, None)))
        }

    def _numbers(self, held: Any) -> tuple[list[Any], Any]:
        if isinstance(held, tuple):
            return held
        texts = [readers.words_of(text) for text, _ in held]
        vocabulary = Vocabulary([w for text in texts for w in text])
        return [[1, *(vocabulary.numbers[w] + 3 for w in text)] for text in texts], [label for _, label in held]
