"""Windows that slide along the rows of a tile: each element is read once for all rows and steps that it is a term of."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.plan.planner import plan
from ngraph.schedule.cpu import schedule_plan
from ngraph.schedule.form import sliding
from ngraph.schedule.interpret import interpret
from ngraph.targets import TARGETS, runnable
from ngraph.targets.tuning import MAX_SLIDING_TERMS

CASES = [  # channels, height, width, window, stride, dilation
    (3, 20, 40, (7, 7), 1, 1),
    (2, 33, 31, (5, 3), 1, 1),
    (2, 29, 50, (3, 5), 2, 1),
    (3, 26, 35, (3, 3), 1, 2),
    (2, 40, 18, (2, 2), 1, 1),
    (2, 31, 33, (6, 1), 1, 3),
    (1, 14, 14, (7, 7), 1, 1),
    (2, 45, 20, (31, 1), 1, 1),
]


def depthwise(channels, height, width, window, stride, dilation, dtype="float32"):
    """(result, gradient by the pictures, placeholders, arrays, what NumPy gives for both) of a convolution of each channel by itself."""
    c, h, w, r, s = (ng.make_axis(n, name=a) for n, a in zip((channels, height, width, *window), "CHWRS", strict=True))
    pads = [(k - 1) * dilation // 2 for k in window]
    x, f = ng.placeholder([c, h, w], dtype=dtype), ng.placeholder([c, r, s], dtype=dtype)
    y = ng.conv(x, f, {h: r, w: s}, groups=c, stride=stride, dilation=dilation, padding={h: pads[0], w: pads[1]})
    e = ng.placeholder(y.axes, dtype=dtype)
    rng = np.random.default_rng(height * width)
    a, b, d = (rng.normal(size=[n.length for n in t.axes]).astype(dtype) for t in (x, f, y))
    wide = np.pad(a.astype("f8"), [(0, 0), *[(p, p) for p in pads]])
    back, value = np.zeros_like(wide), np.zeros(d.shape)
    for i in range(window[0]):
        for j in range(window[1]):
            at = tuple(slice(k * dilation, k * dilation + (n - 1) * stride + 1, stride) for k, n in zip((i, j), d.shape[1:], strict=True))
            value += wide[:, *at] * b[:, i, j, None, None].astype("f8")
            back[:, *at] += d.astype("f8") * b[:, i, j, None, None]
    back = back[:, pads[0] : pads[0] + height, pads[1] : pads[1] + width]
    return y, ng.deriv(ng.sum(y * e, out_axes=()), x), (x, f, e), (a, b, d), (value, back)


TARGETS_AND_DTYPES = [*((target, "float32") for target in runnable()), *(("host", dtype) for dtype in ("float32", "float64", "float16"))]


@pytest.mark.parametrize(("target", "dtype"), TARGETS_AND_DTYPES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_depthwise_convolutions_and_their_gradients_are_numpys(monkeypatch, target, case, dtype):
    if target != "host":
        monkeypatch.setenv("NGRAPH_TARGET", target)
    y, dx, holes, arrays, expected = depthwise(*case, dtype)
    with ng.config(cache=""), ngt.allocate_transformer("cpu") as t:
        got = t.computation([y, dx], *holes)(*arrays)
    bound = {"float32": 2e-5, "float64": 1e-12, "float16": 2e-2}[dtype]
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=bound, atol=bound)


def stages(scheduled):
    return [s for k in scheduled.kernels.values() for v in k.versions for s in v.stages if s.flattened]


@pytest.mark.parametrize("case", CASES[:2] + CASES[3:4] + CASES[6:7], ids=str)
def test_such_windows_do_several_steps_at_once_and_run_in_the_interpreter(case):
    """Those of the gradient move against the rows."""
    y, dx, (x, f, e), (a, b, d), expected = depthwise(*case)
    for result, holes, arrays, wanted, forward in ((y, (x, f), (a, b), expected[0], 1), (dx, (f, e), (b, d), expected[1], -1)):
        with ngt.allocate_transformer("direct") as t:
            scheduled = schedule_plan(plan(t.computation(result, *holes).program), TARGETS["x86-64-v4"])
        (got,), _ = interpret(scheduled, arrays)
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)
        found = [(s, r) for s in stages(scheduled) if (r := sliding(s.reads.values(), s.tile, s.sums[-1])) is not None]
        assert [np.sign(r.coef[s.tile.tile] * r.coef[s.sums[-1]]) for s, r in found] == [forward]
        assert all(s.unroll > 1 and s.unroll * s.tile.rows * s.tile.columns <= MAX_SLIDING_TERMS for s, _ in found)
