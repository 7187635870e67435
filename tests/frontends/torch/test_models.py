"""Models of transformers, of random small configurations: wholly ours, equal to eager, in inference and in training."""

import copy
import random
import subprocess
import sys

import pytest
import torch
import transformers

from ngraph.frontends.torch import backend, report, reset


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    reset()


def bert(draw):
    heads = draw.choice([1, 2, 3])
    return transformers.BertModel(
        transformers.BertConfig(
            vocab_size=draw.randint(20, 50),
            hidden_size=heads * draw.choice([4, 5]),
            num_hidden_layers=draw.randint(1, 2),
            num_attention_heads=heads,
            intermediate_size=draw.randint(5, 30),
        )
    )


def gpt2(draw):
    heads = draw.choice([1, 2, 3])
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=41, n_embd=heads * 4, n_layer=draw.randint(1, 2), n_head=heads, n_positions=32, bos_token_id=1, eos_token_id=2
        )
    )


def distilbert(draw):
    heads = draw.choice([1, 2, 3])
    return transformers.DistilBertModel(
        transformers.DistilBertConfig(
            vocab_size=41, dim=heads * 4, n_layers=draw.randint(1, 2), n_heads=heads, hidden_dim=draw.randint(5, 30)
        )
    )


def resnet(draw):
    sizes = [draw.choice([4, 6]), draw.choice([8, 9])]
    return transformers.ResNetForImageClassification(
        transformers.ResNetConfig(embedding_size=4, hidden_sizes=sizes, depths=[1, draw.randint(1, 2)], layer_type="basic", num_labels=3)
    )


def convnext(draw):
    return transformers.ConvNextForImageClassification(
        transformers.ConvNextConfig(hidden_sizes=[draw.choice([4, 6]), 8], depths=[1, draw.randint(1, 2)], num_stages=2, num_labels=3)
    )


def inputs_of(name, model, draw):
    if name in ("resnet", "convnext"):
        return {"pixel_values": torch.randn(draw.randint(1, 2), 3, 32, draw.choice([32, 40]))}
    batch, length = draw.randint(1, 3), draw.randint(3, 11)
    ids = torch.randint(0, model.config.vocab_size, (batch, length))
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[-1, length // 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("make", [bert, gpt2, distilbert, resnet, convnext], ids=lambda f: f.__name__)
def test_inference_is_wholly_ours(make):
    draw = random.Random(make.__name__)
    model = make(draw).eval()
    given = inputs_of(make.__name__, model, draw)
    more = {"use_cache": False} if make is gpt2 else {}
    with torch.no_grad():
        wanted = model(**given, **more)
        found = torch.compile(model, backend=backend, fullgraph=True, options={"fallback": "error"})(**given, **more)
    for key, value in wanted.items():
        torch.testing.assert_close(found[key], value, rtol=1e-4, atol=2e-5)
        assert found[key].stride() == value.stride()
    seen = report()
    assert seen.in_torch == {} and seen.breaks == [] and seen.ours > 10
    assert [g.made.calls for f in seen.functions for g in f.graphs] == [1]


def test_ten_steps_of_adamw_give_the_losses_of_eager():
    config = transformers.BertConfig(
        vocab_size=31, hidden_size=12, num_hidden_layers=1, num_attention_heads=3, intermediate_size=20, hidden_dropout_prob=0.0
    )
    config.attention_probs_dropout_prob, config.problem_type = 0.0, "single_label_classification"
    model = transformers.BertForSequenceClassification(config).train()
    given = inputs_of("bert", model, random.Random(1))
    labels = torch.arange(len(given["input_ids"])) % 2

    def train(model, call):
        optimizer, losses = torch.optim.AdamW(model.parameters(), 1e-2), []
        for _ in range(10):
            optimizer.zero_grad()
            loss = call(**given, labels=labels).loss
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    other = copy.deepcopy(model)
    wanted = train(model, model)
    found = train(other, torch.compile(other, backend=backend, options={"fallback": "error"}))
    assert wanted[-1] < wanted[0] - 0.01
    assert max(abs(a - b) for a, b in zip(wanted, found, strict=True)) < 1e-4
    seen = report()
    assert [g.kind for f in seen.functions for g in f.graphs] == ["forward", "backward"]
    assert seen.in_torch == {} and seen.breaks == []
    assert [g.made.calls for f in seen.functions for g in f.graphs] == [10, 10]


def test_convolutions_train_and_move_their_statistics():
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 16, 3, stride=2, groups=2),
        torch.nn.GroupNorm(4, 16),
        torch.nn.AvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(5),
    ).train()
    x = torch.randn(2, 3, 17, 16, requires_grad=True)
    model(x.detach())
    other = copy.deepcopy(model)
    model(x).sin().sum().backward()
    wanted, x.grad = x.grad, None
    torch.compile(other, backend=backend, options={"fallback": "error"})(x).sin().sum().backward()
    torch.testing.assert_close(x.grad, wanted, rtol=1e-4, atol=1e-5)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-5)
    for p, q in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(q, p)
    assert report().ours > 50


