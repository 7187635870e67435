"""The backend that torch.compile calls: options, the two graphs of AOTAutograd, and their segments."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ngraph.config import config
from ngraph.errors import NgraphWarning, SettingError, UnsupportedError, nearest
from ngraph.frontends.torch import drawing, private, recurrent, table
from ngraph.frontends.torch import translate as translate  # its modules register
from ngraph.frontends.torch.graph import line_of, name_of
from ngraph.frontends.torch.reports import GraphReport, begin, forget
from ngraph.frontends.torch.segments import Left, Segments
from ngraph.frontends.torch.steps import CompiledGraph
from ngraph.transformers.base import Transformer, make_transformer, make_transformer_factory

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
OPTIONS: dict[str, tuple[Any, ...]] = {  # the values that each takes; any where there are none
    "fallback": ("warn", "error", "silent"),
    "transformer": (),
    "random": ("ngraph", "torch"),
    "threads": (),
    "tune": (True, False),
    "exact": (True, False),
}
TUNED = ("max-autotune", "max-autotune-no-cudagraphs")
ASKED_BY_TORCH = ("guard_filter_fn",)  # options that Dynamo takes for itself

_transformers: dict[str, Transformer] = {}
_warned: set[str] = set()


def checked(mode: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the options with defaults. Raises SettingError for an unknown one, or an unknown value, with the nearest."""
    if mode is not None and mode not in MODES:
        near = nearest(str(mode), MODES)
        raise SettingError(f"there is no mode {mode!r}", fix=f"write {near!r}" if near else f"there are {', '.join(MODES)}")
    found = {"fallback": "warn", "transformer": "", "random": "ngraph", "threads": None, "tune": mode in TUNED, "exact": None}
    for name, value in (options or {}).items():
        if name in ASKED_BY_TORCH:
            continue
        if name not in OPTIONS:
            near = nearest(name, OPTIONS)
            raise SettingError(f"there is no option {name!r}", fix=f"write {near!r}" if near else f"there are {', '.join(OPTIONS)}")
        if OPTIONS[name] and value not in OPTIONS[name]:
            raise SettingError(f"the option {name!r} is {value!r}", fix=f"it takes {', '.join(map(repr, OPTIONS[name]))}")
        if name == "threads" and not (type(value) is int and value > 0):
            raise SettingError(f"the option 'threads' is {value!r}", fix="it takes a whole number above 0")
        found[name] = value
    return found


def settings_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options as settings of `ngraph.config`; what is not given is as it is set elsewhere."""
    named = {"num_threads": given["threads"] or torch.get_num_threads(), "tune": given["tune"] or None, "exact": given["exact"]}
    return {name: value for name, value in named.items() if value is not None}


def transformer_of(given: Mapping[str, Any]) -> Transformer:
    """Returns the transformer that all graphs of a process share. Raises UnsupportedError for an unknown name."""
    name = given["transformer"]
    if name not in _transformers:
        _transformers[name] = make_transformer_factory(name)() if name else make_transformer()
    return _transformers[name]


def backend(gm: Any, example_inputs: Any, *, mode: str | None = None, options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Returns a graph of Dynamo's compiled: `torch.compile(model, backend="ngraph")` calls this.

    options: `fallback`, what becomes of ops that are not ours: "warn" (torch runs them, and one warning names them), "silent", or
    "error"; `transformer`, a name such as "numpy"; `random`: "ngraph", whose Philox torch's generator seeds, or "torch", for the numbers of
    eager. Raises SettingError for others; UnsupportedError where ops may not be torch's.
    """
    given = checked(mode, options)
    made = begin(private.compiled(gm))

    def compiler(kind: str) -> Callable[..., Any]:
        return lambda graph, inputs: compiled(graph, made.graph(kind), given).boxed()

    start = time.perf_counter()
    gm = recurrent.lowered(gm)
    rules = {**table.decompositions(), **(drawing.rules() if given["random"] == "ngraph" else {})}
    try:
        function = private.aot(gm, example_inputs, compiler("forward"), compiler("backward"), compiler("inference"), rules)
    except BaseException:
        forget(made)  # Dynamo may try again, with other guards
        raise
    made.seconds["aot"] = time.perf_counter() - start - sum(g.seconds["translation"] for g in made.graphs)
    return function


private.take_recurrent_layers(backend)
private.draw_again(torch.ops.ngraph.draw)


def compiled(graph: Any, about: GraphReport, given: Mapping[str, Any]) -> CompiledGraph:
    """Returns a graph of ATen's as segments, with what torch runs reported."""
    start = time.perf_counter()
    settings = settings_of(given)
    with config(**settings):
        segments = Segments(graph, transformer_of(given), settings)
        left = list(segments.left.values())
        if left and given["fallback"] == "error":
            raise refused(left)
        made = segments.compiled()
    about.seconds["translation"] = time.perf_counter() - start
    about.fill(segments, made)
    if left and given["fallback"] == "warn":
        warn(left)
    return made


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


def warn(left: list[Left]) -> None:
    """Warns of ops that torch runs, once for each set of them."""
    counts: dict[str, int] = {}
    for x in left:
        counts[name_of(x.node)] = counts.get(name_of(x.node), 0) + 1
    new = [f"{name} ({times} times: {next(x.reason for x in left if name_of(x.node) == name)})" for name, times in counts.items()]
    text = f"torch runs {', '.join(new)}\n  fix: ng.torch.report() says where; options={{'fallback': 'silent'}} says nothing"
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, NgraphWarning, stacklevel=2)
