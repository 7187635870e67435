"""What the generated tests are made of: every record's samples, computed once by the oracle, and what else may compute them.

No op is named here. A cell is (record, dtype, check, transformer); `excluded.py` lists those that are left out, with reasons.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import pkgutil
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import toy_transformer  # noqa: F401  from examples/: registers itself, and is held to what the others are
from excluded import EXCLUDED

import ngraph as ng
import ngraph.ops
import ngraph.transformers as ngt
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axes
from ngraph.op_graph.op import Op, TensorType, copy_graph, ordered
from ngraph.op_graph.opdef import REGISTRY, OpDef
from ngraph.ops.state import placeholder
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower
from ngraph.testing.samples import feed, samples, tensors

for _module in pkgutil.iter_modules(ngraph.ops.__path__):
    importlib.import_module(f"ngraph.ops.{_module.name}")

RECORDS = {name: r for name, r in REGISTRY.items() if r.samples is not None}
DTYPES = {d.name: d for d in dtypes.REGISTRY.values() if d.np is not None}
NARROW = ("float8_e4m3fn", "float4_e2m1fn", "int4")  # of the narrow dtypes these are moved about; each is cast by tests/ops
CHECKS = ("value", "gradient", "twice", "saved", "whole", "orders")
FULL = ("float32", "float64")  # the dtypes for all checks; the others are for values, unless a record takes no floats
TRANSFORMERS = tuple(ngt.transformer_choices())

Arrays = list[np.ndarray]
Runner = Callable[[Sequence[Op], Sequence[Op], Sequence[np.ndarray]], tuple[Arrays, str]]


def oracle(results: Sequence[Op], holes: Sequence[Op], values: Sequence[np.ndarray]) -> tuple[Arrays, str]:
    """What the results are by the records' references, and what was printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        outputs, _ = interpret(lower(results, holes).program, values)
    return outputs, printed.getvalue()


def on(name: str) -> Runner:
    """The same by a transformer."""

    def run(results: Sequence[Op], holes: Sequence[Op], values: Sequence[np.ndarray]) -> tuple[Arrays, str]:
        printed = io.StringIO()
        transformer = ngt.make_transformer_factory(name)()
        with contextlib.redirect_stdout(printed):
            given = transformer.computation(list(results), *holes)(*values)
        transformer.close()
        return [np.asarray(a) for a, r in zip(given, results, strict=True) if type(r.type) is TensorType], printed.getvalue()

    return run


RUNNERS: dict[str, Runner] = {"oracle": oracle, **{name: on(name) for name in TRANSFORMERS}}


