"""Functions of TensorFlow's with the bridge on and off: values, derivatives, control flow, dtypes, lengths, threads, what is saved."""

import linecache
import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

import ngraph as ng
from ngraph.errors import ArgumentTypeError, NgraphError, NgraphWarning, UnsupportedError

tf = pytest.importorskip("tensorflow", reason="TensorFlow has an environment of its own: make bridge-tests")

RNG = np.random.default_rng(0)


def normal(*shape):
    return tf.constant(RNG.normal(size=shape).astype(np.float32))


def same(function, *args, bridge, rtol=1e-5, atol=1e-5):
    """The results with the bridge, which are those without it."""
    bridge.disable()
    wanted = tf.nest.map_structure(np.asarray, function(*args))
    bridge.enable()
    found = tf.nest.map_structure(np.asarray, function(*args))
    for a, b in zip(tf.nest.flatten(found), tf.nest.flatten(wanted), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.kind in "fc":
            np.testing.assert_allclose(a, b, rtol, atol)
        else:
            np.testing.assert_array_equal(a, b)
    return found


def clusters(bridge, name=""):
    return [c for f in bridge.report().json()["functions"] if name in f["name"] for c in f["clusters"]]


def wholly_ours(bridge):
    """There are clusters, all were called, and none failed."""
    there = clusters(bridge)
    assert there and all(c["calls"] for c in there) and not bridge.report().fallbacks, str(bridge.report())


def test_a_function_is_one_cluster_between_variables(bridge, every_cluster):
    w, b = tf.Variable(normal(5, 7)), tf.Variable(normal(7))

    @tf.function
    def layer(x):
        return tf.nn.softmax(tf.nn.relu(x @ w + b) * 2.0)

    same(layer, normal(3, 5), bridge=bridge)
    wholly_ours(bridge)
    assert len(clusters(bridge)) == 1
    w.assign(w * 2)  # variables stay TensorFlow's: what is assigned to them is seen
    same(layer, normal(3, 5), bridge=bridge)


def test_a_tape_around_an_enabled_function(bridge, every_cluster):
    w = tf.Variable(normal(6, 6))

    @tf.function
    def loss(x):
        return tf.reduce_sum(tf.tanh(x @ w) ** 2)

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = loss(x)
        return value, *tape.gradient(value, (x, w))

    same(step, normal(4, 6), bridge=bridge)
    assert {c["number"] for c in clusters(bridge, "__forward")} and {c["number"] for c in clusters(bridge, "__backward")}

    def second(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                value = loss(x)
            (slope,) = tape.gradient(value, (x,))
        return outer.gradient(slope, x)

    same(second, normal(4, 6), bridge=bridge, rtol=1e-4)


def test_derivatives_of_slices(bridge, every_cluster):
    @tf.function(input_signature=[tf.TensorSpec([None, 6, 5])])
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.exp(x[:, 1:-1:2, ::-1]) * 2.0) + tf.reduce_sum(tf.tanh(x[:, 3]) ** 2)
        return y, tape.gradient(y, x)

    same(f, normal(3, 6, 5), bridge=bridge)
    wholly_ours(bridge)


def test_a_loop_reads_variables_before_it(bridge, every_cluster):
    w, b = tf.Variable(normal(4, 4)), tf.Variable(normal(4))

    @tf.function
    def f(x, n):
        for _ in tf.range(n):
            x = tf.tanh(x @ w + b)
        w.assign(w * 0.5)
        return x + b, w.read_value()

    def anew(x, n):
        w.assign(tf.eye(4))
        return [f(x, n), f(x, n), tf.identity(w)]

    same(anew, normal(3, 4), tf.constant(3), bridge=bridge)
    assert "While" not in bridge.report().unsupported, str(bridge.report())


def test_assignments_keep_their_order(bridge, every_cluster):
    v, n = tf.Variable(normal(4)), tf.Variable(0, dtype=tf.int64)

    @tf.function
    def step(x):
        before = v * 2.0
        v.assign_add(x)
        middle = v * 3.0
        v.assign(middle - before)
        n.assign_add(1)
        v.assign_sub(x * tf.cast(n, tf.float32))
        return before, middle, v.read_value(), n.read_value()

    def anew(x):
        v.assign(tf.range(4.0)), n.assign(0)
        return [step(x), step(x), tf.identity(v), tf.identity(n)]

    same(anew, normal(4), bridge=bridge)
    wholly_ours(bridge)


def test_a_variable_that_a_branch_assigns(bridge, every_cluster):
    v = tf.Variable(normal(4))

    @tf.function
    def step(x):
        if tf.reduce_sum(x) > 0:
            v.assign_add(tf.exp(x) * 2.0)
        else:
            v.assign(v * 0.5 - x)
        return v * x

    def anew(x):
        v.assign(tf.range(4.0))
        return [step(x), step(-x), tf.identity(v)]

    same(anew, normal(4), bridge=bridge)


def test_calls_within_calls_keep_effects_in_order(bridge, every_cluster):
    v = tf.Variable(normal(3, 3))

    @tf.function
    def inner(x):
        v.assign(tf.tanh(v + x))
        return v @ x

    @tf.function
    def outer(x):
        a = inner(x)
        b = inner(a)
        v.assign_add(b)
        return a, b, inner(b) + v

    def anew(x):
        v.assign(tf.eye(3))
        return [*outer(x), tf.identity(v)]

    same(anew, normal(3, 3), bridge=bridge)
    wholly_ours(bridge)


def test_loops_and_branches_in_clusters_and_around_them(bridge, every_cluster):
    w = normal(4, 4)

    @tf.function
    def ours(x, n):
        for _ in tf.range(n):
            x = tf.tanh(x @ w)
        return tf.cond(tf.reduce_sum(x) > 0.0, lambda: x * 2.0, lambda: tf.exp(x))

    for n in (0, 3):
        same(ours, normal(3, 4), tf.constant(n), bridge=bridge)

    @tf.function
    def around(x, n):
        for _ in tf.range(n):
            x = tf.tanh(x @ w) + tf.linalg.band_part(x, 0, -1)
            tf.debugging.assert_all_finite(x, "finite")
        return x

    same(around, normal(4, 4), tf.constant(3), bridge=bridge)
    assert any("while_body" in f["name"] and f["clusters"] for f in bridge.report().json()["functions"]), str(bridge.report())


@pytest.mark.parametrize("turns", [5, 13])
@pytest.mark.parametrize("order", ["forward", "backward", "twice", "first", "skipping"])
def test_derivatives_of_loops_that_read_and_fill_lists(bridge, every_cluster, order, turns):
    """Lists are read and set at the turn's number, from the end, twice by one turn, always at one place, and at every second place."""
    w = tf.Variable(normal(4, 4) * 0.3)
    place = {"backward": lambda k: turns - 1 - k, "first": lambda k: 0, "skipping": lambda k: k // 2 * 2}.get(order, lambda k: k)

    @tf.function
    def f(x, scale):
        with tf.GradientTape() as tape:
            tape.watch((x, scale))
            given = tf.TensorArray(tf.float32, turns, clear_after_read=False).unstack(x)
            made = tf.TensorArray(tf.float32, turns, clear_after_read=False, element_shape=[3, 4])

            def turn(k, made, state):
                item = given.read(place(k))
                if order == "twice":
                    item += given.read(turns - 1 - k) * item
                state = tf.tanh(item + state @ w) * scale
                made = made.write(turns - 1 - k if order == "backward" else k, state * item)
                return k + 1, made, state

            _, made, state = tf.while_loop(lambda k, *_: k < turns, turn, (0, made, x[0] * 0.5))
            loss = tf.reduce_sum(made.stack() * tf.range(1.0, turns + 1.0)[:, None, None]) + tf.reduce_sum(state**2)
        return loss, tape.gradient(loss, (x, w, scale))

    same(f, normal(turns, 3, 4), tf.constant(0.9), bridge=bridge, rtol=1e-4)
    assert not bridge.report().fallbacks or order not in ("forward", "backward"), str(bridge.report())


def test_control_flow_of_tensorflow_1(bridge, every_cluster):
    def build(x):
        with tf.compat.v1.Session().graph.as_default():
            pass
        tf.compat.v1.disable_control_flow_v2()
        try:
            y = tf.compat.v1.cond(tf.reduce_sum(x) > 0, lambda: tf.exp(x) * 2.0, lambda: x - 1.0)
            return tf.compat.v1.while_loop(lambda k, z: k < 3, lambda k, z: (k + 1, tf.tanh(z) * 1.5), (0, y + 1.0))[1] * 2.0 + 1.0
        finally:
            tf.compat.v1.enable_control_flow_v2()

    made = tf.compat.v1.wrap_function(build, [tf.TensorSpec([3], tf.float32)])
    for x in (tf.constant([1.0, 2.0, 3.0]), tf.constant([-1.0, 2.0, -3.0])):
        same(made, x, bridge=bridge)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64, np.bool_, np.float16, np.uint8])
