"""Programs as text that parses back, and as JSON: `text`, `parse`, `equal`, `to_json`, `from_json`, `save`, `load`.

    ngraph program 1
    axis C = 4
    axis N
    input %0 x : float32[C, N]
    state "W" = %1 W : float32[C]
    %2 : float32[N] = contract(%1, %0) {over: [C], accumulate: float32}  # dot at "net.py":7
    output %2

Statements end with the line. Tuples are in brackets, strings in quotes, ids of axes bare (in backticks where they are not plain
name); in a length a bare id is its `Len`. A body is in braces: `body: program { … }`. `#` precedes the origin of a step.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from ngraph.errors import GraphError, ParseError, ProgramError
from ngraph.op_graph import expr
from ngraph.op_graph.arrays import SMALL, ArrayRef
from ngraph.op_graph.dtypes import REGISTRY as DTYPES
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Bin, Expr, ExprLike, Idx, Leaf, Len, Run
from ngraph.op_graph.op import Origin, TensorType
from ngraph.op_graph.text import (
    FORMAT,
    Decoder,
    Encoder,
    check_version,
    decoding,
    index,
    json_of,
    packed,
    read_json,
    register_codec,
    typed,
    write_json,
)
from ngraph.program.program import AxisId, Program, State, Step, Value

KIND = "program"
MAX_DEPTH = 48  # nesting depth of bodies, tuples and parentheses

_NAME = re.compile(r"[^\W\d]\w*")
_AXIS = re.compile(r"[^\W\d]\w*(?:\.\d+)?['^]*")
_WORDS = frozenset(("true", "false", "none", "nan", "inf", "array", "program", "Len", "Idx", "Run", "min", "max"))
_QUIET_NAN = 0x7FF8000000000000

# ---- printing ---------------------------------------------------------------------------------------------------------


def text(program: Program, origins: bool = True) -> str:
    """Returns the program as text, which `parse` reads back. `origins=False` omits the steps' origins.

    Large arrays are printed by name: `arrays(program)` gives them. Raises ProgramError for an attribute that no program may have.
    """
    return _Printer(origins).whole(program)


def arrays(program: Program) -> dict[str, np.ndarray]:
    """Returns the large arrays of a program and its bodies, by the names that `text` gives them."""
    printer = _Printer(False)
    printer.whole(program)
    return printer.arrays


def step_text(program: Program, step: Step) -> str:
    """Returns one step as `text` prints it, with its numbers, even where the step is invalid."""
    printer = _Printer(True, strict=False)
    printer.number(program)
    return printer.step(step)


class _Printer:
    """The state of one printing; bodies have printers of their own, which share the names of arrays."""

    def __init__(self, origins: bool, strict: bool = True, outer: _Printer | None = None):
        self.origins, self.strict = origins, strict
        self.depth: int = outer.depth if outer else 0
        self.names: dict[Value, str] = {}
        self.arrays: dict[str, np.ndarray] = outer.arrays if outer else {}
        self.array_names: dict[ArrayRef, str] = outer.array_names if outer else {}
        self.words: dict[str, str] = outer.words if outer else {}
        self.types: dict[TensorType, str] = {}
        self.origin_texts: dict[tuple[Origin, ...], str] = {(): ""}

    def whole(self, p: Program) -> str:
        return f"ngraph program {FORMAT}{_title(p)}\n{self.lines(p)}"

    def number(self, p: Program) -> None:
        names = self.names
        for v in p.sources():
            names.setdefault(v, f"%{len(names)}")
        for s in p.steps:
            for v in s.results:
                names.setdefault(v, f"%{len(names)}")

    def lines(self, p: Program) -> str:
        """Returns all statements, each with its end of line."""
        self.number(p)
        out = [self.axis_line(p, a) for a in p.axes]
        out += [f"input {self.defined(v)}" for v in p.inputs]
        out += [f"state {json.dumps(s.name)} = {self.defined(s.value)}" for s in p.state_in]
        if p.token_in is not None:
            out.append(f"token_in {self.defined(p.token_in)}")
        out += map(self.step, p.steps)
        if p.outputs:
            out.append(f"output {', '.join(map(self.used, p.outputs))}")
        out += [f"state_out {json.dumps(name)} = {self.used(v)}" for name, v in p.state_out]
        out += [f"write {self.used(p.inputs[k])} = output {n}" for k, n in p.writes]
        if p.token_out is not None:
            out.append(f"token_out {self.used(p.token_out)}")
        return "".join([line + "\n" for line in out])

    def axis_line(self, p: Program, a: AxisId) -> str:
        length, hint = p.axes[a], p.hints.get(a, a)
        line = f"axis {self.axis(a)}" + ("" if hint == a else f" {json.dumps(hint)}")
        if isinstance(length, Len) and length.of == a:
            return line
        return f"{line} = {expr.text(length, lambda leaf: self.axis(leaf.of) if type(leaf) is Len else self.leaf(leaf))}"

    def used(self, v: Value) -> str:
        return self.names.get(v) or self.names.setdefault(v, f"%undefined{len(self.names)}")

    def defined(self, v: Value) -> str:
        shown = self.types.get(v.type)
        if shown is None:
            shown = self.types[v.type] = f"{v.type.dtype.name}[{', '.join(map(self.axis, v.type.axes))}]"
        return f"{self.names[v]} {self.word(v.hint)} : {shown}" if v.hint else f"{self.names[v]} : {shown}"

    def step(self, s: Step) -> str:
        names = self.names
        inputs = ", ".join([names.get(v) or self.used(v) for v in s.inputs])
        line = f"{', '.join(map(self.defined, s.results))} = {self.word(s.op)}({inputs})"
        if s.attrs:
            line += f" {{{', '.join([f'{self.word(k)}: {self.attr(a, s)}' for k, a in s.attrs.items()])}}}"
        return line + self.origin(s.origin) if self.origins else line

    def origin(self, origin: tuple[Origin, ...]) -> str:
        shown = self.origin_texts.get(origin)
        if shown is None:
            shown = self.origin_texts[origin] = f"  # {', '.join(map(self.one_origin, origin))}"
        return shown

    def one_origin(self, o: Origin) -> str:
        scope = f" in {json.dumps(o.scope)}" if o.scope else ""
        return self.word(o.name) + scope + (f" at {json.dumps(o.file)}:{o.line}" if o.file or o.line else "")

    def word(self, s: str) -> str:
        """Returns a name: bare where it is a plain one, else quoted."""
        shown = self.words.get(s)
        if shown is None:
            shown = self.words[s] = s if _NAME.fullmatch(s) else json.dumps(s)
        return shown

    def axis(self, a: str) -> str:
        if _AXIS.fullmatch(a) and a not in _WORDS and a not in DTYPES:
            return a
        return f"`{json.dumps(a)[1:-1].replace('`', chr(92) + 'u0060')}`"

    def leaf(self, leaf: Leaf) -> str:
        return f"{type(leaf).__name__}({self.used(leaf.of) if type(leaf) is Run else self.axis(leaf.of)})"

    def attr(self, a: Any, s: Step) -> str:
        kind = type(a)
        if kind is AxisId:
            return self.axis(a)
        if kind is int:
            return str(a)
        if kind is tuple:
            with _Deeper(self, s):
                return f"[{', '.join([self.attr(x, s) for x in a])}]"
        if kind is DType:
            return str(a.name)
        if kind is str:
            return json.dumps(a)
        if kind is float:
            return _float(a)
        if kind is bool or a is None:
            return "none" if a is None else "true" if a else "false"
        if isinstance(a, Expr):
            return expr.text(a, self.leaf)
        if kind is ArrayRef:
            return self.array(a)
        if kind is Program:
            with _Deeper(self, s):
                inner = _Printer(self.origins, self.strict, self)
                body = inner.lines(a)
            return f"program{_title(a)} {{\n{_indented(body)}}}"
        if self.strict:
            raise ProgramError(f"{s.op} has an attribute of type {kind.__name__}, which no program may hold: {a!r}", line=_line_of(s))
        return f"<{kind.__name__} {a!r}>"

    def array(self, ref: ArrayRef) -> str:
        a = ref.array
        if not ref.small:
            name = self.array_names.get(ref)
            if name is None:
                base = name = ref.name or "array"
                n = 1
                while name in self.arrays:
                    n += 1
                    name = f"{base}_{n}"
                self.array_names[ref], self.arrays[name] = name, a
            return f"array({json.dumps(name)})"
        with np.errstate(invalid="ignore"):  # a signalling NaN would become a quiet one, so it is written as bytes
            floats = ref.dtype.python is float
            items = a.astype(np.float64).ravel().tolist() if floats else a.ravel().tolist()
            kept = ref.dtype.kind == "narrow" or floats
            exact = not kept or np.array(items, np.float64).astype(a.dtype).tobytes() == a.tobytes()
        if not exact:
            return f"array({ref.dtype.name}, {list(a.shape)}, {json.dumps(a.tobytes().hex())})"
        shown = ", ".join([_float(x) if type(x) is float else str(x).lower() for x in items])
        return f"array({ref.dtype.name}, {list(a.shape)}, [{shown}])"


class _Deeper:
    """A counter of the nesting depth, for printer and parser."""

    def __init__(self, owner: Any, at: Any = None):
        self.owner, self.at = owner, at

    def __enter__(self) -> None:
        self.owner.depth += 1
        if self.owner.depth > MAX_DEPTH:
            message = f"bodies, tuples or parentheses stand more than {MAX_DEPTH} deep in each other"
            if isinstance(self.owner, _Parser):
                self.owner.fail(message)
            raise ProgramError(message, line=_line_of(self.at))

    def __exit__(self, *_: Any) -> None:
        self.owner.depth -= 1


def _title(p: Program) -> str:
    return "" if p.name == "program" else f" {json.dumps(p.name)}"


def _indented(lines: str) -> str:
    return "".join([f"    {line}\n" for line in lines.splitlines()])


def _line_of(s: Step) -> tuple[str, int] | None:
    return next(((o.file, o.line) for o in s.origin if o.file), None)


def _float(x: float) -> str:
    if x != x:
        bits = struct.unpack("<Q", struct.pack("<d", x))[0]
        return "nan" if bits == _QUIET_NAN else f"nan(0x{bits:016x})"
    return repr(x)


# ---- parsing ----------------------------------------------------------------------------------------------------------

# ends of lines, values, names and axes, numbers, strings, ids in backticks, and single characters, separated by blanks
_TOKEN = re.compile(
    r"""\n\s*|%\w+|[^\W\d]\w*(?:\.\d+)?['^]*|0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"""
    r"""|"[^"\\\n]*(?:\\.[^"\\\n]*)*"?|`[^`\\\n]*(?:\\.[^`\\\n]*)*`?|//|\S"""
)
_LEVEL = {"+": 1, "-": 1, "*": 2, "//": 2, "%": 2}
_END = ""


