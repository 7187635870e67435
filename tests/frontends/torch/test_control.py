"""Branches and loops of PyTorch's are ops of ours: results and derivatives are eager's, and nothing of them runs in torch."""

import numpy as np
import pytest
import torch
from torch._higher_order_ops import associative_scan, while_loop
from torch._higher_order_ops import map as map_
from torch._higher_order_ops import scan as scan_

import ngraph as ng
from ngraph.errors import DivisionError
from ngraph.frontends.torch import backend


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    ng.torch.reset()


def cond(x, w):
    return torch.cond(x.sum() > 0, lambda x, w: (x @ w).sin(), lambda x, w: x.cos() @ w, (x, w))


def cond_in_cond(x, w):
    def positive(x, w):
        return torch.cond(x.max() > 0.9, lambda x, w: x @ w, lambda x, w: (x @ w) * 2, (x, w))

    return torch.cond(x.sum() > 0, positive, lambda x, w: x.cos() @ w, (x, w))


def scan(x, w):
    def step(state, now):
        state = (state @ w + now).tanh()
        return state, state * 2

    return scan_(step, x.new_zeros(3), x)


def scan_of_two(x, w):
    def step(state, now):  # PyTorch itself refuses the derivatives of many others
        a, b = state
        return [(a + now).sin(), (b + now).cos()], [a + b]

    return scan_(step, [x.new_ones(3), x.new_zeros(3)], x @ w, reverse=True)


def mapped(x, w):
    return map_(lambda row, w: (row @ w).sin(), x, w)


def associative(x, w):
    return associative_scan(lambda a, b: a * b + a, x[:5] @ w, 0, combine_mode="generic")


def leaves(y):
    return torch.utils._pytree.tree_leaves(y)


def outcome(call, x, w):
    """What a call gives, and the derivatives for both of its inputs."""
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    found = leaves(call(x, w))
    sum((k + 1) * (t * t).sum() for k, t in enumerate(found)).backward()
    return [*[t.detach() for t in found], x.grad, w.grad]


@pytest.mark.parametrize("function", [cond, cond_in_cond, scan, scan_of_two, mapped, associative])
def test_results_and_derivatives_are_those_of_eager(function):
    compiled = torch.compile(function, backend=backend, fullgraph=True, options={"fallback": "error"})
    w = torch.randn(3, 3)
    for x in (torch.rand(12, 3), -torch.rand(12, 3), torch.rand(12, 3) / 2):
        torch.testing.assert_close(outcome(compiled, x, w), outcome(function, x, w), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(leaves(compiled(x, w)), leaves(function(x, w)))
    assert not ng.torch.report().in_torch


@pytest.mark.parametrize("function", [scan, mapped])
def test_the_number_of_turns_may_be_open(function):
    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=True, options={"fallback": "error"})
    w = torch.randn(3, 3)
    for steps in (9, 40, 3, 2):
        x = torch.rand(steps, 3)
        torch.testing.assert_close(leaves(compiled(x, w)), leaves(function(x, w)))
    assert len(ng.torch.report().functions) == 1


def halved(x, w):
    return while_loop(lambda k, x: (k < 40) & (x.abs().sum() > 1), lambda k, x: (k + 1, (x @ w) * 0.5), (torch.tensor(0), x))


def test_a_loop_runs_while_its_condition_holds():
    compiled = torch.compile(halved, backend=backend, fullgraph=True, options={"fallback": "error"})
    for scale in (1, 0.01, 1000):
        x, w = torch.rand(4, 3) * scale, torch.rand(3, 3) * 0.4
        torch.testing.assert_close(leaves(compiled(x, w)), leaves(halved(x, w)))


linear = torch.nn.Linear(3, 3)


def halved_state(x, w):
    return halved(x, w)[1]


def halved_state_in_python(x, w):
    turns = 0
    while turns < 40 and x.abs().sum() > 1:
        turns, x = turns + 1, (x @ w) * 0.5
    return x


def two_states(x, w):
    """The last state, and derivatives for both parts of it; the second one's shape is not the first one's."""

    def body(k, a, b):
        return k + 1, (a @ w + b).tanh(), b * 0.9 + a.sin().sum(0)

    return while_loop(lambda k, a, b: k < 5, body, (torch.tensor(0), x, x.cos().sum(0)))[1:]


def two_states_in_python(x, w):
    a, b = x, x.cos().sum(0)
    for _ in range(5):
        a, b = (a @ w + b).tanh(), b * 0.9 + a.sin().sum(0)
    return a, b


