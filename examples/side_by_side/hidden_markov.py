"""The forward algorithm of a hidden Markov model: the log-likelihood, and the posterior of each state as its gradient."""

AXES = {"emit": "T=7 S=4", "move": "S R=4"}


def with_ngraph(ng, emit, move):
    move = move.log_softmax("R")
    step = lambda a, now: (ng.logsumexp(a + move, "S").rename(R="S") + now, None)
    likelihood = lambda emit: ng.scan(step, ng.zeros("S=4", dtype="float64"), emit, "T")[0].logsumexp("S")
    return ng.value_and_grad(likelihood)(emit)


def with_torch(torch, emit, move):
    emit.requires_grad_()
    move, a = torch.log_softmax(move, 1), torch.zeros(4, dtype=torch.float64)
    for now in emit:
        a = torch.logsumexp(a[:, None] + move, 0) + now
    value = torch.logsumexp(a, 0)
    return value, *torch.autograd.grad(value, emit)
