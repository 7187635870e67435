"""Random ONNX graphs, exports of PyTorch and scikit-learn models, and ngraph's graphs written as ONNX, compared with ONNX Runtime.

A case: {"what": "graph", "seed": s, "rank": r, "steps": [[name, seed], …], "transformer": name}, or {"what": "torch" or "sklearn",
"model": name, "seed": s, "batches": [n, …], "transformer": name}: exported with one batch length, run with others.
A graph that is read is also written again, and the written file must give the same results in ONNX Runtime.
"""

import copy
import functools
import io
import os
import random
import sys
import tempfile
import warnings

import numpy as np
import onnxruntime
import torch

import ngraph as ng
import ngraph.transformers as ngt

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "frontends", "onnx"))
from random_graphs import STEPS, Made, model_of

torch.set_num_threads(1)
onnxruntime.set_default_logger_severity(4)


# ---- models ---------------------------------------------------------------------------------------------------------------


def graph(case):
    """Returns (model, feeds): each step has a seed of its own, so that the others stay the same without it."""
    r = random.Random()
    shuffled = lambda sequence: r.sample(list(sequence), len(sequence))
    made = Made(lambda *options: r.choice(options), r.randint, shuffled, case["seed"])
    r.seed(case["seed"])
    made.input(rank=case["rank"])
    for name, seed in case["steps"]:
        r.seed(seed)
        getattr(made, name)()
    model, feeds = model_of(made)
    return model.SerializeToString(), [feeds]


class Residual(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.norm, self.second = torch.nn.Linear(width, 2 * width), torch.nn.LayerNorm(width), torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.second(torch.nn.functional.gelu(self.first(self.norm(x))))


class Last(torch.nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        return self.cell(x)[0]


nn = torch.nn
MODULES = {  # a module and the shape of an example
    "perceptron": (lambda: nn.Sequential(nn.Linear(7, 13), nn.ReLU(), nn.Linear(13, 3), nn.Softmax(-1)), (7,)),
    "residual": (lambda: Residual(12), (5, 12)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 8, 3, groups=8), nn.AvgPool2d(2)),
        (3, 17, 13),
    ),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 3, 2, 1), nn.ELU(), nn.Upsample(scale_factor=2)), (4, 6, 5)),
    "sound": (lambda: nn.Sequential(nn.Conv1d(2, 6, 5, dilation=2), nn.GLU(1), nn.AdaptiveAvgPool1d(1), nn.Flatten()), (2, 40)),
    "lstm": (lambda: Last(nn.LSTM(5, 7, 2, batch_first=True, bidirectional=True)), (9, 5)),
    "gru": (lambda: Last(nn.GRU(4, 6, batch_first=True)), (11, 4)),
}
ESTIMATORS = ("LogisticRegression", "SVC", "RandomForestClassifier", "GradientBoostingRegressor", "KNeighborsClassifier", "MLPRegressor")


@functools.lru_cache(64)
def exported(name, seed):
    """Returns the bytes of a PyTorch module with an unknown batch length."""
    make, shape = MODULES[name]
    torch.manual_seed(seed)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = make().eval()
        options = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": {0: "n"}, "y": {0: "n"}}}
        torch.onnx.export(module, (torch.randn(2, *shape),), buffer, opset_version=17, dynamo=False, **options)
    return buffer.getvalue()


