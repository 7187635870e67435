"""Translators of TensorFlow's calls, branches and loops."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.positional import control, indexing, reductions
from ngraph.frontends.positional.elementwise import alone, casted, folded
from ngraph.frontends.positional.folding import is_text
from ngraph.frontends.positional.philox import whole
from ngraph.frontends.positional.trace import Inside
from ngraph.frontends.positional.values import NOTHING, ConstantArray, Sizes, Tensor, Value, settled
from ngraph.frontends.tensorflow.graph import DEAD, GraphBody, Resource
from ngraph.frontends.tensorflow.lists import SETTING, TensorList, TurnItem, of_strings, resizes
from ngraph.frontends.tensorflow.stateless import sampled
from ngraph.frontends.tensorflow.table import Length, translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import ExprLike
from ngraph.ops import elementwise as e
from ngraph.ops.distributions import truncated_normal
from ngraph.ops.random import normal, uniform
from ngraph.ops.rearrange import flip

Values = Sequence[Value]


translates("PartitionedCall", "StatefulPartitionedCall")(lambda n, *inputs: n.call(n.attr("f"), inputs))


@translates("NoOp", "Assert", "Print", "PrintV2", "ControlTrigger", "DisableCopyOnRead", "StackCloseV2", "TensorArrayCloseV3")
def nothing(n: Any, *inputs: Value) -> tuple[Value, ...]:
    return tuple(inputs[:1]) if n.op == "Print" else ()


# ---- branches -----------------------------------------------------------------------------------------------------------


def _truth(n: Any, condition: Value) -> Value:
    """Returns a condition as bool: numbers are true where they are not 0."""
    if isinstance(condition, ConstantArray):
        return ConstantArray(np.array(bool(condition.array)))
    return condition if condition.np == np.bool_ else alone(n.g, lambda op: e.not_equal(op, 0), condition)


@translates("If", "StatelessIf")
def if_(n: Any, condition: Value, *inputs: Value, then_branch: str, else_branch: str) -> tuple[Value, ...]:
    return control.branch(n.g, _truth(n, condition), lambda: n.call(then_branch, inputs), lambda: n.call(else_branch, inputs), True)


@translates("Case", "StatelessCase")
def case(n: Any, index: Value, *inputs: Value, branches: list[str]) -> tuple[Value, ...]:
    def way(k: int) -> tuple[Value, ...]:
        if k == len(branches) - 1:  # also for an index that is out of range
            return n.call(branches[k], inputs)
        here = alone(n.g, lambda op: e.equal(op, k), index)
        return control.branch(n.g, here, lambda: n.call(branches[k], inputs), lambda: way(k + 1), True)

    if isinstance(index, ConstantArray):
        k = int(index.array)
        return n.call(branches[k if 0 <= k < len(branches) else -1], inputs)
    return way(0)


@translates("OptionalNone")
def no_value(n: Any) -> Value:
    return NOTHING


@translates("OptionalFromValue")
def optional(n: Any, *values: Value) -> Value:
    """Returns what a branch keeps for its derivative: the value itself, or a list of several."""
    return values[0] if len(values) == 1 else list(values)


@translates("OptionalGetValue")
def of_optional(n: Any, kept: Value, *, output_types: Sequence[Any], output_shapes: Sequence[Any] = ()) -> tuple[Value, ...]:
    """Returns the values of an optional. Raises Inside where it has none, or that of the other branch."""
    kind, said = output_types[0], output_shapes[0] if output_shapes else None
    if kind is not None:  # None: an optional, which may have no value itself
        array = isinstance(kept, (Tensor, ConstantArray, Sizes))
        if kept is NOTHING or (array and (kept.np != kind or not _fits(kept.shape, said))):
            raise Inside
    return (kept,) if len(output_types) == 1 else tuple(kept)


def _fits(shape: Sequence[ExprLike], said: Sequence[int | None] | None) -> bool:
    """Returns whether a shape may be what a file says, where None is any length."""
    known = said is None or len(shape) == len(said)
    return known and all(s is None or not isinstance(d, int) or s == d for d, s in zip(shape, said or shape, strict=True))


# ---- loops --------------------------------------------------------------------------------------------------------------


@translates("While", "StatelessWhile")
def while_(n: Any, *inputs: Value) -> tuple[Value, ...]:
    """Lists become tensors that the loop carries, or the stacked items of its turns.

    Handles of variables, and values that no turn changes, stay outside of the loop.
    """
    g, cond, body = n.g, n.attr("cond"), n.attr("body")
    start, kept = list(inputs), _kept(n)
    trips, counters, stacks, pops = _counted(n, inputs, kept) or (None, list[int](), dict[int, Items](), list[int]())
    first = _truth(n, n.call(cond, start)[0]) if trips is None else ConstantArray(np.array(True))
    if isinstance(first, ConstantArray) and not first.array:
        return tuple(start)
    summing = any(m.op == "TensorArrayGradV3" for m in n.library.function(body).nodes.values())  # of flows, from 0 on
    if summing or any(isinstance(v, TensorList) and v.empty and k not in stacks for k, v in enumerate(start)):
        try:
            start = _with_shapes(n, body, start, stacks)
        except Inside:  # the body reads what is there only if there is a turn
            if isinstance(first, ConstantArray):
                raise
            if not g.known(first).ravel()[0]:
                return tuple(start)
            start = _with_shapes(n, body, start, stacks)
    outside = {*kept, *counters, *stacks, *pops}
    carried = [k for k, v in enumerate(start) if not isinstance(v, Resource) and k not in outside]

    def whole(values: Values) -> list[Value]:
        found = list(start)
        for k, v in zip(carried, values, strict=True):
            if isinstance(start[k], TensorList) and not isinstance(v, TensorList):  # which may have grown
                t = g.tensor(v)
                v = start[k].of(t, None if start[k].count == -1 else t.shape[0])
            found[k] = v
        return found

    def flat(values: Values) -> list[Value]:
        return [_tensor_of(values[k]) for k in carried]

    if trips is None:

        def turn(values: Values) -> list[Value]:
            given = n.call(body, whole(values[2:]))
            return [_truth(n, n.call(cond, given)[0]), *flat(given)]

        return tuple(whole(control.loop(g, None, first, flat(start), turn)))

    pushed: dict[int, list[Value]] = {k: [] for k in stacks}  # what each turn gives, where it is known before the loop runs

    def counted_turn(values: Values) -> list[Value]:
        found = whole(values[2:])
        number = casted(g, values[0], np.dtype(np.int32))
        for k in counters:
            found[k] = casted(g, values[0], start[k].np)
        for k in (*stacks, *pops):
            found[k] = TurnItem(start[k], number if k in stacks and stacks[k].grows else None)
        for k in pops:
            found[k].item = start[k].from_end(n, values[0])
        given = n.call(body, found)
        for k, items in pushed.items():
            v = given[k].item
            counts = v is number or any(v is found[c] for c in counters)
            known = v is NOTHING or isinstance(v, (ConstantArray, Sizes)) or any(v is start[j] for j in kept)
            items.append(TURN if counts else v if known else None)
        return [ConstantArray(np.array(True)), *flat(given), *(given[k].item for k in stacks)]

    none = [lambda: ConstantArray(np.zeros(0)) for _ in stacks]  # never called: there is a turn
    made = control.loop(g, settled(np.array([trips], object)), None, flat(start), counted_turn, none, uneven=True)
    results = whole(made[: len(carried)])
    for k in counters:
        results[k] = settled(np.array(trips, object), start[k].np)
    for (k, how), v in zip(stacks.items(), made[len(carried) :], strict=True):
        if isinstance(v, list):
            results[k] = start[k].holding(v)
            continue
        if is_text(v):
            results[k] = of_strings(start[k], v, trips)
            continue
        t, old = g.full(g.tensor(v), [0]), start[k].tensor
        t = t if how.order > 0 else Tensor(flip(t.op, t.dims[0]), t.dims)
        results[k] = start[k].of(folded(g, e.add, [old, t]) if how.added and old is not None else t, trips)
        if how.emptied:
            results[k] = results[k].resized(n, 0)
        first, *others = pushed[k]
        results[k].turns = all(i is TURN for i in (first, *others))
        if first is not TURN and all(_equal(first, i) for i in others):
            results[k].each = first
    for k in pops:
        results[k] = start[k].resized(n, start[k].count - trips)
    return tuple(results)


def _tensor_of(v: Value) -> Value:
    """Returns what a turn carries of a value: a list's tensor, and a list of which no item has been set as it is."""
    return v.tensor if isinstance(v, TensorList) and v.tensor is not None else v


