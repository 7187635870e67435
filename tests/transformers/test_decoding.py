"""Decoding with a key-value cache as state: values, rows of unlike length, no copy, no compiling on the way, a full cache."""

import re

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import BoundsError

HEADS, FEATURES = 3, 5
H, D, Q = ng.make_axis(HEADS, name="H"), ng.make_axis(FEATURES, name="D"), ng.make_axis(1, name="Q")


@pytest.fixture(autouse=True)
def open_lengths():
    with ng.config(lengths="open"):
        yield


def attended(q, keys, values):
    """Attention of one query [H, D] to the keys [H, S, D], in NumPy."""
    s = np.einsum("hd,hsd->hs", q, keys) / np.sqrt(q.shape[-1])
    s = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("hs,hsd->hd", s / s.sum(-1, keepdims=True), values)


def one_text(capacity):
    """A step of decoding one text: (the result and what is assigned, its placeholders, the caches of keys and values)."""
    S = ng.make_axis(capacity, name="S")
    at = ng.placeholder((), dtype="int32").named("at")
    q, k, v = (ng.placeholder([H, D]).named(name) for name in "qkv")
    caches = [ng.persistent_tensor([H, S, D]).named(f"cache_{name}") for name in "kv"]
    full = [ng.put(c, at, new, "S", mode="raise") for c, new in zip(caches, (k, v), strict=True)]
    keys, values = (f["S", : at + 1] for f in full)
    y = ng.attention(ng.expand_dims(q, Q), keys, values, features="D", queries="Q", keys="S")
    return [y["Q", 0], *map(ng.assign, caches, full)], [at, q, k, v], caches


def several_texts(capacity, slots):
    """The same for rows [N] of any number, each with the slot of its text and its position there."""
    S, B, N = ng.make_axis(capacity, name="S"), ng.make_axis(slots, name="B"), ng.make_axis(name="N")
    slot, at = (ng.placeholder([N], dtype="int32").named(name) for name in ("slot", "at"))
    q, k, v = (ng.placeholder([N, H, D]).named(name) for name in "qkv")
    caches = [ng.persistent_tensor([B, H, S, D]).named(f"cache_{name}") for name in "kv"]
    full = [ng.put(c, (slot, at), new, ("B", "S"), mode="raise") for c, new in zip(caches, (k, v), strict=True)]
    last = ng.max(at, reduction_axes="N") + 1
    keys, values = (ng.take(f["S", :last], slot, "B") for f in full)
    seen = ng.less_equal(ng.iota(keys.axes.find_axis("S")), at)
    y = ng.attention(ng.expand_dims(q, Q), keys, values, features="D", queries="Q", keys="S", mask=seen)
    return [ng.axes_with_order(y["Q", 0], [N, H, D]), *map(ng.assign, caches, full)], [slot, at, q, k, v], caches


def drawn(random, *shape):
    return random.standard_normal((3, *shape)).astype("f4")


@pytest.mark.parametrize("capacity", [1, 2, 7, 16, 37])
def test_every_position_to_a_full_cache(transformer, capacity):
    results, parameters, caches = one_text(capacity)
    f = transformer.computation(results, *parameters)
    random, kept = np.random.default_rng(0), np.zeros((2, HEADS, capacity, FEATURES), "f4")
    for at in range(capacity):
        q, k, v = drawn(random, HEADS, FEATURES)
        kept[:, :, at] = k, v
        np.testing.assert_allclose(f(at, q, k, v)[0], attended(q, *kept[:, :, : at + 1]), rtol=1e-4, atol=1e-6)
    for c, wanted in zip(caches, kept, strict=True):
        np.testing.assert_array_equal(transformer.get(c), wanted)
    with pytest.raises(BoundsError, match=f"index {capacity} is out of bounds of axis S, which has length {capacity}"):
        f(capacity, q, k, v)


