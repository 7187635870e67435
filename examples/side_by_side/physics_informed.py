"""A network that solves u'' = -u: the residual at each point, from second derivatives, and the gradient of its weights."""

AXES = {"t": "N=6", "w": "L=2 H=8"}


def with_ngraph(ng, t, w):
    u = lambda t, w: (ng.tanh(w["L", 0] * t) * w["L", 1]).sum("H")
    residual = lambda t, w: ng.grad(ng.grad(u))(t, w) + u(t, w)
    return ng.value_and_grad(lambda w: (ng.vmap(residual, "N")(t, w) ** 2).mean("N"))(w)


def with_torch(torch, t, w):
    w.requires_grad_()
    u = lambda t, w: (torch.tanh(w[0] * t) * w[1]).sum()
    residual = lambda t, w: torch.func.grad(torch.func.grad(u))(t, w) + u(t, w)
    loss = (torch.vmap(residual, (0, None))(t, w) ** 2).mean()
    return loss, *torch.autograd.grad(loss, w)
