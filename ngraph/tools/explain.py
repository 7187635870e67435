"""`ngraph explain prog.py:train --after simplify`: a computation of a user's program at any stage, as text or as a page.

Stages, in order: `op-graph`, `lower`, each pass by its name (`simplify.2` where it runs a second time, `scan.sink` in the body of a
loop), then `source`, or `plan`, `llvm` and `asm` for machine code. `#` precedes the rules that were applied to reach a stage.
`ngraph explain model.onnx` does the same for a model file, read for inputs of these shapes; where it is several computations with steps in
Python between them, the stages of the second start with `2.`, as in `2.lower`.
`ngraph explain folder --html -o pages` makes pages of the files of `DUMP=folder`. `ngraph explain prog.py:train --compare` runs each
kernel both as machine code and by the plan's interpreter, and shows the first that differs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ngraph.errors import nearest
from ngraph.frontends.positional import formats
from ngraph.op_graph.files import told
from ngraph.op_graph.op import Op, TensorType
from ngraph.runtime import dump
from ngraph.runtime.computation import Computation
from ngraph.runtime.dump import DumpedStage
from ngraph.tools.files import check_output, existing, number_from, read_arrays, write
from ngraph.tools.load import find
from ngraph.tools.models import assumed_in, assuming, feeds_of, loaded, model_path
from ngraph.tools.pages import contents, page
from ngraph.transformers import make_transformer
from ngraph.verbs import Answer, UsageError, verb

OPEN = 3  # the length, in random inputs, of an axis without one
STAGED, COMPARED = ("after", "list", "rules", "html", "output"), ("inputs", "seed")  # options for stages, and for --compare


def is_explainable(x: Any) -> bool:
    """Whether `x` is a computation, an executor, or an op with a value or an effect."""
    return isinstance(x, Computation | Op) or isinstance(getattr(x, "computation", None), Computation)


def computation_of(x: Any) -> Computation:
    """Returns the computation itself, that of an executor, or one of an op over all its placeholders on a new transformer."""
    if isinstance(x, Op):
        return make_transformer().computation(x, *(p for p in x.placeholders() if type(p.type) is TensorType), name=x.label)
    return x if isinstance(x, Computation) else x.computation


def stages(computation: Computation) -> list[DumpedStage]:
    """Returns every stage, in order."""
    native = computation.executable.native
    return dump.stages(computation.results.ops, computation.lowered, computation.history(), computation.source, native)


def listing(found: Sequence[DumpedStage]) -> str:
    """Returns the text of `--list`: each stage, its size, the seconds of its pass, and how many rules were applied to reach it."""
    widths = [max(len(w) for w in words) for words in zip(*[(s.name, s.unit) for s in found], strict=True)]
    fired = [sum(s.rules.values()) for s in found]
    lines = [
        f"{s.name:{widths[0]}}  {s.size:6} {s.unit:{widths[1]}}"
        + ("" if s.seconds is None else f"  {s.seconds * 1e3:8.2f} ms")
        + (f"  {n} rule{'s' * (n != 1)} fired" if n else "")
        for s, n in zip(found, fired, strict=True)
    ]
    lines = [line.rstrip() for line in lines]
    return "\n".join(lines)


def fired(stage: DumpedStage, every: bool = False) -> str:
    """Returns the applied rules as comments: each with its count, or every application."""
    lines = stage.fired.splitlines() if every else [f"{count:5} x  {rule}" for rule, count in stage.rules.items()]
    return "".join(f"# {line}\n" for line in lines) if stage.rules else ""


def _is_model(path: str) -> bool:
    return not path.endswith(".py") and formats.known(path)


def _target(path: str) -> str:
    return model_path(path) if _is_model(path) else path


def _arguments(parser: Any) -> None:
    parser.add_argument(
        "target",
        metavar="PROGRAM.py[:NAME]",
        type=_target,
        help="a program file, and in it a computation, executor or op; a model file, such as .onnx; or a DUMP folder",
    )
    parser.add_argument("--after", metavar="STAGE", help="op-graph, lower, a pass, source, plan, schedule, llvm or asm (default: all)")
    parser.add_argument("--list", action="store_true", help="only the names of the stages, their sizes, seconds and how many rules fired")
    parser.add_argument("--rules", action="store_true", help="every rule that fired, with the line of yours that it fired on")
    parser.add_argument("--html", action="store_true", help="a page, into FILE; of a DUMP folder, pages beside what it holds")
    parser.add_argument("--compare", action="store_true", help="run each kernel as the plan says, too, and show the first that differs")
    about = "what --compare runs on: arrays named as the placeholders, or the inputs of a model file, which is read for them"
    parser.add_argument("--inputs", metavar="IN.npz", type=existing, help=about)
    parser.add_argument("--shape", action="append", metavar="NAME:DIMS", help="the shape of a model file's input, as x:1,3,224,224")
    parser.add_argument("--seed", type=number_from(0), help="of random inputs, by default (default: 0)")
    parser.add_argument("-o", "--output", metavar="FILE", help="where the page goes, or the text")


@verb("explain", "print a computation of a program at any stage", _arguments)
def explain(arguments: Any) -> Answer:
    """Runs `ngraph explain`: one stage, or all under headings, as text or as a page; or compares the kernels."""
    of_file = _is_model(arguments.target)
    _check_options(arguments, of_file)
    if not of_file and os.path.isdir(arguments.target):
        return _explain_folder(arguments)
    source = arguments.target if of_file or os.path.exists(arguments.target) else arguments.target.rpartition(":")[0]
    check_output(arguments.output, reads={"what is explained": source, "what --inputs names": arguments.inputs})
    name, parts = _of_file(arguments) if of_file else _of_program(arguments)
    if arguments.compare:
        return _compared(name, parts)
    found = []
    for k, (computation, _) in enumerate(parts, 1):
        found += [s._replace(name=f"{k}.{s.name}" if k > 1 else s.name) for s in stages(computation)]
    there = [s.name for s in found]
    if arguments.after and arguments.after not in there:
        meant = nearest(arguments.after, there)
        fix = f"take {meant}" if meant else ""
        raise UsageError(f"{name} has no stage {arguments.after!r}; it has {', '.join(there)}", fix=fix)
    chosen = [s for s in found if arguments.after in (None, s.name)]
    data = [
        {
            "computation": name,
            "stage": s.name,
            "size": s.size,
            "unit": s.unit,
            "seconds": s.seconds,
            "rules": dict(s.rules),
            "text": s.text.rstrip("\n"),
        }
        for s in chosen
    ]
    if arguments.list:
        return Answer(listing(chosen), [{k: v for k, v in d.items() if k != "text"} for d in data])
    if arguments.html:
        path = arguments.output or f"{name}.html"
        return _written(path, page(name, found, arguments.after), data)
    texts = [fired(s, arguments.rules) + s.text.rstrip("\n") for s in chosen]
    text = texts[0] if arguments.after else "\n\n".join(f"---- {s.name}\n{t}" for s, t in zip(chosen, texts, strict=True))
    return _written(arguments.output, text + "\n", data) if arguments.output else Answer(text, data)


Part = tuple[Computation, Callable[[], Sequence[Any]]]  # a computation, and what gives arguments for it


def _of_program(arguments: Any) -> tuple[str, list[Part]]:
    """The computation that a program file defines."""
    made = computation_of(find(arguments.target, is_explainable, "computation", lambda x: not isinstance(x, Op)))

    def given() -> Sequence[Any]:
        return _given(made, arguments.inputs) if arguments.inputs else _drawn(made, arguments.seed or 0)

    return made.name, [(made, given)]


def _of_file(arguments: Any) -> tuple[str, list[Part]]:
    """The computations of a model file, for inputs of these shapes, in order. Raises UsageError where it has none."""
    arguments.seed = arguments.seed or 0
    model = loaded(arguments.target)
    slots = model.about.bound(feeds_of(arguments, model))
    with assuming(assumed_in(arguments, model)):
        parts: list[Part] = [(made, partial(list, given)) for made, given in model.reader.computations(slots)]
    if not parts:
        raise UsageError(f"{model.name or arguments.target} computes nothing: what it gives is known, or comes from Python")
    return model.name or os.path.splitext(os.path.basename(arguments.target))[0], parts


def _check_options(arguments: Any, of_file: bool) -> None:
    """Raises UsageError for options that would have no effect beside the others."""
    names = {"output": "-o"}
    if arguments.shape and not of_file:
        raise UsageError("--shape is for the inputs of a model file", fix="leave out --shape")
    for name in STAGED if arguments.compare else () if of_file else COMPARED:
        if getattr(arguments, name) is not None and getattr(arguments, name) is not False:
            option = names.get(name, f"--{name}")
            what = "shows stages, and --compare shows kernels" if arguments.compare else "is for --compare"
            raise UsageError(
                f"{option} {what}", fix=f"leave out {option}" if arguments.compare else f"give --compare, or leave out {option}"
            )
    if arguments.inputs and arguments.seed is not None:
        raise UsageError("--seed is for random inputs, and --inputs brings others", fix="give one of them")
    if arguments.compare and not of_file and os.path.isdir(arguments.target):
        raise UsageError(f"{arguments.target} is a folder, and --compare runs a program", fix="name the program's file")


def _compared(name: str, parts: Sequence[Part]) -> Answer:
    """`--compare`: how many kernels agree. Raises NgraphError that shows the first that does not."""
    kernels = sum([computation.compare(*given()) for computation, given in parts])
    said = f"{kernels} kernel{'s' * (kernels != 1)} compared with the plan: no differences"
    return Answer(f"{name}: {said}", {"kernels": kernels})


def _given(computation: Computation, path: str) -> list[np.ndarray]:
    """The arguments out of an .npz file. Raises UsageError where one is missing, or one is there that nothing takes."""
    values, wanted = read_arrays(path), [op.label for op in computation.parameters]
    if set(values) != set(wanted):
        listed = [", ".join(names) or "nothing" for names in (values, wanted)]
        raise UsageError(f"{path} has {listed[0]}, and {computation.name} takes {listed[1]}", fix="name the arrays as the placeholders")
    return [values[name] for name in wanted]


def _drawn(computation: Computation, seed: int) -> list[np.ndarray]:
    """Random arguments."""
    random, made = np.random.default_rng(seed), []
    for op in computation.parameters:
        shape = [OPEN if a.length is None else a.length for a in op.axes]
        drawn = random.uniform(-1, 1, shape) if op.dtype.is_float else random.integers(0, 2, shape)
        made.append(drawn.astype(op.dtype.np))
    return made


def _written(path: str, text: str, data: Any) -> Answer:
    write(path, text)
    return Answer(path, data)


# ---- what DUMP wrote ----------------------------------------------------------------------------------------------------


def _explain_folder(arguments: Any) -> Answer:
    """The list of what a DUMP folder holds; or its pages, and one that leads to them."""
    found = dump.read(arguments.target)
    if not found:
        raise UsageError(f"{arguments.target} holds no computation's stages; run your program with DUMP={arguments.target}")
    if not arguments.html:
        listed = "\n\n".join(f"---- {name}\n{listing(there)}" for name, (_, there) in found.items())
        return Answer(listed, {name: [s.name for s in there] for name, (_, there) in found.items()})
    place = arguments.output or arguments.target
    with told(place, "written"):
        os.makedirs(place, exist_ok=True)
    pages = {f"{name}.html": page(name, there, None) for name, (_, there) in found.items()}
    pages["index.html"] = contents(arguments.target, found)
    for file, text in pages.items():
        write(os.path.join(place, file), text)
    paths = [os.path.join(place, file) for file in pages]
    return Answer("\n".join(paths), paths)
