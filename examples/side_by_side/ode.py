"""A differential equation by the Runge-Kutta method of order 4: the state after 20 steps and its gradient by the parameters."""

AXES = {"y": "S=2", "p": "P=2"}


def with_ngraph(ng, y, p):
    steps = ng.iota("T=20", "float64")

    def end(p):
        f = lambda y: ng.stack([y[1] * p[0], -p[1] * ng.sin(y[0])], "S")

        def step(y, t):
            a = f(y)
            b = f(y + 0.05 * a)
            c = f(y + 0.05 * b)
            return y + 0.1 / 6 * (a + 2 * b + 2 * c + f(y + 0.1 * c)), None

        return ng.scan(step, y, steps, "T")[0]

    return end(p), ng.grad(lambda p: end(p).sum("S"))(p)


def with_torch(torch, y, p):
    p.requires_grad_()
    f = lambda y: torch.stack([y[1] * p[0], -p[1] * torch.sin(y[0])])

    def step(y):
        a = f(y)
        b = f(y + 0.05 * a)
        c = f(y + 0.05 * b)
        return y + 0.1 / 6 * (a + 2 * b + 2 * c + f(y + 0.1 * c))

    for _ in range(20):
        y = step(y)
    (slope,) = torch.autograd.grad(y.sum(), p)
    return y, slope
