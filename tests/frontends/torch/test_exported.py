"""Exported programs, `.pt2`: their answers, lengths, parameters, written buffers; files that carry code, and damaged ones."""

import io
import json
import pickle
import random
import subprocess
import sys
import zipfile

import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from torch._higher_order_ops import scan
from torch.export import Dim, export

import ngraph as ng
from ngraph.errors import ArgumentError, BoundsError, FileError, NgraphError, ParseError, UnsupportedError
from ngraph.frontends.torch.exported import is_arithmetic
from ngraph.op_graph.op import ordered


def tokens(n, t):
    return torch.randint(0, 40, (n, t))


def bert():
    config = transformers.BertConfig(vocab_size=40, hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=17)
    feeds = lambda n, t: {"input_ids": tokens(n, t), "attention_mask": torch.ones(n, t, dtype=torch.int64).tril(t - 2)}
    return transformers.BertModel(config), feeds


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=40, n_embd=8, n_layer=2, n_head=2, n_positions=32, use_cache=False, bos_token_id=1, eos_token_id=2
    )
    return transformers.GPT2LMHeadModel(config), lambda n, t: {"input_ids": tokens(n, t)}


def resnet():
    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4, 6], depths=[1, 1])
    return transformers.ResNetModel(config), lambda n, t: {"pixel_values": torch.randn(n, 3, 30, 30)}


def eager(model, feeds):
    with torch.no_grad():
        return {k: v.numpy() for k, v in model(**feeds).items() if isinstance(v, torch.Tensor)}


def arrays(feeds):
    return {k: v.numpy() for k, v in feeds.items()}


@pytest.mark.parametrize("make", [bert, gpt2, resnet])
def test_a_program_gives_the_answers_of_eager(make, tmp_path):
    """One reading serves all lengths that were exported open, and the written ONNX file says the same."""
    torch.manual_seed(0)
    model, draw = make()
    model.eval()
    feeds = draw(2, 7)
    batch, time = Dim("batch", max=64), Dim("time", max=30)
    dims = {name: {0: batch, 1: time} if x.ndim == 2 else {0: batch} for name, x in feeds.items()}
    path = tmp_path / "m.pt2"
    torch.export.save(export(model, (), kwargs=feeds, dynamic_shapes=dims), path)
    loaded = ng.torch.load(path)
    for n, t in ((2, 7), (5, 13), (1, 2), (3, 1)):
        feeds = draw(n, t)
        got, want = loaded.run(arrays(feeds)), eager(model, feeds)
        assert got.keys() == want.keys()
        for name, array in want.items():
            np.testing.assert_allclose(got[name], array, rtol=2e-5, atol=2e-5)
    assert not loaded.fixed and not loaded.host_callbacks
    ng.onnx.save(loaded, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    feeds = draw(4, 6)
    for array, want in zip(session.run(None, arrays(feeds)), eager(model, feeds).values(), strict=True):
        np.testing.assert_allclose(array, want, rtol=2e-5, atol=2e-5)


class Signs(torch.nn.Module):
    """Ops whose results have the sign of a zero, as positions of images and angles compute them."""

    def forward(self, x, y):
        floor = torch.div(x, y, rounding_mode="floor")
        return floor, torch.fmod(x, y), torch.copysign(y, x), torch.signbit(x), x.view(torch.int32) + 1


def test_ops_that_see_signs_of_zeros_are_written_to_onnx_files(tmp_path):
    numbers = torch.tensor([0.0, -0.0, 1, -1, 2.5, -2.5, 7, -7, float("inf"), -float("inf"), 1e-3, -3])
    x, y = (a.reshape(-1) for a in torch.meshgrid(numbers, numbers, indexing="ij"))
    loaded = ng.torch.load(export(Signs(), (x, y)))
    ng.onnx.save(loaded, tmp_path / "m.onnx")
    there = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x.numpy(), "y": y.numpy()})
    for here, other, want in zip(loaded(x.numpy(), y.numpy()), there, Signs()(x, y), strict=True):
        np.testing.assert_array_equal(other, want.numpy())  # ONNX Runtime's Where loses the signs of zeros
        np.testing.assert_array_equal(here, want.numpy())
        finite = want.isfinite().numpy()
        np.testing.assert_array_equal(np.signbit(here[finite]), np.signbit(want.numpy()[finite]))