def parse(source: str, arrays: Mapping[str, Any] | None = None) -> Program:
    """Returns the program that `text` printed; `arrays` are the large ones, by name.

    Raises ParseError with position, line and column for anything else. Semantic rules are not checked: `verify` does that.
    """
    return _Parser(source, arrays or {}).whole()


class _Parser:
    """The state of one parse: `k` is the index of the current token. Values and axes are those of the current (sub-)program."""

    def __init__(self, source: str, arrays: Mapping[str, Any]):
        self.source, self.given = source, arrays
        self.tokens: list[str] = _TOKEN.findall(source)
        self.tokens.append(_END)
        self.k = 0
        self.depth = 0
        self.ids: dict[str, AxisId] = {}
        self.types: dict[tuple[str, ...], TensorType] = {}
        self.origins: dict[tuple[str, ...], tuple[Origin, ...]] = {}
        self.refs: dict[str, ArrayRef] = {}
        self.values: dict[str, Value] = {}
        self.waiting: dict[str, int] = {}  # values used before their definition, with the token of the first use

    # errors
    def place(self, k: int) -> tuple[int, int, int]:
        """Returns position, line and column of a token."""
        start = (match.start() for n, match in enumerate(_TOKEN.finditer(self.source)) if n == k)
        position = next(start, len(self.source))
        return position, self.source.count("\n", 0, position) + 1, position - self.source.rfind("\n", 0, position)

    def fail(self, message: str, k: int | None = None, fix: str = "") -> NoReturn:
        position, line, column = self.place(self.k if k is None else k)
        end = self.source.find("\n", position)
        first = max(position - column + 1, position - 80)
        shown = self.source[first : min(len(self.source) if end < 0 else end, position + 60)]
        caret = "".join(["\t" if c == "\t" else " " for c in self.source[first:position]]) + "^"
        raise ParseError(f"line {line}, column {column}: {message}", position=position, details=(shown, caret), fix=fix)

    def found(self) -> str:
        token = self.tokens[self.k]
        if token == _END or token[0] == "\n":
            return "the end" if token == _END else "the end of the line"
        return token if len(token) <= 40 else token[:37] + "..."

    # tokens
    def expect(self, token: str) -> None:
        if self.tokens[self.k] != token:
            self.fail(f"{token} is expected, and here is {self.found()}")
        self.k += 1

    def accept(self, token: str) -> bool:
        if self.tokens[self.k] == token:
            self.k += 1
            return True
        return False

    def string(self, what: str = "a string in quotes") -> str:
        token = self.tokens[self.k]
        if token[:1] != '"' or len(token) < 2 or token[-1] != '"':
            self.fail(f"{what} is expected, and here is {self.found()}")
        self.k += 1
        return self.unquoted(token)

    def unquoted(self, token: str) -> str:
        try:
            return str(json.loads(f'"{token[1:-1]}"'))
        except ValueError:
            self.fail(f"this string is not one as JSON has it: {token[:60]}", self.k - 1)

    def word(self, what: str) -> str:
        token = self.tokens[self.k]
        if token[:1] == '"':
            return self.string()
        if not _NAME.fullmatch(token):
            self.fail(f"{what} is expected, and here is {self.found()}")
        self.k += 1
        return token

    def integer(self, what: str = "a whole number") -> int:
        sign = -1 if self.accept("-") else 1
        token = self.tokens[self.k]
        if not token.isascii() or not token.isdigit():
            self.fail(f"{what} is expected, and here is {self.found()}")
        if len(token) > 400:
            self.fail(f"a number of {len(token)} digits is too long")
        self.k += 1
        return sign * int(token)

    def axis(self) -> AxisId:
        token = self.tokens[self.k]
        found = self.ids.get(token)
        if found is None:
            if token[:1] == "`" and len(token) > 1 and token[-1] == "`":
                self.k += 1
                found = self.ids[token] = AxisId(self.unquoted(token))
                self.k -= 1
            elif _AXIS.fullmatch(token) and token not in _WORDS:
                found = self.ids[token] = AxisId(token)
            else:
                self.fail(f"an axis is expected, and here is {self.found()}")
        self.k += 1
        return found

    # values
    def used(self) -> Value:
        token = self.tokens[self.k]
        found = self.values.get(token)
        if found is None:
            if token[:1] != "%" or len(token) < 2:
                self.fail(f"a value such as %3 is expected, and here is {self.found()}")
            found = self.values[token] = Value.__new__(Value)
            self.waiting[token] = self.k
        self.k += 1
        return found

    def defined(self) -> Value:
        """Parses a definition: `%3 hint : float32[C, N]`."""
        at = self.k
        token = self.tokens[at]
        if token in self.values and token not in self.waiting:
            self.fail(f"{token} is defined twice")
        value = self.used()
        self.waiting.pop(token, None)
        value.hint = "" if self.tokens[self.k] == ":" else self.word("a name or :")
        self.expect(":")
        value.type = self.type()
        return value

    def type(self) -> TensorType:
        start = self.k
        try:
            key = tuple(self.tokens[start : self.tokens.index("]", start) + 1])
        except ValueError:
            key = ()
        found = self.types.get(key)
        if found is not None:
            self.k = start + len(key)
            return found
        dtype = self.dtype()
        self.expect("[")
        made = TensorType(tuple(self.listed(self.axis)), dtype)
        self.types[tuple(self.tokens[start : self.k])] = made
        return made

    def dtype(self) -> DType:
        token = self.tokens[self.k]
        if token not in DTYPES:
            self.fail(f"a dtype is expected, and here is {self.found()}")
        self.k += 1
        return DTYPES[token]

    def listed(self, item: Any, end: str = "]") -> list[Any]:
        """Parses items separated by commas, up to `end`."""
        if self.accept(end):
            return []
        items = [item()]
        while self.accept(","):
            items.append(item())
        self.expect(end)
        return items

    # statements
    def whole(self) -> Program:
        name = self.head(KIND)
        self.end_of_line()
        return self.program(name, _END)

    def head(self, kind: str) -> str:
        """Parses `ngraph KIND FORMAT name`, the first line of every text, up to the name, which it returns."""
        while self.tokens[self.k][:1] == "\n":
            self.k += 1
        for word in ("ngraph", kind):
            self.expect(word)
        at = self.k
        number = self.integer("the number of the format")
        if number < 1 or number > FORMAT:
            position, line, column = self.place(at)
            check_version(number, kind, position, f"line {line}, column {column}: ")
        return self.title()

    def skip_to(self, *words: str) -> int:
        """Skips tokens up to one of these words or the end of the line; returns the number of the first one."""
        begin = self.k
        while self.tokens[self.k] not in (*words, _END) and self.tokens[self.k][0] != "\n":
            self.k += 1
        return begin

    def title(self) -> str:
        return self.string() if self.tokens[self.k][:1] == '"' else "program"

    def end_of_line(self) -> None:
        token = self.tokens[self.k]
        if token != _END and token[0] != "\n":
            self.fail(f"the end of the line is expected, and here is {self.found()}")
        if token != _END:
            self.k += 1

    def program(self, name: str, end: str) -> Program:
        p = Program(name=name)
        steps: list[Step] = []
        parts: dict[str, list[Any]] = {"input": [], "state": [], "output": [], "state_out": [], "write": []}
        outer = self.values, self.waiting
        self.values, self.waiting = {}, {}
        while (token := self.tokens[self.k]) != end:
            if token[:1] == "%" or token == "=":
                steps.append(self.step())
            elif token == "axis":
                self.axis_line(p)
            elif token in parts:
                self.k += 1
                parts[token] += getattr(self, f"_{token}")()
            elif token in ("token_in", "token_out"):
                if getattr(p, token) is not None:
                    self.fail(f"a second {token}")
                self.k += 1
                setattr(p, token, self.defined() if token == "token_in" else self.used())
            else:
                self.fail(f"a statement is expected, and here is {self.found()}")
            self.end_of_line()
        if self.waiting:
            token, k = next(iter(self.waiting.items()))
            self.fail(f"{token} is defined nowhere", k)
        self.values, self.waiting = outer
        p.inputs, p.state_in, p.steps = tuple(parts["input"]), tuple(parts["state"]), tuple(steps)
        p.outputs, p.state_out = tuple(parts["output"]), tuple(parts["state_out"])
        places = {v: k for k, v in enumerate(p.inputs)}
        p.writes = tuple([(self.input_number(places, v, at), n) for at, v, n in parts["write"]])
        return p

    def axis_line(self, p: Program) -> None:
        self.k += 1
        a = self.axis()
        if a in p.axes:
            self.fail(f"axis {a} occurs twice", self.k - 1)
        p.hints[a] = self.string() if self.tokens[self.k][:1] == '"' else str(a)
        p.axes[a] = self.expr(bare=True) if self.accept("=") else Len(a)

    def _input(self) -> list[Value]:
        return [self.defined()]

    def _state(self) -> list[State]:
        name = self.string("the name of a state")
        self.expect("=")
        return [State(name, self.defined())]

    def _output(self) -> list[Value]:
        values = [self.used()]
        while self.accept(","):
            values.append(self.used())
        return values

    def _state_out(self) -> list[tuple[str, Value]]:
        name = self.string("the name of a state")
        self.expect("=")
        return [(name, self.used())]

    def _write(self) -> list[tuple[int, Value, int]]:
        at, v = self.k, self.used()
        self.expect("=")
        self.expect("output")
        return [(at, v, self.integer())]

    def input_number(self, places: Mapping[Value, int], v: Value, at: int) -> int:
        if v not in places:
            self.fail("an input is expected", at)
        return places[v]

    def step(self) -> Step:
        results = []
        if not self.accept("="):
            results.append(self.defined())
            while self.accept(","):
                results.append(self.defined())
            self.expect("=")
        op = self.word("the name of an op")
        self.expect("(")
        inputs = self.listed(self.used, ")")
        attrs = self.attributes()
        origin = self.origin() if self.tokens[self.k] == "#" else ()
        return Step(tuple(results), op, tuple(inputs), attrs, origin)

    def attributes(self) -> dict[str, Any]:
        """Parses `{name: value, name: value}`, which may be missing."""
        attrs: dict[str, Any] = {}
        if self.accept("{") and not self.accept("}"):
            self.attribute(attrs)
            while self.accept(","):
                self.attribute(attrs)
            self.expect("}")
        return attrs

    def attribute(self, attrs: dict[str, Any]) -> None:
        at = self.k
        name = self.word("the name of an attribute")
        if name in attrs:
            self.fail(f"attribute {name} occurs twice", at)
        self.expect(":")
        attrs[name] = self.attr()

    def origin(self) -> tuple[Origin, ...]:
        start = self.k
        self.k += 1
        origins = [self.one_origin()]
        while self.accept(","):
            origins.append(self.one_origin())
        key = tuple(self.tokens[start : self.k])
        return self.origins.setdefault(key, tuple(origins))

    def one_origin(self) -> Origin:
        name, scope, file, line = self.word("a name"), "", "", 0
        if self.accept("in"):
            scope = self.string("a scope")
        if self.accept("at"):
            file = self.string("a file")
            self.expect(":")
            line = self.integer("a line")
        return Origin(name, scope, file, line)

    # reads
    def entry(self) -> tuple[AxisId, ExprLike]:
        """Parses `axis: index`."""
        a = self.axis()
        self.expect(":")
        return a, self.expr()

    def where(self) -> tuple[ExprLike, ...]:
        """Parses the predicates of a read or store, `where [expression, expression]`, which may be missing."""
        if not self.accept("where"):
            return ()
        self.expect("[")
        return tuple(self.listed(self.expr))

    # attributes
    def attr(self) -> Any:
        token = self.tokens[self.k]
        first = token[:1]
        if first == '"':
            return self.string()
        if first == "[":
            self.k += 1
            with _Deeper(self):
                return tuple(self.listed(self.attr))
        if token in _CONSTANT:
            self.k += 1
            return _CONSTANT[token]
        if token in DTYPES:
            self.k += 1
            return DTYPES[token]
        if token == "array":
            return self.array()
        if token == "program":
            self.k += 1
            name = self.title()
            self.expect("{")
            self.end_of_line()
            with _Deeper(self):
                body = self.program(name, "}")
            self.k += 1
            return body
        if first == "`" or (token not in _WORDS and _AXIS.fullmatch(token)):
            return self.axis()
        number = self.number()
        return self.expr() if number is None else number

    def number(self) -> float | None:
        """Parses a float; None where the current token starts none."""
        sign, k = (-1.0, self.k + 1) if self.tokens[self.k] == "-" else (1.0, self.k)
        token = self.tokens[k]
        if token == "inf":
            self.k = k + 1
            return sign * math.inf
        if token == "nan" and sign > 0:
            self.k = k + 1
            return self.payload() if self.accept("(") else math.nan
        if token[:1].isdigit() and token[:2] != "0x" and not token.isdigit():
            self.k = k + 1
            return sign * float(token)
        return None

    def payload(self) -> float:
        token = self.tokens[self.k]
        x = struct.unpack("<d", int(token, 16).to_bytes(8, "little"))[0] if token[:2] == "0x" and len(token) <= 18 else 0.0
        if x == x:
            self.fail(f"the 64 bits of a NaN are expected, and here is {self.found()}")
        self.k += 1
        self.expect(")")
        return x

    def element(self) -> Any:
        token = self.tokens[self.k]
        if token in ("true", "false"):
            self.k += 1
            return token == "true"
        number = self.number()
        return self.integer("a number") if number is None else number

    def array(self) -> ArrayRef:
        at = self.k
        self.k += 1
        self.expect("(")
        if self.tokens[self.k][:1] == '"':
            ref = self.named_array()
        else:
            dtype = self.dtype()
            self.expect(",")
            self.expect("[")
            shape = self.listed(self.integer)
            self.expect(",")
            ref = self.small_array(dtype, shape, at)
        self.expect(")")
        return ref

    def named_array(self) -> ArrayRef:
        at = self.k
        name = self.string()
        if name not in self.refs:
            if name not in self.given:
                fix = "give them beside the text, parse(text, arrays), as ngraph.program.text.arrays has them of a program"
                self.fail(f"array {name!r} is not among the arrays given ({', '.join(self.given) or 'none'})", at, fix)
            given = self.given[name]
            self.refs[name] = given if type(given) is ArrayRef else ArrayRef(np.asarray(given), name)
        return self.refs[name]

    def small_array(self, dtype: DType, shape: list[int], at: int) -> ArrayRef:
        if dtype.np is None:
            self.fail(f"there are no arrays of {dtype}", at)
        try:
            if self.tokens[self.k][:1] == '"':
                flat = np.frombuffer(bytes.fromhex(self.string()), dtype.np)
            else:
                self.expect("[")
                items = self.listed(self.element)
                if dtype.python is not float and any(type(x) is not dtype.python for x in items):
                    raise ValueError(f"these are no elements of {dtype}")
                with np.errstate(all="ignore"):
                    flat = np.array(items, np.float64).astype(dtype.np) if dtype.python is float else np.array(items, dtype.np)
            if math.prod(shape) != flat.size or flat.nbytes > SMALL or min(shape, default=0) < 0:
                raise ValueError(f"{flat.size} elements do not make a {dtype}{shape} of at most {SMALL} bytes")
            return ArrayRef(flat.reshape(shape))
        except (ValueError, OverflowError) as e:
            if isinstance(e, ParseError):
                raise
            self.fail(str(e), at)

    # expressions
    def expr(self, bare: bool = False) -> Any:
        """Parses an integer or an expression; with `bare`, the id of an axis stands for its `Len`."""
        return self.operation(0, bare)

    def operation(self, level: int, bare: bool) -> Any:
        """Parses operators that bind more tightly than `level`."""
        a = self.operand(bare)
        while (mine := _LEVEL.get(op := self.tokens[self.k], 0)) > level:
            at = self.k
            self.k += 1
            a = self.combined(op, a, self.operation(mine, bare), at)
        return a

    def combined(self, op: str, a: Any, b: Any, at: int) -> Any:
        try:
            return expr.combine(op, a, b)
        except (ZeroDivisionError, GraphError) as e:
            self.fail(str(e).split("\n")[0], at)

    def operand(self, bare: bool) -> Any:
        at = self.k
        token = self.tokens[at]
        called = self.tokens[at + 1] == "(" if token in _WORDS else False
        if token == "(":
            self.k += 1
            with _Deeper(self):
                result = self.operation(0, bare)
            self.expect(")")
            return result
        if called and token in ("min", "max"):
            self.k += 2
            with _Deeper(self):
                a = self.operation(0, bare)
                self.expect(",")
                b = self.operation(0, bare)
            self.expect(")")
            return self.combined(token, a, b, at)
        if called and token in _LEAF:
            self.k += 2
            leaf = _LEAF[token](self.used() if token == "Run" else self.axis())
            self.expect(")")
            return leaf
        if bare and (token[:1] == "`" or (token not in _WORDS and _AXIS.fullmatch(token))):
            return Len(self.axis())
        return self.integer("a number, an attribute or an expression" if not bare else "a number or an expression")


