"""The private names of PyTorch that this frontend needs. Each name has a test in tests/frontends/torch/test_private.py."""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import operator
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, cached_property, partial, wraps
from inspect import signature
from itertools import count
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch._C._autograd import _profiler_enabled
from torch._C._profiler import _RecordFunctionFast
from torch._decomp import core_aten_decompositions, global_decomposition_table
from torch._decomp.decompositions import upsample_compute_output_size
from torch._dynamo import config as dynamo_config
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.convert_frame import ConvertFrameAssert, compile_lock
from torch._dynamo.decorators import assume_constant_result, patch_dynamo_config
from torch._dynamo.trace_rules import get_torch_obj_rule_map
from torch._dynamo.utils import get_compilation_metrics
from torch._dynamo.variables import PolyfilledFunctionVariable
from torch._export.utils import _get_shape_env_from_gm
from torch._functorch import compile_utils, partitioners
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd import graph_compile
from torch._functorch._aot_autograd.autograd_cache import (
    AOTAutogradCache,
    AOTAutogradCacheDetails,
    BypassAOTAutogradCache,
    FXGraphCacheMiss,
)
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
from torch._functorch.aot_autograd import _aot_export_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import CompileContext, TracingContext
from torch._higher_order_ops.flex_attention import flex_attention as flex_attention
from torch._higher_order_ops.flex_attention import sdpa_dense
from torch._inductor import config as inductor_config
from torch._inductor.codecache import BypassFxGraphCache, FxGraphCache
from torch._inductor.output_code import OutputCode
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import DataDependentOutputException as DataDependentOutputException
from torch._subclasses.fake_tensor import DynamicOutputShapeException as DynamicOutputShapeException
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.autograd import profiler as autograd_profiler
from torch.autograd.graph import increment_version
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, guard_or_false, optimization_hint, statically_known_true
from torch.optim import _adafactor
from torch.utils._pytree import (
    SERIALIZED_TYPE_TO_PYTHON_TYPE,
    GetAttrKey,
    MappingKey,
    SequenceKey,
    _deregister_pytree_node,
    _private_register_pytree_node,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_unflatten,
)
from torch.utils._sympy.printers import PythonPrinter
from torch.utils.checkpoint import CheckpointPolicy

profilers: Any = autograd_profiler  # `_is_profiler_enabled` is whether a profiler of torch's runs in any thread
Recorded: Any = _RecordFunctionFast  # a block that profilers show, by its name
_nesting = threading.RLock()
_numbers = count()  # of functions with code of their own

TESTED = "2.13"  # the version of torch that the tests run with

