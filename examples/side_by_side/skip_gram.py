"""Word vectors by negative sampling: the loss of pairs of words, and the gradient of the table."""

AXES = {"table": "V=6 D=4", "contexts": "V D"}


def with_ngraph(ng, table, contexts):
    word, near, far = (ng.constant(i, "N=4", dtype="int32") for i in ([0, 1, 2, 3], [1, 2, 3, 4], [5, 5, 0, 1]))

    def loss(table):
        score = lambda i: (ng.take(table, word, "V") * ng.take(contexts, i, "V")).sum("D")
        return (ng.softplus(-score(near)) + ng.softplus(score(far))).mean("N")

    return ng.value_and_grad(loss)(table)


def with_torch(torch, table, contexts):
    table.requires_grad_()
    word, near, far = (torch.tensor(i) for i in ([0, 1, 2, 3], [1, 2, 3, 4], [5, 5, 0, 1]))
    score = lambda i: (table[word] * contexts[i]).sum(1)
    softplus = torch.nn.functional.softplus
    loss = (softplus(-score(near)) + softplus(score(far))).mean()
    return loss, *torch.autograd.grad(loss, table)
