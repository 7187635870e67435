"""`ng.function`: a computation of any nest of results, fed by position or by name, whose results know their axes."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import numpy as np

from ngraph.config import config
from ngraph.errors import ArgumentError, ArgumentTypeError, GraphError, UnknownName, by_user, nearest
from ngraph.op_graph.axes import Axes, show_axes
from ngraph.op_graph.op import Op
from ngraph.ops.elementwise import as_op
from ngraph.ops.state import placeholder
from ngraph.parts import nest
from ngraph.runtime.arguments import matched
from ngraph.runtime.host.locks import fork_safe_lock
from ngraph.transformers import base
from ngraph.transformers.base import Transformer


class ComputedArray(np.ndarray[Any, Any]):
    """An array that `ng.function` computed: a NumPy array with `axes`, and with `dims` as xarray names them.

    What NumPy computes from it are plain arrays.
    """

    known: Axes | None = None  # those of its dims, whose lengths may be those before the call

    @classmethod
    def made(cls, array: np.ndarray[Any, Any], known: Axes) -> ComputedArray:
        """Returns the array with these axes, without a copy."""
        found = array.view(cls)
        found.known = known
        return found

    def copy(self, order: Any = "C") -> ComputedArray:
        """Returns a copy, which has the same axes."""
        made: ComputedArray = super().copy(order)
        made.known = self.known
        return made

    def __copy__(self) -> ComputedArray:
        return self.copy("K")

    def __deepcopy__(self, memo: Any) -> ComputedArray:
        return self.copy("K")

    def __reduce__(self) -> Any:
        found: Any = super().__reduce__()
        make, arguments, state = found
        return make, arguments, (state, None if self.known is None else self.axes)

    def __setstate__(self, state: Any) -> None:
        array, self.known = state
        super().__setstate__(array)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    @property
    def axes(self) -> Axes:
        """The axes of its dims, with their lengths. Raises GraphError for a part of a result, of which they are not known."""
        known = self.known
        if known is None or len(known) != self.ndim:
            raise GraphError("the axes of a part of a result are not known", fix="slice the op: x['H', 2:5]")
        return Axes([a.resized(n) for a, n in zip(known, self.shape, strict=True)])

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of its axes, in order."""
        return tuple(a.label for a in self.axes)

    def to_xarray(self) -> Any:
        """Returns an xarray DataArray with the names of the axes as dims. Needs the package xarray."""
        return importlib.import_module("xarray").DataArray(np.asarray(self), dims=self.dims)


