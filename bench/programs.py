"""Programs that are no stack of layers, as users write them, beside PyTorch's own: `python bench/programs.py [NAME …]`

Solvers, simulations, graphs of nodes, tables of embeddings, attention in a loop, and products of a few rows with a large matrix that each
call gives. Both take turns in one process on NGRAPH_NUM_THREADS threads (2 unless told); medians of calls, then of rounds. Results are
compared first. NAME: what a program's name begins with. Needs PyTorch, which the tests' virtual environment has.
"""

import numpy as np
import torch
from beside import axes, main, medians
from torch.nn import functional as F

import ngraph as ng
import ngraph.transformers as ngt

CALLS, WARM = 9, 0.1
DRAW = np.random.default_rng(0)


def drawn(*shape, by=1.0):
    return DRAW.standard_normal(shape, dtype=np.float32) * np.float32(by)


def chosen(count, *shape):
    return DRAW.integers(0, count, shape)


def alone(axis):
    """What a loop that takes nothing along its axis goes over."""
    return (ng.iota(axis),)


def conjugate_gradients(size=1000, steps=50):
    """Each step multiplies a matrix by a vector."""
    i, j, t = axes(I=size, J=size, T=steps)
    a, b = ng.placeholder([i, j]), ng.placeholder([i])

    def step(carry, _):
        x, r, p, rr = carry
        ap = ng.dot(a, ng.map_roles(p, {"I": "J"}))
        far = rr / ng.sum(p * ap, out_axes=())
        x, r = x + far * p, r - far * ap
        now = ng.sum(r * r, out_axes=())
        return (x, r, r + now / rr * p, now), None

    (x, *_), _ = ng.scan(step, (0.0 * b, b, b, ng.sum(b * b, out_axes=())), alone(t), t)
    half = drawn(size, size)
    arrays = half @ half.T / size + np.eye(size, dtype=np.float32), drawn(size)

    def other(a, b):
        x, r, p, rr = torch.zeros_like(b), b, b, b @ b
        for _ in range(steps):
            ap = a @ p
            far = rr / (p @ ap)
            x, r = x + far * p, r - far * ap
            now = r @ r
            p, rr = r + now / rr * p, now
        return x

    return x, [a, b], arrays, other


def both_ways(rows=1000, columns=3072, steps=10):
    """A matrix and its transpose, one after the other."""
    m, n, t = axes(M=rows, P=columns, T=steps)
    a, x = ng.placeholder([m, n]), ng.placeholder([n])
    y, _ = ng.scan(lambda c, _: (ng.dot(ng.tanh(ng.dot(a, c)), a), None), x, alone(t), t)

    def other(a, x):
        for _ in range(steps):
            x = torch.tanh(a @ x) @ a
        return x

    return y, [a, x], (drawn(rows, columns, by=0.01), drawn(columns)), other


def few_rows(rows, long, columns, along=True):
    """`along`: whether the matrix lies along the sum."""
    m, k, n = axes(M=rows, K=long, P=columns)
    x, w = ng.placeholder([m, k]), ng.placeholder([n, k] if along else [k, n])
    arrays = drawn(rows, long), drawn(columns, long) if along else drawn(long, columns)
    return ng.dot(x, w), [x, w], arrays, lambda x, w: x @ (w.T if along else w)


def k_means(points=20000, features=32, clusters=64, steps=10):
    n, d, k, t = axes(N=points, D=features, K=clusters, T=steps)
    x, start = ng.placeholder([n, d]), ng.placeholder([k, d])

    def step(c, _):
        near = ng.argmin(ng.sum(c * c, reduction_axes=[d]) - 2 * ng.einsum("N D, K D -> N K", x, c), reduction_axes=[k])
        mine = ng.one_hot(near, k)
        return ng.einsum("N K, N D -> K D", mine, x) / ng.maximum(ng.sum(mine, reduction_axes=[n]), 1.0), None

    def other(x, c):
        for _ in range(steps):
            near = ((c * c).sum(1) - 2 * x @ c.T).argmin(1)
            total = torch.zeros_like(c).index_add(0, near, x)
            c = total / torch.bincount(near, minlength=clusters).clamp(min=1)[:, None]
        return c

    found, _ = ng.scan(step, start, alone(t), t)
    arrays = drawn(points, features)
    return found, [x, start], (arrays, arrays[:clusters].copy()), other


