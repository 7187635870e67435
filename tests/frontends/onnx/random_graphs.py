"""Random ONNX graphs, a node at a time, with inputs for them: `Made(pick, number, shuffled, seed)`."""

import numpy as np
from onnx import TensorProto, numpy_helper
from onnx import helper as h

KINDS = {np.float32: TensorProto.FLOAT, np.int64: TensorProto.INT64, np.bool_: TensorProto.BOOL, np.int32: TensorProto.INT32}
UNARY = "Relu Tanh Neg Abs Sigmoid Erf Sin Cos Softplus Softsign Elu HardSigmoid LeakyRelu Gelu Identity Selu HardSwish Mish".split()
BINARY = "Add Sub Mul Max Min".split()
STEEP = "Floor Ceil Round Sign".split()  # of what has been rounded they may give anything
REDUCE = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceL1 ReduceSumSquare".split()
COMPARE = "Less Greater Equal LessOrEqual GreaterOrEqual".split()


class Made:
    """A graph that grows: values with their arrays' shapes and types; `exact` are those whose bits rounding has not touched."""

    def __init__(self, pick, number, shuffled, seed):
        """pick(*options), number(low, high) and shuffled(sequence) choose; `seed` is for arrays."""
        self.pick, self.number, self.shuffled = pick, number, shuffled
        self.nodes, self.held, self.inputs, self.feeds = [], {}, [], {}
        self.shapes, self.types, self.exact = {}, {}, set()
        self.random = np.random.default_rng(seed)

    def names(self, dtype=np.float32, rank=0, exact=False):
        return [n for n, t in self.types.items() if t is dtype and len(self.shapes[n]) >= rank and (not exact or n in self.exact)]

    def value(self, dtype=np.float32, rank=0, exact=False):
        found = self.names(dtype, rank, exact)
        return self.pick(*found) if found else self.input(dtype, rank)

    def array(self, shape, dtype=np.float32):
        if dtype is np.float32:
            return self.random.uniform(-2, 2, shape).astype(dtype)
        return self.random.integers(0, 2 if dtype is np.bool_ else 5, shape).astype(dtype)

    def input(self, dtype=np.float32, rank=0):
        """A new input; its dims are known, or open."""
        shape = tuple([self.pick(1, 2, 3, 4, 5) for _ in range(self.number(max(rank, 1), max(rank, 4)))])
        return self.given(self.array(shape, dtype))

    def given(self, array):
        """A new input, for which this array is fed."""
        name, shape, dtype = f"x{len(self.inputs)}", array.shape, array.dtype.type
        dims = [f"{name}_{k}" if self.pick(True, False) else n for k, n in enumerate(shape)]
        self.inputs.append(h.make_tensor_value_info(name, KINDS[dtype], dims))
        self.feeds[name] = array
        return self.note(name, shape, dtype, True)

    def note(self, name, shape, dtype, exact):
        self.shapes[name], self.types[name] = tuple(shape), dtype
        self.exact |= {name} if exact else set()
        return name

    def constant(self, array):
        name = f"c{len(self.held)}"
        self.held[name] = np.asarray(array)
        return name

    def node(self, op, inputs, shape, dtype=np.float32, exact=False, **attrs):
        name = f"v{len(self.nodes)}"
        self.nodes.append(h.make_node(op, inputs, [name], **attrs))
        return self.note(name, shape, dtype, exact and all(i in self.exact or i in self.held for i in inputs if i))

    # ---- one step of each kind
    def unary(self):
        x = self.value()
        return self.node(self.pick(*UNARY), [x], self.shapes[x])

    def steep(self):
        x = self.value(exact=True)
        return self.node(self.pick(*STEEP), [x], self.shapes[x], exact=True)

    def other(self, x, dtype=np.float32):
        """Something that broadcasts with x: a value with the same tail, or a constant."""
        shape = self.shapes[x]
        fit = [n for n in self.names(dtype) if all(a == b or 1 in (a, b) for a, b in zip(self.shapes[n][::-1], shape[::-1], strict=False))]
        if fit and self.pick(True, False):
            return (found := self.pick(*fit)), self.shapes[found]
        some = tuple([self.pick(n, 1) for n in shape[self.number(0, len(shape)) :]])
        return self.constant(self.array(some, dtype)), some

    def binary(self):
        x = self.value()
        y, shape = self.other(x)
        both = [x, y] if self.pick(True, False) else [y, x]
        return self.node(self.pick(*BINARY), both, np.broadcast_shapes(shape, self.shapes[x]))

    def compare(self):
        x = self.value(exact=True)
        y = self.constant(self.array(self.shapes[x][-1:]))
        return self.node(self.pick(*COMPARE), [x, y], self.shapes[x], np.bool_, exact=True)

    def where(self):
        c = self.value(np.bool_)
        x, y = (self.constant(self.array(self.shapes[c][k:])) for k in (0, 1))
        return self.node("Where", [c, x, y], self.shapes[c])

    def cast(self):
        x = self.value(np.int64 if self.names(np.int64) else np.bool_, exact=True)
        return self.node("Cast", [x], self.shapes[x], exact=True, to=TensorProto.FLOAT)

    def matmul(self):
        x = self.value(rank=1)
        k = self.shapes[x][-1]
        w = self.constant(self.array((k, self.number(1, 6))))
        return self.node("MatMul", [x, w], (*self.shapes[x][:-1], self.held[w].shape[1]))

    def gemm(self):
        x = self.value(rank=2)
        if len(self.shapes[x]) != 2:
            x = self.node("Flatten", [x], (self.shapes[x][0], int(np.prod(self.shapes[x][1:]))), axis=1, exact=True)
        n = self.number(1, 5)
        w, b = self.constant(self.array((n, self.shapes[x][1]))), self.constant(self.array((n,)))
        return self.node("Gemm", [x, w, b], (self.shapes[x][0], n), transB=1, alpha=0.5)

    def transpose(self):
        x = self.value(rank=1)
        order = self.shuffled(range(len(self.shapes[x])))
        return self.node("Transpose", [x], [self.shapes[x][k] for k in order], exact=True, perm=list(order))

    def reshape(self):
        x = self.value(rank=1)
        shape = list(self.shapes[x])
        k = self.number(0, len(shape) - 1)
        if len(shape) > 1 and self.pick(True, False):
            new = [*shape[:k], -1] if k else [-1]
        else:
            new = [*shape[:k], 1, *shape[k:]]
        full = [int(np.prod(shape[k:])) if d == -1 else d for d in new]
        return self.node("Reshape", [x, self.constant(np.array(new, np.int64))], full, exact=True)

    def shaped(self):
        """Shape → Gather → Concat → Reshape, as exporters write it."""
        x = self.value(rank=2)
        s = self.node("Shape", [x], (len(self.shapes[x]),), np.int64)
        first = self.node("Gather", [s, self.constant(np.array([0]))], (1,), np.int64)
        shape = self.node("Concat", [first, self.constant(np.array([-1]))], (2,), np.int64, axis=0)
        for name in (s, first, shape):
            del self.types[name]
        return self.node("Reshape", [x, shape], (self.shapes[x][0], int(np.prod(self.shapes[x][1:]))), exact=True)

    def axis(self, x):
        return self.number(-len(self.shapes[x]), len(self.shapes[x]) - 1)

    def concat(self):
        x = self.value(rank=1)
        k = self.axis(x) % len(self.shapes[x])
        fit = [n for n in self.names() if len(self.shapes[n]) == len(self.shapes[x])]
        fit = [n for n in fit if all(a == b or j == k for j, (a, b) in enumerate(zip(self.shapes[n], self.shapes[x], strict=True)))]
        y = self.pick(*fit)
        shape = list(self.shapes[x])
        shape[k] += self.shapes[y][k]
        return self.node("Concat", [x, y], shape, exact=True, axis=k)

    def slice(self):
        x = self.value(rank=1)
        k, shape = self.axis(x), list(self.shapes[x])
        start, end, step = self.number(-4, 4), self.pick(-9, -1, 2, 3, 9), self.pick(1, 2, -1)
        shape[k] = len(range(*slice(start, end, step).indices(shape[k])))
        if not shape[k]:
            return x
        ends = [self.constant(np.array([v])) for v in (start, end, k, step)]
        return self.node("Slice", [x, *ends], shape, exact=True)

    def gather(self):
        x = self.value(rank=1)
        k, shape = self.axis(x) % len(self.shapes[x]), self.shapes[x]
        at = self.random.integers(-shape[k], shape[k], self.pick((), (2,), (2, 3)))
        index = self.given(at) if self.pick(True, False) else self.constant(at)
        return self.node("Gather", [x, index], (*shape[:k], *at.shape, *shape[k + 1 :]), exact=True, axis=k)

    def pad(self):
        x = self.value(rank=1)
        shape, mode = self.shapes[x], self.pick("constant", "edge")
        pads = [self.number(0, 2) for _ in range(2 * len(shape))]
        full = [n + a + b for n, a, b in zip(shape, pads, pads[len(shape) :], strict=False)]
        return self.node("Pad", [x, self.constant(np.array(pads))], full, exact=True, mode=mode)

    def expand(self):
        x = self.value()
        shape = (2, *[n if n > 1 else self.number(1, 3) for n in self.shapes[x]])
        return self.node("Expand", [x, self.constant(np.array(shape))], shape, exact=True)

    def reduce(self):
        x = self.value(rank=1)
        k, keep = self.axis(x) % len(self.shapes[x]), self.pick(0, 1)
        shape = [*self.shapes[x][:k], *[1] * keep, *self.shapes[x][k + 1 :]]
        return self.node(self.pick(*REDUCE), [x, self.constant(np.array([k]))], shape, keepdims=keep)

    def softmax(self):
        x = self.value(rank=1)
        return self.node(self.pick("Softmax", "LogSoftmax"), [x], self.shapes[x], axis=self.axis(x))

    def normalize(self):
        x = self.value(rank=1)
        g = self.constant(self.array(self.shapes[x][-1:]))
        return self.node("LayerNormalization", [x, g], self.shapes[x], axis=-1, epsilon=0.1)

    def argmax(self):
        x = self.value(rank=1, exact=True)
        k = self.axis(x) % len(self.shapes[x])
        shape = [1 if j == k else n for j, n in enumerate(self.shapes[x])]
        return self.node(self.pick("ArgMax", "ArgMin"), [x], shape, np.int64, exact=True, axis=k)

    def cumulative(self):
        x = self.value(rank=1)
        return self.node(
            "CumSum", [x, self.constant(np.array(self.axis(x)))], self.shapes[x], reverse=self.pick(0, 1), exclusive=self.pick(0, 1)
        )

    def window(self):
        """A convolution or a pooling over two dims."""
        x = self.value(rank=4)
        if len(self.shapes[x]) != 4:
            return x
        n, c, *size = self.shapes[x]
        kernel, stride, pads = [self.number(1, 3) for _ in size], [self.number(1, 2) for _ in size], [self.number(0, 1) for _ in range(4)]
        pads = [min(p, k - 1) for p, k in zip(pads, [*kernel, *kernel], strict=True)]
        out = [(s + a + b - k) // t + 1 for s, a, b, k, t in zip(size, pads, pads[2:], kernel, stride, strict=False)]
        if min(s + a + b - k for s, a, b, k in zip(size, pads, pads[2:], kernel, strict=False)) < 0:
            return x
        attrs = {"kernel_shape": kernel, "strides": stride, "pads": pads}
        op = self.pick("Conv", "MaxPool", "AveragePool")
        if op != "Conv":
            return self.node(op, [x], (n, c, *out), **attrs)
        k = self.number(1, 4)
        return self.node("Conv", [x, self.constant(self.array((k, c, *kernel))), self.constant(self.array((k,)))], (n, k, *out), **attrs)


STEPS = [name for name in vars(Made) if name in (
    "unary steep binary compare where cast matmul gemm transpose reshape shaped concat slice gather pad expand reduce softmax normalize "
    "argmax cumulative window"
).split()]  # fmt: skip


def model_of(made):
    """The model of a graph that has grown, whose last values are its outputs, and inputs for it."""
    if not made.nodes:
        made.unary()
    last = [n for n in list(made.types)[::-1] if n.startswith("v") and np.prod(made.shapes[n]) < 5000][:3]
    if not last:
        last = [made.node("Identity", [next(iter(made.feeds))], made.shapes[next(iter(made.feeds))])]
    outputs = [h.make_tensor_value_info(n, KINDS[made.types[n]], None) for n in last]
    held = [numpy_helper.from_array(a, n) for n, a in made.held.items()]
    graph = h.make_graph(made.nodes, "random", made.inputs, outputs, held)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=9), made.feeds
