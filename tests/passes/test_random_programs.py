"""Random programs give the same with the passes as without; what shrinks out of a failure prints as a program."""

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ngraph.config import config
from ngraph.errors import NgraphError
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import Idx, Len
from ngraph.passes import dead, default_passes, fold, run, share, simplify
from ngraph.program.interpret import interpret
from ngraph.program.program import AxisId, Program
from ngraph.program.text import text
from ngraph.testing.rules import Steps

A, B, K, O = map(AxisId, "ABKO")
UNARY = ("abs", "floor", "round")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
MOVES = ("broadcast", "rename", "reindex", "gather")
KINDS = (*UNARY, *BINARY, *BINARY, *MOVES, "number", "number", "compare", "where", "cast", "reduce", "contract", "scan")
NUMBERS = (0, 1, -1, 2, 3)


@st.composite
def programs(draw):
    """Steps on small whole numbers, in which arithmetic is exact, so that outputs can be compared bit by bit."""
    s = Steps(A=2, B=3, K=3, O=1, N=None)
    axes = st.lists(st.sampled_from((A, B, K, O, AxisId("N"))), unique=True, max_size=2).map(tuple)
    values = [s.input(*draw(axes), dtype=dtypes.float64) for _ in range(2)]
    values += [s.input(*draw(axes), dtype=dtypes.int32), s.input("N", dtype=dtypes.float64)]

    def pick(test=lambda v: True):
        fitting = [v for v in values if test(v)]
        assume(fitting)
        return fitting[-1 - draw(st.integers(0, min(len(fitting) - 1, 5)))]

    def one(kind):
        x = pick(lambda v: v.dtype.kind != "bool")

        def like(v):
            return v.dtype is x.dtype

        some = tuple(a for a in x.axes if draw(st.booleans()))
        if kind in UNARY:
            return s(kind, x)
        if kind in BINARY:
            return s(kind, x, pick(like))
        if kind == "number":
            return s.number(draw(st.sampled_from(NUMBERS)), x.dtype, draw(axes))
        if kind == "compare":
            return s(kind, x, pick(like), kind=draw(st.sampled_from(("eq", "lt", "le"))))
        if kind == "where":
            return s(kind, pick(lambda v: v.dtype.kind == "bool"), x, pick(like))
        if kind == "cast":
            return s(kind, pick(), dtype=draw(st.sampled_from((dtypes.float64, dtypes.int32, dtypes.int64, dtypes.bool_))))
        if kind == "reduce":
            return s(kind, x, kind=draw(st.sampled_from(("add", "max", "min"))), axes=some)
        if kind == "contract":
            y = pick(like)
            over = tuple(a for a in dict.fromkeys((*x.axes, *y.axes)) if draw(st.booleans()))
            return s(kind, x, y, over=over, accumulate=x.dtype)
        if kind == "broadcast":
            return s(kind, x, axes=(*x.axes, *(a for a in draw(axes) if a not in x.axes)))
        if kind == "rename":
            return s(kind, x, to=tuple((a, {B: K, K: B}[a]) for a in some if a in (B, K)))
        if kind == "reindex":
            new = draw(axes)

            def index(own):
                options = [0, 1, *(e for a in new for e in (Idx(a), Idx(a) * 2 - 1, Idx(a) + 1, Len(own) - 1 - Idx(a)))]
                return draw(st.sampled_from(options))

            return s(
                kind, x, axes=new, index=tuple((a, index(a)) for a in x.axes), predicate=(), pad_value=draw(st.sampled_from((0, 0, 1)))
            )
        if kind == "gather":
            assume(x.axes)
            at = {
                "iota": lambda: s("iota", axis=B, dtype=dtypes.int32),
                "number": lambda: s.number(draw(st.sampled_from(NUMBERS)), dtypes.int32),
                "value": lambda: pick(lambda v: v.dtype is dtypes.int32),
            }[draw(st.sampled_from(("iota", "number", "value")))]()
            return s(kind, x, at, axes=(draw(st.sampled_from(x.axes)),), mode=draw(st.sampled_from(("clip", "fill", "wrap"))))
        body = Steps(**{str(a): e for a, e in s.axes.items()})
        item, const = body.input(*(a for a in x.axes if a != B), dtype=x.dtype), body.input(dtype=x.dtype)
        made = body("subtract", body("add", item, body.number(0, x.dtype)), body("multiply", const, body.number(1, x.dtype)))
        assume(B in x.axes)
        return s("scan", x, s.number(2, x.dtype), body=body.program(made), axis="B", reverse=draw(st.booleans()), carries=0, xs=1)

    for _ in range(draw(st.integers(2, 14))):
        before = len(s.steps)
        try:
            values.append(one(draw(st.sampled_from(KINDS))))
        except NgraphError:
            del s.steps[before:]  # axes that do not go together
    return s.program(*values)


LENGTHS = {AxisId("N"): 2}


def results(program: Program, arrays):
    return interpret(program, arrays, {}, LENGTHS)[0]


@st.composite
def cases(draw):
    """A program, small whole numbers as its inputs, and its results by the oracle, which are exact: all are below 2**50."""
    whole = draw(programs())
    numbers = np.random.Generator(np.random.PCG64(draw(st.integers(0, 1000))))
    inputs = [numbers.integers(-3, 4, [whole.length(a, LENGTHS) for a in v.axes]).astype(v.dtype.np) for v in whole.inputs]
    with np.errstate(all="ignore"):
        every = results(whole, inputs)
    assume(all(np.all(np.abs(a.astype(np.float64)) < 2.0**50) for a in every))
    keep = draw(st.lists(st.integers(0, len(every) - 1), min_size=1, max_size=4))
    return whole.with_(outputs=tuple(whole.outputs[k] for k in keep)), inputs, [every[k] for k in keep]


def same(made, expected):
    """Whether arrays have the dtypes of these and are equal, NaN where NaN is."""
    return all(a.dtype == b.dtype and np.array_equal(a, b, equal_nan=b.dtype.kind == "f") for a, b in zip(made, expected, strict=True))


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(cases())
def test_passes_change_no_result(case):
    program, arrays, expected = case
    for passes in ((share,), (simplify,), (fold,), (dead,), default_passes):
        with config(check=True):
            after = run(program, passes)
        assert [v.axes for v in after.outputs] == [v.axes for v in program.outputs]
        assert same(results(after, arrays), expected), f"\n{text(program)}\n{text(after)}"
