"""Op-graph → program: duals become ids, composite ops are lowered by their records, state is threaded through.

Each variable is read once, at the start. Inside a `sequential` later parts see assignments of earlier parts; an op inside one runs
at its place there, even if other ops use it. The order of the results has no effect (docs/spec.md 5).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ngraph.errors import AxisError, GraphError, show_line
from ngraph.op_graph import expr
from ngraph.op_graph.axes import Axes, Axis, Family, make_axis, show_axes, show_made
from ngraph.op_graph.checks import checked_lengths, distance
from ngraph.op_graph.dtypes import token as token_dtype
from ngraph.op_graph.expr import ExprLike, Idx, Len
from ngraph.op_graph.memory import no_collection
from ngraph.op_graph.op import Body, Op, Origin, TensorType, made_for, ordered
from ngraph.op_graph.opdef import REGISTRY, show_input
from ngraph.parts.walk import closure
from ngraph.program.program import AxisId, Program, State, Step, Value, attr_axes, map_attr


@dataclass
class Lowered:
    """A program, the op of each of its inputs and states, and the axes of unknown length that must not be empty in a call."""

    program: Program
    inputs: tuple[Op, ...]
    states: dict[str, Op] = field(default_factory=dict)  # state name -> variable
    nonempty: tuple[AxisId, ...] = ()


class Ids:
    """The id of each (name, level, length). An axis whose length is that of another of its name has the other's id."""

    def __init__(self, parameters: Iterable[Op] = (), share: bool = True) -> None:
        self.given = {a.family for a in _axes_of(parameters)}  # whose lengths each call brings
        self.share = share  # whether ops that compute the same from variables give one length: not where these change on the way
        self.counts: dict[Any, Op] = {}
        self.asked: set[Op] = set()
        self.computed: dict[Family, tuple[Op, ...]] = {}
        self.by_key: dict[tuple[str, int, Any], AxisId] = {}  # a length by what equal ones share
        self.by_axis: dict[int, tuple[Axis, AxisId]] = {}
        self.axes: dict[AxisId, ExprLike] = {}
        self.first: dict[AxisId, Axis] = {}  # the axis that each id was made for
        self.hints: dict[AxisId, str] = {}
        self.within: set[Family] = set()  # whose lengths are being found: one that follows from itself is open

    def __call__(self, axis: Any) -> AxisId:
        if type(axis) is AxisId:
            return axis
        cached = self.by_axis.get(id(axis))
        if cached is not None:
            return cached[1]
        length = axis.length
        if length is None:
            family = axis.family
            own = family.found_length()
            if family.length is None and (family in self.within or family in self.given and self.counts_of(family)):
                own = None  # one that follows from itself, and one of an argument, which no op computes
            as_long = own.of if type(own) is Len else None
            if isinstance(own, expr.Expr) and (as_long is None or as_long.name != axis.name):
                self.within.add(family)
                own = expr.settled(expr.substitute(own, self._leaf))
                self.within.discard(family)
                if (cached := self.by_axis.get(id(axis))) is not None:  # two lengths, each the other's: the other one has this one's
                    return cached[1]
                as_long = self.first[own.of] if type(own) is Len else None
            if as_long is not None and as_long.family is family:
                own = None  # it follows from itself alone
            elif as_long is not None and as_long.name == axis.name:  # as an axis of its name: cut and padded again, say
                self.within.add(family)
                same = self(as_long + (axis.dual - as_long.dual))
                self.within.discard(family)
                self.by_axis[id(axis)] = (axis, same)
                return same
            length = own
        key = (axis.name, axis.dual, expr.normal(length) if isinstance(length, expr.Expr) else length)
        found = self.by_key.get(key)
        if found is None:
            found = self.by_key[key] = self._new(axis, length)
        self.by_axis[id(axis)] = (axis, found)
        return found

    def _leaf(self, leaf: expr.Leaf) -> ExprLike:
        if not isinstance(leaf, Len):
            return expr.Run(self.count(leaf.of)) if type(leaf.of) is Op else leaf
        length = leaf.of.length
        if length is None:
            length = leaf.of.family.found_length()
        if isinstance(length, int):
            return length
        found = self(leaf.of)
        own = self.axes[found]
        return own if type(own) is Len else Len(found)

    def count(self, op: Op) -> Op:
        """Returns the first op that computes the same as this one: `x[:n + 1]` and `y[:n + 1]` have equal lengths."""
        if op in self.asked:  # of an op that makes the axis, too: `compact` gives its positions and how many there are
            return op
        if not self.share and any(o.is_variable for o in ordered([op])):
            return op
        self.asked.add(op)
        same: dict[Op, Op] = {}
        for o in ordered([op]):
            inputs = tuple([id(same[i]) for i in o.inputs])
            if not inputs and not o.is_constant:  # an argument or a variable
                same[o] = o
                continue
            try:
                attrs = tuple([(k, map_attr(a, self, lambda of: of)) for k, a in o.attrs.items()])
                same[o] = self.counts.setdefault((id(o.opdef), inputs, attrs), o)
            except TypeError:  # an attribute that has no hash
                same[o] = o
        self.asked.discard(op)
        return same[op]

    def counts_of(self, family: Family) -> tuple[Op, ...]:
        """Returns the ops that the length of an axis is computed from, or those of axes that it follows from."""
        if family not in self.computed:
            self.computed[family] = ()  # of one that follows from itself
            found: list[Op] = []
            for leaf in expr.leaves(family.found_length() or 0):
                if isinstance(leaf, Len):
                    found += self.counts_of(leaf.of.family)
                elif isinstance(leaf, expr.Run):
                    found.append(self.count(leaf.of))
            self.computed[family] = tuple(found)
        return self.computed[family]

    def alone(self, axis: Axis) -> Axis:
        """Returns an axis with the id of another, which equals none: lengths of axes of one name differ in expressions."""
        found = make_axis(name=f"{axis.name} of {self(axis)}")
        self.by_axis[id(found)] = (found, self(axis))
        return found

    def _new(self, axis: Axis, length: ExprLike | None) -> AxisId:
        base = re.sub(r"\W", "_", axis.short_name) or "axis"
        if not (base[0].isalpha() or base[0] == "_"):
            base = "a" + base
        mark = "'" * -axis.dual if axis.dual < 0 else "^" * axis.dual
        found, n = AxisId(base + mark), 1
        while found in self.axes:
            n += 1
            found = AxisId(f"{base}.{n}{mark}")
        if length is None and axis.dual:
            length = Len(self(axis.primary))  # a dual has the length of its family
        self.axes[found] = Len(found) if length is None else length
        self.first[found] = axis
        self.hints[found] = axis.label
        return found


