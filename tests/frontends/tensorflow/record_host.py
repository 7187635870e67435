"""Records ops on strings, tables, images and examples with TensorFlow's answers: `python record_host.py FOLDER`.

It writes FOLDER/host.npz, in the form of `record.py`'s ops.npz, and FOLDER/tables.zip with two SavedModels.
"""

import base64
import io
import os
import struct
import sys
import zipfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import numpy as np
import tensorflow as tf

raw, R, CASES = tf.raw_ops, np.random.default_rng(5), {}


def s(*items, shape=None):
    made = np.empty(len(items), object)
    made[:] = [i if isinstance(i, bytes) else i.encode() for i in items]
    return made.reshape(shape) if shape is not None else made


def case(name, function, *inputs):
    assert name not in CASES, name
    CASES[name] = function, inputs


WORDS = s("Hello, World", "", " x  y ", "Ünïcode ÄÖ", "a-b--c", "123")
case("StringJoin", lambda a, b: (tf.strings.join([a, "-", b]), tf.strings.join([a, "q"], separator=" ")), WORDS, WORDS[::-1].copy())
case(
    "StringFormat", lambda a, b: (tf.strings.format("a {} b {}", (a, b)), tf.strings.format("{}", b, summarize=2)), WORDS[:2], np.arange(9)
)
case(
    "StringFormat_more",
    lambda a, b: (tf.strings.format("{}", a), tf.strings.format("{}", b)),
    np.array([[1.5, 2], [3, 0.1]], np.float32),
    np.array([[True], [False]]),
)
case("StringSplit", lambda a: tuple(raw.StringSplit(input=a, delimiter=" -", skip_empty=True)), WORDS)
case(
    "StringSplit_empty",
    lambda a: (*raw.StringSplit(input=a, delimiter="-", skip_empty=False), *raw.StringSplit(input=a, delimiter="")),
    WORDS,
)
case("StringSplitV2", lambda a: (*raw.StringSplitV2(input=a, sep="-"), *raw.StringSplitV2(input=a, sep="")), WORDS)
case("StringSplitV2_most", lambda a: tuple(raw.StringSplitV2(input=a, sep="-", maxsplit=1)), WORDS)
case(
    "StringCase",
    lambda a: (tf.strings.lower(a), tf.strings.upper(a), tf.strings.lower(a, "utf-8"), tf.strings.upper(a, "utf-8"), tf.strings.strip(a)),
    WORDS,
)
case("StringLength", lambda a: (tf.strings.length(a), tf.strings.length(a, "UTF8_CHAR")), WORDS)
case(
    "Substr",
    lambda a: (tf.strings.substr(a, 1, 2), tf.strings.substr(a, -2, 9), tf.strings.substr(a, 0, 2, "UTF8_CHAR")),
    s("Ünïcode", "abc", "hello"),
)
case("Substr_each", lambda a, b: tf.strings.substr(a, b, b), s("abcdef", "ghijkl"), np.array([1, 3], np.int32))
TEXTS = s("héllo", "日本語", "", "a\tb", b"x\xffy\xe6\x97z", "🙂!")
case(
    "UnicodeDecode",
    lambda a: (
        *raw.UnicodeDecode(input=a, input_encoding="UTF-8"),
        *raw.UnicodeDecodeWithOffsets(input=a, input_encoding="UTF-8", errors="ignore"),
        *raw.UnicodeDecode(input=a, input_encoding="UTF-8", replacement_char=63, replace_control_characters=True),
    ),
    TEXTS,
)
case(
    "UnicodeTranscode",
    lambda a: (
        *(raw.UnicodeTranscode(input=a, input_encoding="UTF-8", output_encoding=e) for e in ("UTF-8", "UTF-16-BE", "UTF-32-BE")),
        raw.UnicodeTranscode(input=a, input_encoding="UTF-8", output_encoding="UTF-8", errors="ignore", replace_control_characters=True),
    ),
    TEXTS,
)
case(
    "UnicodeEncode",
    lambda v, ends: (
        raw.UnicodeEncode(input_values=v, input_splits=ends, output_encoding="UTF-8"),
        raw.UnicodeEncode(input_values=v, input_splits=ends, output_encoding="UTF-16-BE", errors="ignore"),
        raw.UnicodeEncode(input_values=v, input_splits=ends, output_encoding="UTF-32-BE", replacement_char=88),
    ),
    np.array([104, 233, 26085, 0x1F642, 0xD800, 65, 0x110000], np.int32),
    np.array([0, 2, 2, 5, 7], np.int64),
)
PATTERNS = [
    ("[aeiou]", "<\\0>"),
    ("(l+)(o)?", "\\2\\1"),
    ("x*", "-"),
    ("[[:punct:]]", ""),
    ("\\s+", " "),
    ("[^a-z]", "_"),
    ("[]a]", "."),
    ("o$", "!"),
]
case("RegexReplace", lambda a: tuple(tf.strings.regex_replace(a, p, r) for p, r in PATTERNS), WORDS)
case("RegexReplace_once", lambda a: tf.strings.regex_replace(a, "[a-z]", "#", replace_global=False), WORDS)
case("RegexReplace_given", lambda a, p: raw.RegexReplace(input=a, pattern=p, rewrite="\\\\"), WORDS, np.array(b"l+", object))
case("RegexFullMatch", lambda a: (tf.strings.regex_full_match(a, "[a-z-]*"), tf.strings.regex_full_match(a, "\\d+")), WORDS)
NUMBERS = s("1", "-17", " 5 ", "+8")
case(
    "StringToNumber",
    lambda a, b: (
        *(tf.strings.to_number(a, t) for t in (tf.int32, tf.int64)),
        *(tf.strings.to_number(b, t) for t in (tf.float32, tf.float64)),
    ),
    NUMBERS,
    s("1.5", "-1e-3", "inf", " 7"),
)
case(
    "AsString",
    lambda a, b, c: (
        tf.strings.as_string(a), tf.strings.as_string(a, width=6, fill="0"), tf.strings.as_string(b), tf.strings.as_string(b, precision=2),
        tf.strings.as_string(b, scientific=True, precision=3), tf.strings.as_string(b, shortest=True), tf.strings.as_string(c),
        tf.strings.as_string(tf.cast(b, tf.float64)), tf.strings.as_string(a, width=5, fill="-"),
    ),
    np.array([1, -20, 300]), np.array([1.5, -0.001, 1e9], np.float32), np.array([True, False]),
)  # fmt: skip
LONG = s(*[R.integers(0, 256, n, np.uint8).tobytes() for n in (0, 1, 3, 4, 7, 8, 16, 17, 32, 33, 63, 64, 65, 128, 129, 300)])
case("StringToHashBucketFast", lambda a: (tf.strings.to_hash_bucket_fast(a, 1000), tf.strings.to_hash_bucket_fast(a, 1 << 62)), LONG)
case("StringToHashBucket", lambda a: tuple(raw.StringToHashBucket(string_tensor=a, num_buckets=n) for n in (1000, 1 << 62)), LONG)
case("Base64", lambda a: (tf.io.encode_base64(a), tf.io.encode_base64(a, True), tf.io.decode_base64(tf.io.encode_base64(a))), LONG)
GRID = s(*"abcdef", shape=(2, 3))
case(
    "ReduceJoin",
    lambda a: (
        tf.strings.reduce_join(a),
        tf.strings.reduce_join(a, 0, separator="+"),
        tf.strings.reduce_join(a, 1, True),
        tf.strings.reduce_join(a, [0, 1]),
        tf.strings.reduce_join(a, [1, 0]),
        tf.strings.reduce_join(a[:0], 0),
        tf.strings.reduce_join(a[:0], 1),
    ),
    GRID,
)
case(
    "UnsortedSegmentJoin",
    lambda a, i: (
        tf.strings.unsorted_segment_join(a, i, 4, "+"),
        tf.strings.unsorted_segment_join(a, tf.constant([[1, 4, 1], [0, 3, 0]]), 5),
    ),
    GRID,
    np.array([2, 0], np.int32),
)
case("StringEqual", lambda a, b: (a == b, a != b, tf.equal(a, "abc")), s("abc", "x", ""), s("abc", "y", ""))
case(
    "StringMoves",
    lambda a: (
        tf.reshape(a, [3, 2]),
        tf.transpose(a),
        a[:, 1:],
        a[0],
        tf.concat([a, a], 1),
        tf.stack([a, a]),
        tf.gather(a, [1, 0, 1]),
        tf.tile(a, [1, 2]),
        tf.expand_dims(a, 0),
        tf.squeeze(a[:1], 0),
        *tf.unstack(a, 2),
        *tf.split(a, 3, 1),
        tf.shape(a),
        tf.size(a),
        tf.rank(a),
        tf.fill([2], "z"),
        tf.where(a == "b", "!", a),
        tf.zeros_like(a),
        tf.reverse(a, [1]),
        tf.broadcast_to(a[:1], [4, 3]),
        tf.slice(a, [0, 1], [2, 2]),
    ),
    GRID,
)
case(
    "DecodeRaw",
    lambda a: (tf.io.decode_raw(a, tf.int16), tf.io.decode_raw(a, tf.uint8), tf.io.decode_raw(a, tf.float32, little_endian=False)),
    s(b"\x01\x02\x03\x04\x05\x06\x07\x08", b"\x00\x00\x80?\x00\x00\x00@"),
)
case("DecodeRaw_used", lambda a: tf.cast(tf.io.decode_raw(a, tf.uint8), tf.float32) * 2, np.array(b"abcdef", object))


