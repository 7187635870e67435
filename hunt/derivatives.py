"""First and second derivatives of random compositions of functions, compared with finite differences by NumPy and with PyTorch.

A case is a straight line of steps, each a function of `differentiable.ROWS` on values made before, and a question: the derivative of
some values (`outputs`) by others (`by`: leaves, constants among them, or values on the way) by `deriv`, `vjp` or `jvp`, with weights
that are numbers or values of the case; and the derivative of that result by the leaves `second`. What ngraph gives is compared

- with central differences in float64 of the steps as NumPy computes them, in a direction for each answer;
- with PyTorch's automatic differentiation in float64, each element.

A case of kind "edge" is one function at zeros, infinities, NaN and ties, compared with PyTorch alone (`edges.py` lists differences).
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

import ngraph as ng
import ngraph.transformers as ngt
from hunt import edges
from hunt.differentiable import HELPERS, MOST, ROWS, Draw, Value, lined, text
from ngraph.op_graph.opdef import REGISTRY

EPSILON = 2.0**-52  # of float64
STEP = 3e-4  # of a difference: the fourth-order error of two of them, h^4, and rounding, eps / h, are both below 1e-11 here
SURE = 1e-5  # by how much of it two differences of a slope may differ: beyond that, 1 case in 100, values bend within a step
LARGEST = 30.0  # a value of a case: differences of larger ones round too much
NAMES = sorted(ROWS)
LIKELY = (*NAMES, *["scan"] * 8, *["cond", "checkpoint"] * 2)  # control is one row each, and much can go wrong in it
MEETINGS = (  # rows that have a form of their own where they meet
    ("softmax", "cross-entropy of shares"),
    ("sigmoid", "binary cross-entropy of shares"),
    ("axes_with_order", "cast_axes"),
)
WITH_NUMBERS = ("add", "subtract", "multiply", "divide")  # where a float32 number meets float64
# compiling a case takes `cpu` about 30 times as long as the others need for all: one case in 8 keeps half of the time for it
TRANSFORMERS = ("cpu", *["numpy"] * 4, *["direct"] * 3)

torch.set_num_threads(1)


# ---- drawing -----------------------------------------------------------------------------------------------------------


def draw(seed: int) -> Any:
    """One case in ten is an edge, the others are compositions."""
    if seed % 10 == 9:
        return edges.draw(seed)
    d = Draw(seed)
    while True:
        case = _composition(d)
        if case is not None:
            return _opened(case, seed)


def _opened(case: Any, seed: int) -> Any:
    """Returns the case with some axes of open length: of those that placeholders alone have, where all its steps have a type without it."""
    fixed = {a for x in case["leaves"] if x["kind"] != "placeholder" for a in x["axes"]}
    there = {a for x in case["leaves"] for a in x["axes"]}
    r = random.Random(seed)  # of its own, so that the compositions of seeds stay
    chosen = [a for a in case["lengths"] if a in there - fixed and r.random() < 0.5]
    if any("assign" in line or "effects" in line for line in _lines(case)):  # a helper's own variable, which needs lengths
        return case
    made = {**case, "open": chosen}
    if chosen:
        try:
            _built(made)
        except (ng.NgraphError, TypeError):  # numpy and lists of lengths that a step makes
            return case
    return made if chosen else case


def _leaf(d: Draw, base: Sequence[str]) -> Any:
    axes = d.some(base)
    axes = [axes[k] for k in d.rng.permutation(len(axes))]
    kind = d.one(["placeholder", "placeholder", "variable", "constant", "number"])
    if kind == "number":
        return {"kind": kind, "axes": [], "value": d.whole(-12, 12) / 8 or 0.5}
    return {"kind": kind, "axes": axes, "value": d.numbers(axes).tolist()}


def _composition(d: Draw) -> Any:
    """Returns steps, most of which take the previous value, and a question. In some cases all leaves are constants, which are folded."""
    d.lengths.clear()
    base = [d.axis(d.whole(1, 4)) for _ in range(d.whole(1, 3))]
    leaves = [_leaf(d, base) for _ in range(d.whole(2, 4))]
    leaves[0] = {"kind": "placeholder", "axes": base, "value": d.numbers(base).tolist()}
    if d.chance(0.1):
        leaves = [{**x, "kind": "constant"} if x["kind"] != "number" else x for x in leaves]
    values = [(tuple(x["axes"]), np.array(x["value"], np.float64)) for x in leaves]
    steps: list[Any] = []
    wanted = d.whole(1, 7)
    names = list(d.one(MEETINGS)) if d.chance(0.08) else []
    for _ in range(80):
        if len(steps) >= wanted and not names:
            break
        step = _step(d, names[0] if names else d.one(LIKELY), leaves, values)
        if step is not None and (not steps or len(values) - 1 in step[0][1] or (not names and d.chance(0.3))):
            steps.append(step[0])
            values.append(step[1])
            del names[:1]
    if not steps:
        return None
    before = _ancestors(steps, len(leaves), len(values) - 1)
    return {"lengths": dict(d.lengths), "leaves": leaves, "steps": steps, **_question(d, leaves, values, before)}


def _ancestors(steps: Sequence[Any], count: int, of: int) -> list[int]:
    """Returns the values that `of` depends on, itself included; the first `count` are leaves."""
    found = {of}
    for k in range(of, count - 1, -1):
        if k in found:
            found.update(steps[k - count][1])
    return sorted(found)


def _step(d: Draw, name: str, leaves: Sequence[Any], values: Sequence[Value]) -> Any:
    row = ROWS[name]
    made = row.choose(d, values)
    if made is None:
        return None
    picked, attrs = made
    numbers = [k for k in picked if k < len(leaves) and leaves[k]["kind"] == "number"]
    if numbers and (len(numbers) == len(picked) or name not in WITH_NUMBERS):
        return None
    with np.errstate(all="ignore"):
        value = row.numpy(attrs, *(values[k] for k in picked))
    array = value[1]
    if array.size > MOST or not np.all(np.isfinite(array)) or np.abs(array).max(initial=0) > LARGEST:
        return None
    return [name, picked, attrs], value


def _weight(d: Draw, value: Value, values: Sequence[Value]) -> Any:
    """Returns a factor for a value: another value of its axes or fewer, or numbers."""
    fits = [k for k, (axes, _) in enumerate(values) if set(axes) <= set(value[0])]
    if fits and d.chance(0.6):
        return d.one(fits)
    axes = list(value[0]) if d.chance(0.7) else d.some(value[0])
    return {"axes": axes, "value": d.numbers(axes).tolist()}


def _question(d: Draw, leaves: Sequence[Any], values: Sequence[Value], before: Sequence[int]) -> Any:
    last, count = len(values) - 1, len(leaves)
    way = d.one(["deriv", "deriv", "vjp", "vjp", "jvp"])
    outputs = [last] + ([] if way == "deriv" else [d.whole(count, last) for _ in range(d.one([0, 0, 1, 2]))])
    by = [d.one([k for k in before if k < count])]
    by += [d.one(before) if d.chance(0.8) else d.whole(0, last) for _ in range(d.whole(0, 2))]
    if d.chance(0.15):
        by.append(by[0])
    beside = by if way == "jvp" else outputs
    weights = [_weight(d, values[k], values) for k in beside]
    if way == "deriv" and d.chance(0.5):
        weights = [None]
    second = sorted(set(d.some(range(count), 1))) if d.chance(0.6) else []
    return {
        "way": way,
        "outputs": outputs,
        "by": by,
        "weights": weights,
        "second": second,
        "transformer": d.one(TRANSFORMERS),
    }


# ---- the meaning in NumPy, and its differences ---------------------------------------------------------------------------


def _leaf_values(case: Any) -> list[Value]:
    return [(tuple(x["axes"]), np.array(x["value"], np.float64)) for x in case["leaves"]]


@np.errstate(all="ignore")
def _evaluated(case: Any, moved: Sequence[tuple[int, Any]] = (), held: Sequence[Value] | None = None) -> list[Value]:
    """Returns all values, with those in `moved` shifted; operands that count as constants are taken from `held`."""
    shifts: dict[int, Any] = {}
    for k, by in moved:
        shifts[k] = shifts[k] + by if k in shifts else by
    values: list[Value] = []

    def add(value: Value) -> None:
        k = len(values)
        values.append((value[0], value[1] + shifts[k]) if k in shifts else value)

    for value in _leaf_values(case):
        add(value)
    for name, picked, attrs in case["steps"]:
        row = ROWS[name]
        add(row.numpy(attrs, *(held[k] if held is not None and n in row.held else values[k] for n, k in enumerate(picked))))
    return values


def _beside(weight: Any, to: Value, values: Sequence[Value]) -> Any:
    """Returns a weight as an array with the dims of the value that it multiplies."""
    if weight is None:
        return np.ones(to[1].shape)
    found = values[weight] if isinstance(weight, int) else (tuple(weight["axes"]), np.array(weight["value"], np.float64))
    _, (array, _) = lined(found, to)
    axes = tuple(dict.fromkeys((*found[0], *to[0])))
    order = [axes.index(a) for a in to[0]]
    return np.broadcast_to(array.transpose(order), to[1].shape)


def _direction(shape: Sequence[int], number: int) -> Any:
    """Returns distinct numbers of about 1."""
    return np.cos(1.0 + number + np.arange(math.prod(shape), dtype=np.float64)).reshape(shape) + 0.3


def _slope(f: Callable[[float], Any]) -> tuple[Any, Any]:
    """Returns the derivative of f at 0 by central differences of fourth order, and its distance from that of second order."""
    near, far = ((f(h) - f(-h)) / (2 * h) for h in (STEP, 2 * STEP))
    best = (4 * near - far) / 3
    return best, np.abs(best - near)


def _sure(slope: float, unsure: float) -> bool:
    """Whether a finite difference is accurate: in loops that multiply by large numbers it may not be; then PyTorch alone is compared."""
    return unsure <= SURE * max(1.0, abs(slope))


class Differences:
    """The answers to a case's question by finite differences."""

    def __init__(self, case: Any, by: Sequence[int]) -> None:
        self.case, self.by = case, by
        self.base = _evaluated(case)

    def total(self, moved: Sequence[tuple[int, Any]], weights: Sequence[Any]) -> float:
        """Returns the sum of outputs times weights."""
        values = _evaluated(self.case, moved, self.base)
        return sum(float((values[o][1] * w).sum()) for o, w in zip(self.case["outputs"], weights, strict=True))

    def first(self, k: int, direction: Any, at: Sequence[tuple[int, Any]] = ()) -> tuple[Any, Any]:
        """Returns the derivative of the weighted outputs by `by[k]`, with the weights fixed at the point `at`."""
        here = _evaluated(self.case, at, self.base)
        weights = [_beside(w, here[o], here) for w, o in zip(self.case["weights"], self.case["outputs"], strict=True)]
        return _slope(lambda h: self.total([*at, (self.by[k], h * direction)], weights))

    def forward(self, at: Sequence[tuple[int, Any]] = ()) -> list[tuple[Any, Any]]:
        """Returns for each output its derivative along the weights at the point `at`, for all of `by`."""
        here = _evaluated(self.case, at, self.base)
        along = [(k, _beside(w, here[k], here)) for w, k in zip(self.case["weights"], self.by, strict=True)]
        return [
            _slope(lambda h, o=o: _evaluated(self.case, [*at, *((k, h * t) for k, t in along)], self.base)[o][1])
            for o in self.case["outputs"]
        ]

    def answers(self, at: Sequence[tuple[int, Any]] = ()) -> list[tuple[Any, Any]]:
        """Returns the first derivatives, each multiplied by its direction, and summed."""
        if self.case["way"] == "jvp":
            found = self.forward(at)
            return [(float((x * _direction(x.shape, k)).sum()), float(np.abs(e).sum()) * 2) for k, (x, e) in enumerate(found)]
        return [self.first(k, _direction(self.base[b][1].shape, k), at) for k, b in enumerate(self.by)]

    def second(self, leaf: int, number: int) -> tuple[Any, Any]:
        """Returns the derivative of the sum of all answers along a leaf's direction."""
        direction = _direction(self.base[leaf][1].shape, 7 + number)
        return _slope(lambda h: sum(x for x, _ in self.answers([(leaf, h * direction)])))


