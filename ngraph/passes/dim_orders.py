"""Chooses the order of dims (memory format) of each value of a program in a NumPy array.

Inputs keep the declared order. Each result follows its largest operand, so that most steps see equal orders; a contraction gives
whichever of its two natural orders its users prefer, back from the program's outputs. Every order is correct; a bad one costs copies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ngraph.op_graph.opdef import OPS
from ngraph.parts.registry import Column
from ngraph.program.program import AxisId, Program, Step, Value

Dims = tuple[AxisId, ...]
DIMS: Column[Any] = OPS.column(
    "numpy_dims", Callable, None, "(step, order of each value, wanted order): the order of the dims of its result in a NumPy array"
)


def dim_orders(program: Program) -> dict[Value, Dims]:
    """Returns {value: its axes in the order of dims}. Elementwise results have all axes of their operands; table entries may differ."""
    wanted = _wanted(program)
    chosen: dict[Value, Dims] = {v: tuple(v.axes) for v in program.sources()}
    for step in program.steps:
        rule = DIMS[step.op] or (_largest if len(step.results) == 1 else None)
        for v in step.results:
            dims = rule(step, chosen, wanted.get(v)) if rule is not None else tuple(v.axes)
            chosen[v] = dims if len(dims) == len(v.axes) and set(dims) == set(v.axes) else tuple(v.axes)
    return chosen


def _wanted(program: Program) -> dict[Value, Dims]:
    """Returns the order that the users of a value prefer, from the results backwards; the last user decides."""
    home = {s.name: s.value for s in program.state_in}
    wanted: dict[Value, Dims] = {}
    for name, v in program.state_out:
        wanted[v] = tuple(home[name].axes)
    for v in program.outputs:
        wanted.setdefault(v, tuple(v.axes))
    for step in reversed(program.steps):
        want = wanted.get(step.results[0])
        if len(step.results) != 1 or step.op in ("contract", "convolve", "reindex", "gather", "scatter", "concat"):
            continue
        if want is None:
            largest = max(step.inputs, key=lambda v: len(v.axes), default=None)
            if largest is None:
                continue
            want = wanted.get(largest, tuple(largest.axes))
        if step.op == "rename":
            old = {b: a for a, b in step.attrs["to"]}
            want = tuple([old.get(a, a) for a in want])
        for v in step.inputs:
            if v not in wanted and len(v.axes) > 1:
                dims = tuple([a for a in want if a in v.axes])
                if len(dims) == len(v.axes):
                    wanted[v] = dims
    return wanted


def _largest(step: Step, chosen: dict[Value, Dims], want: Dims | None) -> Dims:
    """Returns the order of the operand with most axes, then the others' further axes."""
    axes = set(step.results[0].axes)
    dims: Dims = ()
    for v in sorted(step.inputs, key=lambda v: -len(v.axes)):
        dims += tuple([a for a in chosen[v] if a in axes and a not in dims])
        if len(dims) == len(axes):
            break
    return dims + tuple([a for a in step.results[0].axes if a not in dims])


@DIMS.of("contract")
def _contract(step: Step, chosen: dict[Value, Dims], want: Dims | None) -> Dims:
    """Returns shared axes, then those of one operand, then those of the other: in the preferred order where that is possible."""
    x, y = (chosen[v] for v in step.inputs)
    over = step.attrs["over"]
    shared = [a for a in x if a in y and a not in over]
    rows = [a for a in x if a not in y and a not in over]
    columns = [a for a in y if a not in x and a not in over]
    for first, second in ((rows, columns), (columns, rows)):
        if want is not None and set(want[: len(shared)]) == set(shared) and want[len(shared) :] == (*first, *second):
            return want
    return (*shared, *rows, *columns)


@DIMS.of("convolve")
def _convolve(step: Step, chosen: dict[Value, Dims], want: Dims | None) -> Dims:
    """Returns batch, groups, axes that only the filter has, then spatial axes."""
    over, spatial = step.attrs["over"], step.attrs["spatial"]
    x, f = ([a for a in v.axes if a not in over and a not in [s[k] for s in spatial]] for k, v in enumerate(step.inputs))
    return (*[a for a in x if a not in f], *[a for a in x if a in f], *[a for a in f if a not in x], *[s[2] for s in spatial])


@DIMS.of("gather")
def _gather(step: Step, chosen: dict[Value, Dims], want: Dims | None) -> Dims:
    """Returns the dims of the indices, then the rest of x."""
    dims = tuple(dict.fromkeys(a for v in step.inputs[1:] for a in chosen[v]))
    return (*dims, *[a for a in chosen[step.inputs[0]] if a not in step.attrs["axes"] and a not in dims])


@DIMS.of("rename")
def _rename(step: Step, chosen: dict[Value, Dims], want: Dims | None) -> Dims:
    new = dict(step.attrs["to"])
    return tuple([new.get(a, a) for a in chosen[step.inputs[0]]])


@DIMS.of("constant", "reindex")
def _declared(step: Step, chosen: dict[Value, Dims], want: Dims | None) -> Dims:
    return tuple(step.results[0].axes)
