"""Computations as data, independent of a transformer: `ng.computation(returns, *parameters)`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ngraph.errors import GraphError, show_line
from ngraph.op_graph.axes import show_axes
from ngraph.op_graph.op import Op, TensorType, ordered
from ngraph.parts import nest


class ComputationOp:
    """Results and their parameters; `transformer.add_computation` makes them callable."""

    def __init__(self, returns: Any, parameters: Sequence[Op], name: str | None = None):
        self.returns, self.parameters, self.name = returns, tuple(parameters), name

    def __repr__(self) -> str:
        return f"<computation {self.name or ''}({', '.join(p.label for p in self.parameters)})>"


def as_results(returns: Any) -> Any:
    """Returns a nest of ops for what a computation gives: a tuple for a list or another iterable, a dict by op for a set.

    Raises GraphError for what is no op.
    """
    if isinstance(returns, (set, frozenset)):
        returns = {op: op for op in sorted(returns, key=lambda op: op.serial if isinstance(op, Op) else -1)}
    elif isinstance(returns, list) or (
        nest.parts(returns) is None and not isinstance(returns, (Op, str)) and isinstance(returns, Iterable)
    ):
        returns = tuple(returns)
    for op in nest.leaves(returns):
        if not isinstance(op, Op):
            raise GraphError(f"a computation gives ops, and {op!r} is none", fix="make an op of it: ng.constant(...)")
    return returns


def computation(returns: Any, *args: Any, name: str | None = None) -> ComputationOp:
    """Returns a computation that any number of transformers can run: `ngt.make_transformer().add_computation(c)`.

    returns: an op, a set of ops, or a nest of them, as in `transformer.computation`; or None. args: placeholders and variables whose
    values are the arguments, in order; or the one word "all", for all placeholders in order of creation.
    Raises GraphError for a placeholder that is needed and not listed.

    >>> import ngraph.transformers as ngt
    >>> x = ng.placeholder(())
    >>> float(ngt.make_transformer().add_computation(ng.computation(x + 1, x))(2))
    3.0
    """
    roots = nest.leaves(as_results(returns))
    if args == ("all",):
        args = tuple(sorted((o for o in ordered(roots) if o.is_placeholder), key=lambda o: o.serial))
    elif len(args) == 1 and isinstance(args[0], (list, tuple)):
        args = tuple(args[0])
    check_parameters(roots, args)
    return ComputationOp(returns, args, name)


def check_parameters(results: Iterable[Op], parameters: Sequence[Any]) -> None:
    """Raises GraphError for an invalid or repeated parameter, and for placeholders that the results need and that are no parameters."""
    for p in parameters:
        if not isinstance(p, Op) or not (p.is_placeholder or p.is_variable):
            raise GraphError(
                f"parameter {getattr(p, 'label', repr(p))} is not a placeholder", fix="pass what ng.placeholder or ng.variable made"
            )
    known = set(parameters)
    twice = [p.label for p, times in Counter(parameters).items() if times > 1]
    if twice:
        raise GraphError(f"{', '.join(twice)} occurs twice among the parameters", fix="name each once")
    missing = [o for o in ordered(results) if o.is_placeholder and type(o.type) is TensorType and o not in known]
    if missing:
        raise GraphError(
            f"placeholder {', '.join(f'{o.label} {show_axes(o.axes)}' for o in missing)} is needed, and is not a parameter here",
            details=tuple(f"{o.label} made at {show_line(o.line)}" for o in missing),
            fix=f"name it among the computation's parameters: computation(..., {', '.join(o.label for o in missing)})",
        )
