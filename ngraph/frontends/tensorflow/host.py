"""Translators of ops on strings, lookup tables, encoded images and examples: steps in Python, counted in `Model.host_callbacks`.

Strings are bytes, as in TensorFlow. What an op takes and gives is that of tensorflow/core/ops/string_ops.cc, lookup_ops.cc, image_ops.cc
and parsing_ops.cc.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np

from ngraph.errors import BoundsError, GraphError, UnsupportedError
from ngraph.frontends.positional import images, text
from ngraph.frontends.positional.folding import is_text, of_text
from ngraph.frontends.positional.values import Value
from ngraph.frontends.tensorflow import folding
from ngraph.frontends.tensorflow.graph import Resource
from ngraph.frontends.tensorflow.messages import parsed
from ngraph.frontends.tensorflow.table import EARLY, Array, attributes_of, register, translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType

Function = Callable[..., Any]
STRINGS = np.dtype(object)


def step(n: Any, function: Function, values: Sequence[Value], *kinds: Any) -> tuple[Value, ...]:
    """Returns the results of a function of arrays whose strings are bytes."""
    return text.in_python(n, text.as_bytes(function), values, kinds)


def steps(*ops: str, gives: Any = (STRINGS,), results: str = "", python: bool = False) -> Callable[[Function], Function]:
    """Registers the function under it, of a node, arrays whose strings are bytes, and attributes, as a step in Python.

    gives: the dtypes of its results, or a function of the node and its inputs that gives these.
    """

    def add(function: Function) -> Function:
        attributes = attributes_of(function)

        @wraps(function)
        def translate(n: Any, *inputs: Value) -> tuple[Value, ...]:
            return step(n, partial(function, n, **attributes(n)), inputs, *(gives(n, *inputs) if callable(gives) else gives))

        register(translate, ops, results, python=python)
        return function

    return add


def kinds(words: str) -> Function:
    """Returns what gives the dtypes of results: a word is the number of an input that has it, `name=dtype` an attribute, or a dtype."""

    def kind(n: Any, word: str, inputs: Sequence[Value]) -> Any:
        name, _, default = word.rpartition("=")
        if name:
            return n.attr(name, np.dtype(default))
        return inputs[int(word)].np if word.lstrip("-").isdigit() else np.dtype(word)

    return lambda n, *inputs: [kind(n, word, inputs) for word in words.split()]


def rows_of_steps(table: dict[str, tuple[Function, Any, str]]) -> None:
    """Registers a function of arrays and attributes for each row, whose key names ops; with its results' dtypes (`kinds`) and names."""
    for ops, (function, gives, results) in table.items():
        register(_of_arrays(function, kinds(gives) if isinstance(gives, str) else gives), ops.split(), results, python=True)


def _of_arrays(function: Function, gives: Function) -> Function:
    attributes = attributes_of(function)
    return lambda n, *inputs: step(n, partial(function, **attributes(n)), inputs, *gives(n, *inputs))


def elements(*ops: str, gives: Any = (STRINGS,)) -> Callable[[Function], Function]:
    """Registers the function under it, of a node, one element of each input, and attributes, as a step in Python. gives: see `steps`."""

    def add(function: Function) -> Function:
        @wraps(function)
        def run(n: Any, *arrays: Array, **attributes: Any) -> Array:
            return text.by_element(partial(function, n, **attributes), object)(*arrays)

        return steps(*ops, gives=gives)(run)

    return add


# ---- ops that move strings as they move numbers -----------------------------------------------------------------------------

