"""Mistakes put in on purpose: each must make a generated check fail that passes without it."""

import cells
import numpy as np
import pytest
import test_every_op as generated
from cells import RECORDS

import ngraph as ng
import ngraph.transformers as ngt
from ngraph import numpy_functions, numpy_ops
from ngraph.autodiff import backward
from ngraph.op_graph import text
from ngraph.op_graph.op import ordered
from ngraph.ops import aligned
from ngraph.transformers import printed as printer


def fails(check, record, dtype, transformer):
    """Whether the check fails, on samples made anew. `numpy_ops` remembers functions, so it forgets them."""
    cells.case.cache_clear()
    numpy_ops.named_function.cache_clear()
    try:
        getattr(generated, check)(record, dtype, transformer)
    except Exception:
        return True
    finally:
        cells.case.cache_clear()
        numpy_ops.named_function.cache_clear()
    return False


# ---- the sign of every gradient -----------------------------------------------------------------------------------------

STEEP = list(dict.fromkeys(r for r, d, t in cells.cells("gradient") if RECORDS[r].grad is not None))


@pytest.mark.parametrize("name", STEEP)
def test_a_flipped_gradient_is_caught(name, monkeypatch):
    """The other sign of a record's gradient is seen, unless all its slopes are 0."""
    record = RECORDS[name]
    true = record.grad
    exact = cells.Case(record, "float64")
    flat = not np.abs(exact.slope).max() > 1e-7
    mutant = cells.Case(record, "float64")
    here = set(ordered(mutant.tensors))

    def flipped(op, dy, *inputs):
        given = true(op, dy, *inputs)
        each = given if isinstance(given, tuple) else (given,)
        return tuple(None if g is None else g * -1.0 for g in each) if op in here else given

    monkeypatch.setattr(record, "grad", flipped)
    got = cells.oracle(mutant.along, mutant.holes, mutant.values)[0]
    with pytest.raises(AssertionError) if not flat else monkeypatch.context():
        generated.close_slopes(got, exact.slope, "float64", mutant, 1)


def test_hardly_any_gradient_is_flat():
    flat = [r for r in STEEP if not np.abs(cells.case(r, "float64").slope).max() > 1e-7]
    assert len(flat) <= len(STEEP) / 20, flat


# ---- a dozen others -----------------------------------------------------------------------------------------------------


def record_field(name, field, value):
    return lambda m: m.setattr(RECORDS[name], field, value)


def in_numpy(name, wrong):
    """`wrong(right, *args)` in place of a function that `direct` calls."""
    right = getattr(numpy_functions, name)
    return lambda m: m.setattr(numpy_functions, name, lambda *args, **kwargs: wrong(right, *args, **kwargs))


def takes_any_buffer(self, k, call):
    target = call.targets[0]
    return next(
        (a for a in call.args if type(a) is numpy_ops.Variable and a in self.free and a.dtype is target.dtype and a.shape == target.shape),
        None,
    )


def forgets_duals(m):
    right = text.Decoder.axis
    m.setattr(text.Decoder, "axis", lambda self, payload: right(self, [payload[0], 0]))


def by_position(array, axes, to):
    """As if axes had no names: dims stay where they are."""
    return array.reshape((1,) * (len(to) - array.ndim) + array.shape)


def largest_contribution(contribution, to):
    extra = tuple(a for a in contribution.axes if a not in to.axes)
    return right_fit(backward.reduce.build(contribution, kind="max", axes=extra) if extra else contribution, to)


right_fit = backward.fit

PLANTED = {
    "a wrong derivative": (record_field("tanh", "grad", lambda op, dy, x: dy * (1.0 - op)), "test_gradient", "tanh", "oracle"),
    "operands exchanged": (
        record_field("divide", "grad", lambda op, dy, x, y: (-(dy * op / y), dy / y)),
        "test_gradient",
        "divide",
        "oracle",
    ),
    "a dropped mask": (record_field("where", "grad", lambda op, dy, c, x, y: (None, dy, dy)), "test_gradient", "where", "oracle"),
    "a right first derivative that has none": (
        record_field("exp", "grad", lambda op, dy, x: dy * ng.stop_gradient(op)),
        "test_gradient_twice",
        "exp",
        "oracle",
    ),
    "a broadcast not summed back": (lambda m: m.setattr(backward, "fit", largest_contribution), "test_gradient", "add", "oracle"),
    "a wrong lowering": (
        record_field("sigmoid", "lower", lambda op, x: 1.0 / (ng.exp(x) + 1.0)),
        "test_lowered_is_whole",
        "sigmoid",
        "oracle",
    ),
    "axes by position": (lambda m: m.setattr(aligned, "align", by_position), "test_orders", "add", "oracle"),
    "swapped axes": (
        lambda m: m.setattr(numpy_ops.Translator, "permuted", lambda self, ref, dims: numpy_ops.VariableRef(ref.var, dims)),
        "test_value",
        "broadcast",
        "direct",
    ),
    "a dual lost when saved": (forgets_duals, "test_saved", "add", "oracle"),
    "a wrong identity": (
        in_numpy(
            "cumulate", lambda f, function, x, dim, exclusive, reverse, start: f(function, x, dim, exclusive, reverse, x.dtype.type(0))
        ),
        "test_value",
        "cumulate",
        "direct",
    ),
    "a direction ignored": (in_numpy("scan", lambda f, *args: f(*args[:5], False, *args[6:])), "test_value", "scan", "direct"),
    "wrapping for saturation": (in_numpy("saturate", lambda f, x, dtype: x.astype(dtype)), "test_value", "cast", "direct"),
    "out of range clipped": (
        in_numpy("gather", lambda f, x, i, mode, *rest, **k: f(x, i, "clip", *rest, **k)),
        "test_value",
        "gather",
        "direct",
    ),
    "an unstable sort": (
        in_numpy("sorted_positions", lambda f, key, dim, *order: np.flip(f(np.flip(key, dim), dim, *order), dim)),
        "test_value",
        "sort",
        "direct",
    ),
    "the trip forgotten": (in_numpy("mix_trips", lambda f, *indices: 0), "test_value", "random_bits", "direct"),
    "a buffer still needed": (lambda m: m.setattr(printer.Life, "buffer", takes_any_buffer), "test_gradient", "tanh", "numpy"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_caught(name, monkeypatch):
    plant, check, record, transformer = PLANTED[name]
    dtype = "float64" if "float" in RECORDS[record].kinds else "uint64"
    assert not fails(check, record, dtype, transformer)
    with monkeypatch.context() as m:
        plant(m)
        assert fails(check, record, dtype, transformer)


def test_a_state_overwritten_too_early_is_caught(monkeypatch):
    """State is updated where it lies only once nobody reads the old value any more."""

    def tripled_before_doubled():
        w = ng.persistent_tensor([ng.make_axis(3, name="W")], initial_value=1.0)
        c = ngt.make_transformer_factory("numpy")().computation([ng.value_of(w) * 3.0, ng.assign(w, w * 2.0)])
        return [np.asarray(c()[0]).tolist() for _ in range(3)] == [[3.0] * 3, [6.0] * 3, [12.0] * 3]

    assert tripled_before_doubled()
    monkeypatch.setattr(printer.Life, "buffer", takes_any_buffer)
    assert not tripled_before_doubled()
