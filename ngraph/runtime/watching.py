"""The watcher of kernels: for each kernel of a call, a context manager of the caller's, such as a range in a profiler's timeline."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

Watcher = Callable[[str], AbstractContextManager[Any]]  # from a kernel's ops and line, `add, tanh (model.py:12)`
watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)  # of this thread's calls