_AS_NUMBERS = "Pack Unpack ConcatV2 Concat Split StridedSlice Slice GatherV2 Gather Reshape ExpandDims Squeeze Transpose Tile"
MOVING: dict[str, Function] = {
    **{op: folding.FOLD[op] for op in (*_AS_NUMBERS.split(), "ReverseV2", "BroadcastTo", "Select", "SelectV2", "SplitV")},
    "Fill": lambda n, shape, value: np.full(shape, value),
    "ZerosLike": lambda n, a: np.full(a.shape, b"", object),
    "GatherNd": lambda n, a, i: a[tuple(np.moveaxis(i, -1, 0))],
    "SparseToDense": lambda n, i, shape, v, default: _dense(i, shape, v, default),
}
MEASURED: dict[str, tuple[Function, Any]] = {  # what has numbers for its result, with its dtype, None for that of an attribute
    **dict.fromkeys(("Shape", "ShapeN"), (lambda *a: [np.array(x.shape) for x in a], None)),
    "Size": (lambda a: np.array(a.size), None),
    "Equal": (lambda a, b: np.asarray(a == b), np.bool_),
    "NotEqual": (lambda a, b: np.asarray(a != b), np.bool_),
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
    return step(n, measure, inputs, *[dtype or n.attr("out_type", np.int32)] * n.attr("N", 1))


EARLY.append(of_strings)


def _dense(i: Array, shape: Array, v: Array, default: Array) -> Array:
    """Returns strings at places of an array, and another one elsewhere."""
    made = np.full(shape, default[()], object)
    made[tuple(i.reshape(-1, len(shape)).T)] = v
    return made


def _checked(n: Any, found: Any) -> Any:
    if found is NotImplemented:
        raise GraphError(f"{n.op} of strings goes beyond what there is")
    return found


# ---- strings ----------------------------------------------------------------------------------------------------------------

TEXT: dict[str, Function] = {
    "StringJoin": lambda n, *s, separator="": separator.encode().join(s),
    "StringStrip": lambda n, s: s.strip(b" \t\n\v\f\r"),
    "RegexReplace": lambda n, s, p, r, *, replace_global=True: text.replaced(s, p, r, replace_global),
    "StaticRegexReplace": lambda n, s, *, pattern, rewrite, replace_global=True: text.replaced(
        s, pattern.encode(), rewrite.encode(), replace_global
    ),
    "EncodeBase64": lambda n, s, *, pad=False: base64.urlsafe_b64encode(s).rstrip(b"" if pad else b"="),
    "UnicodeTranscode": lambda n, s: _encoded(n, [code for _, code in _characters(n, s)]),
    "DecodeBase64": lambda n, s: text.from_base64(s),
}
NUMBERS: dict[str, tuple[Function, Any]] = {  # functions of strings, and the dtypes of what they give
    "StringLength": (lambda n, s, *, unit="BYTE": len(s) if unit == "BYTE" else sum(c & 0xC0 != 0x80 for c in s), np.int32),
    "RegexFullMatch": (lambda n, s, p: text.full_match(s, p), np.bool_),
    "StaticRegexFullMatch": (lambda n, s, *, pattern: text.full_match(s, pattern.encode()), np.bool_),
    "StringToHashBucketStrong": (lambda n, s, *, key, num_buckets: text.keyed_fingerprint(s, key) % num_buckets, np.int64),
    "StringToHashBucket": (lambda n, s, *, num_buckets: text.murmur64(s, 0xDECAFCAFFE) % num_buckets, np.int64),
    "StringToHashBucketFast": (lambda n, s, *, num_buckets: text.fingerprint64(s) % num_buckets, np.int64),
}
for _op, (_function, _dtype) in ({op: (function, STRINGS) for op, function in TEXT.items()} | NUMBERS).items():
    elements(_op, gives=(_dtype,))(_function)


@elements("StringLower", "StringUpper")
def cased(n: Any, s: bytes, *, encoding: str = "") -> bytes:
    wide = s.decode("utf-8", "surrogateescape") if encoding == "utf-8" else s
    found = wide.lower() if n.op == "StringLower" else wide.upper()
    return found.encode("utf-8", "surrogateescape") if isinstance(found, str) else found


@elements("StringToNumber", gives=lambda n, x: [n.attr("out_type", np.float32)])
def number(n: Any, s: bytes, *, out_type: DType = dtypes.float32) -> float:
    try:
        if b"_" in s:
            raise ValueError
        found = float(s) if out_type.is_float else int(s)
    except ValueError:
        raise GraphError(f"the string {s!r} is not a number", fix="give StringToNumber numbers alone") from None
    if not out_type.is_float and not out_type.lowest <= found <= out_type.highest:
        raise GraphError(f"the number {found} does not fit into {out_type}", fix="take out_type=int64")
    return found


@elements("Substr")
def part(n: Any, s: bytes, start: int, length: int, *, unit: str = "BYTE") -> bytes:
    whole: Any = s.decode("utf-8", "replace") if unit == "UTF8_CHAR" else s
    if not -len(whole) <= start <= len(whole):
        raise BoundsError(f"Substr from {start} on of a string of {len(whole)}", fix="start within the string")
    first = start + len(whole) if start < 0 else start
    found = whole[first : first + max(length, 0)]
    return found.encode() if isinstance(found, str) else found


@steps("AsString")
def as_string(
    n: Any, a: Array, *, T: Any, scientific: bool = False, shortest: bool = False, precision: int = -1, width: int = -1, fill: str = ""
) -> Array:
    letter = "e" if scientific else "g" if shortest else "f"
    return text.by_element(text.shown(T, letter, precision, width, fill), object)(a)


@steps("StringFormat")
def string_format(n: Any, *arrays: Array, summarize: int = 3, template: str = "%s", placeholder: str = "%s") -> Array:
    parts = template.split(placeholder)
    made = parts[0] + "".join(text.summary(a, summarize) + part for a, part in zip(arrays, parts[1:], strict=True))
    return text.objects([made.encode()], ())


@steps("ReduceJoin")
def reduce_join(n: Any, a: Array, along: Array, *, keep_dims: bool = False, separator: str = "") -> Array:
    """Returns strings joined along dims, in the order that is given."""
    return text.joined_along(a, along.ravel()[::-1].tolist(), keep_dims, separator.encode())


@steps("StringSplit", "StringSplitV2", gives=(np.int64, STRINGS, np.int64), results="indices values shape")
def string_split(n: Any, a: Array, by: Array, *, maxsplit: int = -1, skip_empty: bool = True) -> tuple[Array, ...]:
    """Returns the parts as the indices, values and shape of a sparse matrix."""

    def parts(s: bytes, by: bytes) -> list[bytes]:
        return s.split(by or None, maxsplit) if n.op == "StringSplitV2" else text.pieces(s, by, skip_empty)

    delimiter: Any = by[()]
    rows = [parts(s, delimiter) for s in a.ravel()]
    at = [(k, j) for k, row in enumerate(rows) for j in range(len(row))]
    values = text.objects([p for row in rows for p in row])
    return np.array(at, np.int64).reshape(-1, 2), values, np.array([len(rows), max(map(len, rows), default=0)], np.int64)


def _bad(n: Any) -> Callable[[int], list[int]]:
    """Returns what a node's attribute `errors` puts in place of what is no character. Its function raises GraphError for `strict`."""
    errors, other = n.attr("errors", "replace"), n.attr("replacement_char", 0xFFFD)

    def run(at: int) -> list[int]:
        if errors == "strict":
            raise GraphError(f"{n.op}: there is no character at byte {at}", fix="give text in the encoding, or errors='replace'")
        return [other] if errors == "replace" else []

    return run


def _characters(n: Any, s: bytes) -> list[tuple[int, int]]:
    """Returns places and numbers of a string's characters, by a node's attributes."""
    bad, least = _bad(n), 32 if n.attr("replace_control_characters", False) else 0
    found = text.characters(s, n.attr("input_encoding").lower(), bad)
    return [(at, c) for at, code in found for c in ([code] if code >= least else bad(at))]


def _encoded(n: Any, codes: Sequence[int]) -> bytes:
    """Returns a string of characters by their numbers, by a node's attributes."""
    bad = _bad(n)
    kept = (c for k, code in enumerate(codes) for c in ([code] if 0 <= code < 0xD800 or 0xDFFF < code < 0x110000 else bad(k)))
    return "".join(map(chr, kept)).encode(n.attr("output_encoding").lower().replace("_", "-"))


@steps(
    "UnicodeDecode",
    "UnicodeDecodeWithOffsets",
    gives=lambda n, x: (n.attr("Tsplits", np.int64), np.int32, *[np.int64] * n.op.endswith("Offsets")),
    results="row_splits char_values char_to_byte_starts",
)
def unicode_decode(n: Any, a: Array) -> tuple[Array, ...]:
    rows = [_characters(n, s) for s in a.ravel()]
    at, codes = (np.array([c[k] for row in rows for c in row], np.int64) for k in (0, 1))
    return (np.cumsum([0, *map(len, rows)]), codes, at)[: 3 if n.op.endswith("Offsets") else 2]


@steps("UnicodeEncode")
def unicode_encode(n: Any, codes: Array, ends: Array) -> Array:
    return text.objects([_encoded(n, codes[a:b].tolist()) for a, b in zip(ends, ends[1:], strict=False)])


@steps("StringNGrams", gives=lambda n, x, splits: (STRINGS, splits.np), results="ngrams ngrams_splits")
def ngrams(n: Any, words: Array, ends: Array, *, pad_width: int, preserve_short_sequences: bool) -> tuple[Array, Array]:
    """Returns the words of each row joined in groups of each width, with marks before and behind the row, and where rows begin."""
    before, behind, by = (n.attr(name).encode() for name in ("left_pad", "right_pad", "separator"))
    return text.groups(words, ends, n.attr("ngram_widths"), pad_width, preserve_short_sequences, before, behind, by)


@steps("UnsortedSegmentJoin")
def segment_join(n: Any, a: Array, numbers: Array, many: Array, *, separator: str = "") -> Array:
    return text.joined_segments(a, numbers, int(many), separator.encode())


@steps("DecodeRaw", gives=lambda n, x: [n.attr("out_type")])
def decode_raw(n: Any, a: Array, *, out_type: Any, little_endian: bool = True) -> Array:
    return text.numbers_in(a, out_type, little_endian)


# ---- images -----------------------------------------------------------------------------------------------------------------


def pillow() -> Any:
    """Returns Pillow's module of images. Raises UnsupportedError where it is not installed."""
    try:
        from PIL import Image
    except ImportError:
        raise UnsupportedError("decoding images needs Pillow, which is not installed", fix="pip install pillow") from None
    return Image


@steps("DecodeJpeg", "DecodePng", "DecodeImage", "DecodeBmp", "DecodeGif", gives=lambda n, x: [n.attr("dtype", np.uint8)])
def decode(n: Any, a: Array, *, dtype: DType = dtypes.uint8, channels: int = 0, ratio: int = 1) -> Array:
    """Returns the pixels of an image, [height, width, channels].

    JPEG files are decoded by exact arithmetic, TensorFlow's INTEGER_ACCURATE; its default, INTEGER_FAST, differs by some units.
    """
    data: Any = a[()]
    if n.op == "DecodeGif" or (n.op == "DecodeImage" and data[:3] == b"GIF"):
        found = images.frames(pillow(), data)
        found = found if n.attr("expand_animations", True) else found[0]
        return found / np.float32(255) if dtype is dtypes.float32 else found
    wide = dtype is dtypes.uint16
    bitmap = n.op == "DecodeBmp" or (n.op == "DecodeImage" and data[:2] == b"BM")
    found = images.bitmap(data, channels, wide) if bitmap else images.decoded(pillow(), data, channels, ratio, wide)
    return found / np.float32(255) if dtype is dtypes.float32 else found


steps("EncodePng")(lambda n, a: text.objects([images.encoded(pillow(), a)], ()))


@steps("EncodeJpeg", "EncodeJpegVariableQuality")
def encode_jpeg(n: Any, a: Array, *given: Array, quality: int = 95, progressive: bool = False) -> Array:
    options = {"progressive": progressive, "optimize": n.attr("optimize_size", False)}
    options["subsampling"] = 2 if n.attr("chroma_downsampling", True) else 0
    return text.objects([images.encoded(pillow(), a, quality=int(given[0]) if given else quality, **options)], ())


# ---- examples ---------------------------------------------------------------------------------------------------------------

_SPARSE = "sparse_indices*{0} sparse_values*sparse_types sparse_shapes*{0} dense_values*Tdense"
LISTS = {"O": "bytes_list", "f": "float_list", "i": "int64_list"}  # fields of a Feature by the kind of NumPy's dtype


@translates(
    "ParseExampleV2", results=f"{_SPARSE.format('num_sparse')} ragged_values*ragged_value_types ragged_row_splits*ragged_split_types"
)
@translates("ParseExample", results=_SPARSE.format("Nsparse"))
@translates("ParseSingleExample", results=_SPARSE.format("num_sparse"))
def parse(n: Any, serialized: Value, *more: Value) -> tuple[Value, ...]:
    """Returns features of messages tf.train.Example: places, values, shapes of sparse ones, dense ones, values and rows of ragged ones."""
    kinds, shapes = n.attr("Tdense", []), n.attr("dense_shapes", [])
    of_sparse, of_ragged = n.attr("sparse_types", []), n.attr("ragged_value_types", [])
    count, loose = len(kinds), [*of_sparse, *of_ragged]
    defaults = more[len(more) - count :]
    if n.op == "ParseSingleExample":  # names stand in attributes
        sparse, names, ragged = *([k.encode() for k in n.attr(f"{kind}_keys", [])] for kind in ("sparse", "dense")), []
    elif n.op == "ParseExampleV2":
        sparse, names, ragged = ([bytes(v) for v in n.g.known(keys).ravel()] for keys in more[1:4])
    else:
        given = [n.g.known(v)[()] for v in more[1 : 1 + len(of_sparse) + count]]
        sparse, names, ragged = given[: len(of_sparse)], given[len(of_sparse) :], []

    def listed(features: Any, name: Any, dtype: Any) -> list[Any] | None:
        """Returns the values of a feature, None where there is none."""
        key, field = name.decode("utf-8", "replace"), LISTS[dtype.kind]
        found = features[key] if key in features else None
        kind = None if found is None else found.WhichOneof("kind")
        if kind not in (None, field):
            raise GraphError(f"the feature {key!r} is a {kind}, and a {field} is read", fix="name its dtype in the features")
        return None if kind is None else list(getattr(found, kind).value)

    def feature(features: Any, k: int, default: Array) -> list[Any]:
        found = listed(features, names[k], kinds[k])
        if found is not None:
            return found
        if shapes[k] and shapes[k][0] is None:
            return []
        if not default.size:
            said = f"an example has no feature {names[k].decode('utf-8', 'replace')!r}, which has no default"
            raise GraphError(said, fix="give FixedLenFeature a default_value")
        return list(np.broadcast_to(default, shapes[k]).ravel() if default.size == 1 else default.ravel())

    def run(messages: Array, *given: Array) -> list[Array]:
        examples = [parsed("Example", s, "an example").features.feature for s in messages.ravel()]
        made, places, values, sizes, ends = list[Array](), list[Array](), list[Array](), list[Array](), list[Array]()
        for name, dtype in zip([*sparse, *ragged], loose, strict=True):
            rows = [listed(example, name, dtype) or [] for example in examples]
            lengths = np.array([len(row) for row in rows], np.int64)
            at = [np.repeat(np.arange(len(rows)), lengths), np.concatenate([np.zeros(0, np.int64), *map(np.arange, lengths)])]
            places.append(np.stack(at[1 - messages.ndim :], 1))
            values.append(np.array([v for row in rows for v in row], dtype))
            sizes.append(np.array([len(rows), lengths.max(initial=0)])[1 - messages.ndim :])
            ends.append(np.cumsum([0, *lengths]))
        for k, default in enumerate(given):
            rows = [feature(example, k, default) for example in examples]
            open_, known = bool(shapes[k]) and shapes[k][0] is None, [s for s in shapes[k] if s is not None]
            each = math.prod(known)
            wanted = max(map(len, rows), default=0) if open_ else each
            for row in rows:
                if open_ and len(row) % max(each, 1) == 0:
                    row.extend([default.ravel()[0]] * (wanted - len(row)))
                if len(row) != wanted:
                    raise GraphError(f"a feature {names[k].decode()!r} has {len(row)} values, and the shape {list(shapes[k])}")
            whole = np.empty((len(rows), wanted), kinds[k])
            for row, content in zip(whole, rows, strict=True):
                row[:] = content
            made.append(whole.reshape([*messages.shape, *([wanted // max(each, 1)] if open_ else []), *known]))
        many = len(sparse)
        return [*places[:many], *values[:many], *sizes[:many], *made, *values[many:], *ends[many:]]

    integers = [np.dtype(np.int64)] * len(of_sparse)
    gives = [*integers, *of_sparse, *integers, *kinds, *of_ragged, *n.attr("ragged_split_types", [])]
    return step(n, run, [serialized, *defaults], *gives)


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


def _table(n: Any, handle: Value) -> TableHandle:
    """Returns the handle of a table. Raises GraphError for what is no table."""
    if not isinstance(handle, TableHandle):
        raise GraphError(f"{n.g.described(handle)} where a table is needed", fix="is the file damaged?")
    return handle


def _on_table(n: Any, handle: Value, function: Function, values: Sequence[Value], *kinds: Any) -> tuple[Value, ...]:
    """Returns the results of a step in Python on a table with what the model's initialisation puts into it.

    function: of what the table holds, and of arrays; on a table that calls may write it runs always when the call comes to it.
    """
    held, run = _table(n, handle), partial(function, handle.contents)
    n.library.initialize(n.g)
    if held.mutable:
        return tuple(n.g.host(n.op, text.as_bytes(run), values, kinds))
    return step(n, run, values, *kinds)


@translates("LookupTableFindV2")
def find(n: Any, handle: Value, keys: Value, default: Value) -> Value:
    def run(held: dict[Any, Any], wanted: Array, other: Array) -> Array:
        found = [held.get(k, other[()]) for k in wanted.ravel().tolist()]
        return text.objects(found, wanted.shape).astype(handle.kinds[1])

    return _on_table(n, handle, run, [keys, default], _table(n, handle).kinds[1])[0]


translates("LookupTableSizeV2")(lambda n, handle: _on_table(n, handle, lambda held: np.array(len(held)), [], np.int64))


@translates("LookupTableExportV2", results="keys values")
def export(n: Any, handle: Value) -> tuple[Value, ...]:
    def run(held: dict[Any, Any]) -> tuple[Array, Array]:
        return text.objects(list(held)), text.objects(list(held.values()))

    return _on_table(n, handle, run, [], *_table(n, handle).kinds)


@translates("LookupTableImportV2", "LookupTableInsertV2", "LookupTableRemoveV2", "InitializeTableV2")
def fill(n: Any, handle: Value, keys: Value, *values: Value) -> tuple[Value, ...]:
    """Puts keys and values into a table, or takes keys out: while the model is initialised now, else when the call comes to it."""
    held = _table(n, handle)

    def run(contents: dict[Any, Any], added: Array, *to: Array) -> tuple[()]:
        if n.op == "LookupTableRemoveV2":
            for key in added.ravel().tolist():
                contents.pop(key, None)
            return ()
        if n.op in ("LookupTableImportV2", "InitializeTableV2"):
            contents.clear()
        contents.update(zip(added.ravel().tolist(), to[0].ravel().tolist(), strict=True))
        return ()

    if n.library.initializing:
        return text.as_bytes(partial(run, held.contents))(*map(n.g.known, (keys, *values)))
    if not held.mutable:
        raise UnsupportedError(f"{n.op} of a table that calls do not write", fix="take a MutableHashTable")
    return _on_table(n, handle, run, [keys, *values])


WHOLE_LINE, LINE_NUMBER = -2, -1  # what a column of a text file may be


@translates("InitializeTableFromTextFileV2")
def from_file(n: Any, handle: Value, filename: Array, *, delimiter: str = "\t", vocab_size: int = -1, offset: int = 0) -> tuple[Value, ...]:
    """Fills a table with the lines of an asset of the model."""
    path: Any = filename[()]
    n.library.check_asset(path.decode("utf-8", "replace") if isinstance(path, bytes) else path)
    with open(path, "rb") as file:
        lines = [line.rstrip(b"\r\n") for line in file][offset:]
    lines = lines[:vocab_size] if vocab_size >= 0 else lines

    def column(k: int, dtype: Any) -> list[Any]:
        if k == LINE_NUMBER:
            return list(range(len(lines)))
        found = lines if k == WHOLE_LINE else [line.split(delimiter.encode())[k] for line in lines]
        return found if dtype.hasobject else [(int if dtype.kind == "i" else float)(v) for v in found]

    columns = [column(n.attr(key), dtype) for key, dtype in zip(("key_index", "value_index"), handle.kinds, strict=True)]
    handle.contents.update(zip(*columns, strict=True))
    return ()
