"""Random neon models in float64, with costs, gradients and training steps, compared with the same models in PyTorch.

A case: {"input": "image", "sequence" or "vector", "lengths": {axis: n}, "order": axes of the input as they are declared, "open": [axes
whose length comes with a call], "layers": [{kind, …}], "cost": {kind, …}, "optimizer": {kind, …} or None, "steps": n, "seed": s,
"transformer": name}. Both sides get
equal weights, drawn from the seed.
PyTorch's tensors have fixed orders of dims: N C H W, N T F and N F.
"""

import copy
import pprint
import random

import numpy as np
import torch
from torch.nn import functional

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.frontends import neon
from ngraph.frontends.neon import precision

torch.set_num_threads(1)
LIMIT = 1e-8  # of the largest number: sums of some thousand float64 terms, a few layers deep, stay below 1e-11; a loss scales them
AXES = {"image": "NCHW", "sequence": "NTF", "vector": "NF"}
NAMES = {"T": "REC"}
ACTIVATIONS = {
    "relu": (neon.Rectlin, torch.relu),
    "tanh": (neon.Tanh, torch.tanh),
    "logistic": (neon.Logistic, torch.sigmoid),
    "elu": (neon.Explin, functional.elu),
    "identity": (neon.Identity, lambda x: x),
}


# ---- layers: how each is made here, and what it means there; `w` are its weights by the last part of their paths ----------------


def affine(o, w, x):
    y = torch.einsum("nt...,o...->nto" if o["over_time"] else "n...,o...->no", x, w["W"])
    return ACTIVATIONS[o["activation"]][1](y + w["bias"] if o["bias"] else y)


def convolution(o, w, x):
    f = w["W"] if o["groups"] == 1 else w["W"].reshape(-1, *w["W"].shape[2:])
    y = functional.conv2d(x, f, w.get("bias"), o["strides"], o["padding"], o["dilation"], o["groups"])
    return ACTIVATIONS[o["activation"]][1](y)


def pooling(o, w, x):
    if o["pool_type"] == "max":
        x = functional.pad(x, [o["padding"]] * 4, value=-torch.inf)
        return functional.max_pool2d(x, o["shape"], o["strides"])
    return functional.avg_pool2d(x, o["shape"], o["strides"], o["padding"], count_include_pad=False)


def batch_norm(o, w, x):
    dims = [d for d in range(x.ndim) if d != o["channel"]]
    shape = [-1 if d == o["channel"] else 1 for d in range(x.ndim)]
    away = x - x.mean(dims, keepdim=True)
    return away / ((away * away).mean(dims, keepdim=True) + 1e-3).sqrt() * w["gamma"].reshape(shape) + w["beta"].reshape(shape)


def layer_norm(o, w, x):
    dims = tuple(range(2 if o["over_time"] else 1, x.ndim))
    away = x - x.mean(dims, keepdim=True) if o["kind"] == "LayerNorm" else x
    y = away / ((away * away).mean(dims, keepdim=True) + 1e-5).sqrt() * w["gamma"]
    return y + w["beta"] if o["kind"] == "LayerNorm" else y


def recurrent(o, w, x):
    """Returns the outputs by the equations of the three cells, a step at a time."""
    kind, times = o["kind"], range(x.shape[1])
    act = ACTIVATIONS[o["activation"]][1]
    h = c = torch.zeros(x.shape[0], o["nout"], dtype=x.dtype)
    found = [None] * len(times)
    for t in reversed(times) if o["backward"] else times:
        if kind == "Recurrent":
            h = act(x[:, t] @ w["W_x"].T + h @ w["W_h"].T + w["b"])
        else:
            z = torch.einsum("nf,gof->gno", x[:, t], w["W_x"]) + w["b"][:, None]
            again = torch.einsum("nf,gof->gno", h, w["W_h"])
            if kind == "LSTM":
                i, f, out = torch.sigmoid((z + again)[:3])
                c = f * c + i * act((z + again)[3])
                h = out * act(c)
            else:
                r, u = torch.sigmoid((z + again)[:2])
                new = act(z[2] + r * (again[2] + w["b_hn"]))
                h = new + u * (h - new)
        found[t] = h
    return torch.stack(found, 1) if o["return_sequence"] else h


