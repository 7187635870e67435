"""Translators of ops on strings, n-grams and encoded images: steps in Python, counted in `Model.host_callbacks`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.errors import GraphError, UnsupportedError
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional.images import image_of
from ngraph.frontends.positional.text import by_element, in_python
from ngraph.frontends.positional.values import Value

Array = np.ndarray[Any, Any]


@translates("StringConcat")
def string_concat(n: Any, a: Value, b: Value) -> tuple[Value, ...]:
    return in_python(n, by_element(lambda s, t: s + t, object), [a, b], [object])


@translates("RegexFullMatch")
def regex(n: Any, x: Value) -> tuple[Value, ...]:
    try:
        pattern = re.compile(n.attr("pattern"))
    except re.error as error:
        raise GraphError(f"{n.attr('pattern')!r} is not a pattern: {error}") from None
    return in_python(n, by_element(lambda s: pattern.fullmatch(s) is not None, np.bool_), [x], [np.bool_])


@translates("StringSplit")
def string_split(n: Any, x: Value) -> tuple[Value, ...]:
    """The parts along a new last dim, filled up with empty strings; and how many there are."""
    delimiter, most = n.attr("delimiter") or None, n.attr("maxsplit")

    def run(a: Array) -> tuple[Array, Array]:
        parts = [s.split(delimiter, -1 if most is None else most) for s in a.ravel()]
        width = max(map(len, parts), default=0)
        whole = np.full((len(parts), width), "", object)
        for k, p in enumerate(parts):
            whole[k, : len(p)] = p
        return whole.reshape(*a.shape, width), np.array([len(p) for p in parts], np.int64).reshape(a.shape)

    return in_python(n, run, [x], [object, np.int64])


def plain(s: str) -> str:
    """Without accents."""
    return s if s.isascii() else "".join(c for c in unicodedata.normalize("NFKD", s) if not unicodedata.combining(c))


CASES: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": lambda s: s}


@translates("StringNormalizer")
def string_normalizer(n: Any, x: Value) -> tuple[Value, ...]:
    change, exact = CASES[n.attr("case_change_action", "NONE")], n.attr("is_case_sensitive", 0)
    stops = set(n.attr("stopwords") or ()) if exact else {s.lower() for s in n.attr("stopwords") or ()}

    def run(a: Array) -> Array:
        if a.ndim > 2 or (a.ndim == 2 and a.shape[0] != 1):
            raise GraphError(f"StringNormalizer takes [C] or [1, C], not {list(a.shape)}")
        words = [change(s) for s in a.ravel() if (s if exact else s.lower()) not in stops]
        kept = np.array(words or [""], object)
        return kept if a.ndim == 1 else kept[None]

    return in_python(n, run, [x], [object])


@translates("TfIdfVectorizer")
def tf_idf(n: Any, x: Value) -> tuple[Value, ...]:
    """Counts of the n-grams of a pool, at any distance between their items up to a skip, weighted."""
    pool = n.attr("pool_strings") or n.attr("pool_int64s")
    starts, indexes = n.attr("ngram_counts"), n.attr("ngram_indexes")
    least, most, skips = n.attr("min_gram_length"), n.attr("max_gram_length"), n.attr("max_skip_count")
    mode, weights = n.attr("mode"), n.attr("weights")
    grams: dict[tuple[Any, ...], int] = {}
    for length, (first, last) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        for at in range(first, last, length):
            if least <= length <= most:
                grams[tuple(pool[at : at + length])] = len(grams)
            else:
                grams[("left out", at)] = len(grams)
    width = max(indexes) + 1
    scale = np.ones(len(indexes)) if weights is None else np.array(weights)

    def row(items: Sequence[Any]) -> Array:
        counts = np.zeros(len(indexes))
        for length in range(least, most + 1):
            for skip in range(1, (skips if length > 1 else 0) + 2):
                for at in range(len(items) - (length - 1) * skip):
                    k = grams.get(tuple(items[at : at + length * skip : skip]))
                    if k is not None:
                        counts[k] += 1
        found = {"TF": counts, "IDF": (counts > 0) * scale, "TFIDF": counts * scale}[mode]
        whole = np.zeros(width, np.float32)
        np.add.at(whole, indexes, found)
        return whole

    def run(a: Array) -> Array:
        rows = [row(r.tolist()) for r in (a if a.ndim == 2 else a[None])]
        made = np.stack(rows) if rows else np.zeros((0, width), np.float32)
        return made if a.ndim == 2 else made[0]

    return in_python(n, run, [x], [np.float32])


@translates("ImageDecoder")
def image_decoder(n: Any, x: Value) -> tuple[Value, ...]:
    kind = n.attr("pixel_format", "RGB")

    def run(a: Array) -> Array:
        try:
            from PIL import Image
        except ImportError:
            raise UnsupportedError("decoding images needs Pillow, which is not installed", fix="pip install pillow") from None
        image = image_of(Image, a.tobytes())
        if kind == "Grayscale":
            return np.asarray(image.convert("L"))[:, :, None]
        rgb = np.asarray(image.convert("RGB"))
        return rgb[:, :, ::-1] if kind == "BGR" else rgb

    return in_python(n, run, [x], [np.uint8])
