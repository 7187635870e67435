"""`compile_step`: the losses, parameters, buffers and optimizer states of eager."""

import copy

import pytest
import torch
import transformers

import ngraph as ng
from ngraph.errors import ArgumentError, BoundsError, SettingError, UnsupportedError
from ngraph.frontends.torch import report, reset


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    reset()


def perceptron():
    return torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 4))


def batches(count, size=5):
    return [(torch.randn(size, 6), torch.randint(4, (size,))) for _ in range(count)]


def eager(model, loss, optimizer, batch, clip=None):
    optimizer.zero_grad()
    found = loss(model(*batch[:-1]), batch[-1])
    found.backward()
    if clip is not None:
        clip(model.parameters())
    optimizer.step()
    return found.item()


def same_state(ours, theirs, rtol=1e-4, atol=1e-5):
    """The state dicts of two optimizers have the same keys and values."""
    a, b = ours.state_dict(), theirs.state_dict()
    assert a["param_groups"] == b["param_groups"] and a["state"].keys() == b["state"].keys()
    for k, state in b["state"].items():
        assert a["state"][k].keys() == state.keys()
        for name, t in state.items():
            if t is not None:
                torch.testing.assert_close(a["state"][k][name], t, rtol=rtol, atol=atol)


OPTIMIZERS = {
    "SGD": {"momentum": 0.9, "dampening": 0.2, "weight_decay": 0.01},
    "SGD plain": {},
    "SGD nesterov": {"momentum": 0.9, "nesterov": True, "maximize": True},
    "Adam": {"amsgrad": True, "weight_decay": 0.1},
    "AdamW": {},
    "Adagrad": {"lr_decay": 0.1, "weight_decay": 0.1},
    "RMSprop": {"centered": True, "momentum": 0.9},
    "NAdam": {"decoupled_weight_decay": True, "weight_decay": 0.1},
    "Adafactor": {"weight_decay": 0.1},
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_every_optimizer(kind):
    plain = perceptron()
    ours = copy.deepcopy(plain)
    made = [getattr(torch.optim, kind.split()[0])(net.parameters(), 0.02, **OPTIMIZERS[kind]) for net in (plain, ours)]
    loss = torch.nn.CrossEntropyLoss()
    step = ng.torch.compile_step(ours, loss, made[1])
    at = [p.data_ptr() for p in ours.parameters()]
    for batch in batches(5):
        assert abs(eager(plain, loss, made[0], batch) - step(*batch).item()) < 1e-5
    for p, q in zip(plain.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-5)
    assert [p.data_ptr() for p in ours.parameters()] == at and all(p.grad is None for p in ours.parameters())
    same_state(made[1], made[0])
    assert [g.made.calls for f in report().functions for g in f.graphs] == [5] and not report().in_torch


@pytest.mark.parametrize(
    "given", [{"weight_decay": 0.1}, {"foreach": True, "maximize": True, "eps": (1e-8, 1e-2)}, {"lr": torch.tensor(0.02)}]
)
def test_the_step_of_adafactor_is_one_graph(given):
    """PyTorch's own asks values, and Dynamo compiles nothing of it."""
    nets = [perceptron()]
    nets.append(copy.deepcopy(nets[0]))
    made = [torch.optim.Adafactor(net.parameters(), **copy.deepcopy({"lr": 0.02, **given})) for net in nets]
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(o, 0.8) for o in made]
    steps = made[0].step, torch.compile(made[1].step, backend=ng.torch.backend, options={"fallback": "error"})
    for x, y in batches(4):
        for net, optimizer, step, scheduler in zip(nets, made, steps, schedulers, strict=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            step()
            scheduler.step()
    for p, q in zip(*[net.parameters() for net in nets], strict=True):
        torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-6)
    same_state(made[1], made[0])
    assert 0 < len(report().functions) <= 2 and not report().breaks  # the rate of the second step is open
    assert not any("adafactor" in row["function"] for row in report().skipped)