def made(o):
    """Returns the layer of neon."""
    kind, active = o["kind"], ACTIVATIONS[o.get("activation", "identity")][0]()
    init = neon.GaussianInit()
    if kind == "Affine":
        return neon.Affine(init, nout=o["nout"], activation=active, bias=o["bias"])
    if kind == "Convolution":
        options = {k: o[k] for k in ("strides", "padding", "dilation", "groups")}
        return neon.Convolution((*o["shape"], o["nout"]), init, bias_init=0.0 if o["bias"] else None, activation=active, **options)
    if kind == "Pooling":
        return neon.Pooling(tuple(o["shape"]), strides=o["strides"], padding=o["padding"], pool_type=o["pool_type"])
    if kind == "GlobalPooling":
        return neon.GlobalPooling(o["pool_type"])
    if kind == "Activation":
        return neon.Activation(active)
    if kind in ("Recurrent", "LSTM", "GRU"):
        return getattr(neon, kind)(o["nout"], init, activation=active, backward=o["backward"], return_sequence=o["return_sequence"])
    return getattr(neon, kind)()


THERE = {
    "Affine": affine,
    "Convolution": convolution,
    "Pooling": pooling,
    "BatchNorm": batch_norm,
    "LayerNorm": layer_norm,
    "RMSNorm": layer_norm,
    "Recurrent": recurrent,
    "LSTM": recurrent,
    "GRU": recurrent,
    "Activation": lambda o, w, x: ACTIVATIONS[o["activation"]][1](x),
    "GlobalPooling": lambda o, w, x: x.mean((2, 3)) if o["pool_type"] == "avg" else x.amax((2, 3)),
}


# ---- costs and optimizers --------------------------------------------------------------------------------------------


def per_example(cost, time):
    """Returns sums over features; means over time."""
    cost = cost.flatten(2).sum(2).mean(1) if time else cost.flatten(1).sum(1)
    return cost


def cost_there(o, y, t, time):
    if o["kind"] == "CrossEntropyMulti":
        share = functional.one_hot(t, y.shape[-1]).to(y.dtype) * (1 - o["smoothing"]) + o["smoothing"] / y.shape[-1]
        found = -(share * y.log_softmax(-1)).sum(-1)
        return found.mean(1) if time else found
    if o["kind"] == "CrossEntropyBinary":
        return per_example(functional.binary_cross_entropy_with_logits(y, t, reduction="none"), time)
    apart = y - t
    if o["kind"] == "SquaredL2":
        return per_example(apart * apart, time)
    each = {
        "MeanSquared": apart * apart,
        "MeanAbsolute": apart.abs(),
        "Huber": torch.where(apart.abs() < 1, 0.5 * apart * apart, apart.abs() - 0.5),
    }[o["kind"]]
    return each.flatten(1).mean(1)


COSTS = {
    "CrossEntropyMulti": lambda o: neon.CrossEntropyMulti(logits=True, smoothing=o["smoothing"]),
    "CrossEntropyBinary": lambda o: neon.CrossEntropyBinary(logits=True),
    "SquaredL2": lambda o: neon.SquaredL2(),
    "MeanSquared": lambda o: neon.MeanSquared(),
    "MeanAbsolute": lambda o: neon.MeanAbsolute(),
    "Huber": lambda o: neon.Huber(),
}


def updated(o, k, w, g, slots):
    """Returns the weight after step k of an optimizer, counted from 1, by its paper."""
    lr = o["lr"]
    if o["kind"] == "GradientDescentMomentum":
        slots["v"] = o["momentum"] * slots.get("v", 0.0) - lr * (g + o["wdecay"] * w)
        return w + slots["v"]
    if o["kind"] == "RMSProp":
        slots["n"] = 0.95 * slots.get("n", 1.0) + 0.05 * g * g
        return w - lr * g / (slots["n"] + 1e-6).sqrt()
    if o["kind"] == "Adagrad":
        slots["n"] = slots.get("n", 0.0) + g * g
        return w - lr * g / (slots["n"] + 1e-8).sqrt()
    if o["kind"] == "AdamW":
        w = w * (1 - lr * o["wdecay"])
    slots["m"] = 0.9 * slots.get("m", 0.0) + 0.1 * g
    slots["n"] = 0.999 * slots.get("n", 0.0) + 0.001 * g * g
    return w - lr * (slots["m"] / (1 - 0.9**k)) / ((slots["n"] / (1 - 0.999**k)).sqrt() + o["epsilon"])