UPSAMPLING = (
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
    *(f"{kind}{k}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for k in (1, 2, 3)),
)
SMOOTHING = ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")

# what stays whole, because one kernel of ours does it, or because torch's way to take it apart is worse than ours
WHOLE = (
    *(f"aten.{name}" for name in UPSAMPLING),
    "aten._scaled_dot_product_flash_attention_for_cpu",
    "aten.linear",
    "aten.take",
    "aten.grid_sampler_2d",
    "aten.complex",  # PyTorch's own rules for these two write, and AOTAutograd takes no graph that does
    "aten.polar",
    "aten.bernoulli",  # PyTorch's rule compares other numbers than eager draws, and checks no probability
)

# copies of views, which PyTorch's rules take apart into views: the bodies of loops may give no views of what they take
COPIES = tuple(
    f"aten.{view}_copy"
    for view in "alias as_strided detach diagonal expand narrow permute select slice split split_with_sizes squeeze t transpose unbind"
    " unfold unsqueeze view".split()
)


def decompositions(translated: Callable[[str], bool]) -> dict[Any, Callable[..., Any]]:
    """Returns how ops are taken apart before they are translated: by PyTorch's core table, less what stays whole.

    translated: whether an overload has a translator. What has none is taken apart by PyTorch's other rules, too, but random ops.
    """

    def whole(op: Any) -> bool:
        name = str(op).rpartition(".")[0]
        return name in WHOLE or (name in COPIES and translated(str(op)))

    table = core_aten_decompositions()
    found = {op: rule for op, rule in table.items() if not whole(op)}
    for op, rule in global_decomposition_table["post_autograd"].items():
        if op in table or whole(op):
            continue
        if isinstance(op, torch._ops.OpOverload) and not op._schema.is_mutable:
            if torch.Tag.nondeterministic_seeded not in op.tags and not translated(str(op)):
                found[op] = rule
    for op in foreach_ops():
        if not translated(str(op)):
            found.setdefault(op, partial(op._op_dk, torch._C.DispatchKey.CompositeExplicitAutograd))
    return found


def laid(op: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a rule that takes an op apart, with results that lie in memory as eager lays those of the op: the rule's own may not."""
    unknown = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    if not isinstance(op, torch._ops.OpOverload) or unknown & {*op.tags}:
        return rule

    @wraps(rule)
    def apart(*args: Any, **named: Any) -> Any:
        found = rule(*args, **named)
        if found is NotImplemented or all(map(in_order, tree_leaves((args, named, found)))):
            return found
        with disable_proxy_modes_tracing():
            wanted = tree_leaves(op(*args, **named))
        leaves, nest = tree_flatten(found)
        return tree_unflatten(list(map(as_laid, leaves, wanted)), nest)

    return apart


def steps_of(t: Any) -> list[int] | None:
    """Returns the strides of the dims of a tensor that have more than one element; None for lengths that are known only in a call."""
    if any(map(unbacked, (*t.shape, *t.stride()))):
        return None
    return [hint_of(step) for step, n in zip(t.stride(), t.shape, strict=True) if hint_of(n) != 1]


def in_order(t: Any) -> bool:
    """Whether a value is no tensor of which a dim is slower in memory than one before it."""
    steps = steps_of(t) if isinstance(t, torch.Tensor) and t.layout is torch.strided else None
    return steps is None or steps == sorted(steps, reverse=True)


def as_laid(t: Any, like: Any) -> Any:
    """Returns a tensor, or a copy of it that lies in memory as another one, of which no two elements share a place."""
    if not isinstance(t, torch.Tensor) or not isinstance(like, torch.Tensor) or t.layout is not torch.strided:
        return t
    now, wanted = steps_of(t), steps_of(like)
    if now is None or wanted is None or now == wanted or 0 in wanted:
        return t
    return torch.ops.prims.copy_strided.default(t, like.stride())


def rule_of(op: Any) -> Callable[..., Any]:
    """Returns PyTorch's own rule that takes an op apart."""
    found: Callable[..., Any] = global_decomposition_table["post_autograd"][op]
    return found


whole_scores = sdpa_dense  # what `flex_attention` computes in eager, of all scores


def foreach_ops() -> Iterator[Any]:
    """The ops over lists of tensors that write none, and have a kernel of PyTorch's that calls an op for each tensor."""
    for full in torch._C._dispatch_get_all_op_names():
        if full.startswith("aten::_foreach_"):
            name, _, overload = full.removeprefix("aten::").partition(".")
            op = getattr(getattr(torch.ops.aten, name), overload or "default")
            if not op._schema.is_mutable and op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeExplicitAutograd):
                yield op


class RulesOnDemand(Mapping[Any, Callable[..., Any]]):
    """Decompositions that are made when one is looked up: a graph that is found in a cache needs none."""

    def __init__(self, make: Callable[[], Mapping[Any, Callable[..., Any]]]):
        self.make = make

    @cached_property
    def made(self) -> Mapping[Any, Callable[..., Any]]:
        return self.make()

    def __getitem__(self, op: Any) -> Callable[..., Any]:
        return self.made[op]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.made)

    def __len__(self) -> int:
        return len(self.made)


def upsampling(kept: Callable[..., bool]) -> dict[Any, Callable[..., Any]]:
    """Returns rules for the overloads that `torch.nn.functional.interpolate` calls: by sizes or scales, they call the op by sizes.

    kept: whether an op of this name stays whole, for a tensor, sizes, and scales or None; what does not is taken apart as by PyTorch.
    """

    def rule(name: str) -> Callable[..., Any]:
        op = getattr(torch.ops.aten, name)
        apart = op.vec.py_kernels[torch._C.DispatchKey.Autograd]

        def resized(x: torch.Tensor, size: Any, *others: Any, **named: Any) -> Any:
            *corners, scales = *others, *named.values()
            sizes = upsample_compute_output_size(x.shape, size, scales)
            if not kept(name, x, sizes, scales):
                return apart(x, size, *others, **named)
            return op.default(x, list(sizes), *corners, *(scales or ()))

        return resized

    return {getattr(torch.ops.aten, name).vec: rule(name) for name in UPSAMPLING}


