"""Translators of ops on strings, lookup tables, encoded images and examples: steps in Python, counted in `Model.host_callbacks`.

Strings are bytes, as in TensorFlow. What an op takes and gives is that of tensorflow/core/ops/string_ops.cc, lookup_ops.cc, image_ops.cc
and parsing_ops.cc.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.errors import BoundsError, GraphError, UnsupportedError
from ngraph.frontends.positional import images, text
from ngraph.frontends.positional.folding import is_text, of_text
from ngraph.frontends.positional.text import Array, by_element
from ngraph.frontends.positional.values import Value
from ngraph.frontends.tensorflow import folding
from ngraph.frontends.tensorflow.graph import Resource
from ngraph.frontends.tensorflow.messages import parsed
from ngraph.frontends.tensorflow.table import EARLY, translates

Function = Callable[..., Any]
STRINGS = np.dtype(object)


def step(n: Any, function: Function, values: Sequence[Value], *dtypes: Any) -> tuple[Value, ...]:
    """Returns the results of a function of arrays whose strings are bytes."""
    return text.in_python(n, text.as_bytes(function), values, dtypes)


# ---- ops that move strings as they move numbers -----------------------------------------------------------------------------

MOVING: dict[str, Function] = {
    **{
        op: folding.FOLD[op]
        for op in "Pack Unpack ConcatV2 Concat Split StridedSlice Slice GatherV2 Gather Reshape ExpandDims Squeeze Transpose Tile".split()
    },
    **{op: folding.FOLD[op] for op in ("ReverseV2", "BroadcastTo")},
    "Fill": lambda n, shape, value: np.full(shape, value),
    "Select": lambda n, c, a, b: np.where(c.reshape(c.shape + (1,) * (a.ndim - c.ndim)), a, b),
    "SelectV2": lambda n, c, a, b: np.where(c, a, b),
    "ZerosLike": lambda n, a: np.full(a.shape, b"", object),
    "GatherNd": lambda n, a, i: a[tuple(np.moveaxis(i, -1, 0))],
    "SplitV": lambda n, a, sizes, axis: tuple(np.split(a, np.cumsum(sizes)[:-1], int(axis))),
}
MEASURED: dict[str, tuple[Function, Any]] = {  # what has numbers for its result, with its dtype by the node
    **dict.fromkeys(("Shape", "ShapeN"), (lambda n, *a: [np.array(x.shape) for x in a], lambda n: n.attr("out_type", np.dtype(np.int32)))),
    "Size": (lambda n, a: np.array(a.size), lambda n: n.attr("out_type", np.dtype(np.int32))),
    "Equal": (lambda n, a, b: np.asarray(a == b), lambda n: np.bool_),
    "NotEqual": (lambda n, a, b: np.asarray(a != b), lambda n: np.bool_),
}
COUNTS = {"Unpack": "num", "Split": "num_split", "SplitV": "num_split"}  # attributes that say how many results there are


def of_strings(n: Any, inputs: Sequence[Value]) -> Any:
    """Returns the result of an op that numbers have too, for strings; NotImplemented where it is none of these, or there are none."""
    if n.op not in MOVING and n.op not in MEASURED or not any(is_text(i) for i in inputs):
        return NotImplemented
    if n.op in MOVING:
        function, count = MOVING[n.op], n.attr(COUNTS[n.op]) if n.op in COUNTS else 1
        return of_text(n.g, n.op, text.as_bytes(lambda *arrays: _checked(n, function(n, *arrays))), inputs, count)
    measure, dtype = MEASURED[n.op]
    return step(n, lambda *arrays: measure(n, *arrays), inputs, *[dtype(n)] * n.attr("N", 1))


EARLY.append(of_strings)


def _checked(n: Any, found: Any) -> Any:
    if found is NotImplemented:
        raise GraphError(f"{n.op} of strings goes beyond what there is")
    return found


# ---- strings ----------------------------------------------------------------------------------------------------------------


def _cased(n: Any, function: str) -> Function:
    wide = n.attr("encoding", "") == "utf-8"
    return lambda s: (
        getattr(s.decode("utf-8", "surrogateescape"), function)().encode("utf-8", "surrogateescape") if wide else getattr(s, function)()
    )


def _number(n: Any) -> Function:
    dtype = n.attr("out_type", np.dtype(np.float32))

    def run(s: bytes) -> Any:
        try:
            if b"_" in s:
                raise ValueError
            number = float(s) if dtype.kind == "f" else int(s)
        except ValueError:
            raise GraphError(f"the string {s!r} is not a number", fix="give StringToNumber numbers alone") from None
        if dtype.kind == "i" and not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
            raise GraphError(f"the number {number} does not fit into {dtype}", fix="take out_type=int64")
        return number

    return run


def _part(n: Any) -> Function:
    wide = n.attr("unit", "BYTE") == "UTF8_CHAR"

    def run(s: bytes, start: int, length: int) -> bytes:
        whole: Any = s.decode("utf-8", "replace") if wide else s
        if not -len(whole) <= start <= len(whole):
            raise BoundsError(f"Substr from {start} on of a string of {len(whole)}", fix="start within the string")
        first = start + len(whole) if start < 0 else start
        found = whole[first : first + max(length, 0)]
        return found.encode() if wide else found

    return run


# op: the function of elements for a node, and the dtype of what it gives
ELEMENTS: dict[str, tuple[Function, Function]] = {
    "StringJoin": (lambda n: lambda *s: n.attr("separator", "").encode().join(s), lambda n: STRINGS),
    "StringLower": (lambda n: _cased(n, "lower"), lambda n: STRINGS),
    "StringUpper": (lambda n: _cased(n, "upper"), lambda n: STRINGS),
    "StringStrip": (lambda n: lambda s: s.strip(b" \t\n\v\f\r"), lambda n: STRINGS),
    "StringLength": (
        lambda n: lambda s: len(s) if n.attr("unit", "BYTE") == "BYTE" else sum(c & 0xC0 != 0x80 for c in s),
        lambda n: np.int32,
    ),
    "Substr": (_part, lambda n: STRINGS),
    "RegexReplace": (lambda n: lambda s, p, r: text.replaced(s, p, r, n.attr("replace_global", True)), lambda n: STRINGS),
    "RegexFullMatch": (lambda n: text.full_match, lambda n: np.bool_),
    "StaticRegexReplace": (
        lambda n: lambda s: text.replaced(s, n.attr("pattern").encode(), n.attr("rewrite").encode(), n.attr("replace_global", True)),
        lambda n: STRINGS,
    ),
    "StaticRegexFullMatch": (lambda n: lambda s: text.full_match(s, n.attr("pattern").encode()), lambda n: np.bool_),
    "StringToNumber": (_number, lambda n: n.attr("out_type", np.dtype(np.float32))),
    "AsString": (
        lambda n: text.shown(
            n.attr("T"),
            "e" if n.attr("scientific", False) else "g" if n.attr("shortest", False) else "f",
            *(n.attr(key, default) for key, default in (("precision", -1), ("width", -1), ("fill", ""))),
        ),
        lambda n: STRINGS,
    ),
    "StringToHashBucketStrong": (
        lambda n: lambda s: text.keyed_fingerprint(s, n.attr("key")) % n.attr("num_buckets"),
        lambda n: np.int64,
    ),
    "StringToHashBucketFast": (lambda n: lambda s: text.fingerprint64(s) % n.attr("num_buckets"), lambda n: np.int64),
    "EncodeBase64": (
        lambda n: lambda s: base64.urlsafe_b64encode(s).rstrip(b"" if n.attr("pad", False) else b"="),
        lambda n: STRINGS,
    ),
    "DecodeBase64": (lambda n: text.from_base64, lambda n: STRINGS),
}


@translates(*ELEMENTS)
def by_elements(n: Any, *inputs: Value) -> Value:
    """Returns the result of an op on each string for itself."""
    function, dtype = ELEMENTS[n.op]
    return step(n, by_element(function(n), dtype(n)), inputs, dtype(n))[0]


@translates("StringFormat")
def string_format(n: Any, *inputs: Value) -> Value:
    most, template, mark = n.attr("summarize", 3), n.attr("template", "%s"), n.attr("placeholder", "%s")

    def run(*arrays: Array) -> Array:
        parts = template.split(mark)
        made = parts[0] + "".join(text.summary(a, most) + part for a, part in zip(arrays, parts[1:], strict=True))
        return text.objects([made.encode()], ())

    return step(n, run, inputs, STRINGS)[0]


@translates("ReduceJoin")
def reduce_join(n: Any, x: Value, axes: Value) -> Value:
    """Returns strings joined along dims, in the order that is given."""

    keep, separator = n.attr("keep_dims", False), n.attr("separator", "").encode()
    return step(n, lambda a, along: text.joined_along(a, along.ravel()[::-1], keep, separator), [x, axes], STRINGS)[0]


@translates("StringSplit", "StringSplitV2", results="indices values shape")
def string_split(n: Any, x: Value, separator: Value) -> tuple[Value, ...]:
    """Returns the parts as the indices, values and shape of a sparse matrix."""
    most = n.attr("maxsplit", -1)

    def parts(s: bytes, by: bytes) -> list[bytes]:
        if n.op == "StringSplitV2":
            return s.split(by or None, most)
        if not s:
            return []
        pieces = [s[k : k + 1] for k in range(len(s))] if not by else [s]
        for mark in by:  # each byte of the delimiter separates
            pieces = [p for piece in pieces for p in piece.split(bytes([mark]))]
        return [p for p in pieces if p] if n.attr("skip_empty", True) else pieces

    def run(a: Array, by: Array) -> tuple[Array, ...]:
        delimiter: Any = by[()]
        rows = [parts(s, delimiter) for s in a.ravel()]
        at = [(k, j) for k, row in enumerate(rows) for j in range(len(row))]
        values = text.objects([p for row in rows for p in row])
        return np.array(at, np.int64).reshape(-1, 2), values, np.array([len(rows), max(map(len, rows), default=0)], np.int64)

    return step(n, run, [x, separator], np.int64, STRINGS, np.int64)


def _bad(n: Any) -> Callable[[int], list[int]]:
    """Returns what a node's attribute `errors` puts in place of what is no character. Its function raises GraphError for `strict`."""
    errors, other = n.attr("errors", "replace"), n.attr("replacement_char", 0xFFFD)

    def run(at: int) -> list[int]:
        if errors == "strict":
            raise GraphError(f"{n.op}: there is no character at byte {at}", fix="give text in the encoding, or errors='replace'")
        return [other] if errors == "replace" else []

    return run


