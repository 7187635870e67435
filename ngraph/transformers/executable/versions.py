"""A program on a device: planned and compiled for the lengths of its calls.

With `ng.config(lengths="open")` one version serves all lengths, and no call makes another: an input gives the same bits whatever came
before it. With `"first"` the first lengths get code of their own; from the second on, symbols that differ stay open in one version for all
of them, and lengths that keep coming get a version too, where no state is written: how often is counted, so that equal runs agree.
"""

from __future__ import annotations

import contextlib
import sys
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ngraph.config import config
from ngraph.errors import AxisError, GraphError
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.expr import ExprLike, Len
from ngraph.op_graph.memory import no_collection, with_room
from ngraph.parts.deferred import deferred
from ngraph.plan.kernels import OpaqueOp
from ngraph.program.program import AxisId, Program
from ngraph.runtime.cache import cache, program_fingerprint
from ngraph.runtime.computation import Executable
from ngraph.runtime.graph_cache import CacheHit
from ngraph.runtime.host.entry import PLAIN, ArrayForms
from ngraph.runtime.host.locks import fork_safe_lock
from ngraph.runtime.watching import watcher
from ngraph.transformers.executable.cached import CachedProgram, code_of
from ngraph.transformers.executable.code import CompiledPlan, LoadedPlan, stripped_key, title
from ngraph.transformers.executable.device import KernelDevice
from ngraph.transformers.executable.frame import InstantiatedPlan

if TYPE_CHECKING:
    from ngraph.runtime.profile import Profile

compared, profile = deferred("ngraph.transformers.executable.compared"), deferred("ngraph.transformers.executable.profile")
plan_text = deferred("ngraph.plan.text")
VERSIONS = 16  # lengths for which memory is kept
PYTHON = ("effect", "check_bounds")  # ops whose steps Python runs: what prints or saves, and what says which index is outside
CALLS_BEFORE_SPECIALISING = 64  # calls on open lengths after which these get a version of their own; twice as many for each further one
Key = tuple[int | None, ...]


