"""Axes: names, dual levels and lengths that may come later. An axis has no position; only a buffer gives it one.

    >>> C = make_axis(4, name="C")
    >>> C, C - 1, (C - 1) + 1 == C
    (C=4, C'=4, True)
    >>> Axes([C]) + Axes([make_axis(2, name="H")])
    Axes(C=4, H=2)

Two axes are equal when name and dual level are; lengths are compared where two tensors meet (`merge`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from ngraph.errors import ArgumentTypeError, AxisError, DuplicateAxisNames, IncompatibleAxesError, Line, show_line, user_line
from ngraph.op_graph import expr
from ngraph.op_graph.expr import Expr, ExprLike, Len, Run
from ngraph.op_graph.html import table
from ngraph.op_graph.names import called, current_scope
from ngraph.parts.walk import closure

_fresh = itertools.count()
_in_use: WeakValueDictionary[tuple[str, str], Axis] = WeakValueDictionary()  # (scope, name) -> the last that text made, while it lives


class Family:
    """The properties that an axis shares with its duals: name, length, flags, and the line that made it."""

    __slots__ = ("name", "length", "flags", "roles", "parts", "line", "members", "doc", "met")

    def __init__(self, name: str, length: ExprLike | None, flags: dict[str, bool | None], roles: frozenset[str], doc: str | None):
        self.name, self.length, self.flags, self.roles, self.doc = name, expr.plain(length), flags, roles, doc
        self.parts: tuple[Axis, ...] | None = None  # the axes that `flatten` joined into this one
        self.line: Line | None = user_line()
        self.members: dict[int, Axis] = {}
        self.met: list[Family] = []  # those of the same name unified with this at an index, one of the two without a length

    def found_length(self) -> ExprLike | None:
        """Returns the length; where it has none, the one known length among all families in `met`, directly or indirectly."""
        if self.length is not None or not self.met:
            return self.length
        seen, todo = {self}, [self]
        known: dict[ExprLike, None] = {}
        while todo:
            family = todo.pop()
            if family.length is not None:
                known[family.length] = None
                continue
            for other in family.met:
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        (length, *others) = known or (None,)
        return None if others or length is not None and rests_on(length, seen) else length


def rests_on(length: ExprLike, families: set[Family]) -> bool:
    """Whether a length is computed from that of one of the families, or by ops from values along one of them."""

    def under(family: Family) -> Iterable[Family]:
        return () if family.length is None else _families_in(family.length)

    found: set[Family] = closure(_families_in(length), under)
    return not families.isdisjoint(found)


def _families_in(x: Any) -> Iterator[Family]:
    """Yields the families of the axes in an attribute of an op; of those, too, along which ops compute a number that is in it."""
    if isinstance(x, Axis):
        yield x.family
    elif isinstance(x, Mapping):
        yield from _families_in(tuple(x.values()))
    elif isinstance(x, tuple | list | Axes):
        for part in x:
            yield from _families_in(part)
    elif isinstance(x, Expr):
        for leaf in expr.leaves(x):
            if isinstance(leaf, Len):
                yield leaf.of.family
            elif isinstance(leaf, Run):
                for op in closure([leaf.of], lambda op: op.inputs):
                    yield from _families_in((getattr(op.type, "axes", ()), op.attrs))  # of several results, each `part` has axes


class AxisRole(str):
    """A mark on axes, such as "height": a name with a description. Make one with `make_axis_role`."""

    docstring: str | None = None


def make_axis_role(name: str | None = None, docstring: str | None = None) -> AxisRole:
    """Returns a role for `make_axis(roles=[...])`. A role equals its name: "height" and a role of that name are the same.

    >>> ng.make_axis_role("height") == "height"
    True
    """
    role = AxisRole(f"role_{next(_fresh)}" if name is None else name)
    role.docstring = docstring
    return role


class Axis:
    """A named axis. Make one with `make_axis`; `axis - 1` and `axis + 1` are its duals, `axis.T` the dual that `dot` pairs."""

    __slots__ = ("family", "dual", "__weakref__")

    def __init__(self, length: Family | int | None = None, dual: int = 0, *, name: str | None = None):
        self.family: Family = length if isinstance(length, Family) else make_axis(length, name).family
        self.dual = dual
        self.family.members[dual] = self

    # identity: name and level
    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(other) is Axis and self.dual == other.dual and self.family.name == other.family.name

    def __hash__(self) -> int:
        return hash(self.family.name) ^ self.dual

    @property
    def name(self) -> str:
        return self.family.name

    @name.setter
    def name(self, name: str) -> None:
        self.family.name = name

    @property
    def docstring(self) -> str | None:
        """The description that was given when the axis was made."""
        return self.family.doc

    @property
    def short_name(self) -> str:
        """The last component: `N` of `ax.N`; of a joined axis, the last components of its parts."""
        return "*".join([part.rsplit(".", 1)[-1] for part in self.family.name.split("*")])

    def named(self, name: str) -> Axis:
        self.family.name = name
        called(self, name)
        return self

    # length
    @property
    def length(self) -> int | None:
        """The number of elements, or None while unknown."""
        length = self.family.length
        if length is None or isinstance(length, int):
            return length
        try:
            known = {leaf: _known(leaf) for leaf in expr.leaves(length)}
        except LookupError:
            return None
        return int(expr.evaluate(length, known.__getitem__))

    @length.setter
    def length(self, length: int | None) -> None:
        self.family.length = _checked_length(length)

    @property
    def size(self) -> ExprLike:
        """The length as an expression: a number where it is known, else over `Len` of axes whose length will come."""
        length = self.length
        if length is not None:
            return length
        own = self.family.length
        return Len(self.primary) if own is None else own

    def resized(self, length: ExprLike) -> Axis:
        """Returns an axis of the same name and flags with another length (slice, pad, concat, convolution, pooling)."""
        f, length = self.family, expr.settled(length)
        if length == self.size:
            return self
        return Axis(Family(f.name, length, f.flags, f.roles, f.doc), self.dual)

    # duals
    def _at(self, level: int) -> Axis:
        return self.family.members.get(level) or Axis(self.family, level)

    @property
    def primary(self) -> Axis:
        return self._at(0)

    @property
    def T(self) -> Axis:
        """The dual that `dot` pairs with: level n becomes -1 - n."""
        return self._at(-1 - self.dual)

    def __add__(self, other: Any) -> Any:
        return self._at(self.dual + other) if isinstance(other, int) else Axes([self]) + Axes(other)

    def __sub__(self, other: Any) -> Any:
        return self._at(self.dual - other) if isinstance(other, int) else Axes([self]) - Axes(other)

    def __or__(self, other: Any) -> Axes:
        return Axes([self]) | other

    def __and__(self, other: Any) -> Axes:
        return Axes([self]) & other

    # flags: by argument, else by the last component of the name; a dual has no flags
    def _flag(self, flag: str, name: str) -> bool:
        if self.dual:
            return False
        said = self.family.flags.get(flag)
        return self.short_name == name if said is None else said

    @property
    def is_batch(self) -> bool:
        return self._flag("batch", "N")

    @property
    def is_recurrent(self) -> bool:
        return self._flag("recurrent", "REC")

    @property
    def is_channel(self) -> bool:
        return self._flag("channel", "C") or (not self.dual and "channel" in self.family.roles)

    @property
    def is_flattened(self) -> bool:
        return self.family.parts is not None

    @property
    def roles(self) -> frozenset[str]:
        return frozenset() if self.dual else self.family.roles

    def has_role(self, role: str) -> bool:
        """Whether the axis was made with this role, or its name is the role's."""
        return role in self.roles or (not self.dual and role == self.short_name)

    def add_role(self, role: str) -> None:
        self.family.roles |= {str(role)}

    @property
    def axes(self) -> Axes:
        return Axes([self])

    def __len__(self) -> int:
        length = self.length
        if length is None:
            raise AxisError(f"axis {self.name} has no length yet", fix=f"set it: {self.short_name}.length = ...")
        return length

    def __bool__(self) -> bool:
        return True  # an axis of length 0 is still an axis

    @property
    def label(self) -> str:
        """The name with its level: `H`, `H'` (-1), `H''` (-2), `H+1`."""
        return self.family.name + self.mark

    @property
    def mark(self) -> str:
        """The suffix of a dual's name: `'` for each level below 0, `+1` above."""
        return "'" * -self.dual if self.dual < 0 else f"+{self.dual}" if self.dual else ""

    def __repr__(self) -> str:
        length = self.length
        return f"{self.label}={'?' if length is None else length}"

    def _repr_html_(self) -> str:
        return Axes([self])._repr_html_()

    def _described(self) -> tuple[str, str, str, str]:
        """Name, length, flags and roles, and the line that made it."""
        length = self.length
        flags = [f for f in ("batch", "recurrent", "channel") if getattr(self, f"is_{f}")]
        return self.label, "?" if length is None else str(length), " ".join([*flags, *sorted(self.roles)]), show_line(self.family.line)


