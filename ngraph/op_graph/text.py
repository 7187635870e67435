"""Op-graphs as readable text, and as JSON to keep: `text`, `dumps`/`loads`, `save`/`load`.

JSON has numbers, strings and lists (our tuples); everything else is written `{tag: payload}` through a table of codecs, which other
rooms extend. Records are found by name in the op registry; no class is looked up by name and nothing is unpickled. Each large array is
stored once, in a table beside the graph: within the JSON (`dumps`), or in a safetensors file next to it (`save`).
"""

from __future__ import annotations

import binascii
import json
import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ngraph.errors import GraphError, Line, NgraphError, ParseError, show_line
from ngraph.op_graph import expr
from ngraph.op_graph.arrays import SMALL, ArrayRef, immutable
from ngraph.op_graph.axes import Axes, Axis, Family, show_axes
from ngraph.op_graph.dtypes import REGISTRY as DTYPES
from ngraph.op_graph.dtypes import DType, as_dtype
from ngraph.op_graph.expr import Bin, Expr, Idx, Leaf, Len, Run
from ngraph.op_graph.files import saving, told, write_whole
from ngraph.op_graph.op import Body, Op, TensorType, ordered
from ngraph.op_graph.opdef import find
from ngraph.parts.deferred import deferred
from ngraph.parts.walk import post_order

safetensors, for_numpy = deferred("safetensors"), deferred("safetensors.numpy")  # for graphs that are saved
FORMAT = 1
DUALS = 100  # dual levels that a file may contain
SIMPLE = frozenset((bool, int, float, str, type(None)))
PLAIN = SIMPLE | {DType, Axes, Axis, ArrayRef, np.ndarray}  # attributes that refer to no op

# ---- codecs: the JSON form of one value -----------------------------------------------------------------------------

_ENCODE: dict[type, tuple[str, Callable[[Any, Encoder], Any]]] = {}
_DECODE: dict[str, Callable[[Any, Decoder], Any]] = {}
_FUNCTIONS: dict[str, Callable[..., Any]] = {}
_SHARED: dict[str, Op] = {}


def register_codec(kind: type, tag: str, encode: Callable[[Any, Encoder], Any], decode: Callable[[Any, Decoder], Any]) -> None:
    """Registers a codec: values of exactly this type are saved as `{tag: payload}`.

    encode: (value, encoder) -> payload that JSON can hold; `encoder.encode` for nested values. decode: (payload, decoder) -> value, which
    may raise any exception for an invalid payload. Raises ValueError when type or tag has a codec already.
    """
    if kind in _ENCODE or tag in _DECODE:
        raise ValueError(f"a codec for {kind.__name__} or the tag {tag!r} is registered already")
    _ENCODE[kind] = (tag, encode)
    _DECODE[tag] = decode


