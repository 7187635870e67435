"""Networks that PyTorch exports, with open lengths, give ONNX Runtime's numbers in one reading."""

import io
import warnings

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")
from made import agree  # noqa: E402

nn = torch.nn


class Picture(nn.Module):
    """Convolutions of several kinds, pooling, normalization and resizing, and back up."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Hardswish()
        )
        self.pool = nn.MaxPool2d(2, ceil_mode=True)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)

    def forward(self, x):
        y = self.down(x)
        z = self.up(self.pool(y))
        z = nn.functional.interpolate(z, size=x.shape[2:], mode="bilinear", align_corners=False)
        return z, y.mean((2, 3)), nn.functional.avg_pool2d(y, 3, 1, 1)


class Words(nn.Module):
    """An embedding, an encoder layer with a mask, a recurrent layer in both directions."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True, dropout=0.0)
        self.lstm, self.gru = nn.LSTM(16, 6, bidirectional=True, batch_first=True), nn.GRU(12, 5, batch_first=True)

    def forward(self, ids):
        mask = torch.triu(torch.full((ids.shape[1], ids.shape[1]), float("-inf")), 1)
        y = self.encoder(self.table(ids), src_mask=mask)
        z, (h, c) = self.lstm(y)
        return self.gru(z)[0], h, c


class Choice(nn.Module):
    """Sorting, indices and masks."""

    def forward(self, x):
        best, places = torch.topk(x, 3, dim=-1)
        rows = torch.gather(x.flip(-1), -1, places)
        kept = torch.where(x > 0.5, x, torch.zeros_like(x)).cumsum(1)
        return best, rows, kept, x[:, 1::2].softmax(0), x.reshape(-1).sort().values[:4], torch.nonzero(x > 0.9)


def exported(module, example, axes):
    out = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):
        names = [f"x{k}" for k in range(len(example))]
        torch.onnx.export(module.eval(), example, out, dynamo=False, opset_version=17, input_names=names, dynamic_axes={"x0": axes})
    return out.getvalue()


def seeded(make):
    torch.manual_seed(1)
    return make()


def test_pictures():
    content = exported(seeded(Picture), (torch.zeros(2, 3, 20, 24),), {0: "n", 2: "h", 3: "w"})
    feeds = [{"x0": torch.randn(n, 3, h, w).numpy()} for n, h, w in ((2, 20, 24), (1, 18, 30))]
    agree(content, *feeds)


def test_words():
    content = exported(seeded(Words), (torch.zeros(2, 7, dtype=torch.int64),), {0: "n"})
    feeds = [{"x0": np.random.default_rng(0).integers(0, 50, (n, 7))} for n in (2, 3)]
    agree(content, *feeds)


def test_choices():
    content = exported(Choice(), (torch.rand(4, 9),), {0: "n"})
    agree(content, *({"x0": torch.rand(n, 9).numpy()} for n in (4, 6)))
