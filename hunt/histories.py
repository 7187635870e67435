"""Random histories of a small model: calls with arguments of many forms and lengths, writes, saves, restores and restarts.

A history is a program that tracks NumPy's value of each variable and result beside the model. All numbers are small integers, so that
every sum is exact in float32 and results are equal to the bit, in any order of summation. Arrays that the caller received or passed are
overwritten after each step: none of them may be the model's own memory.
"""

from __future__ import annotations

import copy
import random
import textwrap
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

from ngraph.runtime import cache as caches

TRANSFORMERS = ("cpu", "numpy", "direct")
MOST = 3  # computations of a model
FORMS = {  # how an argument comes: the expression for it, from the array `a` that it means
    "plain": "a.copy()",
    "every other row": "np.repeat(a, 2, 0)[::2]",
    "columns first": "np.asfortranarray(a)",
    "backwards": "a[::-1].copy()[::-1]",
    "int32": "a.astype('i4')",
    "float64": "a.astype('f8')",
    "float16": "a.astype('f2')",
    "a list": "a.tolist()",
    "read-only": "np.frombuffer(a.tobytes(), 'f').reshape(a.shape)",
    "unaligned": "np.frombuffer(b'.' + a.tobytes(), 'f', offset=1).reshape(a.shape)",
}
GIVEN = {  # how initial values are given; what a function gives may be written by nobody
    "array": "initial_value={0}",
    "function": "initial_value=lambda: first_{0}",
    "list": "initial_value={0}.tolist()",
    "bytes": "initial_value=np.frombuffer({0}.tobytes(), 'f').reshape({0}.shape)",
    "float64": "initial_value={0}.astype('f8')",
}
TURN = "ng.where({0} > 2, {0} - 4, {0} + {1})", "np.where({0} > 2, {0} - 4, {0} + {1})"  # keeps numbers small
# a computation: its results as ops, and lines of NumPy that set `wanted` from A, the argument, and W and B, the variables
KINDS = {
    "dot": ("ng.dot(x, w) * {number} + b", ["wanted = A @ W * {number} + B"]),
    "hoisted": ("ng.dot(x, ng.where(w > 0, w, w * -2.0)) + b", ["wanted = A @ np.where(W > 0, W, W * -2) + B"]),
    "reduce": ("ng.{reduce}(x * {number}, reduction_axes=[{over}])", ["wanted = (A * {number}).{reduce}({dim})"]),
    "table": ("b + ng.constant(ints({seed}, {K}), [K]) * {number}", ["wanted = B + ints({seed}, {K}) * {number}"]),
    "turned": ("ng.axes_with_order(x + {number}, [C, N])", ["wanted = (A + {number}).T"]),
    "weights": ("[ng.assign(w, {turn_w}), ng.sum(w, out_axes=())]", ["wanted = W.sum()", "W = {numpy_w}"]),
    "flip": ("[ng.assign(w, w * -1.0), b * {number}]", ["wanted = B * {number}", "W = -W"]),
    "bias": ("[ng.assign(b, {turn_b}), b * 2]", ["wanted = B * 2", "B = {numpy_b}"]),
    "scan": (
        "(lambda r: [*r[0], r[1]][{which}])(ng.scan(lambda s, u: (({turn_c} + u, s[0]), s[1] * u), (b, b), "
        "ng.constant(ints({seed}, {T}, {K}), [T, K]), T, reverse={reverse}))",
        ["wanted = scan(B, ints({seed}, {T}, {K}), {number}, {reverse})[{which}]"],
    ),
    "choose": (
        "ng.cond(ng.sum(b, out_axes=()) > 0, lambda: b + {number}, lambda: b - 2)",
        ["wanted = B + {number} if B.sum() > 0 else B - 2"],
    ),
}
TAKES = {"dot", "hoisted", "reduce", "turned"}  # those that take x
GIVES_MORE = {"weights", "flip", "bias"}  # those whose first result is an assign
MORE = {
    "reduce": ["reduce", "over", "number"],
    "table": ["seed", "number"],
    "scan": ["seed", "reverse", "which", "number"],
}  # what decides in each, where that is more than `number`
HEAD = """\
import os, tempfile
import numpy as np
import ngraph as ng
import ngraph.transformers as ngt
from ngraph.runtime.cache import cache

def ints(seed, *shape):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype("f")

def scan(c, xs, number, reverse):
    d, made = c, [None] * len(xs)
    for k in range(len(xs))[:: -1 if reverse else 1]:
        made[k] = d * xs[k]
        c, d = np.where(c > 2, c - 4, c + number) + xs[k], c
    return c, d, np.stack(made)

def expect(got, wanted, what):
    assert type(got) is np.ndarray and got.shape == np.shape(wanted), f"{what}: {np.shape(got)} instead of {np.shape(wanted)}"
    wrong = np.argwhere(got != wanted)
    at = tuple(wrong[0]) if len(wrong) else ()
    assert not len(wrong), f"{what}: {len(wrong)} of {got.size} differ, at {list(at)} {got[at]} for {np.asarray(wanted)[at]}"
    assert all((old == -99).all() for old in results[-3:]), f"{what}: an earlier result has changed"
    got[...] = -99  # the caller may do with it what he likes
    results.append(got)

results = []
memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # a folder that is not a disk, if there is one

"""


