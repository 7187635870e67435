"""Pickles of plain data are read as Python reads them; nothing else is: no code, no objects, no memory that the file has not brought."""

import pickle
import pickletools
import random
import resource
import signal
import struct
import time

import numpy as np
import pytest

import ngraph as ng
from ngraph.frontends.neon.data import pickles
from ngraph.frontends.neon.data.readers import unpickle

RANDOM = np.random.default_rng(0)
ARRAYS = [
    RANDOM.integers(0, 256, (3, 8), np.uint8),
    RANDOM.normal(size=(2, 3, 4)).astype(np.float32),
    np.asfortranarray(RANDOM.normal(size=(3, 5))),
    np.arange(6, dtype=">i4").reshape(2, 3),
    np.zeros((0, 3), np.int64),
    np.array(7, np.int16),
    np.array([True, False]),
    np.array(["a", "bcd"]),
    np.array([b"xy", b""]),
]
VALUES = [
    None,
    True,
    False,
    0,
    -1,
    255,
    256,
    65536,
    -(2**31),
    2**40,
    -(2**70),
    1.5,
    -0.0,
    float("inf"),
    "",
    "text",
    "\u20ac\n\\",
    b"",
    b"\x00\xff'\n",
    [],
    [1, [2, (3, ())]],
    {},
    {"a": 1, b"b": [2.5], 3: None},
    ((1, 2, 3, 4), (5,), (6, 7)),
    list(range(3000)),
    np.float32(2.5),
    np.int64(-3),
    [np.arange(3)] * 3,
    {b"data": ARRAYS[0], b"labels": [1, 2, 3], b"filenames": [b"x.png", b"y.png"]},
    *ARRAYS,
]


def same(a, b):
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray) and a.dtype.newbyteorder("=") == b.dtype.newbyteorder("=") and a.shape == b.shape and (a == b).all()
        )
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b and str(a) == str(b)


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_are_what_python_reads(protocol):
    for value in VALUES:
        content = pickle.dumps(value, protocol)
        wanted = pickle.loads(content, encoding="bytes")
        assert same(wanted, pickles.loads(content)), (value, wanted, pickles.loads(content))


def test_texts_of_python_2_are_bytes():
    """What Python 2 wrote for {"data": array, "labels": [6, 9]}: protocols 0 and 2."""
    old = (
        b"(dp0\nS'data'\np1\ncnumpy.core.multiarray\n_reconstruct\np2\n(cnumpy\nndarray\np3\n(I0\ntS'b'\ntRp4\n(I1\n(I2\nI2\ntp5\n"
        b"cnumpy\ndtype\np6\n(S'u1'\nI0\nI1\ntRp7\n(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\nS'\\x01\\xff\\x03\\x00'\np8\ntbs"
        b"S'labels'\np9\n(lp10\nI6\naI9\nas."
    )
    found = pickles.loads(old)
    assert found[b"labels"] == [6, 9] and same(found[b"data"], np.array([[1, 255], [3, 0]], np.uint8))
    short = b"\x80\x02}q\x00(U\x04nameq\x01T\x02\x00\x00\x00\xc3\xa9U\x01kL12L\nu."
    assert pickles.loads(short) == {b"name": b"\xc3\xa9", b"k": 12}


class Calls:
    def __init__(self, function, *arguments):
        self.made = function, arguments

    def __reduce__(self):
        return self.made


