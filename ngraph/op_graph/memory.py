"""Building many small objects without stopping for Python's cycle collector, which would look at all of them again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Pauses the cycle collector; half the time of lowering 50,000 ops went into it (`bench/tool.py`)."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
