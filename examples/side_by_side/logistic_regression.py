"""Logistic regression: the loss and its gradient."""

AXES = {"x": "N=20 D=3", "t": "N", "w": "D", "b": ""}


def with_ngraph(ng, x, t, w, b):
    loss = lambda w, b: ng.softplus(x @ w + b).mean("N") - (t * (x @ w + b)).mean("N")
    value, (dw, db) = ng.value_and_grad(loss, (0, 1))(w, b)
    return value, dw, db


def with_torch(torch, x, t, w, b):
    w.requires_grad_(), b.requires_grad_()
    z = x @ w + b
    value = torch.nn.functional.softplus(z).mean() - (t * z).mean()
    dw, db = torch.autograd.grad(value, (w, b))
    return value, dw, db
