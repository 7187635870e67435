"""Files of small trained models, changed at random and read again: `python tests/runtime/mutations.py FORMAT COUNT SEED`.

What is read must come out as something valid or be refused with a ParseError (weights also: StateError), in little time and memory.
"""

import copy
import json
import os
import random
import resource
import sys
import tempfile
import time
import traceback

import numpy as np

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import NgraphError, ParseError, StateError
from ngraph.op_graph import text as graphs
from ngraph.program import text as programs
from ngraph.program.verify import verify

SPARE = 512 << 20  # bytes of address space beyond what the process has
SLOW = 5.0  # seconds that one file of some kilobytes may at most take


# ---- what is changed ----------------------------------------------------------------------------------------------------


def perceptron():
    """784 to 3 classes would be large: 20 to 3, with momentum, trained a few steps."""
    N, C, H, Y = ng.make_axis(8, name="N"), ng.make_axis(20, name="C"), ng.make_axis(6, name="H"), ng.make_axis(3, name="Y")
    x, y = ng.placeholder([C, N]).named("x"), ng.placeholder([Y, N]).named("y")
    draw = np.random.default_rng(0)
    weights = [
        ng.variable(a, initial_value=draw.normal(size=a.lengths).astype("f")).named(n)
        for n, a in (("W1", ng.make_axes([H, C])), ("W2", ng.make_axes([Y, H])))
    ]
    mask = ng.constant(draw.integers(0, 2, (20, 8)).astype(bool), [C, N])
    h = ng.tanh(ng.dot(weights[0], ng.where(mask, x, x * 0.5)))
    loss = ng.mean(ng.cross_entropy_multi(ng.softmax(ng.dot(weights[1], h), [Y]), y), out_axes=())
    updates = []
    for w in weights:
        speed = ng.persistent_tensor(w.axes, initial_value=0).named(f"v{w.hint}")
        new = speed * 0.9 - ng.deriv(loss, w) * 0.1
        updates += [ng.assign(speed, new), ng.assign(w, w + new)]
    return [loss, *updates], [x, y], [draw.normal(size=(20, 8)).astype("f"), np.eye(3, 8, dtype="f")]


def recurrent():
    """A convolution, a scan with its gradient, a loop and random numbers, over a length that comes with the call."""
    N, T, C = ng.make_axis(name="N"), ng.make_axis(5, name="T"), ng.make_axis(4, name="C")
    x = ng.placeholder([T, C, N]).named("x")
    w = ng.variable([C, C - 1], initial_value=0.1).named("w")
    start = ng.constant(np.zeros(4, "f"), [C]) * ng.sum(x, out_axes=[C, N])
    end, _ = ng.scan(lambda c, s: (ng.tanh(ng.dot(w, ng.cast_axes(c, [C - 1, N])) + s), c), start, x, axis=T)
    loss = ng.mean(end * end, out_axes=()) + ng.mean(ng.uniform([C]), out_axes=())
    turns, _ = ng.while_loop(lambda c: c[0] < 10.0, lambda c: (c[0] * 2.0 + 1.0, c[1]), (loss, loss))
    flat = ng.flatten(x[1:4:2])
    return [loss, turns, ng.sum(flat, out_axes=()), ng.assign(w, w - ng.deriv(loss, w))], [x], [np.ones((5, 4, 3), "f")]


class Model:
    def __init__(self, build):
        self.roots, self.parameters, self.arguments = build()
        self.transformer = ngt.make_transformer()
        self.run = self.transformer.computation(self.roots, *self.parameters)
        for _ in range(3):
            self.run(*self.arguments)
        with tempfile.TemporaryDirectory() as folder:
            self.transformer.save(os.path.join(folder, "w"))
            with open(os.path.join(folder, "w"), "rb") as file:
                self.weights = file.read()


MODELS = [Model(perceptron), Model(recurrent)]

# ---- how ----------------------------------------------------------------------------------------------------------------

INTEGERS = [0, -1, 1, 2, 3, 255, 2**31, -(2**31), 2**32 - 1, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, 10**30, 10**300, -(10**18)]
SCRAPS = [None, True, False, "", "x", "float32", "bool", "W", "\ud800", "é" * 40, [], {}, [[]], {"": None}, 1e308, -0.0, 0.5, [0] * 50]


