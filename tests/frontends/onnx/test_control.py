"""Branches and loops of ONNX: as ops with bodies, decided for a call, or unrolled; always ONNX Runtime's numbers."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
import onnx
from made import B, F, I, agree, graph, h, model

import ngraph as ng

random = np.random.default_rng(1)


def x(*shape):
    return random.random(shape, np.float32)


def kinds(m):
    """The op records of the last computation of a model."""
    stage, found = m.reader.root, None
    while stage.next:
        stage = next(iter(stage.next.values()))
        found = getattr(stage, "computation", found)
    return {s.op for s in found.lowered.steps}


def test_a_loop_with_outputs_of_each_trip_is_a_scan():
    body = graph(
        [
            h.make_node("Identity", ["c"], ["on"]),
            h.make_node("Mul", ["s", "w"], ["t"]),
            h.make_node("Add", ["t", "x"], ["next"]),
            h.make_node("ReduceSum", ["next"], ["y"], keepdims=0),
        ],
        [("i", I, []), ("c", B, []), ("s", F, ["A", 4])],
        [("on", B, []), ("next", F, ["A", 4]), ("y", F, [])],
    )
    loop = h.make_node("Loop", ["n", "true", "x"], ["end", "ys"], body=body)
    whole = model(
        [loop], [("x", F, ["A", 4]), ("w", F, [4])], [("end", F, None), ("ys", F, None)], {"n": np.int64(20), "true": np.array(True)}
    )
    m = agree(whole, *({"x": x(a, 4), "w": np.full(4, 0.5, "f4")} for a in (3, 2, 5)))
    assert m.readings == 1 and "scan" in kinds(m)


def test_a_loop_that_ends_by_a_value_is_a_while():
    body = graph(
        [
            h.make_node("Mul", ["s", "factor"], ["next"]),
            h.make_node("ReduceMax", ["next"], ["m"], keepdims=0),
            h.make_node("Greater", ["m", "limit"], ["on"]),
        ],
        [("i", I, []), ("c", B, []), ("s", F, [3, 4])],
        [("on", B, []), ("next", F, [3, 4])],
    )
    loop = h.make_node("Loop", ["", "true", "x"], ["end"], body=body)
    constants = {"true": np.array(True), "factor": np.float32(0.9), "limit": np.float32(0.1)}
    m = agree(model([loop], [("x", F, [3, 4])], [("end", F, None)], constants), {"x": x(3, 4)}, {"x": x(3, 4) * 100})
    assert m.readings == 1 and "while" in kinds(m)


def test_a_count_of_trips_may_come_with_the_call():
    body = graph(
        [h.make_node("Identity", ["c"], ["on"]), h.make_node("Mul", ["s", "factor"], ["next"])],
        [("i", I, []), ("c", B, []), ("s", F, [3])],
        [("on", B, []), ("next", F, [3])],
    )
    loop = h.make_node("Loop", ["n", "", "x"], ["end"], body=body)
    whole = model([loop], [("x", F, [3]), ("n", I, [])], [("end", F, None)], {"factor": np.float32(0.9)})
    m = agree(whole, *({"x": x(3), "n": np.array(n)} for n in (30, 3, 0)))
    assert m.readings == 1


def test_what_a_loop_without_trips_stacks_has_the_dtype_and_shape_of_the_body():
    """Also where the outputs of the body have no type in the file."""
    nodes = [h.make_node("Identity", ["c"], ["on"]), h.make_node("Mul", ["s", "w"], ["t"]), h.make_node("Identity", ["i"], ["k"])]
    body = graph(nodes, [("i", I, []), ("c", B, []), ("s", F, [2, "A"])], [])
    body.output.extend([onnx.ValueInfoProto(name=n) for n in ("on", "t", "t", "k")])
    loop = h.make_node("Loop", ["n", "", "x"], ["end", "ts", "ks"], body=body)
    inputs = [("x", F, [2, "A"]), ("w", F, []), ("n", I, [])]
    m = ng.onnx.load(model([loop], inputs, [("end", F, None), ("ts", F, None), ("ks", I, None)]))
    for trips in (0, 2):
        end, ts, ks = m.run(None, {"x": x(2, 3), "w": np.float32(2), "n": np.int64(trips)})
        assert (end.shape, ts.shape, ts.dtype, ks.shape, ks.dtype) == ((2, 3), (trips, 2, 3), np.float32, (trips,), np.int64)


@pytest.mark.parametrize("length", [0, "t"])
def test_a_scan_over_nothing_stacks_nothing(length):
    body = graph(
        [h.make_node("Add", ["s", "a"], ["t"]), h.make_node("Neg", ["t"], ["y"])],
        [("s", F, [2]), ("a", F, [2])],
        [("t", F, [2]), ("y", F, [2])],
    )
    node = h.make_node("Scan", ["s0", "A"], ["end", "ys"], body=body, num_scan_inputs=1)
    m = ng.onnx.load(model([node], [("s0", F, [2]), ("A", F, [length, 2])], [("end", F, None), ("ys", F, None)]))
    start = x(2)
    end, ys = m.run(None, {"s0": start, "A": x(0, 2)})
    assert np.array_equal(end, start) and ys.shape == (0, 2)


def test_a_loop_that_grows_what_it_carries_is_unrolled():
    body = graph(
        [h.make_node("Identity", ["c"], ["on"]), h.make_node("Concat", ["s", "s"], ["next"], axis=0)],
        [("i", I, []), ("c", B, []), ("s", F, ["n"])],
        [("on", B, []), ("next", F, ["m"])],
    )
    loop = h.make_node("Loop", ["n", "", "x"], ["end"], body=body)
    agree(model([loop], [("x", F, [3]), ("n", I, [])], [("end", F, None)]), *({"x": x(3), "n": np.array(n)} for n in (3, 10, 3)))


def branches(other, limit=100.0):
    """2 x where the sum of x is above a limit, else what `other` is."""
    then = graph([h.make_node("Mul", ["x", "two"], ["a"])], [], [("a", F, None)])
    nodes = [
        h.make_node("ReduceSum", ["x"], ["r"], keepdims=0),
        h.make_node("Greater", ["r", "limit"], ["c"]),
        h.make_node("If", ["c"], ["y"], then_branch=then, else_branch=graph([other], [], [("b", F, None)])),
    ]
    return model(nodes, [("x", F, ["N", 40])], [("y", F, None)], {"two": np.float32(2), "limit": np.float32(limit)})


def test_a_branch_on_a_computed_value_is_one_op():
    feeds = [{"x": x(30, 40)}, {"x": x(30, 40) - 1}, {"x": x(4, 40)}]
    m = agree(branches(h.make_node("Neg", ["x"], ["b"])), *feeds)
    assert m.readings == 1 and "cond" in kinds(m)


def test_branches_of_unlike_shapes_are_decided_for_each_call():
    feeds = [{"x": x(30, 40)}, {"x": x(30, 40) - 1}, {"x": x(31, 40)}]
    assert agree(branches(h.make_node("ReduceSum", ["x"], ["b"], keepdims=0)), *feeds).readings == 2


@pytest.mark.parametrize("back", [0, 1])
def test_scan(back):
    body = graph(
        [h.make_node("Add", ["s", "e"], ["next"]), h.make_node("Mul", ["next", "w"], ["y"])],
        [("s", F, [4]), ("e", F, [4])],
        [("next", F, [4]), ("y", F, [4])],
    )
    settings = {"scan_input_directions": [back], "scan_output_directions": [back], "scan_output_axes": [1]}
    scan = h.make_node("Scan", ["first", "x"], ["end", "ys"], body=body, num_scan_inputs=1, **settings)
    whole = model([scan], [("x", F, ["T", 4]), ("first", F, [4]), ("w", F, [4])], [("end", F, None), ("ys", F, None)])
    m = agree(whole, *({"x": x(t, 4), "first": x(4), "w": x(4)} for t in (20, 33, 1)))
    assert m.readings == 1 and "scan" in kinds(m)


@pytest.mark.parametrize("first, second, out", [(1, 0, 0), (0, 1, 1), (1, 1, 0), (0, 0, 1)])
def test_a_scan_in_both_directions_is_read_once(tmp_path, first, second, out):
    """ONNX Runtime divides by zero where there is no slice; NumPy says what comes then."""
    body = graph(
        [h.make_node("Mul", ["s", "a"], ["t"]), h.make_node("Add", ["t", "b"], ["next"]), h.make_node("Sub", ["next", "a"], ["y"])],
        [("s", F, ["n"]), ("a", F, ["n"]), ("b", F, ["n"])],
        [("next", F, ["n"]), ("y", F, ["n"])],
    )
    settings = {"scan_input_axes": [0, 1], "scan_input_directions": [first, second], "scan_output_directions": [out]}
    scan = h.make_node("Scan", ["s0", "u", "v"], ["end", "ys"], body=body, num_scan_inputs=2, scan_output_axes=[1], **settings)
    inputs = [("s0", F, ["n"]), ("u", F, ["T", "n"]), ("v", F, ["n", "T"])]
    whole = model([scan], inputs, [("end", F, None), ("ys", F, None)])
    m = agree(whole, *({"s0": x(n), "u": x(t, n), "v": x(n, t)} for n, t in ((4, 20), (3, 33), (5, 1), (4, 2))))
    assert m.readings == 1 and "scan" in kinds(m)
    end, ys = m(np.ones(4, "f4"), np.ones((0, 4), "f4"), np.ones((4, 0), "f4"))
    assert end.tolist() == [1] * 4 and ys.shape == (4, 0)
    ng.onnx.save(m, str(tmp_path / "again.onnx"))
    agree(onnx.load(tmp_path / "again.onnx"), {"s0": x(3), "u": x(9, 3), "v": x(3, 9)})


@pytest.mark.parametrize("length", [3, 20])
def test_what_a_scan_from_the_end_gives_is_stacked_in_the_order_of_its_turns(length):
    body = h.make_graph(
        [h.make_node("Add", ["s", "e"], ["t"]), h.make_node("Identity", ["t"], ["o"])],
        "body",
        [h.make_tensor_value_info(n, F, []) for n in ("s", "e")],
        [h.make_tensor_value_info(n, F, []) for n in ("t", "o")],
    )
    node = h.make_node("Scan", ["zero", "x"], ["last", "y"], body=body, num_scan_inputs=1, scan_input_directions=[1])
    whole = model([node], [("x", F, [length])], [("last", F, []), ("y", F, [length])], {"zero": np.float32(0)})
    agree(whole, {"x": np.arange(length, dtype=np.float32)})


@pytest.mark.parametrize("lengths", [(3, 90, 3, 2), (90, 3, 2, 90)])
def test_a_choice_by_few_numbers_in_one_call_and_by_many_in_another(lengths):
    """By few numbers the way on is for this value; by many it is an op with both branches. Both are one model's."""
    then = graph([h.make_node("Tanh", ["x"], ["t"])], [], [("t", F, None)])
    other = graph([h.make_node("Add", ["x", "x"], ["o"])], [], [("o", F, None)])
    nodes = [
        h.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        h.make_node("Greater", ["s", "zero"], ["c"]),
        h.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    whole = model(nodes, [("x", F, ["n"])], [("y", F, None)], {"zero": np.float32(0)})
    feeds = [{"x": sign * x(n)} for n, sign in zip(lengths, (1, -1, -1, 1), strict=True)]
    agree(whole, *feeds)


def test_lengths_cast_to_int32_are_int32():
    nodes = [
        h.make_node("Shape", ["x"], ["s"]),
        h.make_node("Cast", ["s"], ["i"], to=onnx.TensorProto.INT32),
        h.make_node("Add", ["i", "i"], ["j"]),
        h.make_node("Cast", ["s"], ["u"], to=onnx.TensorProto.UINT32),
    ]
    results = [("i", onnx.TensorProto.INT32, None), ("j", onnx.TensorProto.INT32, None), ("u", onnx.TensorProto.UINT32, None)]
    agree(model(nodes, [("x", F, ["n", "m"])], results), {"x": x(3, 2)}, {"x": x(300, 1)})


def test_a_later_call_without_room_for_a_window_is_refused():
    pool = h.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3], dilations=[2])
    m = agree(model([pool], [("x", F, [1, 1, "n"])], [("y", F, None)]), {"x": x(1, 1, 7)}, {"x": x(1, 1, 5)})
    with pytest.raises(ng.errors.GraphError, match="a dim would have the length -2"):
        m(x(1, 1, 2))


