"""Settings: from the environment, or for the length of a `with ng.config(...)` block. Nothing else is global.

exact       no rewrite that differs at NaN, infinity or signed zero        (NGRAPH_EXACT, on)
strict      refuse what would only warn, such as a dot over the batch axis (NGRAPH_STRICT, off)
warnings    once for each line of the user's, always, or off               (NGRAPH_WARNINGS, once)
winograd    allow Winograd convolution                                     (NGRAPH_WINOGRAD, on)
tune        measure the best few ways of each kernel's loops, once         (NGRAPH_TUNE, off)
check       verify programs after each pass                                (CHECK, off)
debug       1 computations and times, 2 kernels, 3 plans, 4 generated code,
            5 programs after each pass                                     (DEBUG, 0)
dump        a folder for every stage of every computation, as files       (DUMP, none)
transformer the default transformer's name                                 (NGRAPH_TRANSFORMER, none)
num_threads how many threads a program may run on; 0: all there are        (NGRAPH_NUM_THREADS, 0)
cache       a folder for what was compiled; off: none                      (NGRAPH_CACHE, ngraph in the user's cache folder)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any


def _switch(name: str, default: bool) -> bool:
    return os.environ.get(name, "1" if default else "0").lower() not in ("", "0", "false", "no", "off")


def _number(name: str) -> int:
    text = os.environ.get(name, "0")
    return int(text) if text.lstrip("-").isdigit() else 0


def _cache_folder() -> str:
    """Where what is compiled is kept, by the XDG Base Directory Specification; "" for nowhere."""
    given = os.environ.get("NGRAPH_CACHE")
    if given is not None:
        return "" if given.lower() in ("", "0", "false", "no", "off") else os.path.abspath(given)
    base = os.environ.get("XDG_CACHE_HOME", "")
    base = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
    return os.path.join(base, "ngraph") if os.path.isabs(base) else ""


class Config:
    """The settings as attributes; call it for a block in which some differ: `with ng.config(exact=False): ...`"""

    def __init__(self) -> None:
        self._values: ContextVar[Mapping[str, Any]] = ContextVar(
            "ngraph_config",
            default=MappingProxyType(
                {
                    "exact": _switch("NGRAPH_EXACT", True),
                    "strict": _switch("NGRAPH_STRICT", False),
                    "warnings": os.environ.get("NGRAPH_WARNINGS", "once"),
                    "winograd": _switch("NGRAPH_WINOGRAD", True),
                    "tune": _switch("NGRAPH_TUNE", False),
                    "check": _switch("CHECK", False),
                    "debug": _number("DEBUG"),
                    "dump": os.environ.get("DUMP", ""),
                    "transformer": os.environ.get("NGRAPH_TRANSFORMER", ""),
                    "cache": _cache_folder(),
                    "num_threads": _number("NGRAPH_NUM_THREADS"),
                }
            ),
        )

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values.get()[name]
        except KeyError:
            raise AttributeError(f"config has no {name!r}; it has {', '.join(sorted(self._values.get()))}") from None

    @contextmanager
    def __call__(self, **changes: Any) -> Iterator[Config]:
        unknown = sorted(set(changes) - set(self._values.get()))
        if unknown:
            raise TypeError(f"config has no {', '.join(unknown)}; it has {', '.join(sorted(self._values.get()))}")
        token = self._values.set({**self._values.get(), **changes})
        try:
            yield self
        finally:
            self._values.reset(token)

    def __repr__(self) -> str:
        return "config(" + ", ".join(f"{k}={v!r}" for k, v in self._values.get().items()) + ")"


config = Config()
