"""Collectives: core ops over several processes, executed in the same order on each. On one process each is the identity.

`group` names the participating processes; "" stands for all. Every transformer here is one process; one that exchanges data is not there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ngraph.errors import ArgumentError, AxisError, DTypeError
from ngraph.op_graph.arguments import one_of
from ngraph.op_graph.axes import Axis, as_axis
from ngraph.op_graph.dtypes import computes
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import Call, OpDef, find_axis, op
from ngraph.ops.aligned import axes_like
from ngraph.ops.elementwise import ALL, as_op, cast, equal

REDUCTIONS = ("add", "max", "min")


def _numbers(name: str, x: TensorType, kind: str) -> None:
    one_of(name, "kind", kind, REDUCTIONS)
    computes(f"{name} {kind}", x.dtype)
    if x.dtype.kind == "bool" and kind == "add":
        raise DTypeError(f"{name} add of bool", fix="cast to an integer first: ng.cast(x, 'int32')")


def _all_reduce_type(inputs: tuple[TensorType, ...], kind: str, group: str) -> TensorType:
    _numbers("all_reduce", inputs[0], kind)
    return inputs[0]


def _exchanged(name: str, x: TensorType, axis: Any, out: Any) -> TensorType:
    """Returns the type with `out` in place of `axis`."""
    axes = [out if a == axis else a for a in x.axes]
    if axis not in x.axes or len(set(axes)) != len(axes):
        raise AxisError(f"{name} along {axis} to {out}: x has {list(x.axes)}", fix="name an axis of x, and a new one or the same")
    return TensorType(axes_like(x.axes, axes), x.dtype)


def _reduce_scatter_type(inputs: tuple[TensorType, ...], kind: str, axis: Any, out: Any, group: str) -> TensorType:
    _numbers("reduce_scatter", inputs[0], kind)
    return _exchanged("reduce_scatter", inputs[0], axis, out)


def _shared(dy: Op, x: Op, best: Op, group: str) -> Op:
    """Returns the gradient of a maximum or minimum over processes: ties share it equally, on whichever process they are."""
    mine = cast(equal(x, best), x.dtype)
    return dy * mine / all_reduce_record.build(mine, kind="add", group=group)


def _all_reduce_gradient(op: Op, dy: Op, x: Op) -> Op:
    total = all_reduce_record.build(dy, kind="add", group=op.attrs["group"])
    return total if op.attrs["kind"] == "add" else _shared(total, x, op, op.attrs["group"])


def _reduce_scatter_gradient(op: Op, dy: Op, x: Op) -> Op:
    kind, axis, out, group = (op.attrs[name] for name in ("kind", "axis", "out", "group"))

    def whole(t: Op) -> Op:
        return all_gather_record.build(t, axis=out, out=axis, group=group)

    return whole(dy) if kind == "add" else _shared(whole(dy), x, whole(op), group)


def _kinds(s: Any) -> tuple[str, ...]:
    return REDUCTIONS[1:] if s.kind == "bool" else REDUCTIONS


def _along(s: Any) -> list[tuple[Op, Axis, Axis]]:
    """Returns x, an axis of it, and the result's axis: of equal length, since there is one process."""
    return [
        (s.x(s.I, s.J), s.J, s.J),
        (s.x(s.J, s.I), s.I, s.axis(3, name="R")),
        (s.x(s.I, s.I - 1), s.I - 1, s.I - 1),
        (s.x(s.Z, s.J), s.Z, s.axis(0, name="R")),
        (s.x(s.O), s.O, s.O),
        (s.special(s.N), s.N, s.axis(5, name="R")),
    ]


def _same(call: Call, x: np.ndarray) -> np.ndarray:
    assert x.shape == call.shape(call.axes), "one process holds all of it"
    return x


