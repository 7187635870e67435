"""Records graphs of TensorFlow 1 with TensorFlow's answers: `python record_v1.py recorded`, by an interpreter that has TensorFlow.

Control flow of nodes without bodies (Switch, Merge, frames), variables by reference and by handle, TensorArrays, and optimizers' steps.
Each graph is run with each of its feeds, twice where it has variables. A run that TensorFlow refuses is recorded as the error's name.
"""

import lzma
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()
v1.disable_control_flow_v2()
R = np.random.default_rng(11)
A = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
V = np.array([1, 2, 3], np.float32)
SAVED = {}


def case(name, build, *feeds, resource=False, turns=2):
    """Records the graph that `build` makes of placeholders, given by the feeds' names and as long as the first feeds say.

    turns: how often it is run with each feed, if it has variables.
    """
    graph = tf.Graph()
    with graph.as_default():
        v1.set_random_seed(1)
        with v1.variable_scope("", use_resource=resource):
            outputs = build()
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        with v1.Session(graph=graph) as session:
            session.run(v1.global_variables_initializer())
            for v in v1.global_variables():
                SAVED[f"{name}|start|{v.op.name}"] = session.run(v)
            for k, feed in enumerate(feeds):
                for n, a in feed.items():
                    SAVED[f"{name}|feed{k}|{n}:0"] = a
                SAVED[f"{name}|turns"] = np.array(turns if v1.global_variables() else 1)
                for turn in range(int(SAVED[f"{name}|turns"])):
                    try:
                        found = session.run(outputs, {f"{n}:0": a for n, a in feed.items()})
                    except tf.errors.OpError as error:
                        SAVED[f"{name}|error{k}.{turn}"] = np.array(type(error).__name__)
                        continue
                    for j, a in enumerate(found):
                        SAVED[f"{name}|out{k}.{turn}.{j}"] = a
            for v in v1.global_variables():
                SAVED[f"{name}|end|{v.op.name}"] = session.run(v)
    SAVED[f"{name}|graph"] = np.frombuffer(graph.as_graph_def().SerializeToString(), np.uint8)
    SAVED[f"{name}|names"] = np.array([o.name for o in outputs])


def hole(*shape, name="x"):
    return v1.placeholder(tf.float32, list(shape), name)


# ---- branches
def cond():
    x = hole(2, 3)
    return v1.cond(tf.reduce_sum(x) > 0, lambda: x * 2 + 1, lambda: tf.sin(x))


def cond_two():
    x = hole(2, 3)
    p = tf.reduce_sum(x) > 0
    a, b = v1.cond(p, lambda: (x * 2, x + 1), lambda: (x - 1, x * x))
    return [a, b, v1.cond(p, lambda: a + b, lambda: a - b)]


def cond_nested():
    x = hole(2, 3)
    return v1.cond(
        tf.reduce_sum(x) > 0,
        lambda: v1.cond(tf.reduce_max(x) > 10, lambda: x * 100, lambda: x * 3),
        lambda: v1.cond(tf.reduce_min(x) < -2.5, lambda: x - 7, lambda: tf.exp(x)),
    )


def case_():
    x = hole(3)
    return v1.case([(x[0] > 0, lambda: x * 2), (x[1] > 0, lambda: x * 3)], default=lambda: -x)


def assert_():
    x = hole(3)
    with tf.control_dependencies([v1.assert_greater(x, -10.0)]):
        return x * 2


def switch_merge():
    x = hole(3)
    switch = tf.raw_ops.Switch(data=x, pred=x[0] > 0)
    merge = tf.raw_ops.Merge(inputs=[switch.output_true * 3, switch.output_false * 2])
    return [merge.output, merge.value_index]


def dead():
    x = hole(3)
    return tf.raw_ops.Switch(data=x, pred=x[0] > 0).output_true * 2


def dead_by_control():
    x = hole(3)
    switch = tf.raw_ops.Switch(data=x, pred=x[0] > 0)
    with tf.control_dependencies([tf.identity(switch.output_true)]):
        return x * 2


