"""Every function of tests/ops/functions_*.py: values, slopes, gradients of PyTorch's, axes of length 0 and 1, ONNX Runtime."""

import doctest
import importlib
import warnings

import exported
import functions_along_axes  # noqa: F401  fills the table
import functions_elementwise  # noqa: F401
import functions_of_signals  # noqa: F401
import numpy as np
import pytest
import torch
from function_table import ROWS, given, several, wide

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.op_graph.dtypes import as_dtype

every = pytest.mark.parametrize("r", ROWS, ids=lambda r: r.name)
TRANSFORMERS = [t for t in ("numpy", "direct", "cpu") if t in ngt.transformer_choices()]


def built(r, dtype, length=None, special=False):
    """Placeholders, their arrays, and what the function makes of them; slopes are taken along which."""
    inputs = [given(r, k, dtype, length, special) for k in range(len(r.inputs))]
    holes = [ng.placeholder(i.axes, dtype=as_dtype(i.array.dtype)) for i in inputs]
    return holes, [i.array for i in inputs], several(r.call(*holes)), [h for h, i in zip(holes, inputs, strict=True) if i.smooth]


def same(got, wanted, dtype, ulp, what):
    """Within ulps of the size of the largest finite element of an axis-free scale; NaN, infinities, shapes and kinds alike."""
    got = np.asarray(got)
    wanted = np.asarray(wanted)
    assert got.shape == wanted.shape, f"{what}: shape {got.shape}, wanted {wanted.shape}"
    d = as_dtype(got.dtype)
    if not d.is_float:
        np.testing.assert_array_equal(got, wanted, err_msg=what)
        return
    eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}[d.name]
    g = got.astype(np.float64)
    with np.errstate(all="ignore"):
        w = wanted.astype(np.float64)
        w = w.astype(d.np).astype(np.float64) if d.bits < 64 else w  # what is too large is infinite
        near = np.abs(g - w) <= ulp * eps * np.maximum(np.abs(w), 1)
    bad = ~(near | (g == w) | (np.isnan(g) & np.isnan(w)))
    assert not bad.any(), f"{what}: {int(bad.sum())} of {bad.size}: got {g[bad][:5]}, wanted {w[bad][:5]}"


def check(r, transformer, cases):
    """Cases (dtype, length, special) of a row, in one computation."""
    made = [(case, *built(r, *case)) for case in cases]
    holes = [h for m in made for h in m[1]]
    arrays = [a for m in made for a in m[2]]
    with ngt.make_transformer_factory(transformer)() as t:
        results = iter(t.computation([o for m in made for o in m[3]], *holes)(*arrays))
    for case, _, own, ops, _ in made:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            wanted = several(r.reference(*map(wide, own)))
        assert len(wanted) == len(ops)
        for o, w in zip(ops, wanted, strict=True):
            same(next(results), w, case[0], r.ulp, f"{r.name} {case} {o.axes}")


@pytest.mark.parametrize("transformer", TRANSFORMERS)
@every
def test_values(r, transformer):
    """In every dtype, along axes of length 1 and 0, and of special values."""
    first = r.dtypes[-1] if "float32" not in r.dtypes else "float32"
    cases = [(d, None, False) for d in r.dtypes] + [(first, n, False) for n in r.lengths]
    cases += [(d, None, True) for d in r.dtypes if r.edges and d in ("float32", "float64")]
    check(r, transformer, cases)


def weighted(results):
    """A weighted sum of all results, and the weights."""
    rng = np.random.default_rng(5)
    weights = [rng.uniform(0.5, 1.5, o.axes.lengths) for o in results]
    total = sum(ng.sum(o * ng.constant(w, o.axes), out_axes=()) for o, w in zip(results, weights, strict=True))
    return total, weights


@pytest.mark.parametrize("r", [r for r in ROWS if r.slope], ids=lambda r: r.name)
def test_gradient(r):
    """By finite differences of the reference, and equal to PyTorch's."""
    holes, arrays, results, smooth = built(r, "float64")
    total, weights = weighted(results)
    with ngt.make_transformer_factory("numpy")() as t:
        got = [np.asarray(g) for g in t.computation([ng.deriv(total, h) for h in smooth], *holes)(*arrays)]

    def loss(values):
        with np.errstate(all="ignore"):
            return sum(np.sum(np.asarray(y) * w) for y, w in zip(several(r.reference(*values)), weights, strict=True))

    rng, step = np.random.default_rng(6), 1e-6
    for g, h in zip(got, smooth, strict=True):
        k = holes.index(h)
        direction = rng.uniform(-1, 1, arrays[k].shape)
        moved = [loss([a + s * step * direction if j == k else a for j, a in enumerate(arrays)]) for s in (1, -1)]
        slope = (moved[0] - moved[1]) / (2 * step)
        assert abs(np.sum(g * direction) - slope) <= 1e-5 * max(1.0, abs(slope), np.abs(g * direction).sum()), (r.name, k)
    if r.torch is not None:
        tensors = [torch.tensor(a, requires_grad=h in smooth) for a, h in zip(arrays, holes, strict=True)]
        sum((y * torch.tensor(w)).sum() for y, w in zip(several(r.torch(*tensors)), weights, strict=True)).backward()
        for g, h in zip(got, smooth, strict=True):
            np.testing.assert_allclose(g, tensors[holes.index(h)].grad.numpy(), rtol=1e-8, atol=1e-10, err_msg=r.name)


@pytest.mark.parametrize("r", [r for r in ROWS if r.onnx], ids=lambda r: r.name)
def test_export(r):
    """ONNX Runtime gives what the reference gives."""
    dtype = "float32" if "float32" in r.dtypes else r.dtypes[0]
    holes, arrays, results, _ = built(r, dtype)
    names = [f"x{k}" for k in range(len(holes))]
    made = exported.exported({f"y{k}": o for k, o in enumerate(results)}, inputs=dict(zip(names, holes, strict=True)))
    got, _ = exported.run(made, dict(zip(names, arrays, strict=True)))
    with np.errstate(all="ignore"):
        wanted = several(r.reference(*map(wide, arrays)))
    for g, w in zip(got, wanted, strict=True):
        same(g, w, dtype, 4 * r.ulp + 16, f"{r.name}, exported")


MODULES = "activations creation distributions fourier functions moving normalisation resampling sorting statistics".split()


@pytest.mark.parametrize("module", MODULES)
def test_examples(module):
    """The examples of the docstrings run and print what they say."""
    failed, tried = doctest.testmod(importlib.import_module(f"ngraph.ops.{module}"), extraglobs={"ng": ng})
    assert not failed and tried
