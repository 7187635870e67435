"""Random programs of core ops, planned for random machines and run as machine code between inaccessible pages.

Lengths 0 to 70, steps of either sign, predicates, pads, splits, broadcasts, every dtype, axes in any order; x86-64-v2 to v4, the host and,
if the emulator is installed, aarch64. The answer is computed with NumPy from the case alone. All values are small integers, so that every
order of every sum gives the same bits, and each difference is a mistake; some floats are NaN and infinity.

A case: {"axes": {name: length}, "open": [names], "inputs": [{axes, dtype, seed, kind}], "steps": [{op, in, …}], "outputs": [value],
"machine": seed or None, "target": name, "pieces": n, "side": "before" or "behind"}. Values are numbered: inputs, then steps.
There may be "state": [[input, value]], inputs that are state and the value that each has afterwards, "fields" of the machine, and
"assumed": the length that the plan takes for open axes, which may be far from those of the call.
Expressions over indices are numbers, ["idx", axis] and [operator, a, b].
"""

import contextlib
import copy
import ctypes
import math
import mmap
import os
import pprint
import random
import sys
from dataclasses import replace

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "tests", room) for room in ("codegen", "every_op")]

import plans  # noqa: E402 - the tests' runner of compiled plans
import static  # noqa: E402 - and of those for a processor in an emulator
from machines import machines  # noqa: E402

from ngraph.codegen.routines import emit_opaque_op  # noqa: E402
from ngraph.op_graph import dtypes  # noqa: E402
from ngraph.op_graph.arrays import ArrayRef  # noqa: E402
from ngraph.op_graph.expr import Idx, combine  # noqa: E402
from ngraph.plan.interpret import interpret  # noqa: E402
from ngraph.plan.planner import plan  # noqa: E402
from ngraph.plan.text import arrays, parse, text  # noqa: E402
from ngraph.plan.verify import verify  # noqa: E402
from ngraph.program.program import AxisId, State  # noqa: E402
from ngraph.program.text import text as program_text  # noqa: E402
from ngraph.program.verify import verify as verify_program  # noqa: E402
from ngraph.schedule.cpu import schedule_plan  # noqa: E402
from ngraph.schedule.verify import verify as verify_schedule  # noqa: E402
from ngraph.targets import DEFAULT, TARGETS, host  # noqa: E402
from ngraph.targets.products import DOTS  # noqa: E402
from ngraph.tensors import graph  # noqa: E402
from ngraph.testing.rules import Steps  # noqa: E402

FLOATS, INTEGERS = ("float16", "bfloat16", "float32", "float64"), ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
WHOLE = {"float16": 2**11, "bfloat16": 2**8, "float32": 2**24, "float64": 2**53}  # up to which every whole number has a float
PLACES = 6000  # elements of the largest value, so that the interpreter, which is slow, stays below a tenth of a second
TARGET_NAMES = [n for n, t in TARGETS.items() if t.triple == host().triple and t.vector_bits <= host().vector_bits]
EMULATED = 40  # one case in so many runs in the emulator, which takes a second for each


# ---- what a case means, in NumPy ----------------------------------------------------------------------------------------


class Invalid(Exception):
    """A case in which a number is not exact, or that is invalid."""


def number(e, at):
    """Returns an expression at the indices `at`: {axis: array}."""
    if isinstance(e, int):
        return e
    if e[0] == "idx":
        return at[e[1]]
    a, b = number(e[1], at), number(e[2], at)
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: a // b, "%": lambda: a % b}[e[0]]()


def grid(axes, case):
    """Returns {axis: its index at each element of an array over `axes`}."""
    shape = [case["axes"][a] for a in axes]
    return dict(zip(axes, np.indices(shape, dtype=np.int64, sparse=False), strict=True)) if axes else {}


def aligned(x, own, axes):
    """Returns an array over `own` as one that broadcasts over `axes`."""
    x = x.transpose([own.index(a) for a in axes if a in own])
    return x.reshape([x.shape[[b for b in axes if b in own].index(a)] if a in own else 1 for a in axes])


def union(*several):
    return list(dict.fromkeys(a for axes in several for a in axes))


def given(one, case):
    """Returns the array of an input."""
    draw = np.random.default_rng(one["seed"])
    shape = [case["axes"][a] for a in one["axes"]]
    dtype = dtypes.as_dtype(one["dtype"])
    if dtype.kind == "bool":
        return draw.integers(0, 2, shape).astype(bool)
    if one["kind"] == "units":
        made = draw.choice([-1, 1, 1, 2] if dtype.kind != "uint" else [1, 1, 1, 2], shape)
    elif one["kind"] == "far" and dtype.is_integer:
        return draw.integers(int(dtype.lowest), int(dtype.highest), shape, dtype.np, endpoint=True)
    else:
        made = draw.integers(0 if dtype.kind == "uint" else -3, 4, shape)
    if one["kind"] == "special" and dtype.is_float:
        made = np.where(draw.random(shape) < 0.1, draw.choice([np.nan, np.inf, -np.inf], shape), made)
    return np.asarray(made).astype(np.float64 if dtype.is_float else dtype.np)


def exact(x, dtype, most=None):
    """Returns a float64 array, if the dtype represents all finite values; else raises Invalid."""
    dtype = dtypes.as_dtype(dtype)
    if dtype.is_float:
        finite = np.abs(x[np.isfinite(x)])
        if finite.size and finite.max() > WHOLE[dtype.name] or most is not None and most > WHOLE["float32"]:
            raise Invalid
    return x


UNARY = {"abs": np.abs, "floor": np.floor, "round": np.rint}
BINARY = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
COMPARE = {"eq": np.equal, "lt": np.less, "le": np.less_equal}
BITWISE = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
EDGE = {"max": -math.inf, "min": math.inf}
FOLD = {"add": np.add, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}


def edge(kind, dtype):
    d = dtypes.as_dtype(dtype)
    return EDGE[kind] if d.is_float else (kind == "min") if d.kind == "bool" else int(d.lowest if kind == "max" else d.highest)