class Case:
    """All samples of one record in one dtype: the graph, what it is fed, and what the oracle says."""

    def __init__(self, record: OpDef, dtype: str):
        self.record, self.dtype = record, DTYPES[dtype]
        self.source, self.samples = samples(record, self.dtype, seed=zlib.crc32(record.name.encode()))
        self.effects = [o for o in self.samples if o.type is None]
        self.tensors = tensors(o for o in self.samples if o.type is not None)
        self.roots = [*self.tensors, *self.effects]
        self.holes, self.values = feed(self.source, self.roots)

    @functools.cached_property
    def expected(self) -> tuple[Arrays, str]:
        return oracle(self.roots, self.holes, self.values)

    # slopes
    @functools.cached_property
    def steep(self) -> dict[int, list[Op]]:
        """Which float results depend on regular inputs alone, with no rounding to another float type between; and those inputs."""
        found = {}
        rough, regular = set(self.source.rough), {h for h in self.source.smooth if h.dtype.is_float and 0 not in h.axes.lengths}
        for k, t in enumerate(self.tensors):
            graph = list(ordered([t]))
            inputs = [i for i in graph if i in regular]
            moving: set[Op] = set(inputs)
            for o in graph:
                if not moving.isdisjoint(o.inputs):
                    moving.add(o)
            floats = {i.dtype for o in moving for i in (o.type if type(o.type) is tuple else (o.type,)) if i.dtype.is_float}
            if t in moving and t.dtype.is_float and len(floats) == 1 and rough.isdisjoint(graph) and None not in t.axes.lengths:
                found[k] = inputs
        return found

    @functools.cached_property
    def slopes(self) -> list[tuple[Op, list[Op]]]:
        """Each such result (of the float64 samples) as a weighted sum of its finite elements, with its inputs."""
        found = []
        exact = case(self.record.name, "float64")
        for k in exact.steep:
            t = self.tensors[k]
            weights = self._draw(t).uniform(0.5, 1.5, t.axes.lengths).astype(np.float32).astype(t.dtype.np)
            finite = np.isfinite(exact.expected[0][k])
            kept = t * ng.constant(weights, t.axes)
            found.append(
                (ng.sum(kept if finite.all() else ng.where(ng.constant(finite, t.axes), kept, 0.0), out_axes=()), self.inputs_of(k))
            )
        return found

    def inputs_of(self, k: int) -> list[Op]:
        places = [case(self.record.name, "float64").holes.index(h) for h in case(self.record.name, "float64").steep[k]]
        return [self.holes[p] for p in places]

    def _draw(self, o: Op) -> np.random.Generator:
        return np.random.default_rng(self.tensors.index(o) if o in self.tensors else 10_000 + self.holes.index(o))

    @functools.cached_property
    def directions(self) -> dict[Op, np.ndarray]:
        """For each regular input a direction, exact in float32."""
        return {
            h: self._draw(h).uniform(-1, 1, h.axes.lengths).astype(np.float32).astype(h.dtype.np)
            for _, inputs in self.slopes
            for h in inputs
        }

    def moved(self, by: float) -> Arrays:
        return [v + by * self.directions[h] if h in self.directions else v for h, v in zip(self.holes, self.values, strict=True)]

    def derivatives(self, of: Sequence[tuple[Op, list[Op]]]) -> list[Op]:
        """The slope of each weighted sum along the directions of its inputs."""
        found = []
        for total, inputs in of:
            slopes = [g * ng.constant(self.directions[h], h.axes) for g, h in zip(ng.deriv(total, inputs), inputs, strict=True)]
            found.append(functools.reduce(lambda a, b: a + b, [ng.sum(g, out_axes=()) for g in slopes]))
        return found

    @functools.cached_property
    def along(self) -> list[Op]:
        return self.derivatives(self.slopes)

    @functools.cached_property
    def along_twice(self) -> list[Op]:
        return self.derivatives([(d, inputs) for d, (_, inputs) in zip(self.along, self.slopes, strict=True)])

    def differences(self, of: Sequence[Op], step: float = 1e-5) -> np.ndarray:
        """Central differences along the directions, by the oracle."""
        high, low = (np.array(oracle(of, self.holes, self.moved(by))[0], np.float64) for by in (step, -step))
        return (high - low) / (2 * step)

    @functools.cached_property
    def slope(self) -> np.ndarray:
        return self.differences([total for total, _ in self.slopes])

    @functools.cached_property
    def slope_twice(self) -> np.ndarray:
        return self.differences(self.along)

    # composites
    @functools.cached_property
    def composites(self) -> list[Op]:
        """The ops of this record in the samples, where it is made of smaller ones."""
        return [] if self.record.lower is None else [o for o in ordered(self.roots) if o.opdef is self.record]

    # orders
    def permuted(self) -> tuple[list[Op], list[Op], Arrays]:
        """The same graph on inputs whose axes are declared the other way round."""
        new, values = {}, []
        for h, v in zip(self.holes, self.values, strict=True):
            order = list(range(v.ndim))[::-1]
            new[h] = placeholder([h.axes[k] for k in order], dtype=h.dtype)
            values.append(np.transpose(v, order).copy())
        made = copy_graph(self.roots, new)
        return [made[r] for r in self.roots], list(new.values()), values


@functools.cache
def case(record: str, dtype: str) -> Case:
    return Case(RECORDS[record], dtype)


# ---- which cells there are --------------------------------------------------------------------------------------------


def dtypes_of(record: OpDef, check: str) -> list[str]:
    mine = [d.name for d in DTYPES.values() if d.kind in record.kinds and (d.kind != "narrow" or d.name in NARROW)]
    full = [d for d in mine if d in FULL]
    if check == "value":
        return mine
    mine = [d for d in mine if d not in NARROW]
    if check in ("gradient", "twice"):
        return full
    return full or mine[-1:]