class ArrayFunction:
    """A compiled function of arrays; `ng.function` makes it.

    results, inputs    the nests of ops            names         what each input is called in a call
    computation        what it calls               transformer   holds the values of its variables
    """

    def __init__(self, results: Any, inputs: Sequence[Any], names: Sequence[str | None], transformer: Transformer, xarray: bool):
        self.results, self.inputs, self.names, self.transformer, self._xarray = results, tuple(inputs), tuple(names), transformer, xarray
        self._ops = [as_op(x) for x in nest.leaves(results)]
        self._leaves = nest.leaves(list(inputs))
        self.computation = transformer.computation(self._ops, *self._leaves)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Returns the results in the form that they were given in: arrays that know their `axes`, None for an op without a value.

        Values are given by position, one for each input, in its form; by name; or as one dict, from names or ops to values. A value
        is a number, an array whose dims are in the order of the input's axes, or an xarray DataArray, whose dims are matched by name.
        Raises ArgumentError, UnknownName.
        """
        values = self._called(given, named)
        return nest.rebuilt(self.results, [self._out(o, v) for o, v in zip(self._ops, values, strict=True)])

    def to_xarray(self, *given: Any, **named: Any) -> Any:
        """Returns the results of a call as xarray DataArrays, whose dims are the names of the axes. Needs the package xarray."""
        values = self._called(given, named)
        made = [None if v is None else ComputedArray.made(v, o.axes).to_xarray() for o, v in zip(self._ops, values, strict=True)]
        return nest.rebuilt(self.results, made)

    def inputs_by_name(self) -> dict[str, Op]:
        """Returns the ops of the inputs by the names of a call; those of a nest by the input's name and their path."""
        made = {}
        for k, (name, form) in enumerate(zip(self.names, self.inputs, strict=True)):
            for path, op in zip(nest.paths(form), nest.leaves(form), strict=True):
                made[".".join(filter(None, [name or ("" if isinstance(form, Op) else str(k)), path])) or op.hint or f"input_{k}"] = op
        return made

    def outputs_by_name(self) -> Any:
        """Returns the ops of the results by their paths in the nest; as they are where these are an op, or several in order."""
        if isinstance(self.results, (list, tuple)) and len(self.results) == len(self._ops):
            return self._ops
        paths = nest.paths(self.results)
        return dict(zip(paths, self._ops, strict=True)) if all(paths) else self._ops

    def _called(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        done: tuple[Any, ...] = self.computation(*self._values(given, named))
        return done

    def _out(self, op: Op, value: Any) -> Any:
        if value is None:
            return None
        made = ComputedArray.made(value, op.axes)
        return made.to_xarray() if self._xarray else made

    def _values(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        """Returns a value for each leaf of the inputs."""
        one = given[0] if len(given) == 1 and not named else None
        if isinstance(one, Mapping) and not (len(self.inputs) == 1 and not isinstance(self.inputs[0], Op)):
            given, named = (), one
        if len(given) > len(self.inputs):
            raise ArgumentError(f"the function takes {len(self.inputs)} inputs, not {len(given)}", fix=f"write {self._call()}")
        by_input: dict[int, Any] = dict(enumerate(given))
        by_leaf: dict[Op, Any] = {}
        for key, value in named.items():
            at = self._place(key)
            if isinstance(at, int):
                if at in by_input:
                    raise ArgumentError(f"{key} is given twice", fix=f"write {self._call()}")
                by_input[at] = value
            else:
                by_leaf[at] = value
        return [value for k in range(len(self.inputs)) for value in self._of_input(k, by_input, by_leaf)]

    def _of_input(self, k: int, by_input: Mapping[int, Any], by_leaf: Mapping[Op, Any]) -> Iterator[Any]:
        """Yields the values of one input's leaves, in order."""
        form = self.inputs[k]
        if k in by_input:
            try:
                yield from matched(form, by_input[k], self.names[k] or f"input {k}")
            except ValueError as error:
                raise ArgumentError(str(error)) from None
            return
        for op in nest.leaves(form):
            if op not in by_leaf:
                raise ArgumentError(
                    f"{self.names[k] or op.label} {show_axes(op.axes)} is not given", fix=f"write {self._call()}", details=self._listed()
                )
            yield by_leaf[op]

    def _place(self, key: Any) -> int | Op:
        """Returns the input that a key of a call denotes, by its number, or a leaf of the inputs. Raises UnknownName."""
        if isinstance(key, Op):
            if key in self._leaves:
                return key
        elif key in self.names:
            return self.names.index(key)
        else:
            inside = [
                o for form in self.inputs for path, o in zip(nest.paths(form), nest.leaves(form), strict=True) if key in (path, o.hint)
            ]
            if len(inside) == 1:
                found: Op = inside[0]
                return found
        said = key.label if isinstance(key, Op) else str(key)
        meant = nearest(said, [n for n in self.names if n])
        raise UnknownName(
            f"the function has no input {said}", details=self._listed(), fix=f"name {meant}" if meant else f"write {self._call()}"
        )

    def _listed(self) -> tuple[str, ...]:
        return tuple(
            f"{n or k}: {show_axes(o.axes)}" for k, (n, o) in enumerate(zip(self.names, self.inputs, strict=True)) if isinstance(o, Op)
        )

    def _call(self) -> str:
        return f"f({', '.join(f'{n}=...' if n else '...' for n in self.names)})"

    def __repr__(self) -> str:
        given = ", ".join(
            f"{n or ''}{show_axes(o.axes) if isinstance(o, Op) else ''}" for n, o in zip(self.names, self.inputs, strict=True)
        )
        gives = ", ".join(f"{p}{show_axes(o.axes)}" for p, o in zip(nest.paths(self.results), self._ops, strict=True) if o.is_tensor_op)
        return f"<function ({given}) -> {gives}>"


_choosing = fork_safe_lock()
_default: dict[tuple[Any, Any], Transformer] = {}  # the transformer of all functions, for each choice of a factory and of a name


def default_transformer() -> Transformer:
    """Returns the transformer that all functions share, and with it the values of variables; a new one once that is closed."""
    key = base._factory, config.transformer
    with _choosing:
        if key not in _default or _default[key].closed:
            _default[key] = base.make_transformer()
        return _default[key]


def _names_in_use(inputs: Sequence[Any]) -> list[str | None]:
    """Returns for each input the name of the user's variable that holds it, in the function that calls or around it; None without one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not by_user(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return [None] * len(inputs)
    known = {**frame.f_globals, **frame.f_locals}
    return [next((n for n, value in known.items() if value is x and n != "_"), None) for x in inputs]


def _named(inputs: Sequence[Any]) -> list[str | None]:
    """Returns the names of inputs: that which an op was given, else that of the user's variable."""
    held = _names_in_use(inputs)
    names = [x.hint if isinstance(x, Op) and x.hint else n for x, n in zip(inputs, held, strict=True)]
    return [n if names.count(n) == 1 else None for n in names]


def _placed(x: Any) -> Any:
    """Returns an input with a placeholder for each text, whose axes it lists."""
    leaves = nest.leaves(x)
    if not any(isinstance(leaf, str) for leaf in leaves):
        return x
    return nest.rebuilt(x, [placeholder(leaf) if isinstance(leaf, str) else leaf for leaf in leaves])


def _parameters(results: Callable[..., Any], names: list[str | None]) -> list[str | None]:
    """Returns the names of inputs, those without one called as the function's parameters."""
    try:
        own = [p.name for p in inspect.signature(results).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    except ValueError:  # a built-in function without a signature
        own = []
    given = [n or (own[k] if k < len(own) and own[k] not in names else None) for k, n in enumerate(names)]
    return [n if given.count(n) == 1 else None for n in given]


def _applied(results: Callable[..., Any], inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Returns the results of a user's function of the inputs, by name where it has these parameters. Raises ArgumentTypeError."""
    try:
        own = inspect.signature(results)
        if not set(named) <= set(own.parameters):
            inputs, named = (*inputs, *named.values()), {}
        own.bind(*inputs, **named)
    except TypeError as error:
        raise ArgumentTypeError(f"function: {error}", fix="give it these inputs, or pass ops") from None
    except ValueError:
        pass  # a built-in function without a signature
    return results(*inputs, **named)


def function(results: Any, *inputs: Any, transformer: Transformer | None = None, xarray: bool = False, **named: Any) -> ArrayFunction:
    """Returns a function of arrays that computes `results`, an op or any nest of ops: dicts, lists, tuples, dataclasses.

    inputs: placeholders, variables, axes as text for a new placeholder, or nests of them; a call gives their values by position, by
    name, or as one dict. The name of an op is that of `op.named(...)`, else that of the variable that holds it; `named` gives others.
    results: also a function of the inputs, whose parameters then name inputs that have no other name. transformer: the one that all
    functions share, unless another is given; it holds the values of variables.
    xarray: whether calls return xarray DataArrays. Raises GraphError for a placeholder that is needed and no input.

    >>> import ngraph as ng
    >>> x = ng.placeholder("N=? D=3")
    >>> f = ng.function({"mean": ng.mean(x, "N"), "most": ng.max(x, "D")}, x)
    >>> f(x=[[1, 2, 3], [3, 4, 5]])["mean"].axes
    Axes(D=3)
    >>> ng.function(lambda x, w: ng.sum(x * w, "D"), "N=? D=3", "D")(x=[[1, 2, 3]], w=[1, 0, 2])
    ComputedArray([7.], dtype=float32)
    """
    every = tuple([_placed(x) for x in (*inputs, *named.values())])
    inputs = every[: len(inputs)]
    for x in nest.leaves(list(every)):
        if not isinstance(x, Op):
            raise GraphError(f"{x!r} is not an input", fix="pass what ng.placeholder or ng.variable made, or dicts and lists of these")
    if transformer is not None and not isinstance(transformer, Transformer):
        fix = "pass what ngt.make_transformer() gives, or ngt.make_transformer_factory('numpy')()"
        raise ArgumentTypeError(f"function: {transformer!r} is not a transformer", fix=fix)
    names = _named(inputs)
    if callable(results) and not isinstance(results, Op):
        names = _parameters(results, names)
        results = _applied(results, inputs, dict(zip(named, every[len(inputs) :], strict=True)))
    wrong = next((r for r in nest.leaves(results) if not isinstance(r, (Op, bool, int, float, np.ndarray, np.generic))), None)
    if wrong is not None:
        raise GraphError(f"a function gives ops, and {wrong!r} is none", fix="make an op of it: ng.constant(...)")
    return ArrayFunction(results, every, [*names, *named], transformer or default_transformer(), xarray)
