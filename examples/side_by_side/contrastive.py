"""A contrastive loss of two views of each sample: each finds its own among all; the gradient of the first."""

AXES = {"a": "I=6 D=4", "b": "J=6 D"}


def with_ngraph(ng, a, b):
    unit = lambda x: x / ng.sqrt((x * x).sum("D"))
    loss = lambda a: -ng.diagonal(ng.log_softmax(unit(a) @ unit(b) / 0.1, "J"), "I", "J").mean("I")
    return ng.value_and_grad(loss)(a)


def with_torch(torch, a, b):
    a.requires_grad_()
    unit = lambda x: x / torch.sqrt((x * x).sum(1, keepdim=True))
    loss = -torch.log_softmax(unit(a) @ unit(b).T / 0.1, 1).diagonal().mean()
    return loss, *torch.autograd.grad(loss, a)
