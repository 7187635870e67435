"""A few ratios against NumPy and PyTorch, beside the last ones that were tracked in ratios.json: `python bench/ratios.py [--save]`

A ratio is the peer's time over ours, so above 1 we are faster. All take turns in one process, each on one thread, and the best call
of each counts. A peer that is not installed is left out. Nothing here fails because something is slow.
"""

import argparse
import json
import math
import os
import time

THREADS = os.environ.setdefault("NGRAPH_NUM_THREADS", "1")  # what several give depends on who else is there
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, THREADS)  # before NumPy reads them

import numpy as np  # noqa: E402

import ngraph as ng  # noqa: E402
import ngraph.transformers as ngt  # noqa: E402

try:
    import torch

    torch.set_num_threads(int(THREADS))
except ImportError:
    torch = None

TRACKED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ratios.json")
CHANGED = 0.15  # what differs by more than that from the tracked ratio is marked
DRAW = np.random.default_rng(0)


def normal(*shape):
    return DRAW.standard_normal(shape, dtype=np.float32)


def axes(**lengths):
    return [ng.make_axis(n, name=name) for name, n in lengths.items()]


def compiled(results, *holes):
    return ngt.make_transformer_factory("cpu")().computation(results, *holes)


def one_call():
    """x + 1 for a scalar: what a call costs."""
    x = ng.placeholder(())
    f, a, one = compiled(x + 1, x), np.asarray(np.float32(3)), np.float32(1)
    return lambda: f(a), {"numpy": lambda: a + one}


def product():
    """A product of two square matrices of 512."""
    i, k, j = axes(I=512, K=512, J=512)
    x, y = ng.placeholder([i, k]), ng.placeholder([k, j])
    f, a, b = compiled(ng.dot(x, y), x, y), normal(512, 512), normal(512, 512)
    peers = {"numpy": lambda: a @ b}
    if torch:
        s, t = torch.from_numpy(a), torch.from_numpy(b)
        peers["torch"] = lambda: s @ t
    return lambda: f(a, b), peers


