"""Ctrl-C while state is written: the first waits until the call has ended, a second one cuts the call off.

A handler is put in place for the length of such a call and taken away again, so that the user's own, whatever it is, stays the one that
is found and called at all other times; it gets every signal, the first one later. Only the main thread is ever interrupted.
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

swift: Any = importlib.import_module("_signal")  # what `signal` wraps: a fifth of its cost, in every call that writes

Handler = Callable[[int, FrameType | None], Any]
CTRL_C = int(signal.SIGINT)


class Interrupts:
    """The one deferral there is: of the outermost writing call on the main thread.

    running   whether a second Ctrl-C may cut off what goes on; set by the holder alone
    pending   the arguments of the signal that waits
    """

    def __init__(self) -> None:
        self.main = threading.main_thread().ident
        self.running = False
        self.pending: tuple[int, FrameType | None] | None = None
        self._previous: Handler = signal.default_int_handler
        self._handler: Handler = self._handle  # one object, to be known again

    def hold(self) -> bool:
        """From here on Ctrl-C waits. False, and nothing is done, on other threads, inside another hold, and without a handler in Python."""
        if threading.get_ident() != self.main:
            return False
        previous = swift.getsignal(CTRL_C)
        if previous is self._handler or not callable(previous):
            return False
        self._previous, self.pending, self.running = previous, None, False
        try:
            swift.signal(CTRL_C, self._handler)
        except ValueError:  # an interpreter beside the main one
            return False
        return True

    def release(self) -> None:
        """The user's handler stands again, and gets what waits; it may raise."""
        now = swift.signal(CTRL_C, self._previous)
        if now is not self._handler:  # somebody set another one in the meantime
            swift.signal(CTRL_C, now)
        if self.pending is not None:
            self.deliver()

    def deliver(self) -> None:
        """Hands the signal that waits to the user's handler, which may raise."""
        arguments, self.pending = self.pending, None
        if arguments is not None:
            self._previous(*arguments)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first, self.pending = self.pending, None
        if first is not None and self.running:
            self._previous(number, frame)  # raises, as a rule: then there is no more to deliver
        self.pending = first or (number, frame)

    def forked(self) -> None:
        """In a child, the thread that forked is the main one."""
        self.main = threading.get_ident()


interrupts = Interrupts()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=interrupts.forked)
