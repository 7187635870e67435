"""Settings: from the environment, or for the duration of a `with ng.config(...)` block. There is no other global state.

`SETTINGS` is the table of them, each with its environment variable, kind and meaning.

Words: docs/glossary.md.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from typing import Any, NamedTuple, NoReturn, TypeVar

from ngraph.errors import Line, NgraphWarning, SettingError, UnknownName, nearest, user_line

F = TypeVar("F", bound=Callable[..., Any])


class SettingKind(NamedTuple):
    """The values that a setting may have. `of` converts a text or an object to a value; it raises ValueError or TypeError."""

    says: str
    of: Callable[[Any], Any]


OFF, ON = ("", "0", "false", "no", "off"), ("1", "true", "yes", "on")


def _switch(value: Any) -> bool:
    word = str(int(value) if isinstance(value, bool) else value).lower()
    if word not in OFF + ON:
        raise ValueError
    return word in ON


def number(low: int, high: int | None = None) -> SettingKind:
    """Returns the kind of integers from `low` on, or up to `high`."""

    def of(value: Any) -> int:
        whole = int(value) if isinstance(value, str) else value.__index__()
        if isinstance(value, bool) or whole < low or (high is not None and whole > high):
            raise ValueError
        return int(whole)

    return SettingKind(f"a whole number from {low} {'on' if high is None else f'to {high}'}", of)


def one_of(*words: str) -> SettingKind:
    """Returns the kind of these words."""

    def of(value: Any) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    return SettingKind(f"one of {', '.join(words)}", of)


def _folder(value: Any) -> str:
    """Returns the folder as an absolute path; "" for none."""
    path = os.fsdecode(os.fspath(value))
    return "" if path.lower() in OFF else os.path.abspath(path)


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


SWITCH = SettingKind("1 or 0, true or false, on or off", _switch)
FOLDER = SettingKind("a folder, or off", _folder)
WORD = SettingKind("a word", _word)


def _users_cache() -> str:
    """Returns `ngraph` in the user's cache folder, by the XDG Base Directory Specification; "" for none."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    base = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
    return os.path.join(base, "ngraph") if os.path.isabs(base) else ""


class Setting(NamedTuple):
    """One setting: its environment variable, the default value (or a function that gives it), its kind, and its meaning.

    `variable_kind` is the kind of the variable, where it is narrower than that of `ng.config`.
    """

    variable: str
    default: Any
    kind: SettingKind
    doc: str
    variable_kind: SettingKind | None = None


SETTINGS = {
    "exact": Setting("NGRAPH_EXACT", True, SWITCH, "no rewrite that differs at NaN, infinity or signed zero"),
    "strict": Setting("NGRAPH_STRICT", False, SWITCH, "refuse what would only warn, such as a dot over the batch axis"),
    "warnings": Setting("NGRAPH_WARNINGS", "once", one_of("once", "always", "off"), "once for each line of the user's, always, or off"),
    "nans": Setting("NGRAPH_NANS", "ignore", one_of("ignore", "raise"), "raise where a call makes a nan or an infinity, naming the op"),
    "denormals": Setting(
        "NGRAPH_DENORMALS",
        "keep",
        one_of("keep", "flush"),
        "float32 and float64 numbers below the normal ones in cpu's kernels: kept, or taken as 0, which is faster where many arise",
    ),
    "winograd": Setting("NGRAPH_WINOGRAD", True, SWITCH, "allow Winograd convolution"),
    "tune": Setting("NGRAPH_TUNE", False, SWITCH, "measure the best few ways of each kernel's loops, once"),
    "check": Setting("CHECK", False, SWITCH, "verify programs after each pass"),
    "debug": Setting(
        "DEBUG",
        0,
        number(0, 5),
        "1 computations and times, 2 kernels, 3 plans, 4 generated code, 5 programs after each pass",
    ),
    "dump": Setting("DUMP", "", FOLDER, "a folder for every stage of every computation, as files"),
    "transformer": Setting("NGRAPH_TRANSFORMER", "", WORD, "the default transformer's name"),
    "num_threads": Setting(
        "NGRAPH_NUM_THREADS", 0, number(0), "how many threads a program may run on; 0, or no variable: all there are", number(1)
    ),
    "lengths": Setting(
        "NGRAPH_LENGTHS",
        "open",
        one_of("open", "first"),
        "what code for axes without a length knows: open: no length; first: those of the first call, and of calls that keep coming",
    ),
    "cache": Setting("NGRAPH_CACHE", _users_cache, FOLDER, "a folder for what was compiled; off: none"),
}

# setting -> callback for blocks that set it, called with the value and whether the block begins or ends
WATCHED: dict[str, Callable[[Any, bool], None]] = {}

ELSEWHERE = ("NGRAPH_TARGET", "NGRAPH_DATA", "NGRAPH_SEED")  # variables that other rooms read
OURS = "NGRAPH_"  # variables without this prefix, such as DEBUG, may be meant for another program: invalid ones warn instead of raising
BRIDGE = "NGRAPH_TF_"  # variables of the bridge into TensorFlow, docs/bridge.md
TESTS = ("NGRAPH_TESTS_", "NGRAPH_BENCH", "NGRAPH_EXAMPLES", "NGRAPH_MODELS")  # variables of tests and benchmarks