@pytest.mark.parametrize(
    "value, says",
    [
        (Calls(np.ndarray, (1,), "O", b"A" * 8), "asks for numpy.ndarray"),
        (Calls(np.dtype, "O"), "part of an array"),
        (Calls(np.frombuffer, b"A" * 8, "O"), "numpy.*frombuffer"),
        (Calls(np.dtype, "M8[s]"), "dtype 'M8"),
        (Calls(np.dtype, "i4,O"), "dtype 'i4,O'"),
        (Calls(exec, "1/0"), "builtin(s|__).exec"),
        (Calls(bytearray, 1 << 40), "builtin(s|__).bytearray"),
        (np.array([[None]]), "not one list"),
        (np.zeros(2, "i4,f4"), "dtype"),
        (complex(1, 2), "builtin(s|__).complex"),
        ({1, 2}, "plain data|builtin(s|__).set"),
        (test_plain_data_are_what_python_reads, "test_plain_data"),
        ({(1, 2): 3}, "a key that is tuple"),
        ({2**61 - 1: 3}, "a key that is int"),
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_all_else_is_refused(tmp_path, value, says, protocol):
    path = tmp_path / "evil.pkl"
    path.write_bytes(pickle.dumps({b"data": value, b"labels": [1]}, protocol))
    with pytest.raises(ng.NgraphError, match=f"evil.pkl: expected a whole pickle of arrays, found something else [(].*({says})"):
        unpickle(str(path))


def rebuilt(shape, kind, data, code=b"U"):
    """A pickle of an array that says this of itself."""
    text = lambda t: code + bytes([len(t)]) + t
    return (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
        + text(b"b")
        + b"\x87R(K\x01"
        + pickletools.optimize(pickle.dumps(shape, 2))[2:-1]
        + b"cnumpy\ndtype\n"
        + text(kind)
        + b"K\x00K\x01\x87R(K\x03"
        + text(b"<")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        + data
        + b"tb."
    )


def test_arrays_need_the_bytes_that_they_say_they_have():
    assert same(pickles.loads(rebuilt((2,), b"i4", b"U\x08" + b"\x01\0\0\0\x02\0\0\0")), np.array([1, 2], "<i4"))
    for shape, kind in (
        ((3,), b"i4"),
        ((1 << 62,), b"i4"),
        ((1 << 40, 0), b"i4"),
        ((-2,), b"i4"),
        ((-1, -2), b"i4"),
        ((2.0,), b"i4"),
        ((True, 2), b"i4"),
        (tuple([1] * 40), b"i8"),
        ((2,), b"O8"),
        ((1,), b"O"),
        ((1,), b"V8"),
        ((1,), b"U999999"),
    ):
        with pytest.raises(pickles.Unreadable):
            pickles.loads(rebuilt(shape, kind, b"U\x08" + b"A" * 8))
    for wrong in (b"N", b"K\x01", b"]", b"cos\nsystem\n"):
        with pytest.raises(pickles.Unreadable):
            pickles.loads(rebuilt((2,), b"i4", wrong))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b".",
        b"\x80\x06.",
        b"\x80",
        b"N",
        b"(.",
        b"(N.",
        b"NN.",
        b"0.",
        b"1.",
        b"t.",
        b"a.",
        b"Na.",
        b"]Ns.",
        b"}Nu.",
        b"}(Nu.",
        b"}(NNu.",
        b"\x86.",
        b"R.",
        b"NR.",
        b"N)R.",
        b"b.",
        b"NNb.",
        b"h\x00.",
        b"Np-1\n.",
        b"g1\n.",
        b"I1.5\n.",
        b"Ix\n.",
        b"I" + b"9" * 5000 + b"\n.",
        b"L\n.",
        b"F1e\n.",
        b"F" + b"1" * 5000 + b"\n.",
        b"S'a\n.",
        b"Sa\n.",
        b"S'\\x'\n.",
        b"V\\u12\n.",
        b"X\x01\0\0\0\xff.",
        b"X\xff\xff\xff\xff",
        b"\x8e" + struct.pack("<Q", 1 << 62),
        b"\x8b\xff\xff\xff\xff.",
        b"T\xff\xff\xff\xff.",
        b"cos\nsystem\n.",
        b"Pid\n.",
        b"Q.",
        b"\x82\x01.",
        b"(ios\nsystem\n.",
        b"cos\nsystem\n(o.",
        b"cos\nsystem\n)\x81.",
        b"\x8c\x01a\x8c\x01b\x93.",
        b"NN\x93.",
        b"\x8f.",
        b"(\x91.",
        b"\x97.",
        b"cnumpy\ndtype\n(U\x02i4K\x00K\x01tR.",
        b"cnumpy\ndtype\n)R.",
        b"(" * 5000 + b".",
        b"cnumpy\n" + b"a" * 1000,
    ],
)
def test_what_is_no_pickle_is_refused(content):
    with pytest.raises(pickles.Unreadable):
        pickles.loads(content)


def test_time_and_memory_stay_in_proportion():
    """Values within values within values, each ten times: little to read, and nothing is made of them ten times."""
    nested = b"(" + b"K\x01" * 10 + b"l"
    for k in range(60):
        nested += b"q" + bytes([k]) + b"0(" + (b"h" + bytes([k])) * 10 + b"l"
    start = time.perf_counter()
    pickles.loads(b"\x80\x02" + nested + b".")
    deep = pickles.loads(b"]" * 100_000 + b"a" * 99_999 + b".")
    while deep:
        deep = deep[0]
    raw = b"\x80\x03B" + struct.pack("<I", 1 << 20) + bytes(1 << 20) + b"q\x000"
    many = raw + b"(" + 2000 * rebuilt((1 << 20,), b"u1", b"h\x00")[2:-1] + b"l."
    assert len(pickles.loads(many)) == 2000  # two GB, were they copied
    assert time.perf_counter() - start < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20  # KiB


def damaged(content, draw):
    """The pickle with some bytes changed, left out, doubled or moved, or cut off; or opcodes of another one within it."""
    made = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 4, 16])):
        at, size = draw.randrange(len(made) + 1), draw.choice([1, 1, 2, 4, 8, 30])
        how = draw.randrange(6)
        if how == 0:
            made[at : at + 1] = bytes([draw.randrange(256)])
        elif how == 1:
            del made[at : at + size]
        elif how == 2:
            made[at:at] = made[at : at + size]
        elif how == 3:
            made[at : at + size] = bytes([draw.choice([0, 1, 0x7F, 0x80, 0xFF])]) * size
        elif how == 4:
            del made[at:]
        else:
            made[at:at] = draw.choice([c.code.encode("latin1") for c in pickletools.opcodes])
        if not made:
            break
    return bytes(made)


def test_ten_thousand_damaged_pickles_neither_crash_nor_hang(tmp_path):
    """Each is read, or refused with the name of its file; and what is read is plain."""
    draw = random.Random(0)
    whole = [pickle.dumps(v, p) for p in range(6) for v in VALUES]
    path = tmp_path / "damaged.pkl"
    limit = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (64 << 30, limit[1]))
    signal.alarm(300)
    refused, slowest = 0, 0.0
    try:
        for k in range(10_000):
            content = damaged(whole[k % len(whole)], draw)
            start = time.perf_counter()
            try:
                repr(unpickle(str(path), content))
            except ng.NgraphError as error:
                assert "damaged.pkl: expected a whole pickle" in str(error)
                refused += 1
            slowest = max(slowest, time.perf_counter() - start)
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, limit)
    assert refused > 3000 and slowest < 5