def is_there(record: OpDef, check: str) -> bool:
    """Whether there is something to check: a lowering, a slope, a slope that has one."""
    if check == "whole":
        return record.lower is not None
    if check == "twice" and not record.smooth:
        return False
    return check not in ("gradient", "twice") or bool("float" in record.kinds and case(record.name, "float64").steep)


@functools.cache
def every_cell(check: str) -> list[tuple[str, str, str]]:
    """(record, dtype, transformer) of a check."""
    runners = [r for r in RUNNERS if check != "value" or r != "oracle"]
    return [(r.name, d, t) for r in RECORDS.values() if is_there(r, check) for d in dtypes_of(r, check) for t in runners]


def cells(check: str) -> list[tuple[str, str, str]]:
    """The same, the excluded ones left out."""
    return [(r, d, t) for r, d, t in every_cell(check) if not reason(r, d, check, t)]


@functools.cache
def some_cells() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(record, dtype) for tests that need not see all: float32, or the first dtype where floats are not taken; then one dtype more of each.

    The second is another one from record to record, so that each dtype has its turn.
    """
    every: dict[str, list[str]] = {}
    for r, d, t in cells("value"):
        if t == TRANSFORMERS[0]:
            every.setdefault(r, []).append(d)
    main = sorted({(r, "float32" if "float32" in ds else ds[0]) for r, ds in every.items()})
    other = sorted({(r, sorted(ds)[5 * k % len(ds)]) for k, (r, ds) in enumerate(sorted(every.items()))} - set(main))
    return main, other


def reason(record: str, dtype: str, check: str, transformer: str) -> str:
    """Why a cell is left out, or nothing."""
    cell = (record, dtype, check, transformer)
    for *pattern, why in EXCLUDED:
        if all(c in str(p).split("|") or p == "*" for p, c in zip(pattern, cell, strict=True)):
            return str(why)
    if check in ("gradient", "twice"):
        return str(RECORDS[record].attrs.get("no_gradient_check", ""))
    return ""


def count() -> tuple[int, int]:
    """How many cells there are, and how many of them are left out."""
    every = [(r, d, check, t) for check in CHECKS for r, d, t in every_cell(check)]
    return len(every), sum(1 for cell in every if reason(*cell))


# ---- how close ----------------------------------------------------------------------------------------------------------


def eps(dtype: dtypes.DType) -> float:
    return {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}[dtype.name]


def differs(got: np.ndarray, expected: np.ndarray, record: OpDef) -> str:
    """What is wrong with `got`, or nothing. The record's `ulp` counts from 1 up for small numbers; `error` is stated for float32."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {expected.dtype}{list(expected.shape)}"
    d = dtypes.as_dtype(expected.dtype)
    if d.kind == "narrow":
        bad = got.view(np.uint8) != expected.view(np.uint8)
    elif not d.is_float:
        bad = got != expected
    else:
        e, g = expected.astype(np.float64), got.astype(np.float64)
        with np.errstate(all="ignore"):
            allowed = np.maximum(record.ulp * eps(d) * np.maximum(np.abs(e), 1.0), record.error * eps(d) / eps(dtypes.float32))
            near = np.abs(e - g) <= allowed
        bad = ~(near | (e == g) | (np.isnan(e) & np.isnan(g)))
    if not bad.any():
        return ""
    k = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{got[k]!r} instead of {expected[k]!r} at {k}, and {int(bad.sum())} of {bad.size} differ\n{got}\n{expected}"


def assert_close(got: Arrays, expected: Arrays, record: OpDef, ops: Sequence[Op]) -> None:
    assert len(got) == len(expected)
    for k, (g, e) in enumerate(zip(got, expected, strict=True)):
        wrong = differs(g, e, record)
        assert not wrong, f"sample {k}, {ops[k]}: {wrong}"


def reordered(array: np.ndarray, axes: Axes, to: Axes) -> np.ndarray:
    return np.transpose(array, [axes.index(a) for a in to])
