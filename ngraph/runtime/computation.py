"""Computation: the user's callable. It fits arguments to the program, passes state to the executable, and returns results.

The call itself is a small function generated for each computation: arguments that fit pass through one test each.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ngraph.config import WATCHED, config
from ngraph.errors import ArgumentError, GraphError, OutOfMemoryError, StateError, UnknownName, UnsupportedError
from ngraph.op_graph.arrays import as_array
from ngraph.op_graph.axes import show_axes
from ngraph.op_graph.dlpack import ExchangeAPI, exchange_api
from ngraph.op_graph.expr import ExprLike, Len, leaves, substitute
from ngraph.op_graph.expr import text as expr_text
from ngraph.op_graph.html import folded, some, table
from ngraph.op_graph.memory import with_room
from ngraph.op_graph.misspelt import OF_COMPUTATIONS, missing_attribute, no_attribute
from ngraph.op_graph.op import Op, TensorType
from ngraph.ops.computation import as_results
from ngraph.parts import nest
from ngraph.parts.deferred import deferred
from ngraph.parts.runner import Ran, watching
from ngraph.program.lower import Lowered, lower, no_origin
from ngraph.program.program import AxisId, Program, Step, Value
from ngraph.program.text import text
from ngraph.runtime.arguments import Binder, apart, check_out, from_feeds, matched, miscounted, unwritable, written
from ngraph.runtime.host.entry import PLAIN, ArrayForms, held, kept_blocks
from ngraph.runtime.interrupts import interrupts
from ngraph.runtime.state import Alone, Lent, StateArrays
from ngraph.runtime.watching import Watcher, watcher

if TYPE_CHECKING:  # loaded by transformers that cache compiled programs
    from ngraph.runtime.graph_cache import CachedGraph, CacheHit
    from ngraph.runtime.profile import Profile

dump, nans = deferred("ngraph.runtime.dump"), deferred("ngraph.runtime.nans")
TIMED = 3  # calls that are timed to find out whether a program is short


def inside(name: str) -> str:
    """Returns a file name for generated code, so that errors count its frames as this package's, not as the user's."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), name)


class Executable:
    """The result of a transformer's `compile`.

    call      (inputs…, states…) -> outputs, then the states written, each an array that nothing else holds
    source    the generated code, or a function that returns it; "" where there is none
    memory    bytes by purpose, or a function that returns them
    in_place  whether a failing call may leave states half written; one that runs out of memory fails before
    native    the machine code, with its plan, IR and assembly as texts; its `call` takes the inputs alone, `states`, the
              list of those arrays, `out`, a sequence of arrays for the results, and `version`, a number that grows where state is written
              that it only reads; `named()` is itself, with the user's names and lines in those texts
    """

    def __init__(
        self,
        call: Callable[..., Any],
        source: str | Callable[[], str] = "",
        memory: Any = None,
        in_place: bool = False,
        native: Any = None,
    ):
        self.call, self.in_place, self.native = call, in_place, native
        self._source, self._memory = source, memory

    @property
    def source(self) -> str:
        found = self._source
        if callable(found):
            found = self._source = found()
        return found

    @property
    def memory(self) -> dict[str, int]:
        found = self._memory
        if callable(found):
            found = self._memory = found()
        return dict(found or {})


class Maker(Protocol):
    """The interface of a computation's transformer; see `Transformer`."""

    state: StateArrays

    def run_passes(self, program: Program) -> Program: ...
    def run_later_passes(self, program: Program, executable: Executable | None) -> None: ...
    def compile(self, program: Program) -> Executable: ...
    def facts(self) -> tuple[Any, ...] | None: ...
    def found(self, found: CacheHit, whole: Callable[[], Program]) -> Executable: ...


