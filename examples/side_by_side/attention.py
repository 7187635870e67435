"""Causal attention of several heads, and the gradient of its queries."""

AXES = {"q": "N=2 H=3 T=6 D=4", "k": "N H T D", "v": "N H T D"}


def with_ngraph(ng, q, k, v):
    f = lambda q: ng.attention(q, k, v, features="D", queries="T", causal=True)
    slope = ng.grad(lambda q: (f(q) ** 2).sum(out_axes=""))(q)
    return f(q), slope


def with_torch(torch, q, k, v):
    q.requires_grad_()
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    (slope,) = torch.autograd.grad((y**2).sum(), q)
    return y, slope
