"""Mistakes in gradients and in the walk back, each of which `derivatives` has to find."""

from collections.abc import Callable
from typing import Any

from hunt.planting import edited
from ngraph.op_graph.opdef import REGISTRY

BACKWARD, CONTROL = "ngraph.autodiff.backward", "ngraph.autodiff.control"


def gradient(record: str, made: Callable[..., Any]) -> Callable[[], None]:
    """Gives a record another gradient."""

    def plant() -> None:
        REGISTRY[record].grad = made

    return plant


MISTAKES: dict[str, Callable[[], None]] = {
    "errors are walked": edited(  # as vjp was once: the derivative of the sum of outputs times errors
        f"{BACKWARD}:vjp",
        "slopes = [_slope(seeds, i)",
        'total = sum(reduce.build(o * e, kind="add", axes=o.axes) if o.axes else o * e for o, e in seeds)\n'
        "    slopes = [_slope(((total, None),), i)",
    ),
    "a constant stops the walk": edited(f"{BACKWARD}:_adjoints", "(i.is_constant and not constants)", "i.is_constant"),
    "constants in bodies are not met": edited(f"{BACKWARD}:_exposed", "if stand_ins:", "if False:"),
    "the second use of an op is dropped": edited(
        f"{BACKWARD}:_adjoints", "found[i] + contribution if i in found else contribution", "found.get(i, contribution)"
    ),
    "parts made twice overwrite each other": edited(f"{BACKWARD}:_adjoints", "by_part[index] + dy if index in by_part else dy", "dy"),
    "the second error of one output is dropped": edited(
        f"{BACKWARD}:_adjoints", "found[result] + start if result in found else start", "start"
    ),
    "probabilities of a loss from logits are skipped": edited(
        f"{BACKWARD}:_slope", "independent.opdef in (softmax_record, sigmoid)", "False"
    ),
    "what was broadcast is not summed": edited(f"{BACKWARD}:fit", 'kind="add"', 'kind="max"'),
    "every input of jvp moves along the first tangent": edited(
        f"{BACKWARD}:jvp",
        "zip(vjp(results, moved, errors), along, strict=True)",
        "zip(vjp(results, moved, errors), along[:1] * len(along), strict=True)",
    ),
    "the carried gradient of a scan is dropped": edited(
        f"{CONTROL}:_scan_gradient", "by_hole[h] if by_hole[h] is not None else filled", "filled"
    ),
    "a scan goes back in the order of its way forward": edited(
        f"{CONTROL}:_scan_gradient", 'reverse=not op.attrs["reverse"]', 'reverse=op.attrs["reverse"]'
    ),
    "what is the same in each trip counts once": edited(f"{CONTROL}:_scan_gradient", "total[s] + given[s]", "given[s]"),
    "the other branch of a cond": edited(
        f"{CONTROL}:_cond_gradient", "quiet(op.attrs[branch])", 'quiet(op.attrs["then" if branch == "else" else "else"])'
    ),
    "the other operand's gradient of a difference has no sign": gradient("subtract", lambda op, dy, x, y: (dy, dy)),
    "a product has one term": gradient("multiply", lambda op, dy, x, y: (dy * y, None)),
    "a quotient's second term is divided once": gradient("divide", lambda op, dy, x, y: (dy / y, -(dy * op))),
    "a root's slope lacks its half": gradient("sqrt", lambda op, dy, x: dy / op),
    "tanh' is 1 - y": gradient("tanh", lambda op, dy, x: dy * (1.0 - op)),
    "a power keeps its exponent": edited("ngraph.ops.elementwise:_power_gradient", "y - 1.0", "y"),
    "x ** 0 has a slope at 0": edited("ngraph.ops.elementwise:_power_gradient", "if not (y.is_constant", "if False and not (y.is_constant"),
    "a tie gives each its whole": edited("ngraph.ops.elementwise:_ties", "dy * 0.5, dy", "dy, dy"),
    "where passes to both": gradient("where", lambda op, dy, c, x, y: (None, dy, dy)),
    "ties of a maximum do not share": edited("ngraph.ops.reduce:_gradient", '/ reduce.build(best, kind="add", axes=axes)', ""),
    "a gather's gradient sets": edited("ngraph.ops.indexing:_gather_gradient", 'combine="add"', 'combine="set"'),
    "a strided window's gradient is shifted": edited(
        "ngraph.ops.convolution:_gradient", "(o, r, i, k, -d, s, -p)", "(o, r, i, k, -d, s, 1 - p)"
    ),
    "a filter's gradient swaps stride and dilation": edited(
        "ngraph.ops.convolution:_gradient", "(i, o, r, d, s, k, p)", "(i, o, r, s, d, k, p)"
    ),
    "softmax' lacks its sum": gradient("softmax", lambda op, dy, x: op * dy),
    "a running sum does not turn back": edited(
        "ngraph.ops.sorting:_cumulate_grad", "exclusive=exclusive, reverse=not reverse)", "exclusive=exclusive, reverse=reverse)"
    ),
    "what is sorted goes back unsorted": edited("ngraph.ops.sorting:_sort_grad", "gather(dy, went_to", "gather(dy, came_from"),
    "the error of a sequential goes to its first step": gradient("sequential", lambda op, dy, *inputs: (dy, *(None for _ in inputs[1:]))),
    "what a variable's value is read for has no derivative": gradient("value_of", lambda op, dy, x: None),
    "carries are saved along the axis that they have": edited(f"{CONTROL}:_relabelled", "if old in x.axes", "if False"),
    "a loop keeps for another what has its axis": edited("ngraph.passes.loop_cse:_repeated", ' and first.attrs["axis"] not in v.axes', ""),
    "a stopped gradient flows": gradient("stop_gradient", lambda op, dy, x: dy),
    "a constant that is renamed is not transposed": edited("ngraph.passes.fold:_in_place", "return ", "return True or "),
}
