"""Mistakes in neon's layers, costs and optimizers, and in what they stand on, each of which `layers` has to find."""

from hunt.planting import edited

NEON = "ngraph.frontends.neon"
OPTIMIZERS, RECURRENT, COSTS, NORMS, CONVOLUTION = (
    f"{NEON}.{room}" for room in ("optimizers", "recurrent", "costs", "norms", "convolution")
)

MISTAKES = {
    "gradients are summed over the batch": edited(
        f"{OPTIMIZERS}:Optimizer._gradients", "share = ng.batch_size(cost) if cost.axes.batch_axis() is not None else None", "share = None"
    ),
    "weight decay drives a weight away from 0": edited(
        f"{OPTIMIZERS}:GradientDescentMomentum.rule", "g + w * o.wdecay", "g - w * o.wdecay"
    ),
    "momentum takes the gradient twice": edited(f"{OPTIMIZERS}:GradientDescentMomentum.rule", "else w + v)", "else w + v - step)"),
    "the second moment decays as the first": edited(f"{OPTIMIZERS}:_moments", "g * g * (1 - o.beta_2)", "g * g * (1 - o.beta_1)"),
    "the second moment is corrected as the first": edited(f"{OPTIMIZERS}:_unbiased", "ng.power(o.beta_2, o.t)", "ng.power(o.beta_1, o.t)"),
    "steps are counted from 2": edited(
        f"{OPTIMIZERS}:Optimizer._updates", "t=ng.cast(count + 1, ng.float32)", "t=ng.cast(count + 2, ng.float32)"
    ),
    "decoupled weight decay has a rate of its own": edited(f"{OPTIMIZERS}:AdamW.rule", "o.lr * o.wdecay", "o.wdecay * 0.1"),
    "the mean of squares is their sum": edited(f"{OPTIMIZERS}:RMSProp.rule", "g * g * (1 - o.decay_rate)", "g * g"),
    "the forget gate lets in, and the input gate keeps": edited(
        f"{RECURRENT}:LSTMCell.step", 'f * states["c"] + i *', 'i * states["c"] + f *'
    ),
    "the output is that of the cell before": edited(
        f"{RECURRENT}:LSTMCell.step", "o * self.activation(c)", 'o * self.activation(states["c"])'
    ),
    "the reset gate leaves out the bias": edited(f"{RECURRENT}:GRUCell.step", "x + r * (y + ", "x + (r * y + "),
    "the last step of a backward layer is its first": edited(f"{RECURRENT}:run", "0 if backward else -1", "-1"),
    "the epsilon of batch norm stands outside of the root": edited(
        f"{NORMS}:BatchNorm.__call__", "ng.sqrt(variance + self.eps)", "(ng.sqrt(variance) + self.eps)"
    ),
    "all channels have one mean": edited(f"{NORMS}:BatchNorm.__call__", "ng.mean(x, out_axes=axes)", "ng.mean(x, out_axes=())"),
    "layer norm is over time as well": edited(f"{NORMS}:_OverFeatures._normal", "if a not in over)", "if a not in over and a.is_batch)"),
    "channels are dealt out to groups one by one": edited(
        f"{CONVOLUTION}:Convolution._grouped", "((group, member) if", "((member, group) if"
    ),
    "filters are dilated by the strides": edited(
        f"{CONVOLUTION}:Convolution.__call__", '"dilation": {a: self.dilation[s]', '"dilation": {a: self.strides[s]'
    ),
    "height and width of a window are exchanged": edited(
        f"{CONVOLUTION}:window_of",
        "dict(zip(keys[-len(shape) :], shape, strict=True))",
        "dict(zip(keys[-len(shape) :], [*shape[1::-1], *shape[2:]], strict=True))",
    ),
    "smoothing gives each class the whole share": edited(f"{COSTS}:CrossEntropyMulti.of", "self.smoothing / len(axis)", "self.smoothing"),
    "steps of a sequence are summed": edited(f"{COSTS}:per_step", "ng.mean(x, reduction_axes=time)", "ng.sum(x, reduction_axes=time)"),
    "the linear part of Huber's cost jumps": edited(f"{COSTS}:Huber.of", "(d - self.delta / 2)", "(d - self.delta)"),
}