class Items(NamedTuple):
    """The way turns fill a list.

    order   1 where the first turn sets the first place, -1 the last one      grows    it begins without places, and each turn adds one
    added   to what is there                                                  emptied  each turn takes away the last place, which it has set
    """

    order: int
    added: bool = False
    grows: bool = False
    emptied: bool = False


TURN = object()  # the number of the turn, as what it pushes


def _equal(a: Value, b: Value) -> bool:
    """Returns whether two values are one, or equal constants."""
    return a is b or (isinstance(a, (ConstantArray, Sizes)) and type(a) is type(b) and np.array_equal(a.array, b.array))


def _argument(of: GraphBody, value: str) -> int | None:
    """Returns the number of the argument that a value is, None for other values."""
    source = of.source(value)
    return of.takes.index(source) if source in of.takes else None


def _arguments(of: GraphBody, value: str) -> set[int]:
    """Returns the numbers of the arguments that a value is computed of."""
    found, todo, seen = set[int](), [value], set[str]()
    while todo:
        v = todo.pop()
        node, argument = of.maker(v), _argument(of, v)
        if argument is not None:
            found.add(argument)
        elif node is not None and v not in seen:
            seen.add(v)
            todo += node.takes
    return found


def _kept(n: Any) -> set[int]:
    """Returns the numbers of the values that the turns of a loop hand on as they are."""
    body = n.library.function(n.attr("body"))
    return {k for k, given in enumerate(body.gives) if _argument(body, given) == k}


