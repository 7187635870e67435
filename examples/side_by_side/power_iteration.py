"""The largest singular value of a matrix by power iteration, and its gradient through the iterations."""

AXES = {"a": "I=5 J=3"}


def with_ngraph(ng, a):
    ones = ng.ones("J=3", dtype="float64")

    def largest(a):
        step = lambda v, _: ((w := (a @ v) @ a) / ng.sqrt((w * w).sum("J")), None)
        u = a @ ng.scan(step, ones, ng.iota("T=30"), "T")[0]
        return ng.sqrt((u * u).sum("I"))

    return ng.value_and_grad(largest)(a)


def with_torch(torch, a):
    a.requires_grad_()
    v = torch.ones(3, dtype=torch.float64)
    for _ in range(30):
        w = a.T @ (a @ v)
        v = w / torch.sqrt((w * w).sum())
    value = torch.sqrt(((a @ v) ** 2).sum())
    return value, *torch.autograd.grad(value, a)