def _shape_of_resized(dy: torch.Tensor, size: Any, shape: Any, *how: Any) -> torch.Tensor:
    """Returns what stands for the derivative of a picture of this shape, in the order in memory that PyTorch gives it."""
    return dy.new_empty(shape).to(memory_format=suggest_memory_format(dy))


@contextmanager
def before_autograd(rules: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """A block in which these overloads are taken apart by other rules than PyTorch's own in Python, and the defaults by none.

    Derivatives of resized pictures have shapes in it for open lengths, too.
    """
    keys = torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd
    with _nesting:
        before = {}
        for overload, rule in rules.items():
            default = overload.overloadpacket.default
            before.update({op: dict(op.py_kernels) for op in (overload, default)})
            for key in keys:
                default.py_kernels.pop(key, None)
            overload.py_kernels.update(dict.fromkeys(keys, rule))
        for op in (getattr(torch.ops.aten, f"{name}_backward").default for name in (*UPSAMPLING, *SMOOTHING)):
            before[op] = dict(op.py_kernels)
            op.py_kernels.setdefault(torch._C.DispatchKey.Meta, _shape_of_resized)
        try:
            for op in before:
                op._dispatch_cache.clear()
            yield
        finally:
            for op, kernels in before.items():
                op.py_kernels.clear()
                op.py_kernels.update(kernels)
                op._dispatch_cache.clear()


class Compiled(NamedTuple):
    """Dynamo's record of a graph that it hands over.

    function  the user's function, and line where it begins     attempt  how often Dynamo has compiled it before
    reason    why the graph ends; broken: whether it is not the function's end     where  the user's line there
    """

    function: str
    attempt: int
    reason: str
    broken: bool
    where: str


def compiled(gm: Any) -> Compiled:
    """Returns what Dynamo says of a graph."""
    found = CompileContext.try_get()
    ids = found.compile_id if found is not None else None
    frame, attempt = getattr(ids, "frame_id", None), getattr(ids, "frame_compile_id", None)
    reason = getattr(gm, "compile_subgraph_reason", None)
    stack = getattr(reason, "user_stack", None) or []
    where = f"{stack[-1].filename}:{stack[-1].lineno}" if stack else ""
    broken = bool(getattr(reason, "graph_break", False))
    text = str(getattr(reason, "reason", "")).strip()
    return Compiled(f"{frame}", attempt or 0, text, broken, where)


def metrics() -> list[Any]:
    """Returns what Dynamo has measured of each compilation: `compile_id`, `co_name`, `co_filename`, `recompile_reason`, seconds."""
    return list(get_compilation_metrics())


def aot(gm: Any, inputs: Any, forward: Any, backward: Any, inference: Any, table: Mapping[Any, Callable[..., Any]]) -> Any:
    """Returns a graph of Dynamo's as a callable whose forward and backward graphs these compile, taken apart by a table."""
    made = aot_autograd(
        fw_compiler=forward,
        bw_compiler=backward,
        inference_compiler=inference,
        decompositions=table,
        partition_fn=partition,
        keep_inference_input_mutations=True,  # writes of inputs are in the graph, as `copy_` at its end
    )
    found = made(gm, inputs)
    context = TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []  # ours writes no saved value, so that a graph may be kept for another backward pass
    return found


def partition(joint: Any, *args: Any, **named: Any) -> Any:
    """Returns the forward and the backward graph of a joint graph. See `before_writes`; of seeds, `drawn_once`."""
    before_writes(joint.graph)
    drawn_once(joint.graph)
    find_maxima_again(joint.graph)
    known = partitioners.functionalize_rng_ops

    def functionalize_rng_ops(joint: Any, *graphs: Any) -> Any:
        for node in joint.graph.nodes:
            if not draws(node):
                node.meta.pop("recompute", None)  # what the backward graph computes again is decided by now
        return known(joint, *graphs)

    with _nesting:
        partitioners.functionalize_rng_ops = functionalize_rng_ops
        try:
            return min_cut_rematerialization_partition(joint, *args, **named)
        finally:
            partitioners.functionalize_rng_ops = known


def is_random(node: Any) -> bool:
    """Whether a node calls an op that PyTorch takes for one that draws numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def draws(node: Any) -> bool:
    """Whether a node draws numbers: attention without dropout does not. PyTorch calls what does with the generator's state of before."""
    if not is_random(node):
        return False
    return bool(arguments(node).get("dropout_p", True))


def arguments(node: Any) -> dict[str, Any]:
    """Returns the arguments of a node's call by name, those by default too."""
    found = {a.name: a.default_value for a in node.target._schema.arguments}
    found.update(zip(found, node.args, strict=False))
    return {**found, **node.kwargs}


def drawn_once(graph: Any) -> None:
    """Keeps each seed of ours for the backward graph, where checkpointing asks to compute it again."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.ngraph.seed.default):
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def find_maxima_again(graph: Any) -> None:
    """Makes the derivative of a pooling find the maxima of its windows again, instead of keeping their places for it."""
    aten = torch.ops.aten
    for pool, derivative in (
        (aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default),
        (aten.max_pool3d_with_indices.default, aten.max_pool3d_with_indices_backward.default),
    ):
        for node in graph.find_nodes(op="call_function", target=derivative):
            dy, *how, places = node.args
            of = places.args[0] if places.target is operator.getitem and places.args[1] == 1 else None
            if of is not None and of.target is pool and [*arguments(of).values()] == how:
                node.target, node.args = torch.ops.ngraph.max_pool_backward.default, (dy, *how)


def before_writes(graph: Any) -> None:
    """Takes a copy of each input that the forward graph writes and that the backward graph may read, or compute from it again.

    The partitioner takes an input for free to keep, and does not see that it has another value when the backward graph runs.
    """
    behind = set[Any]()  # nodes that depend on a tangent: of the backward graph
    for node in graph.nodes:
        if node.op == "placeholder" and "tangents" in str(node.target) or any(a in behind for a in node.all_input_nodes):
            behind.add(node)
    inputs = graph.find_nodes(op="placeholder")
    for node in inputs:
        writes = [u for u in node.users if u.target is torch.ops.aten.copy_.default and u.args[0] is node]
        todo, seen = [u for u in node.users if u not in writes], set[Any]()
        while todo and todo[-1] not in behind:
            last = todo.pop()
            if last not in seen:
                seen.add(last)
                todo += [u for u in last.users if u.op != "output"]
        if not writes or not todo:
            continue
        with graph.inserting_before(next(n for n in graph.nodes if n.op != "placeholder")):
            copy = graph.call_function(torch.ops.aten.clone.default, (node,))
        copy.meta = {**node.meta, "recompute": CheckpointPolicy.MUST_SAVE}
        node.replace_all_uses_with(copy, delete_user_cb=lambda u, own=(copy, *writes): u not in own)


def static_inputs() -> list[int]:
    """Returns the places of parameters and buffers among the inputs of the graph that AOTAutograd has compiled just now."""
    context = TracingContext.try_get()
    about = None if context is None else context.fw_metadata
    return [] if about is None else list(about.static_input_indices)


def saved(graph: Any) -> list[Any]:
    """Returns the nodes that the forward graph which AOTAutograd compiles gives to its backward alone."""
    context = TracingContext.try_get()
    about = None if context is None else context.fw_metadata
    if about is None or context.output_strides is None:
        return []
    outputs = list(graph.graph.output_node().args[0])
    kept = outputs[about.tensors_saved_for_backwards_slice]
    others = {*outputs[: about.tensors_saved_for_backwards_slice.start], *graph.graph.find_nodes(op="placeholder")}
    return [n for n in kept if n not in others]


def tell_strides(strides: Iterable[tuple[int, ...] | None]) -> None:
    """Tells AOTAutograd the strides of a forward graph's outputs, for which it then compiles the backward; None: those it traced."""
    context = TracingContext.try_get()
    if context is not None and context.output_strides is not None:
        context.output_strides.extend(strides)


class Joint(NamedTuple):
    """A graph of ATen's that computes a loss and its gradients.

    graph      its placeholders are the parameters, then the other tensors; it gives the loss, and writes tensors by `copy_` at its end
    gradients  the node of each parameter's gradient, by its place; None where the loss does not depend on it
    """

    graph: Any
    gradients: list[Any]


def joint(gm: Any, parameters: Mapping[int, torch.Tensor], others: Mapping[int, torch.Tensor], table: dict[Any, Any]) -> Joint:
    """Returns a graph of Dynamo's, whose first output is a loss, with its gradients. The tensors are given by their place in its inputs."""
    mode = TracingContext.get().fake_mode  # tensors without elements: AOTAutograd traces twice, and would else compute the step once
    assert mode is not None
    fakes = {k: mode.from_tensor(t, static_shapes=True) for k, t in {**parameters, **others}.items()}
    places = sorted(range(len(fakes)), key=list(fakes).__getitem__)  # of the inputs of the graph, among the tensors that are given

    def loss(*tensors: Any) -> Any:
        with torch.fx.traceback.preserve_node_meta():  # the user's line of each node
            first, *rest = torch.fx.Interpreter(gm).run(*[tensors[k] for k in places])
        return first, *[t.detach() if isinstance(t, torch.Tensor) else t for t in rest]

    with torch.enable_grad(), mode:
        made, about, _, _ = _aot_export_function(
            loss, tuple(fakes.values()), decompositions=table, num_params_buffers=len(fakes), no_tangents=True, trace_joint=True
        )
    graph: Any = made
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_tensor_metadata.default):
        graph.graph.erase_node(node)  # Dynamo's guards say as much
    find_maxima_again(graph.graph)
    graph.graph.eliminate_dead_code()
    inputs = graph.graph.find_nodes(op="placeholder")
    for node in inputs[len(fakes) :]:
        graph.graph.erase_node(node)  # the derivative of the loss by itself, which is 1
    output = graph.graph.output_node()
    (results,) = output.args
    written = about.mutated_inp_runtime_indices
    with graph.graph.inserting_before(output):
        for k, node in zip(written, results, strict=False):
            graph.graph.call_function(torch.ops.aten.copy_.default, (inputs[k], node))
    output.args = ((results[len(written)],),)
    return Joint(graph, results[-len(fakes) :][: len(parameters)])


