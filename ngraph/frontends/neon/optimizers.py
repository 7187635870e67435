"""Optimizers: a rule is a function from a weight, its gradient and its state to their next values; the rest is one class.

    rule(w, g, s, o) -> (next w, {slot: next value})       s.slot is state; o has lr, t and the optimizer's parameters

Around every rule: gradients divided by the batch size, unscaled, accumulated, clipped; weights decayed, clipped, averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from inspect import Parameter
from types import SimpleNamespace
from typing import Any

import ngraph as ng
from ngraph.errors import GraphError, UnknownKey, nearest
from ngraph.frontends.neon.bounds import BELOW_1, COUNT, DYNAMIC, NOT_NEGATIVE, POSITIVE, SHARE, check
from ngraph.frontends.neon.calls import Checked, public, wrong_kind
from ngraph.frontends.neon.schedules import Schedule, as_schedule
from ngraph.op_graph.arguments import shown
from ngraph.op_graph.op import Op

Slots = dict[str, Op]
Rule = Callable[[Op, Op, Any, Any], tuple[Op, Slots]]


# ---- the rules ----------------------------------------------------------------------------------------------------------


def momentum(w: Op, g: Op, s: Any, o: Any) -> tuple[Op, Slots]:
    """v = m * v - lr * (g + decay * w); w + v, or with nesterov w + m * v - lr * (...)."""
    step = (g + w * o.wdecay if o.wdecay else g) * o.lr
    if not o.momentum_coef:
        return w - step, {}
    v = s.velocity * o.momentum_coef - step
    return (w + (v * o.momentum_coef - step) if o.nesterov else w + v), {"velocity": v}


def rmsprop(w: Op, g: Op, s: Any, o: Any) -> tuple[Op, Slots]:
    """n = d * n + (1 - d) * g * g from 1; w - lr * (g / sqrt(n + epsilon) + decay * w), through a velocity if there is momentum."""
    n = s.square * o.decay_rate + g * g * (1 - o.decay_rate)
    step = g * o.lr / ng.sqrt(n + o.epsilon)
    if o.wdecay:
        step = step + w * (o.lr * o.wdecay)
    if not o.momentum_coef:
        return w - step, {"square": n}
    v = s.velocity * o.momentum_coef - step
    return w + v, {"square": n, "velocity": v}


def _moments(g: Op, s: Any, o: Any) -> tuple[Op, Op]:
    return s.mean * o.beta_1 + g * (1 - o.beta_1), s.square * o.beta_2 + g * g * (1 - o.beta_2)


def _unbiased(m: Op, n: Op, o: Any) -> tuple[Op, Op]:
    return m / (1.0 - ng.power(o.beta_1, o.t)), n / (1.0 - ng.power(o.beta_2, o.t))


def adam(w: Op, g: Op, s: Any, o: Any) -> tuple[Op, Slots]:
    """D. Kingma, J. Ba, "Adam" (2014), algorithm 1."""
    m, n = _moments(g, s, o)
    first, second = _unbiased(m, n, o)
    return w - o.lr * first / (ng.sqrt(second) + o.epsilon), {"mean": m, "square": n}


def adamw(w: Op, g: Op, s: Any, o: Any) -> tuple[Op, Slots]:
    """I. Loshchilov, F. Hutter, "Decoupled weight decay regularization" (2017)."""
    return adam(w * (1.0 - o.lr * o.wdecay), g, s, o)


def nadam(w: Op, g: Op, s: Any, o: Any) -> tuple[Op, Slots]:
    """T. Dozat, "Incorporating Nesterov momentum into Adam" (2016), with its schedule of momenta."""
    m, n = _moments(g, s, o)
    now, after = (o.beta_1 * (1.0 - ng.power(0.96, (o.t + k) * o.momentum_decay) * 0.5) for k in (0.0, 1.0))
    product = s.product * now
    second = n / (1.0 - ng.power(o.beta_2, o.t))
    step = g * ((1.0 - now) / (1.0 - product)) + m * (after / (1.0 - product * after))
    return w - o.lr * step / (ng.sqrt(second) + o.epsilon), {"mean": m, "square": n, "product": product}


def lamb(w: Op, g: Op, s: Any, o: Any) -> tuple[Op, Slots]:
    """Y. You and others, "Large batch optimization for deep learning" (2019): Adam's step, as long as the weight says."""
    m, n = _moments(g, s, o)
    first, second = _unbiased(m, n, o)
    step = first / (ng.sqrt(second) + o.epsilon) + w * o.wdecay
    own, its = (ng.sqrt(ng.squared_L2(x, out_axes=())) for x in (w, step))
    trust = ng.where(ng.logical_and(own > 0.0, its > 0.0), own / ng.where(its > 0.0, its, 1.0), 1.0)
    return w - o.lr * trust * step, {"mean": m, "square": n}


