"""ONNX files changed at random, by bytes and by fields, read and run: `python tests/frontends/onnx/mutations.py COUNT SEED [MODEL …]`.

Whatever a file holds, it runs or is refused with an error of ours, in little time and memory. The files of this folder's small models are
changed, or those given. Every mutant is run on `direct`, every twentieth on the default transformer too. A process does the work, and one
watches it: what ends, hangs, or raises anything else is told, with the file in the folder that MUTANTS names, and the next one is taken.
"""

import collections
import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback

SLOW = 10.0  # seconds of the processor that a mutant may take
PATIENCE = 120.0  # seconds without a word
SPARE = 2 << 30  # bytes of address space beyond what a process has that has run a model
EVERY = 20  # so many mutants are run as Python calls for one that is compiled
KINDS = ("bytes", "fields")


# ---- what is changed ----------------------------------------------------------------------------------------------------


def sources():
    """Small models of many kinds, as bytes."""
    import numpy as np
    import onnx
    from onnx import helper as h
    from onnx import numpy_helper

    from tests.frontends.onnx.made import B, F, I, model

    r = np.random.default_rng(0)

    def w(*shape):
        return r.standard_normal(shape).astype(np.float32)

    def body(nodes, outputs, inputs=()):
        return h.make_graph(nodes, "body", [h.make_tensor_value_info(*i) for i in inputs], [h.make_tensor_value_info(*o) for o in outputs])

    n = h.make_node
    convolution = [
        n("Conv", ["x", "w", "b"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        n("BatchNormalization", ["a", "s", "s", "s", "v"], ["n"]),
        n("MaxPool", ["n"], ["m"], kernel_shape=[2, 2], strides=[1, 1], ceil_mode=1),
        n("Resize", ["m", "", "two"], ["u"], mode="linear"),
        n("Flatten", ["u"], ["f"]),
        n("Softmax", ["f"], ["y"]),
    ]
    yield model(
        convolution,
        [("x", F, ["N", 2, 7, 7])],
        [("y", F, None)],
        {"w": w(3, 2, 3, 3), "b": w(3), "s": w(3), "v": abs(w(3)), "two": np.array([1, 1, 2, 2], np.float32)},
    )
    shapes = [
        n("Shape", ["x"], ["s"]),
        n("Slice", ["s", "zero", "one"], ["n"]),
        n("Concat", ["n", "rest"], ["shape"], axis=0),
        n("Reshape", ["x", "shape"], ["r"]),
        n("Transpose", ["r"], ["t"], perm=[1, 0, 2]),
        n("Split", ["t"], ["p", "q"], axis=0, num_outputs=2),
        n("Gather", ["p", "which"], ["g"], axis=2),
        n("Einsum", ["g", "q"], ["e"], equation="abc,abd->acd"),
        n("Expand", ["e", "big"], ["x2"]),
        n("TopK", ["x2", "one"], ["y", "z"], axis=-1),
    ]
    held = {"zero": [0], "one": [1], "rest": [2, -1], "which": [1, 0], "big": [2, 1, 2, 3]}
    yield model(shapes, [("x", F, ["N", 6])], [("y", F, None), ("z", I, None)], {k: np.array(v, np.int64) for k, v in held.items()})
    rnn = [
        n("LSTM", ["x", "w", "r", "b", "", "h"], ["seq", "last"], hidden_size=3, direction="bidirectional"),
        n("Squeeze", ["last"], ["y"]),
    ]
    yield model(rnn, [("x", F, ["T", 1, 2])], [("y", F, None)], {"w": w(2, 12, 2), "r": w(2, 12, 3), "b": w(2, 24), "h": w(2, 1, 3)})
    loop = [
        n(
            "Loop",
            ["trips", "go", "x"],
            ["end", "scan"],
            body=body(
                [
                    n("Mul", ["c", "half"], ["d"]),
                    n("ReduceSum", ["d"], ["s"], keepdims=0),
                    n("Less", ["s", "lim"], ["more"]),
                    n("Identity", ["d"], ["out"]),
                ],
                [("more", B, []), ("d", F, [3]), ("out", F, [3])],
                [("k", I, []), ("go_in", B, []), ("c", F, [3])],
            ),
        ),
        n(
            "If",
            ["flag"],
            ["y"],
            then_branch=body([n("Neg", ["end"], ["t"])], [("t", F, None)]),
            else_branch=body([n("Relu", ["end"], ["e"])], [("e", F, None)]),
        ),
    ]
    held = {"trips": np.array(3), "go": np.array(True), "half": np.float32(0.5), "lim": np.float32(9), "flag": np.array(False)}
    yield model(loop, [("x", F, [3])], [("y", F, None), ("scan", F, None)], held)
    scan = [
        n(
            "Scan",
            ["i", "x"],
            ["end", "ys"],
            num_scan_inputs=1,
            body=body(
                [n("Add", ["a", "b"], ["c"]), n("Tanh", ["c"], ["o"])], [("c", F, [2]), ("o", F, [2])], [("a", F, [2]), ("b", F, [2])]
            ),
        )
    ]
    yield model(scan, [("x", F, ["T", 2])], [("end", F, None), ("ys", F, None)], {"i": w(2)})
    quantised = [
        n("QuantizeLinear", ["x", "s", "z"], ["q"]),
        n("QLinearConv", ["q", "s", "z", "w", "ws", "wz", "s", "z"], ["c"]),
        n("DequantizeLinear", ["c", "s", "z"], ["d"]),
        n("DynamicQuantizeLinear", ["d"], ["u", "us", "uz"]),
        n("MatMulInteger", ["u", "m", "uz"], ["y"]),
    ]
    held = {"s": np.float32(0.1), "z": np.uint8(128), "w": r.integers(-9, 9, (2, 1, 2, 2)).astype(np.int8), "ws": np.float32(0.2)}
    held |= {"wz": np.int8(0), "m": r.integers(0, 9, (3, 2)).astype(np.uint8)}
    yield model(quantised, [("x", F, [1, 1, 4, 4])], [("y", onnx.TensorProto.INT32, None)], held)
    lists = [
        n("SplitToSequence", ["x", "one"], ["l"], axis=0),
        n("SequenceAt", ["l", "k"], ["a"]),
        n("SequenceInsert", ["l", "a"], ["m"]),
        n("ConcatFromSequence", ["m"], ["c"], axis=0),
        n("NonZero", ["c"], ["nz"]),
        n("Cast", ["nz"], ["f"], to=1),
        n("CumSum", ["f", "k"], ["y"]),
    ]
    yield model(lists, [("x", F, [3, 2])], [("y", F, None)], {"one": np.array(1), "k": np.array(0)})
    boxes = [
        n("NonMaxSuppression", ["x", "s", "most", "iou"], ["y"]),
        n("GatherND", ["s", "at"], ["g"]),
        n("ScatterND", ["s", "at", "g"], ["z"]),
    ]
    held = {"s": abs(w(1, 1, 5)), "most": np.array([3]), "iou": np.array([0.5], np.float32), "at": np.array([[0, 0, 1], [0, 0, 3]])}
    yield model(boxes, [("x", F, [1, 5, 4])], [("y", I, None), ("z", F, None)], held)
    attention = [
        n("Attention", ["x", "x", "x"], ["a"], q_num_heads=2, kv_num_heads=2),
        n("Gelu", ["a"], ["b"], approximate="tanh"),
        n("LayerNormalization", ["b", "g"], ["y"]),
    ]
    yield model(attention, [("x", F, [1, 3, 4])], [("y", F, None)], {"g": w(4)}, opset=23)
    plain = model([n("Twice", ["x"], ["a"], domain="own", by=2.0), n("Add", ["a", "sp"], ["y"])], [("x", F, [2, 3])], [("y", F, None)])
    plain.opset_import.append(h.make_opsetid("own", 1))
    by = n("Constant", [], ["k"])
    by.attribute.append(onnx.AttributeProto(name="value_float", ref_attr_name="by", type=onnx.AttributeProto.FLOAT))
    plain.functions.append(
        h.make_function("own", "Twice", ["x"], ["y"], [by, n("Mul", ["x", "k"], ["y"])], [h.make_opsetid("", 18)], ["by"])
    )
    plain.graph.sparse_initializer.append(
        h.make_sparse_tensor(numpy_helper.from_array(w(2), "sp"), numpy_helper.from_array(np.array([1, 4]), "i"), [2, 3])
    )
    yield plain
    trees = [
        n(
            "TreeEnsembleRegressor",
            ["x"],
            ["y"],
            domain="ai.onnx.ml",
            n_targets=1,
            nodes_treeids=[0, 0, 0],
            nodes_nodeids=[0, 1, 2],
            nodes_featureids=[0, 0, 0],
            nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
            nodes_values=[0.5, 0.0, 0.0],
            nodes_truenodeids=[1, 0, 0],
            nodes_falsenodeids=[2, 0, 0],
            target_treeids=[0, 0],
            target_nodeids=[1, 2],
            target_ids=[0, 0],
            target_weights=[1.0, 2.0],
        )
    ]
    made = model(trees, [("x", F, ["N", 2])], [("y", F, None)])
    made.opset_import.append(h.make_opsetid("ai.onnx.ml", 3))
    yield made
    outside = model([n("MatMul", ["x", "w"], ["y"])], [("x", F, [2, 4])], [("y", F, None)], {"w": w(4, 3)})
    t = outside.graph.initializer[0]
    t.data_location = onnx.TensorProto.EXTERNAL
    del t.external_data[:]
    for key, value in (("location", "data.bin"), ("offset", "0"), ("length", "48")):
        t.external_data.add(key=key, value=value)
    t.ClearField("raw_data")
    yield outside
    wordy = [
        n("StringNormalizer", ["x"], ["a"], case_change_action="LOWER"),
        n("LabelEncoder", ["a"], ["y"], domain="ai.onnx.ml", keys_strings=["a", "b"], values_int64s=[1, 2]),
    ]
    made = model(wordy, [("x", onnx.TensorProto.STRING, [3])], [("y", I, None)])
    made.opset_import.append(h.make_opsetid("ai.onnx.ml", 3))
    yield made


# ---- how it is changed --------------------------------------------------------------------------------------------------

NUMBERS = (0, 1, -1, 2, 3, 7, 16, 127, 128, 255, 1 << 16, (1 << 31) - 1, -(1 << 31), 1 << 33, (1 << 63) - 1, -(1 << 63))
REALS = (0.0, -0.0, 1.0, -1.0, 1e-38, 3e38, float("inf"), float("-inf"), float("nan"))
WORDS = ("", "x", "y", "w", "\0", "é" * 40, "a" * 5000, "..", "../data.bin", "/etc/passwd", "data.bin", "-1", "99999999999999999999", "0")


def by_bytes(content, rng, others):
    """A file with a few places changed."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at, size = rng.randrange(len(data) + 1), rng.choice((1, 1, 1, 2, 4, 16, 64))
        kind = rng.randrange(7)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2:
            del data[at : at + size]
        elif kind == 3:
            data[at:at] = rng.choice((rng.randbytes(size), b"\xff" * size, bytes(size)))
        elif kind == 4:
            data[at:at] = data[at : at + size * 8]
        elif kind == 5:
            other = rng.choice(others)
            start = rng.randrange(len(other))
            data[at : at + size] = other[start : start + size * 4]
        elif rng.random() < 0.2:
            del data[at:]
        if not data:
            break
    return bytes(data)


def messages(root):
    """A message and all in it."""
    found = [root]
    for m in found:
        for field, value in m.ListFields():
            if field.message_type is not None:
                found += list(value) if is_list(field) else [value]
    return found


def is_list(field):
    return field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def by_fields(content, rng, others):
    """The model with a few fields changed: numbers, names, lists, and messages taken from other models."""
    import onnx

    model, other = onnx.ModelProto(), onnx.ModelProto()
    model.ParseFromString(content)
    other.ParseFromString(rng.choice(others))
    for _ in range(rng.randint(1, 3)):
        everywhere = messages(model)
        message = rng.choice(everywhere)
        if message.DESCRIPTOR.name in ("ValueInfoProto", "TypeProto", "Dimension", "TensorShapeProto") and rng.random() < 0.5:
            message = rng.choice(everywhere)
        field = rng.choice(message.DESCRIPTOR.fields)
        try:
            change(message, field, rng, [m for m in messages(other) if m.DESCRIPTOR is field.message_type] if field.message_type else [])
        except (ValueError, TypeError, UnicodeError):  # the field takes no such value
            continue
    return model.SerializeToString()


def change(message, field, rng, alike):
    name = field.name
    if is_list(field):
        values = getattr(message, name)
        kind = rng.randrange(5)
        if kind == 0 and len(values):
            del values[rng.randrange(len(values))]
        elif kind == 1 and len(values) > 1:
            a, b = rng.sample(range(len(values)), 2)
            if field.message_type is None:
                values[a], values[b] = values[b], values[a]
            else:
                first, second = type(values[a])(), type(values[a])()
                first.CopyFrom(values[a])
                second.CopyFrom(values[b])
                values[a].CopyFrom(second)
                values[b].CopyFrom(first)
        elif kind == 2 and len(values):
            values.append(values[rng.randrange(len(values))])
        elif field.message_type is not None:
            if alike:
                values.append(rng.choice(alike))
        elif len(values) and rng.random() < 0.7:
            values[rng.randrange(len(values))] = value(field, rng, message)
        else:
            values.append(value(field, rng, message))
    elif field.message_type is not None:
        if alike and rng.random() < 0.7:
            getattr(message, name).CopyFrom(rng.choice(alike))
        else:
            message.ClearField(name)
    elif rng.random() < 0.15:
        message.ClearField(name)
    else:
        setattr(message, name, value(field, rng, message))


def value(field, rng, message):
    """A value for a field of numbers, texts or bytes."""
    import onnx

    if field.enum_type is not None:
        return rng.choice([v.number for v in field.enum_type.values])
    if field.cpp_type == field.CPPTYPE_STRING:
        if field.type == field.TYPE_BYTES:
            old = getattr(message, field.name)
            old = old if isinstance(old, bytes) else b""
            return rng.choice((b"", old[:-1], old + b"\0", rng.randbytes(8), old[: len(old) // 2], rng.choice(WORDS).encode()))
        if field.name == "op_type" and rng.random() < 0.9:
            return rng.choice([s.name for s in onnx.defs.get_all_schemas()])
        return rng.choice(WORDS)
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice(REALS)
    if field.name in ("data_type", "elem_type", "type"):
        return rng.randrange(0, 30)
    return rng.choice(NUMBERS) if rng.random() < 0.7 else rng.randrange(-3, 12)


# ---- what comes of it ---------------------------------------------------------------------------------------------------


class TooLong(BaseException):
    """A mutant took more than its time."""


def late(*_):
    raise TooLong


def taken(content, folder, name):
    """Returns how an ONNX file ends, as `ended` does."""
    import ngraph.transformers as ngt
    from ngraph.frontends.onnx import load

    path = os.path.join(folder, "model.onnx")
    with open(path, "wb") as file:
        file.write(content)
    return ended(lambda: load(path, ngt.allocate_transformer(name)))


def ended(load):
    """Returns how a mutant ends: it is refused when it is read or run, or runs; what is neither is raised."""
    from ngraph.errors import NgraphError
    from ngraph.tools.models import drawn
    from ngraph.verbs import UsageError

    try:
        model = load()
    except NgraphError:
        return "refused"
    try:
        model.run(drawn(model, {}, 0))
    except UsageError:  # its inputs are lists, or strings
        return "read"
    except NgraphError:
        return "refused in the run"
    return "run"


def parents_of(files):
    """The models that are changed: small ones, and those in files."""
    parents = [m.SerializeToString() for m in sources()]
    for name in files:
        with open(name, "rb") as file:
            parents.append(file.read())
    return parents


def work(count, seed, parents, changes, taken, ending):
    """Takes mutants, one line on stdout for each: its number, what became of it.

    changes: for each of KINDS a function of a parent, a generator of random numbers and all parents; taken: what becomes of a mutant.
    """
    import warnings

    import numpy as np

    import ngraph as ng

    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    signal.signal(signal.SIGPROF, late)
    with tempfile.TemporaryDirectory() as folder, ng.config(cache=os.path.join(folder, "cache"), debug=0):
        with open(os.path.join(folder, "data.bin"), "wb") as file:
            file.write(bytes(48))
        for content in parents:  # all that is loaded late is there now
            taken(content, folder, "direct")
        taken(parents[0], folder, ng.transformers.make_transformer().name)
        with open("/proc/self/status", encoding="ascii") as file:
            size = next(int(line.split()[1]) for line in file if line.startswith("VmSize")) << 10
        resource.setrlimit(resource.RLIMIT_AS, (size + SPARE, resource.RLIM_INFINITY))
        for k in range(*count):
            rng = random.Random(f"{seed} {k}")
            kind = KINDS[k % 2]
            mutant = changes[k % 2](rng.choice(parents), rng, parents)
            at = os.path.join(os.environ.get("MUTANTS", folder), f"{seed}.{k}{ending}")
            with open(at, "wb") as file:
                file.write(mutant)
            print(k, "begun", flush=True)
            start = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, SLOW)
            try:
                found = taken(mutant, folder, "direct")
                if k % EVERY < 2:  # one of each kind
                    found = taken(mutant, folder, ng.transformers.make_transformer().name)
            except TooLong:
                found = "too long"
                traceback.print_exc()
            except BaseException as error:
                found = f"raised {type(error).__name__}"
                traceback.print_exc()
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            took = time.process_time() - start
            if found in ("refused", "refused in the run", "read", "run"):
                os.remove(at)
            else:
                print(f"mutant {k}: {found}", file=sys.stderr, flush=True)
            print(k, f"{kind}: {found}", round(took, 2), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)


def watch(count, seed, files, script):
    """What became of each mutant, by a process that is started anew where it ends."""
    told, slowest, largest, k = collections.Counter(), 0.0, 0, 0
    while k < count:
        command = [sys.executable, os.path.abspath(script), "--work", str(k), str(count), str(seed), *files]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
            running = None
            while True:
                ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
                line = process.stdout.readline() if ready else None
                if not line:
                    break
                number, what = line.split(" ", 1)
                if what.strip() == "begun":
                    running = int(number)
                    continue
                what, took, most = what.rsplit(" ", 2)
                told[what] += 1
                slowest, largest, running, k = max(slowest, float(took)), max(largest, int(most) >> 10), None, int(number) + 1
            process.kill()
        if running is not None:
            told[f"{KINDS[running % 2]}: " + ("hung" if line is None else f"ended with {process.returncode}")] += 1
            print(f"mutant {running}: {'hung' if line is None else 'ended'}", file=sys.stderr, flush=True)
            k = running + 1
        elif k < count and line is None:
            raise SystemExit("the process that takes mutants does not begin")
    return {"mutants": count, **dict(sorted(told.items())), "slowest, s": slowest, "largest, MiB": largest}


def main(script, parents, changes, taken, ending):
    """Prints what became of mutants, as the command says: COUNT SEED FILE...; or is the process that takes them."""
    if sys.argv[1] == "--work":
        work((int(sys.argv[2]), int(sys.argv[3])), sys.argv[4], parents(sys.argv[5:]), changes, taken, ending)
    else:
        print(json.dumps(watch(int(sys.argv[1]), sys.argv[2], sys.argv[3:], script), indent=1))


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
    main(__file__, parents_of, (by_bytes, by_fields), taken, ".onnx")