_CONSTANT = {"true": True, "false": False, "none": None}
_LEAF = {"Len": Len, "Idx": Idx, "Run": Run}


# ---- structural equality ----------------------------------------------------------------------------------------------


def equal(p: Program, q: Program, notes: bool = False) -> bool:
    """Whether two programs are structurally equal. `notes`: hints, names and origins count, too.

    Large arrays are equal when their bits are.
    """
    return _Pairing(notes).programs(p, q)


class _Pairing:
    """The correspondence between the values of two programs."""

    def __init__(self, notes: bool):
        self.notes = notes
        self.there: dict[Value, Value] = {}
        self.back: dict[Value, Value] = {}

    def programs(self, p: Program, q: Program) -> bool:
        if len(p.axes) != len(q.axes) or len(p.steps) != len(q.steps):
            return False
        for a, b in ((p.inputs, q.inputs), ([s.value for s in p.state_in], [s.value for s in q.state_in]), (p.outputs, q.outputs)):
            if not self.values(a, b):
                return False
        ends = [[(x.token_in,) if x.token_in else (), (x.token_out,) if x.token_out else (), [v for _, v in x.state_out]] for x in (p, q)]
        return (
            all(self.values(a, b) for a, b in zip(*ends, strict=True))
            and [s.name for s in p.state_in] == [s.name for s in q.state_in]
            and [name for name, _ in p.state_out] == [name for name, _ in q.state_out]
            and p.writes == q.writes
            and all(self.steps(s, t) for s, t in zip(p.steps, q.steps, strict=True))
            and all(a in q.axes and self.attrs(length, q.axes[a]) for a, length in p.axes.items())
            and (not self.notes or (p.name == q.name and all(p.hints.get(a, a) == q.hints.get(a, a) for a in p.axes)))
        )

    def values(self, a: Any, b: Any) -> bool:
        if len(a) != len(b):
            return False
        for v, w in zip(a, b, strict=True):
            if self.there.setdefault(v, w) is not w or self.back.setdefault(w, v) is not v or v.type != w.type:
                return False
            if self.notes and v.hint != w.hint:
                return False
        return True

    def steps(self, s: Step, t: Step) -> bool:
        return (
            s.op == t.op
            and self.values(s.inputs, t.inputs)
            and self.values(s.results, t.results)
            and s.attrs.keys() == t.attrs.keys()
            and all(self.attrs(a, t.attrs[k]) for k, a in s.attrs.items())
            and (not self.notes or s.origin == t.origin)
        )

    def attrs(self, a: Any, b: Any) -> bool:
        kind = type(a)
        if kind is not type(b):
            return False
        if kind is float:
            return struct.pack("<d", a) == struct.pack("<d", b)
        if kind is tuple:
            return len(a) == len(b) and all(self.attrs(x, y) for x, y in zip(a, b, strict=True))
        if kind is Program:
            return _Pairing(self.notes).programs(a, b)
        if kind is ArrayRef:
            x, y = a.array, b.array
            return x is y or (x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes())
        return self.exprs(a, b) if kind is Bin else self.values((a.of,), (b.of,)) if kind is Run else bool(a == b)

    def exprs(self, a: Any, b: Any) -> bool:
        todo = [(a, b)]
        while todo:
            a, b = todo.pop()
            if type(a) is Bin:
                if type(b) is not Bin or a.op != b.op:
                    return False
                todo += [(a.a, b.a), (a.b, b.b)]
            elif not self.attrs(a, b):
                return False
        return True


