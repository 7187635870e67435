"""Parts that models are full of, in all their settings, beside ONNX Runtime: boxes behind detectors, recurrent layers over sequences of
unlike lengths, resizing, transposed convolutions, spectra."""

import itertools

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from made import F, I, agree, model
from onnx import helper as h

import ngraph as ng


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def boxes(n, seed):
    r = np.random.default_rng(seed)
    at, size = r.uniform(0, 80, (1, n, 2)), r.uniform(5, 40, (1, n, 2))
    return np.concatenate([at, at + size], -1).astype(np.float32)


def test_boxes_behind_a_detector():
    """The best boxes that do not overlap, their scores and places in order, and a map in which they are marked."""
    nodes = [
        h.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["kept"]),
        h.make_node("Gather", ["kept", "order"], ["where"], axis=1),  # batch, class, box
        h.make_node("GatherND", ["scores", "where"], ["found"]),
        h.make_node("Shape", ["found"], ["all"]),
        h.make_node("TopK", ["found", "all"], ["best", "places"]),
        h.make_node("Gather", ["kept", "places"], ["picked"]),
        h.make_node("Slice", ["picked", "two", "three", "one"], ["which"]),
        h.make_node("Squeeze", ["which", "one"], ["flat"]),
        h.make_node("Gather", ["boxes", "flat"], ["chosen"], axis=1),
        h.make_node("Shape", ["scores"], ["size"]),
        h.make_node("ConstantOfShape", ["size"], ["nothing"]),
        h.make_node("ScatterND", ["nothing", "where", "found"], ["marked"]),
    ]
    constants = {
        "most": np.array([5]),
        "overlap": np.array([0.4], np.float32),
        "least": np.array([0.3], np.float32),
        "order": np.array([0, 1, 2]),
        "one": np.array([1]),
        "two": np.array([2]),
        "three": np.array([3]),
    }
    inputs = [("boxes", F, [1, "n", 4]), ("scores", F, [1, 3, "n"])]
    outputs = [("best", F, None), ("chosen", F, None), ("marked", F, None), ("picked", I, None)]
    feeds = [{"boxes": boxes(n, n), "scores": np.random.default_rng(n).uniform(0, 1, (1, 3, n)).astype(np.float32)} for n in (12, 30, 12)]
    agree(model(nodes, inputs, outputs, constants), *feeds)


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("n", [1, 64, 65, 300])
def test_boxes_that_share_much_with_better_ones(n, center):
    """More boxes than are compared at once, with equal scores, by corners or by middle and lengths; limits of all kinds."""
    node = h.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["kept"], center_point_box=center)
    limits = [("most", I, [1]), ("overlap", F, [1]), ("least", F, [1])]
    made = model([node], [("boxes", F, [2, "n", 4]), ("scores", F, [2, 3, "n"]), *limits], [("kept", I, None)])
    r = np.random.default_rng(n)
    given = r.uniform(0, 40, (2, n, 4)).astype(np.float32)
    feeds = [
        {
            "boxes": given,
            "scores": np.round(r.uniform(0, 1, (2, 3, n)), 2).astype(np.float32),
            "most": np.array([most]),
            "overlap": np.array([overlap], np.float32),
            "least": np.array([least], np.float32),
        }
        for most, overlap, least in ((0, 0.5, 0.2), (3, 0.1, 0.5), (70, 0.4, 0), (1000, 0, 0.1), (1000, 0.9, 0.3))
    ]
    agree(made, *feeds)


