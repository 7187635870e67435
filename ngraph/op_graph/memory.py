"""Memory for what builds graphs: pauses of the cycle collector, and room for frames."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

FRAME_WORDS = 1 << 16
"""[words] Of the frame that `with_room` adds: CPython then maps the next power of two, and as much is left for the frames inside."""

P = ParamSpec("P")
R = TypeVar("R")


MOST_AGED = 1 << 20
"""[objects] That pauses may age before they collect all: tens of times those of a ResNet50, which takes a tenth of a second."""

_aged = 0


@contextmanager
def no_collection() -> Iterator[None]:
    """Pauses the cycle collector; it took half the time of lowering 50,000 ops (`bench/tool.py`).

    What is new behind the pause counts as old: otherwise the collector, once it is on, would visit all of it, in the midst of a first call.
    """
    global _aged
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            _aged += gc.get_count()[0]
            if _aged > MOST_AGED:
                _aged = 0
                gc.collect()
            elif not gc.get_freeze_count():  # objects that are frozen would thaw
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _called(function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    return function(*arguments, **named)


_called_with_room = FunctionType(_called.__code__.replace(co_stacksize=FRAME_WORDS), {})


def with_room(function: Callable[P, R]) -> Callable[P, R]:
    """Returns a function that does the same with half a megabyte for the frames of what it calls.

    CPython keeps frames in chunks of 16 KiB, and gives a chunk back to the system when its only frame ends. Where a loop calls functions
    just as a chunk is full, each call maps and unmaps one. The frame that is added here has a larger chunk, in which all others then lie
    (`push_chunk` in CPython's pystate.c).
    """

    @wraps(function)
    def run(*arguments: P.args, **named: P.kwargs) -> R:
        made: R = _called_with_room(function, arguments, named)
        return made

    return run