def _known(leaf: expr.Leaf) -> int:
    length = leaf.of.length if isinstance(leaf, Len) else None
    if length is None:
        raise LookupError
    return length


def _checked_length(length: Any) -> int | None:
    if length is None:
        return None
    try:
        number = length.__index__()
    except AttributeError:
        raise AxisError(f"an axis length is a whole number, not {length!r}") from None
    if number < 0:
        raise AxisError(f"an axis length cannot be negative: {number}", fix="give a whole number from 0 on, or None if it is set later")
    return number


def make_axis(
    length: int | None = None,
    name: str | None = None,
    batch: bool | None = None,
    recurrent: bool | None = None,
    channel: bool | None = None,
    roles: Iterable[str] | None = None,
    docstring: str | None = None,
    match_on_length: bool = False,
) -> Axis:
    """Returns a new axis.

    length: number of elements; may be set later (`axis.length = 5`, or by the first array that has the axis).
    name: its identity; without one it gets a fresh name, so it equals no other axis.
    batch, recurrent, channel: flags; None derives them from the name (`N`, `REC`, `C`). Reductions keep the batch axis by default.
    roles: further marks that frontends read. docstring: a description. match_on_length: accepted only as False. Axes are equal by name
    and never by length; True raises AxisError, as does a negative length.

    >>> ng.make_axis(3, name="H"), ng.make_axis(name="N").is_batch
    (H=3, True)
    """
    if match_on_length:
        raise AxisError(
            "axes are told apart by name, never by length: there is no match_on_length",
            fix="give both tensors one axis, rename with ng.cast_axes(x, axes), or use the array itself as the operand",
        )
    flags = {"batch": batch, "recurrent": recurrent, "channel": channel}
    if name is None:
        name = f"Axis_{next(_fresh)}"
        return Axis(Family(name, _checked_length(length), flags, frozenset(map(str, roles or ())), docstring))
    made = Axis(Family(str(name), _checked_length(length), flags, frozenset(map(str, roles or ())), docstring))
    called(made, str(name))
    return made


