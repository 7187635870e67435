"""Exported programs: files that `torch.export.save` writes, checked before they are opened, and their inputs, outputs and parameters.

A `.pt2` file is a zip archive of JSON and of raw tensors. Some of its parts may be pickles, which run code when they are loaded: those
that hold more than tensors are refused, as are compiled libraries, and expressions of lengths that are not arithmetic.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node

from ngraph.errors import FileError, ParseError, UnsupportedError, nearest
from ngraph.frontends.positional.ports import Port
from ngraph.frontends.positional.values import ConstantArray
from ngraph.frontends.torch import drawing, encoders, indexing, losses, private, quantised, recurrent, resizing, table
from ngraph.frontends.torch import dtype as kinds
from ngraph.frontends.torch import translate as translate  # its modules register
from ngraph.frontends.torch.graph import fetch, line_of, name_of, skipped, unfit

MAX_TEXT = 1 << 28  # bytes of the JSON of one program: a graph of a million nodes is smaller
ARITHMETIC = frozenset(
    """Symbol Integer Rational Float Add Mul Pow Max Min FloorDiv CeilDiv CleanDiv IntTrueDiv Mod PythonMod Eq Ne Lt Le Gt Ge
    ToFloat TruncToInt FloorToInt CeilToInt TruncToFloat RoundToInt FloatTrueDiv FloatPow PowByNatural
    Equality Unequality StrictLessThan LessThan StrictGreaterThan GreaterThan And Or Not""".split()
)
PLAIN = (ast.Expression, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop, ast.Load)
PARAMETERS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
TYPES = {torch.float32: "float", torch.float64: "double"}


class Dim(NamedTuple):
    """A dim of an input, whose length is `factor` times a symbol, and `offset`. label: its name in the input's port."""

    name: str
    dim: int
    label: str
    factor: int
    offset: int

    def symbol_of(self, length: Any) -> Any:
        """Returns what the symbol is where the dim has this length."""
        return (length - self.offset) // self.factor


def linear_of(e: Any) -> tuple[str, int, int] | None:
    """Returns the symbol, factor and offset of an expression of one symbol, such as 2*s + 1; None for others."""
    if len(e.free_symbols) != 1:
        return None
    (symbol,) = e.free_symbols
    factor, offset = e.coeff(symbol), e.subs(symbol, 0)
    if e != factor * symbol + offset or not factor.is_Integer or not offset.is_Integer or factor < 1:
        return None
    return str(symbol), int(factor), int(offset)


