"""The curvature of a loss: its Hessian, and the product of the Hessian with a vector without the Hessian itself."""

AXES = {"x": "N=9 D=3", "w": "D", "v": "D"}


def with_ngraph(ng, x, w, v):
    loss = lambda w: ng.softplus(x @ w).mean("N")
    return ng.hessian(loss)(w), ng.hvp(loss, w, v)


def with_torch(torch, x, w, v):
    loss = lambda w: torch.nn.functional.softplus(x @ w).mean()
    return torch.func.hessian(loss)(w), torch.autograd.functional.hvp(loss, w, v)[1]
