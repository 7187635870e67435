"""Deferral of Ctrl-C while state is written: the first one waits until the call ends, a second one interrupts the call.

A handler is installed for the duration of such a call and then removed, so that the user's own, whatever it is, is the one
in place at all other times; it gets every signal, the first one later. Only the main thread is ever interrupted.
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

swift: Any = importlib.import_module("_signal")  # `signal` wraps it; it takes a fifth of the time, in every call that writes

Handler = Callable[[int, FrameType | None], Any]
CTRL_C = int(signal.SIGINT)


class Interrupts:
    """The only deferral: of the outermost writing call on the main thread.

    running   whether a second Ctrl-C may interrupt the call; set by the holder alone
    pending   the arguments of the deferred signal
    """

    def __init__(self) -> None:
        self.main = threading.main_thread().ident
        self.running = False
        self.pending: tuple[int, FrameType | None] | None = None
        self._previous: Handler = signal.default_int_handler
        self._handler: Handler = self._handle  # one object, to be recognised

    def hold(self) -> bool:
        """Starts deferring Ctrl-C. Returns False, without effect, on other threads, inside another hold, and without a Python handler."""
        if threading.get_ident() != self.main:
            return False
        previous = swift.getsignal(CTRL_C)
        if previous is self._handler or not callable(previous):
            return False
        self._previous, self.pending, self.running = previous, None, False
        try:
            swift.signal(CTRL_C, self._handler)
        except ValueError:  # a sub-interpreter
            return False
        return True

    def release(self) -> None:
        """Restores the user's handler, which gets a deferred signal; it may raise."""
        now = swift.signal(CTRL_C, self._previous)
        if now is not self._handler:  # another handler was set in the meantime
            swift.signal(CTRL_C, now)
        if self.pending is not None:
            self.deliver()

    def deliver(self) -> None:
        """Passes the deferred signal to the user's handler, which may raise."""
        arguments, self.pending = self.pending, None
        if arguments is not None:
            self._previous(*arguments)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first, self.pending = self.pending, None
        if first is not None and self.running:
            self._previous(number, frame)  # usually raises: then there is no more to deliver
        self.pending = first or (number, frame)

    def forked(self) -> None:
        """Updates the main thread in a child: it is the one that forked."""
        self.main = threading.get_ident()


interrupts = Interrupts()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=interrupts.forked)
