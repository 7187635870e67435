"""The runner on a foreign form: a graph, its law, its facts, its passes; and which orders of the product's own passes are refused."""

from functools import partial

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.parts import runner
from ngraph.parts.runner import (
    FACTS,
    FORMS,
    PASSES,
    BrokenForm,
    PassError,
    Pipeline,
    check_order,
    fact,
    form,
    inside,
    numbered,
    pass_,
    run,
    watching,
)
from ngraph.passes import default_passes, plan_passes
from ngraph.plan.planner import BUFFER_PASSES, GRAPH_PASSES, tensors

PRODUCT_FACTS = dict(FACTS)


class Net(tuple):
    """Nodes `(name, op, inputs)`, each behind what it reads."""


def law(net):
    for k, (name, _, inputs) in enumerate(net):
        if not set(inputs) <= {n for n, _, _ in net[:k]}:
            raise LookupError(f"{name} reads what does not stand before it")


@pytest.fixture(autouse=True)
def tables():
    """The passes, facts and forms of a test are its own."""
    kept = [(t, dict(t)) for t in (PASSES, FACTS, FORMS)]
    PASSES.clear()
    FACTS.clear()
    form(Net, "net", "nodes", size=len, text=lambda net: "\n".join([f"{n} = {op}({', '.join(i)})" for n, op, i in net]), verify=law)
    FORMS[Net] = FORMS[Net]._replace(broken=LookupError)
    yield
    for table, before in kept:
        table.clear()
        table.update(before)


NET = Net([("x", "input", ()), ("a", "neg", ("x",)), ("b", "neg", ("a",)), ("c", "exp", ("b",))])
ran = []


def noted(net):
    ran.append("noted")
    return net


@pytest.fixture
def house():
    """Passes as a foreign compiler has them, and how often the fact was computed."""
    ran.clear()
    counted = []

    def readers(net):
        counted.append(net)
        return {n: [user for user, _, inputs in net if n in inputs] for n, _, _ in net}

    fact(readers)

    @pass_(gives=("simple",))
    def double_negation(net):
        ran.append("double_negation")
        of = {n: (op, i) for n, op, i in net}
        instead = {n: of[i[0]][1][0] for n, op, i in net if op == "neg" and of[i[0]][0] == "neg"}
        return Net([(n, op, tuple(instead.get(i, i) for i in inputs)) for n, op, inputs in net if n not in instead])

    @pass_(needs=("readers",), gives=("live",), keeps=("simple",))
    def dead(net, readers):
        ran.append("dead")
        return Net([n for n in net if readers[n[0]] or n is net[-1]])

    @pass_(needs=("live", "readers"), gives=("storage",), keeps=("live", "readers"))
    def storage(net, readers):
        ran.append("storage")
        return Net([(n, f"{op}!" if len(readers[n]) == 1 else op, inputs) for n, op, inputs in net])

    return double_negation, dead, storage, counted


def test_a_row_of_passes_with_a_fact_between_them(house):
    simple, dead, storage, counted = house
    made = run(NET, (simple, dead, storage), check=True)
    assert made == Net([("x", "input!", ()), ("c", "exp", ("x",))])
    assert dead(NET) == NET, "called alone, a pass has its facts computed"


def test_a_fact_is_computed_once_between_changes_and_never_stale(house):
    simple, dead, storage, counted = house
    run(NET, (dead, dead))
    assert len(counted) == 2, "the first may have changed the graph"
    counted.clear()
    reading = pass_(needs=("readers",), name="reading")(lambda net, readers: net)
    run(NET, (reading, reading, simple, reading))
    assert [len(net) for net in counted] == [4, 3], "a pass that gives the same value again has changed nothing"
    counted.clear()
    run(NET, (dead, storage, reading))
    assert len(counted) == 2, "storage keeps it"


def test_a_value_that_changes_in_place_has_its_facts_computed_anew(house):
    simple, dead, storage, counted = house
    FORMS[Net] = FORMS[Net]._replace(mutable=True)
    reading = pass_(needs=("readers",), name="reading")(lambda net, readers: net)
    run(NET, (reading, reading))
    assert len(counted) == 2


def test_a_fact_that_a_pass_says_it_keeps_is_checked(house):
    simple, dead, storage, counted = house
    lying = pass_(needs=("readers",), keeps=("readers",), name="lying")(lambda net, readers: simple(net))
    run(NET, (lying, dead))
    with pytest.raises(PassError, match="pass lying says that it keeps readers, which is another after it") as error:
        run(NET, (lying, dead), check=True)
    assert error.value.fix == "take 'readers' out of its keeps"