class VersionedExecutable(ABC):
    """A program, and what it was compiled to on a device.

    One that was found lacks its steps and the user's names until they are asked for, or lengths come that it has no code for.
    `cached`: whether plans are kept for others.
    """

    cached = True

    def __init__(self, device: KernelDevice, program: Program | CacheHit, whole: Callable[[], Program] | None = None):
        self.device = device
        self.found = program if isinstance(program, CacheHit) else None
        self.program = program.program if isinstance(program, CacheHit) else program
        self.whole, self.symbols = whole, symbols(self.program)
        self.codes: dict[Key, LoadedPlan] = {}
        self.settings: dict[Key, tuple[Any, ...]] = {}
        self.bound: OrderedDict[tuple[int, ...], InstantiatedPlan] = OrderedDict()
        self.first: Key | None = None
        self.eager = config.lengths == "first"  # whether lengths that come get versions
        self.earned = 0  # versions for lengths that kept coming
        self.compiling = fork_safe_lock()
        places = {s.name: k for k, s in enumerate(self.program.state_in)}
        self.written = {name: places[name] for name, _ in self.program.state_out}
        if not self.symbols:
            self.at(())

    # ---- what a kind of machine says

    @abstractmethod
    def facts(self) -> tuple[Any, ...]:
        """The target, and all else beside a program that decides what it is compiled to."""

    @abstractmethod
    def compile(self, lengths: Mapping[AxisId, int], facts: tuple[Any, ...]) -> CompiledPlan:
        """Plans the program for these lengths and compiles its kernels."""

    @abstractmethod
    def again(self, made: CompiledPlan) -> None:
        """Compiles kernels again that are kept no more."""

    def stripped(self, made: CompiledPlan) -> CompiledPlan | None:
        """Returns the part that calls alone need, without the program; None for nothing."""
        return None

    @abstractmethod
    def missing(self, step: OpaqueOp) -> None:
        """Says that Python runs a step for lack of a kernel."""

    @abstractmethod
    def report(self, code: LoadedPlan, compiling: float) -> None:
        """Says what was compiled, in so many seconds; 0.0 where it was found in the cache."""

    # ---- versions

    def executable(self) -> Executable:
        return Executable(self.call, source=self.source, memory=self.memory, in_place=True, native=self)

    def code(self, key: Key) -> LoadedPlan:
        """The compiled program for these lengths; None stands for any."""
        with self.compiling:
            if key not in self.codes:
                self.settings[key] = self.facts()
                with no_collection():
                    self.codes[key] = self._restored(key) or self._made(key)
            return self.codes[key]

    def _restored(self, key: Key) -> LoadedPlan | None:
        """The compiled form of an equal program, from the cache; None where it is not there."""
        if self.found is None:
            return None
        made = cache().planned(stripped_key(self.found.fingerprint, (key, *self.settings[key])), self.found.names)
        return None if made is None else code_of(made, self.device)

    @with_room
    def _made(self, key: Key) -> LoadedPlan:
        self.named()
        facts, took = self.settings[key], 0.0

        def make() -> CompiledPlan:
            nonlocal took
            start = time.perf_counter()
            made = self.compile(known_lengths(self.symbols, key), facts)
            took = time.perf_counter() - start
            return made

        made = cache().plan(self.program, (key, *facts), make) if self.cached else make()
        fingerprint, names = program_fingerprint(self.program)
        short = stripped_key(fingerprint, (key, *facts))
        if self.cached and (took or cache().find(short, "plans", counted=False) is None):
            bare = self.stripped(made)
            if bare is not None:
                cache().keep_plan(short, bare, names)
        code = LoadedPlan(made, self.device, lambda: self.again(made))
        for step in code.host_callbacks():
            if step.op not in PYTHON:
                self.missing(step)
        self.report(code, took)
        return code

    def named(self) -> Self:
        """Itself, with the whole program and the user's names. Raises GraphError where its graph gives another program by now."""
        with self.compiling:
            if self.found is not None and self.whole is not None:
                program = self.whole()
                if program_fingerprint(program)[0] != self.found.fingerprint:
                    what = f"the graph of {self.program.name} has changed since this computation was made"
                    raise GraphError(what, fix="give axes their lengths before")
                self.program, self.symbols, self.found, self.whole = program, symbols(program), None, None
                for key, unnamed in self.codes.items():
                    self.codes[key] = made = self._made(key)
                    made.calls, made.entries = unnamed.calls, unnamed.entries
        return self

    def kept(self, arguments: Sequence[Any]) -> tuple[CachedProgram, Sequence[ArrayRef]] | None:
        """Returns the cache entry of its first version, if these arguments are for that one, and its large arrays; None with state."""
        key = tuple([arguments[k].shape[d] for k, d in self.symbols.values()])
        if self.program.state_in or self.program.writes or self.first is None or self._version(key) != self.first:
            return None
        fingerprint, names = program_fingerprint(self.program) if self.found is None else (self.found.fingerprint, self.found.names)
        stripped = stripped_key(fingerprint, (self.first, *self.facts()))
        places = {a: k for k, a in enumerate(names.axes)}
        lengths = tuple([(places[a], n) for a, n in zip(self.symbols, key, strict=True)])
        return CachedProgram(stripped.hex(), len(names.axes), lengths), names.arrays

    def at(self, key: tuple[int, ...]) -> InstantiatedPlan:
        """Returns the instantiated plan for calls with these lengths."""
        found = self.bound.get(key)
        if found is not None:
            with contextlib.suppress(KeyError):  # another thread may have dropped it
                self.bound.move_to_end(key)
            return found
        return self._bind(key)

    def _bind(self, key: tuple[int, ...]) -> InstantiatedPlan:
        """Instantiates the plan for calls with these lengths, in place of one that there may be: other threads always find some."""
        with self.compiling:
            version = self._version(key)
            why = "" if version in self.codes else self._why(key)
            self.bound[key] = made = InstantiatedPlan(self.code(version), dict(zip(self.symbols, key, strict=True)))
            self._told(version, why)
            made.open = None in version
            while len(self.bound) > VERSIONS:
                self.bound.popitem(last=False)
            return made

    def named_at(self, key: tuple[int, ...]) -> InstantiatedPlan:
        """Returns the instantiated plan for calls with these lengths, with steps and names where `named` has found them."""
        bound = self.at(key)
        return bound if any(bound.code is code for code in list(self.codes.values())) else self._bind(key)

    def _version(self, key: Key) -> Key:
        """The key of the version for these lengths."""
        if self.first is None:
            self.first = key if self.eager else (None,) * len(key)
        return key if key in self.codes or key == self.first else self._open(key)

    def _open(self, key: Key) -> Key:
        """The key of the version for these lengths that leaves the fewest open; a new one leaves those open that differ from the first."""
        assert self.first is not None
        there = [k for k in list(self.codes) if all(m is None or m == n for m, n in zip(k, key, strict=True))]
        new = tuple([n if n == m else None for n, m in zip(key, self.first, strict=True)])
        return min(there, key=lambda k: sum(n is None for n in k), default=new)

    def _counted(self, key: tuple[int, ...], bound: InstantiatedPlan) -> InstantiatedPlan:
        """Returns the instantiated plan for calls with these lengths, counting one more: frequent lengths get code of their own."""
        bound.calls += 1
        if bound.calls <= CALLS_BEFORE_SPECIALISING << self.earned:
            return bound
        with self.compiling:
            if key not in self.codes:
                self.earned += 1
                self.code(key)
                self._told(key, f"they came {bound.calls} times")
            return self._bind(key) if self.bound.get(key) is bound else self.at(key)

    def _why(self, key: Key) -> str:
        """The reason for a new version in a call of these lengths."""
        if not self.eager:
            return "code for all lengths"
        return "the first lengths" if key == self.first else f"lengths {self.shown(key)} differ from the first"

    def shown(self, key: Key) -> str:
        """A version's lengths by the user's names: `N=32, T open`."""
        names = [self.program.hints.get(a, "") or str(a) for a in self.symbols]
        return ", ".join([f"{name} open" if n is None else f"{name}={n}" for name, n in zip(names, key, strict=True)])

    def _told(self, key: Key, why: str) -> None:
        """Says, with DEBUG=1, that there is a new version, and why; "" for none."""
        if why and key and config.debug >= 1:
            print(f"{self.program.name}: version {len(self.codes)} ({self.shown(key)}): {why}", file=sys.stderr)

    def special(self, lengths: Mapping[str, int]) -> None:
        """Compiles a version for these lengths, by the user's names of axes. Raises AxisError for names of no axis whose length is open."""
        names = [{str(a), self.program.hints.get(a, "")} for a in self.symbols]
        unknown = [name for name in lengths if not any(name in own for own in names)]
        if unknown:
            raise AxisError(
                f"{self.program.name} has no axis {', '.join(unknown)} whose length is open",
                fix="omit it, or make the axis without a length",
            )
        key = tuple([next((n for name, n in lengths.items() if name in own), None) for own in names])
        there = key in self.codes
        self.code(key)
        self._told(key, "" if there else "the program asked for it")
        known = tuple([n for n in key if n is not None])
        if len(known) == len(key):
            self.at(known)

    def call(self, *arrays: Any, states: Sequence[Any] = (), out: Sequence[Any] | None = None, version: int = 0) -> tuple[Any, ...]:
        """See `Executable`: while `states` is the same list, its arrays are the same."""
        count = len(arrays)
        key = tuple([(arrays[k] if k < count else states[k - count]).shape[d] for k, d in self.symbols.values()])
        bound = self.at(key) if watcher.get() is None else self.named_at(key)
        if bound.open and self.eager and not self.written:
            bound = self._counted(key, bound)
        bound.code.calls += 1
        given = [a if a.flags.c_contiguous and a.flags.aligned else np.require(a, requirements=("C", "A")) for a in arrays]
        outputs, written = bound(given, states, version, out)
        return (*outputs, *[written[name] if name in written else states[k] for name, k in self.written.items()])

    def fast(
        self,
        order: Any,
        slow: Callable[..., Any],
        took: float | None = None,
        forms: ArrayForms = PLAIN,
        nonempty: Sequence[ExprLike] | None = (),
    ) -> Any:
        """The way past Python, if there is one: for calls with the last lengths or, where one version serves all, with any.

        took      the seconds of a call, where they are known
        nonempty  lengths that must not be 0, see `cpu.fast.fast`; None where arguments do not tell them
        """
        bound = list(self.bound.values())[-1]  # in one step: other threads change it
        every = bound.open and not self.eager and len(self.codes) == 1 and nonempty is not None
        return self.device.entry(bound, order, slow, took, forms, self.symbols if every else None, nonempty or ())

    def predicted(self) -> float | None:
        """Returns the seconds that schedules predict for a call of the last lengths, on one thread; None where it is not known."""
        return list(self.bound.values())[-1].predicted if self.bound else None

    def calls(self) -> dict[str, int]:
        """Returns how often each version was called, by its lengths; none where no length is open."""
        return {self.shown(k): c.calls + sum(e.calls for e in c.entries) for k, c in list(self.codes.items()) if k}

    def profile(self, call: Callable[[], Any], calls: int) -> Profile:
        """Returns the time of calls with the last lengths by kernel."""
        bound = self.named_at(list(self.bound)[-1])
        found: Profile = profile.profile(self.program.name, bound, call, calls, title)
        return replace(found, versions=tuple(self.calls().items()))

    def compare(self, arrays: Sequence[np.ndarray], states: Sequence[np.ndarray]) -> int:
        """Returns the number of kernels that agree with the plan. Raises NgraphError for the first that does not."""
        count = len(arrays)
        key = tuple([(arrays[k] if k < count else states[k - count]).shape[d] for k, d in self.symbols.values()])
        bound = self.named_at(key)
        names = [s.name for s in self.program.state_in]
        found: int = compared.compared(bound.code, bound.lengths, arrays, dict(zip(names, states, strict=True)))
        return found

    # ---- to look at

    @property
    def lengths(self) -> dict[AxisId, int]:
        """Those that are known in the version that was made first; none where there is none yet."""
        return next((known_lengths(self.symbols, key) for key in list(self.codes)), {})

    @property
    def chosen(self) -> LoadedPlan:
        """The version that was made first; with lengths open where there is none yet."""
        if not self.codes:
            return self.code((None,) * len(self.symbols))
        return list(self.codes.values())[0]

    def plan_text(self) -> str:
        return str(plan_text.text(self.chosen.plan))

    def source(self) -> str:
        return ""

    def memory(self) -> dict[str, int]:
        """Bytes, by what they are for."""
        m = self.chosen.plan.memory
        return {"arena": m.arena, "constants": m.constants, "packed": self.chosen.plan.kept, "state": m.state, "outputs": m.outputs}


def known_lengths(symbols: Iterable[AxisId], key: Key) -> dict[AxisId, int]:
    """The lengths of a version, by axis, but those that it leaves open."""
    return {a: n for a, n in zip(symbols, key, strict=True) if n is not None}


def symbols(program: Program) -> dict[AxisId, tuple[int, int]]:
    """The axes whose length comes with a call, and where that has it: which argument, which dim."""
    found: dict[AxisId, tuple[int, int]] = {}
    for k, v in enumerate([*program.inputs, *(s.value for s in program.state_in)]):
        for d, a in enumerate(v.axes):
            own = program.axes[a]
            if type(own) is Len:
                found.setdefault(own.of, (k, d))
    return found