def _characters(n: Any) -> Callable[[bytes], list[tuple[int, int]]]:
    """Returns the function from a string to places and numbers of its characters, by a node's attributes."""
    encoding, bad = n.attr("input_encoding").lower(), _bad(n)
    least = 32 if n.attr("replace_control_characters", False) else 0
    return lambda s: [(at, c) for at, code in text.characters(s, encoding, bad) for c in ([code] if code >= least else bad(at))]


@translates("UnicodeDecode", "UnicodeDecodeWithOffsets", results="row_splits char_values char_to_byte_starts")
def unicode_decode(n: Any, x: Value) -> tuple[Value, ...]:
    splits, each = n.attr("Tsplits", np.dtype(np.int64)), _characters(n)

    def run(a: Array) -> tuple[Array, ...]:
        rows = [each(s) for s in a.ravel()]
        at, codes = (np.array([c[k] for row in rows for c in row], np.int64) for k in (0, 1))
        return (np.cumsum([0, *map(len, rows)]), codes, at)[: 3 if n.op.endswith("Offsets") else 2]

    return step(n, run, [x], splits, np.int32, *[np.int64] * n.op.endswith("Offsets"))


def _encoded(codes: Sequence[int], encoding: str, bad: Callable[[int], list[int]]) -> bytes:
    kept = (c for k, code in enumerate(codes) for c in ([code] if 0 <= code < 0xD800 or 0xDFFF < code < 0x110000 else bad(k)))
    return "".join(map(chr, kept)).encode(encoding)


