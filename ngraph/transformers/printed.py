"""Programs as readable Python over NumPy: names are the user's, comments show the user's lines.

Elementwise results reuse the buffer of an operand that dies there, so state is updated in place.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import keyword
import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from ngraph import numpy_functions
from ngraph.errors import show_line
from ngraph.numpy_ops import CallLine, Lines, Name, Translation, Variable, bytes_of, function, several, translate, used
from ngraph.op_graph import expr
from ngraph.op_graph.dtypes import REGISTRY as DTYPES
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Expr
from ngraph.parts.walk import closure
from ngraph.passes.dim_orders import dim_orders
from ngraph.program.program import Program
from ngraph.runtime.computation import inside

EXTRA = {d.name: d.np.type for d in DTYPES.values() if d.np is not None and d.np.isbuiltin != 1}  # dtypes that NumPy itself lacks
FUNCTIONS = {name: f for name, f in vars(numpy_functions).items() if inspect.isfunction(f)}
RESERVED = {*keyword.kwlist, *dir(builtins), *FUNCTIONS, "np", *EXTRA, "ERF", "COLUMNS"}
POSTFIX = ("[]", ".T()", ".transpose", "scalar", "np.broadcast_to")  # inlined where they have one use
VIEWS = (".reshape", ".view", "strided", "[]", ".T()", ".transpose", "np.broadcast_to")  # their operand's buffer stays live
FREED = 1 << 20  # bytes: variables of at least this size are deleted once dead


def printed(program: Program) -> Printed:
    """Returns a program as Python over NumPy, its values with dims in the orders that cost least."""
    return Printed(translate(program, dim_orders))


@functools.lru_cache(256)
def shown(file: str) -> str:
    """Returns a file as errors print it."""
    return show_line((file, 0)).removesuffix(":0")


class Printed:
    """A translated program as the text of one function."""

    def __init__(self, made: Translation):
        self.made = made
        self.names: dict[Variable | Lines, str] = {}
        self.taken = set(RESERVED)
        self.counts: dict[str, int] = {}
        self.helpers: dict[str, None] = {}
        self.hosts: dict[str, str] = {}
        self.extra: dict[str, None] = {}
        self.in_place = False
        self.out: list[str] = []
        self.said = ""
        self.constants: list[Variable] = []
        lines = made.lines
        self.name = self.fresh(lines.name)
        for v in lines.params:
            self.name_of(v)
        self.function(lines, self.name, made.written, 0)

    # names
    def fresh(self, hint: str) -> str:
        name = re.sub(r"\W+", "_", hint).strip("_") or "value"
        name = f"_{name}" if name[0].isdigit() else name
        if name in self.taken:
            n = self.counts.get(name, 1)
            while f"{name}_{n + 1}" in self.taken:
                n += 1
            self.counts[name] = n + 1
            name = f"{name}_{n + 1}"
        self.taken.add(name)
        return name

    def name_of(self, v: Variable) -> str:
        if v not in self.names:
            self.names[v] = self.fresh(v.hint)
        return self.names[v]

    # arguments
    def text(self, a: Any) -> str:
        kind = type(a)
        if kind is Variable:
            return self.number(a.literal) if a.literal is not None else self.name_of(a)
        if kind is tuple:
            return f"({', '.join(map(self.text, a))}{',' * (len(a) == 1)})"
        if kind is slice:
            parts = ["" if p is None else self.text(p) for p in (a.start, a.stop)]
            return ":".join(parts) + ("" if a.step is None else f":{self.text(a.step)}")
        if kind is DType:
            return self.dtype(a)
        if kind is Lines:
            return self.names[a]
        if kind is Name:
            return str(a)
        if isinstance(a, Expr):
            written = expr.text(a, lambda leaf: self.text(leaf.of))
            arrays = any(leaf.of.dtype is not None for leaf in expr.leaves(a))
            return re.sub(r"\b(min|max)\(", r"np.\1imum(", written) if arrays else written
        return self.number(a)

    @staticmethod
    def number(a: Any) -> str:
        if isinstance(a, float) and not math.isfinite(a):
            return "np.nan" if a != a else "np.inf" if a > 0 else "-np.inf"
        return repr(a)

    def dtype(self, d: DType) -> str:
        if d.name in EXTRA:
            self.extra[d.name] = None
            return d.name
        return "np.bool_" if d.kind == "bool" else f"np.{d.name}"

    def call(self, call: CallLine, out: str = "") -> str:
        """Returns a call as text."""
        fn = call.fn
        args = [self.text(a) for a in call.args]
        named = [f"{k.rstrip('_')}={self.text(a)}" for k, a in call.kwargs.items()] + ([f"out={out}"] if out else [])
        if fn == "[]":
            index = call.args[1] if type(call.args[1]) is tuple else (call.args[1],)
            return f"{args[0]}[{', '.join(map(self.text, index))}]"
        if fn == "len":
            return f"{args[0]}.shape[{args[1]}]"
        if fn == "scalar":
            return f"{args[1]}({args[0]})"
        if fn.endswith("()"):
            return f"{args[0]}{fn[:-2]}"
        if fn.startswith("."):
            return f"{args[0]}{fn}({', '.join(args[1:] + named)})"
        if fn.startswith(("host:", "numpy:", "reference:")):
            fn = "print" if fn == "host:print" else self.hosts.setdefault(fn, self.fresh(fn.partition(":")[2]))
        elif not fn.startswith("np.") and fn in FUNCTIONS:
            self.helpers[fn] = None
        return f"{fn}({', '.join(args + named)})"

    # lines
    def function(self, lines: Lines, name: str, written: Iterable[Variable], depth: int) -> None:
        """Prints a function: the whole program, or a body inside it."""
        for v in lines.constants:
            self.constants.append(v)
            self.name_of(v)
        pad = "    " * (depth + 1)
        if depth == 0 and lines.quiet:
            self.out.append('@np.errstate(all="ignore")')
        self.out.append(f"{'    ' * depth}def {name}({', '.join(map(self.name_of, lines.params))}):")
        life = Life(lines, set(written))
        for k, call in enumerate(lines.calls):
            if call.fn == "len" and call.targets[0] not in life.uses:
                continue  # a length that no line uses
            if call.fn in POSTFIX and life.uses.get(call.targets[0]) == 1 and call.targets[0] not in lines.results:
                self.names[call.targets[0]] = self.call(call)
                continue
            for a in call.args:
                if type(a) is Lines:
                    self.names[a] = self.fresh("body")
                    self.function(a, self.names[a], (), depth + 1)
            into = life.buffer(k, call)
            if into is not None and into.holds == "state":
                self.in_place = True
            written_call = self.call(call, self.name_of(into) if into is not None else "")
            targets = [self.name_of(v) for v in call.targets if v in life.uses or v in life.results]
            if targets:
                targets = [self.name_of(v) for v in call.targets]
                comma = "," if len(targets) == 1 and several(call.fn) else ""
                written_call = f"{', '.join(targets)}{comma} = {written_call}"
            self.out.append(f"{pad}{written_call}{self.comment(call)}")
            gone = [self.names[v] for v in life.ends(k) if v is not into and bytes_of(v) >= FREED and self.names[v].isidentifier()]
            if gone and call.fn not in VIEWS:
                self.out.append(f"{pad}del {', '.join(gone)}")
        results = [self.text(v) for v in lines.results]
        self.out.append(f"{pad}return {', '.join(results)}{',' * (len(results) == 1)}" if results else f"{pad}return ()")

    def comment(self, call: CallLine) -> str:
        """Returns the user's line as a comment, where it differs from that of the previous line."""
        where = next((o for o in call.origin if o.file), None)
        said = "" if where is None else f"{shown(where.file)}:{where.line}"
        if said == self.said or not said:
            return ""
        self.said = said
        return f"  # {said}"

    # whole program
    @functools.cached_property
    def body(self) -> str:
        return "\n".join(self.out)

    def compiled(self) -> Any:
        """The compiled function."""
        space: dict[str, Any] = {"np": np, **EXTRA, "__name__": "ngraph.printed"}
        space.update((name, function(name)) for name in self.helpers)
        space.update((self.names[v], v.array) for v in self.constants)
        space.update((name, function(fn)) for fn, name in self.hosts.items())
        exec(compile(self.body, inside(f"<{self.name}>"), "exec"), space)
        return space[self.name]

    def module(self) -> str:
        """Returns a module that runs by itself."""
        small = [v for v in self.constants if v.array is not None and v.array.nbytes <= 64]
        large = [v for v in self.constants if v not in small]
        parts = [f'"""{self.name}, as NumPy: {self.signature()}"""', "import numpy as np"]
        extra = dict.fromkeys([*self.extra, *[v.dtype.name for v in (*small, *self.made.lines.params) if v.dtype.name in EXTRA]])
        if extra:
            parts[-1] = "import ml_dtypes\nimport numpy as np\n\n" + "\n".join(f"{name} = ml_dtypes.{name}" for name in extra)
        helpers = library(self.helpers)
        if helpers:
            parts.insert(1, "from __future__ import annotations")
        parts += helpers
        if small:
            parts.append("\n".join(f"{self.names[v]} = {self.inline(v)}" for v in small))
        if large or self.hosts:
            said = [f"{self.names[v]}: np.ndarray  # {v.dtype}{list(v.shape)}, to be set" for v in large]
            takes = {"host": "(text, *arrays)", "numpy": "arrays", "reference": "(lengths, integers, *arrays) that returns a tuple"}
            said += [f"{name}: object  # a function of {takes[fn.partition(':')[0]]}, to be set" for fn, name in self.hosts.items()]
            parts.append("\n".join(said))
        return "\n\n".join(parts) + f"\n\n\n{self.body}\n\n\n{self.main(large)}\n"

    def inline(self, v: Variable) -> str:
        """Returns the text of a small constant."""
        assert v.array is not None
        items = v.array.astype(np.float64 if v.dtype.python is float else np.int32) if v.dtype.name in EXTRA else v.array
        written = np.array2string(items, separator=", ", threshold=100, floatmode="unique").replace("\n", "")
        written = re.sub(r"\b(nan|inf)\b", r"np.\1", written)
        made = f"np.array({written}, dtype={self.dtype(v.dtype)})"
        return made if v.array.size else f"np.zeros({v.array.shape}, dtype={self.dtype(v.dtype)})"

    def signature(self) -> str:
        """Returns a summary of arguments and results, with axes."""
        lines = self.made.lines
        given = ", ".join(f"{self.names[v]}{self.text(v.shape) if v.shape else ''}" for v in lines.params)
        writes = "".join([f" Result {n + 1} is to be written into {self.names[lines.params[k]]}." for k, n in self.made.writes])
        return f"({given or 'nothing'}) to {self.made.outputs} results and {len(lines.results) - self.made.outputs} new states.{writes}"

    def main(self, large: list[Variable]) -> str:
        """Returns code that runs the function on zeros, with unknown lengths of 2."""

        def zeros(v: Variable) -> str:
            shape = tuple([n if type(n) is int else expr.evaluate(n, lambda leaf: 2) for n in v.shape])
            return f"np.zeros({shape}, {self.dtype(v.dtype)})"

        lines = ['if __name__ == "__main__":  # on zeros']
        lines += [f"    {self.names[v]} = {zeros(v)}" for v in large]
        lines += [f"    {name} = print" for name in self.hosts.values()]
        lines.append(f"    print({self.name}({', '.join(map(zeros, self.made.lines.params))}))")
        return "\n".join(lines)