def closure(x, w):
    def body(k, a):
        return k + 1, linear(a) * 0.7

    return while_loop(lambda k, a: (a.abs().sum() > 0.5) & (k < 13), body, (torch.tensor(0), x + w.sum()))[1]


def closure_in_python(x, w):
    turns, x = 0, x + w.sum()
    while turns < 13 and x.abs().sum() > 0.5:
        turns, x = turns + 1, linear(x) * 0.7
    return x


def scan_in_while(x, w):
    def body(k, a):
        sums = scan_(lambda state, row: ((state + row).sin(), state + row), a.new_zeros(3), a)[1]
        return k + 1, sums @ w

    return while_loop(lambda k, a: k < 3, body, (torch.tensor(0), x))[1]


def scan_in_while_in_python(x, w):
    for _ in range(3):
        state, sums = x.new_zeros(3), []
        for row in x:
            sums.append(state + row)
            state = (state + row).sin()
        x = torch.stack(sums) @ w
    return x


WHILE = {
    halved_state: halved_state_in_python,
    two_states: two_states_in_python,
    closure: closure_in_python,
    scan_in_while: scan_in_while_in_python,
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("function", WHILE, ids=lambda f: f.__name__)
def test_the_derivative_of_a_while_loop_is_that_of_a_loop_in_python(function, dynamic):
    """However many turns there are: with none, PyTorch's own derivative is that of one turn."""
    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic, options={"fallback": "error"})
    w = torch.rand(3, 3) * 0.4
    for rows, scale in ((4, 3.0), (7, 1.0), (1, 9.0), (5, 0.001)) if dynamic else ((4, 3.0), (4, 0.001)):
        x = torch.rand(rows, 3) * scale
        outcomes = [outcome(lambda x, w, f=f: [*leaves(f(x, w)), w], x, w) for f in (compiled, WHILE[function])]
        torch.testing.assert_close(*outcomes, rtol=1e-4, atol=1e-4)
    assert not ng.torch.report().in_torch and len(ng.torch.report().functions) <= 2


def test_a_while_loop_in_a_branch_is_left_to_torch_with_its_derivative():
    def f(x, w):
        return torch.cond(x.sum() > 0, lambda x, w: halved_state(x, w), lambda x, w: x @ w, (x, w))

    compiled = torch.compile(f, backend=backend, fullgraph=True, options={"fallback": "silent"})
    w = torch.rand(3, 3) * 0.4
    for x in (torch.rand(4, 3), -torch.rand(4, 3)):
        outcomes = [outcome(call, x, w) for call in (compiled, lambda x, w: halved_state_in_python(x, w) if x.sum() > 0 else x @ w)]
        torch.testing.assert_close(*outcomes, rtol=1e-4, atol=1e-5)


def test_an_op_in_a_while_loop_that_is_not_ours_leaves_its_derivative_to_torch():
    def f(x, w):
        return while_loop(lambda k, x: k < 3, lambda k, x: (k + 1, torch.special.erfcx(x @ w)), (torch.tensor(0), x))[1]

    def in_python(x, w):
        for _ in range(3):
            x = torch.special.erfcx(x @ w)
        return x

    compiled = torch.compile(f, backend=backend, fullgraph=True, options={"fallback": "silent"})
    x, w = torch.rand(4, 3), torch.rand(3, 3) * 0.1
    torch.testing.assert_close(outcome(compiled, x, w), outcome(in_python, x, w), rtol=1e-4, atol=1e-5)


def test_what_a_branch_lacks_is_named():
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: torch.special.airy_ai(x), lambda x: x.cos(), (x,))

    compiled = torch.compile(f, backend=backend, fullgraph=True, options={"fallback": "error"})
    with pytest.raises(Exception, match=r"higher_order.cond: aten.special_airy_ai.default in its body: no translation"):
        compiled(torch.rand(3))
    torch._dynamo.reset()
    compiled = torch.compile(f, backend=backend, fullgraph=True, options={"fallback": "silent"})
    for x in (torch.rand(3), -torch.rand(3)):
        torch.testing.assert_close(compiled(x), f(x))


class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.w, self.function = torch.nn.Parameter(torch.randn(3, 3)), function

    def forward(self, x):
        return self.function(x, self.w)


@pytest.mark.parametrize("function", [cond, cond_in_cond, scan, mapped, associative, halved])
def test_exported_programs_have_branches_and_loops(function, tmp_path):
    module = Module(function)
    torch.export.save(torch.export.export(module, (torch.rand(12, 3),)), tmp_path / "m.pt2")
    loaded = ng.torch.load(tmp_path / "m.pt2")
    for x in (torch.rand(12, 3), -torch.rand(12, 3)):
        found = loaded(x.numpy())
        for a, b in zip(found if isinstance(found, tuple) else [found], leaves(module(x)), strict=True):
            np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-5, atol=1e-6)


