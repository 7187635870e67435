"""Random programs of all public functions on all transformers, against `hunt.oracle`.

A case is a list of operations over sources (placeholders, constants, variables) whose dims are named axes, some of open length. Each
function is a row of `ROWS`: how a case draws its arguments, and how ngraph builds it; what it gives is `oracle.FUNCTIONS`' row of the same
name. Three calls are made, the last with other lengths, and the state after each is compared too; some cases run on 1, 2 and 3 threads.
"""

from __future__ import annotations

import contextlib
import copy
import io
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import ngraph
from hunt import oracle
from hunt.oracle import FLOATS, INTS, NARROW, Refused, Run, V
from hunt.script import Api, Script, array
from ngraph.transformers.base import make_transformer_factory

ng = Api(ngraph, "ng")  # the functions of ngraph, whose calls can be written down
TRANSFORMERS = ("direct", "numpy", "cpu")
NAMES = ("A", "B", "H", "W", "C", "N", "REC")
LENGTHS = (0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 13, 16, 17, 31)
LARGE = (61, 97, 128, 509)  # some of which several threads share
MOST = 6000  # elements of one value: a program is checked in a tenth of a second
PLAIN = ("float32", "float32", "float32", "float64", "float16", "bfloat16")
FLOAT, INT, BOOL, SMALL = tuple(FLOATS), INTS, ("bool",), NARROW
NUMBER = (*FLOAT, *INT)
ANY = (*NUMBER, "bool")
Op = dict[str, Any]


# ---- sources ------------------------------------------------------------------------------------------------------------------


def numbers(source: dict[str, Any], shape: tuple[int, ...], more: int) -> np.ndarray:
    """The array of a source for a call: `how` says from which numbers."""
    rng = np.random.default_rng([source["seed"], more, *shape])
    d, how = source["dtype"], source["how"]
    n = math.prod(shape)
    if d == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if how.startswith("index"):
        low, high = (int(k) for k in how.split(":")[1:])
        return rng.integers(low, high + 1, shape).astype(oracle.numpy_type(d))
    if d in INTS or d in oracle.WHOLE_NARROW:
        low, high = oracle.limits(d)
        if how == "extreme":
            pool = [low, low + 1, high, high - 1, 0, 1, 2, 3, -1 if low < 0 else 5, 7]
            values: Any = [pool[k] for k in rng.integers(0, len(pool), n)]
        else:
            values = [int(max(low, min(high, k))) for k in rng.integers(-9 if low < 0 else 0, 10, n)]
        return np.array(values, np.int64 if low < 0 else np.uint64).astype(oracle.numpy_type(d)).reshape(shape)
    if how == "extreme":
        top = oracle.largest(d) if d in FLOATS else float(oracle.codes(d)[0][-1])
        tiny = math.ldexp(1.0, FLOATS[d][1]) if d in FLOATS else 0.25
        pool = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, top, -top, tiny, -tiny, tiny / 4, 0.5, 1.5, 2.5, -2.5, 100.0, 3e-3]
        v = np.array([pool[k] for k in rng.integers(0, len(pool), n)]).reshape(shape)
    elif how == "whole":
        v = rng.integers(-4, 5, shape).astype(float)
    elif how == "unit":
        v = rng.uniform(0.02, 0.98, shape)
    elif how == "large":
        v = rng.normal(size=shape) * 300
    else:
        v = rng.normal(size=shape) * 2
    with np.errstate(all="ignore"):
        return v.astype(np.float32 if d in NARROW else np.float64).astype(oracle.numpy_type(d))


def shape_of(case: dict[str, Any], source: dict[str, Any], run: int) -> tuple[int, ...]:
    return tuple(case["axes"][name]["n"][run] for name, _ in source["dims"])


def value_of_source(case: dict[str, Any], source: dict[str, Any], run: int, more: int) -> V:
    made = Run(case, run, 0, {}, {})
    return oracle.into(source["dtype"], [made.dim(*a) for a in source["dims"]], numbers(source, shape_of(case, source, run), more))


def expected(case: dict[str, Any], streams: dict[str, int]) -> list[tuple[dict[str, V], dict[str, V]]]:
    """For each call the outputs, and the variables after it. Raises Refused."""
    state = {s["id"]: value_of_source(case, s, 0, 0) for s in case["sources"] if s["kind"] == "variable"}
    first = dict(state)
    found = []
    for k, run in enumerate(case["calls"]):
        r = Run(case, run, k, streams, state)
        r.case_initial = first  # type: ignore[attr-defined]
        for s in case["sources"]:
            if s["kind"] != "variable":
                r.env[s["id"]] = value_of_source(case, s, run, k if s["kind"] == "placeholder" else 0)
        r.ops(case["ops"])
        after = dict(r.state)
        for it in case["assigns"]:
            after[it["var"]] = oracle.assign(r, it, state)
        outputs = {o: (after[o] if o in after else r.env[o]) for o in case["outputs"]}
        found.append((outputs, after))
        state = after
    return found


# ---- drawing ------------------------------------------------------------------------------------------------------------------