def test_many_lengths_are_compiled_once():
    draw = random.Random(3)
    config = transformers.BertConfig(vocab_size=31, hidden_size=12, num_hidden_layers=1, num_attention_heads=3, intermediate_size=20)
    model = transformers.BertModel(config).eval()
    compiled = torch.compile(model, backend=backend, dynamic=True, options={"fallback": "error"})
    seen = set()
    with torch.no_grad():
        while len(seen) < 50:
            shape = draw.randint(2, 9), draw.randint(2, 19)
            seen.add(shape)
            ids = torch.randint(0, model.config.vocab_size, shape)
            mask = torch.ones(shape, dtype=torch.long)
            mask[0, shape[1] // 2 :] = 0
            wanted = model(ids, attention_mask=mask).last_hidden_state
            torch.testing.assert_close(compiled(ids, attention_mask=mask).last_hidden_state, wanted, rtol=1e-4, atol=2e-5)
    assert 1 <= len(report().functions) <= 2
    assert sum(g.made.calls for f in report().functions for g in f.graphs) >= 50


@pytest.mark.parametrize("kind", ["SGD", "AdamW", "RMSprop", "Adagrad"])
def test_an_optimizer_step_is_compiled(kind):
    """One graph that writes parameters and state where they lie; `state_dict` stays torch's."""
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))
    ours = copy.deepcopy(plain)
    named = {"SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}}.get(kind, {})
    optimizers = [getattr(torch.optim, kind)(net.parameters(), 0.05, **named) for net in (plain, ours)]
    steps = optimizers[0].step, torch.compile(optimizers[1].step, backend=backend)
    for _ in range(6):
        x = torch.randn(4, 5)
        for net, optimizer, step in zip((plain, ours), optimizers, steps, strict=True):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            step()
        for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)  # AdamW divides by the root of what may be near 0
    assert not report().in_torch
    for a, b in zip(*[o.state_dict()["state"].values() for o in optimizers], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, float("inf")])
def test_a_step_that_clips_gradients_is_compiled(norm):
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))
    ours = copy.deepcopy(plain)

    def stepper(net):
        optimizer = torch.optim.SGD(net.parameters(), 0.5)

        def step():
            found = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1, norm)
            optimizer.step()
            return found

        return step

    steps = stepper(plain), torch.compile(stepper(ours), backend=backend)
    for _ in range(3):
        x, norms = torch.randn(4, 5), []
        for net, step in zip((plain, ours), steps, strict=True):
            net.zero_grad()
            (net(x) * 9).square().mean().backward()
            norms.append(step())
        assert norms[0] > 0.1
        torch.testing.assert_close(norms[1], norms[0])
        for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(a, b)
            torch.testing.assert_close(a.grad, b.grad)
    assert not report().in_torch


LISTS = {
    "mul by a number": lambda a, b: torch._foreach_mul(a, 2.5),
    "mul by numbers": lambda a, b: torch._foreach_mul(a, [2.5, -1.0, 3.0, 0.5]),
    "mul by a tensor": lambda a, b: torch._foreach_mul(a, torch.tensor(2.5)),
    "add with alpha": lambda a, b: torch._foreach_add(a, b, alpha=0.3),
    "addcdiv": lambda a, b: torch._foreach_addcdiv(a, b, [x.abs() + 1 for x in b], [1.0, 2.0, 3.0, 4.0]),
    "lerp": lambda a, b: torch._foreach_lerp(a, b, 0.3),
    "pow of a number": lambda a, b: torch._foreach_pow(2.0, a),
    "written": lambda a, b: (torch._foreach_mul_(a, b), torch._foreach_exp_(a), a)[2],
}


@pytest.mark.parametrize("name", LISTS)
def test_ops_over_lists_of_tensors(name):
    lists = [[torch.randn(3, 4), torch.randn(5), torch.randn(4, 3).T, torch.randn(0, 2)] for _ in range(2)]
    given = copy.deepcopy(lists)
    wanted = LISTS[name](*lists)
    found = torch.compile(LISTS[name], backend=backend, fullgraph=True, options={"fallback": "error"})(*given)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(given, lists)


def test_the_example_trains():
    made = subprocess.run([sys.executable, "examples/torch_finetune.py", "--quick"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert "3 graphs" in made.stdout and " 0 in torch, 0 breaks, 0 recompiles" in made.stdout