def initialise(optimizer: torch.optim.Optimizer, parameters: Iterable[torch.Tensor]) -> None:
    """Makes the optimizer's state of parameters that have none, as its first step does."""
    wanted = set(parameters)
    for group in optimizer.param_groups:
        new = [p for p in group["params"] if p in wanted and not optimizer.state.get(p)]
        if not new:
            continue
        held = [p.grad for p in new]
        try:
            for p in new:
                p.grad = torch.zeros_like(p)
            many = len(signature(optimizer._init_group).parameters) - 1  # a list for each kind of tensor
            optimizer._init_group({**group, "params": new}, *[[] for _ in range(many)])
        finally:
            for p, grad in zip(new, held, strict=True):
                p.grad = grad


def stepped(optimizer: torch.optim.Optimizer) -> None:
    """Tells learning-rate schedulers that the optimizer has made a step."""
    optimizer._opt_called = True


def hooked(optimizer: torch.optim.Optimizer, parameters: Iterable[torch.Tensor]) -> bool:
    """Whether functions of the user's have to be called around a step, or with gradients."""
    around = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    return bool(around) or any(p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None) for p in parameters)


def own_code(function: Any) -> Any:
    """Returns a function with code of its own: Dynamo counts compilations, and keeps guards, by code."""
    code = function.__code__.replace(co_name=f"{function.__name__}_{next(_numbers)}")
    return FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)