def _counted(n: Any, inputs: Values, kept: set[int]) -> tuple[ExprLike, list[int], dict[int, Items], list[int]] | None:
    """Returns the number of turns of a loop that counts, its counters, the lists that get an item in each turn, and those that lose one.

    None for other loops. An item is set at the turn's number, or pushed; the last one is popped. Derivatives set or add it at numbers of
    turns that they pop. The condition has to be `counter < limit`, or several of these, for numbers that the turns add 1 to and limits that
    no turn changes; counters start at 0, and lists that are set have as many places as there are turns.
    """
    g = n.g
    cond, body = (n.library.function(n.attr(name)) for name in ("cond", "body"))

    ones = {body.takes[k] for k in kept if isinstance(v := inputs[k], ConstantArray) and _is_one(v.array)}
    counters = [k for k, given in enumerate(body.gives) if _adds_one(n, body, given, k, ones)]
    trips: ExprLike | None = None
    todo = [cond.gives[0]]
    while todo:
        node = cond.maker(todo.pop())
        if node is not None and node.op == "LogicalAnd":
            todo += node.takes
            continue
        if node is None or node.op != "Less":
            return None
        counter, limit = (_argument(cond, v) for v in node.takes)
        said = cond.maker(node.takes[1])
        most = inputs[limit] if limit in kept else None
        if isinstance(most, Tensor) and any(isinstance(v, TensorList) and v.text is not None for v in inputs):
            most = ConstantArray(g.known(most))  # Python runs the turns of a loop over strings, one after another
        if said is not None and _arguments(cond, node.takes[1]) <= kept:  # computed in the condition
            (most,) = n.call(n.attr("cond"), inputs, [node.takes[1]])
        if counter not in counters or not isinstance(most, (ConstantArray, Sizes)):
            return None
        (last,) = g.sizes(most)
        trips = last if trips is None or g.truth("lt", last, trips) else trips
    zero = [k for k in counters if isinstance(inputs[k], ConstantArray) and inputs[k].array.size == 1 and not inputs[k].array.any()]
    if trips is None or not g.truth("lt", 0, trips) or zero != counters:
        return None
    lists, pops = dict[int, Items](), list[int]()

    def order(value: str) -> int:
        """Returns 1 for the turn's number, -1 for one that counts from the last place, 0 for other values."""
        if _argument(body, value) in counters:
            return 1
        node = body.maker(value)
        popped = _argument(body, node.takes[0]) if node is not None and node.op == "TensorListPopBack" else None
        numbers = None if popped is None else inputs[popped]
        return -1 if isinstance(numbers, TensorList) and numbers.turns and g.same(numbers.count, trips) else 0

    for k, v in enumerate(inputs):
        if isinstance(v, TensorList) and k not in kept:
            node = body.maker(body.gives[k])
            shrunk = node is not None and node.op == "TensorListResize" and order(node.takes[1]) == -1
            node = body.maker(node.takes[0]) if node is not None and shrunk else node
            users = [m for m in body.nodes.values() if any(_argument(body, t) == k for t in m.takes) and m.op != "Identity"]
            if node is None or node not in users:
                continue
            setting = node
            if node.op == "AddN" and len(node.takes) == 2:
                one = body.maker(next((t for t in node.takes if _argument(body, t) != k), ""))
                new = body.maker(one.takes[0]) if one is not None and one.op == "TensorListSetItem" else None
                setting = one if one is not None and new is not None and new.op == "TensorListReserve" else node
            way = order(setting.takes[1]) if setting.op in SETTING else 0
            reads = [m for m in users if m is not node and m.op != "TensorListLength"]
            if any(m.op != "TensorListGetItem" or order(m.takes[1]) != way or v.tensor is None for m in reads):
                continue
            grows = way == 1 and setting.op == "TensorListSetItem" and isinstance(v.count, int) and v.count == 0 and resizes(setting)
            if way and (v.count == -1 or g.same(v.count, trips) or grows):
                lists[k] = Items(way, setting is not node, grows, shrunk)
            elif node.op == "TensorListPushBack" and v.tensor is None and v.count == 0 and not reads:
                lists[k] = Items(1)
            elif node.op == "TensorListPopBack" and not v.empty and not reads:
                pops.append(k)
    return trips, counters, lists, pops


