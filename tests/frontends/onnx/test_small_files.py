"""Files of a few bytes that stand for very much are refused soon, with the node or function and both figures."""

import time

import numpy as np
import onnx
import pytest
from onnx import helper as h

import ngraph as ng
from tests.frontends.onnx.made import B, F, I, graph, model

SOON = 5.0  # seconds of the processor: all are refused in under one where nothing else runs
N = h.make_node
FAR = np.array(1 << 40)


def functions(body, main="f", domain="own"):
    """A model of functions {name: nodes}, of one input and one output each."""
    imports = [h.make_opsetid("", 18), h.make_opsetid(domain, 1)]
    made = [h.make_function(domain, name, ["x"], ["y"], nodes, imports) for name, nodes in body.items()]
    whole = graph([N(main, ["x"], ["y"], domain=domain)], [("x", F, [2])], [("y", F, [2])])
    return h.make_model(whole, functions=made, opset_imports=imports, ir_version=9)


def doubling(depth):
    twice = {f"f{k}": [N(f"f{k - 1}", [a], [b], domain="own") for a, b in (("x", "m"), ("m", "y"))] for k in range(1, depth + 1)}
    return functions({"f0": [N("Neg", ["x"], ["y"])]} | twice, f"f{depth}")


def loops(depth, turns):
    """Loops in loops, each unrolled."""
    ports = [[("i", I, []), ("c", B, []), ("v", F, [None])], [("c2", B, []), ("w", F, [None])]]
    body = graph([N("Identity", ["c"], ["c2"]), N("Add", ["v", "v"], ["w"])], *ports)
    for _ in range(depth):
        body = graph([N("Identity", ["c"], ["c2"]), N("Loop", ["turns", "yes", "v"], ["w"], body=body)], *ports)
    held = {"turns": np.array(turns), "yes": np.array(True)}
    return model([N("Loop", ["turns", "yes", "x"], ["y"], body=body)], [("x", F, [1])], [("y", F, None)], held)


def made(op, inputs, constants, **attributes):
    known = {k: np.asarray(v) for k, v in constants.items()}
    return model([N(op, list(inputs), ["y"], **attributes)], [], [("y", F, None)], known)


def sparse(length):
    held = h.make_sparse_tensor(h.make_tensor("v", F, [1], [1.0]), h.make_tensor("i", I, [1], [5]), [length])
    return model([N("Constant", [], ["a"], sparse_value=held), N("ReduceMax", ["a"], ["y"])], [], [("y", F, None)])


FILES = {
    "functions": (doubling(15), "the function own.f13 stands for 24,574 nodes; at most 16,384 are read of this file"),
    "more functions": (doubling(40), "the function own.f13 stands for 24,574 nodes"),
    "a function of itself": (functions({"f": [N("f", ["x"], ["y"], domain="own")]}), "the function own.f calls itself"),
    "calls": (
        functions({"g": [N("Neg", ["x"], ["y"])] * 150, "f": [N("g", ["x"], ["y"], domain="own")] * 150}),
        "the function own.f stands for 22,650 nodes",
    ),
    "loops": (loops(6, 8), "with the turns of loops more than 16,384 nodes would be read"),
    "a filled array": (made("ConstantOfShape", "s", {"s": [1 << 40]}), "4,398,046,511,104 bytes are needed"),
    "a range": (made("Range", "abc", {"a": np.array(0), "b": FAR, "c": np.array(1)}), "8,796,093,022,208 bytes are needed"),
    "a range of halves": (
        made("Range", "abc", {k: np.array(v, np.float16) for k, v in {"a": 0, "b": 6e4, "c": 6e-5}.items()}),
        "a table of 999,635,512 numbers would be made",
    ),
    "a step of nothing": (
        made("Range", "abc", {"a": np.float32(0), "b": np.float32(9), "c": np.float32(0)}),
        "the step of a range is 0",
    ),
    "an expansion": (made("Expand", "xs", {"x": np.float32([1]), "s": [1 << 20, 1 << 20]}), "4,398,046,511,104 bytes are needed"),
    "tiles": (made("Tile", "xs", {"x": np.float32([1]), "s": [1 << 40]}), "4,398,046,511,104 bytes are needed"),
    "padding": (made("Pad", "xs", {"x": np.float32([1]), "s": [0, 1 << 40]}), "4,398,046,511,108 bytes are needed"),
    "one of many": (made("OneHot", "xdv", {"x": [1], "d": FAR, "v": np.float32([0, 1])}), "4,398,046,511,104 bytes are needed"),
    "windows": (
        made("AveragePool", "x", {"x": np.ones((1, 1, 2), "f")}, kernel_shape=[1 << 20], pads=[(1 << 20) - 1] * 2),
        "a table of 1,048,577 x 1,048,576 numbers would be made",
    ),
    "a resize": (
        made("Resize", ["x", "", "", "s"], {"x": np.ones((1, 1, 2), "f"), "s": [1, 1, 1 << 30]}, mode="cubic"),
        "a table of 1,073,741,824 numbers would be made",
    ),
    "outer products": (
        made("Where", "abc", {"a": np.ones((4000, 1, 1), bool), "b": np.ones((1, 4000, 1), int), "c": np.ones((1, 1, 4000), int)}),
        "512,000,000,000 bytes are needed",
    ),
    "a sparse array": (sparse(1 << 31), "a table of 2,147,483,648 numbers would be made"),
    "a sequence": (
        model(
            [N("ConstantOfShape", ["s"], ["a"]), N("SplitToSequence", ["a"], ["q"]), N("SequenceLength", ["q"], ["y"])],
            [],
            [("y", I, None)],
            {"s": np.array([1 << 24])},
        ),
        "more than 16,384 nodes would be read",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_small_file_that_stands_for_much_is_refused_soon(name):
    file, said = FILES[name]
    start = time.process_time()
    with pytest.raises(ng.NgraphError) as caught:
        found = ng.onnx.load(file.SerializeToString())
        found(*[np.ones(p.shape, p.dtype) for p in found.inputs])
    assert said in str(caught.value)
    assert time.process_time() - start < SOON


def test_a_network_whose_layers_are_calls_of_a_function_is_read():
    deep = doubling(12)
    assert len(deep.SerializeToString()) < 1000
    np.testing.assert_array_equal(ng.onnx.load(deep)(np.float32([1, 2])), [1, 2])


def test_nested_branches_are_read_once():
    inner = graph([N("NonZero", ["x"], ["r"])], [], [("r", I, None)])
    other = graph([N("NonZero", ["x"], ["r"])], [], [("r", I, None)])
    for _ in range(30):
        inner = graph([N("If", ["c"], ["r"], then_branch=inner, else_branch=other)], [], [("r", I, None)])
    nodes = [N("ReduceMax", ["x"], ["m"], keepdims=0), N("Cast", ["m"], ["c"], to=onnx.TensorProto.BOOL)]
    nodes += [N("If", ["c"], ["y"], then_branch=inner, else_branch=other)]
    found = ng.onnx.load(model(nodes, [("x", F, [100])], [("y", I, None)]))
    x = np.zeros(100, np.float32)
    x[[3, 70]] = 1
    start = time.process_time()
    np.testing.assert_array_equal(found(x), [[3, 70]])
    assert time.process_time() - start < SOON
