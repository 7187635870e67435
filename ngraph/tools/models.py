"""The verbs for ONNX model files: `info`, `check`, `run`, `bench`, `diff`, `convert`.

ngraph run model.onnx --inputs in.npz --outputs out.npz
ngraph bench model.onnx --shape x:1,3,224,224 --against onnxruntime,openvino
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np

from ngraph.errors import NgraphError, UnsupportedError
from ngraph.frontends.positional import formats
from ngraph.op_graph.files import told
from ngraph.tools.files import check_output, existing, model_file, number_from, read_arrays, write_arrays
from ngraph.verbs import Answer, UsageError, verb

Feeds = dict[str, np.ndarray[Any, Any]]


def model_path(path: str) -> str:
    """Returns the ONNX frontend, which needs its package. Raises UnsupportedError with the line that installs it."""
    return path if os.path.isdir(path) and formats.known(path) else model_file(path)


def loaded(path: str) -> Any:
    """The model of a file of any format."""
    return formats.of(path).load(path)


# ---- inputs -------------------------------------------------------------------------------------------------------------


def shapes_of(given: Sequence[str] | None, open_: bool = False) -> dict[str, tuple[int | None, ...]]:
    """Returns {input: shape} from `x:1,3,224,224`; `open_`: a `?` leaves a length unknown. Raises UsageError."""
    found: dict[str, tuple[int | None, ...]] = {}
    for text in given or ():
        name, colon, dims = text.rpartition(":")
        words = dims.split(",") if dims else []
        if not colon or not all(re.fullmatch(r"-?\d+", w) or (open_ and w == "?") for w in words):
            raise UsageError(f"{text!r} is not a shape; write it as input:1,3,224,224", fix="give the input's name, a colon, its lengths")
        if name in found:
            raise UsageError(f"{name} has two shapes, {list(found[name])} and [{dims}]", fix="give one --shape for each input")
        found[name] = tuple([None if w == "?" else int(w) for w in words])
    return found


def settled(model: Any, shapes: Mapping[str, Sequence[int | None]]) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """Returns the shape of each input, and the dims, such as `x.1`, that are 1 since neither the file nor `shapes` has their length."""
    unknown = [name for name in shapes if name not in {p.name for p in model.inputs}]
    if unknown:
        there = [p.name for p in model.inputs]
        raise UsageError(
            f"there is no input {', '.join(unknown)}; there are {', '.join(there)}", fix=f"as in --shape {there[0] if there else ''}:1,3"
        )
    found, assumed = {}, []
    for p in model.inputs:
        own = [d if isinstance(d, int) else None for d in p.shape or ()]
        dims = [*shapes[p.name]] if p.name in shapes else own
        if len(dims) == len(own):
            dims = [n if d is None else d for d, n in zip(dims, own, strict=True)]
        assumed += [f"{p.name}.{k}" for k, d in enumerate(dims) if d is None]
        found[p.name] = tuple([1 if d is None else d for d in dims])
    return found, assumed


def drawn(model: Any, shapes: Mapping[str, Sequence[int | None]], seed: int) -> Feeds:
    """Returns random inputs; dims that neither the file nor `shapes` determines are 1."""
    found, _ = settled(model, shapes)
    random = np.random.default_rng(seed)
    feeds = {}
    for p in model.inputs:
        shape: Any = found[p.name]
        if p.dtype is None or p.kind != "tensor" or p.dtype == np.dtype(object):
            raise UsageError(f"input {p} cannot be drawn at random; give it with --inputs")
        try:
            whole = p.dtype.kind in "iub"
            feeds[p.name] = (random.integers(0, 2, shape) if whole else random.uniform(-1, 1, shape)).astype(p.dtype)
        except (MemoryError, ValueError):
            raise UsageError(f"an input {p.name} of shape {list(shape)} cannot be made; say another with --shape") from None
    return feeds


def feeds_of(arguments: Any, model: Any) -> Feeds:
    """Returns the arrays of --inputs, else random inputs."""
    shapes = shapes_of(arguments.shape, open_=True)
    if arguments.inputs and shapes:
        raise UsageError("--shape is for random inputs, and --inputs brings others", fix="give one of them")
    return read_arrays(arguments.inputs) if arguments.inputs else drawn(model, shapes, arguments.seed)


@contextlib.contextmanager
def assuming(assumed: Sequence[str]) -> Iterator[None]:
    """Surrounds the first call on inputs with dims that were taken to be 1; an error of it says which, and how to give their lengths."""
    try:
        yield
    except NgraphError as error:
        if not assumed:
            raise
        name = assumed[0].rpartition(".")[0]
        said = str(error).splitlines()[0]
        one = "which has" if len(assumed) == 1 else "which have"
        raise NgraphError(
            f"with length 1 for {', '.join(assumed)}, {one} none in the file: {said}",
            fix=f"give lengths, as in --shape {name}:1,64 with a number for each dim of {name}, or arrays with --inputs",
        ) from error


def assumed_in(arguments: Any, model: Any) -> list[str]:
    """Returns the dims of random inputs that are 1 since nothing says their length."""
    return [] if arguments.inputs else settled(model, shapes_of(arguments.shape, open_=True))[1]


def inputs_of(parser: Any) -> None:
    model_of(parser)
    parser.add_argument("--inputs", metavar="IN.npz", type=existing, help="arrays named as the inputs; by default they are random")
    parser.add_argument("--shape", action="append", metavar="NAME:DIMS", help="the shape of a random input, as x:1,3,224,224")
    parser.add_argument("--seed", type=number_from(0), default=0, help="of random inputs (default: 0)")


def model_of(parser: Any) -> None:
    parser.add_argument("model", metavar="MODEL", type=model_path, help="a model file, such as .onnx")


# ---- info and check -----------------------------------------------------------------------------------------------------


@verb("info", "print what a model file contains", model_of)
def info(arguments: Any) -> Answer:
    """Runs `ngraph info model.onnx`: inputs, outputs, ops by count, opsets, parameters, and what cannot be translated."""
    found = formats.of(arguments.model).facts(arguments.model)
    parameters = sum(math.prod(shape) for shape in found.graph.arrays.values())
    ports = [[{"name": p.name, "type": p.type, "shape": p.shape} for p in group] for group in (found.inputs, found.outputs)]
    data = {
        "name": found.name,
        **found.data,
        "inputs": ports[0],
        "outputs": ports[1],
        "nodes": len(found.graph.nodes),
        "parameters": parameters,
        "ops": dict(found.ops.most_common()),
        "unsupported": found.refused,
    }
    about = [f"{len(found.graph.nodes):,} nodes", f"{parameters:,} parameters", *found.said]
    lines = [
        f"{found.name or arguments.model}: {', '.join(about)}",
        *(f"input   {p}" for p in found.inputs),
        *(f"output  {p}" for p in found.outputs),
        *(f"{count:6}  {op}" for op, count in found.ops.most_common()),
        *(f"cannot be translated: {text}" for text in found.refused),
    ]
    return Answer("\n".join(lines), data)


@verb("check", "print whether every node of a model can run; exits with 1 where not", model_of)
def check(arguments: Any) -> Answer:
    """Runs `ngraph check model.onnx`: everything that cannot be translated, at once."""
    found = formats.of(arguments.model).facts(arguments.model)
    if found.refused:
        count = len(found.refused)
        raise UnsupportedError(
            f"{count} node{'s' * (count > 1)} of {arguments.model} cannot be translated",
            details=tuple(found.refused),
            fix="`ngraph ops --onnx` lists what can be",
        )
    count = len(found.graph.nodes)
    return Answer(f"{arguments.model}: all {count:,} nodes can be run", {"nodes": count, "unsupported": []})


# ---- run ----------------------------------------------------------------------------------------------------------------


def _run(parser: Any) -> None:
    inputs_of(parser)
    parser.add_argument("--outputs", metavar="OUT.npz", help="where the outputs go, named as in the graph")


def plain(value: Any) -> Any:
    """Returns an output as an array that .npz files can hold."""
    array = np.asarray(value)
    return array.astype(str) if array.dtype == object else array


def shown(name: str, value: Any) -> str:
    if isinstance(value, np.ndarray):
        some = ", ".join(map(str, value.ravel()[:6])) + (", …" if value.size > 6 else "")
        return f"{name}: {value.dtype}{list(value.shape)} {some}"
    return f"{name}: {'nothing' if value is None else f'a list of {len(value)}'}"


FEW_VALUES = 16  # outputs of so many elements are printed as they are, larger ones as statistics


def _summary(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Returns dtype, shape, and the values of an output; of a large one how many are nan, and of the others least, mean and greatest."""
    about = {"dtype": str(array.dtype), "shape": array.shape}
    if array.size <= FEW_VALUES or array.dtype.kind not in "biuf":
        return {**about, "values": plain(array).tolist()} if array.size <= FEW_VALUES else about
    numbers = array.astype(np.float64)
    there = numbers[~np.isnan(numbers)]
    least, mean, greatest = (float(there.min()), float(there.mean()), float(there.max())) if there.size else (None, None, None)
    return {**about, "min": least, "mean": mean, "max": greatest, "nan": numbers.size - there.size}