@pytest.mark.parametrize("after", ["GlobalAveragePool", "ConvTranspose", "Pad", "Resize"])
def test_a_length_below_zero_on_the_way_is_refused(after):
    """Nothing is computed with it, whatever length the result has."""
    w, pads = np.ones((2, 2, 5, 5), np.float32), np.array([0, 0, 4, 4, 0, 0, 4, 4])
    more = {"ConvTranspose": ["w"], "Pad": ["pads"], "Resize": ["", "", "sizes"]}.get(after, [])
    nodes = [h.make_node("Conv", ["x", "w"], ["c"], name="first"), h.make_node(after, ["c", *more], ["y"])]
    held = {"w": w, "pads": pads, "sizes": np.array([1, 2, 3, 3])}
    m = ng.onnx.load(model(nodes, [("x", F, ["n", 2, "h", "w_"])], [("y", F, None)], {k: v for k, v in held.items() if k in ("w", *more)}))
    assert np.asarray(m(x(1, 2, 6, 7))).ndim == 4
    for shape in ((1, 2, 3, 7), (1, 2, 9, 1)):
        with pytest.raises(ng.errors.GraphError, match="(?s)'first'.*a dim would have the length -"):
            m(x(*shape))
    assert np.asarray(m(x(1, 2, 8, 9))).ndim == 4