def adagrad(w: Op, g: Op, s: Any, o: Any) -> tuple[Op, Slots]:
    """J. Duchi and others, "Adaptive subgradient methods" (2011)."""
    n = s.square + g * g
    return w - o.lr * g / ng.sqrt(n + o.epsilon), {"square": n}


# ---- clipping -----------------------------------------------------------------------------------------------------------


@public
def clip_gradient_norm(grads: Any, clip_norm: float | None = None) -> Any:
    """Returns gradients times clip_norm / max(norm, clip_norm), where the norm is that of all of them together; None changes nothing."""
    if clip_norm is None:
        return grads
    each = [grads] if isinstance(grads, Op) else list(grads)
    clipped = _scaled(each, _norm_factor(each, clip_norm))
    return clipped[0] if isinstance(grads, Op) else clipped


def _norm_factor(grads: Sequence[Op], clip_norm: float) -> Op:
    norm = ng.sqrt(_sum([ng.squared_L2(ng.cast(g, ng.float32), out_axes=()) for g in grads]))
    return clip_norm / ng.maximum(norm, float(clip_norm))


def _scaled(grads: Sequence[Op], factor: Op) -> list[Op]:
    return [g * ng.cast(factor, g.dtype) for g in grads]


def _bounded(grads: list[Op], norm: float | None, value: float | None) -> list[Op]:
    """Returns gradients with elements clipped to `value`, times the factor that the norm of the unclipped ones gives."""
    clipped = [clip_gradient_value(g, value) for g in grads]
    return clipped if norm is None else _scaled(clipped, _norm_factor(grads, norm))


@public
def clip_gradient_value(grad: Op, clip_value: float | None = None) -> Op:
    """Returns a gradient with each element between -clip_value and clip_value; None changes nothing."""
    return grad if clip_value is None else ng.clip(grad, -abs(float(clip_value)), abs(float(clip_value)))


@public
def clip_weight_value(weight: Op, clip_value: float | None = None, min_value_override: float | None = None) -> Op:
    """Returns a weight with each element between -clip_value (or min_value_override) and clip_value; None changes nothing."""
    if clip_value is None:
        return weight
    return ng.clip(weight, -abs(float(clip_value)) if min_value_override is None else float(min_value_override), abs(float(clip_value)))


def _sum(ops: Sequence[Op]) -> Op:
    total = ops[0]
    for o in ops[1:]:
        total = total + o
    return total


# ---- common to every rule ------------------------------------------------------------------------------------------------


BOUNDS = {
    "accumulate": COUNT,
    "gradient_clip_norm": POSITIVE,
    "gradient_clip_value": POSITIVE,
    "weight_clip_value": POSITIVE,
    "ema_decay": BELOW_1,
    "momentum_coef": BELOW_1,
    "beta_1": BELOW_1,
    "beta_2": BELOW_1,
    "decay_rate": SHARE,
    "wdecay": NOT_NEGATIVE,
    "epsilon": NOT_NEGATIVE,
    "momentum_decay": NOT_NEGATIVE,
}


