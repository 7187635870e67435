"""A program is found by its op-graph, before that is lowered; never by one that means anything else."""

import importlib
import os
import subprocess
import sys

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import GraphError
from ngraph.op_graph.fingerprint import MAX_HASHED_BYTES, fingerprint
from ngraph.op_graph.opdef import REGISTRY, op
from ngraph.passes import simplify_rules
from ngraph.program import lower as lowering
from ngraph.runtime import graph_cache
from ngraph.runtime.cache import HEAD, Cache

H = 4


@pytest.fixture
def folder(tmp_path):
    with ng.config(cache=str(tmp_path / "cache")):
        yield str(tmp_path / "cache")


@pytest.fixture
def lowered(monkeypatch):
    """The names of what is lowered from here on."""
    seen = []

    def lower(results, parameters=(), name="program", **more):
        seen.append(name)
        return true(results, parameters, name, **more)

    true = lowering.lower
    for room in ("ngraph.transformers.base", "ngraph.runtime.computation"):
        monkeypatch.setattr(importlib.import_module(room), "lower", lower)
    return seen


@pytest.fixture
def forgetful(folder):
    """Forgets what this process holds, as if another one began."""

    def forget():
        graph_cache.cache().here.clear()

    return forget


def cpu(results, *parameters):
    return ngt.make_transformer_factory("cpu")().computation(results, *parameters)


def model(n=5, dtype="float32", factor=2.0, table=0.0, kind="sum", axis="H", turned=False, over="H", swap=False, start=1, w_name="w"):
    """A small graph in which anything may differ: results, parameters, what comes in."""
    N, A = ng.make_axis(n, name="N"), ng.make_axis(H, name=axis)
    x = ng.placeholder([N, A], dtype=dtype).named(w_name + "_in")
    w = ng.variable([A], dtype=dtype, initial_value=np.full(H, start)).named(w_name)
    large = ng.constant((np.arange(n * H) + table).reshape(n, H).astype(dtype), [N, A])
    y = (x + large) * w * factor
    y = getattr(ng, kind)(y, reduction_axes=[A if over == "H" else N])
    y = y if y.axes[0] is A else ng.broadcast(y, [A, N] if turned else [N, A])
    results = [y, ng.assign(w, w - 1)]
    return results[::-1] if swap else results, [x], np.ones((n, H), dtype)


def run(**changes):
    results, parameters, x = model(**changes)
    f = cpu(results, *parameters)
    return [None if r is None else r.tolist() for _ in range(2) for r in f(x)], f


def test_the_second_is_found_and_not_lowered(folder, lowered, forgetful):
    first, _ = run()
    assert len(lowered) == 1
    forgetful()
    again, f = run()
    assert again == first and len(lowered) == 1
    assert "multiply" in f.plan and "test_graph_cache.py" in f.plan and len(lowered) == 2  # looked at, it is there with its lines
    assert run()[0] == first and "float32[N" in str(f.program.inputs[0].type)


CHANGES = [
    {"n": 6},
    {"dtype": "float64"},
    {"factor": 3.0},
    {"factor": -2.0},
    {"table": 1.0},
    {"kind": "max"},
    {"axis": "K"},
    {"turned": True},
    {"over": "N"},
    {"swap": True},
]


@pytest.mark.parametrize("change", CHANGES, ids=[f"{k}={v}" for c in CHANGES for k, v in c.items()])
def test_what_differs_in_one_thing_is_not_found(folder, lowered, forgetful, change):
    run()
    forgetful()
    got, _ = run(**change)
    assert len(lowered) == 2
    with ng.config(cache=""):
        assert got == run(**change)[0]


def test_names_of_ops_and_values_that_state_starts_with_are_free(folder, lowered, forgetful):
    run()
    forgetful()
    got, f = run(w_name="v", start=3.0)
    assert len(lowered) == 1 and [v.name for v in f.variables] == ["v"] and list(f.state.names) == ["v"]
    with ng.config(cache=""):
        assert got == run(start=3.0)[0]
    assert '"v"' in f.plan and "v_in" in f.plan


