"""Every op of the importer's table with inputs, dtypes, attributes and layouts drawn at random, beside TensorFlow's own kernels.

The cases follow from an op's name and a number. RANDOM_OPS=100 draws so many of each, 2 by default; FIRST is the first one's number;
TRANSFORMER=cpu compiles each, where the default interprets them, and compiles every eighth op's.
"""

import os
import zlib

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow has an environment of its own: make bridge-tests")

import random_ops

import ngraph.transformers as ngt

COUNT, FIRST = int(os.environ.get("RANDOM_OPS", 2)), int(os.environ.get("FIRST", 0))
OPS = list(random_ops.CASES)


@pytest.fixture(scope="module")
def transformers():
    with ngt.make_transformer_factory("direct")() as direct, ngt.make_transformer_factory("cpu")() as cpu:
        yield {"direct": direct, "cpu": cpu}


@pytest.mark.parametrize("op", OPS)
def test_results_are_tensorflows(op, transformers, bridge):
    bridge.disable()
    kind = os.environ.get("TRANSFORMER") or ("cpu" if zlib.crc32(op.encode()) % 8 == FIRST % 8 else "direct")
    ran, skipped = 0, []
    for seed in range(FIRST, FIRST + 8 * COUNT):  # what TensorFlow refuses is drawn again
        try:
            case = random_ops.Case(op, seed)
            found = random_ops.compare(case, transformers[kind])
        except random_ops.Skip as reason:
            skipped.append(str(reason))
            continue
        assert not found, f"{case}, {kind}: {found}"
        ran += 1
        if ran == COUNT:
            return
    assert ran, f"TensorFlow refused every case: {skipped}"


FOUND = [  # by longer runs than the default
    ("ResizeArea", 30, "direct"),  # a dim of length 1 with aligned corners
    ("InvertPermutation", 104, "direct"),  # int32 of a constant
    ("ResourceScatterSub", 1002, "cpu"),  # state beside six open lengths
    ("SoftmaxCrossEntropyWithLogits", 3001, "cpu"),  # one row of logits for several labels, of open lengths
    ("StridedSlice", 3004, "direct"),  # backwards from a place before the first one
    ("ScaleAndTranslate", 94, "direct"),  # elements that lie just where the kernel ends
]


@pytest.mark.parametrize(("op", "seed", "kind"), FOUND)
def test_what_was_found_stays_right(op, seed, kind, transformers, bridge):
    bridge.disable()
    assert not random_ops.compare(random_ops.Case(op, seed), transformers[kind])


def test_every_op_is_drawn_or_has_a_reason():
    table, drawn, left = set(random_ops.GROUPS), set(random_ops.CASES), set(random_ops.LEFT_OUT)
    assert table == drawn | left and not drawn & left, sorted(table ^ (drawn | left)) + sorted(drawn & left)