class Optimizer(Checked):
    """Called with a cost it returns one op, which computes gradients and updates weights when it runs.

    cost: any axes; it is summed, and gradients are divided by the length of its batch axis, if it has one.
    variables: to be trained; by default all trainable ones that the cost depends on, or those of `subgraph`.

    learning_rate: a number, an op, a dict or a Schedule. iteration: an op or number for schedules; by default the optimizer
    counts its own updates. gradient_clip_norm, gradient_clip_value, weight_clip_value: bounds. accumulate: the number of calls per
    update, with the mean of their gradients. loss_scale: a factor for costs in 16-bit floats, or "dynamic": doubled after 2000
    good steps; halved, and the step skipped, where a gradient is not finite. ema_decay: keeps an average of each weight, `averages`.
    lookahead: (k, alpha): every k updates the weights return to a slow copy, moved by alpha toward them. schedule: how learning_rate,
    a number, changes over updates, such as `Schedule([200, 300], 0.1)`. rate_factors: factors of the learning rate for some weights, by
    layer, weight, or pattern of paths: `{"Affine_0/*": 0.1, model[2]: 0.5}`; the last that fits a weight counts. Raises UnknownName for
    numbers that the rule lacks, ArgumentError for numbers out of bounds, and, when called, UnknownKey for what names no weight.
    """

    rule: Rule = staticmethod(momentum)
    slots: Mapping[str, float] = {}
    scalars: frozenset[str] = frozenset()
    numbers: Mapping[str, Any] = {}

    def __init__(
        self,
        learning_rate: Any,
        iteration: Any = 0,
        gradient_clip_norm: float | None = None,
        gradient_clip_value: float | None = None,
        weight_clip_value: float | None = None,
        name: str | None = None,
        accumulate: int = 1,
        loss_scale: Any = None,
        ema_decay: float | None = None,
        lookahead: tuple[int, float] | None = None,
        schedule: Schedule | None = None,
        rate_factors: Mapping[Any, float] | None = None,
        **numbers: Any,
    ):
        given = {"accumulate": accumulate, "ema_decay": ema_decay, "weight_clip_value": weight_clip_value, **numbers}
        given |= {"gradient_clip_norm": gradient_clip_norm, "gradient_clip_value": gradient_clip_value}
        for key, value in given.items():
            if key in BOUNDS:
                check(type(self).__name__, BOUNDS[key], **{key: value})
        check(type(self).__name__, DYNAMIC, loss_scale=loss_scale)
        if lookahead is not None:
            if not isinstance(lookahead, (tuple, list)) or len(lookahead) != 2:
                why = f"lookahead is (steps, share), such as (5, 0.5), not {lookahead!r}"
                raise wrong_kind(type(self).__name__, why, "take lookahead=(5, 0.5)")
            check(type(self).__name__, COUNT, **{"lookahead's steps": lookahead[0]})
            check(type(self).__name__, SHARE, **{"lookahead's share": lookahead[1]})
        self.schedule, self.iteration = as_schedule(learning_rate if schedule is None else schedule.of(learning_rate)), iteration
        self.gradient_clip_norm, self.gradient_clip_value, self.weight_clip_value = (
            gradient_clip_norm,
            gradient_clip_value,
            weight_clip_value,
        )
        self.name = name or type(self).__name__
        self.accumulate, self.loss_scale, self.ema_decay, self.lookahead = int(accumulate), loss_scale, ema_decay, lookahead
        self.rate_factors = dict(rate_factors or {})
        for key, factor in self.rate_factors.items():
            check(type(self).__name__, NOT_NEGATIVE, **{f"rate_factors[{key if isinstance(key, str) else type(key).__name__!r}]": factor})
        self.values = {**self.numbers, **numbers}
        self.averages: dict[Op, Op] = {}
        self.states: list[Op] = []
        self.lrate: Op | None = None

    @classmethod
    def _further(cls) -> dict[str, Parameter]:
        return {name: Parameter(name, Parameter.KEYWORD_ONLY, default=value) for name, value in cls.numbers.items()}

    def __call__(self, cost_func: Op, variables: Any = None, subgraph: Any = None, warning: bool = False) -> Op:
        """Returns the op that updates; its value is 0. Raises GraphError where there is nothing to train."""
        if not isinstance(cost_func, Op):
            raise wrong_kind(self.name, f"the cost is {shown(cost_func)}, which is not an op", "pass one, such as ng.squared_L2(y - t)")
        weights = self._weights(cost_func, variables, subgraph)
        with ng.name_scope(self.name, reuse_scope=False):
            return self._updates(cost_func, weights)

    def _weights(self, cost: Op, variables: Any, subgraph: Any) -> list[Op]:
        reached = cost.variables()
        if variables is None and subgraph is not None:
            variables = subgraph.variables
        if variables is None:
            chosen = reached
        else:
            chosen = list(variables.values()) if isinstance(variables, Mapping) else list(variables)
        idle = [v.name for v in chosen if v not in reached]
        if not chosen or idle:
            what = f"{cost.label} does not depend on {', '.join(idle)}" if idle else f"{cost.label} depends on no trainable variable"
            fix = "leave these out" if idle else "let the model have weights, as a layer or an ng.variable has, or unfreeze some"
            raise GraphError(f"{self.name}: {what}", fix=fix)
        return chosen

    def state(self, name: str, axes: Any = (), first: float = 0.0, dtype: Any = None) -> Op:
        """Returns a tensor that stays from call to call, is not trained, and is kept in checkpoints."""
        made = ng.persistent_tensor(axes, initial_value=first, dtype=dtype).named(name)
        self.states.append(made)
        return made

    def _updates(self, cost: Op, weights: list[Op]) -> Op:
        count = self.state("updates", dtype=ng.int32)
        scale = self.state("loss_scale", first=2.0**15) if self.loss_scale == "dynamic" else self.loss_scale
        gradients = self._gradients(cost, weights, scale)
        changes: dict[Op, Op] = {}
        due: Op | None = None
        if self.accumulate > 1:
            gradients, due = self._accumulated(weights, gradients, changes)
        if self.loss_scale == "dynamic":
            fine = ng.equal(_sum([ng.sum(ng.where(ng.less(ng.absolute(g), float("inf")), 0.0, 1.0), out_axes=()) for g in gradients]), 0.0)
            gradients = [ng.where(fine, g, 0.0) for g in gradients]
            changes.update(self._next_scale(scale, fine))
            due = fine if due is None else ng.logical_and(due, fine)
        gradients = _bounded(gradients, self.gradient_clip_norm, self.gradient_clip_value)
        iteration = count if isinstance(self.iteration, (int, float)) and self.iteration == 0 else self.iteration
        self.lrate = self.schedule(iteration).named("learning_rate")
        options = SimpleNamespace(lr=self.lrate, t=ng.cast(count + 1, ng.float32), **self.values)
        wanted: dict[Op, Op] = {}
        factors = self._factors(weights)
        for w, g in zip(weights, gradients, strict=True):
            own = SimpleNamespace(**{**vars(options), "lr": options.lr * factors[w]}) if w in factors else options
            wanted.update(self._one(w, g, own, count))
        if count in Op.ordered_ops(wanted.values()):  # else no schedule uses it
            wanted[count] = count + 1
        for variable, value in wanted.items():
            changes[variable] = value if due is None else ng.where(due, value, variable)
        return ng.sequential([ng.doall([ng.assign(v, value) for v, value in changes.items()]), ng.constant(0)])

    def _factors(self, weights: list[Op]) -> dict[Op, float]:
        """Returns the factor of the learning rate of each weight that `rate_factors` names. Raises UnknownKey for what names none."""
        found: dict[Op, float] = {}
        for key, factor in self.rate_factors.items():
            if isinstance(key, Op):
                meant = [w for w in weights if w is key]
            elif hasattr(key, "paths"):
                own = set(key.paths().values())
                meant = [w for w in weights if w in own]
            else:
                meant = [w for w in weights if fnmatchcase(f"/{w.name}", f"*/{key}")]
            if not meant:
                paths = [w.name for w in weights]
                parts = [f"{'/'.join(p.split('/')[1:k])}/*" for p in paths for k in range(2, p.count("/") + 1)]
                near = nearest(key, [*parts, *paths]) if isinstance(key, str) else None
                said = repr(key) if isinstance(key, str) else getattr(key, "path", getattr(key, "name", repr(key)))
                raise UnknownKey(
                    f"{self.name}: rate_factors names {said}, and the weights that it trains are {', '.join(paths)}",
                    fix=f"take {near!r}" if near else "take a pattern such as 'Affine_0/*', or a layer that it trains",
                )
            found.update(dict.fromkeys(meant, float(factor)))
        return found

    def _gradients(self, cost: Op, weights: list[Op], scale: Any) -> list[Op]:
        total = ng.sum(ng.cast(cost, ng.float32) if cost.dtype.bits < 32 else cost, out_axes=())
        if scale is not None:
            total = total * scale
        share = ng.batch_size(cost) if cost.axes.batch_axis() is not None else None
        found = [ng.deriv(total, w) for w in weights]
        if scale is not None:
            share = scale if share is None else share * scale
        return found if share is None else [g / ng.cast(ng.as_op(share), g.dtype) for g in found]

    def _accumulated(self, weights: list[Op], gradients: list[Op], changes: dict[Op, Op]) -> tuple[list[Op], Op]:
        """Returns the mean of gradients so far, and whether to apply it; the sums are then reset."""
        calls = self.state("calls", dtype=ng.int32)
        due = ng.equal(ng.mod(calls + 1, self.accumulate), 0)
        changes[calls] = calls + 1
        means = []
        for w, g in zip(weights, gradients, strict=True):
            total = self.state(f"{w.name}/gradient_sum", w.axes, dtype=w.dtype)
            means.append((total + g) / self.accumulate)
            changes[total] = ng.where(due, 0.0, total + g)
        return means, due

    def _next_scale(self, scale: Op, fine: Op) -> dict[Op, Op]:
        good = self.state("good_steps", dtype=ng.int32)
        grown = ng.equal(good, 1999)
        up = ng.where(grown, scale * 2.0, scale)
        return {
            scale: ng.where(fine, up, ng.maximum(scale * 0.5, 1.0)),
            good: ng.where(ng.logical_and(fine, ng.logical_not(grown)), good + 1, 0),
        }

    def _one(self, w: Op, g: Op, options: Any, count: Op) -> dict[Op, Op]:
        """Returns the next values of a weight and of all of its state."""
        slots = {
            n: self.state(
                f"{w.name}/{n}",
                () if n in self.scalars else w.axes,
                first,
                w.dtype if w.dtype is ng.float64 or n not in self.scalars else None,
            )
            for n, first in self._used_slots().items()
        }
        options = self._cast(options, w)
        after, new = self.rule(w, g, SimpleNamespace(**slots), options)
        after = clip_weight_value(after, self.weight_clip_value)
        wanted = {slots[n]: value for n, value in new.items()}
        if self.lookahead:
            after = self._ahead(w, after, count, wanted)
        if self.ema_decay is not None:
            average = self.averages[w] = self.state(f"{w.name}/average", w.axes, dtype=w.dtype)
            decay = ng.minimum(float(self.ema_decay), (options.t - 1.0) / (options.t + 9.0))
            wanted[average] = average * decay + after * (1.0 - decay)
        wanted[w] = ng.axes_with_order(after, w.axes)
        return wanted

    def _used_slots(self) -> dict[str, float]:
        return {n: first for n, first in self.slots.items() if n != "velocity" or self.values.get("momentum_coef")}

    def _cast(self, options: Any, w: Op) -> Any:
        """Returns rate and count in the weight's dtype, so that float64 weights get float64 steps."""
        if w.dtype is ng.float32:
            return options
        return SimpleNamespace(**{**vars(options), "lr": ng.cast(options.lr, w.dtype), "t": ng.cast(options.t, w.dtype)})

    def _ahead(self, w: Op, after: Op, count: Op, wanted: dict[Op, Op]) -> Op:
        """M. Zhang and others, "Lookahead optimizer" (2019)."""
        k, alpha = self.lookahead or (5, 0.5)
        slow = self.state(f"{w.name}/slow", w.axes, dtype=w.dtype)
        began = ng.where(ng.equal(count, 0), w, slow)
        back = ng.equal(ng.mod(count + 1, k), 0)
        moved = began + (after - began) * alpha
        wanted[slow] = ng.where(back, moved, began)
        return ng.where(back, moved, after)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.schedule!r}{''.join(f', {k}={v!r}' for k, v in self.values.items())})"