# ---- axes from text ---------------------------------------------------------------------------------------------------

_WORD = re.compile(r"(?P<name>[^\W\d][\w.*/-]*)(?P<mark>'+|\+\d+)?(?:=(?P<length>\?|\d+))?")
_EXAMPLE = 'write names with lengths, as in "N=? H=28 W"'


def words(text: str) -> list[str]:
    """Returns the axes that a text lists, separated by blanks or commas."""
    return text.replace(",", " ").split()


def axis_in_use(name: str) -> Axis | None:
    """Returns the last axis that text made by this name in the open name scope, or in one around it; None where none is in use."""
    scope = current_scope()
    while (found := _in_use.get((scope, name))) is None and scope:
        scope = scope.rpartition("/")[0]
    return found


def axis_of_text(word: str) -> Axis:
    """Returns the axis that a word denotes: `H=28`, of this length; `N=?`, of a length that comes later; `H`, an axis in use.

    With a length it is the axis in use of this name and length, else a new one; `N=?` is always new, and a name that is not in use
    makes such an axis, too. `H'` and `H+1` are duals. Raises AxisError for text of another form.
    """
    match = _WORD.fullmatch(word)
    if match is None:
        parts = word.split()
        raise AxisError(f"{word!r} is not an axis", fix=f"name one axis here, as {parts[0]!r}" if len(parts) > 1 else _EXAMPLE)
    name, mark, length = match["name"], match["mark"] or "", match["length"]
    found = None if length == "?" else axis_in_use(name)
    if found is None or length is not None and found.length != int(length):
        found = make_axis(None if length in (None, "?") else int(length), name)
        _in_use[current_scope(), name] = found
    return found._at(-len(mark) if mark.startswith("'") else int(mark or 0))


