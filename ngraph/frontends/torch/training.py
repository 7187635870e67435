"""`compile_step`: forward, loss, backward and the optimizer's update as one program, which writes PyTorch's tensors where they lie."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ngraph.errors import ArgumentError, UnsupportedError, user_line
from ngraph.frontends.torch import dtype as kinds
from ngraph.frontends.torch import empties, private, recurrent
from ngraph.frontends.torch.dynamo import before_autograd, decompositions, refused
from ngraph.frontends.torch.graph import Reading, is_item, line_of, name_of, place_at, place_in
from ngraph.frontends.torch.options import checked, settings_of, transformer_of
from ngraph.frontends.torch.replacing import replaced
from ngraph.frontends.torch.reports import begin, forget
from ngraph.frontends.torch.segments import Segments
from ngraph.frontends.torch.updates import COUNTS, UpdatedParameter, count, flags_of, hyperparameter, number, rule_of, states_of
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import make_axis
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.rearrange import tensor_slice
from ngraph.ops.reduce import sum as total
from ngraph.ops.state import placeholder

OTHERS = {  # what else is given for an optimizer, and what to do
    "GradScaler": "bfloat16 needs no scaling: autocast in the model; float16 has it through torch.compile(model, backend='ngraph')",
}


class Scalars:
    """A vector of numbers, made anew only where they are others than before: calls read it, and none keeps or writes it."""

    def __init__(self) -> None:
        self.numbers, self.tensor = list[float](), torch.empty(0, dtype=torch.float64)

    def of(self, numbers: list[float]) -> torch.Tensor:
        """Returns the numbers as a tensor [n] of float64."""
        held = self.numbers, self.tensor
        if numbers != held[0]:
            held = self.numbers, self.tensor = numbers, torch.tensor(numbers, dtype=torch.float64)
        return held[1]


class ParameterClass(NamedTuple):
    """Parameters that share all scalars: the place of their group, the numbers of their state, and whether they had none before."""

    group: int
    counts: tuple[float, ...]
    fresh: bool


class Placed:
    """The parameters of a graph that have a gradient, and what a call brings for them: state, the scalars of each class as one vector."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]):
        self.optimizer, self.rule, self.parameters = optimizer, rule_of(optimizer), list(parameters)
        places = {p: k for k, group in enumerate(optimizer.param_groups) for p in group["params"]}
        self.places = [places[p] for p in self.parameters]  # of their groups; `load_state_dict` makes new ones
        self.lacking = "momentum_buffer" if type(optimizer) is torch.optim.SGD else ""  # made by the first step from the gradient
        self.pending: set[torch.Tensor] = set()  # parameters whose state was made, and not yet written
        private.initialise(optimizer, self.parameters)
        self.counts = [name for name in COUNTS if name in optimizer.state.get(self.parameters[0], {})]
        self.scalars = [*self.rule.scalars, *self.counts, *(["fresh"] if self.lacking else [])]
        self.prepare()
        self.names = [list(states_of(optimizer, p)) for p in self.parameters]

    def prepare(self) -> None:
        """Makes the state that is lacking, and sorts the parameters into classes: `classes`, and in `of` the number of each one's."""
        groups, state, found = self.optimizer.param_groups, self.optimizer.state, dict[ParameterClass, int]()
        self.of = []
        for p, place in zip(self.parameters, self.places, strict=True):
            own = state.get(p, {})
            if self.lacking and groups[place]["momentum"] and own.get(self.lacking) is None:
                state[p][self.lacking] = torch.zeros_like(p)
                self.pending.add(p)
            mine = ParameterClass(place, tuple([own[name].item() for name in self.counts]), p in self.pending)
            self.of.append(found.setdefault(mine, len(found)))
        self.classes = list(found)

    @property
    def form(self) -> tuple[Any, ...]:
        """The part of the key of a program that the graph does not tell: classes of parameters, and flags of the optimizer's rule."""
        return tuple(self.of), *[flags_of(self.rule, self.optimizer.param_groups[c.group]) for c in self.classes]

    def states(self) -> list[torch.Tensor]:
        """Returns the tensors of the state."""
        return [t for p in self.parameters for t in states_of(self.optimizer, p).values()]

    def numbers(self) -> list[float]:
        """Returns the scalars of all classes, as they are now."""
        made: list[float] = []
        for c in self.classes:
            g = self.optimizer.param_groups[c.group]
            dtype = g["params"][0].dtype
            made += [number(hyperparameter(g, name), dtype) for name in self.rule.scalars]
            made += [*c.counts, *([float(c.fresh)] if self.lacking else [])]
        return made

    def done(self) -> None:
        """Counts a step."""
        mine: dict[int, list[Any]] = {}
        for which, p in zip(self.of, self.parameters, strict=True) if self.counts else ():
            mine.setdefault(which, []).append(self.optimizer.state[p])
        for k, states in mine.items():
            c = self.classes[k]
            count(states, self.optimizer.param_groups[c.group], c.counts[0])
        self.pending.clear()