def finite_sum(x):
    return np.abs(x[np.isfinite(x)]).sum()


def best_of(x, kind, dims):
    """Returns the first flat position of the maximum or minimum along these dims; the first NaN counts as such."""
    rest = [d for d in range(x.ndim) if d not in dims]
    flat = x.transpose([*rest, *dims]).reshape([*[x.shape[d] for d in rest], math.prod(x.shape[d] for d in dims)])
    if not flat.shape[-1]:
        raise Invalid
    return (flat.argmax if kind == "max" else flat.argmin)(-1).astype(np.int32)


def folded(x, kind, dims, dtype):
    """Returns a reduction, exact in any order of its terms."""
    if kind in ("add", "multiply"):
        finite = np.where(np.isfinite(x), np.abs(x), 0) if dtypes.as_dtype(dtype).is_float else None
        if finite is not None and finite.size:
            whole = FOLD[kind].reduce(finite if kind == "add" else np.maximum(finite, 1), axis=dims)
            if np.size(whole) and np.max(whole) > min(WHOLE.get(dtype, 0), WHOLE["float32"]):
                raise Invalid
        return FOLD[kind].reduce(x, axis=dims, dtype=x.dtype)
    return FOLD[kind].reduce(x, axis=dims, initial=edge(kind, dtype))


def moved(step, x, own, case):
    """Returns a reindex: x at an index, `pad_value` outside of it and where a predicate is negative."""
    at = grid(step["axes"], case)
    shape = tuple(case["axes"][a] for a in step["axes"])
    ok, places = np.ones(shape, bool), []
    for a in own:
        p = np.broadcast_to(number(step["index"][a], at), shape)
        ok = ok & (p >= 0) & (p < case["axes"][a])
        places.append(p)
    for g in step["predicate"]:
        ok = ok & (np.broadcast_to(number(g, at), shape) >= 0)
    found = np.full(shape, step["pad_value"], x.dtype)
    found[ok] = x[tuple(p[ok] for p in places)]
    return found


def pointed(index, n, mode):
    """Returns an index as int64; uint64, which has larger numbers, by the mode's treatment of them."""
    if index.dtype != np.uint64:
        return index.astype(np.int64)
    return (index % np.uint64(n) if mode == "wrap" else np.minimum(index, np.uint64(n))).astype(np.int64)


def gathered(step, x, own, index, index_axes):
    """Returns x at an index along one of its axes."""
    axis, n = step["axis"], x.shape[own.index(step["axis"])]
    out = union(index_axes, [a for a in own if a != axis])
    i = aligned(pointed(index, n, step["mode"]), index_axes, out)
    full = np.moveaxis(x, own.index(axis), 0)
    rest = [a for a in own if a != axis]
    spread = full.transpose([0, *[1 + rest.index(a) for a in out if a in rest]])
    spread = spread.reshape([n, *[x.shape[own.index(a)] if a in rest else 1 for a in out]])
    shape = np.broadcast_shapes(i.shape, spread.shape[1:])
    spread, i = np.broadcast_to(spread, (n, *shape)), np.broadcast_to(i, shape)
    inside = (i >= 0) & (i < n)
    near = {"clip": np.clip(i, 0, n - 1), "wrap": i % n, "fill": np.where(inside, i, 0)}[step["mode"]]
    found = np.take_along_axis(spread, near[None], 0)[0]
    return np.where(inside, found, 0).astype(x.dtype) if step["mode"] == "fill" else found, out


def scattered(step, x, own, index, index_axes, u, u_axes):
    """Returns a copy of x into which u is combined along one of its axes, which neither the index nor u has."""
    axis, n = step["axis"], x.shape[own.index(step["axis"])]
    rest = [a for a in own if a != axis]
    out = union(rest, [a for a in index_axes if a not in rest])
    made = np.array(np.moveaxis(x, own.index(axis), 0))
    shape = [*made.shape[1:], *[index.shape[index_axes.index(a)] for a in out[len(rest) :]]]
    i = np.broadcast_to(aligned(pointed(index, n, step["mode"]), index_axes, out), shape)
    v = np.broadcast_to(aligned(u, u_axes, out), shape)
    for at in np.ndindex(*shape):
        p = int(i[at])
        p = min(max(p, 0), n - 1) if step["mode"] == "clip" else p % n if step["mode"] == "wrap" else p
        if 0 <= p < n:
            place = (p, *at[: len(rest)])
            made[place] = FOLD[step["combine"]](made[place], v[at])
    return np.moveaxis(made, 0, own.index(axis))


def meaning(case):
    """Returns [(axes, dtype name, array)] of every value; floats as float64. Raises Invalid where a number is not exact."""
    values = [(list(one["axes"]), one["dtype"], given(one, case)) for one in case["inputs"]]
    with np.errstate(all="ignore"):
        for step in case["steps"]:
            axes, dtype, x = made = _made(step, [values[k] for k in step["in"]], case)
            if x.shape != tuple(case["axes"][a] for a in axes) or x.size > PLACES:
                raise Invalid
            exact(x, dtype)
            values.append(made)
    return values


