"""SavedModels as users have them, written here by TensorFlow and run without it: its answers for several batch sizes."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError, GraphError

tf = pytest.importorskip("tensorflow", reason="TensorFlow has an environment of its own: make bridge-tests")

keras = tf.keras
L = keras.layers
F = tf.float32


@pytest.fixture(autouse=True)
def without(bridge):
    bridge.disable()


@pytest.fixture(scope="module")
def transformer():
    with ngt.make_transformer_factory("direct")() as made:
        yield made


class Numbers:
    """Draws inputs for a batch."""

    def __init__(self, seed=0):
        self.r = np.random.default_rng(seed)

    def __call__(self, spec, batch):
        shape = [batch if s is None else s for s in spec.shape]
        if spec.dtype == tf.string:
            return np.array(self.r.choice([b"a", b"b b", b"C a", b"zz"], shape), object)
        if spec.dtype.is_integer:
            return self.r.integers(0, 5, shape).astype(spec.dtype.as_numpy_dtype)
        return self.r.normal(size=shape).astype(spec.dtype.as_numpy_dtype)


class Wrapped(tf.Module):
    """A function with what it needs, so that both are saved."""

    def __init__(self, function, specs, *kept):
        super().__init__()
        self.kept = kept
        self.call = tf.function(lambda **given: named(function(**given)), input_signature=None)
        self.concrete = self.call.get_concrete_function(**{k: tf.TensorSpec(s.shape, s.dtype, k) for k, s in specs.items()})


def named(results):
    """Results by name, as signatures have them."""
    if isinstance(results, dict):
        return results
    return {f"y{k}": v for k, v in enumerate(tf.nest.flatten(results))}


def compared(function, specs, folder, transformer, *kept, batches=(1, 2, 7), rtol=2e-5):
    """Saves a function and compares its answers."""
    module = Wrapped(function, specs, *kept)
    tf.saved_model.save(module, str(folder), signatures=module.concrete)
    model = ng.tensorflow.load(str(folder), transformer)
    for batch in batches:
        draw = Numbers(batch)
        feeds = {k: draw(s, batch) for k, s in specs.items()}
        wanted = module.call(**{k: tf.constant(v) for k, v in feeds.items()})
        names = sorted(wanted)
        for name, y in zip(names, model.run(names, feeds), strict=True):
            z = wanted[name].numpy()
            assert y.dtype == z.dtype and y.shape == z.shape, (name, y.dtype, y.shape, z.dtype, z.shape)
            if z.dtype.kind in "fc":
                np.testing.assert_allclose(y, z, rtol, rtol * max(1, np.abs(z).max(initial=0)), err_msg=f"{name}, batch {batch}")
            else:
                np.testing.assert_array_equal(y, z)


def spec(*shape, dtype=F):
    return tf.TensorSpec(shape, dtype)


# ---- functions ----------------------------------------------------------------------------------------------------------


def collatz(n):
    """How many steps each number takes, with a loop whose turns depend on the values, and a TensorArray."""

    def one(k):
        def turn(k, steps):
            return tf.cond(k % 2 == 0, lambda: k // 2, lambda: 3 * k + 1), steps + 1

        return tf.while_loop(lambda k, steps: k > 1, turn, [k, 0])[1]

    return tf.map_fn(one, n + 1)


def summed(x):
    """Sums of rows up to each one, gathered in a TensorArray that is read as well."""
    found = tf.TensorArray(F, tf.shape(x)[1], clear_after_read=False, element_shape=[None])
    found = found.write(0, x[:, 0])
    found = tf.while_loop(lambda k, a: k < tf.shape(x)[1], lambda k, a: (k + 1, a.write(k, a.read(k - 1) + x[:, k])), [1, found])[1]
    return tf.transpose(found.stack())


def nested(x):
    """Conditions within conditions, and a switch."""
    total = tf.reduce_sum(x)
    inner = tf.cond(
        total > 0, lambda: tf.cond(total > 3, lambda: x * 3, lambda: x + 1), lambda: tf.cond(total < -3, lambda: -x, lambda: x / 2)
    )
    way = tf.cast(tf.abs(total), tf.int32) % 4
    return inner, tf.switch_case(way, {0: lambda: x, 1: lambda: tf.sin(x), 2: lambda: tf.cos(x)}, default=lambda: tf.exp(-x * x))


def bag(i, w):
    """Embeddings, summed, averaged, and by the largest, of which index 0 does not count."""
    table = tf.constant(np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32))
    rows = tf.nn.embedding_lookup(table, i)
    used = tf.cast(i > 0, F)[..., None]
    mean = tf.math.divide_no_nan(tf.reduce_sum(rows * used, 1), tf.reduce_sum(used, 1))
    return tf.reduce_sum(rows * w[..., None], 1), mean, tf.reduce_max(rows, 1)


def linear(x):
    a = tf.matmul(x, x, transpose_b=True) + 4 * tf.eye(4)
    factor = tf.linalg.cholesky(a)
    sides = x[..., :2]
    return {
        "factor": factor, "det": tf.linalg.det(a), "log": tf.linalg.logdet(a), "inv": tf.linalg.inv(a), "solved": tf.linalg.solve(a, sides),
        "by": tf.linalg.cholesky_solve(factor, sides), "trace": tf.linalg.trace(a), "norm": tf.linalg.norm(x, axis=[-2, -1]),
        "part": tf.linalg.band_part(a, 1, 0), "set": tf.linalg.set_diag(a, tf.linalg.diag_part(x)), "adjoint": tf.linalg.adjoint(x),
        "bands": tf.linalg.diag_part(a, k=(-1, 1)), "triangle": tf.linalg.triangular_solve(factor, sides, adjoint=True),
    }  # fmt: skip


def examples(s):
    """Messages that are built from the strings are not drawn: these parse a fixed pair, once for each string."""
    features = {"a": tf.io.FixedLenFeature([2], F), "b": tf.io.FixedLenFeature([], tf.int64, 7)}
    made = tf.train.Example(features=tf.train.Features(feature={"a": tf.train.Feature(float_list=tf.train.FloatList(value=[1, 2]))}))
    parsed = tf.io.parse_example(tf.fill(tf.shape(s), made.SerializeToString()), features)
    return parsed["a"], parsed["b"]


def sound(x):
    """Spectra, the coefficients that recognisers of speech take, and the sound back."""
    spectrum = tf.signal.stft(x, 64, 16)
    mel = tf.signal.linear_to_mel_weight_matrix(12, 33, 8000, 80.0, 3600.0)
    cepstrum = tf.signal.mfccs_from_log_mel_spectrograms(tf.math.log(tf.abs(spectrum) @ mel + 1e-3))
    kept = spectrum * tf.cast(tf.abs(spectrum) > 1.0, tf.complex64)
    back = tf.signal.inverse_stft(kept, 64, 16, window_fn=tf.signal.inverse_stft_window_fn(16))
    return {"spectrum": spectrum, "cepstrum": cepstrum, "back": back}


def shifted(x):
    """Complex numbers through the ops that move them."""
    z = tf.signal.fftshift(tf.signal.fft2d(tf.cast(x, tf.complex64)), axes=(1, 2))
    y = tf.signal.ifft2d(tf.signal.ifftshift(z * tf.math.conj(z) / 7.0, axes=(1, 2)))
    parts = tf.stack([y, -z], 1)[:, :, 1:, ::2]
    return {
        "parts": tf.concat([parts, tf.exp(1j * tf.math.conj(parts) / 50.0)], 1),
        "sum": tf.reduce_sum(z, [1, 2]),
        "by": tf.linalg.matmul(z, y, adjoint_b=True),
    }


def found_boxes(b, s):
    """Boxes of each image in a loop, as detectors have them, and what lies in them."""

    def one(given):
        i = tf.image.non_max_suppression(given[0], given[1], 3, 0.5, -1.0)
        i = tf.concat([i, tf.zeros([3 - tf.size(i)], tf.int32)], 0)
        return tf.gather(given[0], i), tf.gather(given[1], i)

    boxes, scores = tf.map_fn(one, (b, s), fn_output_signature=(F, F))
    image = tf.reshape(tf.range(108.0), [1, 6, 6, 3])
    return boxes, scores, tf.image.crop_and_resize(image, boxes[:, 0], tf.zeros(tf.shape(b)[:1], tf.int32), [2, 3])


def words(s):
    """Each string by itself in a loop, split, counted and made numbers; strings that a loop gives."""
    many = tf.map_fn(lambda w: tf.strings.length(w) + tf.size(tf.strings.split(w)), s, fn_output_signature=tf.int32)
    upper = tf.map_fn(tf.strings.upper, s)
    return many, upper, tf.strings.to_hash_bucket_fast(tf.strings.split(s).to_tensor(b"-", shape=[None, 3]), 50)


def growing(x):
    """An array that grows in a loop over a range, and one that a loop leaves early."""
    rows, few = tf.TensorArray(F, 0, True), tf.TensorArray(F, 0, True)
    rows = tf.while_loop(lambda k, a: k < tf.shape(x)[0], lambda k, a: (k + 1, a.write(k, tf.reduce_max(x[: k + 1], 0))), [0, rows])[1]
    few = tf.while_loop(
        lambda k, a: k < tf.minimum(tf.shape(x)[0], 2), lambda k, a: (k + 1, a.write(k, x[k] * 2)), [0, few], maximum_iterations=5
    )[1]
    return rows.stack(), few.stack()


def lookups(i, w):
    """Sparse rows of a table, their mean, and a partition of them."""
    table = tf.constant(np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32))
    sparse = tf.sparse.from_dense(i + 0)
    weights = tf.SparseTensor(sparse.indices, tf.gather_nd(w, sparse.indices), sparse.dense_shape)
    found = tf.nn.safe_embedding_lookup_sparse(table, tf.cast(sparse, tf.int64), weights, "mean")
    first, second = tf.dynamic_partition(w, tf.cast(w[:, 0] > 0, tf.int32), 2)
    return found, first, second, tf.sparse.to_dense(weights), tf.math.bincount(i, minlength=5, maxlength=5, axis=-1)


def transcribed(x):
    many = tf.shape(x)[:1]
    return tf.nn.ctc_loss(tf.tile([[1, 2, 0]], [many[0], 1]), x, tf.fill(many, 2), tf.fill(many, 6), False, blank_index=0)


def decomposed(x):
    a = tf.matmul(x, x, transpose_b=True) + tf.linalg.diag(tf.range(1.0, 5.0))
    (values, vectors), (q, r), (s, u, v) = tf.linalg.eigh(a), tf.linalg.qr(x), tf.linalg.svd(x)
    return {
        "values": values, "again": vectors @ tf.linalg.diag(values) @ tf.linalg.matrix_transpose(vectors), "qr": q @ r, "s": s,
        "usv": u @ tf.linalg.diag(s) @ tf.linalg.matrix_transpose(v), "lu": tf.linalg.lu(a)[0], "log": tf.linalg.slogdet(a)[1],
        "least": tf.linalg.lstsq(a, x), "cross": tf.linalg.cross(x[..., :3], x[..., 1:]), "exp": tf.linalg.expm(a / 9),
    }  # fmt: skip


def rows(x, n):
    """Rows of different lengths within a function: sums, joins, and rows by their numbers."""
    ragged = tf.RaggedTensor.from_tensor(x, lengths=n)
    both = tf.concat([ragged * 2.0, ragged], 1)
    return {
        "sum": tf.reduce_sum(ragged, 1), "mean": tf.reduce_mean(both, 1), "both": both.to_tensor(-1.0), "flat": tf.exp(ragged.flat_values),
        "chosen": tf.gather(ragged, tf.argsort(n)).to_tensor(),
    }  # fmt: skip


def turns(x):
    """An array that a loop over rows fills, of which there may be none."""
    found = tf.TensorArray(F, tf.shape(x)[0])
    found = tf.while_loop(lambda k, a: k < tf.shape(x)[0], lambda k, a: (k + 1, a.write(k, tf.reduce_sum(x[k]) * x[k])), [0, found])[1]
    return tf.ensure_shape(found.stack(), [None, 3])


def until(x):
    """A loop that ends by its values too: over no rows it has no turn, whatever these say."""
    found = tf.TensorArray(F, tf.shape(x)[0])
    start = [0, tf.zeros([3]), found]
    going = lambda k, h, a: tf.logical_and(k < tf.shape(x)[0], tf.reduce_max(h) < 1.5)
    k, h, found = tf.while_loop(going, lambda k, h, a: (k + 1, tf.tanh(h) + x[k], a.write(k, x[k])), start)
    return k, h, found.stack()


def chosen_rows(x):
    """An array in which some turns set nothing; the first one that does says the shape."""
    found = tf.TensorArray(F, 0, dynamic_size=True, element_shape=[None])
    many = 0
    for row in x:
        if tf.reduce_sum(row) > 0.0:
            found = found.write(many, row * 2.0)
            many += 1
    return tf.concat([x[:1], found.stack() if many > 0 else x[:0]], 0), many


def bent(x):
    """The derivative of branches within a branch, whose ways keep unlike values for it."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        inner = lambda z: tf.cond(tf.reduce_max(x) > 1.5, lambda: tf.reduce_sum(tf.exp(-z), 1), lambda: tf.reduce_prod(tf.tanh(z), 1))
        y = tf.cond(tf.reduce_sum(x) > 0, lambda: tf.reduce_sum(tf.tanh(x) ** 2, 1), lambda: inner(tf.concat([x, x], 1)))
        y = tf.reduce_sum(y * y)
    return tape.gradient(y, x), y


