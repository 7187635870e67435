"""`serialize_graph` and `deserialize_graph`: op-graphs as bytes, by `ngraph.op_graph.text.dumps` and `loads`.

>>> import ngraph as ng
>>> x = ng.placeholder("H=3").named("x")
>>> [op.name for op in deserialize_graph(serialize_graph([ng.exp(x).named("y")]))]
['x', 'y']
"""

from __future__ import annotations

from collections.abc import Iterable

from ngraph.op_graph.op import Op, ordered
from ngraph.op_graph.text import dumps, loads

__all__ = ["deserialize_graph", "serialize_graph"]


def serialize_graph(ops: Op | Iterable[Op], only_return_handle_ops: bool = False) -> bytes:
    """Returns the graph of all that `ops` depend on, arrays included.

    only_return_handle_ops: `deserialize_graph` gives `ops` alone; otherwise all ops of the graph, each after those that it depends on.
    """
    handles = [ops] if isinstance(ops, Op) else list(ops)
    return dumps(handles if only_return_handle_ops else ordered(handles)).encode()


def deserialize_graph(graph: bytes) -> list[Op]:
    """Returns new ops equal to those that were serialized, in their order. Raises ParseError."""
    return list(loads(graph))
