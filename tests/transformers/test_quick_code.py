"""Code that LLVM improves less: what runs once and is short, and loops of open length."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.runtime.host import worker
from ngraph.transformers.cpu import writing


@pytest.fixture
def layer():
    """A layer whose weights are normalised, which happens once, over rows of open length."""
    random = np.random.default_rng(0)
    N, C, H = ng.make_axis(name="N"), ng.make_axis(37, name="C"), ng.make_axis(50, name="H")
    w = ng.variable([H, C], initial_value=random.standard_normal((50, 37)).astype(np.float32))
    x = ng.placeholder([N, C])
    y = ng.tanh(ng.dot(w / ng.sqrt(ng.sum(w * w, reduction_axes=C) + 1e-5), x))
    return x, y, random.standard_normal((9, 37)).astype(np.float32)


def made(layer):
    """The result of a new computation, and the texts of its kernels: those that run once, and the others."""
    x, y, given = layer
    run = ngt.make_transformer_factory("cpu")().computation(y, x)
    result = np.asarray(run(given))
    code = run.native.named().chosen
    once = {text for text, steps in writing.texts(code).items() if any(s.step in code.plan.once for s in steps)}
    return result, once, writing.texts(code).keys() - once


def test_what_runs_once_is_compiled_fast(layer, monkeypatch, tmp_path):
    result, once, others = made(layer)
    assert once and {worker.opt(t) for t in once} == {0} and {worker.opt(t) for t in others} == {3}
    assert not any("<16 x float>" in t or "<8 x float>" in t or "<4 x float>" in t for t in once)
    monkeypatch.setattr(writing, "MAX_QUICK_SECONDS", 0.0)
    with ng.config(cache=str(tmp_path)):
        improved, once, _ = made(layer)
    assert {worker.opt(t) for t in once} == {3}
    np.testing.assert_allclose(result, improved, rtol=2e-6, atol=1e-6)


def test_what_runs_once_is_right(layer):
    x, _, given = layer
    w = np.random.default_rng(0).standard_normal((50, 37)).astype(np.float32).astype(np.float64)
    wanted = np.tanh(w / np.sqrt((w * w).sum(1, keepdims=True) + 1e-5) @ given.T.astype(np.float64))
    np.testing.assert_allclose(made(layer)[0], wanted, rtol=1e-5, atol=2e-6)


def test_code_of_open_lengths_gives_the_same_bits_without_strength_reduction(layer, monkeypatch, tmp_path):
    result, _, others = made(layer)
    assert any(t.startswith(worker.OPEN) for t in others)
    monkeypatch.setattr(writing.worker, "OPEN", "; open, and improved\n")
    with ng.config(cache=str(tmp_path)):
        improved, _, others = made(layer)
    assert not any(t.startswith("; open\n") for t in others) and result.tobytes() == improved.tobytes()


def test_a_mark_changes_the_object():
    triple = "x86_64-unknown-linux-gnu"
    loop = "define i64 @f(ptr %p, i64 %n, i64 %s) {\nentry:\n  br label %b\nb:\n  %i = phi i64 [ 0, %entry ], [ %j, %b ]\n"
    loop += "  %k = mul i64 %i, %s\n  %a = getelementptr i64, ptr %p, i64 %k\n  store i64 %i, ptr %a\n  %j = add i64 %i, 1\n"
    loop += "  %c = icmp slt i64 %j, %n\n  br i1 %c, label %b, label %e\ne:\n  ret i64 %j\n}\n"
    plain, quick, open_, again = (
        worker.compile_object(triple, "x86-64-v3", "", mark + loop) for mark in ("", worker.QUICK, worker.OPEN, "")
    )
    assert plain == again and len({plain, quick, open_}) == 3
