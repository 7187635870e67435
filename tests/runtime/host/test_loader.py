"""Objects are loaded without LLVM: what they hold, what is refused, and that no garbage does harm."""

import ctypes
import gc
import os
import random
import struct
import subprocess
import sys

import numpy as np
import pytest
from kernels import HOST, run, single

from ngraph.errors import NgraphError, ParseError, UnsupportedError
from ngraph.op_graph import dtypes
from ngraph.runtime.host.jit import compile_object
from ngraph.runtime.host.loader import PAGE, LoadedObjects, Object, ObjectLayout, undefined_symbols
from ngraph.targets import TARGETS

EVERYTHING = """
@squares = internal constant [4 x i64] [i64 0, i64 1, i64 4, i64 9]
@names = internal constant [2 x ptr] [ptr @squares, ptr @counter]
@counter = global i64 5
@room = internal global [600 x i64] zeroinitializer, align 64
define internal i64 @helper(i64 %x) noinline { %y = mul i64 %x, 3 ret i64 %y }
define i64 @square(i64 %k) { %p = getelementptr i64, ptr @squares, i64 %k %x = load i64, ptr %p ret i64 %x }
define i64 @thrice(i64 %k) { %x = call i64 @helper(i64 %k) ret i64 %x }
define i64 @count() { %x = load i64, ptr @counter %y = add i64 %x, 1 store i64 %y, ptr @counter ret i64 %y }
define i64 @keep(i64 %k, i64 %v) {
  %p = getelementptr i64, ptr @room, i64 %k
  %old = load i64, ptr %p
  store i64 %v, ptr %p
  ret i64 %old
}
define i64 @by_pointer(i64 %k) {
  %p = getelementptr ptr, ptr @names, i64 %k
  %q = load ptr, ptr %p
  %x = load i64, ptr %q
  ret i64 %x
}
define i64 @outside(i64 %x) { %y = call i64 @elsewhere(i64 %x) ret i64 %y }
define ptr @where() { ret ptr @elsewhere }
declare i64 @elsewhere(i64)
"""
SAMPLES = [("exp", dtypes.float32), ("sin", dtypes.float64), ("power", dtypes.float32), ("divide", dtypes.int8)]


def sample(op, dtype, target=HOST):
    return compile_object(single(target, op, [dtype] * (2 if op in ("power", "divide") else 1), dtype, {}, target.lanes(32)), target)


def call(code, name, *arguments, which=0):
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(arguments))(code.address(name, which))(*arguments)


@pytest.fixture(scope="module")
def objects():
    return [sample(*s) for s in SAMPLES]


def test_tables_calls_variables_and_names_from_elsewhere():
    outside = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: x + 100)
    code = LoadedObjects(compile_object(EVERYTHING, HOST), symbols={"elsewhere": ctypes.cast(outside, ctypes.c_void_p).value})
    assert [call(code, "square", k) for k in range(4)] == [0, 1, 4, 9]
    assert call(code, "thrice", 7) == 21
    assert [call(code, "count") for _ in range(3)] == [6, 7, 8]
    assert [call(code, "keep", 599, v) for v in (3, 4)] == [0, 3] and call(code, "keep", 0, 1) == 0
    assert call(code, "by_pointer", 0) == 0 and call(code, "by_pointer", 1) == 8
    assert call(code, "outside", 1) == 101
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(call(code, "where"))(2) == 102
    with pytest.raises(KeyError):
        code.address("helper")
    with pytest.raises(KeyError):
        code.address("elsewhere")


def test_a_name_that_is_not_here_is_refused():
    made = compile_object(EVERYTHING, HOST)
    assert undefined_symbols(made) - {"_GLOBAL_OFFSET_TABLE_"} == {"elsewhere"}
    with pytest.raises(UnsupportedError, match="'elsewhere'"):
        LoadedObjects(made)


def test_many_objects_share_one_mapping(objects):
    before = executable()
    code = LoadedObjects(*objects)
    assert len(executable() - before) == 1
    x = np.linspace(-3, 3, 50)
    (got,) = ours(code, 1, [x], dtypes.float64)
    np.testing.assert_allclose(got, np.sin(x), rtol=1e-15)
    (got,) = ours(code, 0, [x.astype(np.float32)], dtypes.float32)
    np.testing.assert_allclose(got, np.exp(x.astype(np.float32)), rtol=1e-6)


def ours(code, which, arrays, result):
    class One:
        def address(self, name):
            return code.address(name, which)

    return run(One(), arrays, [result])


