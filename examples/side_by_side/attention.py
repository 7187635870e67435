"""Causal attention of several heads, and the gradient of its queries."""

SHAPES = {"q": (2, 3, 6, 4), "k": (2, 3, 6, 4), "v": (2, 3, 6, 4)}


def with_ngraph(ng, q, k, v):
    q, k, v = (ng.constant(a, "N=2 H=3 T=6 D=4") for a in (q, k, v))
    f = lambda q: ng.attention(q, k, v, features="D", queries="T", causal=True)
    slope = ng.grad(lambda q: (f(q) ** 2).sum(out_axes=""))(q)
    return f(q), slope


def with_torch(torch, q, k, v):
    q.requires_grad_()
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    (slope,) = torch.autograd.grad((y**2).sum(), q)
    return y, slope
