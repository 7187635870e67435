"""Locks that a forked child process finds free where threads held them that it does not have."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def fork_safe_lock() -> Any:
    """Returns a lock that its holder may acquire again. A forked child process finds it free where another thread held it."""
    made = threading.RLock()
    _locks.add(made)
    return made


def _forked() -> None:
    for lock in list(_locks):
        if not lock._is_owned():  # by the thread that forks, which goes on in the child
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
