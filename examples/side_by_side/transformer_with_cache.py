"""A transformer's decoding step over a cache of keys and values, and the gradient of the new token."""

AXES = {"token": "N=2 M=8", "keys": "N H=2 T=5 D=4", "values": "N H T D", "w": "P=3 M H D", "out": "H D M"}


def with_ngraph(ng, token, keys, values, w, out):
    def step(token):
        q, k, v = (token @ w["P", i] for i in range(3))
        k, v = (ng.concat_along_axis([c, ng.expand_dims(x, "T=1")], "T") for c, x in ((keys, k), (values, v)))
        share = (ng.contract(q, k, over="D") / 2).softmax("T")
        return token + ng.contract(ng.contract(share, v, over="T"), out, over="H D")

    return step(token), ng.grad(lambda x: (step(x) ** 2).sum(out_axes=""))(token)


def with_torch(torch, token, keys, values, w, out):
    token.requires_grad_()

    def step(token):
        q, k, v = torch.einsum("nm,pmhd->pnhd", token, w)
        k, v = (torch.cat([c, x[:, :, None]], 2) for c, x in ((keys, k), (values, v)))
        share = torch.softmax(torch.einsum("nhd,nhtd->nht", q, k) / 2, 2)
        return token + torch.einsum("nht,nhtd,hdm->nm", share, v, out)

    y = step(token)
    (slope,) = torch.autograd.grad((y**2).sum(), token)
    return y, slope