# ---- JSON -------------------------------------------------------------------------------------------------------------


def to_json(program: Program, arrays: dict[str, np.ndarray] | None = None) -> dict[str, Any]:
    """Returns the program as data for `json`. Large arrays go into `arrays` where it is given, else they are included."""
    kept: dict[str, np.ndarray] = {} if arrays is None else arrays
    e = Encoder(kept)
    try:
        data = {"format": FORMAT, "kind": KIND, "program": _encode(program, e)}
    except (TypeError, KeyError) as error:
        raise ProgramError(f"{program.name} cannot be saved: {error}") from error
    return {**data, "arrays": packed(kept)} if arrays is None and kept else data


def from_json(data: dict[str, Any] | str, arrays: Mapping[str, Any] | None = None) -> Program:
    """Returns the program that `to_json` was given. Raises ParseError for invalid data, or a newer format."""
    data = json_of(data) if isinstance(data, (str, bytes)) else data
    program: Program = decoding(data, KIND, lambda d, decoder: _decode(d["program"], decoder), arrays or {})
    return program


def save(program: Program, path: str | os.PathLike[str]) -> None:
    """Writes the program to `path` as JSON, its large arrays to a safetensors file beside it; a crash leaves the previous files intact."""
    kept: dict[str, np.ndarray] = {}
    data = to_json(program, kept)
    write_json(path, data, kept)