class Life:
    """Liveness: the last read of variables, and the buffers that an elementwise result may reuse."""

    def __init__(self, lines: Lines, written: set[Variable]):
        self.uses: dict[Variable, int] = {}
        self.results = set(lines.results)
        self.last: dict[Variable, int] = {}  # by root
        self.own: dict[Variable, int] = {}  # by variable
        self.free = set(written)  # roots that may be overwritten, once dead
        escaped: set[Variable] = set()
        views: dict[Variable, Variable] = {}
        for k, call in enumerate(lines.calls):
            for v in used(call):
                self.uses[v] = self.uses.get(v, 0) + 1
                self.last[v.root] = self.own[v] = k
                if call.fn in POSTFIX and v in views:
                    self.own[views[v]] = k
                if several(call.fn):
                    escaped.add(v.root)
            if call.fn in POSTFIX and type(call.args[0]) is Variable:
                views[call.targets[0]] = call.args[0]
            if not several(call.fn):
                self.free.update(v for v in call.targets if v.root is v)
        for k, call in enumerate(lines.calls):  # an inlined view is read where it is printed
            for v in used(call):
                while v in views:
                    v = views[v]
                    self.own[v] = max(self.own.get(v, 0), k)
        self.free -= escaped
        end = len(lines.calls)
        for v in lines.results:
            self.last[v.root] = self.own[v] = end
        params = {*lines.params, *lines.captures, *lines.constants}
        self.dead: dict[int, list[Variable]] = {}
        for v, k in self.own.items():
            if v not in params and v.literal is None:
                self.dead.setdefault(k, []).append(v)

    def buffer(self, k: int, call: CallLine) -> Variable | None:
        """Returns an operand that is dead after this call and has the result's shape and dtype; None where there is none."""
        target = call.targets[0]
        if not call.fits or not target.shape:
            return None
        for a in call.args:
            if type(a) is Variable and a in self.free and self.last[a] == k and a.dtype is target.dtype and a.shape == target.shape:
                self.free.discard(a)
                return a
        return None

    def ends(self, k: int) -> list[Variable]:
        return self.dead.get(k, [])


def library(names: Iterable[str]) -> list[str]:
    """Returns the source of helper functions with those that they use, in the order of their file."""
    wanted = closure(names, lambda name: [n for n in FUNCTIONS[name].__code__.co_names if n in FUNCTIONS])
    if not wanted:
        return []
    used_names = {n for name in wanted for n in FUNCTIONS[name].__code__.co_names}
    parts = [f"{name} = {value!r}" for name, value in vars(numpy_functions).items() if name.isupper() and name in used_names]
    return parts + [inspect.getsource(f).rstrip() for name, f in FUNCTIONS.items() if name in wanted]
