"""The clipped loss of proximal policy optimisation with an entropy bonus, and its gradient."""

AXES = {"logits": "N=12 A=4", "old": "N", "advantage": "N"}


def with_ngraph(ng, logits, old, advantage):
    action = ng.iota("N=12") % 4

    def loss(logits):
        log_p = logits.log_softmax("A")
        ratio = ng.exp(ng.take(log_p, action, "A") - old)
        gain = ng.minimum(ratio * advantage, ratio.clip(0.8, 1.2) * advantage)
        return -(gain - 0.01 * (ng.exp(log_p) * log_p).sum("A")).mean("N")

    return ng.value_and_grad(loss)(logits)


def with_torch(torch, logits, old, advantage):
    logits.requires_grad_()
    action = torch.arange(12) % 4
    log_p = torch.log_softmax(logits, 1)
    ratio = torch.exp(log_p[torch.arange(12), action] - old)
    gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    loss = -(gain - 0.01 * (torch.exp(log_p) * log_p).sum(1)).mean()
    return loss, *torch.autograd.grad(loss, logits)
