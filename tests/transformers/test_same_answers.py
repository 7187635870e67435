"""What a caller may do rightly or wrongly: every transformer gives the same values, or the same message, in the first call and later."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt

NAMES = ("direct", "numpy", "cpu")
N, C, B = ng.make_axis(4, name="N"), ng.make_axis(3, name="C"), ng.make_axis(name="B")
X, Y = np.arange(12, dtype="f").reshape(4, 3), np.ones(3, "f")


def shown(v):
    if isinstance(v, (tuple, list)):
        return [type(v).__name__, *map(shown, v)]
    if isinstance(v, dict):
        return {str(k): shown(x) for k, x in v.items()}
    if isinstance(v, np.ndarray):
        with np.printoptions(precision=4):
            return f"{v.dtype} {v.shape} {v}"
    return f"{type(v).__name__} {v}"


def attempted(call, f):
    try:
        return shown(call(f))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def each(make, *calls):
    """What the calls give, twice; the same on all."""
    found = []
    for name in NAMES:
        with ngt.make_transformer_factory(name)() as transformer:
            f = make(transformer)
            found.append([attempted(call, f) for _ in range(2) for call in calls])
    for name, other in zip(NAMES[1:], found[1:], strict=True):
        for first, second in zip(found[0], other, strict=True):
            assert first == second, name
    return found[0][: len(calls)]


def two(t):
    x, y = ng.placeholder([N, C]).named("x"), ng.placeholder([C]).named("y")
    return t.computation([x * 2 + y, ng.sum(x, out_axes=())], x, y)


def test_shapes():
    got = each(
        two,
        lambda f: f(X, Y),
        lambda f: f(X.tolist(), 1.0),
        lambda f: f(X.T, Y),
        lambda f: f(X[:3], Y),
        lambda f: f(X),
        lambda f: f(X, Y, Y),
        lambda f: f(Y, X),
        lambda f: f(X, None),
        lambda f: f([[1, 2], [3]], Y),
        lambda f: f(X, np.array([1, 2, None])),
    )
    assert got[0] == got[1] and all("ArgumentError" in g for g in got[2:])
    assert "axis N of placeholder x has length 4, and got 3" in got[3] and "takes 2 arguments, not 1" in got[4]


def test_dtypes_and_memory():
    apart = np.zeros(49, np.uint8)[1:].view("f").reshape(4, 3)
    apart[...] = X
    fixed = X.copy()
    fixed.flags.writeable = False
    same = [X, X.astype("f8"), X.astype("i4"), X.astype("f2"), X.astype(">f4"), np.asfortranarray(X), np.repeat(X, 2, 0)[::2], apart, fixed]
    got = each(two, *[lambda f, a=a: f(a, Y) for a in same])
    assert all(g == got[0] for g in got)
    wrong = each(two, lambda f: f(X + 1j, Y), lambda f: f(X.astype("U"), Y), lambda f: f(X.astype("f8") + 1e300, Y))
    assert "placeholder x is float32, and got complex64" in wrong[0] and "ArgumentError" in wrong[1] and "inf" in wrong[2][1]


def test_out():
    def room(*shapes):
        return [np.full(s, 9, "f") for s in shapes]

    def over(f):
        a = np.zeros((5, 3), "f")
        a[:4] = X
        return f(a[:4], Y, out=[a[1:], np.empty((), "f")])

    fixed = np.empty((4, 3), "f")
    fixed.flags.writeable = False
    fine, shape, short, single, number, overlap, read_only = each(
        two,
        lambda f: f(X, Y, out=room((4, 3), ())),
        lambda f: f(X, Y, out=room((3, 4), ())),
        lambda f: f(X, Y, out=room((4, 3))),
        lambda f: f(X, Y, out=room((4, 3))[0]),
        lambda f: f(X, Y, out=5),
        over,
        lambda f: f(X, Y, out=[fixed, np.empty((), "f")]),
    )
    assert fine == overlap and "float32[3, 4] where the result is float32[4, 3]" in shape and "read-only" in read_only
    assert all(f"one for each result, and got {what}" in g for what, g in (("1 arrays", short), ("ndarray", single), ("int", number)))


def test_whole_numbers_at_their_ends():
    i = ng.placeholder([N], dtype="int32").named("i")
    results = [
        i + 1,
        i * i,
        ng.floordivide(i, 0),
        ng.mod(i, 0),
        ng.floordivide(i, -1),
        ng.mod(i, -1),
        abs(i),
        i / 0,
        ng.sum(i, out_axes=()),
    ]
    values = ([2**31 - 1, -(2**31), 0, 5], [1, 2, 3, 2**40], [1.5, 2, 3, 4], [True, False, True, True])
    got = each(lambda t: t.computation(results, i), *[lambda f, v=v: f(np.array(v)) for v in values])
    assert "from 1 to 1099511627776" in got[1] and "and got float64" in got[2]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "uint32", "int64", "uint64"])
def test_whole_numbers_wrap(dtype):
    p, q, i = ng.placeholder([N], dtype=dtype), ng.placeholder([N], dtype=dtype), np.iinfo(dtype)
    results = [p + q, p - q, p * q, ng.floordivide(p, q), ng.mod(p, q), ng.power(p, q), ng.prod(p, out_axes=()), ng.cast(p, "float16")]
    one, other = np.array([i.min, i.max, 0, 1], dtype), np.array([i.max, i.min, 3, 0], dtype)
    each(lambda t: t.computation(results, p, q), lambda f: f(one, other), lambda f: f(other, one))


def test_special_floats():
    p, q = ng.placeholder([N]), ng.placeholder([N])
    extremes = [r + 0.0 for r in (ng.maximum(p, q), ng.minimum(q, p), ng.relu(p))]  # of 0 and -0 either is the greater one
    results = [p / q, p * q, p - p, *extremes, ng.less(p, q), ng.equal(p, p), ng.sign(p), ng.mod(p, q)]
    results += [ng.sqrt(p), ng.argmax(p, out_axes=()), ng.sort(p, N), ng.max(p, out_axes=()), ng.where(ng.less(p, q), p, q), ng.power(p, q)]
    results += [ng.cast(p, d) for d in ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "bool")]
    one, other = np.array([np.nan, np.inf, -np.inf, -0.0], "f"), np.array([0, 0, 1, np.inf], "f")
    big = np.array([1e10, -1e10, 300.7, -0.9], "f")
    each(lambda t: t.computation(results, p, q), lambda f: f(one, other), lambda f: f(other, one), lambda f: f(big, one))


def test_nothing_and_what_comes_after():
    z = ng.placeholder([B, C]).named("z")
    rows = [ng.max(z, out_axes=[C]), ng.mean(z, out_axes=[C]), ng.softmax(z, normalization_axes=[C]), ng.sort(z, B)]
    results = [z * 2, ng.sum(z, out_axes=()), ng.prod(z, out_axes=()), ng.concat_along_axis([z, z], B), *rows]
    shapes = ((0, 3), (1, 3), (2, 3), (0, 4), (3,), (2, 3, 1))
    got = each(lambda t: t.computation(results, z), *[lambda f, s=s: f(np.zeros(s)) for s in shapes])
    assert all("ArgumentError" in g for g in got[3:])


def test_results_are_the_caller_s():
    def make(t):
        w, x = ng.variable([C], initial_value=[1, 2, 3]).named("w"), ng.placeholder([N, C])
        f = t.computation([w, w + 1, x, x + 0, ng.assign(w, w * 2)], x)

        def run(_):
            a = X.copy()
            first = f(a)
            for r in first[:4]:
                r[...] = 99
            return a, f(a), t.get(w)

        return run

    each(make, lambda f: f(None))


def test_state_that_does_not_fit_changes_nothing():
    def make(t):
        w = ng.variable([C], initial_value=[1, 2, 3]).named("w")
        double = t.computation(ng.assign(w, w * 2))

        def run(_):
            double()
            wrong = ([1, 2], [[1, 2, 3]], "abc", None)
            return [attempted(lambda _, v=v: t.set(w, v), None) for v in wrong] + [t.get(w), double(), t.get(w)]

        return run

    assert "[ 4.  8. 12.]" in str(each(make, lambda f: f(None)))


def test_closed():
    def make(t):
        f = two(t)
        f(X, Y)
        t.close()
        return f

    assert "StateError" in each(make, lambda f: f(X, Y))[0]
