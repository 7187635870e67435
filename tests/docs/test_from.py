"""Every row of the tables for users of other libraries: both sides of a row get the same numbers and give the same results."""

import os
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import xarray

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.frontends import neon

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def read(page):
    with open(os.path.join(ROOT, "docs", page), encoding="utf-8") as file:
        return file.read()


def tables(page):
    """Yields (first word of the table's first heading, the code in the first cells) of each row of the page's tables."""
    head, above = "", ""
    for line in read(page).splitlines():
        cells = [c.strip() for c in line.split(" | ")]
        head = above.lstrip("| ").split(" ")[0] if line.startswith("| ---") else head
        if line.startswith("| `"):
            yield head, [c.strip("|").strip()[1:-1] for c in cells if re.fullmatch(r"\|? ?`[^`]+`", c)]
        above = line


def names(page, block=0):
    """The names that one of the page's blocks of Python defines."""
    space = {"neon": neon, "ng": ng, "np": np}
    exec(re.findall(r"(?ms)^```python\n(.*?)^```$", read(page))[block], space)
    return space


def leaves(value):
    return [leaf for v in value for leaf in leaves(v)] if isinstance(value, tuple | list) else [value]


def values(results):
    """The arrays of lists of ops, by one computation that runs as NumPy calls."""
    with ngt.make_transformer_factory("numpy")() as transformer:
        flat = iter(transformer.computation([ng.as_op(r) for ops in results for r in ops])())
        return [[np.asarray(next(flat)) for _ in ops] for ops in results]


def given(space):
    """The constants of a page as arrays."""
    ops = {name: op for name, op in space.items() if isinstance(op, ng.Op)}
    return dict(zip(ops, [v for (v,) in values([[op] for op in ops.values()])], strict=True))


def agree(there, here):
    """The rows whose sides differ, each with both values."""
    wrong = []
    for (code, expected), got in zip(there.items(), values([ops for _, ops in here]), strict=True):
        expected = [np.asarray(e) for e in leaves(expected)]
        same = len(expected) == len(got) and all(
            e.shape == g.shape and np.allclose(e, g, 1e-6, 1e-7) for e, g in zip(expected, got, strict=True)
        )
        wrong += [] if same else [(code, expected, got)]
    return wrong


def rows(page, head):
    found = [cells for kind, cells in tables(page) if kind == head]
    assert found
    return found


def test_functions_of_pytorch_give_the_same():
    space = names("from-pytorch.md")
    tensors = {name: torch.tensor(value) for name, value in given(space).items()}
    there = {"torch": torch, "F": torch.nn.functional, **tensors}
    found = rows("from-pytorch.md", "PyTorch")
    expected = {left: eval(left, dict(there)) for left, _ in found}
    assert len(expected) == len(found) > 70
    assert agree(expected, [(right, leaves(eval(right, space))) for _, right in found]) == []


def test_a_row_that_is_wrong_is_found():
    x = ng.constant([1.0, 2.0], "C=2")
    assert agree({"a": torch.tensor([1.0, 2.5])}, [("x", [x])]) and agree({"a": torch.ones(3)}, [("x", [x])])
    assert not agree({"a": torch.tensor([1.0, 2.0])}, [("x", [x])])


def test_layers_of_pytorch_have_as_many_weights_and_results_of_these_lengths():
    space = names("from-pytorch.md")
    tensors = {name: torch.tensor(value) for name, value in given(space).items()}
    for left, right, of in rows("from-pytorch.md", "layer"):
        module, layer = eval(left, {"nn": torch.nn}).double(), eval(right, space)
        result = layer(space[of])
        weights = layer.variables.values()
        assert sum(p.numel() for p in module.parameters()) == sum(int(np.prod(v.axes.lengths)) for v in weights), left
        assert sorted(module(tensors[of]).shape) == sorted(result.axes.lengths), left


OPTIMIZERS = [*rows("from-pytorch.md", "optimizer"), *(cells[:0:-1] for cells in rows("from-keras.md", "optimizer"))]


