"""The least value of expressions over open lengths, against all values for some lengths."""

import itertools
import math
import random

import pytest

from ngraph.op_graph.expr import Idx, Len, evaluate, maximum, minimum
from ngraph.tensors.index import least, simplest

L = Len("L")
AXES = {"L": L, "O": (L - 1) // 2 + 1, "P": (L - 1) // 2 // 2 + 1, "U": ((L - 1) // 8 + 1) * 4, "K": 3, "M": maximum(L - 2, 0)}


def formula(axis):
    return AXES[axis]


def values(e, length):
    """All values of an expression for a length of L; none where an axis that it moves along has no place."""

    def leaf(x):
        return length if x.of == "L" else evaluate(AXES[x.of], leaf)

    sizes = [evaluate(AXES[a], leaf) for a in AXES]
    for at in itertools.product(*[range(n) if Idx(a) in moving(e) else (0,) for a, n in zip(AXES, sizes, strict=True)]):
        index = dict(zip(AXES, at, strict=True))
        yield evaluate(e, lambda x, index=index: index[x.of] if type(x) is Idx else leaf(x))


def moving(e):
    if isinstance(e, int):
        return set()
    return moving(e.a) | moving(e.b) if hasattr(e, "a") else {e}


def drawn(rng, depth=3):
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([Idx(rng.choice("LOPUKM")), Len(rng.choice("LOPUM")), rng.randrange(-4, 5)])
    a, b = drawn(rng, depth - 1), drawn(rng, depth - 1)
    how = rng.choice("++--*/%<>")
    by = rng.randrange(1, 5)
    made = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * by, "/": lambda: a // by, "%": lambda: a % by}
    return made[how]() if how in made else minimum(a, b) if how == "<" else maximum(a, b)


def test_never_above_any_value():
    rng = random.Random(1)
    found = 0
    for _ in range(1500):
        e = drawn(rng)
        low = least(e, formula)
        for length in (0, 1, 2, 3, 7, 8, 9):
            if len(moving(e)) < 4 or length < 8:
                assert low <= min(values(e, length), default=math.inf), e
        found += low > -math.inf
    assert found > 400


@pytest.mark.parametrize(
    ("e", "low"),
    [
        (Len("O") - 1 - Idx("O"), 0),
        (L - 1 - Idx("O") * 2, 0),
        (L - 1 - (Idx("O") * 2 + Idx("K") - 1), -1),
        (Len("O") - 1 - (Idx("P") * 2 + Idx("K") - 1), -1),
        (Len("U") - 1 - (Idx("U") + Idx("K") - 1), -1),
        (Len("P") * 4 - L, 0),
        (L - Len("P"), 0),
        (Len("U") - L // 2, 0),
        (L // 2 - Len("U"), -4),
        (Len("P") - Len("U"), -math.inf),
    ],
)
def test_windows(e, low):
    assert least(e, formula) == low


def test_divisions_of_divisions_are_one():
    assert least((L // 2 // 3) - (L // 6), formula) == 0
    assert least((L // 6) - (L // 2 // 3), formula) == 0
    assert least(((L - 1) // 4 - 1) // 2 + 1 - (L + 3) // 8, formula) == 0


def test_simplest_has_the_value_of_the_expression():
    rng, others = random.Random(2), 0
    for _ in range(600):
        e = drawn(rng)
        made = simplest(e, formula)
        others += made != e
        for length in (0, 1, 2, 3, 7, 8):
            if len(moving(e)) < 4:
                assert not any(values(e - made, length)), e
    assert others > 200


@pytest.mark.parametrize(
    ("e", "made"),
    [
        (((L - 1) * 2 + 2) // 2, L),
        (((L - 1) * 2 + 1 + 1 - 1) // 2, L - 1),
        ((L * 4 + 2) // 2, L * 2 + 1),
        ((L * 3 + 1) // 2, (L * 3 + 1) // 2),
        (Len("O") * 2 // 2 - Len("O"), 0),
    ],
)
def test_simplest(e, made):
    assert simplest(e, formula) == made