def bent_in_turns(x, turns):
    """The derivative of a loop with branches in its turns."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        h = x
        for _ in tf.range(turns):
            if tf.reduce_sum(h) > 0:
                h = tf.tanh(h) - 0.1 if tf.reduce_max(h) > 0.9 else tf.sin(h)
            else:
                h = h * 1.05 + 0.1
        y = tf.reduce_sum(h**2)
    return tape.gradient(y, x)


def loops_in_turns(x):
    """The derivative of loops within a loop, which run once more in each of its turns."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        h = x
        for k in tf.range(10):
            for j in tf.range(k + 1):
                h = tf.tanh(h) + x * 0.1 * tf.cast(j, F)
            for _ in tf.range(12):
                h = tf.sin(h)
        y = tf.reduce_sum(h**2)
    return tape.gradient(y, x)


def complex_quotients(x):
    a, b = tf.complex(x, x[:, ::-1]), tf.complex(tf.nn.relu(x), tf.zeros_like(x))
    return tf.math.divide_no_nan(a, b), tf.sign(a), tf.sign(b), tf.equal(a, b), tf.not_equal(b, b)


RESIZING = "bilinear nearest bicubic area lanczos3 lanczos5 gaussian mitchellcubic".split()
FUNCTIONS = {
    "while": (collatz, {"n": spec(None, dtype=tf.int32)}),
    "array": (summed, {"x": spec(None, 6)}),
    "conditions": (nested, {"x": spec(None, 3)}),
    "map": (lambda x: tf.map_fn(lambda row: tf.cumsum(tf.nn.softmax(row))[::-1], x), {"x": spec(None, 5)}),
    "scan": (lambda x: tf.scan(lambda a, row: 0.5 * a + row, x), {"x": spec(None, 5)}),
    "bag": (bag, {"i": spec(None, 6, dtype=tf.int32), "w": spec(None, 6)}),
    "linalg": (linear, {"x": spec(None, 4, 4)}),
    "examples": (examples, {"s": spec(None, dtype=tf.string)}),
    "strings": (lambda s: tf.strings.to_hash_bucket_fast(tf.strings.lower(s), 9), {"s": spec(None, dtype=tf.string)}),
    **{f"resize {m}": (lambda x, m=m: tf.image.resize(x, [5, 9], m), {"x": spec(None, 7, 6, 2)}) for m in RESIZING},
    "antialias": (lambda x: tf.image.resize(x, [3, 4], "bilinear", antialias=True), {"x": spec(None, 7, 6, 2)}),
    "crops": (lambda x: (tf.image.central_crop(x, 0.5), tf.image.resize_with_pad(x, 9, 9), x[:, :, ::-1]), {"x": spec(None, 8, 6, 3)}),
    "frames": (lambda x: tf.signal.frame(x, 9, 4, pad_end=True) * tf.signal.hann_window(9), {"x": spec(None, 50)}),
    "sound": (sound, {"x": spec(None, 320)}),
    "complex": (shifted, {"x": spec(None, 6, 5)}),
    "boxes": (found_boxes, {"b": spec(None, 7, 4), "s": spec(None, 7)}),
    "words": (words, {"s": spec(None, dtype=tf.string)}),
    "growing": (growing, {"x": spec(None, 3)}),
    "lookups": (lookups, {"i": spec(None, 4, dtype=tf.int32), "w": spec(None, 4)}),
    "decomposed": (decomposed, {"x": spec(None, 4, 4)}),
    "rows": (rows, {"x": spec(None, 6), "n": spec(None, dtype=tf.int32)}),
    "ctc": (transcribed, {"x": spec(None, 6, 5)}),
    "derivative of branches": (bent, {"x": spec(None, 40)}),
    "derivative of branches that few numbers decide": (bent, {"x": spec(None, 2)}),
    "derivative of branches in a few turns": (lambda x: bent_in_turns(x, 3), {"x": spec(None, 4)}),
    "derivative of branches in turns": (lambda x: bent_in_turns(x, 12), {"x": spec(None, 4)}),
    "derivative of branches in turns over many": (lambda x: bent_in_turns(x, 12), {"x": spec(None, 40)}),
    "derivative of loops in turns": (loops_in_turns, {"x": spec(None, 3)}),
    "complex quotients": (complex_quotients, {"x": spec(None, 6)}),
    "tops": (lambda x: (*tf.math.top_k(x, 3), tf.argsort(x, direction="DESCENDING"), tf.sort(x)), {"x": spec(None, 7)}),
}  # fmt: skip


