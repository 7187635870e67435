"""A compiled plan with its lengths settled, and the memory and table of one call of it.

`SharedPlan` is what calls of all lengths share: constants, what runs once. `InstantiatedPlan` is that with the lengths of a call.
`BufferAddresses` knows where the buffers of a plan or of a body are during one call, `BytecodeRunner` is a table in memory.
`ActivationRecord` is one call's arena and table; a call takes one that is free, or has one made, so that calls on several threads never
meet. One that was made for other lengths is given those of the call: the table itself computes what follows from them.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.errors import OutOfMemoryError
from ngraph.op_graph import expr
from ngraph.op_graph.arrays import MappedFile, Pages, file_of, settled
from ngraph.op_graph.expr import ExprLike, Leaf, Len
from ngraph.parts.deferred import deferred
from ngraph.plan.kernels import Buffer, OpaqueOp, room_of
from ngraph.program.program import AxisId
from ngraph.runtime.host.bytecode import FRAME, HOST, KERNEL
from ngraph.runtime.host.locks import fork_safe_lock
from ngraph.runtime.watching import Watcher, watcher
from ngraph.tensors.index import Load, loads
from ngraph.transformers.executable.code import Control, LoadedPlan, Step, title
from ngraph.transformers.executable.device import DeviceMemory, KernelDevice
from ngraph.transformers.executable.layout import ALIGN, Computed, Inner, Layout, real, root
from ngraph.transformers.executable.table import ABSOLUTE, ARENA, CONTROL, ONCE, Address, ConstantRegion, Place, Table, Word

numpy_ops, callbacks = deferred("ngraph.numpy_ops"), deferred("ngraph.transformers.executable.callbacks")
HUGE = 1 << 21  # bytes of a huge page
PORTION = 1 << 26  # bytes
LARGE_ARENA = 1 << 27  # bytes from which on an arena is made a quarter larger than needed, and not twice as large
LET_GO = 2e-5  # seconds from which on other Python threads may run meanwhile
LENT = 2e-4  # seconds from which on another library's threads may run a program: one of these that sleeps is woken in a quarter of them
TABLE, PC, SCRATCH, STRIDE, THREADS, RELEASE, TEAM = (FRAME[f] for f in "table pc scratch stride threads release team".split())


def empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An array without values; a large one starts at a line of the cache, a very large one at a huge page. Raises OutOfMemoryError."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < 1 << 16:
        return np.empty(shape, dtype)
    alignment = HUGE if size >= HUGE << 1 else ALIGN
    available(size)
    try:
        raw = np.empty(size + alignment, np.uint8)
    except MemoryError:
        raise OutOfMemoryError(f"there is no room for {size:,} bytes") from None
    off = -raw.ctypes.data % alignment
    return raw[off : off + size].view(dtype).reshape(shape)


def available(size: int) -> None:
    """Raises OutOfMemoryError where the machine has not so many bytes; only large amounts are looked at."""
    if size < 1 << 28:
        return
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            free = {line.split(":")[0]: int(line.split()[1]) << 10 for line in file}
    except (OSError, ValueError, IndexError):
        return
    have = free.get("MemAvailable", size) + free.get("SwapFree", 0)
    if size > have:
        raise OutOfMemoryError(f"{size:,} bytes are needed, and the machine has {have:,}", fix="take a smaller batch")


def roomy(size: int) -> int:
    """Returns bytes for an arena that needs so many now and may need more later: pages that nobody writes to take no memory."""
    return 2 * size if size < LARGE_ARENA else size + size // 4


class SharedPlan:
    """The part of a plan that calls of all lengths share: constants, what runs once, activation records that are free."""

    def __init__(self, code: LoadedPlan, layout: Layout, outer: SharedPlan | None = None):
        self.code, self.plan, self.layout = code, code.plan, layout
        self.often = {root(b) for s in (*self.plan.start, *self.plan.steps) for b in s.sources} | set(self.plan.outputs)
        self.constants = self._constants()
        self.befores = tuple([before for _, before, _ in self.plan.state])
        self.copies: dict[Buffer, tuple[Any, np.ndarray]] = {}  # of state that lies in files, and that calls read
        self.nearer: tuple[Any, Any] = None, None  # the state's arrays, and what calls take in their place
        self.kept: DeviceMemory | None = None  # memory of what runs once
        self.version = -1
        self.preparing = fork_safe_lock()
        self.free: list[ActivationRecord] = []
        self.spare: dict[Buffer, np.ndarray] = {}  # arrays that state had before
        self.threads = code.device.threads()
        self.bodies = {
            step: {name: SharedPlan(made.code, made, self) for name, (made, _) in inner.bodies.items()}
            for step, inner in layout.inner.items()
        }
        self.used: set[Buffer] | None = None
        self.results = [b for k, b in enumerate(self.plan.outputs) if b.storage == "output" and b not in self.plan.outputs[:k]]
        self.beside: tuple[Any, Any] = None, None  # a reference to a caller's array, and the state's arrays that it shares no memory with

    @staticmethod
    def of(code: LoadedPlan, symbols: frozenset[AxisId]) -> SharedPlan:
        """That of a whole program with these open axes: one for calls of all lengths, if what runs once is the same for all."""
        if code.shared is None:
            made = SharedPlan(code, Layout.of(code, symbols))
            if not made.settled_once:
                return made
            code.shared = made
        found: SharedPlan = code.shared
        return found

    @property
    def settled_once(self) -> bool:
        """Whether the same runs once whatever lengths calls bring."""
        return isinstance(self.layout.lasting, int) and not any(self.layout.varies(s) for s in self.code.once)

    def _constants(self) -> dict[Buffer, np.ndarray]:
        """Their arrays. Those that calls read are settled; the others are read where they are, once."""
        arrays = {b: b.value.array for b in self.plan.buffers if b.value is not None}
        return {b: settled(a) if b in self.often or not a.flags.c_contiguous else a for b, a in arrays.items()}

    def needs(self, b: Buffer) -> bool:
        """Whether a step or the caller reads a buffer."""
        if self.used is None:
            plan = self.plan
            self.used = {b for s in plan.every for b in s.sources}
            self.used.update(plan.outputs, [after for _, _, after in plan.state])
            self.used.update(loads(*plan.axes.values()))
        return b in self.used

    def portions(self, arrays: Mapping[Buffer, np.ndarray]) -> Iterator[tuple[list[Step], set[MappedFile | Pages]]]:
        """Yields the steps that run once, in parts that read at most `PORTION` bytes of files, with these files, to release their pages."""
        steps: list[Step] = []
        files: set[MappedFile | Pages] = set()
        size = 0
        for s in self.code.once:
            for array in [arrays[root(b)] for b in s.step.sources if root(b) in arrays]:
                held = file_of(array)
                if held is not None:
                    files.add(held)
                    size += array.nbytes
            steps.append(s)
            if size >= PORTION:
                yield steps, files
                steps, files, size = [], set(), 0
        if steps:
            yield steps, files

    def near(self, states: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """The state's arrays as calls read them: no longer in files, which other programs may truncate."""
        known, made = self.nearer
        if known is not states:
            made = [self._near(b, a) for b, a in zip(self.befores, states, strict=True)]
            if all(x is y for x, y in zip(made, states, strict=True)):
                made = states
            self.nearer = states, made
        return made

    def _near(self, b: Buffer, array: np.ndarray) -> np.ndarray:
        if b not in self.often or file_of(array) is None:
            self.copies.pop(b, None)
            return array
        known = self.copies.get(b)
        if known is None or known[0] is not array:
            known = self.copies[b] = array, settled(array)
        return known[1]