def _is_one(array: Any) -> bool:
    """Returns whether an array is the whole number 1."""
    return bool(array.size == 1 and array.dtype.kind == "i" and array.ravel()[0] == 1)


def _adds_one(n: Any, body: GraphBody, value: str, k: int, ones: Container[str]) -> bool:
    """Returns whether a value is argument k of a function and 1. ones: arguments that are 1 in every turn."""
    node = body.maker(value)
    if node is None or node.op not in ("AddV2", "Add"):
        return False
    sources = [body.source(v) for v in node.takes]
    others = [v for v in sources if v != body.takes[k]]
    one = body.maker(others[0]) if len(others) == 1 else None
    known = one is not None and one.op == "Const" and _is_one(n.library.constant(one.proto).array)
    return known or (len(others) == 1 and others[0] in ones)


def _with_shapes(n: Any, body: str, start: list[Value], stacks: Container[int]) -> list[Value]:
    """Returns the values of a loop with its lists, but for those of `stacks`, made of zeros of the shape that one turn gives them."""
    g = n.g
    before, assigned = dict(g.state), set(g.assigned)
    given = n.call(body, [TurnItem(v) if k in stacks else v for k, v in enumerate(start)])
    control.entered(g, before)
    g.assigned = assigned
    found = list(start)
    for k, (old, new) in enumerate(zip(start, given, strict=True)):
        if isinstance(old, TensorList) and old.empty and isinstance(new, TensorList) and k not in stacks:
            if new.items is None:  # else it stays empty
                found[k] = new if new.tensor is None else old.filled(n, new.tensor.shape[1:])
        if isinstance(old, ConstantArray) and isinstance(new, TensorList):
            found[k] = new.filled(n, new.made(n).shape[1:])
    return found


# ---- randomness ---------------------------------------------------------------------------------------------------------


@translates("RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt")
def random(n: Any, wanted: Value, *bounds: Value, dtype: DType = dtypes.float32) -> Tensor:
    """Draws from the generator of this compiler: the distribution is TensorFlow's, the numbers are not."""
    dims = [None if isinstance(s, int) and s == 1 else n.g.fresh(s) for s in n.g.sizes(wanted)]
    axes = [d for d in dims if d is not None]
    if bounds:
        low, high = (n.g.tensor(b).op for b in bounds)
        draw = e.floor(uniform(axes, dtype=dtypes.float64) * e.cast(high - low, dtypes.float64))
        return Tensor(e.cast(draw, low.dtype) + low, dims)
    made = (uniform if n.op == "RandomUniform" else normal if n.op == "RandomStandardNormal" else truncated_normal)(axes)
    return Tensor(e.cast(made, dtype), dims)