OPTIONS = [{"exact": False}, {"winograd": False}]


@pytest.mark.parametrize("option", OPTIONS, ids=[str(o) for o in OPTIONS])
def test_options_have_entries_of_their_own(folder, lowered, forgetful, option):
    first, _ = run()
    forgetful()
    with ng.config(**option):
        run()
        assert len(lowered) == 2
        results, parameters, x = model()
        f = cpu(results, *parameters)
    assert len(lowered) == 2 and [r.tolist() for r in f(x) if r is not None] == first[:1] and len(lowered) == 3  # called under others
    forgetful()
    assert run()[0] == first and len(lowered) == 3


def test_targets_have_entries_of_their_own(folder, lowered, forgetful, monkeypatch):
    run()
    forgetful()
    monkeypatch.setenv("NGRAPH_TARGET", "x86-64-v2" if os.uname().machine == "x86_64" else "aarch64")
    graph = ngt.make_transformer_factory("cpu")().graph(*model()[:2])
    assert graph is not None and graph.find("f") is None


def test_debug_and_passes_of_ones_own_go_the_whole_way(folder, lowered, forgetful, capfd):
    first, _ = run()
    forgetful()
    with ng.config(debug=2):
        assert run()[0] == first and len(lowered) == 2
    assert "found in the cache" in capfd.readouterr().err
    results, parameters, x = model()
    t = ngt.make_transformer_factory("cpu")()
    seen = []
    t.register_graph_pass(lambda p: seen.append(p) or p)
    assert t.computation(results, *parameters)(x)[0].tolist() == first[0] and seen and len(lowered) == 3
    forgetful()
    results, parameters, x = model()
    t = ngt.make_transformer_factory("cpu")()
    f = t.computation(results, *parameters)  # found, and then there is a pass
    t.register_graph_pass(lambda p: seen.append(p) or p)
    assert f(x)[0].tolist() == first[0] and len(seen) == 2 and len(lowered) == 4


def test_rules_and_records_of_ones_own_go_the_whole_way(folder, lowered, forgetful, monkeypatch):
    first, _ = run()
    forgetful()
    with monkeypatch.context() as other:
        other.setattr(simplify_rules, "rules", simplify_rules.rules[1:])
        assert run()[0] == first and len(lowered) == 2
    assert run()[0] == first and len(lowered) == 2
    monkeypatch.setattr(REGISTRY["sigmoid"], "lower", lambda op, x: x)  # in no graph here, but what others are lowered to might have it
    assert run()[0] == first and len(lowered) == 3
    monkeypatch.undo()
    twice = op("twice_of_a_test", "", type=REGISTRY["relu"].type, lower=lambda op, x: x + x)
    try:
        N = ng.make_axis(3, name="N")
        for factor in (2, 3):
            x = ng.placeholder([N])
            assert cpu(twice(x), x)(np.ones(3)).tolist() == [factor] * 3
            twice.lower = lambda op, x: x * 3
    finally:
        del REGISTRY["twice_of_a_test"]


def test_random_numbers_go_on_as_they_did(folder, lowered, forgetful, monkeypatch):
    N = ng.make_axis(8, name="N")
    ops = {low: [ng.uniform([N], low=low), ng.normal([N])] for low in (0.0, 0.5)}

    def drawn(seed=None, low=0.0):
        t = ngt.make_transformer_factory("cpu")()
        if seed is not None:
            t.seed(seed)
        f = t.computation(ops[low])
        return [[r.tolist() for r in f()] for _ in range(3)]

    first = drawn()
    made = len(lowered)
    forgetful()
    assert drawn() == first and first[0] != first[1] and len(lowered) == made
    seeded = drawn(5)
    forgetful()
    assert drawn(5) == seeded != first and len(lowered) == made
    assert drawn(5, low=0.5) != seeded and len(lowered) == made + 1