def axes(text: Any) -> Axes:
    """Returns the axes that a text names: `N, H, W = ng.axes("N=? H=28 W=28")`; also Axes of all that `make_axes` takes.

    text: names, separated by blanks, each with its length, `?` for one that comes later, or alone for the axis of that name that text
    made and that is in use in this name scope or one around it. A name and length in use give the same axis again. `H'` is a dual.
    Raises AxisError for text of another form, or an axis twice.

    >>> ng.axes("N=? H=28 W=28")
    Axes(N=?, H=28, W=28)
    """
    return Axes(text)


class Clash(Exception):
    """Axes that were unified at one index with different lengths or flags; `pairs` lists both of each. Ops turn it into an AxisError."""

    def __init__(self, pairs: list[tuple[Axis, Axis]]):
        self.pairs = pairs


def _unlike(a: Axis, b: Axis) -> bool:
    la, lb = a.length, b.length
    return (la is not None and lb is not None and la != lb) or (a.is_batch, a.is_recurrent) != (b.is_batch, b.is_recurrent)


def merge(*groups: Iterable[Any]) -> tuple[Any, ...]:
    """Returns the union of axes in order of first appearance; equal axes must agree. Also takes axis ids of a program, which always agree.

    Raises Clash with every pair of axes that disagrees.
    """
    first = groups[0]
    if type(first) is Axes and not [g for g in groups if g is not first]:
        return first
    seen: dict[Any, Any] = {}
    clashes = []
    for group in groups:
        for axis in group:
            other = seen.setdefault(axis, axis)
            if other is not axis and type(axis) is Axis and other.family is not axis.family:
                if _unlike(other, axis):
                    clashes.append((other, axis))
                elif other.family.length is None or axis.family.length is None:
                    other.family.met.append(axis.family)
                    axis.family.met.append(other.family)
    if clashes:
        raise Clash(clashes)
    return tuple(seen)


def joined_axis(parts: Iterable[Axis]) -> Axis:
    """Returns the axis that flattening `parts` gives; equal parts give equal axes. It is not a batch axis, and keeps its parts.

    >>> ng.FlattenedAxis(ng.axes("H=2 W=3")).length
    6
    """
    parts = (parts,) if isinstance(parts, Axis) else Axes(parts) if isinstance(parts, str) else tuple(parts)
    flags: dict[str, bool | None] = dict.fromkeys(("batch", "recurrent", "channel"), False)
    size: ExprLike = 1
    for a in parts:
        size = size * a.size
    family = Family("*".join(a.label for a in parts), size, flags, frozenset(), None)
    family.parts = parts
    return Axis(family)


FlattenedAxis = joined_axis


def _no_axis(x: Any) -> AxisError:
    """Returns the error for a value that stands in place of an axis, such as a length alone."""
    return AxisError(
        f"{x!r} is not an axis", fix=f"make one with ng.make_axis({x if isinstance(x, int) and x >= 0 else 'length'}, name=...)"
    )


def as_axis(x: Any) -> Any:
    """Returns an element of a list of axes: a nested list is joined into one axis, text denotes one."""
    return axis_of_text(x) if isinstance(x, str) else joined_axis(Axes(x)) if isinstance(x, (list, tuple)) else x


def new_axis(x: Any) -> Any:
    """Returns the axis for a result: as `as_axis`, but a name alone is a new axis, whose length the op knows."""
    return axis_of_text(f"{x}=?") if isinstance(x, str) and "=" not in x else as_axis(x)


