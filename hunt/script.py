"""Writes down the calls that build an op-graph, as lines of a Python program.

`Api(module)` stands in place of a module: calls go to its functions, and while a `Script` is open each call is a line of it. Functions
that are passed become `def`s, and operators are those of Python's `operator`.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np


class Script:
    """Lines, and what the ops and axes in them are called."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: list[tuple[Any, str]] = []
        self.count = 0

    def name(self, value: Any, text: str) -> Any:
        """The value, called so from now on; of several each by its place."""
        if isinstance(value, (tuple, list)) and type(value).__name__ in ("tuple", "list"):
            for k, part in enumerate(value):
                self.name(part, f"{text}[{k}]")
        elif value is not None:
            self.names.append((value, text))
        return value

    def text(self, x: Any) -> str:
        found = next((text for value, text in self.names[::-1] if value is x), None)
        if found is not None:
            return found
        if hasattr(x, "dual"):
            return self.axis(x)
        if isinstance(x, np.ndarray):
            return array(x)
        if isinstance(x, Mapping):
            return "{" + ", ".join(f"{self.text(k)}: {self.text(v)}" for k, v in x.items()) + "}"
        if isinstance(x, (tuple, list)):
            inside = ", ".join(map(self.text, x))
            return f"({inside}{',' * (len(x) == 1)})" if type(x) is tuple else f"[{inside}]"
        if isinstance(x, slice):
            return f"slice({x.start}, {x.stop}, {x.step})"
        return "..." if x is ... else getattr(x, "shown", repr(x))

    def axis(self, x: Any) -> str:
        """An axis that no line made: the dual of one that a line did, or that of a tensor."""
        for value, text in self.names:
            if hasattr(value, "dual") and value.name == x.name and value.length == x.length:
                return f"{text} {'-' if x.dual < value.dual else '+'} {abs(x.dual - value.dual)}"
        for value, text in self.names[::-1]:
            for k, own in enumerate(getattr(value, "axes", None) or ()):
                if own is x or (own == x and own.length == x.length):
                    return f"{text}.axes[{k}]"
        return repr(x)

    def called(self, what: str, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Calls, and writes the call."""
        args = [self.defined(a) for a in args]
        told = [*map(self.text, args), *(f"{k}={self.text(v)}" for k, v in named.items())]
        before = len(self.lines)
        try:
            made = function(*args, **named)
        except Exception:
            self.lines.append(f"{what}({', '.join(told)})")
            raise
        told = [*map(self.text, args), *(f"{k}={self.text(v)}" for k, v in named.items())]
        if made is None or len(self.lines) == before and any(value is made for value, _ in self.names):
            return made
        self.count += 1
        target = f"v{self.count}" if not isinstance(getattr(made, "dual", None), int) else f"{made.short_name}_{self.count}"
        self.lines.append(f"{target} = {what}({', '.join(told)})")
        return self.name(made, target)

    def defined(self, x: Any) -> Any:
        """A function that is passed, as one that writes itself down when it is called."""
        if not inspect.isfunction(x) or hasattr(x, "shown"):
            return x
        self.count += 1
        name = f"f{self.count}"

        def written(*given: Any) -> Any:
            params, known = [f"{name}_{k}" for k in range(len(given))], len(self.names)
            for value, param in zip(given, params, strict=True):
                self.name(value, param)
            outside, self.lines = self.lines, []
            try:
                made = x(*given)
            finally:
                inside, self.lines = self.lines, outside
                body = [*inside, f"return {self.text(made) if 'made' in locals() else None}"]
                self.lines += [f"def {name}({', '.join(params)}):", *[f"    {line}" for line in body]]
                del self.names[known:]  # which are its own
            return made

        self.name(written, name)
        return written


def array(x: np.ndarray) -> str:
    """An array as an expression over NumPy and the names nan and inf."""
    whole = x.dtype.kind in "iub" or "int" in x.dtype.name
    if x.dtype == np.uint64:  # NumPy makes floats of lists that hold numbers beyond the range of int64
        return f"np.array({x.tolist()!r}, np.uint64).reshape({x.shape})"
    values = x.astype(np.int64 if whole else np.float64)
    return f"np.array({values.tolist()!r}).reshape({x.shape}).astype(ng.{x.dtype.name if x.dtype.kind != 'b' else 'bool_'}.np)"


class Api:
    """A module, or what stands in one, whose calls are written down."""

    def __init__(self, module: Any, called: str):
        self._module, self._called = module, called
        self._script: Script | None = None

    @contextmanager
    def written(self, script: Script) -> Any:
        """Calls in this block are lines of the script."""
        self._script = script
        try:
            yield
        finally:
            self._script = None

    @property
    def operator(self) -> Any:
        """Python's operators, written down alike."""
        made = Api(operator, "operator")
        made._script = self._script
        return made

    @property
    def linalg(self) -> Any:
        """The functions of `ng.linalg`, written down alike."""
        made = Api(self._module.linalg, f"{self._called}.linalg")
        made._script = self._script
        return made

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._module, name)
        script = self._script
        if script is None or inspect.isclass(real) or not callable(real) or name in ("config",):
            return real
        return lambda *args, **named: script.called(f"{self._called}.{name}", real, args, named)
