"""Programs with grad, jacobian, hessian, hvp, vmap, scan, while_loop and cond, each written for ngraph and for JAX.

`python tests/ops/jax_programs.py` runs JAX's side in float64, where JAX is installed, and writes the answers to jax_answers.json;
test_jax.py runs the other side and compares. JAX is imported by that command alone.

A program has inputs, a nest of texts such as "H=3 K=4" (normal numbers), "+H=3" (between 0.5 and 1.5) or "5:H=3" (whole numbers below 5).
"""

import dataclasses
import json
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ngraph.parts.deferred import deferred

F = "float64"
ANSWERS = Path(__file__).with_name("jax_answers.json")
ng, jax, jnp = deferred("ngraph"), deferred("jax"), deferred("jax.numpy")


@dataclasses.dataclass
class Layer:
    w: Any
    b: Any


class Program(NamedTuple):
    inputs: tuple[Any, ...]
    ours: Any
    theirs: Any


PROGRAMS: dict[str, Program] = {}


def program(name, *inputs, ours, theirs):
    assert name not in PROGRAMS
    PROGRAMS[name] = Program(inputs, ours, theirs)


def mapped(f, x):
    """Returns a nest of the same form."""
    if isinstance(x, dict):
        return {k: mapped(f, v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return type(x)([mapped(f, v) for v in x])
    if dataclasses.is_dataclass(x):
        return type(x)(**{a.name: mapped(f, getattr(x, a.name)) for a in dataclasses.fields(x)})
    return f(x)


def leaves(x, path=""):
    """Yields the path and the value of each leaf; keys of dicts in order."""
    if isinstance(x, dict):
        every = [(str(k), x[k]) for k in sorted(x)]
    elif isinstance(x, list | tuple) and not hasattr(x, "dtype"):
        every = [(str(k), v) for k, v in enumerate(x)]
    elif dataclasses.is_dataclass(x):
        every = [(a.name, getattr(x, a.name)) for a in dataclasses.fields(x)]
    else:
        yield path, x
        return
    for k, v in every:
        yield from leaves(v, f"{path}/{k}")


def values(name):
    """Returns the numbers that a program's inputs have, drawn by its name."""
    draw = np.random.default_rng(zlib.crc32(name.encode()))

    def one(text):
        kind, _, axes = text.rpartition(":") if ":" in text else (text[:1] if text[:1] == "+" else "", "", text.lstrip("+"))
        shape = [int(a.partition("=")[2]) for a in axes.split()]
        if kind.isdigit():
            return draw.integers(0, int(kind), shape).astype(np.int32)
        return draw.random(shape) + 0.5 if kind == "+" else draw.standard_normal(shape)

    return mapped(one, PROGRAMS[name].inputs)


def axes_of(text):
    return text.rpartition(":")[2].lstrip("+")


# ---- gradients --------------------------------------------------------------------------------------------------------------


def total(x):
    return ng.sum(x, out_axes=())


program(
    "the gradient of a product of all", "H=4",
    ours=lambda x: ng.grad(lambda x: ng.prod(x, "H"))(x),
    theirs=lambda x: jax.grad(jnp.prod)(x),
)  # fmt: skip
program(
    "the gradient of a log-sum-exp", "H=3 K=4",
    ours=lambda x: ng.grad(lambda x: total(ng.logsumexp(x, "K")))(x),
    theirs=lambda x: jax.grad(lambda x: jax.nn.logsumexp(x, axis=1).sum())(x),
)  # fmt: skip
program(
    "the gradient of a norm", "H=5",
    ours=lambda x: ng.grad(lambda x: ng.norm(x, reduction_axes="H"))(x),
    theirs=lambda x: jax.grad(jnp.linalg.norm)(x),
)  # fmt: skip
program(
    "the gradient of the largest of each row", "H=3 K=4",
    ours=lambda x: ng.grad(lambda x: total(ng.max(x, "K") ** 2))(x),
    theirs=lambda x: jax.grad(lambda x: (x.max(1) ** 2).sum())(x),
)  # fmt: skip
program(
    "value and gradient of a dict", {"w": "H=3 K=4", "b": "K=4"}, "N=5 H=3",
    ours=lambda p, x: ng.value_and_grad(lambda p: total(ng.tanh(ng.contract(x, p["w"], over="H") + p["b"]) ** 2))(p),
    theirs=lambda p, x: jax.value_and_grad(lambda p: (jnp.tanh(x @ p["w"] + p["b"]) ** 2).sum())(p),
)  # fmt: skip
program(
    "the gradient of a list of dicts", [{"w": "H=3", "b": ""}, {"w": "H=3", "b": ""}], "H=3",
    ours=lambda p, x: ng.grad(lambda p: total(ng.sin(x * p[0]["w"] + p[0]["b"]) * p[1]["w"]) * p[1]["b"])(p),
    theirs=lambda p, x: jax.grad(lambda p: (jnp.sin(x * p[0]["w"] + p[0]["b"]) * p[1]["w"]).sum() * p[1]["b"])(p),
)  # fmt: skip
program(
    "the gradient of a dataclass in a tuple", (Layer("H=3 K=4", "K=4"), {"scale": ""}), "H=3",
    ours=lambda p, x: ng.grad(lambda p: total(ng.exp(ng.contract(x, p[0].w, over="H") * p[1]["scale"]) + p[0].b ** 3))(p),
    theirs=lambda p, x: jax.grad(lambda p: (jnp.exp(x @ p[0].w * p[1]["scale"]) + p[0].b ** 3).sum())(p),
)  # fmt: skip
program(
    "gradients of two arguments with more results", "H=3", "H=3",
    ours=lambda x, y: ng.value_and_grad(lambda x, y: (total(x * y**2), {"sum": x + y}), (0, 1), has_aux=True)(x, y),
    theirs=lambda x, y: jax.value_and_grad(lambda x, y: ((x * y**2).sum(), {"sum": x + y}), (0, 1), has_aux=True)(x, y),
)  # fmt: skip
program(
    "a gradient of a gradient of a gradient", "",
    ours=lambda x: ng.grad(ng.grad(ng.grad(lambda x: ng.sin(x) * ng.exp(x))))(x),
    theirs=lambda x: jax.grad(jax.grad(jax.grad(lambda x: jnp.sin(x) * jnp.exp(x))))(x),
)  # fmt: skip
program(
    "a gradient that is stopped", "H=4",
    ours=lambda x: ng.grad(lambda x: total(x * ng.stop_gradient(x * x)))(x),
    theirs=lambda x: jax.grad(lambda x: (x * jax.lax.stop_gradient(x * x)).sum())(x),
)  # fmt: skip
program(
    "the gradient of a determinant's logarithm", "H=4 K=4",
    ours=lambda x: ng.grad(lambda x: ng.linalg.slogdet(x, "H", "K")[1])(x),
    theirs=lambda x: jax.grad(lambda x: jnp.linalg.slogdet(x)[1])(x),
)  # fmt: skip
program(
    "the gradient of a solution", "H=4 K=4", "H=4",
    ours=lambda a, b: ng.grad(lambda a, b: total(ng.linalg.solve(a, b, "H", "K") ** 2), (0, 1))(a, b),
    theirs=lambda a, b: jax.grad(lambda a, b: (jnp.linalg.solve(a, b) ** 2).sum(), (0, 1))(a, b),
)  # fmt: skip
program(
    "the gradient of a sort and a cumulative sum", "H=3 K=5",
    ours=lambda x: ng.grad(lambda x: total(ng.cumsum(ng.sort(x, "K"), "K") ** 2))(x),
    theirs=lambda x: jax.grad(lambda x: (jnp.cumsum(jnp.sort(x, 1), 1) ** 2).sum())(x),
)  # fmt: skip
program(
    "the gradient of a gather", "H=5 K=2", "5:N=7",
    ours=lambda x, i: ng.grad(lambda x: total(ng.take(x, i, "H") ** 3))(x),
    theirs=lambda x, i: jax.grad(lambda x: (x[i] ** 3).sum())(x),
)  # fmt: skip
program(
    "the gradient of a clip and of where", "H=6",
    ours=lambda x: ng.grad(lambda x: total(ng.where(x > 0, ng.clip(x, -0.5, 0.5) * x, ng.sin(x))))(x),
    theirs=lambda x: jax.grad(lambda x: jnp.where(x > 0, jnp.clip(x, -0.5, 0.5) * x, jnp.sin(x)).sum())(x),
)  # fmt: skip
program(
    "the gradient of special functions", "+H=5",
    ours=lambda x: ng.grad(lambda x: total(ng.lgamma(x) * ng.erf(x) + ng.digamma(x)))(x),
    theirs=lambda x: jax.grad(lambda x: (jax.scipy.special.gammaln(x) * jax.scipy.special.erf(x) + jax.scipy.special.digamma(x)).sum())(x),
)  # fmt: skip
program(
    "the gradient of a two-argument arc tangent, a hypotenuse and a log-add-exp", "H=4", "H=4",
    ours=lambda x, y: ng.grad(lambda x, y: total(ng.atan2(x, y) * ng.hypot(x, y) + ng.logaddexp(x, y)), (0, 1))(x, y),
    theirs=lambda x, y: jax.grad(lambda x, y: (jnp.arctan2(x, y) * jnp.hypot(x, y) + jnp.logaddexp(x, y)).sum(), (0, 1))(x, y),
)  # fmt: skip
program(
    "the gradient of a softmax cross-entropy", "N=4 K=3", "3:N=4",
    ours=lambda x, t: ng.grad(lambda x: -total(ng.log_softmax(x, "K") * ng.one_hot(t, "K=3")))(x),
    theirs=lambda x, t: jax.grad(lambda x: -(jax.nn.log_softmax(x) * jax.nn.one_hot(t, 3)).sum())(x),
)  # fmt: skip
program(
    "the gradient of a power of both", "+H=4", "H=4",
    ours=lambda x, y: ng.grad(lambda x, y: total(x**y), (0, 1))(x, y),
    theirs=lambda x, y: jax.grad(lambda x, y: (x**y).sum(), (0, 1))(x, y),
)  # fmt: skip
program(
    "the gradient of a variance", "H=3 K=5",
    ours=lambda x: ng.grad(lambda x: total(ng.sqrt(ng.var(x, "K", correction=1))))(x),
    theirs=lambda x: jax.grad(lambda x: jnp.sqrt(jnp.var(x, 1, ddof=1)).sum())(x),
)  # fmt: skip

# ---- Jacobians and second derivatives -----------------------------------------------------------------------------------------

program(
    "the Jacobian of a softmax", "H=2 K=3",
    ours=lambda x: ng.jacobian(lambda x: ng.softmax(x, "K"))(x),
    theirs=lambda x: jax.jacrev(lambda x: jax.nn.softmax(x, 1))(x),
)  # fmt: skip
program(
    "the Jacobian of a layer by its dict", {"w": "H=2 K=3", "b": "K=3"}, "H=2",
    ours=lambda p, x: ng.jacobian(lambda p: ng.tanh(ng.contract(x, p["w"], over="H") + p["b"]))(p),
    theirs=lambda p, x: jax.jacrev(lambda p: jnp.tanh(x @ p["w"] + p["b"]))(p),
)  # fmt: skip
program(
    "the Jacobian of a nest by the second argument", "H=3", "K=2",
    ours=lambda x, y: ng.jacobian(lambda x, y: {"a": x * total(y), "b": [ng.sin(y)]}, 1)(x, y),
    theirs=lambda x, y: jax.jacrev(lambda x, y: {"a": x * y.sum(), "b": [jnp.sin(y)]}, 1)(x, y),
)  # fmt: skip
program(
    "the Jacobian of an inverse", "H=2 K=2",
    ours=lambda x: ng.jacobian(lambda x: ng.linalg.inv(x, "H", "K"))(x),
    theirs=lambda x: jax.jacrev(jnp.linalg.inv)(x),
)  # fmt: skip
program(
    "the Jacobian of a number by a dataclass", Layer("H=2", ""),
    ours=lambda p: ng.jacobian(lambda p: total(p.w**2) * ng.exp(p.b))(p),
    theirs=lambda p: jax.jacrev(lambda p: (p.w**2).sum() * jnp.exp(p.b))(p),
)  # fmt: skip
program(
    "the Jacobian of a gradient", "H=3",
    ours=lambda x: ng.jacobian(ng.grad(lambda x: total(ng.exp(x) * ng.roll(x, 1, "H"))))(x),
    theirs=lambda x: jax.jacfwd(jax.grad(lambda x: (jnp.exp(x) * jnp.roll(x, 1)).sum()))(x),
)  # fmt: skip
program(
    "the Hessian of a quadratic form with a cube", "H=3", "H=3 K=3",
    ours=lambda x, a: ng.hessian(lambda x: total(ng.contract(a, x, over="H") * ng.map_roles(x, {"H": "K"})) + total(x**3))(x),
    theirs=lambda x, a: jax.hessian(lambda x: (a.T @ x * x).sum() + (x**3).sum())(x),
)  # fmt: skip
program(
    "the Hessian of a nest", {"a": "H=2", "b": ["", "K=2"]},
    ours=lambda p: ng.hessian(lambda p: total(p["a"] ** 2) * p["b"][0] + total(ng.sin(p["b"][1])) * p["b"][0] ** 2)(p),
    theirs=lambda p: jax.hessian(lambda p: (p["a"] ** 2).sum() * p["b"][0] + jnp.sin(p["b"][1]).sum() * p["b"][0] ** 2)(p),
)  # fmt: skip
program(
    "the Hessian of Rosenbrock's function", "H=5",
    ours=lambda x: ng.hessian(lambda x: total(100 * (x["H", 1:] - x["H", :-1] ** 2) ** 2 + (1 - x["H", :-1]) ** 2))(x),
    theirs=lambda x: jax.hessian(lambda x: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())(x),
)  # fmt: skip
program(
    "the Hessian of a log-sum-exp", "H=4",
    ours=lambda x: ng.hessian(lambda x: ng.logsumexp(x, "H"))(x),
    theirs=lambda x: jax.hessian(jax.nn.logsumexp)(x),
)  # fmt: skip
program(
    "a Hessian-vector product of a nest", {"w": "H=3", "b": ""}, {"w": "H=3", "b": ""},
    ours=lambda p, v: ng.hvp(lambda p: total(ng.tanh(p["w"] * p["b"]) ** 2), p, v),
    theirs=lambda p, v: jax.jvp(jax.grad(lambda p: (jnp.tanh(p["w"] * p["b"]) ** 2).sum()), (p,), (v,))[1],
)  # fmt: skip
program(
    "a Hessian-vector product through a product of matrices", "H=3 K=2", "H=3 K=2",
    ours=lambda x, v: ng.hvp(lambda x: total(ng.contract(x, ng.map_roles(x, {"H": "I"}), over="K") ** 2), x, v),
    theirs=lambda x, v: jax.jvp(jax.grad(lambda x: ((x @ x.T) ** 2).sum()), (x,), (v,))[1],
)  # fmt: skip
program(
    "a derivative along a direction", "H=3 K=4", "H=3 K=4",
    ours=lambda x, v: ng.jvp(ng.softmax(x, "K") * ng.sum(x, "H"), x, v),
    theirs=lambda x, v: jax.jvp(lambda x: jax.nn.softmax(x, 1) * x.sum(0), (x,), (v,))[1],
)  # fmt: skip

# ---- vmap ---------------------------------------------------------------------------------------------------------------------

program(
    "vmap of a product", "B=3 H=4", "H=4",
    ours=lambda x, w: ng.vmap(lambda x, w: total(x * w), "B")(x, w),
    theirs=lambda x, w: jax.vmap(lambda x, w: (x * w).sum(), (0, None))(x, w),
)  # fmt: skip
program(
    "vmap over an axis that is not the first", "H=4 B=3",
    ours=lambda x: ng.vmap(lambda x: ng.softmax(x, "H"), "B")(x),
    theirs=lambda x: jax.vmap(jax.nn.softmax, 1)(x),
)  # fmt: skip
program(
    "vmap of vmap", "A=2 H=3", "B=4 H=3",
    ours=lambda x, y: ng.vmap(lambda x: ng.vmap(lambda y: total(ng.exp(-((x - y) ** 2))), "B")(y), "A")(x),
    theirs=lambda x, y: jax.vmap(lambda x: jax.vmap(lambda y: jnp.exp(-((x - y) ** 2)).sum())(y))(x),
)  # fmt: skip
program(
    "vmap of a gradient: one for each example", {"w": "H=3", "b": ""}, "B=4 H=3", "B=4",
    ours=lambda p, x, t: ng.vmap(lambda x, t: ng.grad(lambda p: (total(x * p["w"]) + p["b"] - t) ** 2)(p), "B")(x, t),
    theirs=lambda p, x, t: jax.vmap(lambda x, t: jax.grad(lambda p: ((x * p["w"]).sum() + p["b"] - t) ** 2)(p))(x, t),
)  # fmt: skip
program(
    "vmap of a Hessian", "B=2 H=3",
    ours=lambda x: ng.vmap(ng.hessian(lambda x: total(ng.exp(x) * total(x))), "B")(x),
    theirs=lambda x: jax.vmap(jax.hessian(lambda x: (jnp.exp(x) * x.sum()).sum()))(x),
)  # fmt: skip
program(
    "vmap of a Jacobian", "B=2 H=3",
    ours=lambda x: ng.vmap(ng.jacobian(lambda x: ng.cumsum(x * x, "H")), "B")(x),
    theirs=lambda x: jax.vmap(jax.jacrev(lambda x: jnp.cumsum(x * x)))(x),
)  # fmt: skip
program(
    "vmap of a solution and a determinant", "B=3 H=3 K=3", "B=3 H=3",
    ours=lambda a, b: ng.vmap(lambda a, b: (ng.linalg.solve(a, b, "H", "K"), ng.linalg.det(a, "H", "K")), "B")(a, b),
    theirs=lambda a, b: jax.vmap(lambda a, b: (jnp.linalg.solve(a, b), jnp.linalg.det(a)))(a, b),
)  # fmt: skip
program(
    "vmap of a nest of results", {"x": "B=3 H=2", "y": "B=3"},
    ours=lambda p: ng.vmap(lambda p: {"sum": total(p["x"]) + p["y"], "both": [p["x"] * p["y"], ng.argmax(p["x"], "H")]}, "B")(p),
    theirs=lambda p: jax.vmap(lambda p: {"sum": p["x"].sum() + p["y"], "both": [p["x"] * p["y"], jnp.argmax(p["x"])]})(p),
)  # fmt: skip
program(
    "vmap of a gather by an index of its own", "B=3 H=5", "5:B=3",
    ours=lambda x, i: ng.vmap(lambda x, i: ng.take(x, i, "H"), "B")(x, i),
    theirs=lambda x, i: jax.vmap(lambda x, i: x[i])(x, i),
)  # fmt: skip
program(
    "vmap of a choice", "B=5",
    ours=lambda x: ng.vmap(lambda x: ng.cond(x > 0, lambda: ng.sin(x), lambda: x * x), "B")(x),
    theirs=lambda x: jax.vmap(lambda x: jax.lax.cond(x > 0, jnp.sin, lambda x: x * x, x))(x),
)  # fmt: skip
program(
    "vmap of a scan", "B=2 T=4 H=3",
    ours=lambda x: ng.vmap(lambda x: ng.scan(lambda c, r: (ng.tanh(c + r), c), ng.constant(np.zeros(3), "H=3"), x, "T"), "B")(x),
    theirs=lambda x: jax.vmap(lambda x: jax.lax.scan(lambda c, r: (jnp.tanh(c + r), c), jnp.zeros(3), x))(x),
)  # fmt: skip
program(
    "vmap of a factor of Cholesky", "B=2 H=3 K=3",
    ours=lambda x: ng.vmap(lambda x: ng.linalg.cholesky(_definite(x), "H", "I"), "B")(x),
    theirs=lambda x: jax.vmap(lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(3)))(x),
)  # fmt: skip
program(
    "the gradient of vmap", "H=3", "B=4 H=3",
    ours=lambda w, x: ng.grad(lambda w: total(ng.vmap(lambda x: ng.tanh(total(x * w)), "B")(x)))(w),
    theirs=lambda w, x: jax.grad(lambda w: jax.vmap(lambda x: jnp.tanh((x * w).sum()))(x).sum())(w),
)  # fmt: skip


def _definite(x):
    return ng.contract(x, ng.map_roles(x, {"H": "I"}), over="K") + ng.eye("H=3", "I=3", dtype=F)


# ---- loops and choices ----------------------------------------------------------------------------------------------------------

program(
    "a scan with a nest for a carry", {"s": "", "v": "H=3"}, "T=5 H=3",
    ours=lambda c, x: ng.scan(lambda c, r: ({"s": c["s"] + total(r), "v": ng.sin(c["v"] + r)}, c["v"] * c["s"]), c, x, "T"),
    theirs=lambda c, x: jax.lax.scan(lambda c, r: ({"s": c["s"] + r.sum(), "v": jnp.sin(c["v"] + r)}, c["v"] * c["s"]), c, x),
)  # fmt: skip
program(
    "a scan over a nest", "H=2", {"a": "T=4 H=2", "b": ["T=4"]},
    ours=lambda c, x: ng.scan(lambda c, r: (c * r["b"][0] + r["a"], (c, {"sum": total(c)})), c, x, "T"),
    theirs=lambda c, x: jax.lax.scan(lambda c, r: (c * r["b"][0] + r["a"], (c, {"sum": c.sum()})), c, x),
)  # fmt: skip
program(
    "a scan from the end", "", "T=6",
    ours=lambda c, x: ng.scan(lambda c, r: (c * 0.5 + r, c + r), c, x, "T", reverse=True),
    theirs=lambda c, x: jax.lax.scan(lambda c, r: (c * 0.5 + r, c + r), c, x, reverse=True),
)  # fmt: skip
program(
    "a scan with a dataclass for a carry", Layer("H=3", ""), "T=4",
    ours=lambda c, x: ng.scan(lambda c, r: (Layer(c.w * r, c.b + total(c.w)), c.b), c, x, "T"),
    theirs=lambda c, x: jax.lax.scan(lambda c, r: (Layer(c.w * r, c.b + c.w.sum()), c.b), c, x),
)  # fmt: skip
program(
    "a scan of a scan", "T=3 U=2",
    ours=lambda x: ng.scan(lambda c, r: ng.scan(lambda c, q: (ng.cos(c) + q, c), c, r, "U"), ng.constant(0.0, dtype=F), x, "T"),
    theirs=lambda x: jax.lax.scan(lambda c, r: jax.lax.scan(lambda c, q: (jnp.cos(c) + q, c), c, r), 0.0, x),
)  # fmt: skip
program(
    "the gradient of a scan: a recurrent layer", {"u": "H=3 K=3", "w": "H=3"}, "T=4",
    ours=lambda p, x: ng.grad(lambda p: total(_recurrent(p, x)))(p),
    theirs=lambda p, x: jax.grad(
        lambda p: jax.lax.scan(lambda h, r: (jnp.tanh(h @ p["u"] + r * p["w"]), h), jnp.zeros(3), x)[0].sum()
    )(p),
)  # fmt: skip
program(
    "the gradient of the values of a scan", "H=2", "T=3 H=2",
    ours=lambda c, x: ng.grad(lambda c, x: total(ng.scan(lambda c, r: (c * r, c + r), c, x, "T")[1] ** 2), (0, 1))(c, x),
    theirs=lambda c, x: jax.grad(lambda c, x: (jax.lax.scan(lambda c, r: (c * r, c + r), c, x)[1] ** 2).sum(), (0, 1))(c, x),
)  # fmt: skip
program(
    "the Hessian of a scan", "H=2", "T=3 H=2",
    ours=lambda c, x: ng.hessian(lambda c: total(ng.scan(lambda c, r: (ng.sin(c * r), c), c, x, "T")[0]))(c),
    theirs=lambda c, x: jax.hessian(lambda c: jax.lax.scan(lambda c, r: (jnp.sin(c * r), c), c, x)[0].sum())(c),
)  # fmt: skip
program(
    "the Jacobian of a scan's values", "", "T=3",
    ours=lambda c, x: ng.jacobian(lambda x: ng.scan(lambda c, r: (c * r + 1.0, c * c), c, x, "T")[1])(x),
    theirs=lambda c, x: jax.jacrev(lambda x: jax.lax.scan(lambda c, r: (c * r + 1.0, c * c), c, x)[1])(x),
)  # fmt: skip
program(
    "a derivative along a direction through a scan", "H=2", "H=2", "T=3 H=2",
    ours=lambda c, v, x: ng.jvp(ng.scan(lambda c, r: (ng.tanh(c + r), c), c, x, "T")[0], c, v),
    theirs=lambda c, v, x: jax.jvp(lambda c: jax.lax.scan(lambda c, r: (jnp.tanh(c + r), c), c, x)[0], (c,), (v,))[1],
)  # fmt: skip


def _recurrent(p, x):
    def step(h, r):
        new = ng.contract(h, p["u"], over="H") + ng.map_roles(p["w"], {"H": "K"}) * r
        return ng.tanh(ng.map_roles(new, {"K": "H"})), h

    return ng.scan(step, ng.constant(np.zeros(3), "H=3"), x, "T")[0]


program(
    "a while loop: Newton's root", "+",
    ours=lambda a: ng.while_loop(lambda x: ng.absolute(x * x - a) > 1e-12, lambda x: 0.5 * (x + a / x), a + 1.0),
    theirs=lambda a: jax.lax.while_loop(lambda x: jnp.abs(x * x - a) > 1e-12, lambda x: 0.5 * (x + a / x), a + 1.0),
)  # fmt: skip
program(
    "a while loop over a nest", "H=3",
    ours=lambda v: ng.while_loop(
        lambda c: ng.logical_and(c["k"] < 20, ng.norm(c["v"]) < 50.0), lambda c: {"k": c["k"] + 1, "v": c["v"] * 1.5}, {"k": 0, "v": v}
    ),
    theirs=lambda v: jax.lax.while_loop(
        lambda c: (c["k"] < 20) & (jnp.linalg.norm(c["v"]) < 50.0), lambda c: {"k": c["k"] + 1, "v": c["v"] * 1.5}, {"k": 0, "v": v}
    ),
)  # fmt: skip
program(
    "a while loop of two arguments that runs no trip", "H=3",
    ours=lambda v: ng.while_loop(lambda i, v: i < 0, lambda i, v: (i + 1, v * 2), (3, v)),
    theirs=lambda v: jax.lax.while_loop(lambda c: c[0] < 0, lambda c: (c[0] + 1, c[1] * 2), (3, v)),
)  # fmt: skip
program(
    "a while loop: Collatz", "",
    ours=lambda x: ng.while_loop(
        lambda n, k: n > 1, lambda n, k: (ng.where(ng.equal(n % 2, 0), n // 2, 3 * n + 1), k + 1), (27, 0)
    )[1] + x,
    theirs=lambda x: jax.lax.while_loop(
        lambda c: c[0] > 1, lambda c: (jnp.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + 1), (27, 0)
    )[1] + x,
)  # fmt: skip
program(
    "power iteration in a while loop", "H=3 K=3",
    ours=lambda a: ng.while_loop(
        lambda i, v: i < 30, lambda i, v: (i + 1, _normal(_times(_symmetric(a), v))), (0, ng.ones("H=3", dtype=F))
    )[1],
    theirs=lambda a: jax.lax.while_loop(
        lambda c: c[0] < 30, lambda c: (c[0] + 1, (lambda w: w / jnp.linalg.norm(w))((a + a.T) @ c[1])), (0, jnp.ones(3))
    )[1],
)  # fmt: skip


def _normal(v):
    return v / ng.norm(v)


def _symmetric(a):
    return a + ng.axes_with_order(ng.map_roles(a, {"H": "K", "K": "H"}), ["H", "K"])


def _times(a, v):
    return ng.contract(a, ng.map_roles(v, {"H": "K"}), over="K")


program(
    "a choice of nests", "", "H=3",
    ours=lambda p, x: ng.cond(p > 0, lambda x: {"a": x * 2, "b": (total(x),)}, lambda x: {"a": ng.exp(x), "b": (p,)}, x),
    theirs=lambda p, x: jax.lax.cond(p > 0, lambda x: {"a": x * 2, "b": (x.sum(),)}, lambda x: {"a": jnp.exp(x), "b": (p,)}, x),
)  # fmt: skip
program(
    "the gradient of a choice", "", "H=3",
    ours=lambda p, x: ng.grad(lambda x: total(ng.cond(p > 0, lambda x: x**2, lambda x: ng.sin(x), x)))(x),
    theirs=lambda p, x: jax.grad(lambda x: jax.lax.cond(p > 0, lambda x: x**2, jnp.sin, x).sum())(x),
)  # fmt: skip
program(
    "the gradient of a choice by what its condition reads", "",
    ours=lambda x: ng.grad(lambda x: ng.cond(x < 0, lambda: x * x, lambda: x**3))(x),
    theirs=lambda x: jax.grad(lambda x: jax.lax.cond(x < 0, lambda x: x * x, lambda x: x**3, x))(x),
)  # fmt: skip
program(
    "a choice inside a scan", "T=6",
    ours=lambda x: ng.scan(lambda c, r: (ng.cond(r > 0, lambda: c + r, lambda: c * r), c), ng.constant(1.0, dtype=F), x, "T"),
    theirs=lambda x: jax.lax.scan(lambda c, r: (jax.lax.cond(r > 0, lambda: c + r, lambda: c * r), c), 1.0, x),
)  # fmt: skip
program(
    "the gradient of a choice inside a scan", "T=5",
    ours=lambda x: ng.grad(
        lambda x: ng.scan(lambda c, r: (ng.cond(r > 0, lambda: ng.sin(c) + r, lambda: c * r), None), ng.constant(1.0, dtype=F), x, "T")[0]
    )(x),
    theirs=lambda x: jax.grad(
        lambda x: jax.lax.scan(lambda c, r: (jax.lax.cond(r > 0, lambda: jnp.sin(c) + r, lambda: c * r), None), 1.0, x)[0]
    )(x),
)  # fmt: skip
program(
    "a while loop inside a scan", "+T=3",
    ours=lambda x: ng.scan(
        lambda c, r: (c + r, ng.while_loop(lambda v: v < 10.0, lambda v: v * 2.0, c + r)), ng.constant(1.0, dtype=F), x, "T"
    ),
    theirs=lambda x: jax.lax.scan(lambda c, r: (c + r, jax.lax.while_loop(lambda v: v < 10.0, lambda v: v * 2.0, c + r)), 1.0, x),
)  # fmt: skip
program(
    "a step of Newton's method with a Hessian", "H=3",
    ours=lambda x: x - _with_k(ng.linalg.solve(_with_k(ng.hessian(_bowl)(x)), ng.grad(_bowl)(x), "H", "K")),
    theirs=lambda x: x - jnp.linalg.solve(jax.hessian(_jax_bowl)(x), jax.grad(_jax_bowl)(x)),
)  # fmt: skip
program(
    "three steps of gradient descent in a scan", {"w": "H=3", "b": ""}, "N=4 H=3", "N=4",
    ours=lambda p, x, t: ng.scan(
        lambda p, _: (_nearer(p, ng.grad(lambda p: total((ng.contract(x, p["w"], over="H") + p["b"] - t) ** 2))(p)), None),
        p, ng.constant(np.zeros(3), "S=3"), "S",
    )[0],
    theirs=lambda p, x, t: jax.lax.scan(
        lambda p, _: (jax.tree.map(lambda w, g: w - 0.1 * g, p, jax.grad(lambda p: ((x @ p["w"] + p["b"] - t) ** 2).sum())(p)), None),
        p, jnp.zeros(3),
    )[0],
)  # fmt: skip
program(
    "the gradient through steps of gradient descent", "", "H=3",
    ours=lambda rate, x: ng.grad(lambda rate: total(_descended(rate, x) ** 2))(rate),
    theirs=lambda rate, x: jax.grad(
        lambda rate: (jax.lax.scan(lambda w, _: (w - rate * jax.grad(lambda w: (w**4).sum())(w), None), x, jnp.zeros(2))[0] ** 2).sum()
    )(rate),
)  # fmt: skip


def _bowl(x):
    return total(ng.cosh(x) + x**2) + total(x) ** 2


def _jax_bowl(x):
    return (jnp.cosh(x) + x**2).sum() + x.sum() ** 2


def _with_k(x):
    """Returns a Hessian over H and H' as a matrix over H and K, and a solution over K as one over H."""
    return ng.map_roles(x, {"H'": "K"} if len(x.axes) == 2 else {"K": "H"})


def _nearer(weights, slopes):
    return {k: weights[k] - 0.1 * slopes[k] for k in weights}


def _descended(rate, x):
    def step(w, _):
        return w - rate * ng.grad(lambda w: total(w**4))(w), None

    return ng.scan(step, x, ng.constant(np.zeros(2), "S=2"), "S")[0]


def main():
    """Writes JAX's answers."""
    jax.config.update("jax_enable_x64", True)
    jax.tree_util.register_dataclass(Layer, ["w", "b"], [])
    answers = {}
    for name, p in PROGRAMS.items():
        made = p.theirs(*mapped(jnp.asarray, values(name)))
        answers[name] = {path: np.asarray(v).tolist() for path, v in leaves(made) if v is not None}
    lines = [f"{json.dumps(name)}: {json.dumps(found)}" for name, found in answers.items()]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(answers)} answers of JAX {jax.__version__}: {ANSWERS}")


if __name__ == "__main__":
    main()