def test_schedulers_groups_and_state_that_is_loaded():
    plain = perceptron()
    ours = copy.deepcopy(plain)

    def optimizer(net):
        return torch.optim.AdamW([{"params": net[0].parameters(), "lr": 0.01}, {"params": net[2].parameters(), "weight_decay": 0.0}], 0.02)

    made = [optimizer(net) for net in (plain, ours)]
    schedulers = [torch.optim.lr_scheduler.OneCycleLR(o, [0.05, 0.02], total_steps=12) for o in made]  # moves betas, too
    loss = torch.nn.CrossEntropyLoss()
    step = ng.torch.compile_step(ours, loss, made[1])
    for k, batch in enumerate(batches(8)):
        if k == 4:  # both go on from what was saved
            for net, o in zip((plain, ours), made, strict=True):
                o.load_state_dict(copy.deepcopy(o.state_dict()))
                net.load_state_dict({name: t * 0.5 for name, t in net.state_dict().items()})
        assert abs(eager(plain, loss, made[0], batch) - step(*batch).item()) < 1e-5
        for s in schedulers:
            s.step()
    same_state(made[1], made[0])
    assert len(report().functions[0].graphs) == 1  # nothing was compiled again


def test_what_decides_the_form_is_compiled_anew():
    plain = perceptron()
    ours = copy.deepcopy(plain)
    made = [torch.optim.SGD(net.parameters(), 0.1) for net in (plain, ours)]
    loss = torch.nn.CrossEntropyLoss()
    step = ng.torch.compile_step(ours, loss, made[1])
    for k, batch in enumerate(batches(4)):
        for o in made:
            o.param_groups[0]["weight_decay"] = 0.1 * (k % 2)
        assert abs(eager(plain, loss, made[0], batch) - step(*batch).item()) < 1e-5
    assert len(report().functions[0].graphs) == 2


@pytest.mark.parametrize("way", ["clip_norm", "clip_value"])
def test_clipping(way):
    plain = perceptron()
    ours = copy.deepcopy(plain)
    made = [torch.optim.SGD(net.parameters(), 0.5) for net in (plain, ours)]
    clip = torch.nn.utils.clip_grad_norm_ if way == "clip_norm" else torch.nn.utils.clip_grad_value_
    loss = torch.nn.CrossEntropyLoss()
    step = ng.torch.compile_step(ours, loss, made[1], **{way: 0.05})
    for batch in batches(4):
        assert abs(eager(plain, loss, made[0], batch, lambda ps: clip(ps, 0.05)) - step(*batch).item()) < 1e-5
    for p, q in zip(plain.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-6)


class Double(torch.autograd.Function):
    """A function with a gradient of its own."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, dy):
        return dy * 2


class Odd(torch.nn.Module):
    """Tied, frozen and unused parameters; a buffer that is written; gradients that are not those of the values."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(7, 5, padding_idx=0)
        self.norm = torch.nn.BatchNorm1d(5)
        self.frozen = torch.nn.Linear(5, 5).requires_grad_(False)
        self.unused = torch.nn.Linear(2, 2)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, ids):
        self.count.add_(1)
        x = self.norm(self.words(ids).sum(1))
        with torch.no_grad():
            scale = x.abs().mean()
        x = Double.apply(self.frozen(x) * 3) / (scale + 1) + x.detach()
        return x @ self.words.weight.t()


def test_what_autograd_makes_of_a_model():
    plain = Odd().train()
    ours = copy.deepcopy(plain)
    made = [torch.optim.Adam(net.parameters(), 0.05) for net in (plain, ours)]
    loss = torch.nn.CrossEntropyLoss()
    step = ng.torch.compile_step(ours, loss, made[1])
    for _ in range(4):
        batch = torch.randint(7, (6, 3)), torch.randint(7, (6,))
        assert abs(eager(plain, loss, made[0], batch) - step(*batch).item()) < 1e-5
    for (name, p), q in zip(plain.state_dict().items(), ours.state_dict().values(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-5, msg=name)
    assert ours.count == 4 and len(made[1].state) == len(made[0].state)


def bert():
    config = transformers.BertConfig(
        vocab_size=31, hidden_size=12, num_hidden_layers=1, num_attention_heads=3, intermediate_size=20, hidden_dropout_prob=0.0
    )
    config.attention_probs_dropout_prob, config.problem_type = 0.0, "single_label_classification"
    return transformers.BertForSequenceClassification(config), {"input_ids": torch.randint(31, (3, 8)), "labels": torch.tensor([0, 1, 1])}


def gpt2():
    config = transformers.GPT2Config(vocab_size=31, n_embd=12, n_layer=1, n_head=3, n_positions=16, bos_token_id=1, eos_token_id=2)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    config.use_cache = False
    ids = torch.randint(31, (2, 9))
    model = transformers.GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # else the model logs that it takes this one
    return model, {"input_ids": ids, "labels": ids}


def resnet():
    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[6, 8], depths=[1, 1], layer_type="basic", num_labels=3)
    config.problem_type = "single_label_classification"
    return transformers.ResNetForImageClassification(config), {"pixel_values": torch.randn(3, 3, 32, 32), "labels": torch.arange(3)}


