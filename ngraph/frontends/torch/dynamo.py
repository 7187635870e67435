"""The backend that torch.compile calls: the two graphs of AOTAutograd, and their segments."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ngraph.config import config
from ngraph.errors import ArgumentError, NgraphWarning, UnsupportedError, nearest
from ngraph.frontends.torch import (
    adafactor,
    caching,
    checking,
    drawing,
    empties,
    encoders,
    indexing,
    layers,
    losses,
    matrices,
    private,
    quantised,
    recurrent,
    replacing,
    resizing,
    sequences,
    table,
)
from ngraph.frontends.torch import translate as translate  # its modules register
from ngraph.frontends.torch.caching import GraphCode
from ngraph.frontends.torch.graph import line_of, name_of, place_in
from ngraph.frontends.torch.options import checked, settings_of, transformer_of
from ngraph.frontends.torch.reports import GraphReport, begin, forget
from ngraph.frontends.torch.segments import Left, Segments
from ngraph.op_graph.dlpack import dense
from ngraph.op_graph.memory import with_room

_warned: set[str] = set()


@with_room
def backend(gm: Any, example_inputs: Any, *, mode: str | None = None, options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Returns a graph of Dynamo's compiled: `torch.compile(model, backend="ngraph")` calls this.

    options: `fallback`, what becomes of ops that are not ours: "warn" (torch runs them, and one warning names them), "silent", or
    "error"; `transformer`, a name such as "numpy"; `random`: "ngraph", whose Philox torch's generator seeds, or "torch", for the
    numbers of eager; `freeze`: whether what is computed of parameters alone is kept between calls without gradients (docs/torch.md).
    Raises SettingError for others; UnsupportedError where ops may not be torch's.
    """
    if not isinstance(gm, torch.fx.GraphModule):
        fix = "torch.compile(model, backend='ngraph')"
        raise ArgumentError(f"torch.compile calls the backend with a graph, and this is a {type(gm).__name__}", fix=fix)
    given = checked(mode, options)
    refusal = empties.refused(gm)
    if refusal and given["fallback"] == "error":
        raise refusal.error()
    made = begin(private.compiled(gm))
    if refusal:  # PyTorch raises its error where the function comes to it
        row = refusal.row()
        made.graph("inference").in_torch[refusal.name] = [row]
        warn(f"torch runs a graph, for {refusal.name} {row['reason']}" if given["fallback"] == "warn" else "")
        return gm.forward

    start = time.perf_counter()
    gm = replacing.replaced(recurrent.lowered(gm))
    text = caching.key(gm, given, settings_of(given), transformer_of(given), example_inputs)
    if text is not None:
        private.part_of_key(gm, text)

    def compiler(kind: str) -> Callable[..., Any]:
        def compile(graph: Any, inputs: Any) -> GraphCode:
            if kind == "backward":
                take_strides(graph, inputs)
            return compiled(graph, made.graph(kind), given)

        return compile if text is None else private.kept(compile)

    token = caching.compiling.set(made)
    try:
        rules = private.RulesOnDemand(lambda: decompositions(given))
        with private.before_autograd(before_autograd()):
            function = private.aot(gm, example_inputs, compiler("forward"), compiler("backward"), compiler("inference"), rules)
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
adafactor.taken()
private.draw_again(torch.ops.ngraph.draw)
private.keep_ours()
private.key_without_inductor()
private.keep_apart(torch.ops.aten.nonzero)


def compiled(graph: Any, about: GraphReport, given: Mapping[str, Any]) -> GraphCode:
    """Returns a graph of ATen's as segments, with what torch runs reported."""
    start = time.perf_counter()
    settings = settings_of(given)
    still = private.static_inputs() if given["freeze"] and about.kind == "inference" else ()
    with config(**settings):
        laid = image_orders(graph, private.saved(graph)) if about.kind == "forward" else {}
        segments = Segments(graph, transformer_of(given, bool(still)), settings, still, laid)
        left = list(segments.left.values())
        if left and given["fallback"] == "error":
            raise refused(left)
        made = segments.compiled()
    if laid:
        private.tell_strides([strides(n.meta["val"].shape, laid[n]) if n in laid else None for n in segments.output.args[0]])
    about.seconds["translation"] = time.perf_counter() - start
    about.fill(segments, made)
    warned = warning(left) if left and given["fallback"] == "warn" else ""
    warn(warned)
    return GraphCode(made, about, given, warned)