def _of_one_length(o: Op) -> Iterator[list[Axis]]:
    """Yields axes of which equal ones have one length each: those of inputs, of what a loop carries and gives, of two branches' results."""
    inputs = _axes_of(o.inputs)
    yield inputs
    yield [*inputs, *_axes_of([o])]
    yield [*inputs, *(a for listed in o.attrs.values() if isinstance(listed, tuple) for a in listed if isinstance(a, Axis))]
    if "carries" in o.attrs:
        yield from map(_axes_of, zip(o.inputs[: o.attrs["carries"]], o.attrs["body"].outputs, strict=False))
    if "else" in o.attrs:
        yield from map(_axes_of, zip(o.attrs["then"].outputs, o.attrs["else"].outputs, strict=True))


def _axes_of(ops: Iterable[Op]) -> list[Axis]:
    return [a for o in ops if type(o.type) is TensorType for a in o.type.axes]


def _types_of(o: Op) -> tuple[Any, ...]:
    return () if o.type is None else o.type if type(o.type) is tuple else (o.type,)


def _with_ids(attrs: dict[str, Any], same: Mapping[AxisId, AxisId]) -> dict[str, Any]:
    """Returns attributes with other ids for some axes."""
    return {k: map_attr(a, lambda axis: same.get(axis, axis), lambda v: v) for k, a in attrs.items()}


def _length_text(a: Axis) -> str:
    return expr.text(a.size, lambda leaf: str(getattr(leaf.of, "label", leaf.of)))


def _call_text(o: Op) -> str:
    return f"{o.opdef.name}({', '.join(i.label for i in o.inputs)})"


class StateScope:
    """The state as visible to one range of ops: the whole program, or the inside of a `sequential`."""

    def __init__(self, sequential: Op | None, state: dict[Op, Value]):
        self.sequential, self.state = sequential, state  # the outermost one; variable -> its current value
        self.assigns: dict[Op, Op] = {}  # variable -> the assign of that value