def junk(draw):
    return draw.choice(INTEGERS) if draw.random() < 0.5 else copy.deepcopy(draw.choice(SCRAPS))


def deep(draw):
    made = junk(draw)
    for _ in range(draw.choice([3, 60, 2000])):
        made = [made] if draw.random() < 0.5 else {"list": made}
    return made


def places(tree):
    """Every (container, key) in a tree of lists and dicts."""
    found, todo = [], [tree]
    while todo:
        x = todo.pop()
        if isinstance(x, (list, dict)):
            for k in range(len(x)) if isinstance(x, list) else list(x):
                found.append((x, k))
                todo.append(x[k])
    return found


def changed_tree(tree, draw):
    """A few values replaced, removed, doubled, renamed or exchanged."""
    tree = json.loads(json.dumps(tree))
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        every = places(tree)
        if not every:
            return tree
        (box, key), (other, place) = draw.choice(every), draw.choice(every)
        kind = draw.randrange(8)
        if kind == 0:
            box[key] = junk(draw)
        elif kind == 1:
            del box[key]
        elif kind == 2 and isinstance(box, list):
            box.insert(key, box[key])
        elif kind == 3:
            box[key] = json.loads(json.dumps(other[place]))
        elif kind == 4 and isinstance(box, dict):
            box[draw.choice(["", "x", str(place)])] = box.pop(key)
        elif kind == 5:
            box[key], other[place] = json.loads(json.dumps(other[place])), json.loads(json.dumps(box[key]))
        elif kind == 6 and draw.random() < 0.1:
            box[key] = deep(draw)
        elif isinstance(box[key], int):
            box[key] += draw.choice([-1, 1, 2**31])
        else:
            box[key] = junk(draw)
    return tree


def changed_bytes(data, draw):
    """Bits turned, and stretches cut out, doubled, moved, or put in."""
    data = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 5, 20])):
        at, to = sorted(draw.randrange(len(data) + 1) for _ in range(2))
        to = min(to, at + draw.choice([1, 4, 30, 1000]))
        kind = draw.randrange(8)
        if kind == 0 and data:
            data[at - 1] ^= 1 << draw.randrange(8)
        elif kind == 1 and data:
            data[at - 1] = draw.choice([0, 255, 0x22, 0x5B, 0x7B, 0x2C, draw.randrange(256)])
        elif kind == 2:
            del data[at:to]
        elif kind == 3:
            data[at:at] = data[at:to]
        elif kind == 4:
            data[at:to] = draw.randbytes(to - at)
        elif kind == 5:
            data[at:at] = str(draw.choice(INTEGERS)).encode()
        elif kind == 6:
            del data[to:]
        else:
            data[at:at] = draw.choice([b"[", b"(", b"{", b'"', b"-", b"%", b"\n", b"\\"]) * draw.choice([1, 3, 200, 5000])
    return bytes(data)


def changed_lines(source, draw):
    """Lines and words cut out, doubled, exchanged, or put in the place of others."""
    lines = source.split("\n")
    for _ in range(draw.choice([1, 1, 2, 5])):
        k, other = draw.randrange(len(lines)), draw.randrange(len(lines))
        kind = draw.randrange(6)
        if kind == 0:
            del lines[k]
            lines = lines or [""]
        elif kind == 1:
            lines.insert(k, lines[other])
        elif kind == 2:
            lines[k], lines[other] = lines[other], lines[k]
        else:
            words = lines[k].replace("[", " [ ").replace("]", " ] ").replace(",", " , ").replace("(", " ( ").replace(")", " ) ").split(" ")
            others = lines[other].replace("[", " [ ").replace(",", " , ").split(" ")
            words[draw.randrange(len(words))] = draw.choice([draw.choice(others), str(draw.choice(INTEGERS)), "", "%0", "nan", "((((", "{"])
            lines[k] = " ".join(words)
    return "\n".join(lines)


# ---- each format: what is changed, how it is read -----------------------------------------------------------------------


