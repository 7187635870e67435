"""Fourier transforms and equal parts along axes whose lengths calls bring, beside NumPy and PyTorch."""

import numpy as np
import pytest
import torch

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import BoundsError

TRANSFORMERS = ["cpu", "numpy", "direct"]
TOLERANCE = {"float64": 1e-12, "float32": 2e-6, "float16": 4e-3}


def parts(z):
    return np.stack([z.real, z.imag], -1)


def joined(x):
    x = x.astype(np.float64)
    return x[..., 0] + 1j * x[..., 1]


REAL = {  # of [T, W], along T
    "fft": (lambda x: ng.fft(x, "T"), lambda x: parts(np.fft.fft(x, axis=0))),
    "fft, forward": (lambda x: ng.fft(x, "T", "forward"), lambda x: parts(np.fft.fft(x, axis=0, norm="forward"))),
    "ifft": (lambda x: ng.ifft(x, "T"), lambda x: parts(np.fft.ifft(x, axis=0))),
    "rfft": (lambda x: ng.rfft(x, "T"), lambda x: parts(np.fft.rfft(x, axis=0))),
    "rfft, ortho": (lambda x: ng.rfft(x, "T", "ortho"), lambda x: parts(np.fft.rfft(x, axis=0, norm="ortho"))),
    "stft": (
        lambda x: ng.stft(x, "T", 4, 2),
        lambda x: parts(np.stack([np.fft.rfft(x[k : k + 4], axis=0) for k in range(0, len(x) - 3, 2)])),
    ),
}
COMPLEX = {  # of [W, T, complex], along T
    "fft": (lambda z: ng.fft(z, "T", "ortho"), lambda z: parts(np.fft.fft(joined(z), axis=1, norm="ortho"))),
    "ifft": (lambda z: ng.ifft(z, "T"), lambda z: parts(np.fft.ifft(joined(z), axis=1))),
    "first half of fft": (lambda z: ng.rfft(z, "T"), lambda z: parts(np.fft.fft(joined(z), axis=1)[:, : z.shape[1] // 2 + 1])),
    "irfft": (lambda z: ng.irfft(z, "T"), lambda z: np.fft.irfft(joined(z), axis=1)),
    "irfft, ortho": (lambda z: ng.irfft(z, "T", norm="ortho"), lambda z: np.fft.irfft(joined(z), axis=1, norm="ortho")),
    "irfft, forward": (lambda z: ng.irfft(z, "T", norm="forward"), lambda z: np.fft.irfft(joined(z), axis=1, norm="forward")),
    "irfft to 7": (lambda z: ng.irfft(z, "T", 7), lambda z: np.fft.irfft(joined(z), 7, axis=1)),
}


def compared(made, wanted, transformer, x, shape, dtype, lengths):
    f = ngt.make_transformer_factory(transformer)().computation(made(x), x)
    for n in lengths:
        given = np.random.RandomState(n).randn(*[n if k is None else k for k in shape]).astype(dtype)
        got, want = f(given), wanted(given.astype(np.float64))
        assert got.dtype == dtype and got.shape == want.shape
        scale = np.abs(want).max(initial=1)
        np.testing.assert_allclose(np.asarray(got, np.float64) / scale, want / scale, atol=TOLERANCE[dtype], rtol=0)


@pytest.mark.parametrize("transformer", TRANSFORMERS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", REAL)
def test_transforms_of_real_signals(name, dtype, transformer):
    made, wanted = REAL[name]
    compared(made, wanted, transformer, ng.placeholder("T=? W=3", dtype=dtype), (None, 3), dtype, (6, 9, 4, 257))


@pytest.mark.parametrize("transformer", TRANSFORMERS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", COMPLEX)
def test_transforms_of_complex_signals(name, dtype, transformer):
    made, wanted = COMPLEX[name]
    compared(made, wanted, transformer, ng.placeholder("W=3 T=? complex=2", dtype=dtype), (3, None, 2), dtype, (6, 5, 2, 130))


TORCH = {
    "fft": lambda z: torch.view_as_real(torch.fft.fft(z, dim=1, norm="ortho")),
    "ifft": lambda z: torch.view_as_real(torch.fft.ifft(z, dim=1)),
    "irfft": lambda z: torch.fft.irfft(z, dim=1),
    "irfft to 7": lambda z: torch.fft.irfft(z, 7, dim=1),
}


@pytest.mark.parametrize("transformer", ["cpu", "direct"])
@pytest.mark.parametrize("name", TORCH)
def test_gradients_are_those_of_pytorch(name, transformer):
    z = ng.placeholder("W=3 T=? complex=2", dtype="float64")
    y = COMPLEX[name][0](z)
    f = ngt.make_transformer_factory(transformer)().computation(ng.deriv(ng.sum(ng.sin(y), out_axes=()), z), z)
    for n in (4, 7):
        given = np.random.RandomState(n).randn(3, n, 2)
        there = torch.tensor(given, requires_grad=True)
        torch.sin(TORCH[name](torch.view_as_complex(there))).sum().backward()
        np.testing.assert_allclose(f(given), there.grad.numpy(), atol=1e-12)


def test_the_gradient_of_a_real_signal_is_that_of_pytorch():
    x = ng.placeholder("T=? W=3", dtype="float64")
    f = ng.function(ng.deriv(ng.sum(ng.sin(ng.rfft(x, "T")), out_axes=()), x), x)
    for n in (5, 8, 1):
        given = np.random.RandomState(n).randn(n, 3)
        there = torch.tensor(given, requires_grad=True)
        torch.sin(torch.view_as_real(torch.fft.rfft(there, dim=0))).sum().backward()
        np.testing.assert_allclose(f(given), there.grad.numpy(), atol=1e-12)


def test_a_transform_of_an_open_length_is_a_step_on_the_host_without_a_warning(recwarn):
    x = ng.placeholder("T=?")
    f = ngt.make_transformer_factory("cpu")().computation(ng.fft(x, "T"), x)
    f(np.ones(5, np.float32))
    assert "routine dft(" in f.plan and "Python runs dft" in str(f.profile(np.ones(5, np.float32)))
    assert not [w for w in recwarn if issubclass(w.category, ng.NgraphWarning)]


# ---- equal parts ----


@pytest.mark.parametrize("transformer", TRANSFORMERS)
def test_equal_parts_of_an_open_axis(transformer):
    x = ng.placeholder("H=? W=3")
    made = ng.split(x, "H", 3)
    y = ng.sum(made[0] * made[1] - made[2], out_axes=())
    f = ngt.make_transformer_factory(transformer)().computation([*made, y, ng.deriv(y, x)], x)
    for n in (6, 3, 0, 12):
        given = np.random.RandomState(n).randn(n, 3).astype(np.float32)
        there = torch.tensor(given, requires_grad=True)
        wanted = torch.tensor_split(there, 3)
        total = (wanted[0] * wanted[1] - wanted[2]).sum()
        total.backward()
        *got, value, slope = f(given)
        for a, b in zip(got, np.split(given, 3), strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(value, total.item(), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(slope, there.grad.numpy(), rtol=1e-6)
    for n in (7, 1, 2):
        with pytest.raises(BoundsError, match="axis H in 3 equal parts, which has length"):
            f(np.zeros((n, 3), np.float32))
    np.testing.assert_array_equal(f(np.ones((3, 3), np.float32))[1], np.ones((1, 3)))


def test_parts_of_given_lengths_of_an_open_axis_are_checked():
    x = ng.placeholder("H=?")
    f = ng.function(ng.split(x, "H", [2, 0, 3]), x)
    for got, wanted in zip(f(np.arange(5)), ([0, 1], [], [2, 3, 4]), strict=True):
        np.testing.assert_array_equal(got, wanted)
    for n in (4, 6):
        with pytest.raises(BoundsError, match="H in parts of 2, 0, 3"):
            f(np.zeros(n))


@pytest.mark.parametrize("transformer", TRANSFORMERS)
@pytest.mark.parametrize("n", [1, 2, 7, 16, 130, 144, 521, 522])
@pytest.mark.parametrize("known", [True, False])
def test_real_frequencies_of_real_signals_are_real_to_the_bit(transformer, n, known):
    x = ng.placeholder(f"T={n}" if known else "T=?")
    signal = np.random.default_rng(n).standard_normal(n).astype(np.float32) - 50
    run = ngt.make_transformer_factory(transformer)().computation([ng.rfft(x, "T"), ng.fft(x, "T")], x)
    for found, wanted in zip(run(signal), (np.fft.rfft(signal), np.fft.fft(signal)), strict=True):
        np.testing.assert_allclose(joined(found), wanted, atol=2e-6 * np.abs(wanted).max())
        real = [0, n // 2] if n % 2 == 0 else [0]
        assert (found[real, 1] == 0).all() and not np.signbit(found[real, 1]).any()