@pytest.mark.parametrize("make", [bert, gpt2, resnet], ids=lambda f: f.__name__)
def test_twenty_steps_give_the_losses_of_eager(make):
    model, batch = make()
    plain = model.train()
    ours = copy.deepcopy(plain)
    kind = torch.optim.AdamW if make is bert else torch.optim.SGD  # a program of many small updates takes long to compile
    made = [kind(net.parameters(), 2e-3 if make is bert else 0.05) for net in (plain, ours)]
    step = ng.torch.compile_step(ours, None, made[1])
    losses = []
    for _ in range(20):
        made[0].zero_grad()
        loss = plain(**batch).loss
        loss.backward()
        made[0].step()
        losses.append((loss.item(), step(**batch).item()))
    assert max(abs(a - b) for a, b in losses) < 1e-4 and losses[-1][0] < losses[0][0] - 0.01
    for (name, p), q in zip(plain.named_buffers(), ours.buffers(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-5, msg=name)


def test_many_steps_in_one_process():
    """Dynamo compiles each as its own function: none counts as a compilation anew of another."""
    for _ in range(10):
        net = torch.nn.Linear(6, 4)
        ng.torch.compile_step(net, torch.nn.CrossEntropyLoss(), torch.optim.SGD(net.parameters(), 0.1))(*batches(1)[0])
    assert not report().recompiles and len(report().functions) == 10


def test_what_cannot_be_compiled_is_an_error():
    net, loss = perceptron(), torch.nn.CrossEntropyLoss()
    with pytest.raises(UnsupportedError, match="LBFGS"):
        ng.torch.compile_step(net, loss, torch.optim.LBFGS(net.parameters()))
    with pytest.raises(ArgumentError, match="optimizer"):
        ng.torch.compile_step(net, loss, 0.1)
    with pytest.raises(ArgumentError, match="clip_norm"):
        ng.torch.compile_step(net, loss, torch.optim.SGD(net.parameters()), clip_norm=0)
    with pytest.raises(SettingError, match="threds"):
        ng.torch.compile_step(net, loss, torch.optim.SGD(net.parameters()), options={"threds": 1})
    other = perceptron()
    with pytest.raises(Exception, match="no parameter of the optimizer"):
        ng.torch.compile_step(net, loss, torch.optim.SGD(other.parameters()))(*batches(1)[0])
    with pytest.raises(Exception, match="embedding_bag"):

        def odd(y, t):
            return loss(y, t) + torch.nn.functional.embedding_bag(t[None], y, scale_grad_by_freq=True).sum()

        ng.torch.compile_step(net, odd, torch.optim.SGD(net.parameters()))(*batches(1)[0])
    net[0].weight.register_hook(lambda g: g * 2)
    with pytest.raises(Exception, match="hooks"):
        ng.torch.compile_step(net, loss, torch.optim.SGD(net.parameters()))(*batches(1)[0])


@pytest.mark.parametrize(
    "loss, says",
    [
        (lambda y, t: (y - t).square(), r"the shape \[32, 4\]"),
        (None, r"the shape \[32, 4\]"),
        (lambda y, t: 3.0, "no tensor"),
        (lambda y, t: (y > t).sum(), "int64, has no derivative"),
        (lambda y, t: (y - t).square().mean().detach(), "float32, has no derivative"),
    ],
)
def test_a_loss_that_is_no_number_with_a_derivative_is_an_error_that_says_what_it_is(loss, says):
    net = torch.nn.Linear(6, 4)
    step = ng.torch.compile_step(net, loss, torch.optim.SGD(net.parameters(), 0.1))
    with pytest.raises(Exception, match=says):
        step(*[torch.ones(32, 6), torch.ones(32, 4)][: 1 + (loss is not None)])


@pytest.mark.parametrize("name, given", [("model", "net"), ("loss", 3), ("clip_norm", "1")])
def test_arguments_of_another_kind_are_named(name, given):
    net = torch.nn.Linear(6, 4)
    right = {"model": net, "loss": torch.nn.MSELoss(), "optimizer": torch.optim.SGD(net.parameters(), 0.1)}
    with pytest.raises(ArgumentError, match=f"{name} is {given!r}"):
        ng.torch.compile_step(**{**right, name: given})


def test_a_step_whose_values_decide_a_length_is_an_error_that_names_the_op():
    net = torch.nn.Linear(6, 4)
    loss, optimizer = (lambda y: y[y > 0].sum()), torch.optim.SGD(net.parameters(), 0.1)
    with (
        torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True),
        pytest.raises(Exception, match=r"(?s)one program.*aten\.nonzero"),
    ):
        ng.torch.compile_step(net, loss, optimizer)(torch.ones(32, 6))


