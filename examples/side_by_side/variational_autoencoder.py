"""The evidence lower bound of a variational autoencoder with given noise, and its gradients."""

SHAPES = {"x": (7, 6), "noise": (7, 2), "encode": (2, 6, 2), "decode": (2, 6)}


def with_ngraph(ng, x, noise, encode, decode):
    x, noise = ng.constant(x, "N=7 D=6"), ng.constant(noise, "N Z=2")
    encode, decode = ng.constant(encode, "P=2 D Z"), ng.constant(decode, "Z D")

    def bound(encode, decode):
        mean, log_std = x @ encode["P", 0], x @ encode["P", 1]
        found = (mean + ng.exp(log_std) * noise) @ decode
        divergence = ((ng.exp(2 * log_std) + mean**2 - 1) / 2 - log_std).sum("Z")
        return (divergence + ((found - x) ** 2).sum("D")).mean("N")

    value, slopes = ng.value_and_grad(bound, (0, 1))(encode, decode)
    return value, *slopes


def with_torch(torch, x, noise, encode, decode):
    encode.requires_grad_(), decode.requires_grad_()
    mean, log_std = x @ encode[0], x @ encode[1]
    found = (mean + torch.exp(log_std) * noise) @ decode
    divergence = ((torch.exp(2 * log_std) + mean**2 - 1) / 2 - log_std).sum(1)
    value = (divergence + ((found - x) ** 2).sum(1)).mean()
    return value, *torch.autograd.grad(value, (encode, decode))