def heat(size=512, steps=100):
    """What spreads over a plate: five points of a grid."""
    h, w, t = axes(H=size, W=size, T=steps)
    u = ng.placeholder([h, w])

    def step(c, _):
        edged = ng.pad(c, [(1, 1), (1, 1)])
        moved = [ng.tensor_slice(edged, [slice(i, i + size), slice(j, j + size)]) for i, j in ((0, 1), (2, 1), (1, 0), (1, 2))]
        return c + 0.1 * (sum(ng.cast_axes(m, [h, w]) for m in moved) - 4.0 * c), None

    def other(c):
        for _ in range(steps):
            e = F.pad(c, (1, 1, 1, 1))
            c = c + 0.1 * (e[:-2, 1:-1] + e[2:, 1:-1] + e[1:-1, :-2] + e[1:-1, 2:] - 4 * c)
        return c

    return ng.scan(step, u, alone(t), t)[0], [u], (drawn(size, size),), other


def bodies(count=2000):
    """The pull of each on each."""
    i, j, d = axes(I=count, J=count, D=3)
    p, q, mass = ng.placeholder([i, d]), ng.placeholder([j, d]), ng.placeholder([j])
    far = q - p
    square = ng.sum(far * far, reduction_axes=[d]) + 0.01
    pull = ng.axes_with_order(ng.sum(far * (mass / (square * ng.sqrt(square))), reduction_axes=[j]), [i, d])

    def other(p, q, mass):
        far = q[None] - p[:, None]
        square = (far * far).sum(-1) + 0.01
        return (far * (mass / (square * square.sqrt()))[..., None]).sum(1)

    places = drawn(count, 3)
    return pull, [p, q, mass], (places, places, np.abs(drawn(count))), other


def messages(nodes=10000, edges=80000, width=64):
    """Two layers of a graph network, and the gradient of their weights."""
    n, e, d, k = axes(N=nodes, E=edges, D=width, K=width)
    x, source, target = ng.placeholder([n, d]), ng.placeholder([e], dtype=np.int32), ng.placeholder([e], dtype=np.int32)
    weights = [ng.placeholder([d, k]) for _ in range(2)]
    h = x
    for w in weights:
        h = ng.map_roles(ng.relu(ng.dot(ng.scatter_add(0.0 * h, target, ng.take(h, source, n), n), w)), {"K": "D"})
    gradient = ng.deriv(ng.mean(ng.square(h), out_axes=()), weights[0])

    def other(x, source, target, *weights):
        weights = [w.requires_grad_() for w in weights]
        h = x
        for w in weights:
            h = F.relu(torch.zeros_like(h).index_add(0, target, h[source]) @ w)
        return torch.autograd.grad(h.square().mean(), weights)[0]

    arrays = drawn(nodes, width), chosen(nodes, edges), chosen(nodes, edges), *[drawn(width, width, by=0.1) for _ in range(2)]
    return gradient, [x, source, target, *weights], arrays, other


def decoder(batch=32, steps=20, words=30, width=128):
    """An LSTM that attends to other words in each step, and the gradient of its weights."""
    n, t, s, d, g = axes(N=batch, T=steps, S=words, D=width, G=4 * width)
    known, y = ng.placeholder([n, s, d]), ng.placeholder([n, t, d])
    weights = [ng.placeholder([d, g]) for _ in range(3)]

    def step(carry, x):
        h, c = carry
        score = ng.softmax(ng.einsum("N D, N S D -> N S", h, known), s)
        z = sum(ng.dot(v, w) for v, w in zip((x, h, ng.einsum("N S, N S D -> N D", score, known)), weights, strict=True))
        i, f, o, new = [ng.map_roles(ng.slice_along_axis(z, g, slice(k * width, (k + 1) * width)), {"G": "D"}) for k in range(4)]
        c = ng.sigmoid(f) * c + ng.sigmoid(i) * ng.tanh(new)
        h = ng.sigmoid(o) * ng.tanh(c)
        return (h, c), h

    zeros = ng.constant(np.zeros((batch, width), np.float32), [n, d])
    _, made = ng.scan(step, (zeros, zeros), y, t)
    gradient = ng.deriv(ng.mean(ng.square(made - y), out_axes=()), weights[1])

    def other(known, y, *weights):
        weights = [w.requires_grad_() for w in weights]
        h = c = torch.zeros(batch, width)
        made = []
        for k in range(steps):
            score = torch.softmax(torch.einsum("nd,nsd->ns", h, known), 1)
            context = torch.einsum("ns,nsd->nd", score, known)
            i, f, o, new = (y[:, k] @ weights[0] + h @ weights[1] + context @ weights[2]).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(new)
            h = torch.sigmoid(o) * torch.tanh(c)
            made.append(h)
        return torch.autograd.grad((torch.stack(made, 1) - y).square().mean(), weights)[1]

    arrays = drawn(batch, words, width), drawn(batch, steps, width), *[drawn(width, 4 * width, by=0.08) for _ in range(3)]
    return gradient, [known, y, *weights], arrays, other


