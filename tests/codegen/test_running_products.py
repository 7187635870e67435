"""Running products of several rows at a time, against NumPy's to the bit: for numbers of rows beside the kernel's, open and known."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt


def wanted(rows, exclusive, reverse):
    turned = rows[:, ::-1] if reverse else rows
    done = np.multiply.accumulate(turned, 1, dtype=rows.dtype) if rows.shape[1] else turned
    if exclusive:
        done = np.concatenate([np.ones((len(rows), 1), rows.dtype), done], 1)[:, : rows.shape[1]]
    return done[:, ::-1] if reverse else done


@pytest.mark.skipif("cpu" not in ngt.transformer_choices(), reason="needs generated code")
@pytest.mark.parametrize("exclusive,reverse", [(False, False), (True, False), (False, True), (True, True)])
def test_each_row_is_multiplied_in_order(exclusive, reverse):
    draw = np.random.default_rng(3)
    x = ng.placeholder("R=? P=?")
    with ng.config(num_threads=1), ngt.make_transformer_factory("cpu")() as t:
        of_any = t.computation(ng.cumprod(x, "P", exclusive, reverse), x)
        for count in (0, 1, 7, 8, 9, 17):
            for length in (0, 1, 5):
                rows = draw.uniform(-1.5, 1.5, (count, length)).astype("float32")
                np.testing.assert_array_equal(of_any(rows), wanted(rows, exclusive, reverse))
        for count in (1, 7, 9, 33):
            rows = draw.uniform(-1.5, 1.5, (count, 5))
            known = ng.placeholder(f"R={count} P=5", dtype="float64")
            got = t.computation(ng.cumprod(known * 1.0, "P", exclusive, reverse), known)(rows)  # in the memory of its input
            np.testing.assert_array_equal(got, wanted(rows, exclusive, reverse))