def picture(*shape, dtype=np.uint8):
    at = np.indices(shape[:2]).sum(0)[:, :, None] * 5 + np.arange(shape[2]) * 40
    return ((at + R.integers(0, 9, shape)) * (257 if dtype == np.uint16 else 1)).astype(dtype)


for channels in (1, 2, 3, 4):
    data = np.array(tf.io.encode_png(picture(13, 17, channels)).numpy(), object)
    case(f"DecodePng{channels}", lambda a: tuple(tf.io.decode_png(a, k) for k in (0, 1, 3, 4)), data)
case(
    "DecodePng_wide",
    lambda a: (tf.io.decode_png(a, 0, tf.uint16), tf.io.decode_png(a)),
    np.array(tf.io.encode_png(picture(5, 7, 1, dtype=np.uint16)).numpy(), object),
)
case("DecodePng_wide_colours", lambda a: tf.io.decode_png(a), np.array(tf.io.encode_png(picture(5, 7, 3, dtype=np.uint16)).numpy(), object))
EXACT = "INTEGER_ACCURATE"
JPEG = np.array(tf.io.encode_jpeg(picture(37, 51, 3)).numpy(), object)
case("DecodeJpeg", lambda a: (tf.io.decode_jpeg(a, dct_method=EXACT), tf.io.decode_jpeg(a, 1, dct_method=EXACT)), JPEG)
case("DecodeJpeg_ratio", lambda a: (tf.io.decode_jpeg(a, ratio=2, dct_method=EXACT), tf.io.decode_jpeg(a, ratio=8, dct_method=EXACT)), JPEG)
case(
    "DecodeJpeg_grey",
    lambda a: (tf.io.decode_jpeg(a, dct_method=EXACT), tf.io.decode_jpeg(a, 3, dct_method=EXACT)),
    np.array(tf.io.encode_jpeg(picture(9, 8, 1)).numpy(), object),
)
case("DecodeImage", lambda a: (tf.io.decode_image(a, expand_animations=False), tf.io.decode_image(a, 3, tf.float32, False)), JPEG)
case("EncodePng", lambda a: tf.io.decode_png(tf.io.encode_png(a)), picture(4, 5, 3))