def register_function(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Registers a function by name, so that attributes that are this function can be saved; the reader must register it, too."""
    if _FUNCTIONS.setdefault(name, function) is not function:
        raise ValueError(f"a function {name!r} is registered already")
    return function


def register_op(name: str, op: Op) -> Op:
    """Registers an op that exists only once: saved graphs name it, and loading them gives this very op."""
    if _SHARED.setdefault(name, op) is not op:
        raise ValueError(f"an op {name!r} is registered already")
    return op


class Encoder:
    """Encodes values as JSON. `numbers` maps ops (of a program: values) to their ids; `arrays` collects the large arrays by name."""

    def __init__(self, arrays: dict[str, np.ndarray]):
        self.arrays = arrays
        self.numbers: dict[Any, int] = {}
        self.families: dict[Family, int] = {}
        self.names: dict[int, str] = {}  # by the id of a large array its name; `arrays` keeps the array alive

    def inner(self) -> Encoder:
        """Returns an encoder for a body: numbers of its own, the same arrays."""
        made = Encoder(self.arrays)
        made.names = self.names
        return made

    def encode(self, x: Any) -> Any:
        kind = type(x)
        if x is None or kind in (bool, int, str):
            return x
        if kind is float:
            return x if math.isfinite(x) else {"float": f"{_bits(x):016x}"}
        if kind is tuple:
            return [self.encode(y) for y in x]
        if kind in _ENCODE:
            tag, encode = _ENCODE[kind]
            return {tag: encode(x, self)}
        if isinstance(x, Expr):
            return {"expr": self.expr(x)}
        if isinstance(x, np.generic):
            return {"number": [*self.array(np.asarray(x))]}
        if callable(x):
            for name, function in _FUNCTIONS.items():
                if function is x:
                    return {"function": name}
            raise TypeError(f"{getattr(x, '__name__', kind.__name__)} is a function")
        raise TypeError(f"{kind.__name__} has no form in JSON")

    def expr(self, e: Any) -> list[Any]:
        """Returns an expression in postfix order, which needs no recursion."""
        done: list[Any] = []
        todo = [e]
        while todo:
            e = todo.pop()
            if type(e) is Bin:
                done.append(e.op)
                todo += (e.a, e.b)
            else:
                done.append({type(e).__name__: self.encode(e.of)} if isinstance(e, Leaf) else int(e))
        return done[::-1]

    def array(self, a: np.ndarray, name: str = "") -> list[Any]:
        """Returns name, dtype and shape; of a small array its bytes instead of a name."""
        dtype, shape = as_dtype(a.dtype).name, list(a.shape)
        if a.nbytes <= SMALL:
            return [dtype, shape, a.tobytes().hex()]
        if id(a) not in self.names:
            free = base = name or "array"
            n = 1
            while free in self.arrays:
                n += 1
                free = f"{base}_{n}"
            self.names[id(a)], self.arrays[free] = free, a
        return [dtype, shape, {"name": self.names[id(a)]}]

    def axis(self, a: Axis) -> list[int]:
        return [self.families.setdefault(a.family, len(self.families)), a.dual]


class Decoder:
    """Decodes values from JSON. `values` maps numbers to values; `at` is the position in the file, for errors.

    axes, scalar   the leaves of expressions: in op-graphs Axis and Op
    """

    axes: type = Axis
    scalar: type = Op

    def __init__(self, arrays: Mapping[str, Any]):
        self.arrays = arrays
        self.values: list[Any] = []
        self.families: list[Family] = []
        self.refs: dict[str, ArrayRef] = {}
        self.at = ""

    def inner(self) -> Decoder:
        """Returns a decoder for a body: values of its own, the same arrays."""
        made = type(self)(self.arrays)
        made.refs = self.refs
        return made

    def decode(self, x: Any) -> Any:
        kind = type(x)
        if x is None or kind in (bool, int, str, float):
            return x
        if kind is list:
            return tuple([self.decode(y) for y in x])
        if kind is dict and len(x) == 1:
            ((tag, payload),) = x.items()
            if tag in _DECODE:
                return _DECODE[tag](payload, self)
            if tag == "name":
                raise ValueError("an array's name stands where a value should")
        raise ValueError(f"{_short(x)} is not a value" + (f" (known tags: {', '.join(sorted(_DECODE))})" if kind is dict else ""))

    def expr(self, items: Any) -> Any:
        stack: list[Any] = []
        for item in typed(items, list):
            if type(item) is str:
                if item not in expr.APPLY:
                    raise ValueError(f"{_short(item)} is not an operator")
                b, a = stack.pop(), stack.pop()
                stack.append(expr.combine(item, a, b))
            elif type(item) is dict:
                ((tag, of),) = item.items()
                stack.append({"Len": Len, "Idx": Idx, "Run": Run}[tag](typed(self.decode(of), self.scalar if tag == "Run" else self.axes)))
            else:
                stack.append(typed(item, int))
        (result,) = stack
        return result

    def array(self, payload: Any) -> np.ndarray:
        dtype, shape, content = payload
        kind = DTYPES[dtype].np
        size = kind.itemsize * math.prod([index(n, 1 << 62) for n in shape])
        if type(content) is str:
            data = bytes.fromhex(content)
            if len(data) != size or size > SMALL:
                raise ValueError(f"{len(data)} bytes do not make a small {dtype}{shape}")
            return np.frombuffer(data, kind).reshape(shape)
        array = np.asarray(self.arrays[content["name"]])
        if array.shape != tuple(shape) or as_dtype(array.dtype).name != dtype:
            raise ValueError(f"array {content['name']} is {array.dtype}{list(array.shape)}, not {dtype}{shape}")
        return array

    def ref(self, payload: Any) -> ArrayRef:
        name, array = payload
        key = array[2]["name"] if type(array[2]) is dict else None
        if key is None or key not in self.refs:
            given = self.arrays[key] if key is not None else None
            made = given if type(given) is ArrayRef else ArrayRef(self.array(array), typed(name, str))
            if key is None:
                return made
            self.refs[key] = made
        return self.refs[key]

    def axis(self, payload: Any) -> Axis:
        number, dual = payload
        family = self.families[index(number, len(self.families))]
        if not -DUALS <= typed(dual, int) <= DUALS:
            raise ValueError(f"{_short(dual)} is not a dual level")
        return family.members.get(dual) or Axis(family, dual)

    def value(self, number: Any) -> Any:
        return self.values[index(number, len(self.values))]


def typed(x: Any, *kinds: type) -> Any:
    """Returns `x` if it has exactly one of these types, else raises ValueError."""
    if type(x) not in kinds:
        raise ValueError(f"{_short(x)} stands where {' or '.join(k.__name__ for k in kinds)} is expected")
    return x


def index(n: Any, end: int) -> int:
    """Returns `n` if it is an integer from 0 to end - 1, else raises ValueError."""
    if type(n) is not int or not 0 <= n < end:
        raise ValueError(f"{_short(n)} is not a number below {end}")
    return n


def _short(x: Any) -> str:
    shown = repr(x)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _bits(x: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def _dict(payload: Any, d: Decoder) -> dict[Any, Any]:
    return {d.decode(k): d.decode(v) for k, v in payload}


register_codec(DType, "dtype", lambda x, e: x.name, lambda p, d: DTYPES[p])
register_codec(list, "list", lambda x, e: [e.encode(y) for y in x], lambda p, d: [d.decode(y) for y in typed(p, list)])
register_codec(dict, "dict", lambda x, e: [[e.encode(k), e.encode(v)] for k, v in x.items()], _dict)
register_codec(Axis, "axis", lambda x, e: e.axis(x), lambda p, d: d.axis(p))
register_codec(Axes, "axes", lambda x, e: [e.axis(a) for a in x], lambda p, d: Axes([d.axis(a) for a in typed(p, list)]))
register_codec(slice, "slice", lambda x, e: [e.encode(y) for y in (x.start, x.stop, x.step)], lambda p, d: slice(*(d.decode(y) for y in p)))
register_codec(type(...), "ellipsis", lambda x, e: None, lambda p, d: ...)
register_codec(np.ndarray, "array", lambda x, e: e.array(x), lambda p, d: immutable(d.array(p)))
register_codec(ArrayRef, "ref", lambda x, e: [x.name, e.array(x.array, x.name)], lambda p, d: d.ref(p))
register_codec(Op, "op", lambda x, e: e.numbers[x], lambda p, d: d.value(p))
register_codec(
    Body,
    "body",
    lambda x, e: [[e.numbers[o] for o in ops] for ops in (x.inputs, x.outputs)],
    lambda p, d: Body(*([d.value(n) for n in typed(numbers, list)] for numbers in p)),
)
_DECODE["float"] = lambda p, d: struct.unpack("<d", int(p, 16).to_bytes(8, "little"))[0]
_DECODE["expr"] = lambda p, d: d.expr(p)
_DECODE["number"] = lambda p, d: d.array(p)[()]
_DECODE["function"] = lambda p, d: _FUNCTIONS[p]

# ---- files: JSON, with its arrays inside or beside it -----------------------------------------------------------------


LOADERS = {"op-graph": ("an", "ngraph.op_graph.text.load"), "program": ("a", "ngraph.program.text.load")}  # readers by kind


def check_format(data: Any, kind: str) -> None:
    """Raises ParseError unless `data` is a dict of this kind in a format that this version reads."""
    if type(data) is not dict or data.get("kind") != kind:
        other = data.get("kind") if type(data) is dict else None
        if type(other) is str and other in LOADERS:
            article, loader = LOADERS[other]
            raise ParseError(f"this is not {LOADERS[kind][0]} {kind} of ngraph, but {article} {other}", fix=f"read it with {loader}")
        raise ParseError(f"this is not {LOADERS[kind][0]} {kind} of ngraph: {_short(data)}")
    check_version(data.get("format"), kind)


def check_version(number: Any, kind: str, position: int = 0, where: str = "") -> None:
    """Raises ParseError for a format that this version does not read, with both numbers."""
    if type(number) is not int or number < 1:
        raise ParseError(f"{where}the format of a {kind} is a number, not {_short(number)}", position=position)
    if number > FORMAT:
        raise ParseError(
            f"{where}this {kind} has format {number}, and this version of ngraph reads formats up to {FORMAT}",
            position=position,
            fix="install a newer ngraph, or save it again with an older one",
        )


def decoding(data: Any, kind: str, decode: Callable[[Any, Decoder], Any], arrays: Mapping[str, Any]) -> Any:
    """Returns `decode(data, decoder)`; any failure is a ParseError that says where in the file."""
    check_format(data, kind)
    decoder = Decoder(arrays)
    try:
        decoder.arrays = {**{name: _unpacked(a) for name, a in data.get("arrays", {}).items()}, **arrays}
        return decode(data, decoder)
    except Exception as e:
        what = str(e).split("\n")[0] if isinstance(e, NgraphError) else f"{type(e).__name__}: {_short(str(e)[:200])}"
        raise ParseError(f"this {kind} cannot be read, at {decoder.at or 'its start'}: {what}") from e


def json_of(text: str | bytes, what: str = "this") -> Any:
    """Returns the content of a JSON text, called `what` in errors. Raises ParseError with the position."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as e:
        raise ParseError(
            f"{what} is not JSON: {e.msg} at line {e.lineno}, column {e.colno}", position=e.pos, fix="read it as it was written"
        ) from None
    except (ValueError, RecursionError) as e:
        raise ParseError(f"{what} is not JSON that ngraph wrote: {_short(str(e))}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def packed(arrays: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    """Returns arrays as JSON values: dtype, shape, base64."""
    return {
        name: [as_dtype(a.dtype).name, list(a.shape), binascii.b2a_base64(np.ascontiguousarray(a).tobytes(), newline=False).decode()]
        for name, a in arrays.items()
    }


def _unpacked(payload: Any) -> np.ndarray:
    dtype, shape, content = payload
    data = binascii.a2b_base64(content, strict_mode=True)
    return np.frombuffer(data, DTYPES[dtype].np).reshape([index(n, 1 << 62) for n in shape])


def write_json(path: str | os.PathLike[str], data: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes `path`, and beside it a safetensors file of a fresh name that it refers to. The old pair stays valid until the new one is."""
    with saving(path) as place:
        old = _beside(place)
        if arrays:
            data = {**data, "beside": f"{os.path.basename(place)}.{os.urandom(6).hex()}.safetensors"}
            # dtypes that NumPy lacks are stored as integers of their width; the JSON names them
            plain = {n: a if a.dtype.isbuiltin == 1 else a.view(f"u{a.dtype.itemsize}") for n, a in arrays.items()}
            ready = {n: np.ascontiguousarray(a).reshape(a.shape) for n, a in plain.items()}
            types = json.dumps({n: as_dtype(a.dtype).name for n, a in arrays.items()})
            write_whole(os.path.join(os.path.dirname(place), data["beside"]), for_numpy.save(ready, metadata={"dtypes": types}))
        write_whole(place, json.dumps(data, allow_nan=False).encode())
        if old is not None and os.path.exists(old):
            os.unlink(old)


def _beside(path: str) -> str | None:
    """Returns the file of arrays that the JSON at `path` names, if there is one."""
    try:
        with open(path, "rb") as f:
            name = json.load(f).get("beside")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return os.path.join(os.path.dirname(path), name) if _is_ours(name, path) else None


def _is_ours(name: Any, path: str) -> bool:
    if type(name) is not str or os.path.basename(name) != name:
        return False
    return name.startswith(os.path.basename(path) + ".") and name.endswith(".safetensors")


def read_json(path: str | os.PathLike[str]) -> tuple[Any, dict[str, np.ndarray]]:
    """Returns the content that `write_json` wrote. Raises ParseError for other content, FileError where there is no file."""
    given, path = path, os.path.realpath(path)
    with told(given, "read"), open(path, "rb") as f:
        data = json_of(f.read(), os.fspath(given))
    name = data.get("beside") if type(data) is dict else None
    if name is None:
        return data, {}
    if type(name) is not str or os.path.basename(name) != name:
        raise ParseError(f"{show_line((path, 1))} names {_short(name)} as the file of its arrays, which does not lie beside it")
    if not os.path.exists(os.path.join(os.path.dirname(path), name)):
        own = os.path.basename(path)
        fix = f"move the two files together, {own} and {own}.*.safetensors, or write it again"
        raise ParseError(f"the arrays of {own} do not lie beside it, where it says", fix=fix)
    try:
        with safetensors.safe_open(os.path.join(os.path.dirname(path), name), framework="np") as tensors:
            types = json_of((tensors.metadata() or {}).get("dtypes", "{}"))
            return data, {n: _typed_view(tensors.get_tensor(n), types.get(n)) for n in tensors.keys()}
    except (safetensors.SafetensorError, FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise ParseError(f"{name}, the arrays of {os.path.basename(path)}, cannot be read: {_short(str(e))}") from e


def _typed_view(a: np.ndarray, dtype: str | None) -> np.ndarray:
    return a if dtype is None or DTYPES[dtype].np == a.dtype else a.view(DTYPES[dtype].np)


# ---- op-graphs as JSON ------------------------------------------------------------------------------------------------

KIND = "op-graph"


def plain(x: Any) -> bool:
    """Whether an attribute refers to no op; False also where that cannot be decided by type alone."""
    return type(x) in PLAIN or type(x) is tuple and all(map(plain, x))


def inside(x: Any) -> Iterator[Op]:
    """Yields the ops that an attribute refers to."""
    if isinstance(x, Op):
        yield x
    elif isinstance(x, (tuple, list)):
        for y in x:
            if type(y) not in PLAIN:
                yield from inside(y)
    elif type(x) is Body:
        yield from (*x.inputs, *x.outputs)
    elif isinstance(x, Expr):
        for leaf in expr.leaves(x):
            if isinstance(leaf, Run):
                yield from inside(leaf.of)


def to_json(ops: Op | Iterable[Op], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Returns the graph of all that `ops` depend on as JSON data; large arrays go into `arrays`. Raises GraphError."""
    roots = [ops] if isinstance(ops, Op) else list(ops)
    e = Encoder(arrays)
    types: dict[Any, int] = {}
    table: list[Any] = []
    notes: dict[int, int] = {}
    notes_table: list[Any] = []
    saved: list[dict[str, Any]] = []
    families: list[dict[str, Any]] = []

    def type_number(t: TensorType) -> int:
        key = (t.dtype, tuple([(a.family, a.dual) for a in t.axes]))
        if key not in types:
            types[key] = len(table)
            table.append([t.dtype.name, [e.axis(a) for a in t.axes]])
        return types[key]

    todo = list(roots)
    while todo or len(families) < len(e.families):
        for op in numbered(todo, e.numbers):
            saved.append(_op_to_json(op, e, type_number, notes, notes_table))
        todo = []
        for f in list(e.families)[len(families) :]:
            todo += [op for op in inside(f.length) if op not in e.numbers]
            for op in numbered(todo, e.numbers):  # a length that an op computes at run time belongs to the graph
                saved.append(_op_to_json(op, e, type_number, notes, notes_table))
            families.append(_family_to_json(f, e))
    return {
        "format": FORMAT,
        "kind": KIND,
        "axes": families,
        "types": table,
        "notes": notes_table,
        "ops": saved,
        "roots": [e.numbers[r] for r in roots],
    }


def numbered(roots: Iterable[Op], numbers: dict[Op, int]) -> Iterator[Op]:
    """Yields the ops that have no number yet, inputs (and ops in attributes) before users, and numbers each."""
    shared = set(_SHARED.values())

    def needs(op: Op) -> Iterable[Op]:
        if op in shared:
            return ()
        return (*op.inputs, *[i for a in op.attrs.values() if not plain(a) for i in inside(a)])

    for op in post_order(roots, needs, numbers):
        numbers[op] = len(numbers)
        yield op


def _op_to_json(op: Op, e: Encoder, type_number: Callable[[TensorType], int], notes: dict[int, int], table: list[Any]) -> dict[str, Any]:
    for name, shared in _SHARED.items():
        if shared is op:
            return {"shared": name}
    made: dict[str, Any] = {"op": op.opdef.name, "inputs": [e.numbers[i] for i in op.inputs]}
    what = "attribute"
    try:
        if op.attrs:
            made["attrs"] = {}
            for what, value in op.attrs.items():
                made["attrs"][what] = e.encode(value)
        what = "metadata"
        if op.metadata:
            if id(op.metadata) not in notes:
                table.append({k: e.encode(v) for k, v in op.metadata.items()})
                notes[id(op.metadata)] = len(table) - 1
            made["notes"] = notes[id(op.metadata)]
    except (TypeError, KeyError) as error:
        register = "register_function" if callable(op.attrs.get(what)) else "register_codec"
        fix = "give it as a number or an array" if what == "initial_value" else f"ngraph.op_graph.text.{register} lets it be saved"
        raise GraphError(f"{op.opdef.name} {op.label} cannot be saved: {what} {error}", line=op.line, fix=fix) from None
    if op.type is not None:
        made["type"] = [type_number(t) for t in op.type] if type(op.type) is tuple else type_number(op.type)
    for field, value in (("name", op.hint), ("scope", op.scope), ("line", op.line), ("scale", op.scale if op.scale != 1.0 else None)):
        if value is not None and value != "":
            made[field] = value
    return made


def _family_to_json(f: Family, e: Encoder) -> dict[str, Any]:
    made = {
        "name": f.name,
        "length": e.encode(f.length),
        "flags": {k: v for k, v in f.flags.items() if v is not None},
        "roles": sorted(f.roles),
        "parts": None if f.parts is None else [e.axis(a) for a in f.parts],
        "doc": f.doc,
        "line": f.line,
    }
    return {k: v for k, v in made.items() if v or (k in ("name", "length") and v is not None)}


def from_json(data: Any, arrays: Mapping[str, np.ndarray] | None = None) -> tuple[Op, ...]:
    """Returns the roots of a saved graph, as new ops. Raises ParseError for invalid data or a newer format."""
    return decoding(data, KIND, _graph_from_json, arrays or {})


def _graph_from_json(data: dict[str, Any], d: Decoder) -> tuple[Op, ...]:
    waiting = _families_from_json(data["axes"], d)
    d.at = "types"
    types = [TensorType(Axes([d.axis(a) for a in axes]), DTYPES[dtype]) for dtype, axes in data["types"]]
    d.at = "notes"
    notes = [{typed(k, str): d.decode(v) for k, v in n.items()} for n in data["notes"]]
    for k, item in enumerate(data["ops"]):
        d.at = f"ops[{k}]"
        d.values.append(_op_from_json(item, d, types, notes))
        for family, length in waiting.pop(k, ()):
            family.length = d.decode(length)
    d.at = "axes"
    if waiting:
        raise ValueError("a length names an op that is not there")
    _check_lengths(d.families)
    d.at = "roots"
    return tuple([d.value(r) for r in data["roots"]])


def _families_from_json(items: Any, d: Decoder) -> dict[int, list[tuple[Family, Any]]]:
    """Fills `d.families`; returns the lengths that depend on ops, by the last op they name."""
    for k, item in enumerate(items):
        d.at = f"axes[{k}]"
        flags = {name: typed(item.get("flags", {}).get(name), bool, type(None)) for name in ("batch", "recurrent", "channel")}
        roles = frozenset([typed(r, str) for r in item.get("roles", [])])
        length = item.get("length")
        family = Family(typed(item["name"], str), index(length, 1 << 62) if type(length) is int else None, flags, roles, item.get("doc"))
        family.line = _line(item.get("line"))
        d.families.append(family)
    waiting: dict[int, list[tuple[Family, Any]]] = {}
    for k, (family, item) in enumerate(zip(d.families, items, strict=True)):
        d.at = f"axes[{k}]"
        length = item.get("length")
        if item.get("parts") is not None:
            family.parts = tuple([d.axis(a) for a in item["parts"]])
        if length is not None and type(length) is not int:
            named = [index(x["Run"]["op"], 1 << 62) for x in length["expr"] if type(x) is dict and "Run" in x]
            if named:
                waiting.setdefault(max(named), []).append((family, length))
            else:
                family.length = d.decode(length)
    return waiting


def _check_lengths(families: Sequence[Family]) -> None:
    """Raises ValueError where a length is defined in terms of itself."""
    state: dict[Family, bool] = {}  # False while the length is being visited, True once it is known to be sound
    for first in families:
        stack = [first]
        while stack:
            f = stack[-1]
            if f in state:
                state[stack.pop()] = True
                continue
            state[f] = False
            for leaf in expr.leaves(f.length) if f.length is not None else ():
                if isinstance(leaf, Len):
                    if type(leaf.of) is not Axis or state.get(leaf.of.family) is False:
                        raise ValueError(f"the length of axis {f.name} is said in terms of itself")
                    if leaf.of.family not in state:
                        stack.append(leaf.of.family)


def _line(payload: Any) -> Line | None:
    if payload is None:
        return None
    file, number = payload
    return typed(file, str), typed(number, int)


def _op_from_json(item: dict[str, Any], d: Decoder, types: list[TensorType], notes: list[dict[str, Any]]) -> Op:
    if "shared" in item:
        return _SHARED[item["shared"]]
    record = find(item["op"])
    if record is None:
        raise ValueError(f"{_short(item['op'])} is not a registered op")
    inputs = tuple([d.value(n) for n in item["inputs"]])
    attrs = {typed(k, str): d.decode(v) for k, v in item.get("attrs", {}).items()}
    said = item.get("type")
    several = [types[index(n, len(types))] for n in (said if type(said) is list else () if said is None else (said,))]
    type_ = tuple(several) if type(said) is list else several[0] if several else None
    found = record.type(tuple([i.type for i in inputs]), **attrs)
    if _plain(found) != _plain(type_):
        raise ValueError(f"{record.name} gives {found}, and the file says {type_}")
    op = Op(record, inputs, attrs, type_, typed(item.get("name"), str, type(None)))
    op.line, op.scope = _line(item.get("line")), typed(item.get("scope", ""), str)
    op.metadata = notes[index(item["notes"], len(notes))] if "notes" in item else {}
    op.scale = float(typed(item.get("scale", 1.0), int, float))
    return op


def _plain(t: Any) -> Any:
    """Returns a type for comparison: axes as sets."""
    if t is None:
        return None
    return (frozenset(t.axes), t.dtype) if type(t) is TensorType else [(frozenset(p.axes), p.dtype) for p in t]


def dumps(ops: Op | Iterable[Op]) -> str:
    """Returns the graph of all that `ops` depend on as one JSON text, arrays included.

    Raises GraphError for a function among the attributes (such as an initial value) that is not registered.
    """
    arrays: dict[str, np.ndarray] = {}
    data = to_json(ops, arrays)
    return json.dumps({**data, "arrays": packed(arrays)} if arrays else data, allow_nan=False)


def loads(text: str | bytes) -> tuple[Op, ...]:
    """Returns new ops equal to those that `dumps` was given. Raises ParseError."""
    return from_json(json_of(text))


def save(ops: Op | Iterable[Op], path: str | os.PathLike[str]) -> None:
    """Writes the graph to `path` as JSON, its large arrays to a safetensors file beside it; a crash leaves the previous files intact."""
    arrays: dict[str, np.ndarray] = {}
    data = to_json(ops, arrays)
    write_json(path, data, arrays)


def load(path: str | os.PathLike[str]) -> tuple[Op, ...]:
    """Returns new ops equal to those that `save` was given. Raises ParseError, FileError."""
    data, arrays = read_json(path)
    return from_json(data, arrays)


# ---- op-graphs to read ------------------------------------------------------------------------------------------------


def text(ops: Op | Iterable[Op]) -> str:
    """Returns the graph of all that `ops` depend on, to read: axes; per op its types, name and the user's line; the results."""
    roots = [ops] if isinstance(ops, Op) else list(ops)
    numbers = {op: f"%{n}" for n, op in enumerate(ordered(roots))}
    families: dict[Family, None] = {}
    lines = []
    for op, number in numbers.items():
        types = () if op.type is None else op.type if type(op.type) is tuple else (op.type,)
        for t in types:
            families.update((a.family, None) for a in t.axes)
        attrs = ", ".join(f"{k}: {_show(v, numbers)}" for k, v in op.attrs.items() if k not in ("axes", "dtype") or op.inputs)
        name = f" {op.scope + '/' if op.scope else ''}{op.hint or ''}".rstrip()
        result = ", ".join(f"{t.dtype}[{', '.join(map(repr, t.axes))}]" for t in types) or "no value"
        call = f"{op.opdef.name}({', '.join(numbers[i] for i in op.inputs)})" + (f" {{{attrs}}}" if attrs else "")
        lines.append(f"{number}{name} : {result} = {call}" + (f"  # {show_line(op.line)}" if op.line else ""))
    head = [_show_family(f, numbers) for f in families]
    return "\n".join([*head, *lines, f"results {', '.join(numbers[r] for r in roots)}"]) + "\n"


def _show_family(f: Family, numbers: Mapping[Op, str]) -> str:
    axis = Axis(f) if 0 not in f.members else f.members[0]
    marks = [m for m in ("batch", "recurrent", "channel") if getattr(axis, f"is_{m}")]
    length = f"{axis.length}" if axis.length is not None else "?" if f.length is None else _show(f.length, numbers)
    notes = [*marks, *sorted(f.roles), *([f"flattened {show_axes(f.parts)}"] if f.parts else [])]
    return f"axis {f.name} = {length}" + (f"  {', '.join(notes)}" if notes else "") + (f"  # {show_line(f.line)}" if f.line else "")


def _show(a: Any, numbers: Mapping[Op, str]) -> str:
    """Returns an attribute as one line prints it."""
    if isinstance(a, Axis):
        return a.label
    if isinstance(a, (tuple, list)):
        return f"[{', '.join(_show(x, numbers) for x in a)}]"
    if isinstance(a, Expr):
        return expr.text(a, lambda leaf: f"{type(leaf).__name__}({_show(leaf.of, numbers)})")
    if isinstance(a, Op):
        return numbers.get(a, a.label)
    if isinstance(a, ArrayRef):
        a = a.array
    if isinstance(a, np.ndarray):
        return str(a.tolist()) if a.size <= 8 else f"{a.dtype}{list(a.shape)}"
    if callable(a):
        return getattr(a, "__name__", type(a).__name__)
    return _short(a)