class Lowering:
    """The state of one lowering."""

    def __init__(self, results: Sequence[Op], parameters: Sequence[Op], ids: Ids | None = None, whole: Callable[[Op], bool] | None = None):
        self.roots = list(results)
        self.whole = whole
        self.bodies: dict[Body, Program] = {}
        self.ids = ids or Ids(parameters, not any(o.opdef.name == "sequential" for o in ordered(results)))
        self.is_body = ids is not None
        self.parameters = tuple(parameters)
        self.steps: list[Step] = []
        self.values: dict[Op, tuple[Value, ...]] = {}
        self.expanded: dict[Op, Op] = {}  # composite op -> the op it was lowered to
        self.along: dict[tuple[Any, ...], Op] = {}  # (op, ids of axes) -> it, read along these
        self.claimed: dict[Op, tuple[list[Op], dict[Op, Value]]] = {}  # op -> the sequentials it ran in, and the state that it saw
        self.start: dict[Op, Value] = {}  # variable -> its initial value
        self.written: dict[Op, tuple[Op, Value]] = {}  # variable -> the assign that wrote it, and the value
        self.token: Value | None = None
        self.token_in: Value | None = None
        self.nonempty: dict[AxisId, Op] = {}  # axis -> an op that needs an element along it
        self.reads: dict[Op, frozenset[Op]] = {}  # op -> the variables that its value depends on
        self.writes: dict[Op, frozenset[Op]] = {}  # op -> the assigns that it depends on
        self.inputs = tuple(Value(self.type(p.type), p.hint or f"arg{k}") for k, p in enumerate(self.parameters))
        self.fed = dict(zip(self.parameters, self.inputs, strict=True))

    # types
    def type(self, t: TensorType) -> TensorType:
        return TensorType(tuple([self.ids(a) for a in t.axes]), t.dtype)

    # state
    def initial(self, variable: Op) -> Value:
        if variable in self.fed:
            return self.fed[variable]
        if variable not in self.start:
            self.start[variable] = Value(self.type(variable.type), variable.hint or variable.opdef.name)
        return self.start[variable]

    def read(self, variable: Op, scope: StateScope) -> Value:
        return scope.state.get(variable) or self.initial(variable)

    def _survey(self) -> None:
        """Fills `reads` and `writes` for every op, if a `sequential` needs them."""
        for o in ordered(self.roots):
            kind = o.opdef.name
            took = o.inputs[1:] if kind == "assign" else o.inputs
            self.reads[o] = _union([self.reads[i] for i in took], o if kind == "variable" else None)
            self.writes[o] = _union([self.writes[i] for i in took], o if kind == "assign" else None)

    def variables_of(self, op: Op) -> frozenset[Op]:
        """Returns the variables that `op` reads; ops made by a lowering read those of their inputs."""
        if op not in self.reads:
            for o in ordered([op]):
                if o not in self.reads:
                    self.reads[o] = _union([self.reads[i] for i in o.inputs], o if o.opdef.name == "variable" else None)
        return self.reads[op]

    # values
    def value(self, op: Op, scope: StateScope) -> tuple[Value, ...]:
        """Returns the values of `op` as visible in `scope`, emitting steps for the missing ones."""
        stack = [op]
        while stack:
            o = stack[-1]
            if self._known(o, scope) is not None:
                stack.pop()
                continue
            kind = o.opdef.name
            if kind in ("sequential", "doall", "assign"):
                self._control(o, scope)
                stack.pop()
                continue
            waiting = [i for i in (*o.inputs, *self._counts(o)) if self._known(i, scope) is None]
            if waiting:
                stack += waiting[::-1]
                continue
            if o.opdef.lower is not None and not (self.whole is not None and self.whole(o)):
                small = self.expanded.get(o)
                if small is None:
                    with made_for(o):
                        small = self.expanded[o] = o.opdef.lower(o, *o.inputs)
                    if o.hint and small.hint is None and small.serial > o.serial:
                        small.hint = o.hint
                if self._known(small, scope) is None:
                    stack.append(small)
                    continue
                self._keep(o, self._match(o, self._known(small, scope)), scope)  # type: ignore[arg-type]  # known, as just checked
            else:
                self._keep(o, self._emit(o, scope), scope)
            stack.pop()
        return self._known(op, scope)  # type: ignore[return-value]  # kept by the loop above

    def _counts(self, o: Op) -> list[Op]:
        """Returns the ops that the lengths of an op's own axes are computed from: they have values before it."""
        if self.is_body:
            return []
        own = o.type.axes if type(o.type) is TensorType else ()
        return [op for a in own if a.length is None for op in self.ids.counts_of(a.family)] + self._counts_inside(o)

    def _counts_inside(self, o: Op) -> list[Op]:
        """Returns the ops that lengths inside the bodies of a loop or branch are computed from. Raises GraphError where only bodies can."""
        bodies = [a for a in o.attrs.values() if type(a) is Body]
        found: dict[Op, None] = {}
        for inner in Op.all_op_references([out for body in bodies for out in body.outputs]) if bodies else ():
            for a in (a for t in _types_of(inner) if type(t) is TensorType for a in t.axes if a.length is None):
                for count in self.ids.counts_of(a.family):
                    if count not in found and any(x.is_placeholder and x not in self.fed for x in ordered([count])):
                        raise GraphError(
                            f"the length of {a.label} is found inside a body of {o.label}, from values that are there alone",
                            line=inner.line,
                            details=(f"{o.label} at {show_line(o.line)}",),
                            fix="find it outside, or keep all elements and choose by ng.where: bodies have their lengths from around them",
                        )
                    found[count] = None
        return list(found)

    def _match(self, o: Op, values: tuple[Value, ...]) -> tuple[Value, ...]:
        for t, v in zip(_types_of(o), values, strict=True):
            if type(t) is TensorType and (t.dtype is not v.dtype or set(self.type(t).axes) != set(v.axes)):
                raise GraphError(f"the lowering of {o.opdef.name} gives {v.type}, its type says {self.type(t)}", line=o.line)
        return values

    def _known(self, op: Op, scope: StateScope) -> tuple[Value, ...] | None:
        kind = op.opdef.name
        if kind == "variable":
            return (self.read(op, scope),)
        if kind == "placeholder":
            if op not in self.fed:
                raise GraphError(
                    f"placeholder {op.label} {show_axes(op.axes)} is needed, and is not an argument of this computation",
                    line=op.line,
                    fix="name it among the computation's parameters",
                )
            return (self.fed[op],)
        if op not in self.values:
            return None
        claim = self.claimed.get(op)
        if claim is not None and scope.sequential is not None and scope.sequential not in claim[0]:
            self._join(op, claim, scope)
        return self.values[op]

    def _join(self, op: Op, claim: tuple[list[Op], dict[Op, Value]], scope: StateScope) -> None:
        """Accepts an op that has run in one sequential in another, if the state that it saw is the state there; else raises GraphError."""
        assert scope.sequential is not None
        for v, seen in claim[1].items():
            if self.read(v, scope) is not seen:
                raise GraphError(
                    f"{op.label} stands in two sequentials that see {v.label} in different states",
                    line=op.line,
                    details=tuple(f"sequential written at {show_line(s.line)}" for s in (claim[0][0], scope.sequential)),
                    fix="build the op once for each of them",
                )
        claim[0].append(scope.sequential)

    def _keep(self, op: Op, values: tuple[Value, ...], scope: StateScope) -> None:
        self.values[op] = values
        if scope.sequential is not None:
            self.claimed[op] = ([scope.sequential], {v: self.read(v, scope) for v in self.variables_of(op)})

    def _emit(self, o: Op, scope: StateScope) -> tuple[Value, ...]:
        inputs = tuple([v for i in o.inputs for v in self._known(i, scope)])  # type: ignore[union-attr]  # inputs are kept before their users
        if o.opdef.name == "part":
            inputs[o.attrs["index"]].hint = inputs[o.attrs["index"]].hint or o.hint or ""
            return (inputs[o.attrs["index"]],)
        if o.opdef.name == "together":
            return inputs
        if o.opdef.name not in REGISTRY:
            raise GraphError(f"{o.opdef.name} is not a registered op", line=o.line)
        attrs = {
            k: map_attr(a, self.ids, lambda of: of if type(of) is Value else self.value(of, scope)[0], self._body)
            for k, a in o.attrs.items()
        }
        if "nonempty" in o.opdef.attrs:
            self.nonempty.update(dict.fromkeys(attrs[o.opdef.attrs["nonempty"]], o))
        happens = o.opdef.name == "effect" or any(type(a) is Program and _has_token(a) for a in attrs.values())
        if happens:
            inputs, attrs = self._with_token(o, inputs, attrs)
        types = self._types(o, inputs, attrs, happens)
        if isinstance(types, AxisError):
            inputs, attrs, types = self._with_equal_lengths(o, attrs, scope, types)
        results = tuple([Value(t, o.hint or "") for t in types])
        self.steps.append(Step(results, o.opdef.name, inputs, attrs, (o.origin,)))
        if not happens:
            return results
        self.token = results[0]
        return results[1:]

    # lengths that are equal in some calls
    def _types(self, o: Op, inputs: Sequence[Value], attrs: dict[str, Any], happens: bool = False) -> tuple[TensorType, ...] | AxisError:
        """Returns the types of an op's results, or what is wrong where they do not fit or are not those that the op declares.

        happens: whether a token is the first input and the first result.
        """
        try:
            made = o.opdef.type(tuple([v.type for v in inputs]), **attrs)
        except AxisError as wrong:
            return wrong
        types: tuple[TensorType, ...] = made if type(made) is tuple else (made,)
        fit = all(set(t.axes) == set(self.type(d).axes) for t, d in zip(types[1:] if happens else types, _types_of(o), strict=False))
        return types if fit else self._late_clash(o, [])

    def _with_equal_lengths(
        self, o: Op, attrs: dict[str, Any], scope: StateScope, wrong: AxisError
    ) -> tuple[tuple[Value, ...], dict[str, Any], tuple[TensorType, ...]]:
        """Returns inputs and attributes of an op that have one length along each axis, and the types of its results.

        Each call checks the lengths. Raises AxisError where no call can have such lengths, `wrong` where it is not about them.
        """
        attrs = {**attrs, **self._bodies_along(o)}
        for to in self._choices(o):
            read = [r for i, steps in zip(o.inputs, to, strict=True) if (r := self._along(o, i, *steps)) is not None]
            if len(read) < len(o.inputs):
                continue
            inputs = tuple([v for i in read for v in self._known(i, scope) or [Value(self.type(i.type))]])
            same = {
                self.ids(by): self.ids(steps[-1][a])
                for i, steps in zip(o.inputs, to, strict=True)
                for a in (_axes_of([i]) if steps else ())
                if a in steps[-1]
                for by in (a, *(step[a] for step in steps))
            }
            for now in (attrs, _with_ids(attrs, same)):
                types = self._types(o, inputs, now)
                if not isinstance(types, AxisError):
                    return tuple([v for i in read for v in self.value(i, scope)]), now, types
        for group in (*_of_one_length(o), [a for t in _types_of(o) for a in t.axes]):
            if unlike := self._unlike(group):
                raise self._late_clash(o, unlike)
        raise wrong

    def _choices(self, o: Op) -> Iterator[list[tuple[dict[Axis, Axis], ...]]]:
        """Yields for each input of an op the axes to read it along in place of its own; few axes come first, and of them few inputs.

        The lengths are those that axes of one name have in attributes, in the op's type, in inputs and in bodies, in this order. At last
        each input is read along all of them, one after another, so that any may stand for any other.
        """
        found: dict[Axis, dict[AxisId, Axis]] = {}
        bodies = [a for a in o.attrs.values() if type(a) is Body]
        declared = (a for t in _types_of(o) for a in t.axes)
        for a in (*attr_axes(tuple(o.attrs.values())), *declared, *_axes_of(o.inputs), *(a for b in bodies for a in _axes_of(b.inputs))):
            found.setdefault(a, {}).setdefault(self.ids(a), a)
        several = [a for a in dict.fromkeys(_axes_of(o.inputs)) if len(found[a]) > 1]
        read = [k for k, i in enumerate(o.inputs) if not set(several).isdisjoint(_axes_of([i]))]
        parts = [*(part for n in (1, 2) for part in itertools.combinations(read, n) if n < len(read)), read]
        yield [()] * len(o.inputs)
        for count, part in itertools.product(range(1, len(several) + 1), parts):
            for some in itertools.combinations(several, count):
                for new in itertools.product(*[found[a].values() for a in some]):
                    to = dict(zip(some, new, strict=True))
                    yield [(to,) if k in part else () for k in range(len(o.inputs))]
        for new in itertools.product(*[found[a].values() for a in several]):
            to = dict(zip(several, new, strict=True))
            others = [{a: by} for a in several for by in found[a].values() if by is not to[a]]
            yield [(*others, to) if k in read else () for k in range(len(o.inputs))]

    def _along(self, o: Op, i: Op, *to: dict[Axis, Axis], inside: bool = False) -> Op | None:
        """Returns a tensor of `o` read along other axes of the same names, one after another, whose lengths each call checks.

        inside: whether it is read in a body of `o`. Returns None if no call can fit.
        """
        for new in to:
            pairs = [(a, new[a]) for a in i.axes if a in new and self.ids(a) != self.ids(new[a])] if type(i.type) is TensorType else []
            if not pairs:
                continue
            key = (i, *[self.ids(t) for _, t in pairs])
            if key not in self.along:
                if not all(expr.can_be_equal(a.size, t.size) for a, t in pairs):
                    return None
                self.along[key] = self._checked(o, i, pairs, inside or self.is_body)
            i = self.along[key]
        return i

    def _checked(self, o: Op, i: Op, pairs: Sequence[tuple[Axis, Axis]], inside: bool) -> Op:
        """Returns a tensor of `o` read along other axes; each call checks that they have the lengths of its own.

        In a body the lengths are those of the program's axes: an op around it that computes one has no value there.
        """
        index: dict[Axis, ExprLike] = {a: Idx(a) for a in i.axes}
        with made_for(o):
            for a, t in pairs:
                fix = f"call it with lengths for which {_length_text(a)} and {_length_text(t)} are equal, or pad or cut one"
                own, other = (Len(self.ids.alone(a)), Len(self.ids.alone(t))) if inside else (a.size, t.size)
                index[a] = Idx(t) + checked_lengths(a, distance(own, other), f"axis {a.label} of {i.label} in {_call_text(o)}", fix, own)
            axes = Axes([dict(pairs).get(a, a) for a in i.axes])
            return REGISTRY["reindex"].build(i, axes=axes, index=tuple(index.items()), predicate=(), pad_value=0)

    def _bodies_along(self, o: Op) -> dict[str, Program]:
        """Returns those bodies of an op whose results do not have the lengths that the op declares, with the results read along these."""
        found = {}
        for k, body in o.attrs.items():
            if type(body) is Body:
                pairs = list(zip(body.outputs, _types_of(o), strict=False))
                read = [r for b, t in pairs if (r := self._along(o, b, {a: a for a in t.axes}, inside=True)) is not None]
                if len(read) == len(pairs) and any(r is not b for r, (b, _) in zip(read, pairs, strict=True)):
                    found[k] = self._body(Body(body.inputs, [*read, *body.outputs[len(read) :]]))
        return found

    def _with_token(self, o: Op, inputs: tuple[Value, ...], attrs: dict[str, Any]) -> tuple[tuple[Value, ...], dict[str, Any]]:
        """Returns an effect's inputs with the token, which it takes and gives; a loop or choice with effects in its bodies carries it."""
        if self.token is None:
            self.token = self.token_in = Value(TensorType((), token_dtype), "token")
        place = 1 if o.opdef.name == "cond" else 0
        inputs = (*inputs[:place], self.token, *inputs[place:])
        if "carries" in attrs:
            attrs = {**attrs, "carries": attrs["carries"] + 1}
        asked = attrs.get("cond")
        if type(asked) is Program:
            if _has_token(asked):
                raise GraphError("the condition of a loop has effects", line=o.line, fix="print in the loop's function")
            attrs["cond"] = asked.with_(inputs=(Value(self.token.type, "token"), *asked.inputs))
        return inputs, {k: _token_first(a) if type(a) is Program and a is not attrs.get("cond") else a for k, a in attrs.items()}

    def _body(self, body: Body | Program) -> Program:
        """Returns a body as a closed program over the ids of this one."""
        if isinstance(body, Program):
            return body
        if body not in self.bodies:
            inner = Lowering(body.outputs, body.inputs, self.ids, self.whole)
            inner.nonempty = self.nonempty
            made = inner.run("body")
            held = [v.label for v in made.states.values()]
            if held:
                raise GraphError(
                    f"a body reads or assigns {', '.join(held)}",
                    line=body.outputs[0].line,
                    fix="pass a variable's value in, carry what changes, and assign what the loop gives",
                )
            program = made.program.with_(**_own_axes(made.program))
            self.bodies[body] = _token_first(program) if program.token_in is not None else program
        return self.bodies[body]

    def _unlike(self, axes: Iterable[Axis]) -> list[Axis]:
        """Returns pairs of equal axes whose lengths are not the same."""
        unlike = []
        first: dict[Axis, Axis] = {}
        for axis in axes:
            other = first.setdefault(axis, axis)
            if self.ids(other) != self.ids(axis):
                unlike += [other, axis]
        return unlike

    def _late_clash(self, o: Op, unlike: list[Axis]) -> AxisError:
        """Returns the error for lengths that were unknown when the op was built, and disagree now."""
        sizes: dict[str, dict[str, None]] = {}  # of each axis of which one has a length that calls give
        for name in dict.fromkeys([a.short_name for a in unlike if a.length is None]):
            sizes[name] = dict.fromkeys([_length_text(a) for a in unlike if a.short_name == name])
        if sizes:
            said = ", axis ".join([f"{n} {'' if k else 'has '}the lengths {' and '.join(s)}" for k, (n, s) in enumerate(sizes.items())])
            name = next(iter(sizes))
            return AxisError(
                f"{_call_text(o)}: axis {said}, which do not fit in any call",
                line=o.line,
                details=(*(show_input(i) for i in o.inputs), *(show_made(a) for a in unlike)),
                fix=f"give it a length, or make both as long in every call, as x and ng.pad(x, {{'{name}': (1, 0)}})['{name}', :-1] are",
            )
        return AxisError(
            f"{_call_text(o)}: lengths given since it was written do not fit: {show_axes(unlike)}",
            line=o.line,
            details=(*(show_input(i) for i in o.inputs), *(show_made(a) for a in unlike)),
            fix="give them one axis, or one length",
        )

    # effects
    def _control(self, o: Op, scope: StateScope) -> None:
        kind = o.opdef.name
        if kind == "assign":
            self._assign(o, scope)
        elif kind == "doall":
            self._doall(o, scope)
        else:
            self._sequential(o, scope)

    def _assign(self, o: Op, scope: StateScope) -> None:
        variable, new = o.inputs
        (value,) = self.value(new, scope)
        if variable in self.fed and self.is_body:
            raise GraphError(
                "a variable is assigned in the function of a loop or choice",
                line=o.line,
                fix="carry the value, and assign what the loop gives",
            )
        if variable in self.fed:
            raise GraphError(
                f"{variable.label} is assigned in a computation that takes it as an argument",
                line=o.line,
                fix="leave it out of the parameters",
            )
        self.initial(variable)
        before = self.written.get(variable)
        if before is not None and (scope.sequential is None or variable not in scope.assigns):
            raise GraphError(
                f"{variable.label} is assigned twice in one computation, in no order",
                line=o.line,
                details=(f"also at {show_line(before[0].line)}",),
                fix="put both assigns into one ng.sequential([...])",
            )
        self.written[variable] = (o, value)
        if scope.sequential is not None:
            scope.state[variable] = value
            scope.assigns[variable] = o
        self.values[o] = ()

    def _doall(self, o: Op, scope: StateScope) -> None:
        if scope.sequential is None:
            for part in o.inputs:
                self.value(part, scope)
        else:
            before = dict(scope.state)
            parts: list[StateScope] = []
            for part in o.inputs:
                inner = StateScope(scope.sequential, dict(before))
                inner.assigns = {}
                allowed = dict(self.written)
                for v in scope.assigns:
                    self.written.pop(v, None)  # written earlier in this sequential: may be written again
                self.value(part, inner)
                for v, w in allowed.items():
                    self.written.setdefault(v, w)
                for v in inner.assigns:
                    for other in parts:
                        if v in other.assigns:
                            raise GraphError(
                                f"{v.label} is assigned twice in one doall, in no order",
                                line=inner.assigns[v].line,
                                details=(f"also at {show_line(other.assigns[v].line)}",),
                                fix="put both assigns into one ng.sequential([...])",
                            )
                parts.append(inner)
            for inner in parts:
                for v in inner.assigns:
                    scope.state[v] = inner.state[v]
                    scope.assigns[v] = inner.assigns[v]
        self.values[o] = ()

    def _sequential(self, o: Op, scope: StateScope) -> None:
        outermost = o if scope.sequential is None else scope.sequential
        inner = StateScope(outermost, dict(scope.state))  # the outer state is empty: only initial values are read there
        inner.assigns = dict(scope.assigns) if scope.sequential is not None else {}
        values: tuple[Value, ...] = ()
        for part in o.inputs:
            values = self.value(part, inner)
            for a in sorted(
                self.writes.get(part, ()), key=lambda op: op.serial
            ):  # assigns that another sequential has executed already count here, too
                if a.inputs[0] not in inner.assigns:
                    inner.assigns[a.inputs[0]], inner.state[a.inputs[0]] = self.written[a.inputs[0]]
        if scope.sequential is not None:
            scope.state.update(inner.state)
            scope.assigns.update(inner.assigns)
        self.values[o] = values if o.type is not None else ()

    # lengths
    def _length(self, axis: AxisId, length: ExprLike, scope: StateScope) -> ExprLike:
        """Returns a length over values of this program; in a body, a run-time length of the enclosing program is the axis' own length."""
        if not any(isinstance(leaf, expr.Run) for leaf in expr.leaves(length)):
            return length
        if self.is_body:
            return Len(axis)
        return expr.substitute(length, lambda e: expr.Run(self.value(e.of, scope)[0]) if isinstance(e, expr.Run) else e)

    def _open(self, program: Program) -> tuple[AxisId, ...]:
        """Returns the axes that must not be empty whose length the call determines."""
        found = []
        for a, o in self.nonempty.items():
            try:
                length = program.length(a)
            except LookupError:
                found.append(a)
                continue
            if length == 0:
                raise AxisError(
                    f"{o.label} along {program.hints[a]}, which has length 0: among no elements there is none to choose",
                    line=o.line,
                    details=tuple(map(show_input, o.inputs)),
                    fix=f"reduce other axes, or give {program.hints[a]} at least one element",
                )
        return tuple(found)

    # whole program
    def run(self, name: str) -> Lowered:
        top = StateScope(None, {})
        sequentials = [o for o in ordered(self.roots) if o.opdef.name == "sequential"]
        if sequentials:
            self._survey()
        inside: set[Op] = set()
        for s in sequentials:
            inside.update(o for o in ordered(s.inputs) if o.opdef.name == "sequential")
        for s in sequentials:
            if s not in inside:
                self.value(s, top)
        wanted: list[Op] = []
        for r in self.roots:
            if r.opdef.name == "variable":
                wanted.append(r)
            else:
                self.value(r, top)
                wanted.append(r)
        outputs = []
        for r in wanted:
            if r.opdef.name == "variable":
                outputs.append(self.written[r][1] if r in self.written else self.initial(r))
            elif type(r.type) is TensorType:
                outputs.append(self.values[r][0] if r in self.values else self.value(r, top)[0])
        state_in, state_out = [], []
        for variable in list(self.start):
            if variable.attrs.get("advance") is not None and variable not in self.written:
                with made_for(variable):
                    after = variable.attrs["advance"](variable)
                self.written[variable] = (after, self.value(after, top)[0])
        states = state_names(self.start)
        for label, variable in states.items():
            state_in.append(State(label, self.start[variable]))
            if variable in self.written:
                state_out.append((label, self.written[variable][1]))
        axes = {a: self._length(a, n, top) for a, n in self.ids.axes.items()}
        program = Program(
            axes=axes,
            hints=self.ids.hints,
            inputs=self.inputs,
            state_in=tuple(state_in),
            steps=tuple(self.steps),
            outputs=tuple(outputs),
            state_out=tuple(state_out),
            token_in=self.token_in,
            token_out=self.token,
            name=name,
        )
        return Lowered(program, self.parameters, states, () if self.is_body else self._open(program))


