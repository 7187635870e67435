"""A gated recurrent network over a sequence: the last state and the gradient of the weights."""

AXES = {"x": "T=5 D=3", "w": "D H=4", "u": "H H'"}


def with_ngraph(ng, x, w, u):
    def last(u):
        def step(h, now):
            gate = ng.sigmoid(now @ w + u @ h)
            return gate * h + (1 - gate) * ng.tanh(now @ w), None

        return ng.scan(step, ng.zeros("H=4", dtype="float64"), x, "T")[0]

    return last(u), ng.grad(lambda u: last(u).sum("H"))(u)


def with_torch(torch, x, w, u):
    u.requires_grad_()
    h = torch.zeros(4, dtype=torch.float64)
    for now in x:
        gate = torch.sigmoid(now @ w + u @ h)
        h = gate * h + (1 - gate) * torch.tanh(now @ w)
    (slope,) = torch.autograd.grad(h.sum(), u)
    return h, slope