def image_orders(graph: Any, saved: Sequence[Any]) -> dict[Any, tuple[int, ...]]:
    """Returns the order in memory of the dims of values that only the backward reads, where they have the shape of a convolution's image.

    Their order is ours to choose: it is that in which convolutions read and write, with the channels last.
    """
    images = [x for n in graph.graph.nodes if name_of(n) == "aten.convolution.default" for x in (n, n.args[0])]
    shapes = {known_shape(n) for n in images} - {None}
    return {n: (0, *range(2, n.meta["val"].ndim), 1) for n in saved if known_shape(n) in shapes and n.meta["val"].is_contiguous()}


def known_shape(node: Any) -> tuple[int, ...] | None:
    """Returns the shape of a node's tensor; None where it has none, is empty, or has open lengths."""
    val = node.meta.get("val")
    known = isinstance(val, torch.Tensor) and all(isinstance(n, int) and n > 0 for n in val.shape)
    return tuple(val.shape) if known else None


def strides(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Returns the strides of a dense tensor whose dims lie in this order, the slowest first."""
    by_dim = dict(zip(order, dense([shape[d] for d in order]), strict=True))
    return tuple([by_dim[d] for d in range(len(shape))])


def take_strides(graph: Any, inputs: Sequence[Any]) -> None:
    """Gives the placeholders of a backward graph the strides that the forward graph's outputs have.

    Where the graph has an `as_strided`, whose result depends on strides, copies with those that were traced follow the placeholders.
    """
    nodes = graph.graph
    placeholders = nodes.find_nodes(op="placeholder")
    depends = any(name_of(n).startswith("aten.as_strided") for n in nodes.nodes)
    for node, given in zip(placeholders, inputs, strict=True):
        val = node.meta.get("val")
        if not isinstance(val, torch.Tensor) or not isinstance(given, torch.Tensor) or val.layout is not torch.strided:
            continue
        if val.stride() != given.stride():
            node.meta["val"] = given
            if depends:
                with nodes.inserting_after(placeholders[-1]):
                    copy = nodes.call_function(torch.ops.aten.clone.default, (node,), {"memory_format": torch.contiguous_format})
                copy.meta["val"] = val
                node.replace_all_uses_with(copy, lambda user, copy=copy: user is not copy)


def before_autograd() -> dict[Any, Callable[..., Any]]:
    """Returns how ops are taken apart that PyTorch takes apart before it looks at a table."""
    return {**resizing.rules(), **drawing.before_autograd()}


def decompositions(given: Mapping[str, Any]) -> dict[Any, Callable[..., Any]]:
    """Returns how ops are taken apart before they are translated, random ones as the options say."""
    rules = {
        **quantised.decompositions(),
        **encoders.rules(),
        **indexing.rules(),
        **matrices.rules(),
        **losses.slopes(),
        **layers.slopes(),
        **checking.rules(),
        **(drawing.rules() if given["random"] == "ngraph" else {}),
    }
    return {op: private.laid(op, rule) for op, rule in rules.items()}


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
        line=place_in([x.node for x in left]),
    )


def warning(left: list[Left]) -> str:
    """Returns the warning of ops that torch runs."""
    by_name: dict[str, list[Left]] = {}
    for x in left:
        by_name.setdefault(name_of(x.node), []).append(x)
    new = []
    for name, nodes in by_name.items():
        line = next(filter(None, [line_of(x.node) for x in nodes]), "")
        often = "once" if len(nodes) == 1 else f"{len(nodes)} times"
        new.append(f"{name} ({often}: {nodes[0].reason}{f'; {line}' if line else ''})")
    return f"torch runs {', '.join(new)}\n  fix: ng.torch.report() says where; options={{'fallback': 'silent'}} says nothing"


def warn(text: str) -> None:
    """Warns of ops that torch runs, once for each set of them; "" says nothing."""
    if text and text not in _warned:
        _warned.add(text)
        warnings.warn(text, NgraphWarning, stacklevel=2)