def decay_and_gate(batch=4, length=256, width=128, states=16):
    """A state space whose decay depends on its input."""
    n, t, d, s = axes(N=batch, T=length, D=width, S=states)
    x, rate = ng.placeholder([n, t, d]), ng.placeholder([n, t, d])
    into, out, a = ng.placeholder([n, t, s]), ng.placeholder([n, t, s]), ng.placeholder([d, s])

    def step(h, now):
        x, rate, into, out = now
        h = ng.exp(rate * a) * h + rate * x * into
        return h, ng.sum(h * out, reduction_axes=[s])

    _, y = ng.scan(step, ng.constant(np.zeros((batch, width, states), np.float32), [n, d, s]), (x, rate, into, out), t)

    def other(x, rate, into, out, a):
        h, made = torch.zeros(batch, width, states), []
        for k in range(length):
            h = torch.exp(rate[:, k, :, None] * a) * h + (rate[:, k] * x[:, k])[..., None] * into[:, k, None]
            made.append((h * out[:, k, None]).sum(-1))
        return torch.stack(made, 1)

    arrays = drawn(batch, length, width), np.abs(drawn(batch, length, width, by=0.1))
    arrays += drawn(batch, length, states), drawn(batch, length, states), -np.abs(drawn(width, states))
    return ng.axes_with_order(y, [n, t, d]), [x, rate, into, out, a], arrays, other


PROGRAMS = {
    "conjugate gradients, 1,000 x 1,000, 50 steps": conjugate_gradients,
    "a matrix of 1,000 x 3,072 both ways, 10 times": both_ways,
    "16 rows of 3,072 by a matrix along the sum, 1,000 columns": lambda: few_rows(16, 3072, 1000),
    "32 rows of 1,000 by a matrix along the sum, 64 columns": lambda: few_rows(32, 1000, 64),
    "64 rows of 64 by a matrix along the sum, 3,072 columns": lambda: few_rows(64, 64, 3072),
    "16 rows of 3,072 by a matrix across the sum, 1,000 columns": lambda: few_rows(16, 3072, 1000, False),
    "k-means, 20,000 points of 32, 64 clusters, 10 steps": k_means,
    "heat on a plate of 512 x 512, 100 steps": heat,
    "2,000 bodies": bodies,
    "graph network, 10,000 nodes, 80,000 edges, gradient": messages,
    "LSTM of 128 that attends to 30 words, gradient": decoder,
    "selective state space, 4 x 256 x 128": decay_and_gate,
}


def row(name, make):
    result, holes, arrays, other = make()
    ours = ngt.make_transformer().computation(result, *holes)
    given = [a.astype(np.int32) if a.dtype == np.int64 else a for a in arrays]
    tensors = [torch.tensor(a) for a in arrays]
    found, wanted = ours(*given), other(*tensors).detach().numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max(), err_msg=name)
    ((a, b),) = medians([(lambda: ours(*given), lambda: other(*tensors))], CALLS, WARM)
    return [f"{a * 1e3:.2f}", f"{b * 1e3:.2f}", f"**{b / a:.2f}**"]


if __name__ == "__main__":
    main(PROGRAMS, ["program", "ngraph, ms", "PyTorch, ms", "ratio"], row)