@pytest.mark.parametrize("left, right", OPTIMIZERS)
def test_optimizers_of_pytorch_make_the_same_steps(left, right):
    start, scale = np.array([1.0, -2.0, 0.5]), np.array([0.3, 1.0, 2.0])
    p = torch.tensor(start, requires_grad=True)
    w = ng.variable("C=3", dtype=np.float64, initial_value=start)
    there, here = eval(left, {"torch": torch, "p": p}), eval(right, {"neon": neon})
    step = here(ng.sum(w * w * ng.constant(scale, "C=3"), out_axes=()))
    with ngt.make_transformer_factory("numpy")() as transformer:
        train = transformer.computation([step])
        for _ in range(4):
            there.zero_grad()
            (p * p * torch.tensor(scale)).sum().backward()
            there.step()
            train()
        np.testing.assert_allclose(transformer.get(w), p.detach().numpy(), rtol=1e-5)


def _jax():
    """PyTorch's functions under the names that JAX has for them, and its loops as loops of Python."""
    func = torch.func

    def scan(function, carry, xs):
        made = []
        for x in xs:
            carry, value = function(carry, x)
            made.append(value)
        return carry, torch.stack(made)

    def while_loop(condition, function, carry):
        while condition(carry):
            carry = function(carry)
        return carry

    lax = SimpleNamespace(
        scan=scan,
        while_loop=while_loop,
        cond=lambda predicate, then, otherwise, *operands: (then if predicate else otherwise)(*operands),
        stop_gradient=torch.Tensor.detach,
    )
    nn = SimpleNamespace(softmax=torch.softmax, logsumexp=torch.logsumexp, one_hot=torch.nn.functional.one_hot)
    return SimpleNamespace(
        grad=func.grad,
        value_and_grad=lambda f: lambda *xs: func.grad_and_value(f)(*xs)[::-1],
        hessian=func.hessian,
        jacobian=func.jacrev,
        vmap=func.vmap,
        jvp=func.jvp,
        vjp=lambda f, x: (f(x), lambda e: func.vjp(f, x)[1](e)[0]),
        checkpoint=lambda f: f,
        lax=lax,
        nn=nn,
    )


@pytest.mark.parametrize("kind, least", [("jax.numpy", 30), ("jax", 15), ("xarray", 15)])
def test_functions_of_jax_and_xarray_give_the_same(kind, least):
    page = "from-jax-and-xarray.md"
    space = names(page)
    arrays = given(space)
    there = {
        "jax.numpy": lambda: {"jnp": np, **arrays},
        "jax": lambda: {"jax": _jax(), "cube": lambda s: (s**3).sum(), **{n: torch.tensor(v) for n, v in arrays.items()}},
        "xarray": lambda: {"xr": xarray, **{n: xarray.DataArray(v, dims=[a.name for a in space[n].axes]) for n, v in arrays.items()}},
    }[kind]()
    found = rows(page, kind)
    expected = {left: eval(left, dict(there)) for left, _ in found}
    assert len(expected) == len(found) > least
    assert agree(expected, [(right, leaves(eval(right, dict(space)))) for _, right in found]) == []


def test_functions_of_keras_give_what_numpy_gives():
    space = names("from-keras.md", block=2)
    arrays = {"np": np, **given(space)}
    found = rows("from-keras.md", "Keras")
    found = [cells for cells in found if len(cells) == 3]
    expected = {left: eval(by_numpy, dict(arrays)) for left, _, by_numpy in found}
    assert len(expected) == len(found) > 10
    assert agree(expected, [(right, leaves(eval(right, dict(space)))) for _, right, _ in found]) == []


def test_layers_of_keras_have_these_weights_and_results():
    space = names("from-keras.md", block=1)
    for left, right, of, weights, lengths in rows("from-keras.md", "layer"):
        layer = eval(right, space)
        result = layer(space[of])
        assert sum(int(np.prod(v.axes.lengths)) for v in layer.variables.values()) == int(weights), left
        assert sorted(result.axes.lengths) == sorted(int(n) for n in lengths.split(",")), (left, result.axes)


def test_names_of_neon_on_the_page_for_keras_are_there():
    said = [cells[1] for cells in rows("from-keras.md", "Keras") if len(cells) == 2]
    assert [n for n in re.findall(r"\b([A-Z]\w+)\(", " ".join(said)) if not hasattr(neon, n)] == []
    assert [n for n in re.findall(r"trainer\.(\w+)", " ".join(said)) if not hasattr(neon.Trainer, n)] == []
