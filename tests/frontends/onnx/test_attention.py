"""com.microsoft's attention gives what ONNX Runtime gives: masks of every form, caches, rotary angles, grouped queries."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import helper as h  # noqa: E402
from runtimes import FUSED, agree, model  # noqa: E402

import ngraph as ng  # noqa: E402

draw = np.random.default_rng(8)


def f(*shape):
    return draw.normal(size=shape).astype("f4")


def node(op, inputs, outputs=("y",), **attrs):
    return h.make_node(op, ["" if i == "_" else i for i in inputs.split()], list(outputs), domain=FUSED, **attrs)


B, S, HEADS, WIDTH = 2, 5, 4, 16
HIDDEN = HEADS * WIDTH
WEIGHTS = {"w": f(HIDDEN, 3 * HIDDEN) * 0.3, "b": f(3 * HIDDEN)}


@pytest.mark.parametrize(
    "mask",
    [
        None,
        np.array([3, 5], "i4"),
        np.array([4, 5, 1, 0], "i4"),
        np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "i4"),
        np.tril(np.ones((B, S, S), "i4")),
    ],
    ids=["none", "lengths", "ends-and-starts", "keys", "queries-and-keys"],
)
def test_attention_with_masks(mask):
    x = {"x": f(B, S, HIDDEN)} | ({} if mask is None else {"m": mask})
    for causal in (0, 1):
        made = node("Attention", "x w b" + (" m" if mask is not None else ""), num_heads=HEADS, unidirectional=causal)
        agree(made, x, constants=WEIGHTS)


def test_attention_with_a_past_and_a_bias_of_scores():
    x, past = f(B, S, HIDDEN), f(2, B, HEADS, 3, WIDTH)
    made = node("Attention", "x w b _ past", ["y", "present"], num_heads=HEADS, unidirectional=1)
    agree(made, {"x": x, "past": past}, ["y", "present"], WEIGHTS)
    agree(node("Attention", "x w b _ _ more", num_heads=HEADS, scale=0.2), {"x": x, "more": f(B, HEADS, S, S)}, constants=WEIGHTS)
    sizes = [HIDDEN, HIDDEN, 2 * HIDDEN]
    held = {"w": f(HIDDEN, 4 * HIDDEN) * 0.3, "b": f(4 * HIDDEN)}
    agree(node("Attention", "x w b", num_heads=HEADS, qkv_hidden_sizes=sizes), {"x": x}, constants=held)


def test_attention_of_integers():
    x = draw.integers(0, 256, (B, S, HIDDEN)).astype("u1")
    w = draw.integers(-64, 65, (HIDDEN, 3 * HIDDEN)).astype("i1")  # ONNX Runtime adds two products in 16 bits where there is no VNNI
    held = {"w": w, "b": f(3 * HIDDEN)}
    held |= {"sx": np.float32(0.02), "sw": np.float32(0.01), "zx": np.uint8(128), "zw": np.int8(0)}
    agree(node("QAttention", "x w b sx sw _ zx zw", num_heads=HEADS), {"x": x}, constants=held, rtol=1e-3, atol=1e-3)


def test_multi_head_attention():
    q, k, v, b = f(B, S, HIDDEN), f(B, 7, HIDDEN), f(B, 7, HIDDEN), f(3 * HIDDEN)
    agree(node("MultiHeadAttention", "q k v", num_heads=HEADS), {"q": q, "k": k, "v": v})
    agree(node("MultiHeadAttention", "q k v b", num_heads=HEADS), {"q": q, "k": k, "v": v}, constants={"b": b})
    mask = (np.arange(7) < np.array([[4], [7]])).astype("i4")
    agree(node("MultiHeadAttention", "q k v b m", num_heads=HEADS), {"q": q, "k": k, "v": v, "m": mask}, constants={"b": b})
    agree(node("MultiHeadAttention", "q k v _ _ more", num_heads=HEADS), {"q": q, "k": k, "v": v, "more": f(1, HEADS, S, 7)})
    agree(node("MultiHeadAttention", "q k v", num_heads=HEADS, unidirectional=1), {"q": q, "k": q * 0.5, "v": q + 1})
    heads = {"q": q, "k": f(B, HEADS, 7, WIDTH), "v": f(B, HEADS, 7, WIDTH)}
    agree(node("MultiHeadAttention", "q k v", num_heads=HEADS), heads)
    past = {"pk": f(B, HEADS, 3, WIDTH), "pv": f(B, HEADS, 3, WIDTH)}
    made = node("MultiHeadAttention", "q k v b _ _ pk pv", ["y", "nk", "nv"], num_heads=HEADS)
    agree(made, {"q": q, "k": q + 1, "v": q - 1, **past}, ["y", "nk", "nv"], {"b": b})


def test_multi_head_attention_of_what_came_before_where_queries_and_keys_are_not_as_many():
    for queries, keys in ((2, 4), (1, 3), (4, 2)):
        feeds = {"q": f(B, queries, HIDDEN), "k": f(B, keys, HIDDEN), "v": f(B, keys, HIDDEN)}
        agree(node("MultiHeadAttention", "q k v", num_heads=HEADS, unidirectional=1), feeds)
        feeds |= {"pk": f(B, HEADS, 3, WIDTH), "pv": f(B, HEADS, 3, WIDTH)}
        made = node("MultiHeadAttention", "q k v _ _ _ pk pv", ["y", "nk", "nv"], num_heads=HEADS, unidirectional=1)
        agree(made, feeds, ["y", "nk", "nv"])


def test_a_mask_of_lengths_with_the_places_where_rows_begin():
    feeds = {"q": f(B, S, HIDDEN), "k": f(B, 7, HIDDEN), "v": f(B, 7, HIDDEN)}
    mask = np.concatenate([[4, 7], np.arange(B + 1) * S, np.arange(B + 1) * 7]).astype("i4")
    agree(node("MultiHeadAttention", "q k v _ m", num_heads=HEADS), {**feeds, "m": mask})


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved):
    angles = np.arange(12)[:, None] / 10000 ** (np.arange(WIDTH // 2) / (WIDTH // 2))
    held = {"c": np.cos(angles).astype("f4"), "s": np.sin(angles).astype("f4")}
    for x in (f(B, S, HIDDEN), f(B, HEADS, S, WIDTH)):
        for at in (np.array([3], "i8"), draw.integers(0, 12, (B, S))):
            agree(node("RotaryEmbedding", "x p c s", interleaved=interleaved), {"x": x, "p": at}, constants=held)
    part = {"c": held["c"][:, :2], "s": held["s"][:, :2]}
    made = node("RotaryEmbedding", "x p c s", interleaved=interleaved, num_heads=HEADS, rotary_embedding_dim=4)
    agree(made, {"x": f(B, S, HIDDEN), "p": np.array([0], "i8")}, constants=part)


def angles(n=32):
    a = np.arange(n)[:, None] / 10000 ** (np.arange(WIDTH // 2) / (WIDTH // 2))
    return {"c": np.cos(a).astype("f4"), "s": np.sin(a).astype("f4")}


@pytest.mark.parametrize(
    "attrs", [{}, {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1}, {"local_window_size": 3}, {"softcap": 2.0}], ids=str
)
def test_grouped_queries(attrs):
    """A sentence from its start, then word by word: into a cache that grows, and into one that is large enough."""
    fewer = 2
    inputs = "q k v pk pv n t" + (" c s" if "do_rotary" in attrs else "")
    made = node("GroupQueryAttention", inputs, ["y", "nk", "nv"], num_heads=HEADS, kv_num_heads=fewer, **attrs)
    held = angles() if "do_rotary" in attrs else {}

    def feeds(batch, now, room, lengths, total):
        q, k, v = f(batch, now, HIDDEN), f(batch, now, fewer * WIDTH), f(batch, now, fewer * WIDTH)
        past = {"pk": f(batch, fewer, room, WIDTH), "pv": f(batch, fewer, room, WIDTH)}
        return {"q": q, "k": k, "v": v, **past, "n": np.array(lengths, "i4"), "t": np.array(total, "i4")}

    outputs = ["y", "nk", "nv"]
    agree(made, feeds(B, S, 0, [S - 1] * B, S), outputs, held)
    agree(made, feeds(1, 1, 6, [6], 7), outputs, held)
    agree(made, feeds(B, 1, 6, [6, 6], 7), outputs, held)
    got = feeds(B, 1, 9, [3, 6], 7)
    got["pk"][0, :, 3:], got["pv"][0, :, 3:], got["pk"][1, :, 6:], got["pv"][1, :, 6:] = 0, 0, 0, 0
    agree(made, got, ["y"], held)


def test_grouped_queries_in_one_input():
    fewer = 2
    made = node("GroupQueryAttention", "q _ _ _ _ n t", num_heads=HEADS, kv_num_heads=fewer)
    x = {"q": f(B, S, (HEADS + 2 * fewer) * WIDTH), "n": np.array([S - 1] * B, "i4"), "t": np.array(S, "i4")}
    agree(made, x)


def test_words_added_one_by_one_are_read_once():
    """The number of keys comes with the call, and is only compared: a longer sentence needs no new reading."""
    made = node("GroupQueryAttention", "q k v pk pv n t", ["y", "nk", "nv"], num_heads=HEADS, kv_num_heads=2)
    q, k, v = (f(1, 1, n * WIDTH) for n in (HEADS, 2, 2))
    first = {"q": q, "k": k, "v": v, "pk": f(1, 2, 4, WIDTH), "pv": f(1, 2, 4, WIDTH), "n": np.array([4], "i4"), "t": np.array(5, "i4")}
    proto = model([made], first, ["y", "nk", "nv"])
    for i in proto.graph.input:
        if i.name in ("pk", "pv"):
            i.type.tensor_type.shape.dim[2].dim_param = "P"
    m = ng.onnx.load(proto)
    feeds = dict(first)
    for step in range(4):
        found = m.run(feeds)
        feeds = {**feeds, "pk": found["nk"], "pv": found["nv"], "n": np.array([5 + step], "i4"), "t": np.array(6 + step, "i4")}
        assert found["nk"].shape == (1, 2, 5 + step, WIDTH)
    assert m.readings == 1