class Axes(tuple[Axis, ...]):
    """An ordered tuple of distinct axes with set algebra. `+` joins (an overlap is an error), `|` is the union, `-` the
    difference or, with an int, the duals, `&` the intersection, `.T` the duals that `dot` pairs."""

    __slots__ = ()

    def __new__(cls, axes: Any = ()) -> Axes:
        if type(axes) is Axes:
            return axes
        if isinstance(axes, Axis):
            axes = (axes,)
        elif axes is None:
            axes = ()
        elif isinstance(axes, str):
            axes = tuple([axis_of_text(word) for word in words(axes)])
        elif isinstance(axes, dict):
            axes = tuple(make_axis(length, name=name) for name, length in axes.items())
        elif not hasattr(axes, "__iter__"):
            raise _no_axis(axes)
        else:
            axes = tuple([a if type(a) is Axis else as_axis(a) for a in axes])
        for a in axes:
            if type(a) is not Axis:
                raise _no_axis(a)
        if len(axes) > 1 and len(set(axes)) != len(axes):
            twice = sorted({a.label for a in axes if axes.count(a) > 1})
            raise AxisError(
                f"{', '.join(twice)} occurs twice in {show_axes(axes)}",
                fix="use the dual of one of them, as in [H, H - 1], or another name",
            )
        return super().__new__(cls, axes)

    def __add__(self, other: Any) -> Axes:
        if isinstance(other, int):
            return Axes(a + other for a in self)
        other = Axes(other)
        both = [a.label for a in self if a in other]
        if both:
            raise AxisError(
                f"{', '.join(both)} stands on both sides of +",
                details=(show_axes(self), show_axes(other)),
                fix="use | for the union",
            )
        return Axes((*self, *other))

    def __radd__(self, other: Any) -> Axes:
        return Axes(other) + self

    def __sub__(self, other: Any) -> Axes:
        if isinstance(other, int):
            return Axes(a - other for a in self)
        other = Axes(other)
        return Axes(a for a in self if a not in other)

    def __or__(self, other: Any) -> Axes:
        return Axes(merge(self, Axes(other)))

    def __and__(self, other: Any) -> Axes:
        other = Axes(other)
        return Axes(a for a in self if a in other)

    def __getitem__(self, i: Any) -> Any:
        """Returns the axis at a position, or of a name; of a slice Axes. Raises AxisError for a name that none has."""
        if isinstance(i, str):
            return self._by_name(i)
        got = super().__getitem__(i)
        return Axes(got) if isinstance(i, slice) else got

    def _by_name(self, name: str) -> Axis:
        found = [a for a in self if name == a.label] or [a for a in self if name in (a.name, f"{a.short_name}{a.mark}")]
        if len(found) != 1:
            raise AxisError(f"{name} is not an axis of {show_axes(self)}", fix="name one of them")
        return found[0]

    @property
    def T(self) -> Axes:
        return Axes(a.T for a in self)

    def get_dual(self, offset: int = -1) -> Axes:
        return self + offset

    names = property(lambda self: tuple(a.name for a in self))
    lengths = property(lambda self: tuple(a.length for a in self))

    @property
    def size(self) -> int | None:
        """The number of elements, or None while a length is unknown."""
        total = 1
        for length in self.lengths:
            if length is None:
                return None
            total *= length
        return total

    def is_sub_set(self, other: Any) -> bool:
        """Whether `other` has every axis of these."""
        return set(self) <= set(Axes(other))

    def is_super_set(self, other: Any) -> bool:
        return set(self) >= set(Axes(other))

    def is_equal_set(self, other: Any) -> bool:
        return set(self) == set(Axes(other))

    def is_not_equal_set(self, other: Any) -> bool:
        return set(self) != set(Axes(other))

    has_same_axes = is_equal_set

    def intersect(self, other: Any) -> Axes:
        return self & other

    def batch_axes(self) -> Axes:
        return Axes(a for a in self if a.is_batch)

    def batch_axis(self) -> Axis | None:
        return next((a for a in self if a.is_batch), None)

    def recurrent_axes(self) -> Axes:
        return Axes(a for a in self if a.is_recurrent)

    def recurrent_axis(self) -> Axis | None:
        return next((a for a in self if a.is_recurrent), None)

    def channel_axis(self) -> Axis | None:
        return next((a for a in self if a.is_channel), None)

    def sample_axes(self) -> Axes:
        return Axes(a for a in self if not a.is_batch)

    def feature_axes(self) -> Axes:
        return Axes(a for a in self if not (a.is_batch or a.is_recurrent))

    def spatial_axes(self) -> Axes:
        return Axes(a for a in self.feature_axes() if not a.is_channel)

    def role_axes(self, role: str) -> Axes:
        return Axes(a for a in self if a.has_role(role))

    def find_by_name(self, name: str) -> Axes:
        return Axes(a for a in self if name in (a.name, a.short_name))

    def get_by_names(self, *names: str) -> Any:
        """Returns the axis of that name, or for several names a tuple. Raises KeyError."""
        found = []
        for name in names:
            match = self.find_by_name(name)
            if not match:
                raise KeyError(f"no axis {name} in {show_axes(self)}")
            found.append(match[0])
        return found[0] if len(found) == 1 else tuple(found)

    def set_shape(self, shape: Iterable[int]) -> None:
        """Sets each axis' length."""
        for axis, length in zip(self, shape, strict=True):
            axis.length = length

    def find_axis(self, axis: Axis | str) -> Axis | None:
        """Returns the axis of these that equals, or is named, `axis`; None where there is none."""
        return next((a for a in self if a == axis or axis in (a.label, a.name, a.short_name)), None)

    @staticmethod
    def find(subaxes: Any, axes: Any) -> int:
        """Returns the position at which `subaxes` stand consecutively in `axes`; -1 where they do not."""
        part, whole = Axes(subaxes), Axes(axes)
        return next((k for k in range(len(whole) - len(part) + 1) if whole[k : k + len(part)] == part), -1)

    def shape_dict(self) -> dict[Axis, int | None]:
        return {a: a.length for a in self}

    def append(self, axis: Axis) -> Axes:
        """Returns these axes and one more. Axes are immutable."""
        return self + axis

    def insert(self, index: int, axis: Axis) -> Axes:
        """Returns these axes with one more at position `index`."""
        return Axes([*self[:index], axis, *self[index:]])

    @staticmethod
    def linear_map_axes(in_axes: Any, out_axes: Any) -> Axes:
        """Returns the axes of weights with which `dot(W, x)` maps `in_axes` to `out_axes`: out_axes, and the duals of in_axes."""
        return Axes(out_axes) + (Axes(in_axes) - 1)

    # flattening
    @property
    def full_lengths(self) -> tuple[Any, ...]:
        """The lengths, with a tuple of lengths for each joined axis."""
        return tuple(Axes(a.family.parts).full_lengths if a.family.parts else a.length for a in self)

    @staticmethod
    def as_nested_list(axes: Any) -> list[Any]:
        """Returns the axes, with a list of its parts in place of each joined one."""
        return [Axes.as_nested_list(a.family.parts) if a.family.parts else a for a in Axes(axes)]

    @staticmethod
    def as_flattened_list(axes: Any) -> list[Axis]:
        """Returns the axes, with its parts in place of each joined one."""
        return [part for a in Axes(axes) for part in (Axes.as_flattened_list(a.family.parts) if a.family.parts else [a])]

    def flatten(self, force: bool = False) -> Axis:
        """Returns one axis in place of these; a single one is returned as it is, unless `force` is set."""
        return self[0] if len(self) == 1 and not force else joined_axis(self)

    @staticmethod
    def check_broadcast(axes: Any, new_axes: Any) -> bool:
        """Whether a tensor of `axes` can be broadcast to `new_axes`: they contain every axis of it at equal length, in any order."""
        new = {a: a.length for a in Axes(new_axes)}
        return all(a in new and (a.length is None or new[a] is None or a.length == new[a]) for a in Axes(axes))

    @staticmethod
    def is_valid_flatten_or_unflatten(src_axes: Any, dst_axes: Any) -> bool:
        """Whether both are the same axes in the same order once joined axes are replaced by their parts."""
        return Axes.as_flattened_list(src_axes) == Axes.as_flattened_list(dst_axes)

    check_flatten = check_unflatten = is_valid_flatten_or_unflatten

    @staticmethod
    def assert_valid_broadcast(axes: Any, new_axes: Any) -> None:
        """Raises IncompatibleAxesError unless `check_broadcast` holds."""
        _incompatible(Axes.check_broadcast, "broadcast", axes, new_axes)

    @staticmethod
    def assert_valid_flatten(unflattened_axes: Any, flattened_axes: Any) -> None:
        """Raises IncompatibleAxesError unless `flattened_axes` are `unflattened_axes` with some of them joined."""
        _incompatible(Axes.check_flatten, "flattened", unflattened_axes, flattened_axes)

    @staticmethod
    def assert_valid_unflatten(flattened_axes: Any, unflattened_axes: Any) -> None:
        """Raises IncompatibleAxesError unless `unflattened_axes` are `flattened_axes` with some of them taken apart."""
        _incompatible(Axes.check_unflatten, "unflattened", flattened_axes, unflattened_axes)

    def __repr__(self) -> str:
        return f"Axes({', '.join(map(repr, self))})"

    def _repr_html_(self) -> str:
        return table("", [a._described() for a in self], ("axis", "length", "", "made at")) if self else "no axes"