@functools.lru_cache(64)
def fitted(name, seed):
    """Returns the bytes of a pipeline of scikit-learn, and its number of features."""
    from skl2onnx import to_onnx
    from sklearn import ensemble, linear_model, neighbors, neural_network, pipeline, preprocessing, svm

    draw = np.random.default_rng(seed)
    n = int(draw.integers(2, 9))
    x = draw.normal(size=(60, n)).astype(np.float32)
    y = (x.sum(1) > 0).astype(int) + (x[:, 0] > 1)
    rooms = (ensemble, linear_model, neighbors, neural_network, svm)
    made = next(getattr(room, name) for room in rooms if hasattr(room, name))()
    scaler = [preprocessing.StandardScaler(), preprocessing.MinMaxScaler(), preprocessing.PolynomialFeatures(2)][seed % 3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = pipeline.make_pipeline(scaler, made.set_params(**({"max_iter": 30} if "MLP" in name else {}))).fit(x, y)
        options = {id(made): {"zipmap": False}} if hasattr(made, "classes_") else {}
        return to_onnx(whole, x[:1], options=options, target_opset=17).SerializeToString(), n


def model(case):
    """Returns (bytes of a model, feeds to run in sequence)."""
    if case["what"] == "graph":
        return graph(case)
    draw = np.random.default_rng(case["seed"])
    if case["what"] == "torch":
        content, shape = exported(case["model"], case["seed"] % 5), MODULES[case["model"]][1]
        return content, [{"x": draw.normal(size=(n, *shape)).astype(np.float32)} for n in case["batches"]]
    content, n = fitted(case["model"], case["seed"] % 6)
    return content, [{"X": draw.normal(size=(k, n)).astype(np.float32)} for k in case["batches"]]


# ---- both sides -------------------------------------------------------------------------------------------------------------


def session(content):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def differs(got, wanted):
    """Returns a sentence about a wrong output; None where it is right within some hundred roundings of its largest number."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
        return f"{got.dtype}{got.shape} in place of {wanted.dtype}{wanted.shape}"
    if wanted.dtype.kind != "f":
        wrong = got != wanted
    else:
        largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=1)
        with np.errstate(invalid="ignore"):
            near = np.abs(got - wanted) <= 1e-4 * np.abs(wanted) + 2e-5 * largest
        wrong = ~(near | (got == wanted) | ((got != got) & (wanted != wanted)))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} numbers are wrong, the first at {at}: {got[at]} in place of {wanted[at]}"


def check(case):
    """Returns a sentence about the first output of ngraph that differs from ONNX Runtime's; None where they agree."""
    content, feeds = model(case)
    theirs = session(content)
    mine = ng.onnx.load(content, ngt.make_transformer_factory(case["transformer"])())
    for feed in feeds:
        wanted = theirs.run(None, feed)
        for port, g, w in zip(mine.outputs, mine.run(None, feed), wanted, strict=True):
            found = differs(g, w)
            if found:
                shapes = ", ".join(f"{k} {v.shape}" for k, v in feed.items())
                return f"{port} of {shapes}: {found}"
    if not case.get("written"):
        return None
    with tempfile.TemporaryDirectory() as folder:
        # for these lengths: a graph whose constants fit no others cannot be written with open ones
        ng.onnx.save(mine, os.path.join(folder, "written.onnx"), shapes={k: v.shape for k, v in feeds[0].items()})
        with open(os.path.join(folder, "written.onnx"), "rb") as file:
            again = session(file.read())
    names = [i.name for i in again.get_inputs()]
    for feed in feeds:
        for k, (g, w) in enumerate(zip(again.run(None, dict(zip(names, feed.values(), strict=True))), theirs.run(None, feed), strict=True)):
            found = differs(g, w)
            if found:
                return f"output {k} of the file that was written: {found}"
    return None


# ---- drawing cases, and making them smaller -------------------------------------------------------------------------------------


def draw(seed):
    """Returns a graph of one to fourteen steps, seldom an export."""
    r = random.Random(seed)
    transformer = r.choice(["direct", "direct", "numpy", "cpu"])
    x = r.random()
    if x < 0.9:
        steps = [[r.choice(STEPS), r.randrange(10**6)] for _ in range(r.randint(1, 14))]
        return {
            "what": "graph",
            "seed": r.randrange(10**6),
            "rank": r.randint(1, 4),
            "steps": steps,
            "transformer": transformer,
            "written": r.random() < 0.25,
        }
    batches = [r.choice([1, 2, 3, 5, 17]) for _ in range(3)]
    what, models = ("torch", list(MODULES)) if x < 0.95 else ("sklearn", ESTIMATORS)
    return {"what": what, "model": r.choice(models), "seed": r.randrange(10**6), "batches": batches, "transformer": transformer}


def smaller(case):
    """Yields fewer steps, fewer calls, the plainest transformer."""
    if case["transformer"] != "direct":
        yield {**case, "transformer": "direct"}
    if case.get("written"):
        yield {**case, "written": False}
    for k in range(len(case.get("steps", ()))):
        made = copy.deepcopy(case)
        del made["steps"][k]
        yield made
    for k in range(len(case.get("batches", ()))):
        if len(case["batches"]) > 1:
            yield {**case, "batches": [n for j, n in enumerate(case["batches"]) if j != k]}
    if case.get("rank", 1) > 1:
        yield {**case, "rank": 1}


def program(case):
    """Returns the case as a program, with its nodes."""
    nodes = ""
    if case["what"] == "graph":
        import onnx

        proto = onnx.load_from_string(model(case)[0])
        nodes = "".join(f"# {n.op_type}({', '.join(n.input)}) -> {n.output[0]}\n" for n in proto.graph.node)
    return f"{nodes}from hunt.files import check\n\ncase = {case!r}\nprint(check(case))\n"
