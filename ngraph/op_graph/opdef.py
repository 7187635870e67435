"""OpDef: the one record of all the compiler knows about an op, and the registry of records.

Calling a record makes an op: `tanh(x)`. Other rooms read the record's fields; any package may add attributes of its own:
`tanh.attrs["my_cost"] = 4`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from inspect import Parameter
from typing import Any

from ngraph.errors import ArgumentTypeError, AxisError, nearest, show_line
from ngraph.op_graph.arguments import UNSAID, shown, told
from ngraph.op_graph.axes import Axes, Axis, Clash, joined_axis, show_axes, show_made
from ngraph.op_graph.op import Op, TensorType
from ngraph.parts.registry import HOME, Column, Fact, Registry

OPS = Registry("op")  # facts beside the records, declared by the rooms that read them
ELEMENTWISE: Column[bool] = OPS.column("elementwise", bool, False, "whether an element of the result follows from those at its place")
COST: Column[int] = OPS.column("cost", int, 1, "vector instructions that one element of the result takes, of an elementwise op")
ONNX: Column[str] = OPS.column("onnx", str, "", "the op of ONNX that means the same")
TORCH: Column[str] = OPS.column("torch", str, "", "the op of PyTorch that means the same")
TENSORFLOW: Column[str] = OPS.column("tensorflow", str, "", "the op of TensorFlow that means the same")

Types = tuple[Any, ...]


@dataclass(eq=False)
class OpDef:
    """All that the compiler knows about one op.

    doc, form   the meaning; the signature, `(x, i…; axes, mode) → int32`: inputs, attributes, dtypes that differ from the first input's
    type        (types of the inputs, **attrs) -> TensorType, a tuple of them, or None. Works on `Axis` and on a program's ids alike
    reference   (call, *arrays) -> array(s): the meaning, in NumPy as plain as possible. `call`: see `Call`
    samples     (source) -> ops on which every generated test runs. `source` makes inputs (`ngraph.testing.samples`)
    prepare     (inputs, attrs) -> inputs, attrs: conversions of what the user passed (numbers, promotion)
    grad        (op, dy, *inputs) -> one contribution per input, None where there is none
    lower       (op, *inputs) -> the same in smaller ops. None: a core op, or a leaf or effect that lowering handles
    kinds       element kinds of the inputs under test
    ulp, error  the tolerance for transformers: units in the last place, or absolute
    smooth      whether the gradient exists everywhere, so that second derivatives may be tested
    """

    name: str
    doc: str
    type: Callable[..., Any]
    reference: Callable[..., Any] | None = None
    samples: Callable[[Any], Iterable[Any]] | None = None
    prepare: Callable[..., Any] | None = None
    grad: Callable[..., Any] | None = None
    lower: Callable[..., Any] | None = None
    core: bool = True
    form: str = ""
    kinds: tuple[str, ...] = ("float",)
    ulp: float = 4
    error: float = 0.0
    smooth: bool = True
    attrs: dict[str, Any] = field(default_factory=dict)

    def __call__(self, *inputs: Any, **attrs: Any) -> Op:
        """Returns the op of this record over these inputs. Raises AxisError that names every conflict, DTypeError."""
        try:
            if self.prepare is not None:
                prepared, options = self.prepare(inputs, attrs)
                return self.build(*prepared, **options)
            return self.build(*inputs, **attrs)
        except Exception as error:
            stranger = next((i for i in inputs if not isinstance(i, Op)), None)
            if self.prepare is None and stranger is not None:
                raise ArgumentTypeError(f"{self.name}: {shown(stranger)} is no op", fix="make one of it: ng.as_op(x)") from None
            said = told(self.name, self.parameters, inputs, attrs, error)
            if said is None:
                raise
            raise said from None

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters of a call, by the record's `form`: inputs by position, attributes by name."""
        if not self.form:
            return {"inputs": Parameter("inputs", Parameter.VAR_POSITIONAL), "attributes": Parameter("attributes", Parameter.VAR_KEYWORD)}
        inputs, _, options = self.form[1 : self.form.index(")")].partition(";")
        found = []
        several = "…" in inputs
        for name in ["inputs"] if several else filter(None, map(str.strip, inputs.split(","))):
            found.append(Parameter(name, Parameter.VAR_POSITIONAL if several else Parameter.POSITIONAL_ONLY))
        for name in filter(None, map(str.strip, options.split(","))):
            found.append(Parameter(name, Parameter.KEYWORD_ONLY, default=UNSAID))
        return {p.name: p for p in found}

    def build(self, *inputs: Op, **attrs: Any) -> Op:
        """Returns the op over inputs as they are: no number is converted, no dtype promoted."""
        try:
            result = self.type(tuple([i.type for i in inputs]), **attrs)
        except Clash as clash:
            raise _conflict(self, inputs, clash) from None
        if type(result) is TensorType:
            if type(result.axes) is not Axes:
                result = TensorType(Axes(result.axes), result.dtype)
        elif result is not None:
            result = tuple([TensorType(Axes(t.axes), t.dtype) for t in result])
        return Op(self, inputs, attrs, result)

    def __reduce__(self) -> Any:
        if REGISTRY.get(self.name) is not self:
            return super().__reduce__()
        return _registered, (self.name,)  # a copy, in this process or another, is the one record of this name

    def __repr__(self) -> str:
        return f"<op record {self.name}>"