def draw(seed: int) -> Any:
    r = random.Random(seed)
    wide = r.random() < 0.1  # large enough for several threads, and for initial values that are borrowed
    c, k = (r.choice([512, 600]), r.choice([513, 640])) if wide else (r.randint(1, 40), r.choice([1, 3, 17, 32, 33]))
    computations = [_computation(r) for _ in range(r.randint(2, MOST))]
    if r.random() < 0.7:  # one that is nearly another
        computations.append(_changed(r, max(computations, key=lambda c: c["kind"] in MORE)))
    lengths = [r.randint(1, 20) for _ in range(r.randint(1, 3))]
    return {
        "C": c,
        "K": k,
        "T": r.randint(1, 5),
        "threads": r.randint(1, 3),
        "given": r.choice(list(GIVEN)),
        "computations": computations,
        "events": [_event(r, len(computations), lengths) for _ in range(r.randint(2, 8))] * r.randint(1, 3),  # what comes again is quick
    }


def _computation(r: random.Random) -> dict[str, Any]:
    return {
        "kind": r.choice(list(KINDS)),
        "number": r.randint(1, 4),
        "seed": r.randrange(1000),
        "reduce": r.choice(["sum", "max", "min"]),
        "over": r.choice("CN"),
        "reverse": r.random() < 0.5,
        "which": r.randrange(3),
    }


def _changed(r: random.Random, of: dict[str, Any]) -> dict[str, Any]:
    """Returns the same case with one change."""
    what = r.choice(MORE.get(of["kind"], ["number"]))
    return {**of, what: _computation(r)[what]}


def _event(r: random.Random, count: int, lengths: list[int]) -> dict[str, Any]:
    do = r.choices(["call", "set", "get", "given", "back", "again"], [12, 2, 2, 1, 2, 3])[0]
    event: dict[str, Any] = {"do": do}
    if do == "call":
        form = r.choice(list(FORMS)) if r.random() < 0.5 else "plain"
        event |= {"of": r.randrange(count), "N": r.choice(lengths), "seed": r.randrange(1000), "form": form, "times": r.choice([1, 1, 3])}
    elif do == "back":
        event["fresh"] = r.random() < 0.5
    elif do in ("set", "get"):
        event |= {"of": r.choice("wb"), "seed": r.randrange(1000)}
    return event


def program(case: Any, transformer: str | None = None) -> str:
    C, K, T = case["C"], case["K"], case["T"]
    made, told = zip(*[_written(c, C, K, T) for c in case["computations"]], strict=True)
    body = [
        f'N, C, K, T = ng.make_axis(name="N"), ng.make_axis({C}, name="C"), ng.make_axis({K}, name="K"), ng.make_axis({T}, name="T")',
        f"w0, b0 = ints(1, {C}, {K}), ints(2, {K})",
        "first_w0, first_b0 = w0.copy(), b0.copy()",
        f'w = ng.variable([C, K], {GIVEN[case["given"]].format("w0")}).named("w")',
        f'b = ng.variable([K], {GIVEN[case["given"]].format("b0")}).named("b")',
        'x = ng.placeholder([N, C]).named("x")',
        "def start():",
        "    t = ngt.make_transformer_factory(NAME)()",
        "    t.get(w), t.get(b)  # it knows both, whatever its computations need",
        f"    return t, [t.computation(results, *needs) for results, needs in [{', '.join(made)}]]",
        "t, f = start()",
        "W, B = first_w0, first_b0",
        *[line for n, e in enumerate(case["events"]) for line in _lines(n, e, case, told)],
        "expect(t.get(w), W, 'the end'), expect(t.get(b), B, 'the end')",
    ]
    settings = f"with tempfile.TemporaryDirectory(dir=memory) as folder, ng.config(cache=folder, num_threads={case['threads']}):"
    if transformer is None:
        settings, body = f"for NAME in {TRANSFORMERS}:", [settings, *["    " + line for line in body]]
    else:
        settings = f"NAME = {transformer!r}\n{settings}"
    return HEAD + settings + "\n" + textwrap.indent("\n".join(body), "    ") + "\n"