class StepSegments(Segments):
    """A graph of a loss and its gradients, with the update of each parameter from its gradient."""

    def __init__(
        self,
        joint: private.Joint,
        placed: Placed,
        clip: Mapping[str, float | None],
        transformer: Any,
        settings: Mapping[str, Any],
        batches: int,
        updates: bool,
    ):
        self.batches, self.updates = batches, updates
        inputs = [n for n in joint.graph.graph.nodes if n.op == "placeholder"]
        self.placed, self.clip = placed, dict(clip)
        given = [(node, g) for node, g in zip(inputs, joint.gradients, strict=False) if g is not None]
        self.gradients = [(k, node, g) for k, (node, g) in enumerate(given)]
        super().__init__(joint.graph, transformer, settings)
        if len({k for n, k in self._levels().items() if self.kind[n] == "ours"}) > 1:
            raise refused(list(self.left.values())) if self.left else self._cut()
        self.hyper = placeholder([make_axis(len(placed.numbers()), name="hyper")], dtype=dtypes.float64, name="hyperparameters")
        self.states: list[dict[str, Op]] = []
        for k, node, _ in self.gradients:
            own = states_of(placed.optimizer, placed.parameters[k])
            if node not in self.reading.holes:
                self.reading.hole(node)
            axes = self.reading.holes[node][0].axes
            self.states.append({name: self._state(own[name], axes, f"{node.name}_{name}") for name in placed.names[k]})
        self.sums = {} if batches == 1 else {k: self._sum(self.reading.holes[node][0], node.name) for k, node, _ in self.gradients}
        self.extra = [*self.sums.values(), *[op for own in self.states for op in own.values()], self.hyper]

    def _cut(self) -> UnsupportedError:
        """Returns the error for a graph whose lengths its own values decide, which is no single program."""
        nodes = [n for n in self.nodes if n in self.ends or is_item(n)]
        return UnsupportedError(
            "a step is one program, and values that this one computes decide a length in it",
            details=tuple(dict.fromkeys(f"{name_of(n)} at {line_of(n) or 'unknown'}" for n in nodes)),
            fix="torch.compile(model, backend='ngraph') and torch.compile(optimizer.step, backend='ngraph') take such lengths",
            line=place_in(nodes),
        )

    def _state(self, t: torch.Tensor, axes: Any, name: str) -> Op:
        """Returns the placeholder of a tensor of the optimizer's: where it has the parameter's length, with the parameter's axis."""
        own = [a if n == a.length else self.reading.g.fresh(n) for a, n in zip(axes, t.shape, strict=False)] if t.ndim else []
        return placeholder(own, dtype=kinds.OURS[t.dtype], name=name)

    def _sum(self, p: Op, name: str) -> Op:
        """Returns the placeholder of the gradients of the batches before, added up."""
        return placeholder(p.axes, dtype=p.dtype, name=f"{name}_sum")

    def besides(self, reading: Reading) -> dict[Any, Any]:
        """See `Segments.besides`: the new parameters and state, or the gradients added up."""
        holes = {k: reading.holes[node][0] for k, node, _ in self.gradients}
        gradients = {k: reading.like(gradient, holes[k]) for k, _, gradient in self.gradients}
        if self.sums:
            gradients = {k: self.sums[k] + e.cast(g, self.sums[k].dtype) / self.batches for k, g in gradients.items()}
            if not self.updates:
                return {self.sums[k]: g for k, g in gradients.items()}
        gradients = self._clipped(gradients)
        placed, many = self.placed, len(self.placed.scalars)
        each = [{name: self._scalar(k * many + n) for n, name in enumerate(placed.scalars)} for k in range(len(placed.classes))]
        made: dict[Any, Any] = {op: e.filled(0, op.axes, op.dtype) for op in self.sums.values()}
        for k, which in enumerate(placed.of):
            group = placed.optimizer.param_groups[placed.places[k]]
            p, state = holes[k], self.states[k]
            wide = kinds.wide(p.dtype)
            near = {name: e.cast(op, wide) for name, op in state.items()}
            flags = dict(zip(placed.rule.flags, flags_of(placed.rule, group), strict=True))
            shape = tuple(placed.parameters[k].shape)
            new, changed = placed.rule.update(
                UpdatedParameter(e.cast(p, wide), e.cast(gradients[k], wide), near, each[which], flags, wide, shape)
            )
            made[p] = e.cast(new, p.dtype)
            made |= {state[name]: e.cast(op, state[name].dtype) for name, op in changed.items()}
        return made

    def _scalar(self, place: int) -> Op:
        return tensor_slice(self.hyper, [place])

    def _clipped(self, gradients: dict[int, Op]) -> dict[int, Op]:
        """Returns the gradients, clipped as `clip_grad_norm_` or `clip_grad_value_` do."""
        most, bound = self.clip["clip_norm"], self.clip["clip_value"]
        if bound is not None:
            gradients = {k: e.minimum(e.maximum(g, -bound), bound) for k, g in gradients.items()}
        if most is not None:
            squares = [total(e.square(e.cast(g, kinds.wide(g.dtype))), g.axes) for g in gradients.values()]
            whole = squares[0]
            for s in squares[1:]:
                whole = whole + s
            scale = e.minimum(most / (e.sqrt(whole) + 1e-6), 1.0)
            gradients = {k: g * e.cast(scale, g.dtype) for k, g in gradients.items()}
        return gradients


