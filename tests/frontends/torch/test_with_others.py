"""Compiled modules among threads, in processes that were forked, under torch.func, and in transformers' generation."""

import threading

import pytest
import torch
import transformers
from torch.func import functional_call, grad, vmap

import ngraph as ng
from ngraph.frontends.torch import backend


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    ng.torch.reset()


def test_threads_call_one_module():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    compiled = torch.compile(model, backend=backend, dynamic=True, options={"fallback": "error"})
    wrong = []

    def calls(k):
        draw = torch.Generator().manual_seed(k)
        with torch.no_grad():
            for i in range(20):
                x = torch.randn(2 + (i + k) % 5, 4, generator=draw)
                if not torch.allclose(compiled(x), model(x), atol=1e-5):
                    wrong.append((k, i))

    threads = [threading.Thread(target=calls, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and ng.torch.report().ours > 0


class Mapped(torch.utils.data.Dataset):
    """Rows that a compiled module makes, in workers that were forked after it was compiled."""

    def __init__(self, call):
        self.call = call

    def __len__(self):
        return 6

    def __getitem__(self, k):
        with torch.no_grad():
            return self.call(torch.full((2, 4), float(k)))


def test_workers_of_a_data_loader_call_what_was_compiled_before():
    layer = torch.nn.Linear(4, 3)
    data = Mapped(torch.compile(layer, backend=backend, options={"fallback": "error"}))
    data[0]
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=120)
    with torch.no_grad():
        torch.testing.assert_close(torch.cat(list(loader)), layer(torch.arange(6.0)[:, None, None].expand(6, 2, 4)))


def test_functions_of_torch_func_are_compiled():
    layer, x = torch.nn.Linear(4, 3), torch.randn(5, 4)
    parameters = dict(layer.named_parameters())

    def loss(parameters, x):
        return functional_call(layer, parameters, (x,)).square().sum()

    for f, takes in (
        (grad(loss), (parameters, x)),
        (vmap(grad(loss), (None, 0)), (parameters, x)),
        (vmap(lambda x: layer(x).softmax(0)), (x,)),
    ):
        compiled = torch.compile(f, backend=backend, fullgraph=True, options={"fallback": "error"})
        torch.testing.assert_close(compiled(*takes), f(*takes))


def test_generation_with_a_static_cache():
    config = transformers.GPT2Config(
        vocab_size=40, n_embd=8, n_layer=1, n_head=2, n_positions=32, bos_token_id=1, eos_token_id=2, pad_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    ids, how = torch.randint(3, 40, (2, 5)), {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "disable_compile": True}
    wanted = model.generate(ids, cache_implementation="static", **how)
    model.forward = torch.compile(model.forward, backend=backend, options={"fallback": "error"})
    assert torch.equal(model.generate(ids, cache_implementation="static", **how), wanted)
    assert not ng.torch.report().in_torch and not ng.torch.report().breaks