class ExportedFile:
    """An exported program as it is read.

    arrays   parameters, buffers and constants, by PyTorch's names; those that are tied have one array
    holds    {placeholder: name of the array that it stands for}     writes  {name of a buffer: the node that it becomes}
    symbols  {symbol of a length: the dim that tells it}             ranges  {symbol: least and greatest length, None for no bound}
    """

    def __init__(self, program: ExportedProgram, name: str):
        try:
            with private.quiet():
                rooms = (encoders, losses, indexing, recurrent, drawing, resizing)
                rules = {**quantised.decompositions(), **{op: rule for room in rooms for op, rule in room.rules().items()}}
                private.keep_symbols(program)
                program = program.run_decompositions(rules)
        except Exception as error:  # PyTorch raises what it likes here, for programs that it cannot take apart
            raise UnsupportedError(f"PyTorch cannot take {name} apart: {error}", fix="export it with this version of torch") from error
        self.program, self.name = program, name
        self.nodes: list[Node] = list(program.graph.nodes)
        by_name = {n.name: n for n in self.nodes}
        self.arrays: dict[str, ConstantArray] = {}
        self.holds: dict[str, str] = {}
        self.symbols: dict[str, Dim] = {}
        self.inputs: tuple[Port, ...] = ()
        for spec in program.graph_signature.input_specs:
            node = by_name.get(getattr(spec.arg, "name", ""))
            if spec.kind in PARAMETERS and spec.target is not None:
                self.holds[spec.arg.name] = self._array(spec.target)
            elif spec.kind is InputKind.USER_INPUT and node is not None and isinstance(node.meta.get("val"), torch.Tensor):
                self.inputs += (self._port(node),)
            elif node is not None and node.users and spec.kind is not InputKind.TOKEN:
                raise UnsupportedError(f"the input {node.name} of {name} is not a tensor", fix="export the model with tensors for inputs")
        self.outputs, self.results, self.writes = self._results(by_name)
        ranges = {str(symbol): (bound(r.lower), bound(r.upper)) for symbol, r in program.range_constraints.items()}
        self.ranges = {symbol: r for symbol, r in ranges.items() if symbol in self.symbols}

    def bounds(self, symbol: str) -> tuple[int | None, int | None]:
        """Returns the least and the greatest length of the dim that tells a symbol; None for no bound."""
        dim = self.symbols[symbol]
        least, most = (None if n is None else n * dim.factor + dim.offset for n in self.ranges.get(symbol, (None, None)))
        return least, most

    def _array(self, name: str) -> str:
        """Returns the name under which an array of the program is kept: the first of those that are tied."""
        tensor = self.program.state_dict.get(name)
        if tensor is None:
            tensor = self.program.constants[name]
        array = kinds.array_of(tensor) if not unfit(tensor) else np.zeros(0)
        for other, known in self.arrays.items():
            if known.array.ctypes.data == array.ctypes.data and known.array.shape == array.shape and array.size:
                if known.array.strides == array.strides and known.array.dtype == array.dtype:
                    return other
        self.arrays[name] = ConstantArray(array, name)
        return name

    def _port(self, node: Node) -> Port:
        val, shape = node.meta["val"], list[int | str | None]()
        for k, n in enumerate(val.shape):
            simple = n if isinstance(n, int) else n.node.maybe_as_int()
            if simple is not None:
                shape.append(int(simple))
            elif (linear := linear_of(n.node.expr)) is not None:
                symbol, factor, offset = linear
                label = symbol + (f"_times_{factor}" if factor != 1 else "") + (f"_plus_{offset}".replace("-", "minus_") if offset else "")
                self.symbols.setdefault(symbol, Dim(node.name, k, label, factor, offset))
                shape.append(label)
            else:
                shape.append(None)
        return Port(node.name, f"tensor({type_name(val.dtype)})", tuple(shape), kinds.OURS[val.dtype].np, "tensor")

    def _results(self, by_name: Mapping[str, Node]) -> tuple[tuple[Port, ...], dict[str, Any], dict[str, str]]:
        """Returns the outputs, the node or number that each is, and the nodes that buffers and parameters become."""
        ports, results, writes = list[Port](), dict[str, Any](), dict[str, str]()
        labels = iter(output_names(self.program))
        for spec in self.program.graph_signature.output_specs:
            if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
                writes[self._array(str(spec.target))] = spec.arg.name
                continue
            if spec.kind is OutputKind.USER_INPUT_MUTATION:
                raise UnsupportedError(
                    f"{self.name} writes its input {spec.target}", fix="export it so that the written tensor is one of its outputs"
                )
            if spec.kind is OutputKind.TOKEN:
                continue
            if spec.kind is not OutputKind.USER_OUTPUT:
                raise UnsupportedError(f"{self.name} has an output of the kind {spec.kind.name}", fix="export the model without its loss")
            label, node = next(labels), by_name.get(getattr(spec.arg, "name", ""))
            value = getattr(spec.arg, "value", None) if node is None else node
            if value is None:
                continue  # an output that is None
            results[label] = value
            val = node.meta.get("val") if node is not None else value
            if isinstance(val, torch.Tensor):
                shape = tuple([n if isinstance(n, int) else str(n.node.expr) if n.node.expr.is_Symbol else None for n in val.shape])
                known = kinds.OURS.get(val.dtype)
                ports.append(Port(label, f"tensor({type_name(val.dtype)})", shape, None if known is None else known.np, "tensor"))
            else:
                ports.append(Port(label, "tensor(int64)", (), np.dtype(np.int64), "tensor"))
        return tuple(ports), results, writes

    def unsupported(self) -> list[str]:
        """Returns every node that has no translation, with the reason and the nearest that has one."""
        known, found = [op.removeprefix("aten.") for op in table.TABLE], dict[str, None]()
        todo = list(reversed(self.nodes))
        while todo:
            node = todo.pop()
            if node.op in ("placeholder", "output") or skipped(node):
                continue
            name, reason = name_of(node), unfit(node.meta.get("val"))
            if name == drawing.SEED:
                continue
            if node.op == "get_attr":
                body = fetch(node.graph.owning_module, str(node.target))
                todo += reversed(body.graph.nodes) if isinstance(body, GraphModule) else []
                continue
            if not reason and name != "getitem" and not table.translated(name):
                near = nearest(name.removeprefix("aten."), known)
                reason = f"no translation{f'; the nearest is aten.{near}' if near else ''}"
            if reason:
                found[f"{name} ({node.name}): {reason}{f'   at {line}' if (line := line_of(node)) else ''}"] = None
        return list(found)


def type_name(dtype: torch.dtype) -> str:
    """Returns a dtype's name as ONNX has it."""
    return TYPES.get(dtype, str(dtype).removeprefix("torch."))


def bound(n: Any) -> int | None:
    """Returns an end of a range as a number; None where there is none."""
    try:
        found = int(n)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None
    return found if abs(found) < 1 << 62 else None


def output_names(program: ExportedProgram) -> list[str]:
    """Returns the names of the outputs: their keys and places in the nest that the model gives, `logits`, `past_0_1`; `output` for one."""
    spec = program.call_spec.out_spec
    leaves = private.paths(spec)
    return ["_".join(["output"] * (not path or path[0].isdigit()) + path) for path in leaves]


# ---- files --------------------------------------------------------------------------------------------------------------


