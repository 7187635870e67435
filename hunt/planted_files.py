"""Mistakes in reading and in writing ONNX files, each of which `files` has to find."""

import importlib
from collections.abc import Callable

from hunt.planting import edited
from ngraph.frontends.onnx import table

READ, SHARED, WRITE = "ngraph.frontends.onnx", "ngraph.frontends.positional", "ngraph.export.onnx"


def translator(where: str, old: str, new: str) -> Callable[[], None]:
    """Edits the function that translates an op, in the table of translators too."""
    module, name = where.split(":")

    def plant() -> None:
        room = importlib.import_module(module)
        right = getattr(room, name)
        edited(where, old, new)()
        for rows in table.TABLE.values():
            rows[:] = [(since, getattr(room, name) if function is right else function) for since, function in rows]

    return plant


MISTAKES: dict[str, Callable[[], None]] = {
    # what is read
    "a known index below 0 is not counted from the end": edited(
        f"{SHARED}.indexing:index_along", "return i if (known >= 0).all() else e.where(e.less(i, 0), i + size, i)", "return i"
    ),
    "a slice backwards from beyond the end leaves out the last": edited(
        f"{SHARED}.shapes:slices", "bound(g, first, size, 0, size - 1)", "bound(g, first, size, 0, size - 2)"
    ),
    "a slice by a step gives one too few where it does not come out even": edited(
        f"{SHARED}.shapes:slices", "(span + (abs(step) - 1)) // abs(step)", "span // abs(step)"
    ),
    "what is joined is read in the wrong order": edited(f"{SHARED}.shapes:joined", "concat.build(*ops,", "concat.build(*ops[::-1],"),
    "an edge is padded with zeros behind": edited(
        f"{SHARED}.shapes:padded", "expr.minimum(expr.maximum(i, 0), size - 1)", "expr.maximum(i, 0)"
    ),
    "padding before and behind change places": edited(
        f"{SHARED}.windows:windows", "before, after = pads[j], pads[j + k]", "before, after = pads[j + k], pads[j]"
    ),
    "a mean over a window counts the padding": translator(f"{READ}.layers:average_pool", 'bool(n.attr("count_include_pad", 0))', "True"),
    "the epsilon of a file is not read": translator(f"{READ}.layers:layer_norm", 'n.attr("epsilon", 1e-5)', "1e-5"),
    "a softmax is along the last dim whatever the axis": translator(
        f"{READ}.arithmetic:softmax", "axis = axis % t.rank if t.rank", "axis = t.rank - 1 if t.rank"
    ),
    "a running sum backwards runs forwards": edited(f"{SHARED}.reductions:cumulated", "reverse=reverse", "reverse=False"),
    "the factor of Gemm goes to the bias too": edited(f"{SHARED}.products:gemm", "scaled(q, beta)", "scaled(q, alpha)"),
    "the branches of a tree change places where the threshold is negative": edited(
        f"{READ}.trees:walked", "this = tests[k](value, edge)", "this = tests[k](value, e.absolute(edge))"
    ),
    # what is written
    "an order of dims is written as its inverse": edited(
        f"{WRITE}.writer:GraphWriter._rearrange",
        "order, target = [now.dims.index(a) for a in wanted], wanted",
        "order, target = [wanted.index(a) for a in now.dims], wanted",
    ),
    "a slice is written to the end where one is left": edited(
        f"{WRITE}.moving:_Read.slice", "END if all(a >= b for a, b", "END if all(a + 1 >= b for a, b"
    ),
    "paddings are written in the wrong order": edited(
        f"{WRITE}.moving:_Read.padded", "before if k == at else after if k == at + rank", "after if k == at else before if k == at + rank"
    ),
    "the axes of a reduction are counted without dims of length 1": edited(
        f"{WRITE}.rules:reduced", "places = [x.dims.index(a) for a in axes]", "places = [x.axes.index(a) for a in axes]"
    ),
    "strides that are alike are not written": edited(
        f"{WRITE}.products:windowed", "if set(strides) != {1} else", "if len(set(strides)) > 1 else"
    ),
    "a window's padding behind is the one before": edited(
        f"{WRITE}.products:ends", "return min(max(before, span), span + stride - 1)", "return before"
    ),
    "the bias of a product is written twice": edited(
        f"{WRITE}.rules:_biased",
        "maker.inputs.append(w.arranged(bias, bias.axes).name)\n            return x",
        "maker.inputs.append(w.arranged(bias, bias.axes).name)\n            return None",
    ),
}