class CompiledStep:
    """A training step: call it with a batch, and it gives the loss before the update, which it makes. See `compile_step`."""

    def __init__(self, model: Any, loss: Any, optimizer: Any, clip: Mapping[str, float | None], batches: int, given: Mapping[str, Any]):
        self.batches, self.added, self.sums = batches, 0, dict[torch.Tensor, torch.Tensor]()  # of gradients, by parameter
        self.model, self.optimizer, self.clip, self.given = model, optimizer, clip, given
        self.line = user_line()  # where a step is made of a loss whose code is PyTorch's
        rule_of(optimizer)
        self.trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
        self.function = torch.compile(private.own_code(_of(model, loss)), backend=self._compile, fullgraph=True, dynamic=False)

    def __call__(self, *inputs: Any, **named: Any) -> torch.Tensor:
        with torch.enable_grad():
            (loss,) = self.function(*inputs, **named)
        self.added = (self.added + 1) % self.batches
        if not self.added:
            private.stepped(self.optimizer)
        made: torch.Tensor = loss
        return made

    def _compile(self, gm: Any, given: Sequence[Any]) -> Callable[..., Any]:
        """Returns a graph of Dynamo's, which gives a loss, as a training step."""
        about = begin(private.compiled(gm))
        try:
            return self._step(gm, given, about)
        except BaseException:
            forget(about)
            raise

    def _step(self, gm: Any, given: Sequence[Any], about: Any) -> Callable[..., Any]:
        place_at(gm, self.line)
        if refusal := empties.refused(gm):
            raise refusal.error()
        gm = replaced(recurrent.lowered(gm))
        trained = {k: t for k, t in enumerate(given) if id(t) in self.trained and t.requires_grad}
        if not trained:
            raise no_parameter()
        check_loss(gm)
        if private.hooked(self.optimizer, trained.values()):
            raise UnsupportedError(
                "compile_step calls no hooks, and the optimizer or a parameter has some",
                fix="torch.compile(model, backend='ngraph') calls them",
            )
        others = {k: t.detach() for k, t in enumerate(given) if k not in trained}
        with private.before_autograd(before_autograd()):
            joint = private.joint(gm, trained, others, decompositions(self.given))
        order = [*trained, *others]
        runs: dict[Any, Callable[[list[Any]], list[Any]]] = {}
        updated = [p for p, gradient in zip(trained.values(), joint.gradients, strict=True) if gradient is not None]
        if not updated:
            raise no_parameter()
        placed = Placed(self.optimizer, updated)
        scalars = Scalars()

        summed = updated if self.batches > 1 else []

        def compiled(updates: bool) -> Callable[[list[Any]], list[Any]]:
            how = transformer_of(self.given), settings_of(self.given), self.batches, updates
            segments = StepSegments(joint, placed, self.clip, *how)
            made = segments.compiled()
            about.graph("step").fill(segments, made)
            return made.run

        def step(*arguments: Any) -> Any:
            placed.prepare()
            updates = self.added + 1 == self.batches
            form = updates, placed.form
            run = runs.get(form)
            if run is None:
                run = runs[form] = compiled(updates)
            if not self.added:
                self.sums = {p: self.sums[p] if p in self.sums else torch.zeros_like(p, requires_grad=False) for p in summed}
            elif len(summed) != len(self.sums) or any(p not in self.sums for p in summed):
                raise UnsupportedError(
                    "the batches of one update have gradients for different parameters",
                    fix="torch.compile(model, backend='ngraph') adds up gradients in .grad",
                )
            values = *[arguments[k] for k in order], *[self.sums[p] for p in summed], *placed.states(), scalars.of(placed.numbers())
            loss = run([*values])
            if updates:
                placed.done()
            return loss

        return step