def optimizer_here(o):
    options = {"wdecay": o["wdecay"]} if o["kind"] in ("AdamW", "GradientDescentMomentum") else {}
    if o["kind"] == "GradientDescentMomentum":
        options["momentum_coef"] = o["momentum"]
    if o["kind"] in ("Adam", "AdamW"):
        options["epsilon"] = o["epsilon"]
    return getattr(neon, o["kind"])(learning_rate=o["lr"], **options)


# ---- both sides ------------------------------------------------------------------------------------------------------


def data(case):
    draw = np.random.default_rng(case["seed"])
    x = draw.normal(size=[case["lengths"][a] for a in AXES[case["input"]]])
    return draw, x


def target_of(case, draw, shape):
    kind = case["cost"]["kind"]
    if kind == "CrossEntropyMulti":
        return draw.integers(0, shape[-1], shape[:-1])
    return draw.integers(0, 2, shape).astype(float) if kind == "CrossEntropyBinary" else draw.normal(size=shape)


def check(case):
    """Returns what differs: the value, the cost, a gradient, or a weight after the steps; None where all agree."""
    draw, array = data(case)
    dims, time = AXES[case["input"]], case["input"] == "sequence"
    open_ = case.get("open", [])
    axis = {a: ng.make_axis(None if a in open_ else case["lengths"][a], name=NAMES.get(a, a)) for a in dims}
    x = ng.placeholder([axis[a] for a in case["order"]], dtype="float64")
    layers = [made(o) for o in case["layers"]]
    with precision("float64", "float64"):
        y = neon.Sequential(layers)(x)
        kept = [a for a in y.axes if a.is_batch], [a for a in y.axes if a.is_recurrent]
        time = time and bool(kept[1])
        features = [a for a in y.axes if not (a.is_batch or a.is_recurrent)]
        if not time and len(features) == 3:  # a map that no layer has flattened
            features = [next(a for a in features if a.name == n) for n in "CHW"]
        out = [*kept[0], *kept[1], *features]
        classes = case["cost"]["kind"] == "CrossEntropyMulti"
        t = ng.placeholder(out[:-1] if classes else out, dtype="int32" if classes else "float64")
        cost = COSTS[case["cost"]["kind"]](case["cost"])(y, t)
    places = [list(layer.paths().items()) for layer in layers]
    weights = [(k, path.split("/")[-1], v) for k, each in enumerate(places) for path, v in each if v.is_trainable]
    total = ng.mean(cost, out_axes=())
    slopes = [ng.deriv(total, v) for _, _, v in weights]
    values = [draw.normal(size=v.axes.lengths) * 0.5 + (1.0 if name == "gamma" else 0.0) for _, name, v in weights]
    target = target_of(case, draw, [case["lengths"]["N" if a.is_batch else "T"] if a.length is None else a.length for a in out])
    with ngt.make_transformer_factory(case["transformer"])() as transformer:
        look = transformer.computation([ng.axes_with_order(y, out), cost, ng.deriv(total, x), *slopes], x, t)
        step = None
        if case["optimizer"]:
            step = transformer.computation([total, optimizer_here(case["optimizer"])(cost)], x, t)
        for (_, _, v), value in zip(weights, values, strict=True):
            transformer.set(v, value)
        given = array.transpose([dims.index(a) for a in case["order"]])
        got = list(look(given, target))
        losses = [float(step(given, target)[0]) for _ in range(case["steps"])] if step else []
        after = [np.array(transformer.get(v)) for _, _, v in weights]
    turns = [_turn(case["layers"][k]["kind"], v.axes) for k, _, v in weights]
    tensors = [torch.tensor(value.transpose(turn), requires_grad=True) for value, turn in zip(values, turns, strict=True)]
    got[3:] = [g.transpose(turn) for g, turn in zip(got[3:], turns, strict=True)]
    after = [w.transpose(turn) for w, turn in zip(after, turns, strict=True)]
    tx = torch.tensor(array, requires_grad=True)
    expected = list(_there(case, weights, tensors, tx, target, time))
    expected[2] = expected[2].transpose([dims.index(a) for a in case["order"]])
    names = [
        "the output",
        "the cost",
        "the gradient of the input",
        *(f"the gradient of {case['layers'][k]['kind']} {k}'s {n}" for k, n, _ in weights),
    ]
    for name, a, b in zip(names, got, expected, strict=True):
        found = apart(a, b)
        if found:
            return f"{name}: {found}"
    return _steps_differ(case, weights, tensors, tx, target, time, losses, after) if step else None


