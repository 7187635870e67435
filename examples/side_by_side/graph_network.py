"""A step of a graph network: messages along edges are summed at their targets; the gradient of the weights."""

AXES = {"nodes": "V=5 D=3", "w": "D K=4"}


def with_ngraph(ng, nodes, w):
    source, target = (ng.constant(list(e), "E=6", dtype="int32") for e in ((0, 1, 2, 3, 4, 0), (1, 2, 3, 4, 0, 2)))

    def step(w):
        messages = ng.tanh(ng.take(nodes @ w, source, "V"))
        return ng.scatter_add(ng.zeros("V=5 K=4", dtype="float64"), target, messages, "V")

    return step(w), ng.grad(lambda w: (step(w) ** 2).sum(out_axes=""))(w)


def with_torch(torch, nodes, w):
    w.requires_grad_()
    source, target = torch.tensor([0, 1, 2, 3, 4, 0]), torch.tensor([1, 2, 3, 4, 0, 2])
    messages = torch.tanh((nodes @ w)[source])
    y = torch.zeros(5, 4, dtype=torch.float64).index_add(0, target, messages)
    (slope,) = torch.autograd.grad((y**2).sum(), w)
    return y, slope