def beyond(y):
    return y[torch.tensor([0, 40])].sum()


@pytest.mark.parametrize(
    "loss, says",
    [
        (lambda y: torch.fft.fft(y).abs().sum(), "torch would run"),
        (beyond, "index 40 is out of bounds"),
        (lambda y: y * 2, "the loss has the shape"),
    ],
)
def test_errors_of_a_step_begin_with_the_users_line(loss, says):
    net = torch.nn.Linear(6, 4)
    step = ng.torch.compile_step(net, loss, torch.optim.SGD(net.parameters(), 0.1))
    with pytest.raises(Exception, match=rf"test_training\.py:{loss.__code__.co_firstlineno + (loss is beyond)}: {says}"):
        step(torch.ones(32, 6))


def test_an_error_in_a_loss_of_pytorch_begins_with_the_line_that_made_the_step():
    net = torch.nn.Linear(6, 4)
    step = ng.torch.compile_step(net, torch.nn.CrossEntropyLoss(), torch.optim.SGD(net.parameters(), 0.1))
    line = test_an_error_in_a_loss_of_pytorch_begins_with_the_line_that_made_the_step.__code__.co_firstlineno + 2
    with pytest.raises(BoundsError, match=rf"test_training\.py:{line}: index 9 is out of bounds"):
        step(torch.ones(2, 6), torch.tensor([1, 9]))


# ---- random masks, recurrent layers, layers used twice


def test_masks_are_drawn_anew_and_manual_seed_repeats():
    x, y = torch.randn(16, 8), torch.randn(16, 1)

    def losses(seed):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Dropout(0.5), torch.nn.Linear(64, 1))
        torch.manual_seed(seed)
        step = ng.torch.compile_step(model, torch.nn.MSELoss(), torch.optim.SGD(model.parameters(), 0.0))
        return [step(x, y).item() for _ in range(4)]

    first = losses(1)
    assert len(set(first)) == 4 and losses(1) == first and losses(2) != first
    graphs = [f.graphs[0] for f in report().functions]
    assert [g.segments for g in graphs] == [1] * 3 and not report().in_torch


def test_the_backward_pass_has_the_mask_of_the_forward_pass():
    model = torch.nn.Sequential(torch.nn.Linear(3, 50, bias=False), torch.nn.Dropout(0.5))
    before = model[0].weight.detach().clone()
    ng.torch.compile_step(model, lambda y: y.sum(), torch.optim.SGD(model.parameters(), 1.0))(torch.ones(1, 3))
    slopes = (before - model[0].weight.detach()).round()
    assert sorted(slopes.unique().tolist()) == [0.0, 2.0] and torch.equal(slopes[:, 0], slopes[:, 2])