@verb("run", "run a model on inputs from a file, or on random ones", _run)
def run(arguments: Any) -> Answer:
    """Runs `ngraph run model.onnx --inputs in.npz --outputs out.npz`."""
    check_output(arguments.outputs, ".npz", reads={"what --inputs names": arguments.inputs})
    model = loaded(arguments.model)
    feeds = feeds_of(arguments, model)
    with assuming(assumed_in(arguments, model)):
        results = model.run(feeds)
    if arguments.outputs:
        flat = {}
        for name, value in results.items():
            if isinstance(value, list):
                flat.update({f"{name}.{k}": plain(v) for k, v in enumerate(value)})
            elif value is not None:
                flat[name] = plain(value)
        write_arrays(arguments.outputs, flat)
    data = {name: _summary(v) for name, v in results.items() if isinstance(v, np.ndarray)}
    return Answer("\n".join(shown(name, value) for name, value in results.items()), data)


# ---- bench --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def refusing(name: str) -> Iterator[None]:
    """Surrounds calls of another runtime; raises UnsupportedError with its message where they fail."""
    try:
        yield
    except Exception as error:
        raise UnsupportedError(f"{name} does not run this: {str(error).splitlines()[0][:300]}", fix="measure without it") from error


def peer_onnxruntime(path: Any, threads: int) -> Callable[[Feeds], list[Any]]:
    ort = importlib.import_module("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if threads:
        options.intra_op_num_threads = threads
    with refusing("onnxruntime"):
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(feeds: Feeds) -> list[Any]:
        with refusing("onnxruntime"):
            found: list[Any] = session.run(None, feeds)
            return found

    return run


def peer_openvino(path: Any, threads: int) -> Callable[[Feeds], list[Any]]:
    ov = importlib.import_module("openvino")
    settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
    if threads:
        settings["INFERENCE_NUM_THREADS"] = threads
    with refusing("openvino"):
        request = ov.Core().compile_model(path, "CPU", settings).create_infer_request()

    def run(feeds: Feeds) -> list[Any]:
        with refusing("openvino"):
            return list(request.infer(feeds).values())

    return run


PEERS = {"onnxruntime": peer_onnxruntime, "openvino": peer_openvino}


def _bench(parser: Any) -> None:
    inputs_of(parser)
    parser.add_argument("-t", "--seconds", type=number_from(0, whole=False), default=5.0, help="how long to measure each (default: 5)")
    about = "how many threads the others may use; ours follow NGRAPH_NUM_THREADS"
    parser.add_argument("--threads", type=number_from(0), default=0, help=about)
    parser.add_argument("--against", metavar="NAMES", default="", help=f"measure others in turn with it: {', '.join(PEERS)}")
    about = "draw a length for each call: of a dim by its name in the file, in --shape x:1,w, or as x.1; /32: multiples of 32"
    parser.add_argument("--vary", action="append", metavar="NAME=FIRST..LAST[/STEP]", help=about)


MIN_VARIED_CALLS = 20  # of each runtime, however long they take


class Lengths:
    """Lengths of dims that change with every call: each of its name's range, drawn from a seed.

    Other dims without a length in the file have that of --shape or --inputs, else 1.
    """

    def __init__(self, arguments: Any, model: Any):
        self.model, self.texts, self.seed = model, arguments.shape or [], arguments.seed
        self.given = read_arrays(arguments.inputs) if arguments.inputs else {}
        self.assumed: list[str] = []  # dims of the last inputs that are 1 since nothing says their length
        self.ranges = dict([self._range(text) for text in arguments.vary])
        self.random = np.random.default_rng(self.seed)
        dims = {n for p in model.inputs for d, n in enumerate(p.shape or ()) for n in (n, f"{p.name}.{d}")}
        dims |= {word for text in self.texts for word in text.rpartition(":")[2].split(",")}
        lost = [name for name in self.ranges if name not in dims]
        if lost:
            fix = f"there are {', '.join(sorted(d for d in dims if isinstance(d, str) and not d.isdigit() and d != '?'))}"
            raise UsageError(f"no dim of an input is called {lost[0]}", fix=fix)

    @staticmethod
    def _range(text: str) -> tuple[str, range]:
        found = re.fullmatch(r"(.+)=(\d+)\.\.(\d+)(?:/([1-9]\d*))?", text)
        if found is None or int(found[2]) > int(found[3]):
            raise UsageError(f"{text!r} is not a range of lengths", fix="write it as --vary width=64..320")
        step = int(found[4] or 1)
        first = -(-int(found[2]) // step) * step
        if first > int(found[3]):
            why = f"{text!r}: no multiple of {step} is between {found[2]} and {found[3]}"
            raise UsageError(why, fix=f"take {found[1]}={step}..{4 * step}/{step}")
        return found[1], range(first, int(found[3]) + 1, step)

    def feeds(self) -> Feeds:
        """Returns the inputs of the next call: arrays of --inputs, repeated or cut to its lengths, else random ones."""
        shapes, self.assumed = settled(self.model, self.shapes())
        if not self.given:
            return drawn(self.model, shapes, self.seed)
        return {p.name: np.resize(self.given[p.name], shapes[p.name]) for p in self.model.inputs if p.name in self.given}

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """Draws the lengths of the next call; those that are not varied are those of --shape or --inputs, or the file's."""
        own = {name: int(self.random.choice(span)) for name, span in self.ranges.items()}
        texts = []
        for text in self.texts:
            name, colon, dims = text.rpartition(":")
            texts.append(f"{name}{colon}{','.join([str(own.get(w, w)) for w in dims.split(',')])}")
        shapes = shapes_of(texts, open_=True)
        for p in self.model.inputs:
            file = [*(p.shape or ())]
            known = shapes.get(p.name) or (self.given[p.name].shape if p.name in self.given else (None,) * len(file))
            if len(known) == len(file):
                known = tuple([own.get(n, d if d is not None or not isinstance(n, int) else n) for n, d in zip(file, known, strict=True)])
            shapes[p.name] = tuple([own.get(f"{p.name}.{k}", d) for k, d in enumerate(known)])
        return shapes


def varied(model: Any, peers: Mapping[str, Callable[[Feeds], Any]], lengths: Lengths, seconds: float) -> tuple[dict[str, list[float]], int]:
    """Returns times of calls whose lengths change, on the same inputs in turn, and how many of ours compiled something."""
    calls = {"ngraph": lambda feeds: model.run(None, feeds), **peers}
    times: dict[str, list[float]] = {name: [] for name in calls}
    compiled, end = 0, time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end or len(times["ngraph"]) < MIN_VARIED_CALLS:
        feeds, before = lengths.feeds(), model.transformer.compilations()
        for name, call in calls.items():
            start = time.perf_counter()
            call(feeds)
            times[name].append(time.perf_counter() - start)
        compiled += model.transformer.compilations() > before
    return times, compiled


def runtimes() -> dict[str, str | None]:
    """Returns the version of each runtime that can be measured against; None for those that are not installed."""
    found: dict[str, str | None] = {}
    for name in PEERS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def runtimes_said() -> str:
    """Returns a line that names the runtimes found and those that are missing."""
    return "runtimes: " + ", ".join(f"{name} {version or 'is not installed'}" for name, version in runtimes().items())


def figures(times: Sequence[float]) -> dict[str, float]:
    """Returns statistics in milliseconds: count, median, mean, percentiles, minimum and maximum."""
    t = np.array(times) * 1e3
    named = {"median": 50, "p90": 90, "p99": 99}
    return {
        "count": len(t),
        **{name: float(np.percentile(t, q)) for name, q in named.items()},
        "mean": float(t.mean()),
        "min": float(t.min()),
        "max": float(t.max()),
        "per second": float(1e3 / t.mean()),
    }


def measured(calls: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, list[float]]:
    """Returns times of each call, alternating in rounds, so that all run under the same conditions."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end:
        for name, call in calls.items():
            stop = time.perf_counter() + 0.05
            while True:
                start = time.perf_counter()
                call()
                now = time.perf_counter()
                times[name].append(now - start)
                if now > stop:
                    break
    return times


def disagreement(mine: Sequence[Any], theirs: Sequence[Any]) -> float:
    """Returns the largest difference between outputs; inf where shapes differ."""
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(mine, theirs, strict=True)]
    if any(a.shape != b.shape for a, b in pairs):
        return math.inf
    return max((float(np.abs(a.astype(np.float64) - b).max()) for a, b in pairs if a.size and a.dtype.kind in "fiub"), default=0.0)


@verb("bench", "measure how long a model takes, beside other runtimes if asked", _bench)
def bench(arguments: Any) -> Answer:
    """Runs `ngraph bench model.onnx -t 10 --against onnxruntime,openvino`."""
    others = [name for name in arguments.against.split(",") if name]
    unknown = [name for name in others if name not in PEERS]
    if unknown:
        raise UsageError(f"there is no {unknown[0]!r} to measure against", fix=f"there are {', '.join(PEERS)}")
    start = time.perf_counter()
    model = loaded(arguments.model)
    load = time.perf_counter() - start
    if arguments.shape and arguments.inputs:
        raise UsageError("--shape is for random inputs, and --inputs brings others", fix="give one of them")
    lengths = Lengths(arguments, model) if arguments.vary else None
    feeds = feeds_of(arguments, model) if lengths is None else lengths.feeds()
    assumed = assumed_in(arguments, model) if lengths is None else lengths.assumed
    start = time.perf_counter()
    with assuming(assumed):
        mine = model.run(None, feeds)
    first = time.perf_counter() - start
    peers: dict[str, Callable[[Feeds], Any]] = {}
    calls: dict[str, Callable[[], Any]] = {"ngraph": lambda: model.run(None, feeds)}
    apart: dict[str, float] = {}
    for name in others:
        try:
            peer = PEERS[name](formats.of(arguments.model).elsewhere(arguments.model), arguments.threads)
        except ImportError:
            raise UnsupportedError(f"{name} is not installed", fix=f"pip install {name}") from None
        apart[name] = disagreement(mine, peer(feeds))
        peers[name] = peer
        calls[name] = lambda peer=peer: peer(feeds)  # type: ignore[misc]  # a lambda with a default
    if lengths is None:
        for call in calls.values():
            call()
        times = measured(calls, arguments.seconds)
    else:
        times, compiled = varied(model, peers, lengths, arguments.seconds)
    found = {name: figures(t) for name, t in times.items()}
    for name in apart:
        found[name]["ratio"] = found[name]["median"] / found["ngraph"]["median"]
        found[name]["largest difference"] = apart[name]
    lines = [f"{', '.join(assumed)}: length 1, for the file has none; --shape gives others"] if assumed else []
    lines += [f"load {load * 1e3:.1f} ms, first call {first * 1e3:.1f} ms; then, in ms:"]
    columns = ("median", "mean", "p90", "p99", "min", "max")
    lines.append(f"{'':12}{'calls':>8}" + "".join(f"{c:>10}" for c in columns))
    for name, f in found.items():
        lines.append(f"{name:12}{f['count']:8.0f}" + "".join(f"{f[c]:10.3f}" for c in columns))
    lines += [f"{name} takes {found[name]['ratio']:.2f} times as long; outputs differ by at most {apart[name]:.2g}" for name in apart]
    inputs = {name: [str(a.dtype), list(a.shape)] for name, a in feeds.items()}
    lines.append(runtimes_said())
    data = {"load": load * 1e3, "first": first * 1e3, "inputs": inputs, "times": found, "runtimes": runtimes()}
    if lengths is not None:
        data["compiled"] = compiled
        lines.append(f"{compiled} of {len(times['ngraph'])} calls of ngraph after the first compiled something")
    return Answer("\n".join(lines), data)


# ---- diff ---------------------------------------------------------------------------------------------------------------


def _diff(parser: Any) -> None:
    parser.add_argument("a", metavar="A", type=model_path, help="a model file, such as .onnx")
    parser.add_argument("b", metavar="B", type=model_path, help="another, or the same, which then runs on ONNX Runtime")
    for option, more in (("--inputs", {"type": existing}), ("--shape", {"action": "append"})):
        parser.add_argument(option, **more)
    parser.add_argument("--seed", type=number_from(0), default=0, help="of random inputs (default: 0)")
    parser.add_argument("--rtol", type=number_from(0, whole=False), default=1e-3, help="the relative difference that is none (1e-3)")
    parser.add_argument("--atol", type=number_from(0, whole=False), default=1e-5, help="the absolute difference that is none (1e-5)")


@verb("diff", "find the first node in which two models, or two runtimes of one, differ", _diff)
def diff(arguments: Any) -> Answer:
    """Runs `ngraph diff`: compares every value of both, in the order of A's nodes, until one differs."""
    a, b = arguments.a, arguments.b
    format, mine = formats.of(a), loaded(a)
    nodes = [(n, o) for n in format.facts(a).graph.nodes for o in n.gives if o]
    same = content(a) == content(b) and (os.path.samefile(a, b) or not mine.reader.external())
    theirs = nodes if same else [(n, o) for n in formats.of(b).facts(b).graph.nodes for o in n.gives]
    values = [(n, o) for n, o in nodes if o in {name for _, name in theirs}]
    names = [o for _, o in values]
    if not names:
        raise NgraphError(f"{a} and {b} have no value of one name to compare", fix="give two versions of one model")
    feeds = feeds_of(arguments, mine)
    with assuming(assumed_in(arguments, mine)):
        got = dict(zip(names, mine.watched(names).run(None, feeds), strict=True))
    if same:
        found = peer_onnxruntime(format.elsewhere(a, names), 0)(feeds)
    else:
        found = loaded(b).watched(names).run(None, feeds)
    want = dict(zip(names, found, strict=True))
    for node, name in values:
        a, b = np.asarray(got[name]), np.asarray(want[name])
        if a.shape != b.shape or a.dtype != b.dtype:
            what = f"{a.dtype}{list(a.shape)} against {b.dtype}{list(b.shape)}"
        elif a.dtype.kind in "fiub" and not np.allclose(a, b, arguments.rtol, arguments.atol, True):
            what = f"by up to {disagreement([a], [b]):.3g}"
        else:
            what = ""
        if what:
            raise NgraphError(f"node {node.name or '?'} ({node.op}) is the first that differs: {name}, {what}")
    beside = "onnxruntime" if same else None
    said = f" with onnxruntime {runtimes()['onnxruntime']}'s" if same else ""
    return Answer(
        f"all {len(values):,} values agree{said}\n{runtimes_said()}", {"values": len(values), "against": beside, "runtimes": runtimes()}
    )


def content(path: str) -> bytes:
    """Returns the content of a file."""
    with told(path, "read"), open(path, "rb") as file:
        return file.read()


# ---- convert ------------------------------------------------------------------------------------------------------------


def _convert(parser: Any) -> None:
    parser.add_argument("model", metavar="A", type=model_path, help="a model file, such as .onnx")
    parser.add_argument("output", metavar="B", help="the .onnx file to be written; arrays beside it go into B.data")
    parser.add_argument("--opset", type=int, help="of ai.onnx, 13 to 28 (default: 20)")
    parser.add_argument("--shape", action="append", metavar="NAME:DIMS", help="fixes the lengths of an input, as x:?,3,224,224")
    parser.add_argument("--external", type=number_from(0), metavar="BYTES", help="put arrays of so many bytes or more beside the model")


@verb("convert", "rewrite a model: another opset, known lengths, arrays beside it", _convert)
def convert(arguments: Any) -> Answer:
    """Runs `ngraph convert a.onnx b.onnx --opset 17 --shape x:?,3,224,224`."""
    model, to = loaded(arguments.model), formats.of(arguments.output)
    folder = os.path.dirname(formats.of(arguments.model).main(arguments.model))
    reads = {"the file that is read": arguments.model} | {
        f"what {arguments.model} keeps beside it": os.path.join(folder, name) for name in model.reader.external()
    }
    for path, endings in ((arguments.output, tuple(filter(None, to.endings))), (f"{arguments.output}.data", ())):
        check_output(path, *endings, reads=reads)
    shapes = shapes_of(arguments.shape, open_=True)
    start = time.perf_counter()
    to.save(model, arguments.output, opset=arguments.opset, shapes=shapes, external=arguments.external)
    taken = time.perf_counter() - start
    old, new = formats.of(arguments.model).facts(arguments.model), to.facts(arguments.output)
    sizes = [(found.data.get("opsets", {}).get("ai.onnx"), len(found.graph.nodes)) for found in (old, new)]
    was, now = (f"{'' if opset is None else f'opset {opset}, '}{nodes:,}" for opset, nodes in sizes)
    text = f"{arguments.output}: {now} nodes ({arguments.model}: {was}), in {taken:.2f} s"
    return Answer(text, {"opset": sizes[1][0], "nodes": sizes[1][1], "from": {"opset": sizes[0][0], "nodes": sizes[0][1]}})
