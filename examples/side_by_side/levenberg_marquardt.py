"""Levenberg-Marquardt: five steps of a fit of y = a exp(-b² x²) + c, each by the Jacobian and a damped linear system."""

AXES = {"x": "N=20", "y": "N", "p": "i=3"}


def with_ngraph(ng, x, y, p):
    rest = lambda p: p[0] * ng.exp(-p[1] * p[1] * x * x) + p[2] - y
    for _ in range(5):
        i, j = (ng.jacobian(rest)(p).rename({"i'": name}) for name in "ij")
        damped = ng.contract(i, j, over="N") + ng.eye("i=3", "j=3")
        p = p - ng.linalg.solve(damped, ng.contract(i, rest(p), over="N"), "i", "j").rename({"j": "i"})
    return p, (rest(p) ** 2).sum("N")


def with_torch(torch, x, y, p):
    rest = lambda p: p[0] * torch.exp(-p[1] * p[1] * x * x) + p[2] - y
    for _ in range(5):
        j = torch.func.jacrev(rest)(p)
        damped = j.T @ j + torch.eye(3, dtype=p.dtype)
        p = p - torch.linalg.solve(damped, j.T @ rest(p))
    return p, (rest(p) ** 2).sum()