def plain(function: Any) -> Any:
    """Returns a function of PyTorch's once more, which is traced as it is."""
    return FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)


def written(tensors: Iterable[torch.Tensor]) -> None:
    """Tells autograd that tensors were written, though not by torch."""
    try:
        increment_version(tensors)
    except RuntimeError:  # tensors of inference mode have no version
        increment_version([t for t in tensors if not t.is_inference()])


def profiled() -> bool:
    """Whether a profiler of torch's records what this thread does."""
    return bool(_profiler_enabled())


ADAFACTOR_STEPS = _adafactor._single_tensor_adafactor, _adafactor._multi_tensor_adafactor

_takers = list[Any]()  # backends for which Dynamo takes recurrent layers into its graphs


def take_recurrent_layers(ours: Any) -> None:
    """Lets Dynamo take recurrent layers into the graphs of a backend, which it keeps out of all graphs unless `allow_rnn` is set.

    ours: a function, or a method, which then is a backend of each object.
    """
    _takers.append(ours)
    if len(_takers) > 1:
        return
    convert = ConvertFrameAssert.__call__

    def taker(found: Any) -> bool:
        while found is not None and not any(getattr(found, "__func__", found) is t for t in _takers):
            # wrapped for debugging, and for options
            found = getattr(found, "_torchdynamo_orig_backend", None) or getattr(found, "compiler_fn", None)
        return found is not None

    @wraps(convert)
    def call(self: Any, *args: Any, skip: int = 0, **named: Any) -> Any:
        if not taker(self._torchdynamo_orig_backend):
            return convert(self, *args, skip=skip + 1, **named)
        with compile_lock, _ours(), settled(), dynamo_config.patch(allow_rnn=True):
            return convert(self, *args, skip=skip + 1, **named)

    ConvertFrameAssert.__call__ = call