def test_a_loop_of_no_turns_leaves_an_array_empty(transformer, tmp_path):
    compared(turns, {"x": spec(None, 3)}, tmp_path / "model", transformer, batches=(0, 2, 0, 5))


@pytest.mark.parametrize("function", [until, chosen_rows])
def test_loops_that_values_end(function, transformer, tmp_path):
    compared(function, {"x": spec(None, 3)}, tmp_path / "model", transformer, batches=(0, 3, 1, 7, 12))


def unlike(h, w, k):
    """A branch whose ways keep values of other shapes for their derivative."""
    return tf.cond(k % 2 == 0, lambda: tf.tanh(tf.linalg.matvec(w, h)), lambda: h * w[k])


def inner_loop(h, w, k):
    return tf.while_loop(
        lambda j, h: j < 1 + k, lambda j, h: (j + 1, tf.cond(h[0] > 0.1, lambda: tf.sin(h) * w[0], lambda: unlike(h, w, j))), [0, h]
    )[1]


@pytest.mark.parametrize("turn", [unlike, inner_loop])
def test_second_derivatives_of_branches_in_loops(turn, transformer, tmp_path):
    def both(x, w):
        with tf.GradientTape() as outer:
            outer.watch([x, w])
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.reduce_sum(tf.while_loop(lambda k, h: k < 3, lambda k, h: (k + 1, turn(h, w, k)), [0, x])[1] ** 2)
            first = inner.gradient(y, x)
            z = tf.reduce_sum(first * first + first)
        return first, *outer.gradient(z, [x, w])

    compared(both, {"x": spec(3), "w": spec(3, 3)}, tmp_path, transformer, batches=(1, 2), rtol=1e-4)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, transformer, tmp_path):
    function, specs = FUNCTIONS[name]
    compared(function, specs, tmp_path / "model", transformer)


