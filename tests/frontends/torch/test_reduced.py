"""Floats of 16 bits and quantised integers: near float32 sums rounded once, and equal to eager in the integers."""

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines quantized_decomposed.*

from ngraph.frontends.torch import backend, report, reset

q = torch.ops.quantized_decomposed
HALVES = [torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    reset()


def ours(f, **options):
    return torch.compile(f, backend=backend, fullgraph=True, options={"fallback": "error", **options})


def ulps(found, wanted):
    """How many numbers of a dtype of 16 bits lie between two tensors, at most; those near 0 count as the largest element's share."""
    eps = torch.finfo(found.dtype).eps
    size = torch.maximum(wanted.double().abs(), wanted.double().abs().max() * eps)
    step = eps * torch.exp2(torch.floor(torch.log2(size)))
    return ((found.double() - wanted.double()).abs() / step).max().item()


@pytest.mark.parametrize("dtype", HALVES)
def test_products_and_convolutions_are_float32_sums_rounded_once(dtype):
    x, w, b = torch.randn(9, 301).to(dtype), torch.randn(17, 301).to(dtype), torch.randn(17).to(dtype)
    wanted = (x.double() @ w.double().T + b.double()).float()
    assert ulps(ours(torch.nn.functional.linear)(x, w, b), wanted) <= 2
    x, w, b = torch.randn(2, 7, 9, 11).to(dtype), torch.randn(5, 7, 3, 3).to(dtype), torch.randn(5).to(dtype)
    for bias in (b, None):
        torch._dynamo.reset()
        wanted = torch.nn.functional.conv2d(x.double(), w.double(), None if bias is None else bias.double()).float()
        assert ulps(ours(torch.nn.functional.conv2d)(x, w, bias), wanted) <= 2
    wanted = torch.nn.functional.scaled_dot_product_attention(*[x.double()] * 3)
    assert ulps(ours(torch.nn.functional.scaled_dot_product_attention)(x, x, x), wanted) <= 2
    wanted = torch.nn.functional.layer_norm(x.double(), (9, 11))
    assert ulps(ours(lambda x: torch.nn.functional.layer_norm(x, (9, 11)))(x), wanted) <= 2
    assert ulps(ours(lambda x: x.sum(0))(x), x.double().sum(0)) <= 2


def network():
    return torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.GELU(), torch.nn.LayerNorm(24), torch.nn.Linear(24, 5))


@pytest.mark.parametrize("dtype", HALVES)
def test_batch_norm_gives_statistics_in_the_dtype_of_torch(dtype):
    """16 bits, or float32 where its weights are float32."""
    x = torch.randn(6, 3, 5).to(dtype)
    for kind, training in ((dtype, True), (torch.float32, True)):
        torch._dynamo.reset()
        given = [torch.rand(3).to(kind) + 0.5 for _ in range(4)]

        def f(x, w, b, mean, var, training=training):
            return torch.native_batch_norm(x, w, b, mean.clone(), var.clone(), training, 0.1, 1e-5)

        found, eager = ours(f)(x, *given), f(x, *given)
        assert [(y.dtype, y.shape) for y in found] == [(y.dtype, y.shape) for y in eager]
        wanted = f(x.double(), *[t.double() for t in given])
        assert all(ulps(y, z) <= 2 for y, z in zip(found, wanted, strict=True) if y.numel() and y.dtype is dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_models_of_16_bits(dtype):
    model = network().to(dtype)
    x = torch.randn(6, 12).to(dtype)
    with torch.no_grad():
        found, eager = ours(model)(x), model(x)
        wanted = model.double()(x.double())
    assert found.dtype is dtype
    error, theirs = [(t.double() - wanted).abs().max() for t in (found, eager)]
    assert error <= 2 * theirs + torch.finfo(dtype).eps * wanted.abs().max()


@pytest.mark.parametrize("dtype", HALVES)
def test_autocast_in_inference_and_training(dtype):
    model, twin = network(), network()
    twin.load_state_dict(model.state_dict())
    x = torch.randn(6, 12)

    def loss(m):
        with torch.autocast("cpu", dtype):
            y = m(x)
            assert y.dtype is dtype
            return torch.nn.functional.cross_entropy(y, torch.arange(6) % 5)

    compiled = ours(model)
    with torch.no_grad(), torch.autocast("cpu", dtype):
        torch.testing.assert_close(compiled(x), twin(x), rtol=2e-2, atol=2e-2)
    for m, call in ((twin, twin), (model, compiled)):
        optimizer = torch.optim.SGD(m.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            last = loss(call)
            last.backward()
            optimizer.step()
        assert all(p.dtype is torch.float32 and p.grad.dtype is torch.float32 for p in m.parameters())
        m.last = last.detach()
    torch.testing.assert_close(model.last, twin.last, rtol=2e-2, atol=2e-2)
    for p, r in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, r, rtol=2e-2, atol=2e-2)

    def inside(x):
        with torch.autocast("cpu", dtype):
            return twin(x)

    assert ours(inside)(x).dtype is dtype and not report().in_torch


# ---- integers


def exact(f, *inputs, **options):
    torch._dynamo.reset()
    wanted, found = f(*inputs), ours(f, **options)(*inputs)
    for a, b in zip(*[[t] if isinstance(t, torch.Tensor) else t for t in (found, wanted)], strict=True):
        assert a.dtype is b.dtype and a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (17, 33, 9), (4, 640, 48), (3, 0, 2)])
