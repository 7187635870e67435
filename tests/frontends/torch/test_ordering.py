"""`sort`, `argsort` and `topk` beside eager: every dtype, both ways, with NaN, infinities, ties and zeros of either sign."""

import numpy as np
import onnxruntime
import pytest
import torch

import ngraph as ng
from ngraph.frontends.torch import backend, report, reset

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
WHOLE = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
SPECIALS = [float("nan"), -float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0]


def rows(shape, dtype):
    """Elements of which many are equal, and some special."""
    torch.manual_seed(0)
    if dtype is torch.bool:
        return torch.rand(shape) > 0.5
    x = torch.randint(0 if dtype is torch.uint8 else -3, 4, shape).to(dtype)
    if dtype.is_floating_point:
        some = torch.tensor(SPECIALS)[torch.randint(0, len(SPECIALS), shape)].to(dtype)
        x = torch.where(torch.rand(shape) < 0.4, some, x)
    return x


def compiled(function, dynamic=False):
    torch._dynamo.reset()
    reset()
    return torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic, options={"fallback": "error"})


@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE, torch.bool], ids=str)
@pytest.mark.parametrize("dynamic", [False, True], ids=["known", "open"])
def test_sorted_rows_and_columns_and_their_places(dtype, dynamic):
    def both(x):
        return [torch.sort(x, dim=dim, descending=down, stable=True) for dim in (0, -1) for down in (False, True)]

    function = compiled(both, dynamic)
    for shape in ((3, 7), (2, 45), (9, 130)):
        x = rows(shape, dtype)
        for found, want in zip(function(x), both(x), strict=True):
            torch.testing.assert_close(found[0], want[0], rtol=0, atol=0, equal_nan=True)
            assert torch.equal(found[1], want[1])
            if dtype.is_floating_point:
                number = ~want[0].isnan()
                assert torch.equal(found[0].signbit()[number], want[0].signbit()[number])
    assert report().ours


@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE], ids=str)
@pytest.mark.parametrize("largest", [True, False])
def test_the_best_of_rows_and_columns(dtype, largest):
    """Among equal elements any may be chosen, so places are compared by what stands there."""
    for shape, k in (((5, 8), 2), ((4, 8), 8), ((3, 200), 5), ((2, 1200), 70)):
        function = compiled(lambda x, k=k: [torch.topk(x, min(k, x.shape[dim]), dim, largest) for dim in (0, 1)])
        x = rows(shape, dtype)
        for dim, (values, places) in enumerate(function(x)):
            want = torch.topk(x, min(k, shape[dim]), dim, largest)[0]
            assert values.dtype == dtype
            assert all(len(row.unique()) == len(row) for row in places.movedim(dim, -1).reshape(-1, places.shape[dim]))
            for got in (values, x.gather(dim, places)):
                torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    assert report().ours


class Best(torch.nn.Module):
    def forward(self, x):
        return *torch.topk(x, 2), *torch.topk(x, 3, 0, largest=False), *torch.sort(x, descending=True)


def test_an_exported_program_keeps_its_order_in_onnx(tmp_path):
    x = torch.randperm(35, generator=torch.Generator().manual_seed(0)).reshape(5, 7) / 4
    model = ng.torch.load(torch.export.export(Best(), (x,)))
    ng.onnx.save(model, tmp_path / "best.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "best.onnx")
    given = {session.get_inputs()[0].name: x.numpy()}
    for ours, theirs, want in zip(model(x.numpy()), session.run(None, given), Best()(x), strict=True):
        np.testing.assert_array_equal(ours, want.numpy())
        np.testing.assert_array_equal(theirs, want.numpy())