# ---- Keras --------------------------------------------------------------------------------------------------------------


def several():
    """Two inputs, three outputs, a shared layer."""
    a, b = L.Input((4,), name="a"), L.Input((6, 4), name="b")
    shared = L.Dense(5, "tanh")
    x, y = shared(a), L.GlobalMaxPooling1D()(shared(b))
    return keras.Model([a, b], {"sum": L.Add()([x, y]), "both": L.Concatenate()([x, y]), "one": L.Dense(1, "sigmoid")(x)})


def normalising():
    layer = L.Normalization()
    layer.adapt(np.random.default_rng(0).normal(3, 2, (50, 4)).astype(np.float32))
    given = L.Input((4,))
    return keras.Model(given, L.Dense(3)(layer(given)))


KERAS = {"several": several, "normalising": normalising}


@pytest.mark.parametrize("name", KERAS)
def test_keras_exports(name, transformer, tmp_path):
    keras.utils.set_random_seed(1)
    made = KERAS[name]()
    made.export(str(tmp_path / "model"), verbose=False)
    model = ng.tensorflow.load(str(tmp_path / "model"), transformer)
    served = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    for batch in (1, 2, 7):
        draw = Numbers(batch)
        feeds = {k: draw(s, batch) for k, s in served.structured_input_signature[1].items()}
        wanted = served(**{k: tf.constant(v) for k, v in feeds.items()})
        names = sorted(wanted)
        for key, y in zip(names, model.run(names, feeds), strict=True):
            np.testing.assert_allclose(y, wanted[key], 2e-5, 2e-5, err_msg=key)