def two_predicates():
    x = hole(3)
    s, t = (tf.raw_ops.Switch(data=x, pred=x[k] > 0) for k in (0, 1))
    merge = tf.raw_ops.Merge(inputs=[s.output_true + 1, t.output_true * 0 + s.output_false])
    return [merge.output, merge.value_index]


case("cond", cond, {"x": A}, {"x": -A})
case("cond_two", cond_two, {"x": A}, {"x": -A})
case("cond_nested", cond_nested, {"x": A}, {"x": -A}, {"x": A + 20}, {"x": A * 0.1 - 1})
case("case", case_, {"x": V}, {"x": V * [-1, 1, 1]}, {"x": -V})
case("assert", assert_, {"x": V})
case("switch_merge", switch_merge, {"x": V}, {"x": -V})
case("dead", dead, {"x": V}, {"x": -V})
case("dead_by_control", dead_by_control, {"x": V}, {"x": -V})
case("two_predicates", two_predicates, {"x": V}, {"x": V * [-1, 1, 1]}, {"x": -V})


# ---- loops
def loop():
    return list(v1.while_loop(lambda i, y: i < 12, lambda i, y: (i + 1, y * 0.9 + 0.1), [0, hole(2, 3)]))


def loop_data():
    x = hole(None)
    return v1.while_loop(lambda y: tf.reduce_sum(y) < 50, lambda y: (y * 1.5 + x,), [x])


def loop_nested():
    x = hole(3)

    def body(i, y):
        _, z = v1.while_loop(lambda j, z: j < i, lambda j, z: (j + 1, z + tf.cast(j, tf.float32) * x), [0, y])
        return i + 1, z * 0.5

    return v1.while_loop(lambda i, y: i < 11, body, [0, x])[1]


def loop_cond():
    x = hole(3)
    body = lambda i, y: (i + 1, v1.cond(tf.equal(i % 2, 0), lambda: y + x, lambda: y * 0.5))
    return v1.while_loop(lambda i, y: i < 15, body, [0, x])[1]


def cond_loop():
    x = hole(3)
    return v1.cond(x[0] > 0, lambda: v1.while_loop(lambda i, y: i < 9, lambda i, y: (i + 1, y + x), [0, x])[1], lambda: -x)


def maps(x):
    return [v1.map_fn(lambda r: tf.reduce_sum(r) * r, x), v1.scan(lambda c, r: c * 0.5 + r, x)]


W = R.standard_normal((8, 5)).astype("f4") * np.float32(0.3)


def recurrent():
    x = hole(4, 13, 3)
    given = tf.TensorArray(tf.float32, 13).unstack(tf.transpose(x, [1, 0, 2]))

    def body(t, h, out):
        h = tf.tanh(tf.concat([given.read(t), h], 1) @ W)
        return t + 1, h, out.write(t, h)

    _, h, out = v1.while_loop(lambda t, h, out: t < 13, body, [0, tf.zeros([4, 5]), tf.TensorArray(tf.float32, 13)])
    return [h, tf.transpose(out.stack(), [1, 0, 2])]


case("loop", loop, {"x": A})
case("loop_data", loop_data, {"x": V}, {"x": np.array([60, 1], np.float32)})
case("loop_nested", loop_nested, {"x": V})
case("loop_cond", loop_cond, {"x": V})
case("cond_loop", cond_loop, {"x": V}, {"x": -V})
case("maps", lambda: maps(hole(5, 3)), {"x": R.standard_normal((5, 3)).astype("f4")})
case("maps_open", lambda: maps(hole(None, 3)), *({"x": R.standard_normal((n, 3)).astype("f4")} for n in (17, 11, 1)))
case("recurrent", recurrent, {"x": R.standard_normal((4, 13, 3)).astype("f4")})


# ---- random numbers
raw = tf.raw_ops


