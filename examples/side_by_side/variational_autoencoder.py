"""The evidence lower bound of a variational autoencoder with given noise, and its gradients."""

AXES = {"x": "N=7 D=6", "noise": "N Z=2", "encode": "P=2 D Z", "decode": "Z D"}


def with_ngraph(ng, x, noise, encode, decode):
    def bound(encode, decode):
        mean, log_std = x @ encode["P", 0], x @ encode["P", 1]
        found = (mean + ng.exp(log_std) * noise) @ decode
        divergence = ((ng.exp(2 * log_std) + mean**2 - 1) / 2 - log_std).sum("Z")
        return (divergence + ((found - x) ** 2).sum("D")).mean("N")

    return ng.value_and_grad(bound, (0, 1))(encode, decode)


def with_torch(torch, x, noise, encode, decode):
    encode.requires_grad_(), decode.requires_grad_()
    mean, log_std = x @ encode[0], x @ encode[1]
    found = (mean + torch.exp(log_std) * noise) @ decode
    divergence = ((torch.exp(2 * log_std) + mean**2 - 1) / 2 - log_std).sum(1)
    value = (divergence + ((found - x) ** 2).sum(1)).mean()
    return value, *torch.autograd.grad(value, (encode, decode))