class ResultForm:
    """The structure of results. `writes`: values for parameters, by number, that follow them.

    ops    in order                                single, nothing    whether they are one op, or none
    nest   what the results are put into; None where they are one op, none, or a tuple of ops
    slots  for each op its number among those with values; None for one without
    """

    def __init__(self, results: Any, writes: Mapping[int, Op] = {}):
        form = as_results(results)
        ops = nest.leaves(form)
        flat = type(form) is tuple and all(isinstance(r, Op) for r in form)
        self.nest = None if flat or form is None or isinstance(form, Op) else form
        self.ops: list[Op] = ops
        self.single = isinstance(results, Op)
        self.nothing = results is None
        tensors = [type(op.type) is TensorType for op in ops]
        self.slots = [sum(tensors[:k]) if t else None for k, t in enumerate(tensors)]
        self.plain = all(tensors)
        self.count = sum(tensors)
        self.writes = dict(writes)
        self.roots: list[Op] = [*ops, *self.writes.values()]

    def packed(self, outputs: tuple[Any, ...]) -> Any:
        """Returns the caller's results for the arrays of those that are tensors."""
        if self.nothing:
            return None
        if not self.plain:
            outputs = tuple([None if k is None else outputs[k] for k in self.slots])
        if self.single:
            return outputs[0]
        return outputs if self.nest is None else nest.rebuilt(self.nest, outputs)

    def taken(self, given: Any) -> list[Any]:
        """Returns for each op what stands in its place. Raises ValueError for another form."""
        if self.nest is not None:
            return list(matched(self.nest, given, "out="))
        if self.nothing:
            return []
        if not self.single and not (isinstance(given, Sequence) and len(given) == len(self.ops)):
            got = f"{len(given)} arrays" if isinstance(given, (Mapping, Sequence)) else type(given).__name__
            raise ValueError(f"out= takes a list of {len(self.ops)}, one for each result, and got {got}")
        return [given] if self.single else list(given)


def declared_orders(program: Program, ops: Sequence[Op]) -> Program:
    """Returns the program with its outputs in the order of the axes that the user's ops declare, or of the inputs that they replace."""
    outputs, steps = list(program.outputs), list(program.steps)
    replaced = {n: program.inputs[k] for k, n in program.writes}
    for k, op in enumerate([op for op in ops if type(op.type) is TensorType]):
        value = outputs[k]
        ids = {program.hints.get(a, str(a)): a for a in value.axes}
        wanted = tuple([ids.get(a.label) for a in op.axes]) if k not in replaced else tuple(replaced[k].axes)
        if None in wanted or wanted == tuple(value.axes):
            continue
        outputs[k] = Value(TensorType(wanted, value.dtype), value.hint)
        steps.append(Step((outputs[k],), "broadcast", (value,), {"axes": wanted}, (op.origin,) if op.line else no_origin(program)))
    return program.with_(outputs=tuple(outputs), steps=tuple(steps))


def memory_orders(program: Program, forms: ArrayForms) -> Program:
    """Returns the program with inputs and outputs whose axes are in the order of memory, from the slowest to the fastest."""
    if not forms.given and not forms.made:
        return program
    inputs, outputs, first, last = list(program.inputs), list(program.outputs), list[Step](), list[Step]()
    origin = no_origin(program)

    def turned(v: Value, order: tuple[int, ...]) -> Value:
        return Value(TensorType(tuple([v.axes[d] for d in order]), v.dtype), v.hint)

    for k, order in forms.given.items():
        old = inputs[k]
        inputs[k] = turned(old, order)
        first.append(Step((old,), "broadcast", (inputs[k],), {"axes": tuple(old.axes)}, origin))
    for n, order in forms.made.items():
        old = outputs[n]
        outputs[n] = turned(old, order)
        last.append(Step((outputs[n],), "broadcast", (old,), {"axes": tuple(outputs[n].axes)}, origin))
    return program.with_(inputs=tuple(inputs), outputs=tuple(outputs), steps=(*first, *program.steps, *last))


def _theirs(api: ExchangeAPI, value: Value, order: tuple[int, ...] | None, binder: Binder, source: tuple[int, int] | None) -> Any:
    """Returns an array of a library for a result, whose axes are in the order of memory; None where steps find its lengths."""
    dims = [n for a in value.axes if (n := binder.length(a)) is not None]
    if len(dims) < len(value.axes):
        return None
    lengths = list(dims)
    for n, d in zip(dims, order or (), strict=False):
        lengths[d] = n
    return api.empty(lengths, value.dtype, order, source)


