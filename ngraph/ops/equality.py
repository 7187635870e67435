"""`p == q` and `p != q`: a bool tensor where it is used as one, identity where a list or tuple searches for an op (decision 0019).

>>> import ngraph as ng
>>> p, q = ng.placeholder(()), ng.placeholder(())
>>> (p == q) & True, p in [q, p]
(<bitwise: bool[]>, True)
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from ngraph.errors import GraphError, NgraphError
from ngraph.op_graph.op import Op, collecting_lists, made_for, place_of_now
from ngraph.ops.elementwise import equal, not_equal

# instructions by which `if`, `while`, `assert`, `and`, `or` and `not` test a truth value, in CPython 3.11 and later
TESTS = frozenset(n for n in dis.opmap if n.startswith(("POP_JUMP_", "JUMP_IF_")) and "NONE" not in n) | {"UNARY_NOT", "TO_BOOL"}
COMPARE_AND_TEST = 16  # this bit of COMPARE_OP's argument requests conversion to bool, from CPython 3.13 on
TENSORS = (Op, bool, int, float, complex, np.ndarray, np.generic, list, tuple)  # types that a tensor may be compared with


def tested(frame: FrameType) -> bool:
    """Whether the frame's current instruction tests a truth value, rather than calls or searches a container."""
    code, at = frame.f_code.co_code, frame.f_lasti
    name = dis.opname[code[at]]
    return name in TESTS or (name == "COMPARE_OP" and sys.version_info >= (3, 13) and bool(code[at + 1] & COMPARE_AND_TEST))


class Equality(Op):
    """`x == y` or `x != y` before its use as a tensor; the first access to an attribute turns it into an ordinary op.

    Searches in lists and tuples compare many pairs and use only the truth of each, which is identity.
    """

    __slots__ = ()

    def __init__(self, x: Op, y: Any, negated: bool):
        pending = x, y, negated, place_of_now()
        object.__setattr__(self, "attrs", pending)

    def __getattribute__(self, name: str) -> Any:
        if name in Op.__slots__:
            _build(self)
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _build(self)
        setattr(self, name, value)

    def __bool__(self) -> bool:
        x, y, negated, _ = object.__getattribute__(self, "attrs")
        if not tested(sys._getframe(1)):
            return (x is y) is not negated
        sign, same = ("!=", "is not") if negated else ("==", "is")
        raise GraphError(
            f"{_shown(x)} {sign} {_shown(y)} has no value while the graph is built, so it is neither true nor false",
            fix=f"ng.where(x {sign} y, a, b) chooses by value" + f"; x {same} y asks whether both are one op" * isinstance(y, Op),
        )


def _build(e: Equality) -> None:
    """Turns it into its op, whose source is the line of the comparison. Raises AxisError, DTypeError with that line."""
    x, y, negated, place = object.__getattribute__(e, "attrs")
    try:
        with made_for(place):
            made = (not_equal if negated else equal)(x, y)
    except NgraphError as error:
        raise error.at(place.line) from None
    for kept in collecting_lists():
        kept[-1] = e
    object.__setattr__(e, "__class__", Op)
    for slot in Op.__slots__[:-1]:  # all but __weakref__
        setattr(e, slot, getattr(made, slot))


def _shown(x: Any) -> str:
    """Returns an operand as errors print it."""
    if type(x) is Equality:
        a, b, negated, _ = object.__getattribute__(x, "attrs")
        return f"({_shown(a)} {'!=' if negated else '=='} {_shown(b)})"
    if isinstance(x, Op):
        return x.label
    return repr(x) if isinstance(x, (bool, int, float)) else f"the {type(x).__name__}"


def _comparison(negated: bool) -> Callable[[Op, Any], Any]:
    def compare(x: Op, y: Any) -> Any:
        if isinstance(y, TENSORS) or hasattr(type(y), "__array__") or hasattr(type(y), "__dlpack__"):
            return Equality(x, y, negated)
        return NotImplemented

    return compare


Op.__eq__ = _comparison(False)  # type: ignore[method-assign, assignment]  # object's give bool
Op.__ne__ = _comparison(True)  # type: ignore[method-assign, assignment]  # object's give bool
