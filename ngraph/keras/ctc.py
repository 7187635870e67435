"""Connectionist temporal classification: the loss, and decoding by the best class of each step or by a beam."""

from __future__ import annotations

from typing import Any

import numpy as np
from keras.src.backend.common.dtypes import result_type

from ngraph.frontends.positional.values import Tensor
from ngraph.keras.convert import cast, convert_to_tensor
from ngraph.keras.numpy import by_numpy
from ngraph.keras.tensors import apply
from ngraph.keras.traces import KerasTrace
from ngraph.ops import elementwise as e
from ngraph.ops.ctc import ctc_record


def aligned(g: KerasTrace, x: Tensor, labels: Tensor, steps: Tensor, counts: Tensor, blank: int) -> Tensor:
    """The loss of scores [batch, time, classes] and labels [batch, symbols], of which each sample has so many."""
    x = g.full(x)
    batch, time, classes = x.dims
    labels, steps, counts = (g.full(t) for t in (labels, steps, counts))
    symbols = g.fresh(labels.dims[1].size)
    labels = g.renamed(labels, [batch, symbols])
    steps, counts = (g.renamed(t, [batch]) for t in (steps, counts))
    rows = [e.cast(t.op, "int32") for t in (labels, steps, counts)]
    return g.made(ctc_record.build(x.op, *rows, time=time, classes=classes, symbols=symbols, blank=blank), [batch])


def ctc_loss(target: Any, output: Any, target_length: Any, output_length: Any, mask_index: int = 0) -> Any:
    labels, steps, counts = (convert_to_tensor(v, "int32") for v in (target, output_length, target_length))
    x = convert_to_tensor(output)
    return apply(aligned, cast(x, result_type(x.dtype, "float32")), labels, steps, counts, blank=int(mask_index))


def _log_shares(x: Any) -> Any:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def _greedy(x: Any, lengths: Any, merge: bool, blank: int) -> tuple[Any, Any]:
    """Returns the best class of each step without blanks, and minus the sum of their scores."""
    batch, time, _ = x.shape
    late = np.arange(time)[None] >= lengths[:, None]
    best = np.where(late, blank, x.argmax(-1))
    scores = np.where(late, 0, x.max(-1)).sum(1, keepdims=True)
    keep = best != blank
    if merge:
        keep[:, 1:] &= best[:, 1:] != best[:, :-1]
    found = np.full((1, batch, time), -1, np.int32)
    for b in range(batch):
        row = best[b][keep[b]]
        found[0, b, : len(row)] = row
    return found, -scores.astype(x.dtype)


def _beam(x: Any, lengths: Any, width: int, top: int, blank: int) -> tuple[Any, Any]:
    """Returns the best labellings and their log-probabilities. Source: A. Graves (2012), Supervised Sequence Labelling, 7.5.3.

    Each beam is a labelling with the log-probability of its alignments that end in a blank, and in its last label.
    """
    shares = _log_shares(x)
    paths = np.full((top, len(x), x.shape[1]), -1, np.int32)
    scores = np.full((len(x), top), -np.inf, x.dtype)
    for b, rows in enumerate(shares):
        beams: dict[tuple[int, ...], list[float]] = {(): [0.0, -np.inf]}
        for row in rows[: max(int(lengths[b]), 1)]:
            after: dict[tuple[int, ...], list[float]] = {}
            for path, (blanks, labels) in beams.items():
                both = np.logaddexp(blanks, labels)
                same = after.setdefault(path, [-np.inf, -np.inf])
                same[0] = np.logaddexp(same[0], both + row[blank])
                if path:
                    same[1] = np.logaddexp(same[1], labels + row[path[-1]])
                for k in range(len(row)):
                    if k != blank:
                        longer = after.setdefault((*path, k), [-np.inf, -np.inf])
                        longer[1] = np.logaddexp(longer[1], (blanks if path and path[-1] == k else both) + row[k])
            order = sorted(after, key=lambda p: -np.logaddexp(after[p][0], after[p][1]))
            beams = {p: after[p] for p in order[:width]}
        for k, path in enumerate(list(beams)[:top]):
            paths[k, b, : len(path)] = path
            scores[b, k] = np.logaddexp(beams[path][0], beams[path][1])
    return paths, scores


def ctc_decode(
    inputs: Any,
    sequence_lengths: Any,
    strategy: str = "greedy",
    beam_width: int = 100,
    top_paths: int = 1,
    merge_repeated: bool = True,
    mask_index: Any = 0,
) -> Any:
    x = convert_to_tensor(inputs)
    x = cast(x, result_type(x.dtype, "float32"))
    blank = int(x.shape[-1]) - 1 if mask_index is None else int(mask_index)
    lengths = convert_to_tensor(sequence_lengths, "int32")
    if strategy == "greedy":
        return by_numpy("ctc_decode", lambda a, n: _greedy(a, n, merge_repeated, blank), x, lengths)
    if strategy != "beam_search":
        raise ValueError(f"Invalid strategy {strategy}. Supported values are 'greedy' and 'beam_search'.")
    return by_numpy("ctc_decode", lambda a, n: _beam(a, n, beam_width, top_paths, blank), x, lengths)