def test_loops_choices_and_effects_are_in_the_key(folder, lowered, forgetful, capfd):
    T, N = ng.make_axis(4, name="T"), ng.make_axis(3, name="N")

    def looped(step, reverse=False, text="sum"):
        x = ng.placeholder([T, N])
        last, _ = ng.scan(lambda h, x: (step(h, x), None), ng.constant(0.0, [N]), x, T, reverse=reverse)
        shown = ng.cond(ng.sum(last, out_axes=()) > 0, lambda: last, lambda: -last)
        return cpu([shown, ng.print_values(last, text=text)], x)(np.arange(12.0).reshape(4, 3))[0].tolist()

    steps = [lambda h, x: h * 0.5 + x, lambda h, x: h * 0.25 + x, lambda h, x: h + x, lambda h, x: x - h]
    ways = [(s, r, t) for s in steps for r in (False, True) for t in ("sum", "total")]
    first = [looped(*way) for way in ways]
    assert len(lowered) == len(ways)
    said = capfd.readouterr()
    forgetful()
    assert [looped(*way) for way in ways] == first and len(lowered) == len(ways)
    assert capfd.readouterr() == said


@pytest.mark.parametrize("setting", ["open", "first"])
def test_lengths_that_come_with_a_call(folder, lowered, forgetful, setting):
    def made():
        N, C = ng.make_axis(name="N"), ng.make_axis(3)  # one that nobody named
        x = ng.placeholder([N, C])
        return cpu(ng.softmax(x * 2, N), x)

    def expected(v):
        e = np.exp(v * 2 - (v * 2).max(0))
        return e / e.sum(0)

    rng = np.random.default_rng(1)
    for turn, lengths in enumerate([(4, 7), (4, 7), (4, 9), (5, 4)]):
        f = made()
        for n in lengths:
            v = rng.normal(size=(n, 3)).astype("f")
            with ng.config(lengths=setting):
                np.testing.assert_allclose(f(v), expected(v), rtol=1e-5)
        plans = 1 if setting == "open" or turn < 3 else 2
        assert len(lowered) == plans  # what nobody called with yet is planned
        assert f.compile(N=11).native.chosen is not None
        del lowered[plans:]
        forgetful()


def test_a_graph_whose_lengths_came_later_is_not_taken_for_it(folder, lowered, forgetful):
    def made():
        N = ng.make_axis(name="N")
        x = ng.placeholder([N])
        return N, cpu(x + 1, x)

    _, f = made()
    f(np.ones(4))
    forgetful()
    N, f = made()
    f(np.ones(4))
    N.length = 4
    with pytest.raises(GraphError, match="has changed since this computation was made"):
        f.plan  # noqa: B018  planned here
    assert f(np.ones(4)).tolist() == [2] * 4
    assert not np.array_equal(*[fingerprint([y], [x]).data for x, y in _lengths()])


def _lengths():
    for n in (None, 4):
        x = ng.placeholder([ng.make_axis(n, name="N")])
        yield x, x + 1


def test_profile_and_texts_after_a_second_start(folder, lowered, forgetful):
    _, f = run()
    texts = f.plan, f.llvm, f.asm, f.memory
    forgetful()
    results, parameters, x = model()
    f = cpu(results, *parameters)
    f(x)
    assert len(lowered) == 1
    rows = f.profile(x).rows
    assert rows and all("test_graph_cache.py" in line for r in rows for line in r.lines)
    assert (f.plan, f.llvm, f.asm, f.memory) == texts
    assert f.lowered.steps and f.history() and f(x)[0].tolist() is not None


def test_errors_are_the_same(folder, lowered, forgetful):
    def said():
        results, parameters, _ = model()
        f = cpu(results, *parameters)
        f(np.ones((5, H)))
        with pytest.raises(ng.NgraphError) as caught:
            f(np.ones((6, H)))
        return str(caught.value).replace("computation_0", "")

    assert said() == (forgetful(), said())[1]
    results, _, _ = model()
    with pytest.raises(GraphError, match="placeholder w_in"):
        cpu(results)


