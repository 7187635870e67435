"""Long programs run on the threads of PyTorch's own ops, and short ones that follow at once; others on the pool's threads."""

import ctypes
import os
import time

import pytest
import torch

from ngraph.frontends.torch import backend, private
from ngraph.runtime.host import pool as pools

PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def teams(two_threads):
    """The number of threads of each team that has run a program."""
    (lambda f: f(torch.ones(300, 300)))(torch.compile(lambda x: x @ x, backend=backend))  # the pool is there
    pool, found = pools._pool, []
    addresses = private.openmp()
    genuine = PARALLEL(addresses[0])

    @PARALLEL
    def counted(function, data, threads, flags):
        found.append(threads)
        genuine(function, data, threads, flags)

    pool.borrow(ctypes.cast(counted, ctypes.c_void_p).value, addresses[1], 2)
    pool.put("used", 0)
    yield found
    pool.borrow(*addresses, 2)


def test_a_long_program_runs_on_a_team(teams):
    torch.manual_seed(0)
    layers = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(3)])
    compiled, x = torch.compile(layers, backend=backend), torch.randn(256, 512)
    for k in range(20):
        torch.testing.assert_close(compiled(x + k), layers(x + k), rtol=1e-4, atol=1e-4)
    assert len(teams) >= 20 and set(teams) == {2}
    layers(x).square().mean().backward()
    wanted = [p.grad.clone() for p in layers.parameters()]
    layers.zero_grad()
    compiled(x).square().mean().backward()
    for p, grad in zip(layers.parameters(), wanted, strict=True):
        torch.testing.assert_close(p.grad, grad, rtol=1e-4, atol=1e-6)


def test_a_short_program_does_not(teams):
    compiled = torch.compile(lambda x: torch.relu(x @ x), backend=backend)
    x = torch.randn(160, 160)
    torch.testing.assert_close(compiled(x), torch.relu(x @ x), rtol=1e-4, atol=1e-4)
    assert teams == []


def test_a_short_program_that_follows_at_once_does(teams):
    """The team's threads still spin, as after the backward pass when the optimizer's step begins."""
    compiled, x = torch.compile(lambda x: torch.relu(x @ x), backend=backend), torch.randn(160, 160)
    compiled(x)
    for _ in range(200):  # a call on a busy machine may come too late
        pools._pool.put("used", time.monotonic_ns())
        torch.testing.assert_close(compiled(x), torch.relu(x @ x), rtol=1e-4, atol=1e-4)
        if teams:
            break
    assert set(teams) == {2}


def test_a_program_on_another_number_of_threads_does_not(teams):
    layers, x = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(3)]), torch.randn(256, 512)
    torch.testing.assert_close(torch.compile(layers, backend=backend, options={"threads": 3})(x), layers(x), rtol=1e-4, atol=1e-4)
    assert teams == []


def test_a_forked_child_has_no_team(teams):
    child = os.fork()
    if not child:
        pools.borrow(*private.openmp(), 2)
        os._exit(pools._pool.word("size").value != 0 or pools._lender != ())
    assert os.waitpid(child, 0)[1] == 0 and pools._pool.word("size").value == 2
