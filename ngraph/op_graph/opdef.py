"""OpDef: the one record of all the compiler knows about an op, and the registry of records.

Calling a record makes an op: `tanh(x)`. Other rooms read the record's fields; any package may add attributes of its own:
`tanh.attrs["my_cost"] = 4`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from inspect import Parameter, Signature
from types import FrameType, FunctionType
from typing import Any

import numpy as np

from ngraph.errors import ArgumentTypeError, AxisError, nearest, show_line
from ngraph.op_graph.arguments import UNSAID, shown, told
from ngraph.op_graph.axes import Axes, Axis, Clash, joined_axis, show_axes, show_made, words
from ngraph.op_graph.op import Op, TensorType
from ngraph.parts.registry import HOME, Column, Fact, Registry

OPS = Registry("op")  # facts beside the records, declared by the rooms that read them
ELEMENTWISE: Column[bool] = OPS.column("elementwise", bool, False, "whether an element of the result follows from those at its place")
COST: Column[int] = OPS.column("cost", int, 1, "vector instructions that one element of the result takes, of an elementwise op")
ONNX: Column[str] = OPS.column("onnx", str, "", "the op of ONNX that means the same")
TORCH: Column[str] = OPS.column("torch", str, "", "the op of PyTorch that means the same")
LIBRARY: Column[str] = OPS.column("library", str, "", "the library that computes it on the host, of an op without machine code")
NUMPY: Column[Any] = OPS.column(
    "numpy", (str, FunctionType), "", "an elementwise op in NumPy: `np.tanh`, the name of one of `numpy_functions`, or a function of arrays"
)
EXAMPLE: Column[str] = OPS.column("example", str, "", "a call and what it prints, for help; elementwise ops have one without")
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
    where       file and line of the record, filled in when it is registered
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
    where: str = ""

    def __call__(self, *inputs: Any, **attrs: Any) -> Op:
        """Returns the op of this record over these inputs. Raises AxisError that names every conflict, DTypeError."""
        if attrs:
            inputs, attrs = self._by_place(inputs, attrs)
        try:
            if self.prepare is not None:
                prepared, options = self.prepare(inputs, attrs)
                return self.build(*prepared, **options)
            return self.build(*inputs, **attrs)
        except Exception as error:
            stranger = next((i for i in inputs if not isinstance(i, Op)), None)
            if self.prepare is None and stranger is not None:
                raise ArgumentTypeError(f"{self.name}: {shown(stranger)} is not an op", fix="make one of it: ng.as_op(x)") from None
            said = told(self.name, self.parameters, inputs, attrs, error)
            if said is None:
                raise
            raise said from None

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters of a call, by the record's `form`: inputs by position or name, attributes by name."""
        if not self.form:
            return {"inputs": Parameter("inputs", Parameter.VAR_POSITIONAL), "attributes": Parameter("attributes", Parameter.VAR_KEYWORD)}
        inputs, _, options = self.form[1 : self.form.index(")")].partition(";")
        if "…" in inputs:
            found = [Parameter("inputs", Parameter.VAR_POSITIONAL)]
        else:
            found = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in _input_names(self.form)]
        for name in filter(None, map(str.strip, options.split(","))):
            found.append(Parameter(name, Parameter.KEYWORD_ONLY, default=UNSAID))
        return {p.name: p for p in found}

    def _by_place(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the same call with the inputs that were passed by name in their places; as it is if one of them is missing."""
        names = _input_names(self.form)[len(inputs) :]
        if not names or not attrs.keys() >= {*names}:
            return inputs, attrs
        return (*inputs, *[attrs[n] for n in names]), {n: v for n, v in attrs.items() if n not in names}

    @property
    def __signature__(self) -> Signature:
        """The signature of a call, for `inspect.signature` and completion."""
        return Signature(list(self.parameters.values()))

    def build(self, *inputs: Op, **attrs: Any) -> Op:
        """Returns the op over inputs as they are: no dtype is promoted; attributes that are numbers of NumPy become those of Python."""
        if any(isinstance(a, np.generic) for a in attrs.values()):
            attrs = {k: a.item() if isinstance(a, np.generic) else a for k, a in attrs.items()}
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


class _Doc:
    """The docstring of the class for the class, and the help of a record for the record."""

    def __init__(self, text: str):
        self.text = text

    def __get__(self, record: OpDef | None, owner: Any = None) -> str:
        return self.text if record is None else help_of(record)


OpDef.__doc__ = _Doc(OpDef.__doc__ or "")  # type: ignore[assignment]  # a descriptor, so that help(ng.exp) is about exp


@cache
def _input_names(form: str) -> tuple[str, ...]:
    """Returns the names of the inputs in a record's form; none where their number differs between calls."""
    inputs = form[1 : form.find(")")].partition(";")[0]
    return () if "…" in inputs else tuple(filter(None, map(str.strip, inputs.split(","))))


def public_name(record: OpDef) -> str:
    """Returns the name by which users call a record: `ng.absolute` for the record abs; its own name where it is not public."""
    api = sys.modules.get("ngraph.api")
    names = [n for n in getattr(api, "__all__", ()) if vars(api).get(n) is record]
    return f"ng.{record.name if record.name in names else names[0]}" if names else record.name


def help_of(record: OpDef) -> str:
    """Returns the help of an op: its call, meaning, element types, axes, gradient, errors, an example that runs, and the source."""
    name, inputs = public_name(record), [p for p in record.parameters.values() if p.kind is not Parameter.KEYWORD_ONLY]
    dtypes = ", ".join(record.kinds) + ("; integers and bool become float32" if record.kinds == ("float",) else "")
    axes = "matched by name; the result has those of all operands" if len(inputs) > 1 else "those of x"
    said = {
        "kinds of elements": dtypes,
        "axes": axes if ELEMENTWISE[record.name] else "",
        "gradient": "yes" if record.grad is not None else "of the ops that it is made of" if record.lower is not None else "none",
        "raises": "DTypeError for other elements" + ("; AxisError where lengths disagree" if len(inputs) > 1 else ""),
        "elsewhere": ", ".join(f"{w} {c[record.name]}" for w, c in (("ONNX", ONNX), ("PyTorch", TORCH)) if c[record.name]),
        "source": record.where.removeprefix(HOME.removesuffix(os.path.join("ngraph", ""))),
    }
    facts = "\n".join(f"{what}: {fact}" for what, fact in said.items() if fact)
    example = EXAMPLE[record.name] or _example(record, name, len(inputs))
    return "\n\n".join(filter(None, (f"{name}{Signature(list(record.parameters.values()))}", record.doc, facts, example)))


def _example(record: OpDef, name: str, count: int) -> str:
    """Returns a call of an elementwise op with its result; "" for other ops."""
    if not ELEMENTWISE[record.name] or not name.startswith("ng.") or record.form.partition(")")[0].find(";") >= 0:
        return ""
    operands = [f"ng.placeholder({axes!r})" for axes in ("H=3", "W=2", "H=3")][:count]
    bool_first = " > 0" if record.kinds == ("bool",) or record.form.startswith("(c") else ""
    given = ", ".join([operands[0] + bool_first, *operands[1:]])
    axes = "H=3, W=2" if count > 1 else "H=3"
    if record.form.startswith("(c"):
        axes = "W=2, H=3"
    return f">>> {name}({given}).axes\nAxes({axes})"


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


def _module_line() -> str:
    """Returns `file:line` of the statement of a module that is being executed; "" outside of one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


@cache
def _meant(fact: str, columns: int) -> str | None:
    """Returns the field or column that a misspelt fact probably means; `columns`: how many of these there are, they only become more."""
    return nearest(fact, [*FIELDS, *OPS.columns])


def register(record: OpDef, **facts: Any) -> OpDef:
    """Adds a record to the registry, from here or from another package, and its facts to the columns of `OPS`.

    The name must be unused. A record with `lower` is not a core op. Raises ValueError.
    """
    if record.name in REGISTRY:
        raise ValueError(f"an op record {record.name!r} is registered already")
    where = record.where or _module_line()
    unknown = [] if where.startswith(HOME) else [f for f in facts if f not in OPS.columns]  # rooms that are not loaded declare some, too
    misspelt = {f: meant for f in unknown if (meant := _meant(f, len(OPS.columns)))}
    if misspelt:
        raise ValueError(f"op {record.name}: {', '.join(f'{f} is not a fact; did you mean {meant}?' for f, meant in misspelt.items())}")
    if record.lower is not None:
        record.core = False
    record.where = where
    OPS.fill(record.name, **facts)
    REGISTRY[record.name] = record
    return record


_own: dict[OpDef, tuple[Any, Any]] = {}


def seal() -> None:
    """Marks the present records as ngraph's own; called once all of these are registered."""
    _own.update({r: (r.type, r.lower) for r in REGISTRY.values()})


def as_sealed(records: Iterable[OpDef]) -> bool:
    """Whether all of these are ngraph's own, and none of ngraph's own was changed since."""
    changed = [r for r, (t, lower) in _own.items() if r.type is not t or r.lower is not lower]
    return not changed and _own.keys() >= set(records)


def foreign() -> list[Fact]:
    """Returns the facts that files outside of this package have filled in."""
    return [fact for fact in OPS if not fact.where.startswith(HOME)]


def op(name: str, doc: str, **said: Any) -> OpDef:
    """Returns a new, registered record: `softplus = op("softplus", "log(1 + e to the x).", type=..., lower=...)`.

    A keyword that is not a field of the record is a fact in the column of that name: `onnx="Softplus"`.
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


def _denoted(axes: Sequence[Axis], axis: Axis | str) -> list[Axis]:
    """Returns those of `axes` that an Axis equals, or that a name denotes: exact names first, then last components."""
    if not isinstance(axis, str):
        return [a for a in axes if a == axis]
    for calls in (lambda a: a.label, lambda a: f"{a.short_name}{a.mark}", lambda a: a.name, lambda a: a.short_name):
        found = [a for a in axes if calls(a) == axis]
        if found:
            return found
    return []


def _axes_among(operands: Sequence[Op]) -> tuple[Axis, ...]:
    return operands[0].axes if len(operands) == 1 else tuple(dict.fromkeys([a for x in operands for a in x.axes]))


def _several(x: Op | Sequence[Op]) -> Sequence[Op]:
    return (x,) if isinstance(x, Op) else x


def find_axis(x: Op | Sequence[Op], axis: Axis | str, name: str) -> Axis:
    """Returns the axis among those of the operands that `axis` denotes, an Axis or a name, with its length there.

    x: one operand, or several. A name may leave out its scope; `H'` is the dual. Raises AxisError, in which `name` stands for the
    function, for an axis that no operand has: it lists those there are, with the nearest.
    """
    operands = _several(x)
    return _denoted_axis(operands, _axes_among(operands), axis, name)


def _denoted_axis(operands: Sequence[Op], among: Sequence[Axis], axis: Axis | str, name: str) -> Axis:
    """Returns what `find_axis` does; `among`: the axes of the operands."""
    if isinstance(axis, (list, tuple)) and len(axis) == 1:
        (axis,) = axis
    found = _denoted(among, axis)
    if len(found) != 1:
        said = axis if isinstance(axis, str) else getattr(axis, "label", repr(axis))
        which = "stands for several axes" if found else "is not an axis"
        whose = " or ".join(dict.fromkeys(o.label for o in operands))
        raise AxisError(
            f"{name}({', '.join(o.label for o in operands)}): {said} {which} of {whose}",
            details=tuple(show_input(o) for o in operands),
            fix=_axes_to_name(among, whose, said),
        )
    return found[0]


def _axes_to_name(among: Sequence[Axis], whose: str, said: str) -> str:
    if not among:
        return f"{whose} is one number, and has no axis to name"
    labels = [a.label for a in among]
    near = [n for n in labels if n.lower().startswith(said.lower()) or said.lower().startswith(n.lower())]  # `h` or `Height` for `H`
    meant = nearest(said, labels) or (near[0] if len(near) == 1 else None)
    return f"name one of {show_axes(among)}" + (f", as {meant}" if meant else "")


def _listed(axes: Any, among: Sequence[Axis]) -> Iterable[Any]:
    """Returns the axes or names that the user listed; a text lists several, unless it is the name of one."""
    if isinstance(axes, str):
        return [axes] if _denoted(among, axes) else words(axes)
    return (axes,) if isinstance(axes, Axis) or not hasattr(axes, "__iter__") else axes


def own_axes(x: Op | Sequence[Op], axes: Any, name: str) -> Axes:
    """Returns the axes of the operands that these denote: axes, names, a list of them, or text that lists them as in `"H W"`.

    A nested list denotes the axis that joins its axes. Raises AxisError as `find_axis` does.
    """
    operands = _several(x)
    among = _axes_among(operands)

    def one(a: Any) -> Axis:
        return _denoted_axis(operands, among, joined_axis(own_axes(x, a, name)) if isinstance(a, (list, tuple)) else a, name)

    return Axes([one(a) for a in _listed(axes, among)])


def own_or_new_axes(x: Op | Sequence[Op], axes: Any) -> Axes:
    """Returns axes of which names denote those of the operands; other text is as in `ng.axes`, such as `"K=5"` for a new one."""
    among = _axes_among(_several(x))

    def one(a: Any) -> Any:
        found = _denoted(among, a) if isinstance(a, str) else ()
        return found[0] if len(found) == 1 else a

    return Axes([one(a) for a in _listed(axes, among)]) if isinstance(axes, (str, list, tuple)) else Axes(axes)


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