def broken(folder, change):
    found = []
    for kind in ("graphs", "plans"):
        for name in os.listdir(os.path.join(folder, kind)):
            path = os.path.join(folder, kind, name)
            with open(path, "rb") as file:
                data = file.read()
            with open(path, "wb") as file:
                file.write(change(data))
            found.append(path)
    return found


@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: d[: HEAD.size] + b"\0" + d[HEAD.size + 1 :], lambda d: b"ngraph 0" + d[8:]])
def test_entries_that_are_no_good_are_made_again(folder, lowered, forgetful, change):
    first, _ = run()
    assert len(broken(folder, change)) == 3
    forgetful()
    assert run()[0] == first and len(lowered) == 2
    forgetful()
    assert run()[0] == first and len(lowered) == 2


def test_an_entry_that_says_something_else_is_made_again(folder, lowered, forgetful):
    first, _ = run()
    results, parameters, _ = model()
    graph = ngt.make_transformer_factory("cpu")().graph(results, parameters)
    nameless = graph_cache.ProgramNames((), ())
    for nonsense in (b"", b"nonsense", graph_cache.dumped((1, 2), nameless), graph_cache.dumped(os.getcwd, nameless)):
        Cache(folder).folder.put("graphs", {graph.key: nonsense})
        forgetful()
        before = len(lowered)
        assert run()[0] == first and len(lowered) == before + 1


@pytest.mark.parametrize("lost", ["plans", "objects"])
def test_what_is_lost_is_made_again(folder, lowered, forgetful, lost):
    first, _ = run()
    for name in os.listdir(os.path.join(folder, lost)):
        os.unlink(os.path.join(folder, lost, name))
    forgetful()
    importlib.import_module("ngraph.transformers.cpu.device")._kernels.clear()
    assert run()[0] == first and len(lowered) == 2


def test_another_version_finds_nothing(folder, lowered, forgetful, monkeypatch):
    run()
    forgetful()
    monkeypatch.setattr("ngraph.runtime.graph_cache.makers", lambda: b"another version")
    run()
    assert len(lowered) == 2


def test_a_function_of_ones_own_or_much_data_has_no_key(folder):
    N = ng.make_axis(3, name="N")
    x = ng.placeholder([N])
    y = x + 1
    assert fingerprint([y], [x]) is not None
    y.attrs["mine"] = lambda: 1
    assert fingerprint([y], [x]) is None
    M = ng.make_axis(MAX_HASHED_BYTES // 4 + 1, name="M")
    z = ng.placeholder([M])
    assert fingerprint([z + ng.constant(np.zeros(len(M), np.float32), [M])], [z]) is None


SCRIPT = """
import sys
import numpy as np
import ngraph as ng, ngraph.transformers as ngt
import ngraph.transformers.base as base
N, H = ng.make_axis(5), ng.make_axis(7, name="H")
x = ng.placeholder([N, H])
w = ng.variable([H], initial_value=np.arange(7))
loss = ng.sum(ng.softmax(x * w, H) * x, out_axes=())
def never(*_, **__):
    raise SystemExit("lowered")
if len(sys.argv) > 1:
    base.lower = never
f = ngt.make_transformer_factory("cpu")().computation([loss, ng.assign(w, w - ng.deriv(loss, w))], x)
print([float(f(np.linspace(0, 1, 35).reshape(5, 7))[0]) for _ in range(3)], "llvmlite" in sys.modules, "ngraph.plan.planner" in sys.modules)
"""


def test_processes_at_once_and_after(folder):
    environment = {**os.environ, "NGRAPH_CACHE": folder}
    start = [sys.executable, "-c", SCRIPT]
    both = [subprocess.Popen(start, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(3)]
    (results,) = {p.communicate()[0].split("]")[0] for p in both}
    assert all(p.returncode == 0 for p in both)
    for seed in ("1", "2"):
        after = subprocess.run([*start, "found"], capture_output=True, text=True, env={**environment, "PYTHONHASHSEED": seed})
        assert after.stdout.split("]")[0] == results and after.stdout.endswith("] False False\n"), after.stderr
