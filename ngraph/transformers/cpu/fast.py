"""The fast path into a compiled program: for arguments that fit as they are, no Python runs between the caller and the kernels."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any

import numpy as np

from ngraph.op_graph import expr
from ngraph.op_graph.expr import ExprLike, Len, maximum, minimum
from ngraph.plan.kernels import Buffer
from ngraph.program.program import AxisId
from ngraph.runtime.cache import cache
from ngraph.runtime.host import entry, pool
from ngraph.runtime.host.bytecode import FRAME
from ngraph.runtime.host.entry import PLAIN, ArrayForms, ComputingFrame, LengthsOfCalls, NativeFunction, Spot
from ngraph.runtime.host.loader import LoadedObjects
from ngraph.targets import Cpu
from ngraph.transformers.executable.code import KernelStep
from ngraph.transformers.executable.frame import LET_GO, RELEASE, ActivationRecord, BytecodeRunner, InstantiatedPlan, roomy
from ngraph.transformers.executable.layout import root
from ngraph.transformers.executable.table import ABSOLUTE, SHARE, Address, Table

ALONE = 5e-3  # seconds for which a call may block other Python threads: the interpreter's switch interval
QUIET = FRAME["quiet"]
MIN_HUGE_PAGE_BYTES = 1 << 26  # bytes of NumPy's results from which on memory is allocated with huge pages
MAX_COPIED_BYTES = 1 << 20  # bytes of new state that are copied in each call, in less time than Python takes to swap arrays
FIRST_ROOM = 3  # in `Fast.rooms`: behind the bytes of the arena, 1 and 2


def load_text(write: Callable[..., str], target: Cpu, *facts: Any) -> LoadedObjects:
    """Loads the object of the IR text `write(target, *facts)`, which is not written where the cache has the object."""
    return LoadedObjects(cache().written(write, target, *facts))


def load_ahead() -> None:
    """Compiles and loads the threads and the entry of this process while a program is planned, for which LLVM would wait.

    Each is done on a thread of its own: between the two, one thread would wait for Python, and then for LLVM behind all of the program.
    """

    def load(make: Callable[..., Any]) -> None:
        with contextlib.suppress(Exception):  # the first call tries again, and says so
            make(load_text)

    if not pool.made():
        for make in (pool.pool, entry.code):
            threading.Thread(target=partial(copy_context().run, load, make), daemon=True).start()


class Fast:
    """A call over a frame of its own. `point` sets the addresses of state.

    With `brought`, where calls have the lengths of open axes, it serves all lengths: generated code computes what follows from them.
    """

    def __init__(
        self,
        bound: InstantiatedPlan,
        frame: ActivationRecord,
        order: Any,
        slow: Callable[..., Any],
        forms: ArrayForms,
        brought: Mapping[AxisId, tuple[int, int]] | None = None,
        limits: Sequence[tuple[ExprLike, ExprLike]] = (),
    ):
        """`limits`: pairs of numbers over lengths; calls in which the first of a pair is above the second go another way."""
        self.bound, self.frame, self.open = bound, frame, brought is not None
        plan = bound.plan
        written = {k for k, _ in plan.writes}
        given = [self.spot(b, forms.given.get(k, ()), k in written) for k, b in enumerate(plan.inputs)]
        own = [b for b in plan.outputs if b.shares is None]
        made = [self.spot(b, forms.made.get(k, ())) for k, b in enumerate(plan.outputs) if b.shares is None]
        made = [s if own.index(b) == k else s._replace(words=(), twin=own.index(b)) for k, (b, s) in enumerate(zip(own, made, strict=True))]
        walk = frame.walk
        self.call = NativeFunction(
            entry.code(load_text), walk.words.ctypes.data, pool.pool(load_text), given, made, order, slow, api=forms.api
        )
        if brought is not None:
            self.settle(brought, limits)
        self.function = self.call.function
        self.moved, self.locks, self.state, self.seen = -1, (), None, None  # type: int, Sequence[Any], Any, Any

    def settle(self, brought: Mapping[AxisId, tuple[int, int]], limits: Sequence[tuple[ExprLike, ExprLike]]) -> None:
        """Has generated code compute from the lengths of calls: arguments and results, tables, what there has to be room for."""
        table = Table()
        for at, number in self.call.open:
            table.early(number, Address(ABSOLUTE, at))
        bounds = [(table.early(n), table.early(most)) for n, most in limits]
        self.forms = BytecodeRunner(table, 1, self.bound.code.device, self.bound.symbols)
        runners = [*self.frame.runners, self.forms]
        self.rooms = np.array([self.frame.room, 1, 2, *[0] * len(runners)], np.int64)
        rooms = [int(self.rooms.ctypes.data) + 8 * k for k in range(len(self.rooms))]

        def word(r: BytecodeRunner, k: int) -> int:
            return int(r.table.array.ctypes.data) + 8 * k

        walk = self.frame.walk
        limited = [(word(walk, walk.table.total), rooms[0]), *[(word(self.forms, k), word(self.forms, most)) for k, most in bounds]]
        rows, frames = [], []
        for k, r in enumerate(runners, FIRST_ROOM):
            r.start()
            t, self.rooms[k] = r.table, r.room
            rows += [(*brought[a], word(r, w)) for a, w in t.lengths.items() if a in brought]
            if t.most_scratch is not None:
                limited.append((word(r, t.most_scratch), rooms[k]))
            known = t.most_ways is None or t.longest_known >= 2 * SHARE
            ways = rooms[1 + (t.wide and r.threads > 1)] if known else word(r, t.most_ways or 0)
            lets = r is walk and not self.bound.plan.state  # those who use state exclude other threads and Ctrl-C
            release = 0 if not lets else 2 if t.seconds > LET_GO else int(t.most_ways is not None)
            frames.append(ComputingFrame(r.words.ctypes.data, r.first, ways, r.threads, release, r not in (walk, self.forms)))
        self.call.settle(LengthsOfCalls(rows, frames, limited))

    @property
    def short(self) -> bool:
        """Whether the last lengths that came need more memory, or may not come this way."""
        return self.call.short

    def grow(self) -> bool:
        """Gets the memory that the last lengths need; false where it has that, and something else did not fit, or a call is at work."""
        if not self.open or not self.call.begin():
            return False
        try:
            before = self.rooms.copy()
            self.frame.grow()
            for k, r in enumerate([*self.frame.runners, self.forms], FIRST_ROOM):
                r.table.measure()
                if r.table.scratch > r.room:
                    r.table.scratch = roomy(r.table.scratch)
                    r.start()
                self.rooms[k] = r.room
            self.rooms[0] = self.frame.room
            return bool((self.rooms > before).any())
        finally:
            self.call.set(busy=0)

    @property
    def calls(self) -> int:
        """The number of calls that went this way."""
        return self.call.calls

    def install(self) -> None:
        """Counts its calls with those of its code, and keeps it while that lives: threads may be inside when another way replaces it."""
        self.bound.code.entries.append(self)

    def counts(self, word: ctypes.c_int64) -> None:
        """Makes each call increment this word."""
        self.counter = word
        self.call.set(version=ctypes.addressof(word))

    def spot(self, b: Buffer, order: tuple[int, ...] = (), written: bool = False) -> Spot:
        table = self.frame.walk.table
        words = [table.address + 8 * k for k, _ in table.relocations.get(b, ())]
        shape = tuple([self.bound.layout.length(a) for a in b.axes]) if self.open else self.bound.shape(b)
        return Spot.of(shape, b.dtype.np, words, order, written)

    @property
    def packed(self) -> int | None:
        """The version of the state that the packed copies belong to."""
        return self.bound.version if self.bound.plan.once and self.bound.plan.state else None

    def stale(self, state: Any) -> bool:
        """Whether state is at other addresses than set, or has been packed again, or new threads read it."""
        if self.moved != state.moved or len(self.locks) != state.lock.count.value:
            return True
        seen = self.seen
        return self.packed is not None and (seen is None or any(word.value != n for word, n in seen))

    def point(
        self, states: Sequence[Any], watches: Sequence[tuple[int, int]], moved: int, seen: Any, locks: Sequence[Any], state: Any
    ) -> None:
        """Sets the arrays of state, valid while the watched words are constant. Nothing during another call.

        locks   those of the threads that read the state: their words are watched, and those of the state
        seen    the words on which packed copies depend, with their values; None where the copies are not those of the state
        """
        if not self.call.begin():
            return
        try:
            for before, array in zip(self.bound.befores, self.bound.near(states), strict=True):
                self.frame.walk.point(before, array)
            self.moved, self.locks, self.state, self.seen = moved, locks, state, seen
            self.call.watch(watches)
        finally:
            self.call.set(busy=0)


def fast(
    bound: InstantiatedPlan,
    order: Any,
    slow: Callable[..., Any],
    took: float | None = None,
    forms: ArrayForms = PLAIN,
    brought: Mapping[AxisId, tuple[int, int]] | None = None,
    nonempty: Sequence[ExprLike] = (),
) -> Fast | None:
    """Returns the fast path; None where Python has to act: host callbacks, results that have no buffer, state that changes its buffer.

    took      the seconds of a call; predicted ones where unknown
    brought   the argument and the dim of each length that calls bring, where it shall serve all lengths
    nonempty  lengths that must not be 0, over these arguments and dims: `Len((0, 1))`
    """
    plan = bound.plan
    if brought is not None:
        brought = {a: place for a, place in brought.items() if a in bound.layout.symbols}
    sizes = [bound.sizes[b] for b in plan.outputs if b.shares is None]
    if entry.code(load_text) is None or any(b.storage != "output" for b in plan.outputs):
        return None
    if any(plan.outputs[n].shares is None for _, n in plan.writes):
        return None
    if None in sizes or forms.api is None and sum(n or 0 for n in sizes) >= MIN_HUGE_PAGE_BYTES:
        return None
    moving = [after for _, before, after in plan.state if root(after) is not before]
    if any(b.shares is not None or b.storage != "state" or b in bound.befores for b in moving):
        return None
    if sum(bound.sizes[b] or 0 for b in moving) > MAX_COPIED_BYTES:
        return None
    try:
        for b in plan.outputs:
            bound.shape(b)
        limits = [] if brought is None else _limits(bound, brought, forms, nonempty, took)
    except LookupError:  # known only after the run
        return None
    frame = bound.take()
    walk = frame.walk
    if walk.host_callbacks or plan.state and (walk.table.seconds if took is None else took) > ALONE:
        bound.free.append(frame)
        return None
    if moving:
        bound.free.append(frame)
        frame = ActivationRecord(bound, still=True)
        walk = frame.walk
    if plan.state:  # other threads and Ctrl-C are excluded
        walk.words[RELEASE], walk.words[QUIET] = 0, 1
    if brought is not None:
        brought = {a: (k, forms.given[k][d] if k in forms.given else d) for a, (k, d) in brought.items() if k < len(plan.inputs)}
    return Fast(bound, frame, order, slow, forms, brought, limits)


def _limits(
    bound: InstantiatedPlan,
    brought: Mapping[AxisId, tuple[int, int]],
    forms: ArrayForms,
    nonempty: Sequence[ExprLike],
    took: float | None,
) -> list[tuple[ExprLike, ExprLike]]:
    """Pairs of numbers over lengths: where the first is above the second, Python takes the call.

    Raises LookupError where steps find a length of an argument.
    """
    plan, layout = bound.plan, bound.layout
    places: dict[tuple[int, int], ExprLike] = {}
    for k, b in enumerate(plan.inputs):
        for d, a in enumerate(b.axes):
            places[k, forms.given[k][d] if k in forms.given else d] = layout.length(a)
    found: list[tuple[ExprLike, ExprLike]] = [(1, expr.substitute(n, lambda leaf: places[leaf.of])) for n in nonempty]
    if forms.api is None:
        size = sum([layout.sizes[b] or 0 for b in plan.outputs if b.shares is None], start=0)
        found.append((size, MIN_HUGE_PAGE_BYTES))
    if plan.state:  # nobody else may run meanwhile: as if time grew with the square of each length
        then = bound.lengths if took is not None else {a: plan.guess(a) for a in brought}
        seconds = took if took is not None else sum(s.seconds for s in bound.code.steps if type(s) is KernelStep)
        ratio = ALONE / max(seconds, 1e-7)
        most = min(int(_squared([then[a] for a in brought]) * ratio), MAX_SQUARED)
        found.append((_squared([layout.over(Len(a)) for a in brought]), most))
    return [pair for pair in found if not all(isinstance(n, int) for n in pair)]


MAX_SQUARED = 1 << 60  # of what `_squared` gives


def _squared(lengths: Sequence[ExprLike]) -> Any:
    """The square of the product of lengths, as far as 64 bits hold it: at most MAX_SQUARED."""
    product: ExprLike = 1
    for n in lengths:
        product = minimum(product * maximum(minimum(n, 1 << 20), 1), 1 << 30)
    return product * product