# ---- PyTorch -----------------------------------------------------------------------------------------------------------


def _by_torch(case: Any, by: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """Returns first and second derivatives, each as an array with the dims of its value in `_evaluated`."""
    values: list[Value] = [(axes, torch.tensor(x, requires_grad=True)) for axes, x in _leaf_values(case)]
    leaves = [x for _, x in values]
    for name, picked, attrs in case["steps"]:
        row = ROWS[name]
        taken = [(values[k][0], values[k][1].detach() if n in row.held else values[k][1]) for n, k in enumerate(picked)]
        axes, x = (row.torch or row.numpy)(attrs, *taken)
        x = x * 1.0  # a tensor of its own, that can be differentiated by
        values.append((axes, x if x.requires_grad else x.requires_grad_()))

    def beside(weight: Any, to: Value) -> Any:
        if weight is None:
            return torch.ones_like(to[1])
        found = values[weight] if isinstance(weight, int) else (tuple(weight["axes"]), torch.tensor(weight["value"], dtype=torch.float64))
        axes, (array, _) = lined(found, to)
        return array.permute([axes.index(a) for a in to[0]]).expand(to[1].shape)

    def slopes(of: Sequence[Any], to: Sequence[Any], errors: Sequence[Any]) -> list[Any]:
        live = [(x, e) for x, e in zip(of, errors, strict=True) if x.requires_grad]
        wanted = [t for t in to if t.requires_grad]
        made = (
            torch.autograd.grad([x for x, _ in live], wanted, [e for _, e in live], create_graph=True, allow_unused=True)
            if live and wanted
            else [None] * len(wanted)
        )
        found = dict(zip(map(id, wanted), made, strict=True))
        return [torch.zeros_like(t) if found.get(id(t)) is None else found[id(t)] for t in to]

    outputs = [values[o][1] for o in case["outputs"]]
    moved = [values[k][1] for k in by]
    if case["way"] == "jvp":
        dummies = [torch.zeros_like(o, requires_grad=True) for o in outputs]
        unique = list(dict.fromkeys(by))
        back = slopes(outputs, [values[k][1] for k in unique], dummies)
        along = [beside(w, values[k]) for w, k in zip(case["weights"], by, strict=True)]
        total = [sum(t for t, b in zip(along, by, strict=True) if b == k) for k in unique]
        first = slopes(back, dummies, total)
    else:
        errors = [beside(w, values[o]) for w, o in zip(case["weights"], case["outputs"], strict=True)]
        first = slopes(outputs, moved, errors)
    total = sum((g * torch.tensor(_direction(g.shape, k))).sum() for k, g in enumerate(first))
    second = slopes([total], [leaves[k] for k in case["second"]], [torch.ones_like(total)]) if case["second"] else []
    return [g.numpy(force=True) for g in first], [g.numpy(force=True) for g in second]


# ---- ngraph --------------------------------------------------------------------------------------------------------------


def _lines(case: Any) -> list[str]:
    """Returns the program that computes `outputs`, `first` and `second`; `V` has the arrays of leaves, `W` of weights, `D` directions."""
    open_ = case.get("open", ())
    lines = [f'{a} = ng.make_axis({None if a in open_ else n}, name="{a}")' for a, n in case["lengths"].items()]
    given = "hold" if open_ else "ng.constant"
    shapes: list[tuple[str, ...]] = []
    for k, leaf in enumerate(case["leaves"]):
        axes, array = text(leaf["axes"]), f"V[{k}]"
        shapes.append(tuple(leaf["axes"]))
        lines.append(
            {
                "placeholder": f'v{k} = ng.placeholder({axes}, dtype="float64")',
                "variable": f'v{k} = ng.variable({axes}, dtype="float64", initial_value={array})',
                "constant": f"v{k} = ng.constant({array}, {axes})",
                "number": f"v{k} = ng.constant({leaf['value']})",
            }[leaf["kind"]]
        )
    for value, (name, picked, attrs) in zip(_evaluated(case)[len(shapes) :], case["steps"], strict=True):
        source = ROWS[name].source(attrs, [shapes[k] for k in picked], [f"v{k}" for k in picked])
        lines.append(f"v{len(shapes)} = ng.axes_with_order({source}, {text(value[0])})")
        shapes.append(value[0])
    names = [f"v{k}" for k in range(len(shapes))]

    def weight(n: int, w: Any) -> str:
        return f"v{w}" if isinstance(w, int) else f"{given}(W[{n}], {text(w['axes'])})"

    weights = [weight(n, w) for n, w in enumerate(case["weights"]) if w is not None]
    outputs, by = (text([names[k] for k in case[what]]) for what in ("outputs", "by"))
    if case["way"] == "deriv":
        y = names[case["outputs"][0]]
        lines.append(f"first = ng.deriv({y}, {by}, {weights[0]})" if weights else f"first = ng.deriv(ng.sum({y}, out_axes=()), {by})")
    else:
        lines.append(f"first = ng.{case['way']}({outputs}, {by}, {text(weights)})")
    lines.append(f"outputs = {outputs}")
    if case["second"]:
        lines += [
            f"total = sum(ng.sum(g * {given}(d, g.axes), out_axes=()) for g, d in zip(first, D))",
            f"second = ng.deriv(total, {text([names[k] for k in case['second']])})",
        ]
    else:
        lines.append("second = []")
    return lines


def _namespace(case: Any) -> dict[str, Any]:
    base = _evaluated(case)
    shaped = case["outputs"] if case["way"] == "jvp" else case["by"]
    space = {
        "ng": ng,
        "np": np,
        "REGISTRY": REGISTRY,
        "V": [np.array(x["value"], np.float64) for x in case["leaves"]],
        "W": [None if w is None or isinstance(w, int) else np.array(w["value"], np.float64) for w in case["weights"]],
        "D": [_direction(base[k][1].shape, n) for n, k in enumerate(shaped)],
    }
    exec(compile(HELPERS + HOLD, "<hunt>", "exec"), space)
    return space


HOLD = """
extra = []  # placeholders of open lengths, each with its array


def hold(array, axes):
    extra.append((ng.placeholder(axes, dtype="float64"), array))
    return extra[-1][0]

"""


def _built(case: Any) -> dict[str, Any]:
    """Returns the names of the program, the graph made."""
    space = _namespace(case)
    for line in _lines(case):
        exec(compile(line, "<hunt>", "exec"), space)
    return space


def _by_ngraph(case: Any) -> tuple[list[Any], list[Any], list[Any], list[int]]:
    """Returns outputs, first and second derivatives, and for each of `by` the first value that is the same op."""
    space = _built(case)
    ops = [space[f"v{k}"] for k in range(len(case["leaves"]) + len(case["steps"]))]
    by = [next(j for j, o in enumerate(ops) if o is ops[k]) for k in case["by"]]
    held = [k for k, x in enumerate(case["leaves"]) if x["kind"] == "placeholder"]
    results = [*space["outputs"], *space["first"], *space["second"]]
    with ngt.make_transformer_factory(case["transformer"])() as transformer:
        more, arrays = zip(*space["extra"], strict=True) if space["extra"] else ((), ())
        made = transformer.computation(results, *(ops[k] for k in held), *more)(*(space["V"][k] for k in held), *arrays)
    n, m = len(space["outputs"]), len(space["first"])
    arrays = [np.asarray(x, np.float64) for x in made]
    return arrays[:n], arrays[n : n + m], arrays[n + m :], by


# ---- comparing -------------------------------------------------------------------------------------------------------------


def check(case: Any) -> str | None:
    if "edge" in case:
        return edges.check(case)
    with np.errstate(all="ignore"):
        return _check(case)


def _check(case: Any) -> str | None:
    outputs, first, second, by = _by_ngraph(case)
    differences = Differences(case, by)
    base = differences.base
    numbers = {k for k, x in enumerate(case["leaves"]) if x["kind"] == "number"}  # whose derivative is float32

    def far(what: str, mine: Any, theirs: Any, slack: float, oracle: str) -> str | None:
        if np.shape(mine) != np.shape(theirs):
            return f"{what}: ngraph gives the shape {np.shape(mine)}, {oracle} {np.shape(theirs)}"
        off = np.abs(np.asarray(mine) - np.asarray(theirs))
        if np.all(off <= slack):
            return None
        apart = f"off by {np.max(off):.3g}, allowed {slack:.3g}"
        return f"{what}: ngraph {np.asarray(mine).tolist()}, {oracle} {np.asarray(theirs).tolist()} ({apart})"

    size = max(1.0, *(float(np.abs(x).max(initial=0)) for _, x in base))
    for o, mine in zip(case["outputs"], outputs, strict=True):
        found = far(f"v{o}", mine, base[o][1], 1e-10 * size, "NumPy")
        if found:
            return found
    theirs = _by_torch(case, by)
    shaped = case["outputs"] if case["way"] == "jvp" else case["by"]
    inexact = 2e-7 if numbers & {*case["by"], *case["second"]} else 0.0  # half a unit of float32, twice
    # rounding of about 50 operations on terms as large as the largest derivative there is, times the largest value
    size *= max(1.0, *(float(np.abs(g).max(initial=0)) for g in (*theirs[0], *theirs[1])))
    # a function that multiplies errors of its input by its slope also multiplies those of its second derivative by it
    steepest, bent = (max([0.0, *(float(np.abs(g).max(initial=0)) for g in part)]) for part in theirs[:2])
    for what, mine, oracle, more in (
        *((f"first[{k}], {case['way']}, v{v}", first[k], theirs[0][k], 0.0) for k, v in enumerate(shaped)),
        *((f"second[{k}], v{v}", second[k], theirs[1][k], 50 * EPSILON * steepest * bent) for k, v in enumerate(case["second"])),
    ):
        found = far(what, mine, oracle, (1e-11 + inexact) * size + more, "PyTorch")
        if found:
            return found
    answers = differences.answers()
    for k, (oracle, unsure) in enumerate(answers):
        mine = float((first[k] * _direction(first[k].shape, k)).sum())
        found = _sure(oracle, unsure) and far(
            f"first[{k}] times a direction", mine, oracle, 2 * unsure + (1e-9 + inexact) * size * MOST, "differences"
        )
        if found:
            return found
    for k, leaf in enumerate(case["second"] if all(_sure(*a) for a in answers) else ()):
        oracle, unsure = differences.second(leaf, k)
        mine = float((second[k] * _direction(second[k].shape, 7 + k)).sum())
        # two differences of each other: eps / h^2 is 2.5e-9
        found = _sure(oracle, unsure) and far(
            f"second[{k}] times a direction", mine, oracle, 2 * unsure + (1e-7 + inexact) * size * MOST, "differences"
        )
        if found:
            return found
    return None


# ---- reducing --------------------------------------------------------------------------------------------------------------


def _without_step(case: Any, gone: int) -> Any:
    """Returns the case without the value `gone`, replaced by another value of the same axes; None where there is none."""
    count = len(case["leaves"])
    axes = [axes for axes, _ in _evaluated(case)]
    other = next((k for k in reversed(range(gone)) if axes[k] == axes[gone]), None)
    used = {k for _, picked, _ in case["steps"] for k in picked} | {*case["outputs"], *case["by"], *case["second"]}
    used |= {w for w in case["weights"] if isinstance(w, int)}
    if gone in used and other is None:
        return None

    def now(k: Any) -> Any:
        k = other if k == gone else k
        return k - 1 if isinstance(k, int) and k > gone else k

    parts = {"leaves": list(case["leaves"]), "steps": [[n, [now(k) for k in picked], a] for n, picked, a in case["steps"]]}
    del (parts["leaves"] if gone < count else parts["steps"])[gone if gone < count else gone - count]
    return {
        **case,
        **parts,
        "outputs": [now(k) for k in case["outputs"]],
        "by": [now(k) for k in case["by"]],
        "weights": [now(w) if isinstance(w, int) else w for w in case["weights"]],
        "second": sorted({now(k) for k in case["second"]}),
    }


def smaller(case: Any) -> Iterator[Any]:
    if "edge" in case:
        yield from edges.smaller(case)
        return
    for a in case.get("open", ()):
        yield {**case, "open": [b for b in case["open"] if b != a]}
    if case["second"]:
        yield {**case, "second": []}
        if len(case["second"]) > 1:
            yield from ({**case, "second": [k]} for k in case["second"])
    beside = "by" if case["way"] == "jvp" else "outputs"
    for what in ("outputs", "by"):
        for k in range(len(case[what]) if len(case[what]) > 1 else 0):
            less = {**case, what: case[what][:k] + case[what][k + 1 :]}
            yield {**less, "weights": case["weights"][:k] + case["weights"][k + 1 :]} if what == beside else less
    if case["transformer"] != "direct":
        yield {**case, "transformer": "direct"}
    for gone in reversed(range(len(case["leaves"]) + len(case["steps"]))):
        simpler = _without_step(case, gone)
        if simpler is not None and simpler["leaves"] and _sound(simpler):
            yield simpler
    for k, w in enumerate(case["weights"]):
        if isinstance(w, int) or (w is not None and w["axes"]):
            yield {**case, "weights": [*case["weights"][:k], {"axes": [], "value": 1.0}, *case["weights"][k + 1 :]]}
    for k, leaf in enumerate(case["leaves"]):
        if leaf["kind"] != "placeholder":
            yield {**case, "leaves": [*case["leaves"][:k], {**leaf, "kind": "placeholder"}, *case["leaves"][k + 1 :]]}
    unused = set(case["lengths"]) - _mentioned(case)
    if unused:
        yield {**case, "lengths": {a: n for a, n in case["lengths"].items() if a not in unused}}


def _mentioned(case: Any) -> set[str]:
    words = str([case["leaves"], case["steps"], case["weights"]])
    return {a for a in case["lengths"] if f"'{a}'" in words}


def _sound(case: Any) -> bool:
    """Whether the steps still have values, numbers are where they are allowed, and weights fit."""
    numbers = {k for k, x in enumerate(case["leaves"]) if x["kind"] == "number"}
    if any(numbers & set(picked) and (numbers >= set(picked) or name not in WITH_NUMBERS) for name, picked, _ in case["steps"]):
        return False
    try:
        values = _evaluated(case)
        beside = case["by"] if case["way"] == "jvp" else case["outputs"]
        for w, k in zip(case["weights"], beside, strict=True):
            if isinstance(w, int) and not set(values[w][0]) <= set(values[k][0]):
                return False
            _beside(w, values[k], values)
        _lines(case)
    except (ValueError, IndexError, KeyError, StopIteration):
        return False
    return all(np.all(np.isfinite(x)) for _, x in values)


def program(case: Any) -> str:
    """Returns the case as a script: the request to ngraph, and PyTorch's answer."""
    if "edge" in case:
        return edges.program(case)
    space = _namespace(case)
    try:
        *_, by = _by_ngraph(case)
    except Exception:
        by = case["by"]
    first, second = _by_torch(case, by)
    held = [k for k, x in enumerate(case["leaves"]) if x["kind"] == "placeholder"]
    extra = ["*(p for p, _ in extra)", "*(a for _, a in extra)"] if case.get("open") else []
    used = any("REGISTRY" in line for line in _lines(case))
    wanted = [x.tolist() for x in (*first, *second)]
    given = {name: [None if x is None else x.tolist() for x in space[name]] for name in "VWD"}
    return "\n".join(
        [
            "import numpy as np",
            "import ngraph as ng",
            "import ngraph.transformers as ngt",
            *(["from ngraph.op_graph.opdef import REGISTRY"] if used else []),
            HELPERS,
            *([HOLD] if case.get("open") else []),
            *(f"{name} = [None if x is None else np.array(x) for x in {values}]" for name, values in given.items()),
            *_lines(case),
            f'transformer = ngt.make_transformer_factory("{case["transformer"]}")()',
            f"compute = transformer.computation([*first, *second], {', '.join([*(f'v{k}' for k in held), *extra[:1]])})",
            f"for got, wanted in zip(compute({', '.join([*(f'V[{k}]' for k in held), *extra[1:]])}), {wanted}):",
            '    print(np.asarray(got).tolist(), "wanted", wanted)',
            "",
        ]
    )
