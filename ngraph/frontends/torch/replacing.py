"""Functions of PyTorch's that AOTAutograd would keep or take apart in a way that we cannot use: a graph calls others in their place."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule
from torch.nn import functional as F

from ngraph.frontends.torch import private
from ngraph.frontends.torch.losses import multilabel_margin_loss


def flex_attention(*args: Any) -> tuple[torch.Tensor, ...]:
    """Returns attention whose scores a function of the user's changes, its log-sums and its greatest scores: of all scores, as in eager."""
    found: tuple[torch.Tensor, ...] = private.whole_scores(*args)
    return found


REPLACED: dict[Any, Any] = {F.multilabel_margin_loss: multilabel_margin_loss, private.flex_attention: flex_attention}


def replaced(gm: GraphModule) -> GraphModule:
    """Returns a graph of Dynamo's that calls functions of ours in place of PyTorch's."""
    for part in gm.modules():
        found = [n for n in part.graph.nodes if n.op == "call_function" and n.target in REPLACED] if isinstance(part, GraphModule) else []
        for node in found:
            node.target = REPLACED[node.target]
            private.keyed(node)
        if isinstance(part, GraphModule) and found:
            part.recompile()
    return gm
