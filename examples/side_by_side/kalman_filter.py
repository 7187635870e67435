"""A Kalman filter over a sequence of measurements: the last state, and the gradient of the likelihood by the dynamics."""

AXES = {"z": "t=6 m=2", "a": "i=3 j=3", "h": "m i"}


def with_ngraph(ng, z, a, h):
    g = h.rename({"m": "n", "i": "k"})

    def run(a):
        x, p, score = ng.zeros("i=3"), ng.eye("i=3", "k=3"), 0.0
        for t in range(6):
            x, q = a @ x.rename({"i": "j"}), p.rename({"i": "j", "k": "l"})
            p = ng.einsum("i j, j l, k l -> i k", a, q, a.rename({"i": "k", "j": "l"})) + ng.eye("i=3", "k=3")
            s, e = ng.einsum("m i, i k, n k -> m n", h, p, g) + ng.eye("m=2", "n=2"), z["t", t] - h @ x
            gain = ng.linalg.solve(s, h @ p, "m", "n").rename({"k": "i"})
            x, p = x + gain @ e.rename({"m": "n"}), p - ng.einsum("n i, n k -> i k", gain, (g @ p).rename({"i": "k"}))
            score = score + ng.linalg.slogdet(s, "m", "n")[1] + (e * ng.linalg.solve(s, e, "m", "n").rename({"n": "m"})).sum("m")
        return score, x

    return ng.grad(run, has_aux=True)(a)


def with_torch(torch, z, a, h):
    def run(a):
        x, p, score = torch.zeros(3, dtype=a.dtype), torch.eye(3, dtype=a.dtype), 0.0
        for t in range(6):
            x = a @ x
            p = a @ p @ a.T + torch.eye(3, dtype=a.dtype)
            s, e = h @ p @ h.T + torch.eye(2, dtype=a.dtype), z[t] - h @ x
            gain = torch.linalg.solve(s, h @ p).T
            x, p = x + gain @ e, p - gain @ h @ p
            score = score + torch.linalg.slogdet(s)[1] + e @ torch.linalg.solve(s, e)
        return score, x

    return torch.func.grad(run, has_aux=True)(a)