def stateless():
    seed = v1.placeholder(tf.int64, [2], "x")
    made = [raw.StatelessRandomUniform(shape=[3, 7], seed=seed, dtype=d) for d in (tf.float32, tf.float64, tf.float16)]
    made += [raw.StatelessRandomUniform(shape=[5], seed=tf.cast(seed, tf.int32))]
    made += [raw.StatelessRandomUniformFullInt(shape=[9], seed=seed, dtype=d) for d in (tf.int32, tf.int64, tf.uint32, tf.uint64)]
    made += [raw.StatelessRandomUniformInt(shape=[2, 5], seed=seed, minval=-3, maxval=100)]
    made += [raw.StatelessRandomUniformInt(shape=[5], seed=seed, minval=np.int64(-(10**10)), maxval=np.int64(10**12))]
    return made


def stateless_normal():
    seed = v1.placeholder(tf.int64, [2], "x")
    return [raw.StatelessRandomNormal(shape=[3, 7], seed=seed, dtype=d) for d in (tf.float32, tf.float64)]


def counters():
    key, counter = v1.placeholder(tf.uint64, [1], "k"), v1.placeholder(tf.uint64, [2], "c")
    made = [raw.StatelessRandomUniformV2(shape=[11], key=key, counter=counter, alg=1)]
    made += [raw.StatelessRandomUniformFullIntV2(shape=[6], key=key, counter=counter, alg=3, dtype=tf.uint64)]
    made += [raw.StatelessRandomUniformIntV2(shape=[6], key=key, counter=counter, alg=1, minval=0, maxval=7)]
    return made + list(raw.StatelessRandomGetKeyCounter(seed=tf.constant([5, -6], tf.int64)))


SEEDS = [{"x": np.array(s, np.int64)} for s in ((7, -3), (0, 0), (2**62 + 5, -(2**63)))]
case("stateless", stateless, *SEEDS)
case("stateless_normal", stateless_normal, *SEEDS)
case(
    "counters",
    counters,
    *({"k": np.array([k], np.uint64), "c": np.array(c, np.uint64)} for k, c in ((123, (5, 9)), (2**64 - 1, (2**64 - 2, 0)))),
)


# ---- variables
def state_cond():
    x = hole(3)
    v = v1.get_variable("v", initializer=np.ones(3, np.float32))
    return v1.cond(tf.reduce_sum(x) > 0, lambda: tf.identity(v1.assign_add(v, x)), lambda: tf.identity(v1.assign(v, v * 2)))


def state_loop():
    x = hole(3)
    v = v1.get_variable("v", initializer=np.ones(3, np.float32))

    def body(i):
        with tf.control_dependencies([v1.assign_add(v, x)]):
            return i + 1

    i = v1.while_loop(lambda i: i < 10, body, [0])
    with tf.control_dependencies([i]):
        return [i, v.read_value()]


def scatters():
    x = hole(2, 3)
    v = v1.get_variable("v", initializer=np.ones((5, 3), np.float32))
    ops = v1.scatter_add, v1.scatter_sub, v1.scatter_mul, v1.scatter_div, v1.scatter_max, v1.scatter_min, v1.scatter_update
    last = []
    for k, op in enumerate(ops):
        with tf.control_dependencies(last):
            last = [op(v, [k % 5, (k + 2) % 5], x + 3.0 * k)]
    with tf.control_dependencies(last):
        return v.read_value()


def checked():
    """A loss whose weights are checked by an op that has no translation, and a new dim by a list of one number."""
    x, weights = hole(None, 3), hole(None, None, name="w")
    v = v1.get_variable("v", initializer=np.ones(3, np.float32))
    loss = v1.losses.absolute_difference(x * v, x * 2, weights=weights)
    step = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    with tf.control_dependencies([step, tf.debugging.assert_positive(loss)]):
        return [loss, v.read_value(), tf.raw_ops.ExpandDims(input=tf.constant([1.0, 2.0]), axis=tf.constant([1])) * x[0]]


def read_after_writing():
    x = hole(3)
    v, rate = (v1.get_variable(name, initializer=np.ones(3, np.float32)) for name in ("v", "rate"))
    step = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum((v * x - 2) ** 2), var_list=[v])
    with tf.control_dependencies([step]):
        y = v + 1.0
        added = v1.assign_add(rate, v)
    with tf.control_dependencies([added]):
        return [y, y * v, tf.identity(v), v1.cond(x[0] > 1, lambda: rate * 2, lambda: rate + v)]