class Text:
    """Programs as text, before and after passes."""

    def __init__(self):
        self.programs = [p for m in MODELS for p in (m.run.lowered, m.run.program)]
        self.cases = [(programs.text(p), programs.arrays(p)) for p in self.programs]

    def mutant(self, draw):
        source, arrays = draw.choice(self.cases)
        if draw.random() < 0.5:
            return changed_bytes(source.encode(), draw).decode(errors="replace"), arrays
        return changed_lines(source, draw), arrays

    def read(self, mutant):
        program = programs.parse(*mutant)
        again = programs.parse(programs.text(program), programs.arrays(program))
        assert programs.equal(program, again)
        return program


class Json:
    """Programs as JSON, arrays inside."""

    def __init__(self):
        self.cases = [programs.to_json(p) for m in MODELS for p in (m.run.lowered, m.run.program)]
        self.cases = [(c, json.dumps(c).encode()) for c in self.cases]

    def mutant(self, draw):
        tree, data = draw.choice(self.cases)
        return changed_bytes(data, draw) if draw.random() < 0.3 else json.dumps(changed_tree(tree, draw)).encode()

    def read(self, mutant):
        return programs.from_json(mutant)


class Graph(Json):
    """Op-graphs as JSON, arrays inside."""

    def __init__(self):
        self.cases = [graphs.dumps(m.roots) for m in MODELS]
        self.cases = [(json.loads(c), c.encode()) for c in self.cases]

    def read(self, mutant):
        roots = graphs.loads(mutant)
        graphs.text(roots)
        return None


class Weights:
    """State as safetensors, read into a transformer that has this state."""

    allowed = (ParseError, StateError)

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "w")

    def mutant(self, draw):
        model = draw.choice(MODELS)
        data = model.weights
        size = int.from_bytes(data[:8], "little")
        if draw.random() < 0.5:
            return model, changed_bytes(data[: 8 + size] if draw.random() < 0.7 else data, draw) + data[8 + size :]
        header = json.dumps(changed_tree(json.loads(data[8 : 8 + size]), draw)).encode()
        length = draw.choice([len(header)] * 8 + [2**63, 2**64 - 1, 100 << 20, 0, len(header) + 1, len(data) * 2])
        return model, length.to_bytes(8, "little") + header + data[8 + size :]

    def read(self, mutant):
        model, data = mutant
        with open(self.path, "wb") as file:
            file.write(data)
        before = {v: model.transformer.get(v).tobytes() for v in model.transformer.state.names.values()}
        try:
            model.transformer.restore(self.path)
        except NgraphError:
            assert before == {v: model.transformer.get(v).tobytes() for v in before}, "refused, and changed all the same"
            raise
        for v in before:
            array = model.transformer.get(v)
            assert array.shape == v.axes.lengths and array.dtype == v.dtype.np
            assert v.dtype.kind != "bool" or array.view(np.uint8).max(initial=0) <= 1
        return None


FORMATS = {"text": Text, "program": Json, "graph": Graph, "weights": Weights}


def out_of_memory(error):
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def main(name, count, seed):
    """Prints what became of the mutants, as JSON; a traceback for the first that went wrong."""
    kind = FORMATS[name]()
    allowed = getattr(kind, "allowed", (ParseError,))
    pages = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (pages + SPARE, resource.RLIM_INFINITY))
    told = {"read": 0, "valid": 0, "refused": 0, "slowest": 0.0}
    start_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for k in range(count):
        draw = random.Random(f"{name} {seed} {k}")
        sys.setrecursionlimit(20_000)  # for the one who nests, not for the one who reads
        mutant = kind.mutant(draw)
        sys.setrecursionlimit(1000)
        start = time.perf_counter()
        try:
            program = kind.read(mutant)
            told["read"] += 1
            if program is not None:
                try:
                    verify(program)
                    told["valid"] += 1
                except NgraphError:
                    pass
        except allowed as error:
            told["refused"] += 1
            assert len(str(error)) > 20 and not out_of_memory(error), f"mutant {k}: {error}"
        except BaseException:
            traceback.print_exc()
            sys.exit(f"mutant {k} of {name}, seed {seed}")
        took = time.perf_counter() - start
        told["slowest"] = max(told["slowest"], took)
        assert took < SLOW, f"mutant {k} took {took} s"
    told["grown MiB"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start_memory) / 1024
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