@contextmanager
def settled() -> Iterator[None]:
    """A block in which the garbage collector does not visit what was there before: some 600,000 objects of PyTorch's.

    Where the user has frozen objects, all are visited as usual.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


_stand_ins = dict[Any, Any]()  # functions that Dynamo does not trace -> the rule by which it does, for our backend
_taking = ContextVar("taking", default=False)  # whether a frame is being traced for our backend


@contextmanager
def _ours() -> Iterator[None]:
    """A block in which Dynamo traces for our backend."""
    rules = get_torch_obj_rule_map()
    before = {function: rules.get(function) for function in _stand_ins}
    token = _taking.set(True)
    rules.update(_stand_ins)
    try:
        yield
    finally:
        rules.update(before)
        _taking.reset(token)


@assume_constant_result  # type: ignore[untyped-decorator]
def taking() -> bool:
    """Whether a frame is being traced for our backend; Dynamo asks while it traces."""
    return _taking.get()


def traced_as(original: Any, ours: Any) -> None:
    """Lets Dynamo trace a function in place of one of PyTorch's.

    That of a function which Dynamo skips (it has a rule) is traced for our backend alone; that of others, such as a `forward`, always,
    and asks `taking`. Called without a compiler, the original is what it was.
    """
    if original not in get_torch_obj_rule_map():
        original._torchdynamo_inline = ours
        return

    @wraps(ours)
    def handler(*args: Any, **named: Any) -> Any:
        return original(*args, **named)

    handler.__torch_dynamo_polyfill__ = ours  # type: ignore[attr-defined]
    PolyfilledFunctionVariable._get_polyfill_handlers()[original] = handler
    _stand_ins[original] = PolyfilledFunctionVariable


def numbers_inside() -> Any:
    """Returns a block, which Dynamo traces, in which `item()` stays inside of the graph."""
    return patch_dynamo_config(capture_scalar_outputs=True)


Missed = FXGraphCacheMiss  # raised while a graph is read from the cache: then it is compiled, and kept, anew


class KeptCode(OutputCode):  # type: ignore[misc]  # for mypy without torch
    """A graph as AOTAutograd keeps it for other processes; called with the list of its inputs, which it empties.

    Subclasses have `packed`, what is kept and pickles, and `unpacked`, which makes `run` of it again.
    """

    def __init__(self, run: Callable[[list[Any]], list[Any]]):
        self.run: Any = run
        self._time_taken_ns, self._boxed_call = 0, True  # what AOTAutograd looks for, also in what it wraps around

    def __call__(self, inputs: Any) -> Any:
        return self.run(inputs)

    def packed(self) -> None:
        raise NotImplementedError

    def unpacked(self) -> None:
        raise NotImplementedError

    # ---- what AOTAutograd calls
    def prepare_for_serialization(self) -> None:
        try:
            self.packed()
        except Exception as error:  # then it is not kept
            raise BypassAOTAutogradCache(str(error)) from error

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        self.unpacked()

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """There is none."""


def kept(compiler: Callable[..., KeptCode]) -> Any:
    """Returns a compiler of graphs as one whose graphs AOTAutograd keeps for other processes."""
    return SerializableAOTDispatchCompiler(KeptCode, compiler)


def part_of_key(gm: Any, text: str) -> None:
    """Makes a text part of the key under which AOTAutograd keeps a graph of Dynamo's: the key covers a module's attributes."""
    (gm.gm if hasattr(gm, "gm") else gm).ngraph_key = text


def keyed(node: Any) -> None:
    """Says that a function of ours in a graph of Dynamo's is known by its name; our sources are part of the key."""
    node.meta.update(is_wrapped=True, user_cache_hash=node.name)