class Small(torch.nn.Module):
    """Tied weights, a buffer that training writes, a nest of results with a length in it."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5)
        self.table, self.out = torch.nn.Embedding(7, 4), torch.nn.Linear(4, 7, bias=False)
        self.out.weight = self.table.weight

    def forward(self, x, at):
        return {"y": self.norm(self.linear(x)), "more": (self.out(self.table(at)), x.shape[0])}


def small(train=True):
    torch.manual_seed(0)
    model = Small().train(train)
    return model, export(model, (torch.randn(3, 4), torch.arange(5)), dynamic_shapes=({0: Dim("batch", min=2, max=64)}, None))


def test_buffers_are_written_and_nests_have_names():
    model, program = small()
    loaded = ng.torch.load(program)
    assert [p.name for p in loaded.outputs] == ["y", "more_0", "more_1"]
    for n in (3, 8, 2):
        x, at = torch.randn(n, 4), torch.randint(0, 7, (5,))
        want, got = model(x, at), loaded.run({"x": x.numpy(), "at": at.numpy()})
        np.testing.assert_allclose(got["y"], want["y"].detach(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got["more_0"], want["more"][0].detach(), rtol=1e-5, atol=1e-6)
        assert got["more_1"] == n
        for name, variable in loaded.variables.items():
            np.testing.assert_allclose(loaded.transformer.get(variable), model.get_buffer(name), rtol=1e-5, atol=1e-6)


def test_training_on_the_graph():
    """Parameters go by PyTorch's names, and tied ones are one variable."""
    model, program = small()
    loaded = ng.torch.load(program, trainable="*")
    graph = loaded.graph({"x": (6, 4), "at": (5,)})
    assert sorted(graph.variables) == sorted([*(n for n, _ in model.named_parameters()), *(n for n, _ in model.named_buffers())])
    loss = ng.mean(ng.square(graph.outputs["y"])) + ng.mean(ng.square(graph.outputs["more_0"]))
    names = [name for name, _ in model.named_parameters()]
    made = loaded.transformer.computation([loss, *[ng.deriv(loss, graph.variables[n]) for n in names]], *graph.inputs.values())
    x, at = torch.randn(6, 4), torch.tensor([1, 1, 0, 6, 3])
    got, *slopes = made(x.numpy(), at.numpy())
    results = model(x, at)
    want = results["y"].square().mean() + results["more"][0].square().mean()
    want.backward()
    np.testing.assert_allclose(got, want.item(), rtol=1e-5)
    for name, slope in zip(names, slopes, strict=True):
        np.testing.assert_allclose(slope, model.get_parameter(name).grad, rtol=1e-4, atol=1e-6, err_msg=name)


def test_wrong_inputs_are_said():
    _, program = small(train=False)
    loaded, at = ng.torch.load(program), np.arange(5)
    with pytest.raises(ArgumentError, match=r"dim 0 of x has length 1, and the program was exported for 2 to 64"):
        loaded.run({"x": np.zeros((1, 4), "f"), "at": at})
    with pytest.raises(BoundsError, match=r"(?s)index 7 is out of bounds.*indices='clip'"):
        loaded.run({"x": np.zeros((2, 4), "f"), "at": at + 5})
    with pytest.raises(ArgumentError, match="there is no input 'z'"):
        loaded.run({"x": np.zeros((2, 4), "f"), "at": at, "z": at})


@pytest.mark.parametrize("given", [3, [3], None])
def test_what_is_no_pattern_of_parameters_is_said(given):
    _, program = small(train=False)
    with pytest.raises(ArgumentError, match="trainable= takes a pattern of names"):
        ng.torch.load(program, trainable=given)