def _turn(kind, axes):
    """The order of a weight's axes in PyTorch's dims: what comes out, then what goes in, each as C, H, W. Filters are in it already."""
    if kind not in ("Affine", "LayerNorm", "RMSNorm"):
        return list(range(len(axes)))
    return sorted(range(len(axes)), key=lambda d: (axes[d].dual < 0, "CHW".find(axes[d].name.rstrip("'"))))


def _there(case, weights, tensors, tx, target, time):
    """The output, the cost, and the gradients of the input and of each weight, as PyTorch has them."""
    y = tx
    for k, o in enumerate(case["layers"]):
        y = THERE[o["kind"]](o, {n: w for (j, n, _), w in zip(weights, tensors, strict=True) if j == k}, y)
    cost = cost_there(case["cost"], y, torch.tensor(target), time)
    found = torch.autograd.grad(cost.mean(), [tx, *tensors], allow_unused=True)
    yield y.detach().numpy()
    yield cost.detach().numpy()
    for g, v in zip(found, [tx, *tensors], strict=True):
        yield np.zeros(v.shape) if g is None else g.numpy()


def _steps_differ(case, weights, tensors, tx, target, time, losses, after):
    slots = [{} for _ in tensors]
    for k in range(1, case["steps"] + 1):
        _, cost, _, *slopes = _there(case, weights, tensors, tx, target, time)
        if abs(float(cost.mean()) - losses[k - 1]) > LIMIT * 100 * max(1.0, abs(losses[k - 1])):
            return f"the cost of step {k}: {losses[k - 1]} in place of {float(cost.mean())}"
        with torch.no_grad():
            pairs = zip(tensors, slopes, slots, strict=True)
            tensors = [updated(case["optimizer"], k, w, torch.tensor(g), s).requires_grad_() for w, g, s in pairs]
    for (k, n, _), a, b in zip(weights, after, tensors, strict=True):
        found = apart(a, b.detach().numpy(), LIMIT * 1000)
        if found:
            return f"{case['layers'][k]['kind']} {k}'s {n} after {case['steps']} steps of {case['optimizer']['kind']}: {found}"
    return None


def apart(a, b, limit=LIMIT):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape:
        return f"shape {a.shape} in place of {b.shape}"
    away = np.abs(a - b)
    most = limit * max(1.0, np.abs(b).max(initial=0))
    if not (away <= most).all():
        at = tuple(int(i) for i in np.unravel_index(np.nanargmax(np.where(np.isnan(away), np.inf, away)), a.shape))
        return f"{int((~(away <= most)).sum())} of {a.size} numbers are wrong, the worst at {at}: {a[at]} in place of {b[at]}"
    return None


# ---- drawing cases ---------------------------------------------------------------------------------------------------


