"""Graphs of TensorFlow 1 with the answers that TensorFlow gave (`record_v1.py`): control flow, variables, optimizers' steps."""

import numpy as np
import pytest
from graphs_v1 import CASES, IN_CALLS, RECORDED, load, under

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError, GraphError, NgraphError, ParseError
from ngraph.frontends.tensorflow.messages import classes
from ngraph.frontends.tensorflow.tf_importer.importer import TFImporter

EXACT = {"stateless", "counters"}  # random numbers, bit by bit


@pytest.mark.parametrize("kind", ["cpu", "direct"])
@pytest.mark.parametrize("name", CASES)
def test_answers(tmp_path, name, kind):
    names = [str(n) for n in RECORDED[f"{name}|names"]]
    with ngt.make_transformer_factory(kind)() as transformer:
        model = load(name, tmp_path, transformer)
        k = 0
        while feeds := under(f"{name}|feed{k}|"):
            for turn in range(int(RECORDED[f"{name}|turns"])):
                if f"{name}|error{k}.{turn}" in RECORDED:
                    with pytest.raises(GraphError, match="dead: a Switch sent its input the other way"):
                        model.run(names, feeds)
                    continue
                for j, y in enumerate(model.run(names, feeds)):
                    want = RECORDED[f"{name}|out{k}.{turn}.{j}"]
                    assert y.dtype == want.dtype and y.shape == want.shape
                    limit = 0 if name in EXACT else 2e-6
                    np.testing.assert_allclose(y, want, rtol=limit, atol=limit, err_msg=f"feed {k}, turn {turn}, result {j}")
            k += 1
        for variable, want in under(f"{name}|end|").items():
            np.testing.assert_allclose(model.value(variable), want, rtol=2e-6, atol=2e-6, err_msg=variable)
        ops = {node.op for node in model.file.graph.nodes.values()}
        assert k and (name in IN_CALLS or not ops & {"Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"})


def test_a_loop_over_arrays_is_one_scan(tmp_path):
    """The TensorArray that is read stays outside, the one that is written is what the turns give, stacked."""
    model = load("recurrent", tmp_path)
    graph = model.graph({"x": (4, 13, 3)})
    ops, todo = [], list(graph.outputs.values())
    while todo:
        op = todo.pop()
        ops.append(op.opdef.name)
        todo += op.inputs
    assert ops.count("scan") >= 1 and not {"while_loop", "scatter"} & set(ops)


def test_a_node_without_results_can_be_fetched(tmp_path):
    model = load("loop_training_reference", tmp_path)
    feeds = {"x:0": RECORDED["loop_training_reference|feed0|x:0"]}
    step = "GradientDescent"
    before = model.value("w").copy()
    assert model.run([step], feeds) == [None] and not np.array_equal(model.value("w"), before)


@pytest.mark.parametrize("op", ["StackPushV2", "StackPopV2"])
def test_stacks_that_no_turn_counts_are_refused(op):
    graph = classes()["GraphDef"]()
    graph.ParseFromString(RECORDED["loop_training_reference|graph"].tobytes())
    for node in graph.node:
        if node.op == op:
            kept = [i for i in node.input if not i.startswith("^")]
            del node.input[:]
            node.input.extend(kept)
    with pytest.raises(NgraphError, match=f"{op.removeprefix('Stack').removesuffix('V2').lower()}(es|s) in no loop that counts"):
        ng.tensorflow.load(graph.SerializeToString())


def test_a_stack_that_waits_for_itself_is_refused():
    graph = classes()["GraphDef"]()
    graph.ParseFromString(RECORDED["nested_derivative_branch|graph"].tobytes())
    (switch,) = [n for n in graph.node if n.name == "gradients/while/cond/mul_grad/Mul/Switch"]
    switch.input[0] = switch.name
    with pytest.raises(ParseError, match="nodes wait for each other"):
        ng.tensorflow.load(graph.SerializeToString())


def test_values_inside_of_a_branch_cannot_be_fetched(tmp_path):
    model = load("cond", tmp_path)
    with pytest.raises(ArgumentError, match="has no value 'cond/mul:0'"):
        model.run(["cond/mul:0"], {"x:0": np.ones((2, 3), np.float32)})


@pytest.mark.parametrize("name", ["cond_nested", "loop_nested", "cond_loop", "maps", "scatters_reference", "two_predicates"])
def test_damaged_nodes_are_refused(name):
    """Nodes with other inputs, ops or attributes: the graph is opened, and its nodes are handles, or an error of ours says why not."""
    r, message = np.random.default_rng(len(name)), classes()["GraphDef"]()
    message.ParseFromString(RECORDED[f"{name}|graph"].tobytes())
    names, ops = [n.name for n in message.node], [n.op for n in message.node]
    refused = 0
    for _ in range(40):
        graph = classes()["GraphDef"]()
        graph.CopyFrom(message)
        node, kind = graph.node[int(r.integers(len(names)))], int(r.integers(5))
        if kind == 0:
            node.op = str(r.choice(ops))
        elif kind == 1 and node.attr:
            del node.attr[str(r.choice(sorted(node.attr)))]
        elif kind == 2 and node.input:
            del node.input[int(r.integers(len(node.input)))]
        elif kind == 3 and node.input:
            node.input[int(r.integers(len(node.input)))] = str(r.choice(names)) + str(r.choice(["", ":1", ":7"]))
        else:
            node.input.append(str(r.choice(["", "^"])) + str(r.choice(names)))
        importer = TFImporter()
        try:
            importer.import_graph_def(graph.SerializeToString())
            importer.get_op_handle(str(RECORDED[f"{name}|names"][0]))
        except NgraphError:
            refused += 1
    assert refused