def _bad_value(what: str, value: Any, kind: SettingKind) -> SettingError:
    return SettingError(f"{what} is {value!r}", fix=f"it takes {kind.says}")


def from_environment(variable: str, kind: SettingKind, default: Any) -> Any:
    """Returns the value of an environment variable, `default` where it is not set. Raises SettingError."""
    text = os.environ.get(variable)
    if text is None or (text == "" and kind is not FOLDER):
        return default() if callable(default) else default
    try:
        return kind.of(text)
    except (TypeError, ValueError):
        error = _bad_value(f"the environment variable {variable}", text, kind)
    if variable.startswith(OURS):
        raise error
    _warn(f"{error.message}, and is not used", f"{error.fix}, or unset it")
    return default


def _warn(message: str, fix: str, line: Line | None = None) -> None:
    """Issues a warning about settings, which `ngraph.warn` itself depends on."""
    file, number = line or user_line() or ("<unknown>", 0)
    warnings.warn_explicit(f"{message}\n  fix: {fix}", NgraphWarning, file, number)


def _environment() -> dict[str, Any]:
    """Returns every setting as the environment gives it; warns of unknown variables."""
    values = {name: from_environment(s.variable, s.variable_kind or s.kind, s.default) for name, s in SETTINGS.items()}
    known = [*(s.variable for s in SETTINGS.values()), *ELSEWHERE]
    for variable in os.environ:
        if variable.startswith(OURS) and variable not in known and not variable.startswith((*TESTS, BRIDGE)):
            meant = nearest(variable, known)
            ours = ", ".join(v for v in known if v.startswith(OURS))
            _warn(f"there is no variable {variable}", f"set {meant}" if meant else f"unset it; there are {ours}")
    return values


class Config:
    """The settings as attributes; a call makes a block in which some differ: `with ng.config(exact=False): ...`"""

    def __init__(self) -> None:
        empty: Mapping[str, Any] = {}
        object.__setattr__(self, "_values", ContextVar("ngraph_config", default=empty))
        object.__setattr__(self, "_given", {})

    def _all(self) -> Mapping[str, Any]:
        values: Mapping[str, Any] = self._values.get()
        if not values:
            if not self._given:
                self._given.update(_environment())  # on first use, so that an error reaches the user's line
            values = self._given
        return values

    def __getattr__(self, name: str) -> Any:
        if name in SETTINGS:
            return self._all()[name]
        raise _unknown(name) if not name.startswith("_") else AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        if name not in SETTINGS:
            raise _unknown(name)
        raise SettingError(
            f"ng.config.{name} is set for a block, not for good", fix=f"with ng.config({name}={value!r}): ..., or {SETTINGS[name].variable}"
        )

    def __call__(self, **changes: Any) -> Block:
        """Returns a block, or with `@` a decorator, in which these settings hold. Raises UnknownName, SettingError."""
        return Block({name: _checked(name, value) for name, value in changes.items()})

    def __repr__(self) -> str:
        return "config(" + ", ".join(f"{k}={v!r}" for k, v in self._all().items()) + ")"


class Block(ContextDecorator):
    """The result of `ng.config(...)`: settings that hold inside a block. One that is never entered has no effect, and warns of that."""

    def __init__(self, changes: Mapping[str, Any]):
        self.changes, self.line = changes, user_line()
        self.used = False
        self.tokens: list[Token[Mapping[str, Any]]] = []

    def __enter__(self) -> Config:
        self.used = True
        self.tokens.append(config._values.set({**config._all(), **self.changes}))
        for name in WATCHED.keys() & self.changes.keys():
            WATCHED[name](self.changes[name], True)
        return config

    def __exit__(self, *error: object) -> None:
        config._values.reset(self.tokens.pop())
        for name in WATCHED.keys() & self.changes.keys():
            WATCHED[name](self.changes[name], False)

    def __call__(self, func: F) -> F:
        self.used = True
        return super().__call__(func)

    def __del__(self) -> None:
        if not self.used:
            said = ", ".join(f"{name}={value!r}" for name, value in self.changes.items())
            _warn(f"ng.config({said}) changes nothing by itself", f"with ng.config({said}): ...", self.line)


def _unknown(name: str) -> UnknownName:
    meant = nearest(name, SETTINGS)
    return UnknownName(f"there is no setting {name}", fix=f"take {meant}" if meant else f"there are {', '.join(SETTINGS)}")


def _checked(name: str, value: Any) -> Any:
    """Returns the value of a setting, converted. Raises UnknownName, SettingError."""
    if name not in SETTINGS:
        raise _unknown(name)
    kind = SETTINGS[name].kind
    try:
        return kind.of(value)
    except (AttributeError, TypeError, ValueError):
        raise _bad_value(f"ng.config({name}=...)", value, kind) from None


Config.__doc__ = "\n".join([str(Config.__doc__), "", *(f"{name:12}{s.doc} ({s.variable})" for name, s in SETTINGS.items())])
config = Config()
