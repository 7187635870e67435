"""Where time goes, by kernel: as a table, a trace, a page."""

import json
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import UnsupportedError
from ngraph.runtime.profile import KernelProfile


@pytest.fixture(scope="module")
def profiled():
    """A product, a softmax of it and a loop, profiled over five calls."""
    n, k, m, t = (ng.make_axis(length, name=name) for name, length in (("N", 60), ("K", 50), ("M", 70), ("T", 9)))
    x, w, steps = ng.placeholder([n, k]), ng.placeholder([k, m]), ng.placeholder([t])
    soft = ng.softmax(ng.dot(x, w), [m])
    last, _ = ng.scan(lambda state, s: (ng.tanh(state) + s, s), soft, steps, t)
    with ngt.make_transformer_factory("cpu")() as transformer:
        f = transformer.computation([soft, last], x, w, steps, name="net")
        arguments = [np.ones([len(a) for a in p.axes], "f") for p in (x, w, steps)]
        before = [a.tobytes() for a in f(*arguments)]
        profile = f.profile(*arguments, calls=5)
        assert [a.tobytes() for a in f(*arguments)] == before
        again = f.profile(*arguments, calls=2)
        yield profile, again


def test_every_kernel_has_its_ops_lines_and_times(profiled):
    profile, again = profiled
    assert profile.calls == 5 and again.calls == 2 and len(profile.rows) == len(again.rows)
    assert all(r.seconds >= 0 and r.limit > 0 and r.bytes > 0 and 0 <= r.share <= 1 for r in profile.rows)
    assert all(any("test_cpu_profile.py" in line for line in r.lines) for r in profile.rows)
    assert 0 < sum(r.seconds for r in profile.rows) <= profile.seconds
    assert {r.calls for r in profile.rows} >= {1, 9}  # those of the loop run nine times
    product = max(profile.rows, key=lambda r: r.flops)
    assert product.flops >= 2 * 60 * 50 * 70 and "contract" in product.ops


def test_products_of_bfloat16_count_whatever_takes_them():
    """By pairs, where the machine has an instruction for that, each of them is two."""
    m, k, n = (ng.make_axis(64, name=a) for a in "MKN")
    x, y = ng.placeholder([m, k], dtype="bfloat16"), ng.placeholder([k, n], dtype="bfloat16")
    with ngt.allocate_transformer("cpu") as t:
        profile = t.computation(ng.dot(x, y), x, y).profile(*[np.ones((64, 64), ml_dtypes.bfloat16)] * 2, calls=2)
    product = max(profile.rows, key=lambda r: r.flops)
    assert 2 * 64**3 <= product.flops <= 2.1 * 64**3 and 0 < product.limit <= product.flops


def test_as_a_table(profiled):
    profile, _ = profiled
    lines = str(profile).splitlines()
    assert lines[0].startswith("net: ") and f"in {len(profile.rows)} kernels" in lines[0] and "Limits of this machine" in lines[0]
    assert "of limit" in lines[1] and len(lines) == len(profile.rows) + 2
    product = next(line for line in lines if " contract" in line)
    assert "float32[N=60, M=70]" in product or "float32[M=70, N=60]" in product
    assert "test_cpu_profile.py:" in product
    many = replace(profile, rows=profile.rows * 40)
    assert str(many).splitlines()[-1].startswith(f"and {len(many.rows) - 40} more kernels, ") and len(str(many).splitlines()) == 43


def test_lines_name_their_file_once():
    row = KernelProfile("add", ("model.py:3", "model.py:7", "layers.py:12"), 1, 1e-3, 1.0, 1.0, 1e-3, 1e-3)
    assert row.places == "model.py:3, 7; layers.py:12"


def test_as_a_trace(profiled, tmp_path):
    profile, _ = profiled
    profile.save(str(tmp_path / "p.json"))
    events = json.loads((tmp_path / "p.json").read_text())["traceEvents"]
    timed = [e for e in events if e["ph"] == "X"]
    assert events[0]["args"]["name"] == "net" and len(timed) == len(profile.rows)
    assert all(e["dur"] > 0 and e["ts"] >= 0 and e["args"]["lines"] for e in timed)
    starts = [e["ts"] for e in timed]
    assert starts == sorted(starts)


def test_as_a_page(profiled, tmp_path):
    profile, _ = profiled
    profile.save(str(tmp_path / "p.html"))
    page = (tmp_path / "p.html").read_text()
    assert page.count("<tr><td>") == page.count("<rect ") == len(profile.rows) and "http" not in page
    assert not any(word in page for word in ("TITLE", "SAID", "STRIP", "ROWS"))
    times = [r.seconds for r in profile.ranked]
    assert times == sorted(times, reverse=True) and page.index(f"<td>{profile.rows.index(profile.ranked[0])}<td>") == page.index("<td>")
    profile.save(str(tmp_path / "p.txt"))
    assert (tmp_path / "p.txt").read_text() == f"{profile}\n"


def test_only_machine_code_has_one():
    x = ng.placeholder([ng.make_axis(3, name="A")])
    with ngt.make_transformer_factory("numpy")() as transformer, pytest.raises(UnsupportedError, match="not compiled to machine code"):
        transformer.computation(x + 1, x).profile(np.ones(3, "f"))


def test_predicted_seconds_are_those_of_the_lengths_of_the_calls():
    x = ng.placeholder("N=? D=64")
    with ngt.make_transformer_factory("cpu")() as cpu:
        call = cpu.computation(ng.tanh(x), x)
        few, many = [call.profile(np.ones((n, 64), "f"), calls=1).rows[0].predicted for n in (32, 3200)]
    assert many == pytest.approx(100 * few)