for by, resource in (("reference", False), ("handle", True)):
    if not resource:
        case("checked", checked, {"x": A, "w": np.float32([[1], [2]])}, {"x": A, "w": A + 3})
        case("read_after_writing", read_after_writing, {"x": V}, {"x": -V})
    case(f"state_cond_{by}", state_cond, {"x": V}, {"x": -V}, resource=resource)
    case(f"state_loop_{by}", state_loop, {"x": V}, resource=resource)
    case(f"scatters_{by}", scatters, {"x": A}, resource=resource)

# ---- optimizers
START = R.standard_normal((4, 3)).astype("f4")
BATCH = {"x": R.standard_normal((8, 4)).astype("f4"), "t": np.eye(3, dtype="f4")[R.integers(0, 3, 8)]}


def training(optimizer, rows):
    def build():
        x, t = hole(None, 4), hole(None, 3, name="t")
        w = v1.get_variable("w", initializer=START)
        b = v1.get_variable("b", initializer=np.zeros(3, np.float32))
        y = x @ w + b if not rows else tf.gather(w, [2, 0]) * 2 + b
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(logits=y, labels=t if not rows else t[:2])) + 0 * tf.reduce_sum(x)
        with tf.control_dependencies([optimizer().minimize(loss)]):
            return tf.identity(loss)

    return build


train = v1.train
OPTIMIZERS = {
    "GradientDescent": lambda: train.GradientDescentOptimizer(0.1),
    "Momentum": lambda: train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "Adam": lambda: train.AdamOptimizer(0.01),
    "Adagrad": lambda: train.AdagradOptimizer(0.1),
    "AdagradDA": lambda: train.AdagradDAOptimizer(0.1, tf.constant(3, tf.int64), l1_regularization_strength=0.01),
    "RMSProp": lambda: train.RMSPropOptimizer(0.01, momentum=0.5),
    "RMSProp_centered": lambda: train.RMSPropOptimizer(0.01, centered=True),
    "Adadelta": lambda: train.AdadeltaOptimizer(0.1),
    "Ftrl": lambda: train.FtrlOptimizer(0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.02),
    "FtrlV2": lambda: train.FtrlOptimizer(0.1, l2_shrinkage_regularization_strength=0.03),
    "ProximalGradientDescent": lambda: train.ProximalGradientDescentOptimizer(0.1, 0.01, 0.02),
    "ProximalAdagrad": lambda: train.ProximalAdagradOptimizer(0.1, 0.1, 0.01, 0.02),
}
for name, optimizer in OPTIMIZERS.items():
    for by, resource in (("reference", False), ("handle", True)):
        for rows in (False, True):
            if not (rows and name == "AdagradDA" and not resource):
                case(f"{name}_{by}{'_rows' * rows}", training(optimizer, rows), BATCH, resource=resource)


# ---- derivatives of loops: stacks, and arrays of derivatives


class Cell:
    """A cell of `dynamic_rnn`: gated, or an LSTM's."""

    def __init__(self, units, kind):
        self.output_size, self.kind = units, kind
        self.state_size = (units, units) if kind == "lstm" else units

    def zero_state(self, batch, dtype):
        made = [tf.zeros([batch, self.output_size], dtype) for _ in range(2 if self.kind == "lstm" else 1)]
        return tuple(made) if self.kind == "lstm" else made[0]

    def get_initial_state(self, inputs=None, batch_size=None, dtype=None):
        return self.zero_state(batch_size, dtype)

    def call(self, x, state):
        return self(x, state)

    def __call__(self, x, state, scope=None):
        h = state[1] if self.kind == "lstm" else state
        gates, n = (4, self.output_size) if self.kind == "lstm" else (1, self.output_size)
        w = v1.get_variable("w", [x.shape[-1] + n, gates * n])
        made = tf.concat([x, h], 1) @ w + v1.get_variable("b", [gates * n])
        if self.kind != "lstm":
            made = tf.tanh(made)
            return made, made
        i, g, f, o = tf.split(made, 4, 1)
        c = tf.sigmoid(f + 1.0) * state[0] + tf.sigmoid(i) * tf.tanh(g)
        made = tf.sigmoid(o) * tf.tanh(c)
        return made, (c, made)