class TensorShape(Axes):
    """Axes as the shape of a tensor: `x.shape["H"]` is the length of H, None while it is unknown."""

    __slots__ = ()

    def __new__(cls, axes: Any = ()) -> TensorShape:
        return tuple.__new__(cls, Axes(axes))

    def __getitem__(self, i: Any) -> Any:
        return self._by_name(i).length if isinstance(i, str) else super().__getitem__(i)


def _incompatible(check: Any, done: str, axes: Any, new_axes: Any) -> None:
    if not check(axes, new_axes):
        raise IncompatibleAxesError(f"{show_axes(Axes(axes))} cannot be {done} to {show_axes(Axes(new_axes))}")


class AxesMap(Mapping[str, str]):
    """New names for axes: {old: new}, both names or axes. Raises DuplicateAxisNames where two axes would get one name."""

    def __init__(self, axes: Mapping[Any, Any] = {}, **names: str):
        if not isinstance(axes, Mapping):
            raise ArgumentTypeError(f"AxesMap of {axes!r}, which is not a dict", fix='pass old and new names: ng.AxesMap({"H": "P"})')
        self._names = {_name_of(old): _name_of(new) for old, new in {**dict(axes), **names}.items()}
        _distinct(list(self._names.values()), "a map of axes")

    def __getitem__(self, name: Any) -> str:
        return self._names[_name_of(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __hash__(self) -> int:
        return hash(frozenset(self._names.items()))

    def map_axes(self, axes: Any) -> Axes:
        """Returns the axes with their new names and unchanged lengths; axes without an entry stay as they are."""
        old = Axes(axes)
        _distinct([self._names.get(a.name, a.name) for a in old if not a.dual], show_axes(old))
        return Axes(Axis(Family(self[a.name], a.size, {}, frozenset(), None), a.dual) if a.name in self._names else a for a in old)

    def invert(self) -> AxesMap:
        return AxesMap({new: old for old, new in self._names.items()})

    def __repr__(self) -> str:
        return f"AxesMap({self._names})"


def _name_of(axis: Axis | str) -> str:
    return axis.name if isinstance(axis, Axis) else str(axis)


def _distinct(names: Sequence[str], what: str) -> None:
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise DuplicateAxisNames(f"{what}: {', '.join(sorted(twice))} would occur twice", twice, fix="give each its own new name")


def make_axes(axes: Any = ()) -> Axes:
    """Returns Axes from an axis, an iterable of axes, text as in `ng.axes`, or a dict {name: length}; a nested list is one joined axis.

    >>> ng.make_axes([ng.make_axis(3, name="H"), ng.make_axis(4, name="W")])
    Axes(H=3, W=4)
    """
    return Axes(axes)


def spatial_axis(axes: Any, kernel_size: int, padding: Any = 0, stride: int = 1, role: str = "") -> Axis:
    """Returns the output axis of a convolution or pooling along the axis with this role (or name); of length 1 where no axis has it.

    kernel_size: the window's length; padding: for both sides, or (before, after). Raises AxisError where the window does not fit.

    >>> ng.spatial_axis(ng.axes("H=8 W=8"), 3, padding=1, stride=2, role="H").length
    4
    """
    found = Axes(axes).role_axes(role)
    if not found:
        return make_axis(1, name=str(role), roles=[role])
    before, after = padding if isinstance(padding, (tuple, list)) else (padding, padding)
    length = (len(found[0]) + before + after - kernel_size) // stride + 1
    if length < 1:
        raise AxisError(f"a window of {kernel_size} does not fit into {found[0]!r} with padding {padding}")
    return found[0].resized(length)


def show_axes(axes: Iterable[Axis]) -> str:
    """Returns axes as errors print them: `[C=4, N=128]`."""
    return "[" + ", ".join(map(repr, axes)) + "]"


def show_made(axis: Axis) -> str:
    """Returns an axis with the line that made it, for errors."""
    return f"{axis!r} made at {show_line(axis.family.line)}"