def keep_ours() -> None:
    """Lets AOTAutograd keep our graphs whole, as with `bundled_autograd_cache`, and those of other backends as it did."""
    save, make = graph_compile._should_save_cache, AOTAutogradCache.make_entry

    def ours(function: Any) -> bool:
        while not isinstance(function, KeptCode) and hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        return isinstance(function, KeptCode)

    def should_save(*functions: Any) -> bool:
        return all(map(ours, functions)) or save(*functions)

    def make_entry(compiled_fw_func: Any, *args: Any, **named: Any) -> Any:
        with functorch_config.patch(bundled_autograd_cache=ours(compiled_fw_func) or functorch_config.bundled_autograd_cache):
            return make(compiled_fw_func, *args, **named)

    graph_compile._should_save_cache, AOTAutogradCache.make_entry = should_save, staticmethod(make_entry)


def key_without_inductor() -> None:
    """Lets AOTAutograd compute the keys of our graphs without Inductor's code generators, and without reading torch's sources.

    Inductor's part of a key covers what it generates; of that, what is traced before depends on torch's version and the settings here.
    """
    details = AOTAutogradCacheDetails._init_fx_graph_hash_details

    @wraps(details)
    def facts(self: Any, gm: Any, example_inputs: Any, fx_config: Any) -> None:
        if not hasattr(gm, "ngraph_key") or not all(isinstance(x, (torch.Tensor, int, float, torch.SymInt)) for x in example_inputs):
            details(self, gm, example_inputs, fx_config)
            return
        try:
            FxGraphCache._check_can_cache(gm, example_inputs, fx_config)
        except BypassFxGraphCache as error:
            raise BypassAOTAutogradCache(str(error)) from error
        self.gm, self.example_inputs = gm, list(example_inputs)
        self.torch_version = torch.__version__, torch.version.git_version
        self.default_dtype = torch.get_default_dtype()
        self.inductor_config = inductor_config.save_config_portable(ignore_private_configs=False, readonly_values=True)

    AOTAutogradCacheDetails._init_fx_graph_hash_details = facts


def draw_again(op: Any) -> None:
    """Lets the partitioner compute an op again in a backward graph, where it would else keep the result."""
    known = partitioners.get_default_op_list

    def get_default_op_list() -> Any:
        found = known()
        found.recomputable_ops.add(op)
        found.fusible_ops.add(op)
        return found

    partitioners.get_default_op_list = get_default_op_list


def keep_apart(op: Any) -> None:
    """Keeps calls of an op with the same arguments apart: PyTorch merges them, and leaves the length that the second decides unknown."""
    if op not in compile_utils.rand_ops:
        compile_utils.rand_ops.append(op)


def same_version() -> bool:
    """Whether torch is of the version that the tests run with."""
    return torch.__version__.startswith(TESTED)


def hint_of(n: Any) -> int:
    """Returns a SymInt as it is in the call that is being compiled."""
    return int(optimization_hint(n))


class LengthPrinter(PythonPrinter):  # type: ignore[misc]  # a class of PyTorch's without types
    """Prints a length's expression as Python, in which a symbol `s0` is the variable `n_s0`."""

    def _print_Symbol(self, e: Any) -> str:
        return f"n_{e.name}"


def python_of(e: Any) -> str:
    """Returns the expression of a SymInt as Python that needs `math` and `torch`, see `LengthPrinter`."""
    text: str = LengthPrinter().doprint(e)
    return text


