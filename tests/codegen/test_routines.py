"""Running values, sorting and compacting by generated code give what the records' references give: every dtype, order and length."""

import ctypes
import importlib
import itertools
from dataclasses import replace

import numpy as np
import pytest
from kernels import RUNNABLE

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.codegen.routines import KERNELS, emit_opaque_op
from ngraph.errors import UnsupportedError
from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.opdef import REGISTRY
from ngraph.ops import sorting  # noqa: F401  the records
from ngraph.passes import default_passes, run
from ngraph.plan.kernels import OpaqueOp
from ngraph.plan.planner import plan
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower
from ngraph.runtime.host import jit
from ngraph.runtime.host.loader import undefined_symbols
from ngraph.targets import TARGETS, host
from ngraph.targets.tuning import SCAN_PIECE
from ngraph.testing.rules import Steps
from ngraph.testing.samples import feed, samples, tensors

plans = importlib.import_module("ngraph.plan.interpret")
ALL = [d for d in dtypes.REGISTRY.values() if d.np is not None and d.kind != "narrow"]
HOST = host()


def aligned(size):
    """So many bytes of garbage at a multiple of 64."""
    raw = np.full(size + 64, 0xA5, np.uint8)
    at = -raw.ctypes.data % 64
    return raw[at : at + size]


def call(run, codes, target, cut):
    """Runs kernels on the arrays of an interpreted plan, in as many ranges of work items as `cut` says."""

    def number(e):
        return int(expr.evaluate(e, lambda leaf: run.length(leaf.of)))

    temporary = {}
    for c in codes:
        code = jit.load(c.text, target)
        for b in c.buffers:
            if b.storage == "temp":
                temporary.setdefault(b, aligned(b.bytes))
        where = [(temporary.get(b) if b in temporary else run.arrays[b]).ctypes.data for b in c.buffers]
        args = np.array([*where, *map(run.length, c.lengths), 0], np.int64)
        scratch = aligned(number(c.scratch))
        kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(code.address("kernel"))
        edges = np.linspace(0, number(c.work_items), cut + 1).astype(int)
        for first, last in list(zip(edges, edges[1:], strict=False))[::-1]:
            kernel(args.ctypes.data, int(first), int(last), scratch.ctypes.data)


@pytest.fixture
def native(monkeypatch):
    """Makes the interpreter of plans run routines by generated code; a list of those that it ran."""
    ran = []

    def routine(self, step, target=HOST, cut=3):
        if step.op not in KERNELS:
            raise AssertionError(f"{step.op} is not a routine of generated code")
        places = {}
        for b in step.inputs:
            self.arrays[b] = np.ascontiguousarray(self.arrays[b])
        for b in step.results:
            if step.op == "compact" and b.axes:  # room for all; its length is known afterwards
                places[b] = np.full(np.prod([self.length(a) for a in step.attrs["axes"]], dtype=int), -7, np.int32)
                self.arrays[b] = places[b]
            else:
                self.place(b)
        call(self, emit_opaque_op(self.plan, step, self.target), self.target, cut)
        for b, room in places.items():
            self.arrays[b] = room[: self.length(b.axes[0])]
        ran.append(step.op)

    monkeypatch.setattr(plans.PlanRun, "target", HOST, raising=False)
    monkeypatch.setattr(plans.PlanRun, "routine", routine)
    return ran


def same(got, want, ulp=0):
    assert got.dtype == want.dtype and got.shape == want.shape
    g, w = (got, want) if got.dtype.kind in "biu" else (got.astype(np.float64), want.astype(np.float64))
    if not ulp or got.dtype.kind in "biu":
        np.testing.assert_array_equal(g, w)
        return
    eps = {2: 2.0**-7 if "b" in str(got.dtype) else 2.0**-10, 4: 2.0**-23, 8: 2.0**-52}[got.dtype.itemsize]
    scale = np.max(np.abs(w[np.isfinite(w)]), initial=1.0)
    np.testing.assert_allclose(g, w, rtol=ulp * eps, atol=ulp * eps * scale)


