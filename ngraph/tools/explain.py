"""`ngraph explain prog.py:train --after simplify`: a computation of a user's program at any stage, as text.

Stages, in order: `op-graph`, `lower`, each pass by its name (`simplify.2` where it runs a second time), `source`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ngraph.op_graph import text as graph_text
from ngraph.op_graph.op import Op, TensorType
from ngraph.program import text as program_text
from ngraph.program.program import Program
from ngraph.runtime.computation import Computation
from ngraph.tools.load import find
from ngraph.transformers import make_transformer
from ngraph.verbs import Answer, UsageError, verb


def is_explainable(x: Any) -> bool:
    """Computations, executors, and ops that have a value or an effect."""
    return isinstance(x, Computation | Op) or isinstance(getattr(x, "computation", None), Computation)


def computation_of(x: Any) -> Computation:
    """The computation itself, that of an executor, or one of an op over all its placeholders on a transformer of its own."""
    if isinstance(x, Op):
        return make_transformer().computation(x, *(p for p in x.placeholders() if type(p.type) is TensorType), name=x.label)
    return x if isinstance(x, Computation) else x.computation


def stages(computation: Computation) -> dict[str, Callable[[], str]]:
    """What prints each stage, by name, in order."""
    found: dict[str, Callable[[], str]] = {"op-graph": lambda: graph_text.text(computation.results.ops)}
    times: dict[str, int] = {}
    for name, program in computation.stages():
        times[name] = times.get(name, 0) + 1
        found[name if times[name] == 1 else f"{name}.{times[name]}"] = _printer(program)
    if computation.source:
        found["source"] = lambda: computation.source
    return found


def _printer(program: Program) -> Callable[[], str]:
    return lambda: program_text.text(program)


def _arguments(parser: Any) -> None:
    parser.add_argument("target", metavar="PROGRAM.py[:NAME]", help="a program file, and in it a computation, executor or op")
    parser.add_argument("--after", metavar="STAGE", help="op-graph, lower, a pass, or source; all of them without this")


@verb("explain", "print a computation of a program at any stage", _arguments)
def explain(arguments: Any) -> Answer:
    """`ngraph explain`: one stage, or all under headings."""
    computation = computation_of(find(arguments.target, is_explainable, "computation", lambda x: not isinstance(x, Op)))
    there = stages(computation)
    if arguments.after and arguments.after not in there:
        raise UsageError(f"{computation.name} has no stage {arguments.after!r}; it has {', '.join(there)}")
    chosen = {arguments.after: there[arguments.after]} if arguments.after else there
    texts = {name: show().rstrip("\n") for name, show in chosen.items()}
    data = [{"computation": computation.name, "stage": name, "text": text} for name, text in texts.items()]
    if arguments.after:
        return Answer(texts[arguments.after], data)
    return Answer("\n\n".join(f"---- {name}\n{text}" for name, text in texts.items()), data)