def example(**features):
    made = {}
    for key, value in features.items():
        if isinstance(value[0], bytes):
            made[key] = tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
        elif isinstance(value[0], float):
            made[key] = tf.train.Feature(float_list=tf.train.FloatList(value=value))
        else:
            made[key] = tf.train.Feature(int64_list=tf.train.Int64List(value=value))
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


ROWS = s(example(a=[1.0, 2.0], b=[3], c=[b"x"], d=[1.0]), example(a=[4.0, 5.0], c=[b"yy"], d=[2.0, 3.0, 4.0]))
FEATURES = {
    "a": tf.io.FixedLenFeature([2], tf.float32), "b": tf.io.FixedLenFeature([], tf.int64, 7), "c": tf.io.FixedLenFeature([1], tf.string),
    "d": tf.io.FixedLenSequenceFeature([], tf.float32, True, -1.0),
}  # fmt: skip
case("ParseExampleV2", lambda a: tuple(tf.io.parse_example(a, FEATURES)[k] for k in "abcd"), ROWS)
case("ParseSingleExample", lambda a: tuple(tf.io.parse_single_example(a[0], {k: FEATURES[k] for k in "abc"})[k] for k in "abc"), ROWS)
case(
    "ParseExample",
    lambda a: tuple(
        raw.ParseExample(
            serialized=a,
            names=[],
            sparse_keys=[],
            dense_keys=["a", "b"],
            dense_defaults=[np.zeros(0, np.float32), np.array(5, np.int64)],
            sparse_types=[],
            dense_shapes=[[2], []],
        ).dense_values
    ),
    ROWS,
)

