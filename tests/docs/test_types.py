"""Type checkers see names, arguments and results: mypy reads a user's program."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("mypy")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = """\
import numpy as np

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.frontends.neon import Adam, Affine, CrossEntropyMulti, GlorotInit, Sequential, Trainer

x = ng.placeholder("N=? D=3")
w = ng.variable("D K=5", initial_value=ng.KaimingInit())
y = ng.exp(x @ w).mean("N") + x.sum("N D") * 2.0
f = ng.function({"mean": y, "top": ng.argmax(x @ w, "K")}, x)
mean = f(x=np.ones((2, 3)))["mean"]
factor = ng.linalg.cholesky(ng.eye("i=3", "j=3"), "i", "j")
step = ng.grad(lambda v: (v * v).sum())
trainer = Trainer(Sequential([Affine(GlorotInit(), nout=4)]), Adam(1e-3), CrossEntropyMulti(logits=True))
found = trainer.evaluate(np.ones((2, 3)), np.ones(2))
rooms = ng.onnx, ng.torch, ng.tensorflow, ng.testing.executor, ng.types.Op
names = ng.config, ng.errors, ng.linalg, ng.float32, ngt.make_transformer
reveal_type(y)
reveal_type(factor)
reveal_type(found)
ng.sigmod(x)
ng.roll(x, "a", "D")
x.summ("N")
ng.linalg.choleski(x, "i", "j")
trainer.fitt()
Affine(nuot=4)
"""
SAYS = [  # (line, what it says)
    (18, 'Revealed type is "ngraph.op_graph.op.Op"'),
    (19, 'Revealed type is "ngraph.op_graph.op.Op"'),
    (20, 'Revealed type is "dict[str, Any]"'),
    (21, 'Module has no attribute "sigmod"; maybe "sigmoid"?'),
    (22, 'Argument 2 to "roll" has incompatible type "str"'),
    (23, '"Op" has no attribute "summ"; maybe "sum"?'),
    (24, 'Module has no attribute "choleski"; maybe "cholesky"?'),
    (25, '"Trainer" has no attribute "fitt"; maybe "fit"?'),
    (26, 'Unexpected keyword argument "nuot" for "Affine"'),
]


def test_a_program_is_checked(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    options = [
        "--follow-imports",
        "silent",
        "--no-implicit-reexport",
        "--no-error-summary",
        "--no-incremental",
        "--config-file",
        os.devnull,
        str(program),
    ]
    made = subprocess.run(
        [sys.executable, "-m", "mypy", *options], cwd=tmp_path, env={**os.environ, "MYPYPATH": ROOT}, capture_output=True, text=True
    )
    lines = [line.split(":", 3) for line in made.stdout.splitlines() if "program.py:" in line]
    found = [(int(line), kind.strip() + ":" + said) for _, line, kind, said in lines]
    assert {n for n, _ in found} == {n for n, _ in SAYS}, made.stdout + made.stderr
    for number, said in SAYS:
        assert any(n == number and said in text for n, text in found), (number, said, made.stdout)