def opened(program, lengths):
    """The program with every axis that no other hangs on open, as if its lengths came with the call."""
    return program.with_(axes={a: expr.Len(a) if a in lengths else n for a, n in program.axes.items()})


KNOWN = [(r, d.name, False) for r in ("cumulate", "sort") for d in ALL] + [("compact", "float32", False)]
OPEN = [
    ("cumulate", "float32", True),
    ("cumulate", "int8", True),
    ("sort", "bfloat16", True),
    ("sort", "int64", True),
    ("compact", "int8", True),
]


@pytest.mark.parametrize(("record", "dtype", "open_"), KNOWN + OPEN)
def test_samples(record, dtype, open_, native):
    """Each sample of the record, with lengths known when the code is written, and with lengths that come with the call."""
    r = REGISTRY[record]
    source, ops = samples(r, dtypes.REGISTRY[dtype], seed=3)
    roots = tensors(ops)
    holes, values = feed(source, roots)
    program = lower(roots, holes).program
    want, _ = interpret(program, values)
    if open_:
        held = {a for v in program.inputs for a in v.axes}
        program = opened(program, {a for a in held if isinstance(program.axes[a], int)})
    got, _ = plans.interpret(plan(program), values)
    assert set(native) == {record}
    for g, w in zip(got, want, strict=True):
        same(np.asarray(g), w, r.ulp if record == "cumulate" else 0)


def draw(dtype, shape, seed=0):
    """Ties, NaN, infinities, extremes, zeros of both signs."""
    random = np.random.default_rng(seed)
    if dtype.is_float:
        values = np.round(random.normal(size=shape) * 8)
        edges = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0])
        return np.where(random.random(shape) < 0.2, random.choice(edges, shape), values).astype(dtype.np)
    whole = random.integers(-100, 100, shape)
    edges = np.array([dtype.lowest, dtype.highest, 0], dtype.np)
    return np.where(random.random(shape) < 0.2, random.choice(edges, shape), whole.astype(dtype.np))


def once(native, op, inputs, attrs, target=HOST, open_=(), **lengths):
    """One routine on arrays of one or several axes each: what generated code gives, what the reference gives."""
    s = Steps(**{a: None if a in open_ else n for a, n in lengths.items()})
    given = [s.input(*axes, dtype=dtypes.as_dtype(x.dtype)) for axes, x in inputs]
    made = s(op, *given, **attrs)
    program = s.program(*(made if isinstance(made, tuple) else (made,)))
    arrays = [x for _, x in inputs]
    plans.PlanRun.target = target
    got, _ = plans.interpret(plan(program), arrays)
    want, _ = interpret(program, arrays)
    return got, want


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "float32", "float16", "float64", "uint64"])
@pytest.mark.parametrize("n", [2, 9, 39, 41, 128, 1000])
def test_rows_of_any_length_are_sorted(native, dtype, n):
    """By insertion, by a network of vectors and by digits, with values that move along and keys that are equal."""
    d = dtypes.REGISTRY[dtype]
    inputs = [(("A", "B"), draw(d, (3, n))), (("B", "A"), np.arange(3 * n, dtype=np.int32).reshape(n, 3))]
    for descending, nan_largest in ((False, False), (True, False), (True, True)):
        got, want = once(native, "sort", inputs, {"axis": "B", "descending": descending, "nan_largest": nan_largest}, A=3, B=n)
        for g, w in zip(got, want, strict=True):
            same(g, w)