# ---- divisors -----------------------------------------------------------------------------------------------------------


def divided_in_turns(x, y):
    return while_loop(lambda k, a: k < 3, lambda k, a: (k + 1, a + x // (y - k)), (torch.tensor(0), x.clone()))[1]


def divided_rows(x, y):
    return map_(lambda row, y: row % y, torch.stack([x] * 20), y)


def divided_states(x, y):
    return scan_(lambda state, row: (state + torch.fmod(row, y), state * 2), x.clone(), torch.stack([x] * 20))


def divided_if(x, y):
    return torch.cond(x.sum() > 0, lambda x, y: torch.div(x, y, rounding_mode="trunc"), lambda x, y: x - y, (x, y))


@pytest.mark.parametrize("function", [divided_in_turns, divided_rows, divided_states, divided_if])
def test_whole_numbers_divided_by_zero_in_bodies_are_the_error_of_eager(function):
    compiled = torch.compile(function, backend=backend, fullgraph=True, options={"fallback": "error"})
    x = torch.tensor([6, -7, 8])
    for given in ((x, torch.tensor([5, -3, 4])), (x, torch.tensor([5, 1, 0])), (-x, torch.tensor([5, 1, 0]))):
        try:
            wanted = leaves(function(*given))
        except RuntimeError:
            with pytest.raises(DivisionError, match="test_control.py:[0-9]+: ZeroDivisionError"):
                compiled(*given)
        else:
            for a, b in zip(leaves(compiled(*given)), wanted, strict=True):
                torch.testing.assert_close(a, b)


# ---- lengths that values decide -----------------------------------------------------------------------------------------

BY_VALUE = {
    "nonzero": lambda x: (torch.nonzero(x > 0), torch.nonzero(x > 0) * 2 + 1),
    "nonzero of one element": lambda x: torch.nonzero(x[0, 0] > 0),
    "nonzero as a tuple": lambda x: torch.nonzero(x > 0, as_tuple=True)[1] + 1,
    "masked_select": lambda x: torch.masked_select(x, x > 0) * 2,
    "mask": lambda x: x[x > 0].exp(),
    "mask of rows": lambda x: x[x.sum(1) > 0] @ torch.ones(4, 2),
    "two masks": lambda x: (x[x > 0].sum() + x[x < 0].sum(), x[x > 0]),
    "unique": lambda x: torch.unique(x.round()) * 2,
    "unique and where each is": lambda x: torch.unique(x.round(), return_inverse=True, return_counts=True),
    "unique rows": lambda x: torch.unique((x > 0.5).int(), dim=0, return_inverse=True, return_counts=True),
    "unique columns": lambda x: torch.unique((x[..., None] > 0).half().expand(5, 4, 3), dim=1, return_inverse=True),
    "of each run of what is unique one": lambda x: torch.unique_consecutive(torch.unique(x.round()).abs(), return_counts=True),
    "of each run one": lambda x: torch.unique_consecutive(x.flatten().round(), return_inverse=True, return_counts=True),
    "of each run of rows one": lambda x: torch.unique_consecutive((x > 1.0).int(), return_inverse=True, return_counts=True, dim=0),
    "repeats": lambda x: x.repeat_interleave((x[:, 0] * 3).abs().long(), 0).exp(),
    "repeats of a sum that is given": lambda x: torch.repeat_interleave(x.flatten(), (x > -9).flatten().int() * 2, output_size=40),
    "counts": lambda x: (torch.bincount((x * 3).abs().long().flatten()) * 2, torch.bincount(x[0].abs().int(), x[1], minlength=9)),
    "the first places": lambda x: torch.nonzero_static(x > 0, size=12, fill_value=-3),
    "item": lambda x: x * x.sum().item() + (x > 0).sum().item(),
    "range": lambda x: torch.arange((x > 0).sum().item()) * 2.0,
    "slice": lambda x: x[: (x[:, 0] > 0).sum().item()] * 2,
}


@pytest.mark.parametrize("name", BY_VALUE)
def test_lengths_that_values_decide_stay_inside(name):
    function = BY_VALUE[name]
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        compiled = torch.compile(function, backend=backend, fullgraph=True, options={"fallback": "error"})
        for x in (torch.randn(5, 4), torch.randn(5, 4), torch.rand(5, 4), -torch.rand(5, 4)):
            torch.testing.assert_close(compiled(x), function(x))
            assert len(ng.torch.report().functions) == 1
        if "mask" in name:
            x = torch.randn(5, 4)
            outcomes = [outcome(lambda x, w, call=call: call(x), x, torch.zeros(1))[:-1] for call in (compiled, function)]
            torch.testing.assert_close(*outcomes)
    assert not ng.torch.report().in_torch


def test_one_compilation_finds_unique_slices_of_several_lengths():
    def function(x):
        return torch.unique(x, dim=0, return_inverse=True, return_counts=True)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=True, options={"fallback": "error"})
        for shape in ((20, 5), (9, 7), (30, 8)):
            x = torch.randint(0, 2, shape)
            torch.testing.assert_close(compiled(x), function(x))
    assert len(ng.torch.report().functions) == 1


def test_a_length_that_torch_tells_is_no_argument_of_what_runs_before():
    def function(x):
        return torch.unique(torch.unique(x * 2, dim=0), dim=1, return_counts=True)[1]

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, backend=backend, fullgraph=True, options={"fallback": "silent"})
        for x in (torch.ones(3, 2), torch.eye(3, 2)):
            torch.testing.assert_close(compiled(x), function(x))
    assert ng.torch.report().in_torch == {"aten.unique_dim.default": 1}