@translates("UnicodeTranscode")
def unicode_transcode(n: Any, x: Value) -> Value:
    each, encoding, bad = _characters(n), n.attr("output_encoding").lower().replace("_", "-"), _bad(n)
    return step(n, by_element(lambda s: _encoded([code for _, code in each(s)], encoding, bad), STRINGS), [x], STRINGS)[0]


@translates("StringNGrams", results="ngrams ngrams_splits")
def ngrams(n: Any, x: Value, splits: Value) -> tuple[Value, ...]:
    """Returns the words of each row joined in groups of each width, with marks before and behind the row, and where rows begin."""
    pad, by = n.attr("pad_width"), n.attr("separator").encode()
    before, behind = [n.attr("left_pad").encode()], [n.attr("right_pad").encode()]

    def row(words: list[bytes]) -> list[bytes]:
        found = []
        for width in n.attr("ngram_widths"):
            many = min(width - 1 if pad < 0 else pad, width - 1)
            marked = before * many + words + behind * many
            found += [by.join(marked[k : k + width]) for k in range(len(marked) - width + 1)]
        if not found and words and n.attr("preserve_short_sequences"):
            found = [by.join(before * pad + words + behind * pad)]
        return found

    def run(words: Array, ends: Array) -> tuple[Array, Array]:
        rows = [row(words[a:b].tolist()) for a, b in zip(ends, ends[1:], strict=False)] if words.size else [[]] * (len(ends) - 1)
        return text.objects([s for found in rows for s in found]), np.cumsum([0, *map(len, rows)])

    return step(n, run, [x, splits], STRINGS, np.dtype(splits.np))


