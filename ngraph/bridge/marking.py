"""First phase: which nodes are ours, and for the others why not.

A node is ours where the importer translates its op, its values have dtypes of ours, it has no state, and it is never dead. A marked node
whose value follows from constants and shapes alone is `known`: it stands in each cluster that uses it, because shapes are read from it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from math import prod
from typing import Any

from ngraph.bridge.flatten import TypedFunction, TypedNode, definition, functions_used, stateful
from ngraph.frontends.tensorflow import table, translate
from ngraph.frontends.tensorflow.dtypes import NUMBERS, type_name
from ngraph.frontends.tensorflow.graph import node_of
from ngraph.frontends.tensorflow.structure import PRIMITIVES
from ngraph.frontends.tensorflow.support import REFUSED
from ngraph.parts.walk import post_order

__all__ = ["Marks", "in_order", "mark", "translate"]

_NAMES = "FLOAT DOUBLE HALF BFLOAT16 INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 BOOL".split()
DTYPES = frozenset(NUMBERS[f"DT_{name}"] for name in _NAMES)  # of values that enter and leave clusters
VARIANT = NUMBERS["DT_VARIANT"]  # lists of tensors, within clusters only
BRANCHES = frozenset(
    {"If", "StatelessIf", "Case", "StatelessCase", "While", "StatelessWhile"}
)  # ops whose state is that of their functions
LISTS = ("TensorList", "EmptyTensorList", "Identity", "ZerosLike", "AddN")  # how ops begin that take lists of tensors, beside those
FROM_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank"})
SHORT = frozenset({"BroadcastGradientArgs"})  # ops whose results are axes, of which only the number is open
MOST_KNOWN = 64  # elements of a known value that is not a constant: shapes have at most 8 lengths, axes of two of them 16
STATIC: Mapping[str, tuple[int, ...]] = {  # inputs that decide shapes, so that they have to be known
    **dict.fromkeys("Any All ArgMax ArgMin Max Mean Min Prod Sum ExpandDims OneHot Pad PadV2 MirrorPad Reshape Tile TopKV2".split(), (1,)),
    **dict.fromkeys("Transpose BroadcastTo Cumsum Cumprod ReverseV2 ResizeBilinear ResizeNearestNeighbor".split(), (1,)),
    "ResizeNearestNeighborGrad": (1,),
    **dict.fromkeys("AvgPoolGrad Conv2DBackpropInput Conv3DBackpropInputV2 Fill Split StatelessRandomUniformV2".split(), (0,)),
    **dict.fromkeys("DepthwiseConv2dNativeBackpropInput StatelessRandomNormalV2 StatelessTruncatedNormalV2".split(), (0,)),
    **dict.fromkeys("Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter".split(), (1,)),
    **dict.fromkeys("Slice SplitV".split(), (1, 2)),
    **dict.fromkeys("StridedSlice TensorStridedSliceUpdate".split(), (1, 2, 3)),
    "StridedSliceGrad": (0, 1, 2, 3),
    "GatherV2": (2,),
    "Range": (0, 1, 2),
    "ConcatV2": (-1,),
    "LinSpace": (2,),
    **dict.fromkeys("UnsortedSegmentSum ScatterNd SparseTensorDenseMatMul HistogramFixedWidth".split(), (2,)),
    **dict.fromkeys("CumulativeLogsumexp SparseToDense Bincount DenseBincount RFFT IRFFT Mfcc Multinomial".split(), (1,)),
    **dict.fromkeys("SegmentMean SegmentMax SegmentMin SegmentProd".split(), (1,)),
    **dict.fromkeys("SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN".split(), (2,)),
    **dict.fromkeys((f"SparseSegment{kind}WithNumSegments" for kind in ("Sum", "Mean", "SqrtN")), (3,)),
    **dict.fromkeys(("CropAndResize", "QuantizeAndDequantizeV3"), (3,)),
    "Empty": (0,),
    "TensorListStack": (1,),
    "TensorListReserve": (0, 1),
    "TensorListFromTensor": (1,),
}


class Marks:
    """The result of marking. reasons: for each node that is not ours, why; ours: the others; known: those of them that are known values."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        self.ours: dict[str, None] = {}
        self.known: set[str] = set()


def in_order(function: TypedFunction) -> list[TypedNode]:
    """Returns the nodes, each behind those that it needs, but for what the last turn of a loop of TensorFlow 1 gives."""
    nodes = function.nodes

    def needs(name: str) -> list[str]:
        node = nodes[name]
        before = (
            [node_of(v) for v in node.takes]
            if node.op != "Merge"
            else [n for v in node.takes if (n := node_of(v)) not in nodes or nodes[n].op != "NextIteration"]
        )
        return [n for n in (*before, *node.after) if n in nodes]

    return [nodes[name] for name in post_order(nodes, needs)]