class Drawing:
    """A case as it grows, with what its values are in both sets of lengths."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        r = self.rng
        large = r.random() < 0.08
        self.large = large
        self.case: dict[str, Any] = {
            "axes": {},
            "sources": [],
            "ops": [],
            "assigns": [],
            "outputs": [],
            "seed": r.choice([0, 7, 2**40 + 3]),
        }
        for name in r.sample(NAMES, r.randint(2, 4)):
            n = r.choice(LARGE) if large and r.random() < 0.5 else r.choice(LENGTHS)
            opened = r.random() < 0.3
            self.case["axes"][name] = {"n": [n, r.choice(LENGTHS) if opened else n], "open": opened}
        self.case["calls"] = [0, 0, 1] if any(a["open"] for a in self.case["axes"].values()) else [0, 0]
        self.runs = [Run(self.case, k, 0, {}, {}) for k in (0, 1)]
        self.count = 0
        self.scope: list[list[str]] = [[]]
        self.fixed: set[str] | None = None  # where only these may be read

    # what there is
    def ident(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    @property
    def known(self) -> list[str]:
        return [i for level in self.scope for i in level]

    def value(self, i: str) -> V:
        return self.runs[0].env[i]

    def source(self, dtype: str, dims: Sequence[Any], how: str | None = None, kind: str | None = None) -> str:
        r = self.rng
        i = self.ident("s")
        opened = any(self.case["axes"][n]["open"] for n, _ in dims)
        kind = kind or ("placeholder" if opened else r.choices(["placeholder", "constant", "variable"], [7, 2, 2])[0])
        how = how or r.choices(["plain", "whole", "extreme", "large", "unit"], [6, 3, 2, 1, 1])[0]
        s = {"id": i, "kind": kind, "dtype": dtype, "dims": [list(a) for a in dims], "seed": r.randrange(10**6), "how": how}
        self.case["sources"].append(s)
        for k, run in enumerate(self.runs):
            run.env[i] = value_of_source(self.case, s, k, 0)
            if kind == "variable":
                run.state[i] = run.env[i]
        self.scope[0].append(i)
        return i

    def dims(self, least: int = 0, most: int = 3, without: Sequence[Any] = (), of: Sequence[str] | None = None) -> list[Any]:
        """Some axes of the case, now and then a dual."""
        r = self.rng
        names = list(of or self.case["axes"])
        r.shuffle(names)
        made: list[Any] = []
        for n in names[: r.randint(least, max(least, min(most, len(names))))]:
            made.append((n, -1 if r.random() < 0.12 else 0))
        made = [a for a in made if a not in without]
        while math.prod(max(self.case["axes"][n]["n"]) for n, _ in made) > MOST and made:
            made.pop()
        return made

    def pick(self, dtypes: Sequence[str] = NUMBER, fits: Callable[[V], bool] = lambda v: True, how: str | None = None, **dims: Any) -> str:
        """A value of one of these dtypes, drawn from what there is or newly made."""
        r = self.rng
        if r.random() < 0.75:
            found = [i for i in self.known if self.value(i).d in dtypes and fits(self.value(i)) and (self.fixed is None or i in self.fixed)]
            if found:
                return r.choice(found[-8:] if r.random() < 0.6 else found)
        for _ in range(20):
            d = r.choice([p for p in PLAIN if p in dtypes] or list(dtypes)) if r.random() < 0.55 else r.choice(list(dtypes))
            i = self.source(d, self.dims(**dims), how)
            if fits(self.value(i)):
                return i
            self.forget(i)
        raise Refused("nothing fits")

    def forget(self, i: str) -> None:
        self.case["sources"] = [s for s in self.case["sources"] if s["id"] != i]
        self.scope[0].remove(i)

    def maybe_number(self, i: str, share: float = 0.25) -> Any:
        """In place of an operand, now and then a Python number that fits the dtype of value i."""
        r, d = self.rng, self.value(i).d
        if r.random() > share or d in NARROW:
            return None
        if d in INTS:
            low, high = oracle.limits(d)
            return {"n": r.choice([0, 1, 2, 3, 7, low, high] + ([-1, -5] if low < 0 else []))}
        if d == "bool":
            return None
        return {"n": r.choice([0, 1, 2, 3, -1, 0.5, -0.0, 1.5, 2.0, -2.0, 0.25, 3.7, "inf", "-inf", "nan"])}

    def try_op(self, name: str, args: Sequence[Any], at: dict[str, Any] | None = None, ident: str | None = None) -> Op | None:
        """Adds an operation, where both sets of lengths allow it and it is not too large."""
        op: Op = {"op": name, "args": list(args), "at": at or {}, "id": ident or self.ident("o")}
        made = []
        for run in self.runs:
            trial = copy.copy(run)
            trial.env, trial.trips, trial.state = dict(run.env), list(run.trips), dict(run.state)
            try:
                trial.ops([op])
            except (Refused, MemoryError):
                return None
            made.append(trial)
        new = [i for i in made[0].env if i not in self.runs[0].env and (i == op["id"] or i.startswith(op["id"] + "."))]
        for t in made:
            for i in new:
                if t.env[i].v.size > MOST:
                    return None
        if any(made[0].env[i].dims != made[1].env[i].dims for i in new):
            return None  # one length is known by another in one call only
        for run, t in zip(self.runs, made, strict=True):
            run.env.update({i: t.env[i] for i in new})
            run.state.update(t.state)
        self.here.append(op)
        self.scope[-1] += new
        return op

    @property
    def here(self) -> list[Op]:
        return self.stack[-1]

    stack: list[list[Op]]

    def body(self, params: dict[str, list[V]], many: int, rows: Sequence[str]) -> list[Op]:
        """Operations of a function that is traced; `params` are its arguments, in both sets of lengths."""
        self.stack.append([])
        self.scope.append(list(params))
        for k, run in enumerate(self.runs):
            run.env.update({i: v[k] for i, v in params.items()})
        for _ in range(many):
            self.step(rows)
        self.inner = self.scope.pop()
        return self.stack.pop()

    inner: list[str]

    def step(self, rows: Sequence[str]) -> None:
        for _ in range(6):
            name = self.rng.choice(list(rows))
            before = len(self.case["sources"])
            try:
                drawn = ROWS[name].draw(self)
            except Refused:
                drawn = None
            if drawn is not None and self.try_op(name, *drawn) is not None:
                return
            for s in self.case["sources"][before:]:
                if s["id"] in self.scope[0] and self.rng.random() < 0.5:
                    self.forget(s["id"])


class Row(NamedTuple):
    """A function: arguments and attributes that a case draws (None: not now), and the op that ngraph builds of them."""

    draw: Callable[[Drawing], Any]
    build: Callable[[Any, list[Any], dict[str, Any], str], Any]
    makes: str  # which public function it is


ROWS: dict[str, Row] = {}


def row(name: str, makes: str | None = None) -> Callable[[Any], Any]:
    """A row from a class with `draw` and `build`."""

    def made(cls: Any) -> Any:
        ROWS[name] = Row(cls.draw, cls.build, makes or name)
        return cls

    return made


def simple(name: str, draw: Callable[[Drawing], Any], build: Callable[..., Any], makes: str | None = None) -> None:
    ROWS[name] = Row(draw, build, makes or name)


# ---- elementwise --------------------------------------------------------------------------------------------------------------


def _one(dtypes: Sequence[str]) -> Callable[[Drawing], Any]:
    return lambda d: ([d.pick(dtypes)], {})


def _two(dtypes: Sequence[str], dtype: Sequence[str] = ()) -> Callable[[Drawing], Any]:
    def draw(d: Drawing) -> Any:
        x = d.pick(dtypes)
        y = d.maybe_number(x) or d.pick(dtypes if d.rng.random() < 0.5 else (d.value(x).d,))
        at = {"dtype": d.rng.choice(dtype)} if dtype and d.rng.random() < 0.1 else {}
        return ([x, y] if isinstance(y, str) and d.rng.random() < 0.9 or isinstance(y, dict) and d.rng.random() < 0.6 else [y, x]), at

    return draw


def _call(name: str) -> Callable[..., Any]:
    return lambda m, a, at, i: getattr(ng, name)(*a, **at)


for _name in (
    "exp",
    "expm1",
    "log",
    "log1p",
    "sqrt",
    "sin",
    "cos",
    "tanh",
    "atan",
    "erf",
    "exp2",
    "log2",
    "log10",
    "asin",
    "acos",
    "sinh",
    "asinh",
    "acosh",
    "atanh",
    "sigmoid",
    "gelu",
    "silu",
    "softplus",
    "reciprocal",
):
    simple(_name, _one((*FLOAT, *FLOAT, *INT[:2], "bool")), _call(_name))
for _name in ("floor", "ceil", "trunc", "rounded", "absolute", "square", "relu"):
    simple(_name, _one((*FLOAT, *NUMBER, "bool")), _call(_name))
for _name in ("negative", "sign"):
    simple(_name, _one((*FLOAT, *INT[:4])), _call(_name))
for _name in ("add", "subtract", "multiply"):
    simple(_name, _two((*FLOAT, *ANY), FLOAT), _call(_name))
for _name in ("divide", "power"):
    simple(_name, _two((*FLOAT, *NUMBER)), _call(_name))
for _name in ("mod", "floordivide"):
    simple(_name, _two((*FLOAT, *INT, *INT)), _call(_name))
for _name in ("maximum", "minimum"):
    simple(_name, _two((*FLOAT, *ANY)), _call(_name))
for _name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    simple(_name, _two((*FLOAT, *ANY, *SMALL), FLOAT), _call(_name))


def _same_kind(dtypes: Sequence[str]) -> Callable[[Drawing], Any]:
    def draw(d: Drawing) -> Any:
        x = d.pick(dtypes)
        return [x, d.pick((d.value(x).d,))], {}

    return draw


for _name, _sign in (("and", "and_"), ("or", "or_"), ("xor", "xor"), ("shl", "lshift"), ("shr", "rshift")):
    simple(
        f"bits_{_name}",
        _same_kind((*INT, "bool") if _name in ("and", "or", "xor") else INT),
        lambda m, a, at, i, sign=_sign: getattr(ng.operator, sign)(*a),
        "operators",
    )
simple("bits_invert", _one((*INT, "bool")), lambda m, a, at, i: ng.operator.invert(a[0]), "operators")
simple("logical_not", _one(BOOL), _call("logical_not"))
for _name, _kind in (("logical_and", "and"), ("logical_or", "or")):
    simple(
        _name,
        lambda d, kind=_kind: ([d.pick(ANY), d.pick(ANY)], {"kind": kind}),
        lambda m, a, at, i, name=_name: getattr(ng, name)(*a),
    )
simple("where", lambda d: ([d.pick((*BOOL, *BOOL, *NUMBER)), *_two((*FLOAT, *ANY, *SMALL))(d)[0]], {}), _call("where"))
simple("stop_gradient", _one(ANY), _call("stop_gradient"))
simple(
    "elu", lambda d: ([d.pick((*FLOAT, "int8"))], {"alpha": d.rng.choice([1.0, 0.5, -0.5])}), lambda m, a, at, i: ng.elu(a[0], at["alpha"])
)
simple("gelu_tanh", _one(FLOAT), lambda m, a, at, i: ng.gelu(a[0], approximate=True), "gelu")
simple("safelog", lambda d: ([d.pick(FLOAT)], {"limit": d.rng.choice([-50, -3])}), lambda m, a, at, i: ng.safelog(a[0], at["limit"]))
simple("sigmoidAtomic", _one(FLOAT), _call("sigmoidAtomic"))
oracle.FUNCTIONS["sigmoidAtomic"] = oracle.FUNCTIONS["sigmoid"]


def _draw_clip(d: Drawing) -> Any:
    x = d.pick((*FLOAT, *NUMBER))
    has = d.rng.choice([[True, True], [True, False], [False, True]])
    ends = [d.maybe_number(x, 0.7) or d.pick((d.value(x).d,)) for h in has if h]
    return [x, *ends], {"has": has}


simple(
    "clip",
    _draw_clip,
    lambda m, a, at, i: ng.clip(a[0], *(a[1:] if all(at["has"]) else (None, a[1]) if at["has"][1] else (a[1], None))),
)


def _draw_cast(d: Drawing) -> Any:
    x = d.pick((*FLOAT, *ANY, *SMALL))
    target = d.rng.choice((*ANY, *NUMBER, *SMALL))
    return [x], {"dtype": target, **({"saturate": True} if d.rng.random() < 0.2 else {})}


simple("cast", _draw_cast, lambda m, a, at, i: ng.cast(a[0], at["dtype"], at.get("saturate", False)))


def _draw_bitcast(d: Drawing) -> Any:
    x = d.pick((*NUMBER, *SMALL))
    width = oracle.bits(d.value(x).d)
    wanted = [t for t in (*NUMBER, "float8_e4m3fn", "float8_e5m2") if oracle.bits(t) == width]
    if d.value(x).d in NARROW and not d.value(x).d.startswith("float8"):
        return None
    return [x], {"dtype": d.rng.choice(wanted)}


simple("bitcast", _draw_bitcast, lambda m, a, at, i: ng.bitcast(a[0], dtype=at["dtype"]))

# ---- reductions ---------------------------------------------------------------------------------------------------------------


def over(d: Drawing, i: str, order: bool = False) -> dict[str, Any]:
    """Returns the reduced axes, stated in one of the possible ways, by the value's own axes or by those of the case's beginning."""
    names = d.value(i).names
    how = d.rng.random()
    some = d.rng.sample(names, d.rng.randint(0, len(names)))
    base = {"base": d.rng.random() < 0.5}
    if how < 0.2:
        return base
    if how < 0.65:
        return {"reduce": [list(n) for n in some], **base}
    return {"keep": [list(n) for n in some], **base}


def _axes(m: Any, x: Any, at: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if at.get("reduce") is not None:
        said["reduction_axes"] = [m.axis(x, n, at["base"]) for n in at["reduce"]]
    if at.get("keep") is not None:
        said["out_axes"] = [m.axis(x, n, at["base"]) for n in at["keep"]]
    return said


def _reducing(name: str, dtypes: Sequence[str], more: dict[str, Any] | None = None, dtype: Sequence[str] = ()) -> None:
    def draw(d: Drawing) -> Any:
        x = d.pick(dtypes)
        at = {**over(d, x), **(more or {})}
        if dtype and d.rng.random() < 0.2:
            at["dtype"] = d.rng.choice(dtype)
        return [x], at

    def build(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
        said = _axes(m, a[0], at)
        if at.get("dtype"):
            said["dtype"] = at["dtype"]
        return getattr(ng, name)(a[0], **said)

    simple(name, draw, build)


for _name, _kind in (("sum", "add"), ("prod", "multiply"), ("max", "max"), ("min", "min")):
    _reducing(_name, (*FLOAT, *ANY), {"kind": _kind}, NUMBER)
_reducing("mean", (*FLOAT, *ANY), None, FLOAT)
for _name in ("variance", "squared_L2", "L2_norm", "L1_norm", "logsumexp", "tensor_size"):
    _reducing(_name, (*FLOAT, *FLOAT, *ANY))
for _name in ("argmax", "argmin"):
    _reducing(_name, (*FLOAT, *ANY), {"kind": _name[3:]}, ("int64", "float32", "uint8"))
simple("batch_size", _one((*ANY, *SMALL)), _call("batch_size"))


def _normalising(name: str) -> None:
    def draw(d: Drawing) -> Any:
        x = d.pick((*FLOAT, *FLOAT, "int32"))
        at = over(d, x)
        at.pop("keep", None)
        return [x], {**at, "log": name == "log_softmax"}

    def build(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
        return getattr(ng, name)(a[0], *_axes(m, a[0], at).values())

    simple(name, draw, build)


_normalising("softmax")
_normalising("log_softmax")


def axis_of(d: Drawing, i: str) -> Any:
    names = d.value(i).names
    if not names:
        raise Refused("no axes")
    return list(d.rng.choice(names))


def ranked(least: int) -> Callable[[V], bool]:
    return lambda v: len(v.dims) >= least


def _draw_cumsum(d: Drawing) -> Any:
    x = d.pick((*FLOAT, *ANY), ranked(1), least=1)
    return [x], {
        "axis": axis_of(d, x),
        "exclusive": d.rng.random() < 0.4,
        "reverse": d.rng.random() < 0.4,
        "by": d.rng.choice(["own", "base", "name"]),
    }


simple("cumsum", _draw_cumsum, lambda m, a, at, i: ng.cumsum(a[0], m.named(a[0], at), at["exclusive"], at["reverse"]))


def _draw_sort(d: Drawing) -> Any:
    x = d.pick((*FLOAT, *ANY), ranked(1), least=1)
    values = []
    if d.rng.random() < 0.5:
        names = d.value(x).names
        v = d.pick((*ANY, *SMALL), lambda v: set(v.names) <= set(names))
        values.append(v)
    return [x, *values], {"axis": axis_of(d, x), **_order(d, "descending"), "by": d.rng.choice(["own", "base", "name"])}


def _order(d: Drawing, name: str) -> dict[str, bool]:
    return {name: d.rng.random() < 0.5, "nan_largest": d.rng.random() < 0.5}


def _sorted(m: Any, a: Any, at: Any, i: str) -> Any:
    return ng.sort(a[0], m.named(a[0], at), *a[1:], descending=at["descending"], nan_largest=at["nan_largest"])


simple("sort", _draw_sort, _sorted)


def _draw_top_k(d: Drawing) -> Any:
    x = d.pick((*FLOAT, *ANY), lambda v: any(isinstance(t[2], int) for t in v.dims), least=1)
    k = d.rng.choice([j for j, t in enumerate(d.value(x).dims) if isinstance(t[2], int)])
    n = d.rng.randint(0, d.value(x).v.shape[k])
    return [x], {"axis": list(d.value(x).names[k]), "k": n, **_order(d, "largest"), "by": d.rng.choice(["own", "name"])}


simple("top_k", _draw_top_k, lambda m, a, at, i: ng.top_k(a[0], m.named(a[0], at), at["k"], at["largest"], at["nan_largest"]))

# ---- what moves ---------------------------------------------------------------------------------------------------------------

MOVED = (*FLOAT, *ANY, *SMALL)


def _draw_broadcast(d: Drawing) -> Any:
    x = d.pick(MOVED)
    names = [list(n) for n in d.value(x).names]
    more = [list(a) for a in d.dims(0, 2) if list(a) not in names]
    axes = names + more
    d.rng.shuffle(axes)
    return [x], {"axes": axes}


simple("broadcast", _draw_broadcast, lambda m, a, at, i: ng.broadcast(a[0], m.axes(a[0], at["axes"])))


def _draw_order(d: Drawing) -> Any:
    x = d.pick(MOVED, ranked(2), least=2)
    axes = [list(n) for n in d.value(x).names]
    d.rng.shuffle(axes)
    return [x], {"axes": axes}


simple("axes_with_order", _draw_order, lambda m, a, at, i: ng.axes_with_order(a[0], m.axes(a[0], at["axes"])))


def _draw_expand(d: Drawing) -> Any:
    x = d.pick(MOVED)
    new = [a for a in d.dims(1, 3) if a not in d.value(x).names]
    if not new:
        return None
    at = d.rng.randint(0, len(d.value(x).dims))
    axes = [list(n) for n in d.value(x).names]
    return [x], {"axes": [*axes[:at], list(new[0]), *axes[at:]], "at": at}


simple("expand_dims", _draw_expand, lambda m, a, at, i: ng.expand_dims(a[0], m.axes(a[0], at["axes"])[at["at"]], at["at"]))


def _draw_rename(role: bool) -> Callable[[Drawing], Any]:
    def draw(d: Drawing) -> Any:
        x = d.pick(MOVED, ranked(1), least=1)
        names = [list(n) for n in d.value(x).names]
        k = d.rng.randrange(len(names))
        if role and d.rng.random() < 0.3:
            names[k] = [names[k][0], names[k][1] - 1]
        else:
            names[k] = [d.ident("Q"), 0]
        return [x], {"axes": names, "from": list(d.value(x).names[k]), "k": k, "by": d.rng.choice(["own", "base", "name"])}

    return draw


def _renamed_axes(m: Any, x: Any, at: dict[str, Any]) -> list[Any]:
    made = []
    for old, (name, level) in zip(x.axes, at["axes"], strict=True):
        same = (old.short_name, old.dual) == (name, level) or m.is_axis(old, (name, level))
        made.append(old if same else (old - 1 if level < 0 else ng.make_axis(name=name)))
    return made


simple(
    "map_roles",
    _draw_rename(False),
    lambda m, a, at, i: ng.map_roles(a[0], {m.named(a[0], {"axis": at["from"], "by": at["by"]}): at["axes"][at["k"]][0]}),
)
simple("cast_axes", _draw_rename(True), lambda m, a, at, i: ng.cast_axes(a[0], _renamed_axes(m, a[0], at)))
simple("cast_role", _draw_rename(False), lambda m, a, at, i: ng.cast_role(a[0], _renamed_axes(m, a[0], at)))


def _draw_dualed(d: Drawing) -> Any:
    x = d.pick(MOVED, ranked(1), least=1)
    name = d.rng.choice(d.value(x).names)[0]
    return [x], {"name": name, "axes": [[n, level - 1 if n == name else level] for n, level in d.value(x).names]}


def _build_dualed(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    def named(axis: Any) -> bool:
        return bool(m.called(axis) == at["name"])

    named.shown = f"lambda axis: axis.short_name == {at['name']!r}"  # type: ignore[attr-defined]
    return ng.dualed_axes(a[0], named, -1, 0)


simple("dualed_axes", _draw_dualed, _build_dualed)


def _item(d: Drawing, n: int, fixed: bool) -> Any:
    r = d.rng
    if fixed and n and r.random() < 0.25:
        return r.randint(-n, n - 1)
    if r.random() < 0.2:
        return [None, None, None]
    ends = [None, *range(-n - 2, n + 3)]
    return [r.choice(ends), r.choice(ends), r.choice([None, 1, 1, 2, 3, -1, -1, -2, -5])]


def _draw_slice(ways: Sequence[str]) -> Callable[[Drawing], Any]:
    def draw(d: Drawing) -> Any:
        x = d.pick(MOVED, ranked(1), least=1)
        v = d.value(x)
        at = d.rng.choice(ways)
        items: list[Any] = [_item(d, n, isinstance(t[2], int)) for t, n in zip(v.dims, v.v.shape, strict=True)]
        if at in ("axis", "dict"):
            k = d.rng.randrange(len(items))
            items = [it if j == k else [None, None, None] for j, it in enumerate(items)]
        return [x], {"items": items, "as": at}

    return draw


def _slice_of(item: Any) -> Any:
    return item if isinstance(item, int) else slice(*item)


def _build_slice(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    x, items = a[0], [_slice_of(it) for it in at["items"]]
    full = [None, None, None]
    k = next((j for j, it in enumerate(at["items"]) if it != full), 0)
    if at["as"] == "axis":
        return ng.slice_along_axis(x, x.axes[k], items[k])
    if at["as"] == "dict":
        return ng.operator.getitem(x, {x.axes[k]: items[k]})
    if at["as"] == "getitem":
        return ng.operator.getitem(x, tuple(items))
    if at["as"] == "dots":
        keep = next((j for j in reversed(range(len(items))) if at["items"][j] != full), -1)
        return ng.operator.getitem(x, (*items[: keep + 1], ...))
    return ng.tensor_slice(x, items)


simple("getitem", _draw_slice(["getitem", "dots", "dict"]), _build_slice, "operators")
simple("slice_along_axis", _draw_slice(["axis"]), _build_slice)
simple("tensor_slice", _draw_slice(["tensor"]), _build_slice)


def _draw_flip(d: Drawing) -> Any:
    x = d.pick(MOVED, ranked(1), least=1)
    names = d.value(x).names
    return [x], {"axes": [list(n) for n in d.rng.sample(names, d.rng.randint(1, len(names)))]}


simple("flip", _draw_flip, lambda m, a, at, i: ng.flip(a[0], [m.axis(a[0], n, False) for n in at["axes"]]))


def _draw_pad(d: Drawing) -> Any:
    x = d.pick((*FLOAT, *ANY), ranked(1), least=1)
    v = d.value(x)
    sides = [d.rng.choice([[0, 0], [0, 1], [2, 0], [1, 3]]) for _ in v.dims]
    value: Any = 0 if v.d in INTS else d.rng.choice([0, 1.5, "inf", "-inf"]) if v.d in FLOATS else 0
    return [x], {"sides": sides, "value": value, "dict": d.rng.random() < 0.4}


def _build_pad(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    sides: Any = [tuple(s) if s[0] != s[1] else s[0] for s in at["sides"]]
    if at["dict"]:
        sides = {x: s for x, s in zip(a[0].axes, sides, strict=True) if s}
    return ng.pad(a[0], sides, value=oracle.number(at["value"]))


simple("pad", _draw_pad, _build_pad)


def _draw_diagonal(d: Drawing) -> Any:
    x = d.pick(MOVED, ranked(2), least=2)
    p, q = d.rng.sample(d.value(x).names, 2)
    return [x], {"axis": list(p), "other": list(q)}


simple("diagonal", _draw_diagonal, lambda m, a, at, i: ng.diagonal(a[0], m.axis(a[0], at["axis"], False), m.axis(a[0], at["other"], False)))


def _draw_concat(d: Drawing) -> Any:
    x = d.pick(MOVED, ranked(1), least=1)
    names = set(d.value(x).names)
    xs = [x, *[d.pick((d.value(x).d,), lambda v: set(v.names) == names) for _ in range(d.rng.randint(0, 2))]]
    d.rng.shuffle(xs)
    return xs, {"axis": axis_of(d, x), "by": d.rng.choice(["base", "name"])}


simple("concat_along_axis", _draw_concat, lambda m, a, at, i: ng.concat_along_axis(a, m.named(a[0], at)))


def _draw_stack(d: Drawing) -> Any:
    x = d.pick(MOVED)
    v = d.value(x)
    xs = [x, *[d.pick((v.d,), lambda w: set(w.dims) == set(v.dims)) for _ in range(d.rng.randint(0, 2))]]
    return xs, {"name": d.ident("Q"), "pos": d.rng.randint(0, len(v.dims))}


simple("stack", _draw_stack, lambda m, a, at, i: ng.stack(a, ng.make_axis(len(a), name=at["name"]), at["pos"]))


def _draw_flatten(d: Drawing) -> Any:
    x = d.pick(MOVED, ranked(2), least=2)
    names = d.value(x).names
    if d.rng.random() < 0.3:
        return [x], {"groups": [[list(n) for n in names]], "all": True}
    return [x], {"groups": [[list(n) for n in d.rng.sample(names, d.rng.randint(2, len(names)))]], "all": False}


simple(
    "flatten",
    _draw_flatten,
    lambda m, a, at, i: ng.flatten(a[0]) if at["all"] else ng.flatten(a[0], [m.axis(a[0], n, False) for n in at["groups"][0]]),
)


def _draw_flatten_at(d: Drawing) -> Any:
    x = d.pick(MOVED, ranked(1), least=1)
    names = [list(n) for n in d.value(x).names]
    at = d.rng.randint(0, len(names))
    return [x], {"groups": [names[:at], names[at:]] if at not in (0, len(names)) else [names], "at": at}


simple("flatten_at", _draw_flatten_at, lambda m, a, at, i: ng.flatten_at(a[0], at["at"]))


def _parts(d: Drawing, n: int) -> list[Any]:
    divisors = [k for k in range(1, n + 1) if n % k == 0] if n else [0]
    p = d.rng.choice(divisors)
    return [[d.ident("Q"), p], [d.ident("Q"), n // p if p else d.rng.choice([0, 3])]]


def _draw_unflatten(d: Drawing) -> Any:
    x = d.pick(MOVED, lambda v: any(isinstance(t[2], int) for t in v.dims), least=1)
    k = d.rng.choice([j for j, t in enumerate(d.value(x).dims) if isinstance(t[2], int)])
    return [x], {"axis": list(d.value(x).names[k]), "parts": _parts(d, d.value(x).v.shape[k])}


def _build_unflatten(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    x = a[0]
    new = [ng.make_axis(n, name=name) for name, n in at["parts"]]
    mine = m.axis(x, at["axis"], False)
    return ng.unflatten(x, [p for c in x.axes for p in (new if c == mine else [c])])


simple("unflatten", _draw_unflatten, _build_unflatten)


def _build_rearrange(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    x = a[0]
    (p, n), (q, _) = at["parts"]
    mine = m.axis(x, at["axis"], False)
    called = [c.label for c in x.axes]
    left = " ".join(f"({p} {q})" if c == mine else name for c, name in zip(x.axes, called, strict=True))
    right = " ".join(f"{p} {q}" if c == mine else name for c, name in zip(x.axes, called, strict=True))
    return ng.rearrange(x, f"{left} -> {right}", **{p: n, q: at["parts"][1][1]})


def _draw_rearrange(d: Drawing) -> Any:
    drawn = _draw_unflatten(d)
    return drawn if not any(n[0].startswith("*") for n in d.value(drawn[0][0]).names) else None


simple("rearrange_split", _draw_rearrange, _build_rearrange, "rearrange")
simple(
    "iota",
    lambda d: (
        [],
        {
            "axis": list((d.dims(1, 1) or [(d.rng.choice(list(d.case["axes"])), 0)])[0]),
            "dtype": d.rng.choice(("int32", "int64", "float32", "uint16")),
        },
    ),
    lambda m, a, at, i: ng.iota(m.base(at["axis"]), at["dtype"]),
)
for _name in ("all_reduce", "broadcast_from"):
    simple(_name, _one(NUMBER), lambda m, a, at, i, name=_name: getattr(ng, name)(a[0]))
for _name in ("all_gather", "reduce_scatter"):

    def _draw_alone(d: Drawing, name: str = _name) -> Any:
        x = d.pick(NUMBER, ranked(1), least=1)
        return [x], {"op": name, "axis": axis_of(d, x)}

    simple(_name, _draw_alone, lambda m, a, at, i, name=_name: getattr(ng, name)(a[0], m.axis(a[0], at["axis"], False)))

# ---- indexing -----------------------------------------------------------------------------------------------------------------


def _indices(d: Drawing, n: int, mode: str, **dims: Any) -> str:
    """Whole numbers inside of an axis, and some outside."""
    r = d.rng
    low, high = (0, max(n - 1, 0)) if r.random() < 0.5 else (-2, n + 2)
    if r.random() < 0.2:
        i = d.pick(INT)
        return i
    t = r.choice(("int32", "int64", "int8") if low < 0 else ("int32", "uint8", "int64", "uint32"))
    if high > 120 and t == "int8":
        t = "int16"
    if high > 250 and t == "uint8":
        t = "uint16"
    return d.source(t, d.dims(0, 2), f"index:{low}:{high}")


def _draw_take(d: Drawing) -> Any:
    x = d.pick(MOVED, ranked(1), least=1)
    v = d.value(x)
    k = d.rng.randrange(len(v.dims))
    mode = d.rng.choice(["clip", "fill", "wrap"])
    return [x, _indices(d, v.v.shape[k], mode)], {"axes": [list(v.names[k])], "mode": mode, "by": d.rng.choice(["own", "base", "name"])}


simple("take", _draw_take, lambda m, a, at, i: ng.take(a[0], a[1], m.named(a[0], {"axis": at["axes"][0], "by": at["by"]}), at["mode"]))


def _draw_gather(d: Drawing) -> Any:
    x = d.pick(MOVED, ranked(2), least=2)
    v = d.value(x)
    ks = d.rng.sample(range(len(v.dims)), 2)
    mode = d.rng.choice(["clip", "fill", "wrap"])
    return [x, *[_indices(d, v.v.shape[k], mode) for k in ks]], {"axes": [list(v.names[k]) for k in ks], "mode": mode}


simple("gather", _draw_gather, lambda m, a, at, i: ng.gather(*a, axes=tuple(m.axis(a[0], n, False) for n in at["axes"]), mode=at["mode"]))


def _draw_lookup(d: Drawing) -> Any:
    lut = d.pick((*FLOAT, *ANY), lambda v: 1 <= len(v.dims) <= 2, least=1, most=2)
    v = d.value(lut)
    k = d.rng.randrange(len(v.dims))
    idx = _indices(d, v.v.shape[k], "fill")
    rest = [n for n in v.names if n != v.names[k]]
    inner = d.value(idx).names
    if set(rest) & set(inner) or v.names[k] in inner:
        return None
    axes = [list(n) for n in (*inner, *rest)]
    d.rng.shuffle(axes)
    return [lut, idx], {"axis": list(v.names[k]), "axes": axes, "pad": d.rng.choice([None, 0])}


def _build_lookup(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    axes = [m.among(a[::-1], n) for n in at["axes"]]
    return ng.lookuptable(a[0], a[1], axes, pad_idx=at["pad"])


simple("lookuptable", _draw_lookup, _build_lookup)


def _draw_put(record: str) -> Callable[[Drawing], Any]:
    def draw(d: Drawing) -> Any:
        x = d.pick(MOVED if record != "scatter_add" else (*FLOAT, *NUMBER), lambda v: len(v.dims) >= 1 and v.v.size < 600, least=1, most=2)
        v = d.value(x)
        k = d.rng.randrange(len(v.dims))
        how = (
            "add" if record == "scatter_add" else "set" if v.d in NARROW else d.rng.choice(["set", "set", "add", "multiply", "min", "max"])
        )
        mode = d.rng.choice(["clip", "fill", "wrap"])
        idx = _indices(d, v.v.shape[k], mode)
        if d.value(idx).v.size * v.v.size > 20000:
            return None
        u = (
            d.pick((v.d,), lambda w: len(w.dims) <= 2)
            if record == "scatter"
            else d.maybe_number(x) or d.pick((v.d,), lambda w: len(w.dims) <= 2)
        )
        return [x, idx, u], {"axis": list(v.names[k]), "combine": how, "mode": mode, "by": d.rng.choice(["own", "base", "name"])}

    return draw


simple("put", _draw_put("put"), lambda m, a, at, i: ng.put(*a, m.named(a[0], at), at["combine"], at["mode"]))
simple("scatter_add", _draw_put("scatter_add"), lambda m, a, at, i: ng.scatter_add(*a, m.named(a[0], at), at["mode"]))


def _build_scatter(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    x, idx, u = a
    along = m.axis(x, at["axis"], False)
    wanted = [*idx.axes, *[c for c in x.axes if c != along and c not in idx.axes]]
    return ng.scatter(x, idx, ng.broadcast(u, wanted), axes=(along,), combine=at["combine"], mode=at["mode"])


simple("scatter", _draw_put("scatter"), _build_scatter)


def _draw_one_hot(d: Drawing) -> Any:
    x = d.pick((*INT, "bool", "float32"), lambda v: v.v.size < 900)
    return [x], {"name": d.ident("Q"), "n": d.rng.choice([0, 1, 2, 3, 5])}


simple("one_hot", _draw_one_hot, lambda m, a, at, i: ng.one_hot(a[0], ng.make_axis(at["n"], name=at["name"])))

# ---- products -----------------------------------------------------------------------------------------------------------------


def few(v: V) -> bool:
    return v.v.size <= 700 and len(v.dims) <= 3


def _pair(d: Drawing, dtypes: Sequence[str] = (*FLOAT, *FLOAT, *INT)) -> list[str]:
    x = d.pick(dtypes, few)
    return [x, d.pick((d.value(x).d,) if d.rng.random() < 0.8 else dtypes, few)]


simple("dot", lambda d: (_pair(d), {}), lambda m, a, at, i: ng.operator.matmul(*a) if i[-1] in "02468" else ng.dot(*a))


def _draw_contract(d: Drawing) -> Any:
    x, y = _pair(d)
    names = list(dict.fromkeys([*d.value(x).names, *d.value(y).names]))
    return [x, y], {"over": [list(n) for n in d.rng.sample(names, d.rng.randint(0, len(names)))]}


def _build_contract(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    return ng.contract(*a, over=tuple(m.among(a, n) for n in at["over"]))


simple("contract", _draw_contract, _build_contract)


MATRIX_RESULTS = (  # functions of ng.linalg, each with what a case makes of its results: oracle.py says the same in NumPy
    "cholesky solve triangular_solve lu qr svd eigh inv pinv det slogdet lstsq matrix_power matrix_norm"
).split()


def _draw_linalg(d: Drawing) -> Any:
    x = d.pick(FLOAT, lambda v: ranked(2)(v) and max(v.v.shape) <= oracle.MOST_ROWS, least=2)
    rows, over = d.rng.sample(d.value(x).names, 2)
    return [x], {
        "kind": d.rng.choice(MATRIX_RESULTS),
        "rows": list(rows),
        "over": list(over),
        "symmetric": d.rng.random() < 0.4,
        "lower": d.rng.random() < 0.5,
        "power": d.rng.choice([-2, -1, 0, 1, 2, 3]),
    }


def _build_linalg(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    """Matrices are t tᵀ + 1 for the hyperbolic tangents t of a value, so that they are well conditioned; rows take turns for pivots."""
    kind, t = at["kind"], ng.tanh(a[0])
    rows, over = m.axes(t, [at["rows"], at["over"]])
    if kind == "qr":
        q, r = ng.linalg.qr(t, rows, over, "inner")
        return ng.broadcast(ng.contract(q, r, over="inner"), t.axes)
    if kind == "svd":
        return ng.max(ng.linalg.svd(t, rows, over, "inner")[1], "inner")
    if kind == "matrix_norm":
        return ng.linalg.matrix_norm(t, rows, over)
    other = ng.map_roles(t, {rows: "columns"})
    g = ng.contract(t, other, over=over)
    columns = next(c for c in g.axes if c.short_name == "columns")
    g = ng.add(g, ng.cast(ng.equal(ng.iota(rows), ng.iota(columns)), t.dtype.name))
    if kind not in ("cholesky", "eigh", "triangular_solve") and not at["symmetric"]:
        g = ng.roll(g, 1, rows)
    if kind == "det":
        return ng.linalg.det(g, rows, columns)
    if kind == "slogdet":
        return ng.add(*ng.linalg.slogdet(g, rows, columns))
    if kind == "eigh":
        values, vectors = ng.linalg.eigh(g, rows, columns, "inner")
        made = ng.contract(ng.multiply(vectors, values), ng.map_roles(vectors, {rows: "again"}), over="inner")
        return ng.broadcast(ng.contract(made, ng.map_roles(t, {rows: "again"}), over="again"), t.axes)
    if kind == "lu":
        _, lower, upper = ng.linalg.lu(g, rows, columns, "inner")
        return ng.contract(ng.sum(ng.contract(lower, upper, over="inner"), rows), other, over="columns")
    if kind in ("solve", "lstsq"):
        made = getattr(ng.linalg, kind)(g, t, rows, columns)
    elif kind in ("inv", "pinv"):
        made = ng.contract(getattr(ng.linalg, kind)(g, rows, columns), t, over=rows)
    elif kind == "triangular_solve":
        factor = ng.linalg.cholesky(g, rows, columns)
        r, c = (rows, columns) if at["lower"] else (columns, rows)
        right = t if at["lower"] else other
        made = ng.linalg.triangular_solve(factor, right, r, c, lower=at["lower"])
        made = made if at["lower"] else ng.map_roles(made, {rows: "columns"})
    else:
        made = ng.linalg.cholesky(g, rows, columns) if kind == "cholesky" else ng.linalg.matrix_power(g, at["power"], rows, columns)
        return ng.broadcast(ng.contract(made, other, over="columns"), t.axes)
    return ng.broadcast(ng.map_roles(made, {"columns": rows}), t.axes)


simple("linalg", _draw_linalg, _build_linalg)


def _draw_einsum(d: Drawing) -> Any:
    xs = _pair(d) if d.rng.random() < 0.8 else [d.pick((*FLOAT, *INT), few)]
    names = list(dict.fromkeys(n for x in xs for n in d.value(x).names))
    return xs, {"out": [list(n) for n in d.rng.sample(names, d.rng.randint(0, len(names)))], "pattern": d.rng.random() < 0.5}


def _build_einsum(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    out = [m.among(a, n) for n in at["out"]]
    if not at["pattern"] or any(c.name in m.flat for x in a for c in x.axes):
        return ng.einsum(*a, out_axes=out)
    return ng.einsum(", ".join(" ".join(c.label for c in x.axes) for x in a) + " -> " + " ".join(c.label for c in out), *a)


simple("einsum", _draw_einsum, _build_einsum)


def _draw_conv(adjoint: bool) -> Callable[[Drawing], Any]:
    def draw(d: Drawing) -> Any:
        r = d.rng
        x = d.pick((*FLOAT, *FLOAT, "int32", "int8"), lambda v: 1 <= len(v.dims) and few(v), least=1)
        v = d.value(x)
        along = [j for j, t in enumerate(v.dims) if t[:2] != ("N", 0)]
        if not along:
            return None
        k = r.choice(along)
        window = d.ident("R")
        d.case["axes"][window] = {"n": [r.choice([1, 2, 3, 3, 5])] * 2, "open": False}
        dims = [(window, 0)]
        more = [t[:2] for j, t in enumerate(v.dims) if j != k and t[0] in d.case["axes"] and t[2] == d.runs[0].dim(*t[:2])[2]]
        dims += r.sample(more, r.randint(0, len(more)))
        if r.random() < 0.5:
            out = d.ident("K")
            d.case["axes"][out] = {"n": [r.choice([1, 2, 4, 16])] * 2, "open": False}
            dims.append((out, 0))
        r.shuffle(dims)
        f = d.source(v.d, dims)
        size = d.case["axes"][window]["n"][0]
        pad = r.choice([[0, 0], [1, 1], [0, 1], [2, 2]])
        stride, dilation = r.choice([1, 1, 2, 3]), r.choice([1, 1, 2])
        if adjoint and sum(pad) > (size - 1) * dilation:
            pad = [0, 0]
        return [x, f], {
            "axis": list(v.names[k]),
            "window": [window, 0],
            "stride": stride,
            "dilation": dilation,
            "pad": pad,
            "adjoint": adjoint,
        }

    return draw


def _build_conv(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    x, f = a
    along = {m.axis(x, at["axis"], False): m.axis(f, at["window"], False)}
    function = ng.deconv if at["adjoint"] else ng.conv
    return function(x, f, along, stride=at["stride"], padding=tuple(at["pad"]), dilation=at["dilation"])


simple("conv", _draw_conv(False), _build_conv)
simple("deconv", _draw_conv(True), _build_conv)


def _draw_pool(name: str) -> Callable[[Drawing], Any]:
    def draw(d: Drawing) -> Any:
        r = d.rng
        x = d.pick((*FLOAT, *FLOAT, *ANY), ranked(1), least=1)
        size, stride = r.choice([1, 2, 3, 4]), r.choice([1, 2, 3])
        pad = r.choice([[0, 0], [0, 1], [1, 1], [1, 2]])
        return [x], {
            "axis": axis_of(d, x),
            "size": size,
            "stride": stride,
            "dilation": r.choice([1, 1, 2]),
            "pad": pad,
            "average": name == "avg_pool",
        }

    return draw


def _build_pool(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    function = ng.avg_pool if at["average"] else ng.max_pool
    window = {m.axis(a[0], at["axis"], False): at["size"]}
    return function(a[0], window, stride=at["stride"], padding=tuple(at["pad"]), dilation=at["dilation"])


simple("max_pool", _draw_pool("max_pool"), _build_pool)
simple("avg_pool", _draw_pool("avg_pool"), _build_pool)

# ---- losses -------------------------------------------------------------------------------------------------------------------


def _draw_loss(which: str) -> Callable[[Drawing], Any]:
    def draw(d: Drawing) -> Any:
        y = d.pick(FLOAT, how="unit")
        names = set(d.value(y).names)
        t = d.pick(FLOAT, lambda v: set(v.names) <= names, how="unit")
        at = over(d, y) if which != "inner" else {}
        at.pop("reduce", None)
        logits = which != "multi" and d.rng.random() < 0.5
        return [y, t], {**at, "which": which, "logits": logits, "bits": which != "inner" and d.rng.random() < 0.3}

    return draw


def _build_loss(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    y, t = a
    if at["logits"]:
        y = ng.sigmoid(y)
    if at["which"] == "inner":
        return ng.cross_entropy_binary_inner(y, t)
    function = ng.cross_entropy_binary if at["which"] == "binary" else ng.cross_entropy_multi
    return function(y, t, usebits=at["bits"], **_axes(m, y, at))


simple("cross_entropy_binary_inner", _draw_loss("inner"), _build_loss)
simple("cross_entropy_binary", _draw_loss("binary"), _build_loss)
simple("cross_entropy_multi", _draw_loss("multi"), _build_loss)


def _draw_logits(d: Drawing) -> Any:
    y = d.pick(FLOAT, ranked(1), least=1)
    v = d.value(y)
    t = d.pick((v.d,), lambda w: set(w.dims) == set(v.dims), how="unit")
    return [y, t], {"bits": d.rng.random() < 0.3}


simple(
    "cross_entropy_logits",
    _draw_logits,
    lambda m, a, at, i: ng.cross_entropy_multi(ng.softmax(a[0]), a[1], usebits=at["bits"]),
    "cross_entropy_multi",
)


def _draw_attention(d: Drawing) -> Any:
    q = d.pick(FLOAT, lambda v: len(v.dims) >= 2 and few(v) and any(isinstance(t[2], int) and t[2] > 0 for t in v.dims), least=2)
    v = d.value(q)
    wide = [t[:2] for t in v.dims if isinstance(t[2], int) and t[2] > 0]
    f = d.rng.choice(wide)
    rest = [n for n in v.names if n != f]
    t = d.rng.choice(rest)
    if (t[0], t[1] - 1) in v.names:
        return None
    same = lambda w: set(w.dims) == set(v.dims)
    return [q, d.pick((v.d,), same), d.pick((v.d,), same)], {"features": list(f), "queries": list(t), "causal": d.rng.random() < 0.4}


def _build_attention(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    f, t = m.axis(a[0], at["features"], False), m.axis(a[0], at["queries"], False)
    return ng.attention(*a, features=f, queries=t, causal=at["causal"])


simple("attention", _draw_attention, _build_attention)

# ---- random numbers -----------------------------------------------------------------------------------------------------------


def _draw_random(which: str) -> Callable[[Drawing], Any]:
    def draw(d: Drawing) -> Any:
        r = d.rng
        at: dict[str, Any] = {"axes": [list(a) for a in d.dims(0, 2)], "which": which}
        if r.random() < 0.4:
            at["seed"] = r.choice([0, 5, 2**33 + 1])
        args: list[Any] = []
        if which in ("uniform", "normal"):
            at["dtype"] = r.choice(FLOAT)
        if which == "uniform":
            at["low"], at["high"] = r.choice([(0, 1), (-2.0, 3.0)])
        elif which == "normal":
            at["loc"], at["scale"] = r.choice([(0, 1), (1.5, 0.25)])
        elif which == "randint":
            at["dtype"] = r.choice(INTS)
            low, high = oracle.limits(at["dtype"])
            at["low"], at["high"] = r.choice([(0, 2), (3, 100), (low, min(high, low + 2**32 - 1))])
        else:
            at["dtype"] = r.choice([None, "float32", "int32"])
            args = [{"n": r.choice([0.25, 0.5, 0.9])}]
        return args, at

    return draw


def _build_random(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    axes = [m.base(n) for n in at["axes"]]
    said = {k: at[k] for k in ("low", "high", "loc", "scale", "dtype") if at.get(k) is not None}
    if a:
        said["p"] = a[0]
    return m.streamed(i, lambda: getattr(ng, at["which"])(axes, seed=at.get("seed"), **said))


for _name in ("uniform", "normal", "bernoulli", "randint"):
    simple(_name, _draw_random(_name), _build_random)
simple(
    "permutation",
    lambda d: ([], {"axis": [d.rng.choice(list(d.case["axes"])), 0], **({"seed": 3} if d.rng.random() < 0.4 else {})}),
    lambda m, a, at, i: m.streamed(i, lambda: ng.permutation(m.base(at["axis"]), at.get("seed"))),
)

# ---- state and control --------------------------------------------------------------------------------------------------------

simple("value_of", lambda d: ([d.pick(MOVED, lambda v: True)], {}), _call("value_of"))
simple("PrintOp", _one(ANY), lambda m, a, at, i: ng.PrintOp(a[0], i))

SAFE = (
    "add subtract multiply maximum minimum tanh sigmoid absolute negative where less cast relu clip square floor cumsum sum mean max take "
    "flip broadcast axes_with_order softmax dot sort argmax getitem add multiply"
).split()
DRAWS = (*SAFE, "uniform", "uniform", "normal", "randint", "bernoulli", "permutation")


def _next(d: Drawing, old: list[V], inner: Sequence[str], params: Sequence[str]) -> str:
    """A value of a body that can be carried as `old` was."""
    fits = []
    for i in [*inner, *params]:
        try:
            oracle.fitted(d.runs[0].env[i], old[0])
            oracle.fitted(d.runs[1].env[i], old[1])
        except Refused:
            continue
        fits.append(i)
    late = [i for i in fits if i not in params]
    return d.rng.choice(late[-3:] if late else fits)


def _both(d: Drawing, i: str) -> list[V]:
    return [run.env[i] for run in d.runs]


def _draw_scan(d: Drawing) -> Any:
    r = d.rng
    ident = d.ident("o")
    many = r.randint(0, 2)
    xs: list[str] = []
    name: Any = list(r.choice([(n, 0) for n in d.case["axes"]]))
    if max(d.case["axes"][name[0]]["n"]) > 40:
        return None
    dim = d.runs[0].dim(*name)
    for _ in range(many):
        xs.append(d.pick((*FLOAT, *ANY), lambda v: dim in v.dims and v.v.size < 800, least=1, of=None))
    carries = [
        d.pick((*FLOAT, *NUMBER), lambda v: tuple(name) not in v.names and v.v.size < 400) for _ in range(r.randint(0 if xs else 1, 2))
    ]
    params: dict[str, list[V]] = {}
    for k, c in enumerate(carries):
        params[f"{ident}/{k}"] = _both(d, c)
    for k, x in enumerate(xs):
        slices = []
        for v in _both(d, x):
            j = v.pos(tuple(name))
            slices.append(
                oracle.at_trip(v, j, 0)
                if v.v.shape[j]
                else V(v.d, tuple(q for q in v.dims if q is not v.dims[j]), *oracle._one(v, tuple(name)))
            )
        params[f"{ident}/{len(carries) + k}"] = slices
    for run in d.runs:
        run.trips.append(0)
    ops = d.body(params, r.randint(1, 4), DRAWS)
    for run in d.runs:
        run.trips.pop()
    inner, held = d.inner, list(params)
    following = [_next(d, params[f"{ident}/{k}"], inner, held) for k in range(len(carries))]
    every = [i for i in [*inner, *held] if tuple(name) not in d.runs[0].env[i].names]
    if not every:
        return None
    ys = [r.choice(every[-4:]) for _ in range(r.randint(1, 2))]
    at = {"axis": name, "reverse": r.random() < 0.5, "carries": len(carries), "ops": ops, "next": following, "ys": ys}
    return [*carries, *xs], at, ident


def _build_scan(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    k = at["carries"]

    def body(carry: Any, xs: Any) -> Any:
        for j, p in enumerate((*(carry or ()), *(xs or ()))):
            m.env[f"{i}/{j}"] = p
        m.ops(at["ops"])
        return tuple(m.env[c] for c in at["next"]) if k else None, tuple(m.env[y] for y in at["ys"])

    axis = m.axis(a[k], at["axis"], False) if len(a) > k else m.base(at["axis"])
    after, ys = ng.scan(body, tuple(a[:k]) if k else None, tuple(a[k:]) if len(a) > k else None, axis, at["reverse"])
    return (*(after or ()), *ys)


ROWS["scan"] = Row(_draw_scan, _build_scan, "scan")


def _draw_while(d: Drawing) -> Any:
    ident = d.ident("o")
    carries = [d.pick((*FLOAT, *NUMBER), lambda v: v.v.size < 400) for _ in range(d.rng.randint(1, 2))]
    zero = oracle.exact("int32", (), np.int32(0))
    params = {f"{ident}/0": [zero, zero], **{f"{ident}/{k + 1}": _both(d, c) for k, c in enumerate(carries)}}
    for run in d.runs:
        run.trips.append(0)
    ops = d.body(params, d.rng.randint(1, 3), DRAWS)
    for run in d.runs:
        run.trips.pop()
    following = [_next(d, params[f"{ident}/{k + 1}"], d.inner, list(params)) for k in range(len(carries))]
    return carries, {"limit": d.rng.randint(0, 4), "ops": ops, "next": following}, ident


def _build_while(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    def body(carry: Any) -> Any:
        for j, p in enumerate(carry):
            m.env[f"{i}/{j}"] = p
        m.ops(at["ops"])
        return (ng.operator.add(carry[0], 1), *(m.env[c] for c in at["next"]))

    return ng.while_loop(lambda carry: ng.operator.lt(carry[0], at["limit"]), body, (ng.constant(0, dtype="int32"), *a))


ROWS["while_loop"] = Row(_draw_while, _build_while, "while_loop")


def _draw_cond(d: Drawing) -> Any:
    ident = d.ident("o")
    p = d.source("bool", [], kind="placeholder") if d.rng.random() < 0.6 else d.pick(("bool",), lambda v: not v.dims, least=0, most=0)
    then = d.body({}, d.rng.randint(1, 3), DRAWS)
    made = list(d.inner)
    if not made:
        return None
    gives = d.rng.choice(made[-2:])
    x = d.runs[0].env[gives]
    other = d.body({}, d.rng.randint(0, 2), DRAWS)
    same = [i for i in [*d.inner, *d.known] if d.runs[0].env[i].d == x.d and set(d.runs[0].env[i].dims) == set(x.dims)]
    if not same:
        return None
    return [p], {"then": then, "else": other, "then_gives": gives, "else_gives": d.rng.choice(same)}, ident


def _build_cond(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    def branch(k: str) -> Callable[[], Any]:
        def made() -> Any:
            m.ops(at[k])
            return m.env[at[k + "_gives"]]

        return made

    return ng.cond(a[0], branch("then"), branch("else"))


ROWS["cond"] = Row(_draw_cond, _build_cond, "cond")


def _draw_checkpoint(d: Drawing) -> Any:
    ident = d.ident("o")
    xs = [d.pick((*FLOAT, "int32")) for _ in range(d.rng.randint(1, 2))]
    params = {f"{ident}/{k}": _both(d, x) for k, x in enumerate(xs)}
    ops = d.body(params, d.rng.randint(1, 3), SAFE)
    if not d.inner:
        return None
    return xs, {"ops": ops, "gives": d.rng.choice(d.inner[-2:])}, ident


def _build_checkpoint(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    def body(*xs: Any) -> Any:
        for j, p in enumerate(xs):
            m.env[f"{i}/{j}"] = p
        m.ops(at["ops"])
        return m.env[at["gives"]]

    return ng.checkpoint(body, *a)


ROWS["checkpoint_of"] = Row(_draw_checkpoint, _build_checkpoint, "checkpoint")


def _variables(d: Drawing) -> list[str]:
    written = {it["var"] for it in d.case["assigns"]} | set(d.case.get("written", ()))
    return [s["id"] for s in d.case["sources"] if s["kind"] == "variable" and s["id"] in d.scope[0] and s["id"] not in written]


def _writable(d: Drawing, most: int) -> list[str]:
    while len(_variables(d)) < most:
        closed = [n for n, a in d.case["axes"].items() if not a["open"]]
        d.source(d.rng.choice((*PLAIN, *NUMBER, "bool")), d.dims(0, 2, of=closed) if closed else [], kind="variable")
    return d.rng.sample(_variables(d), most)


def _draw_sequential(d: Drawing) -> Any:
    """Assigns one after another, or two at once, and then a value; all read sources only, so that nothing runs before its place."""
    r = d.rng
    ident = d.ident("o")
    if len(d.stack) > 1:
        return None  # a body assigns nothing
    chosen = _writable(d, r.randint(1, 2))
    d.fixed = {s["id"] for s in d.case["sources"]}
    steps = []
    before = [dict(run.env) for run in d.runs]
    try:
        for _ in range(r.randint(1, 3)):
            targets: list[Any] = chosen if len(chosen) == 2 and r.random() < 0.4 else [r.choice(chosen)]
            parts = []
            for var in targets:
                part = _assignable(d, var)
                if part is None:
                    return None
                parts.append({"var": var, **part})
            for part in parts:
                for run in d.runs:
                    run.env[part["var"]] = oracle.assigned(run.env[part["var"]], run.env[part["gives"]])
            steps.append({"parts": parts})
        ops = d.body({}, r.randint(0, 2), SAFE)
        gives = r.choice(d.inner[-2:] or chosen)
        steps.append({"parts": [{"var": None, "ops": ops, "gives": gives}]})
    except Refused:
        return None
    finally:
        d.fixed = None
        for run, env in zip(d.runs, before, strict=True):
            run.env.update({i: env[i] for i in chosen})
    d.case.setdefault("written", []).extend(chosen)
    return [], {"steps": steps}, ident


def _assignable(d: Drawing, var: str) -> dict[str, Any] | None:
    """Operations of which the last gives what a variable can be assigned."""
    d.fixed = d.fixed or set()
    inner: list[str] = []
    ops = d.body({}, d.rng.randint(1, 2), [*SAFE, "value_of"])
    inner = d.inner
    fits = []
    for i in [*inner, var]:
        try:
            for run in d.runs:
                oracle.assigned(run.env[var], run.env[i])
        except Refused:
            continue
        fits.append(i)
    return {"ops": ops, "gives": d.rng.choice(fits)}


def _build_sequential(m: Any, a: list[Any], at: dict[str, Any], i: str) -> Any:
    made: list[Any] = []
    for step in at["steps"]:
        these = []
        for part in step["parts"]:
            m.ops(part["ops"])
            new = m.env[part["gives"]]
            these.append(ng.value_of(new) if part["var"] is None else ng.assign(m.env[part["var"]], new))
        made.append(these[0] if len(these) == 1 else ng.doall(these))
    return ng.sequential(made)


ROWS["sequential"] = Row(_draw_sequential, _build_sequential, "sequential")

OUTER = list(ROWS)
RARE = (
    "sequential",
    "cond",
    "while_loop",
    "scan",
    "checkpoint_of",
    "PrintOp",
    "stop_gradient",
    "all_reduce",
    "broadcast_from",
    "all_gather",
    "reduce_scatter",
)
WITHOUT_A_ROW = {
    "as_op as_ops constant constant_storage placeholder variable persistent_tensor temporary": "what sources of a case are made with",
    "assign fill init_tensor set_item doall": "the assigns of a case, and the steps of its sequentials",
    "print_values": "effects are asked for by PrintOp's row; tests/ops/test_control.py has its order",
    "convolution deconvolution pooling": "the same records by position: tests/ops/test_convolution.py and its neighbours",
    "ctc": "against PyTorch in tests/ops/test_ctc.py; its oracle is as long as it",
    "deriv jvp vjp": "the kind derivatives",
    "nonzero": "a length that the call finds out: tests/ops, tests/transformers",
    "computation function": "makes no op",
    "custom_gradient grad value_and_grad jacobian hessian hvp vmap": "derivatives and batches of functions, in tests of their own",
    "all any arange argsort atan2 batch_norm bincount categorical cosh cross cummax cummin cumprod diag digamma dropout erfinv eye "
    "fft full gamma glu grid_sample group_norm gumbel hardswish histogram hypot ifft interpolate irfft isfinite isinf isnan kron "
    "layer_norm leaky_relu lgamma linspace logaddexp logcumsumexp logical_xor median mish nan_to_num norm ones outer pixel_shuffle "
    "poisson prelu quantile repeat rfft rms_norm roll searchsorted segment_max segment_mean segment_sum sinc split std stft tan "
    "tile trace tril trigamma triu truncated_normal unfold unique unstack var zeros": "in tests/ops/test_functions.py",
}


# ---- assigns of the whole program ---------------------------------------------------------------------------------------------


def _draw_assign(d: Drawing) -> None:
    r = d.rng
    (var,) = _writable(d, 1)
    v = d.value(var)
    how = r.choice(["assign", "assign", "fill", "iadd", "isub", "imul", "set_item", "init_tensor"])
    it: dict[str, Any] = {"var": var, "how": how}
    if how == "fill":
        it["value"] = {"n": r.choice([0, 1, 3])} if v.d != "bool" else {"n": True}
    elif how == "set_item":
        if v.d in NARROW:
            return
        it["items"] = [_item(d, n, True) for n in v.v.shape]
        it["value"] = {"n": 1} if v.d != "bool" and r.random() < 0.5 else d.pick((v.d,), lambda w: len(w.dims) <= 1)
    elif how != "init_tensor":
        it["value"] = d.pick((v.d,) if r.random() < 0.7 else ANY, lambda w: set(w.dims) <= set(v.dims))
    try:
        start = [dict(run.state) for run in d.runs]
        for run, s in zip(d.runs, start, strict=True):
            run.case_initial = s  # type: ignore[attr-defined]
            oracle.assign(run, it, s)
    except Refused:
        return
    d.case["assigns"].append(it)


def draw(seed: int) -> dict[str, Any]:
    d = Drawing(seed)
    d.stack = [d.case["ops"]]
    d.inner = []
    r = d.rng
    for _ in range(r.randint(1, 3)):
        d.source(r.choice((*PLAIN, *ANY)), d.dims(0, 3))
    usual = [n for n in OUTER if n not in RARE]
    for _ in range(r.randint(2, 9)):
        d.step([*usual, *usual, *RARE] if r.random() < 0.75 else RARE[:5])
    for _ in range(r.choice([0, 0, 0, 1, 2])):
        with contextlib.suppress(Refused):
            _draw_assign(d)
    case = d.case
    used = {a for op in _every(case["ops"]) for a in _reads(op)}
    made = list(d.scope[0])
    leaves = [i for i in made if i not in used and not i.startswith("s")]
    case["outputs"] = [*leaves[-6:], *r.sample(made, min(len(made), r.choice([0, 0, 1])))]
    case["outputs"] = list(dict.fromkeys(case["outputs"])) or made[-1:]
    case["threads"] = d.large or r.random() < 0.03
    return pruned(case)


# ---- a case as a structure ----------------------------------------------------------------------------------------------------


def _bodies(op: Op) -> list[list[Op]]:
    at = op["at"]
    found = [at[k] for k in ("ops", "then", "else") if k in at]
    return found + [part["ops"] for step in at.get("steps", ()) for part in step["parts"]]


def _every(ops: Sequence[Op]) -> Iterator[Op]:
    for op in ops:
        yield op
        for body in _bodies(op):
            yield from _every(body)


def _reads(op: Op) -> list[str]:
    at = op["at"]
    found = [a for a in op["args"] if isinstance(a, str)]
    found += [*at.get("next", ()), *at.get("ys", ()), *[at[k] for k in ("gives", "then_gives", "else_gives") if k in at]]
    return found + [x for step in at.get("steps", ()) for part in step["parts"] for x in (part["gives"], part["var"]) if x]


def _made_by(i: str) -> str:
    return i.split(".")[0].split("/")[0]


def pruned(case: dict[str, Any]) -> dict[str, Any]:
    """The case without what its results do not need. What assigns is a result: an op that only takes its axes, as a count, runs nothing."""
    case = copy.deepcopy(case)
    needed = {_made_by(o) for o in case["outputs"]}
    for it in case["assigns"]:
        needed.add(it["var"])
        if isinstance(it.get("value"), str):
            needed.add(_made_by(it["value"]))

    def keep(ops: list[Op]) -> list[Op]:
        left = []
        for op in reversed(ops):
            if op["id"] in needed:
                needed.update(_made_by(i) for i in _reads(op))
                for body in reversed(_bodies(op)):
                    body[:] = keep(body)
                left.append(op)
        return left[::-1]

    case["ops"] = keep(case["ops"])
    case["outputs"] += [op["id"] for op in case["ops"] if op["op"] == "sequential" and op["id"] not in case["outputs"]]
    case["sources"] = [s for s in case["sources"] if s["id"] in needed]
    return case


# ---- building -----------------------------------------------------------------------------------------------------------------


class Maker:
    """The op-graph of a case."""

    def __init__(self, case: dict[str, Any]):
        self.case = case
        self.axes_of: dict[str, Any] = {}
        self.env: dict[str, Any] = {}
        self.streams: dict[str, int] = {}
        self.flat: dict[str, str] = {}  # the name of an axis that flatten made -> that which the case has for it
        self.placeholders: list[Any] = []
        for s in case["sources"]:
            axes = [self.base(a) for a in s["dims"]]
            if s["kind"] == "placeholder":
                made = ng.placeholder(axes, dtype=s["dtype"], name=s["id"])
                self.placeholders.append((s, made))
            else:
                array = numbers(s, shape_of(case, s, 0), 0)
                if s["kind"] == "constant":
                    made = ng.constant(array, axes, dtype=s["dtype"])
                else:
                    made = ng.variable(axes, dtype=s["dtype"], initial_value=array, name=s["id"])
            self.env[s["id"]] = made
        for name, axis in case["axes"].items():  # some argument has each length that is open
            if axis["open"] and not any([name, 0] in s["dims"] for s, _ in self.placeholders):
                s = {"kind": "placeholder", "dtype": "bool", "dims": [[name, 0]], "seed": 0, "how": "whole"}
                self.placeholders.append((s, ng.placeholder([self.base((name, 0))], dtype="bool")))

    def base(self, a: Any) -> Any:
        name, level = a
        if name not in self.axes_of:
            own = self.case["axes"][name]
            self.axes_of[name] = ng.make_axis(None if own["open"] else own["n"][0], name=name)
        return self.axes_of[name] + level if level > 0 else self.axes_of[name] - -level if level else self.axes_of[name]

    def called(self, axis: Any) -> str:
        return str(axis.short_name)

    def is_axis(self, axis: Any, name: Any) -> bool:
        """Whether an axis is what a case calls so; what flatten made has a name of its own there."""
        return (self.flat.get(axis.name, self.called(axis)), axis.dual) == tuple(name)

    def among(self, xs: Sequence[Any], name: Any) -> Any:
        """The axis of that name of the first value that has it."""
        return next(c for x in xs for c in x.axes if self.is_axis(c, name))

    def axis(self, x: Any, name: Any, base: bool) -> Any:
        """The axis of a value that a case calls so: its own, or the one that the case began with."""
        if base and name[0] in self.case["axes"]:
            return self.base(name)
        return self.among([x], name)

    def axes(self, x: Any, names: Sequence[Any]) -> list[Any]:
        have = {tuple(n): self.axis(x, n, False) for n in names if any(self.is_axis(c, n) for c in x.axes)}
        return [have[tuple(n)] if tuple(n) in have else self.base(n) for n in names]

    def named(self, x: Any, at: dict[str, Any]) -> Any:
        own = self.axis(x, at["axis"], at["by"] == "base")
        return own.label if at["by"] == "name" else own

    def streamed(self, ident: str, make: Callable[[], Any]) -> Any:
        with ng.Op.all_ops() as made:
            op = make()
        found = [o.attrs["stream"] for o in made if "stream" in o.attrs]
        self.streams[ident] = found[0]
        return op

    def ops(self, ops: Sequence[Op]) -> None:
        for op in ops:
            args = [oracle.number(a["n"]) if isinstance(a, dict) else self.env[a] for a in op["args"]]
            made = ROWS[op["op"]].build(self, args, op["at"], op["id"])
            if isinstance(made, tuple):
                self.env.update({f"{op['id']}.{k}": x for k, x in enumerate(made)})
            else:
                self.env[op["id"]] = made
                if op["op"] in ("flatten", "flatten_at"):
                    self.note(op, args[0], made)

    def note(self, op: Op, x: Any, made: Any) -> None:
        """Records the axes that flatten made."""
        self.flat.update({c.name: f"*{op['id']}.{k + 1}" for k, c in enumerate(c for c in made.axes if c not in x.axes)})

    def assign(self, it: dict[str, Any]) -> Any:
        x = self.env[it["var"]]
        value = it.get("value")
        value = oracle.number(value["n"]) if isinstance(value, dict) else None if value is None else self.env[value]
        how = it["how"]
        if how == "assign":
            return ng.assign(x, value)
        if how == "fill":
            return ng.fill(x, value)
        if how == "init_tensor":
            return ng.init_tensor(x)
        if how == "set_item":
            return ng.set_item(x, tuple(_slice_of(s) for s in it["items"]), value)
        return getattr(ng.operator, how)(x, value)


# ---- checking -----------------------------------------------------------------------------------------------------------------


def differs(got: np.ndarray, want: V, axes: Any = None) -> str | None:
    """Returns a sentence about a wrong array; None where it is right."""
    if got.dtype != oracle.numpy_type(want.d):
        return f"is {got.dtype}, and should be {want.d}"
    if got.shape != want.v.shape:
        return f"has the shape {got.shape}, and should have {want.v.shape}"
    v, e = want.v, want.e
    with np.errstate(all="ignore"):
        if want.d in INTS or want.d == "bool" or want.d in oracle.WHOLE_NARROW:
            g = got if want.d not in oracle.WHOLE_NARROW else got.astype(np.int8)
            bad = (g != v) & (e == 0)
        else:
            g = got.astype(np.float64)
            off = np.abs(g - v)
            fine = (g == v) | (np.isnan(g) & np.isnan(v)) | (off <= e * (1 + 2.0**-20)) | np.isinf(e)
            if want.z:
                fine = fine & ~((v == 0) & (e == 0) & (g == 0) & (np.signbit(g) != np.signbit(v)))
            bad = ~fine
    if not bad.any():
        return None
    k = tuple(int(j[0]) for j in np.nonzero(bad)) if bad.ndim else ()
    return f"{list(k)} is {g[k]!r}, and should be {v[k]!r} within {e[k]:.3g}; {int(bad.sum())} of {bad.size} differ"


def check(case: dict[str, Any]) -> str | None:
    try:
        expected(case, {})
    except Refused:
        return None
    with ng.config(warnings="off", strict=False):
        maker = Maker(case)
        maker.ops(case["ops"])
        results = [maker.env[o] for o in case["outputs"]]
        updates = [maker.assign(it) for it in case["assigns"]]
        wanted = expected(case, maker.streams)
        own = [maker.streams[op["id"]] for op in _every(case["ops"]) if op["id"] in maker.streams and "seed" not in op["at"]]
        if any(abs(a - b) < 4 for k, a in enumerate(own) for b in own[:k]):
            return f"random ops share a stream: {own}"
        shown = [op["id"] for op in case["ops"] if op["op"] == "PrintOp" and op["id"] in case["outputs"]]
        for name in TRANSFORMERS:
            found = _run(case, maker, results, updates, wanted, shown, name)
            if found is not None:
                return found
        if case.get("threads"):
            return _threads(case, maker, results)
    return None


def _run(case: Any, maker: Maker, results: Any, updates: Any, wanted: Any, shown: Any, name: str) -> str | None:
    with make_transformer_factory(name)() as t:
        t.seed(case["seed"])
        f = t.computation([*results, *updates], *[p for _, p in maker.placeholders])
        itself = {maker.env[s["id"]]: s["id"] for s in case["sources"] if s["kind"] == "variable"}
        for k, run in enumerate(case["calls"]):
            given = [numbers(s, shape_of(case, s, run), k) for s, _ in maker.placeholders]
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                got = f(*given)
            outputs, after = wanted[k]
            for o, array in zip(case["outputs"], got, strict=False):
                variable = itself.get(maker.env[o])  # x[:] and the like are the variable, which among results is what it is afterwards
                found = differs(array, after[variable] if variable is not None else outputs[o])
                if found is not None:
                    return f"{name}, call {k}: {o} {found}"
            for s in case["sources"]:
                if s["kind"] == "variable" and s["id"] in (x.hint for x in f.variables):
                    found = differs(t.get(maker.env[s["id"]]), after[s["id"]])
                    if found is not None:
                        return f"{name}, after call {k}: variable {s['id']} {found}"
            for i in shown:
                if said.getvalue().split().count(i) != 1:
                    return f"{name}, call {k}: {i} is printed {said.getvalue().split().count(i)} times, and should be once"
    return None


def _threads(case: Any, maker: Maker, results: Any) -> str | None:
    """1, 2 and 3 threads give the same bits."""
    first: list[bytes] | None = None
    for threads in (1, 2, 3):
        with ng.config(num_threads=threads), make_transformer_factory("cpu")() as t:
            t.seed(case["seed"])
            f = t.computation(results, *[p for _, p in maker.placeholders])
            given = [numbers(s, shape_of(case, s, 0), 0) for s, _ in maker.placeholders]
            with contextlib.redirect_stdout(io.StringIO()):
                made = [np.ascontiguousarray(a).tobytes() for a in f(*given)]
            if first is not None and made != first:
                wrong = next(o for o, x, y in zip(case["outputs"], first, made, strict=True) if x != y)
                return f"{wrong} has other bits on {threads} threads than on one"
            first = made
    return None


# ---- making smaller -----------------------------------------------------------------------------------------------------------


def smaller(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    def new(**changes: Any) -> dict[str, Any]:
        return pruned({**copy.deepcopy(case), **changes})

    if len(case["outputs"]) > 1:
        for o in case["outputs"]:
            yield new(outputs=[o])
        for o in case["outputs"]:
            yield new(outputs=[x for x in case["outputs"] if x != o])
    for k in range(len(case["assigns"])):
        yield new(assigns=case["assigns"][:k] + case["assigns"][k + 1 :])
    if len(case["calls"]) > 1:
        yield new(calls=case["calls"][:1])
        yield new(calls=case["calls"][-1:])
    if case.get("threads"):
        yield new(threads=False)
    for op in case["ops"][::-1]:
        if op["id"] not in case["outputs"] and all("." not in i for i in [op["id"]]):
            yield new(outputs=[op["id"]]) if op["op"] not in ("scan", "while_loop", "sort", "top_k") else new(outputs=[f"{op['id']}.0"])
    yield from _cut(case, new)
    for k, s in enumerate(case["sources"]):
        for change in ({"kind": "placeholder"}, {"how": "whole"}, {"dtype": "float32"}):
            if "kind" in change and s["id"] in case.get("written", ()):
                continue  # assigns need a variable
            if any(s[key] != v for key, v in change.items()) and not s["how"].startswith("index"):
                sources = copy.deepcopy(case["sources"])
                sources[k].update(change)
                yield new(sources=sources)
    for name, axis in case["axes"].items():
        if axis["open"]:
            yield new(axes={**case["axes"], name: {"n": [axis["n"][0]] * 2, "open": False}})
        for n in (1, 2, 3, axis["n"][0] // 2, axis["n"][0] - 1):
            if 0 < n < axis["n"][0]:
                yield new(axes={**case["axes"], name: {"n": [n, n if not axis["open"] else axis["n"][1]], "open": axis["open"]}})
    for op in _every(case["ops"]):
        for body in _bodies(op):
            for k in range(len(body)):
                less = copy.deepcopy(case)
                here = next(o for o in _every(less["ops"]) if o["id"] == op["id"])
                theirs = next(b for b in _bodies(here) if [x["id"] for x in b] == [x["id"] for x in body])
                gone = theirs.pop(k)
                first = next((a for a in gone["args"] if isinstance(a, str)), None)
                if first is not None:
                    yield pruned(_redirected(less, gone["id"], first))


def _cut(case: dict[str, Any], new: Callable[..., dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A source of the same type in place of what an operation gives."""
    try:
        r = Run(
            case, case["calls"][0], 0, {}, {s["id"]: value_of_source(case, s, 0, 0) for s in case["sources"] if s["kind"] == "variable"}
        )
        for s in case["sources"]:
            r.env[s["id"]] = value_of_source(case, s, case["calls"][0], 0)
        r.ops(case["ops"])
    except Exception:
        return
    for op in case["ops"]:
        v = r.env.get(op["id"])
        if v is None or op["id"] in case["outputs"] or any(d[0] not in case["axes"] or r.dim(*d[:2]) != d for d in v.dims):
            continue
        s = {"id": f"s{op['id']}", "kind": "placeholder", "dtype": v.d, "dims": [list(d[:2]) for d in v.dims], "seed": 1, "how": "plain"}
        for how in ("plain", "extreme"):
            less = new(sources=[*case["sources"], {**s, "how": how}])
            less["sources"].append({**s, "how": how})
            yield pruned(_redirected(less, op["id"], s["id"]))