def put(x, mask, values):
    return x.index_put((mask,), values)


def added(x, mask, values):
    return x.index_put((mask,), values, accumulate=True)


def put_behind(x, mask, values):
    x = x.clone()
    x[:, mask] = values
    return x


VALUES_AT_MASK = {
    "one for each true place": (put, (5, 4), (5, 4), lambda k: (k,)),
    "rows": (put, (5, 4), (5,), lambda k: (k, 4)),
    "added rows": (added, (5, 4), (5,), lambda k: (k, 4)),
    "one row for all": (put, (5, 4), (5,), lambda k: (4,)),
    "one element for all, added": (added, (5, 4), (5,), lambda k: (1, 1)),
    "columns": (put_behind, (3, 5, 4), (5,), lambda k: (3, k, 4)),
    "columns of a mask of two dims": (put_behind, (3, 5, 4), (5, 4), lambda k: (k,)),
}


@pytest.mark.parametrize("name", VALUES_AT_MASK)
def test_values_are_put_at_a_mask_without_a_break(name):
    function, shape, masked, of = VALUES_AT_MASK[name]
    compiled = torch.compile(function, backend=backend, dynamic=True, options={"fallback": "error"})
    for _ in range(3):
        x, m = torch.randn(shape), torch.rand(masked) > 0.3
        m.view(-1)[:2] = True
        v = torch.randn(of(int(m.sum())))
        torch.testing.assert_close(compiled(x, m, v), function(x, m, v))
    assert not ng.torch.report().in_torch and not ng.torch.report().breaks


def test_values_that_are_not_as_many_as_the_places_of_a_mask_are_an_error():
    compiled = torch.compile(put, backend=backend, dynamic=False)
    x, m = torch.ones(5), torch.tensor([True, False, True, True, False])
    torch.testing.assert_close(compiled(x, m, torch.arange(3.0)), torch.tensor([0.0, 1, 1, 2, 1]))
    for k in (2, 4):
        with pytest.raises(Exception, match=r"not as many as the true places of its mask(?s:.*)mask\.sum\(\)"):
            compiled(x, m, torch.arange(float(k)))


@pytest.mark.parametrize(
    ("function", "wrong", "said"),
    [
        (lambda r: torch.repeat_interleave(r, output_size=4), [3, 2], "output_size is not the sum of the repeats"),
        (lambda r: torch.repeat_interleave(r, output_size=4), [5, -1], "repeats are below 0"),
        (torch.bincount, [2, -1], "a number below 0 is counted by bincount"),
    ],
)
def test_counts_that_eager_refuses_are_an_error(function, wrong, said):
    compiled = torch.compile(function, backend=backend, fullgraph=True, options={"fallback": "error"})
    torch.testing.assert_close(compiled(torch.tensor([3, 1])), function(torch.tensor([3, 1])))
    with pytest.raises(RuntimeError):
        function(torch.tensor(wrong))
    with pytest.raises(Exception, match=said):
        compiled(torch.tensor(wrong))


def test_a_mask_beside_another_index_is_put_by_torch():
    def function(x, m, i, v):
        x = x * 2
        x[m, i] = v
        return x

    given = torch.ones(5, 4), torch.tensor([True, False, True, True, False]), torch.tensor([0, 3, 1]), torch.arange(3.0)
    compiled = torch.compile(function, backend=backend, fullgraph=True, options={"fallback": "silent"})
    torch.testing.assert_close(compiled(*given), function(*given))
    assert ng.torch.report().in_torch == {"aten.index_put.default": 1}
