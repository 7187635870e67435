"""A Gaussian process: the mean at new places, and the gradient of the likelihood by the kernel's length scale."""

SHAPES = {"x": (12, 2), "y": (12,), "t": (5, 2), "scale": ()}


def with_ngraph(ng, x, y, t, scale):
    x, y, t, scale = ng.constant(x, "i=12 d=2"), ng.constant(y, "i"), ng.constant(t, "m=5 d=2"), ng.constant(scale, ())
    z = x.rename({"i": "j"})
    kernel = lambda a, b, s: ng.exp(-((a - b) ** 2).sum("d") / (1 + s * s))
    noisy = lambda s: kernel(x, z, s) + 0.5 * ng.eye("i=12", "j=12")
    mean = kernel(t, z, scale) @ ng.linalg.solve(noisy(scale), y, "i", "j")
    likelihood = lambda s: (y * ng.linalg.solve(noisy(s), y, "i", "j").rename({"j": "i"})).sum() + ng.linalg.slogdet(noisy(s), "i", "j")[1]
    return mean, ng.grad(likelihood)(scale)


def with_torch(torch, x, y, t, scale):
    kernel = lambda a, b, s: torch.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / (1 + s * s))
    noisy = lambda s: kernel(x, x, s) + 0.5 * torch.eye(12, dtype=x.dtype)
    mean = kernel(t, x, scale) @ torch.linalg.solve(noisy(scale), y)
    likelihood = lambda s: y @ torch.linalg.solve(noisy(s), y) + torch.linalg.slogdet(noisy(s))[1]
    return mean, torch.func.grad(likelihood)(scale)