all_reduce_record: OpDef = op(
    "all_reduce",
    "The sum, largest or smallest of x over the processes of a group, on each of them; identity on one.",
    type=_all_reduce_type,
    reference=_same,
    grad=_all_reduce_gradient,
    samples=lambda s: [
        *(all_reduce_record.build(s.x(*axes), kind=kind, group="") for kind in _kinds(s) for axes in s.shapes()),
        *(all_reduce_record.build(s.special(s.N), kind=kind, group="") for kind in _kinds(s)),
    ],
    kinds=ALL,
    attrs={"processes": "all of a group"},
    form="(x; kind, group)",
)
all_gather_record: OpDef = op(
    "all_gather",
    "The processes' x one after another along `out`, which stands in place of `axis`, on each of them; identity on one.",
    type=lambda inputs, axis, out, group: _exchanged("all_gather", inputs[0], axis, out),
    reference=_same,
    grad=lambda op, dy, x: reduce_scatter_record.build(dy, kind="add", axis=op.attrs["out"], out=op.attrs["axis"], group=op.attrs["group"]),
    samples=lambda s: [all_gather_record.build(x, axis=axis, out=out, group="") for x, axis, out in _along(s)],
    kinds=ALL,
    attrs={"processes": "all of a group"},
    form="(x; axis, out, group)",
)
reduce_scatter_record: OpDef = op(
    "reduce_scatter",
    "The sum, largest or smallest of x over processes, of which each keeps its own part of `axis` as `out`; identity on one.",
    type=_reduce_scatter_type,
    reference=_same,
    grad=_reduce_scatter_gradient,
    samples=lambda s: [
        reduce_scatter_record.build(x, kind=kind, axis=axis, out=out, group="") for kind in _kinds(s) for x, axis, out in _along(s)
    ],
    kinds=ALL,
    attrs={"processes": "all of a group"},
    form="(x; kind, axis, out, group)",
)
broadcast_from_record: OpDef = op(
    "broadcast_from",
    "The x of one process, `root`, on all of the group; identity on one.",
    type=lambda inputs, root, group: inputs[0],
    reference=_same,
    grad=lambda op, dy, x: all_reduce_record.build(dy, kind="add", group=op.attrs["group"]),
    samples=lambda s: s.unary(lambda x: broadcast_from_record.build(x, root=0, group="")),
    kinds=ALL,
    attrs={"processes": "all of a group"},
    form="(x; root, group)",
)


def all_reduce(x: Any, kind: str = "add", group: str = "") -> Op:
    """Returns the sum (`add`), maximum (`max`) or minimum (`min`) of `x` over the processes. Raises DTypeError for sums of bool.

    The package's transformers run in one process each, also under `mpirun`: nothing is exchanged.

    >>> ng.all_reduce(ng.placeholder("N=2 H=3 W=4"), "add").axes
    Axes(N=2, H=3, W=4)
    """
    return all_reduce_record.build(as_op(x), kind=kind, group=group)


def all_gather(x: Any, axis: Axis | str, out: Axis | str | None = None, group: str = "") -> Op:
    """Returns the processes' parts along `axis`, concatenated along `out` (by default `axis`). Raises AxisError.

    The package's transformers run in one process each, also under `mpirun`: nothing is exchanged.

    >>> ng.all_gather(ng.placeholder("N=2 H=3 W=4"), "H").axes
    Axes(N=2, H=3, W=4)
    """
    x = as_op(x)
    mine = find_axis(x, axis, "all_gather")
    return all_gather_record.build(x, axis=mine, out=mine if out is None else as_axis(out), group=group)


def reduce_scatter(x: Any, axis: Axis | str, out: Axis | str | None = None, kind: str = "add", group: str = "") -> Op:
    """Returns this process' part of `all_reduce`: `axis` shortened to `out` (by default `axis`). Raises AxisError, DTypeError.

    The package's transformers run in one process each, also under `mpirun`: nothing is exchanged.

    >>> ng.reduce_scatter(ng.placeholder("N=2 H=3 W=4"), "H").axes
    Axes(N=2, H=3, W=4)
    """
    x = as_op(x)
    mine = find_axis(x, axis, "reduce_scatter")
    return reduce_scatter_record.build(x, kind=kind, axis=mine, out=mine if out is None else as_axis(out), group=group)


def broadcast_from(x: Any, root: int = 0, group: str = "") -> Op:
    """Returns `x` of process `root` on every process; its derivative is the sum over all. Raises ArgumentError for a negative root.

    The package's transformers run in one process each, also under `mpirun`: nothing is exchanged.

    >>> ng.broadcast_from(ng.placeholder("N=2 H=3 W=4"), root=0).axes
    Axes(N=2, H=3, W=4)
    """
    if root < 0:
        raise ArgumentError(f"broadcast_from takes the number of a process as root, not {root}", fix="count from 0: root=0")
    return broadcast_from_record.build(as_op(x), root=int(root), group=group)
