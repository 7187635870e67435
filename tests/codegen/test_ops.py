"""Every elementwise core op of every dtype, as scalars and as vectors, gives what the oracle gives."""

from fractions import Fraction

import numpy as np
import pytest
from kernels import HOST, RUNNABLE, load, run, single

from ngraph.codegen.math import MACHINE_CODE
from ngraph.errors import NgraphError
from ngraph.op_graph import dtypes
from ngraph.op_graph.opdef import REGISTRY
from ngraph.program.interpret import interpret
from ngraph.runtime.host import jit
from ngraph.runtime.host.loader import undefined_symbols
from ngraph.targets import TARGETS
from ngraph.targets.products import DOTS, PACKS
from ngraph.tensors.graph import FMA
from ngraph.testing.rules import Steps

ALL = [d for d in dtypes.REGISTRY.values() if d.np is not None and d.kind != "narrow"]
NARROW = [d for d in dtypes.REGISTRY.values() if d.kind == "narrow"]
ATTRS = {
    "compare": [{"kind": k} for k in ("eq", "lt", "le")],
    "bitwise": [{"kind": k} for k in ("and", "or", "xor", "shl", "shr")],
    "cast": [{"dtype": d} for d in ALL],
    "bitcast": [{"dtype": d} for d in ALL],
}
BINARY = set("add subtract multiply divide remainder power maximum minimum compare bitwise".split())
INEXACT = set("exp exp2 expm1 log log2 log10 log1p sin cos tan tanh atan erf power".split())
ULP = {"float16": 1, "bfloat16": 1, "float32": 5, "float64": 8}  # NumPy's own functions err too


def cases():
    """(op, dtype, attrs, result dtype) of every op on every dtype that its record's type allows."""
    for op in (f for f in MACHINE_CODE if f in REGISTRY):
        for d in ALL:
            for attrs in ATTRS.get(op, [{}]):
                s = Steps(A=3)
                try:
                    result = s(op, *[s.input("A", dtype=t) for t in inputs_of(op, d)], **attrs)
                except (NgraphError, TypeError):
                    continue
                if (
                    op == "bitwise"
                    and d.kind == "bool"
                    and attrs["kind"] in ("shl", "shr")
                    or op == "bitcast"
                    and "bool" in (d.kind, attrs["dtype"].kind)
                ):
                    continue
                yield op, d, attrs, result.dtype
    for d in (dtypes.float32, dtypes.float64):  # what plans make of sums with products
        for op in FMA:
            yield op, d, {}, d
    for d in NARROW:  # from and to float32, through which all of them go; the rest: tests/ops/test_narrow.py
        yield "cast", d, {"dtype": dtypes.float32}, dtypes.float32
        yield "cast", dtypes.float32, {"dtype": d}, d
    yield "where", NARROW[0], {}, NARROW[0]


def inputs_of(op, d):
    return [dtypes.bool_, d, d] if op == "where" else [d, d, d] if op in FMA else [d, d] if op in BINARY else [d]


CASES = list(cases())


