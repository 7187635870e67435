"""The options of the backend, and what they decide: settings, and the transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ngraph.errors import SettingError, nearest
from ngraph.frontends.torch.private import openmp
from ngraph.runtime.host.pool import borrow
from ngraph.transformers.base import Transformer, make_transformer, make_transformer_factory

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
OPTIONS: dict[str, tuple[Any, ...]] = {  # the values that each takes; any where there are none
    "fallback": ("warn", "error", "silent"),
    "transformer": (),
    "random": ("ngraph", "torch"),
    "threads": (),
    "tune": (True, False),
    "exact": (True, False),
    "freeze": (True, False),
}
TUNED = ("max-autotune", "max-autotune-no-cudagraphs")
ASKED_BY_TORCH = ("guard_filter_fn",)  # options that Dynamo takes for itself

_transformers: dict[str, Transformer] = {}


def checked(mode: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the options with defaults. Raises SettingError for an unknown one, or an unknown value, with the nearest."""
    if mode is not None and mode not in MODES:
        near = nearest(str(mode), MODES)
        raise SettingError(f"there is no mode {mode!r}", fix=f"write {near!r}" if near else f"there are {', '.join(MODES)}")
    found = {"fallback": "warn", "transformer": "", "random": "ngraph", "threads": None, "tune": mode in TUNED, "exact": None}
    found["freeze"] = mode in TUNED
    if options is not None and not isinstance(options, Mapping):
        raise SettingError(f"options is {options!r}", fix="give a dict: options={'fallback': 'error'}")
    for name, value in (options or {}).items():
        if name in ASKED_BY_TORCH:
            continue
        if name not in OPTIONS:
            near = nearest(str(name), OPTIONS)
            raise SettingError(f"there is no option {name!r}", fix=f"write {near!r}" if near else f"there are {', '.join(OPTIONS)}")
        if OPTIONS[name] and value not in OPTIONS[name]:
            raise SettingError(f"the option {name!r} is {value!r}", fix=f"it takes {', '.join(map(repr, OPTIONS[name]))}")
        if name == "threads" and not (type(value) is int and value > 0):
            raise SettingError(f"the option 'threads' is {value!r}", fix="it takes a whole number above 0")
        if name == "transformer" and not isinstance(value, str):
            raise SettingError(f"the option 'transformer' is {value!r}", fix="it takes a name, such as 'cpu' or 'numpy'")
        found[name] = value
    return found


def settings_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options as settings of `ngraph.config`; what is not given is as it is set elsewhere."""
    named = {"num_threads": given["threads"] or torch.get_num_threads(), "tune": given["tune"] or None, "exact": given["exact"]}
    return {name: value for name, value in named.items() if value is not None}


def transformer_of(given: Mapping[str, Any], own: bool = False) -> Transformer:
    """Returns the transformer that all graphs of a process share, or one of its own for a graph with state.

    Raises UnsupportedError for an unknown name.
    """
    name = given["transformer"]
    if found := openmp():  # its threads spin for milliseconds after each op of PyTorch's own
        borrow(*found, torch.get_num_threads())
    if own:
        return _made(name)
    if name not in _transformers:
        _transformers[name] = _made(name)
    return _transformers[name]


def _made(name: str) -> Transformer:
    return make_transformer_factory(name)() if name else make_transformer()
