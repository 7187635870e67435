"""`reindex` as a reshape, as slices, as a strided view, or, where it is none of these, by index arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ngraph.numpy_ops.lines import Dims, Use, Variable, VariableRef
from ngraph.numpy_ops.translate import LINES, Translator, exact
from ngraph.op_graph import expr
from ngraph.op_graph.dtypes import REGISTRY as DTYPES
from ngraph.op_graph.expr import Bin, Expr, ExprLike, Idx
from ngraph.program.program import AxisId, Step


def affine(e: ExprLike) -> tuple[ExprLike, dict[AxisId, ExprLike]] | None:
    """Returns start, {axis: coefficient}; None where the expression is not affine."""
    if isinstance(e, Idx):
        return 0, {e.of: 1}
    if not isinstance(e, Bin):
        return e, {}
    if not any(type(leaf) is Idx for leaf in expr.leaves(e)):
        return e, {}
    if e.op not in ("+", "-", "*"):
        return None
    a, b = affine(e.a), affine(e.b)
    if a is None or b is None:
        return None
    if e.op == "*":
        if a[1] and b[1]:
            return None
        (start, moves), factor = (a, b[0]) if a[1] else (b, a[0])
        return start * factor, {k: c * factor for k, c in moves.items()}
    sign = 1 if e.op == "+" else -1
    moves = dict(a[1])
    for k, c in b[1].items():
        moves[k] = moves.get(k, 0) + c * sign
    return a[0] + b[0] * sign, {k: c for k, c in moves.items() if not (type(c) is int and c == 0)}


def digit(e: ExprLike) -> tuple[AxisId, ExprLike, ExprLike | None] | None:
    """Returns (axis, divisor, modulus) of Idx(axis) // divisor % modulus; None for another form."""
    modulus: ExprLike | None = None
    divisor: ExprLike = 1
    if isinstance(e, Bin) and e.op == "%":
        modulus, e = e.b, e.a
    if isinstance(e, Bin) and e.op == "//":
        divisor, e = e.b, e.a
    return (e.of, divisor, modulus) if isinstance(e, Idx) else None


def _flatten(t: Translator, x: VariableRef, index: Mapping[AxisId, ExprLike], sizes: Mapping[AxisId, ExprLike]) -> VariableRef | None:
    """Returns axes read at the digits of one index as one axis, by a reshape. None where the index has another form."""
    groups: dict[AxisId, list[tuple[AxisId, ExprLike, ExprLike | None]]] = {}
    for a in x.dims:
        found = digit(index[a])
        if found is None:
            return None
        groups.setdefault(found[0], []).append((a, found[1], found[2]))
    order: list[AxisId] = []
    for joined, parts in groups.items():
        sequence: list[AxisId] = []
        divisor: ExprLike = 1
        left = list(parts)
        while left:
            part = next((p for p in left if p[1] == divisor and (p[2] == sizes[p[0]] or (p[2] is None and len(left) == 1))), None)
            if part is None:
                return None
            left.remove(part)
            sequence.insert(0, part[0])
            divisor = divisor * sizes[part[0]]
        if not _same(divisor, t.length(joined)):
            return None
        order += sequence
    x = t.permuted(x, tuple(order))
    if len(order) == len(groups):
        return VariableRef(x.var, tuple(groups))
    return t.view(x, ".reshape", *t.shape(groups), dims=tuple(groups))


def _factors(e: ExprLike) -> tuple[int, list[ExprLike]]:
    if isinstance(e, Bin) and e.op == "*":
        (m, a), (n, b) = _factors(e.a), _factors(e.b)
        return m * n, a + b
    return (e, []) if isinstance(e, int) else (1, [e])


def _same(a: ExprLike, b: ExprLike) -> bool:
    """Whether two lengths are provably equal: as products, in any order."""
    if a == b:
        return True
    (m, x), (n, y) = _factors(a), _factors(b)
    return m == n and len(x) == len(y) and all(f in y for f in x) and all(f in x for f in y)


