"""Logistic regression: the loss and its gradient."""

SHAPES = {"x": (20, 3), "t": (20,), "w": (3,), "b": ()}


def with_ngraph(ng, x, t, w, b):
    x, t, w, b = ng.constant(x, "N=? D=?"), ng.constant(t, "N"), ng.constant(w, "D"), ng.constant(b, "")
    loss = lambda w, b: ng.softplus(x @ w + b).mean("N") - (t * (x @ w + b)).mean("N")
    value, (dw, db) = ng.value_and_grad(loss, (0, 1))(w, b)
    return value, dw, db


def with_torch(torch, x, t, w, b):
    w.requires_grad_(), b.requires_grad_()
    z = x @ w + b
    value = torch.nn.functional.softplus(z).mean() - (t * z).mean()
    dw, db = torch.autograd.grad(value, (w, b))
    return value, dw, db