def test_words_become_numbers(transformer, tmp_path):
    lookup = L.StringLookup(vocabulary=["a", "b b", "zz"], num_oov_indices=2)
    hashed = L.Hashing(7)
    compared(lambda s: (lookup(s), hashed(s)), {"s": spec(None, dtype=tf.string)}, tmp_path / "model", transformer, lookup, hashed)


class Trained(tf.Module):
    """A network of Keras's with a step of training by hand."""

    def __init__(self):
        super().__init__()
        keras.utils.set_random_seed(0)
        self.net = keras.Sequential([L.Input((7, 5)), L.LSTM(6), L.Dense(3)])
        self.slots = [tf.Variable(tf.zeros_like(v.value)) for v in self.net.trainable_variables]

    @tf.function(input_signature=[tf.TensorSpec([None, 7, 5]), tf.TensorSpec([None, 3])])
    def train(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.net(x, training=True) - y) ** 2)
        variables = [v.value for v in self.net.trainable_variables]
        for v, slot, g in zip(variables, self.slots, tape.gradient(loss, variables), strict=True):
            slot.assign(0.9 * slot + g)
            v.assign_sub(0.1 * slot)
        return {"loss": loss}

    @tf.function(input_signature=[tf.TensorSpec([None, 7, 5])])
    def predict(self, x):
        return {"y": self.net(x)}


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize(("widths", "pad"), [([1, 2], 0), ([3], -1), ([4, 2], 1), ([5], 0)])
def test_groups_of_words(widths, pad, short, transformer):
    rows = tf.ragged.constant([["a", "bb", "c"], [], ["d"], ["e", "f"]])
    attrs = {"separator": "|", "left_pad": "<", "right_pad": ">", "pad_width": pad, "preserve_short_sequences": short}
    with tf.Graph().as_default() as graph:
        words, splits = (tf.compat.v1.placeholder(t, [None]) for t in (tf.string, tf.int64))
        made = tf.raw_ops.StringNGrams(data=words, data_splits=splits, ngram_widths=widths, **attrs)
        feeds = {words.name: rows.values.numpy(), splits.name: rows.row_splits.numpy()}
        with tf.compat.v1.Session() as session:
            wanted = session.run(list(made), feeds)
    found = ng.tensorflow.load(graph.as_graph_def(), transformer).run([t.name for t in made], feeds)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_concrete_function_has_its_variables_and_constants(transformer):
    weight, calls, shift = tf.Variable([1.0, 2.0, 3.0], name="weight"), tf.Variable(0.0, name="calls"), tf.constant([5.0, 6.0, 7.0])

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def function(x):
        calls.assign_add(1.0)
        return tf.while_loop(lambda k, y: k < 2, lambda k, y: (k + 1, y * weight + shift), [0, x + calls])[1]

    concrete = function.get_concrete_function()
    model = ng.tensorflow.load(concrete, transformer)
    for many in (2, 0, 3):
        x = Numbers(many)(spec(None, 3), many)
        np.testing.assert_allclose(model(x), concrete(tf.constant(x)), 1e-6)
    assert model.value("calls") == 3 and model.value("weight").tolist() == [1, 2, 3]
    net = keras.Sequential([keras.Input((3,)), L.Dense(4, "tanh")])
    concrete = tf.function(net).get_concrete_function(tf.TensorSpec([None, 3]))
    np.testing.assert_allclose(ng.tensorflow.load(concrete, transformer)(x), net(x), 1e-5, 1e-6)


