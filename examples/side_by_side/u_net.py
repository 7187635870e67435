"""A small U-Net: down by pooling, up by repeating, with the features of the way down beside; the gradient of its first filters."""

AXES = {"x": "N=2 C=1 H=6 W=6", "w1": "K=3 C=1 R=3 S=3", "w2": "K=4 C=3 R=3 S=3", "w3": "K=1 C=7 R=3 S=3"}


def with_ngraph(ng, x, w1, w2, w3):
    conv = lambda x, w: ng.conv(x, w, {"H": "R", "W": "S"}, padding=1).rename(K="C")

    def net(w1):
        high = ng.relu(conv(x, w1))
        low = ng.relu(conv(ng.max_pool(high, {"H": 2, "W": 2}), w2))
        up = low.repeat(2, "H").repeat(2, "W")
        return conv(ng.concat_along_axis([high, up], "C"), w3)

    return net(w1).transpose("N C H W"), ng.grad(lambda w1: (net(w1) ** 2).sum(out_axes=""))(w1)


def with_torch(torch, x, w1, w2, w3):
    w1.requires_grad_()
    F = torch.nn.functional

    conv = lambda x, w: F.conv2d(x, w, padding=1)

    def net(w1):
        high = F.relu(conv(x, w1))
        low = F.relu(conv(F.max_pool2d(high, 2), w2))
        up = F.interpolate(low, scale_factor=2, mode="nearest")
        return conv(torch.cat([high, up], 1), w3)

    y = net(w1)
    (slope,) = torch.autograd.grad((y**2).sum(), w1)
    return y, slope
