"""A classifier of two layers: cross-entropy and the gradients of its weights."""

AXES = {"x": "N=8 D=5", "w1": "D H=7", "w2": "H K=4"}


def with_ngraph(ng, x, w1, w2):
    t = ng.cast(ng.one_hot(ng.cast(ng.iota("N=8") % 4, "int32"), "K"), "float64")
    loss = lambda p: -(t * (ng.tanh(x @ p["w1"]) @ p["w2"]).log_softmax("K")).sum("K").mean("N")
    value, slopes = ng.value_and_grad(loss)({"w1": w1, "w2": w2})
    return value, slopes["w1"], slopes["w2"]


def with_torch(torch, x, w1, w2):
    w1.requires_grad_(), w2.requires_grad_()
    t = torch.arange(8) % 4
    logits = torch.tanh(x @ w1) @ w2
    value = torch.nn.functional.cross_entropy(logits, t)
    dw1, dw2 = torch.autograd.grad(value, (w1, w2))
    return value, dw1, dw2