class InstantiatedPlan:
    """A compiled plan for given lengths of its symbols; a body has those of its surroundings, and lies in their arena.

    It is made when lengths come and costs nothing by step: sizes are computed when they are first asked for.
    """

    def __init__(
        self,
        code: LoadedPlan,
        lengths: Mapping[AxisId, int],
        shared: SharedPlan | None = None,
        outer: InstantiatedPlan | None = None,
    ):
        self.code, self.plan, self.lengths = code, code.plan, dict(lengths)
        self.shared = shared or SharedPlan.of(code, frozenset(self.lengths))
        self.layout, self.constants = self.shared.layout, self.shared.constants
        self.threads, self.free, self.befores = self.shared.threads, self.shared.free, self.shared.befores
        self.symbols: Mapping[AxisId, int] = self.lengths if outer is None else outer.symbols
        self.outer = outer
        self.predicted: float | None = None  # seconds of a call on one thread, by schedules; None before one, and where Python runs steps
        self.open, self.calls = False, 0  # whether its code serves other lengths too, and how often these then came
        self.shapes: dict[Buffer, tuple[int, ...]] = {}
        self._numbers: dict[Leaf, int] = {}
        self._sizes: dict[Buffer, int | None] | None = None
        self._inner: dict[OpaqueOp, Inner] | None = None
        if outer is None and self.shared.kept is None:
            self.shared.kept = code.device.alloc(max(self.value(self.layout.lasting), 1))

    @property
    def kept(self) -> DeviceMemory:
        """Memory of what runs once."""
        assert self.shared.kept is not None
        return self.shared.kept

    @property
    def version(self) -> int:
        """That of the state from which what runs once was computed."""
        return self.shared.version

    @property
    def computed(self) -> dict[Leaf, int]:
        """The numbers that the layout has named."""
        if self.outer is not None:
            return self.outer.computed
        names = self.layout.names
        if len(self._numbers) < len(names):  # a copy, in one step: another thread may name more
            for name in list(names.values())[len(self._numbers) :]:  # in order: each is over those before it
                self._numbers[name] = self.value(name.value)
        return self._numbers

    @property
    def sizes(self) -> dict[Buffer, int | None]:
        """Bytes."""
        if self._sizes is None:
            self._sizes = {b: None if n is None else self.value(n) for b, n in self.layout.sizes.items()}
        return self._sizes

    @property
    def inner(self) -> dict[OpaqueOp, Inner]:
        """Its loops and branches, with their bodies for these lengths."""
        if self._inner is None:
            self._inner = {step: self.instantiated(inner, self.shared.bodies[step]) for step, inner in self.layout.inner.items()}
        return self._inner

    def value(self, e: ExprLike, run: Callable[[Any], int] | None = None) -> int:
        """A number of the layout for these lengths; `run` reads what steps have counted. Raises LookupError where it is missing."""
        if isinstance(e, int):
            return e
        numbers = self._numbers if self.outer is None else None

        def leaf(x: Leaf) -> int:
            if type(x) is Load:
                if run is None:
                    raise LookupError(f"{x!r} has no value here")
                return run(x.of)
            if type(x) is not Computed:
                return self.symbols[x.of]
            found = None if numbers is None else numbers.get(x)
            return self.computed[x] if found is None else found

        return int(expr.evaluate(e, leaf))

    def instantiated(self, inner: Inner, shared: Mapping[str, SharedPlan] = {}) -> Inner:
        """A loop or branch with its bodies for these lengths."""

        def body(name: str, layout: Layout) -> InstantiatedPlan:
            lengths = {a: self.value(n) for a, n in layout.lengths.items() if a not in layout.counted}
            return InstantiatedPlan(layout.code, lengths, shared.get(name) or SharedPlan(layout.code, layout), self)

        return inner._replace(bodies={name: (body(name, layout), at) for name, (layout, at) in inner.bodies.items()})

    def settled(self, e: ExprLike) -> ExprLike:
        """A length over what is loaded alone."""

        def leaf(x: Leaf) -> ExprLike:
            if type(x) is not Len:
                return x
            own = self.lengths.get(x.of, self.plan.axes[x.of])
            return own if isinstance(own, int) or own == x else self.settled(own)

        return expr.substitute(e, leaf)

    def length(self, axis: AxisId, run: Callable[[Any], int] | None = None) -> int:
        lengths = self.lengths
        if self.layout.counted and run is not None:
            lengths = lengths | {a: self.value(n, run) for a, n in self.layout.counted.items()}
        return self.plan.length(axis, lengths, run)

    def full(self, b: Buffer, run: Callable[[Any], int] | None = None) -> tuple[int, ...]:
        """Returns the shape of a buffer, borders and padding included."""
        return tuple(room_of(b, lambda a: self.length(a, run)))

    def shape(self, b: Buffer, run: Callable[[Any], int] | None = None) -> tuple[int, ...]:
        """The lengths of its axes; those that do not wait for a step are worked out once."""
        known = self.shapes.get(b)
        if known is None:
            try:
                known = self.shapes[b] = tuple([self.length(a) for a in b.axes])
            except LookupError:
                return tuple([self.length(a, run) for a in b.axes])
        return known

    def needs(self, b: Buffer) -> bool:
        """Whether a step or the caller reads a buffer."""
        return self.shared.needs(b)

    def room(self, b: Buffer, old: np.ndarray) -> np.ndarray:
        """An array for the new value of state: the one that it had before the old, where that is no longer in use."""
        spare = self.shared.spare.pop(b, None)
        if spare is None or spare is old or spare.shape != self.shape(b) or spare.dtype != b.dtype.np:
            return empty(self.shape(b), b.dtype.np)
        return spare

    def take(self) -> ActivationRecord:
        """An activation record for these lengths: a free one, or a new one."""
        try:
            record = self.free.pop()
        except IndexError:
            return ActivationRecord(self)
        if record.bound is not self:
            record.settle(self)
        return record

    def prepare(self, version: int, states: Sequence[np.ndarray]) -> None:
        """Runs the steps that run once, if state has changed since."""
        shared = self.shared
        if shared.version == version or not self.code.once:
            return
        with shared.preparing:
            if shared.version != version:
                frame = ActivationRecord(self, ())
                arrays = dict(zip(self.befores, states, strict=True))
                frame.point_all(arrays)
                for steps, files in shared.portions({**self.constants, **arrays}):
                    for file in files:
                        file.check()
                    frame.load(steps)
                    frame.run()
                    for file in files:
                        file.let_go()
                shared.version = version

    def near(self, states: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """The state's arrays as calls read them."""
        return self.shared.near(states)

    def __call__(
        self, inputs: Sequence[Any], states: Sequence[Any], version: int = 0, outs: Sequence[Any] | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """The outputs, and the states written. `outs` are arrays of the caller's for results; those that do not fit are left alone."""
        plan = self.plan
        self.prepare(version, states)
        states = self.near(states)
        frame = self.take()
        given: dict[Buffer, Any] = dict(zip(plan.inputs, inputs, strict=True))
        for k, b in enumerate(plan.outputs):
            if b.storage == "output" and b not in given and b.shares is None:
                given[b] = outs[k] if outs is not None and k < len(outs) and self.fits(outs[k], b, given.values(), states) else None
        return frame.call(given, states)

    def fits(self, out: Any, b: Buffer, others: Iterable[Any], states: Sequence[Any]) -> bool:
        """Whether a result can be made in the caller's array: of its form, dense, and apart from all other arrays."""
        if not isinstance(out, np.ndarray) or out.dtype != b.dtype.np or self.sizes[b] != out.nbytes or out.shape != self.shape(b):
            return False
        if not (out.flags.c_contiguous and out.flags.aligned and out.flags.writeable):
            return False
        if any(a is not None and np.may_share_memory(out, a) for a in others):
            return False
        known, arrays = self.shared.beside
        if known is None or known() is not out or arrays is not states:
            if any(np.may_share_memory(out, a) for a in states):
                return False
            self.shared.beside = weakref.ref(out), states
        return True


class BufferAddresses:
    """The addresses of a plan's buffers: in an arena that starts at `base`, in arrays of calls, or set by `name`.

    Values that are constant at run time lie from `kept` on.
    """

    def __init__(
        self,
        bound: InstantiatedPlan,
        base: Address,
        kept: Address,
        arrays: dict[Buffer, Any],
        table: Table,
        point: Callable[[Buffer, np.ndarray], None],
        found: Callable[[], InstantiatedPlan] | None = None,
    ):
        """`found` gives a body's plan for the lengths of the present call; without it `bound` is replaced where lengths change."""
        self._bound, self.plan, self.base, self.kept = bound, bound.plan, base, kept
        self.arrays, self.table, self.point, self.found = arrays, table, point, found
        self.named: dict[Buffer, Place] = {}

    @property
    def bound(self) -> InstantiatedPlan:
        return self._bound if self.found is None else self.found()

    def settle(self, bound: InstantiatedPlan) -> None:
        """Its lengths are these from now on."""
        self._bound = bound

    def body(self, step: OpaqueOp, inner: Inner, name: str, table: Table) -> tuple[InstantiatedPlan, BufferAddresses]:
        """A body, and where its buffers are: the caller names its arguments."""
        bound, at = inner.bodies[name]
        base = self.base.plus(at)
        again = (lambda: self.bound.inner[step].bodies[name][0]) if step in self.bound.layout.inner else None
        inside = BufferAddresses(bound, base, base.plus(bound.layout.apart), self.arrays, table, self.point, again)
        for count in loads(*bound.layout.counted.values()):
            inside.name(count, self.resolve(count))
        return bound, inside

    def name(self, b: Buffer, place: Place) -> None:
        self.named[root(b)] = place

    def resolve(self, b: Buffer) -> Place:
        """Returns the place of a buffer in this table."""
        b = root(b)
        place = self.named.get(b)
        if place is None:
            place = self.named[b] = self._resolved(b)
        return place

    def _resolved(self, b: Buffer) -> Place:
        bound = self.bound
        if b in bound.constants:
            constant = ConstantRegion(b)
            self.table.bases[constant] = int(bound.constants[b].ctypes.data)
            return Address(constant)
        at = bound.layout.offsets.get(b)
        if at is None:
            return Address(b)
        region, base = self.kept if b.storage == "once" else self.base
        return Address(region, base + at)

    def address(self, place: Place) -> int:
        """Returns the present address of a place."""
        if isinstance(place, Word):
            return int(self.table.array[place.word])
        return self.table.bases[place.region] + self.bound.value(place.offset)

    def length(self, axis: AxisId) -> int:
        return self.bound.length(axis, self.run_length)

    def run_length(self, b: Buffer) -> int:
        return int(self.array(b))

    def shape(self, b: Buffer) -> tuple[int, ...]:
        return self.bound.shape(b, self.run_length)

    def array(self, b: Buffer) -> np.ndarray:
        """Returns the content of a buffer, by its axes."""
        b = root(b)
        place = self.resolve(b)
        shape, given = self.shape(b), brought(place)
        if given is not None:
            found: np.ndarray = self.arrays[given]
            if found.shape == shape:
                return found
            return found.reshape(-1)[: math.prod(shape)].reshape(shape)  # there was room for more
        at = self.address(place)
        full, item = self.bound.full(b, self.run_length), b.dtype.np.itemsize
        size = math.prod(full) * item
        memory = (ctypes.c_char * max(size, 1)).from_address(at)
        whole = np.frombuffer(memory, np.uint8, size).view(b.dtype.np)
        if full == shape:
            return whole.reshape(shape)
        strides = b.strides or tuple(math.prod(full[k + 1 :]) for k in range(len(full)))
        return np.lib.stride_tricks.as_strided(whole[b.first :], shape, [item * n for n in strides])

    def place(self, b: Buffer) -> np.ndarray:
        """The memory of a buffer that a step is about to fill."""
        given = brought(self.resolve(b))
        if given is not None:
            shape = self.bound.full(b, self.run_length)
            if given not in self.arrays or self.arrays[given].size < math.prod(shape):
                self.point(given, np.empty(shape, b.dtype.np))
        return self.array(b)

    # ---- what Python does

    def refuse(self, step: OpaqueOp) -> None:
        """Raises the error that a check has found."""
        axis, *about = step.attrs.values()
        numpy_ops.check_bounds(self.array(step.inputs[0]), self.length(axis), *about)

    def routine(self, step: OpaqueOp) -> None:
        callbacks.run_opaque_op(self, step)

    def late(self, step: Control) -> None:
        """A loop or branch whose lengths have become known: a table of its own, for this time."""
        r, device = step.step, self.bound.code.device
        inner = self.bound.instantiated(Inner.of(self.bound.layout, r, 0, self.length))
        memory = device.alloc(max(self.bound.value(inner.end), 1))
        tables = Table(self.table.bases), Table(self.table.bases)
        base = Address(ABSOLUTE, memory.address)
        scopes = [BufferAddresses(self.bound, base, self.kept, self.arrays, t, self.point) for t in tables]
        for b in filter(real, (*r.inputs, *r.results)):
            array = self.place(b) if b in r.results else self.array(b)
            for s in scopes:
                s.name(b, Address(ABSOLUTE, array.__array_interface__["data"][0]))
        starting(tables[0], scopes[0], {r: inner})
        CONTROL[r.op](tables[1], scopes[1], r, inner)
        for table in tables:
            BytecodeRunner(table, self.bound.threads, device, self.bound.symbols).run()
        del memory


def starting(table: Table, scope: BufferAddresses, inside: Mapping[OpaqueOp, Inner]) -> None:
    """Adds what fills the borders of bodies, and of those in them."""
    todo = [(scope, step, inner) for step, inner in inside.items()]
    while todo:
        outer, step, inner = todo.pop()
        for name in inner.bodies:
            bound, within = outer.body(step, inner, name, table)
            table.add(within, bound.code.start)
            todo += [(within, s, i) for s, i in bound.inner.items()]


class BytecodeRunner:
    """A table in memory, and what runs it."""

    def __init__(self, table: Table, threads: int, device: KernelDevice, lengths: Mapping[AxisId, int]):
        """`lengths`: of the axes whose lengths calls bring."""
        table.finish()
        self.table, self.device = table, device
        self.words = np.zeros(len(FRAME), np.int64)
        self.threads, self.most_threads = 1, threads  # those that are started, and those there may be
        self.words[TABLE], self.words[TEAM] = table.address, table.seconds > LENT
        self.room = -1
        self.runs = device.runner(self.words)
        self.settle(lengths)
        self.host_callbacks = sum(r[0] == HOST for r in table.records) - table.checks  # that every call takes

    def settle(self, lengths: Mapping[AxisId, int]) -> None:
        """Computes what follows from lengths: the table does."""
        table = self.table
        if table.prologue:
            for a, k in table.lengths.items():
                table.array[k] = lengths[a]
            self._compute()
        wide = table.wide and self.most_threads > 1
        if wide:
            self.start()
        if table.scratch > self.room:
            self._scratch()
        self.words[THREADS] = self.threads if wide else 1
        self.words[RELEASE] = table.seconds > LET_GO or wide and table.most_ways is not None

    def _compute(self) -> None:
        self.words[THREADS], self.words[RELEASE], self.words[PC] = 1, 0, self.table.start
        self.runs()
        self.table.measure()

    def move(self, region: Any, address: int) -> None:
        """A region lies there from now on."""
        table = self.table
        table.bases[region] = address
        for k, offset in table.relocations.get(region, ()):
            table.memory[k] = address + offset
        if table.prologue:
            now = [int(self.words[k]) for k in (THREADS, RELEASE)]
            self._compute()
            self.words[THREADS], self.words[RELEASE] = now

    @property
    def first(self) -> int:
        """The instruction from which on the table computes what follows from lengths."""
        return self.table.start

    def start(self) -> None:
        """Starts the threads that some lengths pay for, and gives them scratch."""
        if self.threads == 1 and self.most_threads > 1 and (self.table.wide or self.table.most_ways is not None):
            self.threads, self.room = self.device.start(self.most_threads), -1
        if self.table.scratch > self.room:
            self._scratch()

    def _scratch(self) -> None:
        room = self.table.scratch
        stride = -(-room // 4096) * 4096 + ALIGN
        self.scratch, self.words[SCRATCH] = self.device.alloc(stride * self.threads)
        self.words[STRIDE], self.room = stride, room

    def point(self, b: Buffer, array: np.ndarray) -> None:
        """This buffer is that array, from now on."""
        for k, offset in self.table.relocations.get(b, ()):
            self.table.memory[k] = array.__array_interface__["data"][0] + offset

    def run(self) -> None:
        """Walks the table to its end; Python takes the steps that are its own."""
        watch = watcher.get()
        if watch is not None:
            return self._watched(watch)
        words, hosts, runs = self.words, self.table.hosts, self.runs
        words[PC] = 0
        while runs():
            k = int(words[PC])
            hosts[k]()
            if self.table.scratch > self.room:
                self._scratch()
            words[PC] = k + 1

    def _watched(self, watch: Watcher) -> None:
        """Walks the table to its end, each kernel inside the watcher's context: it ends the run, as what Python does ends it."""
        words, hosts, runs = self.words, self.table.hosts, self.runs
        kinds = self.table.table[:, 0]
        before = kinds.copy()
        kinds[kinds == KERNEL] = HOST
        words[PC] = 0
        try:
            while runs():
                k = int(words[PC])
                step = self.table.steps[k]
                with watch("copy" if step is None else title(step.step)):
                    if before[k] == KERNEL:
                        after = kinds[k + 1]
                        kinds[k : k + 2] = KERNEL, HOST  # this kernel alone
                        runs()
                        kinds[k : k + 2] = HOST, after
                    else:
                        hosts[k]()
                if self.table.scratch > self.room:
                    self._scratch()
                words[PC] = k + 1
        finally:
            kinds[:] = before


def brought(place: Place) -> Buffer | None:
    """The buffer that calls come with and that lies there, if it is one."""
    return place.region if isinstance(place, Address) and isinstance(place.region, Buffer) else None


class Arrays(dict[Buffer, Any]):
    """The arrays of a call, and those that Python made; behind them the state, in a list that is the same in every call."""

    def __init__(self, befores: Sequence[Buffer]):
        super().__init__()
        self.index = {b: k for k, b in enumerate(befores)}
        self.states: Sequence[Any] = ()

    def __missing__(self, b: Buffer) -> Any:
        return self.states[self.index[b]]

    def __contains__(self, b: object) -> bool:
        return super().__contains__(b) or b in self.index


class ActivationRecord:
    """One call's memory: arena, arguments of kernels, the table that threads walk. Calls of other lengths use it after `settle`."""

    def __init__(self, bound: InstantiatedPlan, steps: Sequence[Step] | None = None, still: bool = False):
        """`steps`: other than those of a call. `still`: state keeps its memory; what is made elsewhere is copied there at the end."""
        self.bound, self.plan, self.still = bound, bound.plan, still
        self.room = max(bound.value(bound.layout.total), 1)  # bytes
        if bound.layout.symbols:
            self.room = roomy(self.room)
        self.arena = bound.code.device.alloc(self.room)
        self.arrays = Arrays(bound.befores)
        self.moving = [(k, name, after) for k, (name, before, after) in enumerate(self.plan.state) if after is not before]
        self.filling: tuple[BufferAddresses, BytecodeRunner] | None = None
        self.load(bound.code.steps if steps is None else steps)
        if steps is None:
            bound.predicted = None if self.walk.host_callbacks else self.walk.table.seconds
            self._start()

    def load(self, steps: Sequence[Step]) -> None:
        """Makes the table of these steps; what others left in memory is still there."""
        self.scope = self._scope(table := Table())
        table.add(self.scope, steps)
        for _, _, after in self.moving if self.still else ():
            self.arrays.setdefault(after, empty(self.bound.shape(after), after.dtype.np))
        for k, _, after in self.moving if self.still else ():
            before = self.bound.befores[k]
            table.copy(self.scope, self.scope.resolve(before), self.scope.resolve(after), self.bound.layout.content(before))
        self.walk = self._runner(table, self.bound.threads)
        for b, array in self.arrays.items():
            self.walk.point(b, array)

    def _runner(self, table: Table, threads: int) -> BytecodeRunner:
        table.total = table.early(self.bound.layout.total)
        return BytecodeRunner(table, threads, self.bound.code.device, self.bound.symbols)

    def _scope(self, table: Table) -> BufferAddresses:
        table.bases.update({ARENA: self.arena.address, ONCE: self.bound.kept.address})
        return BufferAddresses(self.bound, Address(ARENA), Address(ONCE), self.arrays, table, self.point)

    def _start(self) -> None:
        """Runs what fills borders, those of bodies too."""
        table = Table()
        scope = self._scope(table)
        table.add(scope, self.bound.code.start)
        starting(table, scope, self.bound.inner)
        if table.records:
            self.filling = scope, self._runner(table, 1)
            self.filling[1].run()

    def settle(self, bound: InstantiatedPlan) -> None:
        """Gives it the lengths of other calls. Its arena grows where they need more than any before."""
        self.bound = bound
        self.scope.settle(bound)
        self.walk.settle(bound.symbols)
        self.grow()
        if self.filling is not None:
            scope, runner = self.filling
            scope.settle(bound)
            runner.settle(bound.symbols)
            runner.run()

    def grow(self) -> None:
        """Gets a larger arena where the last lengths that came need one."""
        needed = int(self.walk.table.array[self.walk.table.total])
        if needed <= self.room:
            return
        room = roomy(needed)
        self.arena = self.bound.code.device.alloc(room)  # or an error, and the arena is as large as it was
        self.room = room
        for runner in self.runners:
            runner.move(ARENA, self.arena.address)

    @property
    def runners(self) -> list[BytecodeRunner]:
        """That of its table, and that of what fills borders."""
        return [self.walk] if self.filling is None else [self.walk, self.filling[1]]

    def point(self, b: Buffer, array: np.ndarray) -> None:
        """This buffer is that array, from now on."""
        self.arrays[b] = array
        self.walk.point(b, array)

    def point_all(self, arrays: Mapping[Buffer, np.ndarray]) -> None:
        for b, array in arrays.items():
            self.point(b, array)

    def run(self) -> None:
        self.walk.run()

    def call(self, given: dict[Buffer, Any], states: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Runs over these arrays and those of the state, in the plan's order; outputs given as None are made."""
        bound, plan, befores = self.bound, self.plan, self.bound.befores
        for b, array in given.items():
            self.point(b, self._room(b) if array is None else array)
        if states is not self.arrays.states:
            self.arrays.states = states
            for b, array in zip(befores, states, strict=True):
                self.walk.point(b, array)
        taken = {*given, *befores} if self.moving else set()
        for k, _, after in self.moving:
            place = root(after)
            if place not in taken and place.storage == "state":
                taken.add(place)
                self.point(place, bound.room(place, states[k]))
        self.run()
        seen: set[int] = set()
        outputs = [self._given(b, b.storage == "output", seen) for b in plan.outputs]
        written: dict[str, Any] = {}
        for k, name, after in self.moving:
            place = root(after)
            moved = place.storage == "state" and place not in self.arrays.index
            written[name] = self._given(after, place is befores[k] or moved, seen)
            if moved:
                bound.shared.spare[place] = states[k]  # two arrays change places from call to call
        self.arrays.clear()
        bound.free.append(self)
        return outputs, written

    def _room(self, b: Buffer) -> np.ndarray:
        """Memory for a result; as much as it may become where its length is known only afterwards."""
        try:
            return empty(self.bound.shape(b), b.dtype.np)
        except LookupError:
            return empty(((self.bound.sizes[b] or 0) // b.dtype.np.itemsize,), b.dtype.np)

    def _given(self, b: Buffer, own: bool, seen: set[int]) -> np.ndarray:
        """Returns the content of a buffer, as an array that nothing else holds."""
        array, place = self.scope.array(b), root(b)
        if own and id(array) not in seen and place in self.arrays and array is self.arrays[place]:
            seen.add(id(array))
            return array
        return np.array(array, order="C")
