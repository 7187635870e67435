"""The backend that torch.compile calls: the two graphs of AOTAutograd, and their segments."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ngraph.config import config
from ngraph.errors import NgraphWarning, UnsupportedError, nearest
from ngraph.frontends.torch import caching, drawing, indexing, private, quantised, recurrent, sequences, table
from ngraph.frontends.torch import translate as translate  # its modules register
from ngraph.frontends.torch.caching import GraphCode
from ngraph.frontends.torch.graph import line_of, name_of
from ngraph.frontends.torch.options import checked, settings_of, transformer_of
from ngraph.frontends.torch.reports import GraphReport, begin, forget
from ngraph.frontends.torch.segments import Left, Segments

_warned: set[str] = set()


def backend(gm: Any, example_inputs: Any, *, mode: str | None = None, options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Returns a graph of Dynamo's compiled: `torch.compile(model, backend="ngraph")` calls this.

    options: `fallback`, what becomes of ops that are not ours: "warn" (torch runs them, and one warning names them), "silent", or
    "error"; `transformer`, a name such as "numpy"; `random`: "ngraph", whose Philox torch's generator seeds, or "torch", for the
    numbers of eager; `freeze`: whether what is computed of parameters alone is kept between calls without gradients (docs/torch.md).
    Raises SettingError for others; UnsupportedError where ops may not be torch's.
    """
    given = checked(mode, options)
    made = begin(private.compiled(gm))

    start = time.perf_counter()
    gm = recurrent.lowered(gm)
    text = caching.key(given, settings_of(given), transformer_of(given), example_inputs)
    if text is not None:
        private.part_of_key(gm, text)

    def compiler(kind: str) -> Callable[..., Any]:
        def compile(graph: Any, inputs: Any) -> GraphCode:
            return compiled(graph, made.graph(kind), given)

        return compile if text is None else private.kept(compile)

    token = caching.compiling.set(made)
    try:
        function = private.aot(gm, example_inputs, compiler("forward"), compiler("backward"), compiler("inference"), decompositions(given))
    except BaseException:
        forget(made)  # Dynamo may try again, with other guards
        raise
    finally:
        caching.compiling.reset(token)
    made.seconds["aot"] = time.perf_counter() - start - sum(g.seconds["translation"] for g in made.graphs)
    return function


def warn_of_version() -> None:
    """Warns where torch is of another version than the tests run with."""
    if not private.same_version():
        text = f"torch is {torch.__version__}; this backend is tested with {private.TESTED}\n  fix: pip install 'torch=={private.TESTED}.*'"
        warnings.warn(text, NgraphWarning, stacklevel=2)


warn_of_version()
private.take_recurrent_layers(backend)
sequences.taken()
private.draw_again(torch.ops.ngraph.draw)
private.keep_ours()
private.keep_apart(torch.ops.aten.nonzero)


def compiled(graph: Any, about: GraphReport, given: Mapping[str, Any]) -> GraphCode:
    """Returns a graph of ATen's as segments, with what torch runs reported."""
    start = time.perf_counter()
    settings = settings_of(given)
    still = private.static_inputs() if given["freeze"] and about.kind == "inference" else ()
    with config(**settings):
        segments = Segments(graph, transformer_of(given, bool(still)), settings, still)
        left = list(segments.left.values())
        if left and given["fallback"] == "error":
            raise refused(left)
        made = segments.compiled()
    about.seconds["translation"] = time.perf_counter() - start
    about.fill(segments, made)
    warned = warning(left) if left and given["fallback"] == "warn" else ""
    warn(warned)
    return GraphCode(made, about, given, warned)


def decompositions(given: Mapping[str, Any]) -> dict[Any, Callable[..., Any]]:
    """Returns how ops are taken apart before they are translated, random ones as the options say."""
    return {**quantised.decompositions(), **indexing.rules(), **(drawing.rules() if given["random"] == "ngraph" else {})}


def refused(left: list[Left]) -> UnsupportedError:
    """Returns the error that names all nodes that are not ours, with the nearest that is."""
    known = [op.removeprefix("aten.") for op in table.TABLE]
    rows = []
    for (name, reason), x in {(name_of(x.node), x.reason): x for x in left}.items():
        near = nearest(name.removeprefix("aten."), known) if reason == "no translation" else None
        rows.append(f"{name}: {reason}{f'; the nearest is aten.{near}' if near else ''}   at {line_of(x.node) or 'unknown'}")
    fixes = list(dict.fromkeys(x.fix for x in left if x.fix))
    return UnsupportedError(
        f"torch would run {len(rows)} op{'s' * (len(rows) != 1)} of this graph",
        details=tuple(rows),
        fix="; ".join([*fixes, 'let torch run them: options={"fallback": "warn"}']),
    )


def warning(left: list[Left]) -> str:
    """Returns the warning of ops that torch runs."""
    counts: dict[str, int] = {}
    for x in left:
        counts[name_of(x.node)] = counts.get(name_of(x.node), 0) + 1
    new = [f"{name} ({times} times: {next(x.reason for x in left if name_of(x.node) == name)})" for name, times in counts.items()]
    return f"torch runs {', '.join(new)}\n  fix: ng.torch.report() says where; options={{'fallback': 'silent'}} says nothing"


def warn(text: str) -> None:
    """Warns of ops that torch runs, once for each set of them; "" says nothing."""
    if text and text not in _warned:
        _warned.add(text)
        warnings.warn(text, NgraphWarning, stacklevel=2)
