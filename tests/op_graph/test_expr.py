"""Integer expressions: what is simplified means the same, for numbers and arrays, and reads back as Python."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ngraph.errors import GraphError
from ngraph.op_graph.expr import (
    APPLY,
    DEEPEST,
    Bin,
    Idx,
    Len,
    Run,
    combine,
    divisor,
    evaluate,
    leaves,
    maximum,
    minimum,
    normal,
    settled,
    substitute,
    text,
)

LEAVES = [Len("N"), Idx("N"), Idx("H"), Run("n")]
VALUES = st.tuples(*[st.integers(0, 7)] * 3, st.integers(-7, 7))  # lengths and indices are not negative; what a buffer holds may be
PYTHON = {**APPLY, "min": min, "max": max}
NUMPY = {"+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.remainder, "min": np.minimum, "max": np.maximum}

# a tree that nothing has simplified: a number, the index of a leaf, or (operator, tree, tree)
trees = st.recursive(
    st.one_of(st.integers(-3, 3), st.sampled_from(LEAVES)),
    lambda inner: st.tuples(st.sampled_from(list(APPLY)), inner, inner),
    max_leaves=12,
)


def built(tree):
    return combine(tree[0], built(tree[1]), built(tree[2])) if isinstance(tree, tuple) else tree


def value(tree, values, table):
    """What the tree is, by a table of operators; shares nothing with the code under test."""
    if isinstance(tree, tuple):
        return table[tree[0]](value(tree[1], values, table), value(tree[2], values, table))
    return tree if isinstance(tree, int) else values[LEAVES.index(tree)]


def both(tree, values):
    """What the tree is for whole numbers, and its expression; where either divides by zero, hypothesis draws another."""
    try:
        return value(tree, values, PYTHON), built(tree)
    except ZeroDivisionError:
        assume(False)


@settings(max_examples=300, deadline=None)
@given(trees, VALUES)
def test_simplified_is_equal_for_numbers(tree, values):
    wanted, e = both(tree, values)
    of = dict(zip(LEAVES, values, strict=True))
    assert evaluate(e, of.__getitem__) == wanted
    assert evaluate(substitute(e, of.__getitem__), of.__getitem__) == wanted
    assert isinstance(substitute(e, of.__getitem__), int)


@settings(max_examples=300, deadline=None)
@given(trees, VALUES)
def test_a_divisor_divides_whatever_the_leaves_are(tree, values):
    wanted, e = both(tree, values)
    d = divisor(e)
    assert wanted == 0 if d == 0 else wanted % d == 0


def test_common_terms_of_a_difference_cancel():
    n, h = Len("N"), Idx("H")
    assert (n + 2) - n == 2 and (n + h + 3) - (n + 1) == h + 2
    assert minimum(n + 4, 4) == minimum(4, n + 4) == 4 and maximum(n + 4, n) == n + 4 and maximum((n + 2) - n, 0) == 2
    assert (
        text(n - h) == "Len(N) - Idx(H)"
        and text(minimum(n, 4)) == "min(Len(N), 4)"
        and text(maximum(Run("n") + 4, 4)) == "max(Run(n) + 4, 4)"
    )


def test_counts_of_windows_are_divisions():
    n = Len("N")
    assert maximum((n - 2) // 2 + 1, 0) == n // 2 and maximum((n - 1) // 2 + 1, 0) == (n + 1) // 2
    assert n + n == n * 2 and (n + n + 1) // 2 == n and maximum((n - 7) // 2 + 1, 0) != (n - 5) // 2


def test_quotients_by_a_length_are_terms_of_sums():
    n, m = Len("N"), Len("M")
    assert settled(n // m + m - n // m) == m and normal(n // m + 1) == normal(1 + n // m)
    assert normal((n // m + 1) // 2) != normal(n // (m * 2)) != normal(n // m // 2)


def test_the_lengths_of_all_parts_make_the_whole_again():
    n, length = Len("N"), Len("N")
    for _ in range(20):  # halves, joined with two more elements
        length = settled(length // 2 + ((length + 1) // 2 + 2))
    assert length == n + 40
    assert settled(n // 3 + (n + 1) // 3 + (n + 2) // 3 - Len("M") * 2 + 1) == n + Len("M") * -2 + 1
    assert settled(n - Len("M")) == n - Len("M") and settled(n // 2 + n // 2) == n // 2 * 2


def test_divisors_are_seen_through_the_ends_of_blocks():
    n = Len("N")
    assert divisor(minimum(480 - n * 64, 64)) == 32
    assert divisor(minimum(480 - n * 64, 64) // 32) == 1 and divisor(minimum(480 - n * 64, 96) // 16) == 2
    assert divisor(n) == divisor(n * 6 + 1) == divisor(n * 6 // 4) == 1 and divisor(n * 6 - 9) == 3 and divisor(0) == 0


@settings(max_examples=200, deadline=None)
@given(trees, st.integers(0, 2**32))
def test_simplified_is_equal_for_arrays_that_broadcast(tree, seed):
    chance = np.random.default_rng(seed)
    values = [int(chance.integers(8)), chance.integers(0, 8, (5, 1)), chance.integers(0, 8, (1, 4)), chance.integers(-7, 8, (5, 4))]
    with np.errstate(divide="raise"):
        try:
            wanted = value(tree, values, NUMPY)
            e = built(tree)
        except (FloatingPointError, ZeroDivisionError):
            assume(False)
        of = dict(zip(LEAVES, values, strict=True))
        got = evaluate(e, of.__getitem__)
    assert np.array_equal(np.broadcast_to(got, (5, 4)), np.broadcast_to(wanted, (5, 4)))


@settings(max_examples=300, deadline=None)
@given(trees)
def test_text_means_the_expression(tree):
    try:
        e = built(tree)
    except ZeroDivisionError:
        assume(False)
    scope = {"Len": Len, "Idx": Idx, "Run": Run, "min": minimum, "max": maximum, "N": "N", "H": "H", "n": "n"}
    again = eval(text(e), {"__builtins__": {}}, scope)
    assert again == e and hash(again) == hash(e)


def _some_tree(rng, depth):
    """Returns a random expression of two lengths and a computed number, as lengths of slices, pools and joins are."""
    if depth == 0:
        return [Len("A"), Len("B"), Run("n"), int(rng.integers(-3, 5))][rng.choice(4, p=[0.5, 0.2, 0.1, 0.2])]
    op = ["+", "-", "*", "//", "//", "%", "min", "max"][rng.integers(8)]
    small = op in ("*", "//", "%")
    right = int(rng.choice([2, 3, 4])) if small else int(rng.integers(-3, 5)) if rng.random() < 0.6 else _some_tree(rng, depth - 1)
    return combine(op, _some_tree(rng, depth - 1), right)


def test_expressions_of_one_normal_form_are_equal_for_all_small_lengths():
    rng = np.random.default_rng(0)
    grid = dict(zip([Len("A"), Len("B"), Run("n")], np.meshgrid(range(14), range(5), range(-2, 4)), strict=True))
    values, shared = {}, 0
    for k in range(6000):
        e = _some_tree(rng, 1 + k % 4)
        found = np.broadcast_to(evaluate(e, grid.__getitem__), grid[Len("A")].shape).tobytes()
        first = values.setdefault(normal(e), found)
        shared += first is not found
        assert first == found, text(e)
        assert np.broadcast_to(evaluate(settled(e), grid.__getitem__), grid[Len("A")].shape).tobytes() == found, text(e)
    assert shared > 2000


N = Len("N")
ONE_LENGTH = {
    "cut, then every second": ((maximum(N - 2, 0) + 1) // 2, maximum((N - 2 + 1) // 2, 0)),
    "the first, then every third": ((minimum(N, 6) + 2) // 3, minimum((N + 2) // 3, 2)),
    "every second, twice": (((N + 1) // 2 + 1) // 2, (N + 3) // 4),
    "halves of halves": (N // 2 // 2, N // 4),
    "even and odd": ((N + 1) // 2 + N // 2, N),
    "thirds": ((N + 2) // 3 + (N + 1) // 3 + N // 3, N),
    "windows": (N // 2 + 1, (N + 2) // 2),
    "repeated twice": (N * 2 * 2, N * 4),
    "joined and repeated": ((N + 1) * 2 - 2, N + N),
    "three pieces": (minimum(N, 1) + maximum(minimum(N, 4) - 1, 0) + maximum(N - 4, 0), N),
    "remainder and quotient": (N % 3 + N // 3 * 3, N),
}


@pytest.mark.parametrize("case", ONE_LENGTH)
def test_lengths_that_are_one_have_one_normal_form(case):
    a, b = ONE_LENGTH[case]
    assert normal(a) == normal(b)
    assert settled(a) == N or b != N


@settings(max_examples=200, deadline=None)
@given(trees)
def test_leaves_stand_in_order_and_nothing_is_lost_by_substituting_themselves(tree):
    try:
        e = built(tree)
    except ZeroDivisionError:
        assume(False)
    assert substitute(e, lambda leaf: leaf) == e
    shown = text(e, lambda leaf: f"<{LEAVES.index(leaf)}>")
    assert [f"<{LEAVES.index(leaf)}>" for leaf in leaves(e)] == [shown[i : i + 3] for i in range(len(shown)) if shown[i] == "<"]


N, H = LEAVES[0], LEAVES[2]


@pytest.mark.parametrize(
    ("simplified", "plain"),
    [
        (N + 0, N),
        (0 + N, N),
        (N - 0, N),
        (N - N, 0),
        (N * 1, N),
        (1 * N, N),
        (N * 0, 0),
        (N // 1, N),
        (N % 1, 0),
        (N + 2 + 3, N + 5),
        (N + 2 - 2, N),
        (2 + N, N + 2),
        (minimum(N, N), N),
        (maximum(N + 1, N + 1), N + 1),
        (combine("//", -7, 2), -4),
        (combine("%", -7, 2), 1),
        (-N, N * -1),
        (minimum(N, 2) + maximum(N - 2, 0), N),  # both parts of an axis that was cut
        (maximum(N - H, 0) + minimum(H, N), N),
        (N - maximum(N - 1, 0), minimum(N, 1)),
        (maximum(N, 0), N),
        (maximum(maximum(N - 1, 0) - 2, 0), maximum(N - 3, 0)),
        ((N * 2 + 1) // 2, N),
        ((N * 3 + 7) // 3, N + 2),
    ],
)
def test_identities(simplified, plain):
    assert simplified == plain and type(simplified) is type(plain)


def test_equality_is_by_kind_and_name():
    assert Len("N") == Len("N") and Len("N") != Idx("N") and Len("N") != Len("M") and Len("N") != "N"
    assert len({Len("N"), Idx("N"), Run("N"), Len("N") + 1, 1 + Len("N"), Len("N") * 2}) == 5
    assert Bin("+", N, 1) == N + 1 and Bin("-", N, H) != Bin("-", H, N)


def test_division_by_zero_is_an_error_when_it_is_written():
    for op in ("//", "%"):
        with pytest.raises(ZeroDivisionError, match="expression divides by zero"):
            combine(op, 3, 0)


@pytest.mark.parametrize(
    ("e", "shown"),
    [
        (N + 1, "Len(N) + 1"),
        (N - 1, "Len(N) - 1"),
        ((N - 1) * 2, "(Len(N) - 1) * 2"),
        (N - (H - 1), "Len(N) - (Idx(H) - 1)"),
        (3 - N, "3 - Len(N)"),
        (N * -1, "Len(N) * (-1)"),
        (N // (H * 2), "Len(N) // (Idx(H) * 2)"),
        (N // H % 3, "Len(N) // Idx(H) % 3"),
        (minimum(Run("n") + 1, -3), "min(Run(n) + 1, -3)"),
    ],
)
def test_text_reads_as_python_writes_it(e, shown):
    assert text(e) == shown


def halved(times):
    e = Len("N")
    for _ in range(times):
        e = e // 2 + 1
    return e


def test_depth_has_a_limit_that_all_walks_bear():
    deep, same = halved(DEEPEST // 2), halved(DEEPEST // 2)
    assert deep.depth == DEEPEST and deep == same and hash(deep) == hash(same) and deep != halved(DEEPEST // 2 - 1)
    assert evaluate(deep, lambda leaf: 1000) == 2 and eval(text(deep, lambda leaf: "1000")) == 2
    assert (
        substitute(deep, lambda leaf: leaf) is deep and substitute(deep, lambda leaf: Len("N")) == deep and list(leaves(deep)) == [Len("N")]
    )
    with pytest.raises(GraphError, match="257 within each other"):
        halved(DEEPEST)
    with pytest.raises(GraphError, match="of 8191 operators, 13 within"):
        repeated = Len("N")
        for _ in range(DEEPEST):
            repeated = combine("//", repeated, repeated)
    assert combine("+", deep - 1, 0) == deep - 1  # what does not grow is no matter


def test_another_process_has_equal_expressions():
    """Strings hash otherwise there."""
    write = "import pickle, sys; from ngraph.op_graph.expr import Len; sys.stdout.buffer.write(pickle.dumps((Len('a') + 3) // 2))"
    made = [
        subprocess.run([sys.executable, "-c", write], capture_output=True, env={**os.environ, "PYTHONHASHSEED": k}).stdout for k in "12"
    ]
    assert len({pickle.loads(m) for m in made}) == 1 and pickle.loads(made[0]) == (Len("a") + 3) // 2
