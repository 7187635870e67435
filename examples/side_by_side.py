"""Programs here and in PyTorch, side by side: equal values and gradients in float64, and the lines of each, counted.

    python examples/side_by_side.py            # all of them
    python examples/side_by_side.py maml ode   # some
    python examples/side_by_side.py --page > docs/cookbook.md

Each file of `examples/side_by_side` has one program twice: `with_ngraph` and `with_torch`, functions of tensors with the AXES.
"""

import ast
import functools
import importlib.util
import pathlib
import sys

import numpy as np
import torch

import ngraph as ng

FOLDER = pathlib.Path(__file__).with_suffix("")
TOLERANCE = 1e-8


def names():
    """Returns the names of the programs."""
    return sorted(p.stem for p in FOLDER.glob("*.py"))


def program(name):
    """Returns the module of a program."""
    spec = importlib.util.spec_from_file_location(f"side_by_side_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines(name):
    """Returns the numbers of lines of both functions of a program, without blank lines, comments and docstrings."""
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    counted = {}
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        inside = [node for node in ast.walk(function) if hasattr(node, "lineno")]
        counted[function.name] = len({k for node in inside for k in (node.lineno, node.end_lineno)})
    return counted["with_ngraph"], counted["with_torch"]


def results(name):
    """Returns the results of both functions of a program on the same random arrays."""
    module, random = program(name), np.random.default_rng(len(name))
    inputs = {n: ng.placeholder(text, dtype="float64") for n, text in module.AXES.items()}
    arrays = {n: random.standard_normal(op.axes.lengths) for n, op in inputs.items()}
    ours = ng.function(functools.partial(module.with_ngraph, ng), **inputs)(**arrays)
    theirs = module.with_torch(torch, **{n: torch.tensor(a) for n, a in arrays.items()})
    return flat(ours), flat(theirs)


def flat(x):
    """Returns the arrays of nested tuples and lists."""
    return [a for part in x for a in flat(part)] if isinstance(x, (tuple, list)) else [np.asarray(x.detach() if torch.is_tensor(x) else x)]


def error(ours, theirs):
    """Returns the largest difference relative to the largest value."""
    return max(np.abs(a - b).max() / max(np.abs(b).max(), 1e-300) for a, b in zip(ours, theirs, strict=True))


def page():
    """Returns the cookbook: the half of each program that is written with ngraph, as Markdown."""
    parts = [
        "# Cookbook",
        "This page shows whole programs, from attention to a U-Net. Each stands beside the same program in PyTorch in "
        "`examples/side_by_side`: `python examples/side_by_side.py` compares values, gradients and the number of lines, and a test "
        "requires them to agree. The arguments and results of these functions are ops; the comment in front of each says which axes its "
        "arguments have. `ng.function(program(x), x)` makes a function of arrays of one.",
    ]
    for name in names():
        source = (FOLDER / f"{name}.py").read_text()
        tree = ast.parse(source)
        function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "with_ngraph")
        code = ast.get_source_segment(source, function).replace("def with_ngraph(ng, ", f"def {name}(")
        axes = "# " + ", ".join(f"{n}: {text or 'a scalar'}" for n, text in program(name).AXES.items())
        parts += [f"## {name.replace('_', ' ').capitalize()}", ast.get_docstring(tree), f"```python\n{axes}\n{code}\n```"]
    parts[2:2] = ["```python\nimport numpy as np\n\nimport ngraph as ng\n```"]
    example = (
        'f = ng.function(maml, x="B=4 S=10 D=3", y="B S", w="D")\n'
        "value, slope = f(np.ones((4, 10, 3)), np.ones((4, 10)), np.zeros(3))\nprint(value.round(4), slope.axes)"
    )
    parts += ["## Running one", f"```python\n{example}\n```", "```text\n0.16 Axes(D=3)\n```"]
    return "\n\n".join(parts) + "\n"


def main(chosen):
    """Prints a row for each program; returns 1 where one differs."""
    if chosen == ["--page"]:
        print(page(), end="")
        return 0
    total, wrong = [0, 0], []
    print(f"{'program':22} {'ngraph':>6} {'torch':>6} {'difference':>11}")
    for name in chosen or names():
        counts, off = lines(name), error(*results(name))
        total = [a + b for a, b in zip(total, counts, strict=True)]
        wrong += [name] if off > TOLERANCE else []
        print(f"{name:22} {counts[0]:6} {counts[1]:6} {off:11.1e}")
    print(f"{'all':22} {total[0]:6} {total[1]:6}   {total[0] / total[1]:.2f} of PyTorch's lines")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
