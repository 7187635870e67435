"""Columns of facts: declared once, filled in from anywhere, the strongest holds, and whatever is wrong names both places."""

import ast
from collections.abc import Callable

import pytest

import ngraph as ng
from ngraph.op_graph.opdef import FIELDS, OPS, REGISTRY, core_ops, op
from ngraph.ops import elementwise
from ngraph.parts.registry import Registry, RegistryError
from ngraph.tools import rooms
from ngraph.tools.main import main
from ngraph.tools.ops import SAYING


@pytest.fixture
def ops():
    return Registry("op")


def test_a_fact_may_come_before_its_column_and_what_it_is_about(ops):
    ops.fill("exp", cost=9)
    cost = ops.column("cost", int, 1, "instructions")
    ops.fill("log", cost=12)
    assert (cost["exp"], cost["log"], cost["abs"]) == (9, 12, 1) and "abs" not in cost and ops.undeclared() == {}


def test_facts_that_are_filled_in_together_are_noted_all_or_none(ops):
    cost, kind = ops.column("cost", int, 1, "instructions"), ops.column("kind", str, "", "what it is")
    version = ops.version
    with pytest.raises(RegistryError, match="kind of op exp is 3"):
        ops.fill("exp", cost=9, kind=3)
    assert (cost["exp"], ops.facts("exp"), ops.version) == (1, {}, version)
    ops.fill("exp", cost=9, kind="scalar")
    assert (cost["exp"], kind["exp"]) == (9, "scalar")


def test_the_highest_level_holds_in_any_order(ops):
    ops.fill("exp", level=2, cost=3)
    cost = ops.column("cost", int, 1, "instructions")
    ops.fill("exp", cost=9)
    ops.fill("exp", level=1, cost=5)
    assert cost["exp"] == 3 and [f.value for f in ops.facts("exp")["cost"]] == [3, 5, 9]
    ops.take_back("exp", "cost", 2)
    assert cost["exp"] == 5
    with pytest.raises(KeyError, match="no value of level 7"):
        ops.take_back("exp", "cost", 7)


def test_two_facts_of_one_level_name_both_lines(ops):
    ops.column("cost", int, 1, "instructions")
    ops.fill("exp", cost=9)
    with pytest.raises(RegistryError, match=r"cost of op exp is 9 at .*test_registry.py:\d+ and 8 at .*test_registry.py:\d+; one of them"):
        ops.fill("exp", cost=8)
    assert ops.columns["cost"]["exp"] == 9


def test_a_column_is_declared_once(ops):
    ops.column("cost", int, 1, "instructions")
    with pytest.raises(RegistryError, match=r"column cost of op is declared at .*test_registry.py:\d+ and at .*test_registry.py:\d+"):
        ops.column("cost", int, 1, "instructions")


@pytest.mark.parametrize("first", ["fact", "column"])
def test_a_value_of_another_type_names_both_lines(ops, first):
    with pytest.raises(
        RegistryError, match=r"cost of op exp is 'much' at .*test_registry.py:\d+, and its column, declared at .*, holds int"
    ):
        if first == "fact":
            ops.fill("exp", cost="much")
        ops.column("cost", int, 1, "instructions")
        ops.fill("exp", cost="much")


def test_functions_are_facts_by_their_own_line(ops):
    code = ops.column("code", Callable, None, "writes it")

    @code.of("exp", "expm1")
    def written():
        return 1

    line = written.__code__.co_firstlineno
    assert code["exp"] is written is code["expm1"] and code["log"] is None
    assert [f.where for f in ops.facts("exp")["code"]] == [f"{__file__}:{line}"]
    with pytest.raises(RegistryError, match="holds Callable"):
        ops.fill("log", code=3)


def test_names_are_those_whose_fact_is_true_now(ops):
    plain = ops.column("plain", bool, False, "whether it is")
    names = plain.names
    ops.fill("a", plain=True)
    ops.fill("b", plain=False)
    assert list(names) == ["a"] and len(names) == 1 and "b" not in names and "c" not in names
    ops.fill("b", level=1, plain=True)
    assert list(names) == ["a", "b"]


def test_each_fact_makes_a_new_version(ops):
    seen = {ops.version}
    ops.column("cost", int, 1, "instructions")
    seen.add(ops.version)
    ops.fill("exp", cost=2)
    seen.add(ops.version)
    ops.take_back("exp", "cost")
    assert len({*seen, ops.version}) == 4


def test_somebody_reads_every_fact_about_ops():
    for module in SAYING:
        pytest.importorskip(module)
    assert OPS.undeclared() == {}
    of_plans = {"fma", "fms", "fnma", "copy", "pack2", "pack4", "dot2", "dot4"}
    of_tables = {"ufunc", "elementwise", "batch_norm", "layer_norm", "quantize", "dequantize"}  # for several ops; nodes of ONNX
    of_tables |= {"reference"}  # for ops without an entry of their own
    assert {f.name for f in OPS} - set(REGISTRY) == of_plans | of_tables


def places(name):
    """The files that say something about an op, but for those of ONNX's own nodes."""
    facts = {f.where.rpartition(":")[0] for column, facts in OPS.facts(name).items() if column != "onnx_nodes" for f in facts}
    record = REGISTRY[name]
    found = facts | {f.__code__.co_filename for f in (record.grad, record.lower, record.type) if hasattr(f, "__code__")}
    if getattr(record.grad, "__module__", "") == "ngraph.ops.functions":
        found.discard(elementwise.__file__)  # its helper says some of the facts in the name of the file that calls it
    return found


def test_a_scalar_op_is_two_places_and_no_core_op_more_than_four():
    for record in core_ops():
        found = places(record.name)
        limit = 2 if OPS.columns["elementwise"][record.name] and record.name not in OPS.columns["numpy_lines"] else 4
        assert len(found) <= limit, (record.name, sorted(found))


def test_no_other_file_lists_elementwise_ops_by_name():
    """Names that rules speak of are theirs; a list of many is a table that a new op would be missing from."""
    names = set(OPS.columns["elementwise"].names)
    for path, room in rooms.files():
        if room.partition(".")[0] in ("frontends", "keras", "testing", "api", ""):
            continue
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
        for node in ast.walk(tree):
            if isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict)):
                items = node.keys if isinstance(node, ast.Dict) else node.elts
                said = {i.value for i in items if isinstance(i, ast.Constant) and isinstance(i.value, str)}
                assert len(said & names) < 8, f"{path}:{node.lineno}"


def test_a_misspelt_fact_of_a_record_is_refused():
    with pytest.raises(ValueError, match="op no_such: elementwize is not a fact; did you mean elementwise"):
        op("no_such", "Nothing.", type=lambda inputs: inputs[0], elementwize=True)
    with pytest.raises(ValueError, match="op no_such: lowers is not a fact; did you mean lower"):
        op("no_such", "Nothing.", type=lambda inputs: inputs[0], lowers=None)
    assert "no_such" not in REGISTRY and not OPS.facts("no_such")


def test_the_command_prints_who_says_what(capsys):
    assert main(["ops", "tanh"]) == 0
    out = capsys.readouterr().out
    assert "machine_code" in out and "ngraph/codegen/math.py:" in out and "ngraph/ops/elementwise.py:" in out
    assert set(FIELDS) >= {"name", "grad", "lower"} and "np.tanh" in out
    assert main(["ops", "tanhh"]) == 2 and "did you mean tanh" in capsys.readouterr().err
    assert ng.tanh.name == "tanh"