def test_a_length_that_only_a_body_needs_comes_with_an_input_that_nothing_else_reads():
    body = graph(
        [
            h.make_node("Add", ["s", "count"], ["next"]),
            h.make_node("Less", ["next", "limit"], ["on"]),
        ],
        [("i", I, []), ("c", B, []), ("s", I, [])],
        [("on", B, []), ("next", I, [])],
    )
    nodes = [
        h.make_node("Shape", ["x"], ["shape"]),
        h.make_node("Gather", ["shape", "zero"], ["count"]),
        h.make_node("Loop", ["", "true", "k"], ["end"], body=body),
        h.make_node("Range", ["zero", "end", "one"], ["y"]),  # its length is computed first
    ]
    constants = {"true": np.array(True), "limit": np.array(20), "zero": np.array(0), "one": np.array(1)}
    whole = model(nodes, [("x", F, ["n", 2]), ("k", I, [])], [("y", I, None)], constants)
    agree(whole, *({"x": x(n, 2), "k": np.array(k)} for n, k in ((3, 1), (4, 1), (3, 25))))


def test_a_body_mapped_over_a_sequence_uses_values_outside_of_it():
    body = graph(
        [h.make_node("Mul", ["s", "x"], ["p"]), h.make_node("Add", ["p", "t"], ["y"])], [("s", F, None), ("t", F, None)], [("y", F, None)]
    )
    nodes = [
        h.make_node("SplitToSequence", ["x", "one"], ["parts"], axis=0),
        h.make_node("SequenceMap", ["parts", "x"], ["mapped"], body=body),
        h.make_node("ConcatFromSequence", ["mapped"], ["y"], axis=0),
    ]
    agree(model(nodes, [("x", F, ["n", 2])], [("y", F, None)], {"one": np.array(1)}), {"x": x(3, 2)}, {"x": x(1, 2)})


def test_calls_of_a_function_want_different_results_of_it():
    imports = [h.make_opsetid("", 18), h.make_opsetid("own", 1)]
    nodes = [h.make_node("Add", ["a", "a"], ["twice"]), h.make_node("Neg", ["a"], ["less"])]
    both = h.make_function("own", "Both", ["a"], ["twice", "less"], nodes, imports)
    calls = [h.make_node("Both", ["x"], ["y"], domain="own"), h.make_node("Both", ["y"], ["", "z"], domain="own")]
    whole = graph(calls, [("x", F, ["n"])], [("y", F, ["n"]), ("z", F, ["n"])])
    m = ng.onnx.load(h.make_model(whole, functions=[both], opset_imports=imports, ir_version=9))
    y, z = m.run(None, {"x": np.array([1, 2], np.float32)})
    assert y.tolist() == [2, 4] and z.tolist() == [-2, -4]
