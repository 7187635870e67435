"""Ops written with the names of axes: `einsum("H K, K N -> H N", x, y)` and `rearrange(x, "N (C H) -> N C H", C=3)`.

A name denotes an axis of the operand (its last component is enough; a dual has its marks: `H'`), so the order of names on the left is
free; on the right it is the result's. Sources: A. Einstein's summation; A. Rogozhnikov, "Einops" (ICLR 2022), for the brackets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from ngraph.errors import AxisError
from ngraph.op_graph.axes import Axes, Axis, Family, make_axis, show_axes
from ngraph.op_graph.expr import ExprLike
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import find_axis, own_or_new_axes, show_input
from ngraph.ops.elementwise import arithmetic, as_op
from ngraph.ops.linear import contract
from ngraph.ops.rearrange import axes_with_order, cast_axes, flatten, map_roles, product, unflatten
from ngraph.ops.reduce import reduce

_TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z_][\w.]*(?:'+|\+\d+)?)|(?P<sign>->|\.\.\.|[(),]))")
Group = tuple[str, ...]


def _tokens(pattern: str, name: str) -> list[str]:
    """Returns names and signs of a pattern. Raises AxisError that shows the position of a syntax error."""
    found, at = [], 0
    text = pattern.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise AxisError(
                f"{name}: {text[at:].strip()!r} in {pattern!r} is neither an axis name nor a sign",
                fix="write names of axes with blanks between, and the signs -> , ( ) ...",
            )
        found.append(match["name"] or match["sign"])
        at = match.end()
    return found


def _sides(pattern: str, name: str) -> tuple[list[str], list[str]]:
    tokens = _tokens(pattern, name)
    if tokens.count("->") != 1:
        raise AxisError(f"{name}: {pattern!r} does not have exactly one ->", fix="write it between what comes in and what the result has")
    at = tokens.index("->")
    return tokens[:at], tokens[at + 1 :]


def _once(names: Sequence[str], pattern: str, name: str) -> None:
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise AxisError(f"{name}: {', '.join(twice)} occurs twice on one side of {pattern!r}", fix="name each axis once")


# ---- einsum -----------------------------------------------------------------------------------------------------------


def _operands(pattern: str, ops: Sequence[Op]) -> tuple[list[Op], Axes]:
    """Returns the operands with one axis for each name, and the axes of the result."""
    left, right = _sides(pattern, "einsum")
    if any(t in "()" for t in (*left, *right)):
        raise AxisError(f"einsum: {pattern!r} has brackets", fix="join or split axes with ng.rearrange")
    groups: list[list[str]] = [[]]
    for token in left:
        if token == ",":
            groups.append([])
        else:
            groups[-1].append(token)
    if len(groups) != len(ops):
        raise AxisError(f"einsum: {pattern!r} names {len(groups)} operands, and there are {len(ops)}", fix="name the axes of each")
    meant: dict[str, Axis] = {}
    renamed, others = [], Axes()
    for names, x in zip(groups, ops, strict=True):
        x, rest = _named(names, x, meant, pattern)
        renamed.append(x)
        others = others | rest
    unknown = [n for n in right if n != "..." and n not in meant]
    _once(right, pattern, "einsum")
    if others and "..." not in right:
        raise AxisError(f"einsum: {pattern!r} has ... on the left only, for {show_axes(others)}", fix="name what is to be summed")
    if unknown:
        raise AxisError(f"einsum: {', '.join(unknown)} on the right of {pattern!r} is on the left of no operand", fix="name it there")
    return renamed, Axes(a for n in right for a in (others if n == "..." else (meant[n],)))


def _named(names: Sequence[str], x: Op, meant: dict[str, Axis], pattern: str) -> tuple[Op, Axes]:
    """Returns an operand renamed to the axes that the names denote so far; and the axes that `...` stands for."""
    _once(names, pattern, "einsum")
    letters = {a.label for a in x.axes}
    for n in names:
        if n not in letters and len(n) > 1 and letters.issuperset(n):  # as NumPy writes it
            fix = f"write blanks between: {' '.join(n)}"
            raise AxisError(f"einsum: {n!r} in {pattern!r} is one name", details=(show_input(x),), fix=fix)
    mine = {n: find_axis(x, n, "einsum") for n in names if n != "..."}
    rest = Axes(a for a in x.axes if a not in mine.values())
    if rest and "..." not in names:
        raise AxisError(
            f"einsum: {pattern!r} does not name {show_axes(rest)} of {x.label}", details=(show_input(x),), fix="name all axes, or write ..."
        )
    to = {a: meant.setdefault(n, a) for n, a in mine.items()}
    apart = {a: b for a, b in to.items() if a != b}  # one name for axes of two scopes
    for a, b in apart.items():
        if a.length != b.length:
            raise AxisError(
                f"einsum: {a!r} and {b!r} have one name in {pattern!r}", details=(show_input(x),), fix="give them different names"
            )
    return (map_roles(x, apart) if apart else x), rest


def _pair_cost(x: Op, y: Op, stay: set[Axis]) -> float:
    """Returns the number of elements of the product of two operands, less those of the operands."""

    def size(axes: Any) -> float:
        return math.prod(float(a.length or 1) for a in axes)

    return size({a for a in (*x.axes, *y.axes) if a in stay}) - size(x.axes) - size(y.axes)


def einsum(*operands: Any, out_axes: Any = None) -> Op:
    """Returns the sum of products of any number of tensors over all axes that the result lacks.

    einsum("H K, K N -> H N", x, y): names of axes, a comma between operands, `...` for all axes that are not named.
    einsum(x, y, out_axes=[H, N]): the result's axes, in this order. Axes of one name are matched. Three operands and more are contracted in
    pairs, greedily by the smallest product relative to its operands. Raises AxisError.

    >>> ng.einsum(ng.placeholder("N=2 H=3 W=4"), ng.placeholder("H=3 K=5"), out_axes="N K").axes
    Axes(N=2, K=5)
    """
    pattern = operands[0] if operands and isinstance(operands[0], str) else None
    given = operands[1:] if pattern is not None else operands
    if not given or (pattern is None) == (out_axes is None):
        raise AxisError("einsum needs operands, and either a pattern or out_axes", fix='ng.einsum("H K, K N -> H N", x, y)')
    ops = list(arithmetic(tuple(given), {})[0])
    if pattern is not None:
        ops, out = _operands(pattern, ops)
    else:
        out = own_or_new_axes(ops, out_axes)
        unknown = [a.label for a in out if not any(a in x.axes for x in ops)]
        if unknown:
            raise AxisError(
                f"einsum: {', '.join(unknown)} is an axis of no operand", details=tuple(map(show_input, ops)), fix="ng.broadcast adds axes"
            )
    while len(ops) > 1:
        pairs = [(i, j) for i in range(len(ops)) for j in range(i + 1, len(ops))]
        costs = []
        for i, j in pairs:
            stay = {*out, *(a for k, x in enumerate(ops) if k not in (i, j) for a in x.axes)}
            costs.append((_pair_cost(ops[i], ops[j], stay), i, j, stay))
        _, i, j, stay = min(costs, key=lambda c: c[:3])
        x, y = ops[i], ops[j]
        over = tuple(dict.fromkeys(a for a in (*x.axes, *y.axes) if a not in stay))
        ops = [*(o for k, o in enumerate(ops) if k not in (i, j)), contract(x, y, over=over)]
    (result,) = ops
    gone = tuple(a for a in result.axes if a not in out)
    return axes_with_order(reduce.build(result, kind="add", axes=gone) if gone else result, out)


# ---- rearrange --------------------------------------------------------------------------------------------------------


def _groups(tokens: Sequence[str], pattern: str) -> list[str | Group]:
    """Returns names, and a tuple of names for each bracket."""
    found: list[str | Group] = []
    inner: list[str] | None = None
    for token in tokens:
        if (token == "(") == (inner is not None) and token in "()":
            raise AxisError(f"rearrange: the brackets of {pattern!r} do not match", fix="one level of ( ), closed on the same side")
        if token == "(":
            inner = []
        elif token == ")":
            found.append(tuple(inner or ()))
            inner = None
        elif token == ",":
            raise AxisError(f"rearrange: {pattern!r} names more than one tensor", fix="ng.einsum takes several")
        elif inner is None:
            found.append(token)
        else:
            inner.append(token)
    if inner is not None:
        raise AxisError(f"rearrange: the brackets of {pattern!r} do not match", fix="one level of ( ), closed on the same side")
    return found


def _flat(groups: Sequence[str | Group]) -> list[str]:
    return [n for g in groups for n in ((g,) if isinstance(g, str) else g)]


def _part_axes(axis: Axis, names: Group, lengths: dict[str, Any], pattern: str) -> list[Axis]:
    """Returns the parts of an axis: given axes, its own parts, or new ones, of which one may have no length yet."""
    own = {n: p for p in axis.family.parts or () for n in (p.short_name, p.label)}
    made: dict[str, Axis | None] = {}
    for n in names:
        given = lengths.get(n)
        made[n] = given if isinstance(given, Axis) else make_axis(int(given), name=n) if given is not None else own.get(n)
    open_names = [n for n, a in made.items() if a is None]
    known: ExprLike = product(a.size for a in made.values() if a is not None)
    whole = axis.size
    if len(open_names) > 1:
        raise AxisError(
            f"rearrange: the lengths of {', '.join(open_names)} in {pattern!r} are not known",
            fix=f"give all but one: {open_names[0]}=...",
        )
    both = isinstance(known, int) and isinstance(whole, int)
    if both and (whole != known if not open_names else known == 0 or whole % known):
        raise AxisError(
            f"rearrange: {axis!r} cannot be split into {', '.join(repr(a) if a else n for n, a in made.items())}",
            fix="give lengths that multiply to it",
        )
    for n in open_names:
        made[n] = Axis(Family(n, whole // known, {}, frozenset(), None))
    return [a for a in made.values() if a is not None]


def rearrange(x: Any, pattern: str, **lengths: Any) -> Op:
    """Returns `x` with its axes reordered, split and joined by a pattern: `rearrange(x, "N (C H) -> (N H) C", C=3)`.

    Left of the arrow are the names of x's axes, in any order; brackets split an axis that is not named, in order of appearance
    (parts that `flatten` joined are found by name). `...` stands for all other axes. On the right is the result's order; brackets join,
    the last fastest. lengths: of the parts, numbers or axes; one in each bracket may be left out. Raises AxisError; where lengths that a
    call brings do not multiply to that of the axis, the call raises BoundsError.

    >>> ng.rearrange(ng.placeholder("N=2 H=3 W=4"), "N H W -> (H W) N").axes
    Axes(H*W=12, N=2)
    """
    x = as_op(x)
    left, right = (_groups(side, pattern) for side in _sides(pattern, "rearrange"))
    names = [g for g in left if isinstance(g, str) and g != "..."]
    for side in (left, right):
        _once(_flat(side), pattern, "rearrange")
    now: dict[str, Axis] = {n: find_axis(x, n, "rearrange") for n in names}
    rest = [a for a in x.axes if a not in now.values()]
    split = [g for g in left if not isinstance(g, str)]
    dots = "..." in left
    if len(rest) < len(split) or (len(rest) > len(split) and not dots):
        raise AxisError(
            f"rearrange({x.label}): {pattern!r} names {len(now) + len(split)} axes of {show_axes(x.axes)}",
            details=(show_input(x),),
            fix="name each once, or write ... for the others",
        )
    if dots and len(rest) > len(split):
        rest = _taken_apart(rest, split)
    for axis, group in zip(rest, split, strict=False):
        parts = _part_axes(axis, group, lengths, pattern)
        now.update(zip(group, parts, strict=True))
        before = x.axes
        apart = [Axis(Family(f"{p.name}_part", p.size, {}, frozenset(), None)) if p in before else p for p in parts]  # (H r) of an axis H
        x = unflatten(x, [b for a in before for b in (apart if a is axis else (a,))])
        if apart != parts:
            x = cast_axes(x, [b for a in before for b in (parts if a is axis else (a,))])
    others = [a for a in x.axes if a not in now.values()]
    unlike = set(_flat(left)) ^ set(_flat(right))
    if unlike:
        raise AxisError(
            f"rearrange: {', '.join(sorted(unlike))} stands on one side of {pattern!r} only",
            fix="ng.sum, a slice or ng.einsum take axes away, ng.broadcast adds them",
        )
    unused = [n for n in lengths if not any(n in g for g in split)]
    if unused:
        raise AxisError(f"rearrange: {', '.join(unused)} is in no bracket of {pattern!r}")
    x = axes_with_order(x, [a for n in _flat(right) for a in (others if n == "..." else (now[n],))])
    for joined in right:
        if not isinstance(joined, str) and len(joined) > 1:
            x = flatten(x, [now[n] for n in joined])
    return x


def _taken_apart(rest: list[Axis], split: Sequence[Group]) -> list[Axis]:
    """Returns the unnamed axes that the brackets split, found by their own parts; `...` stands for the others."""
    found = []
    for group in split:
        match = [a for a in rest if a.family.parts and tuple(p.short_name for p in a.family.parts) == group]
        if len(match) != 1:
            raise AxisError(
                f"rearrange: the axis that ({' '.join(group)}) splits is not determined: {show_axes(rest)}",
                fix="name the others",
            )
        found += match
    return found