# ---- caught before anything runs ------------------------------------------------------------------------------------------------


def test_a_pass_out_of_order(house):
    simple, dead, storage, _ = house
    with pytest.raises(PassError, match="pass storage needs 'live', which no pass before it gives") as error:
        run(NET, (simple, storage, dead))
    assert error.value.fix == "put dead before it" and error.value.details == ("what holds before it: simple (by double_negation)",)
    assert ran == []
    assert run(NET, (storage,), holds=("live",))


def test_a_lost_keeps(house):
    """The same order with and without what one pass keeps."""
    simple, dead, storage, _ = house
    ship = pass_(needs=("simple", "storage"), name="ship")(lambda net: net)
    with pytest.raises(PassError, match="pass ship needs 'simple', which storage loses") as error:
        run(NET, (simple, dead, storage, ship))
    assert error.value.fix == "put double_negation before it, behind storage; or let storage keep it" and ran == []
    storage.keeps = ("live", "readers", "simple")
    run(NET, (simple, dead, storage, ship))


def test_a_stale_property(house):
    """What one pass decided, another made untrue; a plain function keeps nothing."""
    simple, dead, storage, _ = house
    ship = pass_(needs=("storage",), name="ship")(lambda net: net)
    for between in (simple, noted):
        with pytest.raises(PassError, match=f"pass ship needs 'storage', which {runner.described(between).name} loses"):
            run(NET, (dead, storage, between, ship))
    assert ran == []


def test_a_fact_that_is_not_declared():
    with pytest.raises(PassError, match="pass peeks takes lengths, and does not say that it needs it") as error:

        @pass_(needs=("live",))
        def peeks(net, lengths):
            return net

    assert error.value.fix == "needs=('live', 'lengths')"


def test_a_fact_that_nobody_gives(house):
    @pass_(needs=("lengths",))
    def specialise(net, lengths):
        return Net([(n, op, inputs) for n, op, inputs in net[:lengths]])

    with pytest.raises(PassError, match="pass specialise needs 'lengths', which no pass before it gives") as error:
        run(NET, (noted, specialise))
    assert "give it where the passes are run, as lengths=..., or register what computes it" in error.value.fix and ran == []
    assert len(run(NET, (specialise,), {"lengths": 2})) == len(run(NET, (partial(specialise, lengths=2),))) == len(specialise(NET, 2)) == 2


def test_names_that_are_taken(house):
    with pytest.raises(PassError, match="a pass 'dead' is registered already"):
        pass_(name="dead")(noted)
    with pytest.raises(PassError, match="a fact 'readers' is registered already"):
        fact(noted, "readers")


def test_a_pass_without_a_return_is_named(house):
    @runner.pass_()
    def forgetful(graph):
        pass

    for check in (False, True):
        with pytest.raises(PassError, match=r"pass forgetful returned None\n  fix: return the value"):
            runner.run(house[0], (forgetful,), check=check)


# ---- pipelines --------------------------------------------------------------------------------------------------------------------


def test_a_pipeline_is_a_value(house):
    simple, dead, storage, _ = house
    row = Pipeline(simple, dead, simple)
    assert row.names == ["double_negation", "dead", "double_negation.2"] == numbered(["double_negation", "dead", "double_negation"])
    assert row.before("dead", storage) == (simple, storage, dead, simple)
    assert row.after("double_negation.2", storage, noted) == (simple, dead, simple, storage, noted)
    assert row.replace("dead", storage) == (simple, storage, simple) and row == (simple, dead, simple)
    assert row.without("double_negation").names == ["dead", "double_negation"]
    assert repr(row) == "<pipeline double_negation, dead, double_negation.2>"
    with pytest.raises(PassError, match="there is no pass 'sink' in the pipeline") as error:
        row.without("sink")
    assert error.value.fix == "it has double_negation, dead, double_negation.2"


# ---- looking on -------------------------------------------------------------------------------------------------------------------


def test_who_watches_sees_each_pass_also_in_parts_of_the_whole(house):
    simple, dead, storage, _ = house
    told = []

    def with_body(net):
        with inside("body"):
            run(net, (simple,), tell=told.append)
        return net

    with watching() as seen:
        run(NET, (dead, with_body, simple))
    assert [r.name for r in seen] == ["dead", "body.double_negation", "with_body", "double_negation"]
    assert [(r.size, r.form.unit) for r in seen] == [(4, "nodes"), (3, "nodes"), (4, "nodes"), (3, "nodes")]
    assert seen[-1].text.splitlines()[-1] == "c = exp(x)" and all(r.seconds >= 0 for r in seen) and [r.name for r in told] == [seen[1].name]


