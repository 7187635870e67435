"""Training steps of two small language models over texts of any length, in ngraph and in PyTorch, from equal weights.

`steps(kind, runtime)` gives a function of tokens and of those that follow them, each [batch, length], that makes one step and gives the
loss. The optimizer is gradient descent with momentum.
"""

import math

import numpy as np

WORDS, RATE, MOMENTUM = 87, 0.01, 0.9
HIDDEN = 128  # of the LSTM
WIDTH, HEADS, DEPTH, MOST = 128, 4, 2, 128  # of the transformer; MOST: positions


def drawn(kind):
    """The initial weights by name, each with the names and lengths of its axes: {name: (array, {axis: length})}."""
    if kind == "lstm":
        shapes = {
            "embed": {"word": WORDS, "in": HIDDEN},
            "wx": {"gate": 4, "out": HIDDEN, "in": HIDDEN},
            "wh": {"gate": 4, "out": HIDDEN, "back": HIDDEN},
            "b": {"gate": 4, "out": HIDDEN},
            "head": {"word": WORDS, "out": HIDDEN},
        }
    else:
        shapes = {"embed": {"word": WORDS, "f": WIDTH}, "places": {"place": MOST, "f": WIDTH}, "head": {"word": WORDS, "f": WIDTH}}
        for k in range(DEPTH):
            for one in "qkv":
                shapes[f"{k}.{one}"] = {"head": HEADS, "size": WIDTH // HEADS, "f": WIDTH}
            shapes[f"{k}.o"] = {"f": WIDTH, "head": HEADS, "size": WIDTH // HEADS}
            shapes |= {f"{k}.up": {"wide": 4 * WIDTH, "f": WIDTH}, f"{k}.down": {"f": WIDTH, "wide": 4 * WIDTH}}
            shapes |= {f"{k}.{n}{w}": {"f": WIDTH} for n in ("norm", "last") for w in ("scale", "shift")}
    random = np.random.default_rng(0)
    found = {}
    for name, shape in shapes.items():
        value = random.standard_normal(tuple(shape.values())) * (1 / math.sqrt(list(shape.values())[-1]))
        constant = 1.0 if name.endswith("scale") else 0.0 if name.endswith("shift") or name == "b" else None
        found[name] = (value if constant is None else np.full(value.shape, constant)).astype(np.float32), shape
    return found


def steps(kind, runtime):
    return {"ngraph": _ngraph, "torch": _torch}[runtime](kind)


# ---- ngraph ----------------------------------------------------------------------------------------------------------------


def _ngraph(kind):
    call = computation(kind)
    return lambda *given: float(call(*given)[0])


def computation(kind):
    """One step in ngraph: a computation of tokens and of those that follow them that gives the loss."""
    import ngraph as ng
    import ngraph.transformers as ngt

    axes = {}
    weights = {}
    for name, (value, shape) in drawn(kind).items():
        own = [axes.setdefault(a, ng.make_axis(n, name=a)) for a, n in shape.items()]
        weights[name] = ng.variable(own, initial_value=value).named(name)
    N, T = ng.make_axis(name="N"), ng.make_axis(name="T")
    tokens, targets = (ng.placeholder([N, T], dtype=ng.int64).named(n) for n in ("tokens", "targets"))
    scores = {"lstm": _ngraph_lstm, "transformer": _ngraph_transformer}[kind](ng, axes, weights, tokens)
    word = axes["word"]
    losses = ng.cross_entropy_multi(ng.softmax(scores, [word]), ng.one_hot(targets, word), out_axes=[N, T])
    loss = ng.mean(losses, out_axes=())
    updates = []
    for w in weights.values():
        v = ng.persistent_tensor(w.axes, initial_value=0)
        step = v * MOMENTUM + ng.deriv(loss, w)
        updates += [ng.assign(v, step), ng.assign(w, w - RATE * step)]
    return ngt.make_transformer().computation([loss, ng.doall(updates)], tokens, targets)


def _ngraph_lstm(ng, axes, w, tokens):
    N, T = tokens.axes
    out, back, gate = axes["out"], axes["back"], axes["gate"]
    x = ng.contract(ng.take(w["embed"], tokens, axes["word"]), w["wx"], over=[axes["in"]]) + w["b"]

    def step(state, x):
        h, c = state
        z = x + ng.contract(ng.cast_axes(h, [N, back]), w["wh"], over=[back])
        i, f, g, o = (z[{gate: k}] for k in range(4))
        c = ng.sigmoid(f) * c + ng.sigmoid(i) * ng.tanh(g)
        h = ng.sigmoid(o) * ng.tanh(c)
        return (ng.axes_with_order(h, [N, out]), ng.axes_with_order(c, [N, out])), h

    zero = ng.constant(0.0, [N, out])
    _, y = ng.scan(step, (zero, zero), x, T)
    return ng.contract(y, w["head"], over=[out])


def _ngraph_transformer(ng, axes, w, tokens):
    _, T = tokens.axes
    f, size, wide = axes["f"], axes["size"], axes["wide"]

    def norm(x, name):
        x = x - ng.mean(x, reduction_axes=[f])
        return x * (1 / ng.sqrt(ng.mean(x * x, reduction_axes=[f]) + 1e-5)) * w[f"{name}scale"] + w[f"{name}shift"]

    x = ng.take(w["embed"], tokens, axes["word"]) + ng.take(w["places"], ng.iota(T), axes["place"])
    for k in range(DEPTH):
        h = norm(x, f"{k}.norm")
        q, key, value = (ng.contract(h, w[f"{k}.{one}"], over=[f]) for one in "qkv")
        y = ng.attention(q, key, value, features=size, queries=T, causal=True)
        x = x + ng.contract(y, w[f"{k}.o"], over=[axes["head"], size])
        h = ng.relu(ng.contract(norm(x, f"{k}.last"), w[f"{k}.up"], over=[f]))
        x = x + ng.contract(h, w[f"{k}.down"], over=[wide])
    return ng.contract(x, w["head"], over=[f])


# ---- PyTorch ---------------------------------------------------------------------------------------------------------------


def _torch(kind):
    import torch

    w = {name: torch.nn.Parameter(torch.from_numpy(value)) for name, (value, _) in drawn(kind).items()}
    forward = {"lstm": _torch_lstm, "transformer": _torch_transformer}[kind](torch, w)
    optimizer = torch.optim.SGD(forward.parameters() if kind == "lstm" else w.values(), RATE, MOMENTUM)

    def call(tokens, targets):
        scores = forward(torch.from_numpy(tokens))
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), torch.from_numpy(targets).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return call


def _torch_lstm(torch, w):
    """PyTorch's own LSTM, with its second bias held at zero."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(HIDDEN, HIDDEN, batch_first=True)
            with torch.no_grad():
                self.lstm.weight_ih_l0.copy_(w["wx"].flatten(0, 1))
                self.lstm.weight_hh_l0.copy_(w["wh"].flatten(0, 1))
                self.lstm.bias_ih_l0.copy_(w["b"].flatten())
                self.lstm.bias_hh_l0.zero_()
            self.lstm.bias_hh_l0.requires_grad_(False)
            self.embed, self.head = w["embed"], w["head"]

        def forward(self, tokens):
            return self.lstm(torch.nn.functional.embedding(tokens, self.embed))[0] @ self.head.T

    return Model()


def _torch_transformer(torch, w):
    functional = torch.nn.functional

    def forward(tokens):
        n, length = tokens.shape
        x = functional.embedding(tokens, w["embed"]) + w["places"][:length]
        for k in range(DEPTH):
            h = functional.layer_norm(x, (WIDTH,), w[f"{k}.normscale"], w[f"{k}.normshift"])
            q, key, value = ((h @ w[f"{k}.{one}"].flatten(0, 1).T).view(n, length, HEADS, -1).transpose(1, 2) for one in "qkv")
            y = functional.scaled_dot_product_attention(q, key, value, is_causal=True).transpose(1, 2).reshape(n, length, WIDTH)
            x = x + y @ w[f"{k}.o"].flatten(1).T
            h = functional.layer_norm(x, (WIDTH,), w[f"{k}.lastscale"], w[f"{k}.lastshift"])
            x = x + functional.relu(h @ w[f"{k}.up"].T) @ w[f"{k}.down"].T
        return x @ w["head"].T

    return forward