def load(path: str | os.PathLike[str]) -> Program:
    """Returns the program that `save` was given. Raises ParseError, FileError."""
    data, kept = read_json(path)
    return from_json(data, kept)


def _encode(p: Program, outer: Encoder) -> dict[str, Any]:
    e = outer.inner()
    types: dict[TensorType, int] = {}
    values: list[Any] = []
    origins: dict[tuple[Origin, ...], int] = {}
    for v in (*p.sources(), *(v for s in p.steps for v in s.results)):
        e.numbers[v] = len(values)
        values.append([types.setdefault(v.type, len(types)), v.hint])
    number = e.numbers.__getitem__
    steps = [
        {
            "op": s.op,
            "inputs": list(map(number, s.inputs)),
            "results": list(map(number, s.results)),
            "attrs": {k: e.encode(a) for k, a in s.attrs.items()},
            "origin": origins.setdefault(s.origin, len(origins)),
        }
        for s in p.steps
    ]
    return {
        "name": p.name,
        "axes": [[str(a), p.hints.get(a, str(a)), e.encode(length)] for a, length in p.axes.items()],
        "types": [[t.dtype.name, list(map(str, t.axes))] for t in types],
        "values": values,
        "inputs": list(map(number, p.inputs)),
        "state_in": [[s.name, number(s.value)] for s in p.state_in],
        "token_in": None if p.token_in is None else number(p.token_in),
        "steps": steps,
        "origins": [list(map(list, o)) for o in origins],
        "outputs": list(map(number, p.outputs)),
        "state_out": [[name, number(v)] for name, v in p.state_out],
        "writes": list(map(list, p.writes)),
        "token_out": None if p.token_out is None else number(p.token_out),
    }