@translates("RandomGamma", "RandomPoisson", "RandomPoissonV2", python=True)
def random_samples(n: Any, wanted: Value, parameter: Value) -> Value:
    """Draws a key from the generator of this compiler, and samples as the stateless ops do."""
    key = e.cast(uniform([], dtype=dtypes.float64) * 2.0**53, dtypes.uint64)
    return sampled(n, (key, (whole(0), whole(0))), wanted, [parameter], after=True)


@translates("RandomShuffle")
def shuffled(n: Any, x: Tensor) -> Value:
    g, t = n.g, n.g.full(x, [0])
    keys = Tensor(uniform([t.dims[0]]), [t.dims[0]])
    return indexing.gathered(g, t, indexing.top_k(g, keys, 0, t.shape[0], True)[1], 0, n.takes[0])


@translates("Multinomial")
def drawn(g: Any, logits: Tensor, count: Length, *, output_dtype: DType = dtypes.int64) -> Value:
    """Returns the numbers of classes drawn by their logits: the largest sum of a logit and a draw of Gumbel's distribution."""
    t = g.full(logits)
    draw = None if g.same(count, 1) else g.fresh(count)
    axes = [d for d in (t.dims[0], draw, t.dims[1]) if d is not None]
    u = e.maximum(uniform(axes), float(np.finfo(np.float32).tiny))
    best = reductions.best(e.cast(t.op, u.dtype) - e.log(-e.log(u)), (t.dims[1],), "max")
    return g.made(e.cast(best, output_dtype), [t.dims[0], draw])


@translates(
    "UniformCandidateSampler",
    "LogUniformCandidateSampler",
    results="sampled_candidates true_expected_count sampled_expected_count",
    python=True,
)
def candidates(n: Any, true: Value, *, num_sampled: int, unique: bool, range_max: int) -> tuple[Value, ...]:
    """Returns classes drawn at random, and how often each true class, and each drawn one, is expected among them."""
    if unique and num_sampled > range_max:
        raise GraphError(f"{num_sampled} different classes of {range_max}", fix="sample at most as many as there are")
    zipf = n.op.startswith("Log")

    def run(key: Any, classes: Any) -> list[Any]:
        draw, found, tries = np.random.default_rng(int(key)), list[int](), 0
        while len(found) < num_sampled:
            k = int(np.expm1(draw.random() * np.log1p(range_max))) % range_max if zipf else int(draw.integers(range_max))
            tries += 1
            if not unique or k not in found:
                found.append(k)

        def expected(k: Any) -> Any:
            share = (np.log((k + 2) / (k + 1)) / np.log1p(range_max)) if zipf else np.full(k.shape, 1 / range_max)
            return share * tries if tries == num_sampled else -np.expm1(tries * np.log1p(-share))

        drawn = np.array(found, np.int64)
        return [drawn, expected(classes), expected(drawn)]

    key = n.g.made(e.cast(uniform([], dtype=dtypes.float64) * 2.0**53, dtypes.uint64), [])
    return tuple(n.g.host(n.op, run, [key, true], [np.int64, np.float32, np.float32]))


# ---- TensorFlow 1: what has not become branches and loops (`structure`) ----------------------------------------------------


@translates("Switch", "RefSwitch", results="output_false output_true", references=True)
def switch(n: Any, x: Value, condition: Value) -> tuple[Any, Any]:
    return (DEAD, x) if n.g.known(_truth(n, n.library.read(n.g, condition))).ravel()[0] else (x, DEAD)


@translates("Merge", "RefMerge", results="output value_index", references=True)
def merge(n: Any, *inputs: Value) -> tuple[Any, Any]:
    """Returns the input that is alive, and its number; both are dead where none is."""
    alive = [k for k, v in enumerate(inputs) if v is not DEAD]
    return (inputs[alive[0]], ConstantArray(np.array(alive[0], np.int32))) if alive else (DEAD, DEAD)


@translates("Enter", "Exit", "NextIteration", "LoopCond", "RefEnter", "RefExit", "RefNextIteration")
def outside_a_loop(n: Any, *inputs: Value) -> Value:
    raise GraphError(f"{n.op} stands in no loop", fix="is the file damaged?")