class GradientDescentMomentum(Optimizer):
    """Gradient descent with momentum: see `momentum`. Numbers: momentum_coef, wdecay, nesterov. Source: I. Sutskever and others (2013)."""

    rule = staticmethod(momentum)
    slots = {"velocity": 0.0}
    numbers = {"momentum_coef": 0.0, "wdecay": 0.0, "nesterov": False}

    def __init__(self, learning_rate: Any, momentum_coef: float = 0.0, wdecay: float = 0.0, **options: Any):
        super().__init__(learning_rate, momentum_coef=momentum_coef, wdecay=wdecay, **options)


class RMSProp(Optimizer):
    """RMSProp, with a mean square that begins with 1. Source: T. Tieleman, G. Hinton, lecture 6.5 (2012).

    Further arguments are those of `Optimizer`.
    """

    rule = staticmethod(rmsprop)
    slots = {"square": 1.0, "velocity": 0.0}
    numbers = {"decay_rate": 0.95, "epsilon": 1e-6, "wdecay": 0.0, "momentum_coef": 0.0}

    def __init__(self, decay_rate: float = 0.95, learning_rate: Any = 2e-3, epsilon: float = 1e-6, **options: Any):
        super().__init__(learning_rate, decay_rate=decay_rate, epsilon=epsilon, **options)


