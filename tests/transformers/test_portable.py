"""Tables without addresses: written to files, run by another process that knows no plan, with all regions elsewhere and other lengths."""

import functools
import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ParseError, UnsupportedError
from ngraph.numpy_ops.table import LINES
from ngraph.op_graph.expr import Run
from ngraph.op_graph.opdef import OPS, REGISTRY, op
from ngraph.ops.sorting import compact_record
from ngraph.ops.state import parts
from ngraph.runtime.cache import cache
from ngraph.runtime.host.image import TableImage
from ngraph.transformers.executable.portable import portable

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
H = 6


def dense():
    """What depends on weights alone is made once; a constant, a softmax, a sum over all: of rows whose number calls bring."""
    n, k, m = ng.make_axis(name="N"), ng.make_axis(96, name="K"), ng.make_axis(80, name="M")
    x, draw = ng.placeholder([n, k]), np.random.default_rng(0)
    weights = ng.variable([k, m], initial_value=draw.standard_normal((96, 80)).astype("f")).named("weights")
    bias = ng.constant(draw.standard_normal(80).astype("f"), [m])
    results = [ng.softmax(ng.dot(x, ng.sin(ng.cos(weights))) + bias, [m]), ng.sum(x, out_axes=())]
    return results, [x], lambda n, t: [draw.standard_normal((n, 96)).astype("f")]


def convolved():
    """Borders that are filled when an arena has been made; all lengths are known."""
    n, h, w = ng.make_axis(2, name="N"), ng.make_axis(14, name="Y"), ng.make_axis(14, name="X")
    x, draw = ng.placeholder([n, ng.make_axis(16, name="C0"), h, w]), np.random.default_rng(4)
    y = x
    for k in range(3):
        shape = {"C": 16, "Y": 3, "X": 3, "K": 16}
        axes = [y.axes[1], ng.make_axis(3, name="Y"), ng.make_axis(3, name="X"), ng.make_axis(16, name=f"C{k + 1}")]
        filters = ng.constant(draw.standard_normal([*shape.values()]).astype("f") / 12, axes)
        y = ng.relu(ng.conv(y, filters, ["Y", "X"], padding=1, out_axes=[n, axes[3], *y.axes[2:]]))
    return [y], [x], lambda n, t: [draw.standard_normal((2, 16, 14, 14)).astype("f")]


def scanned(reverse=False):
    """Carries that change places, slices and stacks, as many trips as a call says, none among them; a loop in the loop."""
    n, t, u = ng.make_axis(name="N"), ng.make_axis(name="T"), ng.make_axis(3, name="U")
    x, s, r = ng.placeholder([n]), ng.placeholder([t, n]), ng.placeholder([u])

    def trip(carry, v):
        inner, _ = ng.scan(lambda c, q: (c * q + v, c), carry[0], r, u)
        return (ng.tanh(inner), carry[1] + carry[0]), (v * 2, carry[1])

    (first, second), (doubled, sums) = ng.scan(trip, (x, x * 0.5), s, t, reverse=reverse)
    draw = np.random.default_rng(1)
    given = lambda n, t: [draw.standard_normal(shape).astype("f") for shape in ((n,), (t, n), (3,))]
    return [first, second, doubled, sums, ng.exp(doubled)], [x, s, r], given


def looped():
    """As often as a number says, a branch in each trip."""
    n = ng.make_axis(name="N")
    x, limit = ng.placeholder([n]), ng.placeholder(())
    count, made = ng.while_loop(
        lambda c: c[0] < limit,
        lambda c: (c[0] + 1.0, ng.cond(c[0] > 1.0, lambda: c[1] * 1.5, lambda: c[1] - 2.0)),
        (ng.constant(0.0), x),
    )
    draw = np.random.default_rng(2)
    return [count, made * 2], [x, limit], lambda n, t: [draw.standard_normal(n).astype("f"), np.float32(t)]


def stated():
    """Variables that are changed in place."""
    n, h = ng.make_axis(name="N"), ng.make_axis(H, name="H")
    x, w = ng.placeholder([n, h]), ng.variable([h], initial_value=np.arange(H, dtype="f")).named("w")
    total = ng.sum(x, reduction_axes=[n])
    draw = np.random.default_rng(3)
    return [ng.sequential([ng.assign(w, w * 0.5 + total), w * 1]), x + w], [x], lambda n, t: [draw.standard_normal((n, H)).astype("f")]


def counted():
    """Trips and rows whose number steps count, from the end too; a loop in such a loop, a branch and a loop over what it has."""
    n, t = ng.make_axis(7, name="N"), ng.make_axis(name="T")
    x, y = ng.placeholder([n]), ng.placeholder([t])
    (found,) = ng.nonzero(ng.greater(x, 0))
    chosen = ng.cast(found, "float32")

    def trip(carry, v):
        inner, seen = ng.scan(lambda c, i: (c * 0.5 + i * v, c), carry, chosen, chosen.axes[0], reverse=True)
        return inner, ng.sum(seen, out_axes=())

    row, rows = ng.scan(lambda c, v: (c * 0.5 + v, c * 2), chosen, y, t)
    last, sums = ng.scan(trip, ng.constant(1.0), y, t)
    steps, ends = ng.scan(lambda c, i: (c + i, c * i), y, chosen, chosen.axes[0])
    _, grown = ng.while_loop(lambda c: c[0] < 3.0, lambda c: (c[0] + 1.0, c[1] * 1.5 + c[0]), (ng.constant(0.0), chosen))
    draw = np.random.default_rng(5)
    branch = ng.cond(ng.sum(chosen, out_axes=()) > 9.0, lambda: chosen * 1.5, lambda: chosen - 2.0)
    given = lambda n, t: [(draw.standard_normal(7) * (n != 1)).astype("f") + (n == 70), draw.standard_normal(t).astype("f")]
    return [row, rows, last, sums, steps, ends, grown, branch], [x, y], given