LONG = [(4, 1, "AB"), (100, 3, "AB"), (257, 64, "AB"), (100, 7, "BA"), (525, 65, "AB"), (1000, 70, "BA")]
SHORT = [(8, 2, "AB"), (11, 2, "AB"), (16, 1, "AB"), (31, 7, "AB"), (33, 8, "AB"), (12, 3, "BA")]  # of up to four vectors of words


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "float32", "float16", "float64", "uint64"])
@pytest.mark.parametrize("n, k, order", [*LONG, *SHORT])
def test_the_first_places_of_a_row_are_found_without_sorting_it(native, dtype, n, k, order):
    """Where nobody reads the others; equal keys in order, NaN last or the largest, for rows that lie together and apart."""
    d = dtypes.REGISTRY[dtype]
    axes = {a: ng.make_axis({"A": 3, "B": n}[a], name=a) for a in order}
    x = ng.placeholder([*axes.values()], dtype=d)
    arrays = [draw(d, tuple(len(a) for a in axes.values()))]
    for largest, nan_largest in ((True, False), (False, False), (True, True)):
        p = run(lower([*ng.top_k(x, axes["B"], k, largest, nan_largest)], [x]).program, default_passes)
        made = plan(p)
        (routine,) = [s for s in made.steps if type(s) is OpaqueOp]
        assert routine.attrs["few"] == k
        want, _ = interpret(p, arrays)
        for target in RUNNABLE:
            plans.PlanRun.target = target
            got, _ = plans.interpret(made, arrays)
            for g, w in zip(got, want, strict=True):
                same(g, w)
        for target in TARGETS.values():
            (code,) = emit_opaque_op(made, routine, target)
            assert undefined_symbols(jit.compile_object(code.text, target)) <= {"_GLOBAL_OFFSET_TABLE_"}


@pytest.mark.parametrize("how", ["rising", "falling", "equal", "random", "NaN but for some"])
@pytest.mark.parametrize("k", [64, 65, 125])
def test_the_best_of_rows_in_any_order(k, how):
    """Each element enters among the best, or hardly any does."""
    x = np.random.default_rng(k).standard_normal(1013).astype(np.float32)
    if how in ("rising", "falling"):
        x = np.sort(x)[:: 1 if how == "rising" else -1]
    elif how != "random":
        x = np.where(np.arange(len(x)) % 97 == 0, x, np.nan if how[0] == "N" else 0.5).astype(np.float32)
    axis = ng.make_axis(len(x), name="A")
    given = ng.placeholder([axis])
    values, places = ngt.make_transformer().computation([*ng.top_k(given, axis, k)], given)(x)
    expected = np.argsort(-x, kind="stable")[:k]
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(values, x[expected])


def test_a_row_of_which_more_is_read_is_sorted():
    rows, columns = ng.make_axis(3, name="A"), ng.make_axis(100, name="B")
    x = ng.placeholder([rows, columns])
    for results in ([ng.sort(x, columns)], [ng.top_k(x, columns, 30)[0]], [ng.sort(x, columns)[:, :3], ng.sort(x, columns)]):
        made = plan(run(lower(results, [x]).program, default_passes))
        assert not any("few" in s.attrs for s in made.steps if type(s) is OpaqueOp)


def test_a_row_that_comes_with_the_call_is_sorted(native):
    for n in (0, 1, 40, 41, 300):
        got, want = once(
            native, "sort", [(("B",), draw(dtypes.float32, n))], {"axis": "B", "descending": False, "nan_largest": False}, open_=("B",), B=n
        )
        same(got[0], want[0])