class _Moments(Optimizer):
    slots: Mapping[str, float] = {"mean": 0.0, "square": 0.0}
    numbers: Mapping[str, Any] = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-8}

    def __init__(self, learning_rate: Any = 1e-3, beta_1: float = 0.9, beta_2: float = 0.999, epsilon: float = 1e-8, **options: Any):
        super().__init__(learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, **options)


class Adam(_Moments):
    """Adam. Source: D. Kingma, J. Ba, "Adam" (2014), algorithm 1. Further arguments are those of `Optimizer`."""

    rule = staticmethod(adam)


class AdamW(_Moments):
    """Adam with weights decayed apart from the gradient: `wdecay`, 0.01 by default. Further arguments are those of `Optimizer`.

    Source: I. Loshchilov, F. Hutter, "Decoupled weight decay regularization" (2017).
    """

    rule = staticmethod(adamw)
    numbers = {**_Moments.numbers, "wdecay": 0.01}


class Nadam(_Moments):
    """Adam with Nesterov's momentum. Further arguments are those of `Optimizer`.

    Source: T. Dozat, "Incorporating Nesterov momentum into Adam" (2016).
    """

    rule = staticmethod(nadam)
    slots = {**_Moments.slots, "product": 1.0}
    scalars = frozenset({"product"})
    numbers = {**_Moments.numbers, "momentum_decay": 0.004}


class LAMB(_Moments):
    """Layer-wise adaptive moments for large batches. Further arguments are those of `Optimizer`.

    Source: Y. You and others, "Large batch optimization for deep learning" (2019).
    """

    rule = staticmethod(lamb)
    numbers = {**_Moments.numbers, "wdecay": 0.01}


class Adagrad(Optimizer):
    """Adagrad. Source: J. Duchi and others, "Adaptive subgradient methods" (2011). Further arguments are those of `Optimizer`."""

    rule = staticmethod(adagrad)
    slots = {"square": 0.0}
    numbers = {"epsilon": 1e-8}

    def __init__(self, learning_rate: Any = 1e-3, epsilon: float = 1e-8, **options: Any):
        super().__init__(learning_rate, epsilon=epsilon, **options)
