"""The private names of PyTorch that this frontend needs. Each name has a test in tests/frontends/torch/test_private.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import get_compilation_metrics
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import CompileContext
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import optimization_hint

TESTED = "2.13"  # the version of torch that the tests run with

# what stays whole, because one kernel of ours does it, or because torch's way to take it apart is worse than ours
WHOLE = (
    "aten._scaled_dot_product_flash_attention_for_cpu",
    "aten.linear",
    "aten.grid_sampler_2d",
)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Returns how ops are taken apart before they are translated: PyTorch's core table, less what stays whole."""
    table = core_aten_decompositions()
    return {op: rule for op, rule in table.items() if str(op).rpartition(".")[0] not in WHOLE}


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


def aot(gm: Any, inputs: Any, forward: Any, backward: Any, inference: Any) -> Any:
    """Returns a graph of Dynamo's as a callable whose forward and backward graphs these compile."""
    made = aot_autograd(
        fw_compiler=forward,
        bw_compiler=backward,
        inference_compiler=inference,
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )
    return made(gm, inputs)


def same_version() -> bool:
    """Whether torch is of the version that the tests run with."""
    return torch.__version__.startswith(TESTED)


def hint_of(n: Any) -> int:
    """Returns a SymInt as it is in the call that is being compiled."""
    return int(optimization_hint(n))


def no_fakes() -> Any:
    """Returns a block in which tensors are what they are, though a graph is being compiled."""
    return unset_fake_temporarily()
