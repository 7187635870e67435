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

WRITER_YIELD_SECONDS = 0.01  # seconds for which a writer at most lets in those who wait
SIGNAL_POLL_SECONDS = 0.05  # seconds after which one who waits to write looks whether Ctrl-C was pressed


class ReadersWriter:
    """Many readers or one writer.

    Each thread that ever reads has a lock of its own, which it holds while it reads; a writer takes the locks of all. To enter and to
    leave as a reader is one step of the interpreter each, so that no Ctrl-C can come between and leave the lock taken.
    A reader inside a reader is let in; all else inside each other is refused, for it would never end.
    """

    def __init__(self) -> None:
        self._start({})

    def _start(self, readers: dict[int, Any]) -> None:
        self._gate = threading.Lock()  # held by the writer, and while a reader's lock is made
        self.count = ctypes.c_int64(len(readers))  # of the locks of readers, for generated code
        self._readers = readers  # by thread; a thread that has the number of an ended one takes its lock over
        self._taken: list[Any] = []
        self._waiting: set[int] = set()
        self.writer: int | None = None

    def reading(self) -> Any:
        """What to hold while reading: `with lock.reading(): ...`"""
        me = threading.get_ident()
        own = self._readers.get(me)
        if own is None or self.writer is not None:
            return self._late(me, own)
        return own

    def _late(self, me: int, own: Any) -> Any:
        """As `reading`, where a writer is at work or this thread is new."""
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
        """The locks of all readers, this thread's among them: as long as these are all and free, nobody reads or writes."""
        with self.reading():
            return list(self._readers.values())

    def start_writing(self, held: bool) -> None:
        """Waits until it is alone. `held`: Ctrl-C waits too, so is looked for here."""
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
        """Locks go to whoever asks first, which is always the thread that has just given them back: it lets others in, for a while."""
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
        """In a child process: locks of threads that are no longer there are free. Says whether one of these was writing."""
        me = threading.get_ident()
        if self.writer == me:
            return False
        cut = bool(self._taken)
        own = self._readers.get(me)  # which a writer may have taken, who is gone
        self._start({me: own} if own is not None and own._is_owned() else {})
        return cut


def _inside(what: str) -> StateError:
    return StateError(
        f"a computation was called from inside {what} the same transformer's state",
        fix="call it after the other has returned, or on another transformer",
    )