def _decode(data: Any, outer: Decoder) -> Program:
    d = outer.inner()
    d.axes, d.scalar = AxisId, Value
    ids: dict[str, AxisId] = {}

    def axis(a: Any) -> AxisId:
        return ids.setdefault(typed(a, str), AxisId(a))

    outer.at = "types"
    types = [TensorType(tuple([axis(a) for a in typed(axes, list)]), DTYPES[dtype]) for dtype, axes in data["types"]]
    outer.at = "values"
    d.values = [Value(types[index(t, len(types))], typed(hint, str)) for t, hint in data["values"]]
    outer.at = "axes"
    axes = {axis(a): typed_length(d.decode(length)) for a, _, length in data["axes"]}
    if len(axes) != len(data["axes"]):
        raise ValueError("an axis occurs twice")
    outer.at = "origins"
    origins = [tuple([Origin(typed(n, str), typed(s, str), typed(f, str), typed(k, int)) for n, s, f, k in o]) for o in data["origins"]]
    taken: set[int] = set()

    def defined(n: Any) -> Value:
        if n in taken:
            raise ValueError(f"value {n} is defined twice")
        taken.add(n)
        value: Value = d.value(n)
        return value

    outer.at = "inputs"
    p = Program(axes, {axis(a): typed(hint, str) for a, hint, _ in data["axes"]}, name=typed(data["name"], str))
    p.inputs = tuple([defined(n) for n in data["inputs"]])
    p.state_in = tuple([State(typed(name, str), defined(n)) for name, n in data["state_in"]])
    p.token_in = None if data["token_in"] is None else defined(data["token_in"])
    steps = []
    for k, s in enumerate(data["steps"]):
        outer.at = f"steps[{k}]"
        attrs = {typed(name, str): d.decode(a) for name, a in typed(s["attrs"], dict).items()}
        results, inputs = tuple([defined(n) for n in s["results"]]), tuple([d.value(n) for n in s["inputs"]])
        steps.append(Step(results, typed(s["op"], str), inputs, attrs, origins[index(s["origin"], len(origins))]))
    outer.at = "results"
    p.steps = tuple(steps)
    p.outputs = tuple([d.value(n) for n in data["outputs"]])
    p.state_out = tuple([(typed(name, str), d.value(n)) for name, n in data["state_out"]])
    p.writes = tuple([(index(k, len(p.inputs)), index(n, len(p.outputs))) for k, n in data.get("writes", ())])
    p.token_out = None if data["token_out"] is None else d.value(data["token_out"])
    if len(taken) != len(d.values):
        raise ValueError("a value is defined nowhere")
    return p


def typed_length(x: Any) -> Any:
    """Returns a length: an integer or an expression; else raises ValueError."""
    return x if isinstance(x, Expr) else typed(x, int)


register_codec(AxisId, "id", lambda x, e: str(x), lambda p, d: AxisId(typed(p, str)))
register_codec(Value, "value", lambda x, e: e.numbers[x], lambda p, d: d.value(p))
register_codec(Program, "program", _encode, _decode)