def _has_token(body: Program) -> bool:
    return bool(body.inputs) and body.inputs[0].dtype is token_dtype


def _token_first(body: Program) -> Program:
    """Returns a body that takes a token before its inputs and gives one before its outputs, by a no-op call if it has no effects."""
    if _has_token(body):
        return body
    first, last, steps = body.token_in, body.token_out, body.steps
    if first is None or last is None:
        first, last = (Value(TensorType((), token_dtype), "token") for _ in range(2))
        origin = steps[0].origin if steps else no_origin(body)
        steps = (Step((last,), "effect", (first,), {"kind": "nothing", "text": ""}, origin), *steps)
    return body.with_(inputs=(first, *body.inputs), outputs=(last, *body.outputs), steps=steps, token_in=None, token_out=None)


def _union(sets: list[frozenset[Op]], own: Op | None) -> frozenset[Op]:
    """Returns the union of sets and one op; an existing set is reused where it is the union."""
    big = max(sets, key=len, default=frozenset())
    if all(s is big or s <= big for s in sets) and own is None:
        return big
    return big.union(*sets, () if own is None else (own,))


def state_names(variables: Iterable[Op]) -> dict[str, Op]:
    """Returns the name of each variable's state: the variable's own, made unique."""
    states: dict[str, Op] = {}
    tried: dict[str, int] = {}
    for v in variables:
        states[unique(v.name if v.hint else v.opdef.name, states, tried)] = v
    return states