@pytest.mark.parametrize("kind", ["add", "multiply", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16"])
def test_long_rows_run_in_pieces(native, kind, dtype):
    """One pass and two, lengths known and not: equal bits."""
    d = dtypes.REGISTRY[dtype]
    n = 2 * SCAN_PIECE + 777
    x = np.random.default_rng(1).uniform(0.9997, 1.0003, n).astype(d.np) if d.is_float else draw(d, n)
    for exclusive, reverse in ((False, False), (True, True)):
        attrs = {"kind": kind, "axis": "B", "exclusive": exclusive, "reverse": reverse}
        made = [
            once(native, "cumulate", [(("B",), x)], attrs, target=replace(HOST, cores=cores), open_=open_, B=n)
            for cores, open_ in ((1, ()), (16, ()), (1, ("B",)))
        ]
        for got, want in made:
            same(got[0], want[0], 512)
            assert got[0].tobytes() == made[0][0][0].tobytes()


@pytest.mark.parametrize("length", [1, 17, 32, 33, 49])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8"])
def test_totals_whose_last_vector_has_one_element(native, dtype, length):
    """Forward and backward: of a narrow value nothing is written beside its place."""
    x = (np.arange(length) % 2).astype(dtypes.as_dtype(dtype).np)
    for reverse, exclusive, kind in itertools.product((False, True), (False, True), ("add", "max")):
        attrs = {"kind": kind, "axis": "B", "exclusive": exclusive, "reverse": reverse}
        got, want = once(native, "cumulate", [(("B",), x)], attrs, B=length)
        assert np.array_equal(np.asarray(got[0]).astype(float), np.asarray(want[0]).astype(float)), attrs


def test_two_passes_are_taken_where_a_row_has_many_threads():
    s = Steps(B=1 << 20)
    p = plan(s.program(s("cumulate", s.input("B"), kind="add", axis="B", exclusive=False, reverse=False)))
    (routine,) = [k for k in p.steps if type(k) is OpaqueOp]
    assert [len(emit_opaque_op(p, routine, replace(HOST, cores=cores))) for cores in (1, 16)] == [1, 2]


@pytest.mark.parametrize("order", ["ABC", "BCA", "CAB"])
def test_any_axis_runs(native, order):
    """Side by side in vectors, with a rest, along the last axis or another."""
    lengths = {"A": 5, "B": 7, "C": 70}
    x = draw(dtypes.int32, [lengths[a] for a in order])
    for axis in "ABC":
        for reverse in (False, True):
            attrs = {"kind": "add", "axis": axis, "exclusive": reverse, "reverse": reverse}
            for open_ in ((), ("A", "B", "C")):
                got, want = once(native, "cumulate", [(tuple(order), x)], attrs, open_=open_, **lengths)
                same(got[0], want[0])


@pytest.mark.parametrize("target", RUNNABLE, ids=lambda t: t.name)
def test_other_targets_of_this_machine(native, target):
    x = draw(dtypes.float32, (3, 100))
    got, want = once(native, "sort", [(("A", "B"), x)], {"axis": "B", "descending": True, "nan_largest": False}, target=target, A=3, B=100)
    same(got[0], want[0])
    attrs = {"kind": "max", "axis": "B", "exclusive": False, "reverse": True}
    got, want = once(native, "cumulate", [(("A", "B"), x)], attrs, target=target, A=3, B=100)
    same(got[0], want[0])


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)
@pytest.mark.parametrize("op", KERNELS)
def test_objects_want_nothing_from_elsewhere(op, target):
    s = Steps(A=3, B=100)
    x = s.input("A", "B", dtype=dtypes.bool_ if op == "compact" else dtypes.float16)
    attrs = {
        "sort": {"axis": "B", "descending": False, "nan_largest": False},
        "cumulate": {"kind": "add", "axis": "B", "exclusive": False, "reverse": False},
        "compact": {"axes": ("B", "A"), "axis": "P"},
    }[op]
    if op == "compact":
        s.axes["P"] = None
    made = s(op, x, **attrs)
    if op == "compact":
        s.axes["P"] = expr.minimum(expr.Run(made[1]), 300)
    p = plan(s.program(*(made if isinstance(made, tuple) else (made,))))
    for routine in p.steps:
        if type(routine) is OpaqueOp:
            for code in emit_opaque_op(p, routine, target):
                assert undefined_symbols(jit.compile_object(code.text, target)) <= {"_GLOBAL_OFFSET_TABLE_"}


def test_what_is_no_routine_of_generated_code_says_so():
    s = Steps(B=3)
    p = plan(s.program(s("cumulate", s.input("B"), kind="add", axis="B", exclusive=False, reverse=False)))
    with pytest.raises(UnsupportedError, match="effect is not a routine"):
        emit_opaque_op(p, OpaqueOp("effect", (), (), {}), HOST)