def test_generators_advance(transformer, tmp_path):
    """Numbers of `tf.random.Generator`, and its state, are TensorFlow's over several calls."""

    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.state = tf.random.Generator.from_state([-9, 4, 123456789], alg="philox")

        @tf.function(input_signature=[tf.TensorSpec([None])])
        def __call__(self, x):
            drawn = self.state.uniform(tf.shape(x)), self.state.normal([2, 2]), self.state.uniform([3], 0, 9, tf.int32)
            counts = self.state.binomial([tf.size(x), 2], [9.0, 90.0], 0.3), self.state.binomial(tf.shape(x), 50.0, 0.6)
            return {"keys": self.state.make_seeds(2), **named((*drawn, *counts))}

    made = Model()
    tf.saved_model.save(made, tmp_path / "model", signatures=made.__call__.get_concrete_function())
    model = ng.tensorflow.load(str(tmp_path / "model"), transformer)
    for many in (1, 3, 0, 3):
        wanted = made(tf.zeros(many))
        for name, found in zip(sorted(wanted), model.run(sorted(wanted), {"x": np.zeros(many, np.float32)}), strict=True):
            assert found.dtype == wanted[name].dtype and found.shape == wanted[name].shape, name
            np.testing.assert_allclose(found, wanted[name], 1e-6 if found.dtype.kind == "f" else 0, err_msg=name)


def test_strings_are_hashed_under_a_key(transformer):
    words = np.array([b"x" * k for k in range(20)] + ["Ä 1".encode()], object)
    with tf.Graph().as_default() as graph:
        given = tf.compat.v1.placeholder(tf.string, [None])
        made = tf.strings.to_hash_bucket_strong(given, 10**12, key=[3, -5])
        with tf.compat.v1.Session() as session:
            wanted = session.run(made, {given: words})
    (found,) = ng.tensorflow.load(graph.as_graph_def(), transformer).run([made.name], {given.name: words})
    np.testing.assert_array_equal(found, wanted)


def test_keys_are_taken_from_a_table(transformer, tmp_path):
    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def put(self, words):
            self.table.insert(words, tf.range(tf.size(words, tf.int64)))
            return {"many": self.table.size()}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def drop(self, words):
            self.table.remove(words)
            return {"many": self.table.size(), "of": self.table.lookup(words)}

    made = Model()
    tf.saved_model.save(made, tmp_path / "model", signatures={"put": made.put, "drop": made.drop})
    model = ng.tensorflow.load(tmp_path / "model", transformer)
    for name, words in (("put", ["a", "b", "c"]), ("drop", ["b", "none"]), ("put", ["b"])):
        wanted = getattr(made, name)(tf.constant(words))
        found = model.signatures[name](words=np.array(words, object))
        for a, key in zip(found if isinstance(found, tuple) else (found,), sorted(wanted), strict=True):
            np.testing.assert_array_equal(a, wanted[key])


@pytest.mark.parametrize("transformer", ["cpu", "direct"])
def test_slices_of_variables_are_assigned(transformer, tmp_path):
    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.v = tf.Variable(np.arange(24, dtype=np.float32).reshape(4, 6))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.int32)])
        def __call__(self, x, i):
            self.v[1, :].assign(x)
            self.v[::2, 3].assign([7.0, 8.0])
            self.v[i].assign(x * 2)
            self.v[-1, 4:1:-1].assign(self.v[0, 1:4])
            self.v[2:3, :2].assign(tf.constant(5.0, shape=[1, 2]))
            self.v[3:1, 2].assign(tf.zeros([0]))
            return self.v + 0.0

    module, folder = Module(), str(tmp_path / "saved")
    tf.saved_model.save(module, folder)
    x = np.arange(6, dtype=np.float32) * 10
    with ngt.make_transformer_factory(transformer)() as made:
        model = ng.tensorflow.load(folder, made)
        for i in (0, 3, -2, 0):
            (y,) = model.run(None, {"x": x + i, "i": np.int32(i)})
            np.testing.assert_array_equal(y, module(tf.constant(x + i), tf.constant(i)).numpy())


def test_a_module_around_keras_trains(tmp_path):
    module, folder = Trained(), str(tmp_path / "model")
    tf.saved_model.save(module, folder, signatures={"train": module.train, "serving_default": module.predict})
    model, draw = ng.tensorflow.load(folder), Numbers()
    for batch in (4, 4, 5):
        x, y = draw(spec(None, 7, 5), batch), draw(spec(None, 3), batch)
        (loss,) = model.signatures["train"].run(["loss"], {"x": x, "y": y})
        np.testing.assert_allclose(loss, module.train(tf.constant(x), tf.constant(y))["loss"], 1e-5)
        np.testing.assert_allclose(model.run(["y"], {"x": x})[0], module.predict(tf.constant(x))["y"], 1e-5, 1e-6)
    model.save_checkpoint(str(tmp_path / "after"))
    found = ng.tensorflow.load_checkpoint(str(tmp_path / "after"))
    kept = [found.get_tensor(key) for key in found if "kernel" in key and "recurrent" in key and ".ATTRIBUTES" in key]
    np.testing.assert_allclose(kept[0], module.net.layers[0].cell.recurrent_kernel.numpy(), 1e-5, 1e-6)