def _made(step, operands, case):
    """Returns axes, dtype and array of one step's result."""
    op = step["op"]
    if op == "iota":
        return [step["axis"]], step["dtype"], exact(_as(np.arange(case["axes"][step["axis"]]), step["dtype"]), step["dtype"])
    if op == "constant":
        shape = [case["axes"][a] for a in step["axes"]]
        return step["axes"], step["dtype"], given({**step, "kind": "small"}, case).reshape(shape)
    own, dtype, x = operands[0]
    if op in UNARY:
        return own, dtype, UNARY[op](x).astype(x.dtype)
    if op == "cast":
        return own, step["dtype"], _cast(x, dtype, step["dtype"])
    if op in (*BINARY, "compare", "bitwise", "where"):
        axes = union(*[a for a, _, _ in operands])
        each = [aligned(v, a, axes) for a, _, v in operands]
        if op == "where":
            return axes, operands[1][1], np.where(*each)
        rule = BINARY.get(op) or {**COMPARE, **BITWISE}[step["kind"]]
        return axes, "bool" if op == "compare" else dtype, rule(*each)
    if op == "reindex":
        return step["axes"], dtype, moved(step, x, own, case)
    if op == "reduce":
        dims = tuple(own.index(a) for a in step["axes"])
        return [a for a in own if a not in step["axes"]], dtype, folded(x, step["kind"], dims, dtype)
    if op == "argreduce":
        dims = tuple(own.index(a) for a in step["axes"])
        return [a for a in own if a not in step["axes"]], "int32", best_of(x, step["kind"], dims)
    if op == "contract":
        axes = union(own, operands[1][0])
        whole = aligned(x, own, axes) * aligned(operands[1][2], operands[1][0], axes)
        whole = np.broadcast_to(whole, [case["axes"][a] for a in axes])
        dims = tuple(axes.index(a) for a in step["over"])
        return [a for a in axes if a not in step["over"]], dtype, folded(whole, "add", dims, dtype)
    if op == "broadcast":
        return step["axes"], dtype, np.array(np.broadcast_to(aligned(x, own, step["axes"]), [case["axes"][a] for a in step["axes"]]))
    if op == "rename":
        return [step["to"].get(a, a) for a in own], dtype, x
    if op == "concat":
        rest = [a for a in own if a != step["parts"][0]]
        every = [aligned(v, a, [part, *rest]) for part, (a, _, v) in zip(step["parts"], operands, strict=True)]
        return [step["axis"], *rest], dtype, np.concatenate(every)
    if op == "gather":
        made, axes = gathered(step, x, own, operands[1][2], operands[1][0])
        return axes, dtype, made
    if op == "scatter":
        made = scattered(step, x, own, operands[1][2], operands[1][0], operands[2][2], operands[2][0])
        times = math.prod(operands[1][2].shape)  # that one element may be added
        if dtypes.as_dtype(dtype).is_float and finite_sum(operands[2][2]) * max(times, 1) > WHOLE[dtype] // 4:
            raise Invalid
        return own, dtype, made
    if op == "cumulate":
        d = own.index(step["axis"])
        y = np.flip(x, d) if step["reverse"] else x
        folded(y, step["kind"], (d,), dtype)
        run = FOLD[step["kind"]].accumulate(y, axis=d, dtype=y.dtype)
        if step["exclusive"]:
            unit = {"add": 0, "multiply": 1}.get(step["kind"])
            first = np.full(
                [1 if k == d else n for k, n in enumerate(y.shape)], edge(step["kind"], dtype) if unit is None else unit, y.dtype
            )
            run = np.concatenate([first, run.take(range(y.shape[d] - 1), d)], d) if y.shape[d] else run
        return own, dtype, np.flip(run, d) if step["reverse"] else run
    raise Invalid


def _as(x, dtype):
    d = dtypes.as_dtype(dtype)
    return x.astype(np.float64 if d.is_float else d.np)


def _cast(x, before, after):
    """Returns integers cast to another dtype: integers wrap, floats to integers truncate and saturate, NaN gives 0."""
    d = dtypes.as_dtype(after)
    if d.kind == "bool":
        return x != 0
    if d.is_float or not dtypes.as_dtype(before).is_float:
        return exact(_as(x, after), after)
    low, high = int(d.lowest), int(d.highest)
    finite = np.where(np.isfinite(x), x, 0).astype(np.int64)
    return np.where(x == np.inf, high, np.where(x == -np.inf, low, np.clip(finite, low, min(high, 2**63 - 1)))).astype(d.np)


# ---- the same as a program ------------------------------------------------------------------------------------------------


def expression(e):
    if isinstance(e, int):
        return e
    return Idx(AxisId(e[1])) if e[0] == "idx" else combine(e[0], expression(e[1]), expression(e[2]))


def build(case):
    """Returns the program of a case, its input arrays, and those of its state."""
    s = Steps(**{a: None if a in case["open"] else n for a, n in case["axes"].items()})
    values = [s.input(*one["axes"], dtype=dtypes.as_dtype(one["dtype"])) for one in case["inputs"]]
    for step in case["steps"]:
        values.append(_step(s, step, [values[k] for k in step["in"]], case))
    state = [(f"s{k}", values[k], values[v]) for k, v in case.get("state", ())]
    s.inputs = [v for v in s.inputs if v not in [old for _, old, _ in state]]
    fields = {"state_in": tuple(State(name, old) for name, old, _ in state), "state_out": tuple((name, new) for name, _, new in state)}
    program = verify_program(s.program(*[values[k] for k in case["outputs"]], **fields))
    made = [given(one, case).astype(dtypes.as_dtype(one["dtype"]).np) for one in case["inputs"]]
    kept = [k for k, _ in case.get("state", ())]
    return program, [a for k, a in enumerate(made) if k not in kept], {f"s{k}": made[k] for k in kept}


def _step(s, step, inputs, case):
    op, ids = step["op"], lambda names: tuple(map(AxisId, names))
    if op == "iota":
        return s("iota", axis=AxisId(step["axis"]), dtype=dtypes.as_dtype(step["dtype"]))
    if op == "constant":
        d = dtypes.as_dtype(step["dtype"])
        array = given({**step, "kind": "small"}, case).astype(d.np)
        return s("constant", value=ArrayRef(array), axes=ids(step["axes"]), dtype=d)
    if op == "cast":
        return s("cast", *inputs, dtype=dtypes.as_dtype(step["dtype"]))
    if op in ("compare", "bitwise"):
        return s(op, *inputs, kind=step["kind"])
    if op == "reindex":
        index = tuple((AxisId(a), expression(step["index"][a])) for a in inputs[0].axes)
        predicate = tuple(expression(g) for g in step["predicate"])
        pad_value = inputs[0].dtype.python(step["pad_value"])
        return s("reindex", *inputs, axes=ids(step["axes"]), index=index, predicate=predicate, pad_value=pad_value)
    if op in ("reduce", "argreduce"):
        return s(op, *inputs, kind=step["kind"], axes=ids(step["axes"]))
    if op == "contract":
        d = inputs[0].dtype
        return s("contract", *inputs, over=ids(step["over"]), accumulate=dtypes.float32 if d.is_float and d.bits == 16 else d)
    if op == "broadcast":
        return s("broadcast", *inputs, axes=ids(step["axes"]))
    if op == "rename":
        return s("rename", *inputs, to=tuple((AxisId(a), AxisId(b)) for a, b in step["to"].items()))
    if op == "concat":
        return s("concat", *inputs, parts=ids(step["parts"]), axis=AxisId(step["axis"]))
    if op == "gather":
        return s("gather", *inputs, axes=ids([step["axis"]]), mode=step["mode"])
    if op == "scatter":
        return s("scatter", *inputs, axes=ids([step["axis"]]), combine=step["combine"], mode=step["mode"])
    if op == "cumulate":
        return s("cumulate", *inputs, kind=step["kind"], axis=AxisId(step["axis"]), exclusive=step["exclusive"], reverse=step["reverse"])
    return s(op, *inputs)