def unique(name: str, taken: Iterable[str], tried: dict[str, int] | None = None) -> str:
    """Returns `name`, with the first free number where it is taken. `tried` caches the last number used."""
    if name not in taken:
        return name
    n = 2 if tried is None else tried.get(name, 2)
    while f"{name}_{n}" in taken:
        n += 1
    if tried is not None:
        tried[name] = n
    return f"{name}_{n}"


def lower(
    results: Sequence[Op],
    parameters: Sequence[Op] = (),
    name: str = "program",
    whole: Callable[[Op], bool] | None = None,
    writes: Sequence[int] = (),
) -> Lowered:
    """Returns the program that computes `results` from `parameters` and state. Results without a value (assigns) only have effects.

    whole: selects the composite ops that are kept, for a transformer that runs them as one op. writes: the numbers of the parameters
    that the last results replace.
    Raises GraphError for a placeholder that is not a parameter, unordered assigns, an op in two sequentials at different states; AxisError
    for lengths that were set after the graph was built and disagree.
    """
    with no_collection():
        made = Lowering(results, parameters, whole=whole).run(name)
    first = len(made.program.outputs) - len(writes)
    pairs = tuple([(k, first + n) for n, k in enumerate(writes)])
    return replace(made, program=made.program.with_(writes=pairs)) if pairs else made


def _own_axes(program: Program) -> dict[str, Any]:
    """Returns the `axes` and `hints` of a body: those of its values and attributes, and those in their lengths."""
    todo: list[AxisId] = [a for v in program.sources() for a in v.axes]
    for step in program.steps:
        for v in step.results:
            todo += v.axes
        for a in step.attrs.values():
            todo += attr_axes(a)
            todo += a.axes if type(a) is Program else ()
    needed = closure(todo, lambda axis: attr_axes(program.axes[axis]))
    kept = {a: length for a, length in program.axes.items() if a in needed}
    return {"axes": kept, "hints": {a: program.hints[a] for a in kept}}


def no_origin(program: Program) -> tuple[Origin, ...]:
    """Returns an origin for steps without a user's line."""
    return (Origin(program.name, "", "", 0),)