@pytest.mark.parametrize("n", [0, 5, "n"])
def test_boxes_without_limits(n):
    """Limits that are left out, no boxes, scores of minus infinity; the loop is compiled, once for all numbers of boxes but 0."""
    inputs = [("boxes", F, [1, n, 4]), ("scores", F, [1, 2, n])]
    r = np.random.default_rng(4)
    feeds = []
    for many in (5, 0, 9) if n == "n" else (n,):
        scores = np.where(r.uniform(size=(1, 2, many)) < 0.3, -np.inf, r.uniform(size=(1, 2, many))).astype(np.float32)
        feeds.append({"boxes": r.uniform(0, 4, (1, many, 4)).astype(np.float32), "scores": scores})
    for limits in ({}, {"most": np.array([4])}, {"most": np.array(2**62), "overlap": np.float32(0.2)}):
        node = h.make_node("NonMaxSuppression", ["boxes", "scores", *limits], ["kept"])
        mine = agree(model([node], inputs, [("kept", I, None)], limits), *feeds)
        assert mine.readings == len({bool(f["scores"].size) for f in feeds}) and not mine.host_callbacks


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_padding_by_what_is_there(mode):
    nodes = [h.make_node("Pad", ["x", "pads"], ["y"], mode=mode)]
    for shape in ([2, 5, 7], ["n", "h", "w"]):
        made = model(nodes, [("x", F, shape)], [("y", F, None)], {"pads": np.array([0, 2, 3, 0, 1, 6])})
        agree(made, {"x": draw(2, 5, 7)})


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_pools_whose_padding_follows_from_lengths(auto):
    """Windows that overlap much and little, in strides that leave the padding to each length."""
    for size, strides in ((3, [2, 2]), (7, [1, 1]), (9, [2, 3])):
        nodes = [h.make_node("MaxPool", ["x"], ["y"], kernel_shape=[size, size], strides=strides, auto_pad=auto)]
        made = model(nodes, [("x", F, [1, 2, "h", "w"])], [("y", F, None)])
        assert agree(made, *({"x": draw(1, 2, *shape)} for shape in ((13, 10), (9, 17), (20, 11)))).readings == 1


def test_a_loop_over_boxes():
    """Each trip takes the best score and lowers its neighbours, as soft suppression does, until the trips are over or none is left."""
    body = h.make_graph(
        [
            h.make_node("ArgMax", ["s"], ["top"], axis=0, keepdims=1),
            h.make_node("Gather", ["s", "top"], ["value"]),
            h.make_node("Sub", ["places", "top"], ["far"]),
            h.make_node("Abs", ["far"], ["apart"]),
            h.make_node("Less", ["apart", "near"], ["close"]),
            h.make_node("Mul", ["s", "half"], ["lower"]),
            h.make_node("Where", ["close", "lower", "s"], ["next"]),
            h.make_node("ScatterElements", ["next", "top", "zero"], ["after"]),
            h.make_node("Greater", ["value", "limit"], ["more"]),
            h.make_node("Squeeze", ["more"], ["go"]),
        ],
        "body",
        [h.make_tensor_value_info(n, t, s) for n, t, s in (("k", I, []), ("on", 9, []), ("s", F, ["n"]))],
        [h.make_tensor_value_info(n, t, s) for n, t, s in (("go", 9, []), ("after", F, ["n"]), ("value", F, [1]), ("top", I, [1]))],
    )
    nodes = [
        h.make_node("Shape", ["x"], ["size"]),
        h.make_node("Squeeze", ["size"], ["n"]),
        h.make_node("Range", ["start", "n", "step"], ["places"]),
        h.make_node("Loop", ["trips", "yes", "x"], ["left", "values", "tops"], body=body),
    ]
    constants = {
        "start": np.array(0),
        "step": np.array(1),
        "trips": np.array(6),
        "yes": np.array(True),
        "near": np.array(3),
        "half": np.float32(0.5),
        "zero": np.zeros(1, np.float32),
        "limit": np.array([0.2], np.float32),
    }
    feeds = [{"x": np.random.default_rng(n).uniform(0, top, n).astype(np.float32)} for n, top in ((9, 1.0), (20, 1.0), (7, 0.3))]
    agree(model(nodes, [("x", F, ["n"])], [("left", F, None), ("values", F, None), ("tops", I, None)], constants), *feeds)