def mark(function: TypedFunction, disabled: Container[str] = (), failed: Mapping[str, str] | None = None) -> Marks:
    """Returns which nodes are ours. disabled: ops that stay TensorFlow's; failed: nodes of clusters that have failed, with the reason."""
    marks, dead = Marks(), _may_be_dead(function)
    for node in in_order(function):
        reason = (failed or {}).get(node.name, "") or _reason(function, node, disabled, node.name in dead)
        if not reason:
            reason = _unknown(function, node, marks)
        if reason:
            marks.reasons[node.name] = reason
        else:
            marks.ours[node.name] = None
            if _is_known(node, marks):
                marks.known.add(node.name)
    return marks


def _reason(function: TypedFunction, node: TypedNode, disabled: Container[str], dead: bool) -> str:
    """Returns why a node is not ours by itself; "" where it is."""
    if node.op in disabled:
        return "the op is disabled"
    if node.op == "NoOp":
        return "it computes nothing"
    if node.op in table.IN_PYTHON:
        return "it would run in Python, or values decide its lengths"
    if node.op not in table.TABLE or node.op in REFUSED:
        return "it has state" if stateful(node.op) else "no translation"
    if dead:
        return "it may be dead (control flow of TensorFlow 1)"
    device = node.proto.device if node.proto is not None else ""
    if device and "CPU:0" not in device.upper():
        return f"it is placed on {device}"
    if node.op in BRANCHES:
        inner = _body_reason(node.proto, disabled)
        if inner:
            return inner
    elif stateful(node.op) and not node.op.startswith("TensorList"):
        return "it has state"
    numbers = {*node.dtypes, *(function.dtype(v) for v in node.takes)}
    if VARIANT in numbers and not (node.op in BRANCHES or node.op.startswith(LISTS)):
        return "no translation for lists of tensors"
    for number in numbers:
        if number not in DTYPES and number != VARIANT:
            return f"it has values of {type_name(number)}" if number != NUMBERS["DT_RESOURCE"] else "it has state"
    return ""


def _body_reason(proto: Any, disabled: Container[str]) -> str:
    """Returns why the functions of a branch or loop are not ours; "" where they are."""
    for name in functions_used([proto]):
        for node in definition(name).node_def:
            if node.op in disabled:
                return f"its function has {node.op}, which is disabled"
            if node.op in table.IN_PYTHON:
                return f"its function has {node.op}, which would run in Python, or whose lengths values decide"
            if definition(node.op) is None and node.op not in table.TABLE:
                return f"its function has {node.op}: no translation"
            if stateful(node.op) and node.op not in BRANCHES and definition(node.op) is None and not node.op.endswith("PartitionedCall"):
                return f"its function has {node.op}, which has state"
    return ""


def _unknown(function: TypedFunction, node: TypedNode, marks: Marks) -> str:
    """Returns why an input that decides shapes is not known; "" where all such inputs are."""
    for k in range(len(node.takes) // 2) if node.op.endswith("DynamicStitch") else STATIC.get(node.op, ()):
        value = node.takes[k]
        if node_of(value) not in marks.known:
            return f"its input {k % len(node.takes)} decides shapes, and is computed"
    return ""


def _is_known(node: TypedNode, marks: Marks) -> bool:
    if node.op == "Const" or node.op in FROM_SHAPES:
        return True
    small = node.op in SHORT or all(
        s is not None and None not in s and prod(n for n in s if n is not None) <= MOST_KNOWN for s in node.shapes
    )
    return small and bool(node.takes) and node.op not in BRANCHES and all(node_of(v) in marks.known for v in node.takes)


def _may_be_dead(function: TypedFunction) -> set[str]:
    """Returns nodes that run in some calls only, or several times: between a Switch and its Merge, and in loops of TensorFlow 1."""
    if not any(node.op.removeprefix("Ref") in PRIMITIVES for node in function.nodes.values()):
        return set()
    under: dict[str, frozenset[str]] = {}
    frames: dict[str, frozenset[str]] = {}  # around each frame
    for node in in_order(function):
        before = [under[n] for n in (*map(node_of, node.takes), *node.after) if n in under]
        found: frozenset[str] = frozenset().union(*before)
        kind = node.op.removeprefix("Ref")
        if kind == "Switch":
            found |= {f"switch {function.maker(node.takes[1]) and node_of(node.takes[1])}"}
        elif kind == "Enter":
            frame = f"frame {node.proto.attr['frame_name'].s.decode('utf-8', 'replace')}"
            frames.setdefault(frame, found)
            found |= {frame}
        elif kind == "Merge" and before:
            found = frozenset.intersection(*before)
        elif kind == "Exit":
            inner = [f for f in found if f in frames]
            found = min((frames[f] for f in inner), key=len, default=frozenset()) if len(inner) == 1 else found
        under[node.name] = found
    return {name for name, found in under.items() if found}


def counted(reasons: Mapping[str, str], function: TypedFunction) -> dict[str, dict[str, int]]:
    """Returns how often each op was left, by op and reason."""
    found: dict[str, dict[str, int]] = {}
    for name, reason in reasons.items():
        by_reason = found.setdefault(function.nodes[name].op, {})
        by_reason[reason] = by_reason.get(reason, 0) + 1
    return found


def without(marks: Marks, names: Iterable[str], reason: str) -> None:
    """Takes marks away."""
    for name in names:
        marks.ours.pop(name, None)
        marks.known.discard(name)
        marks.reasons[name] = reason