def test_dtypes(bridge, every_cluster, dtype):
    @tf.function
    def f(x, y):
        if dtype is np.bool_:
            return tf.logical_and(tf.logical_not(x), y), tf.logical_or(x, y)
        return x * y + x, tf.reduce_sum(tf.maximum(x, y), 0), tf.cast(x, tf.float32) * 2.0

    x, y = [tf.constant(RNG.integers(0, 2 if dtype is np.bool_ else 5, (3, 4)).astype(dtype)) for _ in range(2)]
    same(f, x, y, bridge=bridge)
    wholly_ours(bridge)


def test_strings_stay(bridge, every_cluster):
    @tf.function
    def f(words, x):
        lengths = tf.cast(tf.strings.length(words), tf.float32)
        return tf.strings.join([words, "!"]), tf.exp(x) * lengths + 1.0

    same(f, tf.constant(["a", "bcd"]), normal(2), bridge=bridge)
    left = bridge.report().unsupported
    assert left["StringLength"] == 1 and "Exp" not in left


def test_open_lengths_and_none(bridge, every_cluster):
    @tf.function(input_signature=[tf.TensorSpec([None, 5], tf.float32)])
    def f(x):
        return tf.reshape(tf.tanh(x) * 2.0, [-1]), tf.reduce_mean(x, 0), tf.shape(x)

    for n in (1, 3, 8, 0, 17):
        x = normal(n, 5)
        found = same(lambda x: f(x)[::2], x, bridge=bridge)
        assert found[0].shape == (5 * n,)
    assert not bridge.report().fallbacks


