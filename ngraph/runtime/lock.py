"""The lock on a transformer's state: many readers or one writer."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ngraph.errors import StateError
from ngraph.runtime.interrupts import interrupts

WRITER_YIELD_SECONDS = 0.01  # seconds for which a writer at most lets waiting threads in
SIGNAL_POLL_SECONDS = 0.05  # seconds between checks for Ctrl-C by a thread that waits to write


class ReadersWriter:
    """Many readers or one writer.

    Each thread that ever reads has a lock of its own, which it holds while it reads; a writer takes the locks of all. A reader enters and
    leaves in one step of the interpreter each, so that no Ctrl-C can come between and leave the lock taken.
    A reader inside a reader is allowed; every other nesting raises, since it would deadlock.
    """

    def __init__(self) -> None:
        self._start({})

    def _start(self, readers: dict[int, Any]) -> None:
        self._gate = threading.Lock()  # held by the writer, and while a reader's lock is created
        self.count = ctypes.c_int64(len(readers))  # number of readers' locks, for generated code
        self._readers = readers  # by thread; a thread with the id of an ended one reuses its lock
        self._taken: list[Any] = []
        self._waiting: set[int] = set()
        self.writer: int | None = None

    def reading(self) -> Any:
        """Returns the context manager for reading: `with lock.reading(): ...`"""
        me = threading.get_ident()
        own = self._readers.get(me)
        if own is None or self.writer is not None:
            return self._late(me, own)
        return own

    def _late(self, me: int, own: Any) -> Any:
        """Returns the same as `reading`, where a writer is active or this thread is new."""
        if self.writer == me:
            raise _inside("one that writes")
        if own is not None and own._is_owned():
            return own  # the writer waits for this very thread
        self._waiting.add(me)
        try:
            with self._gate:
                made = self._readers.setdefault(me, threading.RLock())
                self.count.value = len(self._readers)
                return made
        finally:
            self._waiting.discard(me)

    def readers(self) -> list[Any]:
        """Returns the locks of all readers, this thread's included: while these are all locks and free, no thread reads or writes."""
        with self.reading():
            return list(self._readers.values())

    def start_writing(self, held: bool) -> None:
        """Waits for exclusive access. `held`: Ctrl-C is deferred, so it is polled for here."""
        me = threading.get_ident()
        if self.writer == me:
            raise _inside("one that writes")
        own = self._readers.get(me)
        if own is not None and own._is_owned():
            raise _inside("one that reads")
        if self._waiting:
            self._give_way()
        if not self._gate.acquire(False):
            self._wait(self._gate, held, [])
        self.writer, taken = me, [self._gate, *self._readers.values()]
        for k in range(1, len(taken)):
            if not taken[k].acquire(False):
                self._wait(taken[k], held, taken[:k])
        self._taken = taken

    def _wait(self, lock: Any, held: bool, taken: list[Any]) -> None:
        me = threading.get_ident()
        self._waiting.add(me)
        try:
            while not lock.acquire(timeout=SIGNAL_POLL_SECONDS if held else -1):
                interrupts.deliver()
        except BaseException:
            self._release(taken)
            raise
        finally:
            self._waiting.discard(me)

    def _give_way(self) -> None:
        """Lets waiting threads in for a while, since a lock goes to the first that requests it: the thread that has just released it."""
        end = time.monotonic() + WRITER_YIELD_SECONDS
        while self._waiting and time.monotonic() < end:
            time.sleep(5e-5)
        self._waiting.clear()

    def stop_writing(self) -> None:
        self._release(self._taken)

    def _release(self, taken: list[Any]) -> None:
        if taken:
            self.writer, self._taken = None, []
        for lock in reversed(taken):
            lock.release()

    @contextmanager
    def writing(self) -> Iterator[None]:
        held = interrupts.hold()
        try:
            self.start_writing(held)
            try:
                yield
            finally:
                self.stop_writing()
        finally:
            if held:
                interrupts.release()

    def forked(self) -> bool:
        """Frees the locks of threads that do not exist in a child process. Returns whether one of these was writing."""
        me = threading.get_ident()
        if self.writer == me:
            return False
        cut = bool(self._taken)
        own = self._readers.get(me)  # a writer that no longer exists may have taken it
        self._start({me: own} if own is not None and own._is_owned() else {})
        return cut


def _inside(what: str) -> StateError:
    return StateError(
        f"a computation was called from inside {what} the same transformer's state",
        fix="call it after the other has returned, or on another transformer",
    )
