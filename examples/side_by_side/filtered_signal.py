"""A signal through a filter: its energy in each band, and the gradient of the filter's taps."""

AXES = {"signal": "T=40", "taps": "B=3 R=5"}


def with_ngraph(ng, signal, taps):
    energy = lambda taps: (ng.conv(signal, taps, {"T": "R"}, padding=2) ** 2).mean("T")
    return energy(taps), ng.grad(lambda taps: ng.log(energy(taps)).sum("B"))(taps)


def with_torch(torch, signal, taps):
    taps.requires_grad_()
    y = torch.nn.functional.conv1d(signal[None, None], taps[:, None], padding=2)[0]
    energy = (y**2).mean(1)
    (slope,) = torch.autograd.grad(torch.log(energy).sum(), taps)
    return energy, slope
