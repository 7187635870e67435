"""Layers made of layers: Sequential, Parallel, ResidualModule; and `make_bound_computation`, computations by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ngraph as ng
from ngraph.errors import AxisError, GraphError, UnknownKey
from ngraph.frontends.neon.calls import one_of, public, refuse, wrong_kind
from ngraph.frontends.neon.expected import check_labels, labels_in
from ngraph.frontends.neon.layer import Layer, scoped
from ngraph.op_graph.arguments import shown
from ngraph.op_graph.axes import Axis, show_axes
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import show_input


def check_layer(who: str, layer: Any) -> None:
    """Raises ArgumentTypeError for an object that cannot be called with an op."""
    if isinstance(layer, type):
        raise wrong_kind(who, f"{layer.__name__} is a class, not a layer", f"make one: {layer.__name__}(...)")
    if not callable(layer):
        raise wrong_kind(who, f"{shown(layer)} is neither a layer nor a function", "pass layers, and functions of an op")


class Sequential(Layer):
    """Layers in sequence. Any callable of an op is a layer; nested lists of layers are flattened.

    `model[k]` is the k-th layer, `model[a:b]` a Sequential of some, with the same weights, `model[path]` a weight.
    Options of a call go to the first layer.
    """

    def __init__(self, layers: Sequence[Any], name: str | None = None):
        super().__init__(name)
        self.layers: list[Callable[[Any], Any]] = []
        for layer in layers:
            self.layers += layer if isinstance(layer, (list, tuple)) else [layer]
        for layer in self.layers:
            check_layer("Sequential", layer)

    @scoped
    def __call__(self, in_obj: Any, **options: Any) -> Any:
        x = in_obj
        for layer in self.layers:
            x, options = layer(x, **options), {}
        return x

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return super().__getitem__(key)
        if isinstance(key, slice):
            return Sequential(self.layers[key])
        if not hasattr(key, "__index__"):
            raise wrong_kind("Sequential", f"[{shown(key)}] names no layer", "take model[0], model[:2], or model[path] for a weight")
        n = len(self.layers)
        if not -n <= key < n:
            raise UnknownKey(f"{self.path} has {n} layers, and none number {key}", fix=f"take {-n} to {n - 1}" if n else "give it layers")
        return self.layers[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def _arguments(self) -> str:
        return ", ".join(repr(layer) if isinstance(layer, Layer) else getattr(layer, "__name__", repr(layer)) for layer in self.layers)


class Parallel(Layer):
    """Branches in parallel, each called with the same input.

    mode: "concat" concatenates their results along `merge_axis` of the call (the channel axis, or the only feature axis, by default); "sum"
    adds them; None gives a list. Raises AxisError where the axis to concatenate along is ambiguous.
    """

    def __init__(self, branches: Sequence[Any], name: str | None = None, mode: str | None = "concat"):
        super().__init__(name)
        one_of("Parallel", "mode", mode, ("concat", "sum", None))
        for branch in branches:
            check_layer("Parallel", branch)
        if not len(branches):
            raise refuse("Parallel", "it has no branches", "pass a list: [Affine(...), Affine(...)]")
        self.branches, self.mode = list(branches), mode

    @scoped
    def __call__(self, in_obj: Any, merge_axis: Axis | str | None = None) -> Any:
        made = [branch(in_obj) for branch in self.branches]
        if self.mode is None:
            return made
        if self.mode == "sum":
            return sum(made[1:], made[0])
        return ng.concat_along_axis(made, self._merged(made[0]) if merge_axis is None else merge_axis)

    def _merged(self, x: Op) -> Axis:
        channel, features = x.axes.channel_axis(), x.axes.feature_axes()
        if channel is not None:
            return channel
        if len(features) != 1:
            raise AxisError(
                f"{self.path}: no channel axis to join along in {show_axes(x.axes)}",
                details=(show_input(x),),
                fix="say along which: layer(x, merge_axis='H'), or mode=None for a list",
            )
        return features[0]

    def _arguments(self) -> str:
        return f"{len(self.branches)} branches, {self.mode}"


class ResidualModule(Layer):
    """main_path(x) + side_path(x), or main_path(x) + x. Raises AxisError unless both have the same axes.

    Source: K. He and others, "Deep residual learning for image recognition" (2015).
    """

    def __init__(self, main_path: Any, side_path: Any = None, name: str | None = None):
        super().__init__(name)
        self.main_path, self.side_path = main_path, side_path

    @scoped
    def __call__(self, in_obj: Op) -> Op:
        main = self.main_path(in_obj)
        side = in_obj if self.side_path is None else self.side_path(in_obj)
        if {a: a.length for a in main.axes} != {a: a.length for a in side.axes}:
            raise AxisError(
                f"{self.path}: the main path gives {show_axes(main.axes)}, the side path {show_axes(side.axes)}",
                details=(show_input(main), show_input(side)),
                fix="give a side_path that makes the same axes, such as Convolution((1, 1, K), init, strides=2)",
            )
        return main + side

    def _arguments(self) -> str:
        return f"{self.main_path!r}, {self.side_path!r}"


Container = Sequential


class BoundComputation:
    """A computation with names: called with a dict of arrays, it returns a dict of arrays. Other entries of the dict are ignored.

    Raises UnknownKey that names all missing inputs.
    """

    def __init__(self, transformer: Any, named_outputs: Any, named_inputs: Mapping[str, Op], name: str | None = None):
        if isinstance(named_outputs, Op):
            named_outputs = {"output": named_outputs}
        unnamed = [k for k, v in named_inputs.items() if not isinstance(v, Op) or not (v.is_placeholder or v.is_variable)]
        if unnamed:
            raise GraphError(
                f"make_bound_computation: {', '.join(map(str, unnamed))} {'is' if len(unnamed) == 1 else 'are'} no placeholder",
                fix="pass what batches.make_placeholders() gives",
            )
        outputs = named_outputs.values() if isinstance(named_outputs, Mapping) else [named_outputs]
        for op in outputs:
            if not isinstance(op, Op):
                raise wrong_kind("make_bound_computation", f"the output {shown(op)} is not an op", "pass a dict: {'cost': cost}")
        self.inputs, self.outputs = dict(named_inputs), dict(named_outputs)
        needed = {p for op in self.outputs.values() for p in _placeholders(op)}
        self.needed = [k for k, v in self.inputs.items() if v in needed]
        self.labels = labels_in(self.outputs.values(), {k: self.inputs[k] for k in self.needed})
        self.computation = transformer.computation(list(self.outputs.values()), *(self.inputs[k] for k in self.needed), name=name)

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        missing = [k for k in self.needed if k not in inputs]
        if missing:
            got = ", ".join(map(str, inputs)) or "nothing" if isinstance(inputs, Mapping) else shown(inputs)
            what = f"{self.computation.name} needs {', '.join(missing)}, and got {got}"
            raise UnknownKey(what, fix=f"pass a dict with {', '.join(map(repr, self.needed))}")
        check_labels(self.labels, inputs, "the batch")
        return dict(zip(self.outputs, self.computation(*[inputs[k] for k in self.needed]), strict=True))

    def __repr__(self) -> str:
        return f"BoundComputation({', '.join(self.needed)} -> {', '.join(self.outputs)})"


def _placeholders(op: Op) -> list[Op]:
    return [o for o in Op.ordered_ops([op]) if o.is_placeholder]


@public
def make_bound_computation(transformer: Any, named_outputs: Any, named_inputs: Mapping[str, Op]) -> BoundComputation:
    """Returns a BoundComputation: {name: op} out, {name: placeholder} in."""
    return BoundComputation(transformer, named_outputs, named_inputs)