def test_what_changes_later_is_shown_as_it_was():
    form(list, "list", "items", size=len, text=str, mutable=True)

    def longer(items):
        items.append(0)
        return items

    with watching() as seen:
        run([], (longer, longer))
    assert [r.text for r in seen] == ["[0]", "[0, 0]"]


def test_what_breaks_the_law_is_shown_before_and_after(house):
    def turned(net):
        return Net(net[::-1])

    for mutable in (False, True):
        FORMS[Net] = FORMS[Net]._replace(mutable=mutable)
        with pytest.raises(BrokenForm, match="pass turned broke the net: c reads what does not stand before it") as error:
            run(NET, (turned,), check=True)
        assert error.value.details[:4] == tuple(f"before | {line}" for line in FORMS[Net].text(NET).splitlines())
        assert error.value.details[4] == "after  | c = exp(b)" and error.value.after == NET[::-1]
    assert run(NET, (turned,)) == NET[::-1], "the verifier costs nothing where nobody asks for it"


def test_a_type_that_nobody_told_of_runs_too():
    with watching() as seen:
        assert run("ab", (str.upper, str.lower), check=True) == "ab"
    assert [(r.name, r.text) for r in seen] == [("upper", "'AB'"), ("lower", "'ab'")]


# ---- the product's own orders ---------------------------------------------------------------------------------------------------


def test_orders_that_would_find_less_are_refused():
    FACTS.update(PRODUCT_FACTS)

    def moved(row, name, behind):
        (one,) = [p for p in row if p.name == name]
        return row.without(name).after(behind, one)

    given = ("lengths", "machine", "loop_invariant", "scalar_ops")
    graph = Pipeline(tensors, *GRAPH_PASSES, pass_(needs=("layouts",), gives=("unplaced",), name="kernels")(noted))
    for row, name, behind in (
        (plan_passes, "gather_products", "sink"),
        (plan_passes, "concat_gradients", "hoist"),
        (plan_passes, "hoist", "loop_cse"),
        (graph, "use_int8_dots", "use_float_dots"),
        (graph, "winograd", "assign_layouts"),
    ):
        check_order(row, given)
        with pytest.raises(PassError, match="needs '.*', which .* (loses|gives)"):
            check_order(moved(row, name, behind), given)
    for name, behind in (("allocate", "insert_packing"), ("insert_packing", "in_place"), ("read_numbers", "allocate")):
        check_order(BUFFER_PASSES, given, holds=("unplaced",))
        with pytest.raises(PassError):
            check_order(moved(BUFFER_PASSES, name, behind), given, holds=("unplaced",))


@pytest.mark.parametrize("lengths", ["open", "first"])
def test_every_pass_up_to_code_is_seen_on_cpu(lengths):
    """In a loop's body, too; with no length, and, where code knows those of the first call, with these after it."""
    FACTS.update(PRODUCT_FACTS)
    T, H = ng.make_axis(None, name="T"), ng.make_axis(3, name="H")
    x = ng.placeholder([T, H]).named("x")
    h, _ = ng.scan(lambda h, x: (ng.tanh(h + x), None), ng.constant(0.0, [H]), x, axis=T)
    graph = ["tensors", *GRAPH_PASSES.names, "fuse", *BUFFER_PASSES.names]
    once = [p.name for p in default_passes]
    body = [f"scan.{name}" for name in ("specialise", *graph)]
    with ng.config(lengths=lengths), ngt.allocate_transformer("cpu") as transformer:
        f = transformer.computation(h, x)
        for open_ in (True, lengths == "open"):
            seen = f.history()
            assert [r.name for r in seen] == [
                *once,
                *[p.name for p in plan_passes],
                *graph[: graph.index("fuse")],
                *body,
                *graph[graph.index("fuse") :],
                "share_out",
            ]
            assert ("axis T = 5" in next(r.text for r in seen if r.name == "specialise")) != open_
            f(np.ones((5, 3), np.float32))
    with ng.config(check=True), ngt.allocate_transformer("cpu") as transformer:
        made = transformer.computation(h, x)(np.ones((5, 3), np.float32))
    assert made.shape == (3,)