def recurrent_training(kind, embedded=False, lengths=False):
    def build():
        y = hole(None, 3, name="y")
        if embedded:
            table = v1.get_variable("table", [9, 4])
            x = tf.gather(table, v1.placeholder(tf.int32, [None, 6], "x"))
        else:
            x = hole(None, 6, 4)
        long = v1.placeholder(tf.int32, [None], "long") if lengths else None
        out, state = v1.nn.dynamic_rnn(Cell(3, kind), x, long, dtype=tf.float32)
        last = state[1] if kind == "lstm" else state
        loss = tf.reduce_mean(tf.square(last - y)) + tf.reduce_mean(out**2)
        optimizer = train.MomentumOptimizer(0.1, 0.9) if embedded else train.AdamOptimizer(0.05)
        with tf.control_dependencies([optimizer.minimize(loss)]):
            return tf.identity(loss)

    return build


def loop_training():
    """Powers of a matrix, as many as a number says that is known, and the derivative of their sum."""
    w = v1.get_variable("w", [3, 3])
    x = hole(2, 3)

    def turn(k, h, total):
        h = tf.tanh(h @ w)
        return k + 1, h, total + tf.reduce_sum(h * h)

    *_, loss = tf.while_loop(lambda k, h, total: k < 5, turn, [tf.constant(0), x, tf.constant(0.0)])
    with tf.control_dependencies([train.GradientDescentOptimizer(0.01).minimize(loss)]):
        return tf.identity(loss)


S = {"x": R.standard_normal((4, 6, 4)).astype("f"), "y": R.standard_normal((4, 3)).astype("f")}
WORDS = {"x": R.integers(0, 9, (4, 6)).astype("i"), "y": S["y"]}
for resource in (False, True):
    by = "handle" if resource else "reference"
    case(f"recurrent_training_{by}", recurrent_training("gated"), S, resource=resource, turns=20)
    case(f"lstm_training_{by}", recurrent_training("lstm"), S, resource=resource, turns=20)
    case(f"embedded_training_{by}", recurrent_training("lstm", True), WORDS, resource=resource, turns=20)
    case(f"loop_training_{by}", loop_training, {"x": A}, resource=resource, turns=20)


def nested_derivative(deep, inner):
    """Loops within loops, and the derivatives of a sum by their start and by a matrix; inner: the innermost body."""

    def build():
        x, w = hole(3), hole(3, 3, name="w")

        def within(level, h, k):
            if level == 0:
                return inner(w, h, k)
            return tf.while_loop(lambda j, _: j < 2 + k % 2, lambda j, h: (j + 1, within(level - 1, h, j)), [tf.constant(0), h])[1]

        y = tf.reduce_sum(within(deep, x, tf.constant(0)) ** 2)
        return [y, *v1.gradients(y, [x, w])]

    return build


def through_arrays(w, h, k):
    """A loop that reads one array and writes another one."""
    read = tf.TensorArray(tf.float32, 3, element_shape=[3], clear_after_read=False).unstack(w)
    written = tf.TensorArray(tf.float32, 3, element_shape=[3])
    _, written = tf.while_loop(lambda j, _: j < 3, lambda j, to: (j + 1, to.write(j, tf.tanh(read.read(j) * h))), [0, written])
    return tf.reduce_sum(written.stack(), 0)


def as_long_as(w, h, k):
    """A loop whose turns depend on what it computes."""
    small = tf.while_loop(lambda j, h: (j < 9) & (tf.reduce_sum(h * h) > 0.1), lambda j, h: (j + 1, h * 0.6), [0, h + w[0]])[1]
    return tf.sin(small)