private.take_recurrent_layers(CompiledStep._compile)


def no_parameter() -> ArgumentError:
    """Returns the error for a loss that no parameter of the optimizer decides."""
    return ArgumentError("the loss depends on no parameter of the optimizer", fix="give the optimizer model.parameters()")


def check_loss(gm: Any) -> None:
    """Raises ArgumentError where the first output of a graph of Dynamo's is no number that can be differentiated."""
    outputs = gm.graph.output_node().args[0]
    node = outputs[0] if outputs and isinstance(outputs[0], torch.fx.Node) else None
    found, line = (None, None) if node is None else (node.meta.get("example_value"), place_in([node]))
    if not isinstance(found, torch.Tensor):
        fix = "give a function that computes one: nn.MSELoss()"
        raise ArgumentError("the loss is no tensor that is computed of the batch", fix=fix, line=line)
    if found.numel() != 1:
        shape = ", ".join(map(str, found.shape))
        what, fix = f"the loss has the shape [{shape}], and has to be one number", "take its mean: lambda y: loss(y).mean()"
        raise ArgumentError(what, fix=fix, line=line)
    if not found.requires_grad:
        raise ArgumentError(
            f"the loss, of {str(found.dtype).removeprefix('torch.')}, has no derivative",
            fix="compute it in floats, without detach() or no_grad(), of what the model gives",
            line=line,
        )


def _of(model: Any, loss: Any) -> Callable[..., Any]:
    """Returns the function of a batch that gives the loss."""
    if loss is None:

        def own(*inputs: Any, **named: Any) -> Any:
            given = model(*inputs, **named)
            return (given if isinstance(given, torch.Tensor) else given.loss,)

        return own
    if _wanted(loss) == 1:

        def of_output(*inputs: Any, **named: Any) -> Any:
            return (loss(model(*inputs, **named)),)

        return of_output

    def of_target(*inputs: Any, **named: Any) -> Any:
        return (loss(model(*inputs[:-1], **named), inputs[-1]),)

    return of_target


def _wanted(loss: Any) -> int:
    """Returns how many arguments a loss has to get."""
    try:
        found = inspect.signature(loss.forward if isinstance(loss, torch.nn.Module) else loss).parameters.values()
    except (TypeError, ValueError):
        return 2
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in places and p.default is p.empty for p in found)


def compile_step(
    model: Any,
    loss: Any,
    optimizer: torch.optim.Optimizer,
    *,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    batches: int = 1,
    options: Mapping[str, Any] | None = None,
) -> CompiledStep:
    """Returns a training step as one program: `step(x, y)` computes the loss and its gradients, updates the parameters, and gives the loss.

    loss: a function of the model's output, or of it and the last argument of the step, such as `nn.CrossEntropyLoss()`; None where the
    model gives the loss itself, or an output that has it as `.loss`. optimizer: of torch.optim, one of SGD, Adam, AdamW, Adagrad,
    RMSprop, NAdam and Adafactor; its hyperparameters are read in every call, so that schedulers work as ever.
    clip_norm, clip_value: limits as of `clip_grad_norm_` and `clip_grad_value_`. options: as of the backend.
    batches: calls for each update, which takes the mean of their gradients, as `(loss / batches).backward()` before each step does.
    Parameters, buffers and the optimizer's state are torch's, and are written where they lie; `.grad` is neither read nor written, so that
    none are scaled (GradScaler).
    Raises UnsupportedError for an op that is not ours, hooks, or an optimizer without a rule; ArgumentError where nothing is trained.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        kind = type(optimizer).__name__
        raise ArgumentError(f"compile_step takes an optimizer of torch.optim, not {kind}", fix=OTHERS.get(kind, "torch.optim.SGD(…)"))
    for name, value in (("model", model), ("loss", loss)):
        if not callable(value) and not (name == "loss" and value is None):
            fix = "give a module" if name == "model" else "give a function such as nn.MSELoss(), or None where the model gives its loss"
            raise ArgumentError(f"{name} is {value!r}, which is no function", fix=fix)
    for name, value in (("clip_norm", clip_norm), ("clip_value", clip_value)):
        if value is not None and not (isinstance(value, (int, float)) and value > 0):
            raise ArgumentError(f"{name} is {value!r}", fix="give a number above 0, or leave it out")
    if type(batches) is not int or batches < 1:
        raise ArgumentError(f"batches is {batches!r}", fix="give how many calls make an update, a whole number from 1")
    return CompiledStep(model, loss, optimizer, {"clip_norm": clip_norm, "clip_value": clip_value}, batches, checked(None, options))
