"""What a computation is, before any transformer has it: `ng.computation(returns, *parameters)`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ngraph.errors import GraphError, show_line
from ngraph.op_graph.axes import show_axes
from ngraph.op_graph.op import Op, TensorType, ordered


class ComputationOp:
    """Results and the parameters that they are computed from; `transformer.add_computation` makes it callable."""

    def __init__(self, returns: Any, parameters: Sequence[Op], name: str | None = None):
        self.returns, self.parameters, self.name = returns, tuple(parameters), name

    def __repr__(self) -> str:
        return f"<computation {self.name or ''}({', '.join(p.label for p in self.parameters)})>"


def _roots(returns: Any) -> list[Op]:
    return [] if returns is None else [returns] if isinstance(returns, Op) else list(returns)


def computation(returns: Any, *args: Any, name: str | None = None) -> ComputationOp:
    """A computation for any number of transformers: `ngt.make_transformer().add_computation(c)`.

    returns: an op, a list, tuple or set of them, or None. args: placeholders and variables whose values are the arguments, in order;
    or the one word "all", for all placeholders in the order in which they were made.
    Raises GraphError for a placeholder that is needed and not listed.
    """
    roots = _roots(returns)
    if args == ("all",):
        args = tuple(sorted((o for o in ordered(roots) if o.is_placeholder), key=lambda o: o.serial))
    elif len(args) == 1 and isinstance(args[0], (list, tuple)):
        args = tuple(args[0])
    check_parameters(roots, args)
    return ComputationOp(returns, args, name)


def check_parameters(results: Iterable[Op], parameters: Sequence[Any]) -> None:
    """Raises GraphError for what cannot be a parameter, or stands twice, and for placeholders that are needed and are none."""
    for p in parameters:
        if not isinstance(p, Op) or not (p.is_placeholder or p.is_variable):
            raise GraphError(
                f"parameter {getattr(p, 'label', repr(p))} is no placeholder", fix="pass what ng.placeholder or ng.variable made"
            )
    known = set(parameters)
    twice = [p.label for p, times in Counter(parameters).items() if times > 1]
    if twice:
        raise GraphError(f"{', '.join(twice)} stands twice among the parameters", fix="name each once")
    missing = [o for o in ordered(results) if o.is_placeholder and type(o.type) is TensorType and o not in known]
    if missing:
        raise GraphError(
            f"placeholder {', '.join(f'{o.label} {show_axes(o.axes)}' for o in missing)} is needed, and is no parameter here",
            details=tuple(f"{o.label} made at {show_line(o.line)}" for o in missing),
            fix=f"name it among the computation's parameters: computation(..., {', '.join(o.label for o in missing)})",
        )
