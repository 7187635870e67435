"""The fast path into a compiled program: for arguments that fit as they are, no Python runs between the caller and the kernels."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any

from ngraph.plan.kernels import Buffer
from ngraph.runtime.cache import cache
from ngraph.runtime.host import entry, pool
from ngraph.runtime.host.bytecode import FRAME
from ngraph.runtime.host.entry import PLAIN, ArrayForms, NativeFunction, Spot
from ngraph.runtime.host.loader import LoadedObjects
from ngraph.targets import Cpu
from ngraph.transformers.executable.frame import RELEASE, ActivationRecord, InstantiatedPlan
from ngraph.transformers.executable.layout import root

ALONE = 5e-3  # seconds for which a call may block other Python threads: the interpreter's switch interval
QUIET = FRAME["quiet"]
MIN_HUGE_PAGE_BYTES = 1 << 26  # bytes of results from which on memory is allocated with huge pages


def load_text(text: str, target: Cpu) -> LoadedObjects:
    return LoadedObjects(cache().object(text, target))


def load_ahead() -> None:
    """Compiles and loads the threads and the entry of this process on a thread of their own: LLVM would wait while a program is planned."""

    def load() -> None:
        with contextlib.suppress(Exception):  # the first call tries again, and says so
            pool.pool(load_text)
            entry.code(load_text)

    if not pool.made():
        threading.Thread(target=partial(copy_context().run, load), daemon=True).start()


class Fast:
    """A call over a frame of its own. `point` sets the addresses of state."""

    def __init__(self, bound: InstantiatedPlan, frame: ActivationRecord, order: Any, slow: Callable[..., Any], forms: ArrayForms):
        self.bound, self.frame = bound, frame
        plan = bound.plan
        written = {k for k, _ in plan.writes}
        given = [self.spot(b, forms.given.get(k, ()), k in written) for k, b in enumerate(plan.inputs)]
        made = [self.spot(b, forms.made.get(k, ())) for k, b in enumerate(plan.outputs) if b.shares is None]
        walk = frame.walk
        self.call = NativeFunction(
            entry.code(load_text), walk.words.ctypes.data, pool.pool(load_text), given, made, order, slow, api=forms.api
        )
        self.function = self.call.function
        self.moved, self.kept, self.seen = -1, None, None  # type: int, Any, Any

    @property
    def calls(self) -> int:
        """The number of calls that went this way."""
        return self.call.calls

    def counts(self, word: ctypes.c_int64) -> None:
        """Makes each call increment this word."""
        self.counter = word
        self.call.set(version=ctypes.addressof(word))

    def spot(self, b: Buffer, order: tuple[int, ...] = (), written: bool = False) -> Spot:
        table = self.frame.walk.table
        words = [table.address + 8 * k for k, _ in table.relocations.get(b, ())]
        return Spot.of(self.bound.shape(b), b.dtype.np, words, order, written)

    @property
    def packed(self) -> int | None:
        """The version of the state that the packed copies belong to."""
        return self.bound.version if self.bound.plan.once and self.bound.plan.state else None

    def stale(self, state: Any) -> bool:
        """Whether state is at other addresses than set, or has been packed again."""
        seen = self.seen
        return self.moved != state.moved or (self.packed is not None and (seen is None or any(word.value != n for word, n in seen)))

    def point(self, states: Sequence[Any], watches: Sequence[tuple[int, int]], moved: int, seen: Any, kept: Any) -> None:
        """Sets the arrays of state, valid while the watched words are constant; `kept` owns those words.

        seen    the words on which packed copies depend, with their values; None where the copies are not those of the state
        """
        self.call.set(busy=1)
        for before, array in zip(self.bound.befores, self.bound.near(states), strict=True):
            self.frame.walk.point(before, array)
        self.moved, self.kept, self.seen = moved, kept, seen
        self.call.watch(watches)
        self.call.set(busy=0)


def fast(
    bound: InstantiatedPlan, order: Any, slow: Callable[..., Any], took: float | None = None, forms: ArrayForms = PLAIN
) -> Fast | None:
    """Returns the fast path; None where Python has to act: host callbacks, copies of results, state that changes its buffer.

    took    the seconds of a call; predicted ones where unknown
    """
    plan = bound.plan
    sizes = [bound.sizes[b] for b in plan.outputs if b.shares is None]
    if entry.code(load_text) is None or len(set(plan.outputs)) < len(plan.outputs) or any(b.storage != "output" for b in plan.outputs):
        return None
    if any(plan.outputs[n].shares is None for _, n in plan.writes):
        return None
    moves_state = any(root(after) is not before for _, before, after in plan.state)
    if None in sizes or sum(n or 0 for n in sizes) >= MIN_HUGE_PAGE_BYTES or moves_state:
        return None
    try:
        for b in plan.outputs:
            bound.shape(b)
    except LookupError:  # known only after the run
        return None
    frame = bound.take()
    walk = frame.walk
    if walk.host_callbacks or plan.state and (walk.table.seconds if took is None else took) > ALONE:
        bound.free.append(frame)
        return None
    if plan.state:  # other threads and Ctrl-C are excluded
        walk.words[RELEASE], walk.words[QUIET] = 0, 1
    return Fast(bound, frame, order, slow, forms)
