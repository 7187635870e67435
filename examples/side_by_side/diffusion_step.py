"""A training step of a diffusion model: noise at a random level, a convolution that predicts it, the loss and its gradient."""

AXES = {"image": "N=2 C=1 H=6 W=6", "noise": "N C H W", "level": "N", "w": "K=1 C R=3 S=3"}


def with_ngraph(ng, image, noise, level, w):
    keep = level.sigmoid()
    noisy = ng.sqrt(keep) * image + ng.sqrt(1 - keep) * noise
    predict = lambda w: ng.conv(noisy, w, {"H": "R", "W": "S"}, padding=1).rename(K="C")
    return ng.value_and_grad(lambda w: ((predict(w) - noise) ** 2).mean("N C H W"))(w)


def with_torch(torch, image, noise, level, w):
    w.requires_grad_()
    keep = torch.sigmoid(level)[:, None, None, None]
    noisy = torch.sqrt(keep) * image + torch.sqrt(1 - keep) * noise
    predicted = torch.nn.functional.conv2d(noisy, w, padding=1)
    loss = ((predicted - noise) ** 2).mean()
    return loss, *torch.autograd.grad(loss, w)
