"""What is not ours runs in torch, and is seen: one warning, the report, errors on request."""

import json
import os
import subprocess
import sys
import warnings

import pytest
import torch
from torch._dynamo import utils as dynamo

import ngraph as ng
from ngraph.errors import ArgumentError, NgraphWarning
from ngraph.frontends.torch import backend, report, reset
from ngraph.frontends.torch import backend as module

HERE = os.path.basename(__file__)
ERROR = {"fallback": "error"}


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    reset()
    sys.modules["ngraph.frontends.torch.dynamo"]._warned.clear()


def test_the_module_is_found_as_a_name_of_ngraph():
    assert ng.torch.backend is backend and module is backend


def test_torch_runs_what_we_lack_between_two_segments():
    def f(x):
        y = x @ x.T + 1
        s = torch.geqrf(y)[1]
        return (s * 2).sum(), y.relu()

    x = torch.randn(5, 5)
    with pytest.warns(NgraphWarning, match=r"geqrf.*once: no translation; .*test_fallback.py") as seen:
        found = torch.compile(f, backend=backend)(x)
    assert len([w for w in seen if issubclass(w.category, NgraphWarning)]) == 1
    for a, b in zip(found, f(x), strict=True):
        torch.testing.assert_close(a, b)
    (function,) = report().functions
    (graph,) = function.graphs
    assert graph.segments == 2 and graph.ours >= 4
    ((name, (row,)),) = graph.in_torch.items()
    assert name.startswith("aten.geqrf") and row["count"] == 1 and HERE in row["line"] and row["bytes"] >= 5 * 5 * 4
    given = json.loads(report().dumps())
    assert given["in torch"] == {name: 1} and given["functions"][0]["graphs"][0]["calls"] == 1
    named, seconds = given["functions"][0]["function"], given["functions"][0]["seconds"]
    assert named.startswith("f (") and f"{HERE}:" in named and set(seconds) == {"dynamo", "aot"}
    for text in (str(report()), report()._repr_html_()):
        assert name in text and named in text and row["line"] in text


def test_an_input_is_written_after_an_op_in_torch():
    """What is written, and nothing else, reads values of an earlier segment and of torch."""

    def f(x, b):
        b.mul_(torch.geqrf(x + 1)[1] + x.sin().sum(1))

    x, b = torch.randn(3, 5), torch.randn(3)
    wanted = b.clone()
    f(x, wanted)
    torch.compile(f, backend=backend, options={"fallback": "silent"})(x, b)
    torch.testing.assert_close(b, wanted)
    assert ng.torch.report().in_torch == {"aten.geqrf.default": 1}


def test_copies_with_strides_and_tangents_of_zero_are_ours():
    """Ops that PyTorch itself puts into graphs: of optimizers whose state has other strides, and of a jvp within a graph of autograd."""
    x = torch.randn(4, 2, 3, 3)
    strided = torch.compile(lambda x: torch.ops.prims.copy_strided.default(x + 1, [18, 1, 6, 2]), backend=backend, options=ERROR)
    assert strided(x).stride() == (18, 1, 6, 2)
    torch.testing.assert_close(strided(x), x + 1)

    w = torch.randn(4, 4)

    def f(x):
        tangent = torch.func.jvp(torch.tanh, (x,), (x,))[1]
        return tangent, torch.func.jacrev(lambda v: (v @ w).sin())(x[0]), torch.func.hessian(lambda v: (v @ w).pow(3).sum())(x[0])

    leaves = [torch.randn(3, 4).requires_grad_()]
    leaves.append(leaves[0].detach().clone().requires_grad_())
    for leaf, call in zip(leaves, (f, torch.compile(f, backend=backend, options=ERROR)), strict=True):
        sum(t.square().sum() for t in call(leaf)).backward()
    torch.testing.assert_close(leaves[1].grad, leaves[0].grad, rtol=1e-4, atol=1e-4)
    assert not report().in_torch


def test_a_warning_names_a_set_of_ops_once():
    def f(x):
        return torch.geqrf(x)[1] + 1

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for n in (3, 4):
            torch._dynamo.reset()
            torch.compile(f, backend=backend)(torch.randn(n, n))
    assert len([w for w in seen if issubclass(w.category, NgraphWarning)]) == 1


def test_fallback_as_an_error_lists_every_op_at_once():
    def f(x):
        return torch.geqrf(x)[1].sum() + torch.special.airy_ai(x).sum()

    with pytest.raises(Exception, match="torch would run 2 ops of this graph") as raised:
        torch.compile(f, backend=backend, options={"fallback": "error"})(torch.randn(3, 3))
    assert "geqrf" in str(raised.value) and "special_airy_ai" in str(raised.value) and HERE in str(raised.value)
    assert report().functions == []


