"""NGRAPH_TUNE: schedules are really built and timed, the winner is used and remembered, and no bit depends on it."""

import ctypes
import re

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.codegen.kernel import lower
from ngraph.config import config
from ngraph.plan.kernels import Kernel
from ngraph.runtime import cache as caches
from ngraph.runtime import tune
from ngraph.runtime.host import jit
from ngraph.runtime.host.pool import aligned
from ngraph.schedule.cpu import schedule_kernel
from ngraph.schedule.search import alternatives
from ngraph.targets import host


def layer():
    """softmax(x w + b) at lengths that no vector divides."""
    n, h, c = ng.make_axis(37, name="N"), ng.make_axis(65, name="H"), ng.make_axis(50, name="C")
    x, w, b = ng.placeholder([n, h]), ng.placeholder([h, c]), ng.placeholder([c])
    return ng.softmax(ng.dot(x, w) + b, normalization_axes=c), [x, w, b]


def rows():
    """A sum along the axis that lies together, and one across it."""
    n, c = ng.make_axis(45, name="N"), ng.make_axis(333, name="C")
    x = ng.placeholder([n, c])
    return [ng.sum(ng.exp(x), reduction_axes=[c]), ng.sum(ng.square(x), reduction_axes=[n])], [x]


def windows():
    n, c, h, k, r = (ng.make_axis(m, name=a) for a, m in (("N", 2), ("C", 5), ("H", 23), ("K", 9), ("R", 3)))
    x, f = ng.placeholder([n, c, h]), ng.placeholder([k, c, r])
    return ng.relu(ng.conv(x, f, {h: r}, padding=1)), [x, f]


def made(model):
    results, holes = model()
    return ngt.make_transformer_factory("cpu")().computation(results, *holes)


def values(holes):
    draw = np.random.default_rng(5)
    return [draw.standard_normal([a.length for a in x.axes], dtype=np.float32) for x in holes]


def bits(f, holes):
    got = f(*values(holes))
    return b"".join(a.tobytes() for a in (got if isinstance(got, tuple) else [got]))


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with config(cache=str(tmp_path)):
        yield tmp_path


@pytest.mark.parametrize("model", [layer, rows, windows])
def test_every_alternative_is_built_and_gives_equal_bits(model):
    plan = made(model).native.chosen.plan
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    different = 0
    for kernel in [k for k in plan.every if type(k) is Kernel]:
        scheduled = schedule_kernel(plan, kernel, host())
        codes = [lower(plan, scheduled)]
        for view in scheduled.searched:
            first, *others = alternatives(view, host(), 8)
            assert first not in others and len({first, *others}) == 1 + len(others)
            codes += [lower(plan, schedule_kernel(plan, kernel, host(), {view: other})) for other in others]
        different += len({c.text for c in codes}) - 1
        results = set()
        for code in {c.text: c for c in codes}.values():
            draw, memory = np.random.default_rng(3), [aligned(b.bytes) for b in code.buffers]
            for array, _ in memory:
                array[: len(array) // 4 * 4].view(np.float32)[...] = draw.standard_normal(len(array) // 4, dtype=np.float32)
            args, (_, scratch) = np.array([at for _, at in memory], np.int64), aligned(max(code.scratch, 64))
            loaded = jit.load(code.text)
            call(loaded.address("kernel"))(args.ctypes.data, 0, code.work_items, scratch)
            results.add(b"".join(array.tobytes() for array, _ in memory))
        assert len(results) == 1
    assert different >= 3


@pytest.mark.parametrize("model", [layer, rows, windows])
def test_a_tuned_program_gives_the_same_bits_on_any_number_of_threads(model):
    plain, holes = made(model), model()[1]
    expected = bits(plain, holes)
    for threads in (1, 2, 3):
        with config(tune=True, num_threads=threads):
            assert bits(made(model), holes) == expected


def test_the_fastest_is_used_and_remembered(monkeypatch, folder):
    plain, holes = made(layer), layer()[1]
    expected = bits(plain, holes)
    tried = []

    def times(codes, objects):
        assert len(codes) == len(objects) > 1
        tried.append([c.text for c in codes])
        return [1.0, *[0.9] * (len(codes) - 2), 0.5]  # the last one is said to be the best

    monkeypatch.setattr(tune, "_times", times)
    with config(tune=True):
        tuned = made(layer)
        assert bits(tuned, holes) == expected
    (texts,) = tried
    written = re.sub(r"^;.*\n", "", tuned.llvm)
    assert written != re.sub(r"^;.*\n", "", plain.llvm) and plain.llvm.endswith(texts[0])
    assert len(list((folder / "tunings").iterdir())) == 1

    monkeypatch.setattr(tune, "_times", None)  # nobody measures again
    caches._caches.pop(str(folder))  # as another process would
    for entry in (folder / "plans").iterdir():
        entry.unlink()
    with config(tune=True):
        again = made(layer)
        assert bits(again, holes) == expected and again.llvm == tuned.llvm
    assert made(layer).llvm == plain.llvm  # who does not ask for it gets what there was


def test_lengths_that_are_open_are_left_alone():
    n, h = ng.make_axis(name="N"), ng.make_axis(20, name="H")
    x = ng.placeholder([n, h])
    with config(tune=True):
        f = ngt.make_transformer_factory("cpu")().computation(ng.sum(x, reduction_axes=[h]), x)
        for length in (3, 5, 7):
            a = np.arange(length * 20, dtype=np.float32).reshape(length, 20)
            np.testing.assert_array_equal(f(a), a.sum(1))
