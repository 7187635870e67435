"""Layer: a piece of a model with weights of its own; precision, and training or inference mode."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Self

import numpy as np

import ngraph as ng
from ngraph.errors import AxisError, StateError, UnknownKey, UnknownName, nearest, show_line
from ngraph.frontends.neon import inside
from ngraph.frontends.neon.calls import OF_LAYERS, Checked, wrong_kind
from ngraph.frontends.neon.graph import SubGraph
from ngraph.frontends.neon.initializers import first_value
from ngraph.op_graph.axes import Axes, show_axes
from ngraph.op_graph.dtypes import DType, as_dtype
from ngraph.op_graph.op import Op
from ngraph.parts.scopes import ScopedValue

_inference = ScopedValue("neon_inference", False)
_computing: ScopedValue[DType | None] = ScopedValue("neon_computing", None)
_storing: ScopedValue[DType | None] = ScopedValue("neon_storing", None)
scoped = SubGraph.scope_op_creation

# attributes that programs of 2016 to 2019, or of PyTorch, read -> the weight's labels here, of which the first that is there is meant
ALIASES: dict[str, tuple[str, ...]] = {
    "W_input": ("W_x",),
    "W_recur": ("W_h",),
    "weight": ("W", "gamma"),
    "bias": ("bias", "b", "beta"),
    "running_mean": ("gmean",),
    "running_var": ("gvar",),
    "weight_ih_l0": ("W_x",),
    "weight_hh_l0": ("W_h",),
}


@contextmanager
def inference_mode_on() -> Iterator[None]:
    """Calls layers in this block in inference mode: dropout passes values through, batch norm uses its running averages. The mode ends with
    the block, also after an error."""
    with _inference.of(True), ng.metadata(mode="inference"):
        yield


@contextmanager
def precision(compute: Any = None, weights: Any = None) -> Iterator[None]:
    """Makes layers called in this block compute in the dtype `compute`; their weights are stored in `weights` (float32 by default)."""
    with _computing.of(as_dtype(compute) if compute else None), _storing.of(as_dtype(weights) if weights else None):
        yield


def computed(x: Op) -> Op:
    """Returns x in the dtype that layers compute in, if it is a float."""
    dtype = _computing.get()
    return ng.cast(x, dtype) if dtype is not None and x.dtype.is_float else x


def wide(x: Op) -> Op:
    """Returns x with at least 32 bits, which sums of many squares, exponentials and losses need."""
    return ng.cast(x, ng.float32) if x.dtype.is_float and x.dtype.bits < 32 else x


class Layer(Checked, SubGraph):
    """A piece of a model: a callable from ops to an op, which makes its weights at the first call and reuses them in later ones.

    So the training graph and the inference graph of one layer share weights. A subclass defines `__call__`, decorated with
    `@SubGraph.scope_op_creation`, and gets weights from `self.parameter`.
    """

    inference_mode_on = staticmethod(inference_mode_on)

    def __init__(self, name: str | None = None):
        super().__init__(name)
        self.weights: dict[str, Op] = {}
        self._carried: dict[tuple[bool, str, tuple[int | None, ...]], Op] = {}

    @property
    def initialized(self) -> bool:
        """Whether it has been called, and so has weights."""
        return bool(self.places)

    def __copy__(self) -> Self:
        """Returns another layer with the same weights and layers."""
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        return made

    def __getstate__(self) -> Any:
        """Returns what a deep copy or a pickle holds. Raises StateError after the first call: the layer's weights are ops of one graph."""
        if self.initialized:
            raise StateError(
                f"{self.path} can be neither copied nor pickled, because it has been called: its weights are ops of one graph",
                fix="trainer.save(path) writes the weights, and trainer.load(path) of a model that is made alike reads them",
            )
        return super().__getstate__()

    @property
    def inference_mode(self) -> bool:
        return _inference.get()

    def __call__(self, in_obj: Op) -> Op:
        raise NotImplementedError(f"{type(self).__name__} has no __call__")

    def train_outputs(self, in_obj: Any, **options: Any) -> Any:
        """Returns the layer's result in training mode (the call of neon in 2016)."""
        return self(in_obj, **options)

    def inference_outputs(self, in_obj: Any, **options: Any) -> Any:
        """Returns the layer's result in inference mode, with the same weights (the call of neon in 2016)."""
        with inference_mode_on():
            return self(in_obj, **options)

    def parameter(self, name: str, axes: Any, init: Any = 0.0, trainable: bool = True) -> Op:
        """Returns the weight called `name`, made at the first call, in the dtype of the computation.

        axes: must be the same in later calls. init: a function of Axes, a number, an array or None (zeros).
        Raises AxisError where a length is unknown or another call had other axes.
        """
        axes = Axes(axes)
        mine = self.weights.get(name)
        if mine is None:
            unknown = [a.label for a in axes if a.length is None]
            if unknown:
                raise AxisError(
                    f"{self.path}: the length of {', '.join(unknown)} is not known, so {name} {show_axes(axes)} cannot be made",
                    fix="give the axis of the input its length: ng.make_axis(length, name=...)",
                )
            with self._weight_scope():
                make = ng.variable if trainable else ng.persistent_tensor
                path = f"{self.path}/{name}"
                mine = make(axes, dtype=_storing.get(), initial_value=first_value(init, path)).named(name)
                self.weights[name] = mine
        elif {a: a.length for a in mine.axes} != {a: a.length for a in axes}:
            raise AxisError(
                f"{self.path} has {name} {show_axes(mine.axes)} from an earlier call, and this call needs {show_axes(axes)}",
                details=(f"the earlier call: {show_line(mine.line)}",),
                fix="call it with the axes of the first call, or make another layer",
            )
        return computed(mine) if trainable else mine

    def carried(self, name: str, axes: Any) -> Op:
        """Returns state that is carried from call to call and starts at zeros; it is not trained, and files of weights do not contain it.

        Each batch size has its own, and inference has its own, too, so an evaluation never changes a training. Checkpoints keep that of
        training. `reset_states` sets it to zeros.
        """
        axes = Axes(axes)
        key = self.inference_mode, name, axes.lengths
        if key not in self._carried:
            with self._weight_scope():
                make = ng.temporary if self.inference_mode else ng.persistent_tensor
                self._carried[key] = make(axes, dtype=_storing.get()).named(name)
        return self._carried[key]

    def carried_states(self, inference: bool | None = None) -> list[Op]:
        """Returns the carried state of this layer and nested ones: of inference, of training (False), or both (None)."""
        return [v for below in self.layers_below() for key, v in below._carried.items() if inference in (None, key[0])]

    def reset_states(self, transformer: Any, inference: bool | None = None) -> None:
        """Sets `carried_states` to zeros: the next call starts a new text."""
        for state in self.carried_states(inference):
            transformer.set(state, np.zeros(state.axes.lengths, state.dtype.np))

    @contextmanager
    def _weight_scope(self) -> Iterator[None]:
        with nullcontext() if self.places else self.scope():
            yield

    # inspection
    def _unknown(self, path: Any, patterns: Iterable[str] = ()) -> UnknownKey:
        """Returns the error for a path, or a pattern, that matches no weight; the fix is the nearest path or pattern."""
        found = self.paths()
        meant = nearest(str(path), [*found, *patterns])
        fix = f"take {meant!r}" if meant else f"take one of {', '.join(found)}" if found else "call it first"
        return UnknownKey(f"{self.path} has no weight {path!r}; it has {', '.join(found) or 'none: it has not been called'}", fix=fix)

    def __getitem__(self, path: str) -> Any:
        """Returns the variable at a path below this layer: `model["Affine_1/Linear_0/W"]`. Raises UnknownKey."""
        if not isinstance(path, str):
            raise wrong_kind(type(self).__name__, f"[{path!r}] is not a path of a weight", "take one of layer.paths(), such as layer['W']")
        found = self.paths()
        if path not in found:
            raise self._unknown(path)
        return found[path]

    def __getattr__(self, name: str) -> Any:
        """Returns the only variable, or carried state, of this label in this layer and those below, such as `affine.W`.

        `weight` and `bias` are PyTorch's names for W or gamma, and for bias, b or beta; `W_input` and `W_recur` are W_x and W_h.
        Raises UnknownName where there is none, or several.
        """
        if name.startswith("_") or "weights" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = self._meant(name)
        if len(found) == 1:
            return found[0]
        if found:
            several = [op.name.removeprefix(self.path + "/") for op in found]
            fix = f"take layer[{several[0]!r}]" if several[0] in self.paths() else "read carried_states()"
            raise UnknownName(f"{self.path} has {len(found)} weights {name}: {', '.join(several)}", fix=fix)
        labels = list(dict.fromkeys(path.rpartition("/")[2] for path in self.paths()))
        meant = nearest(name, [*labels, *(n for n in dir(self) if not n.startswith("_"))])
        known = f"its weights are {', '.join(labels)}" if labels else "it has no weights before its first call"
        if name.endswith("_init") and getattr(self, "reset_cells", None):
            known, meant = "with reset_cells=True each call begins at zeros", None
            fix = f"{type(self).__name__}(..., reset_cells=False) keeps the state, as {name}"
        elif name in OF_LAYERS:
            fix = f"write {OF_LAYERS[name]}"
        elif meant:
            fix = f"take .{meant}"
        else:
            fix = "see paths()" if labels else "call it first"
        raise UnknownName(f"{type(self).__name__} has no attribute {name!r}; {known}", fix=fix)

    def __dir__(self) -> list[str]:
        """Returns the attributes with the names of weights that stand for one: completion shows them."""
        labels = {path.rpartition("/")[2] for path in self.paths()}
        labels |= {op.hint for op in self.carried_states() if op.hint}
        return [*super().__dir__(), *(name for name in {*labels, *ALIASES} if len(self._meant(name)) == 1)]

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.paths())

    def _meant(self, name: str) -> list[Op]:
        """Returns the variables and carried states that an attribute may stand for."""
        return next((ops for label in ALIASES.get(name, (name,)) if (ops := self._labelled(label))), [])

    def _labelled(self, label: str) -> list[Op]:
        """Returns the variables, and the carried states of training, of this label: its own, else those of layers below."""
        own = [self.weights[label]] if label in self.weights else []
        below = [op for layer in self.layers_below() for op in layer._labels(label)]
        return own or list(dict.fromkeys(below))

    def _labels(self, label: str) -> list[Op]:
        carried = [op for (inference, name, _), op in self._carried.items() if name == label and not inference]
        return [*([self.weights[label]] if label in self.weights else []), *carried]

    def paths(self) -> dict[str, Op]:
        """Returns all variables, trained or not, by their path below this layer."""
        found: dict[str, Op] = {}
        for layer in self.layers_below():
            for weight in layer.weights.values():
                inside = weight.name.removeprefix(self.path + "/")
                found.setdefault(inside, weight)
        return found

    def children(self) -> list[Layer]:
        """Returns the layers in this one's attributes, in order."""
        found: list[Layer] = []
        todo = list(vars(self).values())
        while todo:
            value = todo.pop(0)
            if isinstance(value, Layer):
                found.append(value)
            elif isinstance(value, (list, tuple)):
                todo = [*value, *todo]
            elif isinstance(value, dict):
                todo = [*value.values(), *todo]
        return list(dict.fromkeys(found))

    def layers_below(self) -> list[Layer]:
        """Returns this layer and all nested ones, each once, outer ones first."""
        found: dict[Layer, None] = {}
        todo: list[Layer] = [self]
        while todo:
            layer = todo.pop()
            if layer not in found:
                found[layer] = None
                todo += layer.children()[::-1]
        return list(found)

    def freeze(self, pattern: str = "*", trained: bool = False) -> list[str]:
        """Excludes weights whose path matches `pattern` (`Affine_1/*`) from optimizers called from now on. Returns their paths.

        Raises UnknownKey where none matches.
        """
        chosen = [p for p in self.paths() if fnmatch.fnmatchcase(p, pattern)]
        if not chosen:
            raise self._unknown(pattern, [f"{layer.path}/*".removeprefix(f"{self.path}/") for layer in self.layers_below()])
        for p in chosen:
            weight = self.paths()[p]
            if "frozen" in weight.attrs or not trained and weight.is_trainable:
                weight.attrs["trainable"] = trained
                weight.attrs["frozen"] = not trained
        return chosen

    def unfreeze(self, pattern: str = "*") -> list[str]:
        """Reverts `freeze`. Returns the paths."""
        return self.freeze(pattern, trained=True)

    def summary(self, computation: Any = None, *arrays: Any, depth: int = 2) -> str:
        """Returns a table of this layer and nested ones: axes out, parameters, operations, share of time. See `inside.summary`."""
        return inside.summary(self, computation, *arrays, depth=depth)

    def _arguments(self) -> str:
        """Returns the text between the parentheses of `repr`."""
        return ""

    def __repr__(self) -> str:
        said = self._arguments()
        return f"{type(self).__name__}({said})" if self._name is None else f"{self._name}: {type(self).__name__}({said})"