def test_dtypes_that_we_lack_are_torchs():
    def f(x):
        return (x * 1j).abs() + x

    x = torch.randn(4)
    found = torch.compile(f, backend=backend, options={"fallback": "silent"})(x)
    torch.testing.assert_close(found, f(x))
    assert any("complex" in r["reason"] for f in report().functions for g in f.graphs for rows in g.in_torch.values() for r in rows)


def test_random_numbers_are_those_of_torchs_generator():
    def f(x):
        y = torch.nn.functional.dropout(x, 0.5) + 1
        return y * torch.rand_like(x)

    x = torch.randn(50)
    torch.manual_seed(3)
    wanted = f(x)
    torch.manual_seed(3)
    found = torch.compile(f, backend=backend, options={"fallback": "silent", "random": "torch"})(x)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fallbak": "error"}, "there is no option 'fallbak'.*write 'fallback'"),
        ({"fallback": "eror"}, "the option 'fallback' is 'eror'.*'error'"),
        ({"transformer": 3}, "the option 'transformer' is 3.*a name"),
    ],
)
def test_wrong_options_are_errors(options, said):
    with pytest.raises(Exception, match="(?s)" + said):
        torch.compile(lambda x: x + 1, backend=backend, options=options)(torch.ones(2))


def test_breaks_are_reported_with_their_line():
    def f(x):
        x = x * 2
        torch._dynamo.graph_break()
        x = x.cos()
        print(end="", file=sys.stderr)
        return x.sin()

    x = torch.randn(3)
    torch.testing.assert_close(torch.compile(f, backend=backend)(x), f(x))
    seen = report()
    assert len(seen.functions) == 3 and len(seen.breaks) == 2 and all(HERE in b["line"] and b["reason"] for b in seen.breaks)
    assert "break: " in str(seen)


def test_functions_that_dynamo_leaves_to_python_are_reported():
    def f(x):
        for _ in range(2):
            x = x * 2
            torch._dynamo.graph_break()
        return x.sin()

    x = torch.randn(3)
    torch.testing.assert_close(torch.compile(f, backend=backend)(x), f(x))
    (row,) = report().skipped
    assert HERE in row["function"] and "loop" in row["reason"] and "not compiled" in str(report())


def test_a_layer_of_pytorch_that_breaks_before_its_first_op_is_reported():
    layer = torch.nn.AdaptiveLogSoftmaxWithLoss(6, 12, [4, 8])
    x, y = torch.randn(5, 6), torch.randint(12, (5,))
    torch.testing.assert_close(torch.compile(layer, backend=backend)(x, y), layer(x, y))
    (row,) = report().skipped
    assert not report().functions and "aten.nonzero" in row["reason"] and "not compiled" in str(report())


def test_a_recompile_is_reported_with_its_guard():
    compiled = torch.compile(lambda x, k: x * k + 1, backend=backend, dynamic=False)
    compiled(torch.ones(3), 2)
    compiled(torch.ones(4), 2)
    assert any("size mismatch" in r["reason"] for r in report().recompiles)


def test_options_that_are_no_dict_are_an_error():
    with pytest.raises(Exception, match=r"options is \['fallback'\]"):
        torch.compile(lambda x: x + 1, backend=backend, options=["fallback"])(torch.ones(3))


def test_a_backend_that_is_called_with_a_model_says_what_to_write():
    with pytest.raises(ArgumentError, match=r"(?s)this is a Linear.*torch\.compile\(model, backend='ngraph'\)"):
        ng.torch.backend(torch.nn.Linear(4, 3), [torch.ones(2, 4)])


def test_importing_ngraph_imports_no_torch():
    program = "import sys, ngraph, ngraph.api, ngraph.transformers; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_report_knows_nothing_of_compilations_before(request):
    """Dynamo keeps what it has measured of so many compilations, and numbers functions anew after its own reset."""
    dynamo.set_compilation_metrics_limit(8)
    request.addfinalizer(lambda: dynamo.set_compilation_metrics_limit(dynamo.DEFAULT_COMPILATION_METRICS_LIMIT))
    for k in range(10):
        torch._dynamo.reset()
        f = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
        f(torch.ones(k + 1))
        f(torch.ones(k + 2))  # compiled again
    torch._dynamo.reset()
    ng.torch.reset()
    torch.compile(lambda x: x * 2, backend=ng.torch.backend)(torch.ones(3))
    assert not ng.torch.report().recompiles and not ng.torch.report().skipped
    g = torch.compile(lambda x: x * 3, backend=ng.torch.backend, dynamic=False)
    g(torch.ones(3)), g(torch.ones(4))
    assert len(ng.torch.report().recompiles) == 1


def test_an_error_without_a_node_begins_with_the_users_line():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))  # PyTorch's own frames are on the stack
    with pytest.raises(Exception, match=r"SettingError: [^\n]*test_fallback.py:\d+: there is no option 'fallbak'"):
        torch.compile(model, backend=backend, options={"fallbak": "silent"})(torch.ones(1, 2))