def softmax():
    """The softmax of 512 rows of 1,000."""
    n, c = axes(N=512, C=1000)
    x = ng.placeholder([n, c])
    f, a = compiled(ng.softmax(x, normalization_axes=c), x), normal(512, 1000)

    def by_hand():
        e = np.exp(a - a.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    peers = {"numpy": by_hand}
    if torch:
        t = torch.from_numpy(a)
        peers["torch"] = lambda: torch.softmax(t, 1)
    return lambda: f(a), peers


def normalized():
    """gelu(layernorm(x)) + x of 1,024 rows of 768."""
    n, c = axes(N=1024, C=768)
    x = ng.placeholder([n, c])
    centred = x - ng.mean(x, reduction_axes=[c])
    y = centred / ng.sqrt(ng.mean(centred * centred, reduction_axes=[c]) + 1e-5)
    f, a = compiled(y * ng.sigmoid(1.5957691216 * (y + 0.044715 * y * y * y)) + x, x), normal(1024, 768)

    def by_hand():
        z = a - a.mean(1, keepdims=True)
        z = z / np.sqrt((z * z).mean(1, keepdims=True) + 1e-5)
        return z / (1 + np.exp(-1.5957691216 * (z + 0.044715 * z * z * z))) + a

    peers = {"numpy": by_hand}
    if torch:
        t = torch.from_numpy(a)
        gelu, norm = torch.nn.functional.gelu, torch.nn.functional.layer_norm
        peers["torch"] = lambda: gelu(norm(t, (768,)), approximate="tanh") + t
    return lambda: f(a), peers


def convolution():
    """relu of a 3x3 convolution of 64 channels over 8 images of 28x28."""
    n, c, h, w, k, r, s = axes(N=8, C=64, H=28, W=28, K=64, R=3, S=3)
    x, filters = ng.placeholder([n, c, h, w]), ng.variable([k, c, r, s], initial_value=(b := normal(64, 64, 3, 3)))
    f, a = compiled(ng.relu(ng.conv(x, filters, {h: r, w: s}, padding=1)), x), normal(8, 64, 28, 28)
    peers = {}
    if torch:
        t, u = torch.from_numpy(a), torch.from_numpy(b)
        peers["torch"] = lambda: torch.relu(torch.nn.functional.conv2d(t, u, padding=1))
    return lambda: f(a), peers


def step():
    """A training step of an MLP, 784-100-10, batch 128."""
    n, p, h, y = axes(N=128, P=784, H=100, Y=10)
    images, labels = normal(128, 784), DRAW.integers(0, 10, 128)
    w0, v0 = normal(784, 100) / 28, normal(100, 10) / 10
    x, label = ng.placeholder([n, p]), ng.placeholder([n], dtype=ng.int64)
    w, v = ng.variable([p, h], initial_value=w0), ng.variable([h, y], initial_value=v0)
    losses = ng.cross_entropy_multi(ng.softmax(ng.dot(ng.relu(ng.dot(x, w)), v), [y]), ng.one_hot(label, y), out_axes=[n])
    loss = ng.mean(losses, out_axes=())
    f = compiled([loss, ng.doall([ng.assign(q, q - 0.05 * ng.deriv(loss, q)) for q in (w, v)])], x, label)
    a, b, rows = w0.copy(), v0.copy(), np.arange(128)

    def by_hand():
        hidden = np.maximum(images @ a, 0)
        e = np.exp((z := hidden @ b) - z.max(1, keepdims=True))
        e /= e.sum(1, keepdims=True)
        value = -np.log(e[rows, labels]).mean()
        e[rows, labels] -= 1
        e /= 128
        back = (e @ b.T) * (hidden > 0)
        b[...] -= 0.05 * (hidden.T @ e)
        a[...] -= 0.05 * (images.T @ back)
        return value

    peers = {"numpy": by_hand}
    if torch:
        q, target = torch.from_numpy(images), torch.from_numpy(labels)
        parameters = [torch.from_numpy(m.copy()).requires_grad_() for m in (w0, v0)]
        optimizer = torch.optim.SGD(parameters, 0.05)

        def theirs():
            optimizer.zero_grad()
            found = torch.nn.functional.cross_entropy(torch.relu(q @ parameters[0]) @ parameters[1], target)
            found.backward()
            optimizer.step()
            return found.item()

        peers["torch"] = theirs
    return lambda: f(images, labels), peers


CASES = (one_call, product, softmax, normalized, convolution, step)


def best(calls, seconds):
    """The least seconds of a call of each, in turns."""
    found = [math.inf] * len(calls)
    for call in calls:
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for k, call in enumerate(calls):
            times = 1 if 1e-4 < found[k] < math.inf else 20
            start = time.perf_counter()
            for _ in range(times):
                call()
            found[k] = min(found[k], (time.perf_counter() - start) / times)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="track what was measured")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each case")
    asked = parser.parse_args()
    tracked = {}
    if os.path.exists(TRACKED):
        with open(TRACKED, encoding="utf-8") as file:
            tracked = json.load(file)
    ratios = {}
    print(f"{'time of a peer / ours':21} {'peer':>6} {'ours us':>10} {'theirs us':>10} {'ratio':>6} {'tracked':>8}")
    for case in CASES:
        ours, peers = case()
        times = best([ours, *peers.values()], asked.seconds)
        for peer, took in zip(peers, times[1:], strict=True):
            key = f"{case.__name__} {peer}"
            ratios[key] = round(took / times[0], 2)
            last = tracked.get(key)
            change = 0.0 if last is None else ratios[key] / last - 1
            mark = "" if abs(change) <= CHANGED else f"  {change:+.0%}"
            was = "-" if last is None else f"{last:.2f}"
            print(f"{case.__name__:21} {peer:>6} {times[0] * 1e6:10.1f} {took * 1e6:10.1f} {ratios[key]:6.2f} {was:>8}{mark}", flush=True)
    if asked.save:
        with open(TRACKED, "w", encoding="utf-8") as file:
            json.dump({**tracked, **ratios}, file, indent=1, sort_keys=True)
            file.write("\n")


if __name__ == "__main__":
    main()