def _written(c: dict[str, Any], C: int, K: int, T: int) -> tuple[str, list[str]]:
    """Returns a computation as ngraph's ops and parameters, and as lines of NumPy."""
    number = c["number"]
    words = {**c, "C": C, "K": K, "T": T, "dim": 1 if c["over"] == "C" else 0}
    words |= (
        {"turn_c": TURN[0].format("s[0]", number)}
        | {f"turn_{v}": TURN[0].format(v, number) for v in ("w", "b")}
        | {f"numpy_{v}": TURN[1].format(v.upper(), number) for v in "wb"}
    )
    ops, lines = KINDS[c["kind"]]
    ops = ops.format(**words)
    return f"({ops}, [{'x' if c['kind'] in TAKES else ''}])", [line.format(**words) for line in lines]


def _lines(n: int, e: dict[str, Any], case: Any, told: Any) -> list[str]:
    """Returns an event as lines."""
    do, what = e["do"], f"'event {n}, {e['do']}'"
    if do == "call":
        c = case["computations"][e["of"]]
        takes = c["kind"] in TAKES
        lines = []
        for k in range(e["times"]):
            lines += [f"A = ints({e['seed'] + k}, {e['N']}, {case['C']})", "a = A.copy()", f"given = {FORMS[e['form']]}"] if takes else []
            lines += told[e["of"]]
            lines += [f"got = f[{e['of']}]({'given' if takes else ''})"]
            lines += ["got = got[1]"] if c["kind"] in GIVES_MORE else []
            lines += [f"expect(got, wanted, {what})"]
            lines += ["if type(given) is np.ndarray and given.flags.writeable: given[...] = 98"] if takes else []
        return lines
    if do == "set":
        size = f"{case['C']}, {case['K']}" if e["of"] == "w" else str(case["K"])
        return [
            f"{e['of'].upper()} = ints({e['seed']}, {size})",
            f"mine = {e['of'].upper()}.copy()",
            f"t.set({e['of']}, mine)",
            "mine[...] = 97",
        ]
    if do == "get":
        return [f"expect(t.get({e['of']}), {e['of'].upper()}, {what})"]
    if do == "given":
        return ["w0[...] = b0[...] = 96"]
    again = ["cache().here.clear()  # as in another process", "t, f = start()"]
    if do == "back":
        changed = again if e["fresh"] else ["t.set(w, W + 1), t.set(b, B + 1)"]
        return ["t.save(folder + '/state')", *changed, "t.restore(folder + '/state')"]
    return [*again, "W, B = first_w0, first_b0"]


def check(case: Any) -> str | None:
    for name in TRANSFORMERS:
        differs = copy_context().run(_run, program(case, name))
        if differs is not None:
            return f"{name}: {differs}"
    return None


def _run(text: str) -> str | None:
    names: dict[str, Any] = {"__name__": "history"}
    try:
        exec(compile(text, "<history>", "exec"), names)
        return None
    except AssertionError as error:
        return str(error)
    finally:
        caches._caches.pop(names.get("folder", ""), None)


def smaller(case: Any) -> Iterator[Any]:
    for k in range(len(case["events"]))[::-1]:
        yield {**case, "events": case["events"][:k] + case["events"][k + 1 :]}
    used = sorted({e["of"] for e in case["events"] if e["do"] == "call"})
    if len(used) < len(case["computations"]):
        events = [{**e, "of": used.index(e["of"])} if e["do"] == "call" else e for e in case["events"]]
        yield {**case, "computations": [case["computations"][k] for k in used or [0]], "events": events}
    for key, values in {"threads": [1, 2], "given": ["array"], "C": [1, 2, 5, 17], "K": [1, 2, 5, 17], "T": [1, 2]}.items():
        for value in values:
            if value != case[key] and (isinstance(value, str) or value < case[key]):
                yield {**case, key: value}
    for k, e in enumerate(case["events"]):
        for key, value in {"form": "plain", "times": 1, "N": 1}.items():
            if e.get(key, value) != value:
                changed = copy.deepcopy(case)
                changed["events"][k][key] = value
                yield changed