def test_gamma_and_poisson_samples_are_drawn_again(transformer):
    with tf.Graph().as_default() as graph:
        concentration = tf.compat.v1.placeholder(F, [2])
        wanted = [tf.random.gamma([20000], concentration), tf.random.poisson([20000], concentration * 8, tf.int32)]
        names = [t.name for t in wanted]
    model = ng.tensorflow.load(graph.as_graph_def(), transformer)
    of = np.array([0.5, 3], np.float32)
    (x, k), (y, j) = (model.run(names, {concentration.name: of}) for _ in range(2))
    assert x.shape == k.shape == (20000, 2) and k.dtype == np.int32 and (x != y).all() and (k != j).any()
    for found, rate in ((x, of), (y, of), (k, of * 8), (j, of * 8)):  # the variance is the mean, of both
        np.testing.assert_allclose([found.mean(0), found.var(0)], [rate, rate], rtol=0.08)


@pytest.mark.parametrize("noise", ["uniform", "gaussian"])
def test_noise_outside_of_an_image_is_like_its_pixels(noise, transformer):
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(F, [1, 5, 5, 1])
        y = tf.raw_ops.ExtractGlimpseV2(input=x, size=[90, 90], offsets=tf.zeros([1, 2]), noise=noise, uniform_noise=False)
    image = np.random.default_rng(0).uniform(3, 5, (1, 5, 5, 1)).astype(np.float32)
    (found,) = ng.tensorflow.load(graph.as_graph_def(), transformer).run([y.name], {x.name: image})
    with tf.compat.v1.Session(graph=graph) as session:
        wanted = session.run(y, {x: image})
    np.testing.assert_allclose([found.mean(), found.std()], [wanted.mean(), wanted.std()], 0.05)
    assert image.min() <= found.min() < found.max() <= image.max()


@pytest.mark.parametrize("sampler", [tf.raw_ops.UniformCandidateSampler, tf.raw_ops.LogUniformCandidateSampler])
@pytest.mark.parametrize("unique", [True, False])
def test_classes_are_sampled_as_often_as_expected(sampler, unique, transformer):
    with tf.Graph().as_default() as graph:
        true = tf.compat.v1.placeholder(tf.int64, [3, 1])
        made = sampler(true_classes=true, num_true=1, num_sampled=4, unique=unique, range_max=6)
    names, feeds = [t.name for t in made], {true.name: np.array([[0], [2], [5]])}
    model, counts, expected = ng.tensorflow.load(graph.as_graph_def(), transformer), np.zeros(6), np.zeros(3)
    for _ in range(250):
        found, of_true, of_found = model.run(names, feeds)
        assert found.shape == (4,) and (not unique or len(set(found.tolist())) == 4)
        counts += np.bincount(found, minlength=6) / 250
        expected += of_true[:, 0] / 250
        for k, share in zip(found, of_found, strict=True):
            assert k not in (0, 2, 5) or np.isclose(share, of_true[[0, 2, 5].index(k), 0])
    np.testing.assert_allclose(counts[[0, 2, 5]], expected, atol=0.15)
    if not unique:
        with tf.compat.v1.Session(graph=graph) as session:
            np.testing.assert_allclose(of_true, session.run(made[1], {true: [[0], [2], [5]]}), 1e-6)


def example(**features):
    kinds = {int: ("int64_list", tf.train.Int64List), float: ("float_list", tf.train.FloatList), bytes: ("bytes_list", tf.train.BytesList)}
    made = {}
    for name, values in features.items():
        field, of = kinds[type(values[0])]
        made[name] = tf.train.Feature(**{field: of(value=values)})
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def test_sparse_and_ragged_features(transformer, tmp_path):
    of = tf.io
    features = {
        "a": of.FixedLenFeature([2], F),
        "b": of.VarLenFeature(tf.int64),
        "c": of.FixedLenFeature([], tf.string, b"none"),
        "d": of.VarLenFeature(tf.string),
        "e": of.RaggedFeature(tf.int64, row_splits_dtype=tf.int64),
        "f": of.FixedLenSequenceFeature([], F, allow_missing=True),
    }

    class Parser(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "s")])
        def parse(self, s):
            found = of.parse_example(s, features)
            one = of.parse_single_example(s[0], {"b": features["b"], "a": features["a"]})
            parts = {"b": found["b"].indices, "bv": found["b"].values, "bs": found["b"].dense_shape, "d": tf.sparse.to_dense(found["d"])}
            more = {"e": found["e"].values, "er": found["e"].row_splits, "one": one["b"].indices, "ones": one["b"].dense_shape}
            return parts | more | {"a": found["a"], "c": found["c"], "f": found["f"], "one a": one["a"]}

    module, folder = Parser(), str(tmp_path / "model")
    tf.saved_model.save(module, folder, signatures=module.parse)
    model = ng.tensorflow.load(folder, transformer)
    some = [
        example(a=[1.0, 2.0], b=[3, 4, 5], d=[b"x"], e=[1]),
        example(a=[0.0, 1.0], c=[b"y"], e=[2, 3]),
        example(a=[5.0, 6.0], b=[7], d=[b"p", b"q"], f=[1.0, 2.0]),
    ]
    for messages in (some, some[1:2], some[::-1]):
        wanted = module.parse(tf.constant(messages))
        for name, y in zip(sorted(wanted), model.run(sorted(wanted), {"s": np.array(messages, object)}), strict=True):
            z = wanted[name].numpy()
            assert y.shape == z.shape and (z.dtype == object or y.dtype == z.dtype), name
            assert [v if not isinstance(v, str) else v.encode() for v in y.ravel().tolist()] == z.ravel().tolist(), name