def _redirected(case: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """`case` in which everything that reads value `old` reads `new`."""

    def other(x: Any) -> Any:
        if isinstance(x, dict):
            return {k: v if k == "id" else other(v) for k, v in x.items()}
        if isinstance(x, list):
            return [other(v) for v in x]
        return new if x == old else x

    return {**case, "ops": other(case["ops"]), "assigns": other(case["assigns"]), "outputs": other(case["outputs"])}


# ---- a find as a program ------------------------------------------------------------------------------------------------------

SHOWN = 60  # numbers of a result that its program has as what is wanted

RUN = """for name in {transformers}:
    with ngt.make_transformer_factory(name)() as t:
        t.seed({seed})
        f = t.computation({results}, {parameters})
        for k, given in enumerate(calls):
            print(name, "call", k, *[a.tolist() for a in f(*given) if a is not None])
            print("    state", *[t.get(v).tolist() for v in f.variables if v.hint])
"""


def program(case: dict[str, Any]) -> str:
    """A program that builds the case and runs it on all transformers, with what is wanted in comments."""
    script = Script()
    maker, results = None, "[]"
    with ngraph.config(warnings="off"), ng.written(script), contextlib.suppress(Exception):
        maker = Maker(case)
        maker.ops(case["ops"])
        updates = [maker.assign(it) for it in case["assigns"]]
        results = script.text([*[maker.env[o] for o in case["outputs"]], *updates])
    lines = ["import operator", "", "import numpy as np", "", "import ngraph as ng", "import ngraph.transformers as ngt", ""]
    lines += ["nan, inf = np.nan, np.inf", *script.lines]
    if results == "[]" or maker is None:
        return "\n".join(lines) + "\n"
    given = [[numbers(s, shape_of(case, s, run), k) for s, _ in maker.placeholders] for k, run in enumerate(case["calls"])]
    lines += ["calls = [", *[f"    [{', '.join(map(array, arrays))}]," for arrays in given], "]"]
    for k, (outputs, after) in enumerate(expected(case, maker.streams)):
        for o in case["outputs"]:
            v = after.get(o, outputs[o])
            if v.v.size <= SHOWN:
                lines.append(f"# call {k}: wanted {np.asarray(v.v).tolist()} within {np.asarray(v.e).max(initial=0.0):.3g}")
    parameters = ", ".join(script.text(p) for _, p in maker.placeholders)
    return "\n".join(lines) + "\n" + RUN.format(transformers=TRANSFORMERS, seed=case["seed"], results=results, parameters=parameters)