class Last(torch.nn.Module):
    """The last output of a recurrent layer, as a number."""

    def __init__(self, kind, **options):
        super().__init__()
        self.layer = getattr(torch.nn, kind)(4, 6, batch_first=True, **options)
        self.out = torch.nn.Linear(12 if options.get("bidirectional") else 6, 1)

    def forward(self, x):
        return self.out(self.layer(x)[0][:, -1])


class Twice(torch.nn.Module):
    """A convolution and a recurrent layer, both used twice, the second time on what the first gave."""

    def __init__(self):
        super().__init__()
        self.conv, self.layer = torch.nn.Conv1d(4, 4, 3, padding=1), torch.nn.GRU(4, 4, batch_first=True)

    def forward(self, x):
        x = self.conv(torch.tanh(self.conv(x.mT))).mT
        return self.layer(self.layer(x)[0])[0][:, -1, :1]


@pytest.mark.parametrize("make", [lambda: Last("LSTM", num_layers=2), lambda: Last("RNN", bidirectional=True), Twice])
def test_recurrent_layers_and_layers_that_are_used_twice(make):
    model = make()
    twin = copy.deepcopy(model)
    ours, theirs = [torch.optim.SGD(m.parameters(), 0.5, momentum=0.9) for m in (model, twin)]
    step = ng.torch.compile_step(model, torch.nn.MSELoss(), ours)
    for _ in range(3):
        batch = torch.randn(3, 7, 4), torch.randn(3, 1)
        assert step(*batch).item() == pytest.approx(eager(twin, torch.nn.MSELoss(), theirs, batch), rel=1e-4)
    for p, r in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, r, rtol=1e-4, atol=1e-5)
    assert not report().in_torch


def test_a_grad_scaler_is_no_optimizer():
    with pytest.raises(ArgumentError, match="not GradScaler") as raised:
        ng.torch.compile_step(perceptron(), torch.nn.CrossEntropyLoss(), torch.amp.GradScaler("cpu"))
    assert "bfloat16 needs no scaling" in str(raised.value)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_gradients_of_several_batches_make_one_update(kind):
    """Batches of two shapes; a scheduler counts updates, and the state_dicts are eager's after each call."""
    ours, theirs = (torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    mine, wanted = kind(ours.parameters(), 0.1), kind(theirs.parameters(), 0.1)
    loss = torch.nn.CrossEntropyLoss()
    step = ng.torch.compile_step(ours, loss, mine, clip_norm=0.5, batches=3)
    for k in range(9):
        x, y = torch.randn(2 + k % 2, 4), torch.randint(0, 3, (2 + k % 2,))
        expected = loss(theirs(x), y)
        (expected / 3).backward()
        if k % 3 == 2:
            torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
            wanted.step()
            wanted.zero_grad()
        torch.testing.assert_close(step(x, y), expected, rtol=1e-5, atol=1e-5)
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
    assert all(p.grad is None for p in ours.parameters())
    with pytest.raises(ArgumentError, match="whole number"):
        ng.torch.compile_step(ours, loss, mine, batches=0)


@pytest.mark.parametrize("batches", [1, 2])
def test_parameters_that_the_loss_does_not_read_have_no_state(batches):
    """Their layer is in the graph, for what it gives beside: eager has no gradient of it."""

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.beside, self.read = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.beside(x), self.read(x)

    ours = Both()
    theirs, before = copy.deepcopy(ours), ours.beside.weight.detach().clone()
    optimizers = [torch.optim.AdamW(m.parameters(), 0.1, weight_decay=0.5) for m in (ours, theirs)]
    step = ng.torch.compile_step(ours, lambda y: y[1].square().mean(), optimizers[0], batches=batches)
    for _ in range(2):
        x = torch.randn(3, 4)
        step(x)
        (theirs(x)[1].square().mean() / batches).backward()
        if batches == 1:
            optimizers[1].step()
            optimizers[1].zero_grad()
    if batches == 2:
        optimizers[1].step()
    assert torch.equal(ours.beside.weight, before)
    torch.testing.assert_close(ours.read.weight, theirs.read.weight)
    states = [o.state_dict()["state"] for o in optimizers]
    assert states[0].keys() == states[1].keys() == {2, 3}
    torch.testing.assert_close(states[0], states[1])