@pytest.mark.parametrize(("op", "gates", "after"), [("RNN", 1, 0), ("GRU", 3, 0), ("GRU", 3, 1), ("LSTM", 4, 0)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_layers_over_sequences_of_unlike_lengths(op, gates, after, direction):
    ways, hidden, features = 1 + (direction == "bidirectional"), 5, 4
    constants = {
        "w": draw(ways, gates * hidden, features, seed=1) * 0.5,
        "r": draw(ways, gates * hidden, hidden, seed=2) * 0.5,
        "b": draw(ways, 2 * gates * hidden, seed=3),
    }
    given = ["x", "w", "r", "b", "lengths", "h0", *(["c0", "p"] if op == "LSTM" else [])]
    if op == "LSTM":
        constants["p"] = draw(ways, 3 * hidden, seed=4)
    how = {"linear_before_reset": after} if op == "GRU" else {}
    outputs = ["y", "yh", *(["yc"] if op == "LSTM" else [])]
    node = h.make_node(op, given, outputs, hidden_size=hidden, direction=direction, **how)
    states = ["h0", *(["c0"] if op == "LSTM" else [])]
    inputs = [("x", F, ["t", "n", features]), ("lengths", 6, ["n"]), *[(s, F, [ways, "n", hidden]) for s in states]]
    feeds = []
    for t, lengths in ((7, [7, 3, 5]), (4, [1, 4])):
        feed = {"x": draw(t, len(lengths), features, seed=t), "lengths": np.array(lengths, np.int32)}
        feeds.append(feed | {s: draw(ways, len(lengths), hidden, seed=9) for s in states})
    agree(model([node], inputs, [(o, F, None) for o in outputs], constants, opset=14), *feeds)


COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
SCALES = ((1.625, 2.375), (0.625, 0.4375), (2.0, 3.0))  # exact in float32: whether two pixels are equally near is no matter of rounding


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("where", COORDINATES)
def test_resizing(mode, where):
    rounds = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil") if mode == "nearest" else ("round_prefer_floor",)
    scales = SCALES[-1:] if where == "align_corners" else SCALES  # of corners of a fraction of a pixel the runtimes think differently
    for by, how in itertools.product(scales, rounds):
        more = {"nearest_mode": how} if mode == "nearest" else {}
        node = h.make_node("Resize", ["x", "", "by"], ["y"], mode=mode, coordinate_transformation_mode=where, **more)
        constants = {"by": np.array([1, 1, *by], np.float32)}
        agree(model([node], [("x", F, [1, 2, 7, 9])], [("y", F, None)], constants), {"x": draw(1, 2, 7, 9)}, atol=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("where", COORDINATES)
def test_resizing_of_lengths_that_come_with_calls(mode, where):
    """By scales, and by sizes that follow from lengths: the model is read once."""
    scales = SCALES[-1:] if where == "align_corners" else SCALES
    feeds = [{"x": draw(1, 2, *size)} for size in ((7, 9), (12, 5), (5, 31), (6, 7))]
    how = {"mode": mode, "coordinate_transformation_mode": where, **({"exclude_outside": 1} if mode == "cubic" else {})}
    made = [([h.make_node("Resize", ["x", "", "by"], ["y"], **how)], {"by": np.array([1, 1, *by], np.float32)}) for by in scales]
    sized = [h.make_node("Shape", ["x"], ["s"]), h.make_node("Mul", ["s", "two"], ["t"]), h.make_node("Add", ["t", "more"], ["size"])]
    by_sizes = [*sized, h.make_node("Resize", ["x", "", "", "size"], ["y"], **how)]
    made.append((by_sizes, {"two": np.array([1, 1, 2, 1]), "more": np.array([0, 0, 1, 4])}))
    for nodes, constants in made:
        mine = agree(model(nodes, [("x", F, [1, 2, "h", "w"])], [("y", F, None)], constants), *feeds, atol=1e-4)
        assert mine.readings == 1


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("dims", [[1, 2, 1, 3], [1, 2, "h", "w"]])
def test_resizing_to_nothing(mode, dims):
    node = h.make_node("Resize", ["x", "", "by"], ["y"], mode=mode)
    for by in ([1, 1, 0.4, 2], [1, 1, 2, 0.3], [1, 1, 0.4, 0.3]):
        made = model([node], [("x", F, dims)], [("y", F, None)], {"by": np.array(by, np.float32)})
        agree(made, {"x": draw(1, 2, 1, 3)})


def test_the_first_resize_rounds_up_where_it_makes_smaller():
    node = h.make_node("Resize", ["x", "by"], ["y"], mode="nearest")
    for by in ([0.6, 0.6], [0.4, 1.5], [1.7, 0.75], [2, 0.5]):
        for dims in ([4, 7], ["h", "w"]):
            made = model([node], [("x", F, dims)], [("y", F, None)], {"by": np.array(by, np.float32)}, opset=10)
            agree(made, {"x": draw(4, 7)})


def test_the_largest_of_nothing_is_marked_nowhere():
    for opset in (11, 13):
        agree(model([h.make_node("Hardmax", ["x"], ["y"], axis=1)], [("x", F, [2, 0])], [("y", F, None)], opset=opset), {"x": draw(2, 0)})


def test_a_single_element_is_read_at_the_first_place():
    """By `pytorch_half_pixel` it lies at 0, not before it, which the cubic method tells apart: of known lengths and of open ones."""
    node = h.make_node("Resize", ["x", "", "", "size"], ["y"], mode="cubic", coordinate_transformation_mode="pytorch_half_pixel")
    feeds = [{"x": draw(n, 5), "size": np.array(size)} for n in (3, 6) for size in ((1, 4), (5, 1), (1, 1))]
    agree(model([node], [("x", F, ["n", 5]), ("size", I, [2])], [("y", F, None)]), *feeds, atol=1e-4)
    half = h.make_node("Resize", ["x", "", "by"], ["y"], mode="cubic", coordinate_transformation_mode="pytorch_half_pixel")
    made = model([half], [("x", F, ["n", 5])], [("y", F, None)], {"by": np.array([0.5, 1], np.float32)})
    assert agree(made, *[{"x": draw(n, 5)} for n in (2, 3, 7)], atol=1e-4).readings == 1


@pytest.mark.parametrize("where", ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("how", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_which_element_is_nearest_does_not_depend_on_rounding(where, how):
    """14 to 19 and 5 to 3 have elements in the middle of two; a scale such as 0.7 is no number of float32, and 10 elements become 7."""
    settings = {"mode": "nearest", "coordinate_transformation_mode": where, "nearest_mode": how}
    node = h.make_node("Resize", ["x", "", "", "size"], ["y"], **settings)
    sizes = ((5, 3), (14, 19), (14, 31), (18, 21), (7, 4), (6, 10), (22, 13), (3, 7))
    feeds = [{"x": draw(n, 2), "size": np.array([many, 2])} for n, many in sizes]
    agree(model([node], [("x", F, ["n", 2]), ("size", I, [2])], [("y", F, None)]), *feeds)
    if where == "align_corners":
        return  # of corners of a fraction of a pixel the runtimes think differently
    node = h.make_node("Resize", ["x", "", "by"], ["y"], **settings)
    feeds = [{"x": draw(n, 2), "by": np.array([by, 1], np.float32)} for n in (7, 10, 19) for by in (0.7, 1.3, 0.3, 1.6, 1 / 3, 2.2)]
    agree(model([node], [("x", F, ["n", 2]), ("by", F, [2])], [("y", F, None)]), *feeds)


def test_a_region_of_a_crop_ends_where_onnx_runtime_ends_it():
    """By scales other than 1, for which ONNX Runtime's linear method leaves the region out."""
    node = h.make_node("Resize", ["x", "roi", "by"], ["y"], mode="linear", coordinate_transformation_mode="tf_crop_and_resize")
    constants = {"roi": np.array([0.1, 0.2, 0.9, 1.3], np.float32)}
    feeds = [{"x": draw(n, 5), "by": np.array(by, np.float32)} for n in (9, 4) for by in ((0.33, 0.8), (1.1, 0.2), (1.5, 0.7))]
    agree(model([node], [("x", F, ["n", 5]), ("by", F, [2])], [("y", F, None)], constants), *feeds, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
def test_integers_between_elements_are_cut_off_once(dtype):
    import onnxruntime

    node = h.make_node("Resize", ["x", "", "by"], ["y"], mode="linear")
    kind = h.np_dtype_to_tensor_dtype(np.dtype(dtype))
    by = {"by": np.array([1, 1, 0.6, 1.5], np.float32)}
    whole = model([node], [("x", kind, [1, 2, "h", "w"])], [("y", kind, None)], by)
    floats = model([node], [("x", F, [1, 2, "h", "w"])], [("y", F, None)], by)
    session, between = (onnxruntime.InferenceSession(m.SerializeToString()) for m in (whole, floats))
    mine, low = ng.onnx.load(whole), 0 if dtype == np.uint8 else -100
    for n in (5, 8, 11):
        x = np.random.default_rng(n).integers(low, 127, (1, 2, n, n + 2)).astype(dtype)
        near = between.run(None, {"x": x.astype(np.float32)})[0]
        sure = abs(near - np.rint(near)) > 1e-4  # else rounding of the sum decides on which side of a whole number it is
        assert sure.mean() > 0.7 and mine(x).dtype == dtype
        np.testing.assert_array_equal(mine(x)[sure], session.run(None, {"x": x})[0][sure])


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("opset, mode", [(16, "bicubic"), (20, "cubic")])
def test_a_border_bounds_the_elements_of_the_cubic_method(opset, mode, corners):
    torch = pytest.importorskip("torch")
    node = h.make_node("GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode="border", align_corners=corners)
    inputs = [("x", F, ["n", 2, "h", "w"]), ("grid", F, ["n", "a", "b", 2])]
    feeds = [{"x": draw(n, 2, 4, 5), "grid": draw(n, 3, 2, 2, seed=n) * 1.3} for n in (1, 2)]
    whole = model([node], inputs, [("y", F, None)], opset=opset)
    agree(whole, *feeds, atol=1e-4)
    for feed in feeds:
        x, grid = map(torch.tensor, feed.values())
        wanted = torch.nn.functional.grid_sample(x, grid, "bicubic", "border", bool(corners))
        np.testing.assert_allclose(ng.onnx.load(whole)(*feed.values()), wanted, atol=1e-4)


@pytest.mark.parametrize("corners", [0, 1])
def test_grids_of_matrices(corners):
    """The standard's function drops the batch where it is 1; the sizes come as an input, as a constant or from a shape."""
    torch = pytest.importorskip("torch")
    node = h.make_node("AffineGrid", ["m", "size"], ["y"], align_corners=corners)
    sizes = ((2, 3, 4, 5), (1, 1, 2, 7), (3, 1, 2, 6))
    feeds = [{"m": draw(size[0], 2, 3), "size": np.array(size)} for size in sizes]
    m = agree(model([node], [("m", F, ["n", 2, 3]), ("size", I, [4])], [("y", F, None)], opset=20), *feeds)
    alone = torch.nn.functional.affine_grid(torch.tensor(draw(1, 2, 3)), (1, 1, 1, 7), align_corners=bool(corners))
    np.testing.assert_allclose(m(draw(1, 2, 3), np.array([1, 1, 1, 7])), alone, atol=1e-5)  # ONNX Runtime puts it at the end
    agree(model([node], [("m", F, ["n", 3, 4])], [("y", F, None)], {"size": np.array([1, 2, 3, 4, 5])}, opset=20), {"m": draw(1, 3, 4)})
    nodes = [h.make_node("Shape", ["x"], ["size"]), node, h.make_node("GridSample", ["x", "y"], ["z"], align_corners=corners)]
    inputs = [("m", F, ["n", 2, 3]), ("x", F, ["n", "c", "h", "w"])]
    feeds = [{"m": draw(b, 2, 3), "x": draw(b, 2, *size)} for b, *size in ((1, 4, 5), (2, 3, 7), (1, 6, 2))]
    assert agree(model(nodes, inputs, [("z", F, None)], opset=20), *feeds, atol=1e-4).readings == 1


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("stride, dilation, pad, more, groups", [(1, 1, 0, 0, 1), (2, 1, 1, 1, 1), (3, 2, 2, 2, 2), (2, 2, 1, 0, 4)])
def test_transposed_convolutions(dims, stride, dilation, pad, more, groups):
    how = {"strides": [stride] * dims, "dilations": [dilation] * dims, "pads": [pad] * 2 * dims, "output_padding": [more] * dims}
    node = h.make_node("ConvTranspose", ["x", "w", "b"], ["y"], group=groups, **how)
    constants = {"w": draw(4, 3, *[3] * dims, seed=1), "b": draw(3 * groups, seed=2)}
    shape = (2, 4, *(5, 4, 6)[:dims])
    agree(model([node], [("x", F, ["n", *shape[1:]])], [("y", F, None)], constants), {"x": draw(*shape)}, {"x": draw(3, *shape[1:])})


@pytest.mark.parametrize("one_sided", [0, 1])
@pytest.mark.parametrize("step", [4, 7])
def test_spectra_of_short_pieces(one_sided, step):
    node = h.make_node("STFT", ["x", "step", "window"], ["y"], onesided=one_sided)
    constants = {"step": np.array(step), "window": np.hanning(16).astype(np.float32)}
    agree(model([node], [("x", F, [2, 60, 1])], [("y", F, None)], constants), {"x": draw(2, 60, 1)}, atol=1e-4)


def test_spectra_of_a_signal_without_a_dim_of_parts():
    """PyTorch's older exporter writes signals of [batch, length], which ONNX Runtime takes."""
    node = h.make_node("STFT", ["x", "step", "window"], ["y"])
    constants = {"step": np.array(5), "window": np.hanning(16).astype(np.float32)}
    agree(model([node], [("x", F, ["n", "t"])], [("y", F, None)], constants), {"x": draw(2, 60)}, {"x": draw(1, 33)}, atol=1e-4)


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("length", [8, 15])
def test_spectra(inverse, length):
    node = h.make_node("DFT", ["x"], ["y"], axis=1, inverse=inverse)
    agree(model([node], [("x", F, [2, length, 2])], [("y", F, None)]), {"x": draw(2, length, 2)}, atol=1e-4)


def test_determinants_of_sizes_that_come_with_calls():
    """Rows change places, one matrix is singular, and one has no rows; all sizes are one reading."""
    node = h.make_node("Det", ["x"], ["y"])
    feeds = [{"x": draw(n, m, m, seed=m)} for n, m in ((3, 4), (2, 7), (5, 1), (1, 8))]
    feeds[0]["x"][0, 0, 0] = 0
    feeds[1]["x"][1, 3] = feeds[1]["x"][1, 5] * 2
    assert agree(model([node], [("x", F, ["n", "m", "m"])], [("y", F, None)]), *feeds, atol=1e-4).readings == 1


def test_windows_along_a_cut_of_open_length_are_as_many_as_its_elements():
    nodes = [
        h.make_node("CenterCropPad", ["x", "four"], ["middle"], axes=[1]),
        h.make_node("LRN", ["middle"], ["y"], size=3, alpha=0.1),
    ]
    feeds = [{"x": draw(2, n, 3, 1)} for n in (4, 6, 3)]
    agree(model(nodes, [("x", F, ["n", "c", "h", "w"])], [("y", F, None)], {"four": np.array([4])}), *feeds)
