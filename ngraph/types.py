"""Names for `isinstance` and annotations. There is one class of ops; an op's record and flags define its kind.

Words: docs/glossary.md.
"""

from __future__ import annotations

from typing import Any

from ngraph.op_graph.axes import Axes, Axis
from ngraph.op_graph.names import NameScope, get_object_by_name
from ngraph.op_graph.op import Op
from ngraph.runtime.computation import Computation
from ngraph.transformers import Transformer


class _Kind(type):
    """A metaclass whose `isinstance` is a predicate, independent of the class that made the object."""

    def __instancecheck__(cls, x: Any) -> bool:
        return bool(cls.holds(x))  # type: ignore[attr-defined]  # each subclass has it


class TensorOp(metaclass=_Kind):
    """Ops that have one value with axes and a dtype."""

    holds = staticmethod(lambda x: isinstance(x, Op) and x.is_tensor_op)


class AssignableTensorOp(metaclass=_Kind):
    """Ops that hold a value: constants, placeholders, variables of all kinds."""

    holds = staticmethod(lambda x: isinstance(x, Op) and (x.is_constant or x.is_state_op))


class NameableValue(metaclass=_Kind):
    """Objects that `named` gives a name: ops and axes."""

    holds = staticmethod(lambda x: isinstance(x, (Op, Axis)))
    get_object_by_name = staticmethod(get_object_by_name)


__all__ = ["AssignableTensorOp", "Axes", "Axis", "Computation", "NameScope", "NameableValue", "Op", "TensorOp", "Transformer"]