def draw(seed):
    """Returns a model of one to five layers."""
    r = random.Random(seed)
    kind = r.choice(["image", "image", "sequence", "vector"])
    lengths = {"N": r.choice([1, 2, 3, 5, 8, 17]), "C": r.choice([1, 2, 3, 4, 6, 8]), "H": r.randrange(1, 13), "W": r.randrange(1, 13)}
    lengths |= {"T": r.randrange(1, 9), "F": r.choice([1, 2, 3, 5, 8, 16, 19])}
    dims = AXES[kind]
    order = list(dims)
    r.shuffle(order)
    layers = {"image": _image, "sequence": _sequence, "vector": _vector}[kind](r, {a: lengths[a] for a in dims})
    free = random.Random(seed + 1)  # of its own, so that the models of seeds stay
    costs = ["CrossEntropyMulti", "CrossEntropyBinary", "SquaredL2", "MeanSquared", "MeanAbsolute", "Huber"]
    optimizers = ["GradientDescentMomentum", "GradientDescentMomentum", "RMSProp", "Adam", "AdamW", "Adagrad"]
    return {
        "input": kind,
        "lengths": {a: lengths[a] for a in dims},
        "order": order,
        "layers": layers,
        "cost": {"kind": r.choice(costs), "smoothing": r.choice([0.0, 0.0, 0.1])},
        "optimizer": None
        if r.random() < 0.4
        else {
            "kind": r.choice(optimizers),
            "lr": r.choice([0.1, 0.01]),
            "momentum": r.choice([0.0, 0.9]),
            "wdecay": r.choice([0.0, 0.01]),
            "epsilon": 1e-3,  # large enough that a gradient near 0 does not decide over a whole step by its rounding
        },
        "steps": r.choice([1, 2, 3]),
        "seed": r.randrange(10**6),
        "transformer": r.choice(["direct", "direct", "direct", "cpu"]),  # direct compiles nothing, so that more models are seen
        "open": [a for a in _may_be_open(dims, layers) if free.random() < 0.4],
    }


def _may_be_open(dims, layers):
    """The axes of the input that no weight has, nor a reshape counts: sides of pictures are gone before the first of these."""
    sides = any(o["kind"] == "GlobalPooling" for o in layers) and not any(o["kind"] == "LayerNorm" for o in layers)
    return [a for a in dims if a in "NT" or a in "HW" and sides]


def _affine(r, over_time=False, bias=None):
    return {
        "kind": "Affine",
        "nout": r.choice([1, 2, 3, 5, 8, 10, 17]),
        "activation": r.choice([*ACTIVATIONS, "identity"]),
        "bias": r.random() < 0.7 if bias is None else bias,
        "over_time": over_time,
    }


def _last(r, over_time=False):
    return {**_affine(r, over_time), "nout": r.choice([2, 3, 5, 10]), "activation": "identity"}