def opened(source: Any) -> ExportedFile:
    """Returns an exported program, or that in a file. Raises FileError, ParseError; UnsupportedError for a file that carries code."""
    if isinstance(source, ExportedProgram):
        return ExportedFile(source, "the exported program")
    path = os.fspath(source)
    logged: list[str] = []
    try:
        with private.nests(check(path)):
            with private.quiet() as logged:
                program = torch.export.load(path)
            return ExportedFile(program, os.path.basename(path))
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise FileError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}", fix="give the path of a .pt2 file") from error
    except (UnsupportedError, ParseError):
        raise
    except Exception as error:  # a damaged archive makes PyTorch raise anything
        why = "; ".join(logged) or f"{type(error).__name__}: {error}"
        raise ParseError(f"{path} is not an exported program: {why}", fix="write it with torch.export.save") from error


def check(path: str) -> set[str]:
    """Returns the names of the classes of nests in an archive. Raises UnsupportedError where opening it would run code, ParseError."""
    classes = set[str]()
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(set(names)) < len(names):
                raise ParseError(f"{path} holds two parts of one name", fix="write it with torch.export.save")
            for name in names:
                classes |= _check_part(path, archive, name, names)
    except zipfile.BadZipFile as error:
        raise ParseError(f"{path} is not an exported program: {error}", fix="write it with torch.export.save") from error
    return classes


def _check_part(path: str, archive: zipfile.ZipFile, name: str, names: list[str]) -> set[str]:
    """Checks one part of an archive, and returns the names of the classes of nests in it."""
    if "/aotinductor/" in name or name.endswith((".so", ".o", ".cpp")):
        raise UnsupportedError(
            f"{path} carries compiled code: {name}", fix="write it with torch.export.save, not with aoti_compile_and_package"
        )
    if re.search(r"/(custom_obj|opaque_obj)_[^/]*$", name):
        raise UnsupportedError(f"{path} carries pickled code: {name}", fix="export the model without objects of its own classes")
    if name.endswith((".pt", ".pth")):
        _check_pickle(path, name, archive.read(name))
    classes = set[str]()
    if not name.endswith(".json"):
        return classes
    if archive.getinfo(name).file_size > MAX_TEXT:
        raise ParseError(f"{path}: {name} is larger than {MAX_TEXT:,} bytes", fix="is the file damaged?")
    try:
        said = json.loads(archive.read(name))
    except ValueError as error:
        raise ParseError(f"{path}: {name} is not JSON: {error}", fix="write it with torch.export.save") from error
    folder = name.rpartition("/")[0]
    for key, value in entries(said):
        if key == "expr_str" and not (isinstance(value, str) and is_arithmetic(value)):
            raise UnsupportedError(f"{path} carries code in place of a length: {value!r}"[:300], fix="write it with torch.export.save")
        if isinstance(value, dict) and value.get("use_pickle") and isinstance(value.get("path_name"), str):
            part = f"{folder}/{value['path_name']}"
            if re.match(r"(custom_obj|opaque_obj)_", value["path_name"]) or part not in names:
                raise UnsupportedError(f"{path} carries pickled code: {part}", fix="export the model without objects of its own classes")
            _check_pickle(path, part, archive.read(part))
        if key in ("in_spec", "out_spec") and isinstance(value, str):
            if "__enum__" in value:
                raise UnsupportedError(f"{path} names an enumeration, whose module would be imported", fix="export the model without it")
            classes |= {v for k, v in entries(json.loads(value)) if k == "type" and isinstance(v, str)}
    return classes


def _check_pickle(path: str, name: str, data: bytes) -> None:
    """Raises UnsupportedError for a pickle that holds more than tensors, numbers, texts and nests of them."""
    if not data:
        return
    try:
        torch.load(io.BytesIO(data), map_location="meta", weights_only=True)
    except Exception as error:  # whatever it is, the part is not one of tensors alone
        raise UnsupportedError(
            f"{path} carries pickled code: {name}",
            details=(str(error).splitlines()[0][:200],),
            fix="set program.example_inputs = None before torch.export.save, or export from a model of tensors alone",
        ) from error


def is_arithmetic(text: str) -> bool:
    """Whether a text says a length: numbers, symbols, and functions of lengths. PyTorch evaluates it as Python."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            fits = node.id in ARITHMETIC if id(node) in called else re.fullmatch(r"[a-z]+\d+", node.id) is not None
        elif isinstance(node, ast.Constant):
            fits = isinstance(node.value, (int, bool)) or re.fullmatch(r"\w+|\d+\.\d+(e[+-]?\d+)?", str(node.value)) is not None
        else:
            fits = isinstance(node, PLAIN)
        if not fits:
            return False
    return True


def entries(said: Any) -> Iterator[tuple[str, Any]]:
    """Yields each key of nested JSON with its value."""
    todo = [said]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            yield from value.items()
            todo += value.values()
        elif isinstance(value, list):
            todo += value