def pool(d, draw, n):
    """Extremes, small numbers and any bits."""
    if d.kind == "bool":
        return draw.integers(0, 2, n).astype(bool)
    if d.kind == "narrow":
        return draw.integers(0, 1 << d.form.width, n, dtype=np.uint8).view(d.np)
    raw = draw.integers(0, 256, n * d.bits // 8, dtype=np.uint8).view(d.np)
    if d.is_float:
        edges = np.array([0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, 3, np.nan, np.inf, -np.inf, 1e-8, 300, -300, 65504, 1e5], np.float64)
        with np.errstate(all="ignore"):
            smooth = draw.normal(size=n) * 10.0 ** draw.integers(-3, 6, n)
            some = [edges.astype(d.np), smooth.astype(d.np)]
    else:
        edges = [0, 1, 2, 3, 7, d.bits - 1, d.bits, d.lowest, d.lowest + 1, d.highest, d.highest - 1]
        if d.kind == "int":
            edges += [-1, -2, -3, -7]
        some = [np.array(edges, d.np), draw.integers(0, 12, n).astype(d.np)]
    values = np.concatenate([*some, raw, raw])
    return values[draw.integers(0, len(values), n)]


def oracle(op, d, attrs, arrays):
    s = Steps(A=len(arrays[0]))
    result = s(op, *[s.input("A", dtype=t) for t in inputs_of(op, d)], **attrs)
    with np.errstate(all="ignore"):
        return interpret(s.program(result), arrays)[0][0]


def fused(target, op, x, y, z):
    """x * y + z, of which one may be taken away, rounded once; twice where the processor cannot do that."""
    x, z = -x if op == "fnma" else x, -z if op == "fms" else z
    with np.errstate(all="ignore"):
        found = x * y + z
        if not target.fma:
            return found
        for k in np.flatnonzero(np.isfinite(x) & np.isfinite(y) & np.isfinite(z)):
            exact = Fraction(float(x[k])) * Fraction(float(y[k])) + Fraction(float(z[k]))
            if exact:  # zeros have the sign that a sum gives them
                try:
                    near = x.dtype.type(float(exact))
                except OverflowError:
                    near = x.dtype.type(np.inf if exact > 0 else -np.inf)
                around = [a for a in (np.nextafter(near, -np.inf), near, np.nextafter(near, np.inf)) if np.isfinite(a)]
                best = min(around, key=lambda a: (abs(exact - Fraction(float(a))), int(a.view(f"u{a.nbytes}")) & 1)) if around else near
                found[k] = best if np.isfinite(near) else near
    return found


def compare(op, got, want):
    """Equal bits; functions within a few ulp of NumPy's; NaN is NaN; maximum and minimum of zeros may take either."""
    assert got.dtype == want.dtype
    if dtypes.as_dtype(got.dtype).kind == "narrow":
        got, want = got.view(np.uint8), want.view(np.uint8)
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    d = dtypes.as_dtype(got.dtype)
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        g, w = got.astype(np.float64), want.astype(np.float64)
    if op in INEXACT:
        with np.errstate(all="ignore"):
            eps, tiny = (
                (2.0**-10, 2.0**-24)
                if d.name == "float16"
                else (2.0**-7, 2.0**-133)
                if d.name == "bfloat16"
                else (np.finfo(d.np).eps, float(np.finfo(d.np).smallest_subnormal))
            )
            near = np.abs(g - w) <= ULP[d.name] * np.maximum(np.abs(w) * eps, tiny)
        np.testing.assert_array_equal(np.where(near, w, g), w)
        return
    np.testing.assert_array_equal(g, w)
    if op not in ("maximum", "minimum"):
        real = ~np.isnan(w)
        np.testing.assert_array_equal(np.signbit(g)[real], np.signbit(w)[real])


@pytest.mark.parametrize("op, d, attrs, result", CASES, ids=lambda c: str(c) if not isinstance(c, dict) else "-".join(map(str, c.values())))
def test_an_op_is_what_the_oracle_says(op, d, attrs, result):
    draw = np.random.default_rng(len(op) * 100 + d.bits)
    n = 403 if op != "power" or d.is_float else 150
    arrays = [pool(t, draw, n) for t in inputs_of(op, d)]
    want = oracle(op, d, attrs, arrays) if op not in FMA else None
    for target, lanes in [(HOST, 1), (HOST, 8), *((t, 4) for t in RUNNABLE)]:
        code = load(single(target, op, inputs_of(op, d), result, attrs, lanes), target)
        compare(op, run(code, arrays, [result])[0], fused(target, op, *arrays) if want is None else want)


@pytest.mark.parametrize("op, d, attrs, result", CASES, ids=lambda c: str(c) if not isinstance(c, dict) else "-".join(map(str, c.values())))
def test_bits_do_not_depend_on_the_width_of_vectors(op, d, attrs, result):
    """Kernels compute a value again where they need it, some of them in parts of vectors; an element is then equal to the maximum it is."""
    draw = np.random.default_rng(7)
    arrays = [pool(t, draw, 8192) for t in inputs_of(op, d)]
    for a in arrays if d.is_float else ():
        if a.dtype == d.np:
            a[1024:] = draw.normal(size=7168) * 10.0 ** draw.integers(-3, 4, 7168)
    for target in (HOST, *(RUNNABLE if op in INEXACT else ())):
        found = []
        for lanes in (1, 4, 8, 16):
            code = load(single(target, op, inputs_of(op, d), result, attrs, lanes), target)
            (got,) = run(code, arrays, [result])
            with np.errstate(invalid="ignore"):
                got[got != got] = 0
            found.append(got.tobytes())
        assert len(set(found)) == 1, target


def test_every_elementwise_core_op_has_code():
    missing = {"broadcast", "rename", "constant", "iota"}
    wanted = {
        n for n, r in REGISTRY.items() if r.core and getattr(r.reference, "__qualname__", "").startswith("elementwise_reference")
    } - missing
    assert wanted and wanted <= set(MACHINE_CODE)
    elsewhere = {*DOTS, *PACKS}  # those have files of their own
    assert {op for op, *_ in CASES} == set(MACHINE_CODE) - elsewhere


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)
@pytest.mark.parametrize("op", MACHINE_CODE)
def test_objects_of_every_target_want_no_symbol(op, target):
    for name, d, attrs, result in CASES:
        if name == op and (op != "cast" or attrs["dtype"].bits != 8):
            for lanes in (1, target.lanes(32)):
                wanted = undefined_symbols(jit.compile_object(single(target, op, inputs_of(op, d), result, attrs, lanes), target))
                assert wanted <= {"_GLOBAL_OFFSET_TABLE_"}, (d, attrs, lanes)


def test_a_call_of_a_library_would_be_seen():
    text = "define double @f(double %x) {\n %y = call double @llvm.exp.f64(double %x)\n ret double %y\n}\n"
    text += "declare double @llvm.exp.f64(double)\n"
    assert undefined_symbols(jit.compile_object(text, HOST)) == {"exp"}