# ---- running it -----------------------------------------------------------------------------------------------------------

PROTECT = ctypes.CDLL(None, use_errno=True).mprotect


class Guarded(plans.Compiled):
    """A running plan: each buffer has memory of its own that begins or ends at an inaccessible page."""

    side = "behind"

    def __init__(self, plan, lengths):
        super().__init__(plan, lengths)
        self.own = {}

    def memory_of(self, shape, dtype, alignment):
        size = math.prod(shape) * dtype.itemsize
        room, page = -(-max(size, 1) // alignment) * alignment, mmap.PAGESIZE
        whole = -(-room // page) * page
        raw = np.frombuffer(mmap.mmap(-1, whole + page), np.uint8)
        raw[...] = 0xFF  # NaN
        start, closed = (page, 0) if self.side == "before" else (whole - room, whole)
        assert not PROTECT(ctypes.c_void_p(raw.ctypes.data + closed), ctypes.c_size_t(page), 0)
        return raw[start : start + size].view(dtype).reshape(shape)

    def take(self, b, array):
        mine = self.memory_of(array.shape, array.dtype, array.dtype.itemsize)
        mine[...] = array
        super().take(b, mine)

    def place(self, b):
        if b.shares is not None:
            return super().place(b)
        if b not in self.own:  # one memory for each: what surrounds a padded buffer is stored at the start alone
            shape = self.shape(b)
            full = (*shape[:-1], *[max(n, b.row or 0) for n in shape[-1:]])
            alignment = 64 if b.offset is not None else b.dtype.np.itemsize
            self.own[b] = self.memory_of(full, b.dtype.np, alignment)[(..., *[slice(n) for n in shape])]
        self.arrays[b] = self.own[b]
        return self.arrays[b]

    def routine(self, step):
        if step.op != "cumulate":  # the one routine that cases have
            return super().routine(step)
        for b in step.results:
            self.place(b)
        for code in emit_opaque_op(self.plan, step, self.target):
            for b in code.buffers:
                if b not in self.arrays:  # between the parts of a routine
                    self.arrays[b] = self.memory_of((b.bytes,), np.dtype(np.uint8), 64)
            self.launch(code)


def machine_of(case):
    made = DEFAULT if case["machine"] is None else next(machines(case["machine"], 1))
    fields = dict(case.get("fields") or {})
    names = fields.pop("products", ())
    return replace(made, products=(*DEFAULT.products, *[row for row in DOTS.values() if row.name in names]), **fields)


@contextlib.contextmanager
def assuming(length):
    """In the block, plans are made for open axes of this length; None: of the usual ones."""
    names = () if length is None else ("ASSUMED_LENGTH", "ASSUMED_BATCH")
    before = {name: getattr(graph, name) for name in names}
    try:
        for name in names:
            setattr(graph, name, length)
        yield
    finally:
        for name, value in before.items():
            setattr(graph, name, value)


def differs(got, expected, dtype):
    """Returns a sentence about the difference of two arrays; None where they are equal."""
    expected = np.asarray(expected).astype(dtypes.as_dtype(dtype).np)
    got = np.asarray(got)
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{got.dtype}{got.shape} in place of {expected.dtype}{expected.shape}"
    a, b = (v.astype(np.float64) if dtypes.as_dtype(dtype).is_float else v for v in (got, expected))
    wrong = (a != b) & ~((a != a) & (b != b))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} values are wrong, the first at {at}: {got[at]} in place of {expected[at]}"


def _apart(case):
    """Whether a step dilates, with zeros between elements."""
    return any(
        step["op"] == "reindex" and step["pad_value"] == 0 and any("%" in str(g) for g in step["predicate"]) for step in case["steps"]
    )


def check(case):
    """Returns a sentence about machine code, or the plan's interpreter, that differs from NumPy; None where they agree."""
    try:
        values = meaning(case)
    except Invalid:
        return None
    if _apart(case) and not all(np.isfinite(x.astype(np.float64)).all() for _, _, x in values):
        return None  # zeros between elements are no terms: docs/native.md
    program, inputs, state = build(case)
    lengths = {AxisId(a): case["axes"][a] for a in case["open"]}
    wanted, after = [], {name: v for (name, _), (_, v) in zip(program.state_out, case.get("state", ()), strict=True)}
    held = [s.value for s in program.state_in]
    for v, k in zip([*program.outputs, *held], [*case["outputs"], *after.values()], strict=True):
        axes, dtype, x = values[k]
        wanted.append((list(v.axes), dtype, x.transpose([axes.index(a) for a in v.axes])))
    with np.errstate(all="ignore"), assuming(case.get("assumed")):
        made = verify(plan(program, None, machine_of(case), winograd=False))
        shown = text(made)
        if text(verify(parse(shown, arrays(made)))) != shown:
            return "the text of the plan parses to another plan"
        by_lines, left = interpret(made, inputs, state, lengths=lengths)
        found = _first([*by_lines, *[left[name] for name in after]], wanted)
        if found:
            return f"the plan's interpreter: {found}"
        kind = type("Here", (Guarded,), {"side": case["side"], "pieces": case["pieces"]})
        target = host() if case["target"] == "host" else TARGETS[case["target"]]
        verify_schedule(schedule_plan(made, target))
        if case["target"] == "aarch64":
            kind = static.Emulated
        got, left = plans.run(made, inputs, state, lengths=lengths, target=target, kind=kind)
        got = [*got, *[left[name] for name in after]]
    plans.LOADED.clear()  # each case compiles its own
    found = _first(got, wanted)
    return f"machine code for {case['target']}: {found}" if found else None


def _first(got, wanted):
    for k, (array, (axes, dtype, expected)) in enumerate(zip(got, wanted, strict=True)):
        found = differs(array, expected, dtype)
        if found:
            return f"output {k} [{', '.join(axes)}], those of state last: {found}"
    return None


# ---- drawing cases ----------------------------------------------------------------------------------------------------------

SHORT, SHORTS = 1 << 16, 0.04  # products from which the plan looks for another form (`MIN_DOT_PRODUCTS`), and how many cases have so many
LENGTHS = [*range(2, 20), 23, 29, 31, 32, 33, 37, 41, 47, 48, 53, 61, 64, 67, 70]


class Draw:
    """A case under construction: steps are tried, and kept where they are exact and small."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.case = {"axes": {}, "open": [], "inputs": [], "steps": [], "outputs": []}
        self.values = []

    def length(self):
        x = self.r.random()
        return 0 if x < 0.01 else 1 if x < 0.06 else self.r.choice(LENGTHS)

    def axis(self, n=None):
        name = f"A{len(self.case['axes'])}"
        self.case["axes"][name] = self.length() if n is None else n
        return name

    def some(self, axes, share=0.6):
        axes = [a for a in axes if self.r.random() < share]
        self.r.shuffle(axes)
        return axes

    def input(self, dtype, axes):
        kind = self.r.choice(["small", "small", "small", "units", "far", "special"])
        self.case["inputs"].append({"axes": axes, "dtype": dtype, "seed": self.r.randrange(10**6), "kind": kind})
        self.values.append((axes, dtype, given(self.case["inputs"][-1], self.case)))

    def pick(self, test=lambda axes, dtype: True):
        """Returns the number of a value, with later ones more likely."""
        fit = [k for k, (axes, dtype, _) in enumerate(self.values) if test(axes, dtype)]
        return None if not fit else fit[-1 - min(int(self.r.expovariate(0.7)), len(fit) - 1)]

    def add(self, op, *inputs, **fields):
        step = {"op": op, "in": list(inputs), **fields}
        with np.errstate(all="ignore"):
            try:
                axes, dtype, x = _made(step, [self.values[k] for k in inputs], self.case)
                if x.size > PLACES or x.shape != tuple(self.case["axes"][a] for a in axes):
                    raise Invalid
                exact(x, dtype)
            except Invalid:
                return False
        self.case["steps"].append(step)
        self.values.append((list(axes), dtype, x))
        return True

    def like(self, k):
        """Returns another value of the dtype of value k."""
        return self.pick(lambda axes, dtype: dtype == self.values[k][1])

    # steps

    def elementwise(self, k):
        dtype = self.values[k][1]
        if dtype == "bool":
            return self.add("bitwise", k, self.like(k), kind=self.r.choice(list(BITWISE)))
        if dtype in INTEGERS and self.r.random() < 0.2:
            return self.add("bitwise", k, self.like(k), kind=self.r.choice(list(BITWISE)))
        op = self.r.choice(["binary"] * 4 + ["unary", "compare", "where", "cast"])
        if op == "binary":
            pair = [k, self.like(k)]
            self.r.shuffle(pair)
            return self.add(self.r.choice(list(BINARY)), *pair)
        if op == "unary":
            return self.add(self.r.choice(list(UNARY)) if dtype in FLOATS else "abs", k)
        if op == "compare":
            return self.add("compare", k, self.like(k), kind=self.r.choice(list(COMPARE)))
        if op == "where":
            c = self.pick(lambda axes, dtype: dtype == "bool")
            return c is not None and self.add("where", c, k, self.like(k))
        return self.add("cast", k, dtype=self.r.choice([*FLOATS, *INTEGERS, "bool"]))

    def term(self, a):
        """Returns an index that steps along an axis."""
        step = self.r.choice([1, 1, 1, -1, 2, 3, 4, -2, -3, -4])
        return ["idx", a] if step == 1 else ["*", ["idx", a], step]

    def index(self, n, axes):
        """Returns an index into an axis of length n, in terms of these axes."""
        if not axes or self.r.random() < 0.07:
            return self.r.randrange(-1, max(n, 1) + 1)
        a = self.r.choice(axes)
        e = self.term(a)
        x = self.r.random()
        if x < 0.15 and len(axes) > 1:
            e = ["+", e, self.term(self.r.choice(axes))]
        elif x < 0.2:
            e = ["//", ["+", ["idx", a], self.r.randrange(-4, 5)], self.r.randrange(2, 8)]
        elif x < 0.27:
            e = ["%", ["+", ["idx", a], self.r.randrange(-4, 5)], self.r.randrange(2, max(n, 3))]
        shift = self.r.choice([0, 0, 1, -1, 2, -3, n - 1, self.r.randrange(-n - 1, n + 2)])
        if isinstance(e, list) and e[0] == "*" and e[2] < 0:
            shift = n - 1 + self.r.choice([0, 0, 1, -1])
        return ["+", e, shift] if shift else e

    def reindex(self, k):
        own, dtype, _ = self.values[k]
        axes = self.some(own, 0.7)
        for _ in range(self.r.choice([0, 1, 1, 2])):
            axes.append(self.axis())
        self.r.shuffle(axes)
        free = {a: a if a in axes and self.r.random() < 0.5 else None for a in own}
        index = {a: ["idx", a] if free[a] else self.index(self.case["axes"][a], axes) for a in own}
        predicate = [self.index(5, axes) for _ in range(self.r.choice([0, 0, 0, 1, 2]))] if axes else []
        fills = [0, 0, 0, 1] + ([-2, math.nan, -math.inf] if dtype in FLOATS else [])
        return self.add("reindex", k, axes=axes, index=index, predicate=predicate, pad_value=self.r.choice(fills) if dtype != "bool" else 0)

    def window(self, k):
        """Adds a sliding window over one axis, as convolutions and pooling read it."""
        own, dtype, _ = self.values[k]
        if not own:
            return False
        a = self.r.choice(own)
        stride, dilation, pad = self.r.choice([1, 1, 2, 3]), self.r.choice([1, 1, 2]), self.r.choice([0, 0, 1, 2])
        n, size = self.case["axes"][a], self.r.choice([2, 3, 3, 4, 5])
        out = (n + 2 * pad - (size - 1) * dilation - 1) // stride + 1
        if out < 1:
            return False
        o, r = self.axis(out), self.axis(size)
        place = ["-", ["+", ["*", ["idx", o], stride], ["*", ["idx", r], dilation]], pad]
        index = {b: place if b == a else ["idx", b] for b in own}
        axes = [*[b for b in own if b != a], o, r]
        if self.r.random() < 0.4:
            self.r.shuffle(axes)
        return self.add("reindex", k, axes=axes, index=index, predicate=[], pad_value=0)

    def dilated(self, k):
        """Adds dilated elements with zeros between them, as in the gradient of a stride."""
        own, dtype, _ = self.values[k]
        if not own:
            return False
        a, by = self.r.choice(own), self.r.choice([2, 2, 3])
        o = self.axis(max(0, (self.case["axes"][a] - 1) * by + 1 + self.r.choice([0, 1])))
        place = ["+", ["idx", o], self.r.choice([0, 0, 1])]
        index = {b: ["//", place, by] if b == a else ["idx", b] for b in own}
        return self.add(
            "reindex", k, axes=[o if b == a else b for b in own], index=index, predicate=[["-", 0, ["%", place, by]]], pad_value=0
        )

    def strided(self, k):
        """Adds the gradient of a strided window: dilated elements under a window, perhaps with others, reduced. Returns whether it fits."""
        own, dtype, _ = self.values[k]
        if dtype == "bool" or not self.dilated(k) or not self.window(len(self.values) - 1):
            return False
        last = len(self.values) - 1
        axes = self.values[last][0]
        if self.r.random() < 0.6:
            if not self.add(
                "constant",
                axes=[a for a in axes if self.r.random() < 0.5 and a not in self.case["open"]],
                dtype=dtype,
                seed=self.r.randrange(10**6),
            ):
                return False
            pair = [last, last + 1]
            self.r.shuffle(pair)
            if not self.add(self.r.choice(["multiply", "multiply", "subtract", "maximum", "add"]), *pair):
                return False
        new = [a for a in self.values[-1][0] if a not in own]
        return self.add("reduce", len(self.values) - 1, kind=self.r.choice(["add", "add", "max", "min"]), axes=self.some(new, 0.7) or new)

    def repeated(self, k):
        """Adds a value with each element repeated, as a gather with a repeated index."""
        own, dtype, _ = self.values[k]
        if self.r.random() < 0.5 and not self.gather(k):
            return False
        k = len(self.values) - 1
        own = self.values[k][0]
        if not own:
            return False
        a, by = self.r.choice(own), self.r.choice([2, 2, 3])
        o = self.axis(max(0, self.case["axes"][a] * by - self.r.choice([0, 1])))
        index = {b: ["//", ["+", ["idx", o], self.r.choice([0, 1])], by] if b == a else ["idx", b] for b in own}
        return self.add("reindex", k, axes=[o if b == a else b for b in own], index=index, predicate=[], pad_value=0)

    def reduce(self, k):
        own, dtype, _ = self.values[k]
        kinds = ["max", "min"] if dtype == "bool" else ["add", "add", "add", "multiply", "max", "min"]
        return self.add("reduce", k, kind=self.r.choice(kinds), axes=self.some(own, 0.5) or own[:1])

    def argreduce(self, k):
        own, dtype, _ = self.values[k]
        return (
            bool(own)
            and dtype != "bool"
            and self.add("argreduce", k, kind=self.r.choice(["max", "min"]), axes=self.some(own, 0.5) or own[:1])
        )

    def short(self):
        """Adds a contraction of 8-bit integers or bfloat16 that is long enough for dot-product instructions."""
        m, n = (self.axis(self.r.choice([37, 41, 48, 53, 61, 64, 67, 70])) for _ in range(2))
        least = -(-SHORT // (self.case["axes"][m] * self.case["axes"][n]))
        k = self.axis(max(least, self.r.choice(LENGTHS)) + self.r.randrange(4))
        kind = self.r.choice(["bfloat16", "int8", "int8"])
        wide = self.r.choice(["float32"] if kind == "bfloat16" else ["float32", "int32"])
        sides = []
        for axes in ([m, k], [k, n]):
            self.r.shuffle(axes)
            self.input(kind if kind == "bfloat16" else self.r.choice(["int8", "uint8"]), axes)
        for side in range(2):
            at, (axes, dtype, _) = side, self.values[side]
            if self.r.random() < 0.3:
                index = {a: ["+", ["idx", a], self.r.choice([1, -1, 3])] if a == k else ["idx", a] for a in axes}
                at = len(self.values) - 1 if self.add("reindex", at, axes=axes, index=index, predicate=[], pad_value=0) else at
            if dtype != "bfloat16" or self.r.random() < 0.5:
                at = len(self.values) - 1 if self.add("cast", at, dtype=wide) else at
            if dtype != "bfloat16" and self.r.random() < 0.4:
                zero = len(self.values)
                self.add("constant", axes=[], dtype=wide, seed=self.r.randrange(10**6))
                at = len(self.values) - 1 if self.add("subtract", at, zero) else at
            sides.append(at)
        if self.values[sides[0]][1] == self.values[sides[1]][1]:
            self.add("contract", *sides, over=[k])

    def fields(self):
        """Returns the random fields of a machine."""
        yes = lambda: self.r.random() < 0.5
        bits, registers = self.r.choice([128, 256, 512]), self.r.choice([16, 32])
        return {"vector_bits": bits, "vector_registers": registers, "products": [row.name for row in DOTS.values() if yes()]}

    def state(self):
        """Chooses inputs that are state, and their new values of equal type; perhaps one that reads the state at other indices."""
        chosen = []
        k = self.r.randrange(len(self.case["inputs"]))
        own = self.values[k][0]
        if own and self.r.random() < 0.5:
            a = self.r.choice(own)
            place = self.r.choice([["-", self.case["axes"][a] - 1, ["idx", a]], ["+", ["idx", a], self.r.choice([1, -1, 2])]])
            index = {b: place if b == a else ["idx", b] for b in own}
            if (
                self.add("reindex", k, axes=own, index=index, predicate=[], pad_value=0)
                and self.values[k][1] != "bool"
                and self.r.random() < 0.7
            ):
                self.add(self.r.choice(list(BINARY)), len(self.values) - 1, k)
        for k, (axes, dtype, _) in enumerate(self.values[: len(self.case["inputs"])]):
            fit = [v for v, (other, d, _) in enumerate(self.values) if d == dtype and sorted(other) == sorted(axes)]
            if self.r.random() < 0.7 and not any(a in self.case["open"] for a in axes):
                chosen.append([k, fit[-1 - min(int(self.r.expovariate(0.7)), len(fit) - 1)]])
        return chosen

    def contract(self, k):
        own, dtype, _ = self.values[k]
        if dtype == "bool":
            return False
        j = self.pick(lambda axes, d: d == dtype and set(axes) & set(own)) if self.r.random() < 0.8 else self.like(k)
        if j is None:
            return False
        both = [a for a in own if a in self.values[j][0]]
        over = self.some(both, 0.7) or self.some(union(own, self.values[j][0]), 0.4)
        if dtype in ("int8", "uint8") and self.r.random() < 0.7:
            if not (self.add("cast", k, dtype="int32") and self.add("cast", j, dtype="int32")):
                return False
            k, j = len(self.values) - 2, len(self.values) - 1
        return self.add("contract", k, j, over=over)

    def broadcast(self, k):
        axes = [*self.values[k][0], *self.some(self.case["axes"], 0.3)[:1]]
        axes = union(axes)
        self.r.shuffle(axes)
        return self.add("broadcast", k, axes=axes)

    def rename(self, k):
        own = self.values[k][0]
        to = {a: self.axis(self.case["axes"][a]) for a in self.some(own, 0.5) if a not in self.case["open"]}
        return self.add("rename", k, to=to)

    def concat(self, k):
        own = self.values[k][0]
        if not own:
            return False
        a = self.r.choice(own)
        rest = set(own) - {a}
        fit = [(j, b) for j, (axes, d, _) in enumerate(self.values) if d == self.values[k][1] for b in axes if set(axes) - {b} == rest]
        chosen = [(k, a), *[self.r.choice(fit) for _ in range(self.r.choice([1, 1, 2]))]]
        if any(b in self.case["open"] for _, b in chosen):
            return False
        total = self.axis(sum(self.case["axes"][b] for _, b in chosen))
        return self.add("concat", *[j for j, _ in chosen], parts=[b for _, b in chosen], axis=total)

    def position(self, axes, axis):
        """The number of a value of whole numbers that does not move along `axis`: one that is there, or a new one of int32."""
        there = self.pick(lambda own, dtype: dtype in INTEGERS and axis not in own)
        if there is not None and self.r.random() < 0.4:
            return there
        chosen = self.some(axes, 0.4)[:2]
        if not chosen or self.r.random() < 0.5:
            chosen.append(self.axis(self.r.choice([1, 2, 3, 5, 7, 13])))
        self.case["steps"].append({"op": "constant", "in": [], "axes": chosen, "dtype": "int32", "seed": self.r.randrange(10**6)})
        step = self.case["steps"][-1]
        self.values.append((chosen, "int32", given({**step, "kind": "small"}, self.case)))
        if math.prod(self.case["axes"][a] for a in chosen) > PLACES // 4 or any(a in self.case["open"] for a in chosen):
            self.case["steps"].pop()
            self.values.pop()
            return None
        return len(self.values) - 1

    def gather(self, k):
        own = [a for a in self.values[k][0] if self.case["axes"][a]]
        if not own:
            return False
        axis = self.r.choice(own)
        i = self.position([a for a in self.values[k][0] if a != axis], axis)
        return i is not None and self.add("gather", k, i, axis=axis, mode=self.r.choice(["clip", "fill", "wrap"]))

    def scatter(self, k):
        own, dtype, _ = self.values[k]
        there = [a for a in own if self.case["axes"][a]]
        if not there or dtype == "bool":
            return False
        axis = self.r.choice(there)
        i = self.position([a for a in own if a != axis], axis)
        if i is None:
            return False
        combine, mode = self.r.choice(["add", "max", "min"]), self.r.choice(["clip", "fill", "wrap"])
        axes = union([a for a in own if a != axis], self.values[i][0])
        if math.prod(self.case["axes"][a] for a in axes) > PLACES // 4 or any(a in self.case["open"] for a in axes):
            return False
        u = self.pick(lambda own, d: d == dtype and set(own) == set(axes))
        if u is None or self.r.random() < 0.5:
            u = len(self.values)
            if not self.add("constant", axes=axes, dtype=dtype, seed=self.r.randrange(10**6)):
                return False
        return self.add("scatter", k, i, u, axis=axis, combine=combine, mode=mode)

    def cumulate(self, k):
        own, dtype, _ = self.values[k]
        if not own or dtype == "bool":
            return False
        kind = self.r.choice(["add", "add", "multiply", "max", "min"])
        yes = lambda: self.r.random() < 0.5
        return self.add("cumulate", k, kind=kind, axis=self.r.choice(own), exclusive=yes(), reverse=yes())

    def iota(self, k):
        axis = self.r.choice(list(self.case["axes"]))
        return self.add("iota", axis=axis, dtype=self.values[k][1] if self.values[k][1] != "bool" else "int32")


MOVES = ["elementwise"] * 6 + ["reindex"] * 6 + ["window"] * 2 + ["dilated"] + ["reduce"] * 4 + ["contract"] * 3
MOVES += ["strided", "strided", "repeated", "broadcast", "rename", "concat", "concat", "gather", "scatter", "cumulate", "iota", "argreduce"]


def draw(seed):
    """Returns a case of one to eight steps."""
    d = Draw(seed)
    r, main = d.r, d.r.choice([*["float32"] * 5, *FLOATS, *INTEGERS, "int8", "bfloat16", "bool"])
    if r.random() < SHORTS:
        d.short()
    pool = [d.axis() for _ in range(r.choice([1, 2, 2, 3, 3, 4]))]
    for _ in range(r.choice([1, 2, 2, 3]) if not d.values else 0):  # inputs come first
        axes = d.some(pool, 0.75)
        while math.prod(d.case["axes"][a] for a in axes) > PLACES:
            axes.pop()
        d.input(main if r.random() < 0.85 else r.choice([*FLOATS, *INTEGERS, "bool"]), axes)
    if r.random() < 0.3:
        there = union(*[one["axes"] for one in d.case["inputs"]])
        d.case["open"] = d.some(there, 0.5)
        d.case["assumed"] = random.Random(~seed).choice([None, *range(1, 17)])  # up to a vector, whatever comes
    wanted = r.choice([1, 2, 3, 3, 4, 5, 6, 8])
    for _ in range(4 * wanted):
        if len(d.case["steps"]) >= wanted:
            break
        getattr(d, r.choice(MOVES))(d.pick())
    last = list(range(len(d.values)))[-3:]
    d.case["outputs"] = sorted({len(d.values) - 1, *[k for k in last if r.random() < 0.3]})
    d.case["machine"] = None if r.random() < 0.3 else r.randrange(10**6)
    d.case["fields"] = d.fields() if r.random() < 0.5 else {}
    d.case["state"] = d.state() if r.random() < 0.25 else []
    emulator = static.EMULATOR is not None and r.randrange(EMULATED) == 0
    d.case["target"] = "aarch64" if emulator else r.choice(["host", "host", *TARGET_NAMES])
    d.case["pieces"], d.case["side"] = r.choice([1, 2, 3]), r.choice(["before", "behind"])
    used = {a for axes, _, _ in d.values for a in axes}
    d.case["axes"] = {a: n for a, n in d.case["axes"].items() if a in used}
    return d.case


# ---- making cases smaller ---------------------------------------------------------------------------------------------------


def without(case, k):
    """Returns the case without value k, which has no uses."""
    made = copy.deepcopy(case)
    n = len(made["inputs"])
    del (made["inputs"] if k < n else made["steps"])[k if k < n else k - n]
    down = lambda j: j - (j > k)
    for step in made["steps"]:
        step["in"] = [down(j) for j in step["in"]]
    made["outputs"] = [down(j) for j in made["outputs"]]
    made["state"] = [[down(j), down(v)] for j, v in made.get("state", ()) if j != k]
    return made


def smaller(case):
    """Yields cases with fewer outputs and steps, simpler settings, shorter axes; those that are still valid."""
    for simpler in _simpler(case):
        with contextlib.suppress(Invalid, LookupError, ValueError):
            meaning(simpler)
            yield simpler


def _simpler(case):
    n = len(case["inputs"])
    for k in range(n + len(case["steps"])):
        if case["outputs"] != [k] and k >= n:
            yield {**case, "outputs": [k]}
    for k in case["outputs"] if len(case["outputs"]) > 1 else ():
        yield {**case, "outputs": [j for j in case["outputs"] if j != k]}
    state = case.get("state", [])
    for pair in state:
        yield {**case, "state": [other for other in state if other != pair]}
    read = {j for step in case["steps"] for j in step["in"]} | set(case["outputs"]) | {j for pair in state for j in pair}
    for k in reversed(range(n + len(case["steps"]))):
        if k not in read:
            yield without(case, k)
    for k, step in enumerate(case["steps"]):  # an operand in place of a result
        for j in step["in"]:
            made = copy.deepcopy(case)
            for other in made["steps"]:
                other["in"] = [j if i == n + k else i for i in other["in"]]
            made["outputs"] = [j if i == n + k else i for i in made["outputs"]]
            yield made
    plain = {"machine": None, "fields": {}, "assumed": None, "open": [], "pieces": 1, "target": "host", "side": "behind"}
    for key, value in plain.items():
        if case.get(key, value) != value:
            yield {**case, key: value}
    for k, step in enumerate(case["steps"]):
        for g in range(len(step.get("predicate", ()))):
            made = copy.deepcopy(case)
            del made["steps"][k]["predicate"][g]
            yield made
    for a, length in case["axes"].items():
        for shorter in dict.fromkeys([1, length // 2, length - 1]):
            if 0 < shorter < length:
                made = copy.deepcopy(case)
                made["axes"][a] = shorter
                for step in made["steps"]:
                    if step["op"] == "concat":
                        made["axes"][step["axis"]] = sum(made["axes"][p] for p in step["parts"])
                    if step["op"] == "rename":
                        made["axes"].update({b: made["axes"][c] for c, b in step["to"].items()})
                yield made


def program(case):
    """Returns the case as a program that shows its core ops, its plan, and the difference."""
    try:
        shown = "".join(f"# {line}\n" for line in program_text(build(case)[0]).splitlines())
    except Exception as error:
        shown = f"# no program: {error}\n"
    made = pprint.pformat(case, width=140, compact=True, sort_dicts=False)
    return f"{shown}from hunt.kernels import check\n\ncase = {made}\nprint(check(case))\n"
