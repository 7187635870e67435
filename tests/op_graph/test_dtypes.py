"""Element types and the one promotion table, written out here by hand."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from ngraph.errors import DTypeError
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import REGISTRY, as_dtype, promote, weak

ALL = [d for d in REGISTRY.values() if d.np is not None and d.kind != "narrow"]
NAMES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64"]

# where two meet (spec section 4), rows and columns in the order of NAMES; short names
TABLE = """
b   i1  i2  i4  i8  u1  u2  u4  u8  h   bf  f   d
i1  i1  i2  i4  i8  i2  i4  i8  d   h   bf  f   d
i2  i2  i2  i4  i8  i2  i4  i8  d   h   bf  f   d
i4  i4  i4  i4  i8  i4  i4  i8  d   h   bf  f   d
i8  i8  i8  i8  i8  i8  i8  i8  d   h   bf  f   d
u1  i2  i2  i4  i8  u1  u2  u4  u8  h   bf  f   d
u2  i4  i4  i4  i8  u2  u2  u4  u8  h   bf  f   d
u4  i8  i8  i8  i8  u4  u4  u4  u8  h   bf  f   d
u8  d   d   d   d   u8  u8  u8  u8  h   bf  f   d
h   h   h   h   h   h   h   h   h   h   f   f   d
bf  bf  bf  bf  bf  bf  bf  bf  bf  f   bf  f   d
f   f   f   f   f   f   f   f   f   f   f   f   d
d   d   d   d   d   d   d   d   d   d   d   d   d
"""
SHORT = dict(zip("b i1 i2 i4 i8 u1 u2 u4 u8 h bf f d".split(), NAMES, strict=True))
PROMOTED = {
    (a, b): SHORT[cell] for a, row in zip(NAMES, TABLE.strip().split("\n"), strict=True) for b, cell in zip(NAMES, row.split(), strict=True)
}


@pytest.mark.parametrize("pair", PROMOTED, ids=" ".join)
def test_the_table(pair):
    a, b = pair
    assert promote(REGISTRY[a], REGISTRY[b]) is REGISTRY[PROMOTED[pair]]


def test_what_is_registered_is_what_the_specification_lists():
    assert [d.name for d in ALL] == NAMES
    assert [d.name for d in REGISTRY.values() if d.kind == "narrow"] == list(dtypes.NARROW) and len(dtypes.NARROW) == 12


def test_narrow_ones_meet_nothing_but_themselves_and_python_numbers():
    for name in dtypes.NARROW:
        d = REGISTRY[name]
        assert promote(d, d) is d and all(weak(kind, d) is d for kind in (bool, int, float))
        for other in ("float32", "int8", "bool", "float8_e4m3fn" if name != "float8_e4m3fn" else "int4"):
            with pytest.raises(DTypeError, match="cast first"):
                promote(d, REGISTRY[other])


def test_the_limits_of_narrow_ones_are_those_of_ml_dtypes():
    for name, form in dtypes.NARROW.items():
        d = REGISTRY[name]
        limits = ml_dtypes.finfo(d.np) if name.startswith("float") else ml_dtypes.iinfo(d.np)
        assert (d.lowest, d.highest) == (limits.min, limits.max) and limits.bits == form.width
        assert float(np.array([form.top], np.uint8).view(d.np)[0]) == d.highest or d.python is int


def test_the_order_of_two_does_not_matter_and_meeting_oneself_changes_nothing():
    for a, b in itertools.product(ALL, ALL):
        assert promote(a, b) is promote(b, a)
        assert promote(a, a) is a
        assert promote(a, promote(a, b)) is promote(a, b)


def test_how_three_are_grouped_matters_only_where_it_must():
    """Of three, two can need more than the third has to offer: integers of two signs with 16-bit floats, and the two of those."""
    for a, b, c in itertools.product(ALL, ALL, ALL):
        if promote(promote(a, b), c) is promote(a, promote(b, c)):
            continue
        kinds = {d.name for d in (a, b, c)}
        sixteen = kinds & {"float16", "bfloat16", "float32"}
        mixed = {d.kind for d in (a, b, c)} >= {"int", "uint"}
        assert mixed and (sixteen or "uint64" in kinds), (a, b, c)


def test_no_value_of_integers_is_lost_where_integers_meet():
    for a, b in itertools.product(ALL, ALL):
        c = promote(a, b)
        if a.is_integer and b.is_integer and c.is_integer:
            for d in (a, b):
                assert c.lowest <= d.lowest and d.highest <= c.highest


@pytest.mark.parametrize(
    ("kind", "beside", "wanted"),
    [
        *((kind, name, name) for kind in (bool, int, float) for name in ("float16", "bfloat16", "float32", "float64")),
        *((int, name, name) for name in NAMES if "int" in name),
        *((bool, name, name) for name in NAMES),
        *((float, name, "float32") for name in NAMES if "int" in name or name == "bool"),
        (int, "bool", "float32"),
    ],
)
def test_numbers_are_weak(kind, beside, wanted):
    assert weak(kind, REGISTRY[beside]) is REGISTRY[wanted]


@pytest.mark.parametrize("d", ALL, ids=str)
def test_records_agree_with_numpy(d):
    assert d.np.name == d.name and (d.kind == "bool" or d.np.itemsize * 8 == d.bits)
    for form in (d, d.name, d.np, d.np.type, np.zeros(1, d.np).dtype):
        assert as_dtype(form) is d
    if d.is_integer:
        assert (d.lowest, d.highest) == (np.iinfo(d.np).min, np.iinfo(d.np).max)
    elif d.is_float:
        assert (d.lowest, d.highest) == (-np.inf, np.inf)
    else:
        assert (d.lowest, d.highest) == (False, True)


def test_python_types_are_numpys():
    assert as_dtype(float) is dtypes.float64 and as_dtype(bool) is dtypes.bool_ and as_dtype(ml_dtypes.bfloat16) is dtypes.bfloat16


@pytest.mark.parametrize("wrong", ["complex64", "float33", np.complex128, "token32", object, "<U3", 3.5])
def test_what_is_no_element_type_is_refused_with_what_there_is(wrong):
    with pytest.raises(TypeError, match=r"not an element type(.|\n)*take (one of|float32, or another of) bool, int8.*float64"):
        as_dtype(wrong)


def test_names_are_registered_once():
    with pytest.raises(ValueError, match="float32 is registered already"):
        dtypes.register("float32", "float", 32, np.float32)
    assert as_dtype("token") is dtypes.token


def test_records_are_dtypes_to_numpy():
    for d in REGISTRY.values():
        if d.np is not None:
            assert np.dtype(d) == d.np and np.zeros(3, d).dtype == d.np and np.ones(2).astype(d).dtype == d.np


def test_records_equal_other_forms_of_the_same_dtype():
    x = dtypes.float32
    assert x == "float32" and x == np.float32 and x == np.dtype("f4") and "float32" == x and np.dtype("f4") == x
    assert x in ("int8", "float32") and x != "float64" and x != np.float64 and x != dtypes.float64
    assert all(x != other for other in (3, "no dtype", None))
    assert {x: 1}[x] == 1 and len(set(REGISTRY.values())) == len(REGISTRY)