case("StringShapes", lambda a, b: (*raw.ShapeN(input=[a, b]), *raw.ShapeN(input=[b, a, a], out_type=tf.int64)), WORDS, GRID)
case(
    "ParseSingleExample_old",
    lambda a: tuple(
        raw.ParseSingleExample(
            serialized=a[0],
            dense_defaults=[np.zeros(0, np.float32), np.array(7, np.int64), np.array([b""], object), np.array([-1.0], np.float32)],
            num_sparse=0,
            sparse_keys=[],
            dense_keys=["a", "b", "c", "d"],
            sparse_types=[],
            dense_shapes=[[2], [], [1], [None]],
        ).dense_values
    ),
    ROWS[::-1].copy(),
)


def bitmap(pixels, gap=0):
    """Returns a BMP file of [height, width, 1, 3 or 4], whose rows go up; `gap` bytes stand before them."""
    height, width, channels = pixels.shape
    stored = pixels if channels == 1 else pixels[:, :, [2, 1, 0, 3][:channels]]
    rows = [row.tobytes().ljust((width * channels + 3) // 4 * 4, b"\0") for row in stored[::-1]]
    head = struct.pack("<2sIHHI", b"BM", 54 + gap + sum(map(len, rows)), 0, 0, 54 + gap)
    facts = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8 * channels, 0, 0, 0, 0, 0, 0)
    return np.array(head + facts + bytes(gap) + b"".join(rows), object)


for channels in (1, 3, 4):
    data = bitmap(picture(5, 7, channels), gap=1024 if channels == 1 else 0)
    case(f"DecodeBmp{channels}", lambda a, k=channels: (tf.io.decode_bmp(a), tf.io.decode_bmp(a, k if k > 1 else 0)), data)
case(
    "DecodeImage_wide",
    lambda a, b: (tf.io.decode_image(a, 0, tf.uint16, False), tf.io.decode_image(b, 0, tf.uint16, False)),
    JPEG,
    CASES["DecodePng3"][1][0],
)
BITMAP = bitmap(picture(3, 6, 3))
case("DecodeImage_bmp", lambda a: (tf.io.decode_image(a, expand_animations=False), tf.io.decode_image(a, 3, tf.uint16, False)), BITMAP)

PLACES = np.array([[0, 0], [0, 1], [2, 0]], np.int64)
case(
    "SparseCross",
    lambda a, b, c: tuple(
        part
        for made in (
            tf.sparse.cross_hashed([tf.SparseTensor(PLACES, a, [3, 2]), b], 100),
            tf.sparse.cross_hashed([b, c], 0, 7),
            tf.sparse.cross([tf.SparseTensor(PLACES, a, [3, 2]), tf.strings.as_string(b), c]),
            tf.sparse.cross([c, c], separator="/"),
        )
        for part in (made.indices, made.values, made.dense_shape)
    ),
    s("u", "v", "w"),
    np.array([[3, 1], [4, 1], [5, 9]]),
    s("x", "y", "z", shape=(3, 1)),
)
case("SetOperation", lambda a, b: tuple(x.values for x in (tf.sets.union(a, b), tf.sets.difference(a, b))), GRID, GRID[:, ::-1].copy())

GIF = np.array(
    base64.b64decode(  # two frames of 4 x 6 pixels, red and blue
        "R0lGODdhBgAEAIEAAP8AAAAAAAAAAAAAACwAAAAABgAEAAAICwABCBxIsKDBgQEBACH5BAEAAAEALAAAAAAGAAQAgQAA/wAAAAAAAAAAAAgLAAEIHEiwoMGBAQEAOw=="
    ),
    object,
)
case("DecodeGif", lambda a: (raw.DecodeGif(contents=a), tf.io.decode_image(a), tf.io.decode_image(a, expand_animations=False)), GIF)
case("EncodeJpeg", lambda a: tf.io.decode_jpeg(tf.io.encode_jpeg(a, quality=90), dct_method="INTEGER_ACCURATE"), picture(9, 11, 3))

for dtype in (tf.float32, tf.float64, tf.float16):
    case(
        f"StatelessTruncatedNormal_{dtype.name}",
        lambda a, t=dtype: tf.random.stateless_truncated_normal([77, 3], a, dtype=t),
        np.array([3, 9]),
    )


def record(path):
    saved = {}
    for name, (function, inputs) in CASES.items():
        traced = tf.function(function, autograph=False)
        concrete = traced.get_concrete_function(
            *[tf.TensorSpec([None] * a.ndim, tf.string if a.dtype == object else a.dtype) for a in inputs]
        )
        saved[f"{name}|graph"] = np.frombuffer(concrete.graph.as_graph_def().SerializeToString(), np.uint8)
        saved[f"{name}|names"] = np.array([*[t.name for t in concrete.inputs], "->", *[t.name for t in concrete.outputs]])
        for k, a in enumerate(inputs):
            saved[f"{name}|in{k}"] = a
        for k, a in enumerate(tf.nest.flatten(traced(*[tf.constant(a) for a in inputs]))):
            saved[f"{name}|out{k}"] = a.numpy()
    np.savez_compressed(os.path.join(path, "host.npz"), **saved)


class Words(tf.Module):
    """A table of constants, one of a file, and one that calls write."""

    def __init__(self, path):
        lookup = tf.lookup
        self.fixed = lookup.StaticHashTable(lookup.KeyValueTensorInitializer(tf.constant(["a", "b"]), tf.constant([10, 20], tf.int64)), -1)
        self.file = tf.saved_model.Asset(path)
        kinds = tf.string, lookup.TextFileIndex.WHOLE_LINE, tf.int64, lookup.TextFileIndex.LINE_NUMBER
        self.lines = lookup.StaticVocabularyTable(lookup.TextFileInitializer(self.file, *kinds), 2)
        self.counts = lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
        self.counts.insert(tf.constant(["seen"]), tf.constant([3], tf.int64))
        self.w = tf.Variable([[1.0, 2], [3, 4], [5, 6], [7, 8], [9, 10]])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def look(self, words):
        ids = self.lines.lookup(tf.strings.lower(words))
        return {"fixed": self.fixed.lookup(words), "size": self.fixed.size(), "rows": tf.gather(self.w, ids), "ids": ids}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def count(self, words):
        self.counts.insert(words, self.counts.lookup(words) + 1)
        return {"now": self.counts.lookup(words), "many": self.counts.size()}


def record_tables(path):
    vocabulary = os.path.join(path, "vocabulary.txt")
    with open(vocabulary, "w", encoding="utf-8") as file:
        file.write("one\ntwo\nthree\n")
    model = Words(vocabulary)
    folder = os.path.join(path, "tables")
    tf.saved_model.save(model, folder, signatures={"look": model.look, "count": model.count})
    words = s("one", "TWO", "b", "zzz", "a")
    found = {f"look|{k}": v.numpy() for k, v in model.look(tf.constant(words)).items()}
    for turn in range(2):
        found |= {f"count{turn}|{k}": v.numpy() for k, v in model.count(tf.constant(["seen", "new"])).items()}
    answers = io.BytesIO()
    np.savez_compressed(answers, words=words, **found)
    with zipfile.ZipFile(os.path.join(path, "tables.zip"), "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("tables.npz", answers.getvalue())
        for base, _, names in os.walk(folder):
            for name in names:
                at = os.path.join(base, name)
                file.write(at, os.path.relpath(at, path))


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    record(sys.argv[1])
    record_tables(sys.argv[1])
