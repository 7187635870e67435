"""Checkpoints: the complete state of a training, in one safetensors file and one JSON beside it; resuming gives equal results.

The tensors are written first, under a name of their own; the JSON, which names them, is then replaced atomically. So at every moment
the present JSON is complete, and so are the tensors that it names.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from ngraph.errors import ParseError, StateError
from ngraph.op_graph.files import write_whole
from ngraph.op_graph.op import Op
from ngraph.runtime.weights import read_arrays, write_arrays

FORMAT = 1
NAME = "checkpoint"


def named_states(transformer: Any, model: Any, optimizer: Any) -> dict[str, Op]:
    """Returns all state of a transformer that outlives it, by names that depend on the model alone: model/..., optimizer/..., rng."""
    path = model.path
    own = {v: k for k, v in enumerate(optimizer.states)}
    found: dict[str, Op] = {}
    for name, variable in list(transformer.state.names.items()):
        if not variable.attrs.get("saved", True):
            continue
        if variable in own:
            inner = variable.hint or str(own[variable])
            name = "optimizer/" + (inner.replace(path, "model", 1) if inner.startswith(path + "/") else inner)
        elif name == path or name.startswith(path + "/"):
            name = "model" + name[len(path) :]
        unique, n = name, 1
        while unique in found:
            n += 1
            unique = f"{name}_{n}"
        found[unique] = variable
    return found


def save(folder: str, step: int, arrays: Mapping[str, np.ndarray], notes: Mapping[str, Any]) -> str:
    """Writes a pair of files; the older pair stays until the newer is complete. Returns the path of the JSON."""
    os.makedirs(folder, exist_ok=True)
    tensors = f"{NAME}-{step:09d}.safetensors"
    place = os.path.join(folder, tensors)
    write_arrays(place, arrays)
    with open(place, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    said = {"format": FORMAT, "step": step, "tensors": tensors, "sha256": digest, **notes}
    path = os.path.join(folder, f"{NAME}.json")
    write_whole(path, (json.dumps(said, indent=1) + "\n").encode())
    for other in os.listdir(folder):
        if other.startswith(f"{NAME}-") and other.endswith(".safetensors") and other != tensors:
            with suppress(OSError):
                os.unlink(os.path.join(folder, other))
    return path


def read(folder: str) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """Returns (the JSON's content, arrays); None where there is no checkpoint. Raises ParseError for an incomplete or newer one."""
    path = os.path.join(folder, f"{NAME}.json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        try:
            said: dict[str, Any] = json.load(file)
        except ValueError as error:
            raise ParseError(f"{path} is not JSON: {error}", fix="delete the checkpoint and start the training again") from None
    if said.get("format") != FORMAT:
        raise ParseError(f"{path} has format {said.get('format')}, and this version reads {FORMAT}", fix="read it with its own version")
    place = os.path.join(folder, said["tensors"])
    if not os.path.exists(place):
        raise ParseError(f"{path} names {said['tensors']}, which is not beside it", fix="keep the two files together")
    with open(place, "rb") as tensors:
        if hashlib.file_digest(tensors, "sha256").hexdigest() != said["sha256"]:
            raise ParseError(
                f"{place} is not the file that {NAME}.json was written for (its SHA-256 differs)",
                fix="put back the two files that were written together",
            )
    return said, read_arrays(place)


def put_back(transformer: Any, variables: Mapping[str, Op], arrays: Mapping[str, np.ndarray], folder: str) -> None:
    """Sets state to the values of a checkpoint. Raises StateError that lists all that does not fit, before any change."""
    wrong = [f"{n} is not in the checkpoint" for n in variables if n not in arrays]
    wrong += [f"{n} is not state here" for n in arrays if n not in variables]
    for name, variable in variables.items():
        if name in arrays and arrays[name].shape != tuple(variable.axes.lengths):
            wrong.append(f"{name} has shape {arrays[name].shape} in the checkpoint, and {list(variable.axes)} here")
    if wrong:
        raise StateError(
            f"the checkpoint in {folder} is of another model or optimizer: {len(wrong)} differences",
            details=tuple(wrong[:20]),
            fix="make them as they were then, or take another folder",
        )
    for name, variable in variables.items():
        transformer.set(variable, arrays[name])