def test_products_of_integers(m, k, n):
    a = torch.randint(-128, 128, (m, k), dtype=torch.int8)
    b = torch.randint(-128, 128, (n, k), dtype=torch.int8).T
    torch.testing.assert_close(ours(torch._int_mm)(a, b), (a.long() @ b.long()).int(), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_weights_of_8_bits(dtype):
    x, w, s = torch.randn(5, 64).to(dtype), torch.randint(-128, 128, (32, 64), dtype=torch.int8), torch.rand(32).to(dtype)
    found = ours(lambda *a: torch.ops.aten._weight_int8pack_mm(*a))(x, w, s)
    wanted = (x.double() @ w.double().T) * s.double()
    assert found.dtype is dtype
    if dtype is torch.float32:
        torch.testing.assert_close(found, wanted.float(), rtol=1e-5, atol=1e-4)
    else:
        assert ulps(found, wanted) <= 2


X = [torch.linspace(-9, 9, 96).reshape(6, 16), torch.tensor([[0.25, -0.75, 0.5, 1e9], [0.0, -0.0, -1e9, 2.5]])]


@pytest.mark.parametrize("dtype, low, high", [(torch.int8, -128, 127), (torch.uint8, 0, 255), (torch.int16, -100, 90)])
def test_tensors_of_one_scale(dtype, low, high):
    for x in X:
        for scale, zero in ((0.5, 0), (0.037, 3)):
            exact(lambda x, s=scale, z=zero: q.quantize_per_tensor(x, s, z, low, high, dtype), x)
            codes = q.quantize_per_tensor(x, scale, zero, low, high, dtype)
            for out in (None, *HALVES):
                exact(lambda c, s=scale, z=zero, o=out: q.dequantize_per_tensor(c, s, z, low, high, dtype, out_dtype=o), codes)
            given = torch.tensor(scale), torch.tensor(zero)
            exact(lambda x, s, z: q.quantize_per_tensor.tensor(x, s, z, low, high, dtype), x, *given)
            exact(lambda c, s, z: q.dequantize_per_tensor.tensor(c, s, z, low, high, dtype), codes, *given)
    exact(lambda x: q.quantize_per_tensor(x, 0.1, 1, low, high, dtype), X[0].bfloat16())


def test_channels_rows_and_groups():
    x = X[0]
    scales, zeros = torch.linspace(0.01, 0.2, 16), torch.arange(-8, 8)
    exact(lambda x, s, z: q.quantize_per_channel(x, s, z, 1, -128, 127, torch.int8), x, scales, zeros)
    codes = q.quantize_per_channel(x, scales, zeros, 1, -128, 127, torch.int8)
    exact(lambda c, s, z: q.dequantize_per_channel(c, s, z, 1, -128, 127, torch.int8), codes, scales, zeros)
    exact(lambda c, s: q.dequantize_per_channel(c, s, None, 1, -128, 127, torch.int8), codes, scales)
    exact(lambda x: q.choose_qparams_per_token(x, torch.int8), x)
    exact(lambda x: q.choose_qparams_per_token_asymmetric(x, torch.int8), x)

    def rows(x):
        s, z = q.choose_qparams_per_token_asymmetric(x, torch.int8)
        codes = q.quantize_per_token(x, s, z, -128, 127, torch.int8)
        return codes, q.dequantize_per_token(codes, s, z, -128, 127, torch.int8, torch.float32)

    exact(rows, x)
    s, z = torch.rand(6, 2) + 0.1, torch.zeros(6, 2, dtype=torch.int32)
    exact(lambda x, s, z: q.quantize_per_channel_group(x, s, z, -8, 7, torch.int8, 8), x, s, z)
    codes = q.quantize_per_channel_group(x, s, z, -8, 7, torch.int8, 8)
    exact(lambda c, s, z: q.dequantize_per_channel_group(c, s, z, -8, 7, torch.int8, 8, torch.float32), codes, s, z)


@pytest.mark.parametrize("dtype, low, high", [(torch.int8, -128, 127), (torch.uint8, 0, 255)])
def test_chosen_scales(dtype, low, high):
    for x in (X[0], X[0] + 20, torch.zeros(3), X[0].bfloat16()):
        exact(lambda x: q.choose_qparams.tensor(x, low, high, 1e-5, dtype), x)
        exact(lambda x: q.choose_qparams_symmetric.tensor(x, low, high, 1e-5, dtype), x)


def test_a_layer_of_integers_as_quantisers_write_it():
    """Weights of one scale for each row, activations of one for each row, that are found in the call: torchao's dynamic int8."""
    w, bias = torch.randn(8, 16), torch.randn(8)
    scales = w.abs().amax(1) / 127
    codes = torch.round(w / scales[:, None]).clamp(-127, 127).to(torch.int8)

    def layer(x, codes, scales, bias):
        s = x.abs().amax(-1, keepdim=True) / 127
        rows = torch.round(x / s).clamp(-127, 127).to(torch.int8)
        sums = torch._int_mm(rows, codes.t())
        return sums, sums * s * scales + bias

    exact(lambda *a: layer(*a)[0], X[0] + 1, codes, scales, bias)
    torch.testing.assert_close(ours(layer)(X[0], codes, scales, bias)[1], layer(X[0], codes, scales, bias)[1])