NESTED = {"x": np.array([0.3, -0.7, 1.1], np.float32), "w": np.array([[0.2, -0.5, 0.3], [0.6, 0.1, -0.4], [-0.3, 0.5, 0.7]], np.float32)}
case("nested_derivative", nested_derivative(2, lambda w, h, k: tf.tanh(tf.linalg.matvec(w, h)) + 0.1 * tf.cast(k, tf.float32)), NESTED)
case("nested_derivative_three", nested_derivative(3, lambda w, h, k: tf.tanh(tf.linalg.matvec(w, h) + h)), NESTED)
case("nested_derivative_arrays", nested_derivative(1, through_arrays), NESTED)
case("nested_derivative_while", nested_derivative(1, as_long_as), NESTED)
case("nested_derivative_branch", nested_derivative(1, lambda w, h, k: tf.cond(h[0] > 0.2, lambda: tf.sin(h), lambda: w[0] * h)), NESTED)


# ---- derivatives of branches in loops, and of loops in branches
def turns(count, body, h):
    return tf.while_loop(lambda j, _: j < count, lambda j, h: (j + 1, body(j, h)), [tf.constant(0), h])[1]


def step(w, h):
    return tf.tanh(tf.linalg.matvec(w, h)) * h + 0.1


def branches_in_a_branch(w, h, k):
    return tf.cond(
        h[0] > 0.2,
        lambda: tf.cond(h[1] > 0, lambda: tf.sin(h), lambda: tf.tanh(h * w[1])),
        lambda: tf.cond(k < 1, lambda: w[0] * h + 0.4, lambda: tf.ones([3])),
    )


def loops_in_branches(w, h, k):
    return tf.cond(h[0] > 0.1, lambda: turns(2, lambda j, h: step(w, h), h), lambda: turns(3, lambda j, h: tf.sin(h * w[1]) + 0.1, h))


def branch_with_loop():
    x, w = hole(3), hole(3, 3, name="w")
    y = tf.reduce_sum(tf.cond(tf.reduce_sum(x) > 0, lambda: turns(3, lambda j, h: step(w, h), x), lambda: x * w[0]) ** 2)
    return [y, *v1.gradients(y, [x, w])]


OTHER_WAY = {"x": -NESTED["x"], "w": NESTED["w"]}
case("derivative_branches", nested_derivative(1, branches_in_a_branch), NESTED, OTHER_WAY)
case("derivative_branch_two_loops", nested_derivative(2, lambda w, h, k: tf.cond(h[0] > 0.2, lambda: step(w, h), lambda: w[0] + h)), NESTED)
case("derivative_loops_in_branches", nested_derivative(1, loops_in_branches), NESTED, OTHER_WAY)
case("derivative_branch_with_loop", branch_with_loop, NESTED, OTHER_WAY)


def branch_in_a_loop_in_a_branch(w, h, k):
    inner = lambda j, h: tf.cond(h[1] > 0, lambda: tf.sin(h), lambda: h * w[1])
    return tf.cond(h[0] > 0.1, lambda: turns(2, inner, h), lambda: h * h + 0.3)


def loops_of_other_lengths(w, h, k):
    """Loops in a branch of which each turn around has as many turns as its number: none at first."""
    return tf.cond(h[0] > -9, lambda: turns(k, lambda j, h: step(w, h), h), lambda: w[0] * h)


def loop_without_turns(w, h, k):
    """Loops that values end, the inner one before its first turn."""
    while_large = lambda most, body, h: tf.while_loop(
        lambda j, h: (j < 3) & (tf.reduce_sum(h * h) > most), lambda j, h: (j + 1, body(h)), [0, h]
    )[1]
    branch = lambda h: tf.cond(h[0] > 0, lambda: tf.sin(h), lambda: h * w[1])
    return while_large(0.1, lambda h: while_large(9.0, branch, h) * w[0], h)


case("derivative_branch_loop_branch", nested_derivative(1, branch_in_a_loop_in_a_branch), NESTED, OTHER_WAY)
case("derivative_loops_of_other_lengths", nested_derivative(1, loops_of_other_lengths), NESTED)
case("derivative_loop_without_turns", nested_derivative(2, loop_without_turns), NESTED)

if __name__ == "__main__":
    with lzma.open(os.path.join(sys.argv[1], "v1.npz.xz"), "wb") as file:  # as a whole: the graphs are alike
        np.savez(file, **SAVED)