def _image(r, n):
    layers, n = [], dict(n)
    for _ in range(r.choice([0, 1, 1, 2, 3])):
        what = r.choice(["Convolution"] * 4 + ["Pooling", "Pooling", "BatchNorm", "Activation", "LayerNorm"])
        if what in ("Convolution", "Pooling"):
            shape = [r.choice([k for k in (1, 2, 3, 3, 5) if k <= n[a] + 1] or [1]) for a in "HW"]
            padding = r.choice([p for p in (0, 0, 1, 2) if p < min(shape) or what == "Convolution"])
            if what == "Pooling":
                padding = min(padding, min(shape) // 2)
            strides, dilation = r.choice([1, 1, 2, 3]), r.choice([1, 1, 2]) if what == "Convolution" else 1
            out = {a: (n[a] + 2 * padding - dilation * (k - 1) - 1) // strides + 1 for a, k in zip("HW", shape, strict=True)}
            if min(out.values()) < 1:
                continue
            n |= out
            o = {"kind": what, "shape": shape, "strides": strides, "padding": padding}
            if what == "Pooling":
                o["pool_type"] = r.choice(["max", "avg"])
            else:
                o["groups"] = r.choice([g for g in (1, 1, 1, 2, 3, n["C"]) if n["C"] % g == 0])
                n["C"] = o["groups"] * r.choice([1, 2, 3, 4])
                o |= {"nout": n["C"], "dilation": dilation, "bias": r.random() < 0.6, "activation": r.choice([*ACTIVATIONS])}
            layers.append(o)
        elif what == "BatchNorm":
            layers.append({"kind": what, "channel": 1})
        elif what == "LayerNorm":
            layers.append({"kind": what, "over_time": False})
        else:
            layers.append({"kind": what, "activation": r.choice([*ACTIVATIONS])})
    if r.random() < 0.3:
        layers.append({"kind": "GlobalPooling", "pool_type": r.choice(["avg", "max"])})
    return [*layers, *([_affine(r)] if r.random() < 0.4 else []), _last(r)]


def _vector(r, n):
    layers = []
    for _ in range(r.choice([0, 1, 2, 3])):
        what = r.choice(["Affine", "Affine", "BatchNorm", "LayerNorm", "RMSNorm", "Activation"])
        options = {"Affine": _affine(r), "BatchNorm": {"channel": 1}, "Activation": {"activation": r.choice([*ACTIVATIONS])}}
        layers.append({"kind": what, **options.get(what, {"over_time": False})})
    return [*layers, _last(r)]


def _sequence(r, n):
    layers = []
    for _ in range(r.choice([1, 1, 2])):
        what = r.choice(["Recurrent", "LSTM", "LSTM", "GRU", "GRU"])
        if r.random() < 0.3:
            layers.append(_affine(r, True))
        if r.random() < 0.2:
            layers.append({"kind": r.choice(["LayerNorm", "RMSNorm"]), "over_time": True})
        o = {"kind": what, "nout": r.choice([1, 2, 3, 5, 8, 17]), "activation": r.choice(["tanh", "tanh", "relu", "logistic"])}
        layers.append({**o, "backward": r.random() < 0.4, "return_sequence": True})
    last = r.random() < 0.4
    layers[-1]["return_sequence"] = not last
    return [*layers, _last(r, not last)]


# ---- making cases smaller --------------------------------------------------------------------------------------------


def smaller(case):
    """Yields fewer layers and steps, shorter axes, simpler options."""
    for k in range(len(case["layers"])):
        made_case = copy.deepcopy(case)
        del made_case["layers"][k]
        if made_case["layers"] and _fits(made_case):
            yield made_case
    if case["optimizer"]:
        yield {**case, "optimizer": None}
    if case["steps"] > 1:
        yield {**case, "steps": 1}
    if case["transformer"] != "direct":
        yield {**case, "transformer": "direct"}
    for a in case.get("open", []):
        yield {**case, "open": [b for b in case["open"] if b != a]}
    plain = list(AXES[case["input"]])
    if case["order"] != plain:
        yield {**case, "order": plain}
    for a, n in case["lengths"].items():
        for shorter in dict.fromkeys([1, n // 2, n - 1]):
            made_case = copy.deepcopy(case)
            made_case["lengths"][a] = shorter
            if 0 < shorter < n and _fits(made_case):
                yield made_case
    plainer = {
        "activation": "identity",
        "bias": False,
        "strides": 1,
        "padding": 0,
        "dilation": 1,
        "groups": 1,
        "nout": 1,
        "backward": False,
    }
    for k, o in enumerate(case["layers"]):
        for key, value in plainer.items():
            if key in o and o[key] != value:
                made_case = copy.deepcopy(case)
                made_case["layers"][k][key] = value
                if _fits(made_case):
                    yield made_case


def _fits(case):
    """Whether the layers can follow each other, by PyTorch's shapes."""
    n = dict(case["lengths"])
    flat = case["input"] != "image"
    sequence = case["input"] == "sequence"
    for o in case["layers"]:
        if o["kind"] in ("Convolution", "Pooling"):
            if flat:
                return False
            for a, k in zip("HW", o["shape"], strict=True):
                n[a] = (n[a] + 2 * o["padding"] - o.get("dilation", 1) * (k - 1) - 1) // o["strides"] + 1
            if min(n["H"], n["W"]) < 1:
                return False
            if o["kind"] == "Convolution":
                if n["C"] % o["groups"] or o["nout"] % o["groups"]:
                    return False
                n["C"] = o["nout"]
        elif o["kind"] == "GlobalPooling":
            if flat:
                return False
            flat = True
        elif o["kind"] in ("Recurrent", "LSTM", "GRU"):
            if not sequence:
                return False
            sequence = o["return_sequence"]
        elif o["kind"] == "Affine":
            if o["over_time"] != sequence:
                return False
            flat = True
        elif o.get("over_time", sequence) != sequence:
            return False
    return case["layers"][-1]["kind"] == "Affine"


def program(case):
    """Returns the case as a program that shows the difference."""
    shown = pprint.pformat(case, width=120, sort_dicts=False)
    layers = "".join(f"#   {made(o)!r}\n" for o in case["layers"])
    return f"# the layers:\n{layers}from hunt.layers import check\n\ncase = {shown}\nprint(check(case))\n"
