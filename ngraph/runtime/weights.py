"""State on disk, as safetensors: written beside its destination and moved there, so a crash leaves the old file intact."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save as serialized

from ngraph.errors import ParseError, StateError
from ngraph.op_graph.dtypes import NARROW as NARROW_NAMES
from ngraph.op_graph.dtypes import REGISTRY, as_dtype
from ngraph.op_graph.files import told, write_whole
from ngraph.op_graph.op import Op
from ngraph.runtime.state import StateArrays, shape_of
from ngraph.warn import warn

OTHERS = {  # first bytes of other formats: their names, and how to read them
    b"PK\x03\x04": (
        ", but an archive, as NumPy and PyTorch write them",
        "read it with np.load or torch.load, and transformer.set each variable",
    ),
    b"\x93NUMPY": (", but an array of NumPy", "transformer.set(variable, np.load(path))"),
    b"{": (", but JSON", "a graph is read with ngraph.op_graph.text.load, a program with ngraph.program.text.load"),
    b"\x89HDF\r\n": (", but HDF5", "read it with h5py, and transformer.set each variable"),
}
FORMATS = (".npz", ".npy", ".pt", ".pth", ".h5", ".hdf5", ".pkl", ".pickle", ".json", ".onnx")  # extensions of other formats
NARROW = {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu"}
NAMES = (
    {"BOOL": "bool", "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
    | {f"{kind}{bits}": f"{name}{bits}" for kind, name in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)}
    | NARROW
)


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays by name as one safetensors file. Narrow dtypes, which the format lacks, are stored as bytes with metadata."""
    metadata, ready = {"format": "np"}, {}
    for name, a in arrays.items():
        kind = as_dtype(a.dtype)
        if kind.kind == "narrow" and kind.name not in NARROW.values():
            metadata[f"dtype of {name}"], a = kind.name, a.view(np.uint8)
        ready[name] = np.ascontiguousarray(a).reshape(a.shape)
    write_whole(path, serialized(ready, metadata=metadata))


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Returns arrays by name from a safetensors file. Raises ParseError where it is none."""
    with told(path, "read"), open(path, "rb") as file:
        data = file.read()
    try:
        entries: Any = deserialize(data)  # type: ignore[no-untyped-call]  # safetensors gives it no types
    except SafetensorError as error:
        kind, fix = next(
            (known for start, known in OTHERS.items() if data.startswith(start)), ("", "give a file that transformer.save wrote, whole")
        )
        raise ParseError(f"{os.fspath(path)} is not a safetensors file{kind}: {error}", fix=fix) from None
    said = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__", {})
    arrays = {}
    for name, entry in entries:
        if entry["dtype"] not in NAMES:
            raise ParseError(f"{os.fspath(path)}: {name} is {entry['dtype']}, which is not an element type of ngraph")
        kind = NAMES[entry["dtype"]]
        if f"dtype of {name}" in said and entry["dtype"] == "U8" and said[f"dtype of {name}"] in NARROW_NAMES:
            kind = said[f"dtype of {name}"]
        arrays[name] = np.frombuffer(entry["data"], REGISTRY[kind].np).reshape(entry["shape"])
    return arrays


def kept(state: StateArrays) -> dict[str, Op]:
    """Returns the variables that a file holds, by name."""
    return {name: v for name, v in list(state.names.items()) if v.attrs.get("saved", True)}


def save(state: StateArrays, path: str | os.PathLike[str]) -> None:
    """Writes all state of a transformer to one file. Raises StateError for state whose last update was interrupted."""
    with state.lock.reading():
        if state.torn:
            raise StateError(
                f"the last update of {', '.join(sorted(v.label for v in state.torn))} was cut off, so the state is not saved",
                fix="restore a file, or set these variables",
            )
        variables = kept(state)
        state.ensure(variables.values())
        arrays = {name: state.device.get(state.arrays[v]) for name, v in variables.items()}
    if not arrays:
        fix = "make the computations before: a transformer knows the variables of its computations"
        warn(f"{os.fspath(path)} has no variables in it: there are none in this transformer", fix=fix, error=StateError)
    name, end = os.path.splitext(os.fspath(path))
    if end in FORMATS:
        warn(
            f"{os.fspath(path)} is written as safetensors, whatever its name says",
            fix=f"name it {name + '.safetensors'!r}",
            error=StateError,
        )
    write_arrays(path, arrays)


def restore(state: StateArrays, path: str | os.PathLike[str], partial: bool = False) -> None:
    """Loads state from a file. All names, shapes and dtypes are compared before any change; StateError lists every difference.

    partial: skips names that only one side has.
    """
    arrays, variables = read_arrays(path), kept(state)
    wrong: list[str] = []
    if not partial:
        wrong += [f"{name} is not in the file" for name in variables if name not in arrays]
        wrong += [f"{name} is not a variable here" for name in arrays if name not in variables]
    both = [name for name in variables if name in arrays]
    names = len(wrong)
    for name in both:
        wrong += _differences(name, arrays[name], variables[name])
    if wrong:
        fix = "make the model as it was when the file was written"
        if not variables:
            fix = "make the computations before: a transformer knows the variables of its computations"
        elif len(wrong) == names:
            fix += "; restore(path, partial=True) leaves alone what only one side has"
        raise StateError(f"{os.fspath(path)} does not fit: {len(wrong)} difference{'s' * (len(wrong) != 1)}", details=tuple(wrong), fix=fix)
    if not both and arrays:
        here, there = (", ".join(list(names)[:6]) or "none" for names in (variables, arrays))
        fix = "give variables the names that they have in the file: w.named('name')"
        warn(
            f"nothing was restored from {os.fspath(path)}: no name is on both sides",
            details=(f"variables here: {here}", f"in the file: {there}"),
            fix=fix,
            error=StateError,
        )
    state.put({variables[name]: arrays[name] for name in both})


def _differences(name: str, array: np.ndarray, variable: Op) -> list[str]:
    shape: Any = shape_of(variable)
    wrong = []
    if array.shape != shape:
        wrong.append(f"{name} has shape {array.shape} in the file, {shape} here")
    if array.dtype != variable.dtype.np:
        wrong.append(f"{name} is {array.dtype} in the file, {variable.dtype} here")
    return wrong