@dataclass
class Call:
    """The arguments of a reference beside the arrays: attributes, the types of inputs and results, and the length of each axis."""

    attrs: dict[str, Any]
    inputs: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    length: Callable[[Any], int]
    run_program: Callable[..., Any] | None = None  # runs a body, for the references of scan, while, cond

    @property
    def axes(self) -> tuple[Any, ...]:
        return self.results[0].axes

    @property
    def dtype(self) -> Any:
        return self.results[0].dtype

    def shape(self, axes: Iterable[Any]) -> tuple[int, ...]:
        return tuple(self.length(a) for a in axes)


REGISTRY: dict[str, OpDef] = {}
FIELDS = tuple(f.name for f in fields(OpDef))


def find(name: str) -> OpDef | None:
    """Returns the record of this name, or None; ngraph's own records are imported first if they are not yet."""
    if name not in REGISTRY:
        OPS.load()
    return REGISTRY.get(name)


def _registered(name: str) -> OpDef:
    record = find(name)
    if record is None:
        raise KeyError(f"there is no op record {name!r} in this process")
    return record


def register(record: OpDef, **facts: Any) -> OpDef:
    """Adds a record to the registry, from here or from another package, and its facts to the columns of `OPS`.

    The name must be unused. A record with `lower` is no core op. Raises ValueError.
    """
    if record.name in REGISTRY:
        raise ValueError(f"an op record {record.name!r} is registered already")
    misspelt = {f: meant for f in facts if f not in OPS.columns and (meant := nearest(f, [*FIELDS, *OPS.columns]))}
    if misspelt:
        raise ValueError(f"op {record.name}: {', '.join(f'{f} is no fact; did you mean {meant}?' for f, meant in misspelt.items())}")
    if record.lower is not None:
        record.core = False
    OPS.fill(record.name, **facts)
    REGISTRY[record.name] = record
    return record


_own: dict[OpDef, tuple[Any, Any]] = {}


def seal() -> None:
    """Marks the present records as ngraph's own; called once all of these are registered."""
    _own.update({r: (r.type, r.lower) for r in REGISTRY.values()})


def as_sealed(records: Iterable[OpDef]) -> bool:
    """Whether all of these are ngraph's own, and none of ngraph's own was changed since."""
    return all(r in _own for r in records) and all(r.type is t and r.lower is lower for r, (t, lower) in _own.items())


