"""Each record, in each dtype, by each check, on each transformer: generated from the records; no op is named."""

import cells
import numpy as np
import pytest
from cells import CHECKS, FULL, RUNNERS, assert_close, case

from ngraph.op_graph.op import ordered
from ngraph.op_graph.opdef import REGISTRY
from ngraph.op_graph.text import dumps, loads
from ngraph.program.interpret import interpret, whole
from ngraph.program.lower import lower
from ngraph.program.text import arrays, equal, parse, text


def every(check):
    made = cells.cells(check)
    return pytest.mark.parametrize(("record", "dtype", "transformer"), made, ids=["-".join(c) for c in made])


@every("value")
def test_value(record, dtype, transformer):
    """A transformer gives what the references say, and prints what they print."""
    c = case(record, dtype)
    got, printed = RUNNERS[transformer](c.roots, c.holes, c.values)
    expected, said = c.expected
    assert_close(got, expected, c.record, c.tensors)
    assert printed == said


def close_slopes(got, slopes, dtype, c, rounds):
    """Float32 gradients are held against slopes in float64, up to what rounding makes of sums of this size."""
    got = np.array(got, np.float64)
    for k, (g, s) in enumerate(zip(got, slopes, strict=True)):
        size = sum(np.abs(c.directions[h]).sum() for h in c.slopes[k][1]) ** 0.5
        allowed = {"float32": 2e-4, "float64": 2e-6 * rounds}[dtype] * max(abs(s), size)
        assert abs(g - s) <= allowed, f"sample {k}, {c.slopes[k][0].inputs}: gradient {g}, slope {s}, allowed {allowed}"


@every("gradient")
def test_gradient(record, dtype, transformer):
    """The derivative along a random direction is the slope in that direction."""
    c, exact = case(record, dtype), case(record, "float64")
    got = RUNNERS[transformer](c.along, c.holes, c.values)[0]
    close_slopes(got, exact.slope, dtype, c, 1)


@every("twice")
def test_gradient_twice(record, dtype, transformer):
    """The second derivative is the slope of the first."""
    c, exact = case(record, dtype), case(record, "float64")
    got = RUNNERS[transformer](c.along_twice, c.holes, c.values)[0]
    close_slopes(got, exact.slope_twice, dtype, c, 10)


@every("saved")
def test_saved(record, dtype, transformer):
    """A graph that was written and read again gives the same bits."""
    c = case(record, dtype)
    again = loads(dumps(c.roots))
    kept = dict(zip(c.holes, c.values, strict=True))
    before, after = ([o for o in ordered(roots) if o.is_placeholder] for roots in (c.roots, again))
    values = [kept[h] for h in before]
    assert [h.type for h in before] == [h.type for h in after]
    run = RUNNERS[transformer]
    first, second = run(c.roots, before, values), run(again, after, values)
    assert first[1] == second[1]
    for a, b in zip(first[0], second[0], strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("record", list(cells.RECORDS))
def test_program_text(record):
    """What is printed of a program is parsed to an equal one, which gives the same bits."""
    c = case(record, cells.dtypes_of(cells.RECORDS[record], "saved")[0])
    program = lower(c.roots, c.holes).program
    again = parse(text(program), arrays(program))
    assert equal(program, again, notes=True)
    for a, b in zip(interpret(program, c.values)[0], interpret(again, c.values)[0], strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@every("whole")
def test_lowered_is_whole(record, dtype, transformer):
    """An op made of smaller ones gives what its own reference says."""
    c = case(record, dtype)
    inputs = list(dict.fromkeys(i for o in c.composites for i in o.inputs))
    assert c.composites, "no sample has an op of its record"
    arrays = dict(zip(inputs, cells.oracle(inputs, c.holes, c.values)[0], strict=True))
    single = [o for o in c.composites if type(o.type) is not tuple]
    got = RUNNERS[transformer](single, c.holes, c.values)[0]
    assert_close(got, [whole(o, [arrays[i] for i in o.inputs])[0] for o in single], c.record, single)


@every("orders")
def test_orders(record, dtype, transformer):
    """How a caller orders the axes of the inputs changes nothing but the order of the results' axes."""
    c = case(record, dtype)
    roots, holes, values = c.permuted()
    run = RUNNERS[transformer]
    expected, printed = run(c.roots, c.holes, c.values)
    got, _ = run(roots, holes, values)
    aligned = [cells.reordered(a, new.axes, old.axes) for a, new, old in zip(got, roots, c.tensors, strict=False)]
    assert_close(aligned, expected, c.record, c.tensors)


def test_no_more_than_a_few_are_left_out():
    total, out = cells.count()
    assert out <= total * 0.02, f"{out} of {total}"
    assert set(CHECKS) == {"value", "gradient", "twice", "saved", "whole", "orders"} and FULL
    for *pattern, why in cells.EXCLUDED:
        assert why, pattern


def test_every_record_has_samples():
    """Records without samples have no value of their own: what comes in, what stays, what orders."""
    without = [r for r in REGISTRY.values() if r.samples is None]
    assert all(r.reference is None for r in without), without