def test_all_that_has_no_translation_is_named():
    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.geqrf(x)[1] + torch.special.airy_ai(x).sum()

    with pytest.raises(UnsupportedError, match=r"(?s)2 kinds of nodes.*geqrf.*special_airy_ai.*test_exported\.py"):
        ng.torch.load(export(Odd(), (torch.ones(3, 3),)))(np.ones((3, 3), "f"))


def test_what_is_no_program(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        ng.torch.load(tmp_path / "none.pt2")
    with pytest.raises(ArgumentError, match=r"does not end in \.pt2"):
        ng.torch.load("model.pt")
    with pytest.raises(ArgumentError, match="not from Small"):
        ng.torch.load(Small())
    (tmp_path / "text.pt2").write_text("no archive")
    with pytest.raises(ParseError, match="not an exported program"):
        ng.torch.load(tmp_path / "text.pt2")


# ---- files --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("programs") / "small.pt2"
    torch.export.save(small(train=False)[1], path)
    return path


def changed(saved, path, change):
    """Writes the archive with its parts as `change` gives them, by name and content."""
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            for name, data in change(info.filename, old.read(info.filename)):
                new.writestr(name, data)
    return path


class Bomb:
    def __reduce__(self):
        return print, ("code of the file has run",)


def test_files_that_carry_code_are_refused(saved, tmp_path, capfd):
    bomb = io.BytesIO()
    torch.save((Bomb(),), bomb)

    def sample(name, data):
        yield name, bomb.getvalue() if "sample_inputs" in name else data

    def opaque(name, data):
        yield name, data
        if name.endswith("constants_config.json"):
            yield name.replace("model_constants_config.json", "opaque_obj_0"), pickle.dumps(Bomb())

    def weight(name, data):
        if name.endswith("weights_config.json"):
            config = json.loads(data)
            next(iter(config["config"].values()))["use_pickle"] = True
            data = json.dumps(config).encode()
        yield name, pickle.dumps(Bomb()) if name.endswith("weights/weight_0") else data

    def length(name, data):
        yield name, data.replace(b"Symbol('s77'", b"exec('print(1)') or Symbol('s77'") if name.endswith("model.json") else data

    def compiled(name, data):
        yield name, data
        if name.endswith("archive_version"):
            yield name.replace("archive_version", "data/aotinductor/model/x.so"), b""

    for k, change in enumerate((sample, opaque, weight, length, compiled)):
        with pytest.raises(UnsupportedError, match="carries"):
            ng.torch.load(changed(saved, tmp_path / f"{k}.pt2", change))
    assert "code of the file" not in capfd.readouterr().out


def test_damaged_files_are_said(saved, tmp_path):
    """No crash, and no error but ours; what was not damaged gives its answers."""
    draw, whole = random.Random(0), saved.read_bytes()
    with zipfile.ZipFile(saved) as archive:
        parts = {i.filename: archive.read(i.filename) for i in archive.infolist()}
    for k in range(24):
        path = tmp_path / f"{k}.pt2"
        if k % 3 == 0:
            path.write_bytes(whole[: draw.randrange(len(whole))])
        elif k % 3 == 1:
            data = bytearray(whole)
            for _ in range(3):
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            path.write_bytes(data)
        else:
            name = draw.choice([n for n in parts if n.endswith(".json")])
            data = bytearray(parts[name])
            data[draw.randrange(len(data))] = draw.randrange(32, 127)
            changed(saved, path, lambda n, old, name=name, data=data: [(n, bytes(data) if n == name else old)])
        try:
            loaded = ng.torch.load(path)
            loaded.run({"x": np.ones((3, 4), "f"), "at": np.arange(5)})
        except NgraphError as error:
            assert str(path.name) in str(error) or isinstance(error, (ParseError, UnsupportedError, ArgumentError)), error


def test_the_command_reads_programs(saved, tmp_path):
    """Also programs whose results are of classes that are not imported there."""
    torch.manual_seed(0)
    model, draw = bert()
    feeds = draw(2, 5)
    path, inputs, outputs = tmp_path / "m.pt2", tmp_path / "in.npz", tmp_path / "out.npz"
    torch.export.save(export(model.eval(), (), kwargs=feeds), path)
    np.savez(inputs, **arrays(feeds))
    run, convert = ["run", path, "--inputs", inputs, "--outputs", outputs], ["convert", path, tmp_path / "m.onnx"]
    for command in (run, convert, ["check", path]):
        made = subprocess.run([sys.executable, "-m", "ngraph", *map(str, command)], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
    with np.load(outputs) as got:
        for name, want in eager(model, feeds).items():
            np.testing.assert_allclose(got[name], want, rtol=2e-5, atol=2e-5)
    assert (tmp_path / "m.onnx").exists()


def test_lengths_with_factors_are_read_from_files(tmp_path):
    """The file says TruncToInt(1.5*ToFloat(s)) of the result's sides; what is no length is refused as before."""

    class Larger(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.interpolate(x, scale_factor=1.5, mode="bilinear")

    sides = {2: torch.export.Dim("h", min=4, max=64), 3: torch.export.Dim("w", min=4, max=64)}
    torch.export.save(torch.export.export(Larger(), (torch.rand(1, 2, 8, 12),), dynamic_shapes={"x": sides}), tmp_path / "m.pt2")
    loaded = ng.torch.load(tmp_path / "m.pt2")
    for size in ((8, 12), (11, 7), (5, 30)):
        x = torch.rand(1, 2, *size)
        (found,) = loaded.run(None, {"x": x.numpy()})
        np.testing.assert_allclose(found, Larger()(x), rtol=1e-5, atol=1e-6)
    assert is_arithmetic("Float('1.5', precision=53)") and not is_arithmetic("Float('os.x', precision=53)")


class Sides(torch.nn.Module):
    """Halves an image and doubles it again; a table as long as the rows may be."""

    def __init__(self):
        super().__init__()
        self.down, self.up = torch.nn.Conv2d(2, 3, 2, 2), torch.nn.ConvTranspose2d(3, 2, 2, 2)
        self.rows = torch.nn.Parameter(torch.randn(41, 1))

    def forward(self, x):
        return torch.cat([x, self.up(self.down(x).relu())], 1) + self.rows[: x.shape[2]]


def test_lengths_that_are_multiples_are_read_and_written_to_onnx_files(tmp_path):
    sides = {2: 2 * Dim("h", min=4, max=20), 3: 2 * Dim("w", min=4, max=20)}
    torch.manual_seed(0)
    model = Sides()
    program = export(model, (torch.rand(1, 2, 8, 12),), dynamic_shapes={"x": sides})
    torch.export.save(program, tmp_path / "m.pt2")
    for loaded in (ng.torch.load(program), ng.torch.load(tmp_path / "m.pt2")):
        ng.onnx.save(loaded, tmp_path / "m.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
        for size in ((8, 12), (40, 8), (10, 38)):
            x = torch.rand(1, 2, *size)
            (found,), (there,) = loaded.run(None, {"x": x.numpy()}), session.run(None, {"x": x.numpy()})
            np.testing.assert_allclose(found, model(x).detach(), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(there, model(x).detach(), rtol=1e-5, atol=1e-6)
        for size in ((9, 12), (42, 12), (6, 12)):
            with pytest.raises(ArgumentError, match="exported for 8 to 40, in steps of 2"):
                loaded.run(None, {"x": np.zeros((1, 2, *size), np.float32)})


def test_a_length_with_an_offset_is_read(tmp_path):
    class Odd(torch.nn.Module):
        def forward(self, x):
            return x[:, 1::2].sum(1), x.new_full((x.shape[1] // 3,), 2.0)

    program = export(Odd(), (torch.rand(2, 14),), dynamic_shapes={"x": {1: 3 * Dim("n", min=3, max=9) - 1}})
    loaded = ng.torch.load(program)
    for n in (8, 14, 26):
        x = torch.rand(2, n)
        for found, want in zip(loaded.run(None, {"x": x.numpy()}), Odd()(x), strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-6)


class Halving(torch.nn.Module):
    """A module that writes its parameter and a buffer in each call."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 8.0]))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        with torch.no_grad():
            self.weight.div_(2)
        self.calls += 1
        return x * self.weight


def test_parameters_that_a_program_writes_keep_their_values_for_the_next_call():
    x = torch.randn(2, 3)
    program = torch.export.export(Halving(), (x,))
    ours, theirs = ng.torch.load(program), program.module()
    for _ in range(3):
        np.testing.assert_allclose(ours(x.numpy()), theirs(x).detach().numpy())


def test_whole_numbers_divided_by_zero_are_errors(tmp_path):
    class Divided(torch.nn.Module):
        def forward(self, x, y):
            return x // y, torch.fmod(x, y), 7 % y, x // 3

    module, x, y = Divided(), torch.tensor([6, -7, 8]), torch.tensor([2, -3, 4])
    loaded = ng.torch.load(export(module, (x, y), dynamic_shapes=({0: Dim("n")}, {0: Dim("n")})))
    ng.onnx.save(loaded, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    names = [i.name for i in session.get_inputs()]
    for n in (3, 2):
        given = [t[:n].numpy() for t in (x, y)]
        for a, b, c in zip(module(x[:n], y[:n]), loaded(*given), session.run(None, dict(zip(names, given, strict=True))), strict=True):
            np.testing.assert_array_equal(a.numpy(), b)
            np.testing.assert_array_equal(a.numpy(), c)
    given = [x.numpy(), np.array([2, 0, 4])]
    with pytest.raises(ZeroDivisionError, match="a divisor of whole numbers is 0"):
        loaded(*given)
    with pytest.raises(Exception, match="out of data bounds"):
        session.run(None, dict(zip(names, given, strict=True)))


def test_truths_of_whole_tensors():
    class Truths(torch.nn.Module):
        def forward(self, x):
            return torch.ops.aten._is_all_true(x > 0), torch.ops.aten._is_any_true(x > 0)

    loaded = ng.torch.load(export(Truths(), (torch.ones(2, 3),)))
    for given in ([[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 0]], [[0, 0, 0], [-1, 0, 0]]):
        x = torch.tensor(given, dtype=torch.float32)
        assert [bool(t) for t in loaded(x.numpy())] == [bool(t) for t in Truths()(x)]


class Asserting(torch.nn.Module):
    def forward(self, x):
        torch._assert_async((x > 0).all(), "elements are above 0")
        return x * 2


class AssertingInTurns(torch.nn.Module):
    def forward(self, x):
        def turn(state, now):
            torch._assert_async((now > 0).all(), "elements are above 0")
            return state + now, state * now

        return scan(turn, x[0], x)[1]


class Factor(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.cholesky(x)


@pytest.mark.parametrize(
    ("model", "said"), [(Asserting(), "elements are above 0"), (AssertingInTurns(), "elements are above 0"), (Factor(), "linalg.cholesky")]
)
def test_what_a_program_asserts_of_values_is_checked(model, said, tmp_path):
    good = torch.eye(12) + 1
    torch.export.save(export(model, (good,)), tmp_path / "m.pt2")
    loaded = ng.torch.load(tmp_path / "m.pt2")
    np.testing.assert_allclose(loaded(good.numpy()), model(good), rtol=1e-5)
    for refuses in (model, lambda x: loaded(x.numpy())):
        with pytest.raises(RuntimeError, match=said):
            refuses(-good)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_stay_loops(kind, tmp_path):
    """PyTorch's own rules write each step out, with the length of the example."""
    torch.manual_seed(0)
    model = getattr(torch.nn, kind)(3, 4, num_layers=2, bidirectional=True, batch_first=True).eval()
    programs = [export(model, (torch.randn(2, steps, 3),), dynamic_shapes=({0: Dim("n")},)) for steps in (5, 9)]
    loaded = [ng.torch.load(program) for program in programs]
    for n, steps, m in ((2, 5, loaded[0]), (3, 5, loaded[0]), (3, 9, loaded[1])):
        x = torch.randn(n, steps, 3)
        for got, want in zip(m(x.numpy()), torch.utils._pytree.tree_leaves(model(x)), strict=True):
            np.testing.assert_allclose(got, want.detach(), rtol=1e-5, atol=1e-6)
    ops = [len(list(ordered(m.graph({"input": (2, steps, 3)}).outputs.values()))) for m, steps in zip(loaded, (5, 9), strict=True)]
    assert ops[0] == ops[1]
    ng.onnx.save(loaded[1], tmp_path / "m.onnx")
    x = torch.randn(4, 9, 3)
    found = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"input": x.numpy()})[0]
    np.testing.assert_allclose(found, model(x)[0].detach(), rtol=1e-5, atol=1e-6)


def test_random_ops_draw_in_each_call():
    class Noisy(torch.nn.Module):
        def forward(self, x):
            drop = torch.nn.functional.dropout
            return drop(x, 0.25), drop(x, 0.25), torch.randn_like(x), torch.randint(3, 9, (1000,)), torch.randperm(7)

    loaded = ng.torch.load(export(Noisy(), (torch.ones(1000),)))
    first, second = (loaded(np.ones(1000, np.float32)) for _ in range(2))
    for a, b in ((first[0], second[0]), (first[0], first[1]), (first[2], second[2])):
        assert not np.array_equal(a, b)
    assert set(np.unique(first[0])) == {np.float32(0), np.float32(1 / 0.75)} and 0.18 < (first[0] == 0).mean() < 0.32
    assert abs(first[2].mean()) < 0.2 and 0.85 < first[2].std() < 1.15
    assert set(first[3]) == set(range(3, 9)) and sorted(first[4]) == list(range(7))


def test_a_program_with_dropout_is_trained():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
    loaded = ng.torch.load(export(model, (torch.randn(5, 4),)), trainable="*")
    inputs, outputs, variables = loaded.graph({"input": (5, 4)})
    loss = ng.mean(ng.square(outputs["output"] - 3.0), out_axes=())
    steps = [ng.assign(v, v - 0.05 * ng.deriv(loss, v)) for name, v in variables.items() if name.endswith(("weight", "bias"))]
    train = loaded.transformer.computation([loss, *steps], *inputs.values())
    losses = [float(train(np.eye(5, 4, dtype=np.float32))[0]) for _ in range(40)]
    assert sum(losses[-5:]) < sum(losses[:5]) / 2


class Chosen(torch.nn.Module):
    """What masks and numbers choose: lengths that values decide."""

    def forward(self, x, mask, n):
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= x.shape[0])
        written = x.clone()
        written[mask] = x[mask] * 2
        times = torch.repeat_interleave(x, mask.long(), dim=0)
        return x[mask].exp(), written, times, x.nonzero(), torch.unique(mask.long().cumsum(0)), x[:k].sum(0), x[x > 0]


def test_lengths_that_values_decide(tmp_path):
    torch.manual_seed(0)
    rows = {0: Dim("rows", min=2)}
    program = export(Chosen(), (torch.randn(8, 3), torch.rand(8) > 0.5, torch.tensor(3)), dynamic_shapes=(rows, rows, None))
    torch.export.save(program, tmp_path / "m.pt2")  # which asserts relations of lengths
    loaded = ng.torch.load(tmp_path / "m.pt2")
    for n, mask, k in ((8, torch.rand(8) > 0.5, 3), (20, torch.rand(20) > 0.5, 3), (5, torch.zeros(5) > 0, 0), (5, torch.ones(5) > 0, 5)):
        x, number = torch.randn(n, 3), torch.tensor(k)
        for got, want in zip(loaded(x.numpy(), mask.numpy(), number.numpy()), Chosen()(x, mask, number), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