def test_a_text_that_starts_again_reads_nothing_of_the_last_one(transformer):
    """What lies behind the used length is not read: it may be not a number at all."""
    results, parameters, caches = one_text(13)
    f = transformer.computation(results, *parameters)
    for c in caches:
        transformer.set(c, np.full((HEADS, 13, FEATURES), np.nan, "f4"))
    random, kept = np.random.default_rng(1), np.zeros((2, HEADS, 13, FEATURES), "f4")
    for at in range(9):
        q, k, v = drawn(random, HEADS, FEATURES)
        kept[:, :, at] = k, v
        np.testing.assert_allclose(f(at, q, k, v)[0], attended(q, *kept[:, :, : at + 1]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("capacity, slots", [(11, 4), (32, 7)])
def test_rows_that_come_and_go(transformer, capacity, slots):
    results, parameters, caches = several_texts(capacity, slots)
    f = transformer.computation(results, *parameters)
    random, kept = np.random.default_rng(2), np.zeros((2, slots, HEADS, capacity, FEATURES), "f4")
    used = np.zeros(slots, int)
    for step in range(60):
        rows = random.choice(slots, random.integers(1, slots + 1), replace=False).astype("i4")
        used[rows[used[rows] == capacity]] = 0  # another text has the slot from now on
        at = used[rows].astype("i4")
        q, k, v = drawn(random, len(rows), HEADS, FEATURES)
        kept[:, rows, :, at] = np.stack([k, v], 1)
        wanted = [attended(q[n], *kept[:, row, :, : at[n] + 1]) for n, row in enumerate(rows)]
        np.testing.assert_allclose(f(rows, at, q, k, v)[0], wanted, rtol=1e-4, atol=1e-6, err_msg=f"step {step}")
        used[rows] += 1
    for c, wanted in zip(caches, kept, strict=True):
        np.testing.assert_array_equal(transformer.get(c), wanted)
    with pytest.raises(BoundsError, match=f"index {capacity} is out of bounds of axis S, which has length {capacity}"):
        f(rows, at * 0 + capacity, q, k, v)
    with pytest.raises(BoundsError, match=f"index {slots} is out of bounds of axis B, which has length {slots}"):
        f(rows * 0 + slots, at, q, k, v)


def stores_and_reads(plan, name):
    """The accesses to the state `name` and to what it becomes: the text of each store and read."""
    before, after = re.search(rf'state "{name}" (%b\d+) becomes (%b\d+)', plan).groups()
    assert re.search(rf"buffer {after} .* state .*shares? {before}|buffer {after} .*{before}", plan) or before == after, plan
    lines = [line for line in plan.splitlines() if re.search(rf"(read|in) ({before}|{after})\[", line)]
    return [line for line in lines if line.startswith("store")], [line for line in lines if " read " in line]


def arguments(parameters, rows, at, random):
    """One for each: the slots 0, 1, …, the position `at` in each row, and draws."""
    made = {"slot": np.arange(rows), "at": np.full(rows if rows else (), at)}
    return [made[p.name] if p.name in made else drawn(random, *([rows] if rows else []), HEADS, FEATURES)[0] for p in parameters]


@pytest.mark.parametrize("make", [lambda: one_text(64), lambda: several_texts(64, 5)], ids=["one text", "several texts"])
def test_the_cache_is_neither_copied_nor_read_beyond_its_used_length(make):
    """The plan writes the new rows alone, into the old array, and no stage walks the whole axis S; there is one version for all calls."""
    results, parameters, _ = make()
    random, several = np.random.default_rng(3), len(parameters) == 5
    with ngt.allocate_transformer("cpu") as t:
        f = t.computation(results, *parameters)
        for at in range(12):
            f(*arguments(parameters, at % 4 + 1 if several else 0, at, random))
        for name in ("cache_k", "cache_v"):
            stores, reads = stores_and_reads(f.plan, name)
            assert len(stores) == 1 and "S: Idx(S)" not in stores[0], stores
            assert reads and all("S: Idx(S.2)" in line for line in reads), reads
        assert f.memory["arena"] < 64 * HEADS * FEATURES * 4  # bytes of one cache
        assert len(f.executable.native.codes) == 1


def test_a_part_of_the_cache_is_a_copy_where_it_leaves_the_program(transformer):
    """A result is the caller's: the next step does not write into it."""
    results, parameters, caches = one_text(9)
    keys = results[1].inputs[1]["S", : parameters[0] + 1]
    f = transformer.computation([keys, *results], *parameters)
    random = np.random.default_rng(4)
    first = f(*arguments(parameters, 0, 0, random))[0]
    before = first.copy()
    for at in (0, 1, 2):
        assert f(*arguments(parameters, 0, at, random))[0].shape == (HEADS, at + 1, FEATURES)
    np.testing.assert_array_equal(first, before)


def decoder(model, capacity):
    """A step of a GPT-2 of transformers, of the token at a position: ([scores, what is assigned …], placeholders)."""
    c = model.config
    E, V, P = (ng.make_axis(n, name=name) for n, name in ((c.n_embd, "E"), (c.vocab_size, "V"), (c.n_positions, "P")))
    heads, M, S = (ng.make_axis(n, name=name) for n, name in ((c.n_head, "H"), (4 * c.n_embd, "M"), (capacity, "S")))
    F = ng.make_axis(c.n_embd // c.n_head, name="F")
    weights = {name: w.detach().numpy() for name, w in model.state_dict().items()}

    def var(name, *axes):
        return ng.variable(axes, initial_value=weights[f"transformer.{name}"].reshape([a.length for a in axes])).named(name)

    def norm(x, name):
        apart = x - ng.mean(x, reduction_axes=E)
        scaled = apart / ng.sqrt(ng.mean(ng.square(apart), reduction_axes=E) + c.layer_norm_epsilon)
        return scaled * var(f"{name}.weight", E) + var(f"{name}.bias", E)

    three = ng.make_axis(3, name="three")
    token, at = ng.placeholder((), dtype="int32"), ng.placeholder((), dtype="int32")
    table, kept = var("wte.weight", V, E), []
    x = ng.take(table, token, "V", mode="raise") + ng.take(var("wpe.weight", P, E), at, "P", mode="raise")
    for layer in (f"h.{k}" for k in range(c.n_layer)):
        w, b = var(f"{layer}.attn.c_attn.weight", E, three, heads, F), var(f"{layer}.attn.c_attn.bias", three, heads, F)
        qkv = ng.einsum("E, E three H F -> three H F", norm(x, f"{layer}.ln_1"), w) + b
        used = []
        for k in (1, 2):
            cache = ng.persistent_tensor([heads, S, F]).named(f"{layer}.{k}")
            full = ng.put(cache, at, qkv["three", k], "S", mode="raise")
            kept.append(ng.assign(cache, full))
            used.append(full["S", : at + 1])
        looked = ng.attention(ng.expand_dims(qkv["three", 0], Q), *used, features="F", queries="Q", keys="S")["Q", 0]
        out = ng.einsum("H F, H F E -> E", looked, var(f"{layer}.attn.c_proj.weight", heads, F, E))
        x = x + out + var(f"{layer}.attn.c_proj.bias", E)
        inner = ng.einsum("E, E M -> M", norm(x, f"{layer}.ln_2"), var(f"{layer}.mlp.c_fc.weight", E, M)) + var(f"{layer}.mlp.c_fc.bias", M)
        inner = 0.5 * inner * (1 + ng.tanh(np.sqrt(2 / np.pi).item() * (inner + 0.044715 * inner**3)))
        x = x + ng.einsum("M, M E -> E", inner, var(f"{layer}.mlp.c_proj.weight", M, E)) + var(f"{layer}.mlp.c_proj.bias", E)
    return [ng.einsum("E, V E -> V", norm(x, "ln_f"), table), *kept], [token, at]


def test_gpt2_decodes_as_in_pytorch(transformer):
    """Random weights, every position up to a full cache, beside transformers with its own cache; then the text again from its start."""
    torch = pytest.importorskip("torch")
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=61, n_positions=24, n_embd=36, n_layer=2, n_head=3, initializer_range=0.3)
    model = GPT2LMHeadModel(config).eval()
    results, parameters = decoder(model, 23)
    f = transformer.computation(results, *parameters)
    tokens = np.random.default_rng(0).integers(0, 61, 23)
    past, wanted = None, []
    with torch.no_grad():
        for token in tokens:
            made = model(torch.tensor([[token]]), past_key_values=past, use_cache=True)
            past = made.past_key_values
            wanted.append(made.logits[0, 0].numpy())
    for _ in range(2):
        for at, token in enumerate(tokens):
            np.testing.assert_allclose(f(token, at)[0], wanted[at], rtol=1e-3, atol=1e-4, err_msg=f"position {at}")
    with pytest.raises(BoundsError, match="index 23 is out of bounds of axis S, which has length 23"):
        f(0, 23)


def test_gpt2_decodes_512_tokens_without_a_copy_and_with_one_compilation(monkeypatch):
    """From an empty to a full cache: one version, the arrays of the caches stay where they are, and the plan stores one row into each."""
    torch = pytest.importorskip("torch")
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=61, n_positions=512, n_embd=24, n_layer=2, n_head=3, initializer_range=0.3)).eval()
    results, parameters = decoder(model, 512)
    tokens = np.random.default_rng(1).integers(0, 61, 512)
    with torch.no_grad():
        wanted = model(torch.tensor(tokens[None])).logits[0].numpy()
    with ngt.allocate_transformer("cpu") as t:
        f = t.computation(results, *parameters)
        f(tokens[0], 0)
        compiled = t.compilations()
        caches = [v for v in t.state.arrays if v.name.startswith("h.") and v.name[-1] in "12" and len(v.axes) == 3]
        assert len(caches) == 4
        before = [t.state.arrays[v].ctypes.data for v in caches]
        for at, token in enumerate(tokens):
            np.testing.assert_allclose(f(token, at)[0], wanted[at], rtol=2e-3, atol=2e-4, err_msg=f"position {at}")
        assert t.compilations() == compiled and len(f.executable.native.codes) == 1
        assert [t.state.arrays[v].ctypes.data for v in caches] == before
        for name in ("h.0.1", "h.1.2"):
            stores, _ = stores_and_reads(f.plan, name)
            assert len(stores) == 1 and "S: Idx(S)" not in stores[0], stores
        assert f.memory["arena"] < 512 * 24 * 4  # bytes of one cache