def _slices(
    t: Translator, x: VariableRef, forms: Mapping[AxisId, tuple[ExprLike, dict[AxisId, ExprLike]]], sizes: Mapping[AxisId, ExprLike]
) -> VariableRef | None:
    """Returns a read by NumPy's own slices, where each axis of the result moves along one of x. None where that is impossible."""
    where: list[Any] = []
    dims: list[AxisId] = []
    for a in x.dims:
        start, moves = forms[a]
        n = sizes[a]
        if len(moves) > 1:
            return None
        if not moves:
            if type(start) is not int or type(n) is not int or not 0 <= start < n:
                return None
            where.append(start)
            continue
        ((axis, step),) = moves.items()
        length = t.length(axis)
        if axis in dims or type(step) is not int or step == 0:
            return None
        if start == 0 and step == 1 and _same(length, n):
            where.append(slice(None))
        elif type(start) is int and type(n) is int and type(length) is int:
            last = start + step * (length - 1)
            if length == 0:
                where.append(slice(0, 0))  # with any start: NumPy counts a negative one from the end
            elif 0 <= start < n and 0 <= last < n:
                stop = last + (1 if step > 0 else -1)
                where.append(slice(start, stop if stop >= 0 else None, None if step == 1 else step))
            else:
                return None
        else:
            return None
        dims.append(axis)
    if all(w == slice(None) for w in where):
        return VariableRef(x.var, tuple(dims))
    return t.view(x, "[]", tuple(where), dims=tuple(dims))


@LINES.of("reindex")
def _reindex(t: Translator, step: Step, axes: Dims, index: Any, predicate: tuple[ExprLike, ...], pad_value: Any) -> VariableRef:
    x = t.typed(t.input(step, 0))
    reads = {a: t.settle(e) for a, e in index}
    predicates = [t.settle(g) for g in predicate]
    x = t.full(x, x.dims + tuple([a for a, e in reads.items() if a not in x.dims and not _inside(t, e, t.length(a))]))
    reads = {a: e for a, e in reads.items() if a in x.dims}
    sizes = {a: t.length(a) for a in x.dims}
    pad_value = exact(pad_value, x.var.dtype)
    if not predicates:
        flat = _flatten(t, x, reads, sizes)
        if flat is not None:
            return flat
    for a, e in reads.items():  # every c-th place, by a predicate on the remainder: dilate x first
        if isinstance(e, Bin) and e.op == "//" and type(e.b) is int and 0 - e.a % e.b in predicates and affine(e.a) is not None:
            predicates.remove(0 - e.a % e.b)
            sizes[a] = expr.maximum((sizes[a] - 1) * e.b + 1, 0)
            shape = tuple([sizes[b] for b in x.dims])
            var = t.emit("spread", (x.var, x.dims.index(a), e.b, pad_value), Variable(t.hint, x.var.dtype, shape))
            x, reads[a] = VariableRef(var, x.dims), e.a
    forms = {a: form for a, e in reads.items() if (form := affine(e)) is not None}
    if not predicates and len(forms) == len(reads):
        return _slices(t, x, forms, sizes) or _strided(t, x, forms, axes, pad_value)
    return _indexed(t, x, reads, predicates, axes, pad_value)


def _inside(t: Translator, e: ExprLike, n: ExprLike) -> bool:
    """Whether an index is provably within its axis."""
    form = affine(e)
    if form is None or type(n) is not int or type(form[0]) is not int:
        return False
    low = high = form[0]
    for a, c in form[1].items():
        length = t.length(a)
        if type(length) is not int or type(c) is not int:
            return False
        low += min(0, c * (length - 1))
        high += max(0, c * (length - 1))
    return low >= 0 and high < n


def _strided(
    t: Translator, x: VariableRef, forms: Mapping[AxisId, tuple[ExprLike, dict[AxisId, ExprLike]]], axes: Dims, pad_value: Any
) -> VariableRef:
    moving = {a for _, moves in forms.values() for a in moves}
    dims = tuple([a for a in axes if a in moving])
    terms = tuple([(forms[a][0], tuple([(dims.index(b), c) for b, c in forms[a][1].items()])) for a in x.dims])
    made = t.view(x, "strided", terms, t.shape(dims), pad_value, dims=dims)
    made.var.windows = frozenset(b for _, moves in forms.values() if len(moves) > 1 for b in moves)
    return made


def _indexed(
    t: Translator, x: VariableRef, reads: Mapping[AxisId, ExprLike], predicates: Sequence[ExprLike], axes: Dims, pad_value: Any
) -> VariableRef:
    moving = {leaf.of for e in (*reads.values(), *predicates) for leaf in expr.leaves(e) if type(leaf) is Idx}
    dims = tuple([a for a in axes if a in moving])
    places: dict[AxisId, Expr] = {}
    for a in dims:
        along = t.emit("np.arange", (t.length(a),), Variable(str(a).lower(), DTYPES["int64"], t.shape((a,))))
        places[a] = Use(t.aligned(VariableRef(along, (a,)), dims).var)

    def placed(e: ExprLike) -> ExprLike:
        return expr.substitute(e, lambda leaf: places[leaf.of] if type(leaf) is Idx else leaf)

    indices = tuple([placed(reads[a]) for a in x.dims])
    return t.make("indexed", x.var, indices, t.shape(dims), tuple(map(placed, predicates)), pad_value, dims=dims, dtype=x.var.dtype)