@translates("UnicodeEncode")
def unicode_encode(n: Any, values: Value, splits: Value) -> Value:
    encoding, bad = n.attr("output_encoding").lower().replace("_", "-"), _bad(n)

    def run(codes: Array, ends: Array) -> Array:
        return text.objects([_encoded(codes[a:b].tolist(), encoding, bad) for a, b in zip(ends, ends[1:], strict=False)])

    return step(n, run, [values, splits], STRINGS)[0]


@translates("DecodeRaw")
def decode_raw(n: Any, x: Value) -> Value:
    dtype = n.attr("out_type")
    order = np.dtype(dtype) if n.attr("little_endian", True) or dtype.itemsize == 1 else dtype.newbyteorder(">")

    def run(a: Array) -> Array:
        lengths = {len(s) for s in a.ravel()}
        if len(lengths) > 1 or any(k % dtype.itemsize for k in lengths):
            raise GraphError(f"strings of {sorted(lengths)} bytes are not rows of {dtype}", fix="give strings of one length")
        joined = np.frombuffer(b"".join(a.ravel()), order).astype(dtype)
        return joined.reshape(*a.shape, lengths.pop() // dtype.itemsize if lengths else 0)

    return step(n, run, [x], dtype)[0]


# ---- images -----------------------------------------------------------------------------------------------------------------


def pillow() -> Any:
    """Returns Pillow's module of images. Raises UnsupportedError where it is not installed."""
    try:
        from PIL import Image
    except ImportError:
        raise UnsupportedError("decoding images needs Pillow, which is not installed", fix="pip install pillow") from None
    return Image


@translates("DecodeJpeg", "DecodePng", "DecodeImage", "DecodeBmp")
def decode(n: Any, x: Value) -> Value:
    """Returns the pixels of an image, [height, width, channels].

    JPEG files are decoded by exact arithmetic, TensorFlow's INTEGER_ACCURATE; its default, INTEGER_FAST, differs by some units.
    """
    dtype = np.dtype(n.attr("dtype", np.dtype(np.uint8)))
    channels, ratio = n.attr("channels", 0), n.attr("ratio", 1)

    def run(a: Array) -> Array:
        data: Any = a[()]
        wide = dtype == np.uint16
        bitmap = n.op == "DecodeBmp" or (n.op == "DecodeImage" and data[:2] == b"BM")
        found = images.bitmap(data, channels, wide) if bitmap else images.decoded(pillow(), data, channels, ratio, wide)
        return found / np.float32(255) if dtype == np.float32 else found

    return step(n, run, [x], dtype)[0]


@translates("EncodePng")
def encode(n: Any, x: Value) -> Value:
    return step(n, lambda a: text.objects([images.encoded(pillow(), a)], ()), [x], STRINGS)[0]


# ---- examples ---------------------------------------------------------------------------------------------------------------

LISTS = {"O": "bytes_list", "f": "float_list", "i": "int64_list"}  # fields of a Feature by the kind of NumPy's dtype


@translates("ParseExample", "ParseExampleV2", "ParseSingleExample")
def parse(n: Any, serialized: Value, *more: Value) -> tuple[Value, ...]:
    """Returns the dense features of messages tf.train.Example. Raises UnsupportedError for sparse and ragged ones."""
    if n.attr("num_sparse", 0) or n.attr("Nsparse", 0) or n.attr("ragged_value_types"):
        raise UnsupportedError(f"{n.op} with sparse or ragged features", fix="parse features of fixed lengths (FixedLenFeature)")
    dtypes, shapes = n.attr("Tdense", []), n.attr("dense_shapes", [])
    count = len(dtypes)
    defaults = more[len(more) - count :]
    if n.op == "ParseSingleExample":  # names stand in attributes
        names = [k.encode() for k in n.attr("dense_keys", [])]
    elif n.op == "ParseExampleV2":
        names = list(n.g.known(more[2]).ravel())
    else:
        names = [n.g.known(v)[()] for v in more[1 : 1 + count]]

    def feature(features: Any, k: int, default: Array) -> list[Any]:
        name, field = names[k].decode("utf-8", "replace"), LISTS[dtypes[k].kind]
        found = features[name] if name in features else None
        kind = None if found is None else found.WhichOneof("kind")
        if kind is None:
            if shapes[k] and shapes[k][0] is None:
                return []
            if not default.size:
                raise GraphError(f"an example has no feature {name!r}, which has no default", fix="give FixedLenFeature a default_value")
            lengths = [int(s) for s in shapes[k]]
            return list(np.broadcast_to(default, lengths).ravel() if default.size == 1 else default.ravel())
        if kind != field:
            raise GraphError(f"the feature {name!r} is a {kind}, and a {field} is read", fix="name its dtype in the features")
        return list(getattr(found, field).value)

    def run(messages: Array, *given: Array) -> list[Array]:
        examples = [parsed("Example", s, "an example").features.feature for s in messages.ravel()]
        made = []
        for k, default in enumerate(given):
            rows = [feature(example, k, default) for example in examples]
            open_ = bool(shapes[k]) and shapes[k][0] is None
            each = math.prod(s for s in shapes[k] if s is not None)
            wanted = max(map(len, rows), default=0) if open_ else each
            for row in rows:
                if open_ and len(row) % max(each, 1) == 0:
                    row.extend([default.ravel()[0]] * (wanted - len(row)))
                if len(row) != wanted:
                    raise GraphError(f"a feature {names[k].decode()!r} has {len(row)} values, and the shape {list(shapes[k])}")
            whole = np.empty((len(rows), wanted), dtypes[k])
            for row, values in zip(whole, rows, strict=True):
                row[:] = values
            made.append(
                whole.reshape([*messages.shape, *([wanted // max(each, 1)] if open_ else []), *(s for s in shapes[k] if s is not None)])
            )
        return made

    return step(n, run, [serialized, *defaults], *dtypes)


# ---- tables -----------------------------------------------------------------------------------------------------------------


class TableHandle(Resource):
    """The handle of a lookup table. contents: of the model's tables, by name; a step in Python reads, and may write, them.

    mutable: whether calls may write it      kinds: dtypes of keys and of values
    """

    __slots__ = ("contents", "mutable", "kinds")

    def __init__(self, name: str, contents: dict[Any, Any], mutable: bool, kinds: Sequence[Any]):
        super().__init__(name)
        self.contents, self.mutable, self.kinds = contents, mutable, kinds


@translates("HashTableV2", "MutableHashTableV2")
def table(n: Any) -> TableHandle:
    name = n.attr("shared_name") or n.name
    contents = n.library.tables.setdefault(name, {})
    return TableHandle(name, contents, n.op.startswith("Mutable"), (n.attr("key_dtype"), n.attr("value_dtype")))


def _table(n: Any, handle: Value) -> dict[Any, Any]:
    """Returns what a table holds, with what the model's initialisation puts into it. Raises GraphError for what is no table."""
    if not isinstance(handle, TableHandle):
        raise GraphError(f"{n.g.described(handle)} where a table is needed", fix="is the file damaged?")
    n.library.initialize(n.g)
    return handle.contents


def _on_table(n: Any, handle: Value, function: Function, values: Sequence[Value], *dtypes: Any) -> tuple[Value, ...]:
    """Returns the results of a step in Python on a table: of one that calls may write always when the call comes to it."""
    if isinstance(handle, TableHandle) and handle.mutable:
        return tuple(n.g.host(n.op, text.as_bytes(function), values, dtypes))
    return step(n, function, values, *dtypes)


@translates("LookupTableFindV2")
def find(n: Any, handle: Value, keys: Value, default: Value) -> Value:
    held = _table(n, handle)

    def run(wanted: Array, other: Array) -> Array:
        found = [held.get(k, other[()]) for k in wanted.ravel().tolist()]
        return text.objects(found, wanted.shape).astype(handle.kinds[1])

    return _on_table(n, handle, run, [keys, default], handle.kinds[1])[0]


@translates("LookupTableSizeV2")
def table_size(n: Any, handle: Value) -> Value:
    held = _table(n, handle)
    return _on_table(n, handle, lambda: np.array(len(held)), [], np.int64)[0]


@translates("LookupTableExportV2", results="keys values")
def export(n: Any, handle: Value) -> tuple[Value, ...]:
    held = _table(n, handle)
    return _on_table(n, handle, lambda: (text.objects(list(held)), text.objects(list(held.values()))), [], *handle.kinds)


@translates("LookupTableImportV2", "LookupTableInsertV2", "LookupTableRemoveV2")
def fill(n: Any, handle: Value, keys: Value, *values: Value) -> tuple[Value, ...]:
    """Puts keys and values into a table, or takes keys out: while the model is initialised now, else when the call comes to it."""
    if not isinstance(handle, TableHandle):
        raise GraphError(f"{n.g.described(handle)} where a table is needed", fix="is the file damaged?")

    def run(added: Array, *to: Array) -> tuple[()]:
        if n.op == "LookupTableRemoveV2":
            for key in added.ravel().tolist():
                handle.contents.pop(key, None)
            return ()
        if n.op == "LookupTableImportV2":
            handle.contents.clear()
        handle.contents.update(zip(added.ravel().tolist(), to[0].ravel().tolist(), strict=True))
        return ()

    if n.library.initializing:
        text.as_bytes(run)(*map(n.g.known, (keys, *values)))
        return ()
    _table(n, handle)
    if not handle.mutable:
        raise UnsupportedError(f"{n.op} of a table that calls do not write", fix="take a MutableHashTable")
    n.g.host(n.op, text.as_bytes(run), [keys, *values], [])
    return ()


WHOLE_LINE, LINE_NUMBER = -2, -1  # what a column of a text file may be


@translates("InitializeTableFromTextFileV2")
def from_file(n: Any, handle: Value, filename: Value) -> tuple[Value, ...]:
    """Fills a table with the lines of an asset of the model."""
    path = n.g.known(filename)[()]
    n.library.check_asset(path.decode("utf-8", "replace") if isinstance(path, bytes) else path)
    by, most, skipped = n.attr("delimiter", "\t").encode(), n.attr("vocab_size", -1), n.attr("offset", 0)
    with open(path, "rb") as file:
        lines = [line.rstrip(b"\r\n") for line in file][skipped:]

    def column(k: int, dtype: Any) -> list[Any]:
        if k == LINE_NUMBER:
            return list(range(len(lines)))
        found = lines if k == WHOLE_LINE else [line.split(by)[k] for line in lines]
        return found if dtype.hasobject else [(int if dtype.kind == "i" else float)(v) for v in found]

    if most >= 0:
        lines = lines[:most]
    columns = [column(n.attr(key), dtype) for key, dtype in zip(("key_index", "value_index"), handle.kinds, strict=True)]
    handle.contents.update(zip(*columns, strict=True))
    return ()
