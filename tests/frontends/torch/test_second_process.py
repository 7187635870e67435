"""What AOTAutograd keeps of our graphs: the next process traces and translates none."""

import io
import os
import pathlib
import subprocess
import sys

import pytest
import torch

from ngraph.frontends.torch import backend, report, reset, segments

SCRIPT = """
import sys
import torch
from ngraph.frontends.torch import backend, report, segments

made, old = [], segments.Segments.__init__
segments.Segments.__init__ = lambda self, *a, **k: made.append(1) or old(self, *a, **k)
torch.manual_seed(0)
layers = [torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Dropout(0.5), torch.nn.LSTM(8, 5, batch_first=True)]
model = torch.nn.Sequential(*layers)
x = torch.linspace(-1, 1, 54).reshape(3, 3, 6)
compiled = torch.compile(model, backend=backend)
compiled(x)[0].square().mean().backward()
grads = [p.grad.clone() for p in model.parameters()]
model.eval()
with torch.no_grad():
    y = compiled(x)[0]
torch.testing.assert_close(y, model(x)[0])
open_ = torch.compile(lambda x: torch.geqrf(x + 1)[1] * 2, backend=backend, dynamic=True, options={"fallback": "silent"})
more = [open_(torch.linspace(-1, 1, 4 * n).reshape(4, n)) for n in (3, 5)]
torch.save([y, *grads, *more], sys.argv[1])
print(len(made), report().ours, report().in_torch)
print("torch._inductor.codegen.wrapper" in sys.modules)
"""


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    reset()


def translations(monkeypatch):
    """The list that grows with each graph that is translated."""
    made, old = [], segments.Segments.__init__

    def init(self, *args, **named):
        made.append(1)
        old(self, *args, **named)

    monkeypatch.setattr(segments.Segments, "__init__", init)
    return made


def entries(folder):
    """The files of AOTAutograd's cache."""
    return [p for p in (pathlib.Path(folder) / "aotautograd").rglob("*") if p.is_file()]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_the_next_process_translates_nothing(tmp_path):
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "NGRAPH_CACHE": str(tmp_path / "own"), "OMP_NUM_THREADS": "1"}
    said = []
    for k in range(2):
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / f"{k}.pt")]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        said.append(ran.stdout.splitlines()[0].split(maxsplit=1))
    assert said[0][0] == "5" and said[1][0] == "0" and said[0][1] == said[1][1]
    assert ran.stdout.splitlines()[1] == "False"  # Inductor's code generators are not loaded for a key
    cold, warm = (torch.load(tmp_path / f"{k}.pt") for k in range(2))
    assert len(cold) == len(warm) and all(map(torch.equal, cold, warm))


def test_damaged_entries_are_compiled_anew(folder, monkeypatch):
    made = translations(monkeypatch)
    x = torch.linspace(-1, 1, 12).reshape(3, 4)

    def result():
        torch._dynamo.reset()
        return torch.compile(lambda x: torch.tanh(x) @ x.T, backend=backend)(x)

    wanted = result()
    assert len(made) == 1 and torch.equal(result(), wanted) and len(made) == 1
    (path,) = entries(folder)
    whole = path.read_bytes()
    for where in (0, whole.index(b"def run") + 9):
        for other in entries(folder):
            other.unlink()
        made.clear()
        path.write_bytes(whole[:where] + bytes([whole[where] ^ 1]) + whole[where + 1 :])
        assert torch.equal(result(), wanted) and len(made) == 1
    for other in entries(folder):
        other.unlink()
    made.clear()
    path.write_bytes(whole[:100])
    assert torch.equal(result(), wanted) and len(made) == 1


def test_options_and_settings_have_entries_of_their_own(folder, monkeypatch):
    made = translations(monkeypatch)
    for options in ({}, {"threads": 1}, {"exact": False}, {"random": "torch"}, {}, {"threads": 1}):
        torch._dynamo.reset()
        torch.compile(lambda x: torch.tanh(x) * 3, backend=backend, options=options)(torch.ones(4))
    assert len(made) == 4
    for dtype in (torch.float64, torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            torch._dynamo.reset()
            torch.compile(lambda x: torch.tanh(x) * 3, backend=backend)(torch.ones(4, dtype=torch.float32))
        finally:
            torch.set_default_dtype(torch.float32)
    assert len(made) == 5


def test_the_cache_may_lose_plans(folder, monkeypatch, tmp_path):
    made = translations(monkeypatch)
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    outs = []
    for k in range(2):
        monkeypatch.setenv("NGRAPH_CACHE", str(tmp_path / f"own{k}"))
        torch._dynamo.reset()
        f = torch.compile(lambda x, w: torch.nn.functional.gelu(x @ w.T + 0.25), backend=backend)
        outs.append(f(x, x + 1))
    assert torch.equal(*outs) and len(made) == 1
    (step,) = report().functions[1].graphs[0].made.steps
    assert [s.op for s in step.computation.native.program.steps]  # the whole program, read for this
    assert "dot" in str(step.computation.program) or step.computation.program.steps


def test_artifacts_carry_graphs_to_another_machine(folder, monkeypatch, tmp_path):
    made = translations(monkeypatch)
    x, model = torch.ones(2, 5), torch.nn.Linear(5, 3)
    torch.compile(model, backend=backend)(x).sum().backward()
    data, _ = torch.compiler.save_cache_artifacts()
    assert len(made) == 2
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "elsewhere"))
    torch._dynamo.reset()
    torch.compiler.load_cache_artifacts(data)
    grad, model.weight.grad = model.weight.grad, None
    torch.compile(model, backend=backend)(x).sum().backward()
    assert len(made) == 2 and torch.equal(model.weight.grad, grad)


def test_compiled_ahead(monkeypatch):
    made = translations(monkeypatch)
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    ahead = torch.compile(scaled, backend=backend, fullgraph=True).aot_compile(((x,), {}))
    path = os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "ahead.bin")
    ahead.save_compiled_function(path)
    torch._dynamo.reset()
    with open(path, "rb") as file:
        again = torch.compiler.load_compiled_function(io.BytesIO(file.read()))
    torch.testing.assert_close(again(x), scaled(x))
    assert len(made) == 1


def scaled(x):
    return torch.softmax(x @ x.T, -1) * 2


def test_what_cannot_be_packed_is_compiled_each_time(folder, monkeypatch):
    made = translations(monkeypatch)
    for _ in range(2):
        torch._dynamo.reset()
        torch.compile(lambda x: x * 2 + 1, backend=backend, options={"transformer": "numpy"})(torch.ones(3))
    assert len(made) == 2 and not entries(folder)
