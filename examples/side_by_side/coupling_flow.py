"""A normalising flow of two affine couplings: the log-likelihood and its gradient."""

AXES = {"x": "N=9 D=2", "w": "L=2 P=2"}


def with_ngraph(ng, x, w):
    def likelihood(w):
        a, b, log_det = x["D", 0], x["D", 1], 0.0
        for k in range(2):
            scale = ng.tanh(w[k, 0] * a)
            a, b, log_det = b * ng.exp(scale) + w[k, 1] * a, a, log_det + scale
        return (log_det - (a * a + b * b) / 2).mean("N")

    return ng.value_and_grad(likelihood)(w)


def with_torch(torch, x, w):
    w.requires_grad_()
    a, b, log_det = x[:, 0], x[:, 1], 0.0
    for k in range(2):
        scale = torch.tanh(w[k, 0] * a)
        a, b, log_det = b * torch.exp(scale) + w[k, 1] * a, a, log_det + scale
    value = (log_det - (a * a + b * b) / 2).mean()
    return value, *torch.autograd.grad(value, w)
