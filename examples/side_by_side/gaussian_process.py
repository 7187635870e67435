"""A Gaussian process: the mean at new places, and the gradient of the likelihood by the kernel's length scale."""

AXES = {"x": "i=12 d=2", "y": "i", "t": "m=5 d", "scale": ""}


def with_ngraph(ng, x, y, t, scale):
    kernel = lambda a, b, s: ng.exp(-((a - b) ** 2).sum("d") / (1 + s * s))
    noisy = lambda s: kernel(x, x.rename({"i": "j"}), s) + 0.5 * ng.eye("i=12", "j=12")
    mean = kernel(t, x, scale) @ ng.linalg.solve(noisy(scale), y, "i", "j").rename({"j": "i"})
    likelihood = lambda s: (y * ng.linalg.solve(noisy(s), y, "i", "j").rename({"j": "i"})).sum() + ng.linalg.slogdet(noisy(s), "i", "j")[1]
    return mean, ng.grad(likelihood)(scale)


def with_torch(torch, x, y, t, scale):
    kernel = lambda a, b, s: torch.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / (1 + s * s))
    noisy = lambda s: kernel(x, x, s) + 0.5 * torch.eye(12, dtype=x.dtype)
    mean = kernel(t, x, scale) @ torch.linalg.solve(noisy(scale), y)
    likelihood = lambda s: y @ torch.linalg.solve(noisy(s), y) + torch.linalg.slogdet(noisy(s))[1]
    return mean, torch.func.grad(likelihood)(scale)