def test_a_shape_that_values_decide_is_tensorflows(bridge, every_cluster):
    @tf.function
    def f(x, n):
        y = tf.exp(x) * 2.0
        return tf.reshape(tf.tile(y, [n]), [n, -1]) + 1.0, tf.boolean_mask(x, x > 0)

    for n in (1, 2, 3):
        same(f, normal(4), tf.constant(n), bridge=bridge)


def test_wrong_values_get_tensorflows_error(bridge, every_cluster):
    @tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([None], tf.int32)])
    def f(table, k):
        return tf.gather(tf.exp(table) * 2.0, k) + 1.0

    with pytest.raises(tf.errors.InvalidArgumentError):
        bridge.disable(), f(normal(3, 4), tf.constant([1, 9]))
    bridge.enable()
    with pytest.raises(tf.errors.OpError, match="9"):
        f(normal(3, 4), tf.constant([1, 9]))
    same(f, normal(3, 4), tf.constant([1, 2]), bridge=bridge)
    assert not any(c["failure"] for c in clusters(bridge))


def test_ten_threads_call_one_function(bridge, every_cluster):
    w = tf.Variable(normal(6, 6))

    @tf.function(input_signature=[tf.TensorSpec([None, 6])])
    def f(x):
        return tf.nn.softmax(tf.nn.relu(x @ w) * 2.0)

    inputs = [normal(1 + k % 4, 6) for k in range(10)]
    bridge.disable()
    wanted = [f(x).numpy() for x in inputs]
    bridge.enable()
    wrong = []

    def run(x, y):
        for _ in range(20):
            if not np.allclose(f(x).numpy(), y, 1e-5, 1e-6):
                wrong.append(x)

    threads = [threading.Thread(target=run, args=pair) for pair in zip(inputs, wanted, strict=True)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert not wrong and not any(t.is_alive() for t in threads)
    assert sum(c["calls"] for c in clusters(bridge)) == 200


def test_what_is_saved_loads_without_ngraph(bridge, every_cluster, tmp_path):
    class Module(tf.Module):
        def __init__(self):
            self.w = tf.Variable(normal(4, 3))

        @tf.function(input_signature=[tf.TensorSpec([None, 4])])
        def __call__(self, x):
            return tf.nn.relu(x @ self.w) * 2.0 + 1.0

    module = Module()
    x = normal(2, 4)
    y = module(x).numpy()
    assert clusters(bridge)
    tf.saved_model.save(module, str(tmp_path / "saved"))
    np.save(tmp_path / "x.npy", x.numpy()), np.save(tmp_path / "y.npy", y)
    program = (
        "import sys, numpy as np, tensorflow as tf\n"
        "m = tf.saved_model.load('saved')\n"
        "np.testing.assert_allclose(m(tf.constant(np.load('x.npy'))), np.load('y.npy'), 1e-6)\n"
        "assert not any(name.startswith('ngraph') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=120)
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    bridge.reset()
    same(loaded.signatures["serving_default"], x, bridge=bridge)
    assert clusters(bridge), "loaded functions have clusters, too"


def test_one_function_alone(bridge, every_cluster):
    bridge.disable()

    @ng.tensorflow.function
    def ours(x):
        return tf.exp(x) * 2.0 + 1.0

    @tf.function
    def theirs(x):
        return tf.exp(x) * 2.0 - 1.0

    x = normal(3)
    np.testing.assert_allclose(ours(x), np.exp(x) * 2 + 1, 1e-5)
    np.testing.assert_allclose(theirs(x), np.exp(x) * 2 - 1, 1e-5)
    assert clusters(bridge, "ours") and not clusters(bridge, "theirs")
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = ours(x)
    np.testing.assert_allclose(tape.gradient(y, x), np.exp(x) * 2, 1e-5)
    assert clusters(bridge, "backward")


def test_the_functions_of_2019(bridge, every_cluster, capsys):
    import ngraph_bridge

    assert ngraph_bridge.is_enabled() and ngraph_bridge.__version__.count("\n") == 6
    assert "CPU" in ngraph_bridge.list_backends() and ngraph_bridge.backends_len() == len(ngraph_bridge.list_backends())
    assert ngraph_bridge.get_backend() == "CPU" and ngraph_bridge.is_supported_backend("numpy")
    with pytest.raises(UnsupportedError, match="Backend NOPE unavailable"):
        ngraph_bridge.set_backend("NOPE")

    @tf.function
    def f(x):
        return tf.tanh(tf.exp(x) * 2.0) + 1.0

    ngraph_bridge.set_disabled_ops("Tanh")
    assert ngraph_bridge.get_disabled_ops() == "Tanh"
    ngraph_bridge.start_logging_placement()
    assert ngraph_bridge.is_logging_placement()
    f(normal(3))
    ngraph_bridge.stop_logging_placement()
    said = capsys.readouterr().out
    assert "NGTF_SUMMARY" in said and "OP_placement: Tanh Tanh: TensorFlow: the op is disabled" in said
    assert bridge.report().unsupported["Tanh"] == 1
    with pytest.raises(NgraphError, match="Tahn"):
        ngraph_bridge.set_disabled_ops("Tahn")
    ngraph_bridge.set_disabled_ops("")
    ngraph_bridge.set_backend("NUMPY")
    same(f, normal(3), bridge=bridge)
    assert clusters(bridge)[0]["calls"] == 1


def test_settings_of_a_wrong_kind_are_refused(bridge):
    assert not bridge.is_supported_backend(None)
    with pytest.raises(UnsupportedError, match="Backend None unavailable"):
        bridge.set_backend(None)
    for wrong in (["Tanh"], None):
        with pytest.raises(ArgumentTypeError, match="'Tanh,Relu'"):
            bridge.set_disabled_ops(wrong)


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("NGRAPH_TF_DISABLED_OPS", "Tahn", "NGRAPH_TF_DISABLED_OPS: Tahn is not an op of ours"),
        ("NGRAPH_TF_MIN_NONTRIVIAL_NODES", "two", "NGRAPH_TF_MIN_NONTRIVIAL_NODES is 'two'"),
        ("NGRAPH_TF_BACKEND", "nope", "NGRAPH_TF_BACKEND: Backend NOPE unavailable"),
    ],
)
def test_a_wrong_variable_of_the_environment_is_refused(bridge, monkeypatch, name, value, said):
    monkeypatch.setenv(name, value)
    with pytest.raises(NgraphError, match=said):
        bridge.enable()