CASES = {
    "counted lengths": counted,
    "products and sums": dense,
    "borders": convolved,
    "a scan": scanned,
    "a scan from the end": lambda: scanned(True),
    "a loop": looped,
    "state": stated,
}
LENGTHS = [(4, 3), (9, 4), (1, 0), (70, 1), (5, 2)]  # of N, of T


def written(folder, case, threads):
    """The files of a computation with open lengths, and what its calls give."""
    results, holes, given = CASES[case]()
    calls = []
    with ng.config(num_threads=threads), ngt.allocate_transformer("cpu") as t:
        f = t.computation(results, *holes, name="portable")
        f(*given(*LENGTHS[0]))
        (bound,) = f.native.bound.values()
        assert bool(bound.code.start) == (case == "borders") and bool(bound.code.once) >= (case == "products and sums")
        made = portable(bound)
        assert all(abs(table.memory).max() < 1 << 32 for table in (made.once, made.start, made.steps))  # no address is as small
        for n, trips in LENGTHS:
            arguments = given(n, trips)
            state = [np.array(a) for a in f._lent.arrays()] if f.native.program.state_in else []
            outputs = [np.asarray(a) for a in f(*arguments)]
            key = {str(a): (arguments + state)[k].shape[d] for a, (k, d) in f.native.symbols.items()}
            calls.append((key, [np.asarray(a) for a in arguments], state, outputs))
            again = next(reversed(f.native.bound.values()))
        names = [s.name for s in f.native.program.state_in]
        if again.open:
            assert_equal_images(made, portable(again))  # another call's memory and lengths leave no trace
        outputs_of = [k for k, b in enumerate(bound.plan.outputs)]
        shapes = [[tuple(np.asarray(a).shape) for a in call[3]] for call in calls]
        for name in ("once", "start", "steps"):
            (folder / name).write_bytes(getattr(made, name).dump())
        for name, key in made.kernels.items():
            (folder / name).write_bytes(cache().find(key))
        for name, array in made.constants.items():
            np.save(folder / f"{name}.npy", array)
        (folder / "calls").write_bytes(pickle.dumps((calls, names, outputs_of, shapes, list(made.kernels), list(made.constants), threads)))
    return made


def assert_equal_images(one, other):
    for name in ("once", "start", "steps"):
        assert getattr(one, name).dump() == getattr(other, name).dump(), name


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_another_process_runs_it_with_no_plan(case, threads, tmp_path):
    written(tmp_path, case, threads)
    script = os.path.join(HERE, "portable_process.py")
    done = subprocess.run([sys.executable, script, str(tmp_path)], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ROOT})
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == f"{len(LENGTHS)} calls\n"


def test_files_are_checked():
    n = ng.make_axis(name="N")
    x = ng.placeholder([n])
    with ngt.allocate_transformer("cpu") as t:
        f = t.computation(ng.exp(x), x)
        f(np.ones(3, "f"))
        data = portable(next(iter(f.native.bound.values()))).steps.dump()
    assert TableImage.load(data).dump() == data
    for bad in (data[:-1], data + b"\0", b"x" + data[1:], b""):
        with pytest.raises(ParseError):
            TableImage.load(bad)


def test_what_python_runs_cannot_be_written():
    n = ng.make_axis(5, name="N")
    x = ng.placeholder([n])
    with ngt.allocate_transformer("cpu") as t:
        f = t.computation(ng.sequential([ng.print_values(ng.sum(x, out_axes=())), x * 1]), x)
        f(np.ones(5, "f"))
        with pytest.raises(UnsupportedError, match="Python runs effect") as found:
            portable(next(iter(f.native.bound.values())))
        assert "build the graph without these ops" in str(found.value)


def test_loops_over_lengths_without_a_bound_run_but_cannot_be_written():
    chosen = op("chosen", compact_record.doc, form=compact_record.form, type=compact_record.type, reference=compact_record.reference)
    LINES.of("chosen")(LINES["compact"])
    try:
        n = ng.make_axis(5, name="N")
        x, axis = ng.placeholder([n]), ng.make_axis(name="P")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ng.NgraphWarning)  # no machine code
            positions, count = parts(chosen.build(ng.greater(x, 0), axes=x.axes, axis=axis))
            axis.family.length = Run(count)
            last, _ = ng.scan(lambda carry, i: (carry * 2 + i, carry), ng.constant(0, dtype="int32"), positions, axis)
            with ngt.allocate_transformer("cpu") as t:
                f = t.computation(last, x)
                for given in (np.ones(5, "f"), np.zeros(5, "f"), np.array([1, 0, 1, 0, 1], "f")):
                    assert f(given) == functools.reduce(lambda carry, i: carry * 2 + i, np.flatnonzero(given), 0)
                with pytest.raises(UnsupportedError, match="Python runs chosen"):
                    portable(next(iter(f.native.bound.values())))
    finally:
        del REGISTRY["chosen"]
        for column, facts in OPS.facts("chosen").items():
            for fact in list(facts):
                OPS.take_back("chosen", column, fact.level)