def foreign() -> list[Fact]:
    """Returns the facts that files outside of this package have filled in."""
    return [fact for fact in OPS if not fact.where.startswith(HOME)]


def op(name: str, doc: str, **said: Any) -> OpDef:
    """Returns a new, registered record: `softplus = op("softplus", "log(1 + e to the x).", type=..., lower=...)`.

    A keyword that is no field of the record is a fact in the column of that name: `onnx="Softplus"`.
    """
    own = {f: value for f, value in said.items() if f in FIELDS}
    return register(OpDef(name, doc, **own), **{f: value for f, value in said.items() if f not in FIELDS})


def core_ops() -> list[OpDef]:
    """Returns the core ops, in the order of their records."""
    return [r for r in REGISTRY.values() if r.core]


def show_input(i: Op) -> str:
    """Returns one input as errors print it: name, axes, and the line that made it."""
    axes = show_axes(i.type.axes) if type(i.type) is TensorType else "no tensor"
    return f"{i.label}: {axes}   written at {show_line(i.line)}"


def find_axis(x: Op, axis: Axis | str, name: str) -> Axis:
    """Returns the axis of `x` that `axis`, an Axis or a name, denotes, with its length in `x`. Raises AxisError."""
    found: list[Axis]
    if isinstance(axis, str):
        calls = (
            [a.label for a in x.axes],
            [f"{a.short_name}{a.mark}" for a in x.axes],
            [a.name for a in x.axes],
            [a.short_name for a in x.axes],
        )
        names = next((c for c in calls if axis in c), [])  # exact names first
        found = [a for a, n in zip(x.axes, names, strict=False) if n == axis]
    else:
        found = [a for a in x.axes if a == axis]
    if len(found) != 1:
        said = axis if isinstance(axis, str) else getattr(axis, "label", repr(axis))
        which = "stands for several axes" if found else "is no axis"
        raise AxisError(f"{name}({x.label}): {said} {which} of {x.label}", details=(show_input(x),), fix=_axes_to_name(x, said))
    return found[0]


def _axes_to_name(x: Op, said: str) -> str:
    if not x.axes:
        return f"{x.label} is one number, and has no axis to name"
    meant = nearest(said, [a.name for a in x.axes])
    return f"name one of {show_axes(x.axes)}" + (f", as {meant}" if meant else "")


def own_axes(x: Op, axes: Any, name: str) -> Axes:
    """Returns the axes of `x` that these denote, each an Axis or a name. Raises AxisError for one that `x` lacks."""
    several = (axes,) if isinstance(axes, (Axis, str)) or not hasattr(axes, "__iter__") else axes
    return Axes(find_axis(x, joined_axis(Axes(a)) if isinstance(a, (list, tuple)) else a, name) for a in several)


def _conflict(record: OpDef, inputs: tuple[Op, ...], clash: Clash) -> AxisError:
    """Returns the error with every pair of axes that disagrees, both inputs, and the fix."""
    what = []
    for a, b in clash.pairs:
        where = {}
        for axis in (a, b):
            holder = next((i.label for i in inputs if type(i.type) is TensorType and any(x is axis for x in i.type.axes)), record.name)
            where[axis is b] = holder
        if a.length != b.length:
            what.append(f"axis {a.label} has length {a.length} in {where[False]} and {b.length} in {where[True]}")
        else:
            flags = [f for f in ("batch", "recurrent") if getattr(a, f"is_{f}") != getattr(b, f"is_{f}")]
            what.append(f"axis {a.label} is a {' and '.join(flags)} axis in only one of {where[False]} and {where[True]}")
    labels = ", ".join(i.label for i in inputs)
    a, b = clash.pairs[0]
    return AxisError(
        f"{record.name}({labels}): {'; '.join(what)}",
        details=(*(show_input(i) for i in inputs), *(show_made(x) for x in (a, b))),
        fix=f"give them one axis, or rename one: ng.map_roles(x, {{{a.label!r}: '{a.short_name}2'}})",
    )
