"""Model-agnostic meta-learning: the loss after one step of gradient descent, for each task, and its gradient through the step."""

AXES = {"x": "B=4 S=10 D=3", "y": "B S", "w": "D"}


def with_ngraph(ng, x, y, w):
    loss = lambda w, x, y: ((x @ w - y) ** 2).mean("S")
    adapted = lambda w, x, y: loss(w - 0.1 * ng.grad(loss)(w, x, y), x, y)
    return ng.value_and_grad(lambda w: ng.vmap(adapted, "B")(w, x, y).mean("B"))(w)


def with_torch(torch, x, y, w):
    w.requires_grad_()
    loss = lambda w, x, y: ((x @ w - y) ** 2).mean()
    adapted = lambda x, y: loss(w - 0.1 * torch.func.grad(loss)(w, x, y), x, y)
    value = torch.stack([adapted(x[b], y[b]) for b in range(4)]).mean()
    return value, *torch.autograd.grad(value, w)