def test_arrays_of_pieces_and_of_scattered_rows(transformer, tmp_path):
    def both(x):
        pieces = tf.TensorArray(F, 3, infer_shape=False).split(x, [1, 0, 3])
        rows = tf.TensorArray(F, 6).scatter([5, 1, 0], x[:3])
        fresh = tf.raw_ops.TensorListScatterV2(tensor=x, indices=[2, 0, 1, 3], element_shape=[2], num_elements=-1)
        return (
            pieces.concat(),
            pieces.read(2),
            rows.stack(),
            tf.raw_ops.TensorListStack(input_handle=fresh, element_shape=[2], element_dtype=F),
        )

    compared(both, {"x": spec(4, 2)}, tmp_path / "model", transformer)


def test_a_meta_graph_without_placeholders_runs_as_a_session(transformer, tmp_path):
    """What saves, fills a queue or summarises stands in the file, and is left where it is not fetched."""
    v1, prefix = tf.compat.v1, str(tmp_path / "model")
    with tf.Graph().as_default(), v1.Session() as session:
        queue = v1.FIFOQueue(9, [F])
        batch = queue.dequeue_many(3)
        queue.enqueue_many([tf.zeros([9, 4])])
        w = v1.get_variable("w", initializer=np.arange(8, dtype=np.float32).reshape(4, 2), use_resource=False)
        y, step = tf.nn.softmax(batch @ w, name="y"), v1.assign_add(w, tf.ones([4, 2]), name="step")
        v1.summary.scalar("most", tf.reduce_max(w)), v1.summary.histogram("w", w), v1.summary.merge_all()
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, prefix)
        x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
        wanted = session.run([y, step, w], {batch: x})
    model = ng.tensorflow.load(f"{prefix}.meta", transformer)
    np.testing.assert_allclose(model.run(["y"], {batch.op.name: x})[0], wanted[0], 1e-5)
    np.testing.assert_array_equal(model.run([step.op.name], {})[0], wanted[1])
    np.testing.assert_array_equal(model.value("w"), wanted[2])
    with pytest.raises(ArgumentError, match="has no output z"):
        model.run(["z"], {})


def test_assets_of_tensorflow_1_are_listed_in_a_collection(transformer, tmp_path):
    v1, folder, words = tf.compat.v1, str(tmp_path / "model"), tmp_path / "words.txt"
    words.write_text("a\nb\nc\n")
    x = np.array([b"c", b"a", b"?"], object)
    with tf.Graph().as_default(), v1.Session() as session:
        text = v1.placeholder(tf.string, [None])
        whole, number = v1.lookup.TextFileIndex.WHOLE_LINE, v1.lookup.TextFileIndex.LINE_NUMBER
        table = v1.lookup.StaticHashTable(v1.lookup.TextFileInitializer(str(words), tf.string, whole, tf.int64, number), -1)
        found = table.lookup(text)
        session.run(v1.tables_initializer())
        saved = v1.saved_model.predict_signature_def({"x": text}, {"found": found})
        files = v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS)
        builder = v1.saved_model.Builder(folder)
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": saved}, assets_collection=files, main_op=v1.tables_initializer()
        )
        builder.save()
    words.unlink()
    assert ng.tensorflow.load(folder, transformer)(x).tolist() == [2, 0, -1]


@pytest.mark.parametrize("resource", [False, True])
def test_variables_without_a_checkpoint_are_set_by_their_initializers(resource, transformer):
    """As a session does it: to read one before is an error, for a check as well."""
    v1, x = tf.compat.v1, np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    with tf.Graph().as_default() as graph, v1.Session() as session:
        given = v1.placeholder(F, [None, 4], name="x")
        w = v1.get_variable("w", initializer=np.arange(8, dtype=np.float32).reshape(4, 2), use_resource=resource)
        loss = tf.reduce_sum((given @ w) ** 2, name="loss")
        step, init = v1.train.AdamOptimizer(0.1).minimize(loss, name="step"), v1.global_variables_initializer()
        tf.identity(v1.is_variable_initialized(w), name="is_set")
        session.run(init)
        wanted = [session.run([loss, step], {given: x})[0] for _ in range(3)]
    model = ng.tensorflow.load(graph.as_graph_def(), transformer)
    assert not model.run(["is_set:0"], {})[0]
    with pytest.raises(GraphError, match="'w' has no value"):
        model.run(["loss:0"], {"x:0": x})
    model.run([init.name], {})
    assert model.run(["is_set:0"], {})[0]
    np.testing.assert_allclose([model.run(["loss:0", "step"], {"x:0": x})[0] for _ in range(3)], wanted, 1e-5)