def test_the_environment_disables_ops_with_blanks_between_them(bridge, every_cluster, monkeypatch):
    @tf.function
    def f(x):
        return tf.tanh(tf.exp(x) * 2.0) + tf.nn.relu(x)

    monkeypatch.setenv("NGRAPH_TF_DISABLED_OPS", "Relu, Tanh")
    bridge.enable()
    f(normal(3))
    assert bridge.report().unsupported == {"Relu": 1, "Tanh": 1}


def test_the_report_and_views_of_phases(bridge, every_cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("NGRAPH_TF_DUMP_GRAPHS", str(tmp_path))

    @tf.function
    def f(x):
        y = tf.exp(x) * 2.0
        return tf.tanh(tf.raw_ops.CheckNumerics(tensor=y, message="m") + 1.0) + y

    bridge.set_disabled_ops("CheckNumerics")
    f(normal(3))
    report = bridge.report()
    said, given = str(report), report.json()
    assert len(clusters(bridge)) == 2 and given["unsupported"]["CheckNumerics"] == 1
    assert "TensorFlow runs 1 node, CheckNumerics: the op is disabled" in said
    assert "edges not contracted: a way over nodes of TensorFlow's joins them" in said
    assert '"clustered"' in report.dumps() and report.svg().startswith("<svg") and "cluster 1" in report.svg()
    phases = sorted({p.name.split("_")[1] for p in tmp_path.iterdir()})
    assert phases == ["clustered", "declustered", "encapsulated", "marked", "unmarked"]
    (text,) = [p.read_text() for p in tmp_path.iterdir() if "declustered" in p.name and p.suffix == ".txt"]
    assert "cluster 0" in text and "# the op is disabled" in text


def test_the_report_says_a_reason_once(bridge, every_cluster, monkeypatch):
    """Nodes of a cluster that fails have one reason, whatever their ops."""

    @tf.function
    def f(x):
        return tf.exp(tf.exp(x * 0.1)) * tf.tanh(x) + tf.tanh(x + 1.0)

    monkeypatch.setattr("ngraph.bridge.running.RunningCluster.results", lambda *_: 1 / 0)
    with pytest.warns(NgraphWarning, match="is TensorFlow's again"):
        f(normal(3))
    f(normal(3))
    (line,) = [line for line in str(bridge.report()).splitlines() if "its cluster failed" in line]
    assert line.startswith("  TensorFlow runs 9 nodes, Mul 2, Exp 2, Tanh 2, AddV2 2, Identity: its cluster failed: ZeroDivisionError")


def test_the_page_runs(bridge, capsys):
    page = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "docs", "bridge.md")
    with open(page, encoding="utf-8") as f:
        blocks = re.findall(r"(?s)```py\n(.*?)```", f.read())
    path = os.path.join(os.path.dirname(page), "bridge.py")
    for block in blocks:
        linecache.cache[path] = (len(block), None, block.splitlines(keepends=True), path)  # AutoGraph reads a function's source
        exec(compile(block, path, "exec"), {"__name__": "page"})
    assert blocks and "1 clusters" in capsys.readouterr().out


def test_small_functions_are_left(bridge):
    @tf.function
    def f(x):
        return tf.exp(x) * 2.0 + 1.0

    same(f, normal(3), bridge=bridge)
    assert not clusters(bridge) and "given back" in str(bridge.report())


def test_branches_that_a_number_decides_stay_in_their_cluster(bridge, every_cluster):
    w = normal(30, 30)

    @tf.function
    def turn(x, k):
        h = tf.nn.relu(x @ w)
        y = tf.switch_case(k % 3, [lambda: tf.sin(h) @ w, lambda: tf.tanh(h) * 2, lambda: tf.cumsum(h, 1)])
        return tf.cond(k > 4, lambda: y * y, lambda: y + 1)

    x = normal(20, 30)
    for k in range(7):
        same(turn, x, tf.constant(k), bridge=bridge, rtol=1e-4, atol=1e-4)
    wholly_ours(bridge)
    assert not any(c["failure"] for c in clusters(bridge))
