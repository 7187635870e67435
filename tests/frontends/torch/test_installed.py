"""The wheel of this tree in an environment of its own, with the packages of this one beside it: nothing there imports ngraph."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GELU = "import torch; print(torch.compile(torch.nn.GELU(), backend='ngraph')(torch.ones(2)))"
TRAINER = """
import sys, tempfile, torch, transformers
assert "ngraph" not in sys.modules and "accelerate" not in sys.modules
torch.manual_seed(0)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x, labels=None):
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

data = [{"x": torch.randn(4), "labels": torch.tensor(k % 2)} for k in range(8)]
said = {"per_device_train_batch_size": 4, "max_steps": 3, "report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True}
losses = []
for compiled in ({}, {"torch_compile": True, "torch_compile_backend": "ngraph"}):
    torch.manual_seed(1)
    model = Model()
    args = transformers.TrainingArguments(tempfile.mkdtemp(), seed=3, **said, **compiled)
    losses.append(transformers.Trainer(model, args, train_dataset=data).train().training_loss)
import ngraph as ng
report = ng.torch.report()
print(abs(losses[0] - losses[1]) < 1e-5, report.ours > 0, len(report.in_torch))
"""
ACCELERATE = """
import torch, accelerate
model = accelerate.Accelerator(dynamo_backend="ngraph", cpu=True).prepare(torch.nn.GELU())
print(model(torch.ones(2)))
from accelerate.utils import DynamoBackend
print(DynamoBackend("NGRAPH").value, "ngraph" in [name.lower() for name in DynamoBackend.list()])
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment that has the wheel, and the other packages of this one."""
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "wheels")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, text=True)
    venv.create(folder / "env", symlinks=True)
    made = folder / "env" / "bin" / "python"
    ask = [str(made), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    place = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    (wheel,) = (folder / "wheels").glob("*.whl")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(place), str(wheel)]
    subprocess.run(install, check=True, capture_output=True, text=True)
    others = [p for p in sys.path if p.endswith("site-packages")]
    (place / "others.pth").write_text("\n".join(others) + "\n")
    return made


def printed(python, program, tmp_path, **environment):
    """What a program prints, in a folder of its own: neither this tree nor what it was run with is on the path."""
    given = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "NGRAPH_CACHE": "off", "HF_HUB_OFFLINE": "1", **environment}
    done = subprocess.run([str(python), "-c", program], cwd=tmp_path, env=given, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if line.strip()]


@pytest.mark.parametrize("path", [None, ""])
def test_the_line_of_the_readme_runs_without_importing_ngraph_and_without_a_compiler(python, tmp_path, path):
    where = printed(python, "import ngraph, sys; print(ngraph.__file__)", tmp_path)[0]
    assert str(python.parents[1]) in where
    found = printed(python, GELU, tmp_path, **({} if path is None else {"PATH": path}))
    assert found == ["tensor([0.8413, 0.8413])"]


def test_the_trainer_of_transformers_takes_the_name(python, tmp_path):
    assert printed(python, TRAINER, tmp_path)[-1] == "True True 0"


def test_accelerate_takes_the_name(python, tmp_path):
    gelu, name = printed(python, ACCELERATE, tmp_path)[-2:]
    assert "0.8413, 0.8413" in gelu and name == "NGRAPH True"


def test_import_torch_loads_nothing_of_ngraph(python, tmp_path):
    program = "import sys, torch; print('ngraph' in sys.modules, 'ngraph_torch' in sys.modules)"
    assert printed(python, program, tmp_path) == ["False True"]