def executable():
    """Executable memory that comes from no file: its range and permissions."""
    with open("/proc/self/maps") as file:
        return {tuple(line.split()[:2]) for line in file if "x" in line.split()[1] and not line.split()[5:]}


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="the system shows no mappings")
def test_nothing_is_writable_and_executable_and_all_is_given_back():
    gc.collect()
    before = executable()
    code = LoadedObjects(compile_object(EVERYTHING, HOST), symbols={"elsewhere": 0})
    (new,) = executable() - before
    first, last = (int(end, 16) for end in new[0].split("-"))
    assert first <= code.address("square") < last and new[1] == "r-xp"
    del code
    gc.collect()
    assert executable() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_code_runs_in_a_child_process():
    code = LoadedObjects(compile_object(EVERYTHING, HOST), symbols={"elsewhere": 0})
    child = os.fork()
    if not child:
        os._exit(call(code, "thrice", 5))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 15


def test_objects_load_without_llvm(tmp_path, objects):
    (tmp_path / "object").write_bytes(objects[1])
    script = """
import ctypes, sys
from ngraph.runtime.host.loader import LoadedObjects
code = LoadedObjects(open(sys.argv[1], "rb").read())
Three = ctypes.c_double * 3
x, y = Three(0, 1, 2), Three()
ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * 2)(code.address("kernel"))(3, *map(ctypes.addressof, (x, y)))
print(*y, "llvmlite" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "object"], capture_output=True, text=True, check=True)
    *got, llvm = done.stdout.split()
    np.testing.assert_allclose(np.array(got, float), np.sin([0, 1, 2]), rtol=1e-15)
    assert llvm == "False"


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)
def test_objects_of_every_target_are_placed(target):
    made = [sample(*s, target) for s in SAMPLES]
    if target.triple.startswith("x86"):
        made.append(
            compile_object(EVERYTHING.replace("declare i64 @else", "define i64 @else").replace("e(i64)\n", "e(i64) { ret i64 0 }"), target)
        )
    layout = ObjectLayout(made)
    images = []
    for base in (PAGE, 1 << 33):
        images.append(bytearray(layout.size))
        layout.write(images[-1], base)
    offset = layout.offset("kernel", 2)
    assert offset % 4 == 0 and images[0][offset : offset + 64] != bytes(64)
    # neither code nor constants of a kernel know where they lie
    same = sum(a == b for a, b in zip(*images, strict=True))
    assert same == layout.size if len(made) == len(SAMPLES) else layout.size - same <= 32


def test_two_machines_do_not_mix(objects):
    with pytest.raises(UnsupportedError, match="machines"):
        ObjectLayout([objects[0], sample(*SAMPLES[0], TARGETS["aarch64" if HOST.triple.startswith("x86") else "x86-64-v2"])])


def test_an_unknown_relocation_is_refused(objects):
    data = bytearray(objects[0])
    o = Object(bytes(data))
    table = next(h for h in o.headers if h[1] == 4 and h[7] in o.sections)
    (info,) = struct.unpack_from("<Q", data, table[4] + 8)
    struct.pack_into("<Q", data, table[4] + 8, info >> 32 << 32 | 99)
    with pytest.raises(UnsupportedError, match="relocation 99"):
        LoadedObjects(bytes(data))


@pytest.mark.parametrize("flags", [1 | 2 | 4, 2 | 0x400], ids=["written and run", "one per thread"])
def test_unknown_sections_are_refused(objects, flags):
    data = bytearray(objects[0])
    o = Object(bytes(data))
    start = struct.unpack_from("<Q", data, 0x28)[0]
    text = next(k for k, s in o.sections.items() if s.flags & 4)
    struct.pack_into("<Q", data, start + 64 * text + 8, flags)
    with pytest.raises(UnsupportedError, match=r"section '\.text'"):
        LoadedObjects(bytes(data))


@pytest.mark.parametrize("which", range(len(SAMPLES)))
def test_an_object_cut_anywhere_is_refused(objects, which):
    whole = objects[which]
    headers = struct.unpack_from("<Q", whole, 0x28)[0] + 64 * struct.unpack_from("<H", whole, 0x3C)[0]
    for end in range(0, min(headers, len(whole)), 7):
        with pytest.raises(ParseError):
            LoadedObjects(whole[:end])


def test_garbage_is_refused_or_loaded_but_never_harms(objects):
    draw = random.Random(1)
    numbers = [b"\xff" * 8, bytes(8), *((1 << k).to_bytes(8, "little") for k in (12, 30, 31, 47, 62, 63))]
    refused = 0
    for _ in range(20_000):
        data = bytearray(draw.choice(objects))
        for _ in range(draw.choice([1, 1, 2, 8])):
            at = draw.randrange(len(data) - 8)
            if draw.random() < 0.5:
                data[at] = draw.randrange(256)
            else:
                data[at : at + 8] = draw.choice(numbers)
        try:
            LoadedObjects(bytes(data))
        except NgraphError:
            refused += 1
    assert 1000 < refused < 19_000
    for _ in range(300):
        with pytest.raises(NgraphError):
            LoadedObjects(draw.choice([b"", b"\x7fELF\x02\x01"]) + draw.randbytes(draw.randrange(400)))
