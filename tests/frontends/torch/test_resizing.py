"""Pictures of other sizes beside eager: values, gradients, strides, and no op that torch runs."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ngraph.frontends.torch import backend, load, private, report, reset, resizing

CASES = [  # shape, mode, settings
    ((2, 3, 5), "linear", {"scale_factor": 2.0}),
    ((2, 3, 5), "nearest-exact", {"scale_factor": 3.0}),
    ((2, 3, 4, 6), "bilinear", {"scale_factor": 2.0, "align_corners": True}),
    ((2, 3, 4, 6), "bilinear", {"scale_factor": (1.5, 0.7)}),
    ((2, 3, 4, 6), "bilinear", {"size": (8, 7)}),
    ((2, 3, 4, 6), "bilinear", {"scale_factor": 1.7, "recompute_scale_factor": True}),
    ((2, 3, 4, 6), "bicubic", {"scale_factor": 2.0}),
    ((2, 3, 4, 6), "bicubic", {"size": (1, 9), "align_corners": True}),
    ((2, 3, 4, 6), "nearest", {"scale_factor": 2.0}),
    ((2, 3, 4, 6), "nearest", {"size": (8, 18)}),
    ((2, 3, 4, 6), "nearest", {"scale_factor": 1.5}),
    ((2, 3, 9, 6), "bilinear", {"size": (4, 13), "antialias": True}),
    ((2, 3, 9, 6), "bicubic", {"size": (4, 3), "antialias": True}),
    ((1, 2, 3, 4, 5), "trilinear", {"scale_factor": (2.0, 1.0, 0.5)}),
    ((1, 2, 3, 4, 5), "nearest", {"scale_factor": 2.0}),
]


def compiled(function, dynamic=False):
    torch._dynamo.reset()
    reset()
    return torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic, options={"fallback": "error"})


def gradients(function, x, slope):
    x = x.detach().requires_grad_()
    y = function(x)
    (found,) = torch.autograd.grad(y, x, slope[: y.numel()].reshape(y.shape))
    return y, found


OPEN = (2, 3, 8)  # cases that are called with open lengths, too


@pytest.mark.parametrize("case, dynamic", [*((k, False) for k in range(len(CASES))), *((k, True) for k in OPEN)])
def test_values_gradients_and_strides_are_those_of_eager(case, dynamic):
    shape, mode, how = CASES[case]

    def function(x):
        return F.interpolate(x * 2, mode=mode, **how).tanh()

    ours, slope = compiled(function, dynamic), torch.randn(8192)
    for grown, last in ((0, False), (0, True), (3, False)):
        x = torch.randn(*shape[:2], *[n + grown for n in shape[2:]])
        x = x.contiguous(memory_format=torch.channels_last) if last and x.ndim == 4 else x
        if case == 9 and grown:
            continue  # a size that is no multiple of this one
        found, wanted = gradients(ours, x, slope), gradients(function, x, slope)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        assert found[0].stride() == wanted[0].stride()
        with torch.no_grad():
            torch.testing.assert_close(ours(x), function(x), rtol=1e-5, atol=1e-5)


def test_an_op_is_one_node_of_the_graph():
    function = compiled(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"))
    with torch.no_grad():
        function(torch.randn(1, 2, 4, 4))
    (graph,) = [g for f in report().functions for g in f.graphs]
    assert graph.ours == 1


def test_narrow_floats_are_rounded_once():
    x = torch.randn(1, 2, 9, 11).to(torch.bfloat16)
    for how in ({"scale_factor": 2.0}, {"size": (5, 30)}):
        function = compiled(lambda x, how=how: F.interpolate(x, mode="bilinear", **how))
        wanted = F.interpolate(x.float(), mode="bilinear", **how).to(torch.bfloat16)
        torch.testing.assert_close(function(x), wanted, rtol=2**-8, atol=0)


def test_pictures_of_integers_are_eagers():
    x = torch.randint(0, 256, (1, 3, 5, 7), dtype=torch.uint8)
    for mode in ("bilinear", "nearest"):
        function = compiled(lambda x, mode=mode: F.interpolate(x, scale_factor=2, mode=mode))
        torch.testing.assert_close(function(x), F.interpolate(x, scale_factor=2, mode=mode), rtol=0, atol=1)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(7, 9), (3, 4), (2, 13)])
def test_smoothed_pictures_of_integers_are_eagers_to_the_bit(mode, size):
    x = torch.randint(0, 256, (2, 3, 5, 6), dtype=torch.uint8)
    function = compiled(lambda x: F.interpolate(x, size=size, mode=mode, antialias=True))
    assert torch.equal(function(x), F.interpolate(x, size=size, mode=mode, antialias=True))


def test_pytorchs_own_rules_are_as_they_were():
    key = torch._C.DispatchKey.Autograd
    rules = resizing.rules()
    before = {op: (op.py_kernels[key], dict(op.overloadpacket.default.py_kernels)) for op in rules}
    with pytest.raises(ZeroDivisionError), private.before_autograd(rules):
        assert all(op.py_kernels[key] is rule for op, rule in rules.items())
        raise ZeroDivisionError
    assert {op: (op.py_kernels[key], dict(op.overloadpacket.default.py_kernels)) for op in rules} == before


def test_exported_programs_have_them_too():
    class Up(torch.nn.Module):
        def forward(self, x):
            return F.interpolate(F.interpolate(x, scale_factor=2, mode="nearest"), size=(5, 9), mode="bicubic")

    x = torch.randn(1, 2, 4, 6)
    model = load(torch.export.export(Up(), (x,)))
    np.testing.assert_allclose(model.run(None, {"x": x.numpy()})[0], Up()(x), rtol=1e-5, atol=1e-5)


def test_a_parameter_is_resized_to_open_lengths_with_a_derivative():
    class Biased(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(1, 2, 5, 5))

        def forward(self, x):
            return F.interpolate(self.table, size=x.shape[2:], mode="bilinear") * x

    model = Biased()
    function = compiled(model, dynamic=True)
    for n in (7, 9):
        x = torch.randn(1, 2, n, n + 1)
        found, wanted = (torch.autograd.grad(f(x).sum(), model.table)[0] for f in (function, model))
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", [*private.UPSAMPLING, *private.SMOOTHING])
def test_ops_that_are_called_by_their_own_names_have_derivatives_for_open_lengths(name):
    op, rank = getattr(torch.ops.aten, name), next(int(c) for c in name if c.isdigit())
    others = () if "nearest" in name else (False,)

    def function(x):
        return op.default(x, [2 * n for n in x.shape[2:]], *others)

    torch._dynamo.reset()
    ours = torch.compile(function, backend=backend, dynamic=True, fullgraph=True, options={"fallback": "silent"})
    x = torch.randn(2, 3, *range(4, 4 + rank), requires_grad=True)
    found, wanted = (torch.autograd.grad(f(x).square().sum(), x)[0] for f in (ours, function))
    torch.testing.assert_close(found, wanted)


def test_a_derivative_for_open_lengths_is_one_node_too():
    function = compiled(lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), dynamic=True)
    x = torch.randn(2, 3, 5, 4, requires_grad=True)
    torch.autograd.grad(function(x).sum(), x)
    forward, backward = [g for f in report().functions for g in f.graphs]
    assert forward.ours < 5 and backward.ours < 5