_COMPUTATIONS: weakref.WeakValueDictionary[int, Computation] = weakref.WeakValueDictionary()  # by their ids
_raising: list[None] = []  # one entry for each open block in which `nans` is "raise"


def _nans(value: str, begins: bool) -> None:
    """Switches all computations, on every thread, between checked and direct calls when such a block begins or ends."""
    if value == "raise":
        _raising.append(None) if begins else _raising.pop()
        for c in [ref() for ref in _COMPUTATIONS.valuerefs()]:
            if c is not None:
                c._checks = bool(_raising) or config.nans == "raise"
                c._shorten()


WATCHED["nans"] = _nans


class Computation(Alone, partial[Any]):
    """A callable that computes its results from values for its parameters and from its transformer's state.

    Call it with one value per parameter, in order, or with `feed_dict={op: value}`; `out=` takes arrays of the results' shapes and
    dtypes to fill. `program` is the executed program, after passes; `source` the generated code; `memory` bytes by use.
    Raises ArgumentError where a value does not fit.

    It is a `partial` so that calls go straight to its function, the fast path of generated code or `call`, without a `__call__` in
    Python in between.
    """

    def __new__(cls, *arguments: Any, **named: Any) -> Computation:
        return super().__new__(cls, cls._unready)

    @staticmethod
    def _unready(*arguments: Any, **named: Any) -> Any:
        raise GraphError("this computation was not made by a transformer")

    def __init__(
        self,
        results: ResultForm,
        lowered: Lowered,
        maker: Maker,
        graph: CachedGraph | None = None,
        found: CacheHit | None = None,
        forms: ArrayForms = PLAIN,
    ):
        """Makes a computation. `lowered` has no steps where it was `found` in the cache, else it is cached for equal ones of `graph`."""
        state = maker.state
        self.results, self.state, self.name = results, state, lowered.program.name
        self.parameters = lowered.inputs
        self._lowered, self._maker, self._graph, self._found = lowered, maker, graph, found
        self.forms = forms
        self._program: Program | None = None
        self._executable: Executable | None = None
        self._count = len(lowered.inputs)
        self._writes = bool(lowered.program.state_out)
        self.writes = dict(lowered.program.writes)  # by the number of the parameter: the output that replaces it
        self._entry: Callable[..., Any] = self._first
        self._fast: Any = None
        self._taken: Lent | None = None
        self._checks = bool(_raising) or config.nans == "raise"
        self._through(self.call)
        _COMPUTATIONS[id(self)] = self
        self.variables = [lowered.states[s.name] for s in lowered.program.state_in]
        for label, variable in lowered.states.items():
            state.add(label, variable)

    def _again(self) -> Lowered:
        return lower(self.results.roots, self.parameters, self.name, writes=list(self.results.writes))

    # inspection
    @property
    def declared(self) -> Program:
        """The program before any pass, with inputs and outputs in the order of the caller's dims."""
        own = self._lowered if self._found is None else self._again()
        return declared_orders(own.program, self.results.roots)

    @property
    def lowered(self) -> Program:
        """The program before any pass, with inputs and outputs in the order of their dims in memory."""
        return memory_orders(self.declared, self.forms)

    @property
    def program(self) -> Program:
        if self._program is None:
            self._program = self._maker.run_passes(self.lowered)
        return self._program

    @property
    def _face(self) -> Program:
        """The program's interface for calls: its steps may be missing."""
        return self.program if self._found is None else self._found.program

    def history(self) -> list[Ran]:
        """Returns each pass by name, its result, the seconds, and the applied rules; runs the passes again.

        Passes that make a plan run for the lengths of the version that was compiled first; before a call they do not run.
        """
        with watching() as seen:
            self._maker.run_later_passes(self._maker.run_passes(self.lowered), self._executable)
        return seen

    def stages(self) -> list[tuple[str, Any]]:
        """Returns the lowered program, then the result of each pass, with their names; runs the passes again.

        A program is returned as itself, other forms on the way to a plan as text.
        """
        return [("lower", self.lowered), *((ran.name, ran.value) for ran in self.history())]

    @property
    def executable(self) -> Executable:
        with self.state.compiling:
            if self._executable is None:
                same = self._graph is not None and self._graph.facts == self._maker.facts()
                if self._found is not None and same:
                    self._executable = self._maker.found(self._found, partial(copy_context().run, lambda: self.program))
                    return self._executable
                if self._found is not None:  # compiled under other settings than the current ones
                    self._lowered, self._found = self._again(), None
                start = time.perf_counter()
                program = self.program
                between = time.perf_counter()
                self._executable = self._maker.compile(program)
                self._report(len(program.steps), between - start, time.perf_counter() - between)
                if same and self._graph is not None:
                    self._graph.keep(self._lowered, program)
            return self._executable

    @property
    def compiled(self) -> bool:
        return self._executable is not None

    @property
    def versions(self) -> dict[str, int]:
        """The versions of its code for lengths, such as "N open" and "N=32", with the number of calls that used each."""
        native = None if self._executable is None else self._executable.native
        return {} if native is None else dict(native.calls())

    @property
    def source(self) -> str:
        return self.executable.source

    @property
    def memory(self) -> dict[str, int]:
        return self.executable.memory

    @property
    def native(self) -> Any:
        """The machine code. Raises UnsupportedError where there is none."""
        native = self.executable.native
        if native is None:
            raise UnsupportedError(f"{self.name} was not compiled to machine code", fix="make it on transformer cpu")
        return native.named()

    @property
    def plan(self) -> str:
        """The kernels over buffers, as text."""
        return str(self.native.plan_text())

    @property
    def schedule(self) -> str:
        """The loop nests that its kernels run as: loops, vectors, register tiles, prefetches, as text."""
        return str(self.native.schedule_text())

    @property
    def llvm(self) -> str:
        """The LLVM IR of each different kernel."""
        return str(self.native.llvm())

    @property
    def asm(self) -> str:
        """The machine code of each different kernel, as assembly text."""
        return str(self.native.asm())

    def watched(self, watch: Watcher, *arguments: Any) -> Any:
        """Calls it with each kernel inside `with watch(title)`, where the title is the kernel's ops and the user's line.

        The results are those of any call. Where there is no machine code, nothing is watched.
        """
        if self.executable.native is not None:
            self.native  # noqa: B018  names kernels that were found in the cache
        token = watcher.set(watch)
        try:
            return self.call(*arguments)
        finally:
            watcher.reset(token)

    def profile(self, *arguments: Any, calls: int = 10) -> Profile:
        """Returns the time of a call by kernel: print it, or `save` it as a page (.html) or a trace (.json).

        Makes one call for warm-up and then `calls` calls, which update the state. Raises UnsupportedError where there is no machine
        code.
        """
        self.call(*arguments)
        found: Profile = self.native.profile(lambda: self.call(*arguments), calls)
        return found

    def compare(self, *arguments: Any) -> int:
        """Returns the number of kernels whose machine code agrees with the plan for these arguments; state is not changed.

        Each kernel runs as machine code and, slowly, in the plan's interpreter. Raises NgraphError that shows the first that differs: its
        values, its loops, the user's lines; UnsupportedError where there is no machine code.
        """
        if len(arguments) != self._count:
            raise miscounted(len(arguments), self.parameters, self.name)
        native, program = self.native, self._lowered.program
        arrays = Binder(program, self.parameters, self._lowered.nonempty).fit(arguments)
        arrays = [a.transpose(self.forms.given[k]) if k in self.forms.given else a for k, a in enumerate(arrays)]
        with self.state.lock.reading():
            self.state.ensure(self.variables)
            states = [np.array(a) for a in self._lent.arrays()]
        found: int = native.compare(arrays, states)
        return found

    def _report(self, steps: int, passes: float, compile: float) -> None:
        if config.debug >= 1:
            print(f"{self.name}: {steps} steps, passes {passes * 1e3:.1f} ms, compiled in {compile * 1e3:.1f} ms", file=sys.stderr)
        if config.debug >= 4 and self.source:
            print(self.source, file=sys.stderr)
        if config.dump:
            with config(debug=0):  # DEBUG=5 printed when the passes ran for the call
                stages = dump.stages(self.results.ops, self.lowered, self.history(), self.source, self.executable.native)
            dump.write(config.dump, self.name, stages, {"passes": passes, "compile": compile})

    # calling
    def _through(self, function: Callable[..., Any]) -> None:
        """Makes calls go to this function."""
        self.__setstate__((function, (), {}, self.__dict__))  # type: ignore[attr-defined]  # functools.partial has it, its stub not

    def call(self, *arguments: Any, feed_dict: Mapping[Op, Any] | None = None, out: Any = None, **named: Any) -> Any:
        """Calls the computation, for all arguments that can be made to fit."""
        if named:
            raise UnknownName(f"{self.name} has no argument {next(iter(named))}", fix="pass values in order, or feed_dict={op: value}")
        if feed_dict is not None:
            if arguments:
                raise ArgumentError(f"{self.name} got both positional values and a feed_dict", fix="give one of the two")
            arguments = tuple(from_feeds(feed_dict, self.parameters, self.name))
        elif len(arguments) != self._count:
            raise miscounted(len(arguments), self.parameters, self.name)
        fast = self._fast
        if fast is not None and fast.short and not self._checks and fast.grow():
            return fast.function(*arguments) if out is None else fast.function(*arguments, out=out)
        if self._checks and config.nans == "raise":
            return nans.checked(self, arguments, self._entry if out is None else partial(self._into, out))
        if out is not None:
            return self._into(out, *arguments)
        results = self._entry(*arguments)
        fast = self._fast  # the first call has made it
        if fast is not None:
            fast.call.learn(map(type, arguments))
            if self.variables and fast.stale(self.state):
                self._watch(fast)
        return results

    def _targets(self, out: Any) -> list[Any]:
        """Returns the caller's arrays, in the order of the results."""
        try:
            return self.results.taken(out)
        except ValueError as error:
            raise ArgumentError(f"{self.name}: {error}") from None

    def _into(self, out: Any, *arguments: Any) -> Any:
        """Computes results in the caller's arrays: directly where that is possible, else by copies."""
        targets = [as_array(t) if exchange_api(type(t)) is not None else t for t in self._targets(out)]
        if self.writes:
            check_out(targets, written(arguments, self.writes, self._lowered.program, self.parameters), self.parameters)
        entry = self._ready() if self._entry == self._first else self._entry
        takes = self.executable.native is not None or self.writes or self.forms != PLAIN
        given = entry(*arguments, out=targets) if takes and self.results.plain else entry(*arguments)
        pairs = list(zip(targets, self.results.taken(given), strict=True))
        for target, array in pairs:
            if array is None or array is target:
                continue
            if not isinstance(target, np.ndarray) or target.shape != array.shape or target.dtype != array.dtype:
                what = f"{target.dtype}{list(target.shape)}" if isinstance(target, np.ndarray) else type(target).__name__
                raise ArgumentError(
                    f"{self.name}: out= holds {what} where the result is {array.dtype}{list(array.shape)}",
                    fix=f"pass out=np.empty({array.shape}, {array.dtype.name!r})",
                )
        for target, array in pairs:
            if array is not None and array is not target:
                np.copyto(target, array)
        fast = self._fast
        if fast is not None:
            fast.call.learn(map(type, (*arguments, *self._targets(out))))
        return out

    def _first(self, *arguments: Any, **more: Any) -> Any:
        """Compiles at the first call, and installs the entry for later calls."""
        results = self._ready()(*arguments, **more)
        self._hasten()
        if self._fast is None and self.executable.native is not None:
            with self.state.compiling:
                if self._entry != self._first:
                    self._entry = partial(self._timed, self._entry, TIMED)
        return results

    def _timed(self, entry: Callable[..., Any], left: int, *arguments: Any, **more: Any) -> Any:
        """Times a call, one of the first few, since short programs switch to the fast path."""
        start = time.perf_counter()
        results = entry(*arguments, **more)
        took = time.perf_counter() - start
        if self.state.compiling.acquire(blocking=False):  # later, if another thread compiles
            try:
                if self._entry != self._first:
                    self._entry = partial(self._timed, entry, left - 1) if left > 1 else entry
                self._hasten(took)
            finally:
                self.state.compiling.release()
        return results

    @with_room
    def _ready(self) -> Callable[..., Any]:
        """Compiles, and returns the entry for later calls."""
        self._open()
        executable = self.executable
        if self.variables:
            with self.state.lock.reading():
                self.state.ensure(self.variables)
        entry = self._made_entry(executable)
        with self.state.compiling:
            self._open()
            self._entry = entry
        return entry

    # fast path
    def _hasten(self, took: float | None = None) -> None:
        """Makes calls bypass Python, if the executable supports it; calls that do not fit return to `call`.

        took    seconds of a call, where known
        """
        native = self.executable.native
        if native is None or self.results.nest is not None or self._fast is not None:
            return
        slots = self.results.slots
        order = None if self.results.nothing else slots[0] if self.results.single else slots
        made = native.fast(order, self.call, took, self.forms, self._nonempty)
        if made is not None and self._writes:
            made.counts(self.state.counter(self.written))
        if made is not None and (not self.variables or self._watch(made)):
            with self.state.compiling:
                if not self.state.closed and self._fast is None:  # another thread may have been earlier
                    made.install()
                    self._fast = made
                    self._shorten()

    @property
    def _nonempty(self) -> list[ExprLike] | None:
        """Lengths that must not be 0, over numbers of arguments and their dims, `Len((0, 1))`; None where arguments do not tell them."""
        program = self._lowered.program
        places: dict[AxisId, ExprLike] = {}
        for k, v in enumerate(program.inputs):
            for d, a in enumerate(v.axes):
                own = program.axes[a]
                if isinstance(own, Len):
                    places.setdefault(own.of, Len((k, d)))
        found = [program.settled(Len(a)) for a in self._lowered.nonempty]
        told = all(leaf.of in places for e in found for leaf in leaves(e))
        return [substitute(e, lambda leaf: places[leaf.of]) for e in found] if told else None

    def _shorten(self) -> None:
        """Makes calls go the fast path, if there is one and results are not checked."""
        self._through(self.call if self._fast is None or self._checks else self._fast.function)

    def _watch(self, fast: Any) -> bool:
        """Passes a fast path the addresses of state, and the words that show changes of these and writes by others."""
        state = self.state
        word = held()
        if word is None:
            return False
        locks, moved = state.lock.readers(), state.moved
        watches = [(id(lock) + word, 0) for lock in locks]
        watches += [(ctypes.addressof(state.lock.count), len(locks)), (ctypes.addressof(state.moves), moved)]
        with state.lock.reading():
            words = state.words(self._still) if fast.packed is not None else []
            fits = fast.packed == self._lent.stamp()
            watches += [(ctypes.addressof(word), word.value if fits else -1) for word in words]
            arrays = [state.arrays.get(v) for v in self._lent.variables]
            if state.moved == moved and not any(a is None for a in arrays):
                fast.point(arrays, watches, moved, [(word, word.value) for word in words] if fits else None, locks, state)
        return True

    def compile(self, **lengths: int) -> Computation:
        """Compiles now, rather than at the first call; for these lengths of axes, if any are given, a version of their own.

        Raises AxisError for a name of no axis of unknown length, UnsupportedError for lengths where there is no machine code.
        """
        self.executable  # noqa: B018  compiled here
        if lengths:
            self.native.special(lengths)
            with self.state.compiling:
                fast, self._fast = self._fast, None  # it may serve all lengths, by the code for all of them
                self._shorten()
            if fast is not None:
                self._hasten()
        return self

    def _open(self) -> None:
        if self.state.closed:
            raise StateError(f"{self.name}: its transformer is closed", fix="make a new transformer, and its computations again")

    def close(self) -> None:
        """Makes later calls raise errors."""
        with self.state.compiling:
            self._entry, self._fast = self._first, None
            self._through(self.call)

    def _general_entry(self, executable: Executable) -> Callable[..., Any]:
        """Returns the entry of a computation that writes parameters, into memory that nothing else in the call has, or whose arrays
        have forms of their own."""
        program, nonempty, count = self._lowered.program, self._lowered.nonempty, self.results.count
        given, made, api = self.forms
        run = self._with_state(executable) if self._face.state_in else executable.call
        native = executable.native is not None and self.results.plain
        source: list[tuple[int, int]] = []

        def turned(array: Any, order: tuple[int, ...] | None) -> Any:
            return array if order is None or not isinstance(array, np.ndarray) or array.ndim != len(order) else array.transpose(order)

        def entry(*arguments: Any, out: Sequence[Any] | None = None) -> Any:
            targets = written(arguments, self.writes, program, self.parameters) if self.writes else {}
            values = list(arguments)
            for k, target in targets.items():
                values[k] = target
            binder = Binder(program, self.parameters, nonempty)
            arrays = binder.fit(values)
            for k, target in targets.items():
                if arrays[k] is not target:
                    raise unwritable(self.parameters[k], target, f"has the axes {show_axes(self.parameters[k].axes)}")
            arrays = apart(arrays, targets, self.parameters) if targets else arrays
            arrays = [turned(a, given.get(k)) for k, a in enumerate(arrays)]
            theirs: list[Any] = []
            if api is not None and out is None:
                if not source and native and (found := kept_blocks(api, self)):
                    source.append(found)
                memory = source[0] if source else None
                theirs = [_theirs(api, v, made.get(n), binder, memory) for n, v in enumerate(self._face.outputs[:count])]
            wanted = [None if x is None else as_array(x) for x in theirs] if out is None else out
            places = [turned(a, made.get(n)) for n, a in enumerate(wanted)]
            outputs = list(run(*arrays, out=places) if native and places else run(*arrays))
            for k in targets:
                n = self.writes[k]
                if outputs[n] is not arrays[k]:
                    np.copyto(arrays[k], outputs[n])
            for n in range(count):
                array = outputs[n]
                if n < len(places) and array is places[n]:
                    outputs[n] = theirs[n] if theirs else wanted[n]
                elif array is not None:
                    if n in made:
                        array = np.ascontiguousarray(array).transpose(np.argsort(made[n]))
                    outputs[n] = array if api is None or out is not None else api.copied(array, made.get(n))
            return self.results.packed(tuple(outputs[:count]))

        return entry

    def _made_entry(self, executable: Executable) -> Callable[..., Any]:
        """Generates `def entry(x, y)`: tests whether x and y fit as they are, else converts them first."""
        if self.writes or self.forms != PLAIN:
            return self._general_entry(executable)
        program, nonempty = self._lowered.program, self._lowered.nonempty
        names = [f"a{k}" for k in range(self._count)]
        tests: list[str] = []
        lengths: dict[AxisId, str] = {}
        known: dict[str, Any] = {"ndarray": np.ndarray, "convert": lambda *args: Binder(program, self.parameters, nonempty).fit(args)}
        for name, value in zip(names, program.inputs, strict=True):
            known[f"{name}_dtype"] = value.dtype.np
            tests += [f"type({name}) is ndarray", f"{name}.dtype is {name}_dtype"]
            sizes = []
            for d, axis in enumerate(value.axes):
                length = program.axes[axis]
                if isinstance(length, int):
                    sizes.append(str(length))
                elif isinstance(length, Len) and length.of in lengths:
                    sizes.append(lengths[length.of])
                elif isinstance(length, Len):
                    lengths[length.of] = f"n{len(lengths)}"
                    sizes.append(f"({lengths[length.of]} := {name}.shape[{d}])")
                else:
                    sizes.append("-1")  # an expression: the converter compares it
            if any(":=" in s for s in sizes):
                tests.append(f"{name}.ndim == {len(sizes)}")
            tests.append(f"{name}.shape == ({', '.join(sizes)}{',' * (len(sizes) == 1)})")
        for axis in nonempty:
            e = program.settled(Len(axis))
            seen = all(leaf.of in lengths for leaf in leaves(e))
            tests.append(expr_text(e, lambda leaf: lengths[leaf.of]) if seen else "False")
        arguments = ", ".join(names)
        more = "" if executable.native is None else f"{', ' * bool(names)}**more"
        lines = [f"def entry({arguments}{more}):"]
        if names:
            lines += [f"    if not ({' and '.join(tests)}):", f"        {arguments}{',' * (len(names) == 1)} = convert({arguments})"]
        run = self._with_state(executable) if self._face.state_in else executable.call
        known["run"], known["packed"] = run, self.results.packed
        simple = self.results.single and self.results.plain
        lines.append(f"    return run({arguments}{more})[0]" if simple else f"    return packed(run({arguments}{more}))")
        exec(compile("\n".join(lines), inside(f"<entry of {self.name}>"), "exec"), known)
        return known["entry"]

    @property
    def _lent(self) -> Lent:
        """The variables that the program reads; passes may have removed some."""
        if self._taken is None:
            self._taken = Lent(self.state, [self._lowered.states[s.name] for s in self._face.state_in], self._still)
        return self._taken

    @property
    def states(self) -> dict[str, Op]:
        """The variables of the lowered program, by their names there."""
        return self._lowered.states

    @property
    def written(self) -> list[Op]:
        """The variables that a call writes."""
        return [self._lowered.states[name] for name, _ in self._face.state_out]

    @property
    def _still(self) -> list[Op]:
        """The variables that the program only reads: prepacked weights depend on no others."""
        written = {name for name, _ in self._face.state_out}
        return [self._lowered.states[s.name] for s in self._face.state_in if s.name not in written]

    def _with_state(self, executable: Executable) -> Callable[..., tuple[Any, ...]]:
        """Returns the executable with state passed to it: beside other readers, or, if it writes, exclusively and uninterrupted."""
        state, call, lent, native = self.state, executable.call, self._lent, executable.native is not None
        arrays, lock, count = state.arrays, state.lock, len(self._face.outputs)
        changed = self.written

        def run(arguments: tuple[Any, ...], more: dict[str, Any]) -> tuple[Any, ...]:
            if native:
                return call(*arguments, states=lent.arrays(), version=lent.stamp(), **more)
            return call(*arguments, *lent.arrays())

        def reading(*arguments: Any, **more: Any) -> tuple[Any, ...]:
            with lock.reading():
                return run(arguments, more)

        def writing(*arguments: Any, **more: Any) -> tuple[Any, ...]:
            held = interrupts.hold()
            try:
                lock.start_writing(held)
                try:
                    if state.borrowed:
                        state.own(changed)
                    lent.arrays()  # may fail, before any state is inconsistent
                    try:
                        if held:
                            interrupts.running = True
                        results = run(arguments, more)
                        if held:
                            interrupts.running = False
                    except BaseException as error:
                        if held:
                            interrupts.running = False
                        if executable.in_place and not isinstance(error, OutOfMemoryError):
                            state.torn.update(changed)
                        raise
                    state.wrote(changed)
                    if any(arrays.get(v) is not a for v, a in zip(changed, results[count:], strict=True)):
                        state.move()
                    arrays.update(zip(changed, results[count:], strict=True))  # one step, which no signal interrupts
                    return results[:count]
                finally:
                    lock.stop_writing()
            finally:
                if held:
                    interrupts.release()

        return writing if changed else reading

    if not TYPE_CHECKING:
        __getattr__ = missing_attribute(lambda self, name: no_attribute("a computation", name, OF_COMPUTATIONS, dir(type(self)), "f"))

    def __repr__(self) -> str:
        given = some([f"{p.label}{show_axes(p.axes)}" for p in self.parameters])
        gives = some([f"{r.label}{show_axes(r.axes) if r.is_tensor_op else ''}" for r in self.results.ops])
        return f"<Computation {self.name}({given}) -> {gives or 'nothing'}>"

    def _repr_html_(self) -> str:
        writes = {name for name, _ in self._lowered.program.state_out}
        rows = [
            *(("takes", p.label, p) for p in self.parameters),
            *(("gives", r.label, r) for r in self.results.ops),
            *(("writes" if s.name in writes else "reads", s.name, self._lowered.states[s.name]) for s in self._lowered.program.state_in),
        ]
        program = self.program
        return table(self.name, rows) + folded(f"the program that runs: {len(program.steps)} steps", text(program, origins=False))