def unbacked(n: Any) -> bool:
    """Whether a length, or a question about lengths, has symbols whose values are known only when something has run."""
    return bool(free_unbacked_symbols(n))


def surely(question: Any) -> bool:
    """Whether a question about lengths has the answer yes in every call, without a guard."""
    return statically_known_true(question)


def answer(question: Any, equal: bool) -> bool | None:
    """Returns the answer to a question about lengths, of which Dynamo makes a guard; None where it is not known.

    equal: it is whether two lengths are equal. Those that data decide are unequal to others, as PyTorch takes them to be.
    """
    if not unbacked(question):
        return bool(question)
    if equal:
        return guard_or_false(question)
    return True if statically_known_true(question) else False if statically_known_true(torch.sym_not(question)) else None


@cache
def openmp() -> tuple[int, int] | None:
    """The addresses of `GOMP_parallel` and `omp_get_thread_num` of the library that runs PyTorch's ops; None where it is another."""
    try:
        library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))  # finds what it is linked with
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in ("GOMP_parallel", "omp_get_thread_num")]
    except (OSError, AttributeError):
        return None
    return (found[0], found[1]) if found[0] and found[1] else None


def no_fakes() -> Any:
    """Returns a block in which tensors are what they are, though a graph is being compiled."""
    return unset_fake_temporarily()


def paths(spec: Any) -> list[list[str]]:
    """Returns the way to each leaf of a nest: keys of dicts, fields of records and places in tuples."""
    leaves, _ = tree_flatten_with_path(tree_unflatten(list(range(spec.num_leaves)), spec))
    names = {SequenceKey: "idx", MappingKey: "key", GetAttrKey: "name"}
    return [[str(getattr(key, names[type(key)])) for key in way] for way, _ in leaves]


class UnknownNest:
    """A container of a class that is not here, with what it holds: the base of the stand-ins of such classes."""

    def __init__(self, items: Iterable[Any], context: Any):
        self.items, self.context = list(items), context

    def keys(self) -> list[Any]:
        """Returns the way to each item: the names in the context, or its places."""
        names = self.context if isinstance(self.context, list) else []
        named = len(names) == len(self.items) and all(isinstance(name, str) for name in names)
        return [MappingKey(name) for name in names] if named else [SequenceKey(k) for k in range(len(self.items))]


@cache
def _stand_in(name: str) -> type[UnknownNest]:
    """Returns the class that stands for that of this name; one for all files, since PyTorch remembers the nests that it has read."""
    return type(name.rpartition(".")[2], (UnknownNest,), {})


@contextmanager
def nests(names: Iterable[str]) -> Iterator[None]:
    """Lets PyTorch know containers of these classes, by stand-ins, where what defines them is not imported.

    PyTorch opens a file that gives such a container only where its class is known, and a model needs but the names in it.
    """
    made = []
    with _nesting:
        try:
            for name in names:
                if name not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
                    made.append(_stand_in(name))
                    _private_register_pytree_node(  # the public one registers with optree, too, which forgets nothing
                        made[-1],
                        lambda nest: (nest.items, nest.context),
                        made[-1],
                        serialized_type_name=name,
                        to_dumpable_context=json.dumps,
                        from_dumpable_context=json.loads,
                        flatten_with_keys_fn=lambda nest: (list(zip(nest.keys(), nest.items, strict=True)), nest.context),
                    )
            yield
        finally:
            for stand_in in made:
                _deregister_pytree_node(stand_in)


def keep_symbols(program: Any) -> None:
    """Removes ranges of expressions from the ShapeEnv of an exported program that was loaded: PyTorch takes each for one of a symbol."""
    env = _get_shape_env_from_gm(program.graph_module)
    for e in [] if env is None else [e for e in env.var_to_range if not e.is_Symbol]:
        del env.var_to_range[e]


@contextmanager
def quiet() -> Iterator[list[str]]:
    """Keeps back what PyTorch logs of a file that it cannot open, and warns of its own code; gives the errors in it."""
    log, found = logging.getLogger("torch.export"), list[str]()

    def hold(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            found.append(str(record.exc_info[1]))
        return False

    log.addFilter(hold)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of PyTorch at its own code
            yield found
    finally:
        log.removeFilter(hold)
